/* limits.c - how fast the threads of a stream move bytes and calculate. Passes over a buffer far
 * larger than the caches; loops in registers (ttk_peak.h). A pass lasts from its first thread's
 * start to the last one's end. */
#include "tutti/limits.h"
#include <stdlib.h>
#include <string.h>
#include "topology_internal.h"
#include "tutti/cpu.h"
#include "tutti/memory.h"
#include "tutti/trace.h"
#include "ttk_peak.h"

enum {
    CACHE_MULTIPLE = 4,        /* of all last-level caches: at most a quarter can stay cached */
    MEMORY_FRACTION = 4,       /* at most a quarter of what is available */
    DEFAULT_BYTES = 256 << 20, /* where caches are unknown */
    MIN_BYTES = 1 << 20,       /* less cannot be timed */
    BLOCK_FLOATS = 64,         /* the unit in which the buffer is split and read */
    TRIAD_ARRAYS = 3,
    PEAK_ROUNDS = 4, /* of arithmetic in a pass: a millisecond or so */
    MAX_REPEATS = 1000
};

typedef enum pass_way {
    WAY_TOUCH,
    WAY_SUM,
    WAY_TRIAD,
    WAY_FMA,
    WAY_INT8,
    WAY_BF16,
    WAY_COUNT
} pass_way;

/* One thread's part of one pass, on its own cache line. */
typedef struct pass {
    uint64_t begin_ns, end_ns;
    double amount;       /* bytes or operations */
    volatile float sink; /* keeps the compiler from dropping the pass */
    char pad[TT_CACHE_LINE - 2 * sizeof(uint64_t) - sizeof(double) - sizeof(float)];
} pass;

typedef struct measurement {
    pass_way way;
    unsigned cpu_flags;
    float *data; /* data[n_blocks][BLOCK_FLOATS] */
    int64_t n_blocks;
    pass *passes; /* passes[n_threads] */
} measurement;

/* This thread's elements of three equal parts of its part of the buffer. */
static double run_triad(const measurement *m, float *x, size_t n)
{
    size_t third = n / TRIAD_ARRAYS;
    ttk_peak_triad(m->cpu_flags, x, x + third, x + 2 * third, third);
    return (double)(TRIAD_ARRAYS * third * sizeof(float));
}

static void run_part(void *arg, int thread_id, int n_threads)
{
    const measurement *m = arg;
    int64_t begin, end;
    tt_split(m->n_blocks, n_threads, thread_id, &begin, &end);
    float *x = m->data + begin * BLOCK_FLOATS;
    size_t n = (size_t)(end - begin) * BLOCK_FLOATS;
    pass *p = &m->passes[thread_id];
    p->amount = (double)(n * sizeof(float));
    p->begin_ns = tt_now_ns();
    switch (m->way) {
    case WAY_SUM:
        p->sink = ttk_peak_read(m->cpu_flags, x, n);
        break;
    case WAY_TRIAD:
        p->amount = run_triad(m, x, n);
        break;
    case WAY_FMA:
    case WAY_INT8:
    case WAY_BF16:
        p->amount = 0;
        for (int i = 0; i < PEAK_ROUNDS; i++) {
            p->amount += m->way == WAY_FMA    ? ttk_peak_fma(m->cpu_flags)
                         : m->way == WAY_INT8 ? ttk_peak_int8(m->cpu_flags)
                                              : ttk_peak_bf16(m->cpu_flags);
        }
        break;
    default:
        memset(x, 0, n * sizeof(float));
        break;
    }
    p->end_ns = tt_now_ns();
}

/* Amount per second of one pass, from the first thread's start to the last one's end. */
static double run_pass(tt_stream *stream, measurement *m, pass_way kind)
{
    uint64_t begin = UINT64_MAX, end = 0;
    double amount = 0;
    m->way = kind;
    tt_stream_run(stream, "measure", run_part, m);
    for (int t = 0; t < tt_stream_n_threads(stream); t++) {
        begin = m->passes[t].begin_ns < begin ? m->passes[t].begin_ns : begin;
        end = m->passes[t].end_ns > end ? m->passes[t].end_ns : end;
        amount += m->passes[t].amount;
    }
    return amount / ((double)(end > begin ? end - begin : 1) * 1e-9);
}

size_t tt_limits_buffer_bytes(const tt_topology *topology)
{
    size_t bytes = topology->llc_total_bytes * CACHE_MULTIPLE;
    if (bytes == 0) {
        bytes = DEFAULT_BYTES;
    }
    uint64_t most = topology->info.memory_available_bytes / MEMORY_FRACTION;
    if (bytes > most) {
        bytes = (size_t)most;
    }
    return bytes > MIN_BYTES ? bytes : MIN_BYTES;
}

tt_status tt_limits_measure(tt_stream *stream, size_t bytes, int node, int repeats,
                            tt_limits *limits_out)
{
    int n_threads = tt_stream_n_threads(stream);
    TT_CHECK(repeats >= 1 && repeats <= MAX_REPEATS, TT_ERR_ARG,
             "limits of the machine: %d repeats, must be 1 to %d", repeats, (int)MAX_REPEATS);
    TT_CHECK(bytes >= MIN_BYTES, TT_ERR_ARG,
             "limits of the machine: a buffer of %zu bytes is too small", bytes);
    measurement m = {.cpu_flags = tt_cpu_flags(),
                     .n_blocks = (int64_t)(bytes / (BLOCK_FLOATS * sizeof(float)))};
    void *data = NULL;
    TT_TRY(tt_memory_alloc("limits of the machine", bytes, node, &data));
    m.data = data;
    m.passes = calloc((size_t)n_threads, sizeof(*m.passes));
    if (!m.passes) {
        tt_memory_free(data, bytes);
        return TT_FAIL(TT_ERR_NOMEM, "limits of the machine: no memory for %d threads", n_threads);
    }
    double best[WAY_COUNT] = {0};
    run_pass(stream, &m, WAY_TOUCH);
    for (int i = 0; i < repeats; i++) {
        for (pass_way w = WAY_SUM; w < WAY_COUNT; w++) {
            double rate = run_pass(stream, &m, w);
            best[w] = rate > best[w] ? rate : best[w];
        }
    }
    *limits_out = (tt_limits){bytes,         best[WAY_SUM],  best[WAY_TRIAD],
                              best[WAY_FMA], best[WAY_INT8], best[WAY_BF16]};
    free(m.passes);
    tt_memory_free(data, bytes);
    return TT_OK;
}
