/* peak_avx512.c - fused multiply-adds of AVX-512, see ttk_peak.h. */
#include "ttk_peak.h"
#include <immintrin.h>

enum { FLOATS_PER_VEC = 16 };

/* Ten independent chains. */
double ttk_peak_fma_avx512(void)
{
    __m512 a = _mm512_setzero_ps();
    __m512 c0 = a, c1 = a, c2 = a, c3 = a, c4 = a, c5 = a, c6 = a, c7 = a, c8 = a, c9 = a;
    for (int i = 0; i < TTK_PEAK_LOOPS; i++) {
        __asm__ volatile(
            "vfmadd231ps %10, %10, %0\n\tvfmadd231ps %10, %10, %1\n\tvfmadd231ps %10, %10, %2\n\t"
            "vfmadd231ps %10, %10, %3\n\tvfmadd231ps %10, %10, %4\n\tvfmadd231ps %10, %10, %5\n\t"
            "vfmadd231ps %10, %10, %6\n\tvfmadd231ps %10, %10, %7\n\tvfmadd231ps %10, %10, %8\n\t"
            "vfmadd231ps %10, %10, %9"
            : "+v"(c0), "+v"(c1), "+v"(c2), "+v"(c3), "+v"(c4), "+v"(c5), "+v"(c6), "+v"(c7),
              "+v"(c8), "+v"(c9)
            : "v"(a));
    }
    return 10.0 * 2.0 * FLOATS_PER_VEC * TTK_PEAK_LOOPS;
}
