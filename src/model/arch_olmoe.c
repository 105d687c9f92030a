/* arch_olmoe.c - OLMoE: attention with norms over the whole of q and k, softmax router. Source:
 * arXiv:2409.02060; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(0, 0, 4096, 1e-5),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEYS_EXPERTS("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    {.type = TTI_KEY_FLOAT,
     .flags = TTI_KEY_NULL_IS_ZERO,
     .name = {"clip_qkv"},
     .offset = TTI_OFFSET(arch.clip_qkv),
     .min = 1e-6,
     .max = 1e9},
    TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, false),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    arch->qk_norm = TT_QK_NORM_WHOLE;
    arch->router = tti_router_softmax(hyper->norm_topk);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

const tti_family tti_family_olmoe = {
    .architectures = (const char *const[]){"OlmoeForCausalLM", NULL},
    .model_types = (const char *const[]){"olmoe", NULL},
    .rope_theta = 10000,
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
};
