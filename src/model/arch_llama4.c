/* arch_llama4.c - Llama 4, the text part (Scout, Maverick): layers with a rotary embedding see
 * their own chunk of the context, every few layers one without sees all of it, its queries scaled
 * by position; one expert whose input is weighted, and a shared expert.
 * Source: its published code; defaults are those of the Hugging Face configuration class. */
#include "arch.h"

enum { DEFAULT_HEAD_WIDTH = 128, DEFAULT_CHUNK = 8192, DEFAULT_ROPE_INTERVAL = 4 };

static const tti_key keys[] = {
    TTI_KEYS_GQA(8, DEFAULT_HEAD_WIDTH, 131072, 1e-5),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE_OR("intermediate_size", arch.F, TTI_MAX_WIDTH, 8192),
    TTI_KEY_SIZE_OR("intermediate_size_mlp", arch.F_dense, TTI_MAX_WIDTH, 16384),
    TTI_KEY_EXPERTS("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_SIZE_OR("num_experts_per_tok", arch.K, TTI_MAX_EXPERTS, 1),
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),
    TTI_KEY_BOOL_OR("use_qk_norm", use_qk_norm, true),
    TTI_KEY_SIZE_OR("interleave_moe_layer_step", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEY_SIZE_OR("no_rope_layer_interval", layer_interval, TTI_MAX_LAYERS,
                    DEFAULT_ROPE_INTERVAL),
    TTI_KEY_COUNT_OR("attention_chunk_size", chunk, TTI_MAX_CONTEXT, DEFAULT_CHUNK),
    TTI_KEY_FACTOR_OR("attn_scale", arch.query_scale, 0.1),
    TTI_KEY_FACTOR_OR("floor_scale", arch.query_floor, 8192),
    TTI_KEYS_END};

/* A list of whole numbers in [0, limit), or nothing. */
static tt_status check_list(const tti_hyper *hyper, const char *key, int64_t limit)
{
    const json_t *list = json_object_get(hyper->config, key);
    TT_CHECK(!list || json_is_null(list) || json_is_array(list), TT_ERR_FILE,
             "%s: '%s' is not a list", tti_show_path(hyper->what), key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        TT_CHECK(json_is_integer(value) && json_integer_value(value) >= 0 &&
                     json_integer_value(value) < limit,
                 TT_ERR_FILE, "%s: '%s' holds what is not within 0 and %lld",
                 tti_show_path(hyper->what), key, (long long)limit - 1);
    }
    return TT_OK;
}

/* A flag, which released files write as a number: all but 0 is true. */
static tt_status read_tuning(tti_hyper *hyper)
{
    static const char key[] = "attn_temperature_tuning";
    const json_t *value = json_object_get(hyper->config, key);
    bool stated = value && !json_is_null(value);
    TT_CHECK(!stated || json_is_boolean(value) || json_is_integer(value), TT_ERR_FILE,
             "%s: '%s' is neither true or false nor an integer", tti_show_path(hyper->what), key);
    hyper->scale_queries = !stated || json_is_true(value) || json_integer_value(value) != 0;
    return TT_OK;
}

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_TRY(read_tuning(hyper));
    TT_TRY(check_list(hyper, "moe_layers", arch->L));
    TT_TRY(check_list(hyper, "no_rope_layers", 2));
    size_t n_rope = json_array_size(json_object_get(hyper->config, "no_rope_layers"));
    TT_CHECK(n_rope == 0 || n_rope >= (size_t)arch->L, TT_ERR_FILE,
             "%s: 'no_rope_layers' has %zu entries for %lld layers", tti_show_path(hyper->what),
             n_rope, (long long)arch->L);
    arch->F_shared = arch->F;
    if (hyper->use_qk_norm) {
        arch->qk_norm = TT_QK_NORM_HEAD;
        arch->qk_norm_after_rope = true;
        arch->qk_norm_weightless = true;
    }
    hyper->rope_interleaved = true;
    arch->router = (tt_router){.score = TT_SCORE_SIGMOID_CHOSEN,
                               .n_groups = 1,
                               .n_groups_kept = 1,
                               .scale = 1,
                               .weight_on_input = true};
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

static bool layer_is_moe(const tti_hyper *hyper, int64_t layer)
{
    const json_t *list = json_object_get(hyper->config, "moe_layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_integer_value(json_array_get(list, i)) == layer) {
            return true;
        }
    }
    return !json_is_array(list) && (layer + 1) % hyper->moe_every == 0;
}

/* The key's name says the opposite of what it holds: 1 = this layer has a rotary embedding. */
static void set_layer(const tti_hyper *hyper, int64_t id, tt_layer *layer)
{
    const json_t *list = json_object_get(hyper->config, "no_rope_layers");
    layer->rope = json_array_size(list) > 0
                      ? json_integer_value(json_array_get(list, (size_t)id)) == 1
                      : (id + 1) % hyper->layer_interval != 0;
    layer->qk_norm = hyper->use_qk_norm && layer->rope;
    layer->scale_queries = hyper->scale_queries && !layer->rope;
    bool chunked = tti_arch_layer_is(hyper, id, "chunked_attention", layer->rope);
    layer->chunk = chunked && hyper->chunk < hyper->arch.context ? hyper->chunk : 0;
}

#define FFN TTI_LAYER "feed_forward."
#define EXPERTS FFN "experts."
#define SHARED FFN "shared_expert."
const tti_family tti_family_llama4 = {
    .architectures =
        (const char *const[]){"Llama4ForConditionalGeneration", "Llama4ForCausalLM", NULL},
    .model_types = (const char *const[]){"llama4", "llama4_text", NULL},
    .nested = "text_config",
    .prefix = "language_model.",
    .rope_theta = 500000,
    .layer_types = (const char *const[]){"full_attention", "chunked_attention", NULL},
    .only = (const tti_only[]){{"no_rope_layers", NULL},
                               {"rope_interleave", "true"},
                               {"scoring_func", "\"sigmoid\""},
                               {NULL, NULL}},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = layer_is_moe,
    .set_layer = set_layer,
    .tensors = {.role = {[TT_ROLE_GATE] = {FFN "gate_proj.weight"},
                         [TT_ROLE_UP] = {FFN "up_proj.weight"},
                         [TT_ROLE_DOWN] = {FFN "down_proj.weight"},
                         [TT_ROLE_ROUTER] = {FFN "router.weight"},
                         [TT_ROLE_EXPERT_GATE] = {EXPERTS "%E.gate_proj.weight"},
                         [TT_ROLE_EXPERT_UP] = {EXPERTS "%E.up_proj.weight"},
                         [TT_ROLE_EXPERT_DOWN] = {EXPERTS "%E.down_proj.weight",
                                                  EXPERTS "down_proj"},
                         [TT_ROLE_SHARED_GATE] = {SHARED "gate_proj.weight"},
                         [TT_ROLE_SHARED_UP] = {SHARED "up_proj.weight"},
                         [TT_ROLE_SHARED_DOWN] = {SHARED "down_proj.weight"}},
                .pair = {[TTI_PAIR_EXPERT] = {EXPERTS "gate_up_proj"}},
                .transposed = true},
};
