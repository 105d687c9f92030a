/* tokenizer_scan.c - a quick way through the two big members of a tokenizer.json, model.vocab and
 * model.merges.
 *
 * A vocabulary of 200,000 tokens brings over a million JSON values, most of them pairs of merges.
 * As a tree of a JSON library that costs more than a second and hundreds of megabytes, before the
 * first token is entered. Both members have one flat shape, so they are read here straight into
 * tti_bpe and cut out of the text; the JSON library reads the rest.
 *
 * This is no second JSON reader that could disagree with the first: only the plain shape is
 * taken, checked in full. Whatever is out of the ordinary (another shape, a doubled key, an odd
 * escape, broken text) is left to the JSON library with the whole file, which also has the better
 * messages. */
#include "tokenizer_internal.h"
#include <stdlib.h>
#include <string.h>

/* Reads forward over text[n]; `plain` turns false at the first thing out of the ordinary, and
 * then nothing else counts. */
typedef struct scan {
    const char *text; /* text[n] */
    size_t n, at;
    bool plain;
} scan;

typedef struct span {
    size_t start, end; /* start == end: not found */
} span;

static void skip_space(scan *s)
{
    while (s->at < s->n && (s->text[s->at] == ' ' || s->text[s->at] == '\n' ||
                            s->text[s->at] == '\t' || s->text[s->at] == '\r')) {
        s->at++;
    }
}

/* The next character after white space; 0 at the end. */
static char peek(scan *s)
{
    skip_space(s);
    return s->at < s->n ? s->text[s->at] : 0;
}

static bool accept(scan *s, char c)
{
    bool here = s->plain && peek(s) == c;
    s->at += here;
    return here;
}

static void expect(scan *s, char c)
{
    s->plain = accept(s, c);
}

/* Goes behind a string without looking into it. */
static void skip_string(scan *s)
{
    expect(s, '"');
    while (s->plain && s->at < s->n && s->text[s->at] != '"') {
        s->at += s->text[s->at] == '\\' ? 2 : 1;
    }
    s->plain = s->plain && s->at < s->n;
    s->at++;
}

/* Goes behind any value; brackets are only counted, since the JSON library will read it again. */
static void skip_value(scan *s)
{
    size_t depth = 0;
    do {
        char c = peek(s);
        if (c == '"') {
            skip_string(s);
            continue;
        }
        if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            s->plain = s->plain && depth > 0;
            depth -= depth > 0;
        } else if (c == 0) {
            s->plain = false;
        } else if (depth == 0) {
            while (s->at < s->n && !strchr(",]} \n\t\r", s->text[s->at])) {
                s->at++;
            }
            continue;
        }
        s->at++;
    } while (s->plain && depth > 0);
}

/* Walks over the members of the object here and notes where the values of the wanted keys lie. */
static void find_members(scan *s, size_t n_keys, const char *const *keys, span *found)
{
    expect(s, '{');
    bool more = s->plain && peek(s) != '}';
    while (s->plain && more) {
        skip_space(s);
        size_t key = s->at;
        skip_string(s);
        size_t key_end = s->at;
        expect(s, ':');
        skip_space(s);
        size_t start = s->at;
        skip_value(s);
        for (size_t k = 0; k < n_keys && s->plain; k++) {
            size_t length = strlen(keys[k]);
            if (key_end - key == length + 2 && memcmp(s->text + key + 1, keys[k], length) == 0) {
                s->plain = found[k].end == 0;
                found[k] = (span){start, s->at};
            }
        }
        more = accept(s, ',');
    }
    expect(s, '}');
}

static int hex_value(const char *digits, size_t n)
{
    enum { DIGIT_BITS = 4 };
    int value = 0;
    for (size_t i = 0; i < n; i++) {
        char c = digits[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            return -1;
        }
        value = value << DIGIT_BITS | digit;
    }
    return value;
}

/* An escape at text[at] = '\\'. \u of a surrogate or of NUL is out of the ordinary. */
static tt_status read_escape(scan *s, tt_text *out)
{
    enum { U_DIGITS = 4, U_BYTES = 2 + U_DIGITS };
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = s->n - s->at >= 2 ? s->text[s->at + 1] : 0;
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        s->at += 2;
        return tt_text_append(out, &to[known - from], 1);
    }
    int point = c == 'u' && s->n - s->at >= U_BYTES ? hex_value(s->text + s->at + 2, U_DIGITS) : -1;
    if (point <= 0 || (point >= 0xd800 && point <= 0xdfff)) {
        s->plain = false;
        return TT_OK;
    }
    char bytes[TTI_UTF8_MAX];
    s->at += U_BYTES;
    return tt_text_append(out, bytes, tti_utf8_encode((uint32_t)point, bytes));
}

static tt_status read_string(scan *s, tt_text *out)
{
    out->n = 0;
    expect(s, '"');
    while (s->plain) {
        size_t start = s->at;
        while (s->at < s->n && s->text[s->at] != '"' && s->text[s->at] != '\\' &&
               (unsigned char)s->text[s->at] >= ' ') {
            s->at++;
        }
        TT_TRY(tt_text_append(out, s->text + start, s->at - start));
        char c = s->at < s->n ? s->text[s->at] : 0;
        if (c == '"') {
            s->at++;
            s->plain = tti_utf8_valid_prefix(out->bytes, out->n) == out->n;
            return TT_OK;
        }
        if (c != '\\') {
            s->plain = false;
            return TT_OK;
        }
        TT_TRY(read_escape(s, out));
    }
    return TT_OK;
}

static int64_t read_integer(scan *s)
{
    enum { DIGITS_MAX = 12, BASE = 10 }; /* any id has fewer */
    int64_t value = 0;
    skip_space(s);
    size_t start = s->at;
    while (s->at < s->n && s->text[s->at] >= '0' && s->text[s->at] <= '9' &&
           s->at - start <= DIGITS_MAX) {
        value = value * BASE + (s->text[s->at++] - '0');
    }
    size_t n_digits = s->at - start;
    char next = s->at < s->n ? s->text[s->at] : 0;
    bool leads_with_zero = n_digits > 1 && s->text[start] == '0';
    s->plain = s->plain && n_digits > 0 && n_digits <= DIGITS_MAX && !leads_with_zero && next &&
               strchr(",} \n\t\r", next);
    return value;
}

static tt_status read_vocabulary(const char *path, scan *s, tti_bpe *bpe, tt_text *key)
{
    expect(s, '{');
    bool more = s->plain && peek(s) != '}';
    while (more) {
        TT_TRY(read_string(s, key));
        expect(s, ':');
        int64_t id = read_integer(s);
        if (!s->plain) {
            return TT_OK;
        }
        TT_TRY(tti_bpe_add_token(path, bpe, key->bytes, key->n, id));
        more = accept(s, ',');
    }
    expect(s, '}');
    return TT_OK;
}

/* Reads the merges into bpe, or only counts them if bpe is NULL. */
static tt_status read_merges(const char *path, scan *s, tti_bpe *bpe, tt_text part[2],
                             size_t *n_out)
{
    expect(s, '[');
    *n_out = 0;
    bool more = s->plain && peek(s) != ']';
    while (more) {
        const char *left, *right;
        size_t n_left, n_right;
        if (peek(s) == '"') {
            TT_TRY(read_string(s, &part[0]));
            left = part[0].bytes;
            const char *space = s->plain ? memchr(left, ' ', part[0].n) : NULL;
            if (!space || memchr(space + 1, ' ', part[0].n - (size_t)(space - left) - 1)) {
                s->plain = false;
                return TT_OK;
            }
            n_left = (size_t)(space - left);
            right = space + 1;
            n_right = part[0].n - n_left - 1;
        } else {
            expect(s, '[');
            TT_TRY(read_string(s, &part[0]));
            expect(s, ',');
            TT_TRY(read_string(s, &part[1]));
            expect(s, ']');
            left = part[0].bytes;
            n_left = part[0].n;
            right = part[1].bytes;
            n_right = part[1].n;
        }
        if (!s->plain) {
            return TT_OK;
        }
        if (bpe) {
            TT_TRY(tti_bpe_add_merge(path, bpe, left, n_left, right, n_right));
        }
        (*n_out)++;
        more = accept(s, ',');
    }
    expect(s, ']');
    return TT_OK;
}

/* The scan of one span of s. */
static scan part_of(const scan *s, span part)
{
    return (scan){.text = s->text, .n = part.end, .at = part.start, .plain = true};
}

static tt_status read_both(const char *path, scan *s, span vocabulary, span merges, tti_bpe *bpe)
{
    tt_text part[2] = {{0}};
    size_t n_merges = 0;
    scan counting = part_of(s, merges), reading = part_of(s, vocabulary);
    /* The counting pass also shows whether the merges are plain, before anything is entered. */
    tt_status st = read_merges(path, &counting, NULL, part, &n_merges);
    s->plain = counting.plain && counting.at == merges.end;
    if (st == TT_OK && s->plain) {
        st = read_vocabulary(path, &reading, bpe, &part[0]);
        s->plain = reading.plain && reading.at == vocabulary.end;
    }
    if (st == TT_OK && s->plain) {
        st = tti_bpe_index(path, bpe);
    }
    if (st == TT_OK && s->plain) {
        st = tti_bpe_reserve_merges(bpe, n_merges);
    }
    if (st == TT_OK && s->plain) {
        reading = part_of(s, merges);
        st = read_merges(path, &reading, bpe, part, &n_merges);
    }
    tt_text_fini(&part[0]);
    tt_text_fini(&part[1]);
    return st;
}

/* Leaves {} and [] where the two members were. */
static void cut(char *text, size_t *n_io, span a, span b)
{
    span first = a.start < b.start ? a : b, second = a.start < b.start ? b : a;
    size_t n = first.start + 1, between = second.start - first.end;
    text[n++] = text[first.end - 1];
    memmove(text + n, text + first.end, between + 1);
    n += between + 1;
    text[n++] = text[second.end - 1];
    memmove(text + n, text + second.end, *n_io - second.end + 1);
    *n_io = n + *n_io - second.end;
}

tt_status tti_tokenizer_scan(const char *path, char *text, size_t *n_io, tti_bpe *bpe,
                             bool *taken_out)
{
    static const char *const root_keys[] = {"model"}, *const model_keys[] = {"vocab", "merges"};
    span model = {0}, member[2] = {{0}};
    scan s = {.text = text, .n = *n_io, .plain = true};
    *taken_out = false;
    find_members(&s, 1, root_keys, &model);
    if (!s.plain || model.end == 0) {
        return TT_OK;
    }
    s = part_of(&s, model);
    s.n = model.end;
    find_members(&s, 2, model_keys, member);
    if (!s.plain || member[0].end == 0 || member[1].end == 0) {
        return TT_OK;
    }
    tt_status st = read_both(path, &s, member[0], member[1], bpe);
    if (st != TT_OK || !s.plain) {
        tti_bpe_fini(bpe);
        return st;
    }
    cut(text, n_io, member[0], member[1]);
    *taken_out = true;
    return TT_OK;
}
