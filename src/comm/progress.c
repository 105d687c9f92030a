/* progress.c - the lock around MPI, the list of outstanding operations, who advances them, and the
 * error of the group.
 *
 * MPI moves messages only inside its calls, so every outstanding operation registers a function
 * that tests its requests. Any thread may ask for progress; a try-lock lets one in and sends the
 * others back to their work. With a thread of its own the world's operations are advanced there and
 * nowhere else. */
#include "comm_internal.h"

enum {
    TALK_PERIOD =
        32, /* calls of progress per look for questions of peers: they may wait some microseconds */
    TALK_PERIOD_NS = 1000000 /* who calls seldom (while loading) looks each time */
};

tt_status tti_mpi_status(int code, const char *call, const char *file, int line)
{
    tt_steady_leave_foreign();
    if (code == MPI_SUCCESS) {
        return TT_OK;
    }
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return tt_status_fail(TT_ERR_MPI, file, line, "MPI failed: %s, in %.100s", text, call);
}

tt_status tti_test_all(MPI_Request *request, int n, bool *done_out)
{
    int done = 1;
    if (n > 0) {
        TT_TRY(TT_MPI(MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE)));
    }
    *done_out = done != 0;
    return TT_OK;
}

int tti_int(size_t count)
{
    TT_ASSERT(count <= INT32_MAX);
    return (int)count;
}

/* ---- lock ---- */

void tti_lock(tt_world *world)
{
    tt_spin spin = {0};
    while (atomic_flag_test_and_set_explicit(&world->mpi_lock, memory_order_acquire)) {
        tt_spin_once(&spin);
    }
}

static bool try_lock(tt_world *world)
{
    return !atomic_flag_test_and_set_explicit(&world->mpi_lock, memory_order_acquire);
}

void tti_unlock(tt_world *world)
{
    atomic_flag_clear_explicit(&world->mpi_lock, memory_order_release);
}

/* ---- operations ---- */

void tti_op_register(tt_world *world, tti_op *op)
{
    tti_lock(world);
    op->next = world->ops;
    world->ops = op;
    tti_unlock(world);
}

void tti_op_unregister(tt_world *world, tti_op *op)
{
    tti_lock(world);
    for (tti_op **at = &world->ops; *at; at = &(*at)->next) {
        if (*at == op) {
            *at = op->next;
            break;
        }
    }
    if (atomic_exchange(&op->is_awake, false)) {
        atomic_fetch_sub(&world->n_busy, 1);
    }
    tti_unlock(world);
}

static void set_awake(tt_world *world, tti_op *op, bool is_awake)
{
    if (atomic_exchange(&op->is_awake, is_awake) != is_awake) {
        atomic_fetch_add(&world->n_busy, is_awake ? 1 : -1);
    }
}

void tti_op_wake(tt_world *world, tti_op *op)
{
    atomic_fetch_add(&op->n_wakes, 1);
    set_awake(world, op, true);
    atomic_fetch_add_explicit(&world->n_events, 1, memory_order_relaxed);
}

void tti_op_rest(tt_world *world, tti_op *op)
{
    set_awake(world, op, false);
    if (atomic_load(&op->n_wakes) != op->n_wakes_seen) { /* new work came while we looked */
        set_awake(world, op, true);
    }
}

/* Advances everything if the lock is free. */
static void advance(tt_world *world)
{
    uint32_t turn = atomic_load_explicit(&world->turn, memory_order_relaxed);
    atomic_store_explicit(&world->turn, turn + 1,
                          memory_order_relaxed); /* a lost count does no harm */
    bool is_busy = atomic_load_explicit(&world->n_busy, memory_order_acquire) > 0;
    uint64_t now = tt_now_ns();
    bool is_talk_turn =
        turn % TALK_PERIOD == 0 ||
        now - atomic_load_explicit(&world->talked_ns, memory_order_relaxed) > TALK_PERIOD_NS;
    if ((!is_busy && !is_talk_turn) || !try_lock(world)) {
        return;
    }
    tt_status st = TT_OK;
    bool is_whole = !tt_world_is_broken(world);
    for (tti_op *op = world->ops; op && is_whole && st == TT_OK; op = op->next) {
        if (atomic_load_explicit(&op->is_awake, memory_order_acquire)) {
            op->n_wakes_seen = atomic_load(&op->n_wakes);
            st = op->advance(op);
        }
    }
    if (st == TT_OK && is_talk_turn) {
        atomic_store_explicit(&world->talked_ns, now, memory_order_relaxed);
        st = tti_talk_advance(world);
    }
    tti_unlock(world);
    if (st != TT_OK) {
        tti_world_break(world, st);
    }
}

void tti_progress(tt_world *world)
{
    if (!world->has_thread && world->size > 1) {
        advance(world);
    }
}

void tt_world_progress(tt_world *world)
{
    tti_progress(world);
}

/* ---- the thread of the world ---- */

static void progress_task(void *arg, int thread_id, int n_threads)
{
    tt_world *world = arg;
    (void)thread_id;
    (void)n_threads;
    tt_spin spin = {0};
    uint32_t seen = 0;
    while (!atomic_load_explicit(&world->thread_stop, memory_order_acquire)) {
        advance(world);
        uint32_t events = atomic_load_explicit(&world->n_events, memory_order_relaxed);
        if (events != seen) { /* work is going on: stay awake */
            seen = events;
            spin = (tt_spin){0};
        }
        tt_spin_sleepy_once(&spin);
    }
}

tt_status tti_progress_start(tt_world *world, int cpu)
{
    tt_stream_params params = {.name = "comm", .n_threads = 1, .cpu = cpu >= 0 ? &cpu : NULL};
    TT_TRY(tt_stream_create(&params, &world->thread));
    world->has_thread = true;
    tt_stream_enqueue(world->thread, "progress", progress_task, world);
    return TT_OK;
}

void tti_progress_stop(tt_world *world)
{
    if (world->has_thread) {
        atomic_store_explicit(&world->thread_stop, true, memory_order_release);
        tt_stream_destroy(&world->thread);
        world->has_thread = false;
    }
}

/* ---- the error of the group ---- */

bool tt_world_is_broken(const tt_world *world)
{
    return atomic_load_explicit(&world->error, memory_order_acquire) != TT_OK;
}

tt_status tt_world_error(const tt_world *world)
{
    int error = atomic_load_explicit(&world->error, memory_order_acquire);
    return error == TT_OK ? TT_OK : tt_status_adopt((tt_status)error, world->error_message);
}
