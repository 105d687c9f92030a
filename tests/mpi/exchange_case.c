/* exchange_case.c - the uses of a case: handles begun, served and ended in an order of chance that
 * differs between ranks, and every y held against what it must be. */
#include "exchange_case.h"
#include <math.h>
#include <unistd.h>
#include "ttk.h"

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

void run_route(tt_world *world, const test_case *c, tt_route route, tt_combine combine,
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

void run_case(tt_world *world, const test_case *c, uint64_t seed)
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
