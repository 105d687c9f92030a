/* resident.h - the memory that a process really takes, as the kernel counts it. MPI: none. */
#ifndef TTI_CLI_RESIDENT_H
#define TTI_CLI_RESIDENT_H
#include <stdint.h>
#include "tutti/comm.h"

typedef struct tti_cli_resident {
    uint64_t rss_bytes, rss_most_bytes; /* now, and at most so far; pages that several processes
                                         * map count in each */
    uint64_t pss_bytes;                 /* now; such pages count in parts: a sum over processes
                                         * is exact. 0 = not known */
    uint64_t held_bytes;                /* by tt_memory_alloc */
    uint64_t window_bytes;              /* shared with the ranks of the node, this rank's parts */
} tti_cli_resident;
/* 0 where the kernel does not say. world: may be NULL. */
tti_cli_resident tti_cli_resident_now(const tt_world *world);

#endif
