/* convert.c - writes packed checkpoints: first a list of all tensors in the order of the file, from
 * which sizes and so the header follow; then each tensor is loaded as a rank would load it and
 * written, one at a time. Nothing is left where the result would be until all of it is on disk. */
#define _GNU_SOURCE /* fallocate */
#include "tutti/convert.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "convert_gguf.h"
#include "panels.h"
#include "requantize.h"
#include "tutti/load.h"
#include "tutti/log.h"
#include "tutti/memory.h"

enum {
    HEADER_ALIGN = 4096, /* data begin at a page */
    COPY_BYTES = 1 << 20,
    MAX_COPIED_BYTES = 256 << 20, /* of one file that is no weights; real ones are below 40 MB */
    PATH_BYTES = 4096
};
static const char WEIGHTS_NAME[] = "model.safetensors";

/* One tensor of the result. */
typedef struct item {
    tt_role role;
    int64_t layer, expert;
    bool plain;
    ttk_format format; /* as written; plain: of one number */
    uint64_t offset, bytes;
} item;

typedef struct writer {
    const tt_convert_params *params;
    const tt_model *model;
    item *item;
    size_t n, capacity;
    char dir[PATH_BYTES];        /* of the result while it grows */
    char path[PATH_BYTES + 300]; /* of the file at hand */
    int fd;
    uint64_t at, total_bytes;
    tt_load_params load;
} writer;

/* ---- the list ---- */

static tt_tensor tensor_of(const writer *w, const item *it)
{
    return tt_model_tensor(w->model, it->role, it->layer, it->expert);
}

static tt_status add_item(writer *w, tt_role role, int64_t layer, int64_t expert)
{
    item it = {.role = role, .layer = layer, .expert = expert};
    tt_tensor tensor = tensor_of(w, &it);
    if (!tensor.name) {
        return TT_OK;
    }
    item *items = tt_memory_grow(w->item, &w->capacity, w->n, sizeof(*items));
    TT_CHECK(items, TT_ERR_NOMEM, "no memory for a list of more than %zu tensors", w->n);
    w->item = items;
    it.plain = tti_panels_is_plain(role, &tensor);
    if (!it.plain) {
        /* The embedding is looked up as the numbers lie in the file, whatever becomes of
         * products. */
        it.format =
            role == TT_ROLE_EMBED ? tensor.format : tt_load_format(w->params->weights, &tensor);
        it.bytes = ttk_packed_bytes(&it.format, tensor.rows, tensor.cols);
    } else {
        it.format.code = role == TT_ROLE_EMBED ? tensor.format.code : TTK_F32;
        it.bytes = (uint64_t)(tensor.rows * tensor.cols) * ttk_dtype_bytes(it.format.code);
    }
    it.offset = w->total_bytes;
    w->total_bytes += it.bytes;
    w->item[w->n++] = it;
    return TT_OK;
}

/* Layers behind the last one are left out: nothing runs them, and what is theirs alone has no role,
 * so they could not be run from the result. */
static tt_status list_items(writer *w)
{
    const tt_arch *arch = tt_model_arch(w->model);
    int64_t n_layers = arch->L;
    if (arch->n_mtp > 0) {
        tt_log(
            TT_LOG_WARN,
            "%s: %lld layer%s that predict%s further tokens %s left out of the packed checkpoint",
            tti_show_path(tt_model_path(w->model)), (long long)arch->n_mtp,
            arch->n_mtp > 1 ? "s" : "", arch->n_mtp > 1 ? "" : "s", arch->n_mtp > 1 ? "are" : "is");
    }
    for (int role = 0; role < TTI_N_GLOBAL_ROLES; role++) {
        TT_TRY(add_item(w, (tt_role)role, 0, 0));
    }
    for (int64_t layer = 0; layer < n_layers; layer++) {
        for (int role = TTI_N_GLOBAL_ROLES; role < TT_ROLE_COUNT; role++) {
            if (!tt_role_is_expert((tt_role)role)) {
                TT_TRY(add_item(w, (tt_role)role, layer, 0));
            }
        }
    }
    for (int64_t e = 0; e < arch->E; e++) {
        for (int64_t layer = 0; layer < n_layers; layer++) {
            for (int role = TT_ROLE_EXPERT_GATE; role <= TT_ROLE_EXPERT_DOWN_BIAS; role++) {
                TT_TRY(add_item(w, (tt_role)role, layer, e));
            }
        }
    }
    return TT_OK;
}

/* ---- the header ---- */

/* The number of a format in the list, which grows by it if it is new. */
static int format_id(ttk_format *known, int *n_known, json_t *formats, const ttk_format *format)
{
    enum { MOST = 64 }; /* distinct formats in one checkpoint; in practice below 8 */
    for (int i = 0; i < *n_known; i++) {
        if (tti_same_format(&known[i], format)) {
            return i;
        }
    }
    if (*n_known == MOST) {
        return -1;
    }
    known[*n_known] = *format;
    json_array_append_new(formats, tti_panels_format_json(format));
    return (*n_known)++;
}

/* How the scales were shared, for parts that are packed transposed (tt_load_format_transposed). */
static void find_sharing(const tt_tensor *tensor, int64_t *rows_out, int64_t *first_out)
{
    const tti_source *s = tensor->source;
    bool whole =
        s->n_segments == 1 && s->segment[0].run == s->segment[0].stride && s->scale_rows > 0;
    bool shares = whole && (s->scheme == TTI_SCHEME_QUANT || s->scheme == TTI_SCHEME_PANELS);
    *rows_out = shares ? s->scale_rows : 1;
    *first_out = shares ? (s->scale_first + s->segment[0].first) % s->scale_rows : 0;
}

static tt_status describe(const writer *w, json_t **root_out)
{
    ttk_format known[64];
    int n_known = 0;
    const tt_arch *arch = tt_model_arch(w->model);
    json_t *formats = json_array(), *tensors = json_object();
    json_t *root =
        json_pack("{s:i, s:s, s:i, s:I, s:b, s:b, s:o, s:o}", "version", TTI_PANELS_VERSION,
                  "endian", TTI_PANELS_ENDIAN, "panels", TTK_PANEL_LAYOUT, "n_mtp", (json_int_t)0,
                  "mla_split", (int)arch->mla_split, "rope_interleaved",
                  (int)arch->rope.interleaved, "formats", formats, "tensors", tensors);
    TT_CHECK(root, TT_ERR_NOMEM, "no memory for the description of %zu tensors", w->n);
    for (size_t i = 0; i < w->n; i++) {
        const item *it = &w->item[i];
        if (it->plain) {
            continue;
        }
        tt_tensor tensor = tensor_of(w, it);
        char name[TTI_PANELS_NAME_BYTES];
        int64_t rows, first;
        int id = format_id(known, &n_known, formats, &it->format);
        find_sharing(&tensor, &rows, &first);
        tti_panels_name(it->role, it->layer, it->expert, name);
        json_t *facts = json_pack("[i, I, I, I, I]", id, (json_int_t)tensor.rows,
                                  (json_int_t)tensor.cols, (json_int_t)rows, (json_int_t)first);
        if (id < 0 || json_object_set_new(tensors, name, facts) != 0) {
            json_decref(root);
            return TT_FAIL(id < 0 ? TT_ERR_UNSUPPORTED : TT_ERR_NOMEM,
                           "the description of %zu tensors: %s", w->n,
                           id < 0 ? "too many formats" : "no memory");
        }
    }
    *root_out = root;
    return TT_OK;
}

static json_t *entry_json(const writer *w, const item *it)
{
    static const char *const dtypes[] = {[TTK_F32] = "F32", [TTK_BF16] = "BF16", [TTK_F16] = "F16"};
    tt_tensor tensor = tensor_of(w, it);
    json_t *shape = json_array();
    if (it->plain) {
        json_array_append_new(shape, json_integer(tensor.rows));
        if (tensor.cols > 1) {
            json_array_append_new(shape, json_integer(tensor.cols));
        }
    } else {
        json_array_append_new(shape, json_integer((json_int_t)it->bytes));
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", it->plain ? dtypes[it->format.code] : "U8",
                     "shape", shape, "data_offsets", (json_int_t)it->offset,
                     (json_int_t)(it->offset + it->bytes));
}

/* The whole header: length, JSON, and spaces up to a page. Owner of *text_out: the caller. */
static tt_status make_header(const writer *w, char **text_out, size_t *bytes_out)
{
    json_t *description = NULL, *root = json_object();
    tt_status st = describe(w, &description);
    if (st != TT_OK) {
        json_decref(root);
        return st;
    }
    char *inner = json_dumps(description, JSON_COMPACT), *text = NULL;
    json_decref(description);
    bool ok =
        inner && root &&
        json_object_set_new(root, "__metadata__",
                            json_pack("{s:s, s:s}", TTI_PANELS_KEY, inner, "format", "pt")) == 0;
    free(inner);
    for (size_t i = 0; ok && i < w->n; i++) {
        char name[TTI_PANELS_NAME_BYTES];
        tti_panels_name(w->item[i].role, w->item[i].layer, w->item[i].expert, name);
        ok = json_object_set_new(root, name, entry_json(w, &w->item[i])) == 0;
    }
    char *json = ok ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (json) {
        size_t n = strlen(json), all = (8 + n + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
        text = malloc(all);
        if (text) {
            memset(text, ' ', all);
            for (int i = 0; i < 8; i++) {
                text[i] = (char)((uint64_t)(all - 8) >> (8 * i) & 0xff);
            }
            memcpy(text + 8, json, n);
            *bytes_out = all;
        }
        free(json);
    }
    TT_CHECK(text, TT_ERR_NOMEM, "no memory for a header of %zu tensors", w->n);
    *text_out = text;
    return TT_OK;
}

/* ---- writing ---- */

static tt_status failed(const writer *w, const char *what)
{
    return TT_FAIL(TT_ERR_IO, "%s: %s: %s", tti_show_path(w->path), what, strerror(errno));
}

static tt_status put(writer *w, const void *bytes, size_t n)
{
    enum { MOST = 1 << 30 }; /* Linux writes at most 2^31 - 4096 bytes at once */
    const unsigned char *from = bytes;
    while (n > 0) {
        ssize_t put = write(w->fd, from, n < MOST ? n : MOST);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return failed(w, "cannot be written");
        }
        from += put;
        n -= (size_t)put;
        w->at += (uint64_t)put;
    }
    return TT_OK;
}

static tt_status open_file(writer *w, const char *name)
{
    snprintf(w->path, sizeof(w->path), "%s/%s", w->dir, name);
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return w->fd >= 0 ? TT_OK : failed(w, "cannot be made");
}

/* Closes the file at hand; what it holds is on disk then. */
static tt_status close_file(writer *w, tt_status st)
{
    if (st == TT_OK && fsync(w->fd) != 0) {
        st = failed(w, "cannot be written");
    }
    if (close(w->fd) != 0 && st == TT_OK) {
        st = failed(w, "cannot be written");
    }
    w->fd = -1;
    return st;
}

/* Numbers that stay plain: of vectors as floats, of an embedding as they are. */
static tt_status put_plain(writer *w, const item *it, const tt_tensor *tensor)
{
    ttk_format format = {.code = it->format.code};
    bool as_is = it->role == TT_ROLE_EMBED;
    size_t row_bytes = (size_t)tensor->cols * ttk_dtype_bytes(format.code);
    int64_t step = TT_LOAD_PIECE_BYTES / (int64_t)row_bytes + 1;
    void *buffer = malloc((size_t)step * row_bytes);
    TT_CHECK(buffer, TT_ERR_NOMEM, "no memory to convert tensor '%s'", tti_show(tensor->name).text);
    tt_status st = TT_OK;
    for (int64_t row = 0; row < tensor->rows && st == TT_OK; row += step) {
        int64_t n = tensor->rows - row < step ? tensor->rows - row : step;
        ttk_unpacked rows;
        st = as_is ? tt_model_read_rows(w->model, tensor, row, n, buffer, &rows)
                   : tt_model_read_f32(w->model, tensor, row, n, buffer);
        if (st == TT_OK) {
            st = put(w, buffer, (size_t)n * row_bytes);
        }
    }
    free(buffer);
    return st;
}

static tt_status put_panels(writer *w, const item *it, const tt_tensor *tensor)
{
    tt_linear linear = {0};
    w->load.weights = it->role == TT_ROLE_EMBED ? TT_WEIGHTS_AUTO : w->params->weights;
    TT_TRY(tt_load_linear(&w->load, tensor, 0, tensor->rows, &linear));
    tt_status st =
        linear.bytes == it->bytes
            ? put(w, linear.panels, linear.bytes)
            : TT_FAIL(TT_ERR_STATE, "tensor '%s' is packed in another format than planned",
                      tti_show(tensor->name).text);
    tt_linear_fini(&linear);
    return st;
}

static tt_status put_weights(writer *w)
{
    char *header = NULL;
    size_t header_bytes = 0;
    TT_TRY(make_header(w, &header, &header_bytes));
    tt_status st = open_file(w, WEIGHTS_NAME);
    if (st != TT_OK) {
        free(header);
        return st;
    }
    /* A full disk shows now, not after an hour; file systems that cannot say go on. */
    if (fallocate(w->fd, 0, 0, (off_t)(header_bytes + w->total_bytes)) != 0 &&
        (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
        st = failed(w, "cannot be written");
    }
    if (st == TT_OK) {
        st = put(w, header, header_bytes);
    }
    free(header);
    for (size_t i = 0; i < w->n && st == TT_OK; i++) {
        const item *it = &w->item[i];
        tt_tensor tensor = tensor_of(w, it);
        TT_ASSERT(w->at == header_bytes + it->offset);
        st = it->plain ? put_plain(w, it, &tensor) : put_panels(w, it, &tensor);
        if (st == TT_OK && w->params->progress) {
            w->params->progress(w->params->progress_arg, w->at, header_bytes + w->total_bytes);
        }
    }
    return close_file(w, st);
}

/* ---- the other files ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_weights(const char *name)
{
    if (strcmp(name, TTI_GGUF_TOKENIZER) == 0) {
        return false;
    }
    static const char *const ends[] = {".safetensors", ".index.json", ".bin",     ".pt",   ".pth",
                                       ".gguf",        ".h5",         ".msgpack", ".onnx", ".npz"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        if (ends_with(name, ends[i])) {
            return true;
        }
    }
    return false;
}

static tt_status copy_bytes(writer *w, const tti_file *from)
{
    unsigned char *buffer = malloc(COPY_BYTES);
    tt_status st =
        buffer ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory to copy %s", tti_show_path(from->path));
    for (uint64_t at = 0; at < from->bytes && st == TT_OK; at += COPY_BYTES) {
        size_t n = from->bytes - at < COPY_BYTES ? (size_t)(from->bytes - at) : COPY_BYTES;
        st = tti_file_read(from, at, buffer, n);
        if (st == TT_OK) {
            st = put(w, buffer, n);
        }
    }
    free(buffer);
    return st;
}

static tt_status copy_file(writer *w, const char *name)
{
    char path[PATH_BYTES + 300];
    struct stat info;
    snprintf(path, sizeof(path), "%s/%s", tt_model_path(w->model), name);
    if (is_weights(name) || stat(path, &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size > MAX_COPIED_BYTES) {
        return TT_OK;
    }
    tti_file from;
    TT_TRY(tti_file_open(tt_model_path(w->model), name, &from));
    tt_status st = open_file(w, name);
    if (st == TT_OK) {
        st = close_file(w, copy_bytes(w, &from));
    }
    tti_file_close(&from);
    return st;
}

/* The configuration and the tokenizer of a GGUF file. */
static tt_status make_files(writer *w, const char *first)
{
    tti_made_file file[TTI_MADE_FILES];
    TT_TRY(tti_gguf_make_files(first, w->model, file));
    tt_status st = TT_OK;
    for (int i = 0; i < TTI_MADE_FILES && st == TT_OK; i++) {
        st = file[i].name ? open_file(w, file[i].name) : TT_OK;
        if (st == TT_OK && file[i].name) {
            st = close_file(w, put(w, file[i].bytes, file[i].n));
        }
    }
    tti_made_files_fini(file);
    return st;
}

static tt_status copy_files(writer *w)
{
    DIR *dir = opendir(tt_model_path(w->model));
    TT_CHECK(dir, TT_ERR_IO, "%s: %s", tti_show_path(tt_model_path(w->model)), strerror(errno));
    tt_status st = TT_OK;
    for (struct dirent *entry; st == TT_OK && (entry = readdir(dir));) {
        if (entry->d_name[0] != '.') {
            st = copy_file(w, entry->d_name);
        }
    }
    closedir(dir);
    return st;
}

static tt_status put_files(writer *w)
{
    char *first;
    TT_TRY(tti_gguf_locate(tt_model_path(w->model), &first));
    tt_status st = first ? make_files(w, first) : copy_files(w);
    free(first);
    return st;
}

/* ---- the whole ---- */

/* Removes what was made; it holds files only. */
static void remove_all(const writer *w)
{
    char path[PATH_BYTES + 300];
    DIR *dir = opendir(w->dir);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            snprintf(path, sizeof(path), "%s/%s", w->dir, entry->d_name);
            unlink(path);
        }
    }
    if (dir) {
        closedir(dir);
    }
    rmdir(w->dir);
}

static tt_status check_out(const tt_convert_params *params, writer *w)
{
    struct stat info;
    size_t n = strlen(params->out);
    while (n > 1 && params->out[n - 1] == '/') {
        n--;
    }
    TT_CHECK(n > 0 && n + 16 < sizeof(w->dir), TT_ERR_USAGE,
             "the result's path is empty or too long");
    TT_CHECK(lstat(params->out, &info) != 0, TT_ERR_USAGE,
             "%s: exists already; nothing is overwritten", tti_show_path(params->out));
    snprintf(w->dir, sizeof(w->dir), "%.*s.tmp", (int)n, params->out);
    TT_CHECK(
        mkdir(w->dir, 0755) == 0, TT_ERR_IO, "%s: %s%s", tti_show_path(w->dir), strerror(errno),
        errno == EEXIST ? " (of a conversion that is under way, or was stopped: then remove it)"
                        : "");
    return TT_OK;
}

tt_status tt_convert(const tt_convert_params *params, uint64_t *bytes_out)
{
    writer w = {.params = params, .model = params->model, .fd = -1};
    w.load = (tt_load_params){.model = params->model,
                              .node = TT_MEMORY_ANY_NODE,
                              .compute = params->compute,
                              .alone = true};
    TT_TRY(check_out(params, &w));
    tt_load_warn_requantized(params->model, params->weights);
    tt_status st = list_items(&w);
    if (st == TT_OK) {
        st = put_weights(&w);
    }
    *bytes_out = w.at;
    if (st == TT_OK) {
        st = put_files(&w);
    }
    if (st == TT_OK && rename(w.dir, params->out) != 0) {
        st = TT_FAIL(TT_ERR_IO, "%s: cannot be renamed to %s: %s", tti_show_path(w.dir),
                     tti_show_path(params->out), strerror(errno));
    }
    if (st != TT_OK) {
        remove_all(&w);
    }
    tt_load_end(&w.load);
    free(w.item);
    return st;
}
