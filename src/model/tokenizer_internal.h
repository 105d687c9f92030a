/* tokenizer_internal.h - the parts of a tokenizer, shared by the files that build it, encode with
 * it and decode with it. A tokenizer is data: lists of normaliser operations, pre-tokeniser steps
 * and decoder stages, a vocabulary with merges, and matchers of added tokens; each file here
 * interprets one of these lists.
 *
 * Threads: everything reachable from a tt_tokenizer is const after create, but for the relaxed
 * atomic memo in tti_bpe. What changes during a call lives in a work struct of that call. MPI:
 * none. */
#ifndef TUTTI_SRC_MODEL_TOKENIZER_INTERNAL_H
#define TUTTI_SRC_MODEL_TOKENIZER_INTERNAL_H
#include "tutti/tokenizer.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <jansson.h>
#include <stdatomic.h>

enum {
    TTI_TOKEN_ID_LIMIT =
        1
        /* ids; largest public vocabularies hold about 2^18. Bounds tables of hostile files */
        << 24,
    TTI_STEPS_MAX =
        /* of one kind in one tokenizer; real files have at most 6. Bounds recursion over steps */
    32
};

/* ---- growing memory ---- */
/* Makes array[need] of item_bytes each possible, keeping its contents. */
tt_status tti_tokenizer_grow(void **array, size_t *capacity, size_t need, size_t item_bytes);
/* Copies bytes[n] into fresh memory with a NUL behind; NULL if memory is out (no message). */
char *tti_tokenizer_copy(const char *bytes, size_t n);
/* The same, of what was read from the file `path`. */
tt_status tti_tokenizer_keep(const char *path, const char *bytes, size_t n, char **copy_out,
                             size_t *n_out);

/* ---- growth (tokenizer.c) ----
 * Steps that rewrite a text may make it longer, and lists of steps are a file's: each that doubles
 * its text would make 2^32 bytes of one. So no step of a list may make more of a text than so many
 * times its bytes, and some. The most that Unicode asks for is 11 (NFKD of U+FDFA), a byte map's 2
 * or a space's stand-in of 3 bytes may follow. */
enum { TTI_GROWTH = 32, TTI_GROWTH_SLACK = 256 /* bytes; what is put before a short text */ };
typedef struct tti_growth {
    size_t allowed;
    size_t used[TTI_STEPS_MAX]; /* used[k]: bytes that step k made */
} tti_growth;
void tti_growth_start(tti_growth *growth, size_t n);
/* Errors: TT_ERR_REQUEST. */
tt_status tti_growth_use(tti_growth *growth, size_t step, size_t n);

/* ---- UTF-8 (tokenizer_utf8.c) ---- */
/* U+FFFD, which stands for what is not text. */
#define TTI_REPLACEMENT "\xef\xbf\xbd"
enum { TTI_REPLACEMENT_BYTES = 3, TTI_UTF8_MAX = 4 /* bytes of the longest character */ };
/* Bytes of the next character of s[n], n > 0, or of its broken part: the longest start of a
 * well-formed character, at least 1 byte (Unicode 15, section 3.9, "maximal subpart"). *cut_out:
 * it is a start that the end of s cut off. */
size_t tti_utf8_next(const char *s, size_t n, bool *valid_out, bool *cut_out);
/* Bytes of s that are valid UTF-8 from its start on. */
size_t tti_utf8_valid_prefix(const char *s, size_t n);
/* Appends s[n] with each broken part as one U+FFFD. */
tt_status tti_utf8_append_lossy(tt_text *text, const char *s, size_t n);
/* The code point at s, which is valid and not at its end. */
uint32_t tti_utf8_decode(const char *s, size_t *n_out);
size_t tti_utf8_encode(uint32_t c, char out[TTI_UTF8_MAX]);
/* Unicode White_Space; general category N*; what the reference library's matcher of added tokens
 * calls a word character (Alphabetic, M, Nd, Pc, Join_Control). */
bool tti_char_is_space(uint32_t c);
bool tti_char_is_numeric(uint32_t c);
bool tti_char_is_word(uint32_t c);

/* ---- typed reading of JSON (tokenizer_json.c) ---- */
/* Each says TT_ERR_FILE with the file and the key if the type is wrong. `null` counts as absent. */
tt_status tti_tokenizer_json_file(const char *path, bool *absent_out, char **text_out,
                                  size_t *n_out);
tt_status tti_tokenizer_json_parse(const char *path, const char *text, size_t n, json_t **root_out);
tt_status tti_tokenizer_json_string(const char *path, const json_t *object, const char *key,
                                    const char **s_out, size_t *n_out);
/* A copy of it, owned. */
tt_status tti_tokenizer_json_keep(const char *path, const json_t *object, const char *key,
                                  char **copy_out, size_t *n_out);
/* *s_out is NULL if absent. */
tt_status tti_tokenizer_json_optional(const char *path, const json_t *object, const char *key,
                                      const char **s_out, size_t *n_out);
tt_status tti_tokenizer_json_bool(const char *path, const json_t *object, const char *key,
                                  bool fallback, bool *out);
tt_status tti_tokenizer_json_integer(const char *path, const json_t *object, const char *key,
                                     int64_t low, int64_t high, int64_t *out);
tt_status tti_tokenizer_json_array(const char *path, const json_t *object, const char *key,
                                   const json_t **array_out);
/* The components of a "Sequence" that stands in `depth` others. Errors: also TT_ERR_UNSUPPORTED if
 * that is too deep. */
tt_status tti_tokenizer_json_sequence(const char *path, const json_t *object, const char *key,
                                      unsigned depth, const json_t **array_out);
/* A component: an object with a string "type". `what` names its kind in messages. */
tt_status tti_tokenizer_json_type(const char *path, const char *what, const json_t *component,
                                  const char **type_out);

/* ---- patterns (tokenizer_regex.c) ---- */
typedef enum tti_pattern_kind {
    TTI_PATTERN_STRING,
    TTI_PATTERN_REGEX,
    TTI_PATTERN_NUMERIC
} tti_pattern_kind;
typedef struct tti_pattern {
    tti_pattern_kind kind;
    char *string; /* string[n_string], never empty; STRING only; owned */
    size_t n_string;
    pcre2_code *code; /* REGEX only; owned */
    bool has_jit;
} tti_pattern;
/* What matching needs besides the pattern; all-zero is ready. One per encode call. */
typedef struct tti_regex_work {
    pcre2_match_context *context;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
} tti_regex_work;
void tti_regex_work_fini(tti_regex_work *work);
/* A walk over all matches of text[n] (valid UTF-8); all else zero is the start. */
typedef struct tti_pattern_walk {
    const char *text;
    size_t n;
    size_t from;       /* the search goes on here */
    size_t start, end; /* the last match */
    bool has_last;
} tti_pattern_walk;

/* Reads {"String": s} or {"Regex": s}. */
tt_status tti_pattern_load(const char *path, const json_t *json, tti_pattern *out);
tt_status tti_pattern_from_regex(const char *path, const char *regex, size_t n, tti_pattern *out);
tt_status tti_pattern_from_string(const char *string, size_t n, tti_pattern *out);
void tti_pattern_fini(tti_pattern *pattern);
/* Goes on to the next match, left to right, without overlap. *found_out false: there is none.
 * Errors: TT_ERR_REQUEST if a limit is exceeded. */
tt_status tti_pattern_next(const tti_pattern *pattern, tti_regex_work *work, tti_pattern_walk *walk,
                           bool *found_out);

/* ---- normaliser (tokenizer_normalize.c) ---- */
typedef enum tti_normalize_kind {
    TTI_NORMALIZE_NFC,
    TTI_NORMALIZE_NFD,
    TTI_NORMALIZE_NFKC,
    TTI_NORMALIZE_NFKD,
    TTI_NORMALIZE_PREPEND,
    TTI_NORMALIZE_REPLACE,
    TTI_NORMALIZE_STRIP,
    TTI_NORMALIZE_LOWERCASE
} tti_normalize_kind;
typedef struct tti_normalize_op {
    tti_normalize_kind kind;
    char *content; /* content[n_content]: what PREPEND or REPLACE puts; owned */
    size_t n_content;
    tti_pattern pattern; /* REPLACE */
    bool strip_left, strip_right;
} tti_normalize_op;
typedef struct tti_normalizer {
    tti_normalize_op *op; /* op[n_ops] */
    size_t n_ops, capacity;
} tti_normalizer;
tt_status tti_normalizer_load(const char *path, const json_t *json, tti_normalizer *out);
/* Appends one operation, which the caller fills. */
tt_status tti_normalizer_add(const char *path, tti_normalizer *out, tti_normalize_kind kind,
                             tti_normalize_op **op_out);
tt_status tti_normalizer_add_prepend(const char *path, tti_normalizer *out, const char *content);
tt_status tti_normalizer_add_replace(const char *path, tti_normalizer *out, const char *from,
                                     const char *to);
void tti_normalizer_fini(tti_normalizer *normalizer);
/* *text_io/n_io: in the raw text, out the normalised one, which lies in one of the two buffers
 * (or is the raw text). */
tt_status tti_normalizer_exec(const tti_normalizer *normalizer, tti_regex_work *regex,
                              tt_text buffer[2], const char **text_io, size_t *n_io);

/* ---- the description of a vocabulary (tokenizer_build.c) ----
 * What tokenizer.json, GGUF files and tiktoken files have in common. Each reader fills one, and
 * one function makes the tokenizer of it. Strings are borrowed from the reader's source. */
typedef struct tti_span {
    const char *bytes; /* bytes[n]; no NUL behind */
    size_t n;
} tti_span;
enum { TTI_NO_RANK = 0xffffffff }; /* the token takes no part in merges */
typedef struct tti_vocabulary_token {
    tti_span text;
    int64_t id;
    uint32_t rank; /* with merges_by_rank: lower goes first */
} tti_vocabulary_token;
typedef struct tti_vocabulary_merge {
    tti_span left, right;
} tti_vocabulary_merge;
typedef struct tti_vocabulary_added {
    tti_span content;
    int64_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} tti_vocabulary_added;
typedef struct tti_vocabulary {
    const char *path;
    tti_vocabulary_token *token; /* token[n_tokens]; owned, in any order of ids */
    size_t n_tokens, token_capacity;
    /* How pairs merge: listed, first goes first; or, with merges_by_rank and no list, any two
     * tokens merge whose concatenation is a token, in the order of that token's rank. The latter
     * is how tiktoken and SentencePiece choose. */
    tti_vocabulary_merge *merge; /* merge[n_merges]; owned */
    size_t n_merges, merge_capacity;
    bool merges_by_rank;
    bool ignore_merges, byte_fallback, fuse_unknown;
    int64_t unknown_id;          /* -1: none */
    tti_vocabulary_added *added; /* added[n_added]; owned */
    size_t n_added, added_capacity;
} tti_vocabulary;
tt_status tti_vocabulary_add_token(tti_vocabulary *v, const char *bytes, size_t n, int64_t id,
                                   uint32_t rank);
tt_status tti_vocabulary_add_merge(tti_vocabulary *v, tti_span left, tti_span right);
tt_status tti_vocabulary_add_added(tti_vocabulary *v, const tti_vocabulary_added *added);
void tti_vocabulary_fini(tti_vocabulary *v);
/* Ids must be below this: room for gaps, but no table that is out of proportion to the file. */
int64_t tti_vocabulary_id_limit(const tti_vocabulary *v);
/* Fills the tokenizer's bpe and added from the description; its normaliser must be there. */
tt_status tti_tokenizer_build(const tti_vocabulary *v, tt_tokenizer *tokenizer);

/* The flags of an added token, all optional. (tokenizer_json.c) */
tt_status tti_tokenizer_json_added_flags(const char *path, const json_t *json,
                                         tti_vocabulary_added *added);

/* ---- vocabulary and merges (bpe.c) ---- */
typedef struct tti_bpe_token {
    size_t offset; /* into tti_bpe.bytes */
    uint32_t n;
    bool known;
} tti_bpe_token;
typedef struct tti_bpe_merge {
    uint64_t pair;  /* left << 32 | right */
    uint32_t rank;  /* lower goes first */
    int32_t merged; /* the id of the concatenation; -1: the place is free */
} tti_bpe_merge;
enum {
    TTI_BPE_DIRECT =
        0x800 /* code points below have a table: all that bytes map to, and the short alphabets */
};
typedef struct tti_bpe {
    tt_text bytes;        /* all tokens, one behind the other */
    tti_bpe_token *token; /* token[n_ids] */
    int32_t n_ids;
    size_t token_capacity;
    uint32_t *
        /* slot[n_slots]: id + 1 by hash of the string, 0 free; open addressing, n_slots a power
         * of two */
        slot;
    size_t n_slots, n_used;
    tti_bpe_merge *merge; /* merge[n_merge_slots] by hash of the pair; open addressing */
    size_t n_merge_slots;
    /* merged_by_rank[n_ranks]: what the merge of a rank makes; NULL if ranks belong to tokens, not
     * to pairs (tti_vocabulary.merges_by_rank). */
    int32_t *merged_by_rank;
    size_t n_ranks;
    int32_t char_id[TTI_BPE_DIRECT]; /* id of a one-character token, or -1 */
    int32_t byte_id[256];            /* id of <0xHH>, or -1 */
    int32_t unknown_id;              /* -1: none */
    bool ignore_merges, byte_fallback, fuse_unknown;
    /* Does the BPE of this token's own text give just this token? A memo, filled as pieces come:
     * relaxed order is enough, since the value of each element is a pure function of the const
     * rest and only ever goes from unknown to that value. */
    _Atomic unsigned char *whole; /* whole[n_ids], of tti_bpe_whole */
} tti_bpe;
typedef struct tti_bpe_symbol {
    int32_t id;          /* -1: merged away */
    uint32_t prev, next; /* neighbours; TTI_BPE_NONE at the ends */
} tti_bpe_symbol;
/* Memory of one encode call; all-zero is ready. */
typedef struct tti_bpe_work {
    tti_bpe_symbol *symbol;
    size_t n_symbols, symbol_capacity;
    uint64_t *heap; /* rank << 32 | left symbol; a binary min-heap */
    size_t n_heap, heap_capacity;
} tti_bpe_work;
/* Called in this order: tokens, index, merges or ranks, finish. id_limit: ids must be below. */
tt_status tti_bpe_add_token(const char *path, tti_bpe *bpe, const char *bytes, size_t n, int64_t id,
                            int64_t id_limit);
tt_status tti_bpe_index(const char *path, tti_bpe *bpe);
/* The pairs in order of their rank, or all pairs of tokens that make a token, by its rank[id]. */
tt_status tti_bpe_set_merges(const char *path, tti_bpe *bpe, const tti_vocabulary_merge *merge,
                             size_t n);
tt_status tti_bpe_set_ranks(const char *path, tti_bpe *bpe, const uint32_t *rank);
tt_status tti_bpe_finish(tti_bpe *bpe);
void tti_bpe_fini(tti_bpe *bpe);
int32_t tti_bpe_find(const tti_bpe *bpe, const char *bytes, size_t n);
tt_status tti_bpe_encode(const tti_bpe *bpe, tti_bpe_work *work, const char *piece, size_t n,
                         tt_ids *ids);
void tti_bpe_work_fini(tti_bpe_work *work);

/* ---- added tokens (tokenizer_added.c) ---- */
typedef struct tti_added_token {
    char *content; /* content[n]; owned */
    size_t n;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} tti_added_token;
typedef struct tti_trie_node {
    int32_t child, sibling; /* -1: none */
    int32_t token;          /* index of the added token that ends here, or -1 */
    unsigned char byte;
} tti_trie_node;
/* A set of strings, searched by their first byte. */
typedef struct tti_trie {
    tti_trie_node *node; /* node[n_nodes] */
    size_t n_nodes, capacity;
    int32_t first[256]; /* node of a first byte, or -1; set by tti_trie_init */
} tti_trie;
void tti_trie_init(tti_trie *trie);
void tti_trie_fini(tti_trie *trie);
tt_status tti_trie_add(tti_trie *trie, const char *bytes, size_t n, int32_t token);

typedef struct tti_added {
    tti_added_token *token; /* token[n] */
    size_t n, capacity;
    int32_t *by_id; /* by_id[n_by_id]: index of the added token, or -1 */
    int32_t n_by_id;
    tti_trie raw;        /* matched in the text as it comes */
    tti_trie normalized; /* matched after the normaliser */
    tti_trie marked; /* matched in template-made text: raw, and the special ones of normalized */
} tti_added;
/* Walks over a text that is cut at added tokens. Set trie, text, n; the rest zero. */
typedef struct tti_added_walk {
    const tti_added *added;
    const tti_trie *trie;
    const char *text; /* text[n] */
    size_t n;
    const unsigned char *
        /* literal[n], or NULL: bytes set here are users' words. Then only special tokens wholly
         * outside count */
        literal;
    bool skip_special; /* special tokens stay text */
    size_t from;       /* the search goes on here */
    size_t done;       /* bytes given out so far */
    const tti_added_token *pending;
    size_t pending_start, pending_end;
} tti_added_walk;
/* The next stretch [start, end): a token, or text if *token_out is NULL. False at the end. */
bool tti_added_next(tti_added_walk *walk, const tti_added_token **token_out, size_t *start_out,
                    size_t *end_out);
tt_status tti_added_build(const tti_vocabulary *v, const tti_normalizer *normalizer,
                          tti_added *out);
void tti_added_fini(tti_added *added);

/* ---- pre-tokeniser (pretokenize.c) ---- */
typedef enum tti_step_kind {
    TTI_STEP_SPLIT,
    TTI_STEP_PREFIX_SPACE,
    TTI_STEP_METASPACE,
    TTI_STEP_BYTE_MAP
} tti_step_kind;
typedef enum tti_behavior {
    TTI_ISOLATED,
    TTI_REMOVED,
    TTI_MERGED_WITH_PREVIOUS,
    TTI_MERGED_WITH_NEXT,
    TTI_CONTIGUOUS
} tti_behavior;
typedef enum tti_prepend { TTI_PREPEND_ALWAYS, TTI_PREPEND_FIRST, TTI_PREPEND_NEVER } tti_prepend;
typedef struct tti_step {
    tti_step_kind kind;
    tti_pattern pattern; /* SPLIT */
    tti_behavior behavior;
    bool invert;
    char *replacement; /* METASPACE: what stands for a space; owned */
    size_t n_replacement;
    tti_prepend prepend;
} tti_step;
/* What ByteLevel splits by when use_regex is true: GPT-2's pattern. */
#define TTI_GPT2_PATTERN                                                                           \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
typedef struct tti_pretokenizer {
    tti_step *step; /* step[n_steps]; each splits or rewrites every piece of the one before */
    size_t n_steps, capacity;
} tti_pretokenizer;
tt_status tti_pretokenizer_load(const char *path, const json_t *json, tti_pretokenizer *out);
/* Appends a split by a pattern of tokenizer.json's dialect, every match and every gap a piece. */
tt_status tti_pretokenizer_add_split(const char *path, tti_pretokenizer *out, const char *regex);
/* What "Digits" with individual_digits does. */
tt_status tti_pretokenizer_add_digits(const char *path, tti_pretokenizer *out);
tt_status tti_pretokenizer_add_byte_map(const char *path, tti_pretokenizer *out);
void tti_pretokenizer_fini(tti_pretokenizer *pretokenizer);
tt_status tti_metaspace_prepend(const char *path, const json_t *json, tti_prepend *out);
/* The printable stand-in of each byte, and back. */
uint32_t tti_byte_to_char(unsigned char byte);
int tti_char_to_byte(uint32_t c); /* -1: none */

/* The memory of one encode call; all-zero but for tokenizer and ids is ready. */
typedef struct tti_encoder {
    const tt_tokenizer *tokenizer;
    tt_ids *ids; /* grows */
    bool literal;
    tti_regex_work regex;
    tti_bpe_work bpe;
    tt_text normal[2];
    tt_text step[TTI_STEPS_MAX]; /* what rewriting step k made of its piece */
    tti_growth growth;           /* of the piece that was given to tti_pretokenize */
} tti_encoder;
/* at_start: the piece begins where the whole text begins. */
tt_status tti_pretokenize(tti_encoder *encoder, const char *text, size_t n, bool at_start);

/* ---- decoder (detokenize.c) ---- */
typedef enum tti_decode_kind {
    TTI_DECODE_BYTE_LEVEL,
    TTI_DECODE_BYTE_FALLBACK,
    TTI_DECODE_FUSE,
    TTI_DECODE_STRIP,
    TTI_DECODE_REPLACE,
    TTI_DECODE_METASPACE
} tti_decode_kind;
typedef struct tti_decode_stage {
    tti_decode_kind kind;
    tti_pattern pattern; /* REPLACE */
    char *
        /* content[n_content]: REPLACE puts it, STRIP cuts it, METASPACE makes it a space; owned */
        content;
    size_t n_content;
    size_t start, stop;  /* STRIP: at most so many characters at either end */
    tti_prepend prepend; /* METASPACE */
} tti_decode_stage;
typedef struct tti_decoder {
    tti_decode_stage *stage; /* stage[n_stages] */
    size_t n_stages, capacity;
    bool
        /* the file has no decoder: tokens are joined by spaces, as the reference library does */
        is_null;
} tti_decoder;
tt_status tti_decoder_load(const char *path, const json_t *json, tti_decoder *out);
/* Appends one stage, which the caller fills. */
tt_status tti_decoder_add(const char *path, tti_decoder *out, tti_decode_kind kind,
                          tti_decode_stage **stage_out);
tt_status tti_decoder_add_replace(const char *path, tti_decoder *out, const char *from,
                                  const char *to);
tt_status tti_decoder_add_strip(const char *path, tti_decoder *out, const char *content,
                                size_t start, size_t stop);
void tti_decoder_fini(tti_decoder *decoder);

/* ---- the whole ---- */
enum { TTI_NAMED_TOKENS = 5 };
extern const char *const tti_named_tokens[TTI_NAMED_TOKENS]; /* "unk_token" .. */
struct tt_tokenizer {
    tti_normalizer normalizer;
    tti_pretokenizer pretokenizer;
    tti_bpe bpe;
    tti_added added;
    tti_decoder decoder;
    tt_ids prefix, suffix; /* what TT_ENCODE_SPECIAL puts around a text */
    int32_t bos_id, eos_id;
    bool wants_bos;              /* prefix holds the BOS token */
    char *bos_token, *eos_token; /* their text; NULL if the files name none; owned */
    /* Text of other special tokens that a chat template may ask for; NULL if unnamed; owned. */
    char *named_token[TTI_NAMED_TOKENS];
    char *chat_template; /* chat_template[n_chat_template], NUL behind; NULL: none; owned */
    size_t n_chat_template;
    char *tool_template; /* tool_template[n_tool_template], for conversations with tools; NULL: the
                          * one above; owned */
    size_t n_tool_template;
    tt_ids stop; /* ids that end a turn, of files that keep them with the tokenizer (GGUF) */
};
/* The readers. Each fills a tokenizer made by tti_tokenizer_new; on error it holds what came so
 * far. `path` names the source in messages; the texts are borrowed for the call. */
tt_status tti_tokenizer_new(tt_tokenizer **tokenizer_out);
/* The files that belong to a path. (tokenizer_load.c) */
tt_status tti_tokenizer_load(const char *path, tt_tokenizer *tokenizer);
/* True if tti_tokenizer_load would find a vocabulary's file. */
tt_status tti_tokenizer_is_there(const char *path, bool *is_there_out);
/* tokenizer.json. (tokenizer_hf.c) */
tt_status tti_tokenizer_from_json(const char *path, const char *text, size_t n,
                                  tt_tokenizer *tokenizer);
/* tokenizer_config.json, after the vocabulary. (tokenizer_config.c) */
tt_status tti_tokenizer_read_config(const char *path, const char *text, size_t n,
                                    tt_tokenizer *tokenizer);
/* tiktoken.model; config, the text of tokenizer_config.json or NULL, names the special tokens.
 * (tokenizer_tiktoken.c) */
tt_status tti_tokenizer_from_tiktoken(const char *path, const char *text, size_t n,
                                      const char *config_path, const char *config, size_t n_config,
                                      tt_tokenizer *tokenizer);
/* The pre-tokeniser and normaliser that tokenizer.ggml.pre names. (tokenizer_splitters.c) */
typedef enum tti_digits {
    TTI_DIGITS_AS_SPLIT = 0,
    TTI_DIGITS_FIRST, /* each digit alone before the splits */
    TTI_DIGITS_LAST   /* or after them */
} tti_digits;
typedef struct tti_splitter {
    const char *name;
    bool ignore_merges, add_bos;
    bool nfc; /* text is normalised first */
    tti_digits digits;
    const char *split[5]; /* unused ones are NULL */
} tti_splitter;
/* NULL: unknown. */
const tti_splitter *tti_splitter_find(const char *name, size_t n);
tt_status tti_splitter_apply(const char *path, const tti_splitter *splitter,
                             tt_tokenizer *tokenizer);
/* Encodes text[n], in which literal[i] = 1 marks the users' words: special tokens are matched
 * only where they lie wholly outside. */
tt_status tti_tokenizer_encode_marked(const tt_tokenizer *tokenizer, const char *text,
                                      const unsigned char *literal, size_t n, tt_ids *ids);

#endif
