#!/usr/bin/env bash
# Is every C file as clang-format would write it? Only version 14 is asked: versions disagree.
#
# usage: tools/check_format.sh [ROOT]        (to mend: clang-format-14 -i FILES)
set -u

cd "${1:-.}" || exit 1
for tool in clang-format-14 clang-format; do
    if command -v $tool >/dev/null && $tool --version | grep -q 'version 14\.'; then
        find src include tests \( -name '*.[ch]' -o -name '*.inc' \) -print0 | sort -z | xargs -0 $tool --dry-run -Werror --ferror-limit=3
        rc=$?
        [ $rc -eq 0 ] && echo "format: every C file is as clang-format 14 writes it"
        exit $rc
    fi
done
echo "NOT RUN  format: clang-format 14 is not here"
exit 77
