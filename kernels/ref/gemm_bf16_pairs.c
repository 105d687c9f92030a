/* gemm_bf16_pairs.c - product of rows rounded to bf16 with packed bf16 weights, in the order in
 * which tile products of AMX add. */
#include "ttk_versions.h"
#include "ttk_math.h"

enum { BLOCK = 32 };
#define LEAST_NORMAL 0x1p-126f

/* Denormal numbers count as 0. */
static float flushed(float v)
{
    return fabsf(v) < LEAST_NORMAL ? copysignf(0.0f, v) : v;
}

static float step(float x, float w, float acc)
{
    return flushed(fmaf(flushed(x), flushed(w), acc));
}

void ttk_gemm_bf16_pairs_ref(float *y, int64_t ldy, const float *x, int64_t ldx,
                             const ttk_bf16 *panels, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++) {
        for (int64_t n = 0; n < N; n++) {
            const ttk_bf16 *panel = panels + n / TTK_PANEL * K * TTK_PANEL + n % TTK_PANEL;
            float acc = 0.0f;
            for (int64_t begin = 0; begin < K; begin += BLOCK) {
                float sum[2] = {0.0f, 0.0f};
                for (int64_t k = begin; k < begin + BLOCK; k++) {
                    float x_k =
                        k < K ? ttk_math_f32_of_bf16(ttk_math_bf16_of_f32(flushed(x[m * ldx + k])))
                              : 0.0f;
                    float w_k = k < K ? ttk_math_f32_of_bf16(panel[k * TTK_PANEL]) : 0.0f;
                    sum[k % 2] = step(x_k, w_k, sum[k % 2]);
                }
                acc = flushed(acc + flushed(sum[0] + sum[1]));
            }
            y[m * ldy + n] = acc;
        }
    }
}
