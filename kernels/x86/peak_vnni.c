/* peak_vnni.c - products of bytes of AVX-512 VNNI, see ttk_peak.h. */
#include "ttk_peak.h"
#include <immintrin.h>

enum { BYTES_PER_VEC = 64 };

double ttk_peak_int8_vnni(void)
{
    TTK_PEAK_RUN("vpdpbusd", __m512i, _mm512_setzero_si512(), "v");
    return TTK_PEAK_CHAINS * 2.0 * BYTES_PER_VEC * TTK_PEAK_LOOPS;
}
