/* resident.h - the memory that a process really takes, as the kernel counts it. MPI: none. */
#ifndef TTI_CLI_RESIDENT_H
#define TTI_CLI_RESIDENT_H
#include <stdint.h>

typedef struct tti_cli_resident {
    uint64_t rss_bytes, rss_most_bytes; /* now, and at most so far; pages that several processes map count in each */
    uint64_t pss_bytes;                 /* now; such pages count in parts: a sum over processes is exact. 0 = not known */
    uint64_t held_bytes;                /* by tt_memory_alloc */
} tti_cli_resident;
/* 0 where the kernel does not say. */
tti_cli_resident tti_cli_resident_now(void);

#endif
