/* ttk_act8.h - the parts of a row rounded to int8, and the segments of a panel that they meet.
 * Private to kernels/. */
#ifndef TUTTI_TTK_ACT8_H
#define TUTTI_TTK_ACT8_H
#include "ttk_quant.h"

enum { TTK_HALF_GROUP = 16 };
#define TTK_ACT8_LEAST 0x1p-100f /* groups of smaller numbers count as 0 */

typedef struct ttk_act8_row {
    const int8_t *code;      /* code[32 G] */
    const float *scale;      /* scale[G] */
    const float *sum, *half; /* sum[G], half[2 G] */
} ttk_act8_row;

static inline ttk_act8_row ttk_act8_row_at(const void *rows, size_t stride, int64_t m, int64_t K)
{
    const unsigned char *row = (const unsigned char *)rows + (size_t)m * stride;
    const size_t groups = (size_t)ttk_act8_groups(K);
    const float *scale = (const float *)(const void *)(row + groups * TTK_ACT_GROUP);
    return (ttk_act8_row){(const int8_t *)row, scale, scale + groups, scale + 2 * groups};
}

/* code[TTK_ACT_GROUP] of x[n], 0 beyond; returns the scale. Defines the bits of a group. */
float ttk_act8_round(int8_t *code, const float *x, int64_t n);

/* The inputs of a segment. */
static inline int64_t ttk_act8_segment(const ttk_format *format, int64_t K)
{
    return format->group >= K || format->group % TTK_ACT_GROUP == 0 ? TTK_ACT_GROUP
                                                                    : TTK_HALF_GROUP;
}

/* The sums of the codes of segments: that of the one from input `at` on is [at / segment]. */
static inline const float *ttk_act8_sums(ttk_act8_row row, int64_t segment)
{
    return segment == TTK_ACT_GROUP ? row.sum : row.half;
}

/* Half for the doubled numbers of E2M1. */
static inline float ttk_act8_factor(ttk_dtype code)
{
    return code == TTK_E2M1 ? 0.5f : 1.0f;
}

#endif
