/* describe.h - layouts and checkpoints as options ask for them and as JSON shows them. MPI: none.
 * */
#ifndef TTI_CLI_DESCRIBE_H
#define TTI_CLI_DESCRIBE_H
#include <jansson.h>
#include "cli.h"
#include "tutti/model.h"
#include "tutti/plan.h"

/* Tensors and bytes of the checkpoint by type, MTP layers not counted. */
typedef struct tti_cli_tensor_counts {
    int64_t tensors[TT_DTYPE_OTHER + 1];
    int64_t elements[TT_DTYPE_OTHER + 1];
} tti_cli_tensor_counts;
void tti_cli_count_tensors(const tt_model *model, tti_cli_tensor_counts *counts);

/* {"attention_bytes":..,"total_bytes":..}; a new reference or NULL. */
json_t *tti_cli_memory_json(const tt_rank_memory *memory);

/* Fills the layout parameters that the options give; n_ranks, node_of_rank, max_batch and context
 * are the caller's. */
tt_layout_params tti_cli_layout_params(const tti_cli_options *options);
/* {"ranks":..,"nodes":..,"dp":..,..., "why":..}: a new reference; NULL if there is no memory. Not
 * collective. */
json_t *tti_cli_layout_json(const tt_layout *layout);

#endif
