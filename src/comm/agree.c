/* agree.c - agreement and small collectives.
 *
 * All are non-blocking MPI collectives with a loop that tests, makes progress for everybody else,
 * and watches the deadline. Every rank counts the collectives it has entered and left in its page,
 * so that a wait can tell which ranks of its node are behind. */
#include "comm_internal.h"
#include <stdio.h>
#include <string.h>
#include "tutti/hash.h"

/* ---- waiting for one request ---- */

/* Entered and not left: whoever has not left a collective that I wait in may be the one that keeps
 * me. */
static void owing_collective(void *arg, bool *owes)
{
    const tt_world *world = arg;
    bool is_behind = false;
    for (int i = 0; i < world->n_peers && world->my_page; i++) {
        if (atomic_load_explicit(&world->page[i]->entered, memory_order_acquire) <
            world->n_entered) {
            owes[world->peer[i]] = true;
            is_behind = true;
        }
    }
    if (is_behind) {
        return;
    }
    for (int r = 0; r < world->size; r++) {
        bool has_left = world->my_page && tti_is_near(world, r) &&
                        atomic_load_explicit(&world->page[world->node_rank[r]]->done,
                                             memory_order_acquire) >= world->n_entered;
        owes[r] = !has_left;
    }
}

/* Waits until request is complete; n_bytes_out, if not NULL, gets how much was received. */
static tt_status wait_request(tt_world *world, MPI_Request *request, tti_wait *wait,
                              int *n_bytes_out)
{
    for (;;) {
        int is_done = 0;
        MPI_Status status;
        tti_lock(world);
        tt_status st = TT_MPI(MPI_Test(request, &is_done, &status));
        if (st == TT_OK && is_done && n_bytes_out) {
            st = TT_MPI(MPI_Get_count(&status, MPI_BYTE, n_bytes_out));
        }
        tti_unlock(world);
        if (st != TT_OK) {
            return tti_world_break(world, st);
        }
        if (is_done) {
            tti_wait_end(world, wait);
            return TT_OK;
        }
        tti_progress(world);
        tt_spin_sleepy_once(&wait->spin);
        st = tti_wait_check(world, wait);
        if (st != TT_OK) {
            return st;
        }
    }
}

static tt_status enter(tt_world *world)
{
    if (tt_world_is_broken(world)) {
        return tt_world_error(world);
    }
    world->n_entered++;
    if (world->my_page) {
        atomic_store_explicit(&world->my_page->entered, world->n_entered, memory_order_release);
    }
    return TT_OK;
}

static void leave(tt_world *world)
{
    if (world->my_page) {
        atomic_store_explicit(&world->my_page->done, world->n_entered, memory_order_release);
    }
}

/* Starts with `call` (an MPI call that fills `request`), waits, counts; returns on an error, as
 * TT_TRY does. */
#define TTI_TRY_COLLECTIVE(world, what_text, request, call)                                        \
    do {                                                                                           \
        tti_wait tti_wait_ = {.what = (what_text), .owing = owing_collective, .arg = (world)};     \
        TT_TRY(enter(world));                                                                      \
        tti_lock(world);                                                                           \
        tt_status tti_st_ = TT_MPI(call);                                                          \
        tti_unlock(world);                                                                         \
        if (tti_st_ != TT_OK) {                                                                    \
            return tti_world_break((world), tti_st_);                                              \
        }                                                                                          \
        TT_TRY(wait_request((world), &(request), &tti_wait_, NULL));                               \
        leave(world);                                                                              \
    } while (0)

/* ---- collectives ----
 * After a timeout MPI may still write into the buffers of the request that was given up. So
 * whatever is small, as all that lies in a caller's frame, goes through world->small, which a
 * broken world never frees. */

tt_status tt_world_barrier(tt_world *world)
{
    MPI_Request request = MPI_REQUEST_NULL;
    TTI_TRY_COLLECTIVE(world, "a barrier", request, MPI_Ibarrier(world->comm, &request));
    return TT_OK;
}

static tt_status bcast_pieces(tt_world *world, const char *what, void *data, size_t bytes, int root)
{
    MPI_Request request = MPI_REQUEST_NULL;
    size_t at = 0;
    do {
        size_t part = bytes - at < world->piece_bytes ? bytes - at : world->piece_bytes;
        TTI_TRY_COLLECTIVE(world, what, request,
                           MPI_Ibcast((unsigned char *)data + at, tti_int(part), MPI_BYTE, root,
                                      world->comm, &request));
        at += part;
    } while (at < bytes);
    return TT_OK;
}

static tt_status bcast(tt_world *world, const char *what, void *data, size_t bytes, int root)
{
    if (bytes == 0 || bytes > TTI_SMALL_BYTES) {
        return bcast_pieces(world, what, data, bytes, root);
    }
    memcpy(world->small, data, bytes);
    TT_TRY(bcast_pieces(world, what, world->small, bytes, root));
    memcpy(data, world->small, bytes);
    return TT_OK;
}

tt_status tt_world_bcast(tt_world *world, void *data, size_t bytes, int root)
{
    TT_CHECK(root >= 0 && root < world->size, TT_ERR_ARG, "broadcast from rank %d of %d", root,
             world->size);
    return bcast(world, "a broadcast", data, bytes, root);
}

tt_status tt_world_allgather(tt_world *world, const void *mine, size_t bytes, void *all)
{
    if (bytes > world->piece_bytes) { /* counts are int: one broadcast per rank, cut to pieces */
        memcpy((unsigned char *)all + (size_t)world->rank * bytes, mine, bytes);
        for (int r = 0; r < world->size; r++) {
            TT_TRY(
                bcast(world, "an all-gather", (unsigned char *)all + (size_t)r * bytes, bytes, r));
        }
        return TT_OK;
    }
    bool is_small = bytes > 0 && bytes <= TTI_SMALL_BYTES / ((size_t)world->size + 1);
    unsigned char *to = all;
    const void *from = mine;
    if (is_small) { /* small[size][bytes], then mine */
        to = world->small;
        from = memcpy(world->small + (size_t)world->size * bytes, mine, bytes);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    TTI_TRY_COLLECTIVE(world, "an all-gather", request,
                       MPI_Iallgather(from, tti_int(bytes), MPI_BYTE, to, tti_int(bytes), MPI_BYTE,
                                      world->comm, &request));
    if (is_small) {
        memcpy(all, to, (size_t)world->size * bytes);
    }
    return TT_OK;
}

tt_status tt_world_max_i64(tt_world *world, int64_t *values, int n)
{
    TT_CHECK(n >= 0, TT_ERR_ARG, "maximum of %d values", n);
    MPI_Request request = MPI_REQUEST_NULL;
    int64_t *small = (int64_t *)(void *)world->small;
    int most = TTI_SMALL_BYTES / (int)sizeof(*small), at = 0;
    do {
        int part = n - at < most ? n - at : most;
        size_t bytes = (size_t)part * sizeof(*small);
        if (part > 0) {
            memcpy(small, values + at, bytes);
        }
        TTI_TRY_COLLECTIVE(
            world, "a maximum", request,
            MPI_Iallreduce(MPI_IN_PLACE, small, part, MPI_INT64_T, MPI_MAX, world->comm, &request));
        if (part > 0) {
            memcpy(values + at, small, bytes);
        }
        at += part;
    } while (at < n);
    return TT_OK;
}

/* ---- agreement ---- */

/* One small reduction if all is well; else a second one finds the lowest rank that has the worst
 * status, which sends its message. */
tt_status tt_world_agree(tt_world *world, tt_status mine)
{
    if (world->size == 1) {
        return mine;
    }
    char text[TT_STATUS_MESSAGE_BYTES];
    snprintf(text, sizeof(text), "%s", mine == TT_OK ? "" : tt_status_message());
    int64_t key = (int64_t)(tt_hash_bytes(TT_HASH_BEGIN, text, strlen(text)) >> 1);
    /* Maxima of a value and of its negative: they cancel if all ranks have the same. */
    int64_t both[4] = {-(int64_t)mine, (int64_t)mine, key, -key};
    TT_TRY(tt_world_max_i64(world, both, 4));
    tt_status worst = (tt_status)-both[0];
    if (worst == TT_OK) {
        return TT_OK;
    }
    bool is_alike = both[0] == -both[1] && both[2] == -both[3];
    if (is_alike) {
        return tt_status_adopt(mine, text);
    }
    int64_t holder = mine == worst ? -(int64_t)world->rank : -(int64_t)world->size;
    TT_TRY(tt_world_max_i64(world, &holder, 1));
    int root = (int)-holder;
    TT_TRY(bcast(world, "an agreement", text, sizeof(text), root));
    text[sizeof(text) - 1] = 0;
    char name[TTI_NAME_BYTES], full[TT_STATUS_MESSAGE_BYTES + TTI_NAME_BYTES + 2];
    snprintf(full, sizeof(full), "%s: %s", tti_rank_name(world, root, name, sizeof(name)), text);
    return tt_status_adopt(worst, full);
}

tt_status tt_world_check_equal(tt_world *world, const char *what, const void *data, size_t bytes)
{
    int64_t key[2] = {(int64_t)bytes, (int64_t)(tt_hash_bytes(TT_HASH_BEGIN, data, bytes) >> 1)};
    int64_t first[2] = {key[0], key[1]};
    TT_TRY(bcast(world, "a comparison", first, sizeof(first), 0));
    bool differs = first[0] != key[0] || first[1] != key[1];
    int64_t lowest = differs ? -(int64_t)world->rank : -(int64_t)world->size;
    TT_TRY(tt_world_max_i64(world, &lowest, 1));
    int other = (int)-lowest;
    if (other == world->size) {
        return TT_OK;
    }
    char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
    return TT_FAIL(TT_ERR_MISMATCH, "%s differs between %s and %s", what,
                   tti_rank_name(world, 0, a, sizeof(a)),
                   tti_rank_name(world, other, b, sizeof(b)));
}

/* ---- bulk point to point ---- */

typedef struct owing_peer {
    int rank;
} owing_peer;

static void owing_one(void *arg, bool *owes)
{
    const owing_peer *peer = arg;
    owes[peer->rank] = true;
}

static tt_status bulk(tt_world *world, bool is_send, int peer, int tag, unsigned char *data,
                      size_t bytes)
{
    TT_CHECK(peer >= 0 && peer < world->size && peer != world->rank && tag >= 0 && tag <= 255,
             TT_ERR_ARG, "bulk transfer with rank %d of %d, tag %d", peer, world->size, tag);
    TT_TRY(tt_world_error(world));
    owing_peer owing = {peer};
    size_t at = 0;
    do {
        size_t part = bytes - at < world->piece_bytes ? bytes - at : world->piece_bytes;
        tti_wait wait = {
            .what = is_send ? "a send" : "a receive", .owing = owing_one, .arg = &owing};
        MPI_Request request = MPI_REQUEST_NULL;
        int got = 0;
        tti_lock(world);
        tt_status st = is_send ? TT_MPI(MPI_Isend(data + at, tti_int(part), MPI_BYTE, peer, tag,
                                                  world->bulk, &request))
                               : TT_MPI(MPI_Irecv(data + at, tti_int(part), MPI_BYTE, peer, tag,
                                                  world->bulk, &request));
        tti_unlock(world);
        if (st != TT_OK) {
            return tti_world_break(world, st);
        }
        st = wait_request(world, &request, &wait, is_send ? NULL : &got);
        if (st != TT_OK) {
            if (request != MPI_REQUEST_NULL && !is_send) { /* the caller's memory may go away */
                tti_lock(world);
                MPI_Cancel(&request);
                MPI_Request_free(&request);
                tti_unlock(world);
            }
            return st;
        }
        if (!is_send && (size_t)got != part) {
            char name[TTI_NAME_BYTES];
            return tti_world_break(
                world, TT_FAIL(TT_ERR_PROTOCOL, "expected %llu bytes from %s with tag %d, got %d",
                               (unsigned long long)part,
                               tti_rank_name(world, peer, name, sizeof(name)), tag, got));
        }
        at += part;
    } while (at < bytes);
    return TT_OK;
}

tt_status tt_world_send(tt_world *world, int peer, int tag, const void *data, size_t bytes)
{
    return bulk(world, true, peer, tag, (unsigned char *)(uintptr_t)data, bytes);
}

tt_status tt_world_recv(tt_world *world, int peer, int tag, void *data, size_t bytes)
{
    return bulk(world, false, peer, tag, data, bytes);
}
