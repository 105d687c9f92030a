/* moe.h - feed-forward layers: gated FFN, router, expert bank, and the order of work of one MoE
 * layer.
 *
 *   y = sum over k of weight[k] * expert[k](x)  +  share * shared(x)         expert(x) = down( act(gate x + b, up x + b) ) + b
 * act: silu(g) * u, or clamped (tt_activation). The biases b are absent in most models; share is 1,
 * or sigmoid(shared router . x). With tt_router.weight_on_input it is expert[k](weight[k] * x)
 * instead: the row is rounded to the wire, then multiplied (rounded once) by its expert's rank.
 * While rows fly the shared expert runs in pieces; experts run when all rows that come are here, or
 * when there is nothing else to do. moe knows experts, weights and slots; moving rows is the
 * exchange's. Threads: one thread at a time per object; work is spread over the compute stream. */
#ifndef TUTTI_MOE_H
#define TUTTI_MOE_H
#include <stdbool.h>
#include <stdint.h>
#include "tutti/balance.h"
#include "tutti/comm.h"
#include "tutti/exchange.h"
#include "tutti/load.h"
#include "tutti/plan.h"

/* ---- router ---- */
/* A layer's router, and what it works in. */
typedef struct tt_chooser {
    const tt_router *router;
    int64_t E, K;
    const float *bias; /* bias[E], or NULL */
    float *work;       /* work[2 * E] */
} tt_chooser;
/* Chooses K of E experts from the router's logits z[E] of one token and computes their weights.
 *   s = softmax(z), sigmoid(z), or z (..._CHOSEN);  c = s + bias (choosing only)
 *   groups: E is cut in n_groups equal runs; a group's score is its largest c or the sum of its two largest; experts outside the
 *   n_groups_kept best groups are never chosen
 *   chosen = the K largest c, best first, ties to the smaller id;  w = s[chosen], softmax(z[chosen]) or sigmoid(z[chosen])
 * or, SPARSEMIXER (no bias, no groups), for each k in turn, m being the largest z not chosen yet:
 *   w = softmax at chosen[k] over the e not chosen yet with not (m - z[e]) / max(|z[e]|, m) > 2 jitter
 * then normalise: w /= max(sum of w + eps, floor), summed in order k;  w *= scale
 * Source: arXiv:2412.19437 section 2.1.2; arXiv:2405.04434 section 2.2; arXiv:2409.12136 section
 * 3.1; the routers of the transformers library. In: z[E] is overwritten. Out: expert[K], weight[K].
 * Errors: TT_ERR_NUMERIC if a score or weight is not finite. Thread: any. */
TT_API tt_status tt_router_choose(const tt_chooser *chooser, float *z, int32_t *expert,
                                  float *weight);

/* ---- gated FFN with columns split over TP ranks (dense layers), or whole (shared expert) ---- */
typedef struct tt_ffn {
    tt_linear gate, up; /* [F part][H], each with its bias if it has one */
    tt_linear down;     /* [H part][F] */
    int64_t F, H;
    tt_activation activation;
    float limit, alpha; /* of the activation */
} tt_ffn;
TT_API void tt_ffn_fini(tt_ffn *ffn);

/* ---- all feed-forward layers of one rank ---- */
typedef struct tt_moe tt_moe; /* opaque */
typedef struct tt_moe_params {
    const tt_model *model;
    const tt_layout *layout;
    tt_world *world;
    const tt_placement *placement; /* kept as pointer; of the layout's counts */
    tt_stream *compute;
    tt_load_params *load;
} tt_moe_params;
/* Loads dense FFNs, routers, shared experts (attention ranks) and the experts of this rank's slots;
 * creates the exchange.
 * MPI: collective on the world. Errors are agreed. */
TT_API tt_status tt_moe_create(const tt_moe_params *params, tt_moe **moe_out);
TT_API void tt_moe_destroy(tt_moe **moe);

/* Dense layer: y[T][H] = ffn(x[T][H]) on all TP ranks. MPI: collective on the TP group. */
TT_API tt_status tt_moe_dense(tt_moe *moe, int64_t layer, int64_t T, const float *x, float *y);

/* A step begins: what tt_moe_experts_touched counts each expert once in. */
TT_API void tt_moe_new_step(tt_moe *moe);
/* MoE layer, split phase. begin routes this rank's dealt rows x[T][H] (T = 0 on a rank without
 * rows) and sends them on their way; end does the layer's work piece by piece as rows come, waits,
 * sums, and writes y[T][H]. While it would wait it does what there is to do for `other`, a second
 * handle in flight (-1: none). Handles end in the order in which they began. x must stay until end.
 * MPI: begin/end of a collective on the world. Errors: TT_ERR_NUMERIC (NaN in routing: carried to
 * all), exchange errors. */
TT_API tt_status tt_moe_begin(tt_moe *moe, int handle, int64_t layer, int64_t T, const float *x,
                              tt_status mine);
TT_API tt_status tt_moe_end(tt_moe *moe, int handle, int other, float *y);

/* How often this rank's rows chose each expert since create: count[L][E]; NULL on ranks without
 * attention. */
TT_API const uint64_t *tt_moe_expert_counts(const tt_moe *moe);

/* ---- weights that change between steps (tt_layout.open_slots) ---- */
enum { TT_MOE_SLOT_PARTS = 6 };
typedef struct tt_moe_part {
    void *data;
    size_t bytes;
} tt_moe_part;
/* The memory of one of this rank's slots, whatever is in it: part[TT_MOE_SLOT_PARTS]; returns how
 * many. Slots of one layer have parts of the same sizes in the same order on all ranks of the same
 * column part. Who writes there does so between steps, before tt_moe_take_placement. */
TT_API int tt_moe_slot_parts(const tt_moe *moe, int64_t layer, int64_t slot, tt_moe_part *part);
/* The placement (create's, which has been changed, and its epoch) holds from the next step on, in
 * this layer. MPI: logically collective, between steps. */
TT_API tt_status tt_moe_take_placement(tt_moe *moe, int64_t layer);
/* Experts of this rank's slots that had rows, summed over layers and steps, each counted once a
 * step; on ranks of another column part than the first 0. */
TT_API uint64_t tt_moe_experts_touched(const tt_moe *moe);
/* Weight bytes read by router, experts, shared and dense FFN products since create. */
TT_API uint64_t tt_moe_bytes_read(const tt_moe *moe);
TT_API const tt_exchange *tt_moe_exchange(const tt_moe *moe);

#endif
