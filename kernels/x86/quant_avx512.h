/* quant_avx512.h - from packed quantised codes to f32 on AVX-512, for all formats. The three ways
 * from a byte to a float, and when each has the right bits, are described in quant_avx2.h; here a
 * quad is 16 outputs by 4 k, 64 bytes. */
#ifndef TUTTI_TTK_QUANT_AVX512_H
#define TUTTI_TTK_QUANT_AVX512_H
#include "vec_avx512.h"
#include "ttk_quant.h"

enum { QUAD = 4, BLOCKS = TTK_PANEL / VEC }; /* k of a quad; registers across a panel */

typedef enum way { WAY_WHOLE, WAY_EXACT, WAY_ZERO } way;

/* The bytes of quad q (of the unit), outputs 16h..16h+15, without the bias of the code or with it
 * (WAY_ZERO: byte * step - bias is the number). E4M3 as it is. */
TTK_INLINE __m512i quad_bytes(ttk_dtype code, way w, const unsigned char *unit, int q, int h)
{
    const __m512i low4 = _mm512_set1_epi8(0x0f), up2 = _mm512_set1_epi8(0x30);
    const unsigned char *plane = unit + (code == TTK_I6 ? q / 2 * TTK_PLANE_BYTES : 0);
    __m512i raw = _mm512_loadu_si512((const void *)(plane + h * (VEC * QUAD)));
    switch (code) {
    case TTK_I8:
        return w == WAY_ZERO ? _mm512_xor_si512(raw, _mm512_set1_epi8((char)0x80)) : raw;
    case TTK_U8:
    case TTK_E4M3:
        return raw;
    default:
        break;
    }
    __m512i nibble = _mm512_and_si512(q % 2 ? _mm512_srli_epi16(raw, 4) : raw, low4);
    if (code == TTK_E2M1) {
        const __m512i twice = _mm512_broadcast_i32x4(
            w == WAY_ZERO ? _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)
                          : _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
        return _mm512_shuffle_epi8(twice, nibble);
    }
    if (code == TTK_I4 && w != WAY_ZERO) {
        return _mm512_sub_epi8(nibble, _mm512_set1_epi8(8));
    }
    if (code == TTK_I6) {
        const unsigned char *upper = unit + 2 * TTK_PLANE_BYTES + h * (VEC * QUAD);
        __m512i two = _mm512_loadu_si512((const void *)upper);
        two = q == 0   ? _mm512_slli_epi16(two, 4)
              : q == 1 ? _mm512_slli_epi16(two, 2)
              : q == 3 ? _mm512_srli_epi16(two, 2)
                       : two;
        __m512i six = _mm512_or_si512(nibble, _mm512_and_si512(two, up2));
        return w == WAY_ZERO ? six : _mm512_sub_epi8(six, _mm512_set1_epi8(32));
    }
    return nibble;
}

/* Quad q of a unit: to[TTK_PLANE_BYTES]. */
TTK_INLINE void store_quad(unsigned char *to, ttk_dtype code, way w, const unsigned char *unit,
                           int q)
{
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        _mm512_store_si512(to + h * (VEC * QUAD), quad_bytes(code, w, unit, q, h));
    }
}

TTK_INLINE bool is_unsigned(ttk_dtype code)
{
    return code == TTK_U8 || code == TTK_U4;
}

/* By how much a group's sum must be multiplied in the end. */
static inline float sum_factor(ttk_dtype code, way w)
{
    return w != WAY_WHOLE || is_unsigned(code) ? 1.0f
           : code == TTK_E4M3                  ? 0x1p17f
           : code == TTK_E2M1                  ? 0x1p-25f
                                               : 0x1p-24f;
}

/* And an x beforehand. */
TTK_INLINE __m512 load_x(ttk_dtype code, way w, const float *x)
{
    __m512 x_k = _mm512_set1_ps(*(x));
    return code == TTK_E4M3 && w == WAY_WHOLE ? _mm512_mul_ps(x_k, _mm512_set1_ps(0x1p100f)) : x_k;
}

/* Whether sums of x times codes by WAY_WHOLE have the right bits: its finite elements that are not
 * 0 must lie in the code's range. */
static inline bool x_fits(ttk_dtype code, const float *x, int64_t n)
{
    /* Whole numbers: any small x, as its last place is at least 2^-149. 2^67 leaves room for 2^7
     * times 2^30 k. Halves: one place less. */
    const __m512 low = _mm512_set1_ps(code == TTK_E4M3   ? 0x1p-100f
                                      : code == TTK_E2M1 ? 0x1p-125f
                                                         : 0.0f);
    const __m512 high = _mm512_set1_ps(code == TTK_E4M3 ? 0x1p26f : 0x1p67f);
    for (int64_t i = 0; i < n; i += VEC) {
        __m512 size = _mm512_abs_ps(_mm512_maskz_loadu_ps(vec_mask(n - i), x + i));
        __mmask16 is_zero = _mm512_cmp_ps_mask(size, _mm512_setzero_ps(), _CMP_EQ_OQ);
        __mmask16 is_high = _mm512_cmp_ps_mask(size, low, _CMP_GE_OQ);
        __mmask16 is_low = _mm512_cmp_ps_mask(size, high, _CMP_LT_OQ);
        if ((is_zero | (is_high & is_low)) != 0xffff) {
            return false;
        }
    }
    return true;
}

/* What WAY_ZERO subtracts, from the zero points of 16 outputs. */
TTK_INLINE __m512 zero_shift(ttk_dtype code, __m512 zero)
{
    const float bias = code == TTK_I8     ? 128.0f
                       : code == TTK_I4   ? 8.0f
                       : code == TTK_I6   ? 32.0f
                       : code == TTK_E2M1 ? 6.0f
                                          : 0.0f;
    const float base = code == TTK_E2M1 ? 0x1p22f : 0x1p23f;
    return _mm512_add_ps(zero, _mm512_set1_ps(bias + base));
}

/* E4M3, k = is_odd and k = 2 + is_odd of each output: 16 bits each, the upper half of a f32 that is
 * 2^-117 times the number; see quant_avx2.h. */
TTK_INLINE __m512i e4m3_pairs(__m512i bytes, bool is_odd)
{
    const __m512i excess =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 24, 17, 10, 7, 4, 3, 2, 1));
    enum { A_OR_B_AND_C = 0xf8 }; /* the truth table */
    __m512i size = _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f));
    __m512i less = _mm512_shuffle_epi8(excess, _mm512_adds_epu8(size, _mm512_set1_epi8(0x78)));
    size = _mm512_sub_epi8(_mm512_add_epi8(size, _mm512_set1_epi8(24)), less);
    __m512i pairs = _mm512_maddubs_epi16(size, _mm512_set1_epi16(is_odd ? 16 << 8 : 16));
    __m512i top = is_odd ? bytes : _mm512_slli_epi16(bytes, 8);
    return _mm512_ternarylogic_epi32(pairs, top, _mm512_set1_epi16((short)0x8000), A_OR_B_AND_C);
}

/* The numbers k = i of a quad, scaled as the way has it. `shift` is for WAY_ZERO. */
TTK_INLINE __m512 quad_floats(ttk_dtype code, way w, __m512i bytes, __m512 shift, int i)
{
    if (code == TTK_E4M3) {
        __m512i pairs = e4m3_pairs(bytes, i % 2);
        pairs = i < 2 ? _mm512_slli_epi32(pairs, 16)
                      : _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u));
        __m512 number = _mm512_castsi512_ps(pairs);
        return w == WAY_EXACT /* + 0: no -0 */
                   ? _mm512_fmadd_ps(number, _mm512_set1_ps(0x1p117f), _mm512_setzero_ps())
                   : number;
    }
    const bool is_top = w == WAY_WHOLE && !is_unsigned(code);
    /* Lane l: byte 4l + i, and zeros. */
    const int first = is_top ? (i << 24) | 0x808080 : (int)0x80808000u + i;
    const int step = is_top ? 4 << 24 : 4;
    const __m512i pick = _mm512_set4_epi32(first + 3 * step, first + 2 * step, first + step, first);
    __m512i lane = _mm512_shuffle_epi8(bytes, pick);
    if (w == WAY_ZERO) {
        const __m512 base = _mm512_set1_ps(code == TTK_E2M1 ? 0x1p22f : 0x1p23f);
        lane = _mm512_or_si512(lane, _mm512_castps_si512(base));
        return _mm512_sub_ps(_mm512_castsi512_ps(lane), shift);
    }
    return _mm512_cvtepi32_ps(lane);
}

/* ---- scales and shifts of a group, as f32 for the BLOCKS registers of a panel ---- */

/* 16 numbers of a type from number `at`. */
TTK_INLINE __m512 load_numbers(ttk_dtype type, const unsigned char *array, int at)
{
    const unsigned char *from = array + (size_t)at * ttk_dtype_bytes(type);
    switch (type) {
    case TTK_F32:
        return _mm512_loadu_ps((const float *)from);
    case TTK_BF16:
        return vec_widen_bf16(_mm256_loadu_si256((const __m256i *)from));
    case TTK_F16:
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
    case TTK_I8:
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
    case TTK_E8M0: {
        __m512i byte = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
        __m512i bits = _mm512_slli_epi32(byte, TTK_F32_MANTISSA_BITS);
        /* 0 is 2^-127, which is denormal; 255 is NaN, its fraction not 0. */
        __mmask16 is_edge = _mm512_cmpeq_epi32_mask(byte, _mm512_setzero_si512()) |
                            _mm512_cmpeq_epi32_mask(byte, _mm512_set1_epi32(255));
        return _mm512_castsi512_ps(
            _mm512_mask_or_epi32(bits, is_edge, bits, _mm512_set1_epi32(0x400000)));
    }
    default:
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)));
    }
}

TTK_INLINE void load_panel_numbers(ttk_dtype type, const unsigned char *array, float *to)
{
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        _mm512_storeu_ps(to + h * VEC, load_numbers(type, array, h * VEC));
    }
}

/* numbers[TTK_PANEL] *= sign * by[TTK_PANEL]. */
TTK_INLINE void times_panel(float *numbers, const float *by, float sign)
{
    const __m512 signs = _mm512_set1_ps(sign);
    for (int j = 0; j < TTK_PANEL; j += VEC) {
        const __m512 factor = _mm512_mul_ps(_mm512_loadu_ps(by + j), signs);
        _mm512_storeu_ps(numbers + j, _mm512_mul_ps(_mm512_loadu_ps(numbers + j), factor));
    }
}

#include "quant_factors.h"

/* ---- NaN among the codes of E4M3: rare, so they are looked for together ---- */

/* Collects the bytes without their signs; 0x7f remains visible. */
TTK_INLINE __m512i nan_seen(__m512i worst, __m512i bytes)
{
    return _mm512_max_epu8(worst, _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f)));
}

TTK_INLINE bool has_nan(__m512i worst)
{
    return _mm512_cmpeq_epi8_mask(worst, _mm512_set1_epi8(0x7f)) != 0;
}

static inline bool is_nan_code(unsigned char code)
{
    return (code & 0x7f) == 0x7f;
}

/* ---- sums of a panel ---- */

/* The first n_columns numbers of acc[TTK_PANEL]. */
static inline void store_sums(float *y, const float *acc, int64_t n_columns)
{
    for (int64_t j = 0; j < TTK_PANEL && j < n_columns; j += VEC) {
        _mm512_mask_storeu_ps(y + j, vec_mask(n_columns - j), _mm512_loadu_ps(acc + j));
    }
}

#endif
