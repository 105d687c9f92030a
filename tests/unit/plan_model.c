/* plan_model.c - answers of a model that exists only as numbers. */
#include "plan_model.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "tutti/load.h"

static void finish(tt_model *model, int64_t n_dense)
{
    model->format.code = TTK_BF16;
    model->arch.layer = model->layer;
    for (int64_t layer = 0; layer < PLAN_MODEL_MAX_LAYERS; layer++) {
        model->layer[layer] = (tt_layer){.is_moe = layer >= n_dense, .rope = true, .qk_norm = true};
    }
}

void plan_model_small(tt_model *model)
{
    memset(model, 0, sizeof(*model));
    model->arch = (tt_arch){.name = "small",
                            .L = 2,
                            .H = 64,
                            .V = 320,
                            .context = 1000,
                            .attention = TT_ATTENTION_GQA,
                            .Nq = 4,
                            .Nkv = 2,
                            .D = 16,
                            .E = 8,
                            .K = 2,
                            .F = 48,
                            .F_shared = 40,
                            .F_dense = 128};
    finish(model, 1);
}

void plan_model_small_latent(tt_model *model)
{
    plan_model_small(model);
    tt_arch *a = &model->arch;
    a->attention = TT_ATTENTION_MLA;
    a->q_rank = 24;
    a->kv_rank = 32;
    a->nope_dim = 16;
    a->rope_dim = 8;
    a->v_dim = 16;
}

void plan_model_large(tt_model *model)
{
    memset(model, 0, sizeof(*model));
    model->arch = (tt_arch){.name = "large",
                            .L = 61,
                            .H = 7168,
                            .V = 129280,
                            .context = 163840,
                            .attention = TT_ATTENTION_MLA,
                            .Nq = 128,
                            .Nkv = 128,
                            .D = 192,
                            .q_rank = 1536,
                            .kv_rank = 512,
                            .nope_dim = 128,
                            .rope_dim = 64,
                            .v_dim = 128,
                            .E = 256,
                            .K = 8,
                            .F = 2048,
                            .F_shared = 2048,
                            .F_dense = 18432,
                            .router = {.choice_bias = true}};
    finish(model, 3);
}

/* ---- the part of model.h that the plan room calls ---- */

ttk_format tt_load_format(tt_weight_format weights, const tt_tensor *tensor)
{
    bool half = weights == TT_WEIGHTS_BF16 ||
                (weights == TT_WEIGHTS_AUTO && tensor->format.code == TTK_BF16);
    return (ttk_format){.code = half ? TTK_BF16 : TTK_F32};
}

ttk_format tt_load_format_transposed(tt_weight_format weights, const tt_tensor *tensor, int64_t row,
                                     int64_t n_rows)
{
    (void)row;
    (void)n_rows;
    return tt_load_format(weights, tensor);
}

const tt_arch *tt_model_arch(const tt_model *model)
{
    return &model->arch;
}

static bool is_present(const tt_model *model, tt_role role, int64_t layer)
{
    const tt_arch *a = &model->arch;
    bool latent = a->attention == TT_ATTENTION_MLA;
    bool is_moe = a->E > 0 && model->layer[layer].is_moe;
    bool attends = model->layer[layer].mixer == TT_MIXER_ATTENTION;
    if (role >= TT_ROLE_DELTA_QKV && role <= TT_ROLE_DELTA_OUT) {
        return !attends;
    }
    if (role >= TT_ROLE_Q && role <= TT_ROLE_MLA_V && !attends) {
        return false;
    }
    switch (role) {
    case TT_ROLE_FINAL_NORM_BIAS:
    case TT_ROLE_ATTENTION_NORM_BIAS:
    case TT_ROLE_FFN_NORM_BIAS:
        return a->norm == TT_NORM_LAYER;
    case TT_ROLE_HEAD_BIAS:
        return a->head_bias;
    case TT_ROLE_Q_GATE:
        return a->attention_gate;
    case TT_ROLE_SINKS:
        return a->sinks;
    case TT_ROLE_MLA_K:
    case TT_ROLE_MLA_V:
        return false;
    case TT_ROLE_Q:
        return !latent || a->q_rank == 0;
    case TT_ROLE_K:
    case TT_ROLE_V:
        return !latent;
    case TT_ROLE_Q_BIAS:
    case TT_ROLE_K_BIAS:
    case TT_ROLE_V_BIAS:
        return a->qkv_bias;
    case TT_ROLE_O_BIAS:
        return a->o_bias;
    case TT_ROLE_Q_NORM:
    case TT_ROLE_K_NORM:
        return a->qk_norm != TT_QK_NORM_NONE;
    case TT_ROLE_Q_A:
    case TT_ROLE_Q_A_NORM:
    case TT_ROLE_Q_B:
        return latent && a->q_rank > 0;
    case TT_ROLE_KV_A:
    case TT_ROLE_KV_A_NORM:
    case TT_ROLE_KV_B:
        return latent;
    case TT_ROLE_GATE:
    case TT_ROLE_UP:
    case TT_ROLE_DOWN:
        return !is_moe;
    case TT_ROLE_ROUTER:
    case TT_ROLE_EXPERT_GATE:
    case TT_ROLE_EXPERT_UP:
    case TT_ROLE_EXPERT_DOWN:
        return is_moe;
    case TT_ROLE_ROUTER_CHOICE_BIAS:
        return is_moe && a->router.choice_bias;
    case TT_ROLE_ROUTER_BIAS:
        return is_moe && a->router.logit_bias;
    case TT_ROLE_EXPERT_GATE_BIAS:
    case TT_ROLE_EXPERT_UP_BIAS:
    case TT_ROLE_EXPERT_DOWN_BIAS:
        return is_moe && a->expert_bias;
    case TT_ROLE_SHARED_ROUTER:
        return is_moe && a->shared_gate;
    case TT_ROLE_SHARED_GATE:
    case TT_ROLE_SHARED_UP:
    case TT_ROLE_SHARED_DOWN:
        return is_moe && a->F_shared > 0;
    default:
        return true;
    }
}

tt_tensor tt_model_tensor(const tt_model *model, tt_role role, int64_t layer, int64_t expert)
{
    (void)expert;
    tt_tensor tensor = {.name = is_present(model, role, layer) ? "tensor" : NULL,
                        .format = model->format};
    return tensor;
}

tt_layout *plan_layout(const tt_arch *arch, const tt_layout_params *params)
{
    tt_layout *layout = NULL;
    if (tt_layout_create(arch, params, &layout) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return layout;
}
