/* share.c - who fills what. A table of keys lies in the window part of a node's first member: open addressing; a slot is won by setting its
 * key, after which the winner writes where the memory lies and publishes it. */
#include "comm_internal.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/share.h"
#include "tutti/shared_memory.h"

typedef struct share_slot {
    _Atomic uint64_t key; /* 0: free */
    _Atomic uint64_t where; /* 1 + offset in the filler's arena; 0: not published yet. Release after the rest */
    uint64_t bytes;
    int32_t member;
    int32_t pad;
} share_slot;

/* What a member must know of another's arena. */
typedef struct arena_card {
    int64_t takes_part;
    tt_shared_memory_name arena;
} arena_card;

struct tt_share {
    tt_world *world;
    int n, me;                /* members; my place */
    int *member;              /* member[n]: world ranks */
    tt_shared_memory *arena;  /* arena[n]; mine is writable */
    size_t used_bytes, filled_bytes, borrowed_bytes;
    share_slot *slot; /* slot[n_slots] of the first member */
    size_t n_slots;
    tti_window window;
};

/* ---- claims ---- */

/* Takes the next piece of this rank's arena. */
static tt_status take(tt_share *share, size_t bytes, size_t *offset_out)
{
    size_t align = tt_shared_alignment(bytes), offset = (share->used_bytes + align - 1) / align * align;
    TT_CHECK(bytes <= share->arena[share->me].bytes && offset <= share->arena[share->me].bytes - bytes, TT_ERR_CAPACITY,
             "shared weights: %zu bytes do not fit an arena of %zu", bytes, share->arena[share->me].bytes);
    share->used_bytes = offset + bytes;
    share->filled_bytes += bytes;
    *offset_out = offset;
    return TT_OK;
}

/* Whether some member has published the slot, or will: it does so at once after winning it. */
static uint64_t published(tt_share *share, const share_slot *slot)
{
    tt_spin spin = {0};
    uint64_t where = atomic_load_explicit(&slot->where, memory_order_acquire);
    while (where == 0 && tt_world_error(share->world) == TT_OK) {
        tt_world_progress(share->world);
        tt_spin_once(&spin);
        where = atomic_load_explicit(&slot->where, memory_order_acquire);
    }
    return where;
}

static tt_status fill(tt_share *share, share_slot *slot, size_t bytes, void **memory_out)
{
    size_t offset = 0;
    tt_status st = take(share, bytes, &offset);
    slot->bytes = bytes;
    slot->member = st == TT_OK ? share->me : -1;
    atomic_store_explicit(&slot->where, offset + 1, memory_order_release);
    if (st == TT_OK) {
        *memory_out = share->arena[share->me].base + offset;
    }
    return st;
}

static tt_status borrow(tt_share *share, const share_slot *slot, size_t bytes, void **memory_out)
{
    uint64_t where = published(share, slot);
    TT_TRY(tt_world_error(share->world));
    TT_CHECK(slot->member >= 0, TT_ERR_CAPACITY, "shared weights: another rank found no room for %zu bytes", bytes);
    TT_CHECK(slot->bytes == bytes, TT_ERR_MISMATCH, "shared weights: %zu bytes here, %llu on %s", bytes,
             (unsigned long long)slot->bytes, tt_world_host(share->world, share->member[slot->member]));
    *memory_out = share->arena[slot->member].base + (where - 1);
    share->borrowed_bytes += slot->member == share->me ? 0 : bytes;
    return TT_OK;
}

tt_status tt_share_claim(tt_share *share, uint64_t key, size_t bytes, void **memory_out, bool *fill_out)
{
    TT_CHECK(share->n > 0 && key != 0, TT_ERR_ARG, "a claim of shared memory by a rank that takes no part, or without a key");
    for (size_t i = 0; i < share->n_slots; i++) {
        share_slot *slot = &share->slot[(key + i) & (share->n_slots - 1)];
        uint64_t found = 0;
        bool won = atomic_compare_exchange_strong_explicit(&slot->key, &found, key, memory_order_acq_rel, memory_order_acquire);
        if (won || found == key) {
            *fill_out = won;
            return won ? fill(share, slot, bytes, memory_out) : borrow(share, slot, bytes, memory_out);
        }
    }
    return TT_FAIL(TT_ERR_CAPACITY, "shared weights: more than %zu keys", share->n_slots);
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
    share->arena = calloc((size_t)world->n_peers + 1, sizeof(*share->arena)); /* the last: mine, until its place is known */
    tt_status st = card && share->member && share->arena ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory to share weights");
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
    bool is_first = takes_part && share->me == 0;
    TT_TRY(tti_window_create(world, "tables of shared weights", is_first ? share->n_slots * sizeof(share_slot) : 0, &share->window));
    if (takes_part) {
        share->slot = share->window.base[world->node_rank[share->member[0]]];
    }
    return TT_OK;
}

tt_status tt_share_create(tt_world *world, bool takes_part, size_t arena_bytes, size_t n_keys, tt_share **share_out)
{
    tt_share *share = calloc(1, sizeof(*share));
    tt_status st = tt_world_agree(world, share ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory to share weights"));
    if (st != TT_OK) {
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
    free(share);
    *share_ptr = NULL;
}
