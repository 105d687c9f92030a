/* arch_qwen3_moe.c - Qwen3-MoE: grouped-query attention with a norm per head, softmax router.
 * Defaults are those of the Hugging Face configuration class. */
#include "model_internal.h"

static const tti_key keys[] = {
    TTI_KEY_SIZE("num_hidden_layers", arch.L, TTI_MAX_LAYERS),
    TTI_KEY_SIZE("hidden_size", arch.H, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("vocab_size", arch.V, TTI_MAX_VOCABULARY),
    TTI_KEY_SIZE("num_attention_heads", arch.Nq, TTI_MAX_WIDTH),
    TTI_KEY_SIZE_OR("num_key_value_heads", arch.Nkv, TTI_MAX_WIDTH, 4),
    TTI_KEY_COUNT_OR("head_dim", arch.D, TTI_MAX_WIDTH, 0),
    TTI_KEY_SIZE_OR("intermediate_size", arch.F_dense, TTI_MAX_WIDTH, 6144),
    TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_EXPERTS("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_SIZE("num_experts_per_tok", arch.K, TTI_MAX_EXPERTS),
    TTI_KEY_SIZE_OR("max_position_embeddings", arch.context, TTI_MAX_CONTEXT, 32768),
    TTI_KEY_EPS(1e-6),
    TTI_KEY_BOOL_OR("tie_word_embeddings", arch.tied_embeddings, false),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_SIZE_OR("decoder_sparse_step", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, false),
    TTI_KEY_BOOL_OR("use_sliding_window", use_sliding_window, false),
    TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, 0),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    const json_t *dense = json_object_get(hyper->config, "mlp_only_layers");
    TT_CHECK(!dense || json_is_null(dense) || json_is_array(dense), TT_ERR_FILE,
             "%s: 'mlp_only_layers' is not a list", tti_show_path(hyper->what));
    TT_CHECK(json_array_size(dense) <= (size_t)arch->L, TT_ERR_FILE,
             "%s: 'mlp_only_layers' has more entries than there are layers",
             tti_show_path(hyper->what));
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *layer = json_array_get(dense, i);
        TT_CHECK(json_is_integer(layer) && json_integer_value(layer) >= 0 &&
                     json_integer_value(layer) < arch->L,
                 TT_ERR_FILE, "%s: 'mlp_only_layers' names a layer that is not there",
                 tti_show_path(hyper->what));
    }
    arch->qk_norm = TT_QK_NORM_HEAD;
    arch->router = (tt_router){.score = TT_SCORE_SOFTMAX,
                               .n_groups = 1,
                               .n_groups_kept = 1,
                               .normalise = hyper->norm_topk,
                               .scale = 1};
    tti_arch_limit_to_window(hyper);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

static bool layer_is_moe(const tti_hyper *hyper, int64_t layer)
{
    const json_t *dense = json_object_get(hyper->config, "mlp_only_layers");
    for (size_t i = 0; i < json_array_size(dense); i++) {
        if (json_integer_value(json_array_get(dense, i)) == layer) {
            return false;
        }
    }
    return (layer + 1) % hyper->moe_every == 0;
}

const tti_family tti_family_qwen3_moe = {
    .architectures = (const char *const[]){"Qwen3MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen3_moe", NULL},
    .rope_theta = 10000,
    .keys = keys,
    .finish = finish,
    .layer_is_moe = layer_is_moe,
};
