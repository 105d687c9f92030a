/* text_in.h - reading texts, id lists and JSON lines from files and stdin.
 * Errors name the file ("stdin" for "-") and the line. MPI: none. */
#ifndef TTI_CLI_TEXT_IN_H
#define TTI_CLI_TEXT_IN_H
#include <jansson.h>
#include <stdio.h>
#include "tutti/tokenizer.h"

/* "-" is stdin. Errors: TT_ERR_FILE. */
tt_status tti_cli_open_input(const char *path, FILE **file_out);
/* Closes unless it is stdin. */
void tti_cli_close_input(FILE *file);
/* The name for messages. */
const char *tti_cli_input_name(const char *path);
/* fn(arg) is called while input is waited for, and by tti_cli_still_here between pieces of long
 * work: other ranks may ask meanwhile whether this one is alive. */
void tti_cli_while_waiting(void (*fn)(void *arg), void *arg);
void tti_cli_still_here(void);
/* Calls fn for each line text[n], NUL-terminated, of a file ("-" is stdin); `where` ("FILE line 3")
 * is for its messages. Stops at its first error. Errors: TT_ERR_FILE, TT_ERR_IO, fn's. */
typedef tt_status tti_cli_line_fn(void *arg, const char *text, size_t n, const char *where);
tt_status tti_cli_each_line(const char *path, tti_cli_line_fn *fn, void *arg);
/* Appends all that is left of the file (of which nothing was read through stdio yet) to text.
 * Errors: TT_ERR_IO, TT_ERR_NOMEM. */
tt_status tti_cli_read_all(FILE *file, const char *name, tt_text *text);

/* Appends the ids of a list parted by commas or white space; a JSON array's brackets are allowed
 * around it. Ids lie in [0, limit); limit 0 means only that they are int32. `where` is for
 * messages: "--ids", "FILE line 3". Errors: `code`. */
tt_status tti_cli_parse_ids(const char *text, size_t n, int64_t limit, tt_status code,
                            const char *where, tt_ids *ids);
/* Appends the ids of a JSON array. Errors: TT_ERR_FILE. */
tt_status tti_cli_json_ids(const json_t *array, int64_t limit, const char *where, tt_ids *ids);
/* Parses one JSON value (any type) from text[n]; a new reference. Errors: TT_ERR_FILE with
 * jansson's words. */
tt_status tti_cli_parse_json(const char *text, size_t n, const char *where, json_t **json_out);

/* The keys of a conversation's object (see tt_tokenizer_encode_chat_json), NULL behind. */
extern const char *const tti_cli_conversation_keys[];
/* Appends the ids of a conversation: a JSON list of messages, or an object with such keys, whose
 * others are ignored. defaults (an object or NULL) are variables of the template that it may
 * override. Errors: those of tt_tokenizer_encode_chat_json, with `where`. */
tt_status tti_cli_encode_conversation(const tt_tokenizer *tokenizer, const json_t *source,
                                      const json_t *defaults, const char *where, tt_ids *ids);
/* Appends its text instead. */
tt_status tti_cli_render_conversation(const tt_tokenizer *tokenizer, const json_t *source,
                                      const char *where, tt_text *rendered);
/* [1,2,3] as text on out. */
void tti_cli_print_ids_json(FILE *out, const int32_t *ids, size_t n);
/* A JSON array; a new reference or NULL. */
json_t *tti_cli_ids_to_json(const int32_t *ids, size_t n);

#endif
