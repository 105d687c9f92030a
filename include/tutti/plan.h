/* plan.h - the layout as data: which rank does what, how columns and heads are split, and what
 * memory it takes.
 *
 * Everything here is a pure function of its arguments, needs no MPI and runs on a login node; every
 * rank computes the same layout from the same (agreed) input. Roles: attention ranks form `dp`
 * data-parallel groups of `tp` tensor-parallel ranks; expert ranks form `n_groups` expert groups of
 * `etp` ranks, each group holding whole experts (split by columns over its ranks). A rank may have
 * both roles (colocated, the default), one (disaggregated), and an attention-only or expert-only
 * rank is no special case anywhere.
 * Threads: any. MPI: none. */
#ifndef TUTTI_PLAN_H
#define TUTTI_PLAN_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "tutti/linear.h"
#include "tutti/model.h"
#include "tutti/status.h"

enum {
    TT_LAYOUT_MAX_SPLIT = 256
}; /* most ranks that split one group's columns (tp, etp); rooms
    * keep a rectangle for each on the stack */

/* Who holds dense matrices (all weights but those of experts, without norms and biases). */
typedef enum tt_replicate {
    TT_REPLICATE_AUTO, /* not decided yet: as NUMA */
    TT_REPLICATE_NUMA, /* each rank has its own, on its NUMA node */
    TT_REPLICATE_NODE, /* ranks of a node hold once what several of them want, spread over the
                        * NUMA nodes */
    TT_REPLICATE_COUNT
} tt_replicate;
#define TT_REPLICATE_CHOICES "auto|numa|node"
TT_API const char *tt_replicate_name(tt_replicate replicate);

/* How KV is stored; which bits travel. (tt_weight_format is model.h's.) */
typedef enum tt_wire {
    TT_WIRE_F32,
    TT_WIRE_BF16,
    TT_WIRE_INT8, /* groups of 32 with a f32 scale: as activations are rounded to int8, so that
                   * they need not be again */
    TT_WIRE_FP8,  /* MXFP8: e4m3 in groups of 32 with a scale that is a power of two */
    TT_WIRE_COUNT
} tt_wire;
#define TT_WIRE_CHOICES "f32|bf16|int8|fp8" /* in this order, for options (tt_option.choices) */
TT_API const char *tt_wire_name(tt_wire wire);
typedef enum tt_kv_format { TT_KV_F32, TT_KV_BF16, TT_KV_INT8, TT_KV_COUNT } tt_kv_format;
#define TT_KV_CHOICES "f32|bf16|int8"
TT_API const char *tt_kv_format_name(tt_kv_format kv);
enum { TT_WIRE_GROUP = TTK_ACT_GROUP };
/* Chunks of all handles of an exchange: each has messages, tags and lists of its own. */
enum { TT_EXCHANGE_MAX_CHUNKS = 1 << 14 };
/* Bytes of a row of n elements. Its column c, a multiple of TT_WIRE_GROUP, begins at byte
 * tt_wire_row_bytes(wire, c). */
static inline size_t tt_wire_row_bytes(tt_wire wire, int64_t n)
{
    switch (wire) {
    case TT_WIRE_F32:
        return (size_t)n * sizeof(float);
    case TT_WIRE_BF16:
        return (size_t)n * sizeof(tt_bf16);
    case TT_WIRE_INT8:
        return ttk_row8_bytes(TTK_ROW8_INT8, n);
    case TT_WIRE_FP8:
        return ttk_row8_bytes(TTK_ROW8_FP8, n);
    case TT_WIRE_COUNT:
        break; /* no format */
    }
    return 0;
}

/* How rows reach the owners of slots on other nodes. */
typedef enum tt_route {
    TT_ROUTE_AUTO,   /* NODE if some node has several owners, else DIRECT */
    TT_ROUTE_DIRECT, /* a message to every owner */
    TT_ROUTE_NODE    /* a message to every node, each row in it once */
} tt_route;
/* How results come back from other nodes. */
typedef enum tt_combine {
    TT_COMBINE_EXACT,  /* one for each choice; the source sums in the order of choices: the same
                        * bits on every layout */
    TT_COMBINE_REDUCED /* one sum for each token and message of rows: fewer bytes, other bits on
                        * another layout */
} tt_combine;
/* What AUTO means for owner[n_owners]; any other route as it is. */
TT_API tt_route tt_route_choose(tt_route route, const int *owner, int n_owners,
                                const int *node_of_rank);

/* The smallest form of rows on their way that changes no bit: the one to which all experts round
 * their rows anyway; else f32. */
TT_API tt_wire tt_plan_lossless_wire(const tt_model *model, tt_weight_format weights, tt_act act);

typedef struct tt_layout_params {
    int n_ranks;
    const int *node_of_rank; /* node_of_rank[n_ranks], nodes 0..; NULL: all on one node */
    int dp, tp, ep, etp;     /* 0 = choose; ep counts expert ranks. Fewer than n_ranks of either:
                              * the first of a walk node by node, in which TP and expert groups
                              * stay within nodes */
    const char *split;       /* "attention:0-3+8,experts:4-7" or NULL; '+' joins ranges, ','
                              * parts sections, a rank may stand in both; then dp * tp must equal
                              * the attention ranks */
    int64_t max_batch;       /* sequences decoded at once over all DP groups */
    int64_t prefill_chunk;   /* prompt rows per DP group and step; 0 = 512 */
    int64_t context;         /* tokens per sequence; 0 = the model's, at most 4096 */
    int64_t kv_memory_bytes; /* per rank; 0 = what max_batch * context needs */
    int n_handles;           /* exchange handles in flight; 0 = 3 */
    tt_weight_format weights;
    tt_act act; /* rows into products with quantised weights */
    tt_wire wire, wire_back;
    tt_route route;
    tt_combine combine;
    tt_kv_format kv;
    tt_replicate replicate;
    int64_t overlap_rows, exchange_chunk; /* of tt_layout */
    bool open_slots;                      /* of tt_layout */
    int64_t spare_slots; /* with open_slots, for replicas: beyond a group's part of the experts;
                          * cut down to all experts */
    int staged_slots;    /* with open_slots; of tt_layout */
} tt_layout_params;

/* One rank's part. Ids are -1 where the rank lacks the role. */
typedef struct tt_rank_role {
    int node;
    int dp_id, tp_id;             /* attention role */
    int group_id, etp_id;         /* expert role: which group, which column part of its experts */
    int64_t head_begin, head_end; /* query heads [begin, end); sizes differ by at most one over
                                   * tp */
    int64_t kv_begin, kv_end;     /* KV heads those need (GQA); MLA: 0, 1 */
} tt_rank_role;

typedef struct tt_layout {
    int n_ranks, n_nodes;
    int dp, tp, n_groups, etp; /* a model without experts: n_groups 0, etp 1, no rank has an
                                * expert role */
    tt_rank_role *role;        /* role[n_ranks] */
    int *attention_rank;       /* [dp * tp], rank of (dp_id, tp_id) at dp_id * tp + tp_id */
    int *expert_rank;          /* [n_groups * etp] likewise */
    int64_t max_batch, max_batch_group; /* in all; per DP group (rounded up) */
    int64_t prefill_chunk;
    int64_t max_rows_group; /* rows of one DP group's step: max_batch_group + prefill_chunk */
    int64_t max_rows_rank;  /* rows one rank dispatches: the most its dealt share can be */
    int64_t context;
    int64_t kv_pages; /* per attention rank and layer set: pages of 16 tokens in its pool */
    int n_handles;
    tt_weight_format weights;
    tt_act act;
    tt_wire wire, wire_back;
    tt_route route; /* not AUTO */
    tt_combine combine;
    tt_kv_format kv;
    tt_replicate replicate;  /* tt_plan_settle decides what is AUTO */
    int64_t overlap_rows;    /* steps in which some DP group has at least so many rows are
                             * computed in two parts, so that the exchange of one flies while the
                             * other is computed, for the price of reading weights twice; 0 =
                             * none; -1: the engine measures which is faster (on several nodes,
                             * with experts) */
    int64_t exchange_chunk;  /* most rows of a rank that an exchange sends at once: the experts
                             * begin with the first chunk while others fly, for the price of
                             * reading their weights for each; 0 = all rows of a step */
    int64_t slots_per_group; /* experts that a group has room for in each layer: its part of them
                              * if the counts were even, and spare ones for replicas */
    bool open_slots;         /* any slot may hold any expert of its layer; else consecutive experts
                              * stay in theirs */
    int staged_slots;        /* experts that a rank can take in beside its slots, while steps go on;
                              * 0: slots never change */
    bool must_share;         /* it decided on NODE: nothing else fits. Follows from the rest, so
                             * it is not in the hash */
    char why[256];           /* one line: what was chosen and why */
} tt_layout;

/* Chooses and checks. Errors: TT_ERR_USAGE with the rule that was broken (tp above the heads, dp *
 * tp above the ranks, etp that does not divide a node's expert ranks, a rank without any role,
 * context above the model's, ...). */
TT_API tt_status tt_layout_create(const tt_arch *arch, const tt_layout_params *params,
                                  tt_layout **layout_out);
TT_API void tt_layout_destroy(tt_layout **layout);
/* A hash of everything in it but `why` and `must_share` (one layout may be found in two ways), for
 * agreement between ranks. */
TT_API uint64_t tt_layout_hash(const tt_layout *layout);

/* Columns [begin, end) of `total` that part `part` of `n_parts` computes: split in units of a panel
 * (TTK_PANEL), sizes differ by at most one unit; may be empty. Used for output columns of products
 * under TP and ETP. */
TT_API void tt_layout_columns(int64_t total, int n_parts, int part, int64_t *begin_out,
                              int64_t *end_out);
/* Chunks in which a rank's rows of a full step are exchanged: at least 1. */
TT_API int64_t tt_layout_n_chunks(const tt_layout *layout);
/* Rows that each of them has room for. */
TT_API int64_t tt_layout_chunk_rows(const tt_layout *layout);
/* Most (source, chunk, slot) triples with rows that a rank with n_slots slots gets of one
 * exchange. */
TT_API int64_t tt_layout_max_groups(const tt_arch *arch, const tt_layout *layout, int64_t n_slots);
/* Columns of the widest part: the first one's. */
TT_API int64_t tt_layout_widest(int64_t total, int n_parts);
/* Rows [begin, end) of T that TP rank tp_id routes and dispatches ("dealing"). */
TT_API void tt_layout_deal(int64_t T, int tp, int tp_id, int64_t *begin_out, int64_t *end_out);
/* Experts [begin, end) of a group under the linear placement: counts differ by at most one. */
TT_API void tt_layout_experts(int64_t E, int n_groups, int group_id, int64_t *begin_out,
                              int64_t *end_out);

/* Heads of gated delta layers that a TP rank computes: value heads [value_begin, value_end), counts
 * differ by at most one, none where tp exceeds them; and the key heads those need, which ranks may
 * share. */
typedef struct tt_delta_heads {
    int64_t value_begin, value_end, key_begin, key_end;
} tt_delta_heads;
TT_API tt_delta_heads tt_layout_delta_heads(const tt_delta *delta, int tp, int tp_id);
/* Floats of one sequence's state in one gated delta layer on such a rank: the heads' states, then
 * the last conv - 1 inputs of the convolution. */
TT_API int64_t tt_delta_state_floats(const tt_delta *delta, const tt_delta_heads *heads);

/* Sizes of work buffers, which the rooms that have them and the plan share. */
enum {
    TT_HEAD_ROWS = 32,                    /* rows of logits that are held at once */
    TT_HEAD_BEST_COLUMNS = 4 * TTK_PANEL, /* that a thread holds of them where only the likeliest
                                           * token is wanted: 16 KiB */
    TT_JOB_ROWS =
        512, /* least rows that the experts of a rank compute at once: enough to reuse each weight panel from cache */
    TT_GATHER_REGIONS = 2,  /* of a gather's window: uses that may be in flight */
    TT_ATTEND_QUERIES = 32, /* rows times heads that one thread attends at once: a key or value is
                             * widened once for all of them, and their copies stay in the L2
                             * cache */
    TT_PLAN_THREADS = 16,   /* threads of a rank that the plan assumes, which does not know them */
    TT_PLAN_PROCESS_BYTES = 64 << 20 /* MPI, the program, thread stacks; in work_bytes. Guessed */
};
/* Rows for which a rank's experts have buffers. */
static inline int64_t tt_layout_job_rows(const tt_layout *layout)
{
    return layout->max_rows_rank > TT_JOB_ROWS ? layout->max_rows_rank : TT_JOB_ROWS;
}

/* Bytes that one rank will hold. */
typedef struct tt_rank_memory {
    uint64_t dense_bytes; /* attention, norms, embedding, head, dense FFN, shared experts,
                           * router */
    uint64_t expert_bytes;
    uint64_t kv_bytes;       /* pages, and the states of recurrent layers */
    uint64_t exchange_bytes; /* windows and message buffers of all handles */
    uint64_t work_bytes;     /* step workspace */
    uint64_t borrowed_bytes; /* of dense_bytes, what a lower rank of the node holds for this one
                              * too (TT_REPLICATE_NODE; when loading, whoever comes first holds
                              * it: sums over a node are exact) */
    uint64_t total_bytes;    /* without borrowed_bytes */
} tt_rank_memory;
TT_API tt_status tt_plan_memory(const tt_model *model, const tt_layout *layout, int rank,
                                tt_rank_memory *memory_out);
/* KV bytes per token of one attention layer with n_kv KV heads (MLA: its latent, whatever n_kv).
 * int8: a byte per number and a f32 scale per key and value of a head; a latent has one for c and
 * one for its rotary key. */
TT_API uint64_t tt_plan_kv_token_bytes(const tt_arch *arch, tt_kv_format kv, int64_t n_kv);
/* KV bytes per token over all attention layers on one attention rank. */
TT_API uint64_t tt_plan_kv_bytes_per_token(const tt_arch *arch, const tt_layout *layout, int rank);
/* Floats of the buffer through which the blocks of long contexts are spread over the threads of an
 * attention rank (ttk_attend_args.parts): as many as a batch of full contexts has, at most
 * TT_ATTEND_PARTS_BYTES. */
enum {
    TT_ATTEND_PARTS_BYTES = 16 << 20
}; /* a last-level cache's share: parts are read back
    * soon */
TT_API int64_t tt_plan_attend_parts_floats(const tt_arch *arch, const tt_layout *layout,
                                           const tt_rank_role *role);
/* Bytes of the states of recurrent layers for all sequences of a DP group, on one attention
 * rank. */
TT_API uint64_t tt_plan_state_bytes(const tt_arch *arch, const tt_layout *layout, int rank);
/* Refuses a layout that cannot fit: available[n_nodes] bytes on each node, shared by its ranks; 0 =
 * unknown. TT_ERR_FIT names the node, the need, the room, and what would help (more ranks or nodes,
 * less context). */
TT_API tt_status tt_plan_check_fit(const tt_model *model, const tt_layout *layout,
                                   const uint64_t *available_bytes);
/* Measured speeds of a machine. */
typedef struct tt_rates {
    double read_bytes_per_s; /* of one rank */
    double link_bytes_per_s; /* between nodes, per rank */
    double link_latency_s;   /* of one message between nodes */
    double window_latency_s; /* of one publication inside a node */
} tt_rates;
TT_API tt_rates tt_rates_default(void);
/* Decides what the layout leaves open and checks that it fits. AUTO becomes NUMA if all nodes have
 * room for that (or it is not known), else NODE; why_out[why_bytes] gets one line that says why it
 * became NODE, else "". Then as tt_plan_check_fit. A pure function: ranks that pass the same decide
 * alike. */
TT_API tt_status tt_plan_settle(const tt_model *model, tt_layout *layout,
                                const uint64_t *available_bytes, char *why_out, size_t why_bytes);
/* What a rank can have to hold for its node under TT_REPLICATE_NODE: matrices, and bytes of an
 * arena (share.h) that has room for all of them. */
TT_API tt_status tt_plan_shared_room(const tt_model *model, const tt_layout *layout, int rank,
                                     size_t *n_matrices_out, size_t *arena_bytes_out);
/* Packed bytes of a matrix [rows][cols] of the checkpoint type under a weight format. */
TT_API uint64_t tt_plan_packed_bytes(tt_weight_format weights, const ttk_format *stored,
                                     int64_t rows, int64_t cols);

/* Predicted seconds of one decode step of `batch` sequences at context `context`, and bytes of
 * weights read per step by the busiest rank (expected distinct experts under uniform routing). */
TT_API tt_status tt_plan_predict(const tt_model *model, const tt_layout *layout,
                                 const tt_rates *rates, int64_t batch, int64_t context,
                                 double *step_s_out, double *bytes_out);
/* Prints the layout: roles and memory per rank, human-readable. */
TT_API tt_status tt_plan_print(const tt_model *model, const tt_layout *layout, FILE *out);

#endif
