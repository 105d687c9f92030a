/* test_convert.c - packed checkpoints of GGUF files are the same models with the same tokenizer,
 * although nothing could be copied: the same tt_arch to the bit, the same numbers in every role,
 * the same end ids, sampling and texts. tests/cli/convert.sh compares logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gguf_maker.h"
#include "gguf_model.h"
#include "model_compare.h"
#include "tutti/convert.h"
#include "tutti/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void convert(const fixture *f, const tt_model *model, const char *name)
{
    char out[512];
    uint64_t bytes = 0;
    snprintf(out, sizeof(out), "%s/%s", f->dir, name);
    tt_convert_params params = {.model = model, .out = out};
    if (tt_convert(&params, &bytes) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    assert_true(bytes > 0);
}

/* A GGUF file, and the packed checkpoint "out" that is made of it. */
static void open_with_packed(fixture *f, const char *name, tt_model **model_out,
                             tt_model **packed_out)
{
    char path[128];
    fixture_begin(f);
    snprintf(path, sizeof(path), "tests/golden/gguf/%s", name);
    *model_out = open_model(source_path(path));
    convert(f, *model_out, "out");
    *packed_out = open_model(fixture_path(f, "out"));
}

/* fixture_end removes files only. */
static void remove_out(const fixture *f, const char *name)
{
    static const char *const files[] = {"model.safetensors", "config.json",
                                        "generation_config.json", TTI_GGUF_TOKENIZER};
    char path[512];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/%s", f->dir, name, files[i]);
        remove(path);
    }
    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    assert_int_equal(remove(path), 0); /* and nothing else was in it */
}

/* What compare_models allows to differ a little must not here. */
static void compare_closely(const tt_model *a, const tt_model *b)
{
    const tt_arch *x = tt_model_arch(a), *y = tt_model_arch(b);
    assert_int_equal(x->rope.interleaved, y->rope.interleaved);
    assert_int_equal(x->mla_split, y->mla_split);
    assert_memory_equal(x->rope.inv_freq, y->rope.inv_freq,
                        (size_t)(x->rope.dim / 2) * sizeof(float));
    assert_true(x->softmax_scale == y->softmax_scale && x->norm_eps == y->norm_eps &&
                x->router.scale == y->router.scale);
    assert_true(x->embedding_scale == y->embedding_scale &&
                x->residual_scale == y->residual_scale && x->logit_divisor == y->logit_divisor);
    assert_true(x->rope.attention_factor == y->rope.attention_factor &&
                x->query_scale == y->query_scale);
    size_t n, m;
    const int32_t *ids = tt_model_end_ids(a, &n), *other = tt_model_end_ids(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(ids, other, n * sizeof(*ids));
}

static void packed_ones_are_the_same_models(void **state)
{
    (void)state;
    static const char *const names[] = {"deepseek_v3.gguf",
                                        "gpt_oss_mxfp4.gguf",
                                        "granitemoeshared.gguf",
                                        "llama4_text.gguf",
                                        "qwen2_moe.gguf",
                                        "qwen3_next.gguf",
                                        "split",
                                        "types_a.gguf",
                                        "types_b.gguf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fixture f;
        tt_model *a, *b;
        open_with_packed(&f, names[i], &a, &b);
        compare_models(names[i], a, b);
        compare_closely(a, b);
        bool has_tokenizer = true;
        assert_int_equal(tt_tokenizer_exists(fixture_path(&f, "out"), &has_tokenizer), TT_OK);
        assert_false(has_tokenizer); /* the files have none */
        convert(&f, b, "again");
        tt_model *c = open_model(fixture_path(&f, "again"));
        compare_closely(a, c);
        tt_model_close(&a);
        tt_model_close(&b);
        tt_model_close(&c);
        remove_out(&f, "out");
        remove_out(&f, "again");
        fixture_end(&f);
    }
}

/* Reads a whole matrix with the first scales of its panel `at` made NaN (0xff in every type). */
static void expect_refused(const tt_model *model, const tt_tensor *tensor, const char *path,
                           int64_t at)
{
    const tti_part *part = &tensor->source->part[TTI_PART_CODE];
    const long place = (long)part->offset + (long)at * (long)part->words;
    unsigned char old[4], bad[4] = {0xff, 0xff, 0xff, 0xff};
    float *dst = malloc((size_t)(tensor->rows * tensor->cols) * sizeof(float));
    FILE *file = fopen(path, "r+b");
    assert_non_null(dst);
    assert_non_null(file);
    assert_int_equal(fseek(file, place, SEEK_SET), 0);
    assert_int_equal(fread(old, 1, sizeof(old), file), sizeof(old));
    assert_int_equal(fseek(file, place, SEEK_SET), 0);
    assert_int_equal(fwrite(bad, 1, sizeof(bad), file), sizeof(bad));
    assert_int_equal(fflush(file), 0);
    const tt_status st = tt_model_read_f32(model, tensor, 0, tensor->rows, dst);
    if (st != TT_ERR_FILE || !strstr(tt_status_message(), tensor->name) ||
        !strstr(tt_status_message(), "are infinite or no number")) {
        fail_msg("%s: %s", tensor->name, st == TT_OK ? "read" : tt_status_message());
    }
    assert_int_equal(fseek(file, place, SEEK_SET), 0);
    assert_int_equal(fwrite(old, 1, sizeof(old), file), sizeof(old));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(tt_model_read_f32(model, tensor, 0, tensor->rows, dst), TT_OK);
    free(dst);
}

static void scales_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"types_a.gguf", "types_b.gguf", "gpt_oss_mxfp4.gguf"};
    int n = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fixture f;
        tt_model *a, *b;
        open_with_packed(&f, names[i], &a, &b);
        tt_tensor_place at = {0};
        tt_tensor tensor;
        while (tt_model_next_tensor(b, &at, &tensor)) {
            if (tensor.source->scheme == TTI_SCHEME_PANELS &&
                !ttk_format_is_plain(&tensor.format)) {
                expect_refused(b, &tensor, fixture_path(&f, "out/model.safetensors"),
                               (tensor.rows - 1) / TTK_PANEL);
                n++;
            }
        }
        tt_model_close(&a);
        tt_model_close(&b);
        remove_out(&f, "out");
        fixture_end(&f);
    }
    assert_true(n > 20);
}

/* ---- with a tokenizer ---- */

/* One of the files above with the tokenizer of another, and what its author says of sampling. */
static void make_file(const fixture *f, const char *name)
{
    gguf_source model, vocabulary;
    gguf_maker m = {0};
    gguf_source_open(&model, "tests/golden/gguf/qwen2_moe.gguf");
    gguf_source_open(&vocabulary, "tests/golden/gguf/vocabulary.gguf");
    for (size_t i = 0; i < model.gguf.n_keys; i++) {
        if (strncmp(gguf_name(model.gguf.key[i].name), "tokenizer.", 10) != 0) {
            gguf_put_key(&m, &model.gguf.key[i]);
        }
    }
    for (size_t i = 0; i < vocabulary.gguf.n_keys; i++) {
        if (strncmp(gguf_name(vocabulary.gguf.key[i].name), "tokenizer.", 10) == 0) {
            gguf_put_key(&m, &vocabulary.gguf.key[i]);
        }
    }
    gguf_put_real(&m, "general.sampling.temp", 0.7f);
    gguf_put_real(&m, "general.sampling.top_p", 0.95f);
    gguf_put_int(&m, "general.sampling.top_k", TTI_GGUF_I32, 20);
    for (size_t i = 0; i < model.gguf.n_tensors; i++) {
        const tti_gguf_tensor *t = &model.gguf.tensor[i];
        gguf_put_tensor(&m, gguf_name(t->name), t->n_dims, t->dim, t->type->id,
                        model.bytes + t->offset, (size_t)t->bytes);
    }
    gguf_save(&m, f, name);
    gguf_maker_fini(&m);
    gguf_source_close(&model);
    gguf_source_close(&vocabulary);
}

static tt_tokenizer *open_tokenizer(const char *path)
{
    tt_tokenizer *t = NULL;
    if (tt_tokenizer_create(path, &t) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return t;
}

static void compare_ids(const tt_ids *a, const tt_ids *b)
{
    assert_true(a->n > 0);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, a->n * sizeof(*a->id));
}

static void compare_tokenizers(const tt_tokenizer *a, const tt_tokenizer *b)
{
    static const char text[] =
        "What is MPI_Alltoallv?\n  tutti: 12345 \xc3\xa9\xf0\x9f\x98\x80 <|end|>";
    tt_chat_message message = {"user", text};
    assert_int_equal(tt_tokenizer_bos_id(a), tt_tokenizer_bos_id(b));
    assert_int_equal(tt_tokenizer_eos_id(a), tt_tokenizer_eos_id(b));
    assert_int_equal(tt_tokenizer_n_ids(a), tt_tokenizer_n_ids(b));
    assert_true(tt_tokenizer_has_chat_template(a) && tt_tokenizer_has_chat_template(b));
    for (int flags = 0; flags < 4; flags++) {
        tt_ids x = {0}, y = {0};
        assert_int_equal(tt_tokenizer_encode(a, text, strlen(text), (unsigned)flags, &x), TT_OK);
        assert_int_equal(tt_tokenizer_encode(b, text, strlen(text), (unsigned)flags, &y), TT_OK);
        compare_ids(&x, &y);
        tt_ids_fini(&x);
        tt_ids_fini(&y);
    }
    tt_ids x = {0}, y = {0};
    assert_int_equal(tt_tokenizer_encode_chat(a, &message, 1, &x), TT_OK);
    assert_int_equal(tt_tokenizer_encode_chat(b, &message, 1, &y), TT_OK);
    compare_ids(&x, &y);
    tt_ids_fini(&x);
    tt_ids_fini(&y);
    size_t n, m;
    const int32_t *stop = tti_tokenizer_stop_ids(a, &n), *other = tti_tokenizer_stop_ids(b, &m);
    assert_true(n > 0 && n == m);
    assert_memory_equal(stop, other, n * sizeof(*stop));
}

static void the_tokenizer_comes_along(void **state)
{
    const fixture *f = *state;
    make_file(f, "whole.gguf");
    tt_model *a = open_model(fixture_path(f, "whole.gguf"));
    convert(f, a, "out");
    tt_model *b = open_model(fixture_path(f, "out"));
    compare_closely(a, b);
    tt_generation x = tt_model_generation(a), y = tt_model_generation(b);
    assert_true(x.temperature == y.temperature && x.top_p == y.top_p && x.top_k == y.top_k &&
                x.do_sample == y.do_sample);
    assert_true(y.top_k == 20 && (float)y.temperature == 0.7f);
    /* A second time: from the packed one. */
    convert(f, b, "again");
    tt_tokenizer *original = open_tokenizer(fixture_path(f, "whole.gguf"));
    static const char *const outs[] = {"out", "again"};
    for (size_t i = 0; i < 2; i++) {
        bool has = false;
        assert_int_equal(tt_tokenizer_exists(fixture_path(f, outs[i]), &has), TT_OK);
        assert_true(has);
        tt_tokenizer *packed = open_tokenizer(fixture_path(f, outs[i]));
        compare_tokenizers(original, packed);
        tt_tokenizer_destroy(&packed);
    }
    tt_tokenizer_destroy(&original);
    tt_model_close(&a);
    tt_model_close(&b);
    remove_out(f, "out");
    remove_out(f, "again");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_ones_are_the_same_models),
                                       cmocka_unit_test(scales_that_are_no_numbers_are_refused),
                                       TEST(the_tokenizer_comes_along)};
    ttk_init(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
