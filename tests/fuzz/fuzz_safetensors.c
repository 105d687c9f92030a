/* fuzz_safetensors.c - weight files: the header of one file alone, and whole checkpoints with a
 * configuration, an index and quantised companions, whose rows are read where they open.
 *
 * Bound on memory: 8 MiB + 96 n. One stated tensor takes at least 45 bytes of header
 * ({"":{"dtype":"U8","shape":[0], "data_offsets":[0,0]}}) and an entry of some 120 bytes in a table
 * that doubles, its name, a slot, and a pointer to sort: below 16 n; a member that is a deep JSON
 * tree takes up to 48 bytes per byte of its text in the parser (a list of empty lists), and so does
 * the index with its names. Fixed: the table of inverse frequencies where a head is as wide as may
 * be stated, in double and in float, and the tables of a layer. */
#include "fuzz.h"
#include "model_internal.h"
#include "tutti/log.h"
#include <stdlib.h>
#include <string.h>

enum {
    PART_WEIGHTS,
    PART_CONFIG,
    PART_INDEX,
    PART_SECOND,
    PART_FILES,
    PART_HEADER = PART_FILES,
    PART_DATA,
    PARTS
};
/* A header and data stand for a model.safetensors, whose header's length is put before them: so a
 * change of the header's text leaves the rest of the file in its place. */
static const char *const names[PARTS] = {
    "model.safetensors",  "config.json", "model.safetensors.index.json",
    "second.safetensors", "header",      "data"};
enum { LENGTH_BYTES = 8 };
enum { FIXED_BYTES = 8 << 20, FACTOR = 96 };

/* What counts where the input brings no configuration: the shapes that the corpus has. */
static const char config[] =
    "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":1,\"hidden_size\":8,"
    "\"vocab_size\":6,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":4,\"num_experts\":2,\"num_experts_per_tok\":1,"
    "\"moe_intermediate_size\":4,\"intermediate_size\":4,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"norm_topk_prob\":true,"
    "\"tie_word_embeddings\":false,\"max_position_embeddings\":64,\"decoder_sparse_step\":1,\"mlp_only_layers\":[]}";

/* The header alone: what was accepted lies in the file and has the size of its shape. */
static void read_header(void)
{
    tti_file file;
    tti_table table = {0};
    if (tti_file_open(fuzz_folder(), names[PART_WEIGHTS], &file) != TT_OK) {
        return;
    }
    if (tti_safetensors_read(&file, 0, &table) == TT_OK) {
        uint64_t sum = 0;
        for (size_t i = 0; i < table.n; i++) {
            const tti_entry *entry = &table.entry[i];
            FUZZ_MUST(entry->bytes <= file.bytes && entry->offset <= file.bytes - entry->bytes);
            FUZZ_MUST(tti_table_find(&table, entry->name) == entry);
            sum += entry->bytes;
        }
        FUZZ_MUST(sum <= file.bytes);
        tti_table_fini(&table);
    }
    tti_file_close(&file);
}

/* The file of a header and data; free() it. */
static uint8_t *join(const fuzz_part *header, const fuzz_part *data, size_t *n_out)
{
    *n_out = LENGTH_BYTES + header->n + data->n;
    uint8_t *file = malloc(*n_out);
    FUZZ_MUST(file);
    for (size_t i = 0; i < LENGTH_BYTES; i++) {
        file[i] = (uint8_t)(header->n >> (8 * i));
    }
    memcpy(file + LENGTH_BYTES, header->data, header->n);
    if (data->n > 0) {
        memcpy(file + LENGTH_BYTES + header->n, data->data, data->n);
    }
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_part part[PARTS];
    fuzz_split(data, n, names, PARTS, part);
    if (!part[PART_CONFIG].data) {
        part[PART_CONFIG] = (fuzz_part){(const uint8_t *)config, sizeof(config) - 1};
    }
    uint8_t *joined = NULL;
    if (part[PART_HEADER].data) {
        size_t n_joined;
        joined = join(&part[PART_HEADER], &part[PART_DATA], &n_joined);
        part[PART_WEIGHTS] = (fuzz_part){joined, n_joined};
    }
    for (int k = 0; k < PART_FILES; k++) {
        fuzz_write(names[k], &part[k]);
    }
    tt_log_set_level(TT_LOG_ERROR);
    fuzz_memory_begin(FIXED_BYTES, FACTOR, n);
    read_header();
    fuzz_open_model(fuzz_folder());
    fuzz_memory_end();
    free(joined);
    return 0;
}
