/* vote.c - the step header: the maximum of a few numbers over all ranks.
 *
 * Inside a node each rank writes its numbers into its page and reads those of the others; no MPI.
 * Between nodes the node leaders send their node's maximum to every other leader (one hop, one
 * small message per pair; nodes are few) and publish the maximum over the other nodes in their
 * page. So each wait knows exactly who is missing: ranks of the node by their pages, nodes by their
 * leader's message. */
#include "comm_internal.h"
#include <stdlib.h>
#include <string.h>

static const uint64_t vote_magic = 0x7475747469766f74u; /* "tuttivot" */
enum { VOTE_TAG = 1 };

static int my_node(const tt_world *world)
{
    return world->node[world->rank];
}

static bool is_leader(const tt_world *world)
{
    return world->node_rank[world->rank] == 0;
}

static void fold(int64_t *into, const int64_t *value, int n)
{
    for (int i = 0; i < n; i++) {
        into[i] = value[i] > into[i] ? value[i] : into[i];
    }
}

static bool has_voted(const tt_world *world, int peer_id, uint64_t seq)
{
    const tti_vote_slot *slot = &world->page[peer_id]->vote[seq & 1];
    return atomic_load_explicit(&slot->seq, memory_order_acquire) == seq;
}

static bool node_has_voted(const tt_world *world, uint64_t seq)
{
    for (int i = 0; i < world->n_peers; i++) {
        if (!has_voted(world, i, seq)) {
            return false;
        }
    }
    return true;
}

static tt_status fold_node(tt_world *world, uint64_t seq, int n, int64_t *value)
{
    for (int i = 0; i < world->n_peers; i++) {
        const tti_vote_slot *slot = &world->page[i]->vote[seq & 1];
        char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
        TT_CHECK(slot->n == n, TT_ERR_PROTOCOL, "vote %llu has %d numbers on %s and %d on %s",
                 (unsigned long long)seq, n, tti_rank_name(world, world->rank, a, sizeof(a)),
                 (int)slot->n, tti_rank_name(world, world->peer[i], b, sizeof(b)));
        fold(value, slot->value, n);
    }
    return TT_OK;
}

/* ---- between nodes, on leaders; called by progress ---- */

static tt_status send_to_leaders(tt_world *world)
{
    tti_vote *vote = &world->vote;
    int parity = (int)(vote->current & 1);
    tti_vote_message *out = &vote->out[parity];
    out->magic = vote_magic;
    out->seq = vote->current;
    out->n = vote->current_n;
    for (int i = 0; i < vote->current_n; i++) {
        out->value[i] = INT64_MIN;
    }
    TT_TRY(fold_node(world, vote->current, vote->current_n, out->value));
    for (int step = 1; step < world->n_nodes;
         step++) { /* rotated, so that not all begin with the same */
        int node = (my_node(world) + step) % world->n_nodes;
        TT_TRY(TT_MPI(MPI_Isend(out, (int)sizeof(*out), MPI_BYTE, world->node_first[node], VOTE_TAG,
                                vote->comm, &vote->send[parity][node])));
    }
    return TT_OK;
}

static tt_status receive_from(tt_world *world, int node, bool *is_here_out)
{
    tti_vote *vote = &world->vote;
    int is_here = 0;
    *is_here_out = false;
    TT_TRY(TT_MPI(MPI_Test(&vote->receive[node], &is_here, MPI_STATUS_IGNORE)));
    if (!is_here) {
        return TT_OK;
    }
    const tti_vote_message *in = &vote->in[node];
    char name[TTI_NAME_BYTES], mine[TTI_NAME_BYTES];
    TT_CHECK(in->magic == vote_magic && in->seq == vote->current && in->n == vote->current_n,
             TT_ERR_PROTOCOL, "%s is at vote %llu with %d numbers, but %s sent vote %llu with %lld",
             tti_rank_name(world, world->rank, mine, sizeof(mine)),
             (unsigned long long)vote->current, vote->current_n,
             tti_rank_name(world, world->node_first[node], name, sizeof(name)),
             (unsigned long long)in->seq, (long long)in->n);
    fold(vote->others, in->value, vote->current_n);
    /* The next message of this peer belongs to the next vote: it is not looked at before that. */
    TT_TRY(TT_MPI(MPI_Start(&vote->receive[node])));
    atomic_fetch_add_explicit(&world->n_events, 1, memory_order_relaxed);
    *is_here_out = true;
    return TT_OK;
}

static void publish_others(tt_world *world)
{
    tti_vote *vote = &world->vote;
    tti_vote_slot *slot = &world->my_page->others[vote->current & 1];
    slot->n = vote->current_n;
    memcpy(slot->value, vote->others, sizeof(vote->others));
    atomic_store_explicit(&slot->seq, vote->current, memory_order_release);
}

static bool has_new_vote(const tti_vote *vote)
{
    return atomic_load_explicit(&vote->begun, memory_order_acquire) > vote->current;
}

static void take_up(tt_world *world)
{
    tti_vote *vote = &world->vote;
    vote->current = atomic_load_explicit(&vote->begun, memory_order_acquire);
    vote->current_n = (int)world->my_page->vote[vote->current & 1].n;
    for (int node = 0; node < world->n_nodes; node++) {
        atomic_store_explicit(&vote->got[node], false, memory_order_relaxed);
    }
    for (int i = 0; i < TT_VOTE_MAX; i++) {
        vote->others[i] = INT64_MIN;
    }
    vote->stage = TTI_VOTE_NODE;
    atomic_store_explicit(&vote->arrived, vote->current, memory_order_release);
}

static tt_status receive_all(tt_world *world, bool *all_out)
{
    tti_vote *vote = &world->vote;
    *all_out = true;
    for (int node = 0; node < world->n_nodes; node++) {
        bool got =
            node == my_node(world) || atomic_load_explicit(&vote->got[node], memory_order_relaxed);
        if (!got) {
            TT_TRY(receive_from(world, node, &got));
            atomic_store_explicit(&vote->got[node], got, memory_order_relaxed);
        }
        *all_out = *all_out && got;
    }
    return TT_OK;
}

static tt_status advance(tti_op *op)
{
    tt_world *world = op->arg;
    tti_vote *vote = &world->vote;
    int sent = 1;
    if ((vote->stage == TTI_VOTE_IDLE || vote->stage == TTI_VOTE_SENT) && has_new_vote(vote)) {
        take_up(world);
    }
    int parity = (int)(vote->current & 1);
    if (vote->stage == TTI_VOTE_NODE) {
        /* The messages of two votes ago are read by now, but MPI must have said so before their
         * buffer is used again. */
        TT_TRY(TT_MPI(MPI_Testall(world->n_nodes, vote->send[parity], &sent, MPI_STATUSES_IGNORE)));
        if (!sent || !node_has_voted(world, vote->current)) {
            return TT_OK;
        }
        TT_TRY(send_to_leaders(world));
        vote->stage = TTI_VOTE_WIRE;
    }
    if (vote->stage == TTI_VOTE_WIRE) {
        bool all = false;
        TT_TRY(receive_all(world, &all));
        if (!all) {
            return TT_OK;
        }
        publish_others(world);
        vote->stage = TTI_VOTE_SENT;
    }
    if (vote->stage == TTI_VOTE_SENT) {
        TT_TRY(TT_MPI(MPI_Testall(world->n_nodes, vote->send[parity], &sent, MPI_STATUSES_IGNORE)));
        vote->stage = sent ? TTI_VOTE_IDLE : TTI_VOTE_SENT;
    }
    if (vote->stage == TTI_VOTE_IDLE) {
        tti_op_rest(world, op);
    }
    return TT_OK;
}

/* ---- begin, end ---- */

tt_status tt_vote_begin(tt_world *world, const int64_t *values, int n)
{
    tti_vote *vote = &world->vote;
    TT_CHECK(n >= 0 && n <= TT_VOTE_MAX, TT_ERR_ARG, "a vote on %d numbers, the most is %d", n,
             (int)TT_VOTE_MAX);
    TT_CHECK(!vote->is_open, TT_ERR_STATE, "a vote is under way");
    TT_TRY(tt_world_error(world));
    vote->seq++;
    vote->n = n;
    vote->is_open = true;
    tti_vote_slot *slot = &world->my_page->vote[vote->seq & 1];
    slot->n = n;
    memcpy(slot->value, values, (size_t)n * sizeof(*values));
    atomic_store_explicit(&world->my_page->voted, vote->seq, memory_order_release);
    atomic_store_explicit(&slot->seq, vote->seq, memory_order_release);
    if (world->n_nodes > 1 && is_leader(world)) {
        atomic_store(&vote->begun, vote->seq);
        tti_op_wake(world, &vote->op);
    }
    tti_progress(world);
    return TT_OK;
}

static void owing_vote(void *arg, bool *owes)
{
    const tt_world *world = arg;
    const tti_vote *vote = &world->vote;
    bool is_node_missing = false;
    for (int i = 0; i < world->n_peers; i++) {
        if (!has_voted(world, i, vote->seq)) {
            owes[world->peer[i]] = true;
            is_node_missing = true;
        }
    }
    if (is_node_missing || world->n_nodes == 1) {
        return;
    }
    if (!is_leader(world)) {
        owes[world->peer[0]] = true;
        return;
    }
    bool is_current = atomic_load_explicit(&vote->arrived, memory_order_acquire) == vote->seq;
    for (int node = 0; node < world->n_nodes; node++) {
        if (node != my_node(world) &&
            !(is_current && atomic_load_explicit(&vote->got[node], memory_order_relaxed))) {
            owes[world->node_first[node]] = true;
        }
    }
}

tt_status tt_vote_end(tt_world *world, int64_t *values_out)
{
    tti_vote *vote = &world->vote;
    TT_CHECK(vote->is_open, TT_ERR_STATE, "no vote is under way");
    const tti_vote_slot *others = &world->page[0]->others[vote->seq & 1];
    tti_wait wait = {.what = "the vote", .owing = owing_vote, .arg = world};
    for (;;) {
        bool is_done = node_has_voted(world, vote->seq) &&
                       (world->n_nodes == 1 ||
                        atomic_load_explicit(&others->seq, memory_order_acquire) == vote->seq);
        if (is_done) {
            break;
        }
        tti_progress(world);
        tt_spin_sleepy_once(&wait.spin); /* idle servers wait here */
        tt_status st = tti_wait_check(world, &wait);
        if (st != TT_OK) {
            vote->is_open = false;
            return st;
        }
    }
    tti_wait_end(world, &wait);
    vote->is_open = false;
    int64_t best[TT_VOTE_MAX];
    for (int i = 0; i < vote->n; i++) {
        best[i] = INT64_MIN;
    }
    tt_status st = fold_node(world, vote->seq, vote->n, best);
    if (st != TT_OK) {
        return tti_world_break(world, st);
    }
    if (world->n_nodes > 1) {
        fold(best, others->value, vote->n);
    }
    memcpy(values_out, best, (size_t)vote->n * sizeof(*best));
    return TT_OK;
}

/* ---- life ---- */

tt_status tti_vote_open(tt_world *world)
{
    tti_vote *vote = &world->vote;
    if (world->n_nodes == 1) {
        return TT_OK;
    }
    size_t n = (size_t)world->n_nodes;
    vote->in = calloc(n, sizeof(*vote->in));
    vote->receive = calloc(n, sizeof(MPI_Request));
    vote->got = calloc(n, sizeof(*vote->got));
    vote->send[0] = calloc(n, sizeof(MPI_Request));
    vote->send[1] = calloc(n, sizeof(MPI_Request));
    tt_status st = TT_OK;
    if (!vote->in || !vote->receive || !vote->got || !vote->send[0] || !vote->send[1]) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for votes of %d nodes", world->n_nodes);
    }
    for (size_t i = 0; i < n && st == TT_OK; i++) {
        vote->receive[i] = vote->send[0][i] = vote->send[1][i] = MPI_REQUEST_NULL;
    }
    TT_TRY(tt_world_agree(world, st));
    TT_TRY(tti_comm_dup(world, &vote->comm));
    tti_lock(world);
    for (int node = 0; node < world->n_nodes; node++) {
        if (st == TT_OK && is_leader(world) && node != my_node(world)) {
            st = TT_MPI(MPI_Recv_init(&vote->in[node], (int)sizeof(vote->in[node]), MPI_BYTE,
                                      world->node_first[node], VOTE_TAG, vote->comm,
                                      &vote->receive[node]));
            if (st == TT_OK) {
                st = TT_MPI(MPI_Start(&vote->receive[node]));
            }
        }
    }
    tti_unlock(world);
    vote->op = (tti_op){.advance = advance, .arg = world};
    tti_op_register(world, &vote->op);
    return tt_world_agree(world, st);
}

void tti_vote_close(tt_world *world)
{
    tti_vote *vote = &world->vote;
    if (tt_world_is_broken(world)) {
        return;
    }
    if (vote->op.advance) {
        tti_op_unregister(world, &vote->op);
    }
    tti_lock(world);
    for (int node = 0; node < world->n_nodes && vote->op.advance; node++) { /* else never opened */
        if (vote->receive[node] != MPI_REQUEST_NULL) {
            MPI_Cancel(&vote->receive[node]);
            MPI_Wait(&vote->receive[node], MPI_STATUS_IGNORE);
            MPI_Request_free(&vote->receive[node]);
        }
        for (int parity = 0; parity < 2;
             parity++) { /* read by their receivers: all ranks are past the barrier */
            if (vote->send[parity][node] != MPI_REQUEST_NULL) {
                MPI_Wait(&vote->send[parity][node], MPI_STATUS_IGNORE);
            }
        }
    }
    tti_unlock(world);
    tti_comm_free(world, &vote->comm);
    free(vote->in);
    free(vote->receive);
    free(vote->got);
    free(vote->send[0]);
    free(vote->send[1]);
    vote->in = NULL;
    vote->receive = NULL;
    vote->got = NULL;
    vote->send[0] = vote->send[1] = NULL;
}
