/* ttk_math.h - the scalar arithmetic that every version of a kernel shares: exp, sigmoid, bf16 and
 * f16 conversions, and the 16-lane sum. Private to kernels/.
 *
 * These few functions define the bits. Each step is one rounded operation (an explicit fmaf where a
 * fused step is meant), so a vector version copies it operation by operation, and a scalar tail may
 * simply call it.
 *
 * exp(x): n = x / ln 2 rounded to nearest by adding 1.5 * 2^23; r = x - n ln 2 in two parts (the
 * first exact); a polynomial for e^r on [-ln2/2, ln2/2] (coefficients: Cephes expf, S. Moshier);
 * then n is added to the exponent field. Inside [TTK_EXP_MIN, TTK_EXP_MAX] neither the polynomial
 * nor the result leaves the normal numbers. */
#ifndef TUTTI_TTK_MATH_H
#define TUTTI_TTK_MATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "ttk.h"

enum { TTK_LANES = 16 }; /* of the sums that are not chains */

#define TTK_EXP_MIN (-87.3f) /* below: +0; e^-87.3 is just above the smallest normal number */
#define TTK_EXP_MAX 88.7f    /* above: +inf; e^88.7 is just below the largest number */
#define TTK_EXP_LOG2E 0x1.715476p+0f
#define TTK_EXP_ROUND 0x1.8p+23f    /* adding it leaves the nearest integer in the low bits */
#define TTK_EXP_LN2_HI 0x1.62e4p-1f /* 17 bits, so n * LN2_HI is exact */
#define TTK_EXP_LN2_LO 0x1.7f7d1cp-20f
#define TTK_EXP_C0 1.9875691500e-4f
#define TTK_EXP_C1 1.3981999507e-3f
#define TTK_EXP_C2 8.3334519073e-3f
#define TTK_EXP_C3 4.1665795894e-2f
#define TTK_EXP_C4 1.6666665459e-1f
#define TTK_EXP_C5 5.0000001201e-1f
enum { TTK_F32_MANTISSA_BITS = 23 };

static inline uint32_t ttk_bits_of_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float ttk_f32_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline float ttk_math_exp(float x)
{
    if (x != x) {
        return x;
    }
    if (x < TTK_EXP_MIN) {
        return 0.0f;
    }
    if (x > TTK_EXP_MAX) {
        return INFINITY;
    }
    float t = fmaf(x, TTK_EXP_LOG2E, TTK_EXP_ROUND);
    float n = t - TTK_EXP_ROUND;
    float r = fmaf(n, -TTK_EXP_LN2_HI, x);
    r = fmaf(n, -TTK_EXP_LN2_LO, r);
    float p = fmaf(TTK_EXP_C0, r, TTK_EXP_C1);
    p = fmaf(p, r, TTK_EXP_C2);
    p = fmaf(p, r, TTK_EXP_C3);
    p = fmaf(p, r, TTK_EXP_C4);
    p = fmaf(p, r, TTK_EXP_C5);
    p = fmaf(p, r * r, r);
    p = p + 1.0f;
    /* The low bits of t hold n in two's complement; the shift drops what lies above them. */
    return ttk_f32_of_bits(ttk_bits_of_f32(p) + (ttk_bits_of_f32(t) << TTK_F32_MANTISSA_BITS));
}

/* ln(1 + u) for u in [0, 1]: w = 1 + u rounded, and what the rounding lost counts as c / w (u - (w
 * - 1) is exact). ln w: w is brought into [sqrt(1/2), sqrt(2)] by a halving at most; a polynomial
 * of f = w - 1 (coefficients: Cephes logf, S. Moshier). */
#define TTK_LOG_SQRT2 1.41421356f
#define TTK_LOG_LN2_HI 0.693359375f
#define TTK_LOG_LN2_LO (-2.12194440e-4f)
static inline float ttk_math_log1p(float u)
{
    static const float coefficient[] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f,
                                        1.4249322787e-1f,  -1.6668057665e-1f, 2.0000714765e-1f,
                                        -2.4999993993e-1f, 3.3333331174e-1f};
    float w = 1.0f + u;
    float lost = (u - (w - 1.0f)) / w;
    bool is_upper = w > TTK_LOG_SQRT2;
    float f = is_upper ? fmaf(w, 0.5f, -1.0f) : w - 1.0f;
    float p = 7.0376836292e-2f;
    for (int i = 0; i < 8; i++) {
        p = fmaf(p, f, coefficient[i]);
    }
    float z = f * f;
    float y = (p * f) * z;
    if (is_upper) {
        y = y + TTK_LOG_LN2_LO;
    }
    y = fmaf(-0.5f, z, y);
    y = y + lost;
    y = f + y;
    return is_upper ? y + TTK_LOG_LN2_HI : y;
}

static inline float ttk_math_softplus(float x)
{
    float magnitude = x > 0.0f ? x : -x;
    float rest = ttk_math_log1p(ttk_math_exp(-magnitude));
    return x > 0.0f ? x + rest : rest;
}

static inline float ttk_math_sigmoid(float x)
{
    return 1.0f / (1.0f + ttk_math_exp(-x));
}

static inline float ttk_math_silu_mul(float gate, float up)
{
    return (gate * ttk_math_sigmoid(gate)) * up;
}

static inline float ttk_math_clamped_mul(float gate, float up, float limit, float alpha)
{
    float g = gate > limit ? limit : gate;
    float u = up > limit ? limit : up;
    u = u < -limit ? -limit : u;
    return (g * ttk_math_sigmoid(alpha * g)) * (u + 1.0f);
}

static inline float ttk_math_f32_of_bf16(ttk_bf16 b)
{
    return ttk_f32_of_bits((uint32_t)b << 16);
}

/* Round to nearest even on the upper 16 bits; a carry runs into the exponent, and from the largest
 * one to inf, as it should. NaN is made quiet, since its upper half alone may be that of inf. */
static inline ttk_bf16 ttk_math_bf16_of_f32(float x)
{
    uint32_t u = ttk_bits_of_f32(x);
    if (x != x) {
        return (ttk_bf16)((u >> 16) | 0x40u);
    }
    return (ttk_bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Exact: every binary16 value is a binary32 value. */
static inline float ttk_math_f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1fu) { /* inf, NaN */
        return ttk_f32_of_bits(sign | 0x7f800000u | mantissa << 13);
    }
    if (exponent != 0) { /* 112 = 127 - 15, the difference of the exponent biases */
        return ttk_f32_of_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
    }
    float magnitude = (float)mantissa * 0x1p-24f; /* zero and denormals */
    return ttk_f32_of_bits(sign | ttk_bits_of_f32(magnitude));
}

/* The tree that ends a 16-lane sum; lane[TTK_LANES] is spent. */
static inline float ttk_math_lanes16(float *lane)
{
    for (int half = TTK_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] = lane[i] + lane[i + half];
        }
    }
    return lane[0];
}

#endif
