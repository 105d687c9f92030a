/* shared_memory.c - memfd: no name that could stay behind or collide, no size limit of /dev/shm.
 * Others reach it through /proc/PID/fd, which the kernel allows between processes of one user.
 *
 * Not of the pool of reserved huge pages (MFD_HUGETLB): a mapping of that takes all of its pages
 * out of the pool at once, and who makes one here asks for the most that it may need. Transparent
 * huge pages come when they are touched, where the system allows them for shared memory. */
#define _GNU_SOURCE /* memfd_create, MAP_ANONYMOUS, madvise */
#include "tutti/shared_memory.h"
#include <errno.h>
#include <fcntl.h>
#include <numa.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tutti/log.h"

static const size_t HUGE_BYTES = TT_SHARED_HUGE_BYTES;

/* Maps fd at a multiple of a huge page. */
static tt_status map(const char *what, int fd, int protection, tt_shared_memory *memory)
{
    size_t room = memory->bytes + HUGE_BYTES;
    unsigned char *raw =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TT_CHECK(raw != MAP_FAILED, TT_ERR_NOMEM, "%s: no address space for %zu bytes: %s", what,
             memory->bytes, strerror(errno));
    size_t before = (HUGE_BYTES - (uintptr_t)raw % HUGE_BYTES) % HUGE_BYTES;
    unsigned char *base = raw + before;
    if (before > 0) {
        munmap(raw, before);
    }
    munmap(base + memory->bytes, room - before - memory->bytes);
    if (mmap(base, memory->bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int error = errno;
        munmap(base, memory->bytes);
        return TT_FAIL(TT_ERR_NOMEM, "%s: cannot map %zu bytes: %s", what, memory->bytes,
                       strerror(error));
    }
    memory->base = base;
    memory->is_mapped = true;
    return TT_OK;
}

/* A file of memory->bytes; -1 with errno. */
static int make_file(size_t bytes)
{
    int fd = memfd_create("tutti", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* The kernel takes the wish for huge pages, whether or not it will heed it. */
static void tell_small_pages(const char *what)
{
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    char words[128] = "";
    FILE *file = fopen(path, "r");
    if (file) {
        if (!fgets(words, sizeof(words), file)) {
            words[0] = 0;
        }
        fclose(file);
    }
    if (strstr(words, "[never]") || strstr(words, "[deny]")) {
        tt_log(TT_LOG_INFO, "%s: in small pages; 'advise' in %s gives huge ones", what, path);
    }
}

tt_status tt_shared_memory_init(const char *what, size_t bytes, tt_shared_memory *memory)
{
    *memory = (tt_shared_memory){.fd = -1};
    TT_CHECK(bytes <= PTRDIFF_MAX - 2 * HUGE_BYTES, TT_ERR_NOMEM, "%s: cannot allocate %zu bytes",
             what, bytes);
    memory->bytes = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    memory->bytes = memory->bytes ? memory->bytes : HUGE_BYTES;
    int fd = make_file(memory->bytes);
    TT_CHECK(fd >= 0, TT_ERR_NOMEM, "%s: no shared memory of %zu bytes: %s", what, memory->bytes,
             strerror(errno));
    tt_status st = map(what, fd, PROT_READ | PROT_WRITE, memory);
    if (st != TT_OK) {
        close(fd);
        return st;
    }
    if (madvise(memory->base, memory->bytes, MADV_HUGEPAGE) != 0) {
        tt_log(TT_LOG_DEBUG, "%s: no huge pages: %s", what, strerror(errno));
    }
    tell_small_pages(what);
    memory->fd = fd;
    if (numa_available() >= 0 && numa_num_configured_nodes() > 1) {
        numa_interleave_memory(memory->base, memory->bytes, numa_all_nodes_ptr);
    }
    return TT_OK;
}

tt_status tt_shared_memory_get_name(const tt_shared_memory *memory, tt_shared_memory_name *name_out)
{
    struct stat info;
    TT_CHECK(fstat(memory->fd, &info) == 0, TT_ERR_UNSUPPORTED, "shared memory cannot be named: %s",
             strerror(errno));
    *name_out = (tt_shared_memory_name){.pid = (int64_t)getpid(),
                                        .fd = memory->fd,
                                        .bytes = memory->bytes,
                                        .device = (uint64_t)info.st_dev,
                                        .inode = (uint64_t)info.st_ino};
    return TT_OK;
}

tt_status tt_shared_memory_open(const char *what, const tt_shared_memory_name *name,
                                tt_shared_memory *memory)
{
    char path[64];
    struct stat info;
    long long pid = (long long)name->pid;
    *memory = (tt_shared_memory){.fd = -1, .bytes = (size_t)name->bytes};
    snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", pid, (long long)name->fd);
    /* In another process name space the number is somebody else's: perhaps of a terminal or a pipe,
     * at which opening must not wait. */
    int other = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    TT_CHECK(other >= 0, TT_ERR_UNSUPPORTED, "%s: memory of process %lld cannot be opened: %s",
             what, pid, strerror(errno));
    bool is_it = fstat(other, &info) == 0 && (uint64_t)info.st_size == name->bytes &&
                 (uint64_t)info.st_ino == name->inode && (uint64_t)info.st_dev == name->device;
    tt_status st = is_it
                       ? map(what, other, PROT_READ, memory)
                       : TT_FAIL(TT_ERR_UNSUPPORTED,
                                 "%s: process %lld is another one here: process name spaces differ",
                                 what, pid);
    close(other);
    return st;
}

void tt_shared_memory_fini(tt_shared_memory *memory)
{
    if (memory->is_mapped) {
        munmap(memory->base, memory->bytes);
        if (memory->fd >= 0) {
            close(memory->fd);
        }
    }
    *memory = (tt_shared_memory){.fd = -1};
}
