/* figures.c - what a run says when it is done, on stderr of rank 0: speed, and beside it what the
 * machine could do.
 *
 * The limit of decoding is how fast weights come from memory. So after the run all ranks read
 * memory at the same time, each with the threads that it computed with, and the run's own rate is
 * printed as a share of that sum. If a node's weights fit into its last-level cache the comparison
 * means little, and we say so. */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include "describe.h"
#include "phases.h"
#include "session.h"
#include "tutti/load.h"

#define NS_PER_S 1e9
#define BYTES_PER_GB 1e9
enum {
    READ_REPEATS = 3,
    CACHES_READ = 4 /* the measurement's buffer in last-level caches, see tt_limits_buffer_bytes */
};

/* One rank's figures. */
typedef struct rank_figures {
    tt_engine_figures engine;
    double read_bytes_per_s; /* measured; 0 = not measured */
    uint64_t l3_bytes;
    uint64_t available_bytes;
    int64_t node;
    int64_t n_threads;
} rank_figures;

/* True where the buffers of all ranks of this machine fit well into the memory that is left. */
static bool may_measure(const tti_cli_session *session)
{
    const tt_topology_info *info = tt_topology_get_info(session->launch->topology);
    uint64_t need = (uint64_t)CACHES_READ * info->l3_bytes * (uint64_t)session->launch->n_sharing;
    return info->l3_bytes > 0 && need < info->memory_available_bytes / 2;
}

tt_status tti_cli_measure_limits(tti_cli_session *session, int repeats, tt_limits *limits)
{
    *limits = (tt_limits){0};
    TT_TRY(tt_world_barrier(session->launch->world)); /* all at the same time */
    tt_status mine = TT_OK;
    tti_cli_session_set_patient(session, true); /* a busy machine takes seconds */
    if (may_measure(session)) {
        mine =
            tt_limits_measure(session->compute, tt_limits_buffer_bytes(session->launch->topology),
                              session->launch->cpus.node, repeats, limits);
        if (mine == TT_ERR_NOMEM) {
            *limits = (tt_limits){0}; /* no reason to fail a run */
            mine = TT_OK;
        }
    }
    tt_status status = tt_world_agree(session->launch->world, mine);
    tti_cli_session_set_patient(session, false);
    return status;
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_speed(const tti_cli_work *w)
{
    if (w->new_tokens == 0) {
        fprintf(stderr, "scored   %lld tokens in %lld sequence%s, %.3f s: %.1f tokens/s\n",
                (long long)w->prompt_tokens, (long long)w->n_prompts, plural(w->n_prompts),
                w->total_s, w->total_s > 0 ? (double)w->prompt_tokens / w->total_s : 0.0);
        return;
    }
    if (w->n_prompts > 1) {
        fprintf(stderr,
                "tokens   %lld prompts of %lld tokens, %lld generated, %.3f s: %.1f tokens/s "
                "generated, %.1f in all\n",
                (long long)w->n_prompts, (long long)w->prompt_tokens, (long long)w->new_tokens,
                w->total_s, w->total_s > 0 ? (double)w->new_tokens / w->total_s : 0.0,
                w->total_s > 0 ? (double)(w->new_tokens + w->prompt_tokens) / w->total_s : 0.0);
        return;
    }
    double decode_s = w->total_s - w->first_token_s;
    fprintf(stderr, "prompt   %lld token%s, %.1f ms to the first new token: %.1f tokens/s\n",
            (long long)w->prompt_tokens, plural(w->prompt_tokens), 1e3 * w->first_token_s,
            w->first_token_s > 0 ? (double)w->prompt_tokens / w->first_token_s : 0.0);
    if (w->new_tokens > 1 && decode_s > 0) {
        fprintf(stderr, "decode   %lld token%s, %.2f ms each: %.1f tokens/s\n",
                (long long)(w->new_tokens - 1), plural(w->new_tokens - 1),
                1e3 * decode_s / (double)(w->new_tokens - 1),
                (double)(w->new_tokens - 1) / decode_s);
    }
}

/* Bytes over all ranks beside what all ranks could have read. */
static void print_memory(const tti_cli_session *session, const tti_cli_work *w,
                         const rank_figures *of_rank)
{
    int size = session->launch->size;
    double bytes = 0, held = 0, could = 0, step_s = 0, exchange_s = 0, all_steps_s = 0;
    double largest_node = 0, l3_there = 0;
    bool measured = true;
    for (int r = 0; r < size; r++) {
        const rank_figures *f = &of_rank[r];
        bytes += (double)f->engine.bytes_read;
        held += (double)f->engine.weight_bytes_held;
        could += f->read_bytes_per_s;
        measured = measured && f->read_bytes_per_s > 0;
        step_s = f->engine.step_s > step_s ? f->engine.step_s : step_s;
        all_steps_s += f->engine.step_s;
        exchange_s += (double)f->engine.exchange_ns / NS_PER_S;
        double on_node = 0;
        for (int q = 0; q < size; q++) {
            on_node += of_rank[q].node == f->node ? (double)of_rank[q].engine.weight_bytes_held : 0;
        }
        if (on_node > largest_node) {
            largest_node = on_node;
            l3_there = (double)f->l3_bytes;
        }
    }
    bool in_cache = l3_there > 0 && largest_node <= l3_there;
    int64_t tokens = w->new_tokens > 0 ? w->new_tokens : w->prompt_tokens;
    double rate = step_s > 0 ? bytes / step_s : 0;
    fprintf(stderr, "memory   %.2f MiB read per %s token (weights and KV, all ranks), %.2f GB/s",
            tokens > 0 ? bytes / (double)tokens / TTI_CLI_MIB : 0.0,
            w->new_tokens > 0 ? "generated" : "scored", rate / BYTES_PER_GB);
    if (measured && could > 0) {
        fprintf(stderr, " = %.0f %% of the %.2f GB/s that %s", 100 * rate / could,
                could / BYTES_PER_GB, size == 1 ? "it can read" : "all ranks together can read");
        if (rate > could) {
            fprintf(stderr, " (%sthe limit was measured while the machine was busy)",
                    in_cache ? "read from the cache, or " : "");
        }
    } else {
        fputs("; read bandwidth not measured: too little memory is free, or the cache is unknown",
              stderr);
    }
    fprintf(stderr, "\n         %.1f MiB of weights held", held / TTI_CLI_MIB);
    if (in_cache) {
        fprintf(stderr, ": in cache (%.1f MiB a node, last-level cache %.1f MiB)",
                largest_node / TTI_CLI_MIB, l3_there / TTI_CLI_MIB);
    }
    const tt_engine_figures *f = &of_rank[0].engine;
    fprintf(stderr, "\nsteps    %llu of %.2f ms, %.1f %% of it in the exchange",
            (unsigned long long)f->steps, f->steps ? 1e3 * step_s / (double)f->steps : 0.0,
            all_steps_s > 0 ? 100 * exchange_s / all_steps_s : 0.0);
    if (f->steps_in_parts > 0) {
        fprintf(stderr, "; %llu in two parts", (unsigned long long)f->steps_in_parts);
    }
    fputc('\n', stderr);
    if (session->placing.is_auto) {
        double sent = 0;
        for (int r = 0; r < session->launch->size; r++) {
            sent += (double)of_rank[r].engine.balance.bytes_sent;
        }
        const tt_balance_figures *b = &f->balance;
        fprintf(stderr,
                "balance  %llu experts copied by %llu plans from %llu counts, %llu rounds dropped; "
                "%.1f MiB sent\n",
                (unsigned long long)b->moves, (unsigned long long)b->plans,
                (unsigned long long)b->windows, (unsigned long long)b->dropped, sent / TTI_CLI_MIB);
    }
    tti_cli_load_print(session);
}

static void print_formats(const tti_cli_session *session, const tti_cli_work *w,
                          const rank_figures *of_rank)
{
    const tt_layout *layout = session->layout;
    tti_cli_print_layout(stderr, layout, 9);
    fprintf(stderr, ", %lld thread%s a rank\n", (long long)of_rank[0].n_threads,
            plural(of_rank[0].n_threads));
    if (w->sampled) {
        fprintf(stderr, "seed     %lld\n", (long long)w->seed);
    }
}

static tt_status report_figures(tti_cli_session *session, const tti_cli_work *work)
{
    tti_cli_launch *launch = session->launch;
    const tt_topology_info *info = tt_topology_get_info(launch->topology);
    rank_figures mine = {.engine = tt_engine_get_figures(session->engine),
                         .l3_bytes = info->l3_bytes,
                         .available_bytes = info->memory_available_bytes,
                         .node = tt_world_node(launch->world, launch->rank),
                         .n_threads = tt_stream_n_threads(session->compute)};
    tt_limits limits;
    TT_TRY(tti_cli_measure_limits(session, READ_REPEATS, &limits));
    mine.read_bytes_per_s = tt_limits_read(&limits);
    rank_figures *of_rank = calloc((size_t)launch->size, sizeof(*of_rank));
    tt_status status =
        of_rank ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", launch->size);
    status = tt_world_agree(launch->world, status);
    if (status == TT_OK) {
        status = tt_world_allgather(launch->world, &mine, sizeof(mine), of_rank);
    }
    if (status == TT_OK && launch->rank == 0) {
        print_speed(work);
        print_memory(session, work, of_rank);
        print_formats(session, work, of_rank);
    }
    free(of_rank);
    return status;
}

tt_status tti_cli_session_report(tti_cli_session *session, const tti_cli_work *work)
{
    if (session->options->log_view) {
        TT_TRY(tti_cli_phases_print(session));
        if (session->launch->rank == 0) {
            tti_cli_load_table(session);
        }
    }
    session->launch->last_words = NULL; /* what is gathered now must not be written over */
    if (session->options->trace) {
        TT_TRY(tti_cli_trace_gather(session));
    }
    if (!session->options->quiet) {
        TT_TRY(report_figures(session, work));
    }
    return TT_OK;
}
