/* quant_both.h - from packed quantised codes to f32, for all formats. Included by each ISA's
 * quant_*.h, which supplies its registers (vec_*.h), vec_or_and, vec_load_f16, vec_load_bytes
 * and vec_of_e8m0.
 *
 * A quad is VEC outputs by 4 k: 32 or 64 bytes, of which byte i of a 32-bit lane is k = i. There
 * are three ways from a byte to a float:
 *   whole  a signed byte is shuffled to the top of its lane (an unsigned one to the bottom) and
 *          converted: 2^24 times the number. E2M1 is looked up as twice its number, so 2^25 times.
 *          E4M3 becomes 2^-117 times its number, the smallest of which is then 2^-126: no f32 that
 *          a CPU would be slow with. x is multiplied by 2^100 beforehand, so that products are
 *          2^-17 times what they should be.
 *   exact  E4M3 the same, but multiplied by 2^117 at once; for an x of unusual size
 *   zero   an unsigned byte becomes the lowest bits of a number whose last place is worth a step of
 *          the code, from which that number, the code's bias and the zero point are subtracted
 * A chain of scaled products has the bits of the scaled chain as long as neither leaves the range
 * of f32: every partial sum is a multiple of the last place of some x times that of the codes (1,
 * 1/2 or 2^-9), which must not fall below 2^-149, and the largest must stay below 2^128. x_fits
 * says whether that holds for x. */
#ifndef TUTTI_TTK_QUANT_BOTH_H
#define TUTTI_TTK_QUANT_BOTH_H

enum { QUAD = 4, BLOCKS = TTK_PANEL / VEC }; /* k of a quad; registers across a panel */

typedef enum way { WAY_WHOLE, WAY_EXACT, WAY_ZERO } way;

/* The bytes of quad q (of the unit), outputs VEC*h and on, without the bias of the code or with it
 * (WAY_ZERO: byte * step - bias is the number). E4M3 as it is. */
TTK_INLINE veci quad_bytes(ttk_dtype code, way w, const unsigned char *unit, int q, int h)
{
    const veci low4 = MM(set1_epi8)(0x0f), up2 = MM(set1_epi8)(0x30);
    const unsigned char *plane = unit + (code == TTK_I6 ? q / 2 * TTK_PLANE_BYTES : 0);
    veci raw = MMI(loadu)((const veci *)(plane + h * (VEC * QUAD)));
    switch (code) {
    case TTK_I8:
        return w == WAY_ZERO ? MMI(xor)(raw, MM(set1_epi8)((char)0x80)) : raw;
    case TTK_U8:
    case TTK_E4M3:
        return raw;
    default:
        break;
    }
    veci nibble = MMI(and)(q % 2 ? MM(srli_epi16)(raw, 4) : raw, low4);
    if (code == TTK_E2M1) {
        const veci twice = vec_spread(
            w == WAY_ZERO ? _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)
                          : _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
        return MM(shuffle_epi8)(twice, nibble);
    }
    if (code == TTK_I4 && w != WAY_ZERO) {
        return MM(sub_epi8)(nibble, MM(set1_epi8)(8));
    }
    if (code == TTK_I6) {
        const unsigned char *upper = unit + 2 * TTK_PLANE_BYTES + h * (VEC * QUAD);
        veci two = MMI(loadu)((const veci *)upper);
        two = q == 0   ? MM(slli_epi16)(two, 4)
              : q == 1 ? MM(slli_epi16)(two, 2)
              : q == 3 ? MM(srli_epi16)(two, 2)
                       : two;
        veci six = MMI(or)(nibble, MMI(and)(two, up2));
        return w == WAY_ZERO ? six : MM(sub_epi8)(six, MM(set1_epi8)(32));
    }
    return nibble;
}

/* Quad q of a unit: to[TTK_PLANE_BYTES]. */
TTK_INLINE void store_quad(unsigned char *to, ttk_dtype code, way w, const unsigned char *unit,
                           int q)
{
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        MMI(store)((veci *)(void *)(to + h * (VEC * QUAD)), quad_bytes(code, w, unit, q, h));
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
TTK_INLINE vec load_x(ttk_dtype code, way w, const float *x)
{
    vec x_k = MM(set1_ps)(*(x));
    return code == TTK_E4M3 && w == WAY_WHOLE ? MM(mul_ps)(x_k, MM(set1_ps)(0x1p100f)) : x_k;
}

/* Sums of x times codes by WAY_WHOLE have the right bits if x's finite elements that are not 0 lie
 * in [fit_low, fit_high) of the code. Whole numbers: any small x, as its last place is at least
 * 2^-149. 2^67 leaves room for 2^7 times 2^30 k. Halves: one place less. */
TTK_INLINE float fit_low(ttk_dtype code)
{
    return code == TTK_E4M3 ? 0x1p-100f : code == TTK_E2M1 ? 0x1p-125f : 0.0f;
}

TTK_INLINE float fit_high(ttk_dtype code)
{
    return code == TTK_E4M3 ? 0x1p26f : 0x1p67f;
}

/* What WAY_ZERO subtracts, from the zero points of VEC outputs. */
TTK_INLINE vec zero_shift(ttk_dtype code, vec zero)
{
    const float bias = code == TTK_I8     ? 128.0f
                       : code == TTK_I4   ? 8.0f
                       : code == TTK_I6   ? 32.0f
                       : code == TTK_E2M1 ? 6.0f
                                          : 0.0f;
    const float base = code == TTK_E2M1 ? 0x1p22f : 0x1p23f;
    return MM(add_ps)(zero, MM(set1_ps)(bias + base));
}

/* E4M3, k = is_odd and k = 2 + is_odd of each output: 16 bits each, the upper half of a f32 that is
 * 2^-117 times the number. Three more exponents than E4M3 has are made for its denormals, so that
 * they have a leading bit that is not stored: of the codes from 0 on become 0, 8, 16, 20, 24, 26,
 * 28, 30, then 32, 33 and so on. */
TTK_INLINE veci e4m3_pairs(veci bytes, bool is_odd)
{
    /* code + 24 less this; the sum of a code from 8 on and 0x78 has the upper bit, which gives
     * 0. */
    const veci excess =
        vec_spread(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 24, 17, 10, 7, 4, 3, 2, 1));
    veci size = MMI(and)(bytes, MM(set1_epi8)(0x7f));
    veci less = MM(shuffle_epi8)(excess, MM(adds_epu8)(size, MM(set1_epi8)(0x78)));
    size = MM(sub_epi8)(MM(add_epi8)(size, MM(set1_epi8)(24)), less);
    veci pairs = MM(maddubs_epi16)(size, MM(set1_epi16)(is_odd ? 16 << 8 : 16));
    veci top = is_odd ? bytes : MM(slli_epi16)(bytes, 8);
    return vec_or_and(pairs, top, MM(set1_epi16)((short)0x8000));
}

/* The numbers k = i of a quad, scaled as the way has it. `shift` is for WAY_ZERO. */
TTK_INLINE vec quad_floats(ttk_dtype code, way w, veci bytes, vec shift, int i)
{
    if (code == TTK_E4M3) {
        veci pairs = e4m3_pairs(bytes, i % 2);
        pairs =
            i < 2 ? MM(slli_epi32)(pairs, 16) : MMI(and)(pairs, MM(set1_epi32)((int)0xffff0000u));
        vec number = vec_of_bits(pairs);
        return w == WAY_EXACT /* + 0: no -0 */
                   ? MM(fmadd_ps)(number, MM(set1_ps)(0x1p117f), MM(setzero_ps)())
                   : number;
    }
    const bool is_top = w == WAY_WHOLE && !is_unsigned(code);
    /* Lane l: byte 4l + i, and zeros. */
    const int first = is_top ? (i << 24) | 0x808080 : (int)0x80808000u + i;
    const int step = is_top ? 4 << 24 : 4;
    const veci pick =
        vec_spread(_mm_setr_epi32(first, first + step, first + 2 * step, first + 3 * step));
    veci lane = MM(shuffle_epi8)(bytes, pick);
    if (w == WAY_ZERO) {
        const vec base = MM(set1_ps)(code == TTK_E2M1 ? 0x1p22f : 0x1p23f);
        lane = MMI(or)(lane, MMI(castps)(base));
        return MM(sub_ps)(vec_of_bits(lane), shift);
    }
    return MM(cvtepi32_ps)(lane);
}

/* ---- scales and shifts of a group, as f32 for the BLOCKS registers of a panel ---- */

/* VEC numbers of a type from number `at`. */
TTK_INLINE vec load_numbers(ttk_dtype type, const unsigned char *array, int at)
{
    const unsigned char *from = array + (size_t)at * ttk_dtype_bytes(type);
    switch (type) {
    case TTK_F32:
        return MM(loadu_ps)((const float *)from);
    case TTK_BF16:
        return vec_load_bf16((const ttk_bf16 *)from);
    case TTK_F16:
        return vec_load_f16(from);
    case TTK_I8:
        return MM(cvtepi32_ps)(MM(cvtepi8_epi32)(vec_load_bytes(from)));
    case TTK_E8M0:
        return vec_of_e8m0(MM(cvtepu8_epi32)(vec_load_bytes(from)));
    default:
        return MM(cvtepi32_ps)(MM(cvtepu8_epi32)(vec_load_bytes(from)));
    }
}

TTK_INLINE void load_panel_numbers(ttk_dtype type, const unsigned char *array, float *to)
{
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        MM(storeu_ps)(to + h * VEC, load_numbers(type, array, h * VEC));
    }
}

/* numbers[TTK_PANEL] *= sign * by[TTK_PANEL]. */
TTK_INLINE void times_panel(float *numbers, const float *by, float sign)
{
    const vec signs = MM(set1_ps)(sign);
    for (int j = 0; j < TTK_PANEL; j += VEC) {
        const vec factor = MM(mul_ps)(MM(loadu_ps)(by + j), signs);
        MM(storeu_ps)(numbers + j, MM(mul_ps)(MM(loadu_ps)(numbers + j), factor));
    }
}

#include "quant_factors.h"

/* ---- NaN among the codes of E4M3: rare, so they are looked for together ---- */

/* Collects the bytes without their signs; 0x7f remains visible. */
TTK_INLINE veci nan_seen(veci worst, veci bytes)
{
    return MM(max_epu8)(worst, MMI(and)(bytes, MM(set1_epi8)(0x7f)));
}

static inline bool is_nan_code(unsigned char code)
{
    return (code & 0x7f) == 0x7f;
}

#endif
