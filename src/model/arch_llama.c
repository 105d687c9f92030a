/* arch_llama.c - dense decoders of the Llama kind: Llama 2 and 3, and Mistral, whose layers all
 * slide. Sources: arXiv:2407.21783, arXiv:2310.06825; defaults are those of the Hugging Face
 * configuration classes. */
#include "arch.h"

static const tti_key llama_keys[] = {TTI_KEYS_GQA(0, 0, 2048, 1e-6), TTI_KEY_TIED(false),
                                     TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),
                                     TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
                                     TTI_KEYS_END};

static const tti_key mistral_keys[] = {
    TTI_KEYS_GQA(8, 0, 131072, 1e-6), TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),
    TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, 4096), TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    hyper->use_sliding_window = true;
    return tti_arch_finish_gqa(hyper);
}

const tti_family tti_family_llama = {
    .architectures = (const char *const[]){"LlamaForCausalLM", NULL},
    .model_types = (const char *const[]){"llama", NULL},
    .rope_theta = 10000,
    .keys = llama_keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
};

const tti_family tti_family_mistral = {
    .architectures = (const char *const[]){"MistralForCausalLM", NULL},
    .model_types = (const char *const[]){"mistral", NULL},
    .rope_theta = 10000,
    .layer_types = (const char *const[]){"full_attention", "sliding_attention", NULL},
    .keys = mistral_keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .set_layer = tti_arch_all_slide,
};
