#!/usr/bin/env bash
# make install, as a packager and a user see it: everything in its place below DESTDIR, nothing left after uninstall; and a C
# program that finds the library through pkg-config, and runs with the shared and the static one.
#
# run_tests: release (it tests what is installed)
set -u

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
build=$(dirname "$BALTORO")
version=$(sed -n 's/^#define BT_VERSION "\(.*\)"/\1/p' include/baltoro.h)
passed=0 failed=0

# expect WHAT COMMAND...
expect() {
    if "${@:2}" >"$dir/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1"
        sed 's/^/    /' "$dir/log"
    fi
}

# Installs what is built, and does not build it again, whatever the flags were: other tests are using it.
run_make() {
    MAKEFLAGS='' make -o "$build/flags" -o "$build/sources" BUILD="$build" "$@"
}

prints() {
    [ "$("${@:2}")" = "$1" ]
}

# ---- a packager: DESTDIR ------------------------------------------------------------------------------------------------

cat >"$dir/expected" <<EOF
bin/baltoro
include/baltoro.h
lib/libbaltoro.a
lib/libbaltoro.so
lib/libbaltoro.so.${version%%.*}
lib/libbaltoro.so.$version
lib/pkgconfig/baltoro.pc
$(for f in models/demo-*/*; do echo "share/baltoro/${f#models/}"; done)
share/bash-completion/completions/baltoro
share/fish/vendor_completions.d/baltoro.fish
share/man/man1/baltoro.1
share/zsh/site-functions/_baltoro
EOF
files() {
    (cd "$dir/dest/opt/x" && find . ! -type d | cut -c3- | LC_ALL=C sort)
}
expect 'make install with DESTDIR' run_make install DESTDIR="$dir/dest" PREFIX=/opt/x
expect 'all files, and no other' diff "$dir/expected" <(files)
expect 'no file knows of DESTDIR' prints '' grep -rlI "$dir/dest" "$dir/dest"
expect 'make uninstall' run_make uninstall DESTDIR="$dir/dest" PREFIX=/opt/x
expect 'nothing is left' prints '' files
expect 'nor its own folders' prints '' find "$dir/dest" -name 'demo-*' -o -path '*/share/baltoro'

# ---- a user: PREFIX, with a space in it ---------------------------------------------------------------------------------

root="$dir/with space and it's 5% #1"
export PKG_CONFIG_PATH=$root/lib/pkgconfig
expect 'make install with PREFIX' run_make install PREFIX="$root"
expect 'the program runs' "$root/bin/baltoro" help
expect 'without a model it finds the demo model beside it' grep -q "$root/share/baltoro/demo-k2" \
    <("$root/bin/baltoro" info --json)
expect 'the man page is one' grep -qi '^\.TH baltoro 1' "$root/share/man/man1/baltoro.1"
expect 'bash completion' bash -n "$root/share/bash-completion/completions/baltoro"
expect 'zsh completion' grep -q '^#compdef baltoro' "$root/share/zsh/site-functions/_baltoro"
expect 'fish completion' grep -q '^complete .*baltoro' "$root/share/fish/vendor_completions.d/baltoro.fish"
expect 'pkg-config says the version' prints "$version" pkg-config --modversion baltoro

cat >"$dir/user.c" <<'C'
#include <baltoro.h>
#include <stdio.h>

int main(void)
{
    bt_model *model = NULL;
    bt_error error;
    if (bt_model_open("/nonexistent", NULL, &model, &error) == BT_OK || error.message[0] == '\0') return 1;
    puts(bt_version());
    return 0;
}
C
compile="cc -std=c11 -Wall -Wextra -Werror -pedantic $dir/user.c"
# What pkg-config says is for a shell to read.
expect 'builds with the shared library' eval "$compile -o $dir/shared $(pkg-config --cflags --libs baltoro)"
expect 'builds with the static library' eval "$compile -o $dir/static \
    $(pkg-config --cflags --libs --static baltoro | sed 's|-lbaltoro|"$root/lib/libbaltoro.a"|')"
expect 'runs with the shared library' prints "$version" env LD_LIBRARY_PATH="$root/lib" "$dir/shared"
expect 'runs with the static library alone' prints "$version" "$dir/static"
expect 'the shared library is asked for by its soname' grep -q "NEEDED.*libbaltoro.so.${version%%.*}\$" \
    <(objdump -p "$dir/shared")

touch "$dir/with" # what a path cut at its space would name
expect 'make uninstall with PREFIX' run_make uninstall PREFIX="$root"
expect 'nothing is left there, and what is beside it stays' prints "$dir/with" find "$dir/with" "$root" ! -type d

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
