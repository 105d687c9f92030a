/* balance_internal.h - what the files of the balance room share: one layer while it is planned. */
#ifndef TUTTI_BALANCE_INTERNAL_H
#define TUTTI_BALANCE_INTERNAL_H
#include <jansson.h>
#include "tutti/balance.h"

/* A placement with empty slots, and room for a replica in each. */
tt_status tti_placement_alloc(int64_t L, int64_t E, int n_groups, int64_t slots_per_group,
                              tt_placement **placement_out);

/* A file's JSON object, to json_decref. TT_ERR_FILE with the place. */
tt_status tti_balance_read_json(const char *path, json_t **root_out);
/* Writes it and drops it; NULL: there was no memory for it. TT_ERR_IO. */
tt_status tti_balance_write_json(const char *path, json_t *root);
/* value[rows][cols] as lists; whole numbers as such. */
json_t *tti_balance_numbers(const double *value, int64_t rows, int64_t cols);
json_t *tti_balance_names(char *const *name, int64_t n);

/* One replica of an expert. */
typedef struct tti_replica {
    int32_t group, slot;
    double rows;   /* that it gets */
    double others; /* that its group has of other experts; of tti_fill */
} tti_replica;
/* Gives the rows of an expert to its n replicas, so that the least loaded of their groups are filled
 * to one level; with equal loads the first one comes first. Puts them in order of loads. Returns how
 * many rows moved. In: rows of each and group_rows[] as they were, these being part of those. */
double tti_fill(double load, int n, tti_replica *replica, double *group_rows);

/* One layer: which expert each slot holds, and how the rows of each expert are shared among its
 * replicas. Slot g * S + s is slot s of group g. Owned parts: all arrays. */
typedef struct tti_layer_plan {
    int64_t E, S;
    int n_groups;
    double *load;       /* load[E] */
    int32_t *slot;      /* slot[n_groups * S]: an expert, or -1; a group holds an expert once */
    int32_t *slot_of;   /* slot_of[E * n_groups]: where a group holds an expert, -1 = not at all */
    double *rows;       /* rows[n_groups * S]: of its expert that a slot gets; after tti_level */
    double *group_rows; /* group_rows[n_groups]: their sums */
    tti_replica *replica; /* replica[n_groups]: scratch */
} tti_layer_plan;
tt_status tti_layer_plan_init(tti_layer_plan *plan, int64_t E, int n_groups, int64_t S);
void tti_layer_plan_fini(tti_layer_plan *plan);
/* Empties all slots. */
void tti_layer_plan_clear(tti_layer_plan *plan);
/* Puts an expert (-1: none) in a slot, whatever was in it. */
void tti_layer_plan_put(tti_layer_plan *plan, int64_t slot, int32_t expert);
/* All slots, expert_of_slot[n_groups * S]. */
void tti_layer_plan_place(tti_layer_plan *plan, const int32_t *expert_of_slot);
/* The first empty slot of a group, -1 if it is full. */
int64_t tti_layer_plan_empty(const tti_layer_plan *plan, int group);
int tti_layer_plan_replicas(const tti_layer_plan *plan, int64_t expert);

/* Shares out the rows of all experts so that the sum of the squares of the groups' rows, and with
 * it the most that any group gets, is the least that the replicas allow. Source: block coordinate
 * descent, each block a water filling; the blocks are convex and do not share variables (Bertsekas,
 * Nonlinear Programming, 2.7). Ends when a sweep moves less than one part in 10^7. */
void tti_level(tti_layer_plan *plan);
/* Writes a levelled layer into a placement, behind the layer before. */
void tti_layer_plan_write(const tti_layer_plan *plan, tt_placement *placement, int64_t layer);
double tti_most_rows(const tti_layer_plan *plan);

/* Moves and adds replicas as long as that lowers the most rows of a group, for at most *moves
 * weights written to slots, which are counted off. */
void tti_improve(tti_layer_plan *plan, int64_t *moves);
#endif
