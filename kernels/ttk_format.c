/* ttk_format.c - sizes and places of weights, unpacked and packed, in every format. */
#include "ttk.h"
#include "ttk_math.h"
#include "ttk_act8.h"
#include "ttk_quant.h"

enum { LINE_BYTES = 64 };

static size_t round_to_line(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* Bytes of the five arrays of unpacked rows, in the order of ttk_unpacked. */
static void array_bytes(const ttk_format *format, int64_t n, int64_t K, size_t bytes[5])
{
    size_t rows = (size_t)n;
    bytes[0] = rows * (size_t)K * ttk_dtype_bytes(format->code);
    bytes[1] = bytes[2] = bytes[3] = bytes[4] = 0;
    if (ttk_format_is_plain(format)) {
        return;
    }
    size_t G = ((size_t)K + (size_t)format->group - 1) / (size_t)format->group;
    bytes[1] = rows * G * ttk_dtype_bytes(format->scale);
    if (format->shift == TTK_SHIFT_ZERO) {
        bytes[2] = rows * G;
    } else if (format->shift == TTK_SHIFT_OFFSET) {
        bytes[2] = rows * G * ttk_dtype_bytes(format->scale);
    }
    if (format->super > 0) {
        size_t S = (G + (size_t)format->super - 1) / (size_t)format->super;
        bytes[3] = rows * S * sizeof(uint16_t);
        bytes[4] = format->shift == TTK_SHIFT_OFFSET ? bytes[3] : 0;
    }
}

size_t ttk_unpacked_bytes(const ttk_format *format, int64_t n, int64_t K)
{
    size_t bytes[5], sum = 0;
    array_bytes(format, n, K, bytes);
    for (int i = 0; i < 5; i++) {
        sum += round_to_line(bytes[i]);
    }
    return sum;
}

ttk_unpacked ttk_unpacked_in(const ttk_format *format, int64_t n, int64_t K, void *buffer)
{
    size_t bytes[5], at = 0;
    void *array[5];
    array_bytes(format, n, K, bytes);
    for (int i = 0; i < 5; i++) {
        array[i] = bytes[i] > 0 || i == 0 ? (unsigned char *)buffer + at : NULL;
        at += round_to_line(bytes[i]);
    }
    return (ttk_unpacked){array[0], array[1], array[2], array[3], array[4]};
}

/* ---- numbers ---- */

static float e4m3(unsigned char byte)
{
    int exponent = byte >> 3 & 15, fraction = byte & 7;
    float value =
        exponent == 15 && fraction == 7 ? ttk_f32_of_bits(0x7fc00000u)
        : exponent == 0
            ? (float)fraction * 0x1p-9f
            : ttk_f32_of_bits((uint32_t)(exponent + 120) << 23 | (uint32_t)fraction << 20);
    return byte & 0x80 ? -value : value;
}

static float e8m0(unsigned char byte)
{
    return byte == 0xff ? ttk_f32_of_bits(0x7fc00000u)
           : byte == 0  ? 0x1p-127f
                        : ttk_f32_of_bits((uint32_t)byte << 23);
}

float ttk_number(ttk_dtype type, const void *array, int64_t i)
{
    static const float e2m1[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                   -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const unsigned char *bytes = array;
    switch (type) {
    case TTK_F32:
        return ((const float *)array)[i];
    case TTK_BF16:
        return ttk_math_f32_of_bf16(((const ttk_bf16 *)array)[i]);
    case TTK_F16:
        return ttk_math_f32_of_f16(((const uint16_t *)array)[i]);
    case TTK_I8:
        return (float)((const int8_t *)array)[i];
    case TTK_U8:
    case TTK_U4:
        return (float)bytes[i];
    case TTK_I4:
        return (float)(bytes[i] - 8);
    case TTK_I6:
        return (float)(bytes[i] - 32);
    case TTK_E4M3:
        return e4m3(bytes[i]);
    case TTK_E2M1:
        return e2m1[bytes[i] & 15];
    case TTK_E8M0:
        return e8m0(bytes[i]);
    }
    return 0.0f;
}

void ttk_unpacked_to_f32(const ttk_format *format, const ttk_unpacked *rows, int64_t n, int64_t K,
                         float *dst)
{
    if (ttk_format_is_plain(format)) {
        for (int64_t i = 0; i < n * K; i++) {
            dst[i] = ttk_number(format->code, rows->code, i);
        }
        return;
    }
    int64_t G = (K + format->group - 1) / format->group,
            S = format->super ? (G + format->super - 1) / format->super : 0;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t g = 0; g < G; g++) {
            int64_t at = r * G + g, end = (g + 1) * format->group < K ? (g + 1) * format->group : K;
            float scale = ttk_number(format->scale, rows->scale, at), zero = 0.0f, offset = 0.0f;
            if (S) {
                scale *= ttk_number(TTK_F16, rows->super_scale, r * S + g / format->super);
            }
            if (format->shift == TTK_SHIFT_ZERO) {
                zero = ttk_number(TTK_U8, rows->shift, at);
            } else if (format->shift == TTK_SHIFT_OFFSET) {
                offset = ttk_number(format->scale, rows->shift, at);
                offset = S ? -(offset *
                               ttk_number(TTK_F16, rows->super_shift, r * S + g / format->super))
                           : offset;
            }
            for (int64_t k = g * format->group; k < end; k++) {
                float w = scale * (ttk_number(format->code, rows->code, r * K + k) - zero);
                dst[r * K + k] = format->shift == TTK_SHIFT_OFFSET ? w + offset : w;
            }
        }
    }
}

bool ttk_can_quantize(const ttk_format *format)
{
    bool is_float =
        format->scale == TTK_F32 || format->scale == TTK_BF16 || format->scale == TTK_F16;
    bool is_known = format->code == TTK_I8 || format->code == TTK_I4 || format->code == TTK_E4M3;
    return format->shift == TTK_SHIFT_NONE && format->super == 0 && format->group > 0 &&
           (is_known ? is_float : format->code == TTK_E2M1 && format->scale == TTK_E8M0);
}

size_t ttk_panel_bytes(const ttk_format *format, int64_t K)
{
    if (ttk_format_is_plain(format)) {
        return TTK_PANEL * (size_t)K * ttk_dtype_bytes(format->code);
    }
    ttk_quant_shape shape = ttk_quant_shape_of(format, K);
    if (shape.G == 0) {
        return 0;
    }
    ttk_quant_place last = ttk_quant_place_of(&shape, shape.G - 1);
    return last.codes + ttk_quant_code_bytes(format->code, last.n_k);
}

size_t ttk_packed_bytes(const ttk_format *format, int64_t N, int64_t K)
{
    return ((size_t)N + TTK_PANEL - 1) / TTK_PANEL * ttk_panel_bytes(format, K);
}

bool ttk_is_finite(ttk_dtype type, const void *number)
{
    uint32_t f32;
    uint16_t f16;
    switch (type) {
    case TTK_F32:
        memcpy(&f32, number, sizeof(f32));
        return (f32 & 0x7f800000u) != 0x7f800000u;
    case TTK_BF16:
        memcpy(&f16, number, sizeof(f16));
        return (f16 & 0x7f80u) != 0x7f80u;
    case TTK_F16:
        memcpy(&f16, number, sizeof(f16));
        return (f16 & 0x7c00u) != 0x7c00u;
    case TTK_E8M0:
        return *(const unsigned char *)number != 0xff;
    case TTK_E4M3:
        return (*(const unsigned char *)number & 0x7f) != 0x7f;
    case TTK_I8:
    case TTK_U8:
    case TTK_U4:
    case TTK_I4:
    case TTK_I6:
    case TTK_E2M1:
        break;
    }
    return true;
}

int64_t ttk_count_bad_scales(const ttk_format *format, const void *panels, int64_t n_panels,
                             int64_t K)
{
    const ttk_quant_shape shape = ttk_quant_shape_of(format, K);
    const bool has_super = format->super > 0; /* then scales themselves are whole numbers */
    const ttk_dtype type = has_super ? TTK_F16 : format->scale;
    const size_t bytes = ttk_panel_bytes(format, K), width = ttk_dtype_bytes(type);
    int64_t n_bad = 0;
    for (int64_t p = 0; p < n_panels; p++) {
        const unsigned char *panel = (const unsigned char *)panels + (size_t)p * bytes;
        ttk_quant_place place = ttk_quant_run_at(&shape, 0, 0);
        for (int64_t g = 0; g < shape.G; g++) {
            const unsigned char *scale = panel + (has_super ? place.super_scale : place.scale),
                                *shift = panel + (has_super ? place.super_shift : place.shift);
            for (size_t j = 0; j < TTK_PANEL; j++) {
                n_bad +=
                    !ttk_is_finite(type, scale + j * width) ||
                    (format->shift == TTK_SHIFT_OFFSET && !ttk_is_finite(type, shift + j * width));
            }
            if (g + 1 < shape.G) {
                ttk_quant_advance(&shape, &place);
            }
        }
    }
    return n_bad;
}

bool ttk_can_act8(const ttk_format *format, int64_t K)
{
    const bool is_whole =
        format->code >= TTK_I8 && format->code != TTK_E4M3 && format->code != TTK_E8M0;
    return is_whole && (format->group >= K || format->group == TTK_HALF_GROUP ||
                        format->group % TTK_ACT_GROUP == 0);
}
