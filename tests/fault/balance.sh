#!/bin/sh
# balance.sh - experts that change places under --balance auto, a placement from a file, counts of an earlier run: the text is that of one rank
# before, during and after, also where a transfer fails or does not end; files for something else are refused.
set -u
. "$top_srcdir/tests/fault/lib.sh"
TUTTI_VERBOSE=1
export TUTTI_VERBOSE

# Prose, then C, then chat, two at a time: other experts are busy in each.
cat >"$work/prompts" <<'ROWS'
{"prompt": "The committee met in the spring of that year, and", "n": 150}
{"prompt": "It was a long winter, the old man said, and nobody", "n": 150}
{"prompt": "static int count_bits(unsigned x)\n{\n", "n": 150}
{"prompt": "#include <stdio.h>\n\nint main(void)\n{\n", "n": 150}
{"messages": [{"role": "user", "content": "What is hwloc?"}], "n": 150}
{"messages": [{"role": "user", "content": "How do I install it?"}], "n": 150}
ROWS
text() { # text RANKS ARGUMENTS...
    n=$1
    shift
    mpi_run "$n" "$tutti" run "$model" --prompts "$work/prompts" --max-batch 2 --threads 1 --json "$@" </dev/null >"$work/all" 2>"$work/err"
    code=$?
    sed -n 's/.*\("prompt_ids":.*\),"text":.*/\1/p' "$work/all" | sort >"$work/out"
}
is_as_alone() { exits 0 && [ -s "$work/alone" ] && cmp -s "$work/out" "$work/alone"; }
figure() { # figure PATTERN: of the line of balancing
    err_has "^balance  $1"
}

name="alone"
text 1
cp "$work/out" "$work/alone"
check "has all texts" [ "$(wc -l <"$work/alone")" -eq 6 ]

while read -r n options; do
    name="auto on $n: $options"
    # shellcheck disable=SC2086 # words are wanted
    text "$n" --balance auto --balance-steps 12 $options
    check "the text of one rank" is_as_alone
    check "experts moved" figure '[1-9][0-9]* experts copied by [1-9]'
done <<'ROWS'
2 --dp 2 --tp 1
2 --dp 1 --tp 2 --spare-slots 0
3 --dp 3 --tp 1 --spare-slots 1
3 --split attention:0,experts:1-2
4 --dp 2 --tp 2
4 --dp 4 --tp 1 --etp 2 --balance-moves 3
ROWS

# ---- transfers that fail, or do not end ----
while read -r what pattern; do
    name="$what"
    TUTTI_INJECT_FERRY=$what
    export TUTTI_INJECT_FERRY
    text 3 --balance auto --balance-steps 8 --deadline 6
    unset TUTTI_INJECT_FERRY
    check "the text of one rank" is_as_alone
    check "says so" err_has "warning: balancing: $pattern"
    check "and moved nothing" figure '0 experts copied'
done <<'ROWS'
fail:1 a transfer failed: experts stay where they are
stall:2 a transfer took more than [0-9.]* s and is given up
ROWS

# ---- files ----
# placement GROUPS SLOTS FIRST LAST: of the model's layers FIRST to LAST, experts in another order, in `file`.
placement() {
    awk -v groups="$1" -v slots="$2" -v first="$3" -v last="$4" -v experts="${5:-32}" 'BEGIN {
        printf "{\"experts\": %d, \"groups\": %d, \"slots_per_group\": %d, \"layers\": [", experts, groups, slots
        for (l = first; l <= last; l++) printf "%s\"layer %d\"", (l > first ? ", " : ""), l
        for (what = 0; what < 2; what++) {
            printf "], \"%s\": [", what ? "share" : "expert_of_slot"
            for (l = first; l <= last; l++) {
                printf "%s[", (l > first ? ", " : "")
                for (s = 0; s < groups * slots; s++) {
                    e = (7 * s + l) % experts
                    has = s < experts
                    printf "%s%s", (s ? ", " : ""), (what ? has : (has ? e : -1))
                }
                printf "]"
            }
        }
        print "]}"
    }' >"$work/file"
}
name="a placement from a file"
placement 2 16 1 5
text 2 --balance "static:$work/file"
check "gives the text of one rank" is_as_alone
text 2 --placement "$work/file" --balance auto --balance-steps 12
check "and is where auto begins" is_as_alone
name="counts of a run"
awk 'BEGIN { printf "{\"experts\": 32, \"layers\": ["; for (l = 1; l <= 5; l++) printf "%s\"layer %d\"", (l > 1 ? ", " : ""), l
    printf "], \"total\": ["; for (l = 1; l <= 5; l++) { printf "%s[", (l > 1 ? ", " : "")
        for (e = 0; e < 32; e++) printf "%s%d", (e ? ", " : ""), (e == 3 * l ? 900 : e); printf "]" } print "]}" }' >"$work/counts"
text 3 --load-stats "$work/counts"
check "place experts, and the text is that of one rank" is_as_alone

name="refusals"
bad() { # bad WHAT CODE PATTERN ARGUMENTS...
    what=$1
    wanted=$2
    pattern=$3
    shift 3
    ranks 2 "$tutti" run "$model" -p x -n 4 --threads 1 --quiet "$@"
    check "$what" refused "$wanted" "$pattern"
}
spoil() { # spoil SED: of a good file
    placement 2 16 1 5
    sed "$1" "$work/file" >"$work/spoilt"
}
bad "a word that is none" 2 "balance often: not one of off, static:FILE, auto" --balance often
bad "no such file" 3 "nosuch" --balance static:/nosuch
bad "two that say the same" 2 "give one of them" --balance "static:$work/file" --placement "$work/file"
placement 2 32 1 5 64
bad "another model" 3 "64 experts a layer; this one has 32" --placement "$work/file"
placement 3 11 1 5
bad "another layout" 3 "3 groups of 11 slots; this layout has 2 of 16" --placement "$work/file"
placement 2 16 1 4
bad "a layer that is missing" 3 "no layer 5, which the model has" --placement "$work/file"
spoil 's/\[\[7, 14/[[7, 7/;s/\[\[[0-9]*, /[[-1, /'
bad "an expert that is missing" 3 "layer 0: expert [0-9]* " --placement "$work/spoilt"
spoil 's/"share": \[\[1/"share": [[NaN/'
bad "NaN" 3 "bad JSON" --placement "$work/spoilt"
spoil 's/"share": \[\[1/"share": [[-1/'
bad "a share below 0" 3 "share" --placement "$work/spoilt"
done_testing
