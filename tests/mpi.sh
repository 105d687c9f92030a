# mpi.sh - for shell tests: mpi_run N COMMAND... starts N ranks on this machine, on few cores, under a time limit.
# Sourced; needs MPIRUN. TT_TIMEOUT: seconds (120).
# shellcheck shell=sh
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_mpi_yield_when_idle=1
OMPI_MCA_rmaps_base_oversubscribe=1
OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_mpi_yield_when_idle
export OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_hwloc_base_binding_policy
# The leaks of MPI itself are not ours to report; tests of one process without MPI look for leaks.
ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}
export ASAN_OPTIONS
mpi_run() {
    mpi_ranks=$1
    shift
    timeout -k 5 "${TT_TIMEOUT:-120}" "$MPIRUN" -n "$mpi_ranks" "$@"
}
