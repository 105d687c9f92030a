/* test_roles.c - every tensor of every miniature, by its role: shape and numbers against an
 * independent reading of the files (tests/golden/architectures/roles.json, made by roles.py there),
 * views and maps included; and the other forms that checkpoints of the same models come in,
 * rewritten here from the miniatures. */
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

enum { NAME_BYTES = 256, MAX_EXPERTS = 64 };

static const char *const role_names[TT_ROLE_COUNT] = {
#define ROLE(name) [TT_ROLE_##name] = #name
    ROLE(EMBED),
    ROLE(FINAL_NORM),
    ROLE(FINAL_NORM_BIAS),
    ROLE(HEAD),
    ROLE(HEAD_BIAS),
    ROLE(ATTENTION_NORM),
    ROLE(ATTENTION_NORM_BIAS),
    ROLE(FFN_NORM),
    ROLE(FFN_NORM_BIAS),
    ROLE(Q),
    ROLE(K),
    ROLE(V),
    ROLE(O),
    ROLE(Q_BIAS),
    ROLE(K_BIAS),
    ROLE(V_BIAS),
    ROLE(O_BIAS),
    ROLE(Q_NORM),
    ROLE(K_NORM),
    ROLE(Q_GATE),
    ROLE(SINKS),
    ROLE(Q_A),
    ROLE(Q_A_NORM),
    ROLE(Q_B),
    ROLE(KV_A),
    ROLE(KV_A_NORM),
    ROLE(KV_B),
    ROLE(MLA_K),
    ROLE(MLA_V),
    ROLE(DELTA_QKV),
    ROLE(DELTA_GATE),
    ROLE(DELTA_BETA),
    ROLE(DELTA_DECAY),
    ROLE(DELTA_CONV),
    ROLE(DELTA_DECAY_BIAS),
    ROLE(DELTA_DECAY_RATE),
    ROLE(DELTA_NORM),
    ROLE(DELTA_OUT),
    ROLE(GATE),
    ROLE(UP),
    ROLE(DOWN),
    ROLE(ROUTER),
    ROLE(ROUTER_BIAS),
    ROLE(ROUTER_CHOICE_BIAS),
    ROLE(EXPERT_GATE),
    ROLE(EXPERT_UP),
    ROLE(EXPERT_DOWN),
    ROLE(EXPERT_GATE_BIAS),
    ROLE(EXPERT_UP_BIAS),
    ROLE(EXPERT_DOWN_BIAS),
    ROLE(SHARED_GATE),
    ROLE(SHARED_UP),
    ROLE(SHARED_DOWN),
    ROLE(SHARED_ROUTER)};

static bool is_expert(int role)
{
    return role >= TT_ROLE_EXPERT_GATE && role <= TT_ROLE_EXPERT_DOWN_BIAS;
}

/* CRC-32 (IEEE 802.3), bit by bit. */
static uint32_t crc32_of(uint32_t crc, const void *bytes, size_t n)
{
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= ((const unsigned char *)bytes)[i];
        for (int k = 0; k < 8; k++) {
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
        }
    }
    return ~crc;
}

static float *read_floats(const tt_model *model, const tt_tensor *t)
{
    float *values = malloc((size_t)(t->rows * t->cols) * sizeof(*values) + 1);
    assert_non_null(values);
    if (tt_model_read_f32(model, t, 0, t->rows, values) != TT_OK) {
        fail_msg("%s: %s", t->name, tt_status_message());
    }
    return values;
}

/* Rows read in pieces of every size are the rows of the whole. */
static void expect_pieces(const tt_model *model, const tt_tensor *t, const float *whole)
{
    static const int64_t sizes[] = {1, 3, 7, 64};
    float *piece = malloc(64 * (size_t)t->cols * sizeof(*piece));
    assert_non_null(piece);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int64_t row = (int64_t)i; row < t->rows; row += sizes[i]) {
            int64_t n = sizes[i] < t->rows - row ? sizes[i] : t->rows - row;
            assert_int_equal(tt_model_read_f32(model, t, row, n, piece), TT_OK);
            assert_memory_equal(piece, whole + row * t->cols,
                                (size_t)(n * t->cols) * sizeof(*piece));
        }
    }
    free(piece);
}

static void expect_role(const tt_model *model, const json_t *folder, int role, int64_t layer,
                        bool pieces)
{
    char key[NAME_BYTES];
    int64_t n = is_expert(role) ? tt_model_arch(model)->E : 1;
    snprintf(key, sizeof(key), role < TT_ROLE_ATTENTION_NORM ? "%s" : "%s %d", role_names[role],
             (int)layer);
    const json_t *want = json_object_get(folder, key);
    uint32_t crc = 0;
    for (int64_t e = 0; e < n; e++) {
        tt_tensor t = tt_model_tensor(model, (tt_role)role, layer, e);
        if ((t.name != NULL) != (want != NULL)) {
            fail_msg("%s is %s", key, t.name ? "there" : "missing");
        }
        if (!want) {
            return;
        }
        assert_int_equal(t.rows, json_integer_value(json_array_get(want, 0)));
        assert_int_equal(t.cols, json_integer_value(json_array_get(want, 1)));
        float *values = read_floats(model, &t);
        crc = crc32_of(crc, values, (size_t)(t.rows * t.cols) * sizeof(*values));
        const json_t *numbers = json_array_get(want, 2);
        for (size_t i = 0; i < json_array_size(numbers); i++) {
            double number = json_number_value(json_array_get(numbers, i));
            assert_true(fabs((double)values[i] - number) <= 1e-6 * number);
        }
        if (pieces && e < 2) {
            expect_pieces(model, &t, values);
        }
        free(values);
    }
    const json_t *last = json_array_get(want, 2);
    if (json_is_integer(last) && crc != (uint32_t)json_integer_value(last)) {
        fail_msg("%s holds other numbers", key);
    }
}

static void expect_roles(const tt_model *model, const char *name, bool pieces)
{
    json_t *table = read_json(source_path(MINIATURES "roles.json"));
    const json_t *folder = json_object_get(table, name);
    assert_non_null(folder);
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        assert_non_null(role_names[role]);
        for (int64_t layer = 0;
             layer < (role < TT_ROLE_ATTENTION_NORM ? 1 : tt_model_arch(model)->L); layer++) {
            expect_role(model, folder, role, layer, pieces);
        }
    }
    json_decref(table);
}

static tt_model *open_or_fail(const char *path)
{
    tt_model *model = NULL;
    if (tt_model_open(path, &model) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return model;
}

static void every_tensor_is_what_an_independent_reading_found(void **state)
{
    (void)state;
    json_t *table = read_json(source_path(MINIATURES "roles.json"));
    const char *name;
    json_t *folder;
    assert_true(json_object_size(table) >= 23);
    json_object_foreach(table, name, folder)
    {
        char path[NAME_BYTES];
        snprintf(path, sizeof(path), MINIATURES "%s", name);
        tt_model *model = open_or_fail(source_path(path));
        printf("# %s\n", name);
        expect_roles(model, name, true);
        tt_model_close(&model);
    }
    json_decref(table);
}

/* ---- other forms of the same checkpoints ---- */

typedef struct whole {
    unsigned char *bytes;
    json_t *header;
    const unsigned char *data;
} whole;

static whole read_golden(const char *name)
{
    char path[NAME_BYTES];
    size_t n;
    uint64_t n_header;
    snprintf(path, sizeof(path), MINIATURES "%s/model.safetensors", name);
    whole w = {.bytes = read_whole(source_path(path), &n)};
    memcpy(&n_header, w.bytes, sizeof(n_header)); /* little-endian hosts only, as the rest of
                                                   * tutti */
    w.header = json_loadb((const char *)w.bytes + 8, (size_t)n_header, 0, NULL);
    assert_non_null(w.header);
    w.data = w.bytes + 8 + n_header;
    return w;
}

/* A tensor of the file; NULL if it is not there. dim gets up to three dimensions. */
static const unsigned char *find(const whole *w, const char *name, int *n_dims, int64_t dim[3],
                                 size_t *n_bytes)
{
    const json_t *entry = json_object_get(w->header, name),
                 *offsets = json_object_get(entry, "data_offsets");
    if (!entry) {
        return NULL;
    }
    *n_dims = (int)json_array_size(json_object_get(entry, "shape"));
    for (int i = 0; i < *n_dims && i < 3; i++) {
        dim[i] = json_integer_value(json_array_get(json_object_get(entry, "shape"), (size_t)i));
    }
    *n_bytes = (size_t)(json_integer_value(json_array_get(offsets, 1)) -
                        json_integer_value(json_array_get(offsets, 0)));
    return w->data + json_integer_value(json_array_get(offsets, 0));
}

/* Replaces the first `from` in name by `to`, in a static buffer. */
static const char *renamed(const char *name, const char *from, const char *to)
{
    static char text[NAME_BYTES];
    const char *at = strstr(name, from);
    if (!at) {
        return name;
    }
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
    return text;
}

/* Copies the tensors whose names do not contain `without`, with `from` replaced by `to`. */
static void copy_but(const whole *w, maker *m, const char *without, const char *const (*renames)[2])
{
    const char *name;
    json_t *entry;
    json_object_foreach(w->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0 || (without && strstr(name, without))) {
            continue;
        }
        int n_dims;
        int64_t dim[3];
        size_t n;
        char target[NAME_BYTES];
        const unsigned char *bytes = find(w, name, &n_dims, dim, &n);
        snprintf(target, sizeof(target), "%s", name);
        for (int i = 0; renames && renames[i][0]; i++) {
            const char *other = renamed(target, renames[i][0], renames[i][1]);
            if (other != target) {
                char copy[NAME_BYTES];
                snprintf(copy, sizeof(copy), "%s", other);
                memcpy(target, copy, sizeof(target));
            }
        }
        maker_add_bytes(m, target, "BF16", n_dims, dim, bytes, n);
    }
}

/* Puts the experts of one layer, [F][H] each in the tensors that two patterns name by turns, into
 * one tensor [E][parts * F][H]. */
static void fuse(const whole *w, maker *m, int layer, int n_experts, const char *const *patterns,
                 int n_patterns, const char *target)
{
    unsigned char *all = NULL;
    size_t n_all = 0;
    int64_t dim[3] = {0}, one[3] = {0};
    for (int e = 0; e < n_experts; e++) {
        for (int i = 0; i < n_patterns; i++) {
            char name[NAME_BYTES];
            int n_dims;
            size_t n;
            snprintf(name, sizeof(name), "model.layers.%d.%s%d.%s.weight", layer,
                     patterns[n_patterns], e, patterns[i]);
            const unsigned char *bytes = find(w, name, &n_dims, one, &n);
            if (!bytes) {
                free(all);
                return; /* a dense layer */
            }
            all = realloc(all, n_all + n);
            assert_non_null(all);
            memcpy(all + n_all, bytes, n);
            n_all += n;
        }
    }
    dim[0] = n_experts;
    dim[1] = n_patterns * one[0];
    dim[2] = one[1];
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "model.layers.%d.%s", layer, target);
    maker_add_bytes(m, name, "BF16", 3, dim, all, n_all);
    free(all);
}

static void link_config(fixture *f, const char *name)
{
    char source[NAME_BYTES];
    snprintf(source, sizeof(source), MINIATURES "%s/config.json", name);
    fixture_remove(f, "config.json");
    fixture_link(f, "config.json", source);
}

static void save_and_expect(fixture *f, maker *m, whole *w, const char *name)
{
    fixture_remove(f, "model.safetensors");
    maker_save(m, f, "model.safetensors");
    maker_fini(m);
    json_decref(w->header);
    free(w->bytes);
    tt_model *model = open_or_fail(f->dir);
    expect_roles(model, name, false);
    tt_model_close(&model);
}

/* As newer transformers save experts: two tensors for all of a layer, and some modules renamed. */
static void fused_experts_are_the_same_tensors(void **state)
{
    static const struct {
        const char *folder, *experts, *gate, *up, *down;
        const char *renames[3][2];
    } cases[] = {
        {"qwen2_moe", "mlp.experts.", "gate_proj", "up_proj", "down_proj", {{NULL, NULL}}},
        {"deepseek_v3", "mlp.experts.", "gate_proj", "up_proj", "down_proj", {{NULL, NULL}}},
        {"glm4_moe", "mlp.experts.", "gate_proj", "up_proj", "down_proj", {{NULL, NULL}}},
        {"dots1", "mlp.experts.", "gate_proj", "up_proj", "down_proj", {{NULL, NULL}}},
        {"qwen3_next", "mlp.experts.", "gate_proj", "up_proj", "down_proj", {{NULL, NULL}}},
        {"flex_olmo", "mlp.experts.", "gate_proj", "up_proj", "down_proj", {{NULL, NULL}}},
        {"hunyuan_v1_moe", "mlp.experts.", "gate_proj", "up_proj", "down_proj", {{NULL, NULL}}},
        {"ernie4_5_moe",
         "mlp.experts.",
         "gate_proj",
         "up_proj",
         "down_proj",
         {{"mlp.moe_statics", "mlp.gate.moe_statics"}}},
        {"mixtral", "block_sparse_moe.experts.", "w1", "w3", "w2", {{"block_sparse_moe.", "mlp."}}},
        {"minimax_m2",
         "block_sparse_moe.experts.",
         "w1",
         "w3",
         "w2",
         {{"block_sparse_moe.", "mlp."}}},
        {"phimoe",
         "block_sparse_moe.experts.",
         "w1",
         "w3",
         "w2",
         {{"block_sparse_moe.gate", "mlp.router"}}},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        whole w = read_golden(cases[i].folder);
        maker m = {0};
        link_config(f, cases[i].folder);
        tt_model *plain = NULL;
        char path[NAME_BYTES];
        snprintf(path, sizeof(path), MINIATURES "%s", cases[i].folder);
        plain = open_or_fail(source_path(path));
        int n_experts = (int)tt_model_arch(plain)->E;
        tt_model_close(&plain);
        copy_but(&w, &m, cases[i].experts, cases[i].renames);
        for (int layer = 0; layer < 3; layer++) {
            fuse(&w, &m, layer, n_experts,
                 (const char *const[]){cases[i].gate, cases[i].up, cases[i].experts}, 2,
                 "mlp.experts.gate_up_proj");
            fuse(&w, &m, layer, n_experts, (const char *const[]){cases[i].down, cases[i].experts},
                 1, "mlp.experts.down_proj");
        }
        printf("# %s\n", cases[i].folder);
        save_and_expect(f, &m, &w, cases[i].folder);
    }
}

/* Plane e of [E][rows][cols] bf16 into a tensor of its own, turned to [cols][rows]. */
static void add_turned_plane(maker *m, const char *name, const unsigned char *bytes,
                             const int64_t dim[3], int64_t e)
{
    uint16_t *out = malloc((size_t)(dim[1] * dim[2]) * sizeof(*out)),
             *in = malloc((size_t)(dim[1] * dim[2]) * sizeof(*in));
    assert_non_null(out);
    assert_non_null(in);
    memcpy(in, bytes + e * dim[1] * dim[2] * 2, (size_t)(dim[1] * dim[2]) * sizeof(*in));
    for (int64_t r = 0; r < dim[1]; r++) {
        for (int64_t c = 0; c < dim[2]; c++) {
            out[c * dim[1] + r] = in[r * dim[2] + c];
        }
    }
    maker_add_bytes(m, name, "BF16", 2, (int64_t[]){dim[2], dim[1]}, out,
                    (size_t)(dim[1] * dim[2]) * sizeof(*out));
    free(in);
    free(out);
}

/* Some re-exports of gpt-oss: each expert a linear layer of its own, gate and up rows still in
 * turns. */
static void experts_with_names_of_their_own_may_share_gate_and_up(void **state)
{
    fixture *f = *state;
    whole w = read_golden("gpt_oss");
    maker m = {0};
    link_config(f, "gpt_oss");
    copy_but(&w, &m, "experts.",
             (const char *const[][2]){{"router.", "router.linear."}, {NULL, NULL}});
    for (int layer = 0; layer < 3; layer++) {
        static const char *const parts[] = {"gate_up_proj", "down_proj"};
        for (int i = 0; i < 2; i++) {
            char name[NAME_BYTES];
            int n_dims;
            int64_t dim[3], bias_dim[3];
            size_t n;
            snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%s", layer, parts[i]);
            const unsigned char *matrix = find(&w, name, &n_dims, dim, &n);
            strcat(name, "_bias");
            const unsigned char *bias = find(&w, name, &n_dims, bias_dim, &n);
            assert_non_null(matrix);
            assert_non_null(bias);
            for (int64_t e = 0; e < dim[0]; e++) {
                snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%ss.%d.weight", layer,
                         parts[i], (int)e);
                add_turned_plane(&m, name, matrix, dim, e);
                snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%ss.%d.bias", layer,
                         parts[i], (int)e);
                maker_add_bytes(&m, name, "BF16", 1, bias_dim + 1, bias + e * bias_dim[1] * 2,
                                (size_t)bias_dim[1] * 2);
            }
        }
    }
    save_and_expect(f, &m, &w, "gpt_oss");
}

/* The text part of a model of several modalities: keys in an object of their own, tensors under a
 * prefix. */
static void a_nested_text_model_is_the_same_model(void **state)
{
    fixture *f = *state;
    whole w = read_golden("llama4_text");
    maker m = {0};
    json_t *text = read_json(source_path(MINIATURES "llama4_text/config.json")),
           *config = json_object();
    json_object_del(text, "architectures");
    json_object_set_new(config, "architectures",
                        json_pack("[s]", "Llama4ForConditionalGeneration"));
    json_object_set_new(config, "model_type", json_string("llama4"));
    json_object_set_new(config, "eos_token_id", json_integer(77));
    json_object_set_new(config, "vision_config", json_pack("{s:s}", "hidden_act", "gelu"));
    json_object_set_new(config, "text_config", text);
    fixture_write_json(f, "config.json", config);
    json_decref(config);
    copy_but(&w, &m, NULL,
             (const char *const[][2]){{"model.", "language_model.model."},
                                      {"lm_head", "language_model.lm_head"},
                                      {NULL, NULL}});
    maker_add(&m, "vision_model.class_embedding", "BF16", 1, (int64_t[]){8}, 1);
    fixture_remove(f, "model.safetensors");
    maker_save(&m, f, "model.safetensors");
    maker_fini(&m);
    json_decref(w.header);
    free(w.bytes);
    tt_model *model = open_or_fail(f->dir);
    size_t n;
    const int32_t *ids = tt_model_end_ids(model, &n);
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], 77);
    assert_int_equal(ids[1], 2);
    assert_string_equal(tt_model_arch(model)->name, "Llama4ForConditionalGeneration");
    expect_roles(model, "llama4_text", false);
    tt_model_close(&model);
}

/* ---- hash ---- */

static uint64_t hash_of(const char *path)
{
    tt_model *model = open_or_fail(path);
    uint64_t hash = tt_model_hash(model);
    tt_model_close(&model);
    return hash;
}

/* Ranks that hold different models, or the same in another form, must not start. */
static void the_hash_tells_models_apart(void **state)
{
    static const char *const changes[][3] = {
        {"gpt_oss", "swiglu_limit", "6.5"},
        {"gpt_oss", "sliding_window", "9"},
        {"gpt_oss", "layer_types", "[\"full_attention\",\"full_attention\",\"sliding_attention\"]"},
        {"gpt_oss", "rope_theta", "150001.0"},
        {"granitemoe", "embedding_multiplier", "11.0"},
        {"granitemoe", "residual_multiplier", "0.25"},
        {"granitemoe", "logits_scaling", "7.0"},
        {"granitemoe", "attention_multiplier", "0.5"},
        {"granitemoe", "max_position_embeddings", "511"},
        {"granitemoe", "rms_norm_eps", "2e-6"},
        {"phimoe", "router_jitter_noise", "0.02"},
        {"ernie4_5_moe", "moe_norm_min", "1e-9"},
        {"ernie4_5_moe", "moe_k", "3"},
        {"llama4_text", "attention_chunk_size", "17"},
        {"llama4_text", "no_rope_layers", "[1,1,0]"},
        {"llama4_text", "attn_scale", "0.2"},
        {"llama4_text", "floor_scale", "64"},
        {"llama4_text", "use_qk_norm", "false"},
        {"glm4_moe", "routed_scaling_factor", "1.25"},
        {"glm4_moe", "norm_topk_prob", "false"}};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char path[NAME_BYTES];
        snprintf(path, sizeof(path), MINIATURES "%s", changes[i][0]);
        uint64_t plain = hash_of(source_path(path));
        assert_true(plain == hash_of(source_path(path)));
        change_miniature(f, changes[i][0], changes[i][1], changes[i][2]);
        if (hash_of(f->dir) == plain) {
            fail_msg("%s with %s = %s hashes as without", changes[i][0], changes[i][1],
                     changes[i][2]);
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_tensor_is_what_an_independent_reading_found),
        TEST(fused_experts_are_the_same_tensors),
        TEST(experts_with_names_of_their_own_may_share_gate_and_up),
        TEST(a_nested_text_model_is_the_same_model),
        TEST(the_hash_tells_models_apart),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
