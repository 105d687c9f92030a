/* test_chat_templates.c - chat templates against Jinja2: every NAME.jinja of tests/golden/templates
 * (and of the folder in TUTTI_TEMPLATES, if it is set) over all conversations of cases.json gives
 * the text that tests/golden/templates/make_goldens.py stored in NAME.json, and knows which of its
 * bytes the conversation brought. */
#include "tokenizer_fixture.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../src/model/chat_template.h"

enum { MAX_TOKENS = 8, NAME_BYTES = 256, MIN_FAMILIES = 9, MIN_CASES = 12 };

static const char *folder;
static json_t *cases;

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!root) {
        fail_msg("%s: line %d: %s", path, error.line, error.text);
    }
    return root;
}

static char *read_whole(const char *path, size_t *n_out)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail_msg("%s cannot be opened", path);
    }
    tt_text text = {0};
    char piece[4096];
    size_t n;
    assert_int_equal(tt_text_append(&text, "", 0), TT_OK);
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0) {
        assert_int_equal(tt_text_append(&text, piece, n), TT_OK);
    }
    fclose(file);
    *n_out = text.n;
    return text.bytes;
}

/* The variables of a template, as make_goldens.py passes them. */
static json_t *variables_of(const json_t *request)
{
    static const char *const lists[] = {"tools", "documents"};
    json_t *variables = json_object();
    for (size_t k = 0; k < 2; k++) {
        json_t *list = json_object_get(request, lists[k]);
        if (list) {
            json_object_set(variables, lists[k], list);
        } else {
            json_object_set_new(variables, lists[k], json_null());
        }
    }
    json_t *opens = json_object_get(request, "add_generation_prompt");
    json_object_set(variables, "messages", json_object_get(request, "messages"));
    json_object_set_new(variables, "add_generation_prompt",
                        json_boolean(!opens || json_is_true(opens)));
    json_object_update(variables, json_object_get(request, "chat_template_kwargs"));
    return variables;
}

static tt_status render(const char *source, size_t n, const json_t *request, const json_t *tokens,
                        tt_text *text, tt_text *mark)
{
    tti_chat_token token[MAX_TOKENS];
    size_t n_tokens = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)tokens, key, value)
    {
        assert_true(n_tokens < MAX_TOKENS);
        token[n_tokens++] = (tti_chat_token){key, json_string_value(value)};
    }
    json_t *variables = variables_of(request);
    tti_chat_input input = {.variables = variables,
                            .token = token,
                            .n_tokens = n_tokens,
                            .has_now = true,
                            .now_s = json_integer_value(json_object_get(cases, "now"))};
    tt_status st = tti_chat_render(source, n, &input, text, mark);
    json_decref(variables);
    return st;
}

static void fail_at_difference(const char *what, const char *name, const tt_text *text,
                               const char *wanted, size_t n)
{
    enum { SHOWN = 60, BEFORE = 20 };
    size_t at = 0;
    while (at < text->n && at < n && text->bytes[at] == wanted[at]) {
        at++;
    }
    size_t from = at > BEFORE ? at - BEFORE : 0;
    fail_msg("%s, %s: byte %zu of %zu (wanted %zu): \"%.*s\", wanted \"%.*s\"", what, name, at,
             text->n, n, SHOWN, text->bytes + from, SHOWN, wanted + from);
}

/* Each byte that the conversation brought is marked, and of the others no bracket is: so tokens
 * that the template spells count, and no others. */
static void check_marks(const char *what, const char *name, const tt_text *text,
                        const tt_text *mark, const json_t *painted)
{
    size_t at = 0, pair = 0;
    assert_int_equal(text->n, mark->n);
    while (at < text->n) {
        size_t start = text->n, end = text->n;
        if (pair + 1 < json_array_size(painted)) {
            start = (size_t)json_integer_value(json_array_get(painted, pair));
            end = start + (size_t)json_integer_value(json_array_get(painted, pair + 1));
            pair += 2;
        }
        for (; at < start; at++) {
            if (mark->bytes[at] && strchr("<>[]|", text->bytes[at])) {
                fail_msg("%s, %s: byte %zu is the template's, but counts as the user's: \"%.40s\"",
                         what, name, at, text->bytes + at);
            }
        }
        for (; at < end; at++) {
            if (!mark->bytes[at]) {
                fail_msg("%s, %s: byte %zu is the user's, but counts as the template's: \"%.40s\"",
                         what, name, at, text->bytes + at);
            }
        }
    }
}

static void check_row(const char *what, const char *source, size_t n, const json_t *request,
                      const json_t *tokens, const json_t *row)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    const json_t *wanted = json_object_get(row, "text");
    const json_t *painted = json_object_get(row, "painted");
    tt_text text = {0}, mark = {0};
    assert_string_equal(name, json_string_value(json_object_get(row, "name")));
    tt_status st = render(source, n, request, tokens, &text, &mark);
    if (json_is_object(wanted)) {
        const char *said = json_string_value(json_object_get(wanted, "error"));
        if (st != TT_ERR_REQUEST || (said && !strstr(tt_status_message(), said))) {
            fail_msg("%s, %s: %s \"%s\", but Jinja2 refuses: %s", what, name, tt_status_name(st),
                     st == TT_OK ? text.bytes : tt_status_message(), said ? said : "");
        }
    } else {
        if (st != TT_OK) {
            fail_msg("%s, %s: %s", what, name, tt_status_message());
        }
        if (text.n != json_string_length(wanted) ||
            memcmp(text.bytes, json_string_value(wanted), text.n) != 0) {
            fail_at_difference(what, name, &text, json_string_value(wanted),
                               json_string_length(wanted));
        }
        if (json_is_array(painted)) {
            check_marks(what, name, &text, &mark, painted);
        }
    }
    tt_text_fini(&text);
    tt_text_fini(&mark);
}

static void check_template(const char *name)
{
    char path[FIXTURE_PATH_BYTES];
    size_t n;
    snprintf(path, sizeof(path), "%s/%s.jinja", folder, name);
    char *source = read_whole(path, &n);
    snprintf(path, sizeof(path), "%s/%s.json", folder, name);
    json_t *golden = load(path);
    const json_t *rows = json_object_get(golden, "rows"),
                 *requests = json_object_get(cases, "requests");
    size_t n_texts = 0;
    assert_int_equal(json_array_size(rows), json_array_size(requests));
    for (size_t k = 0; k < json_array_size(rows); k++) {
        const json_t *row = json_array_get(rows, k);
        check_row(name, source, n, json_array_get(requests, k), json_object_get(golden, "tokens"),
                  row);
        n_texts += json_is_string(json_object_get(row, "text"));
    }
    print_message("# %s: %zu texts and %zu refusals as Jinja2's\n", name, n_texts,
                  json_array_size(rows) - n_texts);
    json_decref(golden);
    free(source);
}

static int is_template(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 6 && n < NAME_BYTES && strcmp(entry->d_name + n - 6, ".jinja") == 0;
}

static size_t check_folder(void)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, is_template, alphasort);
    if (n < 0) {
        fail_msg("%s cannot be read", folder);
    }
    for (int k = 0; k < n; k++) {
        entry[k]->d_name[strlen(entry[k]->d_name) - 6] = 0;
        check_template(entry[k]->d_name);
        free(entry[k]);
    }
    free(entry);
    return (size_t)n;
}

static void templates_give_what_jinja_gives(void **state)
{
    char path[FIXTURE_PATH_BYTES];
    (void)state;
    source_path("tests/golden/templates", path);
    folder = path;
    assert_true(json_array_size(json_object_get(cases, "requests")) >= MIN_CASES);
    assert_true(check_folder() >= MIN_FAMILIES);
}

static void given_templates_give_what_jinja_gives(void **state)
{
    (void)state;
    folder = getenv("TUTTI_TEMPLATES");
    if (!folder) {
        print_message("# TUTTI_TEMPLATES is not set: no further templates\n");
        skip();
    }
    assert_true(check_folder() > 0);
}

/* One line of language.jsonl; true if we do as Jinja2 does. */
static bool check_line(const json_t *row, const tti_chat_input *input)
{
    const char *source = json_string_value(json_object_get(row, "t"));
    const json_t *wanted = json_object_get(row, "text");
    const char *error = json_string_value(json_object_get(row, "error"));
    tt_text text = {0}, mark = {0};
    tt_status st = tti_chat_render(source, strlen(source), input, &text, &mark);
    bool good;
    if (wanted) {
        good = st == TT_OK && text.n == json_string_length(wanted) &&
               memcmp(text.bytes, json_string_value(wanted), text.n) == 0;
    } else if (strcmp(error, "parse") == 0) {
        /* What Jinja2 finds while it reads, we may find while it runs, and the reverse. */
        good = st == TT_ERR_FILE || st == TT_ERR_UNSUPPORTED;
    } else {
        good = st == TT_ERR_REQUEST || st == TT_ERR_UNSUPPORTED;
    }
    if (!good) {
        print_message("# %s\n#   gives %s \"%s\"\n#   wanted %s\n", source, tt_status_name(st),
                      st == TT_OK ? text.bytes : tt_status_message(),
                      wanted ? json_string_value(wanted) : error);
    }
    tt_text_fini(&text);
    tt_text_fini(&mark);
    return good;
}

static void the_language_is_jinjas(void **state)
{
    enum { MIN_LINES = 600 };
    char path[FIXTURE_PATH_BYTES];
    size_t n, n_lines = 0, n_bad = 0;
    (void)state;
    source_path("tests/golden/templates/language.jsonl", path);
    char *all = read_whole(path, &n);
    json_t *head = NULL;
    tti_chat_input input = {.has_now = true};
    for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
        json_error_t error;
        json_t *row = json_loads(line, JSON_ALLOW_NUL, &error);
        if (!row) {
            fail_msg("%s: line %zu: %s", path, n_lines + 1, error.text);
        }
        if (!head) {
            head = row;
            input.variables = json_object_get(head, "variables");
            input.now_s = json_integer_value(json_object_get(head, "now"));
            continue;
        }
        n_bad += !check_line(row, &input);
        n_lines++;
        json_decref(row);
    }
    json_decref(head);
    free(all);
    assert_true(n_lines >= MIN_LINES);
    assert_int_equal(n_bad, 0);
}

static int load_cases(void **state)
{
    char path[FIXTURE_PATH_BYTES];
    (void)state;
    source_path("tests/golden/templates/cases.json", path);
    cases = load(path);
    return 0;
}

static int drop_cases(void **state)
{
    (void)state;
    json_decref(cases);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_give_what_jinja_gives),
        cmocka_unit_test(the_language_is_jinjas),
        cmocka_unit_test(given_templates_give_what_jinja_gives),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, load_cases, drop_cases);
}
