#!/usr/bin/env bash
# Runs the fuzz targets with libFuzzer, each for some seconds, from the stored corpus on.
#
# usage: tools/run_fuzz.sh FOLDER_OF_TARGETS SECONDS [NAME]
#
# New inputs go to FOLDER/../corpus/NAME, crashes to FOLDER/../crashes/: a crash, made small, belongs into
# tests/fuzz/corpus/NAME, where make test replays it for ever. Stops at the first target that finds one.
set -eu

targets=${1:?usage: tools/run_fuzz.sh FOLDER SECONDS [NAME]}
seconds=${2:?usage: tools/run_fuzz.sh FOLDER SECONDS [NAME]}
only=${3-}
top=$(dirname "$targets")
n=0

for target in "$targets"/*; do
    name=$(basename "$target")
    { [ -x "$target" ] && { [ -z "$only" ] || [ "$only" = "$name" ]; }; } || continue
    mkdir -p "$top/corpus/$name" "$top/crashes"
    echo "fuzz $name for $seconds s"
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$top/crashes/$name-" "$top/corpus/$name" "tests/fuzz/corpus/$name"
    n=$((n + 1))
done

[ $n -gt 0 ] || { echo "run_fuzz.sh: no target '$only' in $targets" >&2; exit 2; }
echo "$n passed, 0 failed"
