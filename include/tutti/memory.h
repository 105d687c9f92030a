/* memory.h - big buffers placed on a NUMA node in 2 MiB pages, step arenas, and lists that grow.
 *
 * tt_memory is for weights, KV pages and workspaces: made at set-up, never on the step path.
 * tt_arena hands out pieces of one such buffer and is reset at the end of a step.
 * MPI: none. */
#ifndef TUTTI_MEMORY_H
#define TUTTI_MEMORY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/status.h"

enum { TT_MEMORY_ANY_NODE = -1 };

/* Allocates at least `bytes` zeroed bytes, 64-byte aligned; buffers of 2 MiB and more are 2 MiB
 * aligned and ask for huge pages. `node` is an OS NUMA node index or TT_MEMORY_ANY_NODE; a node
 * that cannot be used is a warning, not an error. bytes 0 gives a valid pointer.
 * Errors: TT_ERR_NOMEM naming `what` and the size. Thread: any. */
TT_API tt_status tt_memory_alloc(const char *what, size_t bytes, int node, void **data_out);
/* Frees what tt_memory_alloc gave; NULL is allowed. `bytes` must be the size asked for. */
TT_API void tt_memory_free(void *data, size_t bytes);
/* Bytes now held by tt_memory_alloc in this process, and the most ever held. */
TT_API size_t tt_memory_used_bytes(void);
TT_API size_t tt_memory_peak_bytes(void);

/* Room for item n of an array that grows: the array, or where it is full a longer one in its place
 * (realloc) and *capacity doubled. NULL, and nothing changed, without memory. Thread: any. */
TT_API void *tt_memory_grow(void *array, size_t *capacity, size_t n, size_t item_bytes);

/* A bump allocator over one buffer. Visible body: it lives inside other structs.
 * Invariant: used_bytes <= size_bytes; high_bytes is the most that was ever used. */
typedef struct tt_arena {
    unsigned char *base;
    size_t size_bytes;
    size_t used_bytes;
    size_t high_bytes;
} tt_arena;

TT_API tt_status tt_arena_init(tt_arena *arena, const char *what, size_t bytes, int node);
TT_API void tt_arena_fini(tt_arena *arena);
/* 64-byte aligned piece; NULL if it does not fit (the caller sized the arena: a bug). Debug builds
 * fill the piece with NaN. An all-zero arena only counts: it gives NULL and adds to used_bytes, so
 * that one function that takes all pieces can first size the arena and then fill it. Thread: one
 * thread at a time per arena. */
TT_API void *tt_arena_alloc(tt_arena *arena, size_t bytes);
/* Room for n elements. */
static inline void *tt_arena_take(tt_arena *arena, int64_t n, size_t element_bytes)
{
    return tt_arena_alloc(arena, (size_t)n * element_bytes);
}
/* Frees all pieces at once. */
TT_API void tt_arena_reset(tt_arena *arena);

#endif
