/* test_sampler.c - drawing tokens: what the options mean at their edges, that draws follow the
 * distribution, and that they depend on seed and position alone. */
#include "../../src/engine/engine_internal.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tutti/cpu.h"

enum { V = 8 };

static const float logits_of_test[V] = {0.5f, 2.0f, -1.0f, 1.0f, 2.0f, 0.0f, -3.0f, 1.5f};

static int32_t draw(const tt_sampling *sampling, int64_t position)
{
    float logits[V];
    int32_t work[2 * V], token = -1;
    memcpy(logits, logits_of_test, sizeof(logits));
    assert_int_equal(tti_sampler_draw(sampling, position, logits, V, work, &token), TT_OK);
    assert_in_range(token, 0, V - 1);
    return token;
}

static void greedy_edges(void **state)
{
    (void)state;
    static const tt_sampling greedy[] = {
        {0.0, 1.0, 0.0, 0, 1}, {1e-45, 1.0, 0.0, 0, 1}, {1.0, 1e-9, 0.0, 0, 1},
        {1.0, 0.0, 0.0, 0, 1}, {1.0, 1.0, 0.0, 1, 1},
    };
    for (size_t i = 0; i < sizeof(greedy) / sizeof(greedy[0]); i++) {
        for (int64_t position = 0; position < 50; position++) {
            assert_int_equal(draw(&greedy[i], position), 1); /* ties go to the smaller id */
        }
    }
}

static void extreme_temperatures_give_tokens(void **state)
{
    (void)state;
    tt_sampling cold = {1e-4, 1.0, 0.0, 0, 3}, hot = {1e6, 1.0, 0.0, 1000000000, 3};
    int seen[V] = {0};
    for (int64_t position = 0; position < 2000; position++) {
        int32_t token = draw(&cold, position);
        assert_true(token == 1 || token == 4);
        seen[draw(&hot, position)]++;
    }
    for (int i = 0; i < V; i++) {
        assert_in_range(seen[i], 150, 350); /* 250 expected, sigma 15 */
    }
}

/* Expected shares by the definition, in double: temperature, top-k, top-p, min-p. */
static void expected(const tt_sampling *s, double *share)
{
    int order[V];
    double p[V], mass = 0.0, so_far = 0.0, kept = 0.0;
    for (int i = 0; i < V; i++) {
        order[i] = i;
        p[i] = exp((double)logits_of_test[i] / s->temperature);
        share[i] = 0.0;
    }
    for (int i = 0; i < V; i++) {
        for (int j = i + 1; j < V; j++) {
            if (p[order[j]] > p[order[i]] || (p[order[j]] == p[order[i]] && order[j] < order[i])) {
                int swap = order[i];
                order[i] = order[j];
                order[j] = swap;
            }
        }
    }
    int n = s->top_k > 0 && s->top_k < V ? (int)s->top_k : V;
    for (int i = 0; i < n; i++) {
        mass += p[order[i]];
    }
    for (int i = 0; i < n; i++) {
        bool in_p = i == 0 || so_far < s->top_p * mass;
        so_far += p[order[i]];
        if (in_p && p[order[i]] >= s->min_p * p[order[0]]) {
            share[order[i]] = p[order[i]];
            kept += p[order[i]];
        }
    }
    for (int i = 0; i < V; i++) {
        share[i] /= kept;
    }
}

static void draws_follow_the_distribution(void **state)
{
    (void)state;
    static const tt_sampling all[] = {
        {1.0, 1.0, 0.0, 0, 11}, {0.7, 1.0, 0.0, 3, 12}, {1.3, 0.8, 0.0, 0, 13},
        {1.0, 1.0, 0.3, 0, 14}, {1.0, 0.7, 0.2, 5, 15}, {2.0, 0.5, 0.0, 7, 16},
    };
    enum { DRAWS = 20000 };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int seen[V] = {0};
        double share[V];
        expected(&all[i], share);
        for (int64_t position = 0; position < DRAWS; position++) {
            seen[draw(&all[i], position)]++;
        }
        for (int t = 0; t < V; t++) {
            double sigma = sqrt(DRAWS * share[t] * (1.0 - share[t]));
            assert_true(fabs(seen[t] - DRAWS * share[t]) <= 5.0 * sigma);
            assert_true(share[t] > 0.0 || seen[t] == 0);
        }
    }
}

static void draws_depend_on_seed_and_position(void **state)
{
    (void)state;
    tt_sampling a = {1.0, 1.0, 0.0, 0, 1}, b = {1.0, 1.0, 0.0, 0, 2};
    int differ = 0;
    for (int64_t position = 0; position < 200; position++) {
        assert_int_equal(draw(&a, position), draw(&a, position));
        differ += draw(&a, position) != draw(&b, position);
    }
    assert_true(differ > 100);
}

static void what_is_no_number_is_refused_or_never_drawn(void **state)
{
    (void)state;
    tt_sampling s = {1.0, 1.0, 0.0, 0, 1};
    float logits[4] = {NAN, NAN, NAN, NAN};
    int32_t work[8], token;
    assert_int_equal(tti_sampler_draw(&s, 0, logits, 4, work, &token), TT_ERR_NUMERIC);
    for (int64_t position = 0; position < 300; position++) {
        float some[4] = {NAN, 0.0f, -INFINITY, 0.0f};
        assert_int_equal(tti_sampler_draw(&s, position, some, 4, work, &token), TT_OK);
        assert_true(token == 1 || token == 3);
    }
}

static void nll_is_minus_log_softmax(void **state)
{
    (void)state;
    double sum = 0.0;
    for (int i = 0; i < V; i++) {
        sum += exp((double)logits_of_test[i]);
    }
    for (int i = 0; i < V; i++) {
        double want = log(sum) - (double)logits_of_test[i];
        assert_true(fabs(tti_sampler_nll(logits_of_test, V, i) - want) < 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_edges),
        cmocka_unit_test(extreme_temperatures_give_tokens),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(draws_depend_on_seed_and_position),
        cmocka_unit_test(what_is_no_number_is_refused_or_never_drawn),
        cmocka_unit_test(nll_is_minus_log_softmax),
    };
    ttk_init(tt_cpu_flags());
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
