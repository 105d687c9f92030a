#!/bin/sh
# bench.sh - tutti bench: forms of output, refusals, made models that give the same tokens on every layout, memory that is what was said.
set -u
. "$top_srcdir/tests/cli/lib.sh"
field() { # field RECORD NAME: of the first such line of stdout
    grep "^{\"record\":\"$1\"" "$work/out" | head -n 1 | grep -o "\"$2\":[^,}]*" | head -n 1 | cut -d: -f2- | tr -d '"'
}

name="options"
bad() { # bad PATTERN ARGUMENTS...
    pattern=$1
    shift
    one "$tutti" bench "$@" </dev/null
    check "$*" refused 2 "$pattern"
}
bad "bench needs MODEL, or --shape"
bad "give one of them" "$model" --shape a
bad "unknown shape 'nosuch'; there are a, b, .*deepseek-v3.*gpt-oss-120b.*mixtral-8x7b" --shape nosuch
bad "layers.*shape c has 12 layers" --shape c --layers 13
bad "layers goes with --shape" "$model" --layers 2
bad "-p 12,x" --shape tiny -p 12,x
bad "-b 0" --shape tiny -b 0
bad "-b 1,: no number after" --shape tiny -b 1,
bad "repeat.*0" --shape tiny --repeat 0
bad "nothing to be timed" --shape tiny -p 0 -n 0
bad "svg draws decoding" --shape tiny -n 0 --svg "$work/x.svg"
bad "svg .*/no/such/x.svg cannot be written" --shape tiny -p 0 --svg "$work/no/such/x.svg"
bad "depth of 5000 needs a context of 50.*tiny .made. has 1024" --shape tiny -p 0 --depth 0,5000
bad "-p of 1024 needs a context of 1025" --shape tiny -p 1024 -n 0
bad "weights.*fp3" --shape tiny --weights fp3
one "$tutti" bench --shape deepseek-v3 --memory-limit 1G -p 8 -n 2 </dev/null
check "what cannot fit is refused before anything is made" refused 3 "GiB"

name="table"
one "$tutti" bench --shape tiny -p 16 -n 4 -b 4,1 --depth 0,40 --repeat 2 --svg "$work/x.svg" </dev/null
check "ends well" exits 0
check "says what it is" out_has '^model +tiny .made.: 6 layers'
check "tells the limits" out_has '^limits +[0-9.]+ GB/s of reads .*triad'
check "tells resident memory" out_has '^memory +[0-9.]+ MiB resident after loading; stated'
check "times prompts" out_has '^pp16 +1 +0 +[0-9.]+ +\['
check "and decoding at each batch" out_has '^tg4 +1 +0 '
check "and depth, with experts beside uniform routing" out_has '^tg4 +4 +40 .* [0-9.]+ \(13\.2\)$'
check "says nothing else on stderr" [ ! -s "$work/err" ]
check "draws a line for each depth" [ "$(grep -c '<polyline' "$work/x.svg")" -eq 2 ]
check "with a title, units and whole tags" sh -c "grep -q 'tokens/s, all' '$work/x.svg' && grep -q '^</svg>' '$work/x.svg'"
one "$tutti" bench "$model" -p 8 -n 2 -b 1 --repeat 1 </dev/null
check "a checkpoint is timed likewise" out_has '^tg2 +1 +0 '

name="json"
one "$tutti" bench --shape tiny --layers 3 -p 8 -n 4 -b 1,2 --repeat 2 --json </dev/null
check "one object a line: run, a prompt, two batches, end" [ "$(grep -c '^{"record":.*}$' "$work/out")" -eq 5 ]
check "and nothing else" [ "$(wc -l <"$work/out")" -eq 5 ]
check "samples of each step" out_has '"step_ns":\[\[[0-9]+,[0-9]+,[0-9]+,[0-9]+\],\[[0-9]+,[0-9]+,[0-9]+,[0-9]+\]\]'
check "layers are cut" [ "$(field run layers)" -eq 3 ]

# The tokens that the head chose, and so every bit that led to them.
name="layouts"
drawn() { # drawn ARGUMENTS: of the case with depth
    grep '"depth":33' "$work/out" | grep -o '"drawn":"[0-9a-f]*"'
}
for shape in "tiny --weights int8" "tiny --weights fp8" "granite-3.1-1b-a400m --layers 1 --weights int4"; do
    # shellcheck disable=SC2086
    one "$tutti" bench --shape $shape -p 0 -n 4 -b 3 --depth 33 --repeat 1 --json </dev/null
    want=$(drawn)
    check "$shape: one rank" [ -n "$want" ]
    for n in 2 3; do
        for layout in "--dp $n --tp 1" "--dp 1 --tp $n" "--dp 1 --tp 1 --prefill-chunk 16" "--dp 1 --tp 1 --split attention:0,experts:1-$((n - 1))"; do
            # shellcheck disable=SC2086
            ranks "$n" "$tutti" bench --shape $shape -p 0 -n 4 -b 3 --depth 33 --repeat 1 --json $layout
            check "$shape: $n ranks $layout" [ "$(drawn)" = "$want" ]
        done
    done
done

# Some hundred MiB of weights, every buffer used: what the kernel counts is what tutti says that it holds, on all ranks together.
name="memory"
agrees() { # within 3 %
    awk -v resident="$(field end resident_bytes)" -v stated="$(field end stated_bytes)" \
        'BEGIN { print "# resident " resident ", stated " stated; exit !(stated > 4e8 && resident > 0.97 * stated && resident < 1.03 * stated) }'
}
for layout in "1 --dp 1" "2 --dp 2 --tp 1" "2 --dp 1 --tp 2" "3 --dp 3 --tp 1 --replicate node"; do
    # shellcheck disable=SC2086
    ranks ${layout%% *} "$tutti" bench --shape a --layers 4 --weights int8 -p 256 -n 1 -b 3 --repeat 1 --json ${layout#* }
    check "$layout" agrees
done

name="shape elsewhere"
one "$tutti" plan --shape deepseek-v3 --ranks 32 --nodes 4 --memory 512G </dev/null
check "plan takes shapes" exits 0
one "$tutti" info --shape kimi-k2 --layers 2 --json </dev/null
check "info takes shapes" out_has '"path":"kimi-k2 .made."'
done_testing
