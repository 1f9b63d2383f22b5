#!/usr/bin/env python3
"""What file names must not do: reach a terminal as escape sequences, or replace the model's own files."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import (MODELS, check, finish, folder, make_model, read_safetensors, refused, run,  # noqa: E402
                 write_safetensors)

MODEL = make_model()
HERE = folder()

# Labels come from a stranger's file and are printed in a table.
expected = read_safetensors(os.path.join(MODELS, "k2-dense", "expected.safetensors"))
for label in ("\x1b[31mred", "two\nlines", "\x7f", "\u009b2J"):
    path = os.path.join(HERE, "expected.safetensors")
    write_safetensors(path, {f"ids.{label}": expected["ids.5"], f"logits.{label}": expected["logits.5"]})
    refused(f"label {label!r}", 1, "cannot be used", "verify", MODEL, path)
write_safetensors(path, {"ids.fünf": expected["ids.5"], "logits.fünf": expected["logits.5"]})
r = run("verify", MODEL, path)
check("a label may hold any letter", r.code == 0 and "fünf" in r.out.decode(), r)

# An output that is one of the model's own files, by its name, by a link, by the folder's other name.
link = os.path.join(HERE, "link")
os.symlink(MODEL, link)
alias = os.path.join(HERE, "alias.safetensors")
shards = sorted(f for f in os.listdir(MODEL) if f.startswith("model"))
os.symlink(os.path.join(MODEL, shards[0]), alias)
card = os.path.join(MODEL, "README.md")
with open(card, "w", encoding="utf-8") as f:
    f.write("a model")
targets = [os.path.join(MODEL, f) for f in [*shards, "config.json", "tokenizer.json", "README.md"]]
targets += [os.path.join(link, "config.json"), alias]
before = {}
for path in targets:
    with open(path, "rb") as f:
        before[path] = f.read()
for path in targets:
    refused(f"output {path}", 2, "the model's own", "logits", MODEL, "--ids", "1", "-o", path)
for path in targets:
    with open(path, "rb") as f:
        check(f"{path} is as it was", f.read() == before[path])
for _ in range(2):
    r = run("logits", MODEL, "--ids", "1", "-o", os.path.join(MODEL, "out.safetensors"))
    check("another file in the folder, made and made again", r.code == 0, r)
finish()
