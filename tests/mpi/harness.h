/* harness.h - what the engine tests share: a world, a model on a layout, and requests run to their
 * end. Every failure ends the test on all ranks with the message of the rank that had it. */
#ifndef TUTTI_TESTS_HARNESS_H
#define TUTTI_TESTS_HARNESS_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/comm_mpi.h"
#include "tutti/cpu.h"
#include "tutti/tutti.h"

typedef struct harness {
    tt_world *world;
    int rank, size;
    tt_model *model;
    tt_layout *layout;
    tt_stream *compute;
    tt_engine *engine;
} harness;

#define MUST(call)                                                                                 \
    do {                                                                                           \
        tt_status must_status = (call);                                                            \
        if (must_status != TT_OK) {                                                                \
            fprintf(stderr, "%s:%d: %s: %s\n%s", __FILE__, __LINE__, #call, tt_status_message(),   \
                    tt_status_trace_text());                                                       \
            MPI_Abort(MPI_COMM_WORLD, 99);                                                         \
        }                                                                                          \
    } while (0)
#define EXPECT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: expected %s: ", __FILE__, __LINE__, #cond);                    \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            MPI_Abort(MPI_COMM_WORLD, 98);                                                         \
        }                                                                                          \
    } while (0)

/* `relative` under $top_srcdir; static storage of the last call. */
static inline const char *source_path(const char *relative)
{
    static char path[4096];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof(path), "%s/%s", top ? top : ".", relative);
    return path;
}

static inline void harness_begin(harness *h, const tt_world_params *params)
{
    int provided;
    memset(h, 0, sizeof(*h));
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    ttk_init(tt_cpu_flags());
    tt_world_params defaults = {0};
    defaults.deadline_s = 60.0;
    defaults.n_cores = 1;
    defaults.comm_cpu = -1;
    MUST(tt_world_create(MPI_COMM_WORLD, params ? params : &defaults, &h->world));
    h->rank = tt_world_rank(h->world);
    h->size = tt_world_size(h->world);
}

/* Loads `dir` on a layout; n_ranks and node_of_rank of params are filled in. */
static inline void harness_load(harness *h, const char *dir, tt_layout_params params, int n_threads)
{
    int node_of_rank[256];
    MUST(tt_model_open(source_path(dir), &h->model));
    for (int r = 0; r < h->size; r++) {
        node_of_rank[r] = tt_world_node(h->world, r);
    }
    params.n_ranks = h->size;
    params.node_of_rank = node_of_rank;
    MUST(tt_layout_create(tt_model_arch(h->model), &params, &h->layout));
    tt_stream_params stream = {"compute", n_threads, true, NULL};
    MUST(tt_stream_create(&stream, &h->compute));
    tt_engine_params engine = {0};
    engine.model = h->model;
    engine.layout = h->layout;
    engine.world = h->world;
    engine.compute = h->compute;
    engine.node = TT_MEMORY_ANY_NODE;
    MUST(tt_engine_create(&engine, &h->engine));
}

static inline void harness_unload(harness *h)
{
    tt_engine_destroy(&h->engine);
    tt_stream_destroy(&h->compute);
    tt_layout_destroy(&h->layout);
    tt_model_close(&h->model);
}

static inline void harness_end(harness *h)
{
    tt_world_destroy(&h->world);
    MPI_Finalize();
}

/* Rank 0 steps until nothing is left, then the others are let go. */
static inline void harness_run(harness *h, tt_output_fn *output, void *arg)
{
    if (h->rank == 0) {
        for (bool busy = true; busy;) {
            MUST(tt_engine_step(h->engine, output, arg, &busy));
        }
        MUST(tt_engine_stop(h->engine));
    } else {
        MUST(tt_engine_follow(h->engine));
    }
}

#endif
