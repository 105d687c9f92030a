/* chat_template_text.c - what strings can do, by characters, with the marks of their bytes kept:
 * a byte of the result is a message's if the byte it comes from was. */
#define _GNU_SOURCE /* memmem */
#include "chat_template_internal.h"
#include <utf8proc.h>

bool tti_char_is_blank(uint32_t c)
{
    enum { FILE_SEPARATOR = 0x1c, UNIT_SEPARATOR = 0x1f };
    return tti_char_is_space(c) || (c >= FILE_SEPARATOR && c <= UNIT_SEPARATOR);
}

static uint32_t char_at(const tti_value *s, size_t at, size_t *n_out)
{
    return tti_utf8_decode(s->as.string.text + at, n_out);
}

static bool begins_char(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

static bool mark_at(const tti_value *s, size_t at)
{
    return s->as.string.mark ? s->as.string.mark[at] : s->literal;
}

/* ---- joining ---- */
/* What a joined string lies in. Text behind `used` is free, and a string that ends there can grow
 * in place: so a template that adds to one string in a loop takes time and memory linear in the
 * result. Nobody sees the growth, since every string knows its own length. */
typedef struct buffer {
    size_t used, capacity;
    unsigned char *mark; /* mark[capacity] */
    char text[];         /* text[capacity] */
} buffer;

static void copy_part(buffer *to, const tti_value *s)
{
    if (s->n == 0) {
        return;
    }
    memcpy(to->text + to->used, s->as.string.text, s->n);
    if (s->as.string.mark) {
        memcpy(to->mark + to->used, s->as.string.mark, s->n);
    } else {
        memset(to->mark + to->used, s->literal, s->n);
    }
    to->used += s->n;
}

tt_status tti_text_join(tti_run *r, int line, const tti_value *a, const tti_value *b,
                        tti_value *out)
{
    if (a->n == 0 || b->n == 0) {
        *out = a->n ? *a : *b;
        return TT_OK;
    }
    TTI_CHAT_CHECK(a->n <= r->limits.max_memory_bytes && b->n <= r->limits.max_memory_bytes, line,
                   "a text is longer than %zu bytes", r->limits.max_memory_bytes);
    size_t n = a->n + b->n;
    buffer *own =
        a->grows ? (buffer *)(uintptr_t)(a->as.string.text - offsetof(buffer, text)) : NULL;
    bool in_place = own && own->used == a->n && own->capacity - own->used >= b->n;
    TT_TRY(tti_chat_count_bytes(r, line, in_place ? b->n : n));
    if (!in_place) {
        void *memory;
        /* Only what grows again gets room to grow. */
        size_t capacity = own ? 2 * n : n;
        TT_TRY(tti_chat_alloc(&r->arena, sizeof(buffer) + 2 * capacity, &memory));
        own = memory;
        own->capacity = capacity;
        own->mark = (unsigned char *)own->text + capacity;
        copy_part(own, a);
    }
    copy_part(own, b);
    *out = tti_value_string(own->text, n, false);
    out->as.string.mark = own->mark;
    out->grows = true;
    return TT_OK;
}

/* A fresh string of n bytes with marks. */
static tt_status make(tti_run *r, int line, size_t n, char **text_out, unsigned char **mark_out,
                      tti_value *out)
{
    void *memory;
    TT_TRY(tti_chat_count_bytes(r, line, n));
    TTI_CHAT_CHECK(n <= r->limits.max_memory_bytes, line, "a text is longer than %zu bytes",
                   r->limits.max_memory_bytes);
    TT_TRY(tti_chat_alloc(&r->arena, 2 * n, &memory));
    *text_out = memory;
    *mark_out = (unsigned char *)memory + n;
    *out = tti_value_string(*text_out, n, false);
    out->as.string.mark = *mark_out;
    return TT_OK;
}

tt_status tti_text_repeat(tti_run *r, int line, const tti_value *s, int64_t times, tti_value *out)
{
    char *text = NULL;
    unsigned char *mark = NULL;
    *out = tti_value_string("", 0, false);
    if (times <= 0 || s->n == 0) {
        return TT_OK;
    }
    TTI_CHAT_CHECK((uint64_t)times <= r->limits.max_memory_bytes / s->n, line,
                   "a text is longer than %zu bytes", r->limits.max_memory_bytes);
    TT_TRY(make(r, line, s->n * (size_t)times, &text, &mark, out));
    for (size_t i = 0; i < out->n; i++) {
        text[i] = s->as.string.text[i % s->n];
        mark[i] = mark_at(s, i % s->n);
    }
    return TT_OK;
}

/* ---- characters ---- */
size_t tti_text_n_chars(const tti_value *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->n; i++) {
        count += begins_char(s->as.string.text[i]);
    }
    return count;
}

size_t tti_text_offset(const tti_value *s, size_t k)
{
    size_t at = 0;
    for (; at < s->n; at++) {
        if (begins_char(s->as.string.text[at])) {
            if (k == 0) {
                break;
            }
            k--;
        }
    }
    return at;
}

tt_status tti_text_chars(tti_run *r, int line, const tti_value *s, tti_value *list_out)
{
    tti_value *items;
    size_t n = tti_text_n_chars(s), at = 0;
    TT_TRY(tti_chat_count(r, line, n));
    TT_TRY(tti_value_array(r, n, &items));
    for (size_t k = 0; k < n; k++) {
        size_t length;
        char_at(s, at, &length);
        items[k] = tti_value_part(s, at, length);
        at += length;
    }
    *list_out = tti_value_items(TTI_LIST, items, n);
    return TT_OK;
}

/* n characters from character `start`, each `step` from the one before. */
tt_status tti_text_slice(tti_run *r, int line, const tti_value *s, int64_t start, int64_t step,
                         size_t n, tti_value *out)
{
    TT_TRY(tti_chat_count_bytes(r, line, s->n));
    if (n == 0) {
        *out = tti_value_string("", 0, false);
        return TT_OK;
    }
    if (step == 1) {
        size_t from = tti_text_offset(s, (size_t)start), length = s->n - from;
        tti_value rest = tti_value_part(s, from, length);
        *out = tti_value_part(s, from, tti_text_offset(&rest, n));
        return TT_OK;
    }
    tti_value list;
    tti_sink sink = {0};
    TT_TRY(tti_text_chars(r, line, s, &list));
    tt_status st = TT_OK;
    for (size_t k = 0; st == TT_OK && k < n; k++) {
        st = tti_sink_value(r, line, &sink, &list.as.list.item[start + (int64_t)k * step]);
    }
    if (st == TT_OK) {
        st = tti_sink_take(r, line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

static bool is_one_of(uint32_t c, const tti_value *chars)
{
    if (!chars) {
        return tti_char_is_blank(c);
    }
    for (size_t at = 0, length; at < chars->n; at += length) {
        if (char_at(chars, at, &length) == c) {
            return true;
        }
    }
    return false;
}

tti_value tti_text_strip(const tti_value *s, const tti_value *chars, unsigned sides)
{
    enum { LEFT = 1, RIGHT = 2 };
    size_t start = 0, end = s->n, length;
    while ((sides & LEFT) && start < end && is_one_of(char_at(s, start, &length), chars)) {
        start += length;
    }
    while ((sides & RIGHT) && end > start) {
        size_t at = end - 1;
        while (!begins_char(s->as.string.text[at])) {
            at--;
        }
        if (!is_one_of(char_at(s, at, &length), chars)) {
            break;
        }
        end = at;
    }
    return tti_value_part(s, start, end - start);
}

/* ---- upper and lower case ---- */
static bool is_cased(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

/* Begins a word for the filter title: a break stands before it. */
static bool is_title_break(uint32_t c)
{
    return tti_char_is_blank(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
}

static uint32_t change_case(uint32_t c, tti_case how, bool first)
{
    bool upper = how == TTI_CASE_UPPER;
    if (how == TTI_CASE_SWAP) {
        upper = utf8proc_islower((utf8proc_int32_t)c);
    } else if (how != TTI_CASE_UPPER && how != TTI_CASE_LOWER) {
        upper = first;
        if (first && how != TTI_CASE_FILTER_TITLE) {
            return (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
        }
    }
    return (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)c)
                            : utf8proc_tolower((utf8proc_int32_t)c));
}

/* One character to one, but for the sharp s, whose capital is SS. */
tt_status tti_text_case(tti_run *r, int line, const tti_value *s, tti_case how, tti_value *out)
{
    enum { SHARP_S = 0xdf };
    tti_sink sink = {0};
    bool first = true;
    tt_status st = tti_chat_count_bytes(r, line, s->n);
    for (size_t at = 0, length; st == TT_OK && at < s->n; at += length) {
        char bytes[TTI_UTF8_MAX];
        uint32_t c = char_at(s, at, &length), changed = change_case(c, how, first);
        bool upper = c == SHARP_S && (how == TTI_CASE_UPPER || how == TTI_CASE_SWAP || first) &&
                     how != TTI_CASE_LOWER;
        if (upper) {
            bool title =
                how != TTI_CASE_UPPER && how != TTI_CASE_SWAP && how != TTI_CASE_FILTER_TITLE;
            st = tti_sink_put(r, line, &sink, title ? "Ss" : "SS", 2, mark_at(s, at));
        } else {
            st = tti_sink_put(r, line, &sink, bytes, tti_utf8_encode(changed, bytes),
                              mark_at(s, at));
        }
        first = how == TTI_CASE_TITLE          ? !is_cased(c)
                : how == TTI_CASE_FILTER_TITLE ? is_title_break(c)
                                               : false;
    }
    if (st == TT_OK) {
        st = tti_sink_take(r, line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

/* ---- finding ---- */
/* memmem takes time linear in both lengths. */
static const char *search(const char *text, size_t n, const tti_value *part)
{
    return memmem(text, n, part->as.string.text, part->n);
}

tt_status tti_text_find(tti_run *r, int line, const tti_value *s, size_t from,
                        const tti_value *part, int64_t *found_out)
{
    *found_out = from <= s->n && part->n == 0 ? (int64_t)from : -1;
    if (part->n == 0 || from > s->n || part->n > s->n - from) {
        return TT_OK;
    }
    const char *hit = search(s->as.string.text + from, s->n - from, part);
    size_t end = hit ? (size_t)(hit - s->as.string.text) + part->n : s->n;
    *found_out = hit ? (int64_t)(end - part->n) : -1;
    return tti_chat_count_bytes(r, line, end - from);
}

/* Whether part stands in the last n bytes is true for all n above some number, which is found by
 * doubling and then halving: nothing near the end costs what is far from it, and places that
 * overlap, of which there may be as many as bytes, are not gone through one by one. */
tt_status tti_text_find_last(tti_run *r, int line, const tti_value *s, const tti_value *part,
                             int64_t *found_out)
{
    const char *text = s->as.string.text, *hit = NULL;
    size_t without = part->n, n; /* no place begins in the last `without` - 1 bytes */
    *found_out = part->n == 0 ? (int64_t)s->n : -1;
    if (part->n == 0 || part->n > s->n) {
        return TT_OK;
    }
    for (n = part->n; !hit; n = n > s->n / 2 ? s->n : 2 * n) {
        TT_TRY(tti_chat_count_bytes(r, line, n));
        hit = search(text + s->n - n, n, part);
        if (!hit && n == s->n) {
            return TT_OK;
        }
        without = hit ? without : n + 1;
    }
    /* hit begins the last n bytes that hold one; `without` is the least that may. */
    while ((n = s->n - (size_t)(hit - text)) > without) {
        size_t middle = without + (n - without) / 2;
        TT_TRY(tti_chat_count_bytes(r, line, middle));
        const char *later = search(text + s->n - middle, middle, part);
        hit = later ? later : hit;
        without = later ? without : middle + 1;
    }
    *found_out = (int64_t)(hit - text);
    return TT_OK;
}

/* An empty `from` stands before each character and at the end. */
static tt_status spread(tti_run *r, int line, const tti_value *s, const tti_value *to,
                        int64_t count, tti_sink *sink)
{
    size_t at = 0;
    while (count != 0) {
        size_t length = 0;
        TT_TRY(tti_sink_value(r, line, sink, to));
        if (at >= s->n) {
            return TT_OK;
        }
        char_at(s, at, &length);
        tti_value part = tti_value_part(s, at, length);
        TT_TRY(tti_sink_value(r, line, sink, &part));
        at += length;
        count -= count > 0;
    }
    tti_value rest = tti_value_part(s, at, s->n - at);
    return tti_sink_value(r, line, sink, &rest);
}

static tt_status replace_into(tti_run *r, int line, const tti_value *s, const tti_value *from,
                              const tti_value *to, int64_t count, tti_sink *sink)
{
    size_t at = 0;
    if (from->n == 0) {
        return spread(r, line, s, to, count, sink);
    }
    while (count != 0) {
        int64_t found;
        TT_TRY(tti_text_find(r, line, s, at, from, &found));
        if (found < 0) {
            break;
        }
        tti_value part = tti_value_part(s, at, (size_t)found - at);
        TT_TRY(tti_sink_value(r, line, sink, &part));
        TT_TRY(tti_sink_value(r, line, sink, to));
        at = (size_t)found + from->n;
        count -= count > 0;
    }
    tti_value rest = tti_value_part(s, at, s->n - at);
    return tti_sink_value(r, line, sink, &rest);
}

tt_status tti_text_replace(tti_run *r, int line, const tti_value *s, const tti_value *from,
                           const tti_value *to, int64_t count, tti_value *out)
{
    tti_sink sink = {0};
    int64_t found;
    TT_TRY(tti_text_find(r, line, s, 0, from, &found));
    if (found < 0) {
        *out = *s;
        return TT_OK;
    }
    tt_status st = replace_into(r, line, s, from, to, count, &sink);
    if (st == TT_OK) {
        st = tti_sink_take(r, line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

/* ---- splitting ---- */
/* Parts as they are found; room doubles. */
typedef struct parts {
    tti_value *item;
    size_t n, capacity;
} parts;

static tt_status add_part(tti_run *r, int line, parts *p, const tti_value *s, size_t start,
                          size_t end)
{
    TT_TRY(tti_chat_count(r, line, 1));
    if (p->n == p->capacity) {
        tti_value *item;
        size_t capacity = p->capacity ? 2 * p->capacity : 8;
        TT_TRY(tti_value_array(r, capacity, &item));
        if (p->n) {
            memcpy(item, p->item, p->n * sizeof(*item));
        }
        p->item = item;
        p->capacity = capacity;
    }
    p->item[p->n++] = tti_value_part(s, start, end - start);
    return TT_OK;
}

static tt_status split_blank(tti_run *r, int line, const tti_value *s, int64_t most, parts *p)
{
    size_t at = 0, length;
    for (;;) {
        while (at < s->n && tti_char_is_blank(char_at(s, at, &length))) {
            at += length;
        }
        if (at >= s->n) {
            return TT_OK;
        }
        size_t start = at;
        if (most == 0) {
            return add_part(r, line, p, s, start, s->n);
        }
        while (at < s->n && !tti_char_is_blank(char_at(s, at, &length))) {
            at += length;
        }
        TT_TRY(add_part(r, line, p, s, start, at));
        most -= most > 0;
    }
}

static tt_status split_left(tti_run *r, int line, const tti_value *s, const tti_value *separator,
                            int64_t most, parts *p)
{
    size_t at = 0;
    while (most != 0) {
        int64_t found;
        TT_TRY(tti_text_find(r, line, s, at, separator, &found));
        if (found < 0) {
            break;
        }
        TT_TRY(add_part(r, line, p, s, at, (size_t)found));
        at = (size_t)found + separator->n;
        most -= most > 0;
    }
    return add_part(r, line, p, s, at, s->n);
}

/* Parts come from the right and are turned round at the end. */
static tt_status split_right(tti_run *r, int line, const tti_value *s, const tti_value *separator,
                             int64_t most, parts *p)
{
    tti_value left = *s;
    int64_t found;
    while (most != 0) {
        TT_TRY(tti_text_find_last(r, line, &left, separator, &found));
        if (found < 0) {
            break;
        }
        TT_TRY(add_part(r, line, p, s, (size_t)found + separator->n, left.n));
        left = tti_value_part(s, 0, (size_t)found);
        most -= most > 0;
    }
    TT_TRY(add_part(r, line, p, s, 0, left.n));
    for (size_t k = 0; k < p->n / 2; k++) {
        tti_value item = p->item[k];
        p->item[k] = p->item[p->n - 1 - k];
        p->item[p->n - 1 - k] = item;
    }
    return TT_OK;
}

tt_status tti_text_split(tti_run *r, int line, const tti_value *s, const tti_value *separator,
                         int64_t max_splits, bool from_right, tti_value *list_out)
{
    parts p = {0};
    TT_TRY(tti_chat_count_bytes(r, line, s->n));
    if (!separator) {
        if (from_right && max_splits >= 0) {
            return TTI_CHAT_FAIL(TT_ERR_UNSUPPORTED, line,
                                 "rsplit at white space with a limit is not supported");
        }
        TT_TRY(split_blank(r, line, s, max_splits, &p));
    } else {
        TTI_CHAT_CHECK(separator->n > 0, line, "a text is split at an empty separator");
        TT_TRY(from_right && max_splits >= 0 ? split_right(r, line, s, separator, max_splits, &p)
                                             : split_left(r, line, s, separator, max_splits, &p));
    }
    *list_out = tti_value_items(TTI_LIST, p.item, p.n);
    return TT_OK;
}

static bool ends_line(uint32_t c)
{
    static const uint32_t enders[] = {'\n', '\r', '\v', '\f',   0x1c,
                                      0x1d, 0x1e, 0x85, 0x2028, 0x2029};
    for (size_t k = 0; k < sizeof(enders) / sizeof(enders[0]); k++) {
        if (c == enders[k]) {
            return true;
        }
    }
    return false;
}

tt_status tti_text_lines(tti_run *r, int line, const tti_value *s, bool keep_ends,
                         tti_value *list_out)
{
    parts p = {0};
    size_t start = 0;
    TT_TRY(tti_chat_count_bytes(r, line, s->n));
    for (size_t at = 0, length; at < s->n; at += length) {
        uint32_t c = char_at(s, at, &length);
        if (ends_line(c)) {
            length += c == '\r' && at + 1 < s->n && s->as.string.text[at + 1] == '\n' ? 1 : 0;
            TT_TRY(add_part(r, line, &p, s, start, keep_ends ? at + length : at));
            start = at + length;
        }
    }
    if (start < s->n) {
        TT_TRY(add_part(r, line, &p, s, start, s->n));
    }
    *list_out = tti_value_items(TTI_LIST, p.item, p.n);
    return TT_OK;
}

/* ---- markup ---- */
tt_status tti_text_escape(tti_run *r, int line, const tti_value *s, tti_value *out)
{
    static const struct {
        char plain;
        const char *escaped;
    } pairs[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    tti_value done = *s;
    for (size_t k = 0; k < sizeof(pairs) / sizeof(pairs[0]); k++) {
        tti_value from = tti_value_string(&pairs[k].plain, 1, false);
        tti_value to = tti_value_word(pairs[k].escaped);
        TT_TRY(tti_text_replace(r, line, &done, &from, &to, -1, &done));
    }
    *out = done;
    out->markup = true;
    return TT_OK;
}
