/* tokenizer.c - life of a tokenizer, its getters, and the way of a text to its ids.
 *
 *   valid UTF-8 -> cut at raw added tokens -> normalise -> cut at normalised added tokens
 *   -> pre-tokenise -> BPE
 *
 * in this order, piece by piece, as the reference library does. */
#include "tokenizer_internal.h"
#include "gguf_model.h"
#include <stdlib.h>
#include <string.h>

enum { GROW_START_BYTES = 64 };

tt_status tti_tokenizer_grow(void **array, size_t *capacity, size_t need, size_t item_bytes)
{
    if (need <= *capacity && *array) {
        return TT_OK;
    }
    TT_CHECK(need <= SIZE_MAX / 2 / item_bytes, TT_ERR_NOMEM,
             "out of memory: %zu items of %zu bytes", need, item_bytes);
    size_t wanted =
        *capacity < GROW_START_BYTES / item_bytes ? GROW_START_BYTES / item_bytes : *capacity;
    wanted = wanted > 0 ? wanted : 1;
    while (wanted < need) {
        wanted *= 2;
    }
    void *grown = realloc(*array, wanted * item_bytes);
    TT_CHECK(grown, TT_ERR_NOMEM, "out of memory: %zu bytes", wanted * item_bytes);
    *array = grown;
    *capacity = wanted;
    return TT_OK;
}

char *tti_tokenizer_copy(const char *bytes, size_t n)
{
    char *copy = malloc(n + 1);
    if (copy) {
        memcpy(copy, bytes, n);
        copy[n] = 0;
    }
    return copy;
}

tt_status tti_tokenizer_keep(const char *path, const char *bytes, size_t n, char **copy_out,
                             size_t *n_out)
{
    *copy_out = tti_tokenizer_copy(bytes, n);
    TT_CHECK(*copy_out, TT_ERR_NOMEM, "%s: out of memory for the tokenizer", path);
    *n_out = n;
    return TT_OK;
}

tt_status tt_ids_append(tt_ids *ids, const int32_t *more, size_t n)
{
    void *array = ids->id;
    TT_CHECK(n <= SIZE_MAX - ids->n, TT_ERR_NOMEM, "out of memory: too many ids");
    tt_status st = tti_tokenizer_grow(&array, &ids->capacity, ids->n + n, sizeof(*ids->id));
    ids->id = array;
    TT_TRY(st);
    if (n > 0) {
        memcpy(ids->id + ids->n, more, n * sizeof(*ids->id));
        ids->n += n;
    }
    return TT_OK;
}

void tt_ids_fini(tt_ids *ids)
{
    free(ids->id);
    *ids = (tt_ids){0};
}

void tti_growth_start(tti_growth *growth, size_t n)
{
    *growth = (tti_growth){.allowed = TTI_GROWTH_SLACK + TTI_GROWTH * n};
}

tt_status tti_growth_use(tti_growth *growth, size_t step, size_t n)
{
    TT_CHECK(n <= growth->allowed - growth->used[step], TT_ERR_REQUEST,
             "step %zu of the tokenizer makes a text more than %d times as long", step, TTI_GROWTH);
    growth->used[step] += n;
    return TT_OK;
}

tt_status tt_text_append(tt_text *text, const char *bytes, size_t n)
{
    void *array = text->bytes;
    TT_CHECK(n < SIZE_MAX - text->n, TT_ERR_NOMEM, "out of memory: the text is too long");
    tt_status st = tti_tokenizer_grow(&array, &text->capacity, text->n + n + 1, 1);
    text->bytes = array;
    TT_TRY(st);
    if (n > 0) {
        memcpy(text->bytes + text->n, bytes, n);
        text->n += n;
    }
    text->bytes[text->n] = 0;
    return TT_OK;
}

void tt_text_fini(tt_text *text)
{
    free(text->bytes);
    *text = (tt_text){0};
}

tt_status tti_tokenizer_new(tt_tokenizer **tokenizer_out)
{
    tt_tokenizer *tokenizer = calloc(1, sizeof(*tokenizer));
    TT_CHECK(tokenizer, TT_ERR_NOMEM, "out of memory for a tokenizer");
    tokenizer->bos_id = -1;
    tokenizer->eos_id = -1;
    tokenizer->bpe.unknown_id = -1;
    tti_trie_init(&tokenizer->added.raw);
    tti_trie_init(&tokenizer->added.normalized);
    tti_trie_init(&tokenizer->added.marked);
    *tokenizer_out = tokenizer;
    return TT_OK;
}

/* The GGUF file that has the tokenizer, which the caller frees; NULL: none has. */
static tt_status find_gguf(const char *path, char **gguf_out)
{
    TT_TRY(tti_gguf_locate(path, gguf_out));
    bool is_there = true;
    if (*gguf_out || !tti_file_exists(path, TTI_GGUF_TOKENIZER)) {
        return TT_OK;
    }
    TT_TRY(tti_tokenizer_is_there(path, &is_there));
    if (is_there) { /* put there by somebody who prefers it */
        return TT_OK;
    }
    size_t n = strlen(path);
    *gguf_out = malloc(n + 1 + sizeof(TTI_GGUF_TOKENIZER));
    TT_CHECK(*gguf_out, TT_ERR_NOMEM, "out of memory for the path of a tokenizer");
    memcpy(*gguf_out, path, n);
    (*gguf_out)[n] = '/';
    strcpy(*gguf_out + n + 1, TTI_GGUF_TOKENIZER);
    return TT_OK;
}

tt_status tt_tokenizer_create(const char *path, tt_tokenizer **tokenizer_out)
{
    TT_CHECK(path && tokenizer_out, TT_ERR_ARG, "tt_tokenizer_create: a pointer is NULL");
    tt_tokenizer *tokenizer;
    char *gguf;
    TT_TRY(find_gguf(path, &gguf));
    if (gguf) {
        tt_status read = tti_gguf_tokenizer(gguf, tokenizer_out);
        free(gguf);
        return read;
    }
    TT_TRY(tti_tokenizer_new(&tokenizer));
    tt_status st = tti_tokenizer_load(path, tokenizer);
    if (st != TT_OK) {
        tt_tokenizer_destroy(&tokenizer);
        return st;
    }
    *tokenizer_out = tokenizer;
    return TT_OK;
}

tt_status tt_tokenizer_exists(const char *path, bool *exists_out)
{
    TT_CHECK(path && exists_out, TT_ERR_ARG, "tt_tokenizer_exists: a pointer is NULL");
    char *gguf;
    TT_TRY(find_gguf(path, &gguf));
    if (!gguf) {
        return tti_tokenizer_is_there(path, exists_out);
    }
    tt_status st = tti_gguf_has_tokenizer(gguf, exists_out);
    free(gguf);
    return st;
}

void tt_tokenizer_destroy(tt_tokenizer **tokenizer)
{
    tt_tokenizer *t = tokenizer ? *tokenizer : NULL;
    if (!t) {
        return;
    }
    tti_normalizer_fini(&t->normalizer);
    tti_pretokenizer_fini(&t->pretokenizer);
    tti_bpe_fini(&t->bpe);
    tti_added_fini(&t->added);
    tti_decoder_fini(&t->decoder);
    tt_ids_fini(&t->prefix);
    tt_ids_fini(&t->suffix);
    tt_ids_fini(&t->stop);
    free(t->bos_token);
    free(t->eos_token);
    for (int k = 0; k < TTI_NAMED_TOKENS; k++) {
        free(t->named_token[k]);
    }
    free(t->chat_template);
    free(t->tool_template);
    free(t);
    *tokenizer = NULL;
}

/* ---- encoding ---- */
static void encoder_fini(tti_encoder *encoder)
{
    tti_regex_work_fini(&encoder->regex);
    tti_bpe_work_fini(&encoder->bpe);
    tt_text_fini(&encoder->normal[0]);
    tt_text_fini(&encoder->normal[1]);
    for (size_t k = 0; k < TTI_STEPS_MAX; k++) {
        tt_text_fini(&encoder->step[k]);
    }
}

typedef tt_status encode_fn(tti_encoder *encoder, const char *text, size_t n, bool at_start);

/* The added tokens that `trie` finds become ids; what is between them goes to encode_gap. */
static tt_status encode_around(tti_encoder *encoder, const tti_trie *trie, const char *text,
                               size_t n, bool at_start, encode_fn *encode_gap)
{
    tti_added_walk walk = {.added = &encoder->tokenizer->added,
                           .trie = trie,
                           .text = text,
                           .n = n,
                           .skip_special = encoder->literal};
    const tti_added_token *token;
    size_t start, end;
    while (tti_added_next(&walk, &token, &start, &end)) {
        if (token) {
            TT_TRY(tt_ids_append(encoder->ids, &token->id, 1));
        } else {
            TT_TRY(encode_gap(encoder, text + start, end - start, at_start && start == 0));
        }
    }
    return TT_OK;
}

/* Text between raw added tokens. */
static tt_status encode_raw_gap(tti_encoder *encoder, const char *text, size_t n, bool at_start)
{
    const tt_tokenizer *t = encoder->tokenizer;
    TT_TRY(tti_normalizer_exec(&t->normalizer, &encoder->regex, encoder->normal, &text, &n));
    return encode_around(encoder, &t->added.normalized, text, n, at_start, tti_pretokenize);
}

/* Valid UTF-8. */
static tt_status encode_text(tti_encoder *encoder, const char *text, size_t n, bool at_start)
{
    return encode_around(encoder, &encoder->tokenizer->added.raw, text, n, at_start,
                         encode_raw_gap);
}

static tt_status encode_any(tti_encoder *encoder, const char *text, size_t n)
{
    if (tti_utf8_valid_prefix(text, n) == n) {
        return encode_text(encoder, text, n, true);
    }
    tt_text clean = {0};
    tt_status st = tti_utf8_append_lossy(&clean, text, n);
    if (st == TT_OK) {
        st = encode_text(encoder, clean.bytes, clean.n, true);
    }
    tt_text_fini(&clean);
    return st;
}

/* Does the text itself begin with the token that the prefix begins with? Then it is not doubled. */
static bool begins_with_prefix(const tt_tokenizer *t, const tt_ids *ids, size_t n_before)
{
    return t->prefix.n > 0 && ids->n > n_before && ids->id[n_before] == t->prefix.id[0];
}

tt_status tt_tokenizer_encode(const tt_tokenizer *tokenizer, const char *text, size_t n,
                              unsigned flags, tt_ids *ids)
{
    TT_CHECK(tokenizer && ids && (text || n == 0), TT_ERR_ARG,
             "tt_tokenizer_encode: a pointer is NULL");
    TT_CHECK((flags & ~(unsigned)(TT_ENCODE_SPECIAL | TT_ENCODE_LITERAL)) == 0, TT_ERR_ARG,
             "tt_tokenizer_encode: unknown flags 0x%x", flags);
    size_t n_before = ids->n;
    tti_encoder encoder = {
        .tokenizer = tokenizer, .ids = ids, .literal = (flags & TT_ENCODE_LITERAL) != 0};
    bool special = (flags & TT_ENCODE_SPECIAL) != 0;
    tt_status st = TT_OK;
    if (special) {
        st = tt_ids_append(ids, tokenizer->prefix.id, tokenizer->prefix.n);
    }
    size_t n_text = ids->n;
    if (st == TT_OK) {
        st = encode_any(&encoder, text ? text : "", n);
    }
    if (st == TT_OK && special && begins_with_prefix(tokenizer, ids, n_text)) {
        memmove(ids->id + n_text, ids->id + n_text + 1, (ids->n - n_text - 1) * sizeof(*ids->id));
        ids->n--;
    }
    if (st == TT_OK && special) {
        st = tt_ids_append(ids, tokenizer->suffix.id, tokenizer->suffix.n);
    }
    encoder_fini(&encoder);
    if (st != TT_OK) {
        ids->n = n_before;
    }
    return st;
}

tt_status tti_tokenizer_encode_marked(const tt_tokenizer *tokenizer, const char *text,
                                      const unsigned char *literal, size_t n, tt_ids *ids)
{
    size_t n_before = ids->n;
    tti_encoder encoder = {.tokenizer = tokenizer, .ids = ids, .literal = true};
    tti_added_walk walk = {.added = &tokenizer->added,
                           .trie = &tokenizer->added.marked,
                           .text = text,
                           .n = n,
                           .literal = literal};
    const tti_added_token *token;
    size_t start, end;
    tt_status st = TT_OK;
    while (st == TT_OK && tti_added_next(&walk, &token, &start, &end)) {
        if (token) {
            st = tt_ids_append(ids, &token->id, 1);
        } else {
            /* The users' words and the template's around them are joined here, so they are split
             * as ordinary text is. */
            st = encode_text(&encoder, text + start, end - start, start == 0);
        }
    }
    encoder_fini(&encoder);
    if (st != TT_OK) {
        ids->n = n_before;
    }
    return st;
}

/* ---- getters ---- */
static const tti_added_token *added_of(const tt_tokenizer *tokenizer, int32_t id)
{
    const tti_added *added = &tokenizer->added;
    if (id < 0 || id >= added->n_by_id || added->by_id[id] < 0) {
        return NULL;
    }
    return &added->token[added->by_id[id]];
}

const char *tt_tokenizer_id_bytes(const tt_tokenizer *tokenizer, int32_t id, size_t *n_out)
{
    const tti_added_token *added = added_of(tokenizer, id);
    if (added) {
        *n_out = added->n;
        return added->content;
    }
    if (id < 0 || id >= tokenizer->bpe.n_ids || !tokenizer->bpe.token[id].known) {
        *n_out = 0;
        return NULL;
    }
    *n_out = tokenizer->bpe.token[id].n;
    return tokenizer->bpe.bytes.bytes + tokenizer->bpe.token[id].offset;
}

int32_t tt_tokenizer_special_id(const tt_tokenizer *tokenizer, const char *content)
{
    size_t n = strlen(content);
    for (size_t k = 0; k < tokenizer->added.n; k++) {
        const tti_added_token *token = &tokenizer->added.token[k];
        if (token->n == n && memcmp(token->content, content, n) == 0) {
            return token->id;
        }
    }
    return -1;
}

bool tt_tokenizer_id_is_special(const tt_tokenizer *tokenizer, int32_t id)
{
    const tti_added_token *added = added_of(tokenizer, id);
    return added && added->special;
}

int32_t tt_tokenizer_n_ids(const tt_tokenizer *tokenizer)
{
    return tokenizer->bpe.n_ids > tokenizer->added.n_by_id ? tokenizer->bpe.n_ids
                                                           : tokenizer->added.n_by_id;
}

bool tt_tokenizer_id_is_known(const tt_tokenizer *tokenizer, int32_t id)
{
    size_t n;
    return tt_tokenizer_id_bytes(tokenizer, id, &n) != NULL;
}

int32_t tt_tokenizer_bos_id(const tt_tokenizer *tokenizer)
{
    return tokenizer->bos_id;
}

int32_t tt_tokenizer_eos_id(const tt_tokenizer *tokenizer)
{
    return tokenizer->eos_id;
}
