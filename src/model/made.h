/* made.h - weights that come from no file: numbers are made while they are read. Private to the
 * model room.
 * MPI: none. */
#ifndef TUTTI_SRC_MODEL_MADE_H
#define TUTTI_SRC_MODEL_MADE_H
#include "model_internal.h"

/* A shape by name: the text of its configuration. made_shapes.c, generated from models/configs;
 * ended by a NULL name. */
typedef struct tti_shape {
    const char *name, *config;
} tti_shape;
extern const tti_shape tti_shapes[];

/* Sets what a made tensor of this shape and format is: format, numbers, and a key of its own. */
void tti_made_init(tti_source *source, tt_role role, const ttk_format *format, int64_t rows,
                   int64_t cols, uint64_t key);
/* Rows [row, row + n) of a made tensor into rows [at, at + n) of the arrays. A row hangs on the
 * tensor's key and its own number alone. Thread: any. */
void tti_made_rows(const tti_source *source, int64_t cols, int64_t row, int64_t n,
                   const ttk_unpacked *to, int64_t at);

#endif
