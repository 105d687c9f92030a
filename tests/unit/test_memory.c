/* test_memory.c - buffers are zeroed, aligned, accounted for; arenas never overflow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "tutti/log.h"
#include "tutti/memory.h"

static const size_t KIB = 1024, MIB = (size_t)1 << 20;

static bool is_zero(const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return true;
}

static void buffers_are_zeroed_aligned_and_writable(void **state)
{
    (void)state;
    const size_t sizes[] = {0,           1,       63,          64 * KIB - 1, 64 * KIB, 64 * KIB + 1,
                            2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int node = TT_MEMORY_ANY_NODE; node <= 0; node++) {
            for (int round = 0; round < 2;
                 round++) { /* the second may get the first's dirty memory */
                void *data = NULL;
                assert_int_equal(tt_memory_alloc("test", sizes[i], node, &data), TT_OK);
                assert_non_null(data);
                size_t alignment = sizes[i] >= 2 * MIB ? 2 * MIB : TT_CACHE_LINE;
                assert_int_equal((uintptr_t)data % alignment, 0);
                assert_true(is_zero(data, sizes[i]));
                memset(data, 0xa5, sizes[i]);
                tt_memory_free(data, sizes[i]);
            }
        }
    }
    tt_memory_free(NULL, 100);
}

static void use_is_accounted_and_the_peak_stays(void **state)
{
    (void)state;
    size_t before = tt_memory_used_bytes();
    void *a = NULL, *b = NULL;
    assert_int_equal(tt_memory_alloc("a", 3 * MIB, TT_MEMORY_ANY_NODE, &a), TT_OK);
    assert_true(tt_memory_used_bytes() - before >= 3 * MIB);
    assert_true(tt_memory_used_bytes() - before <= 4 * MIB); /* at most one huge page more */
    assert_int_equal(tt_memory_alloc("b", 100, TT_MEMORY_ANY_NODE, &b), TT_OK);
    size_t most = tt_memory_used_bytes();
    tt_memory_free(a, 3 * MIB);
    tt_memory_free(b, 100);
    assert_int_equal(tt_memory_used_bytes(), before);
    assert_true(tt_memory_peak_bytes() >= most);
}

static void missing_node_is_no_error(void **state)
{
    (void)state;
    void *data = NULL;
    assert_int_equal(tt_memory_alloc("far", 3 * MIB, 60, &data), TT_OK);
    assert_true(is_zero(data, 3 * MIB));
    tt_memory_free(data, 3 * MIB);
    assert_int_equal(tt_memory_alloc("bad", 3 * MIB, -2, &data), TT_ERR_ARG);
}

static void too_much_is_an_error_that_names_it(void **state)
{
    (void)state;
    void *data = NULL;
    size_t before = tt_memory_used_bytes();
    assert_int_equal(tt_memory_alloc("the moon", SIZE_MAX - 5, TT_MEMORY_ANY_NODE, &data),
                     TT_ERR_NOMEM);
    assert_int_equal(tt_memory_alloc("the moon", (size_t)1 << 62, TT_MEMORY_ANY_NODE, &data),
                     TT_ERR_NOMEM);
    assert_non_null(strstr(tt_status_message(), "the moon"));
    assert_non_null(strstr(tt_status_message(), "4611686018427387904"));
    assert_null(data);
    assert_int_equal(tt_memory_used_bytes(), before);
}

static void arena_pieces_are_aligned_apart_and_bounded(void **state)
{
    (void)state;
    tt_arena arena;
    size_t before = tt_memory_used_bytes();
    assert_int_equal(tt_arena_init(&arena, "arena", 1000, TT_MEMORY_ANY_NODE), TT_OK);
    unsigned char *a = tt_arena_alloc(&arena, 1);
    unsigned char *b = tt_arena_alloc(&arena, 65);
    assert_int_equal((uintptr_t)a % TT_CACHE_LINE, 0);
    assert_int_equal(b - a, TT_CACHE_LINE);
    assert_null(tt_arena_alloc(&arena, 1000));
    assert_null(tt_arena_alloc(&arena, SIZE_MAX));
    assert_null(tt_arena_alloc(&arena, SIZE_MAX - 63));
    size_t rest = arena.size_bytes - arena.used_bytes;
    assert_non_null(tt_arena_alloc(&arena, rest));
    assert_null(tt_arena_alloc(&arena, 1));
    assert_int_equal(arena.used_bytes, arena.size_bytes);
    tt_arena_reset(&arena);
    assert_int_equal(arena.used_bytes, 0);
    assert_int_equal(arena.high_bytes, arena.size_bytes);
    assert_ptr_equal(tt_arena_alloc(&arena, 1000), a);
    tt_arena_fini(&arena);
    assert_int_equal(tt_memory_used_bytes(), before);
    assert_int_equal(tt_arena_init(&arena, "huge arena", SIZE_MAX, 0), TT_ERR_NOMEM);
}

static void all_zero_arena_only_counts(void **state)
{
    (void)state;
    tt_arena counter = {0}, arena;
    assert_null(tt_arena_alloc(&counter, 1));
    assert_null(tt_arena_take(&counter, 25, sizeof(float)));
    assert_int_equal(counter.used_bytes, 3 * TT_CACHE_LINE);
    assert_int_equal(tt_arena_init(&arena, "arena", counter.used_bytes, TT_MEMORY_ANY_NODE), TT_OK);
    assert_non_null(tt_arena_alloc(&arena, 1));
    assert_non_null(tt_arena_take(&arena, 25, sizeof(float)));
    assert_null(tt_arena_alloc(&arena, 1));
    tt_arena_fini(&arena);
    /* A sum beyond all memory must not wrap around to something small. */
    for (int i = 0; i < 3; i++) {
        assert_null(tt_arena_alloc(&counter, SIZE_MAX - 10));
    }
    assert_int_equal(tt_arena_init(&arena, "arena", counter.used_bytes, TT_MEMORY_ANY_NODE),
                     TT_ERR_NOMEM);
}

static void fresh_arena_memory_is_poisoned_in_debug_builds(void **state)
{
    (void)state;
    tt_arena arena;
    assert_int_equal(tt_arena_init(&arena, "arena", 4096, TT_MEMORY_ANY_NODE), TT_OK);
    float *x = tt_arena_alloc(&arena, 16 * sizeof(*x));
#if TT_DEBUG
    assert_true(isnan(x[0]) && isnan(x[15]));
#else
    assert_non_null(x);
#endif
    tt_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_zeroed_aligned_and_writable),
        cmocka_unit_test(use_is_accounted_and_the_peak_stays),
        cmocka_unit_test(missing_node_is_no_error),
        cmocka_unit_test(too_much_is_an_error_that_names_it),
        cmocka_unit_test(arena_pieces_are_aligned_apart_and_bounded),
        cmocka_unit_test(all_zero_arena_only_counts),
        cmocka_unit_test(fresh_arena_memory_is_poisoned_in_debug_builds),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    tt_log_set_level(TT_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
