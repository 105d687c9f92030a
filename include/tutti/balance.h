/* balance.h - placements: which slots serve (layer, expert), with shares; and the planners that make
 * them from loads. Pure functions, no MPI, no weights: one input gives one answer on every rank.
 *
 * A slot is a place for one expert's weights of one layer in one expert group. Slots are numbered
 * over all groups: slot = group * slots_per_group + local slot. A group holds an expert at most
 * once; how its rows are shared among the groups that have it is a number of its own.
 * Threads: any; a placement is const after create. MPI: none. */
#ifndef TUTTI_BALANCE_H
#define TUTTI_BALANCE_H
#include <stdbool.h>
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

/* Consecutive experts per group, counts differing by at most one (tt_layout_experts), and empty
 * slots up to slots_per_group (0: no more than that takes). Every layer alike. */
TT_API tt_status tt_placement_linear(int64_t L, int64_t E, int n_groups, int64_t slots_per_group,
                                     tt_placement **placement_out);
TT_API tt_status tt_placement_copy(const tt_placement *placement, tt_placement **copy_out);
TT_API void tt_placement_destroy(tt_placement **placement);
/* A layer becomes what layer `from_layer` of another placement of the same counts is. TT_ERR_NOMEM:
 * nothing has changed. */
TT_API tt_status tt_placement_take_layer(tt_placement *placement, int64_t layer,
                                         const tt_placement *from, int64_t from_layer);
TT_API uint64_t tt_placement_hash(const tt_placement *placement);
/* TT_ERR_ARG naming layer and expert if an expert has no slot, a slot is out of range, a group
 * holds an expert twice, or shares do not sum to 1. */
TT_API tt_status tt_placement_check(const tt_placement *placement);

/* ---- planners ---- */

/* load[L][E]: rows of each expert, in any unit. TT_ERR_ARG names layer and expert of one that is
 * negative or not finite. */
TT_API tt_status tt_balance_check_load(const double *load, int64_t L, int64_t E);

/* The published balancer for one layer, slot by slot: expert_of_slot[n_slots], ranks in order, and
 * which copy it is (copy_of_slot[n_slots] or NULL). Experts come in n_sets consecutive sets (a
 * router's groups); if n_nodes divides n_sets, each set's experts stay on one node (hierarchical),
 * else sets and nodes are not looked at (global). A rank may get an expert twice.
 * Errors: TT_ERR_ARG where n_sets does not divide E, n_nodes the ranks, or n_ranks the slots; fewer
 * slots than experts; loads as above. Source: EPLB, the expert-parallel load balancer, as its
 * README describes it. */
typedef struct tt_balance_shape {
    int64_t E, n_slots;
    int n_sets, n_nodes, n_ranks;
} tt_balance_shape;
TT_API tt_status tt_balance_slots(const double *load, const tt_balance_shape *shape,
                                  int32_t *expert_of_slot, int32_t *copy_of_slot);

typedef enum tt_balance_policy {
    TT_BALANCE_LINEAR,      /* as without a balancer */
    TT_BALANCE_PACK,        /* every expert once, heaviest first */
    TT_BALANCE_REPLICATE,   /* copies of hot experts, by sets and nodes where counts allow, else
                             * global; two of a group become one with a larger share; then improved
                             * move by move */
    TT_BALANCE_BYTES,       /* as replicate, for steps of few rows: an expert costs what reading its
                             * weights costs, and is copied only where its rows cost more */
    TT_BALANCE_INCREMENTAL, /* from `current`, at most max_moves weights written to slots */
    TT_BALANCE_POLICY_COUNT
} tt_balance_policy;
TT_API const char *tt_balance_policy_name(tt_balance_policy policy);
/* TT_ERR_USAGE with all names. */
TT_API tt_status tt_balance_policy_find(const char *name, tt_balance_policy *policy_out);

typedef struct tt_balance_params {
    tt_balance_policy policy;
    int64_t L, E;
    int n_groups;
    int64_t slots_per_group;
    int n_sets, n_nodes;         /* 0 = 1; groups stand node by node, equally many on each */
    int64_t max_moves;           /* INCREMENTAL: over all layers */
    double steps;                /* BYTES: steps that the loads were counted over */
    double rows_of_read;         /* BYTES: rows whose products take as long as reading an expert */
    const tt_placement *current; /* an expert that stays in a group stays in its slot; needed by
                                  * INCREMENTAL, else may be NULL */
} tt_balance_params;
/* A placement for load[L][E], with shares that level these loads; its epoch is one more than
 * current's. A layer without load, or whose load is level already, keeps current's slots.
 * Errors: TT_ERR_ARG as above, or counts that cannot be (slots for fewer than all experts, more
 * slots of a group than experts, current of other counts); TT_ERR_NOMEM. */
TT_API tt_status tt_balance_plan(const tt_balance_params *params, const double *load,
                                 tt_placement **placement_out);

/* Rows of the group that has most when one layer's load[E] is shared as the placement says, or as
 * is best for it (resolve). */
TT_API tt_status tt_balance_most_rows(const tt_placement *placement, int64_t layer,
                                      const double *load, bool resolve, double *most_out);
/* Slots of `to` that hold another expert than in `from` (NULL: hold any), over all layers. */
TT_API int64_t tt_balance_moves(const tt_placement *from, const tt_placement *to);

/* ---- which replica a row goes to ---- */

typedef struct tt_spread tt_spread; /* opaque: what one source knows */
typedef struct tt_spread_params {
    const tt_placement *placement;
    const int *distance; /* distance[n_groups] of the source from each group: 0 itself, larger is
                          * farther; NULL: all alike */
    int64_t level_rows;  /* batches of so many choices and more are levelled by their own counts;
                          * others keep the placement's shares */
} tt_spread_params;
/* TT_ERR_NOMEM. */
TT_API tt_status tt_spread_create(const tt_spread_params *params, tt_spread **spread_out);
TT_API void tt_spread_destroy(tt_spread **spread);
/* One layer is placed otherwise from now on: placement has the counts of create's. */
TT_API void tt_spread_set(tt_spread *spread, const tt_placement *placement, int64_t layer);
/* slot[i] of each of a batch's choices expert[n]; -1 of -1. Allocates nothing. */
TT_API void tt_spread_choose(tt_spread *spread, int64_t layer, int64_t n, const int32_t *expert,
                             int32_t *slot);

/* ---- from one placement to another ---- */

/* The weights of `expert` of a layer are copied from one slot to another. */
typedef struct tt_move {
    int32_t expert, from, to;
} tt_move;
/* Moves of one layer that bring `now` nearer to `goal` and can be made at once: at most most_in into
 * each group and most_out out of it, and every expert has a slot afterwards. A copy is taken from
 * the own node where it can be (node_of_group[n_groups], or NULL). move[n_groups * most_in]. Which
 * slot of a group an expert is in does not count. Returns how many; 0: the goal is reached, or there
 * is no memory to find out. With most_in and most_out above 0 every goal is reached. */
TT_API int tt_balance_next_moves(const tt_placement *now, const tt_placement *goal, int64_t layer,
                                 const int *node_of_group, int most_in, int most_out,
                                 tt_move *move);
/* Makes them, and shares the layer's rows out anew so that load[E] is levelled. The epoch grows by
 * one. TT_ERR_NOMEM: nothing has changed. */
TT_API tt_status tt_placement_move(tt_placement *placement, int64_t layer, const tt_move *move,
                                   int n_moves, const double *load);

/* ---- files ---- */

/* Counts of rows per layer and expert. */
typedef struct tt_load_counts {
    int64_t L, E, n_windows;
    double tokens_per_window; /* 0 = not known */
    char **layer;             /* layer[L]: "layer N" with N the layer in the model; "mtp" */
    double *total;            /* [L][E] */
    double *rows;             /* [n_windows][L][E], in order of time */
} tt_load_counts;
/* All zero, without names. */
TT_API tt_status tt_load_counts_create(int64_t L, int64_t E, int64_t n_windows,
                                       tt_load_counts **counts_out);
TT_API void tt_load_counts_destroy(tt_load_counts **counts);
/* TT_ERR_FILE names the file and what is wrong in it, TT_ERR_IO the file that cannot be written; a
 * file is replaced only by a whole one. */
TT_API tt_status tt_load_counts_read(const char *path, tt_load_counts **counts_out);
TT_API tt_status tt_load_counts_write(const tt_load_counts *counts, const char *path);

/* The same for placements; layer[L]: names as above. Read checks what it read (a missing expert, a
 * share that is no number, ...); tt_placement_free_names frees the names. */
TT_API tt_status tt_placement_write(const tt_placement *placement, char *const *layer,
                                    const char *path);
TT_API tt_status tt_placement_read(const char *path, tt_placement **placement_out,
                                   char ***layer_out);
TT_API void tt_placement_free_names(char ***layer, int64_t n);

#endif
