/* loading.c - what loading needs of the world: the relay through which the ranks of a node read once what all of them want, and signs of life. */
#include "engine_internal.h"
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

/* Loading takes long and no part in anything: between pieces this rank answers who asks whether it is alive. */
static void progress(void *arg, uint64_t packed_bytes)
{
    const tti_loading *loading = arg;
    const tt_engine_params *params = loading->params;
    tt_world_progress(params->world);
    if (params->loading) {
        params->loading(params->loading_arg, packed_bytes, loading->total_bytes);
    }
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
    TT_TRY(tt_world_agree(params->world, tt_plan_memory(params->model, layout, tt_world_rank(params->world), &memory)));
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
    loading->load.relay = tt_relay_n_members(loading->relay) > 1 ? &loading->table : NULL;
    return TT_OK;
}

void tti_loading_end(tti_loading *loading, tt_engine_figures *figures)
{
    tt_load_end(&loading->load);
    tt_relay_destroy(&loading->relay);
    figures->load_bytes = loading->load.read_bytes;
    figures->load_expert_bytes = loading->load.alone_bytes;
    figures->weight_bytes_held = loading->load.packed_bytes;
    figures->load_s = (double)(tt_now_ns() - loading->begin_ns) * 1e-9;
}
