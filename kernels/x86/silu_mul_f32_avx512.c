/* silu_mul_f32_avx512.c - the gate of a gated feed-forward layer. */
#include "vec_avx512.h"
#include "ttk_versions.h"

void ttk_silu_mul_f32_avx512(float *y, int64_t ldy, const float *gate, int64_t ldg, const float *up,
                             int64_t ldu, int64_t T, int64_t F)
{
    for (int64_t t = 0; t < T; t++) {
        for (int64_t f = 0; f < F; f += VEC) {
            __mmask16 mask = vec_mask(F - f);
            __m512 g = _mm512_maskz_loadu_ps(mask, gate + t * ldg + f);
            __m512 u = _mm512_maskz_loadu_ps(mask, up + t * ldu + f);
            __m512 silu = _mm512_mul_ps(g, vec_sigmoid(g));
            _mm512_mask_storeu_ps(y + t * ldy + f, mask, _mm512_mul_ps(silu, u));
        }
    }
}
