/* blas.h - products with plain weights through OpenBLAS, which is loaded only when it is asked for:
 * linked, it would start threads in every process. Its sums have an order of their own, which
 * depends on the number of rows: no equal bits (docs/architecture.md, where bits are defined). */
#ifndef TUTTI_BASE_BLAS_H
#define TUTTI_BASE_BLAS_H
#include "tutti/linear.h"

/* Whether tti_blas_product is to be used for M rows: tt_linear_use_blas was called, and it
 * gains. */
bool tti_blas_wants(const tt_linear *linear, int64_t M, int64_t ldx, int64_t ldy);
/* y[M][ldy] = x[M][ldx] w^T, columns of panels [panel_begin, panel_end), the first of which is the
 * first of y. Thread: any. */
void tti_blas_product(const tt_linear *linear, float *y, int64_t ldy, const float *x, int64_t ldx,
                      int64_t M, int64_t panel_begin, int64_t panel_end);

#endif
