/* arch_ernie4_5_moe.c - ERNIE-4.5-MoE (text): interleaved rotary pairs, softmax router whose choice
 * has a bias and whose weights are divided by their sum, or by a floor if that is larger. Source:
 * the ERNIE 4.5 report; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

static const tti_key keys[] = {
    TTI_KEYS_GQA(4, 0, 131072, 1e-5),
    TTI_KEY_TIED(true),
    TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),
    TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_EXPERTS("moe_num_experts", "num_experts", "num_local_experts", "n_routed_experts"),
    {.type = TTI_KEY_INT,
     .flags = TTI_KEY_REQUIRED,
     .name = {"moe_k", "num_experts_per_tok"},
     .offset = TTI_OFFSET(arch.K),
     .min = 1,
     .max = TTI_MAX_EXPERTS},
    TTI_KEY_COUNT_OR("moe_num_shared_experts", n_shared, TTI_MAX_EXPERTS, 2),
    TTI_KEY_SIZE_OR("moe_layer_interval", moe_every, TTI_MAX_LAYERS, 1),
    {.type = TTI_KEY_FLOAT,
     .name = {"moe_norm_min"},
     .offset = TTI_OFFSET(arch.router.normalise_floor),
     .fallback = 1e-12,
     .min = 0,
     .max = 1},
    TTI_KEYS_END};

/* moe_layer_start_index and _end_index are numbers, or in some files lists with one for each
 * modality. */
static tt_status layer_index(const tti_hyper *hyper, const char *key, bool largest,
                             int64_t fallback, int64_t *out)
{
    const json_t *value = json_object_get(hyper->config, key);
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    TT_CHECK(n >= 1, TT_ERR_FILE, "%s: '%s' is an empty list", tti_show_path(hyper->what), key);
    *out = fallback;
    for (size_t i = 0; value && !json_is_null(value) && i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        TT_CHECK(json_is_integer(one) && json_integer_value(one) >= -1 &&
                     json_integer_value(one) <= TTI_MAX_LAYERS,
                 TT_ERR_FILE, "%s: '%s' is no number of a layer", tti_show_path(hyper->what), key);
        int64_t index = json_integer_value(one) < 0 ? hyper->arch.L - 1 : json_integer_value(one);
        *out = i == 0 || (index > *out) == largest ? index : *out;
    }
    return TT_OK;
}

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_TRY(layer_index(hyper, "moe_layer_start_index", false, 1, &hyper->first_dense));
    TT_TRY(layer_index(hyper, "moe_layer_end_index", true, arch->L - 1, &hyper->last_moe));
    float floor = arch->router.normalise_floor;
    arch->F_shared = arch->F * hyper->n_shared;
    arch->router = tti_router_softmax(true);
    arch->router.choice_bias = true;
    arch->router.normalise_floor = floor;
    hyper->rope_interleaved = true;
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

static bool layer_is_moe(const tti_hyper *hyper, int64_t layer)
{
    return layer >= hyper->first_dense && layer <= hyper->last_moe &&
           (layer + 1) % hyper->moe_every == 0;
}

const tti_family tti_family_ernie4_5_moe = {
    .architectures = (const char *const[]){"Ernie4_5_MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"ernie4_5_moe", NULL},
    .rope_theta = 500000,
    .only = (const tti_only[]){{"moe_gate_act", "\"softmax\""},
                               {"moe_use_aux_free", "true"},
                               {"rope_interleave", "true"},
                               {NULL, NULL}},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = layer_is_moe,
    .tensors = {.role = {[TT_ROLE_ROUTER_CHOICE_BIAS] =
                             {TTI_LAYER "mlp.moe_statics.e_score_correction_bias",
                              TTI_LAYER "mlp.gate.moe_statics.e_score_correction_bias"}}},
};
