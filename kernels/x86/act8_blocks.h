/* act8_blocks.h - the outer loops of products with int8 rows: panels, blocks of segments of a panel, groups of rows. Included by gemm_act8_avx2.c
 * after quant_avx2.h, which then supplies code_lift, rows_of_kind (tiles of rows through a block) and store_row. */
#ifndef TUTTI_TTK_ACT8_BLOCKS_H
#define TUTTI_TTK_ACT8_BLOCKS_H
#include "ttk_act8.h"

enum {
    /* Ahead in a stream of weights: beyond a whole block, whose scales are read before its codes. */
    PREFETCH_BYTES = 12288,
    BLOCK_SEGMENTS = 8, /* of 32 inputs: with bytes 8 KiB of codes, which stay in the L1 cache for all tiles */
    GROUP_ROWS = 32     /* rows whose sums wait together: 4 KiB */
};

/* Keeps the compiler from carrying sums of rows in registers from segment to segment, which are wanted for the sums of codes. */
#define LET_GO() __asm__ volatile("" ::: "memory")

TTK_INLINE void prefetch_ahead(const unsigned char *at)
{
    _mm_prefetch((const char *)at + PREFETCH_BYTES, _MM_HINT_T0);
}

/* Some segments of a panel. */
typedef struct block {
    float scale[BLOCK_SEGMENTS][TTK_PANEL], offset[BLOCK_SEGMENTS][TTK_PANEL];
    float lift[BLOCK_SEGMENTS][TTK_PANEL]; /* times a row's sum: to be added to the sum of products */
    const unsigned char *codes[BLOCK_SEGMENTS];
    int64_t at[BLOCK_SEGMENTS]; /* the first input */
    int n_k[BLOCK_SEGMENTS];
    int n;
} block;

typedef struct job {
    const ttk_format *format;
    ttk_quant_shape shape;
    int64_t segment; /* inputs */
    const void *rows;
    size_t stride;
    float (*acc)[TTK_PANEL]; /* acc[GROUP_ROWS] */
} job;

/* By what the number of a code is larger than the byte that the ISA's products take for it. */
TTK_INLINE float code_lift(ttk_dtype code);
/* M rows of w->acc += their products with a block, for one kind of format. */
TTK_INLINE void rows_of_kind(ttk_dtype code, bool is_lifted, bool has_offset, const job *w, const block *b, int64_t M);
/* y[j] = acc[j], j < n, n <= TTK_PANEL or more, which counts as that. */
static void store_row(float *y, const float *acc, int64_t n);

TTK_INLINE void rows_of_code(ttk_dtype code, const job *w, const block *b, int64_t M)
{
    const bool is_lifted = code_lift(code) != 0.0f || w->format->shift == TTK_SHIFT_ZERO;
    if (w->format->shift == TTK_SHIFT_OFFSET) {
        rows_of_kind(code, code_lift(code) != 0.0f, true, w, b, M);
    } else if (is_lifted) {
        rows_of_kind(code, true, false, w, b, M);
    } else {
        rows_of_kind(code, false, false, w, b, M);
    }
}

static void rows_by_block(const job *w, const block *b, int64_t M)
{
    switch (w->format->code) {
    case TTK_I8:
        rows_of_code(TTK_I8, w, b, M);
        break;
    case TTK_U8:
        rows_of_code(TTK_U8, w, b, M);
        break;
    case TTK_I4:
        rows_of_code(TTK_I4, w, b, M);
        break;
    case TTK_U4:
        rows_of_code(TTK_U4, w, b, M);
        break;
    case TTK_I6:
        rows_of_code(TTK_I6, w, b, M);
        break;
    default:
        rows_of_code(TTK_E2M1, w, b, M);
        break;
    }
}

/* What the bytes of a group must be lifted by. */
static void load_lift(const ttk_format *format, const unsigned char *zero, float *lift)
{
    const float own = code_lift(format->code), unit = 1.0f / ttk_act8_factor(format->code);
    for (int j = 0; j < TTK_PANEL; j++) {
        lift[j] = own - (format->shift == TTK_SHIFT_ZERO ? (float)zero[j] * unit : 0.0f);
    }
}

/* The next segments of the panel, from input *k of the group at `place` on. */
static void fill_block(const job *w, const unsigned char *panel, ttk_quant_place *place, int64_t *k, block *b)
{
    const ttk_format *format = w->format;
    for (b->n = 0; b->n < BLOCK_SEGMENTS && place->g < w->shape.G; b->n++) {
        const int s = b->n;
        if (*k == 0 || s == 0) {
            group_factors(format, panel, place, b->scale[s], b->offset[s]);
            if (format->code == TTK_E2M1) {
                for (int j = 0; j < TTK_PANEL; j++) {
                    b->scale[s][j] *= ttk_act8_factor(TTK_E2M1);
                }
            }
            load_lift(format, panel + place->shift, b->lift[s]);
        } else {
            memcpy(b->scale[s], b->scale[s - 1], sizeof(b->scale[s]));
            memcpy(b->offset[s], b->offset[s - 1], sizeof(b->offset[s]));
            memcpy(b->lift[s], b->lift[s - 1], sizeof(b->lift[s]));
        }
        const int64_t left = place->n_k - *k;
        b->at[s] = place->g * w->shape.group + *k;
        b->n_k[s] = (int)(left < w->segment ? left : w->segment);
        b->codes[s] = panel + place->codes + ttk_quant_code_bytes(format->code, *k);
        *k += w->segment;
        if (*k >= place->n_k) {
            *k = 0;
            ttk_quant_advance(&w->shape, place);
        }
    }
}

TTK_INLINE void act8_product(float *y, int64_t ldy, const void *rows, size_t stride, const ttk_format *format, const void *panels,
                             int64_t M, int64_t N, int64_t K)
{
    const size_t panel_bytes = ttk_panel_bytes(format, K);
    float acc[GROUP_ROWS][TTK_PANEL] __attribute__((aligned(TTK_LINE_BYTES)));
    block b __attribute__((aligned(TTK_LINE_BYTES)));
    job w = {format, ttk_quant_shape_of(format, K), ttk_act8_segment(format, K), rows, stride, acc};
    for (int64_t n = 0; n < N; n += TTK_PANEL) {
        const unsigned char *panel = (const unsigned char *)panels + (size_t)(n / TTK_PANEL) * panel_bytes;
        for (int64_t m = 0; m < M; m += GROUP_ROWS) {
            const int64_t n_rows = M - m < GROUP_ROWS ? M - m : GROUP_ROWS;
            ttk_quant_place place = ttk_quant_place_of(&w.shape, 0);
            int64_t k = 0;
            w.rows = (const unsigned char *)rows + (size_t)m * stride;
            memset(acc, 0, (size_t)n_rows * sizeof(acc[0]));
            while (place.g < w.shape.G) {
                fill_block(&w, panel, &place, &k, &b);
                rows_by_block(&w, &b, n_rows);
            }
            for (int64_t r = 0; r < n_rows; r++) {
                store_row(y + (m + r) * ldy + n, acc[r], N - n);
            }
        }
    }
}

#endif
