/* linear.h - a packed weight matrix and its product with rows, spread over the threads of a stream.
 *
 *   y[m][n] = sum over k of x[m][k] * w[n][k]  (+ bias[n])
 * The product is ttk's: each output is one fmaf chain over ascending k, so the split over threads
 * and rows changes no bit.
 * Threads: run from one thread at a time per stream. MPI: none. */
#ifndef TUTTI_LINEAR_H
#define TUTTI_LINEAR_H
#include <stdbool.h>
#include <stdint.h>
#include "tutti/status.h"
#include "tutti/stream.h"
#include "ttk.h"

/* How rows are rounded before products with quantised weights. */
typedef enum tt_act { TT_ACT_F32, TT_ACT_BF16, TT_ACT_INT8 } tt_act;
#define TT_ACT_CHOICES "f32|bf16|int8" /* in this order, for options */
TT_API const char *tt_act_name(tt_act act);

/* Rows x[M][ldx] that go into products, and the same as `act` has them: int8 as ttk_act8 makes
 * them, bf16 as floats; NULL with f32. */
typedef struct tt_rows {
    const float *x;
    int64_t ldx;
    tt_act act;
    const void *rounded;
    size_t stride; /* bytes from one rounded row to the next */
} tt_rows;
static inline tt_rows tt_rows_plain(const float *x, int64_t ldx)
{
    return (tt_rows){x, ldx, TT_ACT_F32, NULL, 0};
}
/* From row m on. */
static inline tt_rows tt_rows_from(const tt_rows *rows, int64_t m)
{
    tt_rows from = *rows;
    from.x += m * rows->ldx;
    from.rounded =
        rows->rounded ? (const unsigned char *)rows->rounded + (size_t)m * rows->stride : NULL;
    return from;
}
/* Bytes of the buffer that M rounded rows of K need; 0 for f32. */
TT_API size_t tt_rows_bytes(tt_act act, int64_t M, int64_t K);
/* M rows of K as `act` has them, in buffer[tt_rows_bytes(act, M, K)], 64-byte aligned: shared out
 * over the stream (NULL: the caller alone). A row's result depends on that row only. */
TT_API tt_rows tt_rows_round(tt_act act, tt_stream *compute, void *buffer, const float *x,
                             int64_t ldx, int64_t M, int64_t K);
/* The same for rows [begin, end) of such a buffer, for callers that are already inside a task. */
TT_API void tt_rows_round_part(tt_act act, void *buffer, const float *x, int64_t ldx, int64_t begin,
                               int64_t end, int64_t K);
/* What tt_rows_round returns of a buffer that has been filled. */
TT_API tt_rows tt_rows_in(tt_act act, const void *buffer, const float *x, int64_t ldx, int64_t K);

/* Visible body: lives inside other structs; all-zero is an empty matrix (N = 0) that may be run and
 * freed. */
typedef struct tt_linear {
    ttk_format format; /* of the packed elements; never TTK_F16 */
    int64_t N, K;      /* outputs, inputs */
    void *panels;      /* owned unless borrowed */
    size_t bytes;      /* of panels */
    bool is_borrowed;  /* panels are another object's, which outlives this; most ranks may only
                        * read them */
    float *bias;       /* bias[N], owned; NULL = none */
} tt_linear;

/* Allocates for w[N][K] on NUMA node `node`; contents undefined. */
TT_API tt_status tt_linear_init(tt_linear *linear, const char *what, const ttk_format *format,
                                int64_t N, int64_t K, int node);
/* w[N][K] in memory that belongs to somebody else: panels[ttk_packed_bytes(format, N, K)], 64-byte
 * aligned. */
TT_API void tt_linear_borrow(tt_linear *linear, const ttk_format *format, int64_t N, int64_t K,
                             void *panels);
TT_API void tt_linear_fini(tt_linear *linear);
/* Bytes that one product reads. */
static inline uint64_t tt_linear_bytes(const tt_linear *linear)
{
    return linear->bytes + (linear->bias ? (uint64_t)linear->N * sizeof(float) : 0);
}
/* How these weights take rows for which the layout says `act`: plain ones as they are, quantised
 * ones rounded (to int8 where the format can: ttk_can_act8; else as they are). Rows that nobody
 * takes rounded need not be rounded. */
TT_API tt_act tt_linear_act(const tt_linear *linear, tt_act act);
/* y[M][ldy] = rows[M] w^T + bias, with the rows as tt_linear_act says. With compute NULL the caller
 * does it alone. */
TT_API void tt_linear_run(const tt_linear *linear, tt_stream *compute, const char *name, float *y,
                          int64_t ldy, const tt_rows *rows, int64_t M);
/* From now on products of many rows with plain weights go through OpenBLAS, for the set blas.
 * Thread: setup only, before threads start.
 * Errors: TT_ERR_UNSUPPORTED if it cannot be loaded. */
TT_API tt_status tt_linear_use_blas(void);
/* The part of the same product that thread `thread_id` of `n_threads` does; for callers that are
 * already inside a task. */
TT_API void tt_linear_part(const tt_linear *linear, float *y, int64_t ldy, const tt_rows *rows,
                           int64_t M, int thread_id, int n_threads);
/* One thread's block of a product: whole panels if there are enough for all threads, else one panel
 * and a run of its rows. */
typedef struct tt_tile {
    int64_t panel_begin, panel_end, row_begin, row_end;
} tt_tile;
TT_API tt_tile tt_linear_tile(int64_t panel_begin, int64_t panel_end, int64_t M, int thread_id,
                              int n_threads);
/* y[i] += x[i], and y[i] = fmaf(scale, x[i], y[i]), i < n, spread over the stream. */
TT_API void tt_axpy_run(tt_stream *compute, const char *name, float *y, float scale, const float *x,
                        int64_t n);
TT_API void tt_add_run(tt_stream *compute, const char *name, float *y, const float *x, int64_t n);
/* Panels [panel_begin, panel_end) of the product, for work queues. */
TT_API void tt_linear_panels(const tt_linear *linear, float *y, int64_t ldy, const tt_rows *rows,
                             int64_t M, int64_t panel_begin, int64_t panel_end);
/* The same, but y's first column is the first of those panels: y[M][ldy] holds them alone. */
TT_API void tt_linear_some(const tt_linear *linear, float *y, int64_t ldy, const tt_rows *rows,
                           int64_t M, int64_t panel_begin, int64_t panel_end);
static inline int64_t tt_linear_n_panels(const tt_linear *linear)
{
    return (linear->N + TTK_PANEL - 1) / TTK_PANEL;
}

#endif
