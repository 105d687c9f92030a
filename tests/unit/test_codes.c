/* test_codes.c - what single codes stand for, in every version of the product that this CPU has:
 * all 256 of FP8, scales as powers of two, and nibbles in their places; and that gate and up are
 * not taken for each other. The numbers are written down here, not computed by what is tested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/cpu.h"
#include "ttk.h"

enum { CODES = 256 };

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* y[k] = the number of code[k] times scale, by one version of the product: the weights are one
 * output of K inputs, and x picks one of them. */
static void numbers(const ttk_row *version, const ttk_format *format, const ttk_unpacked *rows,
                    int64_t K, float *y)
{
    void *packed = aligned_alloc(64, (ttk_packed_bytes(format, 1, K) + 63) / 64 * 64);
    float *x = calloc((size_t)K, sizeof(*x));
    assert_non_null(packed);
    assert_non_null(x);
    ttk.pack_quant(packed, format, rows, 1, K, 0, 1);
    ttk_gemm_quant_fn *product = (ttk_gemm_quant_fn *)version->fn;
    for (int64_t k = 0; k < K; k++) {
        x[k] = 1.0f;
        product(&y[k], 1, x, K, format, packed, 1, 1, K);
        x[k] = 0.0f;
    }
    free(packed);
    free(x);
}

/* Calls check for each version of gemm_quant that runs here. */
static void for_each_version(void (*check)(const ttk_row *version))
{
    size_t n;
    const ttk_row *rows = ttk_rows(&n);
    int n_checked = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].op == TTK_OP_gemm_quant && (rows[i].need & ~tt_cpu_flags()) == 0) {
            check(&rows[i]);
            n_checked++;
        }
    }
    assert_true(n_checked > 0);
}

/* One code of FP8 at a time, so that a NaN among them does not reach the others. */
static void check_e4m3(const ttk_row *version)
{
    static const struct {
        unsigned char code;
        float value;
    } spot[] = {
        {0x00, 0},   {0x01, 0.001953125f}, {0x07, 0.013671875f}, {0x08, 0.015625f},     {0x38, 1},
        {0x7e, 448}, {0x80, -0.0f},        {0xfe, -448},         {0x81, -0.001953125f}, {0xb8, -1}};
    ttk_format format = {.code = TTK_E4M3, .scale = TTK_F32, .group = 2};
    const float one[1] = {1.0f};
    float value[CODES];
    for (int c = 0; c < CODES; c++) {
        unsigned char codes[2] = {(unsigned char)c, 0};
        float y[2];
        numbers(version, &format, &(ttk_unpacked){.code = codes, .scale = one}, 2, y);
        value[c] = y[0];
        int exponent = c >> 3 & 15, fraction = c & 7;
        double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
        if ((c & 0x7f) == 0x7f) {
            assert_true(isnan(value[c]));
        } else {
            /* -0 counts as 0 */
            assert_true((double)value[c] == (c & 0x80 ? -magnitude : magnitude));
        }
    }
    for (size_t i = 0; i < sizeof(spot) / sizeof(spot[0]); i++) {
        assert_true(value[spot[i].code] == spot[i].value);
    }
}

static void all_codes_of_fp8_are_right_in_every_version(void **state)
{
    (void)state;
    for_each_version(check_e4m3);
}

static void check_e2m1(const ttk_row *version)
{
    static const float want[16] = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                   0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    unsigned char codes[32], scale[1] = {0x7f};
    float y[32];
    for (int k = 0; k < 32; k++) {
        codes[k] = (unsigned char)(k & 15);
    }
    ttk_format format = {.code = TTK_E2M1, .scale = TTK_E8M0, .group = 32};
    static const struct {
        unsigned char byte;
        double value;
    } scales[] = {{0x7f, 1}, {0x80, 2}, {0x70, 0x1p-15}, {0x01, 0x1p-126}, {0xfc, 0x1p125}};
    for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++) {
        scale[0] = scales[s].byte;
        numbers(version, &format, &(ttk_unpacked){.code = codes, .scale = scale}, 32, y);
        for (int k = 0; k < 32; k++) {
            assert_int_equal(bits_of(y[k]) << 1,
                             bits_of((float)((double)want[k & 15] * scales[s].value)) << 1);
            assert_true(want[k & 15] == 0 || (y[k] < 0) == (want[k & 15] < 0));
        }
    }
}

static void all_codes_of_mxfp4_are_right_in_every_version(void **state)
{
    (void)state;
    for_each_version(check_e2m1);
    assert_true(ttk_number(TTK_E8M0, (unsigned char[]){0}, 0) == 0x1p-127f);
    assert_true(isnan(ttk_number(TTK_E8M0, (unsigned char[]){0xff}, 0)));
}

static void check_integers(const ttk_row *version)
{
    static const struct {
        ttk_dtype code;
        int n, zero;
    } kinds[] = {{TTK_I4, 16, 8}, {TTK_U4, 16, 0}, {TTK_I6, 64, 32}, {TTK_U8, 256, 0}};
    unsigned char codes[CODES];
    const uint16_t half[1] = {0x3800}; /* f16 0.5 */
    float y[CODES];
    for (int c = 0; c < CODES; c++) {
        codes[c] = (unsigned char)c;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        ttk_format format = {.code = kinds[i].code, .scale = TTK_F16, .group = CODES};
        numbers(version, &format, &(ttk_unpacked){.code = codes, .scale = half}, kinds[i].n, y);
        for (int c = 0; c < kinds[i].n; c++) {
            assert_true(y[c] == 0.5f * (float)(c - kinds[i].zero));
        }
    }
    ttk_format format = {.code = TTK_I8, .scale = TTK_F16, .group = CODES};
    numbers(version, &format, &(ttk_unpacked){.code = codes, .scale = half}, CODES, y);
    for (int c = 0; c < CODES; c++) {
        assert_true(y[c] == 0.5f * (float)(c < 128 ? c : c - 256));
    }
}

static void all_whole_numbers_are_right_in_every_version(void **state)
{
    (void)state;
    for_each_version(check_integers);
}

static void gate_and_up_are_not_taken_for_each_other(void **state)
{
    (void)state;
    const float gate[1] = {2.0f}, up[1] = {3.0f};
    float y[1];
    ttk.silu_mul_f32(y, 1, gate, 1, up, 1, 1, 1);
    assert_true(fabs((double)y[0] - 5.284782) < 1e-5); /* silu(2) * 3; the other way round it is
                                                        * 5.715445 */
}

int main(void)
{
    ttk_init(tt_cpu_flags());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_codes_of_fp8_are_right_in_every_version),
        cmocka_unit_test(all_codes_of_mxfp4_are_right_in_every_version),
        cmocka_unit_test(all_whole_numbers_are_right_in_every_version),
        cmocka_unit_test(gate_and_up_are_not_taken_for_each_other),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("codes", tests, NULL, NULL);
}
