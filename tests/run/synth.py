#!/usr/bin/env python3
"""synth from outside: files that other programs can read, refusals, an interrupt that leaves nothing."""
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import PROGRAM, check, environment, finish, folder, not_run, refused, run, start  # noqa: E402

here = folder()


def files(path):
    return {n: hashlib.sha256(open(os.path.join(path, n), "rb").read()).hexdigest() for n in os.listdir(path)}


def header(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        return size, json.loads(f.read(size))


# ---- what is written ------------------------------------------------------------------------------------------------

def check_files(name, out, report):
    """Headers, index and sizes of a checkpoint agree; returns where each tensor is, and the headers' entries."""
    index = json.load(open(os.path.join(out, "model.safetensors.index.json")))
    found, entries, total, starts = {}, {}, 0, []
    for shard in sorted(set(index["weight_map"].values())):
        size, tensors = header(os.path.join(out, shard))
        tensors.pop("__metadata__")
        starts.append(8 + size)
        ends = sorted(t["data_offsets"] for t in tensors.values())
        total += ends[-1][1]
        found.update({t: shard for t in tensors})
        entries.update(tensors)
        check(f"{name}: {shard} has no holes", all(a[1] == b[0] for a, b in zip(ends, ends[1:])) and ends[0][0] == 0)
        check(f"{name}: {shard} ends where its tensors do",
              os.path.getsize(os.path.join(out, shard)) == 8 + size + ends[-1][1])
    check(f"{name}: data starts at multiples of 64", all(s % 64 == 0 for s in starts), starts)
    check(f"{name}: the index fits", found == index["weight_map"] and total == index["metadata"]["total_size"])
    check(f"{name}: as many shards and tensors as told", (len(starts), len(found)) == (report["shards"],
                                                                                    report["tensors"]))
    return found, entries


for preset, dtype in (("k2-tiny", "bf16"), ("k2-tiny", "fp8"), ("k2-mova-tiny", "bf16"), ("k2-mova-tiny", "fp8")):
    name = f"{preset} {dtype}"
    out = os.path.join(here, name.replace(" ", "-"))
    r = run("synth", out, "--preset", preset, "--dtype", dtype, "--json")
    if not check(name, r.code == 0 and r.err.count("\n") == 1, r):
        continue
    report = json.loads(r.out)
    config = json.load(open(os.path.join(out, "config.json")))
    found, _ = check_files(name, out, report)
    check(f"{name}: a shard for each layer", config["num_hidden_layers"] == report["shards"])
    names = [t for t in found if t.endswith(("_scale", "_scale_inv"))]
    kinds = {"bf16": set(), "fp8": {"_scale"} if preset == "k2-tiny" else {"_scale_inv"}}[dtype]
    check(f"{name}: scales", {"_scale" + t.rsplit("_scale", 1)[1] for t in names} == kinds, names)
    if dtype == "fp8" and preset == "k2-mova-tiny":
        ignored = config["quantization_config"]["ignored_layers"]
        check(f"{name}: experts alone are FP8", all(".mlp.experts." in t for t in names) and "lm_head" in ignored and
              "model.layers.1.mlp.gate" in ignored and not any(".mlp.experts." in i for i in ignored), ignored)
    generation = json.load(open(os.path.join(out, "generation_config.json")))
    check(f"{name}: generation_config", generation["eos_token_id"] == [1, 621] and generation["temperature"] == 1.0)
    r = run("run", out, "-p", "The capital of France is", "-n", "4", "--temperature", "0", "--json")
    check(f"{name}: it runs", r.code == 0 and len(json.loads(r.out)["ids"]) <= 4, r)

for preset, prefix, gate in (("k3-tiny", "language_model.", "g_proj"), ("k3-small", "language_model.", "g_proj"),
                             ("kimi-linear-tiny", "", "g_b_proj")):
    out = os.path.join(here, preset)
    r = run("synth", out, "--preset", preset, "--json")
    if not check(preset, r.code == 0, r):
        continue
    report = json.loads(r.out)
    config = json.load(open(os.path.join(out, "config.json")))
    text = config.get("text_config", config)
    found, entries = check_files(preset, out, report)
    check(f"{preset}: a shard for each layer and one for the rest", report["shards"] == text["num_hidden_layers"] + 1)
    first = f"{prefix}model.layers.0.self_attn."
    taps, gain = entries[first + "q_conv1d.weight"], entries[first + "A_log"]
    channels = text["linear_attn_config"]["num_heads"] * text["linear_attn_config"]["head_dim"]
    check(f"{preset}: taps", taps["shape"] == [channels, 1, 4], taps)
    check(f"{preset}: A_log is F32, one a head", gain["dtype"] == "F32" and
          gain["shape"] == ([1, 1, 4, 1] if prefix == "" else [text["linear_attn_config"]["num_heads"]]), gain)
    check(f"{preset}: its output gate", f"{first}{gate}.weight" in found)
    check(f"{preset}: a seed of its own", report["seed"] == {"k3-tiny": 6, "k3-small": 1}.get(preset, 0), report)
    if prefix:
        check(f"{preset}: no end token", "eos_token_id" not in config and "eos_token_id" not in text and
              not os.path.exists(os.path.join(out, "generation_config.json")) and text["routed_scaling_factor"] == 1)
    logits = os.path.join(here, "logits.safetensors")
    r = run("logits", out, "--ids", "1,2,3", "--output", logits)
    check(f"{preset}: it runs", r.code == 0, r)
    os.remove(logits)

base = ("--preset", "k2-mova-tiny", "--experts", "8")
a, b, c = (os.path.join(here, x) for x in "abc")
check("one thread", run("synth", a, *base, "-t", "1").code == 0)
check("three threads", run("synth", b, *base, "-t", "3").code == 0)
check("another seed", run("synth", c, *base, "--seed", "1").code == 0)
check("the same bytes from any number of threads", files(a) == files(b))
check("another seed gives other weights", files(a) != files(c))
config = json.load(open(os.path.join(a, "config.json")))
check("experts", config["num_experts"] == 8 and config["mova_num_experts"] == 6)

# ---- refusals -------------------------------------------------------------------------------------------------------

before = sorted(os.listdir(here))
refused("no folder", 2, "OUT is missing", "synth", "--preset", "k2-tiny")
refused("no preset", 2, "--preset is missing", "synth", os.path.join(here, "x"))
refused("unknown preset", 2, "must be one of", "synth", os.path.join(here, "x"), "--preset", "k9")
refused("it exists", 1, "exists already", "synth", a, "--preset", "k2-tiny")
refused("no such parent", 1, f"{here}/no: no such folder; make it first", "synth", os.path.join(here, "no", "x"), "--preset",
        "k2-tiny")
refused("no experts there", 2, "no experts", "synth", os.path.join(here, "x"), "--preset", "k2-tiny", "--experts", "8")
refused("no FP8 of Kimi", 2, "no FP8 release", "synth", os.path.join(here, "x"), "--preset", "k3-tiny", "--dtype", "fp8")
refused("too few experts", 2, "each token goes to 8", "synth", os.path.join(here, "x"), "--preset", "k2-mova-36b",
        "--experts", "4")
refused("more experts than there are", 2, "10 experts", "synth", os.path.join(here, "x"), "--preset", "k2-mova-tiny",
        "--experts", "11")
for preset, n in (("k2-tiny", 4), ("k3-tiny", 8)):
    refused("more layers than there are", 2, f"{n} layers", "synth", os.path.join(here, "x"), "--preset", preset, "--layers",
            n + 1)
refused("no layers", 2, "whole number from 1", "synth", os.path.join(here, "x"), "--preset", "k2-tiny", "--layers", "0")
refused("a dtype of run", 2, "must be one of: bf16 fp8", "synth", os.path.join(here, "x"), "--preset", "k2-tiny",
        "--dtype", "f32")
# Of the file system of /proc nothing is ever free.
refused("too large for the disk", 4, "69.6 GB are needed but the disk has 0 B free: fewer --layers need less", "synth",
        "/proc/x", "--preset", "k2-32b")
r = run("synth", "/proc/x", "--preset", "k2-tiny", "--layers", "1")
check("in a unit that fits, without advice that cannot help", r.code == 4 and " MB are needed but the disk has 0 B free\n" in
      r.err, r)
check("refusals leave nothing", sorted(os.listdir(here)) == before, os.listdir(here))

# ---- interrupted: wait until it writes, then stop it ----------------------------------------------------------------

for number in (signal.SIGINT, signal.SIGHUP):
    kept = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which the program inherits: not that of nohup
    p = start("synth", os.path.join(here, "stopped"), "--preset", "k2-0.9b", "--layers", "8")
    signal.signal(signal.SIGHUP, kept)
    deadline, partial = time.monotonic() + 60, []
    while time.monotonic() < deadline and p.poll() is None and not partial:
        partial = [n for n in os.listdir(here) if n.startswith("stopped.partial-") and
                   any(x.startswith("model-") for x in os.listdir(os.path.join(here, n)))]
    early = [n for n in partial if os.path.exists(os.path.join(here, n, "config.json"))]
    shards = [x for n in partial for x in os.listdir(os.path.join(here, n)) if x.startswith("model-")]
    p.send_signal(number)
    out, err = p.communicate()
    if p.returncode == 0 and os.path.exists(os.path.join(here, "stopped")):
        not_run(f"{number}: interrupted", "this machine stood still until all was written")
        shutil.rmtree(os.path.join(here, "stopped"))
        continue
    check("it is built under another name", bool(partial), os.listdir(here))
    check("config.json comes last", not early or f"of-{len(shards):05}." in shards[0], shards)
    check(f"{number}: interrupted", p.returncode == 130 and b"was not written" in err, p.returncode, err)
    check(f"{number} leaves nothing", sorted(os.listdir(here)) == before, os.listdir(here))

limited = ["bash", "-c", 'ulimit -f 256; exec "$0" synth "$1" --preset k2-mova-tiny', PROGRAM, os.path.join(here, "limited")]
r = subprocess.run(limited, capture_output=True, env=environment())
check("a file that may not grow", r.returncode == 4 and b"File too large" in r.stderr, r.returncode, r.stderr)
check("no half of it is left", sorted(os.listdir(here)) == before, os.listdir(here))

finish()
