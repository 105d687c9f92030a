/* test_stream.c - streams keep order, run every part once, and neither hang nor burn the CPU
 * when idle or crowded. */
#define _GNU_SOURCE /* sched_getcpu, pthread_getname_np */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tutti/stream.h"
#include "tutti/trace.h"

enum { MAX_PARTS = 32, N_TASKS = 1500 };

/* Non-atomic on purpose: the barrier between tasks is what orders the accesses (ThreadSanitizer
 * checks it). */
typedef struct cells {
    int64_t value[MAX_PARTS][16]; /* a cache line and more apart */
} cells;

static tt_stream *make(int n_threads, bool join_caller)
{
    tt_stream *stream = NULL;
    tt_stream_params params = {.name = "test", .n_threads = n_threads, .join_caller = join_caller};
    assert_int_equal(tt_stream_create(&params, &stream), TT_OK);
    return stream;
}

/* Part t adds its right neighbour's value of the task before: wrong unless tasks are separated
 * by a barrier. */
static void shift_even(void *arg, int t, int n)
{
    cells *c = arg;
    c[1].value[t][0] = c[0].value[(t + 1) % n][0] + 1;
}

static void shift_odd(void *arg, int t, int n)
{
    cells *c = arg;
    c[0].value[t][0] = c[1].value[(t + 1) % n][0] + 1;
}

static void tasks_run_in_order_with_a_barrier_between(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 8, 9, 17};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int join = 0; join < 2; join++) {
            cells c[2] = {0};
            tt_stream *stream = make(counts[i], join);
            assert_int_equal(tt_stream_n_threads(stream), counts[i]);
            /* More than the ring holds, without a sync: the enqueuer has to wait or help. */
            for (int k = 0; k < N_TASKS; k++) {
                tt_stream_enqueue(stream, "shift", k % 2 ? shift_odd : shift_even, c);
            }
            tt_stream_sync(stream);
            for (int t = 0; t < counts[i]; t++) {
                assert_int_equal(c[N_TASKS % 2].value[t][0], N_TASKS);
            }
            tt_stream_destroy(&stream);
            assert_null(stream);
        }
    }
}

static void run_returns_after_all_parts(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        for (int join = 0; join < 2; join++) {
            cells c[2] = {0};
            tt_stream *stream = make(n, join);
            for (int k = 0; k < 200; k++) {
                tt_stream_run(stream, "shift", k % 2 ? shift_odd : shift_even, c);
                for (int t = 0; t < n; t++) {
                    assert_int_equal(c[(k + 1) % 2].value[t][0], k + 1);
                }
            }
            tt_stream_destroy(&stream);
        }
    }
}

static void increment(void *arg, int t, int n)
{
    (void)n;
    if (t == 0) {
        (*(int64_t *)arg)++;
    }
}

static void sleep_a_little(void *arg, int t, int n)
{
    (void)arg;
    (void)t;
    (void)n;
    struct timespec ms = {.tv_nsec = 1000000};
    nanosleep(&ms, NULL);
}

static void record_is_done_after_earlier_tasks(void **state)
{
    (void)state;
    int64_t count = 0;
    tt_event event = {0};
    tt_stream *stream = make(3, false);
    assert_true(tt_event_query(&event)); /* an event never recorded is done */
    tt_event_wait(&event);
    for (int k = 1; k <= 50; k++) {
        tt_stream_enqueue(stream, "sleep", sleep_a_little, NULL);
        tt_stream_enqueue(stream, "increment", increment, &count);
        tt_stream_record(stream, &event);
        if (k == 1) {
            assert_false(tt_event_query(&event)); /* the sleep is still on */
        }
        tt_event_wait(&event);
        assert_int_equal(count, k); /* plain read: the event orders it */
    }
    tt_stream_destroy(&stream);
}

typedef struct relay {
    int64_t value;
    int64_t seen[2];
} relay;

static void relay_write(void *arg, int t, int n)
{
    relay *r = arg;
    (void)n;
    if (t == 0) {
        r->value++;
    }
}

static void relay_check(void *arg, int t, int n)
{
    relay *r = arg;
    (void)n;
    if (t == 0) {
        r->seen[r->value % 2] = r->value;
    }
}

static void wait_orders_two_streams(void **state)
{
    (void)state;
    relay r = {0};
    tt_stream *a = make(2, false), *b = make(3, false);
    tt_event written = {0}, checked = {0};
    for (int k = 1; k <= 400; k++) {
        tt_stream_wait(a, &checked);
        tt_stream_enqueue(a, "write", relay_write, &r);
        tt_stream_record(a, &written);
        tt_stream_wait(b, &written);
        tt_stream_enqueue(b, "check", relay_check, &r);
        tt_stream_record(b, &checked);
    }
    tt_stream_sync(a);
    tt_stream_sync(b);
    assert_int_equal(r.seen[1], 399);
    assert_int_equal(r.seen[0], 400);
    tt_stream_destroy(&a);
    tt_stream_destroy(&b);
}

static void joined_caller_does_waits_and_records(void **state)
{
    (void)state;
    int64_t count = 0;
    tt_event started = {0}, ended = {0};
    for (int n = 1; n <= 3; n += 2) {
        tt_stream *helper = make(1, false), *joined = make(n, true);
        count = 0;
        tt_stream_enqueue(helper, "sleep", sleep_a_little, NULL);
        tt_stream_enqueue(helper, "increment", increment, &count);
        tt_stream_record(helper, &started);
        tt_stream_wait(joined, &started);
        tt_stream_enqueue(joined, "increment", increment, &count);
        tt_stream_record(joined, &ended);
        tt_stream_run(joined, "increment", increment, &count);
        assert_true(tt_event_query(&ended));
        assert_int_equal(count, 3);
        tt_stream_destroy(&joined);
        tt_stream_destroy(&helper);
    }
}

static void event_recorded_on_two_streams_never_goes_back(void **state)
{
    (void)state;
    tt_event event = {0};
    tt_stream *slow = make(1, false), *fast = make(1, false);
    tt_stream_enqueue(slow, "sleep", sleep_a_little, NULL);
    tt_stream_record(slow, &event);
    tt_stream_record(fast, &event);
    tt_event_wait(&event);
    tt_stream_sync(slow);
    assert_true(tt_event_query(&event));
    tt_stream_destroy(&slow);
    tt_stream_destroy(&fast);
}

static void destroy_waits_for_what_was_enqueued(void **state)
{
    (void)state;
    int64_t count = 0;
    for (int join = 0; join < 2; join++) {
        tt_stream *stream = make(2, join);
        for (int k = 0; k < 100; k++) {
            tt_stream_enqueue(stream, "increment", increment, &count);
        }
        tt_stream_destroy(&stream);
        assert_int_equal(count, 100 * (join + 1));
    }
    tt_stream *none = NULL;
    tt_stream_destroy(&none);
}

static void bad_thread_count_is_refused(void **state)
{
    (void)state;
    tt_stream *stream = NULL;
    tt_stream_params params = {.name = "bad", .n_threads = -1};
    assert_int_equal(tt_stream_create(&params, &stream), TT_ERR_ARG);
    assert_null(stream);
    params.n_threads = 0;
    assert_int_equal(tt_stream_create(&params, &stream), TT_OK);
    assert_int_equal(tt_stream_n_threads(stream), 1);
    tt_stream_destroy(&stream);
}

typedef struct seen_state {
    int rounding[MAX_PARTS];
    float tiny[MAX_PARTS]; /* half the smallest normal number: 0 if results are flushed */
    char name[MAX_PARTS][32];
    int cpu[MAX_PARTS];
} seen_state;

static void look_at_thread(void *arg, int t, int n)
{
    seen_state *seen = arg;
    volatile float x = 0x1p-126f;
    (void)n;
    seen->rounding[t] = fegetround();
    seen->tiny[t] = x * 0.5f;
    seen->cpu[t] = sched_getcpu();
    pthread_getname_np(pthread_self(), seen->name[t], sizeof(seen->name[t]));
}

static void threads_have_default_arithmetic_and_a_name(void **state)
{
    (void)state;
    seen_state seen = {0};
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    const unsigned flush_bits = 0x8040; /* FTZ and DAZ */
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | flush_bits);
#endif
    tt_stream *stream = make(3, true);
    tt_stream_run(stream, "look", look_at_thread, &seen);
    for (int t = 0; t < 3; t++) {
        assert_int_equal(seen.rounding[t], FE_TONEAREST);
        assert_true(seen.tiny[t] == 0x1p-127f);
    }
    assert_string_equal(seen.name[1], "test 1");
    assert_string_equal(seen.name[2], "test 2");
    tt_stream_destroy(&stream);
}

static void threads_are_bound_where_asked(void **state)
{
    (void)state;
    seen_state seen = {0};
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    int last = -1;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        last = CPU_ISSET((size_t)c, &before) ? c : last;
    }
    int cpu[3] = {-1, last, last};
    tt_stream *stream = NULL;
    tt_stream_params params = {.name = "bound", .n_threads = 3, .join_caller = true, .cpu = cpu};
    assert_int_equal(tt_stream_create(&params, &stream), TT_OK);
    tt_stream_run(stream, "look", look_at_thread, &seen);
    assert_int_equal(seen.cpu[1], last);
    assert_int_equal(seen.cpu[2], last);
    tt_stream_destroy(&stream);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after)); /* -1 leaves the caller alone */
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void idle_stream_sleeps_and_wakes(void **state)
{
    (void)state;
    int64_t count = 0;
    tt_stream *stream = make(4, true);
    struct timespec settle = {.tv_nsec = 100000000}, idle = {.tv_nsec = 500000000};
    tt_stream_run(stream, "increment", increment, &count);
    nanosleep(&settle, NULL);
    double before = cpu_seconds();
    nanosleep(&idle, NULL);
    double share = (cpu_seconds() - before) / 0.5;
    print_message("# idle: %.2f %% of a core\n", share * 100);
    assert_true(share < 0.02);
    /* Sleepers must wake each time, whatever the phase of falling asleep they are in. */
    for (int k = 0; k < 60; k++) {
        struct timespec gap = {.tv_nsec = k * 100000};
        nanosleep(&gap, NULL);
        tt_stream_run(stream, "increment", increment, &count);
    }
    assert_int_equal(count, 61);
    tt_stream_destroy(&stream);
}

static void *crowd_main(void *arg)
{
    cells c[2] = {0};
    int64_t *result = arg;
    tt_stream *stream = NULL;
    tt_stream_params params = {.name = "crowd", .n_threads = 4, .join_caller = true};
    if (tt_stream_create(&params, &stream) != TT_OK) {
        return NULL;
    }
    for (int k = 0; k < 200; k++) {
        tt_stream_run(stream, "shift", k % 2 ? shift_odd : shift_even, c);
    }
    *result = c[0].value[0][0];
    tt_stream_destroy(&stream);
    return NULL;
}

static void crowded_streams_make_progress(void **state)
{
    (void)state;
    enum { N_CROWD = 8 }; /* of 4 threads: more than most machines that run this have cores */
    pthread_t thread[N_CROWD];
    int64_t result[N_CROWD] = {0};
    uint64_t begin_ns = tt_now_ns();
    for (int i = 0; i < N_CROWD; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, crowd_main, &result[i]), 0);
    }
    for (int i = 0; i < N_CROWD; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(result[i], 200);
    }
    double seconds = (double)(tt_now_ns() - begin_ns) * 1e-9;
    print_message("# crowd: 1600 barriers of 4 threads in %.3f s\n", seconds);
    assert_true(
        seconds <
        20); /* spinners that do not yield need a time slice (3 ms) per hand-over: minutes */
}

static void nothing(void *arg, int t, int n)
{
    (void)arg;
    (void)t;
    (void)n;
}

static void report_overhead(void **state)
{
    (void)state;
    enum { N_CALLS = 20000 };
    for (int n = 1; n <= 2; n++) {
        tt_stream *stream = make(n, true);
        uint64_t begin_ns = tt_now_ns();
        for (int k = 0; k < N_CALLS; k++) {
            tt_stream_run(stream, "nothing", nothing, NULL);
        }
        double ns = (double)(tt_now_ns() - begin_ns) / N_CALLS;
        print_message("# run: %d threads, %.0f ns a call\n", n, ns);
        tt_stream_destroy(&stream);
    }
}

static void split_covers_the_range_once(void **state)
{
    (void)state;
    for (int64_t total = 0; total < 40; total++) {
        for (int64_t n = 1; n < 12; n++) {
            int64_t next = 0;
            for (int64_t i = 0; i < n; i++) {
                int64_t begin, end;
                tt_split(total, n, i, &begin, &end);
                assert_int_equal(begin, next);
                assert_true(end - begin == total / n || end - begin == total / n + 1);
                next = end;
            }
            assert_int_equal(next, total);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_covers_the_range_once),
        cmocka_unit_test(tasks_run_in_order_with_a_barrier_between),
        cmocka_unit_test(run_returns_after_all_parts),
        cmocka_unit_test(record_is_done_after_earlier_tasks),
        cmocka_unit_test(wait_orders_two_streams),
        cmocka_unit_test(joined_caller_does_waits_and_records),
        cmocka_unit_test(event_recorded_on_two_streams_never_goes_back),
        cmocka_unit_test(destroy_waits_for_what_was_enqueued),
        cmocka_unit_test(bad_thread_count_is_refused),
        cmocka_unit_test(threads_have_default_arithmetic_and_a_name),
        cmocka_unit_test(threads_are_bound_where_asked),
        cmocka_unit_test(idle_stream_sleeps_and_wakes),
        cmocka_unit_test(crowded_streams_make_progress),
        cmocka_unit_test(report_overhead),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
