/* act8_avx2.c - rows rounded to int8 in groups of 32. */
#include "round8_avx2.h"
#include "ttk_versions.h"

void ttk_act8_avx2(void *rows, size_t stride, const float *x, int64_t ldx, int64_t M, int64_t K)
{
    const int64_t groups = ttk_act8_groups(K);
    for (int64_t m = 0; m < M; m++) {
        unsigned char *row = (unsigned char *)rows + (size_t)m * stride;
        float *scale = (float *)(void *)(row + groups * TTK_ACT_GROUP);
        for (int64_t g = 0; g < groups; g++) {
            const int64_t at = g * TTK_ACT_GROUP;
            __m256 part[PARTS];
            load_group(part, x + m * ldx + at, K - at);
            const __m256i codes = round_int8(part, scale + g);
            _mm256_storeu_si256((__m256i *)(void *)(row + at), codes);
            add_codes(scale + groups + g, scale + 2 * (groups + g), codes);
        }
    }
}
