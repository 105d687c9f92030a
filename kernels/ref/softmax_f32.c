/* softmax_f32.c - softmax of one row in place. A NaN may or may not win the maximum; either way its
 * own exponential is NaN, which makes the sum, and so the whole row, NaN. */
#include "ttk_math.h"
#include "ttk_versions.h"

void ttk_softmax_f32_ref(float *z, int64_t n)
{
    float m = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        m = z[i] > m ? z[i] : m;
    }
    float lane[TTK_LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        z[i] = ttk_math_exp(z[i] - m);
        lane[i % TTK_LANES] = lane[i % TTK_LANES] + z[i];
    }
    float sum = ttk_math_lanes16(lane);
    for (int64_t i = 0; i < n; i++) {
        z[i] = z[i] / sum;
    }
}
