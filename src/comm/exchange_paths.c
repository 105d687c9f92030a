/* exchange_paths.c - which rank of another node takes in what a source sends there.
 *
 * DIRECT: every owner for itself. NODE: one owner of the node for all of them, its rail; sources
 * are dealt out to the owners of a node by their place among the sources of their own node, so that
 * rank i of one node talks to rank i of another if both have equally many, and nobody to everybody.
 * All of it is a pure function of the lists of ranks and their nodes: any mapping, any number on a
 * node. */
#include "exchange_internal.h"
#include <stdlib.h>

static int compare_places(const void *a, const void *b)
{
    const int *p = a, *q = b; /* node, owner id */
    if (p[0] != q[0]) {
        return p[0] < q[0] ? -1 : 1;
    }
    return (p[1] > q[1]) - (p[1] < q[1]);
}

/* Owners by node, then by id. */
static tt_status order_owners(const tt_exchange_params *p, const int *node_of_rank,
                              tti_paths *paths)
{
    int(*place)[2] = malloc((size_t)p->n_owners * sizeof(*place));
    TT_CHECK(place, TT_ERR_NOMEM, "no memory to order %d owners", p->n_owners);
    for (int o = 0; o < p->n_owners; o++) {
        place[o][0] = node_of_rank[p->owner[o]];
        place[o][1] = o;
    }
    qsort(place, (size_t)p->n_owners, sizeof(*place), compare_places);
    for (int i = 0; i < p->n_owners; i++) {
        paths->owner_at[i] = place[i][1];
        paths->position[place[i][1]] = i;
    }
    free(place);
    return TT_OK;
}

/* The place of a source among those of its node. */
static int ordinal_of(const tt_exchange_params *p, const int *node_of_rank, int source_id)
{
    int ordinal = 0;
    for (int s = 0; s < source_id; s++) {
        ordinal += node_of_rank[p->source[s]] == node_of_rank[p->source[source_id]];
    }
    return ordinal;
}

/* Where a source's messages go. */
static void find_lanes(const tt_exchange_params *p, const int *node_of_rank, int source_id,
                       tti_paths *paths)
{
    const int node = node_of_rank[p->source[source_id]],
              ordinal = ordinal_of(p, node_of_rank, source_id);
    for (int first = 0, end; first < p->n_owners; first = end) {
        const int there = node_of_rank[p->owner[paths->owner_at[first]]];
        end = first + 1;
        while (paths->by_node && end < p->n_owners &&
               node_of_rank[p->owner[paths->owner_at[end]]] == there) {
            end++;
        }
        if (there != node) {
            const int rail = paths->owner_at[first + ordinal % (end - first)];
            paths->first_lane += there < node;
            paths->lane[paths->n_lanes++] = (tti_lane_path){rail, first, end - first};
        }
    }
    if (!paths->by_node) {
        paths->first_lane = source_id;
    }
    paths->first_lane = paths->n_lanes ? paths->first_lane % paths->n_lanes : 0;
}

/* Through whom the rows of far sources come to an owner. */
static void find_intakes(const tt_exchange_params *p, const int *node_of_rank, int owner_id,
                         tti_paths *paths)
{
    const int node = node_of_rank[p->owner[owner_id]];
    paths->mate_first = paths->position[owner_id];
    paths->n_mates = 1;
    if (paths->by_node) {
        while (paths->mate_first > 0 &&
               node_of_rank[p->owner[paths->owner_at[paths->mate_first - 1]]] == node) {
            paths->mate_first--;
        }
        int end = paths->position[owner_id] + 1;
        while (end < p->n_owners && node_of_rank[p->owner[paths->owner_at[end]]] == node) {
            end++;
        }
        paths->n_mates = end - paths->mate_first;
    }
    for (int s = 0; s < p->n_sources; s++) {
        paths->rail[s] = -1;
        paths->intake[s] = 0;
        if (node_of_rank[p->source[s]] == node) {
            continue;
        }
        paths->rail[s] =
            paths->owner_at[paths->mate_first + ordinal_of(p, node_of_rank, s) % paths->n_mates];
        for (int other = 0; other < s; other++) {
            paths->intake[s] += paths->rail[other] == paths->rail[s];
        }
        paths->n_intakes += paths->rail[s] == owner_id;
    }
}

int tti_find_rank(const int *list, int n, int rank)
{
    for (int i = 0; i < n; i++) {
        if (list[i] == rank) {
            return i;
        }
    }
    return -1;
}

static tt_status alloc_ints(int n, int **out)
{
    *out = calloc((size_t)(n ? n : 1), sizeof(**out));
    TT_CHECK(*out, TT_ERR_NOMEM, "no memory for the paths of %d ranks", n);
    return TT_OK;
}

static tt_status fill(const tt_exchange_params *p, const int *node_of_rank, int rank,
                      tti_paths *paths)
{
    TT_TRY(alloc_ints(p->n_owners, &paths->owner_at));
    TT_TRY(alloc_ints(p->n_owners, &paths->position));
    TT_TRY(alloc_ints(p->n_sources, &paths->rail));
    TT_TRY(alloc_ints(p->n_sources, &paths->intake));
    paths->lane = calloc((size_t)p->n_owners, sizeof(*paths->lane));
    TT_CHECK(paths->lane, TT_ERR_NOMEM, "no memory for paths to %d owners", p->n_owners);
    TT_TRY(order_owners(p, node_of_rank, paths));
    const int source_id = tti_find_rank(p->source, p->n_sources, rank),
              owner_id = tti_find_rank(p->owner, p->n_owners, rank);
    if (source_id >= 0) {
        find_lanes(p, node_of_rank, source_id, paths);
    }
    if (owner_id >= 0) {
        find_intakes(p, node_of_rank, owner_id, paths);
    }
    return TT_OK;
}

tt_status tti_paths_make(const tt_exchange_params *params, const int *node_of_rank, int rank,
                         tti_paths *paths_out)
{
    tti_paths paths = {.by_node = params->route == TT_ROUTE_NODE};
    const tt_status st = fill(params, node_of_rank, rank, &paths);
    if (st != TT_OK) {
        tti_paths_free(&paths);
        return st;
    }
    *paths_out = paths;
    return TT_OK;
}

void tti_paths_free(tti_paths *paths)
{
    free(paths->owner_at);
    free(paths->position);
    free(paths->rail);
    free(paths->intake);
    free(paths->lane);
    *paths = (tti_paths){0};
}
