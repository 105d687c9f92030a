/* test_families.c - what each architecture's miniature computes, as values written by hand from its
 * published description; both spellings of its configuration alike; class defaults, and the keys
 * that must be refused because they would change results unseen. (The seven oldest families' values
 * are in test_config.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_fixture.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_LAYERS = 3 };

/* Layers in short. */
#define MOE                                                                                        \
    {                                                                                              \
        .is_moe = true, .rope = true                                                               \
    }
#define DENSE                                                                                      \
    {                                                                                              \
        .rope = true                                                                               \
    }
#define NORMED(moe)                                                                                \
    {                                                                                              \
        .is_moe = (moe), .rope = true, .qk_norm = true                                             \
    }

typedef struct expected {
    const char *folder;
    tt_arch arch; /* without rope.inv_freq, layer, and what COMMON gives */
    tt_layer layer[N_LAYERS];
    double theta; /* inv_freq[i] = theta^(-2i/dim) * share[i]; 0: not compared */
    double share[8];
} expected;

#define SOFTMAX(norm)                                                                              \
    {                                                                                              \
        .score = TT_SCORE_SOFTMAX, .n_groups = 1, .n_groups_kept = 1, .normalise = (norm),         \
        .scale = 1                                                                                 \
    }
#define SIGMOID(factor)                                                                            \
    {                                                                                              \
        .score = TT_SCORE_SIGMOID, .choice_bias = true, .n_groups = 1, .n_groups_kept = 1,         \
        .group_score = TT_GROUP_TOP2_SUM, .normalise = true, .normalise_eps = 1e-20f,              \
        .scale = (factor)                                                                          \
    }
#define HEADS(q, kv, width, scale)                                                                 \
    .Nq = (q), .Nkv = (kv), .D = (width), .softmax_scale = (scale),                                \
    .rope = {.dim = (width), .attention_factor = 1}
#define HEADS_PARTLY(q, kv, width, scale, rotated)                                                 \
    .Nq = (q), .Nkv = (kv), .D = (width), .softmax_scale = (scale),                                \
    .rope = {.dim = (rotated), .attention_factor = 1}

#define ROUTER(...)                                                                                \
    {                                                                                              \
        .n_groups = 1, .n_groups_kept = 1, .scale = 1, __VA_ARGS__                                 \
    }
#define EXPERTS(e, k, f) .E = (e), .K = (k), .F = (f)
#define ARCH(class, ...)                                                                           \
    {                                                                                              \
        .name = (class), __VA_ARGS__                                                               \
    }
#define ALL(layer)                                                                                 \
    {                                                                                              \
        layer, layer, layer                                                                        \
    }
/* Unscaled: theta, and each frequency's share. */
#define POWERS(theta)                                                                              \
    (theta),                                                                                       \
    {                                                                                              \
        1, 1, 1, 1, 1, 1, 1, 1                                                                     \
    }

/* 1/sqrt(16) = 0.25, 1/sqrt(32) = 0.17677670. */
static const expected table[] = {
    {"llama_dense",
     ARCH("LlamaForCausalLM", .norm_eps = 1e-6f, HEADS(4, 2, 16, 0.25f), .F_dense = 96),
     ALL(DENSE),
     500000,
     /* llama3: wave lengths 2 pi / f of 6.3, 32, 167 and more, over 64 / 4 and 64 / 1: kept,
      * between (s = 0.32...), divided by 8 */
     {1, -1, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125}},
    {"qwen3_dense",
     ARCH("Qwen3ForCausalLM", .norm_eps = 1e-6f, HEADS(4, 2, 32, 0.17677670f),
          .qk_norm = TT_QK_NORM_HEAD, .F_dense = 96),
     ALL(NORMED(false)), POWERS(1000000)},
    {"qwen2_moe",
     ARCH("Qwen2MoeForCausalLM", .norm_eps = 1e-6f, HEADS(4, 2, 16, 0.25f), .qkv_bias = true,
          EXPERTS(12, 3, 40), .F_shared = 80, .F_dense = 96, .shared_gate = true,
          .router = SOFTMAX(false)),
     {DENSE, MOE, MOE},
     POWERS(1000000)},
    {"qwen3_moe_yarn",
     ARCH("Qwen3MoeForCausalLM", .norm_eps = 1e-6f, .Nq = 4, .Nkv = 2, .D = 32,
          .softmax_scale = 0.17677670f,
          .rope = {.dim = 32, .attention_factor = 1.13862944f}, /* 0.1 ln 4 + 1 */
          .qk_norm = TT_QK_NORM_HEAD, EXPERTS(16, 4, 32), .F_dense = 96, .router = SOFTMAX(true)),
     {NORMED(false), NORMED(true), NORMED(false)},
     1000000,
     /* corr(32) = 16 ln(64 / 64 pi) / ln 1e6 < 0 -> 0; corr(1) = 16 ln(64 / 2 pi) / ln 1e6 = 2.69
      * -> 3: ramp 0, 1/3, 2/3, 1 */
     {1, 0.75, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25}},
    {"glm4_moe",
     ARCH("Glm4MoeForCausalLM", .norm_eps = 1e-5f, HEADS_PARTLY(4, 2, 32, 0.17677670f, 16),
          .qk_norm = TT_QK_NORM_HEAD, .qkv_bias = true, EXPERTS(16, 4, 32), .F_shared = 32,
          .F_dense = 96, .router = SIGMOID(1.5f)),
     {NORMED(false), NORMED(true), NORMED(true)},
     POWERS(1000000)},
    {"dots1",
     ARCH("Dots1ForCausalLM", .norm_eps = 1e-6f, HEADS(4, 4, 16, 0.25f), .qk_norm = TT_QK_NORM_HEAD,
          EXPERTS(16, 4, 32), .F_shared = 64, .F_dense = 96, .router = SIGMOID(2.5f)),
     {NORMED(false), NORMED(true), NORMED(true)},
     POWERS(10000)},
    {"ernie4_5_moe",
     ARCH("Ernie4_5_MoeForCausalLM", .norm_eps = 1e-5f, .Nq = 4, .Nkv = 2, .D = 16,
          .softmax_scale = 0.25f, .rope = {.dim = 16, .interleaved = true, .attention_factor = 1},
          EXPERTS(16, 4, 32), .F_shared = 64, .F_dense = 96,
          .router = ROUTER(.score = TT_SCORE_SOFTMAX, .choice_bias = true, .normalise = true,
                           .normalise_floor = 1e-12f)),
     {DENSE, MOE, MOE},
     POWERS(500000)},
    {"minimax_m2",
     ARCH("MiniMaxM2ForCausalLM", .norm_eps = 1e-6f, HEADS_PARTLY(4, 2, 32, 0.17677670f, 16),
          .qk_norm = TT_QK_NORM_WHOLE, EXPERTS(16, 4, 32), .router = SIGMOID(1)),
     ALL(NORMED(true)), POWERS(5000000)},
    {"granitemoe",
     ARCH("GraniteMoeForCausalLM", .norm_eps = 1e-6f, HEADS(4, 2, 16, 0.0625f),
          .embedding_scale = 12, .residual_scale = 0.22f, .logit_divisor = 6, EXPERTS(8, 2, 40),
          .router = ROUTER(.score = TT_SCORE_SOFTMAX_CHOSEN)),
     ALL(MOE), POWERS(10000)},
    {"granitemoeshared",
     ARCH("GraniteMoeSharedForCausalLM", .norm_eps = 1e-6f, HEADS(4, 2, 16, 0.0625f),
          .embedding_scale = 12, .residual_scale = 0.22f, .logit_divisor = 6, EXPERTS(8, 2, 40),
          .F_shared = 64, .router = ROUTER(.score = TT_SCORE_SOFTMAX_CHOSEN)),
     ALL(MOE), POWERS(10000)},
    {"hunyuan_v1_moe",
     ARCH("HunYuanMoEV1ForCausalLM", .norm_eps = 1e-5f, HEADS(4, 2, 16, 0.25f),
          .qk_norm = TT_QK_NORM_HEAD, .qk_norm_after_rope = true, EXPERTS(8, 2, 96), .F_shared = 96,
          .router = SOFTMAX(true)),
     ALL(NORMED(true)), POWERS(10000)},
    {"flex_olmo",
     ARCH("FlexOlmoForCausalLM", .norm_eps = 1e-6f, .norm_place = TT_NORM_AFTER,
          HEADS(4, 4, 16, 0.25f), .qk_norm = TT_QK_NORM_WHOLE, EXPERTS(8, 3, 40),
          .router = SOFTMAX(false)),
     ALL(NORMED(true)), POWERS(500000)},
    {"gpt_oss",
     ARCH("GptOssForCausalLM", .norm_eps = 1e-5f, .Nq = 4, .Nkv = 2, .D = 32,
          .softmax_scale = 0.17677670f, .rope = {.dim = 32, .attention_factor = 1.13862944f},
          .qkv_bias = true, .o_bias = true, .sinks = true, EXPERTS(8, 4, 64), .expert_bias = true,
          .activation = TT_ACTIVATION_CLAMPED, .activation_limit = 7, .activation_alpha = 1.702f,
          .router = ROUTER(.score = TT_SCORE_SOFTMAX_CHOSEN, .logit_bias = true)),
     {{.is_moe = true, .rope = true, .window = 8},
      MOE,
      {.is_moe = true, .rope = true, .window = 8}},
     0,
     {0}},
    {"phimoe",
     ARCH("PhimoeForCausalLM", .norm = TT_NORM_LAYER, .norm_eps = 1e-5f, .head_bias = true,
          HEADS(4, 2, 16, 0.25f), .qkv_bias = true, .o_bias = true, EXPERTS(8, 2, 96),
          .router = ROUTER(.score = TT_SCORE_SPARSEMIXER, .jitter = 0.01f)),
     ALL(MOE), POWERS(10000)},
    {"llama4_text",
     ARCH("Llama4ForCausalLM", .norm_eps = 1e-5f, .Nq = 4, .Nkv = 2, .D = 16,
          .softmax_scale = 0.25f, .rope = {.dim = 16, .interleaved = true, .attention_factor = 1},
          .qk_norm = TT_QK_NORM_HEAD, .qk_norm_after_rope = true, .qk_norm_weightless = true,
          .query_scale = 0.1f, .query_floor = 8192, EXPERTS(8, 1, 32), .F_shared = 32,
          .F_dense = 96,
          .router = ROUTER(.score = TT_SCORE_SIGMOID_CHOSEN, .weight_on_input = true)),
     {{.is_moe = true, .rope = true, .qk_norm = true, .chunk = 16},
      {.is_moe = true, .rope = true, .qk_norm = true, .chunk = 16},
      {.is_moe = true, .rope = true, .qk_norm = true, .chunk = 16}},
     POWERS(500000)},
    {"qwen3_next",
     ARCH("Qwen3NextForCausalLM", .norm_eps = 1e-6f, HEADS_PARTLY(4, 2, 32, 0.17677670f, 8),
          .qk_norm = TT_QK_NORM_HEAD, .attention_gate = true,
          .delta = {.Nk = 2, .Nv = 4, .Dk = 16, .Dv = 16, .conv = 4}, EXPERTS(16, 4, 32),
          .F_shared = 32, .F_dense = 96, .shared_gate = true, .router = SOFTMAX(true)),
     {{.is_moe = true, .mixer = TT_MIXER_DELTA},
      {.is_moe = true, .mixer = TT_MIXER_DELTA},
      NORMED(true)},
     1000000,
     {1, 1, 1, 1}},
};

static void same_integer(const char *folder, const char *field, int64_t have, int64_t want)
{
    if (have != want) {
        fail_msg("%s: %s is %lld instead of %lld", folder, field, (long long)have, (long long)want);
    }
}

static void same_real(const char *folder, const char *field, double have, double want)
{
    if (!(fabs(have - want) <= 2e-7 * fabs(want))) {
        fail_msg("%s: %s is %.9g instead of %.9g", folder, field, have, want);
    }
}
#define INTEGER(field) same_integer(want->folder, #field, (int64_t)a->field, (int64_t)w->field)
#define REAL(field) same_real(want->folder, #field, (double)a->field, (double)w->field)

static void expect_attention(const tt_arch *a, const expected *want)
{
    const tt_arch *w = &want->arch;
    INTEGER(attention);
    INTEGER(Nq);
    INTEGER(Nkv);
    INTEGER(D);
    INTEGER(qk_norm);
    INTEGER(qk_norm_after_rope);
    INTEGER(qk_norm_weightless);
    INTEGER(qkv_bias);
    INTEGER(o_bias);
    INTEGER(sinks);
    INTEGER(attention_gate);
    REAL(query_scale);
    REAL(query_floor);
    REAL(clip_qkv);
    REAL(softmax_scale);
    INTEGER(rope.dim);
    INTEGER(rope.interleaved);
    REAL(rope.attention_factor);
    INTEGER(rope.long_from);
    assert_null(a->rope.long_inv_freq);
    INTEGER(delta.Nk);
    INTEGER(delta.Nv);
    INTEGER(delta.Dk);
    INTEGER(delta.Dv);
    INTEGER(delta.conv);
    for (int i = 0; want->theta > 0 && i < 8 && i < a->rope.dim / 2; i++) {
        double plain = pow(want->theta, -2.0 * i / (double)a->rope.dim);
        /* llama3's share between, of 64 positions, 1 and 4 */
        double s = (64 * plain / (2 * acos(-1.0)) - 1) / (4 - 1);
        double share = want->share[i] < 0 ? (1 - s) / 8 + s : want->share[i];
        same_real(want->folder, "inv_freq", (double)a->rope.inv_freq[i], plain * share);
    }
}

static void expect_ffn(const tt_arch *a, const expected *want)
{
    const tt_arch *w = &want->arch;
    INTEGER(E);
    INTEGER(K);
    INTEGER(F);
    INTEGER(F_shared);
    INTEGER(F_dense);
    INTEGER(shared_gate);
    INTEGER(expert_bias);
    INTEGER(activation);
    REAL(activation_limit);
    REAL(activation_alpha);
    INTEGER(router.score);
    INTEGER(router.choice_bias);
    INTEGER(router.n_groups);
    INTEGER(router.n_groups_kept);
    INTEGER(router.normalise);
    REAL(router.normalise_eps);
    REAL(router.normalise_floor);
    REAL(router.scale);
    INTEGER(router.logit_bias);
    INTEGER(router.weight_on_input);
    REAL(router.jitter);
}

static void expect_arch(const tt_arch *a, const expected *want)
{
    const tt_arch *w = &want->arch;
    assert_string_equal(a->name, w->name);
    same_integer(want->folder, "L", a->L, N_LAYERS);
    same_integer(want->folder, "H", a->H, 64);
    same_integer(want->folder, "V", a->V, 320);
    same_integer(want->folder, "context", a->context, 512);
    same_integer(want->folder, "n_mtp", a->n_mtp, 0);
    INTEGER(norm);
    INTEGER(norm_place);
    REAL(norm_eps);
    INTEGER(tied_embeddings);
    INTEGER(head_bias);
    same_real(want->folder, "embedding_scale", (double)a->embedding_scale,
              w->embedding_scale == 0 ? 1 : (double)w->embedding_scale);
    same_real(want->folder, "residual_scale", (double)a->residual_scale,
              w->residual_scale == 0 ? 1 : (double)w->residual_scale);
    same_real(want->folder, "logit_divisor", (double)a->logit_divisor,
              w->logit_divisor == 0 ? 1 : (double)w->logit_divisor);
    expect_attention(a, want);
    expect_ffn(a, want);
    for (int i = 0; i < N_LAYERS; i++) {
        const tt_layer *have = &a->layer[i], *layer = &want->layer[i];
        same_integer(want->folder, "is_moe", have->is_moe, layer->is_moe);
        same_integer(want->folder, "mixer", have->mixer, layer->mixer);
        same_integer(want->folder, "rope of a layer", have->rope, layer->rope);
        same_integer(want->folder, "qk_norm of a layer", have->qk_norm, layer->qk_norm);
        same_integer(want->folder, "scale_queries", have->scale_queries, layer->scale_queries);
        same_integer(want->folder, "window", have->window, layer->window);
        same_integer(want->folder, "chunk", have->chunk, layer->chunk);
    }
}

static tt_model *open_changed(const fixture *f, const char *folder, const char *key,
                              const char *text)
{
    return open_miniature(f, folder, "config.json", key, text);
}

static void values_are_those_of_the_description(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        tt_model *model = open_changed(f, table[i].folder, NULL, NULL);
        expect_arch(tt_model_arch(model), &table[i]);
        tt_model_close(&model);
    }
}

static void both_spellings_give_the_same_hash(void **state)
{
    static const char *const older[] = {"deepseek_v2", "deepseek_v2_group", "deepseek_v3",
                                        "kimi_k2",     "mixtral",           "olmoe",
                                        "qwen3_moe"};
    enum { N_OLDER = sizeof(older) / sizeof(older[0]), N = sizeof(table) / sizeof(table[0]) };
    fixture *f = *state;
    for (size_t i = 0; i < N_OLDER + N; i++) {
        const char *folder = i < N ? table[i].folder : older[i - N];
        tt_model *old = open_miniature(f, folder, "config.json", NULL, NULL);
        tt_model *fresh = open_miniature(f, folder, "config.v5.json", NULL, NULL);
        if (tt_model_hash(old) != tt_model_hash(fresh)) {
            fail_msg("%s: the two spellings differ", folder);
        }
        tt_model_close(&old);
        tt_model_close(&fresh);
    }
}

static void keys_that_would_change_results_are_refused(void **state)
{
    static const struct {
        const char *folder, *key, *text;
        tt_status status;
        const char *say; /* NULL: the key */
    } cases[] = {
        {"llama_dense", "mlp_bias", "true", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "hidden_act", "\"gelu\"", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "partial_rotary_factor", "0.5", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "sliding_window", "16", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "attn_logit_softcapping", "30.0", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "embedding_multiplier", "12.0", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "n_shared_experts", "2", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "rope_interleave", "true", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_dense", "clip_qkv", "8.0", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_dense", "layer_types",
         "[\"full_attention\",\"linear_attention\",\"full_attention\"]", TT_ERR_UNSUPPORTED,
         "layer 1"},
        {"qwen2_moe", "attention_bias", "true", TT_ERR_UNSUPPORTED, NULL},
        {"qwen2_moe", "routed_scaling_factor", "2.0", TT_ERR_UNSUPPORTED, NULL},
        {"qwen2_moe", "mlp_only_layers", "[5]", TT_ERR_FILE, NULL},
        {"glm4_moe", "topk_method", "\"greedy\"", TT_ERR_UNSUPPORTED, NULL},
        {"glm4_moe", "scoring_func", "\"softmax\"", TT_ERR_UNSUPPORTED, NULL},
        {"dots1", "scoring_func", "\"softmax\"", TT_ERR_UNSUPPORTED, NULL},
        {"ernie4_5_moe", "use_bias", "true", TT_ERR_UNSUPPORTED, NULL},
        {"ernie4_5_moe", "moe_gate_act", "\"sigmoid\"", TT_ERR_UNSUPPORTED, NULL},
        {"ernie4_5_moe", "moe_layer_start_index", "\"one\"", TT_ERR_FILE, NULL},
        {"ernie4_5_moe", "moe_layer_end_index", "[]", TT_ERR_FILE, NULL},
        {"ernie4_5_moe", "moe_num_experts", "[16,16]", TT_ERR_FILE, NULL},
        {"minimax_m2", "use_qk_norm", "false", TT_ERR_UNSUPPORTED, NULL},
        {"minimax_m2", "qk_norm_type", "\"per_head\"", TT_ERR_UNSUPPORTED, NULL},
        {"minimax_m2", "scoring_func", "\"softmax\"", TT_ERR_UNSUPPORTED, NULL},
        {"minimax_m2", "shared_intermediate_size", "32", TT_ERR_UNSUPPORTED, NULL},
        {"minimax_m2", "attn_type_list", "[1,0,1]", TT_ERR_UNSUPPORTED, NULL},
        {"minimax_m2", "rotary_dim", "64", TT_ERR_FILE, "rotary"},
        {"granitemoe", "hidden_act", "\"gelu\"", TT_ERR_UNSUPPORTED, NULL},
        {"granitemoe", "position_embedding_type", "\"nope\"", TT_ERR_UNSUPPORTED, NULL},
        {"granitemoe", "logits_scaling", "0", TT_ERR_FILE, NULL},
        {"hunyuan_v1_moe", "use_cla", "true", TT_ERR_UNSUPPORTED, NULL},
        {"hunyuan_v1_moe", "moe_topk", "[2,2,1]", TT_ERR_UNSUPPORTED, NULL},
        {"hunyuan_v1_moe", "moe_topk", "9", TT_ERR_FILE, "experts"},
        {"hunyuan_v1_moe", "num_shared_expert", "[1,2,1]", TT_ERR_UNSUPPORTED, NULL},
        {"hunyuan_v1_moe", "moe_layer_num_skipped", "1", TT_ERR_UNSUPPORTED, NULL},
        {"hunyuan_v1_moe", "norm_topk_prob", "false", TT_ERR_UNSUPPORTED, NULL},
        {"flex_olmo", "clip_qkv", "8.0", TT_ERR_UNSUPPORTED, NULL},
        {"gpt_oss", "rope_scaling", "null", TT_ERR_FILE, "rotary"},
        {"gpt_oss", "swiglu_limit", "-1", TT_ERR_FILE, NULL},
        {"phimoe", "num_experts_per_tok", "3", TT_ERR_UNSUPPORTED, NULL},
        {"phimoe", "router_jitter_noise", "-0.1", TT_ERR_FILE, NULL},
        {"llama4_text", "no_rope_layers", "[1,2,1]", TT_ERR_FILE, NULL},
        {"llama4_text", "no_rope_layers", "[1,1]", TT_ERR_FILE, NULL},
        {"llama4_text", "moe_layers", "[3]", TT_ERR_FILE, NULL},
        {"llama4_text", "moe_layers", "2", TT_ERR_FILE, NULL},
        {"llama4_text", "text_config", "7", TT_ERR_FILE, NULL},
        {"qwen3_next", "attention_bias", "true", TT_ERR_UNSUPPORTED, NULL},
        {"deepseek_v2", "rope_interleave", "false", TT_ERR_UNSUPPORTED, NULL},
        {"ernie4_5_moe", "rope_interleave", "false", TT_ERR_UNSUPPORTED, NULL},
        {"llama4_text", "rope_interleave", "false", TT_ERR_UNSUPPORTED, NULL},
        {"granitemoe", "shared_intermediate_size", "32", TT_ERR_UNSUPPORTED, NULL},
        {"minimax_m2", "attn_type_list", "{\"0\":1}", TT_ERR_FILE, NULL},
        {"llama_dense", "norm_eps", "0.01", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "layer_norm_epsilon", "0.01", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "layer_norm_epsilon", "\"1e-5\"", TT_ERR_FILE, NULL},
        {"llama_dense", "mlp_hidden_act", "\"relu2\"", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "use_post_norm", "true", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "qk_norm", "true", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_dense", "qk_norm", "false", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "attn_output_gate", "true", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_next", "attn_output_gate", "false", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_moe", "compression_ratio", "4", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "num_experts", "8", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_dense", "num_local_experts", "8", TT_ERR_UNSUPPORTED, NULL},
        {"llama_dense", "n_routed_experts", "8", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_dense", "moe_num_experts", "8", TT_ERR_UNSUPPORTED, NULL},
        {"hunyuan_v1_moe", "moe_drop_tokens", "true", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_moe", "scoring_func", "\"sigmoid\"", TT_ERR_UNSUPPORTED, NULL},
        {"llama4_text", "scoring_func", "\"softmax\"", TT_ERR_UNSUPPORTED, NULL},
        {"qwen3_next", "linear_num_value_heads", "3", TT_ERR_FILE, NULL},
        {"qwen3_next", "layer_types",
         "[\"full_attention\",\"sliding_attention\",\"full_attention\"]", TT_ERR_UNSUPPORTED,
         "layer 1"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        change_miniature(f, cases[i].folder, cases[i].key, cases[i].text);
        printf("# %s: %s = %s\n", cases[i].folder, cases[i].key, cases[i].text);
        expect_refusal(f, cases[i].status, "config.json",
                       cases[i].say ? cases[i].say : cases[i].key, NULL);
    }
}

static void neutral_keys_are_accepted(void **state)
{
    static const char *const cases[][3] = {{"hunyuan_v1_moe", "routed_scaling_factor", "false"},
                                           {"hunyuan_v1_moe", "n_group", "false"},
                                           {"hunyuan_v1_moe", "moe_topk", "[2,2,2]"},
                                           {"hunyuan_v1_moe", "num_shared_expert", "[1,1,1]"},
                                           {"minimax_m2", "rotary_dim", "16"},
                                           {"minimax_m2", "attn_type_list", "[1,1,1]"},
                                           {"ernie4_5_moe", "moe_layer_start_index", "[2,1]"},
                                           {"ernie4_5_moe", "moe_layer_end_index", "[-1,1]"},
                                           {"llama_dense", "clip_qkv", "null"},
                                           {"llama_dense", "sliding_window", "512"},
                                           {"dots1", "scoring_func", "\"noaux_tc\""},
                                           {"phimoe", "architectures", "[\"PhiMoEForCausalLM\"]"},
                                           {"deepseek_v2", "rope_interleave", "true"},
                                           {"ernie4_5_moe", "rope_interleave", "true"},
                                           {"llama4_text", "rope_interleave", "true"},
                                           {"granitemoe", "shared_intermediate_size", "0"},
                                           {"minimax_m2", "attn_type_list", "null"},
                                           {"qwen3_dense", "qk_norm", "true"},
                                           {"qwen3_next", "attn_output_gate", "true"},
                                           {"llama_dense", "compression_ratio", "1"},
                                           {"llama_dense", "num_experts", "0"},
                                           {"hunyuan_v1_moe", "moe_drop_tokens", "false"},
                                           {"qwen3_moe", "scoring_func", "\"softmax\""},
                                           {"llama4_text", "scoring_func", "\"sigmoid\""},
                                           {"glm4_moe", "num_nextn_predict_layers", "null"},
                                           {"qwen2_moe", "sliding_window", "16"}};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_model *plain = open_changed(f, cases[i][0], NULL, NULL);
        tt_model *model = open_changed(f, cases[i][0], cases[i][1], cases[i][2]);
        if (tt_model_hash(model) != tt_model_hash(plain)) {
            fail_msg("%s: %s = %s changed something", cases[i][0], cases[i][1], cases[i][2]);
        }
        tt_model_close(&model);
        tt_model_close(&plain);
    }
}

/* A type that older models share, and forms that the name alone tells apart. */
static void names_decide_where_types_do_not(void **state)
{
    fixture *f = *state;
    tt_model *model;
    change_miniature(f, "minimax_m2", "model_type", "\"minimax\"");
    assert_int_equal(tt_model_open(f->dir, &model), TT_OK);
    tt_model_close(&model);
    change_config(f, "architectures", NULL);
    expect_refusal(f, TT_ERR_UNSUPPORTED, "config.json", "minimax", NULL);
    model = open_changed(f, "granitemoeshared", "architectures", NULL);
    assert_true(tt_model_arch(model)->F_shared > 0);
    tt_model_close(&model);
    change_miniature(f, "granitemoeshared", "architectures", "[\"GraniteMoeForCausalLM\"]");
    expect_refusal(f, TT_ERR_UNSUPPORTED, "config.json", "shared_intermediate_size", NULL);
}

static void layers_follow_their_keys(void **state)
{
    fixture *f = *state;
    tt_model *model = open_changed(f, "gpt_oss", "layer_types", NULL); /* the even ones slide */
    const tt_layer *layer = tt_model_arch(model)->layer;
    assert_true(layer[0].window == 8 && layer[1].window == 0 && layer[2].window == 8);
    tt_model_close(&model);
    change_miniature(f, "llama4_text", "no_rope_layers", "[1,0,1]");
    change_config(f, "layer_types", NULL);
    assert_int_equal(tt_model_open(f->dir, &model), TT_OK);
    layer = tt_model_arch(model)->layer;
    assert_true(layer[0].rope && layer[0].chunk == 16 && !layer[0].scale_queries &&
                layer[0].qk_norm);
    assert_true(!layer[1].rope && layer[1].chunk == 0 && layer[1].scale_queries &&
                !layer[1].qk_norm);
    tt_model_close(&model);
    static const char *const tuning[] = {"false", "0", "true", "4"}; /* 4: Llama-4-Scout */
    for (size_t i = 0; i < sizeof(tuning) / sizeof(tuning[0]); i++) {
        change_miniature(f, "llama4_text", "no_rope_layers", "[1,0,1]");
        change_config(f, "layer_types", NULL);
        change_config(f, "attn_temperature_tuning", tuning[i]);
        assert_int_equal(tt_model_open(f->dir, &model), TT_OK);
        assert_int_equal(tt_model_arch(model)->layer[1].scale_queries, i >= 2);
        tt_model_close(&model);
    }
    model = open_changed(f, "glm4_moe", "partial_rotary_factor", NULL); /* half by default */
    assert_int_equal(tt_model_arch(model)->rope.dim, 16);
    tt_model_close(&model);
    model = open_changed(f, "phimoe", "sliding_window", "32");
    assert_int_equal(tt_model_arch(model)->layer[2].window, 32);
    tt_model_close(&model);
    change_miniature(f, "llama4_text", "moe_layers", "[0,2]");
    expect_refusal(f, TT_ERR_FILE, "model.layers.1.feed_forward.gate_proj.weight", "missing", NULL);
    /* every fourth is full: none of three */
    change_miniature(f, "qwen3_next", "layer_types", NULL);
    expect_refusal(f, TT_ERR_FILE, "model.layers.2.linear_attn.in_proj_qkvz.weight", "missing",
                   NULL);
    change_miniature(f, "ernie4_5_moe", "moe_layer_interval", "2");
    expect_refusal(f, TT_ERR_FILE, "model.layers.2.mlp.gate_proj.weight", "missing", NULL);
    change_miniature(f, "ernie4_5_moe", "moe_layer_end_index", "1");
    expect_refusal(f, TT_ERR_FILE, "model.layers.2.mlp.gate_proj.weight", "missing", NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(values_are_those_of_the_description),
        TEST(both_spellings_give_the_same_hash),
        TEST(keys_that_would_change_results_are_refused),
        TEST(neutral_keys_are_accepted),
        TEST(names_decide_where_types_do_not),
        TEST(layers_follow_their_keys),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
