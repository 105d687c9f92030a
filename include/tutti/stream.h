/* stream.h - threads, streams and events.
 *
 * A stream is an in-order queue of tasks. Each task runs on all threads of the stream at once (fn
 * gets its thread number and the number of threads, and splits the work by fixed rules); the next
 * task starts when all threads are done. An event orders streams: record on one, wait on another or
 * on the host.
 * Waiting threads spin a little, then yield, then (idle streams) sleep, so that ranks that share
 * cores do not collapse. After create nothing here allocates or blocks on a lock, except the sleep
 * of an idle stream.
 * MPI: none. */
#ifndef TUTTI_STREAM_H
#define TUTTI_STREAM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "tutti/status.h"

typedef struct tt_stream tt_stream; /* opaque */

/* Runs part thread_id of n_threads of a task. Must give the same result for any n_threads. */
typedef void tt_task_fn(void *arg, int thread_id, int n_threads);

/* Done when done >= target. Visible body: lives inside other structs; all-zero is a valid event
 * that is done. */
typedef struct tt_event {
    _Atomic uint64_t done; /* release by the stream that reaches the record */
    uint64_t target;       /* written by tt_stream_record on the recording thread only */
} tt_event;

typedef struct tt_stream_params {
    const char *name; /* for traces and thread names; kept as pointer */
    int n_threads;    /* at least 1; default (0) is 1 */
    bool join_caller; /* thread 0 is whoever calls tt_stream_run/sync; only n_threads - 1 are
                       * started */
    const int *cpu;   /* cpu[n_threads]: OS index to bind each thread to, -1 = unbound; NULL =
                       * none. With join_caller, cpu[0] binds the thread that calls create;
                       * unbound threads keep the mask that thread had before. */
} tt_stream_params;

/* Gives all threads the default floating-point environment (round to nearest, nothing flushed);
 * with join_caller the calling thread as well. At most 1024 threads. Errors: TT_ERR_ARG,
 * TT_ERR_NOMEM; a failed binding is only a warning. */
TT_API tt_status tt_stream_create(const tt_stream_params *params, tt_stream **stream_out);
/* Waits for what was enqueued, then ends the threads. Accepts a pointer to NULL. */
TT_API void tt_stream_destroy(tt_stream **stream);
TT_API int tt_stream_n_threads(const tt_stream *stream);

/* Adds a task; waits (yielding) if TT_STREAM_DEPTH tasks are queued. `name` must outlive the trace
 * (a literal).
 * Thread: one enqueuing thread at a time per stream. */
enum { TT_STREAM_DEPTH = 256 };
TT_API void tt_stream_enqueue(tt_stream *stream, const char *name, tt_task_fn *fn, void *arg);
/* Marks the event done when all earlier tasks of the stream are. */
TT_API void tt_stream_record(tt_stream *stream, tt_event *event);
/* Later tasks of `stream` start only when the event is done: as recorded so far; the event must
 * stay alive until the stream has passed this point. With join_caller, recorded and waited-for
 * entries move on in run and sync only. */
TT_API void tt_stream_wait(tt_stream *stream, tt_event *event);
/* Returns when the queue is empty and its last task done; with join_caller the caller does thread
 * 0's part. */
TT_API void tt_stream_sync(tt_stream *stream);
/* `hook(arg)` is called by the thread that calls tt_stream_run, after its part of each task:
 * between pieces of work. NULL = none. By that thread, outside of run; tt_engine_step takes it over
 * where progress is polled. */
TT_API void tt_stream_set_hook(tt_stream *stream, void (*hook)(void *arg), void *arg);
/* enqueue + sync: a parallel-for. */
TT_API void tt_stream_run(tt_stream *stream, const char *name, tt_task_fn *fn, void *arg);

TT_API bool tt_event_query(tt_event *event);
TT_API void tt_event_wait(tt_event *event);

/* Backoff of one waiting loop: `tt_spin s = {0}; while (!ready) tt_spin_once(&s);` pauses at first,
 * yields soon, never sleeps. tt_spin_sleepy_once also sleeps (up to 1 ms) when it has waited for
 * long. */
typedef struct tt_spin {
    uint32_t n;
} tt_spin;
TT_API void tt_spin_once(tt_spin *spin);
TT_API void tt_spin_sleepy_once(tt_spin *spin);

/* Part `i` of `n` of the range [0, total): fixed split, sizes differ by at most one. */
static inline void tt_split(int64_t total, int64_t n, int64_t i, int64_t *begin_out,
                            int64_t *end_out)
{
    int64_t base = total / n, extra = total % n;
    *begin_out = i * base + (i < extra ? i : extra);
    *end_out = *begin_out + base + (i < extra ? 1 : 0);
}

#endif
