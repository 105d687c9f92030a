/* test_linear.c - a product of any weight format, split over threads and panels, has the bits of
 * one call of the kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/linear.h"

enum { N = 150, K = 90, M = 7 };

static const ttk_format formats[] = {
    {.code = TTK_F32},
    {.code = TTK_BF16},
    {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0},
    {TTK_U4, TTK_U8, TTK_SHIFT_OFFSET, 16, 4},
    {TTK_E4M3, TTK_F32, TTK_SHIFT_NONE, 128, 0},
    {TTK_U4, TTK_BF16, TTK_SHIFT_ZERO, 24, 0},
};

/* Any bytes below 0x40 are finite numbers of every type, and codes of every one but the nibbles,
 * of which pack keeps the lower bits. */
static void *random_bytes(size_t n)
{
    unsigned char *bytes = malloc(n ? n : 1);
    assert_non_null(bytes);
    uint32_t state = 7;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24 & 0x3f);
    }
    return bytes;
}

static void fill(tt_linear *linear, const ttk_format *format)
{
    assert_int_equal(tt_linear_init(linear, "test", format, N, K, 0), TT_OK);
    assert_int_equal(tt_linear_bytes(linear), ttk_packed_bytes(format, N, K));
    void *buffer = random_bytes(ttk_unpacked_bytes(format, N, K));
    ttk_unpacked rows = ttk_unpacked_in(format, N, K, buffer);
    int64_t n_panels = tt_linear_n_panels(linear);
    if (ttk_format_is_plain(format)) {
        ttk.pack(linear->panels, format->code, rows.code, format->code, K, 1, N, K, 0, n_panels);
    } else {
        ttk.pack_quant(linear->panels, format, &rows, N, K, 0, n_panels);
    }
    free(buffer);
}

static void call_kernel(const tt_linear *w, float *y, const float *x)
{
    if (w->format.code == TTK_F32) {
        ttk.gemm_f32(y, N, x, K, w->panels, M, N, K);
    } else if (w->format.code == TTK_BF16) {
        ttk.gemm_bf16(y, N, x, K, w->panels, M, N, K);
    } else {
        ttk.gemm_quant(y, N, x, K, &w->format, w->panels, M, N, K);
    }
}

static void fill_rows(float *x)
{
    for (int i = 0; i < M * K; i++) {
        x[i] = (float)(i * 37 % 101) / 64.0f - 0.75f;
    }
}

/* Whatever the number of threads, their parts are the whole. */
static void expect_parts(const tt_linear *linear, const tt_rows *rows, const float *want)
{
    float got[M * N];
    for (int n_threads = 1; n_threads <= 9; n_threads += 2) {
        memset(got, 0xff, sizeof(got));
        for (int thread = 0; thread < n_threads; thread++) {
            tt_linear_part(linear, got, N, rows, M, thread, n_threads);
        }
        assert_memory_equal(got, want, sizeof(got));
    }
}

static void every_format_runs_in_parts(void **state)
{
    (void)state;
    float x[M * K], want[M * N], got[M * N];
    fill_rows(x);
    const tt_rows rows = tt_rows_plain(x, K);
    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
        tt_linear linear;
        fill(&linear, &formats[f]);
        call_kernel(&linear, want, x);
        expect_parts(&linear, &rows, want);
        memset(got, 0xff, sizeof(got));
        for (int64_t p = 0; p < tt_linear_n_panels(&linear); p++) {
            tt_linear_panels(&linear, got, N, &rows, M, p, p + 1);
        }
        assert_memory_equal(got, want, sizeof(want));
        tt_linear_fini(&linear);
    }
}

/* Rows as int8 go to the int8 product where a format can have it, and to the other where not. */
static void int8_rows_run_in_parts(void **state)
{
    (void)state;
    float x[M * K], want[M * N];
    fill_rows(x);
    void *buffer = aligned_alloc(64, tt_rows_bytes(TT_ACT_INT8, M, K));
    assert_non_null(buffer);
    const tt_rows rows = tt_rows_round(TT_ACT_INT8, NULL, buffer, x, K, M, K);
    int n_int8 = 0;
    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
        tt_linear linear;
        fill(&linear, &formats[f]);
        if (ttk_can_act8(&formats[f], K)) {
            ttk.gemm_act8(want, N, rows.rounded, rows.stride, &formats[f], linear.panels, M, N, K);
            n_int8++;
        } else {
            call_kernel(&linear, want, x);
        }
        expect_parts(&linear, &rows, want);
        tt_linear_fini(&linear);
    }
    assert_int_equal(n_int8, 2);
    free(buffer);
}

/* Each row by itself, whoever rounds it; bf16 rows are floats again. */
static void rows_are_rounded_one_by_one(void **state)
{
    (void)state;
    enum { LD = K + 3 };
    float x[M * LD];
    for (int i = 0; i < M * LD; i++) {
        x[i] = (float)(i * 7919 % 1009) / 77.0f - 6.5f;
    }
    for (tt_act act = TT_ACT_F32; act <= TT_ACT_INT8; act++) {
        const size_t bytes = tt_rows_bytes(act, M, K);
        assert_int_equal(bytes == 0, act == TT_ACT_F32);
        unsigned char *whole = aligned_alloc(64, bytes + 64),
                      *single = aligned_alloc(64, bytes + 64);
        assert_true(whole && single);
        memset(whole, 0, bytes);
        memset(single, 0, bytes);
        const tt_rows rows = tt_rows_round(act, NULL, whole, x, LD, M, K);
        for (int m = M - 1; m >= 0; m--) {
            tt_rows_round_part(act, single, x, LD, m, m + 1, K);
        }
        assert_memory_equal(whole, single, bytes);
        for (int i = 0; i < M * K; i++) {
            float was = x[i / K * LD + i % K], want, is = rows.x[i / K * rows.ldx + i % K];
            assert_true(is == was);
            if (act == TT_ACT_BF16) {
                const unsigned char *row =
                    (const unsigned char *)rows.rounded + (size_t)(i / K) * rows.stride;
                ttk_bf16 half;
                ttk.f32_to_bf16(&half, &was, 1);
                ttk.bf16_to_f32(&want, &half, 1);
                memcpy(&is, row + (size_t)(i % K) * sizeof(float), sizeof(is));
                assert_true(is == want);
            }
        }
        free(whole);
        free(single);
    }
}

/* bf16 rows are for quantised weights only. */
static void plain_weights_take_rows_as_they_are(void **state)
{
    (void)state;
    float x[M * K], rounded[M * K], want[M * N], got[M * N];
    for (int i = 0; i < M * K; i++) {
        x[i] = (float)(i * 7919 % 1009) / 77.0f - 6.5f;
        ttk_bf16 half;
        ttk.f32_to_bf16(&half, &x[i], 1);
        ttk.bf16_to_f32(&rounded[i], &half, 1);
    }
    void *buffer = aligned_alloc(64, tt_rows_bytes(TT_ACT_BF16, M, K));
    assert_non_null(buffer);
    const tt_rows rows = tt_rows_round(TT_ACT_BF16, NULL, buffer, x, K, M, K);
    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
        tt_linear linear;
        fill(&linear, &formats[f]);
        call_kernel(&linear, want, ttk_format_is_plain(&formats[f]) ? x : rounded);
        tt_linear_part(&linear, got, N, &rows, M, 0, 1);
        assert_memory_equal(got, want, sizeof(want));
        tt_linear_fini(&linear);
    }
    free(buffer);
}

/* Products of many rows through OpenBLAS, split over threads, are our own but for rounding. Last:
 * it stays in use. */
static void blas_is_near(void **state)
{
    (void)state;
    enum { ROWS = 80 };
    if (tt_linear_use_blas() != TT_OK) {
        skip();
    }
    float *x = malloc(ROWS * K * sizeof(*x)), *got = malloc(ROWS * N * sizeof(*got)),
          *want = malloc(ROWS * N * sizeof(*want));
    assert_true(x && got && want);
    for (int i = 0; i < ROWS * K; i++) {
        x[i] = (float)(i * 7919 % 1009) / 77.0f - 6.5f;
    }
    const tt_rows rows = tt_rows_plain(x, K);
    for (int f = 0; f < 2; f++) {
        tt_linear linear;
        fill(&linear, &formats[f]);
        if (f == 0) {
            ttk.gemm_f32(want, N, x, K, linear.panels, ROWS, N, K);
        } else {
            ttk.gemm_bf16(want, N, x, K, linear.panels, ROWS, N, K);
        }
        for (int thread = 0; thread < 2; thread++) {
            tt_linear_part(&linear, got, N, &rows, ROWS, thread, 2);
        }
        for (int i = 0; i < ROWS * N; i++) {
            assert_true(fabsf(got[i] - want[i]) <= 2e-3f + 1e-5f * fabsf(want[i]));
        }
        tt_linear_fini(&linear);
    }
    free(x);
    free(got);
    free(want);
}

int main(void)
{
    ttk_init(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_runs_in_parts),
        cmocka_unit_test(int8_rows_run_in_parts),
        cmocka_unit_test(rows_are_rounded_one_by_one),
        cmocka_unit_test(plain_weights_take_rows_as_they_are),
        cmocka_unit_test(blas_is_near),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
