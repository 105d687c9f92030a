#!/bin/sh
# lint.sh - make lint: what can be said of the sources without running them. Format, sizes, clang-tidy, headers alone,
# layers, symbols, scripts. Every check runs; one line each says ok, skipped (and what is missing) or FAILED.
#
#   make lint [LINT_FILES="src/moe/router.c ..."]    clang-tidy on these files alone; it takes minutes for all
# Environment: CC, MPI_CFLAGS, NM, LINT_CPPFLAGS, LINT_FILES; the build directory is the working directory.
set -u
top=${top_srcdir:-.}
format_version=14 # others break lines elsewhere; pip install clang-format==14.0.6 has it
most_lines=800
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
failed=0

sources() { # sources FOLDER...: its C files, as paths below the top
    (cd "$top" && find "$@" -name '*.[ch]' ! -path '*/build*' | LC_ALL=C sort)
}

check() { # check NAME COMMAND...: code 77 is a skip, whose reason is the last line
    name=$1
    shift
    "$@" >"$work/log" 2>&1
    case $? in
    0) printf 'ok       %s\n' "$name" ;;
    77) printf 'skipped  %s: %s\n' "$name" "$(tail -n 1 "$work/log")" ;;
    *)
        printf 'FAILED   %s\n' "$name"
        cat "$work/log"
        failed=1
        ;;
    esac
}

format() {
    command -v clang-format >/dev/null || { echo "clang-format $format_version is not there"; return 77; }
    case $(clang-format --version) in
    *"version $format_version."*) ;;
    *) echo "clang-format $format_version wanted, this is $(clang-format --version)"; return 77 ;;
    esac
    sources src include kernels tests benchmarks docs | (cd "$top" && xargs clang-format --dry-run -Werror)
}

sizes() {
    for file in $(sources src kernels); do
        n=$(wc -l <"$top/$file")
        [ "$n" -le $most_lines ] || echo "$file has $n lines: more than $most_lines"
    done >"$work/sizes"
    cat "$work/sizes"
    [ ! -s "$work/sizes" ]
}

spaces() {
    ! (cd "$top" && grep -rnE '[[:blank:]]+$' src include kernels tests benchmarks docs ./*.md --include='*.[ch]' --include='*.sh' \
        --include='*.inc' --include='*.am' --include='*.md')
}

tidy() {
    command -v clang-tidy >/dev/null || { echo "clang-tidy is not there"; return 77; }
    files=${LINT_FILES:-$(sources src | grep '\.c$')}
    # The flags hold words of their own, so they are split.
    # shellcheck disable=SC2086
    (here=$PWD && cd "$top" && printf '%s\n' $files |
        xargs -P "$(nproc)" -n 4 sh -c 'flags=$1; shift; clang-tidy --quiet "$@" -- -std=gnu11 -mavx2 -mfma -mf16c -DTT_PKGDATADIR=\"/\" $flags' tidy \
            "-I$here -Iinclude -Ikernels -Isrc/base ${LINT_CPPFLAGS:-} ${MPI_CFLAGS:-}" 2>&1) |
        grep -E '(warning|error):' -A 4 >"$work/tidy"
    cat "$work/tidy"
    [ ! -s "$work/tidy" ]
}

shells() { # variables of files that are read in are not seen: SC2034, SC2154
    command -v shellcheck >/dev/null || { echo "shellcheck is not there"; return 77; }
    # shellcheck disable=SC2046
    (cd "$top" && shellcheck -x -S warning -e SC2034,SC2154 quickstart .ci/run bootstrap $(find tests benchmarks slurm -name '*.sh' -o -name '*.sbatch'))
}

pythons() {
    command -v python3 >/dev/null || { echo "python3 is not there"; return 77; }
    (cd "$top" && grep -rlE '^#!.*python3' benchmarks tests | xargs python3 -c 'import ast, sys
for name in sys.argv[1:]:
    ast.parse(open(name).read(), name)')
}

check format format
check "files of at most $most_lines lines" sizes
check "no blanks at line ends" spaces
check "scripts of the shell" shells
check "scripts of Python" pythons
check "headers alone" sh "$top/tests/check_headers.sh"
check "layers" sh "$top/tests/check_layers.sh"
if [ -e src/.libs/libtutti.so ]; then
    check "symbols" sh "$top/tests/check_symbols.sh"
else
    check "symbols" sh -c 'echo "the library is not built"; exit 77'
fi
check "clang-tidy" tidy
exit $failed
