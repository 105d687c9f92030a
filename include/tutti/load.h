/* load.h - weights from a checkpoint into packed matrices: each rank reads just the rows it owns.
 * Threads: set-up only. MPI: none. */
#ifndef TUTTI_LOAD_H
#define TUTTI_LOAD_H
#include "tutti/linear.h"
#include "tutti/model.h"

/* How packed elements are stored. */
typedef struct tt_load_params {
    const tt_model *model;
    tt_weight_format weights;
    int node;           /* NUMA node for the packed form */
    tt_stream *compute; /* packs in parallel; NULL = the caller alone */
    uint64_t read_bytes;   /* counts what was read, */
    uint64_t packed_bytes; /* and what it became */
    void (*progress)(void *arg, uint64_t read_bytes); /* called after each piece; may be NULL */
    void *progress_arg;
} tt_load_params;

/* What a tensor of format `stored` is packed as. */
TT_API ttk_format tt_load_format(tt_weight_format weights, const ttk_format *stored);

/* Rows [row, row + n_rows) of a [rows][cols] tensor become a matrix w[n_rows][cols]. Reads in pieces, so that beside the packed form only a few
 * MiB are held. Errors: TT_ERR_IO, TT_ERR_FILE, TT_ERR_NOMEM. On error linear is empty. */
TT_API tt_status tt_load_linear(tt_load_params *params, const tt_tensor *tensor, int64_t row, int64_t n_rows, tt_linear *linear);
/* The same with rows taken as columns: w[n][k] = tensor[row + k][n] for k < n_rows: w is [cols][n_rows]. */
TT_API tt_status tt_load_linear_transposed(tt_load_params *params, const tt_tensor *tensor, int64_t row, int64_t n_rows, tt_linear *linear);
/* Elements [begin, begin + n) of a vector as float, allocated with tt_memory_alloc (n * 4 bytes); NULL for a tensor without a name. */
TT_API tt_status tt_load_vector(tt_load_params *params, const tt_tensor *tensor, int64_t begin, int64_t n, float **vector_out);

#endif
