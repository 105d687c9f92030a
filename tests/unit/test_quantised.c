/* test_quantised.c - matrices of quantised checkpoints: each storage scheme gives exactly the
 * numbers that its own project's formula gives (digests from numpy), whole, in any pieces and by
 * any view; and what does not fit together is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_fixture.h"
#include "source.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/load.h"

/* A checkpoint without an architecture: its tensors are asked for by name. */
typedef struct files {
    tti_checkpoint checkpoint;
    tt_model model;
} files;

static void files_open(files *f, const char *dir, const json_t *quantization)
{
    memset(f, 0, sizeof(*f));
    if (tti_checkpoint_open(dir, &f->checkpoint) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    f->model.file = f->checkpoint.file;
    f->model.n_files = f->checkpoint.n_files;
    json_t *config = json_pack("{sO?}", "quantization_config", quantization);
    if (tti_quantization_read("config.json", config, &f->checkpoint.quantization) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    json_decref(config);
}

static void files_close(files *f)
{
    tti_checkpoint_fini(&f->checkpoint);
}

/* A matrix of a checkpoint: plane by plane. */
typedef struct matrix {
    tt_tensor tensor;
    tti_source source;
    int64_t planes;
} matrix;

static bool matrix_find(const files *f, const char *name, matrix *m)
{
    int64_t dims[TTI_MAX_DIMS];
    int n = 0;
    memset(m, 0, sizeof(*m));
    if (tti_source_make(&f->checkpoint, name, &m->source, dims, &n) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    if (n == 0) {
        return false;
    }
    assert_true(n == 2 || n == 3);
    m->planes = n == 3 ? dims[0] : 1;
    int64_t rows = dims[n - 2], cols = dims[n - 1];
    m->source.file_rows = rows;
    m->source.file_cols = cols;
    m->source.segment[0] = (tti_segment){rows, 0, rows, rows};
    m->source.n_segments = 1;
    m->tensor = (tt_tensor){.name = m->source.name,
                            .rows = rows,
                            .cols = cols,
                            .format = m->source.format,
                            .source = &m->source};
    return true;
}

static void matrix_read(const files *f, const matrix *m, int64_t row, int64_t n, float *dst)
{
    if (tt_model_read_f32(&f->model, &m->tensor, row, n, dst) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
}

static uint64_t hash(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* Adds the numbers of all planes to a digest. */
static uint64_t matrix_hash(const files *f, matrix *m, uint64_t h)
{
    size_t n = (size_t)(m->tensor.rows * m->tensor.cols);
    float *values = malloc(n * sizeof(float));
    assert_non_null(values);
    for (m->source.plane = 0; m->source.plane < m->planes; m->source.plane++) {
        matrix_read(f, m, 0, m->tensor.rows, values);
        h = hash(h, values, n * sizeof(float));
    }
    m->source.plane = 0;
    free(values);
    return h;
}

static void expect_digest(const char *what, uint64_t have, const char *want)
{
    char text[32];
    snprintf(text, sizeof(text), "%016" PRIx64, have);
    if (strcmp(text, want) != 0) {
        fail_msg("%s: the digest of its numbers is %s, the formula's is %s", what, text, want);
    }
}

static const uint64_t HASH_BEGIN = UINT64_C(0xcbf29ce484222325);

/* Any rows, also interleaved ones and ones from two places, are the same as from the whole. */
static void check_pieces(const files *f, matrix *m)
{
    int64_t rows = m->tensor.rows, K = m->tensor.cols;
    float *all = malloc((size_t)(rows * K) * sizeof(float)),
          *part = malloc((size_t)(rows * K) * sizeof(float));
    assert_true(all && part);
    m->source.plane = m->planes - 1;
    matrix_read(f, m, 0, rows, all);
    for (int64_t begin = 0; begin < rows; begin += 5) {
        for (int64_t n = 1; begin + n <= rows; n += 6) {
            matrix_read(f, m, begin, n, part);
            assert_memory_equal(part, all + begin * K, (size_t)(n * K) * sizeof(float));
        }
    }
    matrix v = *m;
    v.tensor.source = &v.source;
    v.source.n_segments = 2;
    v.source.segment[0] = (tti_segment){rows / 2, 1, 1, 2}; /* the odd rows, then the last
                                                             * quarter */
    v.source.segment[1] = (tti_segment){rows / 4, rows - rows / 4, rows / 4, rows / 4};
    v.tensor.rows = rows / 2 + rows / 4;
    for (int64_t begin = 0; begin < v.tensor.rows; begin += 7) {
        int64_t n = v.tensor.rows - begin < 13 ? v.tensor.rows - begin : 13;
        matrix_read(f, &v, begin, n, part);
        for (int64_t r = 0; r < n; r++) {
            int64_t at =
                begin + r < rows / 2 ? 2 * (begin + r) + 1 : rows - rows / 4 + begin + r - rows / 2;
            assert_memory_equal(part + r * K, all + at * K, (size_t)K * sizeof(float));
        }
    }
    m->source.plane = 0;
    free(part);
    free(all);
}

/* What packed panels should keep, or "f32" where they cannot. */
static const struct {
    const char *name, *format;
} formats[] = {{"gptq4_sym", "int4, scale f16 per 16"},
               {"gptq4_asym_v2", "uint4, scale f16 per 16, zero points"},
               {"gptq4_order", "f32"},
               {"gptq4_whole", "int4, scale f16 per 48"},
               {"gptq8_sym", "int8, scale f16 per 16"},
               {"gptq8_asym", "uint8, scale f16 per 16, zero points"},
               {"awq", "uint4, scale f16 per 16, zero points"},
               {"fp8_bf16", "fp8, scale bf16 per 20"},
               {"fp8_odd", "f32"},
               {"fp8_tensor", "fp8, scale f32 per 48"},
               {"float_channel", "fp8, scale bf16 per 48"},
               {"int8_channel", "int8, scale bf16 per 48"},
               {"int8_asym", "uint8, scale f32 per 48, zero points"},
               {"packed4_group", "int4, scale bf16 per 16"},
               {"packed8_asym", "uint8, scale f32 per 16, zero points"},
               {"packed4_order", "f32"},
               {"mxfp4_planes", "fp4, scale e8m0 per 32"}};

static void variants_open(const json_t *variant, fixture *dir, files *f)
{
    fixture_begin(dir);
    fixture_link(dir, "model.safetensors", "tests/golden/quantised/variants.safetensors");
    files_open(f, dir->dir, json_object_get(variant, "config"));
}

static void every_scheme_gives_the_numbers_of_its_formula(void **state)
{
    (void)state;
    const char *name;
    json_t *variant;
    json_t *all = read_json(source_path("tests/golden/quantised/variants.json"));
    int n_formats = 0;
    json_object_foreach(all, name, variant)
    {
        fixture dir;
        files f;
        matrix m;
        variants_open(variant, &dir, &f);
        assert_true(matrix_find(&f, json_string_value(json_object_get(variant, "tensor")), &m));
        expect_digest(name, matrix_hash(&f, &m, HASH_BEGIN),
                      json_string_value(json_object_get(variant, "digest")));
        check_pieces(&f, &m);
        for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
            if (strcmp(formats[i].name, name) == 0) {
                assert_string_equal(tt_format_name(&m.tensor.format), formats[i].format);
                n_formats++;
            }
        }
        files_close(&f);
        fixture_end(&dir);
    }
    assert_int_equal(n_formats, sizeof(formats) / sizeof(formats[0]));
    json_decref(all);
}

/* The digest of a matrix, or of those of all experts if its name has a place for a number. */
static uint64_t named_hash(const files *f, const char *key)
{
    const char *experts = strstr(key, "experts.");
    uint64_t h = HASH_BEGIN;
    matrix m;
    char name[256];
    const char *endings[] = {".weight", ""};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s%s", key, endings[i]);
        if (matrix_find(f, name, &m)) {
            return matrix_hash(f, &m, h);
        }
    }
    assert_non_null(experts);
    int64_t n = 0;
    for (;; n++) {
        int before = (int)(experts - key) + 8;
        snprintf(name, sizeof(name), "%.*s%lld.%s.weight", before, key, (long long)n, experts + 8);
        if (!matrix_find(f, name, &m)) {
            break;
        }
        h = matrix_hash(f, &m, h);
    }
    assert_true(n > 1);
    return h;
}

static void miniatures_give_the_numbers_of_the_formulas(void **state)
{
    (void)state;
    const char *folder, *key;
    json_t *digests, *digest;
    json_t *all = read_json(source_path("tests/golden/quantised/digests.json"));
    json_object_foreach(all, folder, digests)
    {
        char path[512];
        files f;
        snprintf(path, sizeof(path), "tests/golden/architectures/%s/config.json", folder);
        json_t *config = read_json(source_path(path));
        snprintf(path, sizeof(path), "tests/golden/architectures/%s", folder);
        files_open(&f, source_path(path), json_object_get(config, "quantization_config"));
        json_object_foreach(digests, key, digest)
        {
            expect_digest(key, named_hash(&f, key), json_string_value(digest));
        }
        files_close(&f);
        json_decref(config);
    }
    json_decref(all);
}

/* ---- what is refused ---- */

typedef struct part {
    const char *name, *dtype;
    int n_dims;
    int64_t dim[4];
    int fill;
} part;

/* Makes a checkpoint of these parts and expects its matrix "m.weight" to be refused with this text,
 * by opening or by reading. */
static void expect_refused(const char *quantization, const part *parts, const char *text)
{
    fixture dir;
    files f = {0};
    maker make = {0};
    tti_source source;
    int64_t dims[TTI_MAX_DIMS];
    int n = 0;
    fixture_begin(&dir);
    for (const part *p = parts; p->name; p++) {
        maker_add(&make, p->name, p->dtype, p->n_dims, p->dim, p->fill);
    }
    maker_save(&make, &dir, "model.safetensors");
    maker_fini(&make);
    json_t *config = json_loads(quantization, 0, NULL);
    assert_non_null(config);
    assert_int_equal(tti_checkpoint_open(dir.dir, &f.checkpoint), TT_OK);
    f.model.file = f.checkpoint.file;
    tt_status st = tti_quantization_read("config.json", config, &f.checkpoint.quantization);
    if (st == TT_OK) {
        st = tti_source_make(&f.checkpoint, "m.weight", &source, dims, &n);
    }
    if (st == TT_OK) {
        matrix m;
        assert_true(n >= 2 && matrix_find(&f, "m.weight", &m));
        float *values = malloc((size_t)(m.tensor.rows * m.tensor.cols) * sizeof(float));
        st = tt_model_read_f32(&f.model, &m.tensor, 0, m.tensor.rows, values);
        free(values);
    }
    if (st == TT_OK || !strstr(tt_status_message(), text)) {
        fail_msg("expected a refusal with '%s', got %s: %s", text, tt_status_name(st),
                 st == TT_OK ? "" : tt_status_message());
    }
    assert_true(st == TT_ERR_FILE || st == TT_ERR_UNSUPPORTED);
    json_decref(config);
    files_close(&f);
    fixture_end(&dir);
}

#define FP8 "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[24,24]}}"
#define GPTQ(more)                                                                                 \
    "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"desc_act\":false," more "}}"
#define AWQ(more) "{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4," more "}}"
#define PACKED(weights)                                                                                                               \
    "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"group_0\":" \
    "{\"weights\":{\"num_bits\":4,\"type\":\"int\"," weights "}}}}}"
#define WEIGHT                                                                                     \
    {                                                                                              \
        "m.weight", "F8_E4M3", 2, {32, 64}, 0x38                                                   \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, 0, {0}, 0                                                                      \
    }

static void scales_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const char *scale = "m.weight_scale_inv";
    expect_refused(FP8, (part[]){WEIGHT, END}, "'m.weight_scale_inv' is missing");
    expect_refused(FP8, (part[]){WEIGHT, {"m.weight_scale", "F32", 2, {2, 3}, 0}, END},
                   "'m.weight_scale_inv' is missing");
    expect_refused(FP8, (part[]){WEIGHT, {scale, "F32", 2, {2, 2}, 0}, END},
                   "'m.weight_scale_inv' [2, 2] has a shape that does not fit");
    expect_refused(FP8, (part[]){WEIGHT, {scale, "F32", 2, {3, 2}, 0}, END}, "does not fit");
    expect_refused(FP8, (part[]){WEIGHT, {scale, "F32", 1, {6}, 0}, END}, "does not fit");
    expect_refused(FP8, (part[]){WEIGHT, {scale, "F32", 2, {0, 3}, 0}, END}, "does not fit");
    expect_refused(FP8, (part[]){WEIGHT, {scale, "F32", 1, {1}, 0}, END},
                   "quantization_config says otherwise");
    expect_refused(FP8, (part[]){WEIGHT, {scale, "I32", 2, {2, 3}, 0}, END}, "scales are F32");
    expect_refused(FP8, (part[]){WEIGHT, {scale, "F32", 2, {2, 3}, 0xff}, END},
                   "6 scales of tensor 'm.weight' are infinite or no number");
    expect_refused(FP8, (part[]){WEIGHT, {scale, "BF16", 2, {2, 3}, 0xff}, END}, "6 scales");
    expect_refused("{}", (part[]){WEIGHT, {scale, "F32", 2, {2, 3}, 0}, END},
                   "no quantization_config");
    expect_refused(
        FP8, (part[]){{"m.weight", "F8_E5M2", 2, {32, 64}, 0}, {scale, "F32", 2, {2, 3}, 0}, END},
        "F8_E5M2");
}

static void parts_of_gptq_that_do_not_fit_are_refused(void **state)
{
    (void)state;
#define CODES                                                                                      \
    {                                                                                              \
        "m.qweight", "I32", 2, {8, 32}, 0x12                                                       \
    }
#define SCALES                                                                                     \
    {                                                                                              \
        "m.scales", "F16", 2, {4, 32}, 0x22                                                        \
    }
#define ZEROS                                                                                      \
    {                                                                                              \
        "m.qzeros", "I32", 2, {4, 4}, 0x77                                                         \
    }
    const char *config = GPTQ("\"group_size\":16,\"sym\":true"),
               *asym = GPTQ("\"group_size\":16,\"sym\":false");
    expect_refused(config, (part[]){CODES, SCALES, END}, "'m.qzeros' is missing");
    expect_refused(config, (part[]){CODES, ZEROS, END}, "'m.scales' is missing");
    expect_refused(config, (part[]){CODES, SCALES, {"m.qzeros", "I32", 2, {4, 3}, 0x77}, END},
                   "'m.qzeros' [4, 3] has a shape that does not fit");
    expect_refused(config, (part[]){CODES, SCALES, {"m.qzeros", "I32", 2, {2, 4}, 0x77}, END},
                   "does not fit");
    expect_refused(config, (part[]){CODES, SCALES, {"m.qzeros", "F32", 2, {4, 4}, 0x77}, END},
                   "F32");
    expect_refused(config, (part[]){CODES, SCALES, {"m.qzeros", "I32", 2, {4, 4}, 0x66}, END},
                   "says that it is symmetric");
    expect_refused(config, (part[]){CODES, {"m.scales", "F16", 2, {2, 32}, 0}, ZEROS, END},
                   "another group_size");
    expect_refused(config, (part[]){CODES, {"m.scales", "F16", 2, {4, 24}, 0}, ZEROS, END},
                   "does not fit");
    expect_refused(config, (part[]){CODES, {"m.scales", "F16", 2, {4, 32}, 0xff}, ZEROS, END},
                   "no number");
    expect_refused(config, (part[]){CODES, SCALES, ZEROS, {"m.g_idx", "I32", 1, {63}, 0}, END},
                   "m.g_idx");
    expect_refused(config, (part[]){CODES, SCALES, ZEROS, {"m.g_idx", "I32", 1, {64}, 0}, END},
                   "groups follow each other");
    expect_refused(asym, (part[]){CODES, SCALES, ZEROS, {"m.g_idx", "I32", 1, {64}, 0x7f}, END},
                   "there are 4 groups");
    expect_refused("{}", (part[]){CODES, SCALES, ZEROS, END}, "no quantization_config");
    expect_refused(GPTQ("\"group_size\":0"), (part[]){CODES, SCALES, ZEROS, END},
                   "'group_size' is 0");
    expect_refused(GPTQ("\"group_size\":-2"), (part[]){CODES, SCALES, ZEROS, END}, "group_size");
    expect_refused(GPTQ("\"group_size\":9223372036854775807"), (part[]){CODES, SCALES, ZEROS, END},
                   "group_size");
    expect_refused(GPTQ("\"group_size\":16,\"checkpoint_format\":\"marlin\""),
                   (part[]){CODES, SCALES, ZEROS, END}, "marlin");
    expect_refused(AWQ("\"group_size\":16"), (part[]){CODES, SCALES, ZEROS, END}, "does not fit");
    expect_refused(AWQ("\"group_size\":16,\"version\":\"gemv\""),
                   (part[]){CODES, SCALES, ZEROS, END}, "gemv");
}

static void parts_of_packed_matrices_that_do_not_fit_are_refused(void **state)
{
    (void)state;
#define WORDS                                                                                      \
    {                                                                                              \
        "m.weight_packed", "I32", 2, {32, 8}, 0x12                                                 \
    }
#define GROUPS                                                                                     \
    {                                                                                              \
        "m.weight_scale", "BF16", 2, {32, 4}, 0x22                                                 \
    }
    const char *config = PACKED("\"strategy\":\"group\",\"group_size\":16");
    expect_refused(config, (part[]){WORDS, END}, "'m.weight_scale' is missing");
    expect_refused(config, (part[]){WORDS, {"m.weight_scale", "BF16", 2, {32, 3}, 0}, END},
                   "does not fit");
    expect_refused(config, (part[]){WORDS, {"m.weight_scale", "BF16", 2, {31, 4}, 0}, END},
                   "does not fit");
    expect_refused(config, (part[]){WORDS, {"m.weight_scale", "I8", 2, {32, 4}, 0}, END}, "I8");
    expect_refused(config,
                   (part[]){WORDS, GROUPS, {"m.weight_zero_point", "I32", 2, {4, 3}, 0}, END},
                   "does not fit");
    expect_refused(
        config, (part[]){WORDS, GROUPS, {"m.weight_zero_point", "I8", 2, {4, 4}, 0}, END}, "I32");
    expect_refused(config, (part[]){WORDS, GROUPS, {"m.weight_shape", "I64", 1, {2}, 0}, END},
                   "states the shape [0, 0]");
    expect_refused(config, (part[]){WORDS, GROUPS, {"m.weight_shape", "I32", 1, {2}, 0}, END},
                   "states the shape [0, 0]");
    expect_refused(config, (part[]){WORDS, GROUPS, {"m.weight_shape", "F32", 1, {2}, 0}, END},
                   "'m.weight_shape' is not two numbers");
    expect_refused(
        "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"mxfp4-pack-quantized\",\"config_groups\":"
        "{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32}}}}}",
        (part[]){{"m.weight_packed", "U8", 2, {32, 32}, 0},
                 {"m.weight_scale", "U8", 2, {32, 2}, 0x70},
                 {"m.weight_zero_point", "U8", 2, {32, 2}, 1},
                 END},
        "'m.weight_zero_point' is of a matrix in MXFP4");
    expect_refused(PACKED("\"strategy\":\"group\",\"group_size\":0"), (part[]){WORDS, GROUPS, END},
                   "'group_size' is 0");
    expect_refused(PACKED("\"strategy\":\"group\""), (part[]){WORDS, GROUPS, END},
                   "without a positive 'group_size'");
    expect_refused(PACKED("\"strategy\":\"group\",\"group_size\":32"), (part[]){WORDS, GROUPS, END},
                   "does not fit");
    expect_refused(PACKED("\"strategy\":\"nearest\""), (part[]){WORDS, GROUPS, END}, "nearest");
    expect_refused(config,
                   (part[]){{"m.weight_packed", "U8", 2, {32, 32}, 0},
                            {"m.weight_scale", "F8_E4M3", 2, {32, 4}, 0},
                            {"m.weight_global_scale", "F32", 1, {1}, 0},
                            END},
                   "NVFP4");
}

/* weight_shape is written as I64, or by other makers as I32. */
static void a_stated_shape_may_be_of_either_width(void **state)
{
    (void)state;
    static const int32_t narrow[][2] = {{32, 64}, {32, 63}, {31, 64}};
    static const int64_t wide[][2] = {{32, 64}, {32, 63}, {31, 64}};
    for (int i = 0; i < 6; i++) {
        fixture dir;
        files f = {0};
        maker make = {0};
        matrix m;
        float values[32 * 64];
        bool is_wide = i >= 3;
        fixture_begin(&dir);
        maker_add(&make, "m.weight_packed", "I32", 2, (int64_t[]){32, 8}, 0x12);
        maker_add(&make, "m.weight_scale", "BF16", 2, (int64_t[]){32, 4}, 0x22);
        maker_add_bytes(&make, "m.weight_shape", is_wide ? "I64" : "I32", 1, (int64_t[]){2},
                        is_wide ? (const void *)wide[i - 3] : (const void *)narrow[i],
                        is_wide ? sizeof(wide[0]) : sizeof(narrow[0]));
        maker_save(&make, &dir, "model.safetensors");
        maker_fini(&make);
        json_t *config = json_loads(PACKED("\"strategy\":\"group\",\"group_size\":16"), 0, NULL);
        files_open(&f, dir.dir, json_object_get(config, "quantization_config"));
        assert_true(matrix_find(&f, "m.weight", &m));
        tt_status st = tt_model_read_f32(&f.model, &m.tensor, 0, m.tensor.rows, values);
        assert_int_equal(st, i % 3 == 0 ? TT_OK : TT_ERR_FILE);
        assert_true(st == TT_OK ||
                    strstr(tt_status_message(),
                           i % 3 == 1 ? "states the shape [32, 63]" : "states the shape [31, 64]"));
        json_decref(config);
        files_close(&f);
        fixture_end(&dir);
    }
}

static void configurations_that_are_not_known_are_refused(void **state)
{
    (void)state;
    static const char *const configs[][2] = {
        {"{\"quant_method\":\"bitsandbytes\"}", "bitsandbytes"},
        {"{\"quant_method\":7}", "quant_method"},
        {"{}", "quant_method"},
        {"[]", "not an object"},
        {"{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", "e5m2"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}", "weight_block_size"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", "weight_block_size"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[-1,99999999999]}", "weight_block_size"},
        {"{\"quant_method\":\"compressed-tensors\"}", "config_groups"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\",\"config_groups\":{}}",
         "marlin-24"},
        {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"transform_config\":"
         "{\"config_groups\":{\"R1\":{\"type\":\"hadamard\"}}}}",
         "transform_config"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"rotation\":\"hadamard\"}", "rotation"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"smooth\":[1]}", "smooth"},
        {"{\"quant_method\":\"fp8\",\"bits\":4}", "'bits'"},
        {"{\"quant_method\":\"mxfp4\",\"block\":16}", "block"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"format\":\"gptq_v2\"}", "'format'"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"data_type\":\"mx_fp\"}", "data_type"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"method\":\"qvq\"}", "'method'"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"groupsize\":64,\"group_size\":128}", "groupsize"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"format\":\"gemv\"}", "gemv"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"desc_act\":true}", "desc_act"},
        {"{\"quant_method\":\"fp8\",\"expert_dtype\":\"fp4\"}", "expert_dtype"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"packing_format\":\"auto_round:auto_gptq\"}",
         "packing_format"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"input_rotation\":\"h\"}", "input_rotation"},
        {"{\"quant_method\":\"auto-round\",\"bits\":4,\"packing_format\":\"auto_round:llm_compressor\"}",
         "llm_compressor"},
        {"{\"quant_method\":\"auto-round\",\"bits\":4,\"sym\":false}", "packing_format"},
        {"{\"quant_method\":\"auto-round\",\"bits\":4,\"sym\":true,\"data_type\":\"mx_fp\"}",
         "data_type"},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:auto_gptq\"}", "bits"},
        {"{\"quant_method\":\"auto-round\",\"bits\":4,\"packing_format\":\"auto_round:auto_awq\",\"extra_config\":"
         "{\"m\":{\"bits\":8}}}",
         "extra_config"},
        {"{\"quant_method\":\"gptq\"}", "bits"}};
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        tti_quantization q;
        json_t *value = json_loads(configs[i][0], 0, NULL);
        json_t *config = json_pack("{so}", "quantization_config", value);
        assert_non_null(config);
        tt_status st = tti_quantization_read("config.json", config, &q);
        assert_true(st == TT_ERR_FILE || st == TT_ERR_UNSUPPORTED);
        if (!strstr(tt_status_message(), configs[i][1]) ||
            !strstr(tt_status_message(), "config.json")) {
            fail_msg("%s: %s", configs[i][0], tt_status_message());
        }
        json_decref(config);
    }
}

/* AutoRound's repositories are of GPTQ's or AWQ's layout. */
static void auto_round_is_gptq_or_awq(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        tti_quant_method method;
        bool symmetric, less_one, varies;
    } cases[] = {
        {"\"quant_method\":\"auto-round\",\"sym\":true,\"packing_format\":\"auto_round:auto_gptq\"",
         TTI_QUANT_GPTQ, true, true, false},
        {"\"quant_method\":\"auto-round\",\"sym\":false,\"packing_format\":\"auto_round:auto_gptq\"",
         TTI_QUANT_GPTQ, false, true, false},
        {"\"quant_method\":\"auto-round\",\"sym\":true,\"packing_format\":\"auto_round:auto_awq\"",
         TTI_QUANT_AWQ, true, false, false},
        {"\"quant_method\":\"auto-round\",\"sym\":false,\"packing_format\":\"auto_round:auto_awq\"",
         TTI_QUANT_AWQ, false, false, false},
        {"\"quant_method\":\"intel/auto-round\",\"sym\":true,\"backend\":\"auto_round:gptq:exllamav2\"",
         TTI_QUANT_GPTQ, true, true, false},
        {"\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:auto_gptq\",\"extra_config\":{\"lm_head\":{\"bits\":16,"
         "\"data_type\":\"float\"}},\"iters\":0,\"model_free\":true,\"autoround_version\":\"0.14.2\",\"block_name_to_quantize\":\"m.layers\"",
         TTI_QUANT_GPTQ, true, true, false},
        {"\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:auto_gptq\",\"extra_config\":{\"m.q_proj\":{\"bits\":8}}",
         TTI_QUANT_GPTQ, true, true, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        tti_quantization q;
        snprintf(
            text, sizeof(text),
            "{\"quantization_config\":{\"bits\":4,\"group_size\":64,\"data_type\":\"int\",%s}}",
            cases[i].more);
        json_t *config = json_loads(text, 0, NULL);
        assert_non_null(config);
        if (tti_quantization_read("config.json", config, &q) != TT_OK) {
            fail_msg("%s: %s", text, tt_status_message());
        }
        assert_int_equal(q.method, cases[i].method);
        assert_int_equal(q.n_rules, 1);
        assert_int_equal(q.rule[0].bits, 4);
        assert_int_equal(q.rule[0].group, 64);
        assert_int_equal(q.rule[0].symmetric, cases[i].symmetric);
        assert_int_equal(q.zeros_less_one, cases[i].less_one);
        assert_int_equal(q.varies, cases[i].varies);
        json_decref(config);
    }
}

/* What makers write of themselves, and what says that something is not there. */
static void neutral_configurations_are_accepted(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"transform_config\":{},\"sparsity_config\":{},"
        "\"kv_cache_scheme\":null,\"ignore\":[\"lm_head\"],\"global_compression_ratio\":1.5,\"quantization_status\":\"compressed\","
        "\"version\":\"0.11.0\"}",
        "{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"scale_fmt\":\"ue8m0\",\"weight_block_size\":[128,128],"
        "\"modules_to_not_convert\":[\"lm_head\"]}",
        "{\"quant_method\":\"gptq\",\"bits\":4,\"damp_percent\":0.01,\"lm_head\":false,\"rotation\":null,\"meta\":{\"quantizer\":[\"x\"]},"
        "\"pack_dtype\":\"int32\",\"true_sequential\":true}",
        "{\"quant_method\":\"awq\",\"bits\":4,\"backend\":\"autoawq\",\"do_fuse\":false,\"smooth\":[]}",
        /* MiniMax-M2 */
        "{\"activation_scheme\":\"dynamic\",\"fmt\":\"float8_e4m3fn\",\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],"
        "\"modules_to_not_convert\":[\"gate\",\"e_score_correction_bias\",\"lm_head\"]}",
        /* a recipe's key of tomorrow: a warning */
        "{\"quant_method\":\"gptq\",\"bits\":4,\"calibration_rows\":512}",
        /* as transformers 5 saves them */
        "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"zero_point\":true,\"version\":\"gemm\",\"format\":\"gemm\",\"sym\":true,"
        "\"backend\":\"auto\",\"desc_act\":false,\"act_group_aware\":true,\"damp_percent\":0.1,\"true_sequential\":true,\"meta\":null,"
        "\"batch_size\":1,\"cache_block_outputs\":true,\"modules_to_not_convert\":[\"gate\"]}",
        "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"scale_fmt\":\"float\",\"weight_block_size\":null,\"dequantize\":false,"
        "\"expert_dtype\":\"fp8\",\"modules_to_convert\":[\"q_proj\"]}",
        /* GPTQModel, AutoRound, and a maker that says things twice */
        "{\"quant_method\":\"gptq\",\"method\":\"gptq\",\"bits\":4,\"format\":\"gptq\",\"checkpoint_format\":\"gptq\",\"fallback\":{\"strategy\":\"rtn\"}}",
        "{\"quant_method\":\"gptq\",\"bits\":4,\"data_type\":\"int\",\"act_bits\":16,\"act_dynamic\":true,\"iters\":200,\"autoround_version\":\"0.12.3\"}",
        "{\"quant_method\":\"gptq\",\"bits\":4,\"groupsize\":128,\"group_size\":128,\"actorder\":true,\"desc_act\":true}"};
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        tti_quantization q;
        json_t *value = json_loads(configs[i], 0, NULL);
        json_t *config = json_pack("{so}", "quantization_config", value);
        assert_non_null(config);
        if (tti_quantization_read("config.json", config, &q) != TT_OK) {
            fail_msg("%s: %s", configs[i], tt_status_message());
        }
        json_decref(config);
    }
}

/* Ranks compare these hashes: whatever changes the numbers must change it. */
static void hash_covers_all_that_is_read(void **state)
{
    (void)state;
    tti_source source = {.n_segments = 1, .segment = {{8, 0, 8, 8}}};
    tt_tensor tensor = {.name = "x", .rows = 8, .cols = 8, .source = &source};
    uint64_t plain = tt_tensor_hash(&tensor);
    int n = 0;
#define CHANGES(field, value)                                                                      \
    do {                                                                                           \
        tti_source before = source;                                                                \
        source.field = (value);                                                                    \
        if (tt_tensor_hash(&tensor) == plain) {                                                    \
            fail_msg("the hash leaves out " #field);                                               \
        }                                                                                          \
        source = before;                                                                           \
        n++;                                                                                       \
    } while (0)
    CHANGES(scheme, TTI_SCHEME_QUANT);
    CHANGES(format.code, TTK_U4);
    CHANGES(format.scale, TTK_F16);
    CHANGES(format.shift, TTK_SHIFT_ZERO);
    CHANGES(format.group, 32);
    CHANGES(format.super, 8);
    CHANGES(stored.code, TTK_U4);
    CHANGES(stored.scale, TTK_F16);
    CHANGES(stored.shift, TTK_SHIFT_ZERO);
    CHANGES(stored.group, 32);
    CHANGES(stored.super, 8);
    CHANGES(block, tti_block_type_find(0));
    CHANGES(block, tti_block_type_find(12));
    CHANGES(plane_rows, 8);
    CHANGES(scale_rows, 8);
    CHANGES(scale_first, 8);
    CHANGES(flip, 128);
    CHANGES(zero_add, 1);
    CHANGES(zeros_even, true);
    CHANGES(map, TTI_MAP_EXP);
    for (int i = 0; i < TTI_PARTS; i++) {
        CHANGES(part[i].file_id, 1);
        CHANGES(part[i].offset, 8);
        CHANGES(part[i].bytes, 8);
        CHANGES(part[i].lines, 8);
        CHANGES(part[i].words, 8);
        CHANGES(part[i].word_bytes, 4);
        CHANGES(part[i].bits, 4);
        CHANGES(part[i].packing, TTI_PACKING_OUTPUTS);
        CHANGES(part[i].transposed, true);
        CHANGES(part[i].awq, true);
    }
#undef CHANGES
    assert_int_equal(n, 20 + 10 * TTI_PARTS);
    assert_true(tt_tensor_hash(&tensor) == plain);
}

/* A scale in another file than its weight, whatever the order of files (FC-04). */
static void scale_and_weight_may_lie_in_different_files(void **state)
{
    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        fixture dir;
        files f;
        matrix m;
        maker one = {0}, two = {0};
        float half = 0.5f, *values = malloc(128 * 64 * sizeof(float));
        fixture_begin(&dir);
        maker_add(&one, "e.gate_proj.weight", "F8_E4M3", 2, (int64_t[]){128, 64}, 0x38);
        maker_add_bytes(&two, "e.gate_proj.weight_scale_inv", "F32", 2, (int64_t[]){1, 1}, &half,
                        sizeof(half));
        maker_save(&one, &dir, swap ? "b.safetensors" : "a.safetensors");
        maker_save(&two, &dir, swap ? "a.safetensors" : "b.safetensors");
        json_t *index =
            json_pack("{s{ssss}}", "weight_map", "e.gate_proj.weight",
                      swap ? "b.safetensors" : "a.safetensors", "e.gate_proj.weight_scale_inv",
                      swap ? "a.safetensors" : "b.safetensors");
        fixture_write_json(&dir, "model.safetensors.index.json", index);
        json_t *q =
            json_loads("{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}", 0, NULL);
        files_open(&f, dir.dir, q);
        assert_true(matrix_find(&f, "e.gate_proj.weight", &m));
        matrix_read(&f, &m, 0, 128, values);
        for (int i = 0; i < 128 * 64; i++) {
            assert_true(values[i] == 0.5f);
        }
        free(values);
        json_decref(q);
        json_decref(index);
        maker_fini(&one);
        maker_fini(&two);
        files_close(&f);
        fixture_end(&dir);
    }
}

/* What a user writes is what is printed, in the order of the enum. */
static void choices_are_the_names(void **state)
{
    (void)state;
    char choices[64] = "";
    for (int i = 0; i < TT_WEIGHTS_COUNT; i++) {
        strcat(strcat(choices, i ? "|" : ""), tt_weights_name((tt_weight_format)i));
    }
    assert_string_equal(choices, TT_WEIGHTS_CHOICES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scheme_gives_the_numbers_of_its_formula),
        cmocka_unit_test(miniatures_give_the_numbers_of_the_formulas),
        cmocka_unit_test(scales_that_do_not_fit_are_refused),
        cmocka_unit_test(parts_of_gptq_that_do_not_fit_are_refused),
        cmocka_unit_test(parts_of_packed_matrices_that_do_not_fit_are_refused),
        cmocka_unit_test(a_stated_shape_may_be_of_either_width),
        cmocka_unit_test(configurations_that_are_not_known_are_refused),
        cmocka_unit_test(auto_round_is_gptq_or_awq),
        cmocka_unit_test(neutral_configurations_are_accepted),
        cmocka_unit_test(hash_covers_all_that_is_read),
        cmocka_unit_test(scale_and_weight_may_lie_in_different_files),
        cmocka_unit_test(choices_are_the_names)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
