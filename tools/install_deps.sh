#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks. `make` runs it before anything else.
#
# usage: tools/install_deps.sh [build|test|clang]
#
#   build   compiler and libraries: what the program needs
#   test    that, and what the tests and `make real` need (the default)
#   clang   that, and what `make fuzz` and the clang part of `make check` need
#
# Every need is tested by trying it, not by asking for a package, so any system that has the things passes, at once and
# without a word. Only what is missing is installed, on systems with apt-get (Debian, Ubuntu), as root or through sudo;
# elsewhere the script says what to install and fails. It changes nothing else.
set -u

# need | Debian package | how to see that it is there
NEEDS_BUILD='
a C compiler          | gcc             | command -v ${CC:-cc}
the C headers         | libc6-dev       | echo "#include <stdio.h>" | ${CC:-cc} -E -
ar                    | binutils        | command -v ar
make                  | make            | command -v make
pkg-config            | pkg-config      | command -v pkg-config
PCRE2 (8 bit)         | libpcre2-dev    | pkg-config --exists libpcre2-8
utf8proc              | libutf8proc-dev | pkg-config --exists libutf8proc
jansson               | libjansson-dev  | pkg-config --exists "jansson >= 2.11"
libedit               | libedit-dev     | pkg-config --exists "libedit >= 3.1"
'
NEEDS_TEST='
cmocka                | libcmocka-dev   | pkg-config --exists "cmocka >= 1.1"
python3               | python3         | command -v python3
pip                   | python3-pip     | python3 -m pip --version
venv                  | python3-venv    | python3 -c "import venv, ensurepip"
numpy                 | python3-numpy   | tools/python.sh --find
'
NEEDS_CLANG='
clang                 | clang           | command -v clang
its sanitizers        | libclang-rt-dev | echo "int main(void){return 0;}" | clang -fsanitize=address -x c -o /dev/null -
'

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# Prints "need|package" for each need that is not met.
missing() {
    local need package test
    while IFS='|' read -r need package test; do
        [ -n "$need" ] || continue
        read -r need <<<"$need"
        read -r package <<<"$package"
        (eval "$test") >/dev/null 2>&1 </dev/null || echo "$need|$package"
    done <<<"$1"
}

say() {
    echo "install_deps.sh: $*" >&2
}

names() {
    cut -d'|' -f"$1" <<<"$2" | paste -sd"$3"
}

case ${1:-test} in
build) needs=$NEEDS_BUILD ;;
test) needs=$NEEDS_BUILD$NEEDS_TEST ;;
clang) needs=$NEEDS_BUILD$NEEDS_TEST$NEEDS_CLANG ;;
*)
    say "unknown argument '$1'; usage: tools/install_deps.sh [build|test|clang]"
    exit 2
    ;;
esac

lacking=$(missing "$needs")
[ -n "$lacking" ] || exit 0
packages=$(names 2 "$lacking" ' ')

if ! command -v apt-get >/dev/null; then
    say "missing: $(names 1 "$lacking" ,)"
    say "install them with this system's package manager, then run make again (on Debian they are: $packages)"
    exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        say "missing: $(names 1 "$lacking" ,); as root, run: apt-get install $packages"
        exit 1
    fi
    as_root=(sudo)
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

say "installing $packages"
log=$(mktemp)
# shellcheck disable=SC2086  # package names are words
if ! { apt update && apt install -y --no-install-recommends $packages; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    say "apt-get could not install them: see above, then run: apt-get install $packages"
    exit 1
fi
rm -f "$log"

lacking=$(missing "$needs")
if [ -n "$lacking" ]; then
    say "installed, and yet missing: $(names 1 "$lacking" ,)"
    exit 1
fi
