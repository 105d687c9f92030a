/* balance_fixture.h - random loads for tests of the balance room; the same on every machine. */
#ifndef BALANCE_FIXTURE_H
#define BALANCE_FIXTURE_H
#include <math.h>
#include <stdint.h>

static inline uint64_t next_random(uint64_t *s)
{
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *s >> 33;
}

static inline int64_t random_within(uint64_t *s, int64_t low, int64_t high)
{
    return low + (int64_t)(next_random(s) % (uint64_t)(high - low + 1));
}

/* Loads of a kind: even, Zipf, a few hot ones, many zeros. */
static inline void random_load(uint64_t *s, int64_t n, double *load)
{
    const int64_t kind = random_within(s, 0, 3);
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)random_within(s, 0, 1000);
        load[i] = kind == 0   ? x
                  : kind == 1 ? floor(1e5 / (1.0 + x))
                  : kind == 2 ? (x > 950 ? 1e4 * x : 10.0)
                              : (x > 500 ? 0.0 : x);
    }
}

#endif
