/* test_share.c - what several ranks of a node need is filled by one and read by all, bit for bit;
 * what is theirs alone is not. */
/* TEST ranks: 1 2 3 5 8 */
/* TEST timeout: 60 */
#include "mpi_test.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "share_internal.h"

enum { N_KEYS = 200, N_OWN = 7, ARENA = 24 << 20, BIG = 3 << 20 };

static size_t bytes_of(int key)
{
    return key == 5 ? BIG : (size_t)(key * 37 + 1);
}

static unsigned char byte_at(int key, size_t i)
{
    return (unsigned char)test_mix((uint64_t)key * 65537u + i);
}

/* Some have a first half in common, as by an accident of hashing. */
static tt_hash_pair key_of(int key)
{
    return (tt_hash_pair){(uint64_t)(key / 3) + 1, (uint64_t)key};
}

static void everybody_reads_what_one_filled(tt_world *world, bool takes_part)
{
    tt_share *share = NULL;
    void *memory[N_KEYS];
    int64_t n_filled = 0;
    MUST(tt_share_create(world, takes_part, ARENA, N_KEYS + N_OWN * TEST_MAX_RANKS, &share));
    for (int k = 0; takes_part && k < N_KEYS; k++) {
        int key = (k * 83 + test_rank * 29) % N_KEYS; /* each in another order */
        bool fill = false;
        MUST(tt_share_claim(share, key_of(key), bytes_of(key), &memory[key], &fill));
        CHECK((uintptr_t)memory[key] % 64 == 0, "key %d is not aligned", key);
        for (size_t i = 0; fill && i < bytes_of(key); i++) {
            ((unsigned char *)memory[key])[i] = byte_at(key, i);
        }
        n_filled += fill;
    }
    for (int k = 0; takes_part && k < N_OWN; k++) { /* keys of one rank only */
        bool fill = false;
        void *own = NULL;
        MUST(tt_share_claim(share, key_of(1000000 + test_rank * N_OWN + k), 100, &own, &fill));
        CHECK(fill, "own key %d is another's", k);
        memset(own, test_rank, 100);
    }
    MUST(tt_world_agree(world, TT_OK));
    tt_share_populate(share);
    for (int key = 0; takes_part && key < N_KEYS; key++) {
        for (size_t i = 0; i < bytes_of(key); i++) {
            CHECK(((unsigned char *)memory[key])[i] == byte_at(key, i), "key %d, byte %zu", key, i);
        }
    }
    int64_t *all = calloc((size_t)test_size, sizeof(*all)), sum = 0;
    MUST(tt_world_allgather(world, &n_filled, sizeof(n_filled), all));
    for (int r = 0; r < test_size; r++) {
        sum += tt_world_node(world, r) == tt_world_node(world, test_rank) ? all[r] : 0;
    }
    CHECK(!takes_part || sum == N_KEYS, "%lld of %d filled on this node", (long long)sum, N_KEYS);
    free(all);
    tt_share_destroy(&share);
}

static void what_does_not_fit_is_refused(tt_world *world)
{
    tt_share *share = NULL;
    void *memory = NULL;
    bool fill = false;
    MUST(tt_share_create(world, true, 1 << 20, 10, &share));
    tt_status st = tt_share_claim(share, key_of(0), (size_t)64 << 20, &memory, &fill);
    CHECK(st == TT_ERR_CAPACITY, "status %d", (int)st);
    MUST(tt_world_barrier(world));
    MUST(tt_share_claim(share, key_of(1), 64, &memory, &fill));
    MUST(tt_world_barrier(world));
    st = tt_share_claim(share, key_of(1), 65, &memory, &fill);
    CHECK(st == TT_ERR_MISMATCH, "status %d", (int)st);
    MUST(tt_world_barrier(world));
    tt_share_destroy(&share);
}

/* A rank that is killed between winning a key and saying where the memory lies is named by who
 * waits for it. */
static void the_one_who_died_is_named(void)
{
    static const double deadline_s = 2.0;
    tt_world *world = test_world(0, TT_PROGRESS_POLLED, deadline_s);
    tt_share *share = NULL;
    void *memory = NULL;
    bool fill = false;
    tt_hash_pair key = key_of(4);
    MUST(tt_share_create(world, true, 1 << 20, 10, &share));
    int dead = test_size - 1;
    size_t slot = key.first & (share->n_slots - 1);
    if (test_rank == dead) {
        atomic_store(&share->line[share->me].trying, slot + 1);
        atomic_store(&share->slot[slot].key, key.first);
    }
    MUST(tt_world_barrier(world));
    double begin = MPI_Wtime();
    if (test_rank == dead) {
        while (!tt_world_is_broken(world)) { /* as if it were dead, but for the test to end */
            usleep(10000);
            if (MPI_Wtime() - begin > 1.5 * deadline_s) {
                tt_world_progress(world);
            }
        }
    } else {
        char name[32];
        tt_status st = tt_share_claim(share, key, 64, &memory, &fill);
        snprintf(name, sizeof(name), "rank %d (", dead);
        CHECK(st == TT_ERR_TIMEOUT, "status %d", (int)st);
        CHECK(strstr(tt_status_message(), name), "'%s' does not name rank %d", tt_status_message(),
              dead);
        CHECK(strstr(tt_status_message(), "shared weights"), "'%s'", tt_status_message());
        CHECK(MPI_Wtime() - begin < 2 * deadline_s, "%g s", MPI_Wtime() - begin);
    }
    tt_share_destroy(&share);
    tt_world_destroy(&world);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int split = 0; split < test_n_splits(); split++) {
        tt_world *world = test_world(split, TT_PROGRESS_POLLED, 30);
        everybody_reads_what_one_filled(world, true);
        everybody_reads_what_one_filled(world, test_rank % 2 == 0);
        what_does_not_fit_is_refused(world);
        tt_world_destroy(&world);
    }
    if (test_size > 1) {
        the_one_who_died_is_named();
    }
    return test_end("share");
}
