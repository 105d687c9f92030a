/* fuzz_tokenizer.c - tokenizer.json, tiktoken.model and tokenizer_config.json, and a text that the
 * tokenizer of them is tried on.
 *
 * Bound on memory: 8 MiB + 512 n + 2048 t, t bytes being the text. JSON takes up to 48 bytes of
 * tree per byte of text. A vocabulary's ids may leave gaps in proportion to its tokens
 * (tti_vocabulary_id_limit); PCRE2 code is at most some ten bytes per byte of a pattern, of which
 * repetitions make copies up to its own limit of 64 KiB. Steps and stages may make 32 times a text
 * of it (TTI_GROWTH), which has its symbols, heap and ids: some 50 bytes per byte, half of them
 * while an array grows. Fixed: PCRE2's match data and stacks, the small tables of an empty
 * vocabulary. */
#include "fuzz.h"
#include "tokenizer_internal.h"
#include "tutti/log.h"
#include <stdlib.h>
#include <string.h>

enum { PART_JSON, PART_TIKTOKEN, PART_CONFIG, PART_TEXT, PARTS };
static const char *const names[PARTS] = {"tokenizer.json", "tiktoken.model",
                                         "tokenizer_config.json", "text"};
enum { FIXED_BYTES = 8 << 20, FACTOR = 512, TEXT_FACTOR = 2048, MAX_IDS = 4096 };
static const char default_text[] =
    "Hello  world, 12345 don't!\n\tna\xc3\xafve \xe4\xb8\xad\xe6\x96\x87 <|end|> e\xcc\x81 \xf0\x9f\x98\x80\xff";

/* Ids to text at once and piece by piece, which must agree. */
static void decode(const tt_tokenizer *t, const int32_t *id, size_t n, bool skip_special)
{
    tt_text whole = {0}, pieces = {0};
    tt_detokenizer *d = NULL;
    tt_status st = tt_tokenizer_decode(t, id, n, skip_special, &whole);
    FUZZ_MUST(st == TT_OK || whole.n == 0);
    if (st == TT_OK && tt_detokenizer_create(t, skip_special, &d) == TT_OK) {
        for (size_t i = 0; st == TT_OK && i < n; i++) {
            st = tt_detokenizer_push(d, id[i], &pieces);
        }
        st = st == TT_OK ? tt_detokenizer_flush(d, &pieces) : st;
        FUZZ_MUST(st == TT_OK);
        FUZZ_MUST(whole.n == pieces.n &&
                  (whole.n == 0 || memcmp(whole.bytes, pieces.bytes, whole.n) == 0));
        FUZZ_MUST(tti_utf8_valid_prefix(whole.bytes ? whole.bytes : "", whole.n) == whole.n);
    }
    tt_detokenizer_destroy(&d);
    tt_text_fini(&whole);
    tt_text_fini(&pieces);
}

static void use(const tt_tokenizer *t, const char *text, size_t n)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        tt_ids ids = {0};
        if (tt_tokenizer_encode(t, text, n, flags, &ids) == TT_OK) {
            for (size_t i = 0; i < ids.n; i++) {
                FUZZ_MUST(tt_tokenizer_id_is_known(t, ids.id[i]));
            }
            decode(t, ids.id, ids.n, flags & 1);
        } else {
            FUZZ_MUST(ids.n == 0);
        }
        tt_ids_fini(&ids);
    }
    int32_t n_ids = tt_tokenizer_n_ids(t);
    for (int32_t id = 0; id < n_ids && id < MAX_IDS; id++) {
        size_t n_bytes;
        const char *bytes = tt_tokenizer_id_bytes(t, id, &n_bytes);
        FUZZ_MUST(!bytes == !tt_tokenizer_id_is_known(t, id));
        (void)tt_tokenizer_id_is_special(t, id);
        if (bytes) {
            decode(t, &id, 1, false);
        }
    }
}

static tt_status load(const fuzz_part part[PARTS], tt_tokenizer *t)
{
    char *text = fuzz_text(part[PART_TIKTOKEN].data ? &part[PART_TIKTOKEN] : &part[PART_JSON]);
    char *config = part[PART_CONFIG].data ? fuzz_text(&part[PART_CONFIG]) : NULL;
    tt_status st =
        part[PART_TIKTOKEN].data
            ? tti_tokenizer_from_tiktoken(names[PART_TIKTOKEN], text, part[PART_TIKTOKEN].n,
                                          names[PART_CONFIG], config, part[PART_CONFIG].n, t)
            : tti_tokenizer_from_json(names[PART_JSON], text, part[PART_JSON].n, t);
    if (st == TT_OK && config) {
        st = tti_tokenizer_read_config(names[PART_CONFIG], config, part[PART_CONFIG].n, t);
    }
    free(config);
    free(text);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_part part[PARTS];
    fuzz_split(data, n, names, PARTS, part);
    if (!part[PART_TEXT].data) {
        part[PART_TEXT] = (fuzz_part){(const uint8_t *)default_text, sizeof(default_text) - 1};
    }
    tt_log_set_level(TT_LOG_ERROR);
    fuzz_memory_begin(FIXED_BYTES + TEXT_FACTOR * part[PART_TEXT].n, FACTOR, n);
    tt_tokenizer *t = NULL;
    if (tti_tokenizer_new(&t) == TT_OK && load(part, t) == TT_OK) {
        char *text = fuzz_text(&part[PART_TEXT]);
        use(t, text, part[PART_TEXT].n);
        free(text);
    }
    tt_tokenizer_destroy(&t);
    fuzz_memory_end();
    return 0;
}
