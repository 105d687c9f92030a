#!/bin/sh
# replicate.sh - --replicate: dense weights are held once per node, as planned to the byte and as the kernel counts pages; auto decides by the memory
# that is there; ranks that cannot share memory say so in one line. (That no layout's bits change is in tests/layouts/table.txt.)
set -u
. "$top_srcdir/tests/fault/lib.sh"
TUTTI_VERBOSE=1
export TUTTI_VERBOSE
mib=1048576
numbers() { # numbers KEY: of each rank, from the JSON of the last run
    tr '{,}' '\n\n\n' <"$work/out" | sed -n "s/^\"$1\"://p"
}
sum_of() { # sum_of KEY...: over ranks
    for key in "$@"; do numbers "$key"; done | awk '{ sum += $1 } END { printf "%.0f", sum }'
}
head -n 2 "$top_srcdir/tests/layouts/ids/tiny.txt" >"$work/ids"
score() { # score RANKS OPTIONS...
    n=$1
    shift
    ranks "$n" "$tutti" score "$model" --ids-file "$work/ids" --logits "$work/out.npy" --threads 1 --json --quiet "$@"
}

# ---- held as planned ----
name="one rank"
score 1
check "logits" cp "$work/out.npy" "$work/one.npy"
while read -r n nodes options; do
    name="$n ranks, nodes $nodes: $options"
    fake=$(awk -v n="$n" -v nodes="$nodes" 'BEGIN { for (r = 0; r < n; r++) printf "%s%d", r ? "," : "", int(r * nodes / n) }')
    # shellcheck disable=SC2086 # words are wanted
    one "$tutti" plan "$model" --ranks "$n" --nodes "$nodes" --replicate node --json $options
    check "is planned" exits 0
    expected=$(($(sum_of dense_bytes expert_bytes) - $(sum_of borrowed_bytes)))
    borrowed=$(sum_of borrowed_bytes)
    check "something is shared" [ "$borrowed" -gt 0 ]
    TUTTI_FAKE_NODES=$fake
    export TUTTI_FAKE_NODES
    # shellcheck disable=SC2086
    score "$n" --replicate node $options
    check "runs" exits 0
    check "holds what is planned ($expected bytes)" [ "$(sum_of packed_bytes)" -eq "$expected" ]
    check "borrows what is planned ($borrowed bytes)" [ "$(sum_of borrowed_bytes)" -eq "$borrowed" ]
    read_bytes=$(sum_of read_bytes)
    check "the bytes of one rank" cmp "$work/one.npy" "$work/out.npy"
    own=$(sum_of held_bytes)
    shared=$(sum_of shared_bytes)
    # shellcheck disable=SC2086
    score "$n" --replicate numa $options
    check "private copies take more" [ $((own + shared + borrowed * 9 / 10)) -le "$(sum_of held_bytes)" ]
    check "and read as much" [ "$(sum_of read_bytes)" -eq "$read_bytes" ]
    check "and share nothing" [ "$(sum_of shared_bytes borrowed_bytes)" -eq 0 ]
    unset TUTTI_FAKE_NODES
done <<'ROWS'
2 1 --dp 2 --tp 1
3 1 --dp 1 --tp 3
4 1 --dp 2 --tp 2 --etp 2
4 2 --dp 4 --tp 1
4 1 --split attention:0-1,experts:2-3 --dp 2 --tp 1
ROWS

# ---- auto ----
plan_total() { # plan_total HOW
    one "$tutti" plan "$model" --ranks 4 --dp 4 --tp 1 --context 64 --batch 2 --prefill-chunk 16 --json --replicate "$1"
    sum_of total_bytes
}
numa=$(plan_total numa)
node=$(plan_total node)
sizes="--dp 4 --tp 1 --context 64 --max-batch 2 --prefill-chunk 16"
name="auto"
check "node needs less" [ "$node" -lt "$numa" ]
# shellcheck disable=SC2086
score 4 $sizes --memory-limit "$numa"
check "is numa where that fits" out_has '"replicate":"numa"'
check "without a word of it" [ -z "$(grep replicate "$work/err")" ]
# shellcheck disable=SC2086
score 4 $sizes --memory-limit $((numa - 1))
check "is node where that does not" out_has '"replicate":"node"'
check "and says so in one line" [ "$(grep -c 'the ranks of a node share them, which saves .*--replicate node' "$work/err")" -eq 1 ]
check "the bytes of one rank" cmp "$work/one.npy" "$work/out.npy"
# shellcheck disable=SC2086
score 4 $sizes --memory-limit $((node - 1))
check "is refused where neither does" refused 3 "node 0 needs .*once per node"
# shellcheck disable=SC2086
score 4 $sizes --memory-limit "$node" --replicate numa
check "numa is refused with a hint" refused 3 "what helps: --replicate node"
one "$tutti" plan "$model" --ranks 4 --dp 4 --tp 1 --context 64 --batch 2 --prefill-chunk 16 --memory $((numa - 1))
check "plan decides alike" out_has '^replicate  node 0 would need .*--replicate node'
check "and shows what is borrowed" out_has ' borrowed +total$'

# ---- the option ----
name="the option"
TUTTI_REPLICATE=node
export TUTTI_REPLICATE
score 2 --dp 2 --tp 1
check "has a variable" out_has '"replicate":"node"'
unset TUTTI_REPLICATE
score 2 --replicate all
check "knows three words" refused 2 "replicate.*auto.*numa.*node"
score 2 --dp 2 --tp 1 --replicate node --log-view
check "log-view shows shares" err_has '^load of rank .* shared +borrowed '
ranks 2 "$tutti" score "$model" --ids-file "$work/ids" --threads 1 --dp 2 --tp 1 --replicate node
check "figures show shares" err_has '^load .* MiB held once per node and shared, which saves '
name="one rank"
score 1 --replicate node
check "shares with nobody" [ "$(sum_of shared_bytes borrowed_bytes)" -eq 0 ]
check "the same bytes" cmp "$work/one.npy" "$work/out.npy"

# ---- no way to share ----
name="ranks of two process name spaces"
apart() { # apart HOW [OPTION...]
    how=$1
    shift
    OMPI_MCA_btl_vader_single_copy_mechanism=none timeout -k 5 "$TT_TIMEOUT" "$MPIRUN" \
        -n 1 "$tutti" score "$model" --ids-file "$work/ids" --threads 1 --quiet --replicate "$how" "$@" : \
        -n 1 unshare --pid --fork --mount-proc "$tutti" score "$model" --ids-file "$work/ids" --threads 1 --quiet --replicate "$how" "$@" \
        </dev/null >"$work/out" 2>"$work/err"
    code=$?
}
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    apart numa
    if [ "$code" -eq 0 ]; then
        apart node
        check "cannot share memory" refused 2 "--replicate node: the ranks of a node cannot share memory .*numa"
        one "$tutti" plan "$model" --ranks 2 --dp 2 --tp 1 --context 64 --batch 2 --prefill-chunk 16 --json --replicate numa
        limit=$(($(sum_of total_bytes) - 1))
        apart auto --dp 2 --tp 1 --context 64 --max-batch 2 --prefill-chunk 16 --memory-limit $limit
        check "and must" refused 3 "do not fit this memory, and the ranks of a node cannot share them; what helps: .*(name spaces differ|cannot be opened)"
    else
        ok "# SKIP MPI does not work there"
    fi
else
    ok "# SKIP no name spaces"
fi

# ---- pages ----
name="a model of 175 MB on 4 ranks"
one "$top_builddir/benchmarks/make-model" --shape v3-layer --weights bf16 --set hidden=1024 --set width=64 --set experts=64 --set heads=64 \
    --set vocab=20000 --out "$work/model"
check "is made" exits 0
printf '{"ids": [5], "n": 1}\n{"ids": [7], "n": 3900}\n' >"$work/prompts"
# Pages of all ranks, each counted once, while they work.
pages() { # pages HOW
    begin mpi_run 4 "$tutti" run "$work/model" --prompts "$work/prompts" --json --quiet --threads 1 --dp 4 --tp 1 --max-batch 4 --replicate "$1"
    : >"$work/pss"
    for pid in $(pids_of); do
        sed -n 's/^Pss: *\([0-9]*\) kB/\1/p' "/proc/$pid/smaps_rollup" >>"$work/pss"
    done
    end_all
    wait "$job"
    # shellcheck disable=SC2034 # used by checks
    n_seen=$(wc -l <"$work/pss")
    sum=$(awk '{ sum += $1 * 1024 } END { printf "%.0f", sum }' "$work/pss")
}
pages numa
private=$sum
check "four ranks are seen" [ "$n_seen" -eq 4 ]
pages node
check "four ranks are seen sharing" [ "$n_seen" -eq 4 ]
# Three copies of 150 MiB are not there.
echo "# $((private / mib)) MiB in private copies, $((sum / mib)) MiB shared"
check "saves three copies" [ $((private - sum)) -ge $((420 * mib)) ]
done_testing
