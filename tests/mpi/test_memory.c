/* test_memory.c - the plan's bytes against those that a loaded engine holds, on one, two and three
 * pretended nodes, for each kind of attention, feed-forward network, wire and combine. */
/* TEST ranks: 1 2 3 4 */
/* TEST timeout: 300 */
#include "harness.h"
#include "tutti/exchange.h"
#include "tutti/memory.h"

enum { MOST_RANKS = 4 };

typedef struct held {
    uint64_t buffers, windows;
} held;

static held held_now(const harness *h)
{
    return (held){tt_memory_used_bytes(), tt_world_window_bytes(h->world)};
}

/* What the exchange of this layout holds on this rank, exactly: by its own measure, of what the feed
 * forward room asks it for. */
static uint64_t exchange_bytes(const harness *h, const int *node)
{
    const tt_layout *l = h->layout;
    const tt_arch *arch = tt_model_arch(h->model);
    int source[MOST_RANKS], owner[MOST_RANKS], n_sources = 0, n_owners = 0;
    int64_t columns[MOST_RANKS + 1] = {0};
    for (int r = 0; r < h->size; r++) {
        if (l->role[r].dp_id >= 0) {
            source[n_sources++] = r;
        }
        if (l->role[r].group_id >= 0) {
            owner[n_owners++] = r;
        }
    }
    if (n_owners == 0) {
        return 0;
    }
    for (int w = 0; w < l->etp; w++) {
        tt_layout_columns(arch->H, l->etp, w, &columns[w], &columns[w + 1]);
    }
    const tt_exchange_params params = {.H = arch->H,
                                       .K = arch->K,
                                       .max_tokens = l->max_rows_rank,
                                       .n_handles = l->n_handles,
                                       .chunk_tokens = l->exchange_chunk,
                                       .wire = l->wire,
                                       .wire_back = l->wire_back,
                                       .route = l->route,
                                       .combine = l->combine,
                                       .source = source,
                                       .n_sources = n_sources,
                                       .owner = owner,
                                       .n_owners = n_owners,
                                       .width = l->etp,
                                       .back_columns = columns,
                                       .weights_travel = arch->router.weight_on_input};
    return tt_exchange_memory_bytes(&params, node, h->size, h->rank);
}

/* The exchange is planned from above and by far, so it is compared alone: what is left out elsewhere
 * must not find room in it. Work space is that of TT_PLAN_THREADS threads, which the engine has
 * here. It may be short of what is held by what rounding to lines and pages takes: a process's
 * guessed bytes cover that. */
static void compare(const harness *h, const int *node, const char *what, const held *before)
{
    enum { ROUNDED = 12 << 10, ROUNDED_PART = 256, MOST_ABOVE = 512 << 10 };
    enum { EXCHANGE_TIMES = 3, EXCHANGE_ABOVE = 4 << 20 };
    tt_rank_memory plan;
    MUST(tt_plan_memory(h->model, h->layout, h->rank, &plan));
    const held now = held_now(h);
    const double kept = (double)(plan.dense_bytes + plan.expert_bytes + plan.kv_bytes);
    const double exchange = (double)exchange_bytes(h, node);
    const double work = (double)(now.buffers - before->buffers) +
                        (double)(now.windows - before->windows) - kept - exchange;
    const double planned = (double)plan.work_bytes - (double)TT_PLAN_PROCESS_BYTES;
    const double below = ROUNDED + work / ROUNDED_PART;
    EXPECT(work <= planned + below, "rank %d, %s: %.0f bytes of work space are held, %.0f planned",
           h->rank, what, work, planned);
    EXPECT(planned <= work + MOST_ABOVE,
           "rank %d, %s: %.0f bytes of work space are planned, only %.0f held", h->rank, what,
           planned, work);
    EXPECT(exchange <= (double)plan.exchange_bytes &&
               (double)plan.exchange_bytes <= EXCHANGE_TIMES * exchange + EXCHANGE_ABOVE,
           "rank %d, %s: %.0f bytes of the exchange are held, %.0f planned", h->rank, what,
           exchange, (double)plan.exchange_bytes);
}

/* One layout of a model; those that this number of ranks cannot have are left out. */
static void hold(harness *h, const int *node, const char *dir, tt_layout_params params)
{
    char what[256];
    tt_layout *layout;
    params.max_batch = 3;
    params.prefill_chunk = 200; /* large enough that rounding to lines and pages is small */
    params.context = 64;
    snprintf(what, sizeof(what), "%s tp %d etp %d split %s combine %d chunk %d wire %d", dir,
             params.tp, params.etp, params.split ? params.split : "none", (int)params.combine,
             (int)params.exchange_chunk, (int)params.wire);
    tt_model *model;
    MUST(tt_model_open(source_path(dir), &model));
    params.n_ranks = h->size;
    params.node_of_rank = node;
    const tt_status st = tt_layout_create(tt_model_arch(model), &params, &layout);
    tt_model_close(&model);
    if (st != TT_OK) {
        EXPECT(st == TT_ERR_USAGE, "%s: %s", what, tt_status_message());
        return;
    }
    tt_layout_destroy(&layout);
    const held before = held_now(h);
    harness_load(h, dir, params, TT_PLAN_THREADS);
    compare(h, node, what, &before);
    harness_unload(h);
    const held after = held_now(h);
    EXPECT(after.buffers == before.buffers && after.windows == before.windows,
           "rank %d, %s: %ld bytes are left", h->rank, what,
           (long)(after.buffers + after.windows) - (long)(before.buffers + before.windows));
}

static const char *const models[] = {
    "models/tiny-moe",
    "tests/golden/architectures/deepseek_v3",   /* MLA, dense layers, shared experts */
    "tests/golden/architectures/deepseek_v2",   /* MLA without a rank of q */
    "tests/golden/architectures/qwen2_moe",     /* shared gate */
    "tests/golden/architectures/qwen3_next",    /* delta layers */
    "tests/golden/architectures/olmoe",         /* norms over all heads */
    "tests/golden/architectures/gpt_oss_mxfp4", /* sinks, biases */
    "tests/golden/architectures/qwen3_dense",   /* no experts */
};

static void hold_all(harness *h, const int *node)
{
    const tt_layout_params layouts[] = {
        {.tp = 1},
        {.tp = 2},
        {.tp = 2, .act = TT_ACT_INT8, .weights = TT_WEIGHTS_INT8},
        {.etp = 2},
        {.wire = TT_WIRE_BF16, .wire_back = TT_WIRE_INT8},
        {.combine = TT_COMBINE_REDUCED},
        {.exchange_chunk = 64},
        {.route = TT_ROUTE_DIRECT},
        {.split = "attention:0,experts:1-2"},
        {.split = "attention:0-1,experts:2-3", .tp = 2, .etp = 2},
    };
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
            hold(h, node, models[m], layouts[i]);
        }
    }
}

int main(void)
{
    static const int nodes[][4] = {{0, 0, 0, 0}, {0, 1, 1, 0}, {0, 1, 2, 2}};
    harness h;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &(int){0});
    ttk_init(tt_cpu_flags());
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        tt_world_params params = {
            .deadline_s = 60.0, .n_cores = 1, .comm_cpu = -1, .fake_node = nodes[i]};
        memset(&h, 0, sizeof(h));
        MUST(tt_world_create(MPI_COMM_WORLD, &params, &h.world));
        h.rank = tt_world_rank(h.world);
        h.size = tt_world_size(h.world);
        hold_all(&h, nodes[i]);
        tt_world_destroy(&h.world);
    }
    MPI_Finalize();
    return 0;
}
