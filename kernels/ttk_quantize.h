/* ttk_quantize.h - what the versions of quantize share: the scale of a group, and one code. Private
 * to kernels/. The formulas are at ttk_quantize_fn in ttk.h. A vector version copies code_of
 * operation by operation, and a scalar tail may simply call it. */
#ifndef TUTTI_TTK_QUANTIZE_H
#define TUTTI_TTK_QUANTIZE_H
#include <math.h>
#include "ttk.h"
#include "ttk_math.h"

#define TTK_F16_LARGEST 65504.0f
#define TTK_E4M3_LARGEST 448.0f
enum {
    TTK_E4M3_TOP = 0x7e,
    TTK_E2M1_TOP_EXPONENT = 2, /* of 4 and 6 */
    TTK_E8M0_BIAS = 127,
    TTK_E8M0_NAN = 255,
    TTK_E4M3_MANTISSA_BITS = 3
};

/* ---- numbers to codes ---- */

/* Nearest even; magnitudes up to TTK_F16_LARGEST, and NaN. */
static inline uint16_t ttk_quantize_f16_of_f32(float x)
{
    uint32_t u = ttk_bits_of_f32(x);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    float size = fabsf(x);
    if (x != x) {
        return 0x7e00;
    }
    if (size < 0x1p-14f) { /* denormal: whole multiples of 2^-24 */
        return (uint16_t)(sign | (uint16_t)rintf(size * 0x1p24f));
    }
    uint32_t bits = ttk_bits_of_f32(size);
    bits += 0xfffu + (bits >> 13 & 1u);
    return (uint16_t)(sign | ((bits >> 13) - (112u << 10))); /* 112 = 127 - 15 */
}

/* Nearest even; magnitudes above the largest number become that. */
static inline unsigned char ttk_quantize_e4m3_of_f32(float x)
{
    unsigned char sign = signbit(x) ? 0x80 : 0;
    float size = fabsf(x);
    if (size >= TTK_E4M3_LARGEST) {
        return sign | TTK_E4M3_TOP;
    }
    if (size < 0x1p-6f) { /* denormal: whole multiples of 2^-9; 8 of them are the first normal */
        return (unsigned char)(sign | (unsigned char)rintf(size * 0x1p9f));
    }
    const int drop = TTK_F32_MANTISSA_BITS - TTK_E4M3_MANTISSA_BITS;
    uint32_t bits = ttk_bits_of_f32(size);
    bits += (1u << (drop - 1)) - 1u + (bits >> drop & 1u);
    /* 127 - 7 */
    return (unsigned char)(sign | ((bits >> drop) - (120u << TTK_E4M3_MANTISSA_BITS)));
}

/* Nearest, of two equally near the even code; above 6 becomes 6; -0 becomes 0. */
static inline unsigned char ttk_quantize_e2m1_of_f32(float x)
{
    float size = fabsf(x);
    int code = size <= 0.25f   ? 0
               : size < 0.75f  ? 1
               : size <= 1.25f ? 2
               : size < 1.75f  ? 3
               : size <= 2.5f  ? 4
               : size < 3.5f   ? 5
               : size <= 5.0f  ? 6
                               : 7;
    return (unsigned char)(x < 0.0f && code ? code | 8 : code);
}

/* Nearest even whole number in [low, high]. */
static inline int ttk_quantize_whole_of_f32(float x, int low, int high)
{
    float whole = rintf(x);
    return whole < (float)low ? low : whole > (float)high ? high : (int)whole;
}

/* ---- scales ---- */

/* Stores the number of the type nearest to x as element i of scales and returns it; in size not
 * below the smallest positive, unless x is 0, nor above the largest or `limit`. */
static inline float ttk_quantize_put_scale(ttk_dtype type, void *scales, int64_t i, float x,
                                           float limit)
{
    float largest = type == TTK_F16 && TTK_F16_LARGEST < limit ? TTK_F16_LARGEST : limit;
    float smallest = type == TTK_F16 ? 0x1p-24f : type == TTK_BF16 ? 0x1p-133f : 0x1p-149f;
    float size = fabsf(x);
    if (x == x && size != 0.0f) {
        size = size > largest ? largest : size < smallest ? smallest : size;
        x = copysignf(size, x);
    }
    if (type == TTK_F16) {
        ((uint16_t *)scales)[i] = ttk_quantize_f16_of_f32(x);
    } else if (type == TTK_BF16) {
        ((ttk_bf16 *)scales)[i] = ttk_math_bf16_of_f32(x);
    } else {
        ((float *)scales)[i] = x;
    }
    return ttk_number(type, scales, i);
}

/* A power of two such that `extreme` lies in [4, 8) of it. */
static inline float ttk_quantize_put_exponent(void *scales, int64_t i, float extreme)
{
    int exponent = 0;
    if (extreme != 0.0f) {
        frexpf(extreme, &exponent); /* in [0.5, 1) of 2^exponent */
        exponent -= 1 + TTK_E2M1_TOP_EXPONENT;
    }
    int byte = ttk_quantize_whole_of_f32((float)(exponent + TTK_E8M0_BIAS), 0, TTK_E8M0_NAN - 1);
    ((unsigned char *)scales)[i] = extreme != extreme ? TTK_E8M0_NAN : (unsigned char)byte;
    return ttk_number(TTK_E8M0, scales, i);
}

/* The limits keep the numbers of the largest codes finite. */
static inline float ttk_quantize_group_scale(const ttk_format *format, void *scales, int64_t i,
                                             float extreme)
{
    switch (format->code) {
    case TTK_I8:
        return ttk_quantize_put_scale(format->scale, scales, i, fabsf(extreme) / 127.0f, 0x1p120f);
    case TTK_I4:
        return ttk_quantize_put_scale(format->scale, scales, i, extreme / -8.0f, 0x1p124f);
    case TTK_E4M3:
        return ttk_quantize_put_scale(format->scale, scales, i, fabsf(extreme) / TTK_E4M3_LARGEST,
                                      0x1p119f);
    default:
        return ttk_quantize_put_exponent(scales, i, extreme);
    }
}

static inline unsigned char ttk_quantize_code_of(ttk_dtype code, float x)
{
    switch (code) {
    case TTK_I8:
        return (unsigned char)ttk_quantize_whole_of_f32(x, -127, 127);
    case TTK_I4:
        return (unsigned char)(ttk_quantize_whole_of_f32(x, -8, 7) + 8);
    case TTK_E4M3:
        return ttk_quantize_e4m3_of_f32(x);
    default:
        return ttk_quantize_e2m1_of_f32(x);
    }
}

#endif
