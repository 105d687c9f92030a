/* attention.h - the paged KV cache and what mixes positions on one rank: attention, grouped-query
 * (GQA) or latent (MLA, absorbed), and gated delta layers, whose state per sequence stands beside
 * the cache; with TP.
 *
 * A rank holds its query heads, the KV heads those need, and the columns of o_proj that fall to it.
 * Attention outputs of the TP ranks are gathered, multiplied by o_proj columns, and gathered again:
 * K is never split, so every layout gives the same bits. Gated delta layers are split likewise, by
 * value heads.
 * Source: GQA arXiv:2305.13245; MLA arXiv:2405.04434 section 2.1, absorbed form; gated delta net
 * arXiv:2412.06464.
 * Threads: one thread at a time per object; work is spread over the compute stream. */
#ifndef TUTTI_ATTENTION_H
#define TUTTI_ATTENTION_H
#include <stdint.h>
#include "tutti/comm.h"
#include "tutti/load.h"
#include "tutti/plan.h"

/* ---- KV pages ---- */
typedef struct tt_kv tt_kv; /* opaque: a pool of pages of TTK_PAGE tokens, each page with its
                             * part for every attention layer */

/* Allocates layout->kv_pages pages for this rank's KV heads. MPI: not collective. Errors:
 * TT_ERR_NOMEM. */
TT_API tt_status tt_kv_create(const tt_arch *arch, const tt_layout *layout, int rank, int node,
                              tt_kv **kv_out);
TT_API void tt_kv_destroy(tt_kv **kv);
/* Takes n pages (page[n] gets their ids, lowest free first, so that all ranks of a TP group choose
 * alike). TT_ERR_CAPACITY if fewer are free (none is taken). */
TT_API tt_status tt_kv_acquire(tt_kv *kv, int64_t n, int32_t *page);
TT_API void tt_kv_release(tt_kv *kv, const int32_t *page, int64_t n);

/* ---- a batch of rows ----
 * Rows of one sequence are consecutive and ascending in position. */
typedef struct tt_batch_sequence {
    const int32_t *page; /* page[ceil((position + n_rows) / TTK_PAGE)] */
    int64_t position;    /* of its first row */
    int64_t first_row, n_rows;
    int64_t slot;       /* in [0, layout->max_batch_group): its own from its first row
                         * (position 0) to its last; recurrent layers keep their state there */
    int64_t max_tokens; /* how long the request may grow, prompt and generated; chooses among
                         * tt_rope's tables, so it must not change on the way */
} tt_batch_sequence;
typedef struct tt_batch {
    int64_t T;                         /* rows in all */
    const tt_batch_sequence *sequence; /* sequence[n_sequences] */
    int64_t n_sequences;
} tt_batch;

/* ---- attention of all layers ---- */
typedef struct tt_attention tt_attention; /* opaque */
typedef struct tt_attention_params {
    const tt_model *model;
    const tt_layout *layout;
    tt_world *world;
    tt_kv *kv;
    tt_stream *compute;
    tt_load_params *load;
} tt_attention_params;
/* Loads this rank's part. A rank without attention role calls it too (it takes part in the
 * collective set-up and holds nothing).
 * MPI: collective on the world. Errors are agreed. */
TT_API tt_status tt_attention_create(const tt_attention_params *params,
                                     tt_attention **attention_out);
TT_API void tt_attention_destroy(tt_attention **attention);
/* y[T][H] = what layer `layer` mixes from the rows x[T][H]; appends the rows' keys and values to
 * their pages first, or moves its states on. All TP ranks get all of y.
 * MPI: collective on the TP group. Errors: those of tt_gather_exec. */
TT_API tt_status tt_attention_forward(tt_attention *attention, int64_t layer, const tt_batch *batch,
                                      const float *x, float *y);
/* For timing alone: makes up what positions [0, n) of a sequence left in its pages (page[ceil(n /
 * TTK_PAGE)]) on this attention rank; states of recurrent layers in its slot start empty. The same
 * numbers on every layout. MPI: not collective. */
TT_API void tt_attention_fill(tt_attention *attention, const int32_t *page, int64_t n, int64_t slot,
                              uint64_t seed);
/* Bytes of weights that one forward of all layers reads on this rank. */
TT_API uint64_t tt_attention_weight_bytes(const tt_attention *attention);
/* since create; keys, values and states */
TT_API uint64_t tt_attention_kv_bytes_read(const tt_attention *attention);

#endif
