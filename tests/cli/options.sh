#!/bin/sh
# options.sh - what is typed wrong is named, once, with exit code 2, before anything is loaded.
set -u
. "$top_srcdir/tests/cli/lib.sh"
bad() { # bad PATTERN ARGUMENTS...
    pattern=$1
    shift
    one "$tutti" "$@" </dev/null
    check "$*" refused 2 "$pattern"
}
name="alone"
bad "no command"
bad "unknown command 'rnu'" rnu
bad "command 'serve' is not built yet" serve
bad "temprature.*temperature" run --temprature 1
bad "max-bach.*max-batch" run --max-bach 1
bad "top-p.*3" run --top-p 3 -p x
bad "temperature.*nan" run --temperature nan -p x
bad "temperature.*-1" run --temperature=-1 -p x
bad "top-k.*x" run --top-k x -p x
bad "seed.*-5" run --seed=-5 -p x
bad "n.*ten" run -n ten -p x
bad "weights.*fp3" run --weights fp3 -p x
bad "kernels.*warp" run --kernels warp -p x
one env TUTTI_CPU_HIDE=amx "$tutti" run --kernels amx-bf16 -p x
check "a set that the CPU lacks is refused" err_has 'kernels amx-bf16 needs AMX'
bad "deadline.*0" run --deadline 0 -p x
bad "verbose.*9" info --verbose 9
bad "kv-memory.*5X" run --kv-memory 5X -p x
bad "one word too many" run "$model" other -p x
bad "score needs MODEL" score
bad "score needs either" score "$model"
bad "score needs either" score "$model" --ids-file a --text-file b
bad "no prompt.*--chat" run "$model"
bad "'1,x' is no token id|'x' is no token id" run "$model" --ids 1,x
bad "outside the vocabulary of 4096" run "$model" --ids 1,4096
bad "no id before a comma" run "$model" --ids 1,,3
bad "no id before a comma" run "$model" --ids ,3
bad "no id after the last comma" run "$model" --ids 1,
bad "the prompt is empty" run "$model" --ids ""
bad "unknown option --frobnicate\$" run --frobnicate
one "$tutti" --help
check "--version is told" out_has "tutti --version"

name="on two ranks"
ranks 2 "$tutti" run --temprature 1
check "told once" refused 2 "temprature.*temperature"
ranks 2 "$tutti" run "$model"
check "no prompt" refused 2 "no prompt"
ranks 2 "$tutti" run "$model" --ids 1 --tp 8 --dp 1
check "tp above the ranks" refused 2 "tp"
ranks 2 "$tutti" run "$model" --ids 1 --split "attention:0,experts:0"
check "a rank without a role" refused 2 "rank"
ranks 2 "$tutti" serve
check "a command that is not built" refused 2 "not built yet"

name="environment"
one env TUTTI_TOP_P=7 "$tutti" run -p x
check "a bad variable is named" refused 2 "(TUTTI_TOP_P|top-p).*7"
one env TUTTI_MAX_BACH=7 "$tutti" info
check "an unknown variable is a warning" err_has 'warning: .*TUTTI_MAX_BACH'
check "and no error" exits 0
one env TUTTI_JSON=1 "$tutti" info
check "a twin works" out_has '^\{"version"'
printf x >"$work/in"
one "$tutti" info -v
check "no variable belongs to two options" [ -z "$(grep -o ' TUTTI_[A-Z_]*' "$work/out" | sort | uniq -d)" ]
check "TUTTI_CHAT is the one of run" out_has '^  --chat +TUTTI_CHAT +list'
printf x | TUTTI_CHAT="Hello" timeout 60 "$tutti" tokenize "$model" >"$work/out" 2>"$work/err"
check "and tokenize does not read it" [ $? -eq 0 ]
one env TUTTI_DATADIR="$work" "$tutti" run -p x
check "no model where TUTTI_DATADIR points" refused 2 "TUTTI_DATADIR"

name="launch"
one env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 "$tutti" run "$model" --ids 1
check "srun without PMI: the first process tells both numbers" refused 2 "4.*1|1.*4"
one env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2 "$tutti" run "$model" --ids 1
check "the others fail silently" exits 2
check "with no line of theirs" [ "$(grep -c '^tutti: ' "$work/err")" -eq 0 ]
one env SLURM_NTASKS=4 "$tutti" run "$model" --ids 1,2 -n 1 --quiet
check "an inherited SLURM_NTASKS is no proof" exits 0
if taskset -c 0 true 2>/dev/null; then
    one taskset -c 0 "$tutti" run "$model" --ids 1,2 -n 1 --threads 2 --quiet
    check "one CPU and two threads: a warning" err_has "warning: .*2 threads.*(only|one)"
    check "but it runs" exits 0
fi
done_testing
