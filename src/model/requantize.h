/* requantize.h - rows of a checkpoint rounded to the format that weights have in memory. Private to
 * the model room.
 * Threads: any. MPI: none. */
#ifndef TUTTI_SRC_MODEL_REQUANTIZE_H
#define TUTTI_SRC_MODEL_REQUANTIZE_H
#include "tutti/load.h"

bool tti_same_format(const ttk_format *a, const ttk_format *b);
/* rows[n][K] of `from` become unpacked rows of the quantised format `to` inside
 * work[tti_requantize_bytes(to, n, K)], 64-byte aligned. */
size_t tti_requantize_bytes(const ttk_format *to, int64_t n, int64_t K);
ttk_unpacked tti_requantize(const ttk_format *to, const ttk_format *from, const ttk_unpacked *rows,
                            int64_t n, int64_t K, void *work);

#endif
