/* plan_internal.h - what the files of the plan room share: reading --split, bytes that saturate
 * instead of wrapping, and the parts of a rank's memory that the cost model reads again. */
#ifndef TUTTI_PLAN_INTERNAL_H
#define TUTTI_PLAN_INTERNAL_H
#include "tutti/plan.h"

enum { TTI_PLAN_PAGE_TOKENS = 16 }; /* tokens of a KV page, as TTK_PAGE */

/* Sums and products of bytes. An absurd shape or option ends at UINT64_MAX, which fits nowhere, and
 * never wraps to something small. */
static inline uint64_t tti_plan_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
static inline uint64_t tti_plan_mul(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}
/* The product of two counts; a negative one is a bug of ours. */
static inline uint64_t tti_plan_area(int64_t rows, int64_t cols)
{
    TT_ASSERT(rows >= 0 && cols >= 0);
    return tti_plan_mul((uint64_t)rows, (uint64_t)cols);
}

/* Reads "attention:0-5,experts:6-7": sections parted by ',', each a name, ':' and ranges "a" or
 * "a-b" joined by '+'. Marks attends[n_ranks] and serves[n_ranks], which the caller has cleared.
 * TT_ERR_USAGE with the place and the rule. */
tt_status tti_plan_parse_split(const char *split, int n_ranks, bool *attends, bool *serves);

/* Bytes of the embedding table: on every attention rank, read by single rows. */
uint64_t tti_plan_embedding_bytes(const tt_model *model);
/* Bytes of all other weights of a rank's attention role; 0 if it has none. */
uint64_t tti_plan_dense_bytes(const tt_model *model, const tt_layout *layout, int rank);
/* Bytes of a rank's part of its group's experts over all MoE layers; 0 without an expert role. */
uint64_t tti_plan_expert_bytes(const tt_model *model, const tt_layout *layout, int rank);

/* At most: the buffers of all exchange handles, of both roles; and what each room works in, with
 * what a process takes beside all that. */
uint64_t tti_plan_exchange_bytes(const tt_arch *arch, const tt_layout *layout, int rank);
uint64_t tti_plan_work_bytes(const tt_arch *arch, const tt_layout *layout, int rank);

/* Bytes that one sequence's decode step reads of its keys and values at a context, of windows and
 * chunks only what is visible, and moves of its states. */
uint64_t tti_plan_context_bytes(const tt_arch *arch, const tt_layout *layout, int rank,
                                int64_t context);

/* The cost model's part that depends on tp: seconds of dense weights and gathers of one decode step
 * in which a DP group has n_rows sequences, with the default rates. */
double tti_plan_tp_seconds(const tt_arch *arch, int tp, int64_t n_rows);

/* Of a rank's dense weights, what an attention rank below it on its node has too: bytes that one of
 * them holds for both. */
tt_status tti_plan_borrowed_bytes(const tt_model *model, const tt_layout *layout, int rank,
                                  uint64_t *bytes_out);

/* A dense matrix of a rank: what it is, and its bytes. Two with the same first five fields hold the
 * same. */
typedef enum tti_plan_form { TTI_PLAN_PACKED, TTI_PLAN_TRANSPOSED, TTI_PLAN_TABLE } tti_plan_form;
typedef struct tti_plan_matrix {
    int64_t role, form, layer, row, n_rows;
    uint64_t bytes;
} tti_plan_matrix;
/* Takes what tti_plan_dense_bytes counts, matrix by matrix, if one is given. */
typedef struct tti_plan_list {
    tti_plan_matrix *matrix; /* matrix[n], allocated */
    size_t n, capacity;
    bool is_short; /* there was no memory for all */
} tti_plan_list;
/* The matrices of a rank's attention role, the embedding too; the caller frees list->matrix, also
 * after an error. TT_ERR_NOMEM. */
tt_status tti_plan_list_dense(const tt_model *model, const tt_layout *layout, int rank,
                              tti_plan_list *list);

/* Bytes as people read them: "1.50 GiB" in text[size]; returns text. */
const char *tti_plan_bytes_text(uint64_t bytes, char *text, size_t size);

#endif
