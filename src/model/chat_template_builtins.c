/* chat_template_builtins.c - how filters, tests, methods and functions are called, and the
 * functions and tests themselves. Each builtin is a row of a table: its name, its parameters and
 * what serves it. */
#include "chat_template_internal.h"
#include <math.h>
#include <stdio.h>
#include <time.h>

/* ---- calling ---- */
const tti_builtin *tti_builtin_find(const tti_builtin *table, tti_string name)
{
    for (; table->name; table++) {
        if (tti_string_is(name, table->name)) {
            return table;
        }
    }
    return NULL;
}

/* The k-th word of "a b? c?"; its n is 0 behind the last. */
static tti_string param_name(const char *params, int k, bool *optional_out)
{
    for (;; k--) {
        size_t n = strcspn(params, " ");
        if (k == 0 || n == 0) {
            *optional_out = n > 0 && params[n - 1] == '?';
            return (tti_string){params, *optional_out ? n - 1 : n};
        }
        params += n;
        params += *params == ' ' ? 1 : 0;
    }
}

static tt_status bind(tti_call *call)
{
    const tti_builtin *builtin = call->builtin;
    const tti_args *args = call->args;
    bool optional;
    int n_params = 0;
    while (n_params < TTI_PARAMS_MAX && param_name(builtin->params, n_params, &optional).n) {
        n_params++;
    }
    TTI_CHAT_CHECK(args->n <= (size_t)n_params, call->line,
                   "%s takes at most %d arguments, not %zu", builtin->name, n_params, args->n);
    for (size_t k = 0; k < args->n; k++) {
        call->arg[k] = args->value[k];
        call->given[k] = true;
    }
    for (size_t k = 0; k < args->n_keywords; k++) {
        const tti_value *key = &args->keyword[k].key;
        int at = 0;
        while (at < n_params) {
            tti_string name = param_name(builtin->params, at, &optional);
            if (name.n == key->n && memcmp(name.text, key->as.string.text, name.n) == 0) {
                break;
            }
            at++;
        }
        TTI_CHAT_CHECK(at < n_params && !call->given[at], call->line, "%s has no argument \"%.*s\"",
                       builtin->name, tti_chat_shown(key->n), key->as.string.text);
        call->arg[at] = args->keyword[k].value;
        call->given[at] = true;
    }
    for (int k = 0; k < n_params; k++) {
        tti_string name = param_name(builtin->params, k, &optional);
        TTI_CHAT_CHECK(optional || call->given[k], call->line, "%s needs an argument \"%.*s\"",
                       builtin->name, (int)name.n, name.text);
    }
    return TT_OK;
}

tt_status tti_builtin_call(tti_run *r, int line, const tti_builtin *builtin, const tti_value *self,
                           const tti_args *args, tti_value *out)
{
    tti_call call = {.line = line, .builtin = builtin, .self = self, .args = args};
    TTI_CHAT_CHECK(builtin, line, "there is no such function");
    TT_TRY(tti_chat_count(r, line, 1));
    if (builtin->params) {
        TT_TRY(bind(&call));
    }
    return builtin->fn(r, &call, out);
}

static tt_status need(int line, const char *what, tti_string name, const tti_builtin *builtin)
{
    return builtin ? TT_OK
                   : TTI_CHAT_FAIL(TT_ERR_UNSUPPORTED, line, "the %s \"%.*s\" is not supported",
                                   what, tti_chat_shown(name.n), name.text);
}

tt_status tti_chat_need_filter(int line, tti_string name, const tti_builtin **builtin_out)
{
    *builtin_out = tti_chat_find_filter(name);
    return need(line, "filter", name, *builtin_out);
}

tt_status tti_chat_need_test(int line, tti_string name, const tti_builtin **builtin_out)
{
    *builtin_out = tti_chat_find_test(name);
    return need(line, "test", name, *builtin_out);
}

tt_status tti_call_integer(const tti_call *call, int k, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (!call->given[k] || call->arg[k].kind == TTI_NONE) {
        return TT_OK;
    }
    TTI_CHAT_CHECK(call->arg[k].kind == TTI_INTEGER || call->arg[k].kind == TTI_BOOL, call->line,
                   "%s takes a whole number, not a value of type %s", call->builtin->name,
                   tti_value_type(&call->arg[k]));
    *out = tti_value_to_integer(&call->arg[k]);
    return TT_OK;
}

tt_status tti_call_string(const tti_call *call, const tti_value *v, const tti_value **out)
{
    TTI_CHAT_CHECK(v->kind == TTI_STRING, call->line, "%s takes a string, not a value of type %s",
                   call->builtin->name, tti_value_type(v));
    *out = v;
    return TT_OK;
}

/* ---- functions ---- */
static tt_status call_raise_exception(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value text;
    TT_TRY(tti_value_print(r, call->line, &call->arg[0], &text));
    (void)out;
    return TTI_CHAT_FAIL(TT_ERR_REQUEST, call->line, "the template refuses this conversation: %.*s",
                         (int)(text.n < 512 ? text.n : 512), text.as.string.text);
}

static tt_status call_strftime_now(tti_run *r, const tti_call *call, tti_value *out)
{
    enum { DATE_BYTES = 512 };
    char format[DATE_BYTES], date[DATE_BYTES];
    const tti_value *given = NULL;
    struct tm parts;
    time_t now = r->has_now ? (time_t)r->now_s : time(NULL);
    TT_TRY(tti_call_string(call, &call->arg[0], &given));
    TTI_CHAT_CHECK(given->n + 1 < sizeof(format), call->line, "a date's format is too long");
    /* A last character keeps an empty date apart from one that does not fit. */
    snprintf(format, sizeof(format), "%.*s.", (int)given->n, given->as.string.text);
    TTI_CHAT_CHECK(r->has_now ? gmtime_r(&now, &parts) : localtime_r(&now, &parts), call->line,
                   "there is no such time");
    /* The format comes from the template: strftime reads nothing but it and `parts`. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(date, sizeof(date), format, &parts);
#pragma GCC diagnostic pop
    TTI_CHAT_CHECK(n > 0, call->line, "a date is too long");
    void *memory;
    TT_TRY(tti_chat_alloc(&r->arena, n, &memory));
    memcpy(memory, date, n);
    *out = tti_value_string(memory, n - 1, false);
    return TT_OK;
}

/* namespace(a=1), dict(a=1), and either from a dict. */
static tt_status call_dict(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_args *args = call->args;
    tti_dict *dict;
    TTI_CHAT_CHECK(args->n <= 1 && (args->n == 0 || args->value[0].kind == TTI_DICT), call->line,
                   "%s takes named arguments or a dict", call->builtin->name);
    const tti_dict *base = args->n ? args->value[0].as.dict : NULL;
    TT_TRY(tti_dict_create(r, (base ? base->n : 0) + args->n_keywords, &dict));
    for (size_t k = 0; base && k < base->n; k++) {
        TT_TRY(tti_dict_set(r, call->line, dict, &base->entry[k].key, &base->entry[k].value));
    }
    for (size_t k = 0; k < args->n_keywords; k++) {
        TT_TRY(tti_dict_set(r, call->line, dict, &args->keyword[k].key, &args->keyword[k].value));
    }
    *out = (tti_value){.kind = call->builtin->variant ? TTI_NAMESPACE : TTI_DICT, .as.dict = dict};
    return TT_OK;
}

static tt_status call_range(tti_run *r, const tti_call *call, tti_value *out)
{
    enum { RANGE_MAX = 100000 }; /* as in Jinja's sandbox */
    int64_t first, stop, step;
    TTI_CHAT_CHECK(call->arg[0].kind == TTI_INTEGER, call->line, "range takes whole numbers");
    TT_TRY(tti_call_integer(call, 0, 0, &first));
    TT_TRY(tti_call_integer(call, 1, 0, &stop));
    TT_TRY(tti_call_integer(call, 2, 1, &step));
    if (!call->given[1]) {
        stop = first;
        first = 0;
    }
    TTI_CHAT_CHECK(step != 0, call->line, "range has a step of 0");
    /* In floating point, since the difference may exceed an int64. */
    double count = ceil(((double)stop - (double)first) / (double)step);
    TTI_CHAT_CHECK(count <= RANGE_MAX, call->line, "range has more than %d items", RANGE_MAX);
    size_t n = count > 0 ? (size_t)count : 0;
    tti_value *items;
    TT_TRY(tti_chat_count(r, call->line, n));
    TT_TRY(tti_value_array(r, n, &items));
    for (size_t k = 0; k < n; k++) {
        items[k] = tti_value_integer(first + (int64_t)k * step);
    }
    *out = tti_value_items(TTI_VIEW, items, n);
    out->as.list.label = "range";
    return TT_OK;
}

const tti_builtin tti_chat_functions[] = {
    {"raise_exception", "message", call_raise_exception, 0},
    {"strftime_now", "format", call_strftime_now, 0},
    {"namespace", NULL, call_dict, 1},
    {"dict", NULL, call_dict, 0},
    {"range", "start stop? step?", call_range, 0},
    {0},
};

/* ---- tests ---- */
enum {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_STRING,
    IS_NUMBER,
    IS_INTEGER,
    IS_FLOAT,
    IS_MAPPING,
    IS_ITERABLE,
    IS_SEQUENCE,
    IS_CALLABLE
};

static tt_status test_kind(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *v = call->self;
    tti_kind kind = v->kind;
    bool items = kind == TTI_LIST || kind == TTI_TUPLE || kind == TTI_STRING || kind == TTI_DICT ||
                 kind == TTI_UNDEFINED;
    bool view = kind == TTI_VIEW;
    bool range = view && strcmp(v->as.list.label, "range") == 0;
    (void)r;
    bool is[] = {[IS_DEFINED] = kind != TTI_UNDEFINED,
                 [IS_UNDEFINED] = kind == TTI_UNDEFINED,
                 [IS_NONE] = kind == TTI_NONE,
                 [IS_BOOLEAN] = kind == TTI_BOOL,
                 [IS_TRUE] = kind == TTI_BOOL && v->as.truth,
                 [IS_FALSE] = kind == TTI_BOOL && !v->as.truth,
                 [IS_STRING] = kind == TTI_STRING,
                 [IS_NUMBER] = tti_value_is_number(v),
                 [IS_INTEGER] = kind == TTI_INTEGER,
                 [IS_FLOAT] = kind == TTI_REAL,
                 [IS_MAPPING] = kind == TTI_DICT,
                 [IS_ITERABLE] = items || view || kind == TTI_GENERATOR || kind == TTI_LOOP,
                 [IS_SEQUENCE] = items || range,
                 [IS_CALLABLE] = kind == TTI_MACRO || kind == TTI_METHOD || kind == TTI_FUNCTION ||
                                 kind == TTI_UNDEFINED || kind == TTI_LOOP};
    *out = tti_value_bool(is[call->builtin->variant]);
    return TT_OK;
}

static tt_status test_compare(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_operator op = (tti_operator)call->builtin->variant;
    bool truth;
    int order;
    if (op == TTI_OP_IN) {
        TT_TRY(tti_value_contains(r, call->line, &call->arg[0], call->self, &truth));
    } else if (op == TTI_OP_EQ || op == TTI_OP_NE) {
        TT_TRY(tti_value_equal(r, call->line, call->self, &call->arg[0], &truth));
        truth = truth == (op == TTI_OP_EQ);
    } else {
        TT_TRY(tti_value_order(r, call->line, call->self, &call->arg[0], &order));
        truth = op == TTI_OP_LT   ? order < 0
                : op == TTI_OP_LE ? order <= 0
                : op == TTI_OP_GT ? order > 0
                                  : order >= 0;
    }
    *out = tti_value_bool(truth);
    return TT_OK;
}

static tt_status test_multiple(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value divisor = call->given[0] ? call->arg[0] : tti_value_integer(2), rest;
    tti_value wanted = tti_value_integer(call->builtin->variant);
    bool truth;
    TT_TRY(tti_chat_arithmetic(r, call->line, TTI_OP_MOD, call->self, &divisor, &rest));
    TT_TRY(tti_value_equal(r, call->line, &rest, &wanted, &truth));
    *out = tti_value_bool(truth);
    return TT_OK;
}

static tt_status test_same(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *a = call->self, *b = &call->arg[0];
    bool equal;
    TT_TRY(tti_value_equal(r, call->line, a, b, &equal));
    bool simple = a->kind == TTI_NONE || a->kind == TTI_BOOL || a->kind == TTI_INTEGER;
    if (equal && a->kind == b->kind && !simple) {
        return TTI_CHAT_FAIL(TT_ERR_UNSUPPORTED, call->line,
                             "the test sameas between values of type %s is not supported",
                             tti_value_type(a));
    }
    *out = tti_value_bool(equal && a->kind == b->kind);
    return TT_OK;
}

/* islower and isupper of the string's text. */
static tt_status test_case(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value text;
    tti_string name = {call->builtin->variant ? "isupper" : "islower", 7};
    TT_TRY(tti_value_print(r, call->line, call->self, &text));
    return tti_builtin_call(r, call->line, tti_builtin_find(tti_chat_string_methods, name), &text,
                            call->args, out);
}

static tt_status test_known(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *name = call->self;
    (void)r;
    tti_string s = {name->as.string.text, name->n};
    bool known = name->kind == TTI_STRING &&
                 (call->builtin->variant ? tti_chat_find_test(s) : tti_chat_find_filter(s));
    *out = tti_value_bool(known);
    return TT_OK;
}

const tti_builtin tti_chat_tests[] = {
    {"defined", "", test_kind, IS_DEFINED},
    {"undefined", "", test_kind, IS_UNDEFINED},
    {"none", "", test_kind, IS_NONE},
    {"boolean", "", test_kind, IS_BOOLEAN},
    {"true", "", test_kind, IS_TRUE},
    {"false", "", test_kind, IS_FALSE},
    {"string", "", test_kind, IS_STRING},
    {"number", "", test_kind, IS_NUMBER},
    {"integer", "", test_kind, IS_INTEGER},
    {"float", "", test_kind, IS_FLOAT},
    {"mapping", "", test_kind, IS_MAPPING},
    {"iterable", "", test_kind, IS_ITERABLE},
    {"sequence", "", test_kind, IS_SEQUENCE},
    {"callable", "", test_kind, IS_CALLABLE},
    {"eq", "other", test_compare, TTI_OP_EQ},
    {"equalto", "other", test_compare, TTI_OP_EQ},
    {"==", "other", test_compare, TTI_OP_EQ},
    {"ne", "other", test_compare, TTI_OP_NE},
    {"!=", "other", test_compare, TTI_OP_NE},
    {"lt", "other", test_compare, TTI_OP_LT},
    {"lessthan", "other", test_compare, TTI_OP_LT},
    {"<", "other", test_compare, TTI_OP_LT},
    {"le", "other", test_compare, TTI_OP_LE},
    {"<=", "other", test_compare, TTI_OP_LE},
    {"gt", "other", test_compare, TTI_OP_GT},
    {"greaterthan", "other", test_compare, TTI_OP_GT},
    {">", "other", test_compare, TTI_OP_GT},
    {"ge", "other", test_compare, TTI_OP_GE},
    {">=", "other", test_compare, TTI_OP_GE},
    {"in", "seq", test_compare, TTI_OP_IN},
    {"odd", "", test_multiple, 1},
    {"even", "", test_multiple, 0},
    {"divisibleby", "num", test_multiple, 0},
    {"sameas", "other", test_same, 0},
    {"lower", "", test_case, 0},
    {"upper", "", test_case, 1},
    {"filter", "", test_known, 0},
    {"test", "", test_known, 1},
    {0},
};

const tti_builtin *tti_chat_find_test(tti_string name)
{
    return tti_builtin_find(tti_chat_tests, name);
}
