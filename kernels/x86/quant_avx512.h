/* quant_avx512.h - from packed quantised codes to f32 on AVX-512: quant_both.h, and what only AVX-512
 * does like this. */
#ifndef TUTTI_TTK_QUANT_AVX512_H
#define TUTTI_TTK_QUANT_AVX512_H
#include "vec_avx512.h"
#include "ttk_quant.h"

/* a | (b & c) */
TTK_INLINE veci vec_or_and(veci a, veci b, veci c)
{
    enum { A_OR_B_AND_C = 0xf8 }; /* the truth table */
    return _mm512_ternarylogic_epi32(a, b, c, A_OR_B_AND_C);
}

TTK_INLINE vec vec_load_bf16(const ttk_bf16 *x)
{
    return vec_widen_bf16(_mm256_loadu_si256((const __m256i *)x));
}

TTK_INLINE vec vec_load_f16(const void *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
}

/* VEC bytes, to be widened. */
TTK_INLINE __m128i vec_load_bytes(const void *x)
{
    return _mm_loadu_si128((const __m128i *)x);
}

/* 2^(byte - 127). 0 is 2^-127, which is denormal; 255 is NaN, its fraction not 0. */
TTK_INLINE vec vec_of_e8m0(veci byte)
{
    __m512i bits = _mm512_slli_epi32(byte, TTK_F32_MANTISSA_BITS);
    __mmask16 is_edge = _mm512_cmpeq_epi32_mask(byte, _mm512_setzero_si512()) |
                        _mm512_cmpeq_epi32_mask(byte, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(
        _mm512_mask_or_epi32(bits, is_edge, bits, _mm512_set1_epi32(0x400000)));
}

#include "quant_both.h"

/* Whether sums of x times codes by WAY_WHOLE have the right bits. */
static inline bool x_fits(ttk_dtype code, const float *x, int64_t n)
{
    const __m512 low = _mm512_set1_ps(fit_low(code)), high = _mm512_set1_ps(fit_high(code));
    for (int64_t i = 0; i < n; i += VEC) {
        __m512 size = _mm512_abs_ps(_mm512_maskz_loadu_ps(vec_mask(n - i), x + i));
        __mmask16 is_zero = _mm512_cmp_ps_mask(size, _mm512_setzero_ps(), _CMP_EQ_OQ);
        __mmask16 is_high = _mm512_cmp_ps_mask(size, low, _CMP_GE_OQ);
        __mmask16 is_low = _mm512_cmp_ps_mask(size, high, _CMP_LT_OQ);
        if ((is_zero | (is_high & is_low)) != 0xffff) {
            return false;
        }
    }
    return true;
}

TTK_INLINE bool has_nan(__m512i worst)
{
    return _mm512_cmpeq_epi8_mask(worst, _mm512_set1_epi8(0x7f)) != 0;
}

/* ---- sums of a panel ---- */

/* The first n_columns numbers of acc[TTK_PANEL]. */
static inline void store_sums(float *y, const float *acc, int64_t n_columns)
{
    for (int64_t j = 0; j < TTK_PANEL && j < n_columns; j += VEC) {
        _mm512_mask_storeu_ps(y + j, vec_mask(n_columns - j), _mm512_loadu_ps(acc + j));
    }
}

#endif
