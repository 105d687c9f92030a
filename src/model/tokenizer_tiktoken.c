/* tokenizer_tiktoken.c - Kimi-K2's vocabulary: tiktoken.model holds a line "base64 rank" per token,
 * tokenizer_config.json (added_tokens_decoder) the special tokens; the splitter is published code.
 *
 * A token's id is its rank, and the adjacent pair whose concatenation has the lowest rank merges
 * first. Tokens are bytes; they are kept in byte-level stand-ins, as those of tokenizer.json
 * are, so that all that follows is the same. Source: the tiktoken library's encoding, and the
 * tokenizer code beside the published Kimi-K2 checkpoint. */
#include "tokenizer_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPECIAL_IDS = 256, /* behind the ranks; those without a name are reserved */
    NAME_BYTES = 48,
    BASE64_BITS = 6,
    SHOWN_BYTES = 64
};

/* What a read file is turned into, before the description that points into it is complete. */
typedef struct tiktoken_text {
    tt_text mapped; /* all tokens' stand-ins, then the names of reserved tokens */
    size_t *start;  /* start[n_starts]: where each entry of the description begins in mapped */
    size_t n_starts, capacity;
} tiktoken_text;

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Appends the stand-ins of the bytes that s[n] encodes. *good_out: it is base64 of some byte. */
static tt_status append_decoded(const char *s, size_t n, tt_text *out, bool *good_out)
{
    uint32_t held = 0;
    unsigned bits = 0;
    size_t n_digits = n;
    while (n_digits > 0 && n - n_digits < 2 && s[n_digits - 1] == '=') {
        n_digits--;
    }
    *good_out = n % 4 == 0 && n_digits >= 2;
    for (size_t i = 0; i < n_digits && *good_out; i++) {
        int value = base64_value(s[i]);
        *good_out = value >= 0;
        held = held << BASE64_BITS | ((uint32_t)value & 0x3f);
        bits += BASE64_BITS;
        if (*good_out && bits >= 8) {
            char c[TTI_UTF8_MAX];
            bits -= 8;
            TT_TRY(tt_text_append(
                out, c, tti_utf8_encode(tti_byte_to_char((unsigned char)(held >> bits)), c)));
        }
    }
    return TT_OK;
}

static tt_status mark_start(tiktoken_text *text)
{
    void *array = text->start;
    tt_status st =
        tti_tokenizer_grow(&array, &text->capacity, text->n_starts + 1, sizeof(*text->start));
    text->start = array;
    TT_TRY(st);
    text->start[text->n_starts++] = text->mapped.n;
    return TT_OK;
}

/* One line, without its end. */
static tt_status read_line(const char *path, size_t number, const char *line, size_t n,
                           tiktoken_text *text, tti_vocabulary *v)
{
    const char *space = memchr(line, ' ', n);
    size_t n_token = space ? (size_t)(space - line) : 0;
    int64_t rank = -1;
    for (size_t i = n_token + 1; space && i < n; i++) {
        TT_CHECK(line[i] >= '0' && line[i] <= '9' && rank < TTI_TOKEN_ID_LIMIT, TT_ERR_FILE,
                 "%s line %zu: the rank is not a number below %d", path, number,
                 TTI_TOKEN_ID_LIMIT);
        rank = (rank < 0 ? 0 : rank * 10) + (line[i] - '0');
    }
    TT_CHECK(rank < TTI_TOKEN_ID_LIMIT, TT_ERR_FILE,
             "%s line %zu: the rank is not a number below %d", path, number, TTI_TOKEN_ID_LIMIT);
    TT_CHECK(rank >= 0, TT_ERR_FILE, "%s line %zu is not a token and its rank", path, number);
    bool is_good;
    TT_TRY(mark_start(text));
    TT_TRY(append_decoded(line, n_token, &text->mapped, &is_good));
    TT_CHECK(is_good, TT_ERR_FILE, "%s line %zu: the token \"%.*s\" is not base64", path, number,
             (int)(n_token < SHOWN_BYTES ? n_token : SHOWN_BYTES), line);
    return tti_vocabulary_add_token(v, NULL, 0, rank, (uint32_t)rank);
}

static tt_status read_lines(const char *path, const char *bytes, size_t n, tiktoken_text *text,
                            tti_vocabulary *v)
{
    size_t number = 1;
    for (size_t i = 0; i < n; number++) {
        const char *newline = memchr(bytes + i, '\n', n - i);
        size_t end = newline ? (size_t)(newline - bytes) : n, next = newline ? end + 1 : n;
        if (end > i && bytes[end - 1] == '\r') {
            end--;
        }
        if (end > i) {
            TT_TRY(read_line(path, number, bytes + i, end - i, text, v));
        }
        i = next;
    }
    TT_CHECK(v->n_tokens > 0, TT_ERR_FILE, "%s holds no tokens", path);
    return TT_OK;
}

/* ---- special tokens ---- */
static tt_status read_special(const char *path, const char *key, const json_t *json, int64_t first,
                              tti_vocabulary *v)
{
    tti_vocabulary_added added = {0};
    char *end;
    TT_CHECK(json_is_object(json), TT_ERR_FILE,
             "%s: \"added_tokens_decoder\" \"%.64s\" is not an object", path, key);
    added.id = strtoll(key, &end, 10);
    TT_CHECK(*key >= '0' && *key <= '9' && *end == 0 && added.id >= first &&
                 added.id < TTI_TOKEN_ID_LIMIT,
             TT_ERR_FILE,
             "%s: \"added_tokens_decoder\" \"%.64s\" is no id behind the %" PRId64 " ranks", path,
             key, first);
    TT_TRY(
        tti_tokenizer_json_string(path, json, "content", &added.content.bytes, &added.content.n));
    TT_TRY(tti_tokenizer_json_added_flags(path, json, &added));
    added.normalized = false; /* there is no normaliser: all are found in the text as it comes */
    return tti_vocabulary_add_added(v, &added);
}

/* The ids behind the ranks that have no name are called by their number. */
static tt_status add_reserved(tiktoken_text *text, int64_t first, tti_vocabulary *v)
{
    bool has_name[SPECIAL_IDS] = {false};
    for (size_t i = 0; i < v->n_added; i++) {
        if (v->added[i].id - first < SPECIAL_IDS) {
            has_name[v->added[i].id - first] = true;
        }
    }
    for (int64_t k = 0; k < SPECIAL_IDS; k++) {
        if (has_name[k]) {
            continue;
        }
        char name[NAME_BYTES];
        int n = snprintf(name, sizeof(name), "<|reserved_token_%" PRId64 "|>", first + k);
        TT_TRY(mark_start(text));
        TT_TRY(tt_text_append(&text->mapped, name, (size_t)n));
        tti_vocabulary_added added = {.id = first + k, .special = true};
        TT_TRY(tti_vocabulary_add_added(v, &added));
    }
    return TT_OK;
}

/* Sets the strings that point into `mapped`, which no longer moves. */
static void set_strings(const tiktoken_text *text, size_t n_named, tti_vocabulary *v)
{
    for (size_t i = 0; i < text->n_starts; i++) {
        size_t end = i + 1 < text->n_starts ? text->start[i + 1] : text->mapped.n;
        tti_span span = {text->mapped.bytes + text->start[i], end - text->start[i]};
        if (i < v->n_tokens) {
            v->token[i].text = span;
        } else {
            v->added[n_named + i - v->n_tokens].content = span;
        }
    }
}

/* The tokenizer of the ranks that have been read, and of what the configuration names. */
static tt_status build(const char *config_path, json_t *config, tiktoken_text *text,
                       tti_vocabulary *v, tt_tokenizer *t)
{
    int64_t first = 0;
    for (size_t i = 0; i < v->n_tokens; i++) {
        first = v->token[i].id >= first ? v->token[i].id + 1 : first;
    }
    json_t *named = json_object_get(config, "added_tokens_decoder"), *value;
    const char *key;
    TT_CHECK(!named || json_is_null(named) || json_is_object(named), TT_ERR_FILE,
             "%s: \"added_tokens_decoder\" is not an object", config_path);
    json_object_foreach(named, key, value)
    {
        TT_TRY(read_special(config_path, key, value, first, v));
    }
    size_t n_named = v->n_added;
    TT_TRY(add_reserved(text, first, v));
    set_strings(text, n_named, v);
    const tti_splitter *splitter = tti_splitter_find("kimi-k2", strlen("kimi-k2"));
    v->ignore_merges = splitter->ignore_merges;
    TT_TRY(tti_splitter_apply(v->path, splitter, t));
    return tti_tokenizer_build(v, t);
}

tt_status tti_tokenizer_from_tiktoken(const char *path, const char *text, size_t n,
                                      const char *config_path, const char *config, size_t n_config,
                                      tt_tokenizer *tokenizer)
{
    json_t *root = NULL;
    tiktoken_text mapped = {0};
    tti_vocabulary v = {.path = path, .unknown_id = -1, .merges_by_rank = true};
    if (config) {
        TT_TRY(tti_tokenizer_json_parse(config_path, config, n_config, &root));
    }
    tt_status st = read_lines(path, text, n, &mapped, &v);
    st = st == TT_OK ? build(config_path, root, &mapped, &v, tokenizer) : st;
    tti_vocabulary_fini(&v);
    tt_text_fini(&mapped.mapped);
    free(mapped.start);
    json_decref(root);
    return st;
}
