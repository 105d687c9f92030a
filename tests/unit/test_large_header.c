/* test_large_header.c - headers of weight files as large as the format allows, and larger: real
 * ones, of a million tensors of one element each. Up to the limit they are read, in memory and time
 * that follow their size; above it they are refused for that, and unread. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_fixture.h"
#include "model_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define SINGLE "model.safetensors"
enum {
    MEMBER_BYTES = 100, /* of a tensor, with its comma */
    LIMIT_BYTES = 100000000,
    BEYOND_BYTES = 100 << 20,
    PEAK_FACTOR = 4, /* of the header: its text, an entry and a name of each tensor, slots, and
                      * the table that doubles */
    REFUSED_KIB = 1024
};
/* 6 s on a busy two-core machine, most of it jansson; the bound leaves room for sanitizers and
 * worse machines, and still shows what is not linear. */
static const double SECONDS_MAX = 60, REFUSED_SECONDS_MAX = 1;

static void name_of(int64_t i, char name[MEMBER_BYTES])
{
    snprintf(name, MEMBER_BYTES, "layers.0.mlp.experts.%07lld.scale", (long long)i);
}

/* {"NAME":{"dtype":"U8","shape":[1],"data_offsets":[I,I+1]},...} of exactly `bytes`, with spaces
 * behind the names; returns the number of tensors. */
static int64_t write_header(const fixture *f, int64_t bytes)
{
    int64_t n = (bytes - 1) / MEMBER_BYTES;
    FILE *file = fopen(fixture_path(f, SINGLE), "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++) {
        fputc((int)((uint64_t)bytes >> (8 * i) & 0xff), file);
    }
    fputc('{', file);
    for (int64_t i = 0; i < n; i++) {
        char name[MEMBER_BYTES], member[2 * MEMBER_BYTES];
        name_of(i, name);
        int used = snprintf(member, sizeof(member),
                            "\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%lld,%lld]}",
                            name, (long long)i, (long long)(i + 1));
        fprintf(file, "%s%*s%c", member, MEMBER_BYTES - 1 - used, "", i + 1 < n ? ',' : '}');
    }
    fprintf(file, "%*s", (int)(bytes - 1 - n * MEMBER_BYTES), "");
    assert_int_equal(ftell(file), 8 + bytes);
    for (int64_t i = 0; i < n; i++) {
        fputc((int)(i % 251), file);
    }
    assert_int_equal(fclose(file), 0);
    return n;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* KiB at most so far. */
static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void check_memory(const char *what, long before_kib, long most_kib)
{
    long more = peak_kib() - before_kib;
    print_message("# %s: %ld KiB\n", what, more);
#if !defined(__SANITIZE_ADDRESS__) /* whose own memory grows with every allocation */
    assert_true(more <= most_kib);
#else
    (void)most_kib;
#endif
}

static void a_header_above_the_limit_is_refused_unread(void **state)
{
    fixture *f = *state;
    assert_true(write_header(f, BEYOND_BYTES) > 1000000);
    long before = peak_kib();
    double begin = seconds();
    expect_refusal(f, TT_ERR_FILE, SINGLE, "104857600", "limit of 100000000", NULL);
    assert_true(seconds() - begin < REFUSED_SECONDS_MAX);
    check_memory("refused", before, REFUSED_KIB);
}

static void a_header_at_the_limit_is_read(void **state)
{
    fixture *f = *state;
    int64_t n = write_header(f, LIMIT_BYTES);
    long before = peak_kib();
    double begin = seconds();
    tti_file file;
    tti_table table;
    assert_int_equal(tti_file_open(f->dir, SINGLE, &file), TT_OK);
    if (tti_safetensors_read(&file, 0, &table) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    print_message("# %lld tensors in %.2f s\n", (long long)n, seconds() - begin);
    assert_true(seconds() - begin < SECONDS_MAX);
    check_memory("read", before, PEAK_FACTOR * (LIMIT_BYTES / 1024));
    assert_int_equal(table.n, n);
    for (int64_t i = 0; i < n; i += 9973) {
        char name[MEMBER_BYTES];
        unsigned char byte;
        name_of(i, name);
        const tti_entry *entry = tti_table_find(&table, name);
        assert_non_null(entry);
        assert_int_equal(entry->bytes, 1);
        assert_int_equal(tti_file_read(&file, entry->offset, &byte, 1), TT_OK);
        assert_int_equal(byte, i % 251);
    }
    assert_null(tti_table_find(&table, "layers.0.mlp.experts.scale"));
    tti_table_fini(&table);
    tti_file_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: memory is counted at its most */
        cmocka_unit_test_setup_teardown(a_header_above_the_limit_is_refused_unread,
                                        fixture_set_up_tiny, fixture_tear_down),
        cmocka_unit_test_setup_teardown(a_header_at_the_limit_is_read, fixture_set_up_tiny,
                                        fixture_tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
