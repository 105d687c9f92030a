/* level.c - one layer while it is planned: its slots, and how rows are shared among replicas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "balance_internal.h"

enum { MAX_SWEEPS = 200 };

tt_status tti_layer_plan_init(tti_layer_plan *plan, int64_t E, int n_groups, int64_t S)
{
    const size_t slots = (size_t)(n_groups * S) + 1, groups = (size_t)n_groups + 1;
    *plan = (tti_layer_plan){.E = E,
                             .S = S,
                             .n_groups = n_groups,
                             .load = calloc((size_t)E + 1, sizeof(double)),
                             .slot = calloc(slots, sizeof(int32_t)),
                             .slot_of = calloc((size_t)E * groups + 1, sizeof(int32_t)),
                             .rows = calloc(slots, sizeof(double)),
                             .group_rows = calloc(groups, sizeof(double)),
                             .replica = calloc(groups, sizeof(tti_replica))};
    TT_CHECK(plan->load && plan->slot && plan->slot_of && plan->rows && plan->group_rows &&
                 plan->replica,
             TT_ERR_NOMEM, "no memory to plan %lld experts", (long long)E);
    tti_layer_plan_clear(plan);
    return TT_OK;
}

void tti_layer_plan_fini(tti_layer_plan *plan)
{
    free(plan->load);
    free(plan->slot);
    free(plan->slot_of);
    free(plan->rows);
    free(plan->group_rows);
    free(plan->replica);
    memset(plan, 0, sizeof(*plan));
}

void tti_layer_plan_clear(tti_layer_plan *plan)
{
    for (int64_t s = 0; s < plan->n_groups * plan->S; s++) {
        plan->slot[s] = -1;
    }
    for (int64_t i = 0; i < plan->E * plan->n_groups; i++) {
        plan->slot_of[i] = -1;
    }
}

void tti_layer_plan_put(tti_layer_plan *plan, int64_t slot, int32_t expert)
{
    const int64_t group = slot / plan->S;
    if (plan->slot[slot] >= 0) {
        plan->slot_of[plan->slot[slot] * plan->n_groups + group] = -1;
    }
    plan->slot[slot] = expert;
    if (expert >= 0) {
        plan->slot_of[expert * plan->n_groups + group] = (int32_t)slot;
    }
}

void tti_layer_plan_place(tti_layer_plan *plan, const int32_t *expert_of_slot)
{
    tti_layer_plan_clear(plan);
    for (int64_t s = 0; s < plan->n_groups * plan->S; s++) {
        tti_layer_plan_put(plan, s, expert_of_slot[s]);
    }
}

int64_t tti_layer_plan_empty(const tti_layer_plan *plan, int group)
{
    for (int64_t s = group * plan->S; s < (group + 1) * plan->S; s++) {
        if (plan->slot[s] < 0) {
            return s;
        }
    }
    return -1;
}

int tti_layer_plan_replicas(const tti_layer_plan *plan, int64_t expert)
{
    int n = 0;
    for (int g = 0; g < plan->n_groups; g++) {
        n += plan->slot_of[expert * plan->n_groups + g] >= 0;
    }
    return n;
}

double tti_fill(double load, int n, tti_replica *replica, double *group_rows)
{
    double moved = 0.0;
    for (int i = 0; i < n; i++) { /* ascending by what their groups have else */
        const tti_replica r = replica[i];
        const double others = group_rows[r.group] - r.rows;
        int at = i;
        for (; at > 0 && replica[at - 1].others > others; at--) {
            replica[at] = replica[at - 1];
        }
        replica[at] = r;
        replica[at].others = others;
    }
    double level = 0.0, below = 0.0;
    int n_filled = 0;
    for (; n_filled < n; n_filled++) {
        const double next = replica[n_filled].others;
        if (n_filled > 0 && level <= next) {
            break;
        }
        below += next;
        level = (below + load) / (n_filled + 1);
    }
    for (int i = 0; i < n; i++) {
        tti_replica *r = &replica[i];
        const double rows = i < n_filled ? fmax(level - r->others, 0.0) : 0.0;
        moved += fabs(rows - r->rows);
        r->rows = rows;
        group_rows[r->group] = r->others + rows;
    }
    return moved;
}

static double fill_expert(tti_layer_plan *plan, int64_t expert)
{
    const int32_t *slot_of = plan->slot_of + expert * plan->n_groups;
    int n = 0;
    for (int g = 0; g < plan->n_groups; g++) {
        if (slot_of[g] >= 0) {
            plan->replica[n++] =
                (tti_replica){.group = g, .slot = slot_of[g], .rows = plan->rows[slot_of[g]]};
        }
    }
    const double moved = tti_fill(plan->load[expert], n, plan->replica, plan->group_rows);
    for (int i = 0; i < n; i++) {
        plan->rows[plan->replica[i].slot] = plan->replica[i].rows;
    }
    return moved;
}

void tti_level(tti_layer_plan *plan)
{
    double total = 0.0, moved = INFINITY;
    memset(plan->group_rows, 0, (size_t)plan->n_groups * sizeof(*plan->group_rows));
    memset(plan->rows, 0, (size_t)(plan->n_groups * plan->S) * sizeof(*plan->rows));
    for (int64_t e = 0; e < plan->E; e++) {
        total += plan->load[e];
    }
    for (int sweep = 0; sweep < MAX_SWEEPS && moved > 1e-7 * total; sweep++) {
        moved = 0.0;
        for (int64_t e = 0; e < plan->E; e++) {
            if (sweep == 0 || tti_layer_plan_replicas(plan, e) > 1) {
                moved += fill_expert(plan, e);
            }
        }
    }
}

double tti_most_rows(const tti_layer_plan *plan)
{
    double most = 0.0;
    for (int g = 0; g < plan->n_groups; g++) {
        most = fmax(most, plan->group_rows[g]);
    }
    return most;
}

void tti_layer_plan_write(const tti_layer_plan *plan, tt_placement *placement, int64_t layer)
{
    const int64_t n = plan->n_groups * plan->S;
    int64_t at = placement->replica_begin[layer * plan->E];
    memcpy(placement->expert_of_slot + layer * n, plan->slot, (size_t)n * sizeof(*plan->slot));
    for (int64_t e = 0; e < plan->E; e++) {
        const int n_replicas = tti_layer_plan_replicas(plan, e);
        for (int g = 0; g < plan->n_groups; g++) {
            const int32_t s = plan->slot_of[e * plan->n_groups + g];
            if (s >= 0) {
                placement->replica_slot[at] = s;
                placement->replica_share[at++] = plan->load[e] > 0.0
                                                     ? (float)(plan->rows[s] / plan->load[e])
                                                     : 1.0f / (float)n_replicas;
            }
        }
        placement->replica_begin[layer * plan->E + e + 1] = at;
    }
}
