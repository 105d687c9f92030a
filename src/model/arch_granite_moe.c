/* arch_granite_moe.c - Granite-MoE, and its form with a shared expert: multipliers on embeddings,
 * attention scores and residuals, a divisor of logits; the router chooses by logit. Source: the
 * Granite 3.0 report; defaults are those of the Hugging Face configuration classes. */
#include "arch.h"
#include <string.h>

static const char with_shared[] = "GraniteMoeSharedForCausalLM";

static const tti_key keys[] = {
    TTI_KEYS_GQA(0, 0, 2048, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_COUNT_OR("shared_intermediate_size", arch.F_shared, TTI_MAX_WIDTH, 0),
    TTI_KEYS_EXPERTS("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_FACTOR_OR("embedding_multiplier", arch.embedding_scale, 1),
    TTI_KEY_FACTOR_OR("residual_multiplier", arch.residual_scale, 1),
    TTI_KEY_FACTOR_OR("logits_scaling", arch.logit_divisor, 1),
    {.type = TTI_KEY_REAL,
     .name = {"attention_multiplier"},
     .offset = TTI_OFFSET(attention_multiplier),
     .fallback = 1,
     .min = 1e-6,
     .max = 1e6},
    TTI_KEYS_END};

/* The name says whether there is a shared expert; the key alone must not bring one. */
static tt_status check_shared(const tti_hyper *hyper)
{
    const char *type = json_string_value(json_object_get(hyper->root, "model_type"));
    bool is_named = json_array_size(json_object_get(hyper->root, "architectures")) > 0;
    bool is_shared = is_named ? strcmp(hyper->arch.name, with_shared) == 0
                              : type && strcmp(type, "granitemoeshared") == 0;
    TT_CHECK(is_shared || hyper->arch.F_shared == 0, TT_ERR_UNSUPPORTED,
             "%s: shared_intermediate_size %lld is supported for %s only",
             tti_show_path(hyper->what), (long long)hyper->arch.F_shared, with_shared);
    return TT_OK;
}

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_TRY(check_shared(hyper));
    arch->router = (tt_router){
        .score = TT_SCORE_SOFTMAX_CHOSEN, .n_groups = 1, .n_groups_kept = 1, .scale = 1};
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

#define MOE TTI_LAYER "block_sparse_moe."
#define SHARED TTI_LAYER "shared_mlp."
const tti_family tti_family_granite_moe = {
    .architectures = (const char *const[]){"GraniteMoeForCausalLM", with_shared, NULL},
    .model_types = (const char *const[]){"granitemoe", "granitemoeshared", NULL},
    .rope_theta = 10000,
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .tensors =
        {.role = {[TT_ROLE_ROUTER] = {MOE "router.layer.weight", MOE "router.weight"},
                  [TT_ROLE_EXPERT_DOWN] = {MOE "output_linear.weight", MOE "experts.down_proj"},
                  [TT_ROLE_SHARED_DOWN] = {SHARED "output_linear.weight"}},
         .pair = {[TTI_PAIR_EXPERT] = {MOE "input_linear.weight", MOE "experts.gate_up_proj"},
                  [TTI_PAIR_SHARED] = {SHARED "input_linear.weight"}}},
};
