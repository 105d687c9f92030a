#!/usr/bin/env bash
# run.sh - runs the libFuzzer targets of a build, as many at a time as there are cores: in its folder, after `make fuzz`,
#
#   SOURCE/tests/fuzz/run.sh SECONDS [NAME ...]       default: all targets
#
# Inputs that reach new code go to fuzz-new/NAME, those that fail to fuzz-found/; the committed corpus stays as it is. Ends with 1 if
# a target found something.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
seconds=${1:?how many seconds for each target?}
shift
[ $# -gt 0 ] || set -- config gguf safetensors template tokenizer

# One target to its end: what it found, or a line of what it reached.
fuzz() {
    local name=$1 new=fuzz-new/$1 status=0
    mkdir -p "$new" fuzz-found || return 1
    # One request of more than 512 MiB, 2 GiB in all, 10 s for one input: beside the targets' own bound, which is far below.
    "tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=512 -rss_limit_mb=2048 -max_len=32768 \
        -dict="$here/dict/$name.dict" -artifact_prefix="fuzz-found/$name-" -print_final_stats=1 "$new" "$here/corpus/$name" \
        >"fuzz-$name.out" 2>&1 || { status=1; grep -v '^#' "fuzz-$name.out" | tail -n 40; }
    echo "$name: $(grep '^Done ' "fuzz-$name.out" || echo failed), $(grep -o 'cov: [0-9]* ft: [0-9]*' "fuzz-$name.out" | tail -n 1)"
    return $status
}

status=0
running=0
for name in "$@"; do
    if [ "$running" -ge "$(nproc)" ]; then
        wait -n || status=1
        running=$((running - 1))
    fi
    fuzz "$name" &
    running=$((running + 1))
done
for (( ; running > 0; running--)); do
    wait -n || status=1
done
exit $status
