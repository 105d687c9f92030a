/* tokenizer_fixture.c - what the tokenizer tests share. */
#include "tokenizer_fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const families[N_FAMILIES] = {"small-deepseek_v3", "small-gptoss", "small-llama3",
                                          "small-mixtral", "small-qwen3"};

static const char *const scratch_names[] = {"tokenizer.json", "tokenizer_config.json",
                                            "chat_template.jinja"};

void source_path(const char *name, char path[FIXTURE_PATH_BYTES])
{
    const char *top = getenv("top_srcdir");
    int n = snprintf(path, FIXTURE_PATH_BYTES, "%s/%s", top ? top : ".", name);
    assert_in_range(n, 1, FIXTURE_PATH_BYTES - 1);
}

json_t *golden_json(const char *name)
{
    char relative[FIXTURE_PATH_BYTES / 2], path[FIXTURE_PATH_BYTES];
    snprintf(relative, sizeof(relative), "tests/golden/tokenizers/%s", name);
    source_path(relative, path);
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!root) {
        fail_msg("%s: %s", path, error.text);
    }
    return root;
}

tt_tokenizer *golden_tokenizer(const char *family)
{
    char relative[FIXTURE_PATH_BYTES / 2], path[FIXTURE_PATH_BYTES];
    snprintf(relative, sizeof(relative), "tests/golden/tokenizers/%s", family);
    source_path(relative, path);
    tt_tokenizer *tokenizer = NULL;
    if (tt_tokenizer_create(path, &tokenizer) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return tokenizer;
}

void scratch_create(scratch *s)
{
    const char *top = getenv("TMPDIR");
    snprintf(s->folder, sizeof(s->folder), "%s/tutti-tokenizer-XXXXXX", top ? top : "/tmp");
    assert_non_null(mkdtemp(s->folder));
}

void scratch_write(const scratch *s, const char *name, const char *bytes, size_t n)
{
    char path[FIXTURE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", s->folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

void scratch_write_json(const scratch *s, const char *name, const json_t *json)
{
    char *bytes = json_dumps(json, JSON_COMPACT);
    assert_non_null(bytes);
    scratch_write(s, name, bytes, strlen(bytes));
    free(bytes);
}

void scratch_remove(scratch *s)
{
    for (size_t k = 0; k < sizeof(scratch_names) / sizeof(scratch_names[0]); k++) {
        char path[FIXTURE_PATH_BYTES];
        snprintf(path, sizeof(path), "%s/%s", s->folder, scratch_names[k]);
        unlink(path);
    }
    rmdir(s->folder);
}

tt_tokenizer *make_tokenizer(const json_t *tokenizer_json, const char *config,
                             const char *chat_template)
{
    scratch s;
    tt_tokenizer *tokenizer = NULL;
    scratch_create(&s);
    scratch_write_json(&s, "tokenizer.json", tokenizer_json);
    if (config) {
        scratch_write(&s, "tokenizer_config.json", config, strlen(config));
    }
    if (chat_template) {
        scratch_write(&s, "chat_template.jinja", chat_template, strlen(chat_template));
    }
    tt_status st = tt_tokenizer_create(s.folder, &tokenizer);
    scratch_remove(&s);
    if (st != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return tokenizer;
}

tt_ids encode(const tt_tokenizer *tokenizer, const char *text, unsigned flags)
{
    tt_ids ids = {0};
    if (tt_tokenizer_encode(tokenizer, text, strlen(text), flags, &ids) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return ids;
}

void assert_ids(const tt_ids *ids, const json_t *expected, const char *what)
{
    size_t n = json_array_size(expected);
    for (size_t i = 0; i < ids->n && i < n; i++) {
        json_int_t wanted = json_integer_value(json_array_get(expected, i));
        if (ids->id[i] != wanted) {
            fail_msg("\"%s\": id %zu is %d, not %d", what, i, (int)ids->id[i], (int)wanted);
        }
    }
    if (ids->n != n) {
        fail_msg("\"%s\": %zu ids, not %zu", what, ids->n, n);
    }
}

void assert_encodes(const tt_tokenizer *tokenizer, const char *text, size_t n, unsigned flags,
                    const json_t *expected)
{
    tt_ids ids = {0};
    if (tt_tokenizer_encode(tokenizer, text, n, flags, &ids) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    assert_ids(&ids, expected, text);
    tt_ids_fini(&ids);
}

void assert_encodes_each(const tt_tokenizer *tokenizer, const json_t *texts, unsigned flags,
                         const json_t *expected)
{
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        assert_encodes(tokenizer, json_string_value(text), json_string_length(text), flags,
                       json_array_get(expected, i));
    }
}

double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
