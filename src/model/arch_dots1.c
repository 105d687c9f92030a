/* arch_dots1.c - dots.llm1: attention with a norm per head, sigmoid router with a choice bias,
 * shared experts. Source: arXiv:2506.05767; defaults are those of the Hugging Face configuration
 * class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(0, 0, 2048, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEYS_EXPERTS("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEYS_SHARED(0, 0),
    TTI_KEY_SIZE_OR("moe_layer_freq", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEYS_GROUPS(1, 1, false, 1),
    TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, 4096),
    TTI_KEY_COUNT_OR("max_window_layers", max_window_layers, TTI_MAX_LAYERS, 62),
    TTI_KEY_STRING_OR("scoring_func", scoring, "sigmoid"),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    /* The released configuration says "noaux_tc" here, which is the way of choosing: sigmoid with a
     * bias. */
    TT_TRY(tti_arch_check_word(hyper, "scoring_func", hyper->scoring, "sigmoid", "noaux_tc"));
    hyper->use_sliding_window = true;
    arch->qk_norm = TT_QK_NORM_HEAD;
    arch->F_shared = arch->F * hyper->n_shared;
    arch->router = tti_router_sigmoid(hyper);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

const tti_family tti_family_dots1 = {
    .architectures = (const char *const[]){"Dots1ForCausalLM", NULL},
    .model_types = (const char *const[]){"dots1", NULL},
    .rope_theta = 10000,
    .layer_types = (const char *const[]){"full_attention", "sliding_attention", NULL},
    .only = (const tti_only[]){{"topk_method", "\"noaux_tc\""}, {NULL, NULL}},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_after_dense,
    .set_layer = tti_arch_last_slide,
};
