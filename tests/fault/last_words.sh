#!/bin/sh
# last_words.sh - a job that a deadline ends still shows where its time went: the rank that tells the error prints its own part of --log-view
# and writes its own part of --trace, once, as one whole object, also where rank 0 is the one that is gone.
set -u
. "$top_srcdir/tests/fault/lib.sh"
TUTTI_VERBOSE=0 # no warnings that few cores serve many ranks: error lines are counted
export TUTTI_VERBOSE
make_prompts "$work/prompts"
limit=30 # seconds: the deadline, the graces of the next speaker, and a loaded machine

table_is_of() { # table_is_of RANK: and there is one
    [ "$(grep -c "^phase  *calls" "$work/err")" -eq 1 ] && err_has "^until then, rank $1 alone:" &&
        err_has "^attention  *[0-9]+ .* $1  *[0-9.]+ %" && err_has "^step  *[0-9]+ .* $1  *100.0 %"
}
timeline_is_of() { # timeline_is_of RANK: from its brace to the last, with spans of steps, and of no other rank
    [ "$(head -c 25 "$work/trace")" = '{"displayTimeUnit":"ms","' ] && [ "$(tail -n 1 "$work/trace")" = ']}' ] &&
        [ "$(grep -c traceEvents "$work/trace")" -eq 1 ] && grep -q '"name":"step","cat":"step"' "$work/trace" &&
        [ "$(sed -n 's/.*"ph":"X".*"pid":\([0-9]*\),.*/\1/p' "$work/trace" | sort -u)" = "$1" ] &&
        ! sed '1d;$d' "$work/trace" | grep -v '^{.*},$' | grep -qv '^{"name":"process_labels".*}}$'
}
while read -r victim teller options; do
    name="rank $victim of 3 stops, $options"
    rm -f "$work/trace"
    # shellcheck disable=SC2086 # words are wanted
    begin mpi_run 3 "$tutti" run "$model" --prompts "$work/prompts" --max-batch 4 --json --deadline 4 --threads 1 --log-view --trace "$work/trace" \
        $options
    strike STOP "$victim"
    finish
    check "exit code 4" exits 4
    check "one line" one_error
    check "in time (after $took s)" [ "$took" -le $limit ]
    check "a table of rank $teller" table_is_of "$teller"
    check "a timeline of rank $teller" timeline_is_of "$teller"
    check "nobody is left" nobody_is_left
done <<'ROWS'
1 0 --dp 3 --tp 1 --progress polled
0 1 --dp 1 --tp 3 --progress thread
ROWS
done_testing
