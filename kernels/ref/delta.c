/* delta.c - the gated delta net: the short convolution in front of it, and the recurrence on some
 * columns of a head's state. */
#include "ttk_math.h"
#include "ttk_versions.h"

void ttk_conv_silu_f32_ref(float *y, const float *const *x, const float *w, int64_t ldw,
                           int64_t n_taps, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float a = 0.0f;
        for (int64_t j = 0; j < n_taps; j++) {
            a = fmaf(w[j * ldw + i], x[j][i], a);
        }
        y[i] = a * ttk_math_sigmoid(a);
    }
}

static void delta_token(const ttk_delta_args *a, int64_t t)
{
    const float *q_Dk = a->q + t * a->ldq;
    const float *k_Dk = a->k + t * a->ldk;
    float decay = a->decay[t * a->ld_gate];
    float beta = a->beta[t * a->ld_gate];
    for (int64_t j = 0; j < TTK_DELTA_COLUMNS; j++) {
        float *s = a->state + j; /* element i at i * TTK_DELTA_COLUMNS */
        float m = 0.0f;
        for (int64_t i = 0; i < a->Dk; i++) {
            m = fmaf(k_Dk[i], s[i * TTK_DELTA_COLUMNS] * decay, m);
        }
        float d = beta * ((j < a->n ? a->v[t * a->ldv + j] : 0.0f) - m);
        float o = 0.0f;
        for (int64_t i = 0; i < a->Dk; i++) {
            float decayed = s[i * TTK_DELTA_COLUMNS] * decay;
            s[i * TTK_DELTA_COLUMNS] = fmaf(k_Dk[i], d, decayed);
            o = fmaf(q_Dk[i], s[i * TTK_DELTA_COLUMNS], o);
        }
        if (j < a->n) {
            a->out[t * a->ldo + j] = o;
        }
    }
}

void ttk_delta_ref(const ttk_delta_args *args)
{
    for (int64_t t = 0; t < args->T; t++) {
        delta_token(args, t);
    }
}
