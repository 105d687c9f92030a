/* quantize_avx2.c - 8 elements at a time; the scale of a group is found as ref finds it. Magnitudes
 * are compared as whole numbers, whose order is that of floats, with what is not finite above
 * all. */
#include "vec_avx2.h"
#include "ttk_quantize.h"
#include "ttk_versions.h"

#define BITS_SIZE 0x7fffffff     /* without the sign */
#define BITS_INFINITE 0x7f800000 /* and above: not finite */

TTK_INLINE __m256i sizes_of(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(BITS_SIZE));
}

TTK_INLINE uint32_t largest_lane(__m256i v)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* The first element of this magnitude. */
TTK_INLINE float first_of(const float *x, int64_t n, uint32_t size)
{
    int64_t k = 0;
    for (; k + VEC <= n; k += VEC) {
        __m256i is_it =
            _mm256_cmpeq_epi32(sizes_of(_mm256_loadu_ps(x + k)), _mm256_set1_epi32((int)size));
        unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(is_it));
        if (mask) {
            return x[k + __builtin_ctz(mask)];
        }
    }
    while (k < n - 1 && (ttk_bits_of_f32(x[k]) & BITS_SIZE) != size) {
        k++;
    }
    return x[k];
}

/* The element of the largest magnitude, NaN if one is not finite; its sign is that of the first of
 * such elements if it matters, else plus. */
TTK_INLINE float extreme_of(const float *x, int64_t n, bool is_signed)
{
    __m256i most = _mm256_setzero_si256();
    int64_t k = 0;
    for (; k + VEC <= n; k += VEC) {
        most = _mm256_max_epu32(most, sizes_of(_mm256_loadu_ps(x + k)));
    }
    uint32_t size = largest_lane(most);
    for (; k < n; k++) {
        uint32_t own = ttk_bits_of_f32(x[k]) & BITS_SIZE;
        size = own > size ? own : size;
    }
    if (size >= BITS_INFINITE) {
        return NAN;
    }
    return is_signed && size > 0 ? first_of(x, n, size) : ttk_f32_of_bits(size);
}

/* Nearest even whole numbers in [low, high]. */
TTK_INLINE __m256i wholes(__m256 x, float low, float high)
{
    x = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(low)), _mm256_set1_ps(high));
    return _mm256_cvttps_epi32(x);
}

TTK_INLINE __m256i signs_of(__m256 x, int shift)
{
    __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(x), 31);
    return _mm256_slli_epi32(sign, shift);
}

TTK_INLINE __m256i e4m3_of(__m256 x)
{
    enum { DROP = TTK_F32_MANTISSA_BITS - TTK_E4M3_MANTISSA_BITS };
    __m256i size = sizes_of(x);
    __m256 number = _mm256_castsi256_ps(size);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(size, DROP), _mm256_set1_epi32(1));
    __m256i normal = _mm256_add_epi32(size, _mm256_set1_epi32((1 << (DROP - 1)) - 1));
    normal = _mm256_srli_epi32(_mm256_add_epi32(normal, odd), DROP);
    normal = _mm256_sub_epi32(normal, _mm256_set1_epi32(120 << TTK_E4M3_MANTISSA_BITS));
    __m256i small =
        _mm256_cvtps_epi32(_mm256_round_ps(_mm256_mul_ps(number, _mm256_set1_ps(0x1p9f)),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    __m256 is_small = _mm256_cmp_ps(number, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
    __m256 is_large = _mm256_cmp_ps(number, _mm256_set1_ps(TTK_E4M3_LARGEST), _CMP_GE_OQ);
    __m256i code = _mm256_blendv_epi8(normal, small, _mm256_castps_si256(is_small));
    code = _mm256_blendv_epi8(code, _mm256_set1_epi32(TTK_E4M3_TOP), _mm256_castps_si256(is_large));
    return _mm256_or_si256(code, signs_of(x, 7));
}

/* As many thresholds as a magnitude is above, or at the odd ones equal to. */
TTK_INLINE __m256i e2m1_of(__m256 x)
{
    __m256 size = _mm256_castsi256_ps(sizes_of(x));
    __m256i code = _mm256_setzero_si256(); /* a mask is -1 */
#define ABOVE(threshold, order)                                                                    \
    code = _mm256_sub_epi32(                                                                       \
        code, _mm256_castps_si256(_mm256_cmp_ps(size, _mm256_set1_ps(threshold), order)))
    ABOVE(0.25f, _CMP_GT_OQ);
    ABOVE(0.75f, _CMP_GE_OQ);
    ABOVE(1.25f, _CMP_GT_OQ);
    ABOVE(1.75f, _CMP_GE_OQ);
    ABOVE(2.5f, _CMP_GT_OQ);
    ABOVE(3.5f, _CMP_GE_OQ);
    ABOVE(5.0f, _CMP_GT_OQ);
#undef ABOVE
    __m256i is_zero = _mm256_cmpeq_epi32(code, _mm256_setzero_si256());
    return _mm256_or_si256(code, _mm256_andnot_si256(is_zero, signs_of(x, 3)));
}

TTK_INLINE __m256i codes_of(ttk_dtype code, __m256 x)
{
    switch (code) {
    case TTK_I8:
        return wholes(x, -127.0f, 127.0f);
    case TTK_I4:
        return _mm256_add_epi32(wholes(x, -8.0f, 7.0f), _mm256_set1_epi32(8));
    case TTK_E4M3:
        return e4m3_of(x);
    default:
        return e2m1_of(x);
    }
}

/* The low byte of each lane. */
TTK_INLINE void store_bytes(unsigned char *to, __m256i v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xff));
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(words, words));
}

TTK_INLINE void put_codes(unsigned char *to, ttk_dtype code, const float *x, int64_t n, float scale)
{
    const __m256 s = _mm256_set1_ps(scale);
    int64_t k = 0;
    for (; k + VEC <= n; k += VEC) {
        store_bytes(to + k, codes_of(code, _mm256_div_ps(_mm256_loadu_ps(x + k), s)));
    }
    for (; k < n; k++) {
        to[k] = ttk_quantize_code_of(code, x[k] / scale);
    }
}

/* Of one kind of code, so that the loops hold no choice. */
TTK_INLINE void quantize(ttk_dtype code, const ttk_format *format, const float *src, int64_t n,
                         int64_t K, const ttk_unpacked *dst)
{
    int64_t G = K > 0 ? (K - 1) / format->group + 1 : 0;
    for (int64_t row = 0; row < n; row++) {
        for (int64_t g = 0; g < G; g++) {
            int64_t begin = g * format->group;
            int64_t n_k = K - begin < format->group ? K - begin : format->group;
            const float *x = src + row * K + begin;
            unsigned char *to = (unsigned char *)dst->code + row * K + begin;
            float extreme = extreme_of(x, n_k, code == TTK_I4);
            float scale =
                ttk_quantize_group_scale(format, (void *)dst->scale, row * G + g, extreme);
            if (extreme == extreme && scale != 0.0f) {
                put_codes(to, code, x, n_k, scale);
            } else {
                memset(to, ttk_quantize_code_of(code, 0.0f), (size_t)n_k);
            }
        }
    }
}

void ttk_quantize_avx2(const ttk_format *format, const float *src, int64_t n, int64_t K,
                       const ttk_unpacked *dst)
{
    switch (format->code) {
    case TTK_I8:
        quantize(TTK_I8, format, src, n, K, dst);
        break;
    case TTK_I4:
        quantize(TTK_I4, format, src, n, K, dst);
        break;
    case TTK_E4M3:
        quantize(TTK_E4M3, format, src, n, K, dst);
        break;
    default:
        quantize(TTK_E2M1, format, src, n, K, dst);
        break;
    }
}
