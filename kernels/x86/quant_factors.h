/* quant_factors.h - scales and shifts of groups as f32, a whole panel's at a time. Included by
 * quant_both.h, which supplies load_panel_numbers and times_panel. */
#ifndef TUTTI_TTK_QUANT_FACTORS_H
#define TUTTI_TTK_QUANT_FACTORS_H

/* to[n][TTK_PANEL] = numbers of a type, `offset` bytes behind each of from[n]. */
TTK_INLINE void load_type(ttk_dtype type, float (*to)[TTK_PANEL], const unsigned char *const *from,
                          size_t offset, int n)
{
    for (int i = 0; i < n; i++) {
        load_panel_numbers(type, from[i] + offset, to[i]);
    }
}

/* The same of any type that a format's scales have. */
static inline void load_factors(ttk_dtype type, float (*to)[TTK_PANEL],
                                const unsigned char *const *from, size_t offset, int n)
{
    switch (type) {
    case TTK_F32:
        load_type(TTK_F32, to, from, offset, n);
        break;
    case TTK_BF16:
        load_type(TTK_BF16, to, from, offset, n);
        break;
    case TTK_F16:
        load_type(TTK_F16, to, from, offset, n);
        break;
    case TTK_I8:
        load_type(TTK_I8, to, from, offset, n);
        break;
    case TTK_E8M0:
        load_type(TTK_E8M0, to, from, offset, n);
        break;
    default:
        load_type(TTK_U8, to, from, offset, n);
        break;
    }
}

/* numbers[n][TTK_PANEL] *= sign times the f16 of the super groups. */
static inline void times_super(float (*numbers)[TTK_PANEL], const unsigned char *const *from,
                               size_t offset, int n, float sign)
{
    float super[TTK_PANEL];
    for (int i = 0; i < n; i++) {
        load_panel_numbers(TTK_F16, from[i] + offset, super);
        times_panel(numbers[i], super, sign);
    }
}

/* Scales of n groups, and their offsets if the format has them. scale_at: where the scales of each
 * lie, its offsets being behind them; super_at: where its run begins. */
static inline void group_factors(const ttk_format *format, const ttk_quant_shape *shape,
                                 const unsigned char *const *scale_at,
                                 const unsigned char *const *super_at, int n,
                                 float (*scale)[TTK_PANEL], float (*offset)[TTK_PANEL])
{
    const bool has_offset = format->shift == TTK_SHIFT_OFFSET;
    load_factors(format->scale, scale, scale_at, 0, n);
    if (has_offset) {
        load_factors(format->scale, offset, scale_at, shape->scale, n);
    }
    if (format->super > 0) {
        times_super(scale, super_at, 0, n, 1.0f);
        if (has_offset) {
            times_super(offset, super_at, TTK_SUPER_BYTES, n, -1.0f);
        }
    }
}

/* Those of one group; scale[1], offset[1]. */
static inline void place_factors(const ttk_format *format, const ttk_quant_shape *shape,
                                 const unsigned char *panel, const ttk_quant_place *place,
                                 float (*scale)[TTK_PANEL], float (*offset)[TTK_PANEL])
{
    const unsigned char *scale_at = panel + place->scale, *super_at = panel + place->super_scale;
    group_factors(format, shape, &scale_at, &super_at, 1, scale, offset);
}

#endif
