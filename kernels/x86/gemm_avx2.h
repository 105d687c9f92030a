/* gemm_avx2.h - gemm.h on AVX2: one row takes two panels together, more rows take tiles of up to 6
 * rows by half a panel, or 3 by the whole. */
#ifndef TUTTI_TTK_GEMM_AVX2_H
#define TUTTI_TTK_GEMM_AVX2_H
#include "vec_avx2.h"

enum {
    TILE_ROWS = 6,         /* 12 sums + 2 weights + 1 row element of 16 registers */
    ROW_PANELS = 2,        /* panels that one row takes together */
    BLOCK_BYTES = 8 * 1024 /* of a panel; a quarter of the L1 cache, as rows of x may all fall into
                              the same few sets */
};

TTK_INLINE vec_pair columns_in_order(vec_pair h)
{
    __m256 low = _mm256_unpacklo_ps(h.a, h.b);
    __m256 high = _mm256_unpackhi_ps(h.a, h.b);
    return (vec_pair){_mm256_permute2f128_ps(low, high, 0x20),
                      _mm256_permute2f128_ps(low, high, 0x31)};
}

TTK_INLINE void store_first(float *y, vec v, int64_t n)
{
    _mm256_maskstore_ps(y, vec_mask(n), v);
}

#include "gemm.h"

#endif
