/* chat.c - the ids of a conversation.
 *
 * The template is rendered to one text with a mark on each byte that came from the conversation.
 * Special tokens count only where the template spelled them; between two of them, template and
 * message are encoded as one text, in which special tokens stay text. So a message can say
 * anything and forge nothing, and ordinary messages get the ids that the reference gives them. */
#include "chat_template.h"
#include "model_internal.h"
#include <string.h>

enum {
    MAX_MESSAGES = 100000, /* of one conversation; far above any context */
    MAX_ARGUMENTS = 256    /* chat_template_kwargs; templates know a few */
};

/* ---- the variables of the template ---- */
static tt_status check_messages(const json_t *messages)
{
    TT_CHECK(json_is_array(messages), TT_ERR_REQUEST,
             "messages must be a list of {\"role\", \"content\"}");
    size_t n = json_array_size(messages);
    TT_CHECK(n <= MAX_MESSAGES, TT_ERR_REQUEST, "%zu messages; %d are allowed", n, MAX_MESSAGES);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *content = json_object_get(message, "content");
        TT_CHECK(json_is_string(json_object_get(message, "role")), TT_ERR_REQUEST,
                 "message %zu needs a role, as text", i + 1);
        bool called = json_object_get(message, "tool_calls") != NULL;
        TT_CHECK(json_is_string(content) || json_is_array(content) ||
                     (json_is_null(content) ? true : !content && called),
                 TT_ERR_REQUEST, "message %zu needs a content, as text or a list of parts", i + 1);
    }
    return TT_OK;
}

/* A list, or null for an empty or absent one, as the reference library passes it. */
static tt_status take_list(const json_t *request, const char *key, json_t *variables)
{
    json_t *list = json_object_get(request, key);
    TT_CHECK(!list || json_is_array(list) || json_is_null(list), TT_ERR_REQUEST,
             "\"%s\" must be a list", key);
    bool some = json_array_size(list) > 0;
    TT_CHECK((some ? json_object_set(variables, key, list)
                   : json_object_set_new(variables, key, json_null())) == 0,
             TT_ERR_NOMEM, "out of memory for a conversation");
    return TT_OK;
}

static bool is_own_key(const char *key)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt",
                                      NULL};
    for (int k = 0; own[k]; k++) {
        if (strcmp(key, own[k]) == 0) {
            return true;
        }
    }
    return false;
}

static tt_status check_keys(const json_t *request)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)request, key, value)
    {
        bool known =
            is_own_key(key) || strcmp(key, "chat_template_kwargs") == 0 || strcmp(key, "now") == 0;
        TT_CHECK(known, TT_ERR_REQUEST,
                 "\"%.64s\" is no key of a conversation; variables of the template go into "
                 "\"chat_template_kwargs\"",
                 key);
    }
    return TT_OK;
}

static tt_status take_arguments(const json_t *request, json_t *variables)
{
    const json_t *arguments = json_object_get(request, "chat_template_kwargs");
    const char *key;
    json_t *value;
    TT_CHECK(!arguments || json_is_object(arguments) || json_is_null(arguments), TT_ERR_REQUEST,
             "\"chat_template_kwargs\" must be an object");
    TT_CHECK(json_object_size(arguments) <= MAX_ARGUMENTS, TT_ERR_REQUEST,
             "\"chat_template_kwargs\" has %zu variables; %d are allowed",
             json_object_size(arguments), MAX_ARGUMENTS);
    json_object_foreach((json_t *)(uintptr_t)arguments, key, value)
    {
        TT_CHECK(!is_own_key(key), TT_ERR_REQUEST,
                 "\"%s\" stands beside \"chat_template_kwargs\", not in it", key);
        TT_CHECK(json_object_set(variables, key, value) == 0, TT_ERR_NOMEM,
                 "out of memory for a conversation");
    }
    return TT_OK;
}

static tt_status make_variables(const json_t *request, json_t *variables)
{
    json_t *messages = json_object_get(request, "messages");
    json_t *opens = json_object_get(request, "add_generation_prompt");
    TT_TRY(check_keys(request));
    TT_TRY(check_messages(messages));
    TT_CHECK(!opens || json_is_boolean(opens), TT_ERR_REQUEST,
             "\"add_generation_prompt\" must be true or false");
    TT_CHECK(json_object_set(variables, "messages", messages) == 0 &&
                 json_object_set_new(variables, "add_generation_prompt",
                                     json_boolean(!opens || json_is_true(opens))) == 0,
             TT_ERR_NOMEM, "out of memory for a conversation");
    TT_TRY(take_list(request, "tools", variables));
    TT_TRY(take_list(request, "documents", variables));
    return take_arguments(request, variables);
}

/* Many templates treat a role that they do not know as the last one they do know: a misspelt one
 * would go unnoticed. So a role must be one that the field uses, or one that the template names. */
static bool is_named(const char *role, size_t n, const char *source, size_t n_source)
{
    for (size_t i = 0; n > 0 && n_source >= n + 2 && i <= n_source - n - 2; i++) {
        const char *c = source + i;
        if ((c[0] == '\'' || c[0] == '"') && c[n + 1] == c[0] && memcmp(c + 1, role, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_among(const char *role, const char *const *list, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        if (strcmp(role, list[k]) == 0) {
            return true;
        }
    }
    return false;
}

/* The template is gone through once for each role, not for each message; and roles of its own are
 * few. */
static tt_status check_roles(const json_t *messages, const char *source, size_t n_source)
{
    enum { MAX_OWN_ROLES = 16, MAX_ROLE_BYTES = 64 };
    static const char *const known[] = {"user",        "assistant", "tool",
                                        "system",      "developer", "function",
                                        "observation", "ipython",   "environment"};
    const char *own[MAX_OWN_ROLES] = {NULL};
    size_t i, n_own = 0;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        size_t n = strlen(role);
        if (is_among(role, known, sizeof(known) / sizeof(known[0])) || is_among(role, own, n_own)) {
            continue;
        }
        TT_CHECK(n <= MAX_ROLE_BYTES && is_named(role, n, source, n_source), TT_ERR_REQUEST,
                 "message %zu has the role '%s': the template does not name it, and it is none of "
                 "system, user, assistant, tool, ...",
                 i + 1, tti_show(role).text);
        TT_CHECK(n_own < MAX_OWN_ROLES, TT_ERR_REQUEST,
                 "message %zu has the role '%s': there are more than %d roles beside system, user, "
                 "assistant, tool, ...",
                 i + 1, tti_show(role).text, MAX_OWN_ROLES);
        own[n_own++] = role;
    }
    return TT_OK;
}

/* ---- rendering ---- */
static tt_status render_variables(const tt_tokenizer *t, const json_t *request,
                                  const json_t *variables, tt_text *text, tt_text *mark)
{
    tti_chat_token token[TTI_NAMED_TOKENS + 2] = {{"bos_token", t->bos_token},
                                                  {"eos_token", t->eos_token}};
    for (int k = 0; k < TTI_NAMED_TOKENS; k++) {
        token[k + 2] = (tti_chat_token){tti_named_tokens[k], t->named_token[k]};
    }
    const json_t *now = json_object_get(request, "now");
    TT_CHECK(!now || json_is_integer(now), TT_ERR_REQUEST, "\"now\" must be seconds since 1970");
    tti_chat_input input = {.variables = variables,
                            .token = token,
                            .n_tokens = sizeof(token) / sizeof(token[0]),
                            .has_now = now != NULL,
                            .now_s = json_integer_value(now)};
    bool tools = t->tool_template && json_is_array(json_object_get(variables, "tools"));
    const char *source = tools || !t->chat_template ? t->tool_template : t->chat_template;
    size_t n = tools || !t->chat_template ? t->n_tool_template : t->n_chat_template;
    TT_TRY(check_roles(json_object_get(request, "messages"), source, n));
    return tti_chat_render(source, n, &input, text, mark);
}

static tt_status render_request(const tt_tokenizer *t, const json_t *request, tt_text *text,
                                tt_text *mark)
{
    TT_CHECK(
        tt_tokenizer_has_chat_template(t), TT_ERR_FILE,
        "the model has no chat template (\"chat_template\" in tokenizer_config.json, chat_template.jinja, "
        "or tokenizer.chat_template in a GGUF file)");
    json_t *variables = json_object();
    TT_CHECK(variables, TT_ERR_NOMEM, "out of memory for a conversation");
    tt_status st = make_variables(request, variables);
    if (st == TT_OK) {
        st = render_variables(t, request, variables, text, mark);
    }
    json_decref(variables);
    return st;
}

/* {"messages": list} around a bare list. */
static tt_status parse_request(const char *json, size_t n, json_t **request_out)
{
    json_error_t error;
    json_t *root = json_loadb(json, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory) {
        return TT_FAIL(TT_ERR_NOMEM, "out of memory for a conversation");
    }
    TT_CHECK(root, TT_ERR_REQUEST, "the conversation is not JSON: line %d: %s", error.line,
             error.text);
    if (json_is_object(root)) {
        *request_out = root;
        return TT_OK;
    }
    *request_out = json_pack("{s:o}", "messages", root);
    TT_CHECK(*request_out, TT_ERR_NOMEM, "out of memory for a conversation");
    return TT_OK;
}

static tt_status load_request(const char *json, size_t n, json_t **request_out)
{
    TT_TRY(parse_request(json, n, request_out));
    const json_t *messages = json_object_get(*request_out, "messages");
    if (json_is_array(messages) && json_array_size(messages) == 0) {
        json_decref(*request_out);
        return TT_FAIL(TT_ERR_REQUEST, "there is no message");
    }
    return TT_OK;
}

/* ---- ids ---- */
/* One BOS if the files ask for it, wherever it comes from: the template or us. */
static tt_status add_missing_bos(const tt_tokenizer *t, tt_ids *ids, size_t n_before)
{
    if (!t->wants_bos || (ids->n > n_before && ids->id[n_before] == t->bos_id)) {
        return TT_OK;
    }
    TT_TRY(tt_ids_append(ids, &t->bos_id, 1));
    memmove(ids->id + n_before + 1, ids->id + n_before, (ids->n - n_before - 1) * sizeof(*ids->id));
    ids->id[n_before] = t->bos_id;
    return TT_OK;
}

static tt_status encode_rendered(const tt_tokenizer *t, const tt_text *text, const tt_text *mark,
                                 tt_ids *ids)
{
    size_t n_before = ids->n;
    TT_TRY(tti_tokenizer_encode_marked(t, text->bytes, (const unsigned char *)mark->bytes, text->n,
                                       ids));
    tt_status st = add_missing_bos(t, ids, n_before);
    if (st != TT_OK) {
        ids->n = n_before;
    }
    return st;
}

static tt_status encode_request(const tt_tokenizer *t, const json_t *request, tt_ids *ids)
{
    tt_text text = {0}, mark = {0};
    tt_status st = render_request(t, request, &text, &mark);
    if (st == TT_OK) {
        st = encode_rendered(t, &text, &mark, ids);
    }
    tt_text_fini(&text);
    tt_text_fini(&mark);
    return st;
}

/* ---- public ---- */
tt_status tt_tokenizer_encode_chat_json(const tt_tokenizer *tokenizer, const char *json, size_t n,
                                        tt_ids *ids)
{
    TT_CHECK(tokenizer && json && ids, TT_ERR_ARG,
             "tt_tokenizer_encode_chat_json: a pointer is NULL");
    json_t *request;
    TT_TRY(load_request(json, n, &request));
    tt_status st = encode_request(tokenizer, request, ids);
    json_decref(request);
    return st;
}

tt_status tt_tokenizer_render_chat_json(const tt_tokenizer *tokenizer, const char *json, size_t n,
                                        tt_text *text)
{
    TT_CHECK(tokenizer && json && text, TT_ERR_ARG,
             "tt_tokenizer_render_chat_json: a pointer is NULL");
    json_t *request;
    tt_text rendered = {0}, mark = {0};
    TT_TRY(load_request(json, n, &request));
    tt_status st = render_request(tokenizer, request, &rendered, &mark);
    if (st == TT_OK) {
        st = tt_text_append(text, rendered.bytes, rendered.n);
    }
    tt_text_fini(&rendered);
    tt_text_fini(&mark);
    json_decref(request);
    return st;
}

/* A JSON string of a caller's text: UTF-8 whatever came. */
static tt_status make_string(const char *text, json_t **out)
{
    tt_text clean = {0};
    TT_TRY(tti_utf8_append_lossy(&clean, text, strlen(text)));
    *out = json_stringn(clean.n ? clean.bytes : "", clean.n);
    tt_text_fini(&clean);
    TT_CHECK(*out, TT_ERR_NOMEM, "out of memory for a message");
    return TT_OK;
}

static tt_status add_message(json_t *list, const tt_chat_message *message, size_t i)
{
    json_t *role = NULL, *content = NULL;
    TT_CHECK(message->role && message->content, TT_ERR_REQUEST,
             "message %zu has no role or no content", i);
    TT_TRY(make_string(message->role, &role));
    tt_status st = make_string(message->content, &content);
    if (st != TT_OK) {
        json_decref(role);
        return st;
    }
    json_t *object = json_pack("{s:o, s:o}", "role", role, "content", content);
    TT_CHECK(object && json_array_append_new(list, object) == 0, TT_ERR_NOMEM,
             "out of memory for a message");
    return TT_OK;
}

tt_status tt_tokenizer_encode_chat(const tt_tokenizer *tokenizer, const tt_chat_message *messages,
                                   size_t n_messages, tt_ids *ids)
{
    TT_CHECK(tokenizer && ids && (messages || n_messages == 0), TT_ERR_ARG,
             "tt_tokenizer_encode_chat: a pointer is NULL");
    json_t *list = json_array();
    TT_CHECK(list, TT_ERR_NOMEM, "out of memory for a conversation");
    tt_status st = TT_OK;
    for (size_t i = 0; i < n_messages && st == TT_OK; i++) {
        st = add_message(list, &messages[i], i);
    }
    json_t *request = json_pack("{s:O}", "messages", list);
    json_decref(list);
    if (st == TT_OK && !request) {
        st = TT_FAIL(TT_ERR_NOMEM, "out of memory for a conversation");
    }
    if (st == TT_OK) {
        st = encode_request(tokenizer, request, ids);
    }
    json_decref(request);
    return st;
}

bool tt_tokenizer_has_chat_template(const tt_tokenizer *tokenizer)
{
    return tokenizer->chat_template || tokenizer->tool_template;
}
