#!/usr/bin/env bash
# Runs the tests of one build folder and sums them up. The last line is `N passed, N failed, N skipped`; the exit status is
# 0 only if nothing failed and something ran.
#
# usage: tools/run_tests.sh BUILD [NAME]     NAME: only tests whose name holds it
#
# Suites (SUITES names those to run):
#   unit      BUILD/unit/*, cmocka programs
#   fuzz      BUILD/replay/X on every file of tests/fuzz/corpus/X
#   kernels   BUILD/check-kernels --quick
#   run       tests/run/*.{py,sh}: the program from outside. They find it in $BALTORO, the one in which faults can be
#             planted in $BALTORO_TEST, and close with a line `N passed, N failed[, N skipped]`.
#   tools     tests/tools/*.py: what lies in tools/, closing with the same line; not under sanitizers
# SANITIZER (asan, ubsan, tsan) says what BUILD was built with. A test's file may hold a line `run_tests: WORD...`:
#   release   not under sanitizers: it does not run the program, or builds its own
#   threads   under tsan too; of the run suite only such tests are
#   alone     nothing else at the same time
# A test that crashes, hangs (LIMIT seconds) or reports nothing has failed. JOBS tests run at a time.
set -u

build=${1:?usage: tools/run_tests.sh BUILD [NAME]}
filter=${2-}
SUITES=${SUITES:-tools run kernels fuzz unit}
SANITIZER=${SANITIZER:-}
JOBS=${JOBS:-$(nproc)}
LIMIT=${LIMIT:-1800} # against hangs alone: what is slow on a busy machine has not failed
export BALTORO=${BALTORO:-build/baltoro}
export BALTORO_TEST=${BALTORO_TEST:-$build/baltoro}
export CMOCKA_MESSAGE_OUTPUT=TAP
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
PYTHON=$(tools/python.sh) || exit 1
export PYTHON
logs=$build/test-logs
rm -rf "$logs"
mkdir -p "$logs"

# ---- counting: each reads a log on stdin and prints "passed failed skipped" -------------------------------------------

# cmocka's TAP: "ok 1 - name", "not ok 2 - name", "not ok 3 # SKIP name"; a plan "1..5" for each group. Tests that the plan
# announced and that never reported have failed.
count_unit() {
    awk '/^1\.\.[0-9]+$/ { split($0, n, /\.\./); plan += n[2]; next }
         /^#/ { next }
         /not ok [0-9]+ # SKIP/ { skip++; next }
         /not ok [0-9]+ - / { fail++; next }
         /ok [0-9]+ - / { pass++ }
         END { lost = plan - pass - fail - skip; if (lost > 0) fail += lost; print pass + 0, fail + 0, skip + 0 }'
}

# The closing line, which must be the last.
count_run() {
    tail -n 1 | sed -nE 's/^([a-z]+: )?([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\2 \3 0\5/p'
}

# ---- running ---------------------------------------------------------------------------------------------------------

# run_one SUITE NAME COMMAND...: runs it, leaves its counts in a file, prints one line, and the log if something failed.
run_one() {
    local suite=$1 name=$2 log=$logs/$1-$2.log start=$SECONDS rc pass=0 fail=0 skip=0 why=
    shift 2
    timeout -k 10 "$LIMIT" "$@" >"$log" 2>&1 </dev/null
    rc=$?
    case $suite in
    unit) read -r pass fail skip < <(count_unit <"$log") ;;
    fuzz) [ $rc -ne 0 ] || pass=1 ;;
    *) read -r pass fail skip < <(count_run <"$log") || why=', no closing line' ;;
    esac
    pass=$((10#${pass:-0})) fail=$((10#${fail:-0})) skip=$((10#${skip:-0}))
    [ $rc -le 128 ] || why=", ended by signal $((rc - 128))"
    [ $rc -ne 124 ] || why=", stopped after $LIMIT s"
    if [ $rc -ne 0 ] && [ $fail -eq 0 ]; then
        fail=1 why=${why:-", exit status $rc"}
    elif [ $((pass + fail + skip)) -eq 0 ]; then
        fail=1 why=${why:-", reported nothing"}
    fi
    echo "$pass $fail $skip" >"$logs/$suite-$name.counts"
    local line
    line=$(printf '%-8s %-24s %d passed, %d failed, %d skipped%s (%d s)' \
        "$suite" "$name" "$pass" "$fail" "$skip" "$why" $((SECONDS - start)))
    if [ "$fail" -ne 0 ]; then
        line=$(echo "FAILED   $line" && tail -n 60 "$log" | sed 's/^/    /')
    else
        line="ok       $line$(grep -m 3 'NOT RUN' "$log" | sed 's/^/\n    /')"
    fi
    echo "$line"
}

# marked FILE WORD: does the file carry that word?
marked() {
    grep -qE "run_tests:.*\b$2\b" "$1"
}

# start SUITE NAME SOURCE COMMAND...: in the background, as soon as one of JOBS places is free.
start() {
    local source=$3
    [[ $2 == *$filter* ]] || return 0
    if [ -n "$SANITIZER" ] && marked "$source" release; then return 0; fi
    if marked "$source" alone; then
        wait
        run_one "$1" "$2" "${@:4}"
        return
    fi
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
    run_one "$1" "$2" "${@:4}" &
}

for suite in $SUITES; do
    case $suite in
    unit)
        for source in tests/unit/test_*.c; do
            [ -f "$source" ] || continue
            name=$(basename "$source" .c)
            start unit "${name#test_}" "$source" "$build/unit/$name"
        done
        ;;
    fuzz)
        for source in tests/fuzz/fuzz_*.c; do
            [ -f "$source" ] && [ "$SANITIZER" != tsan ] || continue
            name=$(basename "$source" .c)
            start fuzz "${name#fuzz_}" "$source" "$build/replay/${name#fuzz_}" "tests/fuzz/corpus/${name#fuzz_}"
        done
        ;;
    kernels)
        for source in tests/kernels/*.c; do
            [ -f "$source" ] && [ "$SANITIZER" != tsan ] || continue
            start kernels check-kernels "$source" "$build/check-kernels" --quick
            break
        done
        ;;
    run)
        for source in tests/run/*.py tests/run/*.sh; do
            [ -f "$source" ] || continue
            if [ "$SANITIZER" = tsan ] && ! marked "$source" threads; then continue; fi
            case $source in
            *.py) start run "$(basename "$source" .py)" "$source" "$PYTHON" "$source" ;;
            *.sh) start run "$(basename "$source" .sh)" "$source" bash "$source" ;;
            esac
        done
        ;;
    tools)
        for source in tests/tools/*.py; do
            [ -f "$source" ] && [ -z "$SANITIZER" ] || continue
            start tools "$(basename "$source" .py)" "$source" "$PYTHON" "$source"
        done
        ;;
    *)
        echo "run_tests.sh: no suite '$suite'" >&2
        exit 2
        ;;
    esac
done
wait

# ---- summing up ------------------------------------------------------------------------------------------------------

cat "$logs"/*.counts 2>/dev/null | awk '{ p += $1; f += $2; s += $3 } END {
    printf "%d passed, %d failed, %d skipped\n", p, f, s
    exit !(p + 0 > 0 && f + 0 == 0) }'
