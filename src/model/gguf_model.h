/* gguf_model.h - a GGUF file as a model: which files, which configuration, which tensors, which
 * tokenizer.
 *
 * The metadata keys become the configuration object that a family of Hugging Face's keys reads, the
 * tensor table becomes one of tti_checkpoint's, and the family's names are exchanged for GGUF's. So
 * an architecture is described once, whatever its files.
 * Threads: set-up only. MPI: none. */
#ifndef TUTTI_SRC_MODEL_GGUF_MODEL_H
#define TUTTI_SRC_MODEL_GGUF_MODEL_H
#include "gguf.h"

/* ---- gguf_files.c ---- */

/* If path is a GGUF file, or a directory whose model is one: the path of its first part, which the
 * caller frees. *first_out = NULL: it is neither. A file counts if its name ends in .gguf or it
 * begins with the magic; a directory if it holds no safetensors weights but GGUF files of exactly
 * one model. Errors: TT_ERR_FILE if a directory holds several models or a part of a split model is
 * named so that its first part cannot be found; TT_ERR_NOMEM. */
tt_status tti_gguf_locate(const char *path, char **first_out);

/* A GGUF model: the header of its first part, and all parts as a checkpoint. All-zero is empty. */
typedef struct tti_gguf_model {
    tti_gguf_header header; /* of file 0 */
    tti_checkpoint checkpoint;
} tti_gguf_model;
/* Opens the first part and those that follow it. Errors: TT_ERR_FILE, TT_ERR_UNSUPPORTED,
 * TT_ERR_IO, TT_ERR_NOMEM. */
tt_status tti_gguf_model_open(const char *first, tti_gguf_model *model_out);
void tti_gguf_model_fini(tti_gguf_model *model);

/* ---- gguf_config.c ---- */

/* What the container adds to what a family's own configuration says. */
typedef struct tti_gguf_facts {
    bool interleaved; /* rows of q and k are permuted so that the rotary embedding pairs
                       * neighbours */
    bool mla_split;   /* latent attention: KV_B lies as MLA_K and MLA_V */
} tti_gguf_facts;
/* Makes the configuration object of the metadata. Owner: the caller, json_decref.
 * Errors: TT_ERR_FILE naming the key, TT_ERR_UNSUPPORTED naming an unknown architecture or a key
 * whose value is not computed. */
tt_status tti_gguf_config(const tti_gguf_model *model, json_t **config_out,
                          tti_gguf_facts *facts_out);

/* ---- gguf_generation.c ---- */

/* general.sampling.*; a field that is not stated is NaN or -1. */
tt_status tti_gguf_generation(const tti_gguf *gguf, tt_generation *generation_out);

/* ---- gguf_names.c ---- */

/* The family with GGUF's names and views. */
tti_family tti_gguf_family(const tti_family *family, const tti_table *table, const tt_arch *arch);

/* ---- gguf_tokenizer.c ---- */

/* In the directory of a packed checkpoint: a GGUF file without tensors that has the keys of the
 * tokenizer. */
#define TTI_GGUF_TOKENIZER "tokenizer.gguf"

/* What the metadata say of the tokenizer. Owned parts: token, type, score, merge. Strings are views
 * of the header's buffer. */
tt_status tti_gguf_vocabulary_read(const tti_gguf *gguf, tti_gguf_vocabulary *vocabulary_out);
void tti_gguf_vocabulary_fini(tti_gguf_vocabulary *vocabulary);
/* The tokenizer of a GGUF file (its first part). */
tt_status tti_gguf_tokenizer(const char *first, tt_tokenizer **tokenizer_out);
/* True if the file lists tokens. */
tt_status tti_gguf_has_tokenizer(const char *first, bool *has_out);
/* Adds the ids that end a turn, as the vocabulary says, to the list "eos_token_id" of a
 * configuration. No tokenizer is built for it. */
tt_status tti_gguf_add_stop_ids(const tti_gguf *gguf, json_t *config);

#endif
