/* chat_template.c - runs a chat template over a conversation.
 *
 * Every string knows which of its bytes a message brought: a whole string by one flag, a mixture
 * by a mark per byte. So what the template does with a message (print it, join it to something)
 * never makes template text of it. A run is bounded in steps and in bytes of output. */
#include "chat_template_internal.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX =
        10 * 1000 *
        1000, /* expressions and statements of one run; a template of 1000 over 10000 messages */
    OUTPUT_MAX_BYTES = 64 * 1024 * 1024, /* far above any context */
    BLOCK_BYTES = 16 * 1024
};

struct tti_chat_block {
    tti_chat_block *before;
    size_t used, size; /* bytes of the data behind this header */
    max_align_t data[];
};

void *tti_chat_alloc(tti_chat_arena *arena, size_t bytes)
{
    tti_chat_block *block = arena->last;
    size_t align = sizeof(max_align_t);
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = (bytes + align - 1) / align * align;
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = malloc(sizeof(*block) + size);
        if (!block) {
            return NULL;
        }
        *block = (tti_chat_block){.before = arena->last, .size = size};
        arena->last = block;
    }
    void *data = (char *)block->data + block->used;
    block->used += bytes;
    memset(data, 0, bytes);
    return data;
}

void tti_chat_arena_fini(tti_chat_arena *arena)
{
    while (arena->last) {
        tti_chat_block *before = arena->last->before;
        free(arena->last);
        arena->last = before;
    }
}

typedef enum value_kind {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INTEGER,
    VALUE_STRING,
    VALUE_MESSAGES,
    VALUE_MESSAGE,
    VALUE_LOOP
} value_kind;
typedef struct value {
    value_kind kind;
    int64_t number; /* BOOL, INTEGER; MESSAGE: its index; LOOP: the round */
    int64_t count;  /* LOOP: rounds in all */
    /* STRING */
    const char *text; /* text[n] */
    size_t n;
    bool literal;              /* all of it came from a message; meant if mark is NULL */
    const unsigned char *mark; /* mark[n]: which bytes did, or NULL */
} value;

typedef struct scope {
    const struct scope *outer;
    const char *name; /* name[n] of the loop variable */
    size_t n;
    value item, loop;
} scope;

typedef struct run {
    tti_chat_arena *arena;
    const tti_chat_input *input;
    tt_text *text, *mark; /* grow alike */
    const scope *scope;
    int64_t n_steps;
} run;

static tt_status count_step(run *r, int line)
{
    TT_CHECK(r->n_steps < STEPS_MAX, TT_ERR_REQUEST, "chat template, line %d: more than %d steps",
             line, STEPS_MAX);
    r->n_steps++;
    return TT_OK;
}

static value string_value(const char *text, size_t n, bool literal)
{
    return (value){.kind = VALUE_STRING, .text = text, .n = n, .literal = literal};
}

static value bool_value(bool truth)
{
    return (value){.kind = VALUE_BOOL, .number = truth};
}

static bool is_true(const value *v)
{
    switch (v->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
    case VALUE_INTEGER:
        return v->number != 0;
    case VALUE_STRING:
        return v->n > 0;
    case VALUE_MESSAGES:
        return v->count > 0;
    case VALUE_MESSAGE:
    case VALUE_LOOP:
        return true;
    }
    return false;
}

static bool are_equal(const value *a, const value *b)
{
    bool numbers = (a->kind == VALUE_BOOL || a->kind == VALUE_INTEGER) &&
                   (b->kind == VALUE_BOOL || b->kind == VALUE_INTEGER);
    if (numbers) {
        return a->number == b->number;
    }
    if (a->kind != b->kind) {
        return false;
    }
    if (a->kind == VALUE_STRING) {
        return a->n == b->n && memcmp(a->text, b->text, a->n) == 0;
    }
    return a->kind != VALUE_MESSAGE || a->number == b->number;
}

static bool text_is(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

/* A caller's string: UTF-8 whatever came, marked as literal. */
static tt_status caller_string(run *r, const char *text, value *out)
{
    size_t n = strlen(text);
    *out = string_value(text, n, true);
    if (tti_utf8_valid_prefix(text, n) == n) {
        return TT_OK;
    }
    tt_text clean = {0};
    tt_status st = tti_utf8_append_lossy(&clean, text, n);
    if (st == TT_OK) {
        char *copy = tti_chat_alloc(r->arena, clean.n);
        if (copy) {
            memcpy(copy, clean.bytes, clean.n);
            *out = string_value(copy, clean.n, true);
        } else {
            st = TT_FAIL(TT_ERR_NOMEM, "out of memory for a message");
        }
    }
    tt_text_fini(&clean);
    return st;
}

static value global_of(const run *r, const char *name, size_t n)
{
    const tti_chat_input *input = r->input;
    if (text_is(name, n, "messages")) {
        return (value){.kind = VALUE_MESSAGES, .count = (int64_t)input->n_messages};
    }
    if (text_is(name, n, "add_generation_prompt")) {
        return bool_value(input->add_generation_prompt);
    }
    if (text_is(name, n, "bos_token") && input->bos_token) {
        return string_value(input->bos_token, strlen(input->bos_token), false);
    }
    if (text_is(name, n, "eos_token") && input->eos_token) {
        return string_value(input->eos_token, strlen(input->eos_token), false);
    }
    return (value){.kind = VALUE_UNDEFINED};
}

static value value_of_name(const run *r, const char *name, size_t n)
{
    for (const scope *s = r->scope; s; s = s->outer) {
        if (s->n == n && memcmp(s->name, name, n) == 0) {
            return s->item;
        }
        if (text_is(name, n, "loop")) {
            return s->loop;
        }
    }
    return global_of(r, name, n);
}

static value loop_field(const value *loop, const char *name, size_t n)
{
    int64_t round = loop->number, count = loop->count;
    const struct {
        const char *name;
        value value;
    } fields[] = {{"index", {.kind = VALUE_INTEGER, .number = round + 1}},
                  {"index0", {.kind = VALUE_INTEGER, .number = round}},
                  {"revindex", {.kind = VALUE_INTEGER, .number = count - round}},
                  {"revindex0", {.kind = VALUE_INTEGER, .number = count - round - 1}},
                  {"length", {.kind = VALUE_INTEGER, .number = count}},
                  {"first", {.kind = VALUE_BOOL, .number = round == 0}},
                  {"last", {.kind = VALUE_BOOL, .number = round == count - 1}}};
    for (size_t k = 0; k < sizeof(fields) / sizeof(fields[0]); k++) {
        if (text_is(name, n, fields[k].name)) {
            return fields[k].value;
        }
    }
    return (value){.kind = VALUE_UNDEFINED};
}

static tt_status field_of(run *r, const tti_expr *expr, const value *object, const char *name,
                          size_t n, value *out)
{
    *out = (value){.kind = VALUE_UNDEFINED};
    switch (object->kind) {
    case VALUE_UNDEFINED:
        return TT_FAIL(TT_ERR_REQUEST,
                       "chat template, line %d: \"%.*s\" is asked of an undefined value",
                       expr->line, n < TT_CACHE_LINE ? (int)n : TT_CACHE_LINE, name);
    case VALUE_MESSAGE:
        if (text_is(name, n, "role")) {
            return caller_string(r, r->input->message[object->number].role, out);
        }
        if (text_is(name, n, "content")) {
            return caller_string(r, r->input->message[object->number].content, out);
        }
        return TT_OK;
    case VALUE_LOOP:
        *out = loop_field(object, name, n);
        return TT_OK;
    default:
        return TT_OK;
    }
}

static tt_status subscript(run *r, const tti_expr *expr, const value *object, const value *index,
                           value *out)
{
    if (index->kind == VALUE_STRING) {
        return field_of(r, expr, object, index->text, index->n, out);
    }
    TT_CHECK(object->kind == VALUE_MESSAGES && index->kind == VALUE_INTEGER, TT_ERR_UNSUPPORTED,
             "chat template, line %d: this [ ] is not supported", expr->line);
    int64_t k = index->number < 0 ? index->number + object->count : index->number;
    bool inside = k >= 0 && k < object->count;
    *out = (value){.kind = inside ? VALUE_MESSAGE : VALUE_UNDEFINED, .number = inside ? k : 0};
    return TT_OK;
}

/* What {{ }} prints. */
static tt_status to_string(run *r, const tti_expr *expr, const value *v, value *out)
{
    enum { NUMBER_BYTES = 24 };
    char *number;
    switch (v->kind) {
    case VALUE_STRING:
        *out = *v;
        return TT_OK;
    case VALUE_UNDEFINED:
        *out = string_value("", 0, false);
        return TT_OK;
    case VALUE_NONE:
        *out = string_value("None", strlen("None"), false);
        return TT_OK;
    case VALUE_BOOL:
        *out = v->number ? string_value("True", strlen("True"), false)
                         : string_value("False", strlen("False"), false);
        return TT_OK;
    case VALUE_INTEGER:
        number = tti_chat_alloc(r->arena, NUMBER_BYTES);
        TT_CHECK(number, TT_ERR_NOMEM, "out of memory for the chat template");
        snprintf(number, NUMBER_BYTES, "%" PRId64, v->number);
        *out = string_value(number, strlen(number), false);
        return TT_OK;
    default:
        return TT_FAIL(TT_ERR_UNSUPPORTED,
                       "chat template, line %d: a list, a message or a loop cannot be printed",
                       expr->line);
    }
}

static void copy_marks(unsigned char *to, const value *from)
{
    if (from->mark) {
        memcpy(to, from->mark, from->n);
    } else {
        memset(to, from->literal, from->n);
    }
}

static tt_status join(run *r, const tti_expr *expr, const value *a, const value *b, value *out)
{
    TT_CHECK(a->n <= OUTPUT_MAX_BYTES && b->n <= OUTPUT_MAX_BYTES, TT_ERR_REQUEST,
             "chat template, line %d: a text is longer than %d bytes", expr->line,
             OUTPUT_MAX_BYTES);
    size_t n = a->n + b->n;
    char *text = tti_chat_alloc(r->arena, n);
    TT_CHECK(text, TT_ERR_NOMEM, "out of memory for the chat template");
    memcpy(text, a->text, a->n);
    memcpy(text + a->n, b->text, b->n);
    *out = string_value(text, n, a->literal);
    if (!a->mark && !b->mark && a->literal == b->literal) {
        return TT_OK;
    }
    unsigned char *mark = tti_chat_alloc(r->arena, n);
    TT_CHECK(mark, TT_ERR_NOMEM, "out of memory for the chat template");
    copy_marks(mark, a);
    copy_marks(mark + a->n, b);
    out->mark = mark;
    return TT_OK;
}

static tt_status add(run *r, const tti_expr *expr, const value *a, const value *b, value *out)
{
    if (a->kind == VALUE_INTEGER && b->kind == VALUE_INTEGER) {
        TT_CHECK(!((b->number > 0 && a->number > INT64_MAX - b->number) ||
                   (b->number < 0 && a->number < INT64_MIN - b->number)),
                 TT_ERR_REQUEST, "chat template, line %d: a number is too large", expr->line);
        *out = (value){.kind = VALUE_INTEGER, .number = a->number + b->number};
        return TT_OK;
    }
    TT_CHECK(a->kind == VALUE_STRING && b->kind == VALUE_STRING, TT_ERR_REQUEST,
             "chat template, line %d: + is between a string and something else", expr->line);
    return join(r, expr, a, b, out);
}

/* Recursion goes as deep as the expression, which the parser bounds. */
static tt_status evaluate(run *r, const tti_expr *expr, value *out)
{
    value a = {0}, b = {0};
    TT_TRY(count_step(r, expr->line));
    if (expr->left) {
        TT_TRY(evaluate(r, expr->left, &a));
    }
    if (expr->kind == TTI_EXPR_AND || expr->kind == TTI_EXPR_OR) {
        /* As in Python: the value that decides, and no look at the rest. */
        if (is_true(&a) == (expr->kind == TTI_EXPR_OR)) {
            *out = a;
            return TT_OK;
        }
        return evaluate(r, expr->right, out);
    }
    if (expr->right) {
        TT_TRY(evaluate(r, expr->right, &b));
    }
    switch (expr->kind) {
    case TTI_EXPR_STRING:
        *out = string_value(expr->text, expr->n, false);
        return TT_OK;
    case TTI_EXPR_INTEGER:
        *out = (value){.kind = VALUE_INTEGER, .number = expr->number};
        return TT_OK;
    case TTI_EXPR_TRUE:
    case TTI_EXPR_FALSE:
        *out = bool_value(expr->kind == TTI_EXPR_TRUE);
        return TT_OK;
    case TTI_EXPR_NONE:
        *out = (value){.kind = VALUE_NONE};
        return TT_OK;
    case TTI_EXPR_NAME:
        *out = value_of_name(r, expr->text, expr->n);
        return TT_OK;
    case TTI_EXPR_ATTRIBUTE:
        return field_of(r, expr, &a, expr->text, expr->n, out);
    case TTI_EXPR_SUBSCRIPT:
        return subscript(r, expr, &a, &b, out);
    case TTI_EXPR_EQUAL:
    case TTI_EXPR_NOT_EQUAL:
        *out = bool_value(are_equal(&a, &b) == (expr->kind == TTI_EXPR_EQUAL));
        return TT_OK;
    case TTI_EXPR_NOT:
        *out = bool_value(!is_true(&a));
        return TT_OK;
    case TTI_EXPR_ADD:
        return add(r, expr, &a, &b, out);
    case TTI_EXPR_CONCAT:
        TT_TRY(to_string(r, expr, &a, &a));
        TT_TRY(to_string(r, expr, &b, &b));
        return join(r, expr, &a, &b, out);
    case TTI_EXPR_AND:
    case TTI_EXPR_OR:
        break;
    }
    return TT_OK;
}

static tt_status print(run *r, int line, const value *v)
{
    TT_CHECK(v->n <= OUTPUT_MAX_BYTES - r->text->n, TT_ERR_REQUEST,
             "chat template, line %d: the text is longer than %d bytes", line, OUTPUT_MAX_BYTES);
    TT_TRY(tt_text_append(r->text, v->text, v->n));
    /* Room for the marks first, their values then. */
    size_t start = r->mark->n;
    TT_TRY(tt_text_append(r->mark, v->text, v->n));
    copy_marks((unsigned char *)r->mark->bytes + start, v);
    return TT_OK;
}

static tt_status run_body(run *r, const tti_node *node);

static tt_status run_for(run *r, const tti_node *node)
{
    value list;
    TT_TRY(evaluate(r, node->expr, &list));
    TT_CHECK(list.kind == VALUE_MESSAGES, TT_ERR_UNSUPPORTED,
             "chat template, line %d: \"for\" goes over something else than messages", node->line);
    scope inner = {.outer = r->scope, .name = node->text, .n = node->n};
    for (int64_t k = 0; k < list.count; k++) {
        inner.item = (value){.kind = VALUE_MESSAGE, .number = k};
        inner.loop = (value){.kind = VALUE_LOOP, .number = k, .count = list.count};
        r->scope = &inner;
        tt_status st = run_body(r, node->body);
        r->scope = inner.outer;
        TT_TRY(st);
    }
    return list.count == 0 ? run_body(r, node->other) : TT_OK;
}

/* Goes along the `elif`s without recursion. */
static tt_status run_if(run *r, const tti_node *node)
{
    while (node && node->kind == TTI_NODE_IF) {
        value condition;
        TT_TRY(evaluate(r, node->expr, &condition));
        if (is_true(&condition)) {
            return run_body(r, node->body);
        }
        /* An `else` whose body begins with an `if` is told from an `elif` by what follows it, so
         * it is not looked into here. */
        if (!node->other || node->other->kind != TTI_NODE_IF || node->other->next) {
            return run_body(r, node->other);
        }
        node = node->other;
    }
    return TT_OK;
}

static tt_status run_body(run *r, const tti_node *node)
{
    for (; node; node = node->next) {
        value v, printed;
        TT_TRY(count_step(r, node->line));
        switch (node->kind) {
        case TTI_NODE_TEXT:
            v = string_value(node->text, node->n, false);
            TT_TRY(print(r, node->line, &v));
            break;
        case TTI_NODE_OUTPUT:
            TT_TRY(evaluate(r, node->expr, &v));
            TT_TRY(to_string(r, node->expr, &v, &printed));
            TT_TRY(print(r, node->line, &printed));
            break;
        case TTI_NODE_IF:
            TT_TRY(run_if(r, node));
            break;
        case TTI_NODE_FOR:
            TT_TRY(run_for(r, node));
            break;
        }
    }
    return TT_OK;
}

tt_status tti_chat_render(const char *source, size_t n, const tti_chat_input *input, tt_text *text,
                          tt_text *mark)
{
    tti_chat_arena arena = {0};
    tti_node *root = NULL;
    tt_status st = tti_chat_parse(&arena, source, n, &root);
    if (st == TT_OK) {
        st = tt_text_append(text, "", 0);
    }
    if (st == TT_OK) {
        st = tt_text_append(mark, "", 0);
    }
    if (st == TT_OK) {
        run r = {.arena = &arena, .input = input, .text = text, .mark = mark};
        st = run_body(&r, root);
    }
    tti_chat_arena_fini(&arena);
    return st;
}
