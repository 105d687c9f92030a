/* describe.c - between options, layouts and checkpoints on one side and what is printed of them on
 * the other. */
#include "config.h"
#include "describe.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/load.h"
#include "tutti/stream.h"
#include "ttk.h"
#include "placing.h"

tt_status tti_cli_check_source(const tti_cli_options *options, int n_words, const char *command,
                               const char *example)
{
    TT_CHECK(n_words > 0 || options->shape, TT_ERR_USAGE,
             "%s needs MODEL, or --shape NAME: tutti %s --shape c %s", command, command, example);
    TT_CHECK(n_words == 0 || !options->shape, TT_ERR_USAGE,
             "MODEL and --shape %s: give one of them", options->shape);
    TT_CHECK(options->layers == 0 || options->shape, TT_ERR_USAGE,
             "--layers goes with --shape: a MODEL has the layers that it has");
    return TT_OK;
}

tt_status tti_cli_open_model(const tti_cli_options *options, const char *path, tt_model **model_out)
{
    if (!options->shape) {
        return tt_model_open(path, model_out);
    }
    tt_made_params params = {.shape = options->shape,
                             .layers = options->layers,
                             .weights = (tt_weight_format)options->weights};
    return tt_model_make(&params, model_out);
}

/* Adds to what is counted under a format's name. */
static void add_count(json_t *formats, const ttk_format *format, json_int_t tensors,
                      json_int_t elements)
{
    const char *name = tt_format_name(format);
    const json_t *known = json_object_get(formats, name);
    tensors += json_integer_value(json_object_get(known, "tensors"));
    elements += json_integer_value(json_object_get(known, "elements"));
    json_object_set_new(formats, name,
                        json_pack("{s:I, s:I}", "tensors", tensors, "elements", elements));
}

json_t *tti_cli_formats_json(const tt_model *model)
{
    const tt_arch *arch = tt_model_arch(model);
    json_t *formats = json_object();
    ttk_format format = {0};
    json_int_t tensors = 0, elements = 0; /* of the format, since the one before it: thousands of
                                           * experts have the same */
    tt_tensor tensor;
    for (tt_tensor_place at = {0}; formats && tt_model_next_tensor(model, &at, &tensor);) {
        /* the embedding once more */
        bool is_tied = at.role == TT_ROLE_HEAD && arch->tied_embeddings;
        if (is_tied || at.layer >= arch->L) {
            continue;
        }
        if (tensors > 0 && memcmp(&format, &tensor.format, sizeof(format)) != 0) {
            add_count(formats, &format, tensors, elements);
            tensors = elements = 0;
        }
        format = tensor.format;
        tensors++;
        elements += tensor.rows * tensor.cols;
    }
    if (tensors > 0) {
        add_count(formats, &format, tensors, elements);
    }
    return formats;
}

json_t *tti_cli_memory_json(const tt_rank_memory *m)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "dense_bytes",
                     (json_int_t)m->dense_bytes, "borrowed_bytes", (json_int_t)m->borrowed_bytes,
                     "expert_bytes", (json_int_t)m->expert_bytes, "kv_bytes",
                     (json_int_t)m->kv_bytes, "exchange_bytes", (json_int_t)m->exchange_bytes,
                     "work_bytes", (json_int_t)m->work_bytes, "total_bytes",
                     (json_int_t)m->total_bytes);
}

/* Of the choices of options.c. */
static tt_act act_of(const tti_cli_options *options, const tt_model *model)
{
    return options->act == 0 ? tt_load_default_act(model, (tt_weight_format)options->weights)
                             : (tt_act)(options->act - 1);
}

static tt_wire wire_of(const tti_cli_options *options, const tt_model *model)
{
    return options->wire == 0 ? tt_plan_lossless_wire(model, (tt_weight_format)options->weights,
                                                      act_of(options, model))
                              : (tt_wire)(options->wire - 1);
}

tt_layout_params tti_cli_layout_params(const tti_cli_options *options, const tt_model *model)
{
    tt_layout_params params = {
        .dp = (int)options->dp,
        .tp = (int)options->tp,
        .ep = (int)options->ep,
        .etp = (int)options->etp,
        .split = options->split,
        .max_batch = options->max_batch,
        .prefill_chunk = options->prefill_chunk,
        .context = options->context,
        .kv_memory_bytes = options->kv_memory,
        .weights = (tt_weight_format)options->weights,
        .act = act_of(options, model),
        .wire = wire_of(options, model),
        .wire_back = (tt_wire)options->wire_back,
        .route = (tt_route)options->route,
        .combine = (tt_combine)options->combine,
        .kv = (tt_kv_format)options->kv,
        .replicate = (tt_replicate)options->replicate,
        .overlap_rows = options->overlap_rows,
        .exchange_chunk = options->exchange_chunk,
    };
    return params;
}

tt_status tti_cli_plan_layout(const tti_cli_options *options, const tt_model *model,
                              tt_layout **layout_out)
{
    TT_CHECK(options->nodes <= options->ranks, TT_ERR_USAGE,
             "--nodes %lld is above --ranks %lld: every node needs a rank",
             (long long)options->nodes, (long long)options->ranks);
    TT_CHECK(options->batch == 0 || options->max_batch == 0 || options->batch == options->max_batch,
             TT_ERR_USAGE, "--batch and --max-batch say different things");
    int n_nodes = (int)options->nodes;
    int *node_of_rank = calloc((size_t)options->ranks, sizeof(*node_of_rank));
    TT_CHECK(node_of_rank, TT_ERR_NOMEM, "no memory for %lld ranks", (long long)options->ranks);
    for (int node = 0; node < n_nodes; node++) {
        int64_t begin, end;
        tt_split(options->ranks, n_nodes, node, &begin, &end);
        for (int64_t r = begin; r < end; r++) {
            node_of_rank[r] = node;
        }
    }
    tt_layout_params params = tti_cli_layout_params(options, model);
    params.n_ranks = (int)options->ranks;
    params.node_of_rank = node_of_rank;
    if (options->batch > 0) {
        params.max_batch = options->batch;
    } else if (params.max_batch == 0) {
        params.max_batch = 1;
    }
    tti_cli_placing placing;
    tt_placement *placement = NULL;
    tt_status status = tti_cli_placing_open(options, &placing);
    if (status == TT_OK) {
        tti_cli_placing_params(&placing, options, &params);
        status = tt_layout_create(tt_model_arch(model), &params, layout_out);
    }
    if (status == TT_OK) { /* only to see whether it could be had */
        status = tti_cli_placing_make(&placing, model, *layout_out, &placement);
    }
    tt_placement_destroy(&placement);
    tti_cli_placing_close(&placing);
    free(node_of_rank);
    return status;
}

tt_status tti_cli_plan_settle(const tti_cli_options *options, const tt_model *model,
                              tt_layout *layout, char why[TT_STATUS_MESSAGE_BYTES])
{
    uint64_t *available = calloc((size_t)layout->n_nodes, sizeof(*available));
    TT_CHECK(available, TT_ERR_NOMEM, "no memory for %d nodes", layout->n_nodes);
    for (int node = 0; node < layout->n_nodes; node++) {
        available[node] = (uint64_t)options->memory;
    }
    tt_status status = tt_plan_settle(model, layout, available, why, TT_STATUS_MESSAGE_BYTES);
    free(available);
    return status;
}

tt_status tti_cli_ranks_json(const tt_model *model, const tt_layout *layout, json_t **json_out)
{
    json_t *ranks = json_array();
    for (int r = 0; r < layout->n_ranks; r++) {
        tt_rank_memory memory = {0};
        tt_status status = tt_plan_memory(model, layout, r, &memory);
        if (status != TT_OK) {
            json_decref(ranks);
            return status;
        }
        const tt_rank_role *role = &layout->role[r];
        json_array_append_new(
            ranks,
            json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:o}", "rank", r, "node", role->node,
                      "dp_id", role->dp_id, "tp_id", role->tp_id, "group_id", role->group_id,
                      "etp_id", role->etp_id, "kv_bytes_per_token",
                      (json_int_t)tt_plan_kv_bytes_per_token(tt_model_arch(model), layout, r),
                      "memory", tti_cli_memory_json(&memory)));
    }
    *json_out = ranks;
    return TT_OK;
}

void tti_cli_print_layout(FILE *out, const tt_layout *layout, int width)
{
    fprintf(out, "%-*s%s", width, "layout", layout->why);
    if (layout->n_nodes > 1 && layout->n_groups > 0) {
        fprintf(out, "; rows to each other %s",
                layout->route == TT_ROUTE_NODE ? "node once" : "rank once");
    }
    if (layout->overlap_rows < 0) {
        fputs("; steps in two parts where that proves faster", out);
    } else if (layout->overlap_rows > 0) {
        fprintf(out, "; steps of %lld rows and more in two parts", (long long)layout->overlap_rows);
    }
    if (tt_layout_n_chunks(layout) > 1) {
        fprintf(out, "; %lld rows of a rank are exchanged at once",
                (long long)layout->exchange_chunk);
    }
    fprintf(out, "\n%-*sweights %s, act %s, wire %s, back %s%s, kv %s; kernels %s (%s)", width,
            "formats",
            layout->weights == TT_WEIGHTS_AUTO ? "as the checkpoint"
                                               : tt_weights_name(layout->weights),
            tt_act_name(layout->act), tt_wire_name(layout->wire), tt_wire_name(layout->wire_back),
            layout->combine == TT_COMBINE_REDUCED
                ? " as sums of each node (other bits on other layouts)"
                : "",
            tt_kv_format_name(layout->kv), ttk_set_name(), ttk.isa);
}

json_t *tti_cli_layout_json(const tt_layout *layout)
{
    return json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}",
        "ranks", layout->n_ranks, "nodes", layout->n_nodes, "dp", layout->dp, "tp", layout->tp,
        "ep", layout->n_groups * layout->etp, "etp", layout->etp, "context",
        (json_int_t)layout->context, "max_batch", (json_int_t)layout->max_batch, "prefill_chunk",
        (json_int_t)layout->prefill_chunk, "overlap_rows", (json_int_t)layout->overlap_rows,
        "exchange_chunk", (json_int_t)layout->exchange_chunk, "weights",
        tt_weights_name(layout->weights), "act", tt_act_name(layout->act), "wire",
        tt_wire_name(layout->wire), "wire_back", tt_wire_name(layout->wire_back), "exchange",
        layout->route == TT_ROUTE_NODE ? "node" : "direct", "combine",
        layout->combine == TT_COMBINE_REDUCED ? "reduced" : "exact", "kv",
        tt_kv_format_name(layout->kv), "replicate", tt_replicate_name(layout->replicate), "kernels",
        ttk_set_name(), "why", layout->why);
}
