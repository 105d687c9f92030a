/* arch_glm4_moe.c - GLM-4.5, 4.5-Air, 4.6: grouped-query attention with biases on q, k, v and a
 * rotary embedding of half a head, sigmoid router with a choice bias, shared expert. Source:
 * arXiv:2508.06471; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(8, 0, 131072, 1e-5),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEYS_EXPERTS("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_BOOL_OR("use_qk_norm", use_qk_norm, false),
    TTI_KEYS_SHARED(1, 1),
    TTI_KEYS_GROUPS(1, 1, true, 1),
    TTI_KEY_COUNT_OR("num_nextn_predict_layers", n_nextn, TTI_MAX_LAYERS, 0),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    hyper->moe_every = 1;
    arch->qk_norm = hyper->use_qk_norm ? TT_QK_NORM_HEAD : TT_QK_NORM_NONE;
    arch->F_shared = arch->F * hyper->n_shared;
    arch->router = tti_router_sigmoid(hyper);
    TT_TRY(tti_arch_check_router(hyper));
    TT_TRY(tti_arch_finish_gqa(hyper));
    arch->o_bias = false;
    return TT_OK;
}

const tti_family tti_family_glm4_moe = {
    .architectures = (const char *const[]){"Glm4MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"glm4_moe", NULL},
    .rope_theta = 10000,
    .partial_rotary = 0.5,
    .only = (const tti_only[]){{"scoring_func", "\"sigmoid\""},
                               {"topk_method", "\"noaux_tc\""},
                               {NULL, NULL}},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_after_dense,
    .mtp_probe = TTI_LAYER "eh_proj.weight",
};
