/* chat_template_parse.c - expressions of a chat template, by descent over Jinja's precedence:
 *
 *   if-else, or, and, not, comparisons and in, + -, ~, * / // %, **, unary, then postfix
 *   (. [ ] call), then filters, tests and calls behind them.
 *
 * Note that ~ binds tighter than + and that filters bind tighter than unary minus. */
#include "chat_template_lex.h"

static tt_status make_expr(tti_lexer *p, tti_expr_kind kind, const tti_expr *left,
                           const tti_expr *right, tti_expr **out)
{
    void *memory;
    unsigned depth = left ? left->depth : 0;
    depth = right && right->depth > depth ? right->depth : depth;
    /* A chain as a + a + a.. or a.b.c.. is deep on its left side without any recursion here. */
    enum { CHAIN_MAX = 4 * TTI_CHAT_PARSE_DEPTH_MAX };
    if (depth >= CHAIN_MAX) {
        return TTI_LEX_FAIL(p, TT_ERR_UNSUPPORTED, "an expression is nested deeper than %d",
                            CHAIN_MAX);
    }
    TT_TRY(tti_chat_alloc(p->arena, sizeof(tti_expr), &memory));
    *out = memory;
    **out = (tti_expr){
        .kind = kind, .depth = depth + 1, .line = tti_lex_line(p), .left = left, .right = right};
    return TT_OK;
}

static tt_status add_arg(tti_lexer *p, tti_arg ***link, const tti_expr *expr, tti_arg **out)
{
    void *memory;
    TT_TRY(tti_chat_alloc(p->arena, sizeof(tti_arg), &memory));
    *out = memory;
    (*out)->expr = expr;
    **link = *out;
    *link = &(*out)->next;
    return TT_OK;
}

static bool is_op(const tti_lexer *p, const char *text)
{
    return tti_lex_is(p, TTI_TOKEN_OPERATOR, text);
}

/* ---- what stands by itself ---- */
static tt_status parse_constant(tti_lexer *p, const tti_expr **out)
{
    static const struct {
        const char *name;
        tti_expr_kind kind;
    } constants[] = {{"true", TTI_EXPR_TRUE},   {"True", TTI_EXPR_TRUE}, {"false", TTI_EXPR_FALSE},
                     {"False", TTI_EXPR_FALSE}, {"none", TTI_EXPR_NONE}, {"None", TTI_EXPR_NONE}};
    static const char *const reserved[] = {"and", "or", "not", "in", "is", "if", "else"};
    tti_expr *expr;
    tti_expr_kind kind = TTI_EXPR_NAME;
    *out = NULL;
    for (size_t k = 0; k < sizeof(reserved) / sizeof(reserved[0]); k++) {
        if (tti_lex_is(p, TTI_TOKEN_NAME, reserved[k])) {
            return tti_lex_refuse(p);
        }
    }
    for (size_t k = 0; k < sizeof(constants) / sizeof(constants[0]); k++) {
        kind = tti_lex_is(p, TTI_TOKEN_NAME, constants[k].name) ? constants[k].kind : kind;
    }
    kind = p->token.kind == TTI_TOKEN_STRING ? TTI_EXPR_STRING : kind;
    TT_TRY(make_expr(p, kind, NULL, NULL, &expr));
    expr->name = p->token.text;
    *out = expr;
    if (p->token.kind == TTI_TOKEN_INTEGER || p->token.kind == TTI_TOKEN_REAL) {
        bool real = p->token.kind == TTI_TOKEN_REAL;
        expr->kind = real ? TTI_EXPR_REAL : TTI_EXPR_INTEGER;
        if (real) {
            expr->number.real = p->token.real;
        } else {
            expr->number.integer = p->token.integer;
        }
    }
    return tti_lex_next(p);
}

/* 'a' 'b' is 'ab'. */
static tt_status parse_strings(tti_lexer *p, const tti_expr **out)
{
    TT_TRY(parse_constant(p, out));
    while (p->token.kind == TTI_TOKEN_STRING) {
        const tti_expr *right;
        tti_expr *expr;
        TT_TRY(parse_constant(p, &right));
        TT_TRY(make_expr(p, TTI_EXPR_CONCAT, *out, right, &expr));
        *out = expr;
    }
    return TT_OK;
}

static tt_status parse_list(tti_lexer *p, const tti_expr **out)
{
    tti_expr *list;
    tti_arg *first = NULL, **link = &first, *arg = NULL;
    TT_TRY(make_expr(p, TTI_EXPR_LIST, NULL, NULL, &list));
    TT_TRY(tti_lex_next(p));
    while (!is_op(p, "]")) {
        const tti_expr *item;
        TT_TRY(tti_parse_expression(p, &item));
        TT_TRY(add_arg(p, &link, item, &arg));
        if (!is_op(p, "]")) {
            TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, ","));
        }
    }
    list->args = first;
    *out = list;
    return tti_lex_next(p);
}

static tt_status parse_dict(tti_lexer *p, const tti_expr **out)
{
    tti_expr *dict;
    tti_arg *first = NULL, **link = &first, *arg = NULL;
    TT_TRY(make_expr(p, TTI_EXPR_DICT, NULL, NULL, &dict));
    TT_TRY(tti_lex_next(p));
    while (!is_op(p, "}")) {
        const tti_expr *key, *value;
        TT_TRY(tti_parse_expression(p, &key));
        TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, ":"));
        TT_TRY(tti_parse_expression(p, &value));
        TT_TRY(add_arg(p, &link, key, &arg));
        TT_TRY(add_arg(p, &link, value, &arg));
        if (!is_op(p, "}")) {
            TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, ","));
        }
    }
    dict->args = first;
    *out = dict;
    return tti_lex_next(p);
}

static bool ends_tuple(const tti_lexer *p)
{
    return p->token.kind == TTI_TOKEN_END || is_op(p, ")") || tti_lex_is(p, TTI_TOKEN_NAME, "in");
}

tt_status tti_parse_tuple(tti_lexer *p, bool with_if, const tti_expr **out)
{
    tti_expr *tuple = NULL;
    tti_arg *first = NULL, **link = &first, *arg = NULL;
    const tti_expr *item;
    TT_TRY(with_if ? tti_parse_expression(p, &item) : tti_parse_simple(p, &item));
    *out = item;
    if (!is_op(p, ",")) {
        return TT_OK;
    }
    TT_TRY(make_expr(p, TTI_EXPR_TUPLE, NULL, NULL, &tuple));
    TT_TRY(add_arg(p, &link, item, &arg));
    while (is_op(p, ",")) {
        TT_TRY(tti_lex_next(p));
        if (ends_tuple(p)) {
            break;
        }
        TT_TRY(with_if ? tti_parse_expression(p, &item) : tti_parse_simple(p, &item));
        TT_TRY(add_arg(p, &link, item, &arg));
    }
    tuple->args = first;
    *out = tuple;
    return TT_OK;
}

static tt_status parse_bracketed(tti_lexer *p, const tti_expr **out)
{
    TT_TRY(tti_lex_next(p));
    if (is_op(p, ")")) {
        tti_expr *empty;
        TT_TRY(make_expr(p, TTI_EXPR_TUPLE, NULL, NULL, &empty));
        *out = empty;
        return tti_lex_next(p);
    }
    TT_TRY(tti_parse_tuple(p, true, out));
    return tti_lex_expect(p, TTI_TOKEN_OPERATOR, ")");
}

static tt_status parse_primary(tti_lexer *p, const tti_expr **out)
{
    switch (p->token.kind) {
    case TTI_TOKEN_STRING:
        return parse_strings(p, out);
    case TTI_TOKEN_NAME:
    case TTI_TOKEN_INTEGER:
    case TTI_TOKEN_REAL:
        return parse_constant(p, out);
    default:
        break;
    }
    if (is_op(p, "(")) {
        return parse_bracketed(p, out);
    }
    if (is_op(p, "[")) {
        return parse_list(p, out);
    }
    return is_op(p, "{") ? parse_dict(p, out) : tti_lex_refuse(p);
}

/* ---- what stands behind ---- */
/* ( ... ) of a call; with the bracket ahead. */
static tt_status parse_args(tti_lexer *p, const tti_arg **out)
{
    tti_arg *first = NULL, **link = &first, *arg = NULL;
    bool keywords = false;
    TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, "("));
    while (!is_op(p, ")")) {
        const tti_expr *value;
        tti_string keyword = {0};
        /* *list and **dict are spread when the call is made. */
        tti_operator spread = is_op(p, "*")    ? TTI_OP_MUL
                              : is_op(p, "**") ? TTI_OP_POW
                                               : TTI_OP_NONE;
        if (spread != TTI_OP_NONE) {
            TT_TRY(tti_lex_next(p));
        }
        TT_TRY(tti_parse_expression(p, &value));
        if (is_op(p, "=") && value->kind == TTI_EXPR_NAME && spread == TTI_OP_NONE) {
            keyword = value->name;
            keywords = true;
            TT_TRY(tti_lex_next(p));
            TT_TRY(tti_parse_expression(p, &value));
        } else if (keywords && spread != TTI_OP_POW) {
            return TTI_LEX_FAIL(p, TT_ERR_FILE, "an argument without a name follows a named one");
        }
        TT_TRY(add_arg(p, &link, value, &arg));
        arg->keyword = keyword;
        arg->op = spread;
        if (!is_op(p, ")")) {
            TT_TRY(tti_lex_expect(p, TTI_TOKEN_OPERATOR, ","));
        }
    }
    *out = first;
    return tti_lex_next(p);
}

static tt_status parse_call(tti_lexer *p, const tti_expr **out)
{
    tti_expr *expr;
    TT_TRY(make_expr(p, TTI_EXPR_CALL, *out, NULL, &expr));
    *out = expr;
    return parse_args(p, &expr->args);
}

/* One part of a slice; nothing stands there before : or ]. */
static tt_status parse_slice_part(tti_lexer *p, tti_arg ***link)
{
    const tti_expr *part;
    tti_arg *arg = NULL;
    if (is_op(p, ":") || is_op(p, "]")) {
        tti_expr *absent;
        TT_TRY(make_expr(p, TTI_EXPR_ABSENT, NULL, NULL, &absent));
        part = absent;
    } else {
        TT_TRY(tti_parse_expression(p, &part));
    }
    return add_arg(p, link, part, &arg);
}

static tt_status parse_subscript(tti_lexer *p, const tti_expr **out)
{
    tti_expr *expr;
    tti_arg *first = NULL, **link = &first;
    bool is_slice;
    TT_TRY(tti_lex_next(p));
    if (is_op(p, "]")) {
        return tti_lex_refuse(p);
    }
    TT_TRY(parse_slice_part(p, &link));
    is_slice = is_op(p, ":");
    if (!is_slice) {
        TT_TRY(make_expr(p, TTI_EXPR_SUBSCRIPT, *out, first->expr, &expr));
        *out = expr;
        return tti_lex_expect(p, TTI_TOKEN_OPERATOR, "]");
    }
    for (int k = 1; k < 3; k++) {
        bool more;
        TT_TRY(tti_lex_accept(p, TTI_TOKEN_OPERATOR, ":", &more));
        TT_TRY(parse_slice_part(p, &link));
    }
    TT_TRY(make_expr(p, TTI_EXPR_SLICE, *out, NULL, &expr));
    expr->args = first;
    *out = expr;
    return tti_lex_expect(p, TTI_TOKEN_OPERATOR, "]");
}

static tt_status parse_postfix(tti_lexer *p, const tti_expr **out)
{
    for (;;) {
        if (is_op(p, ".")) {
            tti_expr *expr;
            TT_TRY(tti_lex_next(p));
            bool number = p->token.kind == TTI_TOKEN_INTEGER;
            TT_TRY(
                make_expr(p, number ? TTI_EXPR_SUBSCRIPT : TTI_EXPR_ATTRIBUTE, *out, NULL, &expr));
            *out = expr;
            if (number) { /* a.0 is a[0] */
                TT_TRY(parse_constant(p, &expr->right));
            } else {
                TT_TRY(tti_lex_name(p, &expr->name));
            }
        } else if (is_op(p, "[")) {
            TT_TRY(parse_subscript(p, out));
        } else if (is_op(p, "(")) {
            TT_TRY(parse_call(p, out));
        } else {
            return TT_OK;
        }
    }
}

/* The name of a filter or test ahead, and its arguments. */
static tt_status parse_filter(tti_lexer *p, const tti_expr **out)
{
    tti_expr *expr;
    TT_TRY(make_expr(p, TTI_EXPR_FILTER, *out, NULL, &expr));
    *out = expr;
    TT_TRY(tti_lex_name(p, &expr->name));
    return is_op(p, "(") ? parse_args(p, &expr->args) : TT_OK;
}

tt_status tti_parse_filters(tti_lexer *p, const tti_expr **out)
{
    tti_expr *absent;
    TT_TRY(make_expr(p, TTI_EXPR_ABSENT, NULL, NULL, &absent));
    *out = absent;
    TT_TRY(parse_filter(p, out));
    while (is_op(p, "|")) {
        TT_TRY(tti_lex_next(p));
        TT_TRY(parse_filter(p, out));
    }
    return TT_OK;
}

/* Behind `is`. An argument may stand without brackets: `is divisibleby 3`. */
static tt_status parse_test(tti_lexer *p, const tti_expr **out)
{
    tti_expr *expr;
    bool negated;
    TT_TRY(tti_lex_next(p));
    TT_TRY(tti_lex_accept(p, TTI_TOKEN_NAME, "not", &negated));
    TT_TRY(make_expr(p, TTI_EXPR_TEST, *out, NULL, &expr));
    *out = expr;
    TT_TRY(tti_lex_name(p, &expr->name));
    bool value = p->token.kind == TTI_TOKEN_STRING || p->token.kind == TTI_TOKEN_INTEGER ||
                 p->token.kind == TTI_TOKEN_REAL || is_op(p, "[") || is_op(p, "{");
    static const char *const enders[] = {"else", "or", "and", "is", "if", "in", "not"};
    bool name = p->token.kind == TTI_TOKEN_NAME;
    for (size_t k = 0; k < sizeof(enders) / sizeof(enders[0]); k++) {
        name = name && !tti_lex_is(p, TTI_TOKEN_NAME, enders[k]);
    }
    if (is_op(p, "(")) {
        TT_TRY(parse_args(p, &expr->args));
    } else if (value || name) {
        tti_arg *first = NULL, **link = &first, *arg = NULL;
        const tti_expr *item;
        TT_TRY(parse_primary(p, &item));
        TT_TRY(parse_postfix(p, &item));
        TT_TRY(add_arg(p, &link, item, &arg));
        expr->args = first;
    }
    if (negated) {
        TT_TRY(make_expr(p, TTI_EXPR_NOT, *out, NULL, &expr));
        *out = expr;
    }
    return TT_OK;
}

static tt_status parse_behind(tti_lexer *p, const tti_expr **out)
{
    for (;;) {
        if (is_op(p, "|")) {
            TT_TRY(tti_lex_next(p));
            TT_TRY(parse_filter(p, out));
        } else if (tti_lex_is(p, TTI_TOKEN_NAME, "is")) {
            TT_TRY(parse_test(p, out));
        } else if (is_op(p, "(")) {
            TT_TRY(parse_call(p, out));
        } else {
            return TT_OK;
        }
    }
}

/* ---- operators ---- */
static tt_status parse_unary(tti_lexer *p, bool with_filters, const tti_expr **out)
{
    bool negative = is_op(p, "-");
    if (negative || is_op(p, "+")) {
        tti_expr *expr;
        const tti_expr *operand;
        TT_TRY(tti_lex_enter(p));
        TT_TRY(tti_lex_next(p));
        TT_TRY(parse_unary(p, false, &operand));
        TT_TRY(
            make_expr(p, negative ? TTI_EXPR_NEGATIVE : TTI_EXPR_POSITIVE, operand, NULL, &expr));
        *out = expr;
        tti_lex_leave(p);
    } else {
        TT_TRY(parse_primary(p, out));
    }
    TT_TRY(parse_postfix(p, out));
    return with_filters ? parse_behind(p, out) : TT_OK;
}

static tt_status parse_operand(tti_lexer *p, const tti_expr **out)
{
    return parse_unary(p, true, out);
}

/* A chain of left-associative operators; each level of precedence names its operands' parser. */
typedef tt_status parse_level(tti_lexer *p, const tti_expr **out);
typedef struct level {
    const char *text;
    tti_expr_kind kind;
    tti_operator op;
} level;

static tt_status parse_chain(tti_lexer *p, parse_level *operand, tti_token_kind token,
                             const level *levels, const tti_expr **out)
{
    TT_TRY(operand(p, out));
    for (;;) {
        const level *found = levels;
        while (found->text && !tti_lex_is(p, token, found->text)) {
            found++;
        }
        if (!found->text) {
            return TT_OK;
        }
        const tti_expr *right;
        tti_expr *expr;
        TT_TRY(tti_lex_next(p));
        TT_TRY(operand(p, &right));
        TT_TRY(make_expr(p, found->kind, *out, right, &expr));
        expr->op = found->op;
        *out = expr;
    }
}

static tt_status parse_pow(tti_lexer *p, const tti_expr **out)
{
    static const level levels[] = {{"**", TTI_EXPR_ARITHMETIC, TTI_OP_POW}, {0}};
    return parse_chain(p, parse_operand, TTI_TOKEN_OPERATOR, levels, out);
}

static tt_status parse_product(tti_lexer *p, const tti_expr **out)
{
    static const level levels[] = {{"*", TTI_EXPR_ARITHMETIC, TTI_OP_MUL},
                                   {"/", TTI_EXPR_ARITHMETIC, TTI_OP_DIV},
                                   {"//", TTI_EXPR_ARITHMETIC, TTI_OP_FLOORDIV},
                                   {"%", TTI_EXPR_ARITHMETIC, TTI_OP_MOD},
                                   {0}};
    return parse_chain(p, parse_pow, TTI_TOKEN_OPERATOR, levels, out);
}

static tt_status parse_concat(tti_lexer *p, const tti_expr **out)
{
    static const level levels[] = {{"~", TTI_EXPR_CONCAT, TTI_OP_NONE}, {0}};
    return parse_chain(p, parse_product, TTI_TOKEN_OPERATOR, levels, out);
}

static tt_status parse_sum(tti_lexer *p, const tti_expr **out)
{
    static const level levels[] = {
        {"+", TTI_EXPR_ARITHMETIC, TTI_OP_ADD}, {"-", TTI_EXPR_ARITHMETIC, TTI_OP_SUB}, {0}};
    return parse_chain(p, parse_concat, TTI_TOKEN_OPERATOR, levels, out);
}

/* Reads over a comparison operator if one is ahead. `not in` needs a look behind the `not`. */
static tt_status accept_comparison(tti_lexer *p, tti_operator *op_out)
{
    static const level levels[] = {{"==", 0, TTI_OP_EQ},
                                   {"!=", 0, TTI_OP_NE},
                                   {"<", 0, TTI_OP_LT},
                                   {"<=", 0, TTI_OP_LE},
                                   {">", 0, TTI_OP_GT},
                                   {">=", 0, TTI_OP_GE},
                                   {0}};
    *op_out = TTI_OP_NONE;
    for (const level *l = levels; l->text; l++) {
        *op_out = is_op(p, l->text) ? l->op : *op_out;
    }
    *op_out = tti_lex_is(p, TTI_TOKEN_NAME, "in") ? TTI_OP_IN : *op_out;
    if (*op_out != TTI_OP_NONE) {
        return tti_lex_next(p);
    }
    if (tti_lex_is(p, TTI_TOKEN_NAME, "not")) {
        tti_lexer before = *p;
        TT_TRY(tti_lex_next(p));
        if (!tti_lex_is(p, TTI_TOKEN_NAME, "in")) {
            *p = before;
            return TT_OK;
        }
        *op_out = TTI_OP_NOT_IN;
        return tti_lex_next(p);
    }
    return TT_OK;
}

static tt_status parse_comparison(tti_lexer *p, const tti_expr **out)
{
    tti_expr *expr = NULL;
    tti_arg *first = NULL, **link = &first, *arg = NULL;
    tti_operator op;
    TT_TRY(parse_sum(p, out));
    TT_TRY(accept_comparison(p, &op));
    if (op == TTI_OP_NONE) {
        return TT_OK;
    }
    TT_TRY(make_expr(p, TTI_EXPR_COMPARE, *out, NULL, &expr));
    while (op != TTI_OP_NONE) {
        const tti_expr *right;
        TT_TRY(parse_sum(p, &right));
        TT_TRY(add_arg(p, &link, right, &arg));
        arg->op = op;
        TT_TRY(accept_comparison(p, &op));
    }
    expr->args = first;
    *out = expr;
    return TT_OK;
}

static tt_status parse_not(tti_lexer *p, const tti_expr **out)
{
    unsigned count = 0;
    bool more;
    for (;; count++) {
        TT_TRY(tti_lex_accept(p, TTI_TOKEN_NAME, "not", &more));
        if (!more) {
            break;
        }
    }
    TT_TRY(parse_comparison(p, out));
    for (; count > 0; count--) {
        tti_expr *expr;
        TT_TRY(make_expr(p, TTI_EXPR_NOT, *out, NULL, &expr));
        *out = expr;
    }
    return TT_OK;
}

static tt_status parse_and(tti_lexer *p, const tti_expr **out)
{
    static const level levels[] = {{"and", TTI_EXPR_AND, TTI_OP_NONE}, {0}};
    return parse_chain(p, parse_not, TTI_TOKEN_NAME, levels, out);
}

tt_status tti_parse_simple(tti_lexer *p, const tti_expr **out)
{
    static const level levels[] = {{"or", TTI_EXPR_OR, TTI_OP_NONE}, {0}};
    TT_TRY(tti_lex_enter(p));
    TT_TRY(parse_chain(p, parse_and, TTI_TOKEN_NAME, levels, out));
    tti_lex_leave(p);
    return TT_OK;
}

/* a if b else c if d else e: the else side goes on to the right. */
tt_status tti_parse_expression(tti_lexer *p, const tti_expr **out)
{
    TT_TRY(tti_lex_enter(p));
    TT_TRY(tti_parse_simple(p, out));
    bool more;
    for (;;) {
        TT_TRY(tti_lex_accept(p, TTI_TOKEN_NAME, "if", &more));
        if (!more) {
            break;
        }
        const tti_expr *condition;
        tti_expr *expr;
        TT_TRY(tti_parse_simple(p, &condition));
        TT_TRY(make_expr(p, TTI_EXPR_IF, *out, condition, &expr));
        *out = expr;
        TT_TRY(tti_lex_accept(p, TTI_TOKEN_NAME, "else", &more));
        if (more) {
            TT_TRY(tti_parse_expression(p, &expr->third));
        }
    }
    tti_lex_leave(p);
    return TT_OK;
}
