/* act8.c - rows rounded to int8, and their products with packed quantised weights: whole numbers
 * within a segment, a chain of fmaf over the segments. */
#include "ttk_act8.h"
#include "ttk_math.h"
#include "ttk_versions.h"
#include <string.h>

static void add_codes(float *sum, float *half, const int8_t *code)
{
    *sum = half[0] = half[1] = 0.0f;
    for (int64_t i = 0; i < TTK_ACT_GROUP; i++) {
        *sum += code[i];
        half[i / TTK_HALF_GROUP] += code[i];
    }
}

void ttk_act8_ref(void *rows, size_t stride, const float *x, int64_t ldx, int64_t M, int64_t K)
{
    const int64_t groups = ttk_act8_groups(K);
    for (int64_t m = 0; m < M; m++) {
        unsigned char *row = (unsigned char *)rows + (size_t)m * stride;
        int8_t *code = (int8_t *)row;
        float *scale = (float *)(void *)(row + groups * TTK_ACT_GROUP);
        for (int64_t g = 0; g < groups; g++) {
            const int64_t at = g * TTK_ACT_GROUP, left = K - at;
            scale[g] = ttk_act8_round(code + at, x + m * ldx + at,
                                      left < TTK_ACT_GROUP ? left : TTK_ACT_GROUP);
            add_codes(scale + groups + g, scale + 2 * (groups + g), code + at);
        }
    }
}

void ttk_row8_act8_ref(void *act8, const void *row, int64_t n)
{
    const int64_t groups = ttk_act8_groups(n);
    const unsigned char *from = row;
    int8_t *code = act8;
    float *scale = (float *)(void *)(code + groups * TTK_ACT_GROUP);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t at = g * TTK_ACT_GROUP, left = n - at;
        const size_t bytes = (size_t)(left < TTK_ACT_GROUP ? left : TTK_ACT_GROUP);
        memset(code + at, 0, TTK_ACT_GROUP);
        memcpy(scale + g, from, sizeof(float));
        memcpy(code + at, from + sizeof(float), bytes);
        add_codes(scale + groups + g, scale + 2 * (groups + g), code + at);
        from += sizeof(float) + bytes;
    }
}

/* d of the contract, for inputs [k, k + n) of a group. */
static int32_t segment_sum(const ttk_format *format, const unsigned char *panel,
                           const ttk_quant_place *place, int64_t j, int64_t k, int64_t n,
                           const int8_t *x)
{
    const int32_t zero = format->shift == TTK_SHIFT_ZERO ? panel[place->shift + (size_t)j] : 0;
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        unsigned char code = ttk_quant_code(format->code, panel + place->codes, k + i, j);
        int32_t number =
            (int32_t)(ttk_number(format->code, &code, 0) / ttk_act8_factor(format->code));
        /* A zero is in units of the code's numbers. */
        number -= (int32_t)((float)zero / ttk_act8_factor(format->code));
        sum += x[i] * number;
    }
    return sum;
}

static float one_output(const ttk_format *format, const ttk_quant_shape *shape,
                        const unsigned char *panel, int64_t j, ttk_act8_row row)
{
    const int64_t step = ttk_act8_segment(format, shape->K);
    float acc = 0.0f;
    for (int64_t g = 0; g < shape->G; g++) {
        ttk_quant_place place = ttk_quant_place_of(shape, g);
        float w = ttk_quant_scale(format, panel, &place, j) * ttk_act8_factor(format->code);
        for (int64_t k = 0; k < place.n_k; k += step) {
            int64_t at = g * shape->group + k, n = place.n_k - k < step ? place.n_k - k : step;
            float s = row.scale[at / TTK_ACT_GROUP];
            float d = (float)segment_sum(format, panel, &place, j, k, n, row.code + at);
            acc = fmaf(w * s, d, acc);
            if (format->shift == TTK_SHIFT_OFFSET) {
                acc = fmaf(ttk_quant_offset(format, panel, &place, j),
                           s * ttk_act8_sums(row, step)[at / step], acc);
            }
        }
    }
    return acc;
}

void ttk_gemm_act8_ref(float *y, int64_t ldy, const void *rows, size_t stride,
                       const ttk_format *format, const void *panels, int64_t M, int64_t N,
                       int64_t K)
{
    const ttk_quant_shape shape = ttk_quant_shape_of(format, K);
    const size_t panel_bytes = ttk_panel_bytes(format, K);
    for (int64_t m = 0; m < M; m++) {
        for (int64_t n = 0; n < N; n++) {
            const unsigned char *panel =
                (const unsigned char *)panels + (size_t)(n / TTK_PANEL) * panel_bytes;
            y[m * ldy + n] = one_output(format, &shape, panel, n % TTK_PANEL,
                                        ttk_act8_row_at(rows, stride, m, K));
        }
    }
}
