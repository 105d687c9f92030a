/* improve.c - a layer plan made better move by move.
 *
 * The groups with most rows come first. Each of their experts is tried in every group that lacks it:
 * in an empty slot, in place of a copy that others have too, or in exchange for another expert. What
 * promises most by a bound is then levelled for true, and kept if the most rows of any group, or
 * with equal most the sum of squares, came down. So a plan never gets worse, and after the last
 * move nothing is left that one move mends and the bound shows. */
#include <math.h>
#include <string.h>
#include "balance_internal.h"

typedef enum kind { MOVE_NONE, MOVE_COPY, MOVE_SWAP } kind;

/* A change: expert `expert` of slot `from` into slot `to`, which is emptied (COPY), or the two slots
 * exchanged (SWAP). */
typedef struct change {
    kind kind;
    int64_t from, to;
    double bound; /* of the larger of the two groups' rows afterwards */
} change;

enum { TRIES = 8 };

typedef struct best {
    change change[TRIES]; /* ascending by bound */
    int n;
} best;

static void offer(best *b, change c)
{
    int at = b->n < TRIES ? b->n : TRIES - 1;
    if (b->n == TRIES && c.bound >= b->change[TRIES - 1].bound) {
        return;
    }
    for (; at > 0 && b->change[at - 1].bound > c.bound; at--) {
        b->change[at] = b->change[at - 1];
    }
    b->change[at] = c;
    b->n += b->n < TRIES;
}

/* Offers what expert of slot `from` can do in group `to`. */
static void look(const tti_layer_plan *plan, best *b, int64_t from, int to, int64_t moves)
{
    const int hot = (int)(from / plan->S);
    const int32_t expert = plan->slot[from];
    const double here = plan->group_rows[hot], there = plan->group_rows[to],
                 rows = plan->rows[from];
    if (plan->slot_of[(int64_t)expert * plan->n_groups + to] >= 0 || there >= here) {
        return;
    }
    const double half = fmin(rows, (here - there) / 2.0);
    for (int64_t s = to * plan->S; s < (to + 1) * plan->S; s++) {
        const int32_t other = plan->slot[s];
        if (other < 0) {
            offer(b, (change){MOVE_COPY, from, s, fmax(here - half, there + half)});
            break; /* one empty slot is as good as another */
        }
        const double freed = plan->rows[s];
        if (tti_layer_plan_replicas(plan, other) > 1) {
            const double left = fmin(rows, (here - there + freed) / 2.0);
            offer(b, (change){MOVE_COPY, from, s, fmax(here - left, there - freed + left)});
        }
        if (moves >= 2 && freed < rows &&
            plan->slot_of[(int64_t)other * plan->n_groups + hot] < 0) {
            offer(b, (change){MOVE_SWAP, from, s, fmax(here - rows + freed, there - freed + rows)});
        }
    }
}

static double sum_of_squares(const tti_layer_plan *plan)
{
    double sum = 0.0;
    for (int g = 0; g < plan->n_groups; g++) {
        sum += plan->group_rows[g] * plan->group_rows[g];
    }
    return sum;
}

static void exchange(tti_layer_plan *plan, int64_t a, int64_t b)
{
    const int32_t first = plan->slot[a], second = plan->slot[b];
    tti_layer_plan_put(plan, a, -1);
    tti_layer_plan_put(plan, b, first);
    tti_layer_plan_put(plan, a, second);
}

/* Makes the change if that is better. */
static bool try_change(tti_layer_plan *plan, const change *c)
{
    const double most = tti_most_rows(plan), squares = sum_of_squares(plan), gain = 1e-6;
    const int32_t before = plan->slot[c->to];
    if (c->kind == MOVE_SWAP) {
        exchange(plan, c->from, c->to);
    } else {
        tti_layer_plan_put(plan, c->to, plan->slot[c->from]);
    }
    tti_level(plan);
    const double now = tti_most_rows(plan);
    if (now < most * (1.0 - gain) ||
        (now <= most && sum_of_squares(plan) < squares * (1.0 - gain))) {
        return true;
    }
    if (c->kind == MOVE_SWAP) {
        exchange(plan, c->from, c->to);
    } else {
        tti_layer_plan_put(plan, c->to, before);
    }
    tti_level(plan);
    return false;
}

/* One move that makes the plan better; false if none was found. */
static bool improve_once(tti_layer_plan *plan, int64_t *moves)
{
    best b = {.n = 0};
    const double most = tti_most_rows(plan);
    for (int g = 0; g < plan->n_groups; g++) {
        if (plan->group_rows[g] < most * (1.0 - 1e-9)) {
            continue;
        }
        for (int64_t s = g * plan->S; s < (g + 1) * plan->S; s++) {
            for (int to = 0; to < plan->n_groups && plan->slot[s] >= 0; to++) {
                look(plan, &b, s, to, *moves);
            }
        }
    }
    for (int i = 0; i < b.n; i++) {
        if (try_change(plan, &b.change[i])) {
            *moves -= b.change[i].kind == MOVE_SWAP ? 2 : 1;
            return true;
        }
    }
    return false;
}

void tti_improve(tti_layer_plan *plan, int64_t *moves)
{
    while (*moves > 0 && improve_once(plan, moves)) {
    }
}
