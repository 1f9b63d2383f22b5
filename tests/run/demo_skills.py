#!/usr/bin/env python3
"""What the demo models' cards say about their skills is what tools/demo/evaluate.py measures: every row, neither worse nor better;
no row is below its threshold; demo-k3 has at least nine tenths of demo-k2's figures. And a broken model fails.

run_tests: release (the transcripts of demo_models.py go through every build)
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools", "demo")]
import cli  # noqa: E402
from cli import check  # noqa: E402
from evaluate import THRESHOLDS  # noqa: E402

SLACK = 2  # answers in a row that another CPU's rounding may turn
SHARE = 0.9  # of demo-k2's figures, for demo-k3
N_BELOW = 6  # rows of a broken one, asked little (16 and 9 here); a sound one has none
MODELS = ["demo-k2", "demo-k3"]


def evaluate(folder, *more):
    return subprocess.run([sys.executable, "tools/demo/evaluate.py", folder, "--baltoro", cli.PROGRAM, *more], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=cli.environment())  # fmt: skip


def rows(pattern, text):
    return {skill: (int(n), float(share)) for skill, n, share in re.findall(pattern, text, re.M)}


def card(name):
    with open(f"models/{name}/README.md", encoding="utf-8") as f:
        return rows(r"^\| (.+?) \| (\d+) \| ([\d.]+) % \|$", f.read())


def test_card(name):
    r = evaluate(f"models/{name}", "--beyond")
    check(f"{name}: no skill is below its threshold", r.returncode == 0, r.stdout)
    measured, told = rows(r"^(\S.*?) +(\d+) +([\d.]+) %", r.stdout), card(name)
    check(f"{name}: the card has every skill", len(measured) > 10 and set(measured) == set(told), measured, told)
    for skill, (n, share) in measured.items():
        n_told, share_told = told.get(skill, (0, 0))
        check(f"{name}, {skill}: as the card says", n == n_told and abs(share - share_told) <= 100 * SLACK / n + 0.1, r.stdout)


def test_shares():
    ours, theirs = card("demo-k3"), card("demo-k2")
    low = [skill for skill in THRESHOLDS if ours[skill][1] < SHARE * theirs[skill][1]]
    check("demo-k3 has nine tenths of demo-k2's figures", not low, low)


def test_quick(name):
    r = evaluate(f"models/{name}", "--quick")
    check(f"{name}, asked little, passes", r.returncode == 0 and "BELOW" not in r.stdout, r.stdout)


def test_broken(name):
    """What one layer's attention adds, turned round: evaluation must see it."""
    folder = os.path.join(cli.folder(), name)
    shutil.copytree(f"models/{name}", folder)
    with open(os.path.join(folder, "model.safetensors"), "r+b") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        tensor = next(t for n, t in sorted(json.loads(f.read(size)).items()) if n.endswith("layers.2.self_attn.o_proj.weight"))
        begin, end = (8 + size + at for at in tensor["data_offsets"])
        f.seek(begin)
        values = bytearray(f.read(end - begin))
        values[1::2] = bytes(b ^ 0x80 for b in values[1::2])  # the signs of BF16
        f.seek(begin)
        f.write(values)
    r = evaluate(folder, "--quick")
    check(f"{name}, broken, fails", r.returncode == 1 and r.stdout.count("BELOW") > N_BELOW, r.stdout)


def main():
    for name in MODELS:
        test_card(name)
        test_quick(name)
        test_broken(name)
    test_shares()
    cli.finish()


main()
