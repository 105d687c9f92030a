/* act8_avx512.h - what the AVX-512 versions of products with int8 rows share: a panel goes through
 * in blocks of segments, whose scales and codes are made ready once for all rows. Codes become
 * bytes in quads of k, unsigned (with their bias) or signed, whichever the ISA's products take. */
#ifndef TUTTI_TTK_ACT8_AVX512_H
#define TUTTI_TTK_ACT8_AVX512_H
#include "quant_avx512.h"
#include "act8_blocks.h"

enum {
    GROUP_ROWS = 64, /* rows whose sums wait together: 8 KiB */
    FILL_ROWS = 1    /* memory must be asked all the time: while a block is made ready, for about
                      * as much as while so many rows go through it */
};

/* Bytes of a segment to be fetched ahead while a block is made ready for M rows; the rest while
 * they go through it. */
static inline size_t fill_bytes(const job *w, int64_t M)
{
    return w->segment_bytes * FILL_ROWS / (size_t)(FILL_ROWS + (M < GROUP_ROWS ? M : GROUP_ROWS));
}

TTK_INLINE void fetch(const unsigned char *from, size_t bytes)
{
    for (size_t line = 0; line < bytes; line += TTK_LINE_BYTES) {
        _mm_prefetch((const char *)from + line, _MM_HINT_T1);
    }
}

/* By what the number of a code is larger than its unsigned byte. */
TTK_INLINE float code_lift(ttk_dtype code)
{
    switch (code) {
    case TTK_I8:
        return -128.0f;
    case TTK_I4:
        return -8.0f;
    case TTK_I6:
        return -32.0f;
    case TTK_E2M1:
        return -12.0f;
    default:
        return 0.0f;
    }
}

/* Whether the packed codes are the bytes wanted. */
TTK_INLINE bool are_bytes(bool is_signed, ttk_dtype code)
{
    return code == TTK_U8 || (code == TTK_I8 && is_signed);
}

/* Bytes of the codes, while some of what comes next is fetched. */
TTK_INLINE void fill_code(ttk_dtype code, bool is_signed, const job *w, const block_places *at,
                          size_t ahead, block *b)
{
    for (int s = 0; s < b->n; s++) {
        fetch(b->ahead[s], ahead);
        b->codes[s] = at->codes[s];
        const int64_t n_k = s + 1 < b->n ? w->segment : at->last_n_k;
        if (!are_bytes(is_signed, code) || n_k < w->segment) {
            b->codes[s] = b->bytes[s];
            unpack_code(code, is_signed ? WAY_WHOLE : WAY_ZERO, b->bytes[s], at->codes[s], n_k,
                        w->segment);
        }
    }
}

TTK_INLINE void fill_codes(bool is_signed, const job *w, const block_places *at, size_t ahead,
                           block *b)
{
    switch (w->format->code) {
    case TTK_I8:
        fill_code(TTK_I8, is_signed, w, at, ahead, b);
        break;
    case TTK_U8:
        fill_code(TTK_U8, is_signed, w, at, ahead, b);
        break;
    case TTK_I4:
        fill_code(TTK_I4, is_signed, w, at, ahead, b);
        break;
    case TTK_U4:
        fill_code(TTK_U4, is_signed, w, at, ahead, b);
        break;
    case TTK_I6:
        fill_code(TTK_I6, is_signed, w, at, ahead, b);
        break;
    default:
        fill_code(TTK_E2M1, is_signed, w, at, ahead, b);
        break;
    }
}

/* The next segments of a panel, while so many bytes of each that follows are fetched. */
TTK_INLINE void fill_block(bool is_signed, const job *w, walk *from, size_t ahead, block *b)
{
    block_places at;
    find_segments(w, from, b, &at);
    fill_factors(w, &at, b);
    fill_codes(is_signed, w, &at, ahead, b);
}

#endif
