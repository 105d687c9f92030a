/* gemm.h - the product for packed weights of either type; gemm_f32_<isa>.c and gemm_bf16_<isa>.c
 * instantiate it with a constant `bf16`. Included at the end of each ISA's gemm_*.h, which supplies
 * the sizes of tiles, columns_in_order and store_first.
 *
 * An output is one chain over k, so lanes run along n, and speed comes from many chains at once:
 * one row takes several panels together (8 registers of sums), more rows take tiles of rows by a
 * pair of registers, each weight read once per tile. For several rows a panel is cut along k into
 * blocks that stay in the L1 cache over all tiles; between blocks the sums wait in memory, which
 * does not change them. While the tiles work on one block they fetch the next, each its share, so
 * that arithmetic and memory overlap evenly (f32: half as fast again at 8 to 24 rows as fetching in
 * the first tile alone).
 *
 * bf16 weights are widened by a shift (even elements) and a mask (odd elements) of the same 16:
 * cheaper than spreading them in order. So a pair's two registers hold its even and its odd columns
 * until the sums are stored. */
#ifndef TUTTI_TTK_GEMM_H
#define TUTTI_TTK_GEMM_H
#include "constant_rows.h"

enum {
    PAIRS = TTK_PANEL / PAIR,
    GROUP_ROWS = 48, /* rows whose sums wait together; many more rows of x, a power of two apart, do
                        not fit L2 */
    PREFETCH_BYTES = 1024, /* ahead in a stream of weights; guessed */
    LINE_BYTES = 64
};

TTK_INLINE int64_t weight_bytes(bool bf16, int64_t n)
{
    return n * (bf16 ? (int64_t)sizeof(ttk_bf16) : (int64_t)sizeof(float));
}

TTK_INLINE const char *weight_at(const void *panels, bool bf16, int64_t at)
{
    return (const char *)panels + weight_bytes(bf16, at);
}

TTK_INLINE vec_pair load_pair(const char *w, bool bf16)
{
    vec_pair h;
    if (bf16) {
        veci raw = MMI(loadu)((const veci *)w);
        h.a = vec_even_of_bf16(raw);
        h.b = vec_odd_of_bf16(raw);
    } else {
        h.a = MM(loadu_ps)((const float *)w);
        h.b = MM(loadu_ps)((const float *)w + VEC);
    }
    return h;
}

/* Stores the sums of a pair in column order; n_columns may be less than PAIR or negative. */
TTK_INLINE void store_pair(float *y, vec_pair h, bool bf16, int64_t n_columns)
{
    if (bf16) {
        h = columns_in_order(h);
    }
    if (n_columns >= PAIR) {
        MM(storeu_ps)(y, h.a);
        MM(storeu_ps)(y + VEC, h.b);
    } else if (n_columns > 0) {
        store_first(y, h.a, n_columns);
        if (n_columns > VEC) {
            store_first(y + VEC, h.b, n_columns - VEC);
        }
    }
}

/* One row by n_panels panels (1 .. ROW_PANELS), of which n_columns are stored. */
TTK_INLINE void row_by_panels(float *y, const float *x, const void *panels, bool bf16, int n_panels,
                              int64_t K, int64_t n_columns)
{
    vec_pair acc[ROW_PANELS * PAIRS];
    const char *w[ROW_PANELS];
    TTK_UNROLL
    for (int h = 0; h < n_panels * PAIRS; h++) {
        acc[h].a = MM(setzero_ps)();
        acc[h].b = MM(setzero_ps)();
    }
    TTK_UNROLL
    for (int p = 0; p < n_panels; p++) {
        w[p] = weight_at(panels, bf16, p * K * TTK_PANEL);
    }
    for (int64_t k = 0; k < K; k++) {
        vec x_k = MM(set1_ps)(x[k]);
        TTK_UNROLL
        for (int h = 0; h < n_panels * PAIRS; h++) {
            const char *here = w[h / PAIRS] + weight_bytes(bf16, k * TTK_PANEL + h % PAIRS * PAIR);
            vec_pair weights = load_pair(here, bf16);
            _mm_prefetch(here + PREFETCH_BYTES, _MM_HINT_T0);
            acc[h].a = MM(fmadd_ps)(x_k, weights.a, acc[h].a);
            acc[h].b = MM(fmadd_ps)(x_k, weights.b, acc[h].b);
        }
    }
    TTK_UNROLL
    for (int h = 0; h < n_panels * PAIRS; h++) {
        store_pair(y + h * PAIR, acc[h], bf16, n_columns - h * PAIR);
    }
}

/* acc[rows][TTK_PANEL] += x[rows][n_k] by n_pairs pairs of registers. Meanwhile next[n_k * next_step
 * bytes] is fetched: this tile's share of the block that comes next. */
TTK_INLINE void tile(float *acc, const float *x, int64_t ldx, const char *w, bool bf16, int rows,
                     int n_pairs, int64_t n_k, const char *next, int64_t next_step)
{
    vec_pair sum[TILE_ROWS];
    /* What a pair's weights fill of cache lines. */
    const int n_lines = weight_bytes(bf16, PAIR) > LINE_BYTES ? 2 : 1;
    const int64_t n_parts = n_pairs * n_lines;
    const int64_t row_bytes = weight_bytes(bf16, TTK_PANEL);
    TTK_UNROLL
    for (int i = 0; i < rows * n_pairs; i++) {
        const float *from = acc + i / n_pairs * TTK_PANEL + i % n_pairs * PAIR;
        sum[i].a = MM(loadu_ps)(from);
        sum[i].b = MM(loadu_ps)(from + VEC);
    }
    for (int64_t k = 0; k < n_k; k++) {
        TTK_UNROLL
        for (int h = 0; h < n_pairs; h++) {
            const char *here = w + k * row_bytes + h * (row_bytes / PAIRS);
            vec_pair weights = load_pair(here, bf16);
            TTK_UNROLL
            for (int line = 0; line < n_lines; line++) {
                _mm_prefetch(next + k * next_step + (h * n_lines + line) * (next_step / n_parts),
                             _MM_HINT_T0);
            }
            TTK_UNROLL
            for (int r = 0; r < rows; r++) {
                vec x_k = MM(set1_ps)(x[r * ldx + k]);
                vec_pair *s = &sum[r * n_pairs + h];
                s->a = MM(fmadd_ps)(x_k, weights.a, s->a);
                s->b = MM(fmadd_ps)(x_k, weights.b, s->b);
            }
        }
    }
    TTK_UNROLL
    for (int i = 0; i < rows * n_pairs; i++) {
        float *to = acc + i / n_pairs * TTK_PANEL + i % n_pairs * PAIR;
        MM(storeu_ps)(to, sum[i].a);
        MM(storeu_ps)(to + VEC, sum[i].b);
    }
}

/* rows in [1, TILE_ROWS] by one block of a panel: by the whole panel at once if the sums have room,
 * else pair by pair. */
TTK_INLINE void rows_by_pairs(float *acc, const float *x, int64_t ldx, const char *w, bool bf16,
                              int rows, int64_t n_k, const char *next, int64_t next_step)
{
    if (rows * PAIRS <= TILE_ROWS) {
        tile(acc, x, ldx, w, bf16, rows, PAIRS, n_k, next, next_step);
        return;
    }
    const int64_t pair_step = next_step / PAIRS;
    TTK_UNROLL
    for (int h = 0; h < PAIRS; h++) {
        tile(acc + h * PAIR, x, ldx, w + h * weight_bytes(bf16, PAIR), bf16, rows, 1, n_k,
             next + h * n_k * pair_step, pair_step);
    }
}

TTK_INLINE void rows_by_block(float *acc, const float *x, int64_t ldx, const char *w, bool bf16,
                              int rows, int64_t n_k, const char *next, int64_t next_step){
#define TILE(n) rows_by_pairs(acc, x, ldx, w, bf16, n, n_k, next, next_step)
    TTK_CONSTANT_ROWS(rows, TILE_ROWS, TILE)
#undef TILE
}

/* M rows (2 .. GROUP_ROWS) by one panel, of which n_columns are stored. */
TTK_INLINE void rows_by_panel(float *y, int64_t ldy, const float *x, int64_t ldx, const void *panel,
                              bool bf16, int64_t M, int64_t K, int64_t n_columns)
{
    float acc[GROUP_ROWS * TTK_PANEL] __attribute__((aligned(64)));
    for (int64_t i = 0; i < M * TTK_PANEL; i++) {
        acc[i] = 0.0f;
    }
    const int64_t n_tiles = (M + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t block_k = BLOCK_BYTES / weight_bytes(bf16, TTK_PANEL);
    const int64_t next_step = weight_bytes(bf16, TTK_PANEL) / n_tiles;
    for (int64_t k = 0; k < K; k += block_k) {
        int64_t n_k = K - k < block_k ? K - k : block_k;
        const char *w = weight_at(panel, bf16, k * TTK_PANEL);
        /* Tiles of nearly equal height: seven rows are 4 + 3, not 6 + 1. */
        int64_t tiles_left = n_tiles;
        const char *next = w + BLOCK_BYTES;
        for (int64_t m = 0; m < M; tiles_left--) {
            int64_t rows = (M - m + tiles_left - 1) / tiles_left;
            rows_by_block(acc + m * TTK_PANEL, x + m * ldx + k, ldx, w, bf16, (int)rows, n_k, next,
                          next_step);
            m += rows;
            next += n_k * next_step;
        }
    }
    for (int64_t m = 0; m < M; m++) {
        TTK_UNROLL
        for (int h = 0; h < PAIRS; h++) {
            const float *from = acc + m * TTK_PANEL + h * PAIR;
            vec_pair sum = {MM(loadu_ps)(from), MM(loadu_ps)(from + VEC)};
            store_pair(y + m * ldy + h * PAIR, sum, bf16, n_columns - h * PAIR);
        }
    }
}

TTK_INLINE void gemm(float *y, int64_t ldy, const float *x, int64_t ldx, const void *panels,
                     bool bf16, int64_t M, int64_t N, int64_t K)
{
    if (M == 1) {
        int64_t n = 0;
        for (; N - n > (ROW_PANELS - 1) * TTK_PANEL; n += ROW_PANELS * TTK_PANEL) {
            row_by_panels(y + n, x, weight_at(panels, bf16, n * K), bf16, ROW_PANELS, K, N - n);
        }
        if (ROW_PANELS > 2 && N - n > TTK_PANEL) {
            row_by_panels(y + n, x, weight_at(panels, bf16, n * K), bf16, 2, K, N - n);
            n += 2 * TTK_PANEL;
        }
        if (n < N) {
            row_by_panels(y + n, x, weight_at(panels, bf16, n * K), bf16, 1, K, N - n);
        }
        return;
    }
    for (int64_t n = 0; n < N; n += TTK_PANEL) {
        for (int64_t m = 0; m < M; m += GROUP_ROWS) {
            int64_t rows = M - m < GROUP_ROWS ? M - m : GROUP_ROWS;
            rows_by_panel(y + m * ldy + n, ldy, x + m * ldx, ldx, weight_at(panels, bf16, n * K),
                          bf16, rows, K, N - n);
        }
    }
}

#endif
