/* gemm_avx2.h - the product for packed weights of either type, on AVX2; gemm_f32_avx2.c and gemm_bf16_avx2.c instantiate
 * it with a constant `bf16`.
 *
 * An output is one chain over k, so lanes run along n, and speed comes from many chains at once: one row takes two panels
 * together (8 registers of sums), more rows take tiles of up to 6 rows by half a panel (12 registers), each weight read
 * once per tile. For several rows a panel is cut along k into blocks that stay in the L1 cache over all tiles; between
 * blocks the sums wait in memory, which does not change them.
 *
 * bf16 weights are widened by a shift (even elements) and a mask (odd elements) of the same 16: cheaper than spreading
 * them in order. So a half panel's two registers hold its even and its odd columns until the sums are stored. */
#ifndef TUTTI_TTK_GEMM_AVX2_H
#define TUTTI_TTK_GEMM_AVX2_H
#include "vec_avx2.h"

enum {
    HALF = TTK_PANEL / 2,
    TILE_ROWS = 6,           /* 12 sums + 2 weights + 1 row element of 16 registers */
    GROUP_ROWS = 48,         /* rows and panels whose sums wait together: 48 KiB, in the L2 cache */
    GROUP_PANELS = 8,
    BLOCK_BYTES = 8 * 1024,  /* of a panel; a quarter of the L1 cache, as rows of x may all fall into the same few sets */
    PREFETCH_BYTES = 1024    /* ahead in a stream of weights; measured on Zen 3, flat from 512 to 2048 */
};

typedef struct half_panel {
    __m256 a, b; /* columns 0..7 and 8..15, or even and odd columns for bf16 */
} half_panel;

TTK_INLINE int64_t weight_bytes(bool bf16, int64_t n)
{
    return n * (bf16 ? (int64_t)sizeof(ttk_bf16) : (int64_t)sizeof(float));
}

TTK_INLINE const char *weight_at(const void *panels, bool bf16, int64_t at)
{
    return (const char *)panels + weight_bytes(bf16, at);
}

TTK_INLINE half_panel load_half(const char *w, bool bf16)
{
    half_panel h;
    if (bf16) {
        __m256i raw = _mm256_loadu_si256((const __m256i *)w);
        h.a = vec_even_of_bf16(raw);
        h.b = vec_odd_of_bf16(raw);
    } else {
        h.a = _mm256_loadu_ps((const float *)w);
        h.b = _mm256_loadu_ps((const float *)w + VEC);
    }
    return h;
}

/* Stores the sums of half a panel in column order; n_columns may be less than HALF or negative. */
TTK_INLINE void store_half(float *y, half_panel h, bool bf16, int64_t n_columns)
{
    __m256 first = h.a;
    __m256 second = h.b;
    if (bf16) {
        __m256 low = _mm256_unpacklo_ps(h.a, h.b);
        __m256 high = _mm256_unpackhi_ps(h.a, h.b);
        first = _mm256_permute2f128_ps(low, high, 0x20);
        second = _mm256_permute2f128_ps(low, high, 0x31);
    }
    if (n_columns >= HALF) {
        _mm256_storeu_ps(y, first);
        _mm256_storeu_ps(y + VEC, second);
    } else if (n_columns > 0) {
        _mm256_maskstore_ps(y, vec_mask(n_columns), first);
        if (n_columns > VEC) {
            _mm256_maskstore_ps(y + VEC, vec_mask(n_columns - VEC), second);
        }
    }
}

/* One row by n_panels panels (1 or 2), of which n_columns are stored. */
TTK_INLINE void row_by_panels(float *y, const float *x, const void *panels, bool bf16, int n_panels, int64_t K,
                              int64_t n_columns)
{
    half_panel acc[4];
    const char *w[2];
    TTK_UNROLL
    for (int h = 0; h < 2 * n_panels; h++) {
        acc[h].a = _mm256_setzero_ps();
        acc[h].b = _mm256_setzero_ps();
    }
    TTK_UNROLL
    for (int p = 0; p < n_panels; p++) {
        w[p] = weight_at(panels, bf16, p * K * TTK_PANEL);
    }
    for (int64_t k = 0; k < K; k++) {
        __m256 x_k = _mm256_broadcast_ss(x + k);
        TTK_UNROLL
        for (int h = 0; h < 2 * n_panels; h++) {
            const char *here = w[h / 2] + weight_bytes(bf16, k * TTK_PANEL + h % 2 * HALF);
            half_panel weights = load_half(here, bf16);
            _mm_prefetch(here + PREFETCH_BYTES, _MM_HINT_T0);
            acc[h].a = _mm256_fmadd_ps(x_k, weights.a, acc[h].a);
            acc[h].b = _mm256_fmadd_ps(x_k, weights.b, acc[h].b);
        }
    }
    TTK_UNROLL
    for (int h = 0; h < 2 * n_panels; h++) {
        store_half(y + h * HALF, acc[h], bf16, n_columns - h * HALF);
    }
}

/* Where element k of row r stands: at[r * row_step + k * k_step]. One of the steps is a constant once inlined. */
typedef struct rows_view {
    const float *at;
    int64_t row_step, k_step;
} rows_view;

/* acc[rows][TTK_PANEL] += x[rows][n_k] by half a panel, or by the whole (n_halves = 2) if rows is at most 3. The weights
 * `ahead` bytes further on are fetched meanwhile: the next block for the first tile, nothing new for the others. */
TTK_INLINE void tile(float *acc, rows_view x, const char *w, bool bf16, int rows, int n_halves,
                     int64_t n_k, int64_t ahead)
{
    half_panel sum[TILE_ROWS];
    const int64_t row_bytes = weight_bytes(bf16, TTK_PANEL);
    TTK_UNROLL
    for (int i = 0; i < rows * n_halves; i++) {
        const float *from = acc + i / n_halves * TTK_PANEL + i % n_halves * HALF;
        sum[i].a = _mm256_loadu_ps(from);
        sum[i].b = _mm256_loadu_ps(from + VEC);
    }
    for (int64_t k = 0; k < n_k; k++) {
        TTK_UNROLL
        for (int h = 0; h < n_halves; h++) {
            const char *here = w + k * row_bytes + h * (row_bytes / 2);
            half_panel weights = load_half(here, bf16);
            _mm_prefetch(here + ahead, _MM_HINT_T0);
            TTK_UNROLL
            for (int r = 0; r < rows; r++) {
                __m256 x_k = _mm256_broadcast_ss(x.at + r * x.row_step + k * x.k_step);
                half_panel *s = &sum[r * n_halves + h];
                s->a = _mm256_fmadd_ps(x_k, weights.a, s->a);
                s->b = _mm256_fmadd_ps(x_k, weights.b, s->b);
            }
        }
    }
    TTK_UNROLL
    for (int i = 0; i < rows * n_halves; i++) {
        float *to = acc + i / n_halves * TTK_PANEL + i % n_halves * HALF;
        _mm256_storeu_ps(to, sum[i].a);
        _mm256_storeu_ps(to + VEC, sum[i].b);
    }
}

/* rows in [1, TILE_ROWS] by one block of a panel. */
TTK_INLINE void rows_by_block(float *acc, rows_view x, const char *w, bool bf16, int rows,
                              int64_t n_k, int64_t ahead)
{
    const int64_t half_bytes = weight_bytes(bf16, HALF);
    switch (rows) {
    case 1:
        tile(acc, x, w, bf16, 1, 2, n_k, ahead);
        break;
    case 2:
        tile(acc, x, w, bf16, 2, 2, n_k, ahead);
        break;
    case 3:
        tile(acc, x, w, bf16, 3, 2, n_k, ahead);
        break;
    case 4:
        tile(acc, x, w, bf16, 4, 1, n_k, ahead);
        tile(acc + HALF, x, w + half_bytes, bf16, 4, 1, n_k, ahead);
        break;
    case 5:
        tile(acc, x, w, bf16, 5, 1, n_k, ahead);
        tile(acc + HALF, x, w + half_bytes, bf16, 5, 1, n_k, ahead);
        break;
    default:
        tile(acc, x, w, bf16, TILE_ROWS, 1, n_k, ahead);
        tile(acc + HALF, x, w + half_bytes, bf16, TILE_ROWS, 1, n_k, ahead);
        break;
    }
}

/* Stores acc[M][TTK_PANEL]. */
TTK_INLINE void store_rows(float *y, int64_t ldy, const float *acc, bool bf16, int64_t M, int64_t n_columns)
{
    for (int64_t m = 0; m < M; m++) {
        const float *from = acc + m * TTK_PANEL;
        TTK_UNROLL
        for (int h = 0; h < 2; h++) {
            half_panel sum = {_mm256_loadu_ps(from + h * HALF), _mm256_loadu_ps(from + h * HALF + VEC)};
            store_half(y + m * ldy + h * HALF, sum, bf16, n_columns - h * HALF);
        }
    }
}

/* M rows (2 .. TILE_ROWS) by one panel, of which n_columns are stored: one tile, x read where it is. */
TTK_INLINE void few_rows_by_panel(float *y, int64_t ldy, const float *x, int64_t ldx, const void *panel, bool bf16,
                                  int64_t M, int64_t K, int64_t n_columns)
{
    float acc[TILE_ROWS * TTK_PANEL] __attribute__((aligned(64)));
    memset(acc, 0, sizeof(acc)); /* +0 */
    const int64_t block_k = BLOCK_BYTES / weight_bytes(bf16, TTK_PANEL);
    for (int64_t k = 0; k < K; k += block_k) {
        int64_t n_k = K - k < block_k ? K - k : block_k;
        rows_view rows = {x + k, ldx, 1};
        rows_by_block(acc, rows, weight_at(panel, bf16, k * TTK_PANEL), bf16, (int)M, n_k, BLOCK_BYTES);
    }
    store_rows(y, ldy, acc, bf16, M, n_columns);
}

/* The height of the tile that starts at row m of M: tiles of nearly equal height, so that TILE_ROWS + 1 rows are two
 * halves, not a whole and one. */
TTK_INLINE int64_t tile_rows(int64_t M, int64_t m)
{
    int64_t tiles_left = (M - m + TILE_ROWS - 1) / TILE_ROWS;
    return (M - m + tiles_left - 1) / tiles_left;
}

/* M rows (up to GROUP_ROWS) by up to GROUP_PANELS panels of N columns in all. Each block of x is first copied into the
 * order in which tiles read it, since its rows, a power of two apart, would evict one another from the caches; the copy
 * serves all panels of the group. */
TTK_INLINE void rows_by_panels(float *y, int64_t ldy, const float *x, int64_t ldx, const void *panels, bool bf16,
                               int64_t M, int64_t N, int64_t K)
{
    enum { MAX_BLOCK_K = BLOCK_BYTES / TTK_PANEL / sizeof(ttk_bf16) };
    float acc[GROUP_PANELS * GROUP_ROWS * TTK_PANEL] __attribute__((aligned(64)));
    float x_block[GROUP_ROWS * MAX_BLOCK_K] __attribute__((aligned(64))); /* tile after tile, each [n_k][rows] */
    const int64_t n_panels = (N + TTK_PANEL - 1) / TTK_PANEL;
    const int64_t block_k = BLOCK_BYTES / weight_bytes(bf16, TTK_PANEL);
    memset(acc, 0, (size_t)(n_panels * M * TTK_PANEL) * sizeof(float)); /* +0 */
    for (int64_t k = 0; k < K; k += block_k) {
        int64_t n_k = K - k < block_k ? K - k : block_k;
        for (int64_t m = 0, rows; m < M; m += rows) {
            rows = tile_rows(M, m);
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t i = 0; i < n_k; i++) {
                    x_block[m * n_k + i * rows + r] = x[(m + r) * ldx + k + i];
                }
            }
        }
        for (int64_t p = 0; p < n_panels; p++) {
            const char *w = weight_at(panels, bf16, (p * K + k) * TTK_PANEL);
            /* What is used next: this block of the next panel, or the next block of the first. */
            int64_t next = p + 1 < n_panels ? K : block_k - p * K;
            for (int64_t m = 0, rows; m < M; m += rows) {
                rows = tile_rows(M, m);
                rows_view view = {x_block + m * n_k, 1, rows};
                int64_t ahead = m == 0 ? weight_bytes(bf16, next * TTK_PANEL) : 0;
                rows_by_block(acc + (p * M + m) * TTK_PANEL, view, w, bf16, (int)rows, n_k, ahead);
            }
        }
    }
    for (int64_t p = 0; p < n_panels; p++) {
        store_rows(y + p * TTK_PANEL, ldy, acc + p * M * TTK_PANEL, bf16, M, N - p * TTK_PANEL);
    }
}

TTK_INLINE void gemm(float *y, int64_t ldy, const float *x, int64_t ldx, const void *panels, bool bf16, int64_t M,
                     int64_t N, int64_t K)
{
    if (M == 1) {
        int64_t n = 0;
        for (; N - n > TTK_PANEL; n += 2 * TTK_PANEL) {
            row_by_panels(y + n, x, weight_at(panels, bf16, n * K), bf16, 2, K, N - n);
        }
        if (n < N) {
            row_by_panels(y + n, x, weight_at(panels, bf16, n * K), bf16, 1, K, N - n);
        }
        return;
    }
    if (M <= TILE_ROWS) {
        for (int64_t n = 0; M > 0 && n < N; n += TTK_PANEL) {
            few_rows_by_panel(y + n, ldy, x, ldx, weight_at(panels, bf16, n * K), bf16, M, K, N - n);
        }
        return;
    }
    for (int64_t n = 0; n < N; n += GROUP_PANELS * TTK_PANEL) {
        int64_t columns = N - n < GROUP_PANELS * TTK_PANEL ? N - n : GROUP_PANELS * TTK_PANEL;
        for (int64_t m = 0; m < M; m += GROUP_ROWS) {
            int64_t rows = M - m < GROUP_ROWS ? M - m : GROUP_ROWS;
            rows_by_panels(y + m * ldy + n, ldy, x + m * ldx, ldx, weight_at(panels, bf16, n * K), bf16, rows, columns,
                           K);
        }
    }
}

#endif
