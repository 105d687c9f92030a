/* tokenizer.c - a byte-level BPE vocabulary that can encode any text: every byte, and every pair of
 * small letters as a merge. */
#include "make_model.h"
#include <string.h>

/* The character that stands for a byte in byte-level vocabularies: itself where it prints, else
 * 256, 257, ... in order. */
static unsigned byte_character(unsigned byte)
{
    unsigned next = 256;
    for (unsigned b = 0; b < MM_N_BYTES; b++) {
        bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte) {
            return prints ? b : next;
        }
        next += prints ? 0 : 1;
    }
    return 0;
}

void mm_token_text(int64_t id, char *text)
{
    static const char *const special[] = {"<|begin_of_text|>", "<|end_of_text|>"};
    if (id < MM_N_BYTES) {
        unsigned u = byte_character((unsigned)id);
        if (u < 0x80) {
            text[0] = (char)u;
            text[1] = 0;
        } else {
            text[0] = (char)(0xc0 | u >> 6);
            text[1] = (char)(0x80 | (u & 0x3f));
            text[2] = 0;
        }
    } else if (id < MM_BOS) {
        int64_t pair = id - MM_N_BYTES;
        text[0] = (char)('a' + pair / MM_N_LETTERS);
        text[1] = (char)('a' + pair % MM_N_LETTERS);
        text[2] = 0;
    } else if (id < MM_N_TOKENS) {
        strcpy(text, special[id - MM_BOS]);
    } else {
        snprintf(text, 32, "<|unused_%" PRId64 "|>", id - MM_N_TOKENS);
    }
}

void mm_write_tokenizer_json(const mm_model *model)
{
    mm_out out;
    char text[32];
    mm_out_open(&out, model->path, "tokenizer.json");
    mm_out_print(
        &out, "{\n\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[");
    for (int64_t id = MM_BOS; id <= MM_EOS; id++) {
        mm_token_text(id, text);
        mm_out_print(&out,
                     "%s\n{\"id\":%" PRId64
                     ",\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                     "\"normalized\":false,\"special\":true}",
                     id > MM_BOS ? "," : "", id, text);
    }
    mm_out_print(
        &out,
        "],\n\"normalizer\":null,\n\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
        "\"use_regex\":true},\n\"post_processor\":null,\n\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
        "\"trim_offsets\":true,\"use_regex\":true},\n\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\n"
        "\"merges\":[");
    for (int i = 0; i < MM_N_PAIRS; i++) {
        mm_out_print(&out, "%s\"%c %c\"", i ? "," : "", 'a' + i / MM_N_LETTERS,
                     'a' + i % MM_N_LETTERS);
    }
    mm_out_print(&out, "],\n\"vocab\":{");
    for (int64_t id = 0; id < MM_BOS; id++) {
        mm_token_text(id, text);
        bool escape = text[0] == '"' || text[0] == '\\';
        mm_out_print(&out, "%s\"%s%s\":%" PRId64, id ? "," : "", escape ? "\\" : "", text, id);
    }
    mm_out_print(&out, "}}\n}\n");
    mm_out_close(&out);
}
