/* vec_avx512.h - what the AVX-512 versions share: registers, masks, bf16 conversions, the 16-lane
 * sum in one register; vec_both.h adds what does not depend on their width. Each function copies its
 * scalar twin in ttk_math.h operation by operation. */
#ifndef TUTTI_TTK_VEC_AVX512_H
#define TUTTI_TTK_VEC_AVX512_H
#include <immintrin.h>
#include "vec_registers.h"

typedef __m512 vec;   /* floats */
typedef __m512i veci; /* bits, or whole numbers */
#define MM(op) _mm512_##op
#define MMI(op) _mm512_##op##_si512
enum { VEC = 16, VEC_BF16 = 32 }; /* floats and bf16 in a register */

TTK_INLINE vec vec_of_bits(veci bits)
{
    return _mm512_castsi512_ps(bits);
}

/* The same 16 bytes in each 16 of a register. */
TTK_INLINE veci vec_spread(__m128i bytes)
{
    return _mm512_broadcast_i32x4(bytes);
}

/* The first n lanes: none if n <= 0, all if n >= VEC. */
TTK_INLINE __mmask16 vec_mask(int64_t n)
{
    if (n <= 0) {
        return 0;
    }
    unsigned lanes = n >= VEC ? 0xffffu : (1u << n) - 1u;
    return (__mmask16)lanes;
}

/* y = exp(x), but for x outside the range of its formula, or NaN: chosen by compares on x itself. */
TTK_INLINE vec vec_exp_ends(vec y, vec x)
{
    __mmask16 is_low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(TTK_EXP_MIN), _CMP_LT_OQ);
    __mmask16 is_high = _mm512_cmp_ps_mask(x, _mm512_set1_ps(TTK_EXP_MAX), _CMP_GT_OQ);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    y = _mm512_mask_blend_ps(is_low, y, _mm512_setzero_ps());
    y = _mm512_mask_blend_ps(is_high, y, _mm512_set1_ps(INFINITY));
    return _mm512_mask_blend_ps(is_nan, y, x);
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

/* ---- 16 lanes ---- */
typedef vec vec_lanes;

TTK_INLINE __m256 vec_fold(vec_lanes s)
{
    return _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
}

#include "vec_both.h"

/* The largest lane; lanes are not NaN. */
TTK_INLINE float vec_max(__m512 m)
{
    __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(m), _mm512_extractf32x8_ps(m, 1));
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
}

#endif
