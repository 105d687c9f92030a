/* chat_template_sequences.c - filters of lists and dicts. Most give a generator, as in Jinja: it
 * is always true, has no length, and is used up by the first who goes over it. */
#include "chat_template_internal.h"

static tt_status make_generator(tti_run *r, const tti_value *item, size_t n, tti_value *out)
{
    void *memory;
    TT_TRY(tti_chat_alloc(&r->arena, sizeof(tti_generator), &memory));
    tti_generator *generator = memory;
    *generator = (tti_generator){.item = item, .n = n};
    *out = (tti_value){.kind = TTI_GENERATOR, .as.generator = generator};
    return TT_OK;
}

static tti_builtin_fn filter_choose, filter_map;

/* What is gone over, and fresh room for as many results. Choosing and mapping take none and other
 * false values for empty lists. */
static tt_status begin(tti_run *r, const tti_call *call, const tti_value **items_out, size_t *n_out,
                       tti_value **room_out)
{
    static const tti_value nothing = {.kind = TTI_UNDEFINED};
    bool lenient = call->builtin->fn == filter_choose || call->builtin->fn == filter_map;
    const tti_value *from = lenient && !tti_value_is_true(call->self) ? &nothing : call->self;
    TT_TRY(tti_value_iterate(r, call->line, from, items_out, n_out));
    TT_TRY(tti_chat_count(r, call->line, *n_out));
    return tti_value_array(r, *n_out, room_out);
}

static bool is_index(const tti_value *part)
{
    for (size_t i = 0; i < part->n; i++) {
        if (part->as.string.text[i] < '0' || part->as.string.text[i] > '9') {
            return false;
        }
    }
    return part->n > 0 && part->n < 10;
}

/* "a.b.0" of an item, each part as a subscript. */
static tt_status follow(tti_run *r, int line, const tti_value *item, const tti_value *path,
                        tti_value *out)
{
    *out = *item;
    if (path->kind != TTI_STRING) {
        return tti_chat_item(r, line, item, path, out);
    }
    for (size_t at = 0; at <= path->n;) {
        const char *text = path->as.string.text + at;
        const char *dot = at < path->n ? memchr(text, '.', path->n - at) : NULL;
        size_t n = dot ? (size_t)(dot - text) : path->n - at;
        tti_value part = tti_value_part(path, at, n), object = *out;
        if (is_index(&part)) {
            int64_t k = 0;
            for (size_t i = 0; i < n; i++) {
                k = 10 * k + (text[i] - '0');
            }
            part = tti_value_integer(k);
        }
        TT_TRY(tti_chat_item(r, line, &object, &part, out));
        at += n + 1;
    }
    return TT_OK;
}

/* ---- choosing and mapping ---- */
enum { CHOOSE_REJECT = 1, CHOOSE_BY_ATTRIBUTE = 2 };

/* select(test?, args..), selectattr(attribute, test?, args..) and their opposites. */
static tt_status filter_choose(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_args *args = call->args;
    bool reject = call->builtin->variant & CHOOSE_REJECT;
    size_t skip = call->builtin->variant & CHOOSE_BY_ATTRIBUTE ? 1 : 0, n, made = 0;
    const tti_value *items;
    tti_value *chosen, one, truth;
    TTI_CHAT_CHECK(args->n >= skip, call->line, "%s needs an attribute", call->builtin->name);
    const tti_value *test = args->n > skip ? &args->value[skip] : NULL;
    TTI_CHAT_CHECK(!test || test->kind == TTI_STRING, call->line, "%s takes the name of a test",
                   call->builtin->name);
    tti_args rest = {.value = test ? test + 1 : NULL, /* without arguments there is no array to
                                                       * point into */
                     .n = test ? args->n - skip - 1 : 0,
                     .keyword = args->keyword,
                     .n_keywords = args->n_keywords};
    TT_TRY(begin(r, call, &items, &n, &chosen));
    for (size_t k = 0; k < n; k++) {
        one = truth = items[k];
        if (skip) {
            TT_TRY(follow(r, call->line, &items[k], &args->value[0], &one));
            truth = one;
        }
        if (test) {
            tti_string name = {test->as.string.text, test->n};
            const tti_builtin *builtin;
            TT_TRY(tti_chat_need_test(call->line, name, &builtin));
            TT_TRY(tti_builtin_call(r, call->line, builtin, &one, &rest, &truth));
        }
        if (tti_value_is_true(&truth) != reject) {
            chosen[made++] = items[k];
        }
    }
    return make_generator(r, chosen, made, out);
}

/* map(attribute=..), map(filter, args..). */
static tt_status filter_map(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_args *args = call->args;
    const tti_value *items, *attribute = NULL, *fallback = NULL;
    tti_value *mapped;
    size_t n;
    for (size_t k = 0; k < args->n_keywords && args->n == 0; k++) {
        attribute =
            tti_value_is(&args->keyword[k].key, "attribute") ? &args->keyword[k].value : attribute;
        fallback =
            tti_value_is(&args->keyword[k].key, "default") ? &args->keyword[k].value : fallback;
    }
    bool named = args->n > 0 && args->value[0].kind == TTI_STRING;
    TTI_CHAT_CHECK(attribute || named, call->line, "map takes a filter's name or an attribute");
    TT_TRY(begin(r, call, &items, &n, &mapped));
    for (size_t k = 0; k < n; k++) {
        if (attribute) {
            TT_TRY(follow(r, call->line, &items[k], attribute, &mapped[k]));
            mapped[k] = mapped[k].kind == TTI_UNDEFINED && fallback ? *fallback : mapped[k];
            continue;
        }
        tti_string name = {args->value[0].as.string.text, args->value[0].n};
        tti_args rest = {.value = args->value + 1,
                         .n = args->n - 1,
                         .keyword = args->keyword,
                         .n_keywords = args->n_keywords};
        const tti_builtin *builtin;
        TT_TRY(tti_chat_need_filter(call->line, name, &builtin));
        TT_TRY(tti_builtin_call(r, call->line, builtin, &items[k], &rest, &mapped[k]));
    }
    return make_generator(r, mapped, n, out);
}

/* ---- one of many ---- */
static tt_status filter_end(tti_run *r, const tti_call *call, tti_value *out)
{
    bool last = call->builtin->variant != 0;
    const tti_value *items;
    size_t n;
    TTI_CHAT_CHECK(!last || call->self->kind != TTI_GENERATOR, call->line,
                   "last is asked of a generator; make a list of it");
    if (call->self->kind == TTI_GENERATOR) { /* takes one, leaves the rest */
        tti_generator *generator = call->self->as.generator;
        bool some = !generator->used && generator->n > 0;
        *out =
            some ? generator->item[0] : tti_value_undefined((tti_string){"first", 5}, "a list's");
        generator->item += some ? 1 : 0;
        generator->n -= some ? 1 : 0;
        return TT_OK;
    }
    TT_TRY(tti_value_iterate(r, call->line, call->self, &items, &n));
    tti_string name = {call->builtin->name, strlen(call->builtin->name)};
    *out = n ? items[last ? n - 1 : 0] : tti_value_undefined(name, "an empty list");
    return TT_OK;
}

/* ---- sorting ---- */
typedef struct sort_key {
    tti_value key; /* what is compared */
    tti_value item;
} sort_key;

static tt_status fold_case(tti_run *r, int line, bool case_sensitive, tti_value *v)
{
    if (case_sensitive || v->kind != TTI_STRING) {
        return TT_OK;
    }
    return tti_text_case(r, line, v, TTI_CASE_LOWER, v);
}

/* The key of an item by "a.b,c": one value, or a list if an attribute is named. */
static tt_status make_key(tti_run *r, int line, const tti_value *item, const tti_value *attribute,
                          bool case_sensitive, tti_value *out)
{
    *out = *item;
    if (!attribute || attribute->kind == TTI_NONE) {
        return fold_case(r, line, case_sensitive, out);
    }
    tti_value comma = tti_value_word(","), paths = tti_value_items(TTI_LIST, attribute, 1), *parts;
    if (attribute->kind == TTI_STRING) {
        TT_TRY(tti_text_split(r, line, attribute, &comma, -1, false, &paths));
    }
    TT_TRY(tti_value_array(r, paths.n, &parts));
    for (size_t k = 0; k < paths.n; k++) {
        TT_TRY(follow(r, line, item, &paths.as.list.item[k], &parts[k]));
        TT_TRY(fold_case(r, line, case_sensitive, &parts[k]));
    }
    *out = tti_value_items(TTI_LIST, parts, paths.n);
    return TT_OK;
}

static tt_status merge(tti_run *r, int line, const sort_key *from, sort_key *to, size_t middle,
                       size_t n, bool reverse)
{
    size_t i = 0, j = middle;
    for (size_t k = 0; k < n; k++) {
        int order = -1;
        if (i < middle && j < n) {
            /* Equal ones keep their order, also in reverse. */
            TT_TRY(tti_value_order(r, line, &from[i].key, &from[j].key, &order));
            order = reverse ? -order : order;
        }
        to[k] = i < middle && (j >= n || order <= 0) ? from[i++] : from[j++];
    }
    return TT_OK;
}

static tt_status merge_sort(tti_run *r, int line, sort_key *key, size_t n, bool reverse)
{
    void *memory;
    TT_TRY(tti_chat_alloc(&r->arena, n * sizeof(sort_key), &memory));
    sort_key *from = key, *to = memory;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t left = n - at;
            size_t both = left < 2 * width ? left : 2 * width, middle = left < width ? left : width;
            TT_TRY(merge(r, line, from + at, to + at, middle, both, reverse));
        }
        sort_key *other = from;
        from = to;
        to = other;
    }
    if (from != key && n) {
        memcpy(key, from, n * sizeof(*key));
    }
    return TT_OK;
}

typedef struct sort_how {
    const tti_value *attribute;
    bool reverse, case_sensitive;
} sort_how;

static tt_status sorted(tti_run *r, int line, const tti_value *items, size_t n, const sort_how *how,
                        tti_value *out)
{
    void *memory;
    tti_value *result;
    TT_CHECK(n <= r->arena.max_bytes / sizeof(sort_key), TT_ERR_REQUEST,
             "the chat template sorts %zu items", n);
    TT_TRY(tti_chat_alloc(&r->arena, n * sizeof(sort_key), &memory));
    TT_TRY(tti_value_array(r, n, &result));
    sort_key *key = memory;
    for (size_t k = 0; k < n; k++) {
        key[k].item = items[k];
        TT_TRY(make_key(r, line, &items[k], how->attribute, how->case_sensitive, &key[k].key));
    }
    TT_TRY(merge_sort(r, line, key, n, how->reverse));
    for (size_t k = 0; k < n; k++) {
        result[k] = key[k].item;
    }
    *out = tti_value_items(TTI_LIST, result, n);
    return TT_OK;
}

static bool is_given(const tti_call *call, int k)
{
    return call->given[k] && tti_value_is_true(&call->arg[k]);
}

static tt_status filter_sort(tti_run *r, const tti_call *call, tti_value *out)
{
    sort_how how = {.attribute = call->given[2] ? &call->arg[2] : NULL,
                    .reverse = is_given(call, 0),
                    .case_sensitive = is_given(call, 1)};
    const tti_value *items;
    size_t n;
    TT_TRY(tti_value_iterate(r, call->line, call->self, &items, &n));
    return sorted(r, call->line, items, n, &how, out);
}

static tt_status filter_dictsort(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value pairs, at = tti_value_integer(0);
    TTI_CHAT_CHECK(call->self->kind == TTI_DICT, call->line, "dictsort takes a dict, not a %s",
                   tti_value_type(call->self));
    if (call->given[1] && !tti_value_is(&call->arg[1], "key")) {
        TTI_CHAT_CHECK(tti_value_is(&call->arg[1], "value"), call->line,
                       "dictsort sorts by key or value");
        at = tti_value_integer(1);
    }
    sort_how how = {
        .attribute = &at, .reverse = is_given(call, 2), .case_sensitive = is_given(call, 0)};
    TT_TRY(tti_dict_view(r, call->self->as.dict, 'i', &pairs));
    return sorted(r, call->line, pairs.as.list.item, pairs.n, &how, out);
}

static tt_status filter_extreme(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *items, *attribute = call->given[1] ? &call->arg[1] : NULL;
    size_t n, best = 0;
    tti_value best_key = {0}, key;
    bool max = call->builtin->variant != 0;
    TT_TRY(tti_value_iterate(r, call->line, call->self, &items, &n));
    for (size_t k = 0; k < n; k++) {
        int order = 0;
        TT_TRY(make_key(r, call->line, &items[k], attribute, is_given(call, 0), &key));
        if (k > 0) {
            TT_TRY(tti_value_order(r, call->line, &key, &best_key, &order));
        }
        if (k == 0 || (max ? order > 0 : order < 0)) {
            best = k;
            best_key = key;
        }
    }
    tti_string name = {call->builtin->name, strlen(call->builtin->name)};
    *out = n ? items[best] : tti_value_undefined(name, "an empty list");
    return TT_OK;
}

static tt_status filter_unique(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *items, *attribute = call->given[1] ? &call->arg[1] : NULL;
    tti_value *unique, *keys, key;
    size_t n, made = 0;
    TT_TRY(begin(r, call, &items, &n, &unique));
    TT_TRY(tti_value_array(r, n, &keys));
    for (size_t k = 0; k < n; k++) {
        bool known = false;
        TT_TRY(make_key(r, call->line, &items[k], attribute, is_given(call, 0), &key));
        const tti_value *one = attribute && key.kind == TTI_LIST && key.n ? key.as.list.item : &key;
        TTI_CHAT_CHECK(one->kind != TTI_LIST && one->kind != TTI_DICT, call->line,
                       "unique takes values that can be keys, not a %s", tti_value_type(one));
        for (size_t i = 0; i < made && !known; i++) {
            TT_TRY(tti_value_equal(r, call->line, &keys[i], &key, &known));
        }
        if (!known) {
            keys[made] = key;
            unique[made++] = items[k];
        }
    }
    return make_generator(r, unique, made, out);
}

/* ---- whole lists ---- */
static tt_status filter_list(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *items;
    size_t n;
    TT_TRY(tti_value_iterate(r, call->line, call->self, &items, &n));
    *out = tti_value_items(TTI_LIST, items, n);
    return TT_OK;
}

static tt_status filter_reverse(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *items;
    tti_value *reversed;
    size_t n;
    if (call->self->kind == TTI_STRING) {
        int64_t count = (int64_t)tti_text_n_chars(call->self);
        return tti_text_slice(r, call->line, call->self, count - 1, -1, (size_t)count, out);
    }
    TT_TRY(begin(r, call, &items, &n, &reversed));
    for (size_t k = 0; k < n; k++) {
        reversed[k] = items[n - 1 - k];
    }
    return make_generator(r, reversed, n, out);
}

static tt_status filter_items(tti_run *r, const tti_call *call, tti_value *out)
{
    tti_value pairs = {0};
    if (call->self->kind != TTI_UNDEFINED) {
        TTI_CHAT_CHECK(call->self->kind == TTI_DICT, call->line, "items takes a dict, not a %s",
                       tti_value_type(call->self));
        TT_TRY(tti_dict_view(r, call->self->as.dict, 'i', &pairs));
    }
    return make_generator(r, pairs.as.list.item, pairs.n, out);
}

/* batch(size, fill?): rows of `size`. slice(count, fill?): `count` columns of about the same
 * size. Both as lists. */
static tt_status filter_group(tti_run *r, const tti_call *call, tti_value *out)
{
    bool batch = call->builtin->variant == 0;
    const tti_value *items,
        *fill = call->given[1] && call->arg[1].kind != TTI_NONE ? &call->arg[1] : NULL;
    tti_value *groups, *room;
    int64_t size;
    size_t n, at = 0;
    TT_TRY(tti_call_integer(call, 0, 0, &size));
    TT_TRY(tti_value_iterate(r, call->line, call->self, &items, &n));
    TTI_CHAT_CHECK(size > 0 && (uint64_t)size <= n + TTI_CHAT_LINE_SHOWN, call->line,
                   "%s has a size of %lld", call->builtin->name, (long long)size);
    size_t width = (size_t)size, count = batch ? (n + width - 1) / width : width;
    TT_TRY(tti_chat_count(r, call->line, count + n));
    TT_TRY(tti_value_array(r, count, &groups));
    for (size_t k = 0; k < count; k++) {
        size_t own =
            batch ? (n - at < width ? n - at : width) : n / width + (k < n % width ? 1 : 0);
        bool is_short = batch ? own < width : n % width != 0 && k >= n % width;
        TT_TRY(tti_value_array(r, batch ? width : own + 1, &room));
        for (size_t i = 0; i < own; i++) {
            room[i] = items[at++];
        }
        while (fill && is_short && own < (batch ? width : n / width + 1)) {
            room[own++] = *fill;
        }
        groups[k] = tti_value_items(TTI_LIST, room, own);
    }
    return make_generator(r, groups, count, out);
}

static tt_status filter_sum(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *items;
    tti_value sum = call->given[1] ? call->arg[1] : tti_value_integer(0), one;
    size_t n;
    TT_TRY(tti_value_iterate(r, call->line, call->self, &items, &n));
    for (size_t k = 0; k < n; k++) {
        one = items[k];
        if (call->given[0] && call->arg[0].kind != TTI_NONE) {
            TT_TRY(follow(r, call->line, &items[k], &call->arg[0], &one));
        }
        TT_TRY(tti_chat_arithmetic(r, call->line, TTI_OP_ADD, &sum, &one, &sum));
    }
    *out = sum;
    return TT_OK;
}

static tt_status filter_attr(tti_run *r, const tti_call *call, tti_value *out)
{
    const tti_value *name;
    TT_TRY(tti_call_string(call, &call->arg[0], &name));
    tti_string s = {name->as.string.text, name->n};
    if (call->self->kind == TTI_DICT) { /* its items are no attributes */
        *out = tti_value_undefined(s, "dict");
        return TT_OK;
    }
    return tti_chat_attribute(r, call->line, call->self, s, out);
}

const tti_builtin tti_chat_sequence_filters[] = {
    {"select", NULL, filter_choose, 0},
    {"reject", NULL, filter_choose, CHOOSE_REJECT},
    {"selectattr", NULL, filter_choose, CHOOSE_BY_ATTRIBUTE},
    {"rejectattr", NULL, filter_choose, CHOOSE_BY_ATTRIBUTE | CHOOSE_REJECT},
    {"map", NULL, filter_map, 0},
    {"first", "", filter_end, 0},
    {"last", "", filter_end, 1},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort, 0},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort, 0},
    {"min", "case_sensitive? attribute?", filter_extreme, 0},
    {"max", "case_sensitive? attribute?", filter_extreme, 1},
    {"unique", "case_sensitive? attribute?", filter_unique, 0},
    {"list", "", filter_list, 0},
    {"reverse", "", filter_reverse, 0},
    {"items", "", filter_items, 0},
    {"batch", "linecount fill_with?", filter_group, 0},
    {"slice", "slices fill_with?", filter_group, 1},
    {"sum", "attribute? start?", filter_sum, 0},
    {"attr", "name", filter_attr, 0},
    {0},
};
