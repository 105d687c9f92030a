#!/bin/sh
# info.sh - info, plan, --help and --version: what a login node can answer.
set -u
. "$top_srcdir/tests/cli/lib.sh"

name="program"
one "$tutti" --version
check "--version" out_has '^tutti [0-9]+\.[0-9]+'
one "$tutti" --help
check "--help lists the commands" out_has '^  tokenize '
for command in run score tokenize info plan; do
    one "$tutti" "$command" --help
    check "$command --help exits 0" exits 0
    check "$command --help shows options" out_has '--verbose N'
done

name="info"
one "$tutti" info
check "kernel set" out_has '^kernels +set fma, instructions (ref|avx2|avx512|amx)'
check "MPI" out_has '^MPI +.'
check "memory" out_has '^memory +[0-9]+ NUMA node'
one "$tutti" info -v
check "-v lists options with variables" out_has '--max-batch +TUTTI_MAX_BATCH +integer'
check "and variables without an option" out_has 'TUTTI_FAKE_NODES'
one env TUTTI_CPU_HIDE=avx512,avx2 "$tutti" info
check "TUTTI_CPU_HIDE is heard" out_has 'instructions ref'

name="info of a model"
one "$tutti" info "$model"
check "experts" out_has '^experts +4 of 32 per token, width 64'
check "MTP layers" out_has '; 1 MTP layer(,|$| )'
one "$tutti" info "$model" --json
check "--json is one object on one line" [ "$(wc -l <"$work/out")" -eq 1 ]
check "with the model in it" out_has '"vocabulary":4096'
check "latent KV bytes: 6 layers x (64 + 16) x 4" out_has '"kv_bytes_per_token":1920'
one "$tutti" info "$model" --ranks 4 --nodes 2 --tp 2
check "the layout asked for" out_has '^layout +4 ranks on 2 nodes: dp 2 x tp 2'
check "memory of every rank" [ "$(grep -c '^rank [0-3] .*MiB: dense' "$work/out")" -eq 4 ]
one "$tutti" info "$work/nowhere"
check "no model there" refused 3 "nowhere"

name="plan"
one "$tutti" plan "$model" --ranks 8 --nodes 2 --memory 8G --batch 4 --context 512
check "a layout that fits" exits 0
check "every rank has a line" [ "$(grep -cE '^ *[0-7] +[01] ' "$work/out")" -eq 8 ]
check "a prediction, marked as assumed" out_has 'assumed, not measured'
one "$tutti" plan "$model" --ranks 3 --nodes 2 --tp 1 --json
check "--json" out_has '^\{"layout":\{"ranks":3,"nodes":2,"dp":3,"tp":1,'
one "$tutti" plan "$model" --ranks 4 --memory 1M
check "what does not fit exits 3" exits 3
check "names the node and both numbers" err_has '^tutti: node 0 needs .*MiB.* 1\.00 MiB'
one "$tutti" plan "$model" --ranks 2 --nodes 3
check "more nodes than ranks" refused 2 "nodes 3 is above .*ranks 2"
one "$tutti" plan "$model" --ranks 8 --tp 8 --dp 1
check "tp above the heads" refused 2 "tp 8 .*heads"
one "$tutti" plan "$model" --ranks 2 --context 2048
check "a context above the model's" refused 2 "1024"
one "$tutti" plan
check "no MODEL" refused 2 "needs MODEL"
done_testing
