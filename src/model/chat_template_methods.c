/* chat_template_methods.c - the methods of strings, dicts, lists and loops that templates may
 * call: those of Python that change nothing. */
#include "chat_template_internal.h"
#include <utf8proc.h>

/* ---- strings ---- */
static tt_status str_case(tti_run *r, const tti_call *call, tti_value *out)
{
    return tti_text_case(r, call->line, call->self, (tti_case)call->builtin->variant, out);
}

static tt_status str_strip(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *chars = NULL;
    if (call->given[0] && call->arg[0].kind != TTI_NONE) {
        TT_TRY(tti_call_string(call, &call->arg[0], &chars));
        TT_TRY(tti_chat_count_bytes(r, call->line, call->self->n * (chars->n + 1)));
    }
    TT_TRY(tti_chat_count_bytes(r, call->line, call->self->n));
    *out = tti_text_strip(call->self, chars, (unsigned)call->builtin->variant);
    return TT_OK;
}

static tt_status str_split(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *separator = NULL;
    int64_t most;
    if (call->given[0] && call->arg[0].kind != TTI_NONE) {
        TT_TRY(tti_call_string(call, &call->arg[0], &separator));
    }
    TT_TRY(tti_call_integer(call, 1, -1, &most));
    return tti_text_split(r, call->line, call->self, separator, most, call->builtin->variant != 0,
                          out);
}

static tt_status str_splitlines(tti_run *r, const tti_call *call, tti_value *out)
{
    return tti_text_lines(r, call->line, call->self,
                          call->given[0] && tti_value_is_true(&call->arg[0]), out);
}

/* (before, separator, after), or the whole and two empty ones. */
static tt_status str_partition(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *s = call->self, *separator;
    bool last = call->builtin->variant != 0;
    tti_value *three;
    TT_TRY(tti_call_string(call, &call->arg[0], &separator));
    TTI_CHAT_CHECK(separator->n > 0, call->line, "a text is split at an empty separator");
    TT_TRY(tti_value_array(r, 3, &three));
    int64_t found;
    TT_TRY(last ? tti_text_find_last(r, call->line, s, separator, &found)
                : tti_text_find(r, call->line, s, 0, separator, &found));
    size_t at = (size_t)found;
    three[0] = three[1] = three[2] = tti_value_string("", 0, false);
    if (found < 0) {
        three[last ? 2 : 0] = *s;
    } else {
        three[0] = tti_value_part(s, 0, at);
        three[1] = *separator;
        three[2] = tti_value_part(s, at + separator->n, s->n - at - separator->n);
    }
    *out = tti_value_items(TTI_TUPLE, three, 3);
    return TT_OK;
}

/* The part of s between two optional character positions; *from_out is where it begins, in
 * bytes. */
static tt_status limited(tti_run *r, const tti_call *call, int first, tti_value *part_out,
                         size_t *from_out)
{
    const tti_value *s = call->self;
    int64_t start, end, n = INT64_MAX;
    *from_out = 0;
    *part_out = *s;
    TT_TRY(tti_chat_count_bytes(r, call->line, s->n));
    if (!call->given[first] && !call->given[first + 1]) {
        return TT_OK;
    }
    n = (int64_t)tti_text_n_chars(s);
    TT_TRY(tti_call_integer(call, first, 0, &start));
    TT_TRY(tti_call_integer(call, first + 1, n, &end));
    start = start < -n ? 0 : start < 0 ? start + n : start;
    end = end < -n ? 0 : end < 0 ? end + n : end > n ? n : end;
    if (start > end || start > n) {
        *from_out = SIZE_MAX; /* nothing is found there, not even "" */
        return TT_OK;
    }
    size_t from = tti_text_offset(s, (size_t)start), to = tti_text_offset(s, (size_t)end);
    *part_out = tti_value_part(s, from, to - from);
    *from_out = from;
    return TT_OK;
}

enum { FIND_FIRST = 0, FIND_LAST = 1, FIND_OR_FAIL = 2 };

static tt_status str_find(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *wanted;
    tti_value part;
    size_t from;
    TT_TRY(tti_call_string(call, &call->arg[0], &wanted));
    TT_TRY(limited(r, call, 1, &part, &from));
    int64_t found = -1;
    if (from != SIZE_MAX) {
        TT_TRY(call->builtin->variant & FIND_LAST
                   ? tti_text_find_last(r, call->line, &part, wanted, &found)
                   : tti_text_find(r, call->line, &part, 0, wanted, &found));
    }
    TTI_CHAT_CHECK(found >= 0 || !(call->builtin->variant & FIND_OR_FAIL), call->line,
                   "a text is not found in a string");
    if (found >= 0) { /* in characters */
        tti_value before = tti_value_part(call->self, 0, from + (size_t)found);
        found = (int64_t)tti_text_n_chars(&before);
    }
    *out = tti_value_integer(found);
    return TT_OK;
}

static tt_status str_count(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *wanted;
    tti_value part;
    size_t from, at = 0;
    int64_t count = 0, found;
    TT_TRY(tti_call_string(call, &call->arg[0], &wanted));
    TT_TRY(limited(r, call, 1, &part, &from));
    if (wanted->n == 0 && from != SIZE_MAX) {
        count = (int64_t)tti_text_n_chars(&part) + 1;
    } else if (from != SIZE_MAX) {
        TT_TRY(tti_text_find(r, call->line, &part, 0, wanted, &found));
        while (found >= 0) {
            count++;
            at = (size_t)found + wanted->n;
            TT_TRY(tti_text_find(r, call->line, &part, at, wanted, &found));
        }
    }
    *out = tti_value_integer(count);
    return TT_OK;
}

static bool has_affix(const tti_value *s, const tti_value *affix, bool at_end)
{
    return affix->n <= s->n &&
           (affix->n == 0 || memcmp(s->as.string.text + (at_end ? s->n - affix->n : 0),
                                    affix->as.string.text, affix->n) == 0);
}

/* startswith, endswith: one affix, or any of a tuple's. */
static tt_status str_affix(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *affix = &call->arg[0], *one;
    bool at_end = call->builtin->variant != 0, truth = false;
    tti_value part;
    size_t from;
    TT_TRY(limited(r, call, 1, &part, &from));
    bool tuple = affix->kind == TTI_TUPLE;
    const tti_value *items = tuple ? affix->as.list.item : affix;
    for (size_t k = 0; k < (tuple ? affix->n : 1); k++) {
        TT_TRY(tti_call_string(call, &items[k], &one));
        truth = truth || (from != SIZE_MAX && has_affix(&part, one, at_end));
    }
    *out = tti_value_bool(truth);
    return TT_OK;
}

static tt_status str_remove(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *affix, *s = call->self;
    bool at_end = call->builtin->variant != 0;
    (void)r;
    TT_TRY(tti_call_string(call, &call->arg[0], &affix));
    *out = *s;
    if (has_affix(s, affix, at_end)) {
        *out = tti_value_part(s, at_end ? 0 : affix->n, s->n - affix->n);
    }
    return TT_OK;
}

static tt_status str_replace(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *from, *to;
    int64_t count;
    TT_TRY(tti_call_string(call, &call->arg[0], &from));
    TT_TRY(tti_call_string(call, &call->arg[1], &to));
    TT_TRY(tti_call_integer(call, 2, -1, &count));
    return tti_text_replace(r, call->line, call->self, from, to, count, out);
}

static tt_status str_join(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *items, *one;
    size_t n;
    tti_sink sink = {0};
    TT_TRY(tti_value_iterate(r, call->line, &call->arg[0], &items, &n));
    tt_status st = TT_OK;
    for (size_t k = 0; st == TT_OK && k < n; k++) {
        st = tti_call_string(call, &items[k], &one);
        if (st == TT_OK && k > 0) {
            st = tti_sink_value(r, call->line, &sink, call->self);
        }
        if (st == TT_OK) {
            st = tti_sink_value(r, call->line, &sink, one);
        }
    }
    if (st == TT_OK) {
        st = tti_sink_take(r, call->line, &sink, out);
    }
    tti_sink_fini(&sink);
    return st;
}

enum { CHAR_ALPHA, CHAR_DIGIT, CHAR_ALNUM, CHAR_SPACE, CHAR_ASCII };

static bool is_char(uint32_t c, int class)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    bool alpha = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    bool digit = category == UTF8PROC_CATEGORY_ND;
    switch (class) {
    case CHAR_ALPHA:
        return alpha;
    case CHAR_DIGIT:
        return digit;
    case CHAR_ALNUM:
        return alpha || tti_char_is_numeric(c);
    case CHAR_SPACE:
        return tti_char_is_blank(c);
    default:
        return c < 0x80;
    }
}

/* All characters are of a class; an empty string is of none but ASCII. */
static tt_status str_class(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *s = call->self;
    bool truth = s->n > 0 || call->builtin->variant == CHAR_ASCII;
    TT_TRY(tti_chat_count_bytes(r, call->line, s->n));
    for (size_t at = 0, length; truth && at < s->n; at += length) {
        truth = is_char(tti_utf8_decode(s->as.string.text + at, &length), call->builtin->variant);
    }
    *out = tti_value_bool(truth);
    return TT_OK;
}

/* islower, isupper: at least one cased character, and none of the other case. */
static tt_status str_is_case(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *s = call->self;
    bool upper = call->builtin->variant != 0, some = false, other = false;
    TT_TRY(tti_chat_count_bytes(r, call->line, s->n));
    for (size_t at = 0, length; at < s->n; at += length) {
        utf8proc_int32_t c = (utf8proc_int32_t)tti_utf8_decode(s->as.string.text + at, &length);
        bool is_upper = utf8proc_isupper(c), is_lower = utf8proc_islower(c);
        some = some || (upper ? is_upper : is_lower);
        other =
            other || (upper ? is_lower : is_upper) || utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
    }
    *out = tti_value_bool(some && !other);
    return TT_OK;
}

enum { PAD_LEFT_ALIGNED, PAD_RIGHT_ALIGNED, PAD_ZEROS };

static tt_status str_pad(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *s = call->self;
    tti_value fill = call->given[1]
                         ? call->arg[1]
                         : tti_value_word(call->builtin->variant == PAD_ZEROS ? "0" : " ");
    int64_t width, n = (int64_t)tti_text_n_chars(s);
    tti_value padding, sign = tti_value_part(s, 0, 0), rest = *s;
    TT_TRY(tti_call_integer(call, 0, 0, &width));
    TTI_CHAT_CHECK(fill.kind == TTI_STRING && tti_text_n_chars(&fill) == 1, call->line,
                   "%s fills with one character", call->builtin->name);
    TT_TRY(tti_text_repeat(r, call->line, &fill, width > n ? width - n : 0, &padding));
    if (call->builtin->variant == PAD_LEFT_ALIGNED) {
        return tti_text_join(r, call->line, s, &padding, out);
    }
    if (call->builtin->variant == PAD_ZEROS && s->n &&
        (s->as.string.text[0] == '-' || s->as.string.text[0] == '+')) {
        sign = tti_value_part(s, 0, 1);
        rest = tti_value_part(s, 1, s->n - 1);
    }
    TT_TRY(tti_text_join(r, call->line, &sign, &padding, &padding));
    return tti_text_join(r, call->line, &padding, &rest, out);
}

const tti_builtin tti_chat_string_methods[] = {
    {"upper", "", str_case, TTI_CASE_UPPER},
    {"lower", "", str_case, TTI_CASE_LOWER},
    {"swapcase", "", str_case, TTI_CASE_SWAP},
    {"capitalize", "", str_case, TTI_CASE_CAPITALIZE},
    {"title", "", str_case, TTI_CASE_TITLE},
    {"strip", "chars?", str_strip, 3},
    {"lstrip", "chars?", str_strip, 1},
    {"rstrip", "chars?", str_strip, 2},
    {"split", "sep? maxsplit?", str_split, 0},
    {"rsplit", "sep? maxsplit?", str_split, 1},
    {"splitlines", "keepends?", str_splitlines, 0},
    {"partition", "sep", str_partition, 0},
    {"rpartition", "sep", str_partition, 1},
    {"find", "sub start? end?", str_find, FIND_FIRST},
    {"rfind", "sub start? end?", str_find, FIND_LAST},
    {"index", "sub start? end?", str_find, FIND_FIRST | FIND_OR_FAIL},
    {"rindex", "sub start? end?", str_find, FIND_LAST | FIND_OR_FAIL},
    {"count", "sub start? end?", str_count, 0},
    {"startswith", "prefix start? end?", str_affix, 0},
    {"endswith", "suffix start? end?", str_affix, 1},
    {"removeprefix", "prefix", str_remove, 0},
    {"removesuffix", "suffix", str_remove, 1},
    {"replace", "old new count?", str_replace, 0},
    {"join", "iterable", str_join, 0},
    {"isalpha", "", str_class, CHAR_ALPHA},
    {"isdigit", "", str_class, CHAR_DIGIT},
    {"isdecimal", "", str_class, CHAR_DIGIT},
    {"isalnum", "", str_class, CHAR_ALNUM},
    {"isspace", "", str_class, CHAR_SPACE},
    {"isascii", "", str_class, CHAR_ASCII},
    {"islower", "", str_is_case, 0},
    {"isupper", "", str_is_case, 1},
    {"ljust", "width fillchar?", str_pad, PAD_LEFT_ALIGNED},
    {"rjust", "width fillchar?", str_pad, PAD_RIGHT_ALIGNED},
    {"zfill", "width", str_pad, PAD_ZEROS},
    {0},
};

/* ---- dicts ---- */
static tt_status dict_view(tti_run *r, const tti_call *call, tti_value *out)
{
    TT_TRY(tti_chat_count(r, call->line, call->self->as.dict->n));
    return tti_dict_view(r, call->self->as.dict, (char)call->builtin->variant, out);
}

static tt_status dict_get(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *found;
    TT_TRY(tti_dict_get(r, call->line, call->self->as.dict, &call->arg[0], &found));
    *out = found ? *found : call->given[1] ? call->arg[1] : tti_value_none();
    return TT_OK;
}

/* Values never change, so a copy is the value itself. */
static tt_status copy(tti_run *r, const tti_call *call, tti_value *out)
{
    (void)r;
    *out = *call->self;
    return TT_OK;
}

const tti_builtin tti_chat_dict_methods[] = {
    {"items", "", dict_view, 'i'},  {"keys", "", dict_view, 'k'},
    {"values", "", dict_view, 'v'}, {"get", "key default?", dict_get, 0},
    {"copy", "", copy, 0},          {0},
};

/* ---- lists ---- */
static tt_status list_index(tti_run *r, const tti_call *call, tti_value *out)
{
    int64_t count = 0;
    bool counting = call->builtin->variant != 0;
    for (size_t k = 0; k < call->self->n; k++) {
        bool equal;
        TT_TRY(tti_value_equal(r, call->line, &call->self->as.list.item[k], &call->arg[0], &equal));
        if (equal && !counting) {
            *out = tti_value_integer((int64_t)k);
            return TT_OK;
        }
        count += equal;
    }
    TTI_CHAT_CHECK(counting, call->line, "a value is not in a list");
    *out = tti_value_integer(count);
    return TT_OK;
}

const tti_builtin tti_chat_list_methods[] = {
    {"index", "value", list_index, 0},
    {"count", "value", list_index, 1},
    {"copy", "", copy, 0},
    {0},
};

/* ---- loops ---- */
static tt_status loop_cycle(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_args *args = call->args;
    (void)r;
    TTI_CHAT_CHECK(args->n > 0 && args->n_keywords == 0, call->line,
                   "loop.cycle needs values to choose from");
    *out = args->value[call->self->as.loop->round % args->n];
    return TT_OK;
}

static tt_status loop_changed(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_loop *loop = call->self->as.loop;
    tti_value *items;
    bool equal;
    TT_TRY(tti_value_array(r, call->args->n, &items));
    if (call->args->n) {
        memcpy(items, call->args->value, call->args->n * sizeof(*items));
    }
    tti_value now = tti_value_items(TTI_TUPLE, items, call->args->n);
    TT_TRY(tti_value_equal(r, call->line, &now, &loop->changed, &equal));
    loop->changed = now;
    *out = tti_value_bool(!equal);
    return TT_OK;
}

const tti_builtin tti_chat_loop_methods[] = {
    {"cycle", NULL, loop_cycle, 0},
    {"changed", NULL, loop_changed, 0},
    {0},
};
