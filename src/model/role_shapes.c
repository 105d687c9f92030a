/* role_shapes.c - what shape the tensor of a role has in a layer, and whether the architecture has
 * one there at all: a function per group of roles, asked one after another until one knows the
 * role. */
#include "model_internal.h"

typedef struct shape {
    bool present; /* in this layer */
    bool vector;  /* one dimension; cols 1 */
    int64_t rows, cols;
} shape;

static bool matrix(shape *s, bool present, int64_t rows, int64_t cols)
{
    *s = (shape){.present = present, .rows = rows, .cols = cols};
    return true;
}

static bool vector(shape *s, bool present, int64_t rows)
{
    *s = (shape){.present = present, .vector = true, .rows = rows, .cols = 1};
    return true;
}

/* Embedding, head and norms. This and the next: false if the role is of another group. */
static bool trunk_shape(const tt_arch *a, tt_role role, shape *s)
{
    switch (role) {
    case TT_ROLE_EMBED:
    case TT_ROLE_HEAD:
        return matrix(s, true, a->V, a->H);
    case TT_ROLE_HEAD_BIAS:
        return vector(s, a->head_bias, a->V);
    case TT_ROLE_FINAL_NORM:
    case TT_ROLE_ATTENTION_NORM:
    case TT_ROLE_FFN_NORM:
        return vector(s, true, a->H);
    case TT_ROLE_FINAL_NORM_BIAS:
    case TT_ROLE_ATTENTION_NORM_BIAS:
    case TT_ROLE_FFN_NORM_BIAS:
        return vector(s, a->norm == TT_NORM_LAYER, a->H);
    default:
        return false;
    }
}

/* Attention with grouped queries; q and o of latent attention too. */
static bool gqa_shape(const tt_arch *a, tt_role role, bool delta, shape *s)
{
    bool mla = a->attention == TT_ATTENTION_MLA && !delta, gqa = !mla && !delta;
    bool head_norm = a->qk_norm == TT_QK_NORM_HEAD,
         qk_norm = gqa && a->qk_norm != TT_QK_NORM_NONE && !a->qk_norm_weightless;
    int64_t n_q = a->Nq * (mla ? a->nope_dim + a->rope_dim : a->D), n_kv = a->Nkv * a->D;
    switch (role) {
    case TT_ROLE_Q:
        return matrix(s, gqa || (mla && a->q_rank == 0), n_q, a->H);
    case TT_ROLE_K:
    case TT_ROLE_V:
        return matrix(s, gqa, n_kv, a->H);
    case TT_ROLE_O:
        return matrix(s, gqa || mla, a->H, mla ? a->Nq * a->v_dim : n_q);
    case TT_ROLE_Q_BIAS:
        return vector(s, gqa && a->qkv_bias, n_q);
    case TT_ROLE_K_BIAS:
    case TT_ROLE_V_BIAS:
        return vector(s, gqa && a->qkv_bias, n_kv);
    case TT_ROLE_O_BIAS:
        return vector(s, gqa && a->o_bias, a->H);
    case TT_ROLE_Q_NORM:
        return vector(s, qk_norm, head_norm ? a->D : n_q);
    case TT_ROLE_K_NORM:
        return vector(s, qk_norm, head_norm ? a->D : n_kv);
    case TT_ROLE_Q_GATE:
        return matrix(s, gqa && a->attention_gate, n_q, a->H);
    case TT_ROLE_SINKS:
        return vector(s, gqa && a->sinks, a->Nq);
    default:
        return false;
    }
}

/* What latent attention has more. */
static bool mla_shape(const tt_arch *a, tt_role role, bool delta, shape *s)
{
    bool mla = a->attention == TT_ATTENTION_MLA && !delta;
    switch (role) {
    case TT_ROLE_Q_A:
        return matrix(s, mla && a->q_rank > 0, a->q_rank, a->H);
    case TT_ROLE_Q_A_NORM:
        return vector(s, mla && a->q_rank > 0, a->q_rank);
    case TT_ROLE_Q_B:
        return matrix(s, mla && a->q_rank > 0, a->Nq * (a->nope_dim + a->rope_dim), a->q_rank);
    case TT_ROLE_KV_A:
        return matrix(s, mla, a->kv_rank + a->rope_dim, a->H);
    case TT_ROLE_KV_A_NORM:
        return vector(s, mla, a->kv_rank);
    case TT_ROLE_KV_B:
        return matrix(s, mla && !a->mla_split, a->Nq * (a->nope_dim + a->v_dim), a->kv_rank);
    case TT_ROLE_MLA_K:
        return matrix(s, mla && a->mla_split, a->Nq * a->kv_rank, a->nope_dim);
    case TT_ROLE_MLA_V:
        return matrix(s, mla && a->mla_split, a->Nq * a->v_dim, a->kv_rank);
    default:
        return false;
    }
}

static bool delta_shape(const tt_arch *a, tt_role role, bool delta, shape *s)
{
    const tt_delta *d = &a->delta;
    int64_t width = 2 * d->Nk * d->Dk + d->Nv * d->Dv;
    switch (role) {
    case TT_ROLE_DELTA_QKV:
        return matrix(s, delta, width, a->H);
    case TT_ROLE_DELTA_GATE:
        return matrix(s, delta, d->Nv * d->Dv, a->H);
    case TT_ROLE_DELTA_BETA:
    case TT_ROLE_DELTA_DECAY:
        return matrix(s, delta, d->Nv, a->H);
    case TT_ROLE_DELTA_CONV:
        return matrix(s, delta, width, d->conv);
    case TT_ROLE_DELTA_DECAY_BIAS:
    case TT_ROLE_DELTA_DECAY_RATE:
        return vector(s, delta, d->Nv);
    case TT_ROLE_DELTA_NORM:
        return vector(s, delta, d->Dv);
    case TT_ROLE_DELTA_OUT:
        return matrix(s, delta, a->H, d->Nv * d->Dv);
    default:
        return false;
    }
}

static bool ffn_shape(const tt_arch *a, tt_role role, bool moe, shape *s)
{
    bool shared = moe && a->F_shared > 0;
    switch (role) {
    case TT_ROLE_GATE:
    case TT_ROLE_UP:
        return matrix(s, !moe, a->F_dense, a->H);
    case TT_ROLE_DOWN:
        return matrix(s, !moe, a->H, a->F_dense);
    case TT_ROLE_ROUTER:
        return matrix(s, moe, a->E, a->H);
    case TT_ROLE_ROUTER_BIAS:
        return vector(s, moe && a->router.logit_bias, a->E);
    case TT_ROLE_ROUTER_CHOICE_BIAS:
        return vector(s, moe && a->router.choice_bias, a->E);
    case TT_ROLE_EXPERT_GATE:
    case TT_ROLE_EXPERT_UP:
        return matrix(s, moe, a->F, a->H);
    case TT_ROLE_EXPERT_DOWN:
        return matrix(s, moe, a->H, a->F);
    case TT_ROLE_EXPERT_GATE_BIAS:
    case TT_ROLE_EXPERT_UP_BIAS:
        return vector(s, moe && a->expert_bias, a->F);
    case TT_ROLE_EXPERT_DOWN_BIAS:
        return vector(s, moe && a->expert_bias, a->H);
    case TT_ROLE_SHARED_ROUTER:
        return matrix(s, shared && a->shared_gate, 1, a->H);
    case TT_ROLE_SHARED_GATE:
    case TT_ROLE_SHARED_UP:
        return matrix(s, shared, a->F_shared, a->H);
    case TT_ROLE_SHARED_DOWN:
        return matrix(s, shared, a->H, a->F_shared);
    default:
        return false;
    }
}

bool tti_role_shape(const tt_arch *arch, tt_role role, int64_t layer, int64_t *rows_out,
                    int64_t *cols_out, bool *vector_out)
{
    const tt_layer *of = tt_role_is_global(role) ? NULL : &arch->layer[layer];
    bool delta = of && of->mixer == TT_MIXER_DELTA, moe = of && of->is_moe;
    shape s = {0};
    if (!trunk_shape(arch, role, &s) && !gqa_shape(arch, role, delta, &s) &&
        !mla_shape(arch, role, delta, &s) && !delta_shape(arch, role, delta, &s)) {
        (void)ffn_shape(arch, role, moe, &s);
    }
    *rows_out = s.rows;
    *cols_out = s.cols;
    *vector_out = s.vector;
    return s.present;
}
