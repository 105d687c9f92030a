/* test_load.c - packed matrices are the same bits however a tensor is walked: alone in one read, or
 * through a relay in pieces so small that panels and heads are cut by their borders, into any
 * targets; and a relay's errors come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tutti/load.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model_internal.h"
#include "requantize.h"
#include "source.h"
#include "tutti/memory.h"

enum { MAX_TARGETS = 64, MAX_PIECE = 1 << 16 };

/* A relay with one member: every piece is read into a place and taken from there. */
typedef struct lone_relay {
    unsigned char place[MAX_PIECE];
    bool is_read;
    uint64_t n_pieces, fail_at;
    tt_status read, told;
} lone_relay;

static tt_status lone_begin(void *arg, uint64_t n_left, uint64_t *ahead_out, void **place_out)
{
    lone_relay *relay = arg;
    assert_true(n_left > 0);
    *ahead_out = 0;
    *place_out = relay->is_read ? NULL : relay->place;
    memset(relay->place, 0xee, relay->is_read ? 0 : sizeof(relay->place));
    return TT_OK;
}

static void lone_publish(void *arg, tt_status st)
{
    lone_relay *relay = arg;
    relay->is_read = true;
    relay->read = st;
}

static tt_status lone_take(void *arg, const void **piece_out)
{
    lone_relay *relay = arg;
    assert_true(relay->is_read);
    assert_int_equal(relay->read, TT_OK);
    *piece_out = relay->place;
    return ++relay->n_pieces == relay->fail_at ? TT_FAIL(TT_ERR_PEER, "rank 5 is gone") : TT_OK;
}

static void lone_release(void *arg)
{
    lone_relay *relay = arg;
    relay->is_read = false;
}

static void lone_fail(void *arg, tt_status st)
{
    lone_relay *relay = arg;
    relay->told = st;
}

static tt_load_relay table_of(lone_relay *relay, size_t piece_bytes)
{
    memset(relay, 0, sizeof(*relay));
    return (tt_load_relay){relay,     piece_bytes,  lone_begin, lone_publish,
                           lone_take, lone_release, lone_fail};
}

static tt_model *open_golden(const char *name)
{
    char path[4096];
    tt_model *model = NULL;
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof(path), "%s/tests/golden/%s", top ? top : ".", name);
    if (tt_model_open(path, &model) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return model;
}

/* ---- targets ---- */

/* Cuts rows [0, rows) in up to MAX_TARGETS targets with some gaps, some transposed. */
static int cut(const tt_tensor *tensor, uint64_t seed, tt_load_target *target, tt_linear *linear)
{
    int n = 0;
    for (int64_t row = 0; row < tensor->rows && n < MAX_TARGETS; n++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        row += (seed >> 60) == 0 ? 3 : 0;
        int64_t want = 1 + (int64_t)((seed >> 33) % (n % 3 ? 40 : 150)), left = tensor->rows - row;
        if (left <= 0) {
            break;
        }
        target[n] = (tt_load_target){.row = row,
                                     .n_rows = want < left ? want : left,
                                     .transposed = (seed >> 50) % 4 == 0,
                                     .linear = &linear[n]};
        row += target[n].n_rows;
    }
    return n;
}

static void expect_equal(const tt_linear *a, const tt_linear *b, const char *name)
{
    if (a->bytes != b->bytes || a->N != b->N || a->K != b->K ||
        memcmp(a->panels, b->panels, a->bytes) != 0) {
        fail_msg("'%s': panels differ", name);
    }
}

/* What a target must hold, from the numbers of the whole tensor. */
static void expect_numbers(const tt_load_target *t, const float *numbers, int64_t cols,
                           const char *name)
{
    tt_linear want;
    const ttk_format f32 = {.code = TTK_F32};
    int64_t N = t->transposed ? cols : t->n_rows, K = t->transposed ? t->n_rows : cols;
    assert_int_equal(tt_linear_init(&want, "test", &f32, N, K, TT_MEMORY_ANY_NODE), TT_OK);
    ttk.pack(want.panels, TTK_F32, numbers + t->row * cols, TTK_F32, t->transposed ? 1 : cols,
             t->transposed ? cols : 1, N, K, 0, tt_linear_n_panels(&want));
    expect_equal(t->linear, &want, name);
    tt_linear_fini(&want);
}

/* The same where weights are rounded. Codes that are kept, and transposed targets, are not looked
 * at here. */
static void expect_rounded(const tt_load_target *t, const tt_tensor *tensor, const float *numbers,
                           tt_weight_format weights)
{
    const ttk_format to = t->linear->format, wanted = tt_load_format(weights, tensor);
    int64_t N = t->linear->N, K = t->linear->K, cols = tensor->cols;
    if (t->transposed || ttk_format_is_plain(&to) || tti_same_format(&wanted, &tensor->format)) {
        return;
    }
    tt_linear want;
    size_t bytes = ttk_unpacked_bytes(&to, N, K);
    float *w = malloc((size_t)(N * K) * sizeof(float));
    void *buffer = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_true(w && buffer && tti_same_format(&to, &wanted));
    for (int64_t i = 0; i < N * K; i++) {
        w[i] = numbers[t->row * cols + i];
    }
    ttk_unpacked rows = ttk_unpacked_in(&to, N, K, buffer);
    ttk.quantize(&to, w, N, K, &rows);
    assert_int_equal(tt_linear_init(&want, "test", &to, N, K, TT_MEMORY_ANY_NODE), TT_OK);
    ttk.pack_quant(want.panels, &to, &rows, N, K, 0, tt_linear_n_panels(&want));
    expect_equal(t->linear, &want, tensor->name);
    tt_linear_fini(&want);
    free(buffer);
    free(w);
}

/* Returns the pieces that the walk took. */
static uint64_t check_tensor(const tt_model *model, const tt_tensor *tensor, size_t piece_bytes,
                             tt_weight_format weights)
{
    static lone_relay relay;
    tt_load_relay table = table_of(&relay, piece_bytes);
    tt_linear linear[MAX_TARGETS], alone;
    tt_load_target target[MAX_TARGETS];
    tt_load_params params = {
        .model = model, .weights = weights, .node = TT_MEMORY_ANY_NODE, .relay = &table};
    tt_load_params by_itself = {.model = model, .weights = weights, .node = TT_MEMORY_ANY_NODE};
    float *numbers = malloc((size_t)(tensor->rows * tensor->cols) * sizeof(float));
    assert_non_null(numbers);
    if (tt_model_read_f32(model, tensor, 0, tensor->rows, numbers) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    int n = cut(tensor, (uint64_t)tensor->rows * 31 + piece_bytes, target, linear);
    if (tt_load_linears(&params, tensor, target, n) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    for (int i = 0; i < n; i++) {
        tt_load_target one = target[i];
        one.linear = &alone;
        assert_int_equal(tt_load_linears(&by_itself, tensor, &one, 1), TT_OK);
        expect_equal(&linear[i], &alone, tensor->name);
        if (weights == TT_WEIGHTS_F32) {
            expect_numbers(&target[i], numbers, tensor->cols, tensor->name);
        }
        expect_rounded(&target[i], tensor, numbers, weights);
        tt_linear_fini(&alone);
        tt_linear_fini(&linear[i]);
    }
    assert_int_equal(params.packed_bytes, by_itself.packed_bytes);
    tt_load_end(&params);
    tt_load_end(&by_itself);
    free(numbers);
    return relay.n_pieces;
}

static void any_walk_gives_the_same_panels(void **state)
{
    static const char *const names[] = {
        "architectures/deepseek_v3_fp8", "architectures/qwen3_moe_gptq",
        "architectures/qwen3_moe_awq",   "architectures/gpt_oss_mxfp4",
        "architectures/llama4_text",     "architectures/deepseek_v2",
        "gguf/deepseek_v3.gguf",         "gguf/qwen2_moe.gguf",
        "architectures/granitemoe"};
    static const tt_role roles[] = {TT_ROLE_HEAD,       TT_ROLE_Q,    TT_ROLE_O,
                                    TT_ROLE_KV_B,       TT_ROLE_GATE, TT_ROLE_EXPERT_GATE,
                                    TT_ROLE_EXPERT_DOWN};
    static const size_t pieces[] = {1500, 20000, MAX_PIECE};
    uint64_t n_pieces = 0;
    (void)state;
    for (size_t m = 0; m < sizeof(names) / sizeof(names[0]); m++) {
        tt_model *model = open_golden(names[m]);
        int64_t last = tt_model_arch(model)->L - 1;
        for (size_t r = 0; r < 2 * sizeof(roles) / sizeof(roles[0]); r++) {
            tt_tensor tensor = tt_model_tensor(model, roles[r / 2], r % 2 ? last : 0, 1);
            for (size_t p = 0; tensor.name && p < sizeof(pieces) / sizeof(pieces[0]); p++) {
                n_pieces += check_tensor(model, &tensor, pieces[p], TT_WEIGHTS_AUTO);
                check_tensor(model, &tensor, pieces[p], TT_WEIGHTS_F32);
                check_tensor(model, &tensor, pieces[p], TT_WEIGHTS_BF16);
                check_tensor(model, &tensor, pieces[p], (tt_weight_format)(TT_WEIGHTS_INT8 + p));
            }
        }
        tt_model_close(&model);
    }
    assert_true(n_pieces > 1000);
}

static void only_matrices_of_products_are_rounded(void **state)
{
    static const struct {
        tt_role role;
        bool is_rounded;
    } want[] = {{TT_ROLE_EMBED, false},      {TT_ROLE_HEAD, false},    {TT_ROLE_ROUTER, false},
                {TT_ROLE_FFN_NORM, false},   {TT_ROLE_Q_B, true},      {TT_ROLE_KV_B, false},
                {TT_ROLE_EXPERT_DOWN, true}, {TT_ROLE_SHARED_UP, true}};
    (void)state;
    tt_model *model = open_golden("architectures/deepseek_v3");
    int64_t last = tt_model_arch(model)->L - 1;
    for (tt_weight_format weights = TT_WEIGHTS_INT8; weights < TT_WEIGHTS_COUNT; weights++) {
        for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
            tt_tensor tensor = tt_model_tensor(model, want[i].role, last, 0);
            ttk_format format = tt_load_format(weights, &tensor),
                       as_stored = tt_load_format(TT_WEIGHTS_AUTO, &tensor);
            assert_non_null(tensor.name);
            assert_int_equal(!ttk_format_is_plain(&format), want[i].is_rounded);
            assert_true(want[i].is_rounded || tti_same_format(&format, &as_stored));
            assert_true(!want[i].is_rounded || ttk_can_quantize(&format));
        }
    }
    tt_model_close(&model);
}

static void rows_and_vectors_come_through_a_relay(void **state)
{
    static lone_relay relay;
    (void)state;
    tt_model *model = open_golden("architectures/deepseek_v3_fp8");
    tt_tensor embed = tt_model_tensor(model, TT_ROLE_EMBED, 0, 0),
              norm = tt_model_tensor(model, TT_ROLE_FINAL_NORM, 0, 0);
    tt_load_relay calls = table_of(&relay, 4000);
    tt_load_params params = {.model = model, .node = TT_MEMORY_ANY_NODE, .relay = &calls};
    size_t bytes = ttk_unpacked_bytes(&embed.format, embed.rows, embed.cols),
           before = tt_memory_used_bytes();
    void *want = aligned_alloc(64, (bytes + 63) / 64 * 64);
    float *vector = NULL, *numbers = malloc((size_t)(norm.rows * norm.cols) * sizeof(float));
    ttk_unpacked rows;
    tt_table table;
    assert_true(want && numbers);
    assert_int_equal(tt_load_table(&params, &embed, &table), TT_OK);
    assert_true(relay.n_pieces > 1);
    assert_int_equal(tt_model_read_rows(model, &embed, 0, embed.rows, want, &rows), TT_OK);
    assert_memory_equal(table.rows.code, want,
                        (size_t)(embed.rows * embed.cols) * ttk_dtype_bytes(embed.format.code));
    assert_int_equal(tt_load_vector(&params, &norm, 3, 5, &vector), TT_OK);
    assert_int_equal(tt_model_read_f32(model, &norm, 0, norm.rows, numbers), TT_OK);
    assert_memory_equal(vector, numbers + 3, 5 * sizeof(float));
    tt_memory_free(vector, 5 * sizeof(float));
    tt_table_fini(&table);
    tt_load_end(&params);
    assert_int_equal(tt_memory_used_bytes(), before);
    free(want);
    free(numbers);
    tt_model_close(&model);
}

/* A share of one process: a list of keys. Two loaders with one share are two ranks of a node. */
typedef struct lone_share {
    struct {
        tt_hash_pair key;
        size_t bytes;
        void *memory;
    } piece[2 * MAX_TARGETS];
    int n, n_left; /* claims until one fails; 0 = none does */
} lone_share;

static tt_status claim_piece(void *arg, tt_hash_pair key, size_t bytes, void **memory_out,
                             bool *fill_out)
{
    lone_share *share = arg;
    assert_true(key.first != 0 && bytes > 0);
    if (share->n_left > 0 && --share->n_left == 0) {
        return TT_FAIL(TT_ERR_CAPACITY, "the share is full");
    }
    for (int i = 0; i < share->n; i++) {
        if (share->piece[i].key.first == key.first) {
            assert_true(share->piece[i].key.second == key.second);
            assert_int_equal(share->piece[i].bytes, bytes);
            *memory_out = share->piece[i].memory;
            *fill_out = false;
            return TT_OK;
        }
    }
    assert_true(share->n < 2 * MAX_TARGETS);
    *memory_out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(*memory_out);
    *fill_out = true;
    share->piece[share->n].key = key;
    share->piece[share->n].bytes = bytes;
    share->piece[share->n++].memory = *memory_out;
    return TT_OK;
}

static void empty_share(lone_share *share)
{
    for (int i = 0; i < share->n; i++) {
        free(share->piece[i].memory);
    }
    *share = (lone_share){0};
}

/* Rows of a tensor in 2 to MAX_TARGETS targets: as any rank loads them; a second rank with one
 * other cut borrows what is alike, fills the rest. */
static void expect_shared(const tt_model *model, const tt_tensor *tensor, tt_weight_format weights,
                          bool with_relay)
{
    static lone_relay relay;
    lone_share pieces = {0};
    tt_load_relay calls = table_of(&relay, 20000);
    tt_load_share share = {&pieces, claim_piece};
    tt_load_params params = {.model = model,
                             .weights = weights,
                             .node = TT_MEMORY_ANY_NODE,
                             .relay = with_relay ? &calls : NULL};
    tt_linear own[MAX_TARGETS], first[MAX_TARGETS], second[MAX_TARGETS];
    tt_load_target target[MAX_TARGETS], again[MAX_TARGETS];
    size_t before = tt_memory_used_bytes();
    int n = cut(tensor, 77, target, own);
    assert_int_equal(tt_load_linears(&params, tensor, target, n), TT_OK);
    uint64_t all_bytes = params.packed_bytes;
    params.share = &share;
    params.packed_bytes = 0;
    for (int i = 0; i < n; i++) {
        target[i].linear = &first[i];
        again[i] = target[i];
        again[i].linear = &second[i];
    }
    again[n - 1].n_rows -= again[n - 1].n_rows > 1; /* not what the first has */
    assert_int_equal(tt_load_linears(&params, tensor, target, n), TT_OK);
    assert_int_equal(params.packed_bytes, all_bytes);
    assert_int_equal(params.borrowed_bytes, 0);
    assert_int_equal(tt_load_linears(&params, tensor, again, n), TT_OK);
    uint64_t of_last = again[n - 1].n_rows < target[n - 1].n_rows ? second[n - 1].bytes : 0;
    assert_int_equal(params.packed_bytes, all_bytes + of_last);
    for (int i = 0; i < n; i++) {
        expect_equal(&first[i], &own[i], tensor->name);
        bool is_other = i == n - 1 && of_last > 0;
        assert_true(first[i].bytes == 0 || (second[i].panels == first[i].panels) == !is_other);
        tt_linear_fini(&second[i]);
        tt_linear_fini(&first[i]);
        tt_linear_fini(&own[i]);
    }
    tt_load_end(&params);
    assert_int_equal(tt_memory_used_bytes(), before);
    empty_share(&pieces);
}

static void ranks_share_what_is_alike(void **state)
{
    static const char *const names[] = {"architectures/deepseek_v3_fp8",
                                        "architectures/qwen3_moe_awq", "architectures/deepseek_v2",
                                        "gguf/deepseek_v3.gguf"};
    static const tt_role roles[] = {TT_ROLE_HEAD, TT_ROLE_Q, TT_ROLE_O, TT_ROLE_KV_B, TT_ROLE_GATE};
    (void)state;
    for (size_t m = 0; m < sizeof(names) / sizeof(names[0]); m++) {
        tt_model *model = open_golden(names[m]);
        for (size_t r = 0; r < sizeof(roles) / sizeof(roles[0]); r++) {
            tt_tensor tensor = tt_model_tensor(model, roles[r], 0, 0);
            for (int i = 0; tensor.name && i < 4; i++) {
                expect_shared(model, &tensor, i & 1 ? TT_WEIGHTS_F32 : TT_WEIGHTS_AUTO, i & 2);
            }
        }
        tt_model_close(&model);
    }
}

static void a_table_is_shared_and_experts_are_not(void **state)
{
    static lone_relay relay;
    lone_share pieces = {0};
    (void)state;
    tt_model *model = open_golden("architectures/deepseek_v3_fp8");
    tt_tensor embed = tt_model_tensor(model, TT_ROLE_EMBED, 0, 0),
              head = tt_model_tensor(model, TT_ROLE_HEAD, 0, 0);
    tt_load_relay calls = table_of(&relay, 4000);
    tt_load_share share = {&pieces, claim_piece};
    tt_load_params params = {
        .model = model, .node = TT_MEMORY_ANY_NODE, .relay = &calls, .share = &share};
    tt_table own, first, second;
    size_t before = tt_memory_used_bytes();
    params.alone = true;
    assert_int_equal(tt_load_table(&params, &embed, &own), TT_OK);
    params.alone = false;
    assert_int_equal(pieces.n, 0);
    assert_int_equal(tt_load_table(&params, &embed, &first), TT_OK);
    assert_int_equal(tt_load_table(&params, &embed, &second), TT_OK);
    assert_int_equal(pieces.n, 1);
    assert_true(first.memory == second.memory && first.memory != own.memory &&
                first.bytes == own.bytes);
    assert_memory_equal(first.memory, own.memory, own.bytes);
    assert_int_equal(params.borrowed_bytes, own.bytes);
    assert_int_equal(params.packed_bytes, 2 * own.bytes);
    /* The same tensor, packed, is something else. */
    tt_linear linear;
    assert_int_equal(tt_load_linear(&params, &embed, 0, embed.rows, &linear), TT_OK);
    assert_int_equal(pieces.n, 2);
    tt_linear_fini(&linear);
    tt_table_fini(&own);
    tt_table_fini(&first);
    tt_table_fini(&second);
    /* A claim that fails leaves nothing. */
    tt_linear parts[2];
    tt_load_target target[] = {{.row = 0, .n_rows = 32, .linear = &parts[0]},
                               {.row = 32, .n_rows = 32, .linear = &parts[1]}};
    pieces.n_left = 2;
    assert_int_equal(tt_load_linears(&params, &head, target, 2), TT_ERR_CAPACITY);
    assert_null(parts[0].panels);
    pieces.n_left = 1;
    assert_int_equal(tt_load_table(&params, &head, &first), TT_ERR_CAPACITY);
    assert_null(first.memory);
    tt_load_end(&params);
    assert_int_equal(tt_memory_used_bytes(), before);
    empty_share(&pieces);
    tt_model_close(&model);
}

static void keys_tell_parts_apart(void **state)
{
    (void)state;
    tt_model *model = open_golden("architectures/deepseek_v2");
    tt_tensor q = tt_model_tensor(model, TT_ROLE_O, 0, 0),
              other = tt_model_tensor(model, TT_ROLE_O, 1, 0);
    ttk_format f32 = {.code = TTK_F32}, bf16 = {.code = TTK_BF16};
    const tt_hash_pair keys[] = {tt_load_share_key(&q, &f32, TT_LOAD_PACKED, 0, 32),
                                 tt_load_share_key(&q, &bf16, TT_LOAD_PACKED, 0, 32),
                                 tt_load_share_key(&q, &f32, TT_LOAD_TABLE, 0, 32),
                                 tt_load_share_key(&q, &f32, TT_LOAD_TRANSPOSED, 0, 32),
                                 tt_load_share_key(&q, &f32, TT_LOAD_PACKED, 32, 32),
                                 tt_load_share_key(&q, &f32, TT_LOAD_PACKED, 0, 33),
                                 tt_load_share_key(&other, &f32, TT_LOAD_PACKED, 0, 32)};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        for (size_t k = 0; k < i; k++) {
            /* each half alone tells them */
            assert_true(keys[i].first != keys[k].first && keys[i].second != keys[k].second);
        }
    }
    tt_hash_pair again = tt_load_share_key(&q, &f32, TT_LOAD_PACKED, 0, 32);
    assert_true(keys[0].first == again.first && keys[0].second == again.second);
    tt_model_close(&model);
}

static void errors_of_a_relay_come_back(void **state)
{
    static lone_relay relay;
    (void)state;
    tt_model *model = open_golden("architectures/deepseek_v2");
    tt_tensor head = tt_model_tensor(model, TT_ROLE_HEAD, 0, 0);
    tt_load_relay table = table_of(&relay, 4000);
    tt_load_params params = {.model = model, .node = TT_MEMORY_ANY_NODE, .relay = &table};
    tt_linear linear = {0};
    size_t before = tt_memory_used_bytes();
    relay.fail_at = 2;
    tt_status st = tt_load_told(&params, tt_load_linear(&params, &head, 0, head.rows, &linear));
    assert_int_equal(st, TT_ERR_PEER);
    assert_int_equal(relay.told, TT_ERR_PEER);
    assert_non_null(strstr(tt_status_message(), "rank 5 is gone"));
    assert_null(linear.panels);
    tt_load_end(&params);
    assert_int_equal(tt_memory_used_bytes(), before);
    /* Targets that are out of order or outside are refused before anything is read. */
    tt_load_target bad[] = {{.row = 4, .n_rows = 4, .linear = &linear},
                            {.row = 7, .n_rows = 2, .linear = &linear}};
    assert_int_equal(tt_load_linears(&params, &head, bad, 2), TT_ERR_ARG);
    bad[0].n_rows = head.rows;
    assert_int_equal(tt_load_linears(&params, &head, bad, 1), TT_ERR_ARG);
    tt_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_walk_gives_the_same_panels),
        cmocka_unit_test(only_matrices_of_products_are_rounded),
        cmocka_unit_test(rows_and_vectors_come_through_a_relay),
        cmocka_unit_test(ranks_share_what_is_alike),
        cmocka_unit_test(a_table_is_shared_and_experts_are_not),
        cmocka_unit_test(keys_tell_parts_apart),
        cmocka_unit_test(errors_of_a_relay_come_back),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    ttk_init(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
