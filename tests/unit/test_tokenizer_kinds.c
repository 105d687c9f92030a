/* test_tokenizer_kinds.c - vocabularies that are no tokenizer.json: GGUF metadata (byte-level and
 * SentencePiece) and tiktoken files. Held against the libraries that they belong to, against the
 * tokenizer.json of the same model, and against the plainest program that does the same. */
#include "tokenizer_fixture.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../src/model/tokenizer_gguf.h"
#include "../../src/model/tokenizer_internal.h"

enum { GOLDEN_ROWS_MIN = 50 };

/* What a GGUF file of a model would hold, with the memory behind it. */
typedef struct gguf {
    tti_gguf_vocabulary v;
    tti_gguf_string *token, *merge;
    int32_t *type;
    float *score;
    char *merges; /* the texts of merges */
} gguf;

static tti_gguf_string string_of(const json_t *json)
{
    return (tti_gguf_string){json_string_value(json), json_string_length(json)};
}

static tti_gguf_string text_of(const char *s)
{
    return (tti_gguf_string){s, strlen(s)};
}

static void gguf_init(gguf *g, size_t n_tokens)
{
    *g = (gguf){.v = TTI_GGUF_VOCABULARY_INIT};
    g->token = calloc(n_tokens, sizeof(*g->token));
    g->type = calloc(n_tokens, sizeof(*g->type));
    g->score = calloc(n_tokens, sizeof(*g->score));
    assert_non_null(g->token);
    assert_non_null(g->type);
    assert_non_null(g->score);
    g->v.path = "made-up.gguf";
    g->v.token = g->token;
    g->v.type = g->type;
    g->v.n_tokens = n_tokens;
}

static void gguf_fini(gguf *g)
{
    free(g->token);
    free(g->merge);
    free(g->type);
    free(g->score);
    free(g->merges);
}

static size_t n_ids_of(json_t *root)
{
    json_int_t n = 0;
    json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab"), *value;
    const json_t *added = json_object_get(root, "added_tokens");
    const char *key;
    json_object_foreach(vocabulary, key, value)
    {
        n = json_integer_value(value) >= n ? json_integer_value(value) + 1 : n;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        json_int_t id = json_integer_value(json_object_get(json_array_get(added, i), "id"));
        n = id >= n ? id + 1 : n;
    }
    return (size_t)n;
}

/* As the converters do it: tokens in their byte-level spelling, merges "a b", added tokens of
 * type control or user-defined, holes as fillers. root stays in use. */
static void describe(json_t *root, const char *pre, gguf *g)
{
    static const char filler[] = "[PAD7]";
    json_t *model = json_object_get(root, "model"), *value;
    const json_t *merges = json_object_get(model, "merges");
    const json_t *added = json_object_get(root, "added_tokens");
    const char *key;
    gguf_init(g, n_ids_of(root));
    for (size_t id = 0; id < g->v.n_tokens; id++) {
        g->token[id] = text_of(filler);
        g->type[id] = TTI_GGUF_UNUSED;
    }
    json_object_foreach(json_object_get(model, "vocab"), key, value)
    {
        g->token[json_integer_value(value)] = text_of(key);
        g->type[json_integer_value(value)] = TTI_GGUF_NORMAL;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        json_int_t id = json_integer_value(json_object_get(token, "id"));
        g->token[id] = string_of(json_object_get(token, "content"));
        g->type[id] = json_is_true(json_object_get(token, "special")) ? TTI_GGUF_CONTROL
                                                                      : TTI_GGUF_USER_DEFINED;
    }
    g->v.n_merges = json_array_size(merges);
    size_t room = 1;
    for (size_t k = 0; k < g->v.n_merges; k++) {
        room += json_string_length(json_array_get(json_array_get(merges, k), 0)) +
                json_string_length(json_array_get(json_array_get(merges, k), 1)) + 2;
    }
    g->merges = malloc(room);
    g->merge = calloc(g->v.n_merges + 1, sizeof(*g->merge));
    assert_non_null(g->merges);
    assert_non_null(g->merge);
    char *at = g->merges;
    for (size_t k = 0; k < g->v.n_merges; k++) {
        const json_t *pair = json_array_get(merges, k);
        int n = snprintf(at, room - (size_t)(at - g->merges), "%s %s",
                         json_string_value(json_array_get(pair, 0)),
                         json_string_value(json_array_get(pair, 1)));
        g->merge[k] = (tti_gguf_string){at, (size_t)n};
        at += n + 1;
    }
    g->v.merge = g->merge;
    g->v.model = text_of("gpt2");
    g->v.pre = text_of(pre);
}

static tt_tokenizer *make(const gguf *g)
{
    tt_tokenizer *tokenizer = NULL;
    if (tti_tokenizer_from_gguf(&g->v, &tokenizer) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return tokenizer;
}

static void assert_text(const tt_tokenizer *tokenizer, const tt_ids *ids, bool skip,
                        const json_t *expected)
{
    tt_text text = {0};
    assert_int_equal(tt_tokenizer_decode(tokenizer, ids->id, ids->n, skip, &text), TT_OK);
    assert_int_equal(text.n, json_string_length(expected));
    assert_memory_equal(text.bytes, json_string_value(expected), text.n);
    tt_text_fini(&text);
}

/* ---- byte-level GGUF ---- */
static void gguf_gives_the_ids_of_tokenizer_json(void **state)
{
    (void)state;
    static const struct {
        const char *family, *pre, *bos;
    } models[] = {
        {"small-deepseek_v3", "deepseek-v3", NULL},
        {"small-gptoss", "gpt-4o", NULL},
        {"small-llama3", "llama-bpe", "<|begin_of_text|>"},
        {"small-qwen3", "qwen2", NULL},
    };
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        char name[128];
        snprintf(name, sizeof(name), "%s/tokenizer.json", models[m].family);
        json_t *root = golden_json(name);
        snprintf(name, sizeof(name), "%s/golden.json", models[m].family);
        json_t *rows = golden_json(name);
        tt_tokenizer *twin = golden_tokenizer(models[m].family);
        gguf g;
        describe(root, models[m].pre, &g);
        g.v.bos_id = models[m].bos ? tt_tokenizer_special_id(twin, models[m].bos) : -1;
        tt_tokenizer *tokenizer = make(&g);
        /* The name of the splitter may ask for BOS; the small files' post-processors do not. */
        tt_ids empty = encode(tokenizer, "", TT_ENCODE_SPECIAL);
        assert_int_equal(empty.n, models[m].bos ? 1 : 0);
        tt_ids_fini(&empty);
        tt_tokenizer_destroy(&tokenizer);
        g.v.add_bos = TTI_GGUF_NO;
        tokenizer = make(&g);
        gguf_fini(&g);
        assert_int_equal(tt_tokenizer_n_ids(tokenizer), tt_tokenizer_n_ids(twin));
        for (int32_t id = 0; id < tt_tokenizer_n_ids(twin); id++) {
            assert_int_equal(tt_tokenizer_id_is_known(tokenizer, id),
                             tt_tokenizer_id_is_known(twin, id));
            assert_int_equal(tt_tokenizer_id_is_special(tokenizer, id),
                             tt_tokenizer_id_is_special(twin, id));
        }
        assert_true(json_array_size(rows) > GOLDEN_ROWS_MIN);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i), *text = json_object_get(row, "text");
            const json_t *ids = json_object_get(row, "ids");
            const json_t *special = json_object_get(row, "with_special");
            const char *s = json_string_value(text);
            size_t n = json_string_length(text);
            assert_encodes(tokenizer, s, n, TT_ENCODE_PLAIN, ids);
            assert_encodes(tokenizer, s, n, TT_ENCODE_SPECIAL,
                           json_is_null(special) ? ids : special);
            tt_ids mine = {0};
            assert_int_equal(tt_tokenizer_encode(tokenizer, s, n, TT_ENCODE_PLAIN, &mine), TT_OK);
            assert_text(tokenizer, &mine, false, json_object_get(row, "decoded"));
            assert_text(tokenizer, &mine, true, json_object_get(row, "decoded_skip"));
            tt_ids_fini(&mine);
        }
        tt_tokenizer_destroy(&tokenizer);
        tt_tokenizer_destroy(&twin);
        json_decref(rows);
        json_decref(root);
    }
}

static void every_splitter_cuts_as_its_family_does(void **state)
{
    (void)state;
    json_t *root = golden_json("small-gptoss/tokenizer.json"),
           *file = golden_json("splitters.json");
    const json_t *texts = json_object_get(file, "texts"), *kinds = json_object_get(file, "kinds");
    assert_true(json_array_size(texts) > GOLDEN_ROWS_MIN);
    assert_true(json_array_size(kinds) > 10);
    for (size_t k = 0; k < json_array_size(kinds); k++) {
        const json_t *kind = json_array_get(kinds, k), *names = json_object_get(kind, "names");
        for (size_t m = 0; m < json_array_size(names); m++) {
            gguf g;
            describe(root, json_string_value(json_array_get(names, m)), &g);
            g.v.add_bos = TTI_GGUF_NO;
            tt_tokenizer *tokenizer = make(&g);
            gguf_fini(&g);
            assert_encodes_each(tokenizer, texts, TT_ENCODE_SPECIAL, json_object_get(kind, "ids"));
            tt_tokenizer_destroy(&tokenizer);
        }
    }
    json_decref(root);
    json_decref(file);
}

typedef struct run {
    const tt_tokenizer *tokenizer;
    const char *unit, *head;
    size_t n; /* bytes */
    tt_status st;
    double seconds;
} run;

static void *encode_run(void *data)
{
    run *r = data;
    tt_text text = {0};
    tt_ids ids = {0};
    r->st = tt_text_append(&text, r->head, strlen(r->head));
    while (r->st == TT_OK && text.n < r->n) {
        r->st = tt_text_append(&text, r->unit, strlen(r->unit));
    }
    double start = thread_seconds();
    if (r->st == TT_OK) {
        r->st = tt_tokenizer_encode(r->tokenizer, text.bytes, text.n, TT_ENCODE_PLAIN, &ids);
    }
    r->seconds = thread_seconds() - start;
    tt_text_fini(&text);
    tt_ids_fini(&ids);
    return NULL;
}

/* A tool's output or a base64 blob: one class of character, very long. */
static void long_runs_do_not_stop_any_splitter(void **state)
{
    (void)state;
    enum { RUN_BYTES = 1 << 20, STACK_BYTES = 256 << 10 };
    double slowest = 0;
    static const double seconds_max = 30; /* sanitizers are slow; quadratic work takes minutes */
    static const char *const units[][2] = {
        {"Q", ""},         {"q", ""},       {".", ""},  {" ", ""},
        {"1", ""},         {"\n", ""},      {"us", ""}, {"\xe4\xb8\xad", ""},
        {"\xcc\x81", "q"}, {"\xd7\x90", ""}};
    json_t *root = golden_json("small-gptoss/tokenizer.json"),
           *file = golden_json("splitters.json");
    const json_t *kinds = json_object_get(file, "kinds");
    pthread_attr_t attributes;
    assert_int_equal(pthread_attr_init(&attributes), 0);
#if !defined(__SANITIZE_ADDRESS__)
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
#endif
    for (size_t k = 0; k < json_array_size(kinds); k++) {
        const json_t *names = json_object_get(json_array_get(kinds, k), "names");
        const char *name = json_string_value(json_array_get(names, 0));
        gguf g;
        describe(root, name, &g);
        g.v.add_bos = TTI_GGUF_NO;
        tt_tokenizer *tokenizer = make(&g);
        gguf_fini(&g);
        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
            run r = {
                .tokenizer = tokenizer, .unit = units[u][0], .head = units[u][1], .n = RUN_BYTES};
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, &attributes, encode_run, &r), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
            if (r.st != TT_OK || r.seconds > seconds_max) {
                fail_msg("%s: a run of \"%s\": %s, %.1f s", name, units[u][0], tt_status_name(r.st),
                         r.seconds);
            }
            slowest = r.seconds > slowest ? r.seconds : slowest;
        }
        tt_tokenizer_destroy(&tokenizer);
    }
    print_message("# the slowest run took %.0f ms\n", 1e3 * slowest);
    pthread_attr_destroy(&attributes);
    json_decref(file);
    json_decref(root);
}

/* ---- SentencePiece GGUF ---- */
static void describe_sentencepiece(const json_t *file, gguf *g)
{
    const json_t *tokens = json_object_get(file, "tokens"), *types = json_object_get(file, "types");
    const json_t *scores = json_object_get(file, "scores");
    gguf_init(g, json_array_size(tokens));
    for (size_t id = 0; id < g->v.n_tokens; id++) {
        g->token[id] = string_of(json_array_get(tokens, id));
        g->type[id] = (int32_t)json_integer_value(json_array_get(types, id));
        g->score[id] = (float)json_number_value(json_array_get(scores, id));
    }
    g->v.score = g->score;
    g->v.model = text_of("llama");
}

static void gguf_gives_the_ids_of_sentencepiece(void **state)
{
    (void)state;
    json_t *file = golden_json("sentencepiece.json");
    const json_t *rows = json_object_get(file, "rows");
    gguf g;
    describe_sentencepiece(file, &g);
    tt_tokenizer *tokenizer = make(&g);
    gguf_fini(&g);
    assert_true(json_array_size(rows) > GOLDEN_ROWS_MIN);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *text = json_object_get(row, "text");
        assert_encodes(tokenizer, json_string_value(text), json_string_length(text),
                       TT_ENCODE_LITERAL, json_object_get(row, "ids"));
        /* The ids say the text again, but for U+2581, which is how they say a space. */
        tt_ids ids = encode(tokenizer, json_string_value(text), TT_ENCODE_LITERAL);
        if (!strstr(json_string_value(text), "\xe2\x96\x81")) {
            assert_text(tokenizer, &ids, false, text);
        }
        tt_ids_fini(&ids);
    }
    /* BOS by default; 1 and 2 are the ids if no key says others. */
    assert_int_equal(tt_tokenizer_bos_id(tokenizer), 1);
    assert_int_equal(tt_tokenizer_eos_id(tokenizer), 2);
    tt_ids ids = encode(tokenizer, "", TT_ENCODE_SPECIAL);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.id[0], 1);
    tt_ids_fini(&ids);
    tt_tokenizer_destroy(&tokenizer);
    json_decref(file);
}

/* The plainest way: join the two neighbours whose concatenation has the highest score, the
 * leftmost of equals, as long as there are any. piece[n] are texts by offset. */
static void merge_plainly(const gguf *g, const char *text, size_t n, tt_ids *ids)
{
    size_t start[256], count = 0;
    for (size_t i = 0; i < n; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80) {
            assert_in_range(count, 0, 254);
            start[count++] = i;
        }
    }
    start[count] = n;
    for (;;) {
        size_t best = count;
        float best_score = 0;
        for (size_t k = 0; k + 1 < count; k++) {
            for (size_t id = 0; id < g->v.n_tokens; id++) {
                size_t length = start[k + 2] - start[k];
                if (g->type[id] == TTI_GGUF_NORMAL && g->token[id].n == length &&
                    memcmp(g->token[id].bytes, text + start[k], length) == 0 &&
                    (best == count || g->score[id] > best_score)) {
                    best = k;
                    best_score = g->score[id];
                }
            }
        }
        if (best == count) {
            break;
        }
        memmove(start + best + 1, start + best + 2, (count - best - 1) * sizeof(*start));
        count--;
    }
    for (size_t k = 0; k < count; k++) {
        int32_t id = -1;
        for (size_t t = 0; t < g->v.n_tokens && id < 0; t++) {
            if (g->type[t] == TTI_GGUF_NORMAL && g->token[t].n == start[k + 1] - start[k] &&
                memcmp(g->token[t].bytes, text + start[k], g->token[t].n) == 0) {
                id = (int32_t)t;
            }
        }
        if (id >= 0) {
            assert_int_equal(tt_ids_append(ids, &id, 1), TT_OK);
            continue;
        }
        for (size_t i = start[k]; i < start[k + 1]; i++) {
            char name[8];
            snprintf(name, sizeof(name), "<0x%02X>", (unsigned char)text[i]);
            for (size_t t = 0; t < g->v.n_tokens; t++) {
                if (g->token[t].n == 6 && memcmp(g->token[t].bytes, name, 6) == 0) {
                    id = (int32_t)t;
                }
            }
            assert_int_equal(tt_ids_append(ids, &id, 1), TT_OK);
        }
    }
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * UINT32_C(1664525) + UINT32_C(1013904223);
    return *seed >> 8;
}

/* Scores with many equals and tokens that many pairs make: where order matters most. */
static void scores_decide_as_in_the_plainest_program(void **state)
{
    (void)state;
    enum { TOKENS = 60, ROUNDS = 40, TEXTS = 60, LETTERS = 3 };
    uint32_t seed = 20260101;
    for (int round = 0; round < ROUNDS; round++) {
        char names[TOKENS][8];
        gguf g;
        gguf_init(&g, TOKENS + 256);
        size_t n = 0;
        for (size_t k = 0; k < TOKENS; k++) {
            size_t length = k < LETTERS ? 1 : 2 + next_random(&seed) % 5;
            for (size_t i = 0; i < length; i++) {
                names[n][i] = (char)('a' + (k < LETTERS ? k : next_random(&seed) % LETTERS));
            }
            names[n][length] = 0;
            bool is_new = true;
            for (size_t i = 0; i < n; i++) {
                is_new = is_new && strcmp(names[i], names[n]) != 0;
            }
            if (is_new) {
                g.token[n] = text_of(names[n]);
                g.type[n] = TTI_GGUF_NORMAL;
                g.score[n] = -(float)(next_random(&seed) % 8);
                n++;
            }
        }
        static char bytes[256][8];
        for (size_t b = 0; b < 256; b++) {
            snprintf(bytes[b], sizeof(bytes[b]), "<0x%02X>", (unsigned)b);
            g.token[n + b] = text_of(bytes[b]);
            g.type[n + b] = TTI_GGUF_BYTE;
        }
        g.v.n_tokens = n + 256;
        g.v.score = g.score;
        g.v.model = text_of("llama");
        g.v.add_bos = TTI_GGUF_NO;
        g.v.add_space_prefix = TTI_GGUF_NO;
        tt_tokenizer *tokenizer = make(&g);
        for (int k = 0; k < TEXTS; k++) {
            char text[64];
            size_t length = next_random(&seed) % (sizeof(text) - 1);
            for (size_t i = 0; i < length; i++) {
                text[i] = (char)('a' + next_random(&seed) % (k % 4 ? LETTERS : LETTERS + 1U));
            }
            tt_ids mine = {0}, plain = {0};
            assert_int_equal(tt_tokenizer_encode(tokenizer, text, length, 0, &mine), TT_OK);
            merge_plainly(&g, text, length, &plain);
            assert_int_equal(mine.n, plain.n);
            for (size_t i = 0; i < mine.n; i++) {
                assert_int_equal(mine.id[i], plain.id[i]);
            }
            tt_ids_fini(&mine);
            tt_ids_fini(&plain);
        }
        tt_tokenizer_destroy(&tokenizer);
        gguf_fini(&g);
    }
}

/* Mixtral's vocabulary as GGUF files hold it: scores in the order of merges. */
static void mixtral_gives_the_ids_of_its_tokenizer_json(void **state)
{
    (void)state;
    json_t *root = golden_json("small-mixtral/tokenizer.json");
    json_t *rows = golden_json("small-mixtral/golden.json");
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    gguf g;
    describe(root, "", &g);
    for (size_t id = 0; id < g.v.n_tokens; id++) {
        const char *s = g.token[id].bytes;
        g.score[id] = -1e6F;
        if (g.token[id].n == 6 && memcmp(s, "<0x", 3) == 0) {
            g.type[id] = TTI_GGUF_BYTE;
        }
        for (size_t k = 0; k < json_array_size(merges); k++) {
            const json_t *left = json_array_get(json_array_get(merges, k), 0);
            const json_t *right = json_array_get(json_array_get(merges, k), 1);
            size_t n_left = json_string_length(left), n_right = json_string_length(right);
            if (g.token[id].n == n_left + n_right &&
                memcmp(s, json_string_value(left), n_left) == 0 &&
                memcmp(s + n_left, json_string_value(right), n_right) == 0) {
                g.score[id] = -(float)k;
                break;
            }
        }
    }
    g.v.model = text_of("llama");
    g.v.score = g.score;
    g.v.add_bos = TTI_GGUF_NO;
    tt_tokenizer *tokenizer = make(&g);
    gguf_fini(&g);
    size_t n_equal = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *text = json_object_get(row, "text");
        assert_encodes(tokenizer, json_string_value(text), json_string_length(text),
                       TT_ENCODE_PLAIN, json_object_get(row, "ids"));
        const json_t *special = json_object_get(row, "with_special");
        assert_encodes(tokenizer, json_string_value(text), json_string_length(text),
                       TT_ENCODE_SPECIAL,
                       json_is_null(special) ? json_object_get(row, "ids") : special);
        n_equal++;
    }
    assert_true(n_equal > GOLDEN_ROWS_MIN);
    tt_tokenizer_destroy(&tokenizer);
    json_decref(rows);
    json_decref(root);
}

/* ---- keys ---- */
/* <unk> <s> </s> <|end|> <tool> bytes, U+2581, a, b, ab, filler. */
enum { TINY_BYTES = 5, TINY_TEXT = TINY_BYTES + 256, TINY_TOKENS = TINY_TEXT + 5 };

static void describe_tiny(gguf *g)
{
    static char bytes[256][8];
    static const char *const head[] = {"<unk>", "<s>", "</s>", "<|end|>", "<tool>"};
    static const char *const tail[] = {"\xe2\x96\x81", "a", "b", "ab", "[PAD9]"};
    static const int32_t types[] = {TTI_GGUF_UNKNOWN, TTI_GGUF_CONTROL, TTI_GGUF_CONTROL,
                                    TTI_GGUF_CONTROL, TTI_GGUF_USER_DEFINED};
    gguf_init(g, TINY_TOKENS);
    for (size_t k = 0; k < TINY_BYTES; k++) {
        g->token[k] = text_of(head[k]);
        g->type[k] = types[k];
    }
    for (size_t b = 0; b < 256; b++) {
        snprintf(bytes[b], sizeof(bytes[b]), "<0x%02X>", (unsigned)b);
        g->token[TINY_BYTES + b] = text_of(bytes[b]);
        g->type[TINY_BYTES + b] = TTI_GGUF_BYTE;
    }
    for (size_t k = 0; k < 5; k++) {
        g->token[TINY_TEXT + k] = text_of(tail[k]);
        g->type[TINY_TEXT + k] = k == 4 ? TTI_GGUF_UNUSED : TTI_GGUF_NORMAL;
        g->score[TINY_TEXT + k] = -(float)k;
    }
    g->v.score = g->score;
    g->v.model = text_of("llama");
}

static void assert_id_list(const tt_tokenizer *tokenizer, const char *text, unsigned flags,
                           const int32_t *expected, size_t n)
{
    tt_ids ids = encode(tokenizer, text, flags);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ids.id[i], expected[i]);
    }
    tt_ids_fini(&ids);
}

#define ASSERT_IDS(tokenizer, text, flags, ...)                                                    \
    do {                                                                                           \
        const int32_t expected_ids[] = {__VA_ARGS__};                                              \
        assert_id_list(tokenizer, text, flags, expected_ids,                                       \
                       sizeof(expected_ids) / sizeof(expected_ids[0]));                            \
    } while (0)

static void keys_mean_what_they_say(void **state)
{
    (void)state;
    enum { META = TINY_TEXT, A, B, AB };
    gguf g;
    describe_tiny(&g);
    tt_tokenizer *tokenizer = make(&g);
    /* A space before each stretch of text, also behind a token; user-defined tokens in any text. */
    ASSERT_IDS(tokenizer, "ab", TT_ENCODE_SPECIAL, 1, META, AB);
    ASSERT_IDS(tokenizer, " ab", TT_ENCODE_PLAIN, META, META, AB);
    ASSERT_IDS(tokenizer, "a<tool>b", TT_ENCODE_PLAIN, META, A, 4, META, B);
    ASSERT_IDS(tokenizer, "a</s>b", TT_ENCODE_PLAIN, META, A, 2, META, B);
    ASSERT_IDS(tokenizer, "\n", TT_ENCODE_PLAIN, META, TINY_BYTES + '\n');
    ASSERT_IDS(tokenizer, "<s>ab", TT_ENCODE_SPECIAL, 1, META, AB); /* BOS comes once */
    /* In a user's words a control token is text, though its bytes are in reach. */
    tt_ids ids = encode(tokenizer, "</s><|end|>", TT_ENCODE_LITERAL);
    for (size_t i = 0; i < ids.n; i++) {
        assert_false(tt_tokenizer_id_is_special(tokenizer, ids.id[i]));
    }
    tt_ids_fini(&ids);
    assert_true(tt_tokenizer_id_is_special(tokenizer, 2));
    assert_true(tt_tokenizer_id_is_special(tokenizer, 0));
    assert_false(tt_tokenizer_id_is_special(tokenizer, 4));
    assert_false(tt_tokenizer_id_is_known(tokenizer, TINY_TOKENS - 1)); /* a filler */
    size_t n;
    const int32_t *stop = tti_tokenizer_stop_ids(tokenizer, &n);
    assert_int_equal(n, 2); /* </s> by default, <|end|> by its name */
    assert_int_equal(stop[0], 2);
    assert_int_equal(stop[1], 3);
    tt_tokenizer_destroy(&tokenizer);

    g.v.add_space_prefix = TTI_GGUF_NO;
    g.v.add_bos = TTI_GGUF_NO;
    g.v.add_eos = TTI_GGUF_YES;
    g.v.eos_id = 3;
    g.v.eot_id = 2;
    g.v.eom_id = INT64_C(0xffffffff); /* how some converters write "none" */
    g.v.chat_template = text_of("{{ bos_token }}");
    tokenizer = make(&g);
    ASSERT_IDS(tokenizer, "ab b", TT_ENCODE_SPECIAL, AB, META, B, 3);
    assert_int_equal(tt_tokenizer_eos_id(tokenizer), 3);
    assert_true(tt_tokenizer_has_chat_template(tokenizer));
    stop = tti_tokenizer_stop_ids(tokenizer, &n);
    assert_int_equal(n, 2);
    tt_tokenizer_destroy(&tokenizer);

    /* Phi: spaces behind a special token belong to it. */
    g.v.architecture = text_of("phimoe");
    tokenizer = make(&g);
    ASSERT_IDS(tokenizer, "a<|end|> \n b<s> b", TT_ENCODE_PLAIN, A, 3, B, 1, META, B);
    tt_tokenizer_destroy(&tokenizer);
    gguf_fini(&g);
}

static void refused(const gguf *g, tt_status st, const char *word)
{
    tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tti_tokenizer_from_gguf(&g->v, &tokenizer), st);
    assert_null(tokenizer);
    assert_non_null(strstr(tt_status_message(), "made-up.gguf"));
    if (!strstr(tt_status_message(), word)) {
        fail_msg("\"%s\" does not say \"%s\"", tt_status_message(), word);
    }
}

static void odd_gguf_vocabularies_are_refused(void **state)
{
    (void)state;
    gguf g;
    describe_tiny(&g);
    g.v.model = text_of("t5");
    refused(&g, TT_ERR_UNSUPPORTED, "\"t5\"");
    g.v.model = text_of("gpt2");
    refused(&g, TT_ERR_UNSUPPORTED, "tokenizer.ggml.pre is missing");
    g.v.pre = text_of("nobody-knows");
    refused(&g, TT_ERR_UNSUPPORTED, "\"nobody-knows\"");
    g.v.pre = text_of("qwen2");
    refused(&g, TT_ERR_FILE, "tokenizer.ggml.merges is missing");
    static const char *const merges[] = {"ab", "a", "", "a b c", "x y"};
    static const char *const words[] = {"merge 0", "merge 0", "merge 0", "\"b c\"", "\"x\""};
    for (size_t k = 0; k < sizeof(merges) / sizeof(merges[0]); k++) {
        tti_gguf_string merge = text_of(merges[k]);
        g.v.merge = &merge;
        g.v.n_merges = 1;
        refused(&g, TT_ERR_FILE, words[k]);
    }
    g.v.merge = NULL;
    g.v.n_merges = 0;
    g.v.model = text_of("llama");
    g.v.score = NULL;
    refused(&g, TT_ERR_FILE, "tokenizer.ggml.scores");
    g.v.score = g.score;
    g.score[7] = (float)(0.0 / 0.0 * (g.score[7] + 1));
    refused(&g, TT_ERR_FILE, "score 7");
    g.score[7] = 0;
    g.token[3] = text_of("\xff");
    refused(&g, TT_ERR_FILE, "token 3");
    g.token[3] = text_of("a");
    g.type[3] = TTI_GGUF_NORMAL;
    refused(&g, TT_ERR_FILE, "stands twice");
    g.token[3] = (tti_gguf_string){NULL, 0};
    tt_tokenizer *tokenizer = make(&g);
    assert_false(tt_tokenizer_id_is_known(tokenizer, 3));
    tt_tokenizer_destroy(&tokenizer);
    g.token[1] = g.token[3];
    refused(&g, TT_ERR_FILE, "bos_token_id");
    g.v.add_bos = TTI_GGUF_NO;
    g.v.add_eos = TTI_GGUF_YES;
    g.token[2] = g.token[3];
    refused(&g, TT_ERR_FILE, "eos_token_id");
    g.v.n_tokens = 0;
    refused(&g, TT_ERR_FILE, "tokenizer.ggml.tokens");
    gguf_fini(&g);
}

/* ---- tiktoken ---- */
static void tiktoken_files_give_the_ids_of_the_library(void **state)
{
    (void)state;
    json_t *rows = golden_json("tiktoken/golden.json");
    tt_tokenizer *tokenizer = golden_tokenizer("tiktoken");
    assert_true(json_array_size(rows) > GOLDEN_ROWS_MIN);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *text = json_object_get(row, "text");
        assert_encodes(tokenizer, json_string_value(text), json_string_length(text),
                       TT_ENCODE_SPECIAL, json_object_get(row, "ids"));
        tt_ids ids = {0};
        assert_int_equal(tt_tokenizer_encode(tokenizer, json_string_value(text),
                                             json_string_length(text), TT_ENCODE_PLAIN, &ids),
                         TT_OK);
        assert_text(tokenizer, &ids, false, json_object_get(row, "decoded"));
        tt_ids_fini(&ids);
    }
    int32_t bos = tt_tokenizer_bos_id(tokenizer);
    assert_int_equal(bos, tt_tokenizer_special_id(tokenizer, "[BOS]"));
    assert_int_equal(tt_tokenizer_eos_id(tokenizer), bos + 1);
    assert_int_equal(tt_tokenizer_n_ids(tokenizer), bos + 256);
    ASSERT_IDS(tokenizer, "[BOS][EOS]", TT_ENCODE_PLAIN, bos, bos + 1);
    tt_ids literal = encode(tokenizer, "[BOS]", TT_ENCODE_LITERAL);
    assert_true(literal.n > 1);
    tt_ids_fini(&literal);
    tt_tokenizer_destroy(&tokenizer);
    json_decref(rows);
}

static void odd_tiktoken_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *config, *word;
    } rows[] = {
        {"", NULL, "no tokens"},
        {"\n\n", NULL, "no tokens"},
        {"YQ==", NULL, "line 1"},
        {"YQ== 0\nYg==", NULL, "line 2"},
        {"YQ== 0\nYg== x", NULL, "line 2"},
        {"YQ== 0\nYg== 1 2", NULL, "line 2"},
        {"YQ== 0\nYg== -1", NULL, "line 2"},
        {"YQ== 99999999999999999999", NULL, "line 1"},
        {"YQ== 99999999", NULL, "line 1: the rank is not a number below 16777216"},
        {"YQ== 999999", NULL, "reserved_token_1000000"},
        {"Y*== 0", NULL, "base64"},
        {"YQ= 0", NULL, "base64"},
        {"Y=== 0", NULL, "base64"},
        {" 0", NULL, "base64"},
        {"YQ== 0\nYQ== 1", NULL, "twice"},
        {"YQ== 0\nYg== 0", NULL, "two tokens"},
        {"YQ== 0", "{\"added_tokens_decoder\": []}", "added_tokens_decoder"},
        {"YQ== 0", "{\"added_tokens_decoder\": {\"0\": {\"content\": \"x\"}}}", "\"0\""},
        {"YQ== 0", "{\"added_tokens_decoder\": {\"1x\": {\"content\": \"x\"}}}", "\"1x\""},
        {"YQ== 0", "{\"added_tokens_decoder\": {\"1\": {\"content\": 1}}}", "content"},
        {"YQ== 0", "{\"added_tokens_decoder\": {\"9999999\": {\"content\": \"x\"}}}", "9999999"},
    };
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        tt_tokenizer *tokenizer;
        assert_int_equal(tti_tokenizer_new(&tokenizer), TT_OK);
        tt_status st = tti_tokenizer_from_tiktoken(
            "here/tiktoken.model", rows[k].text, strlen(rows[k].text), "here/tokenizer_config.json",
            rows[k].config, rows[k].config ? strlen(rows[k].config) : 0, tokenizer);
        if (st != TT_ERR_FILE || !strstr(tt_status_message(), rows[k].word) ||
            !strstr(tt_status_message(), "here/")) {
            fail_msg("\"%s\": %s: %s", rows[k].text, tt_status_name(st),
                     st == TT_OK ? "" : tt_status_message());
        }
        tt_tokenizer_destroy(&tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_gives_the_ids_of_tokenizer_json),
        cmocka_unit_test(every_splitter_cuts_as_its_family_does),
        cmocka_unit_test(long_runs_do_not_stop_any_splitter),
        cmocka_unit_test(gguf_gives_the_ids_of_sentencepiece),
        cmocka_unit_test(scores_decide_as_in_the_plainest_program),
        cmocka_unit_test(mixtral_gives_the_ids_of_its_tokenizer_json),
        cmocka_unit_test(keys_mean_what_they_say),
        cmocka_unit_test(odd_gguf_vocabularies_are_refused),
        cmocka_unit_test(tiktoken_files_give_the_ids_of_the_library),
        cmocka_unit_test(odd_tiktoken_files_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tokenizer kinds", tests, NULL, NULL);
}
