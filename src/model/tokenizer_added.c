/* tokenizer_added.c - added tokens: which stretches of a text are tokens by their spelling,
 * before any splitting.
 *
 * Tokens are kept in a trie. A text is scanned once; only at bytes that begin some token is the
 * trie walked, at most the length of the longest token deep, so time is linear in the text.
 * Leftmost match first, longest among those. */
#include "tokenizer_internal.h"
#include <inttypes.h>
#include <stdlib.h>

enum {
    TOKENS_MAX = 1 << 20, /* added tokens of one file; DeepSeek-V3 has 818 */
    SHOWN_BYTES = 64      /* of a token, in a message */
};

void tti_trie_init(tti_trie *trie)
{
    *trie = (tti_trie){0};
    for (size_t b = 0; b < sizeof(trie->first) / sizeof(trie->first[0]); b++) {
        trie->first[b] = -1;
    }
}

void tti_trie_fini(tti_trie *trie)
{
    free(trie->node);
    tti_trie_init(trie);
}

static tt_status add_node(tti_trie *trie, unsigned char byte, int32_t sibling, int32_t *node_out)
{
    void *array = trie->node;
    tt_status st =
        tti_tokenizer_grow(&array, &trie->capacity, trie->n_nodes + 1, sizeof(*trie->node));
    trie->node = array;
    TT_TRY(st);
    TT_CHECK(trie->n_nodes < INT32_MAX, TT_ERR_UNSUPPORTED, "the added tokens are too long");
    *node_out = (int32_t)trie->n_nodes;
    trie->node[trie->n_nodes++] =
        (tti_trie_node){.child = -1, .sibling = sibling, .token = -1, .byte = byte};
    return TT_OK;
}

static int32_t find_child(const tti_trie *trie, int32_t node, unsigned char byte)
{
    int32_t child = trie->node[node].child;
    while (child >= 0 && trie->node[child].byte != byte) {
        child = trie->node[child].sibling;
    }
    return child;
}

tt_status tti_trie_add(tti_trie *trie, const char *bytes, size_t n, int32_t token)
{
    if (n == 0) {
        return TT_OK;
    }
    const unsigned char *u = (const unsigned char *)bytes;
    if (trie->first[u[0]] < 0) {
        TT_TRY(add_node(trie, u[0], -1, &trie->first[u[0]]));
    }
    int32_t node = trie->first[u[0]];
    for (size_t i = 1; i < n; i++) {
        int32_t child = find_child(trie, node, u[i]);
        if (child < 0) {
            TT_TRY(add_node(trie, u[i], trie->node[node].child, &child));
            trie->node[node].child = child;
        }
        node = child;
    }
    if (trie->node[node].token < 0) {
        trie->node[node].token = token;
    }
    return TT_OK;
}

/* The longest token that begins at text[at] and ends by `end`; -1: none. */
static int32_t longest_at(const tti_trie *trie, const char *text, size_t at, size_t end,
                          size_t *end_out)
{
    const unsigned char *u = (const unsigned char *)text;
    int32_t best = -1;
    int32_t node = trie->first[u[at]];
    for (size_t i = at; node >= 0;) {
        i++;
        if (trie->node[node].token >= 0) {
            best = trie->node[node].token;
            *end_out = i;
        }
        node = i < end ? find_child(trie, node, u[i]) : -1;
    }
    return best;
}

/* The start of the character that ends at text[end], end > 0. */
static size_t char_before(const char *text, size_t end)
{
    size_t at = end - 1;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) {
        at--;
    }
    return at;
}

static bool touches_word(const tti_added_walk *walk, size_t start, size_t end)
{
    size_t length;
    if (start > 0 &&
        tti_char_is_word(tti_utf8_decode(walk->text + char_before(walk->text, start), &length))) {
        return true;
    }
    return end < walk->n && tti_char_is_word(tti_utf8_decode(walk->text + end, &length));
}

/* The next match that counts, at or after walk->from, widened by its token's flags. */
static const tti_added_token *next_match(tti_added_walk *walk, size_t *start_out, size_t *end_out)
{
    const tti_trie *trie = walk->trie;
    size_t run_end = walk->n; /* of the stretch that a match must lie in */
    size_t known_to =
        walk->literal ? walk->from : walk->n; /* run_end holds for starts before this */
    if (trie->n_nodes == 0) {
        return NULL;
    }
    while (walk->from < walk->n) {
        size_t start = walk->from, end = 0, length;
        if (walk->literal) {
            if (walk->literal[start]) {
                walk->from++;
                continue;
            }
            if (start >= known_to) {
                run_end = start;
                while (run_end < walk->n && !walk->literal[run_end]) {
                    run_end++;
                }
                known_to = run_end;
            }
        }
        if (trie->first[(unsigned char)walk->text[start]] < 0) {
            walk->from++;
            continue;
        }
        int32_t k = longest_at(trie, walk->text, start, run_end, &end);
        if (k < 0) {
            walk->from++;
            continue;
        }
        walk->from = end;
        const tti_added_token *token = &walk->added->token[k];
        if ((walk->skip_special && token->special) || (walk->literal && !token->special) ||
            (token->single_word && touches_word(walk, start, end))) {
            continue;
        }
        while (token->lstrip && start > walk->done) {
            size_t before = char_before(walk->text, start);
            if (!tti_char_is_space(tti_utf8_decode(walk->text + before, &length))) {
                break;
            }
            start = before;
        }
        while (token->rstrip && end < walk->n &&
               tti_char_is_space(tti_utf8_decode(walk->text + end, &length))) {
            end += length;
        }
        *start_out = start;
        *end_out = end;
        return token;
    }
    return NULL;
}

bool tti_added_next(tti_added_walk *walk, const tti_added_token **token_out, size_t *start_out,
                    size_t *end_out)
{
    const tti_added_token *token = walk->pending;
    if (token) {
        *start_out = walk->pending_start;
        *end_out = walk->pending_end;
        walk->pending = NULL;
    } else {
        size_t start = 0, end = 0;
        token = next_match(walk, &start, &end);
        if (!token && walk->done >= walk->n) {
            return false;
        }
        if (!token || start > walk->done) {
            *token_out = NULL;
            *start_out = walk->done;
            *end_out = token ? start : walk->n;
            walk->pending = token;
            walk->pending_start = start;
            walk->pending_end = end;
            walk->done = *end_out;
            return true;
        }
        *start_out = start;
        *end_out = end;
    }
    *token_out = token;
    walk->done = *end_out;
    return true;
}

static tt_status add_one(const tti_vocabulary *v, const tti_vocabulary_added *from, tti_added *out)
{
    TT_CHECK(out->n < TOKENS_MAX, TT_ERR_UNSUPPORTED, "%s: more than %d added tokens", v->path,
             TOKENS_MAX);
    int64_t limit = tti_vocabulary_id_limit(v);
    TT_CHECK(from->id >= 0 && from->id < limit, TT_ERR_FILE,
             "%s: the added token \"%.*s\" has the id %" PRId64 ", not in 0 .. %" PRId64, v->path,
             (int)(from->content.n < SHOWN_BYTES ? from->content.n : SHOWN_BYTES),
             from->content.bytes, from->id, limit - 1);
    void *array = out->token;
    tt_status st = tti_tokenizer_grow(&array, &out->capacity, out->n + 1, sizeof(*out->token));
    out->token = array;
    TT_TRY(st);
    char *content = tti_tokenizer_copy(from->content.bytes, from->content.n);
    TT_CHECK(content, TT_ERR_NOMEM, "%s: out of memory for the added tokens", v->path);
    out->token[out->n++] = (tti_added_token){.content = content,
                                             .n = from->content.n,
                                             .id = (int32_t)from->id,
                                             .single_word = from->single_word,
                                             .lstrip = from->lstrip,
                                             .rstrip = from->rstrip,
                                             .normalized = from->normalized,
                                             .special = from->special};
    if (from->id >= out->n_by_id) {
        out->n_by_id = (int32_t)from->id + 1;
    }
    return TT_OK;
}

/* Enters token k where it is looked for. */
static tt_status enter(tti_added *added, int32_t k, const tti_normalizer *normalizer,
                       tti_regex_work *regex, tt_text buffer[2])
{
    const tti_added_token *token = &added->token[k];
    if (token->special || !token->normalized) {
        TT_TRY(tti_trie_add(&added->marked, token->content, token->n, k));
    }
    if (!token->normalized) {
        return tti_trie_add(&added->raw, token->content, token->n, k);
    }
    /* It is looked for in normalised text, so it is normalised too. */
    const char *content = token->content;
    size_t n = token->n;
    TT_TRY(tti_normalizer_exec(normalizer, regex, buffer, &content, &n));
    return tti_trie_add(&added->normalized, content, n, k);
}

tt_status tti_added_build(const tti_vocabulary *v, const tti_normalizer *normalizer, tti_added *out)
{
    for (size_t i = 0; i < v->n_added; i++) {
        TT_TRY(add_one(v, &v->added[i], out));
    }
    out->by_id = malloc(((size_t)out->n_by_id + 1) * sizeof(*out->by_id));
    TT_CHECK(out->by_id, TT_ERR_NOMEM, "%s: out of memory for the added tokens", v->path);
    for (int32_t id = 0; id < out->n_by_id; id++) {
        out->by_id[id] = -1;
    }
    tti_regex_work regex = {0};
    tt_text buffer[2] = {{0}};
    tt_status st = TT_OK;
    for (size_t k = 0; k < out->n && st == TT_OK; k++) {
        if (out->by_id[out->token[k].id] < 0) {
            out->by_id[out->token[k].id] = (int32_t)k;
        }
        st = enter(out, (int32_t)k, normalizer, &regex, buffer);
    }
    tti_regex_work_fini(&regex);
    tt_text_fini(&buffer[0]);
    tt_text_fini(&buffer[1]);
    return st;
}

void tti_added_fini(tti_added *added)
{
    for (size_t k = 0; k < added->n; k++) {
        free(added->token[k].content);
    }
    free(added->token);
    free(added->by_id);
    tti_trie_fini(&added->raw);
    tti_trie_fini(&added->normalized);
    tti_trie_fini(&added->marked);
    *added = (tti_added){0};
}
