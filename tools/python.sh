#!/usr/bin/env bash
# The python3 of this machine that has numpy and pip: several may be installed, and the first in PATH may lack them.
#
# usage: tools/python.sh ARGUMENTS...    runs it
#        tools/python.sh                 prints its path
#        tools/python.sh --find          the same, but makes no virtual environment: fails if no python3 has them
#
# $PYTHON is tried first, then python3, then the system's own; last, a virtual environment in build/venv gets numpy.
set -u

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$top/build/venv

for python in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3 "$venv/bin/python3"; do
    command -v "$python" >/dev/null && "$python" -c 'import numpy, pip' 2>/dev/null && break
    python=
done

if [ -z "$python" ] && [ "${1-}" != --find ]; then
    echo "python.sh: no python3 here has numpy and pip: making build/venv with them" >&2
    rm -rf "$venv"
    if ! { python3 -m venv "$venv" && "$venv/bin/python3" -m pip install --quiet numpy; } >&2; then
        echo "python.sh: that failed; install numpy for python3 (on Debian: apt-get install python3-numpy python3-pip)" >&2
        exit 1
    fi
    python=$venv/bin/python3
fi
[ -n "$python" ] || exit 1

case ${1-} in
'' | --find) command -v "$python" ;;
*) exec "$python" "$@" ;;
esac
