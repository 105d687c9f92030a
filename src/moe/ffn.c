/* ffn.c - a gated feed-forward network on packed weights: loading its columns, and the inner half
 *     inner[t][f] = silu(gate[f] . x[t]) * (up[f] . x[t])
 * computed panel by panel, so that gate, up and activation of a panel stay in cache. */
#include "moe_internal.h"

void tt_ffn_fini(tt_ffn *ffn)
{
    tt_linear_fini(&ffn->gate);
    tt_linear_fini(&ffn->up);
    tt_linear_fini(&ffn->down);
    ffn->F = 0;
    ffn->H = 0;
}

tt_status tti_ffn_load(tt_load_params *load, tt_role gate, tt_role up, tt_role down, int64_t layer,
                       int64_t expert, int64_t f_begin, int64_t f_end, int64_t h_begin,
                       int64_t h_end, tt_ffn *ffn)
{
    tt_tensor tensor = tt_model_tensor(load->model, gate, layer, expert);
    tt_status st = tt_load_linear(load, &tensor, f_begin, f_end - f_begin, &ffn->gate);
    if (st == TT_OK) {
        tensor = tt_model_tensor(load->model, up, layer, expert);
        st = tt_load_linear(load, &tensor, f_begin, f_end - f_begin, &ffn->up);
    }
    if (st == TT_OK) {
        tensor = tt_model_tensor(load->model, down, layer, expert);
        st = tt_load_linear(load, &tensor, h_begin, h_end - h_begin, &ffn->down);
    }
    if (st != TT_OK) {
        tt_ffn_fini(ffn);
        return tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    ffn->F = tensor.cols;
    ffn->H = tensor.rows;
    return TT_OK;
}

void tti_ffn_inner(const tt_ffn *ffn, float *inner, float *up, int64_t ld, const float *x,
                   int64_t ldx, int64_t T, int64_t panel_begin, int64_t panel_end)
{
    for (int64_t p = panel_begin; p < panel_end && T > 0; p++) {
        int64_t col = p * TTK_PANEL;
        int64_t n = ffn->gate.N - col < TTK_PANEL ? ffn->gate.N - col : TTK_PANEL;
        tt_linear_panels(&ffn->gate, inner, ld, x, ldx, T, p, p + 1);
        tt_linear_panels(&ffn->up, up, ld, x, ldx, T, p, p + 1);
        ttk.silu_mul_f32(inner + col, ld, inner + col, ld, up + col, ld, T, n);
    }
}

typedef struct inner_task {
    const tt_ffn *ffn;
    float *inner, *up;
    int64_t ld;
    const float *x;
    int64_t T, panel_begin, panel_end;
} inner_task;

static void inner_part(void *arg, int thread_id, int n_threads)
{
    const inner_task *task = arg;
    tt_tile tile = tt_linear_tile(task->panel_begin, task->panel_end, task->T, thread_id, n_threads);
    int64_t at = tile.row_begin * task->ld;
    tti_ffn_inner(task->ffn, task->inner + at, task->up + at, task->ld,
                  task->x + tile.row_begin * task->ffn->gate.K, task->ffn->gate.K,
                  tile.row_end - tile.row_begin, tile.panel_begin, tile.panel_end);
}

void tti_ffn_run_inner(const tt_ffn *ffn, tt_stream *compute, const char *name, float *inner,
                       float *up, int64_t ld, const float *x, int64_t T, int64_t panel_begin,
                       int64_t panel_end)
{
    inner_task task = {ffn, inner, up, ld, x, T, panel_begin, panel_end};
    tt_stream_run(compute, name, inner_part, &task);
}

typedef struct down_task {
    const tt_ffn *ffn;
    float *y;
    int64_t ldy;
    const float *inner;
    int64_t ld, T, panel_begin, panel_end;
} down_task;

static void down_part(void *arg, int thread_id, int n_threads)
{
    const down_task *task = arg;
    tt_tile tile = tt_linear_tile(task->panel_begin, task->panel_end, task->T, thread_id, n_threads);
    tt_linear_panels(&task->ffn->down, task->y + tile.row_begin * task->ldy, task->ldy,
                     task->inner + tile.row_begin * task->ld, task->ld,
                     tile.row_end - tile.row_begin, tile.panel_begin, tile.panel_end);
}

void tti_ffn_run_down(const tt_ffn *ffn, tt_stream *compute, const char *name, float *y,
                      int64_t ldy, const float *inner, int64_t ld, int64_t T, int64_t panel_begin,
                      int64_t panel_end)
{
    down_task task = {ffn, y, ldy, inner, ld, T, panel_begin, panel_end};
    tt_stream_run(compute, name, down_part, &task);
}
