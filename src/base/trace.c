/* trace.c - phase totals, and a timeline of spans.
 *
 * Totals are relaxed atomic adds. The timeline has one ring per thread, all in one mapping made
 * by tt_trace_enable and touched only by threads that have spans. A thread takes the next free
 * ring at its first span. Only the owner writes a ring; its fields are relaxed atomics and
 * `n_spans` is released after each, so that tt_trace_write can read a live ring: what may have
 * been overwritten meanwhile is dropped. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "tutti/trace.h"
#include <inttypes.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    MAX_RINGS = 1088,       /* threads: the most of one stream (1024) and some */
    MIN_RINGS = 16,         /* what is settled for when address space is scarce */
    MAX_SPANS = 1 << 24,    /* per thread: 640 MiB of spans, hours of decoding */
    THREAD_NAME_BYTES = 32, /* longer names are cut */
    NS_PER_S = 1000000000,
    NS_PER_US = 1000
};

typedef struct span_record {
    _Atomic(const char *) name;
    _Atomic uint64_t begin_ns;
    _Atomic uint64_t end_ns;
    _Atomic uint64_t bytes;
    _Atomic int phase;
} span_record;

typedef struct span_ring {
    alignas(TT_CACHE_LINE) _Atomic uint64_t
        n_spans;                  /* ever written; the next goes to n_spans mod capacity */
    span_record *spans;           /* spans[capacity]; set before `is_used` */
    char name[THREAD_NAME_BYTES]; /* set before `is_used` */
    _Atomic bool is_used;
} span_ring;

static struct {
    _Atomic uint64_t calls, ns, bytes;
} totals[TT_PHASE_COUNT];

/* All const after `enabled` was set. */
static _Atomic bool enabled;
static uint32_t capacity; /* spans of a ring: one more than asked for, the one being overwritten */
static int n_rings;
static span_record *pool; /* pool[n_rings][capacity] */

static span_ring rings[MAX_RINGS];
static _Atomic int n_rings_taken; /* may exceed n_rings: the rest found none */

static _Thread_local span_ring *my_ring;
static _Thread_local bool my_ring_is_missing;
static _Thread_local char my_name[THREAD_NAME_BYTES];

static const char *const phase_names[TT_PHASE_COUNT] = {
    [TT_PHASE_NONE] = "none",
    [TT_PHASE_HEADER] = "header",
    [TT_PHASE_EMBED] = "embed",
    [TT_PHASE_ATTENTION] = "attention",
    [TT_PHASE_DENSE] = "dense",
    [TT_PHASE_ROUTE] = "route",
    [TT_PHASE_DISPATCH] = "dispatch",
    [TT_PHASE_SHARED] = "shared",
    [TT_PHASE_EXPERTS] = "experts",
    [TT_PHASE_COMBINE] = "combine",
    [TT_PHASE_GATHER] = "gather",
    [TT_PHASE_HEAD] = "head",
    [TT_PHASE_SAMPLE] = "sample",
    [TT_PHASE_WAIT_DISPATCH] = "wait-dispatch",
    [TT_PHASE_WAIT_COMBINE] = "wait-combine",
    [TT_PHASE_MIGRATE] = "migrate",
    [TT_PHASE_STEP] = "step",
};

const char *tt_phase_name(tt_phase phase)
{
    return (int)phase >= 0 && phase < TT_PHASE_COUNT ? phase_names[phase] : "unknown";
}

uint64_t tt_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* This thread's ring, taken on the first call; NULL if all are taken. */
static span_ring *own_ring(void)
{
    if (my_ring || my_ring_is_missing) {
        return my_ring;
    }
    int id = atomic_fetch_add(&n_rings_taken, 1);
    if (id >= n_rings) {
        my_ring_is_missing = true;
        return NULL;
    }
    span_ring *ring = &rings[id];
    ring->spans = pool + (size_t)id * capacity;
    memcpy(ring->name, my_name, sizeof(ring->name));
    atomic_store_explicit(&ring->is_used, true, memory_order_release);
    my_ring = ring;
    return ring;
}

tt_span tt_span_begin(tt_phase phase, const char *name)
{
    return (tt_span){.phase = phase, .name = name, .begin_ns = tt_now_ns()};
}

void tt_span_end(tt_span *span, uint64_t bytes)
{
    uint64_t end_ns = tt_now_ns();
    if (span->phase != TT_PHASE_NONE) {
        memory_order relaxed = memory_order_relaxed;
        atomic_fetch_add_explicit(&totals[span->phase].calls, 1, relaxed);
        atomic_fetch_add_explicit(&totals[span->phase].ns, end_ns - span->begin_ns, relaxed);
        if (bytes > 0) {
            atomic_fetch_add_explicit(&totals[span->phase].bytes, bytes, relaxed);
        }
    }
    if (!tt_trace_is_enabled()) {
        return;
    }
    span_ring *ring = own_ring();
    if (!ring) {
        return;
    }
    uint64_t n = atomic_load_explicit(&ring->n_spans, memory_order_relaxed);
    span_record *s = &ring->spans[n % capacity];
    /* Release: a reader that sees one of these values also sees that n_spans had come this far,
     * and drops the span. */
    atomic_store_explicit(&s->name, span->name, memory_order_release);
    atomic_store_explicit(&s->begin_ns, span->begin_ns, memory_order_release);
    atomic_store_explicit(&s->end_ns, end_ns, memory_order_release);
    atomic_store_explicit(&s->bytes, bytes, memory_order_release);
    atomic_store_explicit(&s->phase, (int)span->phase, memory_order_release);
    atomic_store_explicit(&ring->n_spans, n + 1, memory_order_release);
}

void tt_phase_get(tt_phase phase, tt_phase_total *total_out)
{
    total_out->calls = atomic_load_explicit(&totals[phase].calls, memory_order_relaxed);
    total_out->ns = atomic_load_explicit(&totals[phase].ns, memory_order_relaxed);
    total_out->bytes = atomic_load_explicit(&totals[phase].bytes, memory_order_relaxed);
}

void tt_phase_reset(void)
{
    for (int p = 0; p < TT_PHASE_COUNT; p++) {
        atomic_store_explicit(&totals[p].calls, 0, memory_order_relaxed);
        atomic_store_explicit(&totals[p].ns, 0, memory_order_relaxed);
        atomic_store_explicit(&totals[p].bytes, 0, memory_order_relaxed);
    }
}

tt_status tt_trace_enable(uint32_t spans_per_thread)
{
    TT_CHECK(spans_per_thread >= 1 && spans_per_thread <= MAX_SPANS, TT_ERR_ARG,
             "trace: %u spans per thread, must be 1 to %d", spans_per_thread, (int)MAX_SPANS);
    TT_CHECK(!tt_trace_is_enabled(), TT_ERR_STATE, "the trace is already on");
    /* Address space for all threads there could be; pages exist once touched. Where address
     * space is limited, fewer. */
    uint32_t room = spans_per_thread + 1;
    void *data = MAP_FAILED;
    int n = MAX_RINGS;
    for (; n >= MIN_RINGS && data == MAP_FAILED; n /= 2) {
        data = mmap(NULL, (size_t)n * room * sizeof(span_record), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        n_rings = n;
    }
    TT_CHECK(data != MAP_FAILED, TT_ERR_NOMEM, "trace: cannot map %u spans for each of %d threads",
             spans_per_thread, (int)MIN_RINGS);
    pool = data;
    capacity = room;
    atomic_store_explicit(&enabled, true, memory_order_release);
    return TT_OK;
}

bool tt_trace_is_enabled(void)
{
    return atomic_load_explicit(&enabled, memory_order_acquire);
}

void tt_trace_name_thread(const char *name)
{
    size_t length = strnlen(name, THREAD_NAME_BYTES - 1);
    memset(my_name, 0, sizeof(my_name));
    memcpy(my_name, name, length);
    if (my_ring) {
        memcpy(my_ring->name, my_name, sizeof(my_name));
    }
}

/* A JSON string with its quotes. Bytes above 127 pass as they are: names are UTF-8. */
static void write_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *c = text ? text : ""; *c; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(out, "\\%c", *c);
        } else if ((unsigned char)*c < 0x20) {
            fprintf(out, "\\u%04x", (unsigned)*c);
        } else {
            fputc(*c, out);
        }
    }
    fputc('"', out);
}

static void write_name_event(FILE *out, const char *kind, int rank, int thread, const char *name)
{
    fprintf(out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", kind,
            rank, thread);
    write_string(out, name);
    fprintf(out, "}},\n");
}

/* Microseconds with three places, without the decimal comma of some locales. */
static void write_us(FILE *out, int64_t ns)
{
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    fprintf(out, "%s%" PRIu64 ".%03" PRIu64, ns < 0 ? "-" : "", size / NS_PER_US, size % NS_PER_US);
}

static void write_ring(FILE *out, int rank, int thread, span_ring *ring, uint64_t origin_ns)
{
    uint64_t end = atomic_load_explicit(&ring->n_spans, memory_order_acquire);
    uint64_t kept = capacity - 1;
    uint64_t begin = end > kept ? end - kept : 0;
    for (uint64_t i = begin; i < end; i++) {
        span_record *s = &ring->spans[i % capacity];
        const char *name = atomic_load_explicit(&s->name, memory_order_acquire);
        uint64_t begin_ns = atomic_load_explicit(&s->begin_ns, memory_order_acquire);
        uint64_t end_ns = atomic_load_explicit(&s->end_ns, memory_order_acquire);
        uint64_t bytes = atomic_load_explicit(&s->bytes, memory_order_acquire);
        int phase = atomic_load_explicit(&s->phase, memory_order_acquire);
        /* The owner overwrites span i while n_spans is i + capacity. */
        if (atomic_load_explicit(&ring->n_spans, memory_order_acquire) >= i + capacity) {
            continue;
        }
        fprintf(out, "{\"ph\":\"X\",\"name\":");
        write_string(out, name);
        fprintf(out,
                ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", tt_phase_name((tt_phase)phase),
                rank, thread);
        write_us(out, (int64_t)(begin_ns - origin_ns));
        fprintf(out, ",\"dur\":");
        write_us(out, (int64_t)(end_ns - begin_ns));
        fprintf(out, ",\"args\":{\"bytes\":%" PRIu64 "}},\n", bytes);
    }
}

tt_status tt_trace_write(FILE *out, int rank, const char *host, uint64_t origin_ns)
{
    char process[256];
    snprintf(process, sizeof(process), "rank %d on %s", rank, host ? host : "?");
    write_name_event(out, "process_name", rank, 0, process);
    int taken = atomic_load(&n_rings_taken);
    for (int t = 0; t < taken && t < n_rings; t++) {
        if (!atomic_load_explicit(&rings[t].is_used, memory_order_acquire)) {
            continue;
        }
        if (rings[t].name[0]) {
            write_name_event(out, "thread_name", rank, t, rings[t].name);
        }
        write_ring(out, rank, t, &rings[t], origin_ns);
    }
    TT_CHECK(!ferror(out), TT_ERR_IO, "trace: cannot write");
    return TT_OK;
}
