/* test_claims.c - tensors that a configuration does not describe: each miniature with one more is
 * refused by name; what changes no result is accepted, and the model is the same as without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_compare.h"
#include "model_fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SINGLE "model.safetensors"
enum { NAME_BYTES = 256 };

/* The tensors of a miniature, but those whose names contain `but` (may be NULL); its configuration
 * goes into the fixture. */
static void copy(maker *m, const fixture *f, const char *folder, const char *but)
{
    char path[NAME_BYTES];
    size_t n, n_header = 0;
    snprintf(path, sizeof(path), MINIATURES "%s/config.json", folder);
    json_t *config = read_json(source_path(path));
    fixture_write_json(f, "config.json", config);
    json_decref(config);
    snprintf(path, sizeof(path), MINIATURES "%s/" SINGLE, folder);
    unsigned char *bytes = read_whole(source_path(path), &n);
    for (int i = 7; i >= 0; i--) {
        n_header = n_header * 256 + bytes[i];
    }
    json_t *header = json_loadb((const char *)bytes + 8, n_header, 0, NULL), *entry;
    const char *name;
    json_object_foreach(header, name, entry)
    {
        const json_t *shape = json_object_get(entry, "shape"),
                     *range = json_object_get(entry, "data_offsets");
        int64_t dim[4] = {0};
        if (!shape || (but && strstr(name, but))) {
            continue; /* __metadata__ has no shape */
        }
        for (size_t i = 0; i < json_array_size(shape); i++) {
            dim[i] = json_integer_value(json_array_get(shape, i));
        }
        size_t begin = (size_t)json_integer_value(json_array_get(range, 0)),
               end = (size_t)json_integer_value(json_array_get(range, 1));
        maker_add_bytes(m, name, json_string_value(json_object_get(entry, "dtype")),
                        (int)json_array_size(shape), dim, bytes + 8 + n_header + begin,
                        end - begin);
    }
    json_decref(header);
    free(bytes);
}

static void save(maker *m, const fixture *f)
{
    maker_save(m, f, SINGLE);
    maker_fini(m);
}

static void a_tensor_without_a_place_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *name;
    } cases[] = {
        {"llama_dense", "model.layers.0.self_attn.q_proj.bias"},
        {"llama_dense", "model.layers.2.mlp.down_proj.bias"},
        {"llama_dense", "model.layers.1.self_attn.sinks"},
        /* one layer more than is stated */
        {"llama_dense", "model.layers.3.input_layernorm.weight"},
        {"llama_dense", "model.layers.x.input_layernorm.weight"},
        {"llama_dense", "lm_head.bias"},
        {"llama_dense", "score.weight"},
        {"mixtral", "model.layers.0.block_sparse_moe.experts.8.w1.weight"}, /* of 0 to 7 */
        {"mixtral", "model.layers.1.block_sparse_moe.gate.bias"},
        {"mixtral", "model.layers.1.self_attn.q_norm.weight"},
        {"qwen3_moe", "model.layers.1.mlp.shared_expert.up_proj.weight"},
        {"qwen3_moe", "model.layers.1.self_attn.q_proj.pre_quant_scale"},
        {"deepseek_v3", "model.layers.1.self_attn.indexer.wk.weight"},
        {"deepseek_v3", "model.layers.0.mlp.gate.weight"}, /* of a dense layer */
        {"qwen3_next", "model.layers.0.self_attn.q_proj.weight"},
        {"llama4_text", "model.layers.0.self_attn.q_norm.weight"},
        {"qwen3_moe_gptq", "model.layers.0.self_attn.q_proj.bias"},
        {"qwen3_moe_awq", "model.layers.0.self_attn.q_proj.g_idx"},
        {"deepseek_v3_fp8", "model.layers.0.self_attn.o_proj.weight_global_scale"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        maker m = {0};
        fixture_begin(&f);
        copy(&m, &f, cases[i].folder, NULL);
        maker_add(&m, cases[i].name, "BF16", 1, (int64_t[]){8}, 1);
        save(&m, &f);
        expect_refusal(&f, TT_ERR_UNSUPPORTED, SINGLE, cases[i].name, "no place", NULL);
        assert_null(strstr(tt_status_message(), " more"));
        fixture_end(&f);
    }
}

static void the_others_are_counted(void **state)
{
    const fixture *f = *state;
    maker m = {0};
    char name[NAME_BYTES];
    copy(&m, f, "llama_dense", NULL);
    for (int layer = 0; layer < 3; layer++) {
        snprintf(name, sizeof(name), "model.layers.%d.self_attn.sinks", layer);
        maker_add(&m, name, "F32", 1, (int64_t[]){4}, 0);
    }
    save(&m, f);
    expect_refusal(f, TT_ERR_UNSUPPORTED, SINGLE, "'model.layers.0.self_attn.sinks' (and 2 more)",
                   NULL);
}

static void what_changes_no_result_is_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *name;
        int fill;
    } cases[] = {
        {"llama_dense", "model.layers.0.self_attn.rotary_emb.inv_freq", 1},
        {"llama_dense", "model.rotary_emb.inv_freq", 1},
        {"llama_dense", "model.layers.0.self_attn.q_proj.bias", 0},
        {"llama_dense", "model.layers.0.self_attn.k_scale", 1},
        {"llama_dense", "model.layers.0.self_attn.q_proj.act_scale", 1},
        {"qwen3_moe_gptq", "model.layers.0.self_attn.q_proj.bias", 0},
        {"deepseek_v3_fp8", "model.layers.0.self_attn.o_proj.input_scale", 1},
        {"deepseek_v3_fp8", "model.layers.0.self_attn.o_proj.activation_scale", 1},
        {"deepseek_v3_fp8", "model.layers.0.self_attn.o_proj.weight_zero_point", 0},
        {"qwen3_next", "mtp.fc.weight", 1},
        {"ernie4_5_moe", "model.mtp_linear_proj.0.weight", 1},
        {"llama4_text", "vision_model.patch_embedding.linear.weight", 1},
        {"llama4_text", "multi_modal_projector.linear_1.weight", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        maker m = {0};
        char path[NAME_BYTES];
        fixture_begin(&f);
        copy(&m, &f, cases[i].folder, NULL);
        maker_add(&m, cases[i].name, "F32", 1, (int64_t[]){8}, cases[i].fill);
        save(&m, &f);
        snprintf(path, sizeof(path), MINIATURES "%s", cases[i].folder);
        tt_model *plain = open_model(source_path(path)), *more = open_model(f.dir);
        compare_models(cases[i].name, plain, more);
        tt_model_close(&plain);
        tt_model_close(&more);
        fixture_end(&f);
    }
}

/* -0.0 adds nothing either; as an integer, or with another byte, it is a number. */
static void a_negative_zero_is_zero(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        unsigned char byte[8];
        size_t n;
        bool zero;
    } cases[] = {{"F32", {0, 0, 0, 0x80, 0, 0, 0, 0}, 8, true},
                 {"BF16", {0, 0x80, 0, 0x80}, 4, true},
                 {"F16", {0, 0x80, 0, 0}, 4, true},
                 {"F64", {0, 0, 0, 0, 0, 0, 0, 0x80}, 8, true},
                 {"F32", {0, 0x80, 0, 0, 0, 0, 0, 0}, 8, false},
                 {"F64", {0, 0, 0, 0x80}, 8, false},
                 {"I32", {0, 0, 0, 0x80}, 4, false},
                 {"BF16", {0x80, 0}, 2, false},
                 {"F32", {0, 0, 0x80, 0x80}, 4, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        maker m = {0};
        int64_t width = cases[i].dtype[0] == 'B' || strcmp(cases[i].dtype, "F16") == 0 ? 2
                        : strcmp(cases[i].dtype, "F64") == 0                           ? 8
                                                                                       : 4;
        fixture_begin(&f);
        copy(&m, &f, "llama_dense", NULL);
        maker_add_bytes(&m, "model.layers.0.self_attn.q_proj.bias", cases[i].dtype, 1,
                        (int64_t[]){(int64_t)cases[i].n / width}, cases[i].byte, cases[i].n);
        save(&m, &f);
        if (cases[i].zero) {
            tt_model *model = open_model(f.dir);
            tt_model_close(&model);
        } else {
            expect_refusal(&f, TT_ERR_UNSUPPORTED, "q_proj.bias", NULL);
        }
        fixture_end(&f);
    }
}

/* The number of layers that predict further tokens is in the configuration, whatever it calls
 * them. */
static void further_layers_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *key;
    } cases[] = {{"deepseek_v3", "num_nextn_predict_layers"}, {"minimax_m2", "num_mtp_modules"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int n = 0; n < 2; n++) {
            fixture f;
            maker m = {0};
            fixture_begin(&f);
            copy(&m, &f, cases[i].folder, NULL);
            maker_add(&m, "model.layers.3.enorm.weight", "BF16", 1, (int64_t[]){64}, 1);
            save(&m, &f);
            json_t *config = read_json(fixture_path(&f, "config.json"));
            json_object_set_new(config, cases[i].key, json_integer(n));
            fixture_write_json(&f, "config.json", config);
            json_decref(config);
            if (n == 0) {
                expect_refusal(&f, TT_ERR_UNSUPPORTED, "model.layers.3.enorm.weight", NULL);
            } else {
                tt_model *model = open_model(f.dir);
                assert_int_equal(tt_model_arch(model)->n_mtp, 0);
                tt_model_close(&model);
            }
            fixture_end(&f);
        }
    }
}

/* GLM-4.5-Air has no norms of q and k; with them in the file, the key cannot be right. */
static void keys_and_tensors_must_agree(void **state)
{
    (void)state;
    for (int norms = 0; norms < 2; norms++) {
        fixture f;
        maker m = {0};
        fixture_begin(&f);
        copy(&m, &f, "glm4_moe", norms ? NULL : "_norm.");
        save(&m, &f);
        json_t *config = read_json(fixture_path(&f, "config.json"));
        json_object_set_new(config, "use_qk_norm", json_false());
        fixture_write_json(&f, "config.json", config);
        json_decref(config);
        if (norms) {
            expect_refusal(&f, TT_ERR_UNSUPPORTED, "_norm.weight' (and 5 more)",
                           "Glm4MoeForCausalLM", NULL);
        } else {
            tt_model *model = open_model(f.dir);
            assert_false(tt_model_arch(model)->layer[0].qk_norm);
            assert_null(tt_model_tensor(model, TT_ROLE_Q_NORM, 0, 0).name);
            tt_model_close(&model);
        }
        fixture_end(&f);
    }
}

/* Zeros are read many tensors at once: the one that is none among them is found, and an empty one
 * ends no read early. */
static void the_one_that_is_not_zero_is_named(void **state)
{
    (void)state;
    enum { N = 40, BYTES = 5000 };
    for (int bad = -1; bad < N; bad += 8) {
        fixture f;
        maker m = {0};
        char name[NAME_BYTES];
        unsigned char bytes[BYTES] = {0};
        fixture_begin(&f);
        copy(&m, &f, "llama_dense", NULL);
        for (int i = 0; i < N; i++) {
            snprintf(name, sizeof(name), "model.layers.0.x%d.bias", i);
            bytes[BYTES - 1] = i == bad;
            maker_add_bytes(&m, name, "U8", 1, (int64_t[]){BYTES}, bytes, BYTES);
            snprintf(name, sizeof(name), "model.layers.0.empty%d.bias", i);
            maker_add_bytes(&m, name, "U8", 1, (int64_t[]){0}, bytes, 0);
            bytes[BYTES - 1] = 1; /* between them lies something else */
            snprintf(name, sizeof(name), "visual.%d", i);
            maker_add_bytes(&m, name, "U8", 1, (int64_t[]){BYTES}, bytes, BYTES);
        }
        save(&m, &f);
        if (bad < 0) {
            tt_model *model = open_model(f.dir);
            tt_model_close(&model);
        } else {
            snprintf(name, sizeof(name), "'model.layers.0.x%d.bias' has no place", bad);
            expect_refusal(&f, TT_ERR_UNSUPPORTED, SINGLE, name, NULL);
        }
        fixture_end(&f);
    }
}

/* Calls of read and its like that this process has made; -1 where the kernel does not say. */
static long long n_reads(void)
{
    char line[80];
    long long n = -1;
    FILE *io = fopen("/proc/self/io", "r");
    while (io && fgets(line, sizeof(line), io)) {
        if (strncmp(line, "syscr: ", 7) == 0) {
            n = strtoll(line + 7, NULL, 10);
        }
    }
    if (io) {
        fclose(io);
    }
    return n;
}

static void a_hundred_thousand_strays_take_linear_time(void **state)
{
    enum { N = 100000, MAX_SECONDS = 8, MAX_READS = 300 };
    const fixture *f = *state;
    maker m = {0};
    char name[NAME_BYTES];
    copy(&m, f, "llama_dense", NULL);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), i % 2 ? "visual.blocks.%d.bias" : "model.layers.0.x%d.bias",
                 i);
        maker_add(&m, name, "U8", 1, (int64_t[]){1}, 0);
    }
    save(&m, f);
    long long reads = n_reads();
    clock_t begin = clock();
    tt_model *model = open_model(f->dir);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    reads = reads < 0 ? 0 : n_reads() - reads;
    print_message("# %d tensors that nobody claims: %.3f s of processor time, %lld reads\n", N,
                  seconds, reads);
    assert_true(seconds < MAX_SECONDS);
    assert_true(reads < MAX_READS);
    tt_model_close(&model);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_without_a_place_is_refused),
        TEST(the_others_are_counted),
        cmocka_unit_test(what_changes_no_result_is_accepted),
        cmocka_unit_test(a_negative_zero_is_zero),
        cmocka_unit_test(further_layers_are_left_out),
        cmocka_unit_test(keys_and_tensors_must_agree),
        cmocka_unit_test(the_one_that_is_not_zero_is_named),
        TEST(a_hundred_thousand_strays_take_linear_time),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
