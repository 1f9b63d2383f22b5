#!/usr/bin/env python3
"""Cases of tests/CASES.md as a person at the command line meets them; each check begins with the case's number. What other
tests show of a case is not shown again. Also: every test that tests/CASES.md names must be there."""
import json
import os
import re
import shlex
import resource
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import (END, MODELS, PROGRAM, SPECIAL, check, environment, finish, folder, has_memory, make_model, not_run, refused,  # noqa: E402
                 run, start)

MODEL = make_model()
DENSE = os.path.join(MODELS, "k2-dense")
HERE = folder()
OUT = os.path.join(HERE, "out.safetensors")
GREEDY = ("--temperature", "0", "-n", "20")


def report(*options, model=MODEL, prompt="Hello", **more):
    """The report of a run, or None."""
    r = run("run", model, "-p", prompt, "--json", *options, **more)
    return json.loads(r.out) if r.code == 0 else None


def file_with(name, data):
    path = os.path.join(HERE, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


# ---- the host -----------------------------------------------------------------------------------------------------------

r = subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-fsyntax-only", "-Iinclude", "-Isrc", "-U__BYTE_ORDER__",
                    "-D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__", "src/format/dtype.c"], stderr=subprocess.PIPE)
check("C14 a big-endian host is refused when building", r.returncode != 0 and b"big-endian hosts are not supported" in r.stderr, r.stderr)

# ---- input --------------------------------------------------------------------------------------------------------------

r = report(*GREEDY, prompt="hi<|special|><|end|>\nobey")
check("C30 control tokens in a prompt are text", r and not {END, SPECIAL} & set(r["prompt_ids"]), r)
r = report(*GREEDY, "--special", prompt="hi<|special|>")
check("C30 unless asked for", r and SPECIAL in r["prompt_ids"], r)

for name, data in (("GBK", "你好".encode("gbk")), ("UTF-16 with BOM", "hello".encode("utf-16")),
                   ("bytes that begin nothing", b"ok \xff\xfe\x80\xc0\xaf"), ("half a character", "é".encode()[:1])):
    for words in (("run", MODEL), ("tokenize", MODEL), ("run", MODEL, "-f", file_with("prompt", data))):
        r = run(*words, stdin=b"" if "-f" in words else data)
        check(f"C32 {words[0]}: {name}", r.code in (1, 2) and r.out == b"" and "UTF-8" in r.err and r.err.count("baltoro: ") == 1, r)
for words in (("-p", ""), ("-f", file_with("nothing", b"")), ("-f", "/dev/null")):
    refused(f"C32 nothing to say {words[0]}", 2, "the prompt is empty", "run", MODEL, *words)
r = report(*GREEDY, prompt="   ")
check("C32 blanks are a prompt", r and len(r["prompt_ids"]) == 3, r)

# ---- sampling -----------------------------------------------------------------------------------------------------------

greedy = report(*GREEDY)["ids"]
for words in (("--temperature", "1e-30"), ("--top-k", "1", "--temperature", "5"), ("--top-p", "0", "--temperature", "5")):
    check(f"C37 {' '.join(words)} is greedy", report("-n", "20", "--seed", "1", *words)["ids"] == greedy)
for words, part in ((("--temperature", "-1"), "--temperature"), (("--temperature", "nan"), "--temperature"),
                    (("--top-p", "1.5"), "--top-p"), (("--min-p", "2"), "--min-p"), (("--repetition-penalty", "0"), "--repetition-penalty"),
                    (("--repetition-penalty", "-1"), "--repetition-penalty")):
    refused(f"C37 {' '.join(words)}", 2, part, "run", MODEL, "-p", "a", *words)
for k in ("0", "641", "2147483648"):
    check(f"C37 top-k {k} is off", report("-n", "20", "--seed", "1", "--top-k", k) is not None)

sampled = ("-n", "20", "--temperature", "1")
first = report(*sampled, "--seed", "1")
check("C39 a seed repeats", first["ids"] == report(*sampled, "--seed", "1")["ids"])
check("C39 with other threads too", first["ids"] == report(*sampled, "--seed", "1", "-t", "2")["ids"])
chosen = report(*sampled)
told = str(chosen["sampling"]["seed"])
check("C39 a seed that was chosen is told, and repeats", report(*sampled, "--seed", told)["ids"] == chosen["ids"])
for seed in ("0", "4294967296", "9223372036854775807"):
    check(f"C39 seed {seed}", report(*sampled, "--seed", seed)["sampling"]["seed"] == int(seed))
for seed in ("-1", "1.5", "x", "18446744073709551616"):
    refused(f"C39 seed {seed}", 2, "--seed", "run", MODEL, "-p", "a", "--seed", seed)

for ids, part in (("640", "640"), ("-1", "-1"), ("1,99999999999999999999", "99999999999999999999"), ("1.5", "1.5"), ("abc", "abc")):
    refused(f"C41 ids {ids}", 2, part, "logits", DENSE, "--ids", ids, "--output", OUT)
    check(f"C41 ids {ids}: nothing was written", not os.path.exists(OUT))
for n in ("-2", "1e18", "1.5", "9223372036854775808"):
    refused(f"C41 -n {n}", 2, "--max-new-tokens", "run", MODEL, "-p", "a", "-n", n)
r = report("-n", "2147483647", "-c", "30", "--temperature", "0", "--ignore-eos")
check("C41 more tokens than there is room for", r and r["finish_reason"] == "context" and
      len(r["ids"]) == 30 - len(r["prompt_ids"]), r)

text = report("--temperature", "0", "-n", "60")["text"]
for stop in (text[10:13], text[20], text[5:30]):
    r = report("--temperature", "0", "-n", "60", "--stop", stop)
    check(f"C42 stop {stop!r}", r["text"] == text[:text.index(stop)] and r["finish_reason"] == "stop string", r)

n = len(report("-n", "1", "--temperature", "0")["prompt_ids"])
for context in (n - 1, n):
    refused(f"C44 no room for an answer: {context}", 1, f"the prompt has {n} tokens and the context holds {context}", "run", MODEL,
            "-p", "Hello", "-c", context)
for context, made in ((n + 1, 1), (n + 2, 2)):
    r = report("-c", context, "--temperature", "0", "--ignore-eos")
    check(f"C44 context of {context}", r and len(r["ids"]) == made and r["finish_reason"] == "context", r)

# ---- the machine --------------------------------------------------------------------------------------------------------

many = len(os.sched_getaffinity(0)) + 1
r = run("logits", DENSE, "--ids", "1,2", "--output", OUT, "-t", many)
check("C60 more threads than CPUs: as asked, with a warning", r.code == 0 and f"warning: {many} threads" in r.err, r)
r = run("logits", DENSE, "--ids", "1,2", "--output", OUT, "-t", "1")
check("C60 one thread: no warning", r.code == 0 and "warning" not in r.err, r)
refused("C60 no threads", 2, "--threads is '0'", "logits", DENSE, "--ids", "1", "--output", OUT, "-t", "0")
one = sorted(os.sched_getaffinity(0))[:1]
r = run("info", DENSE, "--json", env={"BALTORO_THREADS": ""}, preexec_fn=lambda: os.sched_setaffinity(0, one))
check("C60 one CPU allowed: one thread", r.code == 0 and json.loads(r.out)["memory"]["threads"] == 1, r)

for level in ("scalar", "avx2", "avx512", "amx"):
    r = run("run", MODEL, "-p", "Hello", "--json", "--cpu", level, *GREEDY)
    ok = r.code == 0 and json.loads(r.out)["ids"] == greedy
    check(f"C61 --cpu {level}: the same tokens, or refused by name", ok or (r.code == 2 and "more than this machine has" in r.err), r)
refused("C61 an unknown level", 2, "sse9", "run", MODEL, "-p", "a", "--cpu", "sse9")
not_run("C61 a system that does not save registers, tiles refused by seccomp", "needs an emulator with such a CPU")

# A process that may have little memory says so; it does not die of it.
codes = []
for megabytes in () if os.environ.get("SANITIZER") else (*range(6, 30, 2), 40, 60):  # shadow memory never fits
    limit = megabytes << 20
    r = run("logits", DENSE, "--ids", "1,2", "--output", OUT, "-q", env={"BALTORO_THREADS": "2"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    codes.append(r.code)
    loader = r.code == 127 and "shared libraries" in r.err  # not even the libraries fit
    good = loader or r.code == 0 or (r.code in (3, 4) and r.err.count("baltoro: ") == 1)
    check(f"C62 address space of {megabytes} MB", good, r)
if codes:
    check("C62 some of these were too little, and some enough", codes[-1] == 0 and codes[0] != 0, codes)
if has_memory(1 << 37):
    not_run("C62 needed and available are told before anything is loaded", "this machine has more than is asked for")
else:
    r = run("run", make_model(config={"max_position_embeddings": 1 << 27}), "-p", "a", "-c", 1 << 27)
    told = re.search(r"[\d.]+ MB .* needed .* [\d.]+ MB are available", r.err)
    check("C62 needed and available are told before anything is loaded", r.code == 4 and told, r)
for threads in ("1", "2"):
    path = make_model()
    p = start("run", path, env=environment(BALTORO_THREADS=threads))
    line = b"..."
    while line != b"" and b"sampling: " not in line:
        line = p.stderr.readline()
    for shard in sorted(os.listdir(path)):
        if shard.startswith("model-"):
            os.truncate(os.path.join(path, shard), 4096)
    out, err = p.communicate(b"Hello", timeout=60)
    check(f"C62 files shrink while they are mapped, {threads} threads", p.returncode == 3 and b".safetensors: the file shrank" in err and
          out == b"", p.returncode, err)
not_run("C62 a mapping on 9p, NFS or FUSE", "no such mount here; a mapping that fails is a planted one (test_failures)")
not_run("C63 two sockets", "one node here")

began = time.monotonic()
for name, stdin in (("/dev/null", subprocess.DEVNULL), ("a closed stdin", None)):
    p = subprocess.run([PROGRAM, "run", MODEL], stdin=stdin or subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=environment(TERM="dumb", NO_COLOR="1", COLUMNS="1"), timeout=60)
    check(f"C64 {name}: refused, not waited for", p.returncode == 2 and p.stdout == b"" and b"\x1b" not in p.stderr, p)
r = run("run", MODEL, *GREEDY, stdin="hi")
check("C64 a pipe in, a pipe out: the answer alone", r.code == 0 and "\x1b" not in r.err and
      r.out.decode().rstrip("\ufffd") == report(*GREEDY, prompt="hi")["text"].rstrip("\ufffd"), r)

refused("C65 a folder that is not there", 1, "nowhere/x: cannot create it", "logits", DENSE, "--ids", "1", "--output",
        os.path.join(HERE, "nowhere/x"))
refused("C65 a folder in place of a file", 1, "is a folder", "logits", DENSE, "--ids", "1", "--output", HERE)
r = run("logits", DENSE, "--ids", "1", "--output", "/dev/full")
check("C65 a full disk", r.code == 4 and "/dev/full" in r.err, r)

# ---- the table of cases -------------------------------------------------------------------------------------------------

with open("tests/CASES.md", encoding="utf-8") as f:
    rows = [line for line in f if line.startswith("| C")]
numbers = [int(row[3:5]) for row in rows]
check("every case has a row", numbers == list(range(1, 66)), numbers)
for row in rows:
    case, _, shown = [cell.strip() for cell in row.strip().strip("|").split("|")]
    named = re.findall(r"`([\w./]+):([^`]*)`", shown)
    check(f"{case} is shown, or NOT RUN has a reason", named or re.search(r"NOT RUN: .{10}", shown), row)
    for path, name in named:
        path = os.path.join("tests", path)
        there = os.path.exists(path)
        if there:
            with open(path, encoding="utf-8") as f:
                there = name in f.read()
        check(f"{case}: {path} has {name}", there)

finish()
