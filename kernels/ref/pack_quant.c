/* pack_quant.c - unpacked quantised rows into panels, and rows of a packed matrix (of any format)
 * back. Bits move and nothing is computed, so one is the inverse of the other. */
#include <string.h>
#include "ttk_versions.h"
#include "ttk_quant.h"

/* ---- what belongs to a group or a run: the elements of one output ---- */

/* Element i of an array becomes element j of those at `to`. */
static void put(unsigned char *to, int64_t j, const void *array, int64_t i, size_t bytes)
{
    memcpy(to + (size_t)j * bytes, (const unsigned char *)array + (size_t)i * bytes, bytes);
}

/* And back; the arrays of ttk_unpacked are const for readers, here they are written. */
static void get(const void *array, int64_t i, const unsigned char *from, int64_t j, size_t bytes)
{
    memcpy((unsigned char *)array + (size_t)i * bytes, from + (size_t)j * bytes, bytes);
}

static size_t shift_bytes(const ttk_format *format)
{
    return format->shift == TTK_SHIFT_ZERO ? 1 : ttk_dtype_bytes(format->scale);
}

/* The scales and shifts of group g of row n become those of output j. */
static void pack_factors(unsigned char *panel, const ttk_format *format,
                         const ttk_quant_shape *shape, int64_t g, int64_t j,
                         const ttk_unpacked *rows, int64_t n)
{
    ttk_quant_place place = ttk_quant_place_of(shape, g);
    int64_t at = n * shape->G + g;
    put(panel + place.scale, j, rows->scale, at, ttk_dtype_bytes(format->scale));
    if (format->shift != TTK_SHIFT_NONE) {
        put(panel + place.shift, j, rows->shift, at, shift_bytes(format));
    }
    if (format->super > 0 && place.in_run == 0) {
        int64_t S = (shape->G + format->super - 1) / format->super;
        at = n * S + g / format->super;
        put(panel + place.super_scale, j, rows->super_scale, at, sizeof(uint16_t));
        if (format->shift == TTK_SHIFT_OFFSET) {
            put(panel + place.super_shift, j, rows->super_shift, at, sizeof(uint16_t));
        }
    }
}

static void unpack_factors(const ttk_unpacked *rows, int64_t n, const ttk_format *format,
                           const ttk_quant_shape *shape, int64_t g, const unsigned char *panel,
                           int64_t j)
{
    ttk_quant_place place = ttk_quant_place_of(shape, g);
    int64_t at = n * shape->G + g;
    get(rows->scale, at, panel + place.scale, j, ttk_dtype_bytes(format->scale));
    if (format->shift != TTK_SHIFT_NONE) {
        get(rows->shift, at, panel + place.shift, j, shift_bytes(format));
    }
    if (format->super > 0 && place.in_run == 0) {
        int64_t S = (shape->G + format->super - 1) / format->super;
        at = n * S + g / format->super;
        get(rows->super_scale, at, panel + place.super_scale, j, sizeof(uint16_t));
        if (format->shift == TTK_SHIFT_OFFSET) {
            get(rows->super_shift, at, panel + place.super_shift, j, sizeof(uint16_t));
        }
    }
}

/* ---- codes ---- */

/* row[n_k] into the codes of a group, whose bits are zero. */
static void pack_codes(unsigned char *codes, ttk_dtype code, int64_t j, const unsigned char *row,
                       int64_t n_k)
{
    int64_t unit = ttk_quant_unit(code);
    for (int64_t k = 0; k < n_k; k++) {
        ttk_quant_spot spot = ttk_quant_spot_of(code, k, j);
        int low = unit == 4 ? row[k] : (row[k] & 15) << spot.shift;
        codes[spot.byte] = (unsigned char)(codes[spot.byte] | low);
        if (unit == 16) {
            int high = (row[k] >> 4 & 3) << spot.upper_shift;
            codes[spot.upper_byte] = (unsigned char)(codes[spot.upper_byte] | high);
        }
    }
}

void ttk_pack_quant_ref(void *packed, const ttk_format *format, const ttk_unpacked *rows, int64_t N,
                        int64_t K, int64_t panel_begin, int64_t panel_end)
{
    ttk_quant_shape shape = ttk_quant_shape_of(format, K);
    size_t panel_bytes = ttk_panel_bytes(format, K);
    for (int64_t p = panel_begin; p < panel_end; p++) {
        unsigned char *panel = (unsigned char *)packed + (size_t)p * panel_bytes;
        memset(panel, 0, panel_bytes);
        for (int64_t j = 0; j < TTK_PANEL && p * TTK_PANEL + j < N; j++) {
            int64_t n = p * TTK_PANEL + j;
            const unsigned char *row = (const unsigned char *)rows->code + n * K;
            for (int64_t g = 0; g < shape.G; g++) {
                ttk_quant_place place = ttk_quant_place_of(&shape, g);
                pack_factors(panel, format, &shape, g, j, rows, n);
                pack_codes(panel + place.codes, format->code, j, row + g * shape.group, place.n_k);
            }
        }
    }
}

static void unpack_plain(const ttk_unpacked *rows, const ttk_format *format, const void *packed,
                         int64_t K, int64_t row, int64_t n)
{
    size_t bytes = ttk_dtype_bytes(format->code), panel_bytes = ttk_panel_bytes(format, K);
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *panel =
            (const unsigned char *)packed + (size_t)((row + i) / TTK_PANEL) * panel_bytes;
        for (int64_t k = 0; k < K; k++) {
            get(rows->code, i * K + k, panel, k * TTK_PANEL + (row + i) % TTK_PANEL, bytes);
        }
    }
}

void ttk_unpack_ref(const ttk_unpacked *rows, const ttk_format *format, const void *packed,
                    int64_t K, int64_t row, int64_t n)
{
    if (ttk_format_is_plain(format)) {
        unpack_plain(rows, format, packed, K, row, n);
        return;
    }
    ttk_quant_shape shape = ttk_quant_shape_of(format, K);
    size_t panel_bytes = ttk_panel_bytes(format, K);
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *panel =
            (const unsigned char *)packed + (size_t)((row + i) / TTK_PANEL) * panel_bytes;
        int64_t j = (row + i) % TTK_PANEL;
        unsigned char *code = (unsigned char *)rows->code + i * K;
        for (int64_t g = 0; g < shape.G; g++) {
            ttk_quant_place place = ttk_quant_place_of(&shape, g);
            unpack_factors(rows, i, format, &shape, g, panel, j);
            for (int64_t k = 0; k < place.n_k; k++) {
                code[g * shape.group + k] = ttk_quant_code(format->code, panel + place.codes, k, j);
            }
        }
    }
}
