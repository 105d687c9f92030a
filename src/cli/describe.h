/* describe.h - layouts and checkpoints as options ask for them and as JSON shows them. MPI: none.
 * */
#ifndef TTI_CLI_DESCRIBE_H
#define TTI_CLI_DESCRIBE_H
#include <stdio.h>
#include <jansson.h>
#include "cli.h"
#include "tutti/model.h"
#include "tutti/plan.h"

/* MODEL or --shape: one of them. example: options of an example. Errors: TT_ERR_USAGE. */
tt_status tti_cli_check_source(const tti_cli_options *options, int n_words, const char *command,
                               const char *example);
/* Opens the model at path, or makes that of --shape (path is NULL then). */
tt_status tti_cli_open_model(const tti_cli_options *options, const char *path,
                             tt_model **model_out);
/* {"bf16": {"tensors": n, "elements": n}, ...}: tensors of the checkpoint by format, MTP layers not
 * counted; a new reference or NULL. */
json_t *tti_cli_formats_json(const tt_model *model);

/* {"attention_bytes":..,"total_bytes":..}; a new reference or NULL. */
json_t *tti_cli_memory_json(const tt_rank_memory *memory);

/* Fills the layout parameters that the options give; n_ranks, node_of_rank, max_batch and context
 * are the caller's. */
tt_layout_params tti_cli_layout_params(const tti_cli_options *options, const tt_model *model);
/* The layout that --ranks, --nodes, --batch and the layout options ask for; ranks are dealt to
 * nodes in blocks.
 * Errors: TT_ERR_USAGE, those of tt_layout_create. */
tt_status tti_cli_plan_layout(const tti_cli_options *options, const tt_model *model,
                              tt_layout **layout_out);
/* Decides what of the layout depends on --memory (0 = not known) and checks that all fits; why:
 * tt_plan_settle's line. Errors: TT_ERR_FIT. */
tt_status tti_cli_plan_settle(const tti_cli_options *options, const tt_model *model,
                              tt_layout *layout, char why[TT_STATUS_MESSAGE_BYTES]);
/* [{"rank":..,"node":..,"dp_id":..,...,"memory":{..}},..]: a new reference. */
tt_status tti_cli_ranks_json(const tt_model *model, const tt_layout *layout, json_t **json_out);
/* Two lines that begin with "layout" and "formats", filled up to `width`; the second is not
 * ended. */
void tti_cli_print_layout(FILE *out, const tt_layout *layout, int width);
/* {"ranks":..,"nodes":..,"dp":..,..., "why":..}: a new reference; NULL if there is no memory. Not
 * collective. */
json_t *tti_cli_layout_json(const tt_layout *layout);

#endif
