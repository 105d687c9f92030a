/* planner.c - placements from loads: the policies, layer by layer, and what a placement gives. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "balance_internal.h"

static const char *const policy_names[TT_BALANCE_POLICY_COUNT] = {"linear", "pack", "replicate",
                                                                  "bytes", "incremental"};

const char *tt_balance_policy_name(tt_balance_policy policy)
{
    return policy_names[policy];
}

tt_status tt_balance_policy_find(const char *name, tt_balance_policy *policy_out)
{
    for (int i = 0; i < TT_BALANCE_POLICY_COUNT; i++) {
        if (strcmp(name, policy_names[i]) == 0) {
            *policy_out = (tt_balance_policy)i;
            return TT_OK;
        }
    }
    return TT_FAIL(TT_ERR_USAGE,
                   "policy %s: not one of linear, pack, replicate, bytes, incremental", name);
}

tt_status tt_balance_check_load(const double *load, int64_t L, int64_t E)
{
    for (int64_t i = 0; i < L * E; i++) {
        TT_CHECK(isfinite(load[i]) && load[i] >= 0.0, TT_ERR_ARG,
                 "layer %" PRId64 ": the load of expert %" PRId64 " is %g", i / E, i % E, load[i]);
    }
    return TT_OK;
}

static tt_status check_params(const tt_balance_params *p)
{
    const tt_placement *c = p->current;
    TT_CHECK(p->L >= 0 && p->E > 0 && p->n_groups > 0, TT_ERR_ARG,
             "%" PRId64 " layers of %" PRId64 " experts on %d groups", p->L, p->E, p->n_groups);
    TT_CHECK(p->slots_per_group <= p->E && p->slots_per_group > 0 &&
                 p->slots_per_group >= (p->E + p->n_groups - 1) / p->n_groups,
             TT_ERR_ARG,
             "%" PRId64 " slots in each of %d groups for %" PRId64 " experts: from %" PRId64
             " to %" PRId64 " are possible",
             p->slots_per_group, p->n_groups, p->E, (p->E + p->n_groups - 1) / p->n_groups, p->E);
    TT_CHECK(p->n_groups * p->slots_per_group <= INT32_MAX, TT_ERR_ARG,
             "%d groups of %" PRId64 " slots are too many", p->n_groups, p->slots_per_group);
    TT_CHECK(!c || (c->L == p->L && c->E == p->E && c->n_groups == p->n_groups &&
                    c->slots_per_group == p->slots_per_group),
             TT_ERR_ARG, "the current placement is of another model or layout");
    TT_CHECK(c || p->policy != TT_BALANCE_INCREMENTAL, TT_ERR_ARG,
             "incremental planning needs a current placement");
    TT_CHECK(p->policy != TT_BALANCE_BYTES || (p->steps > 0.0 && isfinite(p->steps) &&
                                               p->rows_of_read >= 0.0 && isfinite(p->rows_of_read)),
             TT_ERR_ARG, "%g steps, %g rows for the price of a read", p->steps, p->rows_of_read);
    return TT_OK;
}

/* ---- one layer ---- */

/* What an expert costs in a step of `rows` rows on average, in rows: reading its weights if it is
 * touched at all (arrivals are taken as independent), or its products. */
static double cost_in_rows(double rows, double rows_of_read)
{
    return fmax(rows_of_read * -expm1(-rows), rows);
}

/* Consecutive experts, as tt_placement_linear has them. */
static void place_linear(tti_layer_plan *plan)
{
    const int64_t base = plan->E / plan->n_groups, extra = plan->E % plan->n_groups;
    int32_t e = 0;
    for (int g = 0; g < plan->n_groups; g++) {
        for (int64_t i = 0; i < base + (g < extra); i++) {
            tti_layer_plan_put(plan, g * plan->S + i, e++);
        }
    }
}

/* Heaviest first into the group with least that has room. */
static void place_packed(tti_layer_plan *plan, const int32_t *by_load)
{
    for (int64_t i = 0; i < plan->E; i++) {
        int64_t slot = -1;
        for (int g = 0; g < plan->n_groups; g++) {
            const int64_t empty = tti_layer_plan_empty(plan, g);
            if (empty >= 0 &&
                (slot < 0 || plan->group_rows[g] < plan->group_rows[slot / plan->S])) {
                slot = empty;
            }
        }
        tti_layer_plan_put(plan, slot, by_load[i]);
        plan->group_rows[slot / plan->S] += plan->load[by_load[i]];
    }
}

/* Empty slots, one after the other: each gets a copy of the expert that most rows of a copy come
 * to, in the group with least that has room and lacks it. */
static void fill_empty(tti_layer_plan *plan, double copy_above)
{
    const int64_t n = plan->n_groups * plan->S;
    for (int64_t i = 0; i < n; i++) {
        int64_t best = -1, best_slot = -1;
        double best_rows = 0.0;
        tti_level(plan);
        for (int64_t e = 0; e < plan->E; e++) {
            const double rows = plan->load[e] / tti_layer_plan_replicas(plan, e);
            int64_t slot = -1;
            if (rows <= best_rows || rows <= copy_above) {
                continue;
            }
            for (int g = 0; g < plan->n_groups; g++) {
                const int64_t empty = tti_layer_plan_empty(plan, g);
                if (empty >= 0 && plan->slot_of[e * plan->n_groups + g] < 0 &&
                    (slot < 0 || plan->group_rows[g] < plan->group_rows[slot / plan->S])) {
                    slot = empty;
                }
            }
            if (slot >= 0) {
                best = e;
                best_rows = rows;
                best_slot = slot;
            }
        }
        if (best < 0) {
            break;
        }
        tti_layer_plan_put(plan, best_slot, (int32_t)best);
    }
}

/* The published balancer's slots; an expert that a group got twice stands there once. */
static tt_status place_replicated(tti_layer_plan *plan, const tt_balance_params *p)
{
    const int64_t n = plan->n_groups * plan->S;
    int32_t *expert = calloc((size_t)n + 1, sizeof(*expert));
    TT_CHECK(expert, TT_ERR_NOMEM, "no memory to place experts in %" PRId64 " slots", n);
    tt_balance_shape shape = {.E = plan->E,
                              .n_slots = n,
                              .n_sets = p->n_sets > 0 ? p->n_sets : 1,
                              .n_nodes = p->n_nodes > 0 ? p->n_nodes : 1,
                              .n_ranks = plan->n_groups};
    if (shape.n_ranks % shape.n_nodes != 0 || shape.E % shape.n_sets != 0) {
        shape.n_sets = shape.n_nodes = 1; /* counts that the hierarchy cannot have */
    }
    const tt_status st = tt_balance_slots(plan->load, &shape, expert, NULL);
    for (int64_t s = 0; st == TT_OK && s < n; s++) {
        if (plan->slot_of[expert[s] * (int64_t)plan->n_groups + s / plan->S] < 0) {
            tti_layer_plan_put(plan, s, expert[s]);
        }
    }
    free(expert);
    return st;
}

typedef struct weighted {
    double load;
    int32_t expert;
} weighted;

static int compare_weighted(const void *a, const void *b)
{
    const weighted *p = a, *q = b;
    if (p->load != q->load) {
        return p->load > q->load ? -1 : 1;
    }
    return (p->expert > q->expert) - (p->expert < q->expert);
}

static tt_status sort_by_load(const tti_layer_plan *plan, int32_t *by_load)
{
    weighted *w = calloc((size_t)plan->E + 1, sizeof(*w));
    TT_CHECK(w, TT_ERR_NOMEM, "no memory to sort %" PRId64 " experts", plan->E);
    for (int64_t e = 0; e < plan->E; e++) {
        w[e] = (weighted){plan->load[e], (int32_t)e};
    }
    qsort(w, (size_t)plan->E, sizeof(*w), compare_weighted);
    for (int64_t i = 0; i < plan->E; i++) {
        by_load[i] = w[i].expert;
    }
    free(w);
    return TT_OK;
}

static tt_status place_by_bytes(tti_layer_plan *plan, const tt_balance_params *p)
{
    int32_t *by_load = calloc((size_t)plan->E + 1, sizeof(*by_load));
    TT_CHECK(by_load, TT_ERR_NOMEM, "no memory to place %" PRId64 " experts", plan->E);
    for (int64_t e = 0; e < plan->E; e++) {
        plan->load[e] = cost_in_rows(plan->load[e] / p->steps, p->rows_of_read);
    }
    tt_status st = sort_by_load(plan, by_load);
    if (st == TT_OK) {
        place_packed(plan, by_load);
        /* A copy pays for its reads from where each has more rows than those cost. */
        fill_empty(plan, 2.0 * p->rows_of_read);
    }
    free(by_load);
    return st;
}

static tt_status place_pack(tti_layer_plan *plan)
{
    int32_t *by_load = calloc((size_t)plan->E + 1, sizeof(*by_load));
    TT_CHECK(by_load, TT_ERR_NOMEM, "no memory to place %" PRId64 " experts", plan->E);
    const tt_status st = sort_by_load(plan, by_load);
    if (st == TT_OK) {
        place_packed(plan, by_load);
    }
    free(by_load);
    return st;
}

/* A layer as a placement has it. */
static void place_as(tti_layer_plan *plan, const tt_placement *placement, int64_t layer)
{
    tti_layer_plan_place(plan, placement->expert_of_slot + layer * plan->n_groups * plan->S);
}

/* Experts that a group keeps go back to the slots that they have. */
static void keep_slots(tti_layer_plan *plan, const tt_placement *current, int64_t layer)
{
    const int64_t n = plan->n_groups * plan->S;
    for (int64_t s = 0; current && s < n; s++) {
        const int32_t expert = current->expert_of_slot[layer * n + s];
        const int64_t group = s / plan->S;
        const int64_t at =
            expert < 0 ? -1 : plan->slot_of[expert * (int64_t)plan->n_groups + group];
        if (at >= 0 && at != s) {
            const int32_t other = plan->slot[s];
            tti_layer_plan_put(plan, at, -1);
            tti_layer_plan_put(plan, s, expert);
            tti_layer_plan_put(plan, at, other);
        }
    }
}

static bool is_level(const tti_layer_plan *plan)
{
    double total = 0.0;
    for (int64_t e = 0; e < plan->E; e++) {
        total += plan->load[e];
    }
    return tti_most_rows(plan) * plan->n_groups <= total * (1.0 + 1e-6);
}

/* The slots of a policy that starts from nothing. */
static tt_status place_afresh(tti_layer_plan *plan, const tt_balance_params *p)
{
    int64_t moves = INT64_MAX;
    const double any = 0.0;
    tti_layer_plan_clear(plan);
    memset(plan->group_rows, 0, (size_t)plan->n_groups * sizeof(*plan->group_rows));
    switch (p->policy) {
    case TT_BALANCE_PACK:
        return place_pack(plan);
    case TT_BALANCE_REPLICATE:
        TT_TRY(place_replicated(plan, p));
        fill_empty(plan, any);
        tti_level(plan);
        tti_improve(plan, &moves);
        return TT_OK;
    case TT_BALANCE_BYTES:
        return place_by_bytes(plan, p);
    case TT_BALANCE_LINEAR:
    case TT_BALANCE_INCREMENTAL: /* begins with current */
    case TT_BALANCE_POLICY_COUNT:
        break;
    }
    place_linear(plan);
    return TT_OK;
}

/* Plans a layer: its slots. Greedy packing can be worse than no balancer; then that is it. */
static tt_status place_layer(tti_layer_plan *plan, const tt_balance_params *p, int64_t layer)
{
    if (p->current) {
        place_as(plan, p->current, layer);
    } else {
        place_linear(plan);
    }
    tti_level(plan);
    if (p->policy != TT_BALANCE_LINEAR && is_level(plan)) {
        return TT_OK;
    }
    TT_TRY(place_afresh(plan, p));
    tti_level(plan);
    const double most = tti_most_rows(plan);
    if (p->policy == TT_BALANCE_PACK || p->policy == TT_BALANCE_REPLICATE) {
        int32_t *slots = calloc((size_t)(plan->n_groups * plan->S) + 1, sizeof(*slots));
        TT_CHECK(slots, TT_ERR_NOMEM, "no memory to plan a layer");
        memcpy(slots, plan->slot, (size_t)(plan->n_groups * plan->S) * sizeof(*slots));
        tti_layer_plan_clear(plan);
        place_linear(plan);
        tti_level(plan);
        if (tti_most_rows(plan) > most) {
            tti_layer_plan_place(plan, slots);
        }
        free(slots);
    }
    keep_slots(plan, p->current, layer);
    return TT_OK;
}

/* ---- all layers ---- */

/* Room for a placement of these counts. */
static tt_status alloc_like(const tt_balance_params *p, tt_placement **placement_out)
{
    TT_TRY(tti_placement_alloc(p->L, p->E, p->n_groups, p->slots_per_group, placement_out));
    (*placement_out)->epoch = p->current ? p->current->epoch + 1 : 0;
    return TT_OK;
}

/* Improves the layers of `current`, the one whose busiest group has most above the mean first. */
static tt_status plan_in_moves(const tt_balance_params *p, const double *load, tti_layer_plan *all)
{
    double *excess = calloc((size_t)p->L + 1, sizeof(*excess));
    TT_CHECK(excess, TT_ERR_NOMEM, "no memory to plan %" PRId64 " layers", p->L);
    for (int64_t l = 0; l < p->L; l++) {
        double total = 0.0;
        for (int64_t e = 0; e < p->E; e++) {
            total += load[l * p->E + e];
        }
        place_as(&all[l], p->current, l);
        tti_level(&all[l]);
        excess[l] = tti_most_rows(&all[l]) - total / p->n_groups;
    }
    for (int64_t left = p->max_moves; left > 0;) {
        int64_t worst = -1, at_once = 2, before = left;
        for (int64_t l = 0; l < p->L; l++) {
            if (excess[l] > 0.0 && (worst < 0 || excess[l] > excess[worst])) {
                worst = l;
            }
        }
        if (worst < 0) {
            break;
        }
        at_once = at_once < left ? at_once : left;
        const double most = tti_most_rows(&all[worst]);
        int64_t granted = at_once;
        tti_improve(&all[worst], &granted);
        left -= at_once - granted;
        excess[worst] = left == before ? 0.0 : excess[worst] - (most - tti_most_rows(&all[worst]));
    }
    free(excess);
    return TT_OK;
}

static tt_status plan_layers(const tt_balance_params *p, const double *load, tti_layer_plan *all,
                             tt_placement *placement)
{
    for (int64_t l = 0; l < p->L; l++) {
        TT_TRY(tti_layer_plan_init(&all[l], p->E, p->n_groups, p->slots_per_group));
        memcpy(all[l].load, load + l * p->E, (size_t)p->E * sizeof(*load));
    }
    if (p->policy == TT_BALANCE_INCREMENTAL) {
        TT_TRY(plan_in_moves(p, load, all));
    }
    for (int64_t l = 0; l < p->L; l++) {
        if (p->policy != TT_BALANCE_INCREMENTAL) {
            TT_TRY(place_layer(&all[l], p, l));
        }
        tti_level(&all[l]);
        tti_layer_plan_write(&all[l], placement, l);
    }
    return TT_OK;
}

tt_status tt_balance_plan(const tt_balance_params *params, const double *load,
                          tt_placement **placement_out)
{
    const tt_balance_params *p = params;
    tt_placement *placement = NULL;
    TT_TRY(check_params(p));
    TT_TRY(tt_balance_check_load(load, p->L, p->E));
    TT_TRY(alloc_like(p, &placement));
    tti_layer_plan *all = calloc((size_t)p->L + 1, sizeof(*all));
    tt_status st = all ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory to plan");
    if (st == TT_OK) {
        st = plan_layers(p, load, all, placement);
    }
    for (int64_t l = 0; all && l < p->L; l++) {
        tti_layer_plan_fini(&all[l]);
    }
    free(all);
    if (st == TT_OK) {
        st = tt_placement_check(placement);
    }
    if (st != TT_OK) {
        tt_placement_destroy(&placement);
        return st;
    }
    *placement_out = placement;
    return TT_OK;
}

/* ---- what a placement gives ---- */

tt_status tt_balance_most_rows(const tt_placement *placement, int64_t layer, const double *load,
                               bool resolve, double *most_out)
{
    const tt_placement *p = placement;
    tti_layer_plan plan;
    tt_status st = tti_layer_plan_init(&plan, p->E, p->n_groups, p->slots_per_group);
    if (st == TT_OK && resolve) {
        memcpy(plan.load, load, (size_t)p->E * sizeof(*load));
        place_as(&plan, p, layer);
        tti_level(&plan);
    }
    for (int64_t e = 0; st == TT_OK && !resolve && e < p->E; e++) {
        const int64_t at = layer * p->E + e;
        for (int64_t i = p->replica_begin[at]; i < p->replica_begin[at + 1]; i++) {
            plan.group_rows[p->replica_slot[i] / p->slots_per_group] +=
                load[e] * (double)p->replica_share[i];
        }
    }
    if (st == TT_OK) {
        *most_out = tti_most_rows(&plan);
    }
    tti_layer_plan_fini(&plan);
    return st;
}

int64_t tt_balance_moves(const tt_placement *from, const tt_placement *to)
{
    const int64_t n = to->L * to->n_groups * to->slots_per_group;
    int64_t moves = 0;
    for (int64_t s = 0; s < n; s++) {
        moves += to->expert_of_slot[s] >= 0 &&
                 (!from || from->expert_of_slot[s] != to->expert_of_slot[s]);
    }
    return moves;
}
