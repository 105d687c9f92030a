/* test_balance.c - the published balancer number for number, and what every plan must be, on random
 * cases. */
#include "tutti/balance.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "balance_fixture.h"
#include "tutti/hash.h"

enum { MOST_SLOTS = 512 };

/* Plans one layer and compares slots; copies too where they are given. */
static void expect_slots(const double *load, tt_balance_shape shape, const int32_t *expert,
                         const double *rank_load)
{
    int32_t got[MOST_SLOTS];
    assert_int_equal(tt_balance_slots(load, &shape, got, NULL), TT_OK);
    assert_memory_equal(got, expert, (size_t)shape.n_slots * sizeof(*expert));
    int count[MOST_SLOTS] = {0};
    for (int64_t s = 0; s < shape.n_slots; s++) {
        count[got[s]]++;
    }
    for (int r = 0; r < shape.n_ranks; r++) {
        const int64_t per = shape.n_slots / shape.n_ranks;
        double sum = 0.0;
        for (int64_t s = r * per; s < (r + 1) * per; s++) {
            sum += load[got[s]] / count[got[s]];
        }
        if (fabs(sum - rank_load[r]) > 1e-3) {
            fail_msg("rank %d has %.6f, expected %.6f", r, sum, rank_load[r]);
        }
    }
}

/* Two layers of twelve experts in four sets, on two nodes of four ranks: by node, then globally. */
static void twelve_experts(void **state)
{
    (void)state;
    const double w[2][12] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                             {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
    const int32_t by_node[2][16] = {{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
                                    {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
    const double node_load[2][8] = {{121.5, 86.5, 125, 113, 147.5, 131.5, 156, 152},
                                    {173, 179.5, 120.5, 172, 123, 152, 118.5, 117.5}};
    const int32_t global[2][16] = {{10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1},
                                   {1, 10, 2, 4, 5, 11, 5, 0, 6, 7, 6, 3, 8, 8, 9, 7}};
    const double global_load[2][8] = {{130.5, 95.5, 130, 138, 138.5, 134.5, 134, 132},
                                      {123, 123, 125.5, 118.5, 172, 157.5, 172, 164.5}};
    for (int l = 0; l < 2; l++) {
        expect_slots(w[l], (tt_balance_shape){12, 16, 4, 2, 8}, by_node[l], node_load[l]);
        expect_slots(w[l], (tt_balance_shape){12, 16, 1, 2, 8}, global[l], global_load[l]);
    }
    /* Which copy stands where: the tables of the first layer, expert by expert. */
    const int32_t where[12][2] = {{12, -1}, {15, 13}, {11, -1}, {6, -1}, {7, 5},  {0, 2},
                                  {1, -1},  {3, -1},  {4, -1},  {9, -1}, {8, 10}, {14, -1}};
    int32_t expert[16], copy[16];
    const tt_balance_shape shape = {12, 16, 4, 2, 8};
    assert_int_equal(tt_balance_slots(w[0], &shape, expert, copy), TT_OK);
    for (int s = 0; s < 16; s++) {
        assert_int_equal(where[expert[s]][copy[s]], s);
    }
}

static void eight_experts(void **state)
{
    (void)state;
    const double w[] = {100, 50, 200, 10, 70, 30, 20, 120};
    const int32_t copies[] = {4, 1, 5, 2, 7, 6, 2, 7, 3, 2, 0, 0};
    const double copies_load[] = {150, 146.6667, 136.6667, 166.6667};
    expect_slots(w, (tt_balance_shape){8, 12, 1, 2, 4}, copies, copies_load);
    const int32_t once[] = {2, 3, 7, 6, 0, 5, 4, 1};
    const double once_load[] = {210, 140, 130, 120};
    expect_slots(w, (tt_balance_shape){8, 8, 1, 2, 4}, once, once_load);
    const int32_t each[] = {0, 1, 2, 3, 4, 5, 6, 7}; /* one a rank: nothing is balanced */
    expect_slots(w, (tt_balance_shape){8, 8, 1, 2, 8}, each, w);
    const double drifted[] = {100, 50, 60, 10, 70, 190, 20, 120};
    const int32_t again[] = {4, 0, 1, 5, 2, 0, 5, 7, 6, 5, 7, 3};
    const double again_load[] = {170, 173.3333, 143.3333, 133.3333};
    expect_slots(drifted, (tt_balance_shape){8, 12, 1, 2, 4}, again, again_load);
}

static void hot_experts(void **state)
{
    (void)state;
    const double hot[] = {1000, 10, 9, 8, 7, 6};
    const int32_t hot_slots[] = {0, 3, 0, 4, 0, 5, 1, 2};
    const double hot_load[] = {341.3333, 340.3333, 339.3333, 19};
    expect_slots(hot, (tt_balance_shape){6, 8, 1, 1, 4}, hot_slots, hot_load);
    const double twice[] = {90, 31, 20, 7};
    const int32_t twice_slots[] = {1, 3, 0, 0, 0, 2};
    const double twice_load[] = {38, 60, 50};
    expect_slots(twice, (tt_balance_shape){4, 6, 1, 1, 3}, twice_slots, twice_load);
}

static void zipf_experts(void **state)
{
    (void)state;
    const double w[] = {10000, 1250, 666,  1666, 769,  2500, 909,  5000,
                        1111,  625,  1428, 714,  2000, 833,  3333, 1000};
    const int32_t by_node[] = {0,  0, 9, 0, 3,  2,  0, 10, 11, 0, 1, 8,
                               12, 5, 6, 7, 14, 13, 7, 14, 4,  7, 5, 15};
    const double node_load[] = {4625, 4332, 4142, 4361, 4159, 4166.1667, 4102.1667, 3916.6667};
    expect_slots(w, (tt_balance_shape){16, 24, 4, 2, 8}, by_node, node_load);
    const int32_t global[] = {0, 14, 9,  12, 3, 2, 0, 10, 11, 0, 1,  8,
                              0, 5,  15, 0,  5, 6, 7, 7,  4,  7, 14, 13};
    const double global_load[] = {4291.5, 4332, 4142, 4361, 4250, 4159, 4102.3333, 4166.1667};
    expect_slots(w, (tt_balance_shape){16, 24, 1, 1, 8}, global, global_load);
}

/* w = 1 + (s >> 16) % m of a linear congruential generator. */
static void lcg(uint32_t s, uint32_t m, int n, double *w)
{
    for (int i = 0; i < n; i++) {
        s = (s * UINT32_C(1103515245) + 12345) & 0x7fffffff;
        w[i] = 1.0 + (double)((s >> 16) % m);
    }
}

static void thirty_two_experts(void **state)
{
    (void)state;
    double w[32];
    lcg(12345, 1000, 32, w);
    assert_true(w[0] == 469 && w[1] == 989 && w[31] == 351);
    const int32_t slots[] = {30, 24, 28, 20, 7,  25, 24, 31, 27, 21, 29, 4, 6,  26,
                             23, 22, 4,  6,  28, 5,  11, 14, 15, 16, 10, 3, 14, 8,
                             18, 13, 19, 0,  12, 18, 2,  1,  1,  12, 9,  17};
    const double rank_load[] = {1681, 1650, 1660, 1684, 1754, 1767, 1794.5, 1843.5};
    expect_slots(w, (tt_balance_shape){32, 40, 8, 2, 8}, slots, rank_load);
}

static void large_cases_have_their_hashes(void **state)
{
    (void)state;
    double w[256], sum = 0.0;
    lcg(2024, 997, 256, w);
    for (int i = 0; i < 256; i++) {
        sum += w[i];
    }
    assert_true(sum == 126514);
    const struct {
        tt_balance_shape shape;
        uint64_t hash;
    } cases[] = {{{256, 256, 8, 4, 32}, UINT64_C(0x7617e80c1ca2dbe5)},
                 {{256, 288, 8, 4, 32}, UINT64_C(0x81e7dece1825f9a1)},
                 {{256, 288, 8, 18, 36}, UINT64_C(0xbe5fdbfc16a6c05e)},
                 {{256, 320, 8, 8, 64}, UINT64_C(0x37ab573a55213efa)}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t expert[MOST_SLOTS];
        assert_int_equal(tt_balance_slots(w, &cases[i].shape, expert, NULL), TT_OK);
        uint64_t hash = TT_HASH_BEGIN;
        for (int64_t s = 0; s < cases[i].shape.n_slots; s++) {
            hash = tt_hash_step(hash, (uint64_t)expert[s]);
        }
        assert_true(hash == cases[i].hash);
    }
}

static void counts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const double w[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct {
        tt_balance_shape shape;
        const char *words;
    } cases[] = {{{8, 12, 3, 1, 4}, "3 sets do not divide 8 experts"},
                 {{8, 12, 1, 3, 4}, "3 nodes do not divide 4 ranks"},
                 {{8, 13, 1, 1, 4}, "4 ranks do not divide 13 slots"},
                 {{8, 4, 1, 1, 4}, "4 slots for 8 experts"},
                 {{8, 8, 1, 0, 4}, "nowhere"}};
    int32_t expert[16];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(tt_balance_slots(w, &cases[i].shape, expert, NULL), TT_ERR_ARG);
        assert_non_null(strstr(tt_status_message(), cases[i].words));
    }
}

/* ---- plans ---- */

static tt_placement *plan(const tt_balance_params *params, const double *load)
{
    tt_placement *p = NULL;
    if (tt_balance_plan(params, load, &p) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    assert_int_equal(tt_placement_check(p), TT_OK);
    return p;
}

static double most_rows(const tt_placement *p, int64_t layer, const double *load)
{
    double planned = NAN, resolved = NAN;
    assert_int_equal(tt_balance_most_rows(p, layer, load, false, &planned), TT_OK);
    assert_int_equal(tt_balance_most_rows(p, layer, load, true, &resolved), TT_OK);
    assert_true(resolved <= planned * (1.0 + 1e-4));
    return planned;
}

/* Loads that say nothing change nothing; loads that are none are refused with their layer. */
static void odd_loads(void **state)
{
    (void)state;
    const double nothing[16] = {0};
    const double equal[8] = {5, 5, 5, 5, 5, 5, 5, 5};
    const double one[8] = {0, 0, 0, 0x1p40, 0, 0, 0, 0};
    tt_balance_params params = {
        .policy = TT_BALANCE_REPLICATE, .L = 1, .E = 8, .n_groups = 4, .slots_per_group = 3};
    tt_placement *first = plan(&params, one);
    assert_true(most_rows(first, 0, one) <= 0x1p40 / 4 * 1.0001); /* a copy in each group */
    params.current = first;
    tt_placement *same = plan(&params, nothing);
    assert_int_equal(tt_balance_moves(first, same), 0);
    assert_int_equal(same->epoch, first->epoch + 1);
    tt_placement_destroy(&same);
    same = plan(&params, one);
    assert_int_equal(tt_balance_moves(first, same), 0);
    tt_placement_destroy(&same);
    params.current = NULL;
    tt_placement *linear = plan(&params, equal);
    params.policy = TT_BALANCE_LINEAR;
    same = plan(&params, equal);
    assert_int_equal(tt_balance_moves(linear, same), 0);
    tt_placement_destroy(&same);
    tt_placement_destroy(&linear);
    /* A layer without load beside one with all of it on one expert. */
    double both[16] = {0};
    both[8] = 7;
    params.policy = TT_BALANCE_REPLICATE;
    params.L = 2;
    tt_placement *two = plan(&params, both);
    assert_true(most_rows(two, 1, both + 8) <= 7.0 / 4 * 1.0001);
    tt_placement_destroy(&two);
    const double bad[] = {NAN, -1.0, INFINITY};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        both[11] = bad[i];
        assert_int_equal(tt_balance_plan(&params, both, &two), TT_ERR_ARG);
        assert_non_null(strstr(tt_status_message(), "layer 1: the load of expert 3"));
    }
    tt_placement_destroy(&first);
}

/* Two groups of three slots, one hot expert: one copy in each, the spare slot to another. */
static void no_group_holds_an_expert_twice(void **state)
{
    (void)state;
    const double w[] = {1000, 1, 1, 1};
    tt_balance_params params = {
        .policy = TT_BALANCE_REPLICATE, .L = 1, .E = 4, .n_groups = 2, .slots_per_group = 3};
    tt_placement *p = plan(&params, w);
    assert_int_equal(p->replica_begin[1] - p->replica_begin[0], 2);
    assert_true(most_rows(p, 0, w) < 502);
    for (int s = 0; s < 6; s++) {
        assert_true(p->expert_of_slot[s] >= 0);
    }
    tt_placement_destroy(&p);
    params.slots_per_group = 5;
    assert_int_equal(tt_balance_plan(&params, w, &p), TT_ERR_ARG);
    assert_non_null(strstr(tt_status_message(), "from 2 to 4 are possible"));
}

/* What holds for every plan: a valid placement (all experts, no group with one twice, shares that
 * sum to 1: tt_placement_check), no worse than linear, the same again, within max_moves. */
static void every_plan_is_valid(void **state)
{
    (void)state;
    enum { CASES = 10000, MOST_E = 48, MOST_L = 2 };
    uint64_t s = 1;
    for (int i = 0; i < CASES; i++) {
        double load[MOST_L * MOST_E];
        tt_balance_params p = {.L = random_within(&s, 1, MOST_L),
                               .E = random_within(&s, 1, MOST_E)};
        p.n_groups = (int)random_within(&s, 1, 12);
        const int64_t least = (p.E + p.n_groups - 1) / p.n_groups;
        p.slots_per_group = random_within(&s, least, least + 2 < p.E ? least + 2 : p.E);
        p.n_sets = (int)random_within(&s, 0, 4);
        p.n_nodes = (int)random_within(&s, 0, 4);
        p.steps = (double)random_within(&s, 1, 100);
        p.rows_of_read = (double)random_within(&s, 0, 64);
        p.max_moves = random_within(&s, 0, 6);
        random_load(&s, p.L * p.E, load);
        p.policy = TT_BALANCE_LINEAR;
        tt_placement *linear = plan(&p, load);
        p.current = linear;
        for (int policy = 0; policy < TT_BALANCE_POLICY_COUNT; policy++) {
            p.policy = (tt_balance_policy)policy;
            tt_placement *a = plan(&p, load), *b = plan(&p, load);
            assert_true(tt_placement_hash(a) == tt_placement_hash(b));
            tt_placement_destroy(&b);
            for (int64_t l = 0; l < p.L; l++) {
                const double before = most_rows(linear, l, load + l * p.E);
                const double after = most_rows(a, l, load + l * p.E);
                if (policy != TT_BALANCE_BYTES && after > before * (1.0 + 1e-5)) {
                    fail_msg("case %d, %s: %g rows instead of %g", i,
                             tt_balance_policy_name(p.policy), after, before);
                }
            }
            if (policy == TT_BALANCE_INCREMENTAL) {
                assert_true(tt_balance_moves(linear, a) <= p.max_moves);
            }
            tt_placement_destroy(&a);
        }
        tt_placement_destroy(&linear);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twelve_experts),
        cmocka_unit_test(eight_experts),
        cmocka_unit_test(hot_experts),
        cmocka_unit_test(zipf_experts),
        cmocka_unit_test(thirty_two_experts),
        cmocka_unit_test(large_cases_have_their_hashes),
        cmocka_unit_test(counts_that_cannot_be_are_refused),
        cmocka_unit_test(odd_loads),
        cmocka_unit_test(no_group_holds_an_expert_twice),
        cmocka_unit_test(every_plan_is_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
