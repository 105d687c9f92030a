#!/bin/sh
# score.sh - the mean negative log-likelihood against the reference's, and the file of logits.
set -u
. "$top_srcdir/tests/cli/lib.sh"
golden=$top_srcdir/tests/golden/tiny-moe

# The first two chunks of 512 held-out ids of one domain; their reference values.
ids_of() {
    tr -d '\n ' <"$golden/heldout_ids.json" | sed "s/.*\"$1\":\\[\\([0-9,]*\\)\\].*/\\1/" | tr ',' '\n' |
        awk 'NR <= 1024 { printf "%s%s", $1, NR % 512 ? "," : "\n" }'
}
reference_of() { # reference_of DOMAIN: the mean of the first two chunks
    tr -d '\n ' <"$golden/heldout_nll.json" |
        sed "s/.*\"$1\":{[^}]*\"per_chunk\":\\[\\([0-9.,]*\\)\\].*/\\1/" | awk -F, '{ printf "%.6f", ($1 + $2) / 2 }'
}
near() { # near A B: within what rounding to six digits and the order of float sums allow
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 2e-5 && d > -2e-5) }'
}
for domain in chat desc; do
    name="held-out $domain"
    ids_of $domain >"$work/ids"
    check "two sequences" [ "$(wc -l <"$work/ids")" -eq 2 ]
    ranks 2 "$tutti" score "$model" --ids-file "$work/ids" --threads 1 --quiet
    check "counts" out_has 'over 1022 predicted tokens in 2 sequences'
    mean=$(sed 's/^mean NLL \([0-9.]*\) .*/\1/' "$work/out")
    check "is the reference's ($mean, $(reference_of $domain))" near "${mean:-0}" "$(reference_of $domain)"
done

# Weights rounded on the way in: the bounds are about three times the differences seen with these ids.
ids_of desc >"$work/ids"
for format in int8:0.01 fp8:0.04 int4:0.2; do
    name="held-out desc, --weights ${format%:*}"
    one "$tutti" score "$model" --ids-file "$work/ids" --threads 1 --quiet --weights "${format%:*}" </dev/null
    mean=$(sed 's/^mean NLL \([0-9.]*\) .*/\1/' "$work/out")
    check "is near the reference, and not the same ($mean, $(reference_of desc))" awk -v a="${mean:-0}" -v b="$(reference_of desc)" -v most="${format#*:}" \
        'BEGIN { d = a < b ? b - a : a - b; exit !(d < most && d > 0.00002) }'
done

name="json"
printf '0 2 1091\n\n328,326,94, 83\n' >"$work/ids"
one "$tutti" score "$model" --ids-file "$work/ids" --json --quiet --logits "$work/logits.npy" </dev/null
check "a mean, counts, sequences" out_has '^\{"mean_nll":[0-9.]+,"nll":[0-9.]+,"tokens":7,"predicted":5,"sequences":\[\{"mean_nll":[^}]*"tokens":3,"predicted":2\},\{[^}]*"tokens":4,'
check "logits: magic" [ "$(head -c 6 "$work/logits.npy" | tail -c 5)" = NUMPY ]
check "logits: shape" [ "$(head -c 128 "$work/logits.npy" | grep -ac "'descr': '<f4', 'fortran_order': False, 'shape': (7, 4096), }")" -eq 1 ]
check "logits: size" [ "$(wc -c <"$work/logits.npy")" -eq $((128 + 7 * 4096 * 4)) ]
cp "$work/logits.npy" "$work/oracle.npy"
ranks 3 "$tutti" score "$model" --ids-file "$work/ids" --quiet --logits "$work/logits.npy" --threads 1 --prefill-chunk 2
check "logits: the same bytes on three ranks" cmp -s "$work/oracle.npy" "$work/logits.npy"

name="text"
printf 'What is hwloc?' >"$work/text"
one "$tutti" score "$model" --text-file "$work/text" --json --quiet </dev/null
check "is encoded with its start token" out_has '"tokens":8,"predicted":7'

awk 'BEGIN { for (i = 0; i < 300; i++) print "What is hwloc?" }' >"$work/text"
ranks 2 "$tutti" score "$model" --text-file "$work/text" --quiet
check "a long one is cut into windows" out_has 'predicted tokens in [2-9] windows, perplexity'
one "$tutti" score "$model" --text-file "$work/text" --context 7 --json --quiet </dev/null
check "each begins as a prompt does, and is as long as asked for" [ \
    "$(grep -o '"tokens":7,"predicted":6' "$work/out" | wc -l)" -gt 300 ]

name="refused"
echo 5 >"$work/ids"
ranks 2 "$tutti" score "$model" --ids-file "$work/ids"
check "nothing to predict" refused 3 "nothing to score"
echo '5 6 seven' >"$work/ids"
ranks 2 "$tutti" score "$model" --ids-file "$work/ids"
check "a word" refused 3 "ids line 1: 'seven'"
echo '5 6 4096' >"$work/ids"
ranks 2 "$tutti" score "$model" --ids-file "$work/ids"
check "an id above the vocabulary" refused 3 "4096"
ranks 2 "$tutti" score "$model" --ids-file "$work/nowhere"
check "no file" refused 3 "nowhere"
awk 'BEGIN { for (i = 0; i < 1025; i++) printf "5 "; print "" }' >"$work/ids"
ranks 2 "$tutti" score "$model" --ids-file "$work/ids"
check "longer than the context" refused 3 "1025 tokens.* 1024"
echo '5 6' >"$work/ids"
ranks 2 "$tutti" score "$model" --ids-file "$work/ids" --logits "$work/no/such/folder.npy"
check "logits that cannot be written" refused 2 "no/such/folder"
done_testing
