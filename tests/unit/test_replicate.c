/* test_replicate.c - what ranks of a node hold once: bytes by hand, a count of distinct matrices by
 * brute force over many layouts, room in the arena, and the choice between private and shared
 * copies, to the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "plan_internal.h"
#include "plan_model.h"
#include "tutti/shared_memory.h"

enum { MAX_RANKS = 16 };

static tt_rank_memory memory_of(const tt_model *model, const tt_layout *layout, int rank)
{
    tt_rank_memory m;
    assert_int_equal(tt_plan_memory(model, layout, rank, &m), TT_OK);
    assert_true(m.borrowed_bytes <= m.dense_bytes);
    assert_true(m.total_bytes == m.dense_bytes - m.borrowed_bytes + m.expert_bytes + m.kv_bytes +
                                     m.exchange_bytes + m.work_bytes);
    return m;
}

static uint64_t borrowed(const tt_model *model, const tt_layout *layout, int rank)
{
    return memory_of(model, layout, rank).borrowed_bytes;
}

/* A packed bf16 matrix, by the words of its contract. */
static uint64_t packed(uint64_t rows, uint64_t cols)
{
    return (rows + 31) / 32 * 32 * cols * 2;
}

/* Of the small model: what all attention ranks have whole. */
static uint64_t whole_bytes(void)
{
    uint64_t embedding = UINT64_C(320) * 64 * 2;
    return embedding + packed(8, 64) + 2 * packed(40, 64) + packed(64, 40);
}

static void equal_parts_are_held_once(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 4, .dp = 4, .tp = 1, .replicate = TT_REPLICATE_NODE};
    tt_layout *layout = plan_layout(&model.arch, &params);
    uint64_t attention = packed(64, 64) + 2 * packed(32, 64) + packed(64, 64);
    uint64_t all =
        whole_bytes() + 2 * attention + 2 * packed(128, 64) + packed(64, 128) + packed(320, 64);
    assert_int_equal(borrowed(&model, layout, 0), 0);
    for (int rank = 1; rank < 4; rank++) {
        assert_int_equal(borrowed(&model, layout, rank), all);
    }
    layout->replicate = TT_REPLICATE_NUMA;
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(borrowed(&model, layout, rank), 0);
    }
    tt_layout_destroy(&layout);
}

static void other_parts_share_what_is_whole(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 4, .dp = 1, .tp = 4, .replicate = TT_REPLICATE_NODE};
    tt_layout *layout = plan_layout(&model.arch, &params);
    /* Two parts need the same key head in each of two layers. */
    uint64_t heads = 2 * 2 * packed(16, 64);
    assert_int_equal(borrowed(&model, layout, 0), 0);
    assert_int_equal(borrowed(&model, layout, 1), whole_bytes() + heads);
    assert_int_equal(borrowed(&model, layout, 2), whole_bytes());
    assert_int_equal(borrowed(&model, layout, 3), whole_bytes() + heads);
    tt_layout_destroy(&layout);
    /* Nodes share nothing; ranks that only serve experts have nothing to share. */
    const int node[] = {0, 0, 1, 1};
    params = (tt_layout_params){.n_ranks = 4,
                                .node_of_rank = node,
                                .split = "attention:0+2,experts:1+3",
                                .dp = 2,
                                .tp = 1,
                                .replicate = TT_REPLICATE_NODE};
    layout = plan_layout(&model.arch, &params);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(borrowed(&model, layout, rank), 0);
    }
    tt_layout_destroy(&layout);
}

static bool is_same(const tti_plan_matrix *a, const tti_plan_matrix *b)
{
    return a->role == b->role && a->form == b->form && a->layer == b->layer && a->row == b->row &&
           a->n_rows == b->n_rows;
}

/* What the share does with a rank's matrices in any order, here last to first, fits the arena that
 * is planned for them. */
static void expect_room(const tt_model *model, const tt_layout *layout, int rank,
                        const tti_plan_list *list)
{
    size_t n = 0, arena = 0, used = 0;
    assert_int_equal(tt_plan_shared_room(model, layout, rank, &n, &arena), TT_OK);
    assert_int_equal(n, list->n);
    for (size_t i = list->n; i-- > 0;) {
        size_t align = tt_shared_alignment((size_t)list->matrix[i].bytes);
        used = (used + align - 1) / align * align + (size_t)list->matrix[i].bytes;
    }
    assert_true(used <= arena);
}

/* Each distinct matrix of a node counts once. */
static void expect_distinct(const tt_model *model, const tt_layout *layout)
{
    for (int node = 0; node < layout->n_nodes; node++) {
        tti_plan_list seen = {0};
        uint64_t twice = 0, saved = 0;
        for (int rank = 0; rank < layout->n_ranks; rank++) {
            if (layout->role[rank].node != node) {
                continue;
            }
            tti_plan_list mine;
            assert_int_equal(tti_plan_list_dense(model, layout, rank, &mine), TT_OK);
            assert_true((mine.n > 0) == (layout->role[rank].dp_id >= 0));
            expect_room(model, layout, rank, &mine);
            seen.matrix = realloc(seen.matrix, (seen.n + mine.n + 1) * sizeof(*seen.matrix));
            assert_non_null(seen.matrix);
            for (size_t i = 0; i < mine.n; i++) {
                bool known = false;
                for (size_t k = 0; k < seen.n && !known; k++) {
                    known = is_same(&seen.matrix[k], &mine.matrix[i]);
                }
                twice += known ? mine.matrix[i].bytes : 0;
                if (!known) {
                    seen.matrix[seen.n++] = mine.matrix[i];
                }
            }
            free(mine.matrix);
            saved += borrowed(model, layout, rank);
        }
        assert_int_equal(saved, twice);
        free(seen.matrix);
    }
}

static void distinct_matrices_are_counted_once(void **state)
{
    static const struct {
        int n, dp, tp;
        const char *split;
        int node[MAX_RANKS];
    } cases[] = {{3, 3, 1, NULL, {0}},
                 {4, 2, 2, NULL, {0}},
                 {4, 1, 4, NULL, {0, 0, 1, 1}},
                 {4, 2, 2, NULL, {0, 0, 1, 1}},
                 {6, 3, 2, NULL, {0, 0, 0, 0, 1, 1}},
                 {5, 1, 3, NULL, {0}},
                 {4, 2, 1, "attention:0-1,experts:2-3", {0}},
                 {6, 2, 2, "attention:1-4,experts:0-5", {0, 0, 0, 1, 1, 1}}};
    (void)state;
    for (int m = 0; m < 2; m++) {
        tt_model model;
        (m ? plan_model_small_latent : plan_model_small)(&model);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            tt_layout_params params = {.n_ranks = cases[i].n,
                                       .dp = cases[i].dp,
                                       .tp = cases[i].tp,
                                       .split = cases[i].split,
                                       .node_of_rank = cases[i].node,
                                       .replicate = TT_REPLICATE_NODE};
            tt_layout *layout = plan_layout(&model.arch, &params);
            expect_distinct(&model, layout);
            tt_layout_destroy(&layout);
        }
    }
}

static uint64_t node_total(const tt_model *model, const tt_layout *layout)
{
    uint64_t sum = 0;
    for (int rank = 0; rank < layout->n_ranks; rank++) {
        sum += memory_of(model, layout, rank).total_bytes;
    }
    return sum;
}

static tt_replicate settled(const tt_model *model, tt_layout *layout, tt_replicate asked,
                            uint64_t available, tt_status want, bool says_why)
{
    char why[TT_STATUS_MESSAGE_BYTES] = "left";
    layout->replicate = asked;
    assert_int_equal(tt_plan_settle(model, layout, &available, why, sizeof(why)), want);
    assert_int_equal(why[0] != 0, says_why);
    assert_true(!says_why || strstr(why, "(--replicate node)"));
    assert_null(strchr(why, '\n'));
    return layout->replicate;
}

static void copies_are_private_where_they_fit(void **state)
{
    (void)state;
    tt_model model;
    plan_model_large(&model);
    tt_layout_params params = {.n_ranks = 4, .dp = 4, .tp = 1};
    tt_layout *layout = plan_layout(&model.arch, &params);
    uint64_t numa = node_total(&model, layout);
    layout->replicate = TT_REPLICATE_NODE;
    uint64_t node = node_total(&model, layout);
    assert_true(node + (UINT64_C(3) << 30) < numa); /* gigabytes are saved */
    const tt_replicate asked = TT_REPLICATE_AUTO;
    assert_int_equal(settled(&model, layout, asked, 0, TT_OK, false), TT_REPLICATE_NUMA);
    assert_int_equal(settled(&model, layout, asked, numa, TT_OK, false), TT_REPLICATE_NUMA);
    assert_int_equal(settled(&model, layout, asked, numa - 1, TT_OK, true), TT_REPLICATE_NODE);
    assert_int_equal(settled(&model, layout, asked, node, TT_OK, true), TT_REPLICATE_NODE);
    settled(&model, layout, asked, node - 1, TT_ERR_FIT, true);
    assert_non_null(strstr(tt_status_message(), "once per node"));
    assert_null(strstr(tt_status_message(), "what helps: --replicate"));
    /* What was asked for stays. */
    assert_int_equal(settled(&model, layout, TT_REPLICATE_NODE, numa, TT_OK, false),
                     TT_REPLICATE_NODE);
    assert_int_equal(settled(&model, layout, TT_REPLICATE_NUMA, numa - 1, TT_ERR_FIT, false),
                     TT_REPLICATE_NUMA);
    assert_non_null(strstr(tt_status_message(), "what helps: --replicate node"));
    tt_layout_destroy(&layout);
    /* One attention rank has nobody to share with. */
    params = (tt_layout_params){.n_ranks = 2, .split = "attention:0,experts:1"};
    layout = plan_layout(&model.arch, &params);
    assert_int_equal(settled(&model, layout, asked, 1, TT_ERR_FIT, false), TT_REPLICATE_NUMA);
    assert_null(strstr(tt_status_message(), "--replicate"));
    tt_layout_destroy(&layout);
}

static void layouts_differ_by_it(void **state)
{
    (void)state;
    tt_model model;
    plan_model_small(&model);
    tt_layout_params params = {.n_ranks = 2};
    tt_layout *layout = plan_layout(&model.arch, &params);
    uint64_t before = tt_layout_hash(layout);
    layout->replicate = TT_REPLICATE_NODE;
    assert_true(tt_layout_hash(layout) != before);
    assert_string_equal(tt_replicate_name(layout->replicate), "node");
    tt_layout_destroy(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_parts_are_held_once),
        cmocka_unit_test(other_parts_share_what_is_whole),
        cmocka_unit_test(distinct_matrices_are_counted_once),
        cmocka_unit_test(copies_are_private_where_they_fit),
        cmocka_unit_test(layouts_differ_by_it),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
