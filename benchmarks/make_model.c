/* make_model.c - writes a checkpoint of a known shape with random weights: speed can be measured
 * without a trained model.
 *
 * Only widths and routing matter for speed, so the weights are drawn such that numbers stay tame
 * and experts are chosen about evenly: normal with std 0.6 / sqrt(inputs), norms of one,
 * embeddings of std 1, no choice bias. Element i of tensor t is a hash of (seed, t, i): any part
 * could be made alone, and a file is the same everywhere. Normal numbers come from a table of
 * 4096 quantiles, scaled and rounded to bf16 once per tensor, so a number costs a quarter of a
 * hash and a look-up. Needs nothing but the C library. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What a shape may say; sizes in elements. L counts decoder layers. */
typedef struct shape {
    const char *name, *note;
    bool is_mla; /* latent attention and the sigmoid router of DeepSeek-V3; else Qwen3-MoE */
    int64_t L, n_dense, H, V, context;
    int64_t E, K, F, n_shared, F_dense; /* n_shared experts of width F; dense layers come first */
    int64_t n_groups, n_groups_kept;
    int64_t Nq, Nkv, D;                                 /* Qwen3: heads and head width */
    int64_t q_rank, kv_rank, nope_dim, rope_dim, v_dim; /* latent */
} shape;

static const shape shapes[] = {
    {.name = "tiny",
     .note = "as models/tiny-moe, without its MTP layer; 23 MB",
     .is_mla = true,
     .L = 6,
     .n_dense = 1,
     .H = 256,
     .V = 4096,
     .context = 1024,
     .E = 32,
     .K = 4,
     .F = 64,
     .n_shared = 1,
     .F_dense = 768,
     .n_groups = 4,
     .n_groups_kept = 2,
     .Nq = 4,
     .q_rank = 96,
     .kv_rank = 64,
     .nope_dim = 32,
     .rope_dim = 16,
     .v_dim = 32},
    {.name = "small-mla",
     .note = "DeepSeek-V3's architecture at width 1024; 1.6 GB",
     .is_mla = true,
     .L = 8,
     .n_dense = 1,
     .H = 1024,
     .V = 32768,
     .context = 4096,
     .E = 64,
     .K = 8,
     .F = 512,
     .n_shared = 1,
     .F_dense = 4096,
     .n_groups = 1,
     .n_groups_kept = 1,
     .Nq = 16,
     .q_rank = 512,
     .kv_rank = 256,
     .nope_dim = 64,
     .rope_dim = 32,
     .v_dim = 64},
    {.name = "c",
     .note = "widths of Qwen3-30B-A3B; 3 of its 48 layers: 5.0 GB",
     .L = 3,
     .H = 2048,
     .V = 151936,
     .context = 4096,
     .E = 128,
     .K = 8,
     .F = 768,
     .F_dense = 6144,
     .Nq = 32,
     .Nkv = 4,
     .D = 128},
};

enum {
    N_QUANTILES = 4096, /* of the normal table: 8 KiB as bf16, stays in L1 */
    PER_HASH = 4, /* numbers from one 64-bit hash, 16 bits each of which the upper 12 are used */
    QUANTILE_SHIFT = 4,
    CHUNK = 1 << 21, /* elements generated and written at once: 4 MiB */
    NAME_BYTES = 96, /* the longest name takes 50 */
    PATH_BYTES = 4096,
    N_BYTES = 256, /* byte tokens */
    BOS_ID = N_BYTES,
    EOS_ID
};
#define SHARD_BYTES (UINT64_C(4) << 30) /* a file holds no more; as hubs cut them */
#define WEIGHT_STD 0.6                  /* times 1 / sqrt(inputs): sums over layers stay tame */

typedef enum filling { FILL_WEIGHT, FILL_EMBEDDING, FILL_ONE, FILL_ZERO_F32 } filling;

typedef struct tensor {
    char name[NAME_BYTES];
    int64_t rows, cols; /* cols 0: a vector of rows elements */
    filling fill;
    int shard;
    uint64_t begin, end; /* bytes behind the header of its shard */
} tensor;

typedef struct checkpoint {
    shape s;
    uint64_t seed;
    const char *dir;
    tensor *tensor; /* tensor[n] */
    int n, capacity;
    int n_shards;
    uint64_t total_bytes;
    double quantile[N_QUANTILES];
} checkpoint;

static _Noreturn void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("make_model: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* ---- numbers ---- */

/* The finaliser of splitmix64: a bijection that leaves no pattern of a counter. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* quantile[i] is the normal number that (i + 0.5) / N of all are below, by bisection. */
static void make_quantiles(double *quantile)
{
    for (int i = 0; i < N_QUANTILES; i++) {
        double wanted = (i + 0.5) / N_QUANTILES, low = -8.0, high = 8.0;
        for (int step = 0; step < 53; step++) {
            double middle = 0.5 * (low + high);
            *(0.5 * erfc(-middle / sqrt(2.0)) < wanted ? &low : &high) = middle;
        }
        quantile[i] = 0.5 * (low + high);
    }
}

/* Elements [begin, begin + n) of a tensor; begin is a multiple of PER_HASH. */
static void draw(uint64_t key, const uint16_t *table, int64_t begin, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i += PER_HASH) {
        uint64_t bits =
            mix(key + (uint64_t)((begin + i) / PER_HASH) * UINT64_C(0x9e3779b97f4a7c15));
        for (int64_t j = 0; j < PER_HASH && i + j < n; j++) {
            out[i + j] = table[(bits & 0xffff) >> QUANTILE_SHIFT];
            bits >>= 16;
        }
    }
}

/* ---- the list of tensors ---- */

static uint64_t tensor_bytes(const tensor *t)
{
    uint64_t n = (uint64_t)t->rows * (uint64_t)(t->cols ? t->cols : 1);
    return n * (t->fill == FILL_ZERO_F32 ? sizeof(float) : sizeof(uint16_t));
}

static void add(checkpoint *c, filling fill, int64_t rows, int64_t cols, const char *format, ...)
{
    if (c->n == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 1024;
        c->tensor = realloc(c->tensor, (size_t)c->capacity * sizeof(*c->tensor));
        if (!c->tensor) {
            die("no memory for a list of %d tensors", c->capacity);
        }
    }
    tensor *t = &c->tensor[c->n++];
    *t = (tensor){.rows = rows, .cols = cols, .fill = fill};
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof(t->name), format, args);
    va_end(args);
    c->total_bytes += tensor_bytes(t);
}

static void add_ffn(checkpoint *c, int64_t F, int64_t layer, const char *part)
{
    int64_t H = c->s.H;
    add(c, FILL_WEIGHT, F, H, "model.layers.%" PRId64 ".mlp.%sgate_proj.weight", layer, part);
    add(c, FILL_WEIGHT, F, H, "model.layers.%" PRId64 ".mlp.%sup_proj.weight", layer, part);
    add(c, FILL_WEIGHT, H, F, "model.layers.%" PRId64 ".mlp.%sdown_proj.weight", layer, part);
}

static void add_attention(checkpoint *c, int64_t layer)
{
    const shape *s = &c->s;
    char prefix[NAME_BYTES / 2];
    snprintf(prefix, sizeof(prefix), "model.layers.%" PRId64 ".self_attn.", layer);
    if (s->is_mla) {
        add(c, FILL_WEIGHT, s->q_rank, s->H, "%sq_a_proj.weight", prefix);
        add(c, FILL_ONE, s->q_rank, 0, "%sq_a_layernorm.weight", prefix);
        add(c, FILL_WEIGHT, s->Nq * (s->nope_dim + s->rope_dim), s->q_rank, "%sq_b_proj.weight",
            prefix);
        add(c, FILL_WEIGHT, s->kv_rank + s->rope_dim, s->H, "%skv_a_proj_with_mqa.weight", prefix);
        add(c, FILL_ONE, s->kv_rank, 0, "%skv_a_layernorm.weight", prefix);
        add(c, FILL_WEIGHT, s->Nq * (s->nope_dim + s->v_dim), s->kv_rank, "%skv_b_proj.weight",
            prefix);
        add(c, FILL_WEIGHT, s->H, s->Nq * s->v_dim, "%so_proj.weight", prefix);
        return;
    }
    add(c, FILL_WEIGHT, s->Nq * s->D, s->H, "%sq_proj.weight", prefix);
    add(c, FILL_WEIGHT, s->Nkv * s->D, s->H, "%sk_proj.weight", prefix);
    add(c, FILL_WEIGHT, s->Nkv * s->D, s->H, "%sv_proj.weight", prefix);
    add(c, FILL_WEIGHT, s->H, s->Nq * s->D, "%so_proj.weight", prefix);
    add(c, FILL_ONE, s->D, 0, "%sq_norm.weight", prefix);
    add(c, FILL_ONE, s->D, 0, "%sk_norm.weight", prefix);
}

static void list_tensors(checkpoint *c)
{
    const shape *s = &c->s;
    add(c, FILL_EMBEDDING, s->V, s->H, "model.embed_tokens.weight");
    for (int64_t l = 0; l < s->L; l++) {
        add(c, FILL_ONE, s->H, 0, "model.layers.%" PRId64 ".input_layernorm.weight", l);
        add_attention(c, l);
        add(c, FILL_ONE, s->H, 0, "model.layers.%" PRId64 ".post_attention_layernorm.weight", l);
        if (l < s->n_dense) {
            add_ffn(c, s->F_dense, l, "");
            continue;
        }
        add(c, FILL_WEIGHT, s->E, s->H, "model.layers.%" PRId64 ".mlp.gate.weight", l);
        if (s->is_mla) {
            add(c, FILL_ZERO_F32, s->E, 0,
                "model.layers.%" PRId64 ".mlp.gate.e_score_correction_bias", l);
        }
        for (int64_t e = 0; e < s->E; e++) {
            char part[32];
            snprintf(part, sizeof(part), "experts.%" PRId64 ".", e);
            add_ffn(c, s->F, l, part);
        }
        if (s->n_shared > 0) {
            add_ffn(c, s->F * s->n_shared, l, "shared_experts.");
        }
    }
    add(c, FILL_ONE, s->H, 0, "model.norm.weight");
    add(c, FILL_WEIGHT, s->V, s->H, "lm_head.weight");
}

/* Gives each tensor a shard and a place in it, in order. */
static void place_tensors(checkpoint *c)
{
    uint64_t used = 0;
    for (int i = 0; i < c->n; i++) {
        tensor *t = &c->tensor[i];
        uint64_t bytes = tensor_bytes(t);
        if (used > 0 && used + bytes > SHARD_BYTES) {
            c->n_shards++;
            used = 0;
        }
        t->shard = c->n_shards;
        t->begin = used;
        t->end = used += bytes;
    }
    c->n_shards++;
}

/* ---- files ---- */

static FILE *open_file(const checkpoint *c, const char *name)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/%s", c->dir, name);
    if (length < 0 || length >= PATH_BYTES) {
        die("the path of %s is too long", name);
    }
    FILE *file = fopen(path, "wb");
    if (!file) {
        die("%s cannot be written: %s", path, strerror(errno));
    }
    return file;
}

static void close_file(const checkpoint *c, const char *name, FILE *file)
{
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) {
        die("%s/%s cannot be written: %s", c->dir, name, strerror(errno));
    }
}

static void write_all(const checkpoint *c, const char *name, FILE *file, const void *data,
                      size_t bytes)
{
    if (fwrite(data, 1, bytes, file) != bytes) {
        die("%s/%s cannot be written: %s", c->dir, name, strerror(errno));
    }
}

static void shard_name(const checkpoint *c, int shard, char *name)
{
    if (c->n_shards == 1) {
        snprintf(name, NAME_BYTES, "model.safetensors");
    } else {
        snprintf(name, NAME_BYTES, "model-%05d-of-%05d.safetensors", shard + 1, c->n_shards);
    }
}

/* Length as 8 bytes, little endian, then JSON, padded so that data starts at a multiple of 8. */
static void write_header(const checkpoint *c, int shard, const char *name, FILE *file)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) {
        die("no memory for a header");
    }
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", out);
    for (int i = 0; i < c->n; i++) {
        const tensor *t = &c->tensor[i];
        if (t->shard != shard) {
            continue;
        }
        fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRId64, t->name,
                t->fill == FILL_ZERO_F32 ? "F32" : "BF16", t->rows);
        if (t->cols > 0) {
            fprintf(out, ",%" PRId64, t->cols);
        }
        fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin, t->end);
    }
    fputc('}', out);
    fflush(out);
    for (size_t n = length; n % 8 != 0; n++) {
        fputc(' ', out);
    }
    if (fclose(out) != 0) {
        die("no memory for a header");
    }
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) {
        prefix[i] = (unsigned char)((uint64_t)length >> (8 * i));
    }
    write_all(c, name, file, prefix, sizeof(prefix));
    write_all(c, name, file, text, length);
    free(text);
}

/* chunk[CHUNK] is work. */
static void write_tensor(const checkpoint *c, int id, const char *name, FILE *file, uint16_t *chunk)
{
    const tensor *t = &c->tensor[id];
    int64_t n = t->rows * (t->cols ? t->cols : 1);
    if (t->fill == FILL_ZERO_F32) {
        n *= 2; /* halves of floats */
    }
    uint16_t table[N_QUANTILES];
    double std =
        t->fill == FILL_EMBEDDING ? 1.0 : WEIGHT_STD / sqrt((double)(t->cols ? t->cols : 1));
    for (int i = 0; i < N_QUANTILES; i++) {
        double value = t->fill == FILL_ZERO_F32 ? 0.0
                       : t->fill == FILL_ONE    ? 1.0
                                                : std * c->quantile[i];
        table[i] = to_bf16((float)value);
    }
    uint64_t key = mix(mix(c->seed) + (uint64_t)id);
    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        int64_t part = n - begin < CHUNK ? n - begin : CHUNK;
        draw(key, table, begin, part, chunk);
        write_all(c, name, file, chunk, (size_t)part * sizeof(*chunk));
    }
}

static void write_shards(const checkpoint *c)
{
    uint16_t *chunk = malloc((size_t)CHUNK * sizeof(*chunk));
    if (!chunk) {
        die("no memory");
    }
    for (int shard = 0, id = 0; shard < c->n_shards; shard++) {
        char name[NAME_BYTES];
        shard_name(c, shard, name);
        FILE *file = open_file(c, name);
        setvbuf(file, NULL, _IONBF, 0); /* chunks are large already */
        write_header(c, shard, name, file);
        for (; id < c->n && c->tensor[id].shard == shard; id++) {
            write_tensor(c, id, name, file, chunk);
        }
        close_file(c, name, file);
    }
    free(chunk);
}

static void write_index(const checkpoint *c)
{
    static const char name[] = "model.safetensors.index.json";
    if (c->n_shards == 1) {
        return;
    }
    FILE *file = open_file(c, name);
    fprintf(file, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":{", c->total_bytes);
    for (int i = 0; i < c->n; i++) {
        char shard[NAME_BYTES];
        shard_name(c, c->tensor[i].shard, shard);
        fprintf(file, "%s\n\"%s\":\"%s\"", i ? "," : "", c->tensor[i].name, shard);
    }
    fputs("\n}}\n", file);
    close_file(c, name, file);
}

static void write_config(const checkpoint *c)
{
    const shape *s = &c->s;
    FILE *file = open_file(c, "config.json");
    fprintf(file,
            "{\n \"architectures\": [\"%s\"],\n \"model_type\": \"%s\",\n \"hidden_size\": %" PRId64
            ",\n \"vocab_size\": %" PRId64 ",\n \"num_hidden_layers\": %" PRId64
            ",\n \"num_attention_heads\": %" PRId64 ",\n \"num_key_value_heads\": %" PRId64
            ",\n \"intermediate_size\": %" PRId64 ",\n \"moe_intermediate_size\": %" PRId64
            ",\n \"num_experts_per_tok\": %" PRId64 ",\n \"max_position_embeddings\": %" PRId64
            ",\n",
            s->is_mla ? "DeepseekV3ForCausalLM" : "Qwen3MoeForCausalLM",
            s->is_mla ? "deepseek_v3" : "qwen3_moe", s->H, s->V, s->L, s->Nq,
            s->is_mla ? s->Nq : s->Nkv, s->F_dense, s->F, s->K, s->context);
    if (s->is_mla) {
        fprintf(file,
                " \"n_routed_experts\": %" PRId64 ",\n \"n_shared_experts\": %" PRId64
                ",\n \"first_k_dense_replace\": %" PRId64
                ",\n \"moe_layer_freq\": 1,\n \"n_group\": %" PRId64 ",\n \"topk_group\": %" PRId64
                ",\n \"q_lora_rank\": %" PRId64 ",\n \"kv_lora_rank\": %" PRId64
                ",\n \"qk_nope_head_dim\": %" PRId64 ",\n \"qk_rope_head_dim\": %" PRId64
                ",\n \"v_head_dim\": %" PRId64
                ",\n \"topk_method\": \"noaux_tc\",\n \"scoring_func\": \"sigmoid\",\n"
                " \"routed_scaling_factor\": 2.5,\n \"num_nextn_predict_layers\": 0,\n",
                s->E, s->n_shared, s->n_dense, s->n_groups, s->n_groups_kept, s->q_rank, s->kv_rank,
                s->nope_dim, s->rope_dim, s->v_dim);
    } else {
        fprintf(file,
                " \"num_experts\": %" PRId64 ",\n \"head_dim\": %" PRId64
                ",\n \"decoder_sparse_step\": 1,\n \"mlp_only_layers\": [],\n",
                s->E, s->D);
    }
    fprintf(
        file,
        " \"norm_topk_prob\": true,\n \"hidden_act\": \"silu\",\n \"rms_norm_eps\": 1e-06,\n"
        " \"rope_theta\": 10000.0,\n \"attention_bias\": false,\n \"tie_word_embeddings\": false,\n"
        " \"bos_token_id\": %d,\n \"eos_token_id\": %d,\n \"torch_dtype\": \"bfloat16\"\n}\n",
        BOS_ID, EOS_ID);
    close_file(c, "config.json", file);
}

static void write_generation(const checkpoint *c)
{
    FILE *file = open_file(c, "generation_config.json");
    fprintf(file, "{\"bos_token_id\": %d, \"eos_token_id\": %d, \"do_sample\": false}\n", BOS_ID,
            EOS_ID);
    close_file(c, "generation_config.json", file);
}

/* The character that stands for a byte in byte-level vocabularies: itself where it prints, else
 * 256, 257, ... in order. */
static unsigned byte_character(unsigned byte)
{
    unsigned next = 256;
    for (unsigned b = 0; b < N_BYTES; b++) {
        bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte) {
            return prints ? b : next;
        }
        next += prints ? 0 : 1;
    }
    return 0;
}

/* Every byte is a token; nothing is merged. */
static void write_tokenizer(const checkpoint *c)
{
    static const char name[] = "tokenizer.json";
    static const char *const special[] = {"<|begin_of_text|>", "<|end_of_text|>"};
    FILE *file = open_file(c, name);
    fputs("{\n\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[", file);
    for (int i = 0; i < 2; i++) {
        fprintf(file,
                "%s\n{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                "\"rstrip\":false,"
                "\"normalized\":false,\"special\":true}",
                i ? "," : "", BOS_ID + i, special[i]);
    }
    fputs("],\n\"normalizer\":null,\n\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_"
          "space\":false,"
          "\"trim_offsets\":true,\"use_regex\":true},\n\"post_processor\":null,\n"
          "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
          "\"use_regex\":true},\n"
          "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_"
          "prefix\":null,"
          "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"merges\":[],"
          "\n\"vocab\":{",
          file);
    for (unsigned b = 0; b < N_BYTES; b++) {
        unsigned u = byte_character(b);
        fprintf(file, "%s\"", b ? "," : "");
        if (u < 0x80) {
            fprintf(file, "%s%c", u == '"' || u == '\\' ? "\\" : "", (int)u);
        } else {
            fprintf(file, "%c%c", (int)(0xc0 | u >> 6), (int)(0x80 | (u & 0x3f)));
        }
        fprintf(file, "\":%u", b);
    }
    fputs("}}\n}\n", file);
    close_file(c, name, file);
}

/* ---- command line ---- */

static _Noreturn void usage(int code)
{
    FILE *out = code ? stderr : stdout;
    fputs("usage: make_model --shape NAME --out DIR [--layers N] [--seed N]\n", out);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        fprintf(out, "  %-10s %s\n", shapes[i].name, shapes[i].note);
    }
    exit(code);
}

static int64_t number(const char *option, const char *text, int64_t min, int64_t max)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max) {
        fprintf(stderr, "make_model: %s %s: not a number from %" PRId64 " to %" PRId64 "\n", option,
                text, min, max);
        usage(2);
    }
    return value;
}

static const shape *find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (name && strcmp(shapes[i].name, name) == 0) {
            return &shapes[i];
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static checkpoint c = {.seed = 1};
    const char *name = NULL;
    int64_t layers = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            usage(0);
        }
        if (i + 1 >= argc) {
            usage(2);
        }
        const char *option = argv[i], *value = argv[++i];
        if (strcmp(option, "--shape") == 0) {
            name = value;
        } else if (strcmp(option, "--out") == 0) {
            c.dir = value;
        } else if (strcmp(option, "--layers") == 0) {
            layers = number(option, value, 1, 1000);
        } else if (strcmp(option, "--seed") == 0) {
            c.seed = (uint64_t)number(option, value, 0, INT64_MAX);
        } else {
            usage(2);
        }
    }
    const shape *found = find_shape(name);
    if (!found || !c.dir) {
        usage(2);
    }
    c.s = *found;
    c.s.L = layers ? layers : c.s.L;
    if (mkdir(c.dir, 0777) != 0 && errno != EEXIST) {
        die("%s cannot be made: %s", c.dir, strerror(errno));
    }
    make_quantiles(c.quantile);
    list_tensors(&c);
    place_tensors(&c);
    write_shards(&c);
    write_index(&c);
    write_tokenizer(&c);
    write_generation(&c);
    write_config(&c); /* last: what was cut short is no checkpoint */
    printf("%s: shape %s, %" PRId64 " layers, %d tensors, %.2f GB in %d file%s\n", c.dir, c.s.name,
           c.s.L, c.n, (double)c.total_bytes / 1e9, c.n_shards, c.n_shards == 1 ? "" : "s");
    free(c.tensor);
    return 0;
}
