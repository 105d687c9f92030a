/* fuzz_gguf.c - GGUF files: the container from a buffer, whole or growing, each key read in every
 * way; then the whole open of the model and of the tokenizer that it describes, of one file or of
 * two parts.
 *
 * Bound on memory: 8 MiB + 192 n. The header's arrays take below 16 bytes per byte of the header,
 * its buffer grows by doubling; a vocabulary's token takes at least 9 bytes of the file (length and
 * type) and 16 bytes as a string, some 60 in the tables, twice while they grow, and its merges as
 * much; a tensor of 40 bytes and more takes an entry and a name in the table of tensors, a role and
 * an expert. Fixed: tables of inverse frequencies and of layers, the tokenizer's small tables. */
#include "fuzz.h"
#include "gguf.h"
#include "tutti/log.h"
#include "tutti/tokenizer.h"
#include <stdlib.h>
#include <string.h>

enum { PART_WHOLE, PART_FIRST, PART_SECOND, PARTS };
static const char *const names[PARTS] = {"model.gguf", "model-00001-of-00002.gguf",
                                         "model-00002-of-00002.gguf"};
enum { FIXED_BYTES = 8 << 20, FACTOR = 192, MAX_ELEMENTS = 64 };

static void look_at_key(const tti_gguf_key *key)
{
    tti_gguf_string text;
    bool flag;
    (void)tti_gguf_show(key->name);
    (void)tti_gguf_text(key, &text);
    (void)tti_gguf_bool(key, &flag);
    for (uint64_t i = 0; i < key->n && i < MAX_ELEMENTS; i++) {
        int64_t integer;
        double real;
        (void)tti_gguf_int(key, i, &integer);
        (void)tti_gguf_real(key, i, &real);
    }
    if (key->type == TTI_GGUF_STRING && key->is_array && key->n > 0) {
        tti_gguf_string *texts = malloc((size_t)key->n * sizeof(*texts));
        FUZZ_MUST(texts && tti_gguf_texts(key, texts));
        uint64_t sum = 0;
        for (uint64_t i = 0; i < key->n; i++) {
            sum += texts[i].n;
        }
        FUZZ_MUST(sum <= key->n_bytes);
        free(texts);
    }
}

static void read_container(const uint8_t *data, size_t n)
{
    tti_gguf gguf = {0};
    bool is_short;
    tt_status st = tti_gguf_parse("model.gguf", data, n / 2, n, &gguf, &is_short);
    if (st == TT_OK && !is_short) {
        tti_gguf_fini(&gguf);
    }
    if (tti_gguf_parse("model.gguf", data, n, n, &gguf, &is_short) != TT_OK) {
        return;
    }
    FUZZ_MUST(!is_short);
    for (size_t i = 0; i < gguf.n_keys; i++) {
        look_at_key(&gguf.key[i]);
    }
    for (size_t i = 0; i < gguf.n_tensors; i++) {
        const tti_gguf_tensor *tensor = &gguf.tensor[i];
        FUZZ_MUST(tensor->offset >= gguf.data_offset && tensor->bytes <= n &&
                  tensor->offset <= n - tensor->bytes);
    }
    tti_gguf_fini(&gguf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_part part[PARTS];
    fuzz_split(data, n, names, PARTS, part);
    for (int k = 0; k < PARTS; k++) {
        fuzz_write(names[k], &part[k]);
    }
    tt_log_set_level(TT_LOG_ERROR);
    fuzz_memory_begin(FIXED_BYTES, FACTOR, n);
    int first = part[PART_FIRST].data ? PART_FIRST : PART_WHOLE;
    if (part[first].data) {
        read_container(part[first].data, part[first].n);
        char *path = fuzz_text(&(fuzz_part){(const uint8_t *)fuzz_path(names[first]),
                                            strlen(fuzz_path(names[first]))});
        fuzz_open_model(path);
        tt_tokenizer *tokenizer = NULL;
        if (tt_tokenizer_create(path, &tokenizer) == TT_OK) {
            static const char text[] = "Hello world, 12345! \xc3\xa9\xff";
            tt_ids ids = {0};
            if (tt_tokenizer_encode(tokenizer, text, sizeof(text) - 1, TT_ENCODE_SPECIAL, &ids) ==
                TT_OK) {
                tt_text back = {0};
                (void)tt_tokenizer_decode(tokenizer, ids.id, ids.n, false, &back);
                tt_text_fini(&back);
            }
            tt_ids_fini(&ids);
            tt_tokenizer_destroy(&tokenizer);
        }
        free(path);
    }
    fuzz_memory_end();
    return 0;
}
