/* gguf_maker.h - GGUF files made at run time, from the specification, for tests. */
#ifndef GGUF_MAKER_H
#define GGUF_MAKER_H
#include "gguf.h"
#include "model_fixture.h"

typedef struct gguf_bytes {
    unsigned char *data;
    size_t n;
} gguf_bytes;
/* A file in the making. All-zero is empty; gguf_maker_fini frees it. */
typedef struct gguf_maker {
    gguf_bytes keys, tensors, data;
    uint64_t n_keys, n_tensors;
} gguf_maker;

void gguf_put_text(gguf_maker *m, const char *name, const char *value);
/* TTI_GGUF_U32, TTI_GGUF_U64, ... */
void gguf_put_int(gguf_maker *m, const char *name, tti_gguf_type type, int64_t value);
void gguf_put_real(gguf_maker *m, const char *name, float value);
/* an array of i32 */
void gguf_put_ints(gguf_maker *m, const char *name, const int32_t *value, uint64_t n);
/* as it is */
void gguf_put_key(gguf_maker *m, const tti_gguf_key *key);
/* dim[0] runs fastest; type is GGML's. */
void gguf_put_tensor(gguf_maker *m, const char *name, int n_dims, const int64_t *dim, uint32_t type,
                     const void *bytes, size_t n);
void gguf_save(const gguf_maker *m, const fixture *f, const char *name);
void gguf_maker_fini(gguf_maker *m);

/* A file of the source tree, parsed. */
typedef struct gguf_source {
    unsigned char *bytes;
    tti_gguf gguf;
} gguf_source;
void gguf_source_open(gguf_source *s, const char *name);
void gguf_source_close(gguf_source *s);
/* The string with an end; static storage, valid until the next call. */
const char *gguf_name(tti_gguf_string string);

/* Copies the keys and tensors of a file but those whose names contain one of `but` (NULL: all). */
void gguf_copy(gguf_maker *m, const gguf_source *s, const char *const *but);
/* Saves what was made and opens it; the maker is empty then. */
tt_model *gguf_open(gguf_maker *m, const fixture *f);
/* The same, but to be refused with this status and both texts. */
void gguf_expect_refused(gguf_maker *m, const fixture *f, tt_status want, const char *a,
                         const char *b);
/* The same as gguf_open, with what it comes to, or to succeed; *log_out: what went to stderr
 * meanwhile, free(). */
tt_status gguf_try_logged(gguf_maker *m, const fixture *f, tt_model **model_out, char **log_out);
tt_model *gguf_open_logged(gguf_maker *m, const fixture *f, char **log_out);

#endif
