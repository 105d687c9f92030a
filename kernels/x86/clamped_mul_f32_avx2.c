/* clamped_mul_f32_avx2.c - the clamped gate of a gated feed-forward layer. min and max give their
 * second operand when either is NaN, so the value stands second and its NaN stays. */
#include "vec_avx2.h"
#include "ttk_versions.h"

void ttk_clamped_mul_f32_avx2(float *y, int64_t ldy, const float *gate, int64_t ldg,
                              const float *up, int64_t ldu, int64_t T, int64_t F, float limit,
                              float alpha)
{
    const __m256 high = _mm256_set1_ps(limit), low = _mm256_set1_ps(-limit);
    const __m256 slope = _mm256_set1_ps(alpha), one = _mm256_set1_ps(1.0f);
    for (int64_t t = 0; t < T; t++) {
        const float *gate_F = gate + t * ldg;
        const float *up_F = up + t * ldu;
        float *y_F = y + t * ldy;
        int64_t f = 0;
        for (; f + VEC <= F; f += VEC) {
            __m256 g = _mm256_min_ps(high, _mm256_loadu_ps(gate_F + f));
            __m256 u = _mm256_max_ps(low, _mm256_min_ps(high, _mm256_loadu_ps(up_F + f)));
            __m256 gated = _mm256_mul_ps(g, vec_sigmoid(_mm256_mul_ps(slope, g)));
            _mm256_storeu_ps(y_F + f, _mm256_mul_ps(gated, _mm256_add_ps(u, one)));
        }
        for (; f < F; f++) {
            y_F[f] = ttk_math_clamped_mul(gate_F[f], up_F[f], limit, alpha);
        }
    }
}
