/* gather_internal.h - the head of a gather's message, for gather.c and for tests that spoil it. */
#ifndef TUTTI_GATHER_INTERNAL_H
#define TUTTI_GATHER_INTERNAL_H
#include "comm_internal.h"

#define TTI_GATHER_MAGIC UINT64_C(0x7475747469676174) /* "tuttigat" */

/* First line of a region, and of a message. */
typedef struct tti_gather_head {
    alignas(TT_CACHE_LINE) _Atomic uint64_t seq; /* the use that is published here */
    uint64_t magic;
    uint64_t visible_ns;
    int64_t n_floats;
    int64_t rank;
} tti_gather_head;

#endif
