/* hash.c - one number that tells apart models that compute something else or lie elsewhere, so that
 * ranks can check that all opened the same. Every field of tt_arch counts; a field that is added
 * there belongs in the list here (tests/unit/test_roles.c changes many, one at a time). */
#include "model_internal.h"
#include <string.h>
#include "tutti/hash.h"

static void mix(uint64_t *hash, uint64_t value)
{
    *hash = tt_hash_u64(*hash, value);
}

static void mix_float(uint64_t *hash, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    mix(hash, bits);
}

static void mix_table(uint64_t *hash, const float *table, int64_t n)
{
    mix(hash, table != NULL);
    for (int64_t i = 0; table && i < n; i++) {
        mix_float(hash, table[i]);
    }
}

static void mix_integers(uint64_t *hash, const tt_arch *a)
{
    const tt_router *r = &a->router;
    const int64_t values[] = {a->L,
                              a->H,
                              a->V,
                              a->context,
                              a->norm,
                              a->norm_place,
                              a->tied_embeddings,
                              a->head_bias,
                              a->attention,
                              a->Nq,
                              a->Nkv,
                              a->D,
                              a->qk_norm,
                              a->qk_norm_after_rope,
                              a->qk_norm_weightless,
                              a->qkv_bias,
                              a->o_bias,
                              a->sinks,
                              a->attention_gate,
                              a->q_rank,
                              a->kv_rank,
                              a->nope_dim,
                              a->rope_dim,
                              a->v_dim,
                              a->mla_split,
                              a->rope.dim,
                              a->rope.interleaved,
                              a->rope.long_from,
                              a->delta.Nk,
                              a->delta.Nv,
                              a->delta.Dk,
                              a->delta.Dv,
                              a->delta.conv,
                              a->E,
                              a->K,
                              a->F,
                              a->F_shared,
                              a->F_dense,
                              a->shared_gate,
                              a->expert_bias,
                              a->activation,
                              a->n_mtp,
                              r->score,
                              r->choice_bias,
                              r->n_groups,
                              r->n_groups_kept,
                              r->group_score,
                              r->normalise,
                              r->logit_bias,
                              r->weight_on_input};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        mix(hash, (uint64_t)values[i]);
    }
}

static void mix_reals(uint64_t *hash, const tt_arch *a)
{
    const float values[] = {a->norm_eps,
                            a->embedding_scale,
                            a->residual_scale,
                            a->logit_divisor,
                            a->query_scale,
                            a->query_floor,
                            a->clip_qkv,
                            a->mla_norm_eps,
                            a->softmax_scale,
                            a->activation_limit,
                            a->activation_alpha,
                            a->router.normalise_eps,
                            a->router.scale,
                            a->router.normalise_floor,
                            a->router.jitter,
                            a->rope.attention_factor,
                            a->rope.long_attention_factor};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        mix_float(hash, values[i]);
    }
    mix_table(hash, a->rope.inv_freq, a->rope.dim / 2);
    mix_table(hash, a->rope.long_inv_freq, a->rope.dim / 2);
}

static void mix_layer(uint64_t *hash, const tt_layer *layer)
{
    const int64_t values[] = {layer->is_moe,        layer->mixer,  layer->rope, layer->qk_norm,
                              layer->scale_queries, layer->window, layer->chunk};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        mix(hash, (uint64_t)values[i]);
    }
}

uint64_t tt_model_hash(const tt_model *model)
{
    const tt_arch *a = &model->arch;
    uint64_t hash = TT_HASH_BEGIN;
    int64_t n_layers = a->L + a->n_mtp;
    mix_integers(&hash, a);
    mix_reals(&hash, a);
    for (int64_t layer = 0; layer < n_layers; layer++) {
        mix_layer(&hash, &a->layer[layer]);
    }
    tt_tensor tensor;
    for (tt_tensor_place at = {0}; tt_model_next_tensor(model, &at, &tensor);) {
        mix(&hash, (uint64_t)at.role);
        mix(&hash, (uint64_t)at.layer);
        mix(&hash, (uint64_t)at.expert);
        mix(&hash, tt_tensor_hash(&tensor));
    }
    return hash;
}
