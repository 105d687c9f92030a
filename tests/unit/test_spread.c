/* test_spread.c - rows to replicas by their shares or levelled, and the way from one placement to
 * another, on random cases. */
#include "tutti/balance.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "balance_fixture.h"

enum { MOST_E = 40, MOST_GROUPS = 8, MOST_SLOTS = 512, MOST_ROWS = 600 };

/* A replicated placement of one layer for a random load. */
static tt_placement *random_placement(uint64_t *s, double *load)
{
    tt_balance_params p = {.policy = TT_BALANCE_REPLICATE, .L = 1};
    tt_placement *out = NULL;
    p.E = random_within(s, 1, MOST_E);
    p.n_groups = (int)random_within(s, 1, MOST_GROUPS);
    const int64_t least = (p.E + p.n_groups - 1) / p.n_groups;
    p.slots_per_group = random_within(s, least, least + 3 < p.E ? least + 3 : p.E);
    random_load(s, p.E, load);
    load[random_within(s, 0, p.E - 1)] += 1e5; /* one that is hot */
    assert_int_equal(tt_balance_plan(&p, load, &out), TT_OK);
    return out;
}

static int32_t random_expert(uint64_t *s, const double *load, int64_t E)
{
    double total = 0.0;
    for (int64_t e = 0; e < E; e++) {
        total += load[e];
    }
    double at = total * (double)random_within(s, 0, 1 << 30) / (double)(1 << 30);
    for (int64_t e = 0; e < E - 1; e++) {
        at -= load[e];
        if (at < 0.0) {
            return (int32_t)e;
        }
    }
    return (int32_t)(E - 1);
}

/* Over batches of any size, each replica has its share to within one row for each replica of its
 * expert; rows go only where their expert is. */
static void shares_are_kept(void **state)
{
    (void)state;
    uint64_t s = 3;
    for (int i = 0; i < 300; i++) {
        double load[MOST_E], rows[MOST_SLOTS] = {0}, of_expert[MOST_E] = {0};
        int distance[MOST_GROUPS];
        tt_placement *p = random_placement(&s, load);
        for (int g = 0; g < MOST_GROUPS; g++) {
            distance[g] = (int)random_within(&s, 0, 2);
        }
        const tt_spread_params params = {p, distance, MOST_ROWS + 1};
        tt_spread *spread = NULL;
        assert_int_equal(tt_spread_create(&params, &spread), TT_OK);
        for (int batch = 0; batch < 50; batch++) {
            int32_t expert[MOST_ROWS], slot[MOST_ROWS];
            const int64_t n = random_within(&s, 0, batch % 5 ? 12 : MOST_ROWS);
            for (int64_t r = 0; r < n; r++) {
                expert[r] = random_within(&s, 0, 30) ? random_expert(&s, load, p->E) : -1;
            }
            tt_spread_choose(spread, 0, n, expert, slot);
            for (int64_t r = 0; r < n; r++) {
                if (expert[r] < 0) {
                    assert_int_equal(slot[r], -1);
                    continue;
                }
                assert_int_equal(p->expert_of_slot[slot[r]], expert[r]);
                rows[slot[r]] += 1.0;
                of_expert[expert[r]] += 1.0;
            }
            for (int64_t e = 0; e < p->E; e++) {
                const double slack = (double)(p->replica_begin[e + 1] - p->replica_begin[e]);
                for (int64_t k = p->replica_begin[e]; k < p->replica_begin[e + 1]; k++) {
                    const double want = of_expert[e] * (double)p->replica_share[k];
                    assert_true(fabs(rows[p->replica_slot[k]] - want) <= slack + 1e-3);
                }
            }
        }
        tt_spread_destroy(&spread);
        tt_placement_destroy(&p);
    }
}

/* One expert in all of three groups: rows one by one, then a batch. */
static void own_rank_comes_first(void **state)
{
    (void)state;
    const double load[] = {9, 1, 1};
    tt_balance_params params = {
        .policy = TT_BALANCE_REPLICATE, .L = 1, .E = 3, .n_groups = 3, .slots_per_group = 2};
    tt_placement *p = NULL;
    assert_int_equal(tt_balance_plan(&params, load, &p), TT_OK);
    assert_int_equal(p->replica_begin[1] - p->replica_begin[0], 3);
    const int distance[] = {2, 1, 0};
    const tt_spread_params spread_params = {p, distance, 1 << 20};
    tt_spread *spread = NULL;
    assert_int_equal(tt_spread_create(&spread_params, &spread), TT_OK);
    p->replica_share[0] = p->replica_share[1] = p->replica_share[2] = 1.0f / 3.0f;
    tt_spread_set(spread, p, 0);
    const int32_t hot[12] = {0};
    int32_t slot[12];
    for (int i = 0; i < 6; i++) { /* itself, its node, then the others, and again */
        tt_spread_choose(spread, 0, 1, hot, slot);
        assert_int_equal(slot[0] / 2, 2 - i % 3);
    }
    tt_spread_choose(spread, 0, 12, hot, slot);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(slot[i] / 2, 2 - i / 4);
    }
    tt_spread_destroy(&spread);
    tt_placement_destroy(&p);
}

/* A batch of many rows is as level as its own counts allow, but for whole rows. */
static void large_batches_are_levelled(void **state)
{
    (void)state;
    uint64_t s = 5;
    for (int i = 0; i < 300; i++) {
        double load[MOST_E], count[MOST_E] = {0}, group[MOST_GROUPS] = {0}, most = 0.0, best = 0.0;
        int32_t expert[MOST_ROWS], slot[MOST_ROWS];
        int64_t n_hot = 0;
        tt_placement *p = random_placement(&s, load);
        const tt_spread_params params = {p, NULL, 0};
        tt_spread *spread = NULL;
        assert_int_equal(tt_spread_create(&params, &spread), TT_OK);
        random_load(&s, p->E, load); /* other loads than the plan's */
        for (int64_t r = 0; r < MOST_ROWS; r++) {
            expert[r] = random_expert(&s, load, p->E);
            count[expert[r]] += 1.0;
        }
        tt_spread_choose(spread, 0, MOST_ROWS, expert, slot);
        for (int64_t r = 0; r < MOST_ROWS; r++) {
            assert_int_equal(p->expert_of_slot[slot[r]], expert[r]);
            group[slot[r] / p->slots_per_group] += 1.0;
        }
        for (int g = 0; g < p->n_groups; g++) {
            most = fmax(most, group[g]);
        }
        for (int64_t e = 0; e < p->E; e++) {
            n_hot += p->replica_begin[e + 1] - p->replica_begin[e] > 1;
        }
        assert_int_equal(tt_balance_most_rows(p, 0, count, true, &best), TT_OK);
        /* whole rows, and what the last sweeps would still move */
        assert_true(most <= best + (double)n_hot + 0.02 * MOST_ROWS / p->n_groups + 1.0);
        tt_spread_destroy(&spread);
        tt_placement_destroy(&p);
    }
}

static bool has(const tt_placement *p, int64_t group, int32_t expert)
{
    bool is_there = false;
    for (int64_t s = group * p->slots_per_group; s < (group + 1) * p->slots_per_group; s++) {
        is_there = is_there || p->expert_of_slot[s] == expert;
    }
    return is_there;
}

/* Each lot is within its bounds, takes copies from where they are, and leaves a valid placement;
 * every goal is reached. */
static void lots_lead_to_the_goal(void **state)
{
    (void)state;
    uint64_t s = 7;
    for (int i = 0; i < 2000; i++) {
        double load[MOST_E];
        tt_placement *goal = random_placement(&s, load), *now = NULL;
        assert_int_equal(
            tt_placement_linear(1, goal->E, goal->n_groups, goal->slots_per_group, &now), TT_OK);
        tt_placement_destroy(&goal);
        tt_balance_params params = {.policy = (tt_balance_policy)random_within(&s, 1, 4),
                                    .L = 1,
                                    .E = now->E,
                                    .n_groups = now->n_groups,
                                    .slots_per_group = now->slots_per_group,
                                    .max_moves = 8,
                                    .steps = 10,
                                    .rows_of_read = 4,
                                    .current = now};
        assert_int_equal(tt_balance_plan(&params, load, &goal), TT_OK);
        const int most_in = (int)random_within(&s, 1, 3), most_out = (int)random_within(&s, 1, 3);
        int node[MOST_GROUPS], lots = 0;
        for (int g = 0; g < MOST_GROUPS; g++) {
            node[g] = g / 2;
        }
        for (; lots < 1000; lots++) {
            tt_move move[MOST_SLOTS];
            int n_in[MOST_GROUPS] = {0}, n_out[MOST_GROUPS] = {0};
            const int n = tt_balance_next_moves(now, goal, 0, node, most_in, most_out, move);
            for (int k = 0; k < n; k++) {
                assert_int_equal(now->expert_of_slot[move[k].from], move[k].expert);
                assert_true(++n_in[move[k].to / now->slots_per_group] <= most_in);
                assert_true(++n_out[move[k].from / now->slots_per_group] <= most_out);
            }
            if (n == 0) {
                break;
            }
            const uint64_t epoch = now->epoch;
            assert_int_equal(tt_placement_move(now, 0, move, n, load), TT_OK);
            assert_int_equal(tt_placement_check(now), TT_OK);
            assert_true(now->epoch == epoch + 1);
        }
        assert_true(lots < 1000);
        for (int64_t k = 0; k < goal->n_groups * goal->slots_per_group; k++) {
            const int64_t group = k / goal->slots_per_group;
            if (goal->expert_of_slot[k] >= 0 && !has(now, group, goal->expert_of_slot[k])) {
                fail_msg("case %d: group %d lacks %d", i, (int)group, goal->expert_of_slot[k]);
            }
        }
        tt_placement_destroy(&now);
        tt_placement_destroy(&goal);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_kept),
        cmocka_unit_test(own_rank_comes_first),
        cmocka_unit_test(large_batches_are_levelled),
        cmocka_unit_test(lots_lead_to_the_goal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
