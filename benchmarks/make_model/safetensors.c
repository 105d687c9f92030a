/* safetensors.c - a checkpoint directory as hubs have them: shards, index, config.json, tokenizer.
 * bf16 plainly; fp8 as DeepSeek stores it (blocks of 128 x 128 with a float scale); int8 and int4
 * as compressed-tensors does (packed along inputs, a f16 scale per 32). */
#include "make_model.h"
#include <stdlib.h>
#include <string.h>

static const uint64_t SHARD_BYTES = UINT64_C(4) << 30; /* a file holds no more unless one tensor
                                                        * is larger; as hubs cut them */

typedef enum part_kind { PART_ELEMENTS, PART_SCALES, PART_SHAPE } part_kind;

/* What lies under one name in a file. */
typedef struct part {
    int id; /* of the tensor */
    part_kind kind;
    char name[MM_NAME_BYTES + 16];
    const char *dtype;
    int64_t dim[2];
    int n_dims;
    int shard;
    uint64_t begin, end; /* bytes behind the header of its shard */
} part;

typedef struct layout {
    part *part; /* part[n] */
    int n, n_shards;
    uint64_t bytes;
} layout;

static int bits_of(mm_weights weights)
{
    return weights == MM_INT4 ? 4 : 8;
}

/* Gives a part its place: shards are filled in order. */
static void place(layout *l, part p, uint64_t bytes)
{
    uint64_t used = l->n > 0 ? l->part[l->n - 1].end : 0;
    if (used > 0 && used + bytes > SHARD_BYTES) {
        l->n_shards++;
        used = 0;
    }
    p.shard = l->n_shards - 1;
    p.begin = used;
    p.end = used + bytes;
    l->bytes += bytes;
    l->part[l->n++] = p;
}

static void place_tensor(layout *l, const mm_tensor *t, int id)
{
    part p = {.id = id, .dim = {t->rows, t->cols}, .n_dims = t->cols ? 2 : 1};
    uint64_t n = (uint64_t)t->rows * (uint64_t)(t->cols ? t->cols : 1);
    if (t->weights == MM_BF16) {
        p.dtype = t->is_f32 ? "F32" : "BF16";
        snprintf(p.name, sizeof(p.name), "%s", t->name);
        place(l, p, n * (t->is_f32 ? 4 : 2));
    } else if (t->weights == MM_FP8) {
        p.dtype = "F8_E4M3";
        snprintf(p.name, sizeof(p.name), "%s", t->name);
        place(l, p, n);
        p.kind = PART_SCALES;
        p.dtype = "F32";
        snprintf(p.name, sizeof(p.name), "%s_scale_inv", t->name);
        p.dim[0] = (t->rows + MM_BLOCK - 1) / MM_BLOCK;
        p.dim[1] = (t->cols + MM_BLOCK - 1) / MM_BLOCK;
        place(l, p, (uint64_t)(p.dim[0] * p.dim[1]) * 4);
    } else {
        p.dtype = "I32";
        p.dim[1] = t->cols * bits_of(t->weights) / 32;
        snprintf(p.name, sizeof(p.name), "%s_packed", t->name);
        place(l, p, (uint64_t)(p.dim[0] * p.dim[1]) * 4);
        p.kind = PART_SCALES;
        p.dtype = "F16";
        p.dim[1] = t->cols / MM_GROUP;
        snprintf(p.name, sizeof(p.name), "%s_scale", t->name);
        place(l, p, (uint64_t)(p.dim[0] * p.dim[1]) * 2);
        p.kind = PART_SHAPE;
        p.dtype = "I64";
        p.n_dims = 1;
        p.dim[0] = 2;
        snprintf(p.name, sizeof(p.name), "%s_shape", t->name);
        place(l, p, 16);
    }
}

static void shard_name(const layout *l, int shard, char *name)
{
    if (l->n_shards == 1) {
        snprintf(name, MM_NAME_BYTES, "model.safetensors");
    } else {
        snprintf(name, MM_NAME_BYTES, "model-%05d-of-%05d.safetensors", shard + 1, l->n_shards);
    }
}

/* Length as 8 bytes, little endian, then JSON, padded so that data starts at a multiple of 8. first
 * and last: the shard's parts. */
static void write_header(const layout *l, int first, int last, mm_out *out)
{
    size_t size = 64 + (size_t)(last - first) * (MM_NAME_BYTES + 160), used = 0;
    char *text = mm_allocate(size);
    used = (size_t)snprintf(text, size, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = first; i < last; i++) {
        const part *p = &l->part[i];
        used += (size_t)snprintf(text + used, size - used,
                                 ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRId64, p->name, p->dtype,
                                 p->dim[0]);
        if (p->n_dims == 2) {
            used += (size_t)snprintf(text + used, size - used, ",%" PRId64, p->dim[1]);
        }
        used += (size_t)snprintf(text + used, size - used,
                                 "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", p->begin, p->end);
    }
    text[used++] = '}';
    while (used % 8 != 0) {
        text[used++] = ' ';
    }
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) {
        prefix[i] = (unsigned char)((uint64_t)used >> (8 * i));
    }
    mm_out_write(out, prefix, sizeof(prefix));
    mm_out_write(out, text, used);
    free(text);
}

static void write_elements(const mm_model *m, int id, mm_out *out, unsigned char *chunk)
{
    const mm_tensor *t = &m->tensor[id];
    int64_t n = t->rows * (t->cols ? t->cols : 1), most = MM_CHUNK_BYTES / 2;
    n *= t->is_f32 ? 2 : 1; /* zeros, in halves */
    for (int64_t begin = 0; begin < n; begin += most) {
        int64_t count = n - begin < most ? n - begin : most;
        if (t->weights == MM_BF16) {
            mm_draw_bf16(m, id, begin, count, (uint16_t *)(void *)chunk);
            mm_out_write(out, chunk, (size_t)count * 2);
            continue;
        }
        mm_draw_codes(m, id, begin, count, chunk);
        if (t->weights == MM_INT8) {
            for (int64_t i = 0; i < count; i++) {
                chunk[i] ^= 0x80; /* stored with 128 added */
            }
        } else if (t->weights == MM_INT4) {
            for (int64_t i = 0; i < count; i += 2) { /* stored with 8 added, the first in the low
                                                      * half */
                chunk[i / 2] =
                    (unsigned char)(((chunk[i] + 8) & 15) | ((chunk[i + 1] + 8) & 15) << 4);
            }
            count /= 2;
        }
        mm_out_write(out, chunk, (size_t)count);
    }
}

static void write_scales(const mm_model *m, const part *p, mm_out *out, unsigned char *chunk)
{
    bool is_f32 = m->tensor[p->id].weights == MM_FP8;
    int64_t n = p->dim[0] * p->dim[1], most = MM_CHUNK_BYTES / 4;
    for (int64_t begin = 0; begin < n; begin += most) {
        int64_t count = n - begin < most ? n - begin : most;
        for (int64_t i = 0; i < count; i++) {
            float scale = mm_scale(m, p->id, begin + i);
            uint16_t half = mm_f16(scale);
            memcpy(chunk + (size_t)i * (is_f32 ? 4 : 2), is_f32 ? (void *)&scale : (void *)&half,
                   is_f32 ? 4 : 2);
        }
        mm_out_write(out, chunk, (size_t)count * (is_f32 ? 4 : 2));
    }
}

static void write_part(const mm_model *m, const part *p, mm_out *out, unsigned char *chunk)
{
    const int64_t shape[2] = {m->tensor[p->id].rows, m->tensor[p->id].cols};
    switch (p->kind) {
    case PART_ELEMENTS:
        write_elements(m, p->id, out, chunk);
        break;
    case PART_SCALES:
        write_scales(m, p, out, chunk);
        break;
    case PART_SHAPE:
        mm_out_write(out, shape, sizeof(shape));
        break;
    }
}

static void write_shards(const mm_model *m, const layout *l)
{
    unsigned char *chunk = mm_allocate(MM_CHUNK_BYTES);
    for (int shard = 0, first = 0; shard < l->n_shards; shard++) {
        char name[MM_NAME_BYTES];
        mm_out out;
        int last = first;
        while (last < l->n && l->part[last].shard == shard) {
            last++;
        }
        shard_name(l, shard, name);
        mm_out_open(&out, m->path, name);
        write_header(l, first, last, &out);
        for (; first < last; first++) {
            write_part(m, &l->part[first], &out, chunk);
        }
        mm_out_close(&out);
    }
    free(chunk);
}

static void write_index(const mm_model *m, const layout *l)
{
    mm_out out;
    if (l->n_shards == 1) {
        return;
    }
    mm_out_open(&out, m->path, "model.safetensors.index.json");
    mm_out_print(&out, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":{", l->bytes);
    for (int i = 0; i < l->n; i++) {
        char shard[MM_NAME_BYTES];
        shard_name(l, l->part[i].shard, shard);
        mm_out_print(&out, "%s\n\"%s\":\"%s\"", i ? "," : "", l->part[i].name, shard);
    }
    mm_out_print(&out, "\n}}\n");
    mm_out_close(&out);
}

static void print_number(mm_out *out, const char *key, int64_t value)
{
    mm_out_print(out, " \"%s\": %" PRId64 ",\n", key, value);
}

static void print_quantization(const mm_model *m, mm_out *out)
{
    if (m->weights == MM_FP8) {
        mm_out_print(
            out,
            " \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\","
            " \"weight_block_size\": [%d, %d]},\n",
            MM_BLOCK, MM_BLOCK);
    } else if (m->weights != MM_BF16) {
        mm_out_print(
            out,
            " \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\","
            " \"ignore\": [\"re:.*mlp.gate$\", \"re:.*kv_b_proj$\", \"re:.*eh_proj$\"], \"config_groups\": {\"group_0\":"
            " {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": %d, \"type\": \"int\", \"symmetric\": true,"
            " \"strategy\": \"group\", \"group_size\": %d}}}},\n",
            bits_of(m->weights), MM_GROUP);
    }
}

static void write_config(const mm_model *m)
{
    const mm_shape *s = &m->shape;
    mm_out out;
    mm_out_open(&out, m->path, "config.json");
    mm_out_print(&out, "{\n \"architectures\": [\"%s\"],\n \"model_type\": \"%s\",\n",
                 s->is_mla ? "DeepseekV3ForCausalLM" : "Qwen3MoeForCausalLM",
                 s->is_mla ? "deepseek_v3" : "qwen3_moe");
    const struct {
        const char *key;
        int64_t value;
    } common[] = {{"hidden_size", s->H},
                  {"vocab_size", s->V},
                  {"num_hidden_layers", s->L},
                  {"num_attention_heads", s->Nq},
                  {"num_key_value_heads", s->is_mla ? s->Nq : s->Nkv},
                  {"intermediate_size", s->F_dense},
                  {"moe_intermediate_size", s->F},
                  {"num_experts_per_tok", s->K},
                  {"max_position_embeddings", s->context}},
      latent[] = {{"n_routed_experts", s->E},
                  {"n_shared_experts", s->n_shared},
                  {"first_k_dense_replace", s->n_dense},
                  {"moe_layer_freq", 1},
                  {"n_group", s->n_groups},
                  {"topk_group", s->n_groups_kept},
                  {"q_lora_rank", s->q_rank},
                  {"kv_lora_rank", s->kv_rank},
                  {"qk_nope_head_dim", s->nope_dim},
                  {"qk_rope_head_dim", s->rope_dim},
                  {"v_head_dim", s->v_dim},
                  {"num_nextn_predict_layers", s->n_mtp}};
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
        print_number(&out, common[i].key, common[i].value);
    }
    for (size_t i = 0; s->is_mla && i < sizeof(latent) / sizeof(latent[0]); i++) {
        print_number(&out, latent[i].key, latent[i].value);
    }
    if (s->is_mla) {
        mm_out_print(
            &out,
            " \"topk_method\": \"noaux_tc\",\n \"scoring_func\": \"sigmoid\",\n \"routed_scaling_factor\": 2.5,\n");
    } else {
        print_number(&out, "num_experts", s->E);
        print_number(&out, "head_dim", s->D);
        mm_out_print(&out, " \"decoder_sparse_step\": 1,\n \"mlp_only_layers\": [");
        for (int64_t l = 0; l < s->n_dense; l++) {
            mm_out_print(&out, "%s%" PRId64, l ? ", " : "", l);
        }
        mm_out_print(&out, "],\n");
    }
    print_quantization(m, &out);
    mm_out_print(
        &out,
        " \"norm_topk_prob\": true,\n \"hidden_act\": \"silu\",\n \"rms_norm_eps\": 1e-06,\n \"rope_theta\": 10000.0,\n"
        " \"attention_bias\": false,\n \"tie_word_embeddings\": false,\n \"bos_token_id\": %d,\n \"eos_token_id\": %d,\n"
        " \"torch_dtype\": \"bfloat16\"\n}\n",
        MM_BOS, MM_EOS);
    mm_out_close(&out);
}

uint64_t mm_write_safetensors(const mm_model *m, int *n_files_out)
{
    enum { MOST_PARTS = 3 };
    layout l = {.n_shards = 1, .part = mm_allocate((size_t)m->n * MOST_PARTS * sizeof(part))};
    for (int id = 0; id < m->n; id++) {
        place_tensor(&l, &m->tensor[id], id);
    }
    write_shards(m, &l);
    write_index(m, &l);
    mm_write_tokenizer_json(m);
    mm_out out;
    mm_out_open(&out, m->path, "generation_config.json");
    mm_out_print(&out, "{\"bos_token_id\": %d, \"eos_token_id\": %d, \"do_sample\": false}\n",
                 MM_BOS, MM_EOS);
    mm_out_close(&out);
    write_config(m); /* last: what was cut short is no checkpoint */
    *n_files_out = l.n_shards;
    free(l.part);
    return l.bytes;
}
