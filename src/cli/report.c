/* report.c - how an error reaches the user: once, as one line, whatever the number of ranks.
 *
 * Before MPI is up every rank may find the same error. The launcher tells each process its rank in
 * the environment, so the first one speaks. The others leave a little later: mpirun ends a job at
 * the first exit that is not 0, and must not end it before the line is out. */
#include "config.h"
#include "cli.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tutti/log.h"

enum { SPEAKER_GRACE_MS = 700 }; /* guessed: a start-up of the first rank on an overloaded host */

/* The first of these variables that holds a number in [0, INT_MAX); fallback if none does. */
static int first_number(const char *const *names, int fallback)
{
    for (int i = 0; names[i]; i++) {
        const char *text = getenv(names[i]);
        if (text && text[0]) {
            char *end;
            errno = 0;
            long value = strtol(text, &end, 10);
            if (errno == 0 && *end == 0 && value >= 0 && value < 1 << 30) {
                return (int)value;
            }
        }
    }
    return fallback;
}

/* Both are read once: MPI_Init of a process that runs alone sets some of these variables itself. */
int tti_cli_launcher_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID", NULL};
    static int rank = -1;
    if (rank < 0) {
        rank = first_number(names, 0);
    }
    return rank;
}

int tti_cli_launcher_size(void)
{
    /* SLURM_NTASKS is inherited by every shell of an allocation and proves nothing. */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        NULL};
    static int size = -1;
    if (size < 0) {
        size = first_number(names, 1);
    }
    return size;
}

void tti_cli_print_error(void)
{
    char line[TT_STATUS_MESSAGE_BYTES];
    snprintf(line, sizeof(line), "%s", tt_status_message());
    for (char *at = line; *at; at++) {
        if (*at == '\n' || *at == '\r') {
            *at = ' ';
        }
    }
    fflush(stdout);
    fprintf(stderr, "tutti: %s\n", line);
    if (tt_log_get_level() >= TT_LOG_DEBUG) {
        fputs(tt_status_trace_text(), stderr);
    }
    fflush(stderr);
}

int tti_cli_fail_alone(tt_status status)
{
    if (tti_cli_launcher_rank() == 0) {
        tti_cli_print_error();
    } else {
        struct timespec grace = {0, SPEAKER_GRACE_MS * 1000000L};
        nanosleep(&grace, NULL);
    }
    return tt_status_exit_code(status);
}

tt_status tti_cli_flush_stdout(void)
{
    errno = 0;
    bool bad = fflush(stdout) != 0;
    TT_CHECK(!bad && !ferror(stdout), TT_ERR_IO, "stdout cannot be written: %s",
             errno ? strerror(errno) : "write error");
    return TT_OK;
}
