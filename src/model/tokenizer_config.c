/* tokenizer_config.c - tokenizer_config.json: which tokens begin and end a text, and the chat
 * template. Of any kind of vocabulary; read after it. */
#include "tokenizer_internal.h"
#include <stdlib.h>
#include <string.h>

const char *const tti_named_tokens[TTI_NAMED_TOKENS] = {"unk_token", "sep_token", "pad_token",
                                                        "cls_token", "mask_token"};

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

static tt_status keep_template(const char *path, const char *source, size_t n, char **template_out,
                               size_t *n_out)
{
    free(*template_out);
    return tti_tokenizer_keep(path, source, n, template_out, n_out);
}

/* Named templates: "default" is meant for conversations, "tool_use" for those with tools. */
static tt_status load_named_templates(const char *path, const json_t *list, tt_tokenizer *t)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name, *source;
        size_t n;
        TT_CHECK(json_is_object(item), TT_ERR_FILE, "%s: a \"chat_template\" is not an object",
                 path);
        TT_TRY(tti_tokenizer_json_string(path, item, "name", &name, &n));
        TT_TRY(tti_tokenizer_json_string(path, item, "template", &source, &n));
        if (strcmp(name, "default") == 0) {
            TT_TRY(keep_template(path, source, n, &t->chat_template, &t->n_chat_template));
        } else if (strcmp(name, "tool_use") == 0) {
            TT_TRY(keep_template(path, source, n, &t->tool_template, &t->n_tool_template));
        }
    }
    return TT_OK;
}

static tt_status load_chat_template(const char *path, const json_t *root, tt_tokenizer *t)
{
    const json_t *value = json_object_get(root, "chat_template");
    const char *source = NULL;
    size_t n = 0;
    if (json_is_array(value)) {
        return load_named_templates(path, value, t);
    }
    TT_TRY(tti_tokenizer_json_optional(path, root, "chat_template", &source, &n));
    return source ? keep_template(path, source, n, &t->chat_template, &t->n_chat_template) : TT_OK;
}

static tt_status load_config(const char *path, const json_t *root, tt_tokenizer *t)
{
    TT_TRY(load_named_token(path, root, "bos_token", t, &t->bos_token, &t->bos_id));
    TT_TRY(load_named_token(path, root, "eos_token", t, &t->eos_token, &t->eos_id));
    for (int k = 0; k < TTI_NAMED_TOKENS; k++) {
        int32_t id;
        TT_TRY(load_named_token(path, root, tti_named_tokens[k], t, &t->named_token[k], &id));
    }
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

tt_status tti_tokenizer_read_config(const char *path, const char *text, size_t n,
                                    tt_tokenizer *tokenizer)
{
    json_t *root;
    TT_TRY(tti_tokenizer_json_parse(path, text, n, &root));
    tt_status st = load_config(path, root, tokenizer);
    json_decref(root);
    return st;
}
