/* arch_flex_olmo.c - FlexOlmo: norms behind attention and experts instead of before them, norms
 * over the whole of q and k, softmax router. Source: arXiv:2507.07024; defaults are those of the
 * Hugging Face configuration class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(0, 0, 4096, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEYS_EXPERTS("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, false),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    arch->norm_place = TT_NORM_AFTER;
    arch->qk_norm = TT_QK_NORM_WHOLE;
    arch->router = tti_router_softmax(hyper->norm_topk);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

const tti_family tti_family_flex_olmo = {
    .architectures = (const char *const[]){"FlexOlmoForCausalLM", NULL},
    .model_types = (const char *const[]){"flex_olmo", NULL},
    .rope_theta = 500000,
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .tensors = {.role = {[TT_ROLE_ATTENTION_NORM] = {TTI_LAYER "post_attention_layernorm.weight"},
                         [TT_ROLE_FFN_NORM] = {TTI_LAYER "post_feedforward_layernorm.weight"}}},
};
