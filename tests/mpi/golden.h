/* golden.h - reads a tensor of a golden.safetensors file, independently of the library's reader. */
#ifndef TUTTI_TESTS_GOLDEN_H
#define TUTTI_TESTS_GOLDEN_H
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The tensor's bytes (to be freed) and their number; exits the test when it is not there. */
static inline void *golden_read(const char *path, const char *name, size_t *bytes_out)
{
    FILE *file = fopen(path, "rb");
    uint64_t header_bytes = 0;
    if (!file || fread(&header_bytes, sizeof(header_bytes), 1, file) != 1) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(97);
    }
    char *header = calloc(1, header_bytes + 1);
    void *data = NULL;
    if (header && fread(header, 1, header_bytes, file) == header_bytes) {
        json_t *root = json_loads(header, 0, NULL);
        json_t *offsets = json_object_get(json_object_get(root, name), "data_offsets");
        long long begin = json_integer_value(json_array_get(offsets, 0));
        long long end = json_integer_value(json_array_get(offsets, 1));
        data = malloc((size_t)(end - begin) + 1);
        fseek(file, (long)(8 + header_bytes) + (long)begin, SEEK_SET);
        if (end <= begin || fread(data, 1, (size_t)(end - begin), file) != (size_t)(end - begin)) {
            fprintf(stderr, "%s has no %s\n", path, name);
            exit(97);
        }
        *bytes_out = (size_t)(end - begin);
        json_decref(root);
    }
    free(header);
    fclose(file);
    return data;
}

#endif
