/* files.c - writing that stops the program when it fails. */
#define _POSIX_C_SOURCE 200809L
#include "make_model.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

static _Noreturn void die_writing(const mm_out *out)
{
    mm_die("%s cannot be written: %s", out->path, strerror(errno));
}

void mm_out_open(mm_out *out, const char *dir, const char *name)
{
    int length = dir ? snprintf(out->path, sizeof(out->path), "%s/%s", dir, name)
                     : snprintf(out->path, sizeof(out->path), "%s", name);
    if (length < 0 || (size_t)length >= sizeof(out->path)) {
        mm_die("the path of %s is too long", name);
    }
    out->written = 0;
    out->file = fopen(out->path, "wb");
    if (!out->file) {
        die_writing(out);
    }
}

void mm_out_write(mm_out *out, const void *data, size_t bytes)
{
    if (fwrite(data, 1, bytes, out->file) != bytes) {
        die_writing(out);
    }
    out->written += bytes;
}

void mm_out_print(mm_out *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vfprintf(out->file, format, args);
    va_end(args);
    if (n < 0) {
        die_writing(out);
    }
    out->written += (uint64_t)n;
}

void mm_out_pad(mm_out *out, uint64_t to_multiple_of)
{
    while (out->written % to_multiple_of != 0) {
        mm_out_write(out, "", 1);
    }
}

void mm_out_close(mm_out *out)
{
    bool bad = ferror(out->file) != 0;
    if (fclose(out->file) != 0 || bad) {
        die_writing(out);
    }
}
