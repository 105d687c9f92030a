/* silu_mul_f32.c - the gate of a gated feed-forward layer. */
#include "ttk_math.h"
#include "ttk_versions.h"

void ttk_silu_mul_f32_ref(float *y, int64_t ldy, const float *gate, int64_t ldg, const float *up,
                          int64_t ldu, int64_t T, int64_t F)
{
    for (int64_t t = 0; t < T; t++) {
        for (int64_t f = 0; f < F; f++) {
            y[t * ldy + f] = ttk_math_silu_mul(gate[t * ldg + f], up[t * ldu + f]);
        }
    }
}
