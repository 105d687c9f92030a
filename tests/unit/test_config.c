/* test_config.c - configurations into tt_arch: both spellings of seven architectures against
 * hand-written values, defaults, and what must be refused by name. */
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

/* ---- the seven miniatures ---- */

typedef struct expected {
    const char *folder;
    tt_arch arch; /* without rope.inv_freq and layer */
    int n_dense;  /* leading dense layers */
    double rope_theta;
    /* yarn with factor 4 over 64 positions: which share of inv_freq[i] is divided by 4; -1 = no
     * scaling */
    double ramp[4];
} expected;

#define COMMON .L = 3, .H = 64, .V = 320, .context = 512
#define MLA                                                                                        \
    .attention = TT_ATTENTION_MLA, .Nq = 4, .kv_rank = 32, .nope_dim = 16, .rope_dim = 8,          \
    .v_dim = 16, .mla_norm_eps = 1e-6f, .norm_eps = 1e-6f,                                         \
    .rope = {.dim = 8, .interleaved = true, .attention_factor = 1}
#define GQA(q, kv, width)                                                                          \
    .attention = TT_ATTENTION_GQA, .Nq = (q), .Nkv = (kv), .D = (width),                           \
    .rope = {.dim = (width), .attention_factor = 1}
#define EXPERTS(e, k, f) .E = (e), .K = (k), .F = (f)
#define ARCH(class, ...)                                                                           \
    {                                                                                              \
        .name = (class), COMMON, __VA_ARGS__                                                       \
    }
#define ROUTER_V2(groups, kept, factor)                                                            \
    {                                                                                              \
        .score = TT_SCORE_SOFTMAX, .n_groups = (groups), .n_groups_kept = (kept),                  \
        .group_score = TT_GROUP_MAX, .normalise_eps = 1e-20f, .scale = (factor)                    \
    }
#define ROUTER_V3(groups, kept, factor)                                                            \
    {                                                                                              \
        .score = TT_SCORE_SIGMOID, .choice_bias = true, .n_groups = (groups),                      \
        .n_groups_kept = (kept), .group_score = TT_GROUP_TOP2_SUM, .normalise = true,              \
        .normalise_eps = 1e-20f, .scale = (factor)                                                 \
    }
#define ROUTER_SOFTMAX(norm)                                                                       \
    {                                                                                              \
        .score = TT_SCORE_SOFTMAX, .n_groups = 1, .n_groups_kept = 1, .normalise = (norm),         \
        .scale = 1                                                                                 \
    }

/* 1/sqrt(24) = 0.20412415; YaRN's m(4, 0.707) = 1.0980110, squared 1.2056282; m(4, 1) = 1.1386294,
 * squared 1.2964770. corr(32) of d = 8, 64 positions, theta 1e4 is below 0, corr(1) = 1.0079: ramp
 * from 0 to 2. */
#define YARN_RAMP                                                                                  \
    {                                                                                              \
        0, 0.5, 1, 1                                                                               \
    }
#define NO_YARN                                                                                    \
    {                                                                                              \
        -1                                                                                         \
    }

static const expected table[] = {
    {"deepseek_v2",
     ARCH("DeepseekV2ForCausalLM", MLA, .softmax_scale = 0.24609783f, EXPERTS(16, 4, 32),
          .F_shared = 64, .F_dense = 96, .router = ROUTER_V2(1, 1, 1)),
     1, 10000, YARN_RAMP},
    {"deepseek_v2_group",
     ARCH("DeepseekV2ForCausalLM", MLA, .softmax_scale = 0.20412415f, .q_rank = 24,
          EXPERTS(16, 4, 32), .F_shared = 64, .F_dense = 96, .router = ROUTER_V2(4, 2, 16)),
     1, 10000, NO_YARN},
    {"deepseek_v3",
     ARCH("DeepseekV3ForCausalLM", MLA, .softmax_scale = 0.26464226f, .q_rank = 24,
          EXPERTS(16, 4, 32), .F_shared = 32, .F_dense = 96, .router = ROUTER_V3(4, 2, 2.5f)),
     1, 10000, YARN_RAMP},
    {"kimi_k2",
     ARCH("DeepseekV3ForCausalLM", MLA, .softmax_scale = 0.20412415f, .q_rank = 24,
          EXPERTS(24, 6, 32), .F_shared = 32, .F_dense = 96, .router = ROUTER_V3(1, 1, 2.827f)),
     1, 50000, NO_YARN},
    {"qwen3_moe",
     ARCH("Qwen3MoeForCausalLM", .norm_eps = 1e-6f, GQA(4, 2, 32), .qk_norm = TT_QK_NORM_HEAD,
          .softmax_scale = 0.17677670f, EXPERTS(16, 4, 32), .F_dense = 96,
          .router = ROUTER_SOFTMAX(true)),
     0, 1000000, NO_YARN},
    {"mixtral",
     ARCH("MixtralForCausalLM", .norm_eps = 1e-5f, GQA(4, 2, 16), .softmax_scale = 0.25f,
          EXPERTS(8, 2, 96), .router = ROUTER_SOFTMAX(true)),
     0, 1000000, NO_YARN},
    {"olmoe",
     ARCH("OlmoeForCausalLM", .norm_eps = 1e-5f, GQA(4, 4, 16), .qk_norm = TT_QK_NORM_WHOLE,
          .softmax_scale = 0.25f, EXPERTS(16, 4, 40), .router = ROUTER_SOFTMAX(false)),
     0, 10000, NO_YARN},
};

static void assert_close(double have, double want)
{
    if (!(fabs(have - want) <= 2e-7 * fabs(want))) {
        fail_msg("%.9g is not %.9g", have, want);
    }
}

static void expect_arch(const tt_arch *a, const expected *want)
{
    const tt_arch *w = &want->arch;
    assert_string_equal(a->name, w->name);
    assert_int_equal(a->L, w->L);
    assert_int_equal(a->H, w->H);
    assert_int_equal(a->V, w->V);
    assert_int_equal(a->context, w->context);
    assert_true(a->norm_eps == w->norm_eps);
    assert_false(a->tied_embeddings);
    assert_int_equal(a->attention, w->attention);
    assert_int_equal(a->Nq, w->Nq);
    assert_int_equal(a->Nkv, w->Nkv);
    assert_int_equal(a->D, w->D);
    assert_int_equal(a->qk_norm, w->qk_norm);
    assert_false(a->qkv_bias);
    assert_false(a->o_bias);
    assert_true(a->clip_qkv == 0);
    assert_int_equal(a->q_rank, w->q_rank);
    assert_int_equal(a->kv_rank, w->kv_rank);
    assert_int_equal(a->nope_dim, w->nope_dim);
    assert_int_equal(a->rope_dim, w->rope_dim);
    assert_int_equal(a->v_dim, w->v_dim);
    assert_true(a->mla_norm_eps == w->mla_norm_eps);
    assert_close((double)a->softmax_scale, (double)w->softmax_scale);
    assert_int_equal(a->rope.dim, w->rope.dim);
    assert_int_equal(a->rope.interleaved, w->rope.interleaved);
    assert_true(a->rope.attention_factor == w->rope.attention_factor);
    for (int64_t i = 0; i < w->rope.dim / 2; i++) {
        double freq = exp(-log(want->rope_theta) * 2 * (double)i / (double)w->rope.dim);
        double ramp = want->ramp[0] < 0 ? 0 : want->ramp[i];
        assert_close((double)a->rope.inv_freq[i], freq * (1 - ramp + ramp / 4));
    }
    assert_int_equal(a->E, w->E);
    assert_int_equal(a->K, w->K);
    assert_int_equal(a->F, w->F);
    assert_int_equal(a->F_shared, w->F_shared);
    assert_int_equal(a->F_dense, w->F_dense);
    for (int64_t layer = 0; layer < w->L; layer++) {
        assert_int_equal(a->layer[layer].is_moe, layer >= want->n_dense);
    }
    assert_int_equal(a->router.score, w->router.score);
    assert_int_equal(a->router.choice_bias, w->router.choice_bias);
    assert_int_equal(a->router.n_groups, w->router.n_groups);
    assert_int_equal(a->router.n_groups_kept, w->router.n_groups_kept);
    if (w->router.n_groups > 1) {
        assert_int_equal(a->router.group_score, w->router.group_score);
    }
    assert_int_equal(a->router.normalise, w->router.normalise);
    assert_true(a->router.normalise_eps == w->router.normalise_eps);
    assert_true(a->router.scale == w->router.scale);
    assert_int_equal(a->n_mtp, 0); /* stated by some, in no miniature's weights */
}

/* Bit for bit, as two spellings of one model. */
static void expect_equal_arch(const tt_arch *a, const tt_arch *b)
{
    assert_true(a->softmax_scale == b->softmax_scale);
    assert_true(a->router.scale == b->router.scale);
    assert_int_equal(a->router.group_score, b->router.group_score);
    assert_int_equal(a->rope.dim, b->rope.dim);
    assert_memory_equal(a->rope.inv_freq, b->rope.inv_freq,
                        (size_t)(a->rope.dim / 2) * sizeof(float));
    assert_int_equal(a->L + a->n_mtp, b->L + b->n_mtp);
    assert_memory_equal(a->layer, b->layer, (size_t)(a->L + a->n_mtp) * sizeof(*a->layer));
}

static void both_spellings_give_the_same_architecture(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        tt_model *old = open_miniature(f, table[i].folder, "config.json", NULL, NULL);
        tt_model *fresh = open_miniature(f, table[i].folder, "config.v5.json", NULL, NULL);
        expect_arch(tt_model_arch(old), &table[i]);
        expect_arch(tt_model_arch(fresh), &table[i]);
        expect_equal_arch(tt_model_arch(old), tt_model_arch(fresh));
        tt_model_close(&old);
        tt_model_close(&fresh);
    }
}

/* ---- changed configurations ---- */

static tt_model *open_changed(const fixture *f, const char *folder, const char *key,
                              const char *text)
{
    return open_miniature(f, folder, "config.json", key, text);
}

static void bad_values_are_refused_by_name(void **state)
{
    static const struct {
        const char *folder, *key, *text;
        tt_status status;
    } cases[] = {
        {"deepseek_v3", "hidden_size", NULL, TT_ERR_FILE},
        {"deepseek_v3", "hidden_size", "null", TT_ERR_FILE},
        {"deepseek_v3", "hidden_size", "\"64\"", TT_ERR_FILE},
        {"deepseek_v3", "hidden_size", "64.0", TT_ERR_FILE},
        {"deepseek_v3", "hidden_size", "-64", TT_ERR_FILE},
        {"deepseek_v3", "hidden_size", "0", TT_ERR_FILE},
        {"deepseek_v3", "hidden_size", "9223372036854775807", TT_ERR_FILE},
        {"deepseek_v3", "num_hidden_layers", "1000000000", TT_ERR_FILE},
        {"deepseek_v3", "vocab_size", "4000000000000", TT_ERR_FILE},
        {"deepseek_v3", "num_attention_heads", "[4]", TT_ERR_FILE},
        {"deepseek_v3", "kv_lora_rank", "true", TT_ERR_FILE},
        {"deepseek_v3", "qk_rope_head_dim", "0", TT_ERR_FILE},
        {"deepseek_v3", "n_routed_experts", "0", TT_ERR_FILE},
        {"deepseek_v3", "n_routed_experts", NULL, TT_ERR_FILE},
        {"deepseek_v3", "num_experts", "17", TT_ERR_FILE},
        {"deepseek_v3", "num_experts_per_tok", "17", TT_ERR_FILE},
        {"deepseek_v3", "num_experts_per_tok", "9", TT_ERR_FILE}, /* of 2 groups of 4 */
        {"deepseek_v3", "topk_group", "5", TT_ERR_FILE},
        {"deepseek_v3", "topk_group", "0", TT_ERR_FILE},
        {"deepseek_v3", "topk_group", "-1", TT_ERR_FILE},
        {"deepseek_v3", "n_group", "3", TT_ERR_FILE},
        {"deepseek_v3", "n_group", "16", TT_ERR_FILE}, /* a group of one has no two best */
        {"deepseek_v3", "norm_topk_prob", "1", TT_ERR_FILE},
        {"deepseek_v3", "routed_scaling_factor", "0", TT_ERR_FILE},
        {"deepseek_v3", "rms_norm_eps", "-1", TT_ERR_FILE},
        {"deepseek_v3", "rope_theta", "0", TT_ERR_FILE},
        {"deepseek_v3", "scoring_func", "\"softmax\"", TT_ERR_UNSUPPORTED},
        {"deepseek_v3", "topk_method", "\"greedy\"", TT_ERR_UNSUPPORTED},
        {"deepseek_v3", "attention_bias", "true", TT_ERR_UNSUPPORTED},
        {"deepseek_v3", "hidden_act", "\"gelu\"", TT_ERR_UNSUPPORTED},
        {"deepseek_v3", "hidden_act", "3", TT_ERR_FILE},
        {"deepseek_v3", "quantization_config", "{\"quant_method\":\"quip\"}", TT_ERR_UNSUPPORTED},
        {"deepseek_v3", "eos_token_id", "\"x\"", TT_ERR_FILE},
        {"deepseek_v3", "eos_token_id", "[1,-2]", TT_ERR_FILE},
        {"deepseek_v2", "norm_topk_prob", "true", TT_ERR_UNSUPPORTED},
        {"deepseek_v2", "topk_method", "\"noaux_tc\"", TT_ERR_UNSUPPORTED},
        {"deepseek_v2", "mlp_bias", "true", TT_ERR_UNSUPPORTED},
        {"qwen3_moe", "num_attention_heads", "5", TT_ERR_FILE},
        {"qwen3_moe", "head_dim", "33", TT_ERR_FILE},
        {"qwen3_moe", "mlp_only_layers", "[3]", TT_ERR_FILE},
        {"qwen3_moe", "mlp_only_layers", "[\"a\"]", TT_ERR_FILE},
        {"qwen3_moe", "mlp_only_layers", "7", TT_ERR_FILE},
        {"qwen3_moe", "decoder_sparse_step", "0", TT_ERR_FILE},
        {"qwen3_moe", "partial_rotary_factor", "0.5", TT_ERR_UNSUPPORTED},
        {"qwen3_moe", "layer_types", "[\"full_attention\",\"sliding_attention\"]", TT_ERR_FILE},
        {"olmoe", "layer_types", "[\"full_attention\",\"sliding_attention\",\"full_attention\"]",
         TT_ERR_UNSUPPORTED},
        {"mixtral", "num_key_value_heads", "3", TT_ERR_FILE},
        {"mixtral", "num_attention_heads", "6", TT_ERR_FILE},
        {"mixtral", "num_local_experts", "9223372036854775807", TT_ERR_FILE},
        {"llama4_text", "attn_temperature_tuning", "4.5", TT_ERR_FILE},
        {"llama4_text", "attn_temperature_tuning", "\"yes\"", TT_ERR_FILE},
        {"olmoe", "clip_qkv", "-1", TT_ERR_FILE},
        {"olmoe", "architectures", "[\"GiantForCausalLM\"]", TT_ERR_UNSUPPORTED},
        {"olmoe", "architectures", "[]", TT_ERR_FILE},
        {"olmoe", "architectures", "\"OlmoeForCausalLM\"", TT_ERR_FILE},
        {"olmoe", "model_type", "\"mixtral\"", TT_ERR_UNSUPPORTED},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *key = cases[i].key;
        change_miniature(f, cases[i].folder, key, cases[i].text);
        /* Messages of checks over several keys name another of them. */
        const char *say = strcmp(key, "head_dim") == 0        ? "rotary"
                          : strcmp(key, "architectures") == 0 ? "architecture"
                          : cases[i].status == TT_ERR_UNSUPPORTED && strcmp(key, "layer_types") == 0
                              ? "sliding_attention"
                          : cases[i].status == TT_ERR_UNSUPPORTED && strcmp(key, "model_type") == 0
                              ? "mixtral"
                              : key;
        expect_refusal(f, cases[i].status, "config.json", say, NULL);
    }
}

/* What one changed key of a miniature leads to, and what the message must say. */
typedef struct refusal {
    const char *folder, *key, *text;
    tt_status status;
    const char *say, *also; /* also: NULL, or more of it */
} refusal;

static void expect_refusals(const fixture *f, const refusal *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("# %s: %s = %s\n", cases[i].folder, cases[i].key, cases[i].text);
        change_miniature(f, cases[i].folder, cases[i].key, cases[i].text);
        expect_refusal(f, cases[i].status, cases[i].say, cases[i].also, NULL);
    }
}

static void refusals_name_the_value(void **state)
{
    static const refusal cases[] = {
        {"olmoe", "architectures", "[\"GiantForCausalLM\"]", TT_ERR_UNSUPPORTED, "GiantForCausalLM",
         NULL},
        {"olmoe", "quantization_config", "{\"quant_method\":\"quip\"}", TT_ERR_UNSUPPORTED,
         "quantization_config", "quip"},
        {"olmoe", "hidden_act", "\"relu\"", TT_ERR_UNSUPPORTED, "relu", NULL},
        {"deepseek_v3", "topk_group", "5", TT_ERR_FILE, "topk_group 5", "n_group 4"},
        {"deepseek_v3", "n_group", "3", TT_ERR_FILE, "16 experts", "n_group 3"},
        {"deepseek_v3", "num_experts", "17", TT_ERR_FILE,
         "'n_routed_experts' and 'num_experts' differ", NULL},
        {"olmoe", "num_hidden_layers", "4", TT_ERR_FILE, "model.layers.3.", "missing"},
        {"olmoe", "num_hidden_layers", "9999", TT_ERR_FILE, "9999 layers", NULL},
        {"olmoe", "num_experts", "65536", TT_ERR_FILE, "[16, 64]", "[65536, 64]"},
    };
    expect_refusals(*state, cases, sizeof(cases) / sizeof(cases[0]));
}

static void broken_files_are_refused(void **state)
{
    fixture *f = *state;
    change_miniature(f, "olmoe", "comment", "1");
    fixture_remove(f, "config.json");
    expect_refusal(f, TT_ERR_FILE, "config.json", "No such file", NULL);
    fixture_write_text(f, "config.json", "");
    expect_refusal(f, TT_ERR_FILE, "config.json", "bad JSON", NULL);
    fixture_write_text(f, "config.json", "{\"a\": }");
    expect_refusal(f, TT_ERR_FILE, "config.json", "line 1", NULL);
    fixture_write_text(f, "config.json", "[]");
    expect_refusal(f, TT_ERR_FILE, "config.json", "not an object", NULL);
    fixture_write_text(f, "config.json", "{\"hidden_size\": 1, \"hidden_size\": 2}");
    expect_refusal(f, TT_ERR_FILE, "config.json", "duplicate", "hidden_size", NULL);
    fixture_write_text(f, "config.json", "{}");
    expect_refusal(f, TT_ERR_FILE, "config.json", "architectures", NULL);
}

static void an_absent_key_takes_the_class_default(void **state)
{
    fixture *f = *state;
    tt_model *model = open_changed(f, "qwen3_moe", "norm_topk_prob", NULL);
    assert_false(tt_model_arch(model)->router.normalise);
    tt_model_close(&model);
    model = open_changed(f, "mixtral", "rms_norm_eps", NULL);
    assert_true(tt_model_arch(model)->norm_eps == 1e-5f);
    tt_model_close(&model);
    model = open_changed(f, "mixtral", "rope_theta", NULL);
    assert_close((double)tt_model_arch(model)->rope.inv_freq[1], pow(1e6, -1.0 / 8));
    tt_model_close(&model);
    model = open_changed(f, "olmoe", "num_key_value_heads", NULL);
    assert_int_equal(tt_model_arch(model)->Nkv, 4);
    tt_model_close(&model);
    model = open_changed(f, "kimi_k2", "routed_scaling_factor", NULL);
    assert_true(tt_model_arch(model)->router.scale == 2.5f);
    tt_model_close(&model);
    model = open_changed(f, "kimi_k2", "rope_interleave", "false");
    assert_false(tt_model_arch(model)->rope.interleaved);
    tt_model_close(&model);
    model = open_changed(f, "olmoe", "clip_qkv", "7.5");
    assert_true(tt_model_arch(model)->clip_qkv == 7.5f);
    tt_model_close(&model);
    change_miniature(f, "deepseek_v3", "first_k_dense_replace",
                     NULL); /* 3: layer 1 would be dense */
    expect_refusal(f, TT_ERR_FILE, "model.layers.1.mlp.gate_proj.weight", "missing", NULL);
}

static void the_model_type_alone_is_enough(void **state)
{
    fixture *f = *state;
    tt_model *model = open_changed(f, "olmoe", "architectures", NULL);
    assert_string_equal(tt_model_arch(model)->name, "OlmoeForCausalLM");
    tt_model_close(&model);
    model = open_changed(f, "kimi_k2", "model_type", "\"kimi_k2\"");
    assert_string_equal(tt_model_arch(model)->name, "DeepseekV3ForCausalLM");
    tt_model_close(&model);
}

static void a_sliding_window_is_per_layer(void **state)
{
    fixture *f = *state;
    tt_model *model = open_changed(f, "mixtral", "sliding_window", "96");
    assert_int_equal(tt_model_arch(model)->context, 512);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tt_model_arch(model)->layer[i].window, 96);
    }
    tt_model_close(&model);
    model = open_changed(f, "mixtral", "sliding_window", "512"); /* hides nothing */
    assert_int_equal(tt_model_arch(model)->layer[0].window, 0);
    tt_model_close(&model);
    model = open_changed(f, "qwen3_moe", "sliding_window", "96"); /* use_sliding_window is false */
    assert_int_equal(tt_model_arch(model)->layer[0].window, 0);
    tt_model_close(&model);
    /* sliding_window 4096, wider than the context */
    model = open_changed(f, "dots1", "max_window_layers", "2");
    assert_int_equal(tt_model_arch(model)->layer[2].window, 0);
    tt_model_close(&model);
    change_miniature(f, "gpt_oss", "sliding_window", "0");
    expect_refusal(f, TT_ERR_FILE, "sliding_attention", "sliding_window", NULL);
    change_miniature(f, "olmoe", "sliding_window", "96"); /* not known there */
    expect_refusal(f, TT_ERR_UNSUPPORTED, "sliding_window", NULL);
}

/* And windows are held against the stretched context. */
static void yarn_stretches_the_context(void **state)
{
    static const char scaling[] =
        "{\"rope_type\":\"yarn\",\"factor\":32.0,\"original_max_position_embeddings\":64}";
    static const char *const folders[] = {"qwen3_moe_yarn", "deepseek_v3"};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        tt_model *plain = open_miniature(f, folders[i], "config.json", NULL, NULL);
        assert_int_equal(tt_model_arch(plain)->context, 512);
        tt_model *model = open_changed(f, folders[i], "rope_scaling", scaling);
        assert_int_equal(tt_model_arch(model)->context, 2048);
        tt_model_close(&model);
        tt_model_close(&plain);
    }
    change_miniature(f, "olmoe", "rope_scaling", scaling);
    change_config(f, "sliding_window", "1024"); /* above max_position_embeddings */
    expect_refusal(f, TT_ERR_UNSUPPORTED, "sliding_window 1024", NULL);
    change_miniature(
        f, "olmoe", "rope_scaling",
        "{\"rope_type\":\"yarn\",\"factor\":1048576.0,\"original_max_position_embeddings\":1048576}");
    expect_refusal(f, TT_ERR_FILE, "config.json", "positions", NULL);
}

static void which_layers_are_moe_follows_the_keys(void **state)
{
    /* Dense layers have no weights in this miniature, so the refusal tells which layer became
     * dense. */
    static const refusal cases[] = {
        {"qwen3_moe", "decoder_sparse_step", "2", TT_ERR_FILE,
         "model.layers.0.mlp.gate_proj.weight", NULL},
        {"qwen3_moe", "mlp_only_layers", "[2]", TT_ERR_FILE, "model.layers.2.mlp.gate_proj.weight",
         NULL},
        {"deepseek_v2", "moe_layer_freq", "2", TT_ERR_FILE, "model.layers.1.mlp.gate_proj.weight",
         NULL},
    };
    expect_refusals(*state, cases, sizeof(cases) / sizeof(cases[0]));
}

static void two_spellings_of_rotary_keys_must_agree(void **state)
{
    static const refusal cases[] = {
        {"deepseek_v3", "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":10000.0}",
         TT_ERR_FILE, "rope_scaling and rope_parameters differ", NULL},
        {"deepseek_v3", "rope_scaling", "{\"type\":\"proportional\",\"factor\":2.0}",
         TT_ERR_UNSUPPORTED, "'proportional'", NULL},
        {"deepseek_v3", "rope_scaling", "{\"rope_type\":\"longrope\",\"factor\":2.0}", TT_ERR_FILE,
         "long_factor", NULL},
        {"olmoe", "rope_scaling",
         "{\"rope_type\":\"linear\",\"factor\":2.0,\"mrope_section\":[1,2]}", TT_ERR_UNSUPPORTED,
         "mrope_section", NULL},
        {"deepseek_v3", "rope_scaling", "{\"type\":\"yarn\"}", TT_ERR_FILE, "factor", NULL},
        {"deepseek_v3", "rope_scaling", "[]", TT_ERR_FILE, "rope_scaling", NULL},
    };
    expect_refusals(*state, cases, sizeof(cases) / sizeof(cases[0]));
}

/* ---- generation_config.json and end ids ---- */

static void end_ids_are_the_union_of_both_files(void **state)
{
    fixture *f = *state;
    size_t n;
    fixture_write_text(f, "generation_config.json",
                       "{\"eos_token_id\":[7,2,7],\"do_sample\":true,\"temperature\":0.6,"
                       "\"top_k\":20,\"top_p\":0.95}");
    tt_model *model = open_changed(f, "olmoe", "eos_token_id", "2");
    const int32_t *ids = tt_model_end_ids(model, &n);
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], 7);
    assert_int_equal(ids[1], 2);
    tt_generation generation = tt_model_generation(model);
    assert_int_equal(generation.do_sample, 1);
    assert_true(generation.temperature == 0.6);
    assert_true(generation.top_p == 0.95);
    assert_int_equal(generation.top_k, 20);
    assert_true(isnan(generation.min_p));
    tt_model_close(&model);

    fixture_remove(f, "generation_config.json");
    model = open_changed(f, "olmoe", "eos_token_id", "[3,4]");
    ids = tt_model_end_ids(model, &n);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], 4);
    generation = tt_model_generation(model);
    assert_int_equal(generation.do_sample, -1);
    assert_int_equal(generation.top_k, -1);
    assert_true(isnan(generation.temperature) && isnan(generation.top_p));
    tt_model_close(&model);

    model = open_changed(f, "olmoe", "eos_token_id", "null");
    tt_model_end_ids(model, &n);
    assert_int_equal(n, 0);
    tt_model_close(&model);
}

static void bad_generation_files_are_refused(void **state)
{
    static const char *const bad[][2] = {{"{\"temperature\":-1}", "temperature"},
                                         {"{\"top_p\":\"x\"}", "top_p"},
                                         {"{\"top_k\":1.5}", "top_k"},
                                         {"{\"do_sample\":1}", "do_sample"},
                                         {"{\"eos_token_id\":{}}", "eos_token_id"},
                                         {"{", "bad JSON"}};
    fixture *f = *state;
    change_miniature(f, "olmoe", "comment", "1");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fixture_write_text(f, "generation_config.json", bad[i][0]);
        expect_refusal(f, TT_ERR_FILE, "generation_config.json", bad[i][1], NULL);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(both_spellings_give_the_same_architecture),
        TEST(bad_values_are_refused_by_name),
        TEST(refusals_name_the_value),
        TEST(broken_files_are_refused),
        TEST(an_absent_key_takes_the_class_default),
        TEST(the_model_type_alone_is_enough),
        TEST(a_sliding_window_is_per_layer),
        TEST(yarn_stretches_the_context),
        TEST(which_layers_are_moe_follows_the_keys),
        TEST(two_spellings_of_rotary_keys_must_agree),
        TEST(end_ids_are_the_union_of_both_files),
        TEST(bad_generation_files_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
