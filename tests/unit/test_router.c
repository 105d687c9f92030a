/* test_router.c - choosing experts: groups, ties, bias, scaling, every way to score, and what may
 * not be a number; against stored answers of the published formulas (tests/golden/router) and
 * against brute force in double precision. */
#include "../../src/moe/moe_internal.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include "tutti/cpu.h"

enum { MAX_E = 512, MAX_K = 16 };

static float logit_of(double p)
{
    return (float)log(p / (1.0 - p));
}

static void logits_of(const double *p, int n, float *z)
{
    for (int i = 0; i < n; i++) {
        z[i] = logit_of(p[i]);
    }
}

static const tt_router sigmoid_router = {.score = TT_SCORE_SIGMOID,
                                         .n_groups = 1,
                                         .n_groups_kept = 1,
                                         .normalise = true,
                                         .normalise_eps = 1e-20f,
                                         .scale = 1.0f};

static tt_router grouped(int64_t n_groups, int64_t n_kept, tt_group_score group_score)
{
    tt_router router = sigmoid_router;
    router.n_groups = n_groups;
    router.n_groups_kept = n_kept;
    router.group_score = group_score;
    return router;
}

static void choose(const tt_router *router, int64_t E, int64_t K, const float *z, const float *bias,
                   int32_t *expert, float *weight)
{
    float copy[MAX_E], work[2 * MAX_E];
    memcpy(copy, z, (size_t)E * sizeof(float));
    assert_int_equal(
        tt_router_choose(&(tt_chooser){router, E, K, bias, work}, copy, expert, weight), TT_OK);
}

static void negative_biased_scores_beat_masked_groups(void **state)
{
    (void)state;
    static const double p[8] = {.9, .8, .6, .5, .4, .3, .2, .1};
    float z[8], bias[8] = {-1, -1, -1, -1, -1, -1, -1, -1}, weight[2];
    int32_t expert[2];
    logits_of(p, 8, z);
    const tt_router router = grouped(4, 2, TT_GROUP_TOP2_SUM);
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
    logits_of(p, 4, z);
    tt_router router = grouped(2, 1, TT_GROUP_TOP2_SUM);
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
    /* Steps of a twentieth at 34.5, where bf16 has steps of a quarter. */
    static const float far[4] = {34.50f, 34.45f, 34.55f, 34.50f};
    choose(&sigmoid_router, 4, 1, z, far, expert, weight);
    assert_int_equal(expert[0], 2);
}

/* Rows of bf16 whose products with x differ by 1e-4 at 3.5, where bf16 has steps of 1/64. */
static void small_differences_of_products_decide(void **state)
{
    (void)state;
    enum { E = 2, H = 8 };
    ttk_format bf16 = {.code = TTK_BF16};
    tt_linear linear;
    float w[E * H], x[H], z[E], weight[1];
    int32_t expert[1];
    for (int i = 0; i < E * H; i++) {
        w[i] = 0.5f;
        x[i % H] = 1.0f;
    }
    w[H] += 0x1p-8f; /* of the second row */
    x[0] = 0.0256f;
    assert_int_equal(tt_linear_init(&linear, "test", &bf16, E, H, TT_MEMORY_ANY_NODE), TT_OK);
    ttk.pack(linear.panels, TTK_BF16, w, TTK_F32, H, 1, E, H, 0, 1);
    const tt_rows rows = tt_rows_plain(x, H);
    tt_linear_run(&linear, NULL, "router", z, E, &rows, 1);
    tt_linear_fini(&linear);
    assert_true(z[1] > z[0] && z[1] - z[0] < 1.1e-4f);
    choose(&sigmoid_router, E, 1, z, NULL, expert, weight);
    assert_int_equal(expert[0], 1);
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
    assert_int_equal(
        tt_router_choose(&(tt_chooser){&sigmoid_router, 4, 2, NULL, work}, z, expert, weight),
        TT_ERR_NUMERIC);
}

/* Against a brute-force version: every choice in double, by repeated search. */
static void random_routers_agree_with_brute_force(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 2000; round++) {
        int64_t n_groups = 1 << rand() % 4, size = 1 + rand() % 8, E = n_groups * size;
        int64_t kept = 1 + rand() % n_groups, most = kept * size,
                K = 1 + rand() % (most < 8 ? most : 8);
        const tt_score by = rand() % 2 ? TT_SCORE_SIGMOID : TT_SCORE_SOFTMAX;
        tt_router router = grouped(n_groups, kept, rand() % 2 ? TT_GROUP_MAX : TT_GROUP_TOP2_SUM);
        router.score = by;
        float s[64], bias[64], work[128], weight[8];
        double c[64];
        int32_t expert[8];
        for (int64_t e = 0; e < E; e++) {
            s[e] = (float)(rand() % 2000) / 250.0f - 4.0f;
            bias[e] = (float)(rand() % 100) / 100.0f - 0.5f;
        }
        assert_int_equal(
            tt_router_choose(&(tt_chooser){&router, E, K, bias, work}, s, expert, weight), TT_OK);
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

/* ---- every way to score ---- */

static tt_score score_of(const char *kind)
{
    static const char *const names[] = {[TT_SCORE_SOFTMAX] = "softmax",
                                        [TT_SCORE_SIGMOID] = "sigmoid",
                                        [TT_SCORE_SOFTMAX_CHOSEN] = "softmax_chosen",
                                        [TT_SCORE_SIGMOID_CHOSEN] = "sigmoid_chosen",
                                        [TT_SCORE_SPARSEMIXER] = "sparsemixer"};
    _Static_assert(sizeof(names) / sizeof(names[0]) == TT_SCORE_COUNT, "each has a name");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], kind) == 0) {
            return (tt_score)i;
        }
    }
    fail_msg("no score %s", kind);
    return TT_SCORE_SOFTMAX;
}

static float number_of(const json_t *object, const char *key, double absent)
{
    const json_t *value = json_object_get(object, key);
    return (float)(value ? json_number_value(value) : absent);
}

/* Fills from an array of numbers; returns how many. */
static int64_t floats_of(const json_t *array, float *to)
{
    size_t n = json_array_size(array);
    assert_true(n <= MAX_E);
    for (size_t i = 0; i < n; i++) {
        to[i] = (float)json_number_value(json_array_get(array, i));
    }
    return (int64_t)n;
}

/* exp, a sum of at most 128 and a few roundings, on either side: some ulp. */
static bool is_near(float got, double want)
{
    return fabs((double)got - want) <= 4e-6 * fabs(want);
}

static void stored_answers_are_met(void **state)
{
    (void)state;
    char path[4096];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof(path), "%s/tests/golden/router/cases.json", top ? top : ".");
    json_t *cases = json_load_file(path, 0, NULL);
    assert_true(json_array_size(cases) > 50);
    bool is_seen[TT_SCORE_COUNT] = {false};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *ids = json_object_get(c, "expert");
        tt_router router = {.score = score_of(json_string_value(json_object_get(c, "kind")))};
        router.n_groups = (int64_t)number_of(c, "groups", 1);
        router.n_groups_kept = (int64_t)number_of(c, "kept", 1);
        router.group_score = TT_GROUP_TOP2_SUM;
        router.normalise = json_is_true(json_object_get(c, "normalise"));
        router.normalise_eps = number_of(c, "eps", 0);
        router.normalise_floor = number_of(c, "floor", 0);
        router.scale = number_of(c, "scale", 1);
        router.jitter = number_of(c, "jitter", 0);
        float z[MAX_E], bias[MAX_E], want[MAX_E], weight[MAX_K];
        int32_t expert[MAX_K];
        int64_t E = floats_of(json_object_get(c, "z"), z);
        int64_t K = floats_of(json_object_get(c, "weight"), want);
        bool is_biased = floats_of(json_object_get(c, "bias"), bias) == E;
        choose(&router, E, K, z, is_biased ? bias : NULL, expert, weight);
        for (int64_t k = 0; k < K; k++) {
            assert_int_equal(expert[k], json_integer_value(json_array_get(ids, (size_t)k)));
            assert_true(is_near(weight[k], (double)want[k]));
        }
        is_seen[router.score] = true;
    }
    for (int s = 0; s < TT_SCORE_COUNT; s++) {
        assert_true(is_seen[s]);
    }
    json_decref(cases);
}

/* The share of `at` in a softmax over z, less those that are left out. */
static double share(const float *z, int64_t E, const bool *out, int64_t at)
{
    double sum = 0;
    for (int64_t e = 0; e < E; e++) {
        sum += out[e] ? 0.0 : exp((double)z[e] - (double)z[at]);
    }
    return 1.0 / sum;
}

/* Of a chosen expert, by the words of tt_score; of SOFTMAX_CHOSEN the share is taken when all are
 * chosen. is_out: left out by the sparse mixer. */
static double score_by_words(tt_score score, const float *z, int64_t E, const bool *is_out,
                             int64_t chosen, int64_t first)
{
    static const bool none[MAX_E];
    switch (score) {
    case TT_SCORE_SOFTMAX:
        return share(z, E, none, chosen);
    case TT_SCORE_SPARSEMIXER:
        return share(z, E, is_out, chosen);
    case TT_SCORE_SOFTMAX_CHOSEN:
        return exp((double)z[chosen] - (double)z[first]);
    case TT_SCORE_SIGMOID:
    case TT_SCORE_SIGMOID_CHOSEN:
        return 1.0 / (1.0 + exp(-(double)z[chosen]));
    case TT_SCORE_COUNT:
        break;
    }
    fail_msg("brute force has no words for score %d", (int)score);
    return NAN;
}

/* By the words of tt_score: the largest logit that is left, K times, and its weight in double. */
static void brute_force(const tt_router *router, int64_t E, int64_t K, const float *z,
                        int32_t *expert, double *weight)
{
    bool is_taken[MAX_E] = {false}, is_out[MAX_E];
    double sum = 0, among = 0;
    for (int64_t k = 0; k < K; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < E; e++) {
            if (!is_taken[e] && (best < 0 || z[e] > z[best])) {
                best = e;
            }
        }
        for (int64_t e = 0; e < E; e++) {
            double m = (double)z[best], far = (m - (double)z[e]) / fmax(fabs((double)z[e]), m);
            is_out[e] = is_taken[e] || far > 2.0 * (double)router->jitter;
        }
        expert[k] = (int32_t)best;
        weight[k] = score_by_words(router->score, z, E, is_out, best, expert[0]);
        is_taken[best] = true;
        among += weight[k];
    }
    for (int64_t k = 0; k < K; k++) {
        weight[k] /= router->score == TT_SCORE_SOFTMAX_CHOSEN ? among : 1.0;
        sum += weight[k];
    }
    sum = fmax(sum + (double)router->normalise_eps, (double)router->normalise_floor);
    for (int64_t k = 0; k < K; k++) {
        weight[k] *= (double)router->scale / (router->normalise ? sum : 1.0);
    }
}

static void weights_of_every_score_agree_with_brute_force(void **state)
{
    (void)state;
    srand(11);
    for (int round = 0; round < 5000; round++) {
        tt_router router = {.score = (tt_score)(rand() % TT_SCORE_COUNT),
                            .n_groups = 1,
                            .n_groups_kept = 1,
                            .normalise = rand() % 2,
                            .normalise_eps = rand() % 2 ? 1e-20f : 0.0f,
                            .normalise_floor = rand() % 2 ? 1e-12f : 0.7f,
                            .scale = rand() % 2 ? 1.0f : 2.827f,
                            .jitter = 0.0103f}; /* no ratio of the logits below lies at 0.0206 */
        int64_t E = 2 + rand() % 63, most = E < 8 ? E : 8;
        int64_t K = router.score == TT_SCORE_SPARSEMIXER ? 2 : 1 + rand() % most;
        float z[64], weight[8];
        double want[8], step = rand() % 2 ? 0.03125 : 0.25;
        int32_t expert[8], ids[8];
        for (int64_t e = 0; e < E; e++) {
            z[e] = (float)((rand() % 64 - 32) * step); /* many ties, both signs */
        }
        brute_force(&router, E, K, z, ids, want);
        choose(&router, E, K, z, NULL, expert, weight);
        for (int64_t k = 0; k < K; k++) {
            assert_int_equal(expert[k], ids[k]);
            assert_true(is_near(weight[k], want[k]));
        }
    }
}

static void nothing_but_numbers_passes_any_score(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY};
    for (int s = 0; s < TT_SCORE_COUNT; s++) {
        for (size_t i = 0; i < 2; i++) {
            tt_router router = {
                .score = (tt_score)s, .n_groups = 1, .scale = 1.0f, .jitter = 0.01f};
            float z[4] = {0, 1, bad[i], 2}, work[8], weight[2];
            int32_t expert[2];
            tt_status st =
                tt_router_choose(&(tt_chooser){&router, 4, 2, NULL, work}, z, expert, weight);
            if (i == 1 && s == TT_SCORE_SIGMOID) { /* of an infinity it is 1 */
                assert_int_equal(st, TT_OK);
            } else {
                assert_int_equal(st, TT_ERR_NUMERIC);
            }
        }
    }
    /* Chosen by a bias, all scores 0 and nothing to add: their shares are no numbers. */
    tt_router router = {.score = TT_SCORE_SOFTMAX, .n_groups = 1, .scale = 1.0f, .normalise = true};
    float z[3] = {-200, -200, 0}, bias[3] = {2, 2, 0}, work[6], weight[2];
    int32_t expert[2];
    assert_int_equal(tt_router_choose(&(tt_chooser){&router, 3, 2, bias, work}, z, expert, weight),
                     TT_ERR_NUMERIC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(negative_biased_scores_beat_masked_groups),
        cmocka_unit_test(groups_rank_by_the_sum_of_two_or_by_the_best),
        cmocka_unit_test(wide_routers_are_not_cut),
        cmocka_unit_test(scale_applies_once_with_and_without_normalising),
        cmocka_unit_test(small_spreads_of_a_large_bias_decide),
        cmocka_unit_test(small_differences_of_products_decide),
        cmocka_unit_test(ties_go_to_the_smaller_id),
        cmocka_unit_test(nan_is_refused),
        cmocka_unit_test(random_routers_agree_with_brute_force),
        cmocka_unit_test(stored_answers_are_met),
        cmocka_unit_test(weights_of_every_score_agree_with_brute_force),
        cmocka_unit_test(nothing_but_numbers_passes_any_score),
    };
    ttk_init(tt_cpu_flags());
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
