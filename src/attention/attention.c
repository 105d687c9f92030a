/* attention.c - life of the attention layers, and the frame that all kinds of mixers share: heads,
 * gather, columns of the output product, gather. */
#include "attention_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/trace.h"

/* ---- buffers ---- */

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Floats of each row that grouped-query layers need: of q, and of k. */
static void count_gqa(const tt_attention *attention, int64_t *q_out, int64_t *k_out)
{
    const tt_arch *arch = attention->arch;
    bool whole = false;
    for (int64_t l = 0; l < arch->L; l++) {
        whole = whole || tti_norm_is_whole(arch, l);
    }
    *q_out = (whole ? arch->Nq : attention->n_heads) * arch->D;
    *k_out = (whole ? arch->Nkv : attention->n_kv) * arch->D;
}

/* Buffers of the kind of attention at hand. */
static void take_attention(tt_attention *attention, tt_arena *arena)
{
    const tt_arch *arch = attention->arch;
    int64_t T = attention->layout->max_rows_group, n_heads = attention->n_heads,
            line = TT_CACHE_LINE / (int64_t)sizeof(float);
    bool is_mla = arch->attention == TT_ATTENTION_MLA;
    int64_t q_width = attention->q_width, k_width = 0, v_width = 0;
    if (!is_mla) {
        count_gqa(attention, &q_width, &k_width);
        v_width = attention->n_kv * arch->D;
    }
    attention->q = tt_arena_take(arena, T * q_width, sizeof(float));
    attention->k = tt_arena_take(arena, T * k_width, sizeof(float));
    attention->v = tt_arena_take(arena, T * v_width, sizeof(float));
    attention->gate =
        tt_arena_take(arena, arch->attention_gate ? T * n_heads * arch->D : 0, sizeof(float));
    attention->q_low = tt_arena_take(arena, T * arch->q_rank, sizeof(float));
    attention->latent = tt_arena_take(arena, T * attention->key_width, sizeof(float));
    attention->q_full = tt_arena_take(arena, T * n_heads * attention->key_width, sizeof(float));
    attention->o_low =
        tt_arena_take(arena, is_mla ? T * n_heads * arch->kv_rank : 0, sizeof(float));
    int64_t Dk = is_mla ? attention->key_width : arch->D;
    int64_t floats =
        (int64_t)ttk_attend_work_floats(TT_ATTEND_QUERIES, Dk, is_mla ? arch->kv_rank : arch->D);
    attention->attend_floats = (floats + line - 1) / line * line;
    attention->attend_work = tt_arena_take(
        arena, tt_stream_n_threads(attention->compute) * attention->attend_floats, sizeof(float));
    attention->tile = tt_arena_take(arena, T, sizeof(*attention->tile));
    attention->row_first = tt_arena_take(arena, T, sizeof(int64_t));
    attention->parts_floats = tt_plan_attend_parts_floats(arch, attention->layout, attention->role);
    attention->parts = tt_arena_take(arena, attention->parts_floats, sizeof(float));
    attention->merge_state = tt_arena_take(arena, T * n_heads * 2, sizeof(float));
    attention->fill_floats = is_mla ? attention->key_width : 2 * arch->D;
    attention->fill_work = tt_arena_take(
        arena, tt_stream_n_threads(attention->compute) * attention->fill_floats, sizeof(float));
}

/* Buffers of gated delta layers; empty where the model has none. */
static void take_delta(tt_attention *attention, tt_arena *arena)
{
    const tt_delta *delta = &attention->arch->delta;
    int64_t T = attention->layout->max_rows_group, Dk = delta->Nk > 0 ? delta->Dk : 0;
    int64_t n_values = attention->delta_heads.value_end - attention->delta_heads.value_begin;
    attention->mixed = tt_arena_take(arena, T * attention->channels, sizeof(float));
    attention->convolved = tt_arena_take(arena, T * attention->channels, sizeof(float));
    attention->z = tt_arena_take(arena, T * n_values * delta->Dv, sizeof(float));
    attention->beta = tt_arena_take(arena, T * n_values, sizeof(float));
    attention->decay = tt_arena_take(arena, T * n_values, sizeof(float));
    attention->zeros = tt_arena_take(arena, attention->channels, sizeof(float));
    attention->q_unit = tt_arena_take(arena, Dk, sizeof(float));
    attention->k_unit = tt_arena_take(arena, Dk, sizeof(float));
}

/* Sets all work pointers; with arena->base NULL it only counts. */
static void take_all(tt_attention *attention, tt_arena *arena)
{
    const tt_layout *layout = attention->layout;
    int64_t T = layout->max_rows_group, pages = (layout->context + TTK_PAGE - 1) / TTK_PAGE;
    const int64_t widest =
        most(most(attention->arch->H, attention->arch->q_rank), attention->heads_stride);
    attention->rounded = tt_arena_take(arena, (int64_t)tt_rows_bytes(layout->act, T, widest), 1);
    take_attention(attention, arena);
    take_delta(attention, arena);
    attention->heads = tt_arena_take(arena, T * attention->heads_stride, sizeof(float));
    attention->page_table_size = layout->max_batch_group * pages;
    attention->page_table = tt_arena_take(arena, attention->page_table_size, sizeof(void *));
    attention->page_begin = tt_arena_take(arena, layout->max_batch_group, sizeof(int64_t));
    attention->row_sequence = tt_arena_take(arena, T, sizeof(int64_t));
    attention->row_position = tt_arena_take(arena, T, sizeof(int64_t));
}

/* What buffers hold from the start. */
static void fill_constants(tt_attention *attention)
{
    const tt_delta *delta = &attention->arch->delta;
    if (attention->channels > 0) {
        memset(attention->zeros, 0, (size_t)attention->channels * sizeof(float));
        for (int64_t i = 0; i < delta->Dk; i++) {
            attention->q_unit[i] = 1.0f / (float)delta->Dk;
            attention->k_unit[i] = 1.0f / sqrtf((float)delta->Dk);
        }
    }
}

static tt_status check_delta(const tt_delta *delta)
{
    TT_CHECK(delta->Nk == 0 || (delta->Nv >= delta->Nk && delta->Nv % delta->Nk == 0),
             TT_ERR_UNSUPPORTED, "%lld key heads do not divide %lld value heads",
             (long long)delta->Nk, (long long)delta->Nv);
    TT_CHECK(delta->Nk == 0 || (delta->conv >= 1 && delta->conv <= TTI_MAX_TAPS),
             TT_ERR_UNSUPPORTED, "a convolution over %lld positions; at most %d are supported",
             (long long)delta->conv, TTI_MAX_TAPS);
    return TT_OK;
}

static tt_status create_local(tt_attention *attention, tt_load_params *load)
{
    if (attention->role->dp_id < 0) {
        return TT_OK;
    }
    TT_TRY(check_delta(&attention->arch->delta));
    TT_TRY(tti_attention_make_tables(attention));
    tt_arena count = {0};
    take_all(attention, &count);
    TT_TRY(
        tt_arena_init(&attention->arena, "attention work buffers", count.used_bytes, load->node));
    take_all(attention, &attention->arena);
    fill_constants(attention);
    attention->layer = calloc((size_t)attention->arch->L, sizeof(*attention->layer));
    TT_CHECK(attention->layer, TT_ERR_NOMEM, "no memory for attention layers");
    for (int64_t l = 0; l < attention->arch->L; l++) {
        TT_TRY(tti_attention_load_layer(attention, load, l));
    }
    return TT_OK;
}

/* Widths of this rank's part, which follow from arch and layout alone. */
static void set_widths(tt_attention *attention)
{
    const tt_arch *arch = attention->arch;
    const tt_delta *delta = &arch->delta;
    attention->n_heads = attention->role->head_end - attention->role->head_begin;
    attention->n_kv = attention->role->kv_end - attention->role->kv_begin;
    attention->head_width = arch->D;
    if (arch->attention == TT_ATTENTION_MLA) {
        attention->head_width = arch->v_dim;
        attention->key_width = arch->kv_rank + arch->rope_dim;
        attention->q_width = attention->n_heads * (arch->nope_dim + arch->rope_dim);
    }
    if (delta->Nk > 0 && attention->role->dp_id >= 0) {
        const tt_delta_heads heads =
            tt_layout_delta_heads(delta, attention->layout->tp, attention->role->tp_id);
        attention->delta_heads = heads;
        attention->channels = 2 * (heads.key_end - heads.key_begin) * delta->Dk +
                              (heads.value_end - heads.value_begin) * delta->Dv;
        attention->state_floats = tt_delta_state_floats(delta, &heads);
    }
    attention->heads_stride =
        most(arch->Nq * attention->head_width, delta->Nk > 0 ? delta->Nv * delta->Dv : 0);
}

/* The gather of the TP group, as wide as the widest part of heads or output columns. */
static tt_status create_gather(tt_attention *attention)
{
    const tt_arch *arch = attention->arch;
    const tt_layout *layout = attention->layout;
    int64_t tp = layout->tp;
    int64_t width = most((arch->Nq + tp - 1) / tp * attention->head_width,
                         tt_layout_widest(arch->H, layout->tp));
    if (arch->delta.Nk > 0) {
        width = most(width, (arch->delta.Nv + tp - 1) / tp * arch->delta.Dv);
    }
    int n = attention->role->dp_id >= 0 ? layout->tp : 0;
    const int *member = n ? layout->attention_rank + attention->role->dp_id * layout->tp : NULL;
    return tt_gather_create(attention->world, member, n, layout->max_rows_group * width,
                            &attention->gather);
}

tt_status tt_attention_create(const tt_attention_params *params, tt_attention **attention_out)
{
    const tt_arch *arch = tt_model_arch(params->model);
    const tt_layout *layout = params->layout;
    tt_attention *attention = calloc(1, sizeof(*attention));
    tt_status st = tt_world_agree(
        params->world, attention ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for attention"));
    if (st != TT_OK || !attention) {
        free(attention);
        return st;
    }
    attention->arch = arch;
    attention->layout = layout;
    attention->role = &layout->role[tt_world_rank(params->world)];
    attention->world = params->world;
    attention->kv = params->kv;
    attention->compute = params->compute;
    set_widths(attention);
    st = tt_world_agree(params->world,
                        tt_load_told(params->load, create_local(attention, params->load)));
    if (st == TT_OK) {
        st = tti_attention_agree_on_tables(attention);
    }
    if (st == TT_OK) {
        st = create_gather(attention);
    }
    if (st != TT_OK) {
        tt_attention_destroy(&attention);
        return st;
    }
    *attention_out = attention;
    return TT_OK;
}

void tt_attention_destroy(tt_attention **attention_ptr)
{
    tt_attention *attention = *attention_ptr;
    if (!attention) {
        return;
    }
    size_t state_bytes =
        (size_t)(attention->layout->max_batch_group * attention->state_floats) * sizeof(float);
    tt_gather_destroy(&attention->gather);
    for (int64_t l = 0; attention->layer && l < attention->arch->L; l++) {
        tti_attention_free_layer(&attention->layer[l], attention->n_heads);
        tt_memory_free(attention->layer[l].state, state_bytes);
    }
    free(attention->layer);
    for (int i = 0; i < 2; i++) {
        tti_vector_free(&attention->cos[i]);
        tti_vector_free(&attention->sin[i]);
    }
    tti_vector_free(&attention->query_scale);
    tt_arena_fini(&attention->arena);
    free(attention);
    *attention_ptr = NULL;
}

/* ---- forward ---- */

/* Tables that the row loops use: each row's position and sequence, and where a layer caches keys
 * each sequence's pages, from the first that its rows see. */
static void index_rows(tt_attention *attention, int64_t layer, const tt_batch *batch)
{
    const tt_layer *kind = &attention->arch->layer[layer];
    int64_t used = 0;
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        const tt_batch_sequence *sequence = &batch->sequence[s];
        int64_t n_pages = (sequence->position + sequence->n_rows + TTK_PAGE - 1) / TTK_PAGE;
        TT_ASSERT(used + n_pages <= attention->page_table_size);
        attention->page_begin[s] = used;
        int64_t first = kind->mixer == TT_MIXER_ATTENTION
                            ? tti_first_visible(kind, sequence->position) / TTK_PAGE
                            : n_pages;
        for (int64_t p = first; p < n_pages; p++) {
            attention->page_table[used + p] = tti_kv_page(attention->kv, layer, sequence->page[p]);
        }
        used += n_pages;
        for (int64_t i = 0; i < sequence->n_rows; i++) {
            attention->row_sequence[sequence->first_row + i] = s;
            attention->row_position[sequence->first_row + i] = sequence->position + i;
        }
    }
}

/* Where each TP rank's heads stand in rows of heads, and its columns in rows of y; returns the
 * width of a row of heads. */
static int64_t find_parts(const tt_attention *attention, int64_t layer, int64_t T,
                          tt_rect *head_rect, tt_rect *out_rect)
{
    const tt_arch *arch = attention->arch;
    const tt_layout *layout = attention->layout;
    bool is_delta = arch->layer[layer].mixer == TT_MIXER_DELTA;
    int64_t head_width = is_delta ? arch->delta.Dv : attention->head_width;
    for (int part = 0; part < layout->tp; part++) {
        const tt_rank_role *role =
            &layout->role[layout->attention_rank[attention->role->dp_id * layout->tp + part]];
        int64_t begin = role->head_begin, end = role->head_end;
        if (is_delta) {
            tt_delta_heads heads = tt_layout_delta_heads(&arch->delta, layout->tp, part);
            begin = heads.value_begin;
            end = heads.value_end;
        }
        tt_rect heads = {0, T, begin * head_width, (end - begin) * head_width};
        tt_rect out = {0, T, 0, 0};
        tt_layout_columns(arch->H, layout->tp, part, &out.col, &out.n_cols);
        out.n_cols -= out.col;
        head_rect[part] = heads;
        out_rect[part] = out;
    }
    return (is_delta ? arch->delta.Nv : arch->Nq) * head_width;
}

/* How the mixer's first products take their rows: rounded if any of them does. */
static tt_act input_act(const tti_attention_layer *layer, tt_act act)
{
    const tt_linear *const first[] = {&layer->q,   &layer->k,    &layer->v,    &layer->gate,
                                      &layer->q_a, &layer->kv_a, &layer->beta, &layer->decay};
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        if (tt_linear_act(first[i], act) != TT_ACT_F32) {
            return act;
        }
    }
    return TT_ACT_F32;
}

tt_status tt_attention_forward(tt_attention *attention, int64_t layer, const tt_batch *batch,
                               const float *x, float *y)
{
    const tt_arch *arch = attention->arch;
    int64_t T = batch->T, H = arch->H;
    if (T == 0) {
        return TT_OK;
    }
    tt_rect head_rect[TT_LAYOUT_MAX_SPLIT], out_rect[TT_LAYOUT_MAX_SPLIT];
    int64_t heads_row = find_parts(attention, layer, T, head_rect, out_rect);
    tt_span span = tt_span_begin(TT_PHASE_ATTENTION, "attention");
    index_rows(attention, layer, batch);
    uint64_t bytes_before = attention->kv_bytes_read;
    const tt_act act = attention->layout->act;
    const tt_rows in = tt_rows_round(input_act(&attention->layer[layer], act), attention->compute,
                                     attention->rounded, x, H, T, H);
    if (arch->layer[layer].mixer == TT_MIXER_DELTA) {
        tti_delta_heads(attention, layer, batch, &in);
    } else if (arch->attention == TT_ATTENTION_MLA) {
        tti_mla_heads(attention, layer, batch, &in);
    } else {
        tti_gqa_heads(attention, layer, batch, &in);
    }
    TT_TRY(tt_gather_exec(attention->gather, attention->heads, heads_row, head_rect, TT_GATHER_ALL,
                          attention->compute));
    const tt_linear *o = &attention->layer[layer].o;
    const tt_rows heads = tt_rows_round(tt_linear_act(o, act), attention->compute,
                                        attention->rounded, attention->heads, heads_row, T, o->K);
    tt_linear_run(o, attention->compute, "o", y + out_rect[attention->role->tp_id].col, H, &heads,
                  T);
    TT_TRY(tt_gather_exec(attention->gather, y, H, out_rect, TT_GATHER_ALL, attention->compute));
    tt_span_end(&span, attention->weight_bytes / (uint64_t)arch->L +
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
