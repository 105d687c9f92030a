/* test_trace.c - phase totals add up from all threads; the timeline is JSON and keeps the newest
 * spans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/stream.h"
#include "tutti/trace.h"

enum { ROOM = 32, N_THREADS = 4, N_SPANS = 1000 };

static void every_phase_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int p = 0; p < TT_PHASE_COUNT; p++) {
        assert_non_null(tt_phase_name((tt_phase)p));
        for (int q = 0; q < p; q++) {
            assert_string_not_equal(tt_phase_name((tt_phase)p), tt_phase_name((tt_phase)q));
        }
    }
    assert_string_equal(tt_phase_name(TT_PHASE_COUNT), "unknown");
}

static void add_spans(void *arg, int thread_id, int n_threads)
{
    (void)arg;
    (void)thread_id;
    (void)n_threads;
    for (int i = 0; i < N_SPANS; i++) {
        tt_span span = tt_span_begin(TT_PHASE_EXPERTS, "experts");
        tt_span_end(&span, 3);
    }
}

static void totals_add_up_over_threads(void **state)
{
    (void)state;
    tt_phase_total total;
    tt_stream *stream = NULL;
    tt_stream_params params = {.name = "adders", .n_threads = N_THREADS};
    tt_phase_reset();
    assert_int_equal(tt_stream_create(&params, &stream), TT_OK);
    uint64_t begin_ns = tt_now_ns();
    tt_stream_run(stream, "add", add_spans, NULL);
    uint64_t wall_ns = tt_now_ns() - begin_ns;
    tt_stream_destroy(&stream);
    tt_phase_get(TT_PHASE_EXPERTS, &total);
    assert_int_equal(total.calls, N_THREADS * N_SPANS);
    assert_int_equal(total.bytes, 3 * N_THREADS * N_SPANS);
    assert_true(total.ns <= N_THREADS * wall_ns);
    tt_phase_get(TT_PHASE_ROUTE, &total);
    assert_int_equal(total.calls, 0);
    tt_span span = tt_span_begin(TT_PHASE_NONE, "none");
    tt_span_end(&span, 5);
    tt_phase_get(TT_PHASE_NONE, &total);
    assert_int_equal(total.calls, 0); /* timeline only */
    tt_phase_reset();
    tt_phase_get(TT_PHASE_EXPERTS, &total);
    assert_int_equal(total.calls + total.ns + total.bytes, 0);
}

/* The trace of this process as a JSON array, made as the program would: brackets around, the
 * last comma dropped. */
static json_t *read_trace(uint64_t origin_ns)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    fputc('[', file);
    assert_int_equal(tt_trace_write(file, 3, "host \"x\"", origin_ns), TT_OK);
    fflush(file);
    assert_true(bytes > 3 && !strcmp(text + bytes - 2, ",\n"));
    fseek(file, -2, SEEK_CUR);
    fputc(']', file);
    fclose(file);
    json_error_t error;
    json_t *array = json_loadb(text, strlen(text) > bytes ? bytes : strlen(text),
                               JSON_DISABLE_EOF_CHECK, &error);
    if (!array) {
        print_error("%s\n%s\n", error.text, text);
    }
    free(text);
    assert_non_null(array);
    return array;
}

static int count_named(const json_t *array, const char *name)
{
    int n = 0;
    size_t i;
    json_t *event;
    json_array_foreach(array, i, event)
    {
        const char *text = json_string_value(json_object_get(event, "name"));
        assert_non_null(text);
        n += !strcmp(text, name);
    }
    return n;
}

static void *other_thread(void *arg)
{
    (void)arg;
    char name[] = "a name that is too long to be kept as a whole";
    tt_trace_name_thread(name);
    memset(name, '?', sizeof(name) - 1); /* a copy was kept */
    tt_span span = tt_span_begin(TT_PHASE_NONE, "other");
    tt_span_end(&span, 0);
    return NULL;
}

static void timeline_keeps_the_newest_spans_as_json(void **state)
{
    (void)state;
    assert_false(tt_trace_is_enabled());
    assert_int_equal(tt_trace_enable(0), TT_ERR_ARG);
    assert_int_equal(tt_trace_enable(ROOM), TT_OK);
    assert_true(tt_trace_is_enabled());
    assert_int_equal(tt_trace_enable(ROOM), TT_ERR_STATE);
    tt_trace_name_thread("main \"thread\" \\ \n");
    for (int i = 0; i < 100; i++) {
        tt_span span = tt_span_begin(TT_PHASE_ROUTE, i < 100 - ROOM ? "old" : "new");
        tt_span_end(&span, (uint64_t)i);
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    pthread_join(thread, NULL);

    uint64_t origin_ns = tt_now_ns(); /* after the spans: their times are negative */
    json_t *array = read_trace(origin_ns);
    assert_int_equal(count_named(array, "old"), 0);
    assert_int_equal(count_named(array, "new"), ROOM);
    assert_int_equal(count_named(array, "other"), 1);
    assert_int_equal(count_named(array, "thread_name"), 2);
    size_t i;
    json_t *event;
    json_array_foreach(array, i, event)
    {
        assert_int_equal(json_integer_value(json_object_get(event, "pid")), 3);
        if (!strcmp(json_string_value(json_object_get(event, "ph")), "X")) {
            double ts = json_number_value(json_object_get(event, "ts"));
            double dur = json_number_value(json_object_get(event, "dur"));
            assert_true(ts < 0 && ts + dur <= 0.001 && ts > -60e6);
        }
    }
    json_decref(array);
}

static void crossing_spans(void *arg, int thread_id, int n_threads)
{
    _Atomic bool *stop = arg;
    (void)n_threads;
    if (thread_id > 0) {
        while (!atomic_load(stop)) {
            tt_span span = tt_span_begin(TT_PHASE_NONE, "live");
            tt_span_end(&span, 1);
        }
        return;
    }
    for (int i = 0; i < 20; i++) {
        json_t *array = read_trace(0); /* while the others write */
        size_t at;
        json_t *event;
        json_array_foreach(array, at, event)
        {
            /* A torn span would mix two spans and could end before it begins. */
            json_t *dur = json_object_get(event, "dur");
            assert_true(!dur || json_number_value(dur) >= 0);
        }
        json_decref(array);
    }
    atomic_store(stop, true);
}

static void trace_can_be_written_while_threads_run(void **state)
{
    (void)state;
    _Atomic bool stop = false;
    tt_stream *stream = NULL;
    tt_stream_params params = {.name = "live", .n_threads = 3, .join_caller = true};
    assert_int_equal(tt_stream_create(&params, &stream), TT_OK);
    tt_stream_run(stream, "crossing", crossing_spans, &stop);
    tt_stream_destroy(&stream);
    json_t *array = read_trace(0);
    assert_int_equal(count_named(array, "crossing"), 3); /* tasks are spans by their names */
    json_decref(array);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_phase_has_a_name_of_its_own),
        cmocka_unit_test(totals_add_up_over_threads),
        cmocka_unit_test(timeline_keeps_the_newest_spans_as_json),
        cmocka_unit_test(trace_can_be_written_while_threads_run),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
