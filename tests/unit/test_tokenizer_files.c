/* test_tokenizer_files.c - hostile and odd files: each ends in one error that names the culprit,
 * or in a working tokenizer; never in a crash, and never in a leak when memory runs out. */
#include "tokenizer_fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../src/model/tokenizer_gguf.h"

/* The linker sends the allocator's calls here; the call after `allowance` more ones fails. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *old, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *old, size_t n);

static long allowance = -1; /* -1: no limit */

static bool may_allocate(void)
{
    if (allowance == 0) {
        return false;
    }
    allowance -= allowance > 0;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return may_allocate() ? __real_malloc(n) : NULL;
}

void *__wrap_calloc(size_t count, size_t n)
{
    return may_allocate() ? __real_calloc(count, n) : NULL;
}

void *__wrap_realloc(void *old, size_t n)
{
    return may_allocate() ? __real_realloc(old, n) : NULL;
}

static tt_status load_bytes(const scratch *s, const char *name, const char *bytes, size_t n,
                            tt_tokenizer **tokenizer_out)
{
    scratch_write(s, name, bytes, n);
    *tokenizer_out = NULL;
    return tt_tokenizer_create(s->folder, tokenizer_out);
}

/* Good, or refused with a message that names the file. */
static void assert_refused_or_works(tt_status st, tt_tokenizer *tokenizer)
{
    if (st == TT_OK) {
        tt_ids ids = {0};
        tt_status encoded =
            tt_tokenizer_encode(tokenizer, "Hello <|im_end|> 123\n ", 22, TT_ENCODE_SPECIAL, &ids);
        assert_true(encoded == TT_OK || encoded == TT_ERR_REQUEST);
        tt_ids_fini(&ids);
        return;
    }
    assert_null(tokenizer);
    assert_true(st == TT_ERR_FILE || st == TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_status_message(), "tokenizer.json"));
}

static char *read_golden(const char *family, size_t *n_out)
{
    char relative[FIXTURE_PATH_BYTES / 2], path[FIXTURE_PATH_BYTES];
    snprintf(relative, sizeof(relative), "tests/golden/tokenizers/%s/tokenizer.json", family);
    source_path(relative, path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    enum { FILE_BYTES_MAX = 1 << 20 };
    char *bytes = malloc(FILE_BYTES_MAX);
    assert_non_null(bytes);
    *n_out = fread(bytes, 1, FILE_BYTES_MAX, file);
    fclose(file);
    return bytes;
}

static void cut_files_are_refused(void **state)
{
    (void)state;
    enum { CUTS = 60 };
    scratch s;
    scratch_create(&s);
    for (size_t f = 0; f < N_FAMILIES; f++) {
        size_t n;
        char *bytes = read_golden(families[f], &n);
        for (size_t k = 0; k < CUTS; k++) {
            tt_tokenizer *tokenizer;
            tt_status st = load_bytes(&s, "tokenizer.json", bytes, n * k / CUTS, &tokenizer);
            assert_int_equal(st, TT_ERR_FILE);
            assert_refused_or_works(st, tokenizer);
        }
        free(bytes);
    }
    scratch_remove(&s);
}

static void flipped_bytes_never_crash(void **state)
{
    (void)state;
    enum { ROUNDS = 150, HEAD_BYTES = 3000 };
    uint32_t seed = 7;
    scratch s;
    scratch_create(&s);
    for (size_t f = 0; f < N_FAMILIES; f++) {
        size_t n;
        char *bytes = read_golden(families[f], &n);
        for (int k = 0; k < ROUNDS; k++) {
            seed = seed * UINT32_C(1664525) + UINT32_C(1013904223);
            /* Half of them where the components stand. */
            size_t at = (seed >> 8) % (k % 2 ? n : HEAD_BYTES);
            char before = bytes[at];
            bytes[at] = (char)(before ^ (1 << (seed % 8)));
            tt_tokenizer *tokenizer;
            tt_status st = load_bytes(&s, "tokenizer.json", bytes, n, &tokenizer);
            assert_refused_or_works(st, tokenizer);
            tt_tokenizer_destroy(&tokenizer);
            bytes[at] = before;
        }
        free(bytes);
    }
    scratch_remove(&s);
}

/* A tiny valid tokenizer, with `%s` for more members. */
static const char tiny[] =
    "{\"added_tokens\": [{\"id\": 3, \"content\": \"<s>\", \"special\": true}],"
    " \"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]%s}%s}";

static void unknown_components_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *in_model, *outside, *name;
        tt_status st;
    } rows[] = {
        {"", "", "", TT_OK},
        {"", ", \"normalizer\": {\"type\": \"Nmt\"}", "Nmt", TT_ERR_UNSUPPORTED},
        {"", ", \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}", "BertPreTokenizer",
         TT_ERR_UNSUPPORTED},
        {"", ", \"post_processor\": {\"type\": \"BertProcessing\"}", "BertProcessing",
         TT_ERR_UNSUPPORTED},
        {"", ", \"decoder\": {\"type\": \"WordPiece\"}", "WordPiece", TT_ERR_UNSUPPORTED},
        {", \"type\": \"Unigram\"", "", "Unigram", TT_ERR_UNSUPPORTED},
        {", \"dropout\": 0.1", "", "dropout", TT_ERR_UNSUPPORTED},
        {", \"end_of_word_suffix\": \"</w>\"", "", "end_of_word_suffix", TT_ERR_UNSUPPORTED},
        {", \"unk_token\": \"<unk>\"", "", "<unk>", TT_ERR_FILE},
        {", \"ignore_merges\": 1", "", "ignore_merges", TT_ERR_FILE},
        {"", ", \"normalizer\": []", "normalizer", TT_ERR_FILE},
        {"", ", \"normalizer\": {}", "type", TT_ERR_FILE},
        {"", ", \"decoder\": {\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}",
         "start", TT_ERR_FILE},
        {"",
         ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, "
         "\"behavior\": \"Isolated\"}",
         "(", TT_ERR_UNSUPPORTED},
        {"",
         ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a&&b]\"}, "
         "\"behavior\": \"Isolated\"}",
         "&&", TT_ERR_UNSUPPORTED},
        {"",
         ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"x\"}, "
         "\"behavior\": \"Sideways\"}",
         "Sideways", TT_ERR_UNSUPPORTED},
        {"",
         ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
         "{\"id\": \"<q>\"}}]}",
         "<q>", TT_ERR_FILE},
    };
    scratch s;
    scratch_create(&s);
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        char text[1024];
        snprintf(text, sizeof(text), tiny, rows[k].in_model, rows[k].outside);
        tt_tokenizer *tokenizer;
        tt_status st = load_bytes(&s, "tokenizer.json", text, strlen(text), &tokenizer);
        if (st != rows[k].st) {
            fail_msg("%s: %s: %s", text, tt_status_name(st), tt_status_message());
        }
        if (st != TT_OK) {
            assert_non_null(strstr(tt_status_message(), rows[k].name));
            assert_non_null(strstr(tt_status_message(), "tokenizer.json"));
        }
        tt_tokenizer_destroy(&tokenizer);
    }
    scratch_remove(&s);
}

/* ", KEY": a sequence of n of one component. */
static void repeat(char *text, size_t room, const char *key, const char *list,
                   const char *component, int n)
{
    size_t at =
        (size_t)snprintf(text, room, ", \"%s\": {\"type\": \"Sequence\", \"%s\": [", key, list);
    for (int i = 0; i < n; i++) {
        at += (size_t)snprintf(text + at, room - at, "%s%s", i > 0 ? ", " : "", component);
    }
    assert_true((size_t)snprintf(text + at, room - at, "]}") + at < room);
}

static void lists_of_steps_that_multiply_a_text_are_stopped(void **state)
{
    (void)state;
    static const char doubles[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}";
    static const char maps[] =
        "{\"type\": \"ByteLevel\", \"use_regex\": false, \"add_prefix_space\": false}";
    static const struct {
        const char *type, *list, *component, *text;
        int n;
        bool is_stopped;
    } rows[] = {
        {"normalizer", "normalizers", doubles, "aaaaaaaaaaaaaaaa", 32, true},
        {"normalizer", "normalizers", doubles, "aaaaaaaaaaaaaaaa", 5, false},
        {"pre_tokenizer", "pretokenizers", maps, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 32, true},
        {"pre_tokenizer", "pretokenizers", maps, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 5, false},
        {"decoder", "decoders", doubles, "aaaaaaaaaaaaaaaa", 32, true},
        {"decoder", "decoders", doubles, "aaaaaaaaaaaaaaaa", 5, false},
    };
    scratch s;
    scratch_create(&s);
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        static char list[1 << 13], text[1 << 14];
        repeat(list, sizeof(list), rows[k].type, rows[k].list, rows[k].component, rows[k].n);
        snprintf(text, sizeof(text), tiny, "", list);
        tt_tokenizer *tokenizer;
        assert_int_equal(load_bytes(&s, "tokenizer.json", text, strlen(text), &tokenizer), TT_OK);
        tt_ids ids = {0};
        tt_text back = {0};
        tt_status st = tt_tokenizer_encode(tokenizer, rows[k].text, strlen(rows[k].text),
                                           TT_ENCODE_PLAIN, &ids);
        if (st == TT_OK && strcmp(rows[k].type, "decoder") == 0) {
            st = tt_tokenizer_decode(tokenizer, ids.id, ids.n, false, &back);
        }
        assert_int_equal(st, rows[k].is_stopped ? TT_ERR_REQUEST : TT_OK);
        assert_true(st == TT_OK || strstr(tt_status_message(), "32 times"));
        tt_text_fini(&back);
        tt_ids_fini(&ids);
        tt_tokenizer_destroy(&tokenizer);
    }
    scratch_remove(&s);
}

static void odd_vocabularies_are_refused(void **state)
{
    (void)state;
    static const char *const files[] = {
        "[]",
        "{}",
        "{\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 99999999999}, \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 1.5}, \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
        "{\"model\": {\"vocab\": [\"a\"], \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 0} \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 0,}, \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 00}, \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [,]}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}} x",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []",
        "{\"model\": {\"vocab\": {\"\xff\": 0}, \"merges\": []}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", 1]]}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"aa\"]}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": {}}}",
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}",
        "{\"added_tokens\": [{\"id\": \"3\", \"content\": \"x\"}]}",
        "{\"added_tokens\": [3]}",
    };
    scratch s;
    scratch_create(&s);
    for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
        tt_tokenizer *tokenizer;
        tt_status st = load_bytes(&s, "tokenizer.json", files[k], strlen(files[k]), &tokenizer);
        if (st != TT_ERR_FILE) {
            fail_msg("%s: %s", files[k], tt_status_name(st));
        }
        assert_non_null(strstr(tt_status_message(), "tokenizer.json"));
    }
    scratch_remove(&s);
}

static void odd_configs_are_refused(void **state)
{
    (void)state;
    static const char *const files[] = {
        "nonsense",
        "{\"bos_token\": 3}",
        "{\"bos_token\": {\"content\": 3}}",
        "{\"add_bos_token\": \"yes\"}",
        "{\"add_bos_token\": true}",
        "{\"add_bos_token\": true, \"bos_token\": \"nowhere\"}",
        "{\"chat_template\": 1}",
        "{\"chat_template\": [1]}",
    };
    scratch s;
    char text[1024];
    snprintf(text, sizeof(text), tiny, "", "");
    scratch_create(&s);
    scratch_write(&s, "tokenizer.json", text, strlen(text));
    for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
        tt_tokenizer *tokenizer;
        assert_int_equal(
            load_bytes(&s, "tokenizer_config.json", files[k], strlen(files[k]), &tokenizer),
            TT_ERR_FILE);
        assert_non_null(strstr(tt_status_message(), "tokenizer_config.json"));
    }
    scratch_remove(&s);
    tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tt_tokenizer_create("/nowhere/at/all", &tokenizer), TT_ERR_FILE);
    assert_non_null(strstr(tt_status_message(), "/nowhere/at/all"));
}

static void a_path_to_the_file_works_too(void **state)
{
    (void)state;
    char path[FIXTURE_PATH_BYTES];
    source_path("tests/golden/tokenizers/small-qwen3/tokenizer.json", path);
    tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tt_tokenizer_create(path, &tokenizer), TT_OK);
    assert_int_equal(tt_tokenizer_bos_id(tokenizer), -1);
    assert_false(tt_tokenizer_has_chat_template(tokenizer));
    tt_tokenizer_destroy(&tokenizer);
    assert_null(tokenizer);
    tt_tokenizer_destroy(&tokenizer);
}

/* Everything once: load, encode with a normaliser and patterns, decode, a conversation. */
static tt_status do_all(const char *folder)
{
    tt_tokenizer *tokenizer = NULL;
    tt_ids ids = {0};
    tt_text text = {0};
    static const char said[] = "He said <|im_end|> cafe\xcc\x81 \xff 123";
    tt_chat_message message = {.role = "user", .content = said};
    tt_status st = tt_tokenizer_create(folder, &tokenizer);
    if (st == TT_OK) {
        st = tt_tokenizer_encode(tokenizer, said, strlen(said), TT_ENCODE_SPECIAL, &ids);
    }
    if (st == TT_OK) {
        st = tt_tokenizer_encode_chat(tokenizer, &message, 1, &ids);
    }
    if (st == TT_OK) {
        st = tt_tokenizer_decode(tokenizer, ids.id, ids.n, false, &text);
    }
    tt_tokenizer_destroy(&tokenizer);
    tt_ids_fini(&ids);
    tt_text_fini(&text);
    return st;
}

static void memory_errors_unwind(void **state)
{
    (void)state;
    /* Beyond the allocations that come one by one with each token, the interesting ones are at
     * either end. */
    enum { TRIES_MAX = 100000 };
    char config[] = "{\"bos_token\": \"<|im_start|>\", \"add_bos_token\": true, \"chat_template\": "
                    "\"{% for m in messages %}{{ m.role ~ "
                    "m.content }}<|im_end|>{% endfor %}\"}";
    json_t *root = golden_json("small-qwen3/tokenizer.json");
    scratch s;
    scratch_create(&s);
    scratch_write_json(&s, "tokenizer.json", root);
    scratch_write(&s, "tokenizer_config.json", config, strlen(config));
    json_decref(root);
    tt_status st = TT_ERR_NOMEM;
    long n = 0;
    for (; n < TRIES_MAX && st != TT_OK; n++) {
        allowance = n;
        st = do_all(s.folder);
        allowance = -1;
        if (st != TT_OK && st != TT_ERR_NOMEM) {
            /* The C library's own buffers come from the allocator too: opening a file may fail by
             * it. */
            assert_int_equal(st, TT_ERR_FILE);
            assert_non_null(strstr(tt_status_message(), s.folder));
        }
    }
    scratch_remove(&s);
    assert_int_equal(st, TT_OK);
    print_message("# %ld allocations\n", n - 1);
    assert_true(n > 50);
}

/* A GGUF vocabulary of each kind, and a tiktoken folder, made with every allocation failing
 * once. */
static tt_status make_gguf(const char *model)
{
    static const tti_gguf_string token[] = {{"<s>", 3}, {"\xe2\x96\x81", 3}, {"a", 1},
                                            {"b", 1},   {"ab", 2},           {"<|end|>", 7}};
    static const int32_t type[] = {TTI_GGUF_CONTROL, TTI_GGUF_NORMAL, TTI_GGUF_NORMAL,
                                   TTI_GGUF_NORMAL,  TTI_GGUF_NORMAL, TTI_GGUF_CONTROL};
    static const float score[] = {0, -1, -2, -3, -4, 0};
    static const tti_gguf_string merge = {"a b", 3};
    tti_gguf_vocabulary v = TTI_GGUF_VOCABULARY_INIT;
    v.path = "made-up.gguf";
    v.model = (tti_gguf_string){model, strlen(model)};
    v.pre = (tti_gguf_string){"qwen2", 5};
    v.token = token;
    v.type = type;
    v.score = score;
    v.n_tokens = sizeof(token) / sizeof(token[0]);
    v.merge = &merge;
    v.n_merges = 1;
    v.bos_id = 0;
    v.eos_id = 5;
    v.add_eos = TTI_GGUF_YES;
    v.chat_template = (tti_gguf_string){"{{ x }}", 7};
    tt_tokenizer *tokenizer = NULL;
    tt_ids ids = {0};
    tt_status st = tti_tokenizer_from_gguf(&v, &tokenizer);
    if (st == TT_OK) {
        st = tt_tokenizer_encode(tokenizer, "ab <s>", 6, TT_ENCODE_SPECIAL, &ids);
        tt_tokenizer_destroy(&tokenizer);
    } else {
        assert_null(tokenizer);
    }
    tt_ids_fini(&ids);
    return st;
}

static void memory_errors_unwind_in_every_kind(void **state)
{
    (void)state;
    static const char *const kinds[] = {"llama", "gpt2", NULL};
    enum { TRIES_MAX = 100000 };
    char folder[FIXTURE_PATH_BYTES];
    source_path("tests/golden/tokenizers/tiktoken", folder);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        tt_status st = TT_ERR_NOMEM;
        long n = 0;
        for (; n < TRIES_MAX && st != TT_OK; n++) {
            tt_tokenizer *tokenizer = NULL;
            allowance = n;
            st = kinds[k] ? make_gguf(kinds[k]) : tt_tokenizer_create(folder, &tokenizer);
            allowance = -1;
            tt_tokenizer_destroy(&tokenizer);
            if (st != TT_OK && st != TT_ERR_NOMEM) {
                assert_int_equal(st, TT_ERR_FILE);
                assert_non_null(strstr(tt_status_message(), folder));
            }
        }
        assert_int_equal(st, TT_OK);
        print_message("# %s: %ld allocations\n", kinds[k] ? kinds[k] : "tiktoken", n - 1);
        assert_true(n > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(flipped_bytes_never_crash),
        cmocka_unit_test(unknown_components_are_refused_by_name),
        cmocka_unit_test(lists_of_steps_that_multiply_a_text_are_stopped),
        cmocka_unit_test(odd_vocabularies_are_refused),
        cmocka_unit_test(odd_configs_are_refused),
        cmocka_unit_test(a_path_to_the_file_works_too),
        cmocka_unit_test(memory_errors_unwind),
        cmocka_unit_test(memory_errors_unwind_in_every_kind),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tokenizer files", tests, NULL, NULL);
}
