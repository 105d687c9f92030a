/* attention.c - life of the attention layers, rotary tables, and the frame that both kinds share: heads, gather, o_proj columns,
 * gather. */
#include "attention_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/trace.h"

/* ---- weights ---- */

/* Heads [head, head + n_heads) of width `width` of a projection, with its bias if it has one. */
static tt_status load_heads(tt_load_params *load, tt_role role, tt_role bias_role, int64_t layer,
                            int64_t head, int64_t n_heads, int64_t width, tt_linear *linear)
{
    tt_tensor tensor = tt_model_tensor(load->model, role, layer, 0);
    TT_TRY(tt_load_linear(load, &tensor, head * width, n_heads * width, linear));
    if (bias_role < TT_ROLE_COUNT) {
        tensor = tt_model_tensor(load->model, bias_role, layer, 0);
        TT_TRY(tt_load_vector(load, &tensor, head * width, n_heads * width, &linear->bias));
    }
    return TT_OK;
}

static tt_status load_norm(tt_load_params *load, tt_role role, int64_t layer, float **norm)
{
    tt_tensor tensor = tt_model_tensor(load->model, role, layer, 0);
    return tt_load_vector(load, &tensor, 0, tensor.name ? tensor.rows * tensor.cols : 0, norm);
}

static tt_status load_gqa(tt_attention *attention, tt_load_params *load, int64_t l)
{
    const tt_arch *arch = attention->arch;
    const tt_rank_role *role = attention->role;
    tti_attention_layer *layer = &attention->layer[l];
    bool whole = arch->qk_norm == TT_QK_NORM_WHOLE;
    TT_TRY(load_heads(load, TT_ROLE_Q, TT_ROLE_Q_BIAS, l, whole ? 0 : role->head_begin,
                      whole ? arch->Nq : attention->n_heads, arch->D, &layer->q));
    TT_TRY(load_heads(load, TT_ROLE_K, TT_ROLE_K_BIAS, l, whole ? 0 : role->kv_begin,
                      whole ? arch->Nkv : attention->n_kv, arch->D, &layer->k));
    TT_TRY(load_heads(load, TT_ROLE_V, TT_ROLE_V_BIAS, l, role->kv_begin, attention->n_kv, arch->D,
                      &layer->v));
    if (arch->qk_norm != TT_QK_NORM_NONE) {
        TT_TRY(load_norm(load, TT_ROLE_Q_NORM, l, &layer->q_norm));
        TT_TRY(load_norm(load, TT_ROLE_K_NORM, l, &layer->k_norm));
    }
    return TT_OK;
}

static tt_status load_mla(tt_attention *attention, tt_load_params *load, int64_t l)
{
    const tt_arch *arch = attention->arch;
    const tt_rank_role *role = attention->role;
    tti_attention_layer *layer = &attention->layer[l];
    int64_t q_head = arch->nope_dim + arch->rope_dim, kv_head = arch->nope_dim + arch->v_dim;
    if (arch->q_rank > 0) {
        TT_TRY(load_heads(load, TT_ROLE_Q_A, TT_ROLE_COUNT, l, 0, 1, arch->q_rank, &layer->q_a));
        TT_TRY(load_norm(load, TT_ROLE_Q_A_NORM, l, &layer->q_a_norm));
        TT_TRY(load_heads(load, TT_ROLE_Q_B, TT_ROLE_COUNT, l, role->head_begin, attention->n_heads,
                          q_head, &layer->q_b));
    } else {
        TT_TRY(load_heads(load, TT_ROLE_Q, TT_ROLE_COUNT, l, role->head_begin, attention->n_heads,
                          q_head, &layer->q));
    }
    TT_TRY(load_heads(load, TT_ROLE_KV_A, TT_ROLE_COUNT, l, 0, 1, attention->key_width,
                      &layer->kv_a));
    TT_TRY(load_norm(load, TT_ROLE_KV_A_NORM, l, &layer->kv_a_norm));
    layer->wk = calloc((size_t)attention->n_heads, sizeof(*layer->wk));
    layer->wv = calloc((size_t)attention->n_heads, sizeof(*layer->wv));
    TT_CHECK(layer->wk && layer->wv, TT_ERR_NOMEM, "no memory for %lld heads",
             (long long)attention->n_heads);
    tt_tensor kv_b = tt_model_tensor(load->model, TT_ROLE_KV_B, l, 0);
    tt_tensor k_b = tt_model_tensor(load->model, TT_ROLE_MLA_K, l, 0);
    tt_tensor v_b = tt_model_tensor(load->model, TT_ROLE_MLA_V, l, 0);
    for (int64_t h = 0; h < attention->n_heads && arch->mla_split; h++) {
        int64_t head = role->head_begin + h;
        TT_TRY(tt_load_linear(load, &k_b, head * arch->kv_rank, arch->kv_rank, &layer->wk[h]));
        TT_TRY(tt_load_linear(load, &v_b, head * arch->v_dim, arch->v_dim, &layer->wv[h]));
    }
    for (int64_t h = 0; h < attention->n_heads && !arch->mla_split; h++) {
        int64_t row = (role->head_begin + h) * kv_head;
        TT_TRY(tt_load_linear_transposed(load, &kv_b, row, arch->nope_dim, &layer->wk[h]));
        TT_TRY(tt_load_linear(load, &kv_b, row + arch->nope_dim, arch->v_dim, &layer->wv[h]));
    }
    return TT_OK;
}

static tt_status load_layer(tt_attention *attention, tt_load_params *load, int64_t l)
{
    tti_attention_layer *layer = &attention->layer[l];
    if (attention->arch->attention == TT_ATTENTION_MLA) {
        TT_TRY(load_mla(attention, load, l));
    } else {
        TT_TRY(load_gqa(attention, load, l));
    }
    int64_t begin, end;
    tt_layout_columns(attention->arch->H, attention->layout->tp, attention->role->tp_id, &begin,
                      &end);
    TT_TRY(load_heads(load, TT_ROLE_O, TT_ROLE_O_BIAS, l, begin, end - begin, 1, &layer->o));
    const tt_linear *all[] = {&layer->q,   &layer->k,    &layer->v, &layer->q_a,
                              &layer->q_b, &layer->kv_a, &layer->o};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        attention->weight_bytes += tt_linear_bytes(all[i]);
    }
    for (int64_t h = 0; layer->wk && h < attention->n_heads; h++) {
        attention->weight_bytes += tt_linear_bytes(&layer->wk[h]) + tt_linear_bytes(&layer->wv[h]);
    }
    return TT_OK;
}

/* ---- rotary tables ----
 * angle = (float)position * inv_freq in float, as the reference computes it; cosine and sine of that in double, rounded once. The C
 * library's last digit may differ between machines, so all ranks compare the tables. */
static tt_status make_rotary(tt_attention *attention)
{
    const tt_rope *rope = &attention->arch->rope;
    int64_t half = rope->dim / 2, context = attention->layout->context;
    size_t bytes = (size_t)(context * half) * sizeof(float);
    void *cosines = NULL, *sines = NULL;
    TT_TRY(tt_memory_alloc("rotary tables", bytes, TT_MEMORY_ANY_NODE, &cosines));
    attention->cos = cosines;
    TT_TRY(tt_memory_alloc("rotary tables", bytes, TT_MEMORY_ANY_NODE, &sines));
    attention->sin = sines;
    for (int64_t p = 0; p < context; p++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)((float)p * rope->inv_freq[i]);
            attention->cos[p * half + i] = (float)(cos(angle) * (double)rope->attention_factor);
            attention->sin[p * half + i] = (float)(sin(angle) * (double)rope->attention_factor);
        }
    }
    return TT_OK;
}

/* FNV-1a over both tables. */
static uint64_t hash_rotary(const tt_attention *attention)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    int64_t n = attention->layout->context * (attention->arch->rope.dim / 2);
    const float *tables[] = {attention->cos, attention->sin};
    for (int i = 0; i < 2; i++) {
        for (int64_t j = 0; j < n; j++) {
            uint32_t bits;
            memcpy(&bits, &tables[i][j], sizeof(bits));
            hash = (hash ^ bits) * UINT64_C(1099511628211);
        }
    }
    return hash;
}

/* ---- buffers ---- */

/* Sets all work pointers; with arena->base NULL it only counts. */
static void take_all(tt_attention *attention, tt_arena *arena)
{
    const tt_arch *arch = attention->arch;
    const tt_layout *layout = attention->layout;
    int64_t T = layout->max_rows_group, n_heads = attention->n_heads;
    bool is_mla = arch->attention == TT_ATTENTION_MLA;
    attention->q = tt_arena_take(arena, T * attention->q_width, sizeof(float));
    int64_t k_heads = arch->qk_norm == TT_QK_NORM_WHOLE ? arch->Nkv : attention->n_kv;
    attention->k = tt_arena_take(arena, is_mla ? 0 : T * k_heads * arch->D, sizeof(float));
    attention->v = tt_arena_take(arena, is_mla ? 0 : T * attention->n_kv * arch->D, sizeof(float));
    attention->q_low = tt_arena_take(arena, T * arch->q_rank, sizeof(float));
    attention->latent = tt_arena_take(arena, T * attention->key_width, sizeof(float));
    attention->q_full = tt_arena_take(arena, T * n_heads * attention->key_width, sizeof(float));
    attention->o_low = tt_arena_take(arena, is_mla ? T * n_heads * arch->kv_rank : 0, sizeof(float));
    attention->heads = tt_arena_take(arena, T * arch->Nq * attention->head_width, sizeof(float));
    int64_t pages = (layout->context + TTK_PAGE - 1) / TTK_PAGE;
    attention->page_table_size = layout->max_batch_group * pages;
    attention->page_table = tt_arena_take(arena, attention->page_table_size, sizeof(void *));
    attention->page_begin = tt_arena_take(arena, layout->max_batch_group, sizeof(int64_t));
    attention->row_sequence = tt_arena_take(arena, T, sizeof(int64_t));
    attention->row_position = tt_arena_take(arena, T, sizeof(int64_t));
    int64_t Dk = is_mla ? attention->key_width : arch->D;
    int64_t floats = (int64_t)ttk_attend_work_floats(n_heads, Dk, is_mla ? arch->kv_rank : arch->D);
    int64_t line = TT_CACHE_LINE / (int64_t)sizeof(float);
    attention->attend_floats = (floats + line - 1) / line * line;
    attention->attend_work =
        tt_arena_take(arena, tt_stream_n_threads(attention->compute) * attention->attend_floats, sizeof(float));
}

static tt_status create_local(tt_attention *attention, tt_load_params *load)
{
    if (attention->role->dp_id < 0) {
        return TT_OK;
    }
    TT_TRY(make_rotary(attention));
    tt_arena count = {0};
    take_all(attention, &count);
    TT_TRY(tt_arena_init(&attention->arena, "attention work buffers", count.used_bytes, load->node));
    take_all(attention, &attention->arena);
    attention->layer = calloc((size_t)attention->arch->L, sizeof(*attention->layer));
    TT_CHECK(attention->layer, TT_ERR_NOMEM, "no memory for attention layers");
    for (int64_t l = 0; l < attention->arch->L; l++) {
        TT_TRY(load_layer(attention, load, l));
    }
    return TT_OK;
}

/* All attention ranks must have made the same rotary table; others pass the table of nobody. */
static tt_status agree_on_rotary(tt_attention *attention)
{
    int64_t max_min[2]; /* max(hash), max(-1 - hash) over attention ranks; equal iff all are */
    uint64_t hash = attention->role->dp_id >= 0 ? hash_rotary(attention) >> 1 : 0;
    max_min[0] = attention->role->dp_id >= 0 ? (int64_t)hash : INT64_MIN;
    max_min[1] = attention->role->dp_id >= 0 ? -1 - (int64_t)hash : INT64_MIN;
    TT_TRY(tt_world_max_i64(attention->world, max_min, 2));
    TT_CHECK(max_min[0] == -1 - max_min[1], TT_ERR_MISMATCH,
             "ranks computed different rotary tables: their C libraries differ");
    return TT_OK;
}

tt_status tt_attention_create(const tt_attention_params *params, tt_attention **attention_out)
{
    const tt_arch *arch = tt_model_arch(params->model);
    const tt_layout *layout = params->layout;
    tt_attention *attention = calloc(1, sizeof(*attention));
    tt_status st = tt_world_agree(
        params->world, attention ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for attention"));
    if (st != TT_OK) {
        free(attention);
        return st;
    }
    attention->arch = arch;
    attention->layout = layout;
    attention->role = &layout->role[tt_world_rank(params->world)];
    attention->world = params->world;
    attention->kv = params->kv;
    attention->compute = params->compute;
    attention->n_heads = attention->role->head_end - attention->role->head_begin;
    attention->n_kv = attention->role->kv_end - attention->role->kv_begin;
    if (arch->attention == TT_ATTENTION_MLA) {
        attention->head_width = arch->v_dim;
        attention->key_width = arch->kv_rank + arch->rope_dim;
        attention->q_width = attention->n_heads * (arch->nope_dim + arch->rope_dim);
    } else {
        attention->head_width = arch->D;
        attention->q_width =
            (arch->qk_norm == TT_QK_NORM_WHOLE ? arch->Nq : attention->n_heads) * arch->D;
    }
    st = tt_world_agree(params->world, create_local(attention, params->load));
    if (st == TT_OK) {
        st = agree_on_rotary(attention);
    }
    if (st == TT_OK) {
        int64_t begin, end, most_heads = (arch->Nq + layout->tp - 1) / layout->tp;
        tt_layout_columns(arch->H, layout->tp, 0, &begin, &end);
        int64_t width = most_heads * attention->head_width;
        width = width > end - begin ? width : end - begin;
        int n = attention->role->dp_id >= 0 ? layout->tp : 0;
        const int *member = n ? layout->attention_rank + attention->role->dp_id * layout->tp : NULL;
        st = tt_gather_create(params->world, member, n, layout->max_rows_group * width,
                              &attention->gather);
    }
    if (st != TT_OK) {
        tt_attention_destroy(&attention);
        return st;
    }
    *attention_out = attention;
    return TT_OK;
}

static void free_vector(float *vector, int64_t n)
{
    tt_memory_free(vector, (size_t)n * sizeof(float));
}

void tt_attention_destroy(tt_attention **attention_ptr)
{
    tt_attention *attention = *attention_ptr;
    if (!attention) {
        return;
    }
    const tt_arch *arch = attention->arch;
    tt_gather_destroy(&attention->gather);
    bool whole = arch->qk_norm == TT_QK_NORM_WHOLE;
    for (int64_t l = 0; attention->layer && l < arch->L; l++) {
        tti_attention_layer *layer = &attention->layer[l];
        tt_linear *all[] = {&layer->q,   &layer->k,    &layer->v, &layer->q_a,
                            &layer->q_b, &layer->kv_a, &layer->o};
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            tt_linear_fini(all[i]);
        }
        for (int64_t h = 0; h < attention->n_heads; h++) {
            if (layer->wk) {
                tt_linear_fini(&layer->wk[h]);
            }
            if (layer->wv) {
                tt_linear_fini(&layer->wv[h]);
            }
        }
        free(layer->wk);
        free(layer->wv);
        free_vector(layer->q_norm, whole ? arch->Nq * arch->D : arch->D);
        free_vector(layer->k_norm, whole ? arch->Nkv * arch->D : arch->D);
        free_vector(layer->q_a_norm, arch->q_rank);
        free_vector(layer->kv_a_norm, arch->kv_rank);
    }
    free(attention->layer);
    free_vector(attention->cos, attention->layout->context * (arch->rope.dim / 2));
    free_vector(attention->sin, attention->layout->context * (arch->rope.dim / 2));
    tt_arena_fini(&attention->arena);
    free(attention);
    *attention_ptr = NULL;
}

/* ---- forward ---- */

/* Tables that the row loops use: each row's position and sequence, each sequence's pages of this layer. */
static void index_rows(tt_attention *attention, int64_t layer, const tt_batch *batch)
{
    int64_t used = 0;
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        const tt_batch_sequence *sequence = &batch->sequence[s];
        int64_t n_pages = (sequence->position + sequence->n_rows + TTK_PAGE - 1) / TTK_PAGE;
        TT_ASSERT(used + n_pages <= attention->page_table_size);
        attention->page_begin[s] = used;
        for (int64_t p = 0; p < n_pages; p++) {
            attention->page_table[used + p] = tti_kv_page(attention->kv, layer, sequence->page[p]);
        }
        used += n_pages;
        for (int64_t i = 0; i < sequence->n_rows; i++) {
            attention->row_sequence[sequence->first_row + i] = s;
            attention->row_position[sequence->first_row + i] = sequence->position + i;
        }
    }
}

tt_status tt_attention_forward(tt_attention *attention, int64_t layer, const tt_batch *batch,
                               const float *x, float *y)
{
    int64_t T = batch->T, H = attention->arch->H;
    if (T == 0) {
        return TT_OK;
    }
    const tt_layout *layout = attention->layout;
    tt_rect head_rect[TT_LAYOUT_MAX_SPLIT], out_rect[TT_LAYOUT_MAX_SPLIT];
    for (int part = 0; part < layout->tp; part++) {
        const tt_rank_role *role =
            &layout->role[layout->attention_rank[attention->role->dp_id * layout->tp + part]];
        tt_rect heads = {0, T, role->head_begin * attention->head_width,
                         (role->head_end - role->head_begin) * attention->head_width};
        tt_rect out = {0, T, 0, 0};
        tt_layout_columns(H, layout->tp, part, &out.col, &out.n_cols);
        out.n_cols -= out.col;
        head_rect[part] = heads;
        out_rect[part] = out;
    }
    tt_span span = tt_span_begin(TT_PHASE_ATTENTION, "attention");
    index_rows(attention, layer, batch);
    uint64_t bytes_before = attention->kv_bytes_read;
    if (attention->arch->attention == TT_ATTENTION_MLA) {
        tti_mla_heads(attention, layer, batch, x);
    } else {
        tti_gqa_heads(attention, layer, batch, x);
    }
    int64_t heads_row = attention->arch->Nq * attention->head_width;
    TT_TRY(tt_gather_exec(attention->gather, attention->heads, heads_row, head_rect, TT_GATHER_ALL,
                          attention->compute));
    const tt_linear *o = &attention->layer[layer].o;
    tt_linear_run(o, attention->compute, "o", y + out_rect[attention->role->tp_id].col, H,
                  attention->heads, heads_row, T);
    TT_TRY(tt_gather_exec(attention->gather, y, H, out_rect, TT_GATHER_ALL, attention->compute));
    tt_span_end(&span, attention->weight_bytes / (uint64_t)attention->arch->L +
                           (attention->kv_bytes_read - bytes_before));
    return TT_OK;
}

uint64_t tt_attention_weight_bytes(const tt_attention *attention)
{
    return attention->weight_bytes;
}

uint64_t tt_attention_kv_bytes_read(const tt_attention *attention)
{
    return attention->kv_bytes_read;
}
