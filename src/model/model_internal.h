/* model_internal.h - what the files of the model room share: files, JSON, the tensor table, the
 * description of an architecture family, and the body of tt_model.
 *
 * The way of an open: config.json -> family (arch.c) -> tti_hyper (config.c) -> weight files
 * (checkpoint.c) -> tti_table of all tensors (table.c) -> one tt_tensor per role, layer and expert
 * (roles.c). After that the table is dropped; only the resolved tensors, their names and the open
 * files stay. Threads: set-up only, except tti_file_read. MPI: none. */
#ifndef TUTTI_MODEL_INTERNAL_H
#define TUTTI_MODEL_INTERNAL_H
#include <jansson.h>
#include "tutti/model.h"
#include "quantization.h"

/* ---- file.c ---- */

/* A regular file, open for reading. Owned parts: path, fd. */
typedef struct tti_file {
    char *path;
    int fd; /* -1: closed */
    uint64_t bytes;
} tti_file;

/* What an errno of open or stat means: TT_ERR_FILE where another path or other permissions would
 * help, TT_ERR_IO else. */
tt_status tti_file_error_code(int error);
/* Opens DIR/NAME. Errors: TT_ERR_FILE if it is absent, forbidden or not a regular file, TT_ERR_IO
 * else. */
tt_status tti_file_open(const char *dir, const char *name, tti_file *file_out);
void tti_file_close(tti_file *file);
/* True if DIR/NAME is there (of whatever kind). */
bool tti_file_exists(const char *dir, const char *name);
/* Reads bytes [offset, offset + n) whatever their number. Thread: any.
 * Errors: TT_ERR_IO, TT_ERR_FILE if the file ends before. */
tt_status tti_file_read(const tti_file *file, uint64_t offset, void *dst, size_t n);
/* Tells the system that the range will be read soon. Thread: any. */
void tti_file_will_need(const tti_file *file, uint64_t offset, size_t n);
/* True if the first n bytes are those of a Git LFS pointer instead of the file itself. */
bool tti_file_is_pointer(const char *bytes, size_t n);

/* Names from files are hostile: too long, or with line breaks. This is a copy fit for a message. */
enum { TTI_SHOWN_BYTES = 160 };
typedef struct tti_shown {
    char text[TTI_SHOWN_BYTES];
} tti_shown;
tti_shown tti_show(const char *name);
/* The last bytes of a path, few enough that a message has room for more. */
const char *tti_show_path(const char *path);

/* ---- json.c ---- */

/* Parses n bytes of JSON; duplicate keys are refused. The value must be an object. `what` names the
 * text in messages. Errors: TT_ERR_FILE with the place of the fault. Owner: the caller,
 * json_decref. */
tt_status tti_json_parse(const char *what, const char *text, size_t n, json_t **root_out);
/* The same for the file DIR/NAME of at most max_bytes. */
tt_status tti_json_load(const char *dir, const char *name, uint64_t max_bytes, json_t **root_out);

typedef enum tti_key_type {
    TTI_KEY_INT,    /* int64_t */
    TTI_KEY_REAL,   /* double */
    TTI_KEY_FLOAT,  /* float */
    TTI_KEY_BOOL,   /* bool */
    TTI_KEY_STRING, /* const char *, borrowed from the JSON value */
    TTI_KEY_END
} tti_key_type;
enum { TTI_KEY_SPELLINGS = 4 };
typedef enum tti_key_flags {
    TTI_KEY_OPTIONAL = 0, /* absent or null: the fallback */
    TTI_KEY_REQUIRED = 1,
    TTI_KEY_NULL_IS_ZERO = 2, /* null is a value of its own: none */
} tti_key_flags;

/* How one key of a JSON object becomes one field of a struct. Rows end with type TTI_KEY_END. */
typedef struct tti_key {
    tti_key_type type;
    unsigned flags;
    const char
        *name[TTI_KEY_SPELLINGS]; /* all mean the same; if several are there they must agree */
    size_t offset;                /* of the field */
    double fallback;
    double min, max;  /* numbers that are stated must lie in [min, max] */
    const char *text; /* fallback of a string */
} tti_key;

#define TTI_KEYS_END                                                                               \
    {                                                                                              \
        .type = TTI_KEY_END                                                                        \
    }

/* Fills the fields of `values` from object. Errors: TT_ERR_FILE naming `what` and the key. */
tt_status tti_json_fill(const char *what, const json_t *object, const tti_key *keys, void *values);

/* ---- rope.c ---- */

/* rope_theta and rope_scaling, or rope_parameters, as stated. NaN in a real field: not stated. */
/* The key beside rope_theta of attention_scale; no published configuration has it, gguf_rope.c
 * writes it. */
#define TTI_ROPE_SCALE_KEY "rope_attention_scale"

typedef struct tti_rope_keys {
    const char *type; /* "default", ... borrowed from the JSON value */
    double theta, factor, attention_factor, partial_rotary_factor;
    double beta_fast, beta_slow, mscale, mscale_all_dim;
    double low_freq_factor, high_freq_factor;
    double alpha;                     /* dynamic: theta grows by alpha^(d/(d-2)) whatever the
                                       * length (HunYuan) */
    double short_mscale, long_mscale; /* longrope: instead of attention_factor (Phi-3.5-MoE) */
    const json_t *short_factor, *long_factor; /* longrope: a number for each pair; borrowed */
    double attention_scale;   /* multiplies the factor of sine and cosine that the type gives;
                               * GGUF */
    int64_t original_context; /* 0: not stated */
    bool truncate;
} tti_rope_keys;

/* Reads both spellings of a configuration. Errors: TT_ERR_FILE, TT_ERR_UNSUPPORTED for an unknown
 * type, naming `what`. */
tt_status tti_rope_parse(const char *what, const json_t *config, double default_theta,
                         tti_rope_keys *keys_out);
/* Computes the table of a rotary embedding over dim components (even). context:
 * max_position_embeddings. Owner: rope_out->inv_freq is the caller's, free(). */
tt_status tti_rope_build(const char *what, const tti_rope_keys *keys, int64_t dim, bool interleaved,
                         int64_t context, tt_rope *rope_out);
/* How many positions the model is for: max_position_embeddings (*context comes in as that), or what
 * YaRN stretches the original context to, if that is more; the other types state the whole there.
 * Errors: TT_ERR_FILE if it is absurd. */
tt_status tti_rope_extend(const char *what, const tti_rope_keys *keys, int64_t *context);
/* What YaRN's mscale_all_dim multiplies the softmax scale of latent attention with: m^2; 1 if not
 * stated. */
double tti_rope_softmax_factor(const tti_rope_keys *keys);

/* ---- table.c ---- */

/* Strings that live as long as the model, packed in chunks. All-zero is empty. */
typedef struct tti_names {
    struct tti_names_chunk *last;
} tti_names;
/* A copy of text; NULL if memory is short. */
const char *tti_names_add(tti_names *names, const char *text);
void tti_names_fini(tti_names *names);

enum { TTI_MAX_DIMS = 4 }; /* that we remember; no tensor that we use has more */
typedef struct tti_dtype_info {
    const char *name; /* as the file's format spells it */
    unsigned bits;    /* of one element; 0: elements come in blocks */
    bool is_known;    /* type says what an element is */
    ttk_dtype type;
    const struct tti_block_type *block; /* blocks.h; NULL outside GGUF */
} tti_dtype_info;

/* One tensor of a weight file. */
typedef struct tti_entry {
    const char *name;
    const tti_dtype_info *dtype;
    int n_dims;                /* may be above TTI_MAX_DIMS: then dim holds the first ones */
    int64_t dim[TTI_MAX_DIMS]; /* >= 0; the product of all that are not 0 is an int64_t */
    int file_id;
    uint64_t offset, bytes; /* from the start of the file */
    bool found;             /* false: the index lists it, its file was not read yet */
    bool claimed;           /* some role, or what goes with it, was looked up here (claims.c) */
} tti_entry;

/* All tensors of a checkpoint by name. The hash is keyed with a number that a file's author cannot
 * know, so made-up names cannot make it slow. All-zero is empty. Names are owned by `names`.
 * Invariant: slot[i] is 0 (free) or 1 + an index into entry; n < n_slots / 2. */
typedef struct tti_table {
    tti_entry *entry; /* entry[n] */
    size_t n, capacity;
    uint32_t *slot; /* slot[n_slots], n_slots a power of two */
    size_t n_slots;
    uint32_t key;
    tti_names names;
    char *panels; /* what the metadata say of packed panels (panels.h); NULL: nothing. Owned */
} tti_table;
/* Adds a copy of entry, whose name must not be there yet. Pointers to other entries become invalid.
 */
tt_status tti_table_add(tti_table *table, const tti_entry *entry);
tti_entry *tti_table_find(const tti_table *table, const char *name);
void tti_table_fini(tti_table *table);

/* ---- safetensors.c ---- */

/* Reads the header of one file into an empty table, checked: the tensors' ranges tile the data
 * area. */
tt_status tti_safetensors_read(const tti_file *file, int file_id, tti_table *table_out);

/* ---- checkpoint.c ---- */

/* The weight files of a directory: model.safetensors, or the shards that
 * model.safetensors.index.json names. `source` is the file whose word counts for what is there.
 * All-zero is empty. */
typedef struct tti_checkpoint {
    tti_file *file; /* file[n_files] */
    int n_files;
    tti_table table;
    char *source;
    tti_quantization quantization;
} tti_checkpoint;
tt_status tti_checkpoint_open(const char *dir, tti_checkpoint *checkpoint_out);
void tti_checkpoint_fini(tti_checkpoint *checkpoint);

/* What lies in one buffer begins at lines of the cache: bytes rounded up to them. */
static inline size_t tti_round_to_line(size_t bytes)
{
    return (bytes + TT_CACHE_LINE - 1) / TT_CACHE_LINE * TT_CACHE_LINE;
}

/* ---- source.c ---- */

/* How the numbers of a matrix are spread over files. */
typedef enum tti_scheme {
    TTI_SCHEME_PLAIN,  /* elements of one type, in TTI_PART_CODE */
    TTI_SCHEME_BLOCKS, /* rows of whole blocks of the type `block`, in TTI_PART_CODE */
    TTI_SCHEME_QUANT,  /* codes and scales, perhaps zero points, each a part of its own */
    TTI_SCHEME_PANELS, /* packed as in memory, in TTI_PART_CODE: a line is a panel */
    TTI_SCHEME_MADE    /* in no file: made_rows.c makes them; no parts */
} tti_scheme;
/* What becomes of each number of a vector after reading. */
typedef enum tti_map { TTI_MAP_NONE, TTI_MAP_PLUS_ONE, TTI_MAP_EXP, TTI_MAP_NEGATE } tti_map;
void tti_map_apply(tti_map map, float *x, int64_t n);

/* What shares a word of a file: nothing, neighbouring inputs (or groups), or neighbouring
 * outputs. */
typedef enum tti_packing { TTI_PACKING_NONE, TTI_PACKING_INPUTS, TTI_PACKING_OUTPUTS } tti_packing;

/* An array of a matrix in a range of a file: planes of lines[lines][words], words of word_bytes
 * that hold word_bytes * 8 / bits elements, first in the lowest bits (unless awq). A line belongs
 * to an output (or as many as a word packs) and its words to inputs, or, if transposed, a line to
 * inputs and its words to outputs. */
typedef struct tti_part {
    int file_id;
    uint64_t offset, bytes; /* bytes = 0: the matrix has no such part */
    int64_t lines, words;
    uint16_t word_bytes, bits;
    tti_packing packing;
    bool transposed;
    bool awq; /* outputs 0..7 of a word are its nibbles 0, 4, 1, 5, 2, 6, 3, 7 */
} tti_part;
enum {
    TTI_PART_CODE,
    TTI_PART_SCALE,
    TTI_PART_ZERO,
    TTI_PART_GROUPS, /* i32: the group of each input */
    TTI_PART_SHAPE,  /* i64: outputs, inputs */
    TTI_PARTS
};

/* `rows` rows of a matrix: of these, row r is output first + (r / run) * stride + r % run of a
 * plane. */
typedef struct tti_segment {
    int64_t rows, first, run, stride;
} tti_segment;
enum { TTI_SEGMENTS = 3 };

/* What the numbers of a made tensor are (made_rows.c). */
typedef struct tti_made {
    uint64_t key;   /* another for each tensor */
    bool is_random; /* else all of them are `constant` */
    float constant;
    int exponent;      /* plain: magnitudes are in [1, 2) * 2^exponent */
    uint32_t scale[4]; /* quantised: the bits of the scales */
} tti_made;

/* Where a matrix lies, and the view of it that the matrix is. The file holds planes (one for each
 * expert where they lie together) of [file_rows][file_cols], rows being outputs, or inputs if
 * transposed. The matrix is the segments one after another. Made by tti_source_make for the whole;
 * roles.c narrows it. */
typedef struct tti_source {
    tti_scheme scheme;
    ttk_format format;                  /* of the numbers that are read */
    const struct tti_block_type *block; /* of TTI_SCHEME_BLOCKS */
    const char *name;                   /* of the tensor; owned by the names of the checkpoint */
    tti_part part[TTI_PARTS];
    int64_t plane, file_rows, file_cols;
    tti_segment segment[TTI_SEGMENTS];
    int n_segments;
    bool transposed; /* of TTI_SCHEME_PLAIN only; the parts of others have their own */
    tti_map map;
    /* Of TTI_SCHEME_QUANT: */
    ttk_format stored;      /* as it lies in the files; format differs where packed panels cannot
                             * keep it */
    int64_t plane_rows;     /* outputs in a plane of the parts */
    int64_t scale_rows;     /* outputs that share a scale; of TTI_SCHEME_PANELS: that shared one
                             * where it was quantised, */
    int64_t scale_first;    /* and which of them output 0 was */
    unsigned char flip;     /* xor of codes and zero points: signed bytes for unsigned ones */
    unsigned char zero_add; /* to a zero point, modulo 2^bits */
    bool zeros_even;        /* all zero points must be the middle of the range: the format has
                             * none */
    tti_made made;          /* of TTI_SCHEME_MADE */
} tti_source;
/* The output of the plane that is row r of the matrix; *left_out (may be NULL): so many rows from r
 * on follow each other there. */
int64_t tti_source_row(const tti_source *source, int64_t r, int64_t *left_out);

/* ---- source_make.c ---- */

/* Finds what is stored under the name of a tensor, in whatever scheme (a scheme may replace the
 * name's ending), and its shape as if it were stored plainly: dims[n_dims], outputs before inputs.
 * *n_dims_out = 0: the checkpoint has no such tensor. The caller sets plane, file_rows, ... from
 * the shape that it expects. Errors: TT_ERR_FILE, TT_ERR_UNSUPPORTED naming file and tensor. */
tt_status tti_source_make(const tti_checkpoint *checkpoint, const char *name,
                          tti_source *source_out, int64_t dims[TTI_MAX_DIMS], int *n_dims_out);

/* ---- arch.c, arch_*.c (what descriptions are written with: arch.h) ---- */

/* What a family's keys are read into; finish() makes tt_arch of it. */
typedef struct tti_hyper {
    tt_arch arch;
    const char *what;     /* the configuration file, for messages */
    json_t *root;         /* all of it */
    const json_t *config; /* the object that holds the family's keys; borrowed from root */
    double scale;         /* routed_scaling_factor */
    bool norm_topk;
    bool attention_bias, mlp_bias;
    int64_t n_shared;          /* shared experts; their width is n_shared * F */
    int64_t first_dense;       /* layers below are dense */
    int64_t last_moe;          /* layers above are dense (ERNIE) */
    int64_t moe_every;         /* moe_layer_freq, decoder_sparse_step */
    int64_t n_nextn;           /* MTP layers that the configuration states */
    int64_t sliding_window;    /* 0 = none */
    bool use_sliding_window;   /* false: sliding_window counts for nothing */
    int64_t max_window_layers; /* where layers are not typed: those from here on slide (Qwen3),
                                * or those below (Qwen2) */
    int64_t rotary_dim;        /* 0: partial_rotary_factor says */
    int64_t chunk;             /* attention_chunk_size; 0 = none */
    int64_t layer_interval;    /* every so many layers one is of another kind (Llama-4,
                                * Qwen3-Next) */
    bool scale_queries;
    bool use_qk_norm;
    bool rope_interleaved;
    double attention_multiplier; /* instead of 1 / sqrt(D); 0 = none */
    const char *topk_method, *scoring;
    const json_t *layer_types; /* borrowed: a name for each layer; NULL: not stated */
    tti_rope_keys rope;
    tti_quantization quantization;
} tti_hyper;

enum { TTI_SPELLINGS = 3 };
/* Pairs of a gate and an up matrix that may lie in one tensor. */
typedef enum tti_pair {
    TTI_PAIR_DENSE,
    TTI_PAIR_EXPERT,
    TTI_PAIR_EXPERT_BIAS,
    TTI_PAIR_SHARED,
    TTI_PAIR_COUNT
} tti_pair;
/* Names of tensors, each with its spellings; %L stands for the layer and %E for the expert. The
 * name of an expert's role without %E is a tensor of all experts, [E] planes. */
typedef struct tti_tensor_names {
    const char *role[TT_ROLE_COUNT][TTI_SPELLINGS];
    /* Where the roles' own tensors are absent: gate and up in one, [2F][H]; the gate's rows first,
     * or row by row in turns. */
    const char *pair[TTI_PAIR_COUNT][TTI_SPELLINGS];
    bool pairs_in_turns;
    bool transposed; /* planes of all experts, stored plainly, are [inputs][outputs] */
} tti_tensor_names;

/* Which part of a tensor a role is: segments of the rows of [file_rows][...], and what becomes of
 * each number. */
typedef struct tti_view {
    int64_t file_rows;
    tti_segment segment[TTI_SEGMENTS];
    int n_segments;
    tti_map map;
} tti_view;

/* A key that only one value is computed of: any other is refused, unless the family reads the key.
 * Absent and null are well. */
typedef struct tti_only {
    const char *key;
    const char *value; /* JSON; NULL: finish() sees to it */
} tti_only;
/* What almost all checkpoints call them; which of them a model has its tt_arch says. */
extern const tti_tensor_names tti_common_tensors;
extern const tti_only tti_common_only[];
#define TTI_LAYER "model.layers.%L."

/* One architecture family, as data. In names, %L stands for the layer and %E for the expert. */
typedef struct tti_family {
    const char *const *architectures; /* accepted config "architectures", NULL-ended */
    const char *const *model_types;   /* accepted config "model_type", NULL-ended */
    const char *nested;               /* the object of config.json that holds the keys, if it is
                                       * there; NULL: the whole */
    const char *prefix;               /* of tensor names, where the checkpoint has it; NULL: none */
    double rope_theta;                /* where the configuration states none */
    double partial_rotary;            /* the same; 0 = all of a head, and no other is accepted */
    const char *const *layer_types;   /* accepted in "layer_types", NULL-ended; NULL:
                                       * full_attention only */
    const tti_only *only;             /* besides tti_common_only, and before it; ended by a NULL
                                       * key; NULL: none */
    const tti_key *keys;              /* config keys -> tti_hyper */
    /* What is not one to one: defaults that depend on other keys, refusals. */
    tt_status (*finish)(tti_hyper *hyper);
    bool (*layer_is_moe)(const tti_hyper *hyper, int64_t layer);
    /* Whatever else differs by layer; *layer comes with is_moe set and plain attention. NULL:
     * nothing. */
    void (*set_layer)(const tti_hyper *hyper, int64_t id, tt_layer *layer);
    /* Names that differ from tti_common_tensors; where a row is empty the common one counts. */
    tti_tensor_names tensors;
    /* Roles that are not a whole tensor; *view comes in as the whole. NULL: none. */
    void (*view)(const tt_arch *arch, tt_role role, tti_view *view);
    const char *mtp_probe; /* a tensor that each MTP layer has; NULL: the family has none */
} tti_family;

/* Finds the family of a configuration and the architecture's name there (borrowed).
 * Errors: TT_ERR_FILE, TT_ERR_UNSUPPORTED naming an unknown architecture. */
tt_status tti_family_find(const char *what, const json_t *config, const tti_family **family_out,
                          const char **name_out);

/* Limits on what a configuration may state; far above any model, low enough that no product of
 * three of them times an element size overflows. */
enum {
    TTI_MAX_LAYERS = 10000,
    TTI_MAX_WIDTH = 1 << 20, /* hidden and inner widths, ranks, heads, head widths */
    TTI_MAX_EXPERTS = 1 << 16,
    TTI_MAX_VOCABULARY = 1 << 26,
    TTI_MAX_CONTEXT = 1 << 30
};

/* ---- config.c ---- */

enum { TTI_CONFIG_BYTES = 16 << 20 }; /* largest config.json; real ones are below 100 kB */
/* Reads DIR/config.json. hyper_out->root must be given to json_decref by the caller,
 * hyper_out->arch.rope.inv_freq and .long_inv_freq to free. `what` is the file's path and must
 * outlive hyper. */
tt_status tti_config_read(const char *dir, const char *what, const tti_family **family_out,
                          tti_hyper *hyper_out);
/* The same of an object that is there already, and which is taken over, whatever comes of it. */
tt_status tti_config_take(const char *what, json_t *root, const tti_family **family_out,
                          tti_hyper *hyper_out);
/* generation_config.json (may be absent) and the end ids of both files. Owner: *ids_out is the
 * caller's. */
tt_status tti_config_read_generation(const char *dir, const tti_hyper *hyper,
                                     tt_generation *generation_out, int32_t **ids_out,
                                     size_t *n_ids_out);

/* ---- roles.c, model.c ---- */

enum {
    TTI_N_GLOBAL_ROLES = TT_ROLE_ATTENTION_NORM,
    TTI_N_EXPERT_MATRICES = TT_ROLE_EXPERT_DOWN - TT_ROLE_EXPERT_GATE + 1,
    TTI_N_EXPERT_ROLES = TT_ROLE_EXPERT_DOWN_BIAS - TT_ROLE_EXPERT_GATE + 1
};

/* A role's tensor and where it lies; tensor.source points to source (set when the tensor is asked
 * for). */
typedef struct tti_resolved {
    tt_tensor tensor;
    tti_source source;
} tti_resolved;

struct tt_model {
    char *path;
    char *name; /* arch.name */
    tt_arch arch;
    tti_file *file; /* file[n_files] */
    int n_files;
    tti_names names; /* of tensors */
    tti_resolved global[TTI_N_GLOBAL_ROLES];
    tti_resolved *layer[TT_ROLE_COUNT]; /* layer[role][L + n_mtp]; NULL for global and expert
                                         * roles */
    tti_resolved **expert; /* expert[L + n_mtp], each [3 roles, or 6 with biases][E], or NULL in
                            * a dense layer */
    int32_t *end_ids;
    size_t n_end_ids;
    tt_generation generation;
};

/* Shape of a role's tensor in a layer (role_shapes.c); false if the architecture has none there.
 * vector_out: one dimension. */
bool tti_role_shape(const tt_arch *arch, tt_role role, int64_t layer, int64_t *rows_out,
                    int64_t *cols_out, bool *vector_out);
/* The names of a role in a family: its own, or the common ones; NULL-ended or TTI_SPELLINGS. */
const char *const *tti_role_names(const tti_family *family, tt_role role);
/* Gives the model its tables of n_layers layers (with MTP layers), empty, and fills arch.layer. */
tt_status tti_roles_set_layers(tt_model *model, const tti_family *family, const tti_hyper *hyper,
                               int64_t n_layers);
/* Sets arch.n_mtp and arch.layer and fills the tensors of all roles.
 * Errors: TT_ERR_FILE, TT_ERR_UNSUPPORTED naming file and tensor. */
tt_status tti_roles_resolve(tt_model *model, const tti_family *family, const tti_hyper *hyper,
                            const tti_checkpoint *checkpoint);

/* ---- claims.c ---- */

/* What is known once all roles are resolved. */
typedef struct tti_claims {
    const tti_family *family;
    const tti_checkpoint *checkpoint;
    const tt_arch *arch;
    const char *prefix;   /* of all names */
    const json_t *config; /* the family's keys */
    int64_t n_nextn;      /* MTP layers that the configuration states, as far as the family reads
                           * such a key */
} tti_claims;
/* Refuses a checkpoint with tensors that no role claimed and that might change results; says which
 * parts are not run.
 * Errors: TT_ERR_UNSUPPORTED naming file and the first such tensor; TT_ERR_IO. */
tt_status tti_claims_check(const tti_claims *claims);

#endif
