/* comm_internal.h - the body of a world, and what the files of this room share.
 *
 * Rule of the room: MPI is entered only while world->mpi_lock is held (thread level SERIALIZED),
 * and never blocks there, except in create and destroy, where all ranks have just agreed to be
 * present. A wait is a loop of tti_wait_once.
 * Order of memory between ranks of a node: plain data is written first, then a sequence number with
 * release; readers load the number with acquire. Each line of 64 bytes has one writer. */
#ifndef TUTTI_COMM_INTERNAL_H
#define TUTTI_COMM_INTERNAL_H
#include <mpi.h>
#include <stdalign.h>
#include <stdatomic.h>
#include "tutti/comm.h"
#include "tutti/comm_mpi.h"
#include "tutti/trace.h"

enum {
    TTI_HOST_BYTES = 64,       /* of a host name in messages, cut if longer */
    TTI_TALK_TEXT_BYTES = 448, /* of a message that tells peers why the group is given up */
    TTI_SMALL_BYTES = 65536,   /* collectives up to here use memory of the world */
    TTI_LINE = TT_CACHE_LINE
};

/* ---- MPI calls ---- */
/* Evaluates an MPI call and gives a tt_status; a failure is recorded with MPI's own text. The
 * mpi_lock must be held. */
#define TT_MPI(call) tti_mpi_status((tt_steady_enter_foreign(), (call)), #call, __FILE__, __LINE__)
tt_status tti_mpi_status(int code, const char *call, const char *file, int line);
/* Whether all of request[n] are complete. mpi_lock held. */
tt_status tti_test_all(MPI_Request *request, int n, bool *done_out);
/* For counts that the caller has cut to the piece size. */
int tti_int(size_t count);

/* ---- shared windows of a node ---- */
typedef struct tti_window {
    MPI_Win win;
    bool is_open;
    void *
        *base; /* base[n_peers]: the part of each rank of my node, 64-byte aligned; by node rank */
    size_t bytes; /* of this rank's part */
} tti_window;
/* Allocates `bytes` zeroed bytes (each rank its own number) that the node's ranks can all reach.
 * Collective on the world; errors are agreed. TT_ERR_NOMEM if the shared-memory file system is too
 * small for the node. */
tt_status tti_window_create(tt_world *world, const char *what, size_t bytes, tti_window *window);
/* Collective on the world unless it is broken (then the window is left to the end of the
 * process). */
void tti_window_destroy(tt_world *world, tti_window *window);

/* ---- what a rank shows its node: sequence numbers and votes ---- */
typedef struct tti_vote_slot {
    alignas(TT_CACHE_LINE) _Atomic uint64_t seq;
    int64_t n;
    int64_t value[TT_VOTE_MAX];
} tti_vote_slot;

typedef struct tti_page {
    alignas(TT_CACHE_LINE) _Atomic uint64_t entered; /* collectives entered */
    _Atomic uint64_t done;                           /* collectives left */
    _Atomic uint64_t voted;                          /* votes begun */
    /* Two of each, used in turn: a rank begins vote s + 2 only after all have ended vote s (they
     * began s + 1). */
    tti_vote_slot vote[2];   /* this rank's values */
    tti_vote_slot others[2]; /* node leader only: the maximum over all other nodes */
} tti_page;

/* ---- outstanding operations ----
 * The thread that begins something publishes its state in atomics and wakes the op; advance() does
 * all MPI calls, and lets the op rest when nothing is left to do. Neither side waits for the other.
 * A wake that comes while advance() runs is not lost: it is counted, and an op whose count has
 * changed since advance() was called does not rest. */
typedef struct tti_op tti_op;
struct tti_op {
    /* Called with the mpi_lock held while the op is awake. */
    tt_status (*advance)(tti_op *op);
    void *arg;
    _Atomic bool is_awake;
    _Atomic uint32_t n_wakes;
    uint32_t n_wakes_seen; /* when advance() was called; under mpi_lock */
    tti_op *next;          /* under mpi_lock */
};
void tti_op_register(tt_world *world, tti_op *op);
void tti_op_unregister(tt_world *world, tti_op *op);
/* To be called after the new work is visible. */
void tti_op_wake(tt_world *world, tti_op *op);
/* From advance() only. */
void tti_op_rest(tt_world *world, tti_op *op);

void tti_lock(tt_world *world);
void tti_unlock(tt_world *world);
/* What waits do: advances unless the world has a thread for that. */
void tti_progress(tt_world *world);
tt_status tti_progress_start(tt_world *world, int cpu);
void tti_progress_stop(tt_world *world);

/* ---- waiting with a deadline ---- */
/* Marks in owes[size] the ranks that the wait needs; all false on entry. Any thread. */
typedef void tti_owing_fn(void *arg, bool *owes);
typedef struct tti_wait {
    const char *what; /* "the vote" */
    tti_owing_fn *owing;
    void *arg;
    uint64_t since_ns; /* 0: starts with the next check */
    uint64_t asked_ns; /* when all were asked for a sign of life; 0 = not yet */
    tt_spin spin;
} tti_wait;
/* One turn of a waiting loop: progress, back-off, then tti_wait_check. */
tt_status tti_wait_once(tt_world *world, tti_wait *wait);
/* Only the checks: the group's error, and the deadline. At the deadline the world is broken and the
 * culprit named. */
tt_status tti_wait_check(tt_world *world, tti_wait *wait);
/* The wait is over. */
void tti_wait_end(tt_world *world, tti_wait *wait);
/* Marks the world broken with this thread's message and tells all ranks. Returns code (the earlier
 * one if it was broken already). */
tt_status tti_world_break(tt_world *world, tt_status code);
/* Right before a blocking MPI collective, which has no deadline: waits, with a deadline, until all
 * ranks are here. False if the world is broken: then the call must not be made. Once talk is closed
 * there are no deadlines, and it does not wait. Collective on the world. */
bool tti_meet(tt_world *world);
/* "rank 3 (host)" */
const char *tti_rank_name(const tt_world *world, int rank, char *text, size_t bytes);
enum { TTI_NAME_BYTES = TTI_HOST_BYTES + 24 };

/* ---- talk: small messages about trouble (blame.c) ---- */
typedef enum tti_talk_kind {
    TTI_TALK_ASK,
    TTI_TALK_ANSWER,
    TTI_TALK_GIVE_UP,
    TTI_TALK_FAILED,
    TTI_TALK_KINDS
} tti_talk_kind;
typedef struct tti_talk_message {
    uint32_t magic;
    int32_t kind;
    int32_t rank;
    int32_t blocked_on; /* a rank that the sender itself waits for, or -1 */
    uint64_t entered, done, voted;
    int32_t code;
    int32_t pad;
    char text[TTI_TALK_TEXT_BYTES];
} tti_talk_message;

typedef struct tti_answer {
    uint64_t heard_ns; /* when the last answer came */
    uint64_t entered, done, voted;
    int blocked_on;
} tti_answer;

typedef struct tti_talk {
    MPI_Comm comm;
    MPI_Request receive;
    tti_talk_message in;
    tti_talk_message *out; /* out[TTI_TALK_KINDS][size] */
    MPI_Request *request;  /* request[TTI_TALK_KINDS][size] */
    tti_answer *answer;    /* answer[size] */
    bool *owes;            /* owes[size]: scratch */
    uint64_t asked_ns; /* of the wait that looks for a culprit now: who has not answered since is
                        * silent */
    _Atomic int blocked_on;
} tti_talk;
tt_status tti_talk_open(tt_world *world);
void tti_talk_close(tt_world *world);
/* Answers questions and takes in answers. mpi_lock held. */
tt_status tti_talk_advance(tt_world *world);

/* ---- vote ---- */
typedef struct tti_vote_message {
    uint64_t magic;
    uint64_t seq;
    int64_t n;
    int64_t value[TT_VOTE_MAX];
} tti_vote_message;

typedef enum tti_vote_stage {
    TTI_VOTE_IDLE,
    TTI_VOTE_NODE,
    TTI_VOTE_WIRE,
    TTI_VOTE_SENT
} tti_vote_stage;
typedef struct tti_vote {
    /* of the caller's thread */
    uint64_t seq;
    int n;
    bool is_open;
    /* between nodes, on node leaders only */
    _Atomic uint64_t begun;   /* release by the caller: the last vote begun */
    _Atomic uint64_t arrived; /* release by progress: got[] speaks of this vote */
    _Atomic bool *got;        /* got[n_nodes]: arrived for this vote */
    /* of progress, under mpi_lock */
    tti_op op;
    MPI_Comm comm;
    tti_vote_stage stage;
    uint64_t current; /* the vote that the stage speaks of */
    int current_n;
    tti_vote_message *in; /* in[n_nodes] */
    MPI_Request *receive; /* receive[n_nodes], persistent; MPI_REQUEST_NULL for the own node */
    tti_vote_message out[2];
    MPI_Request *send[2]; /* send[parity][n_nodes] */
    int64_t others[TT_VOTE_MAX];
} tti_vote;
tt_status tti_vote_open(tt_world *world);
void tti_vote_close(tt_world *world);

struct tt_world {
    /* who; constant after create */
    int rank, size, n_nodes;
    int *node;                    /* node[size] */
    int *node_rank;               /* node_rank[size] */
    int *node_size;               /* node_size[n_nodes] */
    int *node_first;              /* node_first[n_nodes]: the leader */
    int *real_node;               /* real_node[size]: the lowest rank of the real node */
    char (*host)[TTI_HOST_BYTES]; /* host[size] */
    int n_peers;                  /* ranks of my node, me included */
    int *peer;                    /* peer[n_peers]: their world ranks, ascending */
    tt_progress mode;
    uint64_t deadline_ns, grace_ns, delay_ns;
    uint64_t inject_mb_s;          /* injected rate out of this rank, 0 = none */
    _Atomic uint64_t link_free_ns; /* when all that it has sent will have passed at that rate */
    _Atomic bool is_patient;
    size_t piece_bytes; /* longest MPI message */

    MPI_Comm comm;       /* collectives */
    MPI_Comm bulk;       /* tt_world_send */
    MPI_Comm node_comm;  /* shared windows */
    size_t window_bytes; /* of this rank's parts of all windows that are open */
    tti_window page_window;
    tti_page **page;    /* page[n_peers] */
    tti_page *my_page;  /* NULL until the window is there */
    uint64_t n_entered; /* collectives entered */
    unsigned char
        *small; /* small[TTI_SMALL_BYTES]: what MPI may still write after a timeout is never a
                 * caller's frame */

    atomic_flag mpi_lock;
    tti_op *ops;                /* under mpi_lock */
    _Atomic int n_busy;         /* ops that are awake: whether to bother */
    _Atomic uint32_t turn;      /* calls of progress; only its low bits matter */
    _Atomic uint64_t talked_ns; /* the last look for questions of peers */
    _Atomic uint32_t n_events;  /* begun or completed operations: keeps the progress thread awake */
    tt_stream *thread;          /* runs one endless task: progress */
    bool has_thread;
    _Atomic bool thread_stop;

    atomic_flag error_lock;
    _Atomic int error; /* release after error_message is written; never changes once set */
    char error_message[TT_STATUS_MESSAGE_BYTES];

    tti_talk talk;
    tti_vote vote;
    tt_world *next_broken; /* broken worlds are kept: MPI may still write into their buffers */
};

/* Rank r is on my node. */
static inline bool tti_is_near(const tt_world *world, int rank)
{
    return world->node[rank] == world->node[world->rank];
}

/* Duplicates world->comm for an object of its own. Collective; all ranks must have agreed to be
 * here. A failure breaks the world. */
tt_status tti_comm_dup(tt_world *world, MPI_Comm *comm_out);
/* Collective unless the world is broken. */
void tti_comm_free(tt_world *world, MPI_Comm *comm);

/* Pieces that a message of `bytes` is cut into; at least one. */
static inline size_t tti_n_pieces(const tt_world *world, size_t bytes)
{
    return bytes <= world->piece_bytes ? 1 : (bytes + world->piece_bytes - 1) / world->piece_bytes;
}

/* Bytes of piece number `piece` of such a message. */
static inline size_t tti_piece_bytes(const tt_world *world, size_t bytes, size_t piece)
{
    size_t begin = piece * world->piece_bytes;
    return bytes - begin < world->piece_bytes ? bytes - begin : world->piece_bytes;
}

static inline size_t tti_align(size_t bytes)
{
    return (bytes + (size_t)TTI_LINE - 1) & ~((size_t)TTI_LINE - 1);
}

#endif
