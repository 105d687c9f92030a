/* session.c - from a path and options to an engine that is ready on all ranks.
 *
 * Order: each rank opens the model; all check that they have the same one and the same options;
 * rank 0 tells what its requests need; every rank computes the same layout; it is held against the
 * memory of every node; then weights are read. */
#include "config.h"
#include "session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "describe.h"
#include "phases.h"
#include "tutti/log.h"
#include "tutti/trace.h"
#include "ttk.h"

enum {
    DEFAULT_MAX_BATCH = 32, /* sequences; what a run takes at once if nobody says */
    TRACE_SPANS = 1 << 16,  /* per thread; about 2.5 MiB */
    OPTIONS_TEXT_BYTES = 640,
    BAR_AFTER_MS = 500, /* no bar for what is over before anyone could read it */
    BAR_WIDTH = 30,     /* columns */
    NS_PER_MS = 1000000
};

/* What --log-view and --trace have so far, from the one rank that tells of a broken group. */
static void last_words(void *arg)
{
    tti_cli_session *session = arg;
    if (session->options->log_view) {
        tti_cli_phases_of_lost(session);
    }
    if (session->options->trace) {
        tti_cli_trace_of_lost(session);
    }
}

tt_status tti_cli_session_open(tti_cli_session *session, const tti_cli_options *options,
                               tti_cli_launch *launch, const char *path)
{
    memset(session, 0, sizeof(*session));
    session->options = options;
    session->launch = launch;
    session->bar_percent = -1;
    tt_status mine = tti_cli_open_model(options, path, &session->model);
    if (mine == TT_OK && options->trace && launch->rank == 0) {
        session->trace = fopen(options->trace, "w");
        if (!session->trace) {
            mine = TT_FAIL(TT_ERR_USAGE, "--trace %s cannot be written", options->trace);
        }
    }
    if (mine == TT_OK && options->trace) {
        mine = tt_trace_enable(TRACE_SPANS);
        tt_trace_name_thread("main");
    }
    TT_TRY(tt_world_agree(launch->world, mine));
    uint64_t hash = tt_model_hash(session->model);
    TT_TRY(tt_world_check_equal(launch->world, "the model", &hash, sizeof(hash)));
    return TT_OK;
}

int64_t tti_cli_session_context(const tti_cli_session *session)
{
    int64_t model_context = tt_model_arch(session->model)->context;
    int64_t asked = session->options->context;
    return asked > 0 && asked < model_context ? asked : model_context;
}

/* All that steers computation, as text, so that a difference between ranks is found before it
 * becomes a wrong answer. */
static tt_status check_options_equal(tti_cli_session *session, const tt_layout_params *p)
{
    char text[OPTIONS_TEXT_BYTES] = {0};
    snprintf(
        text, sizeof(text),
        "dp %d tp %d ep %d etp %d split %s weights %d wire %d %d exchange %d %d kv %d context %lld "
        "kv-memory %lld max-batch %lld prefill-chunk %lld act %d kernels %s deadline %g replicate %d overlap %lld chunk %lld balance %016llx %lld %lld %lld %lld",
        p->dp, p->tp, p->ep, p->etp, p->split ? p->split : "-", (int)p->weights, (int)p->wire,
        (int)p->wire_back, (int)p->route, (int)p->combine, (int)p->kv,
        (long long)session->options->context, (long long)p->kv_memory_bytes,
        (long long)session->options->max_batch, (long long)p->prefill_chunk, (int)p->act,
        ttk_set_name(), session->options->deadline_s, (int)p->replicate, (long long)p->overlap_rows,
        (long long)p->exchange_chunk, (unsigned long long)tti_cli_placing_hash(&session->placing),
        (long long)p->spare_slots, (long long)session->options->balance_steps,
        (long long)session->options->balance_moves, (long long)session->options->balance_rate);
    return tt_world_check_equal(session->launch->world, "the options and the kernel set", text,
                                sizeof(text));
}

/* Holds the layout against what every node has now, the least that any of its ranks sees, and
 * decides what depends on that: all ranks alike. */
static tt_status settle_memory(tti_cli_session *session)
{
    tt_world *world = session->launch->world;
    uint64_t mine = tt_topology_get_info(session->launch->topology)->memory_available_bytes;
    uint64_t limit = (uint64_t)session->options->memory_limit;
    if (limit > 0 && (mine == 0 || mine > limit)) {
        mine = limit;
    }
    int n_nodes = tt_world_n_nodes(world);
    uint64_t *of_rank = calloc((size_t)session->launch->size, sizeof(*of_rank));
    uint64_t *of_node = calloc((size_t)n_nodes, sizeof(*of_node));
    tt_status status =
        of_rank && of_node ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d nodes", n_nodes);
    status = tt_world_agree(world, status);
    if (status == TT_OK) {
        status = tt_world_allgather(world, &mine, sizeof(mine), of_rank);
    }
    if (status == TT_OK) {
        for (int r = 0; r < session->launch->size; r++) {
            uint64_t *node = &of_node[tt_world_node(world, r)];
            if (of_rank[r] > 0 && (*node == 0 || of_rank[r] < *node)) {
                *node = of_rank[r];
            }
        }
        char why[TT_STATUS_MESSAGE_BYTES] = "";
        status = tt_world_agree(
            world, tt_plan_settle(session->model, session->layout, of_node, why, sizeof(why)));
        if (status == TT_OK && why[0] && session->launch->rank == 0) {
            tt_log(TT_LOG_WARN, "%s", why);
        }
    }
    free(of_rank);
    free(of_node);
    return status;
}

static tt_status make_layout(tti_cli_session *session, const tti_cli_needs *needs)
{
    tti_cli_launch *launch = session->launch;
    tt_layout_params params = tti_cli_layout_params(session->options, session->model);
    params.n_ranks = launch->size;
    tti_cli_placing_params(&session->placing, session->options, &params);
    if (params.max_batch == 0) {
        params.max_batch =
            needs->n_sequences < DEFAULT_MAX_BATCH ? needs->n_sequences : DEFAULT_MAX_BATCH;
        if (params.max_batch < 1) {
            params.max_batch = 1;
        }
    }
    if (params.context == 0) {
        /* Room for the sequences that are known beforehand, not for all that the model could take.
         * */
        int64_t context = tti_cli_session_context(session);
        params.context = needs->longest > 0 && needs->longest < context ? needs->longest : context;
    }
    int *node_of_rank = calloc((size_t)launch->size, sizeof(*node_of_rank));
    tt_status mine =
        node_of_rank ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", launch->size);
    if (mine == TT_OK) {
        for (int r = 0; r < launch->size; r++) {
            node_of_rank[r] = tt_world_node(launch->world, r);
        }
        params.node_of_rank = node_of_rank;
        mine = tt_layout_create(tt_model_arch(session->model), &params, &session->layout);
    }
    if (mine == TT_OK) {
        mine = tti_cli_placing_make(&session->placing, session->model, session->layout,
                                    &session->placement);
    }
    free(node_of_rank);
    TT_TRY(check_options_equal(session, &params));
    TT_TRY(tt_world_agree(launch->world, mine));
    uint64_t hash = tt_layout_hash(session->layout);
    TT_TRY(tt_world_check_equal(launch->world, "the layout", &hash, sizeof(hash)));
    return settle_memory(session);
}

/* The loading bar of rank 0, only for eyes: a terminal, and more than half a second of work. */
static void show_loading(void *arg, uint64_t packed_bytes, uint64_t total_bytes)
{
    tti_cli_session *session = arg;
    if (total_bytes == 0 ||
        tt_now_ns() - session->load_begin_ns < (uint64_t)BAR_AFTER_MS * NS_PER_MS) {
        return;
    }
    int percent = (int)(100.0 * (double)packed_bytes / (double)total_bytes);
    if (percent == session->bar_percent) {
        return;
    }
    session->bar_percent = percent;
    char bar[BAR_WIDTH + 1];
    int filled = percent * BAR_WIDTH / 100;
    for (int i = 0; i < BAR_WIDTH; i++) {
        bar[i] = i < filled ? '#' : '.';
    }
    bar[BAR_WIDTH] = 0;
    fprintf(stderr, "\rloading [%s] %3d %%  %.1f of %.1f MiB (rank 0) ", bar, percent,
            (double)packed_bytes / TTI_CLI_MIB, (double)total_bytes / TTI_CLI_MIB);
}

tt_status tti_cli_session_start(tti_cli_session *session, const tti_cli_needs *needs)
{
    tti_cli_launch *launch = session->launch;
    tti_cli_needs agreed = *needs;
    TT_TRY(tt_world_bcast(launch->world, &agreed, sizeof(agreed), 0));
    TT_TRY(
        tt_world_agree(launch->world, tti_cli_placing_open(session->options, &session->placing)));
    TT_TRY(make_layout(session, &agreed));

    /* A communication thread of its own wants a core of its own. */
    int n_threads = launch->cpus.n_threads;
    if (tt_world_progress_mode(launch->world) == TT_PROGRESS_THREAD &&
        session->options->threads == 0 && n_threads > 1) {
        n_threads--;
    }
    tt_stream_params stream = {
        .name = "compute", .n_threads = n_threads, .join_caller = true, .cpu = launch->cpus.cpu};
    TT_TRY(tt_world_agree(launch->world, tt_stream_create(&stream, &session->compute)));

    const tt_engine_balance balance = {
        .window_steps = session->options->balance_steps,
        .max_moves = session->options->balance_moves,
        .bytes_per_s = (double)session->options->balance_rate,
    };
    bool bar = launch->rank == 0 && !session->options->quiet && isatty(STDERR_FILENO);
    tt_engine_params params = {.model = session->model,
                               .layout = session->layout,
                               .world = launch->world,
                               .compute = session->compute,
                               .node = launch->cpus.node,
                               .n_known_ids = (int32_t)agreed.n_known_ids,
                               .loading = bar ? show_loading : NULL,
                               .loading_arg = session,
                               .placement = session->placement,
                               .balance = session->placing.is_auto ? &balance : NULL};
    session->load_begin_ns = tt_now_ns();
    tt_status status = tt_engine_create(&params, &session->engine);
    if (session->bar_percent >= 0) {
        fprintf(stderr, "\r%*s\r", BAR_WIDTH + 60, ""); /* wipes the bar */
    }
    TT_TRY(status);
    TT_TRY(tti_cli_load_gather(session));
    if (launch->advice[0]) {
        tt_log(TT_LOG_WARN, "%s", launch->advice); /* not sooner: an error before it stands alone */
    }
    if (session->options->trace) {
        TT_TRY(tt_world_barrier(launch->world));
        session->trace_origin_ns = tt_now_ns();
    }
    tt_world_set_patient(launch->world, false);
    tt_phase_reset();
    if (session->options->log_view || session->options->trace) {
        launch->last_words = last_words;
        launch->last_words_arg = session;
    }
    return TT_OK;
}

static void poll_world(void *arg)
{
    tt_world_progress(arg);
}

void tti_cli_session_set_patient(tti_cli_session *session, bool patient)
{
    tt_world *world = session->launch->world;
    tt_world_set_patient(world, patient);
    tt_stream_set_hook(session->compute, patient ? poll_world : NULL, patient ? world : NULL);
}

int tti_cli_session_end(tti_cli_session *session, tti_cli_launch *launch, tt_status status)
{
    tti_cli_launch_tell(launch, status);
    launch->last_words = NULL; /* what they tell of goes now */
    if (session->trace) {
        fclose(session->trace);
        session->trace = NULL;
    }
    tti_cli_launch_closing(launch);
    tt_engine_destroy(&session->engine);
    tt_stream_destroy(&session->compute);
    tt_layout_destroy(&session->layout);
    tt_placement_destroy(&session->placement);
    tti_cli_placing_close(&session->placing);
    tt_model_close(&session->model);
    free(session->load);
    session->load = NULL;
    return tti_cli_launch_end(launch, status);
}
