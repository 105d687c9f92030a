/* make_model.h - what the files of make-model share: shapes, the list of tensors, numbers, and the
 * two containers. */
#ifndef MAKE_MODEL_H
#define MAKE_MODEL_H
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- shapes.c ---- */

/* What a shape may say; sizes in elements. L counts decoder layers. */
typedef struct mm_shape {
    const char *name, *note;
    int64_t is_mla; /* latent attention and the sigmoid router of DeepSeek-V3; else Qwen3-MoE */
    int64_t L, n_dense, H, V, context;
    int64_t E, K, F, n_shared, F_dense; /* n_shared experts of width F; dense layers come first */
    int64_t n_groups, n_groups_kept;
    int64_t Nq, Nkv, D;                                 /* Qwen3: heads and head width */
    int64_t q_rank, kv_rank, nope_dim, rope_dim, v_dim; /* latent */
    int64_t n_mtp;                                      /* latent: 0 or 1 */
} mm_shape;
const mm_shape *mm_shape_find(const char *name);
/* Sets the field that `text` ("experts=64") names. NULL, or what is wrong. */
const char *mm_shape_set(mm_shape *shape, const char *text);
/* NULL, or what no model can be. */
const char *mm_shape_fault(const mm_shape *shape);
void mm_shapes_print(FILE *out);

/* ---- list.c: the tensors of a checkpoint ---- */

typedef enum mm_filling { MM_WEIGHT, MM_EMBEDDING, MM_ONE, MM_ZERO } mm_filling;
typedef enum mm_weights { MM_BF16, MM_INT8, MM_INT4, MM_FP8 } mm_weights;
enum {
    MM_NAME_BYTES = 96,       /* the longest name takes 60 */
    MM_GROUP = 32,            /* inputs per scale of int8 and int4, as in GGUF's Q8_0 and Q4_0 */
    MM_BLOCK = 128,           /* rows and columns per scale of FP8, as DeepSeek stores it */
    MM_CHUNK_BYTES = 4 << 20, /* generated and written at once */
};

/* One matrix, or vector (cols = 0) of rows elements. */
typedef struct mm_tensor {
    char name[MM_NAME_BYTES];
    char stack[MM_NAME_BYTES]; /* name in GGUF, where the experts of a layer are one tensor: [E]
                                * of them; "" = not there */
    int64_t rows, cols;
    mm_filling fill;
    mm_weights weights; /* MM_BF16 unless quantised */
    bool is_f32;        /* in both containers: choice biases */
    bool is_f32_gguf;   /* norms and routers: GGUF readers want them so */
    bool is_latent_kv;  /* kv_b: [Nq][nope + v][rank]; two tensors in GGUF */
} mm_tensor;

typedef struct mm_model {
    mm_shape shape;
    uint64_t seed;
    mm_weights weights;
    const char *path;  /* a directory, or a GGUF file */
    mm_tensor *tensor; /* tensor[n]; experts of a layer in a row, gate, up, down each */
    int n, capacity;
    double quantile[1 << 12]; /* normal */
} mm_model;
void mm_list_tensors(mm_model *model);

/* ---- numbers.c ---- */

_Noreturn void mm_die(const char *format, ...);
void *mm_allocate(size_t bytes);
void mm_make_quantiles(mm_model *model);
uint16_t mm_bf16(float value);
uint16_t mm_f16(float value);       /* value normal in f16 */
float mm_f32_of_f16(uint16_t half); /* half normal */
/* Elements [begin, begin + n) of a tensor; begin is a multiple of 4. As bf16, or codes: signed
 * bytes for int8, int4 in -7..7, FP8 bytes. */
void mm_draw_bf16(const mm_model *model, int id, int64_t begin, int64_t n, uint16_t *out);
void mm_draw_codes(const mm_model *model, int id, int64_t begin, int64_t n, uint8_t *out);
/* Scale i of a quantised tensor, exact in f16; i counts groups row by row. */
float mm_scale(const mm_model *model, int id, int64_t i);

/* ---- containers: files.c, safetensors.c, gguf.c, tokenizer.c ---- */

typedef struct mm_out {
    FILE *file;
    char path[4096];
    uint64_t written;
} mm_out;
void mm_out_open(mm_out *out, const char *dir, const char *name); /* dir NULL: name is the path */
void mm_out_write(mm_out *out, const void *data, size_t bytes);
void mm_out_print(mm_out *out, const char *format, ...);
void mm_out_pad(mm_out *out, uint64_t to_multiple_of);
void mm_out_close(mm_out *out);

uint64_t mm_write_safetensors(const mm_model *model, int *n_files_out);
uint64_t mm_write_gguf(const mm_model *model);

/* Tokens: bytes, pairs of letters that merge, the two special ones, then unused ones up to V. */
enum {
    MM_N_BYTES = 256,
    MM_N_LETTERS = 26,
    MM_N_PAIRS = MM_N_LETTERS * MM_N_LETTERS,
    MM_BOS = MM_N_BYTES + MM_N_PAIRS,
    MM_EOS,
    MM_N_TOKENS
};
/* The token's text in byte-level spelling, UTF-8; text[32]. */
void mm_token_text(int64_t id, char *text);
void mm_write_tokenizer_json(const mm_model *model);

#endif
