/* gemm_act8_vnni.c - product of int8 rows with packed quantised weights on AVX-512 VNNI.
 *
 * vpdpbusd adds the products of 4 unsigned bytes with 4 signed ones to a 32-bit sum. The unsigned ones are codes without their bias, or
 * signed codes made unsigned by one; the row's sum puts that right. Tiles of up to 8 rows by a whole panel go through a block of segments. */
#include "quant_avx512.h"
#include "act8_blocks.h"
#include "ttk_versions.h"

enum {
    TILE_ROWS = 8 /* 16 sums, 2 weights */
};

TTK_INLINE float code_lift(ttk_dtype code)
{
    switch (code) {
    case TTK_I8:
        return -128.0f;
    case TTK_I4:
        return -8.0f;
    case TTK_I6:
        return -32.0f;
    case TTK_E2M1:
        return -12.0f;
    default:
        return 0.0f;
    }
}

/* Unsigned bytes. */
TTK_INLINE __m512i quad_codes(ttk_dtype code, const unsigned char *unit, int q, int h)
{
    return quad_bytes(code == TTK_I4 ? TTK_U4 : code, WAY_ZERO, unit, q, h);
}

/* sum[rows * BLOCKS] of one segment. */
TTK_INLINE void segment_sums(ttk_dtype code, __m512i *sum, const unsigned char *codes, int n_k, const int8_t *const *x, int rows,
                             bool is_first)
{
    const int unit = (int)ttk_quant_unit(code);
    const int64_t unit_bytes = (int64_t)ttk_quant_code_bytes(code, unit);
    TTK_UNROLL
    for (int i = 0; i < rows * BLOCKS; i++) {
        sum[i] = _mm512_setzero_si512();
    }
    for (int k = 0; k < n_k; k += unit, codes += unit_bytes) {
        if (is_first) {
            TTK_UNROLL
            for (int64_t line = 0; line < unit_bytes; line += TTK_LINE_BYTES) {
                prefetch_ahead(codes + line);
            }
        }
        TTK_UNROLL
        for (int q = 0; q < unit / QUAD; q++) {
            __m512i w[BLOCKS];
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                w[h] = quad_codes(code, codes, q, h);
            }
            TTK_UNROLL
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, x[r] + k + q * QUAD, sizeof(four));
                TTK_UNROLL
                for (int h = 0; h < BLOCKS; h++) {
                    sum[r * BLOCKS + h] = _mm512_dpbusd_epi32(sum[r * BLOCKS + h], w[h], _mm512_set1_epi32(four));
                    KEEP(sum[r * BLOCKS + h]);
                }
            }
        }
    }
}

/* Rows [m, m + rows) through a block. */
TTK_INLINE void tile(ttk_dtype code, bool is_lifted, bool has_offset, const job *w, const block *b, int64_t m, int rows)
{
    const int64_t segment = w->segment;
    const bool is_first = m == 0; /* it fetches for the others */
    float(*const acc)[TTK_PANEL] = w->acc + m;
    const float *x_sums[TILE_ROWS];
    ttk_act8_row row[TILE_ROWS];
    TTK_UNROLL
    for (int r = 0; r < rows; r++) {
        row[r] = ttk_act8_row_at(w->rows, w->stride, m + r, w->shape.K);
        x_sums[r] = ttk_act8_sums(row[r], segment);
    }
    for (int s = 0; s < b->n; s++) {
        __m512i sum[TILE_ROWS * BLOCKS];
        const int8_t *x[TILE_ROWS];
        const int64_t at = b->at[s];
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            x[r] = row[r].code + at;
        }
        if (is_first) {
            prefetch_ahead(b->codes[s] - TTK_LINE_BYTES);
        }
        segment_sums(code, sum, b->codes[s], b->n_k[s], x, rows, is_first);
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            const __m512 x_scale = _mm512_set1_ps(row[r].scale[at / TTK_ACT_GROUP]);
            const __m512 x_sum = _mm512_set1_ps(x_sums[r][at / segment]);
            const __m512 x_offset = _mm512_mul_ps(x_scale, x_sum);
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                const int column = h * VEC;
                __m512 f = _mm512_cvtepi32_ps(sum[r * BLOCKS + h]);
                if (is_lifted) { /* exact */
                    f = _mm512_fmadd_ps(_mm512_load_ps(&b->lift[s][column]), x_sum, f);
                }
                __m512 a = _mm512_load_ps(&acc[r][column]);
                a = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(&b->scale[s][column]), x_scale), f, a);
                if (has_offset) {
                    a = _mm512_fmadd_ps(_mm512_load_ps(&b->offset[s][column]), x_offset, a);
                }
                _mm512_store_ps(&acc[r][column], a);
            }
        }
    }
}

TTK_INLINE void rows_of_kind(ttk_dtype code, bool is_lifted, bool has_offset, const job *w, const block *b, int64_t M)
{
    int64_t m = 0;
    for (; M - m >= TILE_ROWS; m += TILE_ROWS) {
        tile(code, is_lifted, has_offset, w, b, m, TILE_ROWS);
    }
    if (M - m >= 4) {
        tile(code, is_lifted, has_offset, w, b, m, 4);
        m += 4;
    }
    if (M - m == 3) {
        tile(code, is_lifted, has_offset, w, b, m, 3);
    } else if (M - m == 2) {
        tile(code, is_lifted, has_offset, w, b, m, 2);
    } else if (M - m == 1) {
        tile(code, is_lifted, has_offset, w, b, m, 1);
    }
}

static void store_row(float *y, const float *acc, int64_t n)
{
    for (int64_t j = 0; j < TTK_PANEL && j < n; j += VEC) {
        _mm512_mask_storeu_ps(y + j, vec_mask(n - j), _mm512_load_ps(acc + j));
    }
}

void ttk_gemm_act8_vnni(float *y, int64_t ldy, const void *rows, size_t stride, const ttk_format *format, const void *panels,
                        int64_t M, int64_t N, int64_t K)
{
    act8_product(y, ldy, rows, stride, format, panels, M, N, K);
}
