/* blocks.h - the types of numbers in a GGUF file: elements in blocks that carry their own scales.
 *
 * A row of a tensor is a run of whole blocks. A block is unpacked into codes, scales and shifts of
 * a ttk_format that gives exactly the numbers of the block's own formula; the table says which.
 * Source: the block layouts of GGML (ggml-common.h) and what its ggml-quants.c makes of them.
 * Threads: any. MPI: none. */
#ifndef TUTTI_SRC_MODEL_BLOCKS_H
#define TUTTI_SRC_MODEL_BLOCKS_H
#include "model_internal.h"

/* Where unpacked blocks go, block after block: each array goes on where the block before ended.
 * Rows are whole blocks and blocks whole groups, so several rows are just more blocks. Arrays that
 * the format has not are NULL. */
typedef struct tti_block_arrays {
    void *code;            /* code[n * elements], ttk_dtype_bytes each */
    void *scale;           /* scale[n * elements / group] */
    void *shift;           /* the same number */
    uint16_t *super_scale; /* f16, super_scale[n * elements / group / super] */
    uint16_t *super_shift; /* the same number */
} tti_block_arrays;

typedef struct tti_block_type {
    uint32_t id;               /* ggml_type in the file */
    int32_t elements;          /* of a block */
    int32_t bytes;             /* of a block */
    bool is_supported;         /* its numbers can be read; else only its name and size are known */
    ttk_format format;         /* of its numbers */
    int32_t n_halves, half[2]; /* where in a block its f16 numbers lie: they must be finite */
    /* Unpacks n blocks; NULL for a plain type (F32, F16, BF16), whose elements lie as they are. */
    void (*unpack)(const unsigned char *blocks, int64_t n, const tti_block_arrays *out);
    tti_dtype_info
        dtype; /* what tti_entry.dtype points to; dtype.name is the type's name ("Q4_K") */
} tti_block_type;

/* The type of an id; NULL: no such type is known. */
const tti_block_type *tti_block_type_find(uint32_t id);

#endif
