/* act8_avx2.c - rows rounded to int8 in groups of 32: four registers of 8 floats each. */
#include "ttk_act8.h"
#include "ttk_versions.h"
#include "vec_avx2.h"

enum { PARTS = TTK_ACT_GROUP / VEC };

/* lane[0] + ... + lane[7]; of whole numbers, so the order does not matter. */
TTK_INLINE float sum_of_lanes(__m256i lanes)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return (float)_mm_cvtsi128_si32(s);
}

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

/* code[32] and the group's scale and sums, from x[PARTS]. */
TTK_INLINE void round_group(int8_t *code, float *scale, float *sum, float *half, const __m256 *x)
{
    float largest = largest_of(x);
    if (!(largest >= TTK_ACT8_LEAST)) {
        _mm256_storeu_si256((__m256i *)(void *)code, _mm256_setzero_si256());
        *scale = largest < TTK_ACT8_LEAST ? 0.0f : NAN;
        *sum = half[0] = half[1] = 0.0f;
        return;
    }
    const __m256 inverse = _mm256_set1_ps(127.0f / largest);
    __m256i c[PARTS];
    TTK_UNROLL
    for (int i = 0; i < PARTS; i++) {
        c[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
    }
    __m256i first = _mm256_add_epi32(c[0], c[1]), second = _mm256_add_epi32(c[2], c[3]);
    *scale = largest / 127.0f;
    half[0] = sum_of_lanes(first);
    half[1] = sum_of_lanes(second);
    *sum = half[0] + half[1];
    /* Packing works within halves: 32-bit pieces come out as 0 2 4 6 1 3 5 7. */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)code, bytes);
}

void ttk_act8_avx2(void *rows, size_t stride, const float *x, int64_t ldx, int64_t M, int64_t K)
{
    const int64_t groups = ttk_act8_groups(K);
    for (int64_t m = 0; m < M; m++) {
        unsigned char *row = (unsigned char *)rows + (size_t)m * stride;
        float *scale = (float *)(void *)(row + groups * TTK_ACT_GROUP);
        for (int64_t g = 0; g < groups; g++) {
            const float *from = x + m * ldx + g * TTK_ACT_GROUP;
            const int64_t left = K - g * TTK_ACT_GROUP;
            __m256 part[PARTS];
            TTK_UNROLL
            for (int i = 0; i < PARTS; i++) {
                part[i] = left >= TTK_ACT_GROUP
                              ? _mm256_loadu_ps(from + i * VEC)
                              : _mm256_maskload_ps(from + i * VEC, vec_mask(left - i * VEC));
            }
            round_group((int8_t *)row + g * TTK_ACT_GROUP, scale + g, scale + groups + g, scale + 2 * (groups + g), part);
        }
    }
}
