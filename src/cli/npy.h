/* npy.h - writes a float matrix in NumPy's format, row by row in any order.
 * Source: the NumPy enhancement proposal 1, format version 1.0. MPI: none. */
#ifndef TTI_CLI_NPY_H
#define TTI_CLI_NPY_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "tutti/status.h"

/* Visible body: lives inside other structs; all-zero is a file that is not open. */
typedef struct tti_cli_npy {
    FILE *file;
    const char *path; /* borrowed */
    int64_t rows, cols;
    int64_t data_offset; /* bytes before the first row */
} tti_cli_npy;

/* Creates path with the header of a little-endian f32 [rows][cols]. Errors: TT_ERR_USAGE (cannot be
 * written), TT_ERR_IO. */
tt_status tti_cli_npy_create(const char *path, int64_t rows, int64_t cols, tti_cli_npy *npy);
/* data[cols]. Errors: TT_ERR_IO. */
tt_status tti_cli_npy_put_row(tti_cli_npy *npy, int64_t row, const float *data);
/* Errors: TT_ERR_IO if what was buffered cannot be written. Accepts a file that is not open. */
tt_status tti_cli_npy_close(tti_cli_npy *npy);

#endif
