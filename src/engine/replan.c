/* replan.c - rank 0's planning: the next placement for recent loads, and whether it pays.
 *
 * It runs on a thread of its own, while steps go on; the placement it starts from does not change
 * meanwhile. A plan pays if what it takes off the busiest groups is worth more, over the time that
 * the loads may last, than moving the weights costs. Loads are taken to last as long as it took to
 * see them, some times over; a move costs memory traffic on both sides and a piece of the step in
 * which it is taken. */
#include "balancer.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"
#include "tutti/trace.h"

/* Guessed: windows that a load lasts; what a rank moves in memory while its cores compute; how often
 * a byte of a move is moved (out, in, into the slot, and what steps lose by it). */
static const double lasting_windows = 16.0, move_bytes_per_s = 4e9, passes = 4.0;
/* A plan that takes less than this off a step is not worth a line in the log. */
static const double least_gain = 0.02;

tt_status tti_replan_init(tti_replan *r, const tt_engine *engine, const tt_engine_balance *settings,
                          double slot_bytes)
{
    const tt_arch *arch = engine->arch;
    const tt_layout *layout = engine->layout;
    const tt_stream_params thread = {.name = "balancer", .n_threads = 1};
    const int64_t linear = arch->E / layout->n_groups;
    int64_t n_moe = 0;
    for (int64_t l = 0; l < arch->L; l++) {
        n_moe += arch->layer[l].is_moe;
    }
    r->engine = engine;
    r->slot_bytes = slot_bytes;
    r->window_steps = settings->window_steps;
    r->max_moves = settings->max_moves;
    if (r->max_moves == 0) { /* each spare slot once, and a pair of each layer's experts */
        r->max_moves = n_moe * (2 + layout->n_groups * (layout->slots_per_group - linear));
    }
    r->load = calloc((size_t)(arch->L * arch->E) + 1, sizeof(*r->load));
    TT_CHECK(r->load, TT_ERR_NOMEM, "no memory to plan for %lld experts", (long long)arch->E);
    return tt_stream_create(&thread, &r->thread);
}

void tti_replan_fini(tti_replan *r)
{
    tt_stream_destroy(&r->thread); /* waits for a plan under way */
    tt_placement_destroy(&r->goal);
    free(r->load);
    r->load = NULL;
}

/* Rows of the busiest group, summed over layers, as the placement shares them and as ranks level
 * them batch by batch: in between, so their mean. */
static tt_status sum_of_most(const tti_replan *r, const tt_placement *p, double *sum_out)
{
    double sum = 0.0;
    for (int64_t l = 0; l < p->L; l++) {
        double shared = 0.0, levelled = 0.0;
        TT_TRY(tt_balance_most_rows(p, l, r->load + l * p->E, false, &shared));
        TT_TRY(tt_balance_most_rows(p, l, r->load + l * p->E, true, &levelled));
        sum += (shared + levelled) / 2.0;
    }
    *sum_out = sum;
    return TT_OK;
}

static tt_status is_worth_it(const tti_replan *r, const tt_placement *goal, bool *is_out)
{
    const tt_placement *now = r->engine->placement;
    double before = 0.0, after = 0.0;
    TT_TRY(sum_of_most(r, now, &before));
    TT_TRY(sum_of_most(r, goal, &after));
    const double gain = before > 0.0 ? (before - after) / before * r->rows_part : 0.0;
    const double n_steps = lasting_windows * (double)r->window_steps;
    const double moves = (double)tt_balance_moves(now, goal);
    const double cost_s = moves * r->slot_bytes * passes / move_bytes_per_s / now->n_groups;
    *is_out = moves > 0.0 && gain >= least_gain && gain * r->step_s * n_steps > cost_s;
    tt_log(TT_LOG_INFO,
           "balancing: %.0f moves would take %.1f %% off a step of %.2f ms and cost %.1f ms: %s",
           moves, 100.0 * gain, 1e3 * r->step_s, 1e3 * cost_s, *is_out ? "done" : "not worth it");
    return TT_OK;
}

static tt_status plan(tti_replan *r)
{
    const tt_placement *now = r->engine->placement;
    const tt_balance_params params = {.policy = TT_BALANCE_INCREMENTAL,
                                      .L = now->L,
                                      .E = now->E,
                                      .n_groups = now->n_groups,
                                      .slots_per_group = now->slots_per_group,
                                      .max_moves = r->max_moves,
                                      .current = now};
    tt_placement *goal = NULL;
    bool is_wanted = false;
    TT_TRY(tt_balance_plan(&params, r->load, &goal));
    const tt_status st = is_worth_it(r, goal, &is_wanted);
    if (st != TT_OK || !is_wanted) {
        tt_placement_destroy(&goal);
    }
    r->goal = goal;
    return st;
}

static void plan_task(void *arg, int thread_id, int n_threads)
{
    (void)thread_id;
    (void)n_threads;
    if (plan(arg) != TT_OK) { /* no reason to end a run */
        tt_log(TT_LOG_WARN, "balancing: %s: experts stay where they are", tt_status_message());
    }
}

static double seconds_of(tt_phase phase)
{
    tt_phase_total total;
    tt_phase_get(phase, &total);
    return (double)total.ns * 1e-9;
}

void tti_replan_begin(tti_replan *r, const double *load)
{
    const tt_engine *engine = r->engine;
    const double steps = engine->figures.steps > 0 ? (double)engine->figures.steps : 1.0;
    /* Who has fewer rows waits for the others: on every rank work and waits together. */
    const double rows_s = seconds_of(TT_PHASE_EXPERTS) + seconds_of(TT_PHASE_WAIT_DISPATCH) +
                          seconds_of(TT_PHASE_WAIT_COMBINE);
    r->step_s = engine->figures.step_s / steps;
    r->rows_part = engine->figures.step_s > 0.0 ? rows_s / engine->figures.step_s : 0.0;
    r->rows_part = r->rows_part < 1.0 ? r->rows_part : 1.0;
    memcpy(r->load, load, (size_t)(engine->arch->L * engine->arch->E) * sizeof(*load));
    tt_stream_enqueue(r->thread, "plan", plan_task, r);
    tt_stream_record(r->thread, &r->done);
}

bool tti_replan_is_done(tti_replan *r)
{
    return tt_event_query(&r->done);
}
