/* test_safetensors.c - weight files that are missing, cut, doubled, hostile or merely odd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_fixture.h"
#include "tutti/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

static void expect_opens(const fixture *f)
{
    tt_model *model = NULL;
    tt_status st = tt_model_open(f->dir, &model);
    if (st != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    tt_model_close(&model);
    assert_null(model);
}

static void whole_checkpoint_opens(void **state)
{
    expect_opens(*state);
}

static void missing_directory_and_file_path_are_refused(void **state)
{
    fixture *f = *state;
    tt_model *model = NULL;
    assert_int_equal(tt_model_open(fixture_path(f, "absent"), &model), TT_ERR_FILE);
    assert_non_null(strstr(tt_status_message(), "absent"));
    assert_int_equal(tt_model_open(fixture_path(f, SINGLE), &model), TT_ERR_FILE);
    assert_non_null(strstr(tt_status_message(), "not a directory"));
    assert_int_equal(tt_model_open("", &model), TT_ERR_ARG);
    assert_null(model);
    tt_model_close(&model);
}

static void no_weights_are_refused(void **state)
{
    fixture *f = *state;
    fixture_remove(f, SINGLE);
    expect_refusal(f, TT_ERR_FILE, f->dir, "no weights were found", NULL);
}

/* Header length 2^63 - 1, above the limit, LFS pointer, 7 bytes, header that the file cannot hold:
 * refused without the memory that the lengths ask for. */
static void absurd_header_lengths_are_refused_without_memory(void **state)
{
    fixture *f = *state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:"
                                  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                                  "\nsize 123456789\n";
    fixture_write(f, SINGLE, "{}", 2);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "too few", NULL);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);

    fixture_write(f, SINGLE, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "9223372036854775807", "100000000", NULL);
    fixture_write(f, SINGLE, "\0\0\x40\x06\0\0\0\0{}", 10);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "104857600", "limit of 100000000", NULL);
    fixture_write(f, SINGLE, "\0\x10\0\0\0\0\0\0{}", 10);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "cut short", "4104", "10", NULL);
    fixture_write(f, SINGLE, pointer, sizeof(pointer) - 1);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "unfetched large-file pointer", NULL);
    fixture_write(f, SINGLE, "\x08\0\0\0\0\0\0", 7);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "7 bytes", NULL);
    fixture_write(f, SINGLE, "\x08\0\0\0\0\0\0\0{\"a\":{}", 15);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "cut short", "16", "15", NULL);
    fixture_write(f, SINGLE, "", 0);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "0 bytes", NULL);

    getrusage(RUSAGE_SELF, &after);
#if !defined(__SANITIZE_ADDRESS__) /* whose own memory grows with every allocation */
    assert_true(after.ru_maxrss - before.ru_maxrss <= 1024); /* KiB */
#endif
}

static void pointers_in_place_of_configuration_are_named(void **state)
{
    fixture *f = *state;
    fixture_write_text(f, "config.json", "version https://git-lfs.github.com/spec/v1\noid x\n");
    expect_refusal(f, TT_ERR_FILE, "config.json", "unfetched large-file pointer", NULL);
}

static void broken_headers_are_refused(void **state)
{
    static const struct {
        const char *header;
        size_t n_data;
        const char *say[2];
    } cases[] = {
        {"", 0, {"not a JSON object", NULL}},
        {"[1]", 0, {"not a JSON object", NULL}},
        {"{\"a\":", 0, {"bad JSON", NULL}},
        {"{} x", 0, {"bad JSON", NULL}},
        {"{}}", 0, {"bad JSON", NULL}},
        {"{]", 0, {"bad JSON", NULL}},
        {"{,}", 0, {"bad JSON", NULL}},
        {"{\"__metadata__\":{\"a\":\"b\"},}", 0, {"bad JSON", NULL}},
        {"{\"__metadata__\":{\"a\":\"b\"},,\"a\":1}", 0, {"bad JSON", NULL}},
        {"{\"__metadata__\":{\"a\":\"b\"}\"a\":1}", 0, {"bad JSON", NULL}},
        {"{\"__metadata__\":[}", 0, {"bad JSON", NULL}},
        {"{\"__metadata__\":{\"a\\\":\"b\"}", 0, {"bad JSON", NULL}},
        {"{\"__metadata__\":{\"a\":\"\xff\"}}", 0, {"bad JSON", NULL}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4,
         {"duplicate", NULL}},
        {"{\"a\":3}", 0, {"'a'", "not an object"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, {"'a'", "lacks"}},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, {"'a'", "lacks"}},
        {"{\"a\":{\"dtype\":\"Q9\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, {"'a'", "'Q9'"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[16,32],\"data_offsets\":[0,512]}}",
         512,
         {"'a' needs 2048", "512"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
         0,
         {"'a'", "beyond 64 bits"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}",
         0,
         {"'a'", "beyond 64 bits"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}",
         0,
         {"'a'", "beyond 64 bits"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]}}",
         0,
         {"'a'", "beyond 64 bits"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
         4,
         {"'a'", "negative"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}",
         4,
         {"'a'", "negative"}},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, {"'a'", "byte"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
         4,
         {"'a'", "bad data_offsets"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}",
         4,
         {"'a'", "bad data_offsets"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}",
         4,
         {"'a'", "bad data_offsets"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[16],"
         "\"data_offsets\":[9223372036854775743,9223372036854775807]}}",
         64,
         {"'a' ends at byte 9223372036854775807", "64"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         4,
         {"'a' ends at byte 8", "cut short"}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         12,
         {"'a' and 'b' overlap", NULL}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
         12,
         {"4 bytes before tensor 'b'", NULL}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8,
         {"4 bytes before tensor 'a'", NULL}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         9,
         {"last 5 bytes", NULL}},
        {"{\"a\\nb\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, {"a?b", NULL}},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_safetensors(f, SINGLE, cases[i].header, cases[i].n_data);
        expect_refusal(f, TT_ERR_FILE, SINGLE, cases[i].say[0], cases[i].say[1], NULL);
    }
}

/* Braces, commas and quotes inside strings do not end a member; white space around members is fine.
 */
static void odd_but_legal_headers_open(void **state)
{
    fixture *f = *state;
    maker m = {0};
    const int64_t one[] = {1};
    for (int layer = -1; layer < TINY_L; layer++) {
        tiny_add(&m, layer);
    }
    maker_add(&m, "visual.odd,{]}[name", "F32", 1, one, 0);
    maker_add(&m, "visual.\\u00e9\\\\", "F32", 1, one, 0);
    size_t n = m.n_header + 256;
    char *text = malloc(n);
    assert_non_null(text);
    snprintf(text, n, "{ \"__metadata__\" :\n{\"a\\\\\\\"},{\":\"\\u007d,\"} ,\t%.*s \r}\n   ",
             (int)m.n_header, m.header);
    write_safetensors(f, SINGLE, text, m.n_data);
    free(text);
    maker_fini(&m);
    expect_opens(f);
}

static void deep_json_is_refused(void **state)
{
    fixture *f = *state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH + 8);
    assert_non_null(text);
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', DEPTH);
    text[DEPTH + 5] = 0;
    write_safetensors(f, SINGLE, text, 0);
    free(text);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "bad JSON", NULL);
}

static void cut_files_are_refused_at_every_length(void **state)
{
    fixture *f = *state;
    size_t n;
    unsigned char *bytes = read_whole(fixture_path(f, SINGLE), &n);
    for (size_t keep = 0; keep < n; keep += keep < 64 ? 1 : 61) {
        fixture_write(f, SINGLE, bytes, keep);
        expect_refusal(f, TT_ERR_FILE, SINGLE, NULL);
    }
    free(bytes);
}

/* Every byte of the header changed, one at a time: whatever happens, it is an answer and not a
 * crash. */
static void changed_bytes_never_crash(void **state)
{
    fixture *f = *state;
    size_t n, n_refused = 0, n_tried = 0;
    unsigned char *bytes = read_whole(fixture_path(f, SINGLE), &n);
    for (size_t i = 0; i < n; i += i < 600 ? 1 : 37) {
        unsigned char old = bytes[i];
        bytes[i] = (unsigned char)(old ^ (1u << (i % 8)));
        fixture_write(f, SINGLE, bytes, n);
        tt_model *model = NULL;
        tt_status st = tt_model_open(f->dir, &model);
        assert_true(st == TT_OK || st == TT_ERR_FILE || st == TT_ERR_UNSUPPORTED);
        assert_true((st == TT_OK) == (model != NULL));
        n_refused += st != TT_OK;
        n_tried++;
        tt_model_close(&model);
        bytes[i] = old;
    }
    free(bytes);
    assert_true(n_refused > n_tried / 4);
}

static void empty_tensors_are_accepted_unless_needed(void **state)
{
    fixture *f = *state;
    maker m = {0};
    const int64_t none[] = {0}, wide[] = {1 << 20, 0, 1 << 20, 7}, hidden[] = {TINY_H};
    maker_add(&m, "visual.first", "F32", 1, none, 0);
    for (int layer = -1; layer < TINY_L; layer++) {
        tiny_add(&m, layer);
        maker_add(&m,
                  layer == 0  ? "visual.middle"
                  : layer < 0 ? "visual.wide"
                              : "visual.last",
                  "F64", layer < 0 ? 4 : 1, layer < 0 ? wide : none, 0);
    }
    maker_add(&m, "visual.scalar", "I64", 0, NULL, 0);
    maker_save(&m, f, SINGLE);
    maker_fini(&m);
    expect_opens(f);

    for (int layer = 0; layer < TINY_L; layer++) {
        tiny_add(&m, layer);
    }
    maker_add(&m, "model.norm.weight", "BF16", 1, hidden, 0);
    const int64_t empty_rows[] = {0, TINY_H};
    maker_add(&m, "model.embed_tokens.weight", "BF16", 2, empty_rows, 0);
    maker_save(&m, f, SINGLE);
    maker_fini(&m);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "model.embed_tokens.weight", "[0, 8]", "[6, 8]", NULL);
}

/* One wrong tensor in an otherwise whole file. */
static void write_with(const fixture *f, const char *name, const char *dtype, int n_dims,
                       const int64_t *dim)
{
    maker m = {0};
    for (int layer = -1; layer < TINY_L; layer++) {
        tiny_add(&m, layer);
    }
    /* Same length of name, so that only the member changes: the old one becomes a part beside the
     * text model. */
    char *at = strstr(m.header, name);
    assert_non_null(at);
    memset(at, 'x', strlen(name));
    memcpy(at, "visual.", strlen("visual."));
    if (dtype) {
        maker_add(&m, name, dtype, n_dims, dim, 0);
    }
    maker_save(&m, f, SINGLE);
    maker_fini(&m);
}

static void missing_and_misshapen_tensors_are_named(void **state)
{
    fixture *f = *state;
    const char *expert = "model.layers.1.mlp.experts.3.down_proj.weight";
    const int64_t turned[] = {TINY_F, TINY_H}, right[] = {TINY_H, TINY_F};
    const int64_t deep[] = {2, TINY_H, TINY_F}, deeper[] = {1, 2, TINY_H, TINY_F};
    write_with(f, expert, NULL, 0, NULL);
    expect_refusal(f, TT_ERR_FILE, SINGLE, expert, "missing", NULL);
    write_with(f, expert, "BF16", 2, turned);
    expect_refusal(f, TT_ERR_FILE, SINGLE, expert, "[3, 8]", "[8, 3]", NULL);
    write_with(f, expert, "BF16", 3, deep);
    expect_refusal(f, TT_ERR_FILE, SINGLE, expert, "[2, 8, 3]", NULL);
    write_with(f, expert, "BF16", 4, deeper);
    expect_refusal(f, TT_ERR_FILE, SINGLE, expert, "[1, 2, 8, 3]", NULL);
    write_with(f, expert, "F8_E4M3", 2, right);
    expect_refusal(f, TT_ERR_FILE, SINGLE, expert, "F8_E4M3", "quantization_config", NULL);
    write_with(f, expert, "I64", 2, right);
    expect_refusal(f, TT_ERR_UNSUPPORTED, SINGLE, expert, "I64", NULL);
    write_with(f, expert, "F32", 2, right);
    expect_opens(f);
    write_with(f, "model.norm.weight", NULL, 0, NULL);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "model.norm.weight", "missing", NULL);
    write_with(f, "model.layers.0.mlp.experts.0.gate_proj.weight", NULL, 0, NULL);
    expect_refusal(f, TT_ERR_FILE, "model.layers.0.mlp.experts.0.gate_proj.weight", NULL);
}

/* ---- shards ---- */

enum { N_SHARDS = 3 };
static const char *const shard_names[N_SHARDS] = {"model-00001-of-00003.safetensors",
                                                  "model-00002-of-00003.safetensors",
                                                  "model-00003-of-00003.safetensors"};

/* Lists the tensors of m in the weight map as lying in file. */
static void list_tensors(json_t *map, const maker *m, const char *file)
{
    size_t n = m->n_header + 3;
    char *text = malloc(n);
    assert_non_null(text);
    snprintf(text, n, "{%.*s}", (int)m->n_header, m->header);
    json_t *header = json_loads(text, 0, NULL);
    assert_non_null(header);
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value)
    {
        json_object_set_new(map, name, json_string(file));
    }
    json_decref(header);
    free(text);
}

/* The tiny model in three shards; returns its index, not yet written. */
static json_t *write_shards(const fixture *f)
{
    json_t *map = json_object();
    fixture_remove(f, SINGLE);
    for (int i = 0; i < N_SHARDS; i++) {
        maker m = {0};
        tiny_add(&m, i - 1);
        list_tensors(map, &m, shard_names[i]);
        maker_save(&m, f, shard_names[i]);
        maker_fini(&m);
    }
    return json_pack("{s:{s:i},s:o}", "metadata", "total_size", 1, "weight_map", map);
}

static void write_index(const fixture *f, json_t *index)
{
    fixture_write_json(f, INDEX, index);
    json_decref(index);
}

static void shards_open_and_a_missing_one_is_named(void **state)
{
    fixture *f = *state;
    write_index(f, write_shards(f));
    expect_opens(f);
    fixture_remove(f, shard_names[1]);
    expect_refusal(f, TT_ERR_FILE, INDEX, shard_names[1], "missing", NULL);
}

static void a_cut_shard_is_named(void **state)
{
    fixture *f = *state;
    write_index(f, write_shards(f));
    size_t n;
    unsigned char *bytes = read_whole(fixture_path(f, shard_names[2]), &n);
    fixture_write(f, shard_names[2], bytes, n * 6 / 10);
    free(bytes);
    expect_refusal(f, TT_ERR_FILE, shard_names[2], "cut short", NULL);
}

static void a_listed_tensor_that_is_absent_is_named(void **state)
{
    fixture *f = *state;
    json_t *index = write_shards(f);
    json_object_set_new(json_object_get(index, "weight_map"), "model.norm.weight",
                        json_string(shard_names[1]));
    write_index(f, index);
    expect_refusal(f, TT_ERR_FILE, shard_names[1], "model.norm.weight", NULL);
}

static void a_tensor_that_the_index_omits_is_missing(void **state)
{
    fixture *f = *state;
    json_t *index = write_shards(f);
    json_object_del(json_object_get(index, "weight_map"), "model.norm.weight");
    write_index(f, index);
    expect_refusal(f, TT_ERR_FILE, INDEX, "model.norm.weight", "missing", NULL);
}

static void names_that_leave_the_directory_are_refused(void **state)
{
    static const char *const names[] = {
        "../model.safetensors", "/etc/passwd",          "..", ".", "",
        "a\\b.safetensors",     "sub/model.safetensors"};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *index = write_shards(f);
        json_object_set_new(json_object_get(index, "weight_map"), "model.norm.weight",
                            json_string(names[i]));
        write_index(f, index);
        expect_refusal(f, TT_ERR_FILE, INDEX, names[i], "plain file name", NULL);
    }
}

static void broken_indexes_are_refused(void **state)
{
    fixture *f = *state;
    json_decref(write_shards(f));
    static const struct {
        const char *text, *say;
    } cases[] = {
        {"", "bad JSON"},
        {"[]", "not an object"},
        {"{}", "weight_map"},
        {"{\"weight_map\":[]}", "weight_map"},
        {"{\"weight_map\":{}}", "no tensor"},
        {"{\"weight_map\":{\"a\":1}}", "'a'"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}", "duplicate"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture_write_text(f, INDEX, cases[i].text);
        expect_refusal(f, TT_ERR_FILE, INDEX, cases[i].say, NULL);
    }
}

static void special_files_are_refused_without_waiting(void **state)
{
    fixture *f = *state;
    fixture_remove(f, SINGLE);
    assert_int_equal(mkfifo(fixture_path(f, SINGLE), 0600), 0);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "not a regular file", NULL);
    fixture_remove(f, SINGLE);
    assert_int_equal(mkdir(fixture_path(f, SINGLE), 0700), 0);
    expect_refusal(f, TT_ERR_FILE, SINGLE, "not a regular file", NULL);
}

/* Collects what is logged to stderr while fn runs. */
static char *logged(void (*fn)(const fixture *), const fixture *f)
{
    const char *log = fixture_path(f, "log.txt");
    int old = dup(STDERR_FILENO);
    assert_true(old >= 0);
    assert_non_null(freopen(log, "w", stderr));
    fn(f);
    fflush(stderr);
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    size_t n;
    unsigned char *text = read_whole(fixture_path(f, "log.txt"), &n);
    text[n] = 0;
    return (char *)text;
}

static void check_first_row_is_ones(const fixture *f)
{
    tt_model *model = NULL;
    assert_int_equal(tt_model_open(f->dir, &model), TT_OK);
    tt_tensor embed = tt_model_tensor(model, TT_ROLE_EMBED, 0, 0);
    float row[TINY_V * TINY_H];
    assert_int_equal(tt_model_read_f32(model, &embed, 0, embed.rows, row), TT_OK);
    for (int i = 0; i < TINY_V * TINY_H; i++) {
        assert_true(row[i] == 1.0f);
    }
    tt_model_close(&model);
}

static void add_filled(maker *m, const char *name, float value)
{
    float data[TINY_V * TINY_H];
    for (int i = 0; i < TINY_V * TINY_H; i++) {
        data[i] = value;
    }
    const int64_t dim[] = {TINY_V, TINY_H};
    maker_add_bytes(m, name, "F32", 2, dim, data, sizeof(data));
}

/* The embedding is 1 in the shard that the index names, 2 in another, 3 in a file beside. */
static void the_index_decides_between_copies(void **state)
{
    fixture *f = *state;
    for (int swapped = 0; swapped < 2; swapped++) {
        json_t *index = write_shards(f);
        json_t *map = json_object_get(index, "weight_map");
        int named = swapped ? 2 : 1, other = swapped ? 1 : 2;
        for (int i = 1; i < N_SHARDS; i++) {
            maker m = {0};
            tiny_add(&m, i - 1);
            add_filled(&m, "model.embed_tokens.weight", i == named ? 1 : 2);
            maker_save(&m, f, shard_names[i]);
            maker_fini(&m);
        }
        maker m = {0};
        add_filled(&m, "model.embed_tokens.weight", 3);
        maker_save(&m, f, "consolidated.safetensors");
        maker_fini(&m);
        fixture_write_text(f, "broken.safetensors", "not weights at all");
        fixture_write_text(f, SINGLE, "nor is this");
        json_object_set_new(map, "model.embed_tokens.weight", json_string(shard_names[named]));
        write_index(f, index);
        char *text = logged(check_first_row_is_ones, f);
        assert_non_null(strstr(text, "model.embed_tokens.weight"));
        assert_non_null(strstr(text, shard_names[named]));
        assert_non_null(strstr(text, shard_names[other]));
        assert_null(strstr(text, "consolidated"));
        free(text);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up_tiny, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(whole_checkpoint_opens),
        TEST(missing_directory_and_file_path_are_refused),
        TEST(no_weights_are_refused),
        TEST(absurd_header_lengths_are_refused_without_memory),
        TEST(pointers_in_place_of_configuration_are_named),
        TEST(broken_headers_are_refused),
        TEST(odd_but_legal_headers_open),
        TEST(deep_json_is_refused),
        TEST(cut_files_are_refused_at_every_length),
        TEST(changed_bytes_never_crash),
        TEST(empty_tensors_are_accepted_unless_needed),
        TEST(missing_and_misshapen_tensors_are_named),
        TEST(shards_open_and_a_missing_one_is_named),
        TEST(a_cut_shard_is_named),
        TEST(a_listed_tensor_that_is_absent_is_named),
        TEST(a_tensor_that_the_index_omits_is_missing),
        TEST(names_that_leave_the_directory_are_refused),
        TEST(broken_indexes_are_refused),
        TEST(special_files_are_refused_without_waiting),
        TEST(the_index_decides_between_copies),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    tt_log_set_level(TT_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
