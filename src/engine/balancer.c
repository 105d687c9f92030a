/* balancer.c - replicas follow the load while steps go on.
 *
 * All ranks walk through the same stages, because they act on what the vote of a step says, and on
 * nothing else:
 *   COUNT   each rank counts its rows' choices; after a number of steps the window's counts leave
 *   GATHER  they are on their way to rank 0
 *   PLAN    a thread of rank 0 plans: from the placement that there is, in few moves, and only if
 *           that pays. Rank 0 says in a vote what came of it; a plan goes to all ranks
 *   MOVE    layer by layer, lot by lot: the weights of a lot are on their way into memory beside
 *           the slots. When the vote says that all is there, unharmed, all ranks write them into
 *           their slots and choose by the new placement from this step on
 * Counts and weights travel by a ferry, beside the messages of the steps. Each lot leaves a whole
 * placement, so a transfer that fails, or does not come to an end, costs nothing but the rest of the
 * plan. Where a row is computed changes none of its bits, so no output tells of any of this. */
#include "balancer.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/ferry.h"
#include "tutti/log.h"
#include "tutti/trace.h"

typedef enum stage {
    STAGE_COUNT,
    STAGE_GATHER,
    STAGE_PLAN,
    STAGE_MOVE,
    STAGE_STALLED /* what is on its way is no longer wanted, but cannot be called back */
} stage;

/* What rank 0 says in a vote. */
enum { ORDER_NONE, ORDER_GO_ON, ORDER_TAKE_PLAN, ORDER_GIVE_UP };

static const double NS_PER_S = 1e9;
enum {
    WINDOW_STEPS = 64,
    PARTS = TT_MOE_SLOT_PARTS,
    MAX_FAILURES = 3 /* in a row; after them nothing is tried again */
};
/* A round may take this part of the world's deadline, and some times what its bytes should take; then
 * it is given up. */
static const double patience_part = 1.0 / 30.0, patience_times = 8.0;
static const double default_bytes_per_s = 256e6;

struct tti_balancer {
    tt_engine *engine;
    tt_engine_balance settings;
    int node; /* NUMA node of what is on its way */
    tt_ferry *ferry;
    int64_t L, E, n_slots; /* n_slots: of all groups */
    stage stage;
    bool has_failed; /* a transfer of this round, on this rank */
    int n_failures;
    uint64_t round_ns; /* when the round began */
    double round_s;    /* how long it may take */
    int64_t n_steps;   /* of the window */
    /* counts: [L][E] each */
    uint64_t *before;  /* tt_moe_expert_counts when the window began; attention ranks */
    uint64_t *window;  /* the window's, while they are sent; attention ranks */
    uint64_t *arrived; /* rank 0: of each other source */
    double *load;      /* of the plan; on rank 0 of recent windows, an older one counts half */
    tti_replan replan; /* rank 0 */
    /* the plan under way */
    unsigned char *message; /* message_bytes: experts of slots as int32, then loads as float */
    size_t message_bytes;
    tt_placement *goal;
    int64_t layer;
    tt_move *move; /* move[n_groups * staged_slots]: the lot */
    int n_moves;
    int *node_of_group; /* [n_groups] */
    tt_arena staged;    /* what this rank takes in */
    int64_t slot_bytes; /* of an expert, at most, on any rank */
    tt_balance_figures figures;
};

/* ---- life ---- */

static int64_t n_counts(const tti_balancer *b)
{
    return b->L * b->E;
}

static bool attends(const tt_engine *engine)
{
    return engine->role->dp_id >= 0;
}

/* Bytes of memory for one expert of a layer, as this rank takes it in. */
static size_t slot_bytes(const tti_balancer *b, int64_t layer)
{
    tt_moe_part part[PARTS];
    tt_arena count = {0};
    const int n = tt_moe_slot_parts(b->engine->moe, layer, 0, part);
    for (int i = 0; i < n; i++) {
        tt_arena_alloc(&count, part[i].bytes);
    }
    return count.used_bytes;
}

static tt_status take_staging(tti_balancer *b)
{
    const tt_engine *engine = b->engine;
    size_t most = 0;
    if (engine->role->group_id < 0) {
        return TT_OK;
    }
    for (int64_t l = 0; l < b->L; l++) {
        const size_t bytes = engine->arch->layer[l].is_moe ? slot_bytes(b, l) : 0;
        most = bytes > most ? bytes : most;
    }
    b->slot_bytes = (int64_t)most;
    return tt_arena_init(&b->staged, "experts on their way",
                         most * (size_t)engine->layout->staged_slots, b->node);
}

static tt_status create_local(tti_balancer *b)
{
    const tt_engine *engine = b->engine;
    const tt_layout *layout = engine->layout;
    const size_t n = (size_t)n_counts(b) + 1, groups = (size_t)layout->n_groups + 1;
    const int n_sources = layout->dp * layout->tp;
    b->before = calloc(n, sizeof(*b->before));
    b->window = calloc(n, sizeof(*b->window));
    b->load = calloc(n, sizeof(*b->load));
    b->arrived = engine->rank == 0 ? calloc(n * (size_t)n_sources, sizeof(*b->arrived)) : NULL;
    b->node_of_group = calloc(groups, sizeof(*b->node_of_group));
    b->move = calloc(groups * (size_t)(layout->staged_slots + 1), sizeof(*b->move));
    b->message_bytes =
        (size_t)(b->L * b->n_slots) * sizeof(int32_t) + (size_t)n_counts(b) * sizeof(float);
    b->message = malloc(b->message_bytes + 1);
    TT_CHECK(b->before && b->window && b->load && (engine->rank != 0 || b->arrived) &&
                 b->node_of_group && b->move && b->message,
             TT_ERR_NOMEM, "no memory to count the rows of %lld experts in %lld layers",
             (long long)b->E, (long long)b->L);
    for (int g = 0; g < layout->n_groups; g++) {
        b->node_of_group[g] = layout->role[layout->expert_rank[(int64_t)g * layout->etp]].node;
    }
    return take_staging(b);
}

tt_status tti_balancer_create(tt_engine *engine, const tt_engine_balance *settings, int node,
                              tti_balancer **balancer_out)
{
    const tt_layout *layout = engine->layout;
    tti_balancer *b = calloc(1, sizeof(*b));
    tt_status st =
        tt_world_agree(engine->world, b ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory to balance"));
    if (st != TT_OK || !b) {
        free(b);
        return st;
    }
    b->engine = engine;
    b->node = node;
    b->settings = *settings;
    b->settings.window_steps = settings->window_steps > 0 ? settings->window_steps : WINDOW_STEPS;
    b->settings.bytes_per_s =
        settings->bytes_per_s > 0.0 ? settings->bytes_per_s : default_bytes_per_s;
    b->L = engine->arch->L;
    b->E = engine->arch->E;
    b->n_slots = layout->n_groups * layout->slots_per_group;
    const tt_ferry_params ferry = {.max_items =
                                       2 * layout->staged_slots * PARTS + layout->dp * layout->tp,
                                   .bytes_per_s = b->settings.bytes_per_s};
    st = tt_world_agree(engine->world, create_local(b));
    if (st == TT_OK) {
        st = tt_world_max_i64(engine->world, &b->slot_bytes, 1);
    }
    if (st == TT_OK) {
        st = tt_world_agree(engine->world, engine->rank == 0
                                               ? tti_replan_init(&b->replan, engine, &b->settings,
                                                                 (double)b->slot_bytes)
                                               : TT_OK);
    }
    if (st == TT_OK) {
        st = tt_ferry_create(engine->world, &ferry, &b->ferry);
    }
    if (st != TT_OK) {
        tti_balancer_destroy(&b);
        return st;
    }
    *balancer_out = b;
    return TT_OK;
}

void tti_balancer_destroy(tti_balancer **balancer)
{
    tti_balancer *b = *balancer;
    if (!b) {
        return;
    }
    tt_ferry_destroy(&b->ferry); /* until then its memory is in use */
    tti_replan_fini(&b->replan);
    tt_placement_destroy(&b->goal);
    tt_arena_fini(&b->staged);
    free(b->before);
    free(b->window);
    free(b->arrived);
    free(b->load);
    free(b->message);
    free(b->move);
    free(b->node_of_group);
    free(b);
    *balancer = NULL;
}

tt_balance_figures tti_balancer_get_figures(const tti_balancer *b)
{
    tt_balance_figures figures = b->figures;
    figures.bytes_sent = tt_ferry_bytes(b->ferry);
    figures.epoch = b->engine->placement->epoch;
    return figures;
}

/* ---- stages ---- */

static void begin_round(tti_balancer *b, double bytes)
{
    b->has_failed = false;
    b->round_ns = tt_now_ns();
    b->round_s = patience_part * tt_world_deadline_s(b->engine->world) +
                 patience_times * bytes / b->settings.bytes_per_s;
}

static void begin_window(tti_balancer *b)
{
    b->stage = STAGE_COUNT;
    b->n_steps = 0;
    if (attends(b->engine)) {
        memcpy(b->before, tt_moe_expert_counts(b->engine->moe),
               (size_t)n_counts(b) * sizeof(*b->before));
    }
}

/* A round came to nothing: what is placed stays as it is. */
static void drop(tti_balancer *b, const char *why)
{
    b->figures.dropped++;
    b->n_failures++;
    tt_placement_destroy(&b->goal);
    if (why[0]) {
        tt_log(TT_LOG_WARN, "balancing: %s: experts stay where they are%s", why,
               b->n_failures >= MAX_FAILURES ? ", for good" : "");
    }
    begin_window(b);
}

static tt_status send_window(tti_balancer *b)
{
    const tt_engine *engine = b->engine;
    const tt_layout *layout = engine->layout;
    const size_t bytes = (size_t)n_counts(b) * sizeof(*b->window);
    if (attends(engine)) {
        const uint64_t *now = tt_moe_expert_counts(engine->moe);
        for (int64_t i = 0; i < n_counts(b); i++) {
            b->window[i] = now[i] - b->before[i];
        }
        if (engine->rank != 0) {
            TT_TRY(tt_ferry_send(b->ferry, 0, (uint64_t)engine->rank, b->window, bytes));
        }
    }
    for (int i = 0; engine->rank == 0 && i < layout->dp * layout->tp; i++) {
        const int source = layout->attention_rank[i];
        if (source != 0) {
            TT_TRY(tt_ferry_recv(b->ferry, source, (uint64_t)source, b->arrived + i * n_counts(b),
                                 bytes));
        }
    }
    begin_round(b, (double)bytes * layout->dp * layout->tp);
    b->stage = STAGE_GATHER;
    return TT_OK;
}

/* Rank 0: all counts of the window are here. */
static void begin_plan(tti_balancer *b)
{
    const tt_engine *engine = b->engine;
    const tt_layout *layout = engine->layout;
    for (int64_t i = 0; i < n_counts(b); i++) {
        uint64_t sum = attends(engine) ? b->window[i] : 0;
        for (int s = 0; s < layout->dp * layout->tp; s++) {
            sum += layout->attention_rank[s] != 0 ? b->arrived[s * n_counts(b) + i] : 0;
        }
        b->load[i] = 0.5 * b->load[i] + (double)sum;
    }
    tti_replan_begin(&b->replan, b->load);
}

static void write_message(tti_balancer *b)
{
    const size_t slots = (size_t)(b->L * b->n_slots) * sizeof(int32_t);
    memcpy(b->message, b->replan.goal->expert_of_slot, slots);
    for (int64_t i = 0; i < n_counts(b); i++) {
        const float load = (float)b->load[i];
        memcpy(b->message + slots + (size_t)i * sizeof(load), &load, sizeof(load));
    }
    tt_placement_destroy(&b->replan.goal);
}

/* Rank 0 reads what it wrote, too: all ranks level by the same numbers and hold one placement. */
static tt_status read_message(tti_balancer *b)
{
    const tt_placement *now = b->engine->placement;
    const size_t slots = (size_t)(b->L * b->n_slots) * sizeof(int32_t);
    TT_TRY(tt_placement_linear(now->L, now->E, now->n_groups, now->slots_per_group, &b->goal));
    memcpy(b->goal->expert_of_slot, b->message, slots);
    for (int64_t i = 0; i < n_counts(b); i++) {
        float load;
        memcpy(&load, b->message + slots + (size_t)i * sizeof(load), sizeof(load));
        b->load[i] = (double)load;
    }
    return TT_OK;
}

static uint64_t key_of(const tti_balancer *b, const tt_move *move, int part)
{
    return ((uint64_t)(b->layer * b->n_slots + move->to) << 3) + (uint64_t)part;
}

/* Begins this rank's transfers of a lot. */
static tt_status send_lot(tti_balancer *b)
{
    const tt_engine *engine = b->engine;
    const tt_layout *layout = engine->layout;
    const int64_t S = layout->slots_per_group, group = engine->role->group_id;
    double bytes = 0.0;
    tt_arena_reset(&b->staged);
    for (int i = 0; group >= 0 && i < b->n_moves; i++) {
        const tt_move *m = &b->move[i];
        tt_moe_part part[PARTS];
        const bool is_from = m->from / S == group, is_to = m->to / S == group;
        if (!is_from && !is_to) {
            continue;
        }
        const int64_t other = (is_from ? m->to : m->from) / S;
        const int peer = layout->expert_rank[other * layout->etp + engine->role->etp_id];
        const int n =
            tt_moe_slot_parts(engine->moe, b->layer, (is_from ? m->from : m->to) % S, part);
        for (int p = 0; p < n; p++) {
            const uint64_t key = key_of(b, m, p);
            bytes += (double)part[p].bytes;
            TT_TRY(is_from
                       ? tt_ferry_send(b->ferry, peer, key, part[p].data, part[p].bytes)
                       : tt_ferry_recv(b->ferry, peer, key,
                                       tt_arena_alloc(&b->staged, part[p].bytes), part[p].bytes));
        }
    }
    begin_round(b, bytes + (double)(b->slot_bytes * layout->staged_slots));
    return TT_OK;
}

/* The next lot that there is anything to do in; when there is none, the plan is carried out. */
static tt_status next_lot(tti_balancer *b)
{
    const tt_layout *layout = b->engine->layout;
    for (; b->layer < b->L; b->layer++) {
        b->n_moves =
            tt_balance_next_moves(b->engine->placement, b->goal, b->layer, b->node_of_group,
                                  layout->staged_slots, layout->staged_slots, b->move);
        if (b->n_moves > 0) {
            b->stage = STAGE_MOVE;
            return send_lot(b);
        }
    }
    b->n_failures = 0;
    b->figures.plans++;
    tt_placement_destroy(&b->goal);
    begin_window(b);
    return TT_OK;
}

typedef struct copy_task {
    const tt_moe_part *part;
    const unsigned char *from[PARTS];
    int n;
} copy_task;

static void copy_part(void *arg, int thread_id, int n_threads)
{
    const copy_task *task = arg;
    for (int p = 0; p < task->n; p++) {
        int64_t begin, end;
        tt_split((int64_t)task->part[p].bytes, n_threads, thread_id, &begin, &end);
        memcpy((unsigned char *)task->part[p].data + begin, task->from[p] + begin,
               (size_t)(end - begin));
    }
}

/* All of a lot is there, on all ranks: into the slots with it. */
static tt_status take_lot(tti_balancer *b)
{
    tt_engine *engine = b->engine;
    const int64_t S = engine->layout->slots_per_group, group = engine->role->group_id;
    tt_arena at = {b->staged.base, b->staged.size_bytes, 0, 0};
    tt_span span = tt_span_begin(TT_PHASE_MIGRATE, "take experts");
    uint64_t bytes = 0;
    for (int i = 0; i < b->n_moves; i++) {
        if (b->move[i].to / S == group) {
            tt_moe_part part[PARTS];
            copy_task task = {.part = part};
            task.n = tt_moe_slot_parts(engine->moe, b->layer, b->move[i].to % S, part);
            for (int p = 0; p < task.n; p++) {
                task.from[p] = tt_arena_alloc(&at, part[p].bytes);
                bytes += part[p].bytes;
            }
            tt_stream_run(engine->compute, "take expert", copy_part, &task);
        }
    }
    TT_TRY(tt_placement_move(engine->placement, b->layer, b->move, b->n_moves,
                             b->load + b->layer * b->E));
    TT_TRY(tt_moe_take_placement(engine->moe, b->layer));
    b->figures.moves += (uint64_t)b->n_moves;
    tt_span_end(&span, bytes);
    return TT_OK;
}

/* ---- what the step asks ---- */

void tti_balancer_say(tti_balancer *b, tti_balancer_word *word)
{
    const tt_ferry_state state = tt_ferry_poll(b->ferry);
    b->has_failed = b->has_failed || state == TT_FERRY_FAILED;
    *word = (tti_balancer_word){.busy = state == TT_FERRY_BUSY, .failed = b->has_failed};
    if (b->engine->rank != 0) {
        return;
    }
    if (b->stage == STAGE_PLAN && tti_replan_is_done(&b->replan)) {
        word->order = b->replan.goal ? ORDER_TAKE_PLAN : ORDER_GO_ON;
    }
    const double took = (double)(tt_now_ns() - b->round_ns) / NS_PER_S;
    if ((b->stage == STAGE_GATHER || b->stage == STAGE_MOVE) && took > b->round_s) {
        word->order = ORDER_GIVE_UP;
    }
}

/* No rank is busy any more, or rank 0 gives up. */
static tt_status end_round(tti_balancer *b, const tti_balancer_word *agreed)
{
    const bool speaks = b->engine->rank == 0;
    if (agreed->busy) {
        b->stage = STAGE_STALLED;
        if (speaks) {
            tt_log(TT_LOG_WARN,
                   "balancing: a transfer took more than %.1f s and is given up: "
                   "experts stay where they are",
                   b->round_s);
        }
        return TT_OK;
    }
    if (agreed->failed || b->stage == STAGE_STALLED) {
        drop(b, speaks && agreed->failed ? "a transfer failed" : "");
        return TT_OK;
    }
    if (b->stage == STAGE_GATHER) {
        b->stage = STAGE_PLAN;
        b->figures.windows++;
        if (speaks) {
            begin_plan(b);
        }
        return TT_OK;
    }
    TT_TRY(take_lot(b));
    return next_lot(b);
}

static tt_status end_plan(tti_balancer *b, int64_t order)
{
    if (order == ORDER_GO_ON) {
        begin_window(b);
        return TT_OK;
    }
    if (b->engine->rank == 0) {
        write_message(b);
    }
    TT_TRY(tt_world_bcast(b->engine->world, b->message, b->message_bytes, 0));
    TT_TRY(read_message(b));
    b->layer = 0;
    return next_lot(b);
}

tt_status tti_balancer_act(tti_balancer *b, const tti_balancer_word *agreed)
{
    switch (b->stage) {
    case STAGE_COUNT:
        return b->n_steps >= b->settings.window_steps && b->n_failures < MAX_FAILURES
                   ? send_window(b)
                   : TT_OK;
    case STAGE_GATHER:
    case STAGE_MOVE:
    case STAGE_STALLED:
        if (agreed->busy && (b->stage == STAGE_STALLED || agreed->order != ORDER_GIVE_UP)) {
            return TT_OK;
        }
        return end_round(b, agreed);
    case STAGE_PLAN:
        return agreed->order != ORDER_NONE ? end_plan(b, agreed->order) : TT_OK;
    }
    return TT_OK;
}

void tti_balancer_stepped(tti_balancer *b)
{
    b->n_steps++;
}
