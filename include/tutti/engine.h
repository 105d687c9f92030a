/* engine.h - runs a model on a layout: requests in, tokens out.
 *
 * Rank 0 takes requests, assigns each to a DP group and hands out tokens; all other ranks sit in
 * tt_engine_follow. Every step begins with a vote (work present, admissions, stop). A rank that
 * fails in a step breaks the world with its message (tt_world_fail), so all end alike. The batch of
 * a DP group is a pure function of what all its ranks know, so each of them plans it itself; the
 * group's first rank samples and tells the others and rank 0.
 * One forward serves every layout. Results do not depend on batch mates, chunking or layout
 * (docs/architecture.md, where bits are defined).
 * Threads: one thread at a time per engine. */
#ifndef TUTTI_ENGINE_H
#define TUTTI_ENGINE_H
#include <stdbool.h>
#include <stdint.h>
#include "tutti/balance.h"
#include "tutti/comm.h"
#include "tutti/model.h"
#include "tutti/plan.h"

typedef struct tt_engine tt_engine; /* opaque */

/* Changes the logits of one row before a token is drawn from them (penalties, masks): logits[V],
 * ids[n_ids] are the tokens so far, prompt first. Runs on the first rank of the request's DP group;
 * must be a pure function of its arguments. */
typedef void tt_logits_hook(void *arg, uint64_t request_id, const int32_t *ids, int64_t n_ids,
                            float *logits, int64_t V);

/* Replicas of experts that follow the load (tt_layout.staged_slots > 0). No output depends on it. */
typedef struct tt_engine_balance {
    int64_t window_steps; /* from one plan to the next at least; 0 = 64 */
    int64_t max_moves;    /* weights written to slots by a plan; 0 = as many as there are spare
                           * slots, and two a layer */
    double bytes_per_s;   /* of transfers out of a rank; 0 = 256 MB/s */
} tt_engine_balance;

typedef struct tt_engine_params {
    const tt_model *model;   /* kept as pointer */
    const tt_layout *layout; /* kept as pointer; equal on all ranks */
    tt_world *world;         /* kept as pointer */
    tt_stream *compute;      /* kept as pointer; with join_caller */
    int node;                /* NUMA node of this rank's memory; -1 = any */
    int32_t n_known_ids;     /* ids from here on are never sampled (padding rows of the head); 0
                              * = V */
    tt_logits_hook *hook;    /* NULL = none; alike on all ranks */
    void *hook_arg;
    /* progress of loading on this rank; may be NULL */
    void (*loading)(void *arg, uint64_t packed_bytes, uint64_t total_bytes);
    void *loading_arg;
    const tt_placement *placement;    /* of the layout's counts, with open slots; copied. NULL: each
                                       * group has its part of the experts in order */
    const tt_engine_balance *balance; /* NULL: experts stay where they are loaded */
} tt_engine_params;

/* Loads weights. MPI: collective on the world. Errors are agreed: all ranks fail or none. */
TT_API tt_status tt_engine_create(const tt_engine_params *params, tt_engine **engine_out);
TT_API void tt_engine_destroy(tt_engine **engine);

/* temperature <= TT_GREEDY_BELOW, top_k = 1, or top_p so small that one token is left: the most
 * likely token, ties to the smaller id. */
#define TT_GREEDY_BELOW 1e-6
typedef struct tt_sampling {
    double temperature; /* 0 = greedy */
    double top_p;       /* (0, 1]; 0 means greedy; 1 = off */
    double min_p;       /* [0, 1]: drop tokens below min_p times the best; 0 = off */
    int64_t top_k;      /* 0 = off */
    uint64_t seed;      /* the draw at a position depends on (seed, position) alone */
} tt_sampling;

typedef enum tt_finish { TT_FINISH_NONE, TT_FINISH_STOP, TT_FINISH_LENGTH } tt_finish;

typedef struct tt_request {
    const int32_t *prompt; /* prompt[n_prompt], copied; n_prompt >= 1 */
    int64_t n_prompt;
    int64_t max_new; /* tokens to generate; cut to what the context leaves */
    tt_sampling sampling;
    const int32_t *end_id; /* end_id[n_end], copied: generation stops after one of them; at most
                            * TT_END_MAX */
    int n_end;
    bool score;         /* nothing is generated: the negative log-likelihood of prompt[t+1]
                         * after prompt[t], for each t */
    bool logits;        /* outputs carry logits (with score) */
    int64_t n_made;     /* for timing alone: what the first n_made tokens of the prompt leave
                         * in the KV cache is made up, not computed, and what they are does
                         * not count; in [0, n_prompt) */
    bool random_tokens; /* for timing alone: the sequence goes on with
                         * tt_engine_random_token(seed, position, V) whatever is drawn
                         * (outputs carry what was drawn), so that routing is alike everywhere
                         * and does not fall into a loop */
} tt_request;
enum { TT_END_MAX = 16 };
/* A token that hangs on seed and position alone, uniform in [0, V). */
TT_API int32_t tt_engine_random_token(uint64_t seed, int64_t position, int64_t V);

typedef struct tt_output {
    uint64_t request_id;
    int32_t token;       /* generated (score: -1) */
    int64_t position;    /* of the row that gave it: token follows this position */
    tt_finish finish;    /* NONE while more follows */
    double nll;          /* score: of prompt[position + 1], natural log; NaN at the last position */
    const float *logits; /* logits[V] or NULL; valid during the call */
} tt_output;
/* Called on rank 0, from inside tt_engine_step, in order for each request. */
typedef void tt_output_fn(void *arg, const tt_output *output);

/* Queues a request on rank 0. Errors: TT_ERR_REQUEST (prompt longer than the context, id out of
 * range, or one that no pool of pages can ever hold), TT_ERR_ARG. MPI: not collective. */
TT_API tt_status tt_engine_submit(tt_engine *engine, const tt_request *request,
                                  uint64_t *request_id_out);
/* Cancels at the next step; nothing is output for it any more. Unknown ids are ignored. */
TT_API tt_status tt_engine_cancel(tt_engine *engine, uint64_t request_id);
/* Rank 0: one step; *busy_out says whether requests remain. MPI: collective (others follow).
 * Errors: of the group. Who computes for long between steps where progress is polled calls
 * tt_world_progress: messages of the last step may still be on their way. */
TT_API tt_status tt_engine_step(tt_engine *engine, tt_output_fn *output, void *arg, bool *busy_out);
/* Other ranks: takes part in steps until rank 0 stops. TT_OK after a stop. */
TT_API tt_status tt_engine_follow(tt_engine *engine);
/* Rank 0: ends the others' follow. */
TT_API tt_status tt_engine_stop(tt_engine *engine);

/* Of balancing; the same on all ranks but for bytes_sent. */
typedef struct tt_balance_figures {
    uint64_t windows, plans; /* counts that were gathered; plans that were carried out */
    uint64_t moves, dropped; /* experts copied into a slot; rounds that failed or were given up */
    uint64_t bytes_sent;     /* of counts and weights */
    uint64_t epoch;          /* of the placement */
} tt_balance_figures;

/* What was done since create, on this rank except where said. */
typedef struct tt_engine_figures {
    uint64_t steps, steps_in_parts;    /* all; of them computed in two parts
                                        * (tt_layout.overlap_rows) */
    uint64_t prompt_rows, decode_rows; /* of this rank's DP group */
    uint64_t weight_bytes_held;        /* packed weights on this rank, those included that others
                                        * read too */
    uint64_t weight_bytes_shared;      /* of them in memory that other ranks of the node map */
    uint64_t weight_bytes_borrowed;    /* read by this rank, held by others of the node */
    uint64_t bytes_read;               /* weights and KV read by products */
    uint64_t kv_bytes_read;            /* of them keys, values and states */
    uint64_t experts_touched;          /* experts of this rank that had rows, summed over layers
                                        * and steps (an expert that is split over ranks counts on
                                        * the first of them) */
    uint64_t load_bytes;               /* read from files, */
    uint64_t load_expert_bytes;        /* of them for routed experts */
    double load_s, step_s;
    uint64_t exchange_ns; /* in dispatch, waits and combine */
    tt_balance_figures balance;
} tt_engine_figures;
TT_API tt_engine_figures tt_engine_get_figures(const tt_engine *engine);

#endif
