#!/bin/sh
# check_headers.sh - each public header compiles alone, and twice in a row, as strict C11 without a warning.
# Environment: CC, MPI_CFLAGS (for comm_mpi.h, the only one that may need mpi.h).
set -u
top=${top_srcdir:-.}
CC=${CC:-cc}
if [ -z "${MPI_CFLAGS:-}" ]; then
    MPI_CFLAGS=$(mpicc --showme:compile 2>/dev/null)
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
failed=0
n=0
for path in "$top"/include/tutti/*.h "$top"/kernels/ttk.h "$top"/kernels/ttk_peak.h; do
    case $path in
    */include/tutti/*) header=tutti/${path##*/} ;;
    *) header=${path##*/} ;;
    esac
    case $header in
    tutti/comm_mpi.h) flags=$MPI_CFLAGS ;;
    *) flags= ;;
    esac
    n=$((n + 1))
    # Twice: a header without its guard fails. The typedef: ISO C wants something in a unit.
    printf '#include "%s"\n#include "%s"\ntypedef int not_empty;\n' "$header" "$header" >"$work/alone.c"
    # CC may hold words of its own (ccache gcc), so it is split; so are flags.
    # shellcheck disable=SC2086
    if ! $CC -std=c11 -fsyntax-only -Wall -Wextra -Wundef -Wstrict-prototypes -Werror $flags \
        -I"$top/include" -I"$top/kernels" "$work/alone.c" >"$work/log" 2>&1; then
        echo "$header does not compile alone:"
        head -n 12 "$work/log"
        failed=1
    fi
done
if [ "$n" -lt 15 ]; then
    echo "only $n headers were found below $top"
    failed=1
fi
[ "$failed" -eq 0 ] && echo "$n headers compile alone"
exit "$failed"
