/* exchange_form.c - the forms in which rows and results travel. */
#include "exchange_internal.h"
#include <string.h>
#include "ttk.h"

void tt_wire_round(tt_wire wire, void *to, const float *x, int64_t n)
{
    switch (wire) {
    case TT_WIRE_F32:
        memcpy(to, x, (size_t)n * sizeof(*x));
        break;
    case TT_WIRE_BF16:
        ttk.f32_to_bf16(to, x, n);
        break;
    case TT_WIRE_INT8:
        ttk.row8(TTK_ROW8_INT8, to, x, n);
        break;
    case TT_WIRE_FP8:
        ttk.row8(TTK_ROW8_FP8, to, x, n);
        break;
    case TT_WIRE_COUNT:
        break; /* no format */
    }
}

void tt_wire_widen(tt_wire wire, float *x, const void *row, int64_t n)
{
    switch (wire) {
    case TT_WIRE_F32:
        memcpy(x, row, (size_t)n * sizeof(*x));
        break;
    case TT_WIRE_BF16:
        ttk.bf16_to_f32(x, row, n);
        break;
    case TT_WIRE_INT8:
        ttk.row8_f32(TTK_ROW8_INT8, x, row, n);
        break;
    case TT_WIRE_FP8:
        ttk.row8_f32(TTK_ROW8_FP8, x, row, n);
        break;
    case TT_WIRE_COUNT:
        break; /* no format */
    }
}
