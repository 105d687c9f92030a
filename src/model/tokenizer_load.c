/* tokenizer_load.c - reads a tokenizer's files: tokenizer.json (everything),
 * tokenizer_config.json (which tokens begin and end a text, the chat template) and
 * chat_template.jinja.
 *
 * Files are hostile: each value's type is checked where it is read, and what we do not know is
 * refused by its name, since a skipped component would give wrong ids without a word. */
#include "tokenizer_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

/* ---- the BPE model ---- */
static tt_status refuse_affix(const char *path, const json_t *model, const char *key)
{
    const char *affix;
    size_t n;
    TT_TRY(tti_tokenizer_json_optional(path, model, key, &affix, &n));
    TT_CHECK(n == 0, TT_ERR_UNSUPPORTED, "%s: the model's \"%s\" is not supported", path, key);
    return TT_OK;
}

static tt_status load_vocabulary(const char *path, json_t *model, tti_bpe *bpe)
{
    json_t *vocabulary = json_object_get(model, "vocab");
    TT_CHECK(json_is_object(vocabulary), TT_ERR_FILE,
             "%s: the model's \"vocab\" is missing or not an object", path);
    const char *key;
    json_t *value;
    json_object_foreach(vocabulary, key, value)
    {
        TT_CHECK(json_is_integer(value), TT_ERR_FILE,
                 "%s: the id of the token \"%.64s\" is not an integer", path, key);
        TT_TRY(tti_bpe_add_token(path, bpe, key, strlen(key), (int64_t)json_integer_value(value)));
    }
    return tti_bpe_index(path, bpe);
}

static tt_status load_merge(const char *path, const json_t *merge, size_t k, tti_bpe *bpe)
{
    if (json_is_string(merge)) {
        const char *s = json_string_value(merge);
        size_t n = json_string_length(merge);
        const char *space = memchr(s, ' ', n);
        TT_CHECK(space && !memchr(space + 1, ' ', n - (size_t)(space - s) - 1), TT_ERR_FILE,
                 "%s: merge %zu is not two tokens with one space between", path, k);
        size_t n_left = (size_t)(space - s);
        return tti_bpe_add_merge(path, bpe, s, n_left, space + 1, n - n_left - 1);
    }
    TT_CHECK(json_is_array(merge) && json_array_size(merge) == 2, TT_ERR_FILE,
             "%s: merge %zu is neither a string nor a pair", path, k);
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    TT_CHECK(json_is_string(left) && json_is_string(right), TT_ERR_FILE,
             "%s: merge %zu is not a pair of strings", path, k);
    return tti_bpe_add_merge(path, bpe, json_string_value(left), json_string_length(left),
                             json_string_value(right), json_string_length(right));
}

static tt_status load_merges(const char *path, const json_t *model, tti_bpe *bpe)
{
    const json_t *merges;
    TT_TRY(tti_tokenizer_json_array(path, model, "merges", &merges));
    size_t n = json_array_size(merges), first = 0;
    if (n > 0 && json_is_string(json_array_get(merges, 0)) &&
        strncmp(json_string_value(json_array_get(merges, 0)), "#version", strlen("#version")) ==
            0) {
        first = 1;
    }
    TT_TRY(tti_bpe_reserve_merges(bpe, n));
    for (size_t k = first; k < n; k++) {
        TT_TRY(load_merge(path, json_array_get(merges, k), k, bpe));
    }
    return TT_OK;
}

static tt_status load_model(const char *path, json_t *model, tti_bpe *bpe)
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
    TT_TRY(tti_tokenizer_json_bool(path, model, "ignore_merges", false, &bpe->ignore_merges));
    TT_TRY(tti_tokenizer_json_bool(path, model, "byte_fallback", false, &bpe->byte_fallback));
    TT_TRY(tti_tokenizer_json_bool(path, model, "fuse_unk", false, &bpe->fuse_unknown));
    TT_TRY(load_vocabulary(path, model, bpe));
    TT_TRY(load_merges(path, model, bpe));
    TT_TRY(tti_bpe_finish(bpe));
    bpe->unknown_id = -1;
    TT_TRY(tti_tokenizer_json_optional(path, model, "unk_token", &s, &n));
    if (s) {
        bpe->unknown_id = tti_bpe_find(bpe, s, n);
        TT_CHECK(bpe->unknown_id >= 0, TT_ERR_FILE,
                 "%s: the \"unk_token\" \"%s\" is not in the vocabulary", path, s);
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
    TT_CHECK(depth < TTI_STEPS_MAX, TT_ERR_UNSUPPORTED, "%s: post-processors are nested too deep",
             path);
    const json_t *array;
    TT_TRY(tti_tokenizer_json_array(path, json, "processors", &array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        TT_TRY(load_processor(path, json_array_get(array, i), depth + 1, t));
    }
    return TT_OK;
}

static tt_status load_tokenizer_json(const char *path, json_t *root, tt_tokenizer *t)
{
    TT_TRY(tti_normalizer_load(path, json_object_get(root, "normalizer"), &t->normalizer));
    TT_TRY(tti_pretokenizer_load(path, json_object_get(root, "pre_tokenizer"), &t->pretokenizer));
    TT_TRY(tti_decoder_load(path, json_object_get(root, "decoder"), &t->decoder));
    const json_t *processor = json_object_get(root, "post_processor");
    if (processor && !json_is_null(processor)) {
        TT_TRY(load_processor(path, processor, 0, t));
    }
    TT_TRY(tti_added_load(path, json_object_get(root, "added_tokens"), &t->normalizer, &t->added));
    return load_model(path, json_object_get(root, "model"), &t->bpe);
}

/* ---- tokenizer_config.json and the chat template ---- */
static int32_t id_of_text(const tt_tokenizer *t, const char *text)
{
    int32_t id = tt_tokenizer_special_id(t, text);
    return id >= 0 ? id : tti_bpe_find(&t->bpe, text, strlen(text));
}

/* A token given as a string, or as an object with "content". A name that the vocabulary does not
 * hold has id -1. */
static tt_status load_named_token(const char *path, const json_t *root, const char *key,
                                  const tt_tokenizer *t, char **token_out, int32_t *id_out)
{
    const json_t *value = json_object_get(root, key);
    const char *s;
    size_t n;
    *id_out = -1;
    if (json_is_object(value)) {
        TT_TRY(tti_tokenizer_json_string(path, value, "content", &s, &n));
    } else {
        TT_TRY(tti_tokenizer_json_optional(path, root, key, &s, &n));
    }
    if (!s) {
        return TT_OK;
    }
    *token_out = tti_tokenizer_copy(s, n);
    TT_CHECK(*token_out, TT_ERR_NOMEM, "%s: out of memory for \"%s\"", path, key);
    *id_out = id_of_text(t, *token_out);
    return TT_OK;
}

static tt_status load_chat_template(const char *path, const json_t *root, tt_tokenizer *t)
{
    const json_t *value = json_object_get(root, "chat_template");
    const char *source = NULL;
    size_t n = 0;
    if (json_is_array(value)) {
        /* Named templates; the one called "default" is meant for conversations. */
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *item = json_array_get(value, i);
            const char *name;
            TT_CHECK(json_is_object(item), TT_ERR_FILE, "%s: a \"chat_template\" is not an object",
                     path);
            TT_TRY(tti_tokenizer_json_string(path, item, "name", &name, &n));
            if (strcmp(name, "default") == 0) {
                TT_TRY(tti_tokenizer_json_string(path, item, "template", &source, &n));
                break;
            }
        }
    } else {
        TT_TRY(tti_tokenizer_json_optional(path, root, "chat_template", &source, &n));
    }
    if (!source) {
        return TT_OK;
    }
    t->chat_template = tti_tokenizer_copy(source, n);
    TT_CHECK(t->chat_template, TT_ERR_NOMEM, "%s: out of memory for the chat template", path);
    t->n_chat_template = n;
    return TT_OK;
}

static tt_status load_config(const char *path, const json_t *root, tt_tokenizer *t)
{
    TT_TRY(load_named_token(path, root, "bos_token", t, &t->bos_token, &t->bos_id));
    TT_TRY(load_named_token(path, root, "eos_token", t, &t->eos_token, &t->eos_id));
    bool add_bos, add_eos;
    TT_TRY(tti_tokenizer_json_bool(path, root, "add_bos_token", false, &add_bos));
    TT_TRY(tti_tokenizer_json_bool(path, root, "add_eos_token", false, &add_eos));
    if (t->prefix.n == 0 && t->suffix.n == 0) {
        if (add_bos) {
            TT_CHECK(t->bos_id >= 0, TT_ERR_FILE,
                     "%s: \"add_bos_token\" is true, but \"bos_token\" names no token", path);
            TT_TRY(tt_ids_append(&t->prefix, &t->bos_id, 1));
        }
        if (add_eos) {
            TT_CHECK(t->eos_id >= 0, TT_ERR_FILE,
                     "%s: \"add_eos_token\" is true, but \"eos_token\" names no token", path);
            TT_TRY(tt_ids_append(&t->suffix, &t->eos_id, 1));
        }
    }
    for (size_t i = 0; i < t->prefix.n; i++) {
        t->wants_bos = t->wants_bos || (t->bos_id >= 0 && t->prefix.id[i] == t->bos_id);
    }
    return load_chat_template(path, root, t);
}

static tt_status load_chat_file(const char *path, tt_tokenizer *t)
{
    bool absent;
    char *text;
    size_t n;
    TT_TRY(tti_tokenizer_json_file(path, &absent, &text, &n));
    if (!absent) {
        free(t->chat_template);
        t->chat_template = text;
        t->n_chat_template = n;
    }
    return TT_OK;
}

/* What a file's reader does with its outermost object. */
typedef tt_status read_root(const char *path, json_t *root, tt_tokenizer *t);

static tt_status read_config(const char *path, json_t *root, tt_tokenizer *t)
{
    return load_config(path, root, t);
}

static tt_status load_file(const char *path, bool needed, read_root *read, tt_tokenizer *t)
{
    bool absent;
    char *text;
    size_t n;
    json_t *root;
    TT_TRY(tti_tokenizer_json_file(path, &absent, &text, &n));
    if (absent) {
        TT_CHECK(!needed, TT_ERR_FILE, "%s does not exist", path);
        return TT_OK;
    }
    tt_status st = tti_tokenizer_json_parse(path, text, n, &root);
    free(text);
    TT_TRY(st);
    st = read(path, root, t);
    json_decref(root);
    return st;
}

static tt_status join(const char *folder, size_t n_folder, const char *name, char path[PATH_BYTES])
{
    int n = snprintf(path, PATH_BYTES, "%.*s%s", (int)n_folder, folder, name);
    TT_CHECK(n >= 0 && n < PATH_BYTES, TT_ERR_FILE, "the path %.64s... is too long", folder);
    return TT_OK;
}

tt_status tti_tokenizer_load(const char *path, tt_tokenizer *tokenizer)
{
    char file[PATH_BYTES], folder[PATH_BYTES];
    struct stat about;
    tokenizer->bos_id = -1;
    tokenizer->eos_id = -1;
    tokenizer->bpe.unknown_id = -1;
    TT_CHECK(strlen(path) < PATH_BYTES, TT_ERR_FILE, "the path %.64s... is too long", path);
    TT_CHECK(stat(path, &about) == 0, TT_ERR_FILE, "%s does not exist", path);
    if (S_ISDIR(about.st_mode)) {
        TT_TRY(join(path, strlen(path), "/", folder));
        TT_TRY(join(folder, strlen(folder), "tokenizer.json", file));
    } else {
        const char *slash = strrchr(path, '/');
        TT_TRY(join(path, slash ? (size_t)(slash - path) + 1 : 0, "", folder));
        TT_TRY(join(path, strlen(path), "", file));
    }
    TT_TRY(load_file(file, true, load_tokenizer_json, tokenizer));
    TT_TRY(join(folder, strlen(folder), "tokenizer_config.json", file));
    TT_TRY(load_file(file, false, read_config, tokenizer));
    TT_TRY(join(folder, strlen(folder), "chat_template.jinja", file));
    return load_chat_file(file, tokenizer);
}
