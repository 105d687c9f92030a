/* arch_deepseek_v3.c - DeepSeek-V3, R1, V3.1, Kimi-K2, Moonlight: latent attention, sigmoid router
 * with a choice bias and groups ranked by their two best. Source: arXiv:2412.19437. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_MLA(4096),
    TTI_KEY_BOOL_OR("rope_interleave", rope_interleaved, true),
    TTI_KEYS_SHARED(1, 3),
    TTI_KEY_SIZE_OR("moe_layer_freq", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEYS_GROUPS(8, 4, true, 2.5),
    TTI_KEY_STRING_OR("topk_method", topk_method, "noaux_tc"),
    TTI_KEY_STRING_OR("scoring_func", scoring, "sigmoid"),
    TTI_KEY_COUNT_OR("num_nextn_predict_layers", n_nextn, TTI_MAX_LAYERS, 0),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_TRY(tti_arch_check_word(hyper, "topk_method", hyper->topk_method, "noaux_tc", NULL));
    TT_TRY(tti_arch_check_word(hyper, "scoring_func", hyper->scoring, "sigmoid", NULL));
    arch->router = tti_router_sigmoid(hyper);
    arch->F_shared = arch->F * hyper->n_shared;
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_mla(hyper);
}

const tti_family tti_family_deepseek_v3 = {
    .architectures = (const char *const[]){"DeepseekV3ForCausalLM", NULL},
    .model_types = (const char *const[]){"deepseek_v3", "kimi_k2", NULL},
    .rope_theta = 10000,
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_after_dense,
    .mtp_probe = TTI_LAYER "eh_proj.weight",
};
