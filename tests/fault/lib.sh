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
    for place in $(grep -lszxF "TT_FAULT_TEST=$TT_FAULT_TEST" /proc/[0-9]*/environ); do
        [ $# -eq 0 ] || grep -qszxE "(OMPI_COMM_WORLD_RANK|PMIX_RANK|PMI_RANK)=$1" "$place" || continue
        [ "$(readlink "${place%/environ}/exe" 2>/dev/null)" = "$exe" ] || continue
        place=${place%/environ}
        echo "${place#/proc/}"
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
n_prompts=64
make_prompts() { # make_prompts FILE
    awk -v n=$n_prompts 'BEGIN {
        print "{\"prompt\": \"Once\", \"n\": 2}"
        for (i = 1; i < n; i++)
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
# strike SIGNAL RANK: sends it; sets hit_pid and hit_at. finish: waits for the job; sets code and took, the seconds since then.
strike() {
    hit_pid=$(pids_of "$2")
    check "rank $2 is at work" [ -n "$hit_pid" ]
    # shellcheck disable=SC2086
    [ -z "$hit_pid" ] || kill "-$1" $hit_pid
    hit_at=$(date +%s)
}
finish() {
    wait "$job"
    code=$?
    took=$(($(date +%s) - hit_at))
}
# Each line of JSON is what it claims to be (all tokens that its prompt asked for, or an end id), the last prompts are not there, and
# no figures sum up a run that did not end.
only_complete_text() {
    ! err_has '^(decode|tokens|steps) ' && awk -v most="$n_prompts" '
        { n = split($0, part, /"ids":\[|\],"text":/); ids = part[2]; n = split(ids, id, ",") }
        /"finish":"length"/ { if (n != (NR == 1 ? 2 : 900)) bad = 1; next }
        /"finish":"stop"/ { if (id[n] != 1 && id[n] != 4) bad = 1; next }
        { bad = 1 }
        END { exit bad || NR < 1 || NR >= most }' "$work/out" && [ -z "$(tail -c 1 "$work/out" | tr -d '\n')" ]
}

# Nodes 1 .. N (see nodes), over which Open MPI's mpirun can start ranks; they go when the test ends. Skips all where they cannot be made.
nodes=$top_srcdir/tests/fault/nodes
remove_nodes() {
    [ -z "$NODES" ] || sh "$nodes" down
}
need_nodes() { # need_nodes N
    [ "$(id -u)" -eq 0 ] || skip_all "network namespaces need root"
    for tool in flock ip nsenter unshare; do
        command -v $tool >/dev/null || skip_all "no program $tool"
    done
    "$MPIRUN" --version 2>/dev/null | grep -q "Open MPI" || skip_all "mpirun is not Open MPI's: nodes has its options"
    # One test with nodes at a time: two, with a Slurm among them, had Open MPI fail in its shared memory.
    exec 9>/run/tutti-nodes.lock && flock -w 300 9
    mkdir "$work/nodes"
    NODES=
    trap 'end_all; remove_nodes; rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM HUP
    export NODES
    NODES=$(sh "$nodes" up "$1" "$work/nodes" 2>"$work/err") || skip_all "no network namespaces: $(head -n 1 "$work/err")"
    sh "$nodes" exec n1 true 2>"$work/err" || skip_all "no namespaces: $(head -n 1 "$work/err")"
}
