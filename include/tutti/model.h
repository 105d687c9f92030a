/* model.h - a checkpoint on disk: what it computes (tt_arch) and where its tensors lie.
 *
 * tt_model_open reads the configuration and the headers of the weight files, checks every length in
 * them, and resolves every tensor that the architecture needs to (file, offset, shape, type); no
 * weight is read. Ranks then read just the rows they own.
 * tt_arch is the only thing the rest of tutti knows of an architecture: no name of one appears
 * outside src/model/.
 * Threads: const after open; reads may run on many threads. MPI: none. */
#ifndef TUTTI_MODEL_H
#define TUTTI_MODEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/status.h"
#include "ttk.h"

typedef struct tt_model tt_model; /* opaque */

/* How packed weights are stored; AUTO is as the checkpoint (f16 becomes f32). The quantised ones
 * are for the matrices of attention, feed-forward and experts; embedding, head, routers, small
 * gates and kv_b stay as stored. Groups along the inputs, each with a scale (ttk_quantize_fn in
 * ttk.h): INT8 and INT4 of 32 with a f16, FP8 (E4M3) of 128 with a f32, MXFP4 (E2M1) of 32 with a
 * power of two. */
typedef enum tt_weight_format {
    TT_WEIGHTS_AUTO,
    TT_WEIGHTS_F32,
    TT_WEIGHTS_BF16,
    TT_WEIGHTS_INT8,
    TT_WEIGHTS_INT4,
    TT_WEIGHTS_FP8,
    TT_WEIGHTS_MXFP4,
    TT_WEIGHTS_COUNT
} tt_weight_format;

typedef enum tt_attention_kind {
    TT_ATTENTION_GQA, /* q, k, v heads; keys and values are cached */
    TT_ATTENTION_MLA  /* latent: c[kv_rank] and one shared rotary key are cached; absorbed form */
} tt_attention_kind;
typedef enum tt_qk_norm { TT_QK_NORM_NONE, TT_QK_NORM_HEAD, TT_QK_NORM_WHOLE } tt_qk_norm;
/* What mixes the positions of a layer. */
typedef enum tt_mixer {
    TT_MIXER_ATTENTION, /* of the kind that tt_arch.attention says */
    TT_MIXER_DELTA      /* gated delta net: a state per sequence instead of keys and values;
                         * token by token */
} tt_mixer;
typedef enum tt_norm_kind {
    TT_NORM_RMS,  /* x / rms(x) * w */
    TT_NORM_LAYER /* (x - mean) / sd * w + b */
} tt_norm_kind;
typedef enum tt_norm_place {
    TT_NORM_BEFORE, /* x += f(norm(x)) */
    TT_NORM_AFTER   /* x += norm(f(x)) */
} tt_norm_place;
typedef enum tt_score {
    TT_SCORE_SOFTMAX,        /* over all experts; chosen by score */
    TT_SCORE_SIGMOID,        /* of each; chosen by score */
    TT_SCORE_SOFTMAX_CHOSEN, /* chosen by logit; softmax over the K chosen logits */
    TT_SCORE_SIGMOID_CHOSEN, /* chosen by logit; sigmoid of each chosen logit */
    TT_SCORE_SPARSEMIXER,    /* K = 2, one after the other, each a softmax over the logits near
                              * the best (arXiv:2409.12136; tt_router.jitter) */
    TT_SCORE_COUNT
} tt_score;
typedef enum tt_activation {
    TT_ACTIVATION_SILU,   /* silu(gate) * up */
    TT_ACTIVATION_CLAMPED /* g = min(gate, limit), u = clamp(up, -limit, limit): g *
                           * sigmoid(alpha g) * (u + 1) */
} tt_activation;
typedef enum tt_group_score { TT_GROUP_MAX, TT_GROUP_TOP2_SUM } tt_group_score;

/* Rotary embedding: angle(pos, i) = (float)pos * inv_freq[i] in float, times attention_factor on
 * cos and sin. */
typedef struct tt_rope {
    int64_t dim;      /* rotated components of a head; 0 = none */
    bool interleaved; /* pairs (2i, 2i+1) instead of (i, i + dim/2) */
    float attention_factor;
    float *inv_freq; /* inv_freq[dim/2]; owned by the model */
    /* Another table for sequences whose request may grow (prompt and generated) above long_from
     * tokens ("longrope"); NULL: none. */
    float *long_inv_freq;
    float long_attention_factor;
    int64_t long_from;
} tt_rope;

typedef struct tt_router {
    tt_score score;
    bool choice_bias; /* a bias is added to the scores for choosing only */
    int64_t n_groups; /* 1 = no groups */
    int64_t n_groups_kept;
    tt_group_score group_score;
    bool normalise; /* weights are divided by max(their sum + normalise_eps,
                     * normalise_floor) */
    float normalise_eps, normalise_floor;
    float scale;          /* of routed output only */
    bool logit_bias;      /* the router's product has a bias (TT_ROLE_ROUTER_BIAS) */
    bool weight_on_input; /* the weight multiplies the expert's input, its output counts whole */
    float jitter;         /* sparsemixer: logits further than 2 * jitter (relative) below the
                           * best take no part */
} tt_router;

/* Gated delta net. Source: arXiv:2412.06464; Qwen3-Next's configuration. */
typedef struct tt_delta {
    int64_t Nk, Nv, Dk, Dv; /* key heads, value heads (a multiple), their widths; Nk = 0: the
                             * model has none */
    int64_t conv;           /* width of the causal convolution over q, k, v */
} tt_delta;

/* What differs from layer to layer. */
typedef struct tt_layer {
    bool is_moe;
    tt_mixer mixer;
    bool rope;          /* attention: the rotary embedding applies */
    bool qk_norm;       /* attention: tt_arch.qk_norm applies */
    bool scale_queries; /* attention: q *= 1 + query_scale * ln(1 + floor((position + 1) /
                         * query_floor)) */
    int64_t window;     /* attention: key j is visible to query i iff i - j < window; 0 = all */
    int64_t chunk;      /* attention: iff i and j lie in the same run of this many positions; 0
                         * = all */
} tt_layer;

/* What a model computes, as data. Sizes in elements. */
typedef struct tt_arch {
    const char *name; /* as the checkpoint says, "DeepseekV3ForCausalLM" */
    int64_t L;        /* decoder layers, without MTP layers */
    int64_t H;        /* hidden width */
    int64_t V;        /* rows of the embedding */
    int64_t context;  /* positions: max_position_embeddings, or what YaRN stretches the original
                       * context to if that is more */
    tt_norm_kind norm;
    tt_norm_place norm_place;
    float norm_eps;
    bool tied_embeddings, head_bias;
    float embedding_scale; /* multiplies embeddings; 1 = none, as for the next two */
    float residual_scale;  /* multiplies what attention and FFN add */
    float logit_divisor;   /* divides logits */

    tt_attention_kind attention;
    int64_t Nq, Nkv, D; /* GQA: heads and head width; MLA: Nq heads */
    tt_qk_norm qk_norm;
    bool qk_norm_after_rope; /* else before */
    bool qk_norm_weightless; /* no weights: x / rms(x) */
    bool qkv_bias, o_bias;
    bool sinks;          /* a sink per head joins the softmax (TT_ROLE_SINKS) */
    bool attention_gate; /* head outputs are multiplied by sigmoid(gate) (TT_ROLE_Q_GATE) */
    float query_scale, query_floor;             /* tt_layer.scale_queries */
    float clip_qkv;                             /* 0 = none */
    int64_t q_rank;                             /* MLA: 0 = q is projected directly */
    int64_t kv_rank, nope_dim, rope_dim, v_dim; /* MLA */
    bool mla_split;     /* MLA: the checkpoint has TT_ROLE_MLA_K and TT_ROLE_MLA_V instead of
                         * TT_ROLE_KV_B */
    float mla_norm_eps; /* of the two low-rank norms */
    float softmax_scale;
    tt_rope rope;
    tt_delta delta;

    int64_t E, K, F;  /* routed experts, chosen per token, inner width; E = 0: dense model */
    int64_t F_shared; /* inner width of the shared expert; 0 = none */
    int64_t F_dense;  /* inner width of dense layers */
    bool shared_gate; /* the shared expert's output is multiplied by sigmoid(gate . x)
                       * (TT_ROLE_SHARED_ROUTER) */
    bool expert_bias; /* experts' gate, up and down have biases */
    tt_activation activation; /* of routed experts, shared expert and dense layers */
    float activation_limit, activation_alpha;
    tt_layer *layer; /* layer[L + n_mtp]; owned by the model */
    tt_router router;
    int64_t n_mtp; /* MTP layers whose decoder tensors are all in the checkpoint (0 when
                    * they are absent, or left out of a packed one); nothing runs them */
} tt_arch;

/* What a tensor is for. Per layer except the first five. */
typedef enum tt_role {
    TT_ROLE_EMBED,           /* [V][H] */
    TT_ROLE_FINAL_NORM,      /* [H] */
    TT_ROLE_FINAL_NORM_BIAS, /* [H]; norm biases go with TT_NORM_LAYER */
    TT_ROLE_HEAD,            /* [V][H]; the embedding when tied */
    TT_ROLE_HEAD_BIAS,       /* [V] */
    TT_ROLE_ATTENTION_NORM,
    TT_ROLE_ATTENTION_NORM_BIAS, /* [H]; of the attention half, before or
                                  * after it */
    TT_ROLE_FFN_NORM,
    TT_ROLE_FFN_NORM_BIAS, /* [H] */
    TT_ROLE_Q,
    TT_ROLE_K,
    TT_ROLE_V,
    TT_ROLE_O, /* GQA: [Nq*D][H], [Nkv*D][H] x2, [H][Nq*D]; MLA:
                * O [H][Nq*v_dim], Q [Nq*(nope+rope)][H] */
    TT_ROLE_Q_BIAS,
    TT_ROLE_K_BIAS,
    TT_ROLE_V_BIAS,
    TT_ROLE_O_BIAS,
    TT_ROLE_Q_NORM,
    TT_ROLE_K_NORM, /* [D] per head, or [Nq*D] / [Nkv*D] whole */
    TT_ROLE_Q_GATE, /* [Nq*D][H] */
    TT_ROLE_SINKS,  /* [Nq] */
    TT_ROLE_Q_A,
    TT_ROLE_Q_A_NORM,
    TT_ROLE_Q_B, /* MLA: [q_rank][H], [q_rank],
                  * [Nq*(nope+rope)][q_rank] */
    TT_ROLE_KV_A,
    TT_ROLE_KV_A_NORM,
    TT_ROLE_KV_B, /* MLA: [kv_rank+rope][H], [kv_rank],
                   * [Nq*(nope+v)][kv_rank] */
    TT_ROLE_MLA_K,
    TT_ROLE_MLA_V, /* instead of KV_B in some files: [Nq*kv_rank][nope]
                    * (transposed per head), [Nq*v][kv_rank] */
    /* Gated delta net; W = 2*Nk*Dk + Nv*Dv, in the order q, k, v: */
    TT_ROLE_DELTA_QKV,
    TT_ROLE_DELTA_GATE, /* [W][H], [Nv*Dv][H] */
    TT_ROLE_DELTA_BETA,
    TT_ROLE_DELTA_DECAY, /* [Nv][H] x2: what becomes beta and the decay */
    TT_ROLE_DELTA_CONV,  /* [W][conv] */
    TT_ROLE_DELTA_DECAY_BIAS,
    TT_ROLE_DELTA_DECAY_RATE, /* [Nv]: dt_bias; exp(A_log), positive */
    TT_ROLE_DELTA_NORM,       /* [Dv] */
    TT_ROLE_DELTA_OUT,        /* [H][Nv*Dv] */
    TT_ROLE_GATE,
    TT_ROLE_UP,
    TT_ROLE_DOWN, /* dense FFN: [F_dense][H] x2, [H][F_dense] */
    TT_ROLE_ROUTER,
    TT_ROLE_ROUTER_BIAS,
    TT_ROLE_ROUTER_CHOICE_BIAS, /* [E][H], [E], [E] */
    /* of one expert: [F][H] x2, [H][F] */
    TT_ROLE_EXPERT_GATE,
    TT_ROLE_EXPERT_UP,
    TT_ROLE_EXPERT_DOWN,
    /* of one expert: [F] x2, [H] */
    TT_ROLE_EXPERT_GATE_BIAS,
    TT_ROLE_EXPERT_UP_BIAS,
    TT_ROLE_EXPERT_DOWN_BIAS,
    /* [F_shared][H] x2, [H][F_shared] */
    TT_ROLE_SHARED_GATE,
    TT_ROLE_SHARED_UP,
    TT_ROLE_SHARED_DOWN,
    TT_ROLE_SHARED_ROUTER, /* [1][H] */
    TT_ROLE_COUNT
} tt_role;
/* Of the whole model; else of a layer. */
static inline bool tt_role_is_global(tt_role role)
{
    return (int)role < (int)TT_ROLE_ATTENTION_NORM;
}
/* Of one expert of a layer. */
static inline bool tt_role_is_expert(tt_role role)
{
    return role >= TT_ROLE_EXPERT_GATE && role <= TT_ROLE_EXPERT_DOWN_BIAS;
}

/* One matrix (or vector: cols = 1 and rows = its length) of a checkpoint, whatever its files'
 * layout. */
typedef struct tt_tensor {
    const char *name; /* in the checkpoint; NULL when the architecture has no such tensor here */
    tt_role role;
    int64_t rows, cols;
    ttk_format format; /* what its numbers are, as packed panels can keep them bit by bit
                        * (ttk.h) */
    const struct tti_source *source; /* where and how it lies in the files; known to the model
                                      * room */
} tt_tensor;

/* Opens a checkpoint: a directory with config.json and safetensors weights, a GGUF file (any part
 * of a split one), or a directory that holds one GGUF model. Errors: TT_ERR_FILE naming file and
 * tensor; TT_ERR_UNSUPPORTED naming an unknown architecture or format; never reads past what it
 * checked. Local: each rank may open it, or one may and share. */
TT_API tt_status tt_model_open(const char *path, tt_model **model_out);
/* A model that is in no file: random weights in the shape of a published configuration, made while
 * they are loaded. For timing. */
typedef struct tt_made_params {
    const char *shape;        /* a name of tt_model_shape */
    int64_t layers;           /* 0 = all of them; fewer keep the share of dense layers that come
                               * first, but at least one layer with experts */
    tt_weight_format weights; /* how matrices are stored, as --weights would store those of a
                               * bf16 checkpoint; AUTO: as their maker does */
    uint64_t seed;
} tt_made_params;
/* Weights hang on (seed, tensor, row, input) alone, so every rank and layout has the same.
 * tt_model_path is "SHAPE (made)". There is no tokenizer and no end id, and no MTP layer. Errors:
 * TT_ERR_USAGE naming the shapes there are, or a number of layers above the shape's;
 * TT_ERR_NOMEM. */
TT_API tt_status tt_model_make(const tt_made_params *params, tt_model **model_out);
/* The name of shape i; NULL beyond the last. */
TT_API const char *tt_model_shape(size_t i);
/* Whether the model was made. */
TT_API bool tt_model_is_made(const tt_model *model);
TT_API void tt_model_close(tt_model **model);
TT_API const tt_arch *tt_model_arch(const tt_model *model);
TT_API const char *tt_model_path(const tt_model *model);
/* The tensor of a role. layer in [0, L + n_mtp) (ignored for global roles), expert in [0, E) for
 * expert roles (else ignored). name is NULL if the architecture has none there. Never fails:
 * presence and shape were checked by open. */
TT_API tt_tensor tt_model_tensor(const tt_model *model, tt_role role, int64_t layer,
                                 int64_t expert);
/* A place among all tensors of a model. All-zero is before the first. */
typedef struct tt_tensor_place {
    tt_role role;
    int64_t layer, expert; /* 0 where the role has none */
    bool begun;
} tt_tensor_place;
/* Goes on to the next tensor that the checkpoint has: role by role, layer by layer (MTP layers
 * last), expert by expert; a tied head comes as the head too. False: there is none, and *tensor_out
 * is not set. Takes linear time over all tensors. */
TT_API bool tt_model_next_tensor(const tt_model *model, tt_tensor_place *at, tt_tensor *tensor_out);
/* "bf16", "fp8 e4m3, scale f32 per 128", ...: of a tensor's format; borrowed, valid until the
 * thread's next call. */
TT_API const char *tt_format_name(const ttk_format *format);
/* Bytes that reading n_rows of a tensor takes from files: elements with scales and shifts. */
TT_API uint64_t tt_tensor_file_bytes(const tt_tensor *tensor, int64_t n_rows);
/* Reads rows [row, row + n_rows), unpacked, into buffer[ttk_unpacked_bytes(&tensor->format, n_rows,
 * cols)]; *rows_out points into it.
 * Thread: any. Errors: TT_ERR_IO, TT_ERR_FILE (file changed under us, numbers that cannot be)
 * naming file and tensor. */
TT_API tt_status tt_model_read_rows(const tt_model *model, const tt_tensor *tensor, int64_t row,
                                    int64_t n_rows, void *buffer, ttk_unpacked *rows_out);
/* The same rows as float: dst[n_rows][cols]; exact wherever code, scale and shift give a float
 * (quantised: rounded once per operation of scale * code + shift). */
TT_API tt_status tt_model_read_f32(const tt_model *model, const tt_tensor *tensor, int64_t row,
                                   int64_t n_rows, float *dst);
/* The name of the file that holds a tensor's elements; borrowed. */
TT_API const char *tt_model_tensor_file(const tt_model *model, const tt_tensor *tensor);
/* A number that tells apart tensors of other shapes, formats or places; equal on ranks that opened
 * equal checkpoints. */
TT_API uint64_t tt_tensor_hash(const tt_tensor *tensor);
/* A number that tells apart models that compute something else (every field of tt_arch counts) or
 * whose tensors lie elsewhere; equal on ranks that opened equal checkpoints. */
TT_API uint64_t tt_model_hash(const tt_model *model);
/* Parameters in total and those that one token uses (without MTP layers). */
TT_API void tt_model_count_parameters(const tt_model *model, int64_t *total_out,
                                      int64_t *active_out);
/* Ids that end a text: union of eos_token_id in generation_config.json and config.json. Valid as
 * long as the model. */
TT_API const int32_t *tt_model_end_ids(const tt_model *model, size_t *n_out);

/* generation_config.json, where present; a field absent there is NaN or -1. */
typedef struct tt_generation {
    int do_sample; /* -1, 0, 1 */
    double temperature, top_p, min_p;
    int64_t top_k;
} tt_generation;
TT_API tt_generation tt_model_generation(const tt_model *model);

#endif
