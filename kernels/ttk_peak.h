/* ttk_peak.h - loops that keep a core's units full: whoever times them learns what the machine can
 * do, in the run whose speed is to be judged.
 * Threads: any. */
#ifndef TUTTI_TTK_PEAK_H
#define TUTTI_TTK_PEAK_H
#include "ttk.h"

/* A round of independent chains of fused multiply-adds of floats (in registers), in the widest
 * vectors that cpu_flags allow. Returns the operations done, two for each multiply-add; 0 where
 * there is no such loop. A fraction of a millisecond. */
TTK_API double ttk_peak_fma(unsigned cpu_flags);
/* The same of products of bytes that are summed in 32 bits. */
TTK_API double ttk_peak_int8(unsigned cpu_flags);
/* The same of products of bf16 numbers that are summed in floats; 0 without AMX. */
TTK_API double ttk_peak_bf16(unsigned cpu_flags);
/* Sums n floats (a multiple of 64), asking for the next ones ahead; the sum keeps the loop
 * alive. */
TTK_API float ttk_peak_read(unsigned cpu_flags, const float *x, size_t n);
/* a[i] = b[i] + 3 c[i], i < n: two reads and a write for each element. */
TTK_API void ttk_peak_triad(unsigned cpu_flags, float *a, const float *b, const float *c, size_t n);

/* ---- private: the versions ---- */
enum { TTK_PEAK_LOOPS = 100000, TTK_PEAK_CHAINS = 10 };
/* Independent chains of an instruction on registers that start as `zero`; `any` is the constraint
 * of such registers. Assembly, since compilers fold such loops or spill. */
#define TTK_PEAK_RUN(op, type, zero, any)                                                          \
    do {                                                                                           \
        type a = (zero), c0 = a, c1 = a, c2 = a, c3 = a, c4 = a;                                   \
        type c5 = a, c6 = a, c7 = a, c8 = a, c9 = a;                                               \
        for (int i = 0; i < TTK_PEAK_LOOPS; i++) {                                                 \
            __asm__ volatile(op                                                                    \
                             " %10, %10, %0\n\t" op " %10, %10, %1\n\t" op " %10, %10, %2\n\t" op  \
                             " %10, %10, %3\n\t" op " %10, %10, %4\n\t" op " %10, %10, %5\n\t" op  \
                             " %10, %10, %6\n\t" op " %10, %10, %7\n\t" op " %10, %10, %8\n\t" op  \
                             " %10, %10, %9"                                                       \
                             : "+" any(c0), "+" any(c1), "+" any(c2), "+" any(c3), "+" any(c4),    \
                               "+" any(c5), "+" any(c6), "+" any(c7), "+" any(c8), "+" any(c9)     \
                             : any(a));                                                            \
        }                                                                                          \
    } while (0)
double ttk_peak_fma_avx2(void);
double ttk_peak_int8_avx2(void);
float ttk_peak_read_avx2(const float *x, size_t n);
void ttk_peak_triad_avx2(float *a, const float *b, const float *c, size_t n);
double ttk_peak_fma_avx512(void);
double ttk_peak_int8_vnni(void);
double ttk_peak_int8_amx(void);
double ttk_peak_bf16_amx(void);

#endif
