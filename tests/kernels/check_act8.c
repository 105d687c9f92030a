/* check_act8.c - checkers of rows rounded to int8, and of their products with quantised weights. */
#include <math.h>
#include <string.h>
#include "quant_cases.h"

enum { MAX_ROWS = 70, MAX_COLUMNS = 100, MAX_DEPTH = 600 };

/* Rows in memory: whole floats' worth of bytes, the last row without its gap. */
static buffer rows8_new(int64_t M, size_t stride, int64_t K)
{
    return buffer_new(strided(M, (int64_t)(stride / 4), (int64_t)(ttk_act8_bytes(K) / 4)), 4);
}

/* What a row's codes and scale stand for is within half a step of x, and the sums are those of the
 * codes. */
static bool rounding_is_right(const unsigned char *row, const float *x, int64_t K)
{
    const int64_t groups = ttk_act8_groups(K);
    const int8_t *code = (const int8_t *)row;
    const float *scale = (const float *)(const void *)(row + groups * TTK_ACT_GROUP);
    for (int64_t g = 0; g < groups; g++) {
        int sum = 0, half = 0;
        for (int64_t i = 0; i < TTK_ACT_GROUP; i++) {
            int64_t k = g * TTK_ACT_GROUP + i;
            int c = code[k];
            double want = k < K ? (double)x[k] : 0.0, step = (double)scale[g];
            sum += c;
            half += i < TTK_ACT_GROUP / 2 ? c : 0;
            bool is_near = fabs(want - c * step) <= step * 0.501 + 0x1p-100;
            if (!is_near && scale[g] == scale[g]) {
                return fault("act8: %g became %d of %g", want, c, step);
            }
        }
        const float *halves = scale + 2 * (groups + g);
        if (scale[groups + g] != (float)sum || halves[0] != (float)half ||
            halves[1] != (float)(sum - half)) {
            return fault("act8: sums of group %d", (int)g);
        }
    }
    return true;
}

bool check_act8(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_act8_fn *run = (ttk_act8_fn *)fn, *run_ref = (ttk_act8_fn *)ref;
    const values kind = (values)rng_below(r, VALUES_COUNT);
    const int64_t M = rng_below(r, 6), K = rng_size(r, MAX_DEPTH), ldx = K + rng_below(r, 3);
    const size_t stride = ttk_act8_bytes(K) + 4 * (size_t)rng_below(r, 3);
    buffer x = filled(r, strided(M, ldx, K), kind);
    buffer got = rows8_new(M, stride, K), want = rows8_new(M, stride, K);
    run(got.data, stride, buffer_f32(&x), ldx, M, K);
    run_ref(want.data, stride, buffer_f32(&x), ldx, M, K);
    bool ok = same_f32(&got, &want, "act8");
    for (int64_t m = 0; ok && run == run_ref && m < M; m++) {
        ok = rounding_is_right((const unsigned char *)got.data + (size_t)m * stride,
                               buffer_f32(&x) + m * ldx, K);
    }
    BUFFERS_FREE(&x, &got, &want);
    return ok;
}

/* ---- the product ---- */

typedef struct act8_case {
    ttk_format format;
    int64_t M, N, K, ldy;
    size_t stride;
    values kind;
    rows w;
    buffer x, packed;
} act8_case;

/* The largest sums, also of halves of what is added up in 16 bits: codes at an end, in rows whose
 * signs come in runs or at random. */
static void make_extreme(rng *r, act8_case *c, float *x)
{
    const ttk_dtype code = c->format.code;
    /* Of E2M1: -6 and 6. */
    const unsigned char most = code == TTK_I8   ? 127
                               : code == TTK_U8 ? 255
                               : code == TTK_I6 ? 63
                                                : 15;
    const unsigned char least = code == TTK_I8 ? 128 : code == TTK_E2M1 ? 7 : 0;
    if (rng_below(r, 2) && c->w.array[0].bytes > 0) {
        memset(c->w.array[0].data, rng_below(r, 2) ? most : least, c->w.array[0].bytes);
    }
    const int64_t run = (int64_t)1 << rng_below(r, 6);
    const bool is_random = rng_below(r, 2);
    for (int64_t i = 0; i < c->M * c->K; i++) {
        x[i] = (is_random ? rng_below(r, 2) > 0 : i / run % 2 > 0) ? 1.0f : -1.0f;
    }
}

static act8_case random_case(rng *r)
{
    act8_case c = {.kind = (values)rng_below(r, VALUES_COUNT)};
    c.M = rng_below(r, 2) ? rng_below(r, 10) : rng_size(r, MAX_ROWS);
    c.N = rng_size(r, MAX_COLUMNS);
    c.K = rng_size(r, c.M > 10 ? MAX_DEPTH / 4 : MAX_DEPTH);
    do {
        c.format = random_format(r);
    } while (!ttk_can_act8(&c.format, c.K));
    c.ldy = c.N + rng_below(r, 3);
    c.stride = ttk_act8_bytes(c.K) + 4 * (size_t)rng_below(r, 3);
    c.w = rows_new(&c.format, c.N, c.K);
    rows_fill(r, &c.w, &c.format, c.kind);
    c.x = rows8_new(c.M, c.stride, c.K);
    buffer plain = buffer_new((size_t)(c.M * c.K), sizeof(float));
    float *x = buffer_f32(&plain);
    rng_fill(r, x, c.M * c.K, c.kind);
    if (rng_below(r, 6) == 0) {
        make_extreme(r, &c, x);
    }
    ttk.act8(c.x.data, c.stride, x, c.K, c.M, c.K);
    buffer_free(&plain);
    c.packed = buffer_new(ttk_packed_bytes(&c.format, c.N, c.K), 1);
    ttk.pack_quant(c.packed.data, &c.format, &c.w.view, c.N, c.K, 0,
                   (c.N + TTK_PANEL - 1) / TTK_PANEL);
    return c;
}

/* Each segment's sum is exact; its two products and steps of the chain are rounded. */
static bool product_is_right(const act8_case *c, const float *y)
{
    const int64_t groups = ttk_act8_groups(c->K);
    for (int64_t m = 0; m < c->M; m++) {
        const unsigned char *row = (const unsigned char *)c->x.data + (size_t)m * c->stride;
        const int8_t *code = (const int8_t *)row;
        const float *scale = (const float *)(const void *)(row + groups * TTK_ACT_GROUP);
        for (int64_t n = 0; n < c->N; n++) {
            double sum = 0.0, magnitude = 0.0, size;
            for (int64_t k = 0; k < c->K; k++) {
                double x = code[k] * (double)scale[k / TTK_ACT_GROUP];
                sum += x * weight_of(&c->format, &c->w, n, k, c->K, &size);
                magnitude += fabs(x) * size;
            }
            double bound = (double)(4 * groups + 4) * 0x1p-24 * magnitude;
            if (!close_to(y[m * c->ldy + n], sum, bound, "gemm_act8 ref", m * c->ldy + n)) {
                return false;
            }
        }
    }
    return true;
}

/* The same bits in any split of N at panels, and row by row. */
static bool splits_agree(const act8_case *c, ttk_gemm_act8_fn *run, const buffer *want, rng *r)
{
    buffer split = buffer_new(strided(c->M, c->ldy, c->N), sizeof(float));
    buffer single = buffer_copy(&split);
    for (int64_t n = 0; n < c->N;) {
        int64_t part = TTK_PANEL * (1 + rng_below(r, 3));
        part = part < c->N - n ? part : c->N - n;
        const char *panels = (const char *)c->packed.data +
                             (size_t)(n / TTK_PANEL) * ttk_panel_bytes(&c->format, c->K);
        run(buffer_f32(&split) + n, c->ldy, c->x.data, c->stride, &c->format, panels, c->M, part,
            c->K);
        n += part;
    }
    for (int64_t m = 0; m < c->M; m++) {
        run(buffer_f32(&single) + m * c->ldy, c->ldy,
            (const char *)c->x.data + (size_t)m * c->stride, c->stride, &c->format, c->packed.data,
            1, c->N, c->K);
    }
    bool ok = same_f32(&split, want, "gemm_act8 split over N") &&
              same_f32(&single, want, "gemm_act8 row by row");
    BUFFERS_FREE(&split, &single);
    return ok;
}

bool check_gemm_act8(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_gemm_act8_fn *run = (ttk_gemm_act8_fn *)fn, *run_ref = (ttk_gemm_act8_fn *)ref;
    act8_case c = random_case(r);
    char what[WHAT_BYTES];
    describe(what, sizeof(what), "gemm_act8", &c.format, c.M, c.N, c.K);
    buffer got = buffer_new(strided(c.M, c.ldy, c.N), sizeof(float));
    buffer want = buffer_copy(&got);
    run(buffer_f32(&got), c.ldy, c.x.data, c.stride, &c.format, c.packed.data, c.M, c.N, c.K);
    run_ref(buffer_f32(&want), c.ldy, c.x.data, c.stride, &c.format, c.packed.data, c.M, c.N, c.K);
    bool ok = same_f32(&got, &want, what) && gaps_kept(&got, c.M, c.ldy, c.N, what);
    if (ok && c.kind == VALUES_PLAIN && run == run_ref) {
        ok = product_is_right(&c, buffer_f32(&got)) || fault("%s: wrong", what);
    }
    ok = ok && splits_agree(&c, run, &want, r);
    rows_free(&c.w);
    BUFFERS_FREE(&c.x, &c.packed, &got, &want);
    return ok;
}
