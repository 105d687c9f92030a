/* blocks.c - takes GGML's blocks apart, without changing a number.
 *
 * Within a block of 32 the low nibbles are elements 0..15 and the high ones 16..31. d, m and dmin
 * are f16 and stay f16 where the format has a place for them. Q5_K and Q5_1 have five bits, which
 * no packed format has: their codes take a byte; Q5_K's scales become float, each the exact product
 * of an f16 and a whole number below 64. */
#include "blocks.h"
#include <string.h>

enum { BLOCK = 32, SUPER = 256, GROUPS = SUPER / BLOCK, SIX_GROUPS = 16 };

static uint16_t half_at(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static float number_of_half(const unsigned char *bytes)
{
    uint16_t half = half_at(bytes);
    return ttk_number(TTK_F16, &half, 0);
}

/* 32 nibbles in 16 bytes: halves, low ones first. */
static void split_nibbles(const unsigned char *bytes, unsigned char *code)
{
    for (int j = 0; j < BLOCK / 2; j++) {
        code[j] = bytes[j] & 15;
        code[j + BLOCK / 2] = bytes[j] >> 4;
    }
}

/* The same with a fifth bit each: bit j of the little-endian `high`. */
static void split_five_bits(const unsigned char *high, const unsigned char *bytes,
                            unsigned char *code)
{
    split_nibbles(bytes, code);
    for (int j = 0; j < BLOCK; j++) {
        code[j] = (unsigned char)(code[j] | (high[j / 8] >> (j % 8) & 1) << 4);
    }
}

static void unpack_q8_0(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 34) {
        ((uint16_t *)out->scale)[i] = half_at(b);
        memcpy((int8_t *)out->code + i * BLOCK, b + 2, BLOCK);
    }
}

static void unpack_q4_0(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 18) {
        ((uint16_t *)out->scale)[i] = half_at(b);
        split_nibbles(b + 2, (unsigned char *)out->code + i * BLOCK);
    }
}

static void unpack_q4_1(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 20) {
        ((uint16_t *)out->scale)[i] = half_at(b);
        ((uint16_t *)out->shift)[i] = half_at(b + 2);
        split_nibbles(b + 4, (unsigned char *)out->code + i * BLOCK);
    }
}

static void unpack_q5_0(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 22) {
        unsigned char five[BLOCK];
        int8_t *code = (int8_t *)out->code + i * BLOCK;
        ((uint16_t *)out->scale)[i] = half_at(b);
        split_five_bits(b + 2, b + 6, five);
        for (int j = 0; j < BLOCK; j++) {
            code[j] = (int8_t)(five[j] - 16);
        }
    }
}

static void unpack_q5_1(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 24) {
        ((uint16_t *)out->scale)[i] = half_at(b);
        ((uint16_t *)out->shift)[i] = half_at(b + 2);
        split_five_bits(b + 4, b + 8, (unsigned char *)out->code + i * BLOCK);
    }
}

static void unpack_iq4_nl(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    for (int64_t i = 0; i < n; i++, b += 18) {
        unsigned char nibble[BLOCK];
        int8_t *code = (int8_t *)out->code + i * BLOCK;
        ((uint16_t *)out->scale)[i] = half_at(b);
        split_nibbles(b + 2, nibble);
        for (int j = 0; j < BLOCK; j++) {
            code[j] = values[nibble[j]];
        }
    }
}

/* GGML holds twice the value of a code and half its scale: the product is that of E2M1 and E8M0. */
static void unpack_mxfp4(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 17) {
        ((unsigned char *)out->scale)[i] = b[0];
        split_nibbles(b + 1, (unsigned char *)out->code + i * BLOCK);
    }
}

/* Eight pairs of a six-bit scale and a six-bit minimum in 12 bytes. */
static void split_scales(const unsigned char *s, unsigned char *scale, unsigned char *minimum)
{
    for (int j = 0; j < 4; j++) {
        scale[j] = s[j] & 63;
        minimum[j] = s[j + 4] & 63;
        scale[j + 4] = (unsigned char)((s[j + 8] & 15) | s[j] >> 6 << 4);
        minimum[j + 4] = (unsigned char)(s[j + 8] >> 4 | s[j + 4] >> 6 << 4);
    }
}

/* 256 nibbles: each run of 32 bytes holds 32 elements in its low nibbles and the next 32 in its
 * high ones. */
static void split_long_nibbles(const unsigned char *bytes, unsigned char *code)
{
    for (int g = 0; g < SUPER / 64; g++) {
        for (int l = 0; l < BLOCK; l++) {
            code[64 * g + l] = bytes[BLOCK * g + l] & 15;
            code[64 * g + BLOCK + l] = bytes[BLOCK * g + l] >> 4;
        }
    }
}

static void unpack_q4_k(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 144) {
        out->super_scale[i] = half_at(b);
        out->super_shift[i] = half_at(b + 2);
        split_scales(b + 4, (unsigned char *)out->scale + i * GROUPS,
                     (unsigned char *)out->shift + i * GROUPS);
        split_long_nibbles(b + 16, (unsigned char *)out->code + i * SUPER);
    }
}

static void unpack_q5_k(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 176) {
        unsigned char scale[GROUPS], minimum[GROUPS],
            *code = (unsigned char *)out->code + i * SUPER;
        float d = number_of_half(b), dmin = number_of_half(b + 2);
        split_scales(b + 4, scale, minimum);
        split_long_nibbles(b + 48, code);
        for (int g = 0; g < GROUPS; g++) {
            ((float *)out->scale)[i * GROUPS + g] = d * (float)scale[g];
            ((float *)out->shift)[i * GROUPS + g] = -(dmin * (float)minimum[g]);
            for (int l = 0; l < BLOCK; l++) {
                code[BLOCK * g + l] =
                    (unsigned char)(code[BLOCK * g + l] | (b[16 + l] >> g & 1) << 4);
            }
        }
    }
}

static void unpack_q6_k(const unsigned char *b, int64_t n, const tti_block_arrays *out)
{
    for (int64_t i = 0; i < n; i++, b += 210) {
        unsigned char *code = (unsigned char *)out->code + i * SUPER;
        memcpy((int8_t *)out->scale + i * SIX_GROUPS, b + 192, SIX_GROUPS);
        out->super_scale[i] = half_at(b + 208);
        for (int half = 0; half < 2; half++, code += SUPER / 2) {
            const unsigned char *low = b + 64 * half, *high = b + 128 + BLOCK * half;
            for (int l = 0; l < BLOCK; l++) {
                code[l] = (unsigned char)((low[l] & 15) | (high[l] & 3) << 4);
                code[BLOCK + l] = (unsigned char)((low[BLOCK + l] & 15) | (high[l] >> 2 & 3) << 4);
                code[2 * BLOCK + l] = (unsigned char)(low[l] >> 4 | (high[l] >> 4 & 3) << 4);
                code[3 * BLOCK + l] = (unsigned char)(low[BLOCK + l] >> 4 | high[l] >> 6 << 4);
            }
        }
    }
}

/* A row's type is in its dtype, and the dtype points back at the row. */
enum type_row {
    ROW_F32,
    ROW_F16,
    ROW_BF16,
    ROW_Q8_0,
    ROW_Q4_0,
    ROW_Q4_1,
    ROW_Q5_0,
    ROW_Q5_1,
    ROW_Q4_K,
    ROW_Q5_K,
    ROW_Q6_K,
    ROW_IQ4_NL,
    ROW_MXFP4,
    ROW_Q8_1,
    ROW_Q2_K,
    ROW_Q3_K,
    ROW_Q8_K,
    ROW_IQ2_XXS,
    ROW_IQ2_XS,
    ROW_IQ3_XXS,
    ROW_IQ1_S,
    ROW_IQ3_S,
    ROW_IQ2_S,
    ROW_IQ4_XS,
    ROW_I8,
    ROW_I16,
    ROW_I32,
    ROW_I64,
    ROW_F64,
    ROW_IQ1_M,
    ROW_TQ1_0,
    ROW_TQ2_0,
    ROW_NVFP4,
    ROW_Q1_0,
    ROW_Q2_0,
    ROW_COUNT
};
static const tti_block_type types[ROW_COUNT];
#define PLAIN(name_, id_, bytes_, type_)                                                           \
    [ROW_##name_] = {.id = (id_),                                                                  \
                     .elements = 1,                                                                \
                     .bytes = (bytes_),                                                            \
                     .is_supported = true,                                                         \
                     .format = {.code = (type_)},                                                  \
                     .dtype = {#name_, 8 * (bytes_), true, (type_), &types[ROW_##name_]}}
#define BLOCKS(name_, id_, elements_, bytes_, n_halves_, half_, unpack_, ...)                      \
    [ROW_##name_] = {.id = (id_),                                                                  \
                     .elements = (elements_),                                                      \
                     .bytes = (bytes_),                                                            \
                     .is_supported = true,                                                         \
                     .format = __VA_ARGS__,                                                        \
                     .n_halves = (n_halves_),                                                      \
                     .half = {(half_), 2},                                                         \
                     .unpack = (unpack_),                                                          \
                     .dtype = {#name_, 0, false, TTK_F32, &types[ROW_##name_]}}
#define UNSUPPORTED(name_, id_, elements_, bytes_)                                                 \
    [ROW_##name_] = {.id = (id_),                                                                  \
                     .elements = (elements_),                                                      \
                     .bytes = (bytes_),                                                            \
                     .dtype = {#name_, 0, false, TTK_F32, &types[ROW_##name_]}}
static const tti_block_type types[ROW_COUNT] = {
    PLAIN(F32, 0, 4, TTK_F32),
    PLAIN(F16, 1, 2, TTK_F16),
    PLAIN(BF16, 30, 2, TTK_BF16),
    BLOCKS(Q8_0, 8, 32, 34, 1, 0, unpack_q8_0, {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0}),
    BLOCKS(Q4_0, 2, 32, 18, 1, 0, unpack_q4_0, {TTK_I4, TTK_F16, TTK_SHIFT_NONE, 32, 0}),
    BLOCKS(Q4_1, 3, 32, 20, 2, 0, unpack_q4_1, {TTK_U4, TTK_F16, TTK_SHIFT_OFFSET, 32, 0}),
    BLOCKS(Q5_0, 6, 32, 22, 1, 0, unpack_q5_0, {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0}),
    BLOCKS(Q5_1, 7, 32, 24, 2, 0, unpack_q5_1, {TTK_U8, TTK_F16, TTK_SHIFT_OFFSET, 32, 0}),
    BLOCKS(Q4_K, 12, 256, 144, 2, 0, unpack_q4_k, {TTK_U4, TTK_U8, TTK_SHIFT_OFFSET, 32, 8}),
    BLOCKS(Q5_K, 13, 256, 176, 2, 0, unpack_q5_k, {TTK_U8, TTK_F32, TTK_SHIFT_OFFSET, 32, 0}),
    BLOCKS(Q6_K, 14, 256, 210, 1, 208, unpack_q6_k, {TTK_I6, TTK_I8, TTK_SHIFT_NONE, 16, 16}),
    BLOCKS(IQ4_NL, 20, 32, 18, 1, 0, unpack_iq4_nl, {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0}),
    BLOCKS(MXFP4, 39, 32, 17, 0, 0, unpack_mxfp4, {TTK_E2M1, TTK_E8M0, TTK_SHIFT_NONE, 32, 0}),
    UNSUPPORTED(Q8_1, 9, 32, 36),
    UNSUPPORTED(Q2_K, 10, 256, 84),
    UNSUPPORTED(Q3_K, 11, 256, 110),
    UNSUPPORTED(Q8_K, 15, 256, 292),
    UNSUPPORTED(IQ2_XXS, 16, 256, 66),
    UNSUPPORTED(IQ2_XS, 17, 256, 74),
    UNSUPPORTED(IQ3_XXS, 18, 256, 98),
    UNSUPPORTED(IQ1_S, 19, 256, 50),
    UNSUPPORTED(IQ3_S, 21, 256, 110),
    UNSUPPORTED(IQ2_S, 22, 256, 82),
    UNSUPPORTED(IQ4_XS, 23, 256, 136),
    UNSUPPORTED(I8, 24, 1, 1),
    UNSUPPORTED(I16, 25, 1, 2),
    UNSUPPORTED(I32, 26, 1, 4),
    UNSUPPORTED(I64, 27, 1, 8),
    UNSUPPORTED(F64, 28, 1, 8),
    UNSUPPORTED(IQ1_M, 29, 256, 56),
    UNSUPPORTED(TQ1_0, 34, 256, 54),
    UNSUPPORTED(TQ2_0, 35, 256, 66),
    UNSUPPORTED(NVFP4, 40, 64, 36),
    UNSUPPORTED(Q1_0, 41, 128, 18),
    UNSUPPORTED(Q2_0, 42, 64, 18)};

const tti_block_type *tti_block_type_find(uint32_t id)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (types[i].id == id) {
            return &types[i];
        }
    }
    return NULL;
}
