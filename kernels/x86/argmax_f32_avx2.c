/* argmax_f32_avx2.c - first the largest value, then the first place where it stands: two simple
 * passes, the second of which ends early. Equal zeros of different sign compare equal, as in ref.
 */
#include "vec_avx2.h"
#include "ttk_versions.h"

int64_t ttk_argmax_f32_avx2(const float *c, int64_t n)
{
    /* With max_ps(c, m) a NaN in c leaves m as it is. Two registers, as max_ps has a latency of
     * several cycles. */
    __m256 m0 = _mm256_set1_ps(-INFINITY);
    __m256 m1 = m0;
    int64_t i = 0;
    for (; i + 2 * VEC <= n; i += 2 * VEC) {
        m0 = _mm256_max_ps(_mm256_loadu_ps(c + i), m0);
        m1 = _mm256_max_ps(_mm256_loadu_ps(c + i + VEC), m1);
    }
    float m = -INFINITY;
    for (; i < n; i++) {
        m = c[i] > m ? c[i] : m;
    }
    float part[VEC];
    _mm256_storeu_ps(part, _mm256_max_ps(m0, m1));
    for (int j = 0; j < VEC; j++) {
        m = part[j] > m ? part[j] : m;
    }
    __m256 m_all = _mm256_set1_ps(m);
    for (i = 0; i + VEC <= n; i += VEC) {
        int equal = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(c + i), m_all, _CMP_EQ_OQ));
        if (equal != 0) {
            return i + __builtin_ctz((unsigned)equal);
        }
    }
    for (; i < n; i++) {
        if (c[i] == m) {
            return i;
        }
    }
    return -1;
}
