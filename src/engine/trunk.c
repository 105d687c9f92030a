/* trunk.c - what surrounds the layers: embedding, norms, head, residual sums; their weights and the step's buffers. */
#include "engine_internal.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/trace.h"

static tt_status load_embedding(tt_engine *engine, tt_load_params *load)
{
    tt_tensor tensor = tt_model_tensor(load->model, TT_ROLE_EMBED, 0, 0);
    bool is_bf16 = tensor.format.code == TTK_BF16;
    engine->embedding_type = is_bf16 ? TTK_BF16 : TTK_F32;
    engine->embedding_bytes =
        (size_t)tensor.rows * (size_t)tensor.cols * ttk_dtype_bytes(engine->embedding_type);
    TT_TRY(tt_memory_alloc(tensor.name, engine->embedding_bytes, load->node, &engine->embedding));
    if (is_bf16) {
        ttk_unpacked rows;
        TT_TRY(tt_model_read_rows(load->model, &tensor, 0, tensor.rows, engine->embedding, &rows));
    } else {
        TT_TRY(tt_model_read_f32(load->model, &tensor, 0, tensor.rows, engine->embedding));
    }
    load->read_bytes += tt_tensor_file_bytes(&tensor, tensor.rows);
    load->packed_bytes += engine->embedding_bytes;
    return TT_OK;
}

tt_status tti_trunk_load(tt_engine *engine, tt_load_params *load)
{
    if (engine->role->dp_id < 0) {
        return TT_OK;
    }
    int64_t L = engine->arch->L, H = engine->arch->H, end;
    TT_TRY(load_embedding(engine, load));
    engine->attention_norm = calloc((size_t)L, sizeof(float *));
    engine->ffn_norm = calloc((size_t)L, sizeof(float *));
    TT_CHECK(engine->attention_norm && engine->ffn_norm, TT_ERR_NOMEM, "no memory for norms");
    for (int64_t l = 0; l < L; l++) {
        tt_tensor norm = tt_model_tensor(load->model, TT_ROLE_ATTENTION_NORM, l, 0);
        TT_TRY(tt_load_vector(load, &norm, 0, H, &engine->attention_norm[l]));
        norm = tt_model_tensor(load->model, TT_ROLE_FFN_NORM, l, 0);
        TT_TRY(tt_load_vector(load, &norm, 0, H, &engine->ffn_norm[l]));
    }
    tt_tensor norm = tt_model_tensor(load->model, TT_ROLE_FINAL_NORM, 0, 0);
    TT_TRY(tt_load_vector(load, &norm, 0, H, &engine->final_norm));
    tt_tensor head = tt_model_tensor(load->model, TT_ROLE_HEAD, 0, 0);
    tt_layout_columns(engine->arch->V, engine->layout->tp, engine->role->tp_id,
                      &engine->head_begin, &end);
    return tt_load_linear(load, &head, engine->head_begin, end - engine->head_begin, &engine->head);
}

static void take_all(tt_engine *engine, tt_arena *arena)
{
    int64_t T = engine->role->dp_id >= 0 ? engine->layout->max_rows_group : 1;
    int64_t n_threads = tt_stream_n_threads(engine->compute), V = engine->arch->V;
    int64_t head_rows = engine->role->dp_id >= 0 ? TTI_HEAD_ROWS : 0;
    engine->x = tt_arena_take(arena, T * engine->arch->H, sizeof(float));
    engine->h = tt_arena_take(arena, T * engine->arch->H, sizeof(float));
    engine->y = tt_arena_take(arena, T * engine->arch->H, sizeof(float));
    engine->head_x = tt_arena_take(arena, head_rows * engine->arch->H, sizeof(float));
    /* Rank 0 also receives logits here, one row at a time. */
    engine->logits = tt_arena_take(arena, (head_rows > 0 ? head_rows : 1) * V, sizeof(float));
    engine->head_token = tt_arena_take(arena, T, sizeof(int32_t));
    engine->head_nll = tt_arena_take(arena, TTI_HEAD_ROWS, sizeof(double));
    engine->thread_status = tt_arena_take(arena, n_threads, sizeof(tt_status));
    engine->sample_work_bytes = tti_sampler_work_bytes(V);
    engine->sample_work =
        tt_arena_take(arena, head_rows ? n_threads : 0, engine->sample_work_bytes);
}

tt_status tti_trunk_make_buffers(tt_engine *engine, int node)
{
    tt_arena count = {0};
    take_all(engine, &count);
    TT_TRY(tt_arena_init(&engine->arena, "step buffers", count.used_bytes, node));
    take_all(engine, &engine->arena);
    return TT_OK;
}

void tti_trunk_free(tt_engine *engine)
{
    size_t norm_bytes = (size_t)engine->arch->H * sizeof(float);
    tt_memory_free(engine->embedding, engine->embedding_bytes);
    for (int64_t l = 0; l < engine->arch->L; l++) {
        if (engine->attention_norm) {
            tt_memory_free(engine->attention_norm[l], norm_bytes);
        }
        if (engine->ffn_norm) {
            tt_memory_free(engine->ffn_norm[l], norm_bytes);
        }
    }
    free(engine->attention_norm);
    free(engine->ffn_norm);
    tt_memory_free(engine->final_norm, norm_bytes);
    tt_linear_fini(&engine->head);
    tt_arena_fini(&engine->arena);
}

typedef struct row_task {
    const tt_engine *engine;
    const int32_t *token;
    const float *norm, *x;
    float *y;
    int64_t n;
} row_task;

static void embed_part(void *arg, int thread_id, int n_threads)
{
    const row_task *task = arg;
    const tt_engine *engine = task->engine;
    int64_t H = engine->arch->H, begin, end;
    tt_split(task->n, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int64_t at = (int64_t)task->token[t] * H;
        if (engine->embedding_type == TTK_BF16) {
            ttk.bf16_to_f32(task->y + t * H, (const ttk_bf16 *)engine->embedding + at, H);
        } else {
            memcpy(task->y + t * H, (const float *)engine->embedding + at,
                   (size_t)H * sizeof(float));
        }
    }
}

void tti_trunk_embed(tt_engine *engine, const int32_t *token, int64_t T, float *x)
{
    tt_span span = tt_span_begin(TT_PHASE_EMBED, "embed");
    row_task task = {engine, token, NULL, NULL, x, T};
    tt_stream_run(engine->compute, "embed", embed_part, &task);
    uint64_t bytes = (uint64_t)T * (uint64_t)engine->arch->H * ttk_dtype_bytes(engine->embedding_type);
    engine->trunk_bytes_read += bytes;
    tt_span_end(&span, bytes);
}

static void norm_part(void *arg, int thread_id, int n_threads)
{
    const row_task *task = arg;
    int64_t H = task->engine->arch->H, begin, end;
    tt_split(task->n, n_threads, thread_id, &begin, &end);
    ttk.rmsnorm_f32(task->y + begin * H, H, task->x + begin * H, H, task->norm, end - begin, H,
                    task->engine->arch->norm_eps);
}

void tti_trunk_norm(tt_engine *engine, const float *norm, const float *x, float *h, int64_t T)
{
    row_task task = {engine, NULL, norm, x, h, T};
    tt_stream_run(engine->compute, "norm", norm_part, &task);
}
