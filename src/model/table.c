/* table.c - names of tensors, and all tensors of a checkpoint by name.
 *
 * Open addressing over a polynomial hash modulo 2^31 - 1 at a random point: two given names collide
 * with probability at most length / 2^31, whatever the names, as long as the point is not known to
 * who made them. */
#include "model_internal.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tutti/memory.h"

enum { CHUNK_BYTES = 1 << 16, FIRST_ENTRIES = 64 };

typedef struct tti_names_chunk tti_names_chunk;
struct tti_names_chunk {
    tti_names_chunk *previous;
    size_t used, size;
    char text[];
};

const char *tti_names_add(tti_names *names, const char *text)
{
    size_t n = strlen(text) + 1;
    tti_names_chunk *chunk = names->last;
    if (!chunk || chunk->size - chunk->used < n) {
        size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;
        chunk = malloc(sizeof(*chunk) + size);
        if (!chunk) {
            return NULL;
        }
        chunk->previous = names->last;
        chunk->used = 0;
        chunk->size = size;
        names->last = chunk;
    }
    char *copy = chunk->text + chunk->used;
    memcpy(copy, text, n);
    chunk->used += n;
    return copy;
}

void tti_names_fini(tti_names *names)
{
    while (names->last) {
        tti_names_chunk *previous = names->last->previous;
        free(names->last);
        names->last = previous;
    }
}

enum { HASH_PRIME_BITS = 31 };
static const uint64_t HASH_PRIME = (1ull << HASH_PRIME_BITS) - 1;

/* x mod 2^31 - 1 for x below 2^62; may return the prime itself for 0. */
static uint64_t fold(uint64_t x)
{
    x = (x & HASH_PRIME) + (x >> HASH_PRIME_BITS);
    return (x & HASH_PRIME) + (x >> HASH_PRIME_BITS);
}

static uint32_t new_key(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* The clock's nanoseconds and where the stack lies; neither is known to who wrote the file. */
    uint64_t x = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15ull ^ (uint64_t)(uintptr_t)&now;
    return (uint32_t)(fold(x >> 2) | 1u << 16); /* never small */
}

static uint32_t hash(const tti_table *table, const char *name)
{
    uint64_t h = 1;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        h = fold(h * table->key + *c);
    }
    return (uint32_t)h;
}

/* The slot of name, or the free slot where it would go. */
static size_t find_slot(const tti_table *table, const char *name)
{
    size_t i = hash(table, name) & (table->n_slots - 1);
    while (table->slot[i] && strcmp(table->entry[table->slot[i] - 1].name, name) != 0) {
        i = (i + 1) & (table->n_slots - 1);
    }
    return i;
}

/* Makes room for one more entry and keeps the slots at most half full. */
static tt_status grow(tti_table *table)
{
    TT_CHECK(table->n < UINT32_MAX / 4, TT_ERR_FILE,
             "more than %zu tensors are more than a checkpoint may have", table->n);
    tti_entry *entry = tt_memory_grow(table->entry, &table->capacity, table->n, sizeof(*entry));
    TT_CHECK(entry, TT_ERR_NOMEM, "no memory for a table of more than %zu tensors", table->n);
    table->entry = entry;
    if (2 * (table->n + 1) <= table->n_slots) {
        return TT_OK;
    }
    size_t n_slots = table->n_slots > 0 ? 4 * table->n_slots : 2 * FIRST_ENTRIES;
    uint32_t *slot = calloc(n_slots, sizeof(*slot));
    TT_CHECK(slot, TT_ERR_NOMEM, "no memory for a table of %zu tensors", n_slots / 2);
    free(table->slot);
    table->slot = slot;
    table->n_slots = n_slots;
    if (table->key == 0) {
        table->key = new_key();
    }
    for (size_t i = 0; i < table->n; i++) {
        slot[find_slot(table, table->entry[i].name)] = (uint32_t)(i + 1);
    }
    return TT_OK;
}

tt_status tti_table_add(tti_table *table, const tti_entry *entry)
{
    TT_TRY(grow(table));
    size_t i = find_slot(table, entry->name);
    TT_ASSERT(table->slot[i] == 0);
    tti_entry copy = *entry;
    copy.name = tti_names_add(&table->names, entry->name);
    TT_CHECK(copy.name, TT_ERR_NOMEM, "no memory for the name of tensor '%s'",
             tti_show(entry->name).text);
    table->entry[table->n] = copy;
    table->slot[i] = (uint32_t)++table->n;
    return TT_OK;
}

tti_entry *tti_table_find(const tti_table *table, const char *name)
{
    if (table->n_slots == 0) {
        return NULL;
    }
    size_t i = find_slot(table, name);
    return table->slot[i] ? &table->entry[table->slot[i] - 1] : NULL;
}

void tti_table_fini(tti_table *table)
{
    free(table->entry);
    free(table->slot);
    tti_names_fini(&table->names);
    free(table->panels);
    memset(table, 0, sizeof(*table));
}
