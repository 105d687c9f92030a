/* check_row8.c - checkers of rows as bytes. */
#include <math.h>
#include <string.h>
#include "quant_cases.h"

enum { MAX_LENGTH = 600 };

static ttk_row8_form random_form(rng *r)
{
    return rng_below(r, 2) ? TTK_ROW8_FP8 : TTK_ROW8_INT8;
}

/* x[n] of a random kind, sometimes with a block of zeros. */
static buffer random_row(rng *r, int64_t n)
{
    buffer x = filled(r, (size_t)n, (values)rng_below(r, VALUES_COUNT));
    for (int64_t i = 0; i < n && i < TTK_ACT_GROUP && rng_below(r, 4) == 0; i++) {
        buffer_f32(&x)[i] = i % 2 ? 0.0f : -0.0f;
    }
    return x;
}

/* What a block stands for, in double precision: each form has its own bound. */
static bool block_is_right(ttk_row8_form form, const float *x, const float *back, int64_t n)
{
    double largest = 0.0;
    bool is_finite = true;
    for (int64_t i = 0; i < n; i++) {
        is_finite = is_finite && fabs((double)x[i]) < INFINITY;
        largest = fmax(largest, fabs((double)x[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        if (!is_finite) {
            if (back[i] == back[i]) {
                return fault("row8: %g in a block that is not finite", (double)back[i]);
            }
            continue;
        }
        /* int8: half a step. fp8: half of the last of 4 bits, or of the smallest step, or what is
         * cut off above 448 of 512. */
        const double size = fabs((double)x[i]),
                     power = exp2(floor(log2(largest > 0 ? largest : 1.0)) - 8.0);
        double bound =
            form == TTK_ROW8_INT8 ? largest / 127.0 * 0.501 : fmax(size / 16.0, power * 0x1p-10);
        bound = form == TTK_ROW8_FP8 && size > 448.0 * power ? fmax(bound, size - 448.0 * power)
                                                             : bound;
        /* 127 times a scale that was rounded up may be beyond the largest float. */
        const bool is_beyond = form == TTK_ROW8_INT8 && largest > 0x1.ffff00p127 &&
                               size > largest / 127.0 * 126.4 && isinf(back[i]);
        if (!is_beyond && fabs((double)x[i] - (double)back[i]) > bound + 0x1p-100) {
            return fault("row8: %g became %g of at most %g", (double)x[i], (double)back[i],
                         largest);
        }
    }
    return true;
}

bool check_row8(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_row8_fn *run = (ttk_row8_fn *)fn, *run_ref = (ttk_row8_fn *)ref;
    const ttk_row8_form form = random_form(r);
    const int64_t n = rng_size(r, MAX_LENGTH);
    buffer x = random_row(r, n), got = buffer_new(ttk_row8_bytes(form, n), 1),
           want = buffer_copy(&got);
    run(form, got.data, buffer_f32(&x), n);
    run_ref(form, want.data, buffer_f32(&x), n);
    bool ok = same_bytes(&got, &want, form == TTK_ROW8_FP8 ? "row8 fp8" : "row8 int8");
    float back[MAX_LENGTH + TTK_ACT_GROUP];
    ttk.row8_f32(form, back, got.data, n);
    for (int64_t at = 0; ok && run == run_ref && at < n; at += TTK_ACT_GROUP) {
        ok = block_is_right(form, buffer_f32(&x) + at, back + at,
                            n - at < TTK_ACT_GROUP ? n - at : TTK_ACT_GROUP);
    }
    BUFFERS_FREE(&x, &got, &want);
    return ok;
}

/* A row in bytes that end where the readable page ends. */
static buffer random_bytes(rng *r, ttk_row8_form form, int64_t n)
{
    buffer x = random_row(r, n), row = buffer_new(ttk_row8_bytes(form, n), 1);
    ttk.row8(form, row.data, buffer_f32(&x), n);
    buffer_free(&x);
    return row;
}

bool check_row8_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_row8_f32_fn *run = (ttk_row8_f32_fn *)fn, *run_ref = (ttk_row8_f32_fn *)ref;
    const ttk_row8_form form = random_form(r);
    const int64_t n = rng_size(r, MAX_LENGTH);
    buffer row = random_bytes(r, form, n), got = buffer_new((size_t)n, sizeof(float)),
           want = buffer_copy(&got);
    run(form, buffer_f32(&got), row.data, n);
    run_ref(form, buffer_f32(&want), row.data, n);
    bool ok = same_f32(&got, &want, "row8_f32");
    /* From a block on as from the beginning. */
    const int64_t from = rng_below(r, n / TTK_ACT_GROUP + 1) * TTK_ACT_GROUP;
    memset(got.data, 0, got.bytes);
    run(form, buffer_f32(&got), row.data, from);
    run(form, buffer_f32(&got) + from, (const unsigned char *)row.data + ttk_row8_bytes(form, from),
        n - from);
    ok = ok && same_f32(&got, &want, "row8_f32 in two parts");
    BUFFERS_FREE(&row, &got, &want);
    return ok;
}

bool check_row8_act8(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_row8_act8_fn *run = (ttk_row8_act8_fn *)fn;
    (void)ref; /* act8 itself is what it must equal */
    const int64_t n = rng_size(r, MAX_LENGTH);
    buffer x = random_row(r, n), row = buffer_new(ttk_row8_bytes(TTK_ROW8_INT8, n), 1);
    buffer got = buffer_new(ttk_act8_bytes(n) / 4, 4), want = buffer_copy(&got);
    ttk.row8(TTK_ROW8_INT8, row.data, buffer_f32(&x), n);
    run(got.data, row.data, n);
    ttk.act8(want.data, ttk_act8_bytes(n), buffer_f32(&x), n, 1, n);
    bool ok = same_f32(&got, &want, "row8_act8");
    BUFFERS_FREE(&x, &row, &got, &want);
    return ok;
}
