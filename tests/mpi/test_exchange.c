/* test_exchange.c - every y must have the bits of a serial sum, whatever the split into nodes, the
 * owners, the wire, the order of arrival. */
/* TEST ranks: 1 2 3 4 5 7 8 */
/* TEST timeout: 300 */
#include "exchange_case.h"
#include <unistd.h>
#include "tutti/cpu.h"
#include "ttk.h"

static const test_case cases[] = {
    /*name              H  K  T  wire          wire_back    width slots handles uses */
    {"ragged", 64, 4, 9, TT_WIRE_F32, TT_WIRE_F32, 1, 16, 1, 6, ROUTE_RANDOM, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"no tokens at all", 7, 2, 4, TT_WIRE_F32, TT_WIRE_F32, 1, 8, 2, 3, ROUTE_RANDOM, TOKENS_NONE,
     ROLES_ALL, 0, 0, 0, 0},
    {"all to one slot", 127, 3, 16, TT_WIRE_BF16, TT_WIRE_BF16, 1, 9, 2, 3, ROUTE_ONE, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"holes", 33, 4, 8, TT_WIRE_F32, TT_WIRE_BF16, 1, 11, 2, 4, ROUTE_HOLES, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"slot twice", 16, 4, 6, TT_WIRE_F32, TT_WIRE_F32, 1, 13, 1, 3, ROUTE_TWICE, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"own rank only", 65, 8, 5, TT_WIRE_BF16, TT_WIRE_F32, 1, 24, 1, 3, ROUTE_OWN, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"last owner only", 5, 2, 5, TT_WIRE_F32, TT_WIRE_F32, 1, 24, 1, 3, ROUTE_LAST, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"one column", 1, 1, 3, TT_WIRE_BF16, TT_WIRE_BF16, 1, 5, 1, 4, ROUTE_RANDOM, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"width 2880", 2880, 4, 4, TT_WIRE_BF16, TT_WIRE_BF16, 1, 32, 1, 2, ROUTE_RANDOM, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"width 7169", 7169, 2, 2, TT_WIRE_F32, TT_WIRE_F32, 1, 7, 1, 2, ROUTE_RANDOM, TOKENS_MOST,
     ROLES_ALL, 0, 0, 0, 0},
    {"odd values", 40, 3, 8, TT_WIRE_BF16, TT_WIRE_F32, 1, 8, 1, 3, ROUTE_RANDOM, TOKENS_MOST,
     ROLES_ALL, 1, 0, 0, 0},
    {"two parts", 67, 4, 7, TT_WIRE_F32, TT_WIRE_F32, 2, 10, 2, 4, ROUTE_HOLES, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 0, 0},
    {"two parts, bf16", 30, 8, 7, TT_WIRE_BF16, TT_WIRE_BF16, 2, 10, 3, 3, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_APART, 0, 0, 1, 0},
    {"sources and owners apart", 48, 6, 8, TT_WIRE_F32, TT_WIRE_F32, 1, 12, 2, 4, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_APART, 0, 0, 0, 0},
    {"odd ranks own", 21, 3, 8, TT_WIRE_F32, TT_WIRE_F32, 1, 12, 2, 4, ROUTE_RANDOM, TOKENS_RAGGED,
     ROLES_EVEN_OWN, 0, 0, 1, 0},
    {"one busy source", 24, 4, 20, TT_WIRE_F32, TT_WIRE_BF16, 1, 2, 2, 4, ROUTE_RANDOM,
     TOKENS_ONE_SOURCE, ROLES_ALL, 0, 0, 0, 0},
    {"three handles, sleepers, new maps", 32, 5, 8, TT_WIRE_F32, TT_WIRE_F32, 1, 20, 3, 8,
     ROUTE_RANDOM, TOKENS_RAGGED, ROLES_ALL, 0, 1, 1, 0},
    {"weights travel", 37, 3, 9, TT_WIRE_BF16, TT_WIRE_F32, 1, 11, 2, 4, ROUTE_HOLES, TOKENS_RAGGED,
     ROLES_ALL, 0, 0, 1, 1},
    {"weights travel, slot twice", 20, 4, 6, TT_WIRE_F32, TT_WIRE_BF16, 1, 13, 1, 3, ROUTE_TWICE,
     TOKENS_MOST, ROLES_ALL, 0, 0, 0, 1},
    {"weights travel to two parts", 67, 4, 7, TT_WIRE_BF16, TT_WIRE_BF16, 2, 10, 3, 4, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_APART, 0, 0, 1, 1},
    {"int8 both ways", 100, 4, 9, TT_WIRE_INT8, TT_WIRE_INT8, 1, 16, 2, 4, ROUTE_HOLES,
     TOKENS_RAGGED, ROLES_ALL, 0, 0, 0, 0},
    {"fp8 both ways, two parts", 161, 3, 7, TT_WIRE_FP8, TT_WIRE_FP8, 2, 10, 2, 3, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_ALL, 0, 0, 1, 0},
    {"int8 and odd values", 321, 3, 8, TT_WIRE_INT8, TT_WIRE_FP8, 1, 8, 1, 3, ROUTE_RANDOM,
     TOKENS_MOST, ROLES_ALL, 1, 0, 0, 0},
    {"fp8 with travelling weights", 31, 3, 9, TT_WIRE_FP8, TT_WIRE_INT8, 1, 11, 2, 4, ROUTE_HOLES,
     TOKENS_RAGGED, ROLES_ALL, 0, 0, 1, 1},
    {"one choice of two wide parts", 2049, 1, 9, TT_WIRE_F32, TT_WIRE_F32, 2, 10, 2, 3,
     ROUTE_RANDOM, TOKENS_MOST, ROLES_ALL, 0, 0, 0, 0},
    {"one choice travels", 33, 1, 9, TT_WIRE_F32, TT_WIRE_F32, 1, 16, 1, 4, ROUTE_RANDOM,
     TOKENS_RAGGED, ROLES_EVEN_OWN, 1, 0, 0, 1},
};

/* Uses per handle; fewer where many ranks share few cores. With 2 ranks all splits together see
 * some thousands. */
enum { SOAK_USES = 100, SOAK_USES_CROWDED = 25 };
static const test_case soak = {"soak", 12, 2,         4,           TT_WIRE_F32,   TT_WIRE_BF16, 1,
                               10,     3,  SOAK_USES, ROUTE_HOLES, TOKENS_RAGGED, ROLES_ALL,    0,
                               0,      1,  0};

static tt_world *make_world(int split, tt_progress progress, const char *piece, int64_t delay_ns)
{
    int fake[TEST_MAX_RANKS];
    tt_world_params p = {.progress = progress,
                         .deadline_s = 60,
                         .n_cores = 1,
                         .comm_cpu = -1,
                         .fake_node = fake,
                         .delay_ns = delay_ns};
    tt_world *world = NULL;
    test_split(split, test_size, fake);
    if (piece) {
        setenv("TUTTI_TEST_PIECE_BYTES", piece, 1);
    }
    MUST(tt_world_create(MPI_COMM_WORLD, &p, &world));
    unsetenv("TUTTI_TEST_PIECE_BYTES");
    return world;
}

static int64_t resident_bytes(void)
{
    long long total = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%lld %lld", &total, &resident) == 2, "no /proc/self/statm");
    if (statm) {
        fclose(statm);
    }
    return resident * sysconf(_SC_PAGESIZE);
}

/* So many uses of random sizes on three handles, over the split, in all wires and chunks: all
 * right, and no memory is gained once a tenth of them has passed. */
static void long_soak(int split, int n_uses)
{
    enum { PARTS = 10, GROWTH = 1 << 20 };
    test_case c = soak;
    int64_t early = 0;
    c.n_uses = n_uses / PARTS / c.n_handles + 1;
    tt_world *world = make_world(split, TT_PROGRESS_POLLED, NULL, 0);
    for (int part = 0; part < PARTS; part++) {
        const uint64_t dice = test_mix((uint64_t)part);
        c.wire = (tt_wire)(dice % TT_WIRE_COUNT);
        c.wire_back = (tt_wire)(dice / 8 % TT_WIRE_COUNT);
        run_route(world, &c, part % 4 < 2 ? TT_ROUTE_NODE : TT_ROUTE_DIRECT,
                  part % 2 > 0 ? TT_COMBINE_REDUCED : TT_COMBINE_EXACT, dice / 64);
        early = part == 0 ? resident_bytes() : early;
    }
    const int64_t growth = resident_bytes() - early;
    CHECK(growth < GROWTH, "split %d: %lld bytes more in memory after %d uses", split,
          (long long)growth, n_uses);
    tt_world_destroy(&world);
    if (test_rank == 0) {
        printf("# split %d: %d uses, %lld bytes grown\n", split, c.n_uses * c.n_handles * PARTS,
               (long long)growth);
    }
}

/* test_exchange --soak N: N uses on each split into nodes, and nothing else. */
int main(int argc, char **argv)
{
    static const tt_progress modes[TEST_SPLITS] = {TT_PROGRESS_POLLED, TT_PROGRESS_POLLED,
                                                   TT_PROGRESS_CALLER, TT_PROGRESS_THREAD,
                                                   TT_PROGRESS_CALLER};
    test_begin(&argc, &argv);
    ttk_init(tt_cpu_flags());
    const int n_splits = test_n_splits();
    if (argc == 3 && strcmp(argv[1], "--soak") == 0) {
        for (int split = 0; split < n_splits; split++) {
            long_soak(split, atoi(argv[2]));
        }
        return test_end("exchange");
    }
    for (int split = 0; split < n_splits; split++) {
        /* Messages in pieces of 512 bytes for the odd splits. */
        tt_world *world = make_world(split, modes[split], split % 2 ? "512" : NULL, 0);
        if (split < 2) {
            exchange_refusals(world);
        }
        if (test_size > 1 && tt_world_n_nodes(world) == test_size) { /* all are far */
            one_rank_without_memory(world);
        }
        bool is_crowded = test_size >= CROWDED;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            if (!is_crowded || (i + (size_t)split) % 2 == 0) {
                run_case(world, &cases[i], (uint64_t)split * 100 + i);
            }
        }
        test_case long_run = soak;
        long_run.n_uses = is_crowded ? SOAK_USES_CROWDED : SOAK_USES;
        run_case(world, &long_run, 77);
        tt_world_destroy(&world);
    }
    /* Injected delay: still right, and no sooner than the delay says (two hops). */
    for (int split = 0; split < 2 && test_size > 1; split++) {
        tt_world *world = make_world(split, TT_PROGRESS_POLLED, NULL, 5000000);
        double begin = MPI_Wtime();
        run_case(world, &cases[0], 5);
        double spent = MPI_Wtime() - begin;
        CHECK(spent > 2 * 0.005 * cases[0].n_uses, "%g s with a delay of 5 ms", spent);
        tt_world_destroy(&world);
    }
    return test_end("exchange");
}
