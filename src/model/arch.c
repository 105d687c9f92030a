/* arch.c - the list of architecture families, and what several of them share.
 *
 * A family is one file, arch_<family>.c, that describes it as data (tti_family), and one row here.
 */
#include "arch.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const tti_family *const families[] = {
    &tti_family_deepseek_v2,  &tti_family_deepseek_v3, &tti_family_dots1,
    &tti_family_ernie4_5_moe, &tti_family_flex_olmo,   &tti_family_glm4_moe,
    &tti_family_gpt_oss,      &tti_family_granite_moe, &tti_family_hunyuan_moe,
    &tti_family_llama,        &tti_family_llama4,      &tti_family_minimax_m2,
    &tti_family_mistral,      &tti_family_mixtral,     &tti_family_olmoe,
    &tti_family_phimoe,       &tti_family_qwen2_moe,   &tti_family_qwen3,
    &tti_family_qwen3_moe,    &tti_family_qwen3_next,
};
enum {
    N_FAMILIES = sizeof(families) / sizeof(families[0]),
    KNOWN_BYTES = 800 /* of the list of architectures in a message */
};

#define ATTENTION TTI_LAYER "self_attn."
#define EXPERTS TTI_LAYER "mlp.experts."
#define SHARED TTI_LAYER "mlp.shared_experts."
const tti_tensor_names tti_common_tensors = {
    .role =
        {
            [TT_ROLE_EMBED] = {"model.embed_tokens.weight"},
            [TT_ROLE_FINAL_NORM] = {"model.norm.weight"},
            [TT_ROLE_FINAL_NORM_BIAS] = {"model.norm.bias"},
            [TT_ROLE_HEAD] = {"lm_head.weight"},
            [TT_ROLE_HEAD_BIAS] = {"lm_head.bias"},
            [TT_ROLE_ATTENTION_NORM_BIAS] = {TTI_LAYER "input_layernorm.bias"},
            [TT_ROLE_FFN_NORM_BIAS] = {TTI_LAYER "post_attention_layernorm.bias"},
            [TT_ROLE_ATTENTION_NORM] = {TTI_LAYER "input_layernorm.weight"},
            [TT_ROLE_FFN_NORM] = {TTI_LAYER "post_attention_layernorm.weight"},
            [TT_ROLE_Q] = {ATTENTION "q_proj.weight"},
            [TT_ROLE_K] = {ATTENTION "k_proj.weight"},
            [TT_ROLE_V] = {ATTENTION "v_proj.weight"},
            [TT_ROLE_O] = {ATTENTION "o_proj.weight"},
            [TT_ROLE_Q_BIAS] = {ATTENTION "q_proj.bias"},
            [TT_ROLE_K_BIAS] = {ATTENTION "k_proj.bias"},
            [TT_ROLE_V_BIAS] = {ATTENTION "v_proj.bias"},
            [TT_ROLE_O_BIAS] = {ATTENTION "o_proj.bias"},
            [TT_ROLE_Q_NORM] = {ATTENTION "q_norm.weight"},
            [TT_ROLE_K_NORM] = {ATTENTION "k_norm.weight"},
            [TT_ROLE_Q_A] = {ATTENTION "q_a_proj.weight"},
            [TT_ROLE_Q_A_NORM] = {ATTENTION "q_a_layernorm.weight"},
            [TT_ROLE_Q_B] = {ATTENTION "q_b_proj.weight"},
            [TT_ROLE_KV_A] = {ATTENTION "kv_a_proj_with_mqa.weight"},
            [TT_ROLE_KV_A_NORM] = {ATTENTION "kv_a_layernorm.weight"},
            [TT_ROLE_KV_B] = {ATTENTION "kv_b_proj.weight"},
            [TT_ROLE_GATE] = {TTI_LAYER "mlp.gate_proj.weight"},
            [TT_ROLE_UP] = {TTI_LAYER "mlp.up_proj.weight"},
            [TT_ROLE_DOWN] = {TTI_LAYER "mlp.down_proj.weight"},
            [TT_ROLE_ROUTER] = {TTI_LAYER "mlp.gate.weight"},
            [TT_ROLE_ROUTER_CHOICE_BIAS] = {TTI_LAYER "mlp.gate.e_score_correction_bias"},
            [TT_ROLE_EXPERT_GATE] = {EXPERTS "%E.gate_proj.weight"},
            [TT_ROLE_EXPERT_UP] = {EXPERTS "%E.up_proj.weight"},
            [TT_ROLE_EXPERT_DOWN] = {EXPERTS "%E.down_proj.weight", EXPERTS "down_proj"},
            [TT_ROLE_SHARED_GATE] = {SHARED "gate_proj.weight"},
            [TT_ROLE_SHARED_UP] = {SHARED "up_proj.weight"},
            [TT_ROLE_SHARED_DOWN] = {SHARED "down_proj.weight"},
        },
    .pair = {[TTI_PAIR_EXPERT] = {EXPERTS "gate_up_proj"}},
};

bool tti_arch_every_layer(const tti_hyper *hyper, int64_t layer)
{
    (void)hyper;
    (void)layer;
    return true;
}

bool tti_arch_after_dense(const tti_hyper *hyper, int64_t layer)
{
    return layer >= hyper->first_dense && layer % hyper->moe_every == 0;
}

static const json_t *mlp_only_layers(const tti_hyper *hyper)
{
    return json_object_get(hyper->config, "mlp_only_layers");
}

bool tti_arch_unless_mlp_only(const tti_hyper *hyper, int64_t layer)
{
    const json_t *dense = mlp_only_layers(hyper);
    for (size_t i = 0; i < json_array_size(dense); i++) {
        if (json_integer_value(json_array_get(dense, i)) == layer) {
            return false;
        }
    }
    return (layer + 1) % hyper->moe_every == 0;
}

tt_status tti_arch_check_word(const tti_hyper *hyper, const char *key, const char *value,
                              const char *one, const char *other)
{
    TT_CHECK(strcmp(value, one) == 0 || (other && strcmp(value, other) == 0), TT_ERR_UNSUPPORTED,
             "%s: %s '%s' is not supported for this architecture", tti_show_path(hyper->what), key,
             tti_show(value).text);
    return TT_OK;
}

tt_status tti_arch_check_mlp_only(const tti_hyper *hyper)
{
    const json_t *dense = mlp_only_layers(hyper);
    TT_CHECK(!dense || json_is_null(dense) || json_is_array(dense), TT_ERR_FILE,
             "%s: 'mlp_only_layers' is not a list", tti_show_path(hyper->what));
    TT_CHECK(json_array_size(dense) <= (size_t)hyper->arch.L, TT_ERR_FILE,
             "%s: 'mlp_only_layers' has more entries than there are layers",
             tti_show_path(hyper->what));
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *layer = json_array_get(dense, i);
        TT_CHECK(json_is_integer(layer) && json_integer_value(layer) >= 0 &&
                     json_integer_value(layer) < hyper->arch.L,
                 TT_ERR_FILE, "%s: 'mlp_only_layers' names a layer that is not there",
                 tti_show_path(hyper->what));
    }
    return TT_OK;
}

bool tti_arch_layer_is(const tti_hyper *hyper, int64_t id, const char *type, bool by_default)
{
    if (id >= hyper->arch.L) {
        return false;
    }
    return hyper->layer_types
               ? strcmp(json_string_value(json_array_get(hyper->layer_types, (size_t)id)), type) ==
                     0
               : by_default;
}

void tti_arch_set_window(const tti_hyper *hyper, int64_t id, bool by_default, tt_layer *layer)
{
    /* A window as wide as the context hides nothing. */
    if (hyper->use_sliding_window && hyper->sliding_window < hyper->arch.context &&
        tti_arch_layer_is(hyper, id, "sliding_attention", by_default)) {
        layer->window = hyper->sliding_window;
    }
}

void tti_arch_all_slide(const tti_hyper *hyper, int64_t id, tt_layer *layer)
{
    tti_arch_set_window(hyper, id, true, layer);
}

void tti_arch_last_slide(const tti_hyper *hyper, int64_t id, tt_layer *layer)
{
    tti_arch_set_window(hyper, id, id >= hyper->max_window_layers, layer);
}

tt_router tti_router_softmax(bool normalise)
{
    return (tt_router){.score = TT_SCORE_SOFTMAX,
                       .n_groups = 1,
                       .n_groups_kept = 1,
                       .normalise = normalise,
                       .scale = 1};
}

tt_router tti_router_sigmoid(const tti_hyper *hyper)
{
    return (tt_router){
        .score = TT_SCORE_SIGMOID,
        .choice_bias = true,
        .n_groups = hyper->arch.router.n_groups > 0 ? hyper->arch.router.n_groups : 1,
        .n_groups_kept = hyper->arch.router.n_groups > 0 ? hyper->arch.router.n_groups_kept : 1,
        .group_score = TT_GROUP_TOP2_SUM,
        .normalise = hyper->norm_topk,
        .normalise_eps = 1e-20f,
        .scale = (float)hyper->scale};
}

/* Low-rank norms of latent attention use this whatever rms_norm_eps says (DeepSeek's reference code
 * does). */
static const float MLA_NORM_EPS = 1e-6f;

static bool has_name(const char *const *names, const char *name)
{
    for (; *names; names++) {
        if (strcmp(*names, name) == 0) {
            return true;
        }
    }
    return false;
}

/* "A, B, C": the architectures of all families. */
static void list_known(char *list, size_t bytes)
{
    size_t used = 0;
    for (int i = 0; i < N_FAMILIES; i++) {
        for (const char *const *name = families[i]->architectures; *name && used < bytes; name++) {
            used += (size_t)snprintf(list + used, bytes - used, "%s%s", used ? ", " : "", *name);
        }
    }
}

tt_status tti_family_find(const char *what, const json_t *config, const tti_family **family_out,
                          const char **name_out)
{
    const json_t *list = json_object_get(config, "architectures");
    const json_t *type = json_object_get(config, "model_type");
    TT_CHECK(!list || json_is_null(list) ||
                 (json_is_array(list) && json_array_size(list) > 0 &&
                  json_is_string(json_array_get(list, 0))),
             TT_ERR_FILE, "%s: 'architectures' is not a list of names", tti_show_path(what));
    TT_CHECK(!type || json_is_null(type) || json_is_string(type), TT_ERR_FILE,
             "%s: 'model_type' is not a string", tti_show_path(what));
    const char *architecture =
        json_is_array(list) ? json_string_value(json_array_get(list, 0)) : NULL;
    const char *model_type = json_is_string(type) ? json_string_value(type) : NULL;
    TT_CHECK(architecture || model_type, TT_ERR_FILE,
             "%s: has neither 'architectures' nor 'model_type'", tti_show_path(what));
    /* Both are asked where both are stated: a fork that changes one computes something else. */
    for (int i = 0; i < N_FAMILIES; i++) {
        if ((!architecture || has_name(families[i]->architectures, architecture)) &&
            (!model_type || has_name(families[i]->model_types, model_type))) {
            *family_out = families[i];
            *name_out = architecture ? architecture : families[i]->architectures[0];
            return TT_OK;
        }
    }
    char known[KNOWN_BYTES] = "";
    list_known(known, sizeof(known));
    return TT_FAIL(TT_ERR_UNSUPPORTED,
                   "%s: architecture '%s' (model_type '%s') is not supported; supported are %s",
                   tti_show_path(what), architecture ? tti_show(architecture).text : "",
                   model_type ? tti_show(model_type).text : "", known);
}

/* Windows that layer_types asks for, but no key gives the width of. */
static tt_status check_windows(const tti_hyper *hyper)
{
    bool slides = false;
    for (int64_t i = 0; i < hyper->arch.L; i++) {
        slides |= tti_arch_layer_is(hyper, i, "sliding_attention", false);
    }
    TT_CHECK(!slides || (hyper->use_sliding_window && hyper->sliding_window > 0), TT_ERR_FILE,
             "%s: 'layer_types' names sliding_attention, and no sliding_window is given",
             tti_show_path(hyper->what));
    return TT_OK;
}

/* The rotated components of a head of width D. */
static int64_t rotary_dim(const tti_hyper *hyper)
{
    return hyper->rotary_dim > 0
               ? hyper->rotary_dim
               : (int64_t)((double)hyper->arch.D * hyper->rope.partial_rotary_factor);
}

tt_status tti_arch_finish_gqa(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    arch->attention = TT_ATTENTION_GQA;
    if (arch->Nkv == 0) {
        arch->Nkv = arch->Nq;
    }
    TT_CHECK(arch->Nq % arch->Nkv == 0, TT_ERR_FILE,
             "%s: num_attention_heads %lld is no multiple of num_key_value_heads %lld",
             tti_show_path(hyper->what), (long long)arch->Nq, (long long)arch->Nkv);
    if (arch->D == 0) {
        TT_CHECK(arch->H % arch->Nq == 0, TT_ERR_FILE,
                 "%s: hidden_size %lld is no multiple of num_attention_heads %lld, and no head_dim "
                 "is given",
                 tti_show_path(hyper->what), (long long)arch->H, (long long)arch->Nq);
        arch->D = arch->H / arch->Nq;
    }
    arch->qkv_bias = hyper->attention_bias;
    arch->o_bias = hyper->attention_bias;
    arch->softmax_scale = (float)(hyper->attention_multiplier > 0 ? hyper->attention_multiplier
                                                                  : 1 / sqrt((double)arch->D));
    if (hyper->sliding_window == 0) {
        hyper->use_sliding_window = false;
    }
    TT_TRY(check_windows(hyper));
    TT_CHECK(rotary_dim(hyper) <= arch->D, TT_ERR_FILE,
             "%s: %lld rotary components of heads %lld wide", tti_show_path(hyper->what),
             (long long)rotary_dim(hyper), (long long)arch->D);
    TT_TRY(tti_rope_build(hyper->what, &hyper->rope, rotary_dim(hyper), hyper->rope_interleaved,
                          arch->context, &arch->rope));
    return tti_rope_extend(hyper->what, &hyper->rope, &arch->context);
}

tt_status tti_arch_finish_mla(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    arch->attention = TT_ATTENTION_MLA;
    TT_CHECK(!hyper->attention_bias, TT_ERR_UNSUPPORTED,
             "%s: attention_bias with latent attention is not supported",
             tti_show_path(hyper->what));
    TT_CHECK(!hyper->mlp_bias, TT_ERR_UNSUPPORTED, "%s: mlp_bias is not supported",
             tti_show_path(hyper->what));
    TT_CHECK(strcmp(hyper->rope.type, "longrope") != 0, TT_ERR_UNSUPPORTED,
             "%s: longrope is not supported with latent attention", tti_show_path(hyper->what));
    arch->mla_norm_eps = MLA_NORM_EPS;
    double width = (double)(arch->nope_dim + arch->rope_dim);
    arch->softmax_scale = (float)(tti_rope_softmax_factor(&hyper->rope) / sqrt(width));
    TT_TRY(tti_rope_build(hyper->what, &hyper->rope, arch->rope_dim, hyper->rope_interleaved,
                          arch->context, &arch->rope));
    return tti_rope_extend(hyper->what, &hyper->rope, &arch->context);
}

tt_status tti_arch_check_router(const tti_hyper *hyper)
{
    const tt_arch *arch = &hyper->arch;
    const tt_router *router = &arch->router;
    const char *what = tti_show_path(hyper->what);
    TT_CHECK(arch->K <= arch->E, TT_ERR_FILE,
             "%s: num_experts_per_tok %lld is above the %lld experts", what, (long long)arch->K,
             (long long)arch->E);
    TT_CHECK(arch->E % router->n_groups == 0, TT_ERR_FILE,
             "%s: %lld experts are not divisible by n_group %lld", what, (long long)arch->E,
             (long long)router->n_groups);
    TT_CHECK(router->n_groups_kept >= 1 && router->n_groups_kept <= router->n_groups, TT_ERR_FILE,
             "%s: topk_group %lld is not within 1 and n_group %lld", what,
             (long long)router->n_groups_kept, (long long)router->n_groups);
    int64_t group = arch->E / router->n_groups;
    TT_CHECK(router->n_groups == 1 || router->group_score != TT_GROUP_TOP2_SUM || group >= 2,
             TT_ERR_FILE, "%s: groups of one expert have no two best (n_group %lld)", what,
             (long long)router->n_groups);
    TT_CHECK(arch->K <= group * router->n_groups_kept, TT_ERR_FILE,
             "%s: num_experts_per_tok %lld is above the %lld experts of %lld groups", what,
             (long long)arch->K, (long long)(group * router->n_groups_kept),
             (long long)router->n_groups_kept);
    return TT_OK;
}
