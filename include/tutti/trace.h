/* trace.h - where time goes: named phases with totals (--log-view) and spans on a timeline
 * (--trace).
 *
 * A span is a begin/end pair on one thread. Spans of a phase add to the phase's totals; if tracing
 * is on they are also kept (per thread, in a ring that was allocated when tracing was switched on)
 * and can be written as Chrome/Perfetto JSON. All times from the monotonic clock.
 * Threads: any; no lock, no allocation after tt_trace_enable. MPI: none (ranks are merged by the
 * program). */
#ifndef TUTTI_TRACE_H
#define TUTTI_TRACE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "tutti/status.h"

typedef enum tt_phase {
    TT_PHASE_NONE = 0, /* timeline only, no totals */
    TT_PHASE_HEADER,
    TT_PHASE_EMBED,
    TT_PHASE_ATTENTION,
    TT_PHASE_DENSE,
    TT_PHASE_ROUTE,
    TT_PHASE_DISPATCH,
    TT_PHASE_SHARED,
    TT_PHASE_EXPERTS,
    TT_PHASE_COMBINE,
    TT_PHASE_GATHER,
    TT_PHASE_HEAD,
    TT_PHASE_SAMPLE,
    TT_PHASE_WAIT_DISPATCH, /* nothing to compute: waiting for rows */
    TT_PHASE_WAIT_COMBINE,  /* nothing to compute: waiting for results */
    TT_PHASE_MIGRATE,       /* experts that have come are put into their slots */
    TT_PHASE_STEP,          /* the whole step, around all others */
    TT_PHASE_COUNT
} tt_phase;

typedef struct tt_phase_total {
    uint64_t calls;
    uint64_t ns;
    uint64_t bytes; /* as told to tt_span_end: weights read or rows moved */
} tt_phase_total;

TT_API const char *tt_phase_name(tt_phase phase);
TT_API uint64_t tt_now_ns(void);

/* A running span; lives on the stack of the caller. */
typedef struct tt_span {
    tt_phase phase;
    const char *name;
    uint64_t begin_ns;
} tt_span;
TT_API tt_span tt_span_begin(tt_phase phase, const char *name /* literal */);
TT_API void tt_span_end(tt_span *span, uint64_t bytes);

/* Totals of this process since start or the last reset. Only spans of one thread per phase are
 * expected to overlap in time; totals are sums. */
TT_API void tt_phase_get(tt_phase phase, tt_phase_total *total_out);
TT_API void tt_phase_reset(void);

/* Switches the timeline on with room for spans_per_thread spans on each thread (oldest are
 * overwritten). */
TT_API tt_status tt_trace_enable(uint32_t spans_per_thread);
TT_API bool tt_trace_is_enabled(void);
/* Names the calling thread on the timeline ("compute 0", "comm"), best before its first span. The
 * name is copied; 31 bytes of it are kept. */
TT_API void tt_trace_name_thread(const char *name);
/* Appends this process's spans as JSON objects, each followed by ",\n" (no brackets), with pid =
 * rank; times relative to origin_ns (pass the same instant on all ranks). */
TT_API tt_status tt_trace_write(FILE *out, int rank, const char *host, uint64_t origin_ns);

/* Debug builds count heap allocations and blocking mutex locks made by this process outside foreign
 * libraries; elsewhere both stay 0 and tt_steady_is_counting is false. comm brackets MPI calls with
 * enter/leave_foreign. */
TT_API bool tt_steady_is_counting(void);
TT_API uint64_t tt_steady_allocations(void);
TT_API uint64_t tt_steady_locks(void);
TT_API void tt_steady_enter_foreign(void);
TT_API void tt_steady_leave_foreign(void);

#endif
