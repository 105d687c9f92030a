#!/bin/sh
# convert.sh - packed checkpoints: the same bits as the original on any layout, nothing overwritten, nothing left behind, nothing believed.
set -u
. "$top_srcdir/tests/cli/lib.sh"
golden=$top_srcdir/tests/golden
ids=$top_srcdir/tests/layouts/ids/miniature.txt
packed=$work/packed

# same LOGITS: the last command worked and wrote the same logits as the original.
same() {
    [ "$code" -eq 0 ] && cmp "$work/original.npy" "$work/$1.npy" >/dev/null
}
# compare NAME SOURCE WEIGHTS: SOURCE packed with these weights, and unpacked with them, on 1 and 3 ranks.
compare() {
    name="$1, --weights $3"
    rm -rf "$packed"
    one "$tutti" convert "$2" "$packed" --weights "$3" --quiet
    check "is written" exits 0
    one "$tutti" score "$2" --ids-file "$ids" --logits "$work/original.npy" --quiet --weights "$3" --threads 1
    check "the original runs" exits 0
    one "$tutti" score "$packed" --ids-file "$ids" --logits "$work/1.npy" --quiet --threads 2
    check "the same logits" same 1
    [ "$3" = bf16 ] && return
    ranks 3 "$tutti" score "$packed" --ids-file "$ids" --logits "$work/3.npy" --quiet --dp 1 --tp 3 --threads 1
    check "the same on 3 ranks" same 3
}
for m in tiny deepseek_v3_fp8 qwen3_moe_gptq llama4_text; do
    source=$golden/architectures/$m
    [ $m = tiny ] && source=$model
    for weights in auto f32 bf16 int8; do
        compare $m "$source" $weights
    done
done
for m in deepseek_v3.gguf gpt_oss_mxfp4.gguf qwen3_next.gguf split/llama_dense-00001-of-00003.gguf; do
    compare $m "$golden/gguf/$m" auto
    compare $m "$golden/gguf/$m" int8
done
# A matrix of each block type; their vocabulary is smaller.
head -n 3 "$ids" | awk '{ for (i = 1; i <= NF; i++) $i = $i % 64; print }' >"$work/small"
ids=$work/small
for m in types_a types_b; do
    compare $m.gguf "$golden/gguf/$m.gguf" auto
done

name="a packed checkpoint"
rm -rf "$packed"
one "$tutti" convert "$model" "$packed"
check "says how much it wrote" err_has '^converted [0-9.]+ MiB in [0-9.]+ s'
check "says what it left out" err_has '1 layer that predicts further tokens is left out'
check "has no layer behind the last" [ "$(head -c 2000000 "$packed/model.safetensors" | grep -a -c '"[a-z_]*\.6[."]')" -eq 0 ]
check "has the last" [ "$(head -c 2000000 "$packed/model.safetensors" | grep -a -c '"expert_gate\.5\.31"')" -gt 0 ]
one "$tutti" info "$packed"
check "says so" out_has '; 0 MTP layers'
one "$tutti" convert "$golden/architectures/qwen3_moe_gptq" "$work/twice" --weights int8 --json
check "of quantised weights warns of rounding them again" err_has 'rounds them a second time'
check "prints JSON alone" out_has '^\{"model":".*","out":".*/twice","bytes":[0-9]+,"seconds":[0-9.]+\}$'
mkdir "$work/stopped.tmp"
one "$tutti" convert "$model" "$work/stopped"
check "of a stopped conversion says what to do" refused 1 'stopped\.tmp: File exists \(.*then remove it\)'
one "$tutti" run "$packed" --chat 'What is hwloc?' -n 8 --quiet --threads 1
check "has its tokenizer and template" out_has '^hwloc: '
one "$tutti" convert "$packed" "$work/again" --quiet
cmp "$packed/model.safetensors" "$work/again/model.safetensors" >"$work/out" 2>&1
code=$?
check "converts into itself" exits 0
one "$tutti" convert "$model" "$packed"
check "is not overwritten" refused 2 'packed: exists already'
one "$tutti" run "$packed" --ids 5 -n 1 --quiet --threads 1
check "nor harmed" exits 0
one "$tutti" convert "$model"
check "needs a name" refused 2 'convert needs MODEL and OUT'

name="a full disk"
(
    trap '' XFSZ # else the signal comes before the error
    ulimit -f 2000
    one "$tutti" convert "$model" "$work/full" --quiet
    check "is an error" refused 1 'full.tmp/model.safetensors: cannot be written'
    exit $failed
)
[ $? -eq 0 ] || failed=$((failed + 1))
count=$((count + 1))
check "nothing stays" [ ! -e "$work/full" ]
check "nor what was begun" [ ! -e "$work/full.tmp" ]

name="a damaged one"
damage() { # damage FROM TO: of the same length
    cp "$packed/model.safetensors" "$work/whole"
    LC_ALL=C sed "s/$1/$2/" "$work/whole" >"$packed/model.safetensors"
    one "$tutti" run "$packed" --ids 5 -n 1 --quiet --threads 1
    cp "$work/whole" "$packed/model.safetensors"
}
damage '\\"panels\\":1' '\\"panels\\":9'
check "of another panel layout is named" refused 3 'packed checkpoint of version 2 with panel layout 9.*convert the model again'
damage '\\"head\\":\[0,4096' '\\"head\\":[0,4095'
check "of another shape is refused" refused 3 "tensor 'head' is described with another shape"
damage '\[\\"bf16\\",\\"f32\\"' '[\\"e4m3\\",\\"f32\\"'
check "of no format is refused" refused 3 'described with a format that cannot be'
damage '\\"head\\":\[0,' '\\"head\\":[7,'
check "of no known format is refused" refused 3 "tensor 'head' is described with a format"
damage '"router.1"' '"rooter.1"'
check "without a tensor is refused" refused 3 "tensor 'router.1' is missing"

done_testing
