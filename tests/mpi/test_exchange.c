/* test_exchange.c - every y must have the bits of a serial sum, whatever the split into nodes, the
 * owners, the wire, the order of arrival.
 *
 * All inputs are functions of (case, use, source, token, choice), so each rank can compute what its
 * y must be. An owner's "expert" is result[c] = fmaf(row[c], a, b) with a and b of the slot; where
 * weights travel, row[c] is the row's value times the weight. */
/* TEST ranks: 1 2 3 4 5 7 8 */
/* TEST timeout: 120 */
#include "mpi_test.h"
#include <math.h>
#include <unistd.h>
#include "tutti/cpu.h"
#include "tutti/exchange.h"
#include "ttk.h"

typedef enum routing {
    ROUTE_RANDOM,
    ROUTE_HOLES, /* -1 among the choices, whole rows of -1, NaN weights there */
    ROUTE_ONE,   /* every choice of every token is slot 0 */
    ROUTE_TWICE, /* a slot is named twice in a row */
    ROUTE_OWN,   /* only slots of this rank, if it has any */
    ROUTE_LAST   /* only slots of the last owner */
} routing;
typedef enum tokens { TOKENS_RAGGED, TOKENS_NONE, TOKENS_MOST, TOKENS_ONE_SOURCE } tokens;
typedef enum roles {
    ROLES_ALL,
    ROLES_APART /* first half sources, rest owners */,
    ROLES_EVEN_OWN
} roles;

typedef struct test_case {
    const char *name;
    int64_t H, K, max_tokens;
    tt_wire wire, wire_back;
    int width;
    int64_t n_slots;
    int n_handles, n_uses; /* uses per handle */
    routing route;
    tokens count;
    roles role;
    bool odd_values; /* NaN, Inf, denormals, -0 in the payload */
    bool sleeps;     /* some ranks dawdle */
    bool new_maps;   /* another owner map for each use */
    bool travels;    /* weights go to the owners */
} test_case;

typedef struct world_case {
    tt_world *world;
    const test_case *c;
    tt_exchange *x;
    int source[TEST_MAX_RANKS], owner[TEST_MAX_RANKS];
    int n_sources, n_owners, source_id, owner_id;
    int64_t back_columns[TEST_MAX_RANKS + 1];
    int32_t *rank, *local; /* the map in force */
    tt_route route;        /* not AUTO */
    tt_combine combine;
    uint64_t dice; /* differs between ranks: order of events */
} world_case;

/* One use under way. */
typedef struct flight {
    int use; /* -1: not begun */
    bool is_open;
    int64_t T;
    int32_t *slot_of_local; /* local -> slot on this rank in this use, -1 */
    float *y;
    tt_exchange_rows held[64]; /* groups computed and not pushed */
    int n_held;
} flight;

enum { LOCAL_OFFSET = 3, GUARD = 7 };
enum { CROWDED = 3 }; /* ranks that share few cores */

/* ---- inputs ---- */

static uint64_t seed_of(const world_case *w, int handle, int use, int source_id, int64_t t,
                        int64_t k)
{
    uint64_t h = test_mix((uint64_t)w->c->H * 31u + (uint64_t)handle);
    h = test_mix(h ^ (uint64_t)use);
    h = test_mix(h ^ (uint64_t)source_id);
    h = test_mix(h ^ (uint64_t)t);
    return test_mix(h ^ (uint64_t)k);
}

static int64_t tokens_of(const world_case *w, int handle, int use, int source_id)
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

/* Slots go round the groups of owners; another map shifts them. */
static int group_of(const world_case *w, int64_t slot, int map)
{
    int n_groups = w->n_owners / w->c->width;
    return (int)((slot + map * 5) % n_groups);
}

static int map_of(const world_case *w, int use)
{
    return w->c->new_maps ? use % 4 : 0;
}

static int32_t slot_at(const world_case *w, int handle, int use, int source_id, int64_t t,
                       int64_t k)
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

static float value_of(const world_case *w, uint64_t seed, int64_t c)
{
    uint64_t h = test_mix(seed ^ (uint64_t)(c * 977));
    if (w->c->odd_values && h % 11 == 0) {
        static const float odd[] = {NAN, INFINITY, -INFINITY, 1e-41f, -0.0f, 0.0f, 3e38f};
        return odd[(h >> 8) % (sizeof(odd) / sizeof(odd[0]))];
    }
    return (float)((int64_t)(h % 20011) - 10005) / 512.0f;
}

static float weight_at(const world_case *w, int handle, int use, int source_id, int64_t t,
                       int64_t k)
{
    if (slot_at(w, handle, use, source_id, t, k) < 0) {
        return NAN; /* must not be read */
    }
    return (float)(seed_of(w, handle, use, source_id, t, k + 1000) % 4096) / 4097.0f;
}

static float expert(int64_t slot, float x)
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

/* ---- one use ---- */

static void set_map(world_case *w, int use)
{
    const test_case *c = w->c;
    int map = map_of(w, use), counts[TEST_MAX_RANKS] = {0};
    for (int64_t s = 0; s < c->n_slots; s++) {
        int g = group_of(w, s, map);
        w->local[s] = LOCAL_OFFSET + counts[g]++;
        for (int p = 0; p < c->width; p++) {
            w->rank[s * c->width + p] = w->owner[g * c->width + p];
        }
    }
    tt_owner_map m = {c->n_slots, w->rank, w->local};
    MUST(tt_exchange_set_owners(w->x, &m, (uint64_t)map));
}

static void begin_use(world_case *w, int handle, flight *f)
{
    const test_case *c = w->c;
    int use = f->use;
    set_map(w, use);
    for (int64_t i = 0; i < c->n_slots + LOCAL_OFFSET; i++) {
        f->slot_of_local[i] = -1;
    }
    for (int64_t s = 0; s < c->n_slots; s++) {
        for (int p = 0; p < c->width; p++) {
            if (w->rank[s * c->width + p] == test_rank) {
                f->slot_of_local[w->local[s]] = (int32_t)s;
            }
        }
    }
    f->T = w->source_id >= 0 ? tokens_of(w, handle, use, w->source_id) : 0;
    size_t T = (size_t)f->T, K = (size_t)c->K, ld = (size_t)c->H + GUARD;
    float *x = malloc((T * ld + 1) * sizeof(*x)), *weight = malloc((T * K + 1) * sizeof(*weight));
    int32_t *slot = malloc((T * K + 1) * sizeof(*slot));
    for (int64_t t = 0; t < f->T; t++) {
        for (int64_t k = 0; k < c->K; k++) {
            slot[t * c->K + k] = slot_at(w, handle, use, w->source_id, t, k);
            weight[t * c->K + k] = weight_at(w, handle, use, w->source_id, t, k);
        }
        for (int64_t h = 0; h < c->H; h++) {
            x[t * (c->H + GUARD) + h] =
                value_of(w, seed_of(w, handle, use, w->source_id, t, -2), h);
        }
    }
    MUST(tt_exchange_prepare(w->x, handle, f->T, slot, weight, TT_OK));
    MUST(tt_exchange_dispatch_begin(w->x, handle, x, c->H + GUARD, NULL));
    memset(x, 0x7f, T * ld * sizeof(*x)); /* may change after return */
    free(x);
    free(slot);
    free(weight);
    f->is_open = true;
    f->n_held = 0;
}

/* A row as products take it: its codes and scales are those that came. */
static void check_act8(const world_case *w, const tt_exchange_rows *rows, int32_t i,
                       const float *row)
{
    const int64_t H = w->c->H;
    unsigned char *act8 = calloc(1, ttk_act8_bytes(H));
    const bool is_there = tt_exchange_get_act8(w->x, rows, i, act8);
    CHECK(is_there == (w->c->wire == TT_WIRE_INT8), "%s: int8 rows of another wire, or none",
          w->c->name);
    const float *scale = (const float *)(const void *)(act8 + ttk_act8_groups(H) * TTK_ACT_GROUP);
    for (int64_t h = 0; h < H && is_there; h++) {
        const float v = (float)(int8_t)act8[h] * scale[h / TTK_ACT_GROUP];
        CHECK(memcmp(&v, &row[h], sizeof(v)) == 0 || (isnan(v) && isnan(row[h])),
              "%s: column %lld is %a, not %a", w->c->name, (long long)h, (double)v, (double)row[h]);
    }
    free(act8);
}

static void compute(world_case *w, int handle, flight *f, const tt_exchange_rows *rows)
{
    const test_case *c = w->c;
    int32_t slot = rows->slot >= 0 && rows->slot < c->n_slots + LOCAL_OFFSET
                       ? f->slot_of_local[rows->slot]
                       : -1;
    CHECK(slot >= 0, "%s: local slot %d is not mine", c->name, rows->slot);
    CHECK(rows->n > 0 && rows->source_id >= 0 && rows->source_id < w->n_sources,
          "%d rows of source %d", rows->n, rows->source_id);
    int part = w->owner_id % c->width;
    int64_t begin = c->width > 1 ? w->back_columns[part] : 0;
    int64_t end = c->width > 1 ? w->back_columns[part + 1] : c->H;
    float *row = malloc((size_t)c->H * sizeof(*row)), *y = malloc((size_t)c->H * sizeof(*y));
    for (int32_t i = 0; i < rows->n; i++) {
        tt_exchange_get_row(w->x, rows, i, row);
        CHECK(!rows->weight == !c->travels, "%s: weights where none travel, or none", c->name);
        check_act8(w, rows, i, row);
        for (int64_t h = 0; rows->weight && h < c->H; h++) {
            row[h] *= rows->weight[i];
        }
        for (int64_t col = begin; col < end; col++) {
            y[col - begin] = expert(slot, row[col]);
        }
        tt_exchange_put_result(w->x, handle, rows, i, y);
    }
    free(row);
    free(y);
}

static void push_one(world_case *w, int handle, flight *f)
{
    int i = (int)test_below(&w->dice, f->n_held);
    CHECK_OK(tt_exchange_push(w->x, handle, &f->held[i]));
    f->held[i] = f->held[--f->n_held];
}

/* ---- what y must be ---- */

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

static void expect_token(const world_case *w, int handle, int use, int64_t t, float *y)
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

static void check_y(world_case *w, int handle, const flight *f)
{
    const test_case *c = w->c;
    int64_t bad = 0;
    float *want = malloc((size_t)c->H * sizeof(*want));
    for (int64_t t = 0; t < f->T; t++) {
        expect_token(w, handle, f->use, t, want);
        for (int64_t h = 0; h < c->H; h++) {
            float got = f->y[t * (c->H + GUARD) + h];
            bool same = memcmp(&got, &want[h], sizeof(got)) == 0 || (isnan(got) && isnan(want[h]));
            bad += !same;
            CHECK(same, "%s: handle %d use %d token %lld column %lld: %a, not %a", c->name, handle,
                  f->use, (long long)t, (long long)h, (double)got, (double)want[h]);
        }
        for (int64_t h = 0; h < GUARD; h++) {
            CHECK(f->y[t * (c->H + GUARD) + c->H + h] == -1.0f, "%s: written beyond row %lld",
                  c->name, (long long)t);
        }
    }
    free(want);
    if (bad > 0) {
        fprintf(stderr, "rank %d: %s: %lld wrong values\n", test_rank, c->name, (long long)bad);
    }
}

static void end_use(world_case *w, int handle, flight *f)
{
    size_t n = (size_t)f->T * (size_t)(w->c->H + GUARD);
    for (size_t i = 0; i < n; i++) {
        f->y[i] = -1.0f;
    }
    MUST(tt_exchange_combine_end(w->x, handle, f->y, w->c->H + GUARD, NULL));
    check_y(w, handle, f);
    f->is_open = false;
}

/* Serves one handle a little. */
static void serve(world_case *w, int handle, flight *f, bool is_only)
{
    tt_exchange_state state;
    tt_exchange_rows rows;
    MUST(tt_exchange_poll(w->x, handle, &state));
    while (f->n_held < 64 && tt_exchange_next_ready(w->x, handle, &rows)) {
        compute(w, handle, f, &rows);
        f->held[f->n_held++] = rows;
        if (test_below(&w->dice, 4) == 0) {
            break;
        }
    }
    while (f->n_held > 0 && test_below(&w->dice, 3) > 0) {
        push_one(w, handle, f);
    }
    MUST(tt_exchange_poll(w->x, handle, &state));
    /* combine_end may block only if no other handle waits for us. */
    bool may_block = is_only && state.all_arrived && !state.has_ready && f->n_held == 0;
    if (state.all_returned || may_block) {
        CHECK(f->n_held == 0, "%s: returned before pushed", w->c->name);
        end_use(w, handle, f);
    }
}

/* ---- one case ---- */

static void choose_roles(world_case *w)
{
    for (int r = 0; r < test_size; r++) {
        bool is_source = w->c->role != ROLES_APART || test_size == 1 || r < (test_size + 1) / 2;
        bool is_owner = w->c->role == ROLES_ALL || test_size == 1 ||
                        (w->c->role == ROLES_APART ? r >= (test_size + 1) / 2 : r % 2 == 1);
        if (is_source) {
            w->source_id = r == test_rank ? w->n_sources : w->source_id;
            w->source[w->n_sources++] = r;
        }
        if (is_owner) {
            w->owner_id = r == test_rank ? w->n_owners : w->owner_id;
            w->owner[w->n_owners++] = r;
        }
    }
    w->n_owners -= w->n_owners % w->c->width; /* whole groups only */
    if (w->owner_id >= w->n_owners) {
        w->owner_id = -1;
    }
    for (int p = 0; p <= w->c->width; p++) {
        w->back_columns[p] = p == w->c->width ? w->c->H : (w->c->H * p * 2) / (w->c->width * 3);
    }
}

/* Chunks of all sizes, and none. */
static int64_t chunk_of(const test_case *c, uint64_t seed)
{
    /* each chunk is a message */
    const int64_t least = test_size < CROWDED ? 1 : (c->max_tokens + 2) / 3;
    return seed % 4 == 0
               ? 0
               : least + (int64_t)(test_mix(seed) % (uint64_t)(c->max_tokens - least + 1));
}

static void run_route(tt_world *world, const test_case *c, tt_route route, tt_combine combine,
                      uint64_t seed)
{
    world_case w = {.world = world, .c = c, .source_id = -1, .owner_id = -1, .combine = combine};
    w.dice = test_mix(seed ^ ((uint64_t)test_rank << 32));
    choose_roles(&w);
    if (w.n_owners == 0) {
        return; /* fewer ranks than the width */
    }
    tt_exchange_params p = {.H = c->H,
                            .K = c->K,
                            .max_tokens = c->max_tokens,
                            .n_handles = c->n_handles,
                            .wire = c->wire,
                            .wire_back = c->wire_back,
                            .source = w.source,
                            .n_sources = w.n_sources,
                            .owner = w.owner,
                            .n_owners = w.n_owners,
                            .width = c->width,
                            .route = route,
                            .combine = combine,
                            .weights_travel = c->travels,
                            .chunk_tokens = chunk_of(c, seed),
                            .back_columns = c->width > 1 ? w.back_columns : NULL};
    w.route = route == TT_ROUTE_AUTO ? TT_ROUTE_NODE : route;
    MUST(tt_exchange_create(world, &p, &w.x));
    bool takes_part = w.source_id >= 0 || w.owner_id >= 0;
    w.rank = malloc((size_t)(c->n_slots * c->width) * sizeof(*w.rank));
    w.local = malloc((size_t)c->n_slots * sizeof(*w.local));
    flight *flights = calloc((size_t)c->n_handles, sizeof(*flights));
    for (int i = 0; i < c->n_handles; i++) {
        flights[i].slot_of_local = malloc((size_t)(c->n_slots + LOCAL_OFFSET) * sizeof(int32_t));
        flights[i].y = malloc((size_t)(c->max_tokens * (c->H + GUARD)) * sizeof(float));
    }
    int left = takes_part ? c->n_handles * c->n_uses : 0;
    while (left > 0) {
        int i = (int)test_below(&w.dice, c->n_handles), n_open = 0;
        for (int j = 0; j < c->n_handles; j++) {
            n_open += flights[j].use < c->n_uses; /* begun or to be begun */
        }
        flight *f = &flights[i];
        if (!f->is_open) {
            if (f->use < c->n_uses) {
                begin_use(&w, i, f);
            }
            continue;
        }
        if (c->sleeps && test_below(&w.dice, 40) == 0) {
            usleep((useconds_t)test_below(&w.dice, 3000));
        }
        serve(&w, i, f, n_open == 1);
        if (!f->is_open) {
            f->use++;
            left--;
        }
    }
    MUST(tt_world_barrier(world)); /* all sent messages are counted */
    tt_exchange_counters n = tt_exchange_get_counters(w.x);
    CHECK(n.uses == (takes_part ? (uint64_t)(c->n_handles * c->n_uses) : 0),
          "%s: %llu uses counted", c->name, (unsigned long long)n.uses);
    if (tt_world_n_nodes(world) == 1) {
        CHECK(n.messages_out == 0 && n.wire_bytes_out == 0, "%s: MPI messages inside a node",
              c->name);
    }
    uint64_t mine[2] = {n.wire_bytes_out, n.wire_bytes_in}, ranks[TEST_MAX_RANKS][2],
             all[2] = {0, 0};
    MUST(tt_world_allgather(world, mine, sizeof(mine), ranks));
    for (int r = 0; r < test_size; r++) {
        all[0] += ranks[r][0];
        all[1] += ranks[r][1];
    }
    CHECK(all[0] == all[1], "%s: %llu bytes sent, %llu received", c->name,
          (unsigned long long)all[0], (unsigned long long)all[1]);
    for (int i = 0; i < c->n_handles; i++) {
        free(flights[i].slot_of_local);
        free(flights[i].y);
    }
    free(flights);
    free(w.rank);
    free(w.local);
    tt_exchange_destroy(&w.x);
    CHECK(!tt_world_is_broken(world), "%s: the world broke", c->name);
}

/* All routes and ways to combine; or one of them if many ranks share few cores, but for wide rows,
 * which go far beyond a buffer that is too small. */
static void run_case(tt_world *world, const test_case *c, uint64_t seed)
{
    static const struct {
        tt_route route;
        tt_combine combine;
    } ways[] = {{TT_ROUTE_NODE, TT_COMBINE_EXACT},
                {TT_ROUTE_NODE, TT_COMBINE_REDUCED},
                {TT_ROUTE_DIRECT, TT_COMBINE_EXACT},
                {TT_ROUTE_AUTO, TT_COMBINE_EXACT},
                {TT_ROUTE_DIRECT, TT_COMBINE_REDUCED}};
    enum { N_WAYS = sizeof(ways) / sizeof(ways[0]), FEW = 3, WIDE = 2048 };
    const bool is_one = tt_world_n_nodes(world) == 1 || (test_size >= FEW && c->H < WIDE);
    for (uint64_t i = is_one ? seed % N_WAYS : 0; i < N_WAYS; i += is_one ? N_WAYS : 1) {
        run_route(world, c, ways[i].route, ways[i].combine, seed + i);
    }
}

static const test_case cases[] = {
    /*name              H  K  T  wire          wire_back    width slots handles uses */
    {"ragged", 64, 4, 9, TT_WIRE_F32, TT_WIRE_F32, 1, 16, 1, 6, ROUTE_RANDOM, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"no tokens at all", 7, 2, 4, TT_WIRE_F32, TT_WIRE_F32, 1, 8, 2, 3, ROUTE_RANDOM, TOKENS_NONE,
     ROLES_ALL, 0, 0, 0, 0},
    {"all to one slot", 127, 3, 16, TT_WIRE_BF16, TT_WIRE_BF16, 1, 9, 2, 3, ROUTE_ONE, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"holes", 33, 4, 8, TT_WIRE_F32, TT_WIRE_BF16, 1, 11, 2, 4, ROUTE_HOLES, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"slot twice", 16, 4, 6, TT_WIRE_F32, TT_WIRE_F32, 1, 13, 1, 3, ROUTE_TWICE, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"own rank only", 65, 8, 5, TT_WIRE_BF16, TT_WIRE_F32, 1, 24, 1, 3, ROUTE_OWN, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"last owner only", 5, 2, 5, TT_WIRE_F32, TT_WIRE_F32, 1, 24, 1, 3, ROUTE_LAST, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"one column", 1, 1, 3, TT_WIRE_BF16, TT_WIRE_BF16, 1, 5, 1, 4, ROUTE_RANDOM, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"width 2880", 2880, 4, 4, TT_WIRE_BF16, TT_WIRE_BF16, 1, 32, 1, 2, ROUTE_RANDOM, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"width 7169", 7169, 2, 2, TT_WIRE_F32, TT_WIRE_F32, 1, 7, 1, 2, ROUTE_RANDOM, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"odd values", 40, 3, 8, TT_WIRE_BF16, TT_WIRE_F32, 1, 8, 1, 3, ROUTE_RANDOM, TOKENS_MOST,
     ROLES_ALL, 1, 0, 0, 0},
    {"two parts", 67, 4, 7, TT_WIRE_F32, TT_WIRE_F32, 2, 10, 2, 4, ROUTE_HOLES, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"two parts, bf16", 30, 8, 7, TT_WIRE_BF16, TT_WIRE_BF16, 2, 10, 3, 3, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_APART, 0, 0, 1, 0},
    {"sources and owners apart", 48, 6, 8, TT_WIRE_F32, TT_WIRE_F32, 1, 12, 2, 4, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_APART, 0, 0, 0, 0},
    {"odd ranks own", 21, 3, 8, TT_WIRE_F32, TT_WIRE_F32, 1, 12, 2, 4, ROUTE_RANDOM, TOKENS_RAGGED,
     ROLES_EVEN_OWN, 0, 0, 1, 0},
    {"one busy source", 24, 4, 20, TT_WIRE_F32, TT_WIRE_BF16, 1, 2, 2, 4, ROUTE_RANDOM,
     TOKENS_ONE_SOURCE, ROLES_ALL, 0, 0, 0, 0},
    {"three handles, sleepers, new maps", 32, 5, 8, TT_WIRE_F32, TT_WIRE_F32, 1, 20, 3, 8,
     ROUTE_RANDOM, TOKENS_RAGGED, ROLES_ALL, 0, 1, 1, 0},
    {"weights travel", 37, 3, 9, TT_WIRE_BF16, TT_WIRE_F32, 1, 11, 2, 4, ROUTE_HOLES, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 1, 1},
    {"weights travel, slot twice", 20, 4, 6, TT_WIRE_F32, TT_WIRE_BF16, 1, 13, 1, 3, ROUTE_TWICE,
     TOKENS_MOST, ROLES_ALL, 0, 0, 0, 1},
    {"weights travel to two parts", 67, 4, 7, TT_WIRE_BF16, TT_WIRE_BF16, 2, 10, 3, 4, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_APART, 0, 0, 1, 1},
    {"int8 both ways", 100, 4, 9, TT_WIRE_INT8, TT_WIRE_INT8, 1, 16, 2, 4, ROUTE_HOLES,
     TOKENS_RAGGED, ROLES_ALL, 0, 0, 0, 0},
    {"fp8 both ways, two parts", 161, 3, 7, TT_WIRE_FP8, TT_WIRE_FP8, 2, 10, 2, 3, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_ALL, 0, 0, 1, 0},
    {"int8 and odd values", 321, 3, 8, TT_WIRE_INT8, TT_WIRE_FP8, 1, 8, 1, 3, ROUTE_RANDOM,
     TOKENS_MOST, ROLES_ALL, 1, 0, 0, 0},
    {"fp8 with travelling weights", 31, 3, 9, TT_WIRE_FP8, TT_WIRE_INT8, 1, 11, 2, 4, ROUTE_HOLES,
     TOKENS_RAGGED, ROLES_ALL, 0, 0, 1, 1},
    {"one choice of two wide parts", 2049, 1, 9, TT_WIRE_F32, TT_WIRE_F32, 2, 10, 2, 3,
     ROUTE_RANDOM, TOKENS_MOST, ROLES_ALL, 0, 0, 0, 0},
    {"one choice travels", 33, 1, 9, TT_WIRE_F32, TT_WIRE_F32, 1, 16, 1, 4, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_EVEN_OWN, 1, 0, 0, 1},
};

/* Uses per handle; fewer where many ranks share few cores. With 2 ranks all splits together see
 * some thousands. */
enum { SOAK_USES = 300, SOAK_USES_CROWDED = 25 };
static const test_case soak = {"soak", 12, 2,         4,           TT_WIRE_F32,   TT_WIRE_BF16, 1,
                               10,     3,  SOAK_USES, ROUTE_HOLES, TOKENS_RAGGED, ROLES_ALL,    0,
                               0,      1,  0};

/* ---- what must be refused ---- */

static void refusals(tt_world *world)
{
    int all[TEST_MAX_RANKS];
    for (int r = 0; r < test_size; r++) {
        all[r] = r;
    }
    tt_exchange_params p = {.H = 8,
                            .K = 2,
                            .max_tokens = 4,
                            .source = all,
                            .n_sources = test_size,
                            .owner = all,
                            .n_owners = test_size};
    tt_exchange *x = NULL;
    int32_t rank[4], local[4] = {0, 1, 2, 3}, slot[16];
    float weight[16] = {0}, row[64] = {0}, y[64];
    for (int i = 0; i < 4; i++) {
        rank[i] = i % test_size;
    }
    tt_owner_map map = {4, rank, local};
    MUST(tt_exchange_create(world, &p, &x));
    CHECK(tt_exchange_prepare(x, 0, 0, slot, weight, TT_OK) == TT_ERR_STATE,
          "prepared without a map");
    local[2] = local[0];
    rank[2] = rank[0];
    CHECK(tt_exchange_set_owners(x, &map, 1) == TT_ERR_ARG, "a slot served twice");
    local[2] = 2;
    rank[2] = test_size;
    CHECK(tt_exchange_set_owners(x, &map, 1) == TT_ERR_ARG, "a rank outside the world");
    rank[2] = 2 % test_size;
    MUST(tt_exchange_set_owners(x, &map, 1));
    for (int i = 0; i < 16; i++) {
        slot[i] = i % 4;
    }
    CHECK(tt_exchange_prepare(x, 0, 5, slot, weight, TT_OK) == TT_ERR_ARG, "T above max_tokens");
    slot[3] = 4;
    CHECK(tt_exchange_prepare(x, 0, 4, slot, weight, TT_OK) == TT_ERR_ARG, "slot out of range");
    slot[3] = -2;
    CHECK(tt_exchange_prepare(x, 0, 4, slot, weight, TT_OK) == TT_ERR_ARG, "slot -2");
    CHECK(strstr(tt_status_message(), "token 1") != NULL, "names the token: %s",
          tt_status_message());
    CHECK(tt_exchange_dispatch_begin(x, 0, row, 8, NULL) == TT_ERR_STATE,
          "dispatch before prepare");
    CHECK(tt_exchange_prepare(x, 3, 0, slot, weight, TT_OK) == TT_ERR_ARG, "handle out of range");
    /* The handle still works. */
    slot[3] = 1;
    MUST(tt_exchange_prepare(x, 0, 4, slot, weight, TT_OK));
    MUST(tt_exchange_dispatch_begin(x, 0, row, 8, NULL));
    tt_exchange_state state = {0};
    tt_exchange_rows rows;
    while (!state.all_arrived) {
        MUST(tt_exchange_poll(x, 0, &state));
        while (tt_exchange_next_ready(x, 0, &rows)) {
            for (int32_t i = 0; i < rows.n; i++) {
                tt_exchange_put_result(x, 0, &rows, i, row);
            }
            MUST(tt_exchange_push(x, 0, &rows));
            CHECK(rows.n > 0, "an empty group");
        }
    }
    MUST(tt_exchange_combine_end(x, 0, y, 8, NULL));
    tt_exchange_destroy(&x);

    /* Another H on the last rank: all fail, and the field is named. */
    if (test_size > 1) {
        p.H = test_rank == test_size - 1 ? 9 : 8;
        CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_MISMATCH, "H differs");
        CHECK(strstr(tt_status_message(), "row width H") != NULL, "%s", tt_status_message());
        p.H = 8;
    }
    setenv("TUTTI_TEST_SHM_BYTES", "1000", 1);
    CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_NOMEM, "no room in shared memory");
    CHECK(strstr(tt_status_message(), "1000") != NULL, "%s", tt_status_message());
    unsetenv("TUTTI_TEST_SHM_BYTES");
    p.chunk_tokens = -1;
    CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_ARG, "chunks of -1 tokens");
    p.chunk_tokens = 1;
    p.max_tokens = TT_EXCHANGE_MAX_CHUNKS;
    CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_ARG, "too many chunks");
    p.max_tokens = 4;
    p.chunk_tokens = test_rank == test_size - 1 ? 2 : 3;
    CHECK(test_size == 1 || (tt_exchange_create(world, &p, &x) == TT_ERR_MISMATCH &&
                             strstr(tt_status_message(), "chunk_tokens")),
          "chunks differ: %s", tt_status_message());
    p.chunk_tokens = 0;
    p.max_tokens = (int64_t)1 << 31;
    CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_ARG, "2^32 entries");

    /* Sizes are 64 bits wide: 7168 f32 columns, 8 choices, 65536 tokens are above 2^31 bytes many
     * times over. */
    int nodes[2] = {0, 1}, two[2] = {0, 1};
    tt_exchange_params big = {.H = 7168,
                              .K = 8,
                              .max_tokens = 65536,
                              .source = two,
                              .n_sources = 2,
                              .owner = two,
                              .n_owners = 2};
    uint64_t rows_bytes = (uint64_t)65536 * 7168 * 4,
             bytes = tt_exchange_memory_bytes(&big, nodes, 2, 0);
    CHECK(bytes > 3 * (rows_bytes + 2 * 8 * rows_bytes), "%llu bytes", (unsigned long long)bytes);
}

static tt_world *make_world(int split, tt_progress progress, const char *piece, int64_t delay_ns)
{
    int fake[TEST_MAX_RANKS];
    tt_world_params p = {.progress = progress,
                         .deadline_s = 60,
                         .n_cores = 1,
                         .comm_cpu = -1,
                         .fake_node = fake,
                         .delay_ns = delay_ns};
    tt_world *world = NULL;
    test_split(split, test_size, fake);
    if (piece) {
        setenv("TUTTI_TEST_PIECE_BYTES", piece, 1);
    }
    MUST(tt_world_create(MPI_COMM_WORLD, &p, &world));
    unsetenv("TUTTI_TEST_PIECE_BYTES");
    return world;
}

/* Rank 1 has no memory for its messages: all ranks get that, nobody hangs, and the world is
 * whole. */
static void one_rank_without_memory(tt_world *world)
{
    enum { MANY_TOKENS = 512, WIDE = 1 << 16, SLACK_BYTES = 1 << 26 };
    int all[TEST_MAX_RANKS];
    tt_exchange *x = NULL;
    for (int r = 0; r < test_size; r++) {
        all[r] = r;
    }
    tt_exchange_params p = {.H = WIDE,
                            .K = 1,
                            .max_tokens = MANY_TOKENS,
                            .n_handles = 1,
                            .source = all,
                            .n_sources = test_size,
                            .owner = all,
                            .n_owners = test_size};
    CHECK(test_rank != 1 || test_limit_memory(SLACK_BYTES), "no limit set");
    tt_status st = tt_exchange_create(world, &p, &x);
    if (test_rank == 1) {
        test_limit_memory(-1);
    }
    CHECK(st == TT_ERR_NOMEM && strstr(tt_status_message(), "rank 1 ("), "%s: %s",
          tt_status_name(st), tt_status_message());
    CHECK_OK(tt_world_agree(world, TT_OK));
}

static int64_t resident_bytes(void)
{
    long long total = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%lld %lld", &total, &resident) == 2, "no /proc/self/statm");
    if (statm) {
        fclose(statm);
    }
    return resident * sysconf(_SC_PAGESIZE);
}

/* So many uses of random sizes on three handles, over the split, in all wires and chunks: all
 * right, and no memory is gained once a tenth of them has passed. */
static void long_soak(int split, int n_uses)
{
    enum { PARTS = 10, GROWTH = 1 << 20 };
    test_case c = soak;
    int64_t early = 0;
    c.n_uses = n_uses / PARTS / c.n_handles + 1;
    tt_world *world = make_world(split, TT_PROGRESS_POLLED, NULL, 0);
    for (int part = 0; part < PARTS; part++) {
        const uint64_t dice = test_mix((uint64_t)part);
        c.wire = (tt_wire)(dice % TT_WIRE_COUNT);
        c.wire_back = (tt_wire)(dice / 8 % TT_WIRE_COUNT);
        run_route(world, &c, part % 4 < 2 ? TT_ROUTE_NODE : TT_ROUTE_DIRECT,
                  part % 2 > 0 ? TT_COMBINE_REDUCED : TT_COMBINE_EXACT, dice / 64);
        early = part == 0 ? resident_bytes() : early;
    }
    const int64_t growth = resident_bytes() - early;
    CHECK(growth < GROWTH, "split %d: %lld bytes more in memory after %d uses", split,
          (long long)growth, n_uses);
    tt_world_destroy(&world);
    if (test_rank == 0) {
        printf("# split %d: %d uses, %lld bytes grown\n", split, c.n_uses * c.n_handles * PARTS,
               (long long)growth);
    }
}

/* test_exchange --soak N: N uses on each split into nodes, and nothing else. */
int main(int argc, char **argv)
{
    static const tt_progress modes[TEST_SPLITS] = {TT_PROGRESS_POLLED, TT_PROGRESS_POLLED,
                                                   TT_PROGRESS_CALLER, TT_PROGRESS_THREAD,
                                                   TT_PROGRESS_CALLER};
    test_begin(&argc, &argv);
    ttk_init(tt_cpu_flags());
    int n_splits = test_size == 1 ? 1 : TEST_SPLITS;
    if (argc == 3 && strcmp(argv[1], "--soak") == 0) {
        for (int split = 0; split < n_splits; split++) {
            long_soak(split, atoi(argv[2]));
        }
        return test_end("exchange");
    }
    for (int split = 0; split < n_splits; split++) {
        /* Messages in pieces of 512 bytes for the odd splits. */
        tt_world *world = make_world(split, modes[split], split % 2 ? "512" : NULL, 0);
        if (split < 2) {
            refusals(world);
        }
        if (test_size > 1 && tt_world_n_nodes(world) == test_size) { /* all are far */
            one_rank_without_memory(world);
        }
        bool is_crowded = test_size >= CROWDED;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            if (!is_crowded || (i + (size_t)split) % 2 == 0) {
                run_case(world, &cases[i], (uint64_t)split * 100 + i);
            }
        }
        test_case long_run = soak;
        long_run.n_uses = is_crowded ? SOAK_USES_CROWDED : SOAK_USES;
        run_case(world, &long_run, 77);
        tt_world_destroy(&world);
    }
    /* Injected delay: still right, and no sooner than the delay says (two hops). */
    for (int split = 0; split < 2 && test_size > 1; split++) {
        tt_world *world = make_world(split, TT_PROGRESS_POLLED, NULL, 5000000);
        double begin = MPI_Wtime();
        run_case(world, &cases[0], 5);
        double spent = MPI_Wtime() - begin;
        CHECK(spent > 2 * 0.005 * cases[0].n_uses, "%g s with a delay of 5 ms", spent);
        tt_world_destroy(&world);
    }
    return test_end("exchange");
}
