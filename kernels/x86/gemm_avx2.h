/* gemm_avx2.h - the product for packed weights of either type, on AVX2; gemm_f32_avx2.c and
 * gemm_bf16_avx2.c instantiate it with a constant `bf16`.
 *
 * An output is one chain over k, so lanes run along n, and speed comes from many chains at once:
 * one row takes two panels together (8 registers of sums), more rows take tiles of up to 6 rows by
 * half a panel (12 registers), each weight read once per tile. For several rows a panel is cut
 * along k into blocks that stay in the L1 cache over all tiles; between blocks the sums wait in
 * memory, which does not change them. While the tiles work on one block they fetch the next, each
 * its share, so that arithmetic and memory overlap evenly (f32: half as fast again at 8 to 24 rows
 * as fetching in the first tile alone).
 *
 * bf16 weights are widened by a shift (even elements) and a mask (odd elements) of the same 16:
 * cheaper than spreading them in order. So a half panel's two registers hold its even and its odd
 * columns until the sums are stored. */
#ifndef TUTTI_TTK_GEMM_AVX2_H
#define TUTTI_TTK_GEMM_AVX2_H
#include "vec_avx2.h"

enum {
    HALF = TTK_PANEL / 2,
    TILE_ROWS = 6,   /* 12 sums + 2 weights + 1 row element of 16 registers */
    GROUP_ROWS = 48, /* rows whose sums wait together; many more rows of x, a power of two apart, do
                        not fit L2 */
    BLOCK_BYTES = 8 * 1024, /* of a panel; a quarter of the L1 cache, as rows of x may all fall into
                               the same few sets */
    PREFETCH_BYTES = 1024   /* ahead in a stream of weights; guessed */
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
TTK_INLINE void row_by_panels(float *y, const float *x, const void *panels, bool bf16, int n_panels,
                              int64_t K, int64_t n_columns)
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

/* acc[rows][TTK_PANEL] += x[rows][n_k] by half a panel, or by the whole (n_halves = 2) if rows is
 * at most 3. Meanwhile next[n_k * next_step bytes] is fetched: this tile's share of the block that
 * comes next. */
TTK_INLINE void tile(float *acc, const float *x, int64_t ldx, const char *w, bool bf16, int rows,
                     int n_halves, int64_t n_k, const char *next, int64_t next_step)
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
            _mm_prefetch(next + k * next_step + h * (next_step / 2), _MM_HINT_T0);
            TTK_UNROLL
            for (int r = 0; r < rows; r++) {
                __m256 x_k = _mm256_broadcast_ss(x + r * ldx + k);
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
TTK_INLINE void rows_by_block(float *acc, const float *x, int64_t ldx, const char *w, bool bf16,
                              int rows, int64_t n_k, const char *next, int64_t next_step)
{
    const int64_t half_bytes = weight_bytes(bf16, HALF);
    const int64_t half_step = next_step / 2;
    switch (rows) {
    case 1:
        tile(acc, x, ldx, w, bf16, 1, 2, n_k, next, next_step);
        break;
    case 2:
        tile(acc, x, ldx, w, bf16, 2, 2, n_k, next, next_step);
        break;
    case 3:
        tile(acc, x, ldx, w, bf16, 3, 2, n_k, next, next_step);
        break;
    case 4:
        tile(acc, x, ldx, w, bf16, 4, 1, n_k, next, half_step);
        tile(acc + HALF, x, ldx, w + half_bytes, bf16, 4, 1, n_k, next + n_k * half_step,
             half_step);
        break;
    case 5:
        tile(acc, x, ldx, w, bf16, 5, 1, n_k, next, half_step);
        tile(acc + HALF, x, ldx, w + half_bytes, bf16, 5, 1, n_k, next + n_k * half_step,
             half_step);
        break;
    default:
        tile(acc, x, ldx, w, bf16, TILE_ROWS, 1, n_k, next, half_step);
        tile(acc + HALF, x, ldx, w + half_bytes, bf16, TILE_ROWS, 1, n_k, next + n_k * half_step,
             half_step);
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
        for (int h = 0; h < 2; h++) {
            const float *from = acc + m * TTK_PANEL + h * HALF;
            half_panel sum = {_mm256_load_ps(from), _mm256_load_ps(from + VEC)};
            store_half(y + m * ldy + h * HALF, sum, bf16, n_columns - h * HALF);
        }
    }
}

TTK_INLINE void gemm(float *y, int64_t ldy, const float *x, int64_t ldx, const void *panels,
                     bool bf16, int64_t M, int64_t N, int64_t K)
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
    for (int64_t n = 0; n < N; n += TTK_PANEL) {
        for (int64_t m = 0; m < M; m += GROUP_ROWS) {
            int64_t rows = M - m < GROUP_ROWS ? M - m : GROUP_ROWS;
            rows_by_panel(y + m * ldy + n, ldy, x + m * ldx, ldx, weight_at(panels, bf16, n * K),
                          bf16, rows, K, N - n);
        }
    }
}

#endif
