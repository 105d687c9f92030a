/* attend_avx2.c - attention of query rows over paged keys and values, 8 floats at a time. Keys and
 * values are widened in registers, by units that do not multiply. Scores: tiles of 3 queries by 2
 * keys (12 registers of sums), the sums of 8 keys ended together. Values: tiles of up to 6 queries
 * by 16 elements, or 3 by 32.
 *
 * 16 bf16 are widened to those in even and in odd places. Sums of products do not mind, if the
 * other factor lies in that order and the tree that ends them is the same; values are put back in
 * order when their block is done. */
#include "vec_avx2.h"
#include "attend_blocks.h"

enum {
    CHUNK_PAIRS = TTK_VALUE_CHUNK / PAIR,
    TILE_QUERIES = 3,
    TILE_KEYS = 2,
    VALUE_QUERIES = 6, /* 12 sums + 2 values + 1 factor of 16 registers */
    HALF_CELLS = TTK_KEY_GROUP * VEC,
    GROUP_CELLS = 2 * HALF_CELLS /* sums of one query with a group of keys: the first half of the
                                  * lanes, or of both; the second */
};

/* Keeps the compiler from loading a number again for each product that takes it: loads are as
 * scarce as products. */
#define KEEP(vec) __asm__("" : "+x"(vec))
/* And from keeping what it would have to spill: what lies there is loaded again. */
#define FORGET(pointer) __asm__("" : "+r"(pointer))

/* ---- numbers in memory ---- */

TTK_INLINE __m256 load_i8(const int8_t *x)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)x)));
}

/* Of elements [i, i + 16): the first or second 8, of bf16 those in even or odd places. */
TTK_INLINE __m256 load_half(ttk_dtype type, const void *x, int64_t i, int half)
{
    if (type == TTK_BF16) {
        __m256i w = _mm256_loadu_si256((const __m256i *)((const ttk_bf16 *)x + i));
        return half == 0 ? vec_even_of_bf16(w) : vec_odd_of_bf16(w);
    }
    if (type == TTK_I8) {
        return load_i8((const int8_t *)x + i + half * VEC);
    }
    return _mm256_loadu_ps((const float *)x + i + half * VEC);
}

static void widen(float *to, const void *from, ttk_dtype type, int64_t n)
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

static bool takes_in_place(ttk_dtype type)
{
    (void)type;
    return true;
}

static void order_query(float *q, int64_t n, ttk_dtype key_type)
{
    if (key_type != TTK_BF16) {
        return;
    }
    for (int64_t i = 0; i < n; i += PAIR) {
        __m256 low = _mm256_load_ps(q + i), high = _mm256_load_ps(q + i + VEC);
        __m256 first = _mm256_permute2f128_ps(low, high, 0x20);  /* 0-3 | 8-11 */
        __m256 second = _mm256_permute2f128_ps(low, high, 0x31); /* 4-7 | 12-15 */
        _mm256_store_ps(q + i, _mm256_shuffle_ps(first, second, 0x88));
        _mm256_store_ps(q + i + VEC, _mm256_shuffle_ps(first, second, 0xdd));
    }
}

/* Even and odd places become the first and second 8. */
TTK_INLINE void put_in_order(ttk_dtype type, __m256 *pair)
{
    if (type == TTK_BF16) {
        __m256 low = _mm256_unpacklo_ps(pair[0], pair[1]),
               high = _mm256_unpackhi_ps(pair[0], pair[1]);
        pair[0] = _mm256_permute2f128_ps(low, high, 0x20);
        pair[1] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

/* ---- scores ---- */

/* cells[query * GROUP_CELLS + key * VEC]: the 16 lanes of each q . k, those 8 apart added; of bf16
 * lanes in even places, and HALF_CELLS behind them those in odd. n in whole lanes. */
TTK_INLINE void dot_tile(ttk_dtype type, float *cells, const float *q, int64_t ldq,
                         const void *const *keys, int n_queries, int n_keys, int64_t n)
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
            k[j] = load_half(type, keys[j], i, 0);
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
            const void *key = keys[j];
            FORGET(key);
            k[j] = load_half(type, key, i, 1);
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
            float *to = cells + g * GROUP_CELLS + j * VEC;
            if (type == TTK_BF16) {
                _mm256_store_ps(to, s->a);
                _mm256_store_ps(to + HALF_CELLS, s->b);
            } else {
                _mm256_store_ps(to, _mm256_add_ps(s->a, s->b));
            }
        }
    }
}

/* Adds up the VEC cells of each key of a group: those 4 apart, then 2, then 1. */
TTK_INLINE __m256 end_half(const float *cells)
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

/* Lanes in even places meet each other first: 8 apart in the tree is 4 apart in that half, and the
 * two halves are lanes 0 and 1 at last. */
TTK_INLINE __m256 end_sums(ttk_dtype type, const float *cells)
{
    __m256 s = end_half(cells);
    return type == TTK_BF16 ? _mm256_add_ps(s, end_half(cells + HALF_CELLS)) : s;
}

/* Sums of a group of keys with n_queries queries. */
TTK_INLINE void group_sums(ttk_dtype type, const attend_job *job, float *cells, const float *q,
                           const void *const *keys, int n_queries, int64_t n)
{
    const int n_keys = n_queries == 1 ? 2 * TILE_KEYS : TILE_KEYS;
    for (int j = 0; j < TTK_KEY_GROUP; j += n_keys) {
        attend_fetch_next(job, false);
        dot_tile(type, cells + j * VEC, q, job->w.ldk, keys + j, n_queries, n_keys, n);
    }
}

TTK_INLINE void tile_scores(ttk_dtype type, const attend_job *job, int64_t i, int n_queries,
                            int64_t slot, const void *const *keys, const float *scales,
                            const float *tail_scales)
{
    _Alignas(32) float cells[TILE_QUERIES * GROUP_CELLS], tails[TILE_QUERIES * GROUP_CELLS];
    const ttk_attend_work *w = &job->w;
    const float *q = w->q + i * w->ldk;
    const __m256 scale = _mm256_set1_ps(job->args->scale);
    group_sums(type, job, cells, q, keys, n_queries, job->n_main);
    if (tail_scales) {
        const void *key_tails[TTK_KEY_GROUP];
        for (int j = 0; j < TTK_KEY_GROUP; j++) {
            key_tails[j] =
                (const char *)keys[j] + job->n_main * (int64_t)(type == TTK_I8 ? 1 : sizeof(float));
        }
        group_sums(type, job, tails, q + job->n_main, key_tails, n_queries, job->n_tail);
    }
    for (int h = 0; h < n_queries; h++) {
        __m256 s = end_sums(type, cells + h * GROUP_CELLS);
        if (scales) {
            s = _mm256_mul_ps(s, _mm256_loadu_ps(scales));
        }
        if (tail_scales) {
            s = _mm256_fmadd_ps(end_sums(type, tails + h * GROUP_CELLS),
                                _mm256_loadu_ps(tail_scales), s);
        }
        _mm256_store_ps(w->p + (i + h) * TTK_BLOCK + slot, _mm256_mul_ps(s, scale));
    }
}

TTK_INLINE void all_scores(ttk_dtype type, const attend_job *job, int64_t begin, int64_t end,
                           int64_t slot, const void *const *keys, const float *scales,
                           const float *tail_scales)
{
    int64_t i = begin;
    for (; end - i >= TILE_QUERIES && end - i != 4; i += TILE_QUERIES) {
        tile_scores(type, job, i, TILE_QUERIES, slot, keys, scales, tail_scales);
    }
    for (; end - i >= 2; i += 2) {
        tile_scores(type, job, i, 2, slot, keys, scales, tail_scales);
    }
    if (i < end) {
        tile_scores(type, job, i, 1, slot, keys, scales, tail_scales);
    }
}

static void group_scores(const attend_job *job, int64_t begin, int64_t end, int64_t slot,
                         const void *const *keys, const float *scales, const float *tail_scales)
{
    if (job->key_type == TTK_F32) { /* perhaps copies */
        all_scores(TTK_F32, job, begin, end, slot, keys, scales, tail_scales);
    } else if (job->key_type == TTK_BF16) {
        all_scores(TTK_BF16, job, begin, end, slot, keys, NULL, NULL);
    } else {
        all_scores(TTK_I8, job, begin, end, slot, keys, scales, tail_scales);
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

/* Values and weights of a tile of queries: elements [column, column + n_pairs * PAIR) of a
 * chunk. */
typedef struct value_job {
    const attend_job *job;
    float *to;
    int64_t ldo;
    const void *const *values;
    int64_t column;
} value_job;

/* One query's chain over slots [begin, end), in cells[n_pairs * PAIR]. */
TTK_INLINE void chain(ttk_dtype type, float *cells, const float *p, int64_t begin, int64_t end,
                      const value_job *v, int n_pairs)
{
    __m256 sum[2 * CHUNK_PAIRS];
    TTK_UNROLL
    for (int i = 0; i < 2 * n_pairs; i++) {
        sum[i] = _mm256_load_ps(cells + i * VEC);
    }
    for (int64_t j = begin; j < end; j++) {
        __m256 factor = _mm256_broadcast_ss(p + j);
        TTK_UNROLL
        for (int i = 0; i < 2 * n_pairs; i++) {
            __m256 v_i = load_half(type, v->values[j], v->column + i / 2 * PAIR, i % 2);
            sum[i] = _mm256_fmadd_ps(factor, v_i, sum[i]);
        }
    }
    TTK_UNROLL
    for (int i = 0; i < 2 * n_pairs; i++) {
        _mm256_store_ps(cells + i * VEC, sum[i]);
    }
}

/* The chains of n_queries queries from query `at` on: what all of them see together, before and
 * after that each alone. In one function, so that sums stay in registers from key to key; only a
 * chain of one query takes them through memory. */
TTK_INLINE void value_tile(ttk_dtype type, const value_job *v, int64_t at, int n_queries,
                           int n_pairs)
{
    enum { LD = CHUNK_PAIRS * PAIR };
    _Alignas(32) float cells[VALUE_QUERIES * LD];
    const ttk_attend_work *w = &v->job->w;
    const int32_t *begin = w->begin + at, *end = w->end + at;
    const float *p = w->p + at * TTK_BLOCK;
    const int n_vecs = 2 * n_pairs;
    __m256 o[2 * VALUE_QUERIES];
    int64_t all_begin = begin[n_queries - 1]; /* ranges ascend */
    int64_t all_end = end[0] > all_begin ? end[0] : all_begin;
    attend_fetch_next(v->job, false);
    TTK_UNROLL
    for (int i = 0; i < n_queries * n_vecs; i++) {
        o[i] = _mm256_setzero_ps();
    }
    if (begin[0] < all_begin) {
        for (int h = 0; h < n_queries; h++) {
            memset(cells + h * LD, 0, LD * sizeof(float));
            chain(type, cells + h * LD, p + h * TTK_BLOCK, begin[h],
                  end[h] < all_begin ? end[h] : all_begin, v, n_pairs);
        }
        TTK_UNROLL
        for (int i = 0; i < n_queries * n_vecs; i++) {
            o[i] = _mm256_load_ps(cells + i / n_vecs * LD + i % n_vecs * VEC);
        }
    }
    for (int64_t j = all_begin; j < all_end; j++) {
        TTK_UNROLL
        for (int c = 0; c < n_pairs; c++) {
            __m256 first = load_half(type, v->values[j], v->column + c * PAIR, 0);
            __m256 second = load_half(type, v->values[j], v->column + c * PAIR, 1);
            KEEP(first);
            KEEP(second);
            TTK_UNROLL
            for (int h = 0; h < n_queries; h++) {
                __m256 factor = _mm256_broadcast_ss(p + h * TTK_BLOCK + j);
                __m256 *o_h = o + h * n_vecs + 2 * c;
                o_h[0] = _mm256_fmadd_ps(factor, first, o_h[0]);
                o_h[1] = _mm256_fmadd_ps(factor, second, o_h[1]);
            }
        }
    }
    if (end[n_queries - 1] > all_end) {
        TTK_UNROLL
        for (int i = 0; i < n_queries * n_vecs; i++) {
            _mm256_store_ps(cells + i / n_vecs * LD + i % n_vecs * VEC, o[i]);
        }
        for (int h = 0; h < n_queries; h++) {
            chain(type, cells + h * LD, p + h * TTK_BLOCK, all_end, end[h], v, n_pairs);
        }
        TTK_UNROLL
        for (int i = 0; i < n_queries * n_vecs; i++) {
            o[i] = _mm256_load_ps(cells + i / n_vecs * LD + i % n_vecs * VEC);
        }
    }
    TTK_UNROLL
    for (int h = 0; h < n_queries; h++) {
        float *row = v->to + (at + h) * v->ldo + v->column;
        __m256 old_scale = _mm256_set1_ps(w->old_scale[at + h]);
        __m256 new_scale = _mm256_set1_ps(w->new_scale[at + h]);
        TTK_UNROLL
        for (int c = 0; c < n_pairs; c++) {
            put_in_order(type, o + h * n_vecs + 2 * c);
        }
        TTK_UNROLL
        for (int i = 0; i < n_vecs; i++) {
            __m256 o_i = o[h * n_vecs + i];
            if (!w->is_fresh[at + h]) {
                o_i = _mm256_fmadd_ps(_mm256_load_ps(row + i * VEC), old_scale,
                                      _mm256_mul_ps(o_i, new_scale));
            }
            _mm256_store_ps(row + i * VEC, o_i);
        }
    }
}

/* More than 3 queries: the chunk in two parts. */
TTK_INLINE void tall_tile(ttk_dtype type, value_job v, int64_t at, int n_queries)
{
    for (v.column = 0; v.column < TTK_VALUE_CHUNK; v.column += PAIR) {
        value_tile(type, &v, at, n_queries, 1);
    }
}

TTK_INLINE void all_values(ttk_dtype type, const value_job *v, int64_t begin, int64_t end)
{
    int64_t i = begin;
    for (; end - i >= VALUE_QUERIES && end - i != 7; i += VALUE_QUERIES) {
        tall_tile(type, *v, i, VALUE_QUERIES);
    }
    if (end - i == 4 || end - i == 7) {
        tall_tile(type, *v, i, 4);
        i += 4;
    }
    for (; end - i >= 3; i += 3) {
        value_tile(type, v, i, 3, CHUNK_PAIRS);
    }
    if (end - i == 2) {
        value_tile(type, v, i, 2, CHUNK_PAIRS);
    } else if (end - i == 1) {
        value_tile(type, v, i, 1, CHUNK_PAIRS);
    }
}

static void chunk_values(const attend_job *job, int64_t begin, int64_t end, float *to, int64_t ldo,
                         const void *const *values, ttk_dtype type)
{
    const value_job v = {job, to, ldo, values, 0};
    if (type == TTK_F32) {
        all_values(TTK_F32, &v, begin, end);
    } else if (type == TTK_BF16) {
        all_values(TTK_BF16, &v, begin, end);
    } else {
        all_values(TTK_I8, &v, begin, end);
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
