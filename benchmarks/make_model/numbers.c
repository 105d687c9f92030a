/* numbers.c - random weights. Element i of tensor t is a hash of (seed, t, i), so any part can be
 * made alone, in any order, and a file is the same everywhere. Normal numbers come from a table of
 * quantiles, rounded once per tensor to what is stored: a number costs a quarter of a hash and a
 * look-up. Codes are symmetric about zero: a mean of half a step would make all hidden states alike
 * after some layers, and routing with them. */
#include "make_model.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_QUANTILES = 1 << 12,
    PER_HASH = 4, /* numbers from one 64-bit hash, 16 bits each of which the upper 12 are
                   * used */
    QUANTILE_SHIFT = 4,
    INT8_STD = 36, /* of the codes; 3.5 deviations reach 127 */
    INT4_STD = 3,  /* cut at 7 */
    FP8_STD = 64   /* far from FP8's largest number, 448, and from its subnormals */
};
static const double WEIGHT_STD = 0.6; /* times 1 / sqrt(inputs): sums over layers stay tame */

_Noreturn void mm_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("make-model: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

void *mm_allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        mm_die("no memory for %zu bytes", bytes);
    }
    return memory;
}

/* The finaliser of splitmix64: a bijection that leaves no pattern of a counter. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint16_t mm_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t mm_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t magnitude = (bits & 0x7fffffffu) - (112u << 23); /* the exponent's bias is 15
                                                               * instead of 127 */
    return (uint16_t)((bits >> 31 << 15) | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

float mm_f32_of_f16(uint16_t half)
{
    uint32_t bits =
        (uint32_t)(half & 0x8000u) << 16 | (((uint32_t)(half & 0x7fffu) << 13) + (112u << 23));
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Nearest FP8 (e4m3) to a normal number below 448; what is below its smallest normal becomes 0. */
static uint8_t fp8(double value)
{
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
    if (fabs(value) < 0x1p-6) {
        return 0;
    }
    int eighths = (int)lrint(fraction * 16.0); /* 8..16 */
    exponent += eighths == 16;
    eighths = eighths == 16 ? 8 : eighths;
    return (uint8_t)((value < 0 ? 0x80 : 0) | (exponent + 6) << 3 | (eighths - 8));
}

/* quantile[i] is the normal number that (i + 0.5) / N of all are below, by bisection. */
void mm_make_quantiles(mm_model *model)
{
    for (int i = 0; i < N_QUANTILES; i++) {
        double wanted = (i + 0.5) / N_QUANTILES, low = -8.0, high = 8.0;
        for (int step = 0; step < 53; step++) {
            double middle = 0.5 * (low + high);
            *(0.5 * erfc(-middle / sqrt(2.0)) < wanted ? &low : &high) = middle;
        }
        model->quantile[i] = 0.5 * (low + high);
    }
}

static uint64_t key_of(const mm_model *model, int id)
{
    return mix(mix(model->seed) + (uint64_t)id);
}

static double deviation(const mm_tensor *t)
{
    return t->fill == MM_EMBEDDING ? 1.0 : WEIGHT_STD / sqrt((double)(t->cols ? t->cols : 1));
}

/* The 16 bits that element i is drawn with, for four elements from a multiple of PER_HASH on. */
static uint64_t bits_at(uint64_t key, int64_t i)
{
    return mix(key + (uint64_t)(i / PER_HASH) * UINT64_C(0x9e3779b97f4a7c15));
}

void mm_draw_bf16(const mm_model *model, int id, int64_t begin, int64_t n, uint16_t *out)
{
    const mm_tensor *t = &model->tensor[id];
    static uint16_t table[N_QUANTILES];
    static int table_id = -1;
    if (table_id != id) {
        for (int i = 0; i < N_QUANTILES; i++) {
            table[i] = mm_bf16((float)(t->fill == MM_ZERO  ? 0.0
                                       : t->fill == MM_ONE ? 1.0
                                                           : deviation(t) * model->quantile[i]));
        }
        table_id = id;
    }
    uint64_t key = key_of(model, id);
    for (int64_t i = 0; i < n; i += PER_HASH) {
        uint64_t bits = bits_at(key, begin + i);
        for (int64_t j = 0; j < PER_HASH && i + j < n; j++, bits >>= 16) {
            out[i + j] = table[(bits & 0xffff) >> QUANTILE_SHIFT];
        }
    }
}

static uint8_t code_of(mm_weights weights, double quantile)
{
    if (weights == MM_FP8) {
        return fp8(FP8_STD * quantile);
    }
    int limit = weights == MM_INT8 ? 127 : 7;
    double code = rint((weights == MM_INT8 ? INT8_STD : INT4_STD) * quantile);
    return (uint8_t)(int8_t)(code > limit ? limit : code < -limit ? -limit : code);
}

void mm_draw_codes(const mm_model *model, int id, int64_t begin, int64_t n, uint8_t *out)
{
    static uint8_t table[N_QUANTILES];
    static int table_weights = -1;
    const mm_tensor *t = &model->tensor[id];
    if (table_weights != (int)t->weights) {
        for (int i = 0; i < N_QUANTILES; i++) {
            table[i] = code_of(t->weights, model->quantile[i]);
        }
        table_weights = (int)t->weights;
    }
    uint64_t key = key_of(model, id);
    for (int64_t i = 0; i < n; i += PER_HASH) {
        uint64_t bits = bits_at(key, begin + i);
        for (int64_t j = 0; j < PER_HASH && i + j < n; j++, bits >>= 16) {
            out[i + j] = table[(bits & 0xffff) >> QUANTILE_SHIFT];
        }
    }
}

float mm_scale(const mm_model *model, int id, int64_t i)
{
    /* Mean square 1, so that the deviation is what it is without them. */
    static const double spread[] = {0.6, 0.9, 1.1, 1.27};
    const mm_tensor *t = &model->tensor[id];
    double std = t->weights == MM_FP8 ? FP8_STD : t->weights == MM_INT8 ? INT8_STD : INT4_STD;
    double scale = deviation(t) / std * spread[mix(~key_of(model, id) + (uint64_t)i) >> 62];
    return mm_f32_of_f16(mm_f16((float)scale));
}
