/* cpu_flags.h - the TTK_CPU_ flags of this CPU, for programs that link the kernels alone. As
 * src/base/cpu.c, by the compiler's means. */
#ifndef TUTTI_TESTS_KERNELS_CPU_FLAGS_H
#define TUTTI_TESTS_KERNELS_CPU_FLAGS_H
#include "ttk.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whether the CPU has tiles with int8 and bf16 products, and the system gives this process their
 * state. */
static inline bool has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arch_prctl(2), ARCH_REQ_XCOMP_PERM */
    const unsigned need = 1u << 22 | 1u << 24 | 1u << 25; /* leaf 7, EDX: bf16, tile, int8 */
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & need) == need &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5) &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

static inline unsigned cpu_flags(void)
{
    unsigned flags = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        flags |= TTK_CPU_AVX2;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        flags |= TTK_CPU_AVX512;
    }
    if (__builtin_cpu_supports("avx512vnni")) {
        flags |= TTK_CPU_AVX512_VNNI;
    }
    if ((flags & TTK_CPU_AVX512) && has_amx()) {
        flags |= TTK_CPU_AMX;
    }
#endif
    return flags;
}

#endif
