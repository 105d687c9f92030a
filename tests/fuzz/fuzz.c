/* fuzz.c - the bound on memory, the split of an input into files, and the folder they are written
 * to.
 *
 * The sanitizers' allocators call hooks at each allocation and release. The sum of what is live is
 * held against a bound that grows with the input, so that no number inside a file can ask for
 * memory that the file's own size does not account for. */
#include "fuzz.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__GNUC__)
#define WEAK __attribute__((weak))
#else
#define WEAK
#endif

/* Of the sanitizers' run-time library; NULL without one. */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *)) WEAK;
size_t __sanitizer_get_allocated_size(const volatile void *p) WEAK;

static struct {
    bool is_armed, has_hooks;
    long long live, peak, bound; /* bytes allocated since begin, less those released */
} memory;

static void on_malloc(const volatile void *p, size_t n)
{
    (void)p;
    if (!memory.is_armed) {
        return;
    }
    memory.live += (long long)n;
    memory.peak = memory.live > memory.peak ? memory.live : memory.peak;
    if (memory.live > memory.bound) {
        memory.is_armed = false;
        dprintf(STDERR_FILENO,
                "fuzz: %lld bytes are live, the bound is %lld (the last request: %zu)\n",
                memory.live, memory.bound, n);
        abort();
    }
}

static void on_free(const volatile void *p)
{
    if (memory.is_armed && p) {
        memory.live -= (long long)__sanitizer_get_allocated_size(p);
    }
}

void fuzz_memory_begin(size_t fixed, size_t factor, size_t n)
{
    if (!memory.has_hooks && __sanitizer_install_malloc_and_free_hooks &&
        __sanitizer_get_allocated_size) {
        memory.has_hooks = true;
        (void)__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    }
    memory.live = memory.peak = 0;
    memory.bound = (long long)(fixed + factor * n);
    memory.is_armed = true;
}

void fuzz_memory_end(void)
{
    memory.is_armed = false;
    if (getenv("FUZZ_SHOW_MEMORY")) {
        fprintf(stderr, "fuzz: peak %lld of %lld bytes\n", memory.peak, memory.bound);
    }
}

void fuzz_broken(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

/* ---- inputs ---- */

static const char MARK[] = "====";

/* The index of the name on the line at data[0, n), whose length with its newline is *line_out;
 * n_names if it is no such line. */
static size_t named_line(const uint8_t *data, size_t n, const char *const *name, size_t n_names,
                         size_t *line_out)
{
    size_t n_mark = sizeof(MARK) - 1;
    if (n < n_mark || memcmp(data, MARK, n_mark) != 0) {
        return n_names;
    }
    for (size_t k = 0; k < n_names; k++) {
        size_t n_name = strlen(name[k]);
        if (n - n_mark > n_name && memcmp(data + n_mark, name[k], n_name) == 0 &&
            data[n_mark + n_name] == '\n') {
            *line_out = n_mark + n_name + 1;
            return k;
        }
    }
    return n_names;
}

void fuzz_split(const uint8_t *data, size_t n, const char *const *name, size_t n_names,
                fuzz_part *part)
{
    size_t begin = 0, current = 0, line = 0;
    memset(part, 0, n_names * sizeof(*part));
    for (size_t at = 0; at < n;) {
        size_t k = named_line(data + at, n - at, name, n_names, &line);
        if (k < n_names) {
            if (at > 0) {
                size_t end = at - 1 > begin ? at - 1 : begin; /* without the newline */
                part[current] = (fuzz_part){data + begin, end - begin};
            }
            begin = at + line;
            current = k;
        }
        const uint8_t *newline = memchr(data + at, '\n', n - at);
        at = newline ? (size_t)(newline - data) + 1 : n;
    }
    part[current] = (fuzz_part){data + begin, n - begin};
}

char *fuzz_text(const fuzz_part *part)
{
    char *text = malloc(part->n + 1);
    FUZZ_MUST(text);
    if (part->n > 0) {
        memcpy(text, part->data, part->n);
    }
    text[part->n] = 0;
    return text;
}

/* ---- files ---- */

static char folder[64];

static void remove_folder(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (entry->d_name[0] != '.') {
            (void)unlink(fuzz_path(entry->d_name));
        }
    }
    if (dir) {
        closedir(dir);
    }
    (void)rmdir(folder);
}

const char *fuzz_folder(void)
{
    if (!folder[0]) {
        struct stat info;
        bool in_memory =
            stat("/dev/shm", &info) == 0 && S_ISDIR(info.st_mode) && access("/dev/shm", W_OK) == 0;
        snprintf(folder, sizeof(folder), "%s/tutti-fuzz-XXXXXX", in_memory ? "/dev/shm" : "/tmp");
        FUZZ_MUST(mkdtemp(folder));
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", fuzz_folder(), name);
    return path;
}

void fuzz_write(const char *name, const fuzz_part *part)
{
    const char *path = fuzz_path(name);
    if (!part->data) {
        (void)unlink(path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FUZZ_MUST(fd >= 0);
    FUZZ_MUST(write(fd, part->data, part->n) == (ssize_t)part->n);
    close(fd);
}
