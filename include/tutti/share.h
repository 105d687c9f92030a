/* share.h - memory that the ranks of a node fill once and read together: dense weights under
 * --replicate=node.
 *
 * Every member owns an arena in a file without a name (memfd), whose pages come when they are
 * touched (huge ones where the system gives such files any: shared_memory.h); all members map all
 * arenas of their node.
 * What two members would both hold goes by a key: the first to claim it fills it in its own arena,
 * the others get the same memory. It may be read once all members have agreed that they are done
 * (tt_world_agree); before, a claim waits only for another to be written down. Life: create, claims
 * while loading, an agreement, then reads until destroy. Threads: one thread at a time per
 * object. */
#ifndef TUTTI_SHARE_H
#define TUTTI_SHARE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/comm.h"
#include "tutti/hash.h"

typedef struct tt_share tt_share; /* opaque */

/* MPI: collective on the world. Ranks with takes_part false get an object without members.
 * arena_bytes: the most that this rank may have to fill (address space; memory is taken when it is
 * filled). n_keys: the most keys that all members of a node claim, alike on all ranks. Errors are
 * agreed; TT_ERR_UNSUPPORTED where ranks cannot open each other's memory (other users or process
 * name spaces). */
TT_API tt_status tt_share_create(tt_world *world, bool takes_part, size_t arena_bytes,
                                 size_t n_keys, tt_share **share_out);
/* MPI: collective on the world. Unmaps: whoever still reads is wrong. Accepts a pointer to NULL. */
TT_API void tt_share_destroy(tt_share **share);
/* Memory for `bytes` under `key` (first not 0), 64-byte aligned, from 2 MiB on at a huge page.
 * *fill_out: this rank is the first and writes it; else it is read-only here. Keys of which one
 * half is equal are different. MPI: not collective. Errors: TT_ERR_CAPACITY (arena or keys),
 * TT_ERR_MISMATCH (the key was claimed with another size); TT_ERR_TIMEOUT naming a rank that died
 * in the middle of a claim. */
TT_API tt_status tt_share_claim(tt_share *share, tt_hash_pair key, size_t bytes, void **memory_out,
                                bool *fill_out);
/* After the agreement: maps what this rank reads and others filled, page by page, so that the first
 * step does not. A wish: where the kernel cannot (before 5.14), nothing happens. MPI: none. */
TT_API void tt_share_populate(const tt_share *share);
/* Bytes that this rank fills, and that it reads where others fill. */
TT_API size_t tt_share_filled_bytes(const tt_share *share);
TT_API size_t tt_share_borrowed_bytes(const tt_share *share);

#endif
