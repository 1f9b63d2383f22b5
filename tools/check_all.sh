#!/usr/bin/env bash
# What `make check` runs after a build: every rule that a program can check, and builds in which a warning is an error.
#
# usage: tools/check_all.sh BUILD
#
# Closes with `N passed, N failed, N skipped`. What cannot run here is named NOT RUN and counted as skipped.
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=${1:?usage: tools/check_all.sh BUILD}
passed=0 failed=0 skipped=0

# check NAME COMMAND...: exit status 77 means that it could not run. Its last line says what it looked at.
check() {
    local name=$1 start=$SECONDS output rc
    shift
    output=$("$@" 2>&1 </dev/null)
    rc=$?
    case $rc in
    0)
        passed=$((passed + 1))
        echo "ok       $(tail -n 1 <<<"$output") ($((SECONDS - start)) s)"
        grep 'NOT RUN' <<<"$output"
        ;;
    77)
        skipped=$((skipped + 1))
        tail -n 1 <<<"$output"
        ;;
    *)
        failed=$((failed + 1))
        echo "FAILED   $name"
        sed 's/^/    /' <<<"$output"
        ;;
    esac
}

# Everything, tests too, with warnings as errors.
strict_build() {
    if ! command -v "$1" >/dev/null; then
        echo "NOT RUN  build with $1: it is not here (tools/install_deps.sh clang installs it)"
        return 77
    fi
    # A make of its own: not the jobs and flags of the one that may have started this script.
    MAKEFLAGS='' make -j"$(nproc)" CC="$1" BUILD="$build/check-$1" WERROR=-Werror DEFS=-DBT_TEST_BUILD=1 all programs || return 1
    echo "build: no warning with $("$1" --version | head -n 1)"
}

shell_check() {
    if ! command -v shellcheck >/dev/null; then
        echo "NOT RUN  shell: shellcheck is not here"
        return 77
    fi
    shellcheck --severity=warning tools/*.sh tests/run/*.sh .ci/run && echo "shell: shellcheck has nothing to say"
}

check 'include law' python3 tools/check_layers.py
check style python3 tools/check_style.py
check symbols python3 tools/check_symbols.py "$build"
check headers tools/check_headers.sh
check format tools/check_format.sh
check shell shell_check
check 'build with gcc' strict_build gcc
check 'build with clang' strict_build clang
check 'static analysis' tools/check_static.sh

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
