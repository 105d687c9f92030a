#!/bin/sh
# run.sh - generating text: the shipped model's known answer, forms of input and output, what is measured and traced.
set -u
. "$top_srcdir/tests/cli/lib.sh"
answer='hwloc: Hierarchical view of the machine - utilities. Hardware Locality (hwloc) provides a portable abstraction (across OS, versions, architectures, ...) of the hierarchical topology of modern architectures.'

for n in 1 2 3; do
    name="on $n ranks"
    ranks $n "$tutti" run "$model" --chat 'What is hwloc?' --threads 1
    check "the answer" out_is "$answer"
    check "decode speed" err_has '^decode +[0-9]+ tokens?, .* tokens/s'
    check "read rate beside the machine's" err_has '^memory .*GB/s = [0-9]+ % of the'
    check "layout and formats" err_has '^formats +weights .*kernels fma'
    check "no seed for greedy text" [ "$(grep -c '^seed' "$work/err")" -eq 0 ]
done

name="set blas"
one "$tutti" run "$model" -p 'The hwloc' -n 2 --kernels blas --threads 1
check "says what it costs" err_has 'warning: .*kernels blas: results depend'
check "and is named" err_has '^formats +.*kernels blas'

name="what travels"
ranks 3 env TUTTI_FAKE_NODES=0,0,1 "$tutti" run "$model" -p 'The hwloc' -n 2 --threads 1 --wire fp8 --wire-back int8 --combine reduced --overlap-rows 1
check "the formats are named" err_has '^formats +.*wire fp8, back int8 as sums of each node .other bits'
check "so is the way" err_has '^layout .*; rows to each other node once; steps of 1 rows and more in two parts'

name="two parts where that proves faster"
ranks 2 "$tutti" run "$model" -p 'The hwloc' -p 'A ' -p 'int main(' -p 'One ' -n 40 --threads 1 --dp 2 --quiet
cp "$work/out" "$work/whole"
ranks 2 env TUTTI_FAKE_NODES=0,1 TUTTI_INJECT_DELAY_US=3000 "$tutti" run "$model" -p 'The hwloc' -p 'A ' -p 'int main(' -p 'One ' -n 40 --threads 1 --dp 2
check "is said" err_has '^layout .*; steps in two parts where that proves faster'
check "they are tried where ranks wait" err_has '^steps .*; [0-9]+ in two parts'
check "the text is the same" cmp -s "$work/out" "$work/whole"

name="input"
printf 'The hwloc' >"$work/in"
one "$tutti" run "$model" -n 4 --json --quiet <"$work/in"
cp "$work/out" "$work/stdin"
check "stdin is one prompt" exits 0
one "$tutti" run "$model" -n 4 --json --quiet -p 'The hwloc' </dev/null
check "as -p is" [ "$(sed 's/"timing".*//' "$work/out")" = "$(sed 's/"timing".*//' "$work/stdin")" ]
one env TUTTI_DATADIR="$top_srcdir" "$tutti" run --ids 0,2,1091,328,326,94,83,402,38,3 -n 3 --json --quiet </dev/null
check "the default model, by ids" out_has '^\{"prompt_ids":\[0,2,1091,328,326,94,83,402,38,3\],"ids":\[79,94,83\],"text":"hwl","finish":"length","timing":\{.*"layout":\{"ranks":1,'
check "--quiet is quiet" [ ! -s "$work/err" ]
one "$tutti" run "$model" --ids 5 -n 0 --json --quiet </dev/null
check "-n 0 generates nothing" out_has '"ids":\[\],"text":"","finish":"length"'
cat >"$work/prompts" <<'LINES'
{"messages": [{"role": "user", "content": "What is hwloc?"}], "n": 80}
{"ids": [5, 6, 7], "n": 2, "temperature": 0.8, "seed": 11, "top_k": 20, "top_p": 0.9, "min_p": 0.01}

{"prompt": "The ", "n": 1}
LINES
ranks 2 "$tutti" run "$model" --prompts "$work/prompts" --json --quiet
check "a queue: one line each" [ "$(wc -l <"$work/out")" -eq 3 ]
check "in order, the first to its stop" [ "$(head -n 1 "$work/out" | grep -c '"text":"hwloc: Hier.*"finish":"stop"')" -eq 1 ]
check "each with its own n and seed" [ "$(sed -n 2p "$work/out" | grep -c '"prompt_ids":\[5,6,7\],"ids":\[[0-9]*,[0-9]*\],.*"seed":11')" -eq 1 ]
one "$tutti" run "$model" -p 'The ' -p 'A ' -n 2 --quiet </dev/null
check "several prompts are told apart" [ "$(grep -c '^== prompt [12]$' "$work/out")" -eq 2 ]

name="sampling"
one "$tutti" run "$model" --ids 0,5 -n 20 --temperature 1 --seed 3 --json --quiet </dev/null
first=$(sed 's/"timing".*//' "$work/out")
ranks 2 "$tutti" run "$model" --ids 0,5 -n 20 --temperature 1 --seed 3 --json --quiet
check "the seed decides, not the ranks" [ "$(sed 's/"timing".*//' "$work/out")" = "$first" ]
one "$tutti" run "$model" --ids 0,5 -n 20 --json --quiet </dev/null
greedy=$(sed 's/.*\("ids":[^]]*\).*/\1/' "$work/out")
one "$tutti" run "$model" --ids 0,5 -n 20 --temperature 1 --min-p 1 --seed 3 --json --quiet </dev/null
check "min-p of 1 leaves the best" [ "$(sed 's/.*\("ids":[^]]*\).*/\1/' "$work/out")" = "$greedy" ]
one "$tutti" run "$model" --ids 0,5 -n 20 --temperature 1 --seed 4 --json --quiet </dev/null
check "another seed, another text" [ "$(sed 's/"timing".*//' "$work/out")" != "$first" ]
one "$tutti" run "$model" --ids 0,5 -n 2 --temperature 1 </dev/null
check "a seed that nobody chose is printed" err_has '^seed +[0-9]+$'
one "$tutti" run "$model" --ids 0,5 -n 2 --top-k 5 --quiet </dev/null
check "top-k at temperature 0 is a warning" err_has 'warning: .*temperature'

name="conversations"
mkdir "$work/talks"
for file in "$model"/*; do
    ln -s "$file" "$work/talks/"
done
echo '{{ messages | map(attribute="content") | join("|") }};{{ mood }};{{ tools | length if tools else 0 }}' >"$work/talks/chat_template.jinja"
ids_of() {
    printf '%s' "$1" >"$work/in"
    "$tutti" tokenize "$model" --special --json <"$work/in" | sed 's/.*\[\(.*\)\].*/\1/'
}
one "$tutti" run "$work/talks" --system "A" --chat "B" --chat-args '{"mood": "calm"}' -n 0 --json --quiet </dev/null
check "--system and --chat-args reach the template" out_has "^.\"prompt_ids\":.`ids_of 'A|B;calm;0'`\]"
echo '{"messages": [{"role": "user", "content": "C"}], "tools": [{}], "chat_template_kwargs": {"mood": "own"}, "n": 0}' >"$work/prompts"
one "$tutti" run "$work/talks" --prompts "$work/prompts" --chat-args '{"mood": "calm"}' --json --quiet </dev/null
check "a line has tools, and its own variables win" out_has "^.\"prompt_ids\":.`ids_of 'C;own;1'`\]"
check "no key is unknown" [ ! -s "$work/err" ]
echo '{{ raise_exception("Not today") }}' >"$work/talks/chat_template.jinja"
one "$tutti" run "$work/talks" --chat "B" -n 0 </dev/null
check "the template's refusal" refused 3 "--chat: chat template, line 1: .*Not today"
one "$tutti" run "$work/talks" --chat "B" --chat-args 1 -n 0 </dev/null
check "--chat-args that are no object" refused 2 "chat-args"

name="without a tokenizer"
mkdir "$work/bare"
for file in "$model"/*; do
    case $file in */tokenizer*) ;; *) ln -s "$file" "$work/bare/" ;; esac
done
one "$tutti" run "$work/bare" --ids 0,2,1091,328,326,94,83,402,38,3 -n 3 --json --quiet </dev/null
check "ids work, text is null" out_has '"ids":\[79,94,83\],"text":null'
one "$tutti" run "$work/bare" --ids 0,2,1091,328,326,94,83,402,38,3 -n 3 --quiet </dev/null
check "plain output is ids" out_is "79 94 83"
ranks 2 "$tutti" run "$work/bare" -p x
check "text is refused" refused 3 "this model has no tokenizer"

name="a tokenizer of another kind"
gguf=$top_srcdir/tests/golden/gguf
mkdir "$work/gguf" "$work/tiktoken"
ln -s "$gguf/qwen2_moe.gguf" "$work/gguf/"
for path in "$gguf/split" "$work/gguf" "$gguf/qwen2_moe.gguf"; do
    one "$tutti" run "$path" --ids 5,6 -n 2 --json --quiet </dev/null
    check "${path##*/}: ids go without one" out_has '"ids":\[[0-9]+,[0-9]+\],"text":null'
    ranks 1 "$tutti" run "$path" -p x -n 1
    check "${path##*/}: text does not" refused 3 "this model has no tokenizer"
done
for file in "$model"/*; do
    case $file in */tokenizer*) ;; *) ln -s "$file" "$work/tiktoken/" ;; esac
done
echo broken >"$work/tiktoken/tiktoken.model"
ranks 1 "$tutti" run "$work/tiktoken" -p x -n 1
check "tiktoken.model is looked at" refused 3 "tiktoken.model"

name="batch mates"
# Two tables of angles: a sequence's own length chooses, whatever else runs.
phimoe=$top_srcdir/tests/golden/architectures/phimoe
mkdir "$work/long"
ln -s "$phimoe/model.safetensors" "$work/long/"
sed 's/"rope_scaling": null/"original_max_position_embeddings": 16, "rope_scaling": {"type": "longrope", "short_mscale": 1.0,
"long_mscale": 1.5, "short_factor": [1,1,1,1,1,1,1,1], "long_factor": [9,8,7,6,5,4,3,2]}/' "$phimoe/config.json" >"$work/long/config.json"
longer=$(seq -s , 1 40)
one "$tutti" run "$work/long" --ids 5,6,7,8,9,10 -n 8 --json --quiet </dev/null
cp "$work/out" "$work/alone"
one "$tutti" run "$work/long" --ids 5,6,7,8,9,10 --ids "$longer" -n 8 --json --quiet </dev/null
check "a longer one changes nothing" [ "$(head -n 1 "$work/out" | sed 's/"timing".*//')" = "$(sed 's/"timing".*//' "$work/alone")" ]
tail -n 1 "$work/out" | sed 's/"timing".*//' >"$work/longer"
ranks 2 "$tutti" run "$work/long" --ids "$longer" -n 8 --json --quiet
check "nor a shorter one" [ "$(sed 's/"timing".*//' "$work/out")" = "$(cat "$work/longer")" ]

name="what is seen"
ranks 2 "$tutti" run "$model" --ids 5,6 -n 3 --threads 1 --trace "$work/trace.json" --log-view --verbose 2 --quiet
check "a line per rank" [ "$(grep -c '^tutti: rank [01]: host .*, mask .* thread' "$work/err")" -eq 2 ]
check "a table of phases" err_has '^experts +[0-9]+ +[0-9.]+ +[0-9.]+ +[01] +[0-9.]+ %'
check "one trace" [ "$(head -c 1 "$work/trace.json")" = "{" ]
check "that ends as it should" [ "$(tail -n 1 "$work/trace.json")" = "]}" ]
check "with both ranks" [ "$(grep -o '"pid":[0-9]*' "$work/trace.json" | sort -u | wc -l)" -eq 2 ]
ranks 2 "$tutti" run "$model" --ids 5 --trace "$work/no/such/folder"
check "a trace that cannot be written" refused 2 "no/such/folder"

name="placement"
if taskset -c 0 true 2>/dev/null; then
    ranks 3 taskset -c 0 "$tutti" run "$model" --ids 5,6 -n 2 --threads 1
    check "three ranks on one CPU: one warning that says what to do" [ \
        "$(grep -Ec 'warning: .*(take turns on .*mpirun -n|bound .*mpirun --bind-to)' "$work/err")" -eq 1 ]
    check "but it runs" exits 0
fi

name="output"
if [ -w /dev/full ]; then
    timeout 60 "$tutti" run "$model" --ids 5 -n 2 --quiet </dev/null >/dev/full 2>"$work/err"
    code=$?
    : >"$work/out"
    check "a full disk is an error" refused 1 "stdout cannot be written"
fi
done_testing
