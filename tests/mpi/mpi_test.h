/* mpi_test.h - what tests under mpirun share: start and end, checks that count failures, fake node
 * splits, a small random source. */
#ifndef TUTTI_MPI_TEST_H
#define TUTTI_MPI_TEST_H
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/comm_mpi.h"
#include "tutti/exchange.h"

extern int test_failures;
extern int test_rank, test_size;

/* Counts and reports a failed condition; the test goes on. */
#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            if (test_failures++ < 10) {                                                            \
                fprintf(stderr, "rank %d: %s:%d: %s: ", test_rank, __FILE__, __LINE__, #cond);     \
                fprintf(stderr, __VA_ARGS__);                                                      \
                fprintf(stderr, "\n");                                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        tt_status check_status = (call);                                                           \
        CHECK(check_status == TT_OK, "%s: %s\n%s", tt_status_name(check_status),                   \
              tt_status_message(), tt_status_trace_text());                                        \
    } while (0)
/* A failure after which nothing can go on. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        tt_status must_status = (call);                                                            \
        if (must_status != TT_OK) {                                                                \
            fprintf(stderr, "rank %d: %s:%d: %s: %s: %s\n", test_rank, __FILE__, __LINE__, #call,  \
                    tt_status_name(must_status), tt_status_message());                             \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

void test_begin(int *argc, char ***argv);
/* Ends the test as skipped on another number of ranks. */
void test_needs_ranks(int n);
/* Prints one TAP line on rank 0; the exit code is the same on all ranks. */
int test_end(const char *name);

/* splitmix64: a hash of its argument. Source: Steele, Lea, Flood, OOPSLA 2014. */
static inline uint64_t test_mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t test_next(uint64_t *state)
{
    return test_mix((*state)++);
}

/* In [0, n). */
static inline int64_t test_below(uint64_t *state, int64_t n)
{
    return (int64_t)(test_next(state) % (uint64_t)n);
}

/* Leaves this process `slack` bytes of address space more than it has; slack < 0 lifts the limit.
 * False if that cannot be. */
bool test_limit_memory(int64_t slack);

/* Node splits that a test goes through: one node, about 3 + 5, 1 + rest, round-robin over two, one
 * node per rank. */
enum { TEST_SPLITS = 5, TEST_MAX_RANKS = 64 };
const char *test_split(int split, int size, int *fake_node);
/* How many of them differ: one rank has one. */
int test_n_splits(void);
/* All ranks in such a split, without a core for communication. */
tt_world *test_world(int split, tt_progress progress, double deadline_s);

/* 0 .. test_size - 1, for ever. */
const int *test_all_ranks(void);

/* Few narrow rows, of every rank to every rank: H = 8, K = 2, T = 4. */
tt_exchange_params test_small_exchange(void);

#endif
