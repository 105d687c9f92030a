# lib.sh - for the tests of the program: runs a command, keeps its output, and holds it against what it must be.
# Sourced; prints TAP. Needs top_srcdir, top_builddir, MPIRUN.
# shellcheck shell=sh
. "$top_srcdir/tests/mpi.sh"
tutti=$top_builddir/tutti
model=$top_srcdir/models/tiny-moe
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset TUTTI_DATADIR TUTTI_VERBOSE
count=0
failed=0
name=start

# Reports the test that is called $name: check COMMAND... passes if the command does.
ok() {
    count=$((count + 1))
    echo "ok $count - $name: $1"
}
not_ok() {
    count=$((count + 1))
    failed=$((failed + 1))
    echo "not ok $count - $name: $1"
    sed 's/^/# out: /' "$work/out" | cut -c1-300 | head -n 5
    sed 's/^/# err: /' "$work/err" | cut -c1-300 | head -n 10
}
check() {
    what=$1
    shift
    if "$@"; then ok "$what"; else not_ok "$what"; fi
}

# one COMMAND...: runs alone, stdin as it is; ranks N COMMAND...: on N ranks, stdin empty.
one() {
    timeout -k 5 "${TT_TIMEOUT:-120}" "$@" >"$work/out" 2>"$work/err"
    code=$?
}
ranks() {
    mpi_run "$@" </dev/null >"$work/out" 2>"$work/err"
    code=$?
}

exits() { # exits CODE
    [ "$code" -eq "$1" ] || { echo "# exit code $code, not $1"; false; }
}
out_is() { # out_is TEXT: the whole of stdout, without its last newline
    [ "$(cat "$work/out")" = "$1" ]
}
out_has() { # out_has PATTERN (grep -E)
    grep -Eq -- "$1" "$work/out"
}
err_has() {
    grep -Eq -- "$1" "$work/err"
}
# One line of ours, warnings aside, however much the launcher adds; no signal, no sanitizer.
one_error() {
    [ "$(grep '^tutti: ' "$work/err" | grep -vc ': warning: ')" -eq 1 ] &&
        ! grep -Eiq 'signal|segmentation|sanitizer|assertion|runtime error' "$work/err"
}
# refused CODE PATTERN: exit code, one line that matches, nothing on stdout.
refused() {
    exits "$1" && one_error && err_has "^tutti: .*$2" && [ ! -s "$work/out" ]
}
done_testing() {
    echo "1..$count"
    [ $failed -eq 0 ]
    exit
}
