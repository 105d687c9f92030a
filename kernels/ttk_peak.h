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
enum { TTK_PEAK_LOOPS = 100000 };
double ttk_peak_fma_avx2(void);
double ttk_peak_int8_avx2(void);
float ttk_peak_read_avx2(const float *x, size_t n);
void ttk_peak_triad_avx2(float *a, const float *b, const float *c, size_t n);
double ttk_peak_fma_avx512(void);
double ttk_peak_int8_vnni(void);
double ttk_peak_int8_amx(void);
double ttk_peak_bf16_amx(void);

#endif
