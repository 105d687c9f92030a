/* vec_avx2.h - what the AVX2 versions share: registers, masks, bf16 conversions, the 16-lane sum in
 * two registers; vec_both.h adds what does not depend on their width. Each function copies its
 * scalar twin in ttk_math.h operation by operation. */
#ifndef TUTTI_TTK_VEC_AVX2_H
#define TUTTI_TTK_VEC_AVX2_H
#include <immintrin.h>
#include "vec_registers.h"

typedef __m256 vec;   /* floats */
typedef __m256i veci; /* bits, or whole numbers */
#define MM(op) _mm256_##op
#define MMI(op) _mm256_##op##_si256
enum { VEC = 8, VEC_BF16 = 16 }; /* floats and bf16 in a register */

TTK_INLINE vec vec_of_bits(veci bits)
{
    return _mm256_castsi256_ps(bits);
}

/* The same 16 bytes in each 16 of a register. */
TTK_INLINE veci vec_spread(__m128i bytes)
{
    return _mm256_broadcastsi128_si256(bytes);
}

/* All bits set in the first n lanes, n in [0, VEC]; more counts as VEC. */
TTK_INLINE __m256i vec_mask(int64_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < VEC ? n : VEC)), index);
}

/* y = exp(x), but for x outside the range of its formula, or NaN: chosen by compares on x itself. */
TTK_INLINE vec vec_exp_ends(vec y, vec x)
{
    y = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(TTK_EXP_MIN), _CMP_LT_OQ), y);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(INFINITY),
                         _mm256_cmp_ps(x, _mm256_set1_ps(TTK_EXP_MAX), _CMP_GT_OQ));
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
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

TTK_INLINE __m256 vec_fold(vec_lanes s)
{
    return _mm256_add_ps(s.a, s.b);
}

#include "vec_both.h"

#endif
