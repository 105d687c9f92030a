/* test_model.c - every tensor of an open checkpoint: its shape by role, and its bytes against an
 * independent reading of the files; fused experts, MTP layers, tied embeddings, large tables, files
 * that change. */
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
#include <time.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
enum { NAME_BYTES = 256 };

static tt_model *open_or_fail(const char *path)
{
    tt_model *model = NULL;
    if (tt_model_open(path, &model) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return model;
}

/* ---- an independent reading ---- */

typedef struct whole_file {
    unsigned char *bytes;
    json_t *header;
    size_t data; /* where the data area begins */
} whole_file;

static whole_file read_safetensors(const char *path)
{
    whole_file w;
    size_t n, n_header = 0;
    w.bytes = read_whole(path, &n);
    for (int i = 7; i >= 0; i--) {
        n_header = n_header * 256 + w.bytes[i];
    }
    w.header = json_loadb((const char *)w.bytes + 8, n_header, 0, NULL);
    assert_non_null(w.header);
    w.data = 8 + n_header;
    return w;
}

static void whole_file_free(whole_file *w)
{
    json_decref(w->header);
    free(w->bytes);
}

/* Where the bytes of a tensor are, its shape as rows and columns. */
static const unsigned char *find_bytes(const whole_file *w, const char *name, int64_t *rows_out,
                                       int64_t *cols_out)
{
    const json_t *entry = json_object_get(w->header, name);
    if (!entry) {
        return NULL;
    }
    const json_t *shape = json_object_get(entry, "shape");
    *rows_out = json_integer_value(json_array_get(shape, 0));
    *cols_out = json_array_size(shape) > 1 ? json_integer_value(json_array_get(shape, 1)) : 1;
    return w->bytes + w->data +
           json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
}

/* The tensor of a role must be the file's tensor `name` (NULL: there must be none), with that
 * shape. */
static void expect_tensor(const tt_model *model, const whole_file *w, tt_role role, int64_t layer,
                          int64_t expert, const char *name, int64_t rows, int64_t cols)
{
    tt_tensor t = tt_model_tensor(model, role, layer, expert);
    if (!name) {
        assert_null(t.name);
        return;
    }
    int64_t file_rows = 0, file_cols = 0;
    const unsigned char *bytes = find_bytes(w, name, &file_rows, &file_cols);
    assert_non_null(bytes);
    assert_non_null(t.name);
    assert_string_equal(t.name, name);
    assert_int_equal(t.rows, rows);
    assert_int_equal(t.cols, cols);
    assert_int_equal(file_rows, rows);
    assert_int_equal(file_cols, cols);
    assert_int_equal(t.format.code, TTK_BF16);
    size_t n = (size_t)(rows * cols) * 2;
    unsigned char *have = malloc(n);
    float *values = malloc(2 * n);
    assert_non_null(have);
    assert_non_null(values);
    assert_int_equal(tt_model_read_rows(model, &t, 0, rows, have, &(ttk_unpacked){0}), TT_OK);
    assert_memory_equal(have, bytes, n);
    int64_t half = rows / 2;
    memset(have, 0, n);
    assert_int_equal(tt_model_read_rows(model, &t, half, rows - half, have, &(ttk_unpacked){0}),
                     TT_OK);
    assert_memory_equal(have, bytes + half * cols * 2, (size_t)((rows - half) * cols) * 2);
    assert_int_equal(tt_model_read_f32(model, &t, 0, t.rows, values), TT_OK);
    for (int64_t i = 0; i < rows * cols; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        assert_int_equal(bits, (uint32_t)bytes[2 * i] << 16 | (uint32_t)bytes[2 * i + 1] << 24);
    }
    free(have);
    free(values);
}

/* ---- the miniatures ---- */

typedef struct names {
    const char *moe;              /* "mlp" or "block_sparse_moe" */
    const char *gate, *up, *down; /* of an expert */
} names;

static void expect_layer(const tt_model *model, const whole_file *w, int64_t layer, const names *n,
                         bool mla, bool qk_norm)
{
    const tt_arch *a = tt_model_arch(model);
    char name[NAME_BYTES];
    bool moe = a->layer[layer].is_moe, bias = a->router.choice_bias;
    int64_t head = a->nope_dim + a->rope_dim;
#define AT(condition, ...)                                                                         \
    ((condition) ? (snprintf(name, sizeof(name), "model.layers.%d.", (int)layer),                  \
                    snprintf(name + strlen(name), sizeof(name) - strlen(name), __VA_ARGS__), name) \
                 : NULL)
#define EXPECT(role, rows, cols, condition, ...)                                                   \
    expect_tensor(model, w, TT_ROLE_##role, layer, 0, AT(condition, __VA_ARGS__), rows, cols)
    EXPECT(ATTENTION_NORM, a->H, 1, true, "input_layernorm.weight");
    EXPECT(FFN_NORM, a->H, 1, true, "post_attention_layernorm.weight");
    EXPECT(Q, a->Nq * (mla ? head : a->D), a->H, a->q_rank == 0, "self_attn.q_proj.weight");
    EXPECT(K, a->Nkv * a->D, a->H, !mla, "self_attn.k_proj.weight");
    EXPECT(V, a->Nkv * a->D, a->H, !mla, "self_attn.v_proj.weight");
    EXPECT(O, a->H, a->Nq * (mla ? a->v_dim : a->D), true, "self_attn.o_proj.weight");
    bool whole = a->qk_norm == TT_QK_NORM_WHOLE;
    EXPECT(Q_NORM, whole ? a->Nq * a->D : a->D, 1, qk_norm, "self_attn.q_norm.weight");
    EXPECT(K_NORM, whole ? a->Nkv * a->D : a->D, 1, qk_norm, "self_attn.k_norm.weight");
    EXPECT(Q_A, a->q_rank, a->H, a->q_rank > 0, "self_attn.q_a_proj.weight");
    EXPECT(Q_A_NORM, a->q_rank, 1, a->q_rank > 0, "self_attn.q_a_layernorm.weight");
    EXPECT(Q_B, a->Nq * head, a->q_rank, a->q_rank > 0, "self_attn.q_b_proj.weight");
    EXPECT(KV_A, a->kv_rank + a->rope_dim, a->H, mla, "self_attn.kv_a_proj_with_mqa.weight");
    EXPECT(KV_A_NORM, a->kv_rank, 1, mla, "self_attn.kv_a_layernorm.weight");
    EXPECT(KV_B, a->Nq * (a->nope_dim + a->v_dim), a->kv_rank, mla, "self_attn.kv_b_proj.weight");
    EXPECT(Q_BIAS, 0, 0, false, "-");
    EXPECT(K_BIAS, 0, 0, false, "-");
    EXPECT(V_BIAS, 0, 0, false, "-");
    EXPECT(O_BIAS, 0, 0, false, "-");
    EXPECT(GATE, a->F_dense, a->H, !moe, "mlp.gate_proj.weight");
    EXPECT(UP, a->F_dense, a->H, !moe, "mlp.up_proj.weight");
    EXPECT(DOWN, a->H, a->F_dense, !moe, "mlp.down_proj.weight");
    EXPECT(ROUTER, a->E, a->H, moe, "%s.gate.weight", n->moe);
    if (bias && !moe) {
        EXPECT(ROUTER_CHOICE_BIAS, 0, 0, false, "-");
    }
    bool shared = moe && a->F_shared > 0;
    EXPECT(SHARED_GATE, a->F_shared, a->H, shared, "mlp.shared_experts.gate_proj.weight");
    EXPECT(SHARED_UP, a->F_shared, a->H, shared, "mlp.shared_experts.up_proj.weight");
    EXPECT(SHARED_DOWN, a->H, a->F_shared, shared, "mlp.shared_experts.down_proj.weight");
    for (int e = 0; e < a->E; e++) {
        expect_tensor(model, w, TT_ROLE_EXPERT_GATE, layer, e,
                      AT(moe, "%s.experts.%d.%s.weight", n->moe, e, n->gate), a->F, a->H);
        expect_tensor(model, w, TT_ROLE_EXPERT_UP, layer, e,
                      AT(moe, "%s.experts.%d.%s.weight", n->moe, e, n->up), a->F, a->H);
        expect_tensor(model, w, TT_ROLE_EXPERT_DOWN, layer, e,
                      AT(moe, "%s.experts.%d.%s.weight", n->moe, e, n->down), a->H, a->F);
    }
}

static void every_tensor_has_its_shape_and_bytes(void **state)
{
    static const names usual = {"mlp", "gate_proj", "up_proj", "down_proj"};
    static const names mixtral = {"block_sparse_moe", "w1", "w3", "w2"};
    static const struct {
        const char *folder;
        const names *names;
        bool mla, qk_norm, choice_bias;
    } cases[] = {
        {"deepseek_v2", &usual, true, false, false},
        {"deepseek_v2_group", &usual, true, false, false},
        {"deepseek_v3", &usual, true, false, true},
        {"kimi_k2", &usual, true, false, true},
        {"qwen3_moe", &usual, false, true, false},
        {"mixtral", &mixtral, false, false, false},
        {"olmoe", &usual, false, true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[NAME_BYTES], weights[NAME_BYTES];
        snprintf(path, sizeof(path), MINIATURES "%s", cases[i].folder);
        snprintf(weights, sizeof(weights), MINIATURES "%s/model.safetensors", cases[i].folder);
        tt_model *model = open_or_fail(source_path(path));
        whole_file w = read_safetensors(source_path(weights));
        const tt_arch *a = tt_model_arch(model);
        expect_tensor(model, &w, TT_ROLE_EMBED, 0, 0, "model.embed_tokens.weight", a->V, a->H);
        expect_tensor(model, &w, TT_ROLE_FINAL_NORM, 0, 0, "model.norm.weight", a->H, 1);
        expect_tensor(model, &w, TT_ROLE_HEAD, 0, 0, "lm_head.weight", a->V, a->H);
        for (int64_t layer = 0; layer < a->L; layer++) {
            expect_layer(model, &w, layer, cases[i].names, cases[i].mla, cases[i].qk_norm);
            if (cases[i].choice_bias && a->layer[layer].is_moe) {
                char name[NAME_BYTES];
                snprintf(name, sizeof(name), "model.layers.%d.mlp.gate.e_score_correction_bias",
                         (int)layer);
                expect_tensor(model, &w, TT_ROLE_ROUTER_CHOICE_BIAS, layer, 0, name, a->E, 1);
            } else {
                expect_tensor(model, &w, TT_ROLE_ROUTER_CHOICE_BIAS, layer, 0, NULL, 0, 0);
            }
        }
        /* Beyond the model there is nothing. */
        assert_null(tt_model_tensor(model, TT_ROLE_Q, a->L, 0).name);
        assert_null(tt_model_tensor(model, TT_ROLE_Q, -1, 0).name);
        assert_null(tt_model_tensor(model, TT_ROLE_EXPERT_UP, a->L - 1, a->E).name);
        assert_null(tt_model_tensor(model, TT_ROLE_COUNT, 0, 0).name);
        /* The miniatures hold nothing but what the architecture needs. */
        int64_t total, active, stored = 0, inactive = 0;
        const char *name;
        json_t *entry;
        json_object_foreach(w.header, name, entry)
        {
            int64_t rows, cols;
            if (strcmp(name, "__metadata__") != 0) {
                find_bytes(&w, name, &rows, &cols);
                stored += rows * cols;
            }
        }
        for (int64_t layer = 0; layer < a->L; layer++) {
            inactive += a->layer[layer].is_moe ? 3 * a->F * a->H * (a->E - a->K) : 0;
        }
        tt_model_count_parameters(model, &total, &active);
        assert_int_equal(total, stored);
        assert_int_equal(active, stored - inactive);
        whole_file_free(&w);
        tt_model_close(&model);
    }
}

/* ---- the shipped model: shards, an MTP layer, mixed types ---- */

static void tiny_moe_opens_with_its_mtp_layer(void **state)
{
    (void)state;
    tt_model *model = open_or_fail(source_path("models/tiny-moe"));
    const tt_arch *a = tt_model_arch(model);
    assert_string_equal(tt_model_path(model), source_path("models/tiny-moe"));
    assert_int_equal(a->L, 6);
    assert_int_equal(a->n_mtp, 1);
    assert_false(a->layer[0].is_moe);
    for (int layer = 1; layer <= 6; layer++) {
        assert_true(a->layer[layer].is_moe);
    }
    tt_tensor bias = tt_model_tensor(model, TT_ROLE_ROUTER_CHOICE_BIAS, 6, 0);
    assert_int_equal(bias.format.code, TTK_F32);
    assert_string_equal(bias.name, "model.layers.6.mlp.gate.e_score_correction_bias");
    tt_tensor expert = tt_model_tensor(model, TT_ROLE_EXPERT_DOWN, 6, 31);
    assert_string_equal(expert.name, "model.layers.6.mlp.experts.31.down_proj.weight");
    assert_string_equal(tt_model_tensor_file(model, &expert), "model-00002-of-00002.safetensors");
    whole_file w =
        read_safetensors(source_path("models/tiny-moe/model-00002-of-00002.safetensors"));
    int64_t rows, cols;
    float values[32];
    assert_int_equal(tt_model_read_f32(model, &bias, 0, bias.rows, values), TT_OK);
    assert_memory_equal(values, find_bytes(&w, bias.name, &rows, &cols), sizeof(values));
    expect_tensor(model, &w, TT_ROLE_EXPERT_DOWN, 6, 31, expert.name, 256, 64);
    whole_file_free(&w);

    size_t n;
    const int32_t *ids = tt_model_end_ids(model, &n);
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 4);
    assert_int_equal(tt_model_generation(model).do_sample, 0);
    /* 2 V H + H; attention 24576 + 96 + 18432 + 20480 + 64 + 16384 + 32768; norms 2 H; dense
     * 3*768*256; MoE layer: router 8192 + 32, 33 experts of 49152. */
    int64_t total, active, attention = 112800, moe = 8224 + 33 * 49152, used = 8224 + 5 * 49152;
    tt_model_count_parameters(model, &total, &active);
    assert_int_equal(total, 2 * 4096 * 256 + 256 + 6 * (attention + 512) + 589824 + 5 * moe);
    assert_int_equal(active, 2 * 4096 * 256 + 256 + 6 * (attention + 512) + 589824 + 5 * used);
    tt_model_close(&model);
}

/* ---- made models ---- */

/* All that tt_model_tensor gives, in the order of roles, layers and experts, and no more. */
static void the_walk_meets_each_tensor_once(void **state)
{
    static const char *const models[] = {"models/tiny-moe", MINIATURES "qwen3_next",
                                         MINIATURES "llama_dense", MINIATURES "gpt_oss"};
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        tt_model *model = open_or_fail(source_path(models[i]));
        const tt_arch *a = tt_model_arch(model);
        tt_tensor_place at = {0};
        tt_tensor met;
        int64_t n = 0;
        for (int role = 0; role < TT_ROLE_COUNT; role++) {
            int64_t n_layers = tt_role_is_global((tt_role)role) ? 1 : a->L + a->n_mtp,
                    n_experts = tt_role_is_expert((tt_role)role) ? a->E : 1;
            for (int64_t layer = 0; layer < n_layers; layer++) {
                for (int64_t e = 0; e < n_experts; e++) {
                    tt_tensor t = tt_model_tensor(model, (tt_role)role, layer, e);
                    if (t.name) {
                        assert_true(tt_model_next_tensor(model, &at, &met));
                        assert_true(at.role == (tt_role)role && at.layer == layer &&
                                    at.expert == e);
                        assert_ptr_equal(met.name, t.name);
                        assert_ptr_equal(met.source, t.source);
                        n++;
                    }
                }
            }
        }
        assert_true(n > a->L);
        assert_false(tt_model_next_tensor(model, &at, &met));
        assert_false(tt_model_next_tensor(model, &at, &met)); /* and stays there */
        tt_model_close(&model);
    }
}

static void set_config(const fixture *f, const char *key, json_t *value)
{
    json_t *config = tiny_config();
    json_object_set_new(config, key, value);
    fixture_write_json(f, "config.json", config);
    json_decref(config);
}

static void a_tied_head_is_the_embedding(void **state)
{
    fixture *f = *state;
    set_config(f, "tie_word_embeddings", json_true());
    tt_model *model = open_or_fail(f->dir);
    tt_tensor head = tt_model_tensor(model, TT_ROLE_HEAD, 0, 0);
    assert_string_equal(head.name, "model.embed_tokens.weight");
    int64_t tied, untied, active;
    tt_model_count_parameters(model, &tied, &active);
    tt_model_close(&model);
    set_config(f, "tie_word_embeddings", json_false());
    model = open_or_fail(f->dir);
    tt_model_count_parameters(model, &untied, &active);
    assert_int_equal(untied - tied, TINY_V * TINY_H);
    tt_model_close(&model);
}

static void biases_are_needed_when_stated(void **state)
{
    fixture *f = *state;
    set_config(f, "attention_bias", json_true());
    expect_refusal(f, TT_ERR_FILE, "model.layers.0.self_attn.q_proj.bias", "missing", NULL);
    maker m = {0};
    const int64_t width[] = {TINY_HEADS * TINY_D}, hidden[] = {TINY_H};
    for (int layer = -1; layer < TINY_L; layer++) {
        static const char *const parts[] = {"q", "k", "v", "o"};
        tiny_add(&m, layer);
        for (int i = 0; layer >= 0 && i < 4; i++) {
            char name[NAME_BYTES];
            snprintf(name, sizeof(name), "model.layers.%d.self_attn.%s_proj.bias", layer, parts[i]);
            maker_add(&m, name, "F16", 1, i == 3 ? hidden : width, i);
        }
    }
    maker_save(&m, f, SINGLE);
    maker_fini(&m);
    tt_model *model = open_or_fail(f->dir);
    assert_true(tt_model_arch(model)->qkv_bias && tt_model_arch(model)->o_bias);
    tt_tensor bias = tt_model_tensor(model, TT_ROLE_O_BIAS, 1, 0);
    assert_int_equal(bias.rows, TINY_H);
    assert_int_equal(bias.cols, 1);
    assert_int_equal(bias.format.code, TTK_F16);
    tt_model_close(&model);
}

/* gate_up[E][2F][H] holds e, half, row in its values; down[E][H][F] its index. */
static void fused_experts_are_cut_into_parts(void **state)
{
    enum { GATE_UP = TINY_E * 2 * TINY_F * TINY_H, DOWN = TINY_E * TINY_H * TINY_F };
    fixture *f = *state;
    float gate_up[GATE_UP], down[DOWN], part[TINY_F * TINY_H];
    const int64_t gate_up_dim[] = {TINY_E, 2 * TINY_F, TINY_H};
    const int64_t down_dim[] = {TINY_E, TINY_H, TINY_F};
    const int64_t q[] = {TINY_HEADS * TINY_D, TINY_H}, head[] = {TINY_D}, norm[] = {TINY_H};
    const int64_t router[] = {TINY_E, TINY_H};
    for (int i = 0; i < GATE_UP; i++) {
        gate_up[i] = (float)i;
    }
    for (int i = 0; i < DOWN; i++) {
        down[i] = (float)-i;
    }
    maker m = {0};
    tiny_add(&m, -1);
    tiny_add(&m, 0); /* one layer each way */
    const char *const squares[] = {"q", "k", "v", "o"};
    for (int i = 0; i < 4; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), "model.layers.1.self_attn.%s_proj.weight", squares[i]);
        maker_add(&m, name, "BF16", 2, q, 0);
    }
    maker_add(&m, "model.layers.1.self_attn.q_norm.weight", "BF16", 1, head, 0);
    maker_add(&m, "model.layers.1.self_attn.k_norm.weight", "BF16", 1, head, 0);
    maker_add(&m, "model.layers.1.input_layernorm.weight", "BF16", 1, norm, 0);
    maker_add(&m, "model.layers.1.post_attention_layernorm.weight", "BF16", 1, norm, 0);
    maker_add(&m, "model.layers.1.mlp.gate.weight", "BF16", 2, router, 0);
    maker_add_bytes(&m, "model.layers.1.mlp.experts.gate_up_proj", "F32", 3, gate_up_dim, gate_up,
                    sizeof(gate_up));
    maker_save(&m, f, SINGLE);
    expect_refusal(f, TT_ERR_FILE, "model.layers.1.mlp.experts.down_proj", "missing", NULL);
    maker_add_bytes(&m, "model.layers.1.mlp.experts.down_proj", "F32", 3, down_dim, down,
                    sizeof(down));
    maker_save(&m, f, SINGLE);
    maker_fini(&m);

    tt_model *model = open_or_fail(f->dir);
    for (int e = 0; e < TINY_E; e++) {
        for (int up = 0; up < 2; up++) {
            tt_tensor t =
                tt_model_tensor(model, up ? TT_ROLE_EXPERT_UP : TT_ROLE_EXPERT_GATE, 1, e);
            assert_int_equal(t.rows, TINY_F);
            assert_int_equal(t.cols, TINY_H);
            assert_int_equal(tt_model_read_f32(model, &t, 0, t.rows, part), TT_OK);
            assert_memory_equal(part, gate_up + (2 * e + up) * TINY_F * TINY_H, sizeof(part));
        }
        tt_tensor t = tt_model_tensor(model, TT_ROLE_EXPERT_DOWN, 1, e);
        assert_int_equal(t.rows, TINY_H);
        assert_int_equal(tt_model_read_f32(model, &t, 0, t.rows, part), TT_OK);
        assert_memory_equal(part, down + e * TINY_H * TINY_F, sizeof(part));
        /* One row from the middle. */
        assert_int_equal(tt_model_read_rows(model, &t, 5, 1, part, &(ttk_unpacked){0}), TT_OK);
        assert_memory_equal(part, down + (e * TINY_H + 5) * TINY_F, TINY_F * sizeof(float));
    }
    assert_string_equal(tt_model_tensor(model, TT_ROLE_EXPERT_GATE, 0, 2).name,
                        "model.layers.0.mlp.experts.2.gate_proj.weight");
    tt_model_close(&model);
}

static void fused_experts_of_another_shape_are_refused(void **state)
{
    fixture *f = *state;
    maker m = {0};
    const int64_t turned[] = {TINY_E, TINY_H, 2 * TINY_F}, down[] = {TINY_E, TINY_H, TINY_F};
    tiny_add(&m, -1);
    tiny_add(&m, 0);
    tiny_add(&m, 1);
    /* Rename the first expert of layer 1, so that only the fused tensor is left. */
    char *at = strstr(m.header, "model.layers.1.mlp.experts.0.gate_proj");
    assert_non_null(at);
    *at = 'M';
    maker_add(&m, "model.layers.1.mlp.experts.gate_up_proj", "BF16", 3, turned, 0);
    maker_add(&m, "model.layers.1.mlp.experts.down_proj", "BF16", 3, down, 0);
    maker_save(&m, f, SINGLE);
    maker_fini(&m);
    expect_refusal(f, TT_ERR_FILE, "model.layers.1.mlp.experts.gate_up_proj", "[4, 8, 6]",
                   "[4, 6, 8]", NULL);
}

/* All 65536 values of f16 against the definition of the format. */
static void f16_is_widened_exactly(void **state)
{
    enum { N_F16 = 1 << 16 };
    fixture *f = *state;
    uint16_t *bits = malloc(N_F16 * sizeof(*bits));
    float *values = malloc(N_F16 * sizeof(*values));
    assert_non_null(bits);
    assert_non_null(values);
    for (int i = 0; i < N_F16; i++) {
        bits[i] = (uint16_t)i;
    }
    maker m = {0};
    const int64_t dim[] = {N_F16 / TINY_H, TINY_H};
    tiny_add(&m, 0);
    tiny_add(&m, 1);
    maker_add_bytes(&m, "model.embed_tokens.weight", "F16", 2, dim, bits, N_F16 * sizeof(*bits));
    const int64_t norm[] = {TINY_H};
    maker_add(&m, "model.norm.weight", "F32", 1, norm, 0);
    maker_save(&m, f, SINGLE);
    maker_fini(&m);
    json_t *config = tiny_config();
    json_object_set_new(config, "vocab_size", json_integer(N_F16 / TINY_H));
    json_object_set_new(config, "tie_word_embeddings", json_true());
    fixture_write_json(f, "config.json", config);
    json_decref(config);
    tt_model *model = open_or_fail(f->dir);
    tt_tensor embed = tt_model_tensor(model, TT_ROLE_EMBED, 0, 0);
    assert_int_equal(tt_model_read_f32(model, &embed, 0, embed.rows, values), TT_OK);
    for (int i = 0; i < N_F16; i++) {
        int exponent = i >> 10 & 31, fraction = i & 1023;
        double want = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
        if (exponent == 31 && fraction) {
            assert_true(isnan(values[i]));
            continue;
        }
        if (exponent == 31) {
            want = INFINITY;
        }
        assert_true((double)values[i] == (i & 0x8000 ? -want : want));
        assert_int_equal(signbit(values[i]) != 0, i >> 15);
    }
    tt_model_close(&model);
    free(bits);
    free(values);
}

static void rows_outside_a_tensor_are_refused(void **state)
{
    fixture *f = *state;
    unsigned char row[TINY_H * 2];
    tt_model *model = open_or_fail(f->dir);
    tt_tensor head = tt_model_tensor(model, TT_ROLE_HEAD, 0, 0), none = {0};
    assert_int_equal(tt_model_read_rows(model, &head, TINY_V, 0, row, &(ttk_unpacked){0}), TT_OK);
    assert_int_equal(tt_model_read_rows(model, &head, TINY_V, 1, row, &(ttk_unpacked){0}),
                     TT_ERR_ARG);
    assert_int_equal(tt_model_read_rows(model, &head, -1, 1, row, &(ttk_unpacked){0}), TT_ERR_ARG);
    assert_int_equal(tt_model_read_rows(model, &head, 1, INT64_MAX, row, &(ttk_unpacked){0}),
                     TT_ERR_ARG);
    assert_int_equal(tt_model_read_rows(model, &none, 0, 1, row, &(ttk_unpacked){0}), TT_ERR_ARG);
    tt_model_close(&model);
}

static void a_file_that_shrinks_is_an_error_and_not_a_crash(void **state)
{
    fixture *f = *state;
    unsigned char all[TINY_V * TINY_H * 2];
    tt_model *model = open_or_fail(f->dir);
    tt_tensor head = tt_model_tensor(model, TT_ROLE_HEAD, 0, 0);
    assert_int_equal(truncate(fixture_path(f, SINGLE), 64), 0);
    assert_int_equal(tt_model_read_rows(model, &head, 0, TINY_V, all, &(ttk_unpacked){0}),
                     TT_ERR_FILE);
    assert_non_null(strstr(tt_status_message(), SINGLE));
    assert_non_null(strstr(tt_status_message(), "lm_head.weight"));
    tt_model_close(&model);
}

/* An MTP layer counts when all its tensors are there; it is not run, so its lack refuses nothing,
 * as that of another layer does. */
static void stated_mtp_layers_need_their_tensors(void **state)
{
    fixture *f = *state;
    fixture_remove(f, "config.json");
    fixture_remove(f, SINGLE);
    static const char *const files[] = {"config.json", "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char source[NAME_BYTES];
        snprintf(source, sizeof(source), "models/tiny-moe/%s", files[i]);
        fixture_link(f, files[i], source);
    }
    json_t *index = read_json(source_path("models/tiny-moe/model.safetensors.index.json"));
    json_t *map = json_object_get(index, "weight_map");
    static const char *const lacking[] = {"model.layers.6.mlp.experts.7.up_proj.weight",
                                          "model.layers.6.eh_proj.weight"};
    for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
        json_object_del(map, lacking[i]);
        fixture_write_json(f, "model.safetensors.index.json", index);
        tt_model *model = open_or_fail(f->dir);
        assert_int_equal(tt_model_arch(model)->n_mtp, 0);
        assert_null(tt_model_tensor(model, TT_ROLE_Q_A, 6, 0).name);
        assert_null(tt_model_tensor(model, TT_ROLE_EXPERT_UP, 6, 0).name);
        assert_non_null(tt_model_tensor(model, TT_ROLE_EXPERT_UP, 5, 31).name);
        tt_model_close(&model);
    }
    json_object_del(map, "model.layers.5.mlp.experts.7.up_proj.weight");
    fixture_write_json(f, "model.safetensors.index.json", index);
    expect_refusal(f, TT_ERR_FILE, "model.layers.5.mlp.experts.7.up_proj.weight", "missing", NULL);
    json_decref(index);
}

/* 98,304 expert tensors, as many as the largest checkpoints have. */
static void a_hundred_thousand_tensors_open_in_linear_time(void **state)
{
    enum { BIG_L = 16, BIG_E = 2048, MAX_SECONDS = 8 };
    fixture *f = *state;
    maker m = {0};
    char name[NAME_BYTES];
    const int64_t one[] = {1, 2}, vector[] = {2}, square[] = {2, 2}, router[] = {BIG_E, 2};
    const int64_t turned[] = {2, 1};
    json_t *config = tiny_config();
    const struct {
        const char *key;
        int value;
    } keys[] = {{"num_hidden_layers", BIG_L},
                {"hidden_size", 2},
                {"num_experts", BIG_E},
                {"vocab_size", 2},
                {"num_attention_heads", 1},
                {"num_key_value_heads", 1},
                {"head_dim", 2},
                {"moe_intermediate_size", 1},
                {"num_experts_per_tok", 8}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        json_object_set_new(config, keys[i].key, json_integer(keys[i].value));
    }
    fixture_write_json(f, "config.json", config);
    json_decref(config);
    maker_add(&m, "model.embed_tokens.weight", "BF16", 2, square, 0);
    maker_add(&m, "lm_head.weight", "BF16", 2, square, 0);
    maker_add(&m, "model.norm.weight", "BF16", 1, vector, 0);
    for (int layer = 0; layer < BIG_L; layer++) {
        static const char *const squares[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
        static const char *const vectors[] = {"self_attn.q_norm", "self_attn.k_norm",
                                              "input_layernorm", "post_attention_layernorm"};
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof(name), "model.layers.%d.self_attn.%s.weight", layer, squares[i]);
            maker_add(&m, name, "BF16", 2, square, 0);
            snprintf(name, sizeof(name), "model.layers.%d.%s.weight", layer, vectors[i]);
            maker_add(&m, name, "BF16", 1, vector, 0);
        }
        snprintf(name, sizeof(name), "model.layers.%d.mlp.gate.weight", layer);
        maker_add(&m, name, "BF16", 2, router, 0);
        for (int e = 0; e < BIG_E; e++) {
            static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
            for (int i = 0; i < 3; i++) {
                unsigned char bytes[4] = {(unsigned char)layer, (unsigned char)e,
                                          (unsigned char)(e >> 8), (unsigned char)i};
                snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.%s.weight", layer, e,
                         parts[i]);
                maker_add_bytes(&m, name, "BF16", 2, i == 2 ? turned : one, bytes, sizeof(bytes));
            }
        }
    }
    maker_save(&m, f, SINGLE);
    maker_fini(&m);
    clock_t begin = clock();
    tt_model *model = open_or_fail(f->dir);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    print_message("# opened %d tensors in %.3f s of processor time\n", BIG_L * (BIG_E * 3 + 9) + 3,
                  seconds);
    /* 0.7 s on a busy two-core machine, most of it jansson; the bound leaves room for sanitizers
     * and worse machines, and still shows anything that is not linear. */
    assert_true(seconds < MAX_SECONDS);
    for (int layer = 0; layer < BIG_L; layer++) {
        for (int e = 0; e < BIG_E; e += 97) {
            unsigned char bytes[4];
            tt_tensor t = tt_model_tensor(model, TT_ROLE_EXPERT_UP, layer, e);
            assert_int_equal(tt_model_read_rows(model, &t, 0, 1, bytes, &(ttk_unpacked){0}), TT_OK);
            assert_int_equal(bytes[0], layer);
            assert_int_equal(bytes[1] + 256 * bytes[2], e);
            assert_int_equal(bytes[3], 1);
        }
    }
    tt_model_close(&model);
}

static void formats_have_names(void **state)
{
    (void)state;
    assert_string_equal(tt_format_name(&(ttk_format){.code = TTK_BF16}), "bf16");
    assert_string_equal(
        tt_format_name(&(ttk_format){.code = TTK_E4M3, .scale = TTK_F32, .group = 128}),
        "fp8, scale f32 per 128");
    assert_string_equal(tt_format_name(&(ttk_format){TTK_U4, TTK_U8, TTK_SHIFT_OFFSET, 32, 8}),
                        "uint4, scale uint8 of f16 per 32, offsets");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up_tiny, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(every_tensor_has_its_shape_and_bytes),
        cmocka_unit_test(tiny_moe_opens_with_its_mtp_layer),
        TEST(the_walk_meets_each_tensor_once),
        TEST(a_tied_head_is_the_embedding),
        TEST(biases_are_needed_when_stated),
        TEST(fused_experts_are_cut_into_parts),
        TEST(fused_experts_of_another_shape_are_refused),
        TEST(f16_is_widened_exactly),
        TEST(rows_outside_a_tensor_are_refused),
        TEST(a_file_that_shrinks_is_an_error_and_not_a_crash),
        TEST(stated_mtp_layers_need_their_tensors),
        TEST(a_hundred_thousand_tensors_open_in_linear_time),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
