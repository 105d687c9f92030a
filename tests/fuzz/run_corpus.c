/* run_corpus.c - a main that hands each file of a corpus to a fuzz target, with any compiler: so
 * what fuzzing once found stays found. Without arguments the corpus is the target's own; with
 * arguments, the files and folders named there. A crash, a broken condition or a file that takes
 * longer than its time ends the process. */
#include "fuzz.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECONDS = 60 /* for one file, in the slowest build on a busy machine */ };

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    FUZZ_MUST(file && fseek(file, 0, SEEK_END) == 0);
    long n = ftell(file);
    FUZZ_MUST(n >= 0 && fseek(file, 0, SEEK_SET) == 0);
    uint8_t *data = malloc(n > 0 ? (size_t)n : 1); /* exactly as large, for ASan */
    FUZZ_MUST(data && fread(data, 1, (size_t)n, file) == (size_t)n);
    fclose(file);
    fprintf(stderr, "%s\n", path);
    alarm(SECONDS);
    (void)LLVMFuzzerTestOneInput(data, (size_t)n);
    alarm(0);
    free(data);
}

static int run_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        fprintf(stderr, "%s is not there\n", path);
        exit(1);
    }
    if (!S_ISDIR(info.st_mode)) {
        run_file(path);
        return 1;
    }
    struct dirent **entry;
    int n_files = 0, n = scandir(path, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (entry[i]->d_name[0] != '.') {
            char file[1024];
            snprintf(file, sizeof(file), "%s/%s", path, entry[i]->d_name);
            run_file(file);
            n_files++;
        }
        free(entry[i]);
    }
    if (n >= 0) {
        free(entry);
    }
    return n_files;
}

int main(int argc, char **argv)
{
    char own[1024];
    const char *top = getenv("top_srcdir");
    int n = 0;
    snprintf(own, sizeof(own), "%s/tests/fuzz/corpus/" FUZZ_CORPUS, top ? top : ".");
    for (int i = 1; i < argc; i++) {
        n += run_path(argv[i]);
    }
    n += argc > 1 ? 0 : run_path(own);
    printf("%d files\n", n);
    return n > 0 ? 0 : 1; /* an empty corpus shows nothing */
}
