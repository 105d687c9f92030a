/* test_relay.c - all members of a node get the bytes that one of them read, in order, whoever
 * dawdles; a reader's fault reaches all. */
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
        uint64_t ahead, n_left = seed % 2 ? 1 : N_PIECES - p; /* some read ahead, some do not */
        void *place;
        const void *piece;
        for (;;) {
            MUST(tt_relay_begin(relay, n_left, &ahead, &place));
            if (!place) {
                break;
            }
            CHECK(ahead < n_left, "piece %llu ahead of %llu", (unsigned long long)ahead,
                  (unsigned long long)n_left);
            for (size_t i = 0; i < PIECE; i += 97) {
                ((unsigned char *)place)[i] = byte_at(p + ahead, i);
            }
            n_read++;
            tt_relay_publish(relay, TT_OK);
        }
        MUST(tt_relay_take(relay, &piece));
        if (test_mix(seed + p) % 64 == 0) {
            usleep(300);
        }
        for (size_t i = 0; i < PIECE; i += 97) {
            CHECK(((const unsigned char *)piece)[i] == byte_at(p, i), "piece %llu, byte %zu",
                  (unsigned long long)p, i);
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
        CHECK(n_read >= N_PIECES / n && n_read <= N_PIECES / n + 1, "read %d of %d with %d members",
              n_read, N_PIECES, n);
    }
    tt_relay_destroy(&relay);
}

/* What a member meets with pieces until `last`. The reader of FAULTY cannot read; or whoever is
 * `quitter` leaves before it. */
static tt_status walk_until_fault(tt_relay *relay, bool is_read_fault, int quitter)
{
    tt_status st = TT_OK;
    for (uint64_t p = 0; st == TT_OK && p < N_PIECES; p++) {
        uint64_t ahead;
        void *place;
        const void *piece;
        if (!is_read_fault && p == FAULTY && test_rank == quitter) {
            return TT_FAIL(TT_ERR_NOMEM, "no memory for panels");
        }
        st = tt_relay_begin(relay, N_PIECES - p, &ahead, &place);
        while (st == TT_OK && place) {
            bool bad = is_read_fault && p + ahead == FAULTY;
            tt_relay_publish(relay,
                             bad ? TT_FAIL(TT_ERR_IO, "weights.bin: cannot be read") : TT_OK);
            st = bad ? TT_ERR_IO : tt_relay_begin(relay, N_PIECES - p, &ahead, &place);
        }
        if (st == TT_OK) {
            st = tt_relay_take(relay, &piece);
        }
        if (st == TT_OK) {
            tt_relay_release(relay);
        }
    }
    return st;
}

static void a_fault_reaches_all(tt_world *world)
{
    tt_relay *relay = NULL;
    MUST(tt_relay_create(world, true, PIECE, &relay));
    tt_status st = walk_until_fault(relay, true, -1);
    CHECK(st == TT_ERR_IO, "status %d", (int)st);
    CHECK(strstr(tt_status_message(), "weights.bin: cannot be read") != NULL, "message '%s'",
          tt_status_message());
    tt_relay_destroy(&relay);
}

/* One rank leaves: all of its node hear of it, and nobody waits for it. */
static void who_leaves_is_heard_of(tt_world *world)
{
    tt_relay *relay = NULL;
    int node = tt_world_node(world, test_rank);
    MUST(tt_relay_create(world, true, PIECE, &relay));
    tt_status st = walk_until_fault(relay, false, test_size - 1);
    if (st != TT_OK) {
        tt_relay_fail(relay, st);
    }
    bool reached = node == tt_world_node(world, test_size - 1);
    CHECK(st == (reached ? TT_ERR_NOMEM : TT_OK), "status %d: %s", (int)st, tt_status_message());
    CHECK(!reached || strstr(tt_status_message(), "no memory for panels") != NULL, "message '%s'",
          tt_status_message());
    tt_relay_destroy(&relay);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    for (int split = 0; split < test_n_splits(); split++) {
        tt_world *world =
            test_world(split, split % 2 ? TT_PROGRESS_THREAD : TT_PROGRESS_POLLED, 30);
        members_share_the_reading(world, true);
        members_share_the_reading(world, test_rank % 2 == 0);
        a_fault_reaches_all(world);
        who_leaves_is_heard_of(world);
        tt_world_destroy(&world);
    }
    return test_end("relay");
}
