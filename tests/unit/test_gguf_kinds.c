/* test_gguf_kinds.c - GGUF files as other and older writers make them, which today's converter does
 * not: latent attention whose kv_b is whole and quantised, q, k and v in one tensor, experts in
 * tensors of their own, layers that predict further tokens, keys of other integer types and for
 * each layer. Each must be the model of the safetensors checkpoint that its numbers are from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gguf_maker.h"
#include "model_compare.h"
#include "tutti/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { F32 = 0, Q8_0 = 8, Q8_0_ELEMENTS = 32, Q8_0_BYTES = 34, NAME_BYTES = 128 };
#define ARCHITECTURES "tests/golden/architectures/"
#define GGUF "tests/golden/gguf/"

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (strstr(name, *names)) {
            return true;
        }
    }
    return false;
}

/* Compares with a checkpoint of the miniatures, and closes the model. */
static void expect_same(const char *name, tt_model *made)
{
    char path[NAME_BYTES];
    snprintf(path, sizeof(path), ARCHITECTURES "%s", name);
    tt_model *model = open_model(source_path(path));
    compare_models(name, model, made);
    tt_model_close(&model);
    tt_model_close(&made);
}

/* ---- latent attention ---- */

/* x[n] in blocks of Q8_0 whose scales are powers of two, and x becomes what they hold. */
static unsigned char *to_q8_0(float *x, int64_t n)
{
    enum { F16_BIAS = 15, F16_SHIFT = 10 };
    unsigned char *blocks = malloc((size_t)(n / Q8_0_ELEMENTS * Q8_0_BYTES)), *block = blocks;
    for (int64_t i = 0; i < n; i += Q8_0_ELEMENTS, block += Q8_0_BYTES) {
        float largest = 0.0f;
        int exponent;
        for (int64_t j = i; j < i + Q8_0_ELEMENTS; j++) {
            largest = fmaxf(largest, fabsf(x[j]));
        }
        frexpf(largest / 126.0f, &exponent); /* largest < 2^exponent * 126 */
        unsigned scale = (unsigned)(exponent + F16_BIAS) << F16_SHIFT;
        assert_true(exponent > -F16_BIAS && exponent < F16_BIAS);
        block[0] = (unsigned char)scale;
        block[1] = (unsigned char)(scale >> 8);
        for (int64_t j = 0; j < Q8_0_ELEMENTS; j++) {
            long code = lrintf(ldexpf(x[i + j], -exponent));
            block[2 + j] = (unsigned char)(signed char)code;
            x[i + j] = ldexpf((float)code, exponent);
        }
    }
    return blocks;
}

/* The keys of files from before k_b and v_b; kv_b as numbers (*kv NULL) or in blocks, whose numbers
 * go to kv[layer]. */
static void make_old_latent(gguf_maker *m, const tt_model *whole, float **kv)
{
    static const char *const but[] = {
        "attn_k_b",      "attn_v_b", "attention.key_length", "attention.value_length",
        "head_count_kv", NULL};
    const tt_arch *arch = tt_model_arch(whole);
    gguf_source s;
    gguf_source_open(&s, GGUF "deepseek_v3.gguf");
    gguf_copy(m, &s, but);
    gguf_put_int(m, "deepseek2.attention.key_length", TTI_GGUF_U32,
                 arch->nope_dim + arch->rope_dim);
    gguf_put_int(m, "deepseek2.attention.value_length", TTI_GGUF_U32, arch->v_dim);
    gguf_put_int(m, "deepseek2.attention.head_count_kv", TTI_GGUF_U32, arch->Nq);
    for (int64_t layer = 0; layer < arch->L; layer++) {
        char name[NAME_BYTES];
        tt_tensor t = tt_model_tensor(whole, TT_ROLE_KV_B, layer, 0);
        float *x = numbers(whole, &t);
        int64_t dim[] = {t.cols, t.rows}, n = t.rows * t.cols;
        snprintf(name, sizeof(name), "blk.%d.attn_kv_b.weight", (int)layer);
        if (kv) {
            unsigned char *blocks = to_q8_0(x, n);
            gguf_put_tensor(m, name, 2, dim, Q8_0, blocks,
                            (size_t)(n / Q8_0_ELEMENTS * Q8_0_BYTES));
            free(blocks);
            kv[layer] = x;
        } else {
            gguf_put_tensor(m, name, 2, dim, F32, x, (size_t)n * sizeof(*x));
            free(x);
        }
    }
    gguf_source_close(&s);
}

static void whole_kv_b_of_older_files(void **state)
{
    const fixture *f = *state;
    gguf_maker m = {0};
    float *kv[8] = {NULL};
    tt_model *whole = open_model(source_path(ARCHITECTURES "deepseek_v3"));
    make_old_latent(&m, whole, NULL);
    expect_same("deepseek_v3", gguf_open(&m, f));
    make_old_latent(&m, whole, kv);
    tt_model *made = gguf_open(&m, f);
    for (int64_t layer = 0; layer < tt_model_arch(whole)->L; layer++) {
        tt_tensor t = tt_model_tensor(made, TT_ROLE_KV_B, layer, 0);
        float *x = numbers(made, &t);
        assert_memory_equal(x, kv[layer], (size_t)(t.rows * t.cols) * sizeof(*x));
        free(x);
        free(kv[layer]);
    }
    tt_model_close(&made);
    tt_model_close(&whole);
}

/* A file may hold the whole matrix beside its two parts. */
static void whole_kv_b_beside_its_parts_is_a_copy(void **state)
{
    const fixture *f = *state;
    gguf_source s;
    gguf_maker m = {0};
    tt_model *whole = open_model(source_path(ARCHITECTURES "deepseek_v3"));
    for (int stray = 0; stray < 2; stray++) {
        gguf_source_open(&s, GGUF "deepseek_v3.gguf");
        gguf_copy(&m, &s, NULL);
        gguf_source_close(&s);
        /* the last one is of no layer */
        for (int64_t layer = stray; layer < tt_model_arch(whole)->L + stray; layer++) {
            char name[NAME_BYTES];
            tt_tensor t = tt_model_tensor(whole, TT_ROLE_KV_B, 0, 0);
            float *x = numbers(whole, &t);
            snprintf(name, sizeof(name), "blk.%d.attn_kv_b.weight", (int)layer);
            gguf_put_tensor(&m, name, 2, (int64_t[]){t.cols, t.rows}, F32, x,
                            (size_t)(t.rows * t.cols) * sizeof(*x));
            free(x);
        }
        if (stray) {
            gguf_expect_refused(&m, f, TT_ERR_UNSUPPORTED, "m.gguf", "blk.3.attn_kv_b.weight");
        } else {
            tt_model *made = gguf_open(&m, f);
            assert_non_null(tt_model_tensor(made, TT_ROLE_MLA_K, 0, 0).name);
            tt_model_close(&made);
        }
    }
    tt_model_close(&whole);
}

/* Files from before the key: llama.cpp chooses among all experts, and so do we, but say so. */
static void absent_groups_are_one_group_and_a_warning(void **state)
{
    static const char *const but[] = {"expert_group_count", "expert_group_used_count", NULL};
    const fixture *f = *state;
    gguf_source s;
    gguf_maker m = {0};
    char *text;
    gguf_source_open(&s, GGUF "deepseek_v3.gguf");
    gguf_copy(&m, &s, but);
    gguf_source_close(&s);
    tt_model *made = gguf_open_logged(&m, f, &text);
    assert_int_equal(tt_model_arch(made)->router.n_groups, 1);
    assert_int_equal(tt_model_arch(made)->router.n_groups_kept, 1);
    tt_model_close(&made);
    const char *first = strchr(text, '\n');
    assert_non_null(first);
    assert_int_equal(first[1], 0); /* one line */
    assert_non_null(strstr(text, "deepseek2.expert_group_count"));
    free(text);
}

/* Of DeepSeek-V2's kin, the model of 160 experts has groups; smaller ones have none. Opening fails
 * later: the other keys are of V3. */
static void a_grouped_v2_is_warned_of(void **state)
{
    (void)state;
    static const char *const but[] = {"expert_group_count", "expert_group_used_count",
                                      "expert_gating_func", "expert_count", NULL};
    for (int experts = 64; experts <= 160; experts += 96) {
        fixture f;
        gguf_source s;
        gguf_maker m = {0};
        char *text;
        tt_model *made = NULL;
        fixture_begin(&f);
        gguf_source_open(&s, GGUF "deepseek_v3.gguf");
        gguf_copy(&m, &s, but);
        gguf_source_close(&s);
        gguf_put_int(&m, "deepseek2.expert_gating_func", TTI_GGUF_U32, 1);
        gguf_put_int(&m, "deepseek2.expert_count", TTI_GGUF_U32, experts);
        assert_int_not_equal(gguf_try_logged(&m, &f, &made, &text), TT_OK);
        assert_int_equal(strstr(text, "DeepSeek-V2's kin") != NULL, experts == 160);
        free(text);
        fixture_end(&f);
    }
}

/* ---- tensors that no role takes ---- */

/* A tensor more than the metadata describe is another model; rope_freqs without a reader would be
 * too. */
static void a_tensor_without_a_place_is_refused(void **state)
{
    static const char *const names[] = {"blk.0.ffn_up_shexp.bias", "blk.1.attn_sinks.weight",
                                        "blk.2.ffn_up_exps.scale", "rope_factors_long.weight",
                                        "blk.3.attn_norm.weight",  "cls.weight"};
    static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, zeros[8] = {0};
    const fixture *f = *state;
    gguf_source s;
    gguf_maker m = {0};
    gguf_source_open(&s, GGUF "qwen2_moe.gguf");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        gguf_copy(&m, &s, NULL);
        gguf_put_tensor(&m, names[i], 1, (int64_t[]){8}, F32, ones, sizeof(ones));
        gguf_expect_refused(&m, f, TT_ERR_UNSUPPORTED, "m.gguf", names[i]);
    }
    gguf_copy(&m, &s, NULL);
    gguf_put_tensor(&m, names[0], 1, (int64_t[]){8}, F32, zeros, sizeof(zeros)); /* adds nothing */
    expect_same("qwen2_moe", gguf_open(&m, f));
    gguf_source_close(&s);
}

/* ---- one tensor for several, and several for one ---- */

static void fused_qkv(void **state)
{
    static const char *const but[] = {"attn_q.", "attn_k.", "attn_v.", NULL};
    static const char letters[] = "qkv";
    const fixture *f = *state;
    gguf_source s;
    gguf_maker m = {0};
    gguf_source_open(&s, GGUF "qwen2_moe.gguf");
    gguf_copy(&m, &s, but);
    for (int i = 0; i < 2 * 3; i++) { /* weights and biases of three layers */
        const char *end = i % 2 ? "bias" : "weight";
        unsigned char *bytes = NULL;
        int64_t dim[2] = {0, 0};
        size_t n = 0;
        int n_dims = 0;
        uint32_t type = 0;
        char name[NAME_BYTES];
        for (int j = 0; j < 3; j++) {
            snprintf(name, sizeof(name), "blk.%d.attn_%c.%s", i / 2, letters[j], end);
            const tti_gguf_tensor *t = tti_gguf_find_tensor(&s.gguf, name);
            assert_non_null(t);
            bytes = realloc(bytes, n + t->bytes);
            memcpy(bytes + n, s.bytes + t->offset, t->bytes);
            n += t->bytes;
            n_dims = t->n_dims;
            type = t->type->id;
            dim[0] = n_dims == 2 ? t->dim[0] : dim[0] + t->dim[0];
            dim[1] += t->dim[1];
        }
        snprintf(name, sizeof(name), "blk.%d.attn_qkv.%s", i / 2, end);
        gguf_put_tensor(&m, name, n_dims, dim, type, bytes, n);
        free(bytes);
    }
    gguf_source_close(&s);
    expect_same("qwen2_moe", gguf_open(&m, f));
}

/* What GGUF calls a role, without "blk.N.". */
typedef struct called {
    tt_role role;
    const char *name;
    bool is_vector;
} called;
static const called globals[] = {{TT_ROLE_EMBED, "token_embd.weight", false},
                                 {TT_ROLE_FINAL_NORM, "output_norm.weight", true},
                                 {TT_ROLE_HEAD, "output.weight", false}};
static const called of_layer[] = {{TT_ROLE_ATTENTION_NORM, "attn_norm.weight", true},
                                  {TT_ROLE_Q, "attn_q.weight", false},
                                  {TT_ROLE_K, "attn_k.weight", false},
                                  {TT_ROLE_V, "attn_v.weight", false},
                                  {TT_ROLE_Q_BIAS, "attn_q.bias", true},
                                  {TT_ROLE_K_BIAS, "attn_k.bias", true},
                                  {TT_ROLE_V_BIAS, "attn_v.bias", true},
                                  {TT_ROLE_O, "attn_output.weight", false},
                                  {TT_ROLE_Q_NORM, "attn_q_norm.weight", true},
                                  {TT_ROLE_K_NORM, "attn_k_norm.weight", true},
                                  {TT_ROLE_GATE, "ffn_gate.weight", false},
                                  {TT_ROLE_UP, "ffn_up.weight", false},
                                  {TT_ROLE_DOWN, "ffn_down.weight", false},
                                  {TT_ROLE_ROUTER, "ffn_gate_inp.weight", false},
                                  {TT_ROLE_ROUTER_CHOICE_BIAS, "exp_probs_b.bias", true},
                                  {TT_ROLE_SHARED_GATE, "ffn_gate_shexp.weight", false},
                                  {TT_ROLE_SHARED_UP, "ffn_up_shexp.weight", false},
                                  {TT_ROLE_SHARED_DOWN, "ffn_down_shexp.weight", false}};
static const called of_expert[] = {{TT_ROLE_EXPERT_GATE, "ffn_gate", false},
                                   {TT_ROLE_EXPERT_UP, "ffn_up", false},
                                   {TT_ROLE_EXPERT_DOWN, "ffn_down", false}};

/* A role's numbers as an F32 tensor, rows of q and k so that pairs are neighbours if `permuted`. */
static void put_role(gguf_maker *m, const tt_model *model, const called *c, int64_t layer,
                     const char *name, bool permuted)
{
    tt_tensor t = tt_model_tensor(model, c->role, layer, 0);
    if (!t.name) {
        return;
    }
    float *x = numbers(model, &t), *y = malloc((size_t)(t.rows * t.cols) * sizeof(*y));
    bool moves = permuted && (c->role == TT_ROLE_Q || c->role == TT_ROLE_K);
    for (int64_t r = 0; r < t.rows; r++) {
        memcpy(y + (moves ? unpermuted(r, tt_model_arch(model)->D) : r) * t.cols, x + r * t.cols,
               (size_t)t.cols * sizeof(*y));
    }
    int64_t dim[] = {c->is_vector ? t.rows * t.cols : t.cols, t.rows};
    gguf_put_tensor(m, name, c->is_vector ? 1 : 2, dim, F32, y,
                    (size_t)(t.rows * t.cols) * sizeof(*y));
    free(x);
    free(y);
}

/* Experts below each other in one tensor, or each in its own. */
static void put_experts(gguf_maker *m, const tt_model *model, const called *c, int64_t from,
                        int64_t as, bool apart)
{
    char name[NAME_BYTES];
    float *all = NULL;
    int64_t E = tt_model_arch(model)->E, dim[3] = {0, 0, E}, n = 0;
    for (int64_t e = 0; e < E && tt_model_tensor(model, c->role, from, e).name; e++) {
        tt_tensor t = tt_model_tensor(model, c->role, from, e);
        float *x = numbers(model, &t);
        dim[0] = t.cols;
        dim[1] = t.rows;
        n = t.rows * t.cols;
        all = realloc(all, (size_t)(E * n) * sizeof(*all));
        memcpy(all + e * n, x, (size_t)n * sizeof(*x));
        free(x);
    }
    snprintf(name, sizeof(name), "blk.%d.%s_exps.weight", (int)as, c->name);
    if (all && !apart) {
        gguf_put_tensor(m, name, 3, dim, F32, all, (size_t)(E * n) * sizeof(*all));
    }
    for (int64_t e = 0; all && apart && e < E; e++) {
        snprintf(name, sizeof(name), "blk.%d.%s.%d.weight", (int)as, c->name, (int)e);
        gguf_put_tensor(m, name, 2, dim, F32, all + e * n, (size_t)n * sizeof(*all));
    }
    free(all);
}

/* Layer `from` of a checkpoint as block `as`. */
static void put_layer(gguf_maker *m, const tt_model *model, int64_t from, int64_t as, bool is_llama)
{
    char name[NAME_BYTES];
    for (size_t i = 0; i < sizeof(of_layer) / sizeof(of_layer[0]); i++) {
        snprintf(name, sizeof(name), "blk.%d.%s", (int)as, of_layer[i].name);
        put_role(m, model, &of_layer[i], from, name, is_llama);
    }
    snprintf(name, sizeof(name), "blk.%d.%s.weight", (int)as,
             is_llama ? "ffn_norm" : "post_attention_norm");
    put_role(m, model, &(called){TT_ROLE_FFN_NORM, NULL, true}, from, name, false);
    for (size_t i = 0; i < sizeof(of_expert) / sizeof(of_expert[0]); i++) {
        put_experts(m, model, &of_expert[i], from, as, is_llama);
    }
}

static void put_globals(gguf_maker *m, const tt_model *model)
{
    for (size_t i = 0; i < sizeof(globals) / sizeof(globals[0]); i++) {
        put_role(m, model, &globals[i], 0, globals[i].name, false);
    }
}

static void put_ints(gguf_maker *m, const char *architecture, const char *const *suffix,
                     const int64_t *value)
{
    for (; *suffix; suffix++, value++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), "%s.%s", architecture, *suffix);
        gguf_put_int(m, name, TTI_GGUF_U32, *value);
    }
}

static void experts_in_tensors_of_their_own(void **state)
{
    static const char *const suffixes[] = {"block_count",          "context_length",
                                           "embedding_length",     "feed_forward_length",
                                           "attention.head_count", "attention.head_count_kv",
                                           "expert_count",         "expert_used_count",
                                           "rope.dimension_count", NULL};
    static const int64_t values[] = {3, 512, 64, 96, 4, 2, 8, 2, 16};
    const fixture *f = *state;
    gguf_maker m = {0};
    tt_model *model = open_model(source_path(ARCHITECTURES "mixtral"));
    gguf_put_text(&m, "general.architecture", "llama");
    put_ints(&m, "llama", suffixes, values);
    gguf_put_real(&m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_put_real(&m, "llama.rope.freq_base", 1e6f);
    put_globals(&m, model);
    for (int64_t layer = 0; layer < 3; layer++) {
        put_layer(&m, model, layer, layer, true);
    }
    tt_model_close(&model);
    expect_same("mixtral", gguf_open(&m, f));
}

/* ---- layers that predict further tokens ---- */

/* GLM-4.5 as its converter writes it; with the further layer (a copy of the last) or without;
 * rotary 0: it does not say how much of a head turns. */
static tt_model *make_glm(const fixture *f, const tt_model *model, bool with_further,
                          int64_t rotary)
{
    static const char *const suffixes[] = {"block_count",
                                           "context_length",
                                           "embedding_length",
                                           "feed_forward_length",
                                           "attention.head_count",
                                           "attention.head_count_kv",
                                           "attention.key_length",
                                           "attention.value_length",
                                           "expert_count",
                                           "expert_used_count",
                                           "expert_group_count",
                                           "expert_group_used_count",
                                           "expert_feed_forward_length",
                                           "expert_shared_count",
                                           "leading_dense_block_count",
                                           "expert_gating_func",
                                           "nextn_predict_layers",
                                           NULL};
    static const int64_t values[] = {4, 512, 64, 96, 4, 2, 32, 32, 16, 4, 1, 1, 32, 1, 1, 2, 1};
    gguf_maker m = {0};
    gguf_put_text(&m, "general.architecture", "glm4moe");
    put_ints(&m, "glm4moe", suffixes, values);
    if (rotary > 0) {
        gguf_put_int(&m, "glm4moe.rope.dimension_count", TTI_GGUF_U32, rotary);
    }
    gguf_put_real(&m, "glm4moe.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_put_real(&m, "glm4moe.rope.freq_base", 1e6f);
    gguf_put_real(&m, "glm4moe.expert_weights_scale", 1.5f);
    gguf_put_int(&m, "glm4moe.expert_weights_norm", TTI_GGUF_BOOL, 1);
    put_globals(&m, model);
    for (int64_t layer = 0; layer < 3; layer++) {
        put_layer(&m, model, layer, layer, false);
    }
    if (with_further) {
        int64_t H = tt_model_arch(model)->H, dim[] = {2 * H, H};
        float *x = calloc((size_t)(2 * H * H), sizeof(*x));
        put_layer(&m, model, 2, 3, false);
        gguf_put_tensor(&m, "blk.3.nextn.eh_proj.weight", 2, dim, F32, x,
                        (size_t)(2 * H * H) * sizeof(*x));
        gguf_put_tensor(&m, "blk.3.nextn.enorm.weight", 1, &H, F32, x, (size_t)H * sizeof(*x));
        gguf_put_tensor(&m, "blk.3.nextn.hnorm.weight", 1, &H, F32, x, (size_t)H * sizeof(*x));
        gguf_put_tensor(&m, "blk.3.nextn.shared_head_norm.weight", 1, &H, F32, x,
                        (size_t)H * sizeof(*x));
        free(x);
    }
    return gguf_open(&m, f);
}

static void further_layers_are_no_blocks(void **state)
{
    const fixture *f = *state;
    tt_model *model = open_model(source_path(ARCHITECTURES "glm4_moe"));
    expect_same("glm4_moe", make_glm(f, model, false, 16));
    tt_model *made = make_glm(f, model, true, 16);
    const tt_arch *arch = tt_model_arch(made);
    assert_int_equal(arch->L, 3);
    assert_int_equal(arch->n_mtp, 1);
    assert_true(arch->layer[3].is_moe);
    static const tt_role roles[] = {TT_ROLE_Q, TT_ROLE_FFN_NORM, TT_ROLE_ROUTER,
                                    TT_ROLE_EXPERT_DOWN, TT_ROLE_SHARED_UP};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        tt_tensor last = tt_model_tensor(model, roles[i], 2, 5),
                  further = tt_model_tensor(made, roles[i], 3, 5);
        assert_true(last.name && further.name && last.rows == further.rows &&
                    last.cols == further.cols);
        float *x = numbers(model, &last), *y = numbers(made, &further);
        assert_memory_equal(x, y, (size_t)(last.rows * last.cols) * sizeof(*x));
        free(x);
        free(y);
    }
    tt_model_close(&made);
    tt_model_close(&model);
}

/* ---- keys ---- */

/* qwen2_moe with its whole numbers as u64 and heads of keys as given for each layer. */
static void make_wide(gguf_maker *m, const int32_t *n_kv, uint64_t n)
{
    static const char *const but[] = {"qwen2moe.", NULL};
    gguf_source s;
    gguf_source_open(&s, GGUF "qwen2_moe.gguf");
    gguf_copy(m, &s, but);
    for (size_t i = 0; i < s.gguf.n_keys; i++) {
        const tti_gguf_key *key = &s.gguf.key[i];
        const char *name = gguf_name(key->name);
        int64_t value;
        if (strcmp(name, "qwen2moe.attention.head_count_kv") == 0) {
            gguf_put_ints(m, name, n_kv, n);
        } else if (is_one_of(name, but) && tti_gguf_int(key, 0, &value)) {
            gguf_put_int(m, name, TTI_GGUF_U64, value);
        } else if (is_one_of(name, but)) {
            gguf_put_key(m, key);
        }
    }
    gguf_source_close(&s);
}

static void wide_keys_and_lists_for_layers(void **state)
{
    static const int32_t equal[] = {2, 2, 2}, unequal[] = {2, 1, 2};
    const fixture *f = *state;
    gguf_maker m = {0};
    make_wide(&m, equal, 3);
    expect_same("qwen2_moe", gguf_open(&m, f));
    make_wide(&m, unequal, 3);
    gguf_expect_refused(&m, f, TT_ERR_UNSUPPORTED, "qwen2moe.attention.head_count_kv",
                        "differs from layer to layer");
    make_wide(&m, equal, 0);
    gguf_expect_refused(&m, f, TT_ERR_FILE, "qwen2moe.attention.head_count_kv", "empty");
    make_wide(&m, equal, 3);
    gguf_put_int(&m, "qwen2moe.leading_dense_block_count", TTI_GGUF_U64, INT64_MIN); /* 2^63 */
    gguf_expect_refused(&m, f, TT_ERR_FILE, "qwen2moe.leading_dense_block_count", "whole number");
}

/* ---- rotary components ---- */

/* The family turns half a head where a configuration does not say; a GGUF file without the key
 * means all of it. */
static void an_absent_dimension_count_is_the_whole_head(void **state)
{
    static const int64_t stated[] = {16, 0, 10}, turned[] = {16, 32, 10};
    const fixture *f = *state;
    tt_model *model = open_model(source_path(ARCHITECTURES "glm4_moe"));
    for (size_t i = 0; i < sizeof(stated) / sizeof(stated[0]); i++) {
        tt_model *made = make_glm(f, model, false, stated[i]);
        assert_int_equal(tt_model_arch(made)->rope.dim, turned[i]);
        tt_model_close(&made);
    }
    tt_model_close(&model);
}

/* ---- ends of texts ---- */

/* They come from the vocabulary alone, so a tokenizer of a kind that is unknown here ends texts
 * too. */
static void end_ids_need_no_tokenizer(void **state)
{
    static const char *const all[] = {"tokenizer.", NULL}, *const but[] = {"tokenizer.ggml.pre",
                                                                           NULL};
    const fixture *f = *state;
    gguf_source s, v;
    gguf_maker m = {0};
    gguf_source_open(&s, GGUF "qwen2_moe.gguf");
    gguf_source_open(&v, GGUF "vocabulary.gguf");
    tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tt_tokenizer_create(source_path(GGUF "vocabulary.gguf"), &tokenizer), TT_OK);
    size_t n, n_known;
    const int32_t *known = tti_tokenizer_stop_ids(tokenizer, &n_known);
    gguf_copy(&m, &s, all);
    for (size_t i = 0; i < v.gguf.n_keys; i++) {
        if (is_one_of(gguf_name(v.gguf.key[i].name), all) &&
            !is_one_of(gguf_name(v.gguf.key[i].name), but)) {
            gguf_put_key(&m, &v.gguf.key[i]);
        }
    }
    gguf_put_text(&m, "tokenizer.ggml.pre", "of-tomorrow");
    tt_model *made = gguf_open(&m, f);
    const int32_t *ids = tt_model_end_ids(made, &n);
    assert_true(n_known >= 1);
    for (size_t i = 0; i < n_known; i++) {
        size_t j = 0;
        while (j < n && ids[j] != known[i]) {
            j++;
        }
        assert_true(j < n);
    }
    tt_model_close(&made);
    tt_tokenizer_destroy(&tokenizer);
    gguf_source_close(&v);
    gguf_source_close(&s);
}

/* ---- constants of families ---- */

/* A Granite configuration without attention_multiplier means 1; a GGUF file without attention.scale
 * the usual scale. */
static void an_absent_scale_is_by_the_width(void **state)
{
    static const char *const but[] = {"attention.scale", NULL};
    const fixture *f = *state;
    gguf_source s;
    gguf_maker m = {0};
    gguf_source_open(&s, GGUF "granitemoeshared.gguf");
    assert_non_null(tti_gguf_find(&s.gguf, "granitemoe.attention.scale"));
    gguf_copy(&m, &s, but);
    tt_model *made = gguf_open(&m, f);
    double width = (double)tt_model_arch(made)->D;
    assert_true(tt_model_arch(made)->softmax_scale == (float)(1 / sqrt(width)));
    tt_model_close(&made);
    gguf_copy(&m, &s, NULL);
    made = gguf_open(&m, f);
    assert_true(tt_model_arch(made)->softmax_scale != (float)(1 / sqrt(width)));
    tt_model_close(&made);
    gguf_source_close(&s);
}

/* Without expert_gating_func the choice bias tells sigmoids from a softmax, whatever it is
 * called. */
static void the_choice_bias_tells_the_generation(void **state)
{
    static const char *const but[] = {"exp_probs_b", "expert_gating_func", NULL},
                             *const endings[] = {".bias", ".weight", ""};
    const fixture *f = *state;
    gguf_source s;
    gguf_maker m = {0};
    gguf_source_open(&s, GGUF "deepseek_v3.gguf");
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        gguf_copy(&m, &s, but);
        for (size_t t = 0; t < s.gguf.n_tensors; t++) {
            const tti_gguf_tensor *tensor = &s.gguf.tensor[t];
            int layer;
            char name[NAME_BYTES];
            if (strstr(gguf_name(tensor->name), "exp_probs_b") &&
                sscanf(gguf_name(tensor->name), "blk.%d.", &layer) == 1) {
                snprintf(name, sizeof(name), "blk.%d.exp_probs_b%s", layer, endings[i]);
                gguf_put_tensor(&m, name, tensor->n_dims, tensor->dim, tensor->type->id,
                                s.bytes + tensor->offset, tensor->bytes);
            }
        }
        expect_same("deepseek_v3", gguf_open(&m, f));
    }
    gguf_source_close(&s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(whole_kv_b_of_older_files),
        TEST(whole_kv_b_beside_its_parts_is_a_copy),
        TEST(absent_groups_are_one_group_and_a_warning),
        cmocka_unit_test(a_grouped_v2_is_warned_of),
        TEST(a_tensor_without_a_place_is_refused),
        TEST(fused_qkv),
        TEST(experts_in_tensors_of_their_own),
        TEST(further_layers_are_no_blocks),
        TEST(wide_keys_and_lists_for_layers),
        TEST(an_absent_dimension_count_is_the_whole_head),
        TEST(end_ids_need_no_tokenizer),
        TEST(an_absent_scale_is_by_the_width),
        TEST(the_choice_bias_tells_the_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
