/* tokenizer_json.c - typed reading of the tokenizer's JSON files, so that a wrong type anywhere
 * ends in one message that names the file and the key. */
#include "tokenizer_internal.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_CHUNK_BYTES = 1 << 16 };

tt_status tti_tokenizer_json_file(const char *path, bool *absent_out, char **text_out,
                                  size_t *n_out)
{
    *absent_out = false;
    FILE *file = fopen(path, "rb");
    if (!file) {
        if (errno == ENOENT) {
            *absent_out = true;
            return TT_OK;
        }
        return TT_FAIL(TT_ERR_FILE, "%s cannot be opened: %s", path, strerror(errno));
    }
    /* Read to the end rather than ask the size: a pipe has none. */
    tt_text text = {0};
    size_t capacity = 0;
    tt_status st = TT_OK;
    for (;;) {
        void *bytes = text.bytes;
        st = tti_tokenizer_grow(&bytes, &capacity, text.n + READ_CHUNK_BYTES + 1, 1);
        text.bytes = bytes;
        if (st != TT_OK) {
            goto err_free_text;
        }
        size_t got = fread(text.bytes + text.n, 1, READ_CHUNK_BYTES, file);
        text.n += got;
        if (got < READ_CHUNK_BYTES) {
            break;
        }
    }
    if (ferror(file)) {
        st = TT_FAIL(TT_ERR_FILE, "%s cannot be read: %s", path, strerror(errno));
        goto err_free_text;
    }
    fclose(file);
    text.bytes[text.n] = 0;
    *text_out = text.bytes;
    *n_out = text.n;
    return TT_OK;

err_free_text:
    free(text.bytes);
    fclose(file);
    return st;
}

tt_status tti_tokenizer_json_parse(const char *path, const char *text, size_t n, json_t **root_out)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        if (json_error_code(&error) == json_error_out_of_memory) {
            return TT_FAIL(TT_ERR_NOMEM, "%s: out of memory while reading its JSON", path);
        }
        return TT_FAIL(TT_ERR_FILE, "%s is not JSON: line %d: %s", path, error.line, error.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return TT_FAIL(TT_ERR_FILE, "%s: the outermost value is not an object", path);
    }
    *root_out = root;
    return TT_OK;
}

tt_status tti_tokenizer_json_optional(const char *path, const json_t *object, const char *key,
                                      const char **s_out, size_t *n_out)
{
    const json_t *value = json_object_get(object, key);
    *s_out = NULL;
    *n_out = 0;
    if (!value || json_is_null(value)) {
        return TT_OK;
    }
    TT_CHECK(json_is_string(value), TT_ERR_FILE, "%s: \"%s\" is not a string", path, key);
    *s_out = json_string_value(value);
    *n_out = json_string_length(value);
    return TT_OK;
}

tt_status tti_tokenizer_json_string(const char *path, const json_t *object, const char *key,
                                    const char **s_out, size_t *n_out)
{
    TT_TRY(tti_tokenizer_json_optional(path, object, key, s_out, n_out));
    TT_CHECK(*s_out, TT_ERR_FILE, "%s: \"%s\" is missing", path, key);
    return TT_OK;
}

tt_status tti_tokenizer_json_keep(const char *path, const json_t *object, const char *key,
                                  char **copy_out, size_t *n_out)
{
    const char *s;
    size_t n;
    TT_TRY(tti_tokenizer_json_string(path, object, key, &s, &n));
    return tti_tokenizer_keep(path, s, n, copy_out, n_out);
}

tt_status tti_tokenizer_json_bool(const char *path, const json_t *object, const char *key,
                                  bool fallback, bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) {
        *out = fallback;
        return TT_OK;
    }
    TT_CHECK(json_is_boolean(value), TT_ERR_FILE, "%s: \"%s\" is neither true nor false", path,
             key);
    *out = json_is_true(value);
    return TT_OK;
}

tt_status tti_tokenizer_json_integer(const char *path, const json_t *object, const char *key,
                                     int64_t low, int64_t high, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    TT_CHECK(value && json_is_integer(value), TT_ERR_FILE,
             "%s: \"%s\" is missing or not an integer", path, key);
    int64_t number = (int64_t)json_integer_value(value);
    TT_CHECK(number >= low && number <= high, TT_ERR_FILE,
             "%s: \"%s\" is %" PRId64 ", not in %" PRId64 " .. %" PRId64, path, key, number, low,
             high);
    *out = number;
    return TT_OK;
}

tt_status tti_tokenizer_json_array(const char *path, const json_t *object, const char *key,
                                   const json_t **array_out)
{
    const json_t *value = json_object_get(object, key);
    TT_CHECK(json_is_array(value), TT_ERR_FILE, "%s: \"%s\" is missing or not an array", path, key);
    *array_out = value;
    return TT_OK;
}

tt_status tti_tokenizer_json_sequence(const char *path, const json_t *object, const char *key,
                                      unsigned depth, const json_t **array_out)
{
    TT_CHECK(depth < TTI_STEPS_MAX, TT_ERR_UNSUPPORTED, "%s: \"%s\" are nested too deep", path,
             key);
    return tti_tokenizer_json_array(path, object, key, array_out);
}

tt_status tti_tokenizer_json_type(const char *path, const char *what, const json_t *component,
                                  const char **type_out)
{
    TT_CHECK(json_is_object(component), TT_ERR_FILE, "%s: a %s is not an object", path, what);
    const json_t *type = json_object_get(component, "type");
    TT_CHECK(json_is_string(type), TT_ERR_FILE, "%s: a %s has no \"type\"", path, what);
    *type_out = json_string_value(type);
    return TT_OK;
}

tt_status tti_tokenizer_json_added_flags(const char *path, const json_t *json,
                                         tti_vocabulary_added *added)
{
    TT_TRY(tti_tokenizer_json_bool(path, json, "single_word", false, &added->single_word));
    TT_TRY(tti_tokenizer_json_bool(path, json, "lstrip", false, &added->lstrip));
    TT_TRY(tti_tokenizer_json_bool(path, json, "rstrip", false, &added->rstrip));
    TT_TRY(tti_tokenizer_json_bool(path, json, "special", false, &added->special));
    return tti_tokenizer_json_bool(path, json, "normalized", !added->special, &added->normalized);
}
