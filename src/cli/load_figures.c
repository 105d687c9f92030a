/* load_figures.c - what loading cost: bytes that each rank read, how fast, and the most memory that
 * it held meanwhile. Gathered once on rank 0, when all have loaded; told on stderr, by --log-view
 * rank by rank, and in JSON. */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include "resident.h"
#include "session.h"
#include "tutti/memory.h"

#define NS_PER_S 1e9
#define BYTES_PER_GB 1e9

tt_status tti_cli_load_gather(tti_cli_session *session)
{
    tti_cli_launch *launch = session->launch;
    tt_engine_figures figures = tt_engine_get_figures(session->engine);
    tti_cli_rank_load mine = {.read_bytes = figures.load_bytes,
                              .expert_bytes = figures.load_expert_bytes,
                              .packed_bytes = figures.weight_bytes_held,
                              .held_bytes = tt_memory_used_bytes(),
                              .held_most_bytes = tt_memory_peak_bytes(),
                              .shared_bytes = figures.weight_bytes_shared,
                              .borrowed_bytes = figures.weight_bytes_borrowed,
                              .seconds = figures.load_s,
                              .node = tt_world_node(launch->world, launch->rank)};
    const tti_cli_resident resident = tti_cli_resident_now(NULL);
    mine.rss_bytes = resident.rss_bytes;
    mine.rss_most_bytes = resident.rss_most_bytes;
    session->load = calloc((size_t)launch->size, sizeof(*session->load));
    TT_TRY(tt_world_agree(
        launch->world,
        session->load ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", launch->size)));
    return tt_world_allgather(launch->world, &mine, sizeof(mine), session->load);
}

/* Sums over ranks. */
typedef struct load_sum {
    double bytes, least, most, seconds, node_least, node_most, shared, borrowed;
    int n_nodes;
} load_sum;

static load_sum sum_up(const tti_cli_session *session)
{
    int size = session->launch->size;
    const tti_cli_rank_load *load = session->load;
    load_sum s = {.least = (double)load[0].read_bytes,
                  .n_nodes = tt_world_n_nodes(session->launch->world)};
    for (int node = 0; node < s.n_nodes; node++) {
        double on_node = 0;
        for (int r = 0; r < size; r++) {
            on_node += load[r].node == node ? (double)load[r].read_bytes : 0;
        }
        s.node_least = node == 0 || on_node < s.node_least ? on_node : s.node_least;
        s.node_most = on_node > s.node_most ? on_node : s.node_most;
    }
    for (int r = 0; r < size; r++) {
        double bytes = (double)load[r].read_bytes;
        s.bytes += bytes;
        s.shared += (double)load[r].shared_bytes;
        s.borrowed += (double)load[r].borrowed_bytes;
        s.least = bytes < s.least ? bytes : s.least;
        s.most = bytes > s.most ? bytes : s.most;
        s.seconds = load[r].seconds > s.seconds ? load[r].seconds : s.seconds;
    }
    return s;
}

void tti_cli_load_print(const tti_cli_session *session)
{
    load_sum s = sum_up(session);
    int size = session->launch->size;
    double rate = s.seconds > 0 ? s.bytes / s.seconds / BYTES_PER_GB : 0;
    fprintf(stderr, "load     %.1f MiB in %.2f s, %.2f GB/s", s.bytes / TTI_CLI_MIB, s.seconds,
            rate);
    if (size > 1) {
        fprintf(stderr, "; a rank %.1f to %.1f MiB (mean %.1f), %.2f GB/s", s.least / TTI_CLI_MIB,
                s.most / TTI_CLI_MIB, s.bytes / size / TTI_CLI_MIB, rate / size);
    }
    if (s.n_nodes > 1) {
        fprintf(stderr, "; a node %.1f to %.1f MiB", s.node_least / TTI_CLI_MIB,
                s.node_most / TTI_CLI_MIB);
    }
    if (s.borrowed > 0) {
        fprintf(stderr, "; %.1f MiB held once per node and shared, which saves %.1f MiB",
                s.shared / TTI_CLI_MIB, s.borrowed / TTI_CLI_MIB);
    }
    fputc('\n', stderr);
}

void tti_cli_load_table(const tti_cli_session *session)
{
    fprintf(stderr, "%-16s %10s %10s %10s %10s %10s %8s %8s %12s %12s\n", "load of rank",
            "MiB read", "experts'", "MiB packed", "shared", "borrowed", "s", "GB/s", "MiB held",
            "MiB at most");
    for (int r = 0; r < session->launch->size; r++) {
        const tti_cli_rank_load *l = &session->load[r];
        fprintf(stderr, "%-16d %10.1f %10.1f %10.1f %10.1f %10.1f %8.2f %8.2f %12.1f %12.1f\n", r,
                (double)l->read_bytes / TTI_CLI_MIB, (double)l->expert_bytes / TTI_CLI_MIB,
                (double)l->packed_bytes / TTI_CLI_MIB, (double)l->shared_bytes / TTI_CLI_MIB,
                (double)l->borrowed_bytes / TTI_CLI_MIB, l->seconds,
                l->seconds > 0 ? (double)l->read_bytes / l->seconds / BYTES_PER_GB : 0.0,
                (double)l->rss_bytes / TTI_CLI_MIB, (double)l->rss_most_bytes / TTI_CLI_MIB);
    }
}

json_t *tti_cli_load_json(const tti_cli_session *session)
{
    load_sum s = sum_up(session);
    json_t *ranks = json_array();
    for (int r = 0; r < session->launch->size; r++) {
        const tti_cli_rank_load *l = &session->load[r];
        json_array_append_new(
            ranks,
            json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I}", "node",
                      (int)l->node, "read_bytes", (json_int_t)l->read_bytes, "expert_bytes",
                      (json_int_t)l->expert_bytes, "packed_bytes", (json_int_t)l->packed_bytes,
                      "shared_bytes", (json_int_t)l->shared_bytes, "borrowed_bytes",
                      (json_int_t)l->borrowed_bytes, "seconds", l->seconds, "rss_bytes",
                      (json_int_t)l->rss_bytes, "rss_most_bytes", (json_int_t)l->rss_most_bytes,
                      "held_bytes", (json_int_t)l->held_bytes, "held_most_bytes",
                      (json_int_t)l->held_most_bytes));
    }
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "seconds", s.seconds, "read_bytes",
                     s.bytes, "rank_read_bytes_least", s.least, "rank_read_bytes_mean",
                     s.bytes / session->launch->size, "rank_read_bytes_most", s.most, "bytes_per_s",
                     s.seconds > 0 ? s.bytes / s.seconds : 0.0, "ranks", ranks);
}
