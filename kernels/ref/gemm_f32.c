/* gemm_f32.c - product of f32 rows with packed f32 weights: each output is one fmaf chain over k.
 */
#include "ttk_versions.h"
#include <math.h>

void ttk_gemm_f32_ref(float *y, int64_t ldy, const float *x, int64_t ldx, const float *panels,
                      int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++) {
        for (int64_t n = 0; n < N; n++) {
            const float *panel = panels + n / TTK_PANEL * K * TTK_PANEL; /* panel[K][TTK_PANEL] */
            int64_t j = n % TTK_PANEL;
            float acc = 0.0f;
            for (int64_t k = 0; k < K; k++) {
                acc = fmaf(x[m * ldx + k], panel[k * TTK_PANEL + j], acc);
            }
            y[m * ldy + n] = acc;
        }
    }
}
