/* check_attend.c - checker of attend: equal to ref bit for bit, to softmax(q k^T) v in double
 * precision, and independent of where pages lie and of which heads share a call. */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_G = 9,
    MAX_DK = 600,
    MAX_DV = 530,
    MAX_POSITION = 300,
    MAX_PAGES = MAX_POSITION / TTK_PAGE + 1
};

/* A cache: pages[n_pages], each of page_elements, shuffled in one buffer. */
typedef struct cache {
    buffer store;
    const void *pages[MAX_PAGES];
    int64_t n_pages, page_elements;
    ttk_dtype type;
    int64_t k_offset, v_offset, k_stride, v_stride;
} cache;

static cache cache_new(rng *r, ttk_dtype type, int64_t n_positions, int64_t Dk, int64_t Dv)
{
    cache c;
    c.type = type;
    c.n_pages = (n_positions + TTK_PAGE - 1) / TTK_PAGE;
    bool is_interleaved =
        rng_below(r, 2) ==
        0; /* key and value of a token side by side, or in two halves of the page */
    int64_t gap = rng_below(r, 4);
    c.k_stride = is_interleaved ? Dk + Dv + gap : Dk + gap;
    c.v_stride = is_interleaved ? Dk + Dv + gap : Dv;
    c.k_offset = rng_below(r, 3);
    c.v_offset = c.k_offset + (is_interleaved ? Dk : TTK_PAGE * c.k_stride);
    c.page_elements = c.v_offset + TTK_PAGE * c.v_stride;
    c.store = buffer_new((size_t)(c.n_pages * c.page_elements), ttk_dtype_bytes(type));
    int64_t order[MAX_PAGES];
    for (int64_t p = 0; p < c.n_pages; p++) {
        int64_t other = rng_below(r, p + 1);
        order[p] = order[other];
        order[other] = p;
    }
    for (int64_t p = 0; p < c.n_pages; p++) {
        c.pages[p] =
            (char *)c.store.data + (size_t)(order[p] * c.page_elements) * ttk_dtype_bytes(type);
    }
    return c;
}

static int64_t cache_at(int64_t position, int64_t offset, int64_t stride)
{
    return offset + position % TTK_PAGE * stride;
}

static double cache_get(const cache *c, int64_t position, int64_t at)
{
    const void *page = c->pages[position / TTK_PAGE];
    if (c->type == TTK_F32) {
        return (double)((const float *)page)[at];
    }
    uint32_t u = (uint32_t)((const ttk_bf16 *)page)[at] << 16;
    float x;
    memcpy(&x, &u, sizeof(x));
    return (double)x;
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
}

/* Runs into out with a work buffer of the promised size whose every cell is poison. */
static bool run_attend(ttk_any_fn *fn, ttk_attend_args args, const buffer *out)
{
    size_t n_work = ttk_attend_work_floats(args.G, args.Dk, args.Dv);
    buffer work = buffer_new(n_work, sizeof(float));
    bool ok =
        (uintptr_t)work.data % 64 == 0 || fault("attend: work size %zu keeps no alignment", n_work);
    buffer untouched = buffer_copy(&work);
    args.out = buffer_f32(out);
    args.work = buffer_f32(&work);
    ((ttk_attend_fn *)fn)(&args);
    /* Only what lies in front of the work buffer is compared. */
    memcpy(untouched.data, work.data, work.bytes);
    ok = ok && same_f32(&work, &untouched, "attend work");
    buffer_free(&work);
    buffer_free(&untouched);
    return ok;
}

static bool attend_is_right(const ttk_attend_args *args, const cache *c, const float *out)
{
    for (int64_t g = 0; g < args->G; g++) {
        double score[MAX_POSITION + 1];
        double max = args->sink ? (double)args->sink[g] : -(double)INFINITY;
        double magnitude =
            0.0; /* the largest sum of |q k| times scale: bounds the error of a score */
        for (int64_t t = args->first; t <= args->last; t++) {
            double sum = 0.0;
            double sum_magnitude = 0.0;
            for (int64_t i = 0; i < args->Dk; i++) {
                double term = (double)args->q[g * args->ldq + i] *
                              cache_get(c, t, cache_at(t, c->k_offset, c->k_stride) + i);
                sum += term;
                sum_magnitude += fabs(term);
            }
            score[t] = sum * (double)args->scale;
            max = score[t] > max ? score[t] : max;
            sum_magnitude *= fabs((double)args->scale);
            magnitude = sum_magnitude > magnitude ? sum_magnitude : magnitude;
        }
        double total = args->sink ? exp((double)args->sink[g] - max) : 0.0;
        for (int64_t t = args->first; t <= args->last; t++) {
            total += exp(score[t] - max);
        }
        double n = (double)(args->last - args->first + 1);
        for (int64_t d = 0; d < args->Dv; d++) {
            double sum = 0.0;
            double sum_magnitude = 0.0;
            for (int64_t t = args->first; t <= args->last; t++) {
                double term = exp(score[t] - max) / total *
                              cache_get(c, t, cache_at(t, c->v_offset, c->v_stride) + d);
                sum += term;
                sum_magnitude += fabs(term);
            }
            /* A score is off by a lane's chain and the tree, twice (its own and the maximum's); exp
             * by 2 ulp; the chain of a block, the merges of n / 64 blocks and the division follow.
             */
            double roundings =
                magnitude * 2.0 * ((double)args->Dk / 16.0 + 8.0) + 64.0 + 6.0 * n / 64.0 + 24.0;
            if (!close_to(out[g * args->ldo + d], sum,
                          0x1p-24 * roundings * sum_magnitude + 0x1p-120, "attend", d)) {
                return false;
            }
        }
    }
    return true;
}

bool check_attend(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    static const int64_t usual[][2] = {{576, 512}, {128, 128}, {64, 64}, {192, 128}, {8, 8}};
    values kind = (values)rng_below(r, VALUES_COUNT);
    ttk_attend_args args = {0};
    args.G = rng_below(r, MAX_G);
    bool is_usual = rng_below(r, 4) == 0;
    int64_t shape = rng_below(r, (int64_t)(sizeof(usual) / sizeof(usual[0])));
    args.Dk = is_usual ? usual[shape][0] : rng_size(r, rng_below(r, 4) ? 100 : MAX_DK);
    args.Dv = is_usual ? usual[shape][1] : rng_size(r, rng_below(r, 4) ? 100 : MAX_DV);
    args.ldq = args.Dk + rng_below(r, 3);
    args.ldo = args.Dv + rng_below(r, 3);
    args.last = rng_below(r, rng_below(r, 3) ? 140 : MAX_POSITION);
    args.first = rng_below(r, 2) ? 0 : rng_below(r, args.last + 1);
    args.scale = rng_below(r, 4) == 0 ? 1.0f : 1.0f / sqrtf((float)args.Dk + 1.0f);
    ttk_dtype type = rng_below(r, 2) ? TTK_F32 : TTK_BF16;
    char what[160];
    snprintf(what, sizeof(what),
             "attend G %lld Dk %lld Dv %lld positions %lld..%lld type %d values %d",
             (long long)args.G, (long long)args.Dk, (long long)args.Dv, (long long)args.first,
             (long long)args.last, type, kind);
    cache c = cache_new(r, type, args.last + 1, args.Dk, args.Dv);
    int64_t n_elements = c.n_pages * c.page_elements;
    if (type == TTK_F32) {
        rng_fill(r, buffer_f32(&c.store), n_elements, kind);
    } else {
        rng_fill_bf16(r, buffer_u16(&c.store), n_elements, kind);
    }
    cache moved = cache_new(r, type, args.last + 1, args.Dk, args.Dv);
    cache_fill_like(&moved, &c, args.first, args.last, args.Dk, args.Dv);
    size_t n_q = args.G > 0 ? (size_t)((args.G - 1) * args.ldq + args.Dk) : 0;
    size_t n_out = args.G > 0 ? (size_t)((args.G - 1) * args.ldo + args.Dv) : 0;
    buffer q = buffer_new(n_q, sizeof(float));
    buffer sink = buffer_new((size_t)args.G, sizeof(float));
    rng_fill(r, buffer_f32(&q), (int64_t)n_q, kind);
    rng_fill(r, buffer_f32(&sink), args.G, kind);
    args.q = buffer_f32(&q);
    args.sink = rng_below(r, 3) == 0 ? buffer_f32(&sink) : NULL;
    buffer got = buffer_new(n_out, sizeof(float));
    buffer want = buffer_copy(&got);
    buffer elsewhere = buffer_copy(&got);
    buffer alone = buffer_copy(&got);

    use_cache(&args, &c);
    bool ok = run_attend(fn, args, &got) && run_attend(ref, args, &want) &&
              same_f32(&got, &want, what) && gaps_kept(&got, args.G, args.ldo, args.Dv, what);
    if (ok && kind == VALUES_PLAIN && fn == ref) {
        ok = attend_is_right(&args, &c, buffer_f32(&got)) || fault("%s", what);
    }
    use_cache(&args, &moved);
    ok = ok && run_attend(fn, args, &elsewhere) &&
         same_f32(&elsewhere, &want, "attend with pages elsewhere");
    for (int64_t g = 0; ok && g < args.G; g++) {
        ttk_attend_args one = args;
        one.G = 1;
        one.q = args.q + g * args.ldq;
        one.sink = args.sink ? args.sink + g : NULL;
        buffer row = buffer_new((size_t)args.Dv, sizeof(float));
        ok = run_attend(fn, one, &row);
        memcpy(buffer_f32(&alone) + g * args.ldo, row.data, row.bytes);
        buffer_free(&row);
    }
    ok = ok && same_f32(&alone, &want, "attend head by head");
    buffer_free(&c.store);
    buffer_free(&moved.store);
    buffer_free(&q);
    buffer_free(&sink);
    buffer_free(&got);
    buffer_free(&want);
    buffer_free(&elsewhere);
    buffer_free(&alone);
    return ok;
}
