/* check_kernels.c - runs the checker of each op over every compiled version of it: random sizes and
 * values, bit equality with ref, ref against double precision, and the invariances that the
 * contract promises. Links the kernels alone. The seed is printed; --seed N repeats a run, --only
 * TEXT picks rows by name, --rounds N runs longer. */
#include "check.h"
#include "cpu_flags.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_ROUNDS = 400, /* cases per row; about two seconds in all */
    MAX_FAULTS = 5,       /* printed per row */
    FRONT_BYTES = 64      /* poison in front of a buffer that is looked at */
};
static const uint32_t POISON = 0x7fc5a5a5u; /* a quiet NaN that no input holds */
static const uint16_t POISON_U16 = 0x7fc5u;

static int n_faults;

/* ---- random numbers (splitmix64) ---- */
uint64_t rng_next(rng *r)
{
    r->state += 0x9e3779b97f4a7c15u;
    uint64_t z = r->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t rng_below(rng *r, int64_t n)
{
    return (int64_t)(rng_next(r) % (uint64_t)n);
}

float rng_plain(rng *r)
{
    return (float)(int32_t)(rng_next(r) >> 40) * 0x1p-23f - 1.0f;
}

int64_t rng_size(rng *r, int64_t max)
{
    int64_t n;
    switch (rng_below(r, 4)) {
    case 0:
        n = rng_below(r, 4);
        break;
    case 1: {
        int64_t unit = 8 << rng_below(r, 3);
        n = unit * (1 + rng_below(r, 4)) + rng_below(r, 3) - 1;
        break;
    }
    case 2:
        n = rng_below(r, 80);
        break;
    default:
        n = rng_below(r, max + 1);
        break;
    }
    return n < max ? n : max;
}

static float of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

float rng_value(rng *r, values kind)
{
    static const uint32_t specials[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u,
                                        0x7f800001u, /* infinities, NaN quiet and signalling */
                                        0x00000000u, 0x80000000u, 0x00000001u, 0x807fffffu,
                                        0x00012345u, /* zeros, denormals */
                                        0x7f7fffffu, 0xff7fffffu, 0x7f7f8000u, 0x3f808000u,
                                        0x3f818000u, /* largest; ties of bf16 rounding */
                                        0x42b16665u, 0x42b16666u, 0x42b16667u, 0xc2b16665u,
                                        0xc2b16666u, 0xc2b16667u, /* around the ends of exp */
                                        0x42ae9999u, 0x42ae999au, 0x42ae999bu, 0xc2ae9999u,
                                        0xc2ae999au, 0xc2ae999bu};
    int64_t n_specials = (int64_t)(sizeof(specials) / sizeof(specials[0]));
    if (kind == VALUES_SPECIAL && rng_below(r, 64) == 0) {
        return of_bits(specials[rng_below(r, n_specials)]);
    }
    if (kind == VALUES_WIDE) {
        uint32_t u = (uint32_t)rng_next(r);
        if (rng_below(r, 8) == 0) {
            u &= 0x80000000u;
        } else if ((u & 0x7f800000u) == 0x7f800000u) {
            u &= 0xbfffffffu;
        }
        return of_bits(u);
    }
    return rng_plain(r);
}

void rng_fill(rng *r, float *x, int64_t n, values kind)
{
    /* Every second special case holds very few specials, so that long sums are not always NaN. */
    bool is_rare = kind == VALUES_SPECIAL && rng_below(r, 2) == 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = rng_value(r, is_rare && rng_below(r, 16) != 0 ? VALUES_PLAIN : kind);
    }
}

void rng_fill_bf16(rng *r, ttk_bf16 *x, int64_t n, values kind)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = (ttk_bf16)(bits_of(rng_value(r, kind)) >> 16);
    }
}

/* ---- guarded buffers ---- */
buffer buffer_new(size_t n, size_t element_bytes)
{
    buffer b;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    b.bytes = n * element_bytes;
    b.map_bytes = (b.bytes + FRONT_BYTES + page - 1) / page * page + page;
    b.map = mmap(NULL, b.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.map == MAP_FAILED) {
        printf("Bail out! mmap of %zu bytes: %s\n", b.map_bytes, strerror(errno));
        exit(1);
    }
    mprotect((char *)b.map + b.map_bytes - page, page, PROT_NONE);
    b.data = (char *)b.map + b.map_bytes - page - b.bytes;
    char *front = (char *)b.data - FRONT_BYTES;
    if (element_bytes == sizeof(uint16_t)) {
        for (size_t i = 0; i < (b.bytes + FRONT_BYTES) / sizeof(uint16_t); i++) {
            memcpy(front + i * sizeof(uint16_t), &POISON_U16, sizeof(uint16_t));
        }
    } else {
        for (size_t i = 0; i < (b.bytes + FRONT_BYTES) / sizeof(uint32_t); i++) {
            memcpy(front + i * sizeof(uint32_t), &POISON, sizeof(uint32_t));
        }
    }
    return b;
}

buffer buffer_copy(const buffer *from)
{
    buffer b = buffer_new(from->bytes, 1);
    memcpy((char *)b.data - FRONT_BYTES, (const char *)from->data - FRONT_BYTES,
           from->bytes + FRONT_BYTES);
    return b;
}

void buffer_free(buffer *b)
{
    munmap(b->map, b->map_bytes);
    b->map = NULL;
    b->data = NULL;
}

void buffers_free(buffer *const *list)
{
    for (; *list; list++) {
        buffer_free(*list);
    }
}

buffer filled(rng *r, size_t n, values kind)
{
    buffer b = buffer_new(n, sizeof(float));
    rng_fill(r, buffer_f32(&b), (int64_t)n, kind);
    return b;
}

size_t strided(int64_t rows, int64_t ld, int64_t cols)
{
    return rows > 0 ? (size_t)((rows - 1) * ld + cols) : 0;
}

float *buffer_f32(const buffer *b)
{
    return b->data;
}

ttk_bf16 *buffer_u16(const buffer *b)
{
    return b->data;
}

uint32_t poison_f32(void)
{
    return POISON;
}

/* ---- reports ---- */
bool fault(const char *format, ...)
{
    if (n_faults++ < MAX_FAULTS) {
        va_list args;
        va_start(args, format);
        printf("#   ");
        vprintf(format, args);
        printf("\n");
        va_end(args);
    }
    return false;
}

bool same_value(float a, float b)
{
    return bits_of(a) == bits_of(b) || (a != a && b != b);
}

static bool fronts_kept(const buffer *got, const buffer *want, const char *what)
{
    if (memcmp((const char *)got->data - FRONT_BYTES, (const char *)want->data - FRONT_BYTES,
               FRONT_BYTES) != 0) {
        return fault("%s: wrote in front of its output", what);
    }
    return true;
}

bool same_f32(const buffer *got, const buffer *want, const char *what)
{
    const float *a = got->data;
    const float *b = want->data;
    for (size_t i = 0; i < got->bytes / sizeof(float); i++) {
        bool poisoned_a = bits_of(a[i]) == POISON;
        bool poisoned_b = bits_of(b[i]) == POISON;
        if (poisoned_a != poisoned_b || !same_value(a[i], b[i])) {
            return fault("%s: cell %zu of %zu is %a (%08x), ref has %a (%08x)", what, i,
                         got->bytes / sizeof(float), (double)a[i], bits_of(a[i]), (double)b[i],
                         bits_of(b[i]));
        }
    }
    return fronts_kept(got, want, what);
}

static bool is_nan_bf16(ttk_bf16 x)
{
    return (x & 0x7fffu) > 0x7f80u;
}

bool same_u16(const buffer *got, const buffer *want, const char *what)
{
    const ttk_bf16 *a = got->data;
    const ttk_bf16 *b = want->data;
    for (size_t i = 0; i < got->bytes / sizeof(*a); i++) {
        bool poisoned_differ = (a[i] == POISON_U16) != (b[i] == POISON_U16);
        if (poisoned_differ || (a[i] != b[i] && !(is_nan_bf16(a[i]) && is_nan_bf16(b[i])))) {
            return fault("%s: cell %zu is %04x, ref has %04x", what, i, a[i], b[i]);
        }
    }
    return fronts_kept(got, want, what);
}

bool gaps_kept(const buffer *y, int64_t rows, int64_t ld, int64_t cols, const char *what)
{
    const float *cells = y->data;
    int64_t n = (int64_t)(y->bytes / sizeof(float));
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = row * ld + cols; i < (row + 1) * ld && i < n; i++) {
            if (bits_of(cells[i]) != POISON) {
                return fault("%s: wrote into the gap behind row %lld", what, (long long)row);
            }
        }
    }
    return true;
}

bool close_to(float got, double want, double bound, const char *what, int64_t i)
{
    double error = (double)got - want;
    bool both_nan = got != got && want != want;
    if (both_nan || (double)got == want || (error <= bound && -error <= bound)) {
        return true;
    }
    return fault("%s: element %lld is %.9g, double precision gives %.17g, bound %.3g", what,
                 (long long)i, (double)got, want, bound);
}

/* ---- the walk ---- */
#define CHECKER(op) check_##op,
static check_fn *const checkers[TTK_OP_COUNT] = {TTK_OPS(CHECKER)};

#define IN_TABLE(op) (ttk_any_fn *)ttk.op,
/* The row that stands behind op in a table made for these flags is the last whose needs are met. */
static bool table_prefers_later_rows(const ttk_row *rows, size_t n_rows, unsigned flags)
{
    ttk_any_fn *want[TTK_OP_COUNT] = {NULL};
    for (size_t i = 0; i < n_rows; i++) {
        if ((rows[i].need & ~flags) == 0) {
            want[rows[i].op] = rows[i].fn;
        }
    }
    ttk_init(flags);
    ttk_any_fn *const got[TTK_OP_COUNT] = {TTK_OPS(IN_TABLE)};
    for (int op = 0; op < TTK_OP_COUNT; op++) {
        if (!got[op] || got[op] != want[op]) {
            return fault("op %d: flags %x choose the wrong version", op, flags);
        }
    }
    return true;
}

static bool check_row(const ttk_row *row, const ttk_row *ref, uint64_t seed, int rounds)
{
    n_faults = 0;
    bool ok = true;
    for (int round = 0; round < rounds; round++) {
        rng r = {seed + (uint64_t)round * 0x100000001b3u};
        ok = checkers[row->op](row->fn, ref->fn, &r) && ok;
    }
    return ok;
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)time(NULL) * 2654435761u;
    const char *only = "";
    int rounds = DEFAULT_ROUNDS;
    for (int i = 1; i < argc; i += 2) { /* every option has a value */
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value && strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(value, NULL, 0);
        } else if (value && strcmp(argv[i], "--only") == 0) {
            only = value;
        } else if (value && strcmp(argv[i], "--rounds") == 0) {
            rounds = atoi(value);
        } else {
            fprintf(stderr, "usage: %s [--seed N] [--only TEXT] [--rounds N]\n", argv[0]);
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* a crash must not swallow the seed */
    printf("# seed %llu\n", (unsigned long long)seed);
    unsigned flags = cpu_flags();
    ttk_init(0); /* what a checker needs beside the version under test is ref */
    size_t n_rows;
    const ttk_row *rows = ttk_rows(&n_rows);
    const ttk_row *ref[TTK_OP_COUNT] = {NULL};
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].need == 0 && !ref[rows[i].op]) {
            ref[rows[i].op] = &rows[i];
        }
    }
    int n_failed = 0;
    printf("1..%zu\n", n_rows + 1);
    for (size_t i = 0; i < n_rows; i++) {
        if ((rows[i].need & ~flags) != 0) {
            printf("ok %zu %s # skip this CPU lacks what it needs\n", i + 1, rows[i].name);
            continue;
        }
        if (!strstr(rows[i].name, only)) {
            printf("ok %zu %s # skip not asked for\n", i + 1, rows[i].name);
            continue;
        }
        bool ok = check_row(&rows[i], ref[rows[i].op], seed, rounds);
        n_failed += !ok;
        printf("%s %zu %s equals ref and keeps its contract\n", ok ? "ok" : "not ok", i + 1,
               rows[i].name);
    }
    n_faults = 0;
    bool ok = table_prefers_later_rows(rows, n_rows, 0) &&
              table_prefers_later_rows(rows, n_rows, flags) &&
              table_prefers_later_rows(rows, n_rows, flags & TTK_CPU_AVX2);
    n_failed += !ok;
    printf("%s %zu ttk_init chooses the last version whose needs are met\n", ok ? "ok" : "not ok",
           n_rows + 1);
    return n_failed ? 1 : 0;
}
