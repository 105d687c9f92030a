/* rmsnorm_f32_avx512.c - root mean square norm of rows, the 16 lanes of the sum in one register. */
#include "vec_avx512.h"
#include "ttk_versions.h"

static float sum_of_squares(const float *x, int64_t n)
{
    __m512 s = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        __m512 v = _mm512_loadu_ps(x + i);
        s = _mm512_fmadd_ps(v, v, s);
    }
    if (i < n) {
        __mmask16 mask = vec_mask(n - i);
        __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
        s = _mm512_mask3_fmadd_ps(v, v, s, mask);
    }
    return vec_lanes_sum(s);
}

void ttk_rmsnorm_f32_avx512(float *y, int64_t ldy, const float *x, int64_t ldx, const float *g,
                            int64_t T, int64_t H, float eps)
{
    for (int64_t t = 0; t < T; t++) {
        const float *x_H = x + t * ldx;
        float *y_H = y + t * ldy;
        __m512 scale = _mm512_set1_ps(1.0f / sqrtf(sum_of_squares(x_H, H) / (float)H + eps));
        for (int64_t h = 0; h < H; h += VEC) {
            __mmask16 mask = vec_mask(H - h);
            __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x_H + h), scale);
            if (g) {
                scaled = _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, g + h));
            }
            _mm512_mask_storeu_ps(y_H + h, mask, scaled);
        }
    }
}
