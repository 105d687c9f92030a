/* tokenizer_gguf.c - the tokenizer of a GGUF file, from its metadata (tokenizer_gguf.h).
 *
 * Two kinds. "gpt2" is the byte-level BPE of a tokenizer.json, with the components left out and
 * named by tokenizer.ggml.pre. "llama" is SentencePiece's BPE: the pair merges first whose
 * concatenation has the highest score; what no token covers is spelled in byte tokens; spaces
 * are U+2581. Control tokens take no part in merges (SentencePiece keeps them apart too), so that
 * no text that is not looked through for them can make one.
 *
 * Strings are hostile: UTF-8 is checked, ids and counts come from the arrays' lengths. */
#include "tokenizer_gguf.h"
#include "tokenizer_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define META_SPACE "\xe2\x96\x81" /* U+2581 */
#define FILLER "[PAD"             /* converters' names of ids that pad the vocabulary */

static bool is_text(tti_gguf_string s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.bytes, text, s.n) == 0;
}

static int32_t type_of(const tti_gguf_vocabulary *g, size_t id)
{
    return g->type ? g->type[id] : TTI_GGUF_NORMAL;
}

static bool is_special(int32_t type)
{
    return type == TTI_GGUF_CONTROL || type == TTI_GGUF_UNKNOWN;
}

/* -1 if no token has the id. */
static int64_t checked_id(const tti_gguf_vocabulary *g, int64_t id)
{
    return id >= 0 && (uint64_t)id < g->n_tokens && g->token[id].n > 0 ? id : -1;
}

/* ---- tokens ---- */
/* Phi-3's files cut spaces behind special tokens, which the keys cannot say. */
static bool cuts_spaces_behind(const tti_gguf_vocabulary *g, tti_gguf_string token)
{
    static const char *const exceptions[] = {"<unk>", "<s>", "<|endoftext|>"};
    if (!is_text(g->architecture, "phi3") && !is_text(g->architecture, "phimoe")) {
        return false;
    }
    for (size_t k = 0; k < sizeof(exceptions) / sizeof(exceptions[0]); k++) {
        if (is_text(token, exceptions[k])) {
            return false;
        }
    }
    return true;
}

static tt_status add_added(const tti_gguf_vocabulary *g, size_t id, tti_vocabulary *v)
{
    tti_gguf_string token = g->token[id];
    tti_vocabulary_added added = {.content = {token.bytes, token.n},
                                  .id = (int64_t)id,
                                  .special = is_special(type_of(g, id)),
                                  .rstrip = cuts_spaces_behind(g, token)};
    return tti_vocabulary_add_added(v, &added);
}

static bool is_filler(tti_gguf_string token)
{
    return token.n >= strlen(FILLER) && memcmp(token.bytes, FILLER, strlen(FILLER)) == 0;
}

/* rank[n_tokens] by id; NULL: none. */
static tt_status add_tokens(const tti_gguf_vocabulary *g, const uint32_t *rank, tti_vocabulary *v)
{
    bool is_llama = is_text(g->model, "llama");
    for (size_t id = 0; id < g->n_tokens; id++) {
        tti_gguf_string token = g->token[id];
        int32_t type = type_of(g, id);
        TT_CHECK(tti_utf8_valid_prefix(token.bytes ? token.bytes : "", token.n) == token.n,
                 TT_ERR_FILE, "%s: token %zu of tokenizer.ggml.tokens is not UTF-8", g->path, id);
        /* Ids without a text exist for the matrix's sake only. */
        if (token.n == 0 || (type == TTI_GGUF_UNUSED && (!is_llama || is_filler(token)))) {
            continue;
        }
        if (is_special(type) || type == TTI_GGUF_USER_DEFINED) {
            TT_TRY(add_added(g, id, v));
        }
        if (!is_special(type)) {
            uint32_t own = rank && type != TTI_GGUF_BYTE ? rank[id] : TTI_NO_RANK;
            TT_TRY(tti_vocabulary_add_token(v, token.bytes, token.n, (int64_t)id, own));
        }
    }
    return TT_OK;
}

/* ---- gpt2 ---- */
static tt_status add_merges(const tti_gguf_vocabulary *g, tti_vocabulary *v)
{
    for (size_t k = 0; k < g->n_merges; k++) {
        const char *s = g->merge[k].bytes;
        size_t n = g->merge[k].n;
        /* A token is never empty, so a space at the start belongs to it. */
        const char *space = n > 1 ? memchr(s + 1, ' ', n - 1) : NULL;
        TT_CHECK(space, TT_ERR_FILE,
                 "%s: merge %zu of tokenizer.ggml.merges is not two tokens with a space between",
                 g->path, k);
        size_t n_left = (size_t)(space - s);
        TT_TRY(tti_vocabulary_add_merge(v, (tti_span){s, n_left},
                                        (tti_span){space + 1, n - n_left - 1}));
    }
    return TT_OK;
}

static tt_status describe_gpt2(const tti_gguf_vocabulary *g, tti_vocabulary *v, tt_tokenizer *t,
                               bool *add_bos)
{
    enum { SHOWN_BYTES = 64 };
    TT_CHECK(g->pre.n > 0, TT_ERR_UNSUPPORTED,
             "%s: tokenizer.ggml.pre is missing, so how text is split is unknown", g->path);
    const tti_splitter *splitter = tti_splitter_find(g->pre.bytes, g->pre.n);
    TT_CHECK(splitter, TT_ERR_UNSUPPORTED, "%s: unknown tokenizer.ggml.pre \"%.*s\"", g->path,
             (int)(g->pre.n < SHOWN_BYTES ? g->pre.n : SHOWN_BYTES), g->pre.bytes);
    TT_TRY(tti_splitter_apply(g->path, splitter, t));
    v->ignore_merges = splitter->ignore_merges;
    *add_bos = splitter->add_bos;
    if (g->merge) {
        TT_TRY(add_tokens(g, NULL, v));
        return add_merges(g, v);
    }
    /* A tiktoken vocabulary's ids are its ranks. */
    TT_CHECK(is_text(g->pre, "kimi-k2"), TT_ERR_FILE, "%s: tokenizer.ggml.merges is missing",
             g->path);
    uint32_t *rank = malloc((g->n_tokens + 1) * sizeof(*rank)); /* rank[n_tokens] */
    TT_CHECK(rank, TT_ERR_NOMEM, "%s: out of memory for %zu tokens", g->path, g->n_tokens);
    for (size_t id = 0; id < g->n_tokens; id++) {
        rank[id] = (uint32_t)id;
    }
    v->merges_by_rank = true;
    tt_status st = add_tokens(g, rank, v);
    free(rank);
    return st;
}

/* ---- llama ---- */
typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int higher_first(const void *a, const void *b)
{
    float left = ((const scored *)a)->score, right = ((const scored *)b)->score;
    return left > right ? -1 : left < right;
}

/* Equal scores have equal ranks: among those the place in the text decides. */
static tt_status rank_scores(const tti_gguf_vocabulary *g, scored *order, uint32_t *rank)
{
    for (size_t id = 0; id < g->n_tokens; id++) {
        TT_CHECK(!isnan(g->score[id]), TT_ERR_FILE,
                 "%s: score %zu of tokenizer.ggml.scores is not a number", g->path, id);
        order[id] = (scored){.score = g->score[id], .id = (uint32_t)id};
    }
    qsort(order, g->n_tokens, sizeof(*order), higher_first);
    uint32_t next = 0;
    for (size_t k = 0; k < g->n_tokens; k++) {
        next += k > 0 && order[k].score < order[k - 1].score;
        rank[order[k].id] = next;
    }
    return TT_OK;
}

static tt_status set_llama_components(const tti_gguf_vocabulary *g, tt_tokenizer *t)
{
    bool prefix = g->add_space_prefix != TTI_GGUF_NO;
    tti_decode_stage *stage;
    if (prefix) {
        TT_TRY(tti_normalizer_add_prepend(g->path, &t->normalizer, META_SPACE));
    }
    TT_TRY(tti_normalizer_add_replace(g->path, &t->normalizer, " ", META_SPACE));
    TT_TRY(tti_decoder_add_replace(g->path, &t->decoder, META_SPACE, " "));
    TT_TRY(tti_decoder_add(g->path, &t->decoder, TTI_DECODE_BYTE_FALLBACK, &stage));
    TT_TRY(tti_decoder_add(g->path, &t->decoder, TTI_DECODE_FUSE, &stage));
    return prefix ? tti_decoder_add_strip(g->path, &t->decoder, " ", 1, 0) : TT_OK;
}

static tt_status describe_llama(const tti_gguf_vocabulary *g, tti_vocabulary *v, tt_tokenizer *t)
{
    TT_CHECK(g->score, TT_ERR_FILE, "%s: tokenizer.ggml.scores is missing", g->path);
    TT_TRY(set_llama_components(g, t));
    v->byte_fallback = true;
    v->fuse_unknown = true;
    v->merges_by_rank = true;
    scored *order = malloc((g->n_tokens + 1) * sizeof(*order)); /* order[n_tokens] */
    uint32_t *rank = malloc((g->n_tokens + 1) * sizeof(*rank)); /* rank[n_tokens] */
    tt_status st = TT_OK;
    if (!order || !rank) {
        st = TT_FAIL(TT_ERR_NOMEM, "%s: out of memory for %zu tokens", g->path, g->n_tokens);
    }
    if (st == TT_OK) {
        st = rank_scores(g, order, rank);
    }
    if (st == TT_OK) {
        st = add_tokens(g, rank, v);
    }
    free(order);
    free(rank);
    return st;
}

/* ---- ids that begin and end ---- */
static int order_of_ids(const void *a, const void *b)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return left < right ? -1 : left > right;
}

/* Ends of a turn in files whose keys do not name them all. */
static const char *const stop_names[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<|return|>",
    "<|call|>",
    "<\xef\xbd\x9c"
    "end" META_SPACE "of" META_SPACE "sentence\xef\xbd\x9c>",
    "<|end|>", /* Phi's, but only the end of a message where <|return|> ends the turn */
};
enum { N_STOP_NAMES = sizeof(stop_names) / sizeof(stop_names[0]), STOP_END = N_STOP_NAMES - 1 };

/* id[N_STOP_NAMES]: the first token of each name among those that are matched whole; -1: none. */
static void find_stop_names(const tti_gguf_vocabulary *g, int64_t *id)
{
    for (size_t k = 0; k < N_STOP_NAMES; k++) {
        id[k] = -1;
    }
    for (size_t i = 0; i < g->n_tokens; i++) {
        int32_t type = type_of(g, i);
        for (size_t k = 0; (is_special(type) || type == TTI_GGUF_USER_DEFINED) && k < N_STOP_NAMES;
             k++) {
            if (id[k] < 0 && is_text(g->token[i], stop_names[k])) {
                id[k] = (int64_t)i;
            }
        }
    }
}

static void sort_and_unite(tt_ids *ids)
{
    if (ids->n == 0) {
        return;
    }
    qsort(ids->id, ids->n, sizeof(*ids->id), order_of_ids);
    size_t n = 1;
    for (size_t k = 1; k < ids->n; k++) {
        if (ids->id[k] != ids->id[n - 1]) {
            ids->id[n++] = ids->id[k];
        }
    }
    ids->n = n;
}

/* What SentencePiece's files need not say. */
static tti_gguf_vocabulary with_defaults(const tti_gguf_vocabulary *g)
{
    enum { LLAMA_UNKNOWN = 0, LLAMA_BOS = 1, LLAMA_EOS = 2 };
    tti_gguf_vocabulary named = *g;
    if (is_text(g->model, "llama")) {
        named.bos_id = g->bos_id < 0 ? LLAMA_BOS : g->bos_id;
        named.eos_id = g->eos_id < 0 ? LLAMA_EOS : g->eos_id;
        named.unknown_id = g->unknown_id < 0 ? LLAMA_UNKNOWN : g->unknown_id;
    }
    return named;
}

tt_status tti_gguf_stop_ids(const tti_gguf_vocabulary *vocabulary, tt_ids *ids)
{
    tti_gguf_vocabulary g = with_defaults(vocabulary);
    int64_t keys[] = {g.eos_id, g.eot_id, g.eom_id}, named[N_STOP_NAMES];
    TT_CHECK(g.n_tokens < TTI_TOKEN_ID_LIMIT, TT_ERR_UNSUPPORTED, "%s: %zu tokens, more than %d",
             g.path, g.n_tokens, TTI_TOKEN_ID_LIMIT - 1);
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        int32_t id = (int32_t)checked_id(&g, keys[k]);
        TT_TRY(tt_ids_append(ids, &id, id >= 0));
    }
    find_stop_names(&g, named);
    bool is_harmony = false;
    for (size_t k = 0; k < N_STOP_NAMES; k++) {
        int32_t id = (int32_t)named[k];
        is_harmony = is_harmony || (id >= 0 && strcmp(stop_names[k], "<|return|>") == 0);
        bool counts =
            id >= 0 && is_special(type_of(&g, (size_t)id)) && !(k == STOP_END && is_harmony);
        TT_TRY(tt_ids_append(ids, &id, counts));
    }
    sort_and_unite(ids);
    return TT_OK;
}

static tt_status copy_token(const tti_gguf_vocabulary *g, int64_t id, int32_t *id_out,
                            char **text_out)
{
    *id_out = (int32_t)checked_id(g, id);
    if (*id_out < 0) {
        return TT_OK;
    }
    *text_out = tti_tokenizer_copy(g->token[id].bytes, g->token[id].n);
    TT_CHECK(*text_out, TT_ERR_NOMEM, "%s: out of memory for a token", g->path);
    return TT_OK;
}

static tt_status set_ends(const tti_gguf_vocabulary *g, bool add_bos, tt_tokenizer *t)
{
    add_bos = g->add_bos == TTI_GGUF_ABSENT ? add_bos : g->add_bos == TTI_GGUF_YES;
    TT_TRY(copy_token(g, g->bos_id, &t->bos_id, &t->bos_token));
    TT_TRY(copy_token(g, g->eos_id, &t->eos_id, &t->eos_token));
    if (add_bos) {
        TT_CHECK(t->bos_id >= 0, TT_ERR_FILE,
                 "%s: texts begin with a token, but tokenizer.ggml.bos_token_id names none",
                 g->path);
        TT_TRY(tt_ids_append(&t->prefix, &t->bos_id, 1));
    }
    if (g->add_eos == TTI_GGUF_YES) {
        TT_CHECK(t->eos_id >= 0, TT_ERR_FILE,
                 "%s: texts end with a token, but tokenizer.ggml.eos_token_id names none", g->path);
        TT_TRY(tt_ids_append(&t->suffix, &t->eos_id, 1));
    }
    t->wants_bos = add_bos;
    return tti_gguf_stop_ids(g, &t->stop);
}

static tt_status fill(const tti_gguf_vocabulary *g, tti_vocabulary *v, tt_tokenizer *t)
{
    enum { SHOWN_BYTES = 64 };
    bool is_llama = is_text(g->model, "llama"), add_bos = is_llama;
    tti_gguf_vocabulary named = with_defaults(g);
    TT_CHECK(g->token && g->n_tokens > 0, TT_ERR_FILE, "%s: tokenizer.ggml.tokens is missing",
             g->path);
    TT_CHECK(g->n_tokens < TTI_TOKEN_ID_LIMIT, TT_ERR_UNSUPPORTED, "%s: %zu tokens, more than %d",
             g->path, g->n_tokens, TTI_TOKEN_ID_LIMIT - 1);
    if (is_llama) {
        TT_TRY(describe_llama(g, v, t));
    } else {
        TT_CHECK(is_text(g->model, "gpt2"), TT_ERR_UNSUPPORTED,
                 "%s: unknown tokenizer.ggml.model \"%.*s\"", g->path,
                 (int)(g->model.n < SHOWN_BYTES ? g->model.n : SHOWN_BYTES),
                 g->model.n > 0 ? g->model.bytes : "");
        TT_TRY(describe_gpt2(g, v, t, &add_bos));
    }
    v->unknown_id = checked_id(g, named.unknown_id);
    TT_TRY(tti_tokenizer_build(v, t));
    TT_TRY(set_ends(&named, add_bos, t));
    if (g->chat_template.n > 0) {
        t->chat_template = tti_tokenizer_copy(g->chat_template.bytes, g->chat_template.n);
        TT_CHECK(t->chat_template, TT_ERR_NOMEM, "%s: out of memory for the chat template",
                 g->path);
        t->n_chat_template = g->chat_template.n;
    }
    return TT_OK;
}

tt_status tti_tokenizer_from_gguf(const tti_gguf_vocabulary *vocabulary,
                                  tt_tokenizer **tokenizer_out)
{
    tt_tokenizer *tokenizer;
    tti_vocabulary v = {.path = vocabulary->path, .unknown_id = -1};
    TT_TRY(tti_tokenizer_new(&tokenizer));
    tt_status st = fill(vocabulary, &v, tokenizer);
    tti_vocabulary_fini(&v);
    if (st != TT_OK) {
        tt_tokenizer_destroy(&tokenizer);
        return st;
    }
    *tokenizer_out = tokenizer;
    return TT_OK;
}

const int32_t *tti_tokenizer_stop_ids(const tt_tokenizer *tokenizer, size_t *n_out)
{
    *n_out = tokenizer->stop.n;
    return tokenizer->stop.id;
}
