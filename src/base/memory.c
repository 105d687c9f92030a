/* memory.c - buffers from anonymous mappings, so that they can be aligned to huge pages and
 * bound to a NUMA node before the first touch, and arenas over them. Pieces below SMALL_BYTES
 * come from the heap: a mapping each would waste pages, and the sanitizers watch the heap.
 * Placement is a wish: whatever goes wrong with it costs speed, never the buffer. Lists that grow
 * are the heap's. */
#define _GNU_SOURCE /* madvise, MAP_ANONYMOUS */
#include "tutti/memory.h"
#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tutti/log.h"

static const size_t SMALL_BYTES = (size_t)64 << 10;
static const size_t HUGE_BYTES = (size_t)2 << 20; /* the huge page of x86-64 and of 4 KiB aarch64 */
enum {
    POISON = 0xff,      /* all ones is a NaN in f32, bf16 and f16, and -1 in integers */
    WARNED_NODES = 256, /* nodes that are warned of only once */
    FIRST_ITEMS = 16    /* of a list */
};

static _Atomic size_t used_bytes;
static _Atomic size_t peak_bytes;
static _Atomic bool node_warned[WARNED_NODES];

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* What a request of `bytes` really takes; alloc and free agree through it. */
static size_t held_bytes(size_t bytes)
{
    if (bytes < SMALL_BYTES) {
        return round_up(bytes > 0 ? bytes : 1, TT_CACHE_LINE);
    }
    /* The tail of a large buffer goes in small pages: in a huge one the rest of it would be lost,
     * up to a third of an expert's matrix. */
    return round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

static void account_add(size_t bytes)
{
    size_t now = atomic_fetch_add_explicit(&used_bytes, bytes, memory_order_relaxed) + bytes;
    size_t peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    while (peak < now && !atomic_compare_exchange_weak_explicit(
                             &peak_bytes, &peak, now, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void warn_node(int node, const char *why)
{
    if (node < WARNED_NODES && atomic_exchange(&node_warned[node], true)) {
        return;
    }
    tt_log(TT_LOG_WARN, "memory cannot be placed on NUMA node %d (%s); the kernel chooses", node,
           why);
}

/* Prefers `node` for the pages of [data, data + bytes). */
static void prefer_node(void *data, size_t bytes, int node)
{
    if (numa_available() < 0) {
        if (node != 0) {
            warn_node(node, "no NUMA support");
        }
        return;
    }
    if (node > numa_max_node() || !numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned)node)) {
        warn_node(node, "not among the nodes this process may use");
        return;
    }
    struct bitmask *mask = numa_allocate_nodemask();
    if (!mask) {
        return;
    }
    numa_bitmask_setbit(mask, (unsigned)node);
    /* The kernel reads one bit less than it is told. */
    if (mbind(data, bytes, MPOL_PREFERRED, mask->maskp, mask->size + 1, 0) != 0) {
        warn_node(node, strerror(errno));
    }
    numa_bitmask_free(mask);
}

/* A mapping of `bytes`, aligned to `alignment`; NULL if there is none. */
static void *map_aligned(size_t bytes, size_t alignment)
{
    size_t slack = alignment - 1;
    if (bytes > SIZE_MAX - slack) {
        return NULL;
    }
    slack = round_up(slack, (size_t)sysconf(_SC_PAGESIZE));
    unsigned char *raw =
        mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        return NULL;
    }
    size_t before = (alignment - (uintptr_t)raw % alignment) % alignment;
    if (before > 0) {
        munmap(raw, before);
    }
    if (slack > before) {
        munmap(raw + before + bytes, slack - before);
    }
    return raw + before;
}

tt_status tt_memory_alloc(const char *what, size_t bytes, int node, void **data_out)
{
    TT_CHECK(node >= TT_MEMORY_ANY_NODE, TT_ERR_ARG, "%s: NUMA node %d does not exist", what, node);
    TT_CHECK(bytes <= PTRDIFF_MAX, TT_ERR_NOMEM, "%s: cannot allocate %zu bytes", what, bytes);
    size_t held = held_bytes(bytes);
    void *data;
    if (bytes < SMALL_BYTES) {
        data = aligned_alloc(TT_CACHE_LINE, held);
    } else if (bytes < HUGE_BYTES) {
        data = map_aligned(held, TT_CACHE_LINE);
    } else {
        data = map_aligned(held, HUGE_BYTES);
    }
    TT_CHECK(data, TT_ERR_NOMEM, "%s: cannot allocate %zu bytes (%.2f GiB); %zu bytes are in use",
             what, bytes, (double)bytes / (1024.0 * 1024 * 1024), tt_memory_used_bytes());
    if (bytes < SMALL_BYTES) {
        memset(data, 0, held);
    } else {
        if (bytes >= HUGE_BYTES && madvise(data, held, MADV_HUGEPAGE) != 0) {
            tt_log(TT_LOG_DEBUG, "%s: no huge pages: %s", what, strerror(errno));
        }
        if (node != TT_MEMORY_ANY_NODE) {
            prefer_node(data, held, node);
        }
    }
    account_add(held);
    *data_out = data;
    return TT_OK;
}

void tt_memory_free(void *data, size_t bytes)
{
    if (!data) {
        return;
    }
    size_t held = held_bytes(bytes);
    if (bytes < SMALL_BYTES) {
        free(data);
    } else {
        munmap(data, held);
    }
    atomic_fetch_sub_explicit(&used_bytes, held, memory_order_relaxed);
}

size_t tt_memory_used_bytes(void)
{
    return atomic_load_explicit(&used_bytes, memory_order_relaxed);
}

size_t tt_memory_peak_bytes(void)
{
    return atomic_load_explicit(&peak_bytes, memory_order_relaxed);
}

void *tt_memory_grow(void *array, size_t *capacity, size_t n, size_t item_bytes)
{
    if (n < *capacity) {
        return array;
    }
    size_t longer = *capacity > 0 ? 2 * *capacity : FIRST_ITEMS;
    void *grown = longer > SIZE_MAX / item_bytes ? NULL : realloc(array, longer * item_bytes);
    *capacity = grown ? longer : *capacity;
    return grown;
}

tt_status tt_arena_init(tt_arena *arena, const char *what, size_t bytes, int node)
{
    TT_CHECK(bytes <= PTRDIFF_MAX, TT_ERR_NOMEM, "%s: cannot allocate %zu bytes", what, bytes);
    size_t size = round_up(bytes, TT_CACHE_LINE);
    void *base;
    TT_TRY(tt_memory_alloc(what, size, node, &base));
    *arena = (tt_arena){.base = base, .size_bytes = size};
    return TT_OK;
}

void tt_arena_fini(tt_arena *arena)
{
    tt_memory_free(arena->base, arena->size_bytes);
    *arena = (tt_arena){0};
}

void *tt_arena_alloc(tt_arena *arena, size_t bytes)
{
    if (!arena->base) {
        /* Only counting. A sum that no memory could hold stays at the top, where init refuses
         * it. */
        size_t room = PTRDIFF_MAX - arena->used_bytes;
        bool fits = room > TT_CACHE_LINE && bytes < room - TT_CACHE_LINE;
        arena->used_bytes += fits ? round_up(bytes, TT_CACHE_LINE) : room;
        return NULL;
    }
    if (bytes > arena->size_bytes - arena->used_bytes) {
        return NULL;
    }
    /* Cannot pass the end: size_bytes and used_bytes are multiples of the line. */
    size_t held = round_up(bytes, TT_CACHE_LINE);
    unsigned char *piece = arena->base + arena->used_bytes;
    arena->used_bytes += held;
    if (arena->used_bytes > arena->high_bytes) {
        arena->high_bytes = arena->used_bytes;
    }
#if TT_DEBUG
    memset(piece, POISON, held);
#endif
    return piece;
}

void tt_arena_reset(tt_arena *arena)
{
    arena->used_bytes = 0;
}
