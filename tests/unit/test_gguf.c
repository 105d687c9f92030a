/* test_gguf.c - the GGUF container: what is read, and every way of being broken that we could think
 * of. The bytes are made here, from the specification; the header must come back whole or be
 * refused with one message, whatever is cut or flipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gguf.h"
#include "tutti/status.h"
#include <stdlib.h>
#include <string.h>

/* A file in the making. */
typedef struct bytes {
    unsigned char data[8192];
    size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n)
{
    assert_true(b->n + n <= sizeof(b->data));
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_le(bytes *b, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)(value >> (8 * i));
        put(b, &byte, 1);
    }
}

static void put_string(bytes *b, const char *text)
{
    put_le(b, strlen(text), 8);
    put(b, text, strlen(text));
}

static void begin(bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    b->n = 0;
    put(b, "GGUF", 4);
    put_le(b, version, 4);
    put_le(b, n_tensors, 8);
    put_le(b, n_keys, 8);
}

static void key(bytes *b, const char *name, tti_gguf_type type)
{
    put_string(b, name);
    put_le(b, (uint64_t)type, 4);
}

static void key_u32(bytes *b, const char *name, uint32_t value)
{
    key(b, name, TTI_GGUF_U32);
    put_le(b, value, 4);
}

static void tensor(bytes *b, const char *name, unsigned n_dims, const uint64_t *dim, uint32_t type,
                   uint64_t offset)
{
    put_string(b, name);
    put_le(b, n_dims, 4);
    for (unsigned i = 0; i < n_dims; i++) {
        put_le(b, dim[i], 8);
    }
    put_le(b, type, 4);
    put_le(b, offset, 8);
}

static void pad(bytes *b, size_t to)
{
    while (b->n % to) {
        put_le(b, 0, 1);
    }
}

static void zeros(bytes *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_le(b, 0, 1);
    }
}

/* Five keys of every kind and two tensors: F32 [2][4] and Q8_0 [3][32]. */
static void make_whole(bytes *b, uint32_t version)
{
    begin(b, version, 2, 6);
    key(b, "general.architecture", TTI_GGUF_STRING);
    put_string(b, "llama");
    key_u32(b, "a.u32", 7);
    key(b, "a.list", TTI_GGUF_ARRAY);
    put_le(b, TTI_GGUF_I16, 4);
    put_le(b, 3, 8);
    put_le(b, 1, 2);
    put_le(b, 0xffff, 2);
    put_le(b, 0x8000, 2);
    key(b, "a.texts", TTI_GGUF_ARRAY);
    put_le(b, TTI_GGUF_STRING, 4);
    put_le(b, 2, 8);
    put_string(b, "one");
    put_string(b, "");
    key(b, "a.flag", TTI_GGUF_BOOL);
    put_le(b, 1, 1);
    key(b, "a.half", TTI_GGUF_F32);
    put_le(b, 0x3f000000, 4);
    tensor(b, "w.q", 2, (uint64_t[]){32, 3}, 8, 32);
    tensor(b, "w.f", 2, (uint64_t[]){4, 2}, 0, 0);
    pad(b, 32);
    zeros(b, 32 + 3 * 34);
}

/* Parses b as a whole file. */
static tt_status parse(const bytes *b, tti_gguf *gguf)
{
    /* On the heap, with nothing behind it: a sanitizer sees a step too far. */
    unsigned char *copy = malloc(b->n ? b->n : 1);
    memcpy(copy, b->data, b->n);
    bool is_short = true;
    tt_status st = tti_gguf_parse("FILE.gguf", copy, b->n, b->n, gguf, &is_short);
    assert_false(is_short);
    free(copy);
    return st;
}

static void expect_refused(const bytes *b, tt_status status, ...)
{
    tti_gguf gguf = {0};
    tt_status st = parse(b, &gguf);
    if (st != status) {
        fail_msg("%s instead of %s: %s", tt_status_name(st), tt_status_name(status),
                 tt_status_message());
    }
    assert_null(gguf.key);
    assert_non_null(strstr(tt_status_message(), "FILE.gguf"));
    va_list args;
    va_start(args, status);
    for (const char *text = va_arg(args, const char *); text; text = va_arg(args, const char *)) {
        if (!strstr(tt_status_message(), text)) {
            fail_msg("'%s' is not in: %s", text, tt_status_message());
        }
    }
    va_end(args);
}

static void whole_file_is_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        bytes b;
        tti_gguf g = {0};
        bool is_short, flag = false;
        make_whole(&b, version);
        assert_int_equal(tti_gguf_parse("FILE.gguf", b.data, b.n, b.n, &g, &is_short), TT_OK);
        assert_int_equal(g.n_keys, 6);
        assert_int_equal(g.n_tensors, 2);
        int64_t whole = 0;
        double real = 0;
        tti_gguf_string text = {0}, texts[2];
        assert_true(tti_gguf_int(tti_gguf_find(&g, "a.u32"), 0, &whole) && whole == 7);
        const tti_gguf_key *list = tti_gguf_find(&g, "a.list");
        assert_true(list->is_array && list->n == 3);
        assert_true(tti_gguf_int(list, 0, &whole) && whole == 1);
        assert_true(tti_gguf_int(list, 1, &whole) && whole == -1);
        assert_true(tti_gguf_int(list, 2, &whole) && whole == -32768);
        assert_true(tti_gguf_texts(tti_gguf_find(&g, "a.texts"), texts));
        assert_true(texts[0].n == 3 && memcmp(texts[0].bytes, "one", 3) == 0 && texts[1].n == 0);
        assert_true(tti_gguf_bool(tti_gguf_find(&g, "a.flag"), &flag) && flag);
        assert_true(tti_gguf_real(tti_gguf_find(&g, "a.half"), 0, &real) && real == 0.5);
        assert_true(tti_gguf_real(tti_gguf_find(&g, "a.u32"), 0, &real) && real == 7);
        assert_true(tti_gguf_text(tti_gguf_find(&g, "general.architecture"), &text) && text.n == 5);
        assert_false(tti_gguf_int(tti_gguf_find(&g, "a.half"), 0, &whole));
        assert_false(tti_gguf_bool(list, &flag));
        assert_null(tti_gguf_find(&g, "a.lis"));
        assert_null(tti_gguf_find(&g, "a.lists"));
        const tti_gguf_tensor *q = tti_gguf_find_tensor(&g, "w.q");
        assert_true(q->bytes == 3 * 34 && q->offset == g.data_offset + 32 &&
                    q->offset + q->bytes == b.n);
        assert_string_equal(q->type->dtype.name, "Q8_0");
        assert_null(tti_gguf_find_tensor(&g, "w"));
        tti_gguf_fini(&g);
    }
}

static void any_cut_is_refused(void **state)
{
    (void)state;
    bytes b;
    make_whole(&b, 3);
    size_t n = b.n;
    for (b.n = 0; b.n < n; b.n++) {
        tti_gguf gguf = {0};
        assert_int_equal(parse(&b, &gguf), TT_ERR_FILE);
        assert_non_null(strstr(tt_status_message(), "FILE.gguf"));
    }
}

/* With the file longer than the buffer, each cut within the header asks for more, and none of the
 * data is needed. */
static void short_buffers_ask_for_more(void **state)
{
    (void)state;
    bytes b;
    tti_gguf gguf = {0};
    bool is_short;
    make_whole(&b, 3);
    size_t n_header = b.n - (32 + 3 * 34);
    for (size_t n = 0; n < b.n; n++) {
        is_short = false;
        assert_int_equal(tti_gguf_parse("FILE.gguf", b.data, n, b.n, &gguf, &is_short), TT_OK);
        if (!is_short) {
            assert_true(n > n_header - 32);
            assert_int_equal(gguf.n_tensors, 2);
        } else {
            assert_true(n < n_header);
            assert_null(gguf.key);
        }
        tti_gguf_fini(&gguf);
    }
}

/* Every byte of the header with other values: read or refused, never a fault (the sanitizer build
 * proves it). */
static void any_flip_is_survived(void **state)
{
    (void)state;
    static const unsigned char other[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    bytes b;
    make_whole(&b, 3);
    for (size_t i = 0; i < b.n; i++) {
        unsigned char saved = b.data[i];
        for (size_t k = 0; k < sizeof(other); k++) {
            tti_gguf gguf = {0};
            b.data[i] = other[k];
            (void)parse(&b, &gguf);
            tti_gguf_fini(&gguf);
        }
        b.data[i] = saved;
    }
}

static void other_files_are_refused(void **state)
{
    (void)state;
    bytes b;
    make_whole(&b, 3);
    b.data[0] = 'g';
    expect_refused(&b, TT_ERR_FILE, "not a GGUF file", NULL);
    begin(&b, 1, 0, 0);
    expect_refused(&b, TT_ERR_UNSUPPORTED, "version 1", NULL);
    begin(&b, 4, 0, 0);
    expect_refused(&b, TT_ERR_UNSUPPORTED, "version 4", NULL);
    begin(&b, 0x03000000, 0, 0);
    expect_refused(&b, TT_ERR_UNSUPPORTED, "big-endian", NULL);
    b.n = 0;
    put(&b, "version https://git-lfs.github.com/spec/v1\n", 43);
    expect_refused(&b, TT_ERR_FILE, "unfetched large-file pointer", NULL);
    b.n = 0;
    expect_refused(&b, TT_ERR_FILE, "cut short", NULL);
}

static void huge_counts_are_refused(void **state)
{
    (void)state;
    static const uint64_t huge[] = {1u << 20, UINT64_C(1) << 40, UINT64_C(1) << 61, UINT64_MAX};
    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        bytes b;
        begin(&b, 3, huge[i], 0);
        expect_refused(&b, TT_ERR_FILE, "tensors", NULL);
        begin(&b, 3, 0, huge[i]);
        expect_refused(&b, TT_ERR_FILE, "keys", NULL);
        begin(&b, 3, 0, 1);
        put_le(&b, huge[i], 8); /* a key's name */
        expect_refused(&b, TT_ERR_FILE, NULL);
        begin(&b, 3, 0, 1);
        key(&b, "a.text", TTI_GGUF_STRING);
        put_le(&b, huge[i], 8);
        expect_refused(&b, TT_ERR_FILE, "a.text", NULL);
        static const tti_gguf_type types[] = {TTI_GGUF_U8, TTI_GGUF_F64, TTI_GGUF_STRING,
                                              TTI_GGUF_ARRAY};
        for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
            begin(&b, 3, 0, 1);
            key(&b, "a.list", TTI_GGUF_ARRAY);
            put_le(&b, types[k], 4);
            put_le(&b, huge[i], 8);
            zeros(&b, 64);
            expect_refused(&b, TT_ERR_FILE, "a.list", NULL);
        }
    }
}

static void bad_keys_are_refused(void **state)
{
    (void)state;
    bytes b;
    begin(&b, 3, 0, 1);
    key(&b, "a.odd", (tti_gguf_type)13);
    zeros(&b, 64);
    expect_refused(&b, TT_ERR_FILE, "a.odd", "unknown type 13", NULL);
    begin(&b, 3, 0, 1);
    key(&b, "a.flag", TTI_GGUF_BOOL);
    put_le(&b, 2, 1);
    zeros(&b, 8);
    expect_refused(&b, TT_ERR_FILE, "a.flag", "bool", NULL);
    begin(&b, 3, 0, 2);
    key_u32(&b, "a.twice", 1);
    key_u32(&b, "a.twice", 1);
    expect_refused(&b, TT_ERR_FILE, "a.twice", "twice", NULL);
    begin(&b, 3, 0, 1);
    key_u32(&b, "", 1);
    expect_refused(&b, TT_ERR_FILE, "without a name", NULL);
    static const uint32_t alignments[] = {0, 3, 48, 1u << 21};
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++) {
        begin(&b, 3, 0, 1);
        key_u32(&b, "general.alignment", alignments[i]);
        expect_refused(&b, TT_ERR_FILE, "general.alignment", NULL);
    }
}

static void nested_arrays_end_somewhere(void **state)
{
    (void)state;
    for (int depth = 1; depth < 300; depth += depth < 6 ? 1 : 97) {
        bytes b;
        tti_gguf gguf = {0};
        begin(&b, 3, 0, 1);
        key(&b, "a.deep", TTI_GGUF_ARRAY);
        for (int i = 1; i < depth; i++) {
            put_le(&b, TTI_GGUF_ARRAY, 4);
            put_le(&b, 1, 8);
        }
        put_le(&b, TTI_GGUF_U8, 4);
        put_le(&b, 1, 8);
        put_le(&b, 5, 1);
        zeros(&b, 32);
        tt_status st = parse(&b, &gguf);
        assert_int_equal(st, depth <= 4 ? TT_OK : TT_ERR_FILE);
        if (st != TT_OK) {
            assert_non_null(strstr(tt_status_message(), "a.deep"));
        }
        tti_gguf_fini(&gguf);
    }
}

/* One F32 tensor with this shape and place in a file that holds 64 bytes of data. */
static void make_tensor(bytes *b, const char *name, unsigned n_dims, const uint64_t *dim,
                        uint32_t type, uint64_t offset)
{
    begin(b, 3, 1, 0);
    tensor(b, name, n_dims, dim, type, offset);
    pad(b, 32);
    zeros(b, 64);
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    bytes b;
    make_tensor(&b, "w", 2, (uint64_t[]){4, 4}, 0, 0);
    tti_gguf gguf = {0};
    assert_int_equal(parse(&b, &gguf), TT_OK);
    tti_gguf_fini(&gguf);
    make_tensor(&b, "w", 0, NULL, 0, 0);
    expect_refused(&b, TT_ERR_FILE, "'w'", "0 dimensions", NULL);
    make_tensor(&b, "w", 5, (uint64_t[]){1, 1, 1, 1, 1}, 0, 0);
    expect_refused(&b, TT_ERR_FILE, "'w'", "5 dimensions", NULL);
    make_tensor(&b, "w", 4, (uint64_t[]){4, 0, UINT64_C(1) << 62, 1}, 0, 0);
    expect_refused(&b, TT_ERR_FILE, "'w'", "4611686018427387904", NULL);
    make_tensor(&b, "w", 2, (uint64_t[]){UINT64_C(1) << 32, UINT64_C(1) << 32}, 0, 0);
    expect_refused(&b, TT_ERR_FILE, "'w'", "4294967296", NULL);
    make_tensor(&b, "w", 4, (uint64_t[]){1u << 15, 1u << 15, 1u << 15, 1u << 15}, 0, 0);
    expect_refused(&b, TT_ERR_FILE, "'w'", NULL);
    make_tensor(&b, "w", 1, (uint64_t[]){UINT64_MAX}, 0, 0);
    expect_refused(&b, TT_ERR_FILE, "'w'", NULL);
    make_tensor(&b, "w", 1, (uint64_t[]){4}, 4, 0);
    expect_refused(&b, TT_ERR_UNSUPPORTED, "'w'", "unknown type 4", NULL);
    make_tensor(&b, "w", 1, (uint64_t[]){4}, 0x80000000u, 0);
    expect_refused(&b, TT_ERR_UNSUPPORTED, "'w'", NULL);
    make_tensor(&b, "w", 1, (uint64_t[]){40}, 12, 0);
    expect_refused(&b, TT_ERR_FILE, "'w'", "Q4_K", "256", NULL);
    make_tensor(&b, "w", 1, (uint64_t[]){4}, 0, 8);
    expect_refused(&b, TT_ERR_FILE, "'w'", "multiple of 32", NULL);
    make_tensor(&b, "w", 1, (uint64_t[]){4}, 0, 64);
    expect_refused(&b, TT_ERR_FILE, "'w'", "cut short", NULL);
    make_tensor(&b, "w", 1, (uint64_t[]){17}, 0, 0);
    expect_refused(&b, TT_ERR_FILE, "'w'", "cut short", NULL);
    make_tensor(&b, "w", 1, (uint64_t[]){4}, 0, UINT64_MAX - 31);
    expect_refused(&b, TT_ERR_FILE, "'w'", "cut short", NULL);
    make_tensor(&b, "", 1, (uint64_t[]){4}, 0, 0);
    expect_refused(&b, TT_ERR_FILE, "empty", NULL);
}

static void empty_tensors_take_no_room(void **state)
{
    (void)state;
    bytes b;
    tti_gguf g = {0};
    bool is_short;
    begin(&b, 3, 3, 0);
    tensor(&b, "none", 2, (uint64_t[]){4, 0}, 0, 32);
    tensor(&b, "some", 1, (uint64_t[]){4}, 0, 32);
    tensor(&b, "zero", 2, (uint64_t[]){0, 4}, 0, 32);
    pad(&b, 32);
    zeros(&b, 64);
    assert_int_equal(tti_gguf_parse("FILE.gguf", b.data, b.n, b.n, &g, &is_short), TT_OK);
    assert_int_equal(g.tensor[0].bytes, 0);
    assert_int_equal(g.tensor[1].bytes, 16);
    assert_int_equal(g.tensor[2].bytes, 0);
    assert_int_equal(g.tensor[2].dim[0], 0);
    tti_gguf_fini(&g);
}

static void tensors_may_not_share_bytes_or_names(void **state)
{
    (void)state;
    bytes b;
    begin(&b, 3, 2, 0);
    tensor(&b, "long", 1, (uint64_t[]){9}, 0, 0);
    tensor(&b, "next", 1, (uint64_t[]){4}, 0, 32);
    pad(&b, 32);
    zeros(&b, 64);
    expect_refused(&b, TT_ERR_FILE, "'long'", "'next'", "overlap", NULL);
    begin(&b, 3, 2, 0);
    tensor(&b, "same", 1, (uint64_t[]){4}, 0, 0);
    tensor(&b, "same", 1, (uint64_t[]){4}, 0, 32);
    pad(&b, 32);
    zeros(&b, 64);
    expect_refused(&b, TT_ERR_FILE, "'same'", "twice", NULL);
}

static void alignment_moves_the_data(void **state)
{
    (void)state;
    bytes b;
    tti_gguf g = {0};
    bool is_short;
    begin(&b, 3, 1, 1);
    key(&b, "general.alignment", TTI_GGUF_U64);
    put_le(&b, 128, 8);
    tensor(&b, "w", 1, (uint64_t[]){4}, 0, 128);
    pad(&b, 128);
    zeros(&b, 128 + 16);
    assert_int_equal(tti_gguf_parse("FILE.gguf", b.data, b.n, b.n, &g, &is_short), TT_OK);
    assert_int_equal(g.alignment, 128);
    assert_int_equal(g.tensor[0].offset % 128, 0);
    assert_int_equal(g.tensor[0].offset + g.tensor[0].bytes, b.n);
    tti_gguf_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_file_is_read),
        cmocka_unit_test(any_cut_is_refused),
        cmocka_unit_test(short_buffers_ask_for_more),
        cmocka_unit_test(any_flip_is_survived),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(huge_counts_are_refused),
        cmocka_unit_test(bad_keys_are_refused),
        cmocka_unit_test(nested_arrays_end_somewhere),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(empty_tensors_take_no_room),
        cmocka_unit_test(tensors_may_not_share_bytes_or_names),
        cmocka_unit_test(alignment_moves_the_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
