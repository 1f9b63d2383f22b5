#!/usr/bin/env bash
# Static analysis of src/: gcc -fanalyzer, clang-tidy and cppcheck, each on every file. `make check` runs it.
#
# usage: tools/check_static.sh [FILE...]     all of src/ without arguments
#
# A finding is a fault, unless tools/static_exceptions.txt excuses that check in that file, with its reason; an excuse that
# excuses nothing is a fault too. A tool that is not here is NOT RUN. Checks that are left out for all files, and why:
#
#   gcc      use-of-uninitialized-value: gcc 12 loses track of structures that a function returns
#   clang    DeprecatedOrUnsafeBufferHandling wants the functions of C11's Annex K, which no C library here has;
#            easily-swappable-parameters, no-recursion (ours is bounded), no-int-to-ptr and narrowing-conversions (`c | 0x20`)
#            are matters of taste; implicit-widening and sizeof-expression do not know constants and arrays of pointers from
#            faults; macro-parentheses does not know initialisers; integer-division does not know sizeof a / sizeof *a
#   cppcheck incorrectLogicOperator: cppcheck 2.10 reads 0x1p63 as 0
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export FLAGS='-std=c11 -D_GNU_SOURCE -DBT_TEST_BUILD=1 -Iinclude -Isrc'
TIDY=$(tr -d ' \n' <<<'-*, clang-analyzer-*, -clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling, bugprone-*,
    -bugprone-easily-swappable-parameters, -bugprone-implicit-widening-of-multiplication-result,
    -bugprone-narrowing-conversions, -bugprone-sizeof-expression, -bugprone-macro-parentheses, -bugprone-integer-division,
    performance-*, -performance-no-int-to-ptr, portability-*, misc-*, -misc-no-recursion, readability-misleading-indentation,
    readability-redundant-*, readability-non-const-parameter')
export TIDY
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT

# What analysers must be told about the functions that report faults; not in the files that define them.
told() {
    case $1 in */base/error.c | */base/json.c) ;; *) echo '-include tools/analyse.h' ;; esac
}

# The instruction sets that the Makefile gives to a kernel file.
sets() {
    case $1 in
    */x86_avx512*) echo '-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl' ;;
    */x86_avx2*) echo '-mavx2 -mfma -mf16c' ;;
    esac
}

# shellcheck disable=SC2046,SC2086  # flags are words
run_gcc() {
    gcc $FLAGS -O1 $(told "$1") -fanalyzer -Wno-analyzer-use-of-uninitialized-value -c "$1" -o /dev/null 2>&1 |
        sed -nE -e 's/^(src[^:]*):([0-9]+):[0-9]+: (warning|error): (.*) \[-W([a-z-]+)\]$/\1 \5 \2 \4/p' \
            -e 's/^(src[^:]*):([0-9]+):[0-9]+: (fatal error|error): ([^[]*)$/\1 compile \2 \4/p'
}

# shellcheck disable=SC2046,SC2086
run_clang() {
    clang-tidy --quiet --checks="$TIDY" "$1" -- $FLAGS $(told "$1") $(sets "$1") 2>/dev/null |
        sed -nE 's|^/?([^: ]*/)?(src/[^:]*):([0-9]+):[0-9]+: (warning\|error): (.*) \[([A-Za-z0-9.,-]+)\]$|\2 \6 \3 \5|p'
}
export -f told sets run_gcc run_clang

run_cppcheck() {
    cppcheck --quiet --std=c11 --enable=warning,portability,performance --suppress=incorrectLogicOperator \
        --suppress=preprocessorErrorDirective \
        -j "$(nproc)" -D_GNU_SOURCE -DBT_TEST_BUILD=1 -D__linux__ -D__x86_64__ -D__BYTE_ORDER__=1 -D__ORDER_LITTLE_ENDIAN__=1 \
        -Iinclude -Isrc --template='{file} {id} {line} {message}' "$@" 2>&1 | sed -nE '/^src[^ ]* [A-Za-z]+ [0-9]+ /p'
}

[ $# -gt 0 ] || mapfile -t files < <(find src -name '*.c' ! -name 'neon*' | sort)
[ $# -eq 0 ] || files=("$@")
[ "$(uname -m)" = x86_64 ] || mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -v /x86_)
mapfile -t no_kernels < <(printf '%s\n' "${files[@]}" | grep -v /x86_)
n_run=0

if command -v gcc >/dev/null && gcc -fanalyzer -E -x c /dev/null >/dev/null 2>&1; then
    printf '%s\n' "${no_kernels[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_gcc "$1"' - {} >"$found/gcc"
    n_run=$((n_run + 1))
else
    echo 'NOT RUN  gcc -fanalyzer: this gcc has none'
fi
if command -v clang-tidy >/dev/null; then
    printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_clang "$1"' - {} >"$found/clang"
    n_run=$((n_run + 1))
else
    echo 'NOT RUN  clang-tidy: it is not here'
fi
if command -v cppcheck >/dev/null; then
    run_cppcheck "${no_kernels[@]}" >"$found/cppcheck"
    n_run=$((n_run + 1))
else
    echo 'NOT RUN  cppcheck: it is not here'
fi
[ $n_run -gt 0 ] || { echo 'NOT RUN  static analysis: no tool is here' && exit 77; }

# Lines `file check line message` of every tool, against lines `tool file check reason`.
awk -v all=$(($# == 0)) -v ran="$(cd "$found" && echo *)" '
    FILENAME ~ /exceptions/ {
        if ($0 ~ /^#/ || NF == 0) next
        if (NF < 4) { printf "tools/static_exceptions.txt:%d: no reason is given\n", FNR; n++ }
        if (index(" " ran " ", " " $1 " ")) excuse[$1 " " $2 " " $3] = FNR
        next
    }
    {
        tool = FILENAME
        sub(/.*\//, "", tool)
        key = tool " " $1 " " $2
        if (key in excuse) { used[key]++; next }
        if (seen[$0]++) next
        message = $0
        sub(/^[^ ]+ [^ ]+ [^ ]+ /, "", message)
        printf "%s:%s: %s [%s %s]\n", $1, $3, message, tool, $2
        n++
    }
    END {
        for (key in excuse) {
            n_excuses++
            if (!(key in used) && all) { printf "tools/static_exceptions.txt:%d: excuses nothing\n", excuse[key]; n++ }
        }
        printf "static analysis: %d findings, %d excuses (%s)\n", n, n_excuses, ran
        exit n > 0
    }' tools/static_exceptions.txt "$found"/*
