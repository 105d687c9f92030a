/* act8_blocks.h - what the x86 versions of products with int8 rows share: a panel goes through in
 * blocks of segments, whose scales, shifts and, if wanted, bytes of codes are made ready once for
 * all rows. Included after the ISA's quant header, which supplies group_factors and store_quad. */
#ifndef TUTTI_TTK_ACT8_BLOCKS_H
#define TUTTI_TTK_ACT8_BLOCKS_H
#include "ttk_act8.h"

enum {
    BLOCK_SEGMENTS = 8 /* of 32 inputs: as bytes 8 KiB, which stay in the L1 cache for all tiles */
};

/* What the columns of a segment add besides the product of codes. */
typedef enum act8_kind { KIND_PLAIN, KIND_ZERO, KIND_OFFSET } act8_kind;

/* Some segments of a panel. */
typedef struct block {
    float scale[BLOCK_SEGMENTS][TTK_PANEL];
    float shift[BLOCK_SEGMENTS][TTK_PANEL];     /* offsets; or zeros, to be taken off the codes */
    const unsigned char *codes[BLOCK_SEGMENTS]; /* where they lie; or bytes[s][segment /
                                                 * QUAD][TTK_PLANE_BYTES] that were made of them */
    const unsigned char *ahead[BLOCK_SEGMENTS]; /* what the next block reads for its segment s */
    unsigned char bytes[BLOCK_SEGMENTS][TTK_ACT_GROUP * TTK_PANEL]
        __attribute__((aligned(TTK_LINE_BYTES)));
    int64_t at; /* the first input */
    int n;      /* segments */
} block;

typedef struct job {
    const ttk_format *format;
    ttk_quant_shape shape;
    int64_t segment;      /* inputs */
    int64_t per_group;    /* segments */
    size_t code_bytes;    /* of a segment */
    size_t segment_bytes; /* of a panel, with its part of the scales */
    const unsigned char *rows;
    size_t stride;
} job;

static inline job job_of(const ttk_format *format, const void *rows, size_t stride, int64_t K)
{
    job w = {.format = format,
             .shape = ttk_quant_shape_of(format, K),
             .segment = ttk_act8_segment(format, K),
             .rows = rows,
             .stride = stride};
    w.per_group = (w.shape.group + w.segment - 1) / w.segment;
    w.code_bytes = ttk_quant_code_bytes(format->code, w.segment);
    w.segment_bytes =
        K > 0 ? w.code_bytes + w.shape.header / (size_t)(w.shape.run * w.per_group) : 0;
    return w;
}

static inline act8_kind act8_kind_of(const ttk_format *format)
{
    return format->shift == TTK_SHIFT_OFFSET ? KIND_OFFSET
           : format->shift == TTK_SHIFT_ZERO ? KIND_ZERO
                                             : KIND_PLAIN;
}

/* The number of the segment that begins with input `at`. */
TTK_INLINE int64_t segment_at(const job *w, int64_t at)
{
    return w->segment == TTK_ACT_GROUP ? at / TTK_ACT_GROUP : at / TTK_HALF_GROUP;
}

/* The walk over the segments of a panel: what lies where for the next one. */
typedef struct walk {
    const unsigned char *run; /* where its run begins */
    const unsigned char *scale, *codes;
    int64_t in_group, in_run; /* its number in its group, and that of the group in its run */
    int64_t at;               /* its first input */
    int64_t groups_left;      /* from its run on */
} walk;

/* The run that begins there. */
static inline void walk_into(const job *w, walk *to, const unsigned char *run)
{
    to->run = run;
    to->scale = run + w->shape.super;
    to->codes = run + (to->groups_left < w->shape.run ? ttk_quant_header(&w->shape, to->groups_left)
                                                      : w->shape.header);
    to->in_group = to->in_run = 0;
}

static inline walk walk_of(const job *w, const unsigned char *panel)
{
    walk to = {.groups_left = w->shape.G};
    if (to.groups_left > 0) {
        walk_into(w, &to, panel);
    }
    return to;
}

TTK_INLINE void walk_on(const job *w, walk *to)
{
    to->at += w->segment;
    to->codes += w->code_bytes;
    if (++to->in_group < w->per_group) {
        return;
    }
    to->in_group = 0;
    to->scale += w->shape.scale + w->shape.shift;
    if (++to->in_run == w->shape.run && to->groups_left > w->shape.run) {
        to->groups_left -= w->shape.run;
        walk_into(w, to, to->run + w->shape.run_bytes);
    }
}

/* Where the parts of the segments of a block lie. */
typedef struct block_places {
    const unsigned char *codes[BLOCK_SEGMENTS], *scale[BLOCK_SEGMENTS], *super[BLOCK_SEGMENTS];
    int64_t last_n_k; /* inputs of the last one */
} block_places;

/* The next segments of the panel, and what the block after them will read. */
TTK_INLINE void find_segments(const job *w, walk *from, block *b, block_places *at)
{
    walk here = *from;
    const int64_t K = w->shape.K;
    const size_t ahead = BLOCK_SEGMENTS * w->segment_bytes;
    int s = 0;
    b->at = here.at;
    for (; s < BLOCK_SEGMENTS && here.at < K; s++) {
        at->codes[s] = here.codes;
        at->scale[s] = here.scale;
        at->super[s] = here.run;
        b->ahead[s] = here.codes + ahead;
        walk_on(w, &here);
    }
    at->last_n_k = here.at <= K ? w->segment : K - (here.at - w->segment);
    b->n = s;
    *from = here;
}

static void times(float (*numbers)[TTK_PANEL], int n, float factor)
{
    float by[TTK_PANEL];
    for (int j = 0; j < TTK_PANEL; j++) {
        by[j] = factor;
    }
    for (int s = 0; s < n; s++) {
        times_panel(numbers[s], by, 1.0f);
    }
}

/* The scales and shifts of segments. */
static void fill_factors(const job *w, const block_places *at, block *b)
{
    const ttk_format *format = w->format;
    group_factors(format, &w->shape, at->scale, at->super, b->n, b->scale, b->shift);
    if (format->shift == TTK_SHIFT_ZERO) {
        load_type(TTK_U8, b->shift, at->scale, w->shape.scale, b->n);
    }
    if (format->code == TTK_E2M1) {
        times(b->scale, b->n, ttk_act8_factor(TTK_E2M1));
        if (format->shift == TTK_SHIFT_ZERO) {
            times(b->shift, b->n, 1.0f / ttk_act8_factor(TTK_E2M1));
        }
    }
}

/* to[segment / QUAD][TTK_PLANE_BYTES] of n_k inputs; the rest is 0. */
TTK_INLINE void unpack_code(ttk_dtype code, way w, unsigned char *to, const unsigned char *codes,
                            int64_t n_k, int64_t segment)
{
    const int unit = (int)ttk_quant_unit(code);
    const int64_t unit_bytes = (int64_t)ttk_quant_code_bytes(code, unit);
    int64_t k = 0;
    for (; k < n_k; k += unit, codes += unit_bytes) {
        TTK_UNROLL
        for (int q = 0; q < unit / QUAD; q++, to += TTK_PLANE_BYTES) {
            store_quad(to, code, w, codes, q);
        }
    }
    for (; k < segment; k += QUAD, to += TTK_PLANE_BYTES) {
        memset(to, 0, TTK_PLANE_BYTES);
    }
}

#endif
