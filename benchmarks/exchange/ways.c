/* ways.c - the exchange, and what MPI itself offers for the same. The expert is the same
 * everywhere: a row becomes floats, is multiplied, and is rounded to the wire on its way back. */
#include "ways.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include "../bench_rank.h"
#include "ttk.h"

static void must_mpi(int code)
{
    bench_must(code == MPI_SUCCESS ? TT_OK : TT_FAIL(TT_ERR_MPI, "a collective of MPI failed"));
}

/* In blocks of fixed length, which compilers turn into vectors: what is timed is not this. */
static void expert(float *row, int64_t e, int64_t n)
{
    enum { BLOCK = 16 };
    const float factor = load_factor(e);
    int64_t c = 0;
    for (; c + BLOCK <= n; c += BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            row[c + i] *= factor;
        }
    }
    for (; c < n; c++) {
        row[c] *= factor;
    }
}

/* ---- tt_exchange ---- */

typedef struct exchange_way {
    tt_exchange *x;
    tt_stream *compute;
    int32_t first; /* expert with the local number 0 */
    float *row;
} exchange_way;

static void run_exchange(way *w, const load *l, float *y, way_times *times)
{
    exchange_way *s = w->state;
    const double begin = MPI_Wtime();
    times->dispatch_s = 0.0;
    bench_must(tt_exchange_prepare(s->x, 0, l->n, l->slot, l->weight, TT_OK));
    bench_must(tt_exchange_dispatch_begin(s->x, 0, l->x, l->H, s->compute));
    tt_exchange_state state = {0};
    tt_exchange_rows rows;
    do {
        bench_must(tt_exchange_poll(s->x, 0, &state));
        if (state.all_arrived && times->dispatch_s == 0.0) {
            times->dispatch_s = MPI_Wtime() - begin;
        }
        while (tt_exchange_next_ready(s->x, 0, &rows)) {
            for (int32_t i = 0; i < rows.n; i++) {
                tt_exchange_get_row(s->x, &rows, i, s->row);
                expert(s->row, s->first + rows.slot, l->H);
                tt_exchange_put_result(s->x, 0, &rows, i, s->row);
            }
            bench_must(tt_exchange_push(s->x, 0, &rows));
        }
    } while (!state.all_arrived || state.has_ready);
    bench_must(tt_exchange_combine_end(s->x, 0, y, l->H, s->compute));
    times->all_s = MPI_Wtime() - begin;
}

static void close_exchange(way *w)
{
    exchange_way *s = w->state;
    tt_exchange_destroy(&s->x);
    free(s->row);
    free(s);
}

tt_exchange *way_get_exchange(const way *w)
{
    return w->run == run_exchange ? ((const exchange_way *)w->state)->x : NULL;
}

void way_exchange(way *w, tt_world *world, const load *l, tt_route route, tt_combine combine,
                  tt_stream *compute)
{
    exchange_way *s = bench_alloc(1, sizeof(*s));
    int *all = bench_alloc((size_t)l->size, sizeof(*all));
    int32_t *rank = bench_alloc((size_t)l->E, sizeof(*rank)),
            *local = bench_alloc((size_t)l->E, sizeof(*local));
    int64_t first = 0;
    for (int r = 0; r < l->size; r++) {
        all[r] = r;
    }
    for (int64_t e = 0; e < l->E; e++) {
        rank[e] = load_owner(l, e);
        first = e == 0 || rank[e] != rank[e - 1] ? e : first;
        local[e] = (int32_t)(e - first);
        s->first = rank[e] == l->rank && local[e] == 0 ? (int32_t)e : s->first;
    }
    const tt_exchange_params params = {.H = l->H,
                                       .K = l->K,
                                       .max_tokens = l->T,
                                       .n_handles = 1,
                                       .chunk_tokens = l->chunk,
                                       .wire = l->wire,
                                       .wire_back = l->wire_back,
                                       .source = all,
                                       .n_sources = l->size,
                                       .owner = all,
                                       .n_owners = l->size,
                                       .route = route,
                                       .combine = combine};
    bench_must(tt_exchange_create(world, &params, &s->x));
    const tt_owner_map map = {l->E, rank, local};
    bench_must(tt_exchange_set_owners(s->x, &map, 1));
    s->compute = compute;
    s->row = bench_alloc((size_t)l->H, sizeof(*s->row));
    free(all);
    free(rank);
    free(local);
    const bool is_reduced = combine == TT_COMBINE_REDUCED;
    *w = (way){is_reduced               ? "node-reduced"
               : route == TT_ROUTE_NODE ? "node"
                                        : "direct",
               run_exchange, close_exchange, s, is_reduced};
}

/* ---- MPI_Alltoallv ---- */

/* What goes to or comes from each rank, in rows, and where it begins. */
typedef struct lists {
    int *n, *at, total;
} lists;

typedef struct alltoallv_way {
    bool is_naive;
    MPI_Datatype row, result;
    size_t row_bytes, result_bytes;
    lists rows_out, rows_in, entries_out, entries_in;
    int *counts_out, *counts_in; /* rows and entries of each rank */
    unsigned char *row_out, *row_in, *result_out, *result_in;
    int32_t *entry_out, *entry_in; /* expert, and the number of its row among those from that
                                    * rank */
    int *entry_of;                 /* entry_of[T][K]: its place in the list */
    int64_t *last_token;
    float *wide;
} alltoallv_way;

static lists lists_new(int size)
{
    return (lists){bench_alloc((size_t)size, sizeof(int)), bench_alloc((size_t)size, sizeof(int)),
                   0};
}

static void lists_free(lists *l)
{
    free(l->n);
    free(l->at);
}

static void lists_sum(lists *l, int size)
{
    l->total = 0;
    for (int r = 0; r < size; r++) {
        l->at[r] = l->total;
        l->total += l->n[r];
    }
}

/* Counts, then places; rows are rounded to the wire on the way. */
static void pack(alltoallv_way *s, const load *l)
{
    for (int pass = 0; pass < 2; pass++) {
        memset(s->rows_out.n, 0, (size_t)l->size * sizeof(int));
        memset(s->entries_out.n, 0, (size_t)l->size * sizeof(int));
        for (int r = 0; r < l->size; r++) {
            s->last_token[r] = -1;
        }
        for (int64_t t = 0; t < l->n; t++) {
            for (int64_t k = 0; k < l->K; k++) {
                const int32_t e = l->slot[t * l->K + k];
                const int r = load_owner(l, e);
                const bool is_new = s->is_naive || s->last_token[r] != t;
                s->last_token[r] = t;
                s->rows_out.n[r] += is_new;
                if (pass == 1) {
                    const int entry = s->entries_out.at[r] + s->entries_out.n[r],
                              row = s->rows_out.n[r] - 1;
                    s->entry_of[t * l->K + k] = entry;
                    s->entry_out[2 * entry] = e;
                    s->entry_out[2 * entry + 1] = row;
                    if (is_new) {
                        tt_wire_round(l->wire,
                                      s->row_out + (size_t)(s->rows_out.at[r] + row) * s->row_bytes,
                                      l->x + t * l->H, l->H);
                    }
                }
                s->entries_out.n[r]++;
            }
        }
        lists_sum(&s->rows_out, l->size);
        lists_sum(&s->entries_out, l->size);
    }
}

static void run_alltoallv(way *w, const load *l, float *y, way_times *times)
{
    alltoallv_way *s = w->state;
    const double begin = MPI_Wtime();
    pack(s, l);
    for (int r = 0; r < l->size; r++) {
        s->counts_out[2 * r] = s->rows_out.n[r];
        s->counts_out[2 * r + 1] = s->entries_out.n[r];
    }
    must_mpi(MPI_Alltoall(s->counts_out, 2, MPI_INT, s->counts_in, 2, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < l->size; r++) {
        s->rows_in.n[r] = s->counts_in[2 * r];
        s->entries_in.n[r] = s->counts_in[2 * r + 1];
    }
    lists_sum(&s->rows_in, l->size);
    lists_sum(&s->entries_in, l->size);
    must_mpi(MPI_Alltoallv(s->entry_out, s->entries_out.n, s->entries_out.at, MPI_INT64_T,
                           s->entry_in, s->entries_in.n, s->entries_in.at, MPI_INT64_T,
                           MPI_COMM_WORLD));
    must_mpi(MPI_Alltoallv(s->row_out, s->rows_out.n, s->rows_out.at, s->row, s->row_in,
                           s->rows_in.n, s->rows_in.at, s->row, MPI_COMM_WORLD));
    times->dispatch_s = MPI_Wtime() - begin;
    for (int r = 0; r < l->size; r++) {
        for (int i = s->entries_in.at[r]; i < s->entries_in.at[r] + s->entries_in.n[r]; i++) {
            const size_t row = (size_t)(s->rows_in.at[r] + s->entry_in[2 * i + 1]);
            tt_wire_widen(l->wire, s->wide, s->row_in + row * s->row_bytes, l->H);
            expert(s->wide, s->entry_in[2 * i], l->H);
            tt_wire_round(l->wire_back, s->result_out + (size_t)i * s->result_bytes, s->wide, l->H);
        }
    }
    must_mpi(MPI_Alltoallv(s->result_out, s->entries_in.n, s->entries_in.at, s->result,
                           s->result_in, s->entries_out.n, s->entries_out.at, s->result,
                           MPI_COMM_WORLD));
    for (int64_t t = 0; t < l->n; t++) {
        memset(y + t * l->H, 0, (size_t)l->H * sizeof(*y));
        for (int64_t k = 0; k < l->K; k++) {
            tt_wire_widen(l->wire_back, s->wide,
                          s->result_in + (size_t)s->entry_of[t * l->K + k] * s->result_bytes, l->H);
            ttk.axpy_f32(y + t * l->H, l->weight[t * l->K + k], s->wide, l->H);
        }
    }
    times->all_s = MPI_Wtime() - begin;
}

static void close_alltoallv(way *w)
{
    alltoallv_way *s = w->state;
    lists *all[] = {&s->rows_out, &s->rows_in, &s->entries_out, &s->entries_in};
    for (int i = 0; i < 4; i++) {
        lists_free(all[i]);
    }
    MPI_Type_free(&s->row);
    MPI_Type_free(&s->result);
    free(s->counts_out);
    free(s->counts_in);
    free(s->row_out);
    free(s->row_in);
    free(s->result_out);
    free(s->result_in);
    free(s->entry_out);
    free(s->entry_in);
    free(s->entry_of);
    free(s->last_token);
    free(s->wide);
    free(s);
}

void way_alltoallv(way *w, const load *l, bool is_naive)
{
    alltoallv_way *s = bench_alloc(1, sizeof(*s));
    /* All tokens of all ranks can come here, each with all its choices. */
    const size_t out = (size_t)(l->T * l->K), in = (size_t)l->size * out;
    s->is_naive = is_naive;
    s->row_bytes = tt_wire_row_bytes(l->wire, l->H);
    s->result_bytes = tt_wire_row_bytes(l->wire_back, l->H);
    must_mpi(MPI_Type_contiguous((int)s->row_bytes, MPI_BYTE, &s->row));
    must_mpi(MPI_Type_contiguous((int)s->result_bytes, MPI_BYTE, &s->result));
    must_mpi(MPI_Type_commit(&s->row));
    must_mpi(MPI_Type_commit(&s->result));
    lists *all[] = {&s->rows_out, &s->rows_in, &s->entries_out, &s->entries_in};
    for (int i = 0; i < 4; i++) {
        *all[i] = lists_new(l->size);
    }
    s->counts_out = bench_alloc((size_t)l->size, 2 * sizeof(int));
    s->counts_in = bench_alloc((size_t)l->size, 2 * sizeof(int));
    s->row_out = bench_alloc(out, s->row_bytes);
    s->row_in = bench_alloc(in, s->row_bytes);
    s->result_out = bench_alloc(in, s->result_bytes);
    s->result_in = bench_alloc(out, s->result_bytes);
    s->entry_out = bench_alloc(out, 2 * sizeof(int32_t));
    s->entry_in = bench_alloc(in, 2 * sizeof(int32_t));
    s->entry_of = bench_alloc(out, sizeof(int));
    s->last_token = bench_alloc((size_t)l->size, sizeof(int64_t));
    s->wide = bench_alloc((size_t)l->H, sizeof(float));
    *w = (way){is_naive ? "alltoallv-naive" : "alltoallv-dedup", run_alltoallv, close_alltoallv, s,
               false};
}

/* ---- allgather and reduce-scatter ---- */

typedef struct allgather_way {
    MPI_Datatype row, choices;
    size_t row_bytes;
    int *n, *at, *scatter; /* tokens of each rank */
    int64_t all_tokens;
    unsigned char *row_out, *row_in;
    int32_t *choice_out, *choice_in; /* K experts and K weights of a token */
    float *sum, *wide;
} allgather_way;

static void run_allgather(way *w, const load *l, float *y, way_times *times)
{
    allgather_way *s = w->state;
    const size_t K = (size_t)l->K;
    const double begin = MPI_Wtime();
    for (int64_t t = 0; t < l->n; t++) {
        tt_wire_round(l->wire, s->row_out + (size_t)t * s->row_bytes, l->x + t * l->H, l->H);
        memcpy(s->choice_out + (size_t)t * 2 * K, l->slot + (size_t)t * K, K * sizeof(int32_t));
        memcpy(s->choice_out + (size_t)t * 2 * K + K, l->weight + (size_t)t * K, K * sizeof(float));
    }
    must_mpi(MPI_Allgatherv(s->choice_out, (int)l->n, s->choices, s->choice_in, s->n, s->at,
                            s->choices, MPI_COMM_WORLD));
    must_mpi(MPI_Allgatherv(s->row_out, (int)l->n, s->row, s->row_in, s->n, s->at, s->row,
                            MPI_COMM_WORLD));
    times->dispatch_s = MPI_Wtime() - begin;
    for (int64_t t = 0; t < s->all_tokens; t++) {
        float *sum = s->sum + t * l->H;
        memset(sum, 0, (size_t)l->H * sizeof(*sum));
        for (size_t k = 0; k < K; k++) {
            const int32_t e = s->choice_in[(size_t)t * 2 * K + k];
            if (load_owner(l, e) == l->rank) {
                float weight;
                memcpy(&weight, &s->choice_in[(size_t)t * 2 * K + K + k], sizeof(weight));
                tt_wire_widen(l->wire, s->wide, s->row_in + (size_t)t * s->row_bytes, l->H);
                expert(s->wide, e, l->H);
                ttk.axpy_f32(sum, weight, s->wide, l->H);
            }
        }
    }
    must_mpi(MPI_Reduce_scatter(s->sum, y, s->scatter, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    times->all_s = MPI_Wtime() - begin;
}

static void close_allgather(way *w)
{
    allgather_way *s = w->state;
    MPI_Type_free(&s->row);
    MPI_Type_free(&s->choices);
    free(s->n);
    free(s->at);
    free(s->scatter);
    free(s->row_out);
    free(s->row_in);
    free(s->choice_out);
    free(s->choice_in);
    free(s->sum);
    free(s->wide);
    free(s);
}

void way_allgather(way *w, const load *l)
{
    allgather_way *s = bench_alloc(1, sizeof(*s));
    s->row_bytes = tt_wire_row_bytes(l->wire, l->H);
    must_mpi(MPI_Type_contiguous((int)s->row_bytes, MPI_BYTE, &s->row));
    must_mpi(MPI_Type_contiguous((int)(2 * l->K), MPI_INT32_T, &s->choices));
    must_mpi(MPI_Type_commit(&s->row));
    must_mpi(MPI_Type_commit(&s->choices));
    s->n = bench_alloc((size_t)l->size, sizeof(int));
    s->at = bench_alloc((size_t)l->size, sizeof(int));
    s->scatter = bench_alloc((size_t)l->size, sizeof(int));
    for (int r = 0; r < l->size; r++) {
        s->at[r] = (int)s->all_tokens;
        s->n[r] = (int)load_tokens(l, r);
        s->scatter[r] = (int)(s->n[r] * l->H);
        s->all_tokens += s->n[r];
    }
    s->row_out = bench_alloc((size_t)l->T, s->row_bytes);
    s->row_in = bench_alloc((size_t)s->all_tokens, s->row_bytes);
    s->choice_out = bench_alloc((size_t)(l->T * l->K), 2 * sizeof(int32_t));
    s->choice_in = bench_alloc((size_t)(s->all_tokens * l->K), 2 * sizeof(int32_t));
    s->sum = bench_alloc((size_t)(s->all_tokens * l->H), sizeof(float));
    s->wide = bench_alloc((size_t)l->H, sizeof(float));
    *w = (way){"allgather", run_allgather, close_allgather, s, false};
}
