/* test_damaged_collectives.c - what votes, gathers and bulk messages must notice: ranks that are at
 * different calls, and heads of messages that are not what they should be. All ranks get told. */
/* TEST ranks: 3 */
/* TEST timeout: 60 */
#include "mpi_test.h"
#include "gather_internal.h"
#include "tutti/cpu.h"
#include "ttk.h"

enum { RANKS = 3, MOST_FLOATS = 8, N_FLOATS = 4, ONE_NODE = 0, A_NODE_EACH = 4 };

typedef void damage_fn(tti_gather_head *h, int *n_bytes);

/* Spoils the next message of a gather, once. */
static damage_fn *damage;

int MPI_Isend(const void *data, int n_bytes, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    tti_gather_head *h = (tti_gather_head *)(uintptr_t)data;
    if (damage && (size_t)n_bytes >= sizeof(*h) && h->magic == TTI_GATHER_MAGIC) {
        damage_fn *once = damage;
        damage = NULL;
        once(h, &n_bytes);
    }
    return PMPI_Isend(data, n_bytes, type, peer, tag, comm, request);
}

static void other_magic(tti_gather_head *h, int *n_bytes)
{
    (void)n_bytes;
    h->magic++;
}
static void too_many_floats(tti_gather_head *h, int *n_bytes)
{
    (void)n_bytes;
    h->n_floats = MOST_FLOATS + 1;
}
static void negative_floats(tti_gather_head *h, int *n_bytes)
{
    (void)n_bytes;
    h->n_floats = -1;
}
static void floats_that_did_not_come(tti_gather_head *h, int *n_bytes)
{
    (void)n_bytes;
    h->n_floats++;
}
static void other_rank(tti_gather_head *h, int *n_bytes)
{
    (void)n_bytes;
    h->rank = 2;
}
static void cut_in_its_head(tti_gather_head *h, int *n_bytes)
{
    (void)h;
    *n_bytes = 16;
}
static void other_use(tti_gather_head *h, int *n_bytes)
{
    (void)n_bytes;
    h->seq += 7;
}

/* Who still makes something would learn of the failure there; MPI's own barrier tells nothing. */
static void all_are_here(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static tt_world *make_world(int split)
{
    tt_world *world = test_world(split, TT_PROGRESS_POLLED, 20);
    all_are_here();
    return world;
}

/* n_of_first: floats of rank 0, in this rank's belief. */
static tt_status gather(tt_world *world, int64_t n_of_first)
{
    tt_gather *g = NULL;
    float full[RANKS * MOST_FLOATS] = {0};
    tt_rect rect[RANKS];
    MUST(tt_gather_create(world, test_all_ranks(), RANKS, MOST_FLOATS, &g));
    all_are_here();
    for (int m = 0; m < RANKS; m++) {
        rect[m] = (tt_rect){0, 1, (int64_t)m * MOST_FLOATS, m == 0 ? n_of_first : N_FLOATS};
    }
    tt_status st = tt_gather_exec(g, full, (int64_t)RANKS * MOST_FLOATS, rect, TT_GATHER_ALL, NULL);
    st = st == TT_OK ? tt_world_barrier(world) : st; /* who was done first learns here */
    tt_gather_destroy(&g);
    return st;
}

/* The message must be that of the rank that noticed, on all ranks. */
static void expect_told(tt_world **world, const char *what, tt_status st, const char *text)
{
    CHECK((st == TT_ERR_PROTOCOL || st == TT_ERR_PEER) && strstr(tt_status_message(), text),
          "%s: %s: '%s' is not '...%s...'", what, tt_status_name(st),
          st == TT_OK ? "" : tt_status_message(), text);
    CHECK(tt_world_is_broken(*world), "%s: the world goes on", what);
    tt_world_destroy(world);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void heads_of_gathers_are_checked(void)
{
    static const char part[] = " is no part of a gather of 8 floats";
    static const struct {
        const char *name, *text;
        damage_fn *damage;
    } cases[] = {{"another magic", part, other_magic},
                 {"more floats than planned", part, too_many_floats},
                 {"fewer than no floats", part, negative_floats},
                 {"floats that did not come", part, floats_that_did_not_come},
                 {"another rank's", part, other_rank},
                 {"cut in its head", part, cut_in_its_head},
                 {"another use", "in its gather 8", other_use}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_world *world = make_world(A_NODE_EACH);
        damage = test_rank == 0 ? cases[i].damage : NULL;
        const tt_status st = gather(world, N_FLOATS);
        CHECK(!damage, "%s: no message was spoilt", cases[i].name);
        expect_told(&world, cases[i].name, st, cases[i].text);
    }
}

/* Rank 0 believes that it has more to give than the others do. */
static void sizes_of_gathers_are_checked(int split)
{
    tt_world *world = make_world(split);
    const tt_status st = gather(world, test_rank == 0 ? N_FLOATS + 1 : N_FLOATS);
    expect_told(&world, "gather", st, "wants 4 floats of rank 0 (");
}

static void lengths_of_votes_are_checked(int split, const char *text)
{
    tt_world *world = make_world(split);
    int64_t values[2] = {0, 0};
    tt_status st = tt_vote_begin(world, values, test_rank == 0 ? 2 : 1);
    st = st == TT_OK ? tt_vote_end(world, values) : st;
    st = st == TT_OK ? tt_world_barrier(world) : st;
    expect_told(&world, "vote", st, text);
}

static void lengths_of_bulk_are_checked(void)
{
    enum { SENT = 10, WANTED = 20 };
    tt_world *world = make_world(A_NODE_EACH);
    unsigned char data[WANTED] = {0};
    tt_status st = test_rank == 0   ? tt_world_send(world, 1, 3, data, SENT)
                   : test_rank == 1 ? tt_world_recv(world, 0, 3, data, WANTED)
                                    : TT_OK;
    st = st == TT_OK ? tt_world_barrier(world) : st;
    expect_told(&world, "bulk", st, "expected 20 bytes from rank 0 (");
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    ttk_init(tt_cpu_flags());
    test_needs_ranks(RANKS);
    heads_of_gathers_are_checked();
    sizes_of_gathers_are_checked(ONE_NODE);
    sizes_of_gathers_are_checked(A_NODE_EACH);
    lengths_of_votes_are_checked(ONE_NODE, " numbers on rank ");
    lengths_of_votes_are_checked(A_NODE_EACH, " sent vote 1 with ");
    lengths_of_bulk_are_checked();
    return test_end("damaged collectives");
}
