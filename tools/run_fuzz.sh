#!/usr/bin/env bash
# Runs the fuzz targets, each for some seconds, from the stored corpus on: with libFuzzer, or with AFL++ where the targets
# were built for it (their folder's name then ends in -afl).
#
# usage: tools/run_fuzz.sh FOLDER_OF_TARGETS SECONDS [NAME]
#
# New inputs go to FOLDER/../corpus/NAME, crashes to FOLDER/../crashes/ (AFL++: both below FOLDER/../afl/NAME). A crash, made
# small, belongs into tests/fuzz/corpus/NAME, where make test replays it for ever. Stops at the first target that finds one.
set -eu

targets=${1:?usage: tools/run_fuzz.sh FOLDER SECONDS [NAME]}
seconds=${2:?usage: tools/run_fuzz.sh FOLDER SECONDS [NAME]}
only=${3-}
top=$(dirname "$targets")
n=0

libfuzzer() {
    mkdir -p "$top/corpus/$1" "$top/crashes"
    "$targets/$1" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$top/crashes/$1-" "$top/corpus/$1" "tests/fuzz/corpus/$1"
}

# AFL++ ends well whatever it found: its folders tell. It would rather not run where core dumps go to a program and where
# the CPU may clock down; neither matters for finding faults.
aflpp() {
    local out=$top/afl/$1
    mkdir -p "$out"
    AFL_NO_UI=1 AFL_SKIP_CPUFREQ=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_AUTORESUME=1 AFL_NO_AFFINITY=1 \
        afl-fuzz -V "$seconds" -t 2000+ -m none -i "tests/fuzz/corpus/$1" -o "$out" -- "$targets/$1" >"$out/log" 2>&1 ||
        { tail -n 20 "$out/log" && return 1; }
    grep -E 'execs_done|saved_crashes|saved_hangs' "$out/default/fuzzer_stats"
    [ -z "$(find "$out/default/crashes" "$out/default/hangs" -name 'id*' | tee /dev/stderr)" ]
}

for target in "$targets"/*; do
    name=$(basename "$target")
    { [ -x "$target" ] && { [ -z "$only" ] || [ "$only" = "$name" ]; }; } || continue
    echo "fuzz $name for $seconds s"
    case $top in
    *-afl) aflpp "$name" ;;
    *) libfuzzer "$name" ;;
    esac
    n=$((n + 1))
done

[ $n -gt 0 ] || { echo "run_fuzz.sh: no target '$only' in $targets" >&2; exit 2; }
echo "$n passed, 0 failed"
