/* peak_avx512.c - fused multiply-adds of AVX-512, see ttk_peak.h. */
#include "ttk_peak.h"
#include <immintrin.h>

enum { FLOATS_PER_VEC = 16 };

double ttk_peak_fma_avx512(void)
{
    TTK_PEAK_RUN("vfmadd231ps", __m512, _mm512_setzero_ps(), "v");
    return TTK_PEAK_CHAINS * 2.0 * FLOATS_PER_VEC * TTK_PEAK_LOOPS;
}
