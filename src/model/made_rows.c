/* made_rows.c - random numbers as weights, straight in the format that they are stored in, as fast
 * as memory takes them.
 *
 * Word i of row r of a tensor is a hash of (key, r, i), so any rows can be made alone, in any order
 * and by any thread, and are the same everywhere. Its bits become codes or floats by a mask: no
 * multiplication, no table, no rounding for each number. All kinds are symmetric about zero, since
 * a mean of even half a step would add up over the inputs, make all hidden states alike after some
 * layers, and routing with them:
 *   int8   odd numbers of -127..127          int4   odd ones of -7..7 (of unsigned codes about the middle)
 *   FP8    sign, exponent below 8, mantissa  FP4    any code
 *   bf16, f32, f16  sign and mantissa, magnitudes in [1, 2) times a power of two
 * Scales give a matrix of K inputs the deviation 0.6 / sqrt(K), plain numbers to the nearest power
 * of two: sums over layers stay tame, and scores of experts spread as wide as for a trained router.
 * Scales of a row take four values about their mean. */
#include <math.h>
#include <string.h>
#include "made.h"

enum {
    GROUPS_PER_WORD = 32, /* scales drawn from one word, two bits each */
    N_SPREAD = 4,
    SCALE_RUN = 4, /* scales that are written at once */
    SCALE_SALT = 0x5ca1e
};
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define ODD_BYTES UINT64_C(0x0101010101010101)
#define LOW_NIBBLES UINT64_C(0x0f0f0f0f0f0f0f0f)
static const double WEIGHT_STD = 0.6;
static const double EMBEDDING_STD = 1.0;
static const double PLAIN_RMS = 1.527525231651947; /* of numbers uniform in [1, 2): sqrt(7 / 3) */
/* Mean square 1. */
static const double spread[N_SPREAD] = {0.6, 0.9, 1.1, 1.2728707711335};

/* The finaliser of splitmix64: a bijection that leaves no pattern of a counter. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t row_key(uint64_t key, int64_t row)
{
    return mix(key ^ mix((uint64_t)row + 1));
}

/* The key is mixed well already, so one multiplication is enough. */
static uint64_t word_at(uint64_t key, int64_t i)
{
    uint64_t z = key + (uint64_t)i * GOLDEN;
    z = (z ^ (z >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return z ^ (z >> 32);
}

/* ---- what a tensor is ---- */

/* The value of a vector: norms pass rows on, biases add nothing. *is_random_out: the tensor is
 * random instead. */
static float constant_of(tt_role role, bool *is_random_out)
{
    *is_random_out = false;
    switch (role) {
    case TT_ROLE_FINAL_NORM:
    case TT_ROLE_ATTENTION_NORM:
    case TT_ROLE_FFN_NORM:
    case TT_ROLE_Q_NORM:
    case TT_ROLE_K_NORM:
    case TT_ROLE_Q_A_NORM:
    case TT_ROLE_KV_A_NORM:
    case TT_ROLE_DELTA_NORM:
    case TT_ROLE_DELTA_DECAY_RATE:
        return 1.0f;
    case TT_ROLE_FINAL_NORM_BIAS:
    case TT_ROLE_ATTENTION_NORM_BIAS:
    case TT_ROLE_FFN_NORM_BIAS:
    case TT_ROLE_HEAD_BIAS:
    case TT_ROLE_Q_BIAS:
    case TT_ROLE_K_BIAS:
    case TT_ROLE_V_BIAS:
    case TT_ROLE_O_BIAS:
    case TT_ROLE_SINKS:
    case TT_ROLE_DELTA_DECAY_BIAS:
    case TT_ROLE_ROUTER_BIAS:
    case TT_ROLE_ROUTER_CHOICE_BIAS:
    case TT_ROLE_EXPERT_GATE_BIAS:
    case TT_ROLE_EXPERT_UP_BIAS:
    case TT_ROLE_EXPERT_DOWN_BIAS:
        return 0.0f;
    default:
        *is_random_out = true;
        return 0.0f;
    }
}

/* Root mean square of the numbers that codes stand for. */
static double code_rms(ttk_dtype code)
{
    double sum = 0.0;
    int n = 0;
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        bool taken = code == TTK_I8 || code == TTK_U8   ? (i & 1)
                     : code == TTK_I4 || code == TTK_U4 ? (i & 1) && i < 16
                     : code == TTK_E4M3                 ? !(i & 0x40)
                                                        : i < 16;
        if (taken) {
            double x = (double)ttk_number(code, &byte, 0);
            x -= code == TTK_U8 ? 128 : code == TTK_U4 ? 8 : 0;
            sum += x * x;
            n++;
        }
    }
    return sqrt(sum / n);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* A positive normal number as the type has it; E8M0: a power of two near it. */
static uint32_t encode(ttk_dtype type, double x)
{
    uint32_t bits = bits_of((float)x);
    switch (type) {
    case TTK_BF16:
        return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    case TTK_F16: {
        uint32_t at = bits - (112u << 23); /* the exponent's bias is 15 instead of 127 */
        return (at + 0xfffu + ((at >> 13) & 1u)) >> 13;
    }
    case TTK_E8M0:
        return (uint32_t)(lrint(log2(x)) + 127);
    default:
        return bits;
    }
}

void tti_made_init(tti_source *source, tt_role role, const ttk_format *format, int64_t rows,
                   int64_t cols, uint64_t key)
{
    bool is_random;
    float constant = constant_of(role, &is_random);
    double std =
        role == TT_ROLE_EMBED ? EMBEDDING_STD : WEIGHT_STD / sqrt((double)(cols > 0 ? cols : 1));
    source->scheme = TTI_SCHEME_MADE;
    source->format = source->stored = *format;
    source->file_rows = source->plane_rows = rows;
    source->file_cols = cols;
    source->n_segments = 1;
    source->segment[0] = (tti_segment){rows, 0, rows, rows};
    source->scale_rows = 1;
    source->made = (tti_made){.key = mix(key), .is_random = is_random, .constant = constant};
    if (ttk_format_is_plain(format)) {
        source->made.exponent = (int)lrint(log2(std / PLAIN_RMS));
        return;
    }
    double rms = code_rms(format->code);
    for (int i = 0; i < N_SPREAD; i++) {
        source->made.scale[i] = encode(format->scale, std / rms * spread[i]);
    }
}

/* ---- rows ---- */

/* n bytes of the row's words, each put through (word & keep) | set. */
static void make_bytes(unsigned char *dst, int64_t n, uint64_t key, uint64_t keep, uint64_t set)
{
    int64_t i = 0;
    for (; (i + 1) * 8 <= n; i++) {
        uint64_t word = (word_at(key, i) & keep) | set;
        memcpy(dst + i * 8, &word, sizeof(word));
    }
    if (i * 8 < n) {
        uint64_t word = (word_at(key, i) & keep) | set;
        memcpy(dst + i * 8, &word, (size_t)(n - i * 8));
    }
}

/* n nibbles, each in a byte of its own, all with the bits `set`: word i gives codes 16 i on, its
 * low halves first. */
static void make_nibbles(unsigned char *dst, int64_t n, uint64_t key, uint64_t set)
{
    int64_t i = 0;
    uint64_t pair[2];
    for (; i * 16 < n; i++) {
        uint64_t word = word_at(key, i);
        int64_t left = n - i * 16;
        pair[0] = (word & LOW_NIBBLES) | set;
        pair[1] = ((word >> 4) & LOW_NIBBLES) | set;
        memcpy(dst + i * 16, pair, left < 16 ? (size_t)left : sizeof(pair));
    }
}

/* n numbers of a plain type. */
static void make_plain(void *dst, ttk_dtype type, int64_t n, uint64_t key, int exponent)
{
    if (type == TTK_F32) {
        uint64_t set = (uint64_t)(exponent + 127) << 23;
        make_bytes(dst, n * 4, key, UINT64_C(0x807fffff807fffff), set | set << 32);
    } else {
        bool half = type == TTK_F16; /* below its smallest normal number: that one */
        uint64_t field = half ? (uint64_t)(exponent < -14 ? 1 : exponent + 15) << 10
                              : (uint64_t)(exponent + 127) << 7;
        uint64_t keep = half ? UINT64_C(0x83ff83ff83ff83ff) : UINT64_C(0x807f807f807f807f);
        make_bytes(dst, n * 2, key, keep, field * UINT64_C(0x0001000100010001));
    }
}

static void make_codes(unsigned char *dst, ttk_dtype code, int64_t n, uint64_t key)
{
    switch (code) {
    case TTK_I4:
    case TTK_U4:
        make_nibbles(dst, n, key, ODD_BYTES);
        break;
    case TTK_E2M1:
        make_nibbles(dst, n, key, 0);
        break;
    case TTK_E4M3:
        make_bytes(dst, n, key, UINT64_C(0xbfbfbfbfbfbfbfbf), 0);
        break;
    default:
        make_bytes(dst, n, key, UINT64_MAX, ODD_BYTES);
        break;
    }
}

static void store(void *array, size_t bytes, int64_t i, uint32_t bits)
{
    const uint16_t half = (uint16_t)bits;
    const unsigned char byte = (unsigned char)bits;
    const void *from = bytes == 4 ? (const void *)&bits : bytes == 2 ? (const void *)&half : &byte;
    memcpy((unsigned char *)array + (size_t)i * bytes, from, bytes);
}

/* All runs of SCALE_RUN scales that a byte of a word can mean, as they lie in memory. */
typedef struct scale_runs {
    unsigned char bytes[256][SCALE_RUN * sizeof(float)];
} scale_runs;

static void make_runs(const tti_made *made, ttk_dtype type, scale_runs *runs)
{
    for (unsigned i = 0; i < 256; i++) {
        for (int j = 0; j < SCALE_RUN; j++) {
            store(runs->bytes[i], ttk_dtype_bytes(type), j,
                  made->scale[i >> (2 * j) & (N_SPREAD - 1)]);
        }
    }
}

static void make_scales(const scale_runs *runs, size_t bytes, unsigned char *dst, int64_t n,
                        uint64_t key)
{
    uint64_t word = 0;
    for (int64_t g = 0; g < n; g += SCALE_RUN, word >>= 8) {
        if (g % GROUPS_PER_WORD == 0) {
            word = word_at(key ^ SCALE_SALT, ~(g / GROUPS_PER_WORD));
        }
        int64_t left = n - g < SCALE_RUN ? n - g : SCALE_RUN;
        memcpy(dst + (size_t)g * bytes, runs->bytes[word & 255], (size_t)left * bytes);
    }
}

static void make_constant(void *dst, ttk_dtype type, int64_t n, float value)
{
    uint32_t bits = value == 0.0f ? 0 : encode(type, (double)value);
    for (int64_t i = 0; i < n; i++) {
        store(dst, ttk_dtype_bytes(type), i, bits);
    }
}

void tti_made_rows(const tti_source *source, int64_t cols, int64_t row, int64_t n,
                   const ttk_unpacked *to, int64_t at)
{
    const ttk_format *f = &source->format;
    const tti_made *made = &source->made;
    bool plain = ttk_format_is_plain(f);
    size_t code_bytes = ttk_dtype_bytes(f->code);
    int64_t G = plain ? 0 : (cols + f->group - 1) / f->group;
    scale_runs runs;
    if (!plain && made->is_random) {
        make_runs(made, f->scale, &runs);
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = row_key(made->key, row + i);
        unsigned char *code = (unsigned char *)to->code + (size_t)((at + i) * cols) * code_bytes;
        if (!made->is_random) {
            make_constant(code, f->code, cols, made->constant);
        } else if (plain) {
            make_plain(code, f->code, cols, key, made->exponent);
        } else {
            make_codes(code, f->code, cols, key);
            size_t bytes = ttk_dtype_bytes(f->scale);
            make_scales(&runs, bytes, (unsigned char *)to->scale + (size_t)((at + i) * G) * bytes,
                        G, key);
        }
    }
}
