/* vec_avx512.h - what the AVX-512 versions share: masks, exp, bf16 conversions, the 16-lane sum in
 * one register. Each function copies its scalar twin in ttk_math.h operation by operation. */
#ifndef TUTTI_TTK_VEC_AVX512_H
#define TUTTI_TTK_VEC_AVX512_H
#include <immintrin.h>
#include "ttk_math.h"

#define TTK_INLINE static inline __attribute__((always_inline))

/* Before a loop over registers, which must be unrolled for its arrays to become registers. */
#if defined(__clang__)
#define TTK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TTK_UNROLL _Pragma("GCC unroll 32")
#endif

enum { VEC = 16, VEC_BF16 = 32 }; /* floats and bf16 in a register */

/* The first n lanes: none if n <= 0, all if n >= VEC. */
TTK_INLINE __mmask16 vec_mask(int64_t n)
{
    if (n <= 0) {
        return 0;
    }
    unsigned lanes = n >= VEC ? 0xffffu : (1u << n) - 1u;
    return (__mmask16)lanes;
}

TTK_INLINE __m512 vec_exp(__m512 x)
{
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(TTK_EXP_LOG2E), _mm512_set1_ps(TTK_EXP_ROUND));
    __m512 n = _mm512_sub_ps(t, _mm512_set1_ps(TTK_EXP_ROUND));
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-TTK_EXP_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-TTK_EXP_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(TTK_EXP_C0), r, _mm512_set1_ps(TTK_EXP_C1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TTK_EXP_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TTK_EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TTK_EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TTK_EXP_C5));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    __m512i bits = _mm512_add_epi32(
        _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), TTK_F32_MANTISSA_BITS));
    __m512 y = _mm512_castsi512_ps(bits);
    /* What lies outside the range, and NaN, is chosen by compares on x itself. */
    __mmask16 is_low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(TTK_EXP_MIN), _CMP_LT_OQ);
    __mmask16 is_high = _mm512_cmp_ps_mask(x, _mm512_set1_ps(TTK_EXP_MAX), _CMP_GT_OQ);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    y = _mm512_mask_blend_ps(is_low, y, _mm512_setzero_ps());
    y = _mm512_mask_blend_ps(is_high, y, _mm512_set1_ps(INFINITY));
    return _mm512_mask_blend_ps(is_nan, y, x);
}

TTK_INLINE __m512 vec_sigmoid(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 minus_x = _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0x80000000u)));
    return _mm512_div_ps(one, _mm512_add_ps(one, vec_exp(minus_x)));
}

/* The two halves of each 32-bit group of 32 bf16: elements 0, 2, 4, ... and 1, 3, 5, ... as f32. */
TTK_INLINE __m512 vec_even_of_bf16(__m512i w)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}

TTK_INLINE __m512 vec_odd_of_bf16(__m512i w)
{
    return _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u)));
}

/* 16 bf16 in order. */
TTK_INLINE __m512 vec_widen_bf16(__m256i w)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(w), 16));
}

/* The bf16 nearest to each lane. */
TTK_INLINE __m256i vec_narrow_bf16(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i upper = _mm512_srli_epi32(u, 16);
    __m512i even = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), even), 16);
    __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, rounded, quiet));
}

/* ---- the tree that ends a 16-lane sum ---- */
TTK_INLINE __m256 vec_fold(__m512 s)
{
    return _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
}

TTK_INLINE float vec_lanes_sum(__m512 s)
{
    __m256 s8 = vec_fold(s);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

/* Four such sums at once, by the same tree. */
TTK_INLINE __m128 vec_lanes_sum4(const __m512 *s)
{
    __m256 s0 = vec_fold(s[0]);
    __m256 s1 = vec_fold(s[1]);
    __m256 s2 = vec_fold(s[2]);
    __m256 s3 = vec_fold(s[3]);
    /* 4 lanes of sums 0 | 1 and 2 | 3 */
    __m256 s01 =
        _mm256_add_ps(_mm256_permute2f128_ps(s0, s1, 0x20), _mm256_permute2f128_ps(s0, s1, 0x31));
    __m256 s23 =
        _mm256_add_ps(_mm256_permute2f128_ps(s2, s3, 0x20), _mm256_permute2f128_ps(s2, s3, 0x31));
    /* 2 lanes of 0, 2 | 1, 3 */
    __m256 pairs =
        _mm256_add_ps(_mm256_shuffle_ps(s01, s23, 0x44), _mm256_shuffle_ps(s01, s23, 0xee));
    __m128 low = _mm256_castps256_ps128(pairs);
    __m128 high = _mm256_extractf128_ps(pairs, 1);
    /* even lanes of low: 0, 2; of high: 1, 3 */
    __m128 sums =
        _mm_add_ps(_mm_shuffle_ps(low, high, 0x88), _mm_shuffle_ps(low, high, 0xdd)); /* 0 2 1 3 */
    return _mm_shuffle_ps(sums, sums, 0xd8);
}

/* The largest lane; lanes are not NaN. */
TTK_INLINE float vec_max(__m512 m)
{
    __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(m), _mm512_extractf32x8_ps(m, 1));
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
}

#endif
