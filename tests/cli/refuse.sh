#!/bin/sh
# refuse.sh - bad checkpoints and inputs: exit 3 on all ranks, one line that names the culprit, nothing hangs, nothing is allocated
# from a length that a file claims. make_bad writes the variants of the shipped model.
set -u
. "$top_srcdir/tests/cli/lib.sh"
TT_TIMEOUT=60
make_bad=$top_builddir/tests/cli/make_bad

while read -r kind pattern; do
    name=$kind
    rm -rf "$work/bad"
    "$make_bad" "$kind" "$model" "$work/bad" || exit 99
    one "$tutti" info "$work/bad" </dev/null
    check "info" refused 3 "$pattern"
    begin=$(date +%s)
    ranks 2 "$tutti" run "$work/bad" --ids 1,2,3 -n 2
    check "two ranks" refused 3 "$pattern"
    check "soon" [ $(($(date +%s) - begin)) -le 20 ]
done <<'KINDS'
no-weights no weights
missing-shard model-00002-of-00002.safetensors
truncated-shard model-00002-of-00002.safetensors
empty-shard model-00002-of-00002.safetensors
seven-bytes model-00002-of-00002.safetensors
huge-header model-00002-of-00002.safetensors
header-cut model-00002-of-00002.safetensors
lfs-pointer (LFS|lfs|pointer)
overlapping-offsets model-00002-of-00002.safetensors
offsets-beyond-file model-00002-of-00002.safetensors
offsets-backwards model-00002-of-00002.safetensors
wrong-shape (shape|\[)
shape-overflow model-00002-of-00002.safetensors
missing-tensor (missing|no tensor|not|lacks)
unknown-architecture FrobnicateForCausalLM.*supported are .*MixtralForCausalLM
zero-experts (expert|n_routed_experts)
topk-above-experts (33|experts)
negative-layers num_hidden_layers
config-no-json config.json
no-config config.json
KINDS

# A scale of one expert that is no number is found by the rank that loads it, and told by all.
packed=$work/packed
one "$tutti" convert "$model" "$packed" --weights int8 --quiet
while read -r kind source pattern; do
    case $source in packed) source=$packed ;; *) source=$top_srcdir/tests/golden/architectures/$source ;; esac
    rm -rf "$work/bad"
    "$make_bad" "$kind" "$source" "$work/bad" || exit 99
    for options in "--dp 2 --tp 1" "--dp 1 --tp 2" "--split attention:0,experts:1"; do
        name="$kind, $options"
        begin=$(date +%s)
        # shellcheck disable=SC2086 # words are wanted
        ranks 2 "$tutti" run "$work/bad" --ids 1,2,3 -n 2 $options
        check "names the tensor and how many" refused 3 "rank [01] \\(.*: $pattern' are infinite or no number"
        check "soon" [ $(($(date +%s) - begin)) -le 20 ]
    done
done <<'KINDS'
nan-scale-fp8 deepseek_v3_fp8 1 scales of tensor '.*experts\.5\.up_proj\.weight
nan-scale-mxfp4 gpt_oss_mxfp4 1 scales of tensor '.*experts\.down_proj_blocks
nan-scale-packed packed 512 scales of tensor 'expert_up\.5\.31
KINDS

name=tokenizer
"$make_bad" tokenizer-no-json "$model" "$work/tokenizer" || exit 99
ranks 2 "$tutti" run "$work/tokenizer" -p x
check "no JSON" refused 3 "tokenizer.json"

name=prompt
ids=$(awk 'BEGIN { for (i = 0; i < 1025; i++) printf "%s5", i ? "," : "" }')
ranks 2 "$tutti" run "$model" --ids "$ids" -n 1
check "longer than the model's context: both numbers" refused 3 "1025 tokens.* 1024"
ranks 2 "$tutti" run "$model" --ids 1,2,3,4,5 -n 1 --context 4
check "longer than the context that was asked for" refused 3 "5 tokens.* 4"
echo '{"prompt": "a", "ids": [1]}' >"$work/prompts"
ranks 2 "$tutti" run "$model" --prompts "$work/prompts"
check "a line that says two things" refused 3 "prompts line 1: exactly one"
printf '{"ids": [1]}\n{"ids": [1], "temperature": -1}\n' >"$work/prompts"
ranks 2 "$tutti" run "$model" --prompts "$work/prompts"
check "a bad value in a line" refused 3 "prompts line 2: temperature"
echo '{"ids": [1, 4096]}' >"$work/prompts"
ranks 2 "$tutti" run "$model" --prompts "$work/prompts"
check "an id above the vocabulary" refused 3 "4096"
ranks 2 "$tutti" run "$model" --prompts "$work/nowhere"
check "no file" refused 3 "nowhere"
ranks 2 "$tutti" run "$model" --prompts "$work"
check "a folder" refused 3 "is a directory"
ln -s "$work/loop" "$work/loop"
ranks 2 "$tutti" run "$work/loop" --ids 1
check "a model that is a loop of links" refused 3 "loop"
if [ "$(id -u)" -ne 0 ]; then
    mkdir "$work/closed" && chmod 0 "$work/closed"
    ranks 2 "$tutti" run "$work/closed" --ids 1
    check "a model that may not be read" refused 3 "closed"
fi
echo '{"messages": [{"role": "usr", "content": "a"}]}' >"$work/prompts"
ranks 2 "$tutti" run "$model" --prompts "$work/prompts"
check "an unknown role" refused 3 "prompts line 1: .*'usr'.*user, assistant"
echo '{"ids": [1], "n": 1, "max_tokens": 1}' >"$work/prompts"
ranks 2 "$tutti" run "$model" --prompts "$work/prompts"
check "n twice" refused 3 "prompts line 1: n and max_tokens"

name=layout
ranks 2 "$tutti" run "$model" --ids 1 --tp 2 --dp 2
check "more attention ranks than ranks" refused 2 "(dp|tp)"
ranks 5 "$tutti" run "$model" --ids 1 --tp 5 --dp 1
check "tp above the heads" refused 2 "tp 5 .*heads"
ranks 2 "$tutti" run "$model" --ids 1 --memory-limit 2M
check "does not fit into memory" refused 3 "node 0 needs .* 2\\.00 MiB"
done_testing
