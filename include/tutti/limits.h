/* limits.h - what a machine can do at most, measured: how fast threads read memory and how fast
 * they calculate.
 *
 * A speed means something beside its limit, and the limit of a shared machine changes from minute
 * to minute: so it is measured in the same run.
 * Threads: set-up only. MPI: none; ranks of a machine that measure at the same time see what each
 * gets. */
#ifndef TUTTI_LIMITS_H
#define TUTTI_LIMITS_H
#include <stddef.h>
#include "tutti/status.h"
#include "tutti/stream.h"
#include "tutti/topology.h"

typedef struct tt_limits {
    size_t buffer_bytes;                      /* that were read */
    double sum_bytes_per_s;                   /* reading only */
    double triad_bytes_per_s;                 /* a = b + 3 c, 12 bytes an element */
    double fma_per_s, int8_per_s, bf16_per_s; /* operations: floats, products of bytes, of bf16
                                               * (AMX); 0 = no such loop for this CPU */
} tt_limits;
/* The better of the two ways of moving bytes: what products over weights are compared with. */
static inline double tt_limits_read(const tt_limits *limits)
{
    return limits->sum_bytes_per_s > limits->triad_bytes_per_s ? limits->sum_bytes_per_s
                                                               : limits->triad_bytes_per_s;
}

/* Bytes that a measurement on this machine needs: four times all last-level caches of the mask, at
 * most a quarter of what is available. */
TT_API size_t tt_limits_buffer_bytes(const tt_topology *topology);
/* Measures with all threads of a stream, the best of `repeats` (1 to 1000) passes over a buffer of
 * so many bytes on NUMA node `node` (-1 = any); each thread writes its part first, so that pages
 * exist and lie near it. Takes some hundred ms. Errors: TT_ERR_ARG, TT_ERR_NOMEM. */
TT_API tt_status tt_limits_measure(tt_stream *stream, size_t bytes, int node, int repeats,
                                   tt_limits *limits_out);

#endif
