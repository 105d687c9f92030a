/* bank.c - life of the feed-forward layers: what this rank loads, the exchange and gathers it
 * needs, and all work buffers, sized once so that the step path allocates nothing. */
#include "moe_internal.h"
#include <stdlib.h>
#include <string.h>

/* ---- weights ---- */

static tt_status load_dense(tt_moe *moe, tt_load_params *load, int64_t layer)
{
    tti_ffn_columns part;
    tt_layout_columns(moe->arch->F_dense, moe->layout->tp, moe->role->tp_id, &part.f_begin,
                      &part.f_end);
    tt_layout_columns(moe->H, moe->layout->tp, moe->role->tp_id, &part.h_begin, &part.h_end);
    return tti_ffn_load(load, &tti_ffn_dense, layer, 0, &part, &moe->layer[layer].dense);
}

static tt_status load_attention_side(tt_moe *moe, tt_load_params *load, int64_t layer)
{
    tti_moe_layer *l = &moe->layer[layer];
    tt_tensor router = tt_model_tensor(load->model, TT_ROLE_ROUTER, layer, 0);
    TT_TRY(tt_load_linear(load, &router, 0, moe->E, &l->router));
    tt_tensor bias = tt_model_tensor(load->model, TT_ROLE_ROUTER_BIAS, layer, 0);
    TT_TRY(tt_load_vector(load, &bias, 0, moe->E, &l->router.bias));
    bias = tt_model_tensor(load->model, TT_ROLE_ROUTER_CHOICE_BIAS, layer, 0);
    TT_TRY(tt_load_vector(load, &bias, 0, moe->E, &l->choice_bias));
    if (moe->arch->F_shared == 0) {
        return TT_OK;
    }
    tti_ffn_columns whole = {0, moe->arch->F_shared, 0, moe->H};
    TT_TRY(tti_ffn_load(load, &tti_ffn_shared, layer, 0, &whole, &l->shared));
    if (moe->arch->shared_gate) {
        router = tt_model_tensor(load->model, TT_ROLE_SHARED_ROUTER, layer, 0);
        TT_TRY(tt_load_linear(load, &router, 0, 1, &l->shared_router));
    }
    return TT_OK;
}

/* First what the ranks of a node read together, then what each reads alone, so that none waits for
 * another's experts. */
static tt_status load_layers(tt_moe *moe, tt_load_params *load)
{
    for (int64_t l = 0; l < moe->L; l++) {
        moe->layer[l].is_moe = moe->arch->layer[l].is_moe;
        if (moe->role->dp_id >= 0) {
            TT_TRY(moe->layer[l].is_moe ? load_attention_side(moe, load, l)
                                        : load_dense(moe, load, l));
        }
    }
    load->alone = true;
    tt_status st = TT_OK;
    for (int64_t l = 0; l < moe->L && st == TT_OK; l++) {
        if (moe->layer[l].is_moe && moe->role->group_id >= 0) {
            st = tti_slots_load(moe, load, l);
        }
    }
    load->alone = false;
    load->arena = NULL;
    return st;
}

/* ---- buffers ---- */

static void take_all(tt_moe *moe, tt_arena *arena, bool has_moe, bool has_dense)
{
    const tt_layout *layout = moe->layout;
    bool attends = moe->role->dp_id >= 0, serves = moe->role->group_id >= 0;
    int64_t T = has_moe && attends ? layout->max_rows_rank : 0;
    int64_t n_threads = tt_stream_n_threads(moe->compute);
    moe->logits = tt_arena_take(arena, T * moe->E, sizeof(float));
    moe->route_work = tt_arena_take(arena, T ? n_threads * 2 * moe->E : 0, sizeof(float));
    moe->route_status = tt_arena_take(arena, n_threads, sizeof(tt_status));
    moe->expert = tt_arena_take(arena, T * moe->K, sizeof(int32_t));
    moe->slot = tt_arena_take(arena, T * moe->K, sizeof(int32_t));
    moe->weight = tt_arena_take(arena, T * moe->K, sizeof(float));
    int64_t dense_floats = has_dense && attends ? layout->max_rows_group * moe->arch->F_dense : 0;
    moe->dense_gate = tt_arena_take(arena, dense_floats, sizeof(float));
    moe->dense_up = tt_arena_take(arena, dense_floats, sizeof(float));
    const tt_act act = layout->act;
    int64_t dense_width = moe->arch->F_dense > moe->H ? moe->arch->F_dense : moe->H;
    moe->dense_rounded = tt_arena_take(
        arena,
        has_dense && attends ? (int64_t)tt_rows_bytes(act, layout->max_rows_group, dense_width) : 0,
        1);
    int64_t rows = has_moe && serves ? moe->job_rows : 0;
    moe->job_rounded = tt_arena_take(
        arena, (int64_t)tt_rows_bytes(act, rows, moe->H > moe->F ? moe->H : moe->F), 1);
    moe->job = tt_arena_take(arena, moe->max_groups, sizeof(tti_moe_job));
    moe->job_x = tt_arena_take(arena, rows * moe->H, sizeof(float));
    moe->job_gate = tt_arena_take(arena, rows * moe->F, sizeof(float));
    moe->job_up = tt_arena_take(arena, rows * moe->F, sizeof(float));
    moe->job_y = tt_arena_take(arena, rows * (moe->part.h_end - moe->part.h_begin), sizeof(float));
    moe->expert_count = tt_arena_take(arena, attends ? moe->L * moe->E : 0, sizeof(uint64_t));
    moe->touched_in = tt_arena_take(arena, moe->L * moe->n_slots, sizeof(uint64_t));
    for (int h = 0; h < layout->n_handles; h++) {
        tti_moe_flight *flight = &moe->flight[h];
        int64_t F_shared = moe->arch->F_shared;
        flight->shared_inner = tt_arena_take(arena, T * F_shared, sizeof(float));
        flight->shared_up = tt_arena_take(arena, T * F_shared, sizeof(float));
        flight->shared_out = tt_arena_take(arena, F_shared ? T * moe->H : 0, sizeof(float));
        flight->shared_in_rounded =
            tt_arena_take(arena, F_shared ? (int64_t)tt_rows_bytes(act, T, moe->H) : 0, 1);
        flight->shared_inner_rounded =
            tt_arena_take(arena, (int64_t)tt_rows_bytes(act, T, F_shared), 1);
        flight->shared_weight = tt_arena_take(arena, moe->arch->shared_gate ? T : 0, sizeof(float));
        flight->group = tt_arena_take(arena, moe->max_groups, sizeof(tt_exchange_rows));
        flight->chosen = tt_arena_take(arena, moe->max_groups, sizeof(tt_exchange_rows));
    }
}

static tt_status make_buffers(tt_moe *moe, int node, bool has_moe, bool has_dense)
{
    moe->flight = calloc((size_t)moe->layout->n_handles, sizeof(*moe->flight));
    TT_CHECK(moe->flight, TT_ERR_NOMEM, "no memory for exchange handles");
    tt_arena count = {0};
    take_all(moe, &count, has_moe, has_dense);
    TT_TRY(tt_arena_init(&moe->arena, "feed-forward work buffers", count.used_bytes, node));
    take_all(moe, &moe->arena, has_moe, has_dense);
    if (moe->role->dp_id >= 0) {
        memset(moe->expert_count, 0, (size_t)(moe->L * moe->E) * sizeof(uint64_t));
    }
    memset(moe->touched_in, 0, (size_t)(moe->L * moe->n_slots) * sizeof(uint64_t));
    return TT_OK;
}

/* ---- exchange and gathers ---- */

/* What tt_exchange_create reads, as arrays that live through it. Owned parts: all arrays. */
typedef struct exchange_lists {
    int *source, *owner; /* source[n_sources], owner[n_owners]: ranks, ascending */
    int n_sources, n_owners;
    int64_t *columns; /* columns[etp + 1]: where each part of an expert's output begins */
    int64_t n_slots;
    int32_t *rank, *local;  /* rank[n_slots][etp], local[n_slots]: who serves a slot, and its
                             * number there */
    bool *attends, *serves; /* [n_ranks] */
} exchange_lists;

static void lists_fini(exchange_lists *lists)
{
    free(lists->source);
    free(lists->owner);
    free(lists->columns);
    free(lists->rank);
    free(lists->local);
    free(lists->attends);
    free(lists->serves);
}

/* Local. Whatever it returns, lists_fini frees what is there. */
static tt_status lists_init(const tt_moe *moe, exchange_lists *lists)
{
    const tt_layout *layout = moe->layout;
    size_t n_ranks = (size_t)layout->n_ranks;
    *lists = (exchange_lists){.n_sources = layout->dp * layout->tp,
                              .n_owners = layout->n_groups * layout->etp,
                              .n_slots = moe->placement->slots_per_group * layout->n_groups};
    size_t n_slots = (size_t)lists->n_slots;
    lists->source = calloc(n_ranks, sizeof(*lists->source));
    lists->owner = calloc(n_ranks, sizeof(*lists->owner));
    lists->columns = calloc((size_t)layout->etp + 1, sizeof(*lists->columns));
    lists->rank = calloc(n_slots * (size_t)layout->etp + 1, sizeof(*lists->rank));
    lists->local = calloc(n_slots + 1, sizeof(*lists->local));
    lists->attends = calloc(n_ranks, sizeof(*lists->attends));
    lists->serves = calloc(n_ranks, sizeof(*lists->serves));
    TT_CHECK(lists->source && lists->owner && lists->columns && lists->rank && lists->local &&
                 lists->attends && lists->serves,
             TT_ERR_NOMEM, "no memory for the owner map");
    return TT_OK;
}

/* The exchange wants ascending lists: mark, then walk. */
static void list_ranks(tt_moe *moe, exchange_lists *lists)
{
    const tt_layout *layout = moe->layout;
    for (int i = 0; i < lists->n_sources; i++) {
        lists->attends[layout->attention_rank[i]] = true;
    }
    for (int i = 0; i < lists->n_owners; i++) {
        lists->serves[layout->expert_rank[i]] = true;
    }
    for (int r = 0, s = 0, o = 0; r < layout->n_ranks; r++) {
        if (lists->attends[r]) {
            if (r == tt_world_rank(moe->world)) {
                moe->own_source_id = (int32_t)s;
            }
            lists->source[s++] = r;
        }
        if (lists->serves[r]) {
            lists->owner[o++] = r;
        }
    }
}

static void list_slots(const tt_moe *moe, exchange_lists *lists)
{
    const tt_layout *layout = moe->layout;
    int64_t per_group = moe->placement->slots_per_group;
    for (int part = 0; part < layout->etp; part++) {
        tt_layout_columns(moe->H, layout->etp, part, &lists->columns[part],
                          &lists->columns[part + 1]);
    }
    for (int64_t s = 0; s < lists->n_slots; s++) {
        lists->local[s] = (int32_t)(s % per_group);
        for (int part = 0; part < layout->etp; part++) {
            lists->rank[s * layout->etp + part] =
                layout->expert_rank[s / per_group * layout->etp + part];
        }
    }
}

/* Collective on the world, once all ranks have their lists. */
static tt_status create_exchange(tt_moe *moe, const exchange_lists *lists)
{
    const tt_layout *layout = moe->layout;
    tt_exchange_params params = {0};
    params.H = moe->H;
    params.K = moe->K;
    params.max_tokens = layout->max_rows_rank;
    params.n_handles = layout->n_handles;
    params.chunk_tokens = layout->exchange_chunk;
    params.takes_whole_chunks = layout->etp > 1;
    params.wire = layout->wire;
    params.wire_back = layout->wire_back;
    params.route = layout->route;
    params.combine = layout->combine;
    params.source = lists->source;
    params.n_sources = lists->n_sources;
    params.owner = lists->owner;
    params.n_owners = lists->n_owners;
    params.width = layout->etp;
    params.back_columns = lists->columns;
    params.weights_travel = moe->arch->router.weight_on_input;
    TT_TRY(tt_exchange_create(moe->world, &params, &moe->exchange));
    tt_owner_map map = {lists->n_slots, lists->rank, lists->local};
    return tt_world_agree(moe->world,
                          tt_exchange_set_owners(moe->exchange, &map, moe->placement->epoch));
}

static tt_status make_exchange(tt_moe *moe)
{
    exchange_lists lists;
    tt_status st = tt_world_agree(moe->world, lists_init(moe, &lists));
    if (st == TT_OK) {
        list_ranks(moe, &lists);
        list_slots(moe, &lists);
        st = create_exchange(moe, &lists);
    }
    lists_fini(&lists);
    return st;
}

static tt_status make_gathers(tt_moe *moe, bool has_dense)
{
    const tt_layout *layout = moe->layout;
    const tt_rank_role *role = moe->role;
    int n_tp = has_dense && role->dp_id >= 0 ? layout->tp : 0;
    const int *tp_member = n_tp ? layout->attention_rank + role->dp_id * layout->tp : NULL;
    int64_t width = tt_layout_widest(moe->arch->F_dense, layout->tp);
    int64_t h_width = tt_layout_widest(moe->H, layout->tp);
    width = width > h_width ? width : h_width;
    TT_TRY(tt_gather_create(moe->world, tp_member, n_tp, layout->max_rows_group * width,
                            &moe->tp_gather));
    int n_etp = role->group_id >= 0 && layout->etp > 1 ? layout->etp : 0;
    const int *etp_member = n_etp ? layout->expert_rank + role->group_id * layout->etp : NULL;
    return tt_gather_create(moe->world, etp_member, n_etp,
                            moe->job_rows * tt_layout_widest(moe->F, layout->etp),
                            &moe->etp_gather);
}

/* ---- life ---- */

static tt_status create_local(tt_moe *moe, const tt_moe_params *params, bool has_moe,
                              bool has_dense)
{
    moe->layer = calloc((size_t)moe->L, sizeof(*moe->layer));
    TT_CHECK(moe->layer, TT_ERR_NOMEM, "no memory for %lld layers", (long long)moe->L);
    if (has_moe) {
        TT_TRY(tt_placement_check(moe->placement));
        TT_TRY(tti_slots_check(moe, params->load));
        if (moe->layout->open_slots && moe->role->dp_id >= 0) {
            TT_TRY(tti_slots_spread(moe));
        }
    }
    TT_TRY(make_buffers(moe, params->load->node, has_moe, has_dense));
    return load_layers(moe, params->load);
}

tt_status tt_moe_create(const tt_moe_params *params, tt_moe **moe_out)
{
    const tt_arch *arch = tt_model_arch(params->model);
    const tt_layout *layout = params->layout;
    tt_moe *moe = calloc(1, sizeof(*moe));
    tt_status st = tt_world_agree(
        params->world, moe ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for the moe object"));
    if (st != TT_OK || !moe) {
        free(moe);
        return st;
    }
    moe->arch = arch;
    moe->layout = layout;
    moe->role = &layout->role[tt_world_rank(params->world)];
    moe->world = params->world;
    moe->own_source_id = -1;
    moe->placement = params->placement;
    moe->compute = params->compute;
    moe->L = arch->L;
    moe->H = arch->H;
    moe->E = arch->E;
    moe->K = arch->K;
    moe->F = arch->F;
    bool has_moe = false, has_dense = false;
    for (int64_t l = 0; l < moe->L; l++) {
        has_moe = has_moe || arch->layer[l].is_moe;
        has_dense = has_dense || !arch->layer[l].is_moe;
    }
    if (has_moe && moe->role->group_id >= 0) {
        moe->n_slots = moe->placement->slots_per_group;
        moe->max_groups = tt_layout_max_groups(arch, layout, moe->n_slots);
        tt_layout_columns(moe->F, layout->etp, moe->role->etp_id, &moe->part.f_begin,
                          &moe->part.f_end);
        tt_layout_columns(moe->H, layout->etp, moe->role->etp_id, &moe->part.h_begin,
                          &moe->part.h_end);
    }
    moe->job_rows = tt_layout_job_rows(layout);
    st = tt_world_agree(params->world,
                        tt_load_told(params->load, create_local(moe, params, has_moe, has_dense)));
    if (st == TT_OK && has_moe) {
        st = make_exchange(moe);
    }
    if (st == TT_OK) {
        st = make_gathers(moe, has_dense);
    }
    if (st != TT_OK) {
        tt_moe_destroy(&moe);
        return st;
    }
    *moe_out = moe;
    return TT_OK;
}

void tt_moe_destroy(tt_moe **moe_ptr)
{
    tt_moe *moe = *moe_ptr;
    if (!moe) {
        return;
    }
    tt_exchange_destroy(&moe->exchange);
    tt_gather_destroy(&moe->tp_gather);
    tt_gather_destroy(&moe->etp_gather);
    tt_spread_destroy(&moe->spread);
    for (int64_t l = 0; moe->layer && l < moe->L; l++) {
        tti_moe_layer *layer = &moe->layer[l];
        tt_ffn_fini(&layer->dense);
        tt_linear_fini(&layer->router);
        tt_memory_free(layer->choice_bias, (size_t)moe->E * sizeof(float));
        tt_ffn_fini(&layer->shared);
        tt_linear_fini(&layer->shared_router);
        tti_slots_fini(moe, layer);
    }
    free(moe->layer);
    free(moe->flight);
    tt_arena_fini(&moe->arena);
    free(moe);
    *moe_ptr = NULL;
}

uint64_t tt_moe_experts_touched(const tt_moe *moe)
{
    return moe->role->etp_id > 0 ? 0 : moe->experts_touched;
}

const uint64_t *tt_moe_expert_counts(const tt_moe *moe)
{
    return moe->role->dp_id >= 0 ? moe->expert_count : NULL;
}

uint64_t tt_moe_bytes_read(const tt_moe *moe)
{
    return moe->bytes_read;
}

const tt_exchange *tt_moe_exchange(const tt_moe *moe)
{
    return moe->exchange;
}
