#!/usr/bin/env python3
"""tokenize and detokenize from outside: one text, a line each, and every kind of bad input."""
import json
import os
import select
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import (BOS, END, PROGRAM, SPECIAL, check, environment, finish, folder, make_model, make_tokenizer, refused,  # noqa: E402
                 run, start)

ONLY = folder()
make_tokenizer(ONLY, bos=True)  # it asks for BOS before raw prompts, which must not matter here


def ids_of(text):
    return [2 + b for b in text.encode()]


# ---- one text ----------------------------------------------------------------------------------------------------------------

r = run("tokenize", ONLY, "Zz!")
check("text as argument", r.code == 0 and r.out == b"92,124,35\n" and r.err == "", r)
r = run("tokenize", ONLY, "ab")
check("merges", r.code == 0 and r.out == b"259\n", r)
r = run("tokenize", ONLY, stdin="Zz!\n")
check("stdin byte for byte", r.out == b"92,124,35,12\n", r)
r = run("tokenize", ONLY, stdin="")
check("nothing", r.code == 0 and r.out == b"\n", r)
r = run("tokenize", ONLY, "")
check("empty argument", r.code == 0 and r.out == b"\n", r)
r = run("tokenize", ONLY, stdin=b"\0")
check("NUL", r.out == b"2\n", r)
r = run("tokenize", ONLY, "<|end|>", "--special")
check("special recognised", r.out == f"{END}\n".encode(), r)
r = run("tokenize", ONLY, "<|end|>")
check("special not recognised", r.code == 0 and r.out.startswith(b"62,126,"), r)
r = run("tokenize", os.path.join(make_model(), "config.json"), "Z")
check("a file stands for its folder", r.code == 0 and r.out == b"92\n", r)
r = run("tokenize", ONLY, "--", "--special")
check("a text like an option", r.code == 0 and len(r.out) > 10, r)
r = run("tokenize", ONLY, stdin=b"ab\xff")
check("not UTF-8", r.code == 2 and r.out == b"" and r.err.startswith("baltoro: "), r)

r = run("detokenize", ONLY, "92,124,35")
check("ids as argument", r.code == 0 and r.out == b"Zz!" and r.err == "", r)
r = run("detokenize", ONLY, stdin="[92, 124,\n35]\n")
check("ids from stdin", r.out == b"Zz!", r)
r = run("detokenize", ONLY, f"{BOS} {END} {SPECIAL}")
check("special tokens are printed", r.out == b"<|begin|><|end|><|special|>", r)
r = run("detokenize", ONLY, "242,161")
check("half a character", r.out == "\ufffd".encode(), r)
r = run("detokenize", ONLY, "")
check("no ids", r.code == 0 and r.out == b"", r)
for text in ("1,x", "1,-1", "640", "2147483648", "1.5", "[1", "[[1]]", "99999999999999999999"):
    r = run("detokenize", ONLY, text)
    check(f"bad ids {text}", r.code == 2 and r.out == b"" and r.err.startswith("baltoro: "), r)

# ---- lines ----------------------------------------------------------------------------------------------------------------------

texts = ["", "Zz!", "ab ab", "é日😀", "\0\x01\x7f", "a\u2028b\u0085c\u2029", "\"\\/\n\r\t", "x" * 300000, "<|end|>"]
r = run("tokenize", ONLY, "--jsonl", stdin="".join(json.dumps(t) + "\n" for t in texts))
got = [json.loads(x) for x in r.out.decode().splitlines()]
check("a line each", r.code == 0 and len(got) == len(texts) and got[0] == [] and got[1] == ids_of("Zz!"), r)
r = run("detokenize", ONLY, "--jsonl", stdin=r.out)
check("there and back", r.code == 0 and [json.loads(x) for x in r.out.decode().splitlines()] == texts, r)
r = run("tokenize", ONLY, "--jsonl", stdin='"Z"')
check("a last line without its end", r.out == b"[92]\n", r)
r = run("tokenize", ONLY, "--jsonl", stdin="")
check("no line", r.code == 0 and r.out == b"", r)
r = run("tokenize", ONLY, "--jsonl", stdin='"Z"\r\n"Z"\r\n')
check("CRLF", r.out == b"[92]\n[92]\n", r)
r = run("tokenize", ONLY, "--jsonl", "--special", stdin='"<|end|>"\n')
check("special in lines", r.out == b"[1]\n", r)
for bad in (b"Z", b"", b"[1]", b"1", b"null", b'"\\ud83d"', b'"\\udc00x"', b'"a', b'"a" "b"', b'"\xff"', b'"\\x"'):
    r = run("tokenize", ONLY, "--jsonl", stdin=b'"Z"\n"z"\n' + bad + b'\n"Z"\n')
    check(f"bad line {bad}", r.code == 2 and r.out == b"[92]\n[124]\n" and "stdin, line 3, column " in r.err, r)
for bad in (b"1,2", b'["1"]', b"[1.5]", b"[-1]", b"[640]", b"[1] 2", b"", b"{}", b"[" * 100):
    r = run("detokenize", ONLY, "--jsonl", stdin=b"[92]\n" + bad + b"\n")
    check(f"bad line {bad[:9]}", r.code == 2 and r.out == b'"Z"\n' and "stdin, line 2" in r.err and "line 1" not in r.err, r)
refused("text and lines", 2, "--jsonl reads stdin", "tokenize", ONLY, "Z", "--jsonl")

# One line in, one line out, without an end of the input: a program at the other end of the pipe waits for it.
p = start("tokenize", ONLY, "--jsonl")
for _ in range(3):
    p.stdin.write(b'"Z"\n')
    p.stdin.flush()
    ready, _, _ = select.select([p.stdout], [], [], 60)
    if not check("an answer to each line", ready and os.read(p.stdout.fileno(), 100) == b"[92]\n"):
        break
p.stdin.close()
check("end of the conversation", p.wait(60) == 0)
p.stdout.close()
p.stderr.close()

# ---- streams and folders -----------------------------------------------------------------------------------------------------------

many = '"Z"\n' * 200000
p = subprocess.Popen(["sh", "-c", '"$0" tokenize "$1" --jsonl | head -c 1; true', PROGRAM, ONLY], stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
out, err = p.communicate(many.encode(), timeout=120)
check("a reader that left", out == b"[" and err == b"", out, err)
with open("/dev/full", "wb") as full:
    r = subprocess.run([PROGRAM, "tokenize", ONLY, "Z"], stdout=full, stderr=subprocess.PIPE, env=environment())
check("full disk", r.returncode == 4 and b"cannot write" in r.stderr, r.stderr)
r = subprocess.run(["sh", "-c", '"$0" tokenize "$1" <&-', PROGRAM, ONLY], capture_output=True, env=environment())
check("closed stdin", r.returncode == 1 and b"stdin: cannot read" in r.stderr, r.stderr)
refused("a folder without a tokenizer", 3, "tokenizer", "tokenize", folder(), "Z")
broken = folder()
for content in (b"", b"{", b"version https://git-lfs.github.com/spec/v1\n", b"\xff\xfe{"):
    with open(os.path.join(broken, "tokenizer.json"), "wb") as f:
        f.write(content)
    refused(f"a broken tokenizer {content[:5]}", 3, "tokenizer.json", "tokenize", broken, "Z")

# ---- tiktoken.model ----------------------------------------------------------------------------------------------------------------

OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "tokenizers", "tiktoken")
with open(os.path.join(OWN, "expected.json"), encoding="utf-8") as f:
    cases = json.load(f)["cases"]
lines = "".join(json.dumps(c["text"]) + "\n" for c in cases)
r = run("tokenize", OWN, "--jsonl", "--special", stdin=lines)
check("tiktoken.model", r.code == 0 and [json.loads(x) for x in r.out.splitlines()] == [c["ids"] for c in cases], r.err)
back = run("detokenize", OWN, "--jsonl", stdin=r.out)
check("and back", back.code == 0 and [json.loads(x) for x in back.out.splitlines()] == [c["text"] for c in cases], back.err)
r = run("tokenize", OWN, "--jsonl", stdin=lines)
check("without special tokens", [json.loads(x) for x in r.out.splitlines()] == [c.get("plain_ids", c["ids"]) for c in cases], r.err)
r = run("detokenize", OWN, "1612")
check("an id behind the reserved ones", r.code == 2 and r.out == b"" and "1612" in r.err, r)
both = folder()
for name in ("tiktoken.model", "tokenizer_config.json"):
    with open(os.path.join(OWN, name), "rb") as src, open(os.path.join(both, name), "wb") as dst:
        dst.write(src.read())
make_tokenizer(both)
r = run("tokenize", both, "<|open|>", "--special")
check("tiktoken.model before tokenizer.json", r.code == 0 and r.out == b"1359\n" and "not used" in r.err, r)
r = run("tokenize", both, "<|open|>", "--special", "-q")
check("quietly", r.code == 0 and r.out == b"1359\n" and r.err == "", r)
os.remove(os.path.join(both, "tokenizer_config.json"))
refused("tiktoken.model alone", 3, "tokenizer_config.json", "tokenize", both, "Z")

finish()
