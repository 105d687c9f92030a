/* rmsnorm_f32_avx2.c - root mean square norm of rows, the 16 lanes of the sum in two registers. */
#include "vec_avx2.h"
#include "ttk_versions.h"

static float sum_of_squares(const float *x, int64_t n)
{
    vec_lanes s = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t i = 0;
    for (; i + TTK_LANES <= n; i += TTK_LANES) {
        __m256 a = _mm256_loadu_ps(x + i);
        __m256 b = _mm256_loadu_ps(x + i + VEC);
        s.a = _mm256_fmadd_ps(a, a, s.a);
        s.b = _mm256_fmadd_ps(b, b, s.b);
    }
    /* A masked element is +0, and the lanes are never -0 (they start at +0), so + 0 * 0 leaves them
     * as they are. */
    if (i < n) {
        __m256 a = _mm256_maskload_ps(x + i, vec_mask(n - i));
        s.a = _mm256_fmadd_ps(a, a, s.a);
    }
    if (i + VEC < n) {
        __m256 b = _mm256_maskload_ps(x + i + VEC, vec_mask(n - i - VEC));
        s.b = _mm256_fmadd_ps(b, b, s.b);
    }
    return vec_lanes_sum(s);
}

void ttk_rmsnorm_f32_avx2(float *y, int64_t ldy, const float *x, int64_t ldx, const float *g,
                          int64_t T, int64_t H, float eps)
{
    for (int64_t t = 0; t < T; t++) {
        const float *x_H = x + t * ldx;
        float *y_H = y + t * ldy;
        float r = 1.0f / sqrtf(sum_of_squares(x_H, H) / (float)H + eps);
        __m256 scale = _mm256_set1_ps(r);
        int64_t h = 0;
        if (g) {
            for (; h + VEC <= H; h += VEC) {
                __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x_H + h), scale);
                _mm256_storeu_ps(y_H + h, _mm256_mul_ps(scaled, _mm256_loadu_ps(g + h)));
            }
        } else {
            for (; h + VEC <= H; h += VEC) {
                _mm256_storeu_ps(y_H + h, _mm256_mul_ps(_mm256_loadu_ps(x_H + h), scale));
            }
        }
        for (; h < H; h++) {
            float scaled = x_H[h] * r;
            y_H[h] = g ? scaled * g[h] : scaled;
        }
    }
}
