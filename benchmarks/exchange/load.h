/* load.h - what a benchmark of the exchange moves: rows of small integers, so that every sum is
 * exact and can be checked; and who is chosen.
 *
 * Every rank is a source of tokens and serves experts e with owner(e) = itself. An expert's result
 * is the row times 1, 2 or 3. */
#ifndef TUTTI_BENCH_EXCHANGE_LOAD_H
#define TUTTI_BENCH_EXCHANGE_LOAD_H
#include <stdbool.h>
#include <stdint.h>
#include "tutti/plan.h"

typedef enum load_kind {
    LOAD_BALANCED,
    LOAD_ZIPF,       /* the choices of an expert fall with its rank of popularity */
    LOAD_HOT_EXPERT, /* every other choice is expert 0 */
    LOAD_HOT_RANK,   /* every other choice is served by rank 0 */
    LOAD_IDLE_RANK,  /* the last rank has no tokens, and nobody chooses what it serves */
    LOAD_RAGGED,     /* rank r of N has (r + 1) / N of the tokens */
    LOAD_KINDS
} load_kind;
extern const char *const load_names[LOAD_KINDS];

typedef struct load {
    load_kind kind;
    int64_t T, H, K, E; /* T: most of a rank */
    int rank, size;
    uint64_t seed;
    tt_wire wire, wire_back;
    int64_t chunk; /* tokens that the exchange sends at once; 0 = all */
    int64_t n;     /* tokens of this rank */
    float *x;      /* x[n][H] */
    int32_t *slot; /* slot[n][K]: experts, K different ones */
    float *weight; /* weight[n][K] */
} load;

int load_owner(const load *l, int64_t expert);
int64_t load_tokens(const load *l, int rank);
/* Fills x, slot and weight of this rank; ends the program if there is no memory. */
void load_make(load *l);
void load_free(load *l);
/* Chunks of this rank's tokens: what it sends to one peer takes so many messages. */
int64_t load_n_chunks(const load *l);
float load_factor(int64_t expert);
/* How many values of y[n][H] are not what they must be: exactly, unless the wire has 8 bits, or
 * sums too are rounded to wire_back. */
int64_t load_wrong(const load *l, const float *y, bool rounds_sums);

/* Of this rank's tokens: rows that leave its node, each once to each other node or to each rank
 * there; and results, one per choice, that come back from other nodes. */
typedef struct load_least {
    int64_t rows_to_nodes, rows_to_far_ranks, results_from_nodes;
} load_least;
load_least load_count(const load *l, const int *node_of_rank);
#endif
