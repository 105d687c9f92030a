/* read_bandwidth.c - how fast this machine reads memory: the threads of a stream sum a buffer
 * far larger than the caches. Each thread writes its part first, so that the pages exist and lie
 * near it. */
#include "tutti/topology.h"
#include <stdlib.h>
#include <string.h>
#include "topology_internal.h"
#include "tutti/memory.h"
#include "tutti/stream.h"
#include "tutti/trace.h"

enum {
    CACHE_MULTIPLE = 4,        /* of all last-level caches: at most a quarter can stay cached */
    MEMORY_FRACTION = 4,       /* at most a quarter of what is available */
    DEFAULT_BYTES = 256 << 20, /* where caches are unknown */
    MIN_BYTES = 1 << 20,       /* less cannot be timed */
    BLOCK_WORDS = 16,          /* two cache lines: the unit in which the buffer is split and read */
    MAX_REPEATS = 1000
};

/* One thread's times of one pass, on its own cache line; and its sum, which keeps the compiler
 * from dropping the pass. */
typedef struct pass {
    uint64_t begin_ns, end_ns;
    volatile uint64_t sum;
    char pad[TT_CACHE_LINE - 3 * sizeof(uint64_t)];
} pass;

typedef struct measurement {
    uint64_t *words; /* words[n_blocks][BLOCK_WORDS] */
    int64_t n_blocks;
    pass *passes; /* passes[n_threads] */
} measurement;

/* Sums n words; n is a multiple of BLOCK_WORDS. The sums have names because compilers keep an
 * array of them in memory. */
static uint64_t sum_words(const uint64_t *words, int64_t n)
{
    uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    for (const uint64_t *w = words; w < words + n; w += BLOCK_WORDS) {
        a += w[0] + w[8];
        b += w[1] + w[9];
        c += w[2] + w[10];
        d += w[3] + w[11];
        e += w[4] + w[12];
        f += w[5] + w[13];
        g += w[6] + w[14];
        h += w[7] + w[15];
    }
    return a + b + c + d + e + f + g + h;
}

static void touch_part(void *arg, int thread_id, int n_threads)
{
    const measurement *m = arg;
    int64_t begin, end;
    tt_split(m->n_blocks, n_threads, thread_id, &begin, &end);
    memset(m->words + begin * BLOCK_WORDS, 1,
           (size_t)(end - begin) * BLOCK_WORDS * sizeof(*m->words));
}

static void read_part(void *arg, int thread_id, int n_threads)
{
    const measurement *m = arg;
    int64_t begin, end;
    tt_split(m->n_blocks, n_threads, thread_id, &begin, &end);
    pass *p = &m->passes[thread_id];
    p->begin_ns = tt_now_ns();
    p->sum = sum_words(m->words + begin * BLOCK_WORDS, (end - begin) * BLOCK_WORDS);
    p->end_ns = tt_now_ns();
}

/* From the first thread's start to the last one's end. */
static uint64_t pass_ns(const pass *passes, int n_threads)
{
    uint64_t begin = UINT64_MAX, end = 0;
    for (int t = 0; t < n_threads; t++) {
        begin = passes[t].begin_ns < begin ? passes[t].begin_ns : begin;
        end = passes[t].end_ns > end ? passes[t].end_ns : end;
    }
    return end > begin ? end - begin : 1;
}

static size_t buffer_bytes(const tt_topology *topology)
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

tt_status tt_topology_measure_read(const tt_topology *topology, int n_threads, int repeats,
                                   double *bytes_per_s_out)
{
    TT_CHECK(n_threads >= 1 && n_threads <= TT_TOPOLOGY_MAX_THREADS, TT_ERR_ARG,
             "read bandwidth: %d threads, must be 1 to %d", n_threads,
             (int)TT_TOPOLOGY_MAX_THREADS);
    TT_CHECK(repeats >= 1 && repeats <= MAX_REPEATS, TT_ERR_ARG,
             "read bandwidth: %d repeats, must be 1 to %d", repeats, (int)MAX_REPEATS);
    size_t bytes = buffer_bytes(topology);
    size_t block_bytes = BLOCK_WORDS * sizeof(uint64_t);
    measurement m = {.n_blocks = (int64_t)(bytes / block_bytes)};
    tt_stream *stream = NULL;
    tt_stream_params params = {.name = "measure", .n_threads = n_threads};
    void *data = NULL;
    tt_status st = tt_memory_alloc("read bandwidth", bytes, TT_MEMORY_ANY_NODE, &data);
    if (st != TT_OK) {
        return st;
    }
    m.words = data;
    m.passes = calloc((size_t)n_threads, sizeof(*m.passes));
    st = m.passes ? tt_stream_create(&params, &stream)
                  : TT_FAIL(TT_ERR_NOMEM, "read bandwidth: out of memory");
    if (st != TT_OK) {
        goto out_free;
    }
    tt_stream_run(stream, "touch", touch_part, &m);
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < repeats; i++) {
        tt_stream_run(stream, "read", read_part, &m);
        uint64_t ns = pass_ns(m.passes, n_threads);
        best_ns = ns < best_ns ? ns : best_ns;
    }
    *bytes_per_s_out = (double)((size_t)m.n_blocks * block_bytes) / ((double)best_ns * 1e-9);
    tt_stream_destroy(&stream);
out_free:
    free(m.passes);
    tt_memory_free(data, bytes);
    return st;
}
