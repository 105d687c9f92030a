/* test_made.c - models that are made: every shape can be, its numbers hang on tensor and row alone,
 * are symmetric about zero, and are as wide as they should be in every format; fewer layers keep
 * the share of dense ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/cpu.h"
#include "tutti/load.h"
#include "tutti/model.h"
#include "ttk.h"

enum { FEW_ROWS = 70 };

static tt_model *make(const char *shape, int64_t layers, tt_weight_format weights, uint64_t seed)
{
    tt_made_params params = {.shape = shape, .layers = layers, .weights = weights, .seed = seed};
    tt_model *model = NULL;
    if (tt_model_make(&params, &model) != TT_OK) {
        fail_msg("%s: %s", shape, tt_status_message());
    }
    return model;
}

static float *read_rows(const tt_model *model, const tt_tensor *tensor, int64_t row, int64_t n)
{
    float *x = malloc((size_t)(n * tensor->cols) * sizeof(*x));
    assert_non_null(x);
    assert_int_equal(tt_model_read_f32(model, tensor, row, n, x), TT_OK);
    return x;
}

/* Each shape, two layers of it: has all that its architecture needs, and at least one layer with
 * experts. */
static void every_shape_can_be_made(void **state)
{
    (void)state;
    size_t n = 0;
    for (const char *name; (name = tt_model_shape(n)); n++) {
        tt_model *model = make(name, 2, TT_WEIGHTS_AUTO, 0);
        const tt_arch *a = tt_model_arch(model);
        assert_true(tt_model_is_made(model));
        assert_int_equal(a->L, 2);
        assert_true(a->E > 0 && a->layer[1].is_moe);
        tt_tensor tensor;
        int64_t total, active, n_tensors = 0;
        for (tt_tensor_place at = {0}; tt_model_next_tensor(model, &at, &tensor); n_tensors++) {
            assert_true(tensor.rows > 0 && tensor.cols > 0);
            assert_int_equal(tt_tensor_file_bytes(&tensor, tensor.rows), 0);
        }
        assert_true(n_tensors > 3 * a->E);
        tt_model_count_parameters(model, &total, &active);
        assert_true(total > active && active > 0);
        tt_model_close(&model);
    }
    assert_true(n >= 30);
    assert_null(tt_model_shape(n));
}

static void whole_models_have_their_makers_size(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double total, active; /* thousand millions, as their makers round them */
    } table[] = {{"qwen3-30b-a3b", 30.5, 3.3},
                 {"qwen3-235b-a22b", 235, 22},
                 {"deepseek-v3", 671, 37.5},
                 {"deepseek-v2-lite", 15.7, 2.7},
                 {"olmoe", 6.9, 1.3},
                 {"mixtral-8x7b", 46.7, 12.9},
                 {"gpt-oss-120b", 116.8, 5.7},
                 {"kimi-k2", 1026, 32.6},
                 {"glm-4.5-air", 107, 12.6},
                 {"a", 0.835, 0.135},
                 {"b", 6.92, 1.28},
                 {"c", 8.10, 0.99}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        tt_model *model = make(table[i].name, 0, TT_WEIGHTS_AUTO, 0);
        int64_t total, active;
        tt_model_count_parameters(model, &total, &active);
        print_message("# %s: %.2f, %.2f active\n", table[i].name, (double)total / 1e9,
                      (double)active / 1e9);
        assert_true(fabs((double)total / 1e9 / table[i].total - 1) < 0.02);
        tt_model_close(&model);
    }
}

/* Mean within five deviations of zero, and the deviation near 0.6 / sqrt(inputs). */
static void check_numbers(const float *x, int64_t n, int64_t cols)
{
    double sum = 0, squares = 0, want = 0.6 / sqrt((double)cols);
    for (int64_t i = 0; i < n; i++) {
        assert_true(isfinite(x[i]));
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    double rms = sqrt(squares / (double)n);
    assert_true(fabs(sum / (double)n) < 5 * rms / sqrt((double)n));
    assert_true(rms > 0.5 * want && rms < 2 * want);
}

static void rows_hang_on_tensor_and_row_alone(void **state)
{
    (void)state;
    for (tt_weight_format weights = TT_WEIGHTS_AUTO; weights < TT_WEIGHTS_COUNT; weights++) {
        tt_model *model = make("granite-3.1-1b-a400m", 1, weights, 7),
                 *again = make("granite-3.1-1b-a400m", 1, weights, 7);
        tt_model *other = make("granite-3.1-1b-a400m", 1, weights, 8);
        tt_tensor t = tt_model_tensor(model, TT_ROLE_EXPERT_GATE, 0, 5),
                  next = tt_model_tensor(model, TT_ROLE_EXPERT_GATE, 0, 6);
        tt_tensor same = tt_model_tensor(again, TT_ROLE_EXPERT_GATE, 0, 5),
                  different = tt_model_tensor(other, TT_ROLE_EXPERT_GATE, 0, 5);
        size_t bytes = (size_t)(FEW_ROWS * t.cols) * sizeof(float);
        float *whole = read_rows(model, &t, 0, FEW_ROWS),
              *equal = read_rows(again, &same, 0, FEW_ROWS);
        float *expert = read_rows(model, &next, 0, FEW_ROWS),
              *seed = read_rows(other, &different, 0, FEW_ROWS);
        assert_memory_equal(whole, equal, bytes);
        assert_memory_not_equal(whole, expert, bytes);
        assert_memory_not_equal(whole, seed, bytes);
        check_numbers(whole, FEW_ROWS * t.cols, t.cols);
        for (int64_t row = 0; row < FEW_ROWS; row += 9) {
            int64_t n = FEW_ROWS - row < 13 ? FEW_ROWS - row : 13;
            float *part = read_rows(model, &t, row, n);
            assert_memory_equal(part, whole + row * t.cols, (size_t)(n * t.cols) * sizeof(float));
            free(part);
        }
        assert_int_equal(tt_model_hash(model), tt_model_hash(again));
        assert_int_not_equal(tt_model_hash(model), tt_model_hash(other));
        assert_int_not_equal(tt_tensor_hash(&t), tt_tensor_hash(&next));
        free(whole);
        free(equal);
        free(expert);
        free(seed);
        tt_model_close(&model);
        tt_model_close(&again);
        tt_model_close(&other);
    }
}

/* What a rank packs of its rows is what any other would pack of them. */
static void parts_pack_as_the_whole(void **state)
{
    (void)state;
    for (tt_weight_format weights = TT_WEIGHTS_F32; weights < TT_WEIGHTS_COUNT; weights++) {
        tt_model *model = make("a", 1, weights, 0);
        tt_load_params load = {.model = model, .weights = TT_WEIGHTS_AUTO, .node = -1};
        tt_tensor t = tt_model_tensor(model, TT_ROLE_O, 0, 0);
        tt_linear whole, part;
        ttk_format want =
            tt_load_format(weights, &(tt_tensor){.role = TT_ROLE_O, .format = {.code = TTK_BF16}});
        assert_int_equal(t.format.code, want.code);
        assert_int_equal(tt_load_linear(&load, &t, 0, t.rows, &whole), TT_OK);
        size_t panel = ttk_panel_bytes(&whole.format, t.cols);
        for (int64_t first = 0; first < 4; first++) { /* in panels */
            assert_int_equal(tt_load_linear(&load, &t, first * TTK_PANEL, 3 * TTK_PANEL, &part),
                             TT_OK);
            assert_memory_equal(part.panels, (unsigned char *)whole.panels + (size_t)first * panel,
                                3 * panel);
            tt_linear_fini(&part);
        }
        tt_linear_fini(&whole);
        tt_load_end(&load);
        tt_model_close(&model);
    }
}

static void norms_pass_on_and_biases_add_nothing(void **state)
{
    (void)state;
    tt_model *model = make("gpt-oss-20b", 1, TT_WEIGHTS_AUTO, 0);
    const tt_role ones[] = {TT_ROLE_FINAL_NORM, TT_ROLE_ATTENTION_NORM},
                  zeros[] = {TT_ROLE_Q_BIAS, TT_ROLE_EXPERT_UP_BIAS, TT_ROLE_SINKS};
    for (size_t i = 0; i < 5; i++) {
        tt_tensor t = tt_model_tensor(model, i < 2 ? ones[i] : zeros[i - 2], 0, 3);
        assert_non_null(t.name);
        float *x = read_rows(model, &t, 0, t.rows);
        for (int64_t j = 0; j < t.rows * t.cols; j++) {
            assert_true(x[j] == (i < 2 ? 1.0f : 0.0f));
        }
        free(x);
    }
    tt_tensor expert = tt_model_tensor(model, TT_ROLE_EXPERT_DOWN, 0, 0),
              q = tt_model_tensor(model, TT_ROLE_Q, 0, 0);
    assert_int_equal(expert.format.code, TTK_E2M1); /* as its maker stores them */
    assert_int_equal(q.format.code, TTK_BF16);
    tt_model_close(&model);
}

static void fewer_layers_keep_the_share_of_dense_ones(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        int64_t layers, dense;
    } table[] = {{"deepseek-v3", 0, 3},      {"deepseek-v3", 61, 3}, {"deepseek-v3", 40, 2},
                 {"deepseek-v3", 4, 1},      {"deepseek-v3", 2, 1},  {"deepseek-v3", 1, 0},
                 {"kimi-k2", 8, 1},          {"glm-4.5", 10, 1},     {"qwen3-30b-a3b", 12, 0},
                 {"ernie-4.5-21b-a3b", 3, 1}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        tt_model *model = make(table[i].shape, table[i].layers, TT_WEIGHTS_AUTO, 0);
        const tt_arch *a = tt_model_arch(model);
        for (int64_t l = 0; l < a->L; l++) {
            assert_int_equal(a->layer[l].is_moe, l >= table[i].dense);
        }
        tt_model_close(&model);
    }
}

static void wrong_shapes_are_refused(void **state)
{
    (void)state;
    tt_model *model = NULL;
    tt_made_params params = {.shape = "no-such\nshape"};
    assert_int_equal(tt_model_make(&params, &model), TT_ERR_USAGE);
    assert_non_null(strstr(tt_status_message(), "deepseek-v3"));
    assert_non_null(strstr(tt_status_message(), "phi-3.5-moe"));
    params.shape = "c";
    params.layers = 13;
    assert_int_equal(tt_model_make(&params, &model), TT_ERR_USAGE);
    assert_non_null(strstr(tt_status_message(), "12 layers"));
    assert_null(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_can_be_made),
        cmocka_unit_test(whole_models_have_their_makers_size),
        cmocka_unit_test(rows_hang_on_tensor_and_row_alone),
        cmocka_unit_test(parts_pack_as_the_whole),
        cmocka_unit_test(norms_pass_on_and_biases_add_nothing),
        cmocka_unit_test(fewer_layers_keep_the_share_of_dense_ones),
        cmocka_unit_test(wrong_shapes_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    ttk_init(tt_cpu_flags());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
