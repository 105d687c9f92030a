/* convert_gguf.h - the files of a packed checkpoint that are no weights, made from a GGUF file.
 * Private to the model room.
 * Threads: set-up only. MPI: none. */
#ifndef TUTTI_SRC_MODEL_CONVERT_GGUF_H
#define TUTTI_SRC_MODEL_CONVERT_GGUF_H
#include "gguf_model.h"

enum { TTI_MADE_FILES = 3 };
typedef struct tti_made_file {
    const char *name; /* NULL: there is none */
    void *bytes;      /* bytes[n]; owned */
    size_t n;
} tti_made_file;

/* Makes them from the GGUF model whose first part is `first`; `model` is the same, open. Owner: the
 * caller, tti_made_files_fini.
 * Errors: those of opening the file, TT_ERR_NOMEM. */
tt_status tti_gguf_make_files(const char *first, const tt_model *model,
                              tti_made_file file_out[TTI_MADE_FILES]);
void tti_made_files_fini(tti_made_file file[TTI_MADE_FILES]);

#endif
