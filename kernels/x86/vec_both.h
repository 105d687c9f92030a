/* vec_both.h - exp, sigmoid, halves of bf16 and the end of 16-lane sums, for registers of any width.
 * Included at the end of each ISA's vec_*.h, which supplies registers (vec_registers.h),
 * vec_exp_ends, vec_lanes and vec_fold. */
#ifndef TUTTI_TTK_VEC_BOTH_H
#define TUTTI_TTK_VEC_BOTH_H

enum { PAIR = 2 * VEC }; /* columns of a pair of registers */
typedef struct vec_pair {
    vec a, b; /* the first and second VEC columns, or even and odd ones of bf16 */
} vec_pair;

TTK_INLINE vec vec_exp(vec x)
{
    vec t = MM(fmadd_ps)(x, MM(set1_ps)(TTK_EXP_LOG2E), MM(set1_ps)(TTK_EXP_ROUND));
    vec n = MM(sub_ps)(t, MM(set1_ps)(TTK_EXP_ROUND));
    vec r = MM(fmadd_ps)(n, MM(set1_ps)(-TTK_EXP_LN2_HI), x);
    r = MM(fmadd_ps)(n, MM(set1_ps)(-TTK_EXP_LN2_LO), r);
    vec p = MM(fmadd_ps)(MM(set1_ps)(TTK_EXP_C0), r, MM(set1_ps)(TTK_EXP_C1));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(TTK_EXP_C2));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(TTK_EXP_C3));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(TTK_EXP_C4));
    p = MM(fmadd_ps)(p, r, MM(set1_ps)(TTK_EXP_C5));
    p = MM(fmadd_ps)(p, MM(mul_ps)(r, r), r);
    p = MM(add_ps)(p, MM(set1_ps)(1.0f));
    veci bits =
        MM(add_epi32)(MMI(castps)(p), MM(slli_epi32)(MMI(castps)(t), TTK_F32_MANTISSA_BITS));
    return vec_exp_ends(vec_of_bits(bits), x);
}

TTK_INLINE vec vec_sigmoid(vec x)
{
    const vec one = MM(set1_ps)(1.0f);
    vec minus_x = MM(xor_ps)(x, MM(set1_ps)(-0.0f));
    return MM(div_ps)(one, MM(add_ps)(one, vec_exp(minus_x)));
}

/* The two halves of each 32-bit group of bf16: elements 0, 2, 4, ... and 1, 3, 5, ... as f32. */
TTK_INLINE vec vec_even_of_bf16(veci w)
{
    return vec_of_bits(MM(slli_epi32)(w, 16));
}

TTK_INLINE vec vec_odd_of_bf16(veci w)
{
    return vec_of_bits(MMI(and)(w, MM(set1_epi32)((int)0xffff0000u)));
}

/* ---- the tree that ends a 16-lane sum ---- */
TTK_INLINE float vec_lanes_sum(vec_lanes s)
{
    __m256 s8 = vec_fold(s);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

/* Four such sums at once, by the same tree. */
TTK_INLINE __m128 vec_lanes_sum4(const vec_lanes *s)
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

#endif
