/* gemm_act8_avx2.c - product of int8 rows with packed quantised weights.
 *
 * A quad of codes (4 k of 8 outputs) and the same 4 k of a row, repeated, give 16 sums of two
 * products by vpmaddubsw, whose first operand is unsigned. Nibbles, six bits and E2M1 are taken
 * without their bias; the sums begin with what puts that right, the bias times the sum of the row's
 * codes. 8 sums of nibbles, or 2 of the others, fit in 16 bits. Signed bytes give their size, and
 * their sign to the row. All of this is exact, so it has the bits of any other order. Tiles of up
 * to 4 rows go through a block of segments straight from the packed codes, or, where many rows
 * share what unpacking costs, from bytes that were made of them. */
#include "quant_avx2.h"
#include "act8_blocks.h"
#include "ttk_versions.h"

enum {
    TILE_ROWS = 4,   /* by 2 registers: 8 sums, 4 quads of rows, 2 of weights */
    GROUP_ROWS = 32, /* rows whose sums wait together: 4 KiB */
    UNPACK_ROWS = 13 /* from here on codes are unpacked once for all rows */
};

/* Keeps the compiler from carrying anything but the sums in registers from segment to segment. */
#define LET_GO() __asm__ volatile("" ::: "memory")

/* What the products of codes need. */
typedef enum code_form {
    FORM_NIBBLE, /* unsigned, below 16 */
    FORM_SMALL,  /* unsigned, below 64 */
    FORM_SIGNED
} code_form;

TTK_INLINE code_form form_of(ttk_dtype code)
{
    return code == TTK_I4 || code == TTK_U4   ? FORM_NIBBLE
           : code == TTK_I8 || code == TTK_U8 ? FORM_SIGNED
                                              : FORM_SMALL;
}

/* By what the number of a code is larger than the byte that the products take for it. */
TTK_INLINE int code_lift(ttk_dtype code)
{
    return code == TTK_U8     ? 128
           : code == TTK_I4   ? -8
           : code == TTK_I6   ? -32
           : code == TTK_E2M1 ? -12
                              : 0;
}

/* How codes are taken: straight from where they lie, all segments being full; or from bytes of
 * their form. */
typedef enum source { PACKED, UNPACKED } source;

/* What a row brings to each segment of a block. */
typedef struct row_factors {
    float scale[BLOCK_SEGMENTS];
    float shift[BLOCK_SEGMENTS];   /* the sum of its codes, times the scale for offsets */
    int32_t begin[BLOCK_SEGMENTS]; /* of its sums: in 32 bits, or for nibbles in twice 16 */
    const int8_t *code;            /* the first input of the block */
} row_factors;

TTK_INLINE void load_row_factors(code_form form, act8_kind kind, const job *w, const block *b,
                                 int64_t m, row_factors *f)
{
    const ttk_act8_row row = ttk_act8_row_at(w->rows, w->stride, m, w->shape.K);
    const float *from = row.scale + b->at / TTK_ACT_GROUP;
    const __m256i mask = vec_mask(b->n);
    const int lift = code_lift(w->format->code);
    __m256 scale;
    if (w->segment == TTK_ACT_GROUP) {
        scale = _mm256_maskload_ps(from, mask);
    } else { /* two segments each */
        scale = _mm256_permutevar8x32_ps(_mm256_maskload_ps(from, vec_mask((b->n + 1) / 2)),
                                         _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    }
    const __m256 sum =
        _mm256_maskload_ps(ttk_act8_sums(row, w->segment) + segment_at(w, b->at), mask);
    __m256i begin = _mm256_mullo_epi32(_mm256_cvtps_epi32(sum),
                                       _mm256_set1_epi32(form == FORM_NIBBLE ? lift / 2 : lift));
    if (form ==
        FORM_NIBBLE) { /* half of it each; as codes are below 16 and 8 pairs of them are added,
                        * both end within 16 bits */
        begin = _mm256_or_si256(_mm256_slli_epi32(begin, 16),
                                _mm256_and_si256(begin, _mm256_set1_epi32(0xffff)));
    }
    f->code = row.code + b->at;
    _mm256_storeu_ps(f->scale, scale);
    _mm256_storeu_ps(f->shift, kind == KIND_OFFSET ? _mm256_mul_ps(scale, sum) : sum);
    _mm256_storeu_si256((__m256i *)(void *)f->begin, begin);
}

/* Register h of quad q of a segment, in the code's form. */
TTK_INLINE __m256i quad_codes(ttk_dtype code, source from, const unsigned char *codes, int q, int h)
{
    if (from == UNPACKED) {
        return quad_bytes(TTK_I8, WAY_WHOLE, codes + q * TTK_PLANE_BYTES, 0, h);
    }
    const int unit = (int)ttk_quant_unit(code), quads = unit / QUAD;
    codes += q / quads * (int)ttk_quant_code_bytes(code, unit);
    return quad_bytes(code == TTK_U8 ? TTK_I8 : code, code == TTK_I8 ? WAY_WHOLE : WAY_ZERO, codes,
                      q % quads, h);
}

/* sum += products with a row's quad, 16 bits each. In place: the compiler would move registers
 * about, and the number of instructions is what limits these loops. */
TTK_INLINE void add_nibbles(__m256i *sum, __m256i w, __m256i x)
{
    __m256i p;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(*sum), "=&x"(p) : "x"(w), "x"(x));
}

/* The same in 32 bits, of signed bytes of this size. */
TTK_INLINE void add_signed(__m256i *sum, __m256i w, __m256i size, __m256i x, __m256i ones)
{
    __m256i p;
    __asm__(
        "vpsignb %2, %4, %1\n\tvpmaddubsw %1, %3, %1\n\tvpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
        : "+x"(*sum), "=&x"(p)
        : "xm"(w), "x"(size), "x"(x), "x"(ones));
}

/* The same of two quads of unsigned bytes below 64. */
TTK_INLINE void add_small(__m256i *sum, const __m256i *w, const __m256i *x, __m256i ones)
{
    const __m256i p =
        _mm256_add_epi16(_mm256_maddubs_epi16(w[0], x[0]), _mm256_maddubs_epi16(w[1], x[1]));
    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(p, ones));
}

/* What a tile asks for at each segment: the next block, in the order of memory, which the CPU's own
 * guesses then follow. */
typedef struct stream {
    const unsigned char *at;
    size_t step; /* bytes */
} stream;

/* Lines that `vecs` registers of a quad's codes take; of unpacked ones those that their form has
 * where it is packed. */
TTK_INLINE int quad_lines(ttk_dtype code, int vecs)
{
    const int unit = (int)ttk_quant_unit(code),
              bytes = (int)ttk_quant_code_bytes(code, unit) * QUAD / unit * vecs / BLOCKS;
    return (bytes + TTK_LINE_BYTES - 1) / TTK_LINE_BYTES;
}

TTK_INLINE void fetch_line(const unsigned char *at)
{
    _mm_prefetch((const char *)at, _MM_HINT_T0);
}

/* `stride` bytes from each to the next. */
TTK_INLINE void fetch_lines(const unsigned char *at, size_t stride, int n_lines)
{
    TTK_UNROLL
    for (int i = 0; i < n_lines; i++) {
        fetch_line(at + (size_t)i * stride);
    }
}

/* sum[rows * vecs] += those of one segment from register j of the panel on. Lines of the stream are
 * asked for one after the other while products are at work: requests that come all at once wait for
 * room among the misses of the L1 cache. */
TTK_INLINE void segment_sums(code_form form, ttk_dtype code, source from, __m256i *sum,
                             const unsigned char *codes, const int8_t *const *x, int quads, int j,
                             int rows, int vecs, const unsigned char *ahead, size_t stride)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const int pair = form == FORM_SMALL ? 2 : 1, n_lines = quad_lines(code, vecs) * pair;
    TTK_UNROLL
    for (int q = 0; q < quads; q += pair) {
        __m256i w[BLOCKS][2];
        fetch_lines(ahead, stride, n_lines);
        ahead += (size_t)n_lines * stride;
        TTK_UNROLL
        for (int i = 0; i < vecs * pair; i++) {
            w[i / pair][i % pair] = quad_codes(code, from, codes, q + i % pair, j + i / pair);
        }
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            __m256i x_q[2];
            TTK_UNROLL
            for (int i = 0; i < pair; i++) {
                int32_t four;
                memcpy(&four, x[r] + (q + i) * QUAD, sizeof(four));
                x_q[i] = _mm256_set1_epi32(four);
            }
            TTK_UNROLL
            for (int h = 0; h < vecs; h++) {
                if (form == FORM_NIBBLE) {
                    add_nibbles(&sum[r * vecs + h], w[h][0], x_q[0]);
                } else if (form == FORM_SIGNED) {
                    add_signed(&sum[r * vecs + h], w[h][0], _mm256_abs_epi8(w[h][0]), x_q[0], ones);
                } else {
                    add_small(&sum[r * vecs + h], w[h], x_q, ones);
                }
            }
        }
    }
}

/* `rows` rows by `vecs` registers from register j of the panel on, through a block. */
TTK_INLINE void tile(code_form form, ttk_dtype code, source from, act8_kind kind, const block *b,
                     const row_factors *f, float (*acc)[TTK_PANEL], int quads, int j, int rows,
                     int vecs, stream *ahead)
{
    const int n_asks = quads * quad_lines(code, vecs);
    const size_t stride = ahead->step > (size_t)(n_asks * TTK_LINE_BYTES)
                              ? TTK_LINE_BYTES
                              : (ahead->step + (size_t)n_asks - 1) / (size_t)n_asks;
    stream next = *ahead;
    const int8_t *x[TILE_ROWS];
    TTK_UNROLL
    for (int r = 0; r < rows; r++) {
        x[r] = f[r].code;
    }
    for (int s = 0; s < b->n; s++) {
        __m256i sum[2 * BLOCKS];
        LET_GO();
        TTK_UNROLL
        for (int i = 0; i < rows * vecs; i++) {
            sum[i] = _mm256_set1_epi32(f[i / vecs].begin[s]);
        }
        segment_sums(form, code, from, sum, b->codes[s], x, quads, j, rows, vecs, next.at, stride);
        fetch_line(next.at + (size_t)n_asks * stride); /* where scales make a step longer than
                                                        * its codes */
        next.at += next.step;
        TTK_UNROLL
        for (int r = 0; r < rows; r++) {
            const __m256 x_scale = _mm256_broadcast_ss(&f[r].scale[s]),
                         x_shift = _mm256_broadcast_ss(&f[r].shift[s]);
            x[r] += quads * QUAD;
            TTK_UNROLL
            for (int h = 0; h < vecs; h++) {
                const int column = (j + h) * VEC;
                __m256i d = sum[r * vecs + h];
                d = form == FORM_NIBBLE ? _mm256_madd_epi16(d, _mm256_set1_epi16(1)) : d;
                __m256 y = _mm256_cvtepi32_ps(d);
                if (kind == KIND_ZERO) { /* exact */
                    y = _mm256_fnmadd_ps(_mm256_load_ps(&b->shift[s][column]), x_shift, y);
                }
                __m256 a =
                    _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(&b->scale[s][column]), x_scale), y,
                                    _mm256_load_ps(&acc[r][column]));
                if (kind == KIND_OFFSET) {
                    a = _mm256_fmadd_ps(_mm256_load_ps(&b->shift[s][column]), x_shift, a);
                }
                _mm256_store_ps(&acc[r][column], a);
            }
        }
    }
    *ahead = next;
}

/* Registers that a tile of so many rows of M is wide. Signed bytes for one row or two come from
 * memory faster if they are gone through twice (102 for 108 and 97 for 109 ns of 1024 weights,
 * while reading alone took 87); two rows beside others find them in the cache. */
TTK_INLINE int tile_vecs(code_form form, int64_t rows, int64_t M)
{
    return rows > 2 || (M <= 2 && form == FORM_SIGNED) ? 2 : BLOCKS;
}

/* `rows` rows of acc, from m on. */
TTK_INLINE void tiles(ttk_dtype code, source from, act8_kind kind, const job *w, const block *b,
                      float (*acc)[TTK_PANEL], int quads, int64_t m, int rows, int vecs,
                      stream *ahead)
{
    const code_form form = form_of(code);
    row_factors f[TILE_ROWS];
    TTK_UNROLL
    for (int r = 0; r < rows; r++) {
        load_row_factors(form, kind, w, b, m + r, &f[r]);
    }
    for (int j = 0; j < BLOCKS; j += vecs) {
        tile(form, code, from, kind, b, f, acc + m, quads, j, rows, vecs, ahead);
    }
}

/* The height of the tile that begins with row m of M: tiles are of nearly equal height. */
TTK_INLINE int64_t tile_rows(int64_t M, int64_t m)
{
    const int64_t tiles_left = (M - m + TILE_ROWS - 1) / TILE_ROWS;
    return (M - m + tiles_left - 1) / tiles_left;
}

/* How often a block is gone through for M rows. */
static size_t passes_of(code_form form, int64_t M)
{
    size_t passes = 0;
    for (int64_t m = 0; m < M; m += tile_rows(M, m)) {
        passes += (size_t)(BLOCKS / tile_vecs(form, tile_rows(M, m), M));
    }
    return passes;
}

/* M rows of acc += their products with a block. */
TTK_INLINE void rows_by_block(ttk_dtype code, source from, act8_kind kind, const job *w,
                              const block *b, float (*acc)[TTK_PANEL], int quads, int64_t M,
                              stream *ahead)
{
    enum { MANY = TILE_ROWS + 1 };
    const code_form form = form_of(code);
    for (int64_t m = 0, rows; m < M; m += rows) {
        rows = tile_rows(M, m);
        if (rows == TILE_ROWS) {
            tiles(code, from, kind, w, b, acc, quads, m, TILE_ROWS,
                  tile_vecs(form, TILE_ROWS, MANY), ahead);
        } else if (rows == 3) {
            tiles(code, from, kind, w, b, acc, quads, m, 3, tile_vecs(form, 3, MANY), ahead);
        } else if (rows == M && rows == 2) {
            tiles(code, from, kind, w, b, acc, quads, m, 2, tile_vecs(form, 2, 2), ahead);
        } else if (rows == 2) {
            tiles(code, from, kind, w, b, acc, quads, m, 2, tile_vecs(form, 2, MANY), ahead);
        } else {
            tiles(code, from, kind, w, b, acc, quads, m, 1, tile_vecs(form, 1, 1), ahead);
        }
    }
}

/* ---- straight from packed codes: the formats met most ---- */
static bool packed_rows_by_block(const job *w, const block *b, float (*acc)[TTK_PANEL], int64_t M,
                                 stream *ahead)
{
    enum { WHOLE = TTK_ACT_GROUP / QUAD, HALF = TTK_HALF_GROUP / QUAD };
    const act8_kind kind = act8_kind_of(w->format);
    const ttk_dtype code = w->format->code;
    if (w->segment != TTK_ACT_GROUP) {
        if (code != TTK_I6 || kind != KIND_PLAIN) {
            return false;
        }
        rows_by_block(TTK_I6, PACKED, KIND_PLAIN, w, b, acc, HALF, M, ahead);
    } else if (code == TTK_I8 && kind == KIND_PLAIN) {
        rows_by_block(TTK_I8, PACKED, KIND_PLAIN, w, b, acc, WHOLE, M, ahead);
    } else if (code == TTK_I4 && kind == KIND_PLAIN) {
        rows_by_block(TTK_I4, PACKED, KIND_PLAIN, w, b, acc, WHOLE, M, ahead);
    } else if (code == TTK_E2M1 && kind == KIND_PLAIN) {
        rows_by_block(TTK_E2M1, PACKED, KIND_PLAIN, w, b, acc, WHOLE, M, ahead);
    } else if (code == TTK_U4 && kind == KIND_ZERO) {
        rows_by_block(TTK_U4, PACKED, KIND_ZERO, w, b, acc, WHOLE, M, ahead);
    } else if (code == TTK_U4 && kind == KIND_OFFSET) {
        rows_by_block(TTK_U4, PACKED, KIND_OFFSET, w, b, acc, WHOLE, M, ahead);
    } else if (code == TTK_U8 && kind == KIND_OFFSET) {
        rows_by_block(TTK_U8, PACKED, KIND_OFFSET, w, b, acc, WHOLE, M, ahead);
    } else {
        return false;
    }
    return true;
}

/* ---- from bytes: all formats ---- */
static void unpack_block(const job *w, const block_places *at, block *b)
{
    for (int s = 0; s < b->n; s++) {
        const int64_t n_k = s + 1 < b->n ? w->segment : at->last_n_k;
        b->codes[s] = b->bytes[s];
        switch (w->format->code) {
        case TTK_I8:
            unpack_code(TTK_I8, WAY_WHOLE, b->bytes[s], at->codes[s], n_k, w->segment);
            break;
        case TTK_U8: /* less 128 */
            unpack_code(TTK_I8, WAY_ZERO, b->bytes[s], at->codes[s], n_k, w->segment);
            break;
        case TTK_I6:
            unpack_code(TTK_I6, WAY_ZERO, b->bytes[s], at->codes[s], n_k, w->segment);
            break;
        case TTK_E2M1:
            unpack_code(TTK_E2M1, WAY_ZERO, b->bytes[s], at->codes[s], n_k, w->segment);
            break;
        default:
            unpack_code(TTK_U4, WAY_ZERO, b->bytes[s], at->codes[s], n_k, w->segment);
            break;
        }
    }
}

/* `code` stands for all of its form. Plain formats of whole segments have code of their own; the
 * others decide about shifts as they go. */
TTK_INLINE void unpacked_of_form(ttk_dtype code, const job *w, const block *b,
                                 float (*acc)[TTK_PANEL], int64_t M, stream *ahead)
{
    const act8_kind kind = act8_kind_of(w->format);
    if (w->segment != TTK_ACT_GROUP) {
        rows_by_block(code, UNPACKED, kind, w, b, acc, TTK_HALF_GROUP / QUAD, M, ahead);
    } else if (kind == KIND_PLAIN) {
        rows_by_block(code, UNPACKED, KIND_PLAIN, w, b, acc, TTK_ACT_GROUP / QUAD, M, ahead);
    } else {
        rows_by_block(code, UNPACKED, kind, w, b, acc, TTK_ACT_GROUP / QUAD, M, ahead);
    }
}

static void unpacked_rows_by_block(const job *w, const block *b, float (*acc)[TTK_PANEL], int64_t M,
                                   stream *ahead)
{
    switch (form_of(w->format->code)) {
    case FORM_NIBBLE:
        unpacked_of_form(TTK_I4, w, b, acc, M, ahead);
        break;
    case FORM_SMALL:
        unpacked_of_form(TTK_I6, w, b, acc, M, ahead);
        break;
    case FORM_SIGNED:
        unpacked_of_form(TTK_I8, w, b, acc, M, ahead);
        break;
    }
}

/* M rows of acc through the next block of a panel, in so many passes. */
static void next_block(const job *w, walk *from, block *b, float (*acc)[TTK_PANEL], int64_t M,
                       size_t passes)
{
    /* Making a block ready takes about a quarter of the time of a full pass, and must ask for its
     * part: at once, as there are no products to ask between. Asking less here, and more there, was
     * slower (107 and 112 ns for 102, see tile_vecs). */
    enum { FILL_SHARE = 4 };
    block_places at;
    find_segments(w, from, b, &at);
    const size_t fill_step = w->segment_bytes / (FILL_SHARE * passes + 1);
    const size_t fill_bytes = fill_step * (size_t)b->n;
    for (size_t at_byte = 0; at_byte < fill_bytes; at_byte += TTK_LINE_BYTES) {
        fetch_line(b->ahead[0] + at_byte);
    }
    stream ahead = {b->ahead[0] + fill_bytes, (w->segment_bytes - fill_step) / passes};
    fill_factors(w, &at, b);
    if (at.last_n_k == w->segment && (M < UNPACK_ROWS || form_of(w->format->code) == FORM_SIGNED)) {
        memcpy(b->codes, at.codes, sizeof(b->codes));
        if (packed_rows_by_block(w, b, acc, M, &ahead)) {
            return;
        }
    }
    unpack_block(w, &at, b);
    unpacked_rows_by_block(w, b, acc, M, &ahead);
}

void ttk_gemm_act8_avx2(float *y, int64_t ldy, const void *rows, size_t stride,
                        const ttk_format *format, const void *panels, int64_t M, int64_t N,
                        int64_t K)
{
    const size_t panel_bytes = ttk_panel_bytes(format, K);
    const unsigned char *panel = panels;
    float acc[GROUP_ROWS][TTK_PANEL] __attribute__((aligned(TTK_LINE_BYTES)));
    block b __attribute__((aligned(TTK_LINE_BYTES)));
    job w = job_of(format, rows, stride, K);
    for (int64_t n = 0; n < N; n += TTK_PANEL, panel += panel_bytes) {
        for (int64_t m = 0; m < M; m += GROUP_ROWS) {
            const int64_t n_rows = M - m < GROUP_ROWS ? M - m : GROUP_ROWS;
            walk at = walk_of(&w, panel);
            w.rows = (const unsigned char *)rows + (size_t)m * stride;
            memset(acc, 0, (size_t)n_rows * sizeof(acc[0]));
            const size_t passes = passes_of(form_of(format->code), n_rows);
            while (at.at < K) {
                next_block(&w, &at, &b, acc, n_rows, passes);
            }
            for (int64_t r = 0; r < n_rows; r++) {
                store_sums(y + (m + r) * ldy + n, acc[r], N - n);
            }
        }
    }
}
