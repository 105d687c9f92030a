/* spread.c - which replica of its expert each row of a source goes to.
 *
 * Each replica has a credit, which its share of the rows of a batch adds to and each row that it
 * gets takes one from. A batch's rows go where credits are largest, so that over any run of batches
 * a replica has its share of rows to within one row for each replica that its expert has, whatever
 * the sizes of batches: shares are kept without a random number and without asking other sources.
 * Of equal credits the nearest replica's is served first, and of a batch's rows the first go to the
 * nearest ones; where all sources start so, each serves itself first, and they do not all turn to
 * the same remote replica at once.
 * A batch of many rows does not use the shares: it levels its own counts over the groups. The sum
 * over sources of levelled batches is level, so that nobody needs to know what other sources have. */
#include <stdlib.h>
#include <string.h>
#include "balance_internal.h"

enum { MAX_SWEEPS = 8 }; /* of levelling a batch: the first two do nearly all */

/* A replica of an expert that has several. */
typedef struct copy {
    int32_t slot;
    int32_t left; /* rows of this batch that are still to go there */
    double share, credit;
} copy;

typedef struct hot {
    int32_t begin, end; /* of copies: nearest first */
    int32_t next;       /* the copy that rows go to now */
    int32_t n;          /* rows of this batch */
} hot;

typedef struct layer {
    int32_t *where; /* where[E]: the slot of an expert, or ~ its index in hot */
    hot *hot;
    copy *copy;
    int32_t n_hot, n_copies;
} layer;

struct tt_spread {
    int64_t L, E, S, level_rows;
    int n_groups;
    int *distance;        /* distance[n_groups] */
    layer *layer;         /* layer[L] */
    double *group_rows;   /* [n_groups] */
    tti_replica *replica; /* [n_groups * S]: of the copies of a layer, in their order */
};

static tt_status alloc_layers(tt_spread *s)
{
    const size_t slots = (size_t)(s->n_groups * s->S) + 1, experts = (size_t)s->E + 1;
    for (int64_t l = 0; l < s->L; l++) {
        layer *y = &s->layer[l];
        y->where = calloc(experts, sizeof(*y->where));
        y->hot = calloc(experts, sizeof(*y->hot));
        y->copy = calloc(slots, sizeof(*y->copy));
        TT_CHECK(y->where && y->hot && y->copy, TT_ERR_NOMEM, "no memory for shares of experts");
    }
    return TT_OK;
}

static tt_status init(tt_spread *s, const tt_spread_params *p)
{
    s->layer = calloc((size_t)s->L + 1, sizeof(*s->layer));
    s->distance = calloc((size_t)s->n_groups + 1, sizeof(*s->distance));
    s->group_rows = calloc((size_t)s->n_groups + 1, sizeof(*s->group_rows));
    s->replica = calloc((size_t)(s->n_groups * s->S) + 1, sizeof(*s->replica));
    TT_CHECK(s->layer && s->distance && s->group_rows && s->replica, TT_ERR_NOMEM,
             "no memory for shares of experts");
    for (int g = 0; g < s->n_groups && p->distance; g++) {
        s->distance[g] = p->distance[g];
    }
    return alloc_layers(s);
}

tt_status tt_spread_create(const tt_spread_params *params, tt_spread **spread_out)
{
    const tt_placement *p = params->placement;
    tt_spread *s = calloc(1, sizeof(*s));
    TT_CHECK(s, TT_ERR_NOMEM, "no memory for shares of experts");
    s->L = p->L;
    s->E = p->E;
    s->S = p->slots_per_group;
    s->n_groups = p->n_groups;
    s->level_rows = params->level_rows;
    const tt_status st = init(s, params);
    if (st != TT_OK) {
        tt_spread_destroy(&s);
        return st;
    }
    for (int64_t l = 0; l < s->L; l++) {
        tt_spread_set(s, p, l);
    }
    *spread_out = s;
    return TT_OK;
}

void tt_spread_destroy(tt_spread **spread)
{
    tt_spread *s = *spread;
    if (!s) {
        return;
    }
    for (int64_t l = 0; s->layer && l < s->L; l++) {
        free(s->layer[l].where);
        free(s->layer[l].hot);
        free(s->layer[l].copy);
    }
    free(s->layer);
    free(s->distance);
    free(s->group_rows);
    free(s->replica);
    free(s);
    *spread = NULL;
}

void tt_spread_set(tt_spread *s, const tt_placement *p, int64_t l)
{
    layer *y = &s->layer[l];
    y->n_hot = y->n_copies = 0;
    for (int64_t e = 0; e < s->E; e++) {
        const int64_t begin = p->replica_begin[l * s->E + e],
                      end = p->replica_begin[l * s->E + e + 1];
        if (end - begin == 1) {
            y->where[e] = p->replica_slot[begin];
            continue;
        }
        hot *h = &y->hot[y->n_hot];
        y->where[e] = ~y->n_hot++;
        *h = (hot){.begin = y->n_copies, .end = y->n_copies + (int32_t)(end - begin)};
        for (int64_t i = begin; i < end; i++) {
            const copy c = {.slot = p->replica_slot[i], .share = (double)p->replica_share[i]};
            const int distance = s->distance[c.slot / s->S];
            int32_t at = y->n_copies++;
            for (; at > h->begin && s->distance[y->copy[at - 1].slot / s->S] > distance; at--) {
                y->copy[at] = y->copy[at - 1];
            }
            y->copy[at] = c;
        }
    }
}

/* Rows of each hot expert; into group_rows those of the others. */
static int64_t count(tt_spread *s, layer *y, int64_t n, const int32_t *expert)
{
    int64_t n_hot_rows = 0;
    memset(s->group_rows, 0, (size_t)s->n_groups * sizeof(*s->group_rows));
    for (int32_t i = 0; i < y->n_hot; i++) {
        y->hot[i].n = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        if (expert[i] >= 0) {
            const int32_t where = y->where[expert[i]];
            if (where >= 0) {
                s->group_rows[where / s->S] += 1.0;
            } else {
                y->hot[~where].n++;
                n_hot_rows++;
            }
        }
    }
    return n_hot_rows;
}

/* Adds to credits what levels this batch. */
static void level_batch(tt_spread *s, layer *y)
{
    double moved = 1.0;
    for (int32_t i = 0; i < y->n_copies; i++) {
        s->replica[i] = (tti_replica){.group = (int32_t)(y->copy[i].slot / s->S), .slot = i};
    }
    for (int sweep = 0; sweep < MAX_SWEEPS && moved >= 1.0; sweep++) { /* rows are whole */
        moved = 0.0;
        for (int32_t i = 0; i < y->n_hot; i++) {
            const hot *h = &y->hot[i];
            if (h->n > 0) {
                moved += tti_fill(h->n, h->end - h->begin, s->replica + h->begin, s->group_rows);
            }
        }
    }
    for (int32_t i = 0; i < y->n_copies; i++) {
        y->copy[s->replica[i].slot].credit += s->replica[i].rows;
    }
}

static void add_shares(layer *y)
{
    for (int32_t i = 0; i < y->n_hot; i++) {
        const hot *h = &y->hot[i];
        for (int32_t c = h->begin; c < h->end; c++) {
            y->copy[c].credit += y->copy[c].share * h->n;
        }
    }
}

/* Turns credits into whole rows of this batch. Shares are rounded: what credits sum to, 0 but for
 * that, is taken off them, lest it grow. */
static void deal(layer *y, hot *h)
{
    int32_t rest = h->n;
    double sum = 0.0;
    for (int32_t c = h->begin; c < h->end; c++) {
        sum += y->copy[c].credit;
    }
    for (int32_t c = h->begin; c < h->end; c++) {
        copy *to = &y->copy[c];
        to->credit += (h->n - sum) / (h->end - h->begin);
        to->left = to->credit < 1.0 ? 0 : to->credit < rest ? (int32_t)to->credit : rest;
        to->credit -= to->left;
        rest -= to->left;
    }
    for (; rest > 0; rest--) {
        int32_t best = h->begin;
        for (int32_t c = h->begin + 1; c < h->end; c++) {
            best = y->copy[c].credit > y->copy[best].credit ? c : best;
        }
        y->copy[best].left++;
        y->copy[best].credit -= 1.0;
    }
    h->next = h->begin;
}

void tt_spread_choose(tt_spread *s, int64_t l, int64_t n, const int32_t *expert, int32_t *slot)
{
    layer *y = &s->layer[l];
    const int64_t n_hot_rows = y->n_hot > 0 ? count(s, y, n, expert) : 0;
    if (n_hot_rows > 0) {
        if (n >= s->level_rows) {
            level_batch(s, y);
        } else {
            add_shares(y);
        }
        for (int32_t i = 0; i < y->n_hot; i++) {
            deal(y, &y->hot[i]);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        slot[i] = expert[i] < 0 ? -1 : y->where[expert[i]];
        if (expert[i] >= 0 && slot[i] < 0) {
            hot *h = &y->hot[~slot[i]];
            while (y->copy[h->next].left == 0) {
                h->next++;
            }
            y->copy[h->next].left--;
            slot[i] = y->copy[h->next].slot;
        }
    }
}
