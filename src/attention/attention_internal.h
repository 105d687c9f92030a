/* attention_internal.h - what the files of this room share. */
#ifndef TUTTI_ATTENTION_INTERNAL_H
#define TUTTI_ATTENTION_INTERNAL_H
#include "tutti/attention.h"
#include "tutti/memory.h"

/* ---- kv.c ----
 * One buffer: part [layer][page], each part `page_elements` long. Within a GQA part, KV head h has its 16 keys, then its 16 values; a
 * latent part is 16 rows of [c | rotary key]. */
struct tt_kv {
    ttk_dtype type;
    int64_t L, n_pages, page_elements;
    void *data;
    size_t bytes;
    int32_t *references; /* references[n_pages] */
    int64_t n_free;
};
/* Where page `page` of `layer` begins. */
void *tti_kv_page(const tt_kv *kv, int64_t layer, int32_t page);
/* Rounds n floats to the cache's type at element `at` of a page. */
void tti_kv_store(const tt_kv *kv, void *page, int64_t at, const float *x, int64_t n);

/* ---- the weights of one layer on this rank ---- */
typedef struct tti_attention_layer {
    tt_linear q, k, v;       /* GQA; MLA without low rank: q */
    tt_linear q_a, q_b, kv_a; /* MLA */
    tt_linear *wk, *wv;      /* MLA, per local head: [kv_rank][nope], [v_dim][kv_rank] */
    tt_linear o;             /* columns of this TP rank */
    float *q_norm, *k_norm;  /* GQA */
    float *q_a_norm, *kv_a_norm; /* MLA */
} tti_attention_layer;

struct tt_attention {
    const tt_arch *arch;
    const tt_layout *layout;
    const tt_rank_role *role;
    tt_world *world;
    tt_kv *kv;
    tt_stream *compute;
    tti_attention_layer *layer; /* layer[L] */
    tt_gather *gather;          /* TP group */
    int64_t n_heads, n_kv;      /* local */
    int64_t head_width;         /* of the output of one head: D or v_dim */
    int64_t q_width;            /* row of q: all projected heads */
    int64_t key_width;          /* MLA: kv_rank + rope_dim */
    float *cos, *sin;           /* [context][rope.dim / 2] */
    /* step work, sized for max_rows_group rows */
    tt_arena arena;
    float *q, *k, *v;           /* [T][q_width], [T][n_kv * D] x2 */
    float *q_low;               /* MLA: [T][q_rank] */
    float *latent;              /* MLA: [T][key_width] */
    float *q_full, *o_low;      /* MLA: [T][n_heads][key_width], [T][n_heads][kv_rank] */
    float *heads;               /* [T][Nq * head_width]: outputs of all TP ranks' heads */
    const void **page_table;    /* [max sequences' pages in all] of the layer at hand */
    int64_t *page_begin;        /* [max sequences] */
    int64_t *row_sequence;      /* [T] */
    int64_t *row_position;      /* [T] */
    float *attend_work;         /* [n_threads][attend_floats] */
    int64_t attend_floats;
    int64_t page_table_size;
    uint64_t weight_bytes;
    uint64_t kv_bytes_read;
};

/* ---- one file per kind of attention: from normed rows x[T][H] to this rank's columns of heads[T][..] ---- */
void tti_gqa_heads(tt_attention *attention, int64_t layer, const tt_batch *batch, const float *x);
void tti_mla_heads(tt_attention *attention, int64_t layer, const tt_batch *batch, const float *x);

/* ---- attend.c ---- */
/* Describes the attention of all rows: n_groups sets of heads that share keys. */
typedef struct tti_attend_job {
    const float *q;      /* row t, head h at q + t*q_row + h*q_head */
    int64_t q_row, q_head;
    float *out;          /* likewise */
    int64_t out_row, out_head;
    int64_t Dk, Dv;
    int64_t n_heads;     /* local heads */
    int64_t heads_per_kv; /* of the model; 0: all heads share the one key */
    int64_t k_part, k_stride, v_offset, v_stride; /* elements: of one KV head in a page, ... */
} tti_attend_job;
void tti_attend_rows(tt_attention *attention, const tt_batch *batch, const tti_attend_job *job);

#endif
