/* test_router.c - choosing experts: groups, ties, bias, scaling, and what may not be a number. */
#include "../../src/moe/moe_internal.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tutti/cpu.h"

enum { MAX_E = 512, MAX_K = 16 };

static float logit_of(double p)
{
    return (float)log(p / (1.0 - p));
}

static const tt_router sigmoid_router = {.score = TT_SCORE_SIGMOID,
                                         .n_groups = 1,
                                         .n_groups_kept = 1,
                                         .normalise = true,
                                         .normalise_eps = 1e-20f,
                                         .scale = 1.0f};

static void choose(const tt_router *router, int64_t E, int64_t K, const float *z, const float *bias,
                   int32_t *expert, float *weight)
{
    float copy[MAX_E], work[2 * MAX_E];
    memcpy(copy, z, (size_t)E * sizeof(float));
    assert_int_equal(tt_router_choose(router, E, K, copy, bias, work, expert, weight), TT_OK);
}

static void negative_biased_scores_beat_masked_groups(void **state)
{
    (void)state;
    static const double p[8] = {.9, .8, .6, .5, .4, .3, .2, .1};
    float z[8], bias[8], weight[2];
    int32_t expert[2];
    for (int e = 0; e < 8; e++) {
        z[e] = logit_of(p[e]);
        bias[e] = -1.0f;
    }
    tt_router router = sigmoid_router;
    router.n_groups = 4;
    router.n_groups_kept = 2;
    router.group_score = TT_GROUP_TOP2_SUM;
    choose(&router, 8, 2, z, bias, expert, weight);
    assert_int_equal(expert[0], 0);
    assert_int_equal(expert[1], 1);
    assert_float_equal(weight[0], .529412, 1e-5);
    assert_float_equal(weight[1], .470588, 1e-5);
}

static void groups_rank_by_the_sum_of_two_or_by_the_best(void **state)
{
    (void)state;
    static const double p[4] = {.95, .05, .60, .55};
    float z[4], weight[2];
    int32_t expert[2];
    for (int e = 0; e < 4; e++) {
        z[e] = logit_of(p[e]);
    }
    tt_router router = sigmoid_router;
    router.n_groups = 2;
    router.n_groups_kept = 1;
    router.group_score = TT_GROUP_TOP2_SUM;
    choose(&router, 4, 2, z, NULL, expert, weight);
    assert_int_equal(expert[0], 2);
    assert_int_equal(expert[1], 3);
    router.group_score = TT_GROUP_MAX;
    choose(&router, 4, 2, z, NULL, expert, weight);
    assert_int_equal(expert[0], 0);
    assert_int_equal(expert[1], 1);
}

static void wide_routers_are_not_cut(void **state)
{
    (void)state;
    float z[512], weight[10];
    int32_t expert[10];
    for (int e = 0; e < 512; e++) {
        z[e] = e >= 300 && e < 310 ? 2.0f - 0.1f * (float)(e - 300) : -1.0f;
    }
    choose(&sigmoid_router, 512, 10, z, NULL, expert, weight);
    for (int k = 0; k < 10; k++) {
        assert_int_equal(expert[k], 300 + k);
    }
}

static void scale_applies_once_with_and_without_normalising(void **state)
{
    (void)state;
    float z[2] = {logit_of(.9), logit_of(.8)}, weight[2];
    int32_t expert[2];
    tt_router router = sigmoid_router;
    router.scale = 2.5f;
    choose(&router, 2, 2, z, NULL, expert, weight);
    assert_float_equal(weight[0], 1.323529, 1e-5);
    assert_float_equal(weight[1], 1.176471, 1e-5);
    router.normalise = false;
    choose(&router, 2, 2, z, NULL, expert, weight);
    assert_float_equal(weight[0], 2.25, 1e-5);
    assert_float_equal(weight[1], 2.00, 1e-5);
}

static void small_spreads_of_a_large_bias_decide(void **state)
{
    (void)state;
    float z[4] = {0, 0, 0, 0}, bias[4] = {6.90f, 6.91f, 6.80f, 6.80f}, weight[1];
    int32_t expert[1];
    choose(&sigmoid_router, 4, 1, z, bias, expert, weight);
    assert_int_equal(expert[0], 1);
    assert_float_equal(weight[0], 1.0, 0.0);
}

static void ties_go_to_the_smaller_id(void **state)
{
    (void)state;
    float z[6] = {1, 2, 2, 0, 2, 1}, weight[4];
    int32_t expert[4];
    tt_router router = sigmoid_router;
    router.score = TT_SCORE_SOFTMAX;
    choose(&router, 6, 4, z, NULL, expert, weight);
    static const int32_t want[4] = {1, 2, 4, 0};
    assert_memory_equal(expert, want, sizeof(want));
}

static void nan_is_refused(void **state)
{
    (void)state;
    float z[4] = {0, NAN, 1, 2}, work[8], weight[2];
    int32_t expert[2];
    assert_int_equal(tt_router_choose(&sigmoid_router, 4, 2, z, NULL, work, expert, weight),
                     TT_ERR_NUMERIC);
}

/* Against a brute-force version: every choice in double, by repeated search. */
static void random_routers_agree_with_brute_force(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 2000; round++) {
        int64_t n_groups = 1 << rand() % 4, size = 1 + rand() % 8, E = n_groups * size;
        int64_t kept = 1 + rand() % n_groups, most = kept * size, K = 1 + rand() % (most < 8 ? most : 8);
        tt_router router = sigmoid_router;
        router.score = rand() % 2 ? TT_SCORE_SIGMOID : TT_SCORE_SOFTMAX;
        router.n_groups = n_groups;
        router.n_groups_kept = kept;
        router.group_score = rand() % 2 ? TT_GROUP_MAX : TT_GROUP_TOP2_SUM;
        float s[64], bias[64], work[128], weight[8];
        double c[64];
        int32_t expert[8];
        for (int64_t e = 0; e < E; e++) {
            s[e] = (float)(rand() % 2000) / 250.0f - 4.0f;
            bias[e] = (float)(rand() % 100) / 100.0f - 0.5f;
        }
        assert_int_equal(tt_router_choose(&router, E, K, s, bias, work, expert, weight), TT_OK);
        bool masked[64] = {false};
        for (int64_t e = 0; e < E; e++) {
            c[e] = (double)(s[e] + bias[e]);
        }
        double score[8];
        bool keep[8] = {false};
        for (int64_t g = 0; g < n_groups; g++) {
            double a = -1e30, b = -1e30;
            for (int64_t e = g * size; e < (g + 1) * size; e++) {
                if (c[e] > a) {
                    b = a;
                    a = c[e];
                } else if (c[e] > b) {
                    b = c[e];
                }
            }
            bool one = router.group_score == TT_GROUP_MAX || size < 2;
            score[g] = one ? a : (double)((float)a + (float)b);
        }
        for (int64_t i = 0; i < kept; i++) {
            int64_t best = -1;
            for (int64_t g = 0; g < n_groups; g++) {
                if (!keep[g] && (best < 0 || score[g] > score[best])) {
                    best = g;
                }
            }
            keep[best] = true;
        }
        for (int64_t e = 0; e < E; e++) {
            masked[e] = n_groups > 1 && !keep[e / size];
        }
        for (int64_t k = 0; k < K; k++) {
            int64_t best = -1;
            for (int64_t e = 0; e < E; e++) {
                if (!masked[e] && (best < 0 || c[e] > c[best])) {
                    best = e;
                }
            }
            assert_int_equal(expert[k], best);
            masked[best] = true;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(negative_biased_scores_beat_masked_groups),
        cmocka_unit_test(groups_rank_by_the_sum_of_two_or_by_the_best),
        cmocka_unit_test(wide_routers_are_not_cut),
        cmocka_unit_test(scale_applies_once_with_and_without_normalising),
        cmocka_unit_test(small_spreads_of_a_large_bias_decide),
        cmocka_unit_test(ties_go_to_the_smaller_id),
        cmocka_unit_test(nan_is_refused),
        cmocka_unit_test(random_routers_agree_with_brute_force),
    };
    ttk_init(tt_cpu_flags());
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
