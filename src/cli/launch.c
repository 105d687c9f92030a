/* launch.c - starts and ends the ranks.
 *
 * Placement: ranks that share one machine and one affinity mask divide its cores; a rank that the
 * launcher bound to cores of its own keeps them. "One machine" means one running kernel (its boot
 * id), not a name and not an MPI node: containers and network namespaces of one kernel have other
 * names but the same cores. */
#include "config.h"
#include "launch.h"
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tutti/comm_mpi.h"
#include "tutti/hash.h"
#include "tutti/log.h"
#include "text_in.h"

enum {
    /* When a group is broken rank 0 tells the error and ends the job. If it cannot, rank 1 does
     * after this time, and so on. The steps are longer than a launcher takes to end a job. */
    SPEAKER_GRACE_MS = 1000,
    NEXT_SPEAKER_MS = 500,
    MAX_GRACE_MS = 6000,
    MAX_SPEAKERS = 8, /* whose last words are waited for */
    /* What the one who tells may take for last words. A thread's timeline of 65536 spans was
     * written in 85 ms. */
    LAST_WORDS_MS = 3000,
    SLICE_MS = 50,
    CPU_LIST_BYTES = 256,
    WATCH_SLACK_S = 30, /* beyond the deadline: waits of our own come first and name the culprit */
    TTI_CLI_EXIT_PEER = 4
};

/* Set when this process was stopped and woken: then the others have most likely missed it and speak
 * first, and the launcher, which wakes stopped processes in order to end them, must not make it
 * speak too. */
static volatile sig_atomic_t was_stopped;

static void note_continue(int number)
{
    (void)number;
    was_stopped = 1;
}

/* ---- a watchdog for MPI calls that know no deadline ---- */

static char watch_text[256];

static void watch_expired(int number)
{
    (void)number;
    ssize_t ignored = write(STDERR_FILENO, watch_text, strlen(watch_text));
    (void)ignored;
    _exit(TTI_CLI_EXIT_PEER);
}

/* Ends the process with exit code 4 if watch_end is not called within so many seconds. */
static void watch_set(int rank, const char *what, const char *why, unsigned seconds)
{
    snprintf(watch_text, sizeof(watch_text), "tutti: rank %d: %s did not end in time%s\n", rank,
             what, why);
    struct sigaction action = {.sa_handler = watch_expired};
    sigaction(SIGALRM, &action, NULL);
    alarm(seconds);
}

/* Of something that all ranks do together. */
static void watch_begin(int rank, const char *what, double deadline_s)
{
    watch_set(rank, what, ": some rank does not take part", (unsigned)deadline_s + WATCH_SLACK_S);
}

static void watch_end(void)
{
    alarm(0);
}

static void sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

/* Equal on all processes of one running kernel; 0 if the kernel does not tell. */
static uint64_t machine_hash(void)
{
    char id[64];
    uint64_t hash = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        size_t n = fread(id, 1, sizeof(id), file);
        if (n > 0) {
            hash = tt_hash_bytes(TT_HASH_BEGIN, id, n);
        }
        fclose(file);
    }
    return hash;
}

/* The allowed CPUs as "0-3,8"; cut at the end of list. */
static void mask_text(char list[CPU_LIST_BYTES])
{
    cpu_set_t set;
    list[0] = 0;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        snprintf(list, CPU_LIST_BYTES, "unknown");
        return;
    }
    size_t used = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set)) {
            continue;
        }
        size_t last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) {
            last++;
        }
        char piece[32];
        if (last > cpu) {
            snprintf(piece, sizeof(piece), "%s%zu-%zu", used ? "," : "", cpu, last);
        } else {
            snprintf(piece, sizeof(piece), "%s%zu", used ? "," : "", cpu);
        }
        if (used + strlen(piece) >= CPU_LIST_BYTES) {
            break;
        }
        memcpy(list + used, piece, strlen(piece) + 1);
        used += strlen(piece);
        cpu = last;
    }
}

/* Ranks of this node as the launcher tells; 1 if it does not. */
static int launcher_local_size(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "PALS_LOCAL_SIZE", NULL};
    for (int i = 0; names[i]; i++) {
        const char *text = getenv(names[i]);
        int n = text ? atoi(text) : 0;
        if (n > 0) {
            return n;
        }
    }
    return 1;
}

/* Cores that this rank will have, guessed before ranks can talk to each other; steers the automatic
 * progress mode only. */
static int guess_cores(const tti_cli_options *options, const tt_topology *topology)
{
    const tt_topology_info *info = tt_topology_get_info(topology);
    int n = info->n_cores;
    if (info->n_cpus == info->n_cpus_host) {
        n /= launcher_local_size(); /* not bound: the ranks share the host */
    }
    if (info->cpu_quota > 0 && (double)n > info->cpu_quota) {
        n = (int)info->cpu_quota;
    }
    if (options->threads > 0 && n > options->threads) {
        n = (int)options->threads;
    }
    return n > 1 ? n : 1;
}

typedef struct share_key {
    uint64_t machine, mask;
    int n_cores, n_cpus; /* of the mask */
    double quota;        /* CPUs that the control group grants; 0 = no limit */
    int n_granted;       /* CPUs that the mask could have; 0 = not known */
    cpu_set_t set;       /* the mask */
} share_key;

/* The CPUs that the control group would allow this thread: a wish for all of them is cut to that.
 * 0 if it cannot be asked. The mask is put back. */
static int count_granted(const cpu_set_t *mask)
{
    cpu_set_t wish, got;
    memset(&wish, 0xff, sizeof(wish));
    int n = 0;
    if (sched_setaffinity(0, sizeof(wish), &wish) == 0) {
        n = sched_getaffinity(0, sizeof(got), &got) == 0 ? CPU_COUNT(&got) : 0;
        if (sched_setaffinity(0, sizeof(*mask), mask) != 0) {
            tt_log(TT_LOG_WARN, "the affinity mask could not be put back");
        }
    }
    return n;
}

static share_key my_share_key(const tti_cli_launch *launch)
{
    const tt_topology_info *info = tt_topology_get_info(launch->topology);
    share_key key = {.machine = machine_hash(),
                     .mask = tt_topology_mask_hash(launch->topology),
                     .n_cores = info->n_cores,
                     .n_cpus = info->n_cpus,
                     .quota = info->cpu_quota};
    if (key.machine == 0) {
        key.machine = 1 + (uint64_t)tt_world_node(launch->world, launch->rank);
    }
    if (sched_getaffinity(0, sizeof(key.set), &key.set) == 0) {
        key.n_granted = count_granted(&key.set);
    }
    return key;
}

/* Advice for the first machine whose ranks are too many for its cores, or leave most of them idle:
 * both make a run many times slower than it need be. "" where all is well. */
static void advise_on_placement(const tti_cli_launch *launch, const share_key *all,
                                char advice[TTI_CLI_ADVICE_BYTES])
{
    for (int first = 0; first < launch->size; first++) {
        cpu_set_t together;
        CPU_ZERO(&together);
        int n_ranks = 0;
        for (int r = 0; r < launch->size; r++) {
            if (all[r].machine == all[first].machine && r < first) {
                break; /* this machine was looked at */
            }
            if (all[r].machine == all[first].machine) {
                CPU_OR(&together, &together, &all[r].set);
                n_ranks++;
            }
        }
        if (n_ranks == 0) {
            continue;
        }
        const share_key *key = &all[first];
        const char *host = tt_world_host(launch->world, first);
        int n_cpus = CPU_COUNT(&together);
        /* Cores, where a core has several CPUs. */
        double cores = key->n_cpus > 0 ? (double)n_cpus * key->n_cores / key->n_cpus : 0;
        if (key->quota > 0 && cores > key->quota) {
            cores = key->quota;
        }
        if (n_cpus > 0 && 2 * n_cpus < key->n_granted) {
            snprintf(
                advice, TTI_CLI_ADVICE_BYTES,
                "the launcher bound the %d rank%s on %s to %d of the %d CPUs: start with mpirun "
                "--bind-to none (or --map-by ppr:1:numa:PE=N), or srun -c N",
                n_ranks, n_ranks == 1 ? "" : "s", host, n_cpus, key->n_granted);
            return;
        }
        if (cores > 0 && n_ranks > cores) {
            snprintf(
                advice, TTI_CLI_ADVICE_BYTES,
                "%d ranks on %s take turns on %.3g core%s, which is slow: start fewer (mpirun -n "
                "%d)",
                n_ranks, host, cores, cores == 1 ? "" : "s", cores > 1 ? (int)cores : 1);
            return;
        }
    }
}

static tt_status place_threads(const tti_cli_options *options, tti_cli_launch *launch)
{
    tt_world *world = launch->world;
    share_key mine = my_share_key(launch);
    share_key *all = calloc((size_t)launch->size, sizeof(*all));
    tt_status status = all ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", launch->size);
    status = tt_world_agree(world, status);
    if (status == TT_OK) {
        status = tt_world_allgather(world, &mine, sizeof(mine), all);
    }
    if (status != TT_OK) {
        free(all);
        return status;
    }
    int on_machine = 0, sharing = 0, before = 0;
    for (int r = 0; r < launch->size; r++) {
        if (all[r].machine == mine.machine) {
            on_machine++;
            if (all[r].mask == mine.mask) {
                sharing++;
                before += r < launch->rank ? 1 : 0;
            }
        }
    }
    if (launch->rank == 0 && !options->quiet) {
        advise_on_placement(launch, all, launch->advice);
    }
    free(all);
    launch->n_sharing = sharing;
    bool own_mask = sharing == 1 && on_machine > 1;
    status = tt_topology_place(launch->topology, before, sharing, own_mask, (int)options->threads,
                               &launch->cpus);
    return tt_world_agree(world, status);
}

static void describe_rank(const tti_cli_options *options, const tti_cli_launch *launch)
{
    const tt_topology_info *info = tt_topology_get_info(launch->topology);
    char mask[CPU_LIST_BYTES], cpus[CPU_LIST_BYTES];
    mask_text(mask);
    const char *host = tt_world_host(launch->world, launch->rank);
    if (info->n_cpus == 1 && options->threads > 1) {
        tt_log(TT_LOG_WARN,
               "%d threads on host %s share CPU %s, the only one that the launcher gave this "
               "rank: start with mpirun --bind-to none (or --map-by slot:PE=%d), or srun -c %d",
               launch->cpus.n_threads, host, mask, launch->cpus.n_threads, launch->cpus.n_threads);
    }
    size_t used = 0;
    cpus[0] = 0;
    for (int i = 0; i < launch->cpus.n_threads && used + 16 < sizeof(cpus); i++) {
        if (launch->cpus.cpu[i] >= 0) {
            used += (size_t)snprintf(cpus + used, sizeof(cpus) - used, "%s%d", used ? "," : "",
                                     launch->cpus.cpu[i]);
        }
    }
    tt_log(TT_LOG_INFO, "host %s, mask %s (%d CPU%s), %d thread%s %s%s, memory node %d%s", host,
           mask, info->n_cpus, info->n_cpus == 1 ? "" : "s", launch->cpus.n_threads,
           launch->cpus.n_threads == 1 ? "" : "s",
           !used                         ? "unbound"
           : launch->cpus.n_threads == 1 ? "on CPU "
                                         : "on CPUs ",
           cpus, launch->cpus.node,
           launch->cpus.shared ? ", cores are shared with other ranks" : "");
}

static void poll_world(void *arg)
{
    tt_world_progress(arg);
}

/* Open MPI ends a process inside MPI_Init when its job step offers no PMI, with advice on how to
 * build Open MPI. So such a step is refused before. Other MPIs may need none of these (Slurm's own
 * PMI-1 library). */
static tt_status check_step(void)
{
#ifdef OPEN_MPI
    static const char *const names[] = {"PMIX_NAMESPACE",       "PMIX_RANK", "PMI_RANK", "PMI_FD",
                                        "OMPI_COMM_WORLD_SIZE", NULL};
    for (int i = 0; names[i]; i++) {
        if (getenv(names[i])) {
            return TT_OK;
        }
    }
    return tt_launch_check(1);
#else
    return TT_OK;
#endif
}

/* Starts MPI and finds this rank's place. An error is the same on each process, as every one
 * believes to be alone. */
static tt_status begin_mpi(tti_cli_launch *launch, int *provided_out)
{
    int launcher_rank = tti_cli_launcher_rank(); /* before MPI_Init, see there */
    bool job_of_one = tt_launch_is_whole();      /* likewise */
    launch->first_to_speak = launcher_rank == 0;
    TT_TRY(job_of_one ? TT_OK : check_step());
    *provided_out = MPI_THREAD_SINGLE;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided_out); /* aborts itself on errors */
    MPI_Comm_rank(MPI_COMM_WORLD, &launch->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &launch->size);
    launch->first_to_speak = launch->size > 1 ? launch->rank == 0 : launcher_rank == 0;
    TT_TRY(job_of_one && launch->size == 1 ? TT_OK : tt_launch_check(launch->size));
    if (launch->size > 1) {
        tt_log_set_rank(launch->rank);
    }
    return TT_OK;
}

/* options: NULL if there are none to go by. */
static tt_status make_world(const tti_cli_options *options, double deadline_s, int provided,
                            tti_cli_launch *launch)
{
    tt_world_params params = {.comm_cpu = -1, .n_cores = 1};
    if (options) {
        params.progress = (tt_progress)options->progress;
        params.deadline_s = options->deadline_s;
        params.n_cores = guess_cores(options, launch->topology);
    }
    if (provided < MPI_THREAD_SERIALIZED) {
        params.progress = TT_PROGRESS_CALLER;
        if (launch->rank == 0) {
            tt_log(TT_LOG_WARN,
                   "this MPI allows calls from the main thread only: --progress caller is used");
        }
    }
    launch->deadline_s = deadline_s;
    watch_begin(launch->rank, "making the world", launch->deadline_s);
    tt_status status = tt_world_create(MPI_COMM_WORLD, &params, &launch->world);
    watch_end();
    return status;
}

tt_status tti_cli_launch_begin(const tti_cli_options *options, tt_status mine,
                               tti_cli_launch *launch)
{
    memset(launch, 0, sizeof(*launch));
    /* What failed here may be lost in later calls; adopt it again when it is time to agree. */
    char message[TT_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof(message), "%s", tt_status_message());

    struct sigaction action = {.sa_handler = note_continue, .sa_flags = SA_RESTART};
    sigaction(SIGCONT, &action, NULL);
    int provided = MPI_THREAD_SINGLE;
    TT_TRY(begin_mpi(launch, &provided));
    if (mine == TT_OK) {
        mine = tt_topology_create(NULL, &launch->topology);
        if (mine != TT_OK) {
            snprintf(message, sizeof(message), "%s", tt_status_message());
        }
    }
    TT_TRY(make_world(mine == TT_OK ? options : NULL, options->deadline_s, provided, launch));
    tti_cli_while_waiting(poll_world, launch->world);
    if (mine != TT_OK) {
        mine = tt_status_adopt(mine, message);
    }
    tt_status status = tt_world_agree(launch->world, mine);
    if (status == TT_OK) {
        status = place_threads(options, launch);
    }
    if (status == TT_OK) {
        describe_rank(options, launch);
    }
    return status;
}

/* True if other ranks may never answer again. */
static bool group_is_lost(const tti_cli_launch *launch, tt_status status)
{
    return status == TT_ERR_TIMEOUT || status == TT_ERR_PEER || status == TT_ERR_MPI ||
           status == TT_ERR_PROTOCOL || (launch->world && tt_world_is_broken(launch->world));
}

/* Returns when it is this rank's turn to tell of a broken group; mostly the job is ended before
 * that. */
static void wait_for_turn(const tti_cli_launch *launch)
{
    const int more = launch->last_words ? LAST_WORDS_MS + NEXT_SPEAKER_MS : 0;
    const int longest = MAX_GRACE_MS + more * MAX_SPEAKERS;
    int grace = launch->rank > 0 ? SPEAKER_GRACE_MS + more : 0;
    for (int r = 1; r < launch->rank && grace < longest; r++) {
        grace += NEXT_SPEAKER_MS + more;
    }
    grace = grace < longest ? grace : longest;
    for (int waited = 0; waited < (was_stopped ? longest : grace); waited += SLICE_MS) {
        sleep_ms(SLICE_MS);
    }
}

/* For as long as the next rank waits: a file system that hangs must not keep the others. */
static void say_last_words(const tti_cli_launch *launch)
{
    if (launch->last_words) {
        watch_set(launch->rank, "writing what was measured", "", LAST_WORDS_MS / 1000);
        launch->last_words(launch->last_words_arg);
        watch_end();
    }
}

void tti_cli_launch_tell(tti_cli_launch *launch, tt_status status)
{
    if (status == TT_OK) {
        return;
    }
    if (group_is_lost(launch, status)) {
        wait_for_turn(launch);
        tti_cli_print_error();
        say_last_words(launch);
        MPI_Abort(MPI_COMM_WORLD, tt_status_exit_code(status));
        exit(tt_status_exit_code(status)); /* MPI_Abort is not required to end us */
    }
    /* Nobody leaves before the line is out: the launcher ends a job at its first bad exit. */
    if (launch->first_to_speak) {
        tti_cli_print_error();
    } else if (!launch->world) {
        sleep_ms(SPEAKER_GRACE_MS);
    }
    if (launch->world) {
        tt_status ignored = tt_world_barrier(launch->world);
        (void)ignored;
    }
}

void tti_cli_launch_closing(const tti_cli_launch *launch)
{
    watch_begin(launch->rank, "the end of the run", launch->deadline_s);
}

int tti_cli_launch_end(tti_cli_launch *launch, tt_status status)
{
    if (status == TT_OK && launch->world && tt_world_is_broken(launch->world)) {
        status = tt_world_error(launch->world); /* a peer was lost while all was taken down */
        tti_cli_launch_tell(launch, status);
    }
    tti_cli_while_waiting(NULL, NULL);
    tti_cli_launch_closing(launch);
    tt_world_destroy(&launch->world);
    tt_topology_destroy(&launch->topology);
    int is_up = 0;
    MPI_Initialized(&is_up);
    if (is_up) {
        MPI_Finalize();
    }
    watch_end();
    return tt_status_exit_code(status);
}
