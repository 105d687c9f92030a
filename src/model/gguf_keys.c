/* gguf_keys.c - reading one architecture's metadata keys, and writing the configuration that they
 * become. */
#include "gguf_translation.h"
#include <math.h>
#include <string.h>

/* ---- reading keys ---- */

const tti_gguf_key *tti_gguf_find_suffix(const tti_translation *t, const char *suffix, char *name)
{
    size_t n = t->architecture.n; /* short: it is in our table */
    memcpy(name, t->architecture.bytes, n);
    name[n] = '.';
    strncpy(name + n + 1, suffix, TTI_GGUF_KEY_BYTES - n - 2);
    name[TTI_GGUF_KEY_BYTES - 1] = 0;
    return tti_gguf_find(t->gguf, name);
}

tt_status tti_gguf_wrong(const tti_translation *t, const char *name, const char *want)
{
    return TT_FAIL(TT_ERR_FILE, "%s: key '%s' is not %s", tti_show_path(t->path), name, want);
}

tt_status tti_gguf_get_int(const tti_translation *t, const char *suffix, int64_t *value_out,
                           bool *found_out)
{
    char name[TTI_GGUF_KEY_BYTES];
    const tti_gguf_key *key = tti_gguf_find_suffix(t, suffix, name);
    *found_out = key != NULL;
    if (!key) {
        return TT_OK;
    }
    TT_CHECK(key->n > 0, TT_ERR_FILE, "%s: key '%s' is an empty list", tti_show_path(t->path),
             name);
    int64_t common = 0, value = 0;
    for (uint64_t i = 0; i < key->n; i++) {
        if (!tti_gguf_int(key, i, &value)) {
            return tti_gguf_wrong(t, name, "a whole number");
        }
        TT_CHECK(value == 0 || common == 0 || value == common, TT_ERR_UNSUPPORTED,
                 "%s: key '%s' differs from layer to layer (%lld, %lld)", tti_show_path(t->path),
                 name, (long long)common, (long long)value);
        common = value != 0 ? value : common;
    }
    *value_out = common;
    return TT_OK;
}

tt_status tti_gguf_get_real(const tti_translation *t, const char *suffix, double *value_out,
                            bool *found_out)
{
    char name[TTI_GGUF_KEY_BYTES];
    const tti_gguf_key *key = tti_gguf_find_suffix(t, suffix, name);
    *found_out = key != NULL;
    if (key && (key->is_array || !tti_gguf_real(key, 0, value_out) || !isfinite(*value_out))) {
        return tti_gguf_wrong(t, name, "a number");
    }
    return TT_OK;
}

tt_status tti_gguf_get_bool(const tti_translation *t, const char *suffix, bool *value_out,
                            bool *found_out)
{
    char name[TTI_GGUF_KEY_BYTES];
    const tti_gguf_key *key = tti_gguf_find_suffix(t, suffix, name);
    *found_out = key != NULL;
    return !key || tti_gguf_bool(key, value_out) ? TT_OK : tti_gguf_wrong(t, name, "a bool");
}

int64_t tti_gguf_int_or(const tti_translation *t, const char *suffix, int64_t fallback)
{
    bool found;
    int64_t value = fallback;
    return tti_gguf_get_int(t, suffix, &value, &found) == TT_OK && found ? value : fallback;
}

bool tti_gguf_has_tensor(const tti_translation *t, const char *name)
{
    return tti_table_find(&t->model->checkpoint.table, name) != NULL;
}

/* ---- writing the configuration ---- */

tt_status tti_gguf_put(const tti_translation *t, const char *key, json_t *value)
{
    TT_CHECK(value && json_object_set_new(t->config, key, value) == 0, TT_ERR_NOMEM,
             "%s: no memory for its configuration", tti_show_path(t->path));
    return TT_OK;
}

tt_status tti_gguf_put_int(const tti_translation *t, const char *key, int64_t value)
{
    return tti_gguf_put(t, key, json_integer((json_int_t)value));
}

tt_status tti_gguf_put_real(const tti_translation *t, const char *key, double value)
{
    return tti_gguf_put(t, key, json_real(value));
}

tt_status tti_gguf_put_bool(const tti_translation *t, const char *key, bool value)
{
    return tti_gguf_put(t, key, json_boolean(value));
}

tt_status tti_gguf_put_text(const tti_translation *t, const char *key, const char *value)
{
    return tti_gguf_put(t, key, json_string(value));
}
