/* gemm_quant.c - product of f32 rows with packed quantised weights: a chain of fmaf per group, and
 * a chain over the groups. */
#include "ttk_versions.h"
#include "ttk_math.h"
#include "ttk_quant.h"

/* The sum of one group, and with *x_sum_out that of its x. */
static float group_sum(const ttk_format *format, const unsigned char *panel,
                       const ttk_quant_place *place, int64_t j, const float *x, float *x_sum_out)
{
    float zero =
        format->shift == TTK_SHIFT_ZERO ? ttk_number(TTK_U8, panel + place->shift, j) : 0.0f;
    float sum = 0.0f, x_sum = 0.0f;
    for (int64_t k = 0; k < place->n_k; k++) {
        unsigned char code = ttk_quant_code(format->code, panel + place->codes, k, j);
        float number = ttk_number(format->code, &code, 0) + 0.0f; /* -0 becomes +0 */
        sum = fmaf(x[k], number - zero, sum);
        x_sum = x_sum + x[k];
    }
    *x_sum_out = x_sum;
    return sum;
}

void ttk_gemm_quant_ref(float *y, int64_t ldy, const float *x, int64_t ldx,
                        const ttk_format *format, const void *panels, int64_t M, int64_t N,
                        int64_t K)
{
    ttk_quant_shape shape = ttk_quant_shape_of(format, K);
    size_t panel_bytes = ttk_panel_bytes(format, K);
    for (int64_t m = 0; m < M; m++) {
        for (int64_t n = 0; n < N; n++) {
            const unsigned char *panel =
                (const unsigned char *)panels + (size_t)(n / TTK_PANEL) * panel_bytes;
            int64_t j = n % TTK_PANEL;
            float acc = 0.0f;
            for (int64_t g = 0; g < shape.G; g++) {
                ttk_quant_place place = ttk_quant_place_of(&shape, g);
                float x_sum;
                float sum =
                    group_sum(format, panel, &place, j, x + m * ldx + g * shape.group, &x_sum);
                acc = fmaf(ttk_quant_scale(format, panel, &place, j), sum, acc);
                if (format->shift == TTK_SHIFT_OFFSET) {
                    acc = fmaf(ttk_quant_offset(format, panel, &place, j), x_sum, acc);
                }
            }
            y[m * ldy + n] = acc;
        }
    }
}
