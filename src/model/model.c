/* model.c - the life of an open checkpoint, and reading from it. */
#include "model_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

size_t tt_dtype_bytes(tt_dtype type)
{
    switch (type) {
    case TT_DTYPE_F32:
        return 4;
    case TT_DTYPE_BF16:
    case TT_DTYPE_F16:
        return 2;
    case TT_DTYPE_OTHER:
        break;
    }
    return 0;
}

const char *tt_dtype_name(tt_dtype type)
{
    switch (type) {
    case TT_DTYPE_F32:
        return "f32";
    case TT_DTYPE_BF16:
        return "bf16";
    case TT_DTYPE_F16:
        return "f16";
    case TT_DTYPE_OTHER:
        break;
    }
    return "other";
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
    TT_CHECK(S_ISDIR(info.st_mode), TT_ERR_FILE,
             "%s: is not a directory; a model is the directory with its config.json",
             tti_show_path(path));
    return TT_OK;
}

/* Fills the parts of model that come from the files of its directory. */
static tt_status load(tt_model *model, const char *what)
{
    const tti_family *family;
    tti_hyper hyper;
    tti_checkpoint checkpoint = {0};
    TT_TRY(tti_config_read(model->path, what, &family, &hyper));
    model->arch = hyper.arch;
    model->name = copy_text(hyper.arch.name);
    model->arch.name = model->name;
    tt_status st =
        model->name ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for an architecture's name");
    if (st == TT_OK) {
        st = tti_config_read_generation(model->path, what, hyper.config, &model->generation,
                                        &model->end_ids, &model->n_end_ids);
    }
    if (st == TT_OK) {
        st = tti_checkpoint_open(model->path, &checkpoint);
    }
    if (st == TT_OK) {
        st = tti_roles_resolve(model, family, &hyper, &checkpoint);
    }
    if (st == TT_OK) {
        /* The files and the names stay; the table is no longer needed. */
        model->file = checkpoint.file;
        model->n_files = checkpoint.n_files;
        model->names = checkpoint.table.names;
        checkpoint.file = NULL;
        checkpoint.n_files = 0;
        checkpoint.table.names = (tti_names){0};
    }
    tti_checkpoint_fini(&checkpoint);
    json_decref((json_t *)hyper.config);
    return st;
}

tt_status tt_model_open(const char *path, tt_model **model_out)
{
    TT_CHECK(path && path[0], TT_ERR_ARG, "no path of a model was given");
    TT_TRY(check_directory(path));
    static const char config_name[] = "/config.json";
    char *what = malloc(strlen(path) + sizeof(config_name));
    tt_model *model = calloc(1, sizeof(*model));
    tt_status st;
    if (!what || !model || !(model->path = copy_text(path))) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for model %s", tti_show_path(path));
        goto err_close;
    }
    strcpy(what, path);
    strcat(what, config_name);
    st = load(model, what);
    if (st != TT_OK) {
        goto err_close;
    }
    free(what);
    *model_out = model;
    return TT_OK;

err_close:
    free(what);
    tt_model_close(&model);
    return st;
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
    free(m->arch.layer_is_moe);
    free(m->arch.rope.inv_freq);
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
    static const tt_tensor none = {0};
    const tt_arch *arch = &model->arch;
    if (tti_role_is_global(role)) {
        return model->global[role];
    }
    if (role >= TT_ROLE_COUNT || layer < 0 || layer >= arch->L + arch->n_mtp) {
        return none;
    }
    if (!tti_role_is_expert(role)) {
        return model->layer[role][layer];
    }
    if (expert < 0 || expert >= arch->E || !model->expert[layer]) {
        return none;
    }
    return model->expert[layer][(int64_t)(role - TT_ROLE_EXPERT_GATE) * arch->E + expert];
}

tt_status tt_model_read_rows(const tt_model *model, const tt_tensor *tensor, int64_t row,
                             int64_t n_rows, void *dst)
{
    TT_CHECK(tensor->name && tensor->file_id >= 0 && tensor->file_id < model->n_files, TT_ERR_ARG,
             "a tensor that is not in the checkpoint cannot be read");
    TT_CHECK(row >= 0 && n_rows >= 0 && row <= tensor->rows && n_rows <= tensor->rows - row,
             TT_ERR_ARG, "%lld rows from row %lld of tensor '%s' are outside its %lld rows",
             (long long)n_rows, (long long)row, tti_show(tensor->name).text,
             (long long)tensor->rows);
    uint64_t row_bytes = (uint64_t)tensor->cols * tt_dtype_bytes(tensor->type);
    tt_status st =
        tti_file_read(&model->file[tensor->file_id], tensor->offset + (uint64_t)row * row_bytes,
                      dst, (size_t)((uint64_t)n_rows * row_bytes));
    if (st != TT_OK) {
        /* The file knows what went wrong, only we know whose bytes they were. */
        return TT_FAIL(st, "%s (tensor '%s')", tt_status_message(), tti_show(tensor->name).text);
    }
    return TT_OK;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Exact: every f16 is a float. Source: IEEE 754 binary16 (1 sign, 5 exponent, 10 fraction bits). */
static float float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
    if (exponent == 31) {
        return float_of_bits(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent == 0) {
        /* Zero and subnormals: fraction * 2^-24, both factors exact. */
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return float_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

tt_status tt_model_read_f32(const tt_model *model, const tt_tensor *tensor, float *dst)
{
    int64_t n = tensor->rows * tensor->cols;
    if (tensor->type == TT_DTYPE_F32) {
        return tt_model_read_rows(model, tensor, 0, tensor->rows, dst);
    }
    TT_CHECK(tensor->type == TT_DTYPE_BF16 || tensor->type == TT_DTYPE_F16, TT_ERR_ARG,
             "tensor '%s' is of no type that can be read as float",
             tensor->name ? tti_show(tensor->name).text : "");
    /* The 16-bit values are read into the upper half of dst and widened from the front: element i
     * is written at byte 4i, below byte 2n + 2i, where it is read, until the last, which is read
     * before it is written. */
    unsigned char *half = (unsigned char *)dst + (size_t)n * sizeof(uint16_t);
    TT_TRY(tt_model_read_rows(model, tensor, 0, tensor->rows, half));
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, half + (size_t)i * sizeof(bits), sizeof(bits));
        float value = tensor->type == TT_DTYPE_BF16 ? float_of_bits((uint32_t)bits << 16)
                                                    : float_of_f16(bits);
        memcpy(&dst[i], &value, sizeof(value));
    }
    return TT_OK;
}

const char *tt_model_file_name(const tt_model *model, int file_id)
{
    if (file_id < 0 || file_id >= model->n_files) {
        return NULL;
    }
    const char *path = model->file[file_id].path;
    return strrchr(path, '/') + 1; /* a path is DIR/NAME */
}

void tt_model_count_parameters(const tt_model *model, int64_t *total_out, int64_t *active_out)
{
    const tt_arch *arch = &model->arch;
    int64_t total = 0, active = 0;
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        bool global = tti_role_is_global((tt_role)role), expert = tti_role_is_expert((tt_role)role);
        if (role == TT_ROLE_HEAD && arch->tied_embeddings) {
            continue; /* counted as the embedding */
        }
        for (int64_t layer = 0; layer < (global ? 1 : arch->L); layer++) {
            tt_tensor tensor = tt_model_tensor(model, (tt_role)role, layer, 0);
            int64_t n = tensor.name ? tensor.rows * tensor.cols : 0;
            total += n * (expert ? arch->E : 1);
            active += n * (expert ? arch->K : 1);
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
