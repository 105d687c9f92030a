#!/bin/sh
# run_test.sh - starts one test program; automake's LOG_COMPILER.
#
# A C test may say in its source (comments anywhere in it) how it wants to be started:
#   /* TEST ranks: 1 2 3 4 8 */   under mpirun, once per count; without this line the program is just run
#   /* TEST args: --soak */       its arguments; several such lines: one run each (and per count)
#   /* TEST env: A=b C=d */       variables for all its runs
#   /* TEST timeout: 60 */        seconds per run, default 120
# The first run that fails decides; 77 (skipped) is passed on if no run failed. Needs top_srcdir and MPIRUN in the environment.
# $2 and on are handed to the program, so that a test can be started by hand: top_srcdir=. MPIRUN=mpirun sh tests/run_test.sh tests/mpi/test_x
program=$1
shift

name=`basename "$program" .sh`
case $program in
    *docs/examples/*) source=$top_srcdir/docs/examples/$name.c ;;
    *) # two folders may have a test of one name
        folder=`dirname "$program"`
        source=$top_srcdir/tests/`basename "$folder"`/$name.c
        ;;
esac

# What follows "TEST $1:" in the source, one line per occurrence.
setting() {
    test -f "$source" && sed -n "s|^.*/\* TEST $1: *\(.*[^ ]\) *\*/.*\$|\1|p" "$source"
}

ranks=`setting ranks`
limit=`setting timeout | head -n 1`
limit=${limit:-120}
for pair in `setting env`; do
    # shellcheck disable=SC2163
    export "$pair" # NAME=VALUE
done
runs=`setting args`

case $program in
    *.sh) start="sh $program" ;;
    /*|*/*) start=$program ;;
    *) start=./$program ;;
esac

limiter=
if timeout 5 true 2>/dev/null; then
    limiter="timeout -k 5 $limit"
fi

flags=
if test -n "$ranks"; then
    mpirun=${MPIRUN:-mpirun}
    case `$mpirun --version 2>&1` in
        *"Open MPI"*|*"Open RTE"*|*OpenRTE*) flags=--oversubscribe ;;
    esac
    # More ranks than cores, perhaps as root in a container; the leaks of MPI itself are not ours to report.
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_mpi_yield_when_idle=1
    OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_btl_base_warn_component_unused=0
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_mpi_yield_when_idle \
        OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_hwloc_base_binding_policy \
        OMPI_MCA_btl_base_warn_component_unused PRTE_MCA_rmaps_default_mapping_policy ASAN_OPTIONS
fi

result=0
# one NAME COMMAND...: runs it and keeps the worst result.
one() {
    what=$1
    shift
    "$@" </dev/null
    code=$?
    case $code in
        0) ;;
        77) test $result -ne 0 || result=77 ;;
        124|137) echo "$name: $what: ended by the time limit of $limit s" >&2; exit 1 ;;
        *) echo "$name: $what: exit code $code" >&2; exit $code ;;
    esac
}

# Each line of arguments; at least one run with none.
run_with() {
    count=$1
    shift
    old_ifs=$IFS
    IFS='
'
    set -f
    for line in ${runs:-:none:}; do
        IFS=$old_ifs
        test "$line" != :none: || line=
        if test -n "$count"; then
            # Words are wanted.
            # shellcheck disable=SC2086
            one "$count ranks $line" $limiter $mpirun -n "$count" $flags $start $line "$@"
        else
            # shellcheck disable=SC2086
            one "run $line" $limiter $start $line "$@"
        fi
    done
    set +f
}

if test -n "$ranks"; then
    for n in $ranks; do
        run_with "$n" "$@"
    done
else
    run_with "" "$@"
fi
exit $result
