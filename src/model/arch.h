/* arch.h - what the descriptions of architectures (arch_NAME.c) are written with: rows of keys, and
 * what several families do alike (arch.c). Threads: set-up only. MPI: none. */
#ifndef TUTTI_MODEL_ARCH_H
#define TUTTI_MODEL_ARCH_H
#include "model_internal.h"

/* ---- families ---- */

extern const tti_family tti_family_deepseek_v2;
extern const tti_family tti_family_deepseek_v3;
extern const tti_family tti_family_dots1;
extern const tti_family tti_family_ernie4_5_moe;
extern const tti_family tti_family_flex_olmo;
extern const tti_family tti_family_glm4_moe;
extern const tti_family tti_family_gpt_oss;
extern const tti_family tti_family_granite_moe;
extern const tti_family tti_family_hunyuan_moe;
extern const tti_family tti_family_llama;
extern const tti_family tti_family_llama4;
extern const tti_family tti_family_minimax_m2;
extern const tti_family tti_family_mistral;
extern const tti_family tti_family_mixtral;
extern const tti_family tti_family_olmoe;
extern const tti_family tti_family_phimoe;
extern const tti_family tti_family_qwen2_moe;
extern const tti_family tti_family_qwen3;
extern const tti_family tti_family_qwen3_moe;
extern const tti_family tti_family_qwen3_next;

/* ---- rows of keys ---- */

/* Field of tti_hyper, then limits. */
#define TTI_OFFSET(field) offsetof(tti_hyper, field)
#define TTI_KEY_SIZE(key, field, limit)                                                            \
    {                                                                                              \
        .type = TTI_KEY_INT, .flags = TTI_KEY_REQUIRED, .name = {key},                             \
        .offset = TTI_OFFSET(field), .min = 1, .max = (limit)                                      \
    }
#define TTI_KEY_SIZE_OR(key, field, limit, value)                                                  \
    {                                                                                              \
        .type = TTI_KEY_INT, .name = {key}, .offset = TTI_OFFSET(field), .fallback = (value),      \
        .min = 1, .max = (limit)                                                                   \
    }
/* A number that may be 0 or null for "none"; value where absent. */
#define TTI_KEY_COUNT_OR(key, field, limit, value)                                                 \
    {                                                                                              \
        .type = TTI_KEY_INT, .flags = TTI_KEY_NULL_IS_ZERO, .name = {key},                         \
        .offset = TTI_OFFSET(field), .fallback = (value), .min = 0, .max = (limit)                 \
    }
#define TTI_KEY_BOOL_OR(key, field, value)                                                         \
    {                                                                                              \
        .type = TTI_KEY_BOOL, .name = {key}, .offset = TTI_OFFSET(field), .fallback = (value)      \
    }
#define TTI_KEY_STRING_OR(key, field, value)                                                       \
    {                                                                                              \
        .type = TTI_KEY_STRING, .name = {key}, .offset = TTI_OFFSET(field), .text = (value)        \
    }
#define TTI_KEY_EPS(value)                                                                         \
    {                                                                                              \
        .type = TTI_KEY_FLOAT, .name = {"rms_norm_eps"}, .offset = TTI_OFFSET(arch.norm_eps),      \
        .fallback = (value), .min = 0, .max = 1                                                    \
    }
/* All four spellings are accepted everywhere; the family's own one comes first, for messages. */
#define TTI_KEY_EXPERTS(own, ...)                                                                  \
    {                                                                                              \
        .type = TTI_KEY_INT, .flags = TTI_KEY_REQUIRED, .name = {own, __VA_ARGS__},                \
        .offset = TTI_OFFSET(arch.E), .min = 1, .max = TTI_MAX_EXPERTS                             \
    }
/* E and K. */
#define TTI_KEYS_EXPERTS(...)                                                                      \
    TTI_KEY_EXPERTS(__VA_ARGS__), TTI_KEY_SIZE("num_experts_per_tok", arch.K, TTI_MAX_EXPERTS)
#define TTI_KEY_SCALE_OR(value)                                                                    \
    {                                                                                              \
        .type = TTI_KEY_REAL, .name = {"routed_scaling_factor"}, .offset = TTI_OFFSET(scale),      \
        .fallback = (value), .min = 1e-6, .max = 1e6                                               \
    }
/* The keys of almost every decoder with grouped-query attention, and what counts where they are
 * absent. n_kv 0: as many as there are heads; head_width 0: H / heads. */
#define TTI_KEYS_GQA(n_kv, head_width, n_context, eps)                                             \
    TTI_KEY_SIZE("num_hidden_layers", arch.L, TTI_MAX_LAYERS),                                     \
        TTI_KEY_SIZE("hidden_size", arch.H, TTI_MAX_WIDTH),                                        \
        TTI_KEY_SIZE("vocab_size", arch.V, TTI_MAX_VOCABULARY),                                    \
        TTI_KEY_SIZE("num_attention_heads", arch.Nq, TTI_MAX_WIDTH),                               \
        TTI_KEY_COUNT_OR("num_key_value_heads", arch.Nkv, TTI_MAX_WIDTH, n_kv),                    \
        TTI_KEY_COUNT_OR("head_dim", arch.D, TTI_MAX_WIDTH, head_width),                           \
        TTI_KEY_SIZE_OR("max_position_embeddings", arch.context, TTI_MAX_CONTEXT, n_context),      \
        TTI_KEY_EPS(eps)
#define TTI_KEY_TIED(value) TTI_KEY_BOOL_OR("tie_word_embeddings", arch.tied_embeddings, value)
/* The keys of DeepSeek's decoders with latent attention but for those of their routers. */
#define TTI_KEYS_MLA(n_context)                                                                    \
    TTI_KEY_SIZE("num_hidden_layers", arch.L, TTI_MAX_LAYERS),                                     \
        TTI_KEY_SIZE("hidden_size", arch.H, TTI_MAX_WIDTH),                                        \
        TTI_KEY_SIZE("vocab_size", arch.V, TTI_MAX_VOCABULARY),                                    \
        TTI_KEY_SIZE("num_attention_heads", arch.Nq, TTI_MAX_WIDTH),                               \
        TTI_KEY_SIZE("intermediate_size", arch.F_dense, TTI_MAX_WIDTH),                            \
        TTI_KEY_SIZE("moe_intermediate_size", arch.F, TTI_MAX_WIDTH),                              \
        TTI_KEYS_EXPERTS("n_routed_experts", "num_experts", "num_local_experts",                   \
                         "moe_num_experts"),                                                       \
        TTI_KEY_SIZE_OR("max_position_embeddings", arch.context, TTI_MAX_CONTEXT, n_context),      \
        TTI_KEY_EPS(1e-6), TTI_KEY_TIED(false),                                                    \
        TTI_KEY_COUNT_OR("q_lora_rank", arch.q_rank, TTI_MAX_WIDTH, 1536),                         \
        TTI_KEY_SIZE_OR("kv_lora_rank", arch.kv_rank, TTI_MAX_WIDTH, 512),                         \
        TTI_KEY_SIZE_OR("qk_nope_head_dim", arch.nope_dim, TTI_MAX_WIDTH, 128),                    \
        TTI_KEY_SIZE_OR("qk_rope_head_dim", arch.rope_dim, TTI_MAX_WIDTH, 64),                     \
        TTI_KEY_SIZE_OR("v_head_dim", arch.v_dim, TTI_MAX_WIDTH, 128),                             \
        TTI_KEY_BOOL_OR("attention_bias", attention_bias, false),                                  \
        TTI_KEY_BOOL_OR("mlp_bias", mlp_bias, false)
/* Shared experts, counted in routed ones, and the dense layers before the first MoE layer. */
#define TTI_KEYS_SHARED(experts, dense)                                                            \
    TTI_KEY_COUNT_OR("n_shared_experts", n_shared, TTI_MAX_EXPERTS, experts),                      \
        TTI_KEY_COUNT_OR("first_k_dense_replace", first_dense, TTI_MAX_LAYERS, dense)
/* A router that chooses groups of experts first. */
#define TTI_KEYS_GROUPS(groups, kept, normalise, factor)                                           \
    TTI_KEY_COUNT_OR("n_group", arch.router.n_groups, TTI_MAX_EXPERTS, groups),                    \
        TTI_KEY_COUNT_OR("topk_group", arch.router.n_groups_kept, TTI_MAX_EXPERTS, kept),          \
        TTI_KEY_BOOL_OR("norm_topk_prob", norm_topk, normalise), TTI_KEY_SCALE_OR(factor)
/* A window that a switch of its own turns on. */
#define TTI_KEYS_SWITCHED_WINDOW(size)                                                             \
    TTI_KEY_BOOL_OR("use_sliding_window", use_sliding_window, false),                              \
        TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, size)
#define TTI_KEY_FACTOR_OR(key, field, value)                                                       \
    {                                                                                              \
        .type = TTI_KEY_FLOAT, .name = {key}, .offset = TTI_OFFSET(field), .fallback = (value),    \
        .min = 1e-6, .max = 1e6                                                                    \
    }

/* ---- layers, routers, the end of finish() ---- */

/* layer_is_moe of several families: every layer; each moe_every-th one from first_dense on; those
 * whose number from 1 on is a multiple of moe_every, but none of mlp_only_layers
 * (tti_arch_check_mlp_only in finish). */
bool tti_arch_every_layer(const tti_hyper *hyper, int64_t layer);
bool tti_arch_after_dense(const tti_hyper *hyper, int64_t layer);
bool tti_arch_unless_mlp_only(const tti_hyper *hyper, int64_t layer);
tt_status tti_arch_check_mlp_only(const tti_hyper *hyper);
/* That the value is one of the words that the family knows; other may be NULL. Errors:
 * TT_ERR_UNSUPPORTED naming the key. */
tt_status tti_arch_check_word(const tti_hyper *hyper, const char *key, const char *value,
                              const char *one, const char *other);
/* A layer's window: it slides if layer_types says so, or where that is silent if by_default; and
 * the same for whether it is of another type. MTP layers have no type. */
void tti_arch_set_window(const tti_hyper *hyper, int64_t id, bool by_default, tt_layer *layer);
bool tti_arch_layer_is(const tti_hyper *hyper, int64_t id, const char *type, bool by_default);
/* set_layer where every layer slides, or none (use_sliding_window). */
void tti_arch_all_slide(const tti_hyper *hyper, int64_t id, tt_layer *layer);
/* set_layer where layers slide from max_window_layers on. */
void tti_arch_last_slide(const tti_hyper *hyper, int64_t id, tt_layer *layer);
/* A router without groups: softmax over all experts, or sigmoids with a bias for choosing. */
tt_router tti_router_softmax(bool normalise);
tt_router tti_router_sigmoid(const tti_hyper *hyper);
/* Sets heads, head width, rotary table and softmax scale of grouped-query attention, and checks
 * them. */
tt_status tti_arch_finish_gqa(tti_hyper *hyper);
/* The same for latent attention. */
tt_status tti_arch_finish_mla(tti_hyper *hyper);
/* Checks experts, choices and groups against each other. */
tt_status tti_arch_check_router(const tti_hyper *hyper);

#endif
