/* arch_qwen3_moe.c - Qwen3-MoE: grouped-query attention with a norm per head, softmax router.
 * Defaults are those of the Hugging Face configuration class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(4, 0, 32768, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE_OR("intermediate_size", arch.F_dense, TTI_MAX_WIDTH, 6144),
    TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEYS_EXPERTS("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_SIZE_OR("decoder_sparse_step", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, false),
    TTI_KEYS_SWITCHED_WINDOW(4096),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_TRY(tti_arch_check_mlp_only(hyper));
    arch->qk_norm = TT_QK_NORM_HEAD;
    arch->router = tti_router_softmax(hyper->norm_topk);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

const tti_family tti_family_qwen3_moe = {
    .architectures = (const char *const[]){"Qwen3MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen3_moe", NULL},
    .rope_theta = 10000,
    .only = (const tti_only[]){{"mlp_only_layers", NULL}, {NULL, NULL}},
    .layer_types = (const char *const[]){"full_attention", "sliding_attention", NULL},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_unless_mlp_only,
    .set_layer = tti_arch_all_slide,
};
