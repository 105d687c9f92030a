/* test_gguf_rope.c - the rotary embedding of GGUF files: divisors of frequencies for two lengths,
 * types of scaling and their factors, keys of old files. Where a safetensors checkpoint can say the
 * same, both must give the same angles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gguf_maker.h"
#include "model_compare.h"
#include "tutti/log.h"
#include "tutti/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { F32 = 0, NAME_BYTES = 128 };
#define ARCHITECTURES "tests/golden/architectures/"
#define GGUF "tests/golden/gguf/"

/* ---- rotary frequencies ---- */

enum { N_FREQUENCIES = 8 };
static const float short_factors[N_FREQUENCIES] = {1.0f,  1.0f, 1.25f, 1.5f,
                                                   1.75f, 2.0f, 2.5f,  3.0f};
static const float long_factors[N_FREQUENCIES] = {1.0f, 1.5f, 2.0f, 3.0f, 5.0f, 9.0f, 17.0f, 33.0f};

/* llama_dense from its parts, without its own divisors but with those of two lengths. Either may be
 * NULL. */
static void make_longrope(gguf_maker *m, int64_t context, const float *short_factor,
                          const float *long_factor)
{
    static const char *const but[] = {"split.", "rope_freqs", "llama.context_length", NULL};
    int64_t dim[] = {N_FREQUENCIES};
    for (int part = 1; part <= 3; part++) {
        char path[NAME_BYTES];
        gguf_source s;
        snprintf(path, sizeof(path), GGUF "split/llama_dense-%05d-of-00003.gguf", part);
        gguf_source_open(&s, path);
        s.gguf.n_keys = part == 1 ? s.gguf.n_keys : 0; /* the first has them all */
        gguf_copy(m, &s, but);
        gguf_source_close(&s);
    }
    gguf_put_int(m, "llama.context_length", TTI_GGUF_U32, context);
    gguf_put_int(m, "llama.rope.scaling.original_context_length", TTI_GGUF_U32, 64);
    gguf_put_real(m, "llama.rope.scaling.attn_factor", 1.25f);
    if (short_factor) {
        gguf_put_tensor(m, "rope_factors_short.weight", 1, dim, F32, short_factor,
                        N_FREQUENCIES * sizeof(*short_factor));
    }
    if (long_factor) {
        gguf_put_tensor(m, "rope_factors_long.weight", 1, dim, F32, long_factor,
                        N_FREQUENCIES * sizeof(*long_factor));
    }
}

/* The same as a configuration beside the checkpoint's weights. */
static tt_model *open_longrope(const fixture *f, int64_t context)
{
    json_t *config = read_json(source_path(ARCHITECTURES "llama_dense/config.json")),
           *shorter = json_array(), *longer = json_array();
    for (int i = 0; i < N_FREQUENCIES; i++) {
        json_array_append_new(shorter, json_real((double)short_factors[i]));
        json_array_append_new(longer, json_real((double)long_factors[i]));
    }
    json_object_set_new(config, "max_position_embeddings", json_integer((json_int_t)context));
    json_object_set_new(config, "rope_scaling",
                        json_pack("{s:s, s:o, s:o, s:i, s:f}", "rope_type", "longrope",
                                  "short_factor", shorter, "long_factor", longer,
                                  "original_max_position_embeddings", 64, "attention_factor",
                                  1.25));
    fixture_write_json(f, "config.json", config);
    json_decref(config);
    return open_model(f->dir);
}

static void divisors_for_two_lengths(void **state)
{
    static const int64_t contexts[] = {64, 512}; /* the original one, and a longer */
    const fixture *f = *state;
    gguf_maker m = {0};
    fixture_link(f, "model.safetensors", ARCHITECTURES "llama_dense/model.safetensors");
    for (size_t i = 0; i < sizeof(contexts) / sizeof(contexts[0]); i++) {
        tt_model *model = open_longrope(f, contexts[i]);
        make_longrope(&m, contexts[i], short_factors, long_factors);
        tt_model *made = gguf_open(&m, f);
        compare_models("longrope", model, made);
        tt_model_close(&made);
        tt_model_close(&model);
    }
    static const float zero[N_FREQUENCIES] = {1.0f, 0.0f};
    make_longrope(&m, 512, zero, long_factors);
    gguf_expect_refused(&m, f, TT_ERR_FILE, "rope_factors_short.weight", "divides no frequency");
}

/* qwen2_moe with these keys of its rotary embedding; NULL and 0: not stated. */
static void make_scaled(gguf_maker *m, const char *type, const char *factor_key, float factor,
                        int64_t original)
{
    gguf_source s;
    char key[NAME_BYTES];
    gguf_source_open(&s, GGUF "qwen2_moe.gguf");
    gguf_copy(m, &s, NULL);
    gguf_source_close(&s);
    if (type) {
        gguf_put_text(m, "qwen2moe.rope.scaling.type", type);
    }
    if (factor_key) {
        snprintf(key, sizeof(key), "qwen2moe.rope.%s", factor_key);
        gguf_put_real(m, key, factor);
    }
    if (original > 0) {
        gguf_put_int(m, "qwen2moe.rope.scaling.original_context_length", TTI_GGUF_U32, original);
    }
}

static void a_factor_without_a_type_is_linear(void **state)
{
    static const struct {
        const char *type, *key;
        float factor, divisor;
    } cases[] = {{NULL, "scaling.factor", 4.0f, 4.0f},
                 {NULL, "scale_linear", 4.0f, 4.0f},
                 {"linear", "scaling.factor", 4.0f, 4.0f},
                 {"none", "scaling.factor", 4.0f, 1.0f},
                 {NULL, "scaling.factor", 0.0f, 1.0f},
                 {NULL, "scaling.factor", 1.0f, 1.0f},
                 {NULL, NULL, 0.0f, 1.0f}};
    static const float ones[N_FREQUENCIES] = {1, 1, 1, 1, 1, 1, 1, 1};
    const fixture *f = *state;
    gguf_maker m = {0};
    tt_model *model = open_model(source_path(ARCHITECTURES "qwen2_moe"));
    const tt_rope *plain = &tt_model_arch(model)->rope;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make_scaled(&m, cases[i].type, cases[i].key, cases[i].factor, 0);
        tt_model *made = gguf_open(&m, f);
        assert_int_equal(tt_model_arch(made)->rope.dim, plain->dim);
        for (int64_t j = 0; j < plain->dim / 2; j++) {
            /* by a power of two: exact */
            assert_true(tt_model_arch(made)->rope.inv_freq[j] ==
                        plain->inv_freq[j] / cases[i].divisor);
        }
        tt_model_close(&made);
    }
    tt_model_close(&model);
    make_scaled(&m, NULL, "scaling.factor", 4.0f, 0);
    gguf_put_tensor(&m, "rope_freqs.weight", 1, (int64_t[]){N_FREQUENCIES}, F32, ones,
                    sizeof(ones));
    gguf_expect_refused(&m, f, TT_ERR_UNSUPPORTED, "rope_freqs.weight", "rope.scaling.factor of 4");
}

/* context_length is as the writer's configuration said; YaRN's reach counts where it is more. */
static void yarn_stretches_the_context(void **state)
{
    static const struct {
        int64_t original;
        float factor;
        int64_t context;
    } cases[] = {{256, 4.0f, 1024}, {64, 4.0f, 512}, {0, 4.0f, 2048}};
    const fixture *f = *state;
    gguf_maker m = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make_scaled(&m, "yarn", "scaling.factor", cases[i].factor, cases[i].original);
        tt_model *made = gguf_open(&m, f);
        assert_int_equal(tt_model_arch(made)->context, cases[i].context);
        tt_model_close(&made);
    }
}

/* llama.cpp computes the factor of sine and cosine from the stretch, and ignores yarn_attn_factor,
 * which is HF's absolute factor or, of DeepSeek-R1-0528-Qwen3-8B, the inverse of it; attn_factor
 * multiplies whatever the type. 1 + 0.1 ln 4 = 1.1386294. */
static void factors_of_sine_and_cosine(void **state)
{
    static const struct {
        const char *type;
        float yarn, scale, log_multiplier, want;
        bool warns;
    } cases[] = {{"yarn", 0, 0, 0, 1.1386294f, false},
                 {"yarn", 1.1386294f, 0, 0, 1.1386294f, false},
                 {"yarn", 0.87824886f, 0, 0, 1.1386294f, true},
                 {"yarn", 0.87824886f, 0.5f, 0, 0.5693147f, true},
                 {"yarn", 0, 1.25f, 0, 1.4232868f, false},
                 {"yarn", 0, 0, 0.1f, 1.0f, false},
                 {"linear", 0, 1.25f, 0, 1.25f, false},
                 {"linear", 0.87824886f, 0, 0, 1.0f, false},
                 {NULL, 0, 1.25f, 0, 1.25f, false},
                 {"none", 0, 1.25f, 0, 1.25f, false}};
    const fixture *f = *state;
    gguf_maker m = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text;
        make_scaled(&m, cases[i].type, cases[i].type ? "scaling.factor" : NULL, 4.0f, 512);
        if (cases[i].yarn > 0) {
            gguf_put_real(&m, "qwen2moe.rope.scaling.yarn_attn_factor", cases[i].yarn);
        }
        if (cases[i].scale > 0) {
            gguf_put_real(&m, "qwen2moe.rope.scaling.attn_factor", cases[i].scale);
        }
        if (cases[i].log_multiplier > 0) {
            gguf_put_real(&m, "qwen2moe.rope.scaling.yarn_log_multiplier", cases[i].log_multiplier);
        }
        tt_model *made = gguf_open_logged(&m, f, &text);
        float have = tt_model_arch(made)->rope.attention_factor;
        if (!(have >= cases[i].want * (1 - 3e-7f) && have <= cases[i].want * (1 + 3e-7f))) {
            fail_msg("case %zu: %.9g is not %.9g", i, (double)have, (double)cases[i].want);
        }
        assert_int_equal(strstr(text, "qwen2moe.rope.scaling.yarn_attn_factor") != NULL,
                         cases[i].warns);
        tt_model_close(&made);
        free(text);
    }
    gguf_source s;
    gguf_source_open(&s, GGUF "deepseek_v3.gguf");
    gguf_copy(&m, &s, NULL);
    gguf_put_real(&m, "deepseek2.rope.scaling.attn_factor", 1.25f);
    gguf_expect_refused(&m, f, TT_ERR_UNSUPPORTED, "m.gguf", "deepseek2.rope.scaling.attn_factor");
    gguf_copy(&m, &s, NULL);
    gguf_put_real(&m, "deepseek2.rope.scaling.attn_factor", 1.0f);
    tt_model *plain = gguf_open(&m, f);
    assert_true(tt_model_arch(plain)->rope.attention_factor == 1.0f);
    tt_model_close(&plain);
    gguf_source_close(&s);
    make_scaled(&m, "linear", "scaling.factor", 4.0f, 0);
    gguf_put_real(&m, "qwen2moe.rope.scaling.attn_factor", -1.0f);
    gguf_expect_refused(&m, f, TT_ERR_FILE, "m.gguf", "qwen2moe.rope.scaling.attn_factor");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(divisors_for_two_lengths),
        TEST(a_factor_without_a_type_is_linear),
        TEST(yarn_stretches_the_context),
        TEST(factors_of_sine_and_cosine),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
