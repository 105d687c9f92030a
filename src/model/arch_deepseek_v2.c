/* arch_deepseek_v2.c - DeepSeek-V2 and V2-Lite: latent attention, softmax router, groups ranked by
 * their best. Source: arXiv:2405.04434; defaults are those of the Hugging Face configuration class.
 */
#include "arch.h"
#include <string.h>

static const tti_key keys[] = {TTI_KEYS_MLA(2048),
                               TTI_KEYS_SHARED(2, 0),
                               TTI_KEY_SIZE_OR("moe_layer_freq", moe_every, TTI_MAX_LAYERS, 1),
                               TTI_KEYS_GROUPS(0, 0, false, 1),
                               TTI_KEY_STRING_OR("topk_method", topk_method, "greedy"),
                               TTI_KEY_STRING_OR("scoring_func", scoring, "softmax"),
                               TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    tt_router *router = &arch->router;
    bool grouped = strcmp(hyper->topk_method, "group_limited_greedy") == 0;
    TT_TRY(tti_arch_check_word(hyper, "topk_method", hyper->topk_method, "greedy",
                               "group_limited_greedy"));
    TT_TRY(tti_arch_check_word(hyper, "scoring_func", hyper->scoring, "softmax", NULL));
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
