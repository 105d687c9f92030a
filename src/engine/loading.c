/* loading.c - what loading needs of the world: the relay through which the ranks of a node read
 * once what all of them want, the memory in which they hold it once under TT_REPLICATE_NODE, and
 * signs of life. */
#include "engine_internal.h"
#include <stdio.h>
#include "tutti/relay.h"
#include "tutti/trace.h"

static tt_status relay_begin(void *arg, uint64_t n_left, uint64_t *ahead_out, void **place_out)
{
    return tt_relay_begin(arg, n_left, ahead_out, place_out);
}

static void relay_publish(void *arg, tt_status st)
{
    tt_relay_publish(arg, st);
}

static tt_status relay_take(void *arg, const void **piece_out)
{
    return tt_relay_take(arg, piece_out);
}

static void relay_release(void *arg)
{
    tt_relay_release(arg);
}

static void relay_fail(void *arg, tt_status st)
{
    tt_relay_fail(arg, st);
}

static tt_status share_claim(void *arg, tt_hash_pair key, size_t bytes, void **memory_out,
                             bool *fill_out)
{
    return tt_share_claim(arg, key, bytes, memory_out, fill_out);
}

/* Loading takes long and no part in anything: between pieces this rank answers who asks whether it
 * is alive. */
static void progress(void *arg, uint64_t done_bytes)
{
    const tti_loading *loading = arg;
    const tt_engine_params *params = loading->params;
    tt_world_progress(params->world);
    if (params->loading) {
        params->loading(params->loading_arg, done_bytes, loading->total_bytes);
    }
}

/* The most ranks that any node has. */
static size_t largest_node(const tt_world *world)
{
    int most = 0;
    for (int node = 0; node < tt_world_n_nodes(world); node++) {
        int n = tt_world_node_size(world, node);
        most = n > most ? n : most;
    }
    return (size_t)most;
}

/* The memory that the attending ranks of a node share, where there are several. */
static tt_status begin_share(tti_loading *loading, bool takes_part)
{
    const tt_engine_params *params = loading->params;
    tt_world *world = params->world;
    size_t n_matrices = 0, arena_bytes = 0;
    TT_TRY(tt_world_agree(world,
                          tt_plan_shared_room(params->model, params->layout, tt_world_rank(world),
                                              &n_matrices, &arena_bytes)));
    int64_t most = (int64_t)n_matrices;
    TT_TRY(tt_world_max_i64(world, &most, 1));
    tt_status st = tt_share_create(world, takes_part, arena_bytes,
                                   (size_t)most * largest_node(world), &loading->share);
    if (st == TT_ERR_UNSUPPORTED) { /* agreed: all ranks say the same */
        char cause[TT_STATUS_MESSAGE_BYTES];
        snprintf(cause, sizeof(cause), "%s", tt_status_message());
        TT_CHECK(
            !params->layout->must_share, TT_ERR_FIT,
            "dense weights of its own on each rank do not fit this memory, and the ranks of a node cannot share them; what helps: fewer ranks "
            "on each node, a larger tp, or ranks that can open each other's memory: %s",
            cause);
        return TT_FAIL(
            TT_ERR_USAGE,
            "--replicate node: the ranks of a node cannot share memory (--replicate numa gives each its own): %s",
            cause);
    }
    TT_TRY(st);
    loading->claims = (tt_load_share){.arg = loading->share, .claim = share_claim};
    return TT_OK;
}

tt_status tti_loading_begin(tti_loading *loading, const tt_engine_params *params, bool attends)
{
    const tt_layout *layout = params->layout;
    *loading = (tti_loading){.params = params, .begin_ns = tt_now_ns()};
    loading->load = (tt_load_params){.model = params->model,
                                     .weights = layout->weights,
                                     .node = params->node,
                                     .compute = params->compute,
                                     .progress = progress,
                                     .progress_arg = loading};
    tt_rank_memory memory = {0};
    TT_TRY(tt_world_agree(params->world, tt_plan_memory(params->model, layout,
                                                        tt_world_rank(params->world), &memory)));
    loading->total_bytes = memory.dense_bytes + memory.expert_bytes;
    if (tt_world_rank(params->world) == 0) {
        tt_load_warn_requantized(params->model, layout->weights);
    }
    TT_TRY(tt_relay_create(params->world, attends, TT_LOAD_PIECE_BYTES, &loading->relay));
    loading->table = (tt_load_relay){.arg = loading->relay,
                                     .piece_bytes = tt_relay_piece_bytes(loading->relay),
                                     .begin = relay_begin,
                                     .publish = relay_publish,
                                     .take = relay_take,
                                     .release = relay_release,
                                     .fail = relay_fail};
    /* Alone on its node a rank would pay for the copy and read rows that it does not want. */
    bool is_alone = tt_relay_n_members(loading->relay) <= 1;
    loading->load.relay = is_alone ? NULL : &loading->table;
    if (layout->replicate == TT_REPLICATE_NODE) {
        TT_TRY(begin_share(loading, !is_alone)); /* alone it does better with memory of its own
                                                  * NUMA node */
        loading->load.share = is_alone ? NULL : &loading->claims;
    }
    return TT_OK;
}

void tti_loading_end(tti_loading *loading, tt_engine_figures *figures, tt_share **share_out)
{
    tt_load_end(&loading->load);
    tt_relay_destroy(&loading->relay);
    figures->load_bytes = loading->load.read_bytes;
    figures->load_expert_bytes = loading->load.alone_bytes;
    figures->weight_bytes_held = loading->load.packed_bytes;
    if (loading->share) {
        figures->weight_bytes_shared = tt_share_filled_bytes(loading->share);
        figures->weight_bytes_borrowed = tt_share_borrowed_bytes(loading->share);
    }
    *share_out = loading->share;
    figures->load_s = (double)(tt_now_ns() - loading->begin_ns) * 1e-9;
}
