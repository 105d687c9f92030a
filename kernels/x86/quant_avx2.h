/* quant_avx2.h - from packed quantised codes to f32 on AVX2: quant_both.h, and what only AVX2 does
 * like this. */
#ifndef TUTTI_TTK_QUANT_AVX2_H
#define TUTTI_TTK_QUANT_AVX2_H
#include "vec_avx2.h"
#include "ttk_quant.h"

/* a | (b & c) */
TTK_INLINE veci vec_or_and(veci a, veci b, veci c)
{
    return _mm256_or_si256(a, _mm256_and_si256(b, c));
}

TTK_INLINE vec vec_load_f16(const void *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}

/* VEC bytes, to be widened. */
TTK_INLINE __m128i vec_load_bytes(const void *x)
{
    return _mm_loadl_epi64((const __m128i *)x);
}

/* 2^(byte - 127). 0 is 2^-127, which is denormal; 255 is NaN, its fraction not 0. */
TTK_INLINE vec vec_of_e8m0(veci byte)
{
    __m256i bits = _mm256_slli_epi32(byte, TTK_F32_MANTISSA_BITS);
    __m256i is_edge = _mm256_or_si256(_mm256_cmpeq_epi32(byte, _mm256_setzero_si256()),
                                      _mm256_cmpeq_epi32(byte, _mm256_set1_epi32(255)));
    return _mm256_castsi256_ps(
        _mm256_or_si256(bits, _mm256_and_si256(is_edge, _mm256_set1_epi32(0x400000))));
}

#include "quant_both.h"

/* Whether sums of x times codes by WAY_WHOLE have the right bits. */
static inline bool x_fits(ttk_dtype code, const float *x, int64_t n)
{
    const __m256 low = _mm256_set1_ps(fit_low(code)), high = _mm256_set1_ps(fit_high(code));
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 fits = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (int64_t i = 0; i < n; i += VEC) {
        __m256 size =
            n - i >= VEC ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, vec_mask(n - i));
        size = _mm256_andnot_ps(sign, size);
        __m256 is_zero = _mm256_cmp_ps(size, _mm256_setzero_ps(), _CMP_EQ_OQ);
        __m256 is_inside = _mm256_and_ps(_mm256_cmp_ps(size, low, _CMP_GE_OQ),
                                         _mm256_cmp_ps(size, high, _CMP_LT_OQ));
        fits = _mm256_and_ps(fits, _mm256_or_ps(is_zero, is_inside));
    }
    return _mm256_movemask_ps(fits) == 0xff;
}

TTK_INLINE bool has_nan(__m256i worst)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(worst, _mm256_set1_epi8(0x7f))) != 0;
}

/* ---- sums of a panel ---- */

/* The first n_columns numbers of acc[TTK_PANEL]. */
static inline void store_sums(float *y, const float *acc, int64_t n_columns)
{
    for (int64_t j = 0; j < TTK_PANEL && j < n_columns; j += VEC) {
        if (n_columns - j >= VEC) {
            _mm256_storeu_ps(y + j, _mm256_loadu_ps(acc + j));
        } else {
            _mm256_maskstore_ps(y + j, vec_mask(n_columns - j), _mm256_loadu_ps(acc + j));
        }
    }
}

#endif
