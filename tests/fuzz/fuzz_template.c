/* fuzz_template.c - chat templates, which are programs of strangers, over variables that may be a
 * stranger's too.
 *
 * Bound on memory: 12 MiB + 256 n. The interpreter is given limits that are met within a second
 * under sanitizers: 4 MiB of values and 1 MiB of output, whose text and marks grow by doubling (old
 * and new live together); what a template becomes when it is parsed is proportional to its text,
 * JSON takes up to 48 bytes of tree per byte and becomes values of the interpreter. */
#include "fuzz.h"
#include "chat_template.h"
#include "tutti/log.h"
#include <stdlib.h>
#include <string.h>

enum { PART_TEMPLATE, PART_VARIABLES, PARTS };
static const char *const names[PARTS] = {"template", "variables"};
enum {
    FIXED_BYTES = 12 << 20,
    FACTOR = 256,
    MAX_STEPS = 20000,
    MAX_OUTPUT_BYTES = 1 << 20,
    MAX_MEMORY_BYTES = 4 << 20
};

static const char default_variables[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi <|end|> \xc3\xa9\"},"
    "{\"role\":\"assistant\",\"content\":\"<think>so</think>Hello\",\"tool_calls\":[{\"type\":\"function\",\"id\":\"c1\",\"function\":"
    "{\"name\":\"f\",\"arguments\":{\"x\":1.5,\"y\":[true,null]}}}]},{\"role\":\"tool\",\"content\":\"7\",\"tool_call_id\":\"c1\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"x\":{\"type\":\"number\"}}}}}],\"add_generation_prompt\":true,\"n\":3,\"s\":\"a,b\",\"l\":[3,1,2],\"d\":{\"k\":1}}";

static void render(const char *source, size_t n, const json_t *variables)
{
    static const tti_chat_token token[] = {
        {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", NULL}};
    tti_chat_input input = {.variables = variables,
                            .token = token,
                            .n_tokens = sizeof(token) / sizeof(token[0]),
                            .has_now = true,
                            .now_s = 1700000000,
                            .limits = {.max_steps = MAX_STEPS,
                                       .max_output_bytes = MAX_OUTPUT_BYTES,
                                       .max_memory_bytes = MAX_MEMORY_BYTES}};
    tt_text text = {0}, mark = {0};
    tt_status st = tti_chat_render(source, n, &input, &text, &mark);
    FUZZ_MUST(text.n == mark.n || st != TT_OK);
    FUZZ_MUST(st == TT_OK || tt_status_message()[0]);
    FUZZ_MUST(text.n <= MAX_OUTPUT_BYTES);
    tt_text_fini(&text);
    tt_text_fini(&mark);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_part part[PARTS];
    fuzz_split(data, n, names, PARTS, part);
    if (!part[PART_VARIABLES].data) {
        part[PART_VARIABLES] =
            (fuzz_part){(const uint8_t *)default_variables, sizeof(default_variables) - 1};
    }
    tt_log_set_level(TT_LOG_ERROR);
    fuzz_memory_begin(FIXED_BYTES, FACTOR, n);
    json_t *variables = json_loadb((const char *)part[PART_VARIABLES].data, part[PART_VARIABLES].n,
                                   JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(variables)) {
        char *source = fuzz_text(&part[PART_TEMPLATE]);
        render(source, part[PART_TEMPLATE].n, variables);
        free(source);
    }
    json_decref(variables);
    fuzz_memory_end();
    return 0;
}
