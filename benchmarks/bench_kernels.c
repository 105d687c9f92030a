/* bench_kernels.c - times every compiled version of every op on one thread, beside the limits of
 * this machine measured in the same run: bytes read from memory per second, and fused multiply-adds
 * per second.
 *
 * Each figure is over repeated calls after a warm-up: median, fastest and slowest, spread =
 * (slowest - fastest) / median. Products walk M = 1 .. 64 over weights larger than the caches in
 * turn, as a model's layers do. GB/s counts each weight, key and value once, whatever is read
 * again. The shares are of the limits, so a product at M = 1 should stand near all of the reads (a
 * prefetching kernel may pass the plain loop that measures them), and at M = 64 near the peak of
 * the arithmetic it is made of. An op without a benchmark here does not compile. */
#include "ttk.h"
#include "ttk_peak.h"
#include "tests/kernels/cpu_flags.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MIN_REPEATS = 7,
    MAX_REPEATS = 200,
    ALIGN_BYTES = 64,
    LIMIT_SAMPLES = 100 /* of a fraction of a millisecond each, so that some miss all
                         * interruptions */
};
static const double MIN_SECONDS = 0.15; /* per case */
static const double SLOW_FACTOR =
    20.0; /* ref versions get a part of the work, so that a run takes a minute */
/* Larger than the last cache of the machines in use, so that weights come from memory. */
static const size_t STREAM_BYTES = (size_t)256 << 20;
static const size_t LIMIT_READ_BYTES = (size_t)8 << 20; /* of one sample; divides STREAM_BYTES */

static bool is_json;

/* CPU time of this thread: kernels neither wait nor call the system, so this is the time they take,
 * less what other programs take of the core in between. */
static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *take(size_t bytes)
{
    size_t rounded = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    void *p = aligned_alloc(ALIGN_BYTES, rounded ? rounded : ALIGN_BYTES);
    if (!p) {
        fprintf(stderr, "bench_kernels: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* A cheap fixed sequence in [-1, 1). */
static float *take_floats(int64_t n)
{
    float *x = take((size_t)n * sizeof(float));
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)(state >> 8) * 0x1p-23f - 1.0f;
    }
    return x;
}

/* ---- timing ---- */
typedef struct timing {
    double median, fastest, slowest; /* seconds of one call */
    int repeats;
} timing;

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef void call_fn(ttk_any_fn *fn, void *state);

static timing time_calls(call_fn *call, ttk_any_fn *fn, void *state)
{
    double seconds[MAX_REPEATS];
    timing t = {0};
    call(fn, state);
    double begin = now_seconds();
    for (int i = 0; i < MAX_REPEATS && (i < MIN_REPEATS || now_seconds() - begin < MIN_SECONDS);
         i++) {
        double start = now_seconds();
        call(fn, state);
        seconds[i] = now_seconds() - start;
        t.repeats = i + 1;
    }
    qsort(seconds, (size_t)t.repeats, sizeof(double), compare_doubles);
    t.fastest = seconds[0];
    t.slowest = seconds[t.repeats - 1];
    t.median = seconds[t.repeats / 2];
    return t;
}

/* ---- the machine's limits (ttk_peak.h) ---- */
static double limit_bytes; /* per second, read from memory by one thread */
static double limit_flops; /* per second; a fused multiply-add counts as two */
static double limit_int8;  /* the same for whole numbers of 8 bits */
static double limit_bf16;  /* the same for bf16 in tiles; 0 where there are none */
static volatile float sink;

static void take_peak(double *limit, double (*peak)(unsigned cpu_flags), unsigned flags)
{
    double start = now_seconds();
    double n = peak(flags);
    double rate = n / (now_seconds() - start);
    *limit = rate > *limit ? rate : *limit;
}

static void measure_limits(unsigned flags)
{
    size_t n = STREAM_BYTES / sizeof(float);
    size_t n_part = LIMIT_READ_BYTES / sizeof(float);
    float *x = take_floats((int64_t)n);
    for (size_t i = 0; i < LIMIT_SAMPLES; i++) {
        double start = now_seconds();
        sink = ttk_peak_read(flags, x + i * n_part % n, n_part);
        double rate = (double)LIMIT_READ_BYTES / (now_seconds() - start);
        limit_bytes = rate > limit_bytes ? rate : limit_bytes;
        take_peak(&limit_flops, ttk_peak_fma, flags);
        take_peak(&limit_int8, ttk_peak_int8, flags);
        take_peak(&limit_bf16, ttk_peak_bf16, flags);
    }
    free(x);
}

/* ---- output ---- */
/* limit: of the arithmetic, operations per second. */
static void report_of(const char *name, const char *shape, timing t, double bytes, double flops,
                      double limit)
{
    double byte_rate = bytes / t.median;
    double flop_rate = flops / t.median;
    double spread = (t.slowest - t.fastest) / t.median;
    double byte_share = limit_bytes > 0.0 ? byte_rate / limit_bytes : 0.0;
    double flop_share = limit > 0.0 ? flop_rate / limit : 0.0;
    if (is_json) {
        printf(
            "{\"kernel\":\"%s\",\"shape\":\"%s\",\"median_s\":%.9g,\"min_s\":%.9g,\"spread\":%.4f,"
            "\"repeats\":%d,"
            "\"bytes_per_s\":%.6g,\"share_of_read\":%.4f,\"flops\":%.6g,\"share_of_peak\":%.4f}\n",
            name, shape, t.median, t.fastest, spread, t.repeats, byte_rate, byte_share, flop_rate,
            flop_share);
    } else {
        printf("%-20s %-26s %11.2f %11.2f %5.0f%% %8.2f %4.0f%% %9.2f %4.0f%%\n", name, shape,
               1e6 * t.median, 1e6 * t.fastest, 100.0 * spread, byte_rate / 1e9, 100.0 * byte_share,
               flop_rate / 1e9, 100.0 * flop_share);
    }
    fflush(stdout);
}

static void report(const char *name, const char *shape, timing t, double bytes, double flops)
{
    report_of(name, shape, t, bytes, flops, limit_flops);
}

/* ---- products: weights of n_copies matrices, used in turn so that they do not stay in a cache
 * ---- */
typedef struct product {
    ttk_dtype type;
    float *x, *y;
    char *weights;
    size_t matrix_bytes;
    int64_t n_copies, turn;
    int64_t M, N, K;
} product;

static void call_product(ttk_any_fn *fn, void *state)
{
    product *p = state;
    const void *w = p->weights + (size_t)(p->turn++ % p->n_copies) * p->matrix_bytes;
    if (p->type == TTK_F32) {
        ((ttk_gemm_f32_fn *)fn)(p->y, p->N, p->x, p->K, w, p->M, p->N, p->K);
    } else {
        ((ttk_gemm_bf16_fn *)fn)(p->y, p->N, p->x, p->K, w, p->M, p->N, p->K);
    }
}

static void bench_product(const ttk_row *row, ttk_dtype type)
{
    static const int64_t batch[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
    product p = {.type = type, .N = 1408, .K = 2048};
    bool is_ref = row->need == 0;
    p.matrix_bytes = ttk_packed_bytes(&(ttk_format){.code = p.type}, p.N, p.K);
    p.n_copies = is_ref ? 1 : (int64_t)(STREAM_BYTES / p.matrix_bytes);
    p.weights = take((size_t)p.n_copies * p.matrix_bytes);
    /* 0x3c3c repeated is about 0.0115 both as f32 and as bf16: no denormals, no overflow. */
    memset(p.weights, 0x3c, (size_t)p.n_copies * p.matrix_bytes);
    int64_t max_rows = batch[sizeof(batch) / sizeof(batch[0]) - 1];
    p.x = take_floats(max_rows * p.K);
    p.y = take_floats(max_rows * p.N);
    for (size_t i = 0; i < sizeof(batch) / sizeof(batch[0]) && (!is_ref || i < 2); i++) {
        char shape[64];
        p.M = batch[i];
        snprintf(shape, sizeof(shape), "M %lld N %lld K %lld", (long long)p.M, (long long)p.N,
                 (long long)p.K);
        timing t = time_calls(call_product, row->fn, &p);
        report_of(row->name, shape, t, (double)p.matrix_bytes, 2.0 * (double)(p.M * p.N * p.K),
                  row->need & TTK_CPU_AMX ? limit_bf16 : limit_flops);
    }
    free(p.weights);
    free(p.x);
    free(p.y);
}

static void bench_gemm_f32(const ttk_row *row)
{
    bench_product(row, TTK_F32);
}

static void bench_gemm_bf16(const ttk_row *row)
{
    bench_product(row, TTK_BF16);
}

static void bench_gemm_bf16_pairs(const ttk_row *row)
{
    bench_product(row, TTK_BF16);
}

/* ---- products with quantised weights: the same walk, over the formats of checkpoints ---- */
typedef struct quant_product {
    ttk_format format;
    float *x, *y;
    char *weights;
    size_t matrix_bytes;
    int64_t n_copies, turn;
    int64_t M, N, K;
    bool is_normal;
    char *rows8; /* the same rows as int8 */
} quant_product;

static const void *next_weights(quant_product *p)
{
    return p->weights + (size_t)(p->turn++ % p->n_copies) * p->matrix_bytes;
}

static void call_gemm_act8(ttk_any_fn *fn, void *state)
{
    quant_product *p = state;
    ((ttk_gemm_act8_fn *)fn)(p->y, p->N, p->rows8, ttk_act8_bytes(p->K), &p->format,
                             next_weights(p), p->M, p->N, p->K);
}

static void call_gemm_quant(ttk_any_fn *fn, void *state)
{
    quant_product *p = state;
    ((ttk_gemm_quant_fn *)fn)(p->y, p->N, p->x, p->K, &p->format, next_weights(p), p->M, p->N,
                              p->K);
}

/* Weights as they are trained: sums of 12 random numbers are nearly normal. Codes that stand for
 * few of them may be slow, so this shows the speed to expect, and random codes the worst. */
static void quantize_normal(const quant_product *p, const ttk_unpacked *rows)
{
    float *w = take((size_t)(p->N * p->K) * sizeof(*w));
    uint32_t state = 1;
    for (int64_t i = 0; i < p->N * p->K; i++) {
        uint32_t sum = 0;
        for (int j = 0; j < 12; j++) {
            state = state * 1664525u + 1013904223u;
            sum += state >> 16;
        }
        w[i] = (float)sum * 0x1p-16f - 6.0f;
    }
    ttk.quantize(&p->format, w, p->N, p->K, rows);
    free(w);
}

/* Random codes, and scales near 0.0115 (0x3c3c is a number of that size in every wide type), as
 * their values do not matter; but no NaN, which is worked on apart. */
static void pack_random(quant_product *p)
{
    char *buffer = take(ttk_unpacked_bytes(&p->format, p->N, p->K));
    memset(buffer, 0x3c, ttk_unpacked_bytes(&p->format, p->N, p->K));
    ttk_unpacked rows = ttk_unpacked_in(&p->format, p->N, p->K, buffer);
    static const unsigned char largest[] = {
        [TTK_I8] = 255, [TTK_U8] = 255,   [TTK_I4] = 15,  [TTK_U4] = 15,
        [TTK_I6] = 63,  [TTK_E4M3] = 126, [TTK_E2M1] = 15};
    uint32_t state = 1;
    for (int64_t i = 0; i < p->N * p->K; i++) {
        state = state * 1664525u + 1013904223u;
        buffer[i] = (char)((state >> 16) % (largest[p->format.code] + 1u));
    }
    if (p->is_normal) {
        quantize_normal(p, &rows);
    }
    for (int64_t i = 0; i < p->n_copies; i++) {
        ttk.pack_quant(p->weights + (size_t)i * p->matrix_bytes, &p->format, &rows, p->N, p->K, 0,
                       (p->N + TTK_PANEL - 1) / TTK_PANEL);
    }
    free(buffer);
}

static const struct {
    const char *name;
    ttk_format format;
    bool is_normal;
} quant_formats[] = {
    {"Q8_0", {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0}, false},
    {"Q4_0", {TTK_I4, TTK_F16, TTK_SHIFT_NONE, 32, 0}, false},
    {"Q4_1", {TTK_U4, TTK_F16, TTK_SHIFT_OFFSET, 32, 0}, false},
    {"Q4_K", {TTK_U4, TTK_U8, TTK_SHIFT_OFFSET, 32, 8}, false},
    {"Q5_K", {TTK_U8, TTK_F32, TTK_SHIFT_OFFSET, 32, 0}, false},
    {"Q6_K", {TTK_I6, TTK_I8, TTK_SHIFT_NONE, 16, 16}, false},
    {"FP8", {TTK_E4M3, TTK_F32, TTK_SHIFT_NONE, 128, 0}, true},
    {"FP8 random", {TTK_E4M3, TTK_F32, TTK_SHIFT_NONE, 128, 0}, false},
    {"MXFP4", {TTK_E2M1, TTK_E8M0, TTK_SHIFT_NONE, 32, 0}, false},
    {"int4 zero", {TTK_U4, TTK_BF16, TTK_SHIFT_ZERO, 128, 0}, false},
    {"int8 row", {TTK_I8, TTK_BF16, TTK_SHIFT_NONE, 1 << 20, 0}, false},
};

static void bench_quant_shapes(const ttk_row *row, quant_product *p, const char *name)
{
    static const int64_t batch[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128};
    const bool is_ref = row->need == 0, is_act8 = row->op == TTK_OP_gemm_act8;
    int64_t max_rows = batch[sizeof(batch) / sizeof(batch[0]) - 1];
    p->x = take_floats(max_rows * p->K);
    p->y = take_floats(max_rows * p->N);
    p->rows8 = take((size_t)max_rows * ttk_act8_bytes(p->K));
    ttk.act8(p->rows8, ttk_act8_bytes(p->K), p->x, p->K, max_rows, p->K);
    for (size_t i = 0; i < sizeof(batch) / sizeof(batch[0]) && (!is_ref || i < 1); i++) {
        char shape[64];
        p->M = batch[i];
        snprintf(shape, sizeof(shape), "%s M %lld N %lld K %lld", name, (long long)p->M,
                 (long long)p->N, (long long)p->K);
        timing t = time_calls(is_act8 ? call_gemm_act8 : call_gemm_quant, row->fn, p);
        report_of(row->name, shape, t, (double)p->matrix_bytes, 2.0 * (double)(p->M * p->N * p->K),
                  is_act8 ? limit_int8 : limit_flops);
    }
    free(p->rows8);
    free(p->x);
    free(p->y);
}

static void bench_quant_product(const ttk_row *row)
{
    bool is_ref = row->need == 0;
    for (size_t f = 0; f < sizeof(quant_formats) / sizeof(quant_formats[0]); f++) {
        quant_product p = {.format = quant_formats[f].format,
                           .is_normal = quant_formats[f].is_normal,
                           .N = is_ref ? 128 : 1408,
                           .K = 2048};
        if (row->op == TTK_OP_gemm_act8 && !ttk_can_act8(&p.format, p.K)) {
            continue;
        }
        p.matrix_bytes = ttk_packed_bytes(&p.format, p.N, p.K);
        p.n_copies = is_ref ? 1 : (int64_t)(STREAM_BYTES / p.matrix_bytes);
        p.weights = take((size_t)p.n_copies * p.matrix_bytes);
        pack_random(&p);
        bench_quant_shapes(row, &p, quant_formats[f].name);
        free(p.weights);
    }
}

static void bench_gemm_quant(const ttk_row *row)
{
    bench_quant_product(row);
}

static void bench_gemm_act8(const ttk_row *row)
{
    bench_quant_product(row);
}

/* ---- attention ---- */
typedef struct attention {
    ttk_attend_args args;
} attention;

static void call_attend(ttk_any_fn *fn, void *state)
{
    ((ttk_attend_fn *)fn)(&((attention *)state)->args);
}

/* R rows of G heads over n_positions positions. */
typedef struct attend_shape {
    const char *name;
    int64_t R, G, Dk, Dv;
    bool is_latent;
    int64_t n_positions;
} attend_shape;

static void bench_attend_shape(const ttk_row *row, const attend_shape *s, ttk_dtype type)
{
    bool is_ref = row->need == 0;
    int64_t n_positions = is_ref ? s->n_positions / (int64_t)SLOW_FACTOR : s->n_positions;
    int64_t stride = s->is_latent ? s->Dk : s->Dk + s->Dv, n = s->R * s->G;
    int64_t n_pages = (n_positions + TTK_PAGE - 1) / TTK_PAGE;
    int64_t scales = stride * TTK_PAGE * (int64_t)ttk_dtype_bytes(type),
            scales_bytes = TTK_PAGE * (int64_t)sizeof(float);
    int64_t page_bytes = scales + (type == TTK_I8 ? 2 * scales_bytes : 0);
    char *store = take((size_t)(n_pages * page_bytes));
    memset(store, 0x3c, (size_t)(n_pages * page_bytes));
    const void **pages = take((size_t)n_pages * sizeof(*pages));
    for (int64_t p = 0; p < n_pages; p++) {
        pages[p] = store + p * page_bytes;
    }
    int64_t *first = take((size_t)s->R * sizeof(*first));
    memset(first, 0, (size_t)s->R * sizeof(*first));
    float *q = take_floats(n * s->Dk);
    float *out = take_floats(n * s->Dv);
    float *work = take(ttk_attend_work_floats(n, s->Dk, s->Dv) * sizeof(float));
    attention a = {{.q = q,
                    .q_row = s->G * s->Dk,
                    .q_head = s->Dk,
                    .out = out,
                    .out_row = s->G * s->Dv,
                    .out_head = s->Dv,
                    .pages = pages,
                    .kv_type = type,
                    .v_offset = s->is_latent ? 0 : s->Dk,
                    .k_stride = stride,
                    .v_stride = stride,
                    .k_scales = scales,
                    .v_scales = scales + scales_bytes,
                    .tail_scales = scales + scales_bytes,
                    .k_tail = type == TTK_I8 && s->is_latent ? s->Dk - s->Dv : 0,
                    .R = s->R,
                    .G = s->G,
                    .Dk = s->Dk,
                    .Dv = s->Dv,
                    .first = first,
                    .last = n_positions - s->R,
                    .scale = 0.1f,
                    .work = work}};
    timing t = time_calls(call_attend, row->fn, &a);
    char shape[64];
    snprintf(shape, sizeof(shape), "%s %s %lld", s->name,
             type == TTK_F32    ? "f32"
             : type == TTK_BF16 ? "bf16"
                                : "int8",
             (long long)n_positions);
    report(row->name, shape, t, (double)(n_pages * page_bytes),
           2.0 * (double)(n * n_positions * (s->Dk + s->Dv)));
    free(store);
    free(pages);
    free(first);
    free(q);
    free(out);
    free(work);
}

/* Decode, one row at a time, and prefill, tiles of rows; those of 16384 positions come from
 * memory. */
static void bench_attend(const ttk_row *row)
{
    static const attend_shape shapes[] = {
        {"MLA 16x576/512", 1, 16, 576, 512, true, 4096},
        {"MLA 2x16x576/512", 2, 16, 576, 512, true, 4096},
        {"GQA 8x128", 1, 8, 128, 128, false, 4096},
        {"GQA 4x8x128", 4, 8, 128, 128, false, 4096},
        {"GQA 8x128", 1, 8, 128, 128, false, 16384 * 4},
        {"MHA 1x128", 1, 1, 128, 128, false, 4096},
        {"MHA 32x1x128", 32, 1, 128, 128, false, 4096},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        bench_attend_shape(row, &shapes[i], TTK_F32);
        bench_attend_shape(row, &shapes[i], TTK_BF16);
        bench_attend_shape(row, &shapes[i], TTK_I8);
    }
}

/* Parts of a block of 8 heads, 64 blocks of them, as of a context of 4096. */
static void call_attend_merge(ttk_any_fn *fn, void *state)
{
    ((ttk_attend_merge_fn *)fn)(state);
}

static void bench_attend_merge(const ttk_row *row)
{
    enum { PARTS = 64, STRIDE_PARTS = 8, DV = 128 };
    int64_t stride = STRIDE_PARTS * (int64_t)ttk_attend_part_floats(DV);
    float out[DV], state[2];
    float *parts = take_floats(PARTS * stride);
    ttk_attend_merge_args args = {.parts = parts,
                                  .stride = stride,
                                  .n = PARTS,
                                  .is_first = true,
                                  .is_last = true,
                                  .Dv = DV,
                                  .out = out,
                                  .state = state};
    timing t = time_calls(call_attend_merge, row->fn, &args);
    report(row->name, "64 parts of 128", t, (double)(PARTS * DV) * sizeof(float),
           2.0 * (double)(PARTS * DV));
    free(parts);
}

/* ---- everything that works on rows in a cache ---- */
enum {
    ROWS_T = 16,
    ROWS_H = 2048,
    ROWS_N = ROWS_T * ROWS_H,
    HEAD_D = 128,
    N_EXPERTS = 256,
    CHOSEN = 8,
    VOCABULARY = 131072
};

typedef struct rows_state {
    float *x, *y, *z;
    int64_t chosen; /* keeps a result alive */
} rows_state;

/* bytes: read and written by one call. */
static void bench_rows(const ttk_row *row, call_fn *call, const char *shape, double bytes)
{
    rows_state s = {0};
    s.x = take_floats(VOCABULARY);
    s.y = take_floats(VOCABULARY);
    s.z = take_floats(VOCABULARY);
    report(row->name, shape, time_calls(call, row->fn, &s), bytes, 0.0);
    free(s.x);
    free(s.y);
    free(s.z);
}

/* The benchmark of an op on rows: the shape and the bytes of a call, and, as the body of a function
 * behind it, the call of fn with the rows s. */
#define BENCH_ROWS(op, shape, bytes)                                                               \
    static void call_##op##_rows(ttk_##op##_fn *fn, rows_state *s);                                \
    static void call_##op(ttk_any_fn *fn, void *state)                                             \
    {                                                                                              \
        call_##op##_rows((ttk_##op##_fn *)fn, state);                                              \
    }                                                                                              \
    static void bench_##op(const ttk_row *row)                                                     \
    {                                                                                              \
        bench_rows(row, call_##op, shape, bytes);                                                  \
    }                                                                                              \
    static void call_##op##_rows(ttk_##op##_fn *fn, rows_state *s)

BENCH_ROWS(pack, "bf16 N 32 K 2048", 4.0 * ROWS_N * 2.0)
{
    fn(s->y, TTK_BF16, s->x, TTK_BF16, ROWS_H, 1, ROWS_T * 2, ROWS_H, 0, 1);
}

BENCH_ROWS(pack_quant, "Q8_0 N 32 K 1024", 2.125 * ROWS_N / 2.0)
{
    ttk_unpacked rows = ttk_unpacked_in(&quant_formats[0].format, TTK_PANEL, ROWS_H / 2, s->x);
    fn(s->y, &quant_formats[0].format, &rows, TTK_PANEL, ROWS_H / 2, 0, 1);
}

BENCH_ROWS(unpack, "Q8_0 N 32 K 1024", 2.125 * ROWS_N / 2.0)
{
    ttk_unpacked rows = ttk_unpacked_in(&quant_formats[0].format, TTK_PANEL, ROWS_H / 2, s->x);
    fn(&rows, &quant_formats[0].format, s->y, ROWS_H / 2, 0, TTK_PANEL);
}

BENCH_ROWS(quantize, "Q8_0 N 16 K 2048", 5.0625 * ROWS_N)
{
    ttk_unpacked rows = ttk_unpacked_in(&quant_formats[0].format, ROWS_T, ROWS_H, s->y);
    fn(&quant_formats[0].format, s->x, ROWS_T, ROWS_H, &rows);
}

BENCH_ROWS(act8, "T 16 H 2048", 5.5 * ROWS_N)
{
    fn(s->y, ttk_act8_bytes(ROWS_H), s->x, ROWS_H, ROWS_T, ROWS_H);
}

BENCH_ROWS(row8, "fp8, n 32768", 5.03 * ROWS_N)
{
    fn(TTK_ROW8_FP8, s->y, s->x, ROWS_N);
}

BENCH_ROWS(row8_f32, "fp8, n 32768", 5.03 * ROWS_N)
{
    fn(TTK_ROW8_FP8, s->y, s->x, ROWS_N);
}

BENCH_ROWS(row8_act8, "T 16 H 2048", 2.625 * ROWS_N)
{
    for (int t = 0; t < ROWS_T; t++) {
        fn(s->y, s->x, ROWS_H);
    }
}

BENCH_ROWS(rmsnorm_f32, "T 16 H 2048", 12.0 * ROWS_N)
{
    fn(s->y, ROWS_H, s->x, ROWS_H, s->z, ROWS_T, ROWS_H, 1e-6f);
}

BENCH_ROWS(layernorm_f32, "T 16 H 2048", 12.0 * ROWS_N)
{
    fn(s->y, ROWS_H, s->x, ROWS_H, s->z, s->z + ROWS_H, ROWS_T, ROWS_H, 1e-5f);
}

BENCH_ROWS(conv_silu_f32, "4 taps, n 8192", 9.0 * ROWS_N)
{
    const float *const taps[] = {s->x, s->x + 1, s->x + 2, s->x + 3};
    fn(s->y, taps, s->z, ROWS_N / 4, 4, ROWS_N / 4);
}

BENCH_ROWS(rope_f32, "256 heads of 128", 8.0 * ROWS_N)
{
    fn(s->y, ROWS_N / HEAD_D, HEAD_D, HEAD_D, s->x, s->x + HEAD_D, false);
}

BENCH_ROWS(silu_mul_f32, "T 16 F 2048", 12.0 * ROWS_N)
{
    fn(s->y, ROWS_H, s->x, ROWS_H, s->z, ROWS_H, ROWS_T, ROWS_H);
}

BENCH_ROWS(clamped_mul_f32, "T 16 F 2048", 12.0 * ROWS_N)
{
    fn(s->y, ROWS_H, s->x, ROWS_H, s->z, ROWS_H, ROWS_T, ROWS_H, 7.0f, 1.702f);
}

BENCH_ROWS(add_f32, "n 32768", 12.0 * ROWS_N)
{
    fn(s->y, s->x, ROWS_N);
}

BENCH_ROWS(axpy_f32, "n 32768", 12.0 * ROWS_N)
{
    fn(s->y, 0.5f, s->x, ROWS_N);
}

BENCH_ROWS(f32_to_bf16, "n 32768", 6.0 * ROWS_N)
{
    fn((ttk_bf16 *)s->y, s->x, ROWS_N);
}

BENCH_ROWS(bf16_to_f32, "n 32768", 6.0 * ROWS_N)
{
    fn(s->y, (const ttk_bf16 *)s->x, ROWS_N);
}

BENCH_ROWS(sigmoid_f32, "n 32768", 8.0 * ROWS_N)
{
    fn(s->y, ROWS_N);
}

BENCH_ROWS(softmax_f32, "n 32768", 8.0 * ROWS_N)
{
    fn(s->y, ROWS_N);
}

BENCH_ROWS(topk_f32, "128 rows, 8 of 256", 4.0 * ROWS_N)
{
    int32_t idx[CHOSEN];
    for (int t = 0; t < ROWS_N / N_EXPERTS; t++) {
        fn(idx, s->x + t * N_EXPERTS, N_EXPERTS, CHOSEN);
        s->chosen += idx[0];
    }
}

BENCH_ROWS(argmax_f32, "n 131072", 4.0 * VOCABULARY)
{
    s->chosen += fn(s->x, VOCABULARY);
}

/* ---- the recurrence of a gated delta net: 32 heads of 128 x 128, whose states are read and
 * written ---- */
enum { DELTA_HEADS = 32, DELTA_D = 128 };

static void call_delta(ttk_any_fn *fn, void *state)
{
    ttk_delta_args args = *(const ttk_delta_args *)state;
    int64_t parts = ttk_delta_parts(DELTA_D);
    for (int64_t part = 0; part < DELTA_HEADS * parts; part++) {
        args.v = ((const ttk_delta_args *)state)->v + part % parts * TTK_DELTA_COLUMNS;
        ((ttk_delta_fn *)fn)(&args);
        args.state += DELTA_D * TTK_DELTA_COLUMNS;
    }
}

static void bench_delta(const ttk_row *row)
{
    static const int64_t tokens[] = {1, 64};
    int64_t n_state = DELTA_HEADS * ttk_delta_state_floats(DELTA_D, DELTA_D);
    float *state = take_floats(n_state);
    float *x = take_floats(64 * DELTA_D);
    float *gate = take_floats(64);
    float *out = take_floats(64 * DELTA_D);
    for (int64_t i = 0; i < 64 * DELTA_D; i++) {
        x[i] *= 0.1f; /* a key of length near 1, so that the state stays bounded */
    }
    for (int64_t i = 0; i < 64; i++) {
        gate[i] = 0.5f;
    }
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]) && (row->need != 0 || i < 1); i++) {
        ttk_delta_args args = {.state = state,
                               .Dk = DELTA_D,
                               .n = TTK_DELTA_COLUMNS,
                               .T = tokens[i],
                               .q = x,
                               .k = x,
                               .v = x,
                               .ldq = DELTA_D,
                               .ldk = DELTA_D,
                               .ldv = DELTA_D,
                               .decay = gate,
                               .beta = gate,
                               .ld_gate = 1,
                               .out = out,
                               .ldo = DELTA_D};
        timing t = time_calls(call_delta, row->fn, &args);
        char shape[64];
        snprintf(shape, sizeof(shape), "32 x 128x128, %lld tokens", (long long)tokens[i]);
        report(row->name, shape, t, 8.0 * (double)n_state, 7.0 * (double)(n_state * tokens[i]));
    }
    free(state);
    free(x);
    free(gate);
    free(out);
}

/* ---- the walk ---- */
typedef void bench_fn(const ttk_row *row);
#define BENCH(op) bench_##op,
static bench_fn *const benches[TTK_OP_COUNT] = {TTK_OPS(BENCH)};

int main(int argc, char **argv)
{
    const char *only = "";
    bool is_list = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            is_json = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            is_list = true;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else {
            fprintf(stderr, "usage: %s [--json] [--list] [--only TEXT]\n", argv[0]);
            return 2;
        }
    }
    unsigned flags = cpu_flags();
    size_t n_rows;
    const ttk_row *rows = ttk_rows(&n_rows);
    for (size_t i = 0; is_list && i < n_rows; i++) {
        printf("%s\n", rows[i].name);
    }
    if (is_list) {
        return 0;
    }
    ttk_init(flags);
    measure_limits(flags);
    if (is_json) {
        printf(
            "{\"limit\":\"one "
            "thread\",\"read_bytes_per_s\":%.6g,\"peak_flops\":%.6g,\"peak_int8\":%.6g,\"peak_bf16\":%.6g,\"compiler\":\"%s\"}\n",
            limit_bytes, limit_flops, limit_int8, limit_bf16, __VERSION__);
    } else {
        printf(
            "# one thread, compiler %s; limits measured here: reads %.2f GB/s, fma %.1f GFLOP/s, int8 %.1f GOP/s, bf16 %.1f GFLOP/s\n",
            __VERSION__, limit_bytes / 1e9, limit_flops / 1e9, limit_int8 / 1e9, limit_bf16 / 1e9);
        printf("%-20s %-26s %11s %11s %6s %8s %5s %9s %5s\n", "kernel", "shape", "median us",
               "min us", "spread", "GB/s", "", "GFLOP/s", "");
    }
    for (size_t i = 0; i < n_rows; i++) {
        if ((rows[i].need & ~flags) == 0 && strstr(rows[i].name, only)) {
            benches[rows[i].op](&rows[i]);
        }
    }
    return 0;
}
