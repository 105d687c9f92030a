/* chat_template_print.c - values to text: as Python's str() and repr() print them, and as its
 * json.dumps() does. A sink collects text with the marks of its bytes. */
#include "chat_template_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* ---- sinks ---- */
void tti_sink_fini(tti_sink *sink)
{
    tt_text_fini(&sink->text);
    tt_text_fini(&sink->mark);
}

static tt_status put(tti_run *r, int line, tti_sink *sink, const char *text, size_t n)
{
    TT_TRY(tti_chat_count_bytes(r, line, n));
    TTI_CHAT_CHECK(n <= r->limits.max_output_bytes - sink->text.n, line,
                   "the text is longer than %zu bytes", r->limits.max_output_bytes);
    TT_TRY(tt_text_append(&sink->text, text, n));
    return tt_text_append(&sink->mark, text, n); /* room for the marks, whose values follow */
}

tt_status tti_sink_put(tti_run *r, int line, tti_sink *sink, const char *text, size_t n,
                       bool literal)
{
    TT_TRY(put(r, line, sink, text, n));
    if (n) {
        memset(sink->mark.bytes + sink->mark.n - n, literal, n);
    }
    return TT_OK;
}

tt_status tti_sink_word(tti_run *r, int line, tti_sink *sink, const char *word)
{
    return tti_sink_put(r, line, sink, word, strlen(word), false);
}

tt_status tti_sink_value(tti_run *r, int line, tti_sink *sink, const tti_value *string)
{
    if (!string->as.string.mark) {
        return tti_sink_put(r, line, sink, string->as.string.text, string->n, string->literal);
    }
    TT_TRY(put(r, line, sink, string->as.string.text, string->n));
    if (string->n) {
        memcpy(sink->mark.bytes + sink->mark.n - string->n, string->as.string.mark, string->n);
    }
    return TT_OK;
}

tt_status tti_sink_take(tti_run *r, int line, tti_sink *sink, tti_value *out)
{
    void *memory;
    size_t n = sink->text.n;
    *out = tti_value_string("", 0, false);
    if (n == 0) {
        return TT_OK;
    }
    TT_TRY(tti_chat_count_bytes(r, line, n));
    TT_TRY(tti_chat_alloc(&r->arena, 2 * n, &memory));
    memcpy(memory, sink->text.bytes, n);
    memcpy((char *)memory + n, sink->mark.bytes, n);
    *out = tti_value_string(memory, n, false);
    out->as.string.mark = (unsigned char *)memory + n;
    sink->text.n = sink->mark.n = 0;
    return TT_OK;
}

/* ---- numbers ---- */
/* The shortest digits that read back as the same number, laid out as Python's repr. */
void tti_real_print(double number, char out[TTI_REAL_BYTES])
{
    enum { DIGITS_MAX = 17, FIXED_BELOW = 16, FIXED_FROM = -4 };
    char text[TTI_REAL_BYTES], digits[DIGITS_MAX + 1] = {0};
    if (isnan(number) || isinf(number)) {
        snprintf(out, TTI_REAL_BYTES, "%s", isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
        return;
    }
    int precision = 0;
    do {
        snprintf(text, sizeof(text), "%.*e", precision, fabs(number));
        precision++;
    } while (precision < DIGITS_MAX && strtod(text, NULL) != fabs(number));
    int exponent = atoi(strchr(text, 'e') + 1), n = 0;
    for (const char *c = text; *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9') {
            digits[n++] = *c;
        }
    }
    char *to = out;
    *to = '-';
    to += signbit(number) ? 1 : 0;
    if (exponent >= FIXED_FROM && exponent < FIXED_BELOW) {
        if (exponent < 0) {
            to += snprintf(to, TTI_REAL_BYTES / 2, "0.%.*s", -exponent - 1, "0000");
        }
        for (int k = 0; k < n || (exponent >= 0 && k <= exponent + 1); k++) {
            if (exponent >= 0 && k == exponent + 1) {
                *to++ = '.';
            }
            *to++ = k < n ? digits[k] : '0';
        }
        *to = 0;
        return;
    }
    *to++ = digits[0];
    if (n > 1) {
        *to++ = '.';
        memcpy(to, digits + 1, (size_t)n - 1);
        to += n - 1;
    }
    snprintf(to, TTI_REAL_BYTES / 2, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

static tt_status put_number(tti_run *r, int line, tti_sink *sink, const tti_value *v)
{
    char text[TTI_REAL_BYTES];
    if (v->kind == TTI_REAL) {
        tti_real_print(v->as.real, text);
    } else {
        snprintf(text, sizeof(text), "%" PRId64, v->as.integer);
    }
    return tti_sink_word(r, line, sink, text);
}

/* ---- Python's repr ---- */
enum { ESCAPE_BYTES = 16 }; /* of the longest, a pair of \uXXXX, and a NUL */
static bool is_printable(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    switch (category) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return true;
    }
}

/* What stands for character c in a repr in these quotes; "" for itself. */
static void repr_escape(uint32_t c, char quote, char out[ESCAPE_BYTES])
{
    const char *format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
    out[0] = 0;
    if (c == '\n' || c == '\r' || c == '\t') {
        snprintf(out, ESCAPE_BYTES, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (c == '\\' || c == (unsigned char)quote) {
        snprintf(out, ESCAPE_BYTES, "\\%c", (char)c);
    } else if (!is_printable(c)) {
        snprintf(out, ESCAPE_BYTES, format, (unsigned)c);
    }
}

typedef void escape_fn(uint32_t c, char quote, char out[ESCAPE_BYTES]);

/* A string in quotes with its escapes; runs of plain characters go together. */
static tt_status put_quoted(tti_run *r, int line, tti_sink *sink, const tti_value *s, char quote,
                            escape_fn *escape)
{
    size_t begin = 0, at = 0, length;
    TT_TRY(tti_sink_put(r, line, sink, &quote, 1, false));
    while (at < s->n) {
        char escaped[ESCAPE_BYTES];
        escape(tti_utf8_decode(s->as.string.text + at, &length), quote, escaped);
        if (escaped[0]) {
            tti_value plain = tti_value_part(s, begin, at - begin);
            bool literal = s->as.string.mark ? s->as.string.mark[at] : s->literal;
            TT_TRY(tti_sink_value(r, line, sink, &plain));
            TT_TRY(tti_sink_put(r, line, sink, escaped, strlen(escaped), literal));
            begin = at + length;
        }
        at += length;
    }
    tti_value plain = tti_value_part(s, begin, at - begin);
    TT_TRY(tti_sink_value(r, line, sink, &plain));
    return tti_sink_put(r, line, sink, &quote, 1, false);
}

static tt_status repr_dict(tti_run *r, int line, tti_sink *sink, const tti_dict *dict)
{
    TT_TRY(tti_sink_word(r, line, sink, "{"));
    for (size_t k = 0; k < dict->n; k++) {
        TT_TRY(tti_sink_word(r, line, sink, k ? ", " : ""));
        TT_TRY(tti_value_repr(r, line, sink, &dict->entry[k].key));
        TT_TRY(tti_sink_word(r, line, sink, ": "));
        TT_TRY(tti_value_repr(r, line, sink, &dict->entry[k].value));
    }
    return tti_sink_word(r, line, sink, "}");
}

static tt_status repr_items(tti_run *r, int line, tti_sink *sink, const tti_value *v)
{
    bool tuple = v->kind == TTI_TUPLE, view = v->kind == TTI_VIEW;
    if (view) {
        TTI_CHAT_CHECK(strcmp(v->as.list.label, "range") != 0, line,
                       "a range cannot be printed; make a list of it");
        TT_TRY(tti_sink_word(r, line, sink, v->as.list.label));
        TT_TRY(tti_sink_word(r, line, sink, "("));
    }
    TT_TRY(tti_sink_word(r, line, sink, tuple ? "(" : "["));
    for (size_t k = 0; k < v->n; k++) {
        TT_TRY(tti_sink_word(r, line, sink, k ? ", " : ""));
        TT_TRY(tti_value_repr(r, line, sink, &v->as.list.item[k]));
    }
    TT_TRY(tti_sink_word(r, line, sink, tuple && v->n == 1 ? ",)" : tuple ? ")" : "]"));
    return view ? tti_sink_word(r, line, sink, ")") : TT_OK;
}

static tt_status repr_nested(tti_run *r, int line, tti_sink *sink, const tti_value *v)
{
    if (v->kind == TTI_NAMESPACE) {
        TT_TRY(tti_sink_word(r, line, sink, "<Namespace "));
        TT_TRY(repr_dict(r, line, sink, v->as.dict));
        return tti_sink_word(r, line, sink, ">");
    }
    return v->kind == TTI_DICT ? repr_dict(r, line, sink, v->as.dict)
                               : repr_items(r, line, sink, v);
}

tt_status tti_value_repr(tti_run *r, int line, tti_sink *sink, const tti_value *v)
{
    switch (v->kind) {
    case TTI_UNDEFINED:
        return tti_sink_word(r, line, sink, "Undefined");
    case TTI_NONE:
        return tti_sink_word(r, line, sink, "None");
    case TTI_BOOL:
        return tti_sink_word(r, line, sink, v->as.truth ? "True" : "False");
    case TTI_INTEGER:
    case TTI_REAL:
        return put_number(r, line, sink, v);
    case TTI_STRING: {
        bool single = v->n && memchr(v->as.string.text, '\'', v->n);
        bool wide = v->n && memchr(v->as.string.text, '"', v->n);
        return put_quoted(r, line, sink, v, single && !wide ? '"' : '\'', repr_escape);
    }
    case TTI_LIST:
    case TTI_TUPLE:
    case TTI_VIEW:
    case TTI_DICT:
    case TTI_NAMESPACE: {
        tt_status st = tti_chat_enter(r, line);
        if (st == TT_OK) {
            st = repr_nested(r, line, sink, v);
        }
        tti_chat_leave(r);
        return st;
    }
    case TTI_MACRO:
        TT_TRY(tti_sink_word(r, line, sink, "<Macro '"));
        TT_TRY(tti_sink_put(r, line, sink, v->as.macro->node->text.text, v->as.macro->node->text.n,
                            false));
        return tti_sink_word(r, line, sink, "'>");
    default:
        return TTI_CHAT_FAIL(TT_ERR_REQUEST, line, "a value of type %s cannot be printed",
                             tti_value_type(v));
    }
}

tt_status tti_value_print(tti_run *r, int line, const tti_value *v, tti_value *out)
{
    if (v->kind == TTI_STRING) {
        *out = *v;
        return TT_OK;
    }
    if (v->kind == TTI_UNDEFINED) {
        *out = tti_value_string("", 0, false);
        return TT_OK;
    }
    tti_sink sink = {0};
    tt_status st = tti_value_repr(r, line, &sink, v);
    if (st == TT_OK) {
        st = tti_sink_take(r, line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

/* ---- JSON ---- */
static void json_escape(uint32_t c, char quote, char out[ESCAPE_BYTES])
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    (void)quote;
    const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    out[0] = 0;
    if (known) {
        snprintf(out, ESCAPE_BYTES, "\\%c", to[known - from]);
    } else if (c < 0x20) {
        snprintf(out, ESCAPE_BYTES, "\\u%04x", (unsigned)c);
    }
}

/* ensure_ascii of Python: pairs of surrogates above U+FFFF. */
static void json_escape_ascii(uint32_t c, char quote, char out[ESCAPE_BYTES])
{
    enum { BEYOND = 0x10000, HIGH = 0xd800, LOW = 0xdc00, HALF_BITS = 10, HALF_MASK = 0x3ff };
    json_escape(c, quote, out);
    if (c >= BEYOND) {
        unsigned over = c - BEYOND;
        snprintf(out, ESCAPE_BYTES, "\\u%04x\\u%04x", HIGH + (over >> HALF_BITS),
                 LOW + (over & HALF_MASK));
    } else if (c >= 0x7f) {
        snprintf(out, ESCAPE_BYTES, "\\u%04x", (unsigned)c);
    }
}

static tt_status json_line(tti_run *r, int line, tti_sink *sink, const tti_json_style *style,
                           int level)
{
    if (style->indent.kind != TTI_STRING) {
        return TT_OK;
    }
    TT_TRY(tti_sink_word(r, line, sink, "\n"));
    for (int k = 0; k < level; k++) {
        TT_TRY(tti_sink_value(r, line, sink, &style->indent));
    }
    return TT_OK;
}

static tt_status json_key(tti_run *r, int line, tti_sink *sink, const tti_value *key,
                          const tti_json_style *style)
{
    if (key->kind == TTI_STRING) {
        return put_quoted(r, line, sink, key, '"', style->ascii ? json_escape_ascii : json_escape);
    }
    TTI_CHAT_CHECK(tti_value_is_number(key) || key->kind == TTI_NONE, line,
                   "a value of type %s cannot be a key of JSON", tti_value_type(key));
    TT_TRY(tti_sink_word(r, line, sink, "\""));
    TT_TRY(tti_value_to_json(r, line, sink, key, style, 0));
    return tti_sink_word(r, line, sink, "\"");
}

static int compare_entries(const void *a, const void *b)
{
    const tti_value *x = &(*(const tti_entry *const *)a)->key;
    const tti_value *y = &(*(const tti_entry *const *)b)->key;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = n ? memcmp(x->as.string.text, y->as.string.text, n) : 0;
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static tt_status json_dict(tti_run *r, int line, tti_sink *sink, const tti_dict *dict,
                           const tti_json_style *style, int level)
{
    void *memory;
    TT_TRY(tti_chat_alloc(&r->arena, dict->n * sizeof(tti_entry *), &memory));
    const tti_entry **entry = memory;
    for (size_t k = 0; k < dict->n; k++) {
        entry[k] = &dict->entry[k];
        TTI_CHAT_CHECK(!style->sort_keys || entry[k]->key.kind == TTI_STRING, line,
                       "only strings can be sorted as keys of JSON");
    }
    if (style->sort_keys && dict->n > 1) {
        qsort(entry, dict->n, sizeof(*entry), compare_entries);
    }
    TT_TRY(tti_sink_word(r, line, sink, "{"));
    for (size_t k = 0; k < dict->n; k++) {
        if (k) {
            TT_TRY(tti_sink_value(r, line, sink, &style->item_separator));
        }
        TT_TRY(json_line(r, line, sink, style, level + 1));
        TT_TRY(json_key(r, line, sink, &entry[k]->key, style));
        TT_TRY(tti_sink_value(r, line, sink, &style->key_separator));
        TT_TRY(tti_value_to_json(r, line, sink, &entry[k]->value, style, level + 1));
    }
    if (dict->n) {
        TT_TRY(json_line(r, line, sink, style, level));
    }
    return tti_sink_word(r, line, sink, "}");
}

static tt_status json_list(tti_run *r, int line, tti_sink *sink, const tti_value *v,
                           const tti_json_style *style, int level)
{
    TT_TRY(tti_sink_word(r, line, sink, "["));
    for (size_t k = 0; k < v->n; k++) {
        if (k) {
            TT_TRY(tti_sink_value(r, line, sink, &style->item_separator));
        }
        TT_TRY(json_line(r, line, sink, style, level + 1));
        TT_TRY(tti_value_to_json(r, line, sink, &v->as.list.item[k], style, level + 1));
    }
    if (v->n) {
        TT_TRY(json_line(r, line, sink, style, level));
    }
    return tti_sink_word(r, line, sink, "]");
}

tt_status tti_value_to_json(tti_run *r, int line, tti_sink *sink, const tti_value *v,
                            const tti_json_style *style, int level)
{
    tt_status st;
    switch (v->kind) {
    case TTI_NONE:
        return tti_sink_word(r, line, sink, "null");
    case TTI_BOOL:
        return tti_sink_word(r, line, sink, v->as.truth ? "true" : "false");
    case TTI_REAL:
        if (isnan(v->as.real) || isinf(v->as.real)) {
            return tti_sink_word(r, line, sink,
                                 isnan(v->as.real) ? "NaN"
                                 : v->as.real < 0  ? "-Infinity"
                                                   : "Infinity");
        }
        return put_number(r, line, sink, v);
    case TTI_INTEGER:
        return put_number(r, line, sink, v);
    case TTI_STRING:
        return put_quoted(r, line, sink, v, '"', style->ascii ? json_escape_ascii : json_escape);
    case TTI_LIST:
    case TTI_TUPLE:
    case TTI_DICT:
        st = tti_chat_enter(r, line);
        if (st == TT_OK) {
            st = v->kind == TTI_DICT ? json_dict(r, line, sink, v->as.dict, style, level)
                                     : json_list(r, line, sink, v, style, level);
        }
        tti_chat_leave(r);
        return st;
    default:
        return TTI_CHAT_FAIL(TT_ERR_REQUEST, line, "a value of type %s cannot become JSON",
                             tti_value_type(v));
    }
}
