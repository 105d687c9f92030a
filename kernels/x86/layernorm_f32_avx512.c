/* layernorm_f32_avx512.c - mean and variance norm of rows, the 16 lanes of a sum in one
 * register. */
#include "vec_avx512.h"
#include "ttk_versions.h"

/* A masked element counts as +0, and a lane is never -0 (it starts at +0), so that adding it
 * changes nothing. */
static float sum_of(const float *x, int64_t n)
{
    __m512 s = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += VEC) {
        s = _mm512_add_ps(s, _mm512_maskz_loadu_ps(vec_mask(n - i), x + i));
    }
    return vec_lanes_sum(s);
}

static float sum_of_squares(const float *x, int64_t n, __m512 mean)
{
    __m512 s = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        __m512 d = _mm512_maskz_sub_ps(mask, _mm512_maskz_loadu_ps(mask, x + i), mean);
        s = _mm512_fmadd_ps(d, d, s);
    }
    return vec_lanes_sum(s);
}

void ttk_layernorm_f32_avx512(float *y, int64_t ldy, const float *x, int64_t ldx, const float *g,
                              const float *b, int64_t T, int64_t H, float eps)
{
    for (int64_t t = 0; t < T; t++) {
        const float *x_H = x + t * ldx;
        float *y_H = y + t * ldy;
        __m512 mean = _mm512_set1_ps(sum_of(x_H, H) / (float)H);
        __m512 scale = _mm512_set1_ps(1.0f / sqrtf(sum_of_squares(x_H, H, mean) / (float)H + eps));
        for (int64_t h = 0; h < H; h += VEC) {
            __mmask16 mask = vec_mask(H - h);
            __m512 scaled =
                _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x_H + h), mean), scale);
            __m512 weight = _mm512_maskz_loadu_ps(mask, g + h);
            __m512 result = b ? _mm512_fmadd_ps(scaled, weight, _mm512_maskz_loadu_ps(mask, b + h))
                              : _mm512_mul_ps(scaled, weight);
            _mm512_mask_storeu_ps(y_H + h, mask, result);
        }
    }
}
