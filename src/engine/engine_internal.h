/* engine_internal.h - what the files of this room share. */
#ifndef TUTTI_ENGINE_INTERNAL_H
#define TUTTI_ENGINE_INTERNAL_H
#include "tutti/attention.h"
#include "tutti/engine.h"
#include "tutti/load.h"
#include "tutti/memory.h"
#include "tutti/moe.h"
#include "tutti/share.h"

enum {
    TTI_RESULT_TAG = 1, /* messages from a DP group's first rank to rank 0 */
    TTI_LOGITS_TAG = 2
};

/* ---- schedule.c: sequences of one DP group ---- */

/* A request in its DP group. Every rank of the group holds the same. Invariant: n_computed <
 * n_tokens while active, except a scored sequence, which ends at n_computed = n_tokens. */
typedef struct tti_sequence {
    uint64_t id;
    int32_t *token; /* token[context] */
    int64_t n_prompt, n_tokens, n_computed;
    int64_t max_tokens; /* prompt and generated */
    tt_sampling sampling;
    int32_t end_id[TT_END_MAX];
    int32_t n_end;
    bool score, logits, random_tokens;
    int32_t *page; /* page[pages of context] */
    int64_t n_pages;
} tti_sequence;

/* A row of the batch whose logits are needed. */
typedef struct tti_head_row {
    int64_t row; /* in the batch */
    int64_t position;
    tti_sequence *sequence;
} tti_head_row;

/* A batch may be computed in parts, so that the exchange of one flies while another is computed:
 * rows [first, first + batch.T) of all. */
enum { TTI_MAX_PARTS = 2 };
typedef struct tti_part {
    tt_batch batch; /* its rows counted from 0 */
    int64_t first;
    tt_batch_sequence *sequence; /* [capacity] */
    /* the layer under way */
    bool is_flying;
    int handle;
    int64_t begin, end; /* dealt rows, of the part */
} tti_part;

typedef struct tti_schedule {
    int64_t capacity;      /* sequences */
    tti_sequence **active; /* active[n_active], in order of admission */
    int64_t n_active;
    tti_sequence **idle; /* idle[capacity - n_active] */
    tti_sequence *storage;
    int32_t *token_storage, *page_storage;
    int64_t context, prefill_chunk;
    /* the batch of this step */
    tt_batch batch;
    tt_batch_sequence *batch_sequence; /* [capacity] */
    tti_sequence **of_batch;           /* the sequence of each */
    int32_t *row_token;                /* [T] */
    tti_head_row *head_row;            /* [T] */
    int64_t n_head_rows;
    tti_part part[TTI_MAX_PARTS]; /* after tti_schedule_cut: what the batch consists of */
    int n_parts;
} tti_schedule;

tt_status tti_schedule_init(tti_schedule *schedule, const tt_layout *layout, bool attends);
void tti_schedule_fini(tti_schedule *schedule);
/* Plans the next batch: one row for each sequence that decodes, then prompt rows up to
 * prefill_chunk in order of admission. */
void tti_schedule_plan(tti_schedule *schedule);
/* Cuts the batch in n parts of nearly equal numbers of rows; a sequence may be cut too. Ranks
 * without sequences have parts without rows. */
void tti_schedule_cut(tti_schedule *schedule, int n);
/* Rows that tti_schedule_plan would give a batch now. */
int64_t tti_schedule_rows(const tti_schedule *schedule);
/* The finish that `token` after `sequence` so far would mean. */
tt_finish tti_sequence_finish(const tti_sequence *sequence, int32_t token);
/* Applies the batch: token[i] belongs to head_row[i]. Ended sequences give their pages back. */
void tti_schedule_commit(tti_schedule *schedule, const int32_t *token, tt_kv *kv, int64_t V);
/* Takes an idle sequence; NULL if there is none. */
tti_sequence *tti_schedule_admit(tti_schedule *schedule);
void tti_schedule_drop(tti_schedule *schedule, uint64_t id, tt_kv *kv);

/* ---- admit.c: rank 0's queue, and the control message that carries admissions ---- */
typedef struct tti_pending {
    struct tti_pending *next;
    tt_request request; /* with prompt and end_id copied behind this struct */
    uint64_t id;
} tti_pending;

/* What rank 0 knows of a request that it handed out. */
typedef struct tti_admitted {
    uint64_t id;
    int32_t dp_id;
    int64_t n_pages;
} tti_admitted;

typedef struct tti_admission {
    uint64_t next_id;
    tti_pending *first, *last;
    int64_t *group_sequences, *group_pages; /* [dp]: in use */
    tti_admitted *admitted;                 /* [max_batch_group * dp] */
    int64_t n_admitted;
    uint64_t *cancelled; /* [max_batch_group * dp]: to be told with the next control message */
    int64_t n_cancelled;
    int64_t rows_handed, most_handed; /* prompt rows that the last control message hands out, and
                                       * of one request */
} tti_admission;

/* ---- overlap.c: whether two parts pay, as measured; pure ---- */
enum { TTI_OVERLAP_SIZES = 32, TTI_OVERLAP_PAIRS = 4 };
typedef enum tti_overlap_mode {
    TTI_OVERLAP_WATCHES,
    TTI_OVERLAP_TRIES,
    TTI_OVERLAP_PAUSES,
    TTI_OVERLAP_PARTS
} tti_overlap_mode;

/* Steps of [2^k, 2^(k+1)) rows. */
typedef struct tti_overlap_size {
    tti_overlap_mode mode;
    int n;                   /* steps in this mode */
    double took_s, waited_s; /* they took */
    int stay;                /* steps for which the last trial's answer holds, 0: there was none */
    bool last_won;           /* that answer: parts were faster */
    /* of a trial */
    double ratio[TTI_OVERLAP_PAIRS]; /* time in parts over time of a whole step */
    int n_pairs;
    bool has_half; /* of the next pair, the step that came first */
    int64_t half_rows;
    double half_s;
} tti_overlap_size;

typedef struct tti_overlap {
    tti_overlap_size size[TTI_OVERLAP_SIZES];
    int64_t rows; /* of the step under way; 0: nothing is to be learnt from it */
    bool is_in_parts;
} tti_overlap;

/* In how many parts to compute a step of so many rows: 1 or TTI_MAX_PARTS. */
int tti_overlap_choose(tti_overlap *overlap, int64_t rows);
/* How long the step took on the slowest rank, and what the rank that waited least waited for
 * messages in it. */
void tti_overlap_took(tti_overlap *overlap, double step_s, double waited_s);

/* A norm of the trunk: weight[H], and bias[H] or NULL; owned. */
typedef struct tti_norm {
    float *weight, *bias;
} tti_norm;

typedef struct tti_balancer tti_balancer; /* balancer.h */

struct tt_engine {
    const tt_model *model;
    const tt_arch *arch;
    const tt_layout *layout;
    const tt_rank_role *role;
    tt_world *world;
    tt_stream *compute;
    int rank;
    int32_t n_known_ids;
    tt_logits_hook *hook;
    void *hook_arg;
    tt_placement *placement;
    tt_kv *kv;
    tt_attention *attention;
    tt_moe *moe;
    tti_balancer *balancer; /* NULL: experts stay where they are */
    tt_share *share;        /* what this node's ranks hold together; NULL: nothing. Outlives all
                            * weights */
    tt_gather *row_gather;  /* TP group: dealt rows, logits, tokens */
    /* weights of the trunk */
    tt_table embedding;                  /* [V][H], unpacked: as the numbers lie in the file */
    tti_norm *attention_norm, *ffn_norm; /* [L] */
    tti_norm final_norm;
    tt_linear head;     /* columns of this TP rank */
    int64_t head_begin; /* first of them */
    /* step state */
    tti_schedule schedule;
    tti_admission admission;
    tti_overlap overlap;         /* where the layout leaves parts open */
    uint64_t step_ns, waited_ns; /* of the last step; its vote is the next one */
    unsigned char *control;      /* control message, control_bytes long at most */
    size_t control_bytes;
    tt_arena arena;
    float *x, *h, *y;         /* [max_rows_group][H] */
    float *head_x;            /* [TT_HEAD_ROWS][H] */
    void *head_rounded;       /* the same as the layout's `act` has them */
    float *logits;            /* [TT_HEAD_ROWS][V] */
    int32_t *head_token;      /* [max_rows_group] */
    double *head_nll;         /* [TT_HEAD_ROWS] */
    void *head_found;         /* [n_threads], of tti_head_work_bytes each */
    float *head_best;         /* [tp][2 * TT_HEAD_ROWS]: values and ids of each TP rank */
    tt_status *thread_status; /* [n_threads] */
    void *sample_work;        /* [n_threads][sample_work_bytes] */
    size_t sample_work_bytes;
    int next_handle;
    tt_engine_figures figures;
    uint64_t trunk_bytes_read;
};

/* Reads queued requests into the control message; returns its length (0: nothing to say). Rank
 * 0. */
size_t tti_admission_write(tt_engine *engine);
/* About how many rows the last such message gives one group in this step. */
int64_t tti_admission_rows(const tt_engine *engine);
/* Applies a control message to this rank's DP group. */
tt_status tti_admission_apply(tt_engine *engine, const unsigned char *message, size_t bytes);
/* True while a request is with a DP group, as rank 0 knows it. */
bool tti_admission_knows(const tt_engine *engine, uint64_t id);
/* Rank 0 learns that a request ended. */
void tti_admission_ended(tt_engine *engine, uint64_t id);
tt_status tti_admission_init(tt_engine *engine);
void tti_admission_fini(tt_engine *engine);

/* ---- loading.c ---- */
typedef struct tti_loading {
    const tt_engine_params *params;
    tt_load_params load;
    struct tt_relay *relay;
    tt_load_relay table;
    tt_share *share; /* the caller's from end on */
    tt_load_share claims;
    uint64_t total_bytes, begin_ns;
} tti_loading;
/* MPI: both are collective on the world; end also after an error of begin. end gives the share to
 * who owns the weights: it is destroyed after them. */
tt_status tti_loading_begin(tti_loading *loading, const tt_engine_params *params, bool attends);
void tti_loading_end(tti_loading *loading, tt_engine_figures *figures, tt_share **share_out);

/* ---- trunk.c: embedding, norms, head; their weights and buffers ---- */
tt_status tti_trunk_load(tt_engine *engine, tt_load_params *load);
tt_status tti_trunk_make_buffers(tt_engine *engine, int node);
void tti_trunk_free(tt_engine *engine);
void tti_trunk_embed(tt_engine *engine, const int32_t *token, int64_t T, float *x);
/* y[n][H] = norm(x[n][H]) by the caller alone; y may equal x. */
void tti_norm_rows(const tt_arch *arch, const tti_norm *norm, float *y, const float *x, int64_t n);
/* The same, spread over threads. */
void tti_trunk_norm(tt_engine *engine, const tti_norm *norm, const float *x, float *h, int64_t T);

/* ---- forward.c: the one forward loop ---- */
/* x[T][H] after the last layer, before the final norm, of the schedule's batch. `mine` is this
 * rank's status so far. */
tt_status engine_forward(tt_engine *engine, tt_status mine);

/* ---- head.c: the vocabulary product ---- */
/* Ids below this may be drawn. */
int64_t tti_head_known(const tt_engine *engine);
/* Bytes of a thread's work. */
size_t tti_head_work_bytes(void);
/* engine->logits[n][V] of n head rows, at most TT_HEAD_ROWS: all columns on the group's first
 * rank. MPI: collective on the TP group. */
tt_status tti_head_logits(tt_engine *engine, const tti_head_row *head, int64_t n);
/* Whether these rows want only their likeliest tokens; the same on all ranks of the group. */
bool tti_head_takes_best(const tt_engine *engine, const tti_head_row *head, int64_t n);
/* token[n], on the group's first rank: what tti_sampler_draw would draw from those logits. MPI:
 * collective on the TP group. */
tt_status tti_head_best(tt_engine *engine, const tti_head_row *head, int64_t n, int32_t *token);

/* ---- output.c: sampling, scores, and their way to rank 0 ---- */
/* Fills head_token for all head rows on every TP rank and reports outputs to rank 0. */
tt_status tti_output_run(tt_engine *engine, tt_output_fn *output, void *arg);
/* Rank 0: takes the reports of the other DP groups. */
tt_status tti_output_collect(tt_engine *engine, tt_output_fn *output, void *arg);

/* ---- sampler.c: pure ---- */
size_t tti_sampler_work_bytes(int64_t V);
/* Draws a token from logits[V] (overwritten); the noise depends on (seed, position) alone. work:
 * tti_sampler_work_bytes(V). TT_ERR_NUMERIC if no logit is a number. */
tt_status tti_sampler_draw(const tt_sampling *sampling, int64_t position, float *logits, int64_t V,
                           void *work, int32_t *token_out);
/* Whether that is the likeliest token whatever the noise. */
bool tti_sampler_is_greedy(const tt_sampling *sampling);
/* -log softmax(logits)[id], in double. */
double tti_sampler_nll(const float *logits, int64_t V, int32_t id);

#endif
