/* gemm_bf16_pairs_amx.c - product of rows rounded to bf16 with packed bf16 weights on AMX.
 *
 * For some rows and a chunk of k at a time: the rows are rounded once for all panels; of each panel
 * the chunk is paired, so that 32 bits of a column hold k and k + 1, once for all rows; then tiles
 * of up to 16 rows by 16 columns go through it, two by two, which takes a while: so each of these
 * passes asks memory for a part of the next chunk. Between chunks the sums wait in y. */
#include "amx.h"
#include "vec_avx512.h"
#include "ttk_versions.h"

enum {
    GROUP_ROWS = 64, /* rows that share a paired chunk; rounded they take 64 KiB */
    CHUNK_K = 512,   /* paired 32 KiB */
    TILE_K = 32,
    PAIR_ROW_BYTES = 4 * TTK_PANEL, /* of two k */
    MAX_TILES = GROUP_ROWS / AMX_ROWS
};

/* Tiles of one height; the last may overlap the one before it, and has sums of its own. */
typedef struct tiling {
    int64_t n, height;
    int64_t row[MAX_TILES]; /* the first of each */
} tiling;

typedef struct chunk {
    ttk_bf16 x[GROUP_ROWS][CHUNK_K + TILE_K]; /* not a power of two apart */
    unsigned char w[CHUNK_K / 2 * PAIR_ROW_BYTES];
    float acc[MAX_TILES * AMX_ROWS][TTK_PANEL];
    int64_t n_k;      /* whole TILE_K; beyond K all is 0 */
    const char *next; /* what is to be fetched, */
    int64_t fetch;    /* and of each input of weights how many bytes in a pass */
} chunk;

/* A pass's part of the next chunk, for n inputs from k on. */
static inline void fetch_part(const chunk *c, int64_t pass, int64_t k, int64_t n)
{
    const char *from = c->next + pass * c->n_k * c->fetch + k * c->fetch;
    for (int64_t line = 0; line < n * c->fetch; line += AMX_ROW_BYTES) {
        _mm_prefetch(from + line, _MM_HINT_T1);
    }
}

static void round_rows(chunk *c, const float *x, int64_t ldx, int64_t M, int64_t n_k)
{
    c->n_k = (n_k + TILE_K - 1) / TILE_K * TILE_K;
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < c->n_k; k += 2 * VEC) { /* the instruction takes denormal numbers
                                                         * for 0, too */
            const __m512 low = _mm512_maskz_loadu_ps(vec_mask(n_k - k), x + m * ldx + k);
            const __m512 high =
                _mm512_maskz_loadu_ps(vec_mask(n_k - k - VEC), x + m * ldx + k + VEC);
            _mm512_store_si512(&c->x[m][k], (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    }
}

static void pair_weights(chunk *c, const ttk_bf16 *w, int64_t n_k)
{
    const __m512i low = _mm512_setr_epi32(
        0x200000, 0x210001, 0x220002, 0x230003, 0x240004, 0x250005, 0x260006, 0x270007, 0x280008,
        0x290009, 0x2a000a, 0x2b000b, 0x2c000c, 0x2d000d, 0x2e000e, 0x2f000f);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    unsigned char *to = c->w;
    for (int64_t k = 0; k < c->n_k; k += 2, to += PAIR_ROW_BYTES) {
        const __m512i even =
            k < n_k ? _mm512_load_si512(w + k * TTK_PANEL) : _mm512_setzero_si512();
        const __m512i odd =
            k + 1 < n_k ? _mm512_load_si512(w + (k + 1) * TTK_PANEL) : _mm512_setzero_si512();
        fetch_part(c, 0, k, 2);
        _mm512_store_si512(to, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_store_si512(to + AMX_ROW_BYTES, _mm512_permutex2var_epi16(even, high, odd));
    }
}

/* Two tiles of rows by a panel. */
static void multiply_two(chunk *c, int64_t pass, int64_t row_0, int64_t row_1,
                         float (*acc)[TTK_PANEL])
{
    enum { STRIDE = sizeof(c->x[0]), ACC_STRIDE = sizeof(acc[0]) };
    AMX_LOAD(0, acc[0], ACC_STRIDE);
    AMX_LOAD(1, acc[0] + VEC, ACC_STRIDE);
    AMX_LOAD(2, acc[AMX_ROWS], ACC_STRIDE);
    AMX_LOAD(3, acc[AMX_ROWS] + VEC, ACC_STRIDE);
    const unsigned char *w = c->w;
    for (int64_t k = 0; k < c->n_k; k += TILE_K, w += TILE_K / 2 * PAIR_ROW_BYTES) {
        fetch_part(c, pass, k, TILE_K);
        AMX_LOAD(4, &c->x[row_0][k], STRIDE);
        AMX_LOAD(6, w, PAIR_ROW_BYTES);
        AMX_LOAD(7, w + AMX_ROW_BYTES, PAIR_ROW_BYTES);
        AMX_DOT_BF16(0, 4, 6);
        AMX_DOT_BF16(1, 4, 7);
        AMX_LOAD(5, &c->x[row_1][k], STRIDE);
        AMX_DOT_BF16(2, 5, 6);
        AMX_DOT_BF16(3, 5, 7);
    }
    AMX_STORE(0, acc[0], ACC_STRIDE);
    AMX_STORE(1, acc[0] + VEC, ACC_STRIDE);
    AMX_STORE(2, acc[AMX_ROWS], ACC_STRIDE);
    AMX_STORE(3, acc[AMX_ROWS] + VEC, ACC_STRIDE);
}

/* One. */
static void multiply_one(chunk *c, int64_t pass, int64_t row, float (*acc)[TTK_PANEL])
{
    enum { STRIDE = sizeof(c->x[0]), ACC_STRIDE = sizeof(acc[0]) };
    AMX_LOAD(0, acc[0], ACC_STRIDE);
    AMX_LOAD(1, acc[0] + VEC, ACC_STRIDE);
    const unsigned char *w = c->w;
    for (int64_t k = 0; k < c->n_k; k += TILE_K, w += TILE_K / 2 * PAIR_ROW_BYTES) {
        fetch_part(c, pass, k, TILE_K);
        AMX_LOAD(4, &c->x[row][k], STRIDE);
        AMX_LOAD(6, w, PAIR_ROW_BYTES);
        AMX_LOAD(7, w + AMX_ROW_BYTES, PAIR_ROW_BYTES);
        AMX_DOT_BF16(0, 4, 6);
        AMX_DOT_BF16(1, 4, 7);
    }
    AMX_STORE(0, acc[0], ACC_STRIDE);
    AMX_STORE(1, acc[0] + VEC, ACC_STRIDE);
}

/* y[rows][n_columns] += the chunk's rows by its weights. */
static void rows_by_chunk(float *y, int64_t ldy, chunk *c, const tiling *tiles, int64_t n_columns,
                          bool is_first)
{
    const __mmask16 mask[2] = {vec_mask(n_columns), vec_mask(n_columns - VEC)};
    for (int64_t t = 0; t < tiles->n; t++) {
        for (int64_t r = 0; r < tiles->height; r++) {
            float *acc = c->acc[t * AMX_ROWS + r];
            const float *from = y + (tiles->row[t] + r) * ldy;
            for (int h = 0; h < 2; h++) {
                _mm512_store_ps(acc + h * VEC,
                                _mm512_maskz_loadu_ps(is_first ? 0 : mask[h], from + h * VEC));
            }
        }
    }
    int64_t t = 0;
    for (; t + 2 <= tiles->n; t += 2) {
        multiply_two(c, 1 + t / 2, tiles->row[t], tiles->row[t + 1], c->acc + t * AMX_ROWS);
    }
    if (t < tiles->n) {
        multiply_one(c, 1 + t / 2, tiles->row[t], c->acc + t * AMX_ROWS);
    }
    for (t = 0; t < tiles->n; t++) {
        for (int64_t r = 0; r < tiles->height; r++) {
            const float *acc = c->acc[t * AMX_ROWS + r];
            for (int h = 0; h < 2; h++) {
                _mm512_mask_storeu_ps(y + (tiles->row[t] + r) * ldy + h * VEC, mask[h],
                                      _mm512_load_ps(acc + h * VEC));
            }
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

static void configure(int64_t height)
{
    amx_config config = {0};
    for (int tile = 0; tile < AMX_TILES; tile++) {
        amx_set_tile(&config, tile, tile >= 6 ? AMX_ROWS : height, AMX_ROW_BYTES);
    }
    amx_begin(&config);
}

static void zero_rows(float *y, int64_t ldy, int64_t M, int64_t N)
{
    for (int64_t m = 0; m < M; m++) {
        memset(y + m * ldy, 0, (size_t)N * sizeof(*y));
    }
}

void ttk_gemm_bf16_pairs_amx(float *y, int64_t ldy, const float *x, int64_t ldx,
                             const ttk_bf16 *panels, int64_t M, int64_t N, int64_t K)
{
    chunk c __attribute__((aligned(64)));
    if (M <= 0 || N <= 0 || K <= 0) {
        zero_rows(y, ldy, M, N);
        return;
    }
    /* Groups and tiles of nearly equal height, all of one shape: 17 rows are two tiles of 9. */
    const int64_t groups = (M + GROUP_ROWS - 1) / GROUP_ROWS, group = (M + groups - 1) / groups;
    const int64_t n_tiles = (group + AMX_ROWS - 1) / AMX_ROWS,
                  height = (group + n_tiles - 1) / n_tiles;
    const tiling tiles = tiling_of(group, height);
    configure(height);
    c.fetch = TTK_PANEL * (int64_t)sizeof(ttk_bf16) / (1 + (tiles.n + 1) / 2);
    for (int64_t i = 0; i < groups; i++) {
        const int64_t m = i * group < M - group ? i * group : M - group;
        for (int64_t k = 0; k < K; k += CHUNK_K) {
            const int64_t n_k = K - k < CHUNK_K ? K - k : CHUNK_K;
            round_rows(&c, x + m * ldx + k, ldx, group, n_k);
            for (int64_t n = 0; n < N; n += TTK_PANEL) {
                const ttk_bf16 *w = panels + n * K + k * TTK_PANEL;
                c.next = (const char *)(n + TTK_PANEL < N ? w + K * TTK_PANEL
                                                          : panels + (k + n_k) * TTK_PANEL);
                pair_weights(&c, w, n_k);
                rows_by_chunk(y + m * ldy + n, ldy, &c, &tiles, N - n, k == 0);
            }
        }
    }
    amx_end();
}
