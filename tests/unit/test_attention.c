/* test_attention.c - every variant of attention and the gated delta net against brute force in
 * double precision; and the same bits for every number of TP ranks, threads, rows in a step, and
 * batch mates. */
/* TEST timeout: 300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "attention_model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/cpu.h"

enum { H = 40, CONTEXT = 160, LONGEST = 100 };

static float *frequencies(int64_t dim, float theta)
{
    float *f = malloc((size_t)(dim / 2 + 1) * sizeof(*f));
    assert_non_null(f);
    for (int64_t i = 0; i < dim / 2; i++) {
        f[i] = (float)pow((double)theta, -2.0 * (double)i / (double)dim);
    }
    return f;
}

/* 6 heads of 20 over 3 KV heads, all of a head rotated. */
static void gqa_model(tt_model *model)
{
    memset(model, 0, sizeof(*model));
    model->arch = (tt_arch){
        .name = "test",
        .L = 2,
        .H = H,
        .V = 32,
        .context = 4096,
        .norm_eps = 1e-5f,
        .attention = TT_ATTENTION_GQA,
        .Nq = 6,
        .Nkv = 3,
        .D = 20,
        .F_dense = 32,
        .softmax_scale = 0.3f,
        .rope = {.dim = 20, .attention_factor = 1.0f, .inv_freq = frequencies(20, 100.0f)}};
    for (int l = 0; l < MODEL_MAX_LAYERS; l++) {
        model->layer[l] = (tt_layer){.rope = true, .qk_norm = true};
    }
    model->arch.layer = model->layer;
}

static void delta_model(tt_model *model, int64_t Nk, int64_t Nv, int64_t Dk, int64_t Dv)
{
    gqa_model(model);
    model->arch.delta = (tt_delta){.Nk = Nk, .Nv = Nv, .Dk = Dk, .Dv = Dv, .conv = 4};
    model->layer[0].mixer = TT_MIXER_DELTA;
}

/* Bit 0: low-rank queries; bit 1: keys and values in two matrices. */
static void latent_model(tt_model *model, int variant)
{
    gqa_model(model);
    tt_arch *a = &model->arch;
    a->attention = TT_ATTENTION_MLA;
    a->q_rank = variant & 1 ? 24 : 0;
    a->kv_rank = 36;
    a->nope_dim = 16;
    a->rope_dim = 8;
    a->v_dim = 12;
    a->mla_norm_eps = 1e-6f;
    a->rope.dim = 8;
    a->rope.interleaved = true;
    a->mla_split = variant & 2;
}

static float *random_rows(int64_t n)
{
    float *x = malloc((size_t)n * sizeof(*x));
    assert_non_null(x);
    uint64_t state = 7;
    for (int64_t i = 0; i < n; i++) {
        x[i] = model_random(&state);
    }
    return x;
}

/* How to run sequences, of which the first is the one that counts. */
typedef struct way {
    int tp, n_threads;
    int64_t chunk, n_sequences;
} way;
typedef struct plan {
    const way *ways;
    size_t n_ways;
    int64_t context, length[MODEL_MAX_SEQUENCES];
    tt_kv_format kv;
    double bound; /* of the error, in sizes of y */
} plan;
/* float has 6e-8; sums of 40 and 120 products in a row, and scores of a few units in an
 * exponential. A bf16 has 4e-3, a number in int8 4e-3 of the largest; the first rows see few keys,
 * so nothing averages out there, and y is ten times its usual size. */
static const double bound_of[TT_KV_COUNT] = {2e-5, 0.06, 0.1};

/* Fills the model's weights, holds both layers against the reference and all ways to run them
 * against one. Frees the model. */
static void check_ways(tt_model *model, const char *what, const plan *p)
{
    int64_t T = p->length[0];
    size_t bytes = (size_t)(T * H) * sizeof(float);
    model_fill(model, 1);
    float *x = random_rows(MODEL_MAX_SEQUENCES * T * H), *first = malloc(bytes),
          *y = malloc(MODEL_MAX_SEQUENCES * bytes);
    double *want = malloc((size_t)(T * H) * sizeof(*want));
    assert_true(first && y && want);
    for (int64_t l = 0; l < model->arch.L; l++) {
        reference_run(model, l, T, x, want);
        double worst = 0.0, size = 0.0;
        for (size_t w = 0; w < p->n_ways; w++) {
            const way *how = &p->ways[w];
            run_params params = {how->tp,          how->n_threads, how->chunk, p->context,
                                 how->n_sequences, p->length,      p->kv};
            model_run(model, &params, l, x, y);
            if (w == 0) {
                memcpy(first, y, bytes);
            }
            if (memcmp(first, y, bytes) != 0) {
                fail_msg("%s, layer %d: way %zu gives other bits", what, (int)l, w);
            }
        }
        for (int64_t i = 0; i < T * H; i++) {
            double error = fabs((double)first[i] - want[i]);
            worst = error > worst || isnan(error) ? error : worst;
            size += want[i] * want[i] / (double)(T * H);
        }
        printf("# %s, layer %d: largest error %.1e of %.3f\n", what, (int)l, worst / sqrt(size),
               sqrt(size));
        assert_true(worst < p->bound * sqrt(size));
    }
    free(x);
    free(first);
    free(y);
    free(want);
    model_free(model);
}

static void check(tt_model *model, const char *what)
{
    static const way ways[] = {{1, 1, LONGEST, 1}, {1, 2, 1, 1},  {1, 1, 7, 3},  {1, 1, 64, 3},
                               {2, 1, 7, 3},       {3, 1, 64, 3}, {4, 2, 13, 3}, {6, 1, 64, 2}};
    const plan p = {ways,      sizeof(ways) / sizeof(ways[0]),
                    CONTEXT,   {LONGEST, 37, 3},
                    TT_KV_F32, bound_of[TT_KV_F32]};
    check_ways(model, what, &p);
}

/* Contexts of many blocks, in steps that cut them into tiles and runs in many ways; the buffer of
 * parts is small, so that some take several waves. */
static void check_long(tt_model *model, const char *what, tt_kv_format kv)
{
    enum { LONG = 600, LONG_CONTEXT = 608 };
    static const way ways[] = {{1, 1, LONG, 1}, {1, 3, 3, 1},  {1, 4, 70, 2},
                               {1, 2, 256, 3},  {3, 2, 33, 1}, {4, 3, 5, 3}};
    const plan p = {ways,        sizeof(ways) / sizeof(ways[0]), LONG_CONTEXT, {LONG, 530, 3}, kv,
                    bound_of[kv]};
    check_ways(model, what, &p);
}

static void long_contexts(void **state)
{
    (void)state;
    for (tt_kv_format kv = TT_KV_F32; kv < TT_KV_COUNT; kv++) {
        tt_model model;
        char what[64];
        gqa_model(&model);
        model.arch.sinks = true;
        model.layer[1].window = 600; /* tiles whose rows begin in different blocks */
        snprintf(what, sizeof(what), "long, KV %s", tt_kv_format_name(kv));
        check_long(&model, what, kv);
        latent_model(&model, 1);
        snprintf(what, sizeof(what), "long latent, KV %s", tt_kv_format_name(kv));
        check_long(&model, what, kv);
    }
}

static void plain_and_biased(void **state)
{
    (void)state;
    tt_model model;
    gqa_model(&model);
    check(&model, "plain");
    gqa_model(&model);
    model.arch.qkv_bias = model.arch.o_bias = true;
    check(&model, "biases");
}

static void windows_and_chunks(void **state)
{
    (void)state;
    tt_model model;
    gqa_model(&model);
    model.layer[0].window = 1;
    model.layer[1].window = 70; /* more than a block of keys, fewer than the rows */
    check(&model, "windows");
    gqa_model(&model);
    model.layer[0].chunk = 16;
    model.layer[1].chunk = 23;
    model.layer[1].window = 9;
    check(&model, "chunks");
}

static void sinks_and_gates(void **state)
{
    (void)state;
    tt_model model;
    gqa_model(&model);
    model.arch.sinks = true;
    model.layer[0].window = 18;
    check(&model, "sinks");
    gqa_model(&model);
    model.arch.attention_gate = true;
    check(&model, "gate");
}

static void rotations(void **state)
{
    (void)state;
    tt_model model;
    gqa_model(&model);
    model.arch.rope.dim = 8;
    model.arch.rope.attention_factor = 1.3f;
    model.layer[1].rope = false;
    check(&model, "partial, and none");
    gqa_model(&model);
    model.arch.rope.interleaved = true;
    model.arch.rope.dim = 12;
    check(&model, "interleaved");
    gqa_model(&model);
    model.arch.rope.long_inv_freq = frequencies(20, 1e5f);
    model.arch.rope.long_attention_factor = 0.9f;
    model.arch.rope.long_from = LONGEST - 1; /* its batch mates are shorter and use the other
                                              * table */
    check(&model, "long table");
    gqa_model(&model);
    model.arch.rope.long_inv_freq = frequencies(20, 1e5f);
    model.arch.rope.long_attention_factor = 0.9f;
    model.arch.rope.long_from = LONGEST; /* below the run's context, which must not count */
    check(&model, "short table");
}

static void norms_of_queries_and_keys(void **state)
{
    (void)state;
    for (int kind = TT_QK_NORM_HEAD; kind <= TT_QK_NORM_WHOLE; kind++) {
        for (int variant = 0; variant < 4; variant++) {
            tt_model model;
            char what[64];
            gqa_model(&model);
            model.arch.qk_norm = (tt_qk_norm)kind;
            model.arch.qk_norm_after_rope = variant & 1;
            model.arch.qk_norm_weightless = variant & 2;
            model.layer[0].qk_norm = false; /* in the other layer only */
            snprintf(what, sizeof(what), "norm kind %d, after %d, weightless %d", kind, variant & 1,
                     variant >> 1);
            check(&model, what);
        }
    }
}

static void scaled_queries(void **state)
{
    (void)state;
    tt_model model;
    gqa_model(&model);
    model.arch.query_scale = 0.4f;
    model.arch.query_floor = 8.0f;
    model.layer[1].scale_queries = true;
    model.layer[1].rope = false;
    check(&model, "scaled queries");
}

static void latent(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        tt_model model;
        latent_model(&model, variant);
        check(&model, variant & 2 ? "latent, two matrices" : "latent");
    }
}

static void gated_delta_nets(void **state)
{
    (void)state;
    tt_model model;
    delta_model(&model, 2, 4, 16, 16); /* fewer key heads than TP ranks */
    check(&model, "delta 2/4 x 16/16");
    delta_model(&model, 3, 6, 20, 40); /* two parts of columns, the second short */
    check(&model, "delta 3/6 x 20/40");
    delta_model(&model, 1, 3, 8, 70); /* fewer value heads than TP ranks */
    check(&model, "delta 1/3 x 8/70");
    delta_model(&model, 2, 2, 128, 128);
    model.arch.delta.conv = 1; /* nothing kept */
    check(&model, "delta 2/2 x 128/128");
}

int main(void)
{
    ttk_init(tt_cpu_flags());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_biased),
        cmocka_unit_test(windows_and_chunks),
        cmocka_unit_test(sinks_and_gates),
        cmocka_unit_test(rotations),
        cmocka_unit_test(scaled_queries),
        cmocka_unit_test(latent),
        cmocka_unit_test(norms_of_queries_and_keys),
        cmocka_unit_test(gated_delta_nets),
        cmocka_unit_test(long_contexts),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
