#!/usr/bin/env python3
"""--json of every command against its page, docs/json.md: each key that is printed is there, and each that is there is printed."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import MODELS, check, finish, folder, run  # noqa: E402

DEMO, DENSE = "models/demo-k2", os.path.join(MODELS, "k2-dense")
HERE = folder()
GREEDY = ("--temperature", "0", "-n", "60")
MESSAGES = os.path.join(HERE, "messages.json")
with open(MESSAGES, "w", encoding="utf-8") as f:
    json.dump([{"role": "user", "content": "Hello!"}], f)
COMMANDS = {
    "run": [("run", DEMO, "-p", "Hi", *GREEDY)],
    "run --chat": [("run", DEMO, "--chat", "--tools", "tools/demo/tools.json", "-p", "Look up the weather in Turin.", *GREEDY)],
    "render": [("render", DEMO, "--messages", MESSAGES)],
    "logits": [("logits", DENSE, "--ids", "1,2", "-o", os.path.join(HERE, "logits"))],
    "verify": [("verify", DENSE, os.path.join(DENSE, "expected.safetensors"))],
    "info": [("info", DEMO), ("info", DEMO, "--tensors")],
    "devices": [("devices",)],
    "synth": [("synth", os.path.join(HERE, "synth"), "--preset", "k2-tiny")],
}
# Their members are told in words, or are the model's own.
OPEN = {"config", "classes", "dtypes", "tool_calls", "function"}


def keys(value, at=None):
    """Every key in it, but not below those whose members are another's."""
    if isinstance(value, list):
        for x in value:
            yield from keys(x)
    elif isinstance(value, dict):
        for k, x in value.items():
            yield k
            if k not in OPEN:
                yield from keys(x)


with open("docs/json.md", encoding="utf-8") as f:
    pages = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", f.read(), re.S | re.M))
check("a section for every command", list(pages) == list(COMMANDS), list(pages))
for command, calls in COMMANDS.items():
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", pages[command], re.M)
    named = {x for row in rows for x in re.findall(r"`([^`]*)`", row[0])}
    told = named | {x for row in rows for x in re.findall(r"`(\w+)`", row[1])}
    printed = set()
    for words in calls:
        r = run(*words, "--json", *(["-q"] if command != "devices" else []))
        check(f"{command}: it is one line", r.code == 0 and r.err == "" and r.out.count(b"\n") == 1, r)
        printed |= set(keys(json.loads(r.out)))
    check(f"{command}: every key is told", printed <= told, printed - told)
    check(f"{command}: what is told is printed", {x.split(".")[-1] for x in named} <= printed, named - printed)
finish()
