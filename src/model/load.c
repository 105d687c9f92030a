/* load.c - reads rows of checkpoint tensors and packs them.
 *
 * A tensor is walked in pieces of some MiB. A piece is fetched by this rank alone, or by one of the
 * ranks of a node for all of them (the relay); then all threads of the compute stream take units of
 * it in turn (a panel's rows, or all rows of a transposed part), unpack them into a few hundred KiB
 * of their own, convert them if they must change, and pack them. Ranks want other rows, so a unit
 * may begin in one piece and end in a later one: it is gathered in memory of its own until it is
 * whole. So nothing but the packed form is ever whole in memory. A row's result does not depend on
 * the piece or the unit that it came with: any split of rows over ranks gives the same bits. */
#include "tutti/load.h"
#include <stdlib.h>
#include <string.h>
#include "requantize.h"
#include "source.h"
#include "tutti/memory.h"

enum {
    STRAIGHT_BYTES = 64 << 20, /* of one read that needs no buffer */
    FEW_TARGETS = 4            /* more than these are rare: heads of latent attention */
};

/* ---- formats ---- */

ttk_format tt_load_format_transposed(tt_weight_format weights, const tt_tensor *tensor, int64_t row,
                                     int64_t n_rows)
{
    const ttk_format *f = &tensor->format;
    ttk_format format = tt_load_format(weights, tensor);
    if (!ttk_format_is_plain(&format)) {
        format = tt_load_format(TT_WEIGHTS_AUTO, tensor); /* never rounded */
    }
    if (ttk_format_is_plain(&format)) {
        return format;
    }
    const tti_source *s = tensor->source;
    bool shares = s->scheme == TTI_SCHEME_QUANT || s->scheme == TTI_SCHEME_PANELS;
    int64_t left = 0, block = shares ? s->scale_rows : 1,
            at = (tti_source_row(s, row, &left) + s->scale_first) % block;
    bool one = at + n_rows <= block, borders = at == 0 && block % 2 == 0;
    if (f->shift != TTK_SHIFT_NONE || f->super > 0 || left < n_rows || !(one || borders)) {
        return (ttk_format){.code = TTK_F32};
    }
    format.group = (int32_t)(one ? n_rows + n_rows % 2 : block);
    return format;
}

/* ---- a walk ---- */

/* One tensor on its way into its targets, or (n_targets = 0) into the arrays of `all`. */
typedef struct walk {
    tt_load_params *params;
    const tt_tensor *tensor;
    const tt_load_target *target; /* ascending, rows do not overlap: so at most one unit is cut
                                   * by a piece's border */
    int n_targets;
    const ttk_unpacked *all;
    tti_raw raw;           /* the piece at hand */
    unsigned char *memory; /* memory[n_threads * memory_bytes], then of a unit that is not whole
                            * yet: carry[unpacked_bytes] */
    unsigned char *carry;
    size_t memory_bytes, unpacked_bytes; /* of the largest unit: with what it is converted into,
                                          * and unpacked only */
    int64_t done, n_rows;                /* rows walked, of how many */
    uint64_t bytes;                      /* that all of it will be packed as */
} walk;

static void run_all(const tt_load_params *params, tt_task_fn *fn, void *arg)
{
    if (params->compute) {
        tt_stream_run(params->compute, "pack", fn, arg);
    } else {
        fn(arg, 0, 1);
    }
}

static int n_threads_of(const tt_load_params *params)
{
    return params->compute ? tt_stream_n_threads(params->compute) : 1;
}

/* The kept buffer, at least so large. What was in it is lost. */
static tt_status need_buffer(tt_load_params *params, size_t bytes)
{
    if (bytes <= params->buffer_bytes) {
        return TT_OK;
    }
    tt_load_end(params);
    TT_TRY(tt_memory_alloc("a piece of a weight file", bytes, params->node, &params->buffer));
    params->buffer_bytes = bytes;
    return TT_OK;
}

void tt_load_end(tt_load_params *params)
{
    tt_memory_free(params->buffer, params->buffer_bytes);
    params->buffer = NULL;
    params->buffer_bytes = 0;
}

tt_status tt_load_told(const tt_load_params *params, tt_status st)
{
    if (st != TT_OK && params->relay) {
        params->relay->fail(params->relay->arg, st);
    }
    return st;
}

static const tt_load_relay *relay_of(const tt_load_params *params)
{
    return params->alone ? NULL : params->relay;
}

static void count_read(tt_load_params *params, uint64_t bytes)
{
    params->read_bytes += bytes;
    params->alone_bytes += params->alone ? bytes : 0;
}

static void tell_progress(const tt_load_params *params, uint64_t more)
{
    if (params->progress) {
        params->progress(params->progress_arg,
                         params->packed_bytes + params->borrowed_bytes + more);
    }
}

static tt_status fetch(tt_load_params *params, const tti_raw *raw)
{
    TT_TRY(tti_raw_fetch(params->model, raw));
    count_read(params, tti_raw_file_bytes(raw->tensor, raw->row, raw->n_rows));
    return TT_OK;
}

/* ---- units ---- */

/* True if panels that lie in the file packed are what the target wants. */
static bool is_kept(const tt_tensor *tensor, const tt_load_target *t)
{
    return tensor->source->scheme == TTI_SCHEME_PANELS && !t->transposed &&
           tti_same_format(&t->linear->format, &tensor->format);
}

static int64_t unit_rows(const tt_load_target *t)
{
    return t->transposed ? t->n_rows : TTK_PANEL;
}

/* The elements of rows[n][K] as they may be packed plainly: as they are, or as floats in
 * f32[n][K]. */
static const void *plain_elements(const ttk_format *from, const ttk_unpacked *rows, int64_t n,
                                  int64_t K, float *f32, ttk_dtype *type_out)
{
    *type_out = from->code;
    if (ttk_format_is_plain(from)) {
        return rows->code;
    }
    *type_out = TTK_F32;
    ttk_unpacked_to_f32(from, rows, n, K, f32);
    return f32;
}

/* Rows of a tensor become columns: to[n][k] = from[k][n], codes and scales; the group of `format`
 * is of rows. */
static void turn(const ttk_format *from, const ttk_unpacked *rows, int64_t n_rows, int64_t cols,
                 const ttk_format *to, const ttk_unpacked *out)
{
    int64_t from_groups = (cols + from->group - 1) / from->group,
            to_groups = (n_rows + to->group - 1) / to->group;
    size_t scale = ttk_dtype_bytes(from->scale);
    for (int64_t n = 0; n < cols; n++) {
        for (int64_t k = 0; k < n_rows; k++) {
            ((unsigned char *)out->code)[n * n_rows + k] =
                ((const unsigned char *)rows->code)[k * cols + n];
        }
        for (int64_t g = 0; g < to_groups; g++) {
            memcpy((unsigned char *)out->scale + (size_t)(n * to_groups + g) * scale,
                   (const unsigned char *)rows->scale +
                       (size_t)(g * to->group * from_groups + n / from->group) * scale,
                   scale);
        }
    }
}

/* Packs all rows of a transposed target. work: what they are turned or converted into. */
static void pack_turned(const tt_linear *linear, const ttk_format *from, const ttk_unpacked *rows,
                        void *work)
{
    const ttk_format *to = &linear->format;
    int64_t n_rows = linear->K, cols = linear->N, n_panels = tt_linear_n_panels(linear);
    if (!ttk_format_is_plain(to)) {
        ttk_unpacked out = ttk_unpacked_in(to, cols, n_rows, work);
        turn(from, rows, n_rows, cols, to, &out);
        ttk.pack_quant(linear->panels, to, &out, cols, n_rows, 0, n_panels);
        return;
    }
    ttk_dtype type;
    const void *src = plain_elements(from, rows, n_rows, cols, work, &type);
    ttk.pack(linear->panels, to->code, src, type, 1, cols, cols, n_rows, 0, n_panels);
}

/* Packs unit u of a target (a panel, or all of it) from its n rows. */
static void pack_unit(const walk *w, const tt_load_target *t, int64_t u, const ttk_unpacked *rows,
                      int64_t n, void *work)
{
    const ttk_format *from = &w->tensor->format, *to = &t->linear->format;
    const int64_t K = w->tensor->cols;
    if (t->transposed) {
        pack_turned(t->linear, from, rows, work);
        return;
    }
    unsigned char *panel = (unsigned char *)t->linear->panels + (size_t)u * ttk_panel_bytes(to, K);
    if (!ttk_format_is_plain(to)) {
        ttk_unpacked out =
            tti_same_format(to, from) ? *rows : tti_requantize(to, from, rows, n, K, work);
        ttk.pack_quant(panel, to, &out, n, K, 0, 1);
        return;
    }
    ttk_dtype type;
    const void *src = plain_elements(from, rows, n, K, work, &type);
    ttk.pack(panel, to->code, src, type, K, 1, n, K, 0, 1);
}

/* Bytes of the largest unit unpacked, and of what it is converted into. */
static void size_unit(const tt_load_target *t, const tt_tensor *tensor, size_t *unpacked,
                      size_t *work)
{
    const ttk_format *from = &tensor->format, *to = &t->linear->format;
    int64_t n = unit_rows(t), K = tensor->cols;
    size_t u = tti_round_to_line(ttk_unpacked_bytes(from, n, K)), w = 0;
    if (!t->transposed && !ttk_format_is_plain(to) && !tti_same_format(to, from)) {
        w = tti_requantize_bytes(to, n, K);
    } else if (!ttk_format_is_plain(from) || t->transposed) {
        w = tti_round_to_line(t->transposed && !ttk_format_is_plain(to)
                                  ? ttk_unpacked_bytes(to, K, n)
                                  : (size_t)(n * K) * sizeof(float));
    }
    *unpacked = u > *unpacked ? u : *unpacked;
    *work = w > *work ? w : *work;
}

/* ---- a piece ---- */

/* Units [*begin_out, *end_out) of a target that lie in the piece whole. */
static void whole_units(const walk *w, const tt_load_target *t, int64_t *begin_out,
                        int64_t *end_out)
{
    int64_t n = unit_rows(t), from = w->raw.row - t->row, to = from + w->raw.n_rows;
    *begin_out = from <= 0 || n == 0 ? 0 : (from + n - 1) / n;
    *end_out = to <= 0 || n == 0 ? 0 : to >= t->n_rows ? (t->n_rows + n - 1) / n : to / n;
    *end_out = *end_out < *begin_out ? *begin_out : *end_out;
}

static void pack_part(void *arg, int thread_id, int n_threads)
{
    const walk *w = arg;
    unsigned char *memory = w->memory + (size_t)thread_id * w->memory_bytes;
    int64_t total = 0, first = 0, begin, end, u0, u1;
    for (int i = 0; i < w->n_targets; i++) {
        whole_units(w, &w->target[i], &u0, &u1);
        total += u1 - u0;
    }
    tt_split(total, n_threads, thread_id, &begin, &end);
    for (int i = 0; i < w->n_targets && first < end; i++) {
        const tt_load_target *t = &w->target[i];
        whole_units(w, t, &u0, &u1);
        int64_t from = u0 + (begin > first ? begin - first : 0),
                to = end - first < u1 - u0 ? u0 + end - first : u1;
        for (int64_t u = from; u < to; u++) {
            int64_t row = u * unit_rows(t),
                    n = t->n_rows - row < unit_rows(t) ? t->n_rows - row : unit_rows(t);
            const void *panel =
                is_kept(w->tensor, t) ? tti_raw_panel(&w->raw, t->row + row - w->raw.row, n) : NULL;
            if (panel) {
                size_t bytes = ttk_panel_bytes(&t->linear->format, w->tensor->cols);
                memcpy((unsigned char *)t->linear->panels + (size_t)u * bytes, panel, bytes);
                continue;
            }
            ttk_unpacked rows = ttk_unpacked_in(&w->tensor->format, n, w->tensor->cols, memory);
            tti_raw_unpack(&w->raw, t->row + row - w->raw.row, n, &rows, 0);
            pack_unit(w, t, u, &rows, n, memory + w->unpacked_bytes);
        }
        first += u1 - u0;
    }
}

/* The units that a border of the piece cuts: their rows are added to those of earlier pieces, and
 * packed with the last of them. */
static void carry_cut(const walk *w)
{
    int64_t begin = w->raw.row, end = begin + w->raw.n_rows;
    for (int i = 0; i < w->n_targets; i++) {
        const tt_load_target *t = &w->target[i];
        int64_t n = unit_rows(t), border[] = {begin, end};
        for (int64_t b = 0, last = -1; b < 2 && t->n_rows > 0; b++) {
            int64_t at = border[b] - t->row, u = at / n;
            if (at <= 0 || at >= t->n_rows || at % n == 0 || u == last) {
                continue;
            }
            last = u;
            int64_t first = t->row + u * n,
                    rows_of_unit = t->n_rows - u * n < n ? t->n_rows - u * n : n;
            int64_t from = first > begin ? first : begin,
                    to = first + rows_of_unit < end ? first + rows_of_unit : end;
            ttk_unpacked rows =
                ttk_unpacked_in(&w->tensor->format, rows_of_unit, w->tensor->cols, w->carry);
            tti_raw_unpack(&w->raw, from - begin, to - from, &rows, from - first);
            if (to == first + rows_of_unit) {
                pack_unit(w, t, u, &rows, rows_of_unit, w->memory + w->unpacked_bytes);
            }
        }
    }
}

/* The piece's rows go to their place in the arrays. */
static void unpack_part(void *arg, int thread_id, int n_threads)
{
    const walk *w = arg;
    int64_t begin, end;
    tt_split(w->raw.n_rows, n_threads, thread_id, &begin, &end);
    tti_raw_unpack(&w->raw, begin, end - begin, w->all, w->raw.row + begin);
}

static void use_piece(walk *w)
{
    if (w->all) {
        run_all(w->params, unpack_part, w);
    } else {
        run_all(w->params, pack_part, w);
        carry_cut(w);
    }
    w->done += w->raw.n_rows;
    tell_progress(w->params, (uint64_t)((double)w->bytes * (double)w->done / (double)w->n_rows));
}

static tti_raw piece_at(const walk *w, int64_t row, int64_t end, int64_t step, unsigned char *bytes)
{
    return (tti_raw){.tensor = w->tensor,
                     .row = row,
                     .n_rows = end - row < step ? end - row : step,
                     .bytes = bytes};
}

/* ---- the ways of walking ---- */

/* This rank reads rows [row, end) for itself. */
static tt_status walk_alone(walk *w, int64_t row, int64_t end)
{
    size_t piece_bytes, own = w->memory_bytes * (size_t)n_threads_of(w->params) + w->unpacked_bytes;
    int64_t step =
        tti_raw_rows(w->tensor, TT_LOAD_PIECE_BYTES, row, end - row, TTK_PANEL, &piece_bytes);
    TT_TRY(need_buffer(w->params, own + piece_bytes));
    w->memory = w->params->buffer;
    w->carry = w->memory + own - w->unpacked_bytes;
    for (; row < end; row += step) {
        w->raw = piece_at(w, row, end, step, w->memory + own);
        TT_TRY(fetch(w->params, &w->raw));
        if (row + step < end) { /* the system may read on while we pack */
            tti_raw next = piece_at(w, row + step, end, step, NULL);
            tti_raw_will_need(w->params->model, w->tensor, next.row, next.n_rows);
        }
        use_piece(w);
    }
    return TT_OK;
}

/* All members of the relay walk the whole tensor; each reads some pieces, one of them ahead. */
static tt_status walk_together(walk *w, const tt_load_relay *relay, int64_t step)
{
    int64_t rows = w->tensor->rows, n_pieces = (rows + step - 1) / step;
    TT_TRY(need_buffer(w->params,
                       w->memory_bytes * (size_t)n_threads_of(w->params) + w->unpacked_bytes));
    w->memory = w->params->buffer;
    w->carry = w->memory + w->memory_bytes * (size_t)n_threads_of(w->params);
    for (int64_t p = 0; p < n_pieces; p++) {
        uint64_t ahead;
        void *place;
        const void *piece;
        for (;;) {
            TT_TRY(relay->begin(relay->arg, (uint64_t)(n_pieces - p), &ahead, &place));
            if (!place) {
                break;
            }
            tti_raw raw = piece_at(w, (p + (int64_t)ahead) * step, rows, step, place);
            tt_status st = fetch(w->params, &raw);
            relay->publish(relay->arg, st);
            TT_TRY(st);
        }
        TT_TRY(relay->take(relay->arg, &piece));
        w->raw = piece_at(w, p * step, rows, step, (unsigned char *)piece);
        use_piece(w);
        relay->release(relay->arg);
    }
    return TT_OK;
}

/* Rows that lie as whole panels just as the target wants them go straight there. */
static bool is_straight(const tt_tensor *tensor, const tt_load_target *t)
{
    return is_kept(tensor, t) && t->row % TTK_PANEL == 0 &&
           (t->n_rows % TTK_PANEL == 0 || t->row + t->n_rows == tensor->rows);
}

static tt_status walk_straight(walk *w, const tt_load_target *t)
{
    size_t bytes, panel_bytes = ttk_panel_bytes(&w->tensor->format, w->tensor->cols);
    int64_t step = tti_raw_rows(w->tensor, STRAIGHT_BYTES, t->row, t->n_rows, TTK_PANEL, &bytes);
    for (int64_t row = t->row; row < t->row + t->n_rows; row += step) {
        unsigned char *to =
            (unsigned char *)t->linear->panels + (size_t)((row - t->row) / TTK_PANEL) * panel_bytes;
        w->raw = piece_at(w, row, t->row + t->n_rows, step, to);
        TT_TRY(fetch(w->params, &w->raw));
        w->done += w->raw.n_rows;
        tell_progress(w->params,
                      (uint64_t)((double)w->bytes * (double)w->done / (double)w->n_rows));
    }
    return TT_OK;
}

/* Rows that targets want: runs of targets that follow each other are read together. */
static tt_status walk_runs(walk *w)
{
    for (int i = 0; i < w->n_targets;) {
        int64_t begin = w->target[i].row, end = begin;
        if (is_straight(w->tensor, &w->target[i])) {
            TT_TRY(walk_straight(w, &w->target[i++]));
            continue;
        }
        for (; i < w->n_targets && w->target[i].row == end; i++) {
            end += w->target[i].n_rows;
        }
        TT_TRY(walk_alone(w, begin, end));
    }
    return TT_OK;
}

/* Whether a relay can carry the tensor: every member comes to the same answer. */
static bool can_relay(const tt_load_relay *relay, const tt_tensor *tensor, int64_t *step_out)
{
    size_t bytes;
    if (!relay) {
        return false;
    }
    *step_out = tti_raw_rows(tensor, relay->piece_bytes, 0, tensor->rows, TTK_PANEL, &bytes);
    if (bytes > relay->piece_bytes) {
        *step_out = tti_raw_rows(tensor, relay->piece_bytes, 0, tensor->rows, 1, &bytes);
    }
    return bytes <= relay->piece_bytes;
}

static tt_status walk_tensor(walk *w)
{
    const tt_load_relay *relay = relay_of(w->params);
    int64_t step = 0;
    if (can_relay(relay, w->tensor, &step)) {
        w->n_rows = w->tensor->rows;
        return walk_together(w, relay, step);
    }
    return w->all ? walk_alone(w, 0, w->tensor->rows) : walk_runs(w);
}

/* ---- matrices ---- */

static tt_status check_target(const tt_tensor *tensor, const tt_load_target *t, int64_t begin)
{
    TT_CHECK(tensor->name && t->row >= begin && t->n_rows >= 0 && t->row <= tensor->rows &&
                 t->n_rows <= tensor->rows - t->row,
             TT_ERR_ARG,
             "%lld rows from row %lld of tensor '%s' are outside its %lld rows, or not in order",
             (long long)t->n_rows, (long long)t->row, tensor->name ? tensor->name : "",
             (long long)tensor->rows);
    return TT_OK;
}

static const tt_load_share *share_of(const tt_load_params *params)
{
    return params->alone ? NULL : params->share;
}

tt_hash_pair tt_load_share_key(const tt_tensor *tensor, const ttk_format *format, tt_load_form form,
                               int64_t row, int64_t n_rows)
{
    tt_hash_pair key = tti_tensor_hash_pair(tensor);
    const int64_t values[] = {(int64_t)form, row,           n_rows,        format->code,
                              format->scale, format->shift, format->group, format->super};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        tt_hash_pair_add(&key, (uint64_t)values[i]);
    }
    key.first = key.first ? key.first : 1;
    return key;
}

/* Memory for the target's panels. *fill_out: this rank packs them. */
static tt_status init_target(const tt_load_params *params, const tt_tensor *tensor,
                             const tt_load_target *t, bool *fill_out)
{
    const tt_load_share *share = share_of(params);
    tt_load_form form = t->transposed ? TT_LOAD_TRANSPOSED : TT_LOAD_PACKED;
    ttk_format format = t->transposed
                            ? tt_load_format_transposed(params->weights, tensor, t->row, t->n_rows)
                            : tt_load_format(params->weights, tensor);
    int64_t N = t->transposed ? tensor->cols : t->n_rows,
            K = t->transposed ? t->n_rows : tensor->cols;
    size_t bytes = ttk_packed_bytes(&format, N, K);
    void *panels = params->arena && bytes > 0 ? tt_arena_alloc(params->arena, bytes) : NULL;
    *fill_out = true;
    if (panels) {
        tt_linear_borrow(t->linear, &format, N, K, panels);
        return TT_OK;
    }
    if (!share || bytes == 0) {
        return tt_linear_init(t->linear, tensor->name, &format, N, K, params->node);
    }
    *t->linear = (tt_linear){0};
    TT_TRY(share->claim(share->arg, tt_load_share_key(tensor, &format, form, t->row, t->n_rows),
                        bytes, &panels, fill_out));
    tt_linear_borrow(t->linear, &format, N, K, panels);
    return TT_OK;
}

/* Fills targets that have memory. */
static tt_status walk_into(tt_load_params *params, const tt_tensor *tensor,
                           const tt_load_target *target, int n_targets)
{
    walk w = {.params = params, .tensor = tensor, .target = target, .n_targets = n_targets};
    size_t work = 0;
    for (int i = 0; i < n_targets; i++) {
        size_unit(&target[i], tensor, &w.unpacked_bytes, &work);
        w.bytes += target[i].linear->bytes;
        w.n_rows += target[i].n_rows;
    }
    w.memory_bytes = w.unpacked_bytes + work;
    TT_TRY(walk_tensor(&w));
    params->packed_bytes += w.bytes;
    return TT_OK;
}

/* Gives all targets memory; those that this rank fills are put in order into mine[n_targets]. */
static tt_status init_targets(tt_load_params *params, const tt_tensor *tensor,
                              const tt_load_target *target, int n_targets, tt_load_target *mine,
                              int *n_mine_out)
{
    int n_mine = 0;
    for (int i = 0; i < n_targets; i++) {
        bool fill = true;
        tt_status st = init_target(params, tensor, &target[i], &fill);
        if (st != TT_OK) {
            while (i > 0) {
                tt_linear_fini(target[--i].linear);
            }
            return st;
        }
        if (fill) {
            mine[n_mine++] = target[i];
        } else {
            params->borrowed_bytes += target[i].linear->bytes;
        }
    }
    *n_mine_out = n_mine;
    return TT_OK;
}

tt_status tt_load_linears(tt_load_params *params, const tt_tensor *tensor,
                          const tt_load_target *target, int n_targets)
{
    int64_t row = 0;
    int n_mine = 0;
    for (int i = 0; i < n_targets; i++) {
        TT_TRY(check_target(tensor, &target[i], row));
        row = target[i].row + target[i].n_rows;
    }
    tt_load_target few[FEW_TARGETS],
        *mine = n_targets > FEW_TARGETS ? malloc((size_t)n_targets * sizeof(*mine)) : few;
    TT_CHECK(mine, TT_ERR_NOMEM, "%s: no memory for %d parts", tensor->name, n_targets);
    tt_status st = init_targets(params, tensor, target, n_targets, mine, &n_mine);
    if (st == TT_OK) {
        st = walk_into(params, tensor, mine, n_mine);
        for (int i = 0; st != TT_OK && i < n_targets; i++) {
            tt_linear_fini(target[i].linear);
        }
    }
    if (mine != few) {
        free(mine);
    }
    return st == TT_OK ? TT_OK : tt_status_trace(st, __FILE__, __LINE__, __func__);
}

tt_status tt_load_linear(tt_load_params *params, const tt_tensor *tensor, int64_t row,
                         int64_t n_rows, tt_linear *linear)
{
    tt_load_target target = {.row = row, .n_rows = n_rows, .linear = linear};
    return tt_load_linears(params, tensor, &target, 1);
}

void tt_load_will_need(const tt_load_params *params, const tt_tensor *tensor, int64_t row,
                       int64_t n_rows)
{
    if (tensor->name && n_rows > 0 && row >= 0 && row + n_rows <= tensor->rows) {
        tti_raw_will_need(params->model, tensor, row, n_rows);
    }
}

/* ---- numbers that stay unpacked ---- */

/* Memory for a table. *fill_out: this rank fills it. */
static tt_status init_table(const tt_load_params *params, const tt_tensor *tensor, tt_table *table,
                            bool *fill_out)
{
    const tt_load_share *share = share_of(params);
    size_t bytes = ttk_unpacked_bytes(&tensor->format, tensor->rows, tensor->cols);
    void *memory = NULL;
    *table = (tt_table){0};
    *fill_out = true;
    if (share) {
        tt_hash_pair key =
            tt_load_share_key(tensor, &tensor->format, TT_LOAD_TABLE, 0, tensor->rows);
        TT_TRY(share->claim(share->arg, key, bytes, &memory, fill_out));
    } else {
        TT_TRY(tt_memory_alloc(tensor->name, bytes, params->node, &memory));
    }
    *table = (tt_table){
        .format = tensor->format, .memory = memory, .bytes = bytes, .is_borrowed = share != NULL};
    table->rows = ttk_unpacked_in(&tensor->format, tensor->rows, tensor->cols, memory);
    return TT_OK;
}

tt_status tt_load_table(tt_load_params *params, const tt_tensor *tensor, tt_table *table)
{
    bool fill;
    TT_TRY(init_table(params, tensor, table, &fill));
    /* Who borrows walks along without a target. */
    walk w = {.params = params,
              .tensor = tensor,
              .all = fill ? &table->rows : NULL,
              .n_rows = tensor->rows,
              .bytes = fill ? table->bytes : 0};
    tt_status st = walk_tensor(&w);
    if (st != TT_OK) {
        tt_table_fini(table);
        return tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    *(fill ? &params->packed_bytes : &params->borrowed_bytes) += table->bytes;
    return TT_OK;
}

void tt_table_fini(tt_table *table)
{
    if (!table->is_borrowed) {
        tt_memory_free(table->memory, table->bytes);
    }
    *table = (tt_table){0};
}

/* All elements as floats: whole[rows * cols]. */
static tt_status read_vector(tt_load_params *params, const tt_tensor *tensor, float *whole)
{
    TT_TRY(tt_model_read_f32(params->model, tensor, 0, tensor->rows, whole));
    count_read(params, tt_tensor_file_bytes(tensor, tensor->rows));
    return TT_OK;
}

/* A vector is one piece, as floats. */
static tt_status take_vector(tt_load_params *params, const tt_load_relay *relay,
                             const tt_tensor *tensor, int64_t begin, int64_t n, float *vector)
{
    uint64_t ahead;
    void *place;
    const void *piece;
    TT_TRY(relay->begin(relay->arg, 1, &ahead, &place));
    if (place) {
        tt_status st = read_vector(params, tensor, place);
        relay->publish(relay->arg, st);
        TT_TRY(st);
    }
    TT_TRY(relay->take(relay->arg, &piece));
    memcpy(vector, (const float *)piece + begin, (size_t)n * sizeof(float));
    relay->release(relay->arg);
    return TT_OK;
}

static tt_status fill_vector(tt_load_params *params, const tt_tensor *tensor, int64_t begin,
                             int64_t n, float *vector)
{
    const tt_load_relay *relay = relay_of(params);
    size_t whole_bytes = (size_t)(tensor->rows * tensor->cols) * sizeof(float);
    if (relay && whole_bytes <= relay->piece_bytes) {
        return take_vector(params, relay, tensor, begin, n, vector);
    }
    TT_TRY(need_buffer(params, whole_bytes));
    TT_TRY(read_vector(params, tensor, params->buffer));
    memcpy(vector, (const float *)params->buffer + begin, (size_t)n * sizeof(float));
    return TT_OK;
}

tt_status tt_load_vector(tt_load_params *params, const tt_tensor *tensor, int64_t begin, int64_t n,
                         float **vector_out)
{
    *vector_out = NULL;
    if (!tensor->name) {
        return TT_OK;
    }
    void *vector = NULL;
    int64_t n_all = tensor->rows * tensor->cols;
    size_t bytes = (size_t)n * sizeof(float);
    TT_CHECK(begin >= 0 && n >= 0 && begin <= n_all && n <= n_all - begin, TT_ERR_ARG,
             "%s: elements [%lld, %lld) of %lld", tensor->name, (long long)begin,
             (long long)(begin + n), (long long)n_all);
    if (n == 0 && !relay_of(params)) {
        return TT_OK;
    }
    TT_TRY(tt_memory_alloc(tensor->name, bytes, params->node, &vector));
    tt_status st = fill_vector(params, tensor, begin, n, vector);
    if (st != TT_OK || n == 0) {
        tt_memory_free(vector, bytes);
        return st == TT_OK ? TT_OK : tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    params->packed_bytes += bytes;
    *vector_out = vector;
    return TT_OK;
}
