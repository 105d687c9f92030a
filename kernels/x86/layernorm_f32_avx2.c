/* layernorm_f32_avx2.c - mean and variance norm of rows, the 16 lanes of both sums in two
 * registers. */
#include "vec_avx2.h"
#include "ttk_versions.h"

/* A masked element counts as +0, and a lane is never -0 (it starts at +0), so that adding it
 * changes nothing. */
static float sum_of(const float *x, int64_t n)
{
    vec_lanes s = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t i = 0;
    for (; i + TTK_LANES <= n; i += TTK_LANES) {
        s.a = _mm256_add_ps(s.a, _mm256_loadu_ps(x + i));
        s.b = _mm256_add_ps(s.b, _mm256_loadu_ps(x + i + VEC));
    }
    if (i < n) {
        s.a = _mm256_add_ps(s.a, _mm256_maskload_ps(x + i, vec_mask(n - i)));
    }
    if (i + VEC < n) {
        s.b = _mm256_add_ps(s.b, _mm256_maskload_ps(x + i + VEC, vec_mask(n - i - VEC)));
    }
    return vec_lanes_sum(s);
}

/* x[i] - mean, +0 beyond n. */
static __m256 rest_less(const float *x, int64_t n, __m256 mean)
{
    __m256i mask = vec_mask(n);
    return _mm256_and_ps(_mm256_sub_ps(_mm256_maskload_ps(x, mask), mean),
                         _mm256_castsi256_ps(mask));
}

static float sum_of_squares(const float *x, int64_t n, __m256 mean)
{
    vec_lanes s = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t i = 0;
    for (; i + TTK_LANES <= n; i += TTK_LANES) {
        __m256 a = _mm256_sub_ps(_mm256_loadu_ps(x + i), mean);
        __m256 b = _mm256_sub_ps(_mm256_loadu_ps(x + i + VEC), mean);
        s.a = _mm256_fmadd_ps(a, a, s.a);
        s.b = _mm256_fmadd_ps(b, b, s.b);
    }
    if (i < n) {
        __m256 a = rest_less(x + i, n - i, mean);
        s.a = _mm256_fmadd_ps(a, a, s.a);
    }
    if (i + VEC < n) {
        __m256 b = rest_less(x + i + VEC, n - i - VEC, mean);
        s.b = _mm256_fmadd_ps(b, b, s.b);
    }
    return vec_lanes_sum(s);
}

void ttk_layernorm_f32_avx2(float *y, int64_t ldy, const float *x, int64_t ldx, const float *g,
                            const float *b, int64_t T, int64_t H, float eps)
{
    for (int64_t t = 0; t < T; t++) {
        const float *x_H = x + t * ldx;
        float *y_H = y + t * ldy;
        float mean = sum_of(x_H, H) / (float)H;
        __m256 mean_vec = _mm256_set1_ps(mean);
        float r = 1.0f / sqrtf(sum_of_squares(x_H, H, mean_vec) / (float)H + eps);
        __m256 scale = _mm256_set1_ps(r);
        int64_t h = 0;
        for (; h + VEC <= H; h += VEC) {
            __m256 scaled = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x_H + h), mean_vec), scale);
            __m256 weight = _mm256_loadu_ps(g + h);
            _mm256_storeu_ps(y_H + h, b ? _mm256_fmadd_ps(scaled, weight, _mm256_loadu_ps(b + h))
                                        : _mm256_mul_ps(scaled, weight));
        }
        for (; h < H; h++) {
            float scaled = (x_H[h] - mean) * r;
            y_H[h] = b ? fmaf(scaled, g[h], b[h]) : scaled * g[h];
        }
    }
}
