#!/bin/sh
# stopped_rank.sh - a rank that is stopped in mid-run ends the job with exit code 4 soon after the deadline. One line names it and its
# host; no unfinished text is presented as complete; nobody is left. In every layout and progress mode, also for rank 0, which prints.
set -u
. "$top_srcdir/tests/fault/lib.sh"
TUTTI_VERBOSE=0 # no warnings that few cores serve many ranks: error lines are counted
export TUTTI_VERBOSE
deadline=5
limit=25 # seconds: the deadline, the grace of the next speaker, and a loaded machine
make_prompts "$work/prompts"

named() { # named RANK: as the one that does not answer, and no other
    err_has "^tutti: .*waited [0-9.]+ s in .* for rank $1 \\($(uname -n)\\): .*answer"
}
in_time() {
    [ "$took" -ge $((deadline - 2)) ] && [ "$took" -le $limit ]
}
ends_the_job() { # ends_the_job RANK
    finish
    check "exit code 4" exits 4
    check "one line" one_error
    check "that names rank $1 and its host" named "$1"
    check "at the deadline (after $took s)" in_time
    check "nobody is left" nobody_is_left
}

while read -r victim options; do
    name="rank $victim of 4 stops, $options"
    # shellcheck disable=SC2086 # words are wanted
    begin mpi_run 4 "$tutti" run "$model" --prompts "$work/prompts" --max-batch 4 --json --deadline $deadline --threads 1 $options
    strike STOP "$victim"
    ends_the_job "$victim"
    check "only what was complete is shown" only_complete_text
done <<'ROWS'
2 --dp 4 --tp 1 --progress thread
3 --dp 1 --tp 4 --progress polled
1 --dp 2 --tp 2 --progress caller
0 --dp 1 --tp 4 --progress thread
0 --dp 4 --tp 1 --progress caller
ROWS

# Streamed text has no line end until it is complete.
name="rank 2 of 4 stops while text streams"
begin mpi_run 4 "$tutti" run "$model" -p "Once upon a time" -n 900 --deadline $deadline --threads 1 --dp 2 --tp 2 \
    --progress polled
strike STOP 2
ends_the_job 2
check "the text is left open" [ "$(tail -c 1 "$work/out" | od -An -c | tr -d ' ')" != '\n' ]
check "and not summed up" eval '! err_has "^(prompt|decode|steps) "'

# The other side: a pause shorter than the deadline does no harm.
name="rank 1 of 4 pauses"
generate() { # generate RANKS
    mpi_run "$1" "$tutti" run "$model" -p "Once upon a time" -n 300 --threads 1 --quiet --deadline 30
}
generate 1 >"$work/undisturbed" 2>"$work/err" </dev/null
begin generate 4
strike STOP 1
sleep 2
check "and is needed meanwhile" kill -0 "$job"
# shellcheck disable=SC2086 # one pid, or none after a failure
kill -CONT $hit_pid
finish
check "exit code 0" exits 0
check "the text is one rank's" cmp "$work/undisturbed" "$work/out"
done_testing
