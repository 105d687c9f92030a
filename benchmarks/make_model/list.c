/* list.c - which tensors a shape has, with their names in both containers. */
#include "make_model.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static mm_tensor *add(mm_model *m, mm_filling fill, int64_t rows, int64_t cols, const char *format,
                      ...)
{
    if (m->n == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 1024;
        m->tensor = realloc(m->tensor, (size_t)m->capacity * sizeof(*m->tensor));
        if (!m->tensor) {
            mm_die("no memory for a list of %d tensors", m->capacity);
        }
    }
    mm_tensor *t = &m->tensor[m->n++];
    *t = (mm_tensor){.rows = rows, .cols = cols, .fill = fill};
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof(t->name), format, args);
    va_end(args);
    return t;
}

/* A norm: a vector of ones. */
static void add_norm(mm_model *m, int64_t n, int64_t layer, const char *name, const char *stack)
{
    mm_tensor *t = add(m, MM_ONE, n, 0, "model.layers.%" PRId64 ".%s.weight", layer, name);
    t->is_f32_gguf = true;
    if (stack[0]) {
        snprintf(t->stack, sizeof(t->stack), "blk.%" PRId64 ".%s.weight", layer, stack);
    }
}

/* A product's weights: quantised where the inputs fill whole groups. */
static mm_tensor *add_product(mm_model *m, int64_t rows, int64_t cols, int64_t layer,
                              const char *name, const char *stack)
{
    mm_tensor *t = add(m, MM_WEIGHT, rows, cols, "model.layers.%" PRId64 ".%s.weight", layer, name);
    if (stack[0]) {
        snprintf(t->stack, sizeof(t->stack), "blk.%" PRId64 ".%s.weight", layer, stack);
    }
    t->weights = m->weights == MM_FP8 || cols % MM_GROUP == 0 ? m->weights : MM_BF16;
    return t;
}

static void add_ffn(mm_model *m, int64_t F, int64_t layer, const char *part, const char *stack_part)
{
    static const char *const names[] = {"gate", "up", "down"};
    for (int i = 0; i < 3; i++) {
        char name[MM_NAME_BYTES / 2], stack[MM_NAME_BYTES / 2] = "";
        snprintf(name, sizeof(name), "mlp.%s%s_proj", part, names[i]);
        if (stack_part) {
            snprintf(stack, sizeof(stack), "ffn_%s%s", names[i], stack_part);
        }
        add_product(m, i < 2 ? F : m->shape.H, i < 2 ? m->shape.H : F, layer, name, stack);
    }
}

static void add_attention(mm_model *m, int64_t layer, bool in_gguf)
{
    const mm_shape *s = &m->shape;
#define STACK(name) (in_gguf ? (name) : "")
    if (!s->is_mla) {
        add_product(m, s->Nq * s->D, s->H, layer, "self_attn.q_proj", "attn_q");
        add_product(m, s->Nkv * s->D, s->H, layer, "self_attn.k_proj", "attn_k");
        add_product(m, s->Nkv * s->D, s->H, layer, "self_attn.v_proj", "attn_v");
        add_product(m, s->H, s->Nq * s->D, layer, "self_attn.o_proj", "attn_output");
        add_norm(m, s->D, layer, "self_attn.q_norm", "attn_q_norm");
        add_norm(m, s->D, layer, "self_attn.k_norm", "attn_k_norm");
        return;
    }
    add_product(m, s->q_rank, s->H, layer, "self_attn.q_a_proj", STACK("attn_q_a"));
    add_norm(m, s->q_rank, layer, "self_attn.q_a_layernorm", STACK("attn_q_a_norm"));
    add_product(m, s->Nq * (s->nope_dim + s->rope_dim), s->q_rank, layer, "self_attn.q_b_proj",
                STACK("attn_q_b"));
    add_product(m, s->kv_rank + s->rope_dim, s->H, layer, "self_attn.kv_a_proj_with_mqa",
                STACK("attn_kv_a_mqa"));
    add_norm(m, s->kv_rank, layer, "self_attn.kv_a_layernorm", STACK("attn_kv_a_norm"));
    mm_tensor *kv_b = add_product(m, s->Nq * (s->nope_dim + s->v_dim), s->kv_rank, layer,
                                  "self_attn.kv_b_proj", STACK("attn_k_b"));
    kv_b->is_latent_kv = true;
    if (m->weights != MM_FP8) {
        kv_b->weights = MM_BF16; /* GGUF holds its first half transposed: no groups of inputs
                                  * survive that */
    }
    add_product(m, s->H, s->Nq * s->v_dim, layer, "self_attn.o_proj", STACK("attn_output"));
#undef STACK
}

static void add_moe(mm_model *m, int64_t layer, bool in_gguf)
{
    const mm_shape *s = &m->shape;
    mm_tensor *router =
        add_product(m, s->E, s->H, layer, "mlp.gate", in_gguf ? "ffn_gate_inp" : "");
    router->weights = MM_BF16;
    router->is_f32_gguf = true;
    if (s->is_mla) {
        mm_tensor *bias = add(m, MM_ZERO, s->E, 0,
                              "model.layers.%" PRId64 ".mlp.gate.e_score_correction_bias", layer);
        bias->is_f32 = true;
        if (in_gguf) {
            snprintf(bias->stack, sizeof(bias->stack), "blk.%" PRId64 ".exp_probs_b.bias", layer);
        }
    }
    for (int64_t e = 0; e < s->E; e++) {
        char part[32];
        snprintf(part, sizeof(part), "experts.%" PRId64 ".", e);
        add_ffn(m, s->F, layer, part, in_gguf ? "_exps" : NULL);
    }
    if (s->n_shared > 0) {
        add_ffn(m, s->F * s->n_shared, layer, "shared_experts.", in_gguf ? "_shexp" : NULL);
    }
}

static void add_layer(mm_model *m, int64_t layer, bool is_moe, bool in_gguf)
{
    add_norm(m, m->shape.H, layer, "input_layernorm", in_gguf ? "attn_norm" : "");
    add_attention(m, layer, in_gguf);
    add_norm(m, m->shape.H, layer, "post_attention_layernorm", in_gguf ? "ffn_norm" : "");
    if (is_moe) {
        add_moe(m, layer, in_gguf);
    } else {
        add_ffn(m, m->shape.F_dense, layer, "", "");
    }
}

/* The MTP layer's own parts; embedding and head are shared with the main model. GGUF files of this
 * architecture have none. */
static void add_mtp(mm_model *m, int64_t layer)
{
    int64_t H = m->shape.H;
    add_norm(m, H, layer, "enorm", "");
    add_norm(m, H, layer, "hnorm", "");
    mm_tensor *projection = add_product(m, H, 2 * H, layer, "eh_proj", "");
    projection->weights = MM_BF16;
    add_norm(m, H, layer, "shared_head.norm", "");
    add_layer(m, layer, true, false);
}

void mm_list_tensors(mm_model *m)
{
    const mm_shape *s = &m->shape;
    mm_tensor *t = add(m, MM_EMBEDDING, s->V, s->H, "model.embed_tokens.weight");
    strcpy(t->stack, "token_embd.weight");
    for (int64_t l = 0; l < s->L; l++) {
        add_layer(m, l, l >= s->n_dense, true);
    }
    for (int64_t l = s->L; l < s->L + s->n_mtp; l++) {
        add_mtp(m, l);
    }
    t = add(m, MM_ONE, s->H, 0, "model.norm.weight");
    t->is_f32_gguf = true;
    strcpy(t->stack, "output_norm.weight");
    t = add(m, MM_WEIGHT, s->V, s->H, "lm_head.weight");
    /* FP8 checkpoints leave the head alone */
    t->weights = m->weights == MM_FP8 || s->H % MM_GROUP != 0 ? MM_BF16 : m->weights;
    strcpy(t->stack, "output.weight");
}
