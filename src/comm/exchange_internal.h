/* exchange_internal.h - the body of an exchange.
 *
 * Life of one use of a handle, and who may touch what:
 *   source  prepare     writes shares, groups and the index into its window part (nobody reads: the last use is over)
 *           dispatch    writes rows, then publishes its sequence number; sends a message to each far owner
 *   rail    progress    takes a far source's message in, and shows its number in the gate of that intake
 *   owner   poll        sees the number of the source, or of the gate; reads groups and rows in place
 *           put_result  writes into the source's back region (near) or the intake's result message (far)
 *           push        after the last group of a source: raises its return flag there. An owner that got nothing
 *                       returns as soon as it has seen the number, so that the source knows that all have read it.
 *   rail    progress    once all owners that the intake serves have returned: sends the results
 *   source  combine     waits for the return of *every* owner; only then may the next use overwrite anything
 * So no rank is more than one use ahead of another on a handle, and one copy of every buffer is
 * enough. Near = on the same node. A lane is a source's way to the far owners that one message
 * serves: one owner, or all of a node; an intake is its other end.
 *
 * All that is done for each chunk of a use by itself: it has its own window part, lanes, intakes
 * and arrivals. How many chunks a source uses stands in its first one, which there always is; until
 * that has come, owners expect no other of it. */
#ifndef TUTTI_EXCHANGE_INTERNAL_H
#define TUTTI_EXCHANGE_INTERNAL_H
#include "comm_internal.h"
#include "tutti/exchange.h"

enum {
    TTI_FAIL_TEXT_BYTES = 256, /* of a failed source's message that travels with its status */
    TTI_SMALL_FLOATS =
        16384 /* below this a copy is quicker than waking threads (64 KiB, a guess) */
};

/* ---- in a source's window, per chunk ---- */
typedef struct tti_pub {
    alignas(TT_CACHE_LINE) _Atomic uint64_t seq; /* the use that is published */
    uint64_t visible_ns;                         /* injected delay: not there before */
    uint64_t epoch;
    int32_t status;
    int32_t n_chunks; /* of this source in this use */
    char text[TTI_FAIL_TEXT_BYTES];
} tti_pub;

/* What one owner gets: entries [index_begin, + n_entries) of index[], one result each from
 * back_begin on. */
typedef struct tti_share {
    alignas(TT_CACHE_LINE) int64_t index_begin;
    int64_t n_entries;
    int64_t group_begin;
    int64_t n_groups;
    int64_t back_begin; /* bytes */
    int64_t n_rows;     /* distinct rows among the entries */
} tti_share;

typedef struct tti_return {
    alignas(TT_CACHE_LINE) _Atomic uint64_t seq; /* the use that this owner has returned */
    _Atomic uint64_t summed;                     /* the use of which it has summed its share of
                                                  * rows (intakes only) */
    uint64_t visible_ns;
} tti_return;

/* Entries of one slot follow each other. */
typedef struct tti_group {
    int32_t slot; /* local number */
    int32_t n;
} tti_group;

/* Ahead of an intake's message: the use whose message is here, and one tti_return for each owner
 * that it serves. */
typedef struct tti_gate {
    alignas(TT_CACHE_LINE) _Atomic uint64_t seq;
} tti_gate;

/* Offsets of those parts; equal on all ranks of a node. */
typedef struct tti_exchange_layout {
    size_t share, ret, group, index, weight, rows, back; /* within a chunk; weight: only if they
                                                          * travel */
    size_t chunk_bytes;
    size_t entry_bytes;           /* of an entry in a message: its row, its weight if they travel */
    size_t row_bytes;             /* H elements of the wire type: as in messages */
    size_t row_stride;            /* as in windows */
    size_t message_bytes;         /* longest message of rows on a lane */
    size_t pool_bytes;            /* all messages of rows of one source and chunk */
    size_t result_bytes;          /* longest message of results */
    size_t message, put, results; /* within an intake, after its gate and returns; put: what
                                   * owners put to be summed, else the results themselves */
    size_t back_row_bytes;        /* a whole result row in a message */
    size_t intake_bytes;
} tti_exchange_layout;

/* ---- who sends through whom (exchange_paths.c) ---- */
typedef struct tti_lane_path {
    int rail;     /* owner id */
    int first, n; /* positions of the owners that it serves */
} tti_lane_path;

typedef struct tti_paths {
    bool by_node;
    int *owner_at; /* owner_at[n_owners]: owner ids by node, then by id; an owner's place there
                    * is its position */
    int *position; /* position[n_owners] */

    /* this rank as a source */
    tti_lane_path *lane;     /* lane[n_lanes] */
    int n_lanes, first_lane; /* the first one that it sends on: not all sources begin with the
                              * same */

    /* this rank as an owner */
    int mate_first, n_mates; /* positions of the owners that share intakes: itself, or all of its
                              * node */
    int *rail;               /* rail[n_sources]: owner id that takes in what a far source sends
                              * this rank; -1 = near */
    int *intake;             /* intake[n_sources]: its number among the intakes of that rail */
    int n_intakes;           /* of this rank itself */
} tti_paths;
/* Pure. Errors: TT_ERR_NOMEM. */
tt_status tti_paths_make(const tt_exchange_params *params, const int *node_of_rank, int rank,
                         tti_paths *paths_out);
void tti_paths_free(tti_paths *paths);
/* The place of a rank in a list; -1 if it is not there. */
int tti_find_rank(const int *list, int n, int rank);

/* ---- messages between nodes ---- */
#define TTI_ROWS_MAGIC 0x54545257u    /* "TTRW" */
#define TTI_RESULTS_MAGIC 0x54545253u /* "TTRS" */
typedef struct tti_wire_header {
    uint32_t magic;
    int32_t status;
    uint64_t seq;
    uint64_t epoch;
    uint64_t bytes; /* of the whole message, this header included */
    uint64_t visible_ns;
    int32_t n_rows, n_entries, n_groups;
    int32_t rank;      /* of the sender */
    uint16_t chunk;    /* counted over all handles */
    uint16_t n_chunks; /* of this source in this use; in messages of rows */
    int32_t n_owners;  /* whose parts are in it */
} tti_wire_header;
enum { TTI_HEADER_BYTES = 64 };
_Static_assert(sizeof(tti_wire_header) == TTI_HEADER_BYTES,
               "results start 64 bytes into a message");
/* What each owner gets of a message of rows, and where its results begin: in the message that
 * answers it, or, if they are summed, among what is put for that. */
typedef struct tti_wire_part {
    int64_t back_begin; /* bytes */
    int32_t n_groups, n_entries, n_rows;
    int32_t part; /* columns of a result that the owner returns */
} tti_wire_part;
/* Rows: header, part[n_owners + 1] (the last one only tells where results end), group[n_groups],
 * index[n_entries], weight[n_entries] if they travel, padding to 64, row[n_rows] (row_bytes each).
 * With a bad status: header, text.
 * Results: header, one part of a result row per entry; or one whole row of sums per row. */

/* A lane, seen by the source. */
typedef struct tti_lane {
    int rank;               /* the rail's */
    int first, n_owners;    /* positions of the owners that it serves */
    unsigned char *message; /* within the pool */
    size_t message_bytes;
    size_t back_begin;   /* in the back region: the header of the results */
    size_t result_bytes; /* of the message that will come back */
    int64_t row_begin;   /* its rows in handle->far_row */
    int64_t n_rows, last_token;
    int64_t n_groups, n_entries;
    MPI_Request *send;    /* send[most pieces] */
    MPI_Request *receive; /* receive[most pieces] */
    int n_send, n_receive;
    bool is_receiving;         /* under mpi_lock */
    _Atomic bool has_returned; /* release by progress when the whole message is here */
} tti_lane;

/* An intake, seen by its rail; all of it belongs to progress, but for what is atomic. */
typedef enum tti_intake_stage {
    TTI_INTAKE_HEAD, /* the first piece of a message is awaited */
    TTI_INTAKE_REST, /* so are the others */
    TTI_INTAKE_FULL, /* received, but the last results are still being sent */
    TTI_INTAKE_OPEN  /* owners read it and put their results */
} tti_intake_stage;
typedef struct tti_intake {
    int rank, source_id;   /* the source's */
    unsigned char *part;   /* gate, returns, message, results: in the window, or this rank's own */
    uint64_t seq;          /* the use of the message */
    uint64_t expected_seq; /* the last use of which a message is known to come: in later chunks
                            * the first one tells */
    size_t result_bytes;   /* of that use */
    MPI_Request *receive;  /* receive[most pieces], persistent */
    MPI_Request *send;     /* send[most pieces] */
    int n_receive, n_send;
    _Atomic int stage;
    _Atomic uint64_t answered; /* the last use whose results are on their way */
} tti_intake;

/* One source's rows in this use, seen by an owner. */
typedef struct tti_arrival {
    bool has_arrived;
    int n_chunks; /* of the source in this use */
    const tti_group *group;
    int64_t n_groups, next_group, n_left; /* n_left: not pushed yet */
    int64_t next_entry, n_entries;
    const int32_t *index;
    const float *weight; /* NULL unless weights travel */
    const unsigned char *rows;
    size_t row_bytes;
    unsigned char *back; /* where entry 0's result goes */
    size_t back_stride;
    tt_wire back_wire;
    bool is_summed;  /* a far source's: this owner has done its share */
    tti_return *ret; /* to be raised when all results are put */
} tti_arrival;

/* A result that goes into the sum of a row: where it lies among what was put, and whose columns it
 * has. */
typedef struct tti_row_entry {
    size_t at;
    int32_t part;
    float weight;
} tti_row_entry;

typedef enum tti_handle_stage {
    TTI_HANDLE_FREE,
    TTI_HANDLE_PREPARED,
    TTI_HANDLE_FLYING
} tti_handle_stage;

/* Indices of tti_handle.count. */
typedef enum tti_counter {
    TTI_COUNT_USES,
    TTI_COUNT_ROWS_OUT,
    TTI_COUNT_ROWS_IN,
    TTI_COUNT_NODE_BYTES,
    TTI_COUNT_WIRE_OUT,
    TTI_COUNT_WIRE_IN,
    TTI_COUNT_PAYLOAD,
    TTI_COUNT_MESSAGES,
    TTI_COUNT_WAIT_NS,
    TTI_COUNT_POLLS,
    TTI_COUNTERS
} tti_counter;

typedef struct tti_handle tti_handle;

/* A run of at most chunk_tokens tokens of each source, in one use of its handle. */
typedef struct tti_chunk {
    tti_handle *handle;
    int id;    /* counted over all handles */
    int place; /* within its handle: tokens [place * chunk_tokens, ...) */

    /* source */
    int64_t T;        /* of this rank in this chunk */
    float *weight;    /* weight[chunk_tokens][K]: of results in the sum */
    int64_t *result;  /* result[chunk_tokens][K][width]: byte offset in the back region, -1 = no
                       * choice, or summed elsewhere */
    bool *is_needed;  /* is_needed[chunk_tokens]: the row has a choice */
    int32_t *far_row; /* tokens in the order of the messages' rows, one lane after the other */
    tti_lane *lane;   /* lane[n_lanes] */
    unsigned char *pool;
    int *missing_owner; /* missing_owner[n_missing_owners]: owner ids whose results are awaited */
    int n_missing_owners;

    /* owner */
    tti_arrival *arrival; /* arrival[n_sources] */
    int *order;           /* order[n_arrived]: source ids by arrival */
    int n_arrived, cursor, n_returned;
    bool *is_expected; /* is_expected[n_sources]: the source uses this chunk */
    int n_expected, n_far_expected;
    int *missing_source; /* missing_source[n_missing_sources]: expected, not arrived */
    int n_missing_sources;
    tti_intake *intake; /* intake[n_intakes] */
    int n_summed;       /* far sources whose rows this owner has summed its share of */
    int64_t *row_begin; /* row_begin[chunk_tokens + 1]: for sums: the entries of each row of a
                         * message, in row_entry */
    tti_row_entry *row_entry;

    /* progress */
    tti_op op;
    _Atomic bool must_post; /* release by the handle's thread: this use's messages are to be sent */
    _Atomic bool is_open;   /* from when this rank sends or expects something to the end of
                             * combine_end */
    _Atomic bool is_sending; /* some send is not complete */
} tti_chunk;

struct tti_handle {
    tt_exchange *x;
    int id;
    tti_handle_stage stage;
    uint64_t use; /* number of this use; the same on all ranks */
    uint64_t epoch;
    tt_status mine;
    char mine_text[TTI_FAIL_TEXT_BYTES];
    tti_chunk *chunk;   /* chunk[x->n_chunks] */
    int n_own;          /* chunks that this rank uses as a source, 0 if it is none */
    int n_open;         /* chunks in which anything is known to happen in this use, or did in the
                         * last; 0 before the first */
    tt_stream *compute; /* of this use */

    /* owner */
    int part;          /* columns that this rank returns */
    size_t part_bytes; /* of one result on the wire */
    int64_t part_columns;
    int32_t max_local;

    /* planning, of one chunk after the other */
    int32_t *key_at;     /* key_at[n_keys]: counts, then the next entry of each key */
    int64_t *last_token; /* last_token[n_owners] */
    int64_t *n_rows;     /* n_rows[n_owners] */

    /* waiting */
    tti_wait wait;
    uint64_t idle_since_ns; /* nothing to compute since; 0 = busy */
    uint64_t *charged_ns;   /* charged_ns[world size]: up to when waiting was put down to a rank */

    _Atomic uint64_t count[TTI_COUNTERS];
};

struct tt_exchange {
    tt_world *world;
    int64_t H, K, max_tokens, chunk_tokens;
    int n_handles, n_chunks, width; /* n_chunks: of each handle */
    tt_wire wire, wire_back;
    bool weights_travel, is_reduced, takes_whole_chunks;
    int *source, n_sources, *owner, n_owners;
    int64_t *back_columns;   /* back_columns[width + 1] */
    int source_id, owner_id; /* of this rank, or -1 */
    tti_paths paths;
    int *lane_of_owner;         /* lane_of_owner[n_owners]: of this source, -1 = near */
    size_t *rail_offset;        /* rail_offset[n_mates]: where the intakes begin in an owner's
                                 * window part */
    unsigned char *own_intakes; /* if they are not in the window */
    tti_exchange_layout layout;
    size_t *near_stride; /* near_stride[width]: of a part of a result in the back region */
    size_t *part_bytes;  /* part_bytes[width]: of a part of a result in a message */
    tti_window window;
    MPI_Comm comm;
    tti_handle *handle; /* handle[n_handles] */

    /* the map in force; a key is a (slot, part) pair, keys are sorted by (position of the owner,
     * local slot) */
    bool has_map;
    uint64_t epoch;
    int64_t n_slots, n_keys, key_capacity;
    int32_t *key;       /* key[n_slots][width] */
    int32_t *key_owner; /* key_owner[n_keys]: owner id */
    int32_t *key_local; /* key_local[n_keys] */
    int *part_of;       /* part_of[n_owners]: -1 = serves nothing */
    int32_t max_local;  /* of this rank */

    _Atomic uint64_t *peer_wait_ns; /* peer_wait_ns[world size] */
};

/* The part of a source's window that belongs to a chunk; the source must be near. */
static inline unsigned char *tti_window_part(const tt_exchange *x, int source_rank, int chunk)
{
    unsigned char *base = x->window.base[x->world->node_rank[source_rank]];
    return base + (size_t)chunk * x->layout.chunk_bytes;
}

/* Of all handles. */
static inline int tti_all_chunks(const tt_exchange *x)
{
    return x->n_handles * x->n_chunks;
}

/* From one result to the next, where an owner of columns `part` puts those for far sources. */
static inline size_t tti_far_stride(const tt_exchange *x, int part)
{
    return x->is_reduced
               ? (size_t)(x->back_columns[part + 1] - x->back_columns[part]) * sizeof(float)
               : x->part_bytes[part];
}

static inline void tti_count(tti_handle *h, tti_counter which, uint64_t n)
{
    atomic_fetch_add_explicit(&h->count[which], n, memory_order_relaxed);
}

/* Injected delay: when something published now may be seen; 0 = at once. */
static inline uint64_t tti_due(const tt_world *world)
{
    return world->delay_ns ? tt_now_ns() + world->delay_ns : 0;
}

static inline bool tti_is_due(uint64_t visible_ns)
{
    return visible_ns == 0 || tt_now_ns() >= visible_ns;
}

/* The intake of a far source that serves this owner. */
static inline unsigned char *tti_intake_part(const tt_exchange *x, int source_id, int chunk)
{
    const int rail = x->paths.rail[source_id];
    const size_t at =
        ((size_t)x->paths.intake[source_id] * (size_t)tti_all_chunks(x) + (size_t)chunk) *
        x->layout.intake_bytes;
    if (!x->paths.by_node) {
        return x->own_intakes + at;
    }
    unsigned char *base = x->window.base[x->world->node_rank[x->owner[rail]]];
    return base + x->rail_offset[x->paths.position[rail] - x->paths.mate_first] + at;
}

/* returns[n_mates] */
static inline tti_return *tti_intake_returns(unsigned char *intake)
{
    return (tti_return *)(intake + sizeof(tti_gate));
}

/* Whether all owners that an intake serves have raised `seq` (their results are put), or `summed`,
 * to this use. */
static inline bool tti_all_raised(const tt_exchange *x, unsigned char *intake, uint64_t use,
                                  bool summed)
{
    const tti_return *ret = tti_intake_returns(intake);
    bool all = true;
    for (int m = 0; m < x->paths.n_mates && all; m++) {
        all = atomic_load_explicit(summed ? &ret[m].summed : &ret[m].seq, memory_order_acquire) ==
              use;
    }
    return all;
}

/* Finds the handle; TT_ERR_ARG or TT_ERR_STATE. */
tt_status tti_handle_find(tt_exchange *x, int handle, tti_handle_stage stage, tti_handle **h_out);
/* Offsets and sizes for these parameters on a rank with these paths. */
void tti_exchange_measure(const tt_exchange_params *params, const tti_paths *paths,
                          tti_exchange_layout *layout_out);
/* Columns [begin, end) of a result that part `part` returns. */
void tti_part_bounds(const tt_exchange_params *params, int part, int64_t *begin_out,
                     int64_t *end_out);

/* exchange_plan.c */
/* Rows of a source are to come in this chunk. */
void tti_expect(tt_exchange *x, tti_chunk *c, int source_id);

/* exchange_wire.c */
tt_status tti_wire_open(tt_exchange *x, tti_chunk *c);
void tti_wire_close(tt_exchange *x, tti_chunk *c);
/* Fills the messages of rows (headers, groups, index) of a prepared use; rows are copied by the
 * caller. */
void tti_wire_pack_heads(tt_exchange *x, tti_chunk *c);
unsigned char *tti_wire_row(const tt_exchange *x, const tti_lane *lane, int64_t row);
/* Bytes in front of the rows of a message. */
size_t tti_wire_head_bytes(const tt_exchange *x, int64_t n_owners, int64_t n_groups,
                           int64_t n_entries);
size_t tti_wire_message_bytes(const tt_exchange *x, const tti_lane *lane);
/* Hands the messages to progress. */
void tti_wire_post(tt_exchange *x, tti_chunk *c);
/* Lets progress look after this chunk until combine_end: rows of others are expected in it. */
void tti_wire_await(tt_exchange *x, tti_chunk *c);
/* This owner has returned what a far source sent: lets progress see it if this rank is the rail. */
void tti_wire_return(tt_exchange *x, tti_chunk *c, int source_id);
/* Whether the results of all intakes of this rank are on their way. */
bool tti_wire_has_answered(const tt_exchange *x, const tti_chunk *c);
/* Owners whose results an intake of this rank waits for. */
void tti_wire_owing_mates(const tt_exchange *x, const tti_chunk *c, bool *owes);
/* Waits until all that this use sends has left. */
tt_status tti_wire_drain(tt_exchange *x, tti_chunk *c);

/* exchange_check.c */
/* Takes this owner's part of a far source's message in if it is here and due; checks it. */
tt_status tti_wire_arrive(tt_exchange *x, tti_chunk *c, int source_id, bool *has_arrived_out);
tt_status tti_wire_returned(tt_exchange *x, tti_chunk *c, const tti_lane *lane,
                            bool *has_returned_out);
/* What the message of `rank` has instead of what it should have, as an error. */
tt_status tti_wire_mismatch(const tt_exchange *x, const tti_chunk *c, int rank, const char *what,
                            uint64_t got, uint64_t expected);

/* exchange_sums.c */
/* Sums this owner's share of the rows of far sources whose results are all put. */
void tti_sums_make(tt_exchange *x, tti_chunk *c);
/* Marks owners of this node whose results this one waits for, to sum its share. */
void tti_sums_owing(const tt_exchange *x, const tti_chunk *c, bool *owes);
/* Adds what other nodes have summed for tokens [begin, end). */
void tti_sums_add(const tt_exchange *x, const tti_chunk *c, float *y, int64_t ldy, int64_t begin,
                  int64_t end);

/* exchange_rows.c */
/* This rank as a source of itself: no waiting, no delay. */
tt_status tti_exchange_arrive(tt_exchange *x, tti_chunk *c, int source_id);

#endif
