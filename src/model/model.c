/* model.c - the life of an open checkpoint, and reading from it. */
#include "gguf_model.h"
#include "model_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tutti/log.h"

const char *tt_format_name(const ttk_format *format)
{
    static const char *const names[] = {
        [TTK_F32] = "f32",  [TTK_BF16] = "bf16", [TTK_F16] = "f16",  [TTK_I8] = "int8",
        [TTK_U8] = "uint8", [TTK_I4] = "int4",   [TTK_U4] = "uint4", [TTK_I6] = "int6",
        [TTK_E4M3] = "fp8", [TTK_E2M1] = "fp4",  [TTK_E8M0] = "e8m0"};
    static _Thread_local char text[96];
    if (ttk_format_is_plain(format)) {
        return names[format->code];
    }
    static const char *const shifts[] = {"", ", zero points", ", offsets"};
    snprintf(text, sizeof(text), "%s, scale %s%s per %d%s", names[format->code],
             names[format->scale], format->super ? " of f16" : "", (int)format->group,
             shifts[format->shift]);
    return text;
}

static char *copy_text(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    if (copy) {
        memcpy(copy, text, n);
    }
    return copy;
}

static tt_status check_directory(const char *path)
{
    struct stat info;
    TT_CHECK(stat(path, &info) == 0, tti_file_error_code(errno), "%s: %s", tti_show_path(path),
             strerror(errno));
    TT_CHECK(
        S_ISDIR(info.st_mode), TT_ERR_FILE,
        "%s: is not a directory; a model is the directory with its config.json, or a GGUF file",
        tti_show_path(path));
    return TT_OK;
}

/* Says once what is not kept as it is stored. */
static void report_converted(const tt_model *model)
{
    const char *first = NULL;
    int64_t n = 0;
    tt_tensor tensor;
    for (tt_tensor_place at = {0}; tt_model_next_tensor(model, &at, &tensor);) {
        if (tensor.source->scheme == TTI_SCHEME_QUANT && ttk_format_is_plain(&tensor.format)) {
            first = first ? first : tensor.name;
            n++;
        }
    }
    if (n > 0) {
        tt_log(
            TT_LOG_WARN,
            "%s: %lld quantised matrices ('%s' and so on) have groups that packed weights cannot keep: they become f32, exactly",
            tti_show_path(model->path), (long long)n, tti_show(first).text);
    }
}

/* Fills what the configuration and the tensors say. Takes over what of hyper and checkpoint lives
 * on in the model. */
static tt_status fill(tt_model *model, const tti_family *family, const tti_hyper *hyper,
                      tti_checkpoint *checkpoint)
{
    model->arch = hyper->arch;
    model->name = copy_text(hyper->arch.name);
    model->arch.name = model->name;
    TT_CHECK(model->name, TT_ERR_NOMEM, "no memory for an architecture's name");
    checkpoint->quantization = hyper->quantization;
    TT_TRY(tti_roles_resolve(model, family, hyper, checkpoint));
    /* The files and the names stay; the table is no longer needed. */
    model->file = checkpoint->file;
    model->n_files = checkpoint->n_files;
    model->names = checkpoint->table.names;
    checkpoint->file = NULL;
    checkpoint->n_files = 0;
    checkpoint->table.names = (tti_names){0};
    report_converted(model);
    return TT_OK;
}

/* The parts of hyper.arch that fill() gives to the model, where it came to that. */
static void drop_tables(const tt_model *model, tti_hyper *hyper)
{
    if (model->arch.rope.inv_freq != hyper->arch.rope.inv_freq) {
        free(hyper->arch.rope.inv_freq);
        free(hyper->arch.rope.long_inv_freq);
    }
}

static tt_status load_directory(tt_model *model)
{
    static const char config_name[] = "/config.json";
    const tti_family *family;
    tti_hyper hyper;
    tti_checkpoint checkpoint = {0};
    TT_TRY(check_directory(model->path));
    char *what = malloc(strlen(model->path) + sizeof(config_name));
    TT_CHECK(what, TT_ERR_NOMEM, "no memory for model %s", tti_show_path(model->path));
    strcpy(what, model->path);
    strcat(what, config_name);
    tt_status st = tti_config_read(model->path, what, &family, &hyper);
    if (st == TT_OK) {
        st = tti_config_read_generation(model->path, &hyper, &model->generation, &model->end_ids,
                                        &model->n_end_ids);
        if (st == TT_OK) {
            st = tti_checkpoint_open(model->path, &checkpoint);
        }
        if (st == TT_OK) {
            st = fill(model, family, &hyper, &checkpoint);
        }
        tti_checkpoint_fini(&checkpoint);
        drop_tables(model, &hyper);
        json_decref(hyper.root);
    }
    free(what);
    return st;
}

/* What the metadata of a GGUF file become; then as for any checkpoint. */
static tt_status load_gguf_model(tt_model *model, tti_gguf_model *gguf)
{
    const tti_family *family;
    tti_hyper hyper;
    tti_gguf_facts facts;
    json_t *config;
    TT_TRY(tti_gguf_config(gguf, &config, &facts));
    tt_status st = tti_gguf_add_stop_ids(&gguf->header.gguf, config);
    if (st != TT_OK) {
        json_decref(config);
        return st;
    }
    TT_TRY(tti_config_take(gguf->checkpoint.source, config, &family, &hyper));
    hyper.arch.rope.interleaved |= facts.interleaved;
    hyper.arch.mla_split = facts.mla_split;
    tti_family named = tti_gguf_family(family, &gguf->checkpoint.table, &hyper.arch);
    st = tti_config_read_generation(model->path, &hyper, &model->generation, &model->end_ids,
                                    &model->n_end_ids);
    if (st == TT_OK) {
        st = tti_gguf_generation(&gguf->header.gguf, &model->generation);
    }
    if (st == TT_OK) {
        st = fill(model, &named, &hyper, &gguf->checkpoint);
    }
    drop_tables(model, &hyper);
    json_decref(hyper.root);
    return st;
}

static tt_status load_gguf(tt_model *model, const char *first)
{
    tti_gguf_model gguf;
    TT_TRY(tti_gguf_model_open(first, &gguf));
    tt_status st = load_gguf_model(model, &gguf);
    tti_gguf_model_fini(&gguf);
    return st;
}

tt_status tt_model_open(const char *path, tt_model **model_out)
{
    TT_CHECK(path && path[0], TT_ERR_ARG, "no path of a model was given");
    char *first;
    TT_TRY(tti_gguf_locate(path, &first));
    tt_model *model = calloc(1, sizeof(*model));
    tt_status st;
    if (!model || !(model->path = copy_text(path))) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for model %s", tti_show_path(path));
    } else {
        st = first ? load_gguf(model, first) : load_directory(model);
    }
    free(first);
    if (st != TT_OK) {
        tt_model_close(&model);
        return st;
    }
    *model_out = model;
    return TT_OK;
}

void tt_model_close(tt_model **model)
{
    tt_model *m = *model;
    if (!m) {
        return;
    }
    for (int i = 0; i < m->n_files; i++) {
        tti_file_close(&m->file[i]);
    }
    free(m->file);
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        free(m->layer[role]);
    }
    for (int64_t layer = 0; m->expert && layer < m->arch.L + m->arch.n_mtp; layer++) {
        free(m->expert[layer]);
    }
    free(m->expert);
    tti_names_fini(&m->names);
    free(m->arch.layer);
    free(m->arch.rope.inv_freq);
    free(m->arch.rope.long_inv_freq);
    free(m->end_ids);
    free(m->name);
    free(m->path);
    free(m);
    *model = NULL;
}

const tt_arch *tt_model_arch(const tt_model *model)
{
    return &model->arch;
}

const char *tt_model_path(const tt_model *model)
{
    return model->path;
}

tt_tensor tt_model_tensor(const tt_model *model, tt_role role, int64_t layer, int64_t expert)
{
    const tt_arch *arch = &model->arch;
    const tti_resolved *found = NULL;
    if (tt_role_is_global(role)) {
        found = &model->global[role];
    } else if (role < TT_ROLE_COUNT && layer >= 0 && layer < arch->L + arch->n_mtp) {
        if (!tt_role_is_expert(role)) {
            found = &model->layer[role][layer];
        } else if (expert >= 0 && expert < arch->E && model->expert[layer] &&
                   (role <= TT_ROLE_EXPERT_DOWN || arch->expert_bias)) {
            found = &model->expert[layer][(int64_t)(role - TT_ROLE_EXPERT_GATE) * arch->E + expert];
        }
    }
    tt_tensor tensor = found ? found->tensor : (tt_tensor){0};
    tensor.role = role;
    tensor.source = tensor.name ? &found->source : NULL;
    return tensor;
}

/* False: at was the last place, whether or not a tensor is there. */
static bool next_place(const tt_model *model, tt_tensor_place *at)
{
    const tt_arch *arch = &model->arch;
    if (!at->begun) {
        at->begun = true;
        return true;
    }
    bool has_experts = tt_role_is_expert(at->role) && model->expert[at->layer];
    if (++at->expert < (has_experts ? arch->E : 1)) {
        return true;
    }
    at->expert = 0;
    if (++at->layer < (tt_role_is_global(at->role) ? 1 : arch->L + arch->n_mtp)) {
        return true;
    }
    at->layer = 0;
    at->role = (tt_role)(at->role + 1);
    return at->role < TT_ROLE_COUNT;
}

bool tt_model_next_tensor(const tt_model *model, tt_tensor_place *at, tt_tensor *tensor_out)
{
    while (at->role < TT_ROLE_COUNT && next_place(model, at)) {
        tt_tensor tensor = tt_model_tensor(model, at->role, at->layer, at->expert);
        if (tensor.name) {
            *tensor_out = tensor;
            return true;
        }
    }
    return false;
}

void tt_model_count_parameters(const tt_model *model, int64_t *total_out, int64_t *active_out)
{
    const tt_arch *arch = &model->arch;
    int64_t total = 0, active = 0;
    tt_tensor tensor;
    for (tt_tensor_place at = {0}; tt_model_next_tensor(model, &at, &tensor);) {
        /* counted as the embedding */
        bool is_tied = at.role == TT_ROLE_HEAD && arch->tied_embeddings;
        if (!is_tied && at.layer < arch->L) {
            total += tensor.rows * tensor.cols;
            active +=
                at.expert < arch->K || !tt_role_is_expert(at.role) ? tensor.rows * tensor.cols : 0;
        }
    }
    *total_out = total;
    *active_out = active;
}

const int32_t *tt_model_end_ids(const tt_model *model, size_t *n_out)
{
    *n_out = model->n_end_ids;
    return model->end_ids;
}

tt_generation tt_model_generation(const tt_model *model)
{
    return model->generation;
}
