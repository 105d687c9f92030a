#!/bin/sh
# check_layers.sh - the direction of the house: who may include whom, who may call MPI, who may end the process,
# and that no architecture is named outside src/model. Reads sources only.
#
#   cli -> serve -> engine -> { moe, attention } -> { balance, comm } -> plan -> model -> base     kernels: under all
set -u
LC_ALL=C
export LC_ALL
cd "${top_srcdir:-.}" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
: >"$work/faults"
fault() {
    echo "$*" >>"$work/faults"
}

# The floor of a room; rooms on one floor do not include each other.
floor_of() {
    case $1 in
    base) echo 0 ;;
    model) echo 1 ;;
    plan) echo 2 ;;
    balance | comm) echo 3 ;;
    moe | attention) echo 4 ;;
    engine) echo 5 ;;
    serve) echo 6 ;;
    cli) echo 7 ;;
    *) echo unknown ;;
    esac
}

# The room of a public header.
room_of_header() {
    case $1 in
    compiler | status | hash | log | memory | shared_memory | topology | stream | trace | options | cpu | linear | limits) echo base ;;
    model | convert | load | tokenizer) echo model ;;
    plan) echo plan ;;
    balance) echo balance ;;
    comm | comm_mpi | exchange | ferry | relay | share) echo comm ;;
    moe) echo moe ;;
    attention) echo attention ;;
    engine) echo engine ;;
    server) echo serve ;;
    *) echo unknown ;;
    esac
}

# One file without comments and string contents, line numbers kept.
plain_text() {
    awk '
    { line = $0; out = ""
      while (length(line) > 0) {
          if (in_comment) {
              end = index(line, "*/")
              if (end == 0) { line = ""; break }
              line = substr(line, end + 2); in_comment = 0; continue
          }
          if (substr(line, 1, 2) == "/*") { in_comment = 1; line = substr(line, 3); continue }
          if (substr(line, 1, 2) == "//") { line = ""; break }
          c = substr(line, 1, 1)
          if (c == "\"" && out !~ /#[ \t]*include[ \t]*$/) {
              match(line, /^"([^"\\]|\\.)*"?/)
              out = out "\"\""; line = substr(line, RLENGTH + 1); continue
          }
          if (c == "\047" && match(line, /^\047([^\047\\]|\\.)*\047/)) {
              out = out "0"; line = substr(line, RLENGTH + 1); continue
          }
          out = out c; line = substr(line, 2)
      }
      print out }' "$1"
}

# May a file of room $2 (its floor is $3) include public header $4? $1 is the file.
check_door() {
    owner=$(room_of_header "$4")
    if [ "$owner" = unknown ]; then
        fault "$1: tutti/$4.h belongs to no room that check_layers.sh knows; add it to its table"
    elif [ "$owner" != "$2" ] && [ "$(floor_of "$owner")" -ge "$3" ]; then
        fault "$1: $2 may not include tutti/$4.h of $owner"
    fi
}

# The includes of one file, one a line: "name" or <name>.
includes_of() {
    sed -n 's/^[ \t]*#[ \t]*include[ \t]*\(["<][^">]*[">]\).*/\1/p' "$1"
}

# ---- includes ----
n_files=0
for file in src/*/*.c src/*/*.h include/tutti/*.h; do
    [ -f "$file" ] || continue
    n_files=$((n_files + 1))
    case $file in
    include/tutti/tutti.h) continue ;; # includes all of them
    include/*)
        name=${file##*/}
        room=$(room_of_header "${name%.h}")
        ;;
    *)
        room=${file#src/}
        room=${room%%/*}
        ;;
    esac
    floor=$(floor_of "$room")
    if [ "$floor" = unknown ]; then
        fault "$file: no room that check_layers.sh knows"
        continue
    fi
    includes_of "$file" >"$work/includes"
    while read -r include; do
        case $include in
        '"tutti/tutti.h"')
            [ "$room" = cli ] || fault "$file: includes all of tutti; name the headers"
            ;;
        '"tutti/'*)
            header=${include#\"tutti/}
            check_door "$file" "$room" "$floor" "${header%.h\"}"
            ;;
        '"ttk.h"' | '"ttk_peak.h"' | '"config.h"') ;;
        '<mpi.h>')
            case $file in
            src/comm/* | src/cli/* | include/tutti/comm_mpi.h) ;;
            *) fault "$file: only src/comm, src/cli and comm_mpi.h include mpi.h" ;;
            esac
            ;;
        '"'*)
            header=${include#\"}
            header=${header%\"}
            case $header in
            */*) fault "$file: \"$header\": the public header is the only door to a room" ;;
            *) [ -f "${file%/*}/$header" ] ||
                fault "$file: \"$header\" is not in its folder" ;;
            esac
            ;;
        esac
    done <"$work/includes"
done
[ "$n_files" -gt 20 ] || fault "only $n_files files were found below $(pwd)"

# Kernels are arithmetic: standard headers without memory, files or threads, intrinsics, and their own.
for file in kernels/*.[ch] kernels/*/*.[ch]; do
    [ -f "$file" ] || continue
    includes_of "$file" >"$work/includes"
    while read -r include; do
        case $include in
        '<assert.h>' | '<float.h>' | '<limits.h>' | '<math.h>' | '<stdbool.h>' | '<stddef.h>' | '<stdint.h>' | \
            '<string.h>' | '<immintrin.h>' | '<arm_neon.h>' | '<arm_sve.h>') ;;
        '"'*/*) fault "$file: kernels may not include $include" ;;
        '"'*)
            header=${include#\"}
            header=${header%\"}
            [ -f "kernels/$header" ] || [ -f "${file%/*}/$header" ] ||
                fault "$file: kernels may not include $include"
            ;;
        *) fault "$file: kernels may not include $include" ;;
        esac
    done <"$work/includes"
done

# ---- calls ----
for file in src/*/*.c src/*/*.h; do
    [ -f "$file" ] || continue
    plain_text "$file" >"$work/plain"
    case $file in
    src/comm/* | src/cli/*) ;;
    *)
        grep -nE '(^|[^A-Za-z0-9_])P?MPI_[A-Za-z0-9_]+[ ]*\(' "$work/plain" >"$work/hits" &&
            fault "$file: calls MPI, which only src/comm and src/cli may: $(head -n 1 "$work/hits")"
        ;;
    esac
    case $file in
    src/cli/*) ;;
    *)
        # tt_assert_failed in status.c is the one place that may stop: debug builds, after an own bug.
        allowed=0
        [ "$file" = src/base/status.c ] && allowed=1
        n=$(grep -cE '(^|[^A-Za-z0-9_])(exit|_exit|_Exit|quick_exit|abort|MPI_Abort)[ ]*\(' "$work/plain")
        [ "$n" -le "$allowed" ] || fault "$file: ends the process $n times (allowed: $allowed)"
        ;;
    esac
done

# ---- names of architectures ----
for file in src/*/*; do
    case $file in
    src/model/*) continue ;;
    *.c | *.h)
        grep -niE 'deepseek|qwen|mixtral|olmoe' "$file" >"$work/hits" &&
            fault "$file: names an architecture, which only src/model may: $(head -n 1 "$work/hits")"
        ;;
    esac
done

# ---- one forward ----
# A definition: the name, and a '{' before any ';'.
n=0
has_engine=no
for file in src/engine/*.c; do
    [ -f "$file" ] || continue
    has_engine=yes
    plain_text "$file" >"$work/plain"
    n_here=$(awk '
        !open && /^[A-Za-z].*engine_forward[ ]*\(/ { open = 1 }
        open { brace = index($0, "{"); semicolon = index($0, ";")
               if (brace > 0 && (semicolon == 0 || brace < semicolon)) { n++; open = 0 }
               else if (semicolon > 0) { open = 0 } }
        END { print n + 0 }' "$work/plain")
    n=$((n + n_here))
done
if [ "$has_engine" = yes ] && [ "$n" -ne 1 ]; then
    fault "src/engine: engine_forward is defined $n times; one forward serves every layout"
fi

if [ -s "$work/faults" ]; then
    cat "$work/faults"
    exit 1
fi
echo "$n_files files keep the direction of the house"
