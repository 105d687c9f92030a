/* gemm_quant_avx512.c - product of f32 rows with packed quantised weights. As gemm_quant_avx2.c,
 * with a panel in two registers, so that tiles are up to 8 rows by a panel (16 registers). Apart from
 * it, as a body for both came out slower here: 6 % at 3 rows, 3 to 7 % at 2. */
#include "quant_avx512.h"
#include "ttk_versions.h"

enum {
    TILE_ROWS = 8,         /* 16 sums + 2 weights + row elements of 32 registers */
    GROUP_ROWS = 48,       /* rows whose sums wait together; see gemm.h */
    BLOCK_K = 64,          /* as floats 8 KiB, a quarter of the L1 cache */
    BLOCK_GROUPS = 8,      /* groups that begin in a block, at most */
    X_SUMS = 6144,         /* sums of x on the stack, 24 KiB */
    PREFETCH_BYTES = 1536, /* ahead in a stream of weights; guessed */
    LINE_BYTES = 64,
    MAX_GATHERED = 1 << 20 /* inputs of a group whose sums are gathered: offsets are 32 bits */
};

/* What one call works on; rows and columns vary. */
typedef struct job {
    const ttk_format *format;
    ttk_quant_shape shape;
    int64_t g_begin, g_end; /* the groups of this turn */
    const float *x_sums;    /* x_sums[rows][g_end - g_begin], if there are offsets */
    way how;
} job;

/* ---- sums of x ---- */

/* sums[16] of 16 groups: one to a lane. */
static void sums_of_lanes(float *sums, const float *x, int64_t group)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)group));
    __m512 sum = _mm512_setzero_ps();
    for (int64_t k = 0; k < group; k++) {
        sum = _mm512_add_ps(sum, _mm512_i32gather_ps(at, x + k, sizeof(float)));
    }
    _mm512_storeu_ps(sums, sum);
}

/* sums[g_end - g_begin] of one row. */
static void sums_of_groups(float *sums, const float *x, const ttk_quant_shape *shape,
                           int64_t g_begin, int64_t g_end)
{
    for (int64_t g = g_begin; g < g_end;) {
        const float *from = x + g * shape->group;
        if (shape->group <= MAX_GATHERED && g + VEC <= g_end &&
            (g + VEC) * shape->group <= shape->K) {
            sums_of_lanes(sums + (g - g_begin), from, shape->group);
            g += VEC;
            continue;
        }
        int64_t left = shape->K - g * shape->group;
        float sum = 0.0f;
        for (int64_t k = 0; k < (left < shape->group ? left : shape->group); k++) {
            sum = sum + from[k];
        }
        sums[g - g_begin] = sum;
        g++;
    }
}

/* ---- sums that wait in y between turns ---- */
static void load_sums(float *acc, const float *y, int64_t n_columns, bool is_first)
{
    for (int64_t j = 0; j < TTK_PANEL; j += VEC) {
        __mmask16 mask = is_first ? 0 : vec_mask(n_columns - j);
        _mm512_storeu_ps(acc + j, _mm512_maskz_loadu_ps(mask, y + j));
    }
}

/* ---- one row ---- */

static const unsigned char no_zeros[TTK_PANEL];

static const unsigned char *zeros_of(const job *w, const unsigned char *panel,
                                     const ttk_quant_place *place)
{
    return w->format->shift == TTK_SHIFT_ZERO ? panel + place->shift : no_zeros;
}

TTK_INLINE void load_shifts(ttk_dtype code, way how, const unsigned char *zero, __m512 *shift)
{
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        shift[h] = how == WAY_ZERO ? zero_shift(code, load_numbers(TTK_U8, zero, h * VEC))
                                   : _mm512_setzero_ps();
    }
}

/* sum[BLOCKS] of a group in which some code of E4M3 is NaN: those outputs become NaN. */
static void spoil_nan(__m512 *sum, const unsigned char *codes, int64_t n_k)
{
    float s[TTK_PANEL];
    memcpy(s, sum, sizeof(s));
    for (int64_t at = 0; at < (n_k + QUAD - 1) / QUAD * TTK_PLANE_BYTES; at++) {
        if (is_nan_code(codes[at])) {
            s[at % TTK_PLANE_BYTES / QUAD] = NAN;
        }
    }
    memcpy(sum, s, sizeof(s));
}

/* sum[BLOCKS] = the chains of one group: whole units, then what is left of one. Sums, shifts and
 * `worst` stay in registers over both, so they are not functions of their own. */
TTK_INLINE void row_by_group(ttk_dtype code, way how, __m512 *sum, const float *x,
                             const unsigned char *codes, int64_t n_k, const unsigned char *zero)
{
    const int64_t unit = ttk_quant_unit(code);
    const int64_t unit_bytes = (int64_t)ttk_quant_code_bytes(code, unit);
    __m512 shift[BLOCKS];
    load_shifts(code, how, zero, shift);
    __m512i worst = _mm512_setzero_si512();
    __m512 s[BLOCKS];
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        s[h] = _mm512_setzero_ps();
    }
    const unsigned char *at = codes;
    int64_t k = 0;
    for (; k + unit <= n_k; k += unit, at += unit_bytes) {
        TTK_UNROLL
        for (int64_t ahead = 0; ahead < unit_bytes; ahead += LINE_BYTES) {
            _mm_prefetch((const char *)at + PREFETCH_BYTES + ahead, _MM_HINT_T0);
        }
        TTK_UNROLL
        for (int q = 0; q < unit / QUAD; q++) {
            __m512i bytes[BLOCKS];
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                bytes[h] = quad_bytes(code, how, at, q, h);
                worst = code == TTK_E4M3 ? nan_seen(worst, bytes[h]) : worst;
            }
            TTK_UNROLL
            for (int i = 0; i < QUAD; i++) {
                __m512 x_k = load_x(code, how, x + k + q * QUAD + i);
                TTK_UNROLL
                for (int h = 0; h < BLOCKS; h++) {
                    __m512 f = quad_floats(code, how, bytes[h], shift[h], i);
                    s[h] = _mm512_fmadd_ps(x_k, f, s[h]);
                }
            }
        }
    }
    if (k < n_k) {
        TTK_UNROLL
        for (int q = 0; q < unit / QUAD; q++) {
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                __m512i bytes = quad_bytes(code, how, at, q, h);
                worst = code == TTK_E4M3 ? nan_seen(worst, bytes) : worst;
                TTK_UNROLL
                for (int i = 0; i < QUAD; i++) {
                    if (k + q * QUAD + i < n_k) {
                        __m512 x_k = load_x(code, how, x + k + q * QUAD + i);
                        __m512 f = quad_floats(code, how, bytes, shift[h], i);
                        s[h] = _mm512_fmadd_ps(x_k, f, s[h]);
                    }
                }
            }
        }
    }
    TTK_UNROLL
    for (int h = 0; h < BLOCKS; h++) {
        sum[h] = s[h];
    }
    if (code == TTK_E4M3 && has_nan(worst)) {
        spoil_nan(sum, codes, n_k);
    }
}

TTK_INLINE void row_by_panel(ttk_dtype code, way how, const job *w, float *acc, const float *x,
                             const unsigned char *panel)
{
    ttk_quant_place place = ttk_quant_place_of(&w->shape, w->g_begin);
    for (int64_t g = w->g_begin; g < w->g_end; g++) {
        __m512 sum[BLOCKS];
        float scale[1][TTK_PANEL], offset[1][TTK_PANEL];
        place_factors(w->format, &w->shape, panel, &place, scale, offset);
        row_by_group(code, how, sum, x + g * w->shape.group, panel + place.codes, place.n_k,
                     zeros_of(w, panel, &place));
        TTK_UNROLL
        for (int h = 0; h < BLOCKS; h++) {
            __m512 a = _mm512_loadu_ps(acc + h * VEC);
            if (sum_factor(code, how) != 1.0f) {
                sum[h] = _mm512_mul_ps(sum[h], _mm512_set1_ps(sum_factor(code, how)));
            }
            a = _mm512_fmadd_ps(_mm512_loadu_ps(scale[0] + h * VEC), sum[h], a);
            if (w->x_sums) {
                __m512 x_sum = _mm512_set1_ps(*(w->x_sums + (g - w->g_begin)));
                a = _mm512_fmadd_ps(_mm512_loadu_ps(offset[0] + h * VEC), x_sum, a);
            }
            _mm512_storeu_ps(acc + h * VEC, a);
        }
        ttk_quant_advance(&w->shape, &place);
    }
}

TTK_INLINE void row_of_code(ttk_dtype code, const job *w, float *acc, const float *x,
                            const unsigned char *panel)
{
    if (w->how == WAY_WHOLE) {
        row_by_panel(code, WAY_WHOLE, w, acc, x, panel);
    } else if (code == TTK_E4M3) {
        row_by_panel(code, WAY_EXACT, w, acc, x, panel);
    } else {
        row_by_panel(code, WAY_ZERO, w, acc, x, panel);
    }
}

static void one_row(const job *w, float *acc, const float *x, const unsigned char *panel)
{
    switch (w->format->code) {
    case TTK_I8:
        row_of_code(TTK_I8, w, acc, x, panel);
        break;
    case TTK_U8:
        row_of_code(TTK_U8, w, acc, x, panel);
        break;
    case TTK_I4:
        row_of_code(TTK_I4, w, acc, x, panel);
        break;
    case TTK_U4:
        row_of_code(TTK_U4, w, acc, x, panel);
        break;
    case TTK_I6:
        row_of_code(TTK_I6, w, acc, x, panel);
        break;
    case TTK_E2M1:
        row_of_code(TTK_E2M1, w, acc, x, panel);
        break;
    default:
        row_of_code(TTK_E4M3, w, acc, x, panel);
        break;
    }
}

/* ---- more rows ---- */

/* Some groups of a panel, or a part of one, as floats. */
typedef struct block {
    float w[BLOCK_K][TTK_PANEL];
    float scale[BLOCK_GROUPS][TTK_PANEL], offset[BLOCK_GROUPS][TTK_PANEL];
    int64_t n_k[BLOCK_GROUPS];
    int n_groups;
    int64_t g, k; /* the first group, and its first input in this block, from its begin */
    bool begins;  /* the first group begins here; others do so always */
    bool ends;    /* the last group ends here; others do so always */
} block;

/* w[n_k][TTK_PANEL] from codes at a unit's start; whole units are written. */
TTK_INLINE void decode(ttk_dtype code, way how, float (*w)[TTK_PANEL], const unsigned char *codes,
                       int64_t n_k, const unsigned char *zero)
{
    const int64_t unit = ttk_quant_unit(code);
    const int64_t unit_bytes = (int64_t)ttk_quant_code_bytes(code, unit);
    __m512 shift[BLOCKS];
    load_shifts(code, how, zero, shift);
    __m512i worst = _mm512_setzero_si512();
    for (int64_t k = 0; k < n_k; k += unit) {
        const unsigned char *at = codes + k / unit * unit_bytes;
        TTK_UNROLL
        for (int q = 0; q < unit / QUAD; q++) {
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                __m512i bytes = quad_bytes(code, how, at, q, h);
                worst = code == TTK_E4M3 ? nan_seen(worst, bytes) : worst;
                TTK_UNROLL
                for (int i = 0; i < QUAD; i++) {
                    _mm512_storeu_ps(&w[k + q * QUAD + i][h * VEC],
                                     quad_floats(code, how, bytes, shift[h], i));
                }
            }
        }
    }
    if (code == TTK_E4M3 && has_nan(worst)) {
        for (int64_t k = 0; k < n_k; k++) {
            for (int64_t j = 0; j < TTK_PANEL; j++) {
                w[k][j] = is_nan_code(ttk_quant_code(code, codes, k, j)) ? NAN : w[k][j];
            }
        }
    }
}

TTK_INLINE void decode_code(ttk_dtype code, way how, float (*w)[TTK_PANEL],
                            const unsigned char *codes, int64_t n_k, const unsigned char *zero)
{
    if (how == WAY_WHOLE) {
        decode(code, WAY_WHOLE, w, codes, n_k, zero);
    } else {
        decode(code, WAY_ZERO, w, codes, n_k, zero);
    }
}

static void decode_any(ttk_dtype code, way how, float (*w)[TTK_PANEL], const unsigned char *codes,
                       int64_t n_k, const unsigned char *zero)
{
    switch (code) {
    case TTK_I8:
        decode_code(TTK_I8, how, w, codes, n_k, zero);
        break;
    case TTK_U8:
        decode_code(TTK_U8, how, w, codes, n_k, zero);
        break;
    case TTK_I4:
        decode_code(TTK_I4, how, w, codes, n_k, zero);
        break;
    case TTK_U4:
        decode_code(TTK_U4, how, w, codes, n_k, zero);
        break;
    case TTK_I6:
        decode_code(TTK_I6, how, w, codes, n_k, zero);
        break;
    case TTK_E2M1:
        decode_code(TTK_E2M1, how, w, codes, n_k, zero);
        break;
    default:
        decode(TTK_E4M3, WAY_EXACT, w, codes, n_k, zero);
        break;
    }
}

/* A codes' unit is at most 16 k, so that blocks of parts of a group begin with a unit. */
static void fill_block(block *b, const job *w, const unsigned char *panel, ttk_quant_place *place,
                       int64_t *k)
{
    b->g = place->g;
    b->k = *k;
    b->begins = *k == 0;
    b->ends = true;
    b->n_groups = 0;
    for (int64_t filled = 0; place->g < w->g_end && b->n_groups < BLOCK_GROUPS;) {
        const int64_t unit = ttk_quant_unit(w->format->code);
        int64_t n_k = place->n_k - *k, room = BLOCK_K - filled;
        int64_t padded = (n_k + unit - 1) / unit * unit;
        if (padded > room && b->n_groups > 0) {
            break;
        }
        n_k = padded > room ? BLOCK_K : n_k;
        const unsigned char *codes =
            panel + place->codes + ttk_quant_code_bytes(w->format->code, *k);
        decode_any(w->format->code, w->how, b->w + filled, codes, n_k, zeros_of(w, panel, place));
        b->n_k[b->n_groups] = n_k;
        b->ends = *k + n_k == place->n_k;
        if (!b->ends) {
            *k += n_k;
            b->n_groups++;
            return;
        }
        place_factors(w->format, &w->shape, panel, place, &b->scale[b->n_groups],
                      &b->offset[b->n_groups]);
        b->n_groups++;
        filled += padded;
        *k = 0;
        ttk_quant_advance(&w->shape, place);
    }
}

/* Rows of sums: of the groups so far, and of the group that goes on in the next block. */
typedef struct row_sums {
    float acc[GROUP_ROWS][TTK_PANEL], part[GROUP_ROWS][TTK_PANEL];
} row_sums;

/* rows by the panel. x is at row m of the sums, and at the block's first input. */
TTK_INLINE void tile(const job *w, const block *b, row_sums *sums, int64_t m, const float *x,
                     int64_t ldx, int rows)
{
    const float *weights = b->w[0];
    const __m512 factor = _mm512_set1_ps(sum_factor(w->format->code, w->how));
    for (int g = 0; g < b->n_groups; g++) {
        __m512 sum[2 * TILE_ROWS];
        TTK_UNROLL
        for (int i = 0; i < 2 * rows; i++) {
            const float *from = &sums->part[m + i / 2][i % 2 * VEC];
            sum[i] = b->begins || g > 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(from);
        }
        const int64_t n_k = b->n_k[g];
        for (int64_t k = 0; k < n_k; k++) {
            __m512 w0 = _mm512_loadu_ps(weights + k * TTK_PANEL);
            __m512 w1 = _mm512_loadu_ps(weights + k * TTK_PANEL + VEC);
            TTK_UNROLL
            for (int r = 0; r < rows; r++) {
                __m512 x_k = _mm512_set1_ps(x[r * ldx + k]);
                sum[2 * r] = _mm512_fmadd_ps(x_k, w0, sum[2 * r]);
                sum[2 * r + 1] = _mm512_fmadd_ps(x_k, w1, sum[2 * r + 1]);
            }
        }
        TTK_UNROLL
        for (int i = 0; i < 2 * rows; i++) {
            int r = i / 2, column = i % 2 * VEC;
            if (!b->ends && g == b->n_groups - 1) {
                _mm512_storeu_ps(&sums->part[m + r][column], sum[i]);
                continue;
            }
            __m512 a = _mm512_loadu_ps(&sums->acc[m + r][column]);
            sum[i] = _mm512_mul_ps(sum[i], factor);
            a = _mm512_fmadd_ps(_mm512_loadu_ps(&b->scale[g][column]), sum[i], a);
            if (w->x_sums) {
                const float *x_sum =
                    w->x_sums + (m + r) * (w->g_end - w->g_begin) + b->g + g - w->g_begin;
                a = _mm512_fmadd_ps(_mm512_loadu_ps(&b->offset[g][column]), _mm512_set1_ps(*x_sum),
                                    a);
            }
            _mm512_storeu_ps(&sums->acc[m + r][column], a);
        }
        const int64_t unit = ttk_quant_unit(w->format->code);
        weights += (n_k + unit - 1) / unit * unit * TTK_PANEL;
        x += n_k;
    }
}

/* As TTK_CONSTANT_ROWS would do it, with which 2 and 3 rows came out 7 % slower. */
static void rows_by_block(const job *w, const block *b, row_sums *sums, int64_t m, const float *x,
                          int64_t ldx, int64_t rows)
{
    switch (rows) {
    case 1:
        tile(w, b, sums, m, x, ldx, 1);
        break;
    case 2:
        tile(w, b, sums, m, x, ldx, 2);
        break;
    case 3:
        tile(w, b, sums, m, x, ldx, 3);
        break;
    case 4:
        tile(w, b, sums, m, x, ldx, 4);
        break;
    case 5:
        tile(w, b, sums, m, x, ldx, 5);
        break;
    case 6:
        tile(w, b, sums, m, x, ldx, 6);
        break;
    case 7:
        tile(w, b, sums, m, x, ldx, 7);
        break;
    default:
        tile(w, b, sums, m, x, ldx, TILE_ROWS);
        break;
    }
}

/* M rows (2 .. GROUP_ROWS) by one panel. */
static void rows_by_panel(const job *w, row_sums *sums, const float *x, int64_t ldx, int64_t M,
                          const unsigned char *panel)
{
    const int64_t n_tiles = (M + TILE_ROWS - 1) / TILE_ROWS;
    ttk_quant_place place = ttk_quant_place_of(&w->shape, w->g_begin);
    int64_t k = 0;
    while (place.g < w->g_end) {
        block b;
        fill_block(&b, w, panel, &place, &k);
        const float *x_block = x + b.g * w->shape.group + b.k;
        for (int64_t ahead = 0; ahead < BLOCK_K * TTK_PANEL; ahead += LINE_BYTES) {
            _mm_prefetch((const char *)panel + place.codes + ahead, _MM_HINT_T0);
        }
        int64_t tiles_left = n_tiles;
        for (int64_t m = 0; m < M; tiles_left--) {
            int64_t rows = (M - m + tiles_left - 1) / tiles_left;
            rows_by_block(w, &b, sums, m, x_block + m * ldx, ldx, rows);
            m += rows;
        }
    }
}

/* ---- the whole ---- */

/* M rows (1 .. GROUP_ROWS) for the groups of this turn. */
static void rows_by_groups(const job *w, float *y, int64_t ldy, const float *x, int64_t ldx,
                           const unsigned char *panels, int64_t M, int64_t N)
{
    const size_t panel_bytes = ttk_panel_bytes(w->format, w->shape.K);
    row_sums sums;
    for (int64_t n = 0; n < N; n += TTK_PANEL) {
        const unsigned char *panel = panels + (size_t)(n / TTK_PANEL) * panel_bytes;
        for (int64_t m = 0; m < M; m++) {
            load_sums(sums.acc[m], y + m * ldy + n, N - n, w->g_begin == 0);
        }
        if (M == 1) {
            one_row(w, sums.acc[0], x, panel);
        } else {
            rows_by_panel(w, &sums, x, ldx, M, panel);
        }
        for (int64_t m = 0; m < M; m++) {
            store_sums(y + m * ldy + n, sums.acc[m], N - n);
        }
    }
}

/* Several rows use exact numbers of E4M3 anyhow, as they are made once for all. */
static way way_of(const ttk_format *format, const float *x, int64_t ldx, int64_t M, int64_t K)
{
    const way slow = format->code == TTK_E4M3 ? WAY_EXACT : WAY_ZERO;
    if (format->shift == TTK_SHIFT_ZERO || (format->code == TTK_E4M3 && M > 1)) {
        return slow;
    }
    for (int64_t m = 0; m < M; m++) {
        if (!x_fits(format->code, x + m * ldx, K)) {
            return slow;
        }
    }
    return WAY_WHOLE;
}

void ttk_gemm_quant_avx512(float *y, int64_t ldy, const float *x, int64_t ldx,
                           const ttk_format *format, const void *panels, int64_t M, int64_t N,
                           int64_t K)
{
    if (format->code == TTK_E4M3 && format->shift == TTK_SHIFT_ZERO) { /* nobody has it */
        ttk_gemm_quant_ref(y, ldy, x, ldx, format, panels, M, N, K);
        return;
    }
    float x_sums[X_SUMS];
    job w = {.format = format, .shape = ttk_quant_shape_of(format, K)};
    const bool has_offset = format->shift == TTK_SHIFT_OFFSET;
    for (int64_t m = 0; m < M; m += GROUP_ROWS) {
        int64_t rows = M - m < GROUP_ROWS ? M - m : GROUP_ROWS;
        int64_t turn = has_offset && w.shape.G > X_SUMS / rows ? X_SUMS / rows : w.shape.G;
        w.how = way_of(format, x + m * ldx, ldx, rows, K);
        w.g_begin = 0;
        do {
            w.g_end = w.g_begin + turn < w.shape.G ? w.g_begin + turn : w.shape.G;
            w.x_sums = has_offset ? x_sums : NULL;
            for (int64_t r = 0; has_offset && r < rows; r++) {
                sums_of_groups(x_sums + r * (w.g_end - w.g_begin), x + (m + r) * ldx, &w.shape,
                               w.g_begin, w.g_end);
            }
            rows_by_groups(&w, y + m * ldy, ldy, x + m * ldx, ldx, panels, rows, N);
            w.g_begin = w.g_end;
        } while (w.g_begin < w.shape.G);
    }
}
