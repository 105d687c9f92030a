/* test_exact.c - numbers of a file that must come into memory as they are, whatever the model's own
 * format: biases in f32, all codes of FP8, scales of MXFP4 at both ends of their range; and tensors
 * of GGUF that hold nothing, though they are needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gguf_maker.h"
#include "model_compare.h"
#include "tutti/load.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "source.h"
#include "tutti/memory.h"

enum { HEADER_LENGTH_BYTES = 8, N_BIASES_MAX = 1 << 14, CODES = 256 };

/* ---- biases ---- */

/* Their bf16 is one number or two: a large offset and a tiny spread. */
static float bias_at(size_t i)
{
    return 6.9f + 1e-5f * (float)i;
}

/* Copies a checkpoint, but writes every bias anew in f32; returns how many numbers that were. */
static size_t copy_with_biases(const fixture *f, const char *folder)
{
    char path[512];
    size_t n, n_biases = 0;
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    unsigned char *bytes = read_whole(source_path(path), &n);
    uint64_t length;
    memcpy(&length, bytes, sizeof(length));
    json_t *header = json_loadb((char *)bytes + HEADER_LENGTH_BYTES, (size_t)length, 0, NULL);
    const unsigned char *data = bytes + HEADER_LENGTH_BYTES + length;
    maker m = {0};
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        const json_t *shape = json_object_get(entry, "shape");
        const json_t *offsets = json_object_get(entry, "data_offsets");
        size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
        size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
        int64_t dim[8], count = 1;
        int n_dims = (int)json_array_size(shape);
        for (int i = 0; i < n_dims; i++) {
            dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
            count *= dim[i];
        }
        const char *dtype = json_string_value(json_object_get(entry, "dtype"));
        if (!strstr(name, "bias")) {
            maker_add_bytes(&m, name, dtype, n_dims, dim, data + begin, end - begin);
            continue;
        }
        float *wide = malloc((size_t)count * sizeof(*wide));
        for (int64_t i = 0; i < count; i++) {
            wide[i] = bias_at(n_biases++);
        }
        maker_add_bytes(&m, name, "F32", n_dims, dim, wide, (size_t)count * sizeof(*wide));
        free(wide);
    }
    maker_save(&m, f, "model.safetensors");
    maker_fini(&m);
    json_decref(header);
    free(bytes);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    fixture_link(f, "config.json", path);
    return n_biases;
}

/* Each number that was written must be found again, once for each time that it is loaded. */
static size_t load_biases(tt_model *model, tt_weight_format weights, size_t n_biases)
{
    static unsigned char seen[N_BIASES_MAX];
    size_t n = 0, n_seen = 0;
    tt_tensor_place at = {0};
    tt_tensor tensor;
    memset(seen, 0, sizeof(seen));
    assert_true(n_biases <= N_BIASES_MAX);
    while (tt_model_next_tensor(model, &at, &tensor)) {
        if (!strstr(tensor.name, "bias")) {
            continue;
        }
        tt_load_params params = {.model = model, .weights = weights, .node = TT_MEMORY_ANY_NODE};
        float *vector;
        int64_t count = tensor.rows * tensor.cols;
        assert_int_equal(tt_load_vector(&params, &tensor, 0, count, &vector), TT_OK);
        for (int64_t i = 0; i < count; i++, n++) {
            size_t id = (size_t)lroundf((vector[i] - bias_at(0)) / 1e-5f);
            assert_true(id < n_biases && vector[i] == bias_at(id));
            n_seen += !seen[id];
            seen[id] = 1;
        }
        tt_memory_free(vector, (size_t)count * sizeof(*vector));
        tt_load_end(&params);
    }
    assert_int_equal(n_seen, n);
    return n;
}

static void biases_in_f32_stay_what_they_are(void **state)
{
    (void)state;
    static const char *const folders[] = {"tests/golden/architectures/deepseek_v3",
                                          "tests/golden/architectures/glm4_moe",
                                          "tests/golden/architectures/gpt_oss"};
    static const tt_weight_format formats[] = {TT_WEIGHTS_AUTO, TT_WEIGHTS_BF16, TT_WEIGHTS_INT8};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        fixture f;
        fixture_begin(&f);
        size_t n_biases = copy_with_biases(&f, folders[i]);
        tt_model *model = open_model(f.dir);
        for (size_t k = 0; k < sizeof(formats) / sizeof(formats[0]); k++) {
            assert_int_equal(load_biases(model, formats[k], n_biases), n_biases);
        }
        tt_model_close(&model);
        fixture_end(&f);
    }
}

/* ---- codes and scales as f32 ---- */

/* Overwrites tensors of a copy of a miniature: each byte of the named one by byte_at. */
static void spoil(unsigned char *bytes, const char *name, unsigned char (*byte_at)(size_t i))
{
    uint64_t length;
    memcpy(&length, bytes, sizeof(length));
    json_t *header = json_loadb((char *)bytes + HEADER_LENGTH_BYTES, (size_t)length, 0, NULL);
    const json_t *offsets = json_object_get(json_object_get(header, name), "data_offsets");
    assert_non_null(offsets);
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    for (size_t i = begin; i < end; i++) {
        bytes[HEADER_LENGTH_BYTES + length + i] = byte_at(i - begin);
    }
    json_decref(header);
}

static tt_model *open_spoilt(const fixture *f, const char *folder, unsigned char *bytes, size_t n)
{
    char path[512];
    fixture_write(f, "model.safetensors", bytes, n);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    fixture_link(f, "config.json", path);
    return open_model(f->dir);
}

static unsigned char itself(size_t i)
{
    return (unsigned char)i;
}

/* f32 1.0, little end first */
static unsigned char one_of_f32(size_t i)
{
    static const unsigned char one[] = {0, 0, 0x80, 0x3f};
    return one[i % sizeof(one)];
}

static double e4m3(int code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    magnitude = (code & 0x7f) == 0x7f ? (double)NAN : magnitude;
    return code & 0x80 ? -magnitude : magnitude;
}

static void all_codes_of_fp8_become_their_numbers(void **state)
{
    (void)state;
    static const char folder[] = "tests/golden/architectures/deepseek_v3_fp8";
    fixture f;
    fixture_begin(&f);
    size_t n, n_seen = 0;
    unsigned char *bytes =
        read_whole(source_path("tests/golden/architectures/deepseek_v3_fp8/model.safetensors"), &n);
    spoil(bytes, "model.layers.1.mlp.experts.5.up_proj.weight", itself);
    spoil(bytes, "model.layers.1.mlp.experts.5.up_proj.weight_scale_inv", one_of_f32);
    tt_model *model = open_spoilt(&f, folder, bytes, n);
    free(bytes);
    tt_tensor tensor = tt_model_tensor(model, TT_ROLE_EXPERT_UP, 1, 5);
    float *values = malloc((size_t)(tensor.rows * tensor.cols) * sizeof(*values));
    assert_int_equal(tt_model_read_f32(model, &tensor, 0, tensor.rows, values), TT_OK);
    for (int64_t i = 0; i < tensor.rows * tensor.cols; i++, n_seen++) {
        double want = e4m3((int)(i % CODES));
        assert_true(isnan(want) ? isnan(values[i]) : (double)values[i] == want);
        assert_true(isnan(want) || !signbit(values[i]) == !signbit(want)); /* -0 is -0 */
    }
    assert_true(n_seen >= CODES);
    assert_true(e4m3(0x7e) == 448 && e4m3(0x01) == 0.001953125 && e4m3(0x38) == 1);
    free(values);
    tt_model_close(&model);
    fixture_end(&f);
}

/* Nibbles 0 .. 3 and their negatives: 0, 0.5, 1, 1.5, which no scale lifts out of f32. */
static unsigned char small_nibbles(size_t i)
{
    return (unsigned char)((i & 3) | (8 | (i >> 2 & 3)) << 4);
}

/* Group after group: the least, the next, 1, the largest but one, the largest. */
static const unsigned char edge_scales[] = {0x00, 0x01, 0x7f, 0xfd, 0xfe};

static unsigned char edges(size_t i)
{
    return edge_scales[i % sizeof(edge_scales)];
}

static void edges_of_e8m0_become_their_numbers(void **state)
{
    (void)state;
    enum { GROUP = 32 };
    static const double halves[] = {0, 0.5, 1, 1.5};
    static const char folder[] = "tests/golden/architectures/gpt_oss_mxfp4";
    fixture f;
    fixture_begin(&f);
    size_t n;
    unsigned char *bytes =
        read_whole(source_path("tests/golden/architectures/gpt_oss_mxfp4/model.safetensors"), &n);
    spoil(bytes, "model.layers.0.mlp.experts.down_proj_blocks", small_nibbles);
    spoil(bytes, "model.layers.0.mlp.experts.down_proj_scales", edges);
    tt_model *model = open_spoilt(&f, folder, bytes, n);
    free(bytes);
    tt_tensor tensor = tt_model_tensor(model, TT_ROLE_EXPERT_DOWN, 0, 0);
    assert_int_equal(tensor.cols % GROUP, 0);
    float *values = malloc((size_t)(tensor.rows * tensor.cols) * sizeof(*values));
    assert_int_equal(tt_model_read_f32(model, &tensor, 0, tensor.rows, values), TT_OK);
    for (int64_t i = 0; i < tensor.rows * tensor.cols; i++) {
        size_t byte = (size_t)i / 2, group = (size_t)(i / GROUP);
        unsigned char codes = small_nibbles(byte);
        int code = i % 2 ? codes >> 4 : codes & 15;
        double magnitude = ldexp(halves[code & 3], edges(group) - 127);
        float want = (float)(code & 8 ? -magnitude : magnitude); /* exact, 2^-128 included */
        if (values[i] != want) {
            fail_msg("element %lld: %a, not %a", (long long)i, (double)values[i], (double)want);
        }
    }
    free(values);
    tt_model_close(&model);
    fixture_end(&f);
}

/* ---- tensors that hold nothing ---- */

static void needed_tensors_of_gguf_are_not_empty(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n_dims;
        int64_t dim[2];
    } cases[] = {{"blk.0.attn_norm.weight", 1, {0}},
                 {"output.weight", 2, {64, 0}},
                 {"token_embd.weight", 2, {0, 64}},
                 {"blk.1.ffn_gate_inp.weight", 2, {64, 0}}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        gguf_maker m = {0};
        gguf_source s;
        const char *but[] = {cases[i].name, NULL};
        fixture_begin(&f);
        gguf_source_open(&s, "tests/golden/gguf/deepseek_v3.gguf");
        gguf_copy(&m, &s, but);
        gguf_put_tensor(&m, cases[i].name, cases[i].n_dims, cases[i].dim, 0, "", 0);
        gguf_source_close(&s);
        gguf_expect_refused(&m, &f, TT_ERR_FILE, cases[i].name, "0");
        fixture_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(biases_in_f32_stay_what_they_are),
                                       cmocka_unit_test(all_codes_of_fp8_become_their_numbers),
                                       cmocka_unit_test(edges_of_e8m0_become_their_numbers),
                                       cmocka_unit_test(needed_tensors_of_gguf_are_not_empty)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
