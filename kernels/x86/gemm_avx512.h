/* gemm_avx512.h - gemm.h on AVX-512: a row of a panel is a pair of registers, so one row takes four
 * panels together, more rows take tiles of up to 8 rows by a panel (16 registers). */
#ifndef TUTTI_TTK_GEMM_AVX512_H
#define TUTTI_TTK_GEMM_AVX512_H
#include "vec_avx512.h"

enum {
    TILE_ROWS = 8,          /* 16 sums + 2 weights + row elements of 32 registers */
    ROW_PANELS = 4,         /* panels that one row takes together */
    BLOCK_BYTES = 16 * 1024 /* of a panel; a third of the L1 cache */
};

TTK_INLINE vec_pair columns_in_order(vec_pair h)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return (vec_pair){_mm512_permutex2var_ps(h.a, low, h.b),
                      _mm512_permutex2var_ps(h.a, high, h.b)};
}

TTK_INLINE void store_first(float *y, vec v, int64_t n)
{
    _mm512_mask_storeu_ps(y, vec_mask(n), v);
}

#include "gemm.h"

#endif
