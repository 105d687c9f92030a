/* test_status.c - messages, traces, codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <string.h>
#include "tutti/status.h"

static const tt_status all_codes[] = {
    TT_OK,          TT_ERR_ARG,      TT_ERR_USAGE,    TT_ERR_STATE,    TT_ERR_UNSUPPORTED,
    TT_ERR_REQUEST, TT_ERR_NUMERIC,  TT_ERR_FILE,     TT_ERR_IO,       TT_ERR_NOMEM,
    TT_ERR_FIT,     TT_ERR_CAPACITY, TT_ERR_MISMATCH, TT_ERR_PROTOCOL, TT_ERR_MPI,
    TT_ERR_TIMEOUT, TT_ERR_PEER,
};

static tt_status inner(int value)
{
    TT_CHECK(value < 3, TT_ERR_FILE, "value %d of %s", value, "here");
    return TT_OK;
}

static tt_status outer(int value)
{
    TT_TRY(inner(value));
    return TT_OK;
}

static void failure_keeps_cause_and_adds_callers(void **state)
{
    (void)state;
    assert_int_equal(outer(2), TT_OK);
    assert_int_equal(outer(7), TT_ERR_FILE);
    assert_string_equal(tt_status_message(), "value 7 of here");
    assert_non_null(strstr(tt_status_trace_text(), "TT_ERR_FILE at test_status.c:"));
    assert_non_null(strstr(tt_status_trace_text(), "from outer at test_status.c:"));
    /* A new failure starts a new trace. */
    assert_int_equal(inner(5), TT_ERR_FILE);
    assert_null(strstr(tt_status_trace_text(), "outer"));
}

static void message_may_quote_the_message_before(void **state)
{
    (void)state;
    (void)TT_FAIL(TT_ERR_IO, "first");
    (void)TT_FAIL(TT_ERR_FILE, "second, after: %s", tt_status_message());
    assert_string_equal(tt_status_message(), "second, after: first");
    tt_status_adopt(TT_ERR_PEER, tt_status_message());
    assert_string_equal(tt_status_message(), "second, after: first");
    assert_string_equal(tt_status_trace_text(), "");
}

static void long_messages_and_traces_are_cut(void **state)
{
    (void)state;
    char text[3 * TT_STATUS_MESSAGE_BYTES];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    (void)TT_FAIL(TT_ERR_ARG, "%s", text);
    assert_int_equal(strlen(tt_status_message()), TT_STATUS_MESSAGE_BYTES - 1);
    for (int i = 0; i < 1000; i++) {
        tt_status_trace(TT_ERR_ARG, "a/long/path/file.c", i, "function");
    }
    assert_true(strlen(tt_status_trace_text()) > 100);
}

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    (void)TT_FAIL(TT_ERR_IO, "elsewhere");
    return NULL;
}

static void messages_are_per_thread(void **state)
{
    (void)state;
    pthread_t thread;
    (void)TT_FAIL(TT_ERR_ARG, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(tt_status_message(), "mine");
}

static void every_code_has_a_name_of_its_own_and_worse_is_smaller(void **state)
{
    (void)state;
    int n = (int)(sizeof(all_codes) / sizeof(all_codes[0]));
    for (int i = 0; i < n; i++) {
        assert_string_not_equal(tt_status_name(all_codes[i]), "unknown status");
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(tt_status_name(all_codes[i]), tt_status_name(all_codes[j]));
            assert_true(all_codes[i] < all_codes[j]);
        }
    }
    assert_string_equal(tt_status_name((tt_status)-999), "unknown status");
}

static void exit_codes_are_the_documented_ones(void **state)
{
    (void)state;
    assert_int_equal(tt_status_exit_code(TT_OK), 0);
    assert_int_equal(tt_status_exit_code(TT_ERR_IO), 1);
    assert_int_equal(tt_status_exit_code(TT_ERR_USAGE), 2);
    assert_int_equal(tt_status_exit_code(TT_ERR_FILE), 3);
    assert_int_equal(tt_status_exit_code(TT_ERR_FIT), 3);
    assert_int_equal(tt_status_exit_code(TT_ERR_TIMEOUT), 4);
    assert_int_equal(tt_status_exit_code(TT_ERR_PEER), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_keeps_cause_and_adds_callers),
        cmocka_unit_test(message_may_quote_the_message_before),
        cmocka_unit_test(long_messages_and_traces_are_cut),
        cmocka_unit_test(messages_are_per_thread),
        cmocka_unit_test(every_code_has_a_name_of_its_own_and_worse_is_smaller),
        cmocka_unit_test(exit_codes_are_the_documented_ones),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
