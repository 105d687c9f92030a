/* act8_many_avx2.h - int8 rows through a block of a panel on AVX2 when there are many of them: some segments of the weights are unpacked
 * once for all tiles, which then only multiply and add.
 *
 * Unsigned nibbles: 8 products of quads add up in 16 bits. Other unsigned bytes below 64: 2 do. */
#ifndef TUTTI_TTK_ACT8_MANY_AVX2_H
#define TUTTI_TTK_ACT8_MANY_AVX2_H
#include "quant_avx2.h"
#include "act8_blocks.h"

enum {
    MANY_TILE_ROWS = 4, /* by 2 registers: 8 sums, 2 weights, 1 of a row */
    MANY_VECS = 2,
    MANY_QUADS = TTK_ACT_GROUP / QUAD
};

/* A block's codes as unsigned bytes: 8 KiB. */
typedef struct many_block {
    __m256i weight[BLOCK_SEGMENTS][MANY_QUADS][BLOCKS];
} many_block;

/* The codes of segment s; what stands beyond its inputs meets codes of rows that are 0. */
TTK_INLINE void many_weights(ttk_dtype code, const block *b, int s, __m256i (*to)[BLOCKS])
{
    const int unit = (int)ttk_quant_unit(code);
    const int64_t unit_bytes = (int64_t)ttk_quant_code_bytes(code, unit);
    const unsigned char *codes = b->codes[s];
    prefetch_ahead(codes - TTK_LINE_BYTES);
    int q = 0;
    for (int k = 0; k < b->n_k[s]; k += unit, codes += unit_bytes) {
        TTK_UNROLL
        for (int64_t line = 0; line < unit_bytes; line += TTK_LINE_BYTES) {
            prefetch_ahead(codes + line);
        }
        TTK_UNROLL
        for (int i = 0; i < unit / QUAD; i++, q++) {
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                to[q][h] = quad_codes(code, codes, i, h);
            }
        }
    }
}

/* sum[rows * MANY_VECS] of one segment: 16-bit pairs for nibbles, else 32 bits. */
TTK_INLINE void many_sums(bool is_nibble, __m256i *sum, const __m256i (*weight)[BLOCKS], const int8_t *const *x, int quads, int j, int rows)
{
    const int together = is_nibble ? 1 : 2;
    const __m256i ones = _mm256_set1_epi16(1);
    TTK_UNROLL
    for (int i = 0; i < rows * MANY_VECS; i++) {
        sum[i] = _mm256_setzero_si256();
    }
    TTK_UNROLL
    for (int q = 0; q < quads; q += together) {
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            int32_t four[2];
            memcpy(four, x[r] + q * QUAD, (size_t)together * sizeof(four[0]));
            const __m256i x_0 = _mm256_set1_epi32(four[0]), x_1 = _mm256_set1_epi32(four[together - 1]);
            TTK_UNROLL
            for (int h = 0; h < MANY_VECS; h++) {
                const __m256i p = _mm256_maddubs_epi16(weight[q][j + h], x_0);
                if (is_nibble) {
                    ADD16(sum[r * MANY_VECS + h], p);
                } else {
                    const __m256i two = _mm256_add_epi16(p, _mm256_maddubs_epi16(weight[q + 1][j + h], x_1));
                    ADD32(sum[r * MANY_VECS + h], _mm256_madd_epi16(two, ones));
                }
            }
        }
    }
}

/* Rows [m, m + rows) by MANY_VECS registers from register j of the panel on. */
TTK_INLINE void many_tile(bool is_nibble, bool is_lifted, bool has_offset, const job *w, const block *b, const many_block *u, int quads,
                          int64_t m, int j, int rows)
{
    float(*const acc)[TTK_PANEL] = w->acc + m;
    const float *x_sums[MANY_TILE_ROWS];
    ttk_act8_row row[MANY_TILE_ROWS];
    TTK_UNROLL
    for (int r = 0; r < rows; r++) {
        row[r] = ttk_act8_row_at(w->rows, w->stride, m + r, w->shape.K);
        x_sums[r] = ttk_act8_sums(row[r], quads * QUAD);
    }
    for (int s = 0; s < b->n; s++) {
        __m256i sum[MANY_TILE_ROWS * MANY_VECS];
        const int8_t *x[MANY_TILE_ROWS];
        const int64_t at = b->at[s];
        LET_GO();
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            x[r] = row[r].code + at;
        }
        many_sums(is_nibble, sum, u->weight[s], x, quads, j, rows);
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            const __m256 x_scale = _mm256_broadcast_ss(row[r].scale + at / TTK_ACT_GROUP);
            const __m256 x_sum = _mm256_broadcast_ss(x_sums[r] + at / (quads * QUAD));
            TTK_UNROLL
            for (int h = 0; h < MANY_VECS; h++) {
                const int column = (j + h) * VEC;
                __m256i d = sum[r * MANY_VECS + h];
                d = is_nibble ? _mm256_madd_epi16(d, _mm256_set1_epi16(1)) : d;
                __m256 f = _mm256_cvtepi32_ps(d);
                if (is_lifted) { /* exact */
                    f = _mm256_fmadd_ps(_mm256_load_ps(&b->lift[s][column]), x_sum, f);
                }
                __m256 a = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(&b->scale[s][column]), x_scale), f, _mm256_load_ps(&acc[r][column]));
                if (has_offset) {
                    a = _mm256_fmadd_ps(_mm256_load_ps(&b->offset[s][column]), _mm256_mul_ps(x_scale, x_sum), a);
                }
                _mm256_store_ps(&acc[r][column], a);
            }
        }
    }
}

TTK_INLINE void many_tiles(bool is_nibble, bool is_lifted, bool has_offset, const job *w, const block *b, const many_block *u, int quads,
                           int64_t M)
{
    int64_t m = 0;
    for (; M - m >= MANY_TILE_ROWS; m += MANY_TILE_ROWS) {
        for (int j = 0; j < BLOCKS; j += MANY_VECS) {
            many_tile(is_nibble, is_lifted, has_offset, w, b, u, quads, m, j, MANY_TILE_ROWS);
        }
    }
    for (int j = 0; j < BLOCKS && m < M; j += MANY_VECS) {
        if (M - m == 3) {
            many_tile(is_nibble, is_lifted, has_offset, w, b, u, quads, m, j, 3);
        } else if (M - m == 2) {
            many_tile(is_nibble, is_lifted, has_offset, w, b, u, quads, m, j, 2);
        } else {
            many_tile(is_nibble, is_lifted, has_offset, w, b, u, quads, m, j, 1);
        }
    }
}

/* M rows through a block of unsigned codes. */
TTK_INLINE void many_rows_of_kind(ttk_dtype code, bool is_lifted, bool has_offset, const job *w, const block *b, int64_t M)
{
    const bool is_nibble = code == TTK_I4 || code == TTK_U4;
    many_block u;
    for (int s = 0; s < b->n; s++) {
        many_weights(code, b, s, u.weight[s]);
    }
    if (w->segment == TTK_ACT_GROUP) {
        many_tiles(is_nibble, is_lifted, has_offset, w, b, &u, MANY_QUADS, M);
    } else {
        many_tiles(is_nibble, is_lifted, has_offset, w, b, &u, MANY_QUADS / 2, M);
    }
}

#endif
