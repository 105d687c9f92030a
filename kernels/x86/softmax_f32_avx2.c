/* softmax_f32_avx2.c - softmax of one row in place. The maximum may be taken in any order: only the
 * sign of a zero or a NaN could differ, and neither changes the result (ref/softmax_f32.c). */
#include "vec_avx2.h"
#include "ttk_versions.h"

void ttk_softmax_f32_avx2(float *z, int64_t n)
{
    /* With max_ps(z, m) a NaN in z leaves m as it is. */
    __m256 m_all = _mm256_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        m_all = _mm256_max_ps(_mm256_loadu_ps(z + i), m_all);
    }
    float m = -INFINITY;
    for (; i < n; i++) {
        m = z[i] > m ? z[i] : m;
    }
    float part[VEC];
    _mm256_storeu_ps(part, m_all);
    for (int j = 0; j < VEC; j++) {
        m = part[j] > m ? part[j] : m;
    }
    m_all = _mm256_set1_ps(m);

    vec_lanes s = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (i = 0; i + TTK_LANES <= n; i += TTK_LANES) {
        __m256 a = vec_exp(_mm256_sub_ps(_mm256_loadu_ps(z + i), m_all));
        __m256 b = vec_exp(_mm256_sub_ps(_mm256_loadu_ps(z + i + VEC), m_all));
        _mm256_storeu_ps(z + i, a);
        _mm256_storeu_ps(z + i + VEC, b);
        s.a = _mm256_add_ps(s.a, a);
        s.b = _mm256_add_ps(s.b, b);
    }
    float lane[TTK_LANES];
    _mm256_storeu_ps(lane, s.a);
    _mm256_storeu_ps(lane + VEC, s.b);
    for (int64_t j = 0; i + j < n; j++) {
        z[i + j] = ttk_math_exp(z[i + j] - m);
        lane[j] = lane[j] + z[i + j];
    }
    float sum = ttk_math_lanes16(lane);
    __m256 sum_all = _mm256_set1_ps(sum);
    for (i = 0; i + VEC <= n; i += VEC) {
        _mm256_storeu_ps(z + i, _mm256_div_ps(_mm256_loadu_ps(z + i), sum_all));
    }
    for (; i < n; i++) {
        z[i] = z[i] / sum;
    }
}
