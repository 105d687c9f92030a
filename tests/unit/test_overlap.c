/* test_overlap.c - when steps go in two parts, on made-up machines whose step times and waits are
 * known. */
#include "../../src/engine/engine_internal.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

/* A step takes whole_s or parts_s, off by up to `noise` of it, and grows by `drift` of it with
 * every step; of a whole one waited_s are waits. */
typedef struct machine {
    double whole_s, parts_s, waited_s, noise, drift;
    uint64_t random, n;
} machine;

static double uniform(machine *m)
{
    m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(m->random >> 11) / (double)(UINT64_C(1) << 53);
}

/* Runs n steps of so many rows; returns how many of them went in parts. */
static int run(tti_overlap *overlap, machine *m, int64_t rows, int n)
{
    int in_parts = 0;
    for (int i = 0; i < n; i++) {
        const int parts = tti_overlap_choose(overlap, rows);
        assert_in_range(parts, 1, 2);
        const double still =
            (parts == 2 ? m->parts_s : m->whole_s) * (1.0 + m->drift * (double)m->n++);
        tti_overlap_took(overlap, still * (1.0 + m->noise * uniform(m)),
                         parts == 2 ? 0.0 : m->waited_s);
        in_parts += parts == 2;
    }
    return in_parts;
}

static void without_waits_nothing_is_tried(void **state)
{
    (void)state;
    tti_overlap overlap = {0};
    machine m = {.whole_s = 0.01, .parts_s = 0.005, .waited_s = 0.0004, .noise = 0.2, .random = 1};
    assert_int_equal(run(&overlap, &m, 64, 100000), 0);
    m.waited_s = 0.01;
    assert_int_equal(run(&overlap, &m, 1, 1000), 0); /* one row has no parts */
    assert_int_equal(run(&overlap, &m, 0, 1000), 0);
}

static void a_trial_in_vain_costs_little(void **state)
{
    (void)state;
    tti_overlap overlap = {0};
    machine m = {.whole_s = 0.01, .parts_s = 0.015, .waited_s = 0.005, .noise = 0.2, .random = 2};
    assert_int_equal(run(&overlap, &m, 64, 264), 4);
    assert_in_range(run(&overlap, &m, 64, 100000), 80, 120);
}

static void what_is_faster_stays(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        tti_overlap overlap = {0};
        machine m = {
            .whole_s = 0.01, .parts_s = 0.008, .waited_s = 0.003, .noise = 0.1, .random = seed};
        assert_int_equal(run(&overlap, &m, 64, 8), 0);
        assert_int_equal(run(&overlap, &m, 64, 8), 4);
        assert_in_range(run(&overlap, &m, 64, 5000), 4900, 5000); /* but for later trials */
        m.parts_s = 0.013;                                        /* the load changed */
        assert_in_range(run(&overlap, &m, 64, 3000), 4, 600);
    }
}

static void a_drift_deceives_nobody(void **state)
{
    (void)state;
    for (double drift = -0.002; drift < 0.5; drift = drift < 0 ? 0.05 : 2 * drift) {
        for (int is_faster = 0; is_faster < 2; is_faster++) {
            tti_overlap overlap = {0};
            machine m = {.whole_s = 0.01,
                         .parts_s = is_faster ? 0.0095 : 0.01,
                         .waited_s = 0.0095,
                         .drift = drift};
            m.waited_s = drift > 0 ? 0.5 : m.waited_s; /* steps grow, and with them waits */
            assert_int_equal(run(&overlap, &m, 512, 76), is_faster ? 64 : 4);
        }
    }
}

static void one_odd_step_decides_nothing(void **state)
{
    (void)state;
    for (int at = 0; at < 8; at++) {
        for (int is_faster = 0; is_faster < 2; is_faster++) {
            for (int is_slow = 0; is_slow < 2; is_slow++) {
                tti_overlap overlap = {0};
                machine m = {
                    .whole_s = 0.01, .parts_s = is_faster ? 0.009 : 0.011, .waited_s = 0.005};
                run(&overlap, &m, 64, 8 + at);
                tti_overlap_choose(&overlap, 64);
                tti_overlap_took(&overlap, is_slow ? 1.0 : 1e-5, 0.0);
                run(&overlap, &m, 64, 7 - at);
                assert_int_equal(run(&overlap, &m, 64, 50), is_faster ? 50 : 0);
            }
        }
    }
}

/* Steps take time for each row; rows differ inside a size, so most steps make no pair. */
static void steps_of_unlike_rows_are_no_pair(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        tti_overlap overlap = {0};
        machine m = {.random = seed, .noise = 0.02, .waited_s = 0.01};
        int in_parts = 0;
        for (int i = 0; i < 60; i++) {
            const int64_t rows = 64 + (int64_t)(63 * uniform(&m));
            m.whole_s = 1e-3 * (double)rows;
            m.parts_s = 1.15 * m.whole_s;
            in_parts += run(&overlap, &m, rows, 1);
        }
        wrong += in_parts > 20;
    }
    assert_in_range(wrong, 0, 4);
    tti_overlap overlap = {0};
    machine m = {.whole_s = 0.01, .parts_s = 0.001, .waited_s = 0.005};
    for (int i = 0; i < 100; i++) { /* never two alike: given up, though parts would win */
        run(&overlap, &m, i % 2 ? 64 : 100, 1);
    }
    assert_int_equal(run(&overlap, &m, 64, 100), 0);
}

static void sizes_are_judged_apart(void **state)
{
    (void)state;
    tti_overlap overlap = {0};
    machine small = {.whole_s = 0.01, .parts_s = 0.02, .waited_s = 0.005},
            large = {.whole_s = 0.1, .parts_s = 0.08, .waited_s = 0.05};
    for (int i = 0; i < 16; i++) {
        run(&overlap, &small, 7, 1);
        run(&overlap, &large, 8, 1);
    }
    assert_int_equal(run(&overlap, &small, 4, 50), 0);
    assert_int_equal(run(&overlap, &large, 15, 50), 50);
    assert_int_equal(run(&overlap, &small, INT64_MAX, 16), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_waits_nothing_is_tried),
                                       cmocka_unit_test(a_trial_in_vain_costs_little),
                                       cmocka_unit_test(what_is_faster_stays),
                                       cmocka_unit_test(a_drift_deceives_nobody),
                                       cmocka_unit_test(one_odd_step_decides_nothing),
                                       cmocka_unit_test(steps_of_unlike_rows_are_no_pair),
                                       cmocka_unit_test(sizes_are_judged_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
