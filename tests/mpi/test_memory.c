/* test_memory.c - the plan's bytes against those that a loaded engine holds, on one, two and three
 * pretended nodes, for each kind of attention, feed-forward network, wire and combine. */
/* TEST ranks: 1 2 3 4 */
#include "harness.h"
#include "tutti/memory.h"

typedef struct held {
    uint64_t buffers, windows;
} held;

static held held_now(const harness *h)
{
    return (held){tt_memory_used_bytes(), tt_world_window_bytes(h->world)};
}

/* What is planned must have room for what is held, but for what each buffer is rounded up to a page
 * (`rounded`, which a process's guessed bytes cover), and must not be far above it: at most `most`
 * times what is no weight and no KV, and `slack` for threads that are not there. */
static void compare(const harness *h, const char *what, const held *before)
{
    const double most = 2.0, slack = 3 << 20, rounded = 64 << 10;
    tt_rank_memory plan;
    MUST(tt_plan_memory(h->model, h->layout, h->rank, &plan));
    const held now = held_now(h);
    const double held_bytes =
        (double)(now.buffers - before->buffers) + (double)(now.windows - before->windows);
    const double kept = (double)(plan.dense_bytes + plan.expert_bytes + plan.kv_bytes);
    const double rest =
        (double)(plan.exchange_bytes + plan.work_bytes) - (double)TT_PLAN_PROCESS_BYTES;
    EXPECT(held_bytes <= kept + rest + rounded,
           "rank %d, %s: %.0f bytes are held, %.0f + %.0f are planned", h->rank, what, held_bytes,
           kept, rest);
    EXPECT(kept + rest <= kept + most * (held_bytes - kept) + slack,
           "rank %d, %s: %.0f + %.0f bytes are planned, only %.0f are held", h->rank, what, kept,
           rest, held_bytes);
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
    harness_load(h, dir, params, 2);
    compare(h, what, &before);
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
