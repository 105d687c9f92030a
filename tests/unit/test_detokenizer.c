/* test_detokenizer.c - ids to text, at once and as they come: both say the same, what the
 * reference library says. */
#include "tokenizer_fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

static void push(tt_detokenizer *d, int32_t id, tt_text *text)
{
    if (tt_detokenizer_push(d, id, text) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
}

/* Every push gives valid UTF-8 (no text ends inside a character), and all together is the text
 * decoded at once. */
static void assert_streams_alike(const tt_tokenizer *tokenizer, const int32_t *id, size_t n,
                                 bool skip)
{
    tt_text whole = {0}, streamed = {0};
    tt_detokenizer *d = NULL;
    assert_int_equal(tt_tokenizer_decode(tokenizer, id, n, skip, &whole), TT_OK);
    assert_int_equal(tt_detokenizer_create(tokenizer, skip, &d), TT_OK);
    /* Twice: after a flush it starts anew. */
    for (int round = 0; round < 2; round++) {
        streamed.n = 0;
        for (size_t i = 0; i < n; i++) {
            size_t before = streamed.n;
            push(d, id[i], &streamed);
            if (streamed.n > before) {
                json_t *valid = json_stringn(streamed.bytes + before, streamed.n - before);
                assert_non_null(valid);
                json_decref(valid);
            }
        }
        assert_int_equal(tt_detokenizer_flush(d, &streamed), TT_OK);
        assert_int_equal(streamed.n, whole.n);
        assert_true(whole.n == 0 || memcmp(streamed.bytes, whole.bytes, whole.n) == 0);
    }
    tt_detokenizer_destroy(&d);
    tt_text_fini(&whole);
    tt_text_fini(&streamed);
}

static void golden_rows_decode_and_stream(void **state)
{
    (void)state;
    static const char *const keys[] = {"decoded", "decoded_skip"};
    for (size_t f = 0; f < N_FAMILIES; f++) {
        char name[FIXTURE_PATH_BYTES / 4];
        snprintf(name, sizeof(name), "%s/golden.json", families[f]);
        json_t *rows = golden_json(name);
        tt_tokenizer *tokenizer = golden_tokenizer(families[f]);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i), *ids = json_object_get(row, "ids");
            size_t n = json_array_size(ids);
            int32_t *id = calloc(n + 1, sizeof(*id));
            assert_non_null(id);
            for (size_t k = 0; k < n; k++) {
                id[k] = (int32_t)json_integer_value(json_array_get(ids, k));
            }
            for (int skip = 0; skip < 2; skip++) {
                const json_t *expected = json_object_get(row, keys[skip]);
                tt_text text = {0};
                assert_int_equal(tt_tokenizer_decode(tokenizer, id, n, skip, &text), TT_OK);
                assert_int_equal(text.n, json_string_length(expected));
                assert_memory_equal(text.bytes, json_string_value(expected), text.n);
                tt_text_fini(&text);
                assert_streams_alike(tokenizer, id, n, skip);
            }
            free(id);
        }
        tt_tokenizer_destroy(&tokenizer);
        json_decref(rows);
    }
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * UINT32_C(1664525) + UINT32_C(1013904223);
    return *seed >> 8;
}

static void random_ids_stream_alike(void **state)
{
    (void)state;
    enum { ROUNDS = 2000, LENGTH_MAX = 24, BYTES_AND_SHORT = 300 };
    uint32_t seed = 20240607;
    print_message("# seed %u\n", (unsigned)seed);
    for (size_t f = 0; f < N_FAMILIES; f++) {
        tt_tokenizer *tokenizer = golden_tokenizer(families[f]);
        uint32_t n_ids = (uint32_t)tt_tokenizer_n_ids(tokenizer);
        for (int round = 0; round < ROUNDS; round++) {
            int32_t id[LENGTH_MAX];
            size_t n = next_random(&seed) % (LENGTH_MAX + 1);
            for (size_t i = 0; i < n; i++) {
                /* Half of them from the ids that are single bytes, so that characters are broken
                 * in all ways. */
                id[i] = (int32_t)(next_random(&seed) % (round % 2 ? n_ids : BYTES_AND_SHORT));
                assert_true(tt_tokenizer_id_is_known(tokenizer, id[i]));
            }
            assert_streams_alike(tokenizer, id, n, round % 4 < 2);
        }
        tt_tokenizer_destroy(&tokenizer);
    }
}

/* The stand-in of a byte in a byte-level vocabulary, as UTF-8 (the bytes used here: ASCII that
 * prints, and 0x80 and up). */
static void stand_in(unsigned char byte, char out[3])
{
    uint32_t c = byte;
    if ((byte >= 0x7f && byte <= 0xa0) || byte == 0xad) {
        c = byte == 0xad ? 0x143 : 0x121u + byte - 0x7f;
    }
    size_t n = 0;
    if (c < 0x80) {
        out[n++] = (char)c;
    } else {
        out[n++] = (char)(0xc0 | c >> 6);
        out[n++] = (char)(0x80 | (c & 0x3f));
    }
    out[n] = 0;
}

static int32_t find_token(const tt_tokenizer *tokenizer, const char *content)
{
    for (int32_t id = 0; id < tt_tokenizer_n_ids(tokenizer); id++) {
        size_t n;
        const char *bytes = tt_tokenizer_id_bytes(tokenizer, id, &n);
        if (bytes && n == strlen(content) && memcmp(bytes, content, n) == 0) {
            return id;
        }
    }
    fail_msg("no token \"%s\"", content);
    return -1;
}

static int32_t byte_id(const tt_tokenizer *tokenizer, unsigned char byte)
{
    char content[3];
    stand_in(byte, content);
    return find_token(tokenizer, content);
}

static void characters_split_over_tokens_come_whole(void **state)
{
    (void)state;
    tt_tokenizer *tokenizer = golden_tokenizer("small-llama3");
    static const unsigned char smile[] = {0xf0, 0x9f, 0x98, 0x80};
    tt_detokenizer *d = NULL;
    tt_text text = {0};
    assert_int_equal(tt_detokenizer_create(tokenizer, true, &d), TT_OK);
    assert_int_equal(tt_text_append(&text, "", 0), TT_OK);
    for (size_t i = 0; i < sizeof(smile); i++) {
        assert_int_equal(text.n, 0);
        push(d, byte_id(tokenizer, smile[i]), &text);
    }
    assert_string_equal(text.bytes, "\xf0\x9f\x98\x80");
    assert_int_equal(tt_detokenizer_flush(d, &text), TT_OK);
    assert_string_equal(text.bytes, "\xf0\x9f\x98\x80");

    /* Cut off inside a character: one mark, at the flush. */
    text.n = 0;
    for (size_t i = 0; i + 1 < sizeof(smile); i++) {
        push(d, byte_id(tokenizer, smile[i]), &text);
        assert_int_equal(text.n, 0);
    }
    assert_int_equal(tt_detokenizer_flush(d, &text), TT_OK);
    assert_string_equal(text.bytes, REPLACEMENT);

    /* Broken by the next byte: the mark and that byte at once. */
    text.n = 0;
    push(d, byte_id(tokenizer, 0xf0), &text);
    push(d, byte_id(tokenizer, 0x9f), &text);
    assert_int_equal(text.n, 0);
    push(d, byte_id(tokenizer, 'A'), &text);
    assert_string_equal(text.bytes, REPLACEMENT "A");
    assert_int_equal(tt_detokenizer_flush(d, &text), TT_OK);

    text.n = 0;
    push(d, byte_id(tokenizer, 0xff), &text);
    assert_string_equal(text.bytes, REPLACEMENT);
    assert_int_equal(tt_detokenizer_flush(d, &text), TT_OK);
    assert_string_equal(text.bytes, REPLACEMENT);
    tt_text_fini(&text);
    tt_detokenizer_destroy(&d);
    tt_tokenizer_destroy(&tokenizer);
}

static void byte_fallback_runs_stand_or_fall_together(void **state)
{
    (void)state;
    static const struct {
        const char *tokens[8];
        const char *text;
    } rows[] = {
        {{"<0xF0>", "<0x9F>", "<0x98>", "<0x80>"}, "\xf0\x9f\x98\x80"},
        {{"<0xF0>", "<0x9F>", "<0x98>"}, REPLACEMENT REPLACEMENT REPLACEMENT},
        {{"<0xF0>", "<0x9F>", "A"}, REPLACEMENT REPLACEMENT "A"},
        {{"<0xC3>", "<0xA9>", "<0xFF>", "A", "<0xC3>", "<0xA9>"},
         REPLACEMENT REPLACEMENT REPLACEMENT "A\xc3\xa9"},
        {{"\xe2\x96\x81", "A", "\xe2\x96\x81", "A"}, "A A"},
        {{"A", "\xe2\x96\x81", "A"}, "A A"},
    };
    tt_tokenizer *tokenizer = golden_tokenizer("small-mixtral");
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        int32_t id[sizeof(rows[k].tokens) / sizeof(rows[k].tokens[0])];
        size_t n = 0;
        while (n < sizeof(id) / sizeof(id[0]) && rows[k].tokens[n]) {
            id[n] = find_token(tokenizer, rows[k].tokens[n]);
            n++;
        }
        tt_text text = {0};
        assert_int_equal(tt_tokenizer_decode(tokenizer, id, n, true, &text), TT_OK);
        assert_string_equal(text.bytes, rows[k].text);
        tt_text_fini(&text);
        assert_streams_alike(tokenizer, id, n, true);
    }
    tt_tokenizer_destroy(&tokenizer);
}

static void unknown_ids_are_refused_by_number(void **state)
{
    (void)state;
    tt_tokenizer *tokenizer = golden_tokenizer("small-qwen3");
    tt_detokenizer *d = NULL;
    tt_text text = {0};
    assert_int_equal(tt_detokenizer_create(tokenizer, false, &d), TT_OK);
    assert_int_equal(tt_detokenizer_push(d, 123456, &text), TT_ERR_REQUEST);
    assert_non_null(strstr(tt_status_message(), "123456"));
    tt_text_fini(&text);
    tt_detokenizer_destroy(&d);
    tt_tokenizer_destroy(&tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_rows_decode_and_stream),
        cmocka_unit_test(random_ids_stream_alike),
        cmocka_unit_test(characters_split_over_tokens_come_whole),
        cmocka_unit_test(byte_fallback_runs_stand_or_fall_together),
        cmocka_unit_test(unknown_ids_are_refused_by_number),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("detokenizer", tests, NULL, NULL);
}
