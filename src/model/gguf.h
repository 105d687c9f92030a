/* gguf.h - the GGUF container: metadata keys and the table of tensors, read from hostile bytes.
 *
 * A GGUF file is: magic, version, two counts, the keys with their values, the tensors' names,
 * shapes, types and places, padding, and the tensors' data. tti_gguf_parse reads all but the data
 * from a buffer that begins with the file's bytes; names, strings and arrays stay views of that
 * buffer. Nothing here knows what a key or a tensor means (gguf_config.c, gguf_names.c do).
 * Source: the GGUF specification, version 3; version 2 has the same layout.
 * Threads: any, one at a time per object. MPI: none. */
#ifndef TUTTI_SRC_MODEL_GGUF_H
#define TUTTI_SRC_MODEL_GGUF_H
#include "blocks.h"
#include "model_internal.h"
#include "tokenizer_gguf.h" /* tti_gguf_string */

typedef enum tti_gguf_type {
    TTI_GGUF_U8 = 0,
    TTI_GGUF_I8 = 1,
    TTI_GGUF_U16 = 2,
    TTI_GGUF_I16 = 3,
    TTI_GGUF_U32 = 4,
    TTI_GGUF_I32 = 5,
    TTI_GGUF_F32 = 6,
    TTI_GGUF_BOOL = 7,
    TTI_GGUF_STRING = 8,
    TTI_GGUF_ARRAY = 9,
    TTI_GGUF_U64 = 10,
    TTI_GGUF_I64 = 11,
    TTI_GGUF_F64 = 12
} tti_gguf_type;

enum { TTI_GGUF_DIMS = 4 };

/* One metadata key. The value is n elements of `type` at `bytes`, unaligned, little-endian, wholly
 * inside the buffer. */
typedef struct tti_gguf_key {
    tti_gguf_string name;
    tti_gguf_type type; /* of the value; of its elements if it is an array */
    bool is_array;
    uint64_t n; /* elements; 1 if it is no array */
    const unsigned char *bytes;
    uint64_t n_bytes;
} tti_gguf_key;

/* One tensor. dim[0] runs fastest in memory; dims that are not stated are 1. */
typedef struct tti_gguf_tensor {
    tti_gguf_string name;
    int n_dims;
    int64_t dim[TTI_GGUF_DIMS]; /* 0 in one of them: an empty tensor */
    const tti_block_type *type;
    uint64_t offset, bytes; /* from the start of the file; inside it, and no other tensor's */
} tti_gguf_tensor;

/* A parsed header. key and tensor are sorted by name, without doubles. All-zero is empty. */
typedef struct tti_gguf {
    const char *path; /* borrowed */
    uint32_t version;
    uint64_t alignment;
    uint64_t data_offset;
    tti_gguf_key *key;
    size_t n_keys;
    tti_gguf_tensor *tensor;
    size_t n_tensors;
} tti_gguf;

/* Parses the header at bytes[0, n) of a file of file_bytes >= n bytes. `path` is for messages.
 * bytes and path must outlive *gguf_out. If the header reaches beyond n and the file does not end
 * there, *short_out is true, TT_OK is returned and *gguf_out stays empty: come back with more
 * bytes.
 * Memory: less than 16 bytes per byte of the header. Errors: TT_ERR_FILE, TT_ERR_UNSUPPORTED,
 * TT_ERR_NOMEM; each names the path and the key or the tensor. Owner: the caller, tti_gguf_fini. */
tt_status tti_gguf_parse(const char *path, const void *bytes, size_t n, uint64_t file_bytes,
                         tti_gguf *gguf_out, bool *short_out);
void tti_gguf_fini(tti_gguf *gguf);

/* A name or a value fit for a message. */
tti_shown tti_gguf_show(tti_gguf_string string);

/* The key of a name; NULL if there is none. */
const tti_gguf_key *tti_gguf_find(const tti_gguf *gguf, const char *name);
const tti_gguf_tensor *tti_gguf_find_tensor(const tti_gguf *gguf, const char *name);

/* Element i of a key's value, i < key->n. Integers of any width are read as int64_t and real
 * numbers as double; a whole real number is no integer, an integer is a real number. False: the
 * type is another, or a u64 is above INT64_MAX. */
bool tti_gguf_int(const tti_gguf_key *key, uint64_t i, int64_t *value_out);
bool tti_gguf_real(const tti_gguf_key *key, uint64_t i, double *value_out);
/* A string that is no array, or a bool that is none; false: it is not. */
bool tti_gguf_text(const tti_gguf_key *key, tti_gguf_string *value_out);
bool tti_gguf_bool(const tti_gguf_key *key, bool *value_out);
/* All strings of an array: strings[key->n] is filled. False: it is no array of strings. */
bool tti_gguf_texts(const tti_gguf_key *key, tti_gguf_string *strings);

/* The header of an open file. Owned parts: buffer, gguf. */
typedef struct tti_gguf_header {
    void *buffer;
    tti_gguf gguf;
} tti_gguf_header;
/* Reads as much of file as its header takes. file->path must outlive *header_out. Errors: as
 * tti_gguf_parse, and TT_ERR_IO. */
tt_status tti_gguf_read(const tti_file *file, tti_gguf_header *header_out);
void tti_gguf_header_fini(tti_gguf_header *header);

#endif
