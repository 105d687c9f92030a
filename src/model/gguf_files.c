/* gguf_files.c - which GGUF files make a model, and the table of all tensors in them.
 *
 * A model is one file, or parts called NAME-00001-of-0000N.gguf and so on, each with a header of
 * its own. The first part has the metadata; all say how many parts and tensors there are, which is
 * checked. */
#include "gguf_model.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char ENDING[] = ".gguf";
enum {
    ENDING_BYTES = sizeof(ENDING) - 1,
    DIGITS = 5,
    SPLIT_BYTES = 1 + DIGITS + 4 + DIGITS + ENDING_BYTES, /* "-00001-of-00002.gguf" */
    PARTS_MAX = 4096,
    NAME_BYTES = 1025, /* tti_gguf_parse admits no longer names */
    SHOWN_MODELS = 3
};

static bool has_ending(const char *name)
{
    size_t n = strlen(name);
    return n > ENDING_BYTES && strcmp(name + n - ENDING_BYTES, ENDING) == 0;
}

static int digits(const char *text)
{
    int value = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        value = 10 * value + (text[i] - '0');
    }
    return value;
}

/* "NAME-00002-of-00003.gguf": 2 of 3, and the bytes before the first dash of those. */
static bool parse_split(const char *path, size_t *n_prefix_out, int *no_out, int *count_out)
{
    size_t n = strlen(path);
    if (n <= SPLIT_BYTES || !has_ending(path)) {
        return false;
    }
    const char *split = path + n - SPLIT_BYTES;
    *n_prefix_out = n - SPLIT_BYTES;
    *no_out = split[0] == '-' ? digits(split + 1) : -1;
    *count_out = strncmp(split + 1 + DIGITS, "-of-", 4) == 0 ? digits(split + 1 + DIGITS + 4) : -1;
    return *no_out >= 1 && *count_out >= *no_out;
}

/* The path of part `no` of the model that `path` is a part of; a copy of path if it is not split.
 * NULL: no memory. */
static char *part_path(const char *path, int no)
{
    size_t n_prefix;
    int any, count;
    char *copy = malloc(strlen(path) + 1);
    if (copy) {
        strcpy(copy, path);
        if (parse_split(path, &n_prefix, &any, &count)) {
            char *digit = copy + n_prefix + DIGITS; /* the last of the part's number */
            for (int i = 0; i < DIGITS; i++, no /= 10) {
                *digit-- = (char)('0' + no % 10);
            }
        }
    }
    return copy;
}

/* ---- locating ---- */

static bool has_magic(const char *path)
{
    char magic[4] = "";
    FILE *file = fopen(path, "rb");
    bool is_gguf = file && fread(magic, 1, sizeof(magic), file) == sizeof(magic) &&
                   memcmp(magic, "GGUF", sizeof(magic)) == 0;
    if (file) {
        fclose(file);
    }
    return is_gguf;
}

/* The GGUF models of a directory: names of files, of split models that of their first part. */
typedef struct models {
    char *name[SHOWN_MODELS];
    int n; /* may be above SHOWN_MODELS */
} models;

static tt_status add_model(models *all, const char *name)
{
    char *first = part_path(name, 1);
    TT_CHECK(first, TT_ERR_NOMEM, "no memory for the name of %s", tti_show(name).text);
    for (int i = 0; i < all->n && i < SHOWN_MODELS; i++) {
        if (strcmp(all->name[i], first) == 0) {
            free(first);
            return TT_OK;
        }
    }
    if (all->n < SHOWN_MODELS) {
        all->name[all->n] = first;
    } else {
        free(first);
    }
    all->n++;
    return TT_OK;
}

static tt_status list_models(const char *dir, models *all)
{
    DIR *handle = opendir(dir);
    TT_CHECK(handle, tti_file_error_code(errno), "%s: %s", tti_show_path(dir), strerror(errno));
    tt_status st = TT_OK;
    for (const struct dirent *entry; st == TT_OK && (entry = readdir(handle));) {
        /* Projectors of pictures lie beside the models that they are for. */
        if (has_ending(entry->d_name) && strncmp(entry->d_name, "mmproj", strlen("mmproj")) != 0) {
            st = add_model(all, entry->d_name);
        }
    }
    closedir(handle);
    return st;
}

static tt_status locate_in(const char *dir, char **first_out)
{
    models all = {.n = 0};
    tt_status st = list_models(dir, &all);
    if (st == TT_OK && all.n > 1) {
        st = TT_FAIL(TT_ERR_FILE, "%s: holds several GGUF models (%s, %s%s): name the file",
                     tti_show_path(dir), tti_show(all.name[0]).text, tti_show(all.name[1]).text,
                     all.n > 2 ? ", ..." : "");
    } else if (st == TT_OK && all.n == 1) {
        size_t n_dir = strlen(dir), n_name = strlen(all.name[0]);
        *first_out = malloc(n_dir + n_name + 2);
        if (*first_out) {
            memcpy(*first_out, dir, n_dir);
            (*first_out)[n_dir] = '/';
            memcpy(*first_out + n_dir + 1, all.name[0], n_name + 1);
        } else {
            st = TT_FAIL(TT_ERR_NOMEM, "no memory for the path of %s", tti_show_path(dir));
        }
    }
    for (int i = 0; i < all.n && i < SHOWN_MODELS; i++) {
        free(all.name[i]);
    }
    return st;
}

tt_status tti_gguf_locate(const char *path, char **first_out)
{
    struct stat info;
    *first_out = NULL;
    if (stat(path, &info) != 0) {
        return TT_OK; /* whoever opens it says why it cannot be */
    }
    if (S_ISDIR(info.st_mode)) {
        bool safetensors = tti_file_exists(path, "model.safetensors") ||
                           tti_file_exists(path, "model.safetensors.index.json");
        return safetensors ? TT_OK : locate_in(path, first_out);
    }
    if (!S_ISREG(info.st_mode) || (!has_ending(path) && !has_magic(path))) {
        return TT_OK;
    }
    *first_out = part_path(path, 1);
    TT_CHECK(*first_out, TT_ERR_NOMEM, "no memory for the path of %s", tti_show_path(path));
    return TT_OK;
}

/* ---- opening ---- */

/* tti_file_open joins a directory and a name. */
static tt_status open_file(const char *path, tti_file *file_out)
{
    const char *slash = strrchr(path, '/');
    size_t n_dir = slash ? (size_t)(slash - path) : 0;
    char *dir = malloc(n_dir + 2);
    TT_CHECK(dir, TT_ERR_NOMEM, "no memory for the path of %s", tti_show_path(path));
    memcpy(dir, path, n_dir);
    strcpy(dir + n_dir,
           slash ? "" : "."); /* "/x" has the directory "", which join makes "/x" again */
    tt_status st = tti_file_open(dir, slash ? slash + 1 : path, file_out);
    free(dir);
    return st;
}

/* Adds the tensors of one part. Experts lie as planes; any other tensor of three dimensions is a
 * matrix per head, one below the other. */
static tt_status add_tensors(const tti_gguf *gguf, int file_id, tti_table *table)
{
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const tti_gguf_tensor *tensor = &gguf->tensor[i];
        char name[NAME_BYTES];
        memcpy(name, tensor->name.bytes, tensor->name.n);
        name[tensor->name.n] = 0;
        TT_CHECK(!tti_table_find(table, name), TT_ERR_FILE,
                 "%s: tensor '%s' is in another part too", tti_show_path(gguf->path),
                 tti_show(name).text);
        tti_entry entry = {.name = name,
                           .dtype = &tensor->type->dtype,
                           .n_dims = tensor->n_dims,
                           .file_id = file_id,
                           .offset = tensor->offset,
                           .bytes = tensor->bytes,
                           .found = true};
        for (int d = 0; d < tensor->n_dims && d < TTI_MAX_DIMS; d++) {
            entry.dim[d] = tensor->dim[tensor->n_dims - 1 - d];
        }
        if (tensor->n_dims == 3 && !strstr(name, "_exps")) {
            entry.n_dims = 2;
            entry.dim[0] *= entry.dim[1];
            entry.dim[1] = entry.dim[2];
        }
        TT_TRY(tti_table_add(table, &entry));
    }
    return TT_OK;
}

/* A key of one part that must have the value `want`; absent is well if it may be. */
static tt_status check_split_key(const tti_gguf *gguf, const char *name, int64_t want,
                                 bool required)
{
    const tti_gguf_key *key = tti_gguf_find(gguf, name);
    int64_t value = 0;
    TT_CHECK(key || !required, TT_ERR_FILE, "%s: is part of a split model, but key '%s' is missing",
             tti_show_path(gguf->path), name);
    TT_CHECK(!key || (!key->is_array && tti_gguf_int(key, 0, &value)), TT_ERR_FILE,
             "%s: key '%s' is not a whole number", tti_show_path(gguf->path), name);
    TT_CHECK(!key || value == want, TT_ERR_FILE, "%s: key '%s' is %lld, %lld was expected",
             tti_show_path(gguf->path), name, (long long)value, (long long)want);
    return TT_OK;
}

/* How many parts the first part says there are, and that its name agrees. */
static tt_status count_parts(const tti_gguf *gguf, const char *first, int *count_out)
{
    size_t n_prefix;
    int no = 1, named = 1;
    bool is_split = parse_split(first, &n_prefix, &no, &named);
    const tti_gguf_key *key = tti_gguf_find(gguf, "split.count");
    int64_t stated = 0;
    TT_CHECK(!key || (!key->is_array && tti_gguf_int(key, 0, &stated) && stated >= 0 &&
                      stated <= PARTS_MAX),
             TT_ERR_FILE, "%s: key 'split.count' is no number of parts", tti_show_path(first));
    TT_CHECK(stated <= 1 || is_split, TT_ERR_FILE,
             "%s: is one of %lld parts, but is not called NAME-00001-of-%05lld.gguf, so the others "
             "cannot be found",
             tti_show_path(first), (long long)stated, (long long)stated);
    TT_CHECK(stated <= 1 || stated == named, TT_ERR_FILE,
             "%s: key 'split.count' is %lld, the file's name says %d", tti_show_path(first),
             (long long)stated, named);
    *count_out = stated > 1 ? named : 1;
    return stated > 1 ? check_split_key(gguf, "split.no", 0, true) : TT_OK;
}

static tt_status add_part(const char *first, int part, int count, tti_gguf_model *model)
{
    tti_checkpoint *checkpoint = &model->checkpoint;
    tti_gguf_header header = {0};
    char *path = part_path(first, part + 1);
    TT_CHECK(path, TT_ERR_NOMEM, "no memory for the path of %s", tti_show_path(first));
    tt_status st = open_file(path, &checkpoint->file[part]);
    free(path);
    TT_TRY(st);
    checkpoint->n_files = part + 1;
    st = tti_gguf_read(&checkpoint->file[part], &header);
    if (st == TT_OK) {
        st = check_split_key(&header.gguf, "split.no", part, true);
    }
    if (st == TT_OK) {
        st = check_split_key(&header.gguf, "split.count", count, true);
    }
    if (st == TT_OK) {
        st = add_tensors(&header.gguf, part, &checkpoint->table);
    }
    tti_gguf_header_fini(&header);
    return st;
}

static tt_status open_parts(const char *first, tti_gguf_model *model)
{
    tti_checkpoint *checkpoint = &model->checkpoint;
    int count = 1;
    checkpoint->file = calloc(1, sizeof(*checkpoint->file));
    checkpoint->source = malloc(strlen(first) + 1);
    TT_CHECK(checkpoint->file && checkpoint->source, TT_ERR_NOMEM, "no memory for %s",
             tti_show_path(first));
    strcpy(checkpoint->source, first);
    TT_TRY(open_file(first, &checkpoint->file[0]));
    checkpoint->n_files = 1;
    TT_TRY(tti_gguf_read(&checkpoint->file[0], &model->header));
    const tti_gguf *gguf = &model->header.gguf;
    TT_TRY(count_parts(gguf, first, &count));
    TT_TRY(add_tensors(gguf, 0, &checkpoint->table));
    if (count > 1) {
        tti_file *more = realloc(checkpoint->file, (size_t)count * sizeof(*more));
        TT_CHECK(more, TT_ERR_NOMEM, "no memory for %d parts of %s", count, tti_show_path(first));
        checkpoint->file = more;
        for (int part = 1; part < count; part++) {
            checkpoint->file[part] = (tti_file){.fd = -1};
            TT_TRY(add_part(first, part, count, model));
        }
        TT_TRY(check_split_key(gguf, "split.tensors.count", (int64_t)checkpoint->table.n, false));
    }
    return TT_OK;
}

tt_status tti_gguf_model_open(const char *first, tti_gguf_model *model_out)
{
    tti_gguf_model model = {0};
    tt_status st = open_parts(first, &model);
    if (st != TT_OK) {
        tti_gguf_model_fini(&model);
        return st;
    }
    *model_out = model;
    return TT_OK;
}

void tti_gguf_model_fini(tti_gguf_model *model)
{
    tti_gguf_header_fini(&model->header);
    tti_checkpoint_fini(&model->checkpoint);
}
