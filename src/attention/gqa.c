/* gqa.c - grouped-query attention: project, normalise, rotate, store keys and values, attend, gate.
 * With a norm over the whole projection (TT_QK_NORM_WHOLE) every TP rank projects all heads, since
 * the norm needs them all. */
#include "attention_internal.h"

typedef struct prepare_task {
    tt_attention *attention;
    int64_t layer;
    const tt_batch *batch;
    bool whole;               /* rows of q and k hold all TP ranks' heads */
    int64_t q_first, k_first; /* the first local head in a row of q, of k */
} prepare_task;

static void clip(float *x, int64_t n, float limit)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
    }
}

/* q or k of a row: x[n][D], of which [first, first + n_local) heads are this rank's. Without a norm
 * over the whole row it holds just those. */
typedef struct row_heads {
    float *x;
    int64_t n, n_local, first;
    const float *norm; /* its weights */
} row_heads;

/* Norm of each head or, if whole, of all of the row at once. */
static void normalise(const prepare_task *task, const row_heads *heads)
{
    const tt_arch *arch = task->attention->arch;
    int64_t width = task->whole ? heads->n * arch->D : arch->D;
    ttk.rmsnorm_f32(heads->x, width, heads->x, width, heads->norm, task->whole ? 1 : heads->n,
                    width, arch->norm_eps);
}

/* Of row t. */
static void rotate(const prepare_task *task, float *x, int64_t n_heads, int64_t t)
{
    const tt_attention *attention = task->attention;
    const tt_rope *rope = &attention->arch->rope;
    tti_rotary rotary = tti_attention_rotary(attention, task->batch, t);
    ttk.rope_f32(x, n_heads, attention->arch->D, rope->dim, rotary.cos, rotary.sin,
                 rope->interleaved);
}

/* Norm, clipping and rotation of row t; returns its local heads. */
static float *prepare_heads(const prepare_task *task, const row_heads *heads, int64_t t)
{
    const tt_arch *arch = task->attention->arch;
    const tt_layer *kind = &arch->layer[task->layer];
    bool has_norm = arch->qk_norm != TT_QK_NORM_NONE && kind->qk_norm;
    float *local = heads->x + heads->first * arch->D;
    if (has_norm && !arch->qk_norm_after_rope) {
        normalise(task, heads);
    }
    if (arch->clip_qkv > 0.0f) {
        clip(local, heads->n_local * arch->D, arch->clip_qkv);
    }
    if (has_norm && arch->qk_norm_after_rope) {
        if (kind->rope) {
            rotate(task, heads->x, heads->n, t);
        }
        normalise(task, heads);
    } else if (kind->rope) {
        rotate(task, local, heads->n_local, t);
    }
    return local;
}

void tti_gqa_store(const tt_attention *attention, void *page, int64_t token, int64_t h,
                   const float *k, const float *v)
{
    int64_t D = attention->arch->D, part = h * tti_kv_head_elements(attention->kv, D),
            key_at = part + token * D;
    int64_t scale_at = part + 2 * TTK_PAGE * D + token * (int64_t)sizeof(float);
    tti_kv_store(attention->kv, page, key_at, scale_at, k, D);
    tti_kv_store(attention->kv, page, key_at + TTK_PAGE * D, scale_at + TTI_KV_SCALES, v, D);
}

/* Norms, clipping and rotation of one row's q and k; then its keys and values go to their page. */
static void prepare_row(const prepare_task *task, int64_t t)
{
    tt_attention *attention = task->attention;
    const tt_arch *arch = attention->arch;
    const tti_attention_layer *layer = &attention->layer[task->layer];
    int64_t D = arch->D, n_heads = attention->n_heads, n_kv = attention->n_kv;
    int64_t position = attention->row_position[t];
    const row_heads of_q = {attention->q + t * layer->q.N, layer->q.N / D, n_heads, task->q_first,
                            layer->q_norm.x};
    const row_heads of_k = {attention->k + t * layer->k.N, layer->k.N / D, n_kv, task->k_first,
                            layer->k_norm.x};
    float *q = prepare_heads(task, &of_q, t), *k = prepare_heads(task, &of_k, t);
    float *v = attention->v + t * n_kv * D;
    if (arch->clip_qkv > 0.0f) {
        clip(v, n_kv * D, arch->clip_qkv);
    }
    if (arch->layer[task->layer].scale_queries) {
        float scale = attention->query_scale.x[position];
        for (int64_t i = 0; i < n_heads * D; i++) {
            q[i] *= scale;
        }
    }
    const tt_batch_sequence *sequence = &task->batch->sequence[attention->row_sequence[t]];
    void *page = tti_kv_page(attention->kv, task->layer, sequence->page[position / TTK_PAGE]);
    int64_t token = position % TTK_PAGE;
    for (int64_t h = 0; h < n_kv; h++) {
        tti_gqa_store(attention, page, token, h, k + h * D, v + h * D);
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

/* heads *= sigmoid(gate), both of local heads. */
static void gate_part(void *arg, int thread_id, int n_threads)
{
    const prepare_task *task = arg;
    tt_attention *attention = task->attention;
    int64_t D = attention->arch->D, n_heads = attention->n_heads, begin, end;
    tt_split(task->batch->T * n_heads, n_threads, thread_id, &begin, &end);
    ttk.sigmoid_f32(attention->gate + begin * D, (end - begin) * D);
    for (int64_t i = begin; i < end; i++) {
        const float *gate = attention->gate + i * D;
        float *out = attention->heads + i / n_heads * attention->arch->Nq * D +
                     (attention->role->head_begin + i % n_heads) * D;
        for (int64_t d = 0; d < D; d++) {
            out[d] *= gate[d];
        }
    }
}

static void attend(tt_attention *attention, const prepare_task *task)
{
    const tt_arch *arch = attention->arch;
    const tti_attention_layer *layer = &attention->layer[task->layer];
    int64_t D = arch->D;
    tti_attend_job job = {0};
    job.layer = &arch->layer[task->layer];
    job.sinks = layer->sinks.x;
    job.q = attention->q + task->q_first * D;
    job.q_row = layer->q.N;
    job.q_head = D;
    job.out = attention->heads + attention->role->head_begin * D;
    job.out_row = arch->Nq * D;
    job.out_head = D;
    job.Dk = D;
    job.Dv = D;
    job.n_heads = attention->n_heads;
    job.heads_per_kv = arch->Nq / arch->Nkv;
    job.k_part = tti_kv_head_elements(attention->kv, D);
    job.k_stride = D;
    job.v_offset = TTK_PAGE * D;
    job.v_stride = D;
    job.k_scales = 2 * TTK_PAGE * D;
    job.v_scales = job.k_scales + TTI_KV_SCALES;
    job.key_bytes = (int64_t)tt_plan_kv_token_bytes(arch, attention->layout->kv, 1);
    tti_attend_rows(attention, task->batch, &job);
}

void tti_gqa_heads(tt_attention *attention, int64_t layer_id, const tt_batch *batch,
                   const tt_rows *x)
{
    const tt_arch *arch = attention->arch;
    const tti_attention_layer *layer = &attention->layer[layer_id];
    int64_t T = batch->T;
    bool whole = tti_norm_is_whole(arch, layer_id);
    prepare_task task = {attention,
                         layer_id,
                         batch,
                         whole,
                         whole ? attention->role->head_begin : 0,
                         whole ? attention->role->kv_begin : 0};
    tt_linear_run(&layer->q, attention->compute, "q", attention->q, layer->q.N, x, T);
    tt_linear_run(&layer->k, attention->compute, "k", attention->k, layer->k.N, x, T);
    tt_linear_run(&layer->v, attention->compute, "v", attention->v, layer->v.N, x, T);
    tt_stream_run(attention->compute, "rotate and store", prepare_part, &task);
    attend(attention, &task);
    if (arch->attention_gate) {
        tt_linear_run(&layer->gate, attention->compute, "gate", attention->gate, layer->gate.N, x,
                      T);
        tt_stream_run(attention->compute, "gate heads", gate_part, &task);
    }
}
