/* tokenizer_normalize.c - the normaliser: a list of rewritings of one piece of text, each from
 * one buffer into the other.
 *
 * Unicode normal forms come from utf8proc, in three steps of which the middle one is ours:
 * utf8proc's own canonical ordering exchanges neighbours one by one, which takes quadratic time
 * on a long run of combining marks. */
#include "tokenizer_internal.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    COMBINING_CLASSES = 256,
    DECOMPOSED_MAX =
        32, /* code points one can become; the longest of Unicode, U+FDFA, becomes 18 */
    INSERTION_SORT_MAX =
        16, /* marks; real text has runs of 1 to 4, which counting would slow down */
    CAPITAL_I_WITH_DOT = 0x130 /* the one letter whose lower case is two characters */
};

tt_status tti_normalizer_add(const char *path, tti_normalizer *out, tti_normalize_kind kind,
                             tti_normalize_op **op_out)
{
    TT_CHECK(out->n_ops < TTI_STEPS_MAX, TT_ERR_UNSUPPORTED, "%s: more than %d normalizers", path,
             TTI_STEPS_MAX);
    void *array = out->op;
    tt_status st = tti_tokenizer_grow(&array, &out->capacity, out->n_ops + 1, sizeof(*out->op));
    out->op = array;
    TT_TRY(st);
    *op_out = &out->op[out->n_ops++];
    **op_out = (tti_normalize_op){.kind = kind};
    return TT_OK;
}

tt_status tti_normalizer_add_prepend(const char *path, tti_normalizer *out, const char *content)
{
    tti_normalize_op *op;
    TT_TRY(tti_normalizer_add(path, out, TTI_NORMALIZE_PREPEND, &op));
    return tti_tokenizer_keep(path, content, strlen(content), &op->content, &op->n_content);
}

tt_status tti_normalizer_add_replace(const char *path, tti_normalizer *out, const char *from,
                                     const char *to)
{
    tti_normalize_op *op;
    TT_TRY(tti_normalizer_add(path, out, TTI_NORMALIZE_REPLACE, &op));
    TT_TRY(tti_tokenizer_keep(path, to, strlen(to), &op->content, &op->n_content));
    return tti_pattern_from_string(from, strlen(from), &op->pattern);
}

static tt_status load_one(const char *path, const json_t *json, const char *type,
                          tti_normalizer *out)
{
    static const struct {
        const char *name;
        tti_normalize_kind kind;
    } known[] = {
        {"NFC", TTI_NORMALIZE_NFC},         {"NFD", TTI_NORMALIZE_NFD},
        {"NFKC", TTI_NORMALIZE_NFKC},       {"NFKD", TTI_NORMALIZE_NFKD},
        {"Prepend", TTI_NORMALIZE_PREPEND}, {"Replace", TTI_NORMALIZE_REPLACE},
        {"Strip", TTI_NORMALIZE_STRIP},     {"Lowercase", TTI_NORMALIZE_LOWERCASE},
    };
    enum { N_KNOWN = sizeof(known) / sizeof(known[0]) };
    size_t k = 0;
    while (k < N_KNOWN && strcmp(type, known[k].name) != 0) {
        k++;
    }
    TT_CHECK(k < N_KNOWN, TT_ERR_UNSUPPORTED, "%s: unknown normalizer \"%s\"", path, type);
    tti_normalize_op *op = NULL;
    TT_TRY(tti_normalizer_add(path, out, known[k].kind, &op));
    switch (op->kind) {
    case TTI_NORMALIZE_PREPEND:
        return tti_tokenizer_json_keep(path, json, "prepend", &op->content, &op->n_content);
    case TTI_NORMALIZE_REPLACE:
        TT_TRY(tti_tokenizer_json_keep(path, json, "content", &op->content, &op->n_content));
        return tti_pattern_load(path, json_object_get(json, "pattern"), &op->pattern);
    case TTI_NORMALIZE_STRIP:
        TT_TRY(tti_tokenizer_json_bool(path, json, "strip_left", true, &op->strip_left));
        return tti_tokenizer_json_bool(path, json, "strip_right", true, &op->strip_right);
    default:
        return TT_OK;
    }
}

static tt_status load_nested(const char *path, const json_t *json, unsigned depth,
                             tti_normalizer *out)
{
    const char *type;
    TT_TRY(tti_tokenizer_json_type(path, "normalizer", json, &type));
    if (strcmp(type, "Sequence") != 0) {
        return load_one(path, json, type, out);
    }
    const json_t *array;
    TT_TRY(tti_tokenizer_json_sequence(path, json, "normalizers", depth, &array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        TT_TRY(load_nested(path, json_array_get(array, i), depth + 1, out));
    }
    return TT_OK;
}

tt_status tti_normalizer_load(const char *path, const json_t *json, tti_normalizer *out)
{
    if (!json || json_is_null(json)) {
        return TT_OK;
    }
    return load_nested(path, json, 0, out);
}

void tti_normalizer_fini(tti_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->n_ops; i++) {
        free(normalizer->op[i].content);
        tti_pattern_fini(&normalizer->op[i].pattern);
    }
    free(normalizer->op);
    *normalizer = (tti_normalizer){0};
}

static bool is_ascii(const char *text, size_t n)
{
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++) {
        all |= (unsigned char)text[i];
    }
    return all < 0x80;
}

static unsigned combining_class(utf8proc_int32_t c)
{
    return (unsigned)utf8proc_get_property(c)->combining_class;
}

/* Sorts the marks c[n] by combining class, keeping the order of equals. spare[n] is room. */
static void order_marks(utf8proc_int32_t *c, utf8proc_int32_t *spare, size_t n)
{
    if (n <= INSERTION_SORT_MAX) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t mark = c[i];
            size_t k = i;
            for (; k > 0 && combining_class(c[k - 1]) > combining_class(mark); k--) {
                c[k] = c[k - 1];
            }
            c[k] = mark;
        }
        return;
    }
    size_t start[COMBINING_CLASSES + 1] = {0};
    for (size_t i = 0; i < n; i++) {
        start[(combining_class(c[i]) & (COMBINING_CLASSES - 1)) + 1]++;
    }
    for (size_t k = 1; k <= COMBINING_CLASSES; k++) {
        start[k] += start[k - 1];
    }
    for (size_t i = 0; i < n; i++) {
        spare[start[combining_class(c[i]) & (COMBINING_CLASSES - 1)]++] = c[i];
    }
    memcpy(c, spare, n * sizeof(*c));
}

/* Code points; owned, given back with free(c). */
typedef struct points {
    utf8proc_int32_t *c; /* c[n] */
    size_t n, capacity;
} points;

static tt_status decompose(const char *text, size_t n, bool compat, points *p)
{
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    for (size_t i = 0; i < n;) {
        void *array = p->c;
        tt_status st =
            tti_tokenizer_grow(&array, &p->capacity, p->n + DECOMPOSED_MAX, sizeof(*p->c));
        p->c = array;
        TT_TRY(st);
        size_t length;
        uint32_t point = tti_utf8_decode(text + i, &length);
        int boundary = 0;
        utf8proc_ssize_t got =
            utf8proc_decompose_char((utf8proc_int32_t)point, p->c + p->n, DECOMPOSED_MAX,
                                    (utf8proc_option_t)options, &boundary);
        TT_CHECK(got >= 0 && got <= DECOMPOSED_MAX, TT_ERR_REQUEST,
                 "U+%04X cannot be normalised: %s", (unsigned)point, utf8proc_errmsg(got));
        p->n += (size_t)got;
        i += length;
    }
    return TT_OK;
}

/* Puts the marks behind each letter in order. */
static tt_status order_all(const points *p)
{
    void *array = NULL;
    size_t capacity = 0;
    TT_TRY(tti_tokenizer_grow(&array, &capacity, p->n + 1, sizeof(*p->c)));
    for (size_t i = 0; i < p->n;) {
        size_t end = i;
        while (end < p->n && combining_class(p->c[end]) != 0) {
            end++;
        }
        order_marks(p->c + i, array, end - i);
        i = end + 1;
    }
    free(array);
    return TT_OK;
}

static tt_status compose_all(points *p)
{
    utf8proc_ssize_t left =
        p->n == 0
            ? 0
            : utf8proc_normalize_utf32(p->c, (utf8proc_ssize_t)p->n,
                                       (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    TT_CHECK(left >= 0, TT_ERR_REQUEST, "a text cannot be normalised: %s", utf8proc_errmsg(left));
    p->n = (size_t)left;
    return TT_OK;
}

static tt_status append_all(const points *p, tt_text *out)
{
    for (size_t i = 0; i < p->n; i++) {
        char bytes[TTI_UTF8_MAX];
        TT_TRY(tt_text_append(out, bytes, tti_utf8_encode((uint32_t)p->c[i], bytes)));
    }
    return TT_OK;
}

static tt_status normal_form(tti_normalize_kind kind, const char *text, size_t n, tt_text *out)
{
    points p = {0};
    tt_status st = decompose(text, n, kind == TTI_NORMALIZE_NFKC || kind == TTI_NORMALIZE_NFKD, &p);
    if (st == TT_OK) {
        st = order_all(&p);
    }
    if (st == TT_OK && (kind == TTI_NORMALIZE_NFC || kind == TTI_NORMALIZE_NFKC)) {
        st = compose_all(&p);
    }
    if (st == TT_OK) {
        st = append_all(&p, out);
    }
    free(p.c);
    return st;
}

static tt_status replace(const tti_normalize_op *op, tti_regex_work *regex, tti_growth *growth,
                         size_t step, tti_span text, tt_text *out)
{
    tti_pattern_walk walk = {.text = text.bytes, .n = text.n};
    size_t done = 0;
    for (;;) {
        bool found;
        TT_TRY(tti_pattern_next(&op->pattern, regex, &walk, &found));
        if (!found) {
            break;
        }
        TT_TRY(tti_growth_use(growth, step, walk.start - done + op->n_content));
        TT_TRY(tt_text_append(out, text.bytes + done, walk.start - done));
        TT_TRY(tt_text_append(out, op->content, op->n_content));
        done = walk.end;
    }
    TT_TRY(tti_growth_use(growth, step, text.n - done));
    return tt_text_append(out, text.bytes + done, text.n - done);
}

static tt_status lowercase(const char *text, size_t n, tt_text *out)
{
    for (size_t i = 0; i < n;) {
        size_t length;
        uint32_t c = tti_utf8_decode(text + i, &length);
        i += length;
        if (c == CAPITAL_I_WITH_DOT) {
            TT_TRY(tt_text_append(out, "i\xcc\x87", 3));
            continue;
        }
        char bytes[TTI_UTF8_MAX];
        size_t made = tti_utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), bytes);
        TT_TRY(tt_text_append(out, bytes, made));
    }
    return TT_OK;
}

/* Cuts spaces off either end of text[*n_io]; returns the new start. */
static const char *strip(const tti_normalize_op *op, const char *text, size_t *n_io)
{
    size_t start = 0, end = *n_io, length;
    while (op->strip_left && start < end &&
           tti_char_is_space(tti_utf8_decode(text + start, &length))) {
        start += length;
    }
    while (op->strip_right && end > start) {
        size_t last = end - 1;
        while (((unsigned char)text[last] & 0xc0) == 0x80) {
            last--;
        }
        if (!tti_char_is_space(tti_utf8_decode(text + last, &length))) {
            break;
        }
        end = last;
    }
    *n_io = end - start;
    return text + start;
}

tt_status tti_normalizer_exec(const tti_normalizer *normalizer, tti_regex_work *regex,
                              tt_text buffer[2], const char **text_io, size_t *n_io)
{
    const char *text = *text_io;
    size_t n = *n_io;
    tti_growth growth;
    tti_growth_start(&growth, n);
    unsigned next = 0; /* the buffer that text does not lie in */
    for (size_t i = 0; i < normalizer->n_ops; i++) {
        const tti_normalize_op *op = &normalizer->op[i];
        tt_text *out = &buffer[next];
        out->n = 0;
        TT_TRY(tt_text_append(out, "", 0));
        switch (op->kind) {
        case TTI_NORMALIZE_NFC:
        case TTI_NORMALIZE_NFD:
        case TTI_NORMALIZE_NFKC:
        case TTI_NORMALIZE_NFKD:
            if (is_ascii(text, n)) {
                continue;
            }
            TT_TRY(normal_form(op->kind, text, n, out));
            TT_TRY(tti_growth_use(&growth, i, out->n));
            break;
        case TTI_NORMALIZE_PREPEND:
            if (n == 0) {
                continue;
            }
            TT_TRY(tti_growth_use(&growth, i, op->n_content + n));
            TT_TRY(tt_text_append(out, op->content, op->n_content));
            TT_TRY(tt_text_append(out, text, n));
            break;
        case TTI_NORMALIZE_REPLACE:
            TT_TRY(replace(op, regex, &growth, i, (tti_span){text, n}, out));
            break;
        case TTI_NORMALIZE_STRIP:
            text = strip(op, text, &n);
            continue;
        case TTI_NORMALIZE_LOWERCASE:
            TT_TRY(lowercase(text, n, out));
            TT_TRY(tti_growth_use(&growth, i, out->n));
            break;
        }
        text = out->bytes;
        n = out->n;
        next = 1 - next;
    }
    *text_io = text;
    *n_io = n;
    return TT_OK;
}
