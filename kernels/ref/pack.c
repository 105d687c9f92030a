/* pack.c - cuts a weight matrix into panels and converts its type. A panel row holds one k of
 * TTK_PANEL outputs, so that a product reads the packed matrix from front to back. */
#include "ttk_math.h"
#include "ttk_versions.h"

static float load_element(const void *src, ttk_dtype type, int64_t at)
{
    if (type == TTK_F32) {
        return ((const float *)src)[at];
    }
    uint16_t half = ((const uint16_t *)src)[at];
    return type == TTK_BF16 ? ttk_math_f32_of_bf16(half) : ttk_math_f32_of_f16(half);
}

static void store_element(void *packed, ttk_dtype type, int64_t at, float value)
{
    if (type == TTK_F32) {
        ((float *)packed)[at] = value;
    } else {
        ((ttk_bf16 *)packed)[at] = ttk_math_bf16_of_f32(value);
    }
}

void ttk_pack_ref(void *packed, ttk_dtype packed_type, const void *src, ttk_dtype src_type,
                  int64_t row_stride, int64_t col_stride, int64_t N, int64_t K, int64_t panel_begin,
                  int64_t panel_end)
{
    for (int64_t p = panel_begin; p < panel_end; p++) {
        for (int64_t k = 0; k < K; k++) {
            for (int64_t j = 0; j < TTK_PANEL; j++) {
                int64_t n = p * TTK_PANEL + j;
                float value = 0.0f;
                if (n < N) {
                    value = load_element(src, src_type, n * row_stride + k * col_stride);
                }
                store_element(packed, packed_type, (p * K + k) * TTK_PANEL + j, value);
            }
        }
    }
}
