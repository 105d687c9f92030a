/* shared_memory.h - a file without a name that several processes of one user map. MPI: none. */
#ifndef TUTTI_SHARED_MEMORY_H
#define TUTTI_SHARED_MEMORY_H
#include <stdbool.h>
#include <stddef.h>
#include "tutti/status.h"

/* Visible body; all-zero is nothing. */
typedef struct tt_shared_memory {
    unsigned char *base; /* 2 MiB aligned */
    size_t bytes;
    int fd;         /* -1 in who opened another's */
    bool is_mapped;
} tt_shared_memory;

/* Address space of `bytes` backed by pages that come when they are touched: huge ones from the reserved pool if it has enough, else what the kernel
 * makes of a wish. Pages are spread over all NUMA nodes that the process may use. Errors: TT_ERR_NOMEM. */
TT_API tt_status tt_shared_memory_init(const char *what, size_t bytes, tt_shared_memory *memory);
/* Maps, read-only, what process `pid` made with file descriptor `fd`. Errors: TT_ERR_UNSUPPORTED with the cause. */
TT_API tt_status tt_shared_memory_open(const char *what, long pid, int fd, size_t bytes, tt_shared_memory *memory);
TT_API void tt_shared_memory_fini(tt_shared_memory *memory);

#endif
