/* test_shared_memory.c - memory without a name is found by its name card, by nobody else's, and is
 * read-only to who opens it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tutti/shared_memory.h"

static void another_process_reads_it(void **state)
{
    (void)state;
    tt_shared_memory mine;
    tt_shared_memory_name name;
    assert_int_equal(tt_shared_memory_init("test", 3 << 20, &mine), TT_OK);
    assert_int_equal(mine.bytes % TT_SHARED_HUGE_BYTES, 0);
    assert_int_equal((uintptr_t)mine.base % TT_SHARED_HUGE_BYTES, 0);
    assert_int_equal(tt_shared_memory_get_name(&mine, &name), TT_OK);
    memset(mine.base, 0x5a, 3 << 20);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tt_shared_memory other;
        bool good = tt_shared_memory_open("test", &name, &other) == TT_OK &&
                    other.base != mine.base && memcmp(other.base, mine.base, 3 << 20) == 0 &&
                    other.fd == -1;
        if (good) {
            mine.base[12345] = 7; /* one memory, not a copy */
            good = other.base[12345] == 7;
        }
        tt_shared_memory_fini(&other);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(mine.base[12345], 7);
    tt_shared_memory_fini(&mine);
}

/* Room for a rank's all, of which it fills a part: nothing is taken, nor set aside in the pool of
 * huge pages, before it is touched. */
static void room_costs_nothing(void **state)
{
    (void)state;
    tt_shared_memory mine;
    struct statfs kind;
    struct stat info;
    assert_int_equal(tt_shared_memory_init("test", (size_t)1 << 40, &mine), TT_OK);
    assert_int_equal(fstatfs(mine.fd, &kind), 0);
    assert_true(kind.f_type != HUGETLBFS_MAGIC);
    assert_int_equal(fstat(mine.fd, &info), 0);
    assert_int_equal(info.st_blocks, 0);
    mine.base[5] = 1;
    assert_int_equal(fstat(mine.fd, &info), 0);
    assert_in_range(info.st_blocks, 1, TT_SHARED_HUGE_BYTES / 512);
    tt_shared_memory_fini(&mine);
}

static void expect_refused(const tt_shared_memory_name *name, const char *what)
{
    tt_shared_memory other;
    assert_int_equal(tt_shared_memory_open("dense weights", name, &other), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_status_message(), "dense weights: "));
    assert_non_null(strstr(tt_status_message(), what));
    tt_shared_memory_fini(&other);
}

/* Two arenas of one size under the numbers of each other, as processes of two name spaces have
 * them. */
static void another_memory_is_not_taken_for_it(void **state)
{
    (void)state;
    tt_shared_memory a, b;
    tt_shared_memory_name of_a, of_b, wrong;
    assert_int_equal(tt_shared_memory_init("test", 1 << 20, &a), TT_OK);
    assert_int_equal(tt_shared_memory_init("test", 1 << 20, &b), TT_OK);
    assert_int_equal(tt_shared_memory_get_name(&a, &of_a), TT_OK);
    assert_int_equal(tt_shared_memory_get_name(&b, &of_b), TT_OK);
    wrong = of_a;
    wrong.fd = of_b.fd;
    expect_refused(&wrong, "another one");
    wrong = of_a;
    wrong.bytes += TT_SHARED_HUGE_BYTES;
    expect_refused(&wrong, "another one");
    int ends[2];
    assert_int_equal(pipe(ends), 0); /* opening its writing end for reading would wait for a
                                      * writer */
    wrong.fd = ends[0];
    close(ends[1]);
    expect_refused(&wrong, "another one");
    close(ends[0]);
    wrong.fd = ends[0];
    expect_refused(&wrong, "cannot be opened");
    tt_shared_memory_fini(&a);
    tt_shared_memory_fini(&b);
    tt_shared_memory_fini(&b); /* twice is once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_reads_it),
        cmocka_unit_test(room_costs_nothing),
        cmocka_unit_test(another_memory_is_not_taken_for_it),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
