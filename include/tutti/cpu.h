/* cpu.h - what the processor and the operating system let us use.
 * Threads: any. MPI: none. */
#ifndef TUTTI_CPU_H
#define TUTTI_CPU_H
#include "tutti/status.h"

/* TTK_CPU_ flags of this machine (CPUID and XGETBV; asks the kernel for AMX once), less those
 * hidden by TUTTI_CPU_HIDE ("avx2,avx512,vnni,amx"), each with those that build on it: avx2 all,
 * avx512 vnni and amx, vnni amx. */
TT_API unsigned tt_cpu_flags(void);
/* "AMD EPYC 7763 64-Core Processor"; never NULL. */
TT_API const char *tt_cpu_name(void);

#endif
