/* placing.h - where the options say that experts are when a run begins. MPI: none. */
#ifndef TTI_CLI_PLACING_H
#define TTI_CLI_PLACING_H
#include "cli.h"
#include "tutti/balance.h"
#include "tutti/model.h"
#include "tutti/plan.h"

/* All-zero: experts are in order and stay there. */
typedef struct tti_cli_placing {
    bool is_auto;
    const char *path;       /* of the file that was read; NULL: none */
    tt_placement *placed;   /* --placement, --balance static:FILE: layers by the names below */
    char **placed_layer;    /* [placed->L] */
    tt_load_counts *counts; /* --load-stats */
} tti_cli_placing;

/* Reads what --balance, --placement and --load-stats name. Errors: TT_ERR_USAGE, TT_ERR_FILE,
 * TT_ERR_NOMEM; close also after an error. */
tt_status tti_cli_placing_open(const tti_cli_options *options, tti_cli_placing *placing);
void tti_cli_placing_close(tti_cli_placing *placing);
/* The slots that it needs of a layout. */
void tti_cli_placing_params(const tti_cli_placing *placing, const tti_cli_options *options,
                            tt_layout_params *params);
/* The placement for a layout; NULL: in order. Errors: TT_ERR_FILE that names the file and why it is
 * not for this model or layout. */
tt_status tti_cli_placing_make(const tti_cli_placing *placing, const tt_model *model,
                               const tt_layout *layout, tt_placement **placement_out);
/* Equal on ranks that read the same. */
uint64_t tti_cli_placing_hash(const tti_cli_placing *placing);

#endif
