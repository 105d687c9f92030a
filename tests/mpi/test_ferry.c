/* test_ferry.c - what is sent beside the steps comes whole, in rounds of any sizes between any
 * ranks, while votes go on; what is damaged is noticed; a cap is kept to; nobody waits. */
/* TEST ranks: 1 2 3 5 */
/* TEST timeout: 120 */
#include "mpi_test.h"
#include <string.h>
#include "tutti/ferry.h"
#include "tutti/trace.h"

enum { MOST_BYTES = 700000, PER_PAIR = 3, ROUNDS = 12, MOST_RANKS = 16 };

/* Bytes of transfer `i` of a round from rank `from` to rank `to`; 0: there is none. */
static size_t bytes_of(int round, int from, int to, int i)
{
    const uint64_t x =
        test_mix((uint64_t)(((round * MOST_RANKS + from) * MOST_RANKS + to) * 8 + i));
    return from == to || x % 3 == 0 ? 0
           : x % 5 == 0             ? 1 + (x >> 8) % 64
                                    : 1 + (x >> 8) % MOST_BYTES;
}

static unsigned char byte_at(int round, int from, int i, size_t at)
{
    return (unsigned char)test_mix((uint64_t)round * 7919 + (uint64_t)from * 131 +
                                   (uint64_t)i * 17 + at / 8);
}

static unsigned char *slot_of(unsigned char *buffer, int peer, int i)
{
    return buffer + (size_t)(peer * PER_PAIR + i) * MOST_BYTES;
}

static void begin_round(tt_ferry *ferry, int round, unsigned char *out, unsigned char *in)
{
    for (int peer = 0; peer < test_size; peer++) {
        for (int i = 0; i < PER_PAIR; i++) {
            const size_t n_out = bytes_of(round, test_rank, peer, i),
                         n_in = bytes_of(round, peer, test_rank, i);
            const uint64_t key = (uint64_t)(round * 100 + i);
            for (size_t b = 0; b < n_out; b++) {
                slot_of(out, peer, i)[b] = byte_at(round, test_rank, i, b);
            }
            if (n_out > 0) {
                MUST(tt_ferry_send(ferry, peer, key, slot_of(out, peer, i), n_out));
            }
            if (n_in > 0) {
                MUST(tt_ferry_recv(ferry, peer, key, slot_of(in, peer, i), n_in));
            }
        }
    }
}

static void check_round(int round, unsigned char *in)
{
    for (int peer = 0; peer < test_size; peer++) {
        for (int i = 0; i < PER_PAIR; i++) {
            size_t n_bad = 0;
            for (size_t b = 0; b < bytes_of(round, peer, test_rank, i); b++) {
                n_bad += slot_of(in, peer, i)[b] != byte_at(round, peer, i, b);
            }
            CHECK(n_bad == 0, "round %d: %zu bytes from rank %d are wrong", round, n_bad, peer);
        }
    }
}

/* Votes on until all ranks' rounds have ended; whether any of them failed. */
static bool vote_until_done(tt_world *world, tt_ferry *ferry)
{
    bool ended = false, failed = false;
    for (int64_t value[2] = {1, 0}; value[0];) {
        const tt_ferry_state state = ended ? TT_FERRY_IDLE : tt_ferry_poll(ferry);
        ended = ended || state != TT_FERRY_BUSY;
        failed = failed || state == TT_FERRY_FAILED;
        value[0] = !ended;
        value[1] = failed;
        MUST(tt_vote_begin(world, value, 2));
        MUST(tt_vote_end(world, value));
        if (!value[0]) {
            return value[1] != 0;
        }
    }
    return false;
}

static void all_comes_whole(tt_world *world, unsigned char *out, unsigned char *in)
{
    tt_ferry *ferry = NULL;
    const tt_ferry_params params = {.max_items = 2 * PER_PAIR * MOST_RANKS};
    MUST(tt_ferry_create(world, &params, &ferry));
    for (int round = 0; round < ROUNDS; round++) {
        begin_round(ferry, round, out, in);
        CHECK(!vote_until_done(world, ferry), "round %d: %s", round, tt_ferry_why(ferry));
        check_round(round, in);
    }
    tt_ferry_destroy(&ferry);
}

/* What the last rank sends is damaged: whoever gets some of it says so, and the next object works. */
static void damage_is_noticed(tt_world *world, unsigned char *out, unsigned char *in)
{
    char text[32];
    tt_ferry *ferry = NULL;
    const tt_ferry_params params = {.max_items = 2 * PER_PAIR * MOST_RANKS};
    snprintf(text, sizeof(text), "fail:%d", test_size - 1);
    setenv("TUTTI_INJECT_FERRY", text, 1);
    MUST(tt_ferry_create(world, &params, &ferry));
    unsetenv("TUTTI_INJECT_FERRY");
    bool is_due = false, mine = false;
    for (int to = 0; to < test_size; to++) {
        for (int i = 0; i < PER_PAIR; i++) {
            is_due = is_due || bytes_of(1, test_size - 1, to, i) > 0;
            mine = mine || (to == test_rank && bytes_of(1, test_size - 1, to, i) > 0);
        }
    }
    begin_round(ferry, 1, out, in);
    CHECK(vote_until_done(world, ferry) == is_due, "damage was %s", is_due ? "missed" : "seen");
    CHECK(!mine || strstr(tt_ferry_why(ferry), "are not what was sent"), "\"%s\"",
          tt_ferry_why(ferry));
    tt_ferry_destroy(&ferry);
    setenv("TUTTI_INJECT_FERRY", "slow", 1);
    CHECK(tt_ferry_create(world, &params, &ferry) == TT_ERR_USAGE,
          "an unknown injection was taken");
    unsetenv("TUTTI_INJECT_FERRY");
}

/* 700 KB at 4 MB/s take at least until the last piece may leave: two pieces of 256 KiB earlier. */
static void a_cap_is_kept(tt_world *world, unsigned char *out, unsigned char *in)
{
    tt_ferry *ferry = NULL;
    const tt_ferry_params params = {.max_items = 2, .bytes_per_s = 4e6};
    MUST(tt_ferry_create(world, &params, &ferry));
    const uint64_t begin_ns = tt_now_ns();
    if (test_rank == 0 && test_size > 1) {
        MUST(tt_ferry_send(ferry, 1, 5, out, MOST_BYTES));
    } else if (test_rank == 1) {
        MUST(tt_ferry_recv(ferry, 0, 5, in, MOST_BYTES));
    }
    CHECK(!vote_until_done(world, ferry), "%s", tt_ferry_why(ferry));
    const double s = (double)(tt_now_ns() - begin_ns) / 1e9;
    if (test_rank == 0 && test_size > 1) { /* who receives may have begun later */
        CHECK(s > 0.13, "done after %.3f s", s);
        CHECK(tt_ferry_bytes(ferry) == MOST_BYTES, "%llu bytes",
              (unsigned long long)tt_ferry_bytes(ferry));
        MUST(tt_ferry_send(ferry, 1, 5, out, 10));
        MUST(tt_ferry_send(ferry, 1, 5, out, 10));
        CHECK(tt_ferry_send(ferry, 1, 5, out, 10) == TT_ERR_CAPACITY, "a third was taken");
        CHECK(tt_ferry_send(ferry, 0, 5, out, 10) != TT_OK, "one to itself was taken");
    } else if (test_rank == 1) {
        MUST(tt_ferry_recv(ferry, 0, 5, in, 10));
        MUST(tt_ferry_recv(ferry, 0, 5, in + 16, 10));
    }
    tt_ferry_destroy(&ferry); /* waits for those */
}

int main(int argc, char **argv)
{
    static const tt_progress modes[] = {TT_PROGRESS_POLLED, TT_PROGRESS_THREAD};
    test_begin(&argc, &argv);
    const size_t bytes = (size_t)MOST_RANKS * PER_PAIR * MOST_BYTES;
    unsigned char *out = malloc(bytes), *in = malloc(bytes);
    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        tt_world *world = NULL;
        const tt_world_params params = {
            .progress = modes[m], .deadline_s = 60, .comm_cpu = -1, .n_cores = 1};
        MUST(tt_world_create(MPI_COMM_WORLD, &params, &world));
        all_comes_whole(world, out, in);
        damage_is_noticed(world, out, in);
        a_cap_is_kept(world, out, in);
        tt_world_destroy(&world);
    }
    free(out);
    free(in);
    return test_end("transfers beside the steps");
}
