/* gqa.c - grouped-query attention: project, normalise, rotate, store keys and values, attend.
 * With a norm over the whole projection (TT_QK_NORM_WHOLE) every TP rank projects all heads, since the norm needs them all. */
#include "attention_internal.h"

typedef struct prepare_task {
    tt_attention *attention;
    int64_t layer;
    const tt_batch *batch;
    int64_t q_first, k_first; /* element of the first local head in a row of q, of k */
    int64_t q_width, k_width; /* of a row of q, of k and v */
} prepare_task;

static void clip(float *x, int64_t n, float limit)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
    }
}

/* Norms, clipping and rotation of one row's q and k; then its keys and values go to their page. */
static void prepare_row(const prepare_task *task, int64_t t)
{
    tt_attention *attention = task->attention;
    const tt_arch *arch = attention->arch;
    const tti_attention_layer *layer = &attention->layer[task->layer];
    int64_t D = arch->D, n_kv = attention->n_kv;
    float *q = attention->q + t * task->q_width, *k = attention->k + t * task->k_width;
    float *v = attention->v + t * n_kv * D;
    if (arch->qk_norm == TT_QK_NORM_WHOLE) {
        ttk.rmsnorm_f32(q, task->q_width, q, task->q_width, layer->q_norm, 1, task->q_width,
                        arch->norm_eps);
        ttk.rmsnorm_f32(k, task->k_width, k, task->k_width, layer->k_norm, 1, task->k_width,
                        arch->norm_eps);
    }
    q += task->q_first;
    k += task->k_first;
    if (arch->qk_norm == TT_QK_NORM_HEAD) {
        ttk.rmsnorm_f32(q, D, q, D, layer->q_norm, attention->n_heads, D, arch->norm_eps);
        ttk.rmsnorm_f32(k, D, k, D, layer->k_norm, n_kv, D, arch->norm_eps);
    }
    if (arch->clip_qkv > 0.0f) {
        clip(q, attention->n_heads * D, arch->clip_qkv);
        clip(k, n_kv * D, arch->clip_qkv);
        clip(v, n_kv * D, arch->clip_qkv);
    }
    int64_t position = attention->row_position[t], half = arch->rope.dim / 2;
    const float *cos = attention->cos + position * half, *sin = attention->sin + position * half;
    ttk.rope_f32(q, attention->n_heads, D, arch->rope.dim, cos, sin, arch->rope.interleaved);
    ttk.rope_f32(k, n_kv, D, arch->rope.dim, cos, sin, arch->rope.interleaved);

    const tt_batch_sequence *sequence = &task->batch->sequence[attention->row_sequence[t]];
    void *page = tti_kv_page(attention->kv, task->layer, sequence->page[position / TTK_PAGE]);
    int64_t token = position % TTK_PAGE;
    for (int64_t h = 0; h < n_kv; h++) {
        int64_t key_at = h * 2 * TTK_PAGE * D + token * D;
        tti_kv_store(attention->kv, page, key_at, k + h * D, D);
        tti_kv_store(attention->kv, page, key_at + TTK_PAGE * D, v + h * D, D);
    }
}

static void prepare_part(void *arg, int thread_id, int n_threads)
{
    const prepare_task *task = arg;
    int64_t begin, end;
    tt_split(task->batch->T, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        prepare_row(task, t);
    }
}

void tti_gqa_heads(tt_attention *attention, int64_t layer_id, const tt_batch *batch, const float *x)
{
    const tt_arch *arch = attention->arch;
    const tti_attention_layer *layer = &attention->layer[layer_id];
    const tt_rank_role *role = attention->role;
    int64_t T = batch->T, D = arch->D;
    bool whole = arch->qk_norm == TT_QK_NORM_WHOLE;
    tt_linear_run(&layer->q, attention->compute, "q", attention->q, layer->q.N, x, arch->H, T);
    tt_linear_run(&layer->k, attention->compute, "k", attention->k, layer->k.N, x, arch->H, T);
    tt_linear_run(&layer->v, attention->compute, "v", attention->v, layer->v.N, x, arch->H, T);
    prepare_task task = {attention, layer_id, batch, whole ? role->head_begin * D : 0,
                         whole ? role->kv_begin * D : 0, layer->q.N, layer->k.N};
    tt_stream_run(attention->compute, "rotate and store", prepare_part, &task);

    tti_attend_job job = {0};
    job.q = attention->q + task.q_first;
    job.q_row = layer->q.N;
    job.q_head = D;
    job.out = attention->heads + role->head_begin * D;
    job.out_row = arch->Nq * D;
    job.out_head = D;
    job.Dk = D;
    job.Dv = D;
    job.n_heads = attention->n_heads;
    job.heads_per_kv = arch->Nq / arch->Nkv;
    job.k_part = 2 * TTK_PAGE * D;
    job.k_stride = D;
    job.v_offset = TTK_PAGE * D;
    job.v_stride = D;
    tti_attend_rows(attention, batch, &job);
}
