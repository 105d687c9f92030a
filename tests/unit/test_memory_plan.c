/* test_memory_plan.c - bytes per rank equal sums made by hand from the model's shapes, parts of a
 * model add up to the whole over any layout, sizes do not wrap, and the cost model follows its
 * formula. */
#include "tutti/plan.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "plan_model.h"

/* Bytes of a packed matrix, by the words of its contract. */
static uint64_t packed(uint64_t rows, uint64_t cols, uint64_t element_bytes)
{
    return (rows + 31) / 32 * 32 * cols * element_bytes;
}

static tt_rank_memory memory_of(const tt_model *model, const tt_layout *layout, int rank)
{
    tt_rank_memory m;
    assert_int_equal(tt_plan_memory(model, layout, rank, &m), TT_OK);
    assert_true(m.total_bytes ==
                m.dense_bytes + m.expert_bytes + m.kv_bytes + m.exchange_bytes + m.work_bytes);
    return m;
}

/* What rank 1 has in dense weights beyond `plain`. */
static int64_t dense_beyond(uint64_t plain, const tt_model *model, const tt_layout *layout)
{
    return (int64_t)(memory_of(model, layout, 1).dense_bytes - plain);
}

static void packed_bytes_follow_the_format(void **state)
{
    (void)state;
    assert_int_equal(tt_plan_packed_bytes(TT_WEIGHTS_AUTO, &(ttk_format){.code = TTK_BF16}, 33, 10),
                     64 * 10 * 2);
    assert_int_equal(tt_plan_packed_bytes(TT_WEIGHTS_AUTO, &(ttk_format){.code = TTK_F32}, 33, 10),
                     64 * 10 * 4);
    assert_int_equal(tt_plan_packed_bytes(TT_WEIGHTS_AUTO, &(ttk_format){.code = TTK_F16}, 33, 10),
                     64 * 10 * 4);
    assert_int_equal(tt_plan_packed_bytes(TT_WEIGHTS_F32, &(ttk_format){.code = TTK_BF16}, 32, 10),
                     32 * 10 * 4);
    assert_int_equal(tt_plan_packed_bytes(TT_WEIGHTS_BF16, &(ttk_format){.code = TTK_F32}, 1, 10),
                     32 * 10 * 2);
    assert_int_equal(tt_plan_packed_bytes(TT_WEIGHTS_AUTO, &(ttk_format){.code = TTK_BF16}, 0, 10),
                     0);
    assert_int_equal(tt_wire_row_bytes(TT_WIRE_F32, 33), 33 * 4);
    assert_int_equal(tt_wire_row_bytes(TT_WIRE_BF16, 33), 33 * 2);
    assert_int_equal(tt_wire_row_bytes(TT_WIRE_INT8, 33), 33 + 2 * 4);
    assert_int_equal(tt_wire_row_bytes(TT_WIRE_FP8, 33), 33 + 2);
}

/* The numbers are sums over the shapes in plan_model.h, made outside this program. */
static void one_rank_holds_the_sum_of_all_shapes(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 1, .context = 100, .max_batch = 3};
    tt_layout *layout = plan_layout(&model.arch, &params);
    tt_rank_memory m = memory_of(&model, layout, 0);
    assert_int_equal(m.dense_bytes, 207104);
    assert_int_equal(m.expert_bytes, 180224);
    /* 3 sequences of 7 pages of 16 tokens; 2 layers of 2 KV heads of 16, keys and values, f32. */
    assert_int_equal(m.kv_bytes, 3 * 7 * 16 * (2 * 2 * 2 * 16 * 4));
    tt_layout_destroy(&layout);
    params.weights = TT_WEIGHTS_F32;
    params.kv = TT_KV_BF16;
    layout = plan_layout(&model.arch, &params);
    m = memory_of(&model, layout, 0);
    assert_int_equal(m.dense_bytes, 371968); /* the embedding stays bf16 */
    assert_int_equal(m.expert_bytes, 360448);
    assert_int_equal(m.kv_bytes, 3 * 7 * 16 * (2 * 2 * 2 * 16 * 2));
    tt_layout_destroy(&layout);
    params.kv = TT_KV_INT8; /* a byte each, and a scale for each key and value of a head */
    layout = plan_layout(&model.arch, &params);
    m = memory_of(&model, layout, 0);
    assert_int_equal(m.kv_bytes, 3 * 7 * 16 * (2 * 2 * 2 * (16 + 4)));
    tt_layout_destroy(&layout);
    params.weights = TT_WEIGHTS_AUTO;
    plan_model_small_latent(&model);
    layout = plan_layout(&model.arch, &params);
    m = memory_of(&model, layout, 0);
    assert_int_equal(m.dense_bytes, 233152);
    assert_int_equal(m.kv_bytes, 3 * 7 * 16 * (2 * ((32 + 4) + (8 + 4))));
    tt_layout_destroy(&layout);
    params.kv = TT_KV_BF16;
    layout = plan_layout(&model.arch, &params);
    m = memory_of(&model, layout, 0);
    assert_int_equal(m.kv_bytes, 3 * 7 * 16 * (2 * (32 + 8) * 2));
    tt_layout_destroy(&layout);
}

/* Optional vectors and the rule for norms over all heads, as differences from the plain model on
 * 2 TP ranks. */
static void biases_and_whole_norms_are_counted(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 2, .tp = 2};
    tt_layout *layout = plan_layout(&model.arch, &params);
    uint64_t plain = memory_of(&model, layout, 1).dense_bytes;
    model.arch.qkv_bias =
        true; /* 2 query heads, 1 key and 1 value head of 16 on a rank, 2 layers */
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * (2 + 1 + 1) * 16 * 4);
    model.arch.qkv_bias = false;
    model.arch.o_bias = true; /* half of 64 columns */
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * 32 * 4);
    model.arch.o_bias = false;
    model.arch.qk_norm = TT_QK_NORM_HEAD;
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * 2 * 16 * 4);
    model.arch.qk_norm = TT_QK_NORM_WHOLE; /* all 4 q and 2 k heads instead of 2 and 1 */
    uint64_t more = packed(64, 64, 2) - packed(32, 64, 2) + packed(32, 64, 2) - packed(16, 64, 2);
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * (more + (64 + 32) * 4));
    model.arch.qk_norm = TT_QK_NORM_NONE;
    model.arch.router.choice_bias = true; /* in the one MoE layer */
    assert_int_equal(dense_beyond(plain, &model, layout), 8 * 4);
    model.arch.router.logit_bias = true;
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * 8 * 4);
    model.arch.shared_gate = true; /* one row */
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * 8 * 4 + packed(1, 64, 2));
    tt_layout_destroy(&layout);
}

/* Of the 8 experts of the one MoE layer: inner and outer columns, split over a group's two
 * ranks. */
static void biases_of_experts_are_counted(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    for (int etp = 1; etp <= 2; etp++) {
        tt_layout_params params = {.n_ranks = 2, .dp = 2, .tp = 1, .etp = etp};
        tt_layout *layout = plan_layout(&model.arch, &params);
        int64_t sum = 0;
        for (int rank = 0; rank < 2; rank++) {
            model.arch.expert_bias = false;
            uint64_t plain = memory_of(&model, layout, rank).expert_bytes;
            model.arch.expert_bias = true;
            sum += (int64_t)(memory_of(&model, layout, rank).expert_bytes - plain);
        }
        assert_int_equal(sum, 8 * (48 + 48 + 64) * 4);
        tt_layout_destroy(&layout);
    }
}

/* Norm biases, sinks and gates, likewise. */
static void norm_biases_sinks_and_gates_are_counted(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 2, .tp = 2};
    tt_layout *layout = plan_layout(&model.arch, &params);
    uint64_t plain = memory_of(&model, layout, 1).dense_bytes;
    model.arch.norm = TT_NORM_LAYER; /* two in each of 2 layers, and the last */
    assert_int_equal(dense_beyond(plain, &model, layout), 5 * 64 * 4);
    model.arch.norm = TT_NORM_RMS;
    model.arch.head_bias = true; /* 160 of 320 */
    assert_int_equal(dense_beyond(plain, &model, layout), 160 * 4);
    model.arch.head_bias = false;
    model.arch.sinks = true; /* 2 of 4 heads */
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * 2 * 4);
    model.arch.sinks = false;
    model.arch.attention_gate = true;
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * packed(32, 64, 2));
    model.arch.attention_gate = false;
    model.arch.qk_norm = TT_QK_NORM_HEAD;
    model.layer[0].qk_norm = false;
    assert_int_equal(dense_beyond(plain, &model, layout), 2 * 16 * 4);
    tt_layout_destroy(&layout);
}

/* A recurrent layer has matrices and states of its own and no keys. 2 key heads of 16, 6 value
 * heads of 40, 4 taps; the second of 4 TP ranks has value heads 2 and 3 and so both key heads. */
static void recurrent_layers_hold_states_instead_of_keys(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 4, .tp = 4, .max_batch = 3, .context = 100};
    tt_layout *layout = plan_layout(&model.arch, &params);
    tt_rank_memory plain = memory_of(&model, layout, 1);
    model.layer[0].mixer = TT_MIXER_DELTA;
    model.arch.delta = (tt_delta){.Nk = 2, .Nv = 6, .Dk = 16, .Dv = 40, .conv = 4};
    tt_delta_heads heads = tt_layout_delta_heads(&model.arch.delta, 4, 1);
    assert_true(heads.value_end - heads.value_begin <= 2 && heads.value_begin >= 1);
    int64_t n_values = heads.value_end - heads.value_begin,
            n_keys = heads.key_end - heads.key_begin;
    int64_t keys = n_keys * 16, values = n_values * 40;
    uint64_t key_rows = (uint64_t)keys, value_rows = (uint64_t)values;
    tt_rank_memory m = memory_of(&model, layout, 1);
    /* One head of 16 for q, and 16 each of k and v, go; so do their columns of the output
     * product. */
    uint64_t gone = packed(16, 64, 2) * 3 + packed(32, 64, 2);
    uint64_t come = 2 * packed(key_rows, 64, 2) + 2 * packed(value_rows, 64, 2) +
                    2 * packed((uint64_t)n_values, 64, 2) + packed(32, 240, 2) +
                    (uint64_t)((2 * keys + values) * 4 + 40 + 6 + 6) * 4;
    assert_true(layout->role[1].head_end - layout->role[1].head_begin == 1);
    tt_rank_memory first = memory_of(&model, layout, 0);
    assert_true(first.dense_bytes > 0);
    assert_int_equal(m.dense_bytes, plain.dense_bytes - gone + come);
    /* Half of the layers cache keys; a sequence's state: heads in two parts of 32 columns, then 3
     * inputs, to a whole line. */
    int64_t floats = n_values * 2 * 16 * 32 + 3 * (2 * keys + values);
    floats = (floats + 15) / 16 * 16;
    assert_int_equal(tt_delta_state_floats(&model.arch.delta, &heads), floats);
    assert_int_equal(m.kv_bytes, plain.kv_bytes / 2 + 3 * (uint64_t)floats * 4);
    tt_layout_destroy(&layout);
}

/* Every value head is on one rank, with its key head; ranks beyond the heads have none. */
static void recurrent_heads_are_split_whole(void **state)
{
    (void)state;
    const tt_delta shapes[] = {
        {.Nk = 16, .Nv = 32}, {.Nk = 2, .Nv = 4}, {.Nk = 1, .Nv = 3}, {.Nk = 5, .Nv = 5}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (int tp = 1; tp <= 9; tp++) {
            int64_t next = 0, per_key = shapes[i].Nv / shapes[i].Nk;
            for (int part = 0; part < tp; part++) {
                tt_delta_heads heads = tt_layout_delta_heads(&shapes[i], tp, part);
                assert_int_equal(heads.value_begin, next);
                next = heads.value_end;
                int64_t n = heads.value_end - heads.value_begin;
                assert_true(n == shapes[i].Nv / tp || n == shapes[i].Nv / tp + 1);
                assert_true(n > 0 || heads.key_begin == heads.key_end);
                for (int64_t h = heads.value_begin; h < heads.value_end; h++) {
                    assert_true(h / per_key >= heads.key_begin && h / per_key < heads.key_end);
                }
                assert_true(n == 0 || (heads.key_begin == heads.value_begin / per_key &&
                                       heads.key_end == (heads.value_end - 1) / per_key + 1));
            }
            assert_int_equal(next, shapes[i].Nv);
        }
    }
}

/* A long context costs a windowed layer no more than its window. */
static void windows_bound_what_a_step_reads(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 1, .max_batch = 1, .context = 1000};
    tt_layout *layout = plan_layout(&model.arch, &params);
    tt_rates rates = tt_rates_default();
    double all, windowed, none, bytes;
    assert_int_equal(tt_plan_predict(&model, layout, &rates, 1, 900, &all, &bytes), TT_OK);
    assert_int_equal(tt_plan_predict(&model, layout, &rates, 1, 0, &none, &bytes), TT_OK);
    model.layer[0].window = 90;
    assert_int_equal(tt_plan_predict(&model, layout, &rates, 1, 900, &windowed, &bytes), TT_OK);
    /* One of two layers sees a tenth. */
    assert_true(fabs((windowed - none) / (all - none) - 0.55) < 1e-6);
    tt_layout_destroy(&layout);
}

/* Experts are held exactly once over all groups and column parts, whatever the layout. */
static void experts_add_up_to_the_model(void **state)
{
    (void)state;
    tt_model model;
    plan_model_large(&model);
    const uint64_t all =
        UINT64_C(1307817541632); /* 58 layers x 256 experts x 3 x 7168 x 2048 x 2 bytes */
    const tt_layout_params cases[] = {{.n_ranks = 1},
                                      {.n_ranks = 7},
                                      {.n_ranks = 64},
                                      {.n_ranks = 48, .etp = 3},
                                      {.n_ranks = 64, .etp = 8},
                                      {.n_ranks = 300, .dp = 300, .tp = 1},
                                      {.n_ranks = 9, .split = "attention:0-3,experts:4-8"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_layout *layout = plan_layout(&model.arch, &cases[i]);
        uint64_t sum = 0;
        for (int rank = 0; rank < layout->n_ranks; rank++) {
            tt_rank_memory m = memory_of(&model, layout, rank);
            assert_true((m.expert_bytes > 0) ==
                        (layout->role[rank].group_id >= 0 && layout->role[rank].group_id < 256));
            assert_true((m.dense_bytes > 0) == (layout->role[rank].dp_id >= 0));
            assert_true((m.kv_bytes > 0) == (layout->role[rank].dp_id >= 0));
            sum += m.expert_bytes;
        }
        assert_true(sum == all);
        tt_layout_destroy(&layout);
    }
}

/* What TP cuts adds up; what it repeats (norms, latent projections, router, shared expert,
 * embedding) is on each rank. */
static void tensor_parallel_parts_add_up(void **state)
{
    (void)state;
    tt_model model;
    plan_model_large(&model);
    const uint64_t whole = UINT64_C(34237339648);
    const uint64_t H = 7168;
    uint64_t repeated = 61 * ((1536 + 576) * H * 2 + (2 * H + 1536 + 512) * 4) +
                        58 * ((256 + 3 * 2048) * H * 2 + 256 * 4) + H * 4 + 129280 * H * 2;
    for (int tp = 1; tp <= 128; tp += tp < 10 ? 1 : 59) {
        tt_layout_params params = {.n_ranks = tp, .tp = tp};
        tt_layout *layout = plan_layout(&model.arch, &params);
        uint64_t sum = 0;
        for (int rank = 0; rank < tp; rank++) {
            sum += memory_of(&model, layout, rank).dense_bytes;
        }
        assert_true(sum == whole + (uint64_t)(tp - 1) * repeated);
        tt_layout_destroy(&layout);
    }
}

/* KV heads that several TP ranks need are repeated: 4 ranks over 2 KV heads hold 4. The latent is
 * on every rank. */
static void kv_per_token_counts_repeated_heads(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 5, .tp = 4, .dp = 1};
    tt_layout *layout = plan_layout(&model.arch, &params);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(tt_plan_kv_bytes_per_token(&model.arch, layout, rank), 2 * 2 * 16 * 4);
    }
    assert_int_equal(tt_plan_kv_bytes_per_token(&model.arch, layout, 4), 0);
    plan_model_small_latent(&model);
    assert_int_equal(tt_plan_kv_bytes_per_token(&model.arch, layout, 0), 2 * (32 + 8) * 4);
    tt_layout_destroy(&layout);
}

/* Field case: byte counts of a big prefill pass 2^31 and 2^32; 2 nodes, all sizes to the byte. */
static void exchange_bytes_do_not_wrap(void **state)
{
    (void)state;
    const struct {
        int64_t H, rows;
    } cases[] = {{7168, 150000}, {7168, 299594}, {6144, 349526}, {1, 1}};
    const int node[] = {0, 1};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_model model;
        plan_model_large(&model);
        model.arch.H = cases[i].H;
        tt_layout_params params = {.n_ranks = 2,
                                   .node_of_rank = node,
                                   .dp = 2,
                                   .tp = 1,
                                   .max_batch = 2,
                                   .prefill_chunk = cases[i].rows,
                                   .n_handles = 3,
                                   .wire = TT_WIRE_BF16,
                                   .wire_back = TT_WIRE_BF16};
        tt_layout *layout = plan_layout(&model.arch, &params);
        uint64_t rows = (uint64_t)cases[i].rows + 1; /* one of the two sequences decodes along */
        assert_int_equal(layout->max_rows_rank, rows);
        uint64_t H = (uint64_t)cases[i].H;
        uint64_t out = rows * (H * 2 + 64);
        uint64_t entries = rows * 8 * 32;
        uint64_t back = rows * 8 * (H * 2 + 64);
        /* own window; one copy of each row for the far owner; buffers for the far source */
        uint64_t bytes = (out + entries + back) + (out + entries) + (out + entries + back);
        assert_true(memory_of(&model, layout, 0).exchange_bytes ==
                    3 * (bytes + (1 + 2 + 1 + 1) * 4096 + 2 * 128));
        if (i == 0) {
            assert_true((rows - 1) * H * 2 == UINT64_C(2150400000));
        }
        tt_layout_destroy(&layout);
    }
    /* One node: only the window. A rank that only serves experts has no window. */
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 2,
                               .split = "attention:0,experts:1",
                               .max_batch = 1,
                               .prefill_chunk = 9,
                               .n_handles = 1};
    tt_layout *layout = plan_layout(&model.arch, &params);
    assert_int_equal(memory_of(&model, layout, 0).exchange_bytes,
                     10 * (64 * 4 + 64) + 10 * 2 * (64 * 4 + 32 + 64) + 4096 + 4096);
    assert_int_equal(memory_of(&model, layout, 1).exchange_bytes, 0);
    const uint64_t work = memory_of(&model, layout, 1).work_bytes;
    tt_layout_destroy(&layout);
    /* In chunks: 10 rows in three of 4, each with its own lists. */
    params.exchange_chunk = 4;
    layout = plan_layout(&model.arch, &params);
    assert_int_equal(memory_of(&model, layout, 0).exchange_bytes,
                     3 * (4 * (64 * 4 + 64) + 4 * 2 * (64 * 4 + 32 + 64) + 4096 + 4096));
    assert_true(memory_of(&model, layout, 1).work_bytes > work);
    tt_layout_destroy(&layout);
}

static void an_absurd_size_saturates_and_is_refused(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    model.arch.context = INT64_C(1) << 40;
    model.arch.D = INT64_C(1) << 30;
    tt_layout_params params = {.n_ranks = 1, .max_batch = 1 << 20, .context = INT64_C(1) << 40};
    tt_layout *layout = plan_layout(&model.arch, &params);
    tt_rank_memory m;
    assert_int_equal(tt_plan_memory(&model, layout, 0, &m), TT_OK);
    assert_true(m.kv_bytes == UINT64_MAX && m.total_bytes == UINT64_MAX);
    const uint64_t available = UINT64_C(1) << 50;
    assert_int_equal(tt_plan_check_fit(&model, layout, &available), TT_ERR_FIT);
    assert_int_equal(tt_plan_memory(&model, layout, 1, &m), TT_ERR_ARG);
    tt_layout_destroy(&layout);
}

/* To the byte: the sum of a node's ranks fits, one byte less does not, 0 is unknown. */
static void fit_is_judged_per_node(void **state)
{
    (void)state;
    tt_model model;
    plan_model_large(&model);
    const int node[] = {0, 0, 1, 1, 1, 1};
    tt_layout_params params = {.n_ranks = 6, .node_of_rank = node};
    tt_layout *layout = plan_layout(&model.arch, &params);
    uint64_t available[2] = {0, 0};
    for (int rank = 0; rank < 6; rank++) {
        available[node[rank]] += memory_of(&model, layout, rank).total_bytes;
    }
    assert_int_equal(tt_plan_check_fit(&model, layout, available), TT_OK);
    available[1]--;
    assert_int_equal(tt_plan_check_fit(&model, layout, available), TT_ERR_FIT);
    assert_non_null(strstr(tt_status_message(), "node 1 needs "));
    assert_non_null(strstr(tt_status_message(), " for its 4 ranks"));
    assert_non_null(strstr(tt_status_message(), "what helps: "));
    assert_null(strchr(tt_status_message(), '\n'));
    available[1] = 0;
    assert_int_equal(tt_plan_check_fit(&model, layout, available), TT_OK);
    available[0] = 1;
    assert_int_equal(tt_plan_check_fit(&model, layout, available), TT_ERR_FIT);
    assert_non_null(strstr(tt_status_message(), "node 0 needs "));
    assert_non_null(strstr(tt_status_message(), "1 B are available"));
    tt_layout_destroy(&layout);
}

static double predicted(const tt_model *model, const tt_layout *layout, const tt_rates *rates,
                        int64_t batch, int64_t context, double *bytes_out)
{
    double step_s = NAN;
    assert_int_equal(tt_plan_predict(model, layout, rates, batch, context, &step_s, bytes_out),
                     TT_OK);
    assert_true(isfinite(step_s) && step_s > 0.0 && *bytes_out > 0.0);
    return step_s;
}

static void assert_close(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected))) {
        fail_msg("%.17g, expected %.17g", value, expected);
    }
}

static void a_step_reads_dense_weights_and_touched_experts(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 1};
    tt_layout *layout = plan_layout(&model.arch, &params);
    tt_rates rates = tt_rates_default();
    rates.read_bytes_per_s = 1e6;
    double dense = 207104 - 320 * 64 * 2; /* rows of the embedding are added one by one */
    double bytes = 0.0;
    for (int64_t batch = 1; batch <= 4; batch++) {
        double missed = 1.0; /* share of experts that no token chose */
        for (int64_t t = 0; t < batch; t++) {
            missed *= 1.0 - 2.0 / 8.0;
        }
        double weights = dense + (double)batch * 64 * 2 + 180224.0 * (1.0 - missed);
        double step_s = predicted(&model, layout, &rates, batch, 0, &bytes);
        assert_close(bytes, weights);
        assert_close(step_s, weights / 1e6); /* one rank exchanges nothing */
        /* KV of 10 positions: 512 bytes each. It is no weight. */
        step_s = predicted(&model, layout, &rates, batch, 10, &bytes);
        assert_close(bytes, weights);
        assert_close(step_s, (weights + (double)batch * 10 * 512) / 1e6);
    }
    model.arch.K = 8; /* every token needs every expert */
    predicted(&model, layout, &rates, 1, 0, &bytes);
    assert_close(bytes, dense + 64 * 2 + 180224.0);
    double step_s = 0.0;
    assert_int_equal(tt_plan_predict(&model, layout, &rates, 0, 0, &step_s, &bytes), TT_ERR_ARG);
    rates.read_bytes_per_s = NAN;
    assert_int_equal(tt_plan_predict(&model, layout, &rates, 1, 0, &step_s, &bytes), TT_ERR_ARG);
    tt_layout_destroy(&layout);
}

/* 1 + 1 disaggregated: the parts follow each other, so times add; no rank reads both. */
static void layers_wait_for_both_roles(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    const int far[] = {0, 1};
    tt_layout_params params = {.n_ranks = 2, .split = "attention:0,experts:1"};
    tt_rates rates = {.read_bytes_per_s = 1e6,
                      .link_bytes_per_s = 1e5,
                      .link_latency_s = 0.5,
                      .window_latency_s = 0.25};
    double dense = 207104 - 320 * 64 * 2 + 64 * 2;
    double experts = 180224.0 * 0.25;
    double bytes = 0.0;
    tt_layout *layout = plan_layout(&model.arch, &params);
    double near_s = predicted(&model, layout, &rates, 1, 0, &bytes);
    assert_close(bytes, dense);
    assert_close(near_s, (dense + experts) / 1e6 + 2 * 0.25);
    tt_layout_destroy(&layout);
    /* Over the link: one row to the one remote rank, 2 results back, f32. */
    params.node_of_rank = far;
    layout = plan_layout(&model.arch, &params);
    double far_s = predicted(&model, layout, &rates, 1, 0, &bytes);
    assert_close(far_s, (dense + experts) / 1e6 + 2 * 0.5 + (64 * 4 + 2 * 64 * 4) / 1e5);
    tt_layout_destroy(&layout);
}

/* Copies of a row that leave its node, from the predicted time of a link so slow that nothing else
 * counts. */
static double predicted_copies(const tt_model *model, int n_ranks, int n_nodes, tt_route route)
{
    enum { MOST = 64 };
    int node[MOST];
    for (int r = 0; r < n_ranks; r++) {
        node[r] = r * n_nodes / n_ranks;
    }
    tt_layout_params params = {.n_ranks = n_ranks,
                               .node_of_rank = node,
                               .dp = n_ranks,
                               .tp = 1,
                               .max_batch = n_ranks,
                               .route = route,
                               .wire = TT_WIRE_BF16,
                               .wire_back = TT_WIRE_BF16};
    tt_layout *layout = plan_layout(&model->arch, &params);
    tt_rates rates = tt_rates_default();
    double bytes = 0.0;
    rates.link_latency_s = 0.0;
    rates.link_bytes_per_s = 1e30;
    const double rest_s = predicted(model, layout, &rates, n_ranks, 0, &bytes);
    rates.link_bytes_per_s = 1.0;
    const double link_bytes = predicted(model, layout, &rates, n_ranks, 0, &bytes) - rest_s;
    tt_layout_destroy(&layout);
    const double choices = 8.0 * (n_nodes - 1) / n_nodes; /* each with a result */
    return link_bytes / (58.0 * 7168.0 * 2.0) - choices;
}

/* Of 256 experts 8 are chosen: G (1 - C(256 - 256 / G, 8) / C(256, 8)) (1 - 1 / M), G = ranks or
 * nodes, M = nodes. */
static void copies_are_those_of_uniform_choices(void **state)
{
    (void)state;
    const struct {
        int n_ranks, n_nodes;
        double by_rank, by_node;
    } cases[] = {{8, 2, 2.65, 1.00}, {16, 4, 4.89, 2.71}, {32, 4, 5.45, 2.71}, {64, 8, 6.72, 4.63}};
    tt_model model;
    plan_model_large(&model);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const double by_rank =
            predicted_copies(&model, cases[i].n_ranks, cases[i].n_nodes, TT_ROUTE_DIRECT);
        const double by_node =
            predicted_copies(&model, cases[i].n_ranks, cases[i].n_nodes, TT_ROUTE_NODE);
        if (fabs(by_rank - cases[i].by_rank) > 0.005 || fabs(by_node - cases[i].by_node) > 0.005) {
            fail_msg("%d ranks on %d nodes: %.3f and %.3f copies", cases[i].n_ranks,
                     cases[i].n_nodes, by_rank, by_node);
        }
    }
}

/* More ranks read less each: a large model gets faster with ranks, and TP helps at batch 1. */
static void larger_layouts_are_predicted_faster(void **state)
{
    (void)state;
    tt_model model;
    plan_model_large(&model);
    tt_rates rates = tt_rates_default();
    double bytes = 0.0;
    double last_s = INFINITY;
    for (int n = 1; n <= 16; n *= 2) {
        tt_layout_params params = {.n_ranks = n, .max_batch = 1};
        tt_layout *layout = plan_layout(&model.arch, &params);
        double step_s = predicted(&model, layout, &rates, 1, 1000, &bytes);
        assert_true(step_s < last_s);
        last_s = step_s;
        tt_layout_destroy(&layout);
    }
}

static void print_shows_each_rank_once(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {
        .n_ranks = 4, .split = "attention:0-1,experts:2-3", .tp = 2, .etp = 2};
    tt_layout *layout = plan_layout(&model.arch, &params);
    FILE *out = tmpfile();
    assert_non_null(out);
    assert_int_equal(tt_plan_print(&model, layout, out), TT_OK);
    rewind(out);
    char line[512];
    int n_lines = 0;
    int next_rank = 0;
    while (fgets(line, sizeof(line), out)) {
        int rank = -1;
        n_lines++;
        if (sscanf(line, "%d", &rank) == 1) {
            assert_int_equal(rank, next_rank++);
            const char *const words[] = {"dp 0 tp 0 heads 0-1", "dp 0 tp 1 heads 2-3",
                                         "0-7 part 0/2", "0-7 part 1/2"};
            assert_non_null(strstr(line, words[rank]));
        }
    }
    assert_int_equal(next_rank, 4);
    assert_int_equal(n_lines, 3 + 4);
    fclose(out);
    tt_layout_destroy(&layout);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_bytes_follow_the_format),
        cmocka_unit_test(one_rank_holds_the_sum_of_all_shapes),
        cmocka_unit_test(biases_and_whole_norms_are_counted),
        cmocka_unit_test(biases_of_experts_are_counted),
        cmocka_unit_test(norm_biases_sinks_and_gates_are_counted),
        cmocka_unit_test(recurrent_layers_hold_states_instead_of_keys),
        cmocka_unit_test(recurrent_heads_are_split_whole),
        cmocka_unit_test(windows_bound_what_a_step_reads),
        cmocka_unit_test(experts_add_up_to_the_model),
        cmocka_unit_test(tensor_parallel_parts_add_up),
        cmocka_unit_test(kv_per_token_counts_repeated_heads),
        cmocka_unit_test(exchange_bytes_do_not_wrap),
        cmocka_unit_test(an_absurd_size_saturates_and_is_refused),
        cmocka_unit_test(fit_is_judged_per_node),
        cmocka_unit_test(a_step_reads_dense_weights_and_touched_experts),
        cmocka_unit_test(layers_wait_for_both_roles),
        cmocka_unit_test(copies_are_those_of_uniform_choices),
        cmocka_unit_test(larger_layouts_are_predicted_faster),
        cmocka_unit_test(print_shows_each_rank_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
