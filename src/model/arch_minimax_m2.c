/* arch_minimax_m2.c - MiniMax-M2: attention with norms over the whole of q and k and a rotary
 * embedding of part of a head, sigmoid router with a choice bias. Source: its configuration and
 * published code; defaults are those of the Hugging Face configuration class. Its MTP modules are
 * used by no published runtime and not read. */
#include "arch.h"
#include <string.h>

enum { DEFAULT_HEAD_WIDTH = 128 };

static const tti_key keys[] = {
    TTI_KEYS_GQA(8, DEFAULT_HEAD_WIDTH, 196608, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEYS_EXPERTS("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_COUNT_OR("rotary_dim", rotary_dim, TTI_MAX_WIDTH, 0),
    TTI_KEYS_END};

/* "minimax" is also the type of the models before M2, which compute something else. */
static tt_status check_name(const tti_hyper *hyper)
{
    const char *type = json_string_value(json_object_get(hyper->root, "model_type"));
    bool is_named = json_array_size(json_object_get(hyper->root, "architectures")) > 0;
    TT_CHECK(is_named || !type || strcmp(type, "minimax") != 0, TT_ERR_UNSUPPORTED,
             "%s: model_type 'minimax' is supported only with 'architectures' naming %s",
             tti_show_path(hyper->what), hyper->arch.name);
    return TT_OK;
}

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    const json_t *kinds = json_object_get(hyper->config, "attn_type_list");
    TT_TRY(check_name(hyper));
    TT_CHECK(!kinds || json_is_null(kinds) || json_is_array(kinds), TT_ERR_FILE,
             "%s: 'attn_type_list' is not a list", tti_show_path(hyper->what));
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        TT_CHECK(json_integer_value(json_array_get(kinds, i)) == 1, TT_ERR_UNSUPPORTED,
                 "%s: attn_type_list asks for another attention than softmax in layer %zu",
                 tti_show_path(hyper->what), i);
    }
    hyper->norm_topk = true;
    hyper->scale = 1;
    arch->qk_norm = TT_QK_NORM_WHOLE;
    arch->router = tti_router_sigmoid(hyper);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

#define MOE TTI_LAYER "block_sparse_moe."
const tti_family tti_family_minimax_m2 = {
    .architectures = (const char *const[]){"MiniMaxM2ForCausalLM", NULL},
    .model_types = (const char *const[]){"minimax_m2", "minimax", NULL},
    .rope_theta = 5000000,
    .partial_rotary = 0.5,
    .only = (const tti_only[]){{"use_qk_norm", "true"},
                               {"qk_norm_type", "\"per_layer\""},
                               {"scoring_func", "\"sigmoid\""},
                               {"use_routing_bias", "true"},
                               {NULL, NULL}},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .tensors = {.role = {[TT_ROLE_ROUTER] = {MOE "gate.weight", TTI_LAYER "mlp.gate.weight"},
                         [TT_ROLE_ROUTER_CHOICE_BIAS] = {MOE "e_score_correction_bias",
                                                         TTI_LAYER "mlp.e_score_correction_bias"},
                         [TT_ROLE_EXPERT_GATE] = {MOE "experts.%E.w1.weight"},
                         [TT_ROLE_EXPERT_UP] = {MOE "experts.%E.w3.weight"},
                         [TT_ROLE_EXPERT_DOWN] = {MOE "experts.%E.w2.weight",
                                                  TTI_LAYER "mlp.experts.down_proj"}},
                .pair = {[TTI_PAIR_EXPERT] = {TTI_LAYER "mlp.experts.gate_up_proj"}}},
};
