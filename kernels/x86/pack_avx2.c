/* pack_avx2.c - cuts a weight matrix into panels and converts its type, 8 rows by 8 columns at a
 * time: 8 rows are loaded as f32 whatever their type, transposed, and stored as 8 short runs of a
 * panel. A source whose columns are not neighbours goes to ref. */
#include "vec_avx2.h"
#include "ttk_versions.h"

enum { SQUARE = 8 };

/* n elements (1 .. SQUARE) of a row from element `at`; the lanes behind them are 0. */
static __m256 load_row(const void *src, ttk_dtype type, int64_t at, int64_t n)
{
    const char *from =
        (const char *)src + (size_t)at * (type == TTK_F32 ? sizeof(float) : sizeof(uint16_t));
    if (type == TTK_F32) {
        return n == SQUARE ? _mm256_loadu_ps((const float *)from)
                           : _mm256_maskload_ps((const float *)from, vec_mask(n));
    }
    uint16_t half[SQUARE] = {0};
    if (n < SQUARE) {
        memcpy(half, from, (size_t)n * sizeof(half[0]));
        from = (const char *)half;
    }
    __m128i raw = _mm_loadu_si128((const __m128i *)from);
    if (type == TTK_F16) {
        return _mm256_cvtph_ps(raw);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}

static void store_run(void *packed, ttk_dtype type, int64_t at, __m256 run)
{
    if (type == TTK_F32) {
        _mm256_storeu_ps((float *)packed + at, run);
        return;
    }
    __m256i bits = vec_bf16_bits(run);
    __m128i narrow =
        _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    _mm_storeu_si128((__m128i *)((ttk_bf16 *)packed + at), narrow);
}

void ttk_pack_avx2(void *packed, ttk_dtype packed_type, const void *src, ttk_dtype src_type,
                   int64_t row_stride, int64_t col_stride, int64_t N, int64_t K,
                   int64_t panel_begin, int64_t panel_end)
{
    if (col_stride != 1) {
        ttk_pack_ref(packed, packed_type, src, src_type, row_stride, col_stride, N, K, panel_begin,
                     panel_end);
        return;
    }
    for (int64_t p = panel_begin; p < panel_end; p++) {
        for (int64_t k = 0; k < K; k += SQUARE) {
            int64_t n_k = K - k < SQUARE ? K - k : SQUARE;
            for (int64_t j = 0; j < TTK_PANEL; j += SQUARE) {
                __m256 row[SQUARE];
                for (int64_t i = 0; i < SQUARE; i++) {
                    int64_t n = p * TTK_PANEL + j + i;
                    row[i] = n < N ? load_row(src, src_type, n * row_stride + k, n_k)
                                   : _mm256_setzero_ps();
                }
                vec_transpose(row);
                for (int64_t i = 0; i < n_k; i++) {
                    store_run(packed, packed_type, (p * K + k + i) * TTK_PANEL + j, row[i]);
                }
            }
        }
    }
}
