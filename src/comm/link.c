/* link.c - how fast messages between nodes are, for the cost model: pairs of ranks on neighbouring nodes, all at once, and one answer for all ranks. */
#include "comm_internal.h"
#include <stdlib.h>
#include <string.h>

enum { LINK_TAG = 250, ROUND_TRIPS = 12, BULK_TURNS = 3, BULK_BYTES = 1 << 20 };

/* Nodes 2i and 2i + 1 are neighbours; a rank's partner has its place there. -1 = none. */
static int partner_of(const tt_world *world)
{
    const int node = tt_world_node(world, world->rank) ^ 1;
    for (int r = 0; r < world->size; r++) {
        if (tt_world_node(world, r) == node && tt_world_node_rank(world, r) == tt_world_node_rank(world, world->rank)) {
            return r;
        }
    }
    return -1;
}

/* Seconds of one message of `bytes`: half of the quickest exchange, the lower rank sending first. */
static tt_status time_messages(tt_world *world, int partner, void *data, size_t bytes, int turns, double *seconds_out)
{
    uint64_t least = UINT64_MAX;
    for (int turn = 0; turn < turns; turn++) {
        const uint64_t begin = tt_now_ns();
        for (int i = 0; i < 2; i++) {
            const bool sends = (i == 0) == (world->rank < partner);
            TT_TRY(sends ? tt_world_send(world, partner, LINK_TAG, data, bytes) : tt_world_recv(world, partner, LINK_TAG, data, bytes));
        }
        const uint64_t spent = tt_now_ns() - begin;
        least = spent < least ? spent : least;
    }
    *seconds_out = (double)least * 1e-9 / 2;
    return TT_OK;
}

tt_status tt_world_measure_link(tt_world *world, tt_link *link_out)
{
    *link_out = (tt_link){0};
    if (tt_world_n_nodes(world) == 1) {
        return TT_OK;
    }
    tt_link mine = {0};
    const int partner = partner_of(world);
    void *data = calloc(1, BULK_BYTES);
    tt_link *all = calloc((size_t)(unsigned)world->size, sizeof(*all));
    tt_status st = tt_world_agree(world, data && all ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for a message of %d bytes", (int)BULK_BYTES));
    if (st == TT_OK && partner >= 0) {
        double bulk_s = 0.0;
        st = time_messages(world, partner, data, sizeof(uint64_t), ROUND_TRIPS, &mine.latency_s);
        st = st == TT_OK ? time_messages(world, partner, data, BULK_BYTES, BULK_TURNS, &bulk_s) : st;
        mine.bytes_per_s = bulk_s > 0.0 ? BULK_BYTES / bulk_s : 0.0;
    }
    if (st == TT_OK) {
        st = tt_world_allgather(world, &mine, sizeof(mine), all);
    }
    for (int r = 0; st == TT_OK && r < world->size; r++) {
        link_out->latency_s = all[r].latency_s > link_out->latency_s ? all[r].latency_s : link_out->latency_s;
        const bool is_slower = all[r].bytes_per_s > 0.0 && (link_out->bytes_per_s == 0.0 || all[r].bytes_per_s < link_out->bytes_per_s);
        link_out->bytes_per_s = is_slower ? all[r].bytes_per_s : link_out->bytes_per_s;
    }
    free(data);
    free(all);
    return st;
}
