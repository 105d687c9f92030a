/* peak_avx2.c - what a core can do at most with AVX2, see ttk_peak.h. The arithmetic is written in
 * assembly, since compilers fold such loops or spill. */
#include "ttk_peak.h"
#include <immintrin.h>

enum {
    FLOATS_PER_VEC = 8,
    N_SUMS = 8,         /* hide the latency of an addition */
    AHEAD_FLOATS = 1024 /* 4 KiB: a page ahead, where the hardware's own prefetcher stops */
};

double ttk_peak_fma_avx2(void)
{
    TTK_PEAK_RUN("vfmadd231ps", __m256, _mm256_setzero_ps(), "x");
    return TTK_PEAK_CHAINS * 2.0 * FLOATS_PER_VEC * TTK_PEAK_LOOPS;
}

/* Products of bytes, summed in 16 and then in 32 bits: six independent chains. */
double ttk_peak_int8_avx2(void)
{
    __m256i a = _mm256_setzero_si256(), t0, t1, t2, t3, t4, t5;
    __m256i c0 = a, c1 = a, c2 = a, c3 = a, c4 = a, c5 = a;
#define TTK_DOT(n) "vpmaddubsw %12, %12, %" #n "\n\tvpmaddwd %12, %" #n ", %" #n "\n\t"
    for (int i = 0; i < TTK_PEAK_LOOPS; i++) {
        __asm__ volatile(TTK_DOT(6) TTK_DOT(7) TTK_DOT(8) TTK_DOT(9) TTK_DOT(10) TTK_DOT(
                             11) "vpaddd %6, %0, %0\n\tvpaddd %7, %1, %1\n\tvpaddd %8, %2, %2\n\t"
                                 "vpaddd %9, %3, %3\n\tvpaddd %10, %4, %4\n\tvpaddd %11, %5, %5"
                         : "+x"(c0), "+x"(c1), "+x"(c2), "+x"(c3), "+x"(c4), "+x"(c5), "=&x"(t0),
                           "=&x"(t1), "=&x"(t2), "=&x"(t3), "=&x"(t4), "=&x"(t5)
                         : "x"(a));
    }
#undef TTK_DOT
    return 6.0 * 2.0 * 32.0 * TTK_PEAK_LOOPS;
}

float ttk_peak_read_avx2(const float *x, size_t n)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    for (const float *end = x + n; x < end; x += N_SUMS * FLOATS_PER_VEC) {
        for (int line = 0; line < 4; line++) {
            _mm_prefetch((const char *)(x + AHEAD_FLOATS + line * 16), _MM_HINT_T0);
        }
        s0 = _mm256_add_ps(s0, _mm256_loadu_ps(x));
        s1 = _mm256_add_ps(s1, _mm256_loadu_ps(x + 8));
        s2 = _mm256_add_ps(s2, _mm256_loadu_ps(x + 16));
        s3 = _mm256_add_ps(s3, _mm256_loadu_ps(x + 24));
        s4 = _mm256_add_ps(s4, _mm256_loadu_ps(x + 32));
        s5 = _mm256_add_ps(s5, _mm256_loadu_ps(x + 40));
        s6 = _mm256_add_ps(s6, _mm256_loadu_ps(x + 48));
        s7 = _mm256_add_ps(s7, _mm256_loadu_ps(x + 56));
    }
    s0 = _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)),
                       _mm256_add_ps(_mm256_add_ps(s4, s5), _mm256_add_ps(s6, s7)));
    return _mm256_cvtss_f32(s0);
}

void ttk_peak_triad_avx2(float *a, const float *b, const float *c, size_t n)
{
    const __m256 three = _mm256_set1_ps(3.0f);
    size_t i = 0;
    for (; i + FLOATS_PER_VEC <= n; i += FLOATS_PER_VEC) {
        _mm256_storeu_ps(a + i,
                         _mm256_fmadd_ps(three, _mm256_loadu_ps(c + i), _mm256_loadu_ps(b + i)));
    }
    for (; i < n; i++) {
        a[i] = b[i] + 3.0f * c[i];
    }
}
