/* moves.c - the way from one placement to another, in moves of weights that can be made at once.
 *
 * What is moved lies beside the slots until all of it is there; then all slots of a lot change
 * together. A slot may take its new expert if the one in it lives elsewhere too. If none can, then
 * experts that live once only wait for each other's slots in a ring; there two of them change
 * places, which brings one home. So every lot brings some slot to its goal, and none leaves an
 * expert without a slot. */
#include <stdlib.h>
#include <string.h>
#include "balance_internal.h"

/* One layer while a lot is gathered. */
typedef struct lot {
    const int32_t *now; /* now[n_slots] */
    int32_t *goal;      /* goal[n_slots] */
    int64_t S, n_slots;
    int32_t *after;    /* after[n_slots]: with the moves so far */
    int *n_in, *n_out; /* [n_groups] */
    const int *node_of_group;
    int most_in, most_out;
    tt_move *move;
    int n;
} lot;

static bool holds(const lot *l, int64_t group, int32_t expert)
{
    for (int64_t s = group * l->S; s < (group + 1) * l->S; s++) {
        if (l->after[s] == expert || l->now[s] == expert) {
            return true;
        }
    }
    return false;
}

static int count_after(const lot *l, int32_t expert)
{
    int n = 0;
    for (int64_t s = 0; s < l->n_slots; s++) {
        n += l->after[s] == expert;
    }
    return n;
}

/* Of the slots that hold the expert now: one of the own node, of these one whose group the fewest
 * copies of the lot leave; -1: all give as many as they may. */
static int64_t source_of(const lot *l, int64_t to, int32_t expert)
{
    const int64_t home = to / l->S;
    int64_t best = -1;
    bool best_near = false;
    for (int64_t s = 0; s < l->n_slots; s++) {
        const int64_t g = s / l->S;
        if (l->now[s] != expert || l->n_out[g] >= l->most_out) {
            continue;
        }
        const bool near = l->node_of_group && l->node_of_group[g] == l->node_of_group[home];
        if (best < 0 || near > best_near ||
            (near == best_near && l->n_out[g] < l->n_out[best / l->S])) {
            best = s;
            best_near = near;
        }
    }
    return best;
}

static void add(lot *l, int64_t from, int64_t to)
{
    l->n_out[from / l->S]++;
    l->n_in[to / l->S]++;
    l->after[to] = l->now[from];
    l->move[l->n++] = (tt_move){l->now[from], (int32_t)from, (int32_t)to};
}

/* Whether a slot may still take in an expert in this lot. */
static bool is_open(const lot *l, int64_t slot)
{
    return l->after[slot] == l->now[slot] && l->n_in[slot / l->S] < l->most_in;
}

/* The slot's expert and the one that it is to hold, which is in a slot that wants another, change
 * places. */
static void try_exchange(lot *l, int64_t slot)
{
    const int64_t group = slot / l->S;
    const int32_t lost = l->now[slot], wanted = l->goal[slot];
    for (int64_t b = 0; b < l->n_slots; b++) {
        if (l->now[b] == wanted && l->goal[b] != wanted && is_open(l, b) &&
            !holds(l, b / l->S, lost) && l->n_out[b / l->S] < l->most_out &&
            l->n_out[group] < l->most_out) {
            add(l, b, slot);
            add(l, slot, b);
            return;
        }
    }
}

static void consider(lot *l, int64_t slot)
{
    const int32_t wanted = l->goal[slot], lost = l->now[slot];
    if (wanted < 0 || wanted == lost || !is_open(l, slot) || holds(l, slot / l->S, wanted)) {
        return;
    }
    if (lost >= 0 && count_after(l, lost) == 1) {
        try_exchange(l, slot);
        return;
    }
    const int64_t from = source_of(l, slot, wanted);
    if (from >= 0) {
        add(l, from, slot);
    }
}

/* Slots of a group are alike: what a group has and is to have stays where it is. */
static void keep_slots(lot *l)
{
    for (int64_t s = 0; s < l->n_slots; s++) {
        const int64_t first = s / l->S * l->S;
        for (int64_t t = first; l->now[s] >= 0 && t < first + l->S; t++) {
            if (l->goal[t] == l->now[s]) {
                l->goal[t] = l->goal[s];
                l->goal[s] = l->now[s];
            }
        }
    }
}

int tt_balance_next_moves(const tt_placement *now, const tt_placement *goal, int64_t layer,
                          const int *node_of_group, int most_in, int most_out, tt_move *move)
{
    const int64_t n_slots = now->n_groups * now->slots_per_group;
    lot l = {.now = now->expert_of_slot + layer * n_slots,
             .goal = malloc((size_t)(n_slots + 1) * sizeof(*l.goal)),
             .S = now->slots_per_group,
             .n_slots = n_slots,
             .after = malloc((size_t)(n_slots + 1) * sizeof(*l.after)),
             .n_in = calloc((size_t)now->n_groups + 1, sizeof(*l.n_in)),
             .n_out = calloc((size_t)now->n_groups + 1, sizeof(*l.n_out)),
             .node_of_group = node_of_group,
             .most_in = most_in,
             .most_out = most_out,
             .move = move};
    if (l.goal && l.after && l.n_in && l.n_out) { /* else nothing can be done */
        memcpy(l.after, l.now, (size_t)n_slots * sizeof(*l.after));
        memcpy(l.goal, goal->expert_of_slot + layer * n_slots, (size_t)n_slots * sizeof(*l.goal));
        keep_slots(&l);
        for (int64_t s = 0; s < n_slots; s++) {
            consider(&l, s);
        }
    }
    free(l.goal);
    free(l.after);
    free(l.n_in);
    free(l.n_out);
    return l.n;
}

/* ---- a placement after moves ---- */

/* Layer `layer` of a placement that is written layer by layer: as layer `from_layer` of another. */
static void copy_layer(tt_placement *to, int64_t layer, const tt_placement *from,
                       int64_t from_layer)
{
    const int64_t E = to->E, n_slots = to->n_groups * to->slots_per_group,
                  at = to->replica_begin[layer * E];
    const int64_t *range = from->replica_begin + from_layer * E;
    const size_t n = (size_t)(range[E] - range[0]);
    memcpy(to->expert_of_slot + layer * n_slots, from->expert_of_slot + from_layer * n_slots,
           (size_t)n_slots * sizeof(*to->expert_of_slot));
    memcpy(to->replica_slot + at, from->replica_slot + range[0], n * sizeof(*to->replica_slot));
    memcpy(to->replica_share + at, from->replica_share + range[0], n * sizeof(*to->replica_share));
    for (int64_t e = 0; e < E; e++) {
        to->replica_begin[layer * E + e + 1] = range[e + 1] - range[0] + at;
    }
}

/* Who keeps p sees what `after` was, which is gone. */
static void become(tt_placement *p, tt_placement *after)
{
    const tt_placement before = *p;
    *p = *after;
    *after = before;
    tt_placement_destroy(&after);
}

tt_status tt_placement_take_layer(tt_placement *p, int64_t layer, const tt_placement *from,
                                  int64_t from_layer)
{
    tt_placement *after = NULL;
    TT_TRY(tti_placement_alloc(p->L, p->E, p->n_groups, p->slots_per_group, &after));
    for (int64_t l = 0; l < p->L; l++) {
        const bool is_new = l == layer;
        copy_layer(after, l, is_new ? from : p, is_new ? from_layer : l);
    }
    after->epoch = p->epoch;
    become(p, after);
    return TT_OK;
}

tt_status tt_placement_move(tt_placement *p, int64_t layer, const tt_move *move, int n_moves,
                            const double *load)
{
    tt_placement *after = NULL;
    tti_layer_plan plan;
    tt_status st = tti_layer_plan_init(&plan, p->E, p->n_groups, p->slots_per_group);
    if (st == TT_OK) {
        st = tti_placement_alloc(p->L, p->E, p->n_groups, p->slots_per_group, &after);
    }
    if (st != TT_OK) {
        tti_layer_plan_fini(&plan);
        return st;
    }
    memcpy(plan.load, load, (size_t)p->E * sizeof(*load));
    tti_layer_plan_place(&plan, p->expert_of_slot + layer * p->n_groups * p->slots_per_group);
    for (int i = 0; i < n_moves; i++) {
        tti_layer_plan_put(&plan, move[i].to, move[i].expert);
    }
    tti_level(&plan);
    for (int64_t l = 0; l < p->L; l++) {
        if (l == layer) {
            tti_layer_plan_write(&plan, after, l);
        } else {
            copy_layer(after, l, p, l);
        }
    }
    after->epoch = p->epoch + 1;
    become(p, after);
    tti_layer_plan_fini(&plan);
    return TT_OK;
}
