#!/bin/sh
# killed_rank.sh - a rank that dies (kill -9) in mid-run ends the job with an exit code that is not 0, within the deadline; rank and host
# are named by the launcher, or by us where the launcher looks away. Nothing is presented as complete that is not; nobody is left.
set -u
. "$top_srcdir/tests/fault/lib.sh"
TUTTI_VERBOSE=0 # no warnings that few cores serve many ranks: error lines are counted
export TUTTI_VERBOSE
deadline=5
limit=25 # seconds, on a loaded machine
make_prompts "$work/prompts"
host=$(uname -n)

fails() {
    [ "$code" -ne 0 ] && [ "$code" -ne 124 ] # that would be the time limit of this test
}
# MPICH's launcher says on stdout that a process died on which host, but not what rank it had.
has_hydra=0
! "$MPIRUN" --version 2>/dev/null | grep -qi hydra || has_hydra=1
named() { # named RANK, by mpirun or by us
    [ $has_hydra -eq 1 ] && grep -q "PID [0-9]* RUNNING AT $host" "$work/hydra" ||
        err_has "process rank $1 .*on node $host exited on signal 9" ||
        err_has "^tutti: .*rank $1 \\($host\\)"
}
while read -r victim options; do
    name="rank $victim of 4 is killed, $options"
    # shellcheck disable=SC2086 # words are wanted
    begin mpi_run 4 "$tutti" run "$model" --prompts "$work/prompts" --max-batch 4 --json --deadline $deadline --threads 1 $options
    strike KILL "$victim"
    finish
    : >"$work/hydra"
    if [ $has_hydra -eq 1 ]; then # its banner, an empty line before it
        sed -n '/^=\{20,\}$/,$p' "$work/out" >"$work/hydra"
        sed -i -e '/^=\{20,\}$/,$d' "$work/out"
        sed -i -e '${/^$/d;}' "$work/out"
    fi
    check "it fails (exit code $code)" fails
    check "rank and host are named" named "$victim"
    check "in time (after $took s)" [ "$took" -le $limit ]
    check "only what was complete is shown" only_complete_text
    check "nobody is left" nobody_is_left
done <<'ROWS'
3 --dp 4 --tp 1
0 --dp 1 --tp 4
ROWS
done_testing
