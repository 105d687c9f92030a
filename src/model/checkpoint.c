/* checkpoint.c - which files hold the weights, and the table of all tensors in them.
 *
 * With an index, the index is authoritative: files that it does not name are not opened, a tensor
 * counts only in the file that the index gives for it, and each tensor that it lists must be there.
 */
#include "model_internal.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"

static const char INDEX_NAME[] = "model.safetensors.index.json";
static const char SINGLE_NAME[] = "model.safetensors";
enum {
    MAX_INDEX_BYTES = 256 << 20, /* real ones reach some 10 MB */
    MAX_FILES = 1 << 16,
    MAX_WARNINGS = 4 /* of one kind; the rest is counted */
};

static tt_status no_memory(const char *dir)
{
    return TT_FAIL(TT_ERR_NOMEM, "%s: no memory for its list of tensors", tti_show_path(dir));
}

/* Names in an index are joined to the directory: they must stay in it. */
static bool is_plain_file_name(const char *name)
{
    return name[0] != 0 && !strpbrk(name, "/\\") && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

/* Opens the file that an index names, once; ids maps names to file ids. */
static tt_status open_shard(const char *dir, const char *name, json_t *ids,
                            tti_checkpoint *checkpoint, int *file_id_out)
{
    const json_t *known = json_object_get(ids, name);
    if (known) {
        *file_id_out = (int)json_integer_value(known);
        return TT_OK;
    }
    TT_CHECK(is_plain_file_name(name), TT_ERR_FILE,
             "%s: names the file '%s', which is not a plain file name",
             tti_show_path(checkpoint->source), tti_show(name).text);
    TT_CHECK(tti_file_exists(dir, name), TT_ERR_FILE, "%s: lists the file '%s', which is missing",
             tti_show_path(checkpoint->source), tti_show(name).text);
    TT_CHECK(checkpoint->n_files < MAX_FILES, TT_ERR_FILE, "%s: names more than %d files",
             tti_show_path(checkpoint->source), MAX_FILES);
    tti_file *file =
        realloc(checkpoint->file, (size_t)(checkpoint->n_files + 1) * sizeof(*checkpoint->file));
    if (!file) {
        return no_memory(dir);
    }
    checkpoint->file = file;
    TT_TRY(tti_file_open(dir, name, &checkpoint->file[checkpoint->n_files]));
    *file_id_out = checkpoint->n_files++;
    if (json_object_set_new(ids, name, json_integer(*file_id_out)) != 0) {
        return no_memory(dir);
    }
    return TT_OK;
}

/* Puts every name of the weight map into the table, not yet found, and opens their files. */
static tt_status read_weight_map(const char *dir, const json_t *index, json_t *ids,
                                 tti_checkpoint *checkpoint)
{
    const char *name;
    json_t *value;
    json_t *map = json_object_get(index, "weight_map");
    TT_CHECK(json_is_object(map), TT_ERR_FILE, "%s: has no object 'weight_map'",
             tti_show_path(checkpoint->source));
    TT_CHECK(json_object_size(map) > 0, TT_ERR_FILE, "%s: lists no tensor",
             tti_show_path(checkpoint->source));
    json_object_foreach(map, name, value)
    {
        TT_CHECK(json_is_string(value), TT_ERR_FILE, "%s: the file of tensor '%s' is not a string",
                 tti_show_path(checkpoint->source), tti_show(name).text);
        tti_entry entry = {.name = name};
        TT_TRY(open_shard(dir, json_string_value(value), ids, checkpoint, &entry.file_id));
        TT_TRY(tti_table_add(&checkpoint->table, &entry));
    }
    return TT_OK;
}

/* Enters what the index gives to this file; warns of what lies in it against the index. */
static void enter_shard(tti_checkpoint *checkpoint, int file_id, const tti_table *shard)
{
    int n_copies = 0;
    for (size_t i = 0; i < shard->n; i++) {
        tti_entry *listed = tti_table_find(&checkpoint->table, shard->entry[i].name);
        if (!listed) {
            tt_log(TT_LOG_DEBUG, "%s: tensor '%s' is not in the index: ignored",
                   tti_show_path(checkpoint->file[file_id].path),
                   tti_show(shard->entry[i].name).text);
        } else if (listed->file_id != file_id) {
            n_copies++;
            if (n_copies <= MAX_WARNINGS) {
                tt_log(TT_LOG_WARN, "tensor '%s' is in %s and in %s: the index names the first",
                       tti_show(listed->name).text,
                       tti_show_path(checkpoint->file[listed->file_id].path),
                       tti_show_path(checkpoint->file[file_id].path));
            }
        } else {
            const char *name = listed->name;
            *listed = shard->entry[i];
            listed->name = name;
        }
    }
    if (n_copies > MAX_WARNINGS) {
        tt_log(TT_LOG_WARN, "%s: %d more tensors belong to other files: ignored",
               tti_show_path(checkpoint->file[file_id].path), n_copies - MAX_WARNINGS);
    }
}

static tt_status open_sharded(const char *dir, tti_checkpoint *checkpoint)
{
    json_t *index = NULL;
    TT_TRY(tti_json_load(dir, INDEX_NAME, MAX_INDEX_BYTES, &index));
    json_t *ids = json_object();
    tt_status st = ids ? read_weight_map(dir, index, ids, checkpoint) : no_memory(dir);
    for (int i = 0; st == TT_OK && i < checkpoint->n_files; i++) {
        tti_table shard;
        st = tti_safetensors_read(&checkpoint->file[i], i, &shard);
        if (st == TT_OK) {
            enter_shard(checkpoint, i, &shard);
            tti_table_fini(&shard);
        }
    }
    json_decref(ids);
    json_decref(index);
    TT_TRY(st);
    for (size_t i = 0; i < checkpoint->table.n; i++) {
        const tti_entry *entry = &checkpoint->table.entry[i];
        TT_CHECK(entry->found, TT_ERR_FILE, "%s: holds no tensor '%s', although %s says so",
                 tti_show_path(checkpoint->file[entry->file_id].path), tti_show(entry->name).text,
                 INDEX_NAME);
    }
    return TT_OK;
}

static tt_status open_single(const char *dir, tti_checkpoint *checkpoint)
{
    checkpoint->file = malloc(sizeof(*checkpoint->file));
    if (!checkpoint->file) {
        return no_memory(dir);
    }
    TT_TRY(tti_file_open(dir, SINGLE_NAME, &checkpoint->file[0]));
    checkpoint->n_files = 1;
    return tti_safetensors_read(&checkpoint->file[0], 0, &checkpoint->table);
}

tt_status tti_checkpoint_open(const char *dir, tti_checkpoint *checkpoint_out)
{
    tti_checkpoint checkpoint = {0};
    bool sharded = tti_file_exists(dir, INDEX_NAME), single = tti_file_exists(dir, SINGLE_NAME);
    TT_CHECK(sharded || single, TT_ERR_FILE, "%s: no weights were found (neither %s nor %s)",
             tti_show_path(dir), SINGLE_NAME, INDEX_NAME);
    const char *name = sharded ? INDEX_NAME : SINGLE_NAME;
    size_t n = strlen(dir) + strlen(name) + 2;
    checkpoint.source = malloc(n);
    if (!checkpoint.source) {
        return no_memory(dir);
    }
    memcpy(checkpoint.source, dir, strlen(dir));
    checkpoint.source[strlen(dir)] = '/';
    memcpy(checkpoint.source + strlen(dir) + 1, name, strlen(name) + 1);
    if (sharded && single) {
        tt_log(TT_LOG_WARN, "%s: has an index and %s: the index says which files count",
               tti_show_path(dir), SINGLE_NAME);
    }
    tt_status st = sharded ? open_sharded(dir, &checkpoint) : open_single(dir, &checkpoint);
    if (st != TT_OK) {
        tti_checkpoint_fini(&checkpoint);
        return st;
    }
    *checkpoint_out = checkpoint;
    return TT_OK;
}

void tti_checkpoint_fini(tti_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->n_files; i++) {
        tti_file_close(&checkpoint->file[i]);
    }
    free(checkpoint->file);
    free(checkpoint->source);
    tti_table_fini(&checkpoint->table);
    memset(checkpoint, 0, sizeof(*checkpoint));
}
