"""What the makers of stored checkpoints share: expected logits, the comparison with what is stored, the command line."""
import filecmp
import os
import sys
import tempfile

import numpy as np

from checkpoint import read_safetensors, write_safetensors

STORED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data", "models")


def write_expected(path, model, ids_from, ids_to, seed, lengths, last=None):
    """ids.N, random ones of [ids_from, ids_to), and logits.N of every position, or of the `last` ones, for each length N.
    model() gives a fresh oracle."""
    rng = np.random.default_rng(seed + 1000)
    out = {}
    for n in lengths:
        ids = rng.integers(ids_from, ids_to, n)
        out[f"ids.{n}"] = ("I64", ids)
        out[f"logits.{n}"] = ("F32", model().logits(ids).astype(np.float32)[-(last or n):])
    write_safetensors(path, out)


def differences(made, stored):
    """Weights and config must be the same bytes; logits may differ by another BLAS's last bit."""
    if sorted(os.listdir(made)) != sorted(os.listdir(stored)):
        return ["other files"]
    faults = []
    for file in sorted(os.listdir(made)):
        a, b = os.path.join(made, file), os.path.join(stored, file)
        if not file.startswith("expected"):
            if not filecmp.cmp(a, b, shallow=False):
                faults.append(f"{file} differs")
            continue
        a, b = read_safetensors(a), read_safetensors(b)
        if list(a) != list(b) or any(np.abs(a[n][1] - b[n][1]).max() > 1e-5 for n in a):
            faults.append(f"{file} differs")
    return faults


def what_was_made(folder, seed, slack):
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    return f"seed {seed}, nearest choices {slack:.1f} margins apart, {size // 1000} kB"


def run(argv, usage, every, make):
    """A maker's command line: every or the named checkpoints, made in a folder or compared with the stored ones.
    make(folder, name) writes folder/name and says what it made. The exit status."""
    if len(argv) < 2 or argv[1] in ("-h", "--help") or not set(argv[2:]) <= set(every):
        print(usage, file=sys.stderr)
        print("names: " + " ".join(every), file=sys.stderr)
        return 2
    names = argv[2:] or every
    if argv[1] != "--check":
        for name in names:
            print(f"{name}: {make(argv[1], name)}", flush=True)
        return 0
    n_faults = 0
    with tempfile.TemporaryDirectory() as out:
        for name in names:
            make(out, name)
            faults = differences(os.path.join(out, name), os.path.join(STORED, name))
            n_faults += bool(faults)
            print(f"{name}: {'; '.join(faults) or 'as stored'}", flush=True)
    print(f"{len(names) - n_faults} passed, {n_faults} failed")
    return 1 if n_faults else 0
