/* check_quant.c - checkers of quantised weights: random rows, packed, unpacked and multiplied. */
#include "quant_cases.h"
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { MAX_ROWS = 60, MAX_COLUMNS = 100, MAX_DEPTH = 600 };

/* ---- pack and unpack ---- */

/* Packs with `pack` in two parts, unpacks a piece with `unpack`: it must be what was packed. */
static bool packs_and_unpacks(ttk_pack_quant_fn *pack, ttk_pack_quant_fn *pack_ref,
                              ttk_unpack_fn *unpack, rng *r)
{
    ttk_format f = random_format(r);
    int64_t N = rng_size(r, MAX_COLUMNS), K = rng_size(r, MAX_DEPTH);
    char what[WHAT_BYTES];
    describe(what, sizeof(what), "pack_quant", &f, 0, N, K);
    rows w = rows_new(&f, N, K);
    rows_fill(r, &w, &f, VALUES_SPECIAL);
    buffer packed = buffer_new(ttk_packed_bytes(&f, N, K), 1);
    buffer want = buffer_new(packed.bytes, 1);
    int64_t n_panels = (N + TTK_PANEL - 1) / TTK_PANEL, cut = rng_below(r, n_panels + 1);
    pack(packed.data, &f, &w.view, N, K, cut, n_panels);
    pack(packed.data, &f, &w.view, N, K, 0, cut);
    pack_ref(want.data, &f, &w.view, N, K, 0, n_panels);
    bool ok = same_bytes(&packed, &want, what);
    int64_t row = rng_below(r, N + 1), n = rng_below(r, N - row + 1);
    rows got = rows_new(&f, n, K);
    unpack(&got.view, &f, packed.data, K, row, n);
    for (int i = 0; ok && i < N_ARRAYS; i++) {
        size_t row_bytes = N > 0 ? w.array[i].bytes / (size_t)N : 0;
        const char *from = (const char *)w.array[i].data + (size_t)row * row_bytes;
        ok = got.array[i].bytes == 0 || memcmp(got.array[i].data, from, got.array[i].bytes) == 0 ||
             fault("%s: array %d of rows %lld + %lld comes back changed", what, i, (long long)row,
                   (long long)n);
    }
    rows_free(&w);
    rows_free(&got);
    BUFFERS_FREE(&packed, &want);
    return ok;
}

bool check_pack_quant(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    return packs_and_unpacks((ttk_pack_quant_fn *)fn, (ttk_pack_quant_fn *)ref, ttk.unpack, r);
}

/* Of a plain format: unpack is the inverse of pack. */
static bool unpacks_plain(ttk_unpack_fn *unpack, rng *r)
{
    ttk_format f = {.code = rng_below(r, 2) ? TTK_F32 : TTK_BF16};
    int64_t N = rng_size(r, MAX_COLUMNS), K = rng_size(r, MAX_DEPTH);
    rows w = rows_new(&f, N, K);
    rows_fill(r, &w, &f, VALUES_WIDE);
    buffer packed = buffer_new(ttk_packed_bytes(&f, N, K), 1);
    ttk.pack(packed.data, f.code, w.view.code, f.code, K, 1, N, K, 0,
             (N + TTK_PANEL - 1) / TTK_PANEL);
    int64_t row = rng_below(r, N + 1), n = rng_below(r, N - row + 1);
    rows got = rows_new(&f, n, K);
    unpack(&got.view, &f, packed.data, K, row, n);
    const char *from = (const char *)w.array[0].data + (size_t)(row * K) * ttk_dtype_bytes(f.code);
    bool ok = got.array[0].bytes == 0 || memcmp(got.array[0].data, from, got.array[0].bytes) == 0 ||
              fault("unpack of a plain format changes N %lld K %lld", (long long)N, (long long)K);
    rows_free(&w);
    rows_free(&got);
    buffer_free(&packed);
    return ok;
}

bool check_unpack(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    (void)ref;
    ttk_unpack_fn *unpack = (ttk_unpack_fn *)fn;
    return packs_and_unpacks(ttk.pack_quant, ttk.pack_quant, unpack, r) && unpacks_plain(unpack, r);
}

/* ---- rounding ---- */

static ttk_format random_target(rng *r)
{
    static const ttk_dtype codes[] = {TTK_I8, TTK_I4, TTK_E4M3, TTK_E2M1};
    static const ttk_dtype scales[] = {TTK_F32, TTK_BF16, TTK_F16};
    static const int32_t groups[] = {1, 2, 7, 8, 16, 19, 32, 40, 64, 128, 1 << 30};
    ttk_format f = {.code = codes[rng_below(r, 4)], .group = groups[rng_below(r, 11)]};
    f.scale = f.code == TTK_E2M1 ? TTK_E8M0 : scales[rng_below(r, 3)];
    return f;
}

/* Numbers that fall between two codes, or are one, if the largest of their group is 127 * 2^n:
 * halves and quarters of small whole numbers, of either sign, and among them the largest of both
 * signs, of which the first counts. */
static void fill_ties(rng *r, float *x, int64_t n)
{
    static const float steps[] = {0.25f, 0.5f, 1.0f, 0.0625f, 8.0f};
    float step = steps[rng_below(r, 5)];
    for (int64_t i = 0; i < n; i++) {
        float size = rng_below(r, 8) ? step * (float)rng_below(r, 33) : 127.0f;
        x[i] = rng_below(r, 2) ? -size : size;
    }
}

bool check_quantize(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_format f = random_target(r);
    int64_t n = rng_size(r, MAX_COLUMNS), K = rng_size(r, MAX_DEPTH),
            kind = rng_below(r, VALUES_COUNT + 2);
    char what[WHAT_BYTES];
    describe(what, sizeof(what), "quantize", &f, 0, n, K);
    buffer x = buffer_new((size_t)(n * K), sizeof(float));
    if (kind < VALUES_COUNT) {
        rng_fill(r, buffer_f32(&x), n * K, (values)kind);
    } else {
        fill_ties(r, buffer_f32(&x), n * K);
    }
    rows got = rows_new(&f, n, K), want = rows_new(&f, n, K);
    ((ttk_quantize_fn *)fn)(&f, buffer_f32(&x), n, K, &got.view);
    ((ttk_quantize_fn *)ref)(&f, buffer_f32(&x), n, K, &want.view);
    bool ok = ttk_can_quantize(&f) || fault("%s: is no format to round to", what);
    for (int i = 0; ok && i < N_ARRAYS; i++) {
        ok = same_bytes(&got.array[i], &want.array[i], what);
    }
    rows_free(&got);
    rows_free(&want);
    buffer_free(&x);
    return ok;
}

/* ---- the product ---- */

/* Each chain's error is at most its length in half-units of the sum of magnitudes; two chains over
 * k (one in effect: they add to different terms) and one over the groups, of two steps each. */
static bool product_is_right(const ttk_format *f, const rows *w, const float *y, int64_t ldy,
                             const float *x, int64_t ldx, int64_t M, int64_t N, int64_t K)
{
    int64_t G = K > 0 ? (K - 1) / f->group + 1 : 0, group = f->group < K ? f->group : K;
    for (int64_t m = 0; m < M; m++) {
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0, magnitude = 0.0, size;
            for (int64_t k = 0; k < K; k++) {
                sum += (double)x[m * ldx + k] * weight_of(f, w, n, k, K, &size);
                magnitude += fabs((double)x[m * ldx + k]) * size;
            }
            double bound = (double)(group + 2 * G + 1) * 0x1p-24 * magnitude;
            if (!close_to(y[m * ldy + n], sum, bound, "gemm_quant ref", m * ldy + n)) {
                return false;
            }
        }
    }
    return true;
}

typedef struct quant_case {
    ttk_format format;
    int64_t M, N, K, ldx, ldy;
    values kind;
    rows w;
    buffer x, packed;
} quant_case;

/* Sizes within a window of exponents: kernels may scale x where its range allows, so the borders of
 * such ranges are worth a try. */
static void fill_window(rng *r, float *x, int64_t n)
{
    static const int borders[] = {-149, -126, -125, -102, -100, -97, -90, 0, 20, 26, 60, 67};
    int low = borders[rng_below(r, 12)], width = 1 + (int)rng_below(r, 40);
    for (int64_t i = 0; i < n; i++) {
        int exponent = low + (int)rng_below(r, width);
        x[i] = rng_below(r, 8) ? ldexpf(rng_plain(r), exponent) : 0.0f;
    }
}

static quant_case random_case(rng *r)
{
    quant_case c = {.format = random_format(r), .kind = (values)rng_below(r, VALUES_COUNT)};
    c.M = rng_below(r, 2) ? rng_below(r, 10) : rng_size(r, MAX_ROWS);
    c.N = rng_size(r, MAX_COLUMNS);
    c.K = rng_size(r, c.M > 10 ? MAX_DEPTH / 4 : MAX_DEPTH);
    c.ldx = c.K + rng_below(r, 3);
    c.ldy = c.N + rng_below(r, 3);
    c.w = rows_new(&c.format, c.N, c.K);
    rows_fill(r, &c.w, &c.format, c.kind);
    c.x = buffer_new(strided(c.M, c.ldx, c.K), sizeof(float));
    int64_t n_x = (int64_t)(c.x.bytes / sizeof(float));
    if (c.kind == VALUES_WIDE && rng_below(r, 2)) {
        fill_window(r, buffer_f32(&c.x), n_x);
    } else {
        rng_fill(r, buffer_f32(&c.x), n_x, c.kind);
    }
    c.packed = buffer_new(ttk_packed_bytes(&c.format, c.N, c.K), 1);
    ttk.pack_quant(c.packed.data, &c.format, &c.w.view, c.N, c.K, 0,
                   (c.N + TTK_PANEL - 1) / TTK_PANEL);
    return c;
}

/* The same bits in any split of N at panels, and row by row. */
static bool splits_agree(const quant_case *c, ttk_gemm_quant_fn *run, const buffer *want, rng *r)
{
    buffer split = buffer_new(strided(c->M, c->ldy, c->N), sizeof(float));
    buffer single = buffer_copy(&split);
    const float *x = buffer_f32(&c->x);
    for (int64_t n = 0; n < c->N;) {
        int64_t part = TTK_PANEL * (1 + rng_below(r, 3));
        part = part < c->N - n ? part : c->N - n;
        const char *panels = (const char *)c->packed.data +
                             (size_t)(n / TTK_PANEL) * ttk_panel_bytes(&c->format, c->K);
        run(buffer_f32(&split) + n, c->ldy, x, c->ldx, &c->format, panels, c->M, part, c->K);
        n += part;
    }
    for (int64_t m = 0; m < c->M; m++) {
        run(buffer_f32(&single) + m * c->ldy, c->ldy, x + m * c->ldx, c->ldx, &c->format,
            c->packed.data, 1, c->N, c->K);
    }
    bool ok = same_f32(&split, want, "gemm_quant split over N") &&
              same_f32(&single, want, "gemm_quant row by row");
    BUFFERS_FREE(&split, &single);
    return ok;
}

/* Ordinary numbers must not be brought where f32 is denormal: some CPUs take 150 cycles for each
 * such operand or result. The CPU notes both. (Not E8M0, whose byte 0, also of the outputs beyond
 * N, is denormal itself.) */
static void forget_denormals(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK);
#endif
}

static bool had_no_denormals(const char *what)
{
#if defined(__x86_64__)
    if (_mm_getcsr() & (_MM_EXCEPT_DENORM | _MM_EXCEPT_UNDERFLOW)) {
        return fault("%s: works with denormal numbers", what);
    }
#endif
    return true;
}

bool check_gemm_quant(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    ttk_gemm_quant_fn *run = (ttk_gemm_quant_fn *)fn, *run_ref = (ttk_gemm_quant_fn *)ref;
    quant_case c = random_case(r);
    char what[WHAT_BYTES];
    describe(what, sizeof(what), "gemm_quant", &c.format, c.M, c.N, c.K);
    buffer got = buffer_new(strided(c.M, c.ldy, c.N), sizeof(float));
    buffer want = buffer_copy(&got);
    forget_denormals();
    run(buffer_f32(&got), c.ldy, buffer_f32(&c.x), c.ldx, &c.format, c.packed.data, c.M, c.N, c.K);
    bool ok = c.kind != VALUES_PLAIN || c.format.scale == TTK_E8M0 || had_no_denormals(what);
    run_ref(buffer_f32(&want), c.ldy, buffer_f32(&c.x), c.ldx, &c.format, c.packed.data, c.M, c.N,
            c.K);
    ok = ok && same_f32(&got, &want, what) && gaps_kept(&got, c.M, c.ldy, c.N, what);
    if (ok && c.kind == VALUES_PLAIN && run == run_ref) {
        ok = product_is_right(&c.format, &c.w, buffer_f32(&got), c.ldy, buffer_f32(&c.x), c.ldx,
                              c.M, c.N, c.K) ||
             fault("%s: wrong", what);
    }
    ok = ok && splits_agree(&c, run, &want, r);
    rows_free(&c.w);
    BUFFERS_FREE(&c.x, &c.packed, &got, &want);
    return ok;
}
