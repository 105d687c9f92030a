/* test_message_pieces.c - messages of gibibytes in pieces that MPI can count: the pieces follow each
 * other without a gap, the last one ends the message, and each has a count of int. Arithmetic only:
 * nothing is allocated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "comm_internal.h"

#define GIB ((size_t)1 << 30)

static void check(size_t piece_bytes, size_t bytes)
{
    const tt_world world = {.piece_bytes = piece_bytes};
    size_t n = tti_n_pieces(&world, bytes);
    assert_true(n >= 1 && n <= INT32_MAX);
    assert_true((n - 1) * piece_bytes < bytes || n == 1); /* no piece is empty but a lone one */
    assert_true(n * piece_bytes >= bytes);
    /* The first ones, the middle and the last: all others are whole. */
    const size_t look[] = {0, 1, n / 2, n - 2, n - 1};
    for (size_t i = 0; i < sizeof(look) / sizeof(look[0]); i++) {
        if (look[i] >= n) {
            continue;
        }
        size_t part = tti_piece_bytes(&world, bytes, look[i]);
        assert_true(part <= INT32_MAX && tti_int(part) >= 0);
        assert_true(part == (look[i] + 1 < n ? piece_bytes : bytes - (n - 1) * piece_bytes));
    }
}

static void gibibytes_are_cut_without_gaps(void **state)
{
    (void)state;
    static const size_t rows[] = {1, 149796, 149797, 150000, 299594, 349526, 1 << 20};
    static const size_t widths[] = {6144, 7168, 16384};
    static const size_t element_bytes[] = {1, 2, 4};
    static const size_t pieces[] = {256, (size_t)1 << 20, GIB};
    for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
        for (size_t k = 0; k <= 5; k++) { /* around multiples of a piece and of 2^31 */
            for (size_t near = 0; near <= 2; near++) {
                check(pieces[p], k * pieces[p] + near);
                check(pieces[p], k * 2 * GIB + 1 - near + (k == 0 ? near : 0));
            }
        }
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
                for (size_t e = 0; e < sizeof(element_bytes) / sizeof(element_bytes[0]); e++) {
                    check(pieces[p], rows[r] * widths[w] * element_bytes[e]);
                }
            }
        }
    }
    const tt_world world = {.piece_bytes = GIB};
    assert_int_equal(tti_n_pieces(&world, (size_t)150000 * 7168 * 2), 3); /* 2150400000 bytes */
    assert_int_equal(tti_piece_bytes(&world, (size_t)150000 * 7168 * 2, 2), 2150400000u - 2 * GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gibibytes_are_cut_without_gaps)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
