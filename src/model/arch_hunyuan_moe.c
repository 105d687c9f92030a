/* arch_hunyuan_moe.c - HunYuan-MoE, V1 (Hunyuan-A13B): norms of q and k after the rotary embedding,
 * softmax router with weights that sum to one, a shared expert; "dynamic" rotary scaling with
 * alpha. Source: its published code; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(0, 0, 2048, 1e-5),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_EXPERTS("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_BOOL_OR("use_qk_norm", use_qk_norm, true),
    TTI_KEYS_END};

/* A number, or a list with the same number for each layer. */
static tt_status same_for_all(const tti_hyper *hyper, const char *key, int64_t fallback,
                              int64_t *out)
{
    const json_t *value = json_object_get(hyper->config, key);
    const json_t *first = json_is_array(value) ? json_array_get(value, 0) : value;
    *out = fallback;
    if (!value || json_is_null(value)) {
        return TT_OK;
    }
    TT_CHECK(json_is_integer(first) && json_integer_value(first) >= 0 &&
                 json_integer_value(first) <= TTI_MAX_EXPERTS,
             TT_ERR_FILE, "%s: '%s' is no count", tti_show_path(hyper->what), key);
    for (size_t i = 1; i < json_array_size(value); i++) {
        TT_CHECK(json_equal(first, json_array_get(value, i)), TT_ERR_UNSUPPORTED,
                 "%s: '%s' differs from layer to layer", tti_show_path(hyper->what), key);
    }
    *out = json_integer_value(first);
    return TT_OK;
}

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_TRY(same_for_all(hyper, "moe_topk", 1, &arch->K));
    TT_TRY(same_for_all(hyper, "num_shared_expert", 1, &hyper->n_shared));
    TT_CHECK(arch->K >= 1, TT_ERR_FILE, "%s: 'moe_topk' is 0", tti_show_path(hyper->what));
    arch->F_shared = arch->F * hyper->n_shared;
    arch->qk_norm = hyper->use_qk_norm ? TT_QK_NORM_HEAD : TT_QK_NORM_NONE;
    arch->qk_norm_after_rope = true;
    arch->router = tti_router_softmax(true);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

#define SHARED TTI_LAYER "mlp.shared_mlp."
const tti_family tti_family_hunyuan_moe = {
    .architectures = (const char *const[]){"HunYuanMoEV1ForCausalLM", NULL},
    .model_types = (const char *const[]){"hunyuan_v1_moe", NULL},
    .rope_theta = 10000,
    .only = (const tti_only[]){{"num_shared_expert", NULL},
                               {"norm_topk_prob", "true"},
                               {"group_limited_greedy", "false"},
                               {"use_mixed_mlp_moe", "true"},
                               {NULL, NULL}},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .tensors = {.role = {[TT_ROLE_Q_NORM] = {TTI_LAYER "self_attn.query_layernorm.weight"},
                         [TT_ROLE_K_NORM] = {TTI_LAYER "self_attn.key_layernorm.weight"},
                         [TT_ROLE_ROUTER] = {TTI_LAYER "mlp.gate.wg.weight"},
                         [TT_ROLE_SHARED_GATE] = {SHARED "gate_proj.weight"},
                         [TT_ROLE_SHARED_UP] = {SHARED "up_proj.weight"},
                         [TT_ROLE_SHARED_DOWN] = {SHARED "down_proj.weight"}}},
};
