/* model.h - a checkpoint on disk: what it computes (tt_arch) and where its tensors lie.
 *
 * tt_model_open reads the configuration and the headers of the weight files, checks every length in them, and resolves every
 * tensor that the architecture needs to (file, offset, shape, type); no weight is read. Ranks then read just
 * the rows they own.
 * tt_arch is the only thing the rest of tutti knows of an architecture: no name of one appears outside src/model/.
 * Threads: const after open; reads may run on many threads. MPI: none. */
#ifndef TUTTI_MODEL_H
#define TUTTI_MODEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/status.h"

typedef struct tt_model tt_model; /* opaque */

typedef enum tt_dtype {
    TT_DTYPE_F32,
    TT_DTYPE_BF16,
    TT_DTYPE_F16,
    TT_DTYPE_OTHER /* known to safetensors, not usable as a weight yet */
} tt_dtype;
TT_API size_t tt_dtype_bytes(tt_dtype type); /* 0 for TT_DTYPE_OTHER */
TT_API const char *tt_dtype_name(tt_dtype type);
/* How packed weights are stored; AUTO is as the checkpoint (f16 becomes f32). */
typedef enum tt_weight_format { TT_WEIGHTS_AUTO, TT_WEIGHTS_F32, TT_WEIGHTS_BF16 } tt_weight_format;

typedef enum tt_attention_kind {
    TT_ATTENTION_GQA, /* q, k, v heads; keys and values are cached */
    TT_ATTENTION_MLA  /* latent: c[kv_rank] and one shared rotary key are cached; absorbed form */
} tt_attention_kind;
typedef enum tt_qk_norm { TT_QK_NORM_NONE, TT_QK_NORM_HEAD, TT_QK_NORM_WHOLE } tt_qk_norm;
typedef enum tt_score { TT_SCORE_SOFTMAX, TT_SCORE_SIGMOID } tt_score;
typedef enum tt_group_score { TT_GROUP_MAX, TT_GROUP_TOP2_SUM } tt_group_score;

/* Rotary embedding: angle(pos, i) = (float)pos * inv_freq[i] in float, times attention_factor on cos and sin. */
typedef struct tt_rope {
    int64_t dim;     /* rotated components of a head; 0 = none */
    bool interleaved; /* pairs (2i, 2i+1) instead of (i, i + dim/2) */
    float attention_factor;
    float *inv_freq; /* inv_freq[dim/2]; owned by the model */
} tt_rope;

typedef struct tt_router {
    tt_score score;
    bool choice_bias;       /* a bias is added to the scores for choosing only */
    int64_t n_groups;       /* 1 = no groups */
    int64_t n_groups_kept;
    tt_group_score group_score;
    bool normalise;         /* weights are divided by (their sum + normalise_eps) */
    float normalise_eps;
    float scale;            /* of routed output only */
} tt_router;

/* What a model computes, as data. Sizes in elements. */
typedef struct tt_arch {
    const char *name; /* as the checkpoint says, "DeepseekV3ForCausalLM" */
    int64_t L;        /* decoder layers, without MTP layers */
    int64_t H;        /* hidden width */
    int64_t V;        /* rows of the embedding */
    int64_t context;  /* max_position_embeddings */
    float norm_eps;
    bool tied_embeddings;

    tt_attention_kind attention;
    int64_t Nq, Nkv, D; /* GQA: heads and head width; MLA: Nq heads */
    tt_qk_norm qk_norm;
    bool qkv_bias, o_bias;
    float clip_qkv;     /* 0 = none */
    int64_t q_rank;     /* MLA: 0 = q is projected directly */
    int64_t kv_rank, nope_dim, rope_dim, v_dim; /* MLA */
    float mla_norm_eps; /* of the two low-rank norms */
    float softmax_scale;
    tt_rope rope;

    int64_t E, K, F;    /* routed experts, chosen per token, inner width; E = 0: dense model */
    int64_t F_shared;   /* inner width of the shared expert; 0 = none */
    int64_t F_dense;    /* inner width of dense layers */
    bool *layer_is_moe; /* [L + n_mtp]; owned by the model */
    tt_router router;
    int64_t n_mtp;      /* MTP layers present in the checkpoint (0 when its tensors are absent) */
} tt_arch;

/* What a tensor is for. Per layer except the first three. */
typedef enum tt_role {
    TT_ROLE_EMBED,      /* [V][H] */
    TT_ROLE_FINAL_NORM, /* [H] */
    TT_ROLE_HEAD,       /* [V][H]; the embedding when tied */
    TT_ROLE_ATTENTION_NORM, /* [H] */
    TT_ROLE_FFN_NORM,       /* [H] */
    TT_ROLE_Q, TT_ROLE_K, TT_ROLE_V, TT_ROLE_O, /* GQA: [Nq*D][H], [Nkv*D][H] x2, [H][Nq*D]; MLA: O [H][Nq*v_dim], Q [Nq*(nope+rope)][H] */
    TT_ROLE_Q_BIAS, TT_ROLE_K_BIAS, TT_ROLE_V_BIAS, TT_ROLE_O_BIAS,
    TT_ROLE_Q_NORM, TT_ROLE_K_NORM, /* [D] per head, or [Nq*D] / [Nkv*D] whole */
    TT_ROLE_Q_A, TT_ROLE_Q_A_NORM, TT_ROLE_Q_B, /* MLA: [q_rank][H], [q_rank], [Nq*(nope+rope)][q_rank] */
    TT_ROLE_KV_A, TT_ROLE_KV_A_NORM, TT_ROLE_KV_B, /* MLA: [kv_rank+rope][H], [kv_rank], [Nq*(nope+v)][kv_rank] */
    TT_ROLE_GATE, TT_ROLE_UP, TT_ROLE_DOWN, /* dense FFN: [F_dense][H] x2, [H][F_dense] */
    TT_ROLE_ROUTER, TT_ROLE_ROUTER_CHOICE_BIAS, /* [E][H], [E] */
    TT_ROLE_EXPERT_GATE, TT_ROLE_EXPERT_UP, TT_ROLE_EXPERT_DOWN, /* of one expert: [F][H] x2, [H][F] */
    TT_ROLE_SHARED_GATE, TT_ROLE_SHARED_UP, TT_ROLE_SHARED_DOWN, /* [F_shared][H] x2, [H][F_shared] */
    TT_ROLE_COUNT
} tt_role;

/* One matrix (or vector: cols = 1 and rows = its length) as it lies in a file; rows are contiguous. */
typedef struct tt_tensor {
    const char *name; /* in the checkpoint; NULL when the architecture has no such tensor here */
    tt_dtype type;
    int64_t rows, cols;
    int file_id;      /* index for tt_model_file_name */
    uint64_t offset;  /* bytes from the start of the file */
} tt_tensor;

/* Opens a checkpoint directory. Errors: TT_ERR_FILE naming file and tensor; TT_ERR_UNSUPPORTED naming an unknown
 * architecture or format; never reads past what it checked. Local: each rank may open it, or one may and share. */
TT_API tt_status tt_model_open(const char *path, tt_model **model_out);
TT_API void tt_model_close(tt_model **model);
TT_API const tt_arch *tt_model_arch(const tt_model *model);
TT_API const char *tt_model_path(const tt_model *model);
/* The tensor of a role. layer in [0, L + n_mtp) (ignored for the first three roles), expert in [0, E) for expert roles (else ignored).
 * name is NULL if the architecture has none there. Never fails: presence and shape were checked by open. */
TT_API tt_tensor tt_model_tensor(const tt_model *model, tt_role role, int64_t layer, int64_t expert);
/* Reads rows [row, row + n_rows) in the file's own type into dst (n_rows * cols * tt_dtype_bytes). Thread: any.
 * Errors: TT_ERR_IO, TT_ERR_FILE (file changed under us) naming file and tensor. */
TT_API tt_status tt_model_read_rows(const tt_model *model, const tt_tensor *tensor, int64_t row, int64_t n_rows, void *dst);
/* Reads a whole tensor as float (exact from bf16 and f16): dst[rows*cols]. */
TT_API tt_status tt_model_read_f32(const tt_model *model, const tt_tensor *tensor, float *dst);
TT_API const char *tt_model_file_name(const tt_model *model, int file_id);
/* Parameters in total and those that one token uses (without MTP layers). */
TT_API void tt_model_count_parameters(const tt_model *model, int64_t *total_out, int64_t *active_out);
/* Ids that end a text: union of eos_token_id in generation_config.json and config.json. Valid as long as the model. */
TT_API const int32_t *tt_model_end_ids(const tt_model *model, size_t *n_out);

/* generation_config.json, where present; a field absent there is NaN or -1. */
typedef struct tt_generation {
    int do_sample; /* -1, 0, 1 */
    double temperature, top_p, min_p;
    int64_t top_k;
} tt_generation;
TT_API tt_generation tt_model_generation(const tt_model *model);

#endif
