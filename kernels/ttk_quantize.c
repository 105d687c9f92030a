/* ttk_quantize.c - rounds rows of floats to a quantised format: a scale per group from its largest
 * element, then each element to the nearest code. The formulas are at ttk_quantize in ttk.h. */
#include <math.h>
#include "ttk.h"
#include "ttk_math.h"

#define F16_LARGEST 65504.0f
#define E4M3_LARGEST 448.0f
enum {
    E4M3_LARGEST_CODE = 0x7e,
    E2M1_TOP_EXPONENT = 2, /* of 4 and 6 */
    E8M0_BIAS = 127,
    E8M0_NAN = 255,
    CODE_MANTISSA_BITS = 3 /* of E4M3 */
};

/* ---- numbers to codes ---- */

/* Nearest even; magnitudes up to F16_LARGEST, and NaN. */
static uint16_t f16_of_f32(float x)
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
static unsigned char e4m3_of_f32(float x)
{
    unsigned char sign = signbit(x) ? 0x80 : 0;
    float size = fabsf(x);
    if (size >= E4M3_LARGEST) {
        return sign | E4M3_LARGEST_CODE;
    }
    if (size < 0x1p-6f) { /* denormal: whole multiples of 2^-9; 8 of them are the first normal */
        return (unsigned char)(sign | (unsigned char)rintf(size * 0x1p9f));
    }
    const int drop = TTK_F32_MANTISSA_BITS - CODE_MANTISSA_BITS;
    uint32_t bits = ttk_bits_of_f32(size);
    bits += (1u << (drop - 1)) - 1u + (bits >> drop & 1u);
    return (unsigned char)(sign | ((bits >> drop) - (120u << CODE_MANTISSA_BITS))); /* 127 - 7 */
}

/* Nearest, of two equally near the even code; above 6 becomes 6; -0 becomes 0. */
static unsigned char e2m1_of_f32(float x)
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
static int whole_of_f32(float x, int low, int high)
{
    float whole = rintf(x);
    return whole < (float)low ? low : whole > (float)high ? high : (int)whole;
}

/* ---- scales ---- */

/* Stores the number of the type nearest to x as element i of scales and returns it; in size not below
 * the smallest positive, unless x is 0, nor above the largest or `limit`. */
static float put_scale(ttk_dtype type, void *scales, int64_t i, float x, float limit)
{
    float largest = type == TTK_F16 && F16_LARGEST < limit ? F16_LARGEST : limit;
    float smallest = type == TTK_F16 ? 0x1p-24f : type == TTK_BF16 ? 0x1p-133f : 0x1p-149f;
    float size = fabsf(x);
    if (x == x && size != 0.0f) {
        size = size > largest ? largest : size < smallest ? smallest : size;
        x = copysignf(size, x);
    }
    if (type == TTK_F16) {
        ((uint16_t *)scales)[i] = f16_of_f32(x);
    } else if (type == TTK_BF16) {
        ((ttk_bf16 *)scales)[i] = ttk_math_bf16_of_f32(x);
    } else {
        ((float *)scales)[i] = x;
    }
    return ttk_number(type, scales, i);
}

/* A power of two such that `extreme` lies in [4, 8) of it. */
static float put_exponent(void *scales, int64_t i, float extreme)
{
    int exponent = 0;
    if (extreme != 0.0f) {
        frexpf(extreme, &exponent); /* in [0.5, 1) of 2^exponent */
        exponent -= 1 + E2M1_TOP_EXPONENT;
    }
    int byte = whole_of_f32((float)(exponent + E8M0_BIAS), 0, E8M0_NAN - 1);
    ((unsigned char *)scales)[i] = extreme != extreme ? E8M0_NAN : (unsigned char)byte;
    return ttk_number(TTK_E8M0, scales, i);
}

/* The element of the largest magnitude (the first of such), NaN if one is not finite. */
static float extreme_of(const float *x, int64_t n)
{
    float extreme = 0.0f;
    for (int64_t k = 0; k < n; k++) {
        if (!isfinite(x[k])) {
            return NAN;
        }
        extreme = fabsf(x[k]) > fabsf(extreme) ? x[k] : extreme;
    }
    return extreme;
}

/* The limits keep the numbers of the largest codes finite. */
static float group_scale(const ttk_format *format, void *scales, int64_t i, float extreme)
{
    switch (format->code) {
    case TTK_I8:
        return put_scale(format->scale, scales, i, fabsf(extreme) / 127.0f, 0x1p120f);
    case TTK_I4:
        return put_scale(format->scale, scales, i, extreme / -8.0f, 0x1p124f);
    case TTK_E4M3:
        return put_scale(format->scale, scales, i, fabsf(extreme) / E4M3_LARGEST, 0x1p119f);
    default:
        return put_exponent(scales, i, extreme);
    }
}

static unsigned char code_of(ttk_dtype code, float x)
{
    switch (code) {
    case TTK_I8:
        return (unsigned char)whole_of_f32(x, -127, 127);
    case TTK_I4:
        return (unsigned char)(whole_of_f32(x, -8, 7) + 8);
    case TTK_E4M3:
        return e4m3_of_f32(x);
    default:
        return e2m1_of_f32(x);
    }
}

bool ttk_can_quantize(const ttk_format *format)
{
    bool is_float =
        format->scale == TTK_F32 || format->scale == TTK_BF16 || format->scale == TTK_F16;
    bool is_known = format->code == TTK_I8 || format->code == TTK_I4 || format->code == TTK_E4M3;
    return format->shift == TTK_SHIFT_NONE && format->super == 0 && format->group > 0 &&
           (is_known ? is_float : format->code == TTK_E2M1 && format->scale == TTK_E8M0);
}

void ttk_quantize(const ttk_format *format, const float *src, int64_t n, int64_t K,
                  const ttk_unpacked *dst)
{
    int64_t G = K > 0 ? (K - 1) / format->group + 1 : 0;
    unsigned char *codes = (unsigned char *)dst->code; /* which are written here */
    for (int64_t row = 0; row < n; row++) {
        for (int64_t g = 0; g < G; g++) {
            int64_t begin = g * format->group;
            int64_t n_k = K - begin < format->group ? K - begin : format->group;
            const float *x = src + row * K + begin;
            float extreme = extreme_of(x, n_k);
            float scale = group_scale(format, (void *)dst->scale, row * G + g, extreme);
            bool has_codes = extreme == extreme && scale != 0.0f;
            for (int64_t k = 0; k < n_k; k++) {
                codes[row * K + begin + k] = code_of(format->code, has_codes ? x[k] / scale : 0.0f);
            }
        }
    }
}
