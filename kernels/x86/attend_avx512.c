/* attend_avx512.c - attention of one query row over paged keys and values.
 *
 * All heads of the call share keys and values, so each is read (and widened, if bf16) once per
 * block for all of them: scores: a few keys at a time, tiles of 4 heads by 4 keys (16 registers of
 * sums); values: a chunk of 32 elements of all positions at a time, tiles of 8 heads by 2
 * registers. */
#include "vec_avx512.h"
#include "ttk_versions.h"

enum {
    CHUNK_VECS = TTK_VALUE_CHUNK / VEC,
    VALUE_HEADS = 8, /* 16 sums + 2 values + 8 factors of 32 registers */
    TILE_HEADS = 4,
    TILE_KEYS = 4 /* what one call of vec_lanes_sum4 takes */
};

/* The positions of one block that are seen. */
typedef struct block_range {
    int64_t start;      /* absolute position of the block's first slot */
    int64_t begin, end; /* slots [begin, end) of [0, TTK_BLOCK) */
} block_range;

static const void *element_at(const ttk_attend_args *args, int64_t position, int64_t offset,
                              int64_t stride)
{
    const char *page = args->pages[position / TTK_PAGE];
    int64_t at = offset + position % TTK_PAGE * stride;
    return page + at * (int64_t)(args->kv_type == TTK_F32 ? sizeof(float) : sizeof(ttk_bf16));
}

static void widen(float *to, const ttk_bf16 *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        _mm512_mask_storeu_ps(to + i, mask,
                              vec_widen_bf16(_mm256_maskz_loadu_epi16(mask, from + i)));
    }
}

/* ---- scores ---- */

/* sum[n_heads * n_keys]: the 16 lanes of each q . k; tail lanes beyond n stay untouched. */
TTK_INLINE void dot_tile(__m512 *sum, const float *q, int64_t ldq, const float *const *keys,
                         int n_heads, int n_keys, int64_t n)
{
    TTK_UNROLL
    for (int i = 0; i < n_heads * n_keys; i++) {
        sum[i] = _mm512_setzero_ps();
    }
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        __m512 k[TILE_KEYS];
        TTK_UNROLL
        for (int j = 0; j < n_keys; j++) {
            k[j] = _mm512_loadu_ps(keys[j] + i);
        }
        TTK_UNROLL
        for (int g = 0; g < n_heads; g++) {
            __m512 q_g = _mm512_loadu_ps(q + g * ldq + i);
            TTK_UNROLL
            for (int j = 0; j < n_keys; j++) {
                sum[g * n_keys + j] = _mm512_fmadd_ps(q_g, k[j], sum[g * n_keys + j]);
            }
        }
    }
    if (i < n) {
        __mmask16 mask = vec_mask(n - i);
        TTK_UNROLL
        for (int g = 0; g < n_heads; g++) {
            __m512 q_g = _mm512_maskz_loadu_ps(mask, q + g * ldq + i);
            TTK_UNROLL
            for (int j = 0; j < n_keys; j++) {
                __m512 *s = &sum[g * n_keys + j];
                *s = _mm512_mask3_fmadd_ps(q_g, _mm512_maskz_loadu_ps(mask, keys[j] + i), *s, mask);
            }
        }
    }
}

/* Scores of n_keys keys for n_heads heads (1 or TILE_HEADS): p[g][first_slot + j]. */
TTK_INLINE void scores_of_heads(const ttk_attend_args *args, float *p, int64_t g, int n_heads,
                                const float *const *keys, int n_keys, int64_t first_slot)
{
    const __m128 scale = _mm_set1_ps(args->scale);
    __m512 sum[TILE_HEADS * TILE_KEYS];
    const float *q = args->q + g * args->ldq;
    float *to = p + g * TTK_BLOCK + first_slot;
    int j = 0;
    for (; j + TILE_KEYS <= n_keys; j += TILE_KEYS) {
        dot_tile(sum, q, args->ldq, keys + j, n_heads, TILE_KEYS, args->Dk);
        TTK_UNROLL
        for (int h = 0; h < n_heads; h++) {
            _mm_storeu_ps(to + h * TTK_BLOCK + j,
                          _mm_mul_ps(vec_lanes_sum4(sum + h * TILE_KEYS), scale));
        }
    }
    for (; j < n_keys; j++) {
        dot_tile(sum, q, args->ldq, keys + j, n_heads, 1, args->Dk);
        TTK_UNROLL
        for (int h = 0; h < n_heads; h++) {
            to[h * TTK_BLOCK + j] = vec_lanes_sum(sum[h]) * args->scale;
        }
    }
}

static void scores_of_keys(const ttk_attend_args *args, float *p, const float *const *keys,
                           int n_keys, int64_t first_slot)
{
    int64_t g = 0;
    for (; g + TILE_HEADS <= args->G; g += TILE_HEADS) {
        scores_of_heads(args, p, g, TILE_HEADS, keys, n_keys, first_slot);
    }
    for (; g < args->G; g++) {
        scores_of_heads(args, p, g, 1, keys, n_keys, first_slot);
    }
}

static void block_scores(const ttk_attend_args *args, const ttk_attend_work *w, block_range r)
{
    for (int64_t slot = r.begin; slot < r.end; slot += TTK_KEY_GROUP) {
        const float *keys[TTK_KEY_GROUP];
        int n_keys = (int)(r.end - slot < TTK_KEY_GROUP ? r.end - slot : TTK_KEY_GROUP);
        for (int j = 0; j < n_keys; j++) {
            const void *key = element_at(args, r.start + slot + j, args->k_offset, args->k_stride);
            keys[j] = key;
            if (args->kv_type != TTK_F32) {
                widen(w->keys + j * w->ldk, key, args->Dk);
                keys[j] = w->keys + j * w->ldk;
            }
        }
        scores_of_keys(args, w->p, keys, n_keys, slot);
    }
}

/* ---- softmax of a block ---- */

/* Turns the scores p[TTK_BLOCK] of one head into exponentials; returns their sum and the maximum.
 * Slots that are not seen count as -inf: they add +0 to lanes that are never -0. If the maximum is
 * -inf too they add NaN, but then so do the others. */
static float exponentials(float *p, block_range r, float *max_out)
{
    for (int64_t j = 0; j < r.begin; j++) {
        p[j] = -INFINITY;
    }
    for (int64_t j = r.end; j < TTK_BLOCK; j++) {
        p[j] = -INFINITY;
    }
    __m512 m_all = _mm512_set1_ps(-INFINITY);
    for (int j = 0; j < TTK_BLOCK; j += VEC) {
        m_all = _mm512_max_ps(_mm512_loadu_ps(p + j),
                              m_all); /* in this order a NaN leaves m_all as it is */
    }
    float m = vec_max(m_all);
    m_all = _mm512_set1_ps(m);
    __m512 s = _mm512_setzero_ps();
    for (int j = 0; j < TTK_BLOCK; j += VEC) {
        __m512 e = vec_exp(_mm512_sub_ps(_mm512_loadu_ps(p + j), m_all));
        _mm512_storeu_ps(p + j, e);
        s = _mm512_add_ps(s, e);
    }
    *max_out = m;
    return vec_lanes_sum(s);
}

/* Merges (m, l) into head g's state and leaves the factors with which its O and the block's o are
 * merged. */
static void merge_state(const ttk_attend_work *w, int64_t g, float m, float l)
{
    float merged = m > w->max[g] ? m : w->max[g];
    w->old_scale[g] = ttk_math_exp(w->max[g] - merged);
    w->new_scale[g] = ttk_math_exp(m - merged);
    w->sum[g] = fmaf(w->sum[g], w->old_scale[g], l * w->new_scale[g]);
    w->max[g] = merged;
}

/* ---- values ---- */

/* n_heads heads by one chunk: o = chain over the block's slots, merged into O[g][ldo] at this
 * chunk. */
TTK_INLINE void value_tile(const ttk_attend_work *w, int64_t g, int n_heads, int64_t d,
                           const float *const *values, block_range r, bool is_first)
{
    __m512 o[VALUE_HEADS * CHUNK_VECS];
    const float *p = w->p + g * TTK_BLOCK;
    TTK_UNROLL
    for (int i = 0; i < n_heads * CHUNK_VECS; i++) {
        o[i] = _mm512_setzero_ps();
    }
    for (int64_t j = r.begin; j < r.end; j++) {
        const float *v = values[j];
        __m512 factor[VALUE_HEADS];
        TTK_UNROLL
        for (int h = 0; h < n_heads; h++) {
            factor[h] = _mm512_set1_ps(p[h * TTK_BLOCK + j]);
        }
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            __m512 v_i = _mm512_loadu_ps(v + i * VEC);
            TTK_UNROLL
            for (int h = 0; h < n_heads; h++) {
                o[h * CHUNK_VECS + i] = _mm512_fmadd_ps(factor[h], v_i, o[h * CHUNK_VECS + i]);
            }
        }
    }
    TTK_UNROLL
    for (int h = 0; h < n_heads; h++) {
        float *to = w->o + (g + h) * w->ldo + d;
        __m512 old_scale = _mm512_set1_ps(w->old_scale[g + h]);
        __m512 new_scale = _mm512_set1_ps(w->new_scale[g + h]);
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            __m512 o_i = o[h * CHUNK_VECS + i];
            if (!is_first) {
                o_i = _mm512_fmadd_ps(_mm512_loadu_ps(to + i * VEC), old_scale,
                                      _mm512_mul_ps(o_i, new_scale));
            }
            _mm512_storeu_ps(to + i * VEC, o_i);
        }
    }
}

static void block_values(const ttk_attend_args *args, const ttk_attend_work *w, block_range r,
                         bool is_first)
{
    for (int64_t d = 0; d < args->Dv; d += TTK_VALUE_CHUNK) {
        const float *values[TTK_BLOCK];
        int64_t n = args->Dv - d < TTK_VALUE_CHUNK ? args->Dv - d : TTK_VALUE_CHUNK;
        for (int64_t j = r.begin; j < r.end; j++) {
            const void *value = element_at(args, r.start + j, args->v_offset + d, args->v_stride);
            float *copy = w->values + j * TTK_VALUE_CHUNK;
            values[j] = copy;
            if (args->kv_type != TTK_F32) {
                widen(copy, value, n);
            } else if (n == TTK_VALUE_CHUNK) {
                values[j] = value;
            } else {
                memcpy(copy, value, (size_t)n * sizeof(float));
            }
            /* The rest of a last chunk is computed and never stored to out. */
            for (int64_t i = n; i < TTK_VALUE_CHUNK; i++) {
                copy[i] = 0.0f;
            }
        }
        int64_t g = 0;
        for (; g + VALUE_HEADS <= args->G; g += VALUE_HEADS) {
            value_tile(w, g, VALUE_HEADS, d, values, r, is_first);
        }
        for (; g + VALUE_HEADS / 2 <= args->G; g += VALUE_HEADS / 2) {
            value_tile(w, g, VALUE_HEADS / 2, d, values, r, is_first);
        }
        for (; g < args->G; g++) {
            value_tile(w, g, 1, d, values, r, is_first);
        }
    }
}

static void finish_head(const ttk_attend_args *args, const ttk_attend_work *w, int64_t g)
{
    float *o = w->o + g * w->ldo;
    float *out = args->out + g * args->ldo;
    if (args->sink) {
        merge_state(w, g, args->sink[g], 1.0f);
        __m512 old_scale = _mm512_set1_ps(w->old_scale[g]);
        __m512 nothing = _mm512_set1_ps(0.0f * w->new_scale[g]); /* NaN if the scale is */
        for (int64_t d = 0; d < args->Dv; d += VEC) {
            _mm512_storeu_ps(o + d, _mm512_fmadd_ps(_mm512_loadu_ps(o + d), old_scale, nothing));
        }
    }
    __m512 sum = _mm512_set1_ps(w->sum[g]);
    for (int64_t d = 0; d < args->Dv; d += VEC) {
        _mm512_mask_storeu_ps(out + d, vec_mask(args->Dv - d),
                              _mm512_div_ps(_mm512_loadu_ps(o + d), sum));
    }
}

void ttk_attend_avx512(const ttk_attend_args *args)
{
    ttk_attend_work w = ttk_attend_work_cut(args->work, args->G, args->Dk, args->Dv);
    int64_t first_block = args->first / TTK_BLOCK;
    for (int64_t block = first_block; block <= args->last / TTK_BLOCK; block++) {
        block_range r = {block * TTK_BLOCK, 0, TTK_BLOCK};
        bool is_first = block == first_block;
        if (is_first) {
            r.begin = args->first - r.start;
        }
        if (args->last - r.start < TTK_BLOCK) {
            r.end = args->last - r.start + 1;
        }
        block_scores(args, &w, r);
        for (int64_t g = 0; g < args->G; g++) {
            float m;
            float l = exponentials(w.p + g * TTK_BLOCK, r, &m);
            if (is_first) {
                w.max[g] = m;
                w.sum[g] = l;
                w.old_scale[g] = 0.0f; /* not used; kept defined */
                w.new_scale[g] = 1.0f;
            } else {
                merge_state(&w, g, m, l);
            }
        }
        block_values(args, &w, r, is_first);
    }
    for (int64_t g = 0; g < args->G; g++) {
        finish_head(args, &w, g);
    }
}
