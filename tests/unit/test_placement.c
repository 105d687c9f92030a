/* test_placement.c - the linear placement holds every expert once for any counts, and the check
 * finds each kind of broken placement. */
#include "tutti/balance.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tutti/plan.h"

static tt_placement *linear(int64_t L, int64_t E, int n_groups)
{
    tt_placement *p = NULL;
    if (tt_placement_linear(L, E, n_groups, 0, &p) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return p;
}

static void expect_broken(const tt_placement *p, const char *words)
{
    tt_status st = tt_placement_check(p);
    if (st != TT_ERR_ARG || !strstr(tt_status_message(), words)) {
        fail_msg("got %s \"%s\", expected words \"%s\"", tt_status_name(st), tt_status_message(),
                 words);
    }
}

/* Both tables, the owner by slot number and the split by groups agree for every expert; counts
 * differ by at most one. */
static void assert_linear(int64_t L, int64_t E, int n_groups, const int *counts)
{
    tt_placement *p = linear(L, E, n_groups);
    assert_int_equal(tt_placement_check(p), TT_OK);
    int64_t n_slots = p->n_groups * p->slots_per_group;
    for (int64_t layer = 0; layer < L; layer++) {
        for (int g = 0; g < n_groups; g++) {
            int64_t first = 0, end = 0, n_held = 0;
            tt_layout_experts(E, n_groups, g, &first, &end);
            for (int64_t s = 0; s < p->slots_per_group; s++) {
                int32_t e = p->expert_of_slot[layer * n_slots + g * p->slots_per_group + s];
                n_held += e >= 0;
                assert_true(e == -1 || (e >= first && e < end));
            }
            assert_int_equal(n_held, counts ? counts[g] : end - first);
            assert_in_range(n_held, E / n_groups, (E + n_groups - 1) / n_groups);
        }
        for (int64_t e = 0; e < E; e++) {
            int64_t at = layer * E + e;
            assert_int_equal(p->replica_begin[at], at);
            int64_t group = p->replica_slot[at] / p->slots_per_group;
            int64_t first = 0, end = 0;
            tt_layout_experts(E, n_groups, (int)group, &first, &end);
            assert_true(e >= first && e < end);
            assert_true(p->replica_share[at] == 1.0f);
        }
    }
    assert_int_equal(p->replica_begin[L * E], L * E);
    tt_placement_destroy(&p);
    assert_null(p);
}

/* Field case: expert counts that ranks do not divide, more ranks than experts, one rank. */
static void uneven_counts_place_every_expert(void **state)
{
    (void)state;
    const int ten_on_four[] = {3, 3, 2, 2};
    const int many_on_six[] = {22, 22, 21, 21, 21, 21};
    const int eight_on_sixteen[] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    const int eight_on_one[] = {8};
    assert_linear(3, 10, 4, ten_on_four);
    assert_linear(3, 128, 6, many_on_six);
    assert_linear(3, 8, 16, eight_on_sixteen);
    assert_linear(3, 8, 1, eight_on_one);
    for (int64_t E = 1; E < 40; E++) {
        for (int n_groups = 1; n_groups < 20; n_groups++) {
            assert_linear(2, E, n_groups, NULL);
        }
    }
}

static void empty_models_have_empty_placements(void **state)
{
    (void)state;
    const struct {
        int64_t L, E;
        int n_groups;
    } cases[] = {{0, 0, 0}, {5, 0, 0}, {5, 0, 3}, {0, 8, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_placement *p = linear(cases[i].L, cases[i].E, cases[i].n_groups);
        assert_int_equal(tt_placement_check(p), TT_OK);
        tt_placement_hash(p);
        tt_placement_destroy(&p);
    }
    tt_placement *p = NULL;
    assert_int_equal(tt_placement_linear(1, 8, 0, 0, &p), TT_ERR_ARG);
    assert_int_equal(tt_placement_linear(-1, 8, 1, 0, &p), TT_ERR_ARG);
    assert_int_equal(tt_placement_linear(INT64_MAX, 8, 1, 0, &p), TT_ERR_ARG);
    assert_int_equal(tt_placement_linear(1, INT64_MAX, 1, 0, &p), TT_ERR_ARG);
    assert_int_equal(tt_placement_linear(1, INT32_MAX, INT32_MAX - 1, 0, &p),
                     TT_ERR_ARG); /* slots past int32 */
    assert_null(p);
    tt_placement_destroy(&p);
}

static void check_names_layer_and_expert_of_each_fault(void **state)
{
    (void)state;
    tt_placement *p = linear(2, 4, 2); /* slots 0, 1 of group 0 and 2, 3 of group 1 */
    p->replica_slot[4 + 2] = 9;
    expect_broken(p, "layer 1: expert 2 is in slot 9: not in 0 to 3");
    p->replica_slot[4 + 2] = -1;
    expect_broken(p, "layer 1: expert 2 is in slot -1");
    p->replica_slot[4 + 2] = 3;
    expect_broken(p, "layer 1: expert 2 is in slot 3, which holds 3");
    p->replica_slot[4 + 2] = 2;
    p->replica_share[1] = 0.5f;
    expect_broken(p, "layer 0: the shares of expert 1 sum to 0.5");
    p->replica_share[1] = NAN;
    expect_broken(p, "layer 0: expert 1 has a share of");
    p->replica_share[1] = -1.0f;
    expect_broken(p, "layer 0: expert 1 has a share of -1");
    p->replica_share[1] = 1.0f;
    p->replica_begin[3] = 2; /* expert 2 of layer 0 loses its replica to expert 3 */
    expect_broken(p, "layer 0: expert 2 has no slot");
    p->replica_begin[3] = 7;
    expect_broken(p, "layer 0: the replicas of expert 3 end before they begin");
    p->replica_begin[3] = 3;
    p->replica_begin[0] = 1;
    expect_broken(p, "replicas begin at 1");
    p->replica_begin[0] = 0;
    assert_int_equal(tt_placement_check(p), TT_OK);
    tt_placement_destroy(&p);
}

/* 1 layer, 2 experts, 2 groups of 2 slots, expert 0 on both groups: tables written by hand. */
static void replicas_are_checked_per_group(void **state)
{
    (void)state;
    int32_t expert_of_slot[] = {0, 1, 0, -1};
    int64_t replica_begin[] = {0, 2, 3};
    int32_t replica_slot[] = {0, 2, 1};
    float replica_share[] = {0.25f, 0.75f, 1.0f};
    tt_placement p = {.L = 1,
                      .E = 2,
                      .n_groups = 2,
                      .slots_per_group = 2,
                      .expert_of_slot = expert_of_slot,
                      .replica_begin = replica_begin,
                      .replica_slot = replica_slot,
                      .replica_share = replica_share};
    assert_int_equal(tt_placement_check(&p), TT_OK);
    expert_of_slot[3] = 1; /* weights that nobody is sent to */
    expect_broken(&p, "layer 0: 4 slots are filled, but experts have 3 replicas");
    expert_of_slot[3] = -1;
    /* Both copies of expert 0 on group 0. */
    expert_of_slot[1] = 0;
    expert_of_slot[2] = 1;
    replica_slot[1] = 1;
    replica_slot[2] = 2;
    expect_broken(&p, "layer 0: group 0 holds expert 0 twice");
    replica_slot[1] = 0; /* the same slot twice */
    expect_broken(&p, "layer 0: group 0 holds expert 0 twice");
}

static void the_hash_sees_every_table(void **state)
{
    (void)state;
    tt_placement *p = linear(2, 5, 2);
    tt_placement *q = linear(2, 5, 2);
    uint64_t hash = tt_placement_hash(p);
    assert_true(hash == tt_placement_hash(q));
    q->epoch = 1;
    assert_false(hash == tt_placement_hash(q));
    q->epoch = 0;
    q->expert_of_slot[11] = 0;
    assert_false(hash == tt_placement_hash(q));
    q->expert_of_slot[11] = p->expert_of_slot[11];
    q->replica_slot[9] = 0;
    assert_false(hash == tt_placement_hash(q));
    q->replica_slot[9] = p->replica_slot[9];
    q->replica_share[3] = 0.5f;
    assert_false(hash == tt_placement_hash(q));
    q->replica_share[3] = 1.0f;
    q->replica_begin[3] = 2;
    assert_false(hash == tt_placement_hash(q));
    tt_placement_destroy(&p);
    tt_placement_destroy(&q);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_counts_place_every_expert),
        cmocka_unit_test(empty_models_have_empty_placements),
        cmocka_unit_test(check_names_layer_and_expert_of_each_fault),
        cmocka_unit_test(replicas_are_checked_per_group),
        cmocka_unit_test(the_hash_sees_every_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
