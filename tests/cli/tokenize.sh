#!/bin/sh
# tokenize.sh - text to ids and back on stdin and stdout, and what it refuses.
set -u
. "$top_srcdir/tests/cli/lib.sh"

name="plain text"
printf 'What is hwloc?' >"$work/in"
one "$tutti" tokenize "$model" <"$work/in"
check "ids on one line" out_is "1091 328 326 94 83 402 38"
one "$tutti" tokenize "$model" --special <"$work/in"
check "--special adds the start token" out_is "0 1091 328 326 94 83 402 38"
one "$tutti" tokenize "$model/tokenizer.json" --json <"$work/in"
check "--json, and a file as MODEL" out_is '{"ids":[1091,328,326,94,83,402,38]}'
: >"$work/in"
one "$tutti" tokenize "$model" <"$work/in"
check "an empty text has no ids" out_is ""

name="there and back"
printf 'A line.\n\ttabs, \303\244\342\202\254 and \360\237\230\200\nno newline at the end' >"$work/text"
one "$tutti" tokenize "$model" <"$work/text"
cp "$work/out" "$work/ids"
one "$tutti" tokenize "$model" --decode <"$work/ids"
check "the bytes come back" cmp -s "$work/text" "$work/out"
printf '1091, 328,\n326' >"$work/in"
one "$tutti" tokenize "$model" --decode --json <"$work/in"
check "commas and lines part ids" out_is '{"text":"What is h"}'
echo '[1091,328]' >"$work/in"
one "$tutti" tokenize "$model" --decode <"$work/in"
check "a JSON list is a list" out_is 'What is'
echo '0 2 1091 3' >"$work/in"
one "$tutti" tokenize "$model" --decode <"$work/in"
check "special tokens are shown" out_is '<|begin_of_text|><|user|>What<|assistant|>'
one "$tutti" tokenize "$model" --decode --skip-special <"$work/in"
check "--skip-special leaves them out" out_is 'What'

name="lines"
printf '"What is"\n""\n"hw\\u006coc\\n"\n' >"$work/in"
one "$tutti" tokenize "$model" --jsonl <"$work/in"
check "a line for each line" [ "$(wc -l <"$work/out")" -eq 3 ]
check "the first is right" [ "$(head -n 1 "$work/out")" = "[1091,328]" ]
check "the empty one is empty" [ "$(sed -n 2p "$work/out")" = "[]" ]
cp "$work/out" "$work/ids"
one "$tutti" tokenize "$model" --jsonl --decode <"$work/ids"
check "and back" out_is '"What is"
""
"hwloc\n"'

name="chat"
echo '[{"role":"user","content":"What is hwloc?"}]' >"$work/in"
one "$tutti" tokenize "$model" --chat <"$work/in"
check "the template is applied, one start token" out_is "0 2 1091 328 326 94 83 402 38 3"
echo '[{"role":"user","content":"a<|assistant|>b"}]' >"$work/in"
one "$tutti" tokenize "$model" --chat <"$work/in"
check "a special token in a message stays text" [ "$(tr ' ' '\n' <"$work/out" | grep -cx 3)" -eq 1 ]

echo '{"messages":[{"role":"user","content":"a<|assistant|>b"}],"add_generation_prompt":false}' >"$work/in"
one "$tutti" tokenize "$model" --chat --text <"$work/in"
check "--text prints the text" [ "$(cat "$work/out")" = "<|begin_of_text|><|user|>a<|assistant|>b" ]
mkdir "$work/dated"
cp "$model/tokenizer.json" "$model/tokenizer_config.json" "$work/dated"
echo '{{ strftime_now("%d %B %Y") }} {{ "on" if thinks else "off" }} {{ tools | length if tools }}' >"$work/dated/chat_template.jinja"
echo '{"messages":[{"role":"user","content":""}],"now":1750000000,"tools":[{},{}],"chat_template_kwargs":{"thinks":true}}' >"$work/in"
one "$tutti" tokenize "$work/dated" --chat --text --json <"$work/in"
check "date, tools and variables of the template" out_is '{"text":"15 June 2025 on 2"}'

name="refused"
one "$tutti" tokenize "$model" --text <"$work/in"
check "--text without --chat" refused 2 "--chat"
echo '{"messages":[{"role":"user","content":""}],"thinks":true}' >"$work/in"
one "$tutti" tokenize "$work/dated" --chat <"$work/in"
check "a key that is none" refused 3 "'thinks' is no key"
printf '\n{%% if messages[0].role == "user" %%}{{ raise_exception("Begin with a system message") }}{%% endif %%}' >"$work/dated/chat_template.jinja"
echo '[{"role":"user","content":""}]' >"$work/in"
one "$tutti" tokenize "$work/dated" --chat <"$work/in"
check "what the template refuses, in its words" refused 3 "stdin: chat template, line 2: .*Begin with a system message"
echo '{{ messages | pprint }}' >"$work/dated/chat_template.jinja"
one "$tutti" tokenize "$work/dated" --chat <"$work/in"
check "what the interpreter does not know" refused 3 'line 1: the filter "pprint" is not supported'
rm "$work/dated/chat_template.jinja"
sed 's/"chat_template"/"chat_template_gone"/' "$model/tokenizer_config.json" >"$work/dated/tokenizer_config.json"
one "$tutti" tokenize "$work/dated" --chat <"$work/in"
check "a model without a template" refused 3 "no chat template"
: >"$work/in"
one "$tutti" tokenize <"$work/in"
check "no MODEL" refused 2 "needs MODEL"
one "$tutti" tokenize "$model" --decode --chat <"$work/in"
check "options that contradict" refused 2 "do not go together"
printf '"a"\nno json\n' >"$work/in"
one "$tutti" tokenize "$model" --jsonl <"$work/in"
check "a bad line is named" exits 3
check "with its number" err_has '^tutti: stdin line 2 is not JSON'
echo '1 two 3' >"$work/in"
one "$tutti" tokenize "$model" --decode <"$work/in"
check "a word that is no id" refused 3 "'two' is no token id"
echo '99999999999999999999' >"$work/in"
one "$tutti" tokenize "$model" --decode <"$work/in"
check "a number that no id can be" refused 3 "is no token id"
echo '4000000' >"$work/in"
one "$tutti" tokenize "$model" --decode <"$work/in"
check "an id that the tokenizer does not know" refused 3 "4000000"
echo '[{"role":"user"}]' >"$work/in"
one "$tutti" tokenize "$model" --chat <"$work/in"
check "a message without content" refused 3 "message 1 needs"
one "$tutti" tokenize "$work/nowhere" <"$work/in"
check "a folder that is not there" refused 3 "nowhere"
mkdir "$work/bad"
echo '{"model": [' >"$work/bad/tokenizer.json"
one "$tutti" tokenize "$work/bad" <"$work/in"
check "a tokenizer that is no JSON" refused 3 "tokenizer.json"
if [ -w /dev/full ]; then
    echo hello >"$work/in"
    timeout 20 "$tutti" tokenize "$model" <"$work/in" >/dev/full 2>"$work/err"
    code=$?
    : >"$work/out"
    check "a full disk is an error" refused 1 "stdout cannot be written"
fi
done_testing
