/* world.c - who is there: duplicates the caller's communicator, finds the nodes, opens what all
 * other files use.
 *
 * Nodes come from MPI_Comm_split_type, never from names; a fake split (for tests) only divides real
 * nodes further. All that may fail on one rank alone is agreed before the next collective step, so
 * that all ranks fail or none. */
#include "comm_internal.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tutti/cpu.h"
#include "ttk.h"

static const double default_deadline_s = 60.0;
enum {
    THREAD_MODE_CORES =
        8, /* from here on a core for communication costs less than polling; a guess */
    MAX_PIECE_BYTES = 1 << 30, /* MPI counts are int; 1 GiB leaves room and is a usual safe limit */
    MIN_PIECE_BYTES = 256,     /* must hold any header of this room */
    GRACE_PART = 4,            /* this part of the deadline, */
    MAX_GRACE_NS = 1000000000  /* at most 1 s, is spent on asking who is alive */
};

static tt_world *broken_worlds; /* keeps them reachable */

/* What ranks tell each other first. */
typedef struct hello {
    int32_t real_node;
    int32_t fake_node;
    char host[TTI_HOST_BYTES];
} hello;

/* ---- environment ---- */

static tt_status read_number(const char *name, uint64_t max, uint64_t *value_out)
{
    const char *text = getenv(name);
    if (!text || !text[0]) {
        return TT_OK;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    TT_CHECK(errno == 0 && *end == 0 && text[0] != '-' && value <= max, TT_ERR_USAGE,
             "%s is '%s', not a number up to %llu", name, text, (unsigned long long)max);
    *value_out = value;
    return TT_OK;
}

/* TUTTI_FAKE_NODES: as many numbers as ranks are node numbers, else they are counts that must add
 * up. */
static tt_status parse_fake_nodes(const char *text, int size, int rank, int32_t *fake_out)
{
    int n = 0;
    int64_t sum = 0;
    int32_t by_number = 0, by_count = -1;
    const char *at = text;
    for (;;) {
        char *end = NULL;
        errno = 0;
        long value = strtol(at, &end, 10);
        TT_CHECK(end != at && errno == 0 && value >= 0 && value <= INT32_MAX, TT_ERR_USAGE,
                 "TUTTI_FAKE_NODES is '%s', not numbers parted by commas", text);
        if (n == rank) {
            by_number = (int32_t)value;
        }
        sum += value;
        if (by_count < 0 && rank < sum) {
            by_count = n;
        }
        n++;
        if (*end == 0) {
            break;
        }
        TT_CHECK(*end == ',' && n < size, TT_ERR_USAGE,
                 "TUTTI_FAKE_NODES is '%s': not a list of at most %d numbers", text, size);
        at = end + 1;
    }
    TT_CHECK(n == size || sum == size, TT_ERR_USAGE,
             "TUTTI_FAKE_NODES is '%s': neither %d node numbers nor counts with sum %d", text, size,
             size);
    *fake_out = n == size ? by_number : by_count;
    return TT_OK;
}

static tt_status read_params(tt_world *world, const tt_world_params *params, hello *mine)
{
    static const tt_world_params defaults = {.comm_cpu = -1};
    const tt_world_params *p = params ? params : &defaults;
    TT_CHECK(p->deadline_s >= 0.0 && p->deadline_s < 1e9, TT_ERR_ARG, "deadline %g s",
             p->deadline_s);
    TT_CHECK(p->delay_ns >= 0, TT_ERR_ARG, "injected delay %lld ns", (long long)p->delay_ns);
    double deadline_s = p->deadline_s > 0.0 ? p->deadline_s : default_deadline_s;
    world->deadline_ns = (uint64_t)(deadline_s * 1e9);
    world->grace_ns = world->deadline_ns / GRACE_PART;
    if (world->grace_ns > MAX_GRACE_NS) {
        world->grace_ns = MAX_GRACE_NS;
    }
    uint64_t delay_us = (uint64_t)p->delay_ns / 1000, piece = MAX_PIECE_BYTES;
    bool from_env = getenv("TUTTI_INJECT_DELAY_US") != NULL;
    TT_TRY(read_number("TUTTI_INJECT_DELAY_US", 1000000000, &delay_us));
    TT_TRY(read_number("TUTTI_INJECT_MB_S", 1000000000, &world->inject_mb_s));
    TT_TRY(read_number("TUTTI_TEST_PIECE_BYTES", MAX_PIECE_BYTES, &piece));
    world->delay_ns = from_env ? delay_us * 1000 : (uint64_t)p->delay_ns;
    world->piece_bytes = (size_t)(piece < MIN_PIECE_BYTES ? MIN_PIECE_BYTES : piece);

    /* Progress mode, as far as the thread level allows. */
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    world->mode = p->progress;
    if (world->mode == TT_PROGRESS_AUTO) {
        world->mode = level < MPI_THREAD_SERIALIZED     ? TT_PROGRESS_CALLER
                      : p->n_cores >= THREAD_MODE_CORES ? TT_PROGRESS_THREAD
                                                        : TT_PROGRESS_POLLED;
    }
    TT_CHECK(world->mode == TT_PROGRESS_CALLER || level >= MPI_THREAD_SERIALIZED, TT_ERR_USAGE,
             "this progress mode needs MPI_THREAD_SERIALIZED, MPI was started with level %d",
             level);

    const char *fake = getenv("TUTTI_FAKE_NODES");
    if (p->fake_node) {
        mine->fake_node = p->fake_node[world->rank];
    } else if (fake && fake[0]) {
        TT_TRY(parse_fake_nodes(fake, world->size, world->rank, &mine->fake_node));
    }
    return TT_OK;
}

/* ---- nodes ---- */

static tt_status alloc_tables(tt_world *world)
{
    size_t size = (size_t)world->size;
    world->node = calloc(size, sizeof(*world->node));
    world->node_rank = calloc(size, sizeof(*world->node_rank));
    world->node_size = calloc(size, sizeof(*world->node_size));
    world->node_first = calloc(size, sizeof(*world->node_first));
    world->real_node = calloc(size, sizeof(*world->real_node));
    world->host = calloc(size, sizeof(*world->host));
    world->peer = calloc(size, sizeof(*world->peer));
    world->page = calloc(size, sizeof(*world->page));
    world->small = calloc(1, TTI_SMALL_BYTES);
    TT_CHECK(world->node && world->node_rank && world->node_size && world->node_first &&
                 world->real_node && world->host && world->peer && world->page && world->small,
             TT_ERR_NOMEM, "no memory for the tables of %d ranks", world->size);
    return TT_OK;
}

/* Numbers nodes by their lowest rank. all[size]. */
static void find_nodes(tt_world *world, const hello *all)
{
    for (int r = 0; r < world->size; r++) {
        int found = -1;
        for (int n = 0; n < world->n_nodes && found < 0; n++) {
            const hello *first = &all[world->node_first[n]];
            if (first->real_node == all[r].real_node && first->fake_node == all[r].fake_node) {
                found = n;
            }
        }
        if (found < 0) {
            found = world->n_nodes++;
            world->node_first[found] = r;
        }
        world->node[r] = found;
        world->node_rank[r] = world->node_size[found]++;
        world->real_node[r] = all[r].real_node;
        memcpy(world->host[r], all[r].host, TTI_HOST_BYTES);
        world->host[r][TTI_HOST_BYTES - 1] = 0;
    }
    for (int r = 0; r < world->size; r++) {
        if (tti_is_near(world, r)) {
            world->peer[world->n_peers++] = r;
        }
    }
}

/* tt_world_agree before there is a world: the status of the worst rank, with the message of the
 * lowest that has it. */
static tt_status first_agree(MPI_Comm comm, tt_status mine)
{
    int in = (int)mine, worst = 0;
    TT_TRY(TT_MPI(MPI_Allreduce(&in, &worst, 1, MPI_INT, MPI_MIN, comm)));
    if (worst == TT_OK) {
        return TT_OK;
    }
    int rank = 0, size = 0, root = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int holder = (int)mine == worst ? rank : size;
    char own[TT_STATUS_MESSAGE_BYTES], text[TT_STATUS_MESSAGE_BYTES];
    snprintf(own, sizeof(own), "%s", mine == TT_OK ? "" : tt_status_message());
    memcpy(text, own, sizeof(text));
    TT_TRY(TT_MPI(MPI_Allreduce(&holder, &root, 1, MPI_INT, MPI_MIN, comm)));
    TT_TRY(TT_MPI(MPI_Bcast(text, (int)sizeof(text), MPI_CHAR, root, comm)));
    text[sizeof(text) - 1] = 0;
    int is_same = (int)mine == worst && strcmp(own, text) == 0, all_same = 0;
    TT_TRY(TT_MPI(MPI_Allreduce(&is_same, &all_same, 1, MPI_INT, MPI_MIN, comm)));
    if (all_same) {
        return tt_status_adopt(mine, text);
    }
    return TT_FAIL((tt_status)worst, "rank %d: %s", root, text);
}

static tt_status meet(tt_world *world, const tt_world_params *params)
{
    tt_status st = alloc_tables(world);
    hello mine = {0};
    hello *all = calloc((size_t)world->size, sizeof(*all));
    MPI_Comm real = MPI_COMM_NULL;
    if (st == TT_OK && !all) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for the names of %d ranks", world->size);
    }
    if (st == TT_OK) {
        st = read_params(world, params, &mine);
    }
    st = first_agree(world->comm, st);
    if (st == TT_OK) {
        st = TT_MPI(MPI_Comm_split_type(world->comm, MPI_COMM_TYPE_SHARED, world->rank,
                                        MPI_INFO_NULL, &real));
    }
    if (st == TT_OK) {
        int rank = world->rank, lowest = 0;
        st = TT_MPI(MPI_Allreduce(&rank, &lowest, 1, MPI_INT, MPI_MIN, real));
        mine.real_node = lowest;
        if (gethostname(mine.host, sizeof(mine.host) - 1) != 0) {
            snprintf(mine.host, sizeof(mine.host), "host of rank %d", lowest);
        }
    }
    if (st == TT_OK) {
        st = TT_MPI(MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, all, (int)sizeof(mine),
                                  MPI_BYTE, world->comm));
    }
    if (st == TT_OK) {
        find_nodes(world, all);
        st = TT_MPI(MPI_Comm_split(real, world->node[world->rank], world->rank, &world->node_comm));
    }
    if (st == TT_OK) {
        st = TT_MPI(MPI_Comm_set_errhandler(world->node_comm, MPI_ERRORS_RETURN));
    }
    if (real != MPI_COMM_NULL) {
        MPI_Comm_free(&real);
    }
    free(all);
    return st;
}

tt_status tti_comm_dup(tt_world *world, MPI_Comm *comm_out)
{
    tti_lock(world);
    tt_status st = TT_MPI(MPI_Comm_dup(world->comm, comm_out));
    if (st == TT_OK) {
        st = TT_MPI(MPI_Comm_set_errhandler(*comm_out, MPI_ERRORS_RETURN));
    }
    tti_unlock(world);
    return st == TT_OK ? TT_OK : tti_world_break(world, st);
}

bool tti_meet(tt_world *world)
{
    if (tt_world_is_broken(world)) {
        return false;
    }
    return world->talk.comm == MPI_COMM_NULL || tt_world_barrier(world) == TT_OK;
}

void tti_comm_free(tt_world *world, MPI_Comm *comm)
{
    if (*comm != MPI_COMM_NULL && tti_meet(world)) {
        tti_lock(world);
        MPI_Comm_free(comm);
        tti_unlock(world);
    }
    *comm = MPI_COMM_NULL;
}

static void free_tables(tt_world *world)
{
    free(world->node);
    free(world->node_rank);
    free(world->node_size);
    free(world->node_first);
    free(world->real_node);
    free(world->host);
    free(world->peer);
    free(world->page);
    free(world->small);
    free(world);
}

static tt_status open_parts(tt_world *world)
{
    TT_TRY(tti_comm_dup(world, &world->bulk));
    TT_TRY(tti_window_create(world, "the status pages", sizeof(tti_page), &world->page_window));
    for (int i = 0; i < world->n_peers; i++) {
        world->page[i] = world->page_window.base[i];
    }
    world->my_page = world->page[world->node_rank[world->rank]];
    TT_TRY(tti_talk_open(world));
    TT_TRY(tti_vote_open(world));
    uint64_t piece = world->piece_bytes;
    return tt_world_check_equal(world, "TUTTI_TEST_PIECE_BYTES", &piece, sizeof(piece));
}

static tt_status check_mpi_is_up(void)
{
    int is_up = 0;
    MPI_Initialized(&is_up);
    TT_CHECK(is_up, TT_ERR_STATE, "MPI is not initialised");
    return TT_OK;
}

tt_status tt_world_create(MPI_Comm comm, const tt_world_params *params, tt_world **world_out)
{
    TT_TRY(check_mpi_is_up());
    if (!ttk.f32_to_bf16) { /* a program that has no kernels of its own to choose */
        ttk_init(tt_cpu_flags());
    }
    tt_world *world = calloc(1, sizeof(*world));
    /* Without a struct this rank cannot even agree: the only place where a lone failure is
     * possible. */
    TT_CHECK(world, TT_ERR_NOMEM, "no memory for a world");
    world->comm = world->bulk = world->node_comm = MPI_COMM_NULL;
    world->talk.comm = world->vote.comm = MPI_COMM_NULL;
    world->talk.receive = MPI_REQUEST_NULL;
    atomic_store(&world->talk.blocked_on, -1);
    atomic_store(&world->is_patient, true);
    atomic_flag_clear(&world->mpi_lock);
    atomic_flag_clear(&world->error_lock);

    tt_status st = TT_MPI(MPI_Comm_dup(comm, &world->comm));
    if (st == TT_OK) {
        st = TT_MPI(MPI_Comm_set_errhandler(world->comm, MPI_ERRORS_RETURN));
    }
    if (st != TT_OK) {
        free(world);
        return st;
    }
    MPI_Comm_rank(world->comm, &world->rank);
    MPI_Comm_size(world->comm, &world->size);
    st = meet(world, params);
    if (st != TT_OK) {
        goto err_free;
    }
    st = open_parts(world);
    if (st == TT_OK) {
        st = world->mode == TT_PROGRESS_THREAD && world->size > 1
                 ? tti_progress_start(world, params ? params->comm_cpu : -1)
                 : TT_OK;
        st = tt_world_agree(world, st);
    }
    if (st != TT_OK) {
        tt_world_destroy(&world);
        return st;
    }
    *world_out = world;
    return TT_OK;

err_free:
    if (world->node_comm != MPI_COMM_NULL) {
        MPI_Comm_free(&world->node_comm);
    }
    MPI_Comm_free(&world->comm);
    free_tables(world);
    return st;
}

tt_status tt_world_create_fortran(MPI_Fint comm, const tt_world_params *params,
                                  tt_world **world_out)
{
    TT_TRY(check_mpi_is_up()); /* MPI may end the program if it is asked for a handle before */
    return tt_world_create(MPI_Comm_f2c(comm), params, world_out);
}

void tt_world_destroy(tt_world **world_ptr)
{
    tt_world *world = *world_ptr;
    *world_ptr = NULL;
    if (!world) {
        return;
    }
    if (!tt_world_is_broken(world)) {
        tt_world_barrier(world); /* a failure marks the world broken */
    }
    tti_progress_stop(world);
    tti_vote_close(world);
    tti_talk_close(world);
    tti_window_destroy(world, &world->page_window);
    world->my_page = NULL;
    if (tt_world_is_broken(world)) {
        /* MPI still knows requests with our buffers, and freeing is collective: keep all until the
         * process ends. */
        world->next_broken = broken_worlds;
        broken_worlds = world;
        return;
    }
    tti_comm_free(world, &world->bulk);
    tti_comm_free(world, &world->node_comm);
    tti_comm_free(world, &world->comm);
    free_tables(world);
}

/* ---- getters ---- */

int tt_world_rank(const tt_world *world)
{
    return world->rank;
}

int tt_world_size(const tt_world *world)
{
    return world->size;
}

int tt_world_n_nodes(const tt_world *world)
{
    return world->n_nodes;
}

int tt_world_node(const tt_world *world, int rank)
{
    return world->node[rank];
}

int tt_world_node_rank(const tt_world *world, int rank)
{
    return world->node_rank[rank];
}

int tt_world_node_size(const tt_world *world, int node)
{
    return world->node_size[node];
}

const char *tt_world_host(const tt_world *world, int rank)
{
    return world->host[rank];
}

size_t tt_world_window_bytes(const tt_world *world)
{
    return world->window_bytes;
}

tt_progress tt_world_progress_mode(const tt_world *world)
{
    return world->mode;
}

double tt_world_deadline_s(const tt_world *world)
{
    return (double)world->deadline_ns / 1e9;
}

const char *tti_rank_name(const tt_world *world, int rank, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d (%s)", rank, world->host[rank]);
    return text;
}
