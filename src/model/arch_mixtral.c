/* arch_mixtral.c - Mixtral: grouped-query attention, softmax router whose weights always sum to
 * one. Source: arXiv:2401.04088; defaults are those of the Hugging Face configuration class. */
#include "model_internal.h"

static const tti_key keys[] = {
    TTI_KEY_SIZE("num_hidden_layers", arch.L, TTI_MAX_LAYERS),
    TTI_KEY_SIZE("hidden_size", arch.H, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("vocab_size", arch.V, TTI_MAX_VOCABULARY),
    TTI_KEY_SIZE("num_attention_heads", arch.Nq, TTI_MAX_WIDTH),
    TTI_KEY_SIZE_OR("num_key_value_heads", arch.Nkv, TTI_MAX_WIDTH, 8),
    TTI_KEY_COUNT_OR("head_dim", arch.D, TTI_MAX_WIDTH, 0),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_EXPERTS("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_SIZE("num_experts_per_tok", arch.K, TTI_MAX_EXPERTS),
    TTI_KEY_SIZE_OR("max_position_embeddings", arch.context, TTI_MAX_CONTEXT, 131072),
    TTI_KEY_EPS(1e-5),
    TTI_KEY_BOOL_OR("tie_word_embeddings", arch.tied_embeddings, false),
    TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, 0),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    hyper->use_sliding_window = true;
    arch->router = (tt_router){.score = TT_SCORE_SOFTMAX,
                               .n_groups = 1,
                               .n_groups_kept = 1,
                               .normalise = true,
                               .scale = 1};
    tti_arch_limit_to_window(hyper);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

static bool layer_is_moe(const tti_hyper *hyper, int64_t layer)
{
    (void)hyper;
    (void)layer;
    return true;
}

#define LAYER "model.layers.%L."
#define ATTENTION LAYER "self_attn."
#define EXPERTS LAYER "block_sparse_moe.experts."
const tti_family tti_family_mixtral = {
    .architectures = (const char *const[]){"MixtralForCausalLM", NULL},
    .model_types = (const char *const[]){"mixtral", NULL},
    .rope_theta = 1000000,
    .keys = keys,
    .finish = finish,
    .layer_is_moe = layer_is_moe,
    .tensor =
        {
            [TT_ROLE_EMBED] = {"model.embed_tokens.weight"},
            [TT_ROLE_FINAL_NORM] = {"model.norm.weight"},
            [TT_ROLE_HEAD] = {"lm_head.weight"},
            [TT_ROLE_ATTENTION_NORM] = {LAYER "input_layernorm.weight"},
            [TT_ROLE_FFN_NORM] = {LAYER "post_attention_layernorm.weight"},
            [TT_ROLE_Q] = {ATTENTION "q_proj.weight"},
            [TT_ROLE_K] = {ATTENTION "k_proj.weight"},
            [TT_ROLE_V] = {ATTENTION "v_proj.weight"},
            [TT_ROLE_O] = {ATTENTION "o_proj.weight"},
            /* Fused files rename block_sparse_moe to mlp. */
            [TT_ROLE_ROUTER] = {LAYER "block_sparse_moe.gate.weight", LAYER "mlp.gate.weight"},
            [TT_ROLE_EXPERT_GATE] = {EXPERTS "%E.w1.weight"},
            [TT_ROLE_EXPERT_UP] = {EXPERTS "%E.w3.weight"},
            [TT_ROLE_EXPERT_DOWN] = {EXPERTS "%E.w2.weight"},
        },
    .fused_gate_up = {LAYER "mlp.experts.gate_up_proj", EXPERTS "gate_up_proj"},
    .fused_down = {LAYER "mlp.experts.down_proj", EXPERTS "down_proj"},
};
