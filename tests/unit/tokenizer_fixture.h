/* tokenizer_fixture.h - what the tokenizer tests share: golden files, scratch folders, decoding
 * at once. Everything fails the running test by cmocka when it cannot do its work. */
#ifndef TUTTI_TESTS_UNIT_TOKENIZER_FIXTURE_H
#define TUTTI_TESTS_UNIT_TOKENIZER_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include "tutti/tokenizer.h"

enum { FIXTURE_PATH_BYTES = 4096, N_FAMILIES = 5 };
extern const char *const families[N_FAMILIES];

/* The path of a file below the source tree. */
void source_path(const char *name, char path[FIXTURE_PATH_BYTES]);
/* The JSON of tests/golden/tokenizers/NAME; the caller drops it. */
json_t *golden_json(const char *name);
tt_tokenizer *golden_tokenizer(const char *family);

/* A fresh folder under the build's own; scratch_remove deletes it with the files that
 * scratch_write made. */
typedef struct scratch {
    char folder[FIXTURE_PATH_BYTES / 2];
} scratch;
void scratch_create(scratch *s);
void scratch_write(const scratch *s, const char *name, const char *bytes, size_t n);
void scratch_write_json(const scratch *s, const char *name, const json_t *json);
void scratch_remove(scratch *s);
/* A tokenizer of these files; config and chat_template may be NULL. */
tt_tokenizer *make_tokenizer(const json_t *tokenizer_json, const char *config,
                             const char *chat_template);

tt_ids encode(const tt_tokenizer *tokenizer, const char *text, unsigned flags);
void assert_ids(const tt_ids *ids, const json_t *expected, const char *what);
void assert_encodes(const tt_tokenizer *tokenizer, const char *text, size_t n, unsigned flags,
                    const json_t *expected);
/* Each of a list of texts, against a list of lists of ids. */
void assert_encodes_each(const tt_tokenizer *tokenizer, const json_t *texts, unsigned flags,
                         const json_t *expected);
/* CPU time of this thread, which other programs do not lengthen. */
double thread_seconds(void);
#endif
