/* convert_gguf.c - what a packed checkpoint needs besides its weights, where they came from a GGUF
 * file: made from the file's metadata, since there are no files that could be copied.
 *
 *   config.json             what gguf_config.c makes of the metadata, and all ids that end a text
 *   generation_config.json  how the file's author samples, if it says so
 *   tokenizer.gguf          a GGUF file without tensors: the keys general.* and tokenizer.*, bit for bit
 * A tokenizer.json is not made: its components cannot say all that a splitter's name and
 * SentencePiece's scores say, and what reads the keys is there. */
#include "convert_gguf.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 4, GGUF_VERSION = 3 };

void tti_made_files_fini(tti_made_file file[TTI_MADE_FILES])
{
    for (int i = 0; i < TTI_MADE_FILES; i++) {
        free(file[i].bytes);
        file[i] = (tti_made_file){0};
    }
}

static tt_status no_memory(const char *name)
{
    return TT_FAIL(TT_ERR_NOMEM, "no memory for %s", name);
}

/* Takes over json, NULL says that memory is short. */
static tt_status make_json(const char *name, json_t *json, tti_made_file *file)
{
    char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    if (!text) {
        return no_memory(name);
    }
    *file = (tti_made_file){name, text, strlen(text)};
    return TT_OK;
}

/* ---- configuration ---- */

static tt_status make_config(const tti_gguf_model *gguf, const tt_model *model, tti_made_file *file)
{
    json_t *config, *ids = json_array();
    tti_gguf_facts facts; /* the description of the panels has them */
    tt_status st = ids ? tti_gguf_config(gguf, &config, &facts) : no_memory("config.json");
    if (st != TT_OK) {
        json_decref(ids);
        return st;
    }
    int failed = 0;
    for (size_t i = 0; i < model->n_end_ids; i++) {
        failed |= json_array_append_new(ids, json_integer(model->end_ids[i]));
    }
    failed |= json_object_set_new(config, "eos_token_id", ids);
    if (failed) {
        json_decref(config);
        config = NULL;
    }
    return make_json("config.json", config, file);
}

static tt_status make_generation(const tt_model *model, tti_made_file *file)
{
    const tt_generation *g = &model->generation;
    const struct {
        const char *key;
        double value;
    } rows[] = {{"temperature", g->temperature}, {"top_p", g->top_p}, {"min_p", g->min_p}};
    json_t *root = json_object();
    int failed = root == NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        failed |= !isnan(rows[i].value) &&
                  json_object_set_new(root, rows[i].key, json_real(rows[i].value)) != 0;
    }
    failed |= g->top_k >= 0 && json_object_set_new(root, "top_k", json_integer(g->top_k)) != 0;
    failed |= g->do_sample >= 0 &&
              json_object_set_new(root, "do_sample", json_boolean(g->do_sample)) != 0;
    if (!failed && json_object_size(root) == 0) {
        json_decref(root);
        return TT_OK;
    }
    if (failed) {
        json_decref(root);
        root = NULL;
    }
    return make_json("generation_config.json", root, file);
}

/* ---- tokenizer ---- */

static bool begins_with(tti_gguf_string name, const char *start)
{
    return name.n >= strlen(start) && memcmp(name.bytes, start, strlen(start)) == 0;
}

static bool is_kept(const tti_gguf_key *key)
{
    return begins_with(key->name, "general.") || begins_with(key->name, "tokenizer.");
}

static unsigned char *put_le(unsigned char *at, uint64_t value, int n)
{
    for (int i = 0; i < n; i++) {
        *at++ = (unsigned char)(value >> (8 * i) & 0xff);
    }
    return at;
}

static unsigned char *put_bytes(unsigned char *at, const void *bytes, uint64_t n)
{
    memcpy(at, bytes, (size_t)n);
    return at + n;
}

/* A key as it lay in the file. */
static unsigned char *put_key(unsigned char *at, const tti_gguf_key *key)
{
    at = put_le(at, key->name.n, 8);
    at = put_bytes(at, key->name.bytes, key->name.n);
    at = put_le(at, key->is_array ? TTI_GGUF_ARRAY : key->type, 4);
    if (key->is_array) {
        at = put_le(at, key->type, 4);
        at = put_le(at, key->n, 8);
    }
    return put_bytes(at, key->bytes, key->n_bytes);
}

static uint64_t key_bytes(const tti_gguf_key *key)
{
    return 8 + key->name.n + 4 + (key->is_array ? 12 : 0) + key->n_bytes;
}

static tt_status make_tokenizer(const tti_gguf *gguf, tti_made_file *file)
{
    uint64_t n_keys = 0, bytes = MAGIC_BYTES + 4 + 8 + 8;
    if (!tti_gguf_find(gguf, "tokenizer.ggml.tokens")) {
        return TT_OK;
    }
    for (size_t i = 0; i < gguf->n_keys; i++) {
        n_keys += is_kept(&gguf->key[i]);
        bytes += is_kept(&gguf->key[i]) ? key_bytes(&gguf->key[i]) : 0;
    }
    unsigned char *all = malloc((size_t)bytes), *at = all;
    if (!all) {
        return no_memory(TTI_GGUF_TOKENIZER);
    }
    at = put_bytes(at, "GGUF", MAGIC_BYTES);
    at = put_le(at, GGUF_VERSION, 4);
    at = put_le(at, 0, 8); /* tensors */
    at = put_le(at, n_keys, 8);
    for (size_t i = 0; i < gguf->n_keys; i++) {
        at = is_kept(&gguf->key[i]) ? put_key(at, &gguf->key[i]) : at;
    }
    TT_ASSERT((uint64_t)(at - all) == bytes);
    *file = (tti_made_file){TTI_GGUF_TOKENIZER, all, (size_t)bytes};
    return TT_OK;
}

tt_status tti_gguf_make_files(const char *first, const tt_model *model,
                              tti_made_file file_out[TTI_MADE_FILES])
{
    tti_gguf_model gguf;
    tti_made_file file[TTI_MADE_FILES] = {{0}};
    TT_TRY(tti_gguf_model_open(first, &gguf));
    tt_status st = make_config(&gguf, model, &file[0]);
    if (st == TT_OK) {
        st = make_generation(model, &file[1]);
    }
    if (st == TT_OK) {
        st = make_tokenizer(&gguf.header.gguf, &file[2]);
    }
    tti_gguf_model_fini(&gguf);
    if (st != TT_OK) {
        tti_made_files_fini(file);
        return st;
    }
    memcpy(file_out, file, sizeof(file));
    return TT_OK;
}
