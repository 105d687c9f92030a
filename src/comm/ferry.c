/* ferry.c - bulk transfers beside the steps: pieces, a cap, a hash.
 *
 * Each transfer is a row of pieces; a piece is a head (key, place, hash) and its bytes, as two
 * messages of the transfer's tag, which MPI does not let overtake each other. A rank has at most one piece on
 * its way out, so that the cap is a time before which the next one may not leave; and a receive for
 * each transfer that is to come. Items are written, and a round is closed, under the lock of MPI, so
 * that progress is elsewhere then. */
#include "comm_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/ferry.h"
#include "tutti/hash.h"

/* A piece keeps the lock of MPI for some tens of microseconds where ranks copy. */
enum { PIECE_BYTES = 256 << 10, WHY_BYTES = 256 };

static const uint64_t ferry_magic = 0x7475747466657272u; /* "tuttferr" */

typedef struct piece_head {
    uint64_t magic, key, begin, bytes, hash;
} piece_head;

enum { N_REQUESTS = 2 }; /* head and bytes */

typedef struct item {
    int peer, tag;
    bool is_send;
    uint64_t key;
    unsigned char *data;
    size_t bytes;
    /* of progress */
    size_t done; /* bytes of whole pieces */
    bool is_posted;
    piece_head head;
    MPI_Request request[N_REQUESTS];
} item;

struct tt_ferry {
    tt_world *world;
    MPI_Comm comm;
    tti_op op;
    bool is_open;
    uint64_t ns_per_piece; /* 0: no cap */
    item *item;            /* item[max_items] */
    int max_items;
    int n_begun;         /* this round: item[n_begun] */
    _Atomic int n_ended; /* release by progress */
    bool has_failed;     /* written before n_ended */
    _Atomic uint64_t n_sent_bytes;
    /* of progress */
    int sending;      /* the item whose piece is on its way out, -1 = none */
    int next_send;    /* where to look for the next one */
    uint64_t free_ns; /* when it may leave */
    bool damages, stalls;
    char why[WHY_BYTES]; /* written before has_failed */
};

static size_t piece_of(const item *t)
{
    return t->bytes - t->done < PIECE_BYTES ? t->bytes - t->done : PIECE_BYTES;
}

/* Four chains of words side by side: bound by reading, not by the multiplications. */
static uint64_t hash_piece(const unsigned char *data, size_t n)
{
    enum { LANES = 4, WORD = sizeof(uint64_t) };
    uint64_t lane[LANES] = {TT_HASH_BEGIN, TT_HASH_BEGIN + 1, TT_HASH_BEGIN + 2, TT_HASH_BEGIN + 3};
    size_t at = 0;
    for (; at + LANES * WORD <= n; at += LANES * WORD) {
        for (int i = 0; i < LANES; i++) {
            uint64_t word;
            memcpy(&word, data + at + (size_t)i * WORD, WORD);
            lane[i] = tt_hash_step(lane[i], word);
            lane[i] ^= lane[i] >> 29;
        }
    }
    uint64_t hash = tt_hash_bytes(TT_HASH_BEGIN, data + at, n - at);
    for (int i = 0; i < LANES; i++) {
        hash = tt_hash_u64(hash, lane[i]);
    }
    return hash;
}

/* ---- progress ---- */

static tt_status post_receive(tt_ferry *f, item *t)
{
    TT_TRY(TT_MPI(MPI_Irecv(&t->head, (int)sizeof(t->head), MPI_BYTE, t->peer, t->tag, f->comm,
                            &t->request[0])));
    TT_TRY(TT_MPI(MPI_Irecv(t->data + t->done, tti_int(piece_of(t)), MPI_BYTE, t->peer, t->tag,
                            f->comm, &t->request[1])));
    t->is_posted = true;
    return TT_OK;
}

static tt_status post_send(tt_ferry *f, item *t)
{
    const size_t bytes = piece_of(t);
    t->head =
        (piece_head){ferry_magic, t->key, t->done, bytes, hash_piece(t->data + t->done, bytes)};
    t->head.hash ^= f->damages;
    TT_TRY(TT_MPI(MPI_Isend(&t->head, (int)sizeof(t->head), MPI_BYTE, t->peer, t->tag, f->comm,
                            &t->request[0])));
    TT_TRY(TT_MPI(MPI_Isend(t->data + t->done, tti_int(bytes), MPI_BYTE, t->peer, t->tag, f->comm,
                            &t->request[1])));
    t->is_posted = true;
    return TT_OK;
}

static void check_piece(tt_ferry *f, const item *t)
{
    const piece_head *h = &t->head;
    const size_t bytes = piece_of(t);
    if (h->magic == ferry_magic && h->key == t->key && h->begin == t->done && h->bytes == bytes &&
        h->hash == hash_piece(t->data + t->done, bytes)) {
        return;
    }
    char name[TTI_NAME_BYTES];
    if (!f->has_failed) {
        snprintf(f->why, sizeof(f->why),
                 "transfer %llu from %s: bytes from %llu on are not what was sent",
                 (unsigned long long)t->key, tti_rank_name(f->world, t->peer, name, sizeof(name)),
                 (unsigned long long)t->done);
    }
    f->has_failed = true;
}

/* One item; *ended_out counts those that have. */
static tt_status advance_item(tt_ferry *f, int at, int *ended_out)
{
    item *t = &f->item[at];
    if (t->is_posted) {
        bool is_done = false;
        TT_TRY(tti_test_all(t->request, N_REQUESTS, &is_done));
        if (is_done) {
            t->is_posted = false;
            if (!t->is_send) {
                check_piece(f, t);
            } else {
                f->sending = -1;
                atomic_fetch_add_explicit(&f->n_sent_bytes, piece_of(t), memory_order_relaxed);
            }
            t->done += piece_of(t);
            atomic_fetch_add_explicit(&f->world->n_events, 1, memory_order_relaxed);
        }
    }
    if (!t->is_posted && !t->is_send && t->done < t->bytes) {
        TT_TRY(post_receive(f, t));
    }
    *ended_out += t->done == t->bytes;
    return TT_OK;
}

/* The next piece of whatever is to be sent, items in turn, if its time has come. */
static tt_status send_next(tt_ferry *f, int n)
{
    const uint64_t now = tt_now_ns();
    if (f->sending >= 0 || f->stalls || now < f->free_ns) {
        return TT_OK;
    }
    for (int i = 0; i < n; i++) {
        const int at = (f->next_send + i) % n;
        item *t = &f->item[at];
        if (t->is_send && t->done < t->bytes) {
            f->sending = at;
            f->next_send = at + 1;
            f->free_ns = now + f->ns_per_piece * piece_of(t) / PIECE_BYTES;
            return post_send(f, t);
        }
    }
    return TT_OK;
}

static tt_status advance(tti_op *op)
{
    tt_ferry *f = op->arg;
    const int n = f->n_begun;
    int ended = 0;
    for (int i = 0; i < n; i++) {
        TT_TRY(advance_item(f, i, &ended));
    }
    atomic_store_explicit(&f->n_ended, ended, memory_order_release);
    if (ended == n) {
        tti_op_rest(f->world, op);
        return TT_OK;
    }
    return send_next(f, n);
}

/* ---- life ---- */

static tt_status read_injection(tt_ferry *f)
{
    const char *text = getenv("TUTTI_INJECT_FERRY");
    char rank[16];
    if (!text) {
        return TT_OK;
    }
    snprintf(rank, sizeof(rank), ":%d", f->world->rank);
    const char *colon = strchr(text, ':');
    const bool damages = strncmp(text, "fail:", 5) == 0, stalls = strncmp(text, "stall:", 6) == 0;
    TT_CHECK(damages || stalls, TT_ERR_USAGE, "TUTTI_INJECT_FERRY=%s: not fail:RANK or stall:RANK",
             text);
    f->damages = damages && strcmp(colon, rank) == 0;
    f->stalls = stalls && strcmp(colon, rank) == 0;
    return TT_OK;
}

static tt_status create_local(tt_world *world, const tt_ferry_params *params, tt_ferry **out)
{
    TT_CHECK(params->max_items >= 0 && params->bytes_per_s >= 0.0, TT_ERR_ARG,
             "a ferry of %d items and %g bytes/s", params->max_items, params->bytes_per_s);
    tt_ferry *f = calloc(1, sizeof(*f));
    TT_CHECK(f, TT_ERR_NOMEM, "no memory for transfers");
    *out = f;
    f->world = world;
    f->comm = MPI_COMM_NULL;
    f->max_items = params->max_items;
    f->sending = -1;
    f->ns_per_piece =
        params->bytes_per_s > 0.0 ? (uint64_t)(PIECE_BYTES / params->bytes_per_s * 1e9) : 0;
    f->item = calloc((size_t)params->max_items + 1, sizeof(*f->item));
    TT_CHECK(f->item, TT_ERR_NOMEM, "no memory for %d transfers", params->max_items);
    return read_injection(f);
}

tt_status tt_ferry_create(tt_world *world, const tt_ferry_params *params, tt_ferry **ferry_out)
{
    tt_ferry *f = NULL;
    tt_status st = tt_world_agree(world, create_local(world, params, &f));
    if (st == TT_OK) {
        st = tti_comm_dup(world, &f->comm);
    }
    if (st != TT_OK) {
        if (f) {
            free(f->item);
        }
        free(f);
        return st;
    }
    f->op = (tti_op){.advance = advance, .arg = f};
    f->is_open = true;
    tti_op_register(world, &f->op);
    *ferry_out = f;
    return TT_OK;
}

static void owing(void *arg, bool *owes)
{
    const tt_ferry *f = arg;
    for (int i = 0; i < f->n_begun; i++) {
        owes[f->item[i].peer] = true; /* both sides of a transfer that has not ended */
    }
}

void tt_ferry_destroy(tt_ferry **ferry_ptr)
{
    tt_ferry *f = *ferry_ptr;
    if (!f) {
        return;
    }
    tt_world *world = f->world;
    tti_lock(world);
    f->stalls = false; /* whoever ends lets what was begun end */
    tti_unlock(world);
    tti_wait wait = {.what = "transfers beside the steps", .owing = owing, .arg = f};
    while (!tt_world_is_broken(world) && tt_ferry_poll(f) == TT_FERRY_BUSY) {
        if (tti_wait_once(world, &wait) != TT_OK) {
            break;
        }
    }
    tti_wait_end(world, &wait);
    tti_op_unregister(world, &f->op);
    if (!tt_world_is_broken(world)) { /* else MPI may still write */
        tti_comm_free(world, &f->comm);
        free(f->item);
        free(f);
    }
    *ferry_ptr = NULL;
}

/* ---- use ---- */

static tt_status begin(tt_ferry *f, const item *t)
{
    TT_CHECK(f->n_begun < f->max_items, TT_ERR_CAPACITY, "more than %d transfers at once",
             f->max_items);
    TT_CHECK(t->peer >= 0 && t->peer < f->world->size && t->peer != f->world->rank && t->bytes > 0,
             TT_ERR_ARG, "a transfer of %zu bytes with rank %d", t->bytes, t->peer);
    tti_lock(f->world);
    item *at = &f->item[f->n_begun];
    *at = *t;
    for (int i = 0; i < f->n_begun; i++) { /* its number among those of the pair, for both sides */
        at->tag += f->item[i].peer == t->peer && f->item[i].is_send == t->is_send;
    }
    f->n_begun++;
    for (int i = 0; i < N_REQUESTS; i++) {
        at->request[i] = MPI_REQUEST_NULL;
    }
    tti_unlock(f->world);
    tti_op_wake(f->world, &f->op);
    return TT_OK;
}

tt_status tt_ferry_send(tt_ferry *ferry, int peer, uint64_t key, const void *data, size_t bytes)
{
    return begin(ferry, &(item){.peer = peer,
                                .is_send = true,
                                .key = key,
                                .data = (unsigned char *)(uintptr_t)data,
                                .bytes = bytes});
}

tt_status tt_ferry_recv(tt_ferry *ferry, int peer, uint64_t key, void *data, size_t bytes)
{
    return begin(ferry, &(item){.peer = peer, .key = key, .data = data, .bytes = bytes});
}

tt_ferry_state tt_ferry_poll(tt_ferry *f)
{
    if (f->n_begun == 0) {
        return TT_FERRY_IDLE;
    }
    if (atomic_load_explicit(&f->n_ended, memory_order_acquire) != f->n_begun) {
        return TT_FERRY_BUSY;
    }
    tti_lock(f->world);
    const bool failed = f->has_failed;
    f->n_begun = 0;
    f->has_failed = false;
    atomic_store_explicit(&f->n_ended, 0, memory_order_relaxed);
    tti_unlock(f->world);
    if (!failed) {
        f->why[0] = '\0';
    }
    return failed ? TT_FERRY_FAILED : TT_FERRY_IDLE;
}

const char *tt_ferry_why(const tt_ferry *ferry)
{
    return ferry->why;
}

uint64_t tt_ferry_bytes(const tt_ferry *ferry)
{
    return atomic_load_explicit(&ferry->n_sent_bytes, memory_order_relaxed);
}
