/* router.c - chooses experts from a token's router logits. All comparisons break ties by the
 * smaller id, so that every rank and ISA chooses alike; the bias takes part in choosing only, in
 * float from file to comparison. */
#include "tutti/moe.h"
#include "ttk.h"
#include <math.h>
#include <string.h>

/* The score of one group of `size` consecutive choosing scores. */
static float group_score(tt_group_score kind, const float *c, int64_t size)
{
    float best = -INFINITY, second = -INFINITY;
    for (int64_t e = 0; e < size; e++) {
        if (c[e] > best) {
            second = best;
            best = c[e];
        } else if (c[e] > second) {
            second = c[e];
        }
    }
    return kind == TT_GROUP_MAX || size < 2 ? best : best + second;
}

/* Sets c to -inf outside the n_groups_kept best groups; a kept group's score is overwritten by
 * NaN-free +inf marks. */
static void mask_groups(const tt_router *router, int64_t E, float *c, float *score)
{
    int64_t n = router->n_groups, size = E / n;
    for (int64_t g = 0; g < n; g++) {
        score[g] = group_score(router->group_score, c + g * size, size);
    }
    for (int64_t kept = 0; kept < router->n_groups_kept; kept++) {
        int64_t best = -1;
        for (int64_t g = 0; g < n; g++) {
            if (score[g] < INFINITY && (best < 0 || score[g] > score[best])) {
                best = g;
            }
        }
        if (best < 0) {
            break;
        }
        score[best] = INFINITY; /* marks it as kept; scores are finite */
    }
    for (int64_t g = 0; g < n; g++) {
        if (score[g] < INFINITY) {
            for (int64_t e = 0; e < size; e++) {
                c[g * size + e] = -INFINITY;
            }
        }
    }
}

/* c = z without the first k chosen experts. */
static void copy_unchosen(float *c, const float *z, int64_t E, const int32_t *expert, int64_t k)
{
    memcpy(c, z, (size_t)E * sizeof(*c));
    for (int64_t i = 0; i < k; i++) {
        c[expert[i]] = -INFINITY;
    }
}

/* K experts one after the other, each by a softmax over those not chosen yet whose logits are near
 * the best of them. */
static tt_status choose_near_best(const tt_chooser *chooser, const float *z, int32_t *expert,
                                  float *weight)
{
    const int64_t E = chooser->E;
    float *c = chooser->work;
    for (int64_t e = 0; e < E; e++) {
        TT_CHECK(isfinite(z[e]), TT_ERR_NUMERIC,
                 "the router's logit of expert %lld is not a number", (long long)e);
    }
    for (int64_t k = 0; k < chooser->K; k++) {
        copy_unchosen(c, z, E, expert, k);
        ttk.topk_f32(&expert[k], c, E, 1);
        float best = z[expert[k]];
        for (int64_t e = 0; e < E; e++) {
            float magnitude = fabsf(z[e]) > best ? fabsf(z[e]) : best;
            if ((best - z[e]) / magnitude > 2.0f * chooser->router->jitter) { /* 0 / 0 is not */
                c[e] = -INFINITY;
            }
        }
        ttk.softmax_f32(c, E);
        weight[k] = c[expert[k]];
    }
    return TT_OK;
}

/* K experts at once by their scores or logits. */
static tt_status choose_best(const tt_chooser *chooser, float *z, int32_t *expert, float *weight)
{
    const tt_router *router = chooser->router;
    const int64_t E = chooser->E, K = chooser->K;
    const float *bias = chooser->bias;
    float *c = chooser->work, *score = c + E; /* score[n_groups], n_groups <= E */
    switch (router->score) {
    case TT_SCORE_SIGMOID:
        ttk.sigmoid_f32(z, E);
        break;
    case TT_SCORE_SOFTMAX:
        ttk.softmax_f32(z, E);
        break;
    case TT_SCORE_SOFTMAX_CHOSEN:
    case TT_SCORE_SIGMOID_CHOSEN:
        break; /* by logit */
    case TT_SCORE_SPARSEMIXER:
    case TT_SCORE_COUNT:
        TT_ASSERT(false);
    }
    for (int64_t e = 0; e < E; e++) {
        c[e] = bias ? z[e] + bias[e] : z[e];
        TT_CHECK(isfinite(c[e]), TT_ERR_NUMERIC,
                 "the router's score of expert %lld is not a number", (long long)e);
    }
    if (router->n_groups > 1) {
        mask_groups(router, E, c, score);
    }
    ttk.topk_f32(expert, c, E, K);
    for (int64_t k = 0; k < K; k++) {
        weight[k] = z[expert[k]];
    }
    if (router->score == TT_SCORE_SOFTMAX_CHOSEN) {
        ttk.softmax_f32(weight, K);
    } else if (router->score == TT_SCORE_SIGMOID_CHOSEN) {
        ttk.sigmoid_f32(weight, K);
    }
    return TT_OK;
}

tt_status tt_router_choose(const tt_chooser *chooser, float *z, int32_t *expert, float *weight)
{
    const tt_router *router = chooser->router;
    const int64_t K = chooser->K;
    TT_TRY(router->score == TT_SCORE_SPARSEMIXER ? choose_near_best(chooser, z, expert, weight)
                                                 : choose_best(chooser, z, expert, weight));
    float sum = 0.0f;
    for (int64_t k = 0; k < K; k++) {
        sum += weight[k];
    }
    float divisor = sum + router->normalise_eps;
    divisor = divisor > router->normalise_floor ? divisor : router->normalise_floor;
    for (int64_t k = 0; k < K; k++) {
        if (router->normalise) {
            weight[k] /= divisor;
        }
        weight[k] *= router->scale;
        TT_CHECK(isfinite(weight[k]), TT_ERR_NUMERIC,
                 "the router's weight of expert %d is not a number", expert[k]);
    }
    return TT_OK;
}
