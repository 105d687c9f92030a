# lib.sh - for the fault tests: long jobs in the background, the processes of their ranks, and nodes on this machine.
# Sourced. On top of tests/cli/lib.sh (check, exits, err_has, ...), which needs top_srcdir, top_builddir, MPIRUN.
# shellcheck shell=sh
. "$top_srcdir/tests/cli/lib.sh"
: "${TT_TIMEOUT:=90}"
exe=$(readlink -f "$tutti")
# Every process of this test carries this in its environment, also behind daemons that do not descend from this shell.
TT_FAULT_TEST=$$.$(date +%s)
export TT_FAULT_TEST

skip_all() { # skip_all REASON
    echo "1..0 # SKIP $1"
    exit 77
}
[ -r /proc/self/environ ] || skip_all "no /proc"

# Pids of this test's tutti processes: of one rank, or of all.
pids_of() { # pids_of [RANK]
    for place in /proc/[0-9]*/environ; do
        pid=${place%/environ}
        pid=${pid#/proc/}
        [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$exe" ] || continue
        tr '\0' '\n' <"$place" >"$work/environ" 2>/dev/null || continue
        grep -qx "TT_FAULT_TEST=$TT_FAULT_TEST" "$work/environ" || continue
        [ $# -eq 0 ] || grep -qEx "(OMPI_COMM_WORLD_RANK|PMIX_RANK|PMI_RANK)=$1" "$work/environ" || continue
        echo "$pid"
    done
}
nobody_is_left() {
    waited=0
    while [ -n "$(pids_of)" ] && [ $waited -lt 30 ]; do # the launcher may need a moment to end them
        sleep 0.1
        waited=$((waited + 1))
    done
    left=$(pids_of)
    # shellcheck disable=SC2086 # words are wanted
    [ -z "$left" ] || { echo "# left behind: $left"; kill -9 $left; false; }
}
end_all() {
    left=$(pids_of)
    # shellcheck disable=SC2086
    [ -z "$left" ] || kill -9 $left
}
trap 'end_all; rm -rf "$work"' EXIT

# Prompts that take minutes on any machine, behind one of two tokens whose text shows that all ranks are at work.
make_prompts() { # make_prompts FILE
    awk 'BEGIN {
        print "{\"prompt\": \"Once\", \"n\": 2}"
        for (i = 1; i < 64; i++)
            printf "{\"ids\": [0, %d, 269, 1099], \"n\": 900, \"temperature\": 1, \"seed\": %d}\n", 100 + i, i
    }' >"$1"
}
# begin COMMAND...: in the background, with the output in $work/out and $work/err; waits for the first text. Sets job.
begin() {
    : >"$work/out"
    "$@" >"$work/out" 2>"$work/err" </dev/null &
    job=$!
    waited=0
    while [ ! -s "$work/out" ] && [ $waited -lt 600 ] && kill -0 $job 2>/dev/null; do
        sleep 0.1
        waited=$((waited + 1))
    done
}
# strike SIGNAL RANK: sends it, and sets hit_at. finish: waits for the job; sets code and took, the seconds since then.
strike() {
    victim=$(pids_of "$2")
    check "rank $2 is at work" [ -n "$victim" ]
    # shellcheck disable=SC2086
    [ -z "$victim" ] || kill "-$1" $victim
    hit_at=$(date +%s)
}
finish() {
    wait "$job"
    code=$?
    took=$(($(date +%s) - hit_at))
}
# Only the first prompt is presented as done, and no figures sum up a run that did not end.
only_the_first_is_complete() {
    [ "$(wc -l <"$work/out")" -eq 1 ] && [ "$(grep -c '"finish":' "$work/out")" -eq 1 ] &&
        ! err_has '^(decode|tokens|steps) '
}

# Nodes 1 .. N (see nodes); they go when the test ends. Skips all where they cannot be made.
nodes=$top_srcdir/tests/fault/nodes
need_nodes() { # need_nodes N
    [ "$(id -u)" -eq 0 ] || skip_all "network namespaces need root"
    for tool in ip nsenter unshare; do
        command -v $tool >/dev/null || skip_all "no program $tool"
    done
    mkdir "$work/nodes"
    trap 'end_all; [ -z "$NODES" ] || sh "$nodes" down; rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM HUP
    NODES=
    NODES=$(sh "$nodes" up "$1" "$work/nodes" 2>"$work/err") || skip_all "no network namespaces: $(head -n 1 "$work/err")"
    export NODES
    sh "$nodes" exec n1 true 2>"$work/err" || skip_all "no namespaces: $(head -n 1 "$work/err")"
}
