/* text_in.c - reads what users give: hostile until parsed, so every number is checked and every
 * fault has its line. */
#include "config.h"
#include "text_in.h"
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_BYTES = 1 << 16, /* one read */
    WAIT_MS = 100,        /* between two looks at the others */
    SHOWN_BYTES = 24,     /* of a bad word in a message */
    WHERE_BYTES = 512     /* a file's name and a line */
};

const char *tti_cli_input_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "stdin" : path;
}

tt_status tti_cli_open_input(const char *path, FILE **file_out)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    TT_CHECK(file, TT_ERR_FILE, "%s cannot be opened: %s", path, strerror(errno));
    struct stat info;
    if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode)) {
        tti_cli_close_input(file);
        return TT_FAIL(TT_ERR_FILE, "%s is a directory, not a file", tti_cli_input_name(path));
    }
    *file_out = file;
    return TT_OK;
}

void tti_cli_close_input(FILE *file)
{
    if (file && file != stdin) {
        fclose(file);
    }
}

static void (*waiting_fn)(void *arg);
static void *waiting_arg;

void tti_cli_while_waiting(void (*fn)(void *arg), void *arg)
{
    waiting_fn = fn;
    waiting_arg = arg;
}

void tti_cli_still_here(void)
{
    if (waiting_fn) {
        waiting_fn(waiting_arg);
    }
}

/* Returns when a read of the file will not block; meanwhile others may ask whether this rank is
 * alive. */
static void wait_for_input(FILE *file)
{
    struct pollfd one = {.fd = fileno(file), .events = POLLIN};
    while (waiting_fn && poll(&one, 1, WAIT_MS) == 0) {
        tti_cli_still_here();
    }
}

tt_status tti_cli_each_line(const char *path, tti_cli_line_fn *fn, void *arg)
{
    FILE *file = NULL;
    TT_TRY(tti_cli_open_input(path, &file));
    const char *name = tti_cli_input_name(path);
    char *line = NULL, where[WHERE_BYTES];
    size_t capacity = 0;
    ssize_t n;
    tt_status status = TT_OK;
    for (int64_t number = 1; status == TT_OK && (n = getline(&line, &capacity, file)) >= 0;
         number++) {
        snprintf(where, sizeof(where), "%.400s line %lld", name, (long long)number);
        status = fn(arg, line, (size_t)n, where);
    }
    if (status == TT_OK && ferror(file)) {
        status = TT_FAIL(TT_ERR_IO, "%s cannot be read: %s", name, strerror(errno));
    }
    free(line);
    tti_cli_close_input(file);
    return status;
}

tt_status tti_cli_read_all(FILE *file, const char *name, tt_text *text)
{
    char piece[READ_BYTES];
    for (;;) {
        wait_for_input(file);
        ssize_t n = read(fileno(file), piece, sizeof(piece));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        const tt_status code = errno == EISDIR ? TT_ERR_FILE : TT_ERR_IO;
        TT_CHECK(n >= 0, code, "%s cannot be read: %s", name, strerror(errno));
        if (n == 0) {
            return TT_OK;
        }
        TT_TRY(tt_text_append(text, piece, (size_t)n));
    }
}

tt_status tti_cli_parse_ids(const char *text, size_t n, int64_t limit, tt_status code,
                            const char *where, tt_ids *ids)
{
    size_t at = 0, end = n;
    while (at < end && isspace((unsigned char)text[at])) {
        at++;
    }
    while (end > at && isspace((unsigned char)text[end - 1])) {
        end--;
    }
    if (end - at >= 2 && text[at] == '[' && text[end - 1] == ']') {
        at++;
        end--;
    }
    size_t n_before = ids->n;
    bool after_comma = false; /* an id must follow */
    while (at < end) {
        if (isspace((unsigned char)text[at])) {
            at++;
            continue;
        }
        if (text[at] == ',') {
            TT_CHECK(!after_comma && ids->n > n_before, code, "%s: no id before a comma", where);
            after_comma = true;
            at++;
            continue;
        }
        after_comma = false;
        size_t begin = at;
        int64_t id = 0;
        while (at < end && text[at] >= '0' && text[at] <= '9' && id <= INT32_MAX) {
            id = id * 10 + (text[at] - '0');
            at++;
        }
        bool whole = at > begin && id <= INT32_MAX &&
                     (at == end || text[at] == ',' || isspace((unsigned char)text[at]));
        if (!whole) {
            size_t shown = begin;
            while (shown < end && shown - begin < SHOWN_BYTES && text[shown] != ',' &&
                   isprint((unsigned char)text[shown]) && text[shown] != ' ') {
                shown++;
            }
            return TT_FAIL(code, "%s: '%.*s' is no token id", where, (int)(shown - begin),
                           text + begin);
        }
        TT_CHECK(limit == 0 || id < limit, code, "%s: id %lld is outside the vocabulary of %lld",
                 where, (long long)id, (long long)limit);
        int32_t small = (int32_t)id;
        TT_TRY(tt_ids_append(ids, &small, 1));
    }
    TT_CHECK(!after_comma, code, "%s: no id after the last comma", where);
    return TT_OK;
}

tt_status tti_cli_json_ids(const json_t *array, int64_t limit, const char *where, tt_ids *ids)
{
    TT_CHECK(json_is_array(array), TT_ERR_FILE, "%s: ids must be a list of numbers", where);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        TT_CHECK(json_is_integer(item), TT_ERR_FILE, "%s: id %zu is no whole number", where, i);
        json_int_t id = json_integer_value(item);
        TT_CHECK(id >= 0 && id <= INT32_MAX && (limit == 0 || id < limit), TT_ERR_FILE,
                 "%s: id %lld is outside the vocabulary of %lld", where, (long long)id,
                 (long long)(limit ? limit : INT32_MAX));
        int32_t small = (int32_t)id;
        TT_TRY(tt_ids_append(ids, &small, 1));
    }
    return TT_OK;
}

tt_status tti_cli_parse_json(const char *text, size_t n, const char *where, json_t **json_out)
{
    json_error_t error;
    json_t *json =
        json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    TT_CHECK(json, TT_ERR_FILE, "%s is not JSON: %s", where, error.text);
    *json_out = json;
    return TT_OK;
}

/* The conversation of a line of --prompts or of tokenize's input, as the library takes it: the
 * object's own keys of a conversation, or a bare list of messages. */
static tt_status conversation_text(const json_t *source, const json_t *defaults, const char *where,
                                   char **text_out)
{
    json_t *request =
        json_is_array(source) ? json_pack("{s:O}", "messages", source) : json_object();
    bool bad = !request;
    for (int k = 0; !bad && json_is_object(source) && tti_cli_conversation_keys[k]; k++) {
        json_t *value = json_object_get(source, tti_cli_conversation_keys[k]);
        bad = value && json_object_set(request, tti_cli_conversation_keys[k], value) != 0;
    }
    if (!bad && defaults) {
        json_t *own = json_object_get(request, "chat_template_kwargs");
        json_t *both = json_copy((json_t *)(uintptr_t)defaults);
        bad = !both || (json_is_object(own) && json_object_update(both, own) != 0) ||
              json_object_set(request, "chat_template_kwargs", both) != 0;
        json_decref(both);
    }
    *text_out = bad ? NULL : json_dumps(request, JSON_COMPACT);
    json_decref(request);
    TT_CHECK(*text_out, TT_ERR_NOMEM, "%s: no memory for a conversation", where);
    return TT_OK;
}

const char *const tti_cli_conversation_keys[] = {
    "messages", "tools", "documents", "add_generation_prompt", "chat_template_kwargs", "now", NULL};

/* Says where the conversation stood. */
static tt_status tell_where(tt_status status, const char *where)
{
    char message[TT_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof(message), "%s", tt_status_message());
    return status == TT_ERR_REQUEST ? TT_FAIL(status, "%s: %s", where, message) : status;
}

tt_status tti_cli_encode_conversation(const tt_tokenizer *tokenizer, const json_t *source,
                                      const json_t *defaults, const char *where, tt_ids *ids)
{
    char *text;
    TT_TRY(conversation_text(source, defaults, where, &text));
    tt_status status = tt_tokenizer_encode_chat_json(tokenizer, text, strlen(text), ids);
    free(text);
    return status == TT_OK ? TT_OK : tell_where(status, where);
}

tt_status tti_cli_render_conversation(const tt_tokenizer *tokenizer, const json_t *source,
                                      const char *where, tt_text *rendered)
{
    char *text;
    TT_TRY(conversation_text(source, NULL, where, &text));
    tt_status status = tt_tokenizer_render_chat_json(tokenizer, text, strlen(text), rendered);
    free(text);
    return status == TT_OK ? TT_OK : tell_where(status, where);
}

void tti_cli_print_ids_json(FILE *out, const int32_t *ids, size_t n)
{
    fputc('[', out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s%d", i ? "," : "", ids[i]);
    }
    fputc(']', out);
}

json_t *tti_cli_ids_to_json(const int32_t *ids, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < n; i++) {
        if (json_array_append_new(array, json_integer(ids[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}
