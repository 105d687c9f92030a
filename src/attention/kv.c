/* kv.c - the pool of KV pages. A page holds TTK_PAGE tokens of one sequence for every attention
 * layer; it is free or taken by one sequence. The lowest free page is taken first, so that all ranks of a
 * TP group, who see the same requests, choose alike. */
#include "attention_internal.h"
#include <stdlib.h>
#include <string.h>

tt_status tt_kv_create(const tt_arch *arch, const tt_layout *layout, int rank, int node,
                       tt_kv **kv_out)
{
    const tt_rank_role *role = &layout->role[rank];
    tt_kv *kv = calloc(1, sizeof(*kv));
    TT_CHECK(kv, TT_ERR_NOMEM, "no memory for the KV cache");
    kv->type = layout->kv == TT_KV_INT8 ? TTK_I8 : layout->kv == TT_KV_BF16 ? TTK_BF16 : TTK_F32;
    kv->ordinal = calloc((size_t)arch->L + 1, sizeof(*kv->ordinal));
    for (int64_t l = 0; kv->ordinal && l < arch->L; l++) {
        kv->ordinal[l] = arch->layer[l].mixer == TT_MIXER_ATTENTION ? kv->n_layers++ : -1;
    }
    kv->n_pages = role->dp_id >= 0 ? layout->kv_pages : 0;
    kv->n_free = kv->n_pages;
    kv->page_bytes =
        TTK_PAGE * (size_t)tt_plan_kv_token_bytes(arch, layout->kv, role->kv_end - role->kv_begin);
    kv->bytes = (size_t)kv->n_layers * (size_t)kv->n_pages * kv->page_bytes;
    tt_status st = tt_memory_alloc("the KV cache", kv->bytes, node, &kv->data);
    if (st == TT_OK) {
        kv->is_taken = calloc((size_t)kv->n_pages + 1, sizeof(*kv->is_taken));
        st = kv->is_taken && kv->ordinal ? TT_OK
                                         : TT_FAIL(TT_ERR_NOMEM, "no memory for the KV page table");
    }
    if (st != TT_OK) {
        tt_kv_destroy(&kv);
        return st;
    }
    *kv_out = kv;
    return TT_OK;
}

void tt_kv_destroy(tt_kv **kv_ptr)
{
    tt_kv *kv = *kv_ptr;
    if (kv) {
        tt_memory_free(kv->data, kv->bytes);
        free(kv->is_taken);
        free(kv->ordinal);
        free(kv);
        *kv_ptr = NULL;
    }
}

tt_status tt_kv_acquire(tt_kv *kv, int64_t n, int32_t *page)
{
    TT_CHECK(n <= kv->n_free, TT_ERR_CAPACITY, "%lld KV pages asked for, %lld are free",
             (long long)n, (long long)kv->n_free);
    int64_t found = 0;
    for (int64_t p = 0; found < n; p++) {
        TT_ASSERT(p < kv->n_pages);
        if (!kv->is_taken[p]) {
            kv->is_taken[p] = true;
            page[found++] = (int32_t)p;
        }
    }
    kv->n_free -= n;
    return TT_OK;
}

void tt_kv_release(tt_kv *kv, const int32_t *page, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        TT_ASSERT(kv->is_taken[page[i]]);
        kv->is_taken[page[i]] = false;
    }
    kv->n_free += n;
}

void *tti_kv_page(const tt_kv *kv, int64_t layer, int32_t page)
{
    TT_ASSERT(kv->ordinal[layer] >= 0);
    size_t part = (size_t)kv->ordinal[layer] * (size_t)kv->n_pages + (size_t)page;
    return (unsigned char *)kv->data + part * kv->page_bytes;
}

void tti_kv_store(const tt_kv *kv, void *page, int64_t at, int64_t scale_at, const float *x,
                  int64_t n)
{
    if (kv->type == TTK_I8) {
        const ttk_format format = {.code = TTK_I8, .scale = TTK_F32, .group = (int32_t)n};
        const ttk_unpacked to = {.code = (int8_t *)page + at, .scale = (int8_t *)page + scale_at};
        ttk.quantize(&format, x, 1, n, &to);
    } else if (kv->type == TTK_BF16) {
        ttk.f32_to_bf16((ttk_bf16 *)page + at, x, n);
    } else {
        memcpy((float *)page + at, x, (size_t)n * sizeof(float));
    }
}
