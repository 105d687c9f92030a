/* test_blocks.c - GGML's blocks, unpacked, give exactly the numbers that the gguf package gives for
 * the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "blocks.h"

static const char *const names[] = {"Q8_0", "Q4_0", "Q4_1", "Q5_0",   "Q5_1",
                                    "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"};
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static const tti_block_type *type_of(const char *name)
{
    for (uint32_t id = 0; id < 64; id++) {
        const tti_block_type *type = tti_block_type_find(id);
        if (type && strcmp(type->dtype.name, name) == 0) {
            return type;
        }
    }
    fail_msg("no type %s", name);
    return NULL;
}

typedef struct golden {
    tti_file file;
    tti_table table;
} golden;

static void golden_open(golden *g)
{
    const char *top = getenv("top_srcdir");
    char dir[1024];
    memset(g, 0, sizeof(*g));
    snprintf(dir, sizeof(dir), "%s/tests/golden/blocks", top ? top : ".");
    assert_int_equal(tti_file_open(dir, "blocks.safetensors", &g->file), TT_OK);
    assert_int_equal(tti_safetensors_read(&g->file, 0, &g->table), TT_OK);
}

static void *golden_read(const golden *g, const char *name, const char *ending, int64_t *rows_out)
{
    char full[64];
    snprintf(full, sizeof(full), "%s.%s", name, ending);
    const tti_entry *entry = tti_table_find(&g->table, full);
    assert_non_null(entry);
    void *bytes = malloc((size_t)entry->bytes);
    assert_non_null(bytes);
    assert_int_equal(tti_file_read(&g->file, entry->offset, bytes, (size_t)entry->bytes), TT_OK);
    *rows_out = entry->dim[0];
    return bytes;
}

static void golden_close(golden *g)
{
    tti_table_fini(&g->table);
    tti_file_close(&g->file);
}

/* The blocks as `rows` rows of a matrix: another number of rows is another order of the same
 * arrays. */
static void check_type(const golden *g, const char *name, int64_t rows)
{
    int64_t n;
    const tti_block_type *type = type_of(name);
    assert_true(type->is_supported);
    unsigned char *bytes = golden_read(g, name, "bytes", &n);
    float *want = golden_read(g, name, "values", &n);
    int64_t K = n / rows * type->elements;
    void *buffer = malloc(ttk_unpacked_bytes(&type->format, rows, K));
    float *have = malloc((size_t)(rows * K) * sizeof(float));
    assert_true(buffer && have);
    ttk_unpacked to = ttk_unpacked_in(&type->format, rows, K, buffer);
    type->unpack(bytes, n,
                 &(tti_block_arrays){(void *)to.code, (void *)to.scale, (void *)to.shift,
                                     (void *)to.super_scale, (void *)to.super_shift});
    ttk_unpacked_to_f32(&type->format, &to, rows, K, have);
    for (int64_t i = 0; i < rows * K; i++) {
        if (memcmp(&have[i], &want[i], sizeof(float)) != 0 &&
            (have[i] != 0.0f || want[i] != 0.0f)) {
            fail_msg("%s: element %lld is %.9g, the gguf package says %.9g", name, (long long)i,
                     (double)have[i], (double)want[i]);
        }
    }
    free(have);
    free(buffer);
    free(want);
    free(bytes);
}

static void unpacked_blocks_are_the_numbers_of_the_gguf_package(void **state)
{
    (void)state;
    golden g;
    golden_open(&g);
    for (int i = 0; i < N_NAMES; i++) {
        check_type(&g, names[i], 1);
        check_type(&g, names[i], 5);
    }
    golden_close(&g);
}

/* Nibbles of a block are its halves, not neighbours. */
static void nibbles_are_halves(void **state)
{
    (void)state;
    unsigned char mxfp4[17] = {0x7f, 0x21}, q4_0[18] = {0x00, 0x3c, 0xf0}, code[32], scale[2];
    type_of("MXFP4")->unpack(mxfp4, 1, &(tti_block_arrays){.code = code, .scale = scale});
    assert_int_equal(code[0], 1);
    assert_int_equal(code[16], 2);
    assert_true(ttk_number(TTK_E2M1, code, 0) == 0.5f && ttk_number(TTK_E2M1, code, 16) == 1.0f &&
                ttk_number(TTK_E8M0, scale, 0) == 1.0f);
    type_of("Q4_0")->unpack(q4_0, 1, &(tti_block_arrays){.code = code, .scale = scale});
    assert_true(ttk_number(TTK_I4, code, 16) == 7.0f && ttk_number(TTK_I4, code, 0) == -8.0f);
}

static void the_table_is_sane(void **state)
{
    (void)state;
    int n = 0;
    for (uint32_t id = 0; id < 64; id++) {
        const tti_block_type *type = tti_block_type_find(id);
        if (!type) {
            continue;
        }
        n++;
        assert_int_equal(type->id, id);
        assert_ptr_equal(type->dtype.block, type);
        assert_true(type->elements > 0 && type->bytes > 0);
        if (type->is_supported && !ttk_format_is_plain(&type->format)) {
            assert_non_null(type->unpack);
            assert_int_equal(type->elements % type->format.group, 0);
            assert_true(type->format.super == 0 ||
                        type->elements % (type->format.group * type->format.super) == 0);
        }
    }
    assert_int_equal(n, 35);
    assert_null(tti_block_type_find(4));
    assert_null(tti_block_type_find(UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpacked_blocks_are_the_numbers_of_the_gguf_package),
        cmocka_unit_test(nibbles_are_halves), cmocka_unit_test(the_table_is_sane)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
