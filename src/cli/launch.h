/* launch.h - the ranks of a run: MPI up, who shares which cores, and an orderly end for all.
 *
 * Rule of this folder: a status that a collective function returns is the same on all ranks
 * (agreed), so that all of them take the same way out. A status that only one rank knows goes
 * through tt_world_agree first. */
#ifndef TTI_CLI_LAUNCH_H
#define TTI_CLI_LAUNCH_H
#include "cli.h"
#include "tutti/comm.h"
#include "tutti/topology.h"

enum { TTI_CLI_ADVICE_BYTES = 384 };

typedef struct tti_cli_launch {
    bool first_to_speak;    /* tells the errors that all ranks share */
    int rank, size;         /* as MPI counts them */
    double deadline_s;      /* of waits */
    tt_world *world;        /* NULL if it could not be made */
    tt_topology *topology;  /* this rank's */
    tt_placement_cpus cpus; /* where this rank's threads go */
    int n_sharing;          /* ranks that share this rank's affinity mask, itself included */
    char advice[TTI_CLI_ADVICE_BYTES]; /* rank 0: of the ranks' placement; "" = none */
    /* Called on the rank that tells of a broken group, behind the error's line; NULL: nothing. No
     * MPI calls, and no longer than LAST_WORDS_MS of launch.c: then the process ends. */
    void (*last_words)(void *arg);
    void *last_words_arg;
} tti_cli_launch;

/* Starts MPI (thread level SERIALIZED) and the world, places threads, prints a line per rank at
 * --verbose 2. `mine` is this rank's own status so far. launch is valid for tti_cli_launch_tell and
 * _end in any case.
 * MPI: collective. Errors are agreed. */
tt_status tti_cli_launch_begin(const tti_cli_options *options, tt_status mine,
                               tti_cli_launch *launch);
/* From here on the run is being taken down: a process that does not get through it in time ends
 * with exit code 4. */
void tti_cli_launch_closing(const tti_cli_launch *launch);
/* Tells an agreed status: prints the error once for all ranks. If the group is broken, the ranks
 * that still live are ended with MPI_Abort, so that nothing hangs, and this function does not
 * return. MPI: collective. */
void tti_cli_launch_tell(tti_cli_launch *launch, tt_status status);
/* Frees all, ends MPI, returns the exit code of the (told) status. MPI: collective. */
int tti_cli_launch_end(tti_cli_launch *launch, tt_status status);

#endif
