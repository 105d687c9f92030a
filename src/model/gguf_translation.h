/* gguf_translation.h - what the files share that turn GGUF's metadata into a configuration object:
 * gguf_keys.c reads and writes single keys, gguf_rope.c does the rotary embedding, gguf_config.c
 * has the architectures.
 * Threads: set-up only. MPI: none. */
#ifndef TUTTI_SRC_MODEL_GGUF_TRANSLATION_H
#define TUTTI_SRC_MODEL_GGUF_TRANSLATION_H
#include "gguf_model.h"

enum { TTI_GGUF_KEY_BYTES = 256 };

/* What a translation works on. */
typedef struct tti_translation {
    const tti_gguf_model *model;
    const tti_gguf *gguf;
    const char *path;
    tti_gguf_string architecture;
    json_t *config; /* being made */
    tti_gguf_facts *facts;
} tti_translation;

/* ---- gguf_keys.c: reading ---- */

/* The key "ARCHITECTURE.suffix"; NULL: absent. name[TTI_GGUF_KEY_BYTES] gets its name. */
const tti_gguf_key *tti_gguf_find_suffix(const tti_translation *t, const char *suffix, char *name);
/* The error that key `name` is not `want` ("a number"). */
tt_status tti_gguf_wrong(const tti_translation *t, const char *name, const char *want);
/* The value of a key by its suffix. *found_out: it is there; if not, *value_out stays. A whole
 * number may be stated for each layer: then all that are not 0 must be equal. Errors: TT_ERR_FILE
 * for another type; TT_ERR_UNSUPPORTED if layers differ. */
tt_status tti_gguf_get_int(const tti_translation *t, const char *suffix, int64_t *value_out,
                           bool *found_out);
tt_status tti_gguf_get_real(const tti_translation *t, const char *suffix, double *value_out,
                            bool *found_out);
tt_status tti_gguf_get_bool(const tti_translation *t, const char *suffix, bool *value_out,
                            bool *found_out);
/* For keys whose type has been checked: the value, or `fallback` if there is none. */
int64_t tti_gguf_int_or(const tti_translation *t, const char *suffix, int64_t fallback);
bool tti_gguf_has_tensor(const tti_translation *t, const char *name);

/* ---- gguf_keys.c: writing ---- */

/* Sets a key of the configuration; takes over `value`, NULL says that memory is short. Errors:
 * TT_ERR_NOMEM. */
tt_status tti_gguf_put(const tti_translation *t, const char *key, json_t *value);
tt_status tti_gguf_put_int(const tti_translation *t, const char *key, int64_t value);
tt_status tti_gguf_put_real(const tti_translation *t, const char *key, double value);
tt_status tti_gguf_put_bool(const tti_translation *t, const char *key, bool value);
tt_status tti_gguf_put_text(const tti_translation *t, const char *key, const char *value);

/* ---- gguf_rope.c ---- */

/* Writes "rope_scaling", if the positions are scaled. Errors: TT_ERR_FILE, TT_ERR_UNSUPPORTED
 * naming the key or the tensor, TT_ERR_IO, TT_ERR_NOMEM. */
tt_status tti_gguf_put_rope(const tti_translation *t);

#endif
