/* arch_phimoe.c - Phi-3.5-MoE: layer norms with biases, biases in attention and head, a router that
 * takes its two experts one after the other ("sparsemixer"), longrope. Sources: arXiv:2404.14219,
 * arXiv:2409.12136; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(8, 0, 131072, 1e-5),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEYS_EXPERTS("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_BOOL_OR("lm_head_bias", arch.head_bias, false),
    TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, 0),
    {.type = TTI_KEY_FLOAT,
     .name = {"router_jitter_noise"},
     .offset = TTI_OFFSET(arch.router.jitter),
     .fallback = 0.01,
     .min = 0,
     .max = 1},
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_CHECK(arch->K == 2, TT_ERR_UNSUPPORTED,
             "%s: num_experts_per_tok %lld is not supported for this architecture (2 is)",
             tti_show_path(hyper->what), (long long)arch->K);
    hyper->use_sliding_window = true;
    arch->norm = TT_NORM_LAYER;
    arch->router = (tt_router){.score = TT_SCORE_SPARSEMIXER,
                               .n_groups = 1,
                               .n_groups_kept = 1,
                               .scale = 1,
                               .jitter = arch->router.jitter};
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

#define MOE TTI_LAYER "block_sparse_moe."
const tti_family tti_family_phimoe = {
    .architectures = (const char *const[]){"PhiMoEForCausalLM", "PhimoeForCausalLM", NULL},
    .model_types = (const char *const[]){"phimoe", NULL},
    .rope_theta = 1000000,
    .layer_types = (const char *const[]){"full_attention", "sliding_attention", NULL},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .set_layer = tti_arch_all_slide,
    .tensors = {.role = {[TT_ROLE_ROUTER] = {MOE "gate.weight", TTI_LAYER "mlp.router.weight",
                                             TTI_LAYER "mlp.gate.weight"},
                         [TT_ROLE_EXPERT_GATE] = {MOE "experts.%E.w1.weight"},
                         [TT_ROLE_EXPERT_UP] = {MOE "experts.%E.w3.weight"},
                         [TT_ROLE_EXPERT_DOWN] = {MOE "experts.%E.w2.weight",
                                                  TTI_LAYER "mlp.experts.down_proj"}},
                .pair = {[TTI_PAIR_EXPERT] = {TTI_LAYER "mlp.experts.gate_up_proj"}}},
};
