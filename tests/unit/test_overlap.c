/* test_overlap.c - when steps go in two parts, on made-up machines whose step times and waits are known. */
#include "../../src/engine/engine_internal.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

/* A step takes whole_s or parts_s, off by up to `noise` of it, and grows by `drift` of it with every step; of a whole one waited_s are waits. */
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
        const double still = (parts == 2 ? m->parts_s : m->whole_s) * (1.0 + m->drift * (double)m->n++);
        tti_overlap_took(overlap, still * (1.0 + m->noise * uniform(m)), parts == 2 ? 0.0 : m->waited_s);
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
    assert_in_range(run(&overlap, &m, 64, 100000), 4, 120);
}

static void what_is_faster_stays(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        tti_overlap overlap = {0};
        machine m = {.whole_s = 0.01, .parts_s = 0.008, .waited_s = 0.003, .noise = 0.1, .random = seed};
        assert_int_equal(run(&overlap, &m, 64, 8), 0);
        assert_int_equal(run(&overlap, &m, 64, 8), 4);
        assert_in_range(run(&overlap, &m, 64, 5000), 4900, 5000);
        m.parts_s = 0.013; /* the load changed */
        assert_in_range(run(&overlap, &m, 64, 3000), 4, 600);
    }
}

static void steps_that_grow_deceive_nobody(void **state)
{
    (void)state;
    tti_overlap slower = {0}, faster = {0};
    machine m = {.whole_s = 0.01, .parts_s = 0.0102, .waited_s = 0.005, .drift = 0.05};
    assert_int_equal(run(&slower, &m, 512, 100), 4);
    m.parts_s = 0.0095;
    assert_int_equal(run(&faster, &m, 512, 100), 88);
}

static void one_slow_step_decides_nothing(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        tti_overlap overlap = {0};
        machine m = {.whole_s = 0.01, .parts_s = kind ? 0.009 : 0.011, .waited_s = 0.005};
        run(&overlap, &m, 64, 8 + kind); /* the trial's first step is in parts, the second whole */
        tti_overlap_choose(&overlap, 64);
        tti_overlap_took(&overlap, 1.0, 0.0);
        run(&overlap, &m, 64, 7 - kind);
        assert_int_equal(run(&overlap, &m, 64, 100), kind ? 100 : 0);
    }
}

static void sizes_are_judged_apart(void **state)
{
    (void)state;
    tti_overlap overlap = {0};
    machine small = {.whole_s = 0.01, .parts_s = 0.02, .waited_s = 0.005}, large = {.whole_s = 0.1, .parts_s = 0.08, .waited_s = 0.05};
    for (int i = 0; i < 16; i++) {
        run(&overlap, &small, 7, 1);
        run(&overlap, &large, 8, 1);
    }
    assert_int_equal(run(&overlap, &small, 4, 50), 0);
    assert_int_equal(run(&overlap, &large, 15, 50), 50);
    run(&overlap, &large, INT64_MAX, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_waits_nothing_is_tried), cmocka_unit_test(a_trial_in_vain_costs_little), cmocka_unit_test(what_is_faster_stays),
        cmocka_unit_test(steps_that_grow_deceive_nobody), cmocka_unit_test(one_slow_step_decides_nothing), cmocka_unit_test(sizes_are_judged_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
