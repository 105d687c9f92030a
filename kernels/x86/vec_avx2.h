/* vec_avx2.h - what the AVX2 versions share: masks, exp, bf16 conversions, the 16-lane sum in two
 * registers. Each function copies its scalar twin in ttk_math.h operation by operation. */
#ifndef TUTTI_TTK_VEC_AVX2_H
#define TUTTI_TTK_VEC_AVX2_H
#include <immintrin.h>
#include "ttk_math.h"

#define TTK_INLINE static inline __attribute__((always_inline))

/* Before a loop over registers, which must be unrolled for its arrays to become registers. */
#if defined(__clang__)
#define TTK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TTK_UNROLL _Pragma("GCC unroll 16")
#endif

enum { VEC = 8, VEC_BF16 = 16 }; /* floats and bf16 in a register */

/* All bits set in the first n lanes, n in [0, VEC]; more counts as VEC. */
TTK_INLINE __m256i vec_mask(int64_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < VEC ? n : VEC)), index);
}

TTK_INLINE __m256 vec_exp(__m256 x)
{
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(TTK_EXP_LOG2E), _mm256_set1_ps(TTK_EXP_ROUND));
    __m256 n = _mm256_sub_ps(t, _mm256_set1_ps(TTK_EXP_ROUND));
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-TTK_EXP_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-TTK_EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(TTK_EXP_C0), r, _mm256_set1_ps(TTK_EXP_C1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TTK_EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TTK_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TTK_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TTK_EXP_C5));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i bits = _mm256_add_epi32(
        _mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), TTK_F32_MANTISSA_BITS));
    __m256 y = _mm256_castsi256_ps(bits);
    /* What lies outside the range, and NaN, is chosen by compares on x itself. */
    y = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(TTK_EXP_MIN), _CMP_LT_OQ), y);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(INFINITY),
                         _mm256_cmp_ps(x, _mm256_set1_ps(TTK_EXP_MAX), _CMP_GT_OQ));
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

TTK_INLINE __m256 vec_sigmoid(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 minus_x = _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
    return _mm256_div_ps(one, _mm256_add_ps(one, vec_exp(minus_x)));
}

/* The two halves of each 32-bit group of 16 bf16: elements 0, 2, 4, ... and 1, 3, 5, ... as f32. */
TTK_INLINE __m256 vec_even_of_bf16(__m256i w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

TTK_INLINE __m256 vec_odd_of_bf16(__m256i w)
{
    return _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32((int)0xffff0000u)));
}

/* 8 bf16 in order. */
TTK_INLINE __m256 vec_load_bf16(const ttk_bf16 *x)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x)), 16));
}

/* 32-bit groups whose lower half is the bf16 nearest to x. */
TTK_INLINE __m256i vec_bf16_bits(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i upper = _mm256_srli_epi32(u, 16);
    __m256i even = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), even), 16);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

/* ---- 8 rows of 8 floats become 8 columns ---- */
TTK_INLINE void vec_transpose(__m256 *row)
{
    __m256 pair[VEC];
    TTK_UNROLL
    for (int i = 0; i < VEC; i += 2) {
        pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
    __m256 four[VEC];
    TTK_UNROLL
    for (int i = 0; i < VEC; i += 4) {
        four[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
        four[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
        four[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        four[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
    }
    TTK_UNROLL
    for (int i = 0; i < VEC / 2; i++) {
        row[i] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
        row[i + 4] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
    }
}

/* ---- 16 lanes: a holds lanes 0..7, b lanes 8..15 ---- */
typedef struct vec_lanes {
    __m256 a, b;
} vec_lanes;

TTK_INLINE float vec_lanes_sum(vec_lanes s)
{
    __m256 s8 = _mm256_add_ps(s.a, s.b);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

/* Four such sums at once, by the same tree. */
TTK_INLINE __m128 vec_lanes_sum4(const vec_lanes *s)
{
    __m256 s0 = _mm256_add_ps(s[0].a, s[0].b);
    __m256 s1 = _mm256_add_ps(s[1].a, s[1].b);
    __m256 s2 = _mm256_add_ps(s[2].a, s[2].b);
    __m256 s3 = _mm256_add_ps(s[3].a, s[3].b);
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

#endif
