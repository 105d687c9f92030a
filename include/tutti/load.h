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
    tt_stream *compute; /* unpacks and packs in parallel; NULL = the caller alone */
    uint64_t read_bytes;   /* counts what was read, */
    uint64_t packed_bytes; /* and what it became */
    void (*progress)(void *arg, uint64_t read_bytes); /* called after each piece; may be NULL */
    void *progress_arg;
    void *buffer;        /* one piece of a file, and what each thread needs for one panel; kept from call to call, */
    size_t buffer_bytes; /* given back by tt_load_end */
} tt_load_params;

/* What a tensor is packed as: TT_WEIGHTS_AUTO keeps the numbers of the file exactly. */
TT_API ttk_format tt_load_format(tt_weight_format weights, const tt_tensor *tensor);
/* The same for tt_load_linear_transposed of these rows: block scales are kept where the rows begin at the border of a block or lie in
 * one; where a scale would differ from input to input, the numbers become f32. */
TT_API ttk_format tt_load_format_transposed(tt_weight_format weights, const tt_tensor *tensor, int64_t row, int64_t n_rows);

/* Rows [row, row + n_rows) of a [rows][cols] tensor become a matrix w[n_rows][cols]. Reads in pieces: one thread fetches some MiB, all
 * threads unpack and pack them, so that beside the packed form one piece and a panel for each thread are held.
 * Errors: TT_ERR_IO, TT_ERR_FILE, TT_ERR_NOMEM. On error linear is empty. */
TT_API tt_status tt_load_linear(tt_load_params *params, const tt_tensor *tensor, int64_t row, int64_t n_rows, tt_linear *linear);
/* The same with rows taken as columns: w[n][k] = tensor[row + k][n] for k < n_rows: w is [cols][n_rows]. */
TT_API tt_status tt_load_linear_transposed(tt_load_params *params, const tt_tensor *tensor, int64_t row, int64_t n_rows, tt_linear *linear);
/* Elements [begin, begin + n) of a vector as float, allocated with tt_memory_alloc (n * 4 bytes); NULL for a tensor without a name. */
TT_API tt_status tt_load_vector(tt_load_params *params, const tt_tensor *tensor, int64_t begin, int64_t n, float **vector_out);
/* Gives the buffer back, when all is loaded. */
TT_API void tt_load_end(tt_load_params *params);

#endif
