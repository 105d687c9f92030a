/* quant_avx2.h - from packed quantised codes to f32 on AVX2, for all formats.
 *
 * A quad is 8 outputs by 4 k: 32 bytes, of which byte i of a 32-bit lane is k = i. Whole numbers
 * become floats without a conversion: a byte put into the mantissa of a number whose last place is
 * worth 1 there gives 2^n + byte, from which 2^n and the number's own bias are subtracted, exactly.
 * A code of E2M1 is looked up as twice its number, with a last place worth 1/2. The bits of E4M3 are
 * moved to their places in f32, where its exponent is 120 too small. */
#ifndef TUTTI_TTK_QUANT_AVX2_H
#define TUTTI_TTK_QUANT_AVX2_H
#include "vec_avx2.h"
#include "ttk_quant.h"

enum { QUAD = 4, BLOCKS = TTK_PANEL / VEC }; /* k of a quad; registers across a panel */

/* Unsigned bytes of quad q (of the unit), outputs 8h..8h+7. number = byte * step - bias, with step and
 * bias as below; E4M3 as it is. */
TTK_INLINE __m256i quad_bytes(ttk_dtype code, const unsigned char *unit, int q, int h)
{
    const __m256i low4 = _mm256_set1_epi8(0x0f), up2 = _mm256_set1_epi8(0x30);
    const unsigned char *plane = unit + (code == TTK_I6 ? q / 2 * TTK_PLANE_BYTES : 0);
    __m256i raw = _mm256_loadu_si256((const __m256i *)(plane + h * (VEC * QUAD)));
    switch (code) {
    case TTK_I8:
        return _mm256_xor_si256(raw, _mm256_set1_epi8((char)0x80));
    case TTK_U8:
    case TTK_E4M3:
        return raw;
    default:
        break;
    }
    __m256i nibble = _mm256_and_si256(q % 2 ? _mm256_srli_epi16(raw, 4) : raw, low4);
    if (code == TTK_E2M1) {
        const __m256i twice = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        return _mm256_shuffle_epi8(twice, nibble);
    }
    if (code == TTK_I6) {
        const unsigned char *upper = unit + 2 * TTK_PLANE_BYTES + h * (VEC * QUAD);
        __m256i two = _mm256_loadu_si256((const __m256i *)upper);
        two = q == 0   ? _mm256_slli_epi16(two, 4)
              : q == 1 ? _mm256_slli_epi16(two, 2)
              : q == 3 ? _mm256_srli_epi16(two, 2)
                       : two;
        return _mm256_or_si256(nibble, _mm256_and_si256(two, up2));
    }
    return nibble;
}

TTK_INLINE float code_step(ttk_dtype code)
{
    return code == TTK_E2M1 ? 0.5f : 1.0f;
}

TTK_INLINE float code_bias(ttk_dtype code)
{
    return code == TTK_I8     ? 128.0f
           : code == TTK_I4   ? 8.0f
           : code == TTK_I6   ? 32.0f
           : code == TTK_E2M1 ? 6.0f
                              : 0.0f;
}

/* What is subtracted from a byte in the mantissa: of the number's even and odd k. */
typedef struct quad_shift {
    __m256 even, odd;
} quad_shift;

/* With the zero points of 8 outputs, or 0. */
TTK_INLINE quad_shift quad_shift_of(ttk_dtype code, __m256 zero)
{
    __m256 bias = _mm256_add_ps(zero, _mm256_set1_ps(code_bias(code)));
    return (quad_shift){_mm256_add_ps(bias, _mm256_set1_ps(0x1p23f * code_step(code))),
                        _mm256_add_ps(bias, _mm256_set1_ps(0x1p15f * code_step(code)))};
}

/* The numbers of a quad, less its zeros: f[i] is k = i. */
TTK_INLINE void quad_floats(ttk_dtype code, __m256i bytes, quad_shift shift, __m256 *f)
{
    if (code == TTK_E4M3) {
        /* The sign stays; exponent and fraction go to the top of the fields of f32. + 0: no -0. */
        const __m256i keep = _mm256_set1_epi32((int)0x87f00000u);
        const __m256 scale = _mm256_set1_ps(0x1p120f);
        TTK_UNROLL
        for (int i = 0; i < QUAD; i++) {
            __m256i top = i < 3 ? _mm256_slli_epi32(bytes, 24 - 8 * i) : bytes;
            __m256i bits = _mm256_and_si256(_mm256_srai_epi32(top, 4), keep);
            f[i] = _mm256_fmadd_ps(_mm256_castsi256_ps(bits), scale, _mm256_setzero_ps());
        }
        return;
    }
    const __m256i even_byte = _mm256_set1_epi32(0xff), odd_byte = _mm256_set1_epi32(0xff00);
    const __m256i even = _mm256_castps_si256(_mm256_set1_ps(0x1p23f * code_step(code)));
    const __m256i odd = _mm256_castps_si256(_mm256_set1_ps(0x1p15f * code_step(code)));
    TTK_UNROLL
    for (int i = 0; i < QUAD; i += 2) {
        __m256i two = i == 0 ? bytes : _mm256_srli_epi32(bytes, 16);
        __m256 a = _mm256_castsi256_ps(_mm256_blendv_epi8(even, two, even_byte));
        __m256 b = _mm256_castsi256_ps(_mm256_blendv_epi8(odd, two, odd_byte));
        f[i] = _mm256_sub_ps(a, shift.even);
        f[i + 1] = _mm256_sub_ps(b, shift.odd);
    }
}

/* ---- scales and shifts of a group, as f32 for the BLOCKS registers of a panel ---- */

/* 8 numbers of a type from number `at`. */
TTK_INLINE __m256 load_numbers(ttk_dtype type, const unsigned char *array, int at)
{
    const unsigned char *from = array + (size_t)at * ttk_dtype_bytes(type);
    switch (type) {
    case TTK_F32:
        return _mm256_loadu_ps((const float *)from);
    case TTK_BF16:
        return vec_load_bf16((const ttk_bf16 *)from);
    case TTK_F16:
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
    case TTK_I8:
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
    case TTK_E8M0: {
        __m256i byte = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
        __m256i bits = _mm256_slli_epi32(byte, TTK_F32_MANTISSA_BITS);
        /* 0 is 2^-127, which is denormal; 255 is NaN, its fraction not 0. */
        __m256i is_edge = _mm256_or_si256(_mm256_cmpeq_epi32(byte, _mm256_setzero_si256()),
                                          _mm256_cmpeq_epi32(byte, _mm256_set1_epi32(255)));
        return _mm256_castsi256_ps(
            _mm256_or_si256(bits, _mm256_and_si256(is_edge, _mm256_set1_epi32(0x400000))));
    }
    default:
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)));
    }
}

TTK_INLINE void load_panel_numbers(ttk_dtype type, const unsigned char *array, float *to)
{
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        _mm256_storeu_ps(to + h * VEC, load_numbers(type, array, h * VEC));
    }
}

/* to[TTK_PANEL] = numbers of the type a format's scales have. */
static inline void load_factors(ttk_dtype type, const unsigned char *array, float *to)
{
    switch (type) {
    case TTK_F32:
        load_panel_numbers(TTK_F32, array, to);
        break;
    case TTK_BF16:
        load_panel_numbers(TTK_BF16, array, to);
        break;
    case TTK_F16:
        load_panel_numbers(TTK_F16, array, to);
        break;
    case TTK_I8:
        load_panel_numbers(TTK_I8, array, to);
        break;
    case TTK_E8M0:
        load_panel_numbers(TTK_E8M0, array, to);
        break;
    default:
        load_panel_numbers(TTK_U8, array, to);
        break;
    }
}

/* The scales of a group, and its offsets if the format has them. */
static inline void group_factors(const ttk_format *format, const unsigned char *panel,
                                 const ttk_quant_place *place, float *scale, float *offset)
{
    const bool has_offset = format->shift == TTK_SHIFT_OFFSET;
    load_factors(format->scale, panel + place->scale, scale);
    if (has_offset) {
        load_factors(format->scale, panel + place->shift, offset);
    }
    if (format->super > 0) {
        const __m256 sign = _mm256_set1_ps(-0.0f);
        for (int j = 0; j < TTK_PANEL; j += VEC) {
            __m256 super = load_numbers(TTK_F16, panel + place->super_scale, j);
            _mm256_storeu_ps(scale + j, _mm256_mul_ps(_mm256_loadu_ps(scale + j), super));
            if (has_offset) {
                super = load_numbers(TTK_F16, panel + place->super_shift, j);
                __m256 product = _mm256_mul_ps(_mm256_loadu_ps(offset + j), super);
                _mm256_storeu_ps(offset + j, _mm256_xor_ps(product, sign));
            }
        }
    }
}

/* ---- NaN among the codes of E4M3: rare, so they are looked for together ---- */

/* Collects the bytes without their signs; 0x7f remains visible. */
TTK_INLINE __m256i nan_seen(__m256i worst, __m256i bytes)
{
    return _mm256_max_epu8(worst, _mm256_and_si256(bytes, _mm256_set1_epi8(0x7f)));
}

TTK_INLINE bool has_nan(__m256i worst)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(worst, _mm256_set1_epi8(0x7f))) != 0;
}

static inline bool is_nan_code(unsigned char code)
{
    return (code & 0x7f) == 0x7f;
}

#endif
