/* arch_qwen3_next.c - Qwen3-Next: three layers of gated delta net to one of gated attention, norms
 * stored as w - 1, softmax router, a shared expert behind a gate. Sources: arXiv:2412.06464, its
 * published code; defaults are those of the Hugging Face configuration class. Its "mtp." tensors
 * are not read. */
#include "arch.h"

enum { DEFAULT_HEAD_WIDTH = 256, DEFAULT_INTERVAL = 4 };

static const tti_key keys[] = {
    TTI_KEYS_GQA(2, DEFAULT_HEAD_WIDTH, 32768, 1e-6),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE_OR("intermediate_size", arch.F_dense, TTI_MAX_WIDTH, 5632),
    TTI_KEY_SIZE_OR("moe_intermediate_size", arch.F, TTI_MAX_WIDTH, 512),
    TTI_KEY_COUNT_OR("shared_expert_intermediate_size", arch.F_shared, TTI_MAX_WIDTH, 512),
    TTI_KEYS_EXPERTS("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    TTI_KEY_SIZE_OR("decoder_sparse_step", moe_every, TTI_MAX_LAYERS, 1),
    TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, true),
    TTI_KEY_SIZE_OR("full_attention_interval", layer_interval, TTI_MAX_LAYERS, DEFAULT_INTERVAL),
    TTI_KEY_SIZE_OR("linear_num_key_heads", arch.delta.Nk, TTI_MAX_WIDTH, 16),
    TTI_KEY_SIZE_OR("linear_num_value_heads", arch.delta.Nv, TTI_MAX_WIDTH, 32),
    TTI_KEY_SIZE_OR("linear_key_head_dim", arch.delta.Dk, TTI_MAX_WIDTH, 128),
    TTI_KEY_SIZE_OR("linear_value_head_dim", arch.delta.Dv, TTI_MAX_WIDTH, 128),
    TTI_KEY_SIZE_OR("linear_conv_kernel_dim", arch.delta.conv, 64, 4),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    TT_CHECK(arch->delta.Nv % arch->delta.Nk == 0, TT_ERR_FILE,
             "%s: linear_num_value_heads %lld is no multiple of linear_num_key_heads %lld",
             tti_show_path(hyper->what), (long long)arch->delta.Nv, (long long)arch->delta.Nk);
    TT_TRY(tti_arch_check_mlp_only(hyper));
    arch->qk_norm = TT_QK_NORM_HEAD;
    arch->attention_gate = true;
    arch->shared_gate = true;
    arch->router = tti_router_softmax(hyper->norm_topk);
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

static void set_layer(const tti_hyper *hyper, int64_t id, tt_layer *layer)
{
    if (tti_arch_layer_is(hyper, id, "linear_attention", (id + 1) % hyper->layer_interval != 0)) {
        layer->mixer = TT_MIXER_DELTA;
        layer->rope = false;
        layer->qk_norm = false;
    }
}

/* in_proj_qkvz is grouped by key head: each group is q, k, then v and z of the value heads that
 * share them; in_proj_ba likewise b, a. q_proj is grouped by head: query, gate. */
static void view(const tt_arch *arch, tt_role role, tti_view *view)
{
    const tt_delta *d = &arch->delta;
    int64_t shared = d->Nv / d->Nk, values = shared * d->Dv, group = 2 * (d->Dk + values),
            D = arch->D;
    switch (role) {
    case TT_ROLE_FINAL_NORM:
    case TT_ROLE_ATTENTION_NORM:
    case TT_ROLE_FFN_NORM:
    case TT_ROLE_Q_NORM:
    case TT_ROLE_K_NORM:
        view->map = TTI_MAP_PLUS_ONE;
        break;
    case TT_ROLE_DELTA_DECAY_RATE:
        view->map = TTI_MAP_EXP;
        break;
    case TT_ROLE_Q:
    case TT_ROLE_Q_GATE:
        view->file_rows = arch->Nq * 2 * D;
        view->segment[0] = (tti_segment){arch->Nq * D, role == TT_ROLE_Q_GATE ? D : 0, D, 2 * D};
        break;
    case TT_ROLE_DELTA_QKV:
        view->file_rows = d->Nk * group;
        view->n_segments = 3;
        view->segment[0] = (tti_segment){d->Nk * d->Dk, 0, d->Dk, group};
        view->segment[1] = (tti_segment){d->Nk * d->Dk, d->Dk, d->Dk, group};
        view->segment[2] = (tti_segment){d->Nk * values, 2 * d->Dk, values, group};
        break;
    case TT_ROLE_DELTA_GATE:
        view->file_rows = d->Nk * group;
        view->segment[0] = (tti_segment){d->Nk * values, 2 * d->Dk + values, values, group};
        break;
    case TT_ROLE_DELTA_BETA:
    case TT_ROLE_DELTA_DECAY:
        view->file_rows = 2 * d->Nv;
        view->segment[0] =
            (tti_segment){d->Nv, role == TT_ROLE_DELTA_DECAY ? shared : 0, shared, 2 * shared};
        break;
    default:
        break;
    }
}

#define DELTA TTI_LAYER "linear_attn."
#define SHARED TTI_LAYER "mlp.shared_expert."
const tti_family tti_family_qwen3_next = {
    .architectures = (const char *const[]){"Qwen3NextForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen3_next", NULL},
    .rope_theta = 10000,
    .partial_rotary = 0.25,
    .layer_types = (const char *const[]){"full_attention", "linear_attention", NULL},
    .only = (const tti_only[]){{"mlp_only_layers", NULL}, {NULL, NULL}},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_unless_mlp_only,
    .set_layer = set_layer,
    .view = view,
    .tensors = {.role = {[TT_ROLE_Q_GATE] = {TTI_LAYER "self_attn.q_proj.weight"},
                         [TT_ROLE_DELTA_QKV] = {DELTA "in_proj_qkvz.weight"},
                         [TT_ROLE_DELTA_GATE] = {DELTA "in_proj_qkvz.weight"},
                         [TT_ROLE_DELTA_BETA] = {DELTA "in_proj_ba.weight"},
                         [TT_ROLE_DELTA_DECAY] = {DELTA "in_proj_ba.weight"},
                         [TT_ROLE_DELTA_CONV] = {DELTA "conv1d.weight"},
                         [TT_ROLE_DELTA_DECAY_BIAS] = {DELTA "dt_bias"},
                         [TT_ROLE_DELTA_DECAY_RATE] = {DELTA "A_log"},
                         [TT_ROLE_DELTA_NORM] = {DELTA "norm.weight"},
                         [TT_ROLE_DELTA_OUT] = {DELTA "out_proj.weight"},
                         [TT_ROLE_SHARED_GATE] = {SHARED "gate_proj.weight"},
                         [TT_ROLE_SHARED_UP] = {SHARED "up_proj.weight"},
                         [TT_ROLE_SHARED_DOWN] = {SHARED "down_proj.weight"},
                         [TT_ROLE_SHARED_ROUTER] = {TTI_LAYER "mlp.shared_expert_gate.weight"}}},
};
