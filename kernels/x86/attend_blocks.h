/* attend_blocks.h - the outer loops of attention: blocks of 64 positions, and within each the
 * scores, the softmax and the values of all queries (rows times heads) of the call, so that a key
 * or value is read from memory once for all of them. Included by one file per ISA, after its
 * vec_*.h, which then supplies what works on registers: see the list of declarations. */
#ifndef TUTTI_TTK_ATTEND_BLOCKS_H
#define TUTTI_TTK_ATTEND_BLOCKS_H
#include "ttk_versions.h"

enum {
    ATTEND_TILE = 4
}; /* queries, about: files below ask for lines ahead once or twice for so
    * many */

/* Lines of keys or values to be asked for ahead of their use, a few at a time: more than the core
 * keeps track of at once would hold it up. */
typedef struct attend_ahead {
    int64_t position, end; /* of tokens */
    int64_t offset, stride, bytes;
    int64_t at;      /* the next byte of position's */
    int64_t n_lines; /* at a time */
} attend_ahead;

typedef struct attend_job {
    const ttk_attend_args *args;
    ttk_attend_work w;
    int64_t n_main, n_tail; /* elements of a key copy: without its tail, and the tail, both
                             * filled up */
    int64_t ldp;            /* floats from part to part */
    bool copies_keys;
    ttk_dtype key_type; /* of what group_scores gets: keys as they lie in memory, or copies
                         * as f32 */
    bool is_latent;     /* values lie within keys */
    attend_ahead *ahead;
} attend_job;

/* A block, and what its queries see of it together. */
typedef struct attend_block {
    int64_t start;                  /* absolute position of its first slot */
    int64_t begin, end;             /* slots [begin, end) of [0, TTK_BLOCK) */
    int64_t query_begin, query_end; /* queries that see any of it */
} attend_block;

/* ---- of the ISA's file ---- */

/* to[n] = from as float; n need not be whole vectors. */
static void widen(float *to, const void *from, ttk_dtype type, int64_t n);
/* Whether keys and values of a type are taken as they lie in memory, where they are whole lanes and
 * chunks. */
static bool takes_in_place(ttk_dtype type);
/* Puts a query's n elements, whole lanes, in the order in which keys of key_type meet them. */
static void order_query(float *q, int64_t n, ttk_dtype key_type);
/* p[query][slot..slot + TTK_KEY_GROUP) of the queries [begin, end): scores of as many keys of
 * key_type; scales are those of the keys and of their tails, or NULL. A tail begins n_main elements
 * behind its key. */
static void group_scores(const attend_job *job, int64_t begin, int64_t end, int64_t slot,
                         const void *const *keys, const float *scales, const float *tail_scales);
/* Turns the scores p[TTK_BLOCK], of which [begin, end) count, into exponentials, times the value's
 * scales where there are any; returns the sum of the exponentials and the maximum. */
static float exponentials(float *p, int64_t begin, int64_t end, const float *value_scales,
                          float *max_out);
/* o[TTK_VALUE_CHUNK] of the queries [begin, end), merged into or stored at to + query * ldo;
 * values[slot] are of type. */
static void chunk_values(const attend_job *job, int64_t begin, int64_t end, float *to, int64_t ldo,
                         const void *const *values, ttk_dtype type);
/* O[n] = fmaf(O, old_scale, o * new_scale), out[n] = O / sum; n as it comes. */
static void merge_row(float *O, const float *o, int64_t n, float old_scale, float new_scale);
static void scale_row(float *O, int64_t n, float old_scale, float addend);
static void divide_row(float *out, const float *O, int64_t n, float sum);

/* ---- keys and values in memory ---- */

static inline const char *attend_element(const ttk_attend_args *args, int64_t position,
                                         int64_t offset, int64_t stride)
{
    const char *page = args->pages[position / TTK_PAGE];
    int64_t at = offset + position % TTK_PAGE * stride;
    return page + at * (int64_t)(args->kv_type == TTK_F32    ? sizeof(float)
                                 : args->kv_type == TTK_BF16 ? sizeof(ttk_bf16)
                                                             : 1);
}

static inline const float *attend_scales(const ttk_attend_args *args, int64_t position,
                                         int64_t offset)
{
    return (const float *)(const void *)((const char *)args->pages[position / TTK_PAGE] + offset) +
           position % TTK_PAGE;
}

enum { ATTEND_LINE = 64 }; /* bytes of a cache line */

/* Begins with n elements of positions [begin, end), none beyond the last one seen, to be asked for
 * in n_times: pages lie anywhere, so the hardware does not foresee them. */
static inline void attend_fetch(const attend_job *job, int64_t begin, int64_t end, int64_t offset,
                                int64_t stride, int64_t n, int64_t n_times)
{
    const ttk_attend_args *args = job->args;
    attend_ahead *a = job->ahead;
    int64_t seen = args->last + args->R;
    a->position = begin;
    a->end = end < seen ? end : seen;
    a->offset = offset;
    a->stride = stride;
    a->bytes = n * (int64_t)ttk_dtype_bytes(args->kv_type);
    a->at = 0;
    int64_t lines = (a->end - begin) * ((a->bytes + ATTEND_LINE - 1) / ATTEND_LINE);
    a->n_lines = lines / (n_times > 0 ? n_times : 1) + 1;
}

/* Asks for the next lines; if is_last for all that are left. */
static inline void attend_fetch_next(const attend_job *job, bool is_last)
{
    attend_ahead *a = job->ahead;
    for (int64_t i = 0; (i < a->n_lines || is_last) && a->position < a->end; i++) {
        _mm_prefetch(attend_element(job->args, a->position, a->offset, a->stride) + a->at,
                     _MM_HINT_T0);
        a->at += ATTEND_LINE;
        if (a->at >= a->bytes) {
            a->at = 0;
            a->position++;
        }
    }
}

/* ---- scores ---- */

static void attend_copy(const attend_job *job, float *to, const void *from, ttk_dtype type)
{
    const ttk_attend_args *args = job->args;
    int64_t main = args->Dk - args->k_tail;
    widen(to, from, type, main);
    for (int64_t i = main; i < job->n_main; i++) {
        to[i] = 0.0f;
    }
    if (job->n_tail > 0) {
        to += job->n_main;
        widen(to, (const char *)from + main * (int64_t)ttk_dtype_bytes(type), type, args->k_tail);
        for (int64_t i = args->k_tail; i < job->n_tail; i++) {
            to[i] = 0.0f;
        }
    }
}

static void attend_scores(const attend_job *job, const attend_block *b)
{
    const ttk_attend_args *args = job->args;
    const ttk_attend_work *w = &job->w;
    int64_t n_tiles = (b->query_end - b->query_begin + ATTEND_TILE - 1) / ATTEND_TILE;
    if (!job->is_latent) { /* faster than the scores go: all values are wanted soon after */
        int64_t n_groups = (b->end - b->begin + TTK_KEY_GROUP - 1) / TTK_KEY_GROUP;
        attend_fetch(job, b->start + b->begin, b->start + b->end, args->v_offset, args->v_stride,
                     args->Dv, 2 * n_groups * n_tiles);
    }
    for (int64_t slot = b->begin / TTK_KEY_GROUP * TTK_KEY_GROUP; slot < b->end;
         slot += TTK_KEY_GROUP) {
        const void *keys[TTK_KEY_GROUP];
        int64_t begin = slot > b->begin ? slot : b->begin;
        int64_t end = slot + TTK_KEY_GROUP < b->end ? slot + TTK_KEY_GROUP : b->end;
        for (int64_t j = begin; j < end; j++) {
            const char *key = attend_element(args, b->start + j, args->k_offset, args->k_stride);
            keys[j - slot] = key;
            if (job->copies_keys) {
                attend_copy(job, w->keys + (j - slot) * w->ldk, key, args->kv_type);
                keys[j - slot] = w->keys + (j - slot) * w->ldk;
            }
        }
        for (int64_t j = 0; j < TTK_KEY_GROUP; j++) { /* slots that nobody sees: any key */
            keys[j] = slot + j < begin ? keys[begin - slot]
                      : slot + j < end ? keys[j]
                                       : keys[end - 1 - slot];
        }
        const float *scales = NULL, *tail_scales = NULL;
        if (args->kv_type == TTK_I8) { /* a group lies in one page */
            scales = attend_scales(args, b->start + slot, args->k_scales);
            tail_scales =
                job->n_tail > 0 ? attend_scales(args, b->start + slot, args->tail_scales) : NULL;
        }
        group_scores(job, b->query_begin, b->query_end, slot, keys, scales, tail_scales);
    }
    attend_fetch_next(job, true);
}

/* ---- softmax ---- */

/* Merges (m, l) into a query's state and leaves the factors with which its O and the block's o are
 * merged. */
static void attend_merge_state(float *max, float *sum, float m, float l, float *old_scale,
                               float *new_scale)
{
    float merged = m > *max ? m : *max;
    *old_scale = ttk_math_exp(*max - merged);
    *new_scale = ttk_math_exp(m - merged);
    *sum = fmaf(*sum, *old_scale, l * *new_scale);
    *max = merged;
}

static void attend_softmax(const attend_job *job, const attend_block *b, float *parts)
{
    const ttk_attend_args *args = job->args;
    const ttk_attend_work *w = &job->w;
    const float *value_scales = NULL;
    if (args->kv_type == TTK_I8) {
        for (int64_t slot = b->begin / TTK_PAGE * TTK_PAGE; slot < b->end; slot += TTK_PAGE) {
            memcpy(w->value_scales + slot, attend_scales(args, b->start + slot, args->v_scales),
                   TTK_PAGE * sizeof(float));
        }
        value_scales = w->value_scales;
    }
    for (int64_t i = b->query_begin; i < b->query_end; i++) {
        float m, l = exponentials(w->p + i * TTK_BLOCK, w->begin[i], w->end[i], value_scales, &m);
        if (parts) {
            float *state = parts + i * job->ldp + w->ldo;
            state[0] = m;
            state[1] = l;
        } else if (w->is_fresh[i]) {
            w->max[i] = m;
            w->sum[i] = l;
        } else {
            attend_merge_state(&w->max[i], &w->sum[i], m, l, &w->old_scale[i], &w->new_scale[i]);
        }
    }
}

/* ---- values ---- */

static void attend_values(const attend_job *job, const attend_block *b, float *parts)
{
    const ttk_attend_args *args = job->args;
    const ttk_attend_work *w = &job->w;
    float *to = parts ? parts : w->o;
    int64_t ldo = parts ? job->ldp : w->ldo, n_chunks = w->ldo / TTK_VALUE_CHUNK;
    int64_t next = b->start + TTK_BLOCK,
            n_tiles = (b->query_end - b->query_begin + ATTEND_TILE - 1) / ATTEND_TILE;
    attend_fetch(job, next, next + TTK_BLOCK, args->k_offset, args->k_stride, args->Dk,
                 n_chunks * n_tiles);
    for (int64_t c = 0; c < n_chunks; c++) {
        const void *values[TTK_BLOCK];
        int64_t d = c * TTK_VALUE_CHUNK;
        int64_t n = args->Dv - d < TTK_VALUE_CHUNK ? args->Dv - d : TTK_VALUE_CHUNK;
        bool in_place = takes_in_place(args->kv_type) && n == TTK_VALUE_CHUNK;
        for (int64_t j = b->begin; j < b->end; j++) {
            const char *value =
                attend_element(args, b->start + j, args->v_offset + d, args->v_stride);
            float *copy = w->values + j * TTK_VALUE_CHUNK;
            values[j] = in_place ? (const void *)value : copy;
            if (!in_place) {
                widen(copy, value, args->kv_type, n);
                /* computed and never stored to out */
                for (int64_t i = n; i < TTK_VALUE_CHUNK; i++) {
                    copy[i] = 0.0f;
                }
            }
        }
        chunk_values(job, b->query_begin, b->query_end, to + d, ldo, values,
                     in_place ? args->kv_type : TTK_F32);
    }
}

/* ---- blocks ---- */

/* What each query sees of a block, and all together; false if that is nothing. */
static bool attend_ranges(const attend_job *job, int64_t block, attend_block *b)
{
    const ttk_attend_args *args = job->args;
    const ttk_attend_work *w = &job->w;
    b->start = block * TTK_BLOCK;
    b->begin = TTK_BLOCK;
    b->end = 0;
    b->query_begin = b->query_end = 0;
    for (int64_t r = 0; r < args->R; r++) {
        int64_t begin = args->first[r] - b->start, end = args->last + r + 1 - b->start;
        bool is_first = begin >= 0;
        begin = is_first ? begin : 0;
        end = end < TTK_BLOCK ? end : TTK_BLOCK;
        if (begin >= end) { /* not yet or no longer seen; rows see ascending ranges */
            b->query_begin = b->query_end > b->query_begin ? b->query_begin : (r + 1) * args->G;
            continue;
        }
        b->query_end = (r + 1) * args->G;
        b->begin = begin < b->begin ? begin : b->begin;
        b->end = end > b->end ? end : b->end;
        for (int64_t i = r * args->G; i < (r + 1) * args->G; i++) {
            w->begin[i] = (int32_t)begin;
            w->end[i] = (int32_t)end;
            w->is_fresh[i] = is_first || args->parts;
        }
    }
    return b->query_end > b->query_begin;
}

static void attend_finish(const attend_job *job, int64_t r, int64_t g)
{
    const ttk_attend_args *args = job->args;
    const ttk_attend_work *w = &job->w;
    int64_t i = r * args->G + g;
    float *o = w->o + i * w->ldo;
    if (args->sink) {
        float old_scale, new_scale;
        attend_merge_state(&w->max[i], &w->sum[i], args->sink[g], 1.0f, &old_scale, &new_scale);
        scale_row(o, args->Dv, old_scale, 0.0f * new_scale); /* NaN if the scale is */
    }
    divide_row(args->out + r * args->out_row + g * args->out_head, o, args->Dv, w->sum[i]);
}

static void attend_all(const ttk_attend_args *args)
{
    attend_job job;
    attend_ahead ahead = {0};
    int64_t n = args->R * args->G;
    job.args = args;
    job.ahead = &ahead;
    job.w = ttk_attend_work_cut(args->work, n, args->Dk, args->Dv);
    job.n_main = ttk_round_up(args->Dk - args->k_tail, TTK_LANES);
    job.n_tail = ttk_round_up(args->k_tail, TTK_LANES);
    job.ldp = (int64_t)ttk_attend_part_floats(args->Dv);
    bool is_whole = job.n_main + job.n_tail == args->Dk;
    job.copies_keys = !is_whole || !takes_in_place(args->kv_type);
    job.key_type = job.copies_keys ? TTK_F32 : args->kv_type;
    job.is_latent =
        args->v_offset >= args->k_offset && args->v_offset + args->Dv <= args->k_offset + args->Dk;
    if (n == 0) {
        return;
    }
    for (int64_t r = 0; r < args->R; r++) {
        for (int64_t g = 0; g < args->G; g++) {
            float *q = job.w.q + (r * args->G + g) * job.w.ldk;
            attend_copy(&job, q, args->q + r * args->q_row + g * args->q_head, TTK_F32);
            order_query(q, job.n_main + job.n_tail, job.key_type);
        }
    }
    int64_t block = args->first[0] / TTK_BLOCK, end = (args->last + args->R - 1) / TTK_BLOCK + 1;
    if (args->parts) {
        block = block > args->block_begin ? block : args->block_begin;
        end = end < args->block_end ? end : args->block_end;
    }
    for (; block < end; block++) {
        attend_block b;
        float *parts = args->parts ? args->parts + (block - args->block_begin) * n * job.ldp : NULL;
        if (attend_ranges(&job, block, &b)) {
            attend_scores(&job, &b);
            attend_softmax(&job, &b, parts);
            attend_values(&job, &b, parts);
        }
    }
    for (int64_t i = 0; !args->parts && i < n; i++) {
        attend_finish(&job, i / args->G, i % args->G);
    }
}

static void attend_merge_all(const ttk_attend_merge_args *args)
{
    float old_scale, new_scale;
    for (int64_t i = 0; i < args->n; i++) {
        const float *part = args->parts + i * args->stride;
        const float *state = part + ttk_attend_part_state(args->Dv);
        if (args->is_first && i == 0) {
            args->state[0] = state[0];
            args->state[1] = state[1];
            memcpy(args->out, part, (size_t)args->Dv * sizeof(float));
            continue;
        }
        attend_merge_state(&args->state[0], &args->state[1], state[0], state[1], &old_scale,
                           &new_scale);
        merge_row(args->out, part, args->Dv, old_scale, new_scale);
    }
    if (args->is_last) {
        if (args->sink) {
            attend_merge_state(&args->state[0], &args->state[1], *args->sink, 1.0f, &old_scale,
                               &new_scale);
            scale_row(args->out, args->Dv, old_scale, 0.0f * new_scale);
        }
        divide_row(args->out, args->out, args->Dv, args->state[1]);
    }
}

#endif
