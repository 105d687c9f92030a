/* gemm_f32_avx2.c - product of f32 rows with packed f32 weights; the method is in gemm_avx2.h. */
#include "gemm_avx2.h"
#include "ttk_versions.h"

void ttk_gemm_f32_avx2(float *y, int64_t ldy, const float *x, int64_t ldx, const float *panels,
                       int64_t M, int64_t N, int64_t K)
{
    gemm(y, ldy, x, ldx, panels, false, M, N, K);
}
