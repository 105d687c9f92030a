/* detokenize.c - ids back to text, as the file's list of decoders says, a token at a time.
 *
 * Each decoder of the list is a stage that takes a stream of tokens and gives a stream of tokens.
 * A token arrives as any number of `feed` calls (whole characters each) and one `token_end`;
 * `finish` ends the stream. A stage passes on what can no longer change and holds back the rest,
 * so text appears as soon as it is certain, and the decoding of a whole list of ids is the same
 * code run to its end: streamed and not streamed cannot differ. */
#include "tokenizer_internal.h"
#include <stdlib.h>
#include <string.h>

enum { BYTE_TOKEN_BYTES = 6 /* <0xHH> */ };

/* What one stage holds back. */
typedef struct stage_state {
    tt_text held; /* of the current token; BYTE_LEVEL: of the current token, still mapped */
    tt_text run;  /* BYTE_FALLBACK: bytes of the current run; BYTE_LEVEL: an incomplete character */
    size_t run_valid; /* BYTE_FALLBACK: bytes of run that are whole characters */
    bool run_broken;  /* BYTE_FALLBACK: the current run is known not to be UTF-8 */
    bool passing; /* BYTE_FALLBACK: the current token is no byte token. STRIP: its start is over */
    size_t n_cut; /* STRIP: characters cut off the start of the current token */
    bool has_token; /* METASPACE: a token went by */
    bool inside;    /* FUSE, BYTE_LEVEL: something came, so a token is to be ended */
} stage_state;

struct tt_detokenizer {
    const tt_tokenizer *tokenizer; /* borrowed */
    bool skip_special;
    bool has_token;     /* a token was pushed since the start or the last flush */
    stage_state *state; /* state[n_stages] */
    tti_growth growth;  /* of all tokens since the start or the last flush; stage k is step k */
    tt_text *out;       /* where the current call appends */
};

/* ---- loading ---- */
static tt_status load_stage(const char *path, const json_t *json, tti_decode_stage *stage)
{
    int64_t start, stop;
    switch (stage->kind) {
    case TTI_DECODE_REPLACE:
        TT_TRY(tti_tokenizer_json_keep(path, json, "content", &stage->content, &stage->n_content));
        return tti_pattern_load(path, json_object_get(json, "pattern"), &stage->pattern);
    case TTI_DECODE_STRIP:
        TT_TRY(tti_tokenizer_json_keep(path, json, "content", &stage->content, &stage->n_content));
        TT_CHECK(stage->n_content > 0, TT_ERR_FILE,
                 "%s: the decoder Strip has an empty \"content\"", path);
        TT_TRY(tti_tokenizer_json_integer(path, json, "start", 0, INT32_MAX, &start));
        TT_TRY(tti_tokenizer_json_integer(path, json, "stop", 0, INT32_MAX, &stop));
        stage->start = (size_t)start;
        stage->stop = (size_t)stop;
        return TT_OK;
    case TTI_DECODE_METASPACE:
        TT_TRY(
            tti_tokenizer_json_keep(path, json, "replacement", &stage->content, &stage->n_content));
        TT_CHECK(stage->n_content > 0, TT_ERR_FILE, "%s: \"replacement\" is empty", path);
        return tti_metaspace_prepend(path, json, &stage->prepend);
    default:
        return TT_OK;
    }
}

tt_status tti_decoder_add(const char *path, tti_decoder *out, tti_decode_kind kind,
                          tti_decode_stage **stage_out)
{
    TT_CHECK(out->n_stages < TTI_STEPS_MAX, TT_ERR_UNSUPPORTED, "%s: more than %d decoders", path,
             TTI_STEPS_MAX);
    void *stages = out->stage;
    tt_status st =
        tti_tokenizer_grow(&stages, &out->capacity, out->n_stages + 1, sizeof(*out->stage));
    out->stage = stages;
    TT_TRY(st);
    *stage_out = &out->stage[out->n_stages++];
    **stage_out = (tti_decode_stage){.kind = kind};
    return TT_OK;
}

tt_status tti_decoder_add_replace(const char *path, tti_decoder *out, const char *from,
                                  const char *to)
{
    tti_decode_stage *stage;
    TT_TRY(tti_decoder_add(path, out, TTI_DECODE_REPLACE, &stage));
    TT_TRY(tti_tokenizer_keep(path, to, strlen(to), &stage->content, &stage->n_content));
    return tti_pattern_from_string(from, strlen(from), &stage->pattern);
}

tt_status tti_decoder_add_strip(const char *path, tti_decoder *out, const char *content,
                                size_t start, size_t stop)
{
    tti_decode_stage *stage;
    TT_TRY(tti_decoder_add(path, out, TTI_DECODE_STRIP, &stage));
    stage->start = start;
    stage->stop = stop;
    return tti_tokenizer_keep(path, content, strlen(content), &stage->content, &stage->n_content);
}

static tt_status load_nested(const char *path, const json_t *json, unsigned depth, tti_decoder *out)
{
    static const char *const names[] = {
        [TTI_DECODE_BYTE_LEVEL] = "ByteLevel",
        [TTI_DECODE_BYTE_FALLBACK] = "ByteFallback",
        [TTI_DECODE_FUSE] = "Fuse",
        [TTI_DECODE_STRIP] = "Strip",
        [TTI_DECODE_REPLACE] = "Replace",
        [TTI_DECODE_METASPACE] = "Metaspace",
    };
    enum { N_NAMES = sizeof(names) / sizeof(names[0]) };
    const char *type;
    TT_TRY(tti_tokenizer_json_type(path, "decoder", json, &type));
    if (strcmp(type, "Sequence") == 0) {
        const json_t *array;
        TT_TRY(tti_tokenizer_json_sequence(path, json, "decoders", depth, &array));
        for (size_t i = 0; i < json_array_size(array); i++) {
            TT_TRY(load_nested(path, json_array_get(array, i), depth + 1, out));
        }
        return TT_OK;
    }
    unsigned k = 0;
    while (k < N_NAMES && strcmp(type, names[k]) != 0) {
        k++;
    }
    TT_CHECK(k < N_NAMES, TT_ERR_UNSUPPORTED, "%s: unknown decoder \"%s\"", path, type);
    tti_decode_stage *stage;
    TT_TRY(tti_decoder_add(path, out, (tti_decode_kind)k, &stage));
    return load_stage(path, json, stage);
}

tt_status tti_decoder_load(const char *path, const json_t *json, tti_decoder *out)
{
    if (!json || json_is_null(json)) {
        out->is_null = true;
        return TT_OK;
    }
    return load_nested(path, json, 0, out);
}

void tti_decoder_fini(tti_decoder *decoder)
{
    for (size_t k = 0; k < decoder->n_stages; k++) {
        tti_pattern_fini(&decoder->stage[k].pattern);
        free(decoder->stage[k].content);
    }
    free(decoder->stage);
    *decoder = (tti_decoder){0};
}

/* ---- running ---- */
static tt_status feed(tt_detokenizer *d, size_t k, const char *bytes, size_t n);
static tt_status token_end(tt_detokenizer *d, size_t k);

static const tti_decode_stage *stage_of(const tt_detokenizer *d, size_t k)
{
    return &d->tokenizer->decoder.stage[k];
}

static void drop_front(tt_text *text, size_t n)
{
    if (n > 0) {
        memmove(text->bytes, text->bytes + n, text->n - n + 1);
        text->n -= n;
    }
}

/* Bytes at the end of held that may be the start of content. */
static size_t partial_match(const tt_text *held, const char *content, size_t n)
{
    for (size_t length = held->n < n - 1 ? held->n : n - 1; length > 0; length--) {
        if (memcmp(held->bytes + held->n - length, content, length) == 0) {
            return length;
        }
    }
    return 0;
}

/* Replaces all matches in held; with `all` false, what may become a match stays held. A regular
 * expression sees whole tokens only. */
static tt_status replace_held(tt_detokenizer *d, size_t k, bool all)
{
    const tti_decode_stage *stage = stage_of(d, k);
    tt_text *held = &d->state[k].held;
    tti_regex_work regex = {0};
    tti_pattern_walk walk = {.text = held->bytes, .n = held->n};
    tt_status st = TT_OK;
    size_t done = 0;
    while (st == TT_OK && held->n > 0) {
        bool found = false;
        st = tti_pattern_next(&stage->pattern, &regex, &walk, &found);
        if (st != TT_OK || !found) {
            break;
        }
        st = feed(d, k + 1, held->bytes + done, walk.start - done);
        if (st == TT_OK) {
            st = feed(d, k + 1, stage->content, stage->n_content);
        }
        done = walk.end;
    }
    tti_regex_work_fini(&regex);
    TT_TRY(st);
    drop_front(held, done);
    size_t keep = all || held->n == 0
                      ? 0
                      : partial_match(held, stage->pattern.string, stage->pattern.n_string);
    TT_TRY(feed(d, k + 1, held->bytes, held->n - keep));
    drop_front(held, held->n - keep);
    return TT_OK;
}

static tt_status give_token(tt_detokenizer *d, size_t k, const char *bytes, size_t n)
{
    TT_TRY(feed(d, k, bytes, n));
    return token_end(d, k);
}

static tt_status give_broken(tt_detokenizer *d, size_t k, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        TT_TRY(give_token(d, k, TTI_REPLACEMENT, TTI_REPLACEMENT_BYTES));
    }
    return TT_OK;
}

/* The run of byte tokens is over: text if all of it is UTF-8, else a U+FFFD for each byte. */
static tt_status end_run(tt_detokenizer *d, size_t k)
{
    stage_state *state = &d->state[k];
    if (state->run.n > 0) {
        if (state->run_valid == state->run.n) {
            TT_TRY(give_token(d, k + 1, state->run.bytes, state->run.n));
        } else {
            TT_TRY(give_broken(d, k + 1, state->run.n));
        }
    }
    state->run.n = 0;
    state->run_valid = 0;
    state->run_broken = false;
    return TT_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that a token <0xHH> stands for; -1: it is no byte token. */
static int byte_of_token(const tt_text *token)
{
    if (token->n != BYTE_TOKEN_BYTES || memcmp(token->bytes, "<0x", 3) != 0 ||
        token->bytes[BYTE_TOKEN_BYTES - 1] != '>') {
        return -1;
    }
    int high = hex_digit(token->bytes[3]), low = hex_digit(token->bytes[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static tt_status take_byte(tt_detokenizer *d, size_t k, unsigned char byte)
{
    stage_state *state = &d->state[k];
    if (state->run_broken) {
        return give_broken(d, k + 1, 1);
    }
    char c = (char)byte;
    TT_TRY(tt_text_append(&state->run, &c, 1));
    bool valid, cut;
    size_t length = tti_utf8_next(state->run.bytes + state->run_valid,
                                  state->run.n - state->run_valid, &valid, &cut);
    if (valid) {
        state->run_valid += length;
    } else if (!cut) {
        /* The whole run is lost, whatever follows. */
        size_t count = state->run.n;
        state->run.n = 0;
        state->run_valid = 0;
        state->run_broken = true;
        return give_broken(d, k + 1, count);
    }
    return TT_OK;
}

/* The token held is complete: its stand-ins become bytes, which become text. */
static tt_status take_mapped(tt_detokenizer *d, size_t k)
{
    stage_state *state = &d->state[k];
    tt_text *held = &state->held, *run = &state->run;
    /* A token with a character that stands for no byte (an added token, mostly) is its own text. */
    bool mapped = true;
    size_t length;
    for (size_t i = 0; i < held->n && mapped; i += length) {
        mapped = tti_char_to_byte(tti_utf8_decode(held->bytes + i, &length)) >= 0;
    }
    if (!mapped) {
        TT_TRY(tt_text_append(run, held->bytes, held->n));
    }
    for (size_t i = 0; i < held->n && mapped; i += length) {
        char c = (char)tti_char_to_byte(tti_utf8_decode(held->bytes + i, &length));
        TT_TRY(tt_text_append(run, &c, 1));
    }
    held->n = 0;
    /* All but an incomplete last character is certain. */
    size_t at = 0;
    while (at < run->n) {
        size_t good = tti_utf8_valid_prefix(run->bytes + at, run->n - at);
        TT_TRY(feed(d, k + 1, run->bytes + at, good));
        at += good;
        if (at < run->n) {
            bool valid, cut;
            length = tti_utf8_next(run->bytes + at, run->n - at, &valid, &cut);
            if (cut) {
                break;
            }
            TT_TRY(feed(d, k + 1, TTI_REPLACEMENT, TTI_REPLACEMENT_BYTES));
            at += length;
        }
    }
    drop_front(run, at);
    return TT_OK;
}

static bool begins_with(const char *bytes, size_t n, const tti_decode_stage *stage)
{
    return n >= stage->n_content && memcmp(bytes, stage->content, stage->n_content) == 0;
}

static tt_status feed_strip(tt_detokenizer *d, size_t k, const char *bytes, size_t n)
{
    const tti_decode_stage *stage = stage_of(d, k);
    stage_state *state = &d->state[k];
    while (!state->passing && n > 0) {
        if (state->n_cut < stage->start && begins_with(bytes, n, stage)) {
            state->n_cut++;
            bytes += stage->n_content;
            n -= stage->n_content;
        } else {
            state->passing = true;
        }
    }
    if (stage->stop == 0 || n == 0) {
        return feed(d, k + 1, bytes, n);
    }
    TT_TRY(tt_text_append(&state->held, bytes, n));
    size_t keep = 0;
    for (size_t i = 0; i < stage->stop && keep + stage->n_content <= state->held.n; i++) {
        if (!begins_with(state->held.bytes + state->held.n - keep - stage->n_content,
                         stage->n_content, stage)) {
            break;
        }
        keep += stage->n_content;
    }
    TT_TRY(feed(d, k + 1, state->held.bytes, state->held.n - keep));
    drop_front(&state->held, state->held.n - keep);
    return TT_OK;
}

static tt_status feed_metaspace(tt_detokenizer *d, size_t k, const char *bytes, size_t n)
{
    const tti_decode_stage *stage = stage_of(d, k);
    bool drops = !d->state[k].has_token && stage->prepend != TTI_PREPEND_NEVER;
    size_t done = 0, i = 0;
    while (i < n) {
        if (!begins_with(bytes + i, n - i, stage)) {
            i++;
            continue;
        }
        TT_TRY(feed(d, k + 1, bytes + done, i - done));
        TT_TRY(feed(d, k + 1, " ", drops ? 0 : 1));
        i += stage->n_content;
        done = i;
    }
    return feed(d, k + 1, bytes + done, n - done);
}

static tt_status feed(tt_detokenizer *d, size_t k, const char *bytes, size_t n)
{
    if (n == 0) {
        return TT_OK;
    }
    if (k > 0) {
        TT_TRY(tti_growth_use(&d->growth, k - 1, n));
    }
    if (k == d->tokenizer->decoder.n_stages) {
        return tt_text_append(d->out, bytes, n);
    }
    const tti_decode_stage *stage = stage_of(d, k);
    stage_state *state = &d->state[k];
    switch (stage->kind) {
    case TTI_DECODE_BYTE_LEVEL:
        return tt_text_append(&state->held, bytes, n);
    case TTI_DECODE_BYTE_FALLBACK:
        if (!state->passing) {
            TT_TRY(tt_text_append(&state->held, bytes, n));
            if (state->held.n <= BYTE_TOKEN_BYTES) {
                return TT_OK;
            }
            TT_TRY(end_run(d, k));
            state->passing = true;
            bytes = state->held.bytes;
            n = state->held.n;
            state->held.n = 0;
        }
        return feed(d, k + 1, bytes, n);
    case TTI_DECODE_FUSE:
        return feed(d, k + 1, bytes, n);
    case TTI_DECODE_STRIP:
        return feed_strip(d, k, bytes, n);
    case TTI_DECODE_REPLACE:
        TT_TRY(tt_text_append(&state->held, bytes, n));
        return stage->pattern.kind == TTI_PATTERN_STRING ? replace_held(d, k, false) : TT_OK;
    case TTI_DECODE_METASPACE:
        return feed_metaspace(d, k, bytes, n);
    }
    return TT_OK;
}

static tt_status token_end(tt_detokenizer *d, size_t k)
{
    if (k == d->tokenizer->decoder.n_stages) {
        return TT_OK;
    }
    stage_state *state = &d->state[k];
    int byte;
    switch (stage_of(d, k)->kind) {
    case TTI_DECODE_BYTE_LEVEL:
        state->inside = true;
        return take_mapped(d, k);
    case TTI_DECODE_FUSE:
        state->inside = true;
        return TT_OK;
    case TTI_DECODE_BYTE_FALLBACK:
        byte = state->passing ? -1 : byte_of_token(&state->held);
        if (byte >= 0) {
            state->held.n = 0;
            return take_byte(d, k, (unsigned char)byte);
        }
        if (!state->passing) {
            TT_TRY(end_run(d, k));
            TT_TRY(feed(d, k + 1, state->held.bytes, state->held.n));
        }
        state->held.n = 0;
        state->passing = false;
        break;
    case TTI_DECODE_STRIP:
        state->held.n = 0;
        state->n_cut = 0;
        state->passing = false;
        break;
    case TTI_DECODE_REPLACE:
        TT_TRY(replace_held(d, k, true));
        break;
    case TTI_DECODE_METASPACE:
        state->has_token = true;
        break;
    }
    return token_end(d, k + 1);
}

/* Ends the stream at each stage in turn: what a stage still held goes through those behind it
 * first. */
static tt_status finish(tt_detokenizer *d)
{
    for (size_t k = 0; k < d->tokenizer->decoder.n_stages; k++) {
        stage_state *state = &d->state[k];
        switch (stage_of(d, k)->kind) {
        case TTI_DECODE_BYTE_LEVEL:
            TT_TRY(feed(d, k + 1, TTI_REPLACEMENT, state->run.n > 0 ? TTI_REPLACEMENT_BYTES : 0));
            TT_TRY(state->inside ? token_end(d, k + 1) : TT_OK);
            break;
        case TTI_DECODE_FUSE:
            TT_TRY(state->inside ? token_end(d, k + 1) : TT_OK);
            break;
        case TTI_DECODE_BYTE_FALLBACK:
            TT_TRY(end_run(d, k));
            break;
        case TTI_DECODE_STRIP:
        case TTI_DECODE_REPLACE:
        case TTI_DECODE_METASPACE:
            break;
        }
    }
    return TT_OK;
}

static void start_anew(tt_detokenizer *d)
{
    d->has_token = false;
    tti_growth_start(&d->growth, 0);
    for (size_t k = 0; k < d->tokenizer->decoder.n_stages; k++) {
        stage_state *state = &d->state[k];
        tt_text held = state->held, run = state->run;
        held.n = 0;
        run.n = 0;
        *state = (stage_state){.held = held, .run = run};
    }
}

static tt_status push(tt_detokenizer *d, int32_t id)
{
    size_t n;
    const char *bytes = tt_tokenizer_id_bytes(d->tokenizer, id, &n);
    TT_CHECK(bytes, TT_ERR_REQUEST, "the tokenizer knows no token of id %d", (int)id);
    if (d->skip_special && tt_tokenizer_id_is_special(d->tokenizer, id)) {
        return TT_OK;
    }
    if (d->tokenizer->decoder.is_null && d->has_token) {
        TT_TRY(tt_text_append(d->out, " ", 1));
    }
    d->has_token = true;
    d->growth.allowed += TTI_GROWTH * n;
    return give_token(d, 0, bytes, n);
}

tt_status tt_detokenizer_create(const tt_tokenizer *tokenizer, bool skip_special,
                                tt_detokenizer **detokenizer_out)
{
    TT_CHECK(tokenizer && detokenizer_out, TT_ERR_ARG, "tt_detokenizer_create: a pointer is NULL");
    tt_detokenizer *d = calloc(1, sizeof(*d));
    stage_state *state = calloc(tokenizer->decoder.n_stages + 1, sizeof(*state));
    if (!d || !state) {
        free(d);
        free(state);
        return TT_FAIL(TT_ERR_NOMEM, "out of memory for a detokenizer");
    }
    *d = (tt_detokenizer){.tokenizer = tokenizer, .skip_special = skip_special, .state = state};
    tti_growth_start(&d->growth, 0);
    *detokenizer_out = d;
    return TT_OK;
}

void tt_detokenizer_destroy(tt_detokenizer **detokenizer)
{
    tt_detokenizer *d = detokenizer ? *detokenizer : NULL;
    if (!d) {
        return;
    }
    for (size_t k = 0; k < d->tokenizer->decoder.n_stages; k++) {
        tt_text_fini(&d->state[k].held);
        tt_text_fini(&d->state[k].run);
    }
    free(d->state);
    free(d);
    *detokenizer = NULL;
}

tt_status tt_detokenizer_push(tt_detokenizer *detokenizer, int32_t id, tt_text *text)
{
    detokenizer->out = text;
    return push(detokenizer, id);
}

tt_status tt_detokenizer_flush(tt_detokenizer *detokenizer, tt_text *text)
{
    detokenizer->out = text;
    tt_status st = finish(detokenizer);
    start_anew(detokenizer);
    return st;
}

tt_status tt_tokenizer_decode(const tt_tokenizer *tokenizer, const int32_t *ids, size_t n,
                              bool skip_special, tt_text *text)
{
    tt_detokenizer *d;
    size_t n_before = text->n;
    TT_TRY(tt_detokenizer_create(tokenizer, skip_special, &d));
    tt_status st = tt_text_append(text, "", 0);
    d->out = text;
    for (size_t i = 0; i < n && st == TT_OK; i++) {
        st = push(d, ids[i]);
    }
    if (st == TT_OK) {
        st = finish(d);
    }
    tt_detokenizer_destroy(&d);
    if (st != TT_OK && text->bytes) {
        text->n = n_before;
        text->bytes[n_before] = 0;
    }
    return st;
}
