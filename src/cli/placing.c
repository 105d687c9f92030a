/* placing.c - experts where a file says, or by the counts of an earlier run.
 *
 * Files name layers; a placement has them by number. So layers of a file are looked up one by one,
 * and all MoE layers of the model must be there: a file for another model is told from one that
 * fits by its layers, its number of experts, and its number of groups. */
#include "placing.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/hash.h"

enum {
    STAGED_SLOTS = 2, /* experts on their way into a rank at once */
    SPARE_SLOTS = 2   /* by default: the second one still takes the worst steps down */
};

tt_status tti_cli_placing_open(const tti_cli_options *options, tti_cli_placing *placing)
{
    static const char by_file[] = "static:";
    const char *how = options->balance, *path = options->placement;
    *placing = (tti_cli_placing){.is_auto = strcmp(how, "auto") == 0};
    const bool is_static = strncmp(how, by_file, sizeof(by_file) - 1) == 0;
    TT_CHECK(placing->is_auto || is_static || strcmp(how, "off") == 0, TT_ERR_USAGE,
             "--balance %s: not one of off, static:FILE, auto", how);
    TT_CHECK(!is_static || !path, TT_ERR_USAGE,
             "--balance static:FILE and --placement FILE say the same: give one of them");
    path = is_static ? how + sizeof(by_file) - 1 : path;
    TT_CHECK(!path || !options->load_stats, TT_ERR_USAGE,
             "--load-stats and a placement both say where experts are: give one of them");
    if (path) {
        placing->path = path;
        return tt_placement_read(path, &placing->placed, &placing->placed_layer);
    }
    if (options->load_stats) {
        placing->path = options->load_stats;
        return tt_load_counts_read(options->load_stats, &placing->counts);
    }
    return TT_OK;
}

void tti_cli_placing_close(tti_cli_placing *placing)
{
    tt_placement_free_names(&placing->placed_layer, placing->placed ? placing->placed->L : 0);
    tt_placement_destroy(&placing->placed);
    tt_load_counts_destroy(&placing->counts);
    *placing = (tti_cli_placing){0};
}

void tti_cli_placing_params(const tti_cli_placing *placing, const tti_cli_options *options,
                            tt_layout_params *params)
{
    const tt_placement *p = placing->placed;
    params->open_slots = placing->is_auto || p || placing->counts;
    params->staged_slots = placing->is_auto ? STAGED_SLOTS : 0;
    params->spare_slots = options->spare_slots >= 0 ? options->spare_slots
                          : params->open_slots      ? SPARE_SLOTS
                                                    : 0;
    if (p) { /* as many as the file has */
        params->spare_slots = p->slots_per_group - (p->E + p->n_groups - 1) / p->n_groups;
    }
}

/* The layer of a file that is this one of the model. */
static tt_status find_layer(const char *path, char *const *name, int64_t n, int64_t layer,
                            int64_t *at_out)
{
    char wanted[32];
    snprintf(wanted, sizeof(wanted), "layer %" PRId64, layer);
    for (int64_t i = 0; i < n; i++) {
        if (strcmp(name[i], wanted) == 0) {
            *at_out = i;
            return TT_OK;
        }
    }
    return TT_FAIL(TT_ERR_FILE, "%s: no %s, which the model has", path, wanted);
}

static tt_status check_experts(const tti_cli_placing *placing, int64_t has, int64_t wanted)
{
    TT_CHECK(has == wanted, TT_ERR_FILE,
             "%s is for a model of %" PRId64 " experts a layer; this one has %" PRId64,
             placing->path, has, wanted);
    return TT_OK;
}

/* The file's layers, in the places that the model has for them. */
static tt_status place_by_file(const tti_cli_placing *placing, const tt_arch *arch,
                               const tt_layout *layout, tt_placement **out)
{
    const tt_placement *from = placing->placed;
    int64_t at = 0;
    TT_TRY(check_experts(placing, from->E, arch->E));
    TT_CHECK(from->n_groups == layout->n_groups && from->slots_per_group == layout->slots_per_group,
             TT_ERR_FILE,
             "%s is for %d groups of %" PRId64 " slots; this layout has %d of %" PRId64,
             placing->path, from->n_groups, from->slots_per_group, layout->n_groups,
             layout->slots_per_group);
    TT_TRY(tt_placement_linear(arch->L, arch->E, layout->n_groups, layout->slots_per_group, out));
    for (int64_t l = 0; l < arch->L; l++) {
        if (arch->layer[l].is_moe) {
            TT_TRY(find_layer(placing->path, placing->placed_layer, from->L, l, &at));
            TT_TRY(tt_placement_take_layer(*out, l, from, at));
        }
    }
    return TT_OK;
}

static tt_status place_by_counts(const tti_cli_placing *placing, const tt_arch *arch,
                                 const tt_layout *layout, tt_placement **out)
{
    const tt_load_counts *c = placing->counts;
    double *load = calloc((size_t)(arch->L * arch->E) + 1, sizeof(*load));
    TT_CHECK(load, TT_ERR_NOMEM, "no memory for counts of %" PRId64 " layers", arch->L);
    tt_status st = check_experts(placing, c->E, arch->E);
    for (int64_t l = 0; st == TT_OK && l < arch->L; l++) {
        int64_t at = 0;
        if (arch->layer[l].is_moe) {
            st = find_layer(placing->path, c->layer, c->L, l, &at);
            memcpy(load + l * arch->E, c->total + at * c->E, (size_t)c->E * sizeof(*load));
        }
    }
    if (st == TT_OK) {
        const tt_balance_params params = {.policy = TT_BALANCE_REPLICATE,
                                          .L = arch->L,
                                          .E = arch->E,
                                          .n_groups = layout->n_groups,
                                          .slots_per_group = layout->slots_per_group};
        st = tt_balance_plan(&params, load, out);
    }
    free(load);
    return st;
}

tt_status tti_cli_placing_make(const tti_cli_placing *placing, const tt_model *model,
                               const tt_layout *layout, tt_placement **placement_out)
{
    const tt_arch *arch = tt_model_arch(model);
    tt_placement *placement = NULL;
    tt_status st = TT_OK;
    TT_CHECK(!placing->path || layout->n_groups > 0, TT_ERR_USAGE,
             "%s places experts, and this model has none", placing->path);
    if (placing->placed) {
        st = place_by_file(placing, arch, layout, &placement);
    } else if (placing->counts) {
        st = place_by_counts(placing, arch, layout, &placement);
    }
    if (st != TT_OK) {
        tt_placement_destroy(&placement);
        return st;
    }
    *placement_out = placement;
    return TT_OK;
}

uint64_t tti_cli_placing_hash(const tti_cli_placing *placing)
{
    const tt_load_counts *c = placing->counts;
    uint64_t hash = tt_hash_u64(TT_HASH_BEGIN, placing->is_auto);
    if (placing->placed) {
        hash = tt_hash_u64(hash, tt_placement_hash(placing->placed));
    }
    return c ? tt_hash_bytes(hash, c->total, (size_t)(c->L * c->E) * sizeof(*c->total)) : hash;
}
