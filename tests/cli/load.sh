#!/bin/sh
# load.sh - loading a model of 220 MB: experts are read by their ranks alone, dense tensors once per node, and no more memory is held meanwhile than
# what stays and a few pieces.
set -u
. "$top_srcdir/tests/cli/lib.sh"
make_model=$top_builddir/benchmarks/make-model
mib=1048576
one "$make_model" --shape v3-layer --weights fp8 --set hidden=1024 --set width=1024 --set experts=64 --set heads=16 --set dense-width=1024 \
    --out "$work/model"
name="a model of 220 MB"
check "is made" exits 0

# numbers KEY: of each rank, from the JSON of the last run.
numbers() {
    tr '{,}' '\n\n\n' <"$work/out" | sed -n "s/^\"$1\"://p"
}
# Each rank's memory at most is what it holds after loading and, of each of the n ranks, two pieces of 4 MiB that all read through; one of its own, what a
# panel takes in each thread, and what the process needs otherwise.
peak_is_low() {
    numbers rss_bytes >"$work/now"
    numbers rss_most_bytes | paste "$work/now" - | awk -v n="$1" -v mib=$mib '{ over = $2 - $1; print "# rank " NR - 1 ": " $1, $2;
        if ($1 < 50 * mib || over > (n > 1 ? n * 8 : 0) * mib + 16 * mib) bad = 1 } END { exit bad || NR != n }'
}
held_is_low() {
    numbers held_bytes >"$work/now"
    numbers held_most_bytes | paste "$work/now" - | awk -v mib=$mib '{ if ($2 - $1 > 12 * mib) bad = 1 } END { exit bad }'
}
for n in 1 2 4; do
    name="on $n ranks"
    ranks $n "$tutti" run "$work/model" --ids 5 -n 1 --json --quiet --context 64 --threads 1
    check "runs" exits 0
    sum=$(numbers read_bytes | awk 'NR > 1 { sum += $1 } END { printf "%.0f", sum }')
    [ $n -eq 1 ] && whole=$sum && experts=$(numbers expert_bytes)
    check "experts' bytes are 1/$n" [ "$(numbers expert_bytes | sort -u)" = $((experts / n)) ]
    check "all is read once" [ "$sum" -eq "$whole" ]
    check "memory stays low" peak_is_low $n
    check "as we count it too" held_is_low
done
done_testing
