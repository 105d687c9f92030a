/* quantize.c - rounds rows of floats to a quantised format: a scale per group from its largest
 * element, then each element to the nearest code. */
#include "ttk_quantize.h"
#include "ttk_versions.h"

/* The element of the largest magnitude (the first of such), NaN if one is not finite. */
static float extreme_of(const float *x, int64_t n)
{
    float extreme = 0.0f;
    for (int64_t k = 0; k < n; k++) {
        if (!isfinite(x[k])) {
            return NAN;
        }
        extreme = fabsf(x[k]) > fabsf(extreme) ? x[k] : extreme;
    }
    return extreme;
}

void ttk_quantize_ref(const ttk_format *format, const float *src, int64_t n, int64_t K,
                      const ttk_unpacked *dst)
{
    int64_t G = K > 0 ? (K - 1) / format->group + 1 : 0;
    unsigned char *codes = (unsigned char *)dst->code; /* which are written here */
    for (int64_t row = 0; row < n; row++) {
        for (int64_t g = 0; g < G; g++) {
            int64_t begin = g * format->group;
            int64_t n_k = K - begin < format->group ? K - begin : format->group;
            const float *x = src + row * K + begin;
            float extreme = extreme_of(x, n_k);
            float scale =
                ttk_quantize_group_scale(format, (void *)dst->scale, row * G + g, extreme);
            bool has_codes = extreme == extreme && scale != 0.0f;
            for (int64_t k = 0; k < n_k; k++) {
                codes[row * K + begin + k] =
                    ttk_quantize_code_of(format->code, has_codes ? x[k] / scale : 0.0f);
            }
        }
    }
}
