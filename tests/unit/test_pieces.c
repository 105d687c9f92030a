/* test_pieces.c - matrices of real widths come in pieces that the relay of a node can carry,
 * whatever their layout: else each rank of the node would read them for itself. Geometry only, no
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "source.h"
#include "tutti/load.h"

/* Inputs and outputs of q, o, up, down and the like, from 1 B to 400 B parameters. */
static const int64_t widths[][2] = {{1024, 4096},   {2048, 4096},  {4096, 2048},  {2048, 6144},
                                    {4096, 4096},   {4096, 14336}, {5120, 5120},  {14336, 4096},
                                    {7168, 18432},  {18432, 7168}, {8192, 28672}, {28672, 8192},
                                    {16384, 53248}, {53248, 16384}};
enum { N_WIDTHS = sizeof(widths) / sizeof(widths[0]), GROUP = 128 };

static tti_source whole(int64_t K, int64_t N)
{
    return (tti_source){.scheme = TTI_SCHEME_QUANT,
                        .name = "w",
                        .plane_rows = N,
                        .file_rows = N,
                        .file_cols = K,
                        .segment = {{N, 0, N, N}},
                        .n_segments = 1,
                        .scale_rows = 1};
}

static tti_part part(int64_t lines, int64_t words, int word_bytes, int bits, tti_packing packing,
                     bool transposed, bool awq)
{
    return (tti_part){0,
                      0,
                      (uint64_t)(lines * words * word_bytes),
                      lines,
                      words,
                      (uint16_t)word_bytes,
                      (uint16_t)bits,
                      packing,
                      transposed,
                      awq};
}

/* Codes, scales and zero points with inputs as the slow index. g_idx: with a group for each input,
 * too. */
static tti_source gptq(int64_t K, int64_t N, int bits, bool awq, bool g_idx)
{
    tti_source s = whole(K, N);
    int64_t per = 32 / bits, G = K / GROUP;
    s.stored = s.format =
        (ttk_format){bits == 4 ? TTK_U4 : TTK_U8, TTK_F16, TTK_SHIFT_ZERO, GROUP, 0};
    s.part[TTI_PART_CODE] = awq ? part(K, N / per, 4, bits, TTI_PACKING_OUTPUTS, true, true)
                                : part(K / per, N, 4, bits, TTI_PACKING_INPUTS, true, false);
    s.part[TTI_PART_SCALE] = part(G, N, 2, 16, TTI_PACKING_NONE, true, false);
    s.part[TTI_PART_ZERO] = part(G, N / per, 4, bits, TTI_PACKING_OUTPUTS, true, awq);
    if (g_idx) {
        s.part[TTI_PART_GROUPS] = part(1, K, 4, 32, TTI_PACKING_NONE, false, false);
        s.format = (ttk_format){.code = TTK_F32};
    }
    return s;
}

static tti_source plain(int64_t K, int64_t N)
{
    tti_source s = whole(K, N);
    s.scheme = TTI_SCHEME_PLAIN;
    s.format = (ttk_format){.code = TTK_F32};
    s.part[TTI_PART_CODE] = part(0, 0, 4, 32, TTI_PACKING_NONE, false, false);
    s.part[TTI_PART_CODE].bytes = (uint64_t)(K * N) * 4;
    return s;
}

/* The pieces are not above the limit, hold whole panels unless one panel is, and together read the
 * matrix not more than twice. */
static void check_pieces(const tti_source *s, int64_t K, int64_t N)
{
    const tt_tensor tensor = {.name = "w", .rows = N, .cols = K, .format = s->format, .source = s};
    size_t bytes;
    int64_t unit = TTK_PANEL, step = tti_raw_rows(&tensor, TT_LOAD_PIECE_BYTES, 0, N, unit, &bytes);
    if (bytes > TT_LOAD_PIECE_BYTES) {
        unit = 1;
        step = tti_raw_rows(&tensor, TT_LOAD_PIECE_BYTES, 0, N, unit, &bytes);
    }
    uint64_t read = 0, file = tt_tensor_file_bytes(&tensor, N);
    for (int64_t row = 0; row < N; row += step) {
        int64_t n = N - row < step ? N - row : step;
        assert_true(tti_raw_bytes(&tensor, row, n) <= bytes);
        read += tti_raw_file_bytes(&tensor, row, n);
    }
    if (bytes > TT_LOAD_PIECE_BYTES || (step % unit != 0 && step != N) || read < file ||
        read > 2 * file) {
        fail_msg("K %lld N %lld: pieces of %lld rows take %zu bytes, %llu of %llu are read",
                 (long long)K, (long long)N, (long long)step, bytes, (unsigned long long)read,
                 (unsigned long long)file);
    }
}

static void quantised_matrices_are_relayed(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_WIDTHS; i++) {
        int64_t K = widths[i][0], N = widths[i][1];
        for (int kind = 0; kind < 8; kind++) {
            tti_source s = gptq(K, N, kind & 1 ? 8 : 4, kind & 2, kind & 4);
            check_pieces(&s, K, N);
        }
    }
}

static void plain_matrices_are_relayed(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_WIDTHS; i++) {
        tti_source s = plain(widths[i][0], widths[i][1]);
        check_pieces(&s, widths[i][0], widths[i][1]);
    }
}

/* Matrices of 1 GiB to 256 GiB, and beyond 2^31 numbers: offsets do not wrap. */
static void gibibytes_are_relayed(void **state)
{
    (void)state;
    static const int64_t huge[][2] = {
        {16384, 16384}, {16384, 131072}, {65536, 65536}, {262144, 262144}};
    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        int64_t K = huge[i][0], N = huge[i][1];
        tti_source s = plain(K, N), q = gptq(K, N, 8, false, false);
        check_pieces(&s, K, N);
        check_pieces(&q, K, N);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(quantised_matrices_are_relayed),
                                       cmocka_unit_test(plain_matrices_are_relayed),
                                       cmocka_unit_test(gibibytes_are_relayed)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
