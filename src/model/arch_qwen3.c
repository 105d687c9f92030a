/* arch_qwen3.c - Qwen3, dense: grouped-query attention with a norm per head. Source:
 * arXiv:2505.09388; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

enum { DEFAULT_HEAD_WIDTH = 128, FIRST_SLIDING_LAYER = 28 };

static const tti_key keys[] = {
    TTI_KEYS_GQA(32, DEFAULT_HEAD_WIDTH, 32768, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEYS_SWITCHED_WINDOW(4096),
    TTI_KEY_COUNT_OR("max_window_layers", max_window_layers, TTI_MAX_LAYERS, FIRST_SLIDING_LAYER),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    hyper->arch.qk_norm = TT_QK_NORM_HEAD;
    return tti_arch_finish_gqa(hyper);
}

const tti_family tti_family_qwen3 = {
    .architectures = (const char *const[]){"Qwen3ForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen3", NULL},
    .rope_theta = 10000,
    .layer_types = (const char *const[]){"full_attention", "sliding_attention", NULL},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .set_layer = tti_arch_last_slide,
};
