#!/bin/sh
# two_nodes.sh - one mpirun over two and three nodes (network namespaces, real TCP between them): the logits are one rank's, byte by byte,
# whichever ranks share a node; so is the text. A rank that stops or dies on another node is named with its host.
set -u
. "$top_srcdir/tests/fault/lib.sh"
TUTTI_VERBOSE=0 # no warnings that few cores serve many ranks: error lines are counted
export TUTTI_VERBOSE
need_nodes 3
over() { # over HOSTS ARGS...: of mpirun
    timeout -k 5 "$TT_TIMEOUT" sh "$nodes" mpirun "$@"
}
deadline=5
limit=25 # seconds, on a loaded machine
head -n 3 "$top_srcdir/tests/layouts/ids/tiny.txt" >"$work/ids"

name="one rank"
ranks 1 "$tutti" score "$model" --ids-file "$work/ids" --logits "$work/one.npy" --threads 1
check "logits" [ -s "$work/one.npy" ]
while read -r hosts n options; do
    name="$n ranks on $hosts $options"
    mapping=
    case $options in "round-robin "*)
        options=${options#round-robin }
        mapping="--map-by node"
        ;;
    esac
    rm -f "$work/out.npy"
    # shellcheck disable=SC2086 # words are wanted
    over "$hosts" -n "$n" $mapping "$tutti" score "$model" --ids-file "$work/ids" --logits "$work/out.npy" --threads 1 --verbose 2 \
        $options >"$work/out" 2>"$work/err" </dev/null
    code=$?
    n_hosts=$(sed -n 's/.*: host \(n[0-9]*\), .*/\1/p' "$work/err" | sort -u | wc -l)
    check "exit code 0" exits 0
    check "on all hosts" [ "$n_hosts" -eq "$(echo "$hosts" | tr ',' '\n' | wc -l)" ]
    check "the bytes of one rank" cmp "$work/one.npy" "$work/out.npy"
done <<'ROWS'
n1:2,n2:2 4 --dp 2 --tp 2 --progress polled
n1:2,n2:2 4 --dp 1 --tp 4 --progress caller
n1:2,n2:2 4 --etp 2 --progress thread
n1:1,n2:3 4 --prefill-chunk 7
n1:2,n2:2 4 round-robin --dp 2 --tp 2
n1:1,n2:2,n3:2 5 --dp 5 --tp 1
n1:2,n2:1,n3:1 4 --dp 1 --tp 4 --prefill-chunk 64
ROWS

name="text"
text() { # text LAUNCHER...
    "$@" "$tutti" run "$model" -p "What is hwloc?" -n 40 --temperature 0.8 --seed 7 --threads 1 --quiet >"$work/out" 2>"$work/err" </dev/null
    code=$?
}
text mpi_run 1
cp "$work/out" "$work/one.txt"
text over n1:2,n2:2 -n 4
check "exit code 0" exits 0
check "is one rank's" eval '[ -s "$work/one.txt" ] && cmp "$work/one.txt" "$work/out"'

make_prompts "$work/prompts"
long() { # long HOSTS OPTIONS...
    hosts=$1
    shift
    over "$hosts" -n 4 -x TT_FAULT_TEST "$tutti" run "$model" --prompts "$work/prompts" --max-batch 4 --json --deadline $deadline \
        --threads 1 "$@"
}
while read -r hosts victim host options; do
    name="rank $victim on $host of $hosts stops, $options"
    # shellcheck disable=SC2086
    begin long "$hosts" $options
    strike STOP "$victim"
    finish
    check "exit code 4" exits 4
    check "one line" one_error
    check "that names it and its host" err_has "^tutti: .*waited .* for rank $victim \\($host\\): .*answer"
    check "in time (after $took s)" [ "$took" -le $limit ]
    check "only what was complete is shown" only_complete_text
    check "nobody is left" nobody_is_left
done <<'ROWS'
n1:2,n2:2 3 n2 --dp 2 --tp 2
n1:1,n2:3 0 n1 --dp 1 --tp 4
ROWS

name="rank 2 on n2 is killed"
begin long n1:2,n2:2 --dp 4 --tp 1
strike KILL 2
finish
check "it fails (exit code $code)" [ "$code" -ne 0 ]
check "it is named" eval 'err_has "process rank 2 .*on node n2 exited on signal 9" || err_has "^tutti: .*rank 2 \\(n2\\)"'
check "in time (after $took s)" [ "$took" -le $limit ]
check "nobody is left" nobody_is_left
done_testing
