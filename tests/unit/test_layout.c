/* test_layout.c - the layout gives every head, column, row and expert to exactly one place, keeps
 * groups inside nodes whatever the mapping of ranks, chooses by the documented rule and refuses
 * by name what cannot be. */
#include "tutti/plan.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "plan_model.h"

enum { MAX_RANKS = 64 };

static void expect_refused(const tt_arch *arch, const tt_layout_params *params, const char *words)
{
    tt_layout *layout = NULL;
    tt_status st = tt_layout_create(arch, params, &layout);
    if (st != TT_ERR_USAGE || !strstr(tt_status_message(), words)) {
        fail_msg("got %s \"%s\", expected words \"%s\"", tt_status_name(st), tt_status_message(),
                 words);
    }
    assert_null(layout);
}

static tt_arch small_arch(void)
{
    static tt_model model;
    plan_model_small(&model);
    return model.arch;
}

static void assert_ranks(const int *rank, const int *expected, int n)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(rank[i], expected[i]);
    }
}

/* ---- what every layout must be ---- */

static void check_attention(const tt_arch *arch, const tt_layout *layout)
{
    for (int dp_id = 0; dp_id < layout->dp; dp_id++) {
        int64_t next_head = 0;
        for (int tp_id = 0; tp_id < layout->tp; tp_id++) {
            int rank = layout->attention_rank[dp_id * layout->tp + tp_id];
            assert_in_range(rank, 0, layout->n_ranks - 1);
            const tt_rank_role *role = &layout->role[rank];
            assert_int_equal(role->dp_id, dp_id);
            assert_int_equal(role->tp_id, tp_id);
            assert_int_equal(role->head_begin, next_head);
            int64_t n_heads = role->head_end - role->head_begin;
            assert_in_range(n_heads, arch->Nq / layout->tp,
                            (arch->Nq + layout->tp - 1) / layout->tp);
            assert_true(n_heads >= 1);
            next_head = role->head_end;
            /* Exactly the KV heads of these query heads: none is missing, none is idle. */
            for (int64_t h = role->head_begin; h < role->head_end; h++) {
                int64_t kv = h * arch->Nkv / arch->Nq;
                assert_true(kv >= role->kv_begin && kv < role->kv_end);
            }
            assert_int_equal(role->kv_begin, role->head_begin * arch->Nkv / arch->Nq);
            assert_int_equal(role->kv_end - 1, (role->head_end - 1) * arch->Nkv / arch->Nq);
        }
        assert_int_equal(next_head, arch->Nq);
    }
}

static void check_experts(const tt_arch *arch, const tt_layout *layout)
{
    int64_t next_expert = 0;
    for (int g = 0; g < layout->n_groups; g++) {
        int64_t begin = -1;
        int64_t end = -1;
        tt_layout_experts(arch->E, layout->n_groups, g, &begin, &end);
        assert_int_equal(begin, next_expert);
        assert_in_range(end - begin, arch->E / layout->n_groups,
                        (arch->E + layout->n_groups - 1) / layout->n_groups);
        next_expert = end;
        for (int part = 0; part < layout->etp; part++) {
            const tt_rank_role *role = &layout->role[layout->expert_rank[g * layout->etp + part]];
            assert_int_equal(role->group_id, g);
            assert_int_equal(role->etp_id, part);
            assert_int_equal(role->node, layout->role[layout->expert_rank[g * layout->etp]].node);
        }
    }
    assert_int_equal(next_expert, layout->n_groups > 0 ? arch->E : 0);
}

/* Each role is held once: as many ranks have it as there are places. */
static void check_roles(const tt_layout *layout, const tt_layout_params *params)
{
    int n_attention = 0;
    int n_experts = 0;
    for (int rank = 0; rank < layout->n_ranks; rank++) {
        const tt_rank_role *role = &layout->role[rank];
        assert_int_equal(role->node, params->node_of_rank ? params->node_of_rank[rank] : 0);
        assert_int_equal(role->dp_id < 0, role->tp_id < 0);
        assert_int_equal(role->group_id < 0, role->etp_id < 0);
        assert_true(role->dp_id >= 0 || role->group_id >= 0);
        n_attention += role->dp_id >= 0;
        n_experts += role->group_id >= 0;
    }
    assert_int_equal(n_attention, layout->dp * layout->tp);
    assert_int_equal(n_experts, layout->n_groups * layout->etp);
}

/* A TP group leaves its node only if so many cannot all lie within nodes, and then the reason
 * says so. */
static void check_nodes(const tt_layout *layout, const tt_layout_params *params)
{
    int n_spanning = 0;
    for (int i = 0; i < layout->dp; i++) {
        const int *rank = &layout->attention_rank[i * layout->tp];
        bool spans = false;
        for (int j = 1; j < layout->tp; j++) {
            spans = spans || layout->role[rank[j]].node != layout->role[rank[0]].node;
        }
        n_spanning += spans;
    }
    if (!params->split) {
        int within = 0;
        for (int node = 0; node < layout->n_nodes; node++) {
            int n = 0;
            for (int rank = 0; rank < layout->n_ranks; rank++) {
                n += layout->role[rank].node == node;
            }
            within += n / layout->tp;
        }
        assert_int_equal(n_spanning, within < layout->dp ? layout->dp - within : 0);
        if (params->tp == 0) {
            assert_int_equal(n_spanning, 0);
        }
    }
    assert_int_equal(n_spanning > 0, strstr(layout->why, "tp spans nodes") != NULL);
}

static void check_sizes(const tt_layout *layout)
{
    assert_true(layout->max_batch_group * layout->dp >= layout->max_batch);
    assert_true((layout->max_batch_group - 1) * layout->dp < layout->max_batch);
    assert_int_equal(layout->max_rows_group, layout->max_batch_group + layout->prefill_chunk);
    int64_t next_row = 0;
    int64_t most = 0;
    for (int tp_id = 0; tp_id < layout->tp; tp_id++) {
        int64_t begin = -1;
        int64_t end = -1;
        tt_layout_deal(layout->max_rows_group, layout->tp, tp_id, &begin, &end);
        assert_int_equal(begin, next_row);
        next_row = end;
        most = end - begin > most ? end - begin : most;
    }
    assert_int_equal(next_row, layout->max_rows_group);
    assert_int_equal(most, layout->max_rows_rank);
}

static void check_layout(const tt_arch *arch, const tt_layout *layout,
                         const tt_layout_params *params)
{
    check_attention(arch, layout);
    check_experts(arch, layout);
    check_roles(layout, params);
    check_nodes(layout, params);
    check_sizes(layout);
    assert_true(strlen(layout->why) > 0);
}

/* ---- tests ---- */

static uint32_t random_state = 12345;
static int random_below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (uint32_t)n);
}

static void every_part_is_given_once_in_random_layouts(void **state)
{
    (void)state;
    enum { N_ROUNDS = 20000 };
    int n_made = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        tt_arch arch = small_arch();
        arch.Nkv = 1 + random_below(8);
        arch.Nq = arch.Nkv * (1 + random_below(8));
        arch.E = random_below(4) == 0 ? 0 : 1 + random_below(130);
        int node[MAX_RANKS];
        tt_layout_params params = {.n_ranks = 1 + random_below(MAX_RANKS)};
        int n_nodes = 1 + random_below(params.n_ranks < 6 ? params.n_ranks : 6);
        bool round_robin = random_below(2);
        for (int rank = 0; rank < params.n_ranks; rank++) {
            node[rank] = round_robin ? rank % n_nodes : random_below(n_nodes);
        }
        params.node_of_rank = node;
        params.max_batch = random_below(80);
        params.prefill_chunk = random_below(300);
        params.dp = random_below(2) ? 0 : 1 + random_below(params.n_ranks);
        params.tp = random_below(2) ? 0 : 1 + random_below(8);
        params.etp = random_below(3) ? 0 : 1 + random_below(4);
        params.ep = random_below(3) ? 0 : 1 + random_below(params.n_ranks);
        tt_layout *layout = NULL;
        tt_status st = tt_layout_create(&arch, &params, &layout);
        /* With all ranks as expert ranks, only too much attention is a reason to refuse. */
        bool free_experts = arch.E > 0 && params.ep == 0 && params.etp <= 1;
        bool fits = params.tp <= arch.Nq && params.tp <= params.n_ranks &&
                    (params.dp == 0 || params.dp * (params.tp ? params.tp : 1) <= params.n_ranks);
        if (st != TT_OK) {
            assert_int_equal(st, TT_ERR_USAGE);
            assert_null(layout);
            if (free_experts && fits) {
                fail_msg("round %d: %s", round, tt_status_message());
            }
            continue;
        }
        n_made++;
        assert_true(fits);
        check_layout(&arch, layout, &params);
        tt_layout *again = plan_layout(&arch, &params);
        assert_true(tt_layout_hash(layout) == tt_layout_hash(again));
        again->role[params.n_ranks - 1].head_end++;
        assert_false(tt_layout_hash(layout) == tt_layout_hash(again));
        tt_layout_destroy(&again);
        tt_layout_destroy(&layout);
        assert_null(layout);
    }
    assert_true(n_made > N_ROUNDS / 4);
}

static void columns_are_whole_panels_and_cover_all(void **state)
{
    (void)state;
    for (int64_t total = 0; total < 300; total++) {
        for (int n_parts = 1; n_parts < 14; n_parts++) {
            int64_t next = 0, least = INT64_MAX, most = 0;
            for (int part = 0; part < n_parts; part++) {
                int64_t begin = -1, end = -1;
                tt_layout_columns(total, n_parts, part, &begin, &end);
                assert_int_equal(begin, next);
                assert_true(end >= begin && (end % 32 == 0 || end == total));
                int64_t n_panels = (end - begin + 31) / 32;
                least = n_panels < least ? n_panels : least;
                most = n_panels > most ? n_panels : most;
                next = end;
            }
            assert_int_equal(next, total);
            assert_true(most - least <= 1);
        }
    }
    int64_t begin = 0, end = 0; /* far past 32 bits */
    tt_layout_columns(INT64_C(1) << 40, 3, 2, &begin, &end);
    assert_true(end == INT64_C(1) << 40 && begin % 32 == 0 && end - begin > INT64_C(366000000000));
}

static void a_round_robin_mapping_keeps_groups_on_nodes(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    const int node[] = {0, 1, 0, 1, 0, 1, 0, 1};
    tt_layout_params params = {.n_ranks = 8, .node_of_rank = node, .dp = 2, .tp = 4, .etp = 2};
    tt_layout *layout = plan_layout(&arch, &params);
    check_layout(&arch, layout, &params);
    const int expected[] = {0, 2, 4, 6, 1, 3, 5, 7};
    assert_ranks(layout->attention_rank, expected, 8);
    assert_ranks(layout->expert_rank, expected, 8);
    tt_layout_destroy(&layout);
}

static void fewer_attention_ranks_take_nodes_in_order(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    const int node[] = {1, 0, 1, 0, 1, 0};
    tt_layout_params params = {.n_ranks = 6, .node_of_rank = node, .dp = 1, .tp = 2, .ep = 6};
    tt_layout *layout = plan_layout(&arch, &params);
    const int expected[] = {1, 3};
    assert_ranks(layout->attention_rank, expected, 2);
    tt_layout_destroy(&layout);
    /* Three ranks of each node: two groups of two lie within nodes, a third one must span. */
    params.dp = 3;
    layout = plan_layout(&arch, &params);
    check_layout(&arch, layout, &params);
    const int spanning[] = {1, 3, 0, 2, 5, 4};
    assert_ranks(layout->attention_rank, spanning, 6);
    assert_non_null(strstr(layout->why, "tp spans nodes in 1 of 3 groups"));
    tt_layout_destroy(&layout);
    /* Expert ranks: the first of the same walk. */
    params.dp = 6;
    params.tp = 1;
    params.ep = 4;
    layout = plan_layout(&arch, &params);
    const int experts[] = {1, 3, 5, 0};
    assert_int_equal(layout->n_groups, 4);
    assert_ranks(layout->expert_rank, experts, 4);
    assert_int_equal(layout->role[2].group_id, -1);
    tt_layout_destroy(&layout);
}

static void choose(const tt_arch *arch, int n_ranks, const int *node, int64_t max_batch, int dp,
                   int tp)
{
    tt_layout_params params = {.n_ranks = n_ranks, .node_of_rank = node, .max_batch = max_batch};
    tt_layout *layout = plan_layout(arch, &params);
    assert_int_equal(layout->dp, dp);
    assert_int_equal(layout->tp, tp);
    check_layout(arch, layout, &params);
    tt_layout_destroy(&layout);
}

static void without_flags_the_cost_model_decides(void **state)
{
    (void)state;
    const int two_nodes[] = {0, 1, 0, 1, 0, 1, 0, 1};
    const int uneven[] = {0, 0, 0, 1, 1, 1, 1, 1};
    /* Wide trunk: reading its weights once per rank is what costs, so TP wins also for many
     * sequences. */
    tt_arch wide = small_arch();
    wide.H = 4096;
    wide.V = 100000;
    wide.Nq = 32;
    wide.Nkv = 8;
    wide.D = 128;
    choose(&wide, 1, NULL, 1, 1, 1);
    choose(&wide, 4, NULL, 1, 1, 4);
    choose(&wide, 4, NULL, 32, 1, 4);
    choose(&wide, 8, two_nodes, 8, 2, 4); /* TP never leaves a node by itself */
    choose(&wide, 8, uneven, 1, 8, 1);    /* no equal groups */
    wide.Nq = 4;
    wide.Nkv = 4;
    choose(&wide, 8, NULL, 1, 2, 4); /* 8 ranks are above 4 heads */
    /* Narrow trunk: gathers cost more than they save. */
    tt_arch narrow = small_arch();
    choose(&narrow, 4, NULL, 32, 4, 1);
    choose(&narrow, 8, two_nodes, 64, 8, 1);
    tt_arch arch = small_arch();
    tt_layout_params params = {.n_ranks = 8, .node_of_rank = uneven, .dp = 2};
    tt_layout *layout = plan_layout(&arch, &params);
    assert_int_equal(layout->tp, 3); /* 1 of 3 and 1 of 5; with 4 the first node has none */
    tt_layout_destroy(&layout);
    params.dp = 0;
    params.tp = 2;
    layout = plan_layout(&arch, &params);
    assert_int_equal(layout->dp, 3);
    tt_layout_destroy(&layout);
}

static void defaults_are_filled_and_named(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    arch.context = 100000;
    tt_layout_params params = {.n_ranks = 2};
    tt_layout *layout = plan_layout(&arch, &params);
    assert_int_equal(layout->max_batch, 8);
    assert_int_equal(layout->max_batch_group, 4);
    assert_int_equal(layout->prefill_chunk, 512);
    assert_int_equal(layout->context, 4096);
    assert_int_equal(layout->n_handles, 3);
    assert_int_equal(layout->kv_pages, 4 * 256);
    assert_non_null(strstr(layout->why, "batch 8 by default"));
    assert_non_null(strstr(layout->why, "context 4096 by default (model: 100000)"));
    tt_layout_destroy(&layout);
    arch.context = 1000;
    layout = plan_layout(&arch, &params);
    assert_int_equal(layout->context, 1000);
    assert_int_equal(layout->kv_pages,
                     4 * 63); /* each sequence has pages of its own: 1000 / 16 rounded up */
    tt_layout_destroy(&layout);
    params.context = 1001;
    expect_refused(&arch, &params, "context 1001 is above the model's 1000");
}

/* 6 query heads over 2 KV heads on 4 ranks: 2, 2, 1, 1 heads; the second rank needs both KV
 * heads. */
static void uneven_heads_take_the_kv_heads_they_need(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    arch.Nq = 6;
    tt_layout_params params = {.n_ranks = 4, .tp = 4};
    tt_layout *layout = plan_layout(&arch, &params);
    const int64_t expected[4][4] = {{0, 2, 0, 1}, {2, 4, 0, 2}, {4, 5, 1, 2}, {5, 6, 1, 2}};
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(layout->role[rank].head_begin, expected[rank][0]);
        assert_int_equal(layout->role[rank].head_end, expected[rank][1]);
        assert_int_equal(layout->role[rank].kv_begin, expected[rank][2]);
        assert_int_equal(layout->role[rank].kv_end, expected[rank][3]);
    }
    tt_layout_destroy(&layout);
    arch.attention = TT_ATTENTION_MLA; /* the latent is shared by all heads */
    layout = plan_layout(&arch, &params);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(layout->role[rank].kv_begin, 0);
        assert_int_equal(layout->role[rank].kv_end, 1);
    }
    tt_layout_destroy(&layout);
}

/* Field case: a number of workers that the model cannot be cut over is refused at start, with
 * what is allowed. */
static void impossible_counts_are_refused_with_the_allowed_ones(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    tt_layout_params params = {.n_ranks = 8, .tp = 8};
    expect_refused(&arch, &params, "tp 8 is above the model's 4 heads (allowed: 1 to 4)");
    params =
        (tt_layout_params){.n_ranks = 3, .tp = 3}; /* 3 of a power-of-two model is allowed here */
    tt_layout *layout = plan_layout(&arch, &params);
    check_layout(&arch, layout, &params);
    tt_layout_destroy(&layout);
    params = (tt_layout_params){.n_ranks = 4, .etp = 3};
    expect_refused(&arch, &params,
                   "etp 3 does not divide the 4 expert ranks of node 0 (allowed: 1, 2, 4)");
    const int node[] = {0, 0, 0, 0, 1, 1};
    params = (tt_layout_params){.n_ranks = 6, .node_of_rank = node, .etp = 4};
    expect_refused(&arch, &params,
                   "etp 4 does not divide the 2 expert ranks of node 1 (allowed: 1, 2)");
    params = (tt_layout_params){.n_ranks = 4, .dp = 3, .tp = 2};
    expect_refused(&arch, &params, "dp 3 x tp 2 = 6 is above the 4 ranks");
    params = (tt_layout_params){.n_ranks = 4, .dp = 5};
    expect_refused(&arch, &params, "dp 5 is above the 4 ranks");
    params = (tt_layout_params){.n_ranks = 2, .tp = 3};
    expect_refused(&arch, &params, "tp 3 is above the 2 ranks");
    params = (tt_layout_params){.n_ranks = 4, .ep = 5};
    expect_refused(&arch, &params, "ep 5 is above the 4 ranks");
    params = (tt_layout_params){.n_ranks = 4, .dp = -1};
    expect_refused(&arch, &params, "none may be negative");
    params = (tt_layout_params){.n_ranks = 4, .dp = 1, .tp = 2, .ep = 3};
    expect_refused(&arch, &params, "rank 3 (node 0) would have no role");
    params = (tt_layout_params){.n_ranks = 4, .max_batch = -3};
    expect_refused(&arch, &params, "max-batch -3");
    params = (tt_layout_params){.n_ranks = 4, .dp = INT32_MAX, .tp = INT32_MAX};
    expect_refused(&arch, &params, "is above the 4 ranks");
}

static void a_model_without_experts_needs_no_expert_ranks(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    arch.E = 0;
    tt_layout_params params = {.n_ranks = 4};
    tt_layout *layout = plan_layout(&arch, &params);
    check_layout(&arch, layout, &params);
    assert_int_equal(layout->n_groups, 0);
    tt_layout_destroy(&layout);
    params.dp = 1;
    params.tp = 3;
    expect_refused(&arch, &params, "rank 3 (node 0) would have no role");
    params = (tt_layout_params){.n_ranks = 4, .ep = 2};
    expect_refused(&arch, &params, "the model has no experts");
}

/* Field case: attention x expert ranks of any counts, none dividing the other. */
static void split_gives_each_rank_its_role(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    const struct {
        const char *split;
        int n_ranks, n_attention, n_experts;
    } cases[] = {{"attention:0,experts:1", 2, 1, 1},       {"attention:0-1,experts:2", 3, 2, 1},
                 {"attention:0-2,experts:3-4", 5, 3, 2},   {"experts:1-2,attention:0", 3, 1, 2},
                 {"attention:0-3,experts:4+5-6", 7, 4, 3}, {"attention:0-3,experts:0-3", 4, 4, 4},
                 {"attention:6+0-2,experts:2-6", 7, 4, 5}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_layout_params params = {
            .n_ranks = cases[i].n_ranks, .split = cases[i].split, .max_batch = 100};
        tt_layout *layout = plan_layout(&arch, &params);
        check_layout(&arch, layout, &params);
        assert_int_equal(layout->dp * layout->tp, cases[i].n_attention);
        assert_int_equal(layout->n_groups, cases[i].n_experts);
        tt_layout_destroy(&layout);
    }
    const int node[] = {0, 1, 0, 1, 0, 1, 0, 1};
    tt_layout_params params = {.n_ranks = 8,
                               .node_of_rank = node,
                               .split = "attention:0-3,experts:4-7",
                               .tp = 2,
                               .etp = 2};
    tt_layout *layout = plan_layout(&arch, &params);
    check_layout(&arch, layout, &params);
    const int attention[] = {0, 2, 1, 3};
    const int experts[] = {4, 6, 5, 7};
    assert_ranks(layout->attention_rank, attention, 4);
    assert_ranks(layout->expert_rank, experts, 4);
    assert_int_equal(layout->role[4].dp_id, -1);
    assert_int_equal(layout->role[0].group_id, -1);
    tt_layout_destroy(&layout);
}

static void a_bad_split_is_refused_with_its_place(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    const char *const cases[][2] = {
        {"", "is expected at \"\""},
        {"attention", "is expected at \"attention\""},
        {"attention:", "a rank number is expected at \"\""},
        {"attention:0-,experts:1", "a rank number is expected at \",experts:1\""},
        {"attention:0,1,experts:2-3", "is expected at \"1,experts:2-3\""},
        {"attention:0-3,experts:4", "rank 4 is above the last rank 3"},
        {"attention:99999999999999999999999,experts:0", "is above the last rank 3"},
        {"attention:2-1,experts:0+3", "the range 2-1 runs backwards"},
        {"attention:0-2+1,experts:3", "rank 1 stands twice"},
        {"attention:0,attention:1,experts:2-3", "the section \"attention:\" stands twice"},
        {"attention:0-1;experts:2-3", "',' or '+' is expected at \";experts:2-3\""},
        {"attention:0-1, experts:2-3", "is expected at \" experts:2-3\""},
        {"experts:0-3", "no attention ranks"},
        {"attention:0-3", "no expert ranks"},
        {"attention:0,experts:2-3", "rank 1 (node 0) would have no role"},
        {"attention:0-3,", "is expected at \"\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_layout_params params = {.n_ranks = 4, .split = cases[i][0], .max_batch = 100};
        expect_refused(&arch, &params, cases[i][1]);
    }
    tt_layout_params params = {.n_ranks = 4, .split = "attention:0-2,experts:3", .tp = 2};
    expect_refused(&arch, &params, "dp 1 x tp 2 = 2 does not use the 3 attention ranks");
    params.tp = 0;
    params.ep = 2;
    expect_refused(&arch, &params, "ep 2 is not the 1 expert ranks of --split");
}

/* Small arch, one rank: 2 layers x 2 x 2 heads x 16 x 4 bytes = 512 bytes a token, 8192 a page. */
static void kv_memory_sets_the_pool_or_is_refused(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    tt_layout_params params = {.n_ranks = 1, .context = 100, .kv_memory_bytes = 7 * 8192};
    tt_layout *layout = plan_layout(&arch, &params);
    assert_int_equal(layout->kv_pages, 7);
    tt_layout_destroy(&layout);
    params.kv_memory_bytes = 7 * 8192 - 1;
    expect_refused(&arch, &params,
                   "holds 96 tokens, below one sequence of context 100, which takes "
                   "57344 bytes");
    /* 6 heads on 3 TP ranks over 2 KV heads: the middle rank needs both, so it decides for all. */
    arch.Nq = 6;
    params = (tt_layout_params){.n_ranks = 3, .tp = 3, .context = 100, .kv_memory_bytes = 7 * 8192};
    layout = plan_layout(&arch, &params);
    assert_int_equal(layout->kv_pages, 7);
    tt_layout_destroy(&layout);
}

static void parts_are_chosen_on_several_nodes_only(void **state)
{
    (void)state;
    static const int one[] = {0, 0}, two[] = {0, 1};
    const struct {
        const int *node;
        int64_t experts, asked, want;
    } cases[] = {
        {one, 8, -1, 0}, {two, 8, -1, -1}, {two, 0, -1, 0}, {one, 8, 5, 5}, {two, 8, 0, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_arch arch = small_arch();
        arch.E = cases[i].experts;
        tt_layout_params params = {
            .n_ranks = 2, .node_of_rank = cases[i].node, .overlap_rows = cases[i].asked};
        tt_layout *layout = plan_layout(&arch, &params);
        assert_int_equal(layout->overlap_rows, cases[i].want);
        tt_layout_destroy(&layout);
    }
}

static void the_hash_sees_every_setting(void **state)
{
    (void)state;
    tt_arch arch = small_arch();
    const tt_layout_params base = {.n_ranks = 4, .dp = 4, .tp = 1};
    enum { N_CHANGES = 17 };
    tt_layout_params changed[N_CHANGES];
    for (int i = 0; i < N_CHANGES; i++) {
        changed[i] = base;
    }
    const int node[] = {0, 0, 1, 1};
    changed[0].max_batch = 9;
    changed[1].prefill_chunk = 5;
    changed[2].context = 64;
    changed[3].kv_memory_bytes = 1 << 20;
    changed[4].n_handles = 4;
    changed[5].weights = TT_WEIGHTS_F32;
    changed[6].wire = TT_WIRE_BF16;
    changed[7].wire_back = TT_WIRE_BF16;
    changed[8].kv = TT_KV_BF16;
    changed[9].node_of_rank = node;
    changed[10].route = TT_ROUTE_NODE;
    changed[11].combine = TT_COMBINE_REDUCED;
    changed[12].overlap_rows = 3;
    changed[13].exchange_chunk = 3;
    changed[14].open_slots = true;
    changed[15].open_slots = changed[16].open_slots = true;
    changed[15].spare_slots = 1;
    changed[16].staged_slots = 2;
    tt_layout *layout = plan_layout(&arch, &base);
    const int64_t rows = layout->max_rows_rank;
    const struct {
        int64_t chunk, n;
    } chunks[] = {{0, 1}, {rows, 1}, {rows + 1, 1}, {rows - 1, 2}, {1, rows}};
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        layout->exchange_chunk = chunks[i].chunk;
        assert_int_equal(tt_layout_n_chunks(layout), chunks[i].n);
    }
    layout->exchange_chunk = 0;
    for (int i = 0; i < N_CHANGES; i++) {
        tt_layout *other = plan_layout(&arch, &changed[i]);
        if (tt_layout_hash(layout) == tt_layout_hash(other)) {
            fail_msg("change %d is not seen", i);
        }
        tt_layout_destroy(&other);
    }
    tt_layout_params chosen = {.n_ranks = 4}; /* finds the same layout with other words */
    tt_layout *same = plan_layout(&arch, &chosen);
    assert_string_not_equal(layout->why, same->why);
    assert_true(tt_layout_hash(layout) == tt_layout_hash(same));
    tt_layout_destroy(&same);
    tt_layout_destroy(&layout);
    tt_layout_destroy(&layout); /* of NULL */
}

/* What a user writes is what is printed, in the order of the enum. */
static void choices_are_the_names(void **state)
{
    (void)state;
    char choices[4][64] = {"", "", "", ""};
    for (int i = 0; i < TT_WIRE_COUNT; i++) {
        strcat(strcat(choices[0], i ? "|" : ""), tt_wire_name((tt_wire)i));
    }
    for (int i = 0; i < TT_KV_COUNT; i++) {
        strcat(strcat(choices[1], i ? "|" : ""), tt_kv_format_name((tt_kv_format)i));
    }
    for (int i = 0; i <= TT_ACT_INT8; i++) {
        strcat(strcat(choices[2], i ? "|" : ""), tt_act_name((tt_act)i));
    }
    for (int i = 0; i < TT_REPLICATE_COUNT; i++) {
        strcat(strcat(choices[3], i ? "|" : ""), tt_replicate_name((tt_replicate)i));
    }
    assert_string_equal(choices[0], TT_WIRE_CHOICES);
    assert_string_equal(choices[1], TT_KV_CHOICES);
    assert_string_equal(choices[2], TT_ACT_CHOICES);
    assert_string_equal(choices[3], TT_REPLICATE_CHOICES);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_given_once_in_random_layouts),
        cmocka_unit_test(columns_are_whole_panels_and_cover_all),
        cmocka_unit_test(a_round_robin_mapping_keeps_groups_on_nodes),
        cmocka_unit_test(fewer_attention_ranks_take_nodes_in_order),
        cmocka_unit_test(without_flags_the_cost_model_decides),
        cmocka_unit_test(defaults_are_filled_and_named),
        cmocka_unit_test(uneven_heads_take_the_kv_heads_they_need),
        cmocka_unit_test(impossible_counts_are_refused_with_the_allowed_ones),
        cmocka_unit_test(a_model_without_experts_needs_no_expert_ranks),
        cmocka_unit_test(split_gives_each_rank_its_role),
        cmocka_unit_test(a_bad_split_is_refused_with_its_place),
        cmocka_unit_test(kv_memory_sets_the_pool_or_is_refused),
        cmocka_unit_test(parts_are_chosen_on_several_nodes_only),
        cmocka_unit_test(the_hash_sees_every_setting),
        cmocka_unit_test(choices_are_the_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
