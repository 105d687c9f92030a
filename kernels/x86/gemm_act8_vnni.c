/* gemm_act8_vnni.c - product of int8 rows with packed quantised weights on AVX-512 VNNI.
 *
 * vpdpbusd adds the products of 4 unsigned bytes with 4 signed ones to a 32-bit sum. The unsigned
 * ones are codes without their bias, or signed codes made unsigned by one; sums begin with what
 * puts that right, the bias times the sum of the row's codes. Tiles of up to 8 rows by a whole
 * panel go through a block of segments; between them they fetch what the next block reads. */
#include "act8_avx512.h"
#include "constant_rows.h"
#include "ttk_versions.h"

enum {
    TILE_ROWS = 8 /* 16 sums, 2 weights, a row's codes */
};

/* Keeps the compiler from adding in another order, which would take more registers than there
 * are. */
#define KEEP(vec) __asm__("" : "+v"(vec))

/* What a row brings to each segment of a block. */
typedef struct row_factors {
    float scale[BLOCK_SEGMENTS];
    float shift[BLOCK_SEGMENTS]; /* the sum of its codes, times the scale for offsets */
    int32_t begin[BLOCK_SEGMENTS];
} row_factors;

TTK_INLINE void load_row_factors(act8_kind kind, const job *w, const block *b, ttk_act8_row row,
                                 row_factors *f)
{
    const int64_t g = b->at / TTK_ACT_GROUP;
    const __mmask8 mask = (__mmask8)((1u << b->n) - 1u);
    __m256 scale;
    if (w->segment == TTK_ACT_GROUP) {
        scale = _mm256_maskz_loadu_ps(mask, row.scale + g);
    } else { /* two segments each */
        const __mmask8 half = (__mmask8)((1u << (b->n + 1) / 2) - 1u);
        scale = _mm256_permutevar8x32_ps(_mm256_maskz_loadu_ps(half, row.scale + g),
                                         _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    }
    const __m256 sum =
        _mm256_maskz_loadu_ps(mask, ttk_act8_sums(row, w->segment) + segment_at(w, b->at));
    _mm256_storeu_ps(f->scale, scale);
    if (kind != KIND_PLAIN) {
        _mm256_storeu_ps(f->shift, kind == KIND_OFFSET ? _mm256_mul_ps(scale, sum) : sum);
    }
    const __m256 lift = _mm256_set1_ps(code_lift(w->format->code));
    _mm256_storeu_si256((__m256i *)f->begin, _mm256_cvtps_epi32(_mm256_mul_ps(sum, lift)));
}

/* Which part of what the next block reads for a segment a tile fetches, in bytes. */
typedef struct part {
    size_t at, bytes;
} part;

/* Rows [m, m + rows) through a block. */
TTK_INLINE void tile(act8_kind kind, const job *w, const block *b, float (*acc)[TTK_PANEL],
                     int64_t m, int rows, part ahead)
{
    row_factors factors[TILE_ROWS];
    const int8_t *x[TILE_ROWS];
    TTK_UNROLL
    for (int r = 0; r < rows; r++) {
        const ttk_act8_row row = ttk_act8_row_at(w->rows, w->stride, m + r, w->shape.K);
        load_row_factors(kind, w, b, row, &factors[r]);
        x[r] = row.code + b->at;
    }
    acc += m;
    const int64_t quads = w->segment / QUAD;
    for (int s = 0; s < b->n; s++) {
        __m512i sum[TILE_ROWS * BLOCKS];
        fetch(b->ahead[s] + ahead.at, ahead.bytes);
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            sum[r * BLOCKS] = sum[r * BLOCKS + 1] = _mm512_set1_epi32(factors[r].begin[s]);
        }
        const unsigned char *codes = b->codes[s];
        for (int64_t q = 0; q < quads; q++, codes += TTK_PLANE_BYTES) {
            const __m512i w0 = _mm512_load_si512(codes),
                          w1 = _mm512_load_si512(codes + TTK_LINE_BYTES);
            TTK_UNROLL
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, x[r] + q * QUAD, sizeof(four));
                __m512i x_q = _mm512_set1_epi32(four);
                KEEP(x_q);
                sum[r * BLOCKS] = _mm512_dpbusd_epi32(sum[r * BLOCKS], w0, x_q);
                sum[r * BLOCKS + 1] = _mm512_dpbusd_epi32(sum[r * BLOCKS + 1], w1, x_q);
                KEEP(sum[r * BLOCKS]);
                KEEP(sum[r * BLOCKS + 1]);
            }
        }
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            x[r] += w->segment;
            const __m512 x_scale = _mm512_set1_ps(factors[r].scale[s]);
            __m512 x_shift = _mm512_setzero_ps();
            if (kind != KIND_PLAIN) {
                x_shift = _mm512_set1_ps(factors[r].shift[s]);
            }
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                const int column = h * VEC;
                __m512 f = _mm512_cvtepi32_ps(sum[r * BLOCKS + h]);
                if (kind == KIND_ZERO) { /* exact */
                    f = _mm512_fnmadd_ps(_mm512_load_ps(&b->shift[s][column]), x_shift, f);
                }
                __m512 a = _mm512_load_ps(&acc[r][column]);
                a = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(&b->scale[s][column]), x_scale), f,
                                    a);
                if (kind == KIND_OFFSET) {
                    a = _mm512_fmadd_ps(_mm512_load_ps(&b->shift[s][column]), x_shift, a);
                }
                _mm512_store_ps(&acc[r][column], a);
            }
        }
    }
}

TTK_INLINE void tile_of(act8_kind kind, const job *w, const block *b, float (*acc)[TTK_PANEL],
                        int64_t m, int rows, part ahead){
#define TILE(n) tile(kind, w, b, acc, m, n, ahead)
    TTK_CONSTANT_ROWS(rows, TILE_ROWS, TILE)
#undef TILE
}

/* M rows of acc += their products with a block, in tiles of nearly equal height. Of what comes next
 * so many bytes a segment were fetched. */
TTK_INLINE void rows_by_block(act8_kind kind, const job *w, const block *b, float (*acc)[TTK_PANEL],
                              int64_t M, size_t filled)
{
    const int64_t tiles = (M + TILE_ROWS - 1) / TILE_ROWS;
    part ahead = {filled, (w->segment_bytes - filled) / (size_t)tiles + 1};
    for (int64_t t = 0, m = 0; t < tiles; t++) {
        const int64_t rows = (M - m + tiles - t - 1) / (tiles - t);
        tile_of(kind, w, b, acc, m, (int)rows, ahead);
        ahead.at += ahead.bytes;
        m += rows;
    }
}

/* Out of line: the kinds share it. */
static void __attribute__((noinline)) fill_next(const job *w, walk *from, size_t ahead, block *b)
{
    fill_block(false, w, from, ahead, b);
}

TTK_INLINE void product(act8_kind kind, float *y, int64_t ldy, job *w, const unsigned char *panels,
                        int64_t M, int64_t N)
{
    const size_t panel_bytes = ttk_panel_bytes(w->format, w->shape.K);
    const unsigned char *const rows = w->rows;
    const size_t filled = fill_bytes(w, M);
    float acc[GROUP_ROWS][TTK_PANEL] __attribute__((aligned(TTK_LINE_BYTES)));
    block b __attribute__((aligned(TTK_LINE_BYTES)));
    for (int64_t n = 0; n < N; n += TTK_PANEL, panels += panel_bytes) {
        for (int64_t m = 0; m < M; m += GROUP_ROWS) {
            const int64_t n_rows = M - m < GROUP_ROWS ? M - m : GROUP_ROWS;
            walk at = walk_of(w, panels);
            w->rows = rows + (size_t)m * w->stride;
            memset(acc, 0, (size_t)n_rows * sizeof(acc[0]));
            while (at.at < w->shape.K) {
                fill_next(w, &at, filled, &b);
                rows_by_block(kind, w, &b, acc, n_rows, filled);
            }
            for (int64_t r = 0; r < n_rows; r++) {
                store_sums(y + (m + r) * ldy + n, acc[r], N - n);
            }
        }
    }
}

void ttk_gemm_act8_vnni(float *y, int64_t ldy, const void *rows, size_t stride,
                        const ttk_format *format, const void *panels, int64_t M, int64_t N,
                        int64_t K)
{
    job w = job_of(format, rows, stride, K);
    switch (act8_kind_of(format)) {
    case KIND_PLAIN:
        product(KIND_PLAIN, y, ldy, &w, panels, M, N);
        break;
    case KIND_ZERO:
        product(KIND_ZERO, y, ldy, &w, panels, M, N);
        break;
    case KIND_OFFSET:
        product(KIND_OFFSET, y, ldy, &w, panels, M, N);
        break;
    }
}
