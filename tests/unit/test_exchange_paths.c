/* test_exchange_paths.c - for random lists of sources and owners on random nodes, both ends of
 * every way agree: each far owner gets each source's rows once, through a rank of its own node, and
 * intakes are dealt out evenly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "exchange_internal.h"

enum { MAX_RANKS = 40, N_CASES = 600 };

typedef struct group {
    tt_exchange_params params;
    int source[MAX_RANKS], owner[MAX_RANKS], node[MAX_RANKS], n_ranks;
    tti_paths paths[MAX_RANKS];
} group;

static uint64_t dice = 1;

static int below(int n)
{
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((dice >> 33) % (uint64_t)n);
}

static void make_group(group *g, tt_route route)
{
    memset(g, 0, sizeof(*g));
    g->n_ranks = 1 + below(MAX_RANKS);
    const int n_nodes = 1 + below(g->n_ranks < 9 ? g->n_ranks : 9), kind = below(3);
    for (int r = 0; r < g->n_ranks; r++) {
        g->node[r] = kind == 0   ? below(n_nodes)
                     : kind == 1 ? r % n_nodes
                                 : r * n_nodes / g->n_ranks;
    }
    const int role = below(3);
    for (int r = 0; r < g->n_ranks; r++) {
        if (role == 0 || below(2)) {
            g->source[g->params.n_sources++] = r;
        }
        if (role < 2 || below(3) == 0) {
            g->owner[g->params.n_owners++] = r;
        }
    }
    if (g->params.n_sources == 0) {
        g->source[g->params.n_sources++] = 0;
    }
    if (g->params.n_owners == 0) {
        g->owner[g->params.n_owners++] = g->n_ranks - 1;
    }
    g->params.source = g->source;
    g->params.owner = g->owner;
    g->params.route = route;
    for (int r = 0; r < g->n_ranks; r++) {
        assert_int_equal(tti_paths_make(&g->params, g->node, r, &g->paths[r]), TT_OK);
    }
}

static void free_group(group *g)
{
    for (int r = 0; r < g->n_ranks; r++) {
        tti_paths_free(&g->paths[r]);
    }
}

/* The lane of that source that serves this owner; every far owner has exactly one, a near one
 * none. */
static const tti_lane_path *lane_of(const group *g, int source_id, int owner_id)
{
    const tti_paths *at_source = &g->paths[g->source[source_id]];
    const tti_lane_path *found = NULL;
    int n = 0;
    for (int i = 0; i < at_source->n_lanes; i++) {
        const tti_lane_path *lane = &at_source->lane[i];
        if (at_source->position[owner_id] >= lane->first &&
            at_source->position[owner_id] < lane->first + lane->n) {
            found = lane;
            n++;
        }
    }
    const int is_far = g->node[g->source[source_id]] != g->node[g->owner[owner_id]];
    assert_int_equal(n, is_far);
    return found;
}

static void check_owner(const group *g, int owner_id)
{
    const tti_paths *p = &g->paths[g->owner[owner_id]];
    const int here = g->node[g->owner[owner_id]];
    int seen[MAX_RANKS][MAX_RANKS] = {{0}}, intakes = 0;
    for (int s = 0; s < g->params.n_sources; s++) {
        const tti_lane_path *lane = lane_of(g, s, owner_id);
        if (!lane) {
            assert_int_equal(p->rail[s], -1);
            continue;
        }
        assert_int_equal(p->rail[s], lane->rail);
        assert_int_equal(g->node[g->owner[lane->rail]], here);
        assert_true(p->by_node || lane->rail == owner_id);
        assert_int_equal(lane->first, p->mate_first);
        assert_int_equal(lane->n, p->n_mates);
        assert_int_equal(seen[lane->rail][p->intake[s]]++, 0); /* each intake is one source's */
        assert_int_equal(p->intake[s], g->paths[g->owner[lane->rail]].intake[s]);
        assert_true(p->intake[s] < g->paths[g->owner[lane->rail]].n_intakes);
        intakes += lane->rail == owner_id;
    }
    assert_int_equal(p->n_intakes, intakes);
}

/* From one node, the rails of another get as many sources as they can evenly get. */
static void check_balance(const group *g, int owner_id)
{
    const tti_paths *p = &g->paths[g->owner[owner_id]];
    for (int node = 0; node < MAX_RANKS; node++) {
        int count[MAX_RANKS] = {0}, total = 0;
        for (int s = 0; s < g->params.n_sources; s++) {
            if (g->node[g->source[s]] == node && p->rail[s] >= 0) {
                count[p->rail[s]]++;
                total++;
            }
        }
        for (int o = 0; o < g->params.n_owners; o++) {
            assert_true(count[o] <= (total + p->n_mates - 1) / p->n_mates);
        }
    }
}

static void both_ends_agree(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        group g;
        make_group(&g, i % 2 ? TT_ROUTE_NODE : TT_ROUTE_DIRECT);
        for (int o = 0; o < g.params.n_owners; o++) {
            check_owner(&g, o);
            check_balance(&g, o);
        }
        free_group(&g);
    }
}

/* 2 nodes of 4: rank i talks to rank i + 4 only. */
static void equal_nodes_have_rails(void **state)
{
    (void)state;
    group g = {.n_ranks = 8};
    for (int r = 0; r < 8; r++) {
        g.source[r] = g.owner[r] = r;
        g.node[r] = r / 4;
    }
    g.params = (tt_exchange_params){.source = g.source,
                                    .n_sources = 8,
                                    .owner = g.owner,
                                    .n_owners = 8,
                                    .route = TT_ROUTE_NODE};
    for (int r = 0; r < 8; r++) {
        assert_int_equal(tti_paths_make(&g.params, g.node, r, &g.paths[r]), TT_OK);
        assert_int_equal(g.paths[r].n_lanes, 1);
        assert_int_equal(g.paths[r].lane[0].rail, (r + 4) % 8);
        assert_int_equal(g.paths[r].n_intakes, 1);
    }
    free_group(&g);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_agree),
        cmocka_unit_test(equal_nodes_have_rails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
