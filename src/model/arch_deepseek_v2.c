/* arch_deepseek_v2.c - DeepSeek-V2 and V2-Lite: latent attention, softmax router, groups ranked by
 * their best. Source: arXiv:2405.04434; defaults are those of the Hugging Face configuration class.
 */
#include "model_internal.h"
#include <string.h>

static const tti_key keys[] = {
    TTI_KEY_SIZE("num_hidden_layers", arch.L, TTI_MAX_LAYERS),
    TTI_KEY_SIZE("hidden_size", arch.H, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("vocab_size", arch.V, TTI_MAX_VOCABULARY),
    TTI_KEY_SIZE("num_attention_heads", arch.Nq, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_EXPERTS("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"),
    TTI_KEY_SIZE("num_experts_per_tok", arch.K, TTI_MAX_EXPERTS),
    TTI_KEY_SIZE_OR("max_position_embeddings", arch.context, TTI_MAX_CONTEXT, 2048),
    TTI_KEY_EPS(1e-6),
    TTI_KEY_BOOL_OR("tie_word_embeddings", arch.tied_embeddings, false),
    TTI_KEY_COUNT_OR("q_lora_rank", arch.q_rank, TTI_MAX_WIDTH, 1536),
    TTI_KEY_SIZE_OR("kv_lora_rank", arch.kv_rank, TTI_MAX_WIDTH, 512),
    TTI_KEY_SIZE_OR("qk_nope_head_dim", arch.nope_dim, TTI_MAX_WIDTH, 128),
    TTI_KEY_SIZE_OR("qk_rope_head_dim", arch.rope_dim, TTI_MAX_WIDTH, 64),
    TTI_KEY_SIZE_OR("v_head_dim", arch.v_dim, TTI_MAX_WIDTH, 128),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_BOOL_OR("mlp_bias", mlp_bias, false),
    TTI_KEY_COUNT_OR("n_shared_experts", n_shared, TTI_MAX_EXPERTS, 2),
    TTI_KEY_COUNT_OR("first_k_dense_replace", first_dense, TTI_MAX_LAYERS, 0),
    TTI_KEY_SIZE_OR("moe_layer_freq", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEY_COUNT_OR("n_group", arch.router.n_groups, TTI_MAX_EXPERTS, 0),
    TTI_KEY_COUNT_OR("topk_group", arch.router.n_groups_kept, TTI_MAX_EXPERTS, 0),
    TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, false),
    TTI_KEY_SCALE_OR(1),
    TTI_KEY_STRING_OR("topk_method", topk_method, "greedy"),
    TTI_KEY_STRING_OR("scoring_func", scoring, "softmax"),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    tt_router *router = &arch->router;
    bool grouped = strcmp(hyper->topk_method, "group_limited_greedy") == 0;
    TT_CHECK(grouped || strcmp(hyper->topk_method, "greedy") == 0, TT_ERR_UNSUPPORTED,
             "%s: topk_method '%s' is not supported for this architecture",
             tti_show_path(hyper->what), tti_show(hyper->topk_method).text);
    TT_CHECK(strcmp(hyper->scoring, "softmax") == 0, TT_ERR_UNSUPPORTED,
             "%s: scoring_func '%s' is not supported for this architecture",
             tti_show_path(hyper->what), tti_show(hyper->scoring).text);
    /* The published code divides instead of scaling, other loaders ignore the key: no checkpoint
     * sets it. */
    TT_CHECK(!hyper->norm_topk, TT_ERR_UNSUPPORTED,
             "%s: norm_topk_prob is not supported for this architecture",
             tti_show_path(hyper->what));
    router->score = TT_SCORE_SOFTMAX;
    router->group_score = TT_GROUP_MAX;
    if (!grouped || router->n_groups == 0) {
        router->n_groups = 1;
        router->n_groups_kept = 1;
    }
    router->normalise_eps = 1e-20f;
    router->scale = (float)hyper->scale;
    hyper->rope_interleaved = true;
    arch->F_shared = arch->F * hyper->n_shared;
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_mla(hyper);
}

const tti_family tti_family_deepseek_v2 = {
    .architectures = (const char *const[]){"DeepseekV2ForCausalLM", NULL},
    .model_types = (const char *const[]){"deepseek_v2", NULL},
    .rope_theta = 10000,
    .only = (const tti_only[]){{"rope_interleave", "true"}, {NULL, NULL}},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_after_dense,
};
