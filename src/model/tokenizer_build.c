/* tokenizer_build.c - the description of a vocabulary, which every kind of file can be read into,
 * and the tokenizer made of it. */
#include "tokenizer_internal.h"
#include <stdlib.h>
#include <string.h>

enum {
    /* Ids may have gaps (padding, reserved ids), but a table by id must not be out of proportion
     * to the file that fills it. */
    IDS_PER_TOKEN = 4,
    IDS_FREE = 1 << 16
};

tt_status tti_vocabulary_add_token(tti_vocabulary *v, const char *bytes, size_t n, int64_t id,
                                   uint32_t rank)
{
    void *array = v->token;
    tt_status st =
        tti_tokenizer_grow(&array, &v->token_capacity, v->n_tokens + 1, sizeof(*v->token));
    v->token = array;
    TT_TRY(st);
    v->token[v->n_tokens++] = (tti_vocabulary_token){.text = {bytes, n}, .id = id, .rank = rank};
    return TT_OK;
}

tt_status tti_vocabulary_add_merge(tti_vocabulary *v, tti_span left, tti_span right)
{
    void *array = v->merge;
    tt_status st =
        tti_tokenizer_grow(&array, &v->merge_capacity, v->n_merges + 1, sizeof(*v->merge));
    v->merge = array;
    TT_TRY(st);
    v->merge[v->n_merges++] = (tti_vocabulary_merge){.left = left, .right = right};
    return TT_OK;
}

tt_status tti_vocabulary_add_added(tti_vocabulary *v, const tti_vocabulary_added *added)
{
    void *array = v->added;
    tt_status st =
        tti_tokenizer_grow(&array, &v->added_capacity, v->n_added + 1, sizeof(*v->added));
    v->added = array;
    TT_TRY(st);
    v->added[v->n_added++] = *added;
    return TT_OK;
}

void tti_vocabulary_fini(tti_vocabulary *v)
{
    free(v->token);
    free(v->merge);
    free(v->added);
    *v = (tti_vocabulary){0};
}

int64_t tti_vocabulary_id_limit(const tti_vocabulary *v)
{
    size_t n = v->n_tokens + v->n_added;
    if (n > (size_t)(TTI_TOKEN_ID_LIMIT - IDS_FREE) / IDS_PER_TOKEN) {
        return TTI_TOKEN_ID_LIMIT;
    }
    return (int64_t)(IDS_PER_TOKEN * n + IDS_FREE);
}

/* The ranks by id, from the description's order. */
static tt_status set_ranks(const tti_vocabulary *v, tti_bpe *bpe)
{
    uint32_t *rank = malloc(((size_t)bpe->n_ids + 1) * sizeof(*rank)); /* rank[n_ids] */
    TT_CHECK(rank, TT_ERR_NOMEM, "%s: out of memory for %zu tokens", v->path, v->n_tokens);
    memset(rank, 0xff, ((size_t)bpe->n_ids + 1) * sizeof(*rank));
    for (size_t i = 0; i < v->n_tokens; i++) {
        rank[v->token[i].id] = v->token[i].rank;
    }
    tt_status st = tti_bpe_set_ranks(v->path, bpe, rank);
    free(rank);
    return st;
}

tt_status tti_tokenizer_build(const tti_vocabulary *v, tt_tokenizer *tokenizer)
{
    tti_bpe *bpe = &tokenizer->bpe;
    TT_TRY(tti_added_build(v, &tokenizer->normalizer, &tokenizer->added));
    bpe->ignore_merges = v->ignore_merges;
    bpe->byte_fallback = v->byte_fallback;
    bpe->fuse_unknown = v->fuse_unknown;
    bpe->unknown_id = (int32_t)v->unknown_id;
    int64_t limit = tti_vocabulary_id_limit(v);
    for (size_t i = 0; i < v->n_tokens; i++) {
        const tti_vocabulary_token *token = &v->token[i];
        TT_TRY(tti_bpe_add_token(v->path, bpe, token->text.bytes, token->text.n, token->id, limit));
    }
    TT_TRY(tti_bpe_index(v->path, bpe));
    if (v->merges_by_rank) {
        TT_TRY(set_ranks(v, bpe));
    } else {
        TT_TRY(tti_bpe_set_merges(v->path, bpe, v->merge, v->n_merges));
    }
    return tti_bpe_finish(bpe);
}
