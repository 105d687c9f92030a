/* test_gguf_model.c - GGUF files made by another converter are the same models as the checkpoints
 * that they were made from: the same tt_arch, and the same numbers in every role of every layer and
 * expert. Also: which file a path means, split models, and configurations that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gguf_maker.h"
#include "gguf_model.h"
#include "model_compare.h"
#include "model_fixture.h"
#include "tutti/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void converted_files_are_the_same_models(void **state)
{
    (void)state;
    static const char *const names[] = {"deepseek_v3", "granitemoeshared", "llama4_text",
                                        "qwen2_moe", "qwen3_next"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[128];
        snprintf(path, sizeof(path), "tests/golden/architectures/%s", names[i]);
        tt_model *a = open_model(source_path(path));
        snprintf(path, sizeof(path), "tests/golden/gguf/%s.gguf", names[i]);
        tt_model *b = open_model(source_path(path));
        compare_models(names[i], a, b);
        tt_model_close(&a);
        tt_model_close(&b);
    }
}

/* The parts of a split model, however they are named: any part, or their folder. */
static void any_part_means_the_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"tests/golden/gguf/split",
                                        "tests/golden/gguf/split/llama_dense-00001-of-00003.gguf",
                                        "tests/golden/gguf/split/llama_dense-00003-of-00003.gguf"};
    tt_model *a = open_model(source_path("tests/golden/architectures/llama_dense"));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        tt_model *b = open_model(source_path(names[i]));
        compare_models(names[i], a, b);
        tt_model_close(&b);
    }
    tt_model_close(&a);
}

static void copy_part(const fixture *f, const char *name, const char *as)
{
    char path[128];
    size_t n;
    snprintf(path, sizeof(path), "tests/golden/gguf/split/%s", name);
    unsigned char *bytes = read_whole(source_path(path), &n);
    fixture_write(f, as, bytes, n);
    free(bytes);
}

static void broken_splits_are_refused(void **state)
{
    const fixture *f = *state;
    tt_model *model = NULL;
    copy_part(f, "llama_dense-00001-of-00003.gguf", "m-00001-of-00003.gguf");
    copy_part(f, "llama_dense-00003-of-00003.gguf", "m-00003-of-00003.gguf");
    expect_message(tt_model_open(f->dir, &model), TT_ERR_FILE, "m-00002-of-00003.gguf",
                   "No such file");
    copy_part(f, "llama_dense-00003-of-00003.gguf", "m-00002-of-00003.gguf");
    expect_message(tt_model_open(f->dir, &model), TT_ERR_FILE, "m-00002-of-00003.gguf", "split.no");
    copy_part(f, "llama_dense-00001-of-00003.gguf", "alone.gguf");
    expect_message(tt_model_open(f->dir, &model), TT_ERR_FILE, f->dir, "several GGUF models");
    expect_message(tt_model_open(fixture_path(f, "alone.gguf"), &model), TT_ERR_FILE, "alone.gguf",
                   "one of 3 parts");
    copy_part(f, "llama_dense-00001-of-00003.gguf", "n-00001-of-00002.gguf");
    expect_message(tt_model_open(fixture_path(f, "n-00001-of-00002.gguf"), &model), TT_ERR_FILE,
                   "split.count", "3");
}

/* Copies a file with some bytes replaced: `from` is there once and as long as `to`. */
static void change(const fixture *f, const char *source, const char *from, const char *to,
                   size_t n_bytes)
{
    size_t n, at = 0, hits = 0;
    unsigned char *bytes = read_whole(source_path(source), &n);
    for (size_t i = 0; i + n_bytes <= n; i++) {
        if (memcmp(bytes + i, from, n_bytes) == 0) {
            at = i;
            hits++;
        }
    }
    assert_int_equal(hits, 1);
    memcpy(bytes + at, to, n_bytes);
    fixture_write(f, "m.gguf", bytes, n);
    free(bytes);
}

static void unknown_and_missing_keys_are_named(void **state)
{
    (void)state;
    static const char source[] = "tests/golden/gguf/qwen2_moe.gguf";
    static const struct {
        const char *from, *to, *say[2];
        tt_status status;
    } cases[] = {
        {"general.architecture",
         "general.architecturf",
         {"general.architecture", "missing"},
         TT_ERR_FILE},
        {"qwen2moe.embedding_length",
         "qwen2moe.embedding_lengtx",
         {"qwen2moe.embedding_length", "missing"},
         TT_ERR_FILE},
        {"qwen2moe.block_count",
         "qwen2moe.block_counx",
         {"qwen2moe.block_count", "missing"},
         TT_ERR_FILE},
        {"qwen2moe.expert_used_count",
         "qwen2moe.expert_used_counx",
         {"qwen2moe.expert_used_count", "missing"},
         TT_ERR_FILE},
        {"token_embd.weight", "token_embx.weight", {"token_embd.weight", "missing"}, TT_ERR_FILE},
        {"blk.1.attn_k.weight",
         "blk.1.attn_x.weight",
         {"blk.1.attn_k.weight", "missing"},
         TT_ERR_FILE},
        {"blk.2.ffn_down_exps.weight",
         "blk.2.ffn_down_expx.weight",
         {"blk.2.ffn_down_exps.weight", "missing"},
         TT_ERR_FILE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        tt_model *model = NULL;
        fixture_begin(&f);
        change(&f, source, cases[i].from, cases[i].to, strlen(cases[i].from));
        expect_message(tt_model_open(fixture_path(&f, "m.gguf"), &model), cases[i].status,
                       cases[i].say[0], cases[i].say[1]);
        assert_non_null(strstr(tt_status_message(), "m.gguf"));
        fixture_end(&f);
    }
}

/* Real files are cut by full disks and broken downloads; and by whoever wants to see us crash. */
static void cut_files_are_refused(void **state)
{
    size_t n;
    const fixture *f = *state;
    unsigned char *bytes = read_whole(source_path("tests/golden/gguf/qwen2_moe.gguf"), &n);
    for (size_t cut = 0; cut < n; cut += cut < 6000 ? 97 : n / 40) {
        tt_model *model = NULL;
        fixture_write(f, "m.gguf", bytes, cut);
        expect_message(tt_model_open(fixture_path(f, "m.gguf"), &model), TT_ERR_FILE, "m.gguf",
                       "the file has");
    }
    free(bytes);
}

static void tokenizers_agree(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "What is hwloc?", "  two  spaces\n\nand\tmore 12345 \xc3\xa4\xe2\x82\xac",
        "int main(void) { return 0; }", "", "\xf0\x9f\x98\x80 don't"};
    tt_tokenizer *a = NULL, *b = NULL;
    assert_int_equal(tt_tokenizer_create(source_path("models/tiny-moe"), &a), TT_OK);
    if (tt_tokenizer_create(source_path("tests/golden/gguf/vocabulary.gguf"), &b) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (unsigned flags = TT_ENCODE_PLAIN; flags <= TT_ENCODE_SPECIAL; flags++) {
            tt_ids x = {0}, y = {0};
            tt_text text = {0};
            assert_int_equal(tt_tokenizer_encode(a, texts[i], strlen(texts[i]), flags, &x), TT_OK);
            assert_int_equal(tt_tokenizer_encode(b, texts[i], strlen(texts[i]), flags, &y), TT_OK);
            assert_int_equal(x.n, y.n);
            assert_true(x.n == 0 || memcmp(x.id, y.id, x.n * sizeof(*x.id)) == 0);
            assert_int_equal(tt_tokenizer_decode(b, y.id, y.n, true, &text), TT_OK);
            assert_string_equal(text.n ? text.bytes : "", texts[i]);
            tt_ids_fini(&x);
            tt_ids_fini(&y);
            tt_text_fini(&text);
        }
    }
    assert_int_equal(tt_tokenizer_has_chat_template(a), tt_tokenizer_has_chat_template(b));
    tt_tokenizer_destroy(&a);
    tt_tokenizer_destroy(&b);
}

/* Whether there is a tokenizer, of any kind, is asked before one is opened. */
static void tokenizers_are_found(void **state)
{
    static const struct {
        const char *path;
        bool exists;
    } cases[] = {{"tests/golden/gguf/vocabulary.gguf", true},
                 {"tests/golden/gguf/qwen2_moe.gguf", false},
                 {"tests/golden/gguf/split", false},
                 {"tests/golden/tokenizers/tiktoken", true},
                 {"models/tiny-moe", true},
                 {"models/tiny-moe/tokenizer.json", true},
                 {"tests/golden/architectures/mixtral", false}};
    bool exists;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        exists = !cases[i].exists;
        if (tt_tokenizer_exists(source_path(cases[i].path), &exists) != TT_OK ||
            exists != cases[i].exists) {
            fail_msg("%s: %d", cases[i].path, exists);
        }
    }
    const fixture *f = *state;
    fixture_link(f, "only.gguf", "tests/golden/gguf/vocabulary.gguf");
    assert_int_equal(tt_tokenizer_exists(f->dir, &exists), TT_OK);
    assert_true(exists);
    assert_int_equal(tt_tokenizer_exists("/no/such/folder", &exists), TT_ERR_FILE);
    assert_non_null(strstr(tt_status_message(), "/no/such/folder"));
}

/* ---- scales that are no numbers ---- */

static tt_role role_of(const char *name, int *layer_out)
{
    static const struct {
        const char *name;
        tt_role role;
    } roles[] = {{"attn_q.weight", TT_ROLE_Q},
                 {"attn_k.weight", TT_ROLE_K},
                 {"attn_v.weight", TT_ROLE_V},
                 {"attn_output.weight", TT_ROLE_O},
                 {"ffn_gate_exps.weight", TT_ROLE_EXPERT_GATE},
                 {"ffn_up_exps.weight", TT_ROLE_EXPERT_UP},
                 {"ffn_down_exps.weight", TT_ROLE_EXPERT_DOWN}};
    char suffix[128];
    if (sscanf(name, "blk.%d.%127s", layer_out, suffix) == 2) {
        for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
            if (strcmp(suffix, roles[i].name) == 0) {
                return roles[i].role;
            }
        }
    }
    return TT_ROLE_COUNT;
}

/* Spoils one scale in the last block of a tensor: its last row is refused, by name and count, and
 * its first one is read. */
static void spoil(const fixture *f, const char *file, size_t tensor_id, int half)
{
    enum { LAST_EXPERT = 2 };
    gguf_source s;
    int layer = 0;
    size_t n_bytes;
    unsigned char *bytes = read_whole(source_path(file), &n_bytes);
    gguf_source_open(&s, file);
    const tti_gguf_tensor *t = &s.gguf.tensor[tensor_id];
    unsigned char *block = bytes + t->offset + t->bytes - t->type->bytes;
    char name[128];
    snprintf(name, sizeof(name), "%s", gguf_name(t->name));
    tt_role role = role_of(name, &layer);
    if (t->type->n_halves > 0) { /* f16: a quiet NaN, an infinity */
        memcpy(block + t->type->half[half], half ? "\x00\x7c" : "\x00\x7e", 2);
    } else { /* E8M0 */
        block[0] = 0xff;
    }
    fixture_write(f, "m.gguf", bytes, n_bytes);
    free(bytes);
    gguf_source_close(&s);
    tt_model *model = open_model(fixture_path(f, "m.gguf"));
    tt_tensor whole = tt_model_tensor(
        model, role, layer,
        role >= TT_ROLE_EXPERT_GATE && role <= TT_ROLE_EXPERT_DOWN ? LAST_EXPERT : 0);
    assert_non_null(whole.name);
    float *row = malloc((size_t)whole.cols * sizeof(*row));
    assert_int_equal(tt_model_read_f32(model, &whole, 0, 1, row), TT_OK);
    expect_message(tt_model_read_f32(model, &whole, whole.rows - 1, 1, row), TT_ERR_FILE, name,
                   "1 scales");
    free(row);
    tt_model_close(&model);
}

static void scales_that_are_no_numbers_are_refused(void **state)
{
    static const char *const files[] = {"tests/golden/gguf/types_a.gguf",
                                        "tests/golden/gguf/types_b.gguf"};
    bool is_seen[64] = {false}; /* by GGML's number of the type */
    int n_types = 0;
    const fixture *f = *state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        gguf_source s;
        gguf_source_open(&s, files[i]);
        for (size_t k = 0; k < s.gguf.n_tensors; k++) {
            const tti_block_type *type = s.gguf.tensor[k].type;
            int layer = 0, n = type->n_halves > 0 ? type->n_halves : 1;
            if (type->elements == 1 || is_seen[type->id] ||
                role_of(gguf_name(s.gguf.tensor[k].name), &layer) == TT_ROLE_COUNT) {
                continue;
            }
            is_seen[type->id] = true;
            n_types++;
            for (int half = 0; half < n; half++) {
                spoil(f, files[i], k, half);
            }
        }
        gguf_source_close(&s);
    }
    assert_int_equal(n_types, 10); /* all that are read and have scales */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converted_files_are_the_same_models),
        cmocka_unit_test(any_part_means_the_whole),
        TEST(broken_splits_are_refused),
        cmocka_unit_test(unknown_and_missing_keys_are_named),
        TEST(cut_files_are_refused),
        TEST(scales_that_are_no_numbers_are_refused),
        cmocka_unit_test(tokenizers_agree),
        TEST(tokenizers_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
