/* rmsnorm_f32.c - root mean square norm of rows. */
#include "ttk_math.h"
#include "ttk_versions.h"

void ttk_rmsnorm_f32_ref(float *y, int64_t ldy, const float *x, int64_t ldx, const float *g,
                         int64_t T, int64_t H, float eps)
{
    for (int64_t t = 0; t < T; t++) {
        const float *x_H = x + t * ldx;
        float *y_H = y + t * ldy;
        float lane[TTK_LANES] = {0};
        for (int64_t h = 0; h < H; h++) {
            lane[h % TTK_LANES] = fmaf(x_H[h], x_H[h], lane[h % TTK_LANES]);
        }
        float r = 1.0f / sqrtf(ttk_math_lanes16(lane) / (float)H + eps);
        for (int64_t h = 0; h < H; h++) {
            float scaled = x_H[h] * r;
            y_H[h] = g ? scaled * g[h] : scaled;
        }
    }
}
