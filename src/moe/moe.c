/* moe.c - the order of work of one MoE layer.
 *
 * begin routes and dispatches. advance then does the most useful piece of work there is, and polls
 * between pieces:
 *   rows still fly   -> a piece of the shared expert; then the experts of one slot whose rows are here
 *   all rows are here -> at once all slots that hold other ranks' rows, since those ranks wait for the results; each expert's weights are read
 *                       once for all its rows. If the exchange goes in chunks, so with one chunk after the other
 *   results fly      -> the slots that only this rank's rows need, then what is left of the shared expert
 * So all independent compute of a layer (shared expert, own experts) can hide either message, in
 * whatever parts the delays need. Where a second handle is in flight, its work hides what is
 * left. */
#include "moe_internal.h"
#include <string.h>
#include "tutti/trace.h"

/* ---- dense layers ---- */

tt_status tt_moe_dense(tt_moe *moe, int64_t layer, int64_t T, const float *x, float *y)
{
    if (T == 0) {
        return TT_OK;
    }
    const tt_ffn *ffn = &moe->layer[layer].dense;
    int64_t F = moe->arch->F_dense;
    int tp = moe->layout->tp, tp_id = moe->role->tp_id;
    tt_rect inner_rect[TT_LAYOUT_MAX_SPLIT], out_rect[TT_LAYOUT_MAX_SPLIT];
    for (int part = 0; part < tp; part++) {
        tt_rect inner = {0, T, 0, 0}, out = {0, T, 0, 0};
        tt_layout_columns(F, tp, part, &inner.col, &inner.n_cols);
        tt_layout_columns(moe->H, tp, part, &out.col, &out.n_cols);
        inner.n_cols -= inner.col;
        out.n_cols -= out.col;
        inner_rect[part] = inner;
        out_rect[part] = out;
    }
    tt_span span = tt_span_begin(TT_PHASE_DENSE, "dense ffn");
    int64_t f_begin = inner_rect[tp_id].col, h_begin = out_rect[tp_id].col;
    tt_rows rows =
        tt_rows_round(moe->layout->act, moe->compute, moe->dense_rounded, x, moe->H, T, moe->H);
    const tti_ffn_half inner = {.out = moe->dense_gate + f_begin,
                                .up = moe->dense_up + f_begin,
                                .ld = F,
                                .in = &rows,
                                .T = T,
                                .panel_end = tt_linear_n_panels(&ffn->gate)};
    tti_ffn_run_inner(ffn, moe->compute, "dense gate up", &inner);
    TT_TRY(tt_gather_exec(moe->tp_gather, moe->dense_gate, F, inner_rect, TT_GATHER_ALL,
                          moe->compute));
    rows =
        tt_rows_round(moe->layout->act, moe->compute, moe->dense_rounded, moe->dense_gate, F, T, F);
    const tti_ffn_half down = {.out = y + h_begin,
                               .ld = moe->H,
                               .in = &rows,
                               .T = T,
                               .panel_end = tt_linear_n_panels(&ffn->down)};
    tti_ffn_run_down(ffn, moe->compute, "dense down", &down);
    TT_TRY(tt_gather_exec(moe->tp_gather, y, moe->H, out_rect, TT_GATHER_ALL, moe->compute));
    uint64_t bytes = tti_ffn_bytes(ffn);
    moe->bytes_read += bytes;
    tt_span_end(&span, bytes);
    return TT_OK;
}

/* ---- routing ---- */

typedef struct route_task {
    tt_moe *moe;
    int64_t layer, T;
} route_task;

static void route_part(void *arg, int thread_id, int n_threads)
{
    const route_task *task = arg;
    tt_moe *moe = task->moe;
    const tt_chooser chooser = {.router = &moe->arch->router,
                                .E = moe->E,
                                .K = moe->K,
                                .bias = moe->layer[task->layer].choice_bias,
                                .work = moe->route_work + (int64_t)thread_id * 2 * moe->E};
    int64_t begin, end;
    tt_split(task->T, n_threads, thread_id, &begin, &end);
    moe->route_status[thread_id] = TT_OK;
    for (int64_t t = begin; t < end; t++) {
        int32_t *expert = moe->expert + t * moe->K;
        tt_status st =
            tt_router_choose(&chooser, moe->logits + t * moe->E, expert, moe->weight + t * moe->K);
        if (st != TT_OK) {
            moe->route_status[thread_id] = st;
            memset(expert, 0xff, (size_t)moe->K * sizeof(int32_t)); /* -1: no choice */
        }
    }
}

/* Counts the rows' choices, and gives each the slot that serves it. */
static void choose_slots(tt_moe *moe, int64_t layer, int64_t T)
{
    uint64_t *count = moe->expert_count + layer * moe->E;
    const tt_placement *p = moe->placement;
    if (moe->spread) {
        tt_spread_choose(moe->spread, layer, T * moe->K, moe->expert, moe->slot);
    }
    for (int64_t i = 0; i < T * moe->K; i++) {
        const int32_t expert = moe->expert[i];
        if (expert >= 0) {
            count[expert]++;
        }
        if (!moe->spread) { /* experts live once */
            moe->slot[i] =
                expert < 0 ? -1 : p->replica_slot[p->replica_begin[layer * p->E + expert]];
        }
    }
}

static tt_status route(tt_moe *moe, int64_t layer, int64_t T, const float *x)
{
    tt_span span = tt_span_begin(TT_PHASE_ROUTE, "route");
    const tt_linear *router = &moe->layer[layer].router;
    const tt_rows rows = tt_rows_plain(x, moe->H); /* choices are made in f32 */
    tt_linear_run(router, moe->compute, "router", moe->logits, moe->E, &rows, T);
    route_task task = {moe, layer, T};
    tt_stream_run(moe->compute, "choose", route_part, &task);
    choose_slots(moe, layer, T);
    moe->bytes_read += tt_linear_bytes(router);
    tt_span_end(&span, tt_linear_bytes(router));
    for (int i = 0; i < tt_stream_n_threads(moe->compute); i++) {
        /* Messages are per thread, so this one says it anew. */
        TT_CHECK(
            moe->route_status[i] == TT_OK, moe->route_status[i],
            "layer %lld: a router score is not a number: the weights or activations hold NaN or Inf",
            (long long)layer);
    }
    return TT_OK;
}

/* ---- one MoE layer ---- */

void tt_moe_new_step(tt_moe *moe)
{
    moe->n_steps++;
}

tt_status tt_moe_begin(tt_moe *moe, int handle, int64_t layer, int64_t T, const float *x,
                       tt_status mine)
{
    tti_moe_flight *flight = &moe->flight[handle];
    TT_ASSERT(!flight->active && moe->layer[layer].is_moe);
    if (T > 0 && mine == TT_OK) {
        mine = route(moe, layer, T, x);
    }
    /* A rank that failed still takes part: its peers learn of it from the headers. */
    int64_t T_sent = mine == TT_OK ? T : 0;
    flight->active = true;
    flight->layer = layer;
    flight->T = T_sent;
    flight->x = x;
    flight->shared_done = 0;
    flight->n_groups = 0;
    flight->all_here = false;
    flight->chunks_done = 0;
    tt_span span = tt_span_begin(TT_PHASE_DISPATCH, "dispatch");
    TT_TRY(tt_exchange_prepare(moe->exchange, handle, T_sent, moe->slot, moe->weight, mine));
    TT_TRY(tt_exchange_dispatch_begin(moe->exchange, handle, x, moe->H, moe->compute));
    tt_span_end(&span, (uint64_t)T_sent * tt_wire_row_bytes(moe->layout->wire, moe->H));
    return mine;
}

/* Time with nothing to compute is a span of its own. */
static void begin_waiting(tt_moe *moe, bool for_results)
{
    if (!moe->is_waiting) {
        moe->is_waiting = true;
        moe->waiting = for_results ? tt_span_begin(TT_PHASE_WAIT_COMBINE, "wait for results")
                                   : tt_span_begin(TT_PHASE_WAIT_DISPATCH, "wait for rows");
    }
}

static void end_waiting(tt_moe *moe)
{
    if (moe->is_waiting) {
        moe->is_waiting = false;
        tt_span_end(&moe->waiting, 0);
    }
}

typedef enum outcome {
    OUTCOME_WORKED,
    OUTCOME_IDLE, /* it waits for rows or results */
    OUTCOME_DONE  /* its results are here */
} outcome;

static tt_status run(tt_moe *moe, int handle, tti_moe_which which)
{
    end_waiting(moe);
    return tti_moe_run_experts(moe, handle, &moe->flight[handle], which);
}

/* One piece of work, or one poll. */
static tt_status advance(tt_moe *moe, int handle, outcome *outcome_out)
{
    tti_moe_flight *flight = &moe->flight[handle];
    bool splits = moe->layout->etp == 1; /* else all members must compute the same rows at once:
                                          * chunk after chunk */
    tt_exchange_state state;
    *outcome_out = OUTCOME_WORKED;
    TT_TRY(tt_exchange_poll(moe->exchange, handle, &state));
    if (!flight->all_here) {
        tt_exchange_rows *group = flight->group;
        while (flight->n_groups < moe->max_groups &&
               tt_exchange_next_ready(moe->exchange, handle, &group[flight->n_groups])) {
            flight->n_groups++;
        }
        if (state.n_arrived > flight->chunks_done) { /* a chunk's results leave while the next
                                                      * one is computed */
            flight->chunks_done++;
            flight->all_here = state.all_arrived && flight->chunks_done == state.n_arrived;
            return run(moe, handle, splits ? TTI_MOE_FAR : TTI_MOE_ALL);
        }
    } else if (flight->n_groups > 0) {
        return run(moe, handle, TTI_MOE_ALL);
    }
    if (tti_moe_has_shared_piece(moe, flight)) {
        end_waiting(moe);
        tti_moe_shared_piece(moe, flight);
        return TT_OK;
    }
    if (!flight->all_here && flight->n_groups > 0 && splits) {
        return run(moe, handle, TTI_MOE_ONE_SLOT);
    }
    *outcome_out = flight->all_here && state.all_returned ? OUTCOME_DONE : OUTCOME_IDLE;
    return TT_OK;
}

tt_status tt_moe_end(tt_moe *moe, int handle, int other, float *y)
{
    tti_moe_flight *flight = &moe->flight[handle];
    tt_spin spin = {0};
    for (outcome first = OUTCOME_WORKED; first != OUTCOME_DONE;) {
        TT_TRY(advance(moe, handle, &first));
        outcome second = OUTCOME_IDLE;
        /* members of one expert would have to choose alike */
        if (first == OUTCOME_IDLE && other >= 0 && moe->layout->etp == 1) {
            TT_TRY(advance(moe, other, &second));
        }
        if (first == OUTCOME_IDLE && second != OUTCOME_WORKED) {
            begin_waiting(moe, flight->all_here);
            tt_spin_once(&spin);
        } else {
            spin.n = 0;
        }
    }
    end_waiting(moe);
    if (other >= 0) {
        tt_exchange_rest(moe->exchange, other);
    }
    tt_span span = tt_span_begin(TT_PHASE_COMBINE, "combine");
    TT_TRY(tt_exchange_combine_end(moe->exchange, handle, y, moe->H, moe->compute));
    if (flight->T > 0 && moe->layer[flight->layer].shared.F > 0) {
        tti_moe_add_shared(moe, flight, y);
    }
    flight->active = false;
    tt_span_end(&span, (uint64_t)flight->T * (uint64_t)moe->K *
                           tt_wire_row_bytes(moe->layout->wire_back, moe->H));
    return TT_OK;
}
