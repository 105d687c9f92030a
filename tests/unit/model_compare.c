/* model_compare.c - see model_compare.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_compare.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tt_model *open_model(const char *path)
{
    tt_model *model = NULL;
    if (tt_model_open(path, &model) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return model;
}

void expect_message(tt_status st, tt_status want, const char *a, const char *b)
{
    if (st != want || !strstr(tt_status_message(), a) || !strstr(tt_status_message(), b)) {
        fail_msg("%s instead of %s, or not '%s' and '%s': %s", tt_status_name(st),
                 tt_status_name(want), a, b, tt_status_message());
    }
}

float *numbers(const tt_model *model, const tt_tensor *tensor)
{
    float *x = malloc((size_t)(tensor->rows * tensor->cols) * sizeof(*x));
    if (tt_model_read_f32(model, tensor, 0, tensor->rows, x) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return x;
}

int64_t unpermuted(int64_t r, int64_t D)
{
    int64_t i = r % D;
    return r - i + (i < D / 2 ? 2 * i : 2 * (i - D / 2) + 1);
}

static void compare_tensor(const char *name, const tt_model *a, const tt_model *b, tt_role role,
                           int64_t layer, int64_t expert)
{
    const tt_arch *arch = tt_model_arch(a);
    tt_tensor ta = tt_model_tensor(a, role, layer, expert),
              tb = tt_model_tensor(b, role, layer, expert);
    if (!ta.name && !tb.name) {
        return;
    }
    if (!ta.name || !tb.name || ta.rows != tb.rows || ta.cols != tb.cols) {
        fail_msg("%s: role %d of layer %d differs in shape", name, (int)role, (int)layer);
    }
    bool permuted = arch->rope.interleaved != tt_model_arch(b)->rope.interleaved &&
                    (role == TT_ROLE_Q || role == TT_ROLE_K || role == TT_ROLE_Q_BIAS ||
                     role == TT_ROLE_K_BIAS);
    float *xa = numbers(a, &ta), *xb = numbers(b, &tb);
    bool is_zero = true;
    for (int64_t r = 0; r < ta.rows; r++) {
        int64_t rb = permuted ? unpermuted(r, arch->D) : r;
        for (int64_t c = 0; c < ta.cols; c++) {
            float va = xa[r * ta.cols + c], vb = xb[rb * ta.cols + c];
            is_zero = is_zero && va == 0.0f;
            /* exp in another place and other code: a rounding or two */
            bool equal =
                role == TT_ROLE_DELTA_DECAY_RATE ? fabsf(va - vb) <= 1e-6f * fabsf(va) : va == vb;
            if (!equal) {
                fail_msg("%s: role %d, layer %d, expert %d, [%d][%d]: %.9g and %.9g", name,
                         (int)role, (int)layer, (int)expert, (int)r, (int)c, (double)va,
                         (double)vb);
            }
        }
    }
    if (is_zero) {
        fail_msg("%s: role %d of layer %d is all zero, which compares nothing", name, (int)role,
                 (int)layer);
    }
    free(xa);
    free(xb);
}

/* KV_B of one against MLA_K (transposed per head) and MLA_V of the other. */
static void compare_latent(const tt_model *whole, const tt_model *split, int64_t layer)
{
    const tt_arch *a = tt_model_arch(whole);
    tt_tensor kv = tt_model_tensor(whole, TT_ROLE_KV_B, layer, 0);
    tt_tensor k = tt_model_tensor(split, TT_ROLE_MLA_K, layer, 0),
              v = tt_model_tensor(split, TT_ROLE_MLA_V, layer, 0);
    assert_true(kv.name && k.name && v.name);
    float *x = numbers(whole, &kv), *xk = numbers(split, &k), *xv = numbers(split, &v);
    for (int64_t h = 0; h < a->Nq; h++) {
        for (int64_t r = 0; r < a->kv_rank; r++) {
            for (int64_t d = 0; d < a->nope_dim; d++) {
                assert_true(x[(h * (a->nope_dim + a->v_dim) + d) * a->kv_rank + r] ==
                            xk[(h * a->kv_rank + r) * a->nope_dim + d]);
            }
            for (int64_t d = 0; d < a->v_dim; d++) {
                assert_true(x[(h * (a->nope_dim + a->v_dim) + a->nope_dim + d) * a->kv_rank + r] ==
                            xv[(h * a->v_dim + d) * a->kv_rank + r]);
            }
        }
    }
    free(x);
    free(xk);
    free(xv);
}

static void compare_frequencies(const char *name, int64_t n, const float *a, const float *b)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(a[i] - b[i]) <= 2e-6f * a[i])) {
            fail_msg("%s: frequency %d: %.9g and %.9g", name, (int)i, (double)a[i], (double)b[i]);
        }
    }
}

static void compare_arch(const char *name, const tt_arch *a, const tt_arch *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->n_mtp, b->n_mtp);
    compare_frequencies(name, a->rope.dim / 2, a->rope.inv_freq, b->rope.inv_freq);
    /* No table for long contexts is one that says the same. */
    compare_frequencies(name, a->rope.dim / 2,
                        a->rope.long_inv_freq ? a->rope.long_inv_freq : a->rope.inv_freq,
                        b->rope.long_inv_freq ? b->rope.long_inv_freq : b->rope.inv_freq);
    if (a->rope.long_inv_freq && (a->rope.long_from != b->rope.long_from ||
                                  a->rope.long_attention_factor != b->rope.long_attention_factor)) {
        fail_msg("%s: long contexts begin elsewhere or are scaled otherwise", name);
    }
    for (int64_t i = 0; i < a->L + a->n_mtp; i++) {
        const tt_layer *x = &a->layer[i], *y = &b->layer[i];
        if (x->is_moe != y->is_moe || x->mixer != y->mixer || x->rope != y->rope ||
            x->qk_norm != y->qk_norm || x->scale_queries != y->scale_queries ||
            x->window != y->window || x->chunk != y->chunk) {
            fail_msg("%s: layer %d differs", name, (int)i);
        }
    }
#define SAME(field)                                                                                \
    if (a->field != b->field) {                                                                    \
        fail_msg("%s: " #field ": %g and %g", name, (double)a->field, (double)b->field);           \
    }
#define CLOSE(field)                                                                               \
    if (!(fabsf(a->field - b->field) <= 1e-6f * fabsf(a->field))) {                                \
        fail_msg("%s: " #field ": %.9g and %.9g", name, (double)a->field, (double)b->field);       \
    }
    /* clang-format off */
    SAME(L) SAME(H) SAME(V) SAME(context) SAME(norm) SAME(norm_place) SAME(norm_eps) SAME(tied_embeddings) SAME(head_bias)
    SAME(attention) SAME(Nq) SAME(Nkv) SAME(D) SAME(qk_norm) SAME(qk_norm_after_rope) SAME(qk_norm_weightless) SAME(qkv_bias) SAME(o_bias)
    SAME(sinks) SAME(attention_gate) SAME(q_rank) SAME(kv_rank) SAME(nope_dim) SAME(rope_dim) SAME(v_dim) SAME(rope.dim)
    SAME(delta.Nk) SAME(delta.Nv) SAME(delta.Dk) SAME(delta.Dv) SAME(delta.conv) SAME(E) SAME(K) SAME(F_shared) SAME(F_dense)
    SAME(shared_gate) SAME(expert_bias) SAME(activation) SAME(router.score) SAME(router.choice_bias) SAME(router.n_groups)
    SAME(router.n_groups_kept) SAME(router.normalise) SAME(router.logit_bias) SAME(router.weight_on_input) SAME(clip_qkv)
    CLOSE(embedding_scale) CLOSE(residual_scale) CLOSE(logit_divisor) CLOSE(query_scale) CLOSE(query_floor) CLOSE(softmax_scale)
    CLOSE(rope.attention_factor) CLOSE(router.scale) CLOSE(router.jitter) CLOSE(activation_limit) CLOSE(activation_alpha)
    /* clang-format on */
#undef SAME
#undef CLOSE
}

static bool has_experts(int role)
{
    return role >= TT_ROLE_EXPERT_GATE && role <= TT_ROLE_EXPERT_DOWN_BIAS;
}

void compare_models(const char *name, const tt_model *a, const tt_model *b)
{
    const tt_arch *arch = tt_model_arch(a);
    bool split = !arch->mla_split && tt_model_arch(b)->mla_split;
    compare_arch(name, arch, tt_model_arch(b));
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        bool latent = role == TT_ROLE_KV_B || role == TT_ROLE_MLA_K || role == TT_ROLE_MLA_V;
        for (int64_t layer = 0; layer < arch->L + arch->n_mtp && !(split && latent); layer++) {
            for (int64_t e = 0; e < (has_experts(role) ? arch->E : 1); e++) {
                compare_tensor(name, a, b, (tt_role)role, layer, e);
            }
        }
    }
    for (int64_t layer = 0; split && layer < arch->L; layer++) {
        compare_latent(a, b, layer);
    }
}
