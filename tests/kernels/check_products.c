/* check_products.c - checkers of pack and of the products. */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 120, MAX_COLUMNS = 150, MAX_DEPTH = 700, CHECKED_DEPTH = 64 };

/* ---- pack ---- */
/* Of a sign, exponent and mantissa of so many bits. */
static double value_of_bits(uint16_t bits, int exponent_bits, int mantissa_bits)
{
    int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    int one = 1 << mantissa_bits;
    int mantissa = bits & (one - 1);
    int bias = (1 << (exponent_bits - 1)) - 1;
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == 2 * bias + 1) {
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (exponent == 0 ? ldexp(mantissa, 1 - bias - mantissa_bits)
                                 : ldexp(mantissa + one, exponent - bias - mantissa_bits));
}

static double value_of_f16(uint16_t h)
{
    return value_of_bits(h, 5, 10);
}

static double value_of_bf16(ttk_bf16 b)
{
    return value_of_bits(b, 8, 7);
}

/* got is the bf16 nearest to x, and the even one of two that are equally near. */
static bool is_nearest_bf16(ttk_bf16 got, double x)
{
    if (x != x) {
        return value_of_bf16(got) != value_of_bf16(got);
    }
    if (signbit(x) != (got >> 15)) {
        return false;
    }
    double value = fabs(value_of_bf16(got));
    double largest = value_of_bf16(0x7f7f);
    x = fabs(x);
    if (isinf(value)) { /* from half a unit above the largest on */
        return x >= largest + ldexp(1.0, 119);
    }
    ttk_bf16 magnitude = got & 0x7fff;
    double above = magnitude == 0x7f7f ? ldexp(1.0, 128) : value_of_bf16((ttk_bf16)(magnitude + 1));
    double below = magnitude == 0 ? 0.0 : value_of_bf16((ttk_bf16)(magnitude - 1));
    double up = (value + above) / 2.0;
    double down = (value + below) / 2.0;
    bool is_even = (got & 1) == 0;
    return (x < up || (x == up && is_even)) &&
           (magnitude == 0 || x > down || (x == down && is_even));
}

static double source_value(const buffer *src, ttk_dtype type, int64_t at)
{
    if (type == TTK_F32) {
        return (double)buffer_f32(src)[at];
    }
    uint16_t half = buffer_u16(src)[at];
    return type == TTK_F16 ? value_of_f16(half) : value_of_bf16(half);
}

bool check_pack(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_pack_fn *run = (ttk_pack_fn *)fn;
    ttk_pack_fn *run_ref = (ttk_pack_fn *)ref;
    ttk_dtype src_type = (ttk_dtype)rng_below(r, 3);
    ttk_dtype type = rng_below(r, 2) ? TTK_F32 : TTK_BF16;
    int64_t N = rng_size(r, MAX_COLUMNS);
    int64_t K = rng_size(r, MAX_COLUMNS);
    bool is_transposed = rng_below(r, 3) == 0;
    int64_t gap = rng_below(r, 3);
    int64_t row_stride = is_transposed ? 1 : K + gap;
    int64_t col_stride = is_transposed ? N + gap : 1;
    int64_t n_src = N > 0 && K > 0 ? (N - 1) * row_stride + (K - 1) * col_stride + 1 : 0;
    values kind = (values)rng_below(r, VALUES_COUNT);
    buffer src = buffer_new((size_t)n_src, ttk_dtype_bytes(src_type));
    if (src_type == TTK_F32) {
        rng_fill(r, buffer_f32(&src), n_src, kind);
    } else if (src_type == TTK_BF16) {
        rng_fill_bf16(r, buffer_u16(&src), n_src, kind);
    } else {
        for (int64_t i = 0; i < n_src; i++) {
            buffer_u16(&src)[i] = (uint16_t)rng_next(r);
        }
    }
    int64_t n_panels = (N + TTK_PANEL - 1) / TTK_PANEL;
    size_t n_packed = ttk_packed_bytes(&(ttk_format){.code = type}, N, K) / ttk_dtype_bytes(type);
    bool ok =
        (int64_t)n_packed == n_panels * TTK_PANEL * K || fault("pack: wrong ttk_packed_bytes");
    buffer got = buffer_new(n_packed, ttk_dtype_bytes(type));
    buffer want = buffer_new(n_packed, ttk_dtype_bytes(type));
    char what[120];
    snprintf(what, sizeof(what), "pack N %lld K %lld type %d from %d", (long long)N, (long long)K,
             type, src_type);
    /* In two parts, as two threads would. */
    int64_t cut = rng_below(r, n_panels + 1);
    run(got.data, type, src.data, src_type, row_stride, col_stride, N, K, cut, n_panels);
    run(got.data, type, src.data, src_type, row_stride, col_stride, N, K, 0, cut);
    run_ref(want.data, type, src.data, src_type, row_stride, col_stride, N, K, 0, n_panels);
    ok = ok && (type == TTK_F32 ? same_f32(&got, &want, what) : same_u16(&got, &want, what));
    for (int64_t at = 0; ok && at < (int64_t)n_packed; at++) {
        int64_t n = at / (K * TTK_PANEL) * TTK_PANEL + at % TTK_PANEL;
        int64_t k = at / TTK_PANEL % K;
        double value = n < N ? source_value(&src, src_type, n * row_stride + k * col_stride) : 0.0;
        if (type == TTK_F32) {
            ok = same_value(buffer_f32(&got)[at], (float)value);
        } else {
            ok = is_nearest_bf16(buffer_u16(&got)[at], value);
        }
        if (!ok) {
            fault("%s: element n %lld k %lld does not hold %a", what, (long long)n, (long long)k,
                  value);
        }
    }
    BUFFERS_FREE(&src, &got, &want);
    return ok;
}

/* ---- products ---- */

/* One face for both types of weights. */
typedef struct product {
    ttk_any_fn *fn;
    ttk_dtype type;
    double rounding; /* of a factor, relative */
} product;

static void product_run(product p, float *y, int64_t ldy, const float *x, int64_t ldx,
                        const void *panels, int64_t M, int64_t N, int64_t K)
{
    if (p.type == TTK_F32) {
        ((ttk_gemm_f32_fn *)p.fn)(y, ldy, x, ldx, panels, M, N, K);
    } else {
        ((ttk_gemm_bf16_fn *)p.fn)(y, ldy, x, ldx, panels, M, N, K);
    }
}

static const void *panel_at(const buffer *w, ttk_dtype type, int64_t n, int64_t K)
{
    return (const char *)w->data + (size_t)(n / TTK_PANEL * TTK_PANEL * K) * ttk_dtype_bytes(type);
}

static double weight_at(const buffer *w, ttk_dtype type, int64_t n, int64_t k, int64_t K)
{
    int64_t at = (n / TTK_PANEL * K + k) * TTK_PANEL + n % TTK_PANEL;
    return type == TTK_F32 ? (double)buffer_f32(w)[at] : value_of_bf16(buffer_u16(w)[at]);
}

/* y against sums in double: the error of a chain of K roundings is at most K half-units of the sum
 * of magnitudes. */
static bool product_is_right(const float *y, int64_t ldy, const float *x, int64_t ldx,
                             const buffer *w, product p, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++) {
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0;
            double magnitude = 0.0;
            for (int64_t k = 0; k < K; k++) {
                double term = (double)x[m * ldx + k] * weight_at(w, p.type, n, k, K);
                sum += term;
                magnitude += fabs(term);
            }
            if (!close_to(y[m * ldy + n], sum, ((double)K * 0x1p-24 + p.rounding) * magnitude,
                          "gemm ref", m * ldy + n)) {
                return false;
            }
        }
    }
    return true;
}

static bool check_product(product run, product ref, rng *r)
{
    int64_t M = rng_below(r, 2) ? rng_below(r, 10) : rng_size(r, MAX_ROWS);
    int64_t N = rng_size(r, MAX_COLUMNS);
    int64_t K = rng_size(r, M > 16 ? CHECKED_DEPTH : MAX_DEPTH);
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t ldx = K + rng_below(r, 3);
    int64_t ldy = N + rng_below(r, 3);
    buffer x = filled(r, strided(M, ldx, K), kind);
    size_t n_weights =
        ttk_packed_bytes(&(ttk_format){.code = run.type}, N, K) / ttk_dtype_bytes(run.type);
    buffer w = buffer_new(n_weights, ttk_dtype_bytes(run.type));
    if (run.type == TTK_F32) {
        rng_fill(r, buffer_f32(&w), (int64_t)n_weights, kind);
    } else {
        rng_fill_bf16(r, buffer_u16(&w), (int64_t)n_weights, kind);
    }
    buffer got = buffer_new(strided(M, ldy, N), sizeof(float));
    buffer want = buffer_copy(&got);
    buffer split = buffer_copy(&got);
    buffer single = buffer_copy(&got);
    char what[120];
    snprintf(what, sizeof(what), "gemm M %lld N %lld K %lld values %d", (long long)M, (long long)N,
             (long long)K, kind);

    product_run(run, buffer_f32(&got), ldy, buffer_f32(&x), ldx, w.data, M, N, K);
    product_run(ref, buffer_f32(&want), ldy, buffer_f32(&x), ldx, w.data, M, N, K);
    bool ok = same_f32(&got, &want, what) && gaps_kept(&got, M, ldy, N, what);
    if (ok && kind == VALUES_PLAIN && run.fn == ref.fn) {
        ok = product_is_right(buffer_f32(&got), ldy, buffer_f32(&x), ldx, &w, run, M, N, K);
    }
    /* The same bits in any split of N at panels and of M at rows. */
    for (int64_t n = 0; ok && n < N;) {
        int64_t part = TTK_PANEL * (1 + rng_below(r, 3));
        part = part < N - n ? part : N - n;
        product_run(run, buffer_f32(&split) + n, ldy, buffer_f32(&x), ldx,
                    panel_at(&w, run.type, n, K), M, part, K);
        n += part;
    }
    for (int64_t m = 0; ok && m < M; m++) {
        product_run(run, buffer_f32(&single) + m * ldy, ldy, buffer_f32(&x) + m * ldx, ldx, w.data,
                    1, N, K);
    }
    ok = ok && same_f32(&split, &want, "gemm split over N") &&
         same_f32(&single, &want, "gemm row by row");
    BUFFERS_FREE(&x, &w, &got, &want, &split, &single);
    return ok;
}

bool check_gemm_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    return check_product((product){fn, TTK_F32, 0.0}, (product){ref, TTK_F32, 0.0}, r);
}

bool check_gemm_bf16(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    return check_product((product){fn, TTK_BF16, 0.0}, (product){ref, TTK_BF16, 0.0}, r);
}

bool check_gemm_bf16_pairs(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    return check_product((product){fn, TTK_BF16, 0x1p-8}, (product){ref, TTK_BF16, 0x1p-8}, r);
}
