/* silu_mul_f32_avx2.c - the gate of a gated feed-forward layer. */
#include "vec_avx2.h"
#include "ttk_versions.h"

void ttk_silu_mul_f32_avx2(float *y, int64_t ldy, const float *gate, int64_t ldg, const float *up,
                           int64_t ldu, int64_t T, int64_t F)
{
    for (int64_t t = 0; t < T; t++) {
        const float *gate_F = gate + t * ldg;
        const float *up_F = up + t * ldu;
        float *y_F = y + t * ldy;
        int64_t f = 0;
        for (; f + VEC <= F; f += VEC) {
            __m256 g = _mm256_loadu_ps(gate_F + f);
            __m256 silu = _mm256_mul_ps(g, vec_sigmoid(g));
            _mm256_storeu_ps(y_F + f, _mm256_mul_ps(silu, _mm256_loadu_ps(up_F + f)));
        }
        for (; f < F; f++) {
            y_F[f] = ttk_math_silu_mul(gate_F[f], up_F[f]);
        }
    }
}
