/* fuzz.h - what the fuzz targets share: inputs of several files, a scratch folder that they are
 * written to, and the bound on memory. A target is one source file with LLVMFuzzerTestOneInput;
 * libFuzzer drives it (make fuzz), or run_corpus.c over the files of its corpus (make check). */
#ifndef FUZZ_H
#define FUZZ_H
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* ---- memory ----
 * From fuzz_memory_begin to fuzz_memory_end no more than fixed + factor * n bytes may be live at
 * once that were allocated between them, else the process aborts. Counts only where a sanitizer's
 * allocator offers hooks (ASan of clang or gcc). */
void fuzz_memory_begin(size_t fixed, size_t factor, size_t n);
void fuzz_memory_end(void);

/* ---- inputs ----
 * An input is one file, or several: each begins behind a line "====NAME". What comes before the
 * first such line is the target's main file, name[0]. The newline before the line is part of it. */
typedef struct fuzz_part {
    const uint8_t *data; /* data[n]; NULL: absent */
    size_t n;
} fuzz_part;
/* part[n_names], in the order of name[n_names]. Of a name that comes twice the last one counts; an
 * unknown name is no name. */
void fuzz_split(const uint8_t *data, size_t n, const char *const *name, size_t n_names,
                fuzz_part *part);
/* The same part as a fresh string with a NUL behind; free() it. */
char *fuzz_text(const fuzz_part *part);

/* ---- files ---- */
/* A folder of this process, in memory where the system has such; removed at exit. */
const char *fuzz_folder(void);
/* "FOLDER/NAME" in a static buffer, valid until the next call. */
const char *fuzz_path(const char *name);
/* Writes FOLDER/NAME, or removes it if the part is absent. */
void fuzz_write(const char *name, const fuzz_part *part);

/* ---- models ---- */
/* Opens a model and, if it opens, reads every row of its tensors in each way there is. */
void fuzz_open_model(const char *path);

/* What must hold, in every build. */
#define FUZZ_MUST(condition)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fuzz_broken(#condition, __FILE__, __LINE__);                                           \
        }                                                                                          \
    } while (0)
void fuzz_broken(const char *condition, const char *file, int line);

#endif
