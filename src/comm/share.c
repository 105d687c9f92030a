/* share.c - who fills what. A table of keys lies in the window part of a node's first member: open
 * addressing; a slot is won by setting its key, after which the winner writes where the memory lies
 * and publishes it (share_internal.h). */
#define _GNU_SOURCE /* madvise */
#include "share_internal.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* What a member must know of another's arena. */
typedef struct arena_card {
    int64_t takes_part;
    tt_shared_memory_name arena;
} arena_card;

#ifndef MADV_POPULATE_READ
/* Linux 5.14; older kernels refuse it, and older C libraries do not know it. */
#define MADV_POPULATE_READ 22
#endif

/* ---- claims ---- */

/* Takes the next piece of this rank's arena. */
static tt_status take(tt_share *share, size_t bytes, size_t *offset_out)
{
    size_t align = tt_shared_alignment(bytes),
           offset = (share->used_bytes + align - 1) / align * align;
    TT_CHECK(bytes <= share->arena[share->me].bytes &&
                 offset <= share->arena[share->me].bytes - bytes,
             TT_ERR_CAPACITY, "shared weights: %zu bytes do not fit an arena of %zu", bytes,
             share->arena[share->me].bytes);
    share->used_bytes = offset + bytes;
    share->filled_bytes += bytes;
    *offset_out = offset;
    return TT_OK;
}

/* A wait for a slot. */
typedef struct slot_wait {
    const tt_share *share;
    size_t slot;
} slot_wait;

static void owing_slot(void *arg, bool *owes)
{
    const slot_wait *w = arg;
    bool is_open = atomic_load_explicit(&w->share->slot[w->slot].where, memory_order_acquire) == 0;
    for (int m = 0; m < w->share->n; m++) {
        owes[w->share->member[m]] =
            is_open &&
            atomic_load_explicit(&w->share->line[m].trying, memory_order_acquire) == w->slot + 1;
    }
}

/* Waits until who won the slot has published it, which it does at once, if it lives. */
static tt_status wait_published(const tt_share *share, size_t slot)
{
    slot_wait arg = {share, slot};
    tti_wait wait = {.what = "the place of shared weights", .owing = owing_slot, .arg = &arg};
    while (atomic_load_explicit(&share->slot[slot].where, memory_order_acquire) == 0) {
        TT_TRY(tti_wait_once(share->world, &wait));
    }
    tti_wait_end(share->world, &wait);
    return TT_OK;
}

static void set_trying(const tt_share *share, uint64_t slot_plus_1)
{
    atomic_store_explicit(&share->line[share->me].trying, slot_plus_1, memory_order_release);
}

/* Tries to win a slot; gives the key that stands in it then. While it has won, and has not
 * published, `trying` says so. */
static bool win(const tt_share *share, size_t slot, uint64_t key, uint64_t *found_out)
{
    *found_out = atomic_load_explicit(&share->slot[slot].key, memory_order_acquire);
    if (*found_out != 0) {
        return false;
    }
    set_trying(share, slot + 1);
    if (atomic_compare_exchange_strong_explicit(&share->slot[slot].key, found_out, key,
                                                memory_order_acq_rel, memory_order_acquire)) {
        return true;
    }
    set_trying(share, 0);
    return false;
}

static tt_status fill(tt_share *share, tti_share_slot *slot, uint64_t second, size_t bytes,
                      void **memory_out)
{
    size_t offset = 0;
    tt_status st = take(share, bytes, &offset);
    slot->second = second;
    slot->bytes = bytes;
    slot->member = st == TT_OK ? share->me : -1;
    atomic_store_explicit(&slot->where, offset + 1, memory_order_release);
    set_trying(share, 0);
    if (st == TT_OK) {
        *memory_out = share->arena[share->me].base + offset;
    }
    return st;
}

/* Of a slot that is published. */
static tt_status borrow(tt_share *share, size_t i, size_t bytes, void **memory_out)
{
    const tti_share_slot *slot = &share->slot[i];
    uint64_t where = atomic_load_explicit(&slot->where, memory_order_relaxed);
    TT_CHECK(slot->member >= 0, TT_ERR_CAPACITY,
             "shared weights: another rank found no room for %zu bytes", bytes);
    TT_CHECK(slot->bytes == bytes, TT_ERR_MISMATCH, "shared weights: %zu bytes here, %llu on %s",
             bytes, (unsigned long long)slot->bytes,
             tt_world_host(share->world, share->member[slot->member]));
    *memory_out = share->arena[slot->member].base + (where - 1);
    share->borrowed_bytes += slot->member == share->me ? 0 : bytes;
    share->is_borrowed[i] = slot->member != share->me;
    return TT_OK;
}

tt_status tt_share_claim(tt_share *share, tt_hash_pair key, size_t bytes, void **memory_out,
                         bool *fill_out)
{
    TT_CHECK(share->n > 0 && key.first != 0, TT_ERR_ARG,
             "a claim of shared memory by a rank that takes no part, or without a key");
    for (size_t i = 0; i < share->n_slots; i++) {
        size_t at = (key.first + i) & (share->n_slots - 1);
        uint64_t found;
        if (win(share, at, key.first, &found)) {
            *fill_out = true;
            return fill(share, &share->slot[at], key.second, bytes, memory_out);
        }
        if (found == key.first) {
            TT_TRY(wait_published(share, at));
            if (share->slot[at].second == key.second) {
                *fill_out = false;
                return borrow(share, at, bytes, memory_out);
            }
        }
    }
    return TT_FAIL(TT_ERR_CAPACITY, "shared weights: more than %zu keys", share->n_slots);
}

void tt_share_populate(const tt_share *share)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < share->n_slots && share->is_borrowed; i++) {
        if (share->is_borrowed[i]) {
            const tti_share_slot *slot = &share->slot[i];
            size_t begin = (size_t)(atomic_load_explicit(&slot->where, memory_order_relaxed) - 1);
            size_t from = begin / page * page,
                   to = (begin + (size_t)slot->bytes + page - 1) / page * page;
            (void)madvise(share->arena[slot->member].base + from, to - from, MADV_POPULATE_READ);
        }
    }
}

size_t tt_share_filled_bytes(const tt_share *share)
{
    return share->filled_bytes;
}

size_t tt_share_borrowed_bytes(const tt_share *share)
{
    return share->borrowed_bytes;
}

/* ---- life ---- */

/* Local: members of my node, from everybody's cards, and their arenas. */
static tt_status map_arenas(tt_share *share, const arena_card *card)
{
    tt_world *world = share->world;
    for (int i = 0; i < world->n_peers; i++) {
        int rank = world->peer[i];
        if (!card[rank].takes_part) {
            continue;
        }
        int m = share->n++;
        share->member[m] = rank;
        if (rank == world->rank) {
            tt_shared_memory mine = share->arena[world->n_peers];
            share->me = m;
            share->arena[m] = mine;
            share->arena[world->n_peers] = (tt_shared_memory){.fd = -1};
        } else {
            TT_TRY(tt_shared_memory_open("shared weights", &card[rank].arena, &share->arena[m]));
        }
    }
    return TT_OK;
}

static tt_status open_share(tt_share *share, bool takes_part, size_t arena_bytes, size_t n_keys)
{
    tt_world *world = share->world;
    arena_card mine = {.takes_part = takes_part};
    arena_card *card = calloc((size_t)world->size, sizeof(*card));
    share->member = calloc((size_t)world->n_peers, sizeof(*share->member));
    /* the last: mine, until its place is known */
    share->arena = calloc((size_t)world->n_peers + 1, sizeof(*share->arena));
    tt_status st = card && share->member && share->arena
                       ? TT_OK
                       : TT_FAIL(TT_ERR_NOMEM, "no memory to share weights");
    if (st == TT_OK && takes_part) {
        tt_shared_memory *arena = &share->arena[world->n_peers];
        st = tt_shared_memory_init("shared weights", arena_bytes, arena);
        st = st == TT_OK ? tt_shared_memory_get_name(arena, &mine.arena) : st;
    }
    st = tt_world_agree(world, st);
    if (st == TT_OK) {
        st = tt_world_allgather(world, &mine, sizeof(mine), card);
    }
    if (st == TT_OK) {
        st = tt_world_agree(world, takes_part ? map_arenas(share, card) : TT_OK);
    }
    free(card);
    TT_TRY(st);
    for (share->n_slots = 64; share->n_slots < 2 * n_keys;) {
        share->n_slots *= 2;
    }
    size_t lines_bytes = (size_t)share->n * sizeof(tti_share_line);
    share->is_borrowed = takes_part ? calloc(share->n_slots, sizeof(*share->is_borrowed)) : NULL;
    TT_TRY(tt_world_agree(world, share->is_borrowed || !takes_part
                                     ? TT_OK
                                     : TT_FAIL(TT_ERR_NOMEM, "no memory to share weights")));
    bool is_first = takes_part && share->me == 0;
    TT_TRY(tti_window_create(world, "tables of shared weights",
                             is_first ? lines_bytes + share->n_slots * sizeof(tti_share_slot) : 0,
                             &share->window));
    if (takes_part) {
        share->line = share->window.base[world->node_rank[share->member[0]]];
        share->slot = (tti_share_slot *)(void *)(share->line + share->n);
    }
    return TT_OK;
}

tt_status tt_share_create(tt_world *world, bool takes_part, size_t arena_bytes, size_t n_keys,
                          tt_share **share_out)
{
    tt_share *share = calloc(1, sizeof(*share));
    tt_status st =
        tt_world_agree(world, share ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory to share weights"));
    if (st != TT_OK || !share) {
        free(share);
        return st;
    }
    share->world = world;
    st = open_share(share, takes_part, arena_bytes, n_keys);
    if (st != TT_OK) {
        tt_share_destroy(&share);
        return st;
    }
    *share_out = share;
    return TT_OK;
}

void tt_share_destroy(tt_share **share_ptr)
{
    tt_share *share = *share_ptr;
    if (!share) {
        return;
    }
    tti_window_destroy(share->world, &share->window);
    for (int i = 0; share->arena && i <= share->world->n_peers; i++) {
        tt_shared_memory_fini(&share->arena[i]);
    }
    free(share->arena);
    free(share->member);
    free(share->is_borrowed);
    free(share);
    *share_ptr = NULL;
}
