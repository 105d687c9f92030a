/* argmax_f32_avx512.c - first the largest value, then the first place where it stands: two simple
 * passes, the second of which ends early. Equal zeros of different sign compare equal, as in ref.
 */
#include "vec_avx512.h"
#include "ttk_versions.h"

int64_t ttk_argmax_f32_avx512(const float *c, int64_t n)
{
    /* With max_ps(c, m) a NaN in c leaves m as it is. Two registers, as max_ps has a latency of
     * several cycles. */
    __m512 m0 = _mm512_set1_ps(-INFINITY);
    __m512 m1 = m0;
    int64_t i = 0;
    for (; i + 2 * VEC <= n; i += 2 * VEC) {
        m0 = _mm512_max_ps(_mm512_loadu_ps(c + i), m0);
        m1 = _mm512_max_ps(_mm512_loadu_ps(c + i + VEC), m1);
    }
    for (; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        m0 = _mm512_mask_max_ps(m0, mask, _mm512_maskz_loadu_ps(mask, c + i), m0);
    }
    __m512 m = _mm512_set1_ps(vec_max(_mm512_max_ps(m0, m1)));
    for (i = 0; i < n; i += VEC) {
        __mmask16 mask = vec_mask(n - i);
        __mmask16 equal =
            _mm512_mask_cmp_ps_mask(mask, _mm512_maskz_loadu_ps(mask, c + i), m, _CMP_EQ_OQ);
        if (equal != 0) {
            return i + __builtin_ctz((unsigned)equal);
        }
    }
    return -1;
}
