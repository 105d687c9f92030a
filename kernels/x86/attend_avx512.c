/* attend_avx512.c - attention of query rows over paged keys and values, 16 floats at a time.
 * Scores: tiles of 4 queries by 4 keys (16 registers of sums). Values: a chunk of 32 elements of
 * all positions at a time, tiles of 8 queries by 2 registers. */
#include "vec_avx512.h"
#include "attend_blocks.h"

enum {
    CHUNK_VECS = TTK_VALUE_CHUNK / VEC,
    VALUE_QUERIES = 8, /* 16 sums + 1 value + 8 factors of 32 registers */
    TILE_QUERIES = 4,
    TILE_KEYS = 4 /* what one call of vec_lanes_sum4 takes */
};

TTK_INLINE void widen(float *to, const void *from, ttk_dtype type, int64_t n)
{
    if (type == TTK_BF16) {
        const ttk_bf16 *x = from;
        for (int64_t i = 0; i < n; i += VEC) {
            __mmask16 mask = vec_mask(n - i);
            _mm512_mask_storeu_ps(to + i, mask,
                                  vec_widen_bf16(_mm256_maskz_loadu_epi16(mask, x + i)));
        }
    } else if (type == TTK_I8) {
        const int8_t *x = from;
        for (int64_t i = 0; i < n; i += VEC) {
            __mmask16 mask = vec_mask(n - i);
            __m512i wide = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, x + i));
            _mm512_mask_storeu_ps(to + i, mask, _mm512_cvtepi32_ps(wide));
        }
    } else {
        memcpy(to, from, (size_t)n * sizeof(float));
    }
}

/* Widening takes the units that multiply, so it is done once for all queries. */
static bool takes_in_place(ttk_dtype type)
{
    return type == TTK_F32;
}

static void order_query(float *q, int64_t n, ttk_dtype key_type)
{
    (void)q;
    (void)n;
    (void)key_type;
}

/* ---- scores ---- */

/* sum[n_queries * TILE_KEYS]: the 16 lanes of each q . k. n in whole lanes. */
TTK_INLINE void dot_tile(__m512 *sum, const float *q, int64_t ldq, const void *const *keys,
                         int n_queries, int64_t n)
{
    TTK_UNROLL
    for (int i = 0; i < n_queries * TILE_KEYS; i++) {
        sum[i] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += VEC) {
        __m512 k[TILE_KEYS];
        TTK_UNROLL
        for (int j = 0; j < TILE_KEYS; j++) {
            k[j] = _mm512_loadu_ps((const float *)keys[j] + i);
        }
        TTK_UNROLL
        for (int g = 0; g < n_queries; g++) {
            __m512 q_g = _mm512_loadu_ps(q + g * ldq + i);
            TTK_UNROLL
            for (int j = 0; j < TILE_KEYS; j++) {
                sum[g * TILE_KEYS + j] = _mm512_fmadd_ps(q_g, k[j], sum[g * TILE_KEYS + j]);
            }
        }
    }
}

TTK_INLINE void tile_scores(const attend_job *job, int64_t i, int n_queries, int64_t slot,
                            const void *const *keys, const float *scales, const float *tail_scales)
{
    const ttk_attend_work *w = &job->w;
    const float *q = w->q + i * w->ldk;
    const __m128 scale = _mm_set1_ps(job->args->scale);
    for (int j = 0; j < TTK_KEY_GROUP; j += TILE_KEYS) {
        __m512 sum[TILE_QUERIES * TILE_KEYS];
        __m128 s[TILE_QUERIES];
        attend_fetch_next(job, false);
        dot_tile(sum, q, w->ldk, keys + j, n_queries, job->n_main);
        TTK_UNROLL
        for (int h = 0; h < n_queries; h++) {
            s[h] = vec_lanes_sum4(sum + h * TILE_KEYS);
        }
        if (scales) {
            TTK_UNROLL
            for (int h = 0; h < n_queries; h++) {
                s[h] = _mm_mul_ps(s[h], _mm_loadu_ps(scales + j));
            }
        }
        if (tail_scales) {
            const void *key_tails[TILE_KEYS];
            TTK_UNROLL
            for (int t = 0; t < TILE_KEYS; t++) {
                key_tails[t] = (const float *)keys[j + t] + job->n_main;
            }
            dot_tile(sum, q + job->n_main, w->ldk, key_tails, n_queries, job->n_tail);
            TTK_UNROLL
            for (int h = 0; h < n_queries; h++) {
                s[h] = _mm_fmadd_ps(vec_lanes_sum4(sum + h * TILE_KEYS),
                                    _mm_loadu_ps(tail_scales + j), s[h]);
            }
        }
        TTK_UNROLL
        for (int h = 0; h < n_queries; h++) {
            _mm_storeu_ps(w->p + (i + h) * TTK_BLOCK + slot + j, _mm_mul_ps(s[h], scale));
        }
    }
}

static void group_scores(const attend_job *job, int64_t begin, int64_t end, int64_t slot,
                         const void *const *keys, const float *scales, const float *tail_scales)
{
    int64_t i = begin;
    for (; i + TILE_QUERIES <= end; i += TILE_QUERIES) {
        tile_scores(job, i, TILE_QUERIES, slot, keys, scales, tail_scales);
    }
    for (; i < end; i++) {
        tile_scores(job, i, 1, slot, keys, scales, tail_scales);
    }
}

/* ---- softmax of a block ---- */

/* Slots that are not seen count as -inf: they add +0 to lanes that are never -0. If the maximum is
 * -inf too they add NaN, but then so do the others. */
static float exponentials(float *p, int64_t begin, int64_t end, const float *value_scales,
                          float *max_out)
{
    for (int64_t j = 0; j < begin; j++) {
        p[j] = -INFINITY;
    }
    for (int64_t j = end; j < TTK_BLOCK; j++) {
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
        s = _mm512_add_ps(s, e);
        if (value_scales) {
            e = _mm512_mul_ps(e, _mm512_loadu_ps(value_scales + j));
        }
        _mm512_storeu_ps(p + j, e);
    }
    *max_out = m;
    return vec_lanes_sum(s);
}

/* ---- values ---- */

/* One query's chain over slots [begin, end). */
TTK_INLINE void chain(__m512 *o, const float *p, int64_t begin, int64_t end,
                      const void *const *values)
{
    __m512 sum[CHUNK_VECS]; /* of its own, so that they are registers */
    TTK_UNROLL
    for (int i = 0; i < CHUNK_VECS; i++) {
        sum[i] = o[i];
    }
    for (int64_t j = begin; j < end; j++) {
        __m512 factor = _mm512_set1_ps(p[j]);
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            sum[i] = _mm512_fmadd_ps(factor, _mm512_loadu_ps((const float *)values[j] + i * VEC),
                                     sum[i]);
        }
    }
    TTK_UNROLL
    for (int i = 0; i < CHUNK_VECS; i++) {
        o[i] = sum[i];
    }
}

/* The chains of n_queries queries: what all of them see together, before and after that each
 * alone. In one function, so that sums stay in registers from the first key to the store. */
TTK_INLINE void value_tile(const attend_job *job, int64_t at, int n_queries, float *to, int64_t ldo,
                           const void *const *values)
{
    const ttk_attend_work *w = &job->w;
    const int32_t *begin = w->begin + at, *end = w->end + at;
    const float *p = w->p + at * TTK_BLOCK;
    __m512 o[VALUE_QUERIES * CHUNK_VECS];
    int64_t all_begin = begin[n_queries - 1]; /* ranges ascend */
    int64_t all_end = end[0] > all_begin ? end[0] : all_begin;
    attend_fetch_next(job, false);
    TTK_UNROLL
    for (int h = 0; h < n_queries; h++) {
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            o[h * CHUNK_VECS + i] = _mm512_setzero_ps();
        }
        chain(o + h * CHUNK_VECS, p + h * TTK_BLOCK, begin[h],
              end[h] < all_begin ? end[h] : all_begin, values);
    }
    for (int64_t j = all_begin; j < all_end; j++) {
        const float *v = values[j];
        __m512 factor[VALUE_QUERIES];
        TTK_UNROLL
        for (int h = 0; h < n_queries; h++) {
            factor[h] = _mm512_set1_ps(p[h * TTK_BLOCK + j]);
        }
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            __m512 v_i = _mm512_loadu_ps(v + i * VEC);
            TTK_UNROLL
            for (int h = 0; h < n_queries; h++) {
                o[h * CHUNK_VECS + i] = _mm512_fmadd_ps(factor[h], v_i, o[h * CHUNK_VECS + i]);
            }
        }
    }
    TTK_UNROLL
    for (int h = 0; h < n_queries; h++) {
        float *row = to + (at + h) * ldo;
        __m512 old_scale = _mm512_set1_ps(w->old_scale[at + h]);
        __m512 new_scale = _mm512_set1_ps(w->new_scale[at + h]);
        chain(o + h * CHUNK_VECS, p + h * TTK_BLOCK, all_end, end[h], values);
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            __m512 o_i = o[h * CHUNK_VECS + i];
            if (!w->is_fresh[at + h]) {
                o_i = _mm512_fmadd_ps(_mm512_loadu_ps(row + i * VEC), old_scale,
                                      _mm512_mul_ps(o_i, new_scale));
            }
            _mm512_storeu_ps(row + i * VEC, o_i);
        }
    }
}

static void chunk_values(const attend_job *job, int64_t begin, int64_t end, float *to, int64_t ldo,
                         const void *const *values, ttk_dtype type)
{
    (void)type; /* f32 */
    int64_t i = begin;
    for (; i + VALUE_QUERIES <= end; i += VALUE_QUERIES) {
        value_tile(job, i, VALUE_QUERIES, to, ldo, values);
    }
    for (; i + VALUE_QUERIES / 2 <= end; i += VALUE_QUERIES / 2) {
        value_tile(job, i, VALUE_QUERIES / 2, to, ldo, values);
    }
    for (; i < end; i++) {
        value_tile(job, i, 1, to, ldo, values);
    }
}

/* ---- whole rows ---- */

static void merge_row(float *O, const float *o, int64_t n, float old_scale, float new_scale)
{
    const __m512 a = _mm512_set1_ps(old_scale), b = _mm512_set1_ps(new_scale);
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        __m512 add = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, o + i), b);
        _mm512_mask_storeu_ps(O + i, mask,
                              _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, O + i), a, add));
    }
}

static void scale_row(float *O, int64_t n, float old_scale, float addend)
{
    const __m512 a = _mm512_set1_ps(old_scale), b = _mm512_set1_ps(addend);
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        _mm512_mask_storeu_ps(O + i, mask,
                              _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, O + i), a, b));
    }
}

static void divide_row(float *out, const float *O, int64_t n, float sum)
{
    const __m512 s = _mm512_set1_ps(sum);
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_div_ps(_mm512_maskz_loadu_ps(mask, O + i), s));
    }
}

void ttk_attend_avx512(const ttk_attend_args *args)
{
    attend_all(args);
}

void ttk_attend_merge_avx512(const ttk_attend_merge_args *args)
{
    attend_merge_all(args);
}
