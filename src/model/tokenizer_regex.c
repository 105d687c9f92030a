/* tokenizer_regex.c - the patterns of tokenizer.json, which are written for Oniguruma (Ruby
 * syntax), run by PCRE2.
 *
 * The two dialects read the same text differently in a few places; compiling translates those
 * (\s, \w, \h, \u, \p{Script}, `{1,3}+`, `{,n}`, `[a&&[b]]`) and refuses by name what has no plain
 * equal (other nested classes, dot-all groups). `$` and `^` hold at every line in Ruby, hence
 * PCRE2_MULTILINE.
 *
 * Texts come from users, so each match has limits: on steps (linear in the text, since every
 * pattern of a released tokenizer backtracks at most once over a run per alternative), on depth
 * and on heap. PCRE2 10.30 and later keeps its state on the heap, never on the C stack, and its
 * JIT code uses the stack given here. */
#include "tokenizer_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    JIT_STACK_START_BYTES = 32 * 1024,
    JIT_STACK_MAX_BYTES =
        1024 * 1024, /* beyond it the interpreter takes over, under HEAP_LIMIT_KIB */
    HEAP_LIMIT_KIB = 64 * 1024,
    DEPTH_LIMIT = 1000 * 1000,
    MATCH_LIMIT_BASE = 1000 * 1000, /* steps allowed for a short text */
    MATCH_LIMIT_PER_BYTE =
        64 /* more steps per byte: a dozen alternatives that each go over a run twice */
};

/* Inside a class: Unicode White_Space, which is Oniguruma's \s (PCRE2's own adds U+180E), and all
 * others. */
#define SPACE_RANGES                                                                               \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NOT_SPACE_RANGES                                                                           \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{"     \
    "1fff}"                                                                                        \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"   \
    "10ffff}"
/* Oniguruma's \w: Alphabetic, M, Nd, Pc. */
#define WORD_RANGES                                                                                \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{"     \
    "1f169}"                                                                                       \
    "\\x{1f170}-\\x{1f189}"
#define HEX_RANGES "0-9A-Fa-f"

/* `\s+$` alone would be tried again at each space of a run that does not end a line: quadratic. A
 * run that fails from its start fails from each of its spaces, so only the start of the search
 * and the start of a run need a trial. */
#define SPACES_AT_LINE_END "\\s+$"
#define SPACES_AT_LINE_END_FAST "(?:\\G|(?<![" SPACE_RANGES "]))[" SPACE_RANGES "]+$"

enum {
    /* Classes within classes; no released pattern has more than one. Bounds recursion. */
    CLASS_DEPTH_MAX = 4,
    NAME_BYTES = 64 /* of a property; the longest script has 23 */
};

/* All general categories; each character is in exactly one. */
static const char categories[][3] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                     "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                     "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
enum { N_CATEGORIES = sizeof(categories) / sizeof(categories[0]) };

static tt_status append(tt_text *out, const char *s)
{
    return tt_text_append(out, s, strlen(s));
}

/* How much of a pattern a message shows. */
static int shown(size_t n)
{
    enum { SHOWN_BYTES = 256 };
    return n < SHOWN_BYTES ? (int)n : SHOWN_BYTES;
}

/* Does PCRE2 know sc:NAME? From 10.40 on \p{NAME} of a script means its extensions too. */
static bool is_script(const char *name, size_t n)
{
    char test[NAME_BYTES + 16];
    int code;
    PCRE2_SIZE at;
    int length = snprintf(test, sizeof(test), "\\p{sc:%.*s}", (int)n, name);
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)test, (PCRE2_SIZE)length, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(compiled);
    return compiled != NULL;
}

/* A property at p[0] = '\\', p[1] = 'p' or 'P'. *used_out 0: it is no script, both read it
 * alike. */
static tt_status translate_property(const char *p, size_t n, tt_text *out, size_t *used_out)
{
    enum { CATEGORY_BYTES = 2 }; /* names of general categories have one or two letters */
    *used_out = 0;
    if (n < 3 || p[2] != '{') {
        return TT_OK;
    }
    const char *end = memchr(p + 3, '}', n - 3);
    const char *name = p + 3;
    bool is_negated = end && name < end && *name == '^';
    name += is_negated;
    if (!end || end - name <= CATEGORY_BYTES || end - name >= NAME_BYTES ||
        !is_script(name, (size_t)(end - name))) {
        return TT_OK;
    }
    *used_out = (size_t)(end + 1 - p);
    TT_TRY(tt_text_append(out, p, 3));
    TT_TRY(append(out, is_negated ? "^sc:" : "sc:"));
    return tt_text_append(out, name, (size_t)(end + 1 - name));
}

/* One escape at p[0] = '\\', n >= 2. *used_out: bytes of the pattern it took. */
static tt_status translate_escape(const char *path, const char *p, size_t n, bool in_class,
                                  tt_text *out, size_t *used_out)
{
    enum { U_DIGITS = 4, U_BYTES = 2 + U_DIGITS };
    if (p[1] == 'p' || p[1] == 'P') {
        TT_TRY(translate_property(p, n, out, used_out));
        if (*used_out > 0) {
            return TT_OK;
        }
    }
    *used_out = 2;
    switch (p[1]) {
    case 's':
        return append(out, in_class ? SPACE_RANGES : "[" SPACE_RANGES "]");
    case 'S':
        return append(out, in_class ? NOT_SPACE_RANGES : "[^" SPACE_RANGES "]");
    case 'w':
        return append(out, in_class ? WORD_RANGES : "[" WORD_RANGES "]");
    case 'h':
        return append(out, in_class ? HEX_RANGES : "[" HEX_RANGES "]");
    case 'W':
        TT_CHECK(!in_class, TT_ERR_UNSUPPORTED, "%s: \\W inside a character class is not supported",
                 path);
        return append(out, "[^" WORD_RANGES "]");
    case 'H':
        TT_CHECK(!in_class, TT_ERR_UNSUPPORTED, "%s: \\H inside a character class is not supported",
                 path);
        return append(out, "[^" HEX_RANGES "]");
    case 'u':
        if (n >= U_BYTES) {
            *used_out = U_BYTES;
            TT_TRY(append(out, "\\x{"));
            TT_TRY(tt_text_append(out, p + 2, U_DIGITS));
            return append(out, "}");
        }
        return tt_text_append(out, p, 2);
    default:
        return tt_text_append(out, p, 2);
    }
}

/* A quantifier at p[0] = '{'. *used_out 0: it is none, or one that both dialects read alike. */
static tt_status translate_interval(const char *path, const char *p, size_t n, tt_text *out,
                                    size_t *used_out)
{
    size_t i = 1, low_at = 1;
    *used_out = 0;
    while (i < n && p[i] >= '0' && p[i] <= '9') {
        i++;
    }
    size_t n_low = i - low_at;
    bool has_comma = i < n && p[i] == ',';
    if (has_comma) {
        i++;
        while (i < n && p[i] >= '0' && p[i] <= '9') {
            i++;
        }
    }
    if (i >= n || p[i] != '}' || (n_low == 0 && i - low_at < 2)) {
        return TT_OK;
    }
    i++;
    if (i < n && p[i] == '+') {
        /* Not possessive in Ruby, but a repeated repeat: X{1,m}+ takes one or more of X,
         * greedily. */
        TT_CHECK(n_low == 1 && p[low_at] == '1', TT_ERR_UNSUPPORTED,
                 "%s: a repeated interval that does not begin at 1 is not supported", path);
        *used_out = i + 1;
        return append(out, "+");
    }
    if (n_low == 0) {
        *used_out = i;
        TT_TRY(append(out, "{0"));
        return tt_text_append(out, p + 1, i - 1);
    }
    return TT_OK;
}

/* Where the class that begins at p[0] = '[' ends, behind its ']', and where a && stands in it
 * outside inner classes; 0: nowhere. */
static void measure_class(const char *p, size_t n, size_t *end_out, size_t *and_out)
{
    size_t depth = 1, i = p[1 < n ? 1 : 0] == '^' ? 2 : 1;
    *end_out = 0;
    *and_out = 0;
    i += i < n && p[i] == ']'; /* the first one is a member */
    for (; i < n; i++) {
        if (p[i] == '\\') {
            i++;
        } else if (p[i] == '[' && i + 1 < n && p[i + 1] == ':') {
            while (i < n && p[i] != ']') {
                i++;
            }
        } else if (p[i] == '[') {
            depth++;
        } else if (p[i] == ']' && --depth == 0) {
            *end_out = i + 1;
            return;
        } else if (p[i] == '&' && depth == 1 && i + 1 < n && p[i + 1] == '&' && *and_out == 0) {
            *and_out = i;
        }
    }
}

/* A class without classes in it, p[0] = '[' to the end of n. */
static tt_status translate_plain_class(const char *path, const char *p, size_t n, tt_text *out)
{
    size_t i = n > 1 && p[1] == '^' ? 2 : 1, used;
    TT_TRY(tt_text_append(out, p, i));
    if (i < n && p[i] == ']') {
        TT_TRY(append(out, "\\]"));
        i++;
    }
    while (i < n) {
        if (p[i] == '\\' && i + 1 < n) {
            TT_TRY(translate_escape(path, p + i, n - i, true, out, &used));
            i += used;
            continue;
        }
        if (p[i] == '[' && i + 1 < n && p[i + 1] == ':') {
            const char *close = memchr(p + i, ']', n - i);
            used = close ? (size_t)(close + 1 - (p + i)) : n - i;
            TT_TRY(tt_text_append(out, p + i, used));
            i += used;
            continue;
        }
        TT_CHECK(p[i] != '[', TT_ERR_UNSUPPORTED,
                 "%s: a character class inside a character class is not supported: %.*s", path,
                 shown(n), p);
        TT_TRY(tt_text_append(out, p + i, 1));
        i++;
    }
    return TT_OK;
}

/* Which categories the members p[n] of a class name; false if there is anything else among them. */
static bool named_categories(const char *p, size_t n, uint32_t *mask_out)
{
    *mask_out = 0;
    for (size_t i = 0; i < n;) {
        if (n - i < 5 || memcmp(p + i, "\\p{", 3) != 0 || (p[i + 4] != '}' && n - i < 6) ||
            (p[i + 4] != '}' && p[i + 5] != '}')) {
            return false;
        }
        size_t n_name = p[i + 4] == '}' ? 1 : 2;
        uint32_t named = 0;
        for (unsigned k = 0; k < N_CATEGORIES; k++) {
            named |= (uint32_t)(memcmp(p + i + 3, categories[k], n_name) == 0) << k;
        }
        if (named == 0) {
            return false;
        }
        *mask_out |= named;
        i += n_name + 4;
    }
    return true;
}

/* Appends all categories that are not in the mask, whole groups by their letter. */
static tt_status append_other_categories(uint32_t mask, tt_text *out)
{
    for (unsigned k = 0, end; k < N_CATEGORIES; k = end) {
        uint32_t named = 0;
        for (end = k; end < N_CATEGORIES && categories[end][0] == categories[k][0]; end++) {
            named |= mask & UINT32_C(1) << end;
        }
        for (unsigned m = k; m < (named ? end : k + 1); m++) {
            if (!(mask >> m & 1)) {
                TT_TRY(append(out, "\\p{"));
                TT_TRY(tt_text_append(out, categories[m], named ? 2 : 1));
                TT_TRY(append(out, "}"));
            }
        }
    }
    return TT_OK;
}

/* [A&&[^B]] with A made of categories is [^C B], C the other categories: the categories part all
 * characters. Unlike a lookahead, a plain class can be repeated a million times without memory.
 * p[n] are the members of A; b[n_b] is the translated [^B]. *done_out: it was such a class. */
static tt_status subtract_class(const char *p, size_t n, const tt_text *b, tt_text *out,
                                bool *done_out)
{
    uint32_t mask;
    *done_out = b->n > 2 && memcmp(b->bytes, "[^", 2) == 0 && named_categories(p, n, &mask);
    if (!*done_out) {
        return TT_OK;
    }
    TT_TRY(append(out, "[^"));
    TT_TRY(append_other_categories(mask, out));
    return tt_text_append(out, b->bytes + 2, b->n - 2);
}

/* (?:(?=[B])[A]), p[n] being "[A". */
static tt_status append_both(const char *path, const char *p, size_t n, const tt_text *b,
                             tt_text *out)
{
    TT_TRY(append(out, "(?:(?="));
    TT_TRY(tt_text_append(out, b->bytes, b->n));
    TT_TRY(append(out, ")"));
    TT_TRY(translate_plain_class(path, p, n, out));
    return append(out, "])");
}

/* The class at p[0] = '['. Of [A&&[B]] a character must be in both. */
static tt_status translate_class(const char *path, const char *p, size_t n, unsigned depth,
                                 tt_text *out, size_t *used_out)
{
    size_t end, both;
    measure_class(p, n, &end, &both);
    *used_out = end > 0 ? end : n;
    if (end == 0 || both == 0) {
        return translate_plain_class(path, p, *used_out, out);
    }
    size_t inner = both + 2, inner_used = 0;
    TT_CHECK(inner < end && p[inner] == '[' && p[1] != '^' && depth < CLASS_DEPTH_MAX,
             TT_ERR_UNSUPPORTED,
             "%s: a character class with && and no class behind it is not supported: %.*s", path,
             shown(end), p);
    tt_text second = {0};
    bool is_done = false;
    tt_status st = translate_class(path, p + inner, end - inner, depth + 1, &second, &inner_used);
    if (st == TT_OK && inner + inner_used + 1 != end) {
        st =
            TT_FAIL(TT_ERR_UNSUPPORTED,
                    "%s: a character class with more behind && than a class is not supported: %.*s",
                    path, shown(end), p);
    }
    if (st == TT_OK) {
        st = subtract_class(p + 1, both - 1, &second, out, &is_done);
    }
    if (st == TT_OK && !is_done) {
        st = append_both(path, p, both, &second, out);
    }
    tt_text_fini(&second);
    return st;
}

static tt_status check_group(const char *path, const char *p, size_t n)
{
    for (size_t k = 2; k < n && ((p[k] >= 'a' && p[k] <= 'z') || p[k] == '-'); k++) {
        TT_CHECK(p[k] == 'i' || p[k] == 'x' || p[k] == '-', TT_ERR_UNSUPPORTED,
                 "%s: the pattern option (?%c) is not supported", path, p[k]);
    }
    return TT_OK;
}

static tt_status translate(const char *path, const char *p, size_t n, tt_text *out)
{
    for (size_t i = 0; i < n;) {
        size_t used = 0;
        if (p[i] == '\\' && i + 1 < n) {
            TT_TRY(translate_escape(path, p + i, n - i, false, out, &used));
        } else if (p[i] == '[') {
            TT_TRY(translate_class(path, p + i, n - i, 0, out, &used));
        } else if (p[i] == '{') {
            TT_TRY(translate_interval(path, p + i, n - i, out, &used));
        } else if (p[i] == '(' && i + 2 < n && p[i + 1] == '?') {
            TT_TRY(check_group(path, p + i, n - i));
        }
        if (used == 0) {
            TT_TRY(tt_text_append(out, p + i, 1));
            used = 1;
        }
        i += used;
    }
    return TT_OK;
}

tt_status tti_pattern_from_regex(const char *path, const char *regex, size_t n, tti_pattern *out)
{
    enum { ERROR_BYTES = 256 };
    tt_text text = {0};
    tt_status st;
    if (n == strlen(SPACES_AT_LINE_END) && memcmp(regex, SPACES_AT_LINE_END, n) == 0) {
        st = append(&text, SPACES_AT_LINE_END_FAST);
    } else {
        st = translate(path, regex, n, &text);
    }
    pcre2_compile_context *context = NULL;
    if (st == TT_OK) {
        context = pcre2_compile_context_create(NULL);
        if (!context) {
            st = TT_FAIL(TT_ERR_NOMEM, "out of memory for a pattern");
        }
    }
    if (st != TT_OK) {
        tt_text_fini(&text);
        return st;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *compiled = pcre2_compile(
        (PCRE2_SPTR)(text.bytes ? text.bytes : ""), text.n,
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    pcre2_compile_context_free(context);
    tt_text_fini(&text);
    if (!compiled) {
        char reason[ERROR_BYTES] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof(reason));
        return TT_FAIL(code == PCRE2_ERROR_NOMEMORY ? TT_ERR_NOMEM : TT_ERR_UNSUPPORTED,
                       "%s: the pattern %.*s: %s", path, shown(n), regex, reason);
    }
    *out = (tti_pattern){.kind = TTI_PATTERN_REGEX, .code = compiled};
    out->has_jit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
    return TT_OK;
}

tt_status tti_pattern_from_string(const char *string, size_t n, tti_pattern *out)
{
    char *copy = tti_tokenizer_copy(string, n);
    TT_CHECK(copy, TT_ERR_NOMEM, "out of memory for a pattern");
    *out = (tti_pattern){.kind = TTI_PATTERN_STRING, .string = copy, .n_string = n};
    return TT_OK;
}

tt_status tti_pattern_load(const char *path, const json_t *json, tti_pattern *out)
{
    TT_CHECK(json_is_object(json), TT_ERR_FILE, "%s: a \"pattern\" is missing or not an object",
             path);
    const char *s;
    size_t n;
    TT_TRY(tti_tokenizer_json_optional(path, json, "String", &s, &n));
    if (s) {
        TT_CHECK(n > 0, TT_ERR_FILE, "%s: a \"pattern\" is empty", path);
        return tti_pattern_from_string(s, n, out);
    }
    TT_TRY(tti_tokenizer_json_optional(path, json, "Regex", &s, &n));
    TT_CHECK(s, TT_ERR_FILE, "%s: a \"pattern\" has neither \"String\" nor \"Regex\"", path);
    return tti_pattern_from_regex(path, s, n, out);
}

void tti_pattern_fini(tti_pattern *pattern)
{
    free(pattern->string);
    if (pattern->code) {
        pcre2_code_free(pattern->code);
    }
    *pattern = (tti_pattern){0};
}

static tt_status work_ready(tti_regex_work *work)
{
    if (work->stack) {
        return TT_OK;
    }
    if (!work->data) {
        work->data = pcre2_match_data_create(1, NULL);
    }
    if (!work->context) {
        work->context = pcre2_match_context_create(NULL);
    }
    TT_CHECK(work->data && work->context, TT_ERR_NOMEM, "out of memory for matching patterns");
    pcre2_set_heap_limit(work->context, HEAP_LIMIT_KIB);
    pcre2_set_depth_limit(work->context, DEPTH_LIMIT);
    /* Without a stack of its own the JIT code uses 32 KiB of the C stack, and then the
     * interpreter takes over. */
    work->stack = pcre2_jit_stack_create(JIT_STACK_START_BYTES, JIT_STACK_MAX_BYTES, NULL);
    if (work->stack) {
        pcre2_jit_stack_assign(work->context, NULL, work->stack);
    }
    return TT_OK;
}

void tti_regex_work_fini(tti_regex_work *work)
{
    if (work->stack) {
        pcre2_jit_stack_free(work->stack);
    }
    if (work->context) {
        pcre2_match_context_free(work->context);
    }
    if (work->data) {
        pcre2_match_data_free(work->data);
    }
    *work = (tti_regex_work){0};
}

/* From where the walk stands. */
static tt_status find_regex(const tti_pattern *pattern, tti_regex_work *work,
                            const tti_pattern_walk *walk, bool *found_out, size_t *start_out,
                            size_t *end_out)
{
    const size_t n = walk->n, from = walk->from;
    TT_TRY(work_ready(work));
    uint64_t limit = MATCH_LIMIT_BASE + (uint64_t)MATCH_LIMIT_PER_BYTE * (n - from);
    pcre2_set_match_limit(work->context, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    PCRE2_SPTR subject = (PCRE2_SPTR)walk->text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (pattern->has_jit) {
        rc = pcre2_jit_match(pattern->code, subject, n, from, PCRE2_NO_UTF_CHECK, work->data,
                             work->context);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(pattern->code, subject, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         work->data, work->context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        *found_out = false;
        return TT_OK;
    }
    if (rc < 0) {
        TT_CHECK(rc != PCRE2_ERROR_NOMEMORY, TT_ERR_NOMEM, "out of memory for matching a pattern");
        return TT_FAIL(
            TT_ERR_REQUEST,
            "a text of %zu bytes exceeds the limits of the tokenizer's pattern (PCRE2 error %d)", n,
            rc);
    }
    const PCRE2_SIZE *offset = pcre2_get_ovector_pointer(work->data);
    *found_out = true;
    *start_out = offset[0];
    /* \K in a lookahead could put the start behind the end. */
    *end_out = offset[1] < offset[0] ? offset[0] : offset[1];
    return TT_OK;
}

static bool find_string(const tti_pattern *pattern, const tti_pattern_walk *walk, size_t *start_out)
{
    const size_t n = walk->n, length = pattern->n_string;
    for (size_t from = walk->from; n - from >= length;) {
        const char *hit = memchr(walk->text + from, pattern->string[0], n - from - length + 1);
        if (!hit) {
            return false;
        }
        from = (size_t)(hit - walk->text);
        if (memcmp(hit, pattern->string, length) == 0) {
            *start_out = from;
            return true;
        }
        from++;
    }
    return false;
}

static void take(tti_pattern_walk *walk, size_t start, size_t end)
{
    walk->start = start;
    walk->end = end;
    walk->has_last = true;
    walk->from = end;
}

tt_status tti_pattern_next(const tti_pattern *pattern, tti_regex_work *work, tti_pattern_walk *walk,
                           bool *found_out)
{
    size_t start = 0, end = 0, length;
    *found_out = false;
    if (pattern->kind == TTI_PATTERN_NUMERIC) {
        while (walk->from < walk->n && !*found_out) {
            start = walk->from;
            *found_out = tti_char_is_numeric(tti_utf8_decode(walk->text + start, &length));
            walk->from += length;
            if (*found_out) {
                take(walk, start, walk->from);
            }
        }
        return TT_OK;
    }
    if (pattern->kind == TTI_PATTERN_STRING) {
        *found_out = find_string(pattern, walk, &start);
        if (*found_out) {
            take(walk, start, start + pattern->n_string);
        }
        return TT_OK;
    }
    while (walk->from <= walk->n) {
        bool found = false;
        TT_TRY(find_regex(pattern, work, walk, &found, &start, &end));
        if (!found) {
            return TT_OK;
        }
        /* An empty match right behind the last one does not count; else the walk would not move. */
        if (start == end && walk->has_last && walk->end == end) {
            length = 1;
            if (walk->from < walk->n) {
                tti_utf8_decode(walk->text + walk->from, &length);
            }
            walk->from += length;
            continue;
        }
        take(walk, start, end);
        *found_out = true;
        return TT_OK;
    }
    return TT_OK;
}
