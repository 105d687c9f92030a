/* elementwise.c - the ops that treat every element alike: add, axpy, bf16 conversions, sigmoid. */
#include "ttk_math.h"
#include "ttk_versions.h"

void ttk_add_f32_ref(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = y[i] + x[i];
    }
}

void ttk_axpy_f32_ref(float *y, float w, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = fmaf(w, x[i], y[i]);
    }
}

void ttk_f32_to_bf16_ref(ttk_bf16 *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = ttk_math_bf16_of_f32(x[i]);
    }
}

void ttk_bf16_to_f32_ref(float *y, const ttk_bf16 *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = ttk_math_f32_of_bf16(x[i]);
    }
}

void ttk_sigmoid_f32_ref(float *z, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        z[i] = ttk_math_sigmoid(z[i]);
    }
}
