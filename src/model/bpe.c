/* bpe.c - byte-pair encoding: vocabulary, merges, and the ids of one piece of text.
 *
 * A piece starts as its characters. As long as two neighbours are a known pair, the pair of
 * lowest rank, leftmost among equals, is merged. Symbols are a doubly linked list; a binary heap
 * holds a candidate per pair, keyed rank then position; a candidate that no longer fits its place
 * is recognised and dropped when it comes up. So a piece of n characters takes O(n log n),
 * whatever it is. Candidates are told from stale ones exactly as the reference library does it
 * (by what they would make, not by their rank), since that decides ids in odd vocabularies.
 *
 * Most pieces of ordinary text are tokens. Whether a token's own text encodes to just this token
 * is remembered (tti_bpe.whole), which turns them into one look-up. */
#include "tokenizer_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOT_LOAD = 2, /* places per entry of the hash tables; linear probing stays short */
    HASH_SHIFT = 32,
    /* of a token that is split in all ways: bounds the quadratic work on a hostile file; runs of
     * spaces, the longest real ones, have 512 at most */
    RANKED_BYTES_MAX = 2048,
    WHOLE_UNKNOWN = 0,
    WHOLE_YES = 1,
    WHOLE_NO = 2
};
static const uint32_t NONE = UINT32_MAX;                          /* no neighbour */
static const uint64_t HASH_FACTOR = UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio, odd */

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * HASH_FACTOR;
    return h ^ h >> HASH_SHIFT;
}

static uint64_t hash_bytes(const char *bytes, size_t n)
{
    uint64_t h = n, word;
    while (n >= sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        h = mix(h, word);
        bytes += sizeof(word);
        n -= sizeof(word);
    }
    word = 0;
    for (size_t i = 0; i < n; i++) {
        word |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    }
    return mix(mix(h, word), 0);
}

static uint64_t hash_pair(uint64_t pair)
{
    return mix(mix(0, pair), 0);
}

/* How much of a token a message shows. */
static int shown(size_t n)
{
    enum { SHOWN_BYTES = 64 };
    return n < SHOWN_BYTES ? (int)n : SHOWN_BYTES;
}

tt_status tti_bpe_add_token(const char *path, tti_bpe *bpe, const char *bytes, size_t n, int64_t id,
                            int64_t id_limit)
{
    TT_CHECK(id >= 0 && id < id_limit, TT_ERR_FILE,
             "%s: the token \"%.*s\" has the id %" PRId64 ", not in 0 .. %" PRId64, path, shown(n),
             bytes, id, id_limit - 1);
    TT_CHECK(n < UINT32_MAX, TT_ERR_FILE, "%s: the token of id %" PRId64 " is too long", path, id);
    if (id >= bpe->n_ids) {
        void *array = bpe->token;
        tt_status st =
            tti_tokenizer_grow(&array, &bpe->token_capacity, (size_t)id + 1, sizeof(*bpe->token));
        bpe->token = array;
        TT_TRY(st);
        memset(bpe->token + bpe->n_ids, 0,
               ((size_t)id + 1 - (size_t)bpe->n_ids) * sizeof(*bpe->token));
        bpe->n_ids = (int32_t)id + 1;
    }
    tti_bpe_token *token = &bpe->token[id];
    TT_CHECK(!token->known, TT_ERR_FILE,
             "%s: the id %" PRId64 " belongs to two tokens, one of them \"%.*s\"", path, id,
             shown(n), bytes);
    *token = (tti_bpe_token){.offset = bpe->bytes.n, .n = (uint32_t)n, .known = true};
    bpe->n_used++;
    return tt_text_append(&bpe->bytes, bytes, n);
}

static bool token_is(const tti_bpe *bpe, int32_t id, const char *bytes, size_t n)
{
    const tti_bpe_token *token = &bpe->token[id];
    return token->n == n && memcmp(bpe->bytes.bytes + token->offset, bytes, n) == 0;
}

static size_t power_of_two_above(size_t n)
{
    size_t size = SLOT_LOAD;
    while (size < n) {
        size *= 2;
    }
    return size;
}

tt_status tti_bpe_index(const char *path, tti_bpe *bpe)
{
    TT_TRY(tt_text_append(&bpe->bytes, "", 0));
    bpe->n_slots = power_of_two_above(SLOT_LOAD * (bpe->n_used + 1));
    bpe->slot = calloc(bpe->n_slots, sizeof(*bpe->slot));
    TT_CHECK(bpe->slot, TT_ERR_NOMEM, "out of memory for a vocabulary of %zu tokens", bpe->n_used);
    for (int32_t id = 0; id < bpe->n_ids; id++) {
        const tti_bpe_token *token = &bpe->token[id];
        if (!token->known) {
            continue;
        }
        size_t k = hash_bytes(bpe->bytes.bytes + token->offset, token->n) & (bpe->n_slots - 1);
        while (bpe->slot[k] != 0) {
            TT_CHECK(!token_is(bpe, (int32_t)(bpe->slot[k] - 1), bpe->bytes.bytes + token->offset,
                               token->n),
                     TT_ERR_FILE, "%s: the token \"%.*s\" stands twice in the vocabulary", path,
                     shown(token->n), bpe->bytes.bytes + token->offset);
            k = (k + 1) & (bpe->n_slots - 1);
        }
        bpe->slot[k] = (uint32_t)id + 1;
    }
    return TT_OK;
}

int32_t tti_bpe_find(const tti_bpe *bpe, const char *bytes, size_t n)
{
    size_t k = hash_bytes(bytes, n) & (bpe->n_slots - 1);
    for (; bpe->slot[k] != 0; k = (k + 1) & (bpe->n_slots - 1)) {
        int32_t id = (int32_t)(bpe->slot[k] - 1);
        if (token_is(bpe, id, bytes, n)) {
            return id;
        }
    }
    return -1;
}

/* The place of a pair, or the free place where it would go. */
static tti_bpe_merge *merge_place(const tti_bpe *bpe, uint64_t pair)
{
    size_t k = hash_pair(pair) & (bpe->n_merge_slots - 1);
    while (bpe->merge[k].merged >= 0 && bpe->merge[k].pair != pair) {
        k = (k + 1) & (bpe->n_merge_slots - 1);
    }
    return &bpe->merge[k];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static tt_status reserve_merges(tti_bpe *bpe, size_t n_merges)
{
    TT_CHECK(n_merges < UINT32_MAX / SLOT_LOAD, TT_ERR_UNSUPPORTED, "%zu merges are too many",
             n_merges);
    bpe->n_merge_slots = power_of_two_above(SLOT_LOAD * (n_merges + 1));
    bpe->merge = malloc(bpe->n_merge_slots * sizeof(*bpe->merge));
    TT_CHECK(bpe->merge, TT_ERR_NOMEM, "out of memory for %zu merges", n_merges);
    for (size_t i = 0; i < bpe->n_merge_slots; i++) {
        bpe->merge[i] = (tti_bpe_merge){.merged = -1};
    }
    return TT_OK;
}

static tt_status add_merge(const char *path, tti_bpe *bpe, const tti_vocabulary_merge *merge)
{
    enum { SHORT_BYTES = 256 };
    tti_span left = merge->left, right = merge->right;
    int32_t a = tti_bpe_find(bpe, left.bytes, left.n), b = tti_bpe_find(bpe, right.bytes, right.n);
    TT_CHECK(a >= 0 && b >= 0, TT_ERR_FILE,
             "%s: merge %zu joins \"%.*s\", which is not in the vocabulary", path, bpe->n_ranks,
             shown(a < 0 ? left.n : right.n), a < 0 ? left.bytes : right.bytes);
    /* Nearly all tokens are short; a long one takes the heap. */
    char small[SHORT_BYTES], *joined = small;
    if (left.n + right.n > sizeof(small)) {
        joined = malloc(left.n + right.n);
        TT_CHECK(joined, TT_ERR_NOMEM, "%s: out of memory for a merge", path);
    }
    memcpy(joined, left.bytes, left.n);
    memcpy(joined + left.n, right.bytes, right.n);
    int32_t merged = tti_bpe_find(bpe, joined, left.n + right.n);
    if (joined != small) {
        free(joined);
    }
    TT_CHECK(merged >= 0, TT_ERR_FILE,
             "%s: merge %zu makes \"%.*s%.*s\", which is not in the vocabulary", path, bpe->n_ranks,
             shown(left.n), left.bytes, shown(right.n), right.bytes);
    uint64_t pair = pair_of(a, b);
    *merge_place(bpe, pair) =
        (tti_bpe_merge){.pair = pair, .rank = (uint32_t)bpe->n_ranks, .merged = merged};
    bpe->merged_by_rank[bpe->n_ranks++] = merged;
    return TT_OK;
}

tt_status tti_bpe_set_merges(const char *path, tti_bpe *bpe, const tti_vocabulary_merge *merge,
                             size_t n)
{
    TT_TRY(reserve_merges(bpe, n));
    bpe->merged_by_rank = malloc((n + 1) * sizeof(*bpe->merged_by_rank));
    TT_CHECK(bpe->merged_by_rank, TT_ERR_NOMEM, "out of memory for %zu merges", n);
    for (size_t k = 0; k < n; k++) {
        TT_TRY(add_merge(path, bpe, &merge[k]));
    }
    return TT_OK;
}

/* Appends all pairs that make token `id`. */
static tt_status split_token(const tti_bpe *bpe, const uint32_t *rank, int32_t id,
                             tti_bpe_merge **merge, size_t *n, size_t *capacity)
{
    const char *bytes = bpe->bytes.bytes + bpe->token[id].offset;
    size_t n_bytes = bpe->token[id].n;
    for (size_t cut = 1; cut < n_bytes; cut++) {
        if (((unsigned char)bytes[cut] & 0xc0) == 0x80) {
            continue; /* inside a character */
        }
        int32_t a = tti_bpe_find(bpe, bytes, cut);
        int32_t b = a < 0 ? -1 : tti_bpe_find(bpe, bytes + cut, n_bytes - cut);
        if (a < 0 || b < 0 || rank[a] == TTI_NO_RANK || rank[b] == TTI_NO_RANK) {
            continue;
        }
        void *array = *merge;
        tt_status st = tti_tokenizer_grow(&array, capacity, *n + 1, sizeof(**merge));
        *merge = array;
        TT_TRY(st);
        (*merge)[(*n)++] = (tti_bpe_merge){.pair = pair_of(a, b), .rank = rank[id], .merged = id};
    }
    return TT_OK;
}

tt_status tti_bpe_set_ranks(const char *path, tti_bpe *bpe, const uint32_t *rank)
{
    tti_bpe_merge *merge = NULL;
    size_t n = 0, capacity = 0;
    tt_status st = TT_OK;
    for (int32_t id = 0; id < bpe->n_ids && st == TT_OK; id++) {
        if (!bpe->token[id].known || rank[id] == TTI_NO_RANK) {
            continue;
        }
        if (bpe->token[id].n > RANKED_BYTES_MAX) {
            st = TT_FAIL(TT_ERR_UNSUPPORTED, "%s: the token of id %d has %u bytes, more than %d",
                         path, (int)id, (unsigned)bpe->token[id].n, (int)RANKED_BYTES_MAX);
            break;
        }
        st = split_token(bpe, rank, id, &merge, &n, &capacity);
    }
    if (st == TT_OK) {
        st = reserve_merges(bpe, n);
    }
    for (size_t k = 0; k < n && st == TT_OK; k++) {
        *merge_place(bpe, merge[k].pair) = merge[k];
    }
    free(merge);
    return st;
}

tt_status tti_bpe_finish(tti_bpe *bpe)
{
    static const char hex[] = "0123456789ABCDEF";
    if (!bpe->merge) {
        TT_TRY(reserve_merges(bpe, 0));
    }
    for (uint32_t c = 0; c < TTI_BPE_DIRECT; c++) {
        char bytes[TTI_UTF8_MAX];
        size_t n = tti_utf8_encode(c, bytes);
        bpe->char_id[c] = tti_bpe_find(bpe, bytes, n);
    }
    for (size_t b = 0; b < sizeof(bpe->byte_id) / sizeof(bpe->byte_id[0]); b++) {
        char name[] = "<0x00>";
        name[3] = hex[b >> 4];
        name[4] = hex[b & 0xf];
        bpe->byte_id[b] = tti_bpe_find(bpe, name, sizeof(name) - 1);
    }
    bpe->whole = calloc((size_t)bpe->n_ids + 1, sizeof(*bpe->whole));
    TT_CHECK(bpe->whole, TT_ERR_NOMEM, "out of memory for a vocabulary of %d ids", (int)bpe->n_ids);
    return TT_OK;
}

void tti_bpe_fini(tti_bpe *bpe)
{
    tt_text_fini(&bpe->bytes);
    free(bpe->token);
    free(bpe->slot);
    free(bpe->merge);
    free(bpe->merged_by_rank);
    free((void *)bpe->whole);
    *bpe = (tti_bpe){0};
}

void tti_bpe_work_fini(tti_bpe_work *work)
{
    free(work->symbol);
    free(work->heap);
    *work = (tti_bpe_work){0};
}

/* ---- the heap of candidates ---- */
static tt_status heap_push(tti_bpe_work *work, uint64_t key)
{
    if (work->n_heap == work->heap_capacity) {
        void *array = work->heap;
        tt_status st =
            tti_tokenizer_grow(&array, &work->heap_capacity, work->n_heap + 1, sizeof(*work->heap));
        work->heap = array;
        TT_TRY(st);
    }
    size_t k = work->n_heap++;
    while (k > 0 && work->heap[(k - 1) / 2] > key) {
        work->heap[k] = work->heap[(k - 1) / 2];
        k = (k - 1) / 2;
    }
    work->heap[k] = key;
    return TT_OK;
}

static uint64_t heap_pop(tti_bpe_work *work)
{
    uint64_t *heap = work->heap, top = heap[0], last = heap[--work->n_heap];
    size_t n = work->n_heap, k = 0;
    for (;;) {
        size_t child = 2 * k + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && heap[child + 1] < heap[child]) {
            child++;
        }
        if (heap[child] >= last) {
            break;
        }
        heap[k] = heap[child];
        k = child;
    }
    heap[k] = last;
    return top;
}

/* ---- one piece ---- */
static tt_status add_symbol(tti_bpe_work *work, int32_t id)
{
    if (work->n_symbols == work->symbol_capacity) {
        void *array = work->symbol;
        tt_status st = tti_tokenizer_grow(&array, &work->symbol_capacity, work->n_symbols + 1,
                                          sizeof(*work->symbol));
        work->symbol = array;
        TT_TRY(st);
    }
    uint32_t k = (uint32_t)work->n_symbols++;
    work->symbol[k] = (tti_bpe_symbol){.id = id, .prev = k == 0 ? NONE : k - 1, .next = k + 1};
    return TT_OK;
}

/* The characters of the piece as symbols; unknown ones as bytes, as the unknown token, or not at
 * all. */
static tt_status start_symbols(const tti_bpe *bpe, tti_bpe_work *work, const char *piece, size_t n)
{
    work->n_symbols = 0;
    /* An unknown token is held back until the next known one, so that a run of them can become
     * one. */
    bool unknown_waits = false;
    for (size_t i = 0; i < n;) {
        size_t length;
        uint32_t c = tti_utf8_decode(piece + i, &length);
        const unsigned char *bytes = (const unsigned char *)piece + i;
        i += length;
        int32_t id =
            c < TTI_BPE_DIRECT ? bpe->char_id[c] : tti_bpe_find(bpe, (const char *)bytes, length);
        if (id >= 0) {
            if (unknown_waits) {
                TT_TRY(add_symbol(work, bpe->unknown_id));
                unknown_waits = false;
            }
            TT_TRY(add_symbol(work, id));
            continue;
        }
        if (bpe->byte_fallback) {
            size_t n_known = 0;
            while (n_known < length && bpe->byte_id[bytes[n_known]] >= 0) {
                n_known++;
            }
            if (n_known == length) {
                for (size_t k = 0; k < length; k++) {
                    TT_TRY(add_symbol(work, bpe->byte_id[bytes[k]]));
                }
                continue;
            }
        }
        if (bpe->unknown_id >= 0) {
            if (unknown_waits && !bpe->fuse_unknown) {
                TT_TRY(add_symbol(work, bpe->unknown_id));
            }
            unknown_waits = true;
        }
    }
    if (unknown_waits) {
        TT_TRY(add_symbol(work, bpe->unknown_id));
    }
    if (work->n_symbols > 0) {
        work->symbol[work->n_symbols - 1].next = NONE;
    }
    return TT_OK;
}

static tt_status push_pair(const tti_bpe *bpe, tti_bpe_work *work, uint32_t left, uint32_t right)
{
    const tti_bpe_merge *merge =
        merge_place(bpe, pair_of(work->symbol[left].id, work->symbol[right].id));
    return merge->merged < 0 ? TT_OK : heap_push(work, (uint64_t)merge->rank << 32 | left);
}

static tt_status merge_symbols(const tti_bpe *bpe, tti_bpe_work *work)
{
    tti_bpe_symbol *symbol = work->symbol;
    work->n_heap = 0;
    for (uint32_t k = 0; k + 1 < work->n_symbols; k++) {
        TT_TRY(push_pair(bpe, work, k, k + 1));
    }
    while (work->n_heap > 0) {
        uint64_t top = heap_pop(work);
        uint32_t left = (uint32_t)top, rank = (uint32_t)(top >> 32);
        if (symbol[left].id < 0 || symbol[left].next == NONE) {
            continue;
        }
        uint32_t right = symbol[left].next;
        const tti_bpe_merge *merge = merge_place(bpe, pair_of(symbol[left].id, symbol[right].id));
        /* With ranks of tokens a stale candidate of equal rank has the key of the fresh one, so
         * merging at once changes no order. */
        if (merge->merged < 0 || (bpe->merged_by_rank ? merge->merged != bpe->merged_by_rank[rank]
                                                      : merge->rank != rank)) {
            continue;
        }
        symbol[left].id = merge->merged;
        symbol[left].next = symbol[right].next;
        symbol[right].id = -1;
        if (symbol[left].next != NONE) {
            symbol[symbol[left].next].prev = left;
            TT_TRY(push_pair(bpe, work, left, symbol[left].next));
        }
        if (symbol[left].prev != NONE) {
            TT_TRY(push_pair(bpe, work, symbol[left].prev, left));
        }
    }
    return TT_OK;
}

tt_status tti_bpe_encode(const tti_bpe *bpe, tti_bpe_work *work, const char *piece, size_t n,
                         tt_ids *ids)
{
    TT_CHECK(n < NONE, TT_ERR_REQUEST, "a piece of text of %zu bytes is too long", n);
    int32_t token = tti_bpe_find(bpe, piece, n);
    if (token >= 0 &&
        (bpe->ignore_merges ||
         atomic_load_explicit(&bpe->whole[token], memory_order_relaxed) == WHOLE_YES)) {
        return tt_ids_append(ids, &token, 1);
    }
    TT_TRY(start_symbols(bpe, work, piece, n));
    TT_TRY(merge_symbols(bpe, work));
    for (uint32_t k = work->n_symbols > 0 ? 0 : NONE; k != NONE; k = work->symbol[k].next) {
        TT_TRY(tt_ids_append(ids, &work->symbol[k].id, 1));
    }
    if (token >= 0) {
        bool whole =
            work->n_symbols > 0 && work->symbol[0].id == token && work->symbol[0].next == NONE;
        atomic_store_explicit(&bpe->whole[token], whole ? WHOLE_YES : WHOLE_NO,
                              memory_order_relaxed);
    }
    return TT_OK;
}
