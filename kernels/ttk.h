/* ttk.h - the arithmetic of tutti: contracts of all kernels, and the table through which they are
 * called.
 *
 * The contract of an op is the comment at its function type. One version is plain C (ref/), others
 * are for an ISA (x86/). All versions of an op in one kernel set give the same bits for the same
 * input: every sum has a fixed order, every fused step is an explicit fmaf (docs/architecture.md,
 * where bits are defined). A row's result never depends on other rows. Kernels do not allocate,
 * lock, log, spawn threads or know MPI; callers split work and own the buffers. Needs the default
 * MXCSR (round to nearest, no FTZ, no DAZ) on every calling thread.
 * Threads: any, after ttk_init. */
#ifndef TUTTI_TTK_H
#define TUTTI_TTK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TTK_API
#if defined(__GNUC__)
#define TTK_API __attribute__((visibility("default")))
#else
#define TTK_API
#endif
#endif

typedef uint16_t ttk_bf16; /* upper half of a binary32 */

/* ---- CPU features, found by base (tt_cpu_flags) and handed to ttk_init ---- */
enum {
    TTK_CPU_AVX2 = 1u << 0,   /* AVX2 and FMA and F16C */
    TTK_CPU_AVX512 = 1u << 1, /* F, BW, DQ, VL */
    TTK_CPU_AVX512_VNNI = 1u << 2,
    TTK_CPU_AMX = 1u << 3 /* tile, int8, bf16, with VNNI and AVX-512 BF16 */
};

/* ---- weights ----
 * What the numbers of a weight matrix w[N][K] are (N outputs, K inputs). Plain: code is TTK_F32,
 * TTK_BF16 or (in files only) TTK_F16, all other fields 0. Quantised: inputs are cut in groups of
 * `group` (the last may be shorter), G = ceil(K / group), and with c the number that a code stands
 * for
 *   w[n][k] = scale[n][g] * (c[n][k] - zero[n][g]) + offset[n][g],   g = k / group
 * where zero (a whole number, TTK_SHIFT_ZERO) or offset (TTK_SHIFT_OFFSET) may be absent. If super
 * > 0, scale (and offset) are whole numbers times a f16 per run of `super` groups: scale =
 * super_scale[n][g / super] * scale[n][g], offset = -super_shift[n][g / super] * shift[n][g]. */
typedef enum ttk_dtype {
    TTK_F32 = 0,
    TTK_BF16 = 1,
    TTK_F16 = 2,
    TTK_I8,   /* -128..127 */
    TTK_U8,   /* 0..255; shifts and super-scaled scales */
    TTK_I4,   /* a nibble u: c = u - 8 */
    TTK_U4,   /* a nibble u: c = u */
    TTK_I6,   /* six bits u: c = u - 32 */
    TTK_E4M3, /* FP8 "fn": no infinities, 0x7f and 0xff are NaN */
    TTK_E2M1, /* a nibble: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives from 8 on */
    TTK_E8M0  /* scales: 2^(byte - 127) */
} ttk_dtype;
typedef enum ttk_shift { TTK_SHIFT_NONE, TTK_SHIFT_ZERO, TTK_SHIFT_OFFSET } ttk_shift;
typedef struct ttk_format {
    ttk_dtype code;
    ttk_dtype scale; /* F32, BF16, F16, E8M0; with super: U8 or I8 */
    ttk_shift shift; /* ZERO: TTK_U8 each. OFFSET: of the type of scale */
    int32_t group;   /* inputs per scale; even */
    int32_t super;   /* groups per super scale; 0 = none */
} ttk_format;
/* Bytes of one unpacked code: 4, 2, else 1 (a nibble has a byte of its own when unpacked). */
static inline size_t ttk_dtype_bytes(ttk_dtype type)
{
    return type == TTK_F32                       ? sizeof(float)
           : type == TTK_BF16 || type == TTK_F16 ? sizeof(uint16_t)
                                                 : 1;
}
static inline bool ttk_format_is_plain(const ttk_format *format)
{
    return format->code <= TTK_F16;
}

/* Unpacked rows: what files are read into and pack reads. All arrays row-major, row n of each
 * belongs to output n. */
typedef struct ttk_unpacked {
    const void *code;        /* code[n][K], ttk_dtype_bytes each */
    const void *scale;       /* scale[n][G] */
    const void *shift;       /* shift[n][G] or NULL */
    const void *super_scale; /* f16, super_scale[n][S] or NULL; S = ceil(G / super) */
    const void *super_shift; /* f16, the same */
} ttk_unpacked;
/* Bytes of n unpacked rows in one buffer, and the places of the arrays in it (each 64-byte aligned
 * if the buffer is). */
TTK_API size_t ttk_unpacked_bytes(const ttk_format *format, int64_t n, int64_t K);
TTK_API ttk_unpacked ttk_unpacked_in(const ttk_format *format, int64_t n, int64_t K, void *buffer);
/* Element i of an array of `type` as float, exact. */
TTK_API float ttk_number(ttk_dtype type, const void *array, int64_t i);
/* dst[n][K]: the numbers themselves, each operation of the formula rounded once to float. Plain C,
 * for set-up and tests. */
TTK_API void ttk_unpacked_to_f32(const ttk_format *format, const ttk_unpacked *rows, int64_t n,
                                 int64_t K, float *dst);

/* Rounds rows of floats to a format, nearest even throughout: src[n][K] into the arrays of dst,
 * which are written. Of each group, m is the element of the largest magnitude, the first of such:
 *   I8    scale = |m| / 127    c in [-127, 127]        E4M3  scale = |m| / 448
 *   I4    scale = m / -8       c in [-8, 7]            E2M1  scale = 2^(floor(log2 |m|) - 2)  (OCP MX 1.0), larger than 6 becomes 6
 * each rounded to the type of scale, and c = x / scale, rounded. A group with an element that is
 * not finite becomes NaN. Rounding the result again changes no code (unless a f16 scale is
 * denormal: |m| below 2^-7 or so). n, K >= 0; no alignment is assumed. */
typedef void ttk_quantize_fn(const ttk_format *format, const float *src, int64_t n, int64_t K,
                             const ttk_unpacked *dst);
/* Whether quantize knows the format: these codes, scales F32, BF16 or F16 (E2M1: E8M0), no shift,
 * no super, any group. */
TTK_API bool ttk_can_quantize(const ttk_format *format);

/* Packed: outputs in panels of TTK_PANEL; within a panel, k is the slow index. Plain:
 *   panel[p][k][j] = w[p*TTK_PANEL + j][k], zero where the row is beyond N.   Elements f32 or bf16.
 * Quantised: one stream of scales, shifts and codes, all parts 64-byte aligned; the exact layout is
 * private to the kernels (ttk_quant.h). Panels follow each other without gaps; the base is 64-byte
 * aligned. */
enum { TTK_PANEL = 32 };
/* Counts changes of how numbers lie in a panel: panels in files of another number are refused. */
enum { TTK_PANEL_LAYOUT = 1 };
/* Bytes of one packed panel of K inputs, and of the packed form of w[N][K]. */
TTK_API size_t ttk_panel_bytes(const ttk_format *format, int64_t K);
TTK_API size_t ttk_packed_bytes(const ttk_format *format, int64_t N, int64_t K);
/* Whether a number of the type, anywhere in memory, is neither infinite nor NaN. */
TTK_API bool ttk_is_finite(ttk_dtype type, const void *number);
/* How many scales and offsets of packed quantised panels are infinite or no number: a damaged file.
 * Plain C, for set-up. */
TTK_API int64_t ttk_count_bad_scales(const ttk_format *format, const void *panels, int64_t n_panels,
                                     int64_t K);

/* Packs rows of w into panels: `packed` is the whole matrix w[N][K] (type packed_type); this call
 * packs panels [panel_begin, panel_end). Source element (n, k) is src[n*row_stride + k*col_stride]
 * (strides in elements, so that a transposed source packs too), type src_type. Conversions:
 * bf16/f16 -> f32 exact; f32/f16 -> bf16 rounds to nearest even. */
typedef void ttk_pack_fn(void *packed, ttk_dtype packed_type, const void *src, ttk_dtype src_type,
                         int64_t row_stride, int64_t col_stride, int64_t N, int64_t K,
                         int64_t panel_begin, int64_t panel_end);

/* The same for a quantised format, from unpacked rows of the same format; rows.code etc. point at
 * row 0 of the matrix. */
typedef void ttk_pack_quant_fn(void *packed, const ttk_format *format, const ttk_unpacked *rows,
                               int64_t N, int64_t K, int64_t panel_begin, int64_t panel_end);
/* Back: rows [row, row + n) of a packed matrix (plain or quantised), unpacked into the arrays of
 * rows (which are written). */
typedef void ttk_unpack_fn(const ttk_unpacked *rows, const ttk_format *format, const void *packed,
                           int64_t K, int64_t row, int64_t n);

/* ---- products ----
 * y[m][n] = fmaf chain over k = 0..K-1, ascending, from +0: acc = fmaf(x[m][k], w[n][k], acc).
 * y[M][ldy], x[M][ldx] (element strides >= N, K), w packed, its first panel at `panels` (a caller
 * that splits N over threads passes the address of its first panel, y + first column and the N of
 * its part; N need not be a multiple of TTK_PANEL in the last part only). M, N, K >= 0; K = 0 gives
 * +0. No alignment of x, y is assumed. y and x do not overlap. */
typedef void ttk_gemm_f32_fn(float *y, int64_t ldy, const float *x, int64_t ldx,
                             const float *panels, int64_t M, int64_t N, int64_t K);
typedef void ttk_gemm_bf16_fn(float *y, int64_t ldy, const float *x, int64_t ldx,
                              const ttk_bf16 *panels, int64_t M, int64_t N, int64_t K);

/* The product of the set amx-bf16: with x rounded to bf16 (nearest even), and the inputs of index K
 * and above, up to a multiple of 32, +0: for each 32 inputs in ascending order
 *   e = fmaf chain over their even k, ascending, from +0;  o = the same over their odd k;   acc = acc + (e + o)
 * acc from +0; y[m][n] = acc. All operations, rounding too, take denormal numbers, and give them,
 * as zeros of their sign. Same rules as above.
 * Source: TDPBF16PS in the Intel 64 and IA-32 manual. */
typedef void ttk_gemm_bf16_pairs_fn(float *y, int64_t ldy, const float *x, int64_t ldx,
                                    const ttk_bf16 *panels, int64_t M, int64_t N, int64_t K);

/* Quantised product. With c the number of a code (-0 counts as +0) less its zero, rounded to float,
 * for each group in ascending order:
 *   a = fmaf chain over the group's k, ascending, from +0: fmaf(x[m][k], c[n][k], a);   acc = fmaf(scale[n][g], a, acc)
 *   and with an offset:  s = chain of x[m][k] by +, ascending, from +0;                 acc = fmaf(offset[n][g], s, acc)
 * acc from +0; y[m][n] = acc. A super scale times its whole number is exact in float. Same rules as
 * above. */
typedef void ttk_gemm_quant_fn(float *y, int64_t ldy, const float *x, int64_t ldx,
                               const ttk_format *format, const void *panels, int64_t M, int64_t N,
                               int64_t K);

/* ---- rows rounded to int8, and their products ----
 * A row x[K] in groups of TTK_ACT_GROUP inputs (the last may be shorter), G = ceil(K /
 * TTK_ACT_GROUP). In memory, ttk_act8_bytes(K) bytes:
 *   code[32 G] int8, 0 beyond K;   scale[G] f32;   sum[G] f32, of the group's codes;   half[2 G] f32, of each 16 of them
 * With m the largest magnitude of a group: scale = m / 127 and code = the whole number nearest to x
 * * (127 / m), ties to even, each operation rounded once (float). A group with m < 2^-100 has scale
 * and codes 0; with an element that is not finite, scale NaN and codes 0. */
enum { TTK_ACT_GROUP = 32 };
static inline int64_t ttk_act8_groups(int64_t K)
{
    return (K + TTK_ACT_GROUP - 1) / TTK_ACT_GROUP;
}
static inline size_t ttk_act8_bytes(int64_t K)
{
    return (size_t)ttk_act8_groups(K) * (TTK_ACT_GROUP + 4 * sizeof(float));
}
/* rows[M], `stride` bytes (a multiple of 4, at least ttk_act8_bytes(K)) from one to the next,
 * 4-byte aligned; x[M][ldx]. */
typedef void ttk_act8_fn(void *rows, size_t stride, const float *x, int64_t ldx, int64_t M,
                         int64_t K);

/* ---- rows as bytes, for messages: blocks of TTK_ACT_GROUP elements (the last may be shorter), one after the other ----
 * int8   scale f32, code[n] int8: those that act8 makes of the same elements fp8    scale e8m0,
 * code[n] e4m3 (MXFP8 of the OCP Microscaling Formats 1.0): scale 2^(e - 8) for a largest magnitude
 * m in [2^e, 2^(e + 1)), and
 *        codes nearest to x / scale, ties to even, at most 448 in size. With m < 2^-100 all bytes are 0; with an element that is not finite the
 *        scale is 255 (NaN) and the codes are 0.
 * Nothing is aligned. Element c of a row, c a multiple of TTK_ACT_GROUP, begins at byte
 * ttk_row8_bytes(form, c). */
typedef enum ttk_row8_form { TTK_ROW8_INT8, TTK_ROW8_FP8 } ttk_row8_form;
static inline size_t ttk_row8_bytes(ttk_row8_form form, int64_t n)
{
    return (size_t)n + (size_t)ttk_act8_groups(n) * (form == TTK_ROW8_INT8 ? sizeof(float) : 1);
}
/* row[ttk_row8_bytes(form, n)] of x[n]. */
typedef void ttk_row8_fn(ttk_row8_form form, void *row, const float *x, int64_t n);
/* x[n] = code * scale, rounded once (fp8: exact; int8: the largest floats may become infinite). */
typedef void ttk_row8_f32_fn(ttk_row8_form form, float *x, const void *row, int64_t n);
/* A row of the form int8 as gemm_act8 takes it, ttk_act8_bytes(n) bytes, 4-byte aligned: what act8
 * had made of the elements. */
typedef void ttk_row8_act8_fn(void *act8, const void *row, int64_t n);

/* Whether gemm_act8 takes such weights of K inputs: codes that are whole numbers (E2M1: halves of
 * such) in one group, or in groups of 16 or a multiple of TTK_ACT_GROUP. */
TTK_API bool ttk_can_act8(const ttk_format *format, int64_t K);
/* Product of such rows with packed quantised weights. Inputs are cut into segments: where a group
 * of the row or of the weights begins, one begins. For each segment in ascending order, with c the
 * whole number of a code (twice the number of E2M1) less its zero, and s its row group's scale:
 *   d = sum of code * c, exact;   acc = fmaf(w * s, (float)d, acc),   w = scale[n][g] (halved for E2M1)
 * and with an offset:  acc = fmaf(offset[n][g], s * (float)(sum of code), acc)
 * acc from +0; y[m][n] = acc; each product is rounded to float. Other rules as for gemm_quant. */
typedef void ttk_gemm_act8_fn(float *y, int64_t ldy, const void *rows, size_t stride,
                              const ttk_format *format, const void *panels, int64_t M, int64_t N,
                              int64_t K);

/* ---- the sum of 16 lanes ("lanes16") used by norms, q.k and softmax sums ----
 * lane[i mod 16] accumulates element i, i ascending, from +0 (squares and products by fmaf, plain
 * values by +); then lane[i] += lane[i+8] for i < 8, += lane[i+4] for i < 4, += lane[i+2] for i <
 * 2, lane[0] + lane[1]. */

/* y[t][h] = (x[t][h] * r) * g[h],  r = 1 / sqrt(lanes16(x*x) / (float)H + eps), each operation
 * rounded once (float).
 * Source: arXiv:1910.07467. T, H >= 0. Row strides ldy, ldx. y may equal x. g may be NULL: all ones
 * (no product). */
typedef void ttk_rmsnorm_f32_fn(float *y, int64_t ldy, const float *x, int64_t ldx, const float *g,
                                int64_t T, int64_t H, float eps);

/* y[t][h] = fmaf(d[h] * r, g[h], b[h]),  d[h] = x[t][h] - lanes16(x) / (float)H,  r = 1 /
 * sqrt(lanes16(d*d) / (float)H + eps), each operation rounded once (float). Source:
 * arXiv:1607.06450. T, H >= 0. Row strides ldy, ldx. y may equal x. g[H]; b[H] or NULL: (d[h] * r)
 * * g[h]. */
typedef void ttk_layernorm_f32_fn(float *y, int64_t ldy, const float *x, int64_t ldx,
                                  const float *g, const float *b, int64_t T, int64_t H, float eps);

/* Rotates n_heads heads of width d of one token in place: pairs (x[i], x[i + d/2]) if interleaved
 * is false, (x[2i], x[2i+1]) if true; a' = fmaf(a, c, -(b*s)), b' = fmaf(b, c, a*s) with c =
 * cos[i], s = sin[i], i < d/2 (b*s and a*s rounded to float first). x: head h starts at x +
 * h*head_stride. d even. Source: arXiv:2104.09864 section 3.4.2. */
typedef void ttk_rope_f32_fn(float *x, int64_t n_heads, int64_t head_stride, int64_t d,
                             const float *cos, const float *sin, bool interleaved);

/* exp: ttk's own polynomial, one definition for all versions (kernels/ttk_math.h): relative error
 * below 2 ulp, exp(-inf) = 0, below -87.3 flushes to +0, above 88.7 gives +inf, NaN stays NaN.
 * sigmoid(x) = 1 / (1 + exp(-x)). */

/* y[i] = silu(gate[i]) * up[i],  silu(g) = g * sigmoid(g): ((g * sigmoid) * up). rows T, width F,
 * row strides. y may equal gate or up. */
typedef void ttk_silu_mul_f32_fn(float *y, int64_t ldy, const float *gate, int64_t ldg,
                                 const float *up, int64_t ldu, int64_t T, int64_t F);

/* y[i] = (g * sigmoid(alpha * g)) * (u + 1) with g = gate[i] > limit ? limit : gate[i] and u =
 * up[i] cut to [-limit, limit] (NaN stays NaN); each operation rounded once. alpha * g and u + 1
 * are rounded first. limit >= 0. Rows, strides and aliases as silu_mul.
 * Source: gpt-oss's own implementation (github.com/openai/gpt-oss, gpt_oss/torch/model.py,
 * swiglu). */
typedef void ttk_clamped_mul_f32_fn(float *y, int64_t ldy, const float *gate, int64_t ldg,
                                    const float *up, int64_t ldu, int64_t T, int64_t F, float limit,
                                    float alpha);

/* y[i] = y[i] + x[i], i < n. */
typedef void ttk_add_f32_fn(float *y, const float *x, int64_t n);
/* y[i] = fmaf(w, x[i], y[i]), i < n. */
typedef void ttk_axpy_f32_fn(float *y, float w, const float *x, int64_t n);

/* f32 -> bf16, nearest even, NaN stays NaN (quiet); and back, exact. */
typedef void ttk_f32_to_bf16_fn(ttk_bf16 *y, const float *x, int64_t n);
typedef void ttk_bf16_to_f32_fn(float *y, const ttk_bf16 *x, int64_t n);

/* z[i] = sigmoid(z[i]) in place. */
typedef void ttk_sigmoid_f32_fn(float *z, int64_t n);
/* z = softmax(z) in place: m = max, e[i] = exp(z[i] - m), s = lanes16(e), z[i] = e[i] / s. n >= 1.
 * NaN anywhere gives all NaN. */
typedef void ttk_softmax_f32_fn(float *z, int64_t n);

/* ---- attention of query rows over paged keys and values ----
 * R consecutive query rows of one sequence, G heads each that share keys. Row r sees the positions
 * [first[r], last + r] (first[r] = 0 without a sliding window), in blocks of TTK_BLOCK absolute
 * positions; block b holds positions [64b, 64b+63] cut to what the row sees. For each head of each
 * row:
 *   s[j] = lanes16(q . k[j]) * scale;   m = max s;  p[j] = exp(s[j] - m);  l = lanes16(p) with lane = j's index within the
 *   block (absolute position mod 64) mod 16;   o[d] = fmaf chain over j ascending of p[j] * v[j][d], from +0
 * and blocks are merged in ascending order into (M, L, O), starting as a copy of the first block's
 * (m, l, o):
 *   M' = max(M, m); a = exp(M - M'); b = exp(m - M');  L = fmaf(L, a, l*b);  O[d] = fmaf(O[d], a, o[d]*b)
 * After the last block an attention sink (if any) joins as a block with m = sink, l = 1, o = 0.
 * out[d] = O[d] / L.
 * Source: online softmax, arXiv:1805.02867.
 * TTK_I8: keys and values are whole numbers with a f32 scale per token, the last k_tail elements of
 * a key with one of their own; then
 *   s[j] = (lanes16(q . k[j]) * k_scale[j]) * scale,   of a key with a tail: fmaf(lanes16(tail), tail_scale[j], lanes16(rest) * k_scale[j]) * scale
 * (the lanes of a tail begin anew), and o's chain takes p[j] * v_scale[j], rounded once, in place
 * of p[j].
 * Either all blocks are merged and out is written, or the (m, l, o) of a run of blocks are left for
 * ttk_attend_merge, so that the blocks of a long context can be spread over threads. */
enum { TTK_PAGE = 16, TTK_BLOCK = 64 }; /* tokens */
typedef struct ttk_attend_args {
    const float *q; /* head g of row r: q[r*q_row + g*q_head], Dk elements */
    int64_t q_row, q_head;
    float *out; /* likewise, Dv elements; does not overlap anything. Not used with parts */
    int64_t out_row, out_head;
    const void *const *pages;   /* pages[p]: the page of positions [16p, 16p+15] */
    ttk_dtype kv_type;          /* TTK_F32, TTK_BF16 or TTK_I8 */
    int64_t k_offset, v_offset; /* element offset of this kv head's first key / value inside a
                                 * page */
    int64_t k_stride, v_stride; /* elements from one token to the next */
    int64_t k_scales, v_scales, tail_scales; /* TTK_I8: where in a page, in bytes, their f32
                                              * scale[TTK_PAGE] stand; multiples of 4 */
    int64_t k_tail;                          /* TTK_I8: in [0, Dk); 0 = no tail */
    int64_t R, G, Dk, Dv;
    const int64_t *first; /* first[R], ascending, first[r] <= last + r */
    int64_t last;         /* of row 0 */
    float scale;
    const float *sink; /* sink[G] or NULL. Not used with parts */
    float *parts;      /* NULL or part (b - block_begin) * R*G + r*G + g for each block b of
                        * the run that row r sees; 64-byte aligned */
    int64_t block_begin, block_end; /* with parts: the run */
    float *work; /* work[ttk_attend_work_floats(R * G, Dk, Dv)], 64-byte aligned */
} ttk_attend_args;
typedef void ttk_attend_fn(const ttk_attend_args *args);
/* n: queries, rows times heads. */
TTK_API size_t ttk_attend_work_floats(int64_t n, int64_t Dk, int64_t Dv);
/* Floats of a part: o, then at ttk_attend_part_state(Dv) m and l; the rest is padding. A multiple
 * of 64 bytes. */
TTK_API size_t ttk_attend_part_floats(int64_t Dv);
TTK_API size_t ttk_attend_part_state(int64_t Dv);

/* Merges parts of one head of one row into (M, L, O) as attend does. Runs come in ascending order,
 * so that all of a context's blocks are merged in several calls; the last one finishes. */
typedef struct ttk_attend_merge_args {
    const float *parts; /* part i at parts + i*stride, 64-byte aligned */
    int64_t stride;     /* floats */
    int64_t n;          /* parts; 0 is possible */
    bool is_first;      /* part 0 is that of the first block seen; n >= 1 */
    bool is_last;       /* the sink joins and out becomes O / L */
    int64_t Dv;
    const float *sink; /* one or NULL */
    float *out;        /* out[Dv]: O so far, then the result */
    float *state;      /* state[2]: M, L so far */
} ttk_attend_merge_args;
typedef void ttk_attend_merge_fn(const ttk_attend_merge_args *args);

/* ---- gated delta net: a state per head instead of keys and values ----
 * Channels of a short causal convolution: y[i] = a * sigmoid(a), a = fmaf chain over the taps j =
 * 0..n_taps-1, ascending, from +0: fmaf(w[j*ldw + i], x[j][i], a), i < n. x[j]: the row that tap j
 * sees, oldest first. y overlaps nothing. n, n_taps >= 0. */
typedef void ttk_conv_silu_f32_fn(float *y, const float *const *x, const float *w, int64_t ldw,
                                  int64_t n_taps, int64_t n);

/* T tokens, one after the other, through TTK_DELTA_COLUMNS columns of one head's state
 * s[Dk][TTK_DELTA_COLUMNS]. For each token, with its own q[Dk], k[Dk], v, decay and beta, and for
 * each column j:
 *   e[i] = s[i][j] * decay;   m = fmaf chain over i ascending of k[i] * e[i], from +0;   d = beta * (v[j] - m);
 *   s[i][j] = fmaf(k[i], d, e[i]);   out[j] = fmaf chain over i ascending of q[i] * s[i][j], from +0
 * Columns j >= n are treated as if v[j] were +0 and give no output. Source: arXiv:2412.06464, the
 * recurrent form. */
enum {
    TTK_DELTA_COLUMNS = 32
}; /* of 128 rows they take 16 KiB, which stay in the L1 cache from
    * token to token */
typedef struct ttk_delta_args {
    float *state;           /* state[Dk][TTK_DELTA_COLUMNS], 64-byte aligned */
    int64_t Dk, n, T;       /* n in [0, TTK_DELTA_COLUMNS]; Dk, T >= 0 */
    const float *q, *k, *v; /* q[T][ldq], k[T][ldk], v[T][ldv]: first Dk, Dk, n of each row */
    int64_t ldq, ldk, ldv;
    const float *decay, *beta; /* of token t at t*ld_gate each */
    int64_t ld_gate;
    float *out; /* out[T][ldo], first n of each row; overlaps nothing */
    int64_t ldo;
} ttk_delta_args;
typedef void ttk_delta_fn(const ttk_delta_args *args);
/* Columns of a head's state, and its floats: parts [ceil(Dv /
 * TTK_DELTA_COLUMNS)][Dk][TTK_DELTA_COLUMNS]. */
static inline int64_t ttk_delta_parts(int64_t Dv)
{
    return (Dv + TTK_DELTA_COLUMNS - 1) / TTK_DELTA_COLUMNS;
}
static inline int64_t ttk_delta_state_floats(int64_t Dk, int64_t Dv)
{
    return ttk_delta_parts(Dv) * Dk * TTK_DELTA_COLUMNS;
}

/* ---- choosing experts ----
 * The k largest of c[n], best first, ties to the smaller index; c is not changed. NaN is never
 * chosen unless nothing else is left (it sorts below -inf). idx[k]. 0 <= k <= n. */
typedef void ttk_topk_f32_fn(int32_t *idx, const float *c, int64_t n, int64_t k);
/* Index of the largest, ties to the smaller index; NaN is never chosen; -1 if n = 0 or all NaN. */
typedef int64_t ttk_argmax_f32_fn(const float *c, int64_t n);

/* ---- the table ----
 * The list of all operations: an op is named here, once, and has the function type ttk_<op>_fn. The
 * numbers of the ops, the table, and what must have an entry for each op (a ref version, a checker,
 * a benchmark) are made from it. */
#define TTK_OPS(X)                                                                                 \
    X(pack)                                                                                        \
    X(pack_quant)                                                                                  \
    X(unpack)                                                                                      \
    X(quantize)                                                                                    \
    X(gemm_f32)                                                                                    \
    X(gemm_bf16)                                                                                   \
    X(gemm_bf16_pairs)                                                                             \
    X(gemm_quant)                                                                                  \
    X(act8)                                                                                        \
    X(gemm_act8)                                                                                   \
    X(row8)                                                                                        \
    X(row8_f32)                                                                                    \
    X(row8_act8)                                                                                   \
    X(rmsnorm_f32)                                                                                 \
    X(layernorm_f32)                                                                               \
    X(rope_f32)                                                                                    \
    X(silu_mul_f32)                                                                                \
    X(clamped_mul_f32)                                                                             \
    X(add_f32)                                                                                     \
    X(axpy_f32)                                                                                    \
    X(f32_to_bf16)                                                                                 \
    X(bf16_to_f32)                                                                                 \
    X(sigmoid_f32)                                                                                 \
    X(softmax_f32)                                                                                 \
    X(attend)                                                                                      \
    X(attend_merge)                                                                                \
    X(conv_silu_f32)                                                                               \
    X(delta)                                                                                       \
    X(topk_f32)                                                                                    \
    X(argmax_f32)

typedef void ttk_any_fn(void);
#define TTK_OP_NUMBER(op) TTK_OP_##op,
typedef enum ttk_op { TTK_OPS(TTK_OP_NUMBER) TTK_OP_COUNT } ttk_op;
#undef TTK_OP_NUMBER

/* One version of one op. */
typedef struct ttk_row {
    ttk_op op;
    const char *name; /* "gemm_bf16_avx2" */
    unsigned need;    /* TTK_CPU_ flags it needs; 0 for ref */
    ttk_any_fn *fn;
} ttk_row;
/* All compiled versions, ref rows first; for tests and benchmarks that walk the table. */
TTK_API const ttk_row *ttk_rows(size_t *n_rows_out);

/* The chosen version of each op, ttk_<op>_fn *<op>; valid after ttk_init. In the set amx-bf16,
 * gemm_bf16 is gemm_bf16_pairs. */
#define TTK_OP_FIELD(op) ttk_##op##_fn *op;
typedef struct ttk_table {
    TTK_OPS(TTK_OP_FIELD)
    /* "ref", "avx2", "avx512", "amx": the best instruction set that some version needs which the CPU
     * can run. Others need less, a set need not use that one, and VNNI counts as avx512. */
    const char *isa;
} ttk_table;
#undef TTK_OP_FIELD
TTK_API extern ttk_table ttk;

/* Fills ttk for the set fma: starts from ref and overlays every row whose needs are in cpu_flags,
 * later rows win. May be called again with other flags while no kernel runs (tests). */
TTK_API void ttk_init(unsigned cpu_flags);
/* Sets: the versions of one set agree bit for bit, those of two need not. */
typedef enum ttk_set {
    TTK_SET_FMA,
    TTK_SET_AMX_BF16,
    TTK_SET_BLAS /* as fma; whoever splits products gives those of many rows to a BLAS */
} ttk_set;
/* ttk_init, for a set. False, and ttk is as it was, if the set needs what cpu_flags or this build
 * lack. */
TTK_API bool ttk_use_set(ttk_set set, unsigned cpu_flags);
/* The name of the set in use: "fma", "amx-bf16", "blas". */
TTK_API const char *ttk_set_name(void);

/* exp as all kernels of the set compute it, for code outside hot loops (sampling). */
TTK_API float ttk_exp(float x);
/* ln(1 + e^x), as max(x, 0) + log1p(exp(-|x|)): ttk's own polynomials (kernels/ttk_math.h),
 * relative error below 4 ulp where the result is a normal number; below -87.3 flushes to +0, NaN
 * stays NaN. For code outside hot loops. */
TTK_API float ttk_softplus(float x);

#endif
