/* attend_avx2.c - attention of query rows over paged keys and values, 8 floats at a time. Scores:
 * tiles of 3 queries by 2 keys (12 registers of sums), the sums of 8 keys ended together. Values: a
 * chunk of 32 elements of all positions at a time, tiles of 3 queries by 4 registers. */
#include "vec_avx2.h"
#include "attend_blocks.h"

enum {
    CHUNK_VECS = TTK_VALUE_CHUNK / VEC,
    TILE_QUERIES = 3, /* values: 12 sums + 1 value + 3 factors of 16 registers */
    TILE_KEYS = 2,
    GROUP_CELLS = TTK_KEY_GROUP * VEC /* half-ended sums of one query with a group of keys */
};

/* Keeps the compiler from loading a number again for each product that takes it: loads are as scarce as products. */
#define KEEP(vec) __asm__("" : "+x"(vec))

TTK_INLINE __m256 load_i8(const int8_t *x)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)x)));
}

TTK_INLINE void widen(float *to, const void *from, ttk_dtype type, int64_t n)
{
    int64_t i = 0;
    if (type == TTK_BF16) {
        const ttk_bf16 *x = from;
        for (; i + VEC <= n; i += VEC) {
            _mm256_storeu_ps(to + i, vec_load_bf16(x + i));
        }
        for (; i < n; i++) {
            to[i] = ttk_math_f32_of_bf16(x[i]);
        }
    } else if (type == TTK_I8) {
        const int8_t *x = from;
        for (; i + VEC <= n; i += VEC) {
            _mm256_storeu_ps(to + i, load_i8(x + i));
        }
        for (; i < n; i++) {
            to[i] = (float)x[i];
        }
    } else {
        memcpy(to, from, (size_t)n * sizeof(float));
    }
}

/* ---- scores ---- */

/* sums[query * GROUP_CELLS + key * VEC]: the 16 lanes of each q . k, those 8 apart added. n in whole lanes. */
TTK_INLINE void dot_tile(float *sums, const float *q, int64_t ldq, const float *const *keys,
                         int n_queries, int n_keys, int64_t n)
{
    vec_lanes sum[TILE_QUERIES * TILE_KEYS];
    TTK_UNROLL
    for (int i = 0; i < n_queries * n_keys; i++) {
        sum[i].a = _mm256_setzero_ps();
        sum[i].b = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += TTK_LANES) {
        __m256 k[TILE_QUERIES * TILE_KEYS];
        TTK_UNROLL
        for (int j = 0; j < n_keys; j++) {
            k[j] = _mm256_loadu_ps(keys[j] + i);
        }
        TTK_UNROLL
        for (int g = 0; g < n_queries; g++) {
            __m256 q_g = _mm256_load_ps(q + g * ldq + i);
            KEEP(q_g);
            TTK_UNROLL
            for (int j = 0; j < n_keys; j++) {
                vec_lanes *s = &sum[g * n_keys + j];
                s->a = _mm256_fmadd_ps(q_g, k[j], s->a);
            }
        }
        TTK_UNROLL
        for (int j = 0; j < n_keys; j++) {
            k[j] = _mm256_loadu_ps(keys[j] + i + VEC);
        }
        TTK_UNROLL
        for (int g = 0; g < n_queries; g++) {
            __m256 q_g = _mm256_load_ps(q + g * ldq + i + VEC);
            KEEP(q_g);
            TTK_UNROLL
            for (int j = 0; j < n_keys; j++) {
                vec_lanes *s = &sum[g * n_keys + j];
                s->b = _mm256_fmadd_ps(q_g, k[j], s->b);
            }
        }
    }
    TTK_UNROLL
    for (int g = 0; g < n_queries; g++) {
        TTK_UNROLL
        for (int j = 0; j < n_keys; j++) {
            const vec_lanes *s = &sum[g * n_keys + j];
            _mm256_store_ps(sums + g * GROUP_CELLS + j * VEC, _mm256_add_ps(s->a, s->b));
        }
    }
}

/* Ends the sums of a group of keys: cells[TTK_KEY_GROUP][VEC]. */
TTK_INLINE __m256 end_sums(const float *cells)
{
    __m256 four[4]; /* 4 lanes each of keys i | i + 4 */
    TTK_UNROLL
    for (int i = 0; i < 4; i++) {
        __m256 low = _mm256_load_ps(cells + i * VEC), high = _mm256_load_ps(cells + (i + 4) * VEC);
        four[i] = _mm256_add_ps(_mm256_blend_ps(low, high, 0xf0),
                                _mm256_permute2f128_ps(low, high, 0x21));
    }
    __m256 two[2]; /* 2 lanes each of keys 0, 1 | 4, 5 and 2, 3 | 6, 7 */
    TTK_UNROLL
    for (int i = 0; i < 2; i++) {
        two[i] = _mm256_add_ps(_mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                               _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
    }
    return _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88),
                         _mm256_shuffle_ps(two[0], two[1], 0xdd));
}

/* Sums of a group of keys with n_queries queries. */
TTK_INLINE void group_sums(float *sums, const float *q, int64_t ldq, const float *const *keys,
                           int n_queries, int64_t n)
{
    const int n_keys = n_queries == 1 ? 2 * TILE_KEYS : TILE_KEYS;
    for (int j = 0; j < TTK_KEY_GROUP; j += n_keys) {
        dot_tile(sums + j * VEC, q, ldq, keys + j, n_queries, n_keys, n);
    }
}

TTK_INLINE void tile_scores(const attend_job *job, int64_t i, int n_queries, int64_t slot,
                            const float *const *keys, const float *scales, const float *tail_scales)
{
    _Alignas(32) float sums[TILE_QUERIES * GROUP_CELLS], tails[TILE_QUERIES * GROUP_CELLS];
    const ttk_attend_work *w = &job->w;
    const float *q = w->q + i * w->ldk;
    const __m256 scale = _mm256_set1_ps(job->args->scale);
    group_sums(sums, q, w->ldk, keys, n_queries, job->n_main);
    if (tail_scales) {
        const float *key_tails[TTK_KEY_GROUP];
        for (int j = 0; j < TTK_KEY_GROUP; j++) {
            key_tails[j] = keys[j] + job->n_main;
        }
        group_sums(tails, q + job->n_main, w->ldk, key_tails, n_queries, job->n_tail);
    }
    for (int h = 0; h < n_queries; h++) {
        __m256 s = end_sums(sums + h * GROUP_CELLS);
        if (scales) {
            s = _mm256_mul_ps(s, _mm256_loadu_ps(scales));
        }
        if (tail_scales) {
            s = _mm256_fmadd_ps(end_sums(tails + h * GROUP_CELLS), _mm256_loadu_ps(tail_scales), s);
        }
        _mm256_store_ps(w->p + (i + h) * TTK_BLOCK + slot, _mm256_mul_ps(s, scale));
    }
}

static void group_scores(const attend_job *job, int64_t begin, int64_t end, int64_t slot,
                         const float *const *keys, const float *scales, const float *tail_scales)
{
    int64_t i = begin;
    for (; end - i >= TILE_QUERIES && end - i != 4; i += TILE_QUERIES) {
        tile_scores(job, i, TILE_QUERIES, slot, keys, scales, tail_scales);
    }
    for (; end - i >= 2; i += 2) {
        tile_scores(job, i, 2, slot, keys, scales, tail_scales);
    }
    if (i < end) {
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
    __m256 m_all = _mm256_set1_ps(-INFINITY);
    for (int j = 0; j < TTK_BLOCK; j += VEC) {
        m_all = _mm256_max_ps(_mm256_loadu_ps(p + j),
                              m_all); /* in this order a NaN leaves m_all as it is */
    }
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m_all), _mm256_extractf128_ps(m_all, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    float m = _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
    m_all = _mm256_set1_ps(m);
    vec_lanes s = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int j = 0; j < TTK_BLOCK; j += TTK_LANES) {
        __m256 a = vec_exp(_mm256_sub_ps(_mm256_loadu_ps(p + j), m_all));
        __m256 b = vec_exp(_mm256_sub_ps(_mm256_loadu_ps(p + j + VEC), m_all));
        s.a = _mm256_add_ps(s.a, a);
        s.b = _mm256_add_ps(s.b, b);
        if (value_scales) {
            a = _mm256_mul_ps(a, _mm256_loadu_ps(value_scales + j));
            b = _mm256_mul_ps(b, _mm256_loadu_ps(value_scales + j + VEC));
        }
        _mm256_storeu_ps(p + j, a);
        _mm256_storeu_ps(p + j + VEC, b);
    }
    *max_out = m;
    return vec_lanes_sum(s);
}

/* ---- values ---- */

/* One query's chain over slots [begin, end). */
TTK_INLINE void chain(__m256 *o, const float *p, int64_t begin, int64_t end,
                      const float *const *values)
{
    __m256 sum[CHUNK_VECS]; /* of its own, so that they are registers */
    TTK_UNROLL
    for (int i = 0; i < CHUNK_VECS; i++) {
        sum[i] = o[i];
    }
    for (int64_t j = begin; j < end; j++) {
        __m256 factor = _mm256_broadcast_ss(p + j);
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            sum[i] = _mm256_fmadd_ps(factor, _mm256_loadu_ps(values[j] + i * VEC), sum[i]);
        }
    }
    TTK_UNROLL
    for (int i = 0; i < CHUNK_VECS; i++) {
        o[i] = sum[i];
    }
}

/* The chains of n_queries queries: what all of them see together, before and after that each alone. */
TTK_INLINE void value_tile(const attend_job *job, int64_t at, int n_queries, float *to, int64_t ldo,
                           const float *const *values)
{
    const ttk_attend_work *w = &job->w;
    const int32_t *begin = w->begin + at, *end = w->end + at;
    const float *p = w->p + at * TTK_BLOCK;
    __m256 o[TILE_QUERIES * CHUNK_VECS];
    int64_t all_begin = begin[n_queries - 1]; /* ranges ascend */
    int64_t all_end = end[0] > all_begin ? end[0] : all_begin;
    TTK_UNROLL
    for (int h = 0; h < n_queries; h++) {
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            o[h * CHUNK_VECS + i] = _mm256_setzero_ps();
        }
        chain(o + h * CHUNK_VECS, p + h * TTK_BLOCK, begin[h],
              end[h] < all_begin ? end[h] : all_begin, values);
    }
    for (int64_t j = all_begin; j < all_end; j++) {
        const float *v = values[j];
        __m256 factor[TILE_QUERIES];
        TTK_UNROLL
        for (int h = 0; h < n_queries; h++) {
            factor[h] = _mm256_broadcast_ss(p + h * TTK_BLOCK + j);
        }
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            __m256 v_i = _mm256_loadu_ps(v + i * VEC);
            KEEP(v_i);
            TTK_UNROLL
            for (int h = 0; h < n_queries; h++) {
                o[h * CHUNK_VECS + i] = _mm256_fmadd_ps(factor[h], v_i, o[h * CHUNK_VECS + i]);
            }
        }
    }
    TTK_UNROLL
    for (int h = 0; h < n_queries; h++) {
        float *row = to + (at + h) * ldo;
        __m256 old_scale = _mm256_set1_ps(w->old_scale[at + h]);
        __m256 new_scale = _mm256_set1_ps(w->new_scale[at + h]);
        chain(o + h * CHUNK_VECS, p + h * TTK_BLOCK, all_end, end[h], values);
        TTK_UNROLL
        for (int i = 0; i < CHUNK_VECS; i++) {
            __m256 o_i = o[h * CHUNK_VECS + i];
            if (!w->is_fresh[at + h]) {
                o_i = _mm256_fmadd_ps(_mm256_load_ps(row + i * VEC), old_scale,
                                      _mm256_mul_ps(o_i, new_scale));
            }
            _mm256_store_ps(row + i * VEC, o_i);
        }
    }
}

static void chunk_values(const attend_job *job, int64_t begin, int64_t end, float *to, int64_t ldo,
                         const float *const *values)
{
    int64_t i = begin;
    for (; end - i >= TILE_QUERIES && end - i != 4; i += TILE_QUERIES) {
        value_tile(job, i, TILE_QUERIES, to, ldo, values);
    }
    for (; end - i >= 2; i += 2) {
        value_tile(job, i, 2, to, ldo, values);
    }
    if (i < end) {
        value_tile(job, i, 1, to, ldo, values);
    }
}

/* ---- whole rows ---- */

static void merge_row(float *O, const float *o, int64_t n, float old_scale, float new_scale)
{
    const __m256 a = _mm256_set1_ps(old_scale), b = _mm256_set1_ps(new_scale);
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        __m256 add = _mm256_mul_ps(_mm256_loadu_ps(o + i), b);
        _mm256_storeu_ps(O + i, _mm256_fmadd_ps(_mm256_loadu_ps(O + i), a, add));
    }
    for (; i < n; i++) {
        O[i] = fmaf(O[i], old_scale, o[i] * new_scale);
    }
}

static void scale_row(float *O, int64_t n, float old_scale, float addend)
{
    const __m256 a = _mm256_set1_ps(old_scale), b = _mm256_set1_ps(addend);
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        _mm256_storeu_ps(O + i, _mm256_fmadd_ps(_mm256_loadu_ps(O + i), a, b));
    }
    for (; i < n; i++) {
        O[i] = fmaf(O[i], old_scale, addend);
    }
}

static void divide_row(float *out, const float *O, int64_t n, float sum)
{
    const __m256 s = _mm256_set1_ps(sum);
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        _mm256_storeu_ps(out + i, _mm256_div_ps(_mm256_loadu_ps(O + i), s));
    }
    for (; i < n; i++) {
        out[i] = O[i] / sum;
    }
}

void ttk_attend_avx2(const ttk_attend_args *args)
{
    attend_all(args);
}

void ttk_attend_merge_avx2(const ttk_attend_merge_args *args)
{
    attend_merge_all(args);
}
