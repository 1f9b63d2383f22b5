#!/usr/bin/env python3
"""run from outside: prompts, budgets, stops, defaults and their sources, signals, a file that shrinks while it is mapped."""
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import (BOS, END, MODELS, PROGRAM, SPECIAL, byte_letters, check, environment, finish, folder, has_memory, library,  # noqa: E402
                 make_model, not_run, read_safetensors, refused, run, start, tokenizer, write_json, write_safetensors)

MODEL = make_model()
PROMPT = "Hello, world"
GREEDY = ("--temperature", "0", "--ignore-eos")


def report(*options, model=MODEL, prompt=PROMPT, **more):
    """The JSON report of a run, or None after a fault that was counted."""
    r = run("run", model, *(("-p", prompt) if prompt is not None else ()), "--json", *options, **more)
    if not check(f"run {options} ends well", r.code == 0 and r.out.count(b"\n") == 1, r):
        return None
    return json.loads(r.out)


# ---- the answer -----------------------------------------------------------------------------------------------------------

letters = {v: k for k, v in byte_letters().items()}
texts = {i: bytes(letters[c] for c in text) for text, i in tokenizer()["model"]["vocab"].items() if i not in (BOS, END)}
texts.update({BOS: b"", END: b"", SPECIAL: b""})
plain = run("run", MODEL, "-p", PROMPT, *GREEDY, "-n", "200")
full = report(*GREEDY, "-n", "200")
check("stream and report agree", plain.code == 0 and plain.out.decode() == full["text"], plain)
check("text of the ids", full["text"] == b"".join(texts[i] for i in full["ids"]).decode("utf-8", "replace"), full)
check("200 ids", len(full["ids"]) == 200 and full["finish_reason"] == "length", full["finish_reason"])
check("prompt ids", full["prompt_ids"][0] == 2 + ord("H") and len(full["prompt_ids"]) <= 12, full["prompt_ids"])
for word in ("model: ", "memory: ", "sampling: temperature 0", "prompt: ", "tokens/s", "first token after", "peak memory",
             "finished: length; seed "):
    check(f"stderr says '{word}'", word in plain.err, plain.err)
check("no colour, no status line in a pipe", "\x1b" not in plain.err and "\r" not in plain.err, plain.err)
quiet = run("run", MODEL, "-p", PROMPT, *GREEDY, "-n", "20", "-q")
check("quiet", quiet.code == 0 and quiet.err == "" and full["text"].encode().startswith(quiet.out.rstrip("\ufffd".encode())), quiet)
for options in (("--threads", "2"), ("--threads", "3"), ("--batch", "3"), ("--cpu", "scalar")):
    r = report(*GREEDY, "-n", "30", *options)
    check(f"the same ids with {options}", r and r["ids"] == full["ids"][:30], r)

# ---- where the prompt comes from ----------------------------------------------------------------------------------------------

here = folder()
path = os.path.join(here, "prompt.txt")
for end in ("", "\n", "\r\n"):
    with open(path, "w", newline="") as f:
        f.write(PROMPT + end)
    r = report(*GREEDY, "-n", "5", "-f", path, prompt=None)
    check(f"file ending in {end!r}", r and r["prompt_ids"] == full["prompt_ids"], r)
    r = report(*GREEDY, "-n", "5", prompt=None, stdin=PROMPT + end)
    check(f"stdin ending in {end!r}", r and r["prompt_ids"] == full["prompt_ids"], r)
r = report(*GREEDY, "-n", "5", "-f", "-", prompt=None, stdin=PROMPT)
check("- is stdin", r and r["prompt_ids"] == full["prompt_ids"], r)
r = report(*GREEDY, "-n", "5", prompt=PROMPT + "\n")
check("-p is taken as it is", r and r["prompt_ids"] == full["prompt_ids"] + [12], r)
fifo = os.path.join(here, "fifo")
os.mkfifo(fifo)
p = start("run", MODEL, "-f", fifo, *GREEDY, "-n", "5", "--json", stdin=subprocess.DEVNULL)
time.sleep(0.5)  # the writer comes later
waits = p.poll() is None
if waits:
    with open(fifo, "w") as f:
        f.write(PROMPT)
out, err = p.communicate()
check("a FIFO is waited for", waits and p.returncode == 0 and json.loads(out)["prompt_ids"] == full["prompt_ids"], waits, err)
p = start("run", MODEL, "-f", fifo, stdin=subprocess.DEVNULL)
time.sleep(0.5)
p.send_signal(signal.SIGINT)
out, err = p.communicate()
check("and Ctrl-C ends the wait", p.returncode in (130, -signal.SIGINT) and out == b"", p.returncode, err)
refused("two prompts", 2, "exclude each other", "run", MODEL, "-p", "a", "-f", path)
refused("no such prompt file", 1, "nowhere", "run", MODEL, "-f", os.path.join(here, "nowhere"))
refused("prompt file is a folder", 1, "baltoro-cli", "run", MODEL, "-f", here)
for data, part in ((b"abc\xffdef", "byte 3 is 0xff"), (b"\xff\xfeh\0i\0", "UTF-16"), (b"\x80\xc0\xaf", "byte 0"),
                   (b"abc\xe6\x97", "byte 3")):
    refused(f"prompt {data[:4]}", 2, part, "run", MODEL, stdin=data)
refused("empty prompt", 2, "the prompt is empty, and this tokenizer has no token to begin a text with: give some text by -p, -f or stdin",
        "run", MODEL, "-p", "")
refused("empty stdin", 2, "the prompt is empty", "run", MODEL)
r = report(*GREEDY, "-n", "3", prompt=" ")
check("a blank is a prompt", r and r["prompt_ids"] == [34], r)
r = report(*GREEDY, "-n", "3", prompt="a<|end|>b", model=MODEL)
check("special tokens are text", r and END not in r["prompt_ids"], r)
r = report(*GREEDY, "-n", "3", "--special", prompt="a<|end|>b")
check("special tokens with --special", r and r["prompt_ids"] == [99, END, 100], r)

with_bos = make_model(bos=True)
r = run("run", with_bos, "-p", "Z", *GREEDY, "-n", "3", "--json")
check("BOS added once, and said", json.loads(r.out)["prompt_ids"] == [BOS, 92] and "BOS added" in r.err, r)
r = run("run", with_bos, "-p", "<|begin|>Z", "--special", *GREEDY, "-n", "3", "--json")
check("BOS not added twice", json.loads(r.out)["prompt_ids"] == [BOS, 92] and "begins with BOS" in r.err, r)
r = run("run", with_bos, "-p", "", *GREEDY, "-n", "3", "--json")
check("BOS alone is a prompt", r.code == 0 and json.loads(r.out)["prompt_ids"] == [BOS], r)
check("no BOS is said", "no BOS" in plain.err, plain.err)

# ---- how long -----------------------------------------------------------------------------------------------------------------

r = report(*GREEDY, "-n", "0")
check("no tokens wanted", r and r["ids"] == [] and r["text"] == "" and r["finish_reason"] == "length", r)
n = len(full["prompt_ids"])
for context, made, reason in ((n + 5, 5, "context"), (n + 1, 1, "context")):
    for options in ((), ("-n", "100")):
        r = report(*GREEDY, "--context", context, *options)
        check(f"context {context} {options}", r and len(r["ids"]) == made and r["finish_reason"] == reason and
              r["ids"] == full["ids"][:made], r)
r = report(*GREEDY, "--context", n + 5, "-n", "5")
check("length and context at once", r and r["finish_reason"] == "length", r)
for context in (n - 1, n):
    refused(f"no room for an answer: {context}", 1, f"the prompt has {n} tokens and the context holds {context}, which leaves no room",
            "run", MODEL, "-p", PROMPT, "-c", context)
r = report(*GREEDY, "--context", n, "-n", "0")
check("no room and no tokens wanted", r and r["ids"] == [] and r["finish_reason"] == "length", r)
refused("context beyond the model", 1, "--context 4097 is more than the 4096 positions", "run", MODEL, "-p", PROMPT, "-c", 4097)
r = report(*GREEDY, prompt="Z" * 4095)
check("the model's whole context", r and r["context"] == 4096 and len(r["ids"]) == 1 and r["finish_reason"] == "context", r)
if has_memory(1 << 37):
    not_run("more than memory", "this machine has so much")
else:
    refused("more than memory", 4, "available: lower --context (134217728) or --batch", "run",
            make_model(config={"max_position_embeddings": 1 << 27}), "-p", "a", "-c", 1 << 27)

# ---- how it ends -----------------------------------------------------------------------------------------------------------------

# The 30th id becomes an end token: as the model's word, then as the generation file's, then as neither.
ids, at = full["ids"], 29
while ids[at] in ids[:at]:
    at += 1
end_id = ids[at]


def ending(added, **files):
    """A model whose end ids are these, with end_id an added token or not."""
    path = make_model(**files)
    t = tokenizer()
    if added:
        text = next(k for k, v in t["model"]["vocab"].items() if v == end_id) if end_id != SPECIAL else "<|special|>"
        if all(a["id"] != end_id for a in t["added_tokens"]):
            t["added_tokens"].append({**t["added_tokens"][0], "id": end_id, "content": text, "special": False})
    write_json(os.path.join(path, "tokenizer.json"), t)
    return path


for name, files in (("config.json", {"config": {"eos_token_id": end_id}}), ("a list", {"config": {"eos_token_id": [1, end_id]}}),
                    ("generation_config.json", {"generation": {"eos_token_id": end_id}})):
    path = ending(True, **files)
    r = report("--temperature", "0", model=path)
    check(f"end token by {name}", r and r["ids"] == ids[:at] and r["finish_reason"] == "end token" and r["end_id"] == end_id, r)
r = report(*GREEDY, "-n", "200", model=path)
check("--ignore-eos goes on", r and r["ids"] == ids, r)
r = report("--temperature", "0", "-n", "200", model=path, env={"BALTORO_IGNORE_EOS": "1"})
check("BALTORO_IGNORE_EOS", r and r["ids"] == ids, r)
if end_id not in (BOS, END, SPECIAL):
    path = ending(False, config={"eos_token_id": end_id})
    r = run("run", path, "-p", PROMPT, "--temperature", "0", "-n", "100", "--json")
    check("an end id that is no added token is dropped, and said", json.loads(r.out)["ids"][:at + 1] == ids[:at + 1] and
          f"end ids dropped, since the tokenizer lists them as no added token: {end_id}" in r.err, r)

path = make_model()
t = tokenizer()
t["model"]["vocab"] = {k: v for k, v in t["model"]["vocab"].items() if v < 400}
t["model"]["merges"] = t["model"]["merges"][:400 - 258]
write_json(os.path.join(path, "tokenizer.json"), t)
r = run("run", path, "-p", "Z", *GREEDY, "-n", "200", "--json")
got = json.loads(r.out)
want = b"".join(texts[i] if i < 400 else b"" for i in got["ids"]).decode("utf-8", "replace")
check("ids that the tokenizer does not know have no text", r.code == 0 and len(got["ids"]) == 200 and max(got["ids"]) >= 400 and
      got["text"] == want and "of the tokens have no text" in r.err, r)

text = full["text"]
for begin, size in ((10, 1), (20, 5), (35, 9)):
    stop = text[begin:begin + size]
    if "\ufffd" in stop or "\0" in stop:
        continue
    r = run("run", MODEL, "-p", PROMPT, *GREEDY, "-n", "200", "--stop", "never to be seen", "--stop", stop)
    check(f"stop {stop!r}", r.code == 0 and r.out.decode() == text[:text.index(stop)] and "finished: stop string" in r.err, r)
    s = report(*GREEDY, "-n", "200", "--stop", stop)
    check(f"stop {stop!r} in the report", s and s["text"] == text[:text.index(stop)] and s["finish_reason"] == "stop string", s)
if text[0] not in "\ufffd\0":
    r = report(*GREEDY, "-n", "200", "--stop", text[0])
    check("a stop at the first token: its time counts", r and r["text"] == "" and r["output_seconds"] > 0
          and r["output_tokens_per_second"] > 0, r)
r = report(*GREEDY, "-n", "200", "--stop", PROMPT[-3:] + "never")
check("the prompt does not count, and what was held back comes out", r and r["text"] == text, r)
r = report(*GREEDY, "-n", "200", "--stop", text[-1] + "never")
check("what may begin a stop string comes out at the end", r and r["text"] == text, r)
cuts = [i for i, x in enumerate(ids) if len(texts[x]) == 1 and texts[x][0] >= 0xc2][:3]
check("there are unfinished characters to cut at", cuts, ids)
for cut in cuts:
    r = run("run", MODEL, "-p", PROMPT, *GREEDY, "-n", cut + 1)
    want = b"".join(texts[i] for i in ids[:cut + 1]).decode("utf-8", "replace")
    check(f"an unfinished character at the end, after {cut}", r.code == 0 and r.out.decode() == want, r)
refused("an empty stop", 2, "--stop is empty", "run", MODEL, "-p", "a", "--stop", "")

# ---- sampling ----------------------------------------------------------------------------------------------------------------------

SAMPLED = ("--ignore-eos", "-n", "60")
a, b, c = (report(*SAMPLED, "--seed", s) for s in ("1", "1", "2"))
check("a seed repeats", a["ids"] == b["ids"] != c["ids"])
d = report(*SAMPLED)
e = report(*SAMPLED, "--seed", d["sampling"]["seed"])
check("the seed that was chosen repeats the text", d["ids"] == e["ids"], d["sampling"])
check("another one each time", d["sampling"]["seed"] != report(*SAMPLED)["sampling"]["seed"])
for s in ("0", "4294967296", "9223372036854775807", "18446744073709551615"):
    check(f"seed {s}", report("-n", "1", "--seed", s)["sampling"]["seed"] == int(s))
for name, options in (("top-k 1", ("--top-k", "1")), ("top-p 0", ("--top-p", "0")), ("min-p 1", ("--min-p", "1")),
                      ("temperature 1e-30", ("--temp", "1e-30"))):
    check(f"{name} is greedy", report(*SAMPLED, "--seed", "3", *options)["ids"] == ids[:60])
r = report(*GREEDY, "-n", "60", "--repetition-penalty", "1000")
check("a penalty ends repetition", len(set(r["ids"])) == 60 and not set(r["ids"]) & set(r["prompt_ids"]), r["ids"])
generation = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "repetition_penalty": 1.1}
path = make_model(generation=generation)
r = run("run", path, "-p", "Z", "-n", "2", "--json")
got = json.loads(r.out)["sampling"]
check("defaults of the model", got == {**{k: v for k, v in generation.items() if k != "do_sample"}, "seed": got["seed"]}, got)
check("their source is said", r.err.count("(generation_config.json)") == 5, r.err)
r = run("run", path, "-p", "Z", "-n", "2", "--json", "--temp", "0.25", "--top-k", "0",
        env={"BALTORO_TOP_P": "0.5", "BALTORO_TOP_K": "9"})
got = json.loads(r.out)["sampling"]
got = [got[k] for k in ("temperature", "top_k", "top_p", "min_p")]
check("a flag, then the environment, then the model", got == [0.25, 0, 0.5, 0.01], got)
r = report("-n", "2", model=make_model(generation={"do_sample": False, "temperature": 0.7}))
check("do_sample false is greedy", r["sampling"]["temperature"] == 0, r["sampling"])
refused("defaults out of range", 3, "generation_config.json: top_p is 1.5", "run", make_model(generation={"top_p": 1.5}), "-p", "Z")
refused("no tokenizer", 3, "tokenizer.json", "run", os.path.join(MODELS, "k2-dense"), "-p", "Z")

# ---- streams and signals --------------------------------------------------------------------------------------------------------------

r, w = os.pipe()
fcntl.fcntl(w, 1031, 4096)  # F_SETPIPE_SZ: the whole text does not fit
p = start("run", MODEL, "-p", "Hello", "--temperature", "0", "--ignore-eos", stdout=w)
os.close(w)
os.read(r, 5)
os.close(r)
err = p.communicate()[1]
check("a reader that left", p.returncode == 0 and b"finished: reader closed" in err and b"baltoro:" not in err, p.returncode, err)
with open("/dev/full", "wb") as disk:
    r = subprocess.run([PROGRAM, "run", MODEL, "-p", "Hello", *GREEDY], stdout=disk, stderr=subprocess.PIPE, env=environment())
check("full disk", r.returncode == 4 and b"stdout: cannot write" in r.stderr, r.returncode, r.stderr)
r = subprocess.run(["sh", "-c", f'"$0" run "{MODEL}" -p Hello --temperature 0 >&-', PROGRAM], stderr=subprocess.PIPE,
                   env=environment())
check("closed stdout", r.returncode == 1 and b"stdout: cannot write" in r.stderr, r.returncode, r.stderr)


def until(stream, pattern):
    """Reads until the pattern was seen; what was read."""
    seen = b""
    while not re.search(pattern, seen):
        more = os.read(stream.fileno(), 1 << 16)
        if not more:
            break
        seen += more
    return seen


# A pipe of one page, full and not read: the program is sure to be in the middle of its text when the signal comes.
LONG = ("-p", "Hello", *GREEDY)
r, w = os.pipe()
fcntl.fcntl(w, 1031, 4096)  # F_SETPIPE_SZ; before anything is in it
p = start("run", MODEL, *LONG, stdout=w)
os.close(w)
p.stdout = os.fdopen(r, "rb")
until(p.stderr, b"prompt: ")
waiting = [-1, 0]
while p.poll() is None and (waiting[-1] < 4000 or waiting[-1] != waiting[-2]):
    time.sleep(0.1)
    waiting.append(int.from_bytes(fcntl.ioctl(p.stdout, 0x541B, bytes(4)), "little"))  # FIONREAD
p.send_signal(signal.SIGINT)
out, err = p.communicate()
check("interrupted: exit 130, what was said is kept", p.returncode == 130 and len(out) >= 4000 and b"finished: interrupted" in err,
      p.returncode, len(out), err)
whole = report(*GREEDY, prompt="Hello")
made = int(re.search(rb"output: (\d+) tokens", err).group(1))
want = b"".join(texts[i] for i in whole["ids"][:made]).decode("utf-8", "replace")
check("what was kept is the text of all tokens up to then", out.decode() == want and made < len(whole["ids"]), made, len(out))

p = start("run", MODEL)  # waits for its prompt
until(p.stderr, b"sampling: ")
p.send_signal(signal.SIGINT)
out, err = p.communicate()
check("interrupted before anything was said", p.returncode == 130 and out == b"" and b"interrupted" in err, p.returncode, err)

for victim in ("model-00001-of-00004.safetensors", "model-00004-of-00004.safetensors"):
    path = make_model()
    p = start("run", path)
    until(p.stderr, b"sampling: ")
    os.truncate(os.path.join(path, victim), 0)  # after it was mapped and checked
    out, err = p.communicate(b"Hello", timeout=60)
    check(f"{victim} shrinks while it is mapped", p.returncode == 3 and victim.encode() in err, p.returncode, err)

# The same within the opening, when nobody knows yet what is mapped where: a library laid under the program cuts a file as
# soon as it is mapped.
CUT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
    void *p = real(at, n, prot, flags, fd, from);
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (fd < 0 || readlink(link, path, sizeof path - 1) < 0 || strstr(path, "00004-of-00004.safetensors") == NULL) return p;
    return truncate(path, 0) == 0 ? p : MAP_FAILED;
    return p;
}
"""
cut = library(CUT)
if cut is None:
    not_run("a file shrinks within the opening", "no compiler here, or a sanitizer, which takes no library under it")
else:
    path = make_model()
    r = run("run", path, "-p", "Hello", env={"LD_PRELOAD": cut})
    check("a file shrinks within the opening", r.code == 3 and f"{path}: a file of it shrank" in r.err, r)

# ---- numbers that are none -----------------------------------------------------------------------------------------------------------

poisoned = make_model(base="k2-yarn")
path = os.path.join(poisoned, "model.safetensors")
tensors = read_safetensors(path)
dtype, shape, raw = tensors["model.norm.weight"]
tensors["model.norm.weight"] = (dtype, shape, b"\xc0\x7f" * (len(raw) // 2))
write_safetensors(path, tensors)
r = run("run", poisoned, "-p", "Z", *GREEDY)
check("NaN ends the run", r.code == 1 and r.out == b"" and "is NaN" in r.err, r)
r = run("verify", poisoned, os.path.join(MODELS, "k2-yarn", "expected.safetensors"), "--tolerance", "1e9")
check("NaN never verifies", r.code == 1 and b"failed:" in r.out, r)
r = run("logits", poisoned, "--ids", "1,2", "--output", os.path.join(here, "nan.safetensors"), "-q")
check("NaN in logits is a failure, told", r.code == 1 and "1280 of the logits in" in r.err and "are NaN" in r.err, r)
check("and they are there to be looked at", os.path.exists(os.path.join(here, "nan.safetensors")))

# ---- at a terminal -------------------------------------------------------------------------------------------------------------------

ERASE = b"\r\x1b[K"

try:
    for end in pty.openpty():
        os.close(end)
except OSError as e:
    not_run("at a terminal", f"there is none to be had here ({e})")
    finish()


def at_terminal(*words, typed=None, term="xterm", **env):
    """What the program says with stderr at a terminal (and stdin, where something is typed): (exit code, stdout, terminal)."""
    ours, theirs = pty.openpty()
    settings = environment(TERM=term, **env)
    if "NO_COLOR" not in env:
        settings.pop("NO_COLOR", None)
    p = start(*words, stdin=theirs if typed else subprocess.DEVNULL, stderr=theirs, env=settings)
    os.close(theirs)
    if typed:
        os.write(ours, typed)
    seen, out = b"", b""
    while True:
        try:
            more = os.read(ours, 1 << 16)
        except OSError:  # EIO: the other end is closed
            break
        if not more:
            break
        seen += more
    out = p.stdout.read()
    p.stdout.close()
    code = p.wait(60)
    os.close(ours)
    return code, out, seen


RUN = ("run", MODEL, *GREEDY, "-n", "5")
code, out, seen = at_terminal(*RUN, "-p", "Z" * 600)
check("a status line while it loads and reads", code == 0 and b"opening the model" in seen and b"prompt: 512 of 600 tokens" in seen
      and ERASE in seen, code, seen)
check("the status line is gone at the end", b"\x1b" not in seen[seen.rindex(ERASE) + len(ERASE):], seen)
for name, more in (("NO_COLOR", {"NO_COLOR": "1"}), ("TERM=dumb", {"term": "dumb"})):
    code, out, seen = at_terminal(*RUN, "-p", "Z", **more)
    check(f"{name}: no status line", code == 0 and b"\x1b" not in seen and b"finished: " in seen, code, seen)
code, out, seen = at_terminal(*RUN, "-q", "-p", "Z")
check("quiet: no status line", code == 0 and seen == b"", code, seen)
code, out, seen = at_terminal(*RUN, "--json", typed=b"Zz!\n\x04")
check("a prompt typed in", code == 0 and json.loads(out)["prompt_ids"] == [92, 124, 35] and b"Ctrl-D" in seen, code, out, seen)

finish()
