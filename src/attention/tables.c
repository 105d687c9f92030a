/* tables.c - cosines and sines of every position, and the scale of queries by position. Angles are
 * (float)position * inv_freq in float, as the reference computes them; cosine, sine and logarithm
 * of that in double, rounded once. The C library's last digit may differ between machines, so all
 * ranks compare what they made. */
#include "attention_internal.h"
#include <math.h>
#include <string.h>
#include "tutti/hash.h"

static tt_status alloc_vector(const char *what, int64_t n, tti_vector *vector)
{
    void *data = NULL;
    TT_TRY(tt_memory_alloc(what, (size_t)n * sizeof(float), TT_MEMORY_ANY_NODE, &data));
    vector->x = data;
    vector->n = n;
    return TT_OK;
}

/* A sequence that may grow above long_from uses the long table, each by itself: its numbers must
 * not depend on its batch mates, nor change on the way. */
static bool uses_long(const tt_rope *rope, int64_t max_tokens)
{
    return rope->long_inv_freq && max_tokens > rope->long_from;
}

static tt_status make_rotary(tt_attention *attention, bool is_long, int64_t n_positions)
{
    const tt_rope *rope = &attention->arch->rope;
    int64_t half = rope->dim / 2;
    const float *inv_freq = is_long ? rope->long_inv_freq : rope->inv_freq;
    double factor = (double)(is_long ? rope->long_attention_factor : rope->attention_factor);
    tti_vector *cosines = &attention->cos[is_long], *sines = &attention->sin[is_long];
    TT_TRY(alloc_vector("rotary tables", n_positions * half, cosines));
    TT_TRY(alloc_vector("rotary tables", n_positions * half, sines));
    for (int64_t p = 0; p < n_positions; p++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)((float)p * inv_freq[i]);
            cosines->x[p * half + i] = (float)(cos(angle) * factor);
            sines->x[p * half + i] = (float)(sin(angle) * factor);
        }
    }
    return TT_OK;
}

tti_rotary tti_attention_rotary(const tt_attention *attention, const tt_batch *batch, int64_t t)
{
    const tt_rope *rope = &attention->arch->rope;
    bool is_long = uses_long(rope, batch->sequence[attention->row_sequence[t]].max_tokens);
    int64_t at = attention->row_position[t] * (rope->dim / 2);
    return (tti_rotary){attention->cos[is_long].x + at, attention->sin[is_long].x + at};
}

static tt_status make_query_scale(tt_attention *attention)
{
    const tt_arch *arch = attention->arch;
    bool is_used = false;
    for (int64_t l = 0; l < arch->L; l++) {
        is_used = is_used || arch->layer[l].scale_queries;
    }
    if (!is_used) {
        return TT_OK;
    }
    TT_TRY(alloc_vector("query scales", attention->layout->context, &attention->query_scale));
    for (int64_t p = 0; p < attention->query_scale.n; p++) {
        double steps = floor((double)(p + 1) / (double)arch->query_floor);
        attention->query_scale.x[p] = (float)(1.0 + (double)arch->query_scale * log(1.0 + steps));
    }
    return TT_OK;
}

tt_status tti_attention_make_tables(tt_attention *attention)
{
    const tt_rope *rope = &attention->arch->rope;
    int64_t context = attention->layout->context;
    bool has_long = uses_long(rope, context);
    TT_TRY(make_rotary(attention, false, has_long ? rope->long_from : context));
    if (has_long) {
        TT_TRY(make_rotary(attention, true, context));
    }
    return make_query_scale(attention);
}

static uint64_t hash_vector(uint64_t hash, const tti_vector *vector)
{
    for (int64_t i = 0; i < vector->n; i++) {
        uint32_t bits;
        memcpy(&bits, &vector->x[i], sizeof(bits));
        hash = tt_hash_step(hash, bits);
    }
    return hash;
}

tt_status tti_attention_agree_on_tables(tt_attention *attention)
{
    int64_t max_min[2] = {INT64_MIN, INT64_MIN}; /* max(hash), max(-1 - hash) over attention
                                                  * ranks; equal iff all are */
    if (attention->role->dp_id >= 0) {
        uint64_t hash = TT_HASH_BEGIN;
        for (int i = 0; i < 2; i++) {
            hash = hash_vector(hash, &attention->cos[i]);
            hash = hash_vector(hash, &attention->sin[i]);
        }
        hash = hash_vector(hash, &attention->query_scale);
        for (int64_t l = 0; l < attention->arch->L; l++) {
            /* an exponential of what the file holds */
            hash = hash_vector(hash, &attention->layer[l].decay_rate);
        }
        max_min[0] = (int64_t)(hash >> 1);
        max_min[1] = -1 - max_min[0];
    }
    TT_TRY(tt_world_max_i64(attention->world, max_min, 2));
    TT_CHECK(max_min[0] == -1 - max_min[1], TT_ERR_MISMATCH,
             "ranks computed different tables of positions: their C libraries differ");
    return TT_OK;
}
