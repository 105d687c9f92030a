/* chat_template.c - runs the statements of a chat template.
 *
 * Names live in scopes as in Jinja: a loop's body, a macro, a block with an end of its own have
 * one, an `if` has none; what they set is gone behind them. The text goes to a sink; a macro or a
 * block `set` has a sink of its own, whose text becomes a value. */
#include "chat_template_internal.h"

enum {
    DEFAULT_MAX_STEPS =
        50 * 1000 * 1000, /* seconds; a template of 1000 steps over 50000 messages */
    DEFAULT_MAX_OUTPUT_BYTES = 64 * 1024 * 1024,  /* far above any context */
    DEFAULT_MAX_MEMORY_BYTES = 512 * 1024 * 1024, /* of values */
    DEFAULT_MAX_DEPTH = 500                       /* a level takes about 1 KiB of stack */
};

static tt_status run_body(tti_run *r, const tti_node *node);

/* ---- names ---- */
/* A list of names was gone along. Those of templates are short, and cost nothing more. */
static tt_status count_names(tti_run *r, int line, size_t n)
{
    enum { NAMES_PER_STEP = 16 };
    return tti_chat_count(r, line, n / NAMES_PER_STEP);
}

tt_status tti_chat_define(tti_run *r, int line, tti_scope *scope, tti_string name,
                          const tti_value *value)
{
    void *memory;
    size_t n = 0;
    for (tti_variable *v = scope->first; v; v = v->next, n++) {
        if (v->name.n == name.n && memcmp(v->name.text, name.text, name.n) == 0) {
            v->value = *value;
            v->is_set = true;
            return count_names(r, line, n);
        }
    }
    TT_TRY(count_names(r, line, n));
    TT_TRY(tti_chat_alloc(&r->arena, sizeof(tti_variable), &memory));
    tti_variable *variable = memory;
    *variable = (tti_variable){.name = name, .value = *value, .is_set = true, .next = scope->first};
    scope->first = variable;
    return TT_OK;
}

tt_status tti_chat_lookup(tti_run *r, int line, tti_string name, const tti_value **found_out)
{
    size_t n = 0;
    *found_out = NULL;
    for (const tti_scope *s = r->scope; s && !*found_out; s = s->outer) {
        for (const tti_variable *v = s->first; v && !*found_out; v = v->next, n++) {
            bool same = v->name.n == name.n && memcmp(v->name.text, name.text, name.n) == 0;
            *found_out = same && v->is_set ? &v->value : NULL;
        }
    }
    return count_names(r, line, n);
}

/* Scopes outlive their block where a macro was defined in it, so they lie in the arena. */
static tt_status open_scope(tti_run *r, tti_scope *outer)
{
    void *memory;
    TT_TRY(tti_chat_alloc(&r->arena, sizeof(tti_scope), &memory));
    tti_scope *scope = memory;
    scope->outer = outer;
    r->scope = scope;
    return TT_OK;
}

/* A scope for the next round of a loop: the one of the last round, emptied, unless a macro may
 * still look into it. *n_macros_io: how many there were. */
static tt_status next_round(tti_run *r, int line, tti_scope *outer, size_t round,
                            int64_t *n_macros_io)
{
    size_t n = 0;
    if (round == 0 || r->n_macros != *n_macros_io) {
        *n_macros_io = r->n_macros;
        return open_scope(r, outer);
    }
    for (tti_variable *v = r->scope->first; v; v = v->next, n++) {
        v->is_set = false;
    }
    return count_names(r, line, n);
}

static tt_status assign_attribute(tti_run *r, int line, const tti_target *target,
                                  const tti_value *value)
{
    const tti_value *object;
    TT_TRY(tti_chat_lookup(r, line, target->name, &object));
    TTI_CHAT_CHECK(object && object->kind == TTI_NAMESPACE, line,
                   "\"%.*s\" is no namespace, so nothing in it can be set",
                   tti_chat_shown(target->name.n), target->name.text);
    tti_value key = tti_value_string(target->attribute.text, target->attribute.n, false);
    return tti_dict_set(r, line, object->as.dict, &key, value);
}

static tt_status assign(tti_run *r, int line, const tti_target *targets, bool unpack,
                        const tti_value *value);

static tt_status assign_one(tti_run *r, int line, const tti_target *target, const tti_value *value)
{
    if (target->inner) {
        return assign(r, line, target->inner, true, value);
    }
    if (target->attribute.n) {
        return assign_attribute(r, line, target, value);
    }
    return tti_chat_define(r, line, r->scope, target->name, value);
}

/* Nested targets are as deep as the parser let them. */
static tt_status assign(tti_run *r, int line, const tti_target *targets, bool unpack,
                        const tti_value *value)
{
    const tti_value *items;
    size_t n, wanted = 0;
    if (!unpack) {
        return assign_one(r, line, targets, value);
    }
    for (const tti_target *t = targets; t; t = t->next) {
        wanted++;
    }
    TT_TRY(tti_value_iterate(r, line, value, &items, &n));
    TTI_CHAT_CHECK(n == wanted, line, "%zu values are set from %zu", wanted, n);
    for (const tti_target *t = targets; t; t = t->next) {
        TT_TRY(assign_one(r, line, t, items++));
    }
    return TT_OK;
}

/* ---- text of its own ---- */
/* The body's text as a value, in a scope below `outer`. */
static tt_status capture(tti_run *r, const tti_node *body, int line, tti_value *out)
{
    tti_sink sink = {0}, *outer = r->sink;
    r->sink = &sink;
    tt_status st = run_body(r, body);
    r->sink = outer;
    if (st == TT_OK) {
        st = tti_sink_take(r, line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

static tt_status capture_scoped(tti_run *r, const tti_node *node, tti_value *out)
{
    tti_scope *outer = r->scope;
    TT_TRY(open_scope(r, outer));
    tt_status st = capture(r, node->body, node->line, out);
    r->scope = outer;
    return st;
}

/* ---- macros ---- */
static const tti_value *find_keyword(const tti_args *args, tti_string name)
{
    for (size_t k = 0; k < args->n_keywords; k++) {
        const tti_value *key = &args->keyword[k].key;
        if (key->n == name.n && memcmp(key->as.string.text, name.text, name.n) == 0) {
            return &args->keyword[k].value;
        }
    }
    return NULL;
}

/* Parameters by place, then by name, then by default; what has none is undefined. */
static tt_status bind_parameters(tti_run *r, int line, const tti_node *node, const tti_args *args)
{
    static const tti_string caller = {"caller", 6};
    const tti_value *given_caller = find_keyword(args, caller);
    size_t k = 0, used = 0;
    for (const tti_target *t = node->target; t; t = t->next, k++) {
        TT_TRY(count_names(r, line, args->n_keywords));
        const tti_value *named = find_keyword(args, t->name);
        tti_value value = tti_value_undefined(t->name, NULL);
        TTI_CHAT_CHECK(!named || k >= args->n, line, "\"%.*s\" of a macro is given twice",
                       tti_chat_shown(t->name.n), t->name.text);
        used += named != NULL;
        if (named || k < args->n) {
            value = named ? *named : args->value[k];
        } else if (t->value) {
            TT_TRY(tti_chat_evaluate(r, t->value, &value));
        }
        TT_TRY(tti_chat_define(r, line, r->scope, t->name, &value));
    }
    TTI_CHAT_CHECK(args->n <= k, line, "the macro \"%.*s\" takes %zu arguments, not %zu",
                   tti_chat_shown(node->text.n), node->text.text, k, args->n);
    TTI_CHAT_CHECK(used + (given_caller != NULL) >= args->n_keywords, line,
                   "the macro \"%.*s\" is given an argument that it does not have",
                   tti_chat_shown(node->text.n), node->text.text);
    return given_caller ? tti_chat_define(r, line, r->scope, caller, given_caller) : TT_OK;
}

tt_status tti_chat_call_macro(tti_run *r, int line, const tti_macro *macro, const tti_args *args,
                              tti_value *out)
{
    tti_scope *outer = r->scope;
    tt_status st = tti_chat_enter(r, line);
    if (st == TT_OK) {
        st = open_scope(r, macro->scope);
    }
    if (st == TT_OK) {
        st = bind_parameters(r, line, macro->node, args);
    }
    if (st == TT_OK) {
        st = capture(r, macro->node->body, line, out);
    }
    r->scope = outer;
    tti_chat_leave(r);
    return st;
}

static tt_status make_macro(tti_run *r, const tti_node *node, tti_value *out)
{
    void *memory;
    TT_TRY(tti_chat_alloc(&r->arena, sizeof(tti_macro), &memory));
    tti_macro *macro = memory;
    *macro = (tti_macro){.node = node, .scope = r->scope};
    r->n_macros++;
    *out = (tti_value){.kind = TTI_MACRO, .as.macro = macro};
    return TT_OK;
}

/* ---- statements ---- */
static tt_status print(tti_run *r, int line, const tti_value *v)
{
    tti_value text;
    TT_TRY(tti_value_print(r, line, v, &text));
    return tti_sink_value(r, line, r->sink, &text);
}

/* The items that a loop's `if` lets through. */
static tt_status filter_items(tti_run *r, const tti_node *node, const tti_value **item_io,
                              size_t *n_io)
{
    tti_value *chosen, truth;
    tti_scope *outer = r->scope;
    size_t made = 0;
    int64_t n_macros = 0;
    TT_TRY(tti_value_array(r, *n_io, &chosen));
    for (size_t k = 0; k < *n_io; k++) {
        TT_TRY(next_round(r, node->line, outer, k, &n_macros));
        TT_TRY(assign(r, node->line, node->target, node->unpack, &(*item_io)[k]));
        TT_TRY(tti_chat_evaluate(r, node->where, &truth));
        if (tti_value_is_true(&truth)) {
            chosen[made++] = (*item_io)[k];
        }
    }
    r->scope = outer;
    *item_io = chosen;
    *n_io = made;
    return TT_OK;
}

static tt_status run_rounds(tti_run *r, const tti_node *node, tti_loop *loop)
{
    static const tti_string name = {"loop", 4};
    tti_scope *outer = r->scope;
    tti_value value = {.kind = TTI_LOOP, .as.loop = loop};
    int64_t n_macros = 0;
    for (; loop->round < loop->n; loop->round++) {
        TT_TRY(tti_chat_count(r, node->line, 1));
        TT_TRY(next_round(r, node->line, outer, loop->round, &n_macros));
        TT_TRY(tti_chat_define(r, node->line, r->scope, name, &value));
        TT_TRY(assign(r, node->line, node->target, node->unpack, &loop->item[loop->round]));
        TT_TRY(run_body(r, node->body));
        bool stop = r->jump == TTI_JUMP_BREAK;
        r->jump = TTI_JUMP_NONE;
        if (stop) {
            break;
        }
    }
    r->scope = outer;
    return TT_OK;
}

static tt_status run_for(tti_run *r, const tti_node *node)
{
    tti_value list;
    const tti_value *items;
    size_t n;
    void *memory;
    TT_TRY(tti_chat_evaluate(r, node->expr, &list));
    TT_TRY(tti_value_iterate(r, node->line, &list, &items, &n));
    if (node->where) {
        TT_TRY(filter_items(r, node, &items, &n));
    }
    if (n == 0) {
        tti_scope *outer = r->scope;
        TT_TRY(open_scope(r, outer));
        TT_TRY(run_body(r, node->other));
        r->scope = outer;
        return TT_OK;
    }
    TT_TRY(tti_chat_alloc(&r->arena, sizeof(tti_loop), &memory));
    tti_loop *loop = memory;
    *loop = (tti_loop){.item = items, .n = n};
    return run_rounds(r, node, loop);
}

/* Goes along the `elif`s without recursion. */
static tt_status run_if(tti_run *r, const tti_node *node)
{
    for (;;) {
        tti_value condition;
        TT_TRY(tti_chat_evaluate(r, node->expr, &condition));
        if (tti_value_is_true(&condition)) {
            return run_body(r, node->body);
        }
        if (!node->other || !node->other->is_elif) {
            return run_body(r, node->other);
        }
        node = node->other;
    }
}

static tt_status run_set(tti_run *r, const tti_node *node)
{
    tti_value value;
    if (node->kind == TTI_NODE_SET) {
        TT_TRY(tti_chat_evaluate(r, node->expr, &value));
    } else {
        TT_TRY(capture_scoped(r, node, &value));
        if (node->expr) {
            tti_value text = value;
            TT_TRY(tti_chat_evaluate_chain(r, node->expr, &text, &value));
        }
    }
    return assign(r, node->line, node->target, node->unpack, &value);
}

static tt_status run_macro(tti_run *r, const tti_node *node)
{
    tti_value macro;
    TT_TRY(make_macro(r, node, &macro));
    return tti_chat_define(r, node->line, r->scope, node->text, &macro);
}

static tt_status run_call(tti_run *r, const tti_node *node)
{
    tti_value caller, result;
    TT_TRY(make_macro(r, node, &caller));
    TT_TRY(tti_chat_evaluate_call_with(r, node->expr, &caller, &result));
    return print(r, node->line, &result);
}

static tt_status run_filter(tti_run *r, const tti_node *node)
{
    tti_value text, result;
    TT_TRY(capture_scoped(r, node, &text));
    TT_TRY(tti_chat_evaluate_chain(r, node->expr, &text, &result));
    return print(r, node->line, &result);
}

/* `with` and generation blocks. The values of `with` are those outside it. */
static tt_status run_scope(tti_run *r, const tti_node *node)
{
    tti_scope *outer = r->scope, *inner;
    TT_TRY(open_scope(r, outer));
    inner = r->scope;
    for (const tti_target *t = node->target; t; t = t->next) {
        tti_value value;
        r->scope = outer;
        TT_TRY(tti_chat_evaluate(r, t->value, &value));
        TT_TRY(tti_chat_define(r, node->line, inner, t->name, &value));
    }
    r->scope = inner;
    TT_TRY(run_body(r, node->body));
    r->scope = outer;
    return TT_OK;
}

static tt_status run_output(tti_run *r, const tti_node *node)
{
    tti_value v;
    TT_TRY(tti_chat_evaluate(r, node->expr, &v));
    return print(r, node->line, &v);
}

static tt_status run_node(tti_run *r, const tti_node *node)
{
    switch (node->kind) {
    case TTI_NODE_TEXT:
        return tti_sink_put(r, node->line, r->sink, node->text.text, node->text.n, false);
    case TTI_NODE_OUTPUT:
        return run_output(r, node);
    case TTI_NODE_IF:
        return run_if(r, node);
    case TTI_NODE_FOR:
        return run_for(r, node);
    case TTI_NODE_SET:
    case TTI_NODE_SET_BLOCK:
        return run_set(r, node);
    case TTI_NODE_MACRO:
        return run_macro(r, node);
    case TTI_NODE_CALL:
        return run_call(r, node);
    case TTI_NODE_FILTER:
        return run_filter(r, node);
    case TTI_NODE_WITH:
    case TTI_NODE_SCOPE:
        return run_scope(r, node);
    case TTI_NODE_BREAK:
        r->jump = TTI_JUMP_BREAK;
        return TT_OK;
    default:
        r->jump = TTI_JUMP_CONTINUE;
        return TT_OK;
    }
}

static tt_status run_body(tti_run *r, const tti_node *node)
{
    tt_status st = TT_OK;
    if (!node) {
        return TT_OK;
    }
    st = tti_chat_enter(r, node->line);
    for (; node && st == TT_OK && r->jump == TTI_JUMP_NONE; node = node->next) {
        st = tti_chat_count(r, node->line, 1);
        if (st == TT_OK) {
            st = run_node(r, node);
        }
    }
    tti_chat_leave(r);
    return st;
}

/* ---- the whole ---- */
static tt_status define_globals(tti_run *r, const tti_chat_input *input)
{
    enum { FIRST_LINE = 1 };
    tti_value variables;
    for (size_t k = 0; k < input->n_tokens; k++) {
        const tti_chat_token *token = &input->token[k];
        if (token->text) {
            tti_value text = tti_value_word(token->text);
            TT_TRY(tti_chat_define(r, FIRST_LINE, &r->globals,
                                   (tti_string){token->name, strlen(token->name)}, &text));
        }
    }
    TT_CHECK(json_is_object(input->variables), TT_ERR_ARG, "tti_chat_render: no variables");
    TT_TRY(tti_value_from_json(r, input->variables, &variables));
    for (size_t k = 0; k < variables.as.dict->n; k++) {
        const tti_entry *entry = &variables.as.dict->entry[k];
        TT_TRY(tti_chat_define(r, FIRST_LINE, &r->globals,
                               (tti_string){entry->key.as.string.text, entry->key.n},
                               &entry->value));
    }
    return TT_OK;
}

static tt_status render(tti_run *r, const char *source, size_t n, const tti_chat_input *input)
{
    tti_node *root = NULL;
    void *memory;
    TT_TRY(tti_chat_alloc(&r->arena, TTI_CHAT_STACK_VALUES * sizeof(tti_value), &memory));
    r->stack = memory;
    TT_TRY(tti_chat_parse(&r->arena, source, n, &root));
    TT_TRY(define_globals(r, input));
    TT_TRY(open_scope(r, &r->globals));
    TT_TRY(tt_text_append(&r->sink->text, "", 0));
    TT_TRY(tt_text_append(&r->sink->mark, "", 0));
    return run_body(r, root);
}

tt_status tti_chat_render(const char *source, size_t n, const tti_chat_input *input, tt_text *text,
                          tt_text *mark)
{
    tti_chat_limits limits = input->limits;
    limits.max_steps = limits.max_steps ? limits.max_steps : DEFAULT_MAX_STEPS;
    limits.max_output_bytes =
        limits.max_output_bytes ? limits.max_output_bytes : DEFAULT_MAX_OUTPUT_BYTES;
    limits.max_memory_bytes =
        limits.max_memory_bytes ? limits.max_memory_bytes : DEFAULT_MAX_MEMORY_BYTES;
    limits.max_depth = limits.max_depth ? limits.max_depth : DEFAULT_MAX_DEPTH;
    tti_sink sink = {0};
    tti_run r = {.arena = {.max_bytes = limits.max_memory_bytes},
                 .limits = limits,
                 .sink = &sink,
                 .now_s = input->now_s,
                 .has_now = input->has_now};
    tt_status st = render(&r, source, n, input);
    tti_chat_arena_fini(&r.arena);
    if (st == TT_OK) {
        tt_text_fini(text);
        tt_text_fini(mark);
        *text = sink.text;
        *mark = sink.mark;
        return TT_OK;
    }
    tti_sink_fini(&sink);
    return st;
}
