/* test_gguf_model.c - GGUF files made by another converter are the same models as the checkpoints that they were made from: the same
 * tt_arch, and the same numbers in every role of every layer and expert. Also: which file a path means, split models, and
 * configurations that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_fixture.h"
#include "gguf_model.h"
#include "tutti/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tt_model *open_model(const char *path)
{
    tt_model *model = NULL;
    if (tt_model_open(path, &model) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return model;
}

static void expect_message(tt_status st, tt_status want, const char *a, const char *b)
{
    if (st != want || !strstr(tt_status_message(), a) || !strstr(tt_status_message(), b)) {
        fail_msg("%s instead of %s, or not '%s' and '%s': %s", tt_status_name(st), tt_status_name(want), a, b, tt_status_message());
    }
}

/* All numbers of a tensor; free() them. */
static float *numbers(const tt_model *model, const tt_tensor *tensor)
{
    float *x = malloc((size_t)(tensor->rows * tensor->cols) * sizeof(*x));
    if (tt_model_read_f32(model, tensor, 0, tensor->rows, x) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return x;
}

/* Row r of a head of width D whose pairs (i, i + D/2) are neighbours in the file. */
static int64_t unpermuted(int64_t r, int64_t D)
{
    int64_t i = r % D;
    return r - i + (i < D / 2 ? 2 * i : 2 * (i - D / 2) + 1);
}

static void compare_tensor(const char *name, const tt_model *a, const tt_model *b, tt_role role, int64_t layer, int64_t expert)
{
    const tt_arch *arch = tt_model_arch(a);
    tt_tensor ta = tt_model_tensor(a, role, layer, expert), tb = tt_model_tensor(b, role, layer, expert);
    if (!ta.name && !tb.name) {
        return;
    }
    if (!ta.name || !tb.name || ta.rows != tb.rows || ta.cols != tb.cols) {
        fail_msg("%s: role %d of layer %d differs in shape", name, (int)role, (int)layer);
    }
    bool permuted = arch->rope.interleaved != tt_model_arch(b)->rope.interleaved &&
                    (role == TT_ROLE_Q || role == TT_ROLE_K || role == TT_ROLE_Q_BIAS || role == TT_ROLE_K_BIAS);
    float *xa = numbers(a, &ta), *xb = numbers(b, &tb);
    bool is_zero = true;
    for (int64_t r = 0; r < ta.rows; r++) {
        int64_t rb = permuted ? unpermuted(r, arch->D) : r;
        for (int64_t c = 0; c < ta.cols; c++) {
            float va = xa[r * ta.cols + c], vb = xb[rb * ta.cols + c];
            is_zero = is_zero && va == 0.0f;
            /* exp in another place and other code: a rounding or two */
            bool equal = role == TT_ROLE_DELTA_DECAY_RATE ? fabsf(va - vb) <= 1e-6f * fabsf(va) : va == vb;
            if (!equal) {
                fail_msg("%s: role %d, layer %d, expert %d, [%d][%d]: %.9g and %.9g", name, (int)role, (int)layer, (int)expert, (int)r,
                         (int)c, (double)va, (double)vb);
            }
        }
    }
    if (is_zero) {
        fail_msg("%s: role %d of layer %d is all zero, which compares nothing", name, (int)role, (int)layer);
    }
    free(xa);
    free(xb);
}

/* KV_B of one against MLA_K (transposed per head) and MLA_V of the other. */
static void compare_latent(const tt_model *whole, const tt_model *split, int64_t layer)
{
    const tt_arch *a = tt_model_arch(whole);
    tt_tensor kv = tt_model_tensor(whole, TT_ROLE_KV_B, layer, 0);
    tt_tensor k = tt_model_tensor(split, TT_ROLE_MLA_K, layer, 0), v = tt_model_tensor(split, TT_ROLE_MLA_V, layer, 0);
    assert_true(kv.name && k.name && v.name);
    float *x = numbers(whole, &kv), *xk = numbers(split, &k), *xv = numbers(split, &v);
    for (int64_t h = 0; h < a->Nq; h++) {
        for (int64_t r = 0; r < a->kv_rank; r++) {
            for (int64_t d = 0; d < a->nope_dim; d++) {
                assert_true(x[(h * (a->nope_dim + a->v_dim) + d) * a->kv_rank + r] == xk[(h * a->kv_rank + r) * a->nope_dim + d]);
            }
            for (int64_t d = 0; d < a->v_dim; d++) {
                assert_true(x[(h * (a->nope_dim + a->v_dim) + a->nope_dim + d) * a->kv_rank + r] == xv[(h * a->v_dim + d) * a->kv_rank + r]);
            }
        }
    }
    free(x);
    free(xk);
    free(xv);
}

static void compare_arch(const char *name, const tt_arch *a, const tt_arch *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->n_mtp, b->n_mtp);
    for (int64_t i = 0; i < a->rope.dim / 2; i++) {
        if (!(fabsf(a->rope.inv_freq[i] - b->rope.inv_freq[i]) <= 2e-6f * a->rope.inv_freq[i])) {
            fail_msg("%s: frequency %d: %.9g and %.9g", name, (int)i, (double)a->rope.inv_freq[i], (double)b->rope.inv_freq[i]);
        }
    }
    for (int64_t i = 0; i < a->L + a->n_mtp; i++) {
        const tt_layer *x = &a->layer[i], *y = &b->layer[i];
        if (x->is_moe != y->is_moe || x->mixer != y->mixer || x->rope != y->rope || x->qk_norm != y->qk_norm ||
            x->scale_queries != y->scale_queries || x->window != y->window || x->chunk != y->chunk) {
            fail_msg("%s: layer %d differs", name, (int)i);
        }
    }
#define SAME(field)                                                                                                            \
    if (a->field != b->field) {                                                                                                \
        fail_msg("%s: " #field ": %g and %g", name, (double)a->field, (double)b->field);                                       \
    }
#define CLOSE(field)                                                                                                           \
    if (!(fabsf(a->field - b->field) <= 1e-6f * fabsf(a->field))) {                                                           \
        fail_msg("%s: " #field ": %.9g and %.9g", name, (double)a->field, (double)b->field);                                   \
    }
    SAME(L) SAME(H) SAME(V) SAME(context) SAME(norm) SAME(norm_place) SAME(norm_eps) SAME(tied_embeddings) SAME(head_bias)
    SAME(attention) SAME(Nq) SAME(Nkv) SAME(D) SAME(qk_norm) SAME(qk_norm_after_rope) SAME(qk_norm_weightless) SAME(qkv_bias) SAME(o_bias)
    SAME(sinks) SAME(attention_gate) SAME(q_rank) SAME(kv_rank) SAME(nope_dim) SAME(rope_dim) SAME(v_dim) SAME(rope.dim)
    SAME(delta.Nk) SAME(delta.Nv) SAME(delta.Dk) SAME(delta.Dv) SAME(delta.conv) SAME(E) SAME(K) SAME(F_shared) SAME(F_dense)
    SAME(shared_gate) SAME(expert_bias) SAME(activation) SAME(router.score) SAME(router.choice_bias) SAME(router.n_groups)
    SAME(router.n_groups_kept) SAME(router.normalise) SAME(router.logit_bias) SAME(router.weight_on_input) SAME(clip_qkv)
    CLOSE(embedding_scale) CLOSE(residual_scale) CLOSE(logit_divisor) CLOSE(query_scale) CLOSE(query_floor) CLOSE(softmax_scale)
    CLOSE(rope.attention_factor) CLOSE(router.scale) CLOSE(router.jitter) CLOSE(activation_limit) CLOSE(activation_alpha)
#undef SAME
#undef CLOSE
}

static void converted_files_are_the_same_models(void **state)
{
    (void)state;
    static const char *const names[] = {"deepseek_v3", "granitemoeshared", "llama4_text", "qwen2_moe", "qwen3_next"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[128];
        snprintf(path, sizeof(path), "tests/golden/architectures/%s", names[i]);
        tt_model *a = open_model(source_path(path));
        snprintf(path, sizeof(path), "tests/golden/gguf/%s.gguf", names[i]);
        tt_model *b = open_model(source_path(path));
        const tt_arch *arch = tt_model_arch(a);
        compare_arch(names[i], arch, tt_model_arch(b));
        bool split = tt_model_arch(b)->mla_split;
        for (int role = 0; role < TT_ROLE_COUNT; role++) {
            bool latent = role == TT_ROLE_KV_B || role == TT_ROLE_MLA_K || role == TT_ROLE_MLA_V;
            for (int64_t layer = 0; layer < arch->L + arch->n_mtp; layer++) {
                if (split && latent) {
                    continue;
                }
                bool of_expert = role >= TT_ROLE_EXPERT_GATE && role <= TT_ROLE_EXPERT_DOWN_BIAS;
                for (int64_t e = 0; e < (of_expert ? arch->E : 1); e++) {
                    compare_tensor(names[i], a, b, (tt_role)role, layer, e);
                }
            }
        }
        for (int64_t layer = 0; split && layer < arch->L; layer++) {
            compare_latent(a, b, layer);
        }
        tt_model_close(&a);
        tt_model_close(&b);
    }
}

/* The parts of a split model, however they are named: any part, or their folder. */
static void any_part_means_the_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"tests/golden/gguf/split", "tests/golden/gguf/split/llama_dense-00001-of-00003.gguf",
                                        "tests/golden/gguf/split/llama_dense-00003-of-00003.gguf"};
    tt_model *a = open_model(source_path("tests/golden/architectures/llama_dense"));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        tt_model *b = open_model(source_path(names[i]));
        compare_arch(names[i], tt_model_arch(a), tt_model_arch(b));
        for (int role = 0; role < TT_ROLE_COUNT; role++) {
            for (int64_t layer = 0; layer < tt_model_arch(a)->L; layer++) {
                compare_tensor(names[i], a, b, (tt_role)role, layer, 0);
            }
        }
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
    (void)state;
    fixture f;
    tt_model *model = NULL;
    fixture_begin(&f);
    copy_part(&f, "llama_dense-00001-of-00003.gguf", "m-00001-of-00003.gguf");
    copy_part(&f, "llama_dense-00003-of-00003.gguf", "m-00003-of-00003.gguf");
    expect_message(tt_model_open(f.dir, &model), TT_ERR_FILE, "m-00002-of-00003.gguf", "No such file");
    copy_part(&f, "llama_dense-00003-of-00003.gguf", "m-00002-of-00003.gguf");
    expect_message(tt_model_open(f.dir, &model), TT_ERR_FILE, "m-00002-of-00003.gguf", "split.no");
    copy_part(&f, "llama_dense-00001-of-00003.gguf", "alone.gguf");
    expect_message(tt_model_open(f.dir, &model), TT_ERR_FILE, f.dir, "several GGUF models");
    expect_message(tt_model_open(fixture_path(&f, "alone.gguf"), &model), TT_ERR_FILE, "alone.gguf", "one of 3 parts");
    copy_part(&f, "llama_dense-00001-of-00003.gguf", "n-00001-of-00002.gguf");
    expect_message(tt_model_open(fixture_path(&f, "n-00001-of-00002.gguf"), &model), TT_ERR_FILE, "split.count", "3");
    fixture_end(&f);
}

/* Copies a file with some bytes replaced: `from` is there once and as long as `to`. */
static void change(const fixture *f, const char *source, const char *from, const char *to, size_t n_bytes)
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
        {"general.architecture", "general.architecturf", {"general.architecture", "missing"}, TT_ERR_FILE},
        {"qwen2moe.embedding_length", "qwen2moe.embedding_lengtx", {"qwen2moe.embedding_length", "missing"}, TT_ERR_FILE},
        {"qwen2moe.block_count", "qwen2moe.block_counx", {"qwen2moe.block_count", "missing"}, TT_ERR_FILE},
        {"qwen2moe.expert_used_count", "qwen2moe.expert_used_counx", {"qwen2moe.expert_used_count", "missing"}, TT_ERR_FILE},
        {"token_embd.weight", "token_embx.weight", {"token_embd.weight", "missing"}, TT_ERR_FILE},
        {"blk.1.attn_k.weight", "blk.1.attn_x.weight", {"blk.1.attn_k.weight", "missing"}, TT_ERR_FILE},
        {"blk.2.ffn_down_exps.weight", "blk.2.ffn_down_expx.weight", {"blk.2.ffn_down_exps.weight", "missing"}, TT_ERR_FILE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        tt_model *model = NULL;
        fixture_begin(&f);
        change(&f, source, cases[i].from, cases[i].to, strlen(cases[i].from));
        expect_message(tt_model_open(fixture_path(&f, "m.gguf"), &model), cases[i].status, cases[i].say[0], cases[i].say[1]);
        assert_non_null(strstr(tt_status_message(), "m.gguf"));
        fixture_end(&f);
    }
}

/* Real files are cut by full disks and broken downloads; and by whoever wants to see us crash. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    size_t n;
    fixture f;
    unsigned char *bytes = read_whole(source_path("tests/golden/gguf/qwen2_moe.gguf"), &n);
    fixture_begin(&f);
    for (size_t cut = 0; cut < n; cut += cut < 6000 ? 97 : n / 40) {
        tt_model *model = NULL;
        fixture_write(&f, "m.gguf", bytes, cut);
        expect_message(tt_model_open(fixture_path(&f, "m.gguf"), &model), TT_ERR_FILE, "m.gguf", "the file has");
    }
    fixture_end(&f);
    free(bytes);
}

static void tokenizers_agree(void **state)
{
    (void)state;
    static const char *const texts[] = {"What is hwloc?", "  two  spaces\n\nand\tmore 12345 \xc3\xa4\xe2\x82\xac", "int main(void) { return 0; }", "",
                                        "\xf0\x9f\x98\x80 don't"};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converted_files_are_the_same_models),
        cmocka_unit_test(any_part_means_the_whole),
        cmocka_unit_test(broken_splits_are_refused),
        cmocka_unit_test(unknown_and_missing_keys_are_named),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(tokenizers_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
