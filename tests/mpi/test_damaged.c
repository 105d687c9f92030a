/* test_damaged.c - messages that are not what they should be: each count, place and index that
 * comes from another node is checked before it is used, and what was wrong is named on all ranks.
 * Rank 0, on a node of its own, spoils its plan between prepare and dispatch, or the owners what
 * they answer; on one node with all, it spoils what it says of its rows. */
/* TEST ranks: 3 */
/* TEST timeout: 60 */
#include "mpi_test.h"
#include "exchange_internal.h"
#include "tutti/cpu.h"
#include "ttk.h"

enum { H = 8, K = 2, T = 4, RANKS = 3, SLOTS = 2 * RANKS, CHUNK = 3 };

/* What rank 0 has planned for its lane to the other node: its owners, in order of position, are
 * ranks 1 and 2. */
typedef struct plan {
    tti_handle *h;
    tti_lane *lane;
    tti_share *share; /* share[RANKS] */
    tti_group *group; /* of the lane */
    int32_t *index;
} plan;
typedef void damage_fn(plan *p);

static void wrong_use(plan *p)
{
    p->h->use += 7;
}
static void wrong_epoch(plan *p)
{
    p->h->epoch++;
}
static void one_row_less(plan *p)
{
    p->lane->n_rows--;
}
static void one_entry_less(plan *p)
{
    p->lane->n_entries--;
}
static void one_group_less(plan *p)
{
    p->lane->n_groups--;
}
static void long_results(plan *p)
{
    p->lane->result_bytes = p->h->x->layout.result_bytes + TTI_LINE;
}
static void short_results(plan *p)
{
    p->lane->result_bytes = 1;
}
static void one_owner(plan *p)
{
    p->lane->n_owners = 1;
}
static void place_before(plan *p)
{
    p->share[1].back_begin = 0;
}
static void place_behind(plan *p)
{
    p->share[2].back_begin = INT64_C(1) << 40;
}
static void entries_of_others(plan *p)
{
    p->share[1].n_entries++;
    p->share[2].n_entries--;
}
static void negative_entries(plan *p)
{
    p->share[1].n_entries = -1;
}
static void unknown_slot(plan *p)
{
    p->group[0].slot = SLOTS;
}
static void negative_slot(plan *p)
{
    p->group[0].slot = -1;
}
static void empty_group(plan *p)
{
    p->group[0].n = 0;
}
static void row_behind(plan *p)
{
    p->index[0] = T * K;
}
static void negative_row(plan *p)
{
    p->index[0] = -1;
}

static const struct {
    const char *name, *text; /* text: of the error */
    damage_fn *damage;       /* NULL: the rail spoils its answer */
} cases[] = {
    {"another use", "use of the message from rank 0", wrong_use},
    {"another owner map", "owner map", wrong_epoch},
    {"fewer rows", "of the message from rank 0", one_row_less},
    {"fewer entries", "of the message from rank 0", one_entry_less},
    {"fewer groups", "of the message from rank 0", one_group_less},
    {"results too long", "length of its results of the message from rank 0", long_results},
    {"results too short", "length of its results of the message from rank 0", short_results},
    {"an owner left out", "number of owners of the message from rank 0", one_owner},
    {"results over the header", "place of results of the message from rank 0", place_before},
    {"results behind the end", "place of results of the message from rank 0", place_behind},
    {"entries given to another owner", "of the message from rank 0", entries_of_others},
    {"fewer than no entries", "part of an owner of the message from rank 0", negative_entries},
    {"a slot that nobody has", "slot of a group of the message from rank 0", unknown_slot},
    {"slot -1", "slot of a group of the message from rank 0", negative_slot},
    {"an empty group", "of the message from rank 0", empty_group},
    {"a row that is not there", "row of an entry of the message from rank 0", row_behind},
    {"row -1", "row of an entry of the message from rank 0", negative_row},
    {"results of other entries", "number of results of the message from rank ", NULL},
};

/* What rank 0 says of its rows to the ranks of its own node. */
typedef void pub_damage_fn(tti_pub *pub, int most_chunks);

static void another_map(tti_pub *pub, int most_chunks)
{
    (void)most_chunks;
    pub->epoch++;
}
static void too_many_chunks(tti_pub *pub, int most_chunks)
{
    pub->n_chunks = most_chunks + 1;
}
static void no_chunks(tti_pub *pub, int most_chunks)
{
    (void)most_chunks;
    pub->n_chunks = 0;
}

static const struct {
    const char *name, *text;
    pub_damage_fn *damage;
} near_cases[] = {
    {"another owner map", " has owner map 2, rank ", another_map},
    {"more chunks than there are", "rank 0 sends ", too_many_chunks},
    {"no chunks", "rank 0 sends 0 chunks", no_chunks},
};

static const int one_node[RANKS] = {0, 0, 0}, two_nodes[RANKS] = {0, 1, 1};

static tt_world *make_world(const int *node)
{
    tt_world *world = NULL;
    const tt_world_params params = {
        .progress = TT_PROGRESS_POLLED, .deadline_s = 20, .comm_cpu = -1, .fake_node = node};
    MUST(tt_world_create(MPI_COMM_WORLD, &params, &world));
    return world;
}

static tt_exchange *make_exchange(tt_world *world, int64_t chunk_tokens)
{
    static const int all[RANKS] = {0, 1, 2};
    static const int32_t rank[SLOTS] = {0, 1, 2, 0, 1, 2}, local[SLOTS] = {0, 0, 0, 1, 1, 1};
    const tt_exchange_params params = {.H = H,
                                       .K = K,
                                       .max_tokens = T,
                                       .n_handles = 1,
                                       .source = all,
                                       .n_sources = RANKS,
                                       .owner = all,
                                       .n_owners = RANKS,
                                       .route = TT_ROUTE_NODE,
                                       .chunk_tokens = chunk_tokens};
    tt_exchange *x = NULL;
    MUST(tt_exchange_create(world, &params, &x));
    MUST(tt_exchange_set_owners(x, &(tt_owner_map){SLOTS, rank, local}, 1));
    return x;
}

static void spoil(tt_exchange *x, damage_fn *damage)
{
    tti_handle *h = &x->handle[0];
    unsigned char *part = tti_window_part(x, 0, 0);
    tti_share *share = (tti_share *)(part + x->layout.share);
    plan p = {h, &h->chunk[0].lane[0], share,
              (tti_group *)(part + x->layout.group) + share[1].group_begin,
              (int32_t *)(part + x->layout.index) + share[1].index_begin};
    damage(&p);
}

/* Until the use is over, or fails. With `spoils` the owner that takes rank 0's message in changes
 * what it will say of it. */
static tt_status use(tt_exchange *x, damage_fn *damage, pub_damage_fn *near_damage, bool spoils)
{
    float row[T * H] = {0}, weight[T * K] = {0}, y[T * H];
    int32_t slot[T * K];
    for (int i = 0; i < T * K; i++) {
        slot[i] = i % SLOTS;
    }
    TT_TRY(tt_exchange_prepare(x, 0, T, slot, weight, TT_OK));
    if (damage && test_rank == 0) {
        spoil(x, damage);
    }
    if (near_damage && test_rank > 0) {
        MPI_Barrier(MPI_COMM_WORLD); /* until it is damaged */
    }
    TT_TRY(tt_exchange_dispatch_begin(x, 0, row, H, NULL));
    if (near_damage && test_rank == 0) {
        near_damage((tti_pub *)tti_window_part(x, 0, 0), x->n_chunks);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    tt_exchange_state state = {0};
    tt_exchange_rows rows;
    while (!state.all_arrived || state.has_ready) {
        TT_TRY(tt_exchange_poll(x, 0, &state));
        if (!tt_exchange_next_ready(x, 0, &rows)) {
            continue;
        }
        if (spoils && rows.source_id == 0 && x->paths.rail[0] == x->owner_id && x->owner_id >= 0) {
            unsigned char *intake = tti_intake_part(x, 0, rows.chunk);
            /* has read it once it has returned */
            const int other = 1 - (x->paths.position[x->owner_id] - x->paths.mate_first);
            while (atomic_load(&tti_intake_returns(intake)[other].seq) != x->handle[0].use) {
                tt_world_progress(x->world);
            }
            ((tti_wire_header *)(intake + x->layout.message))->n_entries++;
            spoils = false;
        }
        for (int32_t i = 0; i < rows.n; i++) {
            tt_exchange_put_result(x, 0, &rows, i, row);
        }
        TT_TRY(tt_exchange_push(x, 0, &rows));
    }
    TT_TRY(tt_exchange_combine_end(x, 0, y, H, NULL));
    return tt_world_barrier(x->world); /* who was done first learns here */
}

/* A whole use, then a damaged one, whose error has the text on all ranks. */
static void run_case(const int *node, int64_t chunk_tokens, const char *name, const char *text,
                     damage_fn *damage, pub_damage_fn *near_damage)
{
    tt_world *world = make_world(node);
    tt_exchange *x = make_exchange(world, chunk_tokens);
    CHECK_OK(use(x, NULL, NULL, false));
    MPI_Barrier(MPI_COMM_WORLD); /* who is still in that use would learn of the failure there */
    const tt_status st = use(x, damage, near_damage, !damage && !near_damage);
    CHECK((st == TT_ERR_PROTOCOL || st == TT_ERR_PEER) && strstr(tt_status_message(), text),
          "%s: %s: '%s' is not '...%s...'", name, tt_status_name(st),
          st == TT_OK ? "" : tt_status_message(), text);
    tt_exchange_destroy(&x);
    tt_world_destroy(&world);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    ttk_init(tt_cpu_flags());
    test_needs_ranks(RANKS);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_case(two_nodes, i % 2 ? CHUNK : 0, cases[i].name, cases[i].text, cases[i].damage, NULL);
    }
    for (size_t i = 0; i < sizeof(near_cases) / sizeof(near_cases[0]); i++) {
        run_case(one_node, i % 2 ? CHUNK : 0, near_cases[i].name, near_cases[i].text, NULL,
                 near_cases[i].damage);
    }
    return test_end("damaged messages");
}
