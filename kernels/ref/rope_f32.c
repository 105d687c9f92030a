/* rope_f32.c - rotary position embedding: turns pairs of a head's elements by an angle of their
 * own. */
#include "ttk_math.h"
#include "ttk_versions.h"

void ttk_rope_f32_ref(float *x, int64_t n_heads, int64_t head_stride, int64_t d, const float *cos,
                      const float *sin, bool interleaved)
{
    for (int64_t h = 0; h < n_heads; h++) {
        float *head = x + h * head_stride; /* head[d] */
        for (int64_t i = 0; i < d / 2; i++) {
            float *first = interleaved ? &head[2 * i] : &head[i];
            float *second = interleaved ? &head[2 * i + 1] : &head[i + d / 2];
            float a = *first;
            float b = *second;
            float a_sin = a * sin[i];
            float b_sin = b * sin[i];
            *first = fmaf(a, cos[i], -b_sin);
            *second = fmaf(b, cos[i], a_sin);
        }
    }
}
