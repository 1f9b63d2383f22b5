#!/usr/bin/env bash
# Runs the acceptance program that lies beside the fixtures, outside of this repository, where it is there.
#
# usage: tools/run_acceptance.sh PROGRAM
#
# $BALTORO_FIXTURES is the folder of fixtures (../shared/fixtures). Closes with `N passed, N failed, N skipped`: one for
# each of the program's checks. What cannot run here is named NOT RUN and counted as skipped.
set -u

program=${1:?usage: tools/run_acceptance.sh PROGRAM}
fixtures=${BALTORO_FIXTURES:-../shared/fixtures}
acceptance=$fixtures/../acceptance.py
real=build/real/smollm2-135m-instruct
passed=0 failed=0 skipped=0
export BALTORO_NOW=2026-11-29T12:00:00 # the day on which the templates' expected texts were made

not_run() {
    echo "NOT RUN  acceptance $1: $2"
    skipped=$((skipped + 1))
}

while read -r check; do
    [ -n "$check" ] || continue
    if [ ! -f "$acceptance" ]; then
        not_run "$check" "$acceptance is not there"
        continue
    fi
    if [ "$check" = smollm2 ] && [ ! -f $real/config.json ]; then
        not_run "$check" "$real is not there; make real fetches it"
        continue
    fi
    # shellcheck disable=SC2086  # a check is a name and its options
    if python3 "$acceptance" "$program" $check --fixtures "$fixtures" </dev/null; then
        echo "ok       acceptance $check"
        passed=$((passed + 1))
    else
        echo "FAILED   acceptance $check"
        failed=$((failed + 1))
    fi
done <<'CHECKS'
models --prefix k2-
models --prefix k3-
models --prefix kimi-
tokenizers --prefix k2
tokenizers --prefix k3
tokenizers --prefix qwen3
tokenizers --prefix k3
jinja
smollm2
CHECKS

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
