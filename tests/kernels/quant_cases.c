/* quant_cases.c - random quantised formats (those of checkpoints, and any other that the struct
 * allows) and random unpacked rows of them. */
#include "quant_cases.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { F16_PLAIN = 0x3bff };

/* ---- random formats ---- */
static const ttk_format known[] = {
    {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0},    /* Q8_0 */
    {TTK_I4, TTK_F16, TTK_SHIFT_NONE, 32, 0},    /* Q4_0 */
    {TTK_U4, TTK_F16, TTK_SHIFT_OFFSET, 32, 0},  /* Q4_1 */
    {TTK_U8, TTK_F16, TTK_SHIFT_OFFSET, 32, 0},  /* Q5_1 and the like */
    {TTK_U4, TTK_U8, TTK_SHIFT_OFFSET, 32, 8},   /* Q4_K */
    {TTK_U8, TTK_F32, TTK_SHIFT_OFFSET, 32, 0},  /* Q5_K and the like */
    {TTK_I6, TTK_I8, TTK_SHIFT_NONE, 16, 16},    /* Q6_K */
    {TTK_E4M3, TTK_F32, TTK_SHIFT_NONE, 128, 0}, /* FP8 blocks */
    {TTK_E2M1, TTK_E8M0, TTK_SHIFT_NONE, 32, 0}, /* MXFP4 */
    {TTK_U4, TTK_BF16, TTK_SHIFT_ZERO, 40, 0},   /* groups with zero points */
    {TTK_U8, TTK_BF16, TTK_SHIFT_ZERO, 32, 0},
    {TTK_U4, TTK_F16, TTK_SHIFT_ZERO, 128, 0},
    {TTK_I4, TTK_BF16, TTK_SHIFT_NONE, 64, 0},
    {TTK_I8, TTK_BF16, TTK_SHIFT_NONE, 1 << 20, 0}, /* a scale per channel */
    {TTK_E4M3, TTK_BF16, TTK_SHIFT_NONE, 1 << 20, 0},
};

ttk_format random_format(rng *r)
{
    if (rng_below(r, 4) > 0) {
        return known[rng_below(r, sizeof(known) / sizeof(known[0]))];
    }
    static const ttk_dtype codes[] = {TTK_I8, TTK_U8, TTK_I4, TTK_U4, TTK_I6, TTK_E4M3, TTK_E2M1};
    static const ttk_dtype scales[] = {TTK_F32, TTK_BF16, TTK_F16, TTK_E8M0};
    static const int32_t groups[] = {2, 6, 16, 24, 32, 40, 64, 80, 128, 256, 1 << 30};
    ttk_format f = {.code = codes[rng_below(r, 7)], .shift = (ttk_shift)rng_below(r, 3)};
    f.group = groups[rng_below(r, 11)];
    f.scale = scales[rng_below(r, 4)];
    if (rng_below(r, 3) == 0) {
        f.super = 1 + (int32_t)rng_below(r, 9);
        f.scale = rng_below(r, 2) ? TTK_U8 : TTK_I8;
    }
    return f;
}

/* ---- random rows ---- */

/* n numbers of a type; PLAIN keeps them within [-2, 2] or so and free of NaN. */
static void fill_numbers(rng *r, void *array, ttk_dtype type, int64_t n, values kind)
{
    unsigned char *bytes = array;
    const unsigned e4m3_bits = rng_below(r, 4) ? 0xff : 0x87; /* or only zeros and denormals */
    for (int64_t i = 0; i < n; i++) {
        unsigned random = (unsigned)rng_next(r);
        switch (type) {
        case TTK_F32:
            ((float *)array)[i] = rng_value(r, kind);
            break;
        case TTK_BF16:
            rng_fill_bf16(r, (ttk_bf16 *)array + i, 1, kind);
            break;
        case TTK_F16: /* WIDE: anything finite */
            ((uint16_t *)array)[i] =
                (uint16_t)(kind == VALUES_SPECIAL ? random
                           : kind == VALUES_WIDE  ? random & 0xfbff
                                                  : random % F16_PLAIN | (random >> 16 & 0x8000));
            break;
        case TTK_I4:
        case TTK_U4:
        case TTK_E2M1:
            bytes[i] = random & 15;
            break;
        case TTK_I6:
            bytes[i] = random & 63;
            break;
        case TTK_E8M0:
            bytes[i] = (unsigned char)(kind == VALUES_SPECIAL ? random
                                       : kind == VALUES_WIDE  ? random % 255
                                                              : 117 + random % 11);
            break;
        case TTK_E4M3: /* NaN is rare even where it is wanted */
            bytes[i] = (unsigned char)(random & e4m3_bits);
            if ((bytes[i] & 0x7f) == 0x7f && (kind != VALUES_SPECIAL || rng_below(r, 20) > 0)) {
                bytes[i] ^= 1;
            }
            break;
        default:
            bytes[i] = (unsigned char)random;
        }
    }
}

rows rows_new(const ttk_format *f, int64_t n, int64_t K)
{
    int64_t G = f->group > 0 && K > 0 ? (K - 1) / f->group + 1 : 0;
    int64_t S = f->super > 0 ? (G + f->super - 1) / f->super : 0;
    bool is_plain = ttk_format_is_plain(f), is_offset = f->shift == TTK_SHIFT_OFFSET;
    size_t scale = is_plain ? 1 : ttk_dtype_bytes(f->scale);
    rows w;
    w.array[0] = buffer_new((size_t)(n * K), ttk_dtype_bytes(f->code));
    w.array[1] = buffer_new((size_t)(n * G), scale);
    w.array[2] =
        buffer_new((size_t)(f->shift == TTK_SHIFT_NONE ? 0 : n * G), is_offset ? scale : 1);
    w.array[3] = buffer_new((size_t)(n * S), sizeof(uint16_t));
    w.array[4] = buffer_new((size_t)(is_offset ? n * S : 0), sizeof(uint16_t));
    w.view = (ttk_unpacked){w.array[0].data, w.array[1].data, w.array[2].data, w.array[3].data,
                            w.array[4].data};
    return w;
}

void rows_free(rows *w)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        buffer_free(&w->array[i]);
    }
}

void rows_fill(rng *r, rows *w, const ttk_format *f, values kind)
{
    ttk_dtype shift = f->shift == TTK_SHIFT_ZERO ? TTK_U8 : f->scale;
    const ttk_dtype types[N_ARRAYS] = {f->code, f->scale, shift, TTK_F16, TTK_F16};
    for (int i = 0; i < N_ARRAYS; i++) {
        int64_t n = (int64_t)(w->array[i].bytes / ttk_dtype_bytes(types[i]));
        fill_numbers(r, w->array[i].data, types[i], n, kind);
    }
    if (f->shift == TTK_SHIFT_ZERO && rng_below(r, 3) > 0) { /* mostly of the size of a code */
        unsigned char *zero = w->array[2].data;
        for (size_t i = 0; i < w->array[2].bytes; i++) {
            zero[i] &= 15;
        }
    }
}

bool same_bytes(const buffer *a, const buffer *b, const char *what)
{
    return (a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0)) ||
           fault("%s: bytes differ", what);
}

void describe(char *what, size_t bytes, const char *op, const ttk_format *f, int64_t M, int64_t N,
              int64_t K)
{
    snprintf(what, bytes, "%s code %d scale %d shift %d group %d super %d M %lld N %lld K %lld", op,
             f->code, f->scale, f->shift, f->group, f->super, (long long)M, (long long)N,
             (long long)K);
}

double weight_of(const ttk_format *f, const rows *w, int64_t n, int64_t k, int64_t K,
                 double *size_out)
{
    int64_t G = (K - 1) / f->group + 1, at = n * G + k / f->group;
    int64_t S = f->super > 0 ? (G + f->super - 1) / f->super : 0,
            super_at = f->super > 0 ? n * S + k / f->group / f->super : 0;
    double scale = (double)ttk_number(f->scale, w->view.scale, at), offset = 0.0;
    double c = (double)ttk_number(f->code, w->view.code, n * K + k);
    if (f->super > 0) {
        scale *= (double)ttk_number(TTK_F16, w->view.super_scale, super_at);
    }
    if (f->shift == TTK_SHIFT_ZERO) {
        c -= (double)ttk_number(TTK_U8, w->view.shift, at);
    } else if (f->shift == TTK_SHIFT_OFFSET) {
        offset = (double)ttk_number(f->scale, w->view.shift, at);
        offset *= f->super > 0 ? -(double)ttk_number(TTK_F16, w->view.super_shift, super_at) : 1.0;
    }
    *size_out = fabs(scale * c) + fabs(offset);
    return scale * c + offset;
}
