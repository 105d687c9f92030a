/* test_quantize.c - rounding to quantised formats: each element goes to the nearest number that its
 * group's scale allows, and what has been rounded stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ttk.h"

enum { ROWS = 6, K = 333, BYTES = 1 << 16 };

static const ttk_format formats[] = {
    {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0},    {TTK_I8, TTK_BF16, TTK_SHIFT_NONE, 1 << 20, 0},
    {TTK_I8, TTK_F32, TTK_SHIFT_NONE, 64, 0},    {TTK_I4, TTK_F16, TTK_SHIFT_NONE, 32, 0},
    {TTK_I4, TTK_BF16, TTK_SHIFT_NONE, 128, 0},  {TTK_E4M3, TTK_F32, TTK_SHIFT_NONE, 128, 0},
    {TTK_E4M3, TTK_BF16, TTK_SHIFT_NONE, 64, 0}, {TTK_E2M1, TTK_E8M0, TTK_SHIFT_NONE, 32, 0},
};
enum { N_FORMATS = sizeof(formats) / sizeof(formats[0]) };

static _Alignas(64) unsigned char buffer[BYTES], again[BYTES];
static float x[ROWS * K], back[ROWS * K], twice[ROWS * K];

/* Row r has numbers about as large as 2^(8r - 24), with zeros in between. */
static void fill(void)
{
    uint32_t state = 12345;
    for (int i = 0; i < ROWS * K; i++) {
        state = state * 1664525u + 1013904223u;
        float plain = (float)(int32_t)(state >> 8) * 0x1p-23f - 1.0f;
        x[i] = i % 13 == 5 ? 0.0f : ldexpf(plain * fabsf(plain), 8 * (i / K) - 24);
    }
}

/* The distance from v to the nearest number of the code (times scale), by trying all. */
static double nearest_error(ttk_dtype code, double v, double scale)
{
    int n_codes = code == TTK_I8 || code == TTK_E4M3 ? 256 : 16;
    double best = DBL_MAX;
    for (int c = 0; c < n_codes; c++) {
        unsigned char byte = (unsigned char)c;
        double number = (double)ttk_number(code, &byte, 0);
        if (number == number && !(code == TTK_I8 && number == -128.0)) {
            best = fmin(best, fabs(v - number * scale));
        }
    }
    return best;
}

static void codes_are_the_nearest(void **state)
{
    (void)state;
    fill();
    for (int f = 0; f < N_FORMATS; f++) {
        const ttk_format *format = &formats[f];
        assert_true(ttk_can_quantize(format));
        assert_true(ttk_unpacked_bytes(format, ROWS, K) <= BYTES);
        ttk_unpacked rows = ttk_unpacked_in(format, ROWS, K, buffer);
        ttk.quantize(format, x, ROWS, K, &rows);
        int64_t G = (K - 1) / format->group + 1;
        for (int i = 0; i < ROWS * K; i++) {
            double scale =
                (double)ttk_number(format->scale, rows.scale, i / K * G + i % K / format->group);
            double number = (double)ttk_number(format->code, rows.code, i);
            double error = fabs((double)x[i] - number * scale);
            /* The quotient is rounded before it is rounded to a code. */
            double slack = fabs((double)x[i]) * 0x1p-23;
            assert_true(error <= nearest_error(format->code, (double)x[i], scale) + slack);
        }
    }
}

/* A scale is as small as the largest element allows: so the error is bounded by that. */
static void errors_are_bounded(void **state)
{
    (void)state;
    fill();
    for (int f = 0; f < N_FORMATS; f++) {
        const ttk_format *format = &formats[f];
        /* Half a step of the largest numbers, or for nibbles a whole one where +8 is missing. */
        double share = format->code == TTK_I8     ? 0.5 / 127.0
                       : format->code == TTK_I4   ? 1.0 / 8.0
                       : format->code == TTK_E4M3 ? 1.0 / 28.0
                                                  : 2.0 / 8.0;
        ttk_unpacked rows = ttk_unpacked_in(format, ROWS, K, buffer);
        ttk.quantize(format, x, ROWS, K, &rows);
        ttk_unpacked_to_f32(format, &rows, ROWS, K, back);
        for (int r = 2; r < ROWS; r++) { /* smaller rows have denormal f16 scales */
            for (int64_t begin = 0; begin < K; begin += format->group) {
                int64_t end = begin + format->group < K ? begin + format->group : K;
                double largest = 0.0, error = 0.0;
                for (int64_t k = begin; k < end; k++) {
                    largest = fmax(largest, fabs((double)x[r * K + k]));
                    double e = fabs((double)x[r * K + k] - (double)back[r * K + k]);
                    error = e > error || isnan(e) ? e : error; /* fmax would lose a NaN */
                }
                /* A bf16 scale is off by up to 2^-9. */
                assert_true(error <= largest * (share + 0x1p-8));
            }
        }
    }
}

static void rounding_twice_changes_no_code(void **state)
{
    (void)state;
    fill();
    for (int f = 0; f < N_FORMATS; f++) {
        ttk_unpacked rows = ttk_unpacked_in(&formats[f], ROWS, K, buffer);
        ttk_unpacked rows_again = ttk_unpacked_in(&formats[f], ROWS, K, again);
        ttk.quantize(&formats[f], x, ROWS, K, &rows);
        ttk_unpacked_to_f32(&formats[f], &rows, ROWS, K, back);
        ttk.quantize(&formats[f], back, ROWS, K, &rows_again);
        ttk_unpacked_to_f32(&formats[f], &rows_again, ROWS, K, twice);
        /* Scales of the first rows are denormal as f16, too coarse for that. */
        for (int i = formats[f].scale == TTK_F16 ? 3 * K : 0; i < ROWS * K; i++) {
            float a = ttk_number(formats[f].code, rows.code, i);
            float b = ttk_number(formats[f].code, rows_again.code, i);
            assert_true(a == b);
            assert_true(fabsf(twice[i] - back[i]) <= fabsf(back[i]) * 0x1p-22f);
        }
    }
}

/* Groups of zeros, of one huge or tiny number, and with one that is not finite. */
static void odd_groups_are_kept_or_become_nan(void **state)
{
    (void)state;
    for (int f = 0; f < N_FORMATS; f++) {
        static const float odd[] = {0.0f, -0.0f, FLT_MAX, -1e-45f, 3e-39f, NAN, -INFINITY};
        for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
            float group[4] = {0.0f, odd[i], 0.0f, 0.0f}, got[4];
            ttk_unpacked rows = ttk_unpacked_in(&formats[f], 1, 4, buffer);
            ttk.quantize(&formats[f], group, 1, 4, &rows);
            ttk_unpacked_to_f32(&formats[f], &rows, 1, 4, got);
            for (int k = 0; k < 4; k++) {
                assert_int_equal(isfinite(got[k]), isfinite(odd[i]));
                assert_true(!isfinite(odd[i]) || k == 1 || got[k] == 0.0f);
                assert_true(!isfinite(odd[i]) || fabsf(got[k]) <= fabsf(odd[i]) * 1.01f + 0x1p-24f);
            }
        }
    }
}

static void other_formats_are_refused(void **state)
{
    (void)state;
    assert_false(ttk_can_quantize(&(ttk_format){TTK_U4, TTK_F16, TTK_SHIFT_OFFSET, 32, 0}));
    assert_false(ttk_can_quantize(&(ttk_format){TTK_I6, TTK_I8, TTK_SHIFT_NONE, 16, 16}));
    assert_false(ttk_can_quantize(&(ttk_format){TTK_E2M1, TTK_F16, TTK_SHIFT_NONE, 32, 0}));
    assert_false(ttk_can_quantize(&(ttk_format){.code = TTK_BF16}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_the_nearest),
        cmocka_unit_test(errors_are_bounded),
        cmocka_unit_test(rounding_twice_changes_no_code),
        cmocka_unit_test(odd_groups_are_kept_or_become_nan),
        cmocka_unit_test(other_formats_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    ttk_init(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
