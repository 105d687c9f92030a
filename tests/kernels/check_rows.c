/* check_rows.c - checkers of the ops on rows and single elements: norm, rope, silu, add, axpy, bf16
 * conversions, sigmoid, softmax. */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_T = 6, MAX_WIDTH = 700, MAX_LENGTH = 3000, MAX_HEADS = 5, MAX_HEAD = 200 };

bool check_rmsnorm_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_rmsnorm_f32_fn *run = (ttk_rmsnorm_f32_fn *)fn;
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t T = rng_below(r, MAX_T);
    int64_t H = rng_size(r, MAX_WIDTH);
    int64_t ldx = H + rng_below(r, 3);
    int64_t ldy = H + rng_below(r, 3);
    bool has_g = rng_below(r, 3) != 0;
    bool in_place = rng_below(r, 3) == 0;
    float eps = rng_below(r, 4) == 0 ? 0.0f : 1e-6f;
    char what[120];
    snprintf(what, sizeof(what), "rmsnorm T %lld H %lld g %d in place %d values %d", (long long)T,
             (long long)H, has_g, in_place, kind);
    buffer x = filled(r, strided(T, ldx, H), kind);
    buffer g = filled(r, (size_t)H, kind);
    const float *g_or_none = has_g ? buffer_f32(&g) : NULL;
    buffer got = in_place ? buffer_copy(&x) : buffer_new(strided(T, ldy, H), sizeof(float));
    buffer want = buffer_copy(&got);
    bool ok;
    if (in_place) {
        run(buffer_f32(&got), ldx, buffer_f32(&got), ldx, g_or_none, T, H, eps);
        ((ttk_rmsnorm_f32_fn *)ref)(buffer_f32(&want), ldx, buffer_f32(&want), ldx, g_or_none, T, H,
                                    eps);
        ok = same_f32(&got, &want, what);
    } else {
        run(buffer_f32(&got), ldy, buffer_f32(&x), ldx, g_or_none, T, H, eps);
        ((ttk_rmsnorm_f32_fn *)ref)(buffer_f32(&want), ldy, buffer_f32(&x), ldx, g_or_none, T, H,
                                    eps);
        ok = same_f32(&got, &want, what) && gaps_kept(&got, T, ldy, H, what);
        for (int64_t t = 0; ok && kind == VALUES_PLAIN && t < T; t++) {
            double sum = 0.0;
            for (int64_t h = 0; h < H; h++) {
                sum += (double)buffer_f32(&x)[t * ldx + h] * (double)buffer_f32(&x)[t * ldx + h];
            }
            double scale = 1.0 / sqrt(sum / (double)H + (double)eps);
            for (int64_t h = 0; ok && h < H; h++) {
                double y = (double)buffer_f32(&x)[t * ldx + h] * scale *
                           (has_g ? (double)buffer_f32(&g)[h] : 1.0);
                /* A lane sums H / 16 squares and the tree 4 more; six roundings follow, and sqrt
                 * halves the former. */
                double bound = fabs(y) * HALF_ULP * ((double)H / 16.0 + 16.0);
                ok = close_to(buffer_f32(&got)[t * ldy + h], y, bound, what, h);
            }
        }
    }
    BUFFERS_FREE(&x, &g, &got, &want);
    return ok;
}

bool check_rope_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t n_heads = rng_below(r, MAX_HEADS);
    int64_t d = rng_size(r, MAX_HEAD) / 2 * 2;
    int64_t stride = d + rng_below(r, 5);
    bool interleaved = rng_below(r, 2) == 0;
    char what[120];
    snprintf(what, sizeof(what), "rope heads %lld d %lld interleaved %d values %d",
             (long long)n_heads, (long long)d, interleaved, kind);
    buffer x = filled(r, strided(n_heads, stride, d), kind);
    buffer c = filled(r, (size_t)(d / 2), kind);
    buffer s = filled(r, (size_t)(d / 2), kind);
    buffer got = buffer_copy(&x);
    buffer want = buffer_copy(&x);
    ((ttk_rope_f32_fn *)fn)(got.data, n_heads, stride, d, c.data, s.data, interleaved);
    ((ttk_rope_f32_fn *)ref)(want.data, n_heads, stride, d, c.data, s.data, interleaved);
    bool ok = same_f32(&got, &want, what);
    for (int64_t h = 0; ok && h < n_heads; h++) {
        const float *old = buffer_f32(&x) + h * stride;
        const float *now = buffer_f32(&got) + h * stride;
        for (int64_t i = d; ok && h + 1 < n_heads && i < stride; i++) {
            ok = same_value(old[i], now[i]) ||
                 fault("%s: changed the gap behind head %lld", what, (long long)h);
        }
        for (int64_t i = 0; ok && kind == VALUES_PLAIN && i < d / 2; i++) {
            int64_t at_a = interleaved ? 2 * i : i;
            int64_t at_b = interleaved ? 2 * i + 1 : i + d / 2;
            double a = (double)old[at_a];
            double b = (double)old[at_b];
            double cos_i = (double)buffer_f32(&c)[i];
            double sin_i = (double)buffer_f32(&s)[i];
            double bound = 2.0 * HALF_ULP * (fabs(a) + fabs(b));
            ok = close_to(now[at_a], a * cos_i - b * sin_i, bound, what, at_a) &&
                 close_to(now[at_b], b * cos_i + a * sin_i, bound, what, at_b);
        }
    }
    BUFFERS_FREE(&x, &c, &s, &got, &want);
    return ok;
}

/* ---- exp, through the ops that use it ---- */

/* Relative error of ttk_exp below 2 ulp over its range, and the promised values outside. */
static bool exp_is_right(rng *r)
{
    enum { TRIES = 2000 };
    for (int i = 0; i < TRIES; i++) {
        float x = 100.0f * rng_plain(r);
        float y = ttk_exp(x);
        double want = exp((double)x);
        if (x < -87.3f) {
            want = 0.0;
        } else if (x > 88.7f) {
            want = (double)INFINITY;
        }
        int exponent;
        frexp(want, &exponent);
        if (!close_to(y, want, 2.0 * ldexp(1.0, exponent - 24), "ttk_exp", i)) {
            return fault("ttk_exp(%a)", (double)x);
        }
    }
    float nan = ttk_exp(NAN);
    return (ttk_exp(-INFINITY) == 0.0f && ttk_exp(INFINITY) == INFINITY && nan != nan &&
            ttk_exp(-0.0f) == 1.0f) ||
           fault("ttk_exp: wrong at infinity, NaN or zero");
}

bool check_silu_mul_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t T = rng_below(r, MAX_T);
    int64_t F = rng_size(r, MAX_WIDTH);
    int64_t ld = F + rng_below(r, 3);
    int64_t ldy = F + rng_below(r, 3);
    int64_t alias = rng_below(r, 3); /* y is its own, gate, or up */
    char what[120];
    snprintf(what, sizeof(what), "silu_mul T %lld F %lld alias %lld values %d", (long long)T,
             (long long)F, (long long)alias, kind);
    buffer gate = filled(r, strided(T, ld, F), kind);
    buffer up = filled(r, strided(T, ld, F), kind);
    for (size_t i = 0; i < gate.bytes / sizeof(float); i++) {
        buffer_f32(&gate)[i] *= rng_below(r, 2) ? 1.0f : 60.0f;
    }
    buffer got = alias == 0 ? buffer_new(strided(T, ldy, F), sizeof(float))
                            : buffer_copy(alias == 1 ? &gate : &up);
    buffer want = buffer_copy(&got);
    int64_t ld_out = alias == 0 ? ldy : ld;
    ((ttk_silu_mul_f32_fn *)fn)(got.data, ld_out, alias == 1 ? got.data : gate.data, ld,
                                alias == 2 ? got.data : up.data, ld, T, F);
    ((ttk_silu_mul_f32_fn *)ref)(want.data, ld_out, alias == 1 ? want.data : gate.data, ld,
                                 alias == 2 ? want.data : up.data, ld, T, F);
    bool ok = same_f32(&got, &want, what) && (alias != 0 || gaps_kept(&got, T, ldy, F, what));
    for (int64_t i = 0; ok && kind == VALUES_PLAIN && T > 0 && i < F; i++) {
        double z = (double)buffer_f32(&gate)[i];
        double y = z / (1.0 + exp(-z)) * (double)buffer_f32(&up)[i];
        /* exp 2 ulp, then four roundings */
        ok = close_to(buffer_f32(&got)[i], y, fabs(y) * HALF_ULP * 10.0, what, i);
    }
    BUFFERS_FREE(&gate, &up, &got, &want);
    return ok;
}

bool check_clamped_mul_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t T = rng_below(r, MAX_T);
    int64_t F = rng_size(r, MAX_WIDTH);
    int64_t ld = F + rng_below(r, 3);
    int64_t ldy = F + rng_below(r, 3);
    int64_t alias = rng_below(r, 3); /* y is its own, gate, or up */
    static const float limits[] = {7.0f, 0.5f, 0.0f, INFINITY};
    float limit = limits[rng_below(r, 4)];
    float alpha = rng_below(r, 2) ? 1.702f : 1.0f;
    char what[120];
    snprintf(what, sizeof(what), "clamped_mul T %lld F %lld alias %lld values %d limit %g",
             (long long)T, (long long)F, (long long)alias, kind, (double)limit);
    buffer gate = filled(r, strided(T, ld, F), kind);
    buffer up = filled(r, strided(T, ld, F), kind);
    for (size_t i = 0; i < gate.bytes / sizeof(float); i++) {
        buffer_f32(&gate)[i] *= rng_below(r, 2) ? 1.0f : 60.0f;
        buffer_f32(&up)[i] *= rng_below(r, 2) ? 1.0f : 10.0f;
    }
    buffer got = alias == 0 ? buffer_new(strided(T, ldy, F), sizeof(float))
                            : buffer_copy(alias == 1 ? &gate : &up);
    buffer want = buffer_copy(&got);
    int64_t ld_out = alias == 0 ? ldy : ld;
    ((ttk_clamped_mul_f32_fn *)fn)(got.data, ld_out, alias == 1 ? got.data : gate.data, ld,
                                   alias == 2 ? got.data : up.data, ld, T, F, limit, alpha);
    ((ttk_clamped_mul_f32_fn *)ref)(want.data, ld_out, alias == 1 ? want.data : gate.data, ld,
                                    alias == 2 ? want.data : up.data, ld, T, F, limit, alpha);
    bool ok = same_f32(&got, &want, what) && (alias != 0 || gaps_kept(&got, T, ldy, F, what));
    for (int64_t i = 0; ok && kind == VALUES_PLAIN && T > 0 && i < F; i++) {
        double g = fmin((double)buffer_f32(&gate)[i], (double)limit);
        double u = fmax(fmin((double)buffer_f32(&up)[i], (double)limit), -(double)limit);
        double a = (double)alpha * g;
        double y = g / (1.0 + exp(-a)) * (u + 1.0);
        /* exp 2 ulp and the rounding of its argument, which counts |a| times; then five roundings;
         * below e^-88.7 the gate is 0 */
        double bound = fabs(y) * HALF_ULP * (12.0 + fabs(a)) + fabs(g * (u + 1.0)) * exp(-88.7);
        ok = close_to(buffer_f32(&got)[i], y, bound, what, i);
    }
    BUFFERS_FREE(&gate, &up, &got, &want);
    return ok;
}

bool check_sigmoid_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t n = rng_size(r, MAX_LENGTH);
    buffer z = filled(r, (size_t)n, kind);
    for (int64_t i = 0; i < n; i++) {
        buffer_f32(&z)[i] *= rng_below(r, 2) ? 1.0f : 95.0f;
    }
    buffer got = buffer_copy(&z);
    buffer want = buffer_copy(&z);
    ((ttk_sigmoid_f32_fn *)fn)(got.data, n);
    ((ttk_sigmoid_f32_fn *)ref)(want.data, n);
    bool ok = same_f32(&got, &want, "sigmoid");
    for (int64_t i = 0; ok && kind == VALUES_PLAIN && i < n; i++) {
        double x = (double)buffer_f32(&z)[i];
        double y = 1.0 / (1.0 + exp(-x));
        /* below -88.7 the exponential is infinite and the result zero */
        double bound = x < -88.7 ? 0x1p-126 : y * HALF_ULP * 8.0;
        ok = close_to(buffer_f32(&got)[i], y, bound, "sigmoid", i);
    }
    ok = ok && exp_is_right(r);
    BUFFERS_FREE(&z, &got, &want);
    return ok;
}

bool check_softmax_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t n = 1 + rng_size(r, MAX_LENGTH);
    buffer z = filled(r, (size_t)n, kind);
    float spread = rng_below(r, 2) ? 1.0f : 50.0f;
    if (kind == VALUES_SPECIAL && rng_below(r, 2) == 0) {
        /* With 0 for the maximum, the specials around the lower end of exp reach it as they are. */
        spread = 1.0f;
        for (int64_t i = 0; i < n; i++) {
            buffer_f32(&z)[i] = -fabsf(buffer_f32(&z)[i]);
        }
        buffer_f32(&z)[rng_below(r, n)] = 0.0f;
    }
    double max = -(double)INFINITY;
    bool has_nan = false;
    for (int64_t i = 0; i < n; i++) {
        float *value = &buffer_f32(&z)[i];
        *value *= spread;
        has_nan = has_nan || *value != *value;
        max = (double)*value > max ? (double)*value : max;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)buffer_f32(&z)[i] - max);
    }
    buffer got = buffer_copy(&z);
    buffer want = buffer_copy(&z);
    ((ttk_softmax_f32_fn *)fn)(got.data, n);
    ((ttk_softmax_f32_fn *)ref)(want.data, n);
    bool ok = same_f32(&got, &want, "softmax");
    for (int64_t i = 0; ok && i < n; i++) {
        float y = buffer_f32(&got)[i];
        if (has_nan) {
            ok = y != y || fault("softmax: a row with NaN holds a number");
        } else if (kind == VALUES_PLAIN) {
            double difference = (double)buffer_f32(&z)[i] - max;
            double p = exp(difference) / sum;
            /* z - m is rounded, which its exponential shows times |z - m|; exp 2 ulp; the sum like
             * a norm's */
            double relative = HALF_ULP * (fabs(difference) + 8.0 + (double)n / 16.0 + 6.0);
            /* and below -87.3 the contract of exp allows zero */
            ok = close_to(y, p, p * relative + exp(-87.3), "softmax", i);
        }
    }
    BUFFERS_FREE(&z, &got, &want);
    return ok;
}

/* ---- one element at a time ---- */

bool check_add_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t n = rng_size(r, MAX_LENGTH);
    buffer x = filled(r, (size_t)n, kind);
    buffer y = filled(r, (size_t)n, kind);
    buffer got = buffer_copy(&y);
    buffer want = buffer_copy(&y);
    ((ttk_add_f32_fn *)fn)(got.data, x.data, n);
    ((ttk_add_f32_fn *)ref)(want.data, x.data, n);
    bool ok = same_f32(&got, &want, "add");
    for (int64_t i = 0; ok && i < n;
         i++) { /* a sum of two f32, rounded from double, is rounded twice but right */
        float sum = (float)((double)buffer_f32(&x)[i] + (double)buffer_f32(&y)[i]);
        ok = same_value(buffer_f32(&got)[i], sum) || fault("add: element %lld", (long long)i);
    }
    BUFFERS_FREE(&x, &y, &got, &want);
    return ok;
}

bool check_axpy_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t n = rng_size(r, MAX_LENGTH);
    float w = rng_value(r, kind);
    buffer x = filled(r, (size_t)n, kind);
    buffer y = filled(r, (size_t)n, kind);
    buffer got = buffer_copy(&y);
    buffer want = buffer_copy(&y);
    ((ttk_axpy_f32_fn *)fn)(got.data, w, x.data, n);
    ((ttk_axpy_f32_fn *)ref)(want.data, w, x.data, n);
    bool ok = same_f32(&got, &want, "axpy");
    for (int64_t i = 0; ok && kind == VALUES_PLAIN && i < n; i++) {
        double sum = (double)w * (double)buffer_f32(&x)[i] + (double)buffer_f32(&y)[i];
        ok = close_to(buffer_f32(&got)[i], sum, fabs(sum) * HALF_ULP + 0x1p-149, "axpy", i);
    }
    BUFFERS_FREE(&x, &y, &got, &want);
    return ok;
}

/* Rounds by hand: the bf16 below in magnitude, and one more if the rest is above half, or half and
 * odd. */
static ttk_bf16 rounded_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    uint32_t rest = u & 0xffffu;
    ttk_bf16 below = (ttk_bf16)(u >> 16);
    bool is_up = rest > 0x8000u || (rest == 0x8000u && (below & 1u));
    return (ttk_bf16)(below + (is_up ? 1 : 0));
}

bool check_f32_to_bf16(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t n = rng_size(r, MAX_LENGTH);
    buffer x = filled(r, (size_t)n, kind);
    buffer got = buffer_new((size_t)n, sizeof(ttk_bf16));
    buffer want = buffer_copy(&got);
    ((ttk_f32_to_bf16_fn *)fn)(got.data, x.data, n);
    ((ttk_f32_to_bf16_fn *)ref)(want.data, x.data, n);
    bool ok = same_u16(&got, &want, "f32_to_bf16");
    for (int64_t i = 0; ok && i < n; i++) {
        float value = buffer_f32(&x)[i];
        ttk_bf16 y = buffer_u16(&got)[i];
        bool is_right = value != value ? (y & 0x7fc0u) == 0x7fc0u : y == rounded_bf16(value);
        ok = is_right || fault("f32_to_bf16: %a gives %04x", (double)value, y);
    }
    BUFFERS_FREE(&x, &got, &want);
    return ok;
}

bool check_bf16_to_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    int64_t n = rng_size(r, MAX_LENGTH);
    buffer x = buffer_new((size_t)n, sizeof(ttk_bf16));
    for (int64_t i = 0; i < n; i++) {
        buffer_u16(&x)[i] = (ttk_bf16)rng_next(r);
    }
    buffer got = buffer_new((size_t)n, sizeof(float));
    buffer want = buffer_copy(&got);
    ((ttk_bf16_to_f32_fn *)fn)(got.data, x.data, n);
    ((ttk_bf16_to_f32_fn *)ref)(want.data, x.data, n);
    bool ok = same_f32(&got, &want, "bf16_to_f32");
    for (int64_t i = 0; ok && i < n; i++) {
        uint32_t u;
        memcpy(&u, &buffer_f32(&got)[i], sizeof(u));
        ok = u == (uint32_t)buffer_u16(&x)[i] << 16 ||
             fault("bf16_to_f32: %04x gives %08x", buffer_u16(&x)[i], u);
    }
    BUFFERS_FREE(&x, &got, &want);
    return ok;
}
