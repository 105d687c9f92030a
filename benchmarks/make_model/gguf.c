/* gguf.c - the same weights as one GGUF file: architectures qwen3moe and deepseek2; BF16, Q8_0 and
 * Q4_0. Experts of a layer are one tensor; kv_b is cut in its two halves, the first transposed per
 * head; norms and routers are F32, as readers of such files want them. */
#include "make_model.h"
#include <stdlib.h>
#include <string.h>

typedef enum gguf_type { GGUF_F32 = 0, GGUF_Q4_0 = 2, GGUF_Q8_0 = 8, GGUF_BF16 = 30 } gguf_type;
enum {
    GGUF_VERSION = 3,
    GGUF_ALIGN = 32,
    KV_U32 = 4,
    KV_F32 = 6,
    KV_BOOL = 7,
    KV_STRING = 8,
    KV_ARRAY = 9,
    KV_I32 = 5
};

/* One tensor of the file. */
typedef struct entry {
    char name[MM_NAME_BYTES];
    int id, step, n_members; /* tensors id, id + step, ...: planes of it */
    gguf_type type;
    int64_t dim[3]; /* innermost first */
    int n_dims;
    bool is_k_b, is_v_b;
    uint64_t offset, bytes;
} entry;

static void put_u32(mm_out *out, uint32_t value)
{
    mm_out_write(out, &value, sizeof(value));
}

static void put_u64(mm_out *out, uint64_t value)
{
    mm_out_write(out, &value, sizeof(value));
}

static void put_string(mm_out *out, const char *text)
{
    put_u64(out, strlen(text));
    mm_out_write(out, text, strlen(text));
}

/* ---- the list ---- */

static uint64_t row_bytes(gguf_type type, int64_t n)
{
    switch (type) {
    case GGUF_F32:
        return (uint64_t)n * 4;
    case GGUF_BF16:
        return (uint64_t)n * 2;
    case GGUF_Q8_0:
        return (uint64_t)(n / MM_GROUP) * (2 + MM_GROUP);
    case GGUF_Q4_0:
        return (uint64_t)(n / MM_GROUP) * (2 + MM_GROUP / 2);
    }
    return 0;
}

static gguf_type type_of(const mm_tensor *t)
{
    return t->is_f32 || t->is_f32_gguf ? GGUF_F32
           : t->weights == MM_INT8     ? GGUF_Q8_0
           : t->weights == MM_INT4     ? GGUF_Q4_0
                                       : GGUF_BF16;
}

static void add(entry *list, int *n, entry e, uint64_t *used)
{
    e.bytes = row_bytes(e.type, e.dim[0]) * (uint64_t)(e.n_dims > 1 ? e.dim[1] : 1) *
              (uint64_t)(e.n_dims > 2 ? e.dim[2] : 1);
    e.offset = *used;
    *used = (*used + e.bytes + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
    list[(*n)++] = e;
}

/* Fills list[..] and returns how many there are. */
static int list_entries(const mm_model *m, entry *list, uint64_t *bytes_out)
{
    enum { EXPERT_STEP = 3 }; /* gate, up, down of an expert lie in a row */
    const mm_shape *s = &m->shape;
    int n = 0;
    uint64_t used = 0;
    for (int id = 0; id < m->n; id++) {
        const mm_tensor *t = &m->tensor[id];
        if (!t->stack[0]) {
            continue;
        }
        entry e = {.id = id,
                   .step = 0,
                   .n_members = 1,
                   .type = type_of(t),
                   .dim = {t->cols ? t->cols : t->rows, t->rows},
                   .n_dims = t->cols ? 2 : 1};
        snprintf(e.name, sizeof(e.name), "%s", t->stack);
        if (strstr(t->stack, "_exps")) {
            if (n > 0 && id >= EXPERT_STEP &&
                strcmp(m->tensor[id - EXPERT_STEP].stack, t->stack) == 0) {
                continue; /* a plane of one that is there */
            }
            e.step = EXPERT_STEP;
            e.n_members = (int)s->E;
            e.n_dims = 3;
            e.dim[2] = s->E;
        } else if (t->is_latent_kv) {
            e.n_dims = 3;
            e.is_k_b = true;
            e.dim[0] = s->nope_dim;
            e.dim[1] = s->kv_rank;
            e.dim[2] = s->Nq;
            add(list, &n, e, &used);
            e.is_k_b = false;
            e.is_v_b = true;
            *strstr(e.name, "k_b") = 'v';
            e.dim[0] = s->kv_rank;
            e.dim[1] = s->v_dim;
        }
        add(list, &n, e, &used);
    }
    *bytes_out = used;
    return n;
}

/* ---- metadata ---- */

/* Counts in a first walk, writes in the second. */
typedef struct metadata {
    mm_out *out;
    uint64_t n;
    const char *arch;
} metadata;

static bool key(metadata *meta, const char *name, bool of_arch, uint32_t type)
{
    char text[MM_NAME_BYTES];
    meta->n++;
    if (!meta->out) {
        return false;
    }
    snprintf(text, sizeof(text), "%s%s%s", of_arch ? meta->arch : "", of_arch ? "." : "", name);
    put_string(meta->out, text);
    put_u32(meta->out, type);
    return true;
}

static void kv_u32(metadata *meta, const char *name, int64_t value)
{
    if (key(meta, name, true, KV_U32)) {
        put_u32(meta->out, (uint32_t)value);
    }
}

static void kv_f32(metadata *meta, const char *name, float value)
{
    if (key(meta, name, true, KV_F32)) {
        mm_out_write(meta->out, &value, sizeof(value));
    }
}

static void kv_string(metadata *meta, const char *name, const char *value)
{
    if (key(meta, name, false, KV_STRING)) {
        put_string(meta->out, value);
    }
}

static void kv_id(metadata *meta, const char *name, uint32_t value)
{
    if (key(meta, name, false, KV_U32)) {
        put_u32(meta->out, value);
    }
}

static void kv_bool(metadata *meta, const char *name, bool of_arch, bool value)
{
    if (key(meta, name, of_arch, KV_BOOL)) {
        unsigned char byte = value;
        mm_out_write(meta->out, &byte, 1);
    }
}

static bool array(metadata *meta, const char *name, uint32_t type, int64_t n)
{
    if (!key(meta, name, false, KV_ARRAY)) {
        return false;
    }
    put_u32(meta->out, type);
    put_u64(meta->out, (uint64_t)n);
    return true;
}

static void walk_tokenizer(metadata *meta, const mm_shape *s)
{
    enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_UNUSED = 5 };
    char text[32];
    kv_string(meta, "tokenizer.ggml.model", "gpt2");
    kv_string(meta, "tokenizer.ggml.pre", "gpt-2");
    if (array(meta, "tokenizer.ggml.tokens", KV_STRING, s->V)) {
        for (int64_t id = 0; id < s->V; id++) {
            mm_token_text(id, text);
            put_string(meta->out, text);
        }
    }
    if (array(meta, "tokenizer.ggml.token_type", KV_I32, s->V)) {
        for (int64_t id = 0; id < s->V; id++) {
            put_u32(meta->out, id < MM_BOS        ? TOKEN_NORMAL
                               : id < MM_N_TOKENS ? TOKEN_CONTROL
                                                  : TOKEN_UNUSED);
        }
    }
    if (array(meta, "tokenizer.ggml.merges", KV_STRING, MM_N_PAIRS)) {
        for (int i = 0; i < MM_N_PAIRS; i++) {
            snprintf(text, sizeof(text), "%c %c", 'a' + i / MM_N_LETTERS, 'a' + i % MM_N_LETTERS);
            put_string(meta->out, text);
        }
    }
    kv_id(meta, "tokenizer.ggml.bos_token_id", MM_BOS);
    kv_id(meta, "tokenizer.ggml.eos_token_id", MM_EOS);
    kv_bool(meta, "tokenizer.ggml.add_bos_token", false, false);
}

static void walk(metadata *meta, const mm_model *m)
{
    enum {
        FILE_BF16 = 32,
        FILE_Q8_0 = 7,
        FILE_Q4_0 = 2,
        QUANTIZATION_VERSION = 2,
        GATING_SIGMOID = 2
    };
    const mm_shape *s = &m->shape;
    kv_string(meta, "general.architecture", meta->arch);
    kv_string(meta, "general.name", s->name);
    kv_id(meta, "general.quantization_version", QUANTIZATION_VERSION);
    kv_id(meta, "general.file_type",
          m->weights == MM_INT8   ? FILE_Q8_0
          : m->weights == MM_INT4 ? FILE_Q4_0
                                  : FILE_BF16);
    kv_u32(meta, "block_count", s->L);
    kv_u32(meta, "context_length", s->context);
    kv_u32(meta, "embedding_length", s->H);
    kv_u32(meta, "feed_forward_length", s->F_dense);
    kv_u32(meta, "attention.head_count", s->Nq);
    kv_u32(meta, "attention.head_count_kv", s->is_mla ? 1 : s->Nkv);
    kv_f32(meta, "attention.layer_norm_rms_epsilon", 1e-6f);
    kv_f32(meta, "rope.freq_base", 10000.0f);
    kv_u32(meta, "expert_count", s->E);
    kv_u32(meta, "expert_used_count", s->K);
    kv_u32(meta, "expert_feed_forward_length", s->F);
    kv_u32(meta, "vocab_size", s->V);
    kv_u32(meta, "attention.key_length", s->is_mla ? s->kv_rank + s->rope_dim : s->D);
    kv_u32(meta, "attention.value_length", s->is_mla ? s->kv_rank : s->D);
    if (s->is_mla) {
        kv_u32(meta, "attention.key_length_mla", s->nope_dim + s->rope_dim);
        kv_u32(meta, "attention.value_length_mla", s->v_dim);
        kv_u32(meta, "attention.q_lora_rank", s->q_rank);
        kv_u32(meta, "attention.kv_lora_rank", s->kv_rank);
        kv_u32(meta, "rope.dimension_count", s->rope_dim);
        kv_u32(meta, "leading_dense_block_count", s->n_dense);
        kv_u32(meta, "expert_shared_count", s->n_shared);
        kv_u32(meta, "expert_group_count", s->n_groups);
        kv_u32(meta, "expert_group_used_count", s->n_groups_kept);
        kv_u32(meta, "expert_gating_func", GATING_SIGMOID);
        kv_f32(meta, "expert_weights_scale", 2.5f);
        kv_bool(meta, "expert_weights_norm", true, true);
    }
    walk_tokenizer(meta, s);
}

/* ---- data ---- */

/* Elements [begin, begin + n) of a tensor in the entry's type. codes and halves are work of n
 * elements. */
static void write_run(const mm_model *m, const entry *e, int id, int64_t begin, int64_t n,
                      uint16_t *work, mm_out *out)
{
    if (e->type == GGUF_BF16 || e->type == GGUF_F32) {
        mm_draw_bf16(m, id, begin, n, work);
        /* a bf16 is the upper half of a float; from the back, in place */
        for (int64_t i = n; e->type == GGUF_F32 && i-- > 0;) {
            uint32_t bits = (uint32_t)work[i] << 16;
            memcpy(work + 2 * i, &bits, sizeof(bits));
        }
        mm_out_write(out, work, row_bytes(e->type, n));
        return;
    }
    uint8_t *codes = (uint8_t *)work;
    mm_draw_codes(m, id, begin, n, codes);
    for (int64_t g = 0; g < n; g += MM_GROUP) {
        const uint8_t *c = codes + g;
        unsigned char block[2 + MM_GROUP];
        uint16_t scale = mm_f16(mm_scale(m, id, (begin + g) / MM_GROUP));
        memcpy(block, &scale, sizeof(scale));
        if (e->type == GGUF_Q8_0) {
            memcpy(block + 2, c, MM_GROUP);
        }
        for (int j = 0; e->type == GGUF_Q4_0 && j < MM_GROUP / 2; j++) {
            block[2 + j] =
                (unsigned char)(((c[j] + 8) & 15) | ((c[j + MM_GROUP / 2] + 8) & 15) << 4);
        }
        mm_out_write(out, block, row_bytes(e->type, MM_GROUP));
    }
}

/* One half of kv_b: head by head. */
static void write_latent(const mm_model *m, const entry *e, mm_out *out)
{
    const mm_shape *s = &m->shape;
    int64_t head = s->nope_dim + s->v_dim, n = head * s->kv_rank, padded = n + 4;
    uint16_t *whole = mm_allocate((size_t)padded * 2),
             *turned = mm_allocate((size_t)(s->nope_dim * s->kv_rank) * 2);
    for (int64_t h = 0; h < s->Nq; h++) {
        int64_t begin = h * n, skip = begin % 4; /* draws begin at multiples of 4 */
        mm_draw_bf16(m, e->id, begin - skip, n + skip, whole);
        if (e->is_v_b) {
            mm_out_write(out, whole + skip + s->nope_dim * s->kv_rank,
                         (size_t)(s->v_dim * s->kv_rank) * 2);
            continue;
        }
        for (int64_t r = 0; r < s->kv_rank; r++) {
            for (int64_t d = 0; d < s->nope_dim; d++) {
                turned[r * s->nope_dim + d] = whole[skip + d * s->kv_rank + r];
            }
        }
        mm_out_write(out, turned, (size_t)(s->nope_dim * s->kv_rank) * 2);
    }
    free(whole);
    free(turned);
}

static void write_entry(const mm_model *m, const entry *e, uint16_t *work, mm_out *out)
{
    const int64_t most = MM_CHUNK_BYTES / 4; /* elements; a multiple of a group, and of 4 */
    if (e->is_k_b || e->is_v_b) {
        write_latent(m, e, out);
    } else {
        for (int i = 0; i < e->n_members; i++) {
            const mm_tensor *t = &m->tensor[e->id + i * e->step];
            int64_t n = t->rows * (t->cols ? t->cols : 1);
            for (int64_t begin = 0; begin < n; begin += most) {
                write_run(m, e, e->id + i * e->step, begin, n - begin < most ? n - begin : most,
                          work, out);
            }
        }
    }
    mm_out_pad(out, GGUF_ALIGN);
}

uint64_t mm_write_gguf(const mm_model *m)
{
    entry *list = mm_allocate(2 * (size_t)m->n * sizeof(*list));
    uint16_t *work = mm_allocate(MM_CHUNK_BYTES + 64);
    uint64_t data_bytes = 0;
    int n = list_entries(m, list, &data_bytes);
    mm_out out;
    metadata meta = {.arch = m->shape.is_mla ? "deepseek2" : "qwen3moe"};
    walk(&meta, m);
    mm_out_open(&out, NULL, m->path);
    mm_out_write(&out, "GGUF", 4);
    put_u32(&out, GGUF_VERSION);
    put_u64(&out, (uint64_t)n);
    put_u64(&out, meta.n);
    meta.out = &out;
    walk(&meta, m);
    for (int i = 0; i < n; i++) {
        put_string(&out, list[i].name);
        put_u32(&out, (uint32_t)list[i].n_dims);
        for (int d = 0; d < list[i].n_dims; d++) {
            put_u64(&out, (uint64_t)list[i].dim[d]);
        }
        put_u32(&out, (uint32_t)list[i].type);
        put_u64(&out, list[i].offset);
    }
    mm_out_pad(&out, GGUF_ALIGN);
    uint64_t data_begin = out.written;
    for (int i = 0; i < n; i++) {
        if (out.written != data_begin + list[i].offset) {
            mm_die("%s: tensor %s came to lie elsewhere than announced", m->path, list[i].name);
        }
        write_entry(m, &list[i], work, &out);
    }
    mm_out_close(&out);
    free(list);
    free(work);
    return data_bytes;
}
