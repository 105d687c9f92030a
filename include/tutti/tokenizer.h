/* tokenizer.h - text to token ids and back, from a tokenizer.json or a tiktoken.model.
 *
 * Encoding follows the file: added tokens, normaliser, pre-tokeniser steps, BPE (byte-level or with
 * byte fallback), post-processor. Decoding follows its decoder list. Source: the tokenizer.json
 * format of the Hugging Face tokenizers library; the vocabulary files of the tiktoken library.
 * Hostile input is expected: no recursion over the text, PCRE2 match limits, linear time in
 * practice.
 * Threads: a tokenizer is const after create, any number of threads may encode and decode; a
 * tt_detokenizer belongs to one thread at a time. MPI: none. */
#ifndef TUTTI_TOKENIZER_H
#define TUTTI_TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/status.h"

typedef struct tt_tokenizer tt_tokenizer; /* opaque */

/* A growing array of ids; all-zero is empty. Owned by the caller: tt_ids_fini. */
typedef struct tt_ids {
    int32_t *id; /* id[n] */
    size_t n;
    size_t capacity;
} tt_ids;
TT_API tt_status tt_ids_append(tt_ids *ids, const int32_t *more, size_t n);
TT_API void tt_ids_fini(tt_ids *ids);

/* A growing, NUL-terminated byte string; all-zero is empty. Owned by the caller: tt_text_fini. */
typedef struct tt_text {
    char *bytes; /* bytes[n + 1], bytes[n] = 0; NULL while nothing was ever added */
    size_t n;
    size_t capacity;
} tt_text;
TT_API tt_status tt_text_append(tt_text *text, const char *bytes, size_t n);
TT_API void tt_text_fini(tt_text *text);

/* Reads DIR/tokenizer.json, or where there is none DIR/tiktoken.model (Kimi-K2's), and, where
 * present, DIR/tokenizer_config.json (bos, eos, add_bos_token, chat_template) and
 * DIR/chat_template.jinja. `path` may also name the vocabulary's file itself, or a GGUF file or a
 * folder with one; in a folder of safetensors that is tokenizer.gguf (convert.h), where there is
 * nothing else.
 * Errors: TT_ERR_FILE naming the file and the fault; TT_ERR_UNSUPPORTED naming an unknown
 * component. */
TT_API tt_status tt_tokenizer_create(const char *path, tt_tokenizer **tokenizer_out);
TT_API void tt_tokenizer_destroy(tt_tokenizer **tokenizer);
/* True if tt_tokenizer_create would find something to read at `path`: a tokenizer.json or
 * tiktoken.model, or in a GGUF file the key tokenizer.ggml.tokens. Says nothing of whether it can
 * be read. Errors: TT_ERR_FILE for a path that does not exist or a broken GGUF file. */
TT_API tt_status tt_tokenizer_exists(const char *path, bool *exists_out);

typedef enum tt_encode_flags {
    TT_ENCODE_PLAIN = 0,
    TT_ENCODE_SPECIAL = 1, /* add what the post-processor and add_bos_token ask for; a text that
                            * already begins with the BOS token gets no second one */
    TT_ENCODE_LITERAL = 2  /* special tokens spelled in the text stay text (users' words inside
                            * a chat template) */
} tt_encode_flags;

/* Appends the ids of text[0..n) (UTF-8; invalid bytes become U+FFFD as the reference library's
 * input would) to ids.
 * Errors: TT_ERR_REQUEST if a pattern exceeds its match limit; TT_ERR_NOMEM. On error ids holds
 * what it held. */
TT_API tt_status tt_tokenizer_encode(const tt_tokenizer *tokenizer, const char *text, size_t n,
                                     unsigned flags, tt_ids *ids);

/* Appends the text of ids to text: valid UTF-8 always (invalid sequences become U+FFFD).
 * skip_special drops special tokens.
 * Errors: TT_ERR_REQUEST for an id that the tokenizer does not know. */
TT_API tt_status tt_tokenizer_decode(const tt_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                     bool skip_special, tt_text *text);

/* The bytes of one id as they stand in the vocabulary (not NUL-terminated); NULL if unknown. Valid
 * as long as the tokenizer. */
TT_API const char *tt_tokenizer_id_bytes(const tt_tokenizer *tokenizer, int32_t id, size_t *n_out);
/* The id of an added token by its exact content; -1 if there is none. */
TT_API int32_t tt_tokenizer_special_id(const tt_tokenizer *tokenizer, const char *content);
TT_API bool tt_tokenizer_id_is_special(const tt_tokenizer *tokenizer, int32_t id);
/* One more than the largest known id. Ids between may be unknown. */
TT_API int32_t tt_tokenizer_n_ids(const tt_tokenizer *tokenizer);
TT_API bool tt_tokenizer_id_is_known(const tt_tokenizer *tokenizer, int32_t id);
/* -1 if the files name none. */
TT_API int32_t tt_tokenizer_bos_id(const tt_tokenizer *tokenizer);
TT_API int32_t tt_tokenizer_eos_id(const tt_tokenizer *tokenizer);

/* ---- streaming: text as ids come, never half a character ---- */
typedef struct tt_detokenizer tt_detokenizer; /* opaque */
/* The concatenation of all pushes and the final flush equals tt_tokenizer_decode of all ids. */
TT_API tt_status tt_detokenizer_create(const tt_tokenizer *tokenizer, bool skip_special,
                                       tt_detokenizer **detokenizer_out);
TT_API void tt_detokenizer_destroy(tt_detokenizer **detokenizer);
/* Appends what became certain with this id to text. An incomplete UTF-8 sequence is held back; a
 * byte that shows it to be broken releases U+FFFD at once. */
TT_API tt_status tt_detokenizer_push(tt_detokenizer *detokenizer, int32_t id, tt_text *text);
/* Appends what was held back (broken: as U+FFFD) and starts anew. */
TT_API tt_status tt_detokenizer_flush(tt_detokenizer *detokenizer, tt_text *text);

/* ---- chat ---- */
typedef struct tt_chat_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* UTF-8 */
} tt_chat_message;
/* Appends the ids of a conversation, rendered with the checkpoint's chat template, with the
 * assistant's turn opened. What the messages say stays text: special tokens spelled inside a role
 * or content are encoded as text (TT_ENCODE_LITERAL).
 * Errors: TT_ERR_FILE (no template, or a broken one), TT_ERR_UNSUPPORTED (a construct that the
 * interpreter does not know, by name and line), TT_ERR_REQUEST (the template refuses these
 * messages, in its own words; or a limit on its steps, memory and output), TT_ERR_NOMEM. On error
 * ids holds what it held. */
TT_API tt_status tt_tokenizer_encode_chat(const tt_tokenizer *tokenizer,
                                          const tt_chat_message *messages, size_t n_messages,
                                          tt_ids *ids);
/* The same of a conversation in JSON, json[n]: a list of messages, or an object with
 *   messages               a list of objects with role, content (text, parts or null) and whatever else the template reads
 *                          (tool_calls, tool_call_id, name, reasoning_content ..)
 *   tools, documents       lists that are handed to the template; default null
 *   add_generation_prompt  default true
 *   chat_template_kwargs   an object of at most 256 variables of the template, as enable_thinking or reasoning_effort
 *   now                    seconds since 1970: the date that templates print, in UTC; default the clock, in local time.
 * All strings in it count as the users' words: none of them becomes a special token.
 * Errors: as above; TT_ERR_REQUEST naming what is wrong in the JSON. */
TT_API tt_status tt_tokenizer_encode_chat_json(const tt_tokenizer *tokenizer, const char *json,
                                               size_t n, tt_ids *ids);
/* Appends the rendered text instead of its ids. */
TT_API tt_status tt_tokenizer_render_chat_json(const tt_tokenizer *tokenizer, const char *json,
                                               size_t n, tt_text *text);
TT_API bool tt_tokenizer_has_chat_template(const tt_tokenizer *tokenizer);

#endif
