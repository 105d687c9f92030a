/* model_fixture.h - checkpoints made at run time for the tests of the model room: whole ones, odd
 * ones, hostile ones. Everything lies in a fresh directory that fixture_end removes. */
#ifndef MODEL_FIXTURE_H
#define MODEL_FIXTURE_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/model.h"

typedef struct fixture {
    char dir[256];
} fixture;
void fixture_begin(fixture *f);
void fixture_end(fixture *f);
/* "DIR/NAME" in a static buffer, valid until the next call. */
const char *fixture_path(const fixture *f, const char *name);
void fixture_write(const fixture *f, const char *name, const void *bytes, size_t n);
void fixture_write_text(const fixture *f, const char *name, const char *text);
void fixture_write_json(const fixture *f, const char *name, const json_t *json);
void fixture_remove(const fixture *f, const char *name);
/* For cmocka: *state is a fixture, empty or with the tiny model in it. */
int fixture_set_up(void **state);
int fixture_set_up_tiny(void **state);
int fixture_tear_down(void **state);
/* Makes DIR/NAME a link to a file of the source tree. */
void fixture_link(const fixture *f, const char *name, const char *source);

/* "$top_srcdir/NAME" in a static buffer, valid until the next call. */
const char *source_path(const char *name);
/* Reads a whole file; free() it. */
unsigned char *read_whole(const char *path, size_t *n_out);
json_t *read_json(const char *path);

/* A safetensors file in the making. All-zero is empty; maker_fini frees it. */
typedef struct maker {
    char *header; /* JSON members so far */
    size_t n_header;
    size_t header_capacity;
    unsigned char *data;
    size_t n_data;
    size_t data_capacity;
} maker;
/* Appends a tensor whose bytes are all `fill`; dim[n_dims]. */
void maker_add(maker *m, const char *name, const char *dtype, int n_dims, const int64_t *dim,
               int fill);
/* Appends a tensor with the given bytes. */
void maker_add_bytes(maker *m, const char *name, const char *dtype, int n_dims, const int64_t *dim,
                     const void *bytes, size_t n);
void maker_save(const maker *m, const fixture *f, const char *name);
void maker_fini(maker *m);
/* Writes a file from its header text and n_data zero bytes. */
void write_safetensors(const fixture *f, const char *name, const char *header, size_t n_data);

/* A small Qwen3-MoE: config.json with these sizes (tiny_config), and all its tensors (tiny_add:
 * those of one layer, or the global ones for layer -1), bf16, filled with byte values that differ
 * from tensor to tensor. */
enum { TINY_L = 2, TINY_H = 8, TINY_V = 6, TINY_HEADS = 2, TINY_D = 4, TINY_E = 4, TINY_F = 3 };
json_t *tiny_config(void);
void tiny_add(maker *m, int layer);
void tiny_write(const fixture *f);

/* A miniature of tests/golden/architectures: its weights beside one of its configurations (`config`, a
 * file's name; change_miniature: config.json), with one key set to a JSON text, or removed (text NULL),
 * or no key changed (key NULL). open_miniature opens what it has made. */
#define MINIATURES "tests/golden/architectures/"
void arrange_miniature(const fixture *f, const char *folder, const char *config, const char *key,
                       const char *text);
void change_miniature(const fixture *f, const char *folder, const char *key, const char *text);
tt_model *open_miniature(const fixture *f, const char *folder, const char *config, const char *key,
                         const char *text);
/* The same to the config.json that is there. */
void change_config(const fixture *f, const char *key, const char *text);

/* Opens f and expects this status and every one of the texts in the message (NULL-ended). */
void expect_refusal(const fixture *f, tt_status status, ...);

#endif
