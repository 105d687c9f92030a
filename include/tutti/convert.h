/* convert.h - writes a packed checkpoint: weights quantised and packed once, in the order in which
 * ranks want them, so that loading is copying.
 *
 * OUT becomes a directory with the files of MODEL that are no weights, and model.safetensors: dense
 * tensors first, then expert 0 of all layers, expert 1, ...: the experts of a rank are one range.
 * Panels are U8 tensors named by role; "tutti" in __metadata__ describes them. Of a GGUF file,
 * whose parts may be several, config.json and generation_config.json are made from its metadata,
 * and tokenizer.gguf is a GGUF file without tensors that has its keys general.* and tokenizer.*:
 * tt_tokenizer_create reads it where a directory has no other tokenizer. Layers that predict
 * further tokens (MTP) are left out, with a warning: nothing runs them.
 * Loading it gives the same bits as loading MODEL with the same weights.
 * Threads: set-up only. MPI: none. */
#ifndef TUTTI_CONVERT_H
#define TUTTI_CONVERT_H
#include "tutti/model.h"
#include "tutti/stream.h"

typedef struct tt_convert_params {
    const tt_model *model;
    const char *out; /* must not exist */
    tt_weight_format weights;
    tt_stream *compute; /* packs in parallel; NULL = the caller alone */
    /* after each tensor; may be NULL */
    void (*progress)(void *arg, uint64_t written_bytes, uint64_t total_bytes);
    void *progress_arg;
} tt_convert_params;

/* Writes OUT.tmp and renames it when all is there; after an error nothing stays. Holds one packed
 * tensor at a time. *bytes_out: of the weight file.
 * Errors: TT_ERR_USAGE if OUT exists, TT_ERR_IO (a full disk, ...), those of reading. */
TT_API tt_status tt_convert(const tt_convert_params *params, uint64_t *bytes_out);

#endif
