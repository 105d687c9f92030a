/* arch_dots1.c - dots.llm1: attention with a norm per head, sigmoid router with a choice bias,
 * shared experts. Source: arXiv:2506.05767; defaults are those of the Hugging Face configuration
 * class. */
#include "model_internal.h"
#include <string.h>

static const tti_key keys[] = {
    TTI_KEYS_GQA(0, 0, 2048, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_EXPERTS("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    TTI_KEY_SIZE("num_experts_per_tok", arch.K, TTI_MAX_EXPERTS),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_COUNT_OR("n_shared_experts", n_shared, TTI_MAX_EXPERTS, 0),
    TTI_KEY_COUNT_OR("first_k_dense_replace", first_dense, TTI_MAX_LAYERS, 0),
    TTI_KEY_SIZE_OR("moe_layer_freq", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEY_COUNT_OR("n_group", arch.router.n_groups, TTI_MAX_EXPERTS, 1),
    TTI_KEY_COUNT_OR("topk_group", arch.router.n_groups_kept, TTI_MAX_EXPERTS, 1),
    TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, false),
    TTI_KEY_SCALE_OR(1),
    TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, 4096),
    TTI_KEY_COUNT_OR("max_window_layers", max_window_layers, TTI_MAX_LAYERS, 62),
    TTI_KEY_STRING_OR("scoring_func", scoring, "sigmoid"),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    /* The released configuration says "noaux_tc" here, which is the way of choosing: sigmoid with a
     * bias. */
    TT_CHECK(strcmp(hyper->scoring, "sigmoid") == 0 || strcmp(hyper->scoring, "noaux_tc") == 0,
             TT_ERR_UNSUPPORTED, "%s: scoring_func '%s' is not supported for this architecture",
             tti_show_path(hyper->what), tti_show(hyper->scoring).text);
    hyper->use_sliding_window = true;
    arch->qk_norm = TT_QK_NORM_HEAD;
    arch->F_shared = arch->F * hyper->n_shared;
    arch->router = tti_router_sigmoid(hyper);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

static void set_layer(const tti_hyper *hyper, int64_t id, tt_layer *layer)
{
    tti_arch_set_window(hyper, id, id >= hyper->max_window_layers, layer);
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
    .set_layer = set_layer,
};
