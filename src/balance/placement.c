/* placement.c - which slots serve (layer, expert): the linear placement, its check and its hash.
 *
 * Two tables say the same thing from both sides, the expert of each slot and the replicas of each
 * expert. check() walks both, so that a planner's slip is found before rows are sent by it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "balance_internal.h"
#include "tutti/hash.h"
#include "tutti/plan.h"

/* How far the shares of one expert may be from 1: they are floats, at most one per group. */
#define SHARE_TOLERANCE 1e-4
/* Entries of a table: far above any model, and its bytes are still far below 2^63. */
#define MAX_ENTRIES (INT64_C(1) << 40)

static int64_t n_slots(const tt_placement *p)
{
    return p->n_groups * p->slots_per_group;
}

tt_status tti_placement_alloc(int64_t L, int64_t E, int n_groups, int64_t slots_per_group,
                              tt_placement **placement_out)
{
    /* Slots travel as int32, and the tables must be countable. */
    TT_CHECK(E <= INT32_MAX && n_groups * slots_per_group <= INT32_MAX, TT_ERR_ARG,
             "%d groups of %" PRId64 " slots are too many", n_groups, slots_per_group);
    TT_CHECK(L <= MAX_ENTRIES / (2 * n_groups * slots_per_group + 1), TT_ERR_ARG,
             "%" PRId64 " layers of %" PRId64 " experts are too many", L, E);
    tt_placement *p = calloc(1, sizeof(*p));
    TT_CHECK(p, TT_ERR_NOMEM, "no memory for a placement");
    p->L = L;
    p->E = E;
    p->n_groups = n_groups;
    p->slots_per_group = slots_per_group;
    /* One more than needed: no request for zero bytes, whose answer differs between systems. */
    size_t slots = (size_t)(L * n_slots(p));
    p->expert_of_slot = malloc((slots + 1) * sizeof(*p->expert_of_slot));
    p->replica_begin = calloc((size_t)(L * E) + 1, sizeof(*p->replica_begin));
    p->replica_slot = calloc(slots + 1, sizeof(*p->replica_slot));
    p->replica_share = calloc(slots + 1, sizeof(*p->replica_share));
    if (!p->expert_of_slot || !p->replica_begin || !p->replica_slot || !p->replica_share) {
        tt_placement_destroy(&p);
        return TT_FAIL(TT_ERR_NOMEM, "no memory for %zu slots", slots);
    }
    for (size_t i = 0; i < slots; i++) {
        p->expert_of_slot[i] = -1;
    }
    *placement_out = p;
    return TT_OK;
}

tt_status tt_placement_linear(int64_t L, int64_t E, int n_groups, int64_t slots_per_group,
                              tt_placement **placement_out)
{
    TT_CHECK(L >= 0 && E >= 0 && n_groups >= 0 && (n_groups > 0 || E == 0), TT_ERR_ARG,
             "%" PRId64 " layers of %" PRId64 " experts cannot be placed on %d groups", L, E,
             n_groups);
    const int64_t least = n_groups > 0 ? E / n_groups + (E % n_groups != 0) : 0;
    tt_placement *p = NULL;
    slots_per_group = slots_per_group > 0 ? slots_per_group : least;
    TT_CHECK(slots_per_group >= least && slots_per_group <= E, TT_ERR_ARG,
             "%" PRId64 " slots in each of %d groups for %" PRId64 " experts", slots_per_group,
             n_groups, E);
    TT_TRY(tti_placement_alloc(L, E, n_groups, slots_per_group, &p));
    for (int group = 0; group < n_groups; group++) {
        int64_t first = 0;
        int64_t end = 0;
        tt_layout_experts(E, n_groups, group, &first, &end);
        for (int64_t layer = 0; layer < L; layer++) {
            for (int64_t expert = first; expert < end; expert++) {
                int64_t slot = group * slots_per_group + (expert - first);
                p->expert_of_slot[layer * n_slots(p) + slot] = (int32_t)expert;
                p->replica_slot[layer * E + expert] = (int32_t)slot;
                p->replica_share[layer * E + expert] = 1.0f;
            }
        }
    }
    for (int64_t i = 0; i <= L * E; i++) {
        p->replica_begin[i] = i;
    }
    *placement_out = p;
    return TT_OK;
}

tt_status tt_placement_copy(const tt_placement *p, tt_placement **copy_out)
{
    tt_placement *copy = NULL;
    TT_TRY(tti_placement_alloc(p->L, p->E, p->n_groups, p->slots_per_group, &copy));
    const size_t slots = (size_t)(p->L * n_slots(p)), experts = (size_t)(p->L * p->E),
                 replicas = (size_t)p->replica_begin[experts];
    memcpy(copy->expert_of_slot, p->expert_of_slot, slots * sizeof(*p->expert_of_slot));
    memcpy(copy->replica_begin, p->replica_begin, (experts + 1) * sizeof(*p->replica_begin));
    memcpy(copy->replica_slot, p->replica_slot, replicas * sizeof(*p->replica_slot));
    memcpy(copy->replica_share, p->replica_share, replicas * sizeof(*p->replica_share));
    copy->epoch = p->epoch;
    *copy_out = copy;
    return TT_OK;
}

void tt_placement_destroy(tt_placement **placement)
{
    if (*placement) {
        free((*placement)->expert_of_slot);
        free((*placement)->replica_begin);
        free((*placement)->replica_slot);
        free((*placement)->replica_share);
        free(*placement);
        *placement = NULL;
    }
}

/* ---- hash ---- */

uint64_t tt_placement_hash(const tt_placement *p)
{
    uint64_t hash = TT_HASH_BEGIN;
    hash = tt_hash_u64(hash, (uint64_t)p->L);
    hash = tt_hash_u64(hash, (uint64_t)p->E);
    hash = tt_hash_u64(hash, (uint64_t)p->n_groups);
    hash = tt_hash_u64(hash, (uint64_t)p->slots_per_group);
    hash = tt_hash_u64(hash, p->epoch);
    for (int64_t i = 0; i < p->L * n_slots(p); i++) {
        hash = tt_hash_u64(hash, (uint64_t)p->expert_of_slot[i]);
    }
    for (int64_t i = 0; i <= p->L * p->E; i++) {
        hash = tt_hash_u64(hash, (uint64_t)p->replica_begin[i]);
    }
    for (int64_t i = 0; i < p->replica_begin[p->L * p->E]; i++) {
        uint32_t share_bits;
        memcpy(&share_bits, &p->replica_share[i], sizeof(share_bits));
        hash = tt_hash_u64(hash, (uint64_t)p->replica_slot[i]);
        hash = tt_hash_u64(hash, share_bits);
    }
    return hash;
}

/* ---- check ---- */

/* Replicas of one expert. */
static tt_status check_expert(const tt_placement *p, int64_t layer, int64_t expert)
{
    int64_t begin = p->replica_begin[layer * p->E + expert];
    int64_t end = p->replica_begin[layer * p->E + expert + 1];
    TT_CHECK(end > begin, TT_ERR_ARG, "layer %" PRId64 ": expert %" PRId64 " has no slot", layer,
             expert);
    double sum = 0.0;
    for (int64_t i = begin; i < end; i++) {
        int32_t slot = p->replica_slot[i];
        TT_CHECK(slot >= 0 && slot < n_slots(p), TT_ERR_ARG,
                 "layer %" PRId64 ": expert %" PRId64 " is in slot %d: not in 0 to %" PRId64, layer,
                 expert, slot, n_slots(p) - 1);
        int32_t there = p->expert_of_slot[layer * n_slots(p) + slot];
        TT_CHECK(there == expert, TT_ERR_ARG,
                 "layer %" PRId64 ": expert %" PRId64 " is in slot %d, which holds %d", layer,
                 expert, slot, there);
        int64_t group = slot / p->slots_per_group;
        for (int64_t j = begin; j < i; j++) {
            TT_CHECK(p->replica_slot[j] / p->slots_per_group != group, TT_ERR_ARG,
                     "layer %" PRId64 ": group %" PRId64 " holds expert %" PRId64 " twice", layer,
                     group, expert);
        }
        double share = (double)p->replica_share[i];
        TT_CHECK(share >= 0.0 && isfinite(share), TT_ERR_ARG, /* NaN fails the comparison */
                 "layer %" PRId64 ": expert %" PRId64 " has a share of %g in slot %d", layer,
                 expert, share, slot);
        sum += share;
    }
    TT_CHECK(fabs(sum - 1.0) <= SHARE_TOLERANCE, TT_ERR_ARG,
             "layer %" PRId64 ": the shares of expert %" PRId64 " sum to %.6f, not 1", layer,
             expert, sum);
    return TT_OK;
}

tt_status tt_placement_check(const tt_placement *p)
{
    /* The offsets first: everything else is found through them. */
    TT_CHECK(p->replica_begin[0] == 0, TT_ERR_ARG, "replicas begin at %" PRId64 ", not 0",
             p->replica_begin[0]);
    for (int64_t i = 0; i < p->L * p->E; i++) {
        TT_CHECK(p->replica_begin[i + 1] >= p->replica_begin[i], TT_ERR_ARG,
                 "layer %" PRId64 ": the replicas of expert %" PRId64 " end before they begin",
                 i / p->E, i % p->E);
    }
    for (int64_t layer = 0; layer < p->L; layer++) {
        for (int64_t expert = 0; expert < p->E; expert++) {
            TT_TRY(check_expert(p, layer, expert));
        }
        /* Each replica has a slot of its own that names it, so equal counts mean that no slot is
         * filled without a replica. */
        int64_t n_replicas = p->replica_begin[(layer + 1) * p->E] - p->replica_begin[layer * p->E];
        int64_t n_filled = 0;
        for (int64_t slot = 0; slot < n_slots(p); slot++) {
            n_filled += p->expert_of_slot[layer * n_slots(p) + slot] != -1;
        }
        TT_CHECK(n_filled == n_replicas, TT_ERR_ARG,
                 "layer %" PRId64 ": %" PRId64 " slots are filled, but experts have %" PRId64
                 " replicas",
                 layer, n_filled, n_replicas);
    }
    return TT_OK;
}
