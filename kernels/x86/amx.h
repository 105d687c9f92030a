/* amx.h - tiles: 8 registers of up to 16 rows by 64 bytes, which need their shape set on the thread
 * that uses them. As assembly, since compilers' own intrinsics do not all say that a tile load
 * reads memory. */
#ifndef TUTTI_TTK_AMX_H
#define TUTTI_TTK_AMX_H
#include <stdint.h>

enum { AMX_ROWS = 16, AMX_ROW_BYTES = 64, AMX_TILES = 8 };

typedef struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;

static inline void amx_set_tile(amx_config *config, int tile, int64_t rows, int64_t row_bytes)
{
    config->palette = 1;
    config->rows[tile] = (uint8_t)rows;
    config->row_bytes[tile] = (uint16_t)row_bytes;
}

static inline void amx_begin(const amx_config *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*config));
}

/* Lets the CPU forget the tiles, which would cost every switch of threads. */
static inline void amx_end(void)
{
    __asm__ volatile("tilerelease");
}

#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define AMX_LOAD(tile, from, stride)                                                               \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                            \
                     :                                                                             \
                     : "r"(from), "r"((int64_t)(stride))                                           \
                     : "memory")
#define AMX_STORE(tile, to, stride)                                                                \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                                        \
                     :                                                                             \
                     : "r"(to), "r"((int64_t)(stride))                                             \
                     : "memory")
/* sums += a b: rows of a by columns of 4 (2) numbers of b. */
#define AMX_DOT_I8(sums, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #sums : :)
#define AMX_DOT_BF16(sums, a, b)                                                                   \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums : :)

#endif
