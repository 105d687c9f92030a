/* row8_avx2.c - rows as bytes: blocks of a scale and codes. */
#include "round8_avx2.h"
#include "ttk_versions.h"

enum { E8M0_BIAS = 127, E8M0_NAN = 255 };

/* Up to 32 bytes to where only n may be written, and from where only n may be read. */
TTK_INLINE void store_bytes(unsigned char *to, __m256i bytes, int64_t n)
{
    if (n >= TTK_ACT_GROUP) {
        _mm256_storeu_si256((__m256i *)(void *)to, bytes);
    } else {
        unsigned char all[TTK_ACT_GROUP];
        _mm256_storeu_si256((__m256i *)(void *)all, bytes);
        memcpy(to, all, (size_t)n);
    }
}

TTK_INLINE __m256i load_bytes(const unsigned char *from, int64_t n)
{
    if (n >= TTK_ACT_GROUP) {
        return _mm256_loadu_si256((const __m256i *)(const void *)from);
    }
    unsigned char all[TTK_ACT_GROUP] = {0};
    memcpy(all, from, (size_t)n);
    return _mm256_loadu_si256((const __m256i *)(const void *)all);
}

/* e4m3 codes of v in (-512, 512), one in each lane; twin of e4m3_of in ref/row8.c. */
TTK_INLINE __m256i e4m3_of(__m256 v)
{
    const __m256 denormal_step = _mm256_set1_ps(0x1p14f), sign = _mm256_set1_ps(-0.0f),
                 size = _mm256_andnot_ps(sign, v);
    const __m256i bits = _mm256_castps_si256(size);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
    __m256i normal =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32((1 << 19) - 1)), is_odd);
    normal =
        _mm256_sub_epi32(_mm256_srli_epi32(normal, 20), _mm256_set1_epi32((E8M0_BIAS - 7) << 3));
    normal = _mm256_min_epi32(normal, _mm256_set1_epi32(0x7e));
    const __m256i denormal =
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(size, denormal_step)),
                         _mm256_castps_si256(denormal_step));
    const __m256 is_denormal = _mm256_cmp_ps(size, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
    const __m256i code = _mm256_blendv_epi8(normal, denormal, _mm256_castps_si256(is_denormal));
    return _mm256_or_si256(code,
                           _mm256_slli_epi32(_mm256_srli_epi32(_mm256_castps_si256(v), 31), 7));
}

TTK_INLINE __m256i round_fp8(const __m256 *x, unsigned char *scale)
{
    const float largest = largest_of(x);
    if (!(largest >= TTK_ACT8_LEAST)) {
        *scale = largest < TTK_ACT8_LEAST ? 0 : E8M0_NAN;
        return _mm256_setzero_si256();
    }
    const uint32_t exponent = (ttk_bits_of_f32(largest) >> TTK_F32_MANTISSA_BITS) - 8;
    const __m256 inverse =
        _mm256_set1_ps(ttk_f32_of_bits((2 * E8M0_BIAS - exponent) << TTK_F32_MANTISSA_BITS));
    __m256i c[PARTS];
    TTK_UNROLL
    for (int i = 0; i < PARTS; i++) {
        c[i] = e4m3_of(_mm256_mul_ps(x[i], inverse));
    }
    *scale = (unsigned char)exponent;
    return bytes_in_order(
        _mm256_packus_epi16(_mm256_packus_epi32(c[0], c[1]), _mm256_packus_epi32(c[2], c[3])));
}

void ttk_row8_avx2(ttk_row8_form form, void *row, const float *x, int64_t n)
{
    unsigned char *to = row;
    const size_t step = ttk_row8_bytes(form, TTK_ACT_GROUP);
    for (int64_t at = 0; at < n; at += TTK_ACT_GROUP, to += step) {
        __m256 part[PARTS];
        load_group(part, x + at, n - at);
        if (form == TTK_ROW8_FP8) {
            const __m256i codes = round_fp8(part, to);
            store_bytes(to + 1, codes, n - at);
        } else {
            float scale;
            const __m256i codes = round_int8(part, &scale);
            memcpy(to, &scale, sizeof(scale));
            store_bytes(to + sizeof(scale), codes, n - at);
        }
    }
}

/* e4m3 is the upper half of an f16 of 2^-8 times its number, with one bit in between; the scale
 * makes up for that. */
TTK_INLINE __m256 fp8_floats(__m128i bytes)
{
    const __m128i wide = _mm_cvtepu8_epi16(bytes);
    const __m128i size = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7f)), 7);
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
    return _mm256_cvtph_ps(_mm_or_si128(size, sign));
}

void ttk_row8_f32_avx2(ttk_row8_form form, float *x, const void *row, int64_t n)
{
    const unsigned char *from = row;
    const size_t step = ttk_row8_bytes(form, TTK_ACT_GROUP),
                 scale_bytes = form == TTK_ROW8_FP8 ? 1 : sizeof(float);
    for (int64_t at = 0; at < n; at += TTK_ACT_GROUP, from += step) {
        float scale;
        if (form == TTK_ROW8_FP8) {
            scale = ttk_number(TTK_E8M0, from, 0) * 0x1p8f;
        } else {
            memcpy(&scale, from, sizeof(scale));
        }
        const __m256 scales = _mm256_set1_ps(scale);
        const __m256i codes = load_bytes(from + scale_bytes, n - at);
        const __m128i half[2] = {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
        TTK_UNROLL
        for (int i = 0; i < PARTS; i++) {
            const __m128i eight = i % 2 ? _mm_srli_si128(half[i / 2], 8) : half[i / 2];
            const __m256 number = form == TTK_ROW8_FP8
                                      ? fp8_floats(eight)
                                      : _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
            const __m256 value = _mm256_mul_ps(number, scales);
            const int64_t left = n - at - i * VEC;
            if (left >= VEC) {
                _mm256_storeu_ps(x + at + i * VEC, value);
            } else if (left > 0) {
                _mm256_maskstore_ps(x + at + i * VEC, vec_mask(left), value);
            }
        }
    }
}

void ttk_row8_act8_avx2(void *act8, const void *row, int64_t n)
{
    const int64_t groups = ttk_act8_groups(n);
    const unsigned char *from = row;
    unsigned char *code = act8;
    float *scale = (float *)(void *)(code + groups * TTK_ACT_GROUP);
    for (int64_t g = 0; g < groups; g++, from += ttk_row8_bytes(TTK_ROW8_INT8, TTK_ACT_GROUP)) {
        const __m256i codes = load_bytes(from + sizeof(float), n - g * TTK_ACT_GROUP);
        memcpy(scale + g, from, sizeof(float));
        _mm256_storeu_si256((__m256i *)(void *)(code + g * TTK_ACT_GROUP), codes);
        add_codes(scale + groups + g, scale + 2 * (groups + g), codes);
    }
}
