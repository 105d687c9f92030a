#!/bin/sh
# prompts.sh - lines of --prompts that are hostile or odd: each is refused with its line in one message, or means what the manual says. A file
# with a bad line runs none of its lines; numbers of tokens mean the same by both names.
set -u
. "$top_srcdir/tests/cli/lib.sh"
run_file() { # run_file RANKS FILE; one rank needs no launcher, which is quicker
    if [ "$1" -eq 1 ]; then start=one; else start="ranks $1"; fi
    $start "$tutti" run "$model" --prompts "$2" --quiet --json --threads 1 --verbose 0 </dev/null
}
repeat() { # repeat N TEXT
    awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) printf "%s", text }'
}

# ---- how many tokens ----
n_ids() { # of each line of output
    sed 's/.*"ids":\[\([^]]*\)\],"text".*/\1/' "$work/out" | awk -F, '{ printf "%s%d", (NR > 1 ? " " : ""), NF } END { print "" }'
}
for key in n max_tokens; do
    name=$key
    while read -r value; do
        printf '{"ids": [1, 2], "n": 1}\n\n{"ids": [1, 2], "%s": %s}\n' $key "$value" >"$work/prompts"
        run_file 1 "$work/prompts"
        check "$value is refused" refused 3 "prompts line 3: $key must be a whole number from -1 to 2147483647\$"
    done <<'VALUES'
-2
null
1000000000000000000
1.5
1.0
"3"
true
[1]
{}
VALUES
    for value in 100000000000000000000 1e999 -1e999 NaN Infinity 01 +1; do
        printf '{"ids": [1, 2], "n": 1}\n\n{"ids": [1, 2], "%s": %s}\n' $key "$value" >"$work/prompts"
        run_file 1 "$work/prompts"
        check "$value is refused" refused 3 'prompts line 3 is not JSON: '
    done
    # Nothing; one; what the context leaves, at both ends of the range.
    printf '{"ids": [0, 269], "%s": %s}\n' $key 0 $key 1 $key -1 $key 2147483647 >"$work/prompts"
    run_file 2 "$work/prompts"
    check "0, 1, -1 and the most are taken" exits 0
    check "0 is no token" eval '[ "$(n_ids | cut -d " " -f 1-2)" = "0 1" ]'
    check "-1 is as many as the most" eval '[ "$(n_ids | cut -d " " -f 3)" -gt 1 ] && [ "$(n_ids | cut -d " " -f 3)" = "$(n_ids | cut -d " " -f 4)" ]'
done

# ---- what is no JSON, or no text ----
# Each behind a good line and before one: none of them runs.
hostile() { # hostile NAME PATTERN [RANKS]: of $work/line
    name=$1
    {
        echo '{"ids": [1], "n": 1}'
        cat "$work/line"
        printf '\n{"ids": [1], "n": 1}\n'
    } >"$work/prompts"
    begin=$(date +%s)
    run_file "${3:-1}" "$work/prompts"
    check "is refused with its line" refused 3 "prompts line 2$2"
    check "soon" [ $(($(date +%s) - begin)) -le 20 ]
}
{ printf '{"ids": [1], "pad": ' && repeat 9000 '[' && printf 1 && repeat 9000 ']' && printf '}'; } >"$work/line"
hostile "lists of 9000 levels" ' is not JSON: maximum parsing depth' 2
{ printf '{"ids": [1], "pad": ' && repeat 9000 '{"a":' && printf 1 && repeat 9000 '}' && printf '}'; } >"$work/line"
hostile "objects of 9000 levels" ' is not JSON: maximum parsing depth'
{ printf '{"messages": [{"role": "user", "content": "a"}], "tools": ' && repeat 9000 '[' && repeat 9000 ']' && printf '}'; } >"$work/line"
hostile "tools of 9000 levels" ' is not JSON: maximum parsing depth'
printf '{"prompt": "\326\320"}' >"$work/line"
hostile "text of another encoding" ' is not JSON: '
printf '{"prompt": "\360\237\230"}' >"$work/line"
hostile "a character that is cut" ' is not JSON: '
printf '{"prompt": "\300\200"}' >"$work/line"
hostile "an overlong character" ' is not JSON: '
printf '{"prompt": "\355\240\200"}' >"$work/line"
hostile "a surrogate in UTF-8" ' is not JSON: '
printf '{"prompt": "\\ud800"}' >"$work/line"
hostile "half a pair" ' is not JSON: ' 3
printf '{"prompt": "\\udc00\\ud800"}' >"$work/line"
hostile "a pair the wrong way round" ' is not JSON: '
printf '{"prompt": "a\000b"}' >"$work/line"
hostile "a zero byte in text" ' is not JSON: '
printf '{"ids": [1]}\000' >"$work/line"
hostile "a zero byte behind the object" ' is not JSON: '
printf '{"ids": [1], "a\\u0000b": 1}' >"$work/line"
hostile "a zero in a key" ' is not JSON: '
printf '{"ids": [1], "ids": [2]}' >"$work/line"
hostile "a key twice" ' is not JSON: duplicate'
printf '{"messages": [{"role": "user", "role": "system", "content": "a"}]}' >"$work/line"
hostile "a key twice, further in" ' is not JSON: duplicate'
printf '{"prompt":' >"$work/line"
hostile "an object that is cut" ' is not JSON: '
printf '{"ids": [1]}{"ids": [2]}' >"$work/line"
hostile "two objects" ' is not JSON: '
printf '\357\273\277{"ids": [1]}' >"$work/line"
hostile "a byte order mark" ' is not JSON: '
printf '{"ids": [1], "temperature": 1e999}' >"$work/line"
hostile "a number beyond the reals" ' is not JSON: '
printf '[{"ids": [1]}]' >"$work/line"
hostile "a list" ': an object is expected'
printf '{"ids": [1.0]}' >"$work/line"
hostile "an id that is no whole number" ': id 0 is no whole number'
printf '{"ids": [1, -1]}' >"$work/line"
hostile "an id below 0" ': id -1 is outside'
printf '{"ids": []}' >"$work/line"
hostile "no ids" ': the prompt is empty'
printf '{"prompt": 1}' >"$work/line"
hostile "a number for a text" ': prompt must be text'
{ printf '{"prompt": "' && head -c 16777216 /dev/zero | tr '\0' 'a' && printf '"}'; } >"$work/line"
hostile "16 MiB of text" ': the prompt has 16777[0-9]* tokens, more than the context of 1024'

# ---- odd, and right ----
name="a zero character in text"
printf '{"prompt": "a\\u0000b", "n": 1}\n' >"$work/prompts"
run_file 1 "$work/prompts"
check "is a character as others" exits 0
check "of three tokens and the first" out_has '"prompt_ids":\[[0-9]+,[0-9]+,[0-9]+,[0-9]+\]'
name="nesting of 2000 levels in a key that is not known"
{ printf '{"ids": [1], "n": 1, "pad": ' && repeat 2000 '[' && repeat 2000 ']' && printf '}\n'; } >"$work/prompts"
run_file 1 "$work/prompts"
check "is read" exits 0
name="line ends of another system, and none at the end"
printf '{"ids": [1], "n": 1}\r\n\r\n{"ids": [1], "n": 1}' >"$work/prompts"
run_file 1 "$work/prompts"
check "both lines run" eval '[ "$(wc -l <"$work/out")" -eq 2 ]'
name="a pair of surrogates"
printf '{"prompt": "\\ud83d\\ude00", "n": 1}\n{"prompt": "\360\237\230\200", "n": 1}\n' >"$work/prompts"
run_file 1 "$work/prompts"
check "is one character" eval '[ "$(sed "s/,\"ids\".*//" "$work/out" | sort -u | wc -l)" -eq 1 ]'
done_testing
