#!/bin/sh
# check_symbols.sh - the shared library exports names that begin with tt_ or ttk and nothing else, so that it never
# collides with a program's own names. Skipped (77) where no shared library was built.
set -u
LC_ALL=C
export LC_ALL
library=${top_builddir:-.}/src/.libs/libtutti.so
NM=${NM:-nm}
NM=${NM% -B} # configure may add the BSD format, which we name ourselves
if [ ! -e "$library" ]; then
    echo "no shared library at $library"
    exit 77
fi
if ! symbols=$($NM -D -P "$library"); then
    echo "$NM cannot read $library"
    exit 99
fi
# Columns: name, type, ...; U, w, v are not ours. Names that begin with '_' belong to the compiler and its sanitizers;
# a version is cut off.
ours=$(printf '%s\n' "$symbols" | awk '$2 !~ /^[Uwv]$/ { sub(/@.*/, "", $1); if ($1 !~ /^_/) print $1 }')
foreign=$(printf '%s\n' "$ours" | grep -vE '^(tt_|ttk$|ttk_)')
if [ -n "$foreign" ]; then
    echo "exported without a tt_ or ttk prefix:"
    printf '%s\n' "$foreign" | head -n 20
    exit 1
fi
# What every build has; without it the list above was not the library's.
if ! printf '%s\n' "$ours" | grep -qx tt_status_fail; then
    echo "tt_status_fail is not exported by $library"
    exit 1
fi
echo "$(printf '%s\n' "$ours" | wc -l) symbols are exported, all ours"
