/* tokenizer_hf.c - reads tokenizer.json, which says everything: normaliser, pre-tokeniser, decoder
 * and post-processor as lists of components, the vocabulary with its merges, and added tokens.
 *
 * Files are hostile: each value's type is checked where it is read, and what we do not know is
 * refused by its name, since a skipped component would give wrong ids without a word. */
#include "tokenizer_internal.h"
#include <string.h>

/* ---- the BPE model ---- */
static tt_status refuse_affix(const char *path, const json_t *model, const char *key)
{
    const char *affix;
    size_t n;
    TT_TRY(tti_tokenizer_json_optional(path, model, key, &affix, &n));
    TT_CHECK(n == 0, TT_ERR_UNSUPPORTED, "%s: the model's \"%s\" is not supported", path, key);
    return TT_OK;
}

static tt_status read_tokens(const char *path, json_t *model, tti_vocabulary *v)
{
    json_t *vocabulary = json_object_get(model, "vocab");
    TT_CHECK(json_is_object(vocabulary), TT_ERR_FILE,
             "%s: the model's \"vocab\" is missing or not an object", path);
    const char *unknown;
    size_t n_unknown;
    TT_TRY(tti_tokenizer_json_optional(path, model, "unk_token", &unknown, &n_unknown));
    const char *key;
    json_t *value;
    json_object_foreach(vocabulary, key, value)
    {
        TT_CHECK(json_is_integer(value), TT_ERR_FILE,
                 "%s: the id of the token \"%.64s\" is not an integer", path, key);
        size_t n = strlen(key);
        int64_t id = (int64_t)json_integer_value(value);
        TT_TRY(tti_vocabulary_add_token(v, key, n, id, TTI_NO_RANK));
        if (unknown && n == n_unknown && memcmp(key, unknown, n) == 0) {
            v->unknown_id = id;
        }
    }
    TT_CHECK(!unknown || v->unknown_id >= 0, TT_ERR_FILE,
             "%s: the \"unk_token\" \"%s\" is not in the vocabulary", path, unknown);
    return TT_OK;
}

static tt_status read_merge(const char *path, const json_t *merge, size_t k, tti_vocabulary *v)
{
    if (json_is_string(merge)) {
        const char *s = json_string_value(merge);
        size_t n = json_string_length(merge);
        const char *space = memchr(s, ' ', n);
        TT_CHECK(space && !memchr(space + 1, ' ', n - (size_t)(space - s) - 1), TT_ERR_FILE,
                 "%s: merge %zu is not two tokens with one space between", path, k);
        size_t n_left = (size_t)(space - s);
        return tti_vocabulary_add_merge(v, (tti_span){s, n_left},
                                        (tti_span){space + 1, n - n_left - 1});
    }
    TT_CHECK(json_is_array(merge) && json_array_size(merge) == 2, TT_ERR_FILE,
             "%s: merge %zu is neither a string nor a pair", path, k);
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    TT_CHECK(json_is_string(left) && json_is_string(right), TT_ERR_FILE,
             "%s: merge %zu is not a pair of strings", path, k);
    return tti_vocabulary_add_merge(
        v, (tti_span){json_string_value(left), json_string_length(left)},
        (tti_span){json_string_value(right), json_string_length(right)});
}

static tt_status read_merges(const char *path, const json_t *model, tti_vocabulary *v)
{
    static const char version[] = "#version";
    const json_t *merges;
    TT_TRY(tti_tokenizer_json_array(path, model, "merges", &merges));
    size_t n = json_array_size(merges), first = 0;
    if (n > 0 && json_is_string(json_array_get(merges, 0)) &&
        strncmp(json_string_value(json_array_get(merges, 0)), version, strlen(version)) == 0) {
        first = 1;
    }
    for (size_t k = first; k < n; k++) {
        TT_TRY(read_merge(path, json_array_get(merges, k), k, v));
    }
    return TT_OK;
}

static tt_status read_model(const char *path, json_t *model, tti_vocabulary *v)
{
    TT_CHECK(json_is_object(model), TT_ERR_FILE, "%s: \"model\" is missing or not an object", path);
    const char *s;
    size_t n;
    /* Some files leave "type" out; then the merges tell. */
    TT_TRY(tti_tokenizer_json_optional(path, model, "type", &s, &n));
    TT_CHECK(!s || strcmp(s, "BPE") == 0, TT_ERR_UNSUPPORTED, "%s: unknown model \"%s\"", path, s);
    TT_CHECK(s || json_object_get(model, "merges"), TT_ERR_UNSUPPORTED,
             "%s: the model has neither \"type\" nor \"merges\"", path);
    TT_TRY(refuse_affix(path, model, "continuing_subword_prefix"));
    TT_TRY(refuse_affix(path, model, "end_of_word_suffix"));
    const json_t *dropout = json_object_get(model, "dropout");
    TT_CHECK(!dropout || json_is_null(dropout) ||
                 (json_is_number(dropout) && json_number_value(dropout) == 0),
             TT_ERR_UNSUPPORTED, "%s: the model's \"dropout\" is not supported", path);
    TT_TRY(tti_tokenizer_json_bool(path, model, "ignore_merges", false, &v->ignore_merges));
    TT_TRY(tti_tokenizer_json_bool(path, model, "byte_fallback", false, &v->byte_fallback));
    TT_TRY(tti_tokenizer_json_bool(path, model, "fuse_unk", false, &v->fuse_unknown));
    TT_TRY(read_tokens(path, model, v));
    return read_merges(path, model, v);
}

/* ---- added tokens ---- */
static tt_status read_added(const char *path, const json_t *array, tti_vocabulary *v)
{
    if (!array || json_is_null(array)) {
        return TT_OK;
    }
    TT_CHECK(json_is_array(array), TT_ERR_FILE, "%s: \"added_tokens\" is not an array", path);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *json = json_array_get(array, i);
        tti_vocabulary_added added = {0};
        TT_CHECK(json_is_object(json), TT_ERR_FILE, "%s: an added token is not an object", path);
        TT_TRY(tti_tokenizer_json_integer(path, json, "id", 0, TTI_TOKEN_ID_LIMIT - 1, &added.id));
        TT_TRY(tti_tokenizer_json_string(path, json, "content", &added.content.bytes,
                                         &added.content.n));
        TT_TRY(tti_tokenizer_json_added_flags(path, json, &added));
        TT_TRY(tti_vocabulary_add_added(v, &added));
    }
    return TT_OK;
}

/* ---- the post-processor ---- */
/* Appends the ids that a template's special token stands for. */
static tt_status append_template_token(const char *path, const json_t *specials, const json_t *item,
                                       tt_ids *ids)
{
    const char *name;
    size_t n;
    TT_CHECK(json_is_object(item), TT_ERR_FILE, "%s: a \"SpecialToken\" is not an object", path);
    TT_TRY(tti_tokenizer_json_string(path, item, "id", &name, &n));
    const json_t *special = json_object_get(specials, name);
    TT_CHECK(json_is_object(special), TT_ERR_FILE, "%s: \"special_tokens\" does not hold \"%s\"",
             path, name);
    const json_t *array;
    TT_TRY(tti_tokenizer_json_array(path, special, "ids", &array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);
        TT_CHECK(json_is_integer(value) && json_integer_value(value) >= 0 &&
                     json_integer_value(value) < TTI_TOKEN_ID_LIMIT,
                 TT_ERR_FILE, "%s: an id of the special token \"%s\" is not an id", path, name);
        int32_t id = (int32_t)json_integer_value(value);
        TT_TRY(tt_ids_append(ids, &id, 1));
    }
    return TT_OK;
}

static tt_status load_template(const char *path, const json_t *json, tt_ids *prefix, tt_ids *suffix)
{
    const json_t *single;
    TT_TRY(tti_tokenizer_json_array(path, json, "single", &single));
    const json_t *specials = json_object_get(json, "special_tokens");
    bool has_text = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        if (special) {
            TT_TRY(append_template_token(path, specials, special, has_text ? suffix : prefix));
            continue;
        }
        const json_t *sequence = json_object_get(item, "Sequence");
        TT_CHECK(json_is_object(sequence), TT_ERR_FILE,
                 "%s: an item of \"single\" is neither a token nor a sequence", path);
        const char *name;
        size_t n;
        TT_TRY(tti_tokenizer_json_string(path, sequence, "id", &name, &n));
        TT_CHECK(!has_text && strcmp(name, "A") == 0, TT_ERR_UNSUPPORTED,
                 "%s: \"single\" is not one text \"A\" among tokens", path);
        has_text = true;
    }
    TT_CHECK(has_text, TT_ERR_UNSUPPORTED, "%s: \"single\" does not hold the text", path);
    return TT_OK;
}

static tt_status load_processor(const char *path, const json_t *json, unsigned depth,
                                tt_tokenizer *t)
{
    const char *type;
    TT_TRY(tti_tokenizer_json_type(path, "post-processor", json, &type));
    if (strcmp(type, "ByteLevel") == 0) {
        return TT_OK; /* changes offsets only */
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        /* The reference library applies a second template as if to a pair of texts; nobody means
         * that. */
        TT_CHECK(t->prefix.n == 0 && t->suffix.n == 0, TT_ERR_UNSUPPORTED,
                 "%s: two TemplateProcessing post-processors", path);
        return load_template(path, json, &t->prefix, &t->suffix);
    }
    TT_CHECK(strcmp(type, "Sequence") == 0, TT_ERR_UNSUPPORTED, "%s: unknown post-processor \"%s\"",
             path, type);
    const json_t *array;
    TT_TRY(tti_tokenizer_json_sequence(path, json, "processors", depth, &array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        TT_TRY(load_processor(path, json_array_get(array, i), depth + 1, t));
    }
    return TT_OK;
}

/* A text is never begun or ended with what is no token. */
static tt_status check_template_ids(const char *path, const tt_tokenizer *t, const tt_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        TT_CHECK(tt_tokenizer_id_is_known(t, ids->id[i]), TT_ERR_FILE,
                 "%s: the post-processor adds the id %d, which no token has", path,
                 (int)ids->id[i]);
    }
    return TT_OK;
}

static tt_status read_root(const char *path, json_t *root, tti_vocabulary *v, tt_tokenizer *t)
{
    TT_TRY(tti_normalizer_load(path, json_object_get(root, "normalizer"), &t->normalizer));
    TT_TRY(tti_pretokenizer_load(path, json_object_get(root, "pre_tokenizer"), &t->pretokenizer));
    TT_TRY(tti_decoder_load(path, json_object_get(root, "decoder"), &t->decoder));
    const json_t *processor = json_object_get(root, "post_processor");
    if (processor && !json_is_null(processor)) {
        TT_TRY(load_processor(path, processor, 0, t));
    }
    TT_TRY(read_added(path, json_object_get(root, "added_tokens"), v));
    TT_TRY(read_model(path, json_object_get(root, "model"), v));
    TT_TRY(tti_tokenizer_build(v, t));
    TT_TRY(check_template_ids(path, t, &t->prefix));
    return check_template_ids(path, t, &t->suffix);
}

tt_status tti_tokenizer_from_json(const char *path, const char *text, size_t n,
                                  tt_tokenizer *tokenizer)
{
    json_t *root;
    tti_vocabulary v = {.path = path, .unknown_id = -1};
    TT_TRY(tti_tokenizer_json_parse(path, text, n, &root));
    tt_status st = read_root(path, root, &v, tokenizer);
    tti_vocabulary_fini(&v);
    json_decref(root);
    return st;
}
