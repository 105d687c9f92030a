/* chat_template_parse.c - a chat template (Jinja) to a tree.
 *
 * White space follows the way the reference library sets Jinja up: trim_blocks (one newline
 * behind a block goes), lstrip_blocks (blanks before a block that begins its line go), `-` next
 * to a bracket takes all white space on its side, `+` keeps it; the newline at the very end goes.
 * Tags are read by a small lexer, expressions by descent over the precedence or, and, not,
 * comparison, +, ~, postfix. */
#include "chat_template_internal.h"
#include <stdio.h>
#include <string.h>

typedef enum token_kind {
    TOKEN_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_OPERATOR
} token_kind;
typedef struct token {
    token_kind kind;
    const char *text; /* text[n]; a string's content with its escapes resolved */
    size_t n;
    int64_t number;
} token;

typedef struct parser {
    tti_chat_arena *arena;
    const char *source; /* source[n], newlines are \n */
    size_t n;
    size_t at; /* the next byte to read */
    int line;  /* of counted_to */
    size_t counted_to;
    bool in_variable; /* in {{ }} rather than {% %} */
    unsigned depth;
    token token; /* the one ahead */
} parser;

static int line_here(parser *p)
{
    for (; p->counted_to < p->at && p->counted_to < p->n; p->counted_to++) {
        p->line += p->source[p->counted_to] == '\n';
    }
    return p->line;
}

#define TEMPLATE_FAIL(p, code, ...) template_fail((p), (code), __FILE__, __LINE__, __VA_ARGS__)
static TT_PRINTF(5, 6) tt_status
    template_fail(parser *p, tt_status code, const char *file, int line, const char *format, ...)
{
    enum { REASON_BYTES = 256 };
    char reason[REASON_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    return tt_status_fail(code, file, line, "chat template, line %d: %s", line_here(p), reason);
}

static tt_status alloc(parser *p, size_t bytes, void **out)
{
    *out = tti_chat_alloc(p->arena, bytes);
    TT_CHECK(*out, TT_ERR_NOMEM, "out of memory for the chat template");
    return TT_OK;
}

/* How much of a word a message shows. */
static int shown(size_t n)
{
    enum { SHOWN_BYTES = 64 };
    return n < SHOWN_BYTES ? (int)n : SHOWN_BYTES;
}

/* ---- lexer ---- */
static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool looks_at(const parser *p, size_t at, const char *what)
{
    size_t length = strlen(what);
    return at <= p->n && p->n - at >= length && memcmp(p->source + at, what, length) == 0;
}

/* Goes behind the bracket that closes a tag, and behind the white space that it takes along. */
static void close_tag(parser *p, const char *bracket, bool is_block)
{
    char sign = p->source[p->at];
    bool signs = sign == '-' || sign == '+';
    p->at += (signs ? 1 : 0) + strlen(bracket);
    if (signs && sign == '-') {
        while (p->at < p->n && is_blank(p->source[p->at])) {
            p->at++;
        }
    } else if (!signs && is_block && looks_at(p, p->at, "\n")) {
        p->at++;
    }
}

/* Is the tag's closing bracket here? */
static bool at_close(const parser *p)
{
    const char *bracket = p->in_variable ? "}}" : "%}";
    bool signs =
        p->at < p->n && (p->source[p->at] == '-' || (p->source[p->at] == '+' && !p->in_variable));
    return looks_at(p, p->at, bracket) || (signs && looks_at(p, p->at + 1, bracket));
}

static tt_status lex_string(parser *p)
{
    char quote = p->source[p->at++];
    size_t start = p->at;
    size_t end = start;
    while (end < p->n && p->source[end] != quote) {
        end += p->source[end] == '\\' ? 2 : 1;
    }
    if (end >= p->n) {
        return TEMPLATE_FAIL(p, TT_ERR_FILE, "a string has no end");
    }
    void *memory;
    TT_TRY(alloc(p, end - start + 1, &memory));
    char *text = memory;
    size_t n = 0;
    for (size_t i = start; i < end; i++) {
        char c = p->source[i];
        if (c == '\\') {
            static const char from[] = "nrt\\'\"", to[] = "\n\r\t\\'\"";
            c = p->source[++i];
            const char *known = c ? strchr(from, c) : NULL;
            if (!known) {
                return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED,
                                     "the escape \\%c in a string is not supported", c);
            }
            c = to[known - from];
        }
        text[n++] = c;
    }
    p->at = end + 1;
    p->token = (token){.kind = TOKEN_STRING, .text = text, .n = n};
    return TT_OK;
}

static tt_status lex_integer(parser *p)
{
    enum { DIGITS_MAX = 18, BASE = 10 }; /* 10^18 < 2^63 */
    size_t start = p->at;
    int64_t number = 0;
    while (p->at < p->n && is_digit(p->source[p->at])) {
        number = p->at - start < DIGITS_MAX ? number * BASE + (p->source[p->at] - '0') : 0;
        p->at++;
    }
    if (p->at - start > DIGITS_MAX || looks_at(p, p->at, ".")) {
        return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED, "the number %.*s is not supported",
                             (int)DIGITS_MAX, p->source + start);
    }
    p->token = (token){
        .kind = TOKEN_INTEGER, .text = p->source + start, .n = p->at - start, .number = number};
    return TT_OK;
}

/* Reads the next token of the tag into p->token. */
static tt_status advance(parser *p)
{
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    enum { N_TWO = sizeof(two) / sizeof(two[0]) };
    while (p->at < p->n && is_blank(p->source[p->at])) {
        p->at++;
    }
    if (p->at >= p->n) {
        return TEMPLATE_FAIL(p, TT_ERR_FILE, "a tag has no end");
    }
    char c = p->source[p->at];
    size_t start = p->at;
    if (at_close(p)) {
        p->token = (token){.kind = TOKEN_END, .text = p->in_variable ? "}}" : "%}", .n = 2};
        return TT_OK;
    }
    if (c == '\'' || c == '"') {
        return lex_string(p);
    }
    if (is_digit(c)) {
        return lex_integer(p);
    }
    if (is_name_start(c)) {
        while (p->at < p->n && (is_name_start(p->source[p->at]) || is_digit(p->source[p->at]))) {
            p->at++;
        }
        p->token = (token){.kind = TOKEN_NAME, .text = p->source + start, .n = p->at - start};
        return TT_OK;
    }
    bool valid, cut;
    size_t length = tti_utf8_next(p->source + start, p->n - start, &valid, &cut);
    for (size_t k = 0; k < N_TWO; k++) {
        length = looks_at(p, start, two[k]) ? strlen(two[k]) : length;
    }
    p->at += length;
    p->token = (token){.kind = TOKEN_OPERATOR, .text = p->source + start, .n = length};
    return TT_OK;
}

static bool token_is(const parser *p, token_kind kind, const char *text)
{
    return p->token.kind == kind && p->token.n == strlen(text) &&
           memcmp(p->token.text, text, p->token.n) == 0;
}

static tt_status refuse_token(parser *p)
{
    return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED, "\"%.*s\" is not supported here", shown(p->token.n),
                         p->token.text);
}

static tt_status expect(parser *p, token_kind kind, const char *text)
{
    return token_is(p, kind, text) ? advance(p) : refuse_token(p);
}

/* ---- expressions ---- */
static tt_status parse_or(parser *p, const tti_expr **out);

static tt_status make_expr(parser *p, tti_expr_kind kind, const tti_expr *left,
                           const tti_expr *right, tti_expr **out)
{
    void *memory;
    unsigned depth = left ? left->depth : 0;
    depth = right && right->depth > depth ? right->depth : depth;
    if (depth >= TTI_CHAT_DEPTH_MAX) {
        return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED, "an expression is nested deeper than %d",
                             TTI_CHAT_DEPTH_MAX);
    }
    TT_TRY(alloc(p, sizeof(tti_expr), &memory));
    *out = memory;
    **out = (tti_expr){
        .kind = kind, .depth = depth + 1, .line = line_here(p), .left = left, .right = right};
    return TT_OK;
}

static tt_status parse_primary(parser *p, const tti_expr **out)
{
    static const struct {
        const char *name;
        tti_expr_kind kind;
    } constants[] = {{"true", TTI_EXPR_TRUE},   {"True", TTI_EXPR_TRUE}, {"false", TTI_EXPR_FALSE},
                     {"False", TTI_EXPR_FALSE}, {"none", TTI_EXPR_NONE}, {"None", TTI_EXPR_NONE}};
    static const char *const reserved[] = {"and", "or", "not", "in", "is", "if", "else"};
    tti_expr *expr;
    if (token_is(p, TOKEN_OPERATOR, "(")) {
        TT_TRY(advance(p));
        TT_TRY(parse_or(p, out));
        return expect(p, TOKEN_OPERATOR, ")");
    }
    for (size_t k = 0; k < sizeof(reserved) / sizeof(reserved[0]); k++) {
        if (token_is(p, TOKEN_NAME, reserved[k])) {
            return refuse_token(p);
        }
    }
    bool negative = token_is(p, TOKEN_OPERATOR, "-");
    if (negative) {
        TT_TRY(advance(p));
        if (p->token.kind != TOKEN_INTEGER) {
            return refuse_token(p);
        }
    }
    tti_expr_kind kind;
    switch (p->token.kind) {
    case TOKEN_STRING:
        kind = TTI_EXPR_STRING;
        break;
    case TOKEN_INTEGER:
        kind = TTI_EXPR_INTEGER;
        break;
    case TOKEN_NAME:
        kind = TTI_EXPR_NAME;
        break;
    default:
        return refuse_token(p);
    }
    for (size_t k = 0; k < sizeof(constants) / sizeof(constants[0]); k++) {
        kind = token_is(p, TOKEN_NAME, constants[k].name) ? constants[k].kind : kind;
    }
    TT_TRY(make_expr(p, kind, NULL, NULL, &expr));
    expr->text = p->token.text;
    expr->n = p->token.n;
    expr->number = negative ? -p->token.number : p->token.number;
    *out = expr;
    TT_TRY(advance(p));
    if (kind == TTI_EXPR_STRING && p->token.kind == TOKEN_STRING) {
        return refuse_token(p);
    }
    return TT_OK;
}

static tt_status parse_postfix(parser *p, const tti_expr **out)
{
    tti_expr *expr;
    TT_TRY(parse_primary(p, out));
    for (;;) {
        if (token_is(p, TOKEN_OPERATOR, ".")) {
            TT_TRY(advance(p));
            if (p->token.kind != TOKEN_NAME) {
                return refuse_token(p);
            }
            TT_TRY(make_expr(p, TTI_EXPR_ATTRIBUTE, *out, NULL, &expr));
            expr->text = p->token.text;
            expr->n = p->token.n;
            TT_TRY(advance(p));
        } else if (token_is(p, TOKEN_OPERATOR, "[")) {
            const tti_expr *index;
            TT_TRY(advance(p));
            TT_TRY(parse_or(p, &index));
            TT_TRY(expect(p, TOKEN_OPERATOR, "]"));
            TT_TRY(make_expr(p, TTI_EXPR_SUBSCRIPT, *out, index, &expr));
        } else if (token_is(p, TOKEN_OPERATOR, "|")) {
            TT_TRY(advance(p));
            return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED, "the filter \"%.*s\" is not supported",
                                 shown(p->token.n), p->token.text);
        } else if (token_is(p, TOKEN_OPERATOR, "(")) {
            const tti_expr *called = *out;
            return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED, "the call of \"%.*s\" is not supported",
                                 shown(called->n), called->text ? called->text : "");
        } else {
            return TT_OK;
        }
        *out = expr;
    }
}

/* A chain of one left-associative operator; each level of precedence below names its operands'
 * parser. */
typedef tt_status parse_level(parser *p, const tti_expr **out);

static tt_status parse_chain(parser *p, parse_level *operand, token_kind joint, const char *name,
                             tti_expr_kind kind, const tti_expr **out)
{
    TT_TRY(operand(p, out));
    while (token_is(p, joint, name)) {
        const tti_expr *right;
        tti_expr *expr;
        TT_TRY(advance(p));
        TT_TRY(operand(p, &right));
        TT_TRY(make_expr(p, kind, *out, right, &expr));
        *out = expr;
    }
    return TT_OK;
}

static tt_status parse_concat(parser *p, const tti_expr **out)
{
    return parse_chain(p, parse_postfix, TOKEN_OPERATOR, "~", TTI_EXPR_CONCAT, out);
}

static tt_status parse_add(parser *p, const tti_expr **out)
{
    return parse_chain(p, parse_concat, TOKEN_OPERATOR, "+", TTI_EXPR_ADD, out);
}

static tt_status parse_comparison(parser *p, const tti_expr **out)
{
    TT_TRY(parse_add(p, out));
    bool equal = token_is(p, TOKEN_OPERATOR, "==");
    if (!equal && !token_is(p, TOKEN_OPERATOR, "!=")) {
        return TT_OK;
    }
    const tti_expr *right;
    tti_expr *expr;
    TT_TRY(advance(p));
    TT_TRY(parse_add(p, &right));
    TT_TRY(make_expr(p, equal ? TTI_EXPR_EQUAL : TTI_EXPR_NOT_EQUAL, *out, right, &expr));
    *out = expr;
    return TT_OK;
}

static tt_status parse_not(parser *p, const tti_expr **out)
{
    unsigned count = 0;
    while (token_is(p, TOKEN_NAME, "not")) {
        count++;
        TT_TRY(advance(p));
    }
    TT_TRY(parse_comparison(p, out));
    for (; count > 0; count--) {
        tti_expr *expr;
        TT_TRY(make_expr(p, TTI_EXPR_NOT, *out, NULL, &expr));
        *out = expr;
    }
    return TT_OK;
}

static tt_status parse_and(parser *p, const tti_expr **out)
{
    return parse_chain(p, parse_not, TOKEN_NAME, "and", TTI_EXPR_AND, out);
}

static tt_status parse_or(parser *p, const tti_expr **out)
{
    if (p->depth >= TTI_CHAT_DEPTH_MAX) {
        return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED, "it is nested deeper than %d",
                             TTI_CHAT_DEPTH_MAX);
    }
    p->depth++;
    TT_TRY(parse_chain(p, parse_and, TOKEN_NAME, "or", TTI_EXPR_OR, out));
    p->depth--;
    return TT_OK;
}

/* ---- statements ---- */
static tt_status parse_body(parser *p, tti_node **first_out);

static tt_status end_block(parser *p)
{
    if (p->token.kind != TOKEN_END) {
        return refuse_token(p);
    }
    close_tag(p, "%}", true);
    return TT_OK;
}

static tt_status make_node(parser *p, tti_node_kind kind, tti_node **out)
{
    void *memory;
    TT_TRY(alloc(p, sizeof(tti_node), &memory));
    *out = memory;
    **out = (tti_node){.kind = kind, .line = line_here(p)};
    return TT_OK;
}

/* After the condition of `if`; each `elif` is an IF in the `other` of the one before. */
static tt_status parse_if(parser *p, tti_node **out)
{
    tti_node *node;
    TT_TRY(make_node(p, TTI_NODE_IF, &node));
    *out = node;
    for (;;) {
        TT_TRY(advance(p));
        TT_TRY(parse_or(p, &node->expr));
        TT_TRY(end_block(p));
        TT_TRY(parse_body(p, &node->body));
        if (!token_is(p, TOKEN_NAME, "elif")) {
            break;
        }
        TT_TRY(make_node(p, TTI_NODE_IF, &node->other));
        node = node->other;
    }
    if (token_is(p, TOKEN_NAME, "else")) {
        TT_TRY(advance(p));
        TT_TRY(end_block(p));
        TT_TRY(parse_body(p, &node->other));
    }
    TT_TRY(expect(p, TOKEN_NAME, "endif"));
    return end_block(p);
}

static tt_status parse_for(parser *p, tti_node **out)
{
    tti_node *node;
    TT_TRY(make_node(p, TTI_NODE_FOR, &node));
    *out = node;
    TT_TRY(advance(p));
    if (p->token.kind != TOKEN_NAME) {
        return refuse_token(p);
    }
    node->text = p->token.text;
    node->n = p->token.n;
    TT_TRY(advance(p));
    TT_TRY(expect(p, TOKEN_NAME, "in"));
    TT_TRY(parse_or(p, &node->expr));
    TT_TRY(end_block(p));
    TT_TRY(parse_body(p, &node->body));
    if (token_is(p, TOKEN_NAME, "else")) {
        TT_TRY(advance(p));
        TT_TRY(end_block(p));
        TT_TRY(parse_body(p, &node->other));
    }
    TT_TRY(expect(p, TOKEN_NAME, "endfor"));
    return end_block(p);
}

/* The text before a bracket at `open`, less the white space that the bracket takes. */
static tt_status add_text(parser *p, size_t start, size_t open, bool starts_line, tti_node ***link)
{
    size_t end = open;
    char sign = open + 2 < p->n ? p->source[open + 2] : 0;
    if (open < p->n && sign == '-') {
        while (end > start && is_blank(p->source[end - 1])) {
            end--;
        }
    } else if (open < p->n && sign != '+' && p->source[open + 1] != '{') {
        size_t blank = end;
        while (blank > start && is_blank(p->source[blank - 1]) && p->source[blank - 1] != '\n') {
            blank--;
        }
        if ((blank > start && p->source[blank - 1] == '\n') || (blank == start && starts_line)) {
            end = blank;
        }
    }
    if (end > start) {
        tti_node *node;
        TT_TRY(make_node(p, TTI_NODE_TEXT, &node));
        node->text = p->source + start;
        node->n = end - start;
        **link = node;
        *link = &node->next;
    }
    return TT_OK;
}

static tt_status skip_comment(parser *p)
{
    while (p->at < p->n && !looks_at(p, p->at, "#}")) {
        p->at++;
    }
    if (p->at >= p->n) {
        return TEMPLATE_FAIL(p, TT_ERR_FILE, "a comment has no end");
    }
    char before = p->source[p->at - 1];
    p->at -= before == '-' || before == '+' ? 1 : 0;
    close_tag(p, "#}", true);
    return TT_OK;
}

static tt_status parse_output(parser *p, tti_node **out)
{
    TT_TRY(make_node(p, TTI_NODE_OUTPUT, out));
    TT_TRY(advance(p));
    TT_TRY(parse_or(p, &(*out)->expr));
    if (p->token.kind != TOKEN_END) {
        return refuse_token(p);
    }
    close_tag(p, "}}", false);
    return TT_OK;
}

/* Reads statements up to a tag that ends or divides one around (elif, else, endif, endfor), which
 * is then ahead, or to the end, where the token ahead is TOKEN_END. */
static tt_status parse_statements(parser *p, tti_node **first_out)
{
    tti_node **link = first_out;
    for (;;) {
        size_t start = p->at, open = start;
        bool starts_line = start == 0 || p->source[start - 1] == '\n';
        while (open < p->n && !(p->source[open] == '{' && open + 1 < p->n &&
                                strchr("{%#", p->source[open + 1]) && p->source[open + 1])) {
            open++;
        }
        TT_TRY(add_text(p, start, open, starts_line, &link));
        if (open >= p->n) {
            p->at = p->n;
            p->token = (token){.kind = TOKEN_END, .text = ""};
            return TT_OK;
        }
        char kind = p->source[open + 1];
        p->at = open + 2;
        if (kind == '#') {
            TT_TRY(skip_comment(p));
            continue;
        }
        p->at += p->at < p->n && (p->source[p->at] == '-' || p->source[p->at] == '+') ? 1 : 0;
        p->in_variable = kind == '{';
        if (p->in_variable) {
            TT_TRY(parse_output(p, link));
        } else {
            TT_TRY(advance(p));
            if (token_is(p, TOKEN_NAME, "if")) {
                TT_TRY(parse_if(p, link));
            } else if (token_is(p, TOKEN_NAME, "for")) {
                TT_TRY(parse_for(p, link));
            } else if (token_is(p, TOKEN_NAME, "elif") || token_is(p, TOKEN_NAME, "else") ||
                       token_is(p, TOKEN_NAME, "endif") || token_is(p, TOKEN_NAME, "endfor")) {
                return TT_OK;
            } else {
                return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED, "the tag \"%.*s\" is not supported",
                                     shown(p->token.n), p->token.text);
            }
        }
        link = &(*link)->next;
    }
}

static tt_status parse_body(parser *p, tti_node **first_out)
{
    if (p->depth >= TTI_CHAT_DEPTH_MAX) {
        return TEMPLATE_FAIL(p, TT_ERR_UNSUPPORTED, "it is nested deeper than %d",
                             TTI_CHAT_DEPTH_MAX);
    }
    p->depth++;
    TT_TRY(parse_statements(p, first_out));
    p->depth--;
    if (p->token.kind == TOKEN_END) {
        return TEMPLATE_FAIL(p, TT_ERR_FILE, "an \"if\" or \"for\" has no end");
    }
    return TT_OK;
}

/* A copy in which every newline is \n, less one at the very end. */
static tt_status normalise_newlines(parser *p, const char *source, size_t n)
{
    void *memory;
    TT_TRY(alloc(p, n + 1, &memory));
    char *copy = memory;
    size_t made = 0;
    for (size_t i = 0; i < n; i++) {
        copy[made++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n') {
            i++;
        }
    }
    p->source = copy;
    p->n = made > 0 && copy[made - 1] == '\n' ? made - 1 : made;
    return TT_OK;
}

tt_status tti_chat_parse(tti_chat_arena *arena, const char *source, size_t n, tti_node **root_out)
{
    parser p = {.arena = arena, .line = 1};
    TT_CHECK(tti_utf8_valid_prefix(source, n) == n, TT_ERR_FILE, "the chat template is not UTF-8");
    TT_TRY(normalise_newlines(&p, source, n));
    TT_TRY(parse_statements(&p, root_out));
    return p.token.kind == TOKEN_END ? TT_OK : refuse_token(&p);
}
