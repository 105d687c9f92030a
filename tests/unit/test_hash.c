/* test_hash.c - the published vectors of FNV-1a (64 bits) and of what is mixed beside it, and that
 * values go in by their bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tutti/hash.h"
#include <string.h>

static void published_vectors(void **state)
{
    static const struct {
        const char *text;
        uint64_t hash;
    } vectors[] = {{"", UINT64_C(0xcbf29ce484222325)},
                   {"a", UINT64_C(0xaf63dc4c8601ec8c)},
                   {"foobar", UINT64_C(0x85944171f73967e8)}};
    (void)state;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        assert_true(tt_hash_bytes(TT_HASH_BEGIN, vectors[i].text, strlen(vectors[i].text)) ==
                    vectors[i].hash);
    }
}

static void values_are_their_bytes_lowest_first(void **state)
{
    static const unsigned char bytes[] = {0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0xf1};
    const uint64_t value = UINT64_C(0xf123456789abcdef);
    (void)state;
    for (int n = 0; n <= 8; n++) {
        assert_true(tt_hash_value(TT_HASH_BEGIN, value, n) ==
                    tt_hash_bytes(TT_HASH_BEGIN, bytes, (size_t)n));
    }
    assert_true(tt_hash_u64(7, value) == tt_hash_bytes(7, bytes, sizeof(bytes)));
}

/* SplitMix64's first outputs for the seeds 0 and 1234567, as Java's SplittableRandom has them; and
 * each half depends on the order. */
static void the_second_half_is_another_hash(void **state)
{
    (void)state;
    tt_hash_pair a = tt_hash_pair_begin(), b = tt_hash_pair_begin();
    tt_hash_pair_add(&a, 0);
    tt_hash_pair_add(&b, 1234567);
    assert_true(a.second == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(b.second == UINT64_C(6457827717110365317));
    assert_true(b.first == tt_hash_step(TT_HASH_BEGIN, 1234567));
    tt_hash_pair_add(&a, 1234567);
    tt_hash_pair_add(&b, 0);
    assert_true(a.first != b.first && a.second != b.second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(values_are_their_bytes_lowest_first),
        cmocka_unit_test(the_second_half_is_another_hash),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
