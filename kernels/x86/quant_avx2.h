/* quant_avx2.h - from packed quantised codes to f32 on AVX2, for all formats.
 *
 * A quad is 8 outputs by 4 k: 32 bytes, of which byte i of a 32-bit lane is k = i. There are three
 * ways from a byte to a float:
 *   whole  a signed byte is shuffled to the top of its lane (an unsigned one to the bottom) and
 *          converted: 2^24 times the number. E2M1 is looked up as twice its number, so 2^25 times.
 *          E4M3 becomes 2^-117 times its number, the smallest of which is then 2^-126: no f32 that a
 *          CPU would be slow with. x is multiplied by 2^100 beforehand, so that products are 2^-17
 *          times what they should be.
 *   exact  E4M3 the same, but multiplied by 2^117 at once; for an x of unusual size
 *   zero   an unsigned byte becomes the lowest bits of a number whose last place is worth a step of
 *          the code, from which that number, the code's bias and the zero point are subtracted
 * A chain of scaled products has the bits of the scaled chain as long as neither leaves the range
 * of f32: every partial sum is a multiple of the last place of some x times that of the codes (1,
 * 1/2 or 2^-9), which must not fall below 2^-149, and the largest must stay below 2^128. x_fits
 * says whether that holds for x. */
#ifndef TUTTI_TTK_QUANT_AVX2_H
#define TUTTI_TTK_QUANT_AVX2_H
#include "vec_avx2.h"
#include "ttk_quant.h"

enum { QUAD = 4, BLOCKS = TTK_PANEL / VEC }; /* k of a quad; registers across a panel */

typedef enum way { WAY_WHOLE, WAY_EXACT, WAY_ZERO } way;

/* The bytes of quad q (of the unit), outputs 8h..8h+7, without the bias of the code or with it
 * (WAY_ZERO: byte * step - bias is the number). E4M3 as it is. */
TTK_INLINE __m256i quad_bytes(ttk_dtype code, way w, const unsigned char *unit, int q, int h)
{
    const __m256i low4 = _mm256_set1_epi8(0x0f), up2 = _mm256_set1_epi8(0x30);
    const unsigned char *plane = unit + (code == TTK_I6 ? q / 2 * TTK_PLANE_BYTES : 0);
    __m256i raw = _mm256_loadu_si256((const __m256i *)(plane + h * (VEC * QUAD)));
    switch (code) {
    case TTK_I8:
        return w == WAY_ZERO ? _mm256_xor_si256(raw, _mm256_set1_epi8((char)0x80)) : raw;
    case TTK_U8:
    case TTK_E4M3:
        return raw;
    default:
        break;
    }
    __m256i nibble = _mm256_and_si256(q % 2 ? _mm256_srli_epi16(raw, 4) : raw, low4);
    if (code == TTK_E2M1) {
        const __m256i twice = _mm256_broadcastsi128_si256(
            w == WAY_ZERO ? _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)
                          : _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
        return _mm256_shuffle_epi8(twice, nibble);
    }
    if (code == TTK_I4 && w != WAY_ZERO) {
        return _mm256_sub_epi8(nibble, _mm256_set1_epi8(8));
    }
    if (code == TTK_I6) {
        const unsigned char *upper = unit + 2 * TTK_PLANE_BYTES + h * (VEC * QUAD);
        __m256i two = _mm256_loadu_si256((const __m256i *)upper);
        two = q == 0   ? _mm256_slli_epi16(two, 4)
              : q == 1 ? _mm256_slli_epi16(two, 2)
              : q == 3 ? _mm256_srli_epi16(two, 2)
                       : two;
        __m256i six = _mm256_or_si256(nibble, _mm256_and_si256(two, up2));
        return w == WAY_ZERO ? six : _mm256_sub_epi8(six, _mm256_set1_epi8(32));
    }
    return nibble;
}

/* Quad q of a unit: to[TTK_PLANE_BYTES]. */
TTK_INLINE void store_quad(unsigned char *to, ttk_dtype code, way w, const unsigned char *unit,
                           int q)
{
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        _mm256_store_si256((__m256i *)(void *)(to + h * (VEC * QUAD)),
                           quad_bytes(code, w, unit, q, h));
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
TTK_INLINE __m256 load_x(ttk_dtype code, way w, const float *x)
{
    __m256 x_k = _mm256_broadcast_ss(x);
    return code == TTK_E4M3 && w == WAY_WHOLE ? _mm256_mul_ps(x_k, _mm256_set1_ps(0x1p100f)) : x_k;
}

/* Whether sums of x times codes by WAY_WHOLE have the right bits: its finite elements that are not
 * 0 must lie in the code's range. */
static inline bool x_fits(ttk_dtype code, const float *x, int64_t n)
{
    /* Whole numbers: any small x, as its last place is at least 2^-149. 2^67 leaves room for 2^7
     * times 2^30 k. Halves: one place less. */
    const __m256 low = _mm256_set1_ps(code == TTK_E4M3   ? 0x1p-100f
                                      : code == TTK_E2M1 ? 0x1p-125f
                                                         : 0.0f);
    const __m256 high = _mm256_set1_ps(code == TTK_E4M3 ? 0x1p26f : 0x1p67f);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 fits = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (int64_t i = 0; i < n; i += VEC) {
        __m256 size =
            n - i >= VEC ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, vec_mask(n - i));
        size = _mm256_andnot_ps(sign, size);
        __m256 is_zero = _mm256_cmp_ps(size, _mm256_setzero_ps(), _CMP_EQ_OQ);
        __m256 is_inside = _mm256_and_ps(_mm256_cmp_ps(size, low, _CMP_GE_OQ),
                                         _mm256_cmp_ps(size, high, _CMP_LT_OQ));
        fits = _mm256_and_ps(fits, _mm256_or_ps(is_zero, is_inside));
    }
    return _mm256_movemask_ps(fits) == 0xff;
}

/* What WAY_ZERO subtracts, from the zero points of 8 outputs. */
TTK_INLINE __m256 zero_shift(ttk_dtype code, __m256 zero)
{
    const float bias = code == TTK_I8     ? 128.0f
                       : code == TTK_I4   ? 8.0f
                       : code == TTK_I6   ? 32.0f
                       : code == TTK_E2M1 ? 6.0f
                                          : 0.0f;
    const float base = code == TTK_E2M1 ? 0x1p22f : 0x1p23f;
    return _mm256_add_ps(zero, _mm256_set1_ps(bias + base));
}

/* E4M3, k = is_odd and k = 2 + is_odd of each output: 16 bits each, the upper half of a f32 that is
 * 2^-117 times the number. Three more exponents than E4M3 has are made for its denormals, so that
 * they have a leading bit that is not stored: of the codes from 0 on become 0, 8, 16, 20, 24, 26,
 * 28, 30, then 32, 33 and so on. */
TTK_INLINE __m256i e4m3_pairs(__m256i bytes, bool is_odd)
{
    /* code + 24 less this; the sum of a code from 8 on and 0x78 has the upper bit, which gives
     * 0. */
    const __m256i excess = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 24, 17, 10, 7, 4, 3, 2, 1));
    __m256i size = _mm256_and_si256(bytes, _mm256_set1_epi8(0x7f));
    __m256i less = _mm256_shuffle_epi8(excess, _mm256_adds_epu8(size, _mm256_set1_epi8(0x78)));
    size = _mm256_sub_epi8(_mm256_add_epi8(size, _mm256_set1_epi8(24)), less);
    __m256i pairs = _mm256_maddubs_epi16(size, _mm256_set1_epi16(is_odd ? 16 << 8 : 16));
    __m256i top = is_odd ? bytes : _mm256_slli_epi16(bytes, 8);
    return _mm256_or_si256(pairs, _mm256_and_si256(top, _mm256_set1_epi16((short)0x8000)));
}

/* The numbers k = i of a quad, scaled as the way has it. `shift` is for WAY_ZERO. */
TTK_INLINE __m256 quad_floats(ttk_dtype code, way w, __m256i bytes, __m256 shift, int i)
{
    if (code == TTK_E4M3) {
        __m256i pairs = e4m3_pairs(bytes, i % 2);
        pairs = i < 2 ? _mm256_slli_epi32(pairs, 16)
                      : _mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u));
        __m256 number = _mm256_castsi256_ps(pairs);
        return w == WAY_EXACT /* + 0: no -0 */
                   ? _mm256_fmadd_ps(number, _mm256_set1_ps(0x1p117f), _mm256_setzero_ps())
                   : number;
    }
    const bool is_top = w == WAY_WHOLE && !is_unsigned(code);
    /* Lane l: byte 4l + i, and zeros. */
    const int first = is_top ? (i << 24) | 0x808080 : (int)0x80808000u + i;
    const int step = is_top ? 4 << 24 : 4;
    const __m256i pick = _mm256_setr_epi32(first, first + step, first + 2 * step, first + 3 * step,
                                           first, first + step, first + 2 * step, first + 3 * step);
    __m256i lane = _mm256_shuffle_epi8(bytes, pick);
    if (w == WAY_ZERO) {
        const __m256 base = _mm256_set1_ps(code == TTK_E2M1 ? 0x1p22f : 0x1p23f);
        lane = _mm256_or_si256(lane, _mm256_castps_si256(base));
        return _mm256_sub_ps(_mm256_castsi256_ps(lane), shift);
    }
    return _mm256_cvtepi32_ps(lane);
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

/* numbers[TTK_PANEL] *= sign * by[TTK_PANEL]. */
TTK_INLINE void times_panel(float *numbers, const float *by, float sign)
{
    const __m256 signs = _mm256_set1_ps(sign);
    for (int j = 0; j < TTK_PANEL; j += VEC) {
        const __m256 factor = _mm256_mul_ps(_mm256_loadu_ps(by + j), signs);
        _mm256_storeu_ps(numbers + j, _mm256_mul_ps(_mm256_loadu_ps(numbers + j), factor));
    }
}

#include "quant_factors.h"

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

/* ---- sums of a panel ---- */

/* The first n_columns numbers of acc[TTK_PANEL]. */
static inline void store_sums(float *y, const float *acc, int64_t n_columns)
{
    for (int64_t j = 0; j < TTK_PANEL && j < n_columns; j += VEC) {
        if (n_columns - j >= VEC) {
            _mm256_storeu_ps(y + j, _mm256_loadu_ps(acc + j));
        } else {
            _mm256_maskstore_ps(y + j, vec_mask(n_columns - j), _mm256_loadu_ps(acc + j));
        }
    }
}

#endif
