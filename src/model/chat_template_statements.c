/* chat_template_statements.c - statements of a chat template: text, {{ }} and {% %} into a tree. */
#include "chat_template_lex.h"

/* What surrounds the statements being read. */
typedef struct place {
    tti_lexer *p;
    unsigned loops; /* around, in this macro */
} place;

static tt_status parse_body(place *at, const char *what, tti_node **first_out);

static tt_status make_node(tti_lexer *p, tti_node_kind kind, tti_node **out)
{
    void *memory;
    TT_TRY(tti_chat_alloc(p->arena, sizeof(tti_node), &memory));
    *out = memory;
    **out = (tti_node){.kind = kind, .line = tti_lex_line(p)};
    return TT_OK;
}

static tt_status make_target(tti_lexer *p, tti_target ***link, tti_target **out)
{
    void *memory;
    TT_TRY(tti_chat_alloc(p->arena, sizeof(tti_target), &memory));
    *out = memory;
    **link = *out;
    *link = &(*out)->next;
    return TT_OK;
}

static tt_status end_with(tti_lexer *p, const char *word)
{
    TT_TRY(tti_lex_expect(p, TTI_TOKEN_NAME, word));
    return tti_lex_end_tag(p);
}

/* a, (b, c), ns.d - up to `in` or `=`. */
static tt_status parse_targets(tti_lexer *p, bool attributes, const tti_target **first_out,
                               bool *unpack_out)
{
    tti_target *first = NULL, **link = &first, *target = NULL;
    *unpack_out = false;
    TT_TRY(tti_lex_enter(p));
    for (;;) {
        bool more;
        TT_TRY(make_target(p, &link, &target));
        TT_TRY(tti_lex_accept(p, TTI_TOKEN_OPERATOR, "(", &more));
        if (more) {
            bool unpack;
            TT_TRY(parse_targets(p, attributes, &target->inner, &unpack));
            TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, ")"));
            if (!unpack) { /* brackets around one name */
                tti_target *next = target->next;
                *target = *target->inner;
                target->next = next;
            }
        } else {
            TT_TRY(tti_lex_name(p, &target->name));
        }
        if (attributes && !target->inner && tti_lex_is(p, TTI_TOKEN_OPERATOR, ".")) {
            TT_TRY(tti_lex_next(p));
            TT_TRY(tti_lex_name(p, &target->attribute));
        }
        TT_TRY(tti_lex_accept(p, TTI_TOKEN_OPERATOR, ",", &more));
        *unpack_out = *unpack_out || more;
        bool ends = tti_lex_is(p, TTI_TOKEN_NAME, "in") || tti_lex_is(p, TTI_TOKEN_OPERATOR, "=") ||
                    tti_lex_is(p, TTI_TOKEN_OPERATOR, ")") || p->token.kind == TTI_TOKEN_END;
        if (!more || ends) {
            break;
        }
    }
    tti_lex_leave(p);
    *first_out = first;
    return TT_OK;
}

/* An `else` with its body, if there is one; `tag` is what it belongs to. */
static tt_status parse_else(place *at, const char *tag, tti_node **body)
{
    bool found;
    TT_TRY(tti_lex_accept(at->p, TTI_TOKEN_NAME, "else", &found));
    if (!found) {
        return TT_OK;
    }
    TT_TRY(tti_lex_end_tag(at->p));
    return parse_body(at, tag, body);
}

/* After the condition of `if`; each `elif` is an IF in the `other` of the one before. */
static tt_status parse_if(place *at, tti_node **out)
{
    tti_lexer *p = at->p;
    tti_node *node;
    TT_TRY(make_node(p, TTI_NODE_IF, &node));
    *out = node;
    for (;;) {
        TT_TRY(tti_lex_next(p));
        TT_TRY(tti_parse_tuple(p, false, &node->expr));
        TT_TRY(tti_lex_end_tag(p));
        TT_TRY(parse_body(at, "if", &node->body));
        if (!tti_lex_is(p, TTI_TOKEN_NAME, "elif")) {
            break;
        }
        TT_TRY(make_node(p, TTI_NODE_IF, &node->other));
        node = node->other;
        node->is_elif = true;
    }
    TT_TRY(parse_else(at, "if", &node->other));
    return end_with(p, "endif");
}

static tt_status parse_for(place *at, tti_node **out)
{
    tti_lexer *p = at->p;
    tti_node *node;
    bool more;
    TT_TRY(make_node(p, TTI_NODE_FOR, &node));
    *out = node;
    TT_TRY(tti_lex_next(p));
    TT_TRY(parse_targets(p, false, &node->target, &node->unpack));
    TT_TRY(tti_lex_expect(p, TTI_TOKEN_NAME, "in"));
    TT_TRY(tti_parse_tuple(p, false, &node->expr));
    TT_TRY(tti_lex_accept(p, TTI_TOKEN_NAME, "if", &more));
    if (more) {
        TT_TRY(tti_parse_expression(p, &node->where));
    }
    if (tti_lex_is(p, TTI_TOKEN_NAME, "recursive")) {
        return TTI_LEX_FAIL(p, TT_ERR_UNSUPPORTED, "a recursive \"for\" is not supported");
    }
    TT_TRY(tti_lex_end_tag(p));
    at->loops++;
    TT_TRY(parse_body(at, "for", &node->body));
    at->loops--;
    TT_TRY(parse_else(at, "for", &node->other));
    return end_with(p, "endfor");
}

static tt_status parse_set(place *at, tti_node **out)
{
    tti_lexer *p = at->p;
    bool more;
    TT_TRY(make_node(p, TTI_NODE_SET, out));
    TT_TRY(tti_lex_next(p));
    TT_TRY(parse_targets(p, true, &(*out)->target, &(*out)->unpack));
    TT_TRY(tti_lex_accept(p, TTI_TOKEN_OPERATOR, "=", &more));
    if (more) {
        TT_TRY(tti_parse_tuple(p, true, &(*out)->expr));
        return tti_lex_end_tag(p);
    }
    (*out)->kind = TTI_NODE_SET_BLOCK;
    TT_TRY(tti_lex_accept(p, TTI_TOKEN_OPERATOR, "|", &more));
    if (more) {
        TT_TRY(tti_parse_filters(p, &(*out)->expr));
    }
    TT_TRY(tti_lex_end_tag(p));
    TT_TRY(parse_body(at, "set", &(*out)->body));
    return end_with(p, "endset");
}

/* (a, b = 1) of a macro or call block. */
static tt_status parse_parameters(tti_lexer *p, const tti_target **first_out)
{
    tti_target *first = NULL, **link = &first, *target = NULL;
    bool more, defaults = false;
    TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, "("));
    while (!tti_lex_is(p, TTI_TOKEN_OPERATOR, ")")) {
        TT_TRY(make_target(p, &link, &target));
        TT_TRY(tti_lex_name(p, &target->name));
        TT_TRY(tti_lex_accept(p, TTI_TOKEN_OPERATOR, "=", &more));
        if (more) {
            TT_TRY(tti_parse_expression(p, &target->value));
        } else if (defaults) {
            return TTI_LEX_FAIL(p, TT_ERR_FILE, "a parameter without a default follows one with");
        }
        defaults = more;
        if (!tti_lex_is(p, TTI_TOKEN_OPERATOR, ")")) {
            TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, ","));
        }
    }
    *first_out = first;
    return tti_lex_next(p);
}

static tt_status parse_macro(place *at, tti_node **out)
{
    tti_lexer *p = at->p;
    place inner = {.p = p};
    TT_TRY(make_node(p, TTI_NODE_MACRO, out));
    TT_TRY(tti_lex_next(p));
    TT_TRY(tti_lex_name(p, &(*out)->text));
    TT_TRY(parse_parameters(p, &(*out)->target));
    TT_TRY(tti_lex_end_tag(p));
    TT_TRY(parse_body(&inner, "macro", &(*out)->body));
    TT_TRY(tti_lex_expect(p, TTI_TOKEN_NAME, "endmacro"));
    if (p->token.kind == TTI_TOKEN_NAME) { /* the name may come again */
        TT_TRY(tti_lex_next(p));
    }
    return tti_lex_end_tag(p);
}

/* {% call(x) f(y) %}: the body becomes a macro that f knows as `caller`. */
static tt_status parse_call_block(place *at, tti_node **out)
{
    tti_lexer *p = at->p;
    place inner = {.p = p};
    TT_TRY(make_node(p, TTI_NODE_CALL, out));
    TT_TRY(tti_lex_next(p));
    if (tti_lex_is(p, TTI_TOKEN_OPERATOR, "(")) {
        TT_TRY(parse_parameters(p, &(*out)->target));
    }
    TT_TRY(tti_parse_expression(p, &(*out)->expr));
    if ((*out)->expr->kind != TTI_EXPR_CALL) {
        return TTI_LEX_FAIL(p, TT_ERR_FILE, "\"call\" stands before something that is no call");
    }
    (*out)->text = (tti_string){"caller", strlen("caller")};
    TT_TRY(tti_lex_end_tag(p));
    TT_TRY(parse_body(&inner, "call", &(*out)->body));
    return end_with(p, "endcall");
}

static tt_status parse_filter_block(place *at, tti_node **out)
{
    TT_TRY(make_node(at->p, TTI_NODE_FILTER, out));
    TT_TRY(tti_lex_next(at->p));
    TT_TRY(tti_parse_filters(at->p, &(*out)->expr));
    TT_TRY(tti_lex_end_tag(at->p));
    TT_TRY(parse_body(at, "filter", &(*out)->body));
    return end_with(at->p, "endfilter");
}

static tt_status parse_with(place *at, tti_node **out)
{
    tti_lexer *p = at->p;
    tti_target *first = NULL, **link = &first, *target = NULL;
    TT_TRY(make_node(p, TTI_NODE_WITH, out));
    TT_TRY(tti_lex_next(p));
    while (p->token.kind != TTI_TOKEN_END) {
        if (first) {
            TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, ","));
        }
        TT_TRY(make_target(p, &link, &target));
        TT_TRY(tti_lex_name(p, &target->name));
        TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, "="));
        TT_TRY(tti_parse_expression(p, &target->value));
    }
    (*out)->target = first;
    TT_TRY(tti_lex_end_tag(p));
    TT_TRY(parse_body(at, "with", &(*out)->body));
    return end_with(p, "endwith");
}

/* The words of an assistant, marked for training; here they are just words. */
static tt_status parse_generation(place *at, tti_node **out)
{
    place inner = {.p = at->p};
    TT_TRY(make_node(at->p, TTI_NODE_SCOPE, out));
    TT_TRY(tti_lex_next(at->p));
    TT_TRY(tti_lex_end_tag(at->p));
    TT_TRY(parse_body(&inner, "generation", &(*out)->body));
    return end_with(at->p, "endgeneration");
}

static tt_status parse_jump(place *at, tti_node **out)
{
    bool is_break = tti_lex_is(at->p, TTI_TOKEN_NAME, "break");
    if (at->loops == 0) {
        return TTI_LEX_FAIL(at->p, TT_ERR_FILE, "\"%s\" stands outside a loop",
                            is_break ? "break" : "continue");
    }
    TT_TRY(make_node(at->p, is_break ? TTI_NODE_BREAK : TTI_NODE_CONTINUE, out));
    TT_TRY(tti_lex_next(at->p));
    return tti_lex_end_tag(at->p);
}

static tt_status parse_output(place *at, tti_node **out)
{
    TT_TRY(make_node(at->p, TTI_NODE_OUTPUT, out));
    TT_TRY(tti_lex_next(at->p));
    TT_TRY(tti_parse_tuple(at->p, true, &(*out)->expr));
    return tti_lex_end_tag(at->p);
}

typedef tt_status parse_tag(place *at, tti_node **out);
static const struct {
    const char *name;
    parse_tag *parse;
} tags[] = {{"if", parse_if},           {"for", parse_for},
            {"set", parse_set},         {"macro", parse_macro},
            {"call", parse_call_block}, {"filter", parse_filter_block},
            {"with", parse_with},       {"generation", parse_generation},
            {"break", parse_jump},      {"continue", parse_jump}};

static bool divides(const tti_lexer *p)
{
    static const char *const words[] = {"elif", "else", NULL};
    for (int k = 0; words[k]; k++) {
        if (tti_lex_is(p, TTI_TOKEN_NAME, words[k])) {
            return true;
        }
    }
    return p->token.kind == TTI_TOKEN_NAME && p->token.text.n > 3 &&
           memcmp(p->token.text.text, "end", 3) == 0;
}

static tt_status parse_block(place *at, tti_node **out)
{
    const tti_lexer *p = at->p;
    for (size_t k = 0; k < sizeof(tags) / sizeof(tags[0]); k++) {
        if (tti_lex_is(p, TTI_TOKEN_NAME, tags[k].name)) {
            return tags[k].parse(at, out);
        }
    }
    return TTI_LEX_FAIL(at->p, TT_ERR_UNSUPPORTED, "the tag \"%.*s\" is not supported",
                        tti_chat_shown(p->token.text.n), p->token.text.text);
}

/* Reads statements up to a tag that ends or divides one around (elif, else, end..), which is then
 * ahead, or to the end of the template. */
static tt_status parse_statements(place *at, tti_node **first_out)
{
    tti_lexer *p = at->p;
    tti_node **link = first_out;
    for (;;) {
        tti_string text;
        bool more;
        TT_TRY(tti_lex_text(p, &text, &more));
        if (text.n > 0) {
            TT_TRY(make_node(p, TTI_NODE_TEXT, link));
            (*link)->text = text;
            link = &(*link)->next;
        }
        if (more) {
            continue;
        }
        if (p->tag == TTI_TAG_NONE) {
            return TT_OK;
        }
        if (p->tag == TTI_TAG_OUTPUT) {
            TT_TRY(parse_output(at, link));
        } else {
            TT_TRY(tti_lex_next(p));
            if (divides(p)) {
                return TT_OK;
            }
            TT_TRY(parse_block(at, link));
        }
        link = &(*link)->next;
    }
}

static tt_status parse_body(place *at, const char *what, tti_node **first_out)
{
    int line = tti_lex_line(at->p);
    TT_TRY(tti_lex_enter(at->p));
    TT_TRY(parse_statements(at, first_out));
    tti_lex_leave(at->p);
    if (at->p->tag == TTI_TAG_NONE) {
        return TTI_CHAT_FAIL(TT_ERR_FILE, line, "the \"%s\" has no end", what);
    }
    return TT_OK;
}

tt_status tti_chat_parse(tti_chat_arena *arena, const char *source, size_t n, tti_node **root_out)
{
    tti_lexer lexer;
    place at = {.p = &lexer};
    TT_TRY(tti_lex_begin(&lexer, arena, source, n));
    TT_TRY(parse_statements(&at, root_out));
    return lexer.tag == TTI_TAG_NONE ? TT_OK : tti_lex_refuse(&lexer);
}
