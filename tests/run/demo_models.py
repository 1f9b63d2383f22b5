#!/usr/bin/env python3
"""The models inside the repository, asked through the public commands: exact greedy answers at every CPU level, conversations
with tools, and that one stands in where no MODEL is named.

usage: demo_models.py [--write NAME]     takes today's answers of the model as the right ones: for newly trained weights,
                                         after reading them
"""
import hashlib
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import cli  # noqa: E402
from cli import check, run  # noqa: E402

FOLDER = os.path.abspath("models")
STANDS_IN = os.path.join(FOLDER, "demo-k2")
ANSWERS = "tests/data/%s.json"
TOOLS = "tools/demo/tools.json"
GREEDY = ["--temperature", "0"]

# name: its efforts, files, sha256 of model.safetensors (the same weights, or another model with another card)
MODELS = {
    "demo-k2": (("high", "medium", "low"),
                ["README.md", "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                 "tokenizer_config.json"], "ded10ce05ebfd371b8baefe236eabc0d22fbd17be61cd60a4bcca24312a0266a"),
    "demo-k3": (("max", "high", "low"),
                ["README.md", "config.json", "generation_config.json", "model.safetensors", "tiktoken.model", "tokenizer_config.json"],
                "80830b2ab0c77f91ce4336fdb180ef7ae469ac8a2b97f9e98211f751da65abf1"),
}  # fmt: skip

# name, words before and behind the model, stdin; EFFORT: asked once at each of the model's efforts
CHAT, EFFORT = ["run", "--chat", *GREEDY], "EFFORT"
ASKED = [
    ("plain text", ["run", *GREEDY, "-n", "12", "-p", "The capital of France is"], ""),
    ("plain text until its end", ["run", *GREEDY, "-p", "The days of the week are"], ""),
    ("what every expert and gate has a say in", ["run", *GREEDY, "-n", "40", "--ignore-eos", "-p", "15 + 27 ="], ""),
    ("and with other words", ["run", *GREEDY, "-n", "40", "--ignore-eos", "-p", "Peru is a country in"], ""),
    ("without thinking", [*CHAT, "--effort", "none", "-p", "What is the capital of Kenya?"], ""),
    ("a tool without thinking", [*CHAT, "--json", "--effort", "none", "--tools", TOOLS, "-p", "Look up the weather in Turin."], ""),
    ("a difference", [*CHAT, "-p", "What is 657 - 233?"], ""),
    ("one word", [*CHAT, "-p", "Capital of France in one word."], ""),
    ("a continent", [*CHAT, "-p", "On what continent can I find Mongolia?"], ""),
    ("a list as JSON", [*CHAT, "-p", "List major European countries and their capitals as JSON."], ""),
    ("it does not know", [*CHAT, "-p", "Who is the mayor of Oslo?"], ""),
    ("from a text", [*CHAT, "-p", "Clara is in the garden. Paul is in the kitchen. In which place is Paul?"], ""),
    ("a conversation", ["chat", *GREEDY], "Hello!\nWhat is 64 + 28?\nWhat is the capital of Kenya?\nThank you!\n"),
    ("a sum", [*CHAT, "--json", "--effort", EFFORT, "-p", "What does 478 + 256 equal?"], ""),
    ("a tool", [*CHAT, "--json", "--effort", EFFORT, "--tools", TOOLS, "-p", "Look up the weather in Turin."], ""),
    ("the other tool", [*CHAT, "--json", "--tools", TOOLS, "-p", "Please compute 37 * 12."], ""),
    ("a tool's result", [*CHAT, "--tools", TOOLS, "--messages", "tools/demo/weather.json"], ""),
]


def asked_of(name):
    """(name, words, stdin) of every question to this model."""
    for question, words, stdin in ASKED:
        for effort in MODELS[name][0] if EFFORT in words else ("",):
            filled = [effort if w == EFFORT else w for w in words]
            filled.insert(1, os.path.join(FOLDER, name))
            yield question + (", " + effort if effort else ""), filled, stdin


def answer(words, stdin, *more):
    """What the program says, less the seed, which no two runs share; None: it failed."""
    r = run(*words, *more, stdin=stdin)
    if r.code != 0:
        print(r)
        return None
    if "--json" not in words:
        return r.out.decode()
    value = json.loads(r.out)
    del value["seed"]
    return value


def levels():
    return json.loads(run("devices", "--json").out)["cpu"]["levels"]


def test_files(name):
    """The folder is a checkpoint as its vendor lays it out, complete, and its weights are those that the tests know."""
    folder, (_, files, digest) = os.path.join(FOLDER, name), MODELS[name]
    check(f"{name}: its files", sorted(os.listdir(folder)) == files, os.listdir(folder))
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        found = hashlib.sha256(f.read()).hexdigest()
    check(f"{name}: its weights", found == digest, found)


def test_answers(name):
    with open(ANSWERS % name, encoding="utf-8") as f:
        right = json.load(f)
    check(f"{name}: every question has an answer", [n for n, _, _ in asked_of(name)] == list(right))
    for level in levels():
        for question, words, stdin in asked_of(name):
            said = answer(words, stdin, "--cpu", level)
            check(f"{name}, {question}, at {level}", said is not None and said == right[question], said, right[question])


def ask(name, messages):
    path = os.path.join(cli.folder(), "messages.json")
    cli.write_json(path, {"messages": messages})
    return json.loads(run(*CHAT, os.path.join(FOLDER, name), "--json", "--tools", TOOLS, "--messages", path).out)


def test_agent(model):
    """As a program with tools would: what is called is done, its result goes back, and the talk goes on."""
    messages, ids = [], set()
    rounds = [("How is the weather in Salzburg today?", "get_weather", {"city": "Salzburg"}, '{"temperature_c": -3, "sky": "snowy"}',
               ("-3 degrees", "snowy", "Salzburg")),
              ("Find 215 * 7.", "calculator", {"expression": "215 * 7"}, "1505", ("1505",))]  # fmt: skip
    for question, name, arguments, result, parts in rounds:
        messages.append({"role": "user", "content": question})
        r = ask(model, messages)
        calls = r["message"].get("tool_calls") or [{"id": "", "function": {"name": "", "arguments": "{}"}}]
        made = calls[0]["function"]
        check(f"{model}: {name} is called", r["finish_reason"] == "tool_calls" and len(calls) == 1 and made["name"] == name, r)
        check(f"{model}: {name} gets its argument", json.loads(made["arguments"]) == arguments, r)
        ids.add(calls[0]["id"])
        messages += [r["message"], {"role": "tool", "tool_call_id": calls[0]["id"], "content": result}]
        r = ask(model, messages)
        check(f"{model}: {name}'s result is told", all(p in (r["message"]["content"] or "") for p in parts), r)
        check(f"{model}: and the turn is over", r["finish_reason"] == "stop" and not r["message"].get("tool_calls"), r)
        messages.append(r["message"])
    check(f"{model}: each call has an id of its own", len(ids) == len(rounds), ids)


def test_stands_in():
    words = ["-p", "The capital of Peru is", *GREEDY, "-n", "8"]
    with_name, without = run("run", STANDS_IN, *words), run("run", *words)
    check("without MODEL it is the demo model", without.code == 0 and without.out == with_name.out, without, with_name)
    check("and the notes say so", "models/demo-k2" in without.err, without)
    prompt = run("run", "What is 2 + 2?")
    check("a prompt where MODEL is expected", prompt.code == 3 and "put -p before it" in prompt.err, prompt)
    for words in (("info", "a b"), ("chat", "a b"), ("run", "a b", "-p", "x")):
        path = run(*words)
        check("and where that cannot be meant, not", path.code == 3 and "put -p" not in path.err, path)
    other = run("info", "--json", env={"BALTORO_MODEL": os.path.join(cli.MODELS, "k2-dense")})
    check("BALTORO_MODEL comes first", b"k2-dense" in other.out, other)


def write(name):
    right = {question: answer(words, stdin) for question, words, stdin in asked_of(name)}
    if None in right.values():
        sys.exit("nothing was written")
    with open(ANSWERS % name, "w", encoding="utf-8") as f:
        json.dump(right, f, indent=1, ensure_ascii=False)
        f.write("\n")


if sys.argv[1:2] == ["--write"]:
    write(sys.argv[2])
else:
    for each in MODELS:
        test_files(each)
        test_answers(each)
        test_agent(each)
    test_stands_in()
    cli.finish()
