#!/bin/sh
# leaks.sh - nothing that tutti itself allocated is left at the end of a run, nor at the end of a refused one. Needs a sanitizer build (77
# elsewhere). MPI and its plug-ins leave much behind, also from libraries that are unloaded by then; so a report counts if one of the two
# innermost callers of the allocation is ours.
. "$top_srcdir/tests/mpi.sh"
tutti=$top_builddir/tutti
nm "$tutti" 2>/dev/null | grep -q __asan_init || { echo "# skip: needs --enable-sanitize"; exit 77; }
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
model=$top_srcdir/models/tiny-moe
failed=0
check() { # check NAME RANKS ARGUMENTS...
    name=$1
    ranks=$2
    shift 2
    rm -f "$work"/log*
    ASAN_OPTIONS="detect_leaks=1:log_path=$work/log" mpi_run "$ranks" "$tutti" "$@" </dev/null >"$work/out" 2>&1
    # Blocks are parted by empty lines; frames look like "#1 0x... in name file:line".
    ours=$(cat "$work"/log* 2>/dev/null | awk 'BEGIN { RS = "" } /leak of/ && /#[12] 0x[0-9a-f]+ in (tt_|tti_|ttk_|main )/ { print; print "" }')
    if [ ! -s "$work/out" ]; then
        echo "not ok - $name: no output"
        failed=1
    elif [ -n "$ours" ]; then
        echo "not ok - $name"
        echo "$ours" | head -40 | sed 's/^/# /'
        failed=1
    else
        echo "ok - $name"
    fi
}
check "a run on one rank" 1 run "$model" --chat "What is hwloc?" -n 8
check "a sampled run on three ranks" 3 run "$model" -p One -p Two -n 8 --temperature 1 --json
check "dp x tp with a trace" 4 run "$model" --chat "What is hwloc?" -n 4 --dp 2 --tp 2 --etp 2 --trace "$work/trace" --log-view
check "scores" 2 score "$model" --ids-file "$top_srcdir/tests/layouts/ids/tiny.txt" --logits "$work/logits.npy"
check "a prompt that is refused" 2 run "$model" -p "$(head -c 9000 /dev/zero | tr '\0' 'x')" -n 8 --context 64
check "a layout that is refused" 2 run "$model" -p One --tp 9
check "a model that is not there" 2 run "$work/nothing" -p One
[ $failed -eq 0 ]
