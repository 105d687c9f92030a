#!/bin/sh
# stack.sh - tokenizing and chat templates do with a stack of 256 KiB, whatever the text: long runs of one kind of character, and every chat
# template that the unit tests know. Long runs get the ids that they get elsewhere.
set -u
. "$top_srcdir/tests/cli/lib.sh"
# shellcheck disable=SC3045 # asked first: a shell without -s skips this test
if ! (ulimit -s 256) 2>/dev/null || nm "$tutti" 2>/dev/null | grep -q __asan_init; then # a sanitizer's frames are large
    echo "1..0 # SKIP no small stacks here"
    exit 77
fi
small() { # small COMMAND...: with stdin
    one sh -c 'ulimit -s 256 && exec "$@"' sh "$@"
}
while read -r unit times; do
    name="$times times '$unit'"
    awk -v unit="$unit" -v n="$times" 'BEGIN { if (unit == "space") unit = " "; for (i = 0; i < n; i++) printf "%s", unit }' >"$work/text"
    one "$tutti" tokenize "$model" <"$work/text"
    cp "$work/out" "$work/ids"
    small "$tutti" tokenize "$model" <"$work/text"
    check "is tokenized" exits 0
    check "into the same ids" cmp -s "$work/ids" "$work/out"
    { printf '[{"role": "user", "content": "' && cat "$work/text" && printf '"}]'; } >"$work/chat"
    small "$tutti" tokenize "$model" --chat <"$work/chat"
    check "and as a message" exits 0
    check "of more ids" [ "$(wc -w <"$work/out")" -gt "$(wc -w <"$work/ids")" ]
done <<'RUNS'
Q 131072
. 131072
space 131072
1 131072
us 65536
中 131072
😀 65536
RUNS
for program in test_chat test_chat_templates; do
    name=$program
    if [ -x "$top_builddir/tests/unit/$program" ]; then
        small "$top_builddir/tests/unit/$program" </dev/null
        check "passes" exits 0
    else
        ok "# SKIP not built"
    fi
done
done_testing
