/* gguf_names.c - what GGUF files call the tensors, and which parts of them the roles are.
 *
 * One table serves all architectures: their names never differ for one meaning, only which of them
 * a file has. So a family of Hugging Face's names becomes one of GGUF's by exchanging its table of
 * names and its views.
 * Source: the tensor names of the GGUF specification and of llama.cpp's loaders
 * (llama-arch.cpp). */
#include "gguf_model.h"

#define BLK "blk.%L."
static const tti_tensor_names gguf_tensors = {
    .role =
        {
            [TT_ROLE_EMBED] = {"token_embd.weight"},
            [TT_ROLE_FINAL_NORM] = {"output_norm.weight"},
            [TT_ROLE_FINAL_NORM_BIAS] = {"output_norm.bias"},
            [TT_ROLE_HEAD] = {"output.weight"},
            [TT_ROLE_HEAD_BIAS] = {"output.bias"},
            [TT_ROLE_ATTENTION_NORM] = {BLK "attn_norm.weight"},
            [TT_ROLE_ATTENTION_NORM_BIAS] = {BLK "attn_norm.bias"},
            /* The norm before the FFN comes after attention: some architectures call it so. */
            [TT_ROLE_FFN_NORM] = {BLK "ffn_norm.weight", BLK "post_attention_norm.weight"},
            [TT_ROLE_FFN_NORM_BIAS] = {BLK "ffn_norm.bias", BLK "post_attention_norm.bias"},
            [TT_ROLE_Q] = {BLK "attn_q.weight"},
            [TT_ROLE_K] = {BLK "attn_k.weight"},
            [TT_ROLE_V] = {BLK "attn_v.weight"},
            [TT_ROLE_O] = {BLK "attn_output.weight"},
            [TT_ROLE_Q_BIAS] = {BLK "attn_q.bias"},
            [TT_ROLE_K_BIAS] = {BLK "attn_k.bias"},
            [TT_ROLE_V_BIAS] = {BLK "attn_v.bias"},
            [TT_ROLE_O_BIAS] = {BLK "attn_output.bias"},
            [TT_ROLE_Q_NORM] = {BLK "attn_q_norm.weight"},
            [TT_ROLE_K_NORM] = {BLK "attn_k_norm.weight"},
            [TT_ROLE_Q_GATE] = {BLK "attn_q.weight"},
            [TT_ROLE_SINKS] = {BLK "attn_sinks.weight"},
            [TT_ROLE_Q_A] = {BLK "attn_q_a.weight"},
            [TT_ROLE_Q_A_NORM] = {BLK "attn_q_a_norm.weight"},
            [TT_ROLE_Q_B] = {BLK "attn_q_b.weight"},
            [TT_ROLE_KV_A] = {BLK "attn_kv_a_mqa.weight"},
            [TT_ROLE_KV_A_NORM] = {BLK "attn_kv_a_norm.weight"},
            [TT_ROLE_KV_B] = {BLK "attn_kv_b.weight"},
            [TT_ROLE_MLA_K] = {BLK "attn_k_b.weight"},
            [TT_ROLE_MLA_V] = {BLK "attn_v_b.weight"},
            [TT_ROLE_DELTA_QKV] = {BLK "attn_qkv.weight"},
            [TT_ROLE_DELTA_GATE] = {BLK "attn_gate.weight"},
            [TT_ROLE_DELTA_BETA] = {BLK "ssm_ba.weight"},
            [TT_ROLE_DELTA_DECAY] = {BLK "ssm_ba.weight"},
            [TT_ROLE_DELTA_CONV] = {BLK "ssm_conv1d.weight"},
            [TT_ROLE_DELTA_DECAY_BIAS] = {BLK "ssm_dt.bias"},
            [TT_ROLE_DELTA_DECAY_RATE] = {BLK "ssm_a", BLK "ssm_a.weight"},
            [TT_ROLE_DELTA_NORM] = {BLK "ssm_norm.weight"},
            [TT_ROLE_DELTA_OUT] = {BLK "ssm_out.weight"},
            [TT_ROLE_GATE] = {BLK "ffn_gate.weight"},
            [TT_ROLE_UP] = {BLK "ffn_up.weight"},
            [TT_ROLE_DOWN] = {BLK "ffn_down.weight"},
            [TT_ROLE_ROUTER] = {BLK "ffn_gate_inp.weight"},
            [TT_ROLE_ROUTER_BIAS] = {BLK "ffn_gate_inp.bias"},
            [TT_ROLE_ROUTER_CHOICE_BIAS] = {BLK "exp_probs_b.bias", BLK "exp_probs_b.weight",
                                            BLK "exp_probs_b"},
            [TT_ROLE_EXPERT_GATE] = {BLK "ffn_gate_exps.weight", BLK "ffn_gate.%E.weight"},
            [TT_ROLE_EXPERT_UP] = {BLK "ffn_up_exps.weight", BLK "ffn_up.%E.weight"},
            [TT_ROLE_EXPERT_DOWN] = {BLK "ffn_down_exps.weight", BLK "ffn_down.%E.weight"},
            [TT_ROLE_EXPERT_GATE_BIAS] = {BLK "ffn_gate_exps.bias"},
            [TT_ROLE_EXPERT_UP_BIAS] = {BLK "ffn_up_exps.bias"},
            [TT_ROLE_EXPERT_DOWN_BIAS] = {BLK "ffn_down_exps.bias"},
            [TT_ROLE_SHARED_GATE] = {BLK "ffn_gate_shexp.weight"},
            [TT_ROLE_SHARED_UP] = {BLK "ffn_up_shexp.weight"},
            [TT_ROLE_SHARED_DOWN] = {BLK "ffn_down_shexp.weight"},
            [TT_ROLE_SHARED_ROUTER] = {BLK "ffn_gate_inp_shexp.weight"},
        },
    .pair =
        {
            [TTI_PAIR_EXPERT] = {BLK "ffn_gate_up_exps.weight"},
            [TTI_PAIR_EXPERT_BIAS] = {BLK "ffn_gate_up_exps.bias"},
        },
};
static const char MTP_PROBE[] = BLK "nextn.eh_proj.weight";
/* q, k and v in one tensor, rows in this order: an option of the converter. */
static const char FUSED_QKV[] = BLK "attn_qkv.weight";
static const char FUSED_QKV_BIAS[] = BLK "attn_qkv.bias";

/* n rows in runs of `run` that come every `stride` rows. */
static void take_runs(tti_view *view, int64_t file_rows, int64_t n, int64_t first, int64_t run,
                      int64_t stride)
{
    view->file_rows = file_rows;
    view->segment[0] = (tti_segment){n, first, run, stride};
    view->n_segments = 1;
}

static void view(const tt_arch *arch, tt_role role, tti_view *v)
{
    int64_t n_q = arch->Nq * arch->D;
    switch (role) {
    case TT_ROLE_Q: /* with a gate: head by head its query, then its gate */
        if (arch->attention_gate) {
            take_runs(v, 2 * n_q, n_q, 0, arch->D, 2 * arch->D);
        }
        break;
    case TT_ROLE_Q_GATE:
        take_runs(v, 2 * n_q, n_q, arch->D, arch->D, 2 * arch->D);
        break;
    case TT_ROLE_DELTA_BETA: /* key head by key head: beta of its value heads, then their decay */
    case TT_ROLE_DELTA_DECAY: {
        int64_t n = arch->delta.Nv / arch->delta.Nk;
        take_runs(v, 2 * arch->delta.Nv, arch->delta.Nv, role == TT_ROLE_DELTA_DECAY ? n : 0, n,
                  2 * n);
        break;
    }
    case TT_ROLE_DELTA_DECAY_RATE: /* stored as -exp(A_log) */
        v->map = TTI_MAP_NEGATE;
        break;
    default:
        break;
    }
}

static void view_fused_qkv(const tt_arch *arch, tt_role role, tti_view *v)
{
    int64_t n_q = arch->Nq * arch->D, n_kv = arch->Nkv * arch->D, all = n_q + 2 * n_kv;
    switch (role) {
    case TT_ROLE_Q:
    case TT_ROLE_Q_BIAS:
        take_runs(v, all, n_q, 0, n_q, n_q);
        break;
    case TT_ROLE_K:
    case TT_ROLE_K_BIAS:
        take_runs(v, all, n_kv, n_q, n_kv, n_kv);
        break;
    case TT_ROLE_V:
    case TT_ROLE_V_BIAS:
        take_runs(v, all, n_kv, n_q + n_kv, n_kv, n_kv);
        break;
    default:
        view(arch, role, v);
    }
}

tti_family tti_gguf_family(const tti_family *family, const tti_table *table, const tt_arch *arch)
{
    tti_family gguf = *family;
    gguf.prefix = NULL;
    gguf.tensors = gguf_tensors;
    gguf.view = view;
    gguf.mtp_probe = family->mtp_probe ? MTP_PROBE : NULL;
    if (arch->attention == TT_ATTENTION_GQA && arch->delta.Nk == 0 &&
        tti_table_find(table, "blk.0.attn_qkv.weight")) {
        gguf.view = view_fused_qkv;
        for (int i = 0; i < 3; i++) {
            gguf.tensors.role[TT_ROLE_Q + i][0] = FUSED_QKV;
            gguf.tensors.role[TT_ROLE_Q_BIAS + i][0] = FUSED_QKV_BIAS;
        }
    }
    return gguf;
}
