/* exchange_refusals.c - what an exchange must refuse, on all ranks, and that it works after it. */
#include "exchange_case.h"

void exchange_refusals(tt_world *world)
{
    tt_exchange_params p = test_small_exchange();
    tt_exchange *x = NULL;
    int32_t rank[4], local[4] = {0, 1, 2, 3}, slot[16];
    float weight[16] = {0}, row[64] = {0}, y[64];
    for (int i = 0; i < 4; i++) {
        rank[i] = i % test_size;
    }
    tt_owner_map map = {4, rank, local};
    MUST(tt_exchange_create(world, &p, &x));
    CHECK(tt_exchange_prepare(x, 0, 0, slot, weight, TT_OK) == TT_ERR_STATE,
          "prepared without a map");
    local[2] = local[0];
    rank[2] = rank[0];
    CHECK(tt_exchange_set_owners(x, &map, 1) == TT_ERR_ARG, "a slot served twice");
    local[2] = 2;
    rank[2] = test_size;
    CHECK(tt_exchange_set_owners(x, &map, 1) == TT_ERR_ARG, "a rank outside the world");
    rank[2] = 2 % test_size;
    MUST(tt_exchange_set_owners(x, &map, 1));
    for (int i = 0; i < 16; i++) {
        slot[i] = i % 4;
    }
    CHECK(tt_exchange_prepare(x, 0, 5, slot, weight, TT_OK) == TT_ERR_ARG, "T above max_tokens");
    slot[3] = 4;
    CHECK(tt_exchange_prepare(x, 0, 4, slot, weight, TT_OK) == TT_ERR_ARG, "slot out of range");
    slot[3] = -2;
    CHECK(tt_exchange_prepare(x, 0, 4, slot, weight, TT_OK) == TT_ERR_ARG, "slot -2");
    CHECK(strstr(tt_status_message(), "token 1") != NULL, "names the token: %s",
          tt_status_message());
    CHECK(tt_exchange_dispatch_begin(x, 0, row, 8, NULL) == TT_ERR_STATE,
          "dispatch before prepare");
    CHECK(tt_exchange_prepare(x, 3, 0, slot, weight, TT_OK) == TT_ERR_ARG, "handle out of range");
    /* The handle still works. */
    slot[3] = 1;
    MUST(tt_exchange_prepare(x, 0, 4, slot, weight, TT_OK));
    MUST(tt_exchange_dispatch_begin(x, 0, row, 8, NULL));
    tt_exchange_state state = {0};
    tt_exchange_rows rows;
    while (!state.all_arrived) {
        MUST(tt_exchange_poll(x, 0, &state));
        while (tt_exchange_next_ready(x, 0, &rows)) {
            for (int32_t i = 0; i < rows.n; i++) {
                tt_exchange_put_result(x, 0, &rows, i, row);
            }
            MUST(tt_exchange_push(x, 0, &rows));
            CHECK(rows.n > 0, "an empty group");
        }
    }
    MUST(tt_exchange_combine_end(x, 0, y, 8, NULL));
    tt_exchange_destroy(&x);

    /* Another H on the last rank: all fail, and the field is named. */
    if (test_size > 1) {
        p.H = test_rank == test_size - 1 ? 9 : 8;
        CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_MISMATCH, "H differs");
        CHECK(strstr(tt_status_message(), "row width H") != NULL, "%s", tt_status_message());
        p.H = 8;
    }
    setenv("TUTTI_TEST_SHM_BYTES", "1000", 1);
    CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_NOMEM, "no room in shared memory");
    CHECK(strstr(tt_status_message(), "1000") != NULL, "%s", tt_status_message());
    unsetenv("TUTTI_TEST_SHM_BYTES");
    p.chunk_tokens = -1;
    CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_ARG, "chunks of -1 tokens");
    p.chunk_tokens = 1;
    p.max_tokens = TT_EXCHANGE_MAX_CHUNKS;
    CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_ARG, "too many chunks");
    p.max_tokens = 4;
    p.chunk_tokens = test_rank == test_size - 1 ? 2 : 3;
    CHECK(test_size == 1 || (tt_exchange_create(world, &p, &x) == TT_ERR_MISMATCH &&
                             strstr(tt_status_message(), "chunk_tokens")),
          "chunks differ: %s", tt_status_message());
    p.chunk_tokens = 0;
    p.max_tokens = (int64_t)1 << 31;
    CHECK(tt_exchange_create(world, &p, &x) == TT_ERR_ARG, "2^32 entries");

    /* Sizes are 64 bits wide: 7168 f32 columns, 8 choices, 65536 tokens are above 2^31 bytes many
     * times over. */
    int nodes[2] = {0, 1}, two[2] = {0, 1};
    tt_exchange_params big = {.H = 7168,
                              .K = 8,
                              .max_tokens = 65536,
                              .source = two,
                              .n_sources = 2,
                              .owner = two,
                              .n_owners = 2};
    uint64_t rows_bytes = (uint64_t)65536 * 7168 * 4,
             bytes = tt_exchange_memory_bytes(&big, nodes, 2, 0);
    CHECK(bytes > 3 * (rows_bytes + 2 * 8 * rows_bytes), "%llu bytes", (unsigned long long)bytes);
}

void one_rank_without_memory(tt_world *world)
{
    enum { MANY_TOKENS = 512, WIDE = 1 << 16, SLACK_BYTES = 1 << 26 };
    tt_exchange_params p = test_small_exchange();
    tt_exchange *x = NULL;
    p.H = WIDE;
    p.K = 1;
    p.max_tokens = MANY_TOKENS;
    p.n_handles = 1;
    CHECK(test_rank != 1 || test_limit_memory(SLACK_BYTES), "no limit set");
    tt_status st = tt_exchange_create(world, &p, &x);
    if (test_rank == 1) {
        test_limit_memory(-1);
    }
    CHECK(st == TT_ERR_NOMEM && strstr(tt_status_message(), "rank 1 ("), "%s: %s",
          tt_status_name(st), tt_status_message());
    CHECK_OK(tt_world_agree(world, TT_OK));
}
