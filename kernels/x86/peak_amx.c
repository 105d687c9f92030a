/* peak_amx.c - products of tiles, see ttk_peak.h: six independent sums, in 16 rows and columns
 * each. */
#include "amx.h"
#include "ttk_peak.h"
#include <string.h>

enum {
    TILES_PER_ROUND = 6,
    ROUNDS = TTK_PEAK_LOOPS / 32, /* a tile takes 16 cycles */
    OUTPUTS = AMX_ROWS * AMX_ROWS
};

static void begin(void)
{
    amx_config config;
    memset(&config, 0, sizeof(config));
    for (int tile = 0; tile < AMX_TILES; tile++) {
        amx_set_tile(&config, tile, AMX_ROWS, AMX_ROW_BYTES);
    }
    amx_begin(&config);
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    AMX_ZERO(4);
    AMX_ZERO(5);
    AMX_ZERO(6);
    AMX_ZERO(7);
}

#define RUN(dot)                                                                                   \
    do {                                                                                           \
        begin();                                                                                   \
        for (int i = 0; i < ROUNDS; i++) {                                                         \
            dot(0, 6, 7);                                                                          \
            dot(1, 6, 7);                                                                          \
            dot(2, 6, 7);                                                                          \
            dot(3, 6, 7);                                                                          \
            dot(4, 6, 7);                                                                          \
            dot(5, 6, 7);                                                                          \
        }                                                                                          \
        amx_end();                                                                                 \
    } while (0)

double ttk_peak_int8_amx(void)
{
    RUN(AMX_DOT_I8);
    return 2.0 * OUTPUTS * AMX_ROW_BYTES * TILES_PER_ROUND * ROUNDS;
}

double ttk_peak_bf16_amx(void)
{
    RUN(AMX_DOT_BF16);
    return 2.0 * OUTPUTS * (AMX_ROW_BYTES / 2) * TILES_PER_ROUND * ROUNDS;
}
