/* clamped_mul_f32_avx512.c - the clamped gate of a gated feed-forward layer. min and max give their
 * second operand when either is NaN, so the value stands second and its NaN stays. */
#include "vec_avx512.h"
#include "ttk_versions.h"

void ttk_clamped_mul_f32_avx512(float *y, int64_t ldy, const float *gate, int64_t ldg,
                                const float *up, int64_t ldu, int64_t T, int64_t F, float limit,
                                float alpha)
{
    const __m512 high = _mm512_set1_ps(limit), low = _mm512_set1_ps(-limit);
    const __m512 slope = _mm512_set1_ps(alpha), one = _mm512_set1_ps(1.0f);
    for (int64_t t = 0; t < T; t++) {
        for (int64_t f = 0; f < F; f += VEC) {
            __mmask16 mask = vec_mask(F - f);
            __m512 g = _mm512_min_ps(high, _mm512_maskz_loadu_ps(mask, gate + t * ldg + f));
            __m512 u = _mm512_maskz_loadu_ps(mask, up + t * ldu + f);
            u = _mm512_max_ps(low, _mm512_min_ps(high, u));
            __m512 gated = _mm512_mul_ps(g, vec_sigmoid(_mm512_mul_ps(slope, g)));
            _mm512_mask_storeu_ps(y + t * ldy + f, mask,
                                  _mm512_mul_ps(gated, _mm512_add_ps(u, one)));
        }
    }
}
