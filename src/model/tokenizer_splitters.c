/* tokenizer_splitters.c - how text is cut before BPE, for files that only name the way.
 *
 * A GGUF file holds a name (tokenizer.ggml.pre) where a tokenizer.json holds normaliser and
 * pre-tokeniser. The table gives each name the components of the model family's tokenizer.json,
 * so both kinds of file give the same ids. tiktoken files do not even hold a name; Kimi-K2's is
 * the one that is published. Patterns are written in tokenizer.json's dialect. Unknown names are
 * refused: a wrong splitter gives plausible text and wrong ids. */
#include "tokenizer_internal.h"
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(digits)                                                                             \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| "                                     \
                 "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define LLAMA3 CL100K("\\p{N}{1,3}")
#define QWEN2 CL100K("\\p{N}")
/* Words of one case pattern; letter(set) stands for one letter of a set. */
#define WORDS(letter)                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?" letter("\\p{Lu}\\p{Lt}") "*" letter(                                  \
        "\\p{Ll}") "+" CONTRACTIONS                                                                \
                   "?|[^\\r\\n\\p{L}\\p{N}]?" letter("\\p{Lu}\\p{Lt}") "+" letter(                 \
                       "\\p{Ll}") "*" CONTRACTIONS "?"
#define ANY_LETTER(own) "[" own "\\p{Lm}\\p{Lo}\\p{M}]"
#define LETTER_BUT_HAN(own) "[" own "\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define O200K WORDS(ANY_LETTER) "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define KIMI_K2                                                                                    \
    "[\\p{Han}]+|" WORDS(LETTER_BUT_HAN) "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define DEEPSEEK_V3                                                                                \
    "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",                 \
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"                                    \
        "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES
#define CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
/* DeepSeek-V2's list of letters that have a case, as of the Unicode version it was made with. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"         \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                  \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                       \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                 \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"                 \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}"                 \
    "\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}"         \
    "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"                           \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"                 \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"          \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"                  \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"         \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}"                  \
    "\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                 \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"                 \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"         \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

static const tti_splitter table[] = {
    /* GPT-NeoX's vocabulary and its descendants */
    {.name = "olmo", .nfc = true, .split = {TTI_GPT2_PATTERN}},
    {.name = "gpt-2", .split = {TTI_GPT2_PATTERN}},
    /* StarCoder's, Granite among them: GPT-2's with single digits */
    {.name = "refact", .digits = TTI_DIGITS_FIRST, .split = {TTI_GPT2_PATTERN}},
    {.name = "starcoder", .digits = TTI_DIGITS_FIRST, .split = {TTI_GPT2_PATTERN}},
    {.name = "llama-bpe", .ignore_merges = true, .add_bos = true, .split = {LLAMA3}},
    {.name = "llama3", .ignore_merges = true, .add_bos = true, .split = {LLAMA3}},
    {.name = "llama-v3", .ignore_merges = true, .add_bos = true, .split = {LLAMA3}},
    {.name = "dbrx", .split = {LLAMA3}},
    {.name = "glm4", .split = {LLAMA3}},
    {.name = "chatglm-bpe", .split = {LLAMA3}},
    {.name = "qwen2", .nfc = true, .split = {QWEN2}},
    {.name = "hunyuan", .split = {QWEN2}},
    {.name = "grok-2", .split = {QWEN2}},
    {.name = "gpt-4o", .split = {O200K}},
    {.name = "llama4", .split = {O200K}},
    {.name = "minimax-m2", .split = {O200K}},
    {.name = "deepseek-v3", .split = {DEEPSEEK_V3}},
    {.name = "hunyuan-dense", .split = {DEEPSEEK_V3}},
    {.name = "deepseek-llm",
     .digits = TTI_DIGITS_LAST,
     .split = {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
               "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
               "\\x{3000}-\\x{3002}]+",
               "\\s+$", CJK}},
    {.name = "deepseek-coder",
     .digits = TTI_DIGITS_LAST,
     .split = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK}},
    /* A tiktoken vocabulary: a piece that is a token is that token. */
    {.name = "kimi-k2", .ignore_merges = true, .split = {KIMI_K2}},
};

const tti_splitter *tti_splitter_find(const char *name, size_t n)
{
    for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
        if (strlen(table[k].name) == n && memcmp(table[k].name, name, n) == 0) {
            return &table[k];
        }
    }
    return NULL;
}

tt_status tti_splitter_apply(const char *path, const tti_splitter *splitter,
                             tt_tokenizer *tokenizer)
{
    enum { N_SPLITS = sizeof(splitter->split) / sizeof(splitter->split[0]) };
    tti_pretokenizer *out = &tokenizer->pretokenizer;
    if (splitter->nfc) {
        tti_normalize_op *op;
        TT_TRY(tti_normalizer_add(path, &tokenizer->normalizer, TTI_NORMALIZE_NFC, &op));
    }
    if (splitter->digits == TTI_DIGITS_FIRST) {
        TT_TRY(tti_pretokenizer_add_digits(path, out));
    }
    for (size_t k = 0; k < N_SPLITS && splitter->split[k]; k++) {
        TT_TRY(tti_pretokenizer_add_split(path, out, splitter->split[k]));
    }
    if (splitter->digits == TTI_DIGITS_LAST) {
        TT_TRY(tti_pretokenizer_add_digits(path, out));
    }
    TT_TRY(tti_pretokenizer_add_byte_map(path, out));
    tti_decode_stage *stage;
    return tti_decoder_add(path, &tokenizer->decoder, TTI_DECODE_BYTE_LEVEL, &stage);
}
