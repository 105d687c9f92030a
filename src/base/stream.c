/* stream.c - in-order queues of tasks, each run by all threads of the stream at once.
 *
 * A stream is a ring of entries (task, record, wait) that every thread walks on its own. `head`
 * counts published entries, `completed` counts entries that all threads have left. A thread may
 * start entry i when head > i and completed >= i; when it has done its part it arrives at a
 * counter, and the last one to arrive sets completed = i + 1. Arrival goes over two levels, so
 * that a cache line has at most ARRIVAL_GROUP writers.
 *
 * With join_caller, thread 0 is whoever calls run or sync, and walks the ring there. One such
 * thread alone never touches the ring: its tt_stream_run is a plain call.
 *
 * A worker without work spins, yields, and after IDLE_SLEEP_NS sleeps on a futex. The enqueuer
 * stores head and then reads n_sleeping; the sleeper writes n_sleeping and then reads head; all
 * four are sequentially consistent, so that at least one of them sees the other. */
#define _GNU_SOURCE /* pthread_setname_np, pthread_setaffinity_np, syscall */
#include "tutti/stream.h"
#include <fenv.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tutti/log.h"
#include "tutti/memory.h"
#include "tutti/trace.h"

enum {
    ARRIVAL_GROUP = 8, /* threads that share one arrival counter; guessed */
    MAX_THREADS = 1024,
    IDLE_SLEEP_NS = 2000000, /* 2 ms: longer than the gaps between steps of a busy server */
    IDLE_CLOCK_ROUNDS = 64,  /* rounds of waiting between two looks at the clock */
    THREAD_NAME_BYTES = 16   /* limit of the kernel, with its NUL */
};

typedef enum entry_kind { ENTRY_TASK, ENTRY_RECORD, ENTRY_WAIT } entry_kind;

/* One ring entry. Written by the enqueuer before head passes it, read by all threads, free again
 * when completed has passed it. */
typedef struct entry {
    entry_kind kind;
    const char *name;
    tt_task_fn *fn;
    void *arg;
    tt_event *event;
    uint64_t event_value; /* what `done` becomes (record) or must reach (wait) */
} entry;

/* A counter that never goes back: entry i is complete when it reaches (i + 1) * members. */
typedef struct arrival {
    alignas(TT_CACHE_LINE) _Atomic uint64_t count;
    uint64_t members;
} arrival;

typedef struct worker {
    tt_stream *stream;
    pthread_t thread;
    int id;
    int cpu; /* -1 = unbound */
} worker;

struct tt_stream {
    /* const after create */
    const char *name;
    int n_threads;
    int n_started; /* workers that exist; their ids end at n_threads */
    int n_groups;
    bool join_caller;
    worker *workers;    /* workers[n_threads]; [0] is unused with join_caller */
    arrival *groups;    /* groups[n_groups] */
    uint64_t self_next; /* join_caller: next entry of thread 0; owned by the one calling thread */
    void (*hook)(void *arg); /* after each run; the calling thread's */
    void *hook_arg;

    alignas(TT_CACHE_LINE) _Atomic uint64_t head; /* entries published; written by the enqueuer */
    _Atomic int n_sleeping;                       /* workers that sleep or are about to */
    _Atomic uint32_t wake;                        /* futex word: changes at each wake-up */
    _Atomic bool stop;
    alignas(
        TT_CACHE_LINE) _Atomic uint64_t completed; /* entries done; written by the last to arrive */
    arrival root;
    entry ring[TT_STREAM_DEPTH];
};

static void wake_sleepers(tt_stream *stream)
{
    if (atomic_load(&stream->n_sleeping) > 0) {
        atomic_fetch_add(&stream->wake, 1);
        syscall(SYS_futex, &stream->wake, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
    }
}

/* An event may be recorded on several streams in turn; done must not go back when an earlier one
 * ends late. */
static void event_raise(tt_event *event, uint64_t value)
{
    uint64_t done = atomic_load_explicit(&event->done, memory_order_relaxed);
    while (done < value &&
           !atomic_compare_exchange_weak_explicit(&event->done, &done, value, memory_order_acq_rel,
                                                  memory_order_relaxed)) {
    }
}

/* Counts one arrival; true for the last of entry i. The last one sees all that the others did. */
static bool arrive(arrival *a, uint64_t i)
{
    return atomic_fetch_add_explicit(&a->count, 1, memory_order_acq_rel) + 1 ==
           (i + 1) * a->members;
}

static bool is_last_to_arrive(tt_stream *stream, int thread_id, uint64_t i)
{
    if (stream->n_threads == 1) {
        return true;
    }
    if (stream->n_groups == 1) {
        return arrive(&stream->root, i);
    }
    return arrive(&stream->groups[thread_id / ARRIVAL_GROUP], i) && arrive(&stream->root, i);
}

/* Does one thread's part of entry i, which is published. */
static void do_entry(tt_stream *stream, int thread_id, uint64_t i)
{
    tt_spin spin = {0};
    while (atomic_load_explicit(&stream->completed, memory_order_acquire) < i) {
        tt_spin_once(&spin);
    }
    const entry *e = &stream->ring[i % TT_STREAM_DEPTH];
    tt_event *event = NULL;
    uint64_t value = e->event_value;
    if (e->kind == ENTRY_TASK) {
        if (tt_trace_is_enabled()) {
            tt_span span = tt_span_begin(TT_PHASE_NONE, e->name);
            e->fn(e->arg, thread_id, stream->n_threads);
            tt_span_end(&span, 0);
        } else {
            e->fn(e->arg, thread_id, stream->n_threads);
        }
    } else if (e->kind == ENTRY_RECORD) {
        event = e->event;
    } else {
        spin.n = 0;
        while (atomic_load_explicit(&e->event->done, memory_order_acquire) < value) {
            tt_spin_once(&spin);
        }
    }
    if (is_last_to_arrive(stream, thread_id, i)) {
        /* Once completed moves on, the ring entry and (for a record) the whole stream's user may
         * go on. */
        if (event) {
            event_raise(event, value);
        }
        atomic_store_explicit(&stream->completed, i + 1, memory_order_release);
    }
}

/* Waits until entry i is published; false when the stream ends instead. */
static bool wait_for_entry(tt_stream *stream, uint64_t i)
{
    tt_spin spin = {0};
    uint64_t since_ns = 0;
    for (uint32_t round = 1;; round++) {
        if (atomic_load_explicit(&stream->head, memory_order_acquire) > i) {
            return true;
        }
        if (atomic_load_explicit(&stream->stop, memory_order_acquire)) {
            return false;
        }
        tt_spin_once(&spin);
        if (round % IDLE_CLOCK_ROUNDS != 0) {
            continue;
        }
        uint64_t now_ns = tt_now_ns();
        if (since_ns == 0) {
            since_ns = now_ns;
        }
        if (now_ns - since_ns < IDLE_SLEEP_NS) {
            continue;
        }
        /* The word is read before head: a wake-up after the look at head changes it, and the
         * sleep is refused. */
        uint32_t seen = atomic_load(&stream->wake);
        atomic_fetch_add(&stream->n_sleeping, 1);
        if (atomic_load(&stream->head) <= i && !atomic_load(&stream->stop)) {
            syscall(SYS_futex, &stream->wake, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        }
        atomic_fetch_sub(&stream->n_sleeping, 1);
    }
}

static void bind_self(const char *name, int cpu)
{
    if (cpu < 0) {
        return;
    }
    size_t set_bytes = CPU_ALLOC_SIZE((size_t)cpu + 1);
    cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
    if (!set) {
        return;
    }
    CPU_ZERO_S(set_bytes, set);
    CPU_SET_S((size_t)cpu, set_bytes, set);
    int error = pthread_setaffinity_np(pthread_self(), set_bytes, set);
    CPU_FREE(set);
    if (error) {
        tt_log(TT_LOG_WARN, "%s: cannot bind a thread to cpu %d: %s", name, cpu, strerror(error));
    }
}

static void *worker_main(void *arg)
{
    const worker *self = arg;
    tt_stream *stream = self->stream;
    char name[THREAD_NAME_BYTES];
    snprintf(name, sizeof(name), "%.10s %d", stream->name, self->id);
    pthread_setname_np(pthread_self(), name);
    tt_trace_name_thread(name);
    /* A new thread inherits its creator's rounding and flush modes; the bits of results must not
     * depend on them. */
    fesetenv(FE_DFL_ENV);
    bind_self(stream->name, self->cpu);
    for (uint64_t i = 0; wait_for_entry(stream, i); i++) {
        do_entry(stream, self->id, i);
    }
    return NULL;
}

static void stop_workers(tt_stream *stream)
{
    atomic_store(&stream->stop, true);
    wake_sleepers(stream);
    int first = stream->join_caller ? 1 : 0;
    for (int t = first; t < first + stream->n_started; t++) {
        pthread_join(stream->workers[t].thread, NULL);
    }
}

static void free_stream(tt_stream *stream)
{
    free(stream->workers);
    free(stream->groups);
    free(stream);
}

static tt_status init_arrivals(tt_stream *stream)
{
    int n = stream->n_threads;
    stream->n_groups = (n + ARRIVAL_GROUP - 1) / ARRIVAL_GROUP;
    stream->groups = aligned_alloc(TT_CACHE_LINE, (size_t)stream->n_groups * sizeof(arrival));
    TT_CHECK(stream->groups, TT_ERR_NOMEM, "stream %s: out of memory", stream->name);
    for (int g = 0; g < stream->n_groups; g++) {
        int rest = n - g * ARRIVAL_GROUP;
        atomic_init(&stream->groups[g].count, 0);
        stream->groups[g].members = (uint64_t)(rest < ARRIVAL_GROUP ? rest : ARRIVAL_GROUP);
    }
    stream->root.members = (uint64_t)(stream->n_groups == 1 ? n : stream->n_groups);
    return TT_OK;
}

tt_status tt_stream_create(const tt_stream_params *params, tt_stream **stream_out)
{
    int n = params->n_threads == 0 ? 1 : params->n_threads;
    const char *name = params->name ? params->name : "stream";
    TT_CHECK(n >= 1 && n <= MAX_THREADS, TT_ERR_ARG, "stream %s: %d threads, must be 1 to %d", name,
             n, MAX_THREADS);
    tt_stream *stream = aligned_alloc(alignof(tt_stream), sizeof(*stream));
    TT_CHECK(stream, TT_ERR_NOMEM, "stream %s: out of memory", name);
    memset(stream, 0, sizeof(*stream));
    stream->name = name;
    stream->n_threads = n;
    stream->join_caller = params->join_caller;
    stream->workers = calloc((size_t)n, sizeof(*stream->workers));
    tt_status st = stream->workers ? init_arrivals(stream)
                                   : TT_FAIL(TT_ERR_NOMEM, "stream %s: out of memory", name);
    if (st != TT_OK) {
        goto err_free_stream;
    }
    for (int t = params->join_caller ? 1 : 0; t < n; t++) {
        worker *w = &stream->workers[t];
        *w = (worker){.stream = stream, .id = t, .cpu = params->cpu ? params->cpu[t] : -1};
        int error = pthread_create(&w->thread, NULL, worker_main, w);
        if (error) {
            st = TT_FAIL(TT_ERR_NOMEM, "stream %s: cannot start thread %d of %d: %s", name, t, n,
                         strerror(error));
            goto err_stop_workers;
        }
        stream->n_started++;
    }
    if (params->join_caller) {
        /* After the workers, which would otherwise inherit the mask of one CPU. */
        bind_self(name, params->cpu ? params->cpu[0] : -1);
        fesetenv(FE_DFL_ENV);
    }
    *stream_out = stream;
    return TT_OK;

err_stop_workers:
    stop_workers(stream);
err_free_stream:
    free_stream(stream);
    return st;
}

void tt_stream_destroy(tt_stream **stream)
{
    if (!*stream) {
        return;
    }
    tt_stream_sync(*stream);
    stop_workers(*stream);
    free_stream(*stream);
    *stream = NULL;
}

int tt_stream_n_threads(const tt_stream *stream)
{
    return stream->n_threads;
}

/* Publishes one entry. In a full ring a joined caller must work, since nobody else does thread
 * 0's part. */
static void push(tt_stream *stream, const entry *e)
{
    uint64_t head = atomic_load_explicit(&stream->head, memory_order_relaxed);
    tt_spin spin = {0};
    while (head - atomic_load_explicit(&stream->completed, memory_order_acquire) >=
           TT_STREAM_DEPTH) {
        if (stream->join_caller && stream->self_next < head) {
            do_entry(stream, 0, stream->self_next++);
        } else {
            tt_spin_once(&spin);
        }
    }
    stream->ring[head % TT_STREAM_DEPTH] = *e;
    if (stream->n_started == 0) {
        atomic_store_explicit(&stream->head, head + 1, memory_order_relaxed);
        return;
    }
    atomic_store(&stream->head, head + 1);
    wake_sleepers(stream);
}

static bool is_idle(tt_stream *stream)
{
    return atomic_load_explicit(&stream->completed, memory_order_acquire) ==
           atomic_load_explicit(&stream->head, memory_order_relaxed);
}

void tt_stream_enqueue(tt_stream *stream, const char *name, tt_task_fn *fn, void *arg)
{
    entry e = {.kind = ENTRY_TASK, .name = name, .fn = fn, .arg = arg};
    push(stream, &e);
}

void tt_stream_record(tt_stream *stream, tt_event *event)
{
    event->target++;
    if (is_idle(stream)) {
        event_raise(event, event->target);
        return;
    }
    entry e = {.kind = ENTRY_RECORD, .event = event, .event_value = event->target};
    push(stream, &e);
}

void tt_stream_wait(tt_stream *stream, tt_event *event)
{
    if (tt_event_query(event)) {
        return; /* what the event stands for happened before all that is enqueued from here on */
    }
    entry e = {.kind = ENTRY_WAIT, .event = event, .event_value = event->target};
    push(stream, &e);
}

void tt_stream_sync(tt_stream *stream)
{
    uint64_t head = atomic_load_explicit(&stream->head, memory_order_relaxed);
    if (stream->join_caller) {
        while (stream->self_next < head) {
            do_entry(stream, 0, stream->self_next++);
        }
    }
    tt_spin spin = {0};
    while (atomic_load_explicit(&stream->completed, memory_order_acquire) < head) {
        if (stream->join_caller) {
            tt_spin_once(&spin); /* the others end at about the same time */
        } else {
            tt_spin_sleepy_once(&spin);
        }
    }
}

void tt_stream_run(tt_stream *stream, const char *name, tt_task_fn *fn, void *arg)
{
    if (stream->join_caller && stream->n_threads == 1 &&
        stream->self_next == atomic_load_explicit(&stream->head, memory_order_relaxed) &&
        !tt_trace_is_enabled()) {
        fn(arg, 0, 1);
    } else {
        tt_stream_enqueue(stream, name, fn, arg);
        tt_stream_sync(stream);
    }
    if (stream->hook) {
        stream->hook(stream->hook_arg);
    }
}

void tt_stream_set_hook(tt_stream *stream, void (*hook)(void *arg), void *arg)
{
    stream->hook = hook;
    stream->hook_arg = arg;
}
