#!/usr/bin/env python3
"""bench from outside: the JSON's keys and figures, file names, comparisons, refusals; and what plot_bench.py draws."""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import MODELS, check, finish, folder, has_memory, make_model, not_run, refused, run, start  # noqa: E402

MOVA = os.path.join(MODELS, "k2-mova")
here = folder()

# ---- one run, two depths --------------------------------------------------------------------------------------------

r = run("bench", MOVA, "-p", "8", "-n", "3", "-r", "2", "-d", "20,0", "-t", "2", "--json", "-o", here)
check("it measures", r.code == 0, r)
d = json.loads(r.out) if r.code == 0 else {}
names = os.listdir(here)
check("the file is named by what was measured",
      len(names) == 1 and names[0][8:] == "_k2-mova_bf16_kvf32_ctx28_cpu.json" and names[0][:8].isdigit(), names)
stored = os.path.join(here, names[0])
check("the file holds what was printed", json.load(open(stored)) == d)
for key in ("version", "commit", "compiler", "date", "cpu", "level", "governor", "kernel", "huge_pages", "model",
            "weights"):
    check(f"{key} is said", isinstance(d.get(key), str) and d[key] != "")
for path in ("prefill.tokens_per_s", "prefill.peak_fraction", "decode.tokens_per_s", "decode.roof_fraction",
             "roof.read_gb_s", "roof.matrix_gflop_s", "roof.read_gb_s_one_thread", "roof.round_trip_ns", "ttft_ms"):
    value = d
    for key in path.split("."):
        value = value.get(key, {})
    check(f"{path} is a range", set(value) == {"min", "median", "max"} and
          0 < value["min"] <= value["median"] <= value["max"], value)
check("threads", d["threads"] == 2)
check("memory", d["private_bytes"] > 0 and d["plan_private_bytes"] > 0 and d["kv_bytes"] == 4 * 2 * 2 * 16 * 4 * 28)
check("loads", d["load"]["cold"]["total_ms"] > 0 and d["load"]["warm"]["total_ms"] > 0)
check("depths ascend", [x["depth"] for x in d["depths"]] == [0, 20])
check("the first depth is at the top", all(d[k] == d["depths"][0][k] for k in d["depths"][0]))
check("every step", all(len(x["steps_ms"]) == 6 for x in d["depths"]))
roofs = [x["roof"] for x in d["depths"]]
check("every limit", all(len(x["read_gb_s_series"]) == 5 and len(x["reads"]) == 12 for x in roofs))

# Bytes by the configuration: 96 wide, 8 heads and 2 KV heads of 16, BF16; layer 0 dense, layers 1 to 3 with 3 of 10
# experts of 32, 2 of 6 value experts, a shared one.
H, Q, KV, F, E = 96, 128, 32, 160, 32
expected = {
    "attention": 2 * (4 * (3 * Q * H + KV * H) + KV * H),
    "values": 2 * 3 * 2 * KV * H,
    "experts": 2 * 3 * 3 * 3 * E * H,
    "shared": 2 * 3 * 3 * E * H,
    "dense": 2 * 3 * F * H,
    "head": 2 * 640 * H,
}
for x in d["depths"]:
    counted = x["decode"]["bytes_per_token"]
    for key, n in expected.items():
        check(f"bytes of {key} at depth {x['depth']}", counted[key] == n, counted[key], n)
    check("bytes of keys and values", counted["kv"] == 4 * 2 * KV * 4 * (x["depth"] + 2), counted["kv"])
    check("the total", counted["total"] == sum(v for k, v in counted.items() if k != "total"))

# ---- pages, comparisons, pictures -----------------------------------------------------------------------------------

r = run("bench", MOVA, "-p", "8", "-n", "0", "-r", "1", "-t", "1", "--warm-only", "--compare", stored)
page = r.out.decode()
check("a page", r.code == 0 and "pp8" in page and "read roof" in page and "tg" not in page.split("Memory")[0], r)
check("a comparison", "Compared with" in page and "threads differs: 1 now, 2 then" in page and
      "prompt, tokens/s" in page, page)
check("cold is not measured with --warm-only", "cold cache" not in page)
SHORT = ("bench", MOVA, "-p", "2", "-n", "0", "-r", "1", "-t", "1", "--warm-only")
for quiet in ((), ("-q",)):
    r = run(*SHORT, "--json", "--compare", stored, "-d", "0,3", *quiet)
    c = json.loads(r.out).get("compare", {}) if r.code == 0 else {}
    check("with --json a comparison is in the object", c.get("file") == stored and
          {"key": "threads", "now": 1, "then": 2} in c["differences"] and [x["depth"] for x in c["depths"]] == [0, 3], r)
    check("and nowhere else", "Compared" not in r.err and r.err.count("\n") <= (not quiet), r)
    if c:
        rate, then = c["depths"][0]["prefill.tokens_per_s"], d["prefill"]["tokens_per_s"]["median"]
        check("a ratio", rate["then"] == then and abs(rate["ratio"] * then - rate["now"]) < 1e-6 * rate["now"], rate)
        check("a depth that was not measured then", c["depths"][1] == {"depth": 3}, c["depths"])
        check("nor what is not measured now", "decode.tokens_per_s" not in c["depths"][0], c["depths"])
r = run(*SHORT, "--json")
check("without --compare there is none", r.code == 0 and json.loads(r.out)["compare"] is None, r)
svg = os.path.join(here, "out.svg")
p = subprocess.run([os.environ.get("PYTHON", sys.executable), "tools/plot_bench.py", stored, stored, "-o", svg],
                   capture_output=True, text=True)
check("a picture", p.returncode == 0 and p.stdout == svg + "\n", p.stdout, p.stderr)
root = xml.etree.ElementTree.parse(svg).getroot()
lines = [x for x in root if x.tag.endswith("polyline")]
check("decode over depth, and steps", [len(x.get("points").split()) for x in lines] == [2, 2, 12, 12])
p = subprocess.run([sys.executable, "tools/plot_bench.py", os.path.join(MOVA, "config.json")], capture_output=True,
                   text=True)
check("no result, no picture", p.returncode != 0 and "no result of bench" in p.stderr, p.stderr)

# ---- where results go -----------------------------------------------------------------------------------------------

results = folder()
for _ in range(3):
    r = run(*SHORT, "-o", results)
    check("a result into a folder", r.code == 0, r)
names = sorted(os.listdir(results))
stem = names[0].replace(".json", "")
check("none replaces another", names == [stem + ".json", stem + "_2.json", stem + "_3.json"], names)
check("the name is said", f"written to {os.path.join(results, stem)}_3.json" in r.err, r)
both = folder()
words = [*SHORT, "-o", both]  # which of them names its file first does not matter
pair = [start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
ends = [(p.communicate(timeout=600)[1], p.returncode) for p in pair]
said = {x for err, _ in ends for x in err.split("\n") if x.startswith("written to ")}
check("two at once are two results", [code for _, code in ends] == [0, 0] and len(said) == 2 and
      len(os.listdir(both)) == 2 and all(json.load(open(os.path.join(both, n))) for n in os.listdir(both)), ends)
r = run(*SHORT, "-o", os.path.join(results, stem + ".json"))
check("a file that is named is replaced", r.code == 0 and len(os.listdir(results)) == 3, r)

own = make_model("k2-mova")
SHARD, link = "model-00001-of-00004.safetensors", os.path.join(here, "link.json")
os.symlink(os.path.join(own, SHARD), link)
kept = {n: open(os.path.join(own, n), "rb").read() for n in os.listdir(own)}
for path in (os.path.join(own, SHARD), os.path.join(own, "config.json"), link):
    refused("no result in place of the model", 2, "one of the model's own files", "bench", own, *SHORT[2:], "-o", path)
check("the model is whole", kept == {n: open(os.path.join(own, n), "rb").read() for n in os.listdir(own)})

# What can be known is said before the work: a run of this many would not end within the test.
LONG = ("bench", MOVA, "-n", "2000", "-p", "2000", "-r", "1000")
refused("no result to stdout", 2, "--output - is no file", *LONG, "-o", "-")
check("and no file of that name", not os.path.exists("-"))
refused("no such folder", 1, "cannot create it", *LONG, "-o", os.path.join(here, "no/x.json"))
refused("no such folder, named as one", 2, "no folder", *LONG, "-o", os.path.join(here, "no/"))
for text in ("{", "[]", "{}"):
    bad = os.path.join(here, "bad.json")
    open(bad, "w").write(text)
    refused("no result to compare with", 1, bad, *LONG, "--compare", bad)
# What cannot be known costs no result.
for words in ((), ("--json",)):
    r = run(*SHORT, *words, "-o", "/dev/full")
    check("a result that cannot be written is printed", r.code == 4 and "No space" in r.err and
          (b'"n_prompt": 2' if words else b"pp2") in r.out, r)
if os.geteuid() != 0:
    os.chmod(results, 0o500)
    refused("a folder that takes no file", 1, "Permission denied", *LONG, "-o", results)
    os.chmod(results, 0o700)
else:
    not_run("a folder that takes no file", "root may write anywhere")

# ---- refusals -------------------------------------------------------------------------------------------------------

refused("nothing to measure", 2, "leave nothing to measure", "bench", MOVA, "-p", "0", "-n", "0")
refused("no depth", 2, "--n-depth", "bench", MOVA, "-d", "")
refused("a depth that is no number", 2, "--n-depth: '0,x' is no list of depths", "bench", MOVA, "-d", "0,x")
refused("a context that the model lacks", 1, "--n-depth plus --n-prompt 5512 is more than the 4096 positions that this "
        "model knows", "bench", MOVA, "-d", "5000", "--warm-only")
refused("one that no model has", 2, "--n-depth plus --n-gen 200000064 is more than", "bench", MOVA, "-p", "0", "-d",
        "200000000", "--warm-only")
unbound = make_model("k2-mova", config={"max_position_embeddings": 1 << 27})
if has_memory(1 << 37):
    not_run("a depth that no memory has", "this machine has so much")
else:
    refused("one that no memory has", 4, "lower --n-depth plus --n-prompt (100000512)", "bench", unbound, "-d", "100000000",
            "--warm-only")
refused("no such model", 3, "no such file", "bench", os.path.join(here, "no/such/model"))
refused("nothing to compare with", 1, "cannot open", "bench", MOVA, "--compare", os.path.join(here, "none.json"))
refused("option of another command", 2, "belongs to", "bench", MOVA, "--prompt", "x")
broken = make_model(config={"hidden_size": 97})
refused("a model that is broken", 3, "hidden_size", "bench", broken, "--warm-only")

finish()
