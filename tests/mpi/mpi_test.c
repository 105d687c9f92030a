/* mpi_test.c - see mpi_test.h. */
#include "mpi_test.h"
#include <sys/resource.h>
#include <unistd.h>

int test_failures;
int test_rank, test_size;

void test_begin(int *argc, char ***argv)
{
    int level = 0;
    MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &test_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &test_size);
    if (level < MPI_THREAD_SERIALIZED) {
        fprintf(stderr, "MPI gives thread level %d only\n", level);
        MPI_Finalize();
        exit(77);
    }
}

void test_needs_ranks(int n)
{
    if (test_size != n) {
        fprintf(stderr, "a test of %d ranks, not of %d\n", n, test_size);
        MPI_Finalize();
        exit(77);
    }
}

int test_end(const char *name)
{
    int all = 0;
    MPI_Allreduce(&test_failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (test_rank == 0) {
        printf("%s - %s on %d ranks\n", all ? "not ok" : "ok", name, test_size);
    }
    MPI_Finalize();
    return all ? 1 : 0;
}

bool test_limit_memory(int64_t slack)
{
    struct rlimit limit;
    unsigned long long pages = 0;
    if (getrlimit(RLIMIT_AS, &limit) != 0) {
        return false;
    }
    limit.rlim_cur = limit.rlim_max;
    if (slack >= 0) {
        FILE *file = fopen("/proc/self/statm", "r");
        bool is_read = file && fscanf(file, "%llu", &pages) == 1;
        if (file) {
            fclose(file);
        }
        if (!is_read) {
            return false;
        }
        limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (rlim_t)slack;
    }
    return setrlimit(RLIMIT_AS, &limit) == 0;
}

const char *test_split(int split, int size, int *fake_node)
{
    static const char *const names[TEST_SPLITS] = {"one node", "3 to 5", "1 and the rest",
                                                   "round-robin", "a node each"};
    for (int r = 0; r < size; r++) {
        int part[TEST_SPLITS] = {0, r >= (size * 3) / 8, r >= 1, r % 2, r};
        fake_node[r] = part[split];
    }
    return names[split];
}

int test_n_splits(void)
{
    return test_size == 1 ? 1 : TEST_SPLITS;
}

tt_world *test_world(int split, tt_progress progress, double deadline_s)
{
    int fake[TEST_MAX_RANKS];
    tt_world *world = NULL;
    test_split(split, test_size, fake);
    const tt_world_params params = {
        .progress = progress, .deadline_s = deadline_s, .comm_cpu = -1, .fake_node = fake};
    MUST(tt_world_create(MPI_COMM_WORLD, &params, &world));
    return world;
}

const int *test_all_ranks(void)
{
    static int all[TEST_MAX_RANKS];
    for (int r = 0; r < test_size; r++) {
        all[r] = r;
    }
    return all;
}

tt_exchange_params test_small_exchange(void)
{
    return (tt_exchange_params){.H = 8,
                                .K = 2,
                                .max_tokens = 4,
                                .source = test_all_ranks(),
                                .n_sources = test_size,
                                .owner = test_all_ranks(),
                                .n_owners = test_size};
}
