/* ttk_peak.c - which loop a CPU's limits are measured with. */
#include "ttk_peak.h"

double ttk_peak_fma(unsigned cpu_flags)
{
    (void)cpu_flags;
#if TTK_HAVE_AVX512
    if (cpu_flags & TTK_CPU_AVX512) {
        return ttk_peak_fma_avx512();
    }
#endif
#if TTK_HAVE_AVX2
    if (cpu_flags & TTK_CPU_AVX2) {
        return ttk_peak_fma_avx2();
    }
#endif
    return 0.0;
}

double ttk_peak_bf16(unsigned cpu_flags)
{
    (void)cpu_flags;
#if TTK_HAVE_AMX
    if (cpu_flags & TTK_CPU_AMX) {
        return ttk_peak_bf16_amx();
    }
#endif
    return 0.0;
}

double ttk_peak_int8(unsigned cpu_flags)
{
    (void)cpu_flags;
#if TTK_HAVE_AMX
    if (cpu_flags & TTK_CPU_AMX) {
        return ttk_peak_int8_amx();
    }
#endif
#if TTK_HAVE_AVX512
    if (cpu_flags & TTK_CPU_AVX512_VNNI) {
        return ttk_peak_int8_vnni();
    }
#endif
#if TTK_HAVE_AVX2
    if (cpu_flags & TTK_CPU_AVX2) {
        return ttk_peak_int8_avx2();
    }
#endif
    return 0.0;
}

float ttk_peak_read(unsigned cpu_flags, const float *x, size_t n)
{
    (void)cpu_flags;
#if TTK_HAVE_AVX2
    if (cpu_flags & TTK_CPU_AVX2) {
        return ttk_peak_read_avx2(x, n);
    }
#endif
    float a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 4 <= n; i += 4) {
        a += x[i];
        b += x[i + 1];
        c += x[i + 2];
        d += x[i + 3];
    }
    return a + b + c + d;
}

void ttk_peak_triad(unsigned cpu_flags, float *a, const float *b, const float *c, size_t n)
{
    (void)cpu_flags;
#if TTK_HAVE_AVX2
    if (cpu_flags & TTK_CPU_AVX2) {
        ttk_peak_triad_avx2(a, b, c, n);
        return;
    }
#endif
    for (size_t i = 0; i < n; i++) {
        a[i] = b[i] + 3.0f * c[i];
    }
}
