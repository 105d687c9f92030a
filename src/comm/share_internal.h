/* share_internal.h - the table of shared memory (share.c), which a test spoils as a killed rank
 * would.
 *
 * A slot is won by setting its key; the winner then writes the rest and publishes it. Before it
 * tries, a member writes into its line of `trying` which slot it tries, and takes that back when it
 * has lost, or has published: so whoever waits for a slot knows who owes it. */
#ifndef TUTTI_SRC_COMM_SHARE_INTERNAL_H
#define TUTTI_SRC_COMM_SHARE_INTERNAL_H
#include "comm_internal.h"
#include "tutti/share.h"
#include "tutti/shared_memory.h"

typedef struct tti_share_slot {
    _Atomic uint64_t key;   /* its first half; 0: free */
    _Atomic uint64_t where; /* 1 + offset in the filler's arena; 0: not published yet. Release
                             * after the rest */
    uint64_t second;        /* the key's other half */
    uint64_t bytes;
    int32_t member; /* -1: it found no room */
    int32_t pad;
} tti_share_slot;

typedef struct tti_share_line {
    alignas(TT_CACHE_LINE) _Atomic uint64_t trying; /* 1 + slot; 0: none */
} tti_share_line;

struct tt_share {
    tt_world *world;
    int n, me;               /* members; my place */
    int *member;             /* member[n]: world ranks */
    tt_shared_memory *arena; /* arena[n]; mine is writable */
    size_t used_bytes, filled_bytes, borrowed_bytes;
    tti_share_line *line; /* line[n], in the window part of the first member; then the slots */
    tti_share_slot *slot; /* slot[n_slots] */
    size_t n_slots;
    bool *is_borrowed; /* is_borrowed[n_slots]: by me */
    tti_window window;
};

#endif
