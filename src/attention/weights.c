/* weights.c - what each kind of mixer loads on a rank: its heads' rows of the projections, its
 * columns of the output product, and small vectors. */
#include "attention_internal.h"
#include <stdlib.h>

/* A layer whose weights are being loaded. */
typedef struct loading {
    tt_attention *attention;
    tt_load_params *params;
    int64_t id; /* in the model */
    tti_attention_layer *layer;
} loading;

static tt_tensor tensor_of(const loading *l, tt_role role)
{
    return tt_model_tensor(l->params->model, role, l->id, 0);
}

/* Elements [begin, begin + n) of a role's tensor as a vector; nothing if the model has no such
 * tensor. */
static tt_status load_vector(const loading *l, tt_role role, int64_t begin, int64_t n,
                             tti_vector *vector)
{
    tt_tensor tensor = tensor_of(l, role);
    TT_TRY(tt_load_vector(l->params, &tensor, begin, n, &vector->x));
    vector->n = vector->x ? n : 0;
    return TT_OK;
}

/* All of it. */
static tt_status load_norm(const loading *l, tt_role role, tti_vector *norm)
{
    tt_tensor tensor = tensor_of(l, role);
    return load_vector(l, role, 0, tensor.name ? tensor.rows * tensor.cols : 0, norm);
}

void tti_vector_free(tti_vector *vector)
{
    tt_memory_free(vector->x, (size_t)vector->n * sizeof(float));
    vector->x = NULL;
    vector->n = 0;
}

/* Rows [row, row + n) of a projection, with its bias if it has one. */
static tt_status load_rows(const loading *l, tt_role role, tt_role bias_role, int64_t row,
                           int64_t n, tt_linear *linear)
{
    tt_tensor tensor = tensor_of(l, role);
    TT_TRY(tt_load_linear(l->params, &tensor, row, n, linear));
    l->attention->weight_bytes += tt_linear_bytes(linear);
    if (bias_role < TT_ROLE_COUNT) {
        tensor = tensor_of(l, bias_role);
        TT_TRY(tt_load_vector(l->params, &tensor, row, n, &linear->bias));
    }
    return TT_OK;
}

/* ---- grouped-query attention ---- */

static tt_status load_gqa(const loading *l)
{
    tt_attention *attention = l->attention;
    const tt_arch *arch = attention->arch;
    const tt_rank_role *role = attention->role;
    tti_attention_layer *layer = l->layer;
    bool whole = tti_norm_is_whole(arch, l->id);
    int64_t D = arch->D, q_row = role->head_begin * D, q_n = attention->n_heads * D;
    int64_t kv_row = role->kv_begin * D, kv_n = attention->n_kv * D;
    TT_TRY(load_rows(l, TT_ROLE_Q, TT_ROLE_Q_BIAS, whole ? 0 : q_row, whole ? arch->Nq * D : q_n,
                     &layer->q));
    TT_TRY(load_rows(l, TT_ROLE_K, TT_ROLE_K_BIAS, whole ? 0 : kv_row, whole ? arch->Nkv * D : kv_n,
                     &layer->k));
    TT_TRY(load_rows(l, TT_ROLE_V, TT_ROLE_V_BIAS, kv_row, kv_n, &layer->v));
    if (arch->attention_gate) {
        TT_TRY(load_rows(l, TT_ROLE_Q_GATE, TT_ROLE_COUNT, q_row, q_n, &layer->gate));
    }
    if (arch->sinks) {
        TT_TRY(load_vector(l, TT_ROLE_SINKS, role->head_begin, attention->n_heads, &layer->sinks));
    }
    if (arch->qk_norm != TT_QK_NORM_NONE && arch->layer[l->id].qk_norm) {
        TT_TRY(load_norm(l, TT_ROLE_Q_NORM, &layer->q_norm));
        TT_TRY(load_norm(l, TT_ROLE_K_NORM, &layer->k_norm));
    }
    return TT_OK;
}

/* ---- latent attention ---- */

/* What brings each head's query into the latent space and its value out of it. Files hold them as
 * one matrix, [nope | v] rows for each head, or as two of which the first is transposed. */
static tt_status load_latent_heads(const loading *l, tt_load_target *target)
{
    const tt_arch *arch = l->attention->arch;
    tti_attention_layer *layer = l->layer;
    int64_t begin = l->attention->role->head_begin;
    int n = (int)l->attention->n_heads;
    if (arch->mla_split) {
        tt_tensor k = tensor_of(l, TT_ROLE_MLA_K);
        tt_tensor v = tensor_of(l, TT_ROLE_MLA_V);
        for (int h = 0; h < n; h++) {
            target[h] = (tt_load_target){.row = (begin + h) * arch->kv_rank,
                                         .n_rows = arch->kv_rank,
                                         .linear = &layer->wk[h]};
        }
        TT_TRY(tt_load_linears(l->params, &k, target, n));
        for (int h = 0; h < n; h++) {
            target[h] = (tt_load_target){
                .row = (begin + h) * arch->v_dim, .n_rows = arch->v_dim, .linear = &layer->wv[h]};
        }
        return tt_load_linears(l->params, &v, target, n);
    }
    tt_tensor kv_b = tensor_of(l, TT_ROLE_KV_B);
    for (int h = 0; h < n; h++) {
        int64_t row = (begin + h) * (arch->nope_dim + arch->v_dim);
        target[2 * h] = (tt_load_target){
            .row = row, .n_rows = arch->nope_dim, .transposed = true, .linear = &layer->wk[h]};
        target[2 * h + 1] = (tt_load_target){
            .row = row + arch->nope_dim, .n_rows = arch->v_dim, .linear = &layer->wv[h]};
    }
    return tt_load_linears(l->params, &kv_b, target, 2 * n);
}

static tt_status load_mla(const loading *l)
{
    tt_attention *attention = l->attention;
    const tt_arch *arch = attention->arch;
    tti_attention_layer *layer = l->layer;
    int64_t q_head = arch->nope_dim + arch->rope_dim;
    int64_t q_row = attention->role->head_begin * q_head, q_n = attention->n_heads * q_head;
    if (arch->q_rank > 0) {
        TT_TRY(load_rows(l, TT_ROLE_Q_A, TT_ROLE_COUNT, 0, arch->q_rank, &layer->q_a));
        TT_TRY(load_norm(l, TT_ROLE_Q_A_NORM, &layer->q_a_norm));
        TT_TRY(load_rows(l, TT_ROLE_Q_B, TT_ROLE_COUNT, q_row, q_n, &layer->q_b));
    } else {
        TT_TRY(load_rows(l, TT_ROLE_Q, TT_ROLE_COUNT, q_row, q_n, &layer->q));
    }
    TT_TRY(load_rows(l, TT_ROLE_KV_A, TT_ROLE_COUNT, 0, attention->key_width, &layer->kv_a));
    TT_TRY(load_norm(l, TT_ROLE_KV_A_NORM, &layer->kv_a_norm));
    layer->wk = calloc((size_t)attention->n_heads, sizeof(*layer->wk));
    layer->wv = calloc((size_t)attention->n_heads, sizeof(*layer->wv));
    TT_CHECK(layer->wk && layer->wv, TT_ERR_NOMEM, "no memory for %lld heads",
             (long long)attention->n_heads);
    tt_load_target *target = calloc(2 * (size_t)attention->n_heads, sizeof(*target));
    TT_CHECK(target, TT_ERR_NOMEM, "no memory for %lld heads", (long long)attention->n_heads);
    tt_status st = load_latent_heads(l, target);
    free(target);
    TT_TRY(st);
    for (int64_t h = 0; h < attention->n_heads; h++) {
        attention->weight_bytes += tt_linear_bytes(&layer->wk[h]) + tt_linear_bytes(&layer->wv[h]);
    }
    return TT_OK;
}

/* ---- gated delta net ---- */

/* The convolution's weights of local channels: [channel][tap] in the file, [taps][channels] here,
 * so that neighbours stand together. */
static tt_status load_convolution(const loading *l, const int64_t *row, const int64_t *n)
{
    tt_attention *attention = l->attention;
    int64_t taps = attention->arch->delta.conv, channel = 0;
    tti_vector *conv = &l->layer->conv;
    void *data = NULL;
    TT_TRY(tt_memory_alloc("convolution weights",
                           (size_t)(taps * attention->channels) * sizeof(float), l->params->node,
                           &data));
    conv->x = data;
    conv->n = taps * attention->channels;
    l->params->packed_bytes += (uint64_t)conv->n * sizeof(float);
    for (int part = 0; part < 3; part++) {
        tti_vector rows = {0};
        TT_TRY(load_vector(l, TT_ROLE_DELTA_CONV, row[part] * taps, n[part] * taps, &rows));
        l->params->packed_bytes -= (uint64_t)rows.n * sizeof(float); /* counted above */
        for (int64_t i = 0; i < n[part]; i++, channel++) {
            for (int64_t tap = 0; tap < taps; tap++) {
                conv->x[tap * attention->channels + channel] = rows.x[i * taps + tap];
            }
        }
        tti_vector_free(&rows);
    }
    return TT_OK;
}

static tt_status load_delta(const loading *l)
{
    tt_attention *attention = l->attention;
    const tt_delta *delta = &attention->arch->delta;
    const tt_delta_heads *heads = &attention->delta_heads;
    tti_attention_layer *layer = l->layer;
    int64_t n_values = heads->value_end - heads->value_begin,
            n_keys = heads->key_end - heads->key_begin;
    int64_t keys = delta->Nk * delta->Dk;
    int64_t value_row = heads->value_begin * delta->Dv, value_n = n_values * delta->Dv;
    const int64_t row[] = {heads->key_begin * delta->Dk, keys + heads->key_begin * delta->Dk,
                           2 * keys + value_row};
    const int64_t n[] = {n_keys * delta->Dk, n_keys * delta->Dk, value_n};
    const tt_load_target target[] = {
        {.row = row[0], .n_rows = n[0], .linear = &layer->q},
        {.row = row[1], .n_rows = n[1], .linear = &layer->k},
        {.row = row[2], .n_rows = n[2], .linear = &layer->v},
    };
    tt_tensor tensor = tensor_of(l, TT_ROLE_DELTA_QKV);
    TT_TRY(tt_load_linears(l->params, &tensor, target, 3));
    attention->weight_bytes +=
        tt_linear_bytes(&layer->q) + tt_linear_bytes(&layer->k) + tt_linear_bytes(&layer->v);
    TT_TRY(load_rows(l, TT_ROLE_DELTA_GATE, TT_ROLE_COUNT, value_row, value_n, &layer->gate));
    TT_TRY(load_rows(l, TT_ROLE_DELTA_BETA, TT_ROLE_COUNT, heads->value_begin, n_values,
                     &layer->beta));
    TT_TRY(load_rows(l, TT_ROLE_DELTA_DECAY, TT_ROLE_COUNT, heads->value_begin, n_values,
                     &layer->decay));
    TT_TRY(load_convolution(l, row, n));
    TT_TRY(load_vector(l, TT_ROLE_DELTA_NORM, 0, n_values > 0 ? delta->Dv : 0, &layer->delta_norm));
    void *state = NULL;
    size_t bytes =
        (size_t)(attention->layout->max_batch_group * attention->state_floats) * sizeof(float);
    TT_TRY(tt_memory_alloc("recurrent states", bytes, l->params->node, &state));
    layer->state = state;
    return TT_OK;
}

/* ---- a layer ---- */

tt_status tti_attention_load_layer(tt_attention *attention, tt_load_params *load, int64_t layer_id)
{
    const tt_arch *arch = attention->arch;
    tti_attention_layer *layer = &attention->layer[layer_id];
    const loading l = {attention, load, layer_id, layer};
    bool is_delta = arch->layer[layer_id].mixer == TT_MIXER_DELTA;
    if (is_delta) {
        /* Whole on every rank, also one without heads: ranks compare the rates. */
        TT_TRY(load_norm(&l, TT_ROLE_DELTA_DECAY_BIAS, &layer->decay_bias));
        TT_TRY(load_norm(&l, TT_ROLE_DELTA_DECAY_RATE, &layer->decay_rate));
        TT_TRY(load_delta(&l));
    } else if (arch->attention == TT_ATTENTION_MLA) {
        TT_TRY(load_mla(&l));
    } else {
        TT_TRY(load_gqa(&l));
    }
    int64_t begin, end;
    tt_layout_columns(arch->H, attention->layout->tp, attention->role->tp_id, &begin, &end);
    return load_rows(&l, is_delta ? TT_ROLE_DELTA_OUT : TT_ROLE_O,
                     is_delta ? TT_ROLE_COUNT : TT_ROLE_O_BIAS, begin, end - begin, &layer->o);
}

void tti_attention_free_layer(tti_attention_layer *layer, int64_t n_heads)
{
    tt_linear *all[] = {&layer->q,   &layer->k,    &layer->v,    &layer->gate,  &layer->q_a,
                        &layer->q_b, &layer->kv_a, &layer->beta, &layer->decay, &layer->o};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        tt_linear_fini(all[i]);
    }
    for (int64_t h = 0; h < n_heads; h++) {
        if (layer->wk) {
            tt_linear_fini(&layer->wk[h]);
        }
        if (layer->wv) {
            tt_linear_fini(&layer->wv[h]);
        }
    }
    free(layer->wk);
    free(layer->wv);
    tti_vector *vectors[] = {&layer->q_norm,     &layer->k_norm,     &layer->sinks,
                             &layer->q_a_norm,   &layer->kv_a_norm,  &layer->conv,
                             &layer->decay_bias, &layer->decay_rate, &layer->delta_norm};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        tti_vector_free(vectors[i]);
    }
}
