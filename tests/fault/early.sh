#!/bin/sh
# early.sh - a rank that stops, dies or is terminated while weights are read or in the middle of a prompt ends the job as later
# ones do: not with 0, soon after the deadline, with a line that names the rank; nothing more is printed as text, nobody is left, and
# no shared memory either.
set -u
. "$top_srcdir/tests/fault/lib.sh"
TUTTI_VERBOSE=0 # no warnings that few cores serve many ranks: error lines are counted
export TUTTI_VERBOSE
deadline=5
limit=30 # seconds: the deadline, the grace of the next speaker, and a loaded machine
host=$(uname -n)
mib=1048576
make_model=$top_builddir/benchmarks/make-model

# ---- when to strike ----
read_so_far() { # bytes that the victim has read, by the kernel's count; 0 when it is gone
    sed -n 's/^rchar: //p' "/proc/$victim_pid/io" 2>/dev/null | grep . || echo 0
}
[ -r /proc/self/io ] || skip_all "no /proc/self/io"
# begin_until COMMAND... : starts it and lets the victim run in short spells until `$until` is true. Between spells and at the end the victim
# is stopped, so that what was true is so when the signal comes, however fast the machine: no rank gets far without it. The others are not
# stopped: a rank that was leaves speaking to others. Sets job and victim_pid; false, and a failed test, if it never was true.
spell=0.02
begin_until() {
    : >"$work/out"
    "$@" >"$work/out" 2>"$work/err" </dev/null &
    job=$!
    victim_pid=
    begun_at=$(date +%s)
    while kill -0 $job 2>/dev/null && [ $(($(date +%s) - begun_at)) -lt 60 ]; do
        [ -n "$victim_pid" ] || victim_pid=$(pids_of "$victim" | tail -n 1)
        if [ -n "$victim_pid" ]; then
            kill -STOP "$victim_pid" 2>/dev/null
            $until && return
            kill -CONT "$victim_pid" 2>/dev/null
        fi
        sleep $spell
    done
    not_ok "rank $victim was never seen in that state ($until)"
    end_all
    wait $job
    false
}
strike_stopped() { # strike_stopped SIGNAL RANK: what begin_until has stopped
    strike "$1" "$2"
    [ "$1" = STOP ] || kill -CONT "$victim_pid" 2>/dev/null
}
is_loading() { # the victim has read a piece of the weights, and nobody has a token
    [ "$(read_so_far)" -gt $((16 * mib)) ] && [ ! -s "$work/out" ]
}

# ---- what is left ----
shared_now() {
    ls /dev/shm 2>/dev/null | sort
}
# Segments that are new and that no process has mapped: others' jobs on this machine have theirs mapped.
no_memory_is_left() {
    waited=0
    while :; do
        left=
        for segment in $(shared_now | comm -13 "$work/shared" -); do
            grep -qs "/dev/shm/$segment" /proc/[0-9]*/maps || left="$left $segment"
        done
        [ -n "$left" ] && [ $waited -lt 30 ] || break
        sleep 0.1
        waited=$((waited + 1))
    done
    [ -z "$left" ] || { echo "# left in /dev/shm:$left"; false; }
}
named() { # named SIGNAL RANK: by us, or by the launcher, which sees a process die
    case $1 in
    STOP) err_has "^tutti: .*waited [0-9.]+ s in .* for rank $2 \\($host\\): .*answer" ;;
    *) err_has "process rank $2 .*on node $host exited on signal" || err_has "^tutti: .*rank $2 \\($host\\)" || grep -q "RUNNING AT $host" "$work/out" ;;
    esac
}
fails() { # fails SIGNAL
    if [ "$1" = STOP ]; then exits 4 && one_error; else [ "$code" -ne 0 ] && [ "$code" -ne 124 ]; fi
}
ends_the_job() { # ends_the_job SIGNAL RANK
    finish
    check "it fails (exit code $code)" fails "$1"
    check "rank $2 and its host are named" named "$1" "$2"
    check "in time (after $took s)" [ "$took" -le $limit ]
    check "nothing more is shown as text" [ "$(grep -c '"ids"' "$work/out")" -eq "$shown" ]
    check "nobody is left" nobody_is_left
    check "no shared memory is left" no_memory_is_left
}

# ---- while weights are read ----
one "$make_model" --shape v3-layer --weights fp8 --set hidden=1024 --set width=1024 --set experts=64 --set heads=16 --set dense-width=1024 \
    --out "$work/model"
name="a model of 220 MB"
check "is made" exits 0
until=is_loading
shown=0 # texts
while read -r signal victim options; do
    name="SIG$signal of rank $victim of 3 while it loads, $options"
    shared_now >"$work/shared"
    # shellcheck disable=SC2086 # words are wanted
    begin_until mpi_run 3 "$tutti" run "$work/model" --weights int4 --ids 5 -n 1 --json --context 64 --deadline $deadline --threads 1 $options ||
        continue
    strike_stopped "$signal" "$victim"
    ends_the_job "$signal" "$victim"
done <<'ROWS'
STOP 1 --dp 1 --tp 3
STOP 0 --dp 3 --tp 1 --progress thread
STOP 2 --replicate node
KILL 2 --dp 3 --tp 1
TERM 1 --dp 1 --tp 3
ROWS

# ---- a prompt ----
# A token of a short prompt says that loading is over. Beside it, one prompt of 20000 tokens, four a step: many seconds without a token on any
# machine.
awk 'BEGIN { print "{\"n\": 1, \"ids\": [5]}"; printf "{\"n\": 1, \"ids\": [0"; for (i = 1; i < 20000; i++) printf ",%d", 5 + (i * 7) % 1000; print "]}" }' \
    >"$work/prompts"
is_in_prompt() {
    [ -s "$work/out" ]
}

# ---- a rank that may not have the memory ----
# The limit of its address space meets it earlier or later in loading: never in a crash, nor in ranks that wait for it. What MPI itself
# needs, which may crash, is had before loading begins; the limits are from there to what the whole takes.
measure() { # measure UNTIL: KiB that rank 2 has had mapped by then; none after a failure
    until=$1
    # shellcheck disable=SC2086
    begin_until mpi_run 3 "$tutti" $unlimited || return
    kib=$(sed -n 's/^VmPeak:[[:blank:]]*\([0-9]*\) kB/\1/p' "/proc/$victim_pid/status")
    end_all
    wait $job
    [ -n "$kib" ]
}
begins_to_load() {
    [ "$(read_so_far)" -gt $((8 * mib)) ]
}
limited() { # limited KIB: rank 2 of 3
    mpi_run 2 "$tutti" $arguments : -n 1 sh -c "ulimit -v $1; exec \"\$@\"" sh "$tutti" $arguments >"$work/out" 2>"$work/err" </dev/null
    code=$?
}
lacks_memory() { # the whole, or one error that says what of which rank could not be had
    if [ "$code" -eq 0 ]; then
        [ $n_whole -gt 0 ] || enough=$limit_kib
        n_whole=$((n_whole + 1))
        out_has '"ids":\['
    else
        n_refused=$((n_refused + 1))
        exits 1 && one_error && err_has "^tutti: .*rank 2 \\($host\\): .*(cannot allocate|no memory|cannot map)" && [ ! -s "$work/out" ]
    fi
}
options="--json --context 20001 --threads 1 --dp 3 --tp 1 --deadline 30"
arguments="run $work/model --ids 5 -n 1 $options --quiet"
unlimited="run $work/model --prompts $work/prompts $options --quiet"
name="rank 2 of 3 may map little"
victim=2
# shellcheck disable=SC3045 # asked first: a shell without -v skips this
if ! (ulimit -v 4000000) 2>/dev/null || nm "$tutti" 2>/dev/null | grep -q __asan_init; then
    ok "# SKIP address space cannot be limited"
elif measure begins_to_load && least=$kib && measure is_in_prompt && most=$kib; then
    echo "# $least KiB when loading begins, $most KiB in all"
    n_whole=0
    n_refused=0
    for part in 0 1 2 3 4 5 6 8 16; do # eighths of what loading adds
        limit_kib=$((least + (most - least) * part / 8))
        name="rank 2 of 3 may map $limit_kib KiB"
        limited $limit_kib
        check "its memory suffices, or is missed by name (exit code $code)" lacks_memory
        check "nobody is left" nobody_is_left
    done
    name="rank 2 of 3 may map little"
    check "some limits are too low" [ $n_refused -gt 0 ]
    check "others are not" [ $n_whole -gt 0 ]
    arguments=${arguments% --quiet}
    limited "${enough:-$most}" # enough for the work, and perhaps not for the buffer that measures the machine
    check "a speed that cannot be measured fails nothing" exits 0
fi

# ---- in a prompt ----
until=is_in_prompt
shown=1
while read -r signal victim options; do
    name="SIG$signal of rank $victim of 3 in a prompt, $options"
    shared_now >"$work/shared"
    # shellcheck disable=SC2086
    begin_until mpi_run 3 "$tutti" run "$work/model" --prompts "$work/prompts" --context 20001 --prefill-chunk 4 --json --deadline $deadline --threads 1 \
        $options || continue
    check "no other text yet" [ "$(grep -c '"ids"' "$work/out")" -eq $shown ]
    strike_stopped "$signal" "$victim"
    ends_the_job "$signal" "$victim"
done <<'ROWS'
STOP 1 --dp 3 --tp 1
STOP 0 --dp 1 --tp 3
KILL 2 --dp 3 --tp 1
TERM 0 --dp 1 --tp 3
ROWS
done_testing
