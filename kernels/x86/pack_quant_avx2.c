/* pack_quant_avx2.c - unpacked quantised rows into panels. 16 codes of each of 8 outputs are turned
 * as 4 x 8 lanes of 4 codes each (that is a unit of bytes); nibbles and six bits are put together
 * after that, where lanes of one output stand in the same place. */
#include "vec_avx2.h"
#include "ttk_quant.h"
#include "ttk_versions.h"

enum {
    QUAD = 4,   /* codes in a lane */
    STEP = 16,  /* codes of a row, */
    OUTPUTS = 8 /* and rows, that are turned together */
};

/* to[TTK_PANEL] = element g of each row of array[rows][G], 0 beyond n rows. */
static void pack_factors(unsigned char *to, const void *array, int64_t G, int64_t g, int64_t n,
                         size_t bytes)
{
    const unsigned char *from = (const unsigned char *)array + (size_t)g * bytes;
    const size_t step = (size_t)G * bytes;
    for (int64_t j = 0; j < n; j++, from += step) {
        switch (bytes) { /* a memcpy of a size that is not known is a call */
        case 1:
            to[j] = *from;
            break;
        case 2:
            memcpy(to + 2 * j, from, 2);
            break;
        default:
            memcpy(to + 4 * j, from, 4);
            break;
        }
    }
}

/* The factors of a group, from those of the panel's n rows. The header is zeroed with its first
 * group. */
static void pack_header(unsigned char *panel, const ttk_format *format,
                        const ttk_quant_shape *shape, const ttk_quant_place *place,
                        const ttk_unpacked *rows, int64_t n)
{
    const int64_t G = shape->G;
    if (place->in_run == 0) {
        memset(panel + place->super_scale, 0, place->codes - place->super_scale);
    }
    pack_factors(panel + place->scale, rows->scale, G, place->g, n, ttk_dtype_bytes(format->scale));
    if (format->shift != TTK_SHIFT_NONE) {
        size_t bytes = format->shift == TTK_SHIFT_ZERO ? 1 : ttk_dtype_bytes(format->scale);
        pack_factors(panel + place->shift, rows->shift, G, place->g, n, bytes);
    }
    if (format->super > 0 && place->in_run == 0) {
        int64_t S = (G + format->super - 1) / format->super, s = place->g / format->super;
        pack_factors(panel + place->super_scale, rows->super_scale, S, s, n, sizeof(uint16_t));
        if (format->shift == TTK_SHIFT_OFFSET) {
            pack_factors(panel + place->super_shift, rows->super_shift, S, s, n, sizeof(uint16_t));
        }
    }
}

/* lane[i]: codes 4i .. 4i+3 of 8 rows, row j in lane j. */
TTK_INLINE void turn(const unsigned char *const *row, __m256i *lane)
{
    __m256i r[4];
    TTK_UNROLL
    for (int j = 0; j < 4; j++) { /* rows j and 4 + j */
        __m128i low = _mm_loadu_si128((const __m128i *)row[j]);
        __m128i high = _mm_loadu_si128((const __m128i *)row[4 + j]);
        r[j] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
    __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpacklo_epi32(r[2], r[3]);
    __m256i c = _mm256_unpackhi_epi32(r[0], r[1]), d = _mm256_unpackhi_epi32(r[2], r[3]);
    lane[0] = _mm256_unpacklo_epi64(a, b);
    lane[1] = _mm256_unpackhi_epi64(a, b);
    lane[2] = _mm256_unpacklo_epi64(c, d);
    lane[3] = _mm256_unpackhi_epi64(c, d);
}

TTK_INLINE void put(unsigned char *to, __m256i bytes)
{
    _mm256_storeu_si256((__m256i *)to, bytes);
}

/* Two lanes of 4 codes each as nibbles. */
TTK_INLINE __m256i nibbles(__m256i first, __m256i second)
{
    const __m256i low4 = _mm256_set1_epi8(0x0f);
    second = _mm256_slli_epi16(_mm256_and_si256(second, low4), 4);
    return _mm256_or_si256(_mm256_and_si256(first, low4), second);
}

/* The upper two bits of the codes of a lane, in their place of the third plane of six bits. */
TTK_INLINE __m256i upper_two(__m256i lane, int i)
{
    __m256i two = _mm256_and_si256(_mm256_srli_epi16(lane, 4), _mm256_set1_epi8(3));
    return _mm256_slli_epi16(two, 2 * i);
}

/* The units of up to STEP codes of 8 outputs; n_k says how many units there are. */
TTK_INLINE void put_units(int64_t unit, unsigned char *to, const __m256i *lane, int64_t n_k)
{
    if (unit == 4) {
        TTK_UNROLL
        for (int i = 0; i < 4; i++) {
            if (4 * i < n_k) {
                put(to + i * TTK_PLANE_BYTES, lane[i]);
            }
        }
        return;
    }
    put(to, nibbles(lane[0], lane[1]));
    if (unit == 16 || n_k > 8) {
        put(to + TTK_PLANE_BYTES, nibbles(lane[2], lane[3]));
    }
    if (unit == 16) {
        __m256i upper =
            _mm256_or_si256(_mm256_or_si256(upper_two(lane[0], 0), upper_two(lane[1], 1)),
                            _mm256_or_si256(upper_two(lane[2], 2), upper_two(lane[3], 3)));
        put(to + 2 * TTK_PLANE_BYTES, upper);
    }
}

/* row[8]: the codes of a group, n_k of each; NULL beyond the last row. */
TTK_INLINE void pack_eight(int64_t unit, unsigned char *codes, const unsigned char *const *row,
                           int64_t n_k)
{
    static const unsigned char zeros[STEP];
    const size_t step_bytes = (size_t)(STEP / unit) * TTK_PLANE_BYTES * (unit == 16 ? 3 : 1);
    for (int64_t k = 0; k < n_k; k += STEP, codes += step_bytes) {
        const unsigned char *from[OUTPUTS];
        unsigned char last[OUTPUTS][STEP] = {{0}};
        __m256i lane[4];
        for (int j = 0; j < OUTPUTS; j++) {
            from[j] = row[j] ? row[j] + k : zeros;
            if (n_k - k < STEP && row[j]) {
                memcpy(last[j], from[j], (size_t)(n_k - k));
                from[j] = last[j];
            }
        }
        turn(from, lane);
        put_units(unit, codes, lane, n_k - k);
    }
}

static void pack_codes(int64_t unit, unsigned char *codes, const unsigned char *const *row,
                       int64_t n_k)
{
    switch (unit) {
    case 4:
        pack_eight(4, codes, row, n_k);
        break;
    case 8:
        pack_eight(8, codes, row, n_k);
        break;
    default:
        pack_eight(16, codes, row, n_k);
        break;
    }
}

/* The arrays of ttk_unpacked from row n on. */
static ttk_unpacked rows_from(const ttk_unpacked *rows, const ttk_format *format,
                              const ttk_quant_shape *shape, int64_t n)
{
    const size_t scale = ttk_dtype_bytes(format->scale);
    const size_t shift = format->shift == TTK_SHIFT_ZERO ? 1 : scale;
    const size_t G = (size_t)(n * shape->G);
    const size_t S =
        format->super > 0 ? (size_t)(n * ((shape->G + format->super - 1) / format->super)) : 0;
    const bool has_shift = format->shift != TTK_SHIFT_NONE, has_super = format->super > 0;
    ttk_unpacked part = *rows;
    part.code = (const unsigned char *)rows->code + n * shape->K;
    part.scale = (const unsigned char *)rows->scale + G * scale;
    part.shift = has_shift ? (const unsigned char *)rows->shift + G * shift : NULL;
    part.super_scale = has_super ? (const uint16_t *)rows->super_scale + S : NULL;
    part.super_shift = has_super && format->shift == TTK_SHIFT_OFFSET
                           ? (const uint16_t *)rows->super_shift + S
                           : NULL;
    return part;
}

void ttk_pack_quant_avx2(void *packed, const ttk_format *format, const ttk_unpacked *rows,
                         int64_t N, int64_t K, int64_t panel_begin, int64_t panel_end)
{
    const ttk_quant_shape shape = ttk_quant_shape_of(format, K);
    const size_t panel_bytes = ttk_panel_bytes(format, K);
    const int64_t unit = ttk_quant_unit(format->code);
    for (int64_t p = panel_begin; p < panel_end && shape.G > 0; p++) {
        unsigned char *panel = (unsigned char *)packed + (size_t)p * panel_bytes;
        const int64_t left = N - p * TTK_PANEL, n = left < TTK_PANEL ? left : TTK_PANEL;
        const ttk_unpacked part = rows_from(rows, format, &shape, p * TTK_PANEL);
        ttk_quant_place place = ttk_quant_place_of(&shape, 0);
        while (place.g < shape.G) {
            pack_header(panel, format, &shape, &place, &part, n);
            for (int j = 0; j < TTK_PANEL; j += OUTPUTS) {
                const unsigned char *row[OUTPUTS];
                for (int i = 0; i < OUTPUTS; i++) {
                    row[i] = j + i < n ? (const unsigned char *)part.code + (j + i) * K +
                                             place.g * shape.group
                                       : NULL;
                }
                pack_codes(unit, panel + place.codes + QUAD * j, row, place.n_k);
            }
            ttk_quant_advance(&shape, &place);
        }
    }
}
