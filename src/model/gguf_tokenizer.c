/* gguf_tokenizer.c - the tokenizer keys of a GGUF file as the plain arrays that tokenizer_gguf.h
 * asks for. */
#include "gguf_model.h"
#include <stdlib.h>

#define PREFIX "tokenizer.ggml."

static tt_status wrong(const tti_gguf *gguf, const tti_gguf_key *key, const char *want)
{
    return TT_FAIL(TT_ERR_FILE, "%s: key '%s' is not %s", tti_show_path(gguf->path),
                   tti_gguf_show(key->name).text, want);
}

static tt_status get_text(const tti_gguf *gguf, const char *name, tti_gguf_string *text)
{
    const tti_gguf_key *key = tti_gguf_find(gguf, name);
    return !key || tti_gguf_text(key, text) ? TT_OK : wrong(gguf, key, "a string");
}

static tt_status get_flag(const tti_gguf *gguf, const char *name, tti_gguf_flag *flag)
{
    const tti_gguf_key *key = tti_gguf_find(gguf, name);
    bool value = false;
    if (key && !tti_gguf_bool(key, &value)) {
        return wrong(gguf, key, "a bool");
    }
    *flag = !key ? TTI_GGUF_ABSENT : value ? TTI_GGUF_YES : TTI_GGUF_NO;
    return TT_OK;
}

static tt_status get_id(const tti_gguf *gguf, const char *name, int64_t *id)
{
    const tti_gguf_key *key = tti_gguf_find(gguf, name);
    return !key || (!key->is_array && tti_gguf_int(key, 0, id))
               ? TT_OK
               : wrong(gguf, key, "a whole number");
}

/* An array of strings; *strings_out is the caller's. */
static tt_status get_texts(const tti_gguf *gguf, const char *name,
                           const tti_gguf_string **strings_out, size_t *n_out)
{
    const tti_gguf_key *key = tti_gguf_find(gguf, name);
    if (!key) {
        return TT_OK;
    }
    /* key->n strings are in the buffer */
    tti_gguf_string *strings = malloc((size_t)key->n * sizeof(*strings) + 1);
    TT_CHECK(strings, TT_ERR_NOMEM, "%s: no memory for '%s'", tti_show_path(gguf->path), name);
    if (!tti_gguf_texts(key, strings)) {
        free(strings);
        return wrong(gguf, key, "an array of strings");
    }
    *strings_out = strings;
    *n_out = (size_t)key->n;
    return TT_OK;
}

/* An array of numbers, one for each token, as n values of `bytes` made by `put`. NULL where the
 * file has none. */
static tt_status get_numbers(const tti_gguf *gguf, const char *name, size_t n, bool real,
                             void **numbers_out)
{
    const tti_gguf_key *key = tti_gguf_find(gguf, name);
    if (!key) {
        return TT_OK;
    }
    TT_CHECK(key->is_array && key->n == n, TT_ERR_FILE,
             "%s: key '%s' is not an array of one number for each of the %zu tokens",
             tti_show_path(gguf->path), name, n);
    _Static_assert(sizeof(float) == sizeof(int32_t), "one size serves both");
    void *numbers = malloc(n * sizeof(float) + 1);
    TT_CHECK(numbers, TT_ERR_NOMEM, "%s: no memory for '%s'", tti_show_path(gguf->path), name);
    for (size_t i = 0; i < n; i++) {
        int64_t whole = 0;
        double value = 0;
        if (real ? !tti_gguf_real(key, i, &value) : !tti_gguf_int(key, i, &whole)) {
            free(numbers);
            return wrong(gguf, key, real ? "an array of numbers" : "an array of whole numbers");
        }
        if (real) {
            ((float *)numbers)[i] = (float)value;
        } else {
            ((int32_t *)numbers)[i] = whole < INT32_MIN || whole > INT32_MAX ? 0 : (int32_t)whole;
        }
    }
    *numbers_out = numbers;
    return TT_OK;
}

static tt_status fill(const tti_gguf *gguf, tti_gguf_vocabulary *v)
{
    void *type = NULL, *score = NULL;
    TT_TRY(get_text(gguf, "general.architecture", &v->architecture));
    TT_TRY(get_text(gguf, "general.name", &v->name));
    TT_TRY(get_text(gguf, PREFIX "model", &v->model));
    TT_TRY(get_text(gguf, PREFIX "pre", &v->pre));
    TT_TRY(get_text(gguf, "tokenizer.chat_template", &v->chat_template));
    TT_TRY(get_texts(gguf, PREFIX "tokens", &v->token, &v->n_tokens));
    TT_TRY(get_texts(gguf, PREFIX "merges", &v->merge, &v->n_merges));
    tt_status st = get_numbers(gguf, PREFIX "token_type", v->n_tokens, false, &type);
    v->type = type;
    TT_TRY(st);
    st = get_numbers(gguf, PREFIX "scores", v->n_tokens, true, &score);
    v->score = score;
    TT_TRY(st);
    TT_TRY(get_id(gguf, PREFIX "bos_token_id", &v->bos_id));
    TT_TRY(get_id(gguf, PREFIX "eos_token_id", &v->eos_id));
    TT_TRY(get_id(gguf, PREFIX "eot_token_id", &v->eot_id));
    TT_TRY(get_id(gguf, PREFIX "eom_token_id", &v->eom_id));
    TT_TRY(get_id(gguf, PREFIX "unknown_token_id", &v->unknown_id));
    TT_TRY(get_flag(gguf, PREFIX "add_bos_token", &v->add_bos));
    TT_TRY(get_flag(gguf, PREFIX "add_eos_token", &v->add_eos));
    return get_flag(gguf, PREFIX "add_space_prefix", &v->add_space_prefix);
}

tt_status tti_gguf_vocabulary_read(const tti_gguf *gguf, tti_gguf_vocabulary *vocabulary_out)
{
    tti_gguf_vocabulary vocabulary = TTI_GGUF_VOCABULARY_INIT;
    vocabulary.path = gguf->path;
    tt_status st = fill(gguf, &vocabulary);
    if (st != TT_OK) {
        tti_gguf_vocabulary_fini(&vocabulary);
        return st;
    }
    *vocabulary_out = vocabulary;
    return TT_OK;
}

void tti_gguf_vocabulary_fini(tti_gguf_vocabulary *vocabulary)
{
    free((void *)vocabulary->token);
    free((void *)vocabulary->merge);
    free((void *)vocabulary->type);
    free((void *)vocabulary->score);
    vocabulary->token = vocabulary->merge = NULL;
    vocabulary->type = NULL;
    vocabulary->score = NULL;
}

tt_status tti_gguf_tokenizer(const char *first, tt_tokenizer **tokenizer_out)
{
    tti_gguf_model model;
    tti_gguf_vocabulary vocabulary;
    TT_TRY(tti_gguf_model_open(first, &model));
    tt_status st = tti_gguf_vocabulary_read(&model.header.gguf, &vocabulary);
    if (st == TT_OK) {
        st = tti_tokenizer_from_gguf(&vocabulary, tokenizer_out);
        tti_gguf_vocabulary_fini(&vocabulary);
    }
    tti_gguf_model_fini(&model);
    return st;
}

tt_status tti_gguf_has_tokenizer(const char *first, bool *has_out)
{
    tti_gguf_model model;
    TT_TRY(tti_gguf_model_open(first, &model));
    *has_out = tti_gguf_find(&model.header.gguf, PREFIX "tokens") != NULL;
    tti_gguf_model_fini(&model);
    return TT_OK;
}

tt_status tti_gguf_add_stop_ids(const tti_gguf *gguf, json_t *config)
{
    tti_gguf_vocabulary vocabulary;
    tt_ids stop = {0};
    TT_TRY(tti_gguf_vocabulary_read(gguf, &vocabulary));
    tt_status st = tti_gguf_stop_ids(&vocabulary, &stop);
    tti_gguf_vocabulary_fini(&vocabulary);
    json_t *ids = json_object_get(config, "eos_token_id");
    for (size_t i = 0; i < stop.n && st == TT_OK; i++) {
        if (json_array_append_new(ids, json_integer(stop.id[i])) != 0) {
            st = TT_FAIL(TT_ERR_NOMEM, "%s: no memory for its end ids", tti_show_path(gguf->path));
        }
    }
    tt_ids_fini(&stop);
    return st;
}
