/* ttk_quant.h - how a panel of quantised weights lies in memory, and how to find a group in it.
 * Private to kernels/.
 *
 * A panel (TTK_PANEL outputs j, all k) is one stream of runs. A run is `super` groups, or without
 * super scales one group, or two if the scales and shifts of one would fill half a cache line:
 *   header: super_scale[j], super_shift[j] (f16; if there are any), then for each group of the run
 *           scale[j], shift[j]; rounded up to a cache line
 *   codes:  for each group of the run its units
 * A unit is a small square of codes in which the 4 bytes of output j hold neighbouring k: so a
 * 32-bit lane is what int8 dot products (and the rows of an int8 tile) want, and the f32 products
 * pick one byte of it at a time.
 *   bytes:   4 k, 128 bytes:  byte 4j + i is k = i
 *   nibbles: 8 k, 128 bytes:  byte 4j + i is k = i (low) and k = 4 + i (high)
 *   six:    16 k, 384 bytes:  two units of the low nibbles, then 128 bytes of the upper two bits:
 *                             bits 2s, 2s + 1 of byte 4j + i belong to k = 4s + i
 * The last unit of a group is filled up with zero bits, and so are outputs beyond N. */
#ifndef TUTTI_TTK_QUANT_H
#define TUTTI_TTK_QUANT_H
#include "ttk.h"

enum {
    TTK_LINE_BYTES = 64,
    TTK_PLANE_BYTES = 4 * TTK_PANEL, /* 4 bytes for each output */
    TTK_SUPER_BYTES = 2 * TTK_PANEL  /* a f16 for each output */
};

/* Inputs k of a unit. */
static inline int64_t ttk_quant_unit(ttk_dtype code)
{
    switch (code) {
    case TTK_I4:
    case TTK_U4:
    case TTK_E2M1:
        return 8;
    case TTK_I6:
        return 16;
    default:
        return 4;
    }
}

/* Bytes of the codes of n_k inputs of a group. */
static inline size_t ttk_quant_code_bytes(ttk_dtype code, int64_t n_k)
{
    int64_t unit = ttk_quant_unit(code), n_units = (n_k + unit - 1) / unit;
    return (size_t)n_units * TTK_PLANE_BYTES * (code == TTK_I6 ? 3 : 1);
}

/* What is the same for all groups of a panel. Sizes in bytes. */
typedef struct ttk_quant_shape {
    int64_t K, group;         /* group is at most K */
    int64_t G, run;           /* groups of the panel, of a run */
    size_t super;             /* super scales and shifts of a run */
    size_t scale;             /* scales of one group */
    size_t shift;             /* shifts of one group */
    size_t codes;             /* codes of a whole group */
    size_t header, run_bytes; /* of a whole run */
} ttk_quant_shape;

static inline size_t ttk_quant_header(const ttk_quant_shape *shape, int64_t n_groups)
{
    size_t bytes = shape->super + (size_t)n_groups * (shape->scale + shape->shift);
    return (bytes + TTK_LINE_BYTES - 1) / TTK_LINE_BYTES * TTK_LINE_BYTES;
}

static inline ttk_quant_shape ttk_quant_shape_of(const ttk_format *format, int64_t K)
{
    ttk_quant_shape s = {.K = K, .group = format->group < K ? format->group : K};
    s.G = K > 0 ? (K - 1) / s.group + 1 : 0;
    s.scale = TTK_PANEL * ttk_dtype_bytes(format->scale);
    s.shift = format->shift == TTK_SHIFT_ZERO     ? TTK_PANEL
              : format->shift == TTK_SHIFT_OFFSET ? s.scale
                                                  : 0;
    s.run = (s.scale + s.shift) % TTK_LINE_BYTES ? 2 : 1;
    if (format->super > 0) {
        s.run = format->super;
        s.super = format->shift == TTK_SHIFT_OFFSET ? 2 * TTK_SUPER_BYTES : TTK_SUPER_BYTES;
    }
    s.codes = ttk_quant_code_bytes(format->code, s.group);
    s.header = ttk_quant_header(&s, s.run);
    s.run_bytes = s.header + (size_t)s.run * s.codes;
    return s;
}

/* Where a group of a panel lies: bytes from the start of the panel. */
typedef struct ttk_quant_place {
    size_t super_scale, super_shift, scale, shift, codes;
    int64_t g, in_run; /* the group, and its number in its run */
    int64_t n_k;       /* its inputs */
} ttk_quant_place;

/* Group g, which is the first of its run; the run begins at `begin`. */
static inline ttk_quant_place ttk_quant_run_at(const ttk_quant_shape *shape, int64_t g,
                                               size_t begin)
{
    int64_t groups_left = shape->G - g, k_left = shape->K - g * shape->group;
    ttk_quant_place p = {.super_scale = begin, .g = g};
    p.super_shift = begin + TTK_SUPER_BYTES;
    p.scale = begin + shape->super;
    p.shift = p.scale + shape->scale;
    p.codes =
        begin + (groups_left < shape->run ? ttk_quant_header(shape, groups_left) : shape->header);
    p.n_k = k_left < shape->group ? k_left : shape->group;
    return p;
}

/* From a group to the next. */
static inline void ttk_quant_advance(const ttk_quant_shape *shape, ttk_quant_place *place)
{
    if (place->in_run + 1 == shape->run) {
        *place = ttk_quant_run_at(shape, place->g + 1, place->super_scale + shape->run_bytes);
        return;
    }
    int64_t k_left = shape->K - (place->g + 1) * shape->group;
    place->g++;
    place->in_run++;
    place->scale += shape->scale + shape->shift;
    place->shift += shape->scale + shape->shift;
    place->codes += shape->codes;
    place->n_k = k_left < shape->group ? k_left : shape->group;
}

static inline ttk_quant_place ttk_quant_place_of(const ttk_quant_shape *shape, int64_t g)
{
    int64_t run = g / shape->run;
    ttk_quant_place place =
        ttk_quant_run_at(shape, run * shape->run, (size_t)run * shape->run_bytes);
    while (place.g < g) {
        ttk_quant_advance(shape, &place);
    }
    return place;
}

/* Where one code lies among the codes of its group: a byte and the bits in it, and for six bits a
 * second byte with the upper two. */
typedef struct ttk_quant_spot {
    size_t byte, upper_byte;
    int shift, upper_shift;
} ttk_quant_spot;

static inline ttk_quant_spot ttk_quant_spot_of(ttk_dtype code, int64_t k, int64_t j)
{
    int64_t unit = ttk_quant_unit(code);
    size_t in_plane = (size_t)(4 * j + k % 4);
    ttk_quant_spot spot = {0};
    if (unit == 4) {
        spot.byte = (size_t)(k / 4) * TTK_PLANE_BYTES + in_plane;
        return spot;
    }
    size_t planes = unit == 8 ? (size_t)(k / 8) : (size_t)(k / 16 * 3 + k % 16 / 8);
    spot.byte = planes * TTK_PLANE_BYTES + in_plane;
    spot.shift = (int)(k % 8 / 4 * 4);
    spot.upper_byte = (size_t)(k / 16 * 3 + 2) * TTK_PLANE_BYTES + in_plane;
    spot.upper_shift = (int)(k % 16 / 4 * 2);
    return spot;
}

/* The unpacked code k of output j of a group. */
static inline unsigned char ttk_quant_code(ttk_dtype code, const unsigned char *codes, int64_t k,
                                           int64_t j)
{
    ttk_quant_spot spot = ttk_quant_spot_of(code, k, j);
    int64_t unit = ttk_quant_unit(code);
    if (unit == 4) {
        return codes[spot.byte];
    }
    int low = codes[spot.byte] >> spot.shift & 15;
    int high = unit == 16 ? codes[spot.upper_byte] >> spot.upper_shift & 3 : 0;
    return (unsigned char)(low | high << 4);
}

/* The factors of group g of one output, as the products use them. */
static inline float ttk_quant_scale(const ttk_format *format, const unsigned char *panel,
                                    const ttk_quant_place *place, int64_t j)
{
    float scale = ttk_number(format->scale, panel + place->scale, j);
    return format->super > 0 ? scale * ttk_number(TTK_F16, panel + place->super_scale, j) : scale;
}

static inline float ttk_quant_offset(const ttk_format *format, const unsigned char *panel,
                                     const ttk_quant_place *place, int64_t j)
{
    float offset = ttk_number(format->scale, panel + place->shift, j);
    return format->super > 0 ? -(offset * ttk_number(TTK_F16, panel + place->super_shift, j))
                             : offset;
}

#endif
