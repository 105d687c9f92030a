/* gemm_act8_amx.c - product of int8 rows with packed quantised weights on AMX.
 *
 * Up to 16 rows by 16 columns of a segment are one tile product, whose exact sums are stored and
 * then scaled and added by vectors: while the tiles of one step (some segments of 16 rows) are
 * multiplied, those of the step before are scaled. Storing a tile takes as long as its product, and
 * neither goes on beside much else, so this gains no more than 1.1 to 1.3 times over VNNI, at 32
 * rows and more. It gains nothing where there are offsets, zeros or segments of 16 inputs, and
 * loses with few rows: all of that goes the way of VNNI, which has the same bits. */
#include "act8_avx512.h"
#include "amx.h"
#include "ttk_versions.h"

enum {
    LEAST_ROWS = 32,         /* measured: 16 threads at 16 rows lose 6 % */
    STEP_SEGMENTS = 2,       /* whose sums are added to y's at once; they take 4 KiB, twice */
    LARGEST_STRIDE = 1 << 26 /* offsets of 16 rows are 32 bits */
};

/* A group of rows in tiles of one height. The last may overlap the one before it; its sums are its
 * own. */
typedef struct tiling {
    int64_t n, height;
    int64_t row[GROUP_ROWS / AMX_ROWS]; /* the first of each */
} tiling;

typedef int32_t segment_sums[AMX_ROWS][TTK_PANEL];

typedef struct pipeline {
    const job *w;
    const block *b;
    const tiling *tiles;
    float (*acc)[TTK_PANEL];   /* acc[tiles->n * AMX_ROWS] */
    int steps;                 /* of a tile */
    size_t filled, tile_bytes; /* of a segment: fetched for the next block while this one is made
                                * ready, and by each tile */
    /* of the rows, by the tile's parity */
    float scale[2][BLOCK_SEGMENTS][AMX_ROWS] __attribute__((aligned(TTK_LINE_BYTES)));
    /* by the step's */
    segment_sums sums[2][STEP_SEGMENTS] __attribute__((aligned(TTK_LINE_BYTES)));
} pipeline;

static void load_row_scales(pipeline *p, int64_t tile)
{
    const job *w = p->w;
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)w->stride));
    const __mmask16 mask = vec_mask(p->tiles->height);
    const ttk_act8_row row = ttk_act8_row_at(w->rows, w->stride, p->tiles->row[tile], w->shape.K);
    const float *from = row.scale + segment_at(w, p->b->at);
    for (int s = 0; s < p->b->n; s++) {
        _mm512_store_ps(p->scale[tile % 2][s],
                        _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, at, from + s, 1));
    }
}

/* Segment i of a step. Two sets of tiles take turns. */
TTK_INLINE void multiply(pipeline *p, int64_t step, int i)
{
    const int64_t tile = step / p->steps, s = step % p->steps * STEP_SEGMENTS + i;
    if (s >= p->b->n) {
        return;
    }
    const job *w = p->w;
    const unsigned char *codes = p->b->codes[s];
    const unsigned char *rows =
        w->rows + (size_t)p->tiles->row[tile] * w->stride + p->b->at + s * TTK_ACT_GROUP;
    int32_t(*sums)[TTK_PANEL] = p->sums[step % 2][i];
    fetch(p->b->ahead[s] + p->filled + (size_t)tile * p->tile_bytes, p->tile_bytes);
    if (i % 2 == 0) {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_LOAD(4, rows, w->stride);
        AMX_LOAD(6, codes, TTK_PLANE_BYTES);
        AMX_LOAD(7, codes + AMX_ROW_BYTES, TTK_PLANE_BYTES);
        AMX_DOT_I8(0, 4, 6);
        AMX_DOT_I8(1, 4, 7);
        AMX_STORE(0, sums[0], sizeof(sums[0]));
        AMX_STORE(1, sums[0] + VEC, sizeof(sums[0]));
    } else {
        AMX_ZERO(2);
        AMX_ZERO(3);
        AMX_LOAD(5, rows, w->stride);
        AMX_LOAD(6, codes, TTK_PLANE_BYTES);
        AMX_LOAD(7, codes + AMX_ROW_BYTES, TTK_PLANE_BYTES);
        AMX_DOT_I8(2, 5, 6);
        AMX_DOT_I8(3, 5, 7);
        AMX_STORE(2, sums[0], sizeof(sums[0]));
        AMX_STORE(3, sums[0] + VEC, sizeof(sums[0]));
    }
}

/* Adds n segments, which are segments `first` and on of the block, of a step for rows [begin, end)
 * of its tile. */
TTK_INLINE void add_rows(pipeline *p, int64_t step, int n, int64_t first, int64_t begin,
                         int64_t end)
{
    const int64_t tile = step / p->steps;
    const float(*x_scale)[AMX_ROWS] = (const float(*)[AMX_ROWS])p->scale[tile % 2] + first;
    segment_sums *sums = &p->sums[step % 2][first % STEP_SEGMENTS];
    float(*acc)[TTK_PANEL] = p->acc + tile * AMX_ROWS;
    __m512 scale[STEP_SEGMENTS * BLOCKS];
    TTK_UNROLL
    for (int i = 0; i < n * BLOCKS; i++) {
        scale[i] = _mm512_load_ps(&p->b->scale[first + i / BLOCKS][i % BLOCKS * VEC]);
    }
    for (int64_t r = begin; r < end; r++) {
        __m512 a[BLOCKS] = {_mm512_load_ps(acc[r]), _mm512_load_ps(acc[r] + VEC)};
        TTK_UNROLL
        for (int i = 0; i < n; i++) {
            const __m512 x = _mm512_set1_ps(x_scale[i][r]);
            TTK_UNROLL
            for (int h = 0; h < BLOCKS; h++) {
                const __m512 d = _mm512_cvtepi32_ps(_mm512_load_si512(&sums[i][r][h * VEC]));
                a[h] = _mm512_fmadd_ps(_mm512_mul_ps(scale[i * BLOCKS + h], x), d, a[h]);
            }
        }
        _mm512_store_ps(acc[r], a[0]);
        _mm512_store_ps(acc[r] + VEC, a[1]);
    }
}

TTK_INLINE void add_step(pipeline *p, int64_t step, int64_t begin, int64_t end)
{
    const int64_t first = step % p->steps * STEP_SEGMENTS;
    if (p->b->n - first >= STEP_SEGMENTS) {
        add_rows(p, step, STEP_SEGMENTS, first, begin, end);
        return;
    }
    for (int64_t s = first; s < p->b->n; s++) {
        add_rows(p, step, 1, s, begin, end);
    }
}

/* All tiles through the block. */
static void rows_by_block(pipeline *p)
{
    const int64_t steps = p->tiles->n * p->steps, height = p->tiles->height;
    load_row_scales(p, 0);
    TTK_UNROLL
    for (int i = 0; i < STEP_SEGMENTS; i++) {
        multiply(p, 0, i);
    }
    for (int64_t step = 0; step < steps; step++) {
        const int64_t ahead = step + 1;
        if (ahead < steps && ahead % p->steps == 0) {
            load_row_scales(p, ahead / p->steps);
        }
        TTK_UNROLL
        for (int i = 0; i < STEP_SEGMENTS; i++) {
            if (ahead < steps) {
                multiply(p, ahead, i);
            }
            add_step(p, step, height * i / STEP_SEGMENTS, height * (i + 1) / STEP_SEGMENTS);
        }
    }
}

/* M >= height. */
static tiling tiling_of(int64_t M, int64_t height)
{
    tiling t = {.n = (M + height - 1) / height, .height = height};
    for (int64_t i = 0; i < t.n; i++) {
        t.row[i] = i * height < M - height ? i * height : M - height;
    }
    return t;
}

static void group_by_panel(float *y, int64_t ldy, const job *w, const unsigned char *panel,
                           const tiling *tiles, int64_t n)
{
    float acc[GROUP_ROWS][TTK_PANEL] __attribute__((aligned(TTK_LINE_BYTES)));
    block b __attribute__((aligned(TTK_LINE_BYTES)));
    pipeline p;
    walk at = walk_of(w, panel);
    memset(acc, 0, (size_t)(tiles->n * AMX_ROWS) * sizeof(acc[0]));
    p.w = w;
    p.b = &b;
    p.tiles = tiles;
    p.acc = acc;
    p.filled = fill_bytes(w, tiles->n * tiles->height);
    p.tile_bytes = (w->segment_bytes - p.filled) / (size_t)tiles->n + 1;
    while (at.at < w->shape.K) {
        fill_block(true, w, &at, p.filled, &b);
        p.steps = (b.n + STEP_SEGMENTS - 1) / STEP_SEGMENTS;
        rows_by_block(&p);
    }
    for (int64_t t = 0; t < tiles->n; t++) {
        for (int64_t r = 0; r < tiles->height; r++) {
            store_sums(y + (tiles->row[t] + r) * ldy, acc[t * AMX_ROWS + r], n);
        }
    }
}

static void configure(int64_t height)
{
    amx_config config = {0};
    for (int tile = 0; tile < AMX_TILES; tile++) {
        const bool is_rows = tile == 4 || tile == 5;
        amx_set_tile(&config, tile, tile >= 6 ? TTK_ACT_GROUP / QUAD : height,
                     is_rows ? TTK_ACT_GROUP : AMX_ROW_BYTES);
    }
    amx_begin(&config);
}

void ttk_gemm_act8_amx(float *y, int64_t ldy, const void *rows, size_t stride,
                       const ttk_format *format, const void *panels, int64_t M, int64_t N,
                       int64_t K)
{
    job w = job_of(format, rows, stride, K);
    if (M < LEAST_ROWS || w.segment != TTK_ACT_GROUP || format->code == TTK_U8 ||
        act8_kind_of(format) != KIND_PLAIN || stride > LARGEST_STRIDE) {
        ttk_gemm_act8_vnni(y, ldy, rows, stride, format, panels, M, N, K);
        return;
    }
    /* Groups and tiles of nearly equal height, all of one shape: 17 rows are two tiles of 9. */
    const int64_t groups = (M + GROUP_ROWS - 1) / GROUP_ROWS, group = (M + groups - 1) / groups;
    const int64_t n_tiles = (group + AMX_ROWS - 1) / AMX_ROWS,
                  height = (group + n_tiles - 1) / n_tiles;
    const tiling tiles = tiling_of(group, height);
    const size_t panel_bytes = ttk_panel_bytes(format, K);
    configure(height);
    for (int64_t n = 0; n < N; n += TTK_PANEL) {
        const unsigned char *panel =
            (const unsigned char *)panels + (size_t)(n / TTK_PANEL) * panel_bytes;
        for (int64_t i = 0; i < groups; i++) {
            const int64_t m = i * group < M - group ? i * group : M - group;
            w.rows = (const unsigned char *)rows + (size_t)m * stride;
            group_by_panel(y + m * ldy + n, ldy, &w, panel, &tiles, N - n);
        }
    }
    amx_end();
}
