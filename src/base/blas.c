/* blas.c - sgemm wants rows of many columns: some panels of weights are laid side by side as
 * floats, a stretch of inputs at a time, in a buffer that stays in the L2 cache. OpenBLAS works on
 * the calling thread alone; our threads share out the panels. */
#define _GNU_SOURCE /* setenv, RTLD_LOCAL */
#include "blas.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_ROWS = 64, /* measured; fewer are as fast by our own kernels */
    COLUMNS = 128,
    DEPTH = 256, /* with COLUMNS 128 KiB, on the stack */
    ROW_MAJOR = 101,
    NOT_TRANSPOSED = 111
};

typedef void sgemm_fn(int order, int transposed_a, int transposed_b, int m, int n, int k,
                      float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                      float *c, int ldc);
static sgemm_fn *sgemm; /* set once, before threads start */

tt_status tt_linear_use_blas(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof(names) / sizeof(names[0]); i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    TT_CHECK(library, TT_ERR_UNSUPPORTED, "--kernels blas: cannot load OpenBLAS: %s", dlerror());
    /* POSIX lets a data pointer from dlsym hold a function's address. */
    *(void **)&sgemm = dlsym(library, "cblas_sgemm");
    TT_CHECK(sgemm, TT_ERR_UNSUPPORTED, "--kernels blas: OpenBLAS has no cblas_sgemm");
    return TT_OK;
}

bool tti_blas_wants(const tt_linear *linear, int64_t M, int64_t ldx, int64_t ldy)
{
    return sgemm && ttk_format_is_plain(&linear->format) && M >= LEAST_ROWS && M <= INT_MAX &&
           ldx <= INT_MAX && ldy <= INT_MAX;
}

/* to[n_k][COLUMNS] = inputs [k, k + n_k) of n panels. */
static void lay_out(const tt_linear *linear, float *to, int64_t panel, int64_t n, int64_t k,
                    int64_t n_k)
{
    const bool is_bf16 = linear->format.code == TTK_BF16;
    for (int64_t p = 0; p < n; p++) {
        const int64_t at = ((panel + p) * linear->K + k) * TTK_PANEL;
        for (int64_t i = 0; i < n_k; i++) {
            float *row = to + i * COLUMNS + p * TTK_PANEL;
            if (is_bf16) {
                ttk.bf16_to_f32(row, (const ttk_bf16 *)linear->panels + at + i * TTK_PANEL,
                                TTK_PANEL);
            } else {
                memcpy(row, (const float *)linear->panels + at + i * TTK_PANEL,
                       TTK_PANEL * sizeof(float));
            }
        }
    }
}

void tti_blas_product(const tt_linear *linear, float *y, int64_t ldy, const float *x, int64_t ldx,
                      int64_t M, int64_t panel_begin, int64_t panel_end)
{
    float w[DEPTH * COLUMNS] __attribute__((aligned(64)));
    for (int64_t panel = panel_begin; panel < panel_end; panel += COLUMNS / TTK_PANEL) {
        const int64_t left = panel_end - panel,
                      n = left < COLUMNS / TTK_PANEL ? left : COLUMNS / TTK_PANEL;
        const int64_t column = panel * TTK_PANEL, columns = linear->N - column < n * TTK_PANEL
                                                                ? linear->N - column
                                                                : n * TTK_PANEL;
        for (int64_t m = 0; linear->K == 0 && m < M; m++) {
            memset(y + m * ldy + column - panel_begin * TTK_PANEL, 0, (size_t)columns * sizeof(*y));
        }
        for (int64_t k = 0; k < linear->K; k += DEPTH) {
            const int64_t n_k = linear->K - k < DEPTH ? linear->K - k : DEPTH;
            lay_out(linear, w, panel, n, k, n_k);
            sgemm(ROW_MAJOR, NOT_TRANSPOSED, NOT_TRANSPOSED, (int)M, (int)columns, (int)n_k, 1.0f,
                  x + k, (int)ldx, w, COLUMNS, k == 0 ? 0.0f : 1.0f,
                  y + column - panel_begin * TTK_PANEL, (int)ldy);
        }
    }
}
