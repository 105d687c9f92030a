/* pretokenize.c - the pre-tokeniser: a list of steps, each of which splits or rewrites every
 * piece that the step before made.
 *
 * The composed steps of the file (ByteLevel, Metaspace, Digits) are laid out as four primitive
 * ones when loading. A text goes through them depth first: step k hands each piece to step k + 1
 * as soon as it is cut, the last hands it to BPE. So a text of any length needs no list of
 * pieces, and the recursion is as deep as the list of steps, not as the text. */
#include "tokenizer_internal.h"
#include <stdlib.h>
#include <string.h>

enum { BYTE_MAP_BASE = 0x100 /* first stand-in of the bytes that do not print */ };

static bool byte_prints(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The 68 other bytes: 0x00-0x20, 0x7f-0xa0, 0xad. */
enum { HIDDEN_LOW = 0x21, HIDDEN_MIDDLE_FROM = 0x7f, HIDDEN_MIDDLE_TO = 0xa0, HIDDEN_LAST = 0xad };
enum { HIDDEN_LAST_AT = HIDDEN_LOW + HIDDEN_MIDDLE_TO - HIDDEN_MIDDLE_FROM + 1 };

uint32_t tti_byte_to_char(unsigned char byte)
{
    if (byte_prints(byte)) {
        return byte;
    }
    if (byte < HIDDEN_LOW) {
        return BYTE_MAP_BASE + (uint32_t)byte;
    }
    if (byte == HIDDEN_LAST) {
        return BYTE_MAP_BASE + HIDDEN_LAST_AT;
    }
    return BYTE_MAP_BASE + HIDDEN_LOW + (uint32_t)(byte - HIDDEN_MIDDLE_FROM);
}

int tti_char_to_byte(uint32_t c)
{
    if (c < BYTE_MAP_BASE) {
        return byte_prints(c) ? (int)c : -1;
    }
    c -= BYTE_MAP_BASE;
    if (c < HIDDEN_LOW) {
        return (int)c;
    }
    if (c == HIDDEN_LAST_AT) {
        return HIDDEN_LAST;
    }
    return c < HIDDEN_LAST_AT ? (int)(c - HIDDEN_LOW + HIDDEN_MIDDLE_FROM) : -1;
}

/* ---- loading ---- */
static tt_status add_step(const char *path, tti_pretokenizer *out, tti_step_kind kind,
                          tti_step **step_out)
{
    TT_CHECK(out->n_steps < TTI_STEPS_MAX, TT_ERR_UNSUPPORTED,
             "%s: more than %d pre-tokenizer steps", path, TTI_STEPS_MAX);
    void *array = out->step;
    tt_status st = tti_tokenizer_grow(&array, &out->capacity, out->n_steps + 1, sizeof(*out->step));
    out->step = array;
    TT_TRY(st);
    *step_out = &out->step[out->n_steps++];
    **step_out = (tti_step){.kind = kind};
    return TT_OK;
}

tt_status tti_pretokenizer_add_split(const char *path, tti_pretokenizer *out, const char *regex)
{
    tti_step *step;
    TT_TRY(add_step(path, out, TTI_STEP_SPLIT, &step));
    return tti_pattern_from_regex(path, regex, strlen(regex), &step->pattern);
}

tt_status tti_pretokenizer_add_digits(const char *path, tti_pretokenizer *out)
{
    tti_step *step;
    TT_TRY(add_step(path, out, TTI_STEP_SPLIT, &step));
    step->pattern.kind = TTI_PATTERN_NUMERIC;
    return TT_OK;
}

tt_status tti_pretokenizer_add_byte_map(const char *path, tti_pretokenizer *out)
{
    tti_step *step;
    return add_step(path, out, TTI_STEP_BYTE_MAP, &step);
}

static tt_status load_byte_level(const char *path, const json_t *json, tti_pretokenizer *out)
{
    bool prefix_space, use_regex;
    tti_step *step;
    TT_TRY(tti_tokenizer_json_bool(path, json, "add_prefix_space", true, &prefix_space));
    TT_TRY(tti_tokenizer_json_bool(path, json, "use_regex", true, &use_regex));
    if (prefix_space) {
        TT_TRY(add_step(path, out, TTI_STEP_PREFIX_SPACE, &step));
    }
    if (use_regex) {
        TT_TRY(tti_pretokenizer_add_split(path, out, TTI_GPT2_PATTERN));
    }
    return tti_pretokenizer_add_byte_map(path, out);
}

static tt_status load_split(const char *path, const json_t *json, tti_pretokenizer *out)
{
    static const char *const names[] = {
        [TTI_ISOLATED] = "Isolated",
        [TTI_REMOVED] = "Removed",
        [TTI_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [TTI_MERGED_WITH_NEXT] = "MergedWithNext",
        [TTI_CONTIGUOUS] = "Contiguous",
    };
    enum { N_NAMES = sizeof(names) / sizeof(names[0]) };
    tti_step *step;
    TT_TRY(add_step(path, out, TTI_STEP_SPLIT, &step));
    TT_TRY(tti_pattern_load(path, json_object_get(json, "pattern"), &step->pattern));
    const char *behavior;
    size_t n;
    TT_TRY(tti_tokenizer_json_string(path, json, "behavior", &behavior, &n));
    unsigned k = 0;
    while (k < N_NAMES && strcmp(behavior, names[k]) != 0) {
        k++;
    }
    TT_CHECK(k < N_NAMES, TT_ERR_UNSUPPORTED, "%s: unknown split behavior \"%s\"", path, behavior);
    step->behavior = (tti_behavior)k;
    return tti_tokenizer_json_bool(path, json, "invert", false, &step->invert);
}

static tt_status load_digits(const char *path, const json_t *json, tti_pretokenizer *out)
{
    bool individual;
    TT_TRY(tti_tokenizer_json_bool(path, json, "individual_digits", false, &individual));
    TT_TRY(tti_pretokenizer_add_digits(path, out));
    out->step[out->n_steps - 1].behavior = individual ? TTI_ISOLATED : TTI_CONTIGUOUS;
    return TT_OK;
}

tt_status tti_metaspace_prepend(const char *path, const json_t *json, tti_prepend *out)
{
    const char *scheme;
    size_t n;
    TT_TRY(tti_tokenizer_json_optional(path, json, "prepend_scheme", &scheme, &n));
    if (!scheme) {
        /* The older spelling. */
        bool prefix_space;
        TT_TRY(tti_tokenizer_json_bool(path, json, "add_prefix_space", true, &prefix_space));
        *out = prefix_space ? TTI_PREPEND_ALWAYS : TTI_PREPEND_NEVER;
        return TT_OK;
    }
    if (strcmp(scheme, "always") == 0) {
        *out = TTI_PREPEND_ALWAYS;
    } else if (strcmp(scheme, "first") == 0) {
        *out = TTI_PREPEND_FIRST;
    } else if (strcmp(scheme, "never") == 0) {
        *out = TTI_PREPEND_NEVER;
    } else {
        return TT_FAIL(TT_ERR_UNSUPPORTED, "%s: unknown prepend_scheme \"%s\"", path, scheme);
    }
    return TT_OK;
}

static tt_status load_metaspace(const char *path, const json_t *json, tti_pretokenizer *out)
{
    const char *replacement;
    size_t n;
    bool split;
    tti_step *step;
    TT_TRY(tti_tokenizer_json_string(path, json, "replacement", &replacement, &n));
    TT_CHECK(n > 0, TT_ERR_FILE, "%s: \"replacement\" is empty", path);
    TT_TRY(tti_tokenizer_json_bool(path, json, "split", true, &split));
    TT_TRY(add_step(path, out, TTI_STEP_METASPACE, &step));
    TT_TRY(tti_tokenizer_keep(path, replacement, n, &step->replacement, &step->n_replacement));
    TT_TRY(tti_metaspace_prepend(path, json, &step->prepend));
    if (split) {
        TT_TRY(add_step(path, out, TTI_STEP_SPLIT, &step));
        TT_TRY(tti_pattern_from_string(replacement, n, &step->pattern));
        step->behavior = TTI_MERGED_WITH_NEXT;
    }
    return TT_OK;
}

static tt_status load_nested(const char *path, const json_t *json, unsigned depth,
                             tti_pretokenizer *out)
{
    const char *type;
    TT_TRY(tti_tokenizer_json_type(path, "pre-tokenizer", json, &type));
    if (strcmp(type, "ByteLevel") == 0) {
        return load_byte_level(path, json, out);
    }
    if (strcmp(type, "Split") == 0) {
        return load_split(path, json, out);
    }
    if (strcmp(type, "Digits") == 0) {
        return load_digits(path, json, out);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return load_metaspace(path, json, out);
    }
    TT_CHECK(strcmp(type, "Sequence") == 0, TT_ERR_UNSUPPORTED, "%s: unknown pre-tokenizer \"%s\"",
             path, type);
    const json_t *array;
    TT_TRY(tti_tokenizer_json_sequence(path, json, "pretokenizers", depth, &array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        TT_TRY(load_nested(path, json_array_get(array, i), depth + 1, out));
    }
    return TT_OK;
}

tt_status tti_pretokenizer_load(const char *path, const json_t *json, tti_pretokenizer *out)
{
    if (!json || json_is_null(json)) {
        return TT_OK;
    }
    return load_nested(path, json, 0, out);
}

void tti_pretokenizer_fini(tti_pretokenizer *pretokenizer)
{
    for (size_t k = 0; k < pretokenizer->n_steps; k++) {
        tti_pattern_fini(&pretokenizer->step[k].pattern);
        free(pretokenizer->step[k].replacement);
    }
    free(pretokenizer->step);
    *pretokenizer = (tti_pretokenizer){0};
}

/* ---- running ---- */
static tt_status run_step(tti_encoder *encoder, size_t k, const char *text, size_t n,
                          bool at_start);

/* A text that step k splits, and where that stands: a stretch that the next one may still join, and
 * what came before it. */
typedef struct splitting {
    tti_encoder *encoder;
    size_t k;
    const char *text;
    bool at_start;
    size_t start, end;
    bool holds;      /* [start, end) waits */
    bool last_match; /* the stretch seen last was a match */
} splitting;

static tt_status give(const splitting *s, size_t start, size_t end)
{
    return run_step(s->encoder, s->k + 1, s->text + start, end - start, s->at_start && start == 0);
}

/* Takes the next stretch of the text, a match or a gap, and hands on what is now complete. */
static tt_status split_take(splitting *s, size_t start, size_t end, bool is_match)
{
    const tti_step *step = &s->encoder->tokenizer->pretokenizer.step[s->k];
    bool joins = false;
    if (start == end) {
        return TT_OK;
    }
    is_match = is_match != step->invert;
    switch (step->behavior) {
    case TTI_ISOLATED:
        return give(s, start, end);
    case TTI_REMOVED:
        return is_match ? TT_OK : give(s, start, end);
    case TTI_CONTIGUOUS:
        joins = is_match == s->last_match;
        break;
    case TTI_MERGED_WITH_PREVIOUS:
        joins = is_match && !s->last_match;
        break;
    case TTI_MERGED_WITH_NEXT:
        joins = !is_match && s->last_match;
        break;
    }
    if (s->holds && !joins) {
        TT_TRY(give(s, s->start, s->end));
    }
    if (!s->holds || !joins) {
        s->start = start;
    }
    s->end = end;
    s->holds = true;
    s->last_match = is_match;
    return TT_OK;
}

static tt_status run_split(tti_encoder *encoder, size_t k, const char *text, size_t n,
                           bool at_start)
{
    const tti_step *step = &encoder->tokenizer->pretokenizer.step[k];
    tti_pattern_walk walk = {.text = text, .n = n};
    splitting s = {.encoder = encoder, .k = k, .text = text, .at_start = at_start};
    size_t done = 0;
    for (;;) {
        bool found;
        TT_TRY(tti_pattern_next(&step->pattern, &encoder->regex, &walk, &found));
        if (!found) {
            break;
        }
        TT_TRY(split_take(&s, done, walk.start, false));
        TT_TRY(split_take(&s, walk.start, walk.end, true));
        done = walk.end;
    }
    TT_TRY(split_take(&s, done, n, false));
    return s.holds ? give(&s, s.start, s.end) : TT_OK;
}

/* What step k has made of a text, before it is made. */
static tt_status use(tti_encoder *encoder, size_t k, size_t n)
{
    return tti_growth_use(&encoder->growth, k, n);
}

static tt_status make_metaspace(tti_encoder *encoder, size_t k, const char *text, size_t n,
                                bool at_start, tt_text *out)
{
    const tti_step *step = &encoder->tokenizer->pretokenizer.step[k];
    bool begins =
        n >= step->n_replacement && memcmp(text, step->replacement, step->n_replacement) == 0;
    begins = begins || text[0] == ' ';
    if (!begins &&
        (step->prepend == TTI_PREPEND_ALWAYS || (step->prepend == TTI_PREPEND_FIRST && at_start))) {
        TT_TRY(use(encoder, k, step->n_replacement));
        TT_TRY(tt_text_append(out, step->replacement, step->n_replacement));
    }
    for (size_t i = 0; i < n;) {
        const char *space = memchr(text + i, ' ', n - i);
        size_t end = space ? (size_t)(space - text) : n;
        TT_TRY(use(encoder, k, end - i + (space ? step->n_replacement : 0)));
        TT_TRY(tt_text_append(out, text + i, end - i));
        if (space) {
            TT_TRY(tt_text_append(out, step->replacement, step->n_replacement));
        }
        i = end + 1;
    }
    return TT_OK;
}

static tt_status map_bytes(const char *text, size_t n, tt_text *out)
{
    enum { MAPPED_BYTES_MAX = 2 }; /* a stand-in is below U+0800 */
    void *bytes = out->bytes;
    tt_status st = tti_tokenizer_grow(&bytes, &out->capacity, MAPPED_BYTES_MAX * n + 1, 1);
    out->bytes = bytes;
    TT_TRY(st);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        char c[TTI_UTF8_MAX];
        if (text[i] > ' ' && text[i] < 0x7f) {
            out->bytes[at++] = text[i];
            continue;
        }
        size_t length = tti_utf8_encode(tti_byte_to_char((unsigned char)text[i]), c);
        memcpy(out->bytes + at, c, length);
        at += length;
    }
    out->bytes[at] = 0;
    out->n = at;
    return TT_OK;
}

static tt_status run_step(tti_encoder *encoder, size_t k, const char *text, size_t n, bool at_start)
{
    const tti_pretokenizer *pretokenizer = &encoder->tokenizer->pretokenizer;
    if (n == 0) {
        return TT_OK;
    }
    if (k == pretokenizer->n_steps) {
        return tti_bpe_encode(&encoder->tokenizer->bpe, &encoder->bpe, text, n, encoder->ids);
    }
    const tti_step *step = &pretokenizer->step[k];
    tt_text *out = &encoder->step[k];
    switch (step->kind) {
    case TTI_STEP_SPLIT:
        return run_split(encoder, k, text, n, at_start);
    case TTI_STEP_PREFIX_SPACE:
        if (text[0] == ' ') {
            return run_step(encoder, k + 1, text, n, at_start);
        }
        out->n = 0;
        TT_TRY(use(encoder, k, n + 1));
        TT_TRY(tt_text_append(out, " ", 1));
        TT_TRY(tt_text_append(out, text, n));
        break;
    case TTI_STEP_METASPACE:
        out->n = 0;
        TT_TRY(make_metaspace(encoder, k, text, n, at_start, out));
        break;
    case TTI_STEP_BYTE_MAP:
        TT_TRY(map_bytes(text, n, out));
        TT_TRY(use(encoder, k, out->n));
        break;
    }
    return run_step(encoder, k + 1, out->bytes, out->n, at_start);
}

tt_status tti_pretokenize(tti_encoder *encoder, const char *text, size_t n, bool at_start)
{
    tti_growth_start(&encoder->growth, n);
    return run_step(encoder, 0, text, n, at_start);
}
