/* clamped_mul_f32.c - the clamped gate of a gated feed-forward layer. */
#include "ttk_math.h"
#include "ttk_versions.h"

void ttk_clamped_mul_f32_ref(float *y, int64_t ldy, const float *gate, int64_t ldg, const float *up,
                             int64_t ldu, int64_t T, int64_t F, float limit, float alpha)
{
    for (int64_t t = 0; t < T; t++) {
        for (int64_t f = 0; f < F; f++) {
            y[t * ldy + f] = ttk_math_clamped_mul(gate[t * ldg + f], up[t * ldu + f], limit, alpha);
        }
    }
}
