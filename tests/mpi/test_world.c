/* test_world.c - who is where, agreement, small collectives, bulk transfer, votes, the launch
 * check. */
/* TEST ranks: 1 2 3 4 5 8 */
/* TEST timeout: 60 */
#include "mpi_test.h"

/* ---- nodes ---- */

static void nodes_are_found(void)
{
    for (int split = 0; split < TEST_SPLITS; split++) {
        int fake[TEST_MAX_RANKS];
        const char *name = test_split(split, test_size, fake);
        tt_world_params p = {.progress = TT_PROGRESS_POLLED, .comm_cpu = -1, .fake_node = fake};
        tt_world *world = NULL;
        MUST(tt_world_create(MPI_COMM_WORLD, &p, &world));
        int count = 0, seen = 0;
        for (int r = 0; r < test_size; r++) {
            int node = tt_world_node(world, r), rank_in = 0, size_of = 0;
            CHECK(node <= seen, "%s: nodes are numbered by their lowest rank", name);
            seen = node == seen ? seen + 1 : seen;
            for (int s = 0; s < test_size; s++) {
                CHECK((fake[s] == fake[r]) == (tt_world_node(world, s) == node),
                      "%s: ranks %d and %d", name, r, s);
                size_of += fake[s] == fake[r];
                rank_in += fake[s] == fake[r] && s < r;
            }
            CHECK(tt_world_node_rank(world, r) == rank_in &&
                      tt_world_node_size(world, node) == size_of,
                  "%s: rank %d", name, r);
            CHECK(tt_world_host(world, r)[0] != 0, "rank %d has no host", r);
            count = seen;
        }
        CHECK(tt_world_n_nodes(world) == count, "%s: %d nodes, not %d", name,
              tt_world_n_nodes(world), count);
        tt_world_destroy(&world);
        CHECK(world == NULL, "destroy clears");
    }
}

/* The variable says the same: a list of counts, or of node numbers. */
static void fake_nodes_from_environment(void)
{
    tt_world *world = NULL;
    char text[64];
    if (test_size >= 3) {
        snprintf(text, sizeof(text), "1,%d", test_size - 1);
        setenv("TUTTI_FAKE_NODES", text, 1);
        MUST(tt_world_create(MPI_COMM_WORLD, NULL, &world));
        CHECK(tt_world_n_nodes(world) == 2 && tt_world_node_size(world, 0) == 1, "%s: counts",
              text);
        tt_world_destroy(&world);
    }
    setenv("TUTTI_FAKE_NODES", "1,x", 1);
    CHECK(tt_world_create(MPI_COMM_WORLD, NULL, &world) == TT_ERR_USAGE, "a list with a letter");
    snprintf(text, sizeof(text), "%d", test_size + 1);
    setenv("TUTTI_FAKE_NODES", test_size == 1 ? "1,1" : text, 1);
    CHECK(tt_world_create(MPI_COMM_WORLD, NULL, &world) == TT_ERR_USAGE, "a wrong sum");
    CHECK(strstr(tt_status_message(), "TUTTI_FAKE_NODES") != NULL, "%s", tt_status_message());
    unsetenv("TUTTI_FAKE_NODES");
}

/* Fortran's handles stand for the same communicators. */
static void world_of_a_fortran_handle(void)
{
    tt_world *world = NULL;
    MUST(tt_world_create_fortran(MPI_Comm_c2f(MPI_COMM_WORLD), NULL, &world));
    CHECK(tt_world_rank(world) == test_rank && tt_world_size(world) == test_size, "all ranks");
    tt_world_destroy(&world);
    MUST(tt_world_create_fortran(MPI_Comm_c2f(MPI_COMM_SELF), NULL, &world));
    CHECK(tt_world_rank(world) == 0 && tt_world_size(world) == 1, "a rank alone");
    tt_world_destroy(&world);
}

/* A failure of one rank alone while the world is made: all get its text. */
static void lone_failure_at_create(void)
{
    tt_world *world = NULL;
    int last = test_size - 1;
    tt_world_params p = {.comm_cpu = -1, .deadline_s = test_rank == last ? -1.0 : 0.0};
    CHECK(tt_world_create(MPI_COMM_WORLD, &p, &world) == TT_ERR_ARG, "a negative deadline");
    char text[64];
    snprintf(text, sizeof(text), "rank %d: deadline", last);
    CHECK(test_size == 1 || strncmp(tt_status_message(), text, strlen(text)) == 0, "%s",
          tt_status_message());
}

/* ---- agreement ---- */

static void agreement(tt_world *world)
{
    int last = test_size - 1;
    CHECK_OK(tt_world_agree(world, TT_OK));
    /* One rank fails: all get its status and its message. */
    tt_status mine = test_rank == last ? TT_FAIL(TT_ERR_NOMEM, "no memory for 17 bytes") : TT_OK;
    CHECK(tt_world_agree(world, mine) == TT_ERR_NOMEM, "a rank failed");
    CHECK(strstr(tt_status_message(), "no memory for 17 bytes") != NULL, "%s", tt_status_message());
    char name[64];
    snprintf(name, sizeof(name), "rank %d (", last);
    CHECK(test_size == 1 || strncmp(tt_status_message(), name, strlen(name)) == 0, "%s",
          tt_status_message());
    /* The worst wins, the lowest rank that has it speaks. */
    mine = test_rank == 0 ? TT_FAIL(TT_ERR_ARG, "mild")
                          : TT_FAIL(TT_ERR_IO, "bad on rank %d", test_rank);
    tt_status want = test_size == 1 ? TT_ERR_ARG : TT_ERR_IO;
    CHECK(tt_world_agree(world, mine) == want, "the worst of all");
    CHECK(test_size == 1 || strstr(tt_status_message(), "rank 1 (") == tt_status_message(), "%s",
          tt_status_message());
    /* All alike: no name. */
    CHECK(tt_world_agree(world, TT_FAIL(TT_ERR_FILE, "no such file")) == TT_ERR_FILE, "all failed");
    CHECK(strcmp(tt_status_message(), "no such file") == 0, "%s", tt_status_message());
    /* The world is as whole as before. */
    CHECK(!tt_world_is_broken(world), "an agreed error breaks nothing");
    CHECK_OK(tt_world_agree(world, TT_OK));
}

static void equality(tt_world *world)
{
    int32_t data[3] = {1, 2, 3};
    CHECK_OK(tt_world_check_equal(world, "numbers", data, sizeof(data)));
    CHECK_OK(tt_world_check_equal(world, "nothing", NULL, 0));
    if (test_size > 1) {
        data[1] = test_rank == 1 ? 5 : 2;
        CHECK(tt_world_check_equal(world, "the placement", data, sizeof(data)) == TT_ERR_MISMATCH,
              "rank 1 differs");
        CHECK(strstr(tt_status_message(), "the placement") &&
                  strstr(tt_status_message(), "rank 1 (") &&
                  strstr(tt_status_message(), "rank 0 ("),
              "%s", tt_status_message());
        data[1] = 2;
        size_t bytes = test_rank == 1 ? 8 : 12;
        CHECK(tt_world_check_equal(world, "lengths", data, bytes) == TT_ERR_MISMATCH,
              "rank 1 is shorter");
    }
}

/* ---- collectives ---- */

static void collectives(tt_world *world)
{
    enum { N = 1000 };
    unsigned char data[N], all[N * TEST_MAX_RANKS];
    int root = test_size / 2;
    for (int i = 0; i < N; i++) {
        data[i] = (unsigned char)(test_rank == root ? i * 7 : 0);
    }
    CHECK_OK(tt_world_bcast(world, data, N, root));
    for (int i = 0; i < N; i++) {
        CHECK(data[i] == (unsigned char)(i * 7), "broadcast at %d", i);
    }
    CHECK_OK(tt_world_bcast(world, data, 0, 0));
    CHECK(tt_world_bcast(world, data, N, test_size) == TT_ERR_ARG, "no such root");
    for (int i = 0; i < N; i++) {
        data[i] = (unsigned char)(test_rank + i);
    }
    CHECK_OK(tt_world_allgather(world, data, N, all));
    for (int i = 0; i < N * test_size; i++) {
        CHECK(all[i] == (unsigned char)(i / N + i % N), "all-gather at %d", i);
    }
    int64_t values[3] = {test_rank, -test_rank, INT64_MIN + test_rank};
    CHECK_OK(tt_world_max_i64(world, values, 3));
    CHECK(values[0] == test_size - 1 && values[1] == 0 && values[2] == INT64_MIN + test_size - 1,
          "maximum");
    CHECK_OK(tt_world_barrier(world));
}

static void bulk(tt_world *world)
{
    enum { N = 5000 };
    static unsigned char out[N], in[N];
    int right = (test_rank + 1) % test_size, left = (test_rank + test_size - 1) % test_size;
    CHECK(tt_world_send(world, test_rank, 0, out, 1) == TT_ERR_ARG, "to myself");
    if (test_size == 1) {
        return;
    }
    for (int i = 0; i < N; i++) {
        out[i] = (unsigned char)(test_rank * 3 + i);
    }
    for (size_t bytes = 0; bytes <= N;
         bytes += 2500) { /* even ranks first, so that long messages meet a receiver */
        bool first = test_rank % 2 == 0 && !(test_size % 2 == 1 && test_rank == test_size - 1);
        for (int step = 0; step < 2; step++) {
            if ((step == 0) == first) {
                CHECK_OK(tt_world_send(world, right, 9, out, bytes));
            } else {
                CHECK_OK(tt_world_recv(world, left, 9, in, bytes));
            }
        }
        for (size_t i = 0; i < bytes; i++) {
            CHECK(in[i] == (unsigned char)((unsigned)left * 3u + (unsigned)i), "bulk at %d",
                  (int)i);
        }
    }
}

static void votes(tt_world *world)
{
    uint64_t dice = (uint64_t)test_rank + 99;
    for (int64_t v = 0; v < 300; v++) {
        int n = (int)(v % (TT_VOTE_MAX + 1));
        int64_t values[TT_VOTE_MAX], out[TT_VOTE_MAX];
        for (int i = 0; i < n; i++) {
            values[i] = (int64_t)(test_mix((uint64_t)(v * 1000 + i * 50 + test_rank)) % 1000) - 500;
        }
        CHECK_OK(tt_vote_begin(world, values, n));
        CHECK(tt_vote_begin(world, values, n) == TT_ERR_STATE, "a second vote");
        for (int64_t turns = test_below(&dice, 20); turns > 0; turns--) {
            tt_world_progress(world);
        }
        MUST(tt_vote_end(world, out));
        for (int i = 0; i < n; i++) {
            int64_t want = INT64_MIN;
            for (int r = 0; r < test_size; r++) {
                int64_t x = (int64_t)(test_mix((uint64_t)(v * 1000 + i * 50 + r)) % 1000) - 500;
                want = x > want ? x : want;
            }
            CHECK(out[i] == want, "vote %d, value %d: %lld, not %lld", (int)v, i, (long long)out[i],
                  (long long)want);
        }
    }
    int64_t none = 0;
    CHECK(tt_vote_end(world, &none) == TT_ERR_STATE, "no vote to end");
    CHECK(tt_vote_begin(world, &none, TT_VOTE_MAX + 1) == TT_ERR_ARG, "too many");
}

/* ---- launch ---- */

static void launch_check(void)
{
    static const char *const names[] = {"SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE",
                                        "SLURM_NTASKS"};
    char *saved[4] = {NULL, NULL, NULL, NULL};
    for (int i = 0; i < 4; i++) {
        saved[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
        unsetenv(names[i]);
    }
    CHECK_OK(tt_launch_check(1));
    for (int i = 0; i < 3; i++) {
        setenv(names[i], "4", 1);
        CHECK(tt_launch_check(1) == TT_ERR_USAGE, "%s=4, MPI sees 1", names[i]);
        CHECK(strstr(tt_status_message(), "4 processes") &&
                  strstr(tt_status_message(), "world of 1") &&
                  strstr(tt_status_message(), names[i]),
              "%s", tt_status_message());
        CHECK_OK(tt_launch_check(4));
        CHECK_OK(tt_launch_check(8));
        setenv(names[i], "many", 1);
        CHECK_OK(tt_launch_check(1));
        unsetenv(names[i]);
    }
    setenv("SLURM_NTASKS", "4", 1); /* inherited by a shell inside an allocation: proves nothing */
    CHECK_OK(tt_launch_check(1));
    /* A job that mpirun made is whole, whatever step its daemons run in. */
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("SLURM_STEP_NUM_TASKS", "16", 1);
    CHECK_OK(tt_launch_check(2));
    unsetenv("OMPI_COMM_WORLD_SIZE");
    CHECK(tt_launch_check(2) == TT_ERR_USAGE, "two of sixteen");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    CHECK(tt_launch_is_whole(), "a job of one in a step of sixteen");
    setenv("PMI_SIZE", "2", 1);
    CHECK(!tt_launch_is_whole(), "one of two");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMI_SIZE");
    CHECK(!tt_launch_is_whole(), "nobody says so");
    setenv("PMI_SIZE", "2", 1); /* MPICH's */
    CHECK_OK(tt_launch_check(2));
    for (int i = 0; i < 4; i++) {
        if (saved[i]) {
            setenv(names[i], saved[i], 1);
        } else {
            unsetenv(names[i]);
        }
        free(saved[i]);
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    launch_check();
    nodes_are_found();
    fake_nodes_from_environment();
    world_of_a_fortran_handle();
    lone_failure_at_create();
    static const tt_progress modes[] = {TT_PROGRESS_POLLED, TT_PROGRESS_CALLER, TT_PROGRESS_THREAD};
    for (int split = 0; split < TEST_SPLITS; split++) {
        setenv("TUTTI_TEST_PIECE_BYTES", split % 2 ? "1" : "700", 1); /* 1 is raised to the least */
        tt_world *world = test_world(split, modes[split % 3], 30);
        unsetenv("TUTTI_TEST_PIECE_BYTES");
        CHECK(tt_world_rank(world) == test_rank && tt_world_size(world) == test_size,
              "rank and size");
        CHECK(tt_world_progress_mode(world) == modes[split % 3] &&
                  tt_world_deadline_s(world) == 30.0,
              "mode and deadline");
        agreement(world);
        equality(world);
        collectives(world);
        bulk(world);
        votes(world);
        CHECK_OK(tt_world_error(world));
        tt_world_destroy(&world);
    }
    tt_world *none = NULL;
    tt_world_destroy(&none);
    return test_end("world");
}
