/* attention_internal.h - what the files of this room share. */
#ifndef TUTTI_ATTENTION_INTERNAL_H
#define TUTTI_ATTENTION_INTERNAL_H
#include "tutti/attention.h"
#include "tutti/memory.h"

/* ---- kv.c ----
 * One buffer: part [attention layer][page], each part `page_bytes` long. Within a GQA part, KV head
 * h has its 16 keys, then its 16 values; a latent part is 16 rows of [c | rotary key]. With int8,
 * scales follow, f32 scale[16] each: behind a head's values those of its keys and of its values;
 * behind the latents those of c and of the rotary keys, whose sizes have nothing to do with each
 * other: c comes from a norm. */
struct tt_kv {
    ttk_dtype type;   /* TTK_F32, TTK_BF16 or TTK_I8 */
    int64_t n_layers; /* that cache keys */
    int64_t *ordinal; /* ordinal[L]: which of them a layer is; -1 for others */
    int64_t n_pages;
    size_t page_bytes;
    void *data;
    size_t bytes;
    bool *is_taken; /* is_taken[n_pages] */
    int64_t n_free;
};
/* Where page `page` of `layer` begins. */
void *tti_kv_page(const tt_kv *kv, int64_t layer, int32_t page);
/* Rounds n floats to the cache's type at element `at` of a page; with TTK_I8 their scale goes to
 * byte `scale_at`. One that is not finite makes that NaN. */
void tti_kv_store(const tt_kv *kv, void *page, int64_t at, int64_t scale_at, const float *x,
                  int64_t n);
enum { TTI_KV_SCALES = TTK_PAGE * sizeof(float) }; /* bytes of one kind of a page's scales */
/* Elements of a KV head in a page; with TTK_I8 a byte is one. */
static inline int64_t tti_kv_head_elements(const tt_kv *kv, int64_t D)
{
    return 2 * TTK_PAGE * D + (kv->type == TTK_I8 ? 2 * TTI_KV_SCALES : 0);
}

enum { TTI_MAX_TAPS = 16 }; /* of a gated delta layer's convolution */

/* ---- weights.c: the weights of one layer on this rank ---- */

/* Owned; x NULL and n 0 where the model has none. */
typedef struct tti_vector {
    float *x;
    int64_t n;
} tti_vector;

typedef struct tti_attention_layer {
    tt_linear q, k, v;                 /* GQA; MLA without low rank: q; gated delta net: what its
                                        * convolution reads */
    tt_linear gate;                    /* GQA: of head outputs; gated delta net: z */
    tt_linear q_a, q_b, kv_a;          /* MLA */
    tt_linear *wk, *wv;                /* MLA, per local head: [kv_rank][nope], [v_dim][kv_rank] */
    tt_linear beta, decay;             /* gated delta net: [local value heads][H] */
    tt_linear o;                       /* columns of this TP rank */
    tti_vector q_norm, k_norm;         /* GQA */
    tti_vector sinks;                  /* GQA: of local heads */
    tti_vector q_a_norm, kv_a_norm;    /* MLA */
    tti_vector conv;                   /* gated delta net: [taps][channels] */
    tti_vector decay_bias, decay_rate; /* of all value heads */
    tti_vector delta_norm;             /* [Dv] */
    float *state;                      /* gated delta net: [slot][state_floats] */
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
    int64_t q_width;            /* MLA: row of q, all local heads */
    int64_t key_width;          /* MLA: kv_rank + rope_dim */
    tt_delta_heads delta_heads; /* local heads of gated delta layers */
    int64_t channels;           /* of their convolution: local q, k, v */
    int64_t state_floats;       /* of one sequence in one gated delta layer */
    int64_t heads_stride;       /* elements from row to row of heads, of any layer at most */
    tti_vector cos[2], sin[2];  /* [positions][rope.dim / 2]: of tt_rope's plain table and of its
                                 * long one, empty where no sequence uses it */
    tti_vector query_scale;     /* [context]; of layers with scale_queries */
    /* step work, sized for max_rows_group rows */
    tt_arena arena;
    void *rounded;            /* [T] rows of a product's inputs as the layout's `act` has them */
    float *q, *k, *v;         /* [T][row of q], [T][row of k], [T][n_kv * D] */
    float *gate;              /* GQA: [T][n_heads * D] */
    float *q_low;             /* MLA: [T][q_rank] */
    float *latent;            /* MLA: [T][key_width] */
    float *q_full, *o_low;    /* MLA: [T][n_heads][key_width], [T][n_heads][kv_rank] */
    float *mixed, *convolved; /* gated delta net: [T][channels], before and after the
                               * convolution */
    float *z;                 /* [T][local value heads * Dv] */
    float *beta, *decay;      /* [T][local value heads] */
    float *zeros;             /* [channels]: inputs before position 0 */
    float *q_unit, *k_unit;   /* [Dk]: all equal, see delta.c */
    float *heads;             /* [T][all TP ranks' heads]: their outputs */
    const void **page_table;  /* [max sequences' pages in all] of the layer at hand; invisible
                               * pages are not filled in */
    int64_t *page_begin;      /* [max sequences] */
    int64_t *row_sequence;    /* [T] */
    int64_t *row_position;    /* [T] */
    float *attend_work;       /* [n_threads][attend_floats] */
    int64_t attend_floats;
    struct tti_attend_tile *tile; /* [T], of the layer at hand */
    int64_t *row_first;           /* [T]: the first position that a row sees in that layer */
    float *parts;                 /* [parts_floats]: parts of blocks on their way, see attend.c */
    int64_t parts_floats;
    float *merge_state; /* [T][n_heads][2] */
    float *fill_work;   /* [n_threads][fill_floats]: a key and a value, or a latent */
    int64_t fill_floats;
    int64_t page_table_size;
    uint64_t weight_bytes;
    uint64_t kv_bytes_read; /* and states */
};

/* Loads layer[l] of this rank; counts into weight_bytes. */
tt_status tti_attention_load_layer(tt_attention *attention, tt_load_params *load, int64_t layer_id);
void tti_attention_free_layer(tti_attention_layer *layer, int64_t n_heads);
void tti_vector_free(tti_vector *vector);

/* The norm of q and k spans all heads there, so every TP rank projects them all. */
static inline bool tti_norm_is_whole(const tt_arch *arch, int64_t layer)
{
    return arch->qk_norm == TT_QK_NORM_WHOLE && arch->layer[layer].qk_norm;
}
/* The first position that a query at `position` sees. */
static inline int64_t tti_first_visible(const tt_layer *layer, int64_t position)
{
    int64_t first =
        layer->window > 0 && position >= layer->window ? position - layer->window + 1 : 0;
    int64_t chunk = layer->chunk > 0 ? position / layer->chunk * layer->chunk : 0;
    return first > chunk ? first : chunk;
}

/* ---- tables.c: what depends on positions alone, made with the C library and compared between
 * ranks ---- */
tt_status tti_attention_make_tables(tt_attention *attention);
/* MPI: collective; ranks without attention role pass nothing. Errors: TT_ERR_MISMATCH. */
tt_status tti_attention_agree_on_tables(tt_attention *attention);

/* ---- one file per kind of mixer: from normed rows x[T][H] to this rank's columns of
 * heads[T][..] ---- */
void tti_gqa_heads(tt_attention *attention, int64_t layer, const tt_batch *batch, const tt_rows *x);
void tti_mla_heads(tt_attention *attention, int64_t layer, const tt_batch *batch, const tt_rows *x);
/* Puts key and value of local KV head h, k[D] and v[D], or a latent[key_width], at `token` of a
 * page. */
void tti_gqa_store(const tt_attention *attention, void *page, int64_t token, int64_t h,
                   const float *k, const float *v);
void tti_mla_store(const tt_attention *attention, void *page, int64_t token, const float *latent);
void tti_delta_heads(tt_attention *attention, int64_t layer, const tt_batch *batch,
                     const tt_rows *x);

/* Cosines and sines of the position of row t of the batch, from the table that its sequence
 * uses. */
typedef struct tti_rotary {
    const float *cos, *sin; /* [rope.dim / 2] */
} tti_rotary;
tti_rotary tti_attention_rotary(const tt_attention *attention, const tt_batch *batch, int64_t t);

/* ---- attend.c ---- */
/* Rows of one sequence that share a call, and the blocks that they see together. */
typedef struct tti_attend_tile {
    int64_t row, n_rows;
    int64_t block, n_blocks;
    int64_t unit; /* units of work before its own */
} tti_attend_tile;
/* Describes the attention of all rows: sets of heads that share keys. */
typedef struct tti_attend_job {
    const tt_layer *layer; /* what is visible */
    const float *sinks;    /* [local heads] or NULL */
    const float *q;        /* row t, head h at q + t*q_row + h*q_head */
    int64_t q_row, q_head;
    float *out; /* likewise */
    int64_t out_row, out_head;
    int64_t Dk, Dv;
    int64_t n_heads;                              /* local heads */
    int64_t heads_per_kv;                         /* of the model; 0: all heads share the one key */
    int64_t k_part, k_stride, v_offset, v_stride; /* elements: of one KV head in a page, ... */
    int64_t k_scales, v_scales, tail_scales, k_tail; /* TTK_I8, as in ttk_attend_args; from the
                                                      * KV head's part */
    int64_t key_bytes; /* of a token's key and value, with their scales */
} tti_attend_job;
void tti_attend_rows(tt_attention *attention, const tt_batch *batch, const tti_attend_job *job);

#endif
