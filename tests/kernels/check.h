/* check.h - what the checkers of kernels share: random inputs, guarded buffers, comparison,
 * reports.
 *
 * A buffer ends where an unreadable page begins, so a read or write beyond its end kills the test
 * even without a sanitizer; in front of it and in the gaps of strided rows lie poison bits that
 * must survive. Two versions agree on a cell if the bits are equal or both are NaN; a poisoned cell
 * must stay poisoned in both. */
#ifndef TUTTI_TESTS_KERNELS_CHECK_H
#define TUTTI_TESTS_KERNELS_CHECK_H
#include "ttk.h"

/* ---- random numbers: the same for a seed on every machine ---- */
typedef struct rng {
    uint64_t state;
} rng;
uint64_t rng_next(rng *r);
int64_t rng_below(rng *r, int64_t n); /* [0, n), n >= 1 */
float rng_plain(rng *r);              /* [-1, 1) */
/* A size to try: often 0, 1, near a multiple of 8, 16 or 32; at most max. */
int64_t rng_size(rng *r, int64_t max);

/* What the inputs of a case are drawn from. */
typedef enum values {
    VALUES_PLAIN,   /* [-1, 1) */
    VALUES_WIDE,    /* any exponent, denormals, zeros of both signs; finite */
    VALUES_SPECIAL, /* plain, with a few NaN, infinities, denormals and -0 */
    VALUES_COUNT
} values;
float rng_value(rng *r, values kind);
void rng_fill(rng *r, float *x, int64_t n, values kind);
void rng_fill_bf16(rng *r, ttk_bf16 *x, int64_t n, values kind);

/* ---- guarded buffers ---- */
typedef struct buffer {
    void *data; /* ends at an unreadable page; poisoned at first */
    size_t bytes;
    void *map;
    size_t map_bytes;
} buffer;
buffer buffer_new(size_t n, size_t element_bytes);
buffer buffer_copy(const buffer *from);
void buffer_free(buffer *b);
void buffers_free(buffer *const *list); /* up to NULL */
#define BUFFERS_FREE(...) buffers_free((buffer *[]){__VA_ARGS__, NULL})
buffer filled(rng *r, size_t n, values kind); /* floats */
/* Elements of rows with ld between their starts, the last without its gap. */
size_t strided(int64_t rows, int64_t ld, int64_t cols);
float *buffer_f32(const buffer *b);
ttk_bf16 *buffer_u16(const buffer *b);
uint32_t poison_f32(void); /* the bits of a poisoned f32 cell */

/* ---- reports: the first faults of a row are printed as TAP comments ---- */
bool fault(const char *format, ...) __attribute__((format(printf, 1, 2))); /* returns false */
/* Compares whole buffers of one size, and the poison in front of them. `what` names the case. */
bool same_f32(const buffer *got, const buffer *want, const char *what);
bool same_u16(const buffer *got, const buffer *want, const char *what); /* bf16 */
/* Cells of y[rows][ld] beyond cols are still poisoned. */
bool gaps_kept(const buffer *y, int64_t rows, int64_t ld, int64_t cols, const char *what);
#define HALF_ULP 0x1p-24           /* of a float near 1: the most that rounding adds, relatively */
bool same_value(float a, float b); /* equal bits, or both NaN */
/* |got - want| <= bound, both NaN, or the same infinity; for ref against double precision. */
bool close_to(float got, double want, double bound, const char *what, int64_t i);

/* ---- checkers: check_<op> of each op; fn is the version under test, which may be ref itself ---- */
typedef bool check_fn(ttk_any_fn *fn, ttk_any_fn *ref, rng *r);
#define DECLARE_CHECKER(op) check_fn check_##op;
TTK_OPS(DECLARE_CHECKER)

#endif
