#!/usr/bin/env python3
"""`render --template`: chat templates through the program, ours of tests/data/jinja and, where they are, the public ones of
the shared fixtures, all at the time at which their expected texts were made."""
import glob
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import check, finish, folder, not_run, run  # noqa: E402

OURS = "tests/data/jinja"
FIXTURES = os.path.join(os.environ.get("BALTORO_FIXTURES") or "../shared/fixtures", "jinja")
NOW = "2026-11-29T12:00:00"
CONTEXT = os.path.join(folder(), "context.json")


def read(path):
    with open(path, encoding="utf-8", newline="") as f:
        return f.read()


def try_case(name, template, context, case):
    with open(CONTEXT, "w", encoding="utf-8") as f:
        json.dump(context, f)
    r = run("render", "--template", template, "--context", CONTEXT, "--now", NOW)
    if "error" in case:
        check(f"{name} must fail", r.code == 1 and r.out == b"" and "line " in r.err, r)
    else:
        check(name, r.code == 0 and r.out == case["expected"].encode() and r.err == "", r)


def constructs(template):
    """What a template is made of: its tags, filters, tests, methods, attributes of loops."""
    template = re.sub(r"\{#.*?#\}", "", template, flags=re.S)
    code = " ".join(re.findall(r"\{[{%][-+]?(.*?)[-+]?[}%]\}", template, flags=re.S))
    code = re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", "''", code)
    kinds = (("tag", r"\{%[-+]?\s*(\w+)", template), ("filter", r"\|\s*(\w+)", code), ("test", r"\bis\s+(?:not\s+)?(\w+)", code),
             ("method", r"\.(\w+)\s*\(", code), ("loop.", r"\bloop\.(\w+)", code))
    return {f"{kind} {word}" for kind, pattern, text in kinds for word in re.findall(pattern, text)}


ours = set()
contexts = json.loads(read(os.path.join(OURS, "contexts.json")))
for case in json.loads(read(os.path.join(OURS, "expected.json"))):
    path = os.path.join(OURS, case.get("file", ""))
    if "file" in case:
        try_case(f"{case['file']} with {case['use']}", path, contexts[case["use"]], case)
    ours |= constructs(read(path) if "file" in case else case["template"])

found = sorted(glob.glob(os.path.join(FIXTURES, "*.json")))
if not found:
    not_run("public templates", f"{FIXTURES} is missing")
for path in found:
    template = path[:-len(".json")] + ".jinja"
    missing = constructs(read(template)) - ours
    check(f"{os.path.basename(template)}: our own templates have all that it is made of", not missing, missing)
    for case in json.loads(read(path))["cases"]:
        try_case(f"{os.path.basename(template)} {case['name']}", template, case["context"], case)
finish()
