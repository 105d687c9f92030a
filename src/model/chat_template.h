/* chat_template.h - renders a chat template over JSON, inside room model.
 *
 * A template is a program that a stranger wrote: it runs in a sandbox that knows strings, numbers,
 * lists and dicts, changes nothing outside, and is bounded in steps, depth, memory and output.
 * Its language is the part of Jinja that checkpoints use, with the settings of the reference
 * library: trim_blocks, lstrip_blocks, break and continue, generation blocks, tojson without
 * ASCII escapes, raise_exception, strftime_now. Source: Jinja 3.1 template designer documentation.
 * Threads: any; nothing is shared. MPI: none. */
#ifndef TUTTI_SRC_MODEL_CHAT_TEMPLATE_H
#define TUTTI_SRC_MODEL_CHAT_TEMPLATE_H
#include "tokenizer_internal.h"

/* 0 in a field: the default. */
typedef struct tti_chat_limits {
    int64_t max_steps;
    size_t max_output_bytes, max_memory_bytes;
    int max_depth; /* of nested evaluation, macros calling macros included */
} tti_chat_limits;

/* A template's own word for a special token, as "bos_token". */
typedef struct tti_chat_token {
    const char *name, *text; /* text NULL: undefined */
} tti_chat_token;

typedef struct tti_chat_input {
    const json_t *variables; /* an object: messages, tools, add_generation_prompt and whatever else
                              * the template may ask for; its strings count as users' words */
    const tti_chat_token *token; /* token[n_tokens]: strings that count as the template's */
    size_t n_tokens;
    bool has_now; /* now_s is the time of strftime_now, in UTC; else the clock, in local time */
    int64_t now_s;
    tti_chat_limits limits;
} tti_chat_input;

/* Renders source[n] (UTF-8). text and mark grow alike: mark.bytes[i] = 1 where text.bytes[i] came
 * from the variables. Errors: TT_ERR_FILE (not a template), TT_ERR_UNSUPPORTED (a construct that is
 * not known, by name), TT_ERR_REQUEST (what the template refuses by raise_exception, a fault at run
 * time, a limit), TT_ERR_NOMEM; each names the line. On error text and mark may hold a part. */
tt_status tti_chat_render(const char *source, size_t n, const tti_chat_input *input, tt_text *text,
                          tt_text *mark);

#endif
