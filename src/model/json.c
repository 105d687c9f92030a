/* json.c - JSON text into values, and values into fields by a table of keys, so that each family of
 * models states its keys as data and every key is checked alike: type, range, spellings that
 * contradict each other. */
#include "model_internal.h"
#include <stdlib.h>

tt_status tti_json_parse(const char *what, const char *text, size_t n, json_t **root_out)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory) {
        return TT_FAIL(TT_ERR_NOMEM, "%s: no memory to read its JSON text of %zu bytes",
                       tti_show_path(what), n);
    }
    TT_CHECK(root, TT_ERR_FILE, "%s: bad JSON at line %d, column %d: %s", tti_show_path(what),
             error.line, error.column, tti_show(error.text).text);
    if (!json_is_object(root)) {
        json_decref(root);
        return TT_FAIL(TT_ERR_FILE, "%s: is JSON, but not an object", tti_show_path(what));
    }
    *root_out = root;
    return TT_OK;
}

tt_status tti_json_load(const char *dir, const char *name, uint64_t max_bytes, json_t **root_out)
{
    tti_file file;
    TT_TRY(tti_file_open(dir, name, &file));
    char *text = NULL;
    tt_status st;
    if (file.bytes > max_bytes) {
        st = TT_FAIL(TT_ERR_FILE, "%s: has %llu bytes, the limit is %llu", tti_show_path(file.path),
                     (unsigned long long)file.bytes, (unsigned long long)max_bytes);
        goto out;
    }
    text = malloc((size_t)file.bytes + 1);
    if (!text) {
        st = TT_FAIL(TT_ERR_NOMEM, "%s: no memory for its %llu bytes", tti_show_path(file.path),
                     (unsigned long long)file.bytes);
        goto out;
    }
    st = tti_file_read(&file, 0, text, (size_t)file.bytes);
    if (st == TT_OK && tti_file_is_pointer(text, (size_t)file.bytes)) {
        st = TT_FAIL(TT_ERR_FILE,
                     "%s: is an unfetched large-file pointer (Git LFS), not the file itself",
                     tti_show_path(file.path));
    }
    if (st == TT_OK) {
        st = tti_json_parse(file.path, text, (size_t)file.bytes, root_out);
    }

out:
    free(text);
    tti_file_close(&file);
    return st;
}

static const char *type_name(tti_key_type type)
{
    switch (type) {
    case TTI_KEY_INT:
        return "an integer";
    case TTI_KEY_REAL:
    case TTI_KEY_FLOAT:
        return "a number";
    case TTI_KEY_BOOL:
        return "true or false";
    default:
        return "a string";
    }
}

static bool type_fits(tti_key_type type, const json_t *value)
{
    switch (type) {
    case TTI_KEY_INT:
        return json_is_integer(value);
    case TTI_KEY_REAL:
    case TTI_KEY_FLOAT:
        return json_is_number(value);
    case TTI_KEY_BOOL:
        return json_is_boolean(value);
    default:
        return json_is_string(value);
    }
}

/* value NULL: the fallback. */
static void store(const tti_key *key, void *values, const json_t *value, double fallback)
{
    void *field = (char *)values + key->offset;
    switch (key->type) {
    case TTI_KEY_INT:
        *(int64_t *)field = value ? (int64_t)json_integer_value(value) : (int64_t)fallback;
        break;
    case TTI_KEY_REAL:
        *(double *)field = value ? json_number_value(value) : fallback;
        break;
    case TTI_KEY_FLOAT:
        *(float *)field = (float)(value ? json_number_value(value) : fallback);
        break;
    case TTI_KEY_BOOL:
        *(bool *)field = value ? json_is_true(value) : fallback != 0;
        break;
    default:
        *(const char **)field = value ? json_string_value(value) : key->text;
        break;
    }
}

static tt_status fill_one(const char *what, const json_t *object, const tti_key *key, void *values)
{
    const json_t *value = NULL;
    const char *name = key->name[0];
    bool null = false;
    for (int i = 0; i < TTI_KEY_SPELLINGS && key->name[i]; i++) {
        const json_t *other = json_object_get(object, key->name[i]);
        if (!other || json_is_null(other)) {
            null |= other != NULL;
            continue;
        }
        TT_CHECK(!value || json_equal(value, other), TT_ERR_FILE, "%s: '%s' and '%s' differ",
                 tti_show_path(what), name, key->name[i]);
        value = other;
        name = key->name[i];
    }
    if (!value) {
        TT_CHECK(!(key->flags & TTI_KEY_REQUIRED), TT_ERR_FILE, "%s: '%s' is %s",
                 tti_show_path(what), name, null ? "null" : "missing");
        store(key, values, NULL, null && (key->flags & TTI_KEY_NULL_IS_ZERO) ? 0 : key->fallback);
        return TT_OK;
    }
    TT_CHECK(type_fits(key->type, value), TT_ERR_FILE, "%s: '%s' is not %s", tti_show_path(what),
             name, type_name(key->type));
    if (json_is_number(value)) {
        double number = json_number_value(value);
        TT_CHECK(number >= key->min && number <= key->max, TT_ERR_FILE,
                 "%s: '%s' is %.17g, outside [%.9g, %.9g]", tti_show_path(what), name, number,
                 key->min, key->max);
    }
    store(key, values, value, 0);
    return TT_OK;
}

tt_status tti_json_fill(const char *what, const json_t *object, const tti_key *keys, void *values)
{
    for (const tti_key *key = keys; key->type != TTI_KEY_END; key++) {
        TT_TRY(fill_one(what, object, key, values));
    }
    return TT_OK;
}
