/* hash.h - one way to make a number of many: FNV-1a, 64 bits. It tells apart what differs by
 * accident (ranks with other files, layouts or masks), not what someone made to collide. Values go
 * in by their own bytes, lowest first, so a hash is equal on every machine.
 * Source: draft-eastlake-fnv (The FNV Non-Cryptographic Hash Algorithm).
 * Threads: any. MPI: none. */
#ifndef TUTTI_HASH_H
#define TUTTI_HASH_H
#include <stddef.h>
#include <stdint.h>

/* What a hash begins with: the hash of nothing. */
#define TT_HASH_BEGIN UINT64_C(0xcbf29ce484222325)

/* Adds one step's worth: a byte, as FNV-1a has it, or a whole word where speed counts more than its
 * spread. */
static inline uint64_t tt_hash_step(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

/* Adds bytes[n]. */
static inline uint64_t tt_hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *byte = (const unsigned char *)bytes;
    for (size_t i = 0; i < n; i++) {
        hash = tt_hash_step(hash, byte[i]);
    }
    return hash;
}

/* Adds the n_bytes (at most 8) lowest bytes of a value, lowest first. */
static inline uint64_t tt_hash_value(uint64_t hash, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) {
        hash = tt_hash_step(hash, value >> (8 * i) & 0xff);
    }
    return hash;
}

static inline uint64_t tt_hash_u64(uint64_t hash, uint64_t value)
{
    return tt_hash_value(hash, value, 8);
}

/* Two hashes of the same words that fail apart: FNV-1a by words, and one whose step turns a word's
 * bits through all of the hash. Where two things of equal hash would be taken for one another
 * silently, both must be equal. The second's step is the finaliser of SplitMix64 (Steele, Lea,
 * Flood: Fast Splittable Pseudorandom Number Generators, 2014), which is a bijection of what it
 * mixes. */
typedef struct tt_hash_pair {
    uint64_t first, second;
} tt_hash_pair;

static inline tt_hash_pair tt_hash_pair_begin(void)
{
    return (tt_hash_pair){TT_HASH_BEGIN, 0};
}

static inline void tt_hash_pair_add(tt_hash_pair *hash, uint64_t value)
{
    uint64_t z = (hash->second ^ value) + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    hash->second = z ^ (z >> 31);
    hash->first = tt_hash_step(hash->first, value);
}

#endif
