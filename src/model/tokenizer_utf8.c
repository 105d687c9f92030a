/* tokenizer_utf8.c - UTF-8 as the reference library sees it: what is broken becomes U+FFFD, once
 * for each longest start of a character that cannot go on; and the few character classes that the
 * added-token matcher and splitters ask for. */
#include "tokenizer_internal.h"
#include <string.h>
#include <utf8proc.h>

enum {
    CONTINUATION_LOW = 0x80,
    CONTINUATION_HIGH = 0xbf,
    ASCII_WORD_BYTES = 8,
    ZERO_WIDTH_NON_JOINER = 0x200c,
    ZERO_WIDTH_JOINER = 0x200d
};

/* Continuation bytes that a lead byte asks for, and the range of the first of them (Unicode 15,
 * table 3-7); 0: no lead. */
static unsigned lead_needs(unsigned char lead, unsigned char *low_out, unsigned char *high_out)
{
    *low_out = CONTINUATION_LOW;
    *high_out = CONTINUATION_HIGH;
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 1;
    }
    if (lead >= 0xe0 && lead <= 0xef) {
        if (lead == 0xe0) {
            *low_out = 0xa0;
        } else if (lead == 0xed) {
            *high_out = 0x9f; /* no surrogates */
        }
        return 2;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        if (lead == 0xf0) {
            *low_out = 0x90;
        } else if (lead == 0xf4) {
            *high_out = 0x8f; /* nothing above U+10FFFF */
        }
        return 3;
    }
    return 0;
}

size_t tti_utf8_next(const char *s, size_t n, bool *valid_out, bool *cut_out)
{
    const unsigned char *u = (const unsigned char *)s;
    *valid_out = true;
    *cut_out = false;
    if (u[0] < CONTINUATION_LOW) {
        return 1;
    }
    unsigned char low, high;
    unsigned need = lead_needs(u[0], &low, &high);
    if (need == 0) {
        *valid_out = false;
        return 1;
    }
    for (unsigned i = 1; i <= need; i++) {
        if (i >= n || u[i] < low || u[i] > high) {
            *valid_out = false;
            *cut_out = i >= n;
            return i;
        }
        low = CONTINUATION_LOW;
        high = CONTINUATION_HIGH;
    }
    return 1 + (size_t)need;
}

size_t tti_utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t word;
        if (n - i >= ASCII_WORD_BYTES) {
            memcpy(&word, s + i, sizeof(word));
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                i += ASCII_WORD_BYTES;
                continue;
            }
        }
        bool valid, cut;
        size_t step = tti_utf8_next(s + i, n - i, &valid, &cut);
        if (!valid) {
            return i;
        }
        i += step;
    }
    return i;
}

tt_status tti_utf8_append_lossy(tt_text *text, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t good = tti_utf8_valid_prefix(s + i, n - i);
        TT_TRY(tt_text_append(text, s + i, good));
        i += good;
        if (i < n) {
            bool valid, cut;
            i += tti_utf8_next(s + i, n - i, &valid, &cut);
            TT_TRY(tt_text_append(text, TTI_REPLACEMENT, TTI_REPLACEMENT_BYTES));
        }
    }
    return TT_OK;
}

uint32_t tti_utf8_decode(const char *s, size_t *n_out)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *n_out = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *n_out = 2;
        return (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    }
    if (u[0] < 0xf0) {
        *n_out = 3;
        return (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    }
    *n_out = 4;
    return (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 |
           (uint32_t)(u[2] & 0x3f) << 6 | (u[3] & 0x3f);
}

size_t tti_utf8_encode(uint32_t c, char out[TTI_UTF8_MAX])
{
    unsigned char *u = (unsigned char *)out;
    if (c < 0x80) {
        u[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        u[0] = (unsigned char)(0xc0 | c >> 6);
        u[1] = (unsigned char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        u[0] = (unsigned char)(0xe0 | c >> 12);
        u[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
        u[2] = (unsigned char)(0x80 | (c & 0x3f));
        return 3;
    }
    u[0] = (unsigned char)(0xf0 | c >> 18);
    u[1] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
    u[2] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    u[3] = (unsigned char)(0x80 | (c & 0x3f));
    return 4;
}

/* Source: Unicode PropList.txt, White_Space. */
bool tti_char_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool tti_char_is_numeric(uint32_t c)
{
    if (c < CONTINUATION_LOW) {
        return c >= '0' && c <= '9';
    }
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_NO;
}

bool tti_char_is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        /* The alphabetic symbols (circled and squared letters), and the joiners. */
        return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
               (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) ||
               c == ZERO_WIDTH_NON_JOINER || c == ZERO_WIDTH_JOINER;
    }
}
