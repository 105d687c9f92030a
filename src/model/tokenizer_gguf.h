/* tokenizer_gguf.h - what a GGUF file says about its tokenizer, as plain arrays, and the tokenizer
 * that follows from it. Whoever reads the container fills the struct from the metadata keys; no
 * byte of the container is looked at here. So the vocabulary can be tested without a file, and
 * any source that has the same facts may use it.
 *
 * Source of the keys' meaning: the GGUF specification, section "Tokenizer". */
#ifndef TUTTI_SRC_MODEL_TOKENIZER_GGUF_H
#define TUTTI_SRC_MODEL_TOKENIZER_GGUF_H
#include "tutti/tokenizer.h"

/* Bytes that need no NUL behind them; bytes may be NULL if n is 0. */
typedef struct tti_gguf_string {
    const char *bytes; /* bytes[n] */
    size_t n;
} tti_gguf_string;

/* A boolean key that may be absent. */
typedef enum tti_gguf_flag {
    TTI_GGUF_ABSENT = 0, /* the default of the kind of tokenizer holds */
    TTI_GGUF_NO,
    TTI_GGUF_YES
} tti_gguf_flag;

/* An id key that is absent. Ids that no token has (negative ones and those past the end) count as
 * absent too: files carry -1 and 2^32 - 1. */
enum { TTI_GGUF_NO_ID = -1 };

/* tokenizer.ggml.token_type; other values count as NORMAL. */
typedef enum tti_gguf_token_type {
    TTI_GGUF_NORMAL = 1,
    TTI_GGUF_UNKNOWN = 2,
    TTI_GGUF_CONTROL = 3,
    TTI_GGUF_USER_DEFINED = 4,
    TTI_GGUF_UNUSED = 5,
    TTI_GGUF_BYTE = 6
} tti_gguf_token_type;

/* All memory is borrowed for the time of the call. */
typedef struct tti_gguf_vocabulary {
    const char *path;             /* the file, for messages; NUL-terminated */
    tti_gguf_string architecture; /* general.architecture */
    tti_gguf_string name;         /* general.name; n = 0: absent */
    tti_gguf_string model;        /* tokenizer.ggml.model */
    tti_gguf_string pre;          /* tokenizer.ggml.pre; n = 0: absent */
    const tti_gguf_string *token; /* token[n_tokens]: tokenizer.ggml.tokens, by id */
    size_t n_tokens;
    const int32_t *type;          /* type[n_tokens]: tokenizer.ggml.token_type; NULL: absent */
    const float *score;           /* score[n_tokens]: tokenizer.ggml.scores; NULL: absent */
    const tti_gguf_string *merge; /* merge[n_merges]: tokenizer.ggml.merges; NULL: absent */
    size_t n_merges;
    int64_t bos_id, eos_id, eot_id, eom_id, unknown_id; /* tokenizer.ggml.*_id */
    tti_gguf_flag add_bos, add_eos;                     /* tokenizer.ggml.add_*_token */
    tti_gguf_flag add_space_prefix;                     /* tokenizer.ggml.add_space_prefix */
    tti_gguf_string chat_template;                      /* tokenizer.chat_template; n = 0: absent */
} tti_gguf_vocabulary;

/* All-absent: set the fields that the file has. */
#define TTI_GGUF_VOCABULARY_INIT                                                                   \
    {                                                                                              \
        .bos_id = TTI_GGUF_NO_ID, .eos_id = TTI_GGUF_NO_ID, .eot_id = TTI_GGUF_NO_ID,              \
        .eom_id = TTI_GGUF_NO_ID, .unknown_id = TTI_GGUF_NO_ID                                     \
    }

/* Makes the tokenizer of a GGUF file. Free it with tt_tokenizer_destroy.
 *
 * Kinds: "gpt2" (byte-level BPE, split as `pre` says) and "llama" (SentencePiece BPE: scores and
 * bytes). Control and unknown tokens are special; user-defined ones are matched in any text.
 *
 * MPI: none. Thread: any thread.
 * Errors: TT_ERR_FILE naming the path and the key that is wrong; TT_ERR_UNSUPPORTED naming an
 * unknown model or splitter; TT_ERR_NOMEM. */
tt_status tti_tokenizer_from_gguf(const tti_gguf_vocabulary *vocabulary,
                                  tt_tokenizer **tokenizer_out);

/* The ids that end a turn, which a GGUF file keeps with its tokenizer: eos, eot and eom, and the
 * control tokens of those names in files that lack the keys. ids (empty before) is ascending,
 * without doubles. The tokenizer need not be one that we can build.
 * Errors: TT_ERR_UNSUPPORTED for absurdly many tokens; TT_ERR_NOMEM. */
tt_status tti_gguf_stop_ids(const tti_gguf_vocabulary *vocabulary, tt_ids *ids);
/* The same of a tokenizer, id[n]; n = 0 for one of other files. Valid as long as the tokenizer. */
const int32_t *tti_tokenizer_stop_ids(const tt_tokenizer *tokenizer, size_t *n_out);

#endif
