#!/bin/sh
# check_bench.sh - the benchmark of kernels, which needs a case of every op to compile, starts and names all rows.
"${top_builddir:-.}/benchmarks/bench_kernels" --list
