/* file.c - weight and configuration files as hostile things: only regular files are opened (a FIFO
 * would block), sizes are asked from the open file, and reads loop until all bytes are there. Files
 * stay open, so that what was checked is what is read. */
#include "model_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == sizeof(int64_t), "weight files are larger than 2 GiB");

enum {
    READ_BYTES = 1 << 30,  /* one pread; Linux moves at most 2^31 - 4096 bytes */
    SHOWN_PATH_BYTES = 400 /* of 1024 bytes of message */
};

tti_shown tti_show(const char *name)
{
    tti_shown shown;
    size_t n = 0;
    while (name[n] != 0 && n < sizeof(shown.text) - 4) {
        unsigned char c = (unsigned char)name[n];
        shown.text[n] = c < ' ' || c == 0x7f ? '?' : (char)c;
        n++;
    }
    memcpy(shown.text + n, name[n] != 0 ? "..." : "", name[n] != 0 ? 4 : 1);
    return shown;
}

const char *tti_show_path(const char *path)
{
    size_t n = strlen(path);
    return n > SHOWN_PATH_BYTES ? path + n - SHOWN_PATH_BYTES : path;
}

tt_status tti_file_error_code(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case EISDIR:
        return TT_ERR_FILE;
    default:
        return TT_ERR_IO;
    }
}

static char *join(const char *dir, const char *name)
{
    size_t n_dir = strlen(dir), n_name = strlen(name);
    char *path = malloc(n_dir + n_name + 2);
    if (path) {
        memcpy(path, dir, n_dir);
        path[n_dir] = '/';
        memcpy(path + n_dir + 1, name, n_name + 1);
    }
    return path;
}

tt_status tti_file_open(const char *dir, const char *name, tti_file *file_out)
{
    tt_status st;
    struct stat info;
    tti_file file = {.path = join(dir, name), .fd = -1};
    TT_CHECK(file.path, TT_ERR_NOMEM, "no memory for the path of %s", tti_show(name).text);
    /* O_NONBLOCK: opening a FIFO must not wait for a writer; it changes nothing for regular files.
     */
    do {
        file.fd = open(file.path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    } while (file.fd < 0 && errno == EINTR);
    if (file.fd < 0) {
        const tt_status code = tti_file_error_code(errno);
        st = TT_FAIL(code, "%s: %s", tti_show_path(file.path), strerror(errno));
        goto err_close;
    }
    if (fstat(file.fd, &info) != 0) {
        st = TT_FAIL(TT_ERR_IO, "%s: %s", tti_show_path(file.path), strerror(errno));
        goto err_close;
    }
    if (!S_ISREG(info.st_mode)) {
        st = TT_FAIL(TT_ERR_FILE, "%s: is not a regular file", tti_show_path(file.path));
        goto err_close;
    }
    file.bytes = (uint64_t)info.st_size;
    *file_out = file;
    return TT_OK;

err_close:
    tti_file_close(&file);
    return st;
}

void tti_file_close(tti_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    free(file->path);
    file->path = NULL;
    file->fd = -1;
}

bool tti_file_exists(const char *dir, const char *name)
{
    struct stat info;
    char *path = join(dir, name);
    /* Without memory for a path the open that follows fails and says so. A dangling link is there,
     * and is a fault. */
    bool exists = path && lstat(path, &info) == 0;
    free(path);
    return exists;
}

tt_status tti_file_read(const tti_file *file, uint64_t offset, void *dst, size_t n)
{
    unsigned char *out = dst;
    while (n > 0) {
        ssize_t got = pread(file->fd, out, n < READ_BYTES ? n : READ_BYTES, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        TT_CHECK(got >= 0, TT_ERR_IO, "%s: reading at byte %llu: %s", tti_show_path(file->path),
                 (unsigned long long)offset, strerror(errno));
        TT_CHECK(
            got > 0, TT_ERR_FILE, "%s: ends at byte %llu, but had %llu bytes when it was opened",
            tti_show_path(file->path), (unsigned long long)offset, (unsigned long long)file->bytes);
        out += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return TT_OK;
}

void tti_file_will_need(const tti_file *file, uint64_t offset, size_t n)
{
    (void)posix_fadvise(file->fd, (off_t)offset, (off_t)n, POSIX_FADV_WILLNEED); /* a wish */
}

bool tti_file_is_pointer(const char *bytes, size_t n)
{
    static const char start[] = "version https://git-lfs";
    return n >= sizeof(start) - 1 && memcmp(bytes, start, sizeof(start) - 1) == 0;
}
