#!/bin/sh
# early.sh - a rank that stops, dies or is terminated before the first token, while weights are read or in the middle of a prompt, ends the
# job as later ones do: not with 0, soon after the deadline, with a line that names the rank; nothing is printed as text, nobody is left, and
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
# Bytes that a rank has read so far, by the kernel's count.
read_of() { # read_of RANK
    pid=$(pids_of "$1")
    # shellcheck disable=SC2086 # none, one, or by a race two
    for one_pid in $pid; do sed -n 's/^rchar: //p' "/proc/$one_pid/io" 2>/dev/null; done | tail -n 1
}
[ -r /proc/self/io ] || skip_all "no /proc/self/io"
# begin_until COMMAND... : starts it, and returns when `$until` has been true. Sets job.
begin_until() {
    : >"$work/out"
    "$@" >"$work/out" 2>"$work/err" </dev/null &
    job=$!
    waited=0
    while ! $until && [ $waited -lt 1200 ] && kill -0 $job 2>/dev/null; do
        sleep 0.05
        waited=$((waited + 1))
    done
}
is_loading() { # the victim has read a piece of the weights
    now=$(read_of "$victim")
    [ -n "$now" ] && [ "$now" -gt $((16 * mib)) ]
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
    check "nothing is shown as text" eval '! grep -q "\"ids\"" "$work/out"'
    check "nobody is left" nobody_is_left
    check "no shared memory is left" no_memory_is_left
}

# ---- while weights are read ----
one "$make_model" --shape v3-layer --weights fp8 --set hidden=1024 --set width=1024 --set experts=64 --set heads=16 --set dense-width=1024 \
    --out "$work/model"
name="a model of 220 MB"
check "is made" exits 0
until=is_loading
while read -r signal victim options; do
    name="SIG$signal of rank $victim of 3 while it loads, $options"
    shared_now >"$work/shared"
    # shellcheck disable=SC2086 # words are wanted
    begin_until mpi_run 3 "$tutti" run "$work/model" --weights int4 --ids 5 -n 1 --json --context 64 --deadline $deadline --threads 1 $options
    strike "$signal" "$victim"
    ends_the_job "$signal" "$victim"
done <<'ROWS'
STOP 1 --dp 1 --tp 3
STOP 0 --dp 3 --tp 1 --progress thread
STOP 2 --replicate node
KILL 2 --dp 3 --tp 1
TERM 1 --dp 1 --tp 3
ROWS

# ---- a rank that may not have the memory ----
# The limit of its address space, in KiB, meets it earlier or later in loading: never in a crash, nor in ranks that wait for it.
limited() { # limited KIB: rank 2 of 3
    mpi_run 2 "$tutti" $arguments : -n 1 sh -c "ulimit -v $1; exec \"\$@\"" sh "$tutti" $arguments >"$work/out" 2>"$work/err" </dev/null
    code=$?
}
lacks_memory() { # the whole, or one error that says what of which rank could not be had
    if [ "$code" -eq 0 ]; then
        n_whole=$((n_whole + 1))
        out_has '"ids":\['
    else
        n_refused=$((n_refused + 1))
        exits 1 && one_error && err_has "^tutti: .*rank 2 \\($host\\): .*(cannot allocate|no memory|cannot map)" && [ ! -s "$work/out" ]
    fi
}
arguments="run $work/model --ids 5 -n 1 --json --context 64 --threads 1 --dp 3 --tp 1 --deadline 30 --quiet"
if (ulimit -v 4000000) 2>/dev/null && ! nm "$tutti" 2>/dev/null | grep -q __asan_init; then
    n_whole=0
    n_refused=0
    for kib in 300000 400000 500000 550000 600000 700000 800000 1100000; do
        name="rank 2 of 3 may map $kib KiB"
        limited $kib
        check "its memory suffices, or is missed by name (exit code $code)" lacks_memory
        check "nobody is left" nobody_is_left
    done
    name="rank 2 of 3 may map little"
    check "some limits are too low" [ $n_refused -gt 0 ]
    check "others are not" [ $n_whole -gt 0 ]
    arguments=${arguments% --quiet}
    limited 900000 # enough for the work, and perhaps not for the buffer that measures the machine
    check "a speed that cannot be measured fails nothing" exits 0
else
    name="rank 2 of 3 may map little"
    ok "# SKIP address space cannot be limited"
fi

# ---- in a prompt ----
# One prompt of 20000 tokens, four a step: many seconds without a token on any machine. Loading is over when nothing has been read for a second.
awk 'BEGIN { printf "{\"n\": 1, \"ids\": [0"; for (i = 1; i < 20000; i++) printf ",%d", 5 + (i * 7) % 1000; print "]}" }' >"$work/prompts"
before=0
quiet=0
is_in_prompt() {
    now=$(read_of "$victim")
    if [ -n "$now" ] && [ "$now" -gt $((16 * mib)) ] && [ "$now" = "$before" ]; then quiet=$((quiet + 1)); else quiet=0; fi
    before=$now
    [ $quiet -ge 4 ] && return
    sleep 0.2
    false
}
until=is_in_prompt
while read -r signal victim options; do
    name="SIG$signal of rank $victim of 3 in a prompt, $options"
    shared_now >"$work/shared"
    # shellcheck disable=SC2086
    begin_until mpi_run 3 "$tutti" run "$work/model" --prompts "$work/prompts" --context 20001 --prefill-chunk 4 --json --deadline $deadline --threads 1 \
        $options
    strike "$signal" "$victim"
    check "no text yet" [ ! -s "$work/out" ]
    ends_the_job "$signal" "$victim"
done <<'ROWS'
STOP 1 --dp 3 --tp 1
STOP 0 --dp 1 --tp 3
KILL 2 --dp 3 --tp 1
TERM 0 --dp 1 --tp 3
ROWS
done_testing
