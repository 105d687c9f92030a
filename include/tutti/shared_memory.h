/* shared_memory.h - a file without a name that several processes of one user map. MPI: none. */
#ifndef TUTTI_SHARED_MEMORY_H
#define TUTTI_SHARED_MEMORY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/status.h"

/* Visible body; all-zero is nothing. */
typedef struct tt_shared_memory {
    unsigned char *base; /* 2 MiB aligned */
    size_t bytes;
    int fd; /* -1 in who opened another's */
    bool is_mapped;
} tt_shared_memory;

/* How another process finds it; inode and device tell it from whatever else may stand under that
 * number. Sent between processes as it is. */
typedef struct tt_shared_memory_name {
    int64_t pid, fd;
    uint64_t bytes, device, inode;
} tt_shared_memory_name;

enum { TT_SHARED_HUGE_BYTES = 2 << 20 }; /* the huge page of x86-64 and of 4 KiB aarch64 */
/* Where a piece of `bytes` in it begins: pieces that fill a huge page at one, others at a cache
 * line. */
static inline size_t tt_shared_alignment(size_t bytes)
{
    enum { LINE = 64 };
    return bytes >= TT_SHARED_HUGE_BYTES ? TT_SHARED_HUGE_BYTES : LINE;
}

/* Address space of `bytes` backed by pages that come when they are touched, so what is not used
 * costs nothing: huge ones where the system has transparent huge pages for shared memory
 * (shmem_enabled is advise, within_size or always). Pages are spread over all NUMA nodes that the
 * process may use. Errors: TT_ERR_NOMEM. */
TT_API tt_status tt_shared_memory_init(const char *what, size_t bytes, tt_shared_memory *memory);
/* The name of what this process made. Errors: TT_ERR_UNSUPPORTED. */
TT_API tt_status tt_shared_memory_get_name(const tt_shared_memory *memory,
                                           tt_shared_memory_name *name_out);
/* Maps, read-only, what another process made. Errors: TT_ERR_UNSUPPORTED with the cause;
 * TT_ERR_NOMEM. */
TT_API tt_status tt_shared_memory_open(const char *what, const tt_shared_memory_name *name,
                                       tt_shared_memory *memory);
TT_API void tt_shared_memory_fini(tt_shared_memory *memory);

#endif
