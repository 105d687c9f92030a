/* ffn.c - a gated feed-forward network on packed weights: loading its columns, and the inner half
 *     inner[t][f] = act(gate[f] . x[t] + b, up[f] . x[t] + b)
 * computed a few panels at a time, so that gate, up and activation of them stay in cache. Dense
 * layers, shared and routed experts are all this. */
#include "moe_internal.h"

/* Panels of gate, then of up, in a row: long enough for reads to run ahead from panel to panel,
 * short enough for 64 rows to stay in cache (64 KiB). */
enum { INNER_PANELS = 4 };

const tti_ffn_roles tti_ffn_dense = {TT_ROLE_GATE,  TT_ROLE_UP,    TT_ROLE_DOWN,
                                     TT_ROLE_COUNT, TT_ROLE_COUNT, TT_ROLE_COUNT};
const tti_ffn_roles tti_ffn_shared = {TT_ROLE_SHARED_GATE, TT_ROLE_SHARED_UP, TT_ROLE_SHARED_DOWN,
                                      TT_ROLE_COUNT,       TT_ROLE_COUNT,     TT_ROLE_COUNT};
const tti_ffn_roles tti_ffn_expert = {TT_ROLE_EXPERT_GATE,    TT_ROLE_EXPERT_UP,
                                      TT_ROLE_EXPERT_DOWN,    TT_ROLE_EXPERT_GATE_BIAS,
                                      TT_ROLE_EXPERT_UP_BIAS, TT_ROLE_EXPERT_DOWN_BIAS};

void tt_ffn_fini(tt_ffn *ffn)
{
    tt_linear_fini(&ffn->gate);
    tt_linear_fini(&ffn->up);
    tt_linear_fini(&ffn->down);
    ffn->F = 0;
    ffn->H = 0;
}

/* What is loaded of its three matrices. */
typedef struct part {
    tt_role weight, bias;
    int64_t begin, n_rows;
} part;

enum { PARTS = 3 }; /* gate, up, down */

static void parts_of(const tti_ffn_roles *roles, const tti_ffn_columns *columns, part *parts)
{
    const int64_t f_rows = columns->f_end - columns->f_begin;
    parts[0] = (part){roles->gate, roles->gate_bias, columns->f_begin, f_rows};
    parts[1] = (part){roles->up, roles->up_bias, columns->f_begin, f_rows};
    parts[2] =
        (part){roles->down, roles->down_bias, columns->h_begin, columns->h_end - columns->h_begin};
}

/* One matrix and its bias. */
static tt_status load_part(tt_load_params *load, const part *p, const tt_tensor *tensor,
                           const tt_tensor *bias, tt_linear *linear)
{
    TT_TRY(tt_load_linear(load, tensor, p->begin, p->n_rows, linear));
    return tt_load_vector(load, bias, p->begin, p->n_rows, &linear->bias);
}

/* What the network is like beside its weights. */
static void describe(tt_ffn *ffn, const tt_arch *arch, const tt_tensor *down)
{
    ffn->F = down->cols;
    ffn->H = down->rows;
    ffn->activation = arch->activation;
    ffn->limit = arch->activation_limit;
    ffn->alpha = arch->activation_alpha;
}

tt_status tti_ffn_load(tt_load_params *load, const tti_ffn_roles *roles, int64_t layer,
                       int64_t expert, const tti_ffn_columns *columns, tt_ffn *ffn)
{
    tt_linear *const linears[PARTS] = {&ffn->gate, &ffn->up, &ffn->down};
    part parts[PARTS];
    parts_of(roles, columns, parts);
    tt_tensor tensor = {0};
    for (int i = 0; i < PARTS; i++) {
        tt_tensor bias = {0};
        tensor = tt_model_tensor(load->model, parts[i].weight, layer, expert);
        if (parts[i].bias != TT_ROLE_COUNT) {
            bias = tt_model_tensor(load->model, parts[i].bias, layer, expert);
        }
        tt_status st = load_part(load, &parts[i], &tensor, &bias, linears[i]);
        if (st != TT_OK) {
            tt_ffn_fini(ffn);
            return tt_status_trace(st, __FILE__, __LINE__, __func__);
        }
    }
    describe(ffn, tt_model_arch(load->model), &tensor);
    return TT_OK;
}

tt_status tti_ffn_reserve(tt_load_params *load, const tti_ffn_roles *roles, int64_t layer,
                          int64_t expert, const tti_ffn_columns *columns, tt_ffn *ffn)
{
    tt_linear *const linears[PARTS] = {&ffn->gate, &ffn->up, &ffn->down};
    part parts[PARTS];
    parts_of(roles, columns, parts);
    tt_tensor tensor = {0};
    for (int i = 0; i < PARTS; i++) {
        tensor = tt_model_tensor(load->model, parts[i].weight, layer, expert);
        const ttk_format format = tt_load_format(load->weights, &tensor);
        const size_t bytes = ttk_packed_bytes(&format, parts[i].n_rows, tensor.cols);
        const bool has_bias = parts[i].bias != TT_ROLE_COUNT &&
                              tt_model_tensor(load->model, parts[i].bias, layer, expert).name;
        tt_linear_borrow(linears[i], &format, parts[i].n_rows, tensor.cols,
                         bytes > 0 ? tt_arena_alloc(load->arena, bytes) : NULL);
        if (has_bias && parts[i].n_rows > 0) {
            void *bias = NULL;
            TT_TRY(tt_memory_alloc("bias of an empty slot", (size_t)parts[i].n_rows * sizeof(float),
                                   load->node, &bias));
            linears[i]->bias = bias;
        }
    }
    describe(ffn, tt_model_arch(load->model), &tensor);
    return TT_OK;
}

bool tti_ffn_alike(const tt_load_params *load, const tti_ffn_roles *roles, int64_t layer, int64_t a,
                   int64_t b)
{
    const tt_role weight[PARTS] = {roles->gate, roles->up, roles->down};
    for (int i = 0; i < PARTS; i++) {
        const tt_tensor first = tt_model_tensor(load->model, weight[i], layer, a),
                        second = tt_model_tensor(load->model, weight[i], layer, b);
        const ttk_format f = tt_load_format(load->weights, &first),
                         s = tt_load_format(load->weights, &second);
        if (f.code != s.code || f.scale != s.scale || f.shift != s.shift || f.group != s.group ||
            f.super != s.super) {
            return false;
        }
    }
    return true;
}

void tti_ffn_will_need(const tt_load_params *load, const tti_ffn_roles *roles, int64_t layer,
                       int64_t expert, const tti_ffn_columns *columns)
{
    part parts[PARTS];
    parts_of(roles, columns, parts);
    for (int i = 0; i < PARTS; i++) {
        const tt_tensor tensor = tt_model_tensor(load->model, parts[i].weight, layer, expert);
        tt_load_will_need(load, &tensor, parts[i].begin, parts[i].n_rows);
    }
}

size_t tti_ffn_packed_bytes(const tt_load_params *load, const tti_ffn_roles *roles, int64_t layer,
                            int64_t expert, const tti_ffn_columns *columns)
{
    part parts[PARTS];
    parts_of(roles, columns, parts);
    tt_arena count = {0};
    for (int i = 0; i < PARTS; i++) {
        const tt_tensor tensor = tt_model_tensor(load->model, parts[i].weight, layer, expert);
        if (tensor.name) {
            const ttk_format format = tt_load_format(load->weights, &tensor);
            tt_arena_alloc(&count, ttk_packed_bytes(&format, parts[i].n_rows, tensor.cols));
        }
    }
    return count.used_bytes;
}

uint64_t tti_ffn_bytes(const tt_ffn *ffn)
{
    return tt_linear_bytes(&ffn->gate) + tt_linear_bytes(&ffn->up) + tt_linear_bytes(&ffn->down);
}

/* inner[T][ld] = act(inner, up[T][ld]), n columns. */
static void activate(const tt_ffn *ffn, float *inner, const float *up, int64_t ld, int64_t T,
                     int64_t n)
{
    if (ffn->activation == TT_ACTIVATION_CLAMPED) {
        ttk.clamped_mul_f32(inner, ld, inner, ld, up, ld, T, n, ffn->limit, ffn->alpha);
    } else {
        ttk.silu_mul_f32(inner, ld, inner, ld, up, ld, T, n);
    }
}

void tti_ffn_inner(const tt_ffn *ffn, const tti_ffn_half *half)
{
    for (int64_t p = half->panel_begin, end; p < half->panel_end && half->T > 0; p = end) {
        end = half->panel_end - p < INNER_PANELS ? half->panel_end : p + INNER_PANELS;
        int64_t col = p * TTK_PANEL;
        int64_t n = ffn->gate.N < end * TTK_PANEL ? ffn->gate.N - col : (end - p) * TTK_PANEL;
        tt_linear_panels(&ffn->gate, half->out, half->ld, half->in, half->T, p, end);
        tt_linear_panels(&ffn->up, half->up, half->ld, half->in, half->T, p, end);
        activate(ffn, half->out + col, half->up + col, half->ld, half->T, n);
    }
}

void tti_ffn_down(const tt_ffn *ffn, const tti_ffn_half *half)
{
    tt_linear_panels(&ffn->down, half->out, half->ld, half->in, half->T, half->panel_begin,
                     half->panel_end);
}

typedef struct half_task {
    const tt_ffn *ffn;
    const tti_ffn_half *half;
} half_task;

/* What one thread does of a half; its rows are in *rows_out. */
static tti_ffn_half half_of(const half_task *task, int thread_id, int n_threads, tt_rows *rows_out)
{
    tti_ffn_half own = *task->half;
    tt_tile tile = tt_linear_tile(own.panel_begin, own.panel_end, own.T, thread_id, n_threads);
    *rows_out = tt_rows_from(own.in, tile.row_begin);
    own.in = rows_out;
    own.out += tile.row_begin * own.ld;
    if (own.up) {
        own.up += tile.row_begin * own.ld;
    }
    own.T = tile.row_end - tile.row_begin;
    own.panel_begin = tile.panel_begin;
    own.panel_end = tile.panel_end;
    return own;
}

static void inner_part(void *arg, int thread_id, int n_threads)
{
    const half_task *task = arg;
    tt_rows rows;
    const tti_ffn_half own = half_of(task, thread_id, n_threads, &rows);
    tti_ffn_inner(task->ffn, &own);
}

static void down_part(void *arg, int thread_id, int n_threads)
{
    const half_task *task = arg;
    tt_rows rows;
    const tti_ffn_half own = half_of(task, thread_id, n_threads, &rows);
    tti_ffn_down(task->ffn, &own);
}

void tti_ffn_run_inner(const tt_ffn *ffn, tt_stream *compute, const char *name,
                       const tti_ffn_half *half)
{
    half_task task = {ffn, half};
    tt_stream_run(compute, name, inner_part, &task);
}

void tti_ffn_run_down(const tt_ffn *ffn, tt_stream *compute, const char *name,
                      const tti_ffn_half *half)
{
    half_task task = {ffn, half};
    tt_stream_run(compute, name, down_part, &task);
}
