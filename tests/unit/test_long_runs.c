/* test_long_runs.c - long runs of one character get the reference library's ids, for a work that
 * grows with their length alone; and templates of tokenizers begin a text once. */
#include "tokenizer_fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *make_run(const char *head, const char *unit, size_t count, size_t *n_out)
{
    size_t n_head = strlen(head), n_unit = strlen(unit);
    char *text = malloc(n_head + n_unit * count + 1);
    assert_non_null(text);
    memcpy(text, head, n_head);
    for (size_t i = 0; i < count; i++) {
        memcpy(text + n_head + i * n_unit, unit, n_unit);
    }
    *n_out = n_head + n_unit * count;
    return text;
}

/* FNV-1a over the ids as four bytes each, least first, as make_long_runs.py does. */
static uint64_t hash_ids(const tt_ids *ids)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < ids->n; i++) {
        for (int shift = 0; shift < 32; shift += 8) {
            h = (h ^ ((uint32_t)ids->id[i] >> shift & 0xff)) * UINT64_C(0x100000001b3);
        }
    }
    return h;
}

static void long_runs_get_the_ids_of_the_reference(void **state)
{
    (void)state;
    json_t *all = golden_json("long_runs.json");
    for (size_t f = 0; f < N_FAMILIES; f++) {
        tt_tokenizer *tokenizer = golden_tokenizer(families[f]);
        const json_t *rows = json_object_get(all, families[f]);
        assert_true(json_array_size(rows) >= 16);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            const json_t *row = json_array_get(rows, r);
            const char *unit = json_string_value(json_object_get(row, "unit"));
            const char *head = json_string_value(json_object_get(row, "head"));
            size_t n, count = (size_t)json_integer_value(json_object_get(row, "count"));
            char *text = make_run(head, unit, count, &n), hash[32];
            tt_ids ids = {0};
            assert_int_equal(tt_tokenizer_encode(tokenizer, text, n, TT_ENCODE_PLAIN, &ids), TT_OK);
            snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)hash_ids(&ids));
            const char *want = json_string_value(json_object_get(row, "hash"));
            json_int_t n_want = json_integer_value(json_object_get(row, "n"));
            if ((json_int_t)ids.n != n_want || strcmp(hash, want) != 0) {
                fail_msg("%s: \"%s\" %zu times: %zu ids %s, wanted %lld ids %s", families[f], unit,
                         count, ids.n, hash, (long long)n_want, want);
            }
            tt_ids_fini(&ids);
            free(text);
        }
        tt_tokenizer_destroy(&tokenizer);
    }
    json_decref(all);
}

/* ---- time ---- */

enum { SHORT_RUN = 1 << 18, LONGER = 4, TRIES = 7 };
/* Per doubling, 2 is linear and 4 quadratic. Time of this thread, the best of some tries; two
 * doublings at once, as a busy machine adds to either. */
static const double growth_max = 2.5 * 2.5;

static double seconds_of(const tt_tokenizer *tokenizer, const char *text, size_t n)
{
    struct timespec a, b;
    tt_ids ids = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    assert_int_equal(tt_tokenizer_encode(tokenizer, text, n, TT_ENCODE_PLAIN, &ids), TT_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    tt_ids_fini(&ids);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

static void twice_the_length_costs_twice_the_work(void **state)
{
    (void)state;
    static const char *const units[] = {
        "Q", ".", " ", "1", "\n", "us", "\xf0\x9f\x98\x80", "\xe4\xb8\xad"};
    double worst = 0;
    for (size_t f = 0; f < N_FAMILIES; f++) {
        tt_tokenizer *tokenizer = golden_tokenizer(families[f]);
        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
            size_t n, n_unit = strlen(units[u]);
            char *text = make_run("", units[u], LONGER * SHORT_RUN / n_unit, &n);
            double best = 1e9, best_long = 1e9, growth = 1e9;
            for (int i = 0; i < TRIES && growth > growth_max; i++) {
                double one = seconds_of(tokenizer, text, n / LONGER);
                double all = seconds_of(tokenizer, text, n);
                best = one < best ? one : best;
                best_long = all < best_long ? all : best_long;
                growth = best_long / best;
            }
            if (growth > growth_max) {
                fail_msg("%s: four times \"%s\" cost %.1f times as much", families[f], units[u],
                         growth);
            }
            worst = growth > worst ? growth : worst;
            free(text);
        }
        tt_tokenizer_destroy(&tokenizer);
    }
    print_message("# four times the length cost at most %.2f times as much\n", worst);
}

/* ---- the beginning ---- */

/* A template of the tokenizer's own and add_bos_token do not add up, and what the text begins with
 * already is not begun again. */
static void templates_of_tokenizers_begin_once(void **state)
{
    (void)state;
    static const char processor[] =
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
        "\"<|begin_of_text|>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],"
        " \"pair\": [], \"special_tokens\": {\"<|begin_of_text|>\": {\"id\": "
        "\"<|begin_of_text|>\", \"ids\": [0], \"tokens\": [\"<|begin_of_text|>\"]}}}";
    static const char *const configs[] = {
        NULL, "{\"bos_token\": \"<|begin_of_text|>\"}",
        "{\"bos_token\": \"<|begin_of_text|>\", \"add_bos_token\": true}",
        "{\"bos_token\": \"<|begin_of_text|>\", \"add_bos_token\": false}"};
    json_t *root = golden_json("small-llama3/tokenizer.json");
    json_object_set_new(root, "post_processor", json_loads(processor, 0, NULL));
    for (size_t k = 0; k < sizeof(configs) / sizeof(configs[0]); k++) {
        tt_tokenizer *tokenizer = make_tokenizer(root, configs[k], NULL);
        tt_ids plain = encode(tokenizer, "hello", TT_ENCODE_PLAIN);
        static const char *const texts[] = {"hello", "<|begin_of_text|>hello"};
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            tt_ids ids = encode(tokenizer, texts[i], TT_ENCODE_SPECIAL);
            assert_int_equal(ids.n, plain.n + 1);
            assert_int_equal(ids.id[0], 0);
            assert_memory_equal(ids.id + 1, plain.id, plain.n * sizeof(*plain.id));
            tt_ids_fini(&ids);
        }
        tt_ids_fini(&plain);
        tt_tokenizer_destroy(&tokenizer);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_runs_get_the_ids_of_the_reference),
                                       cmocka_unit_test(twice_the_length_costs_twice_the_work),
                                       cmocka_unit_test(templates_of_tokenizers_begin_once)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
