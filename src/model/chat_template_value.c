/* chat_template_value.c - values of the chat template interpreter: the arena they live in, how
 * they compare, what they contain. They behave as Python's do, since templates are written for
 * those. */
#include "chat_template_internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 16 * 1024 };

/* ---- memory ---- */
struct tti_chat_block {
    tti_chat_block *before;
    size_t used, size; /* bytes of the data behind this header */
    max_align_t data[];
};

tt_status tti_chat_alloc(tti_chat_arena *arena, size_t bytes, void **out)
{
    tti_chat_block *block = arena->last;
    size_t align = sizeof(max_align_t);
    TT_CHECK(bytes <= arena->max_bytes, TT_ERR_REQUEST,
             "the chat template needs more than %zu bytes of memory", arena->max_bytes);
    bytes = (bytes + align - 1) / align * align;
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;
        TT_CHECK(size <= arena->max_bytes - arena->n_bytes, TT_ERR_REQUEST,
                 "the chat template needs more than %zu bytes of memory", arena->max_bytes);
        tti_chat_block *fresh = malloc(sizeof(*fresh) + size);
        TT_CHECK(fresh, TT_ERR_NOMEM, "out of memory for the chat template");
        *fresh = (tti_chat_block){.size = size};
        arena->n_bytes += size;
        if (block && size == bytes) {
            /* A big piece gets a block of its own behind the one that still has room. */
            fresh->before = block->before;
            block->before = fresh;
        } else {
            fresh->before = block;
            arena->last = fresh;
        }
        block = fresh;
    }
    void *data = (char *)block->data + block->used;
    block->used += bytes;
    memset(data, 0, bytes);
    *out = data;
    return TT_OK;
}

void tti_chat_arena_fini(tti_chat_arena *arena)
{
    while (arena->last) {
        tti_chat_block *before = arena->last->before;
        free(arena->last);
        arena->last = before;
    }
}

/* ---- errors and limits ---- */
tt_status tti_chat_fail(tt_status code, int line, const char *file, int source_line,
                        const char *format, ...)
{
    char reason[TT_STATUS_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    return tt_status_fail(code, file, source_line, "chat template, line %d: %s", line, reason);
}

int tti_chat_shown(size_t n)
{
    return n < TTI_CHAT_LINE_SHOWN ? (int)n : TTI_CHAT_LINE_SHOWN;
}

tt_status tti_chat_count(tti_run *r, int line, size_t n_steps)
{
    TTI_CHAT_CHECK(n_steps <= (size_t)(r->limits.max_steps - r->n_steps), line,
                   "it takes more than %lld steps", (long long)r->limits.max_steps);
    r->n_steps += (int64_t)n_steps;
    return TT_OK;
}

tt_status tti_chat_count_bytes(tti_run *r, int line, size_t n_bytes)
{
    enum { BYTES_PER_STEP = 16 };
    return tti_chat_count(r, line, n_bytes / BYTES_PER_STEP + 1);
}

tt_status tti_chat_enter(tti_run *r, int line)
{
    r->depth++; /* also when refused: the caller leaves in any case */
    TTI_CHAT_CHECK(r->depth <= r->limits.max_depth, line, "it runs nested deeper than %d",
                   r->limits.max_depth);
    return TT_OK;
}

void tti_chat_leave(tti_run *r)
{
    r->depth--;
}

/* ---- making values ---- */
bool tti_string_is(tti_string s, const char *word)
{
    return s.n == strlen(word) && memcmp(s.text, word, s.n) == 0;
}

tti_value tti_value_string(const char *text, size_t n, bool literal)
{
    return (tti_value){.kind = TTI_STRING, .literal = literal, .n = n, .as.string.text = text};
}

tti_value tti_value_word(const char *word)
{
    return tti_value_string(word, strlen(word), false);
}

tti_value tti_value_bool(bool truth)
{
    return (tti_value){.kind = TTI_BOOL, .as.truth = truth};
}

tti_value tti_value_integer(int64_t number)
{
    return (tti_value){.kind = TTI_INTEGER, .as.integer = number};
}

tti_value tti_value_real(double number)
{
    return (tti_value){.kind = TTI_REAL, .as.real = number};
}

tti_value tti_value_none(void)
{
    return (tti_value){.kind = TTI_NONE};
}

tti_value tti_value_undefined(tti_string name, const char *owner)
{
    return (tti_value){
        .kind = TTI_UNDEFINED, .n = name.n, .as.undefined = {.text = name.text, .owner = owner}};
}

tti_value tti_value_items(tti_kind kind, const tti_value *item, size_t n)
{
    return (tti_value){.kind = kind, .n = n, .as.list = {.item = item}};
}

tti_value tti_value_part(const tti_value *s, size_t start, size_t n)
{
    tti_value part = tti_value_string(s->as.string.text + start, n, s->literal);
    part.as.string.mark = s->as.string.mark ? s->as.string.mark + start : NULL;
    return part;
}

tt_status tti_value_array(tti_run *r, size_t n, tti_value **out)
{
    void *memory;
    TT_CHECK(n <= r->arena.max_bytes / sizeof(tti_value), TT_ERR_REQUEST,
             "the chat template needs a list of %zu items", n);
    TT_TRY(tti_chat_alloc(&r->arena, n * sizeof(tti_value), &memory));
    *out = memory;
    return TT_OK;
}

/* ---- asking values ---- */
const char *tti_value_type(const tti_value *v)
{
    static const char *const names[] = {
        [TTI_UNDEFINED] = "Undefined", [TTI_NONE] = "NoneType", [TTI_BOOL] = "bool",
        [TTI_INTEGER] = "int",         [TTI_REAL] = "float",    [TTI_STRING] = "str",
        [TTI_LIST] = "list",           [TTI_TUPLE] = "tuple",   [TTI_VIEW] = "view",
        [TTI_GENERATOR] = "generator", [TTI_DICT] = "dict",     [TTI_NAMESPACE] = "Namespace",
        [TTI_LOOP] = "loop",           [TTI_MACRO] = "Macro",   [TTI_METHOD] = "method",
        [TTI_FUNCTION] = "function",
    };
    return v->kind == TTI_VIEW ? v->as.list.label : names[v->kind];
}

bool tti_value_is_true(const tti_value *v)
{
    switch (v->kind) {
    case TTI_UNDEFINED:
    case TTI_NONE:
        return false;
    case TTI_BOOL:
        return v->as.truth;
    case TTI_INTEGER:
        return v->as.integer != 0;
    case TTI_REAL:
        return v->as.real != 0;
    case TTI_STRING:
    case TTI_LIST:
    case TTI_TUPLE:
    case TTI_VIEW:
        return v->n > 0;
    case TTI_DICT:
        return v->as.dict->n > 0;
    default:
        return true;
    }
}

bool tti_value_is_number(const tti_value *v)
{
    return v->kind == TTI_BOOL || v->kind == TTI_INTEGER || v->kind == TTI_REAL;
}

bool tti_value_is(const tti_value *v, const char *word)
{
    return v->kind == TTI_STRING && tti_string_is((tti_string){v->as.string.text, v->n}, word);
}

int64_t tti_value_to_integer(const tti_value *v)
{
    return v->kind == TTI_BOOL ? v->as.truth : v->as.integer;
}

double tti_value_to_real(const tti_value *v)
{
    return v->kind == TTI_REAL ? v->as.real : (double)tti_value_to_integer(v);
}

static bool is_sequence(const tti_value *v)
{
    return v->kind == TTI_LIST || v->kind == TTI_TUPLE || v->kind == TTI_VIEW;
}

tt_status tti_value_length(tti_run *r, int line, const tti_value *v, size_t *n_out)
{
    switch (v->kind) {
    case TTI_UNDEFINED:
        *n_out = 0;
        return TT_OK;
    case TTI_STRING:
        TT_TRY(tti_chat_count_bytes(r, line, v->n));
        *n_out = tti_text_n_chars(v);
        return TT_OK;
    case TTI_LIST:
    case TTI_TUPLE:
    case TTI_VIEW:
        *n_out = v->n;
        return TT_OK;
    case TTI_DICT:
        *n_out = v->as.dict->n;
        return TT_OK;
    case TTI_LOOP:
        *n_out = v->as.loop->n;
        return TT_OK;
    default:
        return TTI_CHAT_FAIL(TT_ERR_REQUEST, line, "a value of type %s has no length",
                             tti_value_type(v));
    }
}

tt_status tti_value_iterate(tti_run *r, int line, const tti_value *v, const tti_value **item_out,
                            size_t *n_out)
{
    tti_value list;
    *item_out = NULL;
    *n_out = 0;
    switch (v->kind) {
    case TTI_UNDEFINED:
        return TT_OK;
    case TTI_LIST:
    case TTI_TUPLE:
    case TTI_VIEW:
        *item_out = v->as.list.item;
        *n_out = v->n;
        return TT_OK;
    case TTI_GENERATOR:
        if (!v->as.generator->used) {
            *item_out = v->as.generator->item;
            *n_out = v->as.generator->n;
        }
        v->as.generator->used = true;
        return TT_OK;
    case TTI_DICT:
        TT_TRY(tti_dict_view(r, v->as.dict, 'k', &list));
        break;
    case TTI_STRING:
        TT_TRY(tti_text_chars(r, line, v, &list));
        break;
    default:
        return TTI_CHAT_FAIL(TT_ERR_REQUEST, line, "a value of type %s cannot be gone over",
                             tti_value_type(v));
    }
    *item_out = list.as.list.item;
    *n_out = list.n;
    return TT_OK;
}

/* ---- comparing ---- */
static int order_of(bool less, bool more)
{
    return less ? -1 : more ? 1 : 0;
}

static int order_numbers(const tti_value *a, const tti_value *b)
{
    if (a->kind != TTI_REAL && b->kind != TTI_REAL) {
        int64_t x = tti_value_to_integer(a), y = tti_value_to_integer(b);
        return order_of(x<y, x> y);
    }
    double x = tti_value_to_real(a), y = tti_value_to_real(b);
    return order_of(x<y, x> y);
}

static int order_strings(const tti_value *a, const tti_value *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int order = n ? memcmp(a->as.string.text, b->as.string.text, n) : 0;
    return order ? order_of(order<0, order> 0) : order_of(a->n<b->n, a->n> b->n);
}

static tt_status equal_items(tti_run *r, int line, const tti_value *a, const tti_value *b,
                             bool *out)
{
    *out = a->n == b->n;
    for (size_t k = 0; *out && k < a->n; k++) {
        TT_TRY(tti_value_equal(r, line, &a->as.list.item[k], &b->as.list.item[k], out));
    }
    return TT_OK;
}

static tt_status equal_dicts(tti_run *r, int line, const tti_dict *a, const tti_dict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t k = 0; *out && k < a->n; k++) {
        const tti_value *other;
        TT_TRY(tti_dict_get(r, line, b, &a->entry[k].key, &other));
        *out = other != NULL;
        if (other) {
            TT_TRY(tti_value_equal(r, line, &a->entry[k].value, other, out));
        }
    }
    return TT_OK;
}

static tt_status equal_nested(tti_run *r, int line, const tti_value *a, const tti_value *b,
                              bool *out)
{
    if (a->kind != b->kind) {
        return TT_OK;
    }
    switch (a->kind) {
    case TTI_UNDEFINED:
    case TTI_NONE:
        *out = true;
        return TT_OK;
    case TTI_LIST:
    case TTI_TUPLE:
    case TTI_VIEW:
        return equal_items(r, line, a, b, out);
    case TTI_DICT:
        return equal_dicts(r, line, a->as.dict, b->as.dict, out);
    case TTI_METHOD:
        *out = a->as.method == b->as.method;
        return TT_OK;
    default:
        *out = a->as.dict == b->as.dict; /* the same object */
        return TT_OK;
    }
}

tt_status tti_value_equal(tti_run *r, int line, const tti_value *a, const tti_value *b, bool *out)
{
    TT_TRY(tti_chat_count(r, line, 1));
    *out = false;
    if (tti_value_is_number(a) && tti_value_is_number(b)) {
        bool nan = isnan(tti_value_to_real(a)) || isnan(tti_value_to_real(b));
        *out = !nan && order_numbers(a, b) == 0;
        return TT_OK;
    }
    if (a->kind == TTI_STRING && b->kind == TTI_STRING) {
        TT_TRY(tti_chat_count_bytes(r, line, a->n == b->n ? a->n : 0));
        *out = a->n == b->n && order_strings(a, b) == 0;
        return TT_OK;
    }
    tt_status st = tti_chat_enter(r, line);
    if (st == TT_OK) {
        st = equal_nested(r, line, a, b, out);
    }
    tti_chat_leave(r);
    return st;
}

static tt_status order_lists(tti_run *r, int line, const tti_value *a, const tti_value *b, int *out)
{
    *out = 0;
    for (size_t k = 0; k < a->n && k < b->n; k++) {
        bool equal;
        TT_TRY(tti_value_equal(r, line, &a->as.list.item[k], &b->as.list.item[k], &equal));
        if (!equal) {
            return tti_value_order(r, line, &a->as.list.item[k], &b->as.list.item[k], out);
        }
    }
    *out = order_of(a->n<b->n, a->n> b->n);
    return TT_OK;
}

tt_status tti_value_order(tti_run *r, int line, const tti_value *a, const tti_value *b, int *out)
{
    TT_TRY(tti_chat_count(r, line, 1));
    if (tti_value_is_number(a) && tti_value_is_number(b)) {
        *out = order_numbers(a, b);
        return TT_OK;
    }
    if (a->kind == TTI_STRING && b->kind == TTI_STRING) {
        TT_TRY(tti_chat_count_bytes(r, line, a->n < b->n ? a->n : b->n));
        *out = order_strings(a, b);
        return TT_OK;
    }
    bool lists = a->kind == b->kind && (a->kind == TTI_LIST || a->kind == TTI_TUPLE);
    TTI_CHAT_CHECK(lists, line, "values of types %s and %s have no order", tti_value_type(a),
                   tti_value_type(b));
    tt_status st = tti_chat_enter(r, line);
    if (st == TT_OK) {
        st = order_lists(r, line, a, b, out);
    }
    tti_chat_leave(r);
    return st;
}

tt_status tti_value_contains(tti_run *r, int line, const tti_value *box, const tti_value *item,
                             bool *out)
{
    *out = false;
    if (box->kind == TTI_STRING) {
        TTI_CHAT_CHECK(item->kind == TTI_STRING, line,
                       "a value of type %s is looked for in a string", tti_value_type(item));
        int64_t found;
        TT_TRY(tti_text_find(r, line, box, 0, item, &found));
        *out = found >= 0;
        return TT_OK;
    }
    if (box->kind == TTI_DICT) {
        const tti_value *found;
        TT_TRY(tti_dict_get(r, line, box->as.dict, item, &found));
        *out = found != NULL;
        return TT_OK;
    }
    TTI_CHAT_CHECK(is_sequence(box) || box->kind == TTI_UNDEFINED || box->kind == TTI_GENERATOR,
                   line, "something is looked for in a value of type %s", tti_value_type(box));
    const tti_value *items;
    size_t n;
    TT_TRY(tti_value_iterate(r, line, box, &items, &n));
    for (size_t k = 0; k < n && !*out; k++) {
        TT_TRY(tti_value_equal(r, line, &items[k], item, out));
    }
    return TT_OK;
}

/* ---- dicts: a list of pairs, since those of conversations are small ---- */
tt_status tti_dict_create(tti_run *r, size_t capacity, tti_dict **out)
{
    void *memory;
    TT_CHECK(capacity <= r->arena.max_bytes / sizeof(tti_entry), TT_ERR_REQUEST,
             "the chat template needs a dict of %zu items", capacity);
    TT_TRY(tti_chat_alloc(&r->arena, sizeof(tti_dict), &memory));
    *out = memory;
    TT_TRY(tti_chat_alloc(&r->arena, capacity * sizeof(tti_entry), &memory));
    **out = (tti_dict){.entry = memory, .capacity = capacity};
    return TT_OK;
}

const tti_value *tti_dict_find(const tti_dict *dict, const char *key, size_t n)
{
    for (size_t k = 0; k < dict->n; k++) {
        const tti_value *own = &dict->entry[k].key;
        if (own->kind == TTI_STRING && own->n == n && memcmp(own->as.string.text, key, n) == 0) {
            return &dict->entry[k].value;
        }
    }
    return NULL;
}

tt_status tti_dict_get(tti_run *r, int line, const tti_dict *dict, const tti_value *key,
                       const tti_value **out)
{
    enum { ENTRIES_PER_STEP = 8 };
    *out = NULL;
    TT_TRY(tti_chat_count(r, line, dict->n / ENTRIES_PER_STEP + 1));
    if (key->kind == TTI_STRING) {
        *out = tti_dict_find(dict, key->as.string.text, key->n);
        return TT_OK;
    }
    TTI_CHAT_CHECK(key->kind != TTI_LIST && key->kind != TTI_DICT, line,
                   "a value of type %s cannot be a key", tti_value_type(key));
    for (size_t k = 0; k < dict->n && !*out; k++) {
        bool equal;
        TT_TRY(tti_value_equal(r, line, &dict->entry[k].key, key, &equal));
        *out = equal ? &dict->entry[k].value : NULL;
    }
    return TT_OK;
}

tt_status tti_dict_set(tti_run *r, int line, tti_dict *dict, const tti_value *key,
                       const tti_value *value)
{
    const tti_value *found;
    TT_TRY(tti_dict_get(r, line, dict, key, &found));
    if (found) {
        dict->entry[((const char *)found - (const char *)dict->entry) /
                    (ptrdiff_t)sizeof(tti_entry)]
            .value = *value;
        return TT_OK;
    }
    if (dict->n == dict->capacity) {
        void *memory;
        size_t capacity = dict->capacity ? 2 * dict->capacity : 8;
        TT_TRY(tti_chat_alloc(&r->arena, capacity * sizeof(tti_entry), &memory));
        if (dict->n) {
            memcpy(memory, dict->entry, dict->n * sizeof(tti_entry));
        }
        dict->entry = memory;
        dict->capacity = capacity;
    }
    dict->entry[dict->n++] = (tti_entry){*key, *value};
    return TT_OK;
}

tt_status tti_dict_view(tti_run *r, const tti_dict *dict, char what, tti_value *out)
{
    tti_value *items, *pairs = NULL;
    TT_TRY(tti_value_array(r, dict->n, &items));
    if (what == 'i') {
        TT_TRY(tti_value_array(r, 2 * dict->n, &pairs));
    }
    for (size_t k = 0; k < dict->n; k++) {
        if (pairs) {
            pairs[2 * k] = dict->entry[k].key;
            pairs[2 * k + 1] = dict->entry[k].value;
            items[k] = tti_value_items(TTI_TUPLE, pairs + 2 * k, 2);
        } else {
            items[k] = what == 'k' ? dict->entry[k].key : dict->entry[k].value;
        }
    }
    *out = tti_value_items(TTI_VIEW, items, dict->n);
    out->as.list.label = what == 'i' ? "dict_items" : what == 'k' ? "dict_keys" : "dict_values";
    return TT_OK;
}

/* ---- from JSON ---- */
static tt_status from_object(tti_run *r, const json_t *json, tti_value *out)
{
    tti_dict *dict;
    TT_TRY(tti_dict_create(r, json_object_size(json), &dict));
    *out = (tti_value){.kind = TTI_DICT, .as.dict = dict};
    /* The iterator does not change the object, though its type says it may. */
    json_t *object = (json_t *)(uintptr_t)json;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *key = json_object_iter_key(it);
        tti_entry *entry = &dict->entry[dict->n];
        entry->key = tti_value_string(key, strlen(key), true);
        TT_TRY(tti_value_from_json(r, json_object_iter_value(it), &entry->value));
        dict->n++; /* keys of JSON objects differ */
    }
    return TT_OK;
}

static tt_status from_array(tti_run *r, const json_t *json, tti_value *out)
{
    size_t n = json_array_size(json);
    tti_value *items;
    TT_TRY(tti_value_array(r, n, &items));
    for (size_t k = 0; k < n; k++) {
        TT_TRY(tti_value_from_json(r, json_array_get(json, k), &items[k]));
    }
    *out = tti_value_items(TTI_LIST, items, n);
    return TT_OK;
}

static tt_status from_container(tti_run *r, const json_t *json, tti_value *out)
{
    r->depth++;
    TT_CHECK(r->depth <= r->limits.max_depth, TT_ERR_REQUEST,
             "the conversation's JSON is nested deeper than %d", r->limits.max_depth);
    tt_status st = json_is_object(json) ? from_object(r, json, out) : from_array(r, json, out);
    r->depth--;
    return st;
}

tt_status tti_value_from_json(tti_run *r, const json_t *json, tti_value *out)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        return from_container(r, json, out);
    case JSON_STRING:
        *out = tti_value_string(json_string_value(json), json_string_length(json), true);
        return TT_OK;
    case JSON_INTEGER:
        *out = tti_value_integer(json_integer_value(json));
        return TT_OK;
    case JSON_REAL:
        *out = tti_value_real(json_real_value(json));
        return TT_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = tti_value_bool(json_is_true(json));
        return TT_OK;
    default:
        *out = tti_value_none();
        return TT_OK;
    }
}
