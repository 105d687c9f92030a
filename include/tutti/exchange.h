/* exchange.h - rows of vectors travel to the ranks that serve them and results travel back: the
 * all-to-all of expert parallelism.
 *
 * Sources own tokens; owners own slots. A source names K slots per token (choices k = 0..K-1, best
 * first); each row goes once to every owner rank that serves at least one of them, the owner
 * computes a result row per choice, and the source sums
 *     y[t] = fmaf chain over k = 0..K-1 of weight[t][k] * result[t][k], from +0.
 * If weights travel, the owner gets weight[t][k] with the row instead (exact, whatever the wire),
 * and each result counts whole: weight 1.
 * With TT_COMBINE_REDUCED the chain goes over the choices that are served on the source's own node,
 * and then adds one sum for each message of rows.
 * Results are rounded to wire_back wherever the owner lives, also on the source's own rank, so y
 * does not depend on who serves what. (int8 and fp8 round by groups of 32 columns from where a part
 * begins: back_columns that are multiples of 32 give the bits of width 1.)
 *
 * Inside a node rows are written once into the source's shared window and read there in place;
 * results are written straight into the source's window.
 * Between nodes there is one message per direction, chunk and pair of source and owner
 * (TT_ROUTE_DIRECT), or of source and node (TT_ROUTE_NODE): then a row goes to a node once, into
 * the window of one owner there, its rail, where all owners of the node read it and put their
 * results; the rail sends them back together. Messages are received into buffers posted at the
 * maximum size with counts in the header; empty is still a message. Routes change no bit.
 * A slot may be served by `width` ranks together (each computes a column part of every result): all
 * of them get the row, each returns its columns.
 *
 * A use of many tokens may go in chunks (chunk_tokens): each has messages and results of its own,
 * so the first one's rows are computed while the next ones are packed and fly. They change no bit.
 *
 * One use of a handle:  prepare, dispatch_begin, { poll, next_ready, put_result, push }*,
 * combine_end. Several handles may be in flight. Every source and owner takes part in every use,
 * with T = 0 if idle. The exchange knows rows, ranks and slots; not weights, layers or experts.
 * Threads: one thread at a time per handle, except put_result (many threads, different entries).
 * MPI: see each function. */
#ifndef TUTTI_EXCHANGE_H
#define TUTTI_EXCHANGE_H
#include <stdbool.h>
#include <stdint.h>
#include "tutti/comm.h"
#include "tutti/plan.h"

typedef struct tt_exchange tt_exchange; /* opaque */

typedef struct tt_exchange_params {
    int64_t H;          /* row width, any */
    int64_t K;          /* most choices per token */
    int64_t max_tokens; /* per source and use */
    int n_handles;      /* 0 = 3 */
    tt_wire wire, wire_back;
    const int *source; /* source[n_sources]: world ranks with tokens, ascending */
    int n_sources;
    const int *owner; /* owner[n_owners]: world ranks with slots, ascending */
    int n_owners;
    int width;                   /* ranks that serve a slot together; 0 = 1 */
    const int64_t *back_columns; /* back_columns[width + 1]: part w returns columns [w], [w+1) of
                                  * a result; NULL if width is 1 */
    tt_route route;
    tt_combine combine;      /* REDUCED: results from other nodes are summed there, in f32,
                              * in the order of owners and their slots, and rounded once */
    bool weights_travel;     /* weights go to the owners (tt_exchange_rows.weight) and have
                              * no part in the sum */
    int64_t chunk_tokens;    /* most tokens of a source in a chunk; 0 = no chunks: all of a
                              * use at once */
    bool takes_whole_chunks; /* this rank computes a chunk only when all its rows are here,
                              * one after the other: until then it waits, and deadlines hold */
} tt_exchange_params;

/* Which ranks serve a slot. Slots are numbered over all owners. */
typedef struct tt_owner_map {
    int64_t n_slots;
    const int32_t *rank;  /* rank[n_slots][width]: world ranks, part w at [w] */
    const int32_t *local; /* local[n_slots]: the number by which the owner knows the slot */
} tt_owner_map;

/* ---- forms of rows ---- MPI: none. Thread: any. */
/* to[tt_wire_row_bytes(wire, n)] of x[n], and x[n] of such a row (f32, bf16 and fp8 exactly). A row
 * may be taken in parts that begin at multiples of TT_WIRE_GROUP. */
TT_API void tt_wire_round(tt_wire wire, void *to, const float *x, int64_t n);
TT_API void tt_wire_widen(tt_wire wire, float *x, const void *row, int64_t n);

/* ---- the exchange ---- */
/* Allocates windows and buffers, posts receives; checks that all ranks pass equal parameters.
 * MPI: collective on the world. Errors are agreed: TT_ERR_MISMATCH, TT_ERR_NOMEM (also when the
 * shared-memory file system is too small), TT_ERR_ARG. */
TT_API tt_status tt_exchange_create(tt_world *world, const tt_exchange_params *params,
                                    tt_exchange **exchange_out);
/* MPI: collective unless the world is broken. */
TT_API void tt_exchange_destroy(tt_exchange **exchange);
/* Bytes that create will hold on one rank (windows and message buffers). Pure:
 * `node_of_rank[n_ranks]` tells who is near. */
TT_API uint64_t tt_exchange_memory_bytes(const tt_exchange_params *params, const int *node_of_rank,
                                         int n_ranks, int rank);

/* Sets the map that later prepares use; copied. NULL: the map stays, with another epoch. MPI: logically collective: all ranks must set equal
 * maps for the same uses. Errors: TT_ERR_ARG for a rank that is no owner, or one that serves a slot
 * twice. */
TT_API tt_status tt_exchange_set_owners(tt_exchange *exchange, const tt_owner_map *map,
                                        uint64_t epoch);

/* Plans one use: slot[T][K] (-1 = no choice: its weight is not read), weight[T][K]. Both are
 * copied. Dedup per rank, offsets. `mine` is this rank's own status, carried in the headers: peers'
 * poll returns TT_ERR_PEER if it is not TT_OK, and no chunk beyond the first is sent, or written to
 * y. On a rank that is no source T must be 0. First waits for what the handle's last use still
 * sends. MPI: not collective. Errors: TT_ERR_ARG (T above max_tokens, slot out of range),
 * TT_ERR_STATE; those of poll while it waits. */
TT_API tt_status tt_exchange_prepare(tt_exchange *exchange, int handle, int64_t T,
                                     const int32_t *slot, const float *weight, tt_status mine);
/* Sends the rows x[T][ldx] (rounded to the wire) on their way. x may change after return. Copies
 * are spread over `compute` (NULL: caller alone), and with REDUCED so are the sums that poll makes:
 * `compute` must live until combine_end, and poll must not be called from one of its tasks.
 * MPI: begins a collective over sources and owners, finish with combine_end. */
TT_API tt_status tt_exchange_dispatch_begin(tt_exchange *exchange, int handle, const float *x,
                                            int64_t ldx, tt_stream *compute);

/* What has happened so far. */
typedef struct tt_exchange_state {
    bool all_arrived;  /* every source's rows are here (next_ready will have yielded all when it
                        * returns false) */
    int n_arrived;     /* chunks from the first on of which that is so */
    bool has_ready;    /* next_ready would yield something */
    bool all_returned; /* every owner's results are back: combine_end will not wait */
} tt_exchange_state;
/* Advances and reports; never waits (with REDUCED it sums what has been put). Errors:
 * TT_ERR_TIMEOUT naming the peers that owe rows or results, TT_ERR_PEER, TT_ERR_PROTOCOL,
 * TT_ERR_MPI. */
TT_API tt_status tt_exchange_poll(tt_exchange *exchange, int handle, tt_exchange_state *state_out);

/* The caller turns to other work: from here to the next poll of this handle is no waiting for
 * anybody. */
TT_API void tt_exchange_rest(tt_exchange *exchange, int handle);

/* Rows of one local slot from one source that have landed. Pointers are valid until push of the
 * same rows. */
typedef struct tt_exchange_rows {
    int32_t slot;      /* local number */
    int32_t n;         /* rows */
    int32_t source_id; /* index into params.source */
    int32_t first;     /* entries [first, first + n) of that source, for put_result */
    const void *base;  /* row i lies at base + row_bytes * index[i], H elements of the wire type */
    const int32_t *index; /* index[n] */
    size_t row_bytes;
    const float *weight; /* weight[n] of the choices, NULL unless weights travel */
    int32_t chunk;       /* the source's tokens [chunk * chunk_tokens, ...); `first` and `index`
                          * count within it */
} tt_exchange_rows;
/* Yields the next group of landed rows, earlier chunks first and in each this rank's own first;
 * false if there is none now. Each is yielded once. */
TT_API bool tt_exchange_next_ready(tt_exchange *exchange, int handle, tt_exchange_rows *rows_out);
/* Row i of a group as float: dst[H] (exact from the wire type). Any thread. */
TT_API void tt_exchange_get_row(const tt_exchange *exchange, const tt_exchange_rows *rows,
                                int32_t i, float *dst);
/* Row i of a group as ttk's gemm_act8 takes it: act8[ttk_act8_bytes(H)], as ttk_act8 makes it of
 * the row that was sent. False, and nothing is done, unless the wire is int8. Any thread. */
TT_API bool tt_exchange_get_act8(const tt_exchange *exchange, const tt_exchange_rows *rows,
                                 int32_t i, void *act8);
/* The result of row i of a group: y[columns of my part], rounded to wire_back and put where it
 * belongs. Any thread, different rows. */
TT_API void tt_exchange_put_result(tt_exchange *exchange, int handle, const tt_exchange_rows *rows,
                                   int32_t i, const float *y);
/* The results of this group are all put: they may leave (they do when all groups of their source
 * and chunk are done: one message). */
TT_API tt_status tt_exchange_push(tt_exchange *exchange, int handle, const tt_exchange_rows *rows);

/* Waits for results and sums: y[T][ldy], overwritten. The handle is free afterwards. Must be called
 * by every source and owner once it has pushed everything. Sums are spread over `compute`. Errors
 * as poll; on an error y is not to be used. */
TT_API tt_status tt_exchange_combine_end(tt_exchange *exchange, int handle, float *y, int64_t ldy,
                                         tt_stream *compute);

typedef struct tt_exchange_counters {
    uint64_t uses;
    uint64_t rows_out, rows_in;             /* distinct rows sent to other ranks; received from
                                             * them */
    uint64_t node_bytes;                    /* written for or read from ranks of the node */
    uint64_t wire_bytes_out, wire_bytes_in; /* between nodes, headers included */
    uint64_t payload_bytes_out;             /* of those: rows, results and sums */
    uint64_t messages_out;                  /* between nodes */
    uint64_t wait_ns;                       /* in combine_end, waiting */
    uint64_t polls;
} tt_exchange_counters;
TT_API tt_exchange_counters tt_exchange_get_counters(const tt_exchange *exchange);
/* Nanoseconds waited for each world rank's rows or results since create: wait_ns[size]. */
TT_API void tt_exchange_get_peer_waits(const tt_exchange *exchange, uint64_t *wait_ns);

#endif
