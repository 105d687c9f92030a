/* main.c - make-model writes a checkpoint of random weights in any shape, as safetensors or as
 * GGUF: the same weights in both, so that peers and we run the same model, and speed can be
 * measured without a trained one. Only widths and routing matter for speed, so weights are drawn
 * such that numbers stay tame and experts are chosen about evenly. Needs nothing but the C
 * library. */
#define _POSIX_C_SOURCE 200809L
#include "make_model.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static _Noreturn void usage(int code)
{
    FILE *out = code ? stderr : stdout;
    fputs(
        "usage: make-model --shape NAME --out DIR|FILE.gguf [--weights bf16|int8|int4|fp8] [--set FIELD=N ...]\n"
        "                  [--layers N] [--seed N]\n"
        "A name that ends with .gguf gives one GGUF file (int8: Q8_0, int4: Q4_0; no fp8), any other a directory.\n",
        out);
    mm_shapes_print(out);
    exit(code);
}

static mm_weights weights_of(const char *name)
{
    static const char *const names[] = {
        [MM_BF16] = "bf16", [MM_INT8] = "int8", [MM_INT4] = "int4", [MM_FP8] = "fp8"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            return (mm_weights)i;
        }
    }
    fprintf(stderr, "make-model: --weights %s: unknown\n", name);
    usage(2);
}

static void set_field(mm_model *m, const char *text)
{
    const char *fault = mm_shape_set(&m->shape, text);
    if (fault) {
        fprintf(stderr, "make-model: '%s' %s\n", text, fault);
        usage(2);
    }
}

/* The shape comes first, whatever the order of the options: others change it. */
static void take_shape(mm_model *m, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--shape") == 0) {
            const mm_shape *found = mm_shape_find(argv[i + 1]);
            if (!found) {
                fprintf(stderr, "make-model: no shape '%s'\n", argv[i + 1]);
                usage(2);
            }
            m->shape = *found;
            return;
        }
    }
    usage(2);
}

static void take_options(mm_model *m, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc) {
            usage(2);
        }
        const char *option = argv[i], *value = argv[i + 1];
        char text[64];
        if (strcmp(option, "--out") == 0) {
            m->path = value;
        } else if (strcmp(option, "--weights") == 0) {
            m->weights = weights_of(value);
        } else if (strcmp(option, "--set") == 0) {
            set_field(m, value);
        } else if (strcmp(option, "--layers") == 0) {
            snprintf(text, sizeof(text), "layers=%s", value);
            set_field(m, text);
        } else if (strcmp(option, "--seed") == 0) {
            m->seed = strtoull(value, NULL, 10);
        } else if (strcmp(option, "--shape") != 0) {
            usage(2);
        }
    }
}

int main(int argc, char **argv)
{
    static mm_model m = {.seed = 1};
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage(0);
    }
    take_shape(&m, argc, argv);
    take_options(&m, argc, argv);
    if (!m.path) {
        usage(2);
    }
    const char *fault = mm_shape_fault(&m.shape);
    size_t length = strlen(m.path);
    bool is_gguf = length > 5 && strcmp(m.path + length - 5, ".gguf") == 0;
    fault = is_gguf && m.weights == MM_FP8 ? "GGUF has no fp8" : fault;
    if (fault) {
        mm_die("%s", fault);
    }
    mm_make_quantiles(&m);
    mm_list_tensors(&m);
    int n_files = 1;
    uint64_t bytes;
    if (is_gguf) {
        bytes = mm_write_gguf(&m);
    } else {
        if (mkdir(m.path, 0777) != 0 && errno != EEXIST) {
            mm_die("%s cannot be made: %s", m.path, strerror(errno));
        }
        bytes = mm_write_safetensors(&m, &n_files);
    }
    printf("%s: shape %s, %" PRId64 " layers, %d tensors, %.2f GB in %d file%s\n", m.path,
           m.shape.name, m.shape.L, m.n, (double)bytes / 1e9, n_files, n_files == 1 ? "" : "s");
    free(m.tensor);
    return 0;
}
