/* blame.c - deadlines that name the culprit, on all ranks alike.
 *
 * Every wait knows which ranks it needs ("owes"). That set alone can mislead: the rank I wait for
 * may itself wait for another. So near the deadline a waiter asks all ranks for a sign of life.
 * Ranks that wait, too, answer from their own waiting loops, with the collectives they have passed
 * and the rank that blocks them. At the deadline the blame falls on
 *   1. ranks that owe and are silent; of those, the ones that have come least far (the node's pages tell even of a stopped rank);
 *   2. else on the end of a chain "A waits for B, B waits for C": a silent rank, else one that waits for nobody;
 *   3. else (chains in a circle) on those that owe and have come least far.
 * Then the waiter tells all ranks that the group is given up, and why, so that the others end at
 * once with the same culprit instead of reaching conclusions of their own. A rank that fails by
 * itself tells them in the same way. A patient wait asks early, and begins again at the deadline if
 * all that it needs have answered. These messages are small, are never waited for, and go over a
 * communicator of their own. */
#include "comm_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t talk_magic = 0x54544b31; /* "TTK1" */
enum {
    TALK_TAG = 1,
    MAX_NAMED = 6,       /* culprits named in a message; more are counted */
    TELL_NS = 100000000, /* longest stay for messages to leave before a failed rank goes on */
    BLOCKED_AFTER_NS =
        10000000 /* a wait of 10 ms says whom it waits for; shorter ones are normal */
};

/* ---- sending ---- */

static size_t slot(const tt_world *world, tti_talk_kind kind, int rank)
{
    return (size_t)kind * (size_t)world->size + (size_t)rank;
}

/* Sends if the last message of this kind to this rank has left; a rank that takes nothing in gets
 * nothing more. */
static void say(tt_world *world, tti_talk_kind kind, int rank, int code, const char *text)
{
    tti_talk *talk = &world->talk;
    size_t at = slot(world, kind, rank);
    int is_free = 1;
    tt_steady_enter_foreign();
    MPI_Test(&talk->request[at], &is_free, MPI_STATUS_IGNORE);
    tt_steady_leave_foreign();
    if (!is_free) {
        return;
    }
    tti_talk_message *m = &talk->out[at];
    memset(m, 0, sizeof(*m));
    m->magic = talk_magic;
    m->kind = (int32_t)kind;
    m->rank = world->rank;
    m->entered = atomic_load_explicit(&world->my_page->entered, memory_order_relaxed);
    m->done = atomic_load_explicit(&world->my_page->done, memory_order_relaxed);
    m->voted = atomic_load_explicit(&world->my_page->voted, memory_order_relaxed);
    m->blocked_on = atomic_load_explicit(&talk->blocked_on, memory_order_relaxed);
    m->code = code;
    snprintf(m->text, sizeof(m->text), "%s", text);
    tt_steady_enter_foreign();
    MPI_Isend(m, (int)sizeof(*m), MPI_BYTE, rank, TALK_TAG, talk->comm, &talk->request[at]);
    tt_steady_leave_foreign();
}

/* ---- the error of the group ---- */

/* Keeps the first error. */
static tt_status set_error(tt_world *world, tt_status code, const char *message)
{
    if (!atomic_flag_test_and_set(&world->error_lock)) {
        snprintf(world->error_message, sizeof(world->error_message), "%s", message);
        atomic_store_explicit(&world->error, (int)code, memory_order_release);
        return code;
    }
    tt_spin spin = {0};
    while (!tt_world_is_broken(world)) { /* another thread is just writing it */
        tt_spin_once(&spin);
    }
    return tt_world_error(world);
}

/* Tells all ranks the error of the group. */
static void tell_all(tt_world *world, tti_talk_kind kind)
{
    if (world->talk.comm == MPI_COMM_NULL) {
        return;
    }
    int code = atomic_load_explicit(&world->error, memory_order_acquire);
    tti_lock(world);
    for (int r = 0; r < world->size; r++) {
        if (r != world->rank) {
            say(world, kind, r, code, world->error_message);
        }
    }
    tti_unlock(world);
}

tt_status tti_world_break(tt_world *world, tt_status code)
{
    if (tt_world_is_broken(world)) {
        return tt_world_error(world);
    }
    tt_status st = set_error(world, code, tt_status_message());
    tell_all(world, TTI_TALK_GIVE_UP);
    return st;
}

/* The process may end soon, and no one else would move these messages. */
static void wait_told(tt_world *world, tti_talk_kind kind)
{
    MPI_Request *request = &world->talk.request[slot(world, kind, 0)];
    tt_spin spin = {0};
    uint64_t begin_ns = tt_now_ns();
    int is_sent = 0;
    while (!is_sent && tt_now_ns() - begin_ns < TELL_NS) {
        tti_lock(world);
        tt_status st = TT_MPI(MPI_Testall(world->size, request, &is_sent, MPI_STATUSES_IGNORE));
        tti_unlock(world);
        if (st != TT_OK) {
            return;
        }
        tt_spin_once(&spin);
    }
}

void tt_world_fail(tt_world *world, tt_status st)
{
    TT_ASSERT(st != TT_OK);
    if (tt_world_is_broken(world)) {
        return;
    }
    char name[TTI_NAME_BYTES], text[TTI_TALK_TEXT_BYTES]; /* the same on all ranks */
    if (world->size == 1) {
        set_error(world, st, tt_status_message());
        return;
    }
    snprintf(text, sizeof(text), "%s: %s", tti_rank_name(world, world->rank, name, sizeof(name)),
             tt_status_message());
    set_error(world, st, text);
    if (world->talk.comm != MPI_COMM_NULL) {
        tell_all(world, TTI_TALK_FAILED);
        wait_told(world, TTI_TALK_FAILED);
    }
}

void tt_world_set_patient(tt_world *world, bool patient)
{
    atomic_store_explicit(&world->is_patient, patient, memory_order_relaxed);
}

/* ---- receiving ---- */

static tt_status listen(tt_world *world)
{
    return TT_MPI(MPI_Irecv(&world->talk.in, (int)sizeof(world->talk.in), MPI_BYTE, MPI_ANY_SOURCE,
                            TALK_TAG, world->talk.comm, &world->talk.receive));
}

static void take_in(tt_world *world, tti_talk_message *m, int from)
{
    char name[TTI_NAME_BYTES], text[TT_STATUS_MESSAGE_BYTES];
    m->text[sizeof(m->text) - 1] = 0;
    switch (m->kind) {
    case TTI_TALK_ASK:
        say(world, TTI_TALK_ANSWER, from, TT_OK, "");
        break;
    case TTI_TALK_ANSWER: {
        tti_answer *a = &world->talk.answer[from];
        a->heard_ns = tt_now_ns();
        a->entered = m->entered;
        a->done = m->done;
        a->voted = m->voted;
        a->blocked_on = m->blocked_on >= 0 && m->blocked_on < world->size ? m->blocked_on : -1;
        break;
    }
    case TTI_TALK_GIVE_UP: {
        /* What was lost stays what it was for a timeout; other faults of a peer are the fault of a
         * peer here. */
        tt_status code = m->code == TT_ERR_TIMEOUT ? TT_ERR_TIMEOUT : TT_ERR_PEER;
        snprintf(text, sizeof(text), "%s (found by %s)", m->text,
                 tti_rank_name(world, from, name, sizeof(name)));
        set_error(world, code, text);
        break;
    }
    case TTI_TALK_FAILED: /* the sender's own failure is everybody's: same code, same text */
        set_error(world, m->code < TT_OK ? (tt_status)m->code : TT_ERR_PEER, m->text);
        break;
    default:
        break;
    }
}

tt_status tti_talk_advance(tt_world *world)
{
    tti_talk *talk = &world->talk;
    if (talk->receive == MPI_REQUEST_NULL) {
        return TT_OK;
    }
    for (;;) {
        int is_here = 0;
        MPI_Status status;
        TT_TRY(TT_MPI(MPI_Test(&talk->receive, &is_here, &status)));
        if (!is_here) {
            return TT_OK;
        }
        int from = status.MPI_SOURCE, bytes = 0;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        tti_talk_message m = talk->in;
        TT_TRY(listen(world));
        if (bytes == (int)sizeof(m) && m.magic == talk_magic) {
            take_in(world, &m, from);
        }
    }
}

/* ---- the inquiry ---- */

static void ask_all_locked(tt_world *world)
{
    for (int r = 0; r < world->size; r++) {
        if (r != world->rank) {
            say(world, TTI_TALK_ASK, r, TT_OK, "");
        }
    }
}

static bool is_silent(const tt_world *world, int rank)
{
    return rank != world->rank && world->talk.answer[rank].heard_ns < world->talk.asked_ns;
}

/* How far a rank has come, as far as is known: its page if it is near, else its last answer. */
static uint64_t progress_of(const tt_world *world, int rank)
{
    if (tti_is_near(world, rank)) {
        const tti_page *page = world->page[world->node_rank[rank]];
        return atomic_load_explicit(&page->entered, memory_order_acquire) +
               atomic_load_explicit(&page->done, memory_order_acquire) +
               atomic_load_explicit(&page->voted, memory_order_acquire);
    }
    const tti_answer *a = &world->talk.answer[rank];
    return is_silent(world, rank) ? 0 : a->entered + a->done + a->voted;
}

static uint64_t own_progress(const tt_world *world)
{
    return progress_of(world, world->rank);
}

/* Keeps in owes[] only those of the marked ranks that pass: the silent ones, or the least far.
 * Returns how many. */
static int keep_silent(const tt_world *world, bool *owes)
{
    int n = 0;
    for (int r = 0; r < world->size; r++) {
        n += owes[r] && is_silent(world, r);
    }
    for (int r = 0; r < world->size && n > 0; r++) {
        owes[r] = owes[r] && is_silent(world, r);
    }
    return n;
}

static void keep_least_far(const tt_world *world, bool *owes)
{
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < world->size; r++) {
        if (owes[r] && progress_of(world, r) < least) {
            least = progress_of(world, r);
        }
    }
    for (int r = 0; r < world->size; r++) {
        owes[r] = owes[r] && progress_of(world, r) == least;
    }
}

/* The rank at the end of "r waits for A, A waits for B": it is silent, or waits for nobody. -1: the
 * chain leads back. */
static int chain_end(const tt_world *world, int r)
{
    int at = r;
    for (int step = 0; step < world->size; step++) {
        if (at == world->rank) {
            return -1;
        }
        int next = world->talk.answer[at].blocked_on;
        if (is_silent(world, at) || next < 0) {
            return at;
        }
        at = next;
    }
    return -1;
}

/* Leaves one rank in owes[]: of the ends of all chains a silent one, else the least far. False if
 * all chains lead back. */
static bool follow_chains(const tt_world *world, bool *owes)
{
    int culprit = -1;
    for (int r = 0; r < world->size; r++) {
        int end = owes[r] ? chain_end(world, r) : -1;
        if (end < 0 || end == culprit) {
            continue;
        }
        bool is_better = culprit < 0 || (is_silent(world, end) && !is_silent(world, culprit));
        bool is_equal = culprit >= 0 && is_silent(world, end) == is_silent(world, culprit);
        if (is_better || (is_equal && progress_of(world, end) < progress_of(world, culprit))) {
            culprit = end;
        }
    }
    if (culprit < 0) {
        return false;
    }
    memset(owes, 0, (size_t)world->size * sizeof(*owes));
    owes[culprit] = true;
    return true;
}

/* "rank 3 (host), rank 5 (host) and 2 more" */
static void list_ranks(const tt_world *world, const bool *owes, char *text, size_t bytes)
{
    int n = 0;
    size_t used = 0;
    text[0] = 0;
    for (int r = 0; r < world->size; r++) {
        if (owes[r] && n++ < MAX_NAMED && used < bytes) {
            char name[TTI_NAME_BYTES];
            int more = snprintf(text + used, bytes - used, "%s%s", n > 1 ? ", " : "",
                                tti_rank_name(world, r, name, sizeof(name)));
            used += more > 0 ? (size_t)more : 0;
        }
    }
    if (n > MAX_NAMED && used < bytes) {
        snprintf(text + used, bytes - used, " and %d more", n - MAX_NAMED);
    }
    if (n == 0) {
        snprintf(text, bytes, "ranks unknown");
    }
}

/* Whether all ranks that the wait needs have answered since they were asked. */
static bool is_alive_locked(tt_world *world, const tti_wait *wait)
{
    bool *owes = world->talk.owes;
    world->talk.asked_ns = wait->asked_ns;
    memset(owes, 0, (size_t)world->size * sizeof(*owes));
    wait->owing(wait->arg, owes);
    owes[world->rank] = false;
    return keep_silent(world, owes) == 0;
}

/* The wait begins again; all will be asked again. */
static void renew(tt_world *world, tti_wait *wait, uint64_t now)
{
    wait->since_ns = now;
    wait->asked_ns = 0;
    atomic_store_explicit(&world->talk.blocked_on, -1, memory_order_relaxed);
}

static tt_status blame_locked(tt_world *world, tti_wait *wait, uint64_t waited_ns)
{
    bool *owes = world->talk.owes;
    world->talk.asked_ns = wait->asked_ns;
    memset(owes, 0, (size_t)world->size * sizeof(*owes));
    wait->owing(wait->arg, owes);
    owes[world->rank] = false;
    if (keep_silent(world, owes) > 0 || !follow_chains(world, owes)) {
        keep_least_far(world, owes);
    }
    const char *state =
        keep_silent(world, owes) > 0 ? "no answer" : "alive, but does not take part";
    char names[TTI_TALK_TEXT_BYTES / 2];
    list_ranks(world, owes, names, sizeof(names));
    return TT_FAIL(TT_ERR_TIMEOUT, "waited %.1f s in %s for %s: %s", (double)waited_ns * 1e-9,
                   wait->what, names, state);
}

/* ---- waits ---- */

static void show_blocked(tt_world *world, tti_wait *wait)
{
    bool *owes = world->talk.owes;
    tti_lock(world);
    memset(owes, 0, (size_t)world->size * sizeof(*owes));
    wait->owing(wait->arg, owes);
    owes[world->rank] = false;
    int first = -1;
    uint64_t least = own_progress(world) + 1;
    for (int r = world->size - 1; r >= 0; r--) {
        if (owes[r] && tti_is_near(world, r) && progress_of(world, r) <= least) {
            least = progress_of(world, r);
            first = r;
        }
    }
    for (int r = 0; r < world->size && first < 0; r++) {
        first = owes[r] ? r : -1;
    }
    atomic_store_explicit(&world->talk.blocked_on, first, memory_order_relaxed);
    tti_unlock(world);
}

tt_status tti_wait_check(tt_world *world, tti_wait *wait)
{
    if (tt_world_is_broken(world)) {
        return tt_world_error(world);
    }
    uint64_t now = tt_now_ns();
    if (wait->since_ns == 0) {
        wait->since_ns = now;
    }
    uint64_t waited = now - wait->since_ns;
    if (waited < BLOCKED_AFTER_NS || world->talk.comm == MPI_COMM_NULL) {
        return TT_OK;
    }
    /* Long local work answers seldom: a patient wait asks early, so that nearly the whole deadline
     * is left to answer. */
    bool is_patient = atomic_load_explicit(&world->is_patient, memory_order_relaxed);
    uint64_t last_quiet_ns = world->deadline_ns - world->grace_ns;
    if (waited < last_quiet_ns &&
        atomic_load_explicit(&world->talk.blocked_on, memory_order_relaxed) < 0) {
        show_blocked(world, wait);
    }
    if (waited < (is_patient ? world->grace_ns : last_quiet_ns)) {
        return TT_OK;
    }
    /* Questions of peers must be answered here, too, if nobody else makes progress. */
    tti_lock(world);
    if (wait->asked_ns == 0) {
        wait->asked_ns = now;
        ask_all_locked(world);
    }
    tt_status st = tti_talk_advance(world);
    if (st == TT_OK && !tt_world_is_broken(world) && waited >= world->deadline_ns) {
        if (is_patient && is_alive_locked(world, wait)) {
            renew(world, wait, now);
        } else {
            st = blame_locked(world, wait, waited);
        }
    }
    tti_unlock(world);
    if (st != TT_OK) {
        return tti_world_break(world, st);
    }
    return tt_world_error(world);
}

tt_status tti_wait_once(tt_world *world, tti_wait *wait)
{
    tti_progress(world);
    tt_spin_once(&wait->spin);
    return tti_wait_check(world, wait);
}

void tti_wait_end(tt_world *world, tti_wait *wait)
{
    if (wait->since_ns != 0) {
        wait->since_ns = 0;
        wait->asked_ns = 0;
        atomic_store_explicit(&world->talk.blocked_on, -1, memory_order_relaxed);
    }
}

/* ---- life ---- */

tt_status tti_talk_open(tt_world *world)
{
    tti_talk *talk = &world->talk;
    size_t n = (size_t)TTI_TALK_KINDS * (size_t)world->size;
    talk->out = calloc(n, sizeof(*talk->out));
    talk->request = calloc(n, sizeof(MPI_Request));
    talk->answer = calloc((size_t)world->size, sizeof(*talk->answer));
    talk->owes = calloc((size_t)world->size, sizeof(*talk->owes));
    tt_status st = TT_OK;
    if (!talk->out || !talk->request || !talk->answer || !talk->owes) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for the messages about trouble of %d ranks",
                     world->size);
    }
    for (size_t i = 0; i < n && talk->request; i++) { /* close looks at them even after a failure */
        talk->request[i] = MPI_REQUEST_NULL;
    }
    TT_TRY(tt_world_agree(world, st));
    MPI_Comm comm = MPI_COMM_NULL;
    TT_TRY(tti_comm_dup(world, &comm));
    tti_lock(world);
    talk->comm = comm;
    st = listen(world);
    tti_unlock(world);
    return tt_world_agree(world, st);
}

void tti_talk_close(tt_world *world)
{
    tti_talk *talk = &world->talk;
    if (!tti_meet(world)) {
        return; /* peers may still be told; the buffers stay */
    }
    tti_lock(world);
    if (talk->receive != MPI_REQUEST_NULL) {
        MPI_Cancel(&talk->receive);
        MPI_Wait(&talk->receive, MPI_STATUS_IGNORE);
    }
    int is_sent = 1;
    if (talk->request) {
        MPI_Testall(TTI_TALK_KINDS * world->size, talk->request, &is_sent, MPI_STATUSES_IGNORE);
    }
    for (size_t i = 0; !is_sent && i < (size_t)TTI_TALK_KINDS * (size_t)world->size; i++) {
        if (talk->request[i] != MPI_REQUEST_NULL) {
            MPI_Request_free(&talk->request[i]); /* for a rank that has closed already */
        }
    }
    MPI_Comm comm = talk->comm;
    talk->comm = MPI_COMM_NULL; /* from here on no wait has a deadline */
    tti_unlock(world);
    tti_comm_free(world, &comm);
    if (is_sent) { /* else MPI may still read it: a leak of some kilobytes, once, after trouble */
        free(talk->out);
    }
    free(talk->request);
    free(talk->answer);
    free(talk->owes);
    talk->out = NULL;
    talk->request = NULL;
    talk->answer = NULL;
    talk->owes = NULL;
}
