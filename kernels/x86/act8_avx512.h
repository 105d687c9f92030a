/* act8_avx512.h - what the AVX-512 versions of products with int8 rows share: a panel goes through in blocks of segments, whose scales and codes are
 * made ready once for all rows. Codes become bytes in quads of k, unsigned (with their bias) or signed, whichever the ISA's products take. */
#ifndef TUTTI_TTK_ACT8_AVX512_H
#define TUTTI_TTK_ACT8_AVX512_H
#include "quant_avx512.h"
#include "ttk_act8.h"

enum {
    BLOCK_SEGMENTS = 8, /* of 32 inputs: as bytes 8 KiB, which stay in the L1 cache for all tiles */
    GROUP_ROWS = 64     /* rows whose sums wait together: 8 KiB */
};

/* What the columns of a segment add besides the product of codes. */
typedef enum act8_kind { KIND_PLAIN, KIND_ZERO, KIND_OFFSET } act8_kind;

/* Some segments of a panel. */
typedef struct block {
    float scale[BLOCK_SEGMENTS][TTK_PANEL];
    float shift[BLOCK_SEGMENTS][TTK_PANEL]; /* offsets; or zeros, to be taken off the codes */
    unsigned char bytes[BLOCK_SEGMENTS][TTK_ACT_GROUP * TTK_PANEL];
    const unsigned char *codes[BLOCK_SEGMENTS]; /* codes[s][segment / QUAD][TTK_PLANE_BYTES]: above, or where they lie */
    const unsigned char *ahead[BLOCK_SEGMENTS]; /* what the next block reads for its segment s */
    int64_t at; /* the first input */
    int n;      /* segments */
} block;

typedef struct job {
    const ttk_format *format;
    ttk_quant_shape shape;
    int64_t segment; /* inputs */
    const unsigned char *rows;
    size_t stride;
    int64_t segment_bytes; /* of a panel, with its part of the scales */
    int64_t fill_bytes;    /* of them, those to be fetched ahead while a block is made ready; the rest while rows go through it */
} job;

/* Blocks are made ready and multiplied in turn, and memory must be asked all the time: about as much while one is made ready as for this many rows. */
enum { FILL_ROWS = 1 };

static inline job job_of(const ttk_format *format, const void *rows, size_t stride, int64_t M, int64_t K)
{
    job w = {.format = format, .shape = ttk_quant_shape_of(format, K), .segment = ttk_act8_segment(format, K), .rows = rows, .stride = stride};
    const int64_t segments = w.shape.run * ((w.shape.group + w.segment - 1) / w.segment);
    w.segment_bytes = segments > 0 ? ((int64_t)w.shape.run_bytes + segments - 1) / segments : 0;
    w.fill_bytes = w.segment_bytes * FILL_ROWS / (FILL_ROWS + (M < GROUP_ROWS ? M : GROUP_ROWS));
    return w;
}

/* The number of the segment that begins with input `at`. */
TTK_INLINE int64_t segment_at(const job *w, int64_t at)
{
    return w->segment == TTK_ACT_GROUP ? at / TTK_ACT_GROUP : at / TTK_HALF_GROUP;
}

TTK_INLINE void fetch(const unsigned char *from, int64_t bytes)
{
    for (int64_t line = 0; line < bytes; line += TTK_LINE_BYTES) {
        _mm_prefetch((const char *)from + line, _MM_HINT_T1);
    }
}

/* By what the number of a code is larger than its unsigned byte. */
TTK_INLINE float code_lift(ttk_dtype code)
{
    switch (code) {
    case TTK_I8:
        return -128.0f;
    case TTK_I4:
        return -8.0f;
    case TTK_I6:
        return -32.0f;
    case TTK_E2M1:
        return -12.0f;
    default:
        return 0.0f;
    }
}

static inline act8_kind act8_kind_of(const ttk_format *format)
{
    return format->shift == TTK_SHIFT_OFFSET ? KIND_OFFSET : format->shift == TTK_SHIFT_ZERO ? KIND_ZERO : KIND_PLAIN;
}

/* to[segment / QUAD][TTK_PLANE_BYTES] of n_k inputs; the rest is 0. */
TTK_INLINE void unpack_code(ttk_dtype code, bool is_signed, unsigned char *to, const unsigned char *codes, int n_k, int segment)
{
    const int unit = (int)ttk_quant_unit(code);
    const int64_t unit_bytes = (int64_t)ttk_quant_code_bytes(code, unit);
    const way w = is_signed ? WAY_WHOLE : WAY_ZERO;
    int k = 0;
    for (; k < n_k; k += unit, codes += unit_bytes) {
        TTK_UNROLL
        for (int q = 0; q < unit / QUAD; q++, to += TTK_PLANE_BYTES) {
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                _mm512_store_si512(to + h * TTK_LINE_BYTES, quad_bytes(code, w, codes, q, h));
            }
        }
    }
    for (; k < segment; k += QUAD, to += TTK_PLANE_BYTES) {
        _mm512_store_si512(to, _mm512_setzero_si512());
        _mm512_store_si512(to + TTK_LINE_BYTES, _mm512_setzero_si512());
    }
}

/* Whether the packed codes are the bytes wanted. */
TTK_INLINE bool are_bytes(bool is_signed, ttk_dtype code)
{
    return code == TTK_U8 || (code == TTK_I8 && is_signed);
}

/* Where the parts of the segments of a block lie. */
typedef struct block_places {
    const unsigned char *codes[BLOCK_SEGMENTS], *scale[BLOCK_SEGMENTS], *shift[BLOCK_SEGMENTS];
    const unsigned char *super_scale[BLOCK_SEGMENTS], *super_shift[BLOCK_SEGMENTS];
    int n_k[BLOCK_SEGMENTS]; /* inputs */
} block_places;

/* The next segments of the panel, from input *k of the group at `place` on, and what the block after them will read. */
static inline void find_segments(const job *w, const unsigned char *panel, ttk_quant_place *place, int64_t *k, block *b, block_places *at)
{
    ttk_quant_place here = *place;
    int64_t in_group = *k;
    int s = 0;
    b->at = here.g * w->shape.group + in_group;
    for (; s < BLOCK_SEGMENTS && here.g < w->shape.G; s++) {
        const int64_t left = here.n_k - in_group;
        const unsigned char *codes = panel + here.codes + ttk_quant_code_bytes(w->format->code, in_group);
        at->codes[s] = codes;
        at->scale[s] = panel + here.scale;
        at->shift[s] = panel + here.shift;
        at->super_scale[s] = panel + here.super_scale;
        at->super_shift[s] = panel + here.super_shift;
        at->n_k[s] = (int)(left < w->segment ? left : w->segment);
        b->ahead[s] = codes + BLOCK_SEGMENTS * w->segment_bytes;
        in_group += w->segment;
        if (in_group >= here.n_k) {
            in_group = 0;
            ttk_quant_advance(&w->shape, &here);
        }
    }
    b->n = s;
    *place = here;
    *k = in_group;
}

/* to[n][TTK_PANEL] = numbers of a type. */
TTK_INLINE void fill_type(ttk_dtype type, float (*to)[TTK_PANEL], const unsigned char *const *from, int n)
{
    for (int s = 0; s < n; s++) {
        load_panel_numbers(type, from[s], to[s]);
    }
}

static void fill_numbers(ttk_dtype type, float (*to)[TTK_PANEL], const unsigned char *const *from, int n)
{
    switch (type) {
    case TTK_F32:
        fill_type(TTK_F32, to, from, n);
        break;
    case TTK_BF16:
        fill_type(TTK_BF16, to, from, n);
        break;
    case TTK_F16:
        fill_type(TTK_F16, to, from, n);
        break;
    case TTK_I8:
        fill_type(TTK_I8, to, from, n);
        break;
    case TTK_E8M0:
        fill_type(TTK_E8M0, to, from, n);
        break;
    default:
        fill_type(TTK_U8, to, from, n);
        break;
    }
}

/* numbers[n][TTK_PANEL] *= sign times the f16 of the super groups. */
static void times_super(float (*numbers)[TTK_PANEL], const unsigned char *const *from, int n, float sign)
{
    const __m512 signs = _mm512_set1_ps(sign);
    for (int s = 0; s < n; s++) {
        for (int j = 0; j < TTK_PANEL; j += VEC) {
            const __m512 super = _mm512_mul_ps(load_numbers(TTK_F16, from[s], j), signs);
            _mm512_store_ps(&numbers[s][j], _mm512_mul_ps(_mm512_load_ps(&numbers[s][j]), super));
        }
    }
}

static void times(float (*numbers)[TTK_PANEL], int n, float factor)
{
    const __m512 factors = _mm512_set1_ps(factor);
    for (int s = 0; s < n; s++) {
        for (int j = 0; j < TTK_PANEL; j += VEC) {
            _mm512_store_ps(&numbers[s][j], _mm512_mul_ps(_mm512_load_ps(&numbers[s][j]), factors));
        }
    }
}

static void fill_factors(const ttk_format *format, const block_places *at, block *b)
{
    fill_numbers(format->scale, b->scale, at->scale, b->n);
    if (format->super > 0) {
        times_super(b->scale, at->super_scale, b->n, 1.0f);
    }
    if (format->code == TTK_E2M1) {
        times(b->scale, b->n, ttk_act8_factor(TTK_E2M1));
    }
    if (format->shift == TTK_SHIFT_OFFSET) {
        fill_numbers(format->scale, b->shift, at->shift, b->n);
        if (format->super > 0) {
            times_super(b->shift, at->super_shift, b->n, -1.0f);
        }
    } else if (format->shift == TTK_SHIFT_ZERO) {
        fill_type(TTK_U8, b->shift, at->shift, b->n);
        if (format->code == TTK_E2M1) {
            times(b->shift, b->n, 1.0f / ttk_act8_factor(TTK_E2M1));
        }
    }
}

/* Bytes of the codes, while some of what comes next is fetched. */
TTK_INLINE void fill_code(ttk_dtype code, bool is_signed, const job *w, const block_places *at, block *b)
{
    for (int s = 0; s < b->n; s++) {
        fetch(b->ahead[s], w->fill_bytes);
        b->codes[s] = at->codes[s];
        if (!are_bytes(is_signed, code) || at->n_k[s] < w->segment) {
            b->codes[s] = b->bytes[s];
            unpack_code(code, is_signed, b->bytes[s], at->codes[s], at->n_k[s], (int)w->segment);
        }
    }
}

TTK_INLINE void fill_codes(bool is_signed, const job *w, const block_places *at, block *b)
{
    switch (w->format->code) {
    case TTK_I8:
        fill_code(TTK_I8, is_signed, w, at, b);
        break;
    case TTK_U8:
        fill_code(TTK_U8, is_signed, w, at, b);
        break;
    case TTK_I4:
        fill_code(TTK_I4, is_signed, w, at, b);
        break;
    case TTK_U4:
        fill_code(TTK_U4, is_signed, w, at, b);
        break;
    case TTK_I6:
        fill_code(TTK_I6, is_signed, w, at, b);
        break;
    default:
        fill_code(TTK_E2M1, is_signed, w, at, b);
        break;
    }
}

/* The next segments of the panel, from input *k of the group at `place` on. */
TTK_INLINE void fill_block(bool is_signed, const job *w, const unsigned char *panel, ttk_quant_place *place, int64_t *k, block *b)
{
    block_places at;
    find_segments(w, panel, place, k, b, &at);
    fill_factors(w->format, &at, b);
    fill_codes(is_signed, w, &at, b);
}

static void store_row(float *y, const float *acc, int64_t n)
{
    for (int64_t j = 0; j < TTK_PANEL && j < n; j += VEC) {
        _mm512_mask_storeu_ps(y + j, vec_mask(n - j), _mm512_load_ps(acc + j));
    }
}

#endif
