/* test_relay.c - all members of a node get the bytes that one of them read, in order, whoever dawdles; a reader's fault reaches all. */
/* TEST ranks: 1 2 3 5 8 */
/* TEST timeout: 60 */
#include "mpi_test.h"
#include <string.h>
#include <unistd.h>
#include "tutti/relay.h"

enum { PIECE = 10000, N_PIECES = 300, FAULTY = 17 };

static unsigned char byte_at(uint64_t piece, size_t i)
{
    return (unsigned char)test_mix(piece * PIECE + i);
}

/* Every member takes all pieces; each is read once. Returns how many this rank read. */
static int walk(tt_relay *relay, uint64_t seed)
{
    int n_read = 0;
    for (uint64_t p = 0; p < N_PIECES; p++) {
        bool mine;
        void *place;
        const void *piece;
        MUST(tt_relay_begin(relay, &mine, &place));
        if (mine) {
            for (size_t i = 0; i < PIECE; i += 97) {
                ((unsigned char *)place)[i] = byte_at(p, i);
            }
            n_read++;
            tt_relay_publish(relay, TT_OK);
        }
        MUST(tt_relay_take(relay, &piece));
        if (test_mix(seed + p) % 64 == 0) {
            usleep(300);
        }
        for (size_t i = 0; i < PIECE; i += 97) {
            CHECK(((const unsigned char *)piece)[i] == byte_at(p, i), "piece %llu, byte %zu", (unsigned long long)p, i);
        }
        tt_relay_release(relay);
    }
    return n_read;
}

/* Only some ranks take part; each of them reads its share and no more. */
static void members_share_the_reading(tt_world *world, bool takes_part)
{
    tt_relay *relay = NULL;
    MUST(tt_relay_create(world, takes_part, PIECE, &relay));
    int n = tt_relay_n_members(relay);
    CHECK(takes_part ? n >= 1 : n == 0, "%d members", n);
    if (takes_part) {
        int n_read = walk(relay, (uint64_t)tt_world_rank(world));
        CHECK(n_read >= N_PIECES / n && n_read <= N_PIECES / n + 1, "read %d of %d with %d members", n_read, N_PIECES, n);
    }
    tt_relay_destroy(&relay);
}

static void a_fault_reaches_all(tt_world *world)
{
    tt_relay *relay = NULL;
    MUST(tt_relay_create(world, true, PIECE, &relay));
    tt_status st = TT_OK;
    for (int p = 0; st == TT_OK && p <= FAULTY; p++) {
        bool mine;
        void *place;
        const void *piece;
        MUST(tt_relay_begin(relay, &mine, &place));
        if (mine) {
            tt_relay_publish(relay, p == FAULTY ? TT_FAIL(TT_ERR_IO, "weights.bin: cannot be read") : TT_OK);
        }
        st = tt_relay_take(relay, &piece);
        if (st == TT_OK) {
            tt_relay_release(relay);
        }
    }
    CHECK(st == TT_ERR_IO, "status %d", (int)st);
    CHECK(strstr(tt_status_message(), "weights.bin: cannot be read") != NULL, "message '%s'", tt_status_message());
    tt_relay_destroy(&relay);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int split = 0; split < (test_size == 1 ? 1 : TEST_SPLITS); split++) {
        int fake[TEST_MAX_RANKS];
        tt_world *world = NULL;
        test_split(split, test_size, fake);
        tt_world_params p = {.progress = split % 2 ? TT_PROGRESS_THREAD : TT_PROGRESS_POLLED,
                             .deadline_s = 30,
                             .comm_cpu = -1,
                             .fake_node = fake};
        MUST(tt_world_create(MPI_COMM_WORLD, &p, &world));
        members_share_the_reading(world, true);
        members_share_the_reading(world, test_rank % 2 == 0);
        a_fault_reaches_all(world);
        tt_world_destroy(&world);
    }
    return test_end("relay");
}
