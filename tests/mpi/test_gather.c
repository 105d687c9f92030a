/* test_gather.c - after a gather everybody (or the reader) holds the whole matrix, whatever the
 * rectangles, the split into nodes, the reader. */
/* TEST ranks: 1 2 3 5 8 */
/* TEST timeout: 60 */
#include "mpi_test.h"
#include <unistd.h>

enum { ROWS = 12, COLS = 37, GUARD = 5, N_USES = 60 };

static float value(int use, int64_t row, int64_t col)
{
    return (float)((use * 131 + (int)row * 17 + (int)col) % 8191);
}

/* Cuts the matrix by columns, by rows, or leaves some members nothing; equal on all ranks. */
static void cut(uint64_t seed, int n, tt_rect *rect)
{
    int kind = (int)(test_mix(seed) % 3);
    int64_t total = kind == 0 ? COLS : ROWS, at = 0;
    for (int m = 0; m < n; m++) {
        int64_t left = total - at,
                part = m == n - 1
                           ? left
                           : (int64_t)(test_mix(seed + (uint64_t)m + 1) % (uint64_t)(left + 1));
        part = kind == 2 && m != n - 1 && m % 2 == 1 ? 0 : part;
        rect[m] = kind == 0 ? (tt_rect){0, ROWS, at, part} : (tt_rect){at, part, 0, COLS};
        at += part;
    }
}

static void one_use(tt_gather *g, int use, int n, int me, int reader, tt_stream *compute)
{
    float full[ROWS * (COLS + GUARD)];
    tt_rect rect[TEST_MAX_RANKS];
    cut((uint64_t)use * 7919u, n, rect);
    for (int64_t i = 0; i < ROWS * (COLS + GUARD); i++) {
        full[i] = -1.0f;
    }
    for (int64_t r = rect[me].row; r < rect[me].row + rect[me].n_rows; r++) {
        for (int64_t c = rect[me].col; c < rect[me].col + rect[me].n_cols; c++) {
            full[r * (COLS + GUARD) + c] = value(use, r, c);
        }
    }
    MUST(tt_gather_exec(g, full, COLS + GUARD, rect, reader, compute));
    if (reader != TT_GATHER_ALL && reader != me) {
        return;
    }
    for (int64_t r = 0; r < ROWS; r++) {
        for (int64_t c = 0; c < COLS + GUARD; c++) {
            float got = full[r * (COLS + GUARD) + c], want = c < COLS ? value(use, r, c) : -1.0f;
            CHECK(got == want, "use %d at %lld, %lld: %g, not %g", use, (long long)r, (long long)c,
                  (double)got, (double)want);
        }
    }
}

/* Uses with changing readers; some members dawdle, so that the others run ahead as far as they
 * can. */
static void soak(tt_world *world, const int *members, int n, int me, tt_stream *compute)
{
    tt_gather *g = NULL;
    MUST(tt_gather_create(world, members, n, ROWS * COLS, &g));
    uint64_t dice = test_mix((uint64_t)test_rank);
    for (int use = 0; use < N_USES && n > 0; use++) {
        uint64_t h = test_mix((uint64_t)use + 3);
        int reader = h % 3 == 0 ? TT_GATHER_ALL : (int)((h >> 8) % (uint64_t)n);
        if (test_below(&dice, 30) == 0) {
            usleep((useconds_t)test_below(&dice, 2000));
        }
        one_use(g, use, n, me, use > N_USES / 2 ? 0 : reader, compute);
    }
    tt_gather_destroy(&g);
}

/* Above SMALL_FLOATS (gather.c) the copies are shared by the threads of a stream. */
static void large(tt_world *world, const int *members, int n, int me, tt_stream *compute)
{
    enum { H = 700, T = 40 };
    tt_gather *g = NULL;
    MUST(tt_gather_create(world, members, n, H * T, &g));
    float *full = malloc(sizeof(float) * H * T);
    tt_rect rect[TEST_MAX_RANKS];
    for (int use = 0; use < 3; use++) {
        for (int m = 0; m < n; m++) {
            int64_t begin = 0, end = 0;
            tt_split(H, n, m, &begin, &end);
            rect[m] = (tt_rect){0, T, begin, end - begin};
        }
        for (int64_t i = 0; i < H * T; i++) {
            bool mine = n == 1 || (i % H >= rect[me].col && i % H < rect[me].col + rect[me].n_cols);
            full[i] = mine ? value(use, i / H, i % H) : -1.0f;
        }
        MUST(tt_gather_exec(g, full, H, rect, TT_GATHER_ALL, compute));
        for (int64_t i = 0; i < H * T; i++) {
            CHECK(full[i] == value(use, i / H, i % H), "large use %d at %lld", use, (long long)i);
        }
    }
    free(full);
    tt_gather_destroy(&g);
}

static void refusals(tt_world *world)
{
    int members[2] = {test_rank, test_rank};
    tt_gather *g = NULL;
    CHECK(tt_gather_create(world, members, 2, 8, &g) == TT_ERR_ARG, "a rank twice");
    /* Rank 0 believes in another size. */
    const int *all = test_all_ranks();
    if (test_size > 1) {
        CHECK(tt_gather_create(world, all, test_size, test_rank == 0 ? 8 : 9, &g) ==
                  TT_ERR_MISMATCH,
              "sizes differ");
        float full[4] = {0};
        tt_rect rect[TEST_MAX_RANKS] = {{0, 1, 0, 1}};
        MUST(tt_gather_create(world, all, test_size, 2, &g));
        rect[0].n_rows = 3;
        CHECK(tt_gather_exec(g, full, 1, rect, TT_GATHER_ALL, NULL) == TT_ERR_CAPACITY,
              "more than was planned");
        rect[0] = (tt_rect){0, 1, 0, 2};
        CHECK(tt_gather_exec(g, full, 1, rect, TT_GATHER_ALL, NULL) == TT_ERR_ARG,
              "beyond the row");
        rect[0] = (tt_rect){0, 1, 0, 1}; /* still works */
        MUST(tt_gather_exec(g, full, 1, rect, TT_GATHER_ALL, NULL));
        tt_gather_destroy(&g);
    }
}

/* Rank 1 has no memory for its receive buffers: all ranks get that, nobody hangs, and the world is
 * whole. */
static void one_rank_without_memory(tt_world *world)
{
    enum { MANY_FLOATS = 1 << 25, SLACK_BYTES = 1 << 26 };
    const int *all = test_all_ranks();
    tt_gather *g = NULL;
    CHECK(test_rank != 1 || test_limit_memory(SLACK_BYTES), "no limit set");
    tt_status st = tt_gather_create(world, all, test_size, MANY_FLOATS, &g);
    if (test_rank == 1) {
        test_limit_memory(-1);
    }
    CHECK(st == TT_ERR_NOMEM && strstr(tt_status_message(), "rank 1 ("), "%s: %s",
          tt_status_name(st), tt_status_message());
    CHECK_OK(tt_world_agree(world, TT_OK));
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    const int n_splits = test_n_splits();
    tt_stream *compute = NULL;
    MUST(tt_stream_create(
        &(tt_stream_params){.name = "compute", .n_threads = 2, .join_caller = true}, &compute));
    for (int split = 0; split < n_splits; split++) {
        static const tt_progress modes[TEST_SPLITS] = {TT_PROGRESS_POLLED, TT_PROGRESS_CALLER,
                                                       TT_PROGRESS_POLLED, TT_PROGRESS_THREAD,
                                                       TT_PROGRESS_CALLER};
        int all[TEST_MAX_RANKS], half[TEST_MAX_RANKS];
        setenv("TUTTI_TEST_PIECE_BYTES", split % 2 ? "300" : "1000000000",
               1); /* the head alone, or all in one */
        tt_world *world = test_world(split, modes[split], 30);
        unsetenv("TUTTI_TEST_PIECE_BYTES");
        if (split == 0) {
            refusals(world);
        }
        for (int r = 0; r < test_size; r++) {
            all[r] = test_size - 1 - r; /* any order */
        }
        soak(world, all, test_size, test_size - 1 - test_rank, compute);
        large(world, all, test_size, test_size - 1 - test_rank, compute);
        /* Two groups and, with more than two ranks, rank 0 in none. */
        int n = 0, me = 0;
        for (int r = test_size > 2 ? 1 : 0; r < test_size; r++) {
            if (r % 2 == test_rank % 2) {
                me = r == test_rank ? n : me;
                half[n++] = r;
            }
        }
        if (test_size > 1 && tt_world_n_nodes(world) == test_size) { /* all are far */
            one_rank_without_memory(world);
        }
        soak(world, half, test_size > 2 && test_rank == 0 ? 0 : n, me, NULL);
        tt_world_destroy(&world);
    }
    tt_stream_destroy(&compute);
    return test_end("gather");
}
