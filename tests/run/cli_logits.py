#!/usr/bin/env python3
"""logits and verify from outside: the same bits however the ids arrive, outputs that are whole or absent, bad input.

run_tests: threads
"""
import array
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import (MODELS, PROGRAM, check, environment, finish, folder, make_model, not_run, read_safetensors, refused,  # noqa: E402
                 run, start, write_safetensors)

DENSE = os.path.join(MODELS, "k2-dense")
VOCAB = 640
HERE = folder()
OUT = os.path.join(HERE, "out.safetensors")
IDS = [0, 17, 300, 5, 639, 1, 2, 3, 4, 17, 17]
LIST = ",".join(map(str, IDS))


def write(name, data):
    path = os.path.join(HERE, name)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


def catches(pid, number):
    """Whether the process has a handler for this signal: from its first lines on."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        caught = next(int(line.split()[1], 16) for line in f if line.startswith("SigCgt:"))
    return bool(caught >> (number - 1) & 1)


def logits(*options, **more):
    """The tensor's bytes, or the failed run."""
    if os.path.exists(OUT):
        os.remove(OUT)
    r = run("logits", DENSE, "--output", OUT, *options, **more)
    if r.code != 0 or not os.path.exists(OUT):
        return r
    return read_safetensors(OUT)["logits"]


# ---- logits -------------------------------------------------------------------------------------------------------------

whole = logits("--ids", LIST)
check("dtype and shape", whole[:2] == ("F32", [len(IDS), VOCAB]) and len(whole[2]) == 4 * VOCAB * len(IDS), whole)
ways = {
    "blanks": ("--ids", LIST.replace(",", " ")),
    "chunk 1": ("--ids", LIST, "--chunk", "1"),
    "chunk 4": ("--ids", LIST, "--chunk", "4"),
    "chunk larger": ("--ids", LIST, "--chunk", "1000"),
    "batch 3": ("--ids", LIST, "--batch", "3"),
    "threads 2": ("--ids", LIST, "--threads", "2"),
    "threads 3": ("--ids", LIST, "-t", "3"),
    "file with commas": ("--ids-file", write("a", LIST)),
    "file with lines": ("--ids-file", write("b", LIST.replace(",", "\n") + "\n")),
    "file with an array": ("--ids-file", write("c", json.dumps(IDS))),
}
for name, options in ways.items():
    check(name, logits(*options) == whole, name)
check("stdin", logits("--ids-file", "-", stdin=LIST) == whole)
check("a prefix has the rows of the whole", logits("--ids", "0,17,300")[2] == whole[2][:12 * VOCAB])
r = run("logits", DENSE, "--ids", LIST, "--output", OUT, "--json")
check("json", r.code == 0 and json.loads(r.out)["tokens"] == len(IDS), r)
r = run("logits", DENSE, "--ids", LIST, "--output", OUT, "-q")
check("quiet", r.code == 0 and r.out == b"" and r.err == "", r)
check("nothing else in the folder", sorted(os.listdir(HERE)) == ["a", "b", "c", "out.safetensors"], os.listdir(HERE))
many = logits("--ids-file", write("many", " ".join(str(i * 7 % VOCAB) for i in range(1300))))
check("three steps", many[1] == [1300, VOCAB])

own = write("own-ids", LIST)
refused("output is the list of ids", 2, "the list of ids", "logits", DENSE, "--ids-file", own, "--output", own)
check("and it stands", open(own, "r").read() == LIST)

before = open(OUT, "rb").read()
refused("no ids at all", 2, "ids are missing", "logits", DENSE, "--output", OUT)
refused("two sources", 2, "exclude each other", "logits", DENSE, "--ids", "1", "--ids-file", "x", "--output", OUT)
refused("output to stdout", 2, "--output - is no file", "logits", DENSE, "--ids", "1", "--output", "-")
check("and no file of that name", not os.path.exists("-"))
refused("no output", 2, "--output is missing", "logits", DENSE, "--ids", "1")
refused("ids file beyond the vocabulary", 2, "junk: id 1 is 640", "logits", DENSE, "--ids-file", write("junk", "1 640"), "--output", OUT)
refused("ids on stdin", 2, "stdin: there are no ids", "logits", DENSE, "--ids-file", "-", "--output", OUT)
refused("empty list", 2, "--ids: there are no ids", "logits", DENSE, "--ids", "", "--output", OUT)
for text, part in (("640", "id 0 is 640"), ("1,-1", "id 1 is '-1'"), ("1,,2", "id 1 is ''"), ("x", "id 0 is 'x'"),
                   ("2147483648", "2147483647"), ("1.0", "id 0 is '1.0'"), ("[1,2", "--ids")):
    refused(f"ids {text}", 2, part, "logits", DENSE, "--ids", text, "--output", OUT)
for data in ("1;2", "[1,2]x", "[1,\"2\"]", b"\xff\xfe1\x00", "1 2 three", "[" * 200, b"1\x002"):
    refused(f"ids file {data[:8]!r}", 2, "junk", "logits", DENSE, "--ids-file", write("junk", data), "--output", OUT)
refused("empty ids file", 2, "junk: there are no ids", "logits", DENSE, "--ids-file", write("junk", ""), "--output", OUT)
refused("no such ids file", 1, "nowhere", "logits", DENSE, "--ids-file", os.path.join(HERE, "nowhere"), "--output", OUT)
refused("ids file is a folder", 1, "baltoro-cli", "logits", DENSE, "--ids-file", HERE, "--output", OUT)
refused("more ids than positions", 1, "the number of ids in --ids-file 4097 is more than the 4096 positions", "logits", DENSE,
        "--ids-file", write("long", "1 " * 4097), "--output", OUT)
refused("more of them on the command line", 1, "the number of --ids 4097 is more than the 4096", "logits", DENSE, "--ids",
        "1," * 4097, "--output", OUT)
refused("chunk 0", 2, "--chunk is '0'", "logits", DENSE, "--ids", "1", "--chunk", "0", "--output", OUT)
check("the old file stands", open(OUT, "rb").read() == before)
refused("no such folder", 1, "nowhere", "logits", DENSE, "--ids", "1", "--output", os.path.join(HERE, "nowhere", "x"))
refused("output is a folder", 1, "baltoro-cli", "logits", DENSE, "--ids", "1", "--output", HERE)

limited = f'ulimit -f 8; exec "$0" logits "{DENSE}" --ids-file "{HERE}/many" --output "{HERE}/limited.safetensors"'
for command in (limited, 'trap "" XFSZ; ' + limited):
    r = subprocess.run(["bash", "-c", command, PROGRAM], capture_output=True, env=environment())
    check("a file that may not grow", r.returncode == 4 and b"limited.safetensors" in r.stderr, r.returncode, r.stderr)
check("no half of it is left", not [f for f in os.listdir(HERE) if f.startswith("limited")], os.listdir(HERE))

# ---- interrupted ----------------------------------------------------------------------------------------------------------

interrupted = os.path.join(HERE, "interrupted")
p = start("logits", DENSE, "--ids-file", "-", "--output", interrupted)  # waits for its ids
p.stdin.write(b"1,2,3")
p.stdin.flush()
while not catches(p.pid, signal.SIGINT):
    time.sleep(0.01)
p.send_signal(signal.SIGINT)
_, err = p.communicate()
check("interrupted while reading", p.returncode == 130 and not os.path.exists(interrupted), p.returncode, err)


def stopped(n_ids, signals, hangup=signal.SIG_DFL):
    """Sends these while logits are written. The exit status, stderr, and what is left of the output."""
    kept = signal.signal(signal.SIGHUP, hangup)  # which the program inherits
    p = start("logits", DENSE, "--ids-file", write("whole", "1 " * n_ids), "--output", interrupted, "--chunk", "1", "--cpu", "scalar")
    signal.signal(signal.SIGHUP, kept)
    while not any(f.startswith("interrupted") or f.startswith(".interrupted") for f in os.listdir(HERE)) and p.poll() is None:
        pass  # until the output is begun
    for s in signals:
        p.send_signal(s)
    _, err = p.communicate()
    return p.returncode, err, [f for f in os.listdir(HERE) if "interrupted" in f]


# A shell and the system may both tell that the terminal is gone.
for signals in ([signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP], [signal.SIGHUP] * 2):
    code, err, left = stopped(4096, signals)
    check(f"{signals} while writing: nothing is left", (code == 130 and left == []) or (code == 0 and left), code, err, left)
    for name in left:
        os.remove(os.path.join(HERE, name))
code, err, left = stopped(300, [signal.SIGHUP], signal.SIG_IGN)
check("under nohup it goes on", code == 0 and left == ["interrupted"], code, err, left)

# ---- verify ---------------------------------------------------------------------------------------------------------------

EXPECTED = os.path.join(DENSE, "expected.safetensors")
for option in ((), ("--chunk", "1"), ("--threads", "1"), ("--json",)):
    r = run("verify", DENSE, EXPECTED, *option)
    check(f"verify {option}", r.code == 0 and b"passed" in r.out, r)
report = json.loads(run("verify", DENSE, EXPECTED, "--json").out)
labels = [x["label"] for x in report["entries"]]
check("labels in order", labels == sorted(labels, key=int) and report["passed"] is True, labels)
check("sums", report["all"]["rows"] == sum(x["rows"] for x in report["entries"]) and
      report["all"]["max_difference"] == max(x["max_difference"] for x in report["entries"]), report)
r = run("verify", DENSE, EXPECTED, "--tolerance", "1e-9")
check("past the tolerance", r.code == 1 and b"failed:" in r.out, r)
r = run("verify", os.path.join(MODELS, "k2-f32"), EXPECTED)
check("another model", r.code == 1, r)

good = read_safetensors(EXPECTED)
label = labels[-1]
ids, want = good["ids." + label], good["logits." + label]
rows = want[1][0]


def verify(name, tensors, *options):
    path = os.path.join(HERE, "expected.safetensors")
    write_safetensors(path, tensors)
    return run("verify", DENSE, path, "--json", *options)


def changed(at, value):
    """The good entry with one logit set."""
    a = array.array("f")
    a.frombytes(want[2])
    a[at] = value(a) if callable(value) else value
    return {"ids.1": ids, "logits.1": ("F32", want[1], a.tobytes())}


r = verify("one", {"ids.a": ids, "logits.a": want})
check("any label", r.code == 0 and json.loads(r.out)["entries"][0]["label"] == "a", r)
last = ("F32", [1, VOCAB], want[2][-4 * VOCAB:])
r = verify("last row", {"ids.1": ids, "logits.1": last})
check("the last row only", r.code == 0 and json.loads(r.out)["all"]["rows"] == 1, r)
first = ("F32", [1, VOCAB], want[2][:4 * VOCAB])
check("the first row in the last one's place", verify("first", {"ids.1": ids, "logits.1": first}).code == 1 or rows == 1)
for value, field in ((float("nan"), "not_finite"), (float("inf"), "not_finite"), (-float("inf"), "not_finite")):
    r = verify("nan", changed(5, value), "--tolerance", "1e9")
    check(f"{value} fails", r.code == 1 and json.loads(r.out)["all"][field] == 1, r)
    check(f"{value} has no difference", [json.loads(r.out)["all"][x] for x in ("max_difference", "kl")] == [None, None], r)
r = verify("off", changed(5, lambda a: a[5] + 0.01))
check("one logit off", r.code == 1 and abs(json.loads(r.out)["all"]["max_difference"] - 0.01) < 1e-4, r)
r = verify("top", changed(5, 1000.0), "--tolerance", "1e9")
top = json.loads(r.out)["all"]
check("another top token fails, whatever the tolerance", r.code == 1 and top["same_top"] == top["rows"] - 1, r)

I64 = struct.pack
MALFORMED = {
    "no tensors": ({}, "ids.N"),
    "ids without logits": ({"ids.1": ids}, "ids.1 has no logits.1"),
    "logits without ids": ({"logits.1": want}, "no tensor ids.N"),
    "one pair and a half": ({"ids.1": ids, "logits.1": want, "logits.2": want}, "2 tensors logits.N for 1"),
    "another tensor": ({"ids.1": ids, "logits.1": want, "x": last}, "x is neither"),
    "ids I32": ({"ids.1": ("I32", [2], b"\0" * 8), "logits.1": last}, "has dtype I32, expected I64"),
    "ids 2-D": ({"ids.1": ("I64", [1, 1], b"\0" * 8), "logits.1": last}, "ids.1 must be a list"),
    "no ids": ({"ids.1": ("I64", [0], b""), "logits.1": last}, "ids.1 must be a list"),
    "id too large": ({"ids.1": ("I64", [1], I64("<q", 640)), "logits.1": last}, "ids.1[0] is 640"),
    "id negative": ({"ids.1": ("I64", [1], I64("<q", -1)), "logits.1": last}, "ids.1[0] is -1"),
    "id huge": ({"ids.1": ("I64", [1], I64("<q", 1 << 40)), "logits.1": last}, "ids.1[0] is 1099511627776"),
    "logits F16": ({"ids.1": ids, "logits.1": ("F16", [1, VOCAB], b"\0" * 2 * VOCAB)}, "has dtype F16, expected F32"),
    "logits 1-D": ({"ids.1": ids, "logits.1": ("F32", [VOCAB], last[2])}, "has 1 dimensions"),
    "logits too narrow": ({"ids.1": ids, "logits.1": ("F32", [1, 639], last[2][:-4])}, "rows of 639 logits"),
    "no rows": ({"ids.1": ids, "logits.1": ("F32", [0, VOCAB], b"")}, "has 0 rows"),
    "more ids than positions": ({"ids.1": ("I64", [4097], b"\0" * 8 * 4097), "logits.1": last},
                                "the number of ids in EXPECTED.safetensors 4097 is more than the 4096"),
    "more rows than ids": ({"ids.1": ("I64", [1], b"\0" * 8), "logits.1": ("F32", [2, VOCAB], last[2] * 2)}, "has 2 rows for 1"),
}
for name, (tensors, part) in MALFORMED.items():
    path = os.path.join(HERE, "malformed.safetensors")
    write_safetensors(path, tensors)
    refused(f"expected file: {name}", 1, part, "verify", DENSE, path)
refused("no expected file", 1, "nowhere", "verify", DENSE, os.path.join(HERE, "nowhere"))
for data in (b"", b"junk", b"\xff" * 16, struct.pack("<Q", 1 << 60) + b"{}"):
    refused(f"expected file of {len(data)} bytes", 1, "junk", "verify", DENSE, write("junk", data))
refused("tolerance", 2, "--tolerance is 'nan'", "verify", DENSE, EXPECTED, "--tolerance", "nan")

# ---- models that cannot be read ----------------------------------------------------------------------------------------------

broken = make_model(with_tokenizer=False)
os.remove(os.path.join(broken, "model-00002-of-00004.safetensors"))
refused("a shard that is missing", 3, "model-00002", "verify", broken, EXPECTED)
broken = make_model(with_tokenizer=False)
shard = os.path.join(broken, "model-00003-of-00004.safetensors")
os.truncate(shard, os.path.getsize(shard) - 1)
refused("a shard that is cut", 3, "model-00003", "verify", broken, EXPECTED)
if os.geteuid() == 0:
    not_run("a shard that may not be read", "root may read everything")
else:
    closed = make_model(with_tokenizer=False)
    os.chmod(os.path.join(closed, os.path.basename(shard)), 0)
    refused("a shard that may not be read", 3, "model-00003", "verify", closed, EXPECTED)
os.remove(os.path.join(broken, "config.json"))
refused("no config.json", 3, "config.json", "verify", broken, EXPECTED)
refused("an empty folder", 3, "config.json", "verify", folder(), EXPECTED)
shutil.rmtree(broken)

finish()
