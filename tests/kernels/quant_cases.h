/* quant_cases.h - quantised weights that the checkers of packing and of products try. */
#ifndef TUTTI_TESTS_KERNELS_QUANT_CASES_H
#define TUTTI_TESTS_KERNELS_QUANT_CASES_H
#include "check.h"

enum { N_ARRAYS = 5, WHAT_BYTES = 160 };

ttk_format random_format(rng *r);

/* Unpacked rows in guarded buffers. */
typedef struct rows {
    buffer array[N_ARRAYS];
    ttk_unpacked view;
} rows;
rows rows_new(const ttk_format *f, int64_t n, int64_t K);
void rows_free(rows *w);
void rows_fill(rng *r, rows *w, const ttk_format *f, values kind);
/* Element [n][k] as the format means it, and in *size_out the size of what it is a sum of. */
double weight_of(const ttk_format *f, const rows *w, int64_t n, int64_t k, int64_t K,
                 double *size_out);

bool same_bytes(const buffer *a, const buffer *b, const char *what);
/* Names a case in what[WHAT_BYTES]. */
void describe(char *what, size_t bytes, const char *op, const ttk_format *f, int64_t M, int64_t N,
              int64_t K);

#endif
