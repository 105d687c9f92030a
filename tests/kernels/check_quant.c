/* check_quant.c - checkers of quantised weights: random formats (those of checkpoints, and any other
 * that the struct allows), random unpacked rows, packed, unpacked and multiplied. */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { MAX_ROWS = 60, MAX_COLUMNS = 100, MAX_DEPTH = 600, N_ARRAYS = 5, F16_PLAIN = 0x3bff };

/* ---- random formats ---- */
static const ttk_format known[] = {
    {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0},    /* Q8_0 */
    {TTK_I4, TTK_F16, TTK_SHIFT_NONE, 32, 0},    /* Q4_0 */
    {TTK_U4, TTK_F16, TTK_SHIFT_OFFSET, 32, 0},  /* Q4_1 */
    {TTK_U8, TTK_F16, TTK_SHIFT_OFFSET, 32, 0},  /* Q5_1 and the like */
    {TTK_U4, TTK_U8, TTK_SHIFT_OFFSET, 32, 8},   /* Q4_K */
    {TTK_U8, TTK_F32, TTK_SHIFT_OFFSET, 32, 0},  /* Q5_K and the like */
    {TTK_I6, TTK_I8, TTK_SHIFT_NONE, 16, 16},    /* Q6_K */
    {TTK_E4M3, TTK_F32, TTK_SHIFT_NONE, 128, 0}, /* FP8 blocks */
    {TTK_E2M1, TTK_E8M0, TTK_SHIFT_NONE, 32, 0}, /* MXFP4 */
    {TTK_U4, TTK_BF16, TTK_SHIFT_ZERO, 40, 0},   /* groups with zero points */
    {TTK_U4, TTK_F16, TTK_SHIFT_ZERO, 128, 0},        {TTK_I4, TTK_BF16, TTK_SHIFT_NONE, 64, 0},
    {TTK_I8, TTK_BF16, TTK_SHIFT_NONE, 1 << 20, 0}, /* a scale per channel */
    {TTK_E4M3, TTK_BF16, TTK_SHIFT_NONE, 1 << 20, 0},
};

static ttk_format random_format(rng *r)
{
    if (rng_below(r, 4) > 0) {
        return known[rng_below(r, sizeof(known) / sizeof(known[0]))];
    }
    static const ttk_dtype codes[] = {TTK_I8, TTK_U8, TTK_I4, TTK_U4, TTK_I6, TTK_E4M3, TTK_E2M1};
    static const ttk_dtype scales[] = {TTK_F32, TTK_BF16, TTK_F16, TTK_E8M0};
    static const int32_t groups[] = {2, 6, 16, 24, 32, 40, 64, 80, 128, 256, 1 << 30};
    ttk_format f = {.code = codes[rng_below(r, 7)], .shift = (ttk_shift)rng_below(r, 3)};
    f.group = groups[rng_below(r, 11)];
    f.scale = scales[rng_below(r, 4)];
    if (rng_below(r, 3) == 0) {
        f.super = 1 + (int32_t)rng_below(r, 9);
        f.scale = rng_below(r, 2) ? TTK_U8 : TTK_I8;
    }
    return f;
}

/* ---- random rows ---- */

/* n numbers of a type; PLAIN keeps them within [-2, 2] or so and free of NaN. */
static void fill_numbers(rng *r, void *array, ttk_dtype type, int64_t n, values kind)
{
    unsigned char *bytes = array;
    const unsigned e4m3_bits = rng_below(r, 4) ? 0xff : 0x87; /* or only zeros and denormals */
    for (int64_t i = 0; i < n; i++) {
        unsigned random = (unsigned)rng_next(r);
        switch (type) {
        case TTK_F32:
            ((float *)array)[i] = rng_value(r, kind);
            break;
        case TTK_BF16:
            rng_fill_bf16(r, (ttk_bf16 *)array + i, 1, kind);
            break;
        case TTK_F16: /* WIDE: anything finite */
            ((uint16_t *)array)[i] =
                (uint16_t)(kind == VALUES_SPECIAL ? random
                           : kind == VALUES_WIDE  ? random & 0xfbff
                                                  : random % F16_PLAIN | (random >> 16 & 0x8000));
            break;
        case TTK_I4:
        case TTK_U4:
        case TTK_E2M1:
            bytes[i] = random & 15;
            break;
        case TTK_I6:
            bytes[i] = random & 63;
            break;
        case TTK_E8M0:
            bytes[i] = (unsigned char)(kind == VALUES_SPECIAL ? random
                                       : kind == VALUES_WIDE  ? random % 255
                                                              : 117 + random % 11);
            break;
        case TTK_E4M3: /* NaN is rare even where it is wanted */
            bytes[i] = (unsigned char)(random & e4m3_bits);
            if ((bytes[i] & 0x7f) == 0x7f && (kind != VALUES_SPECIAL || rng_below(r, 20) > 0)) {
                bytes[i] ^= 1;
            }
            break;
        default:
            bytes[i] = (unsigned char)random;
        }
    }
}

/* Unpacked rows in guarded buffers. */
typedef struct rows {
    buffer array[N_ARRAYS];
    ttk_unpacked view;
} rows;

static rows rows_new(const ttk_format *f, int64_t n, int64_t K)
{
    int64_t G = f->group > 0 && K > 0 ? (K - 1) / f->group + 1 : 0;
    int64_t S = f->super > 0 ? (G + f->super - 1) / f->super : 0;
    bool is_plain = ttk_format_is_plain(f), is_offset = f->shift == TTK_SHIFT_OFFSET;
    size_t scale = is_plain ? 1 : ttk_dtype_bytes(f->scale);
    rows w;
    w.array[0] = buffer_new((size_t)(n * K), ttk_dtype_bytes(f->code));
    w.array[1] = buffer_new((size_t)(n * G), scale);
    w.array[2] =
        buffer_new((size_t)(f->shift == TTK_SHIFT_NONE ? 0 : n * G), is_offset ? scale : 1);
    w.array[3] = buffer_new((size_t)(n * S), sizeof(uint16_t));
    w.array[4] = buffer_new((size_t)(is_offset ? n * S : 0), sizeof(uint16_t));
    w.view = (ttk_unpacked){w.array[0].data, w.array[1].data, w.array[2].data, w.array[3].data,
                            w.array[4].data};
    return w;
}

static void rows_free(rows *w)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        buffer_free(&w->array[i]);
    }
}

static void rows_fill(rng *r, rows *w, const ttk_format *f, values kind)
{
    ttk_dtype shift = f->shift == TTK_SHIFT_ZERO ? TTK_U8 : f->scale;
    const ttk_dtype types[N_ARRAYS] = {f->code, f->scale, shift, TTK_F16, TTK_F16};
    for (int i = 0; i < N_ARRAYS; i++) {
        int64_t n = (int64_t)(w->array[i].bytes / ttk_dtype_bytes(types[i]));
        fill_numbers(r, w->array[i].data, types[i], n, kind);
    }
    if (f->shift == TTK_SHIFT_ZERO && rng_below(r, 3) > 0) { /* mostly of the size of a code */
        unsigned char *zero = w->array[2].data;
        for (size_t i = 0; i < w->array[2].bytes; i++) {
            zero[i] &= 15;
        }
    }
}

static bool same_bytes(const buffer *a, const buffer *b, const char *what)
{
    return (a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0)) ||
           fault("%s: bytes differ", what);
}

static void describe(char *what, size_t bytes, const char *op, const ttk_format *f, int64_t M,
                     int64_t N, int64_t K)
{
    snprintf(what, bytes, "%s code %d scale %d shift %d group %d super %d M %lld N %lld K %lld", op,
             f->code, f->scale, f->shift, f->group, f->super, (long long)M, (long long)N,
             (long long)K);
}

enum { WHAT_BYTES = 160 };

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
    buffer_free(&packed);
    buffer_free(&want);
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

/* Numbers that fall between two codes, or are one, if the largest of their group is 127 * 2^n: halves and quarters of small whole numbers, of either
 * sign, and among them the largest of both signs, of which the first counts. */
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
    int64_t n = rng_size(r, MAX_COLUMNS), K = rng_size(r, MAX_DEPTH), kind = rng_below(r, VALUES_COUNT + 2);
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

/* Element [n][k] as the format means it, and in *size_out the size of what it is a sum of. */
static double weight_of(const ttk_format *f, const rows *w, int64_t n, int64_t k, int64_t K,
                        double *size_out)
{
    int64_t G = (K - 1) / f->group + 1, at = n * G + k / f->group;
    int64_t S = f->super > 0 ? (G + f->super - 1) / f->super : 0,
            super_at = f->super > 0 ? n * S + k / f->group / f->super : 0;
    double scale = (double)ttk_number(f->scale, w->view.scale, at), offset = 0.0;
    double c = (double)ttk_number(f->code, w->view.code, n * K + k);
    if (f->super > 0) {
        scale *= (double)ttk_number(TTK_F16, w->view.super_scale, super_at);
    }
    if (f->shift == TTK_SHIFT_ZERO) {
        c -= (double)ttk_number(TTK_U8, w->view.shift, at);
    } else if (f->shift == TTK_SHIFT_OFFSET) {
        offset = (double)ttk_number(f->scale, w->view.shift, at);
        offset *= f->super > 0 ? -(double)ttk_number(TTK_F16, w->view.super_shift, super_at) : 1.0;
    }
    *size_out = fabs(scale * c) + fabs(offset);
    return scale * c + offset;
}

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

static size_t strided(int64_t n_rows, int64_t ld, int64_t cols)
{
    return n_rows > 0 ? (size_t)((n_rows - 1) * ld + cols) : 0;
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
    buffer_free(&split);
    buffer_free(&single);
    return ok;
}

/* Ordinary numbers must not be brought where f32 is denormal: some CPUs take 150 cycles for each
 * such operand or result. The CPU notes both. (Not E8M0, whose byte 0, also of the outputs beyond N,
 * is denormal itself.) */
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
    bool ok =
        c.kind != VALUES_PLAIN || c.format.scale == TTK_E8M0 || had_no_denormals(what);
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
    buffer_free(&c.x);
    buffer_free(&c.packed);
    buffer_free(&got);
    buffer_free(&want);
    return ok;
}
