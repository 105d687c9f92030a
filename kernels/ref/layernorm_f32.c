/* layernorm_f32.c - mean and variance norm of rows. */
#include "ttk_math.h"
#include "ttk_versions.h"

void ttk_layernorm_f32_ref(float *y, int64_t ldy, const float *x, int64_t ldx, const float *g,
                           const float *b, int64_t T, int64_t H, float eps)
{
    for (int64_t t = 0; t < T; t++) {
        const float *x_H = x + t * ldx;
        float *y_H = y + t * ldy;
        float sum[TTK_LANES] = {0};
        for (int64_t h = 0; h < H; h++) {
            sum[h % TTK_LANES] = sum[h % TTK_LANES] + x_H[h];
        }
        float mean = ttk_math_lanes16(sum) / (float)H;
        float square[TTK_LANES] = {0};
        for (int64_t h = 0; h < H; h++) {
            float d = x_H[h] - mean;
            square[h % TTK_LANES] = fmaf(d, d, square[h % TTK_LANES]);
        }
        float r = 1.0f / sqrtf(ttk_math_lanes16(square) / (float)H + eps);
        for (int64_t h = 0; h < H; h++) {
            float scaled = (x_H[h] - mean) * r;
            y_H[h] = b ? fmaf(scaled, g[h], b[h]) : scaled * g[h];
        }
    }
}
