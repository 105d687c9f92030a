/* relay.c - pieces of a file go from one reader to all members of a node through a shared window.
 *
 * Piece p is read by member p mod n into its place (p div n) mod 2. A place holds the number of the
 * piece that is published in it; a member's `done` line says how many pieces it has released.
 * Invariant: piece p is written once all have released piece p - 2n, which lay in the same place,
 * and only while p < q + n, q being the piece that the reader itself takes next; so nobody waits
 * for a place that only it could free. */
#include "comm_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include "tutti/relay.h"

enum { N_PLACES = 2 };

/* Head of a place. */
typedef struct place_head {
    alignas(TT_CACHE_LINE) _Atomic uint64_t published; /* piece + 1; release after all else is
                                                        * written */
    int64_t code;
    char text[TT_STATUS_MESSAGE_BYTES];
} place_head;

/* A member's window part: this, then N_PLACES heads each with its bytes. */
typedef struct part_head {
    alignas(TT_CACHE_LINE) _Atomic uint64_t done; /* pieces released */
    _Atomic int64_t failed;                       /* the member's status; release after the text */
    char text[TT_STATUS_MESSAGE_BYTES];
} part_head;

struct tt_relay {
    tt_world *world;
    int n, me;        /* members; my place */
    int *member;      /* member[n]: world ranks, ascending */
    part_head **part; /* part[n] */
    size_t piece_bytes;
    uint64_t next;    /* piece to take */
    uint64_t reading; /* piece that this member reads next, or is reading */
    tti_window window;
};

static place_head *place_of(const tt_relay *relay, uint64_t piece)
{
    uint64_t n = (uint64_t)relay->n;
    size_t stride = sizeof(place_head) + tti_align(relay->piece_bytes);
    unsigned char *first = (unsigned char *)(relay->part[piece % n] + 1);
    return (place_head *)(void *)(first + (piece / n) % N_PLACES * stride);
}

/* ---- waits ---- */

/* Who has not yet released the piece that lies where the next one goes. */
static void owing_release(void *arg, bool *owes)
{
    const tt_relay *relay = arg;
    uint64_t ahead = N_PLACES * (uint64_t)relay->n;
    for (int m = 0; m < relay->n; m++) {
        uint64_t done = atomic_load_explicit(&relay->part[m]->done, memory_order_acquire);
        owes[relay->member[m]] = done + ahead <= relay->reading;
    }
}

static void owing_piece(void *arg, bool *owes)
{
    const tt_relay *relay = arg;
    const place_head *head = place_of(relay, relay->next);
    uint64_t published = atomic_load_explicit(&head->published, memory_order_acquire);
    owes[relay->member[relay->next % (uint64_t)relay->n]] = published != relay->next + 1;
}

static bool is_free(const tt_relay *relay)
{
    uint64_t ahead = N_PLACES * (uint64_t)relay->n;
    for (int m = 0; m < relay->n; m++) {
        if (atomic_load_explicit(&relay->part[m]->done, memory_order_acquire) + ahead <=
            relay->reading) {
            return false;
        }
    }
    return true;
}

/* A member's error, told as its own. */
static tt_status adopt(const tt_relay *relay, int m, int64_t code,
                       char text[TT_STATUS_MESSAGE_BYTES])
{
    char name[TTI_NAME_BYTES], full[TT_STATUS_MESSAGE_BYTES + TTI_NAME_BYTES + 2];
    text[TT_STATUS_MESSAGE_BYTES - 1] = 0;
    snprintf(full, sizeof(full), "%s: %s",
             tti_rank_name(relay->world, relay->member[m], name, sizeof(name)), text);
    return tt_status_adopt((tt_status)code, full);
}

/* The error of the first other member that gave up. */
static tt_status failed_member(const tt_relay *relay)
{
    for (int m = 0; m < relay->n; m++) {
        int64_t code = m == relay->me
                           ? TT_OK
                           : atomic_load_explicit(&relay->part[m]->failed, memory_order_acquire);
        if (code != TT_OK) {
            return adopt(relay, m, code, relay->part[m]->text);
        }
    }
    return TT_OK;
}

tt_status tt_relay_begin(tt_relay *relay, uint64_t n_left, uint64_t *ahead_out, void **place_out)
{
    *place_out = NULL;
    *ahead_out = relay->reading - relay->next;
    if (*ahead_out >= n_left || *ahead_out >= (uint64_t)relay->n) {
        return TT_OK;
    }
    tti_wait wait = {.what = "a place to read a file into", .owing = owing_release, .arg = relay};
    while (!is_free(relay)) {
        TT_TRY(failed_member(relay));
        TT_TRY(tti_wait_once(relay->world, &wait));
    }
    tti_wait_end(relay->world, &wait);
    *place_out = place_of(relay, relay->reading) + 1;
    return TT_OK;
}

void tt_relay_publish(tt_relay *relay, tt_status st)
{
    place_head *head = place_of(relay, relay->reading);
    head->code = st;
    if (st != TT_OK) {
        snprintf(head->text, sizeof(head->text), "%s", tt_status_message());
    }
    atomic_store_explicit(&head->published, relay->reading + 1, memory_order_release);
    relay->reading += (uint64_t)relay->n;
}

void tt_relay_fail(tt_relay *relay, tt_status st)
{
    part_head *mine = relay->n > 0 ? relay->part[relay->me] : NULL;
    if (mine && atomic_load_explicit(&mine->failed, memory_order_relaxed) == TT_OK) {
        snprintf(mine->text, sizeof(mine->text), "%s", tt_status_message());
        atomic_store_explicit(&mine->failed, st, memory_order_release);
    }
}

tt_status tt_relay_take(tt_relay *relay, const void **piece_out)
{
    place_head *head = place_of(relay, relay->next);
    tti_wait wait = {
        .what = "a piece of a file that another rank reads", .owing = owing_piece, .arg = relay};
    while (atomic_load_explicit(&head->published, memory_order_acquire) != relay->next + 1) {
        TT_TRY(failed_member(relay));
        TT_TRY(tti_wait_once(relay->world, &wait));
    }
    tti_wait_end(relay->world, &wait);
    int reader = (int)(relay->next % (uint64_t)relay->n);
    if (head->code != TT_OK && reader != relay->me) {
        return adopt(relay, reader, head->code, head->text);
    }
    *piece_out = head + 1;
    return (tt_status)head->code; /* the reader's own message is still there */
}

void tt_relay_release(tt_relay *relay)
{
    relay->next++;
    atomic_store_explicit(&relay->part[relay->me]->done, relay->next, memory_order_release);
}

/* ---- life ---- */

/* Members on this rank's node, from what all ranks said. */
static tt_status find_members(tt_relay *relay, bool takes_part)
{
    tt_world *world = relay->world;
    int64_t mine = takes_part;
    int64_t *all = calloc((size_t)world->size, sizeof(*all));
    relay->member = calloc((size_t)world->n_peers, sizeof(*relay->member));
    relay->part = calloc((size_t)world->n_peers, sizeof(*relay->part));
    tt_status st = all && relay->member && relay->part
                       ? TT_OK
                       : TT_FAIL(TT_ERR_NOMEM, "no memory for a relay");
    st = tt_world_agree(world, st);
    if (st == TT_OK) {
        st = tt_world_allgather(world, &mine, sizeof(mine), all);
    }
    for (int i = 0; st == TT_OK && takes_part && i < world->n_peers; i++) {
        if (all[world->peer[i]]) {
            if (world->peer[i] == world->rank) {
                relay->me = relay->n;
            }
            relay->member[relay->n++] = world->peer[i];
        }
    }
    free(all);
    return st;
}

static tt_status open_relay(tt_relay *relay, bool takes_part)
{
    tt_world *world = relay->world;
    TT_TRY(find_members(relay, takes_part));
    /* One member keeps its places in the window too: there is one way, and it costs a copy in
     * cache. */
    size_t place = sizeof(place_head) + tti_align(relay->piece_bytes);
    TT_TRY(tti_window_create(world, "buffers to read weights through",
                             takes_part ? sizeof(part_head) + N_PLACES * place : 0,
                             &relay->window));
    relay->reading = (uint64_t)relay->me;
    for (int m = 0; m < relay->n; m++) {
        relay->part[m] = relay->window.base[world->node_rank[relay->member[m]]];
    }
    return TT_OK;
}

tt_status tt_relay_create(tt_world *world, bool takes_part, size_t piece_bytes,
                          tt_relay **relay_out)
{
    tt_relay *relay = calloc(1, sizeof(*relay));
    tt_status st =
        tt_world_agree(world, relay ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for a relay"));
    if (st != TT_OK || !relay) {
        free(relay);
        return st;
    }
    relay->world = world;
    relay->piece_bytes = piece_bytes;
    st = open_relay(relay, takes_part);
    if (st != TT_OK) {
        tt_relay_destroy(&relay);
        return st;
    }
    *relay_out = relay;
    return TT_OK;
}

void tt_relay_destroy(tt_relay **relay_ptr)
{
    tt_relay *relay = *relay_ptr;
    if (!relay) {
        return;
    }
    tti_window_destroy(relay->world, &relay->window);
    free(relay->member);
    free(relay->part);
    free(relay);
    *relay_ptr = NULL;
}

int tt_relay_n_members(const tt_relay *relay)
{
    return relay->n;
}

size_t tt_relay_piece_bytes(const tt_relay *relay)
{
    return relay->piece_bytes;
}
