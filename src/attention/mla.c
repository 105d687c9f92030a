/* mla.c - multi-head latent attention in its absorbed form, for every row: the cache holds
 * c[kv_rank] and one rotary key a token.
 *
 *   q_low[h] = Wk[h]^T q_nope[h]          score = (q_low . c + q_rope . k_rope) * scale
 *   o_low[h] = sum_j p_j c_j              o[h] = Wv[h] o_low[h]
 * Source: arXiv:2405.04434 section 2.1. */
#include "attention_internal.h"
#include <string.h>

typedef struct mla_task {
    tt_attention *attention;
    int64_t layer;
    const tt_batch *batch;
} mla_task;

/* The norm between the two low-rank products of q. */
static void query_norm_part(void *arg, int thread_id, int n_threads)
{
    const mla_task *task = arg;
    tt_attention *attention = task->attention;
    const tt_arch *arch = attention->arch;
    int64_t begin, end, rank = arch->q_rank;
    tt_split(task->batch->T, n_threads, thread_id, &begin, &end);
    float *q_low = attention->q_low + begin * rank;
    ttk.rmsnorm_f32(q_low, rank, q_low, rank, attention->layer[task->layer].q_a_norm.x, end - begin,
                    rank, arch->mla_norm_eps);
}

void tti_mla_store(const tt_attention *attention, void *page, int64_t token, const float *latent)
{
    const tt_arch *arch = attention->arch;
    int64_t r = arch->kv_rank, at = token * attention->key_width;
    int64_t scale_at = TTK_PAGE * attention->key_width + token * (int64_t)sizeof(float);
    tti_kv_store(attention->kv, page, at, scale_at, latent, r);
    tti_kv_store(attention->kv, page, at + r, scale_at + TTI_KV_SCALES, latent + r, arch->rope_dim);
}

/* The latent of each row: norm, rotation, store. */
static void latent_part(void *arg, int thread_id, int n_threads)
{
    const mla_task *task = arg;
    tt_attention *attention = task->attention;
    const tt_arch *arch = attention->arch;
    const tti_attention_layer *layer = &attention->layer[task->layer];
    int64_t begin, end, r = arch->kv_rank;
    tt_split(task->batch->T, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *latent = attention->latent + t * attention->key_width;
        int64_t position = attention->row_position[t];
        ttk.rmsnorm_f32(latent, r, latent, r, layer->kv_a_norm.x, 1, r, arch->mla_norm_eps);
        if (arch->layer[task->layer].rope) {
            tti_rotary rotary = tti_attention_rotary(attention, task->batch, t);
            ttk.rope_f32(latent + r, 1, arch->rope_dim, arch->rope_dim, rotary.cos, rotary.sin,
                         arch->rope.interleaved);
        }
        const tt_batch_sequence *sequence = &task->batch->sequence[attention->row_sequence[t]];
        void *page = tti_kv_page(attention->kv, task->layer, sequence->page[position / TTK_PAGE]);
        tti_mla_store(attention, page, position % TTK_PAGE, latent);
    }
}

/* Queries in the latent space. A unit is one head and a run of rows. */
static void absorb_query_part(void *arg, int thread_id, int n_threads)
{
    const mla_task *task = arg;
    tt_attention *attention = task->attention;
    const tt_arch *arch = attention->arch;
    int64_t T = task->batch->T, n_heads = attention->n_heads;
    int64_t q_head = arch->nope_dim + arch->rope_dim, begin, end;
    int64_t full_row = n_heads * attention->key_width;
    tt_split(T * n_heads, n_threads, thread_id, &begin, &end);
    while (begin < end) { /* units in the order head, row */
        int64_t h = begin / T, t = begin % T;
        int64_t n = end - begin < T - t ? end - begin : T - t;
        const float *q = attention->q + t * attention->q_width + h * q_head;
        float *full = attention->q_full + t * full_row + h * attention->key_width;
        /* the latent products stay in f32 */
        const tt_rows rows = tt_rows_plain(q, attention->q_width);
        tt_linear_part(&attention->layer[task->layer].wk[h], full, full_row, &rows, n, 0, 1);
        for (int64_t i = 0; i < n; i++) {
            float *rotary = full + i * full_row + arch->kv_rank;
            memcpy(rotary, q + i * attention->q_width + arch->nope_dim,
                   (size_t)arch->rope_dim * sizeof(float));
            if (arch->layer[task->layer].rope) {
                tti_rotary angles = tti_attention_rotary(attention, task->batch, t + i);
                ttk.rope_f32(rotary, 1, arch->rope_dim, arch->rope_dim, angles.cos, angles.sin,
                             arch->rope.interleaved);
            }
        }
        begin += n;
    }
}

/* Values from the latent space. */
static void expand_value_part(void *arg, int thread_id, int n_threads)
{
    const mla_task *task = arg;
    tt_attention *attention = task->attention;
    const tt_arch *arch = attention->arch;
    int64_t T = task->batch->T, n_heads = attention->n_heads, begin, end;
    int64_t heads_row = arch->Nq * arch->v_dim, low_row = n_heads * arch->kv_rank;
    tt_split(T * n_heads, n_threads, thread_id, &begin, &end);
    while (begin < end) {
        int64_t h = begin / T, t = begin % T;
        int64_t n = end - begin < T - t ? end - begin : T - t;
        const tt_rows rows =
            tt_rows_plain(attention->o_low + t * low_row + h * arch->kv_rank, low_row);
        tt_linear_part(&attention->layer[task->layer].wv[h],
                       attention->heads + t * heads_row +
                           (attention->role->head_begin + h) * arch->v_dim,
                       heads_row, &rows, n, 0, 1);
        begin += n;
    }
}

void tti_mla_heads(tt_attention *attention, int64_t layer_id, const tt_batch *batch,
                   const tt_rows *x)
{
    const tt_arch *arch = attention->arch;
    const tti_attention_layer *layer = &attention->layer[layer_id];
    int64_t T = batch->T;
    mla_task task = {attention, layer_id, batch};
    tt_linear_run(&layer->kv_a, attention->compute, "kv_a", attention->latent, attention->key_width,
                  x, T);
    if (arch->q_rank > 0) {
        tt_linear_run(&layer->q_a, attention->compute, "q_a", attention->q_low, arch->q_rank, x, T);
        tt_stream_run(attention->compute, "query norm", query_norm_part, &task);
        const tt_act act = tt_linear_act(&layer->q_b, attention->layout->act);
        tt_rows low = tt_rows_round(act, attention->compute, attention->rounded, attention->q_low,
                                    arch->q_rank, T, arch->q_rank);
        tt_linear_run(&layer->q_b, attention->compute, "q_b", attention->q, attention->q_width,
                      &low, T);
    } else {
        tt_linear_run(&layer->q, attention->compute, "q", attention->q, attention->q_width, x, T);
    }
    tt_stream_run(attention->compute, "store latent", latent_part, &task);
    tt_stream_run(attention->compute, "absorb query", absorb_query_part, &task);

    tti_attend_job job = {0};
    job.layer = &arch->layer[layer_id];
    job.q = attention->q_full;
    job.q_row = attention->n_heads * attention->key_width;
    job.q_head = attention->key_width;
    job.out = attention->o_low;
    job.out_row = attention->n_heads * arch->kv_rank;
    job.out_head = arch->kv_rank;
    job.Dk = attention->key_width;
    job.Dv = arch->kv_rank;
    job.n_heads = attention->n_heads;
    job.k_stride = attention->key_width;
    job.v_stride = attention->key_width;
    job.k_scales = TTK_PAGE * attention->key_width;
    job.v_scales = job.k_scales; /* a latent is key and value */
    job.tail_scales = job.k_scales + TTI_KV_SCALES;
    job.k_tail = attention->kv->type == TTK_I8 ? arch->rope_dim : 0;
    job.key_bytes = (int64_t)tt_plan_kv_token_bytes(arch, attention->layout->kv, 1);
    tti_attend_rows(attention, batch, &job);
    tt_stream_run(attention->compute, "expand value", expand_value_part, &task);
}
