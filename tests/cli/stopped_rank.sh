#!/bin/sh
# stopped_rank.sh - a rank stops in mid-run: the others give up within the deadline, one line names it, mpirun's exit code is 4, and no
# process is left.
set -u
. "$top_srcdir/tests/cli/lib.sh"
TT_TIMEOUT=90

# Pids of this test's own processes of a given rank: those below this shell's mpirun.
pid_of_rank() {
    for status in /proc/[0-9]*/environ; do
        pid=${status%/environ}
        pid=${pid#/proc/}
        [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$exe" ] || continue
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "TT_STOPPED_RANK_TEST=$$" || continue
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qEx "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" && echo "$pid"
    done
}
[ -r /proc/self/environ ] || { echo "1..0 # SKIP no /proc"; exit 77; }
exe=$(readlink -f "$tutti")
TT_STOPPED_RANK_TEST=$$
export TT_STOPPED_RANK_TEST

for victim in 1 0; do
    name="rank $victim of 3 is stopped"
    : >"$work/out"
    # Long enough on any machine: eight sequences to the end of the context, again and again.
    awk 'BEGIN { for (i = 0; i < 64; i++) printf "{\"ids\": [%d], \"n\": 1000, \"temperature\": 1, \"seed\": %d}\n", 5 + i, i }' >"$work/prompts"
    mpi_run 3 "$tutti" run "$model" --prompts "$work/prompts" --max-batch 4 --json --deadline 3 --quiet --threads 1 \
        >"$work/out" 2>"$work/err" </dev/null &
    job=$!
    # The first line of output shows that all ranks are at work.
    waited=0
    while [ ! -s "$work/out" ] && [ $waited -lt 60 ] && kill -0 $job 2>/dev/null; do
        sleep 0.5
        waited=$((waited + 1))
    done
    pid=$(pid_of_rank $victim)
    check "it is at work" [ -n "$pid" ]
    # shellcheck disable=SC2086
    kill -STOP $pid
    begin=$(date +%s)
    wait $job
    code=$?
    took=$(($(date +%s) - begin))
    check "exit code 4" exits 4
    check "one line" one_error
    check "that names it" err_has "^tutti: .*rank $victim \\("
    check "within the deadline and a grace ($took s)" [ $took -le 15 ]
    sleep 1
    left=$(pid_of_rank 0)$(pid_of_rank 1)$(pid_of_rank 2)
    check "nobody is left" [ -z "$left" ]
    # shellcheck disable=SC2086
    [ -z "$left" ] || kill -9 $left
done
done_testing
