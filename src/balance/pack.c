/* pack.c - the published balancer: experts into slots of ranks, by packing and replication.
 *
 * Heaviest first into the lightest pack that has room; and an extra copy of whatever has most load a
 * copy. Ties go to the lower number, so that one input has one answer on every rank and compiler.
 * Source: EPLB, the published expert-parallel load balancer, as described in its README. */
#include <stdlib.h>
#include "balance_internal.h"

typedef struct item {
    double load;
    int64_t index;
} item;

static int compare_items(const void *a, const void *b)
{
    const item *p = a, *q = b;
    if (p->load != q->load) {
        return p->load > q->load ? -1 : 1;
    }
    return (p->index > q->index) - (p->index < q->index);
}

/* What the functions below work in. */
typedef struct work {
    item *item;                       /* [n_slots] */
    double *pack_load;                /* [n_slots] */
    int64_t *pack_size;               /* [n_slots] */
    int64_t *pack;                    /* pack[n]: of each item */
    int64_t *place;                   /* place[n]: its place there, in order of arrival */
    int64_t *count;                   /* count[E]: copies of each expert */
    int64_t *slot_expert, *slot_copy; /* [n_slots]: before they are packed on ranks */
    double *load;                     /* load[n_slots] */
    int64_t *order;                   /* order[E]: experts, those of one node together */
} work;

static void work_fini(work *w)
{
    free(w->item);
    free(w->pack_load);
    free(w->pack_size);
    free(w->pack);
    free(w->place);
    free(w->count);
    free(w->slot_expert);
    free(w->slot_copy);
    free(w->load);
    free(w->order);
}

static tt_status work_init(work *w, int64_t n_slots)
{
    const size_t n = (size_t)n_slots + 1;
    *w = (work){.item = calloc(n, sizeof(*w->item)),
                .pack_load = calloc(n, sizeof(*w->pack_load)),
                .pack_size = calloc(n, sizeof(*w->pack_size)),
                .pack = calloc(n, sizeof(*w->pack)),
                .place = calloc(n, sizeof(*w->place)),
                .count = calloc(n, sizeof(*w->count)),
                .slot_expert = calloc(n, sizeof(*w->slot_expert)),
                .slot_copy = calloc(n, sizeof(*w->slot_copy)),
                .load = calloc(n, sizeof(*w->load)),
                .order = calloc(n, sizeof(*w->order))};
    TT_CHECK(w->item && w->pack_load && w->pack_size && w->pack && w->place && w->count &&
                 w->slot_expert && w->slot_copy && w->load && w->order,
             TT_ERR_NOMEM, "no memory to place experts in %lld slots", (long long)n_slots);
    return TT_OK;
}

/* load[n] into n_packs packs of n / n_packs items each: w->pack and w->place. */
static void pack_items(work *w, const double *load, int64_t n, int64_t n_packs)
{
    const int64_t most = n / n_packs;
    for (int64_t i = 0; i < n; i++) {
        w->item[i] = (item){load[i], i};
        w->pack[i] = i;
        w->place[i] = 0;
    }
    if (most <= 1) { /* one each: as they stand */
        return;
    }
    qsort(w->item, (size_t)n, sizeof(*w->item), compare_items);
    for (int64_t p = 0; p < n_packs; p++) {
        w->pack_load[p] = 0.0;
        w->pack_size[p] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t best = -1;
        for (int64_t p = 0; p < n_packs; p++) {
            if (w->pack_size[p] < most && (best < 0 || w->pack_load[p] < w->pack_load[best])) {
                best = p;
            }
        }
        w->pack[w->item[i].index] = best;
        w->place[w->item[i].index] = w->pack_size[best]++;
        w->pack_load[best] += w->item[i].load;
    }
}

/* The n experts w->order[first..] into n_slots slots: each once, then copies. */
static void copy_experts(work *w, const double *load, int64_t first, int64_t n, int64_t n_slots)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = w->order[first + i];
        w->slot_expert[i] = e;
        w->slot_copy[i] = 0;
        w->count[e] = 1;
    }
    for (int64_t s = n; s < n_slots; s++) {
        int64_t best = w->order[first];
        for (int64_t i = 1; i < n; i++) {
            const int64_t e = w->order[first + i];
            if (load[e] / (double)w->count[e] > load[best] / (double)w->count[best]) {
                best = e;
            }
        }
        w->slot_expert[s] = best;
        w->slot_copy[s] = w->count[best]++;
    }
}

/* Groups of experts onto nodes: w->order has those of one node together. */
static void order_by_node(work *w, const double *load, const tt_balance_shape *shape,
                          int64_t n_nodes, int64_t n_sets)
{
    const int64_t per_set = shape->E / n_sets, sets_per_node = n_sets / n_nodes;
    for (int64_t g = 0; g < n_sets; g++) {
        w->load[g] = 0.0;
        for (int64_t i = 0; i < per_set; i++) {
            w->load[g] += load[g * per_set + i];
        }
    }
    pack_items(w, w->load, n_sets, n_nodes);
    for (int64_t g = 0; g < n_sets; g++) {
        const int64_t to = (w->pack[g] * sets_per_node + w->place[g]) * per_set;
        for (int64_t i = 0; i < per_set; i++) {
            w->order[to + i] = g * per_set + i;
        }
    }
}

static void place_all(work *w, const double *load, const tt_balance_shape *shape,
                      int32_t *expert_of_slot, int32_t *copy_of_slot)
{
    const bool by_node = shape->n_sets % shape->n_nodes == 0;
    const int64_t n_nodes = by_node ? shape->n_nodes : 1;
    const int64_t n_here = shape->E / n_nodes, slots_here = shape->n_slots / n_nodes;
    const int64_t ranks_here = shape->n_ranks / n_nodes, per_rank = slots_here / ranks_here;
    order_by_node(w, load, shape, n_nodes, by_node ? shape->n_sets : 1);
    for (int64_t node = 0; node < n_nodes; node++) {
        copy_experts(w, load, node * n_here, n_here, slots_here);
        for (int64_t s = 0; s < slots_here; s++) {
            const int64_t e = w->slot_expert[s];
            w->load[s] = load[e] / (double)w->count[e];
        }
        pack_items(w, w->load, slots_here, ranks_here);
        for (int64_t s = 0; s < slots_here; s++) {
            const int64_t to = node * slots_here + w->pack[s] * per_rank + w->place[s];
            expert_of_slot[to] = (int32_t)w->slot_expert[s];
            if (copy_of_slot) {
                copy_of_slot[to] = (int32_t)w->slot_copy[s];
            }
        }
    }
}

tt_status tt_balance_slots(const double *load, const tt_balance_shape *shape,
                           int32_t *expert_of_slot, int32_t *copy_of_slot)
{
    const tt_balance_shape *s = shape;
    TT_CHECK(s->E > 0 && s->n_sets > 0 && s->n_nodes > 0 && s->n_ranks > 0, TT_ERR_ARG,
             "nothing to place, or nowhere: %lld experts in %d sets, %d ranks on %d nodes",
             (long long)s->E, s->n_sets, s->n_ranks, s->n_nodes);
    TT_CHECK(s->E % s->n_sets == 0, TT_ERR_ARG, "%d sets do not divide %lld experts", s->n_sets,
             (long long)s->E);
    TT_CHECK(s->n_ranks % s->n_nodes == 0, TT_ERR_ARG, "%d nodes do not divide %d ranks",
             s->n_nodes, s->n_ranks);
    TT_CHECK(s->n_slots % s->n_ranks == 0, TT_ERR_ARG, "%d ranks do not divide %lld slots",
             s->n_ranks, (long long)s->n_slots);
    TT_CHECK(s->n_slots >= s->E && s->n_slots <= INT32_MAX, TT_ERR_ARG,
             "%lld slots for %lld experts", (long long)s->n_slots, (long long)s->E);
    TT_TRY(tt_balance_check_load(load, 1, s->E));
    work w;
    tt_status st = work_init(&w, s->n_slots);
    if (st == TT_OK) {
        place_all(&w, load, s, expert_of_slot, copy_of_slot);
    }
    work_fini(&w);
    return st;
}
