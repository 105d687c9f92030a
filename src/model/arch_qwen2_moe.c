/* arch_qwen2_moe.c - Qwen2-MoE (Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B): biases on q, k, v, softmax
 * router, a shared expert behind a gate.
 * Source: arXiv:2407.10671; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

enum { N_WINDOW_LAYERS = 28 };

static const tti_key keys[] = {
    TTI_KEYS_GQA(16, 0, 32768, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE_OR("intermediate_size", arch.F_dense, TTI_MAX_WIDTH, 5632),
    TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_COUNT_OR("shared_expert_intermediate_size", arch.F_shared, TTI_MAX_WIDTH, 5632),
    TTI_KEYS_EXPERTS("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_BOOL_OR("qkv_bias", attention_bias, true),
    TTI_KEY_SIZE_OR("decoder_sparse_step", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, false),
    TTI_KEYS_SWITCHED_WINDOW(4096),
    TTI_KEY_COUNT_OR("max_window_layers", max_window_layers, TTI_MAX_LAYERS, N_WINDOW_LAYERS),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_TRY(tti_arch_check_mlp_only(hyper));
    arch->shared_gate = true;
    arch->router = tti_router_softmax(hyper->norm_topk);
    TT_TRY(tti_arch_check_router(hyper));
    TT_TRY(tti_arch_finish_gqa(hyper));
    arch->o_bias = false;
    return TT_OK;
}

/* Where layers are not typed, every other one of the first ones slides. */
static void set_layer(const tti_hyper *hyper, int64_t id, tt_layer *layer)
{
    tti_arch_set_window(hyper, id, id % 2 == 0 && id < hyper->max_window_layers, layer);
}

#define SHARED TTI_LAYER "mlp.shared_expert."
const tti_family tti_family_qwen2_moe = {
    .architectures = (const char *const[]){"Qwen2MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen2_moe", NULL},
    .rope_theta = 10000,
    .only = (const tti_only[]){{"mlp_only_layers", NULL}, {NULL, NULL}},
    .layer_types = (const char *const[]){"full_attention", "sliding_attention", NULL},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_unless_mlp_only,
    .set_layer = set_layer,
    .tensors = {.role = {[TT_ROLE_SHARED_GATE] = {SHARED "gate_proj.weight"},
                         [TT_ROLE_SHARED_UP] = {SHARED "up_proj.weight"},
                         [TT_ROLE_SHARED_DOWN] = {SHARED "down_proj.weight"},
                         [TT_ROLE_SHARED_ROUTER] = {TTI_LAYER "mlp.shared_expert_gate.weight"}}},
};
