/* moe_internal.h - what the files of this room share. */
#ifndef TUTTI_MOE_INTERNAL_H
#define TUTTI_MOE_INTERNAL_H
#include "tutti/moe.h"
#include "tutti/memory.h"
#include "tutti/trace.h"

/* What one rank computes of an FFN: inner columns (outputs of gate and up) and output columns (of
 * down). */
typedef struct tti_ffn_columns {
    int64_t f_begin, f_end, h_begin, h_end;
} tti_ffn_columns;

/* The weights of one feed-forward layer on this rank. */
typedef struct tti_moe_layer {
    bool is_moe;
    tt_ffn dense;            /* dense layers: this TP rank's columns */
    tt_linear router;        /* [E][H], with its bias if it has one; attention ranks */
    float *choice_bias;      /* choice_bias[E] or NULL, owned */
    tt_ffn shared;           /* attention ranks; F = 0 if the model has none */
    tt_linear shared_router; /* [1][H]; N = 0 if the shared expert counts whole */
    tt_ffn *slot;            /* slot[n_slots]: this rank's column part of each expert; empty slots
                              * have F = 0 */
    tt_arena experts;        /* their packed matrices, side by side, so that they lie in huge pages:
                              * one alone may be too small for that */
} tti_moe_layer;

/* The shared expert runs in pieces while rows fly: pieces of gate and up, then pieces of down. */
enum {
    TTI_SHARED_PIECES = 4
}; /* per half; guessed: fine enough to notice arrivals, coarse
    * enough to keep threads busy */

/* One use of a handle in flight. */
typedef struct tti_moe_flight {
    bool active;
    int64_t layer, T;
    const float *x;             /* x[T][H] */
    float *shared_inner;        /* [max_tokens][F_shared]: activations of the shared expert */
    float *shared_up;           /* work of the same shape */
    float *shared_out;          /* [max_tokens][H] */
    void *shared_in_rounded;    /* x as the layout's `act` has it, rounded with the first piece */
    void *shared_inner_rounded; /* and shared_inner, rounded with the first piece of down */
    float *shared_weight;    /* [max_tokens], of shared_out; where the model has a shared router */
    int shared_done;         /* pieces done, of 2 * TTI_SHARED_PIECES */
    tt_exchange_rows *group; /* group[max_groups]: landed and not yet computed */
    int64_t n_groups;
    tt_exchange_rows *chosen; /* chosen[max_groups]: being computed */
    bool all_here;            /* all rows have landed; what others wait for is computed */
    int chunks_done;          /* chunks from the first on of which all rows have landed, and what
                               * others wait for is computed or about to be */
} tti_moe_flight;

/* A run of groups of one slot: rows [row, row + n) of the gathered buffer. */
typedef struct tti_moe_job {
    int32_t slot;
    int64_t group_begin, group_end; /* in the sorted group list */
    int64_t row, n;
} tti_moe_job;

struct tt_moe {
    const tt_arch *arch;
    const tt_layout *layout;
    const tt_rank_role *role;
    tt_world *world;
    const tt_placement *placement;
    tt_spread *spread; /* attention ranks with open slots; else experts live once */
    tt_stream *compute;
    int64_t L, H, E, K, F;  /* L with MTP layers that are loaded */
    int64_t n_slots;        /* local */
    int32_t own_source_id;  /* this rank among the exchange's sources; -1 = none */
    tti_ffn_columns part;   /* this ETP part's inner and output columns */
    tti_moe_layer *layer;   /* layer[L] */
    tt_exchange *exchange;  /* NULL if no layer is MoE */
    tt_gather *tp_gather;   /* dense layers */
    tt_gather *etp_gather;  /* inner activations of experts split over ranks */
    tti_moe_flight *flight; /* flight[n_handles] */
    bool is_waiting;        /* nothing to compute since `waiting` began */
    tt_span waiting;

    /* router work, attention ranks: [max_rows_rank] tokens */
    float *logits;           /* [T][E] */
    float *route_work;       /* [n_threads][2 * E] */
    tt_status *route_status; /* [n_threads] */
    int32_t *expert;         /* [T][K] */
    int32_t *slot;           /* [T][K] */
    float *weight;           /* [T][K] */
    /* dense work, attention ranks: [max_rows_group] rows */
    float *dense_gate, *dense_up; /* [T][F_dense] */
    void *dense_rounded;          /* [T] rows into gate and up, then into down, as the layout's
                                   * `act` has them */
    /* expert work, expert ranks: rows that are computed at once */
    int64_t job_rows; /* capacity */
    tti_moe_job *job; /* job[max_groups] */
    int64_t max_groups;
    float *job_x;      /* [job_rows][H] */
    void *job_rounded; /* [job_rows] of job_x, then of the activations, as the layout's `act` has
                        * them */
    float *job_gate, *job_up; /* [job_rows][F] */
    float *job_y;             /* [job_rows][H part] */

    uint64_t *expert_count; /* [L][E]: choices of this rank's rows; attention ranks */
    uint64_t *touched_in;   /* [L][n_slots]: the last step that had rows for it */
    uint64_t n_steps;
    uint64_t experts_touched;
    uint64_t bytes_read;
    tt_arena arena; /* all float work buffers above */
};

/* ---- ffn.c ---- */
/* Where its tensors are; TT_ROLE_COUNT where it has no bias. */
typedef struct tti_ffn_roles {
    tt_role gate, up, down, gate_bias, up_bias, down_bias;
} tti_ffn_roles;
extern const tti_ffn_roles tti_ffn_dense, tti_ffn_shared, tti_ffn_expert;
/* Loads those columns with their biases. On an error ffn is empty. */
tt_status tti_ffn_load(tt_load_params *load, const tti_ffn_roles *roles, int64_t layer,
                       int64_t expert, const tti_ffn_columns *columns, tt_ffn *ffn);
/* Memory as of those columns, out of load->arena, that holds nothing yet. */
tt_status tti_ffn_reserve(tt_load_params *load, const tti_ffn_roles *roles, int64_t layer,
                          int64_t expert, const tti_ffn_columns *columns, tt_ffn *ffn);
/* Whether the matrices of two experts of a layer are packed in the same formats. */
bool tti_ffn_alike(const tt_load_params *load, const tti_ffn_roles *roles, int64_t layer, int64_t a,
                   int64_t b);
/* Tells the system that they will be loaded soon. */
void tti_ffn_will_need(const tt_load_params *load, const tti_ffn_roles *roles, int64_t layer,
                       int64_t expert, const tti_ffn_columns *columns);
/* Bytes that those columns' packed matrices take of an arena. */
size_t tti_ffn_packed_bytes(const tt_load_params *load, const tti_ffn_roles *roles, int64_t layer,
                            int64_t expert, const tti_ffn_columns *columns);
/* Bytes that one pass through it reads. */
uint64_t tti_ffn_bytes(const tt_ffn *ffn);
/* One half of the network on some rows: columns [panel_begin, panel_end) (in panels of this part) of
 * out[T][ld], from in[T]. up[T][ld]: work of the inner half. */
typedef struct tti_ffn_half {
    float *out, *up;
    int64_t ld;
    const tt_rows *in;
    int64_t T, panel_begin, panel_end;
} tti_ffn_half;
/* The inner half, out = act(gate(in), up(in)), and out = down(in), by the caller alone. */
void tti_ffn_inner(const tt_ffn *ffn, const tti_ffn_half *half);
void tti_ffn_down(const tt_ffn *ffn, const tti_ffn_half *half);
/* The same, spread over the stream. */
void tti_ffn_run_inner(const tt_ffn *ffn, tt_stream *compute, const char *name,
                       const tti_ffn_half *half);
void tti_ffn_run_down(const tt_ffn *ffn, tt_stream *compute, const char *name,
                      const tti_ffn_half *half);

/* ---- slots.c ---- */
/* Whether the placement fits, and, with open slots, experts are alike. */
tt_status tti_slots_check(const tt_moe *moe, const tt_load_params *load);
/* A layer's slots and the experts in them. */
tt_status tti_slots_load(tt_moe *moe, tt_load_params *load, int64_t layer);
void tti_slots_fini(tt_moe *moe, tti_moe_layer *layer);
/* How this attention rank chooses among replicas. */
tt_status tti_slots_spread(tt_moe *moe);

/* ---- experts.c ---- */
/* Which of the landed groups to compute: all of chunks that are done; of these, those of slots that
 * hold another rank's rows; or those of one slot. */
typedef enum tti_moe_which { TTI_MOE_ALL, TTI_MOE_FAR, TTI_MOE_ONE_SLOT } tti_moe_which;
/* Computes those groups, puts and pushes their results. With etp > 1 only TTI_MOE_ALL, once, when
 * all rows are here. */
tt_status tti_moe_run_experts(tt_moe *moe, int handle, tti_moe_flight *flight, tti_moe_which which);
/* ---- shared.c ---- */
bool tti_moe_has_shared_piece(const tt_moe *moe, const tti_moe_flight *flight);
/* Does the next piece of the shared expert: there must be one. */
void tti_moe_shared_piece(tt_moe *moe, tti_moe_flight *flight);
/* y[T][H] += the shared expert's output, times its weight if it has one; all its pieces are
 * done. */
void tti_moe_add_shared(tt_moe *moe, const tti_moe_flight *flight, float *y);

#endif
