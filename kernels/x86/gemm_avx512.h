/* gemm_avx512.h - the product for packed weights of either type, on AVX-512; gemm_f32_avx512.c and
 * gemm_bf16_avx512.c instantiate it with a constant `bf16`.
 *
 * As gemm_avx2.h, with other tiles: a row of a panel is two registers, so one row takes four panels
 * together (8 registers of sums), more rows take tiles of up to 8 rows by a panel (16 registers).
 * For bf16 the two registers hold the even and the odd columns until the sums are stored. */
#ifndef TUTTI_TTK_GEMM_AVX512_H
#define TUTTI_TTK_GEMM_AVX512_H
#include "vec_avx512.h"

enum {
    TILE_ROWS = 8,   /* 16 sums + 2 weights + row elements of 32 registers */
    ROW_PANELS = 4,  /* panels that one row takes together */
    GROUP_ROWS = 48, /* rows whose sums wait together; many more rows of x, a power of two apart, do
                        not fit L2 */
    BLOCK_BYTES = 16 * 1024, /* of a panel; a third of the L1 cache */
    PREFETCH_BYTES = 1024    /* ahead in a stream of weights; guessed */
};

typedef struct panel_row {
    __m512 a, b; /* columns 0..15 and 16..31, or even and odd columns for bf16 */
} panel_row;

TTK_INLINE int64_t weight_bytes(bool bf16, int64_t n)
{
    return n * (bf16 ? (int64_t)sizeof(ttk_bf16) : (int64_t)sizeof(float));
}

TTK_INLINE const char *weight_at(const void *panels, bool bf16, int64_t at)
{
    return (const char *)panels + weight_bytes(bf16, at);
}

TTK_INLINE panel_row load_panel_row(const char *w, bool bf16)
{
    panel_row p;
    if (bf16) {
        __m512i raw = _mm512_loadu_si512(w);
        p.a = vec_even_of_bf16(raw);
        p.b = vec_odd_of_bf16(raw);
    } else {
        p.a = _mm512_loadu_ps(w);
        p.b = _mm512_loadu_ps(w + VEC * sizeof(float));
    }
    return p;
}

/* Stores the sums of a panel in column order; n_columns may be less than TTK_PANEL. */
TTK_INLINE void store_panel_row(float *y, panel_row p, bool bf16, int64_t n_columns)
{
    __m512 first = p.a;
    __m512 second = p.b;
    if (bf16) {
        const __m512i low =
            _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        const __m512i high =
            _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        first = _mm512_permutex2var_ps(p.a, low, p.b);
        second = _mm512_permutex2var_ps(p.a, high, p.b);
    }
    if (n_columns >= TTK_PANEL) {
        _mm512_storeu_ps(y, first);
        _mm512_storeu_ps(y + VEC, second);
    } else {
        _mm512_mask_storeu_ps(y, vec_mask(n_columns), first);
        if (n_columns > VEC) {
            _mm512_mask_storeu_ps(y + VEC, vec_mask(n_columns - VEC), second);
        }
    }
}

/* One row by n_panels panels (1 .. ROW_PANELS), of which n_columns are stored. */
TTK_INLINE void row_by_panels(float *y, const float *x, const void *panels, bool bf16, int n_panels,
                              int64_t K, int64_t n_columns)
{
    panel_row acc[ROW_PANELS];
    const char *w[ROW_PANELS];
    TTK_UNROLL
    for (int p = 0; p < n_panels; p++) {
        acc[p].a = _mm512_setzero_ps();
        acc[p].b = _mm512_setzero_ps();
        w[p] = weight_at(panels, bf16, p * K * TTK_PANEL);
    }
    for (int64_t k = 0; k < K; k++) {
        __m512 x_k = _mm512_set1_ps(x[k]);
        TTK_UNROLL
        for (int p = 0; p < n_panels; p++) {
            const char *here = w[p] + weight_bytes(bf16, k * TTK_PANEL);
            panel_row weights = load_panel_row(here, bf16);
            _mm_prefetch(here + PREFETCH_BYTES, _MM_HINT_T0);
            acc[p].a = _mm512_fmadd_ps(x_k, weights.a, acc[p].a);
            acc[p].b = _mm512_fmadd_ps(x_k, weights.b, acc[p].b);
        }
    }
    TTK_UNROLL
    for (int p = 0; p < n_panels; p++) {
        store_panel_row(y + p * TTK_PANEL, acc[p], bf16, n_columns - p * TTK_PANEL);
    }
}

/* acc[rows][TTK_PANEL] += x[rows][n_k] by a block of a panel. Meanwhile next[n_k * next_step bytes]
 * is fetched: this tile's share of the block that comes next. */
TTK_INLINE void tile(float *acc, const float *x, int64_t ldx, const char *w, bool bf16, int rows,
                     int64_t n_k, const char *next, int64_t next_step)
{
    panel_row sum[TILE_ROWS];
    TTK_UNROLL
    for (int r = 0; r < rows; r++) {
        sum[r].a = _mm512_loadu_ps(acc + r * TTK_PANEL);
        sum[r].b = _mm512_loadu_ps(acc + r * TTK_PANEL + VEC);
    }
    for (int64_t k = 0; k < n_k; k++) {
        const char *here = w + weight_bytes(bf16, k * TTK_PANEL);
        panel_row weights = load_panel_row(here, bf16);
        _mm_prefetch(next + k * next_step, _MM_HINT_T0);
        if (!bf16) { /* a row is two cache lines */
            _mm_prefetch(next + k * next_step + next_step / 2, _MM_HINT_T0);
        }
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            __m512 x_k = _mm512_set1_ps(x[r * ldx + k]);
            sum[r].a = _mm512_fmadd_ps(x_k, weights.a, sum[r].a);
            sum[r].b = _mm512_fmadd_ps(x_k, weights.b, sum[r].b);
        }
    }
    TTK_UNROLL
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_ps(acc + r * TTK_PANEL, sum[r].a);
        _mm512_storeu_ps(acc + r * TTK_PANEL + VEC, sum[r].b);
    }
}

/* rows in [1, TILE_ROWS] by one block of a panel. */
TTK_INLINE void rows_by_block(float *acc, const float *x, int64_t ldx, const char *w, bool bf16,
                              int rows, int64_t n_k, const char *next, int64_t next_step)
{
    switch (rows) {
    case 1:
        tile(acc, x, ldx, w, bf16, 1, n_k, next, next_step);
        break;
    case 2:
        tile(acc, x, ldx, w, bf16, 2, n_k, next, next_step);
        break;
    case 3:
        tile(acc, x, ldx, w, bf16, 3, n_k, next, next_step);
        break;
    case 4:
        tile(acc, x, ldx, w, bf16, 4, n_k, next, next_step);
        break;
    case 5:
        tile(acc, x, ldx, w, bf16, 5, n_k, next, next_step);
        break;
    case 6:
        tile(acc, x, ldx, w, bf16, 6, n_k, next, next_step);
        break;
    case 7:
        tile(acc, x, ldx, w, bf16, 7, n_k, next, next_step);
        break;
    default:
        tile(acc, x, ldx, w, bf16, TILE_ROWS, n_k, next, next_step);
        break;
    }
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
        /* Tiles of nearly equal height: 9 rows are 5 + 4, not 8 + 1. */
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
        const float *from = acc + m * TTK_PANEL;
        panel_row sum = {_mm512_loadu_ps(from), _mm512_loadu_ps(from + VEC)};
        store_panel_row(y + m * ldy, sum, bf16, n_columns);
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
        if (N - n > TTK_PANEL) {
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
