/* chat_template_lex.c - from a template's text to tokens.
 *
 * White space follows the way the reference library sets Jinja up: trim_blocks (one newline
 * behind a block or comment goes), lstrip_blocks (blanks before a block or comment that begins
 * its line go), `-` next to a bracket takes all white space on its side, `+` keeps it; the newline
 * at the very end goes. */
#include "chat_template_lex.h"
#include <errno.h>
#include <stdlib.h>

int tti_lex_line(tti_lexer *p)
{
    for (; p->counted_to < p->at && p->counted_to < p->n; p->counted_to++) {
        p->line += p->source[p->counted_to] == '\n';
    }
    return p->line;
}

static bool looks_at(const tti_lexer *p, size_t at, const char *what)
{
    size_t length = strlen(what);
    return at <= p->n && p->n - at >= length && memcmp(p->source + at, what, length) == 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/* A copy in which every newline is \n, less one at the very end. */
tt_status tti_lex_begin(tti_lexer *p, tti_chat_arena *arena, const char *source, size_t n)
{
    void *memory;
    *p = (tti_lexer){.arena = arena, .line = 1};
    TT_CHECK(tti_utf8_valid_prefix(source, n) == n, TT_ERR_FILE, "the chat template is not UTF-8");
    TT_TRY(tti_chat_alloc(arena, n + 1, &memory));
    char *copy = memory;
    size_t made = 0;
    for (size_t i = 0; i < n; i++) {
        copy[made++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n') {
            i++;
        }
    }
    p->source = copy;
    p->n = made > 0 && copy[made - 1] == '\n' ? made - 1 : made;
    return TT_OK;
}

/* ---- text between tags ---- */
static size_t skip_blank(const tti_lexer *p, size_t at)
{
    while (at < p->n) {
        size_t length;
        if (!tti_char_is_blank(tti_utf8_decode(p->source + at, &length))) {
            break;
        }
        at += length;
    }
    return at;
}

/* Where the white space that ends at `end` begins; newlines count only on demand. */
static size_t back_over_blank(const tti_lexer *p, size_t start, size_t end, bool newlines)
{
    while (end > start) {
        size_t at = end - 1, length;
        while (at > start && ((unsigned char)p->source[at] & 0xc0) == 0x80) {
            at--;
        }
        uint32_t c = tti_utf8_decode(p->source + at, &length);
        if (!tti_char_is_blank(c) || (c == '\n' && !newlines)) {
            break;
        }
        end = at;
    }
    return end;
}

/* The end of the text [start, open) before a tag whose bracket is at open. */
static size_t text_end(const tti_lexer *p, size_t start, size_t open, bool is_output)
{
    char sign = open + 2 < p->n ? p->source[open + 2] : 0;
    if (sign == '-') {
        return back_over_blank(p, start, open, true);
    }
    if (sign == '+' || is_output) {
        return open;
    }
    size_t blank = back_over_blank(p, start, open, false);
    bool begins_line =
        blank > start ? p->source[blank - 1] == '\n' : start == 0 || p->source[start - 1] == '\n';
    return begins_line ? blank : open;
}

/* Behind the bracket that closes a tag (at `at`, with its sign), and the white space it takes. */
static size_t behind_close(const tti_lexer *p, size_t at, const char *bracket, bool is_output)
{
    char sign = at < p->n ? p->source[at] : 0;
    bool has_sign = sign == '-' || (sign == '+' && !is_output);
    at += (has_sign ? 1 : 0) + strlen(bracket);
    if (has_sign) {
        return sign == '-' ? skip_blank(p, at) : at;
    }
    return !is_output && looks_at(p, at, "\n") ? at + 1 : at;
}

static tt_status skip_comment(tti_lexer *p, size_t open)
{
    size_t body = open + 2;
    body += body < p->n && (p->source[body] == '-' || p->source[body] == '+') ? 1 : 0;
    size_t at = body;
    while (at < p->n && !looks_at(p, at, "#}")) {
        at++;
    }
    p->at = open;
    if (at >= p->n) {
        return TTI_LEX_FAIL(p, TT_ERR_FILE, "a comment has no end");
    }
    char before = p->source[at - 1];
    bool has_sign = at > body && (before == '-' || before == '+');
    p->at = behind_close(p, has_sign ? at - 1 : at, "#}", false);
    return TT_OK;
}

/* Does a {% word %} stand at `open`? Then *at_out is the byte of its closing sign or bracket. */
static bool is_lone_tag(const tti_lexer *p, size_t open, const char *word, bool plus,
                        size_t *at_out)
{
    size_t at = open + 2;
    at += at < p->n && (p->source[at] == '-' || p->source[at] == '+') ? 1 : 0;
    at = skip_blank(p, at);
    if (!looks_at(p, open, "{%") || !looks_at(p, at, word)) {
        return false;
    }
    at = skip_blank(p, at + strlen(word));
    *at_out = at;
    return looks_at(p, at, "%}") || looks_at(p, at, "-%}") || (plus && looks_at(p, at, "+%}"));
}

/* From a raw block's opening tag to behind its end. */
static tt_status take_raw(tti_lexer *p, size_t open, size_t close, tti_string *text_out)
{
    /* The opening tag takes no newline. */
    bool has_sign = p->source[close] != '%';
    size_t start = close + (has_sign ? 1 : 0) + 2, end_close = 0;
    start = p->source[close] == '-' ? skip_blank(p, start) : start;
    p->at = open;
    size_t end = start;
    while (end < p->n && !is_lone_tag(p, end, "endraw", true, &end_close)) {
        end++;
    }
    if (end >= p->n) {
        return TTI_LEX_FAIL(p, TT_ERR_FILE, "a \"raw\" has no end");
    }
    size_t stop = text_end(p, start, end, false);
    *text_out = (tti_string){p->source + start, stop - start};
    p->at = behind_close(p, end_close, "%}", false);
    return TT_OK;
}

tt_status tti_lex_text(tti_lexer *p, tti_string *text_out, bool *more_out)
{
    size_t start = p->at, open = start, close;
    *more_out = false;
    p->tag = TTI_TAG_NONE;
    while (open < p->n && !looks_at(p, open, "{{") && !looks_at(p, open, "{%") &&
           !looks_at(p, open, "{#")) {
        open++;
    }
    if (open >= p->n) {
        *text_out = (tti_string){p->source + start, p->n - start};
        p->at = p->n;
        return TT_OK;
    }
    char kind = p->source[open + 1];
    bool is_raw = kind == '%' && is_lone_tag(p, open, "raw", false, &close);
    size_t end = text_end(p, start, open, kind == '{');
    *text_out = (tti_string){p->source + start, end - start};
    if (kind == '#') {
        *more_out = true;
        return skip_comment(p, open);
    }
    if (is_raw) {
        *more_out = true;
        if (end > start) {
            p->at = open; /* comes again, with the text before it gone */
            return TT_OK;
        }
        return take_raw(p, open, close, text_out);
    }
    p->at = open + 2;
    p->at += p->at < p->n && (p->source[p->at] == '-' || p->source[p->at] == '+') ? 1 : 0;
    p->tag = kind == '{' ? TTI_TAG_OUTPUT : TTI_TAG_BLOCK;
    p->brackets = 0;
    return TT_OK;
}

/* ---- tokens ---- */
static bool at_close(const tti_lexer *p)
{
    bool is_output = p->tag == TTI_TAG_OUTPUT;
    const char *bracket = is_output ? "}}" : "%}";
    bool has_sign =
        p->at < p->n && (p->source[p->at] == '-' || (p->source[p->at] == '+' && !is_output));
    return looks_at(p, p->at, bracket) || (has_sign && looks_at(p, p->at + 1, bracket));
}

tt_status tti_lex_end_tag(tti_lexer *p)
{
    if (p->token.kind != TTI_TOKEN_END) {
        return tti_lex_refuse(p);
    }
    bool is_output = p->tag == TTI_TAG_OUTPUT;
    p->at = behind_close(p, p->at, is_output ? "}}" : "%}", is_output);
    p->tag = TTI_TAG_NONE;
    return TT_OK;
}

/* Up to `most` digits of base 8 or 16 at text[*i]; returns how many. */
static size_t read_code(const char *text, size_t n, size_t i, unsigned base, size_t most,
                        uint32_t *code_out)
{
    size_t k = 0;
    uint32_t code = 0;
    for (; k < most && i + k < n; k++) {
        char c = text[i + k];
        unsigned digit = is_digit(c)            ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                                : base;
        if (digit >= base) {
            break;
        }
        code = code * base + digit;
    }
    *code_out = code;
    return k;
}

/* One escape at raw[*i], behind the backslash; as Python's string literals have them. */
static tt_status put_escape(tti_lexer *p, const char *raw, size_t n, size_t *i, char *to,
                            size_t *made)
{
    static const char from[] = "nrt\\'\"abfv", plain[] = "\n\r\t\\'\"\a\b\f\v";
    char c = raw[(*i)++];
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        to[(*made)++] = plain[known - from];
        return TT_OK;
    }
    if (c == '\n') {
        return TT_OK;
    }
    uint32_t code;
    size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (wanted) {
        size_t got = read_code(raw, n, *i, 16, wanted, &code);
        bool bad = got < wanted || code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
        if (bad) {
            return TTI_LEX_FAIL(p, TT_ERR_FILE, "a string holds a bad \\%c", c);
        }
        *i += got;
        *made += tti_utf8_encode(code, to + *made);
        return TT_OK;
    }
    if (c >= '0' && c <= '7') {
        *i += read_code(raw, n, *i - 1, 8, 3, &code) - 1;
        *made += tti_utf8_encode(code, to + *made);
        return TT_OK;
    }
    if (c == 'N') {
        return TTI_LEX_FAIL(p, TT_ERR_UNSUPPORTED, "the escape \\N in a string is not supported");
    }
    /* An unknown one stays as it is. */
    to[(*made)++] = '\\';
    to[(*made)++] = c;
    return TT_OK;
}

static tt_status lex_string(tti_lexer *p)
{
    char quote = p->source[p->at];
    size_t start = p->at + 1, end = start;
    while (end < p->n && p->source[end] != quote) {
        end += p->source[end] == '\\' ? 2 : 1;
    }
    if (end >= p->n) {
        return TTI_LEX_FAIL(p, TT_ERR_FILE, "a string has no end");
    }
    enum { GROWTH = 2 }; /* \7 becomes one byte, \377 two; nothing grows beyond itself */
    void *memory;
    TT_TRY(tti_chat_alloc(p->arena, GROWTH * (end - start) + 1, &memory));
    char *text = memory;
    size_t made = 0;
    for (size_t i = start; i < end;) {
        if (p->source[i] != '\\') {
            text[made++] = p->source[i++];
            continue;
        }
        i++;
        TT_TRY(put_escape(p, p->source, end, &i, text, &made));
    }
    p->token = (tti_token){.kind = TTI_TOKEN_STRING, .text = {text, made}};
    p->at = end + 1;
    return TT_OK;
}

/* 12, 1_000, 0x1f, 1.5, 2e3 */
static tt_status lex_number(tti_lexer *p)
{
    enum { NUMBER_BYTES = 64 };
    char digits[NUMBER_BYTES];
    size_t n = 0, end = p->at;
    bool real = false;
    bool prefixed = p->source[end] == '0' && end + 1 < p->n &&
                    strchr("xXoObB", p->source[end + 1]) && p->source[end + 1];
    for (; end < p->n && n + 1 < NUMBER_BYTES; end++) {
        char c = p->source[end], next = end + 1 < p->n ? p->source[end + 1] : 0;
        bool sign = (c == '+' || c == '-') && n > 0 && strchr("eE", digits[n - 1]) && real;
        if (c == '_' && is_name_byte(next)) {
            continue;
        }
        if (!prefixed &&
            ((c == '.' && !real && is_digit(next)) ||
             (strchr("eE", c) && c && (is_digit(next) || next == '+' || next == '-')))) {
            real = true;
        } else if (!is_digit(c) && !sign && !(prefixed && is_name_byte(c))) {
            break;
        }
        digits[n++] = c;
    }
    digits[n] = 0;
    tti_token token = {.kind = real ? TTI_TOKEN_REAL : TTI_TOKEN_INTEGER,
                       .text = {p->source + p->at, end - p->at}};
    char *stop;
    errno = 0;
    if (real) {
        token.real = strtod(digits, &stop);
    } else if (prefixed) {
        int base = strchr("xX", digits[1]) ? 16 : strchr("oO", digits[1]) ? 8 : 2;
        token.integer = strtoll(digits + 2, &stop, base);
    } else {
        token.integer = strtoll(digits, &stop, 10);
    }
    if (*stop || n + 1 >= NUMBER_BYTES || (errno == ERANGE && !real)) {
        return TTI_LEX_FAIL(p, TT_ERR_FILE, "\"%.*s\" is no number, or too large",
                            tti_chat_shown(token.text.n), token.text.text);
    }
    p->token = token;
    p->at = end;
    return TT_OK;
}

static tt_status lex_operator(tti_lexer *p)
{
    static const char *const operators[] = {"==", "!=", "<=", ">=", "//", "**", "<", ">", "=",
                                            "+",  "-",  "*",  "/",  "%",  "~",  "|", ".", ",",
                                            ":",  "(",  ")",  "[",  "]",  "{",  "}"};
    for (size_t k = 0; k < sizeof(operators) / sizeof(operators[0]); k++) {
        if (looks_at(p, p->at, operators[k])) {
            char c = operators[k][0];
            p->token = (tti_token){.kind = TTI_TOKEN_OPERATOR,
                                   .text = {operators[k], strlen(operators[k])}};
            p->at += p->token.text.n;
            p->brackets += strchr("([{", c) ? 1 : 0;
            p->brackets -= strchr(")]}", c) && p->brackets > 0 ? 1 : 0;
            return TT_OK;
        }
    }
    size_t length;
    tti_utf8_decode(p->source + p->at, &length);
    return TTI_LEX_FAIL(p, TT_ERR_FILE, "\"%.*s\" does not belong here", (int)length,
                        p->source + p->at);
}

tt_status tti_lex_next(tti_lexer *p)
{
    p->at = skip_blank(p, p->at);
    if (p->at >= p->n) {
        return TTI_LEX_FAIL(p, TT_ERR_FILE, "a tag has no end");
    }
    if (p->brackets == 0 && at_close(p)) {
        p->token = (tti_token){.kind = TTI_TOKEN_END, .text = {p->source + p->at, 2}};
        return TT_OK;
    }
    char c = p->source[p->at];
    if (c == '\'' || c == '"') {
        return lex_string(p);
    }
    if (is_digit(c)) {
        return lex_number(p);
    }
    if (!is_name_byte(c)) {
        return lex_operator(p);
    }
    size_t start = p->at;
    while (p->at < p->n && is_name_byte(p->source[p->at])) {
        p->at++;
    }
    p->token = (tti_token){.kind = TTI_TOKEN_NAME, .text = {p->source + start, p->at - start}};
    return TT_OK;
}

/* ---- for the parser ---- */
bool tti_lex_is(const tti_lexer *p, tti_token_kind kind, const char *text)
{
    return p->token.kind == kind && tti_string_is(p->token.text, text);
}

tt_status tti_lex_refuse(tti_lexer *p)
{
    if (p->token.kind == TTI_TOKEN_END) {
        return TTI_LEX_FAIL(p, TT_ERR_FILE, "the tag ends too early");
    }
    return TTI_LEX_FAIL(p, TT_ERR_FILE, "\"%.*s\" does not belong here",
                        tti_chat_shown(p->token.text.n), p->token.text.text);
}

tt_status tti_lex_expect(tti_lexer *p, tti_token_kind kind, const char *text)
{
    if (tti_lex_is(p, kind, text)) {
        return tti_lex_next(p);
    }
    if (p->token.kind == TTI_TOKEN_END) {
        return TTI_LEX_FAIL(p, TT_ERR_FILE, "the tag ends where \"%s\" is expected", text);
    }
    return TTI_LEX_FAIL(p, TT_ERR_FILE, "\"%.*s\" stands where \"%s\" is expected",
                        tti_chat_shown(p->token.text.n), p->token.text.text, text);
}

tt_status tti_lex_accept(tti_lexer *p, tti_token_kind kind, const char *text, bool *found_out)
{
    *found_out = tti_lex_is(p, kind, text);
    return *found_out ? tti_lex_next(p) : TT_OK;
}

tt_status tti_lex_name(tti_lexer *p, tti_string *name_out)
{
    if (p->token.kind != TTI_TOKEN_NAME) {
        return tti_lex_refuse(p);
    }
    *name_out = p->token.text;
    return tti_lex_next(p);
}

tt_status tti_lex_enter(tti_lexer *p)
{
    if (p->depth >= TTI_CHAT_PARSE_DEPTH_MAX) {
        return TTI_LEX_FAIL(p, TT_ERR_UNSUPPORTED, "it is nested deeper than %d",
                            TTI_CHAT_PARSE_DEPTH_MAX);
    }
    p->depth++;
    return TT_OK;
}

void tti_lex_leave(tti_lexer *p)
{
    p->depth--;
}
