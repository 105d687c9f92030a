/* row8.c - rows as bytes: blocks of a scale and codes. */
#include "ttk_act8.h"
#include "ttk_math.h"
#include "ttk_versions.h"
#include <string.h>

enum {
    E4M3_MOST = 0x7e, /* the code of 448 */
    E4M3_MOST_EXPONENT = 8,
    E4M3_LOST_BITS = 20, /* of a float's 23 fraction bits */
    E8M0_BIAS = 127,
    E8M0_NAN = 255
};
#define E4M3_LEAST_NORMAL 0x1p-6f
/* Added to a float, it leaves a multiple of 2^-9 in the lowest bits. */
#define E4M3_DENORMAL_STEP_SHIFT 0x1p14f

/* The largest magnitude; NaN if any element is not finite. */
static float largest_of(const float *x, int64_t n)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        if (!(size < INFINITY)) {
            return NAN;
        }
        largest = size > largest ? size : largest;
    }
    return largest;
}

float ttk_act8_round(int8_t *code, const float *x, int64_t n)
{
    const float largest = largest_of(x, n);
    memset(code, 0, TTK_ACT_GROUP);
    if (!(largest >= TTK_ACT8_LEAST)) {
        return largest < TTK_ACT8_LEAST ? 0.0f : NAN;
    }
    const float inverse = 127.0f / largest;
    for (int64_t i = 0; i < n; i++) {
        code[i] = (int8_t)rintf(x[i] * inverse);
    }
    return largest / 127.0f;
}

/* v in (-512, 512). */
static unsigned char e4m3_of(float v)
{
    const uint32_t sign = ttk_bits_of_f32(v) >> 31 << 7;
    const float size = fabsf(v);
    uint32_t code;
    if (size < E4M3_LEAST_NORMAL) {
        code = ttk_bits_of_f32(size + E4M3_DENORMAL_STEP_SHIFT) -
               ttk_bits_of_f32(E4M3_DENORMAL_STEP_SHIFT);
    } else {
        const uint32_t bits = ttk_bits_of_f32(size);
        const uint32_t half_less = (1u << (E4M3_LOST_BITS - 1)) - 1,
                       is_odd = bits >> E4M3_LOST_BITS & 1;
        code = ((bits + half_less + is_odd) >> E4M3_LOST_BITS) - ((E8M0_BIAS - 7) << 3);
        code = code < E4M3_MOST ? code : E4M3_MOST;
    }
    return (unsigned char)(code | sign);
}

/* code[n]; returns the scale's byte. */
static unsigned char round_fp8(unsigned char *code, const float *x, int64_t n)
{
    const float largest = largest_of(x, n);
    memset(code, 0, (size_t)n);
    if (!(largest >= TTK_ACT8_LEAST)) {
        return largest < TTK_ACT8_LEAST ? 0 : E8M0_NAN;
    }
    /* with its bias */
    const uint32_t scale = (ttk_bits_of_f32(largest) >> TTK_F32_MANTISSA_BITS) - E4M3_MOST_EXPONENT;
    const float inverse = ttk_f32_of_bits((2 * E8M0_BIAS - scale) << TTK_F32_MANTISSA_BITS);
    for (int64_t i = 0; i < n; i++) {
        code[i] = e4m3_of(x[i] * inverse);
    }
    return (unsigned char)scale;
}

static int64_t block_at(int64_t n, int64_t at)
{
    return n - at < TTK_ACT_GROUP ? n - at : TTK_ACT_GROUP;
}

void ttk_row8_ref(ttk_row8_form form, void *row, const float *x, int64_t n)
{
    for (int64_t at = 0; at < n; at += TTK_ACT_GROUP) {
        unsigned char *to = (unsigned char *)row + ttk_row8_bytes(form, at);
        const int64_t n_block = block_at(n, at);
        if (form == TTK_ROW8_FP8) {
            *to = round_fp8(to + 1, x + at, n_block);
        } else {
            int8_t code[TTK_ACT_GROUP];
            const float scale = ttk_act8_round(code, x + at, n_block);
            memcpy(to, &scale, sizeof(scale));
            memcpy(to + sizeof(scale), code, (size_t)n_block);
        }
    }
}

void ttk_row8_f32_ref(ttk_row8_form form, float *x, const void *row, int64_t n)
{
    for (int64_t at = 0; at < n; at += TTK_ACT_GROUP) {
        const unsigned char *from = (const unsigned char *)row + ttk_row8_bytes(form, at);
        float scale = form == TTK_ROW8_FP8 ? ttk_number(TTK_E8M0, from, 0) : 0.0f;
        if (form == TTK_ROW8_INT8) {
            memcpy(&scale, from, sizeof(scale));
        }
        const unsigned char *code = from + (form == TTK_ROW8_FP8 ? 1 : sizeof(scale));
        for (int64_t i = 0; i < block_at(n, at); i++) {
            x[at + i] = ttk_number(form == TTK_ROW8_FP8 ? TTK_E4M3 : TTK_I8, code, i) * scale;
        }
    }
}
