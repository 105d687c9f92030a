/* relay.h - what all ranks of a node need from a file is read once: each member reads every n-th
 * piece, all take all pieces.
 *
 * Members are the ranks of one node that asked to take part. They walk the same pieces, numbered
 * from 0, in the same order: for each, the member whose turn it is reads it into shared memory and
 * publishes it; all others take it from there. Each of the n members owns two places. Invariant:
 * piece p is written once all have released piece p - 2n, which lay in the same place, and only
 * while p < q + n, q being the piece that the reader itself takes next; so nobody waits for a place
 * that only it could free. On the path there is no MPI call; waits end as comm.h says. Life:
 * create, any number of pieces, destroy. Threads: one thread at a time per object. */
#ifndef TUTTI_RELAY_H
#define TUTTI_RELAY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/comm.h"

typedef struct tt_relay tt_relay; /* opaque */

/* MPI: collective on the world. Ranks with takes_part false get an object that has no members and
 * may only be destroyed. piece_bytes: of the largest piece, alike on all. Errors are agreed;
 * TT_ERR_NOMEM where the shared-memory file system is too small. */
TT_API tt_status tt_relay_create(tt_world *world, bool takes_part, size_t piece_bytes,
                                 tt_relay **relay_out);
/* MPI: collective on the world. Accepts a pointer to NULL. */
TT_API void tt_relay_destroy(tt_relay **relay);
TT_API int tt_relay_n_members(const tt_relay *relay);
TT_API size_t tt_relay_piece_bytes(const tt_relay *relay);

/* If one of the next n_left pieces (the first of them is the next to take) is this member's to read
 * now: *place_out is where to, *ahead_out is which, counted from the next to take, and
 * tt_relay_publish must follow with how the reading went (not TT_OK: its message is told to all
 * members). Else *place_out is NULL. Called before each take until it says so, it lets all members
 * read at the same time, each one piece ahead. Waits until the place is free. MPI: not collective;
 * the other members come sooner or later. Errors: TT_ERR_TIMEOUT, TT_ERR_PEER, or another
 * member's. */
TT_API tt_status tt_relay_begin(tt_relay *relay, uint64_t n_left, uint64_t *ahead_out,
                                void **place_out);
TT_API void tt_relay_publish(tt_relay *relay, tt_status st);
/* This member takes no further part, because of `st` (not TT_OK): others get it from their waits,
 * now or later. */
TT_API void tt_relay_fail(tt_relay *relay, tt_status st);
/* The next piece, valid until tt_relay_release. Errors: the reader's own, as "rank 3 (host):
 * message", on all members. */
TT_API tt_status tt_relay_take(tt_relay *relay, const void **piece_out);
TT_API void tt_relay_release(tt_relay *relay);

#endif
