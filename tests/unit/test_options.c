/* test_options.c - defaults, environment and command line, their order, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tutti/options.h"

typedef struct settings {
    bool json;
    bool loud;
    int64_t count;
    double ratio;
    int64_t size;
    const char *host;
    int act;
    tt_option_list prompts;
    int64_t big;
} settings;

static const tt_option main_table[] = {
    {.name = "json",
     .letter = 'j',
     .type = TT_OPTION_FLAG,
     .offset = offsetof(settings, json),
     .help = "print JSON"},
    {.name = "loud",
     .letter = 'l',
     .type = TT_OPTION_FLAG,
     .offset = offsetof(settings, loud),
     .default_value = "yes"},
    {.name = "max-count",
     .letter = 'n',
     .type = TT_OPTION_INT,
     .offset = offsetof(settings, count),
     .default_value = "16",
     .min = 1,
     .max = 100,
     .argument = "N",
     .help = "how many"},
    {.name = "ratio",
     .type = TT_OPTION_FLOAT,
     .offset = offsetof(settings, ratio),
     .default_value = "0.5",
     .min = 0,
     .max = 2},
    {.name = "size",
     .type = TT_OPTION_BYTES,
     .offset = offsetof(settings, size),
     .default_value = "2G"},
    {.name = NULL},
};

static const tt_option other_table[] = {
    {.name = "host", .type = TT_OPTION_STRING, .offset = offsetof(settings, host)},
    {.name = "act",
     .type = TT_OPTION_ENUM,
     .offset = offsetof(settings, act),
     .default_value = "bf16",
     .choices = "f32|bf16|int8",
     .help = "activations"},
    {.name = "prompt",
     .letter = 'p',
     .type = TT_OPTION_LIST,
     .offset = offsetof(settings, prompts)},
    {.name = "big", .type = TT_OPTION_INT, .offset = offsetof(settings, big)},
    {.name = NULL},
};

static const tt_option *const tables[] = {main_table, other_table, NULL};

enum { MAX_WORDS = 600 };
static const char *positional[MAX_WORDS];
static int n_positional;

/* Parses words parted by single spaces; "''" is the empty word. The words live until the next
 * call. */
static tt_status parse(settings *s, const char *line)
{
    static char buffer[8192];
    static char program[] = "tutti";
    char *argv[MAX_WORDS] = {program};
    int argc = 1;
    snprintf(buffer, sizeof(buffer), "%s", line);
    for (char *word = strtok(buffer, " "); word; word = strtok(NULL, " ")) {
        if (!strcmp(word, "''")) {
            word[0] = 0;
        }
        argv[argc++] = word;
    }
    n_positional = -1;
    return tt_options_parse(tables, s, argc, argv, positional, &n_positional);
}

static void defaults_apply(void **state)
{
    (void)state;
    settings s;
    memset(&s, 0xee, sizeof(s));
    assert_int_equal(parse(&s, ""), TT_OK);
    assert_false(s.json);
    assert_true(s.loud);
    assert_int_equal(s.count, 16);
    assert_true(s.ratio == 0.5);
    assert_int_equal(s.size, (int64_t)2 << 30);
    assert_null(s.host);
    assert_int_equal(s.act, 1);
    assert_int_equal(s.prompts.n, 0);
    assert_int_equal(n_positional, 0);
    assert_false(tt_options_is_set(&s, "max-count"));
}

static void command_line_forms(void **state)
{
    (void)state;
    settings s;
    assert_int_equal(parse(&s, "run --json --max-count 7 --ratio=1.25 model --size=1.5K --act int8 "
                               "-p one -ptwo --prompt three --host= -- --json -n"),
                     TT_OK);
    assert_true(s.json);
    assert_int_equal(s.count, 7);
    assert_true(s.ratio == 1.25);
    assert_int_equal(s.size, 1536);
    assert_int_equal(s.act, 2);
    assert_string_equal(s.host, "");
    assert_int_equal(s.prompts.n, 3);
    assert_string_equal(s.prompts.item[1], "two");
    assert_int_equal(n_positional, 4);
    assert_string_equal(positional[0], "run");
    assert_string_equal(positional[1], "model");
    assert_string_equal(positional[2], "--json");
    assert_string_equal(positional[3], "-n");
    assert_true(tt_options_is_set(&s, "prompt"));
    assert_false(tt_options_is_set(&s, "loud"));

    assert_int_equal(parse(&s, "-jn9 - --big -5 --max-count 3 -n 4"), TT_OK);
    assert_true(s.json);
    assert_int_equal(s.count, 4); /* the last one wins */
    assert_int_equal(s.big, -5);
    assert_int_equal(n_positional, 1);
    assert_false(tt_options_is_set(&s, "prompt")); /* forgotten by the new parse */
    assert_true(tt_options_is_set(&s, "big"));
}

static void refuse(const char *line, const char *part_of_message)
{
    settings s;
    assert_int_equal(parse(&s, line), TT_ERR_USAGE);
    if (!strstr(tt_status_message(), part_of_message)) {
        fail_msg("'%s' says '%s', not '%s'", line, tt_status_message(), part_of_message);
    }
    assert_int_equal(n_positional, -1); /* outputs only on success */
}

static void bad_words_are_refused_by_name(void **state)
{
    (void)state;
    refuse("--max-cuont 5", "unknown option --max-cuont; did you mean --max-count?");
    refuse("--jason", "did you mean --json?");
    refuse("--sise=5", "--sise; did you mean --size?");
    refuse("-x", "unknown option -x");
    refuse("-jx", "unknown option -x in '-jx'");
    refuse("--max-count", "--max-count needs a value");
    refuse("-n", "-n (--max-count) needs a value");
    refuse("--max-count 0", "0 is not within 1 to 100");
    refuse("--max-count 101", "--max-count");
    refuse("--max-count 5x", "'5x' is not a whole number");
    refuse("--max-count ''", "is not a whole number");
    refuse("--max-count=", "is not a whole number");
    refuse("--max-count 1.5", "is not a whole number");
    refuse("--big 9223372036854775808", "too large");
    refuse("--ratio nan", "not a finite number");
    refuse("--ratio inf", "not a finite number");
    refuse("--ratio 2.5", "not within 0 to 2");
    refuse("--ratio half", "not a number");
    refuse("--size -1", "not a size");
    refuse("--size 5X", "not a size");
    refuse("--size 5GB", "not a size");
    refuse("--size 1.2.3G", "not a size");
    refuse("--size .", "not a size");
    refuse("--size G", "not a size");
    refuse("--size 8388608T", "too large");
    refuse("--size 8388608.0T", "too large");
    refuse("--act f16", "'f16' is none of f32|bf16|int8");
    refuse("--act f32|bf16", "is none of");
    refuse("--json=yes", "--json takes no value");
}

static void sizes_are_powers_of_1024(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int64_t bytes;
    } cases[] = {
        {"--size 0", 0},
        {"--size 4096", 4096},
        {"--size 16k", 16384},
        {"--size 3M", 3 << 20},
        {"--size 0.5G", 1 << 29},
        {"--size 7T", (int64_t)7 << 40},
        {"--size 9223372036854775807", INT64_MAX},
        {"--size 8388607T", (int64_t)8388607 << 40},
    };
    settings s;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(&s, cases[i].line), TT_OK);
        assert_int_equal(s.size, cases[i].bytes);
    }
}

static void environment_is_between_default_and_command_line(void **state)
{
    (void)state;
    settings s;
    setenv("TUTTI_MAX_COUNT", "33", 1);
    setenv("TUTTI_JSON", "yes", 1);
    setenv("TUTTI_LOUD", "0", 1);
    setenv("TUTTI_PROMPT", "from environment", 1);
    setenv("TUTTI_HOST", "", 1);
    assert_int_equal(parse(&s, ""), TT_OK);
    assert_int_equal(s.count, 33);
    assert_true(s.json);
    assert_false(s.loud);
    assert_int_equal(s.prompts.n, 1);
    assert_string_equal(s.prompts.item[0], "from environment");
    assert_null(s.host);
    assert_true(tt_options_is_set(&s, "max-count"));
    assert_false(tt_options_is_set(&s, "host")); /* empty is absent */
    assert_int_equal(parse(&s, "-n 44 -p a -p b"), TT_OK);
    assert_int_equal(s.count, 44);
    assert_int_equal(s.prompts.n, 2); /* replaces the environment's */
    setenv("TUTTI_MAX_COUNT", "many", 1);
    refuse("", "TUTTI_MAX_COUNT: 'many' is not a whole number");
    unsetenv("TUTTI_MAX_COUNT");
    setenv("TUTTI_JSON", "maybe", 1);
    refuse("", "TUTTI_JSON");
    unsetenv("TUTTI_JSON");
    unsetenv("TUTTI_LOUD");
    unsetenv("TUTTI_PROMPT");
    unsetenv("TUTTI_HOST");
}

static void lists_are_bounded(void **state)
{
    (void)state;
    static char line[8192];
    settings s;
    line[0] = 0;
    for (int i = 0; i < TT_OPTION_LIST_MAX; i++) {
        strcat(line, "-px ");
    }
    assert_int_equal(parse(&s, line), TT_OK);
    assert_int_equal(s.prompts.n, TT_OPTION_LIST_MAX);
    strcat(line, "-px ");
    refuse(line, "more than 256 times");
}

static void structs_are_remembered_apart(void **state)
{
    (void)state;
    settings a, b;
    assert_int_equal(parse(&a, "--json"), TT_OK);
    assert_int_equal(parse(&b, "--host h"), TT_OK);
    assert_true(tt_options_is_set(&a, "json"));
    assert_false(tt_options_is_set(&a, "host"));
    assert_true(tt_options_is_set(&b, "host"));
    assert_false(tt_options_is_set(&main_table, "host"));
}

static void help_is_aligned_and_tells_defaults(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    tt_options_help(main_table, file);
    tt_options_help(other_table, file);
    fclose(file);
    const char *json = strstr(text, "  -j, --json");
    const char *count = strstr(text, "  -n, --max-count N");
    const char *act = strstr(text, "      --act f32|bf16|int8");
    assert_non_null(json);
    assert_non_null(count);
    assert_non_null(act);
    assert_int_equal(strstr(json, "print JSON") - json, strstr(count, "how many") - count);
    assert_int_equal(strstr(json, "print JSON") - json, strstr(act, "activations") - act);
    assert_non_null(strstr(text, "how many (default 16; 1 to 100)\n"));
    assert_non_null(strstr(text, "activations (default bf16)\n"));
    free(text);
}

/* What warn_unknown_environment writes to stderr. */
static void capture_warnings(char *text, size_t text_bytes)
{
    int ends[2];
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    tt_options_warn_unknown_environment(tables);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], text, text_bytes - 1);
    text[n > 0 ? n : 0] = 0;
    close(ends[0]);
}

static void unknown_variables_are_warned_of(void **state)
{
    (void)state;
    char text[4096];
    setenv("TUTTI_MAX_COUNT", "5", 1);
    setenv("TUTTI_CPU_HIDE", "", 1);
    capture_warnings(text, sizeof(text));
    assert_string_equal(text, "");
    setenv("TUTTI_MAX_COUTN", "5", 1);
    capture_warnings(text, sizeof(text));
    assert_non_null(strstr(text, "TUTTI_MAX_COUTN is set"));
    assert_non_null(strstr(text, "did you mean TUTTI_MAX_COUNT?"));
    unsetenv("TUTTI_MAX_COUTN");
    unsetenv("TUTTI_MAX_COUNT");
    unsetenv("TUTTI_CPU_HIDE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_apply),
        cmocka_unit_test(command_line_forms),
        cmocka_unit_test(bad_words_are_refused_by_name),
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(environment_is_between_default_and_command_line),
        cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(structs_are_remembered_apart),
        cmocka_unit_test(help_is_aligned_and_tells_defaults),
        cmocka_unit_test(unknown_variables_are_warned_of),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
