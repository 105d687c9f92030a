/* linear.c - splits a product with packed weights over threads: whole panels first, and rows as
 * well when there are fewer panels than threads. No split touches k, so none changes a bit. */
#include "tutti/linear.h"
#include "tutti/memory.h"
#include "blas.h"
#include <string.h>

tt_status tt_linear_init(tt_linear *linear, const char *what, const ttk_format *format, int64_t N,
                         int64_t K, int node)
{
    memset(linear, 0, sizeof(*linear));
    size_t bytes = ttk_packed_bytes(format, N, K);
    void *panels = NULL;
    TT_TRY(tt_memory_alloc(what, bytes, node, &panels));
    linear->format = *format;
    linear->N = N;
    linear->K = K;
    linear->panels = panels;
    linear->bytes = bytes;
    return TT_OK;
}

void tt_linear_borrow(tt_linear *linear, const ttk_format *format, int64_t N, int64_t K,
                      void *panels)
{
    *linear = (tt_linear){.format = *format,
                          .N = N,
                          .K = K,
                          .panels = panels,
                          .bytes = ttk_packed_bytes(format, N, K),
                          .is_borrowed = true};
}

void tt_linear_fini(tt_linear *linear)
{
    if (!linear->is_borrowed) {
        tt_memory_free(linear->panels, linear->bytes);
    }
    tt_memory_free(linear->bias, (size_t)linear->N * sizeof(float));
    memset(linear, 0, sizeof(*linear));
}

/* ---- rows ---- */

const char *tt_act_name(tt_act act)
{
    static const char *const names[] = {"f32", "bf16", "int8"};
    return names[act];
}

/* Bytes from one rounded row to the next. */
static size_t row_stride(tt_act act, int64_t K)
{
    size_t bytes = act == TT_ACT_INT8   ? ttk_act8_bytes(K)
                   : act == TT_ACT_BF16 ? (size_t)K * sizeof(float)
                                        : 0;
    return (bytes + TT_CACHE_LINE - 1) / TT_CACHE_LINE * TT_CACHE_LINE;
}

size_t tt_rows_bytes(tt_act act, int64_t M, int64_t K)
{
    return (size_t)M * row_stride(act, K);
}

void tt_rows_round_part(tt_act act, void *buffer, const float *x, int64_t ldx, int64_t begin,
                        int64_t end, int64_t K)
{
    const size_t stride = row_stride(act, K);
    unsigned char *to = (unsigned char *)buffer + (size_t)begin * stride;
    if (act == TT_ACT_INT8) {
        ttk.act8(to, stride, x + begin * ldx, ldx, end - begin, K);
    }
    for (int64_t m = begin; act == TT_ACT_BF16 && m < end; m++, to += stride) {
        ttk_bf16 some[256];
        for (int64_t k = 0, n; k < K; k += n) {
            n = K - k < 256 ? K - k : 256;
            ttk.f32_to_bf16(some, x + m * ldx + k, n);
            ttk.bf16_to_f32((float *)(void *)to + k, some, n);
        }
    }
}

tt_rows tt_rows_in(tt_act act, const void *buffer, const float *x, int64_t ldx, int64_t K)
{
    const size_t stride = row_stride(act, K);
    return act == TT_ACT_F32 ? tt_rows_plain(x, ldx) : (tt_rows){x, ldx, act, buffer, stride};
}

typedef struct round_task {
    tt_act act;
    void *buffer;
    const float *x;
    int64_t ldx, M, K;
} round_task;

static void round_part(void *arg, int thread_id, int n_threads)
{
    const round_task *task = arg;
    int64_t begin, end;
    tt_split(task->M, n_threads, thread_id, &begin, &end);
    tt_rows_round_part(task->act, task->buffer, task->x, task->ldx, begin, end, task->K);
}

tt_rows tt_rows_round(tt_act act, tt_stream *compute, void *buffer, const float *x, int64_t ldx,
                      int64_t M, int64_t K)
{
    round_task task = {act, buffer, x, ldx, M, K};
    if (act != TT_ACT_F32 && compute && M > 1) {
        tt_stream_run(compute, "round rows", round_part, &task);
    } else if (act != TT_ACT_F32) {
        round_part(&task, 0, 1);
    }
    return tt_rows_in(act, buffer, x, ldx, K);
}

/* ---- products ---- */

tt_act tt_linear_act(const tt_linear *linear, tt_act act)
{
    if (ttk_format_is_plain(&linear->format) ||
        (act == TT_ACT_INT8 && !ttk_can_act8(&linear->format, linear->K))) {
        return TT_ACT_F32;
    }
    return act;
}

void tt_linear_some(const tt_linear *linear, float *y, int64_t ldy, const tt_rows *rows, int64_t M,
                    int64_t panel_begin, int64_t panel_end)
{
    const tt_act act = tt_linear_act(linear, rows->act);
    const float *x = act == TT_ACT_BF16 ? rows->rounded : rows->x;
    const int64_t ldx = act == TT_ACT_BF16 ? (int64_t)(rows->stride / sizeof(float)) : rows->ldx;
    int64_t n_begin = panel_begin * TTK_PANEL;
    int64_t n_end = panel_end * TTK_PANEL < linear->N ? panel_end * TTK_PANEL : linear->N;
    if (n_end <= n_begin || M <= 0) {
        return;
    }
    const void *panels = (const unsigned char *)linear->panels +
                         (size_t)panel_begin * ttk_panel_bytes(&linear->format, linear->K);
    if (tti_blas_wants(linear, M, ldx, ldy)) {
        tti_blas_product(linear, y, ldy, x, ldx, M, panel_begin, panel_end);
    } else if (linear->format.code == TTK_BF16) {
        ttk.gemm_bf16(y, ldy, x, ldx, panels, M, n_end - n_begin, linear->K);
    } else if (linear->format.code == TTK_F32) {
        ttk.gemm_f32(y, ldy, x, ldx, panels, M, n_end - n_begin, linear->K);
    } else if (act == TT_ACT_INT8) {
        ttk.gemm_act8(y, ldy, rows->rounded, rows->stride, &linear->format, panels, M,
                      n_end - n_begin, linear->K);
    } else {
        ttk.gemm_quant(y, ldy, x, ldx, &linear->format, panels, M, n_end - n_begin, linear->K);
    }
    if (linear->bias) {
        for (int64_t m = 0; m < M; m++) {
            ttk.add_f32(y + m * ldy, linear->bias + n_begin, n_end - n_begin);
        }
    }
}

void tt_linear_panels(const tt_linear *linear, float *y, int64_t ldy, const tt_rows *rows,
                      int64_t M, int64_t panel_begin, int64_t panel_end)
{
    tt_linear_some(linear, y + panel_begin * TTK_PANEL, ldy, rows, M, panel_begin, panel_end);
}

tt_tile tt_linear_tile(int64_t panel_begin, int64_t panel_end, int64_t M, int thread_id,
                       int n_threads)
{
    int64_t n_panels = panel_end - panel_begin;
    tt_tile tile = {0, 0, 0, 0};
    if (n_panels <= 0 || M <= 0) {
        return tile;
    }
    if (n_panels >= n_threads) {
        tt_split(n_panels, n_threads, thread_id, &tile.panel_begin, &tile.panel_end);
        tile.panel_begin += panel_begin;
        tile.panel_end += panel_begin;
        tile.row_end = M;
        return tile;
    }
    int64_t n_row_blocks = n_threads / n_panels < M ? n_threads / n_panels : M;
    if (thread_id < n_panels * n_row_blocks) {
        tile.panel_begin = panel_begin + thread_id % n_panels;
        tile.panel_end = tile.panel_begin + 1;
        tt_split(M, n_row_blocks, thread_id / n_panels, &tile.row_begin, &tile.row_end);
    }
    return tile;
}

void tt_linear_part(const tt_linear *linear, float *y, int64_t ldy, const tt_rows *rows, int64_t M,
                    int thread_id, int n_threads)
{
    tt_tile tile = tt_linear_tile(0, tt_linear_n_panels(linear), M, thread_id, n_threads);
    tt_rows part = tt_rows_from(rows, tile.row_begin);
    tt_linear_panels(linear, y + tile.row_begin * ldy, ldy, &part, tile.row_end - tile.row_begin,
                     tile.panel_begin, tile.panel_end);
}

typedef struct run_task {
    const tt_linear *linear;
    float *y;
    int64_t ldy;
    const tt_rows *rows;
    int64_t M;
} run_task;

static void run_part(void *arg, int thread_id, int n_threads)
{
    const run_task *task = arg;
    tt_linear_part(task->linear, task->y, task->ldy, task->rows, task->M, thread_id, n_threads);
}

void tt_linear_run(const tt_linear *linear, tt_stream *compute, const char *name, float *y,
                   int64_t ldy, const tt_rows *rows, int64_t M)
{
    run_task task = {linear, y, ldy, rows, M};
    if (compute) {
        tt_stream_run(compute, name, run_part, &task);
    } else {
        run_part(&task, 0, 1);
    }
}

typedef struct add_task {
    float *y;
    const float *x;
    float scale;
    bool is_scaled;
    int64_t n;
} add_task;

static void add_part(void *arg, int thread_id, int n_threads)
{
    const add_task *task = arg;
    int64_t begin, end;
    tt_split(task->n, n_threads, thread_id, &begin, &end);
    if (task->is_scaled) {
        ttk.axpy_f32(task->y + begin, task->scale, task->x + begin, end - begin);
    } else {
        ttk.add_f32(task->y + begin, task->x + begin, end - begin);
    }
}

void tt_add_run(tt_stream *compute, const char *name, float *y, const float *x, int64_t n)
{
    add_task task = {y, x, 1.0f, false, n};
    tt_stream_run(compute, name, add_part, &task);
}

void tt_axpy_run(tt_stream *compute, const char *name, float *y, float scale, const float *x,
                 int64_t n)
{
    add_task task = {y, x, scale, true, n};
    tt_stream_run(compute, name, add_part, &task);
}
