/* chat_template_filters.c - filters of single values: text, numbers, JSON. */
#include "chat_template_internal.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- text ---- */
/* The filtered value as text, whatever it is. */
static tt_status self_text(tti_run *r, const tti_call *call, tti_value *out)
{
    return tti_value_print(r, call->line, call->self, out);
}

static tt_status filter_string(tti_run *r, const tti_call *call, tti_value *out)
{
    TT_TRY(self_text(r, call, out));
    out->markup = out->markup || call->builtin->variant != 0;
    return TT_OK;
}

static tt_status filter_escape(tti_run *r, const tti_call *call, tti_value *out)
{
    TT_TRY(self_text(r, call, out));
    return out->markup && call->builtin->variant == 0 ? TT_OK
                                                      : tti_text_escape(r, call->line, out, out);
}

static tt_status filter_case(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value text;
    TT_TRY(self_text(r, call, &text));
    return tti_text_case(r, call->line, &text, (tti_case)call->builtin->variant, out);
}

static tt_status filter_trim(tti_run *r, const tti_call *call, tti_value *out)
{
    enum { BOTH = 3 };
    const tti_value *chars = NULL;
    tti_value text;
    TT_TRY(self_text(r, call, &text));
    if (call->given[0] && call->arg[0].kind != TTI_NONE) {
        TT_TRY(tti_call_string(call, &call->arg[0], &chars));
    }
    TT_TRY(tti_chat_count_bytes(r, call->line, text.n * (chars ? chars->n + 1 : 1)));
    *out = tti_text_strip(&text, chars, BOTH);
    return TT_OK;
}

static tt_status filter_replace(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value text, from, to;
    int64_t count;
    TT_TRY(self_text(r, call, &text));
    TT_TRY(tti_value_print(r, call->line, &call->arg[0], &from));
    TT_TRY(tti_value_print(r, call->line, &call->arg[1], &to));
    TT_TRY(tti_call_integer(call, 2, -1, &count));
    return tti_text_replace(r, call->line, &text, &from, &to, count, out);
}

/* Lines after the first begin with the indention, unless they are empty and `blank` is false. */
static tt_status indent_into(tti_run *r, const tti_call *call, const tti_value *lines,
                             const tti_value *indention, tti_sink *sink)
{
    bool first = call->given[1] && tti_value_is_true(&call->arg[1]);
    bool blank = call->given[2] && tti_value_is_true(&call->arg[2]);
    for (size_t k = 0; k < lines->n; k++) {
        const tti_value *one = &lines->as.list.item[k];
        if (k > 0) {
            TT_TRY(tti_sink_word(r, call->line, sink, "\n"));
        }
        if (k == 0 ? first : one->n > 0 || blank) {
            TT_TRY(tti_sink_value(r, call->line, sink, indention));
        }
        TT_TRY(tti_sink_value(r, call->line, sink, one));
    }
    return TT_OK;
}

static tt_status filter_indent(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value text, newline = tti_value_word("\n"), indention = tti_value_word("    "), lines;
    tti_sink sink = {0};
    if (call->given[0] && call->arg[0].kind == TTI_STRING) {
        indention = call->arg[0];
    } else if (call->given[0]) {
        int64_t width;
        tti_value space = tti_value_word(" ");
        TT_TRY(tti_call_integer(call, 0, 0, &width));
        TT_TRY(tti_text_repeat(r, call->line, &space, width, &indention));
    }
    TTI_CHAT_CHECK(call->self->kind == TTI_STRING, call->line,
                   "indent takes a string, not a value of type %s", tti_value_type(call->self));
    TT_TRY(self_text(r, call, &text));
    TT_TRY(tti_text_join(r, call->line, &text, &newline, &text));
    TT_TRY(tti_text_lines(r, call->line, &text, false, &lines));
    tt_status st = indent_into(r, call, &lines, &indention, &sink);
    if (st == TT_OK) {
        st = tti_sink_take(r, call->line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

static tt_status filter_join(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *items;
    tti_value separator = tti_value_string("", 0, false), one;
    size_t n;
    tti_sink sink = {0};
    if (call->given[0]) {
        TT_TRY(tti_value_print(r, call->line, &call->arg[0], &separator));
    }
    TT_TRY(tti_value_iterate(r, call->line, call->self, &items, &n));
    tt_status st = TT_OK;
    for (size_t k = 0; st == TT_OK && k < n; k++) {
        one = items[k];
        if (call->given[1] && call->arg[1].kind != TTI_NONE) {
            st = tti_chat_item(r, call->line, &items[k], &call->arg[1], &one);
        }
        st = st == TT_OK ? tti_value_print(r, call->line, &one, &one) : st;
        st = st == TT_OK && k > 0 ? tti_sink_value(r, call->line, &sink, &separator) : st;
        st = st == TT_OK ? tti_sink_value(r, call->line, &sink, &one) : st;
    }
    if (st == TT_OK) {
        st = tti_sink_take(r, call->line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

static tt_status filter_wordcount(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value text;
    size_t count = 0;
    bool in_word = false;
    TT_TRY(self_text(r, call, &text));
    TT_TRY(tti_chat_count_bytes(r, call->line, text.n));
    for (size_t at = 0, length; at < text.n; at += length) {
        bool word = tti_char_is_word(tti_utf8_decode(text.as.string.text + at, &length));
        count += word && !in_word;
        in_word = word;
    }
    *out = tti_value_integer((int64_t)count);
    return TT_OK;
}

/* ---- numbers ---- */
/* A number's text with white space around and _ between digits, as Python reads it. */
static bool read_number(const tti_value *s, bool letters, char *text, size_t size)
{
    enum { BOTH = 3 };
    tti_value inner = tti_text_strip(s, NULL, BOTH);
    size_t n = 0;
    if (inner.n == 0 || inner.n >= size || memchr(inner.as.string.text, 0, inner.n)) {
        return false;
    }
    for (size_t i = 0; i < inner.n; i++) {
        char c = inner.as.string.text[i];
        bool digit_before = n > 0 && text[n - 1] >= '0' && text[n - 1] <= '9';
        if (c == '_' && digit_before && i + 1 < inner.n && inner.as.string.text[i + 1] != '_') {
            continue;
        }
        if (c == ' ' || (!letters && strchr("xXpP(", c))) {
            return false; /* strtod would take hexadecimal numbers and nan(..) */
        }
        text[n++] = c;
    }
    text[n] = 0;
    return true;
}

enum { NUMBER_TEXT_BYTES = 512 };

static bool to_real(const tti_value *v, double *out)
{
    char text[NUMBER_TEXT_BYTES], *stop;
    if (tti_value_is_number(v)) {
        *out = tti_value_to_real(v);
        return true;
    }
    if (v->kind != TTI_STRING || !read_number(v, false, text, sizeof(text))) {
        return false;
    }
    *out = strtod(text, &stop);
    return *stop == 0;
}

static bool real_to_integer(double real, int64_t *out)
{
    const double beyond = 9223372036854775808.0; /* 2^63 */
    if (!(real >= -beyond && real < beyond)) {
        return false;
    }
    *out = (int64_t)real;
    return true;
}

static tt_status filter_int(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *v = call->self;
    char text[NUMBER_TEXT_BYTES], *stop;
    int64_t base, number;
    double real;
    (void)r;
    TTI_CHAT_CHECK(v->kind != TTI_UNDEFINED, call->line, "int is asked of an undefined value");
    TT_TRY(tti_call_integer(call, 1, 10, &base));
    TTI_CHAT_CHECK(base == 10 || base == 16 || base == 8 || base == 2, call->line,
                   "int has a base of %lld", (long long)base);
    *out = call->given[0] ? call->arg[0] : tti_value_integer(0);
    if (v->kind == TTI_BOOL || v->kind == TTI_INTEGER) {
        *out = tti_value_integer(tti_value_to_integer(v));
        return TT_OK;
    }
    if (v->kind == TTI_STRING && read_number(v, base != 10, text, sizeof(text))) {
        errno = 0;
        number = strtoll(text, &stop, (int)base);
        TTI_CHAT_CHECK(errno != ERANGE, call->line, "a number is too large");
        if (*stop == 0) {
            *out = tti_value_integer(number);
            return TT_OK;
        }
    }
    if (to_real(v, &real) && real_to_integer(real, &number)) {
        *out = tti_value_integer(number);
    }
    return TT_OK;
}

static tt_status filter_float(tti_run *r, const tti_call *call, tti_value *out)
{
    double real;
    (void)r;
    TTI_CHAT_CHECK(call->self->kind != TTI_UNDEFINED, call->line,
                   "float is asked of an undefined value");
    *out = call->given[0] ? call->arg[0] : tti_value_real(0);
    if (to_real(call->self, &real)) {
        *out = tti_value_real(real);
    }
    return TT_OK;
}

static tt_status filter_abs(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *v = call->self;
    TTI_CHAT_CHECK(tti_value_is_number(v), call->line, "abs takes a number, not a value of type %s",
                   tti_value_type(v));
    if (v->kind == TTI_REAL) {
        *out = tti_value_real(fabs(v->as.real));
        return TT_OK;
    }
    tti_value zero = tti_value_integer(0);
    *out = tti_value_integer(tti_value_to_integer(v));
    return out->as.integer < 0 ? tti_chat_arithmetic(r, call->line, TTI_OP_SUB, &zero, v, out)
                               : TT_OK;
}

static tt_status filter_round(tti_run *r, const tti_call *call, tti_value *out)
{
    enum { PRECISION_MAX = 300, ROUND_BYTES = 1024 };
    const tti_value *v = call->self;
    const tti_value common = tti_value_word("common");
    const tti_value *method = call->given[1] ? &call->arg[1] : &common;
    int64_t precision;
    char text[ROUND_BYTES];
    (void)r;
    TTI_CHAT_CHECK(tti_value_is_number(v), call->line,
                   "round takes a number, not a value of type %s", tti_value_type(v));
    TT_TRY(tti_call_integer(call, 0, 0, &precision));
    TTI_CHAT_CHECK(precision >= 0 && precision <= PRECISION_MAX, call->line,
                   "round has a precision of %lld", (long long)precision);
    double real = tti_value_to_real(v);
    if (tti_value_is(method, "common")) {
        /* printf rounds the exact value, ties to even, as Python does. */
        snprintf(text, sizeof(text), "%.*f", (int)precision, real);
        *out = v->kind == TTI_REAL ? tti_value_real(strtod(text, NULL))
                                   : tti_value_integer(tti_value_to_integer(v));
        return TT_OK;
    }
    bool up = tti_value_is(method, "ceil");
    TTI_CHAT_CHECK(up || tti_value_is(method, "floor"), call->line,
                   "round knows common, ceil and floor");
    double scale = pow(10, (double)precision);
    *out = tti_value_real((up ? ceil(real * scale) : floor(real * scale)) / scale);
    return TT_OK;
}

/* ---- any value ---- */
static tt_status filter_default(tti_run *r, const tti_call *call, tti_value *out)
{
    bool falsy = call->given[1] && tti_value_is_true(&call->arg[1]);
    bool takes = call->self->kind == TTI_UNDEFINED || (falsy && !tti_value_is_true(call->self));
    (void)r;
    *out = !takes ? *call->self : call->given[0] ? call->arg[0] : tti_value_string("", 0, false);
    return TT_OK;
}

static tt_status filter_length(tti_run *r, const tti_call *call, tti_value *out)
{
    size_t n;
    TT_TRY(tti_value_length(r, call->line, call->self, &n));
    *out = tti_value_integer((int64_t)n);
    return TT_OK;
}

static tt_status read_json_style(tti_run *r, const tti_call *call, tti_json_style *style)
{
    enum { ASCII, INDENT, SEPARATORS, SORT_KEYS };
    tti_value space = tti_value_word(" ");
    const tti_value *indent = &call->arg[INDENT], *separators = &call->arg[SEPARATORS];
    bool indented = call->given[INDENT] && indent->kind != TTI_NONE;
    *style = (tti_json_style){.item_separator = tti_value_word(indented ? "," : ", "),
                              .key_separator = tti_value_word(": "),
                              .ascii = call->given[ASCII] && tti_value_is_true(&call->arg[ASCII]),
                              .sort_keys = call->given[SORT_KEYS] &&
                                           tti_value_is_true(&call->arg[SORT_KEYS])};
    if (indented && indent->kind == TTI_STRING) {
        style->indent = *indent;
    } else if (indented) {
        int64_t width;
        TT_TRY(tti_call_integer(call, INDENT, 0, &width));
        TT_TRY(tti_text_repeat(r, call->line, &space, width, &style->indent));
    }
    if (call->given[SEPARATORS] && separators->kind != TTI_NONE) {
        bool pair = (separators->kind == TTI_TUPLE || separators->kind == TTI_LIST) &&
                    separators->n == 2 && separators->as.list.item[0].kind == TTI_STRING &&
                    separators->as.list.item[1].kind == TTI_STRING;
        TTI_CHAT_CHECK(pair, call->line, "the separators of tojson are two strings");
        style->item_separator = separators->as.list.item[0];
        style->key_separator = separators->as.list.item[1];
    }
    return TT_OK;
}

static tt_status filter_tojson(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_json_style style;
    tti_sink sink = {0};
    TT_TRY(read_json_style(r, call, &style));
    tt_status st = tti_value_to_json(r, call->line, &sink, call->self, &style, 0);
    if (st == TT_OK) {
        st = tti_sink_take(r, call->line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

const tti_builtin tti_chat_filters[] = {
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson, 0},
    {"trim", "chars?", filter_trim, 0},
    {"string", "", filter_string, 0},
    {"safe", "", filter_string, 1},
    {"escape", "", filter_escape, 0},
    {"e", "", filter_escape, 0},
    {"forceescape", "", filter_escape, 1},
    {"upper", "", filter_case, TTI_CASE_UPPER},
    {"lower", "", filter_case, TTI_CASE_LOWER},
    {"capitalize", "", filter_case, TTI_CASE_CAPITALIZE},
    {"title", "", filter_case, TTI_CASE_FILTER_TITLE},
    {"replace", "old new count?", filter_replace, 0},
    {"indent", "width? first? blank?", filter_indent, 0},
    {"join", "d? attribute?", filter_join, 0},
    {"wordcount", "", filter_wordcount, 0},
    {"int", "default? base?", filter_int, 0},
    {"float", "default?", filter_float, 0},
    {"abs", "", filter_abs, 0},
    {"round", "precision? method?", filter_round, 0},
    {"default", "default_value? boolean?", filter_default, 0},
    {"d", "default_value? boolean?", filter_default, 0},
    {"length", "", filter_length, 0},
    {"count", "", filter_length, 0},
    {0},
};

const tti_builtin *tti_chat_find_filter(tti_string name)
{
    const tti_builtin *found = tti_builtin_find(tti_chat_filters, name);
    return found ? found : tti_builtin_find(tti_chat_sequence_filters, name);
}
