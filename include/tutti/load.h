/* load.h - weights from a checkpoint into packed matrices: each rank reads just the rows it owns.
 * Threads: set-up only. MPI: none; with a relay its members must make the same calls (load.h never
 * asks how they meet). */
#ifndef TUTTI_LOAD_H
#define TUTTI_LOAD_H
#include <stdbool.h>
#include "tutti/hash.h"
#include "tutti/linear.h"
#include "tutti/memory.h"
#include "tutti/model.h"

enum {
    TT_LOAD_PIECE_BYTES = 4 << 20
}; /* of a file per read; large enough for a parallel file
    * system, small beside what is loaded */

/* How the ranks of a node read once what all of them want, as functions over the comm room's relay
 * (relay.h says what each does). All its members load the same tensors in the same order, though
 * each has other targets in them. */
typedef struct tt_load_relay {
    void *arg;
    size_t piece_bytes;
    tt_status (*begin)(void *arg, uint64_t n_left, uint64_t *ahead_out, void **place_out);
    void (*publish)(void *arg, tt_status st);
    tt_status (*take)(void *arg, const void **piece_out);
    void (*release)(void *arg);
    void (*fail)(void *arg, tt_status st);
} tt_load_relay;

/* Where the ranks of a node hold once what several of them want, as a function over the comm room's
 * share (share.h says what it does). */
typedef struct tt_load_share {
    void *arg;
    tt_status (*claim)(void *arg, tt_hash_pair key, size_t bytes, void **memory_out,
                       bool *fill_out);
} tt_load_share;

/* How packed elements are stored, where from, and what has been done so far. */
typedef struct tt_load_params {
    const tt_model *model;
    tt_weight_format weights;
    int node;                   /* NUMA node for the packed form */
    tt_stream *compute;         /* unpacks and packs in parallel; NULL = the caller alone */
    const tt_load_relay *relay; /* NULL: this rank reads alone */
    const tt_load_share *share; /* NULL: all that this rank loads is its own. Else matrices are
                                 * read only after the ranks have agreed that loading is over */
    bool alone;                 /* what follows is wanted by this rank only (its experts): relay and
                                 * share are not used */
    tt_arena *arena;            /* set with `alone` only: where packed matrices go, and with it
                                 * they end; the caller sized it for them. NULL: each has memory
                                 * of its own */
    uint64_t read_bytes;        /* counts what was read from files, */
    uint64_t alone_bytes;       /* of it with `alone`, */
    uint64_t packed_bytes;      /* and what was made of it; */
    uint64_t borrowed_bytes;    /* what other ranks made for this one too */
    void (*progress)(void *arg, uint64_t done_bytes); /* called after each piece with packed and
                                                       * borrowed ones; may be NULL */
    void *progress_arg;
    void *buffer;        /* one piece of a file, and what each thread needs for one panel; kept
                          * from call to call, */
    size_t buffer_bytes; /* given back by tt_load_end */
} tt_load_params;

#define TT_WEIGHTS_CHOICES "auto|f32|bf16|int8|int4|fp8|mxfp4" /* in order, for options */
TT_API const char *tt_weights_name(tt_weight_format weights);
/* Warns, once for all of them, if the format makes quantised matrices be rounded a second time. */
TT_API void tt_load_warn_requantized(const tt_model *model, tt_weight_format weights);
/* How rows are rounded by default: int8 for whole-number experts (a dense model's FFN), bf16 for
 * those of FP8 and MXFP4, else f32. */
TT_API tt_act tt_load_default_act(const tt_model *model, tt_weight_format weights);
/* What a tensor is packed as: TT_WEIGHTS_AUTO keeps the numbers of the file exactly. */
TT_API ttk_format tt_load_format(tt_weight_format weights, const tt_tensor *tensor);
/* The same for a transposed target of these rows: block scales are kept where the rows begin at the
 * border of a block or lie in one; where a scale would differ from input to input, the numbers
 * become f32. */
TT_API ttk_format tt_load_format_transposed(tt_weight_format weights, const tt_tensor *tensor,
                                            int64_t row, int64_t n_rows);

/* Rows [row, row + n_rows) of a [rows][cols] tensor as a matrix: w[n_rows][cols]; or transposed,
 * w[n][k] = tensor[row + k][n] for k < n_rows: w is [cols][n_rows], and all of its rows unpacked
 * are held for a while, so only small parts (a head's) may be. */
typedef struct tt_load_target {
    int64_t row, n_rows; /* n_rows may be 0 */
    bool transposed;
    tt_linear *linear;
} tt_load_target;
/* Fills all targets of one tensor, target[n_targets], in one walk over it; ascending, without
 * overlap. n_targets may be 0 where others of a relay have some. Reads in pieces: one thread
 * fetches some MiB, all threads unpack and pack them, so that beside the packed form one piece and
 * a panel for each thread are held.
 * Errors: TT_ERR_IO, TT_ERR_FILE, TT_ERR_NOMEM; through a relay or a share also other ranks'
 * errors, TT_ERR_PEER, TT_ERR_TIMEOUT, TT_ERR_CAPACITY. On error all are empty. */
TT_API tt_status tt_load_linears(tt_load_params *params, const tt_tensor *tensor,
                                 const tt_load_target *target, int n_targets);
/* The same for one target, not transposed. */
TT_API tt_status tt_load_linear(tt_load_params *params, const tt_tensor *tensor, int64_t row,
                                int64_t n_rows, tt_linear *linear);
/* Tells the system that these rows will be loaded soon, so that it may read them while others are
 * packed. */
TT_API void tt_load_will_need(const tt_load_params *params, const tt_tensor *tensor, int64_t row,
                              int64_t n_rows);
/* All rows of a tensor, unpacked: a table whose rows are looked up. Visible body; all-zero is
 * empty. */
typedef struct tt_table {
    ttk_format format;
    ttk_unpacked rows; /* in memory */
    void *memory;      /* owned unless borrowed, as a tt_linear's panels */
    size_t bytes;
    bool is_borrowed;
} tt_table;
/* Errors as tt_load_linears. */
TT_API tt_status tt_load_table(tt_load_params *params, const tt_tensor *tensor, tt_table *table);
TT_API void tt_table_fini(tt_table *table);
/* What a piece of memory is to hold, for ranks that share it: rows [row, row + n_rows) of a tensor,
 * as `form`, in a format. */
typedef enum tt_load_form { TT_LOAD_PACKED, TT_LOAD_TRANSPOSED, TT_LOAD_TABLE } tt_load_form;
/* Equal for equal contents, else different; first is never 0. Equal on all ranks that opened the
 * same model. */
TT_API tt_hash_pair tt_load_share_key(const tt_tensor *tensor, const ttk_format *format,
                                      tt_load_form form, int64_t row, int64_t n_rows);
/* Elements [begin, begin + n) of a vector as float, allocated with tt_memory_alloc (n * 4 bytes);
 * NULL for a tensor without a name, or n = 0. */
TT_API tt_status tt_load_vector(tt_load_params *params, const tt_tensor *tensor, int64_t begin,
                                int64_t n, float **vector_out);
/* Returns st; if it is an error, whoever waits for this rank in the relay gets it too. To be called
 * with what loading ended with, before ranks agree on it. */
TT_API tt_status tt_load_told(const tt_load_params *params, tt_status st);
/* Gives the buffer back, when all is loaded. */
TT_API void tt_load_end(tt_load_params *params);

#endif
