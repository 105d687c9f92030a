/* tokenize.c - text to ids and back on stdin and stdout; needs nothing but tokenizer.json, and no
 * MPI.
 *
 * One item is the whole of stdin or, with --jsonl, one line. An item goes in as raw text, ids or
 * JSON, becomes ids or text, and is printed in the form that was asked for. */
#include "config.h"
#include "text_in.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli.h"

/* A conversation here is nothing else besides, so a key that it does not have is a mistake. */
static tt_status check_keys(json_t *json, const char *where)
{
    const char *key;
    json_t *value;
    TT_CHECK(json_is_array(json) || json_is_object(json), TT_ERR_FILE,
             "%s: a list of messages, or an object with such a list, is expected", where);
    json_object_foreach(json, key, value)
    {
        bool known = false;
        for (int k = 0; tti_cli_conversation_keys[k]; k++) {
            known = known || strcmp(key, tti_cli_conversation_keys[k]) == 0;
        }
        TT_CHECK(known, TT_ERR_FILE,
                 "%s: '%.64s' is no key of a conversation; variables of the template go into "
                 "chat_template_kwargs",
                 where, key);
    }
    return TT_OK;
}

/* The ids of one item of text. */
static tt_status encode_item(const tti_cli_options *options, const tt_tokenizer *tokenizer,
                             const char *text, size_t n, const char *where, tt_ids *ids)
{
    unsigned flags = options->special ? TT_ENCODE_SPECIAL : TT_ENCODE_PLAIN;
    if (!options->chat_list && !options->jsonl) {
        return tt_tokenizer_encode(tokenizer, text, n, flags, ids);
    }
    json_t *json = NULL;
    TT_TRY(tti_cli_parse_json(text, n, where, &json));
    tt_status status;
    if (options->chat_list) {
        status = check_keys(json, where);
        if (status == TT_OK) {
            status = tti_cli_encode_conversation(tokenizer, json, NULL, where, ids);
        }
    } else if (json_is_string(json)) {
        status = tt_tokenizer_encode(tokenizer, json_string_value(json), json_string_length(json),
                                     flags, ids);
    } else {
        status = TT_FAIL(TT_ERR_FILE, "%s: a JSON string is expected", where);
    }
    json_decref(json);
    return status;
}

/* The text of one item of ids. */
static tt_status decode_item(const tti_cli_options *options, const tt_tokenizer *tokenizer,
                             const char *text, size_t n, const char *where, tt_text *decoded)
{
    tt_ids ids = {0};
    tt_status status;
    if (options->jsonl) {
        json_t *json = NULL;
        status = tti_cli_parse_json(text, n, where, &json);
        if (status == TT_OK) {
            status = tti_cli_json_ids(json, 0, where, &ids);
            json_decref(json);
        }
    } else {
        status = tti_cli_parse_ids(text, n, 0, TT_ERR_FILE, where, &ids);
    }
    if (status == TT_OK) {
        status = tt_tokenizer_decode(tokenizer, ids.id, ids.n, options->skip_special, decoded);
    }
    tt_ids_fini(&ids);
    return status;
}

/* The text that the chat template makes of one item. */
static tt_status render_item(const tt_tokenizer *tokenizer, const char *text, size_t n,
                             const char *where, tt_text *rendered)
{
    json_t *json = NULL;
    TT_TRY(tti_cli_parse_json(text, n, where, &json));
    tt_status status = check_keys(json, where);
    if (status == TT_OK) {
        status = tti_cli_render_conversation(tokenizer, json, where, rendered);
    }
    json_decref(json);
    return status;
}

static void print_encoded(const tti_cli_options *options, const tt_ids *ids)
{
    if (options->jsonl) {
        tti_cli_print_ids_json(stdout, ids->id, ids->n);
    } else if (options->json) {
        fputs("{\"ids\":", stdout);
        tti_cli_print_ids_json(stdout, ids->id, ids->n);
        fputc('}', stdout);
    } else {
        for (size_t i = 0; i < ids->n; i++) {
            printf("%s%d", i ? " " : "", ids->id[i]);
        }
    }
    fputc('\n', stdout);
}

static tt_status print_decoded(const tti_cli_options *options, const tt_text *text)
{
    if (!options->jsonl && !options->json) {
        fwrite(text->n ? text->bytes : "", 1, text->n, stdout); /* the bytes and nothing else */
        return TT_OK;
    }
    json_t *string = json_stringn(text->n ? text->bytes : "", text->n);
    TT_CHECK(string, TT_ERR_NOMEM, "no memory for a text of %zu bytes", text->n);
    if (!options->jsonl) {
        fputs("{\"text\":", stdout);
    }
    int bad = json_dumpf(string, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(string);
    if (!options->jsonl) {
        fputc('}', stdout);
    }
    fputc('\n', stdout);
    TT_CHECK(!bad, TT_ERR_IO, "stdout cannot be written");
    return TT_OK;
}

static tt_status convert_item(const tti_cli_options *options, const tt_tokenizer *tokenizer,
                              const char *text, size_t n, const char *where)
{
    tt_status status;
    if (options->decode || options->text) {
        tt_text decoded = {0};
        status = options->decode ? decode_item(options, tokenizer, text, n, where, &decoded)
                                 : render_item(tokenizer, text, n, where, &decoded);
        if (status == TT_OK) {
            status = print_decoded(options, &decoded);
        }
        tt_text_fini(&decoded);
    } else {
        tt_ids ids = {0};
        status = encode_item(options, tokenizer, text, n, where, &ids);
        if (status == TT_OK) {
            print_encoded(options, &ids);
        }
        tt_ids_fini(&ids);
    }
    return status;
}

/* What a line of --jsonl is converted with. */
typedef struct converting {
    const tti_cli_options *options;
    const tt_tokenizer *tokenizer;
} converting;

static tt_status convert_line(void *arg, const char *text, size_t n, const char *where)
{
    const converting *with = arg;
    return convert_item(with->options, with->tokenizer, text, n, where);
}

static tt_status convert_lines(const tti_cli_options *options, const tt_tokenizer *tokenizer)
{
    struct stat input;
    if (fstat(STDIN_FILENO, &input) == 0 && !S_ISREG(input.st_mode)) {
        setvbuf(stdout, NULL, _IOLBF, 0); /* a partner on a pipe waits for each answer */
    }
    converting with = {options, tokenizer};
    return tti_cli_each_line("-", convert_line, &with);
}

static tt_status tokenize(const tti_cli_options *options, const char *path)
{
    TT_CHECK(!(options->decode && options->chat_list), TT_ERR_USAGE,
             "--decode and --chat do not go together");
    TT_CHECK(options->chat_list || !options->text, TT_ERR_USAGE,
             "--text prints what --chat makes, so give that too");
    tt_tokenizer *tokenizer = NULL;
    TT_TRY(tt_tokenizer_create(path, &tokenizer));
    tt_status status;
    if (options->jsonl) {
        status = convert_lines(options, tokenizer);
    } else {
        tt_text text = {0};
        status = tti_cli_read_all(stdin, "stdin", &text);
        if (status == TT_OK) {
            status = convert_item(options, tokenizer, text.n ? text.bytes : "", text.n, "stdin");
        }
        tt_text_fini(&text);
    }
    tt_tokenizer_destroy(&tokenizer);
    return status == TT_OK ? tti_cli_flush_stdout() : status;
}

int tti_cli_tokenize(const tti_cli_call *call)
{
    tt_status status =
        call->n_words == 1
            ? tokenize(call->options, call->word[0])
            : TT_FAIL(TT_ERR_USAGE, "tokenize needs MODEL: tutti tokenize models/tiny-moe < text");
    return status == TT_OK ? 0 : tti_cli_fail_alone(status);
}
