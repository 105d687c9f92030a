/* elementwise_avx512.c - the ops that treat every element alike: add, axpy, bf16 conversions,
 * sigmoid. Whole registers go through masks of all lanes, which cost nothing, so that tails need no
 * second loop. */
#include "vec_avx512.h"
#include "ttk_versions.h"

void ttk_add_f32_avx512(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        __m512 sum =
            _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y + i), _mm512_maskz_loadu_ps(mask, x + i));
        _mm512_mask_storeu_ps(y + i, mask, sum);
    }
}

void ttk_axpy_f32_avx512(float *y, float w, const float *x, int64_t n)
{
    __m512 w_all = _mm512_set1_ps(w);
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        __m512 x_i = _mm512_maskz_loadu_ps(mask, x + i);
        __m512 y_i = _mm512_maskz_loadu_ps(mask, y + i);
        _mm512_mask_storeu_ps(y + i, mask, _mm512_fmadd_ps(w_all, x_i, y_i));
    }
}

void ttk_f32_to_bf16_avx512(ttk_bf16 *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        _mm256_mask_storeu_epi16(y + i, mask, vec_narrow_bf16(_mm512_maskz_loadu_ps(mask, x + i)));
    }
}

void ttk_bf16_to_f32_avx512(float *y, const ttk_bf16 *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        _mm512_mask_storeu_ps(y + i, mask, vec_widen_bf16(_mm256_maskz_loadu_epi16(mask, x + i)));
    }
}

void ttk_sigmoid_f32_avx512(float *z, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        _mm512_mask_storeu_ps(z + i, mask, vec_sigmoid(_mm512_maskz_loadu_ps(mask, z + i)));
    }
}
