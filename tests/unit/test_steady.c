/* test_steady.c - with the interposers linked, a debug build counts allocations and locks; the
 * hot path of streams, arenas and spans has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include "steady.h"
#include "tutti/memory.h"
#include "tutti/stream.h"
#include "tutti/trace.h"

extern const int tt_steady_is_interposed;

static void counting_is_on_exactly_in_debug_builds(void **state)
{
    (void)state;
    assert_int_equal(tt_steady_is_counting(), tt_steady_is_interposed);
    if (!tt_steady_is_counting()) {
        assert_int_equal(tt_steady_allocations() + tt_steady_locks(), 0);
    }
}

static void allocations_and_locks_are_counted_outside_foreign_calls(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    void *volatile data[5] = {NULL};
    void *aligned = NULL;
    uint64_t allocations = tt_steady_allocations(), locks = tt_steady_locks();
    data[0] = malloc(10);
    data[1] = calloc(3, 5);
    data[2] = realloc(NULL, 7);
    data[3] = aligned_alloc(64, 128);
    assert_int_equal(posix_memalign(&aligned, 4096, 100), 0);
    data[4] = aligned;
    assert_int_equal(tt_steady_allocations() - allocations, 5);
    assert_int_equal((uintptr_t)data[3] % 64 + (uintptr_t)data[4] % 4096, 0);
    for (int i = 0; i < 5; i++) {
        free(data[i]);
    }
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    assert_int_equal(tt_steady_locks() - locks, 1);

    allocations = tt_steady_allocations();
    locks = tt_steady_locks();
    tt_steady_enter_foreign();
    tt_steady_enter_foreign();
    tt_steady_leave_foreign();
    data[0] = malloc(10);
    free(data[0]);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    tt_steady_leave_foreign();
    assert_int_equal(tt_steady_allocations() - allocations, 0);
    assert_int_equal(tt_steady_locks() - locks, 0);
}

static void use_everything(void *arg, int thread_id, int n_threads)
{
    (void)n_threads;
    if (thread_id == 0) {
        tt_arena *arena = arg;
        tt_arena_reset(arena);
        (void)tt_arena_alloc(arena, 1000);
    }
    tt_span span = tt_span_begin(TT_PHASE_DENSE, "dense");
    tt_span_end(&span, 1);
}

static void hot_path_neither_allocates_nor_locks(void **state)
{
    (void)state;
    tt_arena arena;
    tt_event event = {0};
    tt_stream *joined = NULL, *other = NULL;
    tt_stream_params params = {.name = "steady", .n_threads = 2, .join_caller = true};
    assert_int_equal(tt_trace_enable(64), TT_OK);
    assert_int_equal(tt_arena_init(&arena, "arena", 4096, TT_MEMORY_ANY_NODE), TT_OK);
    assert_int_equal(tt_stream_create(&params, &joined), TT_OK);
    params.join_caller = false;
    assert_int_equal(tt_stream_create(&params, &other), TT_OK);
    tt_stream_run(joined, "warm", use_everything, &arena);
    tt_stream_run(other, "warm", use_everything, &arena);
    uint64_t allocations = tt_steady_allocations(), locks = tt_steady_locks();
    for (int i = 0; i < 500; i++) {
        tt_stream_enqueue(other, "use", use_everything, &arena);
        tt_stream_record(other, &event);
        tt_stream_wait(joined, &event);
        tt_stream_run(joined, "use", use_everything, &arena);
    }
    tt_stream_sync(other);
    assert_int_equal(tt_steady_allocations() - allocations, 0);
    assert_int_equal(tt_steady_locks() - locks, 0);
    tt_stream_destroy(&joined);
    tt_stream_destroy(&other);
    tt_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counting_is_on_exactly_in_debug_builds),
        cmocka_unit_test(allocations_and_locks_are_counted_outside_foreign_calls),
        cmocka_unit_test(hot_path_neither_allocates_nor_locks),
    };
    const struct CMUnitTest tests_without_counting[] = {
        cmocka_unit_test(counting_is_on_exactly_in_debug_builds),
    };
    enum { EXIT_SKIPPED = 77 }; /* automake's */
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (!tt_steady_is_interposed) {
        int n_failed = cmocka_run_group_tests(tests_without_counting, NULL, NULL);
        print_message("# not counting: not a debug build, or sanitized\n");
        return n_failed ? n_failed : EXIT_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
