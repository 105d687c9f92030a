/* test_tokenizer.c - text to ids: every row that the reference library gave, each component by
 * itself, texts that break weaker engines, and what the encode flags promise. */
#include "tokenizer_fixture.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void every_golden_row_gets_its_ids(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FAMILIES; f++) {
        char name[FIXTURE_PATH_BYTES / 4];
        snprintf(name, sizeof(name), "%s/golden.json", families[f]);
        json_t *rows = golden_json(name);
        tt_tokenizer *tokenizer = golden_tokenizer(families[f]);
        assert_true(json_array_size(rows) >= 300);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i), *text = json_object_get(row, "text");
            const json_t *ids = json_object_get(row, "ids"),
                         *special = json_object_get(row, "with_special");
            const char *s = json_string_value(text);
            size_t n = json_string_length(text);
            assert_encodes(tokenizer, s, n, TT_ENCODE_PLAIN, ids);
            assert_encodes(tokenizer, s, n, TT_ENCODE_SPECIAL,
                           json_is_null(special) ? ids : special);
        }
        tt_tokenizer_destroy(&tokenizer);
        json_decref(rows);
    }
}

/* A base tokenizer with some of its components exchanged. */
static json_t *overridden(const json_t *test)
{
    char name[FIXTURE_PATH_BYTES / 4];
    snprintf(name, sizeof(name), "%s/tokenizer.json",
             json_string_value(json_object_get(test, "base")));
    json_t *root = golden_json(name), *value;
    const char *key;
    json_object_foreach(json_object_get(test, "override"), key, value)
    {
        if (strcmp(key, "model") == 0) {
            json_object_update(json_object_get(root, "model"), value);
        } else {
            json_object_set(root, key, value);
        }
    }
    return root;
}

static void assert_decodes(const tt_tokenizer *tokenizer, const json_t *ids_json, bool skip,
                           const json_t *expected, const char *what)
{
    size_t n = json_array_size(ids_json);
    int32_t *id = calloc(n + 1, sizeof(*id));
    assert_non_null(id);
    for (size_t i = 0; i < n; i++) {
        id[i] = (int32_t)json_integer_value(json_array_get(ids_json, i));
    }
    tt_text text = {0};
    assert_int_equal(tt_tokenizer_decode(tokenizer, id, n, skip, &text), TT_OK);
    if (text.n != json_string_length(expected) ||
        memcmp(text.bytes, json_string_value(expected), text.n) != 0) {
        fail_msg("%s: decoded \"%s\", not \"%s\"", what, text.bytes, json_string_value(expected));
    }
    tt_text_fini(&text);
    free(id);
}

/* Strings of many kinds, drawn at random once; benchmarks/accept/02-4 draws as many as wanted. */
static void random_strings_agree_with_the_reference(void **state)
{
    (void)state;
    json_t *root = golden_json("random.json");
    assert_int_equal(json_array_size(root), N_FAMILIES);
    for (size_t f = 0; f < json_array_size(root); f++) {
        const json_t *family = json_array_get(root, f), *rows = json_object_get(family, "rows");
        const char *name = json_string_value(json_object_get(family, "name"));
        tt_tokenizer *tokenizer = golden_tokenizer(name);
        assert_true(json_array_size(rows) >= 50);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i), *text = json_object_get(row, "text");
            assert_encodes(tokenizer, json_string_value(text), json_string_length(text),
                           TT_ENCODE_PLAIN, json_object_get(row, "ids"));
            assert_decodes(tokenizer, json_object_get(row, "ids"), false,
                           json_object_get(row, "decoded"), name);
        }
        tt_tokenizer_destroy(&tokenizer);
    }
    json_decref(root);
}

static void patterns_match_as_in_the_reference(void **state)
{
    (void)state;
    json_t *root = golden_json("patterns.json");
    const json_t *texts = json_object_get(root, "texts");
    const json_t *patterns = json_object_get(root, "patterns");
    assert_true(json_array_size(patterns) >= 10);
    for (size_t k = 0; k < json_array_size(patterns); k++) {
        const json_t *row = json_array_get(patterns, k);
        json_t *file = golden_json("small-gptoss/tokenizer.json");
        json_t *steps = json_pack("{s:s, s:[{s:s, s:{s:O}, s:s, s:b}, {s:s, s:b, s:b}]}", "type",
                                  "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
                                  json_object_get(row, "pattern"), "behavior", "Isolated", "invert",
                                  0, "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0);
        assert_non_null(steps);
        json_object_set_new(file, "pre_tokenizer", steps);
        tt_tokenizer *tokenizer = make_tokenizer(file, NULL, NULL);
        assert_encodes_each(tokenizer, texts, TT_ENCODE_PLAIN, json_object_get(row, "ids"));
        tt_tokenizer_destroy(&tokenizer);
        json_decref(file);
    }
    json_decref(root);
}

static void every_component_agrees_with_the_reference(void **state)
{
    (void)state;
    json_t *root = golden_json("components.json");
    const json_t *tests = json_object_get(root, "cases");
    assert_true(json_array_size(tests) >= 50);
    for (size_t k = 0; k < json_array_size(tests); k++) {
        const json_t *test = json_array_get(tests, k), *rows = json_object_get(test, "rows");
        const char *name = json_string_value(json_object_get(test, "name"));
        json_t *tokenizer_json = overridden(test);
        tt_tokenizer *tokenizer = make_tokenizer(tokenizer_json, NULL, NULL);
        assert_true(json_array_size(rows) > 0);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i), *text = json_object_get(row, "text");
            const char *s = json_string_value(text);
            size_t n = json_string_length(text);
            assert_encodes(tokenizer, s, n, TT_ENCODE_PLAIN, json_object_get(row, "ids"));
            assert_encodes(tokenizer, s, n, TT_ENCODE_SPECIAL,
                           json_object_get(row, "with_special"));
            assert_encodes(tokenizer, s, n, TT_ENCODE_LITERAL, json_object_get(row, "literal"));
            assert_decodes(tokenizer, json_object_get(row, "decode"), false,
                           json_object_get(row, "decoded"), name);
            assert_decodes(tokenizer, json_object_get(row, "decode"), true,
                           json_object_get(row, "decoded_skip"), name);
        }
        tt_tokenizer_destroy(&tokenizer);
        json_decref(tokenizer_json);
    }
    json_decref(root);
}

static void broken_utf8_becomes_replacement_characters(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xf0\x9f\x98", "\xef\xbf\xbd"},
        {"\xf0\x9f"
         "A",
         "\xef\xbf\xbd"
         "A"},
        {"\xed\xa0\x80",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate: no byte of it begins anything */
        {"\xc0\xaf\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t f = 0; f < N_FAMILIES; f++) {
        tt_tokenizer *tokenizer = golden_tokenizer(families[f]);
        for (size_t k = 0; k < sizeof(pairs) / sizeof(pairs[0]); k++) {
            tt_ids broken = encode(tokenizer, pairs[k][0], 0),
                   clean = encode(tokenizer, pairs[k][1], 0);
            assert_int_equal(broken.n, clean.n);
            assert_memory_equal(broken.id, clean.id, clean.n * sizeof(*clean.id));
            tt_ids_fini(&broken);
            tt_ids_fini(&clean);
        }
        tt_tokenizer_destroy(&tokenizer);
    }
}

/* ---- long runs of one class: field faults of recursive pattern engines and quadratic merging
 * ---- */
enum { RUN_BYTES = 1 << 20, SMALL_STACK_BYTES = 256 * 1024 };
static const double RUN_SECONDS_MAX =
    20; /* of a CPU: a sanitizer build takes a few; a quadratic one takes hours */

typedef struct long_run {
    const tt_tokenizer *tokenizer;
    const char *unit; /* repeated */
    const char *head; /* once, before */
    double seconds;
    tt_status st;
    bool same; /* the ids say the text again */
} long_run;

static void *encode_long_run(void *data)
{
    long_run *r = data;
    size_t n_head = strlen(r->head), n_unit = strlen(r->unit), count = RUN_BYTES / n_unit;
    char *text = malloc(n_head + n_unit * count + 1);
    if (!text) {
        r->st = TT_ERR_NOMEM;
        return NULL;
    }
    memcpy(text, r->head, n_head);
    for (size_t k = 0; k < count; k++) {
        memcpy(text + n_head + k * n_unit, r->unit, n_unit);
    }
    tt_ids ids = {0};
    tt_text again = {0};
    double start = thread_seconds();
    r->st = tt_tokenizer_encode(r->tokenizer, text, n_head + n_unit * count, TT_ENCODE_PLAIN, &ids);
    r->seconds = thread_seconds() - start;
    if (r->st == TT_OK) {
        r->st = tt_tokenizer_decode(r->tokenizer, ids.id, ids.n, false, &again);
    }
    r->same = r->st == TT_OK && again.n == n_head + n_unit * count &&
              memcmp(again.bytes, text, again.n) == 0;
    tt_ids_fini(&ids);
    tt_text_fini(&again);
    free(text);
    return NULL;
}

static void long_runs_take_linear_time_and_no_stack(void **state)
{
    (void)state;
    static const char *const units[][2] = {
        {" ", ""},
        {"a", ""},
        {"Q", ""},
        {".", ""},
        {"1", ""},
        {"\n", ""},
        {"\xe4\xb8\xad", ""},
        {"us", ""},
        {"\xf0\x9f\x98\x80", ""},
        {"\xcc\x81", "q"},
        {"\xcc\x81\xcc\x96", "q"},
        {" \r", "x"},
        {"<|", ""},
        {"'", ""},
        {"\t ", "\n"},
    };
    pthread_attr_t attributes;
    assert_int_equal(pthread_attr_init(&attributes), 0);
#if !defined(__SANITIZE_ADDRESS__)
    assert_int_equal(pthread_attr_setstacksize(&attributes, SMALL_STACK_BYTES), 0);
#endif
    for (size_t f = 0; f < N_FAMILIES; f++) {
        tt_tokenizer *tokenizer = golden_tokenizer(families[f]);
        for (size_t k = 0; k < sizeof(units) / sizeof(units[0]); k++) {
            long_run r = {.tokenizer = tokenizer, .unit = units[k][0], .head = units[k][1]};
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, &attributes, encode_long_run, &r), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
            assert_int_equal(r.st, TT_OK);
            if (r.seconds > RUN_SECONDS_MAX) {
                fail_msg("%s: 1 MiB of \"%s\" took %.1f s", families[f], units[k][0], r.seconds);
            }
            /* Qwen's normaliser may reorder marks, so its text need not come back byte for byte. */
            bool reorders =
                strcmp(families[f], "small-qwen3") == 0 && strstr(units[k][0], "\xcc\x81");
            assert_true(r.same || reorders);
        }
        tt_tokenizer_destroy(&tokenizer);
    }
    pthread_attr_destroy(&attributes);
}

/* The ids of a run in a long text are those of the run in a short one, so length alone changes
 * nothing. */
static void long_runs_get_the_ids_of_short_ones(void **state)
{
    (void)state;
    enum { DIGITS = 3 * 1000 };
    tt_tokenizer *tokenizer = golden_tokenizer("small-llama3");
    char text[DIGITS + 1];
    memset(text, '1', DIGITS);
    text[DIGITS] = 0;
    tt_ids one = encode(tokenizer, "111", 0), many = encode(tokenizer, text, 0);
    assert_int_equal(many.n, one.n * DIGITS / 3);
    for (size_t i = 0; i < many.n; i++) {
        assert_int_equal(many.id[i], one.id[i % one.n]);
    }
    tt_ids_fini(&one);
    tt_ids_fini(&many);
    tt_tokenizer_destroy(&tokenizer);
}

static void literal_text_holds_no_special_id(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FAMILIES; f++) {
        tt_tokenizer *tokenizer = golden_tokenizer(families[f]);
        for (int32_t id = 0; id < tt_tokenizer_n_ids(tokenizer); id++) {
            if (!tt_tokenizer_id_is_special(tokenizer, id)) {
                continue;
            }
            size_t n;
            const char *content = tt_tokenizer_id_bytes(tokenizer, id, &n);
            assert_int_equal(tt_tokenizer_special_id(tokenizer, content), id);
            tt_ids plain = encode(tokenizer, content, TT_ENCODE_PLAIN),
                   literal = encode(tokenizer, content, TT_ENCODE_LITERAL);
            assert_int_equal(plain.n, 1);
            assert_int_equal(plain.id[0], id);
            for (size_t i = 0; i < literal.n; i++) {
                assert_false(tt_tokenizer_id_is_special(tokenizer, literal.id[i]));
            }
            tt_text text = {0};
            assert_int_equal(tt_tokenizer_decode(tokenizer, literal.id, literal.n, true, &text),
                             TT_OK);
            assert_string_equal(text.bytes, content);
            tt_text_fini(&text);
            tt_ids_fini(&plain);
            tt_ids_fini(&literal);
        }
        tt_tokenizer_destroy(&tokenizer);
    }
}

static void bos_comes_once(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"add_bos_token\": true, \"bos_token\": \"<|begin_of_text|>\"}",
        "{\"add_bos_token\": true, \"bos_token\": {\"content\": \"<|begin_of_text|>\", \"lstrip\": "
        "false}}",
    };
    json_t *root = golden_json("small-llama3/tokenizer.json");
    for (size_t k = 0; k < sizeof(configs) / sizeof(configs[0]); k++) {
        tt_tokenizer *tokenizer = make_tokenizer(root, configs[k], NULL);
        assert_int_equal(tt_tokenizer_bos_id(tokenizer), 0);
        assert_int_equal(tt_tokenizer_eos_id(tokenizer), -1);
        tt_ids plain = encode(tokenizer, "hello", TT_ENCODE_PLAIN),
               once = encode(tokenizer, "hello", TT_ENCODE_SPECIAL);
        tt_ids spelled = encode(tokenizer, "<|begin_of_text|>hello", TT_ENCODE_SPECIAL);
        tt_ids empty = encode(tokenizer, "", TT_ENCODE_SPECIAL);
        assert_int_equal(once.n, plain.n + 1);
        assert_int_equal(once.id[0], 0);
        assert_memory_equal(once.id + 1, plain.id, plain.n * sizeof(*plain.id));
        assert_int_equal(spelled.n, once.n);
        assert_memory_equal(spelled.id, once.id, once.n * sizeof(*once.id));
        assert_int_equal(empty.n, 1);
        tt_ids_fini(&plain);
        tt_ids_fini(&once);
        tt_ids_fini(&spelled);
        tt_ids_fini(&empty);
        tt_tokenizer_destroy(&tokenizer);
    }
    json_decref(root);
}

/* Many threads share one tokenizer; its memo of whole tokens is the one thing they write. */
enum { N_THREADS = 4, ROUNDS = 30 };
static void *encode_repeatedly(void *data)
{
    const tt_tokenizer *tokenizer = data;
    static const char text[] =
        "The quick brown fox, don't jump 1234 times\n\n  over café \xe4\xb8\x96\xe7\x95\x8c";
    tt_ids first = {0};
    bool same = tt_tokenizer_encode(tokenizer, text, strlen(text), 0, &first) == TT_OK;
    for (int k = 0; k < ROUNDS && same; k++) {
        tt_ids ids = {0};
        same = tt_tokenizer_encode(tokenizer, text, strlen(text), 0, &ids) == TT_OK &&
               ids.n == first.n && memcmp(ids.id, first.id, ids.n * sizeof(*ids.id)) == 0;
        tt_ids_fini(&ids);
    }
    tt_ids_fini(&first);
    return same ? data : NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    tt_tokenizer *tokenizer = golden_tokenizer("small-qwen3");
    pthread_t thread[N_THREADS];
    for (size_t k = 0; k < N_THREADS; k++) {
        assert_int_equal(pthread_create(&thread[k], NULL, encode_repeatedly, tokenizer), 0);
    }
    for (size_t k = 0; k < N_THREADS; k++) {
        void *result = NULL;
        assert_int_equal(pthread_join(thread[k], &result), 0);
        assert_ptr_equal(result, tokenizer);
    }
    tt_tokenizer_destroy(&tokenizer);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    tt_tokenizer *tokenizer = golden_tokenizer("small-qwen3");
    tt_ids ids = {0};
    tt_text text = {0};
    assert_int_equal(tt_tokenizer_encode(tokenizer, NULL, 1, 0, &ids), TT_ERR_ARG);
    assert_int_equal(tt_tokenizer_encode(tokenizer, "x", 1, 4, &ids), TT_ERR_ARG);
    assert_int_equal(tt_tokenizer_encode(tokenizer, NULL, 0, 0, &ids), TT_OK);
    const int32_t bad[] = {1, 1 << 30};
    assert_int_equal(tt_text_append(&text, "kept", 4), TT_OK);
    assert_int_equal(tt_tokenizer_decode(tokenizer, bad, 2, false, &text), TT_ERR_REQUEST);
    assert_string_equal(text.bytes, "kept");
    const int32_t negative = -1;
    assert_int_equal(tt_tokenizer_decode(tokenizer, &negative, 1, false, &text), TT_ERR_REQUEST);
    assert_false(tt_tokenizer_id_is_known(tokenizer, tt_tokenizer_n_ids(tokenizer)));
    assert_true(tt_tokenizer_id_is_known(tokenizer, tt_tokenizer_n_ids(tokenizer) - 1));
    assert_int_equal(tt_tokenizer_special_id(tokenizer, "no such token"), -1);
    tt_text_fini(&text);
    tt_ids_fini(&ids);
    tt_tokenizer_destroy(&tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_row_gets_its_ids),
        cmocka_unit_test(random_strings_agree_with_the_reference),
        cmocka_unit_test(patterns_match_as_in_the_reference),
        cmocka_unit_test(every_component_agrees_with_the_reference),
        cmocka_unit_test(broken_utf8_becomes_replacement_characters),
        cmocka_unit_test(long_runs_take_linear_time_and_no_stack),
        cmocka_unit_test(long_runs_get_the_ids_of_short_ones),
        cmocka_unit_test(literal_text_holds_no_special_id),
        cmocka_unit_test(bos_comes_once),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(arguments_are_checked),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
