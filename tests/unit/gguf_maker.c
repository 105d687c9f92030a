/* gguf_maker.c - see gguf_maker.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gguf_maker.h"
#include "model_compare.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGNMENT = 32, VERSION = 3 };

static void append(gguf_bytes *b, const void *bytes, size_t n)
{
    b->data = realloc(b->data, b->n + n + 1);
    assert_non_null(b->data);
    memcpy(b->data + b->n, bytes, n);
    b->n += n;
}

static void append_le(gguf_bytes *b, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)(value >> (8 * i));
        append(b, &byte, 1);
    }
}

static void append_string(gguf_bytes *b, const char *text, size_t n)
{
    append_le(b, n, 8);
    append(b, text, n);
}

static void begin_key(gguf_maker *m, const char *name, tti_gguf_type type)
{
    append_string(&m->keys, name, strlen(name));
    append_le(&m->keys, (uint64_t)type, 4);
    m->n_keys++;
}

void gguf_put_text(gguf_maker *m, const char *name, const char *value)
{
    begin_key(m, name, TTI_GGUF_STRING);
    append_string(&m->keys, value, strlen(value));
}

void gguf_put_int(gguf_maker *m, const char *name, tti_gguf_type type, int64_t value)
{
    bool is_wide = type == TTI_GGUF_U64 || type == TTI_GGUF_I64;
    begin_key(m, name, type);
    append_le(&m->keys, (uint64_t)value,
              is_wide                                        ? 8
              : type == TTI_GGUF_U32 || type == TTI_GGUF_I32 ? 4
              : type == TTI_GGUF_U16 || type == TTI_GGUF_I16 ? 2
                                                             : 1);
}

void gguf_put_real(gguf_maker *m, const char *name, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    begin_key(m, name, TTI_GGUF_F32);
    append_le(&m->keys, bits, 4);
}

void gguf_put_ints(gguf_maker *m, const char *name, const int32_t *value, uint64_t n)
{
    begin_key(m, name, TTI_GGUF_ARRAY);
    append_le(&m->keys, TTI_GGUF_I32, 4);
    append_le(&m->keys, n, 8);
    for (uint64_t i = 0; i < n; i++) {
        append_le(&m->keys, (uint32_t)value[i], 4);
    }
}

void gguf_put_key(gguf_maker *m, const tti_gguf_key *key)
{
    append_string(&m->keys, key->name.bytes, key->name.n);
    append_le(&m->keys, key->is_array ? TTI_GGUF_ARRAY : (uint64_t)key->type, 4);
    if (key->is_array) {
        append_le(&m->keys, (uint64_t)key->type, 4);
        append_le(&m->keys, key->n, 8);
    }
    append(&m->keys, key->bytes, key->n_bytes);
    m->n_keys++;
}

void gguf_put_tensor(gguf_maker *m, const char *name, int n_dims, const int64_t *dim, uint32_t type,
                     const void *bytes, size_t n)
{
    append_string(&m->tensors, name, strlen(name));
    append_le(&m->tensors, (uint64_t)n_dims, 4);
    for (int d = 0; d < n_dims; d++) {
        append_le(&m->tensors, (uint64_t)dim[d], 8);
    }
    append_le(&m->tensors, type, 4);
    append_le(&m->tensors, m->data.n, 8);
    append(&m->data, bytes, n);
    while (m->data.n % ALIGNMENT) {
        append_le(&m->data, 0, 1);
    }
    m->n_tensors++;
}

void gguf_save(const gguf_maker *m, const fixture *f, const char *name)
{
    gguf_bytes file = {0};
    append(&file, "GGUF", 4);
    append_le(&file, VERSION, 4);
    append_le(&file, m->n_tensors, 8);
    append_le(&file, m->n_keys, 8);
    append(&file, m->keys.data, m->keys.n);
    append(&file, m->tensors.data, m->tensors.n);
    while (file.n % ALIGNMENT) {
        append_le(&file, 0, 1);
    }
    append(&file, m->data.data, m->data.n);
    fixture_write(f, name, file.data, file.n);
    free(file.data);
}

void gguf_maker_fini(gguf_maker *m)
{
    free(m->keys.data);
    free(m->tensors.data);
    free(m->data.data);
    *m = (gguf_maker){0};
}

void gguf_source_open(gguf_source *s, const char *name)
{
    size_t n;
    bool is_short = false;
    s->bytes = read_whole(source_path(name), &n);
    assert_int_equal(tti_gguf_parse(name, s->bytes, n, n, &s->gguf, &is_short), TT_OK);
    assert_false(is_short);
}

void gguf_source_close(gguf_source *s)
{
    tti_gguf_fini(&s->gguf);
    free(s->bytes);
}

const char *gguf_name(tti_gguf_string string)
{
    static char name[256];
    assert_true(string.n < sizeof(name));
    memcpy(name, string.bytes, string.n);
    name[string.n] = 0;
    return name;
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; names && *names; names++) {
        if (strstr(name, *names)) {
            return true;
        }
    }
    return false;
}

void gguf_copy(gguf_maker *m, const gguf_source *s, const char *const *but)
{
    for (size_t i = 0; i < s->gguf.n_keys; i++) {
        if (!is_one_of(gguf_name(s->gguf.key[i].name), but)) {
            gguf_put_key(m, &s->gguf.key[i]);
        }
    }
    for (size_t i = 0; i < s->gguf.n_tensors; i++) {
        const tti_gguf_tensor *t = &s->gguf.tensor[i];
        if (!is_one_of(gguf_name(t->name), but)) {
            gguf_put_tensor(m, gguf_name(t->name), t->n_dims, t->dim, t->type->id,
                            s->bytes + t->offset, t->bytes);
        }
    }
}

tt_model *gguf_open(gguf_maker *m, const fixture *f)
{
    gguf_save(m, f, "m.gguf");
    gguf_maker_fini(m);
    return open_model(fixture_path(f, "m.gguf"));
}

void gguf_expect_refused(gguf_maker *m, const fixture *f, tt_status want, const char *a,
                         const char *b)
{
    tt_model *model = NULL;
    gguf_save(m, f, "m.gguf");
    gguf_maker_fini(m);
    expect_message(tt_model_open(fixture_path(f, "m.gguf"), &model), want, a, b);
}

tt_status gguf_try_logged(gguf_maker *m, const fixture *f, tt_model **model_out, char **log_out)
{
    char log[256];
    size_t n;
    snprintf(log, sizeof(log), "%s", fixture_path(f, "log"));
    fflush(stderr);
    int old = dup(STDERR_FILENO);
    assert_non_null(freopen(log, "w", stderr));
    gguf_save(m, f, "m.gguf");
    gguf_maker_fini(m);
    tt_status st = tt_model_open(fixture_path(f, "m.gguf"), model_out);
    fflush(stderr);
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    unsigned char *bytes = read_whole(log, &n);
    *log_out = calloc(n + 1, 1);
    assert_non_null(*log_out);
    memcpy(*log_out, bytes, n);
    free(bytes);
    return st;
}

tt_model *gguf_open_logged(gguf_maker *m, const fixture *f, char **log_out)
{
    tt_model *made = NULL;
    if (gguf_try_logged(m, f, &made, log_out) != TT_OK) {
        fail_msg("%s", tt_status_message());
    }
    return made;
}
