/* session.h - a model at work on the ranks of a launch: opened, laid out, checked, loaded. Shared
 * by run and score.
 * MPI: all functions are collective on the launch's world unless they say otherwise; statuses are
 * agreed. */
#ifndef TTI_CLI_SESSION_H
#define TTI_CLI_SESSION_H
#include <jansson.h>
#include "launch.h"
#include "placing.h"
#include "tutti/engine.h"
#include "tutti/limits.h"
#include "tutti/model.h"
#include "tutti/plan.h"
#include "tutti/stream.h"

/* What loading cost a rank. */
typedef struct tti_cli_rank_load {
    uint64_t read_bytes, expert_bytes, packed_bytes; /* from files, of them for experts alone,
                                                      * and what became of them */
    uint64_t rss_bytes, rss_most_bytes;    /* of the process, after loading and at most before */
    uint64_t held_bytes, held_most_bytes;  /* by tt_memory_alloc */
    uint64_t shared_bytes, borrowed_bytes; /* of the packed ones, what other ranks read too; and
                                            * what this rank reads and others hold */
    double seconds;
    int64_t node;
} tti_cli_rank_load;

typedef struct tti_cli_session {
    const tti_cli_options *options;
    tti_cli_launch *launch;
    tt_model *model;
    tti_cli_placing placing;
    tt_placement *placement; /* where experts are at first; NULL: in order */
    tt_layout *layout;
    tt_stream *compute;
    tt_engine *engine;
    FILE *trace;              /* rank 0, with --trace */
    uint64_t trace_origin_ns; /* the same instant on all ranks */
    uint64_t load_begin_ns;   /* of the loading bar */
    int bar_percent;          /* last printed; -1 = none */
    tti_cli_rank_load *load;  /* load[ranks], once loaded */
} tti_cli_session;

/* What the sequences of a run need; rank 0's values count. */
typedef struct tti_cli_needs {
    int64_t n_sequences;
    int64_t longest;     /* most tokens of one sequence, prompt and new; 0 = the whole context */
    int64_t n_known_ids; /* ids from here on are never drawn; 0 = all are known */
} tti_cli_needs;

/* Opens the model on each rank and checks that all see the same one. */
tt_status tti_cli_session_open(tti_cli_session *session, const tti_cli_options *options,
                               tti_cli_launch *launch, const char *path);
/* Lays out, checks that it fits into every node's memory before any weight is read, loads. */
tt_status tti_cli_session_start(tti_cli_session *session, const tti_cli_needs *needs);
/* Before (true) and after long work that each rank does by itself on the compute stream: who is done
 * waits as long as the others show that they live. Not collective, but all ranks do it. */
void tti_cli_session_set_patient(tti_cli_session *session, bool patient);
/* The tokens that a sequence may have: --context, or the model's own. Not collective. */
int64_t tti_cli_session_context(const tti_cli_session *session);
/* Tells the agreed status, closes the session (which may never have been opened, or half), ends the
 * launch; returns the exit code. */
int tti_cli_session_end(tti_cli_session *session, tti_cli_launch *launch, tt_status status);

/* ---- load_figures.c ---- */
tt_status tti_cli_load_gather(tti_cli_session *session);
/* Rank 0, not collective: one line on stderr; a table of ranks there; an object. */
void tti_cli_load_print(const tti_cli_session *session);
void tti_cli_load_table(const tti_cli_session *session);
json_t *tti_cli_load_json(const tti_cli_session *session);

/* ---- figures.c: what is said on stderr when the work is done ---- */
/* Measures what memory and cores of all ranks give at the same time, the best of `repeats`; zeros
 * where there is no memory for it. */
tt_status tti_cli_measure_limits(tti_cli_session *session, int repeats, tt_limits *limits);
typedef struct tti_cli_work {
    int64_t n_prompts, prompt_tokens, new_tokens;
    double first_token_s; /* until the last prompt had its first token */
    double total_s;
    bool sampled;
    int64_t seed;
} tti_cli_work;
/* Figures, phases (--log-view) and timeline (--trace). `work` is rank 0's. */
tt_status tti_cli_session_report(tti_cli_session *session, const tti_cli_work *work);

#endif
