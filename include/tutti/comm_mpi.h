/* comm_mpi.h - makes a world from an MPI communicator; for programs, tests and library users. */
#ifndef TUTTI_COMM_MPI_H
#define TUTTI_COMM_MPI_H
#include <mpi.h>
#include "tutti/comm.h"

typedef struct tt_world_params {
    tt_progress progress;
    double deadline_s; /* 0 = 60; how long any wait may take before peers are named and the group
                        * is given up */
    int n_cores;       /* cores of this rank, for TT_PROGRESS_AUTO */
    int comm_cpu;      /* OS index to bind the progress thread to; -1 = none (note: 0 is a CPU) */
    const int *fake_node; /* fake_node[size]: pretend that rank r is on this node (ranks of one
                           * real node may be told apart, never the reverse); NULL = as it is.
                           * TUTTI_FAKE_NODES="3,5" or "0,1,0,1" (a list of counts or, if as many
                           * as ranks, of node numbers) sets it too. */
    int64_t delay_ns;     /* injected delay: a message of exchanges and gathers becomes visible this
                           * long after it was sent, at no CPU cost; for tests of overlap.
                           * TUTTI_INJECT_DELAY_US sets it too. With TUTTI_INJECT_MB_S=N exchanges
                           * between nodes also go at no more than N MB/s out of each rank: a
                           * message is visible once all that the rank sent before it, and it, have
                           * passed at that rate. */
} tt_world_params;

/* Duplicates comm (the caller keeps his), finds nodes with MPI_Comm_split_type. MPI must be
 * initialised with at least MPI_THREAD_SERIALIZED (FUNNELED suffices for `caller`);
 * MPI_ERRORS_RETURN is set on the copies only. Chooses kernels (ttk_init) unless the program has.
 * MPI: collective on comm. Errors are agreed: all ranks fail or none. */
TT_API tt_status tt_world_create(MPI_Comm comm, const tt_world_params *params,
                                 tt_world **world_out);
/* The same for Fortran, where a communicator is an integer: a handle of `use mpi`, or comm%MPI_VAL
 * of `use mpi_f08`. */
TT_API tt_status tt_world_create_fortran(MPI_Fint comm, const tt_world_params *params,
                                         tt_world **world_out);

#endif
