/* check_attend.c - checkers of attend and attend_merge: equal to ref bit for bit, to softmax(q k^T)
 * v in double precision, and independent of where pages lie, of which rows and heads share a call,
 * and of how blocks are spread over calls. */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_G = 9,
    MAX_R = 7,
    MAX_DK = 600,
    MAX_DV = 530,
    MAX_POSITION = 300,
    MAX_PAGES = (MAX_POSITION + MAX_R) / TTK_PAGE + 1,
    SCALE_SETS = 3 /* of keys, of their tails, of values */
};

/* A cache: pages[n_pages], each of page_bytes, shuffled in one buffer. Scales stand behind the
 * elements. */
typedef struct cache {
    buffer store;
    const void *pages[MAX_PAGES];
    int64_t n_pages, page_elements, page_bytes;
    ttk_dtype type;
    int64_t k_offset, v_offset, k_stride, v_stride, scales, k_tail;
} cache;

static cache cache_new(rng *r, ttk_dtype type, int64_t n_positions, int64_t Dk, int64_t Dv,
                       int64_t k_tail, bool is_latent)
{
    cache c;
    c.type = type;
    c.k_tail = k_tail;
    c.n_pages = (n_positions + TTK_PAGE - 1) / TTK_PAGE;
    int64_t shape = is_latent ? 2 : rng_below(r, 2); /* key and value of a token side by side, in
                                                      * two halves of the page, or one that is
                                                      * both */
    int64_t gap = rng_below(r, 4);
    c.k_stride = shape == 0 ? Dk + Dv + gap : (shape == 1 || Dk >= Dv ? Dk : Dv) + gap;
    c.v_stride = shape == 1 ? Dv : c.k_stride;
    c.k_offset = rng_below(r, 3);
    c.v_offset = c.k_offset + (shape == 0 ? Dk : shape == 1 ? TTK_PAGE * c.k_stride : 0);
    c.page_elements = c.v_offset + TTK_PAGE * c.v_stride;
    if (c.page_elements < c.k_offset + TTK_PAGE * c.k_stride) {
        c.page_elements = c.k_offset + TTK_PAGE * c.k_stride;
    }
    int64_t line = (int64_t)sizeof(float);
    c.scales = (c.page_elements * (int64_t)ttk_dtype_bytes(type) + line - 1) / line * line;
    c.page_bytes = c.scales + (type == TTK_I8 ? SCALE_SETS * TTK_PAGE * line : 0);
    c.store = buffer_new((size_t)(c.n_pages * c.page_bytes), 1);
    int64_t order[MAX_PAGES];
    for (int64_t p = 0; p < c.n_pages; p++) {
        int64_t other = rng_below(r, p + 1);
        order[p] = order[other];
        order[other] = p;
    }
    for (int64_t p = 0; p < c.n_pages; p++) {
        c.pages[p] = (char *)c.store.data + (size_t)(order[p] * c.page_bytes);
    }
    return c;
}

/* Place of a page's scale of set 0 .. SCALE_SETS - 1, in bytes. */
static int64_t scales_at(const cache *c, int64_t set)
{
    return c->scales + set * TTK_PAGE * (int64_t)sizeof(float);
}

static float *scale_of(const cache *c, int64_t position, int64_t set)
{
    char *page = (char *)c->pages[position / TTK_PAGE];
    return (float *)(void *)(page + scales_at(c, set)) + position % TTK_PAGE;
}

static void cache_fill(rng *r, const cache *c, values kind)
{
    for (int64_t p = 0; p < c->n_pages; p++) {
        char *page = (char *)c->pages[p];
        if (c->type == TTK_F32) {
            rng_fill(r, (float *)(void *)page, c->page_elements, kind);
        } else if (c->type == TTK_BF16) {
            rng_fill_bf16(r, (ttk_bf16 *)(void *)page, c->page_elements, kind);
        } else {
            for (int64_t i = 0; i < c->page_elements; i++) {
                page[i] = (char)(rng_below(r, 255) - 127);
            }
            rng_fill(r, scale_of(c, p * TTK_PAGE, 0), SCALE_SETS * TTK_PAGE, kind);
        }
    }
}

static int64_t cache_at(int64_t position, int64_t offset, int64_t stride)
{
    return offset + position % TTK_PAGE * stride;
}

/* Element i of the key or value that begins at `at` of its page. */
static double cache_get(const cache *c, int64_t position, int64_t at, int64_t i)
{
    const void *page = c->pages[position / TTK_PAGE];
    if (c->type == TTK_F32) {
        return (double)((const float *)page)[at + i];
    }
    if (c->type == TTK_I8) {
        return (double)((const int8_t *)page)[at + i];
    }
    uint32_t u = (uint32_t)((const ttk_bf16 *)page)[at + i] << 16;
    float x;
    memcpy(&x, &u, sizeof(x));
    return (double)x;
}

static double cache_key(const cache *c, int64_t position, int64_t i, int64_t Dk)
{
    double x = cache_get(c, position, cache_at(position, c->k_offset, c->k_stride), i);
    return c->type == TTK_I8 ? x * (double)*scale_of(c, position, i >= Dk - c->k_tail ? 1 : 0) : x;
}

static double cache_value(const cache *c, int64_t position, int64_t i)
{
    double x = cache_get(c, position, cache_at(position, c->v_offset, c->v_stride), i);
    return c->type == TTK_I8 ? x * (double)*scale_of(c, position, 2) : x;
}

/* Copies keys and values of the positions seen; all else in `to` keeps its poison, and so must not
 * matter. */
static void cache_fill_like(cache *to, const cache *from, int64_t first, int64_t last, int64_t Dk,
                            int64_t Dv)
{
    size_t bytes = ttk_dtype_bytes(to->type);
    for (int64_t position = first; position <= last; position++) {
        const char *source = from->pages[position / TTK_PAGE];
        char *target = (char *)to->pages[position / TTK_PAGE];
        memcpy(target + (size_t)cache_at(position, to->k_offset, to->k_stride) * bytes,
               source + (size_t)cache_at(position, from->k_offset, from->k_stride) * bytes,
               (size_t)Dk * bytes);
        memcpy(target + (size_t)cache_at(position, to->v_offset, to->v_stride) * bytes,
               source + (size_t)cache_at(position, from->v_offset, from->v_stride) * bytes,
               (size_t)Dv * bytes);
        for (int64_t set = 0; to->type == TTK_I8 && set < SCALE_SETS; set++) {
            *scale_of(to, position, set) = *scale_of(from, position, set);
        }
    }
}

static void use_cache(ttk_attend_args *args, const cache *c)
{
    args->pages = c->pages;
    args->kv_type = c->type;
    args->k_offset = c->k_offset;
    args->v_offset = c->v_offset;
    args->k_stride = c->k_stride;
    args->v_stride = c->v_stride;
    args->k_scales = scales_at(c, 0);
    args->tail_scales = scales_at(c, 1);
    args->v_scales = scales_at(c, 2);
    args->k_tail = c->k_tail;
}

/* Runs into args.out with a work buffer of the promised size whose every cell is poison. */
static bool run_attend(ttk_any_fn *fn, ttk_attend_args args)
{
    size_t n_work = ttk_attend_work_floats(args.R * args.G, args.Dk, args.Dv);
    buffer work = buffer_new(n_work, sizeof(float));
    bool ok =
        (uintptr_t)work.data % 64 == 0 || fault("attend: work size %zu keeps no alignment", n_work);
    buffer untouched = buffer_copy(&work);
    args.work = buffer_f32(&work);
    ((ttk_attend_fn *)fn)(&args);
    /* Only what lies in front of the work buffer is compared. */
    memcpy(untouched.data, work.data, work.bytes);
    ok = ok && same_f32(&work, &untouched, "attend work");
    BUFFERS_FREE(&work, &untouched);
    return ok;
}

/* The same by runs of blocks of random lengths, whose parts ref merges. */
static bool run_parts(ttk_any_fn *fn, ttk_attend_args args, rng *r)
{
    int64_t ld = (int64_t)ttk_attend_part_floats(args.Dv), n = args.R * args.G;
    int64_t n_blocks = (args.last + args.R - 1) / TTK_BLOCK + 1;
    bool ok = true;
    buffer state = buffer_new((size_t)(n * 2), sizeof(float));
    float *out = args.out;
    for (args.block_begin = args.first[0] / TTK_BLOCK; ok && args.block_begin < n_blocks;
         args.block_begin = args.block_end) {
        args.block_end = args.block_begin + 1 + rng_below(r, n_blocks - args.block_begin);
        buffer parts =
            buffer_new((size_t)((args.block_end - args.block_begin) * n * ld), sizeof(float));
        args.parts = buffer_f32(&parts);
        args.out = NULL;
        ok = run_attend(fn, args);
        for (int64_t i = 0; ok && i < n; i++) {
            int64_t first = args.first[i / args.G] / TTK_BLOCK,
                    last = (args.last + i / args.G) / TTK_BLOCK;
            int64_t begin = args.block_begin > first ? args.block_begin : first;
            int64_t end = args.block_end < last + 1 ? args.block_end : last + 1;
            ttk_attend_merge_args merge = {0};
            merge.parts = args.parts + ((begin - args.block_begin) * n + i) * ld;
            merge.stride = n * ld;
            merge.n = end - begin;
            merge.is_first = begin == first;
            merge.is_last = end == last + 1;
            merge.Dv = args.Dv;
            merge.sink = args.sink ? args.sink + i % args.G : NULL;
            merge.out = out + i / args.G * args.out_row + i % args.G * args.out_head;
            merge.state = buffer_f32(&state) + i * 2;
            if (begin < end) {
                ttk.attend_merge(&merge);
            }
        }
        buffer_free(&parts);
    }
    buffer_free(&state);
    return ok;
}

/* Row r alone, head by head. */
static bool run_alone(ttk_any_fn *fn, const ttk_attend_args *args, const buffer *out)
{
    bool ok = true;
    for (int64_t i = 0; ok && i < args->R * args->G; i++) {
        int64_t row = i / args->G, g = i % args->G;
        ttk_attend_args one = *args;
        one.R = 1;
        one.G = 1;
        one.q = args->q + row * args->q_row + g * args->q_head;
        one.first = args->first + row;
        one.last = args->last + row;
        one.sink = args->sink ? args->sink + g : NULL;
        buffer result = buffer_new((size_t)args->Dv, sizeof(float));
        one.out = buffer_f32(&result);
        ok = run_attend(fn, one);
        memcpy(buffer_f32(out) + row * args->out_row + g * args->out_head, result.data,
               result.bytes);
        buffer_free(&result);
    }
    return ok;
}

/* One head of one row against double precision. */
static bool head_is_right(const ttk_attend_args *args, const cache *c, int64_t row, int64_t g)
{
    const float *q = args->q + row * args->q_row + g * args->q_head;
    const float *out = args->out + row * args->out_row + g * args->out_head;
    int64_t first = args->first[row], last = args->last + row;
    double score[MAX_POSITION + MAX_R];
    double max = args->sink ? (double)args->sink[g] : -(double)INFINITY;
    double magnitude = 0.0; /* the largest sum of |q k| times scale: bounds the error of a score */
    for (int64_t t = first; t <= last; t++) {
        double sum = 0.0;
        double sum_magnitude = 0.0;
        for (int64_t i = 0; i < args->Dk; i++) {
            double term = (double)q[i] * cache_key(c, t, i, args->Dk);
            sum += term;
            sum_magnitude += fabs(term);
        }
        score[t] = sum * (double)args->scale;
        max = score[t] > max ? score[t] : max;
        sum_magnitude *= fabs((double)args->scale);
        magnitude = sum_magnitude > magnitude ? sum_magnitude : magnitude;
    }
    double total = args->sink ? exp((double)args->sink[g] - max) : 0.0;
    for (int64_t t = first; t <= last; t++) {
        total += exp(score[t] - max);
    }
    double n = (double)(last - first + 1);
    for (int64_t d = 0; d < args->Dv; d++) {
        double sum = 0.0;
        double sum_magnitude = 0.0;
        for (int64_t t = first; t <= last; t++) {
            double term = exp(score[t] - max) / total * cache_value(c, t, d);
            sum += term;
            sum_magnitude += fabs(term);
        }
        /* A score is off by a lane's chain, the tree and three scalings, twice (its own and the
         * maximum's); exp by 2 ulp; the scale and the chain of a block, the merges of n / 64 blocks
         * and the division follow. */
        double roundings =
            magnitude * 2.0 * ((double)args->Dk / 16.0 + 11.0) + 65.0 + 6.0 * n / 64.0 + 24.0;
        if (!close_to(out[d], sum, 0x1p-24 * roundings * sum_magnitude + 0x1p-120, "attend", d)) {
            return false;
        }
    }
    return true;
}

/* first[R], ascending: all, a window, chunks, or anything. */
static void choose_first(rng *r, int64_t *first, int64_t R, int64_t last)
{
    int64_t kind = rng_below(r, 4), width = 1 + rng_below(r, 150);
    for (int64_t i = 0; i < R; i++) {
        int64_t position = last + i, least = i > 0 ? first[i - 1] : 0;
        int64_t window = position >= width ? position - width + 1 : 0;
        first[i] = kind == 0   ? 0
                   : kind == 1 ? window
                   : kind == 2 ? position / width * width
                   : i == 0    ? rng_below(r, last + 1)
                               : least + rng_below(r, position - least + 1);
    }
}

static void describe(char *what, size_t size, const ttk_attend_args *args, ttk_dtype type,
                     values kind)
{
    snprintf(
        what, size,
        "attend R %lld G %lld Dk %lld (tail %lld) Dv %lld positions %lld..%lld type %d values %d",
        (long long)args->R, (long long)args->G, (long long)args->Dk, (long long)args->k_tail,
        (long long)args->Dv, (long long)args->first[0], (long long)args->last, type, kind);
}

bool check_attend(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    static const int64_t usual[][2] = {{576, 512}, {128, 128}, {64, 64}, {192, 128}, {8, 8}};
    static const ttk_dtype types[] = {TTK_F32, TTK_BF16, TTK_I8};
    values kind = (values)rng_below(r, VALUES_COUNT);
    ttk_attend_args args = {0};
    args.G = rng_below(r, MAX_G);
    args.R = rng_below(r, 2) ? 1 : 1 + rng_below(r, args.G > 2 ? MAX_R / 2 : MAX_R);
    bool is_usual = rng_below(r, 4) == 0;
    int64_t shape = rng_below(r, (int64_t)(sizeof(usual) / sizeof(usual[0])));
    args.Dk = is_usual ? usual[shape][0] : rng_size(r, rng_below(r, 4) ? 100 : MAX_DK);
    args.Dv = is_usual ? usual[shape][1] : rng_size(r, rng_below(r, 4) ? 100 : MAX_DV);
    args.q_head = args.Dk + rng_below(r, 3);
    args.q_row = args.G * args.q_head + rng_below(r, 3);
    args.out_head = args.Dv + rng_below(r, 3);
    args.out_row = args.G * args.out_head;
    args.last = rng_below(r, rng_below(r, 3) ? 140 : MAX_POSITION);
    int64_t first[MAX_R];
    choose_first(r, first, args.R, args.last);
    args.first = first;
    args.scale = rng_below(r, 4) == 0 ? 1.0f : 1.0f / sqrtf((float)args.Dk + 1.0f);
    ttk_dtype type = types[rng_below(r, 3)];
    if (type == TTK_I8) {
        args.k_tail = args.Dk > 1 && rng_below(r, 2) ? rng_below(r, args.Dk) : 0;
        args.scale *= kind == VALUES_PLAIN ? 0.01f : 1.0f;
    }
    char what[200];
    describe(what, sizeof(what), &args, type, kind);
    int64_t n_positions = args.last + args.R;
    bool is_latent = rng_below(r, 3) == 0;
    cache c = cache_new(r, type, n_positions, args.Dk, args.Dv, args.k_tail, is_latent);
    cache_fill(r, &c, kind);
    cache moved = cache_new(r, type, n_positions, args.Dk, args.Dv, args.k_tail, is_latent);
    cache_fill_like(&moved, &c, args.first[0], n_positions - 1, args.Dk, args.Dv);
    size_t n_q =
        args.G > 0 ? (size_t)((args.R - 1) * args.q_row + (args.G - 1) * args.q_head + args.Dk) : 0;
    size_t n_out = args.G > 0 ? (size_t)(args.R * args.out_row - args.out_head + args.Dv) : 0;
    buffer q = buffer_new(n_q, sizeof(float));
    buffer sink = buffer_new((size_t)args.G, sizeof(float));
    rng_fill(r, buffer_f32(&q), (int64_t)n_q, kind);
    rng_fill(r, buffer_f32(&sink), args.G, kind);
    args.q = buffer_f32(&q);
    args.sink = rng_below(r, 3) == 0 ? buffer_f32(&sink) : NULL;
    enum { GOT, ELSEWHERE, PARTS, ALONE, N_OUTS };
    buffer out[N_OUTS], want = buffer_new(n_out, sizeof(float));
    for (int i = 0; i < N_OUTS; i++) {
        out[i] = buffer_copy(&want);
    }

    use_cache(&args, &c);
    args.out = buffer_f32(&want);
    bool ok = run_attend(ref, args);
    args.out = buffer_f32(&out[GOT]);
    ok = ok && run_attend(fn, args) && same_f32(&out[GOT], &want, what) &&
         gaps_kept(&out[GOT], args.R * args.G, args.out_head, args.Dv, what);
    for (int64_t i = 0; ok && kind == VALUES_PLAIN && fn == ref && i < args.R * args.G; i++) {
        ok = head_is_right(&args, &c, i / args.G, i % args.G) || fault("%s", what);
    }
    use_cache(&args, &moved);
    args.out = buffer_f32(&out[ELSEWHERE]);
    ok = ok && run_attend(fn, args) &&
         same_f32(&out[ELSEWHERE], &want, "attend with pages elsewhere");
    args.out = buffer_f32(&out[PARTS]);
    ok = ok && run_parts(fn, args, r) &&
         (same_f32(&out[PARTS], &want, "attend by parts") || fault("%s", what));
    ok = ok && run_alone(fn, &args, &out[ALONE]) &&
         same_f32(&out[ALONE], &want, "attend row by row, head by head");
    BUFFERS_FREE(&c.store, &moved.store, &q, &sink, &want);
    for (int i = 0; i < N_OUTS; i++) {
        buffer_free(&out[i]);
    }
    return ok;
}

bool check_attend_merge(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    enum { MAX_PARTS = 6 };
    values kind = (values)rng_below(r, VALUES_COUNT);
    ttk_attend_merge_args args = {0};
    args.Dv = rng_size(r, MAX_DV);
    args.is_first = rng_below(r, 2);
    args.is_last = rng_below(r, 2);
    args.n = args.is_first + rng_below(r, MAX_PARTS);
    int64_t ld = (int64_t)ttk_attend_part_floats(args.Dv);
    args.stride = ld * (1 + rng_below(r, 3));
    char what[120];
    snprintf(what, sizeof(what), "attend_merge Dv %lld parts %lld first %d last %d values %d",
             (long long)args.Dv, (long long)args.n, args.is_first, args.is_last, kind);
    buffer parts =
        buffer_new(args.n > 0 ? (size_t)((args.n - 1) * args.stride + ld) : 0, sizeof(float));
    bool ok = (uintptr_t)parts.data % 64 == 0 || fault("%s: parts keep no alignment", what);
    for (int64_t i = 0; i < args.n; i++) {
        float *part = buffer_f32(&parts) + i * args.stride;
        rng_fill(r, part, args.Dv, kind);
        rng_fill(r, part + ttk_attend_part_state(args.Dv), 2, kind);
    }
    float sink = rng_value(r, kind);
    args.parts = buffer_f32(&parts);
    args.sink = rng_below(r, 2) ? &sink : NULL;
    buffer want = buffer_new((size_t)args.Dv, sizeof(float)),
           want_state = buffer_new(2, sizeof(float));
    if (!args.is_first) {
        rng_fill(r, buffer_f32(&want), args.Dv, kind);
        rng_fill(r, buffer_f32(&want_state), 2, kind);
    }
    buffer got = buffer_copy(&want), got_state = buffer_copy(&want_state);
    args.out = buffer_f32(&want);
    args.state = buffer_f32(&want_state);
    ((ttk_attend_merge_fn *)ref)(&args);
    args.out = buffer_f32(&got);
    args.state = buffer_f32(&got_state);
    ((ttk_attend_merge_fn *)fn)(&args);
    ok = ok && same_f32(&got, &want, what) && same_f32(&got_state, &want_state, what);
    BUFFERS_FREE(&parts, &want, &want_state, &got, &got_state);
    return ok;
}
