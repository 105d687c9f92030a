/* exchange_expect.c - the inputs of a case, and what its y must be: a serial sum.
 *
 * All inputs are functions of (case, use, source, token, choice), so each rank can compute what its
 * y must be. An owner's "expert" is result[c] = fmaf(row[c], a, b) with a and b of the slot; where
 * weights travel, row[c] is the row's value times the weight. */
#include "exchange_case.h"
#include <math.h>
#include "ttk.h"

uint64_t seed_of(const world_case *w, int handle, int use, int source_id, int64_t t, int64_t k)
{
    uint64_t h = test_mix((uint64_t)w->c->H * 31u + (uint64_t)handle);
    h = test_mix(h ^ (uint64_t)use);
    h = test_mix(h ^ (uint64_t)source_id);
    h = test_mix(h ^ (uint64_t)t);
    return test_mix(h ^ (uint64_t)k);
}

int64_t tokens_of(const world_case *w, int handle, int use, int source_id)
{
    switch (w->c->count) {
    case TOKENS_NONE:
        return 0;
    case TOKENS_MOST:
        return w->c->max_tokens;
    case TOKENS_ONE_SOURCE:
        return source_id == use % w->n_sources ? w->c->max_tokens : 0;
    default: {
        uint64_t h = seed_of(w, handle, use, source_id, -1, -1);
        return h % 4 == 0 ? 0 : (int64_t)(h % (uint64_t)(w->c->max_tokens + 1));
    }
    }
}

int group_of(const world_case *w, int64_t slot, int map)
{
    int n_groups = w->n_owners / w->c->width;
    return (int)((slot + map * 5) % n_groups);
}

int map_of(const world_case *w, int use)
{
    return w->c->new_maps ? use % 4 : 0;
}

int32_t slot_at(const world_case *w, int handle, int use, int source_id, int64_t t, int64_t k)
{
    uint64_t h = seed_of(w, handle, use, source_id, t, k);
    int64_t n = w->c->n_slots;
    switch (w->c->route) {
    case ROUTE_ONE:
        return 0;
    case ROUTE_HOLES:
        return t % 3 == 1 || h % 3 == 0 ? -1 : (int32_t)((h >> 8) % (uint64_t)n);
    case ROUTE_TWICE:
        return (int32_t)(seed_of(w, handle, use, source_id, t, k / 2) % (uint64_t)n);
    case ROUTE_OWN:
    case ROUTE_LAST: {
        int last = w->n_owners / w->c->width - 1,
            wanted = w->c->route == ROUTE_LAST ? last : source_id;
        for (int64_t i = 0; i < n; i++) {
            int64_t s = (int64_t)((h + (uint64_t)i) % (uint64_t)n);
            if (group_of(w, s, map_of(w, use)) == wanted) {
                return (int32_t)s;
            }
        }
        return (int32_t)(h % (uint64_t)n);
    }
    default:
        return (int32_t)(h % (uint64_t)n);
    }
}

float value_of(const world_case *w, uint64_t seed, int64_t c)
{
    uint64_t h = test_mix(seed ^ (uint64_t)(c * 977));
    if (w->c->odd_values && h % 11 == 0) {
        static const float odd[] = {NAN, INFINITY, -INFINITY, 1e-41f, -0.0f, 0.0f, 3e38f};
        return odd[(h >> 8) % (sizeof(odd) / sizeof(odd[0]))];
    }
    return (float)((int64_t)(h % 20011) - 10005) / 512.0f;
}

float weight_at(const world_case *w, int handle, int use, int source_id, int64_t t, int64_t k)
{
    if (slot_at(w, handle, use, source_id, t, k) < 0) {
        return NAN; /* must not be read */
    }
    return (float)(seed_of(w, handle, use, source_id, t, k + 1000) % 4096) / 4097.0f;
}

float expert(int64_t slot, float x)
{
    return fmaf(x, 0.37f + 0.11f * (float)(slot % 7), 0.013f * (float)slot);
}

/* A row as it comes off the wire; the forms themselves are checked with the kernels. */
static void round_row(tt_wire wire, float *v, int64_t n)
{
    enum { MOST = 7169 };
    static unsigned char row[MOST * sizeof(float)];
    CHECK(n <= MOST, "%lld columns", (long long)n);
    if (wire == TT_WIRE_BF16) {
        ttk.f32_to_bf16((ttk_bf16 *)(void *)row, v, n);
        ttk.bf16_to_f32(v, (const ttk_bf16 *)(const void *)row, n);
    } else if (wire != TT_WIRE_F32) {
        const ttk_row8_form form = wire == TT_WIRE_FP8 ? TTK_ROW8_FP8 : TTK_ROW8_INT8;
        ttk.row8(form, row, v, n);
        ttk.row8_f32(form, v, row, n);
    }
}

/* A choice of a token: its slot, or -1, and result[H] before it is rounded. */
typedef struct choice {
    int32_t slot;
    int local; /* its number at its owner: set_map counts upwards in each group */
    float weight;
    float *result;
} choice;

static void make_choice(const world_case *w, int handle, int use, int64_t t, int64_t k,
                        const float *row, choice *c)
{
    c->slot = slot_at(w, handle, use, w->source_id, t, k);
    c->weight = weight_at(w, handle, use, w->source_id, t, k);
    c->local = 0;
    for (int32_t before = 0; before < c->slot; before++) {
        c->local += group_of(w, before, map_of(w, use)) == group_of(w, c->slot, map_of(w, use));
    }
    for (int64_t h = 0; h < w->c->H && c->slot >= 0; h++) { /* a weight that travels is applied
                                                             * after the rounding to the wire */
        c->result[h] = expert(c->slot, w->c->travels ? row[h] * c->weight : row[h]);
    }
}

static int server_of(const world_case *w, int use, const choice *c, int part)
{
    return c->slot < 0 ? -1 : w->owner[group_of(w, c->slot, map_of(w, use)) * w->c->width + part];
}

/* sum[n] and the result's columns from `first` on, rounded to `back`. */
static void add_choice(const world_case *w, const choice *c, int64_t first, int64_t n, tt_wire back,
                       float *sum)
{
    float *v = malloc((size_t)(n + 1) * sizeof(*v));
    memcpy(v, c->result + first, (size_t)n * sizeof(*v));
    round_row(back, v, n);
    for (int64_t h = 0; h < n; h++) {
        sum[h] = w->c->travels ? sum[h] + v[h] : fmaf(c->weight, v[h], sum[h]);
    }
    free(v);
}

static void add_sum(const world_case *w, float *y, float *sum, int64_t n)
{
    round_row(w->c->wire_back, sum, n);
    for (int64_t h = 0; h < n; h++) {
        y[h] += sum[h];
        sum[h] = 0.0f;
    }
}

/* y[n] of a part if other nodes sum: near choices in order, then the sum of each message of rows,
 * whose order is that of nodes, owners and local slots. */
static void add_reduced(const world_case *w, int use, const choice *choices, int part,
                        int64_t first, int64_t n, float *y)
{
    const int here = tt_world_node(w->world, test_rank), n_nodes = tt_world_n_nodes(w->world);
    float *sum = calloc((size_t)n + 1, sizeof(*sum));
    for (int64_t k = 0; k < w->c->K; k++) {
        const int server = server_of(w, use, &choices[k], part);
        if (server >= 0 && tt_world_node(w->world, server) == here) {
            add_choice(w, &choices[k], first, n, w->c->wire_back, y);
        }
    }
    for (int node = 0; node < n_nodes; node++) {
        bool is_any = false;
        for (int o = 0; o < w->n_owners && node != here; o++) {
            for (int want = 0;
                 want < (int)w->c->n_slots && tt_world_node(w->world, w->owner[o]) == node;
                 want++) {
                for (int64_t k = 0; k < w->c->K; k++) {
                    if (server_of(w, use, &choices[k], part) == w->owner[o] &&
                        choices[k].local == want) {
                        add_choice(w, &choices[k], first, n, TT_WIRE_F32, sum);
                        is_any = true;
                    }
                }
            }
            if (w->route == TT_ROUTE_DIRECT && is_any) {
                add_sum(w, y, sum, n);
                is_any = false;
            }
        }
        if (is_any) {
            add_sum(w, y, sum, n);
        }
    }
    free(sum);
}

void expect_token(const world_case *w, int handle, int use, int64_t t, float *y)
{
    const test_case *c = w->c;
    const uint64_t seed = seed_of(w, handle, use, w->source_id, t, -2);
    choice *choices = calloc((size_t)c->K, sizeof(*choices));
    float *row = malloc((size_t)(c->K + 1) * (size_t)c->H * sizeof(*row));
    for (int64_t h = 0; h < c->H; h++) {
        row[h] = value_of(w, seed, h);
        y[h] = 0.0f;
    }
    round_row(c->wire, row, c->H);
    for (int64_t k = 0; k < c->K; k++) {
        choices[k].result = row + (k + 1) * c->H;
        make_choice(w, handle, use, t, k, row, &choices[k]);
    }
    for (int part = 0; part < c->width; part++) {
        const int64_t first = c->width > 1 ? w->back_columns[part] : 0,
                      n = (c->width > 1 ? w->back_columns[part + 1] : c->H) - first;
        for (int64_t k = 0; k < c->K && w->combine == TT_COMBINE_EXACT; k++) {
            if (choices[k].slot >= 0) {
                add_choice(w, &choices[k], first, n, c->wire_back, y + first);
            }
        }
        if (w->combine == TT_COMBINE_REDUCED) {
            add_reduced(w, use, choices, part, first, n, y + first);
        }
    }
    free(choices);
    free(row);
}
