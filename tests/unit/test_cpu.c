/* test_cpu.c - CPU flags and how they are hidden. The flags are found once per process, so each
 * case is a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ttk.h"
#include "tutti/cpu.h"

/* tt_cpu_flags of a fresh process with TUTTI_CPU_HIDE = hide. */
static unsigned flags_with(const char *hide)
{
    int ends[2];
    unsigned flags = ~0u;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("TUTTI_CPU_HIDE", hide, 1);
        flags = tt_cpu_flags();
        ssize_t n = write(ends[1], &flags, sizeof(flags));
        _exit(n == (ssize_t)sizeof(flags) ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &flags, sizeof(flags)), sizeof(flags));
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[0]);
    close(ends[1]);
    return flags;
}

static void flags_agree_with_the_compiler(void **state)
{
    (void)state;
    unsigned flags = flags_with("");
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        assert_true(flags & TTK_CPU_AVX2);
    } else {
        assert_false(flags & TTK_CPU_AVX2);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        assert_true(flags & TTK_CPU_AVX512);
    } else {
        assert_false(flags & TTK_CPU_AVX512);
    }
#else
    assert_int_equal(flags, 0);
#endif
}

static void hiding_takes_a_level_and_what_builds_on_it(void **state)
{
    (void)state;
    unsigned all = flags_with("");
    unsigned vnni = TTK_CPU_AVX512_VNNI;
    assert_int_equal(flags_with("avx2"), 0);
    assert_int_equal(flags_with("avx512"), all & TTK_CPU_AVX2);
    assert_int_equal(flags_with("amx"), all & ~(unsigned)TTK_CPU_AMX);
    assert_int_equal(flags_with("vnni"), all & ~(vnni | TTK_CPU_AMX));
    assert_int_equal(flags_with("avx512,amx,avx2"), 0);
    assert_int_equal(flags_with("avx,"), all); /* unknown words hide nothing */
}

static void processor_has_a_name(void **state)
{
    (void)state;
    const char *name = tt_cpu_name();
    assert_non_null(name);
    assert_true(strlen(name) > 0 && name[0] != ' ' && name[strlen(name) - 1] != ' ');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_agree_with_the_compiler),
        cmocka_unit_test(hiding_takes_a_level_and_what_builds_on_it),
        cmocka_unit_test(processor_has_a_name),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
