/* make_bad.c - writes a faulty variant of a checkpoint: make_bad KIND SOURCE TARGET.
 *
 * TARGET is made as a folder of links to SOURCE's files, except for the file that the kind spoils,
 * which is written anew; no-weights leaves out all that could be weights. Faults in a tensor's entry
 * are made in the parsed header of the last shard, so they hit just what their name says. A scale is
 * spoilt in model.safetensors, the one file of quantised and of packed checkpoints. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LENGTH_BYTES = 8 };
static const char shard[] = "model-00002-of-00002.safetensors";
static const char lfs_pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daa"
                                  "aa5e2ca24d17e239\nsize 12345678\n";

static void die(const char *what)
{
    fprintf(stderr, "make_bad: %s: %s\n", what, errno ? strerror(errno) : "bad input");
    exit(99);
}

static void join(char path[PATH_BYTES], const char *folder, const char *name)
{
    if (snprintf(path, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES) {
        die("path too long");
    }
}

static unsigned char *read_file(const char *path, size_t *n_out)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        die(path);
    }
    long n = ftell(file);
    rewind(file);
    unsigned char *data = malloc((size_t)n + 1);
    if (!data || fread(data, 1, (size_t)n, file) != (size_t)n) {
        die(path);
    }
    fclose(file);
    *n_out = (size_t)n;
    return data;
}

static void write_file(const char *path, const void *data, size_t n, const void *more,
                       size_t n_more)
{
    FILE *file = fopen(path, "wb");
    if (!file || (n > 0 && fwrite(data, 1, n, file) != n) ||
        (n_more > 0 && fwrite(more, 1, n_more, file) != n_more) || fclose(file) != 0) {
        die(path);
    }
}

static bool is_of_weights(const char *name)
{
    return strstr(name, ".safetensors") != NULL;
}

/* Links all files of source but one, or but all weights (NULL), into target. */
static void link_others(const char *source, const char *target, const char *but)
{
    char *full = realpath(source, NULL);
    DIR *folder = full ? opendir(full) : NULL;
    if (!folder || mkdir(target, 0777) != 0) {
        die(target);
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char from[PATH_BYTES], to[PATH_BYTES];
        if (entry->d_name[0] == '.' ||
            (but ? strcmp(entry->d_name, but) == 0 : is_of_weights(entry->d_name))) {
            continue;
        }
        join(from, full, entry->d_name);
        join(to, target, entry->d_name);
        if (symlink(from, to) != 0) {
            die(to);
        }
    }
    closedir(folder);
    free(full);
}

/* ---- faults of the shard as bytes ---- */

static bool spoil_bytes(const char *kind, const unsigned char *data, size_t n, const char *to)
{
    static const unsigned char huge[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, '{', '}'};
    static const unsigned char cut[] = {8, 0, 0, 0, 0, 0, 0, 0, '{', '"', 'a', '"', ':', '{', '}'};
    if (strcmp(kind, "truncated-shard") == 0) {
        write_file(to, data, n * 6 / 10, NULL, 0);
    } else if (strcmp(kind, "empty-shard") == 0) {
        write_file(to, NULL, 0, NULL, 0);
    } else if (strcmp(kind, "seven-bytes") == 0) {
        write_file(to, data, 7, NULL, 0);
    } else if (strcmp(kind, "huge-header") == 0) {
        write_file(to, huge, sizeof(huge), NULL, 0);
    } else if (strcmp(kind, "header-cut") == 0) {
        write_file(to, cut, sizeof(cut), NULL, 0);
    } else if (strcmp(kind, "lfs-pointer") == 0) {
        write_file(to, lfs_pointer, sizeof(lfs_pointer) - 1, NULL, 0);
    } else {
        return false;
    }
    return true;
}

/* ---- faults of one entry of the shard's header ---- */

/* The first two tensors of two dimensions that an expert owns. */
static void find_experts(json_t *header, const char **first, const char **second)
{
    const char *key;
    json_t *entry;
    *first = *second = NULL;
    json_object_foreach(header, key, entry)
    {
        bool fits = strstr(key, ".mlp.experts.") && strstr(key, "gate_proj") &&
                    json_array_size(json_object_get(entry, "shape")) == 2;
        if (fits && !*first) {
            *first = key;
        } else if (fits && !*second) {
            *second = key;
        }
    }
    if (!*first || !*second) {
        die("no expert in the shard");
    }
}

static json_t *parse_header(const unsigned char *data, uint64_t *length_out)
{
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        length = length << 8 | data[i];
    }
    json_t *header = json_loadb((const char *)data + LENGTH_BYTES, (size_t)length, 0, NULL);
    if (!header) {
        die("header");
    }
    *length_out = length;
    return header;
}

static bool spoil_header(const char *kind, const unsigned char *data, size_t n, const char *to)
{
    uint64_t length;
    json_t *header = parse_header(data, &length);
    const char *first, *second;
    find_experts(header, &first, &second);
    json_t *entry = json_object_get(header, first), *other = json_object_get(header, second);
    json_t *offsets = json_object_get(entry, "data_offsets");
    json_t *shape = json_object_get(entry, "shape");
    if (strcmp(kind, "overlapping-offsets") == 0) {
        json_object_set(entry, "data_offsets", json_object_get(other, "data_offsets"));
    } else if (strcmp(kind, "offsets-beyond-file") == 0) {
        json_int_t size = json_integer_value(json_array_get(offsets, 1)) -
                          json_integer_value(json_array_get(offsets, 0));
        json_array_set_new(offsets, 0, json_integer((json_int_t)n));
        json_array_set_new(offsets, 1, json_integer((json_int_t)n + size));
    } else if (strcmp(kind, "offsets-backwards") == 0) {
        json_t *begin = json_incref(json_array_get(offsets, 0));
        json_array_set(offsets, 0, json_array_get(offsets, 1));
        json_array_set_new(offsets, 1, begin);
    } else if (strcmp(kind, "wrong-shape") == 0) {
        json_t *rows = json_incref(json_array_get(shape, 0)); /* transposed: as many bytes */
        json_array_set(shape, 0, json_array_get(shape, 1));
        json_array_set_new(shape, 1, rows);
    } else if (strcmp(kind, "shape-overflow") == 0) {
        json_array_set_new(shape, 0, json_integer(INT64_C(1) << 32));
        json_array_set_new(shape, 1, json_integer(INT64_C(1) << 32)); /* product wraps to 0 */
        json_array_set(offsets, 1, json_array_get(offsets, 0));
    } else if (strcmp(kind, "missing-tensor") == 0) {
        json_object_del(header, first);
    } else {
        json_decref(header);
        return false;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    size_t text_bytes = strlen(text);
    unsigned char *front = malloc(LENGTH_BYTES + text_bytes);
    if (!front) {
        die("memory");
    }
    for (int i = 0; i < LENGTH_BYTES; i++) {
        front[i] = (unsigned char)((uint64_t)text_bytes >> (8 * i));
    }
    memcpy(front + LENGTH_BYTES, text, text_bytes);
    size_t data_begin = LENGTH_BYTES + (size_t)length;
    write_file(to, front, LENGTH_BYTES + text_bytes, data + data_begin, n - data_begin);
    free(front);
    free(text);
    json_decref(header);
    return true;
}

/* ---- scales that are no numbers ---- */

/* Sets the bytes of one scale of an expert, the last of its tensor, or all codes and scales of a
 * packed expert's up matrix, to 0xff: a NaN in every format of scales. */
static bool spoil_scale(const char *kind, unsigned char *data, size_t n, const char *to)
{
    static const struct {
        const char *kind, *name;
        json_int_t bytes; /* of one scale; 0: the whole tensor */
    } scales[] = {{"nan-scale-fp8", "experts.5.up_proj.weight_scale_inv", 4},
                  {"nan-scale-mxfp4", "experts.down_proj_scales", 1},
                  {"nan-scale-packed", "expert_up.5.31", 0}};
    uint64_t length;
    json_t *header = parse_header(data, &length), *entry;
    const char *key;
    bool done = false;
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++) {
        json_object_foreach(header, key, entry)
        {
            if (done || strcmp(kind, scales[i].kind) != 0 || !strstr(key, scales[i].name)) {
                continue;
            }
            const json_t *offsets = json_object_get(entry, "data_offsets");
            json_int_t begin = json_integer_value(json_array_get(offsets, 0));
            json_int_t end = json_integer_value(json_array_get(offsets, 1));
            begin = scales[i].bytes > 0 ? end - scales[i].bytes : begin;
            if (begin < 0 || (uint64_t)end > n - LENGTH_BYTES - length) {
                die(key);
            }
            memset(data + LENGTH_BYTES + length + begin, 0xff, (size_t)(end - begin));
            done = true;
        }
    }
    json_decref(header);
    if (done) {
        write_file(to, data, n, NULL, 0);
    }
    return done;
}

/* ---- faults of config.json ---- */

static bool spoil_config(const char *kind, const char *from, const char *to)
{
    static const char no_json[] = "{\"architectures\": [";
    if (strcmp(kind, "config-no-json") == 0) {
        write_file(to, no_json, sizeof(no_json) - 1, NULL, 0);
        return true;
    }
    if (strcmp(kind, "no-config") == 0) {
        return true;
    }
    json_t *config = json_load_file(from, 0, NULL);
    if (!config) {
        die(from);
    }
    bool known = true;
    if (strcmp(kind, "unknown-architecture") == 0) {
        json_object_set_new(config, "architectures", json_pack("[s]", "FrobnicateForCausalLM"));
        json_object_set_new(config, "model_type", json_string("frobnicate"));
    } else if (strcmp(kind, "zero-experts") == 0) {
        json_object_set_new(config, "n_routed_experts", json_integer(0));
    } else if (strcmp(kind, "topk-above-experts") == 0) {
        json_object_set_new(config, "num_experts_per_tok", json_integer(33));
    } else if (strcmp(kind, "negative-layers") == 0) {
        json_object_set_new(config, "num_hidden_layers", json_integer(-1));
    } else {
        known = false;
    }
    if (known && json_dump_file(config, to, 0) != 0) {
        die(to);
    }
    json_decref(config);
    return known;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        die("usage: make_bad KIND SOURCE TARGET");
    }
    const char *kind = argv[1], *source = argv[2], *target = argv[3];
    char from[PATH_BYTES], to[PATH_BYTES];
    static const char *const config_kinds[] = {"unknown-architecture", "zero-experts",
                                               "topk-above-experts",   "negative-layers",
                                               "config-no-json",       "no-config"};
    const char *file = shard;
    for (size_t i = 0; i < sizeof(config_kinds) / sizeof(config_kinds[0]); i++) {
        file = strcmp(kind, config_kinds[i]) == 0 ? "config.json" : file;
    }
    if (strcmp(kind, "tokenizer-no-json") == 0) {
        file = "tokenizer.json";
    }
    if (strncmp(kind, "nan-scale", 9) == 0) {
        file = "model.safetensors";
    }
    if (strcmp(kind, "no-weights") == 0) {
        link_others(source, target, NULL);
        return 0;
    }
    link_others(source, target, file);
    join(from, source, file);
    join(to, target, file);
    bool done = strcmp(kind, "missing-shard") == 0;
    if (strcmp(file, "config.json") == 0) {
        done = spoil_config(kind, from, to);
    } else if (strcmp(file, "tokenizer.json") == 0) {
        static const char text[] = "<html>not a tokenizer</html>";
        write_file(to, text, sizeof(text) - 1, NULL, 0);
        done = true;
    } else if (!done) {
        size_t n = 0;
        unsigned char *data = read_file(from, &n);
        done = strcmp(file, shard) == 0
                   ? spoil_bytes(kind, data, n, to) || spoil_header(kind, data, n, to)
                   : spoil_scale(kind, data, n, to);
        free(data);
    }
    if (!done) {
        errno = 0;
        die("unknown kind");
    }
    return 0;
}
