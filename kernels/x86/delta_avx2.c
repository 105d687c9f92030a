/* delta_avx2.c - the gated delta net. A row of the state's columns is four registers; both passes
 * over the rows run from the L1 cache after the first token. The decayed state is made twice
 * instead of being stored in between. */
#include "vec_avx2.h"
#include "ttk_versions.h"

enum { N_VECS = TTK_DELTA_COLUMNS / VEC };

void ttk_conv_silu_f32_avx2(float *y, const float *const *x, const float *w, int64_t ldw,
                            int64_t n_taps, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        __m256 a = _mm256_setzero_ps();
        for (int64_t j = 0; j < n_taps; j++) {
            a = _mm256_fmadd_ps(_mm256_loadu_ps(w + j * ldw + i), _mm256_loadu_ps(x[j] + i), a);
        }
        _mm256_storeu_ps(y + i, _mm256_mul_ps(a, vec_sigmoid(a)));
    }
    for (; i < n; i++) {
        float a = 0.0f;
        for (int64_t j = 0; j < n_taps; j++) {
            a = fmaf(w[j * ldw + i], x[j][i], a);
        }
        y[i] = a * ttk_math_sigmoid(a);
    }
}

static void delta_token(const ttk_delta_args *a, int64_t t, const __m256i *mask)
{
    const float *q = a->q + t * a->ldq;
    const float *k = a->k + t * a->ldk;
    __m256 decay = _mm256_set1_ps(a->decay[t * a->ld_gate]);
    __m256 beta = _mm256_set1_ps(a->beta[t * a->ld_gate]);
    __m256 m[N_VECS], d[N_VECS], o[N_VECS];
    TTK_UNROLL
    for (int c = 0; c < N_VECS; c++) {
        m[c] = _mm256_setzero_ps();
        o[c] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < a->Dk; i++) {
        const float *s = a->state + i * TTK_DELTA_COLUMNS;
        __m256 k_i = _mm256_broadcast_ss(k + i);
        TTK_UNROLL
        for (int c = 0; c < N_VECS; c++) {
            m[c] = _mm256_fmadd_ps(k_i, _mm256_mul_ps(_mm256_load_ps(s + c * VEC), decay), m[c]);
        }
    }
    TTK_UNROLL
    for (int c = 0; c < N_VECS; c++) {
        __m256 v = _mm256_maskload_ps(a->v + t * a->ldv + c * VEC, mask[c]);
        d[c] = _mm256_mul_ps(beta, _mm256_sub_ps(v, m[c]));
    }
    for (int64_t i = 0; i < a->Dk; i++) {
        float *s = a->state + i * TTK_DELTA_COLUMNS;
        __m256 k_i = _mm256_broadcast_ss(k + i);
        __m256 q_i = _mm256_broadcast_ss(q + i);
        TTK_UNROLL
        for (int c = 0; c < N_VECS; c++) {
            __m256 decayed = _mm256_mul_ps(_mm256_load_ps(s + c * VEC), decay);
            __m256 now = _mm256_fmadd_ps(k_i, d[c], decayed);
            _mm256_store_ps(s + c * VEC, now);
            o[c] = _mm256_fmadd_ps(q_i, now, o[c]);
        }
    }
    TTK_UNROLL
    for (int c = 0; c < N_VECS; c++) {
        _mm256_maskstore_ps(a->out + t * a->ldo + c * VEC, mask[c], o[c]);
    }
}

void ttk_delta_avx2(const ttk_delta_args *args)
{
    __m256i mask[N_VECS];
    for (int c = 0; c < N_VECS; c++) {
        int64_t left = args->n - c * VEC;
        mask[c] = vec_mask(left > 0 ? left : 0);
    }
    for (int64_t t = 0; t < args->T; t++) {
        delta_token(args, t, mask);
    }
}
