/* source.h - reading rows in two steps: one thread fetches their bytes, many unpack them. Private
 * to the model room.
 * MPI: none. */
#ifndef TUTTI_SRC_MODEL_SOURCE_H
#define TUTTI_SRC_MODEL_SOURCE_H
#include "blocks.h"
#include "tutti/hash.h"

/* Rows [row, row + n_rows) of a tensor as they lie in its files. */
typedef struct tti_raw {
    const tt_tensor *tensor;
    int64_t row, n_rows;
    unsigned char *bytes; /* bytes[tti_raw_bytes(tensor, row, n_rows)] */
} tti_raw;
size_t tti_raw_bytes(const tt_tensor *tensor, int64_t row, int64_t n_rows);
/* Fills raw->bytes and checks all that unpacking relies on. Thread: any. Errors: as
 * tt_model_read_rows. */
tt_status tti_raw_fetch(const tt_model *model, const tti_raw *raw);
/* Bytes that it reads from files. */
uint64_t tti_raw_file_bytes(const tt_tensor *tensor, int64_t row, int64_t n_rows);
/* tt_tensor_hash, and a second one that fails apart. */
tt_hash_pair tti_tensor_hash_pair(const tt_tensor *tensor);
/* Tells the system that these rows will be fetched soon. Thread: any. */
void tti_raw_will_need(const tt_model *model, const tt_tensor *tensor, int64_t row, int64_t n_rows);
/* Of the fetched rows those from begin on, n of them, unpacked into rows [at, at + n) of the
 * arrays. Thread: any. */
void tti_raw_unpack(const tti_raw *raw, int64_t begin, int64_t n, const ttk_unpacked *to,
                    int64_t at);
/* Of rows that lie packed: the panel of the n rows from fetched row `begin` on, if they are one,
 * whole; else NULL. Thread: any. */
const void *tti_raw_panel(const tti_raw *raw, int64_t begin, int64_t n);
/* In steps of how many rows, a multiple of `unit` or all n_rows, [row, row + n_rows) are fetched so
 * that none takes more than about `bytes`; *bytes_out is what the largest takes. */
int64_t tti_raw_rows(const tt_tensor *tensor, size_t bytes, int64_t row, int64_t n_rows,
                     int64_t unit, size_t *bytes_out);

#endif
