/* prompts.c - gathers prompts: -p, --chat, --ids, --prompts in this order, or the whole of stdin.
 *
 * Settings come from four places, later ones win: off; generation_config.json if it says do_sample;
 * options; the prompt's own line. */
#include "config.h"
#include "prompts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "text_in.h"
#include "tutti/log.h"
#include "tutti/memory.h"

enum {
    WHERE_BYTES = 512,
    REFERENCE_TOP_K =
        50 /* what the transformers library takes when a sampling model names no top_k */
};

static const char example[] =
    "no prompt: give one with -p TEXT, --chat TEXT, --ids 1,2,3, --prompts FILE or "
    "on stdin, as in tutti run --chat 'What is hwloc?'";

static bool uses_stdin(const tti_cli_options *options)
{
    return options->prompt.n == 0 && options->chat.n == 0 && options->ids.n == 0 &&
           !options->prompts;
}

/* A seed that nobody chose. It is printed with the figures, and JSON takes 53 bits without loss. */
static uint64_t fresh_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed)) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20 ^ (uint64_t)getpid() << 40;
    }
    return seed & ((UINT64_C(1) << 53) - 1);
}

static tt_sampling sampling_defaults(const tti_cli_options *options,
                                     const tt_generation *generation, uint64_t seed)
{
    tt_sampling sampling = {.temperature = 0, .top_p = 1, .min_p = 0, .top_k = 0, .seed = seed};
    if (generation->do_sample == 1) {
        sampling.temperature = isnan(generation->temperature) ? 1 : generation->temperature;
        sampling.top_p = isnan(generation->top_p) ? 1 : generation->top_p;
        sampling.min_p = isnan(generation->min_p) ? 0 : generation->min_p;
        sampling.top_k = generation->top_k < 0 ? REFERENCE_TOP_K : generation->top_k;
    }
    if (tt_options_is_set(options, "temperature")) {
        sampling.temperature = options->temperature;
    }
    if (tt_options_is_set(options, "top-p")) {
        sampling.top_p = options->top_p;
    }
    if (tt_options_is_set(options, "min-p")) {
        sampling.min_p = options->min_p;
    }
    if (tt_options_is_set(options, "top-k")) {
        sampling.top_k = options->top_k;
    }
    bool narrowed = tt_options_is_set(options, "top-p") || tt_options_is_set(options, "top-k") ||
                    tt_options_is_set(options, "min-p");
    if (narrowed && sampling.temperature <= TT_GREEDY_BELOW && !options->prompts) {
        tt_log(TT_LOG_WARN, "--top-k, --top-p and --min-p do nothing at temperature 0: the most "
                            "likely token is taken; give --temperature too");
    }
    return sampling;
}

static tt_status check_sampling(const tt_sampling *s, const char *where, tt_status code)
{
    TT_CHECK(isfinite(s->temperature) && s->temperature >= 0 && s->temperature <= 1e6, code,
             "%s: temperature %g is outside 0 .. 1e6", where, s->temperature);
    TT_CHECK(s->top_p >= 0 && s->top_p <= 1, code, "%s: top_p %g is outside 0 .. 1", where,
             s->top_p);
    TT_CHECK(s->min_p >= 0 && s->min_p <= 1, code, "%s: min_p %g is outside 0 .. 1", where,
             s->min_p);
    TT_CHECK(s->top_k >= 0, code, "%s: top_k %lld is below 0", where, (long long)s->top_k);
    return TT_OK;
}

/* Takes over ids (and empties them) on success. */
static tt_status add_prompt(tti_cli_prompts *prompts, tt_ids *ids, int64_t max_new,
                            const tt_sampling *sampling, int64_t context, const char *where)
{
    TT_CHECK(ids->n > 0, TT_ERR_REQUEST, "%s: the prompt is empty", where);
    TT_CHECK((int64_t)ids->n <= context, TT_ERR_REQUEST,
             "%s: the prompt has %zu tokens, more than the context of %lld", where, ids->n,
             (long long)context);
    tti_cli_prompt *item =
        tt_memory_grow(prompts->item, &prompts->capacity, prompts->n, sizeof(*item));
    TT_CHECK(item, TT_ERR_NOMEM, "no memory for more than %zu prompts", prompts->n);
    prompts->item = item;
    prompts->item[prompts->n++] =
        (tti_cli_prompt){.ids = *ids, .max_new = max_new, .sampling = *sampling};
    memset(ids, 0, sizeof(*ids));
    return TT_OK;
}

static tt_status need_tokenizer(const tt_tokenizer *tokenizer, const char *where)
{
    TT_CHECK(tokenizer, TT_ERR_FILE,
             "%s: this model has no tokenizer, so prompts can only be given as ids (--ids)", where);
    return TT_OK;
}

/* ---- lines of --prompts ---- */

typedef struct gather {
    const tti_cli_options *options;
    const tt_tokenizer *tokenizer;
    int64_t V, context;
    tt_sampling sampling;
    json_t *chat_args; /* of --chat-args, or NULL */
    tti_cli_prompts *prompts;
} gather;

static tt_status get_number(const json_t *line, const char *key, const char *where, double *value)
{
    const json_t *item = json_object_get(line, key);
    if (item) {
        TT_CHECK(json_is_number(item), TT_ERR_FILE, "%s: %s must be a number", where, key);
        *value = json_number_value(item);
    }
    return TT_OK;
}

static tt_status get_integer(const json_t *line, const char *key, const char *where, int64_t least,
                             int64_t most, int64_t *value)
{
    const json_t *item = json_object_get(line, key);
    if (item) {
        TT_CHECK(json_is_integer(item) && json_integer_value(item) >= least &&
                     json_integer_value(item) <= most,
                 TT_ERR_FILE, "%s: %s must be a whole number from %lld to %lld", where, key,
                 (long long)least, (long long)most);
        *value = json_integer_value(item);
    }
    return TT_OK;
}

static void warn_of_unknown_keys(json_t *line, const char *where)
{
    static const char *const known[] = {"prompt",     "ids",   "messages",    "n",
                                        "max_tokens", "seed",  "temperature", "top_p",
                                        "top_k",      "min_p", NULL};
    bool chat = json_object_get(line, "messages") != NULL;
    const char *key;
    json_t *value;
    json_object_foreach(line, key, value)
    {
        bool found = false;
        for (int i = 0; known[i]; i++) {
            found = found || strcmp(key, known[i]) == 0;
        }
        for (int i = 0; chat && tti_cli_conversation_keys[i]; i++) {
            found = found || strcmp(key, tti_cli_conversation_keys[i]) == 0;
        }
        if (!found) {
            tt_log(TT_LOG_WARN, "%s: key '%s' is not known and not used", where, key);
        }
    }
}

static tt_status encode_line(const gather *g, const json_t *line, const char *where, tt_ids *ids)
{
    const json_t *prompt = json_object_get(line, "prompt");
    const json_t *given = json_object_get(line, "ids");
    const json_t *messages = json_object_get(line, "messages");
    TT_CHECK((prompt != NULL) + (given != NULL) + (messages != NULL) == 1, TT_ERR_FILE,
             "%s: exactly one of prompt, ids and messages is needed", where);
    if (given) {
        return tti_cli_json_ids(given, g->V, where, ids);
    }
    TT_TRY(need_tokenizer(g->tokenizer, where));
    if (messages) {
        return tti_cli_encode_conversation(g->tokenizer, line, g->chat_args, where, ids);
    }
    TT_CHECK(json_is_string(prompt), TT_ERR_FILE, "%s: prompt must be text", where);
    return tt_tokenizer_encode(g->tokenizer, json_string_value(prompt), json_string_length(prompt),
                               TT_ENCODE_SPECIAL, ids);
}

static tt_status add_line(const gather *g, json_t *line, const char *where)
{
    TT_CHECK(json_is_object(line), TT_ERR_FILE, "%s: an object is expected", where);
    warn_of_unknown_keys(line, where);
    tt_sampling sampling = g->sampling;
    int64_t max_new = g->options->n, seed = (int64_t)sampling.seed;
    TT_TRY(get_number(line, "temperature", where, &sampling.temperature));
    TT_TRY(get_number(line, "top_p", where, &sampling.top_p));
    TT_TRY(get_number(line, "min_p", where, &sampling.min_p));
    TT_TRY(get_integer(line, "top_k", where, 0, INT32_MAX, &sampling.top_k));
    TT_TRY(get_integer(line, "seed", where, 0, INT64_MAX, &seed));
    TT_CHECK(!json_object_get(line, "n") || !json_object_get(line, "max_tokens"), TT_ERR_FILE,
             "%s: n and max_tokens mean the same; give one of them", where);
    TT_TRY(get_integer(line, "n", where, -1, INT32_MAX, &max_new));
    TT_TRY(get_integer(line, "max_tokens", where, -1, INT32_MAX, &max_new));
    sampling.seed = (uint64_t)seed;
    TT_TRY(check_sampling(&sampling, where, TT_ERR_FILE));
    tt_ids ids = {0};
    tt_status status = encode_line(g, line, where, &ids);
    if (status == TT_OK) {
        status = add_prompt(g->prompts, &ids, max_new, &sampling, g->context, where);
    }
    tt_ids_fini(&ids);
    return status;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == 0;
}

static tt_status add_text_line(void *arg, const char *text, size_t n, const char *where)
{
    tti_cli_still_here();
    if (is_blank(text)) {
        return TT_OK;
    }
    json_t *line = NULL;
    TT_TRY(tti_cli_parse_json(text, n, where, &line));
    tt_status status = add_line(arg, line, where);
    json_decref(line);
    return status;
}

/* ---- single prompts ---- */

typedef enum prompt_kind { PROMPT_TEXT, PROMPT_CHAT, PROMPT_IDS } prompt_kind;

/* A conversation of one user's message, behind that of --system. */
static tt_status encode_message(const gather *g, const char *text, const char *where, tt_ids *ids)
{
    json_t *list = json_array();
    const char *system = g->options->system;
    bool bad =
        !list || (system && json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system",
                                                                  "content", system)) != 0);
    bad = bad || json_array_append_new(
                     list, json_pack("{s:s, s:s}", "role", "user", "content", text)) != 0;
    /* Words of a command line need not be UTF-8, and JSON is. */
    tt_status status = bad ? TT_FAIL(TT_ERR_USAGE, "%s: the text is not UTF-8", where) : TT_OK;
    if (status == TT_OK) {
        status = tti_cli_encode_conversation(g->tokenizer, list, g->chat_args, where, ids);
    }
    json_decref(list);
    return status;
}

static tt_status add_one(const gather *g, prompt_kind kind, const char *text, size_t n,
                         const char *where)
{
    tt_ids ids = {0};
    tt_status status = kind == PROMPT_IDS ? TT_OK : need_tokenizer(g->tokenizer, where);
    if (status == TT_OK && kind == PROMPT_IDS) {
        status = tti_cli_parse_ids(text, n, g->V, TT_ERR_USAGE, where, &ids);
        if (status == TT_OK && ids.n == 0) {
            status = TT_FAIL(TT_ERR_USAGE, "%s: the prompt is empty", where);
        }
    } else if (status == TT_OK && kind == PROMPT_CHAT) {
        status = encode_message(g, text, where, &ids);
    } else if (status == TT_OK) {
        status = tt_tokenizer_encode(g->tokenizer, text, n, TT_ENCODE_SPECIAL, &ids);
    }
    if (status == TT_OK) {
        status = add_prompt(g->prompts, &ids, g->options->n, &g->sampling, g->context, where);
    }
    tt_ids_fini(&ids);
    return status;
}

static tt_status add_list(const gather *g, prompt_kind kind, const tt_option_list *list,
                          const char *option)
{
    for (int i = 0; i < list->n; i++) {
        char where[WHERE_BYTES];
        if (list->n > 1) {
            snprintf(where, sizeof(where), "%s number %d", option, i + 1);
        } else {
            snprintf(where, sizeof(where), "%s", option);
        }
        TT_TRY(add_one(g, kind, list->item[i], strlen(list->item[i]), where));
    }
    return TT_OK;
}

static tt_status add_stdin(const gather *g)
{
    TT_CHECK(!isatty(STDIN_FILENO), TT_ERR_USAGE, "%s", example);
    tt_text text = {0};
    tt_status status = tti_cli_read_all(stdin, "stdin", &text);
    if (status == TT_OK && text.n == 0) {
        status = TT_FAIL(TT_ERR_USAGE, "%s", example);
    }
    if (status == TT_OK) {
        status = add_one(g, PROMPT_TEXT, text.bytes, text.n, "stdin");
    }
    tt_text_fini(&text);
    return status;
}

static tt_status read_chat_args(const tti_cli_options *options, json_t **args_out)
{
    *args_out = NULL;
    TT_CHECK(!options->system || options->chat.n > 0, TT_ERR_USAGE,
             "--system goes before the messages of --chat, and there is none");
    if (!options->chat_args) {
        return TT_OK;
    }
    json_error_t error;
    *args_out = json_loads(options->chat_args, JSON_REJECT_DUPLICATES, &error);
    bool good = json_is_object(*args_out);
    if (!good) {
        json_decref(*args_out);
        *args_out = NULL;
    }
    TT_CHECK(good, TT_ERR_USAGE,
             "--chat-args is no JSON object, as '{\"enable_thinking\": false}'");
    return TT_OK;
}

static tt_status add_all(gather *g)
{
    TT_TRY(add_list(g, PROMPT_TEXT, &g->options->prompt, "-p"));
    TT_TRY(add_list(g, PROMPT_CHAT, &g->options->chat, "--chat"));
    TT_TRY(add_list(g, PROMPT_IDS, &g->options->ids, "--ids"));
    return g->options->prompts ? tti_cli_each_line(g->options->prompts, add_text_line, g) : TT_OK;
}

tt_status tti_cli_prompts_gather(const tti_cli_options *options, const tt_tokenizer *tokenizer,
                                 const tt_generation *generation, int64_t V, int64_t context,
                                 tti_cli_prompts *prompts)
{
    memset(prompts, 0, sizeof(*prompts));
    prompts->seed = tt_options_is_set(options, "seed") ? (uint64_t)options->seed : fresh_seed();
    gather g = {.options = options,
                .tokenizer = tokenizer,
                .V = V,
                .context = context,
                .sampling = sampling_defaults(options, generation, prompts->seed),
                .prompts = prompts};
    TT_TRY(check_sampling(&g.sampling, "generation_config.json", TT_ERR_FILE));
    if (uses_stdin(options)) {
        return add_stdin(&g);
    }
    TT_TRY(read_chat_args(options, &g.chat_args));
    tt_status status = add_all(&g);
    json_decref(g.chat_args);
    TT_TRY(status);
    TT_CHECK(prompts->n > 0, TT_ERR_FILE, "%s holds no prompt",
             options->prompts ? tti_cli_input_name(options->prompts) : "the command line");
    return TT_OK;
}

void tti_cli_prompts_fini(tti_cli_prompts *prompts)
{
    for (size_t i = 0; i < prompts->n; i++) {
        tt_ids_fini(&prompts->item[i].ids);
    }
    free(prompts->item);
    memset(prompts, 0, sizeof(*prompts));
}
