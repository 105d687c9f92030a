/* bench_rank.c - start and end of a benchmark's ranks. Cores are given as the tutti program gives
 * them: ranks of one node that share an affinity mask divide it, a rank that the launcher bound
 * keeps what it has. */
#include "bench_rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/cpu.h"
#include "ttk.h"

void bench_must(tt_status status)
{
    if (status != TT_OK) {
        fprintf(stderr, "benchmark: %s\n%s", tt_status_message(), tt_status_trace_text());
        MPI_Abort(MPI_COMM_WORLD, tt_status_exit_code(status));
        exit(tt_status_exit_code(status)); /* MPI_Abort is not required to end us */
    }
}

void *bench_alloc(size_t n, size_t bytes)
{
    void *data = calloc(n ? n : 1, bytes ? bytes : 1);
    bench_must(data ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %zu x %zu bytes", n, bytes));
    return data;
}

static void place_threads(bench_rank *b, int n_threads)
{
    MPI_Comm node = MPI_COMM_NULL;
    int n = 0, me = 0, before = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, b->rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &n);
    MPI_Comm_rank(node, &me);
    uint64_t mine = tt_topology_mask_hash(b->topology);
    uint64_t *all = calloc((size_t)n, sizeof(*all));
    bench_must(all ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", n));
    MPI_Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, node);
    for (int r = 0; r < n; r++) {
        if (all[r] == mine) {
            b->n_sharing++;
            before += r < me;
        }
    }
    free(all);
    MPI_Comm_free(&node);
    bool own_mask = b->n_sharing == 1 && n > 1;
    bench_must(tt_topology_place(b->topology, before, b->n_sharing, own_mask, n_threads, &b->cpus));
}

void bench_rank_begin(bench_rank *b, int n_lanes, int n_threads, tt_progress progress,
                      double deadline_s)
{
    *b = (bench_rank){.n_lanes = n_lanes, .progress = progress, .deadline_s = deadline_s};
    /* Two lanes may each have a communication thread, and those do not know of each other. */
    int wanted = n_lanes > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED,
        provided = MPI_THREAD_SINGLE;
    const bool is_whole = tt_launch_is_whole(); /* to be asked before */
    MPI_Init_thread(NULL, NULL, wanted, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b->size);
    bench_must(is_whole && b->size == 1 ? TT_OK : tt_launch_check(b->size));
    ttk_init(tt_cpu_flags());
    bench_must(tt_topology_create(NULL, &b->topology));
    place_threads(b, n_threads);
    if (provided < wanted && progress == TT_PROGRESS_AUTO) {
        b->progress = provided < MPI_THREAD_SERIALIZED ? TT_PROGRESS_CALLER : TT_PROGRESS_POLLED;
    }
    bool is_refused =
        provided < wanted && (progress == TT_PROGRESS_THREAD || provided < MPI_THREAD_SERIALIZED);
    bench_must(is_refused && progress != TT_PROGRESS_AUTO && progress != TT_PROGRESS_CALLER
                   ? TT_FAIL(TT_ERR_USAGE,
                             "this MPI does not let that many threads call it: --progress caller")
                   : TT_OK);
}

void bench_rank_end(bench_rank *b)
{
    tt_stream_destroy(&b->compute);
    tt_layout_destroy(&b->layout);
    tt_model_close(&b->model);
    tt_topology_destroy(&b->topology);
    MPI_Finalize();
}

/* The caller frees. */
static int *nodes_of_ranks(const bench_rank *b, const tt_world *world)
{
    int *node = calloc((size_t)b->size, sizeof(*node));
    bench_must(node ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", b->size));
    for (int r = 0; r < b->size; r++) {
        node[r] = tt_world_node(world, r);
    }
    return node;
}

/* Each lane holds the weights once more. */
static void check_fit(const bench_rank *b, tt_world *world)
{
    uint64_t mine =
        tt_topology_get_info(b->topology)->memory_available_bytes / (uint64_t)b->n_lanes;
    uint64_t *of_rank = calloc((size_t)b->size, sizeof(*of_rank));
    uint64_t *of_node = calloc((size_t)tt_world_n_nodes(world), sizeof(*of_node));
    bench_must(of_rank && of_node ? TT_OK
                                  : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", b->size));
    bench_must(tt_world_allgather(world, &mine, sizeof(mine), of_rank));
    for (int r = 0; r < b->size; r++) {
        uint64_t *node = &of_node[tt_world_node(world, r)];
        *node = *node == 0 || of_rank[r] < *node ? of_rank[r] : *node;
    }
    bench_must(tt_plan_check_fit(b->model, b->layout, of_node));
    free(of_rank);
    free(of_node);
}

void bench_model_open(const char *name, tt_weight_format weights, tt_model **model_out)
{
    static const char prefix[] = "made:";
    char shape[64] = "";
    long long layers = 0;
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0) {
        bench_must(tt_model_open(name, model_out));
        return;
    }
    const char *const text = name + sizeof(prefix) - 1, *const colon = strchr(text, ':');
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    char *end = NULL;
    if (colon) {
        layers = strtoll(colon + 1, &end, 10);
    }
    const bool is_bad = n == 0 || n >= sizeof(shape) ||
                        (colon && (end == colon + 1 || *end || layers < 1 || layers > 1000));
    bench_must(is_bad ? TT_FAIL(TT_ERR_USAGE, "'%s' is not made:SHAPE:LAYERS", name) : TT_OK);
    memcpy(shape, text, n);
    bench_must(tt_model_make(
        &(tt_made_params){.shape = shape, .layers = layers, .weights = weights}, model_out));
}

void bench_rank_load(bench_rank *b, const char *path, tt_layout_params params, tt_world *world)
{
    bench_model_open(path, params.weights, &b->model);
    if (b->default_act) {
        params.act = tt_load_default_act(b->model, params.weights);
    }
    int *node_of_rank = nodes_of_ranks(b, world);
    params.n_ranks = b->size;
    params.node_of_rank = node_of_rank;
    bench_must(tt_layout_create(tt_model_arch(b->model), &params, &b->layout));
    free(node_of_rank);
    check_fit(b, world);
    /* A communication thread of its own wants a core of its own. */
    int n_threads = b->cpus.n_threads;
    if (tt_world_progress_mode(world) == TT_PROGRESS_THREAD && n_threads > 1) {
        n_threads--;
    }
    tt_stream_params stream = {
        .name = "compute", .n_threads = n_threads, .join_caller = true, .cpu = b->cpus.cpu};
    bench_must(tt_stream_create(&stream, &b->compute));
}

void bench_lane_open(bench_lane *lane, const bench_rank *b, int64_t delay_ns)
{
    *lane = (bench_lane){.delay_ns = delay_ns};
    tt_world_params params = {.progress = b->progress,
                              .deadline_s = b->deadline_s,
                              .n_cores = b->cpus.n_threads,
                              .comm_cpu = -1,
                              .delay_ns = delay_ns};
    bench_must(tt_world_create(MPI_COMM_WORLD, &params, &lane->world));
}

void bench_lane_load(bench_lane *lane, bench_rank *b, int64_t overlap_rows)
{
    lane->layout = *b->layout;
    lane->layout.overlap_rows = overlap_rows;
    tt_engine_params params = {.model = b->model,
                               .layout = &lane->layout,
                               .world = lane->world,
                               .compute = b->compute,
                               .node = b->cpus.node};
    bench_must(tt_engine_create(&params, &lane->engine));
}

void bench_lane_close(bench_lane *lane)
{
    tt_engine_destroy(&lane->engine);
    tt_world_destroy(&lane->world);
}
