/* tokenizer_load.c - finds the files of a tokenizer and hands their texts to the readers:
 * tokenizer.json, or else tiktoken.model; tokenizer_config.json; chat_template.jinja. */
#include "tokenizer_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

static const char tiktoken_name[] = "tiktoken.model";

/* The text of a file; all zero if it is absent. */
typedef struct file_text {
    char path[PATH_BYTES];
    bool absent;
    char *bytes; /* bytes[n], NUL behind; owned */
    size_t n;
} file_text;

static tt_status join(const char *folder, size_t n_folder, const char *name, char path[PATH_BYTES])
{
    int n = snprintf(path, PATH_BYTES, "%.*s%s", (int)n_folder, folder, name);
    TT_CHECK(n >= 0 && n < PATH_BYTES, TT_ERR_FILE, "the path %.64s... is too long", folder);
    return TT_OK;
}

static tt_status read_beside(const char *folder, const char *name, file_text *file)
{
    TT_TRY(join(folder, strlen(folder), name, file->path));
    return tti_tokenizer_json_file(file->path, &file->absent, &file->bytes, &file->n);
}

static bool is_tiktoken(const char *path)
{
    size_t n = strlen(path), n_name = strlen(tiktoken_name);
    return n >= n_name && strcmp(path + n - n_name, tiktoken_name) == 0 &&
           (n == n_name || path[n - n_name - 1] == '/');
}

/* The vocabulary's file: the path itself or, in a folder, the first kind that is there. */
static tt_status read_vocabulary(const char *path, char folder[PATH_BYTES], file_text *file)
{
    struct stat about;
    TT_CHECK(strlen(path) < PATH_BYTES, TT_ERR_FILE, "the path %.64s... is too long", path);
    TT_CHECK(stat(path, &about) == 0, TT_ERR_FILE, "%s does not exist", path);
    if (!S_ISDIR(about.st_mode)) {
        const char *slash = strrchr(path, '/');
        TT_TRY(join(path, slash ? (size_t)(slash - path) + 1 : 0, "", folder));
        TT_TRY(read_beside(path, "", file));
        TT_CHECK(!file->absent, TT_ERR_FILE, "%s does not exist", path);
        return TT_OK;
    }
    TT_TRY(join(path, strlen(path), "/", folder));
    TT_TRY(read_beside(folder, "tokenizer.json", file));
    if (file->absent) {
        TT_TRY(read_beside(folder, tiktoken_name, file));
    }
    TT_CHECK(!file->absent, TT_ERR_FILE, "%stokenizer.json does not exist, nor does %s", folder,
             tiktoken_name);
    return TT_OK;
}

tt_status tti_tokenizer_is_there(const char *path, bool *is_there_out)
{
    const char *const names[] = {"tokenizer.json", tiktoken_name};
    struct stat about;
    TT_CHECK(stat(path, &about) == 0, TT_ERR_FILE, "%s: %s", path, strerror(errno));
    bool is_there = !S_ISDIR(about.st_mode);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !is_there; i++) {
        char file[PATH_BYTES];
        int n = snprintf(file, sizeof(file), "%s/%s", path, names[i]);
        TT_CHECK(n >= 0 && n < PATH_BYTES, TT_ERR_FILE, "the path %.64s... is too long", path);
        /* What is there but cannot be looked at is for the reader to complain of. */
        is_there = stat(file, &about) == 0 || (errno != ENOENT && errno != ENOTDIR);
    }
    *is_there_out = is_there;
    return TT_OK;
}

static tt_status load_texts(const char *path, char folder[PATH_BYTES], file_text *file,
                            file_text *config, tt_tokenizer *t)
{
    TT_TRY(read_vocabulary(path, folder, file));
    TT_TRY(read_beside(folder, "tokenizer_config.json", config));
    if (is_tiktoken(file->path)) {
        TT_TRY(tti_tokenizer_from_tiktoken(file->path, file->bytes, file->n, config->path,
                                           config->absent ? NULL : config->bytes, config->n, t));
    } else {
        TT_TRY(tti_tokenizer_from_json(file->path, file->bytes, file->n, t));
    }
    return config->absent ? TT_OK
                          : tti_tokenizer_read_config(config->path, config->bytes, config->n, t);
}

tt_status tti_tokenizer_load(const char *path, tt_tokenizer *tokenizer)
{
    char folder[PATH_BYTES];
    file_text file = {0}, config = {0}, chat = {0};
    tt_status st = load_texts(path, folder, &file, &config, tokenizer);
    free(file.bytes);
    free(config.bytes);
    TT_TRY(st);
    TT_TRY(read_beside(folder, "chat_template.jinja", &chat));
    if (!chat.absent) {
        free(tokenizer->chat_template);
        tokenizer->chat_template = chat.bytes;
        tokenizer->n_chat_template = chat.n;
        free(tokenizer->tool_template); /* the file wins over all of them */
        tokenizer->tool_template = NULL;
        tokenizer->n_tool_template = 0;
    }
    return TT_OK;
}
