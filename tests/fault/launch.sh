#!/bin/sh
# launch.sh - how the program understands its launcher. N lone processes that should have been one job of N are refused by name; what is
# merely inherited from an allocation does no harm; threads are what mask and quota allow, whatever the host has.
set -u
. "$top_srcdir/tests/fault/lib.sh"
unset SLURM_STEP_NUM_TASKS SLURM_PROCID PMI_SIZE PMI_RANK PMIX_RANK OMP_NUM_THREADS TUTTI_THREADS
quick=10 # seconds; far less than a model needs to load, on a loaded machine
text() { # text COMMAND...: which runs the program
    one "$@" "$tutti" run "$model" -p Once -n 4 --quiet --verbose 2 </dev/null
}

# ---- a launcher that started more processes than MPI knows of ----
name="one rank"
text env
check "works" exits 0
cp "$work/out" "$work/undisturbed"
works() { # as alone
    exits 0 && cmp "$work/undisturbed" "$work/out"
}
refuses() { # refuses SIZE PATTERN
    exits 2 && one_error && err_has "^tutti: .*started $1 processes .*world of 1: .*$2" && [ ! -s "$work/out" ]
}
while read -r size pattern variables; do
    name="lone process with $variables"
    begun=$(date +%s)
    # shellcheck disable=SC2086 # words are wanted
    text env $variables
    check "is refused with both numbers and what to do" refuses "$size" "$pattern"
    check "at once" [ $(($(date +%s) - begun)) -le $quick ]
done <<'ROWS'
4 --mpi=pmix SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0
3 --mpi=pmix PMI_SIZE=3 PMI_RANK=0
3 mpirun OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0
ROWS
name="another of four lone processes"
text env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2
check "fails, too" exits 2
check "and leaves the word to the first" [ ! -s "$work/err" ]
while read -r variables; do
    name="one rank with $variables"
    # shellcheck disable=SC2086
    text env $variables
    check "works" works
done <<'ROWS'
SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_JOB_NUM_NODES=2
SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_NTASKS=4
ROWS
name="two ranks of mpirun in a step of eight" # its daemons are the step's tasks
text env SLURM_STEP_NUM_TASKS=8 "$MPIRUN" -n 2
check "work" works
name="one rank of mpirun in a step of eight"
text env SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0 SLURM_TASK_PID=1 "$MPIRUN" -n 1
check "works" works
name="a task of srun that inherits a mpirun's variables"
# shellcheck disable=SC2016 # expanded inside
text env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 sh -c 'SLURM_TASK_PID=$$ exec "$@"' sh
check "is refused" refuses 4 --mpi=pmix
# shellcheck disable=SC2016
text env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 sh -c 'SLURM_TASK_PID=$$ "$@"; exit $?' sh
check "is refused behind a shell of the task, too" refuses 4 --mpi=pmix
name="two launchers that contradict each other"
text env PMI_SIZE=3 PMI_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0
check "are refused" refuses 3 --mpi=pmix
name="info with SLURM_STEP_NUM_TASKS=4" # starts no ranks
one env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1 "$tutti" info
check "works" exits 0

# ---- threads ----
threads_are() { # threads_are N [RANKS]: on each rank
    exits 0 && [ "$(grep -cE "host .*\), $1 threads? " "$work/err")" -eq "${2:-1}" ]
}
# CPUs of two different cores that we may use.
cpu=$(lscpu -p=CPU,CORE 2>/dev/null | awk -F, -v allowed="$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)" '
    BEGIN { n = split(allowed, r, ","); for (i = 1; i <= n; i++) { k = split(r[i], e, "-"); for (c = e[1]; c <= e[k]; c++) may[c + 0] = 1 } }
    !/^#/ && may[$1 + 0] && !seen[$2]++ { print $1 }' | head -n 2)
first=$(echo "$cpu" | head -n 1)
second=$(echo "$cpu" | sed -n 2p)
if command -v taskset >/dev/null && [ -n "$second" ]; then
    name="mask of CPU $first"
    text taskset -c "$first"
    check "one thread" threads_are 1
    check "is as alone" works
    text taskset -c "$first" env TUTTI_THREADS=2
    check "two threads that were asked for" threads_are 2
    check "come with a warning that tells how to get more" err_has "warning: .*--bind-to none"
    name="mask of CPUs $first and $second"
    text taskset -c "$first,$second"
    check "two threads" threads_are 2
    text taskset -c "$first,$second" env OMP_NUM_THREADS=1
    check "whatever OpenMP is told" threads_are 2
    check "is as alone" works
    text taskset -c "$first,$second" env "$MPIRUN" -n 2 --bind-to none
    check "two ranks share it: one thread each" threads_are 1 2
    text taskset -c "$first,$second" env "$MPIRUN" -n 2 --bind-to core
    check "two ranks bound to a core: one thread each" threads_are 1 2
    check "nobody warns" eval '! err_has warning'
    text taskset -c "$first,$second" env "$MPIRUN" -n 5 --bind-to none
    check "five ranks on two cores: one thread each" threads_are 1 5
    check "which is said" err_has "rank 4: .*shared with other ranks"
    check "is as alone" works

    # One and a half of these two CPUs; version 1 or 2 of control groups.
    name="quota of 1.5 CPUs"
    group=
    for controller in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup; do
        if [ -z "$group" ] && { [ -e "$controller/cpu.cfs_quota_us" ] || grep -qsw cpu "$controller/cgroup.subtree_control"; } &&
            mkdir "$controller/tutti-test.$$" 2>/dev/null; then
            group=$controller/tutti-test.$$
        fi
    done
    if [ -n "$group" ]; then
        trap 'end_all; rmdir "$group" 2>/dev/null; rm -rf "$work"' EXIT
        if [ -e "$group/cpu.max" ]; then
            echo "150000 100000" >"$group/cpu.max"
        else
            echo 100000 >"$group/cpu.cfs_period_us"
            echo 150000 >"$group/cpu.cfs_quota_us"
        fi
        # shellcheck disable=SC2016 # expanded inside
        text taskset -c "$first,$second" sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group"
        check "one thread" threads_are 1
        check "is as alone" works
        rmdir "$group" 2>/dev/null || { sleep 1; rmdir "$group"; }
    else
        ok "# SKIP no control group can be made"
    fi
else
    name=threads
    ok "# SKIP no taskset, or less than two cores"
fi
done_testing
