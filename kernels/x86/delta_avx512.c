/* delta_avx512.c - the gated delta net. A row of the state's columns is two registers; both passes
 * over the rows run from the L1 cache after the first token. The decayed state is made twice
 * instead of being stored in between. */
#include "vec_avx512.h"
#include "ttk_versions.h"

enum { N_VECS = TTK_DELTA_COLUMNS / VEC };

void ttk_conv_silu_f32_avx512(float *y, const float *const *x, const float *w, int64_t ldw,
                              int64_t n_taps, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        __m512 a = _mm512_setzero_ps();
        for (int64_t j = 0; j < n_taps; j++) {
            a = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, w + j * ldw + i),
                                _mm512_maskz_loadu_ps(mask, x[j] + i), a);
        }
        _mm512_mask_storeu_ps(y + i, mask, _mm512_mul_ps(a, vec_sigmoid(a)));
    }
}

static void delta_token(const ttk_delta_args *a, int64_t t, const __mmask16 *mask)
{
    const float *q = a->q + t * a->ldq;
    const float *k = a->k + t * a->ldk;
    __m512 decay = _mm512_set1_ps(a->decay[t * a->ld_gate]);
    __m512 beta = _mm512_set1_ps(a->beta[t * a->ld_gate]);
    __m512 m[N_VECS], d[N_VECS], o[N_VECS];
    TTK_UNROLL
    for (int c = 0; c < N_VECS; c++) {
        m[c] = _mm512_setzero_ps();
        o[c] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < a->Dk; i++) {
        const float *s = a->state + i * TTK_DELTA_COLUMNS;
        __m512 k_i = _mm512_set1_ps(k[i]);
        TTK_UNROLL
        for (int c = 0; c < N_VECS; c++) {
            m[c] = _mm512_fmadd_ps(k_i, _mm512_mul_ps(_mm512_load_ps(s + c * VEC), decay), m[c]);
        }
    }
    TTK_UNROLL
    for (int c = 0; c < N_VECS; c++) {
        __m512 v = _mm512_maskz_loadu_ps(mask[c], a->v + t * a->ldv + c * VEC);
        d[c] = _mm512_mul_ps(beta, _mm512_sub_ps(v, m[c]));
    }
    for (int64_t i = 0; i < a->Dk; i++) {
        float *s = a->state + i * TTK_DELTA_COLUMNS;
        __m512 k_i = _mm512_set1_ps(k[i]);
        __m512 q_i = _mm512_set1_ps(q[i]);
        TTK_UNROLL
        for (int c = 0; c < N_VECS; c++) {
            __m512 decayed = _mm512_mul_ps(_mm512_load_ps(s + c * VEC), decay);
            __m512 now = _mm512_fmadd_ps(k_i, d[c], decayed);
            _mm512_store_ps(s + c * VEC, now);
            o[c] = _mm512_fmadd_ps(q_i, now, o[c]);
        }
    }
    TTK_UNROLL
    for (int c = 0; c < N_VECS; c++) {
        _mm512_mask_storeu_ps(a->out + t * a->ldo + c * VEC, mask[c], o[c]);
    }
}

void ttk_delta_avx512(const ttk_delta_args *args)
{
    __mmask16 mask[N_VECS];
    for (int c = 0; c < N_VECS; c++) {
        mask[c] = vec_mask(args->n - c * VEC);
    }
    for (int64_t t = 0; t < args->T; t++) {
        delta_token(args, t, mask);
    }
}
