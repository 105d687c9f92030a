#!/bin/sh
# layouts.sh - the layout table: teacher-forced logits of a batch of eight sequences must be the same bytes on every layout, alone or with
# others; the shipped model's greedy tokens must be the reference's, and sampled text must not depend on the layout either.
# Among the options, hide=LIST hides levels of the CPU (TUTTI_CPU_HIDE), and a last word nodes=LIST gives each rank a pretended node.
# TT_LAYOUTS=substring runs only the rows that contain it; TT_LAYOUTS_HIDE=avx2 shows all rows but the oracles' an old CPU.
set -u
. "$top_srcdir/tests/mpi.sh"
table=$top_srcdir/tests/layouts/table.txt
tutti=$top_builddir/tutti
ids=$top_srcdir/tests/layouts/ids
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
failed=0
count=0
model_dir() {
    name=${1%@*}
    name=${name%%+*}
    case $name in
    tiny) echo "$top_srcdir/models/tiny-moe" ;;
    *.gguf) echo "$top_srcdir/tests/golden/gguf/$name" ;;
    *) echo "$top_srcdir/tests/golden/architectures/$name" ;;
    esac
}
ids_of() { # sequences of its own, or those of all miniatures (vocabularies of 320)
    name=${1%@*}
    name=${name%%+*}
    if [ -f "$ids/$name.txt" ]; then echo "$ids/$name.txt"; else echo "$ids/miniature.txt"; fi
}
has_amx=0
! "$tutti" info 2>"$work/log" | grep -q 'instructions amx' || has_amx=1
report() { # report NAME STATUS
    count=$((count + 1))
    if [ "$2" -eq 0 ]; then echo "ok $count - $1"; else echo "not ok $count - $1"; failed=$((failed + 1)); fi
}
# ---- the table ----
# Two walks at once, each over every other model, since much of a row's time is that of starting ranks; WALK is 0 or 1.
walk_table() { # walk_table WALK
    last=
    model_id=0
    mkdir -p "$work/$1"
    while read -r model ranks options; do
        case $model in '#'* | '') continue ;; esac
        row="$model on $ranks: $options"
        case $model in *@*) options="--act ${model#*@} $options" ;; esac
        plain=${model%@*}
        case $plain in *+*) options="--weights ${plain#*+} $options" ;; esac
        fake=
        case $options in *nodes=*)
            fake=${options##*nodes=}
            options=${options%nodes=*}
            ;;
        esac
        hide=${TT_LAYOUTS_HIDE:-}
        case $options in *hide=*)
            hide=${options##*hide=}
            hide=${hide%% *}
            options=${options%hide=*}
            ;;
        esac
        is_oracle=0
        if [ "$model" != "$last" ]; then
            is_oracle=1
            model_id=$((model_id + 1))
            last=$model
            hide=${TUTTI_CPU_HIDE:-}
        fi
        [ $((model_id % 2)) -eq "$1" ] || continue
        if [ $is_oracle -eq 0 ] && [ -n "${TT_LAYOUTS:-}" ]; then
            case $row in *"$TT_LAYOUTS"*) ;; *) continue ;; esac
        fi
        case $options in *"--kernels amx"*)
            if [ $has_amx -eq 0 ] || [ -n "$hide" ]; then
                echo "0 $row # SKIP no AMX"
                continue
            fi
            ;;
        esac
        out=$work/$model.npy
        [ $is_oracle -eq 1 ] || out=$work/$1/out.npy
        rm -f "$out"
        # shellcheck disable=SC2086
        mpi_run "$ranks" env ${fake:+TUTTI_FAKE_NODES=$fake} ${hide:+TUTTI_CPU_HIDE=$hide} "$tutti" score "$(model_dir "$model")" --ids-file "$(ids_of "$model")" \
            --logits "$out" --quiet $options </dev/null >"$work/$1/log" 2>&1
        status=$?
        if [ $status -ne 0 ]; then
            sed 's/^/# /' "$work/$1/log"
        elif [ $is_oracle -eq 0 ]; then
            cmp "$work/$model.npy" "$out" >"$work/$1/log" 2>&1 || { status=1; sed 's/^/# /' "$work/$1/log"; }
        elif [ ! -s "$out" ]; then
            status=1
        fi
        echo "$status $row"
    done <"$table"
}
walk_table 0 >"$work/rows.0" &
walk_table 1 >"$work/rows.1"
wait
while read -r status row; do
    case $status in
    '#') echo "# $row" ;;
    *) report "$row" "$status" ;;
    esac
done <<ROWS
$(cat "$work/rows.0" "$work/rows.1")
ROWS
# ---- alone is as in a batch ----
# Row widths: logits are f32 [T][V] behind the .npy header; sequences follow each other.
vocabulary=4096
header=$(($(wc -c <"$work/tiny.npy") - $(tr -s ', \n' '\n' <"$ids/tiny.txt" | grep -c .) * vocabulary * 4))
offset=$((header + 1))
line=0
while read -r sequence; do
    line=$((line + 1))
    n=$(echo "$sequence" | tr -s ', ' '\n' | grep -c .)
    if [ $((line % 3)) -eq 1 ]; then
        echo "$sequence" >"$work/one.txt"
        mpi_run 2 "$tutti" score "$(model_dir tiny)" --ids-file "$work/one.txt" --logits "$work/one.npy" --quiet </dev/null >"$work/log" 2>&1
        status=$?
        tail -c $((n * vocabulary * 4)) "$work/one.npy" >"$work/one.raw"
        tail -c +$offset "$work/tiny.npy" | head -c $((n * vocabulary * 4)) | cmp - "$work/one.raw" || status=1
        report "sequence $line alone" $status
    fi
    offset=$((offset + n * vocabulary * 4))
done <"$ids/tiny.txt"
# ---- greedy tokens are the reference's; sampled ones are one rank's ----
generate() { # generate RANKS OUT options...
    ranks=$1
    out=$2
    shift 2
    mpi_run "$ranks" "$tutti" run "$(model_dir tiny)" -n 64 --json --quiet "$@" </dev/null >"$out" 2>"$work/log"
}
prompts=$("$top_builddir/tests/layouts/golden_prompts" prompts "$top_srcdir/tests/golden/tiny-moe/golden.json") || exit 99
sampling="--temperature 0.9 --top-p 0.95 --top-k 50 --min-p 0.01 --seed 42"
while read -r ranks options; do
    # shellcheck disable=SC2086
    generate "$ranks" "$work/greedy.json" $prompts $options &&
        "$top_builddir/tests/layouts/golden_prompts" check "$top_srcdir/tests/golden/tiny-moe/golden.json" "$work/greedy.json"
    report "greedy tokens on $ranks: $options" $?
    # shellcheck disable=SC2086
    generate "$ranks" "$work/sampled.json" $prompts $sampling $options &&
        "$top_builddir/tests/layouts/golden_prompts" ids "$work/sampled.json" >"$work/sampled"
    status=$?
    [ -s "$work/sampled.first" ] || cp "$work/sampled" "$work/sampled.first"
    cmp "$work/sampled.first" "$work/sampled" || status=1
    report "sampled tokens on $ranks: $options" $status
done <<'ROWS'
1 --threads 1
1 --threads 2 --max-batch 1
2 --threads 1
3 --dp 1 --tp 3 --threads 1
4 --dp 2 --tp 2 --threads 1 --prefill-chunk 7
5 --threads 1
8 --threads 1 --max-batch 3
ROWS
echo "1..$count"
[ $failed -eq 0 ]
