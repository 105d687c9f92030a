/* round8_avx2.h - 32 floats, as four registers, rounded to a scale and int8 codes; and the sums of
 * codes. */
#ifndef TUTTI_TTK_ROUND8_AVX2_H
#define TUTTI_TTK_ROUND8_AVX2_H
#include "ttk_act8.h"
#include "vec_avx2.h"

enum { PARTS = TTK_ACT_GROUP / VEC };

/* x[n] and zeros, n in [1, TTK_ACT_GROUP]; more counts as that. */
TTK_INLINE void load_group(__m256 *part, const float *x, int64_t n)
{
    TTK_UNROLL
    for (int i = 0; i < PARTS; i++) {
        part[i] = n >= TTK_ACT_GROUP ? _mm256_loadu_ps(x + i * VEC)
                                     : _mm256_maskload_ps(x + i * VEC, vec_mask(n - i * VEC));
    }
}

/* The largest magnitude; NaN if any element is not finite. */
TTK_INLINE float largest_of(const __m256 *x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 size[PARTS], bad = _mm256_setzero_ps();
    TTK_UNROLL
    for (int i = 0; i < PARTS; i++) {
        size[i] = _mm256_andnot_ps(sign, x[i]);
        bad = _mm256_or_ps(bad, _mm256_cmp_ps(size[i], _mm256_set1_ps(INFINITY), _CMP_NLT_UQ));
    }
    if (_mm256_movemask_ps(bad)) {
        return NAN;
    }
    __m256 m = _mm256_max_ps(_mm256_max_ps(size[0], size[1]), _mm256_max_ps(size[2], size[3]));
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    h = _mm_max_ss(h, _mm_movehdup_ps(h));
    return _mm_cvtss_f32(h);
}

/* Four registers of whole numbers from -128 to 255 as bytes, in order: packing works within halves,
 * so that 32-bit pieces come out as 0 2 4 6 1 3 5 7. */
TTK_INLINE __m256i bytes_in_order(__m256i packed)
{
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The codes of x[PARTS]; twin of ttk_act8_round. */
TTK_INLINE __m256i round_int8(const __m256 *x, float *scale)
{
    const float largest = largest_of(x);
    if (!(largest >= TTK_ACT8_LEAST)) {
        *scale = largest < TTK_ACT8_LEAST ? 0.0f : NAN;
        return _mm256_setzero_si256();
    }
    const __m256 inverse = _mm256_set1_ps(127.0f / largest);
    __m256i c[PARTS];
    TTK_UNROLL
    for (int i = 0; i < PARTS; i++) {
        c[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
    }
    *scale = largest / 127.0f;
    return bytes_in_order(
        _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3])));
}

/* sum and half[2] of 32 codes: whole numbers, so their order does not matter. */
TTK_INLINE void add_codes(float *sum, float *half, __m256i codes)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    for (int i = 0; i < 2; i++) {
        __m128i s = i ? _mm256_extracti128_si256(fours, 1) : _mm256_castsi256_si128(fours);
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
        half[i] = (float)_mm_cvtsi128_si32(s);
    }
    *sum = half[0] + half[1];
}

#endif
