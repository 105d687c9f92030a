/* load.c - tokens, choices and what must come out. */
#include "load.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../bench_rank.h"

const char *const load_names[LOAD_KINDS] = {"balanced", "zipf",      "hot-expert",
                                            "hot-rank", "idle-rank", "ragged"};

static uint64_t mix(uint64_t h)
{
    h ^= h >> 30;
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    h ^= h >> 27;
    h *= UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}

static uint64_t dice(const load *l, int rank, int64_t t, int64_t k)
{
    return mix(mix(mix(l->seed + (uint64_t)rank) + (uint64_t)t) + (uint64_t)k);
}

int load_owner(const load *l, int64_t expert)
{
    return (int)(expert * l->size / l->E);
}

int64_t load_tokens(const load *l, int rank)
{
    if (l->kind == LOAD_IDLE_RANK) {
        return l->size > 1 && rank == l->size - 1 ? 0 : l->T;
    }
    return l->kind == LOAD_RAGGED ? l->T * (rank + 1) / l->size : l->T;
}

/* One choice; the caller sees to it that those of a token differ. */
static int64_t choose(const load *l, uint64_t h)
{
    const int64_t E = l->E, first_of_last = (E * (l->size - 1) + l->size - 1) / l->size;
    switch (l->kind) {
    case LOAD_ZIPF: /* the inverse of the sum of 1 / e, nearly */
        return (int64_t)(pow((double)(E + 1), (double)(h >> 11) * 0x1p-53) - 1.0) % E;
    case LOAD_HOT_EXPERT:
        return h & 1 ? 0 : (int64_t)((h >> 1) % (uint64_t)E);
    case LOAD_HOT_RANK:
        return h & 1 ? (int64_t)((h >> 1) % (uint64_t)((E + l->size - 1) / l->size))
                     : (int64_t)((h >> 1) % (uint64_t)E);
    case LOAD_IDLE_RANK:
        return (int64_t)(h % (uint64_t)(l->size > 1 ? first_of_last : E));
    default:
        return (int64_t)(h % (uint64_t)E);
    }
}

static void choose_all(load *l, int64_t t)
{
    int32_t *slot = l->slot + t * l->K;
    for (int64_t k = 0; k < l->K; k++) {
        uint64_t h = dice(l, l->rank, t, k);
        int64_t e = choose(l, h);
        for (int64_t before = 0, tries = 0; before < k; before++) {
            if (slot[before] == e) { /* again, at last whoever is next */
                e = ++tries < 8 ? choose(l, h = mix(h + 1)) : (e + 1) % l->E;
                before = -1;
            }
        }
        slot[k] = (int32_t)e;
        l->weight[t * l->K + k] = 1.0f / (float)(1 << (dice(l, l->rank, t, k + 1000) % 3));
    }
}

void load_make(load *l)
{
    l->n = load_tokens(l, l->rank);
    l->x = bench_alloc((size_t)(l->n * l->H), sizeof(*l->x));
    l->slot = bench_alloc((size_t)(l->n * l->K), sizeof(*l->slot));
    l->weight = bench_alloc((size_t)(l->n * l->K), sizeof(*l->weight));
    for (int64_t t = 0; t < l->n; t++) {
        for (int64_t c = 0; c < l->H; c++) {
            l->x[t * l->H + c] = (float)((int64_t)(dice(l, l->rank, t, -1 - c) % 17) - 8);
        }
        choose_all(l, t);
    }
}

void load_free(load *l)
{
    free(l->x);
    free(l->slot);
    free(l->weight);
}

int64_t load_n_chunks(const load *l)
{
    return l->chunk == 0 || l->n == 0 ? 1 : (l->n - 1) / l->chunk + 1;
}

float load_factor(int64_t expert)
{
    return (float)(1 + expert % 3);
}

/* What a wire may cost of a block's largest number; of small whole ones, bf16 costs nothing. */
static float rounding_of(tt_wire wire, bool is_small)
{
    return wire == TT_WIRE_INT8                ? 1.0f / 254.0f
           : wire == TT_WIRE_FP8               ? 1.0f / 8.0f
           : wire == TT_WIRE_BF16 && !is_small ? 1.0f / 256.0f
                                               : 0.0f;
}

int64_t load_wrong(const load *l, const float *y, bool rounds_sums)
{
    const float out = rounding_of(l->wire, true), back = rounding_of(l->wire_back, !rounds_sums),
                rounding = 1.01f * (out + back * (1.0f + out));
    int64_t wrong = 0;
    for (int64_t t = 0; t < l->n; t++) {
        float factor = 0.0f, size = 0.0f, largest = 0.0f;
        for (int64_t k = 0; k < l->K; k++) {
            const float part = l->weight[t * l->K + k] * load_factor(l->slot[t * l->K + k]);
            factor += part;
            size += fabsf(part);
        }
        for (int64_t c = 0; c < l->H; c++) {
            largest = fmaxf(largest, fabsf(l->x[t * l->H + c]));
        }
        for (int64_t c = 0; c < l->H; c++) {
            wrong += !(fabsf(y[t * l->H + c] - factor * l->x[t * l->H + c]) <=
                       rounding * size * largest);
        }
    }
    return wrong;
}

load_least load_count(const load *l, const int *node_of_rank)
{
    load_least n = {0};
    bool *rank_seen = bench_alloc((size_t)l->size, sizeof(*rank_seen)),
         *node_seen = bench_alloc((size_t)l->size, sizeof(*node_seen));
    for (int64_t t = 0; t < l->n; t++) {
        memset(rank_seen, 0, (size_t)l->size * sizeof(*rank_seen));
        memset(node_seen, 0, (size_t)l->size * sizeof(*node_seen));
        for (int64_t k = 0; k < l->K; k++) {
            const int owner = load_owner(l, l->slot[t * l->K + k]), node = node_of_rank[owner];
            const bool is_far = node != node_of_rank[l->rank];
            n.results_from_nodes += is_far;
            n.rows_to_far_ranks += is_far && !rank_seen[owner];
            n.rows_to_nodes += is_far && !node_seen[node];
            rank_seen[owner] = node_seen[node] = true;
        }
    }
    free(rank_seen);
    free(node_seen);
    return n;
}
