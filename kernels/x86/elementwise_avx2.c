/* elementwise_avx2.c - the ops that treat every element alike: add, axpy, bf16 conversions,
 * sigmoid. */
#include "vec_avx2.h"
#include "ttk_versions.h"

void ttk_add_f32_avx2(float *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    }
    for (; i < n; i++) {
        y[i] = y[i] + x[i];
    }
}

void ttk_axpy_f32_avx2(float *y, float w, const float *x, int64_t n)
{
    __m256 w_all = _mm256_set1_ps(w);
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        _mm256_storeu_ps(y + i,
                         _mm256_fmadd_ps(w_all, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    }
    for (; i < n; i++) {
        y[i] = fmaf(w, x[i], y[i]);
    }
}

void ttk_f32_to_bf16_avx2(ttk_bf16 *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC_BF16 <= n; i += VEC_BF16) {
        __m256i low = vec_bf16_bits(_mm256_loadu_ps(x + i));
        __m256i high = vec_bf16_bits(_mm256_loadu_ps(x + i + VEC));
        /* The pack works within 128-bit halves, so their quarters are put in order behind it. */
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)(y + i), packed);
    }
    for (; i < n; i++) {
        y[i] = ttk_math_bf16_of_f32(x[i]);
    }
}

void ttk_bf16_to_f32_avx2(float *y, const ttk_bf16 *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        _mm256_storeu_ps(y + i, vec_load_bf16(x + i));
    }
    for (; i < n; i++) {
        y[i] = ttk_math_f32_of_bf16(x[i]);
    }
}

void ttk_sigmoid_f32_avx2(float *z, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        _mm256_storeu_ps(z + i, vec_sigmoid(_mm256_loadu_ps(z + i)));
    }
    for (; i < n; i++) {
        z[i] = ttk_math_sigmoid(z[i]);
    }
}
