/* test_rope.c - rotary frequencies and scalings against published configurations' numbers and
 * closed forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_close(double have, double want, double relative)
{
    if (!(fabs(have - want) <= relative * fabs(want))) {
        fail_msg("%.10g is not %.10g", have, want);
    }
}

/* Parses a configuration's text; the keys' strings live as long as *config_out. */
static tti_rope_keys parse(const char *text, json_t **config_out)
{
    tti_rope_keys keys;
    *config_out = json_loads(text, 0, NULL);
    assert_non_null(*config_out);
    if (tti_rope_parse("config.json", *config_out, 10000, &keys) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return keys;
}

static tt_rope build(const char *text, int64_t dim, int64_t context)
{
    tt_rope rope;
    json_t *config;
    tti_rope_keys keys = parse(text, &config);
    if (tti_rope_build("config.json", &keys, dim, false, context, &rope) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    json_decref(config);
    return rope;
}

enum { N = 32 }; /* frequencies of a head of 64 */

/* Share of each frequency that yarn divides by factor, recovered from the table. */
static void recover_ramp(const tt_rope *rope, double theta, double factor, double *ramp)
{
    for (int i = 0; i < N; i++) {
        double base = exp(-log(theta) * i / N);
        ramp[i] = (1 - (double)rope->inv_freq[i] / base) / (1 - 1 / factor);
    }
}

static void plain_frequencies_are_powers_of_theta(void **state)
{
    (void)state;
    tt_rope rope = build("{\"rope_theta\":10000.0,\"rope_scaling\":null}", 64, 4096);
    assert_int_equal(rope.dim, 64);
    assert_true(rope.attention_factor == 1);
    assert_true(rope.inv_freq[0] == 1.0f);
    assert_true(rope.inv_freq[8] == 0.1f); /* 10000^(-16/64), correctly rounded */
    assert_true(rope.inv_freq[16] == 0.01f);
    assert_true(rope.inv_freq[24] == 0.001f);
    free(rope.inv_freq);
    rope = build("{}", 64, 4096); /* the default of the caller */
    assert_true(rope.inv_freq[8] == 0.1f);
    free(rope.inv_freq);
    rope =
        build("{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":100.0}}", 64, 4096);
    assert_true(rope.inv_freq[16] == 0.1f);
    free(rope.inv_freq);
}

static void linear_divides_all(void **state)
{
    (void)state;
    tt_rope rope = build("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}", 64, 4096);
    assert_true(rope.attention_factor == 1);
    assert_true(rope.inv_freq[0] == 0.25f);
    assert_true(rope.inv_freq[16] == 0.0025f);
    free(rope.inv_freq);
}

static void llama3_keeps_short_waves_and_stretches_long_ones(void **state)
{
    (void)state;
    tt_rope rope = build("{\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\","
                         "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                         "\"original_max_position_embeddings\":8192}}",
                         64, 131072);
    int kept = 0, stretched = 0, between = 0;
    for (int i = 0; i < N; i++) {
        double base = pow(500000.0, -i / 32.0), turns = 8192 * base / (2 * acos(-1.0));
        if (turns > 4) {
            assert_close((double)rope.inv_freq[i], base, 1e-7);
            kept++;
        } else if (turns < 1) {
            assert_close((double)rope.inv_freq[i], base / 8, 1e-7);
            stretched++;
        } else {
            double s = (turns - 1) / 3;
            assert_close((double)rope.inv_freq[i], base * (s + (1 - s) / 8), 1e-6);
            between++;
        }
    }
    assert_true(kept > 0 && stretched > 0 && between > 0);
    free(rope.inv_freq);
}

#define DEEPSEEK(m)                                                                                \
    "{\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"beta_fast\":32,"    \
    "\"beta_slow\":1,\"mscale\":" m ",\"mscale_all_dim\":" m                                       \
    ",\"original_max_position_embeddings\":4096}}"
#define KIMI(factor)                                                                               \
    "{\"rope_theta\":50000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":" factor                 \
    ",\"beta_fast\":1.0,\"beta_slow\":1.0,\"mscale\":1.0,\"mscale_all_dim\":1.0,"                  \
    "\"original_max_position_embeddings\":4096}}"

static void yarn_of_deepseek_ramps_from_10_to_23(void **state)
{
    (void)state;
    double ramp[N];
    tt_rope rope = build(DEEPSEEK("1.0"), 64, 163840);
    recover_ramp(&rope, 10000, 40, ramp);
    for (int i = 0; i < N; i++) {
        double want = i <= 10 ? 0 : i >= 23 ? 1 : (i - 10) / 13.0;
        assert_true(fabs(ramp[i] - want) < 1e-5);
    }
    assert_true(rope.attention_factor == 1);
    free(rope.inv_freq);
}

static void yarn_of_kimi_steps_between_19_and_20(void **state)
{
    (void)state;
    double ramp[N];
    tt_rope rope = build(KIMI("32"), 64, 131072);
    recover_ramp(&rope, 50000, 32, ramp);
    for (int i = 0; i < N; i++) {
        assert_true(fabs(ramp[i] - (i <= 19 ? 0 : 1)) < 1e-5);
    }
    free(rope.inv_freq);
}

static void yarn_without_truncation_keeps_fractions(void **state)
{
    (void)state;
    double ramp[N];
    tt_rope rope = build("{\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\","
                         "\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,"
                         "\"original_max_position_embeddings\":4096,\"truncate\":false}}",
                         64, 131072);
    recover_ramp(&rope, 150000, 32, ramp);
    for (int i = 9; i <= 17; i++) {
        assert_true(fabs(ramp[i] - (i - 8.092779) / (17.398025 - 8.092779)) < 1e-5);
    }
    assert_close((double)rope.attention_factor, 1.3465736, 1e-7);
    free(rope.inv_freq);
}

static void attention_factor_follows_the_stated_keys(void **state)
{
    (void)state;
#define YARN(more) "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0" more "}}"
    tt_rope rope = build(YARN(""), 64, 4096);
    assert_close((double)rope.attention_factor, 0.1 * log(4) + 1, 1e-7);
    free(rope.inv_freq);
    rope = build(YARN(",\"attention_factor\":1.5"), 64, 4096);
    assert_true(rope.attention_factor == 1.5f);
    free(rope.inv_freq);
    rope = build(YARN(",\"mscale\":2.0,\"mscale_all_dim\":1.0"), 64, 4096);
    assert_close((double)rope.attention_factor, (0.2 * log(4) + 1) / (0.1 * log(4) + 1), 1e-7);
    free(rope.inv_freq);
    rope = build(YARN(",\"mscale\":2.0,\"mscale_all_dim\":0"), 64, 4096);
    assert_close((double)rope.attention_factor, 0.1 * log(4) + 1, 1e-7);
    free(rope.inv_freq);
}

static void original_context_defaults_to_the_context(void **state)
{
    (void)state;
    tt_rope stated = build(YARN(",\"original_max_position_embeddings\":4096"), 64, 9999);
    tt_rope implied = build(YARN(""), 64, 4096);
    tt_rope other = build(YARN(""), 64, 256);
    assert_memory_equal(stated.inv_freq, implied.inv_freq, N * sizeof(float));
    assert_memory_not_equal(stated.inv_freq, other.inv_freq, N * sizeof(float));
    free(stated.inv_freq);
    free(implied.inv_freq);
    free(other.inv_freq);
}

/* Of YaRN, original_max_position_embeddings * factor, unless max_position_embeddings is more; of
 * other types the latter. */
static void yarn_stretches_the_context(void **state)
{
    static const struct {
        const char *text;
        int64_t stated, whole;
        /* Qwen3, as its users set it */
    } cases[] = {
        {YARN(",\"original_max_position_embeddings\":32768"), 40960, 131072},
        {YARN(",\"original_max_position_embeddings\":32768"), 32768, 131072},
        {YARN(",\"original_max_position_embeddings\":32768"), 262144, 262144},
        {YARN(""), 32768, 131072},
        {DEEPSEEK("1.0"), 163840, 163840},
        {"{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":1.5,\"original_max_position_embeddings\":101}}",
         7, 151},
        {"{\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4.0}}", 4096, 4096},
        {"{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
         "\"original_max_position_embeddings\":8192}}",
         131072, 131072},
        {"{}", 4096, 4096}};
    (void)state;
    json_t *config;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tti_rope_keys keys = parse(cases[i].text, &config);
        int64_t context = cases[i].stated;
        assert_int_equal(tti_rope_extend("config.json", &keys, &context), TT_OK);
        assert_int_equal(context, cases[i].whole);
        json_decref(config);
    }
    tti_rope_keys keys = parse(
        "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":1000000.0,\"original_max_position_embeddings\":1000000000}}",
        &config);
    int64_t context = 4096;
    assert_int_equal(tti_rope_extend("config.json", &keys, &context), TT_ERR_FILE);
    assert_non_null(strstr(tt_status_message(), "1000000000000000 positions"));
    assert_int_equal(context, 4096);
    json_decref(config);
}

static void softmax_factor_is_mscale_all_dim_squared(void **state)
{
    static const struct {
        const char *text;
        double scale; /* of 128 + 64 wide heads */
    } cases[] = {{DEEPSEEK("1.0"), 0.1352338},
                 {DEEPSEEK("0.707"), 0.1147214},
                 {KIMI("32"), 0.1308608},
                 {KIMI("64"), 0.1446796},
                 {"{}", 0.0721688},
                 {YARN(""), 0.0721688}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *config;
        tti_rope_keys keys = parse(cases[i].text, &config);
        assert_close(tti_rope_softmax_factor(&keys) / sqrt(192), cases[i].scale, 1e-6);
        json_decref(config);
    }
}

/* Up to the model's context the rule by length changes nothing; alpha raises theta to theta *
 * alpha^(d/(d-2)) whatever the length. */
static void dynamic_counts_by_alpha_only(void **state)
{
    (void)state;
    tt_rope rope = build("{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}}", 64, 4096);
    assert_true(rope.inv_freq[8] == 0.1f && rope.attention_factor == 1);
    free(rope.inv_freq);
    rope = build(
        "{\"rope_scaling\":{\"alpha\":1000.0,\"beta_fast\":32,\"beta_slow\":1,\"factor\":1.0,\"mscale\":1.0,"
        "\"mscale_all_dim\":1.0,\"type\":\"dynamic\"}}",
        64, 32768);
    double log_theta = log(10000.0) + log(1000.0) * 64 / 62;
    for (int i = 0; i < N; i++) {
        assert_close((double)rope.inv_freq[i], exp(-log_theta * i / N), 1e-6);
    }
    free(rope.inv_freq);
}

static void longrope_has_two_tables(void **state)
{
    (void)state;
    tt_rope rope = build(
        "{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1.0,2.0],\"long_factor\":[4.0,8.0]},"
        "\"original_max_position_embeddings\":4096}",
        4, 131072);
    assert_int_equal(rope.long_from, 4096);
    assert_true(rope.inv_freq[0] == 1.0f && rope.inv_freq[1] == 0.005f);
    assert_true(rope.long_inv_freq[0] == 0.25f && rope.long_inv_freq[1] == 0.00125f);
    double factor = sqrt(1 + log(32.0) / log(4096.0)); /* 131072 / 4096 = 32: 1.19023807 */
    assert_close((double)rope.attention_factor, factor, 1e-6);
    assert_close((double)rope.long_attention_factor, factor, 1e-6);
    free(rope.inv_freq);
    free(rope.long_inv_freq);
    rope = build(
        "{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1.0,1.0],\"long_factor\":[1.0,1.0],"
        "\"original_max_position_embeddings\":64,\"short_mscale\":1.25,\"long_mscale\":1.5}}",
        4, 512);
    assert_true(rope.attention_factor == 1.25f && rope.long_attention_factor == 1.5f);
    free(rope.inv_freq);
    free(rope.long_inv_freq);
}

static void theta_is_read_wherever_it_stands(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"rope_theta\":5000.0}",
        "{\"rope_scaling\":{\"rope_theta\":5000,\"type\":\"default\",\"factor\":1.0}}",
        "{\"rope_theta\":null,\"rope_parameters\":{\"rope_theta\":5000}}",
        "{\"rope_theta\":5000,\"rope_scaling\":{\"rope_theta\":5000.0,\"type\":\"linear\",\"factor\":1}}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        tt_rope rope = build(texts[i], 64, 4096);
        assert_close((double)rope.inv_freq[1], pow(5000.0, -1.0 / 32), 1e-6);
        free(rope.inv_freq);
    }
}

/* Llama-4-Scout: low and high are one, so each frequency is either kept or stretched. */
static void llama3_without_a_band_between(void **state)
{
    (void)state;
    tt_rope rope = build(
        "{\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":16.0,\"low_freq_factor\":1.0,"
        "\"high_freq_factor\":1.0,\"original_max_position_embeddings\":8192}}",
        64, 10485760);
    int kept = 0, stretched = 0;
    for (int i = 0; i < N; i++) {
        double base = pow(500000.0, -i / 32.0), turns = 8192 * base / (2 * acos(-1.0));
        assert_close((double)rope.inv_freq[i], turns >= 1 ? base : base / 16, 1e-7);
        kept += turns >= 1;
        stretched += turns < 1;
    }
    assert_true(kept > 0 && stretched > 0);
    free(rope.inv_freq);
}

/* transformers does not read attn_factor of DeepSeek-R1-0528-Qwen3-8B, and computes 1 + 0.1 ln
 * 4. */
static void unknown_keys_are_ignored(void **state)
{
    (void)state;
    tt_rope rope =
        build("{\"rope_theta\":1000000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
              "\"original_max_position_embeddings\":32768,\"attn_factor\":0.8782488562869419}}",
              128, 131072);
    assert_close((double)rope.attention_factor, 1.1386294361119891, 1e-7);
    free(rope.inv_freq);
}

static void bad_keys_are_refused(void **state)
{
    static const struct {
        const char *text;
        int64_t dim;
        tt_status status;
    } cases[] = {
        {"{\"rope_theta\":\"x\"}", 64, TT_ERR_FILE},
        {"{\"rope_theta\":1}", 64, TT_ERR_FILE},
        {"{\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"rope_theta\":5000}}",
         64, TT_ERR_FILE},
        {"{\"rope_theta\":10000,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5000}}",
         64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"rope_theta\":\"x\"}}", 64,
         TT_ERR_FILE},
        {"{\"rope_scaling\":{\"factor\":2}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"factor\":2,\"type\":null}}", 64, TT_ERR_FILE},
        {"{\"rope_parameters\":{\"rope_theta\":10000,\"beta_fast\":32}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"default\",\"factor\":2}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"default\",\"attention_factor\":1.5}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"default\",\"long_factor\":[1]}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"ntk\",\"factor\":2}}", 64, TT_ERR_UNSUPPORTED},
        {"{\"rope_scaling\":{\"type\":3}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"linear\"}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":1,\"beta_slow\":2}}", 64,
         TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,"
         "\"original_max_position_embeddings\":0}}",
         64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4}}",
         64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,"
         "\"high_freq_factor\":3.5,\"original_max_position_embeddings\":64}}",
         64, TT_ERR_FILE},
        {"{}", 63, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"mrope_section\":[1]}}", 64,
         TT_ERR_UNSUPPORTED},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"alpha\":2}}", 64,
         TT_ERR_UNSUPPORTED},
        {"{\"rope_scaling\":{\"type\":\"dynamic\"}}", 64, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1],\"long_factor\":[1,1]}}",
         4, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1],\"long_factor\":[1],"
         "\"original_max_position_embeddings\":64}}",
         4, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,\"x\"],\"long_factor\":[1,1],"
         "\"original_max_position_embeddings\":64}}",
         4, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,0],\"long_factor\":[1,1],"
         "\"original_max_position_embeddings\":64}}",
         4, TT_ERR_FILE},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1],\"long_factor\":[1,1],"
         "\"original_max_position_embeddings\":64,\"short_mscale\":1}}",
         4, TT_ERR_FILE},
        {"{\"partial_rotary_factor\":0.5,\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.25}}",
         64, TT_ERR_FILE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tti_rope_keys keys;
        tt_rope rope = {0};
        json_t *config = json_loads(cases[i].text, 0, NULL);
        assert_non_null(config);
        tt_status st = tti_rope_parse("config.json", config, 10000, &keys);
        if (st == TT_OK) {
            st = tti_rope_build("config.json", &keys, cases[i].dim, false, 4096, &rope);
        }
        assert_int_equal(st, cases[i].status);
        assert_null(rope.inv_freq);
        json_decref(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_frequencies_are_powers_of_theta),
        cmocka_unit_test(linear_divides_all),
        cmocka_unit_test(llama3_keeps_short_waves_and_stretches_long_ones),
        cmocka_unit_test(yarn_of_deepseek_ramps_from_10_to_23),
        cmocka_unit_test(yarn_of_kimi_steps_between_19_and_20),
        cmocka_unit_test(yarn_without_truncation_keeps_fractions),
        cmocka_unit_test(attention_factor_follows_the_stated_keys),
        cmocka_unit_test(original_context_defaults_to_the_context),
        cmocka_unit_test(yarn_stretches_the_context),
        cmocka_unit_test(softmax_factor_is_mscale_all_dim_squared),
        cmocka_unit_test(dynamic_counts_by_alpha_only),
        cmocka_unit_test(longrope_has_two_tables),
        cmocka_unit_test(theta_is_read_wherever_it_stands),
        cmocka_unit_test(llama3_without_a_band_between),
        cmocka_unit_test(unknown_keys_are_ignored),
        cmocka_unit_test(bad_keys_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
