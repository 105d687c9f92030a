/* engine.c - life of an engine, and the step: vote, admissions, forward, output, commit. */
#include "balancer.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/trace.h"

/* What the step's vote carries; each value is the maximum over ranks. */
typedef enum vote_field {
    VOTE_WORK,          /* some DP group has sequences */
    VOTE_CONTROL_BYTES, /* length of rank 0's control message */
    VOTE_ROWS,          /* of one DP group's step, about: what rank 0 hands out with the control
                         * message counts at rank 0 */
    VOTE_STOP,
    VOTE_STEP_NS,       /* what the step before took, 0: there was none */
    VOTE_NOT_WAITED_NS, /* minus what it waited for messages: the least over ranks */
    VOTE_TRANSFER_BUSY, /* tti_balancer_word */
    VOTE_TRANSFER_FAILED,
    VOTE_BALANCE_ORDER,
    VOTE_FIELDS
} vote_field;

static const double NS_PER_S = 1e9;

/* ---- life ---- */

static tt_status create_local(tt_engine *engine, const tt_placement *placement,
                              tt_load_params *load)
{
    const tt_arch *arch = engine->arch;
    TT_TRY(placement ? tt_placement_copy(placement, &engine->placement)
                     : tt_placement_linear(arch->L, arch->E, engine->layout->n_groups,
                                           engine->layout->slots_per_group, &engine->placement));
    TT_TRY(tt_kv_create(arch, engine->layout, engine->rank, load->node, &engine->kv));
    TT_TRY(tti_schedule_init(&engine->schedule, engine->layout, engine->role->dp_id >= 0));
    TT_TRY(tti_admission_init(engine));
    TT_TRY(tti_trunk_make_buffers(engine, load->node));
    return tti_trunk_load(engine, load);
}

static tt_status create_rooms(tt_engine *engine, const tt_engine_params *params,
                              tt_load_params *load)
{
    const tt_layout *layout = engine->layout;
    TT_TRY(tt_world_agree(engine->world,
                          tt_load_told(load, create_local(engine, params->placement, load))));
    tt_attention_params attention = {engine->model, layout,          engine->world,
                                     engine->kv,    engine->compute, load};
    TT_TRY(tt_attention_create(&attention, &engine->attention));
    tt_moe_params moe = {engine->model,     layout,          engine->world,
                         engine->placement, engine->compute, load};
    TT_TRY(tt_moe_create(&moe, &engine->moe));
    int64_t rows = layout->max_rows_rank * engine->arch->H;
    int64_t logits = TT_HEAD_ROWS * tt_layout_widest(engine->arch->V, layout->tp);
    int64_t tokens = TT_HEAD_ROWS * engine->arch->H;
    int64_t most = rows > logits ? rows : logits;
    int n = engine->role->dp_id >= 0 ? layout->tp : 0;
    const int *member = n ? layout->attention_rank + engine->role->dp_id * layout->tp : NULL;
    TT_TRY(tt_gather_create(engine->world, member, n, most > tokens ? most : tokens,
                            &engine->row_gather));
    return params->balance && layout->staged_slots > 0
               ? tti_balancer_create(engine, params->balance, load->node, &engine->balancer)
               : TT_OK;
}

tt_status tt_engine_create(const tt_engine_params *params, tt_engine **engine_out)
{
    tt_engine *engine = calloc(1, sizeof(*engine));
    tt_status st = tt_world_agree(
        params->world, engine ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for the engine"));
    if (st != TT_OK || !engine) {
        free(engine);
        return st;
    }
    engine->model = params->model;
    engine->arch = tt_model_arch(params->model);
    engine->layout = params->layout;
    engine->world = params->world;
    engine->compute = params->compute;
    engine->rank = tt_world_rank(params->world);
    engine->role = &params->layout->role[engine->rank];
    engine->n_known_ids = params->n_known_ids;
    engine->hook = params->hook;
    engine->hook_arg = params->hook_arg;
    tti_loading loading;
    st = tti_loading_begin(&loading, params, engine->role->dp_id >= 0);
    if (st == TT_OK) {
        st = create_rooms(engine, params, &loading.load);
    }
    if (st == TT_OK && loading.share) {
        tt_share_populate(loading.share);
    }
    tti_loading_end(&loading, &engine->figures, &engine->share);
    if (st != TT_OK) {
        tt_engine_destroy(&engine);
        return st;
    }
    *engine_out = engine;
    return TT_OK;
}

void tt_engine_destroy(tt_engine **engine_ptr)
{
    tt_engine *engine = *engine_ptr;
    if (!engine) {
        return;
    }
    tti_balancer_destroy(&engine->balancer);
    tt_gather_destroy(&engine->row_gather);
    tt_moe_destroy(&engine->moe);
    tt_attention_destroy(&engine->attention);
    tti_schedule_fini(&engine->schedule);
    tti_admission_fini(engine);
    tti_trunk_free(engine);
    tt_share_destroy(&engine->share);
    tt_kv_destroy(&engine->kv);
    tt_placement_destroy(&engine->placement);
    free(engine);
    *engine_ptr = NULL;
}

/* ---- steps ---- */

static tt_status vote(tt_engine *engine, bool stop, size_t control_bytes, int64_t *result)
{
    int64_t mine[VOTE_FIELDS] = {0};
    mine[VOTE_WORK] = engine->schedule.n_active > 0;
    mine[VOTE_CONTROL_BYTES] = (int64_t)control_bytes;
    mine[VOTE_ROWS] =
        tti_schedule_rows(&engine->schedule) + (control_bytes > 0 ? tti_admission_rows(engine) : 0);
    mine[VOTE_STOP] = stop;
    mine[VOTE_STEP_NS] = (int64_t)engine->step_ns;
    mine[VOTE_NOT_WAITED_NS] = -(int64_t)engine->waited_ns;
    if (engine->balancer) {
        tti_balancer_word word;
        tti_balancer_say(engine->balancer, &word);
        mine[VOTE_TRANSFER_BUSY] = word.busy;
        mine[VOTE_TRANSFER_FAILED] = word.failed;
        mine[VOTE_BALANCE_ORDER] = word.order;
    }
    engine->step_ns = 0;
    tt_span span = tt_span_begin(TT_PHASE_HEADER, "vote");
    TT_TRY(tt_vote_begin(engine->world, mine, VOTE_FIELDS));
    TT_TRY(tt_vote_end(engine->world, result));
    tt_span_end(&span, 0);
    return TT_OK;
}

/* Nanoseconds that this rank has waited for rows and results so far. */
static uint64_t waited_so_far(void)
{
    tt_phase_total rows, results;
    tt_phase_get(TT_PHASE_WAIT_DISPATCH, &rows);
    tt_phase_get(TT_PHASE_WAIT_COMBINE, &results);
    return rows.ns + results.ns;
}

/* In how many parts an agreed step is computed: the same on all ranks. */
static int count_parts(tt_engine *engine, int64_t agreed_rows)
{
    const int64_t least = engine->layout->overlap_rows;
    if (least < 0) {
        return tti_overlap_choose(&engine->overlap, agreed_rows);
    }
    return least > 0 && agreed_rows >= least ? TTI_MAX_PARTS : 1;
}

/* Forward, output and commit of one agreed step. */
static tt_status run_step(tt_engine *engine, int64_t agreed_rows, tt_output_fn *output, void *arg)
{
    bool attends = engine->role->dp_id >= 0;
    tti_schedule *schedule = &engine->schedule;
    if (attends) {
        tti_schedule_plan(schedule);
    }
    tti_schedule_cut(schedule, count_parts(engine, agreed_rows));
    TT_TRY(engine_forward(engine, TT_OK));
    if (attends) {
        TT_TRY(tti_output_run(engine, output, arg));
    }
    if (engine->rank == 0) {
        TT_TRY(tti_output_collect(engine, output, arg));
    }
    if (attends && schedule->batch.T > 0) {
        for (int64_t s = 0; s < schedule->batch.n_sequences; s++) {
            const tt_batch_sequence *part = &schedule->batch_sequence[s];
            bool is_prompt = part->position < schedule->of_batch[s]->n_prompt;
            *(is_prompt ? &engine->figures.prompt_rows : &engine->figures.decode_rows) +=
                (uint64_t)part->n_rows;
        }
        tti_schedule_commit(schedule, engine->head_token, engine->kv, engine->arch->V);
        for (int i = 0; i < schedule->n_parts; i++) { /* each part reads all weights */
            engine->trunk_bytes_read +=
                schedule->part[i].batch.T > 0 ? tt_attention_weight_bytes(engine->attention) : 0;
        }
    }
    return TT_OK;
}

static tt_status take_step(tt_engine *engine, bool stop, tt_output_fn *output, void *arg,
                           bool *stopped_out, bool *worked_out)
{
    int64_t agreed[VOTE_FIELDS];
    size_t control_bytes = engine->rank == 0 && !stop ? tti_admission_write(engine) : 0;
    TT_TRY(vote(engine, stop, control_bytes, agreed));
    *stopped_out = agreed[VOTE_STOP] != 0;
    *worked_out = false;
    if (*stopped_out) {
        return TT_OK;
    }
    if (agreed[VOTE_STEP_NS] > 0) {
        tti_overlap_took(&engine->overlap, (double)agreed[VOTE_STEP_NS] / NS_PER_S,
                         -(double)agreed[VOTE_NOT_WAITED_NS] / NS_PER_S);
    }
    /* From here on time counts: before, a rank may have waited for work. */
    const uint64_t begin_ns = tt_now_ns(), waited_ns = waited_so_far();
    tt_span span = tt_span_begin(TT_PHASE_STEP, "step");
    if (engine->balancer) {
        const tti_balancer_word word = {agreed[VOTE_TRANSFER_BUSY], agreed[VOTE_TRANSFER_FAILED],
                                        agreed[VOTE_BALANCE_ORDER]};
        TT_TRY(tti_balancer_act(engine->balancer, &word));
    }
    if (agreed[VOTE_CONTROL_BYTES] > 0) {
        size_t bytes = (size_t)agreed[VOTE_CONTROL_BYTES];
        TT_CHECK(bytes <= engine->control_bytes, TT_ERR_PROTOCOL, "a control message of %zu bytes",
                 bytes);
        TT_TRY(tt_world_bcast(engine->world, engine->control, bytes, 0));
        TT_TRY(tti_admission_apply(engine, engine->control, bytes));
    }
    if (agreed[VOTE_WORK] != 0 || agreed[VOTE_CONTROL_BYTES] > 0) {
        TT_TRY(run_step(engine, agreed[VOTE_ROWS], output, arg));
        *worked_out = true;
        if (engine->balancer) {
            tti_balancer_stepped(engine->balancer);
        }
        engine->step_ns = tt_now_ns() - begin_ns;
        engine->waited_ns = waited_so_far() - waited_ns;
        engine->figures.steps++;
        engine->figures.steps_in_parts += engine->schedule.n_parts > 1;
        engine->figures.step_s += (double)engine->step_ns / NS_PER_S;
    }
    tt_span_end(&span, 0);
    return TT_OK;
}

static void poll_world(void *arg)
{
    tt_world_progress(arg);
}

/* One step as every rank takes it; the stream may serve other engines before and after it. A rank
 * that cannot go on tells the others why: else they would wait for it. */
static tt_status step(tt_engine *engine, bool stop, tt_output_fn *output, void *arg,
                      bool *stopped_out, bool *worked_out)
{
    const bool is_polled = tt_world_progress_mode(engine->world) == TT_PROGRESS_POLLED;
    if (is_polled) {
        tt_stream_set_hook(engine->compute, poll_world, engine->world);
    }
    tt_status st = take_step(engine, stop, output, arg, stopped_out, worked_out);
    if (is_polled) {
        tt_stream_set_hook(engine->compute, NULL, NULL);
    }
    if (st != TT_OK) {
        tt_world_fail(engine->world, st);
    }
    return st;
}

tt_status tt_engine_step(tt_engine *engine, tt_output_fn *output, void *arg, bool *busy_out)
{
    TT_CHECK(engine->rank == 0, TT_ERR_STATE, "steps are driven by rank 0");
    bool stopped, worked;
    TT_TRY(step(engine, false, output, arg, &stopped, &worked));
    *busy_out = engine->admission.first != NULL || engine->admission.n_admitted > 0;
    return TT_OK;
}

tt_status tt_engine_follow(tt_engine *engine)
{
    TT_CHECK(engine->rank != 0, TT_ERR_STATE, "rank 0 drives the others");
    for (bool stopped = false, worked; !stopped;) {
        TT_TRY(step(engine, false, NULL, NULL, &stopped, &worked));
    }
    return TT_OK;
}

tt_status tt_engine_stop(tt_engine *engine)
{
    TT_CHECK(engine->rank == 0, TT_ERR_STATE, "rank 0 stops the others");
    bool stopped, worked;
    return step(engine, true, NULL, NULL, &stopped, &worked);
}

tt_engine_figures tt_engine_get_figures(const tt_engine *engine)
{
    tt_engine_figures figures = engine->figures;
    const tt_phase exchange[] = {TT_PHASE_DISPATCH, TT_PHASE_WAIT_DISPATCH, TT_PHASE_WAIT_COMBINE,
                                 TT_PHASE_COMBINE};
    for (size_t i = 0; i < sizeof(exchange) / sizeof(exchange[0]); i++) {
        tt_phase_total total;
        tt_phase_get(exchange[i], &total);
        figures.exchange_ns += total.ns;
    }
    figures.kv_bytes_read = tt_attention_kv_bytes_read(engine->attention);
    figures.bytes_read =
        engine->trunk_bytes_read + tt_moe_bytes_read(engine->moe) + figures.kv_bytes_read;
    figures.experts_touched = tt_moe_experts_touched(engine->moe);
    if (engine->balancer) {
        figures.balance = tti_balancer_get_figures(engine->balancer);
    }
    return figures;
}
