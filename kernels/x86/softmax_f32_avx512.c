/* softmax_f32_avx512.c - softmax of one row in place. The maximum may be taken in any order: only
 * the sign of a zero or a NaN could differ, and neither changes the result (ref/softmax_f32.c). */
#include "vec_avx512.h"
#include "ttk_versions.h"

void ttk_softmax_f32_avx512(float *z, int64_t n)
{
    /* With max_ps(z, m) a NaN in z leaves m as it is. */
    __m512 m = _mm512_set1_ps(-INFINITY);
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        m = _mm512_mask_max_ps(m, mask, _mm512_maskz_loadu_ps(mask, z + i), m);
    }
    m = _mm512_set1_ps(vec_max(m));
    __m512 s = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        __m512 e = vec_exp(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, z + i), m));
        _mm512_mask_storeu_ps(z + i, mask, e);
        s = _mm512_mask_add_ps(s, mask, s, e);
    }
    __m512 sum = _mm512_set1_ps(vec_lanes_sum(s));
    for (int64_t i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        _mm512_mask_storeu_ps(z + i, mask, _mm512_div_ps(_mm512_maskz_loadu_ps(mask, z + i), sum));
    }
}
