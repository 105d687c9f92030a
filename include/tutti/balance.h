/* balance.h - placements: which slots serve (layer, expert), with shares. Pure functions, no MPI,
 * no weights.
 *
 * A slot is a place for one expert's weights of one layer in one expert group. Slots are numbered
 * over all groups: slot = group * slots_per_group + local slot. Part 1 knows the linear placement;
 * planners from load statistics follow.
 * Threads: any; a placement is const after create. MPI: none. */
#ifndef TUTTI_BALANCE_H
#define TUTTI_BALANCE_H
#include <stdint.h>
#include "tutti/status.h"

typedef struct tt_placement {
    int64_t L, E; /* layers and experts */
    int n_groups;
    int64_t slots_per_group; /* S: the most experts that any group holds in any layer */
    uint64_t epoch;
    int32_t *expert_of_slot; /* [L][n_groups * S]; -1 = empty */
    int64_t *replica_begin;  /* [L * E + 1]: replicas of (l, e) are [replica_begin[l*E+e],
                              * replica_begin[l*E+e+1]) */
    int32_t *replica_slot;   /* slot of each replica */
    float *replica_share;    /* its share of the expert's rows; shares of one (l, e) sum to 1 */
} tt_placement;

/* Consecutive experts per group, counts differing by at most one (tt_layout_experts). Every layer
 * alike. */
TT_API tt_status tt_placement_linear(int64_t L, int64_t E, int n_groups,
                                     tt_placement **placement_out);
TT_API void tt_placement_destroy(tt_placement **placement);
TT_API uint64_t tt_placement_hash(const tt_placement *placement);
/* TT_ERR_ARG naming layer and expert if an expert has no slot, a slot is out of range, a group
 * holds an expert twice, or shares do not sum to 1. */
TT_API tt_status tt_placement_check(const tt_placement *placement);

#endif
