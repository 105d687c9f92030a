/* comm.h - a set of ranks: who they are, agreement, small collectives, gathers inside a group,
 * progress, deadlines.
 * Free of MPI; comm_mpi.h makes a world from an MPI communicator. Only src/comm calls MPI.
 *
 * Progress: MPI moves messages only inside its calls. Every outstanding operation here is a small
 * state machine; one function, tt_world_progress, advances all of them under a try-lock, so MPI is
 * entered by one thread at a time (thread level SERIALIZED). Who calls it is the progress mode:
 * `thread` (a thread of the world's own), `polled` (compute threads between tiles), `caller` (only
 * inside the calls of this header).
 * Deadlines: every wait ends with TT_ERR_TIMEOUT that names the ranks (and hosts) that owe
 * something. After an error of the group (codes <= -60) the world is broken: only local calls and
 * destroy are legal.
 * Threads: one thread calls collectives; tt_world_progress from any. */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/status.h"
#include "tutti/stream.h"

typedef struct tt_world tt_world; /* opaque; made by tt_world_create in comm_mpi.h */

typedef enum tt_progress {
    TT_PROGRESS_AUTO, /* thread from 8 cores a rank on, else polled */
    TT_PROGRESS_THREAD,
    TT_PROGRESS_POLLED,
    TT_PROGRESS_CALLER
} tt_progress;

/* Collective. Accepts a pointer to NULL. Waits for peers only while the world is whole. */
TT_API void tt_world_destroy(tt_world **world);

/* ---- who ---- Not collective, any thread. */
TT_API int tt_world_rank(const tt_world *world);
TT_API int tt_world_size(const tt_world *world);
TT_API int tt_world_n_nodes(const tt_world *world);
/* nodes are numbered by their lowest rank */
TT_API int tt_world_node(const tt_world *world, int rank);
/* position among the ranks of its node */
TT_API int tt_world_node_rank(const tt_world *world, int rank);
TT_API int tt_world_node_size(const tt_world *world, int node);
TT_API const char *tt_world_host(const tt_world *world, int rank);
TT_API tt_progress tt_world_progress_mode(const tt_world *world);
/* Bytes of this rank's parts of the windows that its node shares now (exchange, gathers). */
TT_API size_t tt_world_window_bytes(const tt_world *world);
TT_API double tt_world_deadline_s(const tt_world *world);
TT_API bool tt_world_is_broken(const tt_world *world);

/* ---- giving up, and patience ---- */
/* This rank failed alone with `st` (not TT_OK; its message is tt_status_message()) while others
 * wait for it: the world becomes broken, and every wait of every other rank ends at once with the
 * same code and "rank R (host): message"; so does whatever this rank calls next. No-op if the world
 * is broken already.
 * MPI: not collective. Thread: any. */
TT_API void tt_world_fail(tt_world *world, tt_status st);
/* A patient world gives local work its time (loading weights, reading a prompt): a wait goes on
 * beyond its deadline as long as every rank that owes something shows that it lives. A rank does so
 * by calling tt_world_progress, or waiting itself, more often than three quarters of the deadline
 * (in `thread` mode its thread does). Silent ranks still end the wait, named. A world starts
 * patient; switch that off on all ranks before the first step. */
TT_API void tt_world_set_patient(tt_world *world, bool patient);

/* ---- agreement and small collectives ---- MPI: collective on the world. Thread: one at a time. */
/* Every rank gives its own status and gets the worst of all, with the message of the (lowest) rank
 * that had it, as "rank 3 (host): message" where that is another rank than the reader, or where
 * ranks differ; the plain message if all ranks failed alike. TT_OK if all are. */
TT_API tt_status tt_world_agree(tt_world *world, tt_status mine);
/* TT_ERR_MISMATCH on all ranks, naming `what` and two ranks that differ, unless all pass the same
 * bytes. */
TT_API tt_status tt_world_check_equal(tt_world *world, const char *what, const void *data,
                                      size_t bytes);
TT_API tt_status tt_world_bcast(tt_world *world, void *data, size_t bytes, int root);
/* all[size][bytes] gets every rank's `mine`. */
TT_API tt_status tt_world_allgather(tt_world *world, const void *mine, size_t bytes, void *all);
TT_API tt_status tt_world_max_i64(tt_world *world, int64_t *values, int n);
TT_API tt_status tt_world_barrier(tt_world *world);
/* Bulk point to point; any size (cut at 1 GiB). Blocking, with deadline and progress. Tag in [0,
 * 255]. MPI: involves the two ranks. */
TT_API tt_status tt_world_send(tt_world *world, int peer, int tag, const void *data, size_t bytes);
TT_API tt_status tt_world_recv(tt_world *world, int peer, int tag, void *data, size_t bytes);

/* ---- progress ---- */
/* Advances all outstanding operations if no other thread is doing so; cheap when nothing is
 * outstanding. Any thread. No-op in `thread` mode, whose thread does it. */
TT_API void tt_world_progress(tt_world *world);
/* The error that broke the world; TT_OK: none did. */
TT_API tt_status tt_world_error(const tt_world *world);

/* ---- vote: the step header ----
 * A small non-blocking reduction over all ranks that carries every decision that must be equal
 * everywhere. value[i] -> max over ranks. */
enum { TT_VOTE_MAX = 16 };
/* MPI: begins a collective, finish with tt_vote_end. One vote at a time. */
TT_API tt_status tt_vote_begin(tt_world *world, const int64_t *values, int n);
TT_API tt_status tt_vote_end(tt_world *world, int64_t *values_out);

/* ---- gather inside a group ----
 * Members each fill a rectangle of a matrix; afterwards all (or one) have the whole. Inside a node
 * through a shared window; between nodes one message per pair. Used for TP (columns:
 * heads, o_proj, FFN; rows: after dealing) and ETP. */
typedef struct tt_gather tt_gather; /* opaque */
typedef struct tt_rect {
    int64_t row, n_rows, col, n_cols;
} tt_rect;
enum { TT_GATHER_ALL = -1 };
/* MPI: collective on the world. Every rank passes the group it belongs to (members[n], world ranks
 * in the same order on each) or n = 0. max_floats: the largest rectangle ever. A group of one
 * allocates nothing and exec is a no-op. Errors are agreed. */
TT_API tt_status tt_gather_create(tt_world *world, const int *members, int n, int64_t max_floats,
                                  tt_gather **gather_out);
TT_API void tt_gather_destroy(tt_gather **gather);
/* full[..][ld]: rect[mine] is filled by the caller; on return the others are too (only on member
 * `reader` unless TT_GATHER_ALL; others may leave once their part is published). rect[n] alike on
 * all members; empty ones are allowed. Copies are spread over `compute` (NULL: the caller alone).
 * MPI: collective on the group. Thread: one at a time per object. Errors: TT_ERR_TIMEOUT,
 * TT_ERR_PEER, TT_ERR_MPI; TT_ERR_CAPACITY. */
TT_API tt_status tt_gather_exec(tt_gather *gather, float *full, int64_t ld, const tt_rect *rect,
                                int reader, tt_stream *compute);

/* ---- launch ---- */
/* TT_ERR_USAGE if the launcher started more processes than MPI sees (as srun without a matching PMI
 * does): `world_size` is MPI's. Names both numbers and the option to use. Looks at
 * SLURM_STEP_NUM_TASKS, PMI_SIZE, PMIX_..., OMPI_COMM_WORLD_SIZE; not at SLURM_NTASKS. */
TT_API tt_status tt_launch_check(int world_size);
/* True if a process manager says that it started this process as a job of one: that is whole,
 * whatever step it runs in (mpirun -n 1 in a step of eight), and tt_launch_check(1) need not be
 * asked. What a task of srun has inherited from outside of its step does not count. To be called
 * before MPI_Init, which says so itself when it finds nobody. */
TT_API bool tt_launch_is_whole(void);

#endif
