/* gemm_act8_avx2.c - product of int8 rows with packed quantised weights.
 *
 * A quad of codes (4 k of 8 outputs) and the same 4 k of a row, repeated, give 16 sums of two products by vpmaddubsw, whose first
 * operand is unsigned. Nibbles, six bits and E2M1 are taken without their bias, which is put right by the row's sum: 8 sums of nibbles, or 2 of the
 * others, fit in 16 bits. Signed bytes give their size, and their sign to the row. All of this is exact, so it has the bits of any other order.
 * A block of segments of a panel has its scales made once for all rows; then tiles go through it, straight from the codes, or, where
 * many rows share what unpacking costs, as act8_many_avx2.h has it. */
#include "quant_avx2.h"
#include "act8_blocks.h"
#include "ttk_versions.h"

enum {
    TILE_ROWS = 4,
    UNPACK_ROWS = 12 /* from here on nibbles are unpacked once for all rows */
};

/* sum += p, where it stands: the compiler would move registers about, and the number of instructions is what limits these loops. */
#define ADD16(sum, p) __asm__("vpaddw %1, %0, %0" : "+x"(sum) : "x"(p))
#define ADD32(sum, p) __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(p))

TTK_INLINE float code_lift(ttk_dtype code)
{
    return code == TTK_U8 ? 128.0f : code == TTK_I4 ? -8.0f : code == TTK_I6 ? -32.0f : code == TTK_E2M1 ? -12.0f : 0.0f;
}

TTK_INLINE bool is_signed(ttk_dtype code)
{
    return code == TTK_I8 || code == TTK_U8;
}

/* Whole numbers: signed bytes for I8 and U8 (less 128), else unsigned. */
TTK_INLINE __m256i quad_codes(ttk_dtype code, const unsigned char *unit, int q, int h)
{
    switch (code) {
    case TTK_I4:
        return quad_bytes(TTK_U4, WAY_WHOLE, unit, q, h);
    case TTK_I6:
    case TTK_E2M1:
        return quad_bytes(code, WAY_ZERO, unit, q, h);
    case TTK_U8:
        return quad_bytes(TTK_I8, WAY_ZERO, unit, q, h);
    default:
        return quad_bytes(code, WAY_WHOLE, unit, q, h);
    }
}

#include "act8_many_avx2.h"

/* 16 sums of two products. */
TTK_INLINE __m256i products(ttk_dtype code, __m256i w, __m256i size, __m256i x)
{
    return is_signed(code) ? _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, w)) : _mm256_maddubs_epi16(w, x);
}

/* sum[rows * vecs] of one segment from register j of the panel on: 16-bit pairs for nibbles, else 32 bits. */
TTK_INLINE void segment_sums(ttk_dtype code, __m256i *sum, const unsigned char *codes, int n_k, const int8_t *const *x, int j,
                             int rows, int vecs, bool is_first)
{
    const int unit = (int)ttk_quant_unit(code);
    const int64_t unit_bytes = (int64_t)ttk_quant_code_bytes(code, unit);
    const bool is_nibble = code == TTK_I4 || code == TTK_U4;
    const __m256i ones = _mm256_set1_epi16(1);
    const int pair = code == TTK_I6 || code == TTK_E2M1 ? 2 : 1; /* quads whose products are added in 16 bits */
    TTK_UNROLL
    for (int i = 0; i < rows * vecs; i++) {
        sum[i] = _mm256_setzero_si256();
    }
    for (int k = 0; k < n_k; k += unit, codes += unit_bytes) {
        if (is_first) {
            TTK_UNROLL
            for (int64_t line = 0; line < unit_bytes; line += TTK_LINE_BYTES) {
                prefetch_ahead(codes + line);
            }
        }
        TTK_UNROLL
        for (int q = 0; q < unit / QUAD; q += pair) {
            __m256i x_q[TILE_ROWS][2];
            TTK_UNROLL
            for (int i = 0; i < rows * pair; i++) {
                int32_t four;
                memcpy(&four, x[i / pair] + k + (q + i % pair) * QUAD, sizeof(four));
                x_q[i / pair][i % pair] = _mm256_set1_epi32(four);
            }
            TTK_UNROLL
            for (int h = 0; h < vecs; h++) { /* one register's weights at a time */
                __m256i w[2], size[2];
                TTK_UNROLL
                for (int i = 0; i < pair; i++) {
                    w[i] = quad_codes(code, codes, q + i, j + h);
                    size[i] = is_signed(code) ? _mm256_abs_epi8(w[i]) : w[i];
                }
                TTK_UNROLL
                for (int r = 0; r < rows; r++) {
                    __m256i p = products(code, w[0], size[0], x_q[r][0]);
                    if (pair == 2) {
                        p = _mm256_add_epi16(p, products(code, w[1], size[1], x_q[r][1]));
                    }
                    if (is_nibble) {
                        ADD16(sum[r * vecs + h], p);
                    } else {
                        ADD32(sum[r * vecs + h], _mm256_madd_epi16(p, ones));
                    }
                }
            }
        }
    }
}

/* Rows [m, m + rows) by `vecs` registers from register j of the panel on, through a block. */
TTK_INLINE void tile(ttk_dtype code, bool is_lifted, bool has_offset, const job *w, const block *b, int64_t m, int j, int rows, int vecs)
{
    const bool is_nibble = code == TTK_I4 || code == TTK_U4;
    const int64_t segment = w->segment;
    const bool is_first = m == 0 && j == 0; /* it fetches for the others */
    float(*const acc)[TTK_PANEL] = w->acc + m;
    const float *x_sums[TILE_ROWS];
    ttk_act8_row row[TILE_ROWS];
    TTK_UNROLL
    for (int r = 0; r < rows; r++) {
        row[r] = ttk_act8_row_at(w->rows, w->stride, m + r, w->shape.K);
        x_sums[r] = ttk_act8_sums(row[r], segment);
    }
    for (int s = 0; s < b->n; s++) {
        __m256i sum[2 * BLOCKS];
        const int8_t *x[TILE_ROWS];
        const int64_t at = b->at[s];
        LET_GO();
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            x[r] = row[r].code + at;
        }
        if (is_first) {
            prefetch_ahead(b->codes[s] - TTK_LINE_BYTES);
        }
        segment_sums(code, sum, b->codes[s], b->n_k[s], x, j, rows, vecs, is_first);
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            const __m256 x_scale = _mm256_broadcast_ss(row[r].scale + at / TTK_ACT_GROUP);
            __m256 x_sum = _mm256_setzero_ps(), x_offset = _mm256_setzero_ps();
            if (is_lifted || has_offset) {
                x_sum = _mm256_broadcast_ss(x_sums[r] + (segment == TTK_ACT_GROUP ? at / TTK_ACT_GROUP : at / TTK_HALF_GROUP));
                x_offset = _mm256_mul_ps(x_scale, x_sum);
            }
            TTK_UNROLL
            for (int h = 0; h < vecs; h++) {
                const int column = (j + h) * VEC;
                __m256i d = sum[r * vecs + h];
                d = is_nibble ? _mm256_madd_epi16(d, _mm256_set1_epi16(1)) : d;
                __m256 f = _mm256_cvtepi32_ps(d);
                if (is_lifted) { /* exact */
                    f = _mm256_fmadd_ps(_mm256_load_ps(&b->lift[s][column]), x_sum, f);
                }
                __m256 a = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(&b->scale[s][column]), x_scale), f, _mm256_load_ps(&acc[r][column]));
                if (has_offset) {
                    a = _mm256_fmadd_ps(_mm256_load_ps(&b->offset[s][column]), x_offset, a);
                }
                _mm256_store_ps(&acc[r][column], a);
            }
        }
    }
}

TTK_INLINE void rows_of_kind(ttk_dtype code, bool is_lifted, bool has_offset, const job *w, const block *b, int64_t M)
{
    int64_t m = 0;
    if (!is_signed(code) && M >= UNPACK_ROWS) {
        many_rows_of_kind(code, is_lifted, has_offset, w, b, M);
        return;
    }
    for (; M - m >= TILE_ROWS; m += TILE_ROWS) {
        for (int j = 0; j < BLOCKS; j += 2) {
            tile(code, is_lifted, has_offset, w, b, m, j, TILE_ROWS, 2);
        }
    }
    if (M - m == 3) {
        for (int j = 0; j < BLOCKS; j += 2) {
            tile(code, is_lifted, has_offset, w, b, m, j, 3, 2);
        }
    } else if (M - m == 2) {
        tile(code, is_lifted, has_offset, w, b, m, 0, 2, 4);
    } else if (M - m == 1) {
        tile(code, is_lifted, has_offset, w, b, m, 0, 1, 4);
    }
}

static void store_row(float *y, const float *acc, int64_t n)
{
    for (int64_t j = 0; j < TTK_PANEL && j < n; j += VEC) {
        if (n - j >= VEC) {
            _mm256_storeu_ps(y + j, _mm256_load_ps(acc + j));
        } else {
            _mm256_maskstore_ps(y + j, vec_mask(n - j), _mm256_load_ps(acc + j));
        }
    }
}

void ttk_gemm_act8_avx2(float *y, int64_t ldy, const void *rows, size_t stride, const ttk_format *format, const void *panels,
                        int64_t M, int64_t N, int64_t K)
{
    act8_product(y, ldy, rows, stride, format, panels, M, N, K);
}
