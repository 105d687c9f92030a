/* test_share.c - what several ranks of a node need is filled by one and read by all, bit for bit; what is theirs alone is not. */
/* TEST ranks: 1 2 3 5 8 */
/* TEST timeout: 60 */
#include "mpi_test.h"
#include <string.h>
#include "tutti/share.h"

enum { N_KEYS = 200, N_OWN = 7, ARENA = 24 << 20, BIG = 3 << 20 };

static size_t bytes_of(int key)
{
    return key == 5 ? BIG : (size_t)(key * 37 + 1);
}

static unsigned char byte_at(int key, size_t i)
{
    return (unsigned char)test_mix((uint64_t)key * 65537u + i);
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
        MUST(tt_share_claim(share, (uint64_t)key + 1, bytes_of(key), &memory[key], &fill));
        CHECK((uintptr_t)memory[key] % 64 == 0, "key %d is not aligned", key);
        for (size_t i = 0; fill && i < bytes_of(key); i++) {
            ((unsigned char *)memory[key])[i] = byte_at(key, i);
        }
        n_filled += fill;
    }
    for (int k = 0; takes_part && k < N_OWN; k++) { /* keys of one rank only */
        bool fill = false;
        void *own = NULL;
        MUST(tt_share_claim(share, 1000000 + (uint64_t)(test_rank * N_OWN + k), 100, &own, &fill));
        CHECK(fill, "own key %d is another's", k);
        memset(own, test_rank, 100);
    }
    MUST(tt_world_agree(world, TT_OK));
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
    tt_status st = tt_share_claim(share, 1, (size_t)64 << 20, &memory, &fill);
    CHECK(st == TT_ERR_CAPACITY, "status %d", (int)st);
    MUST(tt_world_barrier(world));
    MUST(tt_share_claim(share, 2, 64, &memory, &fill));
    MUST(tt_world_barrier(world));
    st = tt_share_claim(share, 2, 65, &memory, &fill);
    CHECK(st == TT_ERR_MISMATCH, "status %d", (int)st);
    MUST(tt_world_barrier(world));
    tt_share_destroy(&share);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int split = 0; split < (test_size == 1 ? 1 : TEST_SPLITS); split++) {
        int fake[TEST_MAX_RANKS];
        tt_world *world = NULL;
        test_split(split, test_size, fake);
        tt_world_params p = {.progress = TT_PROGRESS_POLLED, .deadline_s = 30, .comm_cpu = -1, .fake_node = fake};
        MUST(tt_world_create(MPI_COMM_WORLD, &p, &world));
        everybody_reads_what_one_filled(world, true);
        everybody_reads_what_one_filled(world, test_rank % 2 == 0);
        what_does_not_fit_is_refused(world);
        tt_world_destroy(&world);
    }
    return test_end("share");
}
