/* test_deadline.c - a rank that stops (SIGSTOP) or stays away is named, with its host, by every
 * other rank, within the deadline, in every kind of wait and on teardown; a rank that reports a
 * failure is named at once; a patient world waits for who shows that it lives. */
/* TEST ranks: 4 */
/* TEST timeout: 150 */
#include "mpi_test.h"
#include <signal.h>
#include <unistd.h>
#include "tutti/cpu.h"
#include "tutti/exchange.h"
#include "ttk.h"

typedef enum wait_kind {
    WAIT_BARRIER,
    WAIT_AGREE,
    WAIT_BCAST,
    WAIT_RECV,
    WAIT_VOTE,
    WAIT_GATHER,
    WAIT_EXCHANGE,
    WAIT_REDUCED, /* in chunks */
    WAIT_WHOLE,   /* by ranks that hold rows of others until a chunk is whole */
    WAIT_KINDS
} wait_kind;
static const char *const wait_names[WAIT_KINDS] = {
    "barrier", "agree", "bcast", "recv", "vote", "gather", "exchange", "reduced", "whole chunks"};

typedef struct scenario {
    wait_kind kind;
    int split, victim;
    bool stops; /* SIGSTOP; else it just stays away */
    tt_progress progress;
    bool inside; /* once its rows are on their way, and before it has answered any */
} scenario;

static const double deadline_s = 2.0; /* a loaded machine must not look like a stopped rank */

typedef struct objects {
    tt_gather *gather;
    tt_exchange *exchange, *reduced, *whole;
} objects;

static void make_objects(tt_world *world, objects *o)
{
    int32_t rank[TEST_MAX_RANKS], local[TEST_MAX_RANKS];
    for (int r = 0; r < test_size; r++) {
        rank[r] = r;
        local[r] = 0;
    }
    tt_exchange_params p = test_small_exchange();
    MUST(tt_gather_create(world, test_all_ranks(), test_size, 4, &o->gather));
    MUST(tt_exchange_create(world, &p, &o->exchange));
    MUST(tt_exchange_set_owners(o->exchange, &(tt_owner_map){test_size, rank, local}, 1));
    p.combine = TT_COMBINE_REDUCED;
    p.chunk_tokens = 3;
    MUST(tt_exchange_create(world, &p, &o->reduced));
    MUST(tt_exchange_set_owners(o->reduced, &(tt_owner_map){test_size, rank, local}, 1));
    p.combine = TT_COMBINE_EXACT;
    p.takes_whole_chunks = true;
    MUST(tt_exchange_create(world, &p, &o->whole));
    MUST(tt_exchange_set_owners(o->whole, &(tt_owner_map){test_size, rank, local}, 1));
}

static tt_status begin_use(tt_exchange *x, tt_status mine)
{
    int32_t slot[8];
    float weight[8], row[32] = {0};
    for (int i = 0; i < 8; i++) {
        slot[i] = i % test_size;
        weight[i] = 1.0f;
    }
    TT_TRY(tt_exchange_prepare(x, 0, 4, slot, weight, mine));
    return tt_exchange_dispatch_begin(x, 0, row, 8, NULL);
}

static tt_status answer(tt_exchange *x, const tt_exchange_rows *rows)
{
    const float row[8] = {0};
    for (int32_t i = 0; i < rows->n; i++) {
        tt_exchange_put_result(x, 0, rows, i, row);
    }
    return tt_exchange_push(x, 0, rows);
}

/* Answers rows at once, or when their chunk is whole. */
static tt_status use_exchange(tt_exchange *x, bool is_whole, tt_status mine)
{
    enum { MOST_HELD = 64 };
    float y[32];
    TT_TRY(begin_use(x, mine));
    tt_exchange_state state = {0};
    tt_exchange_rows rows[MOST_HELD];
    int n_held = 0;
    tt_spin spin = {0};
    while (!state.all_arrived) {
        TT_TRY(tt_exchange_poll(x, 0, &state));
        while (n_held < MOST_HELD && tt_exchange_next_ready(x, 0, &rows[n_held])) {
            n_held++;
        }
        for (int i = 0; i < n_held;) {
            if (!is_whole || rows[i].chunk < state.n_arrived) {
                TT_TRY(answer(x, &rows[i]));
                rows[i] = rows[--n_held];
            } else {
                i++;
            }
        }
        tt_spin_once(&spin);
    }
    return tt_exchange_combine_end(x, 0, y, 8, NULL);
}

static tt_exchange *exchange_of(const objects *o, wait_kind kind)
{
    return kind == WAIT_REDUCED ? o->reduced : kind == WAIT_WHOLE ? o->whole : o->exchange;
}

static tt_status one_wait(tt_world *world, const objects *o, const scenario *s)
{
    int64_t value = test_rank;
    float full[4 * TEST_MAX_RANKS] = {0};
    tt_rect rect[TEST_MAX_RANKS];
    switch (s->kind) {
    case WAIT_BARRIER:
        return tt_world_barrier(world);
    case WAIT_AGREE:
        return tt_world_agree(world, TT_OK);
    case WAIT_BCAST:
        return tt_world_bcast(world, &value, sizeof(value), s->victim);
    case WAIT_RECV:
        return test_rank == (s->victim + 1) % test_size
                   ? tt_world_recv(world, s->victim, 3, &value, sizeof(value))
                   : tt_world_barrier(world);
    case WAIT_VOTE:
        TT_TRY(tt_vote_begin(world, &value, 1));
        return tt_vote_end(world, &value);
    case WAIT_GATHER:
        for (int m = 0; m < test_size; m++) {
            rect[m] = (tt_rect){0, 1, m * 4, 4};
        }
        return tt_gather_exec(o->gather, full, 4 * test_size, rect, TT_GATHER_ALL, NULL);
    default:
        return use_exchange(exchange_of(o, s->kind), s->kind == WAIT_WHOLE, TT_OK);
    }
}

static void destroy_objects(objects *o)
{
    tt_gather_destroy(&o->gather);
    tt_exchange_destroy(&o->exchange);
    tt_exchange_destroy(&o->reduced);
    tt_exchange_destroy(&o->whole);
}

static void run_scenario(const scenario *s)
{
    tt_world *world = test_world(s->split, s->progress, deadline_s);
    objects o;
    int pid = (int)getpid(), pids[TEST_MAX_RANKS];
    make_objects(world, &o);
    tt_world_set_patient(world, false);
    scenario warm = *s;
    warm.kind = s->kind == WAIT_RECV ? WAIT_BARRIER : s->kind;
    MUST(one_wait(world, &o, &warm)); /* works while all are there */
    MUST(tt_world_allgather(world, &pid, sizeof(pid), pids));
    MUST(tt_world_barrier(world));
    if (test_rank == s->victim) {
        if (s->inside) {
            MUST(begin_use(exchange_of(&o, s->kind), TT_OK));
        }
        if (s->stops) {
            raise(SIGSTOP); /* goes on when a survivor says so */
        } else {
            usleep((useconds_t)(deadline_s * 1.8e6));
        }
        for (int turn = 0; turn < 2000 && !tt_world_is_broken(world);
             turn++) { /* it is told on its next progress */
            for (int i = 0; i < 100; i++) {
                tt_world_progress(world);
            }
            usleep(1000);
        }
        CHECK(tt_world_barrier(world) == TT_ERR_TIMEOUT, "%s: the group is given up",
              wait_names[s->kind]);
    } else {
        double begin = MPI_Wtime();
        tt_status st = one_wait(world, &o, s);
        double spent = MPI_Wtime() - begin;
        char name[TEST_MAX_RANKS], host[80];
        snprintf(name, sizeof(name), "rank %d (", s->victim);
        snprintf(host, sizeof(host), "(%s)", tt_world_host(world, s->victim));
        CHECK(st == TT_ERR_TIMEOUT, "%s, split %d: %s", wait_names[s->kind], s->split,
              tt_status_name(st));
        const char *found = strstr(tt_status_message(), " for ");
        CHECK(found && strncmp(found + 5, name, strlen(name)) == 0 && strstr(found, host),
              "%s, split %d: '%s' should name %s", wait_names[s->kind], s->split,
              tt_status_message(), name);
        for (int r = 0; r < test_size && found; r++) { /* nobody else */
            char other[32], *hit;
            snprintf(other, sizeof(other), "rank %d (", r);
            hit = strstr(found, other);
            CHECK(r == s->victim || !hit || strncmp(hit - 9, "found by ", 9) == 0,
                  "%s, split %d: '%s' names rank %d", wait_names[s->kind], s->split,
                  tt_status_message(), r);
        }
        CHECK(spent < deadline_s * 1.5, "%s: %g s", wait_names[s->kind], spent);
        /* From here on only local calls and destroy. */
        CHECK(tt_world_is_broken(world) && tt_world_barrier(world) == TT_ERR_TIMEOUT,
              "%s: stays broken", wait_names[s->kind]);
        if (s->stops && test_rank == (s->victim + 1) % test_size) {
            usleep(200000); /* the others must find it stopped, too */
            kill((pid_t)pids[s->victim], SIGCONT);
        }
    }
    destroy_objects(&o);
    tt_world_destroy(&world);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The status travels with the rows: all ranks stop at once and know why. */
static void failure_travels(int split)
{
    tt_world *world = test_world(split, TT_PROGRESS_POLLED, deadline_s);
    objects o;
    make_objects(world, &o);
    MUST(use_exchange(o.exchange, false, TT_OK));
    MPI_Barrier(MPI_COMM_WORLD); /* who is still in the first use would learn of the failure
                                  * there */
    double begin = MPI_Wtime();
    tt_status st = use_exchange(o.exchange, false,
                                test_rank == 1 ? TT_FAIL(TT_ERR_NUMERIC, "NaN in layer 3") : TT_OK);
    CHECK(st == TT_ERR_PEER, "split %d: %s", split, tt_status_name(st));
    CHECK(strstr(tt_status_message(), "rank 1 (") && strstr(tt_status_message(), "NaN in layer 3"),
          "%s", tt_status_message());
    CHECK(MPI_Wtime() - begin < deadline_s, "at once");
    destroy_objects(&o);
    tt_world_destroy(&world);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A local failure on rank 1 ends every wait of the others with the same code and text, long before
 * any deadline. */
static void failure_is_told(wait_kind kind, int split, tt_progress progress)
{
    tt_world *world = test_world(split, progress, deadline_s);
    objects o;
    make_objects(world, &o);
    tt_world_set_patient(world, false);
    scenario s = {.kind = kind, .split = split, .victim = 1, .progress = progress};
    MUST(one_wait(world, &o, &s));
    MUST(tt_world_barrier(world)); /* as above; MPI's own is not for us where a thread makes the
                                    * calls */
    double begin = MPI_Wtime();
    tt_status st = TT_OK;
    if (test_rank == 1) {
        usleep(100000); /* the others wait by now */
        tt_world_fail(world, TT_FAIL(TT_ERR_NUMERIC, "NaN in layer 3"));
        tt_world_fail(world, TT_FAIL(TT_ERR_IO, "later")); /* the first stays */
        st = tt_world_barrier(world);
    } else {
        st = one_wait(world, &o, &s);
    }
    double spent = MPI_Wtime() - begin;
    char text[256];
    snprintf(text, sizeof(text), "rank 1 (%s): NaN in layer 3", tt_world_host(world, 1));
    CHECK(st == TT_ERR_NUMERIC && strcmp(tt_status_message(), text) == 0, "%s, split %d: %s: '%s'",
          wait_names[kind], split, tt_status_name(st), tt_status_message());
    CHECK(spent < deadline_s, "%s, split %d: %g s", wait_names[kind], split, spent);
    CHECK(tt_world_is_broken(world) && tt_world_error(world) == TT_ERR_NUMERIC, "%s: stays broken",
          wait_names[kind]);
    destroy_objects(&o);
    tt_world_destroy(&world);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 1 is busy for three deadlines and shows that it lives: a patient world goes on, another does
 * not. A silent rank ends both. */
static void patience(bool is_patient, bool is_silent, int split, tt_progress progress)
{
    static const double work_s = 0.05;
    tt_world *world = test_world(split, progress, deadline_s);
    tt_world_set_patient(world, is_patient);
    bool is_named = is_silent || !is_patient;
    MUST(tt_world_barrier(world));
    double begin = MPI_Wtime();
    if (test_rank == 1) {
        double end = begin + deadline_s * (is_named ? 1.5 : 3.0);
        while (MPI_Wtime() < end) {
            usleep((useconds_t)(work_s * 1e6));
            if (!is_silent) {
                tt_world_progress(world);
            }
        }
    }
    tt_status st = tt_world_agree(world, TT_OK);
    double spent = MPI_Wtime() - begin;
    if (test_rank == 1 && is_silent && st == TT_OK) { /* it may have found what the others said
                                                       * before they gave up */
        st = tt_world_barrier(world);
    }
    CHECK(st == (is_named ? TT_ERR_TIMEOUT : TT_OK), "patient %d, silent %d: %s: %s", is_patient,
          is_silent, tt_status_name(st), st == TT_OK ? "" : tt_status_message());
    if (is_named && test_rank != 1) {
        CHECK(strstr(tt_status_message(), " for rank 1 (") &&
                  strstr(tt_status_message(), is_silent ? "no answer" : "alive"),
              "%s", tt_status_message());
        CHECK(spent < deadline_s * 1.4, "patient %d: %g s", is_patient, spent);
    }
    tt_world_destroy(&world);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Freeing windows and communicators is blocking in MPI: who has stopped before is found by then. */
static void stopped_at_teardown(int split)
{
    tt_world *world = test_world(split, TT_PROGRESS_POLLED, deadline_s);
    objects o;
    int pid = (int)getpid(), pids[TEST_MAX_RANKS];
    const int victim = 1;
    make_objects(world, &o);
    MUST(tt_world_allgather(world, &pid, sizeof(pid), pids));
    MUST(tt_world_barrier(world));
    double begin = MPI_Wtime();
    if (test_rank == victim) {
        raise(SIGSTOP);
    }
    destroy_objects(&o);
    if (test_rank != victim) {
        CHECK(tt_world_error(world) == TT_ERR_TIMEOUT && strstr(tt_status_message(), "rank 1 ("),
              "split %d: %s", split, tt_status_message());
        CHECK(MPI_Wtime() - begin < deadline_s * 1.5, "%g s", MPI_Wtime() - begin);
        if (test_rank == victim + 1) {
            usleep(200000);
            kill((pid_t)pids[victim], SIGCONT);
        }
    }
    tt_world_destroy(&world);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static const scenario scenarios[] = {
        {WAIT_BARRIER, 2, 2, true, TT_PROGRESS_CALLER, false},
        {WAIT_AGREE, 3, 1, false, TT_PROGRESS_POLLED, false},
        {WAIT_BCAST, 2, 1, true, TT_PROGRESS_POLLED, false},
        {WAIT_RECV, 4, 3, true, TT_PROGRESS_POLLED, false},
        {WAIT_VOTE, 0, 3, true, TT_PROGRESS_POLLED, false},
        {WAIT_VOTE, 2, 3, true, TT_PROGRESS_POLLED, false},
        {WAIT_VOTE, 3, 1, false, TT_PROGRESS_THREAD, false},
        {WAIT_GATHER, 3, 0, true, TT_PROGRESS_THREAD, false},
        {WAIT_EXCHANGE, 0, 2, true, TT_PROGRESS_CALLER, false},
        {WAIT_EXCHANGE, 2, 3, true, TT_PROGRESS_POLLED, false},
        {WAIT_EXCHANGE, 4, 0, false, TT_PROGRESS_THREAD, false},
        {WAIT_EXCHANGE, 0, 1, true, TT_PROGRESS_POLLED, true},
        {WAIT_EXCHANGE, 2, 3, true, TT_PROGRESS_POLLED, true},
        {WAIT_EXCHANGE, 2, 0, true, TT_PROGRESS_CALLER, true},
        {WAIT_REDUCED, 2, 1, true, TT_PROGRESS_POLLED, true},
        {WAIT_REDUCED, 2, 2, true, TT_PROGRESS_POLLED, false},
        {WAIT_WHOLE, 0, 1, true, TT_PROGRESS_POLLED, false},
        {WAIT_WHOLE, 2, 3, true, TT_PROGRESS_THREAD, true},
    };
    test_begin(&argc, &argv);
    ttk_init(tt_cpu_flags());
    test_needs_ranks(4); /* victims go up to rank 3 */
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        run_scenario(&scenarios[i]);
    }
    failure_travels(0);
    failure_travels(3);
    static const wait_kind told[] = {WAIT_VOTE, WAIT_GATHER, WAIT_AGREE, WAIT_EXCHANGE};
    static const tt_progress modes[] = {TT_PROGRESS_POLLED, TT_PROGRESS_CALLER, TT_PROGRESS_THREAD};
    for (int i = 0; i < 12; i++) {
        failure_is_told(told[i % 4], (i % 3) * 2, modes[(i + i / 3) % 3]);
    }
    patience(true, false, 2, TT_PROGRESS_POLLED);
    patience(true, false, 0, TT_PROGRESS_CALLER);
    patience(true, true, 3, TT_PROGRESS_POLLED);
    patience(false, false, 0, TT_PROGRESS_CALLER);
    stopped_at_teardown(0);
    stopped_at_teardown(3);
    return test_end("deadline");
}
