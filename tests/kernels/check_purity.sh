#!/bin/sh
# check_purity.sh - kernels are pure arithmetic: fails if a file in kernels/ includes or calls anything that allocates,
# prints, locks or communicates, or if a file outside x86/ needs an instruction set.
dir=${top_srcdir:-.}/kernels
n_failed=0
n_files=0

# refuse PATTERN REASON FILE: comments count too, which is a small price for a simple rule
refuse()
{
    if grep -nE "$1" "$3" /dev/null; then
        echo "not ok - $3: $2"
        n_failed=$((n_failed + 1))
    fi
}

# No name of ours holds a blank.
# shellcheck disable=SC2044
for file in $(find "$dir" -name '*.[ch]'); do
    n_files=$((n_files + 1))
    refuse '^[[:space:]]*#[[:space:]]*include.*[<"](mpi|stdlib|malloc|alloca|pthread|threads|semaphore|stdio|unistd|errno|sys/|omp)' \
        "kernels do arithmetic only" "$file"
    refuse '^[[:space:]]*#[[:space:]]*include.*tutti/' "kernels know no other module" "$file"
    refuse '(^|[^A-Za-z_])(malloc|calloc|realloc|free|alloca|printf|abort|exit)[[:space:]]*\(' \
        "kernels allocate, print and end nothing" "$file"
    case $file in
    "$dir"/x86/*) ;;
    *)
        refuse '^[[:space:]]*#[[:space:]]*include.*[<"][a-z0-9_]*(intrin|arm_neon|arm_sve)' \
            "intrinsics belong in the folder of their ISA" "$file"
        ;;
    esac
done
if [ "$n_files" -eq 0 ]; then
    echo "no kernels found in $dir"
    exit 1
fi
echo "$n_files files looked at, $n_failed faults"
[ "$n_failed" -eq 0 ]
