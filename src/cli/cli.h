/* cli.h - what the files of the program share: the options, the commands, and how errors reach the
 * user.
 *
 * A command returns its exit code. Commands without MPI (tokenize, info, plan) print their own
 * error through tti_cli_fail_alone; commands on many ranks (run, score) go through launch.h, which
 * prints an error once for all ranks. */
#ifndef TTI_CLI_H
#define TTI_CLI_H
#include <stdbool.h>
#include <stdint.h>
#include "tutti/options.h"
#include "tutti/status.h"

enum { TTI_CLI_MIB = 1 << 20 }; /* bytes; the unit of memory in printed text */

/* All options of all commands; a command fills what its tables name. */
typedef struct tti_cli_options {
    /* general */
    bool help, json;
    int64_t verbose;
    /* layout and formats */
    int64_t dp, tp, ep, etp;
    const char *split;
    /* indices into the choices of options.c */
    int weights, act, wire, wire_back, route, combine, kv, replicate;
    int64_t context, kv_memory, max_batch, prefill_chunk, overlap_rows, exchange_chunk;
    const char *balance, *placement, *load_stats;
    int64_t spare_slots, balance_steps, balance_moves, balance_rate;
    /* machine */
    int64_t threads;
    int kernels;
    int progress; /* tt_progress */
    double deadline_s;
    int64_t memory_limit; /* bytes per node; 0 = what the node has */
    const char *trace;
    bool log_view, quiet;
    /* run */
    tt_option_list prompt, chat, ids;
    const char *system, *chat_args;
    const char *prompts;
    int64_t n;
    double temperature, top_p, min_p;
    int64_t top_k, seed;
    /* score */
    const char *ids_file, *text_file, *logits;
    /* tokenize */
    bool decode, special, skip_special, chat_list, text, jsonl;
    /* info */
    bool list_options;
    /* plan */
    int64_t ranks, nodes, memory, batch;
    /* shape */
    const char *shape;
    int64_t layers;
    /* bench */
    const char *pp, *batches, *depth, *svg;
    int64_t tg, repeat;
    /* environment only: names that the library reads itself (never read through this struct) */
    const char *environment_only;
} tti_cli_options;

extern const tt_option tti_cli_general_options[];
extern const tt_option tti_cli_layout_options[];
extern const tt_option tti_cli_machine_options[];
extern const tt_option tti_cli_run_options[];
extern const tt_option tti_cli_score_options[];
extern const tt_option tti_cli_tokenize_options[];
extern const tt_option tti_cli_info_options[];
extern const tt_option tti_cli_plan_options[];
extern const tt_option tti_cli_bench_options[];
extern const tt_option tti_cli_shape_options[];
extern const tt_option tti_cli_convert_options[]; /* rows of others */
/* Variables without a flag: read by the library or by the program before options. */
extern const tt_option tti_cli_environment[];
/* All tables of all commands, NULL-ended: for `info -v` and the check of TUTTI_... variables. */
extern const tt_option *const tti_cli_all_tables[];
/* A heading for each of tti_cli_all_tables. */
extern const char *const tti_cli_all_headings[];

/* What a command gets: parsed options, the words that were no options, and the status of parsing.
 * A command on many ranks must carry a bad status to all ranks before anyone leaves. */
typedef struct tti_cli_call {
    const tti_cli_options *options;
    const char *const *word; /* word[n_words] */
    int n_words;
    tt_status parsed;
} tti_cli_call;

int tti_cli_run(const tti_cli_call *call);
int tti_cli_score(const tti_cli_call *call);
int tti_cli_tokenize(const tti_cli_call *call);
int tti_cli_info(const tti_cli_call *call);
int tti_cli_plan(const tti_cli_call *call);
int tti_cli_convert(const tti_cli_call *call);
int tti_cli_bench(const tti_cli_call *call);

/* ---- errors (report.c) ---- */
/* This process's rank and the number of processes as the launcher tells them, known before
 * MPI_Init; 0 and 1 alone. */
int tti_cli_launcher_rank(void);
int tti_cli_launcher_size(void);
/* Prints "tutti: MESSAGE" as one line, with the trace below it at --verbose 3. */
void tti_cli_print_error(void);
/* Prints the error if this process is the first of its launch, and returns the exit code of the
 * status. */
int tti_cli_fail_alone(tt_status status);
/* Flushes stdout; TT_ERR_IO if anything that was printed could not be written. */
tt_status tti_cli_flush_stdout(void);

/* The model that runs when none is named: models/tiny-moe below TUTTI_DATADIR, a folder above the
 * executable, or where `make install` put it. Errors: TT_ERR_USAGE naming the places that were
 * searched. `path_out` has room for TTI_CLI_PATH_BYTES. */
enum { TTI_CLI_PATH_BYTES = 4096 };
tt_status tti_cli_default_model(char *path_out);

#endif
