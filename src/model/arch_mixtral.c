/* arch_mixtral.c - Mixtral: grouped-query attention, softmax router whose weights always sum to
 * one. Source: arXiv:2401.04088; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(8, 0, 131072, 1e-5),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEYS_EXPERTS("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, 0),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    hyper->use_sliding_window = true;
    hyper->arch.router = tti_router_softmax(true);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

const tti_family tti_family_mixtral = {
    .architectures = (const char *const[]){"MixtralForCausalLM", NULL},
    .model_types = (const char *const[]){"mixtral", NULL},
    .rope_theta = 1000000,
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .set_layer = tti_arch_all_slide,
    /* Fused files rename block_sparse_moe to mlp. */
    .tensors = {.role = {[TT_ROLE_ROUTER] = {TTI_LAYER "block_sparse_moe.gate.weight",
                                             TTI_LAYER "mlp.gate.weight"},
                         [TT_ROLE_EXPERT_GATE] = {TTI_LAYER
                                                  "block_sparse_moe.experts.%E.w1.weight"},
                         [TT_ROLE_EXPERT_UP] = {TTI_LAYER "block_sparse_moe.experts.%E.w3.weight"},
                         [TT_ROLE_EXPERT_DOWN] = {TTI_LAYER "block_sparse_moe.experts.%E.w2.weight",
                                                  TTI_LAYER "mlp.experts.down_proj",
                                                  TTI_LAYER "block_sparse_moe.experts.down_proj"}},
                .pair = {[TTI_PAIR_EXPERT] = {TTI_LAYER "mlp.experts.gate_up_proj",
                                              TTI_LAYER "block_sparse_moe.experts.gate_up_proj"}}},
};
