/* memory.c - what each rank will hold, in bytes, before anything is loaded.
 *
 * Weights and KV follow the loading rules of the engine term by term, so they are exact. Exchange
 * and work space (buffers.c) are upper estimates. MTP layers are not counted: they are not
 * loaded. */
#include "tutti/plan.h"
#include <stdlib.h>
#include "plan_internal.h"
#include "tutti/load.h"
#include "tutti/memory.h"
#include "ttk.h"

/* One rank's view of the model, handed through the functions below. */
typedef struct view {
    const tt_model *model;
    const tt_arch *arch;
    const tt_layout *layout;
    const tt_rank_role *role;
    tti_plan_list *list; /* where its dense matrices are listed; NULL: nowhere */
} view;

static view view_of(const tt_model *model, const tt_layout *layout, int rank)
{
    view v = {model, tt_model_arch(model), layout, &layout->role[rank], NULL};
    return v;
}

uint64_t tt_plan_packed_bytes(tt_weight_format weights, const ttk_format *stored, int64_t rows,
                              int64_t cols)
{
    ttk_format format = tt_load_format(weights, &(tt_tensor){.format = *stored});
    return ttk_packed_bytes(&format, rows, cols);
}

/* ---- pieces ---- */

/* Lists a matrix that has any bytes; returns these. */
static uint64_t listed(const view *v, tti_plan_matrix m)
{
    tti_plan_list *list = v->list;
    if (!list || m.bytes == 0) {
        return m.bytes;
    }
    tti_plan_matrix *more = tt_memory_grow(list->matrix, &list->capacity, list->n, sizeof(*more));
    if (!more) {
        list->is_short = true;
        return m.bytes;
    }
    list->matrix = more;
    list->matrix[list->n++] = m;
    return m.bytes;
}

/* Rows [row, row + rows) of the tensor of this role, [..][cols], packed; 0 if the model has no such
 * tensor. */
static uint64_t matrix(const view *v, tt_role role, int64_t layer, int64_t row, int64_t rows,
                       int64_t cols)
{
    tt_tensor tensor = tt_model_tensor(v->model, role, layer, 0);
    ttk_format format = tt_load_format(v->layout->weights, &tensor);
    uint64_t bytes = tensor.name ? ttk_packed_bytes(&format, rows, cols) : 0;
    return listed(v, (tti_plan_matrix){role, TTI_PLAN_PACKED, layer, row, rows, bytes});
}

/* An expert's part. */
static uint64_t expert_matrix(const view *v, tt_role role, int64_t layer, int64_t expert,
                              int64_t rows, int64_t cols)
{
    tt_tensor tensor = tt_model_tensor(v->model, role, layer, expert);
    ttk_format format = tt_load_format(v->layout->weights, &tensor);
    return tensor.name ? ttk_packed_bytes(&format, rows, cols) : 0;
}

/* The part of kv_b that is packed transposed for a head: [kv_rank][nope_dim]. */
static uint64_t head_key(const view *v, int64_t layer, int64_t head)
{
    const tt_arch *a = v->arch;
    tt_tensor tensor = tt_model_tensor(v->model, TT_ROLE_KV_B, layer, 0);
    int64_t row = head * (a->nope_dim + a->v_dim);
    ttk_format format = tt_load_format_transposed(v->layout->weights, &tensor, row, a->nope_dim);
    uint64_t bytes = tensor.name ? ttk_packed_bytes(&format, a->kv_rank, a->nope_dim) : 0;
    return listed(
        v, (tti_plan_matrix){TT_ROLE_KV_B, TTI_PLAN_TRANSPOSED, layer, row, a->nope_dim, bytes});
}

/* `n` elements of a norm or bias, which are kept as f32; 0 if the model has no such tensor. */
static uint64_t vector(const view *v, tt_role role, int64_t layer, int64_t n)
{
    tt_tensor tensor = tt_model_tensor(v->model, role, layer, 0);
    return tensor.name ? tti_plan_area(n, sizeof(float)) : 0;
}

/* Output columns of `total` that this rank computes under TP. */
static int64_t tp_columns(const view *v, int64_t total)
{
    int64_t begin = 0;
    int64_t end = 0;
    tt_layout_columns(total, v->layout->tp, v->role->tp_id, &begin, &end);
    return end - begin;
}

/* The same of a matrix [total][cols], packed. */
static uint64_t tp_matrix(const view *v, tt_role role, int64_t layer, int64_t total, int64_t cols)
{
    int64_t begin = 0;
    int64_t end = 0;
    tt_layout_columns(total, v->layout->tp, v->role->tp_id, &begin, &end);
    return matrix(v, role, layer, begin, end - begin, cols);
}

static uint64_t gqa_bytes(const view *v, int64_t layer)
{
    const tt_arch *a = v->arch;
    /* A norm over all heads needs all of them here. */
    bool whole = a->qk_norm == TT_QK_NORM_WHOLE && a->layer[layer].qk_norm;
    int64_t n_kv = v->role->kv_end - v->role->kv_begin,
            n_heads = v->role->head_end - v->role->head_begin;
    int64_t q_rows = (whole ? a->Nq : n_heads) * a->D;
    int64_t k_rows = (whole ? a->Nkv : n_kv) * a->D;
    int64_t v_rows = n_kv * a->D;
    int64_t q_row = v->role->head_begin * a->D, kv_row = v->role->kv_begin * a->D;
    uint64_t bytes = matrix(v, TT_ROLE_Q, layer, whole ? 0 : q_row, q_rows, a->H);
    bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_K, layer, whole ? 0 : kv_row, k_rows, a->H));
    bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_V, layer, kv_row, v_rows, a->H));
    bytes = tti_plan_add(bytes, vector(v, TT_ROLE_Q_BIAS, layer, q_rows));
    bytes = tti_plan_add(bytes, vector(v, TT_ROLE_K_BIAS, layer, k_rows));
    bytes = tti_plan_add(bytes, vector(v, TT_ROLE_V_BIAS, layer, v_rows));
    if (a->attention_gate) {
        bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_Q_GATE, layer, q_row, n_heads * a->D, a->H));
    }
    if (a->sinks) {
        bytes = tti_plan_add(bytes, vector(v, TT_ROLE_SINKS, layer, n_heads));
    }
    if (a->qk_norm != TT_QK_NORM_NONE && a->layer[layer].qk_norm) {
        bytes = tti_plan_add(bytes, vector(v, TT_ROLE_Q_NORM, layer, whole ? q_rows : a->D));
        bytes = tti_plan_add(bytes, vector(v, TT_ROLE_K_NORM, layer, whole ? k_rows : a->D));
    }
    return tti_plan_add(bytes, tp_matrix(v, TT_ROLE_O, layer, a->H, a->Nq * a->D));
}

static uint64_t mla_bytes(const view *v, int64_t layer)
{
    const tt_arch *a = v->arch;
    int64_t n_heads = v->role->head_end - v->role->head_begin;
    int64_t q_head = a->nope_dim + a->rope_dim, q_row = v->role->head_begin * q_head,
            q_rows = n_heads * q_head;
    /* where a head's values are */
    int64_t value_row = a->mla_split ? 0 : a->nope_dim, head_rows = value_row + a->v_dim;
    tt_role value = a->mla_split ? TT_ROLE_MLA_V : TT_ROLE_KV_B;
    uint64_t bytes = 0;
    if (a->q_rank > 0) {
        bytes = matrix(v, TT_ROLE_Q_A, layer, 0, a->q_rank, a->H);
        bytes = tti_plan_add(bytes, vector(v, TT_ROLE_Q_A_NORM, layer, a->q_rank));
        bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_Q_B, layer, q_row, q_rows, a->q_rank));
    } else {
        bytes = matrix(v, TT_ROLE_Q, layer, q_row, q_rows, a->H);
    }
    bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_KV_A, layer, 0, a->kv_rank + a->rope_dim, a->H));
    bytes = tti_plan_add(bytes, vector(v, TT_ROLE_KV_A_NORM, layer, a->kv_rank));
    /* The absorbed form keeps two matrices per head, each padded to panels of its own. */
    for (int64_t head = v->role->head_begin; head < v->role->head_end; head++) {
        bytes =
            tti_plan_add(bytes, a->mla_split ? matrix(v, TT_ROLE_MLA_K, layer, head * a->kv_rank,
                                                      a->kv_rank, a->nope_dim)
                                             : head_key(v, layer, head));
        bytes = tti_plan_add(
            bytes, matrix(v, value, layer, head * head_rows + value_row, a->v_dim, a->kv_rank));
    }
    return tti_plan_add(bytes, tp_matrix(v, TT_ROLE_O, layer, a->H, a->Nq * a->v_dim));
}

static uint64_t delta_bytes(const view *v, int64_t layer)
{
    const tt_arch *a = v->arch;
    const tt_delta *d = &a->delta;
    tt_delta_heads heads = tt_layout_delta_heads(d, v->layout->tp, v->role->tp_id);
    int64_t n_values = heads.value_end - heads.value_begin,
            n_keys = heads.key_end - heads.key_begin;
    uint64_t bytes = vector(v, TT_ROLE_DELTA_DECAY_BIAS, layer, d->Nv);
    bytes = tti_plan_add(bytes, vector(v, TT_ROLE_DELTA_DECAY_RATE, layer, d->Nv));
    if (n_values > 0) {
        int64_t keys = n_keys * d->Dk, values = n_values * d->Dv, all_keys = d->Nk * d->Dk;
        int64_t key_row = heads.key_begin * d->Dk, value_row = heads.value_begin * d->Dv;
        /* q, k and v rows, each packed as a matrix of its own */
        bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_DELTA_QKV, layer, key_row, keys, a->H));
        bytes = tti_plan_add(bytes,
                             matrix(v, TT_ROLE_DELTA_QKV, layer, all_keys + key_row, keys, a->H));
        bytes = tti_plan_add(
            bytes, matrix(v, TT_ROLE_DELTA_QKV, layer, 2 * all_keys + value_row, values, a->H));
        bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_DELTA_GATE, layer, value_row, values, a->H));
        bytes = tti_plan_add(
            bytes, matrix(v, TT_ROLE_DELTA_BETA, layer, heads.value_begin, n_values, a->H));
        bytes = tti_plan_add(
            bytes, matrix(v, TT_ROLE_DELTA_DECAY, layer, heads.value_begin, n_values, a->H));
        bytes = tti_plan_add(bytes,
                             vector(v, TT_ROLE_DELTA_CONV, layer, (2 * keys + values) * d->conv));
        bytes = tti_plan_add(bytes, vector(v, TT_ROLE_DELTA_NORM, layer, d->Dv));
    }
    return tti_plan_add(bytes, tp_matrix(v, TT_ROLE_DELTA_OUT, layer, a->H, d->Nv * d->Dv));
}

static uint64_t mixer_bytes(const view *v, int64_t layer)
{
    const tt_arch *a = v->arch;
    if (a->layer[layer].mixer == TT_MIXER_DELTA) {
        return delta_bytes(v, layer);
    }
    uint64_t bytes = vector(v, TT_ROLE_O_BIAS, layer, tp_columns(v, a->H));
    return tti_plan_add(bytes, a->attention == TT_ATTENTION_MLA ? mla_bytes(v, layer)
                                                                : gqa_bytes(v, layer));
}

/* A norm of the trunk, with its bias if it is of that kind. */
static uint64_t norm_bytes(const view *v, tt_role role, int64_t layer)
{
    uint64_t bytes = vector(v, role, layer, v->arch->H);
    return v->arch->norm == TT_NORM_LAYER
               ? tti_plan_add(bytes, vector(v, (tt_role)(role + 1), layer, v->arch->H))
               : bytes;
}

/* The part of a layer's FFN that belongs to the attention role. */
static uint64_t dense_ffn_bytes(const view *v, int64_t layer)
{
    const tt_arch *a = v->arch;
    uint64_t bytes = 0;
    if (a->E > 0 && a->layer[layer].is_moe) {
        bytes = matrix(v, TT_ROLE_ROUTER, layer, 0, a->E, a->H);
        bytes = tti_plan_add(bytes, vector(v, TT_ROLE_ROUTER_BIAS, layer, a->E));
        bytes = tti_plan_add(bytes, vector(v, TT_ROLE_ROUTER_CHOICE_BIAS, layer, a->E));
        if (a->F_shared > 0 && a->shared_gate) {
            bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_SHARED_ROUTER, layer, 0, 1, a->H));
        }
        /* Whole on every rank: its rows are dealt, so each rank runs other rows through all of it.
         * */
        bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_SHARED_GATE, layer, 0, a->F_shared, a->H));
        bytes = tti_plan_add(bytes, matrix(v, TT_ROLE_SHARED_UP, layer, 0, a->F_shared, a->H));
        return tti_plan_add(bytes, matrix(v, TT_ROLE_SHARED_DOWN, layer, 0, a->H, a->F_shared));
    }
    bytes = tp_matrix(v, TT_ROLE_GATE, layer, a->F_dense, a->H);
    bytes = tti_plan_add(bytes, tp_matrix(v, TT_ROLE_UP, layer, a->F_dense, a->H));
    return tti_plan_add(bytes, tp_matrix(v, TT_ROLE_DOWN, layer, a->H, a->F_dense));
}

/* ---- weights ---- */

uint64_t tti_plan_embedding_bytes(const tt_model *model)
{
    const tt_arch *a = tt_model_arch(model);
    tt_tensor tensor = tt_model_tensor(model, TT_ROLE_EMBED, 0, 0);
    return ttk_unpacked_bytes(&tensor.format, a->V, a->H); /* looked up as it lies in the file */
}

static uint64_t dense_bytes(const view *v)
{
    const tt_arch *a = v->arch;
    if (v->role->dp_id < 0) {
        return 0;
    }
    uint64_t bytes = norm_bytes(v, TT_ROLE_FINAL_NORM, 0);
    bytes = tti_plan_add(bytes, tp_matrix(v, TT_ROLE_HEAD, 0, a->V, a->H));
    if (a->head_bias) {
        bytes = tti_plan_add(bytes, vector(v, TT_ROLE_HEAD_BIAS, 0, tp_columns(v, a->V)));
    }
    for (int64_t layer = 0; layer < a->L; layer++) {
        bytes = tti_plan_add(bytes, norm_bytes(v, TT_ROLE_ATTENTION_NORM, layer));
        bytes = tti_plan_add(bytes, norm_bytes(v, TT_ROLE_FFN_NORM, layer));
        bytes = tti_plan_add(bytes, mixer_bytes(v, layer));
        bytes = tti_plan_add(bytes, dense_ffn_bytes(v, layer));
    }
    return bytes;
}

uint64_t tti_plan_dense_bytes(const tt_model *model, const tt_layout *layout, int rank)
{
    view v = view_of(model, layout, rank);
    return dense_bytes(&v);
}

tt_status tti_plan_list_dense(const tt_model *model, const tt_layout *layout, int rank,
                              tti_plan_list *list)
{
    view v = view_of(model, layout, rank);
    *list = (tti_plan_list){0};
    v.list = list;
    dense_bytes(&v);
    if (v.role->dp_id >= 0) {
        listed(&v, (tti_plan_matrix){TT_ROLE_EMBED, TTI_PLAN_TABLE, 0, 0, v.arch->V,
                                     tti_plan_embedding_bytes(model)});
    }
    TT_CHECK(!list->is_short, TT_ERR_NOMEM, "no memory to list the matrices of rank %d", rank);
    return TT_OK;
}

/* An expert's part: `inner` columns between its matrices, `outer` ones of its output. */
static uint64_t one_expert(const view *v, int64_t layer, int64_t e, int64_t inner, int64_t outer)
{
    const tt_arch *a = v->arch;
    const uint64_t part[] = {expert_matrix(v, TT_ROLE_EXPERT_GATE, layer, e, inner, a->H),
                             expert_matrix(v, TT_ROLE_EXPERT_UP, layer, e, inner, a->H),
                             expert_matrix(v, TT_ROLE_EXPERT_DOWN, layer, e, outer, a->F),
                             vector(v, TT_ROLE_EXPERT_GATE_BIAS, layer, inner),
                             vector(v, TT_ROLE_EXPERT_UP_BIAS, layer, inner),
                             vector(v, TT_ROLE_EXPERT_DOWN_BIAS, layer, outer)};
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        bytes = tti_plan_add(bytes, part[i]);
    }
    return bytes;
}

uint64_t tti_plan_expert_bytes(const tt_model *model, const tt_layout *layout, int rank)
{
    view v = view_of(model, layout, rank);
    if (v.role->group_id < 0) {
        return 0;
    }
    const tt_arch *a = v.arch;
    int64_t first = 0, last = 0, begin = 0, end = 0;
    tt_layout_experts(a->E, layout->n_groups, v.role->group_id, &first, &last);
    tt_layout_columns(a->F, layout->etp, v.role->etp_id, &begin, &end);
    int64_t inner = end - begin;
    tt_layout_columns(a->H, layout->etp, v.role->etp_id, &begin, &end);
    int64_t outer = end - begin;
    uint64_t bytes = 0, largest = 0;
    for (int64_t layer = 0; layer < a->L; layer++) {
        if (a->layer[layer].is_moe && layout->open_slots) { /* its experts are alike */
            const uint64_t slot = one_expert(&v, layer, 0, inner, outer);
            bytes = tti_plan_add(bytes, tti_plan_mul(slot, (uint64_t)layout->slots_per_group));
            largest = slot > largest ? slot : largest;
        }
        for (int64_t e = first; a->layer[layer].is_moe && !layout->open_slots && e < last; e++) {
            bytes = tti_plan_add(bytes, one_expert(&v, layer, e, inner, outer));
        }
    }
    return tti_plan_add(bytes, tti_plan_mul(largest, (uint64_t)layout->staged_slots));
}

/* ---- the rest ---- */

const char *tt_kv_format_name(tt_kv_format kv)
{
    static const char *const names[TT_KV_COUNT] = {"f32", "bf16", "int8"};
    return names[kv];
}

uint64_t tt_plan_kv_token_bytes(const tt_arch *arch, tt_kv_format kv, int64_t n_kv)
{
    bool is_mla = arch->attention == TT_ATTENTION_MLA;
    int64_t width = is_mla ? arch->kv_rank + arch->rope_dim : 2 * n_kv * arch->D;
    if (kv == TT_KV_INT8) {
        int64_t n_scales = is_mla ? 2 : 2 * n_kv;
        return tti_plan_add(tti_plan_area(width, 1), tti_plan_area(n_scales, sizeof(float)));
    }
    return tti_plan_area(width, kv == TT_KV_BF16 ? sizeof(tt_bf16) : sizeof(float));
}

/* KV bytes of one token in one attention layer. */
static uint64_t layer_kv_bytes(const tt_arch *arch, const tt_layout *layout, int rank)
{
    const tt_rank_role *role = &layout->role[rank];
    return tt_plan_kv_token_bytes(arch, layout->kv, role->kv_end - role->kv_begin);
}

static int64_t count_layers(const tt_arch *arch, tt_mixer mixer)
{
    int64_t n = 0;
    for (int64_t layer = 0; layer < arch->L; layer++) {
        n += arch->layer[layer].mixer == mixer;
    }
    return n;
}

uint64_t tt_plan_kv_bytes_per_token(const tt_arch *arch, const tt_layout *layout, int rank)
{
    if (layout->role[rank].dp_id < 0) {
        return 0;
    }
    return tti_plan_mul((uint64_t)count_layers(arch, TT_MIXER_ATTENTION),
                        layer_kv_bytes(arch, layout, rank));
}

int64_t tt_plan_attend_parts_floats(const tt_arch *arch, const tt_layout *layout,
                                    const tt_rank_role *role)
{
    if (role->dp_id < 0) {
        return 0;
    }
    int64_t width = arch->attention == TT_ATTENTION_MLA ? arch->kv_rank : arch->D;
    int64_t blocks = (layout->context + TTK_BLOCK - 1) / TTK_BLOCK * layout->max_batch_group;
    uint64_t all = tti_plan_mul(tti_plan_area(blocks, role->head_end - role->head_begin),
                                ttk_attend_part_floats(width));
    const uint64_t most = TT_ATTEND_PARTS_BYTES / sizeof(float);
    return (int64_t)(all < most ? all : most);
}

/* Bytes of one sequence's states over all recurrent layers. */
static uint64_t sequence_state_bytes(const tt_arch *arch, const tt_layout *layout, int rank)
{
    const tt_rank_role *role = &layout->role[rank];
    if (role->dp_id < 0 || arch->delta.Nk == 0) {
        return 0;
    }
    tt_delta_heads heads = tt_layout_delta_heads(&arch->delta, layout->tp, role->tp_id);
    return tti_plan_mul(tti_plan_area(count_layers(arch, TT_MIXER_DELTA),
                                      tt_delta_state_floats(&arch->delta, &heads)),
                        sizeof(float));
}

uint64_t tt_plan_state_bytes(const tt_arch *arch, const tt_layout *layout, int rank)
{
    return tti_plan_mul(sequence_state_bytes(arch, layout, rank),
                        (uint64_t)layout->max_batch_group);
}

uint64_t tti_plan_context_bytes(const tt_arch *arch, const tt_layout *layout, int rank,
                                int64_t context)
{
    if (layout->role[rank].dp_id < 0) {
        return 0;
    }
    uint64_t token_bytes = layer_kv_bytes(arch, layout, rank), bytes = 0;
    for (int64_t layer = 0; layer < arch->L; layer++) {
        const tt_layer *kind = &arch->layer[layer];
        int64_t seen = context;
        if (kind->mixer != TT_MIXER_ATTENTION) {
            continue;
        }
        seen = kind->window > 0 && kind->window < seen ? kind->window : seen;
        /* A chunk is half full on average. */
        seen = kind->chunk > 0 && kind->chunk < seen ? (kind->chunk + 1) / 2 : seen;
        bytes = tti_plan_add(bytes, tti_plan_mul(token_bytes, (uint64_t)seen));
    }
    enum { READ_AND_WRITTEN = 2 };
    return tti_plan_add(bytes,
                        tti_plan_mul(READ_AND_WRITTEN, sequence_state_bytes(arch, layout, rank)));
}

tt_status tt_plan_memory(const tt_model *model, const tt_layout *layout, int rank,
                         tt_rank_memory *memory_out)
{
    TT_CHECK(rank >= 0 && rank < layout->n_ranks, TT_ERR_ARG, "rank %d: not in 0 to %d", rank,
             layout->n_ranks - 1);
    view v = view_of(model, layout, rank);
    tt_rank_memory m = {0};
    m.dense_bytes = tti_plan_dense_bytes(model, layout, rank);
    if (v.role->dp_id >= 0) {
        m.dense_bytes = tti_plan_add(m.dense_bytes, tti_plan_embedding_bytes(model));
    }
    m.expert_bytes = tti_plan_expert_bytes(model, layout, rank);
    m.kv_bytes = tti_plan_mul(tti_plan_area(layout->kv_pages, TTI_PLAN_PAGE_TOKENS),
                              tt_plan_kv_bytes_per_token(v.arch, layout, rank));
    m.kv_bytes = tti_plan_add(m.kv_bytes, tt_plan_state_bytes(v.arch, layout, rank));
    m.exchange_bytes = tti_plan_exchange_bytes(v.arch, layout, rank);
    m.work_bytes = tti_plan_work_bytes(v.arch, layout, rank);
    if (layout->replicate == TT_REPLICATE_NODE) {
        TT_TRY(tti_plan_borrowed_bytes(model, layout, rank, &m.borrowed_bytes));
    }
    m.total_bytes = tti_plan_add(m.dense_bytes - m.borrowed_bytes, m.expert_bytes);
    m.total_bytes = tti_plan_add(m.total_bytes, m.kv_bytes);
    m.total_bytes = tti_plan_add(m.total_bytes, m.exchange_bytes);
    m.total_bytes = tti_plan_add(m.total_bytes, m.work_bytes);
    *memory_out = m;
    return TT_OK;
}
