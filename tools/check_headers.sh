#!/usr/bin/env bash
# Compiles every header alone: it must include what it needs, whatever came before it. The public header must also be
# strict C11, and C++ where a C++ compiler is there.
#
# usage: tools/check_headers.sh [ROOT]
set -u

cd "${1:-.}" || exit 1
CC=${CC:-cc}
flags="-std=c11 -D_GNU_SOURCE -fsyntax-only -Wall -Wextra -Werror -Wmissing-prototypes -Wstrict-prototypes"
n=0 failed=0

# alone WHAT COMMAND...: the command gets a file that only includes the header, on stdin.
alone() {
    n=$((n + 1))
    if ! printf '#include "%s"\n' "$1" | "${@:2}" -x "$language" -; then
        echo "$1: header: does not compile alone ($language)"
        failed=$((failed + 1))
    fi
}

language=c
while read -r header; do
    # shellcheck disable=SC2086  # flags are words
    alone "${header#src/}" "$CC" $flags -Iinclude -Isrc
done < <(find src -name '*.h' | sort)

alone baltoro.h "$CC" -std=c11 -pedantic-errors -Wall -Wextra -Werror -fsyntax-only -Iinclude
if command -v c++ >/dev/null; then
    language=c++
    alone baltoro.h c++ -std=c++11 -pedantic-errors -Wall -Wextra -Werror -fsyntax-only -Iinclude
else
    echo "NOT RUN  the public header as C++: no c++ here"
fi

echo "headers: $n compiled alone, $failed failed"
[ $failed -eq 0 ]
