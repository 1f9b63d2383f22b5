#!/usr/bin/env python3
"""The model inside the repository, asked through the public commands: exact greedy answers at every CPU level, conversations
with tools, and that it stands in where no MODEL is named.

usage: demo_k2.py [--write]      --write takes today's answers as the right ones: for newly trained weights, after reading them
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import cli  # noqa: E402
from cli import check, run  # noqa: E402

MODEL = os.path.abspath("models/demo-k2")
ANSWERS = "tests/data/demo_k2.json"
TOOLS = "tools/demo/tools.json"
GREEDY = ["--temperature", "0"]
EFFORTS = ("high", "medium", "low")
CHAT = ["run", "--chat", *GREEDY]

# name, words, stdin
ASKED = [
    ("plain text", ["run", *GREEDY, "-n", "12", "-p", "The capital of France is"], ""),
    ("plain text until its end", ["run", *GREEDY, "-p", "The days of the week are"], ""),
    ("one word", [*CHAT, "-p", "Capital of France in one word."], ""),
    ("a continent", [*CHAT, "-p", "On what continent can I find Mongolia?"], ""),
    ("a list as JSON", [*CHAT, "-p", "List major European countries and their capitals as JSON."], ""),
    ("it does not know", [*CHAT, "-p", "Who is the mayor of Oslo?"], ""),
    ("from a text", [*CHAT, "-p", "Clara is in the garden. Paul is in the kitchen. In which place is Paul?"], ""),
    ("a conversation", ["chat", *GREEDY], "Hello!\nWhat is 64 + 28?\nWhat is the capital of Kenya?\nThank you!\n"),
    *((f"a sum, {e}", [*CHAT, "--json", "--effort", e, "-p", "What does 478 + 256 equal?"], "") for e in EFFORTS),
    *((f"a tool, {e}", [*CHAT, "--json", "--effort", e, "--tools", TOOLS, "-p", "Look up the weather in Turin."], "") for e in EFFORTS),
    ("the other tool", [*CHAT, "--json", "--tools", TOOLS, "-p", "Please compute 37 * 12."], ""),
    ("a tool's result", [*CHAT, "--tools", TOOLS, "--messages", "tools/demo/weather.json"], ""),
]


def answer(words, stdin, *more):
    """What the program says, less what no two runs share: the seed and the ids of calls."""
    r = run(*words, *more, stdin=stdin)
    if r.code != 0 or "--json" not in words:
        return r.out.decode() if r.code == 0 else repr(r)
    value = json.loads(r.out)
    del value["seed"]
    for call in value["message"].get("tool_calls", ()):
        del call["id"]
    return value


def levels():
    return json.loads(run("devices", "--json").out)["cpu"]["levels"]


def test_answers():
    with open(ANSWERS, encoding="utf-8") as f:
        right = json.load(f)
    check("every question has an answer", [n for n, _, _ in ASKED] == list(right))
    for level in levels():
        for name, words, stdin in ASKED:
            said = answer(words, stdin, "--cpu", level)
            check(f"{name}, at {level}", said == right[name], said, right[name])


def ask(messages):
    path = os.path.join(cli.folder(), "messages.json")
    cli.write_json(path, {"messages": messages})
    return json.loads(run(*CHAT, "--json", "--tools", TOOLS, "--messages", path).out)


def test_agent():
    """As a program with tools would: what is called is done, its result goes back, and the talk goes on."""
    messages = []
    rounds = [("How is the weather in Salzburg today?", "get_weather", {"city": "Salzburg"}, '{"temperature_c": -3, "sky": "snowy"}',
               ("-3 degrees", "snowy", "Salzburg")),
              ("Find 215 * 7.", "calculator", {"expression": "215 * 7"}, "1505", ("1505",))]  # fmt: skip
    for question, name, arguments, result, parts in rounds:
        messages.append({"role": "user", "content": question})
        r = ask(messages)
        calls = r["message"].get("tool_calls") or [{"id": "", "function": {"name": "", "arguments": "{}"}}]
        made = calls[0]["function"]
        check(f"{name} is called", r["finish_reason"] == "tool_calls" and len(calls) == 1 and made["name"] == name, r)
        check(f"{name} gets its argument", json.loads(made["arguments"]) == arguments, r)
        messages += [r["message"], {"role": "tool", "tool_call_id": calls[0]["id"], "content": result}]
        r = ask(messages)
        check(f"{name}'s result is told", all(p in (r["message"]["content"] or "") for p in parts), r)
        check("and the turn is over", r["finish_reason"] == "stop" and not r["message"].get("tool_calls"), r)
        messages.append(r["message"])


def test_stands_in():
    words = ["-p", "The capital of Peru is", *GREEDY, "-n", "8"]
    with_name, without = run("run", MODEL, *words), run("run", *words)
    check("without MODEL it is the demo model", without.code == 0 and without.out == with_name.out, without, with_name)
    check("and the notes say so", "models/demo-k2" in without.err, without)
    other = run("info", "--json", env={"BALTORO_MODEL": os.path.join(cli.MODELS, "k2-dense")})
    check("BALTORO_MODEL comes first", b"k2-dense" in other.out, other)


def write():
    right = {name: answer(words, stdin) for name, words, stdin in ASKED}
    with open(ANSWERS, "w", encoding="utf-8") as f:
        json.dump(right, f, indent=1, ensure_ascii=False)
        f.write("\n")


if sys.argv[1:] == ["--write"]:
    write()
else:
    test_answers()
    test_agent()
    test_stands_in()
    cli.finish()
