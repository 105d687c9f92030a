/* trunk.c - what surrounds the layers: embedding, norms, head, residual sums; their weights and the
 * step's buffers. */
#include "engine_internal.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/trace.h"

static tt_status load_embedding(tt_engine *engine, tt_load_params *load)
{
    tt_tensor tensor = tt_model_tensor(load->model, TT_ROLE_EMBED, 0, 0);
    return tt_load_table(load, &tensor, &engine->embedding);
}

/* The bias's role follows the weight's. */
static tt_status load_norm(tt_engine *engine, tt_load_params *load, tt_role role, int64_t layer,
                           tti_norm *norm)
{
    tt_tensor weight = tt_model_tensor(load->model, role, layer, 0);
    TT_TRY(tt_load_vector(load, &weight, 0, engine->arch->H, &norm->weight));
    if (engine->arch->norm == TT_NORM_LAYER) {
        tt_tensor bias = tt_model_tensor(load->model, (tt_role)(role + 1), layer, 0);
        TT_TRY(tt_load_vector(load, &bias, 0, engine->arch->H, &norm->bias));
    }
    return TT_OK;
}

static tt_status load_head(tt_engine *engine, tt_load_params *load)
{
    int64_t end;
    tt_tensor head = tt_model_tensor(load->model, TT_ROLE_HEAD, 0, 0);
    tt_layout_columns(engine->arch->V, engine->layout->tp, engine->role->tp_id, &engine->head_begin,
                      &end);
    TT_TRY(
        tt_load_linear(load, &head, engine->head_begin, end - engine->head_begin, &engine->head));
    if (engine->arch->head_bias) {
        tt_tensor bias = tt_model_tensor(load->model, TT_ROLE_HEAD_BIAS, 0, 0);
        TT_TRY(tt_load_vector(load, &bias, engine->head_begin, end - engine->head_begin,
                              &engine->head.bias));
    }
    return TT_OK;
}

tt_status tti_trunk_load(tt_engine *engine, tt_load_params *load)
{
    if (engine->role->dp_id < 0) {
        return TT_OK;
    }
    int64_t L = engine->arch->L;
    TT_TRY(load_embedding(engine, load));
    engine->attention_norm = calloc((size_t)L + 1, sizeof(*engine->attention_norm));
    engine->ffn_norm = calloc((size_t)L + 1, sizeof(*engine->ffn_norm));
    TT_CHECK(engine->attention_norm && engine->ffn_norm, TT_ERR_NOMEM, "no memory for norms");
    for (int64_t l = 0; l < L; l++) {
        TT_TRY(load_norm(engine, load, TT_ROLE_ATTENTION_NORM, l, &engine->attention_norm[l]));
        TT_TRY(load_norm(engine, load, TT_ROLE_FFN_NORM, l, &engine->ffn_norm[l]));
    }
    TT_TRY(load_norm(engine, load, TT_ROLE_FINAL_NORM, 0, &engine->final_norm));
    return load_head(engine, load);
}

static void take_all(tt_engine *engine, tt_arena *arena)
{
    int64_t T = engine->role->dp_id >= 0 ? engine->layout->max_rows_group : 1;
    int64_t n_threads = tt_stream_n_threads(engine->compute), V = engine->arch->V;
    int64_t head_rows = engine->role->dp_id >= 0 ? TT_HEAD_ROWS : 0;
    engine->x = tt_arena_take(arena, T * engine->arch->H, sizeof(float));
    engine->h = tt_arena_take(arena, T * engine->arch->H, sizeof(float));
    engine->y = tt_arena_take(arena, T * engine->arch->H, sizeof(float));
    engine->head_x = tt_arena_take(arena, head_rows * engine->arch->H, sizeof(float));
    engine->head_rounded = tt_arena_take(
        arena, (int64_t)tt_rows_bytes(engine->layout->act, head_rows, engine->arch->H), 1);
    /* Rank 0 also receives logits here, one row at a time. */
    engine->logits = tt_arena_take(arena, (head_rows > 0 ? head_rows : 1) * V, sizeof(float));
    engine->head_token = tt_arena_take(arena, T, sizeof(int32_t));
    engine->head_nll = tt_arena_take(arena, TT_HEAD_ROWS, sizeof(double));
    engine->head_found = tt_arena_take(arena, head_rows ? n_threads : 0, tti_head_work_bytes());
    engine->head_best = tt_arena_take(arena, engine->layout->tp * 2 * TT_HEAD_ROWS, sizeof(float));
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

static void free_norm(const tt_engine *engine, tti_norm *norm)
{
    size_t bytes = (size_t)engine->arch->H * sizeof(float);
    tt_memory_free(norm->weight, bytes);
    tt_memory_free(norm->bias, bytes);
}

void tti_trunk_free(tt_engine *engine)
{
    tt_table_fini(&engine->embedding);
    for (int64_t l = 0; l < engine->arch->L; l++) {
        if (engine->attention_norm) {
            free_norm(engine, &engine->attention_norm[l]);
        }
        if (engine->ffn_norm) {
            free_norm(engine, &engine->ffn_norm[l]);
        }
    }
    free(engine->attention_norm);
    free(engine->ffn_norm);
    free_norm(engine, &engine->final_norm);
    tt_linear_fini(&engine->head);
    tt_arena_fini(&engine->arena);
}

/* ---- embedding ---- */

typedef struct row_task {
    const tt_engine *engine;
    const int32_t *token;
    const tti_norm *norm;
    const float *x;
    float *y;
    int64_t n;
} row_task;

/* Row `row` of the unpacked rows, as rows of one. */
static ttk_unpacked embedding_row(const tt_engine *engine, int64_t row)
{
    const ttk_format *format = &engine->embedding.format;
    int64_t H = engine->arch->H;
    ttk_unpacked rows = engine->embedding.rows, one = rows;
    one.code = (const unsigned char *)rows.code + (size_t)(row * H) * ttk_dtype_bytes(format->code);
    if (ttk_format_is_plain(format)) {
        return one;
    }
    int64_t groups = (H + format->group - 1) / format->group;
    size_t scales = (size_t)(row * groups) * ttk_dtype_bytes(format->scale);
    one.scale = (const unsigned char *)rows.scale + scales;
    if (rows.shift) {
        one.shift = (const unsigned char *)rows.shift +
                    (format->shift == TTK_SHIFT_ZERO ? (size_t)(row * groups) : scales);
    }
    if (rows.super_scale) {
        int64_t supers = (groups + format->super - 1) / format->super;
        one.super_scale = (const uint16_t *)rows.super_scale + row * supers;
        if (rows.super_shift) {
            one.super_shift = (const uint16_t *)rows.super_shift + row * supers;
        }
    }
    return one;
}

static void embed_part(void *arg, int thread_id, int n_threads)
{
    const row_task *task = arg;
    const tt_engine *engine = task->engine;
    float scale = engine->arch->embedding_scale;
    int64_t H = engine->arch->H, begin, end;
    tt_split(task->n, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = task->y + t * H;
        ttk_unpacked row = embedding_row(engine, task->token[t]);
        if (engine->embedding.format.code == TTK_BF16) {
            ttk.bf16_to_f32(y, row.code, H);
        } else if (engine->embedding.format.code == TTK_F32) {
            memcpy(y, row.code, (size_t)H * sizeof(float));
        } else {
            ttk_unpacked_to_f32(&engine->embedding.format, &row, 1, H, y);
        }
        for (int64_t h = 0; scale != 1.0f && h < H; h++) {
            y[h] *= scale;
        }
    }
}

void tti_trunk_embed(tt_engine *engine, const int32_t *token, int64_t T, float *x)
{
    tt_span span = tt_span_begin(TT_PHASE_EMBED, "embed");
    row_task task = {engine, token, NULL, NULL, x, T};
    tt_stream_run(engine->compute, "embed", embed_part, &task);
    uint64_t bytes = (uint64_t)T * (engine->embedding.bytes / (uint64_t)engine->arch->V);
    engine->trunk_bytes_read += bytes;
    tt_span_end(&span, bytes);
}

/* ---- norms ---- */

void tti_norm_rows(const tt_arch *arch, const tti_norm *norm, float *y, const float *x, int64_t n)
{
    if (arch->norm == TT_NORM_LAYER) {
        ttk.layernorm_f32(y, arch->H, x, arch->H, norm->weight, norm->bias, n, arch->H,
                          arch->norm_eps);
    } else {
        ttk.rmsnorm_f32(y, arch->H, x, arch->H, norm->weight, n, arch->H, arch->norm_eps);
    }
}

static void norm_part(void *arg, int thread_id, int n_threads)
{
    const row_task *task = arg;
    int64_t H = task->engine->arch->H, begin, end;
    tt_split(task->n, n_threads, thread_id, &begin, &end);
    tti_norm_rows(task->engine->arch, task->norm, task->y + begin * H, task->x + begin * H,
                  end - begin);
}

void tti_trunk_norm(tt_engine *engine, const tti_norm *norm, const float *x, float *h, int64_t T)
{
    row_task task = {engine, NULL, norm, x, h, T};
    tt_stream_run(engine->compute, "norm", norm_part, &task);
}
