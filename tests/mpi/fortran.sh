#!/bin/sh
# fortran.sh - docs/examples/exchange.f90, linked with the built library as a user's program would be, prints what the same program in C does.
# Skipped (77) where MPI has no Fortran compiler, or where that belongs to another MPI than the library.
set -u
. "$top_srcdir/tests/mpi.sh"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
top_srcdir=$(cd "$top_srcdir" && pwd) && top_builddir=$(cd "$top_builddir" && pwd) && cd "$work" || exit 99 # compilers leave module files

skip() {
    echo "skipped: $1"
    exit 77
}
fail() {
    echo "$1"
    head -n 20 log
    exit 1
}

[ -n "${MPIFORT:-}" ] || skip "no Fortran compiler of this MPI (configure MPIFORT=...)"
case ${TT_LDFLAGS:-} in
*-fsanitize*) skip "the library is built with sanitizers, a program in Fortran is not" ;;
esac

# Which MPI is it? This may be asked before MPI_Init.
cat >version.c <<'EOF'
#include <mpi.h>
#include <stdio.h>
int main(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    return printf("%s\n", text) < 0;
}
EOF
cat >version.f90 <<'EOF'
program version
    use mpi
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: text
    integer :: length, ierror
    call MPI_Get_library_version(text, length, ierror)
    print '(a)', text(1:length)
end program
EOF
# MPICC and MPIFORT may hold words of their own, so they are split.
# shellcheck disable=SC2086
if ! { $MPICC -o version_c version.c && ./version_c >version_c.txt; } >log 2>&1; then
    fail "$MPICC makes no program"
fi
# shellcheck disable=SC2086
if ! { $MPIFORT -o version_f version.f90 && ./version_f >version_f.txt; } >log 2>&1; then
    head -n 20 log
    skip "$MPIFORT makes no program"
fi
# Fortran's text may end with a NUL or blanks.
in_c=$(tr -d '\000 \n' <version_c.txt)
in_fortran=$(tr -d '\000 \n' <version_f.txt)
[ "$in_c" = "$in_fortran" ] || skip "$MPIFORT is not of the MPI of $MPICC: $(printf '%.40s..., not %.40s...' "$in_fortran" "$in_c")"

# libtool knows what the library needs, shared or static, and where it lies before it is installed.
# shellcheck disable=SC2086
$MPIFORT -c -o exchange.o "$top_srcdir/docs/examples/exchange.f90" >log 2>&1 || fail "exchange.f90 does not compile"
# shellcheck disable=SC2086
"$top_builddir/libtool" --tag=CC --mode=link $MPIFORT -no-install -o exchange exchange.o "$top_builddir/src/libtutti.la" >log 2>&1 ||
    fail "exchange.f90 does not link"

# A type that is shorter than C's would be overrun in silence.
types='tt_world_params tt_exchange_params tt_owner_map tt_exchange_state tt_exchange_rows tt_exchange_counters'
{
    printf '#include <stdio.h>\n#include "tutti/comm_mpi.h"\n#include "tutti/exchange.h"\nint main(void)\n{\n'
    for type in $types; do printf '    printf("%s %%zu\\n", sizeof(%s));\n' "$type" "$type"; done
    printf '    return 0;\n}\n'
} >sizes.c
{
    printf 'program sizes\n    use tutti\n'
    for type in $types; do printf '    type(%s) :: a_%s\n' "$type" "$type"; done
    for type in $types; do printf '    print "(a,1x,i0)", "%s", c_sizeof(a_%s)\n' "$type" "$type"; done
    printf 'end program\n'
} >sizes.f90
# shellcheck disable=SC2086
{ $MPICC -I"$top_srcdir/include" -I"$top_srcdir/kernels" -o sizes_c sizes.c && ./sizes_c >sizes_c.txt && $MPIFORT -c sizes.f90 && $MPIFORT -o sizes_f sizes.o &&
    ./sizes_f >sizes_f.txt; } >log 2>&1 || fail "no program that prints sizes"
diff sizes_c.txt sizes_f.txt >log || fail "sizes of types in C and in Fortran differ"

# RANKS NODES: as many ranks, on nodes of their own as TUTTI_FAKE_NODES has them.
same_lines() {
    TUTTI_FAKE_NODES=$2
    export TUTTI_FAKE_NODES
    mpi_run "$1" ./exchange </dev/null >out 2>log || fail "$1 ranks, nodes '$2': exit code $?"
    mpi_run "$1" "$top_builddir/docs/examples/exchange" </dev/null >out_c 2>log || fail "$1 ranks, nodes '$2': in C: exit code $?"
    sort out >lines
    sort out_c >lines_c
    if [ "$(grep -c 'tokens, 0 values wrong' lines)" -ne "$1" ] || ! cmp -s lines lines_c; then
        diff lines lines_c
        fail "$1 ranks, nodes '$2': not as in C"
    fi
    echo "$1 ranks, nodes '$2': as in C"
}
same_lines 1 1
same_lines 3 3
same_lines 4 4
same_lines 4 1,3
