/* chat_template_eval.c - expressions of a chat template to values. Recursion follows the tree and
 * the macros it calls; its depth is counted. */
#include "chat_template_internal.h"
#include <math.h>

/* ---- undefined values ---- */
/* What a use of it that is not allowed says. */
static tt_status fail_undefined(int line, const tti_value *v)
{
    int n = tti_chat_shown(v->n);
    const char *name = v->as.undefined.text ? v->as.undefined.text : "a value";
    if (v->as.undefined.owner) {
        return TTI_CHAT_FAIL(TT_ERR_REQUEST, line, "\"%.*s\" of %s is undefined, but used",
                             n ? n : 7, name, v->as.undefined.owner);
    }
    return TTI_CHAT_FAIL(TT_ERR_REQUEST, line, "\"%.*s\" is undefined, but used", n ? n : 7, name);
}

/* ---- attributes and items ---- */
static const tti_builtin *find_method(const tti_value *object, tti_string name)
{
    switch (object->kind) {
    case TTI_STRING:
        return tti_builtin_find(tti_chat_string_methods, name);
    case TTI_DICT:
        return tti_builtin_find(tti_chat_dict_methods, name);
    case TTI_LIST:
    case TTI_TUPLE:
        return tti_builtin_find(tti_chat_list_methods, name);
    case TTI_LOOP:
        return tti_builtin_find(tti_chat_loop_methods, name);
    default:
        return NULL;
    }
}

/* Methods that change their object: the sandbox hides them. */
static bool is_forbidden(const tti_value *object, tti_string name)
{
    static const char *const of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const of_lists[] = {"append", "extend",  "insert", "pop", "remove",
                                           "clear",  "reverse", "sort",   NULL};
    const char *const *names = object->kind == TTI_DICT   ? of_dicts
                               : object->kind == TTI_LIST ? of_lists
                                                          : NULL;
    for (; names && *names; names++) {
        if (tti_string_is(name, *names)) {
            return true;
        }
    }
    return false;
}

static tti_value loop_field(const tti_loop *loop, tti_string name)
{
    int64_t round = (int64_t)loop->round, count = (int64_t)loop->n;
    /* The depth is that of recursive loops, which are not supported. */
    const struct {
        const char *name;
        tti_value value;
    } fields[] = {{"index", tti_value_integer(round + 1)},
                  {"index0", tti_value_integer(round)},
                  {"revindex", tti_value_integer(count - round)},
                  {"revindex0", tti_value_integer(count - round - 1)},
                  {"length", tti_value_integer(count)},
                  {"first", tti_value_bool(round == 0)},
                  {"last", tti_value_bool(round == count - 1)},
                  {"depth", tti_value_integer(1)},
                  {"depth0", tti_value_integer(0)}};
    for (size_t k = 0; k < sizeof(fields) / sizeof(fields[0]); k++) {
        if (tti_string_is(name, fields[k].name)) {
            return fields[k].value;
        }
    }
    if (tti_string_is(name, "previtem") && round > 0) {
        return loop->item[round - 1];
    }
    if (tti_string_is(name, "nextitem") && round + 1 < count) {
        return loop->item[round + 1];
    }
    return tti_value_undefined(name, "loop");
}

static tt_status bind_method(tti_run *r, const tti_value *object, const tti_builtin *builtin,
                             tti_value *out)
{
    void *memory;
    TT_TRY(tti_chat_alloc(&r->arena, sizeof(tti_bound_method) + sizeof(tti_value), &memory));
    tti_bound_method *method = memory;
    tti_value *self = (tti_value *)(method + 1);
    *self = *object;
    *method = (tti_bound_method){self, builtin};
    *out = (tti_value){.kind = TTI_METHOD, .as.method = method};
    return TT_OK;
}

/* What an object has besides its items: methods, fields of a loop, values of a namespace. */
static tt_status own_attribute(tti_run *r, const tti_value *object, tti_string name, tti_value *out)
{
    const tti_builtin *method = find_method(object, name);
    *out = tti_value_undefined(name, tti_value_type(object));
    if (method) {
        return bind_method(r, object, method, out);
    }
    if (object->kind == TTI_LOOP) {
        *out = loop_field(object->as.loop, name);
    } else if (object->kind == TTI_NAMESPACE) {
        const tti_value *found = tti_dict_find(object->as.dict, name.text, name.n);
        *out = found ? *found : *out;
    }
    return TT_OK;
}

tt_status tti_chat_attribute(tti_run *r, int line, const tti_value *object, tti_string name,
                             tti_value *out)
{
    if (object->kind == TTI_UNDEFINED) {
        return fail_undefined(line, object);
    }
    TT_TRY(own_attribute(r, object, name, out));
    if (object->kind == TTI_DICT && out->kind == TTI_UNDEFINED && !is_forbidden(object, name)) {
        enum { ENTRIES_PER_STEP = 8 };
        TT_TRY(tti_chat_count(r, line, object->as.dict->n / ENTRIES_PER_STEP));
        const tti_value *found = tti_dict_find(object->as.dict, name.text, name.n);
        *out = found ? *found : *out;
    }
    return TT_OK;
}

/* Item k of n, from the end if negative. */
static bool place_of(int64_t k, size_t n, size_t *at_out)
{
    k += k < 0 ? (int64_t)n : 0;
    *at_out = (size_t)k;
    return k >= 0 && k < (int64_t)n;
}

tt_status tti_chat_item(tti_run *r, int line, const tti_value *object, const tti_value *key,
                        tti_value *out)
{
    const tti_value *found = NULL;
    size_t at;
    bool number = key->kind == TTI_INTEGER || key->kind == TTI_BOOL;
    tti_string name = {"this item", 9};
    if (key->kind == TTI_STRING) {
        name = (tti_string){key->as.string.text, key->n};
    }
    *out = tti_value_undefined(name, tti_value_type(object));
    bool indexed = object->kind == TTI_LIST || object->kind == TTI_TUPLE ||
                   (object->kind == TTI_VIEW && strcmp(object->as.list.label, "range") == 0);
    if (object->kind == TTI_UNDEFINED) {
        return fail_undefined(line, object);
    }
    if (object->kind == TTI_DICT) {
        if (key->kind != TTI_LIST && key->kind != TTI_DICT) { /* which no dict holds */
            TT_TRY(tti_dict_get(r, line, object->as.dict, key, &found));
        }
    } else if (indexed && number && place_of(tti_value_to_integer(key), object->n, &at)) {
        found = &object->as.list.item[at];
    } else if (object->kind == TTI_STRING && number) {
        TT_TRY(tti_chat_count_bytes(r, line, object->n));
        if (place_of(tti_value_to_integer(key), tti_text_n_chars(object), &at)) {
            return tti_text_slice(r, line, object, (int64_t)at, 1, 1, out);
        }
        return TT_OK;
    }
    if (found) {
        *out = *found;
        return TT_OK;
    }
    return key->kind == TTI_STRING ? own_attribute(r, object, name, out) : TT_OK;
}

/* ---- slices ---- */
/* Start, step and count of Python's object[start:stop:step] on n items. */
static tt_status resolve_slice(int line, const tti_value part[3], int64_t n, int64_t *start_out,
                               int64_t *step_out, size_t *count_out)
{
    for (int k = 0; k < 3; k++) {
        bool fits =
            part[k].kind == TTI_NONE || part[k].kind == TTI_INTEGER || part[k].kind == TTI_BOOL;
        TTI_CHAT_CHECK(fits, line, "a slice is made of a value of type %s",
                       tti_value_type(&part[k]));
    }
    int64_t step = part[2].kind == TTI_NONE ? 1 : tti_value_to_integer(&part[2]);
    TTI_CHAT_CHECK(step != 0, line, "a slice has a step of 0");
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1, limit[2];
    for (int k = 0; k < 2; k++) {
        limit[k] = (k == 0) == (step > 0) ? low : high;
        if (part[k].kind != TTI_NONE) {
            int64_t at = tti_value_to_integer(&part[k]);
            at += at < 0 ? n : 0;
            limit[k] = at < low ? low : at > high ? high : at;
        }
    }
    int64_t span = step > 0 ? limit[1] - limit[0] : limit[0] - limit[1];
    /* Steps beyond the length all mean: the first one only. */
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    *count_out = span > 0 ? (size_t)(((uint64_t)span - 1) / stride + 1) : 0;
    *start_out = limit[0];
    *step_out = *count_out > 1 ? step : 1;
    return TT_OK;
}

static tt_status take_slice(tti_run *r, int line, const tti_value *object, const tti_value part[3],
                            tti_value *out)
{
    int64_t start, step;
    size_t count;
    if (object->kind == TTI_STRING) {
        TT_TRY(tti_chat_count_bytes(r, line, object->n));
        TT_TRY(resolve_slice(line, part, (int64_t)tti_text_n_chars(object), &start, &step, &count));
        return tti_text_slice(r, line, object, start, step, count, out);
    }
    if (object->kind == TTI_UNDEFINED) {
        return fail_undefined(line, object);
    }
    bool range = object->kind == TTI_VIEW && strcmp(object->as.list.label, "range") == 0;
    TTI_CHAT_CHECK(range || object->kind == TTI_LIST || object->kind == TTI_TUPLE, line,
                   "a slice is taken of a value of type %s", tti_value_type(object));
    TT_TRY(resolve_slice(line, part, (int64_t)object->n, &start, &step, &count));
    if (step == 1 && !range) {
        *out = tti_value_items(object->kind, count ? object->as.list.item + start : NULL, count);
        return TT_OK;
    }
    tti_value *items;
    TT_TRY(tti_chat_count(r, line, count));
    TT_TRY(tti_value_array(r, count, &items));
    for (size_t k = 0; k < count; k++) {
        items[k] = object->as.list.item[start + (int64_t)k * step];
    }
    *out = tti_value_items(object->kind, items, count);
    out->as.list.label = object->as.list.label;
    return TT_OK;
}

static tt_status evaluate_slice(tti_run *r, const tti_expr *expr, tti_value *out)
{
    tti_value object, part[3];
    int k = 0;
    TT_TRY(tti_chat_evaluate(r, expr->left, &object));
    for (const tti_arg *arg = expr->args; arg; arg = arg->next, k++) {
        part[k] = tti_value_none();
        if (arg->expr->kind != TTI_EXPR_ABSENT) {
            TT_TRY(tti_chat_evaluate(r, arg->expr, &part[k]));
        }
    }
    return take_slice(r, expr->line, &object, part, out);
}

/* ---- literals with items ---- */
static tt_status evaluate_items(tti_run *r, const tti_expr *expr, tti_value *out)
{
    size_t n = 0;
    tti_value *items;
    for (const tti_arg *arg = expr->args; arg; arg = arg->next) {
        n++;
    }
    TT_TRY(tti_value_array(r, n, &items));
    n = 0;
    for (const tti_arg *arg = expr->args; arg; arg = arg->next) {
        TT_TRY(tti_chat_evaluate(r, arg->expr, &items[n++]));
    }
    *out = tti_value_items(expr->kind == TTI_EXPR_LIST ? TTI_LIST : TTI_TUPLE, items, n);
    return TT_OK;
}

static tt_status evaluate_dict(tti_run *r, const tti_expr *expr, tti_value *out)
{
    tti_dict *dict;
    tti_value key, value;
    TT_TRY(tti_dict_create(r, 0, &dict));
    for (const tti_arg *arg = expr->args; arg; arg = arg->next->next) {
        TT_TRY(tti_chat_evaluate(r, arg->expr, &key));
        TT_TRY(tti_chat_evaluate(r, arg->next->expr, &value));
        TT_TRY(tti_dict_set(r, expr->line, dict, &key, &value));
    }
    *out = (tti_value){.kind = TTI_DICT, .as.dict = dict};
    return TT_OK;
}

/* ---- calls ---- */
/* Room for arguments, on the run's stack if it has some; the caller of evaluate_args undoes its
 * use. */
static tt_status take_room(tti_run *r, size_t n, tti_value **out)
{
    if (n > TTI_CHAT_STACK_VALUES - r->n_stack) {
        return tti_value_array(r, n, out);
    }
    *out = r->stack + r->n_stack;
    r->n_stack += n;
    return TT_OK;
}

/* What an argument gives: itself, the items of *list, the entries of **dict. */
static tt_status measure_arg(tti_run *r, const tti_arg *arg, tti_value *value, size_t *n_io,
                             size_t *n_keywords_io)
{
    size_t n = 1;
    TT_TRY(tti_chat_evaluate(r, arg->expr, value));
    if (arg->op == TTI_OP_MUL) {
        const tti_value *items;
        TT_TRY(tti_value_iterate(r, arg->expr->line, value, &items, &n));
        *value = tti_value_items(TTI_LIST, items, n);
    } else if (arg->op == TTI_OP_POW) {
        TTI_CHAT_CHECK(value->kind == TTI_DICT, arg->expr->line,
                       "** stands before a value of type %s", tti_value_type(value));
        n = value->as.dict->n;
    }
    bool keyword = arg->keyword.n > 0 || arg->op == TTI_OP_POW;
    *(keyword ? n_keywords_io : n_io) += n;
    return tti_chat_count(r, arg->expr->line, n);
}

static void put_arg(const tti_arg *arg, const tti_value *value, tti_value **to, tti_entry **keyword)
{
    if (arg->op == TTI_OP_MUL) {
        for (size_t k = 0; k < value->n; k++) {
            *(*to)++ = value->as.list.item[k];
        }
    } else if (arg->op == TTI_OP_POW) {
        for (size_t k = 0; k < value->as.dict->n; k++) {
            *(*keyword)++ = value->as.dict->entry[k];
        }
    } else if (arg->keyword.n) {
        tti_value key = tti_value_string(arg->keyword.text, arg->keyword.n, false);
        *(*keyword)++ = (tti_entry){key, *value};
    } else {
        *(*to)++ = *value;
    }
}

static tt_status evaluate_args(tti_run *r, const tti_arg *first, const tti_value *caller,
                               tti_args *args)
{
    size_t n_args = 0, n = 0, n_keywords = caller ? 1 : 0;
    tti_value *given, *to, *room;
    *args = (tti_args){0};
    for (const tti_arg *arg = first; arg; arg = arg->next) {
        n_args++;
    }
    if (n_args == 0 && !caller) {
        return TT_OK;
    }
    TT_TRY(take_room(r, n_args, &given));
    n_args = 0;
    for (const tti_arg *arg = first; arg; arg = arg->next) {
        TT_TRY(measure_arg(r, arg, &given[n_args++], &n, &n_keywords));
    }
    TT_TRY(take_room(r, n + 2 * n_keywords, &room));
    to = room;
    tti_entry *keyword = (tti_entry *)(room + n); /* an entry is two values */
    *args = (tti_args){.value = room, .n = n, .keyword = keyword, .n_keywords = n_keywords};
    for (const tti_arg *arg = first; arg; arg = arg->next) {
        put_arg(arg, given++, &to, &keyword);
    }
    if (caller) {
        *keyword = (tti_entry){tti_value_word("caller"), *caller};
    }
    for (size_t k = 0; k < n_keywords; k++) {
        TTI_CHAT_CHECK(args->keyword[k].key.kind == TTI_STRING, first ? first->expr->line : 0,
                       "the name of an argument is a value of type %s",
                       tti_value_type(&args->keyword[k].key));
    }
    return TT_OK;
}

tt_status tti_chat_call(tti_run *r, int line, const tti_value *callee, const tti_args *args,
                        tti_value *out)
{
    switch (callee->kind) {
    case TTI_MACRO:
        return tti_chat_call_macro(r, line, callee->as.macro, args, out);
    case TTI_METHOD:
        return tti_builtin_call(r, line, callee->as.method->builtin, callee->as.method->self, args,
                                out);
    case TTI_FUNCTION:
        return tti_builtin_call(r, line, callee->as.function, NULL, args, out);
    case TTI_UNDEFINED:
        return fail_undefined(line, callee);
    default:
        return TTI_CHAT_FAIL(TT_ERR_REQUEST, line, "a value of type %s is called",
                             tti_value_type(callee));
    }
}

tt_status tti_chat_evaluate_call_with(tti_run *r, const tti_expr *expr, const tti_value *caller,
                                      tti_value *out)
{
    size_t n_stack = r->n_stack;
    const tti_builtin *method = NULL;
    tti_value callee;
    tti_args args;
    if (expr->left->kind == TTI_EXPR_ATTRIBUTE) { /* a method needs no value of its own */
        TT_TRY(tti_chat_evaluate(r, expr->left->left, &callee));
        method = find_method(&callee, expr->left->name);
        if (!method) {
            tti_value object = callee;
            TTI_CHAT_CHECK(!is_forbidden(&object, expr->left->name), expr->line,
                           "\"%.*s\" would change a value, which the sandbox forbids",
                           tti_chat_shown(expr->left->name.n), expr->left->name.text);
            TT_TRY(tti_chat_attribute(r, expr->line, &object, expr->left->name, &callee));
        }
    } else {
        TT_TRY(tti_chat_evaluate(r, expr->left, &callee));
    }
    tt_status st = evaluate_args(r, expr->args, caller, &args);
    if (st == TT_OK) {
        st = method ? tti_builtin_call(r, expr->line, method, &callee, &args, out)
                    : tti_chat_call(r, expr->line, &callee, &args, out);
    }
    r->n_stack = n_stack;
    return st;
}

/* input: what stands for EXPR_ABSENT at the chain's start. */
static tt_status evaluate_filter(tti_run *r, const tti_expr *expr, const tti_value *input,
                                 tti_value *out)
{
    size_t n_stack = r->n_stack;
    tti_value self;
    tti_args args;
    if (input && expr->left->kind == TTI_EXPR_ABSENT) {
        self = *input;
    } else if (input) {
        TT_TRY(tti_chat_evaluate_chain(r, expr->left, input, &self));
    } else {
        TT_TRY(tti_chat_evaluate(r, expr->left, &self));
    }
    const tti_builtin *builtin;
    tt_status st = evaluate_args(r, expr->args, NULL, &args);
    if (st == TT_OK) {
        st = expr->kind == TTI_EXPR_TEST ? tti_chat_need_test(expr->line, expr->name, &builtin)
                                         : tti_chat_need_filter(expr->line, expr->name, &builtin);
    }
    if (st == TT_OK) {
        st = tti_builtin_call(r, expr->line, builtin, &self, &args, out);
    }
    r->n_stack = n_stack;
    return st;
}

tt_status tti_chat_evaluate_chain(tti_run *r, const tti_expr *expr, const tti_value *input,
                                  tti_value *out)
{
    tt_status st = tti_chat_enter(r, expr->line);
    if (st == TT_OK) {
        st = evaluate_filter(r, expr, input, out);
    }
    tti_chat_leave(r);
    return st;
}

/* ---- operators ---- */
static tt_status evaluate_compare(tti_run *r, const tti_expr *expr, tti_value *out)
{
    tti_value left, right;
    bool truth = true;
    TT_TRY(tti_chat_evaluate(r, expr->left, &left));
    for (const tti_arg *arg = expr->args; arg && truth; arg = arg->next) {
        int order = 0;
        TT_TRY(tti_chat_evaluate(r, arg->expr, &right));
        switch (arg->op) {
        case TTI_OP_EQ:
        case TTI_OP_NE:
            TT_TRY(tti_value_equal(r, expr->line, &left, &right, &truth));
            truth = truth == (arg->op == TTI_OP_EQ);
            break;
        case TTI_OP_IN:
        case TTI_OP_NOT_IN:
            TT_TRY(tti_value_contains(r, expr->line, &right, &left, &truth));
            truth = truth == (arg->op == TTI_OP_IN);
            break;
        default:
            TT_TRY(tti_value_order(r, expr->line, &left, &right, &order));
            truth = arg->op == TTI_OP_LT   ? order < 0
                    : arg->op == TTI_OP_LE ? order <= 0
                    : arg->op == TTI_OP_GT ? order > 0
                                           : order >= 0;
            break;
        }
        left = right;
    }
    *out = tti_value_bool(truth);
    return TT_OK;
}

static tt_status evaluate_two(tti_run *r, const tti_expr *expr, tti_value *out)
{
    tti_value a, b;
    TT_TRY(tti_chat_evaluate(r, expr->left, &a));
    TT_TRY(tti_chat_evaluate(r, expr->right, &b));
    if (expr->kind == TTI_EXPR_SUBSCRIPT) {
        return tti_chat_item(r, expr->line, &a, &b, out);
    }
    if (expr->kind == TTI_EXPR_ARITHMETIC) {
        return tti_chat_arithmetic(r, expr->line, expr->op, &a, &b, out);
    }
    TT_TRY(tti_value_print(r, expr->line, &a, &a));
    TT_TRY(tti_value_print(r, expr->line, &b, &b));
    return tti_text_join(r, expr->line, &a, &b, out);
}

/* As in Python: the value that decides, and no look at the rest. */
static tt_status evaluate_logic(tti_run *r, const tti_expr *expr, tti_value *out)
{
    TT_TRY(tti_chat_evaluate(r, expr->left, out));
    if (expr->kind == TTI_EXPR_NOT) {
        *out = tti_value_bool(!tti_value_is_true(out));
        return TT_OK;
    }
    bool decided = tti_value_is_true(out) == (expr->kind == TTI_EXPR_OR);
    return decided ? TT_OK : tti_chat_evaluate(r, expr->right, out);
}

static tt_status evaluate_if(tti_run *r, const tti_expr *expr, tti_value *out)
{
    TT_TRY(tti_chat_evaluate(r, expr->right, out));
    if (tti_value_is_true(out)) {
        return tti_chat_evaluate(r, expr->left, out);
    }
    if (expr->third) {
        return tti_chat_evaluate(r, expr->third, out);
    }
    *out = tti_value_undefined((tti_string){"an if without else", 18}, NULL);
    return TT_OK;
}

static tt_status evaluate_sign(tti_run *r, const tti_expr *expr, tti_value *out)
{
    tti_value zero = tti_value_integer(0);
    TT_TRY(tti_chat_evaluate(r, expr->left, out));
    if (out->kind == TTI_REAL) {
        out->as.real = expr->kind == TTI_EXPR_NEGATIVE ? -out->as.real : out->as.real;
        return TT_OK;
    }
    tti_value operand = *out;
    return tti_chat_arithmetic(r, expr->line,
                               expr->kind == TTI_EXPR_NEGATIVE ? TTI_OP_SUB : TTI_OP_ADD, &zero,
                               &operand, out);
}

static tt_status evaluate_attribute(tti_run *r, const tti_expr *expr, tti_value *out)
{
    tti_value object;
    TT_TRY(tti_chat_evaluate(r, expr->left, &object));
    return tti_chat_attribute(r, expr->line, &object, expr->name, out);
}

static tt_status look_up(tti_run *r, const tti_expr *expr, tti_value *out)
{
    const tti_value *found;
    TT_TRY(tti_chat_lookup(r, expr->line, expr->name, &found));
    const tti_builtin *function = found ? NULL : tti_builtin_find(tti_chat_functions, expr->name);
    *out = found      ? *found
           : function ? (tti_value){.kind = TTI_FUNCTION, .as.function = function}
                      : tti_value_undefined(expr->name, NULL);
    return TT_OK;
}

static tt_status evaluate_inner(tti_run *r, const tti_expr *expr, tti_value *out)
{
    switch (expr->kind) {
    case TTI_EXPR_LIST:
    case TTI_EXPR_TUPLE:
        return evaluate_items(r, expr, out);
    case TTI_EXPR_DICT:
        return evaluate_dict(r, expr, out);
    case TTI_EXPR_ATTRIBUTE:
        return evaluate_attribute(r, expr, out);
    case TTI_EXPR_SLICE:
        return evaluate_slice(r, expr, out);
    case TTI_EXPR_CALL:
        return tti_chat_evaluate_call_with(r, expr, NULL, out);
    case TTI_EXPR_FILTER:
    case TTI_EXPR_TEST:
        return evaluate_filter(r, expr, NULL, out);
    case TTI_EXPR_COMPARE:
        return evaluate_compare(r, expr, out);
    case TTI_EXPR_AND:
    case TTI_EXPR_OR:
    case TTI_EXPR_NOT:
        return evaluate_logic(r, expr, out);
    case TTI_EXPR_NEGATIVE:
    case TTI_EXPR_POSITIVE:
        return evaluate_sign(r, expr, out);
    case TTI_EXPR_IF:
        return evaluate_if(r, expr, out);
    default:
        return evaluate_two(r, expr, out);
    }
}

tt_status tti_chat_evaluate(tti_run *r, const tti_expr *expr, tti_value *out)
{
    TT_TRY(tti_chat_count(r, expr->line, 1));
    switch (expr->kind) {
    case TTI_EXPR_STRING:
        *out = tti_value_string(expr->name.text, expr->name.n, false);
        return TT_OK;
    case TTI_EXPR_INTEGER:
        *out = tti_value_integer(expr->number.integer);
        return TT_OK;
    case TTI_EXPR_REAL:
        *out = tti_value_real(expr->number.real);
        return TT_OK;
    case TTI_EXPR_TRUE:
    case TTI_EXPR_FALSE:
        *out = tti_value_bool(expr->kind == TTI_EXPR_TRUE);
        return TT_OK;
    case TTI_EXPR_NONE:
        *out = tti_value_none();
        return TT_OK;
    case TTI_EXPR_NAME:
        return look_up(r, expr, out);
    default:
        break;
    }
    tt_status st = tti_chat_enter(r, expr->line);
    if (st == TT_OK) {
        st = evaluate_inner(r, expr, out);
    }
    tti_chat_leave(r);
    return st;
}
