/* launch.c - notices a launcher that started N lone processes instead of one MPI job of N.
 *
 * `srun` without a matching PMI plug-in does that: each process is rank 0 of 1, loads the whole
 * model and fights for the port. The size of the job step tells. SLURM_NTASKS does not: it is
 * inherited by anything started inside an allocation. */
#include "tutti/comm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_size(const char *name)
{
    const char *text = getenv(name);
    if (!text || !text[0]) {
        return 0;
    }
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno == 0 && *end == 0 && value > 0 && value <= INT32_MAX ? (int)value : 0;
}

tt_status tt_launch_check(int world_size)
{
    static const struct {
        const char *name;
        const char *advice;
    } sources[] = {
        {"OMPI_COMM_WORLD_SIZE", "build tutti with the MPI whose mpirun starts it"},
        {"PMI_SIZE",
         "start it with the mpiexec of the MPI that tutti was built with, or with srun --mpi=pmi2 "
         "or --mpi=pmix as that MPI needs"},
        {"PMIX_SIZE", "start it with the mpirun of the MPI that tutti was built with"},
        {"SLURM_STEP_NUM_TASKS",
         "use srun --mpi=pmix (srun --mpi=list shows what there is) or mpirun"},
    };
    /* A job that mpirun (of Open MPI, of MPICH) made itself is whole, whatever step its daemons run
     * in. */
    if (world_size > 1 &&
        (read_size("OMPI_COMM_WORLD_SIZE") == world_size || read_size("PMI_SIZE") == world_size)) {
        return TT_OK;
    }
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        int started = read_size(sources[i].name);
        TT_CHECK(started <= world_size, TT_ERR_USAGE,
                 "the launcher started %d processes (%s), but MPI sees a world of %d: they do not "
                 "know of each "
                 "other; %s",
                 started, sources[i].name, world_size, sources[i].advice);
    }
    return TT_OK;
}

/* Whether the process that Slurm started as the task of this step had the variable already; so it
 * was inherited from outside of the step. False where that cannot be read. */
static bool task_inherited(const char *name)
{
    char path[64], *line = NULL;
    size_t capacity = 0;
    const size_t n = strlen(name);
    const int task = read_size("SLURM_TASK_PID");
    snprintf(path, sizeof(path), "/proc/%d/environ", task);
    FILE *file = task > 0 ? fopen(path, "r") : NULL;
    bool is_there = false;
    while (file && !is_there && getdelim(&line, &capacity, '\0', file) > 0) {
        is_there = strncmp(line, name, n) == 0 && line[n] == '=';
    }
    free(line);
    if (file) {
        fclose(file);
    }
    return is_there;
}

bool tt_launch_is_whole(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"};
    bool is_told = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (getenv(names[i])) {
            if (read_size(names[i]) != 1 || task_inherited(names[i])) {
                return false;
            }
            is_told = true;
        }
    }
    return is_told;
}
