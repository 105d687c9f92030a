/* gemm_bf16_avx512.c - product of f32 rows with packed bf16 weights; the method is in
 * gemm_avx512.h. */
#include "gemm_avx512.h"
#include "ttk_versions.h"

void ttk_gemm_bf16_avx512(float *y, int64_t ldy, const float *x, int64_t ldx,
                          const ttk_bf16 *panels, int64_t M, int64_t N, int64_t K)
{
    gemm(y, ldy, x, ldx, panels, true, M, N, K);
}
