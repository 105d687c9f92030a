#!/bin/sh
# check_bench.sh - every op in the table has a benchmark.
"${top_builddir:-.}/benchmarks/bench_kernels" --list
