#!/usr/bin/env python3
"""run --chat: one turn of a conversation, from outside; and SmolLM2's two turns where that model is there."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import cli  # noqa: E402
from cli import check, refused, run  # noqa: E402

TEMPLATE = """{%- for m in messages %}{{ '[' + m.role + ']' + m.content + '\n' }}{% endfor %}
{%- if tools %}{{ '[tools]' + tools | tojson }}{% endif %}
{%- if reasoning_effort %}{{ '[' + reasoning_effort + ']' }}{% endif %}{{ '[assistant]' }}"""
WORDS = ["--chat", "--temperature", "0", "-n", "16"]
FIXTURES = os.environ.get("BALTORO_FIXTURES", "../shared/fixtures")
SMOLLM = "build/real/smollm2-135m-instruct"


def make_model(template=TEMPLATE):
    return cli.make_model(template=template)


def written(value, text=None):
    path = os.path.join(cli.folder(), "file.json")
    if text is None:
        cli.write_json(path, value)
    else:
        with open(path, "w") as f:
            f.write(text)
    return path


def test_forms(model):
    """-p, stdin, --messages: the same conversation, the same answer; --json is that answer as OpenAI has it."""
    words = [*WORDS, "--system", "be brief"]
    plain = run("run", model, *words, "-p", "hi there")
    piped = run("run", model, *words, stdin="hi there\n")
    talk = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi there"}]
    listed = run("run", model, *WORDS, "--messages", written(talk))
    whole = run("run", model, *WORDS, "--messages", written({"messages": talk}))
    check("run --chat", plain.code == 0 and plain.out != b"", plain)
    check("stdin is -p", piped.out == plain.out, piped)
    check("--messages is both", listed.out == plain.out and whole.out == plain.out, listed, whole)
    r = run("run", model, *words, "-p", "hi there", "--json", "--seed", "7")
    j = json.loads(r.out)
    check("--json: keys", list(j) == ["message", "finish_reason", "usage", "seed"] and r.out.count(b"\n") == 1, r)
    check("--json: message", j["message"]["role"] == "assistant" and j["message"]["content"] == plain.out.decode(), j)
    u = j["usage"]
    check("--json: usage", u["completion_tokens"] == 16 and u["prompt_tokens"] > 10
          and u["total_tokens"] == u["prompt_tokens"] + 16, u)
    check("--json: finish and seed", j["finish_reason"] == "length" and j["seed"] == 7, j)
    other = run("run", model, *WORDS, "-p", "hi there")
    check("--system counts", other.out != plain.out, other)
    bare = run("run", model, "-p", "hi there", "--temperature", "0", "-n", "16")
    check("--chat counts", bare.out != other.out, bare)
    quiet = run("run", model, *WORDS, "-q", "-p", "hi there")
    check("--quiet", quiet.err == "" and quiet.out == other.out, quiet)


def prompt_tokens(model, *words):
    return json.loads(run("run", model, *WORDS, "--json", "-p", "x", *words).out)["usage"]["prompt_tokens"]


def test_options(model):
    """Efforts and tools reach the template."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    n = prompt_tokens(model)
    check("--tools reach the template", prompt_tokens(model, "--tools", written(tools)) > n + 20)
    check("--tools as an object", prompt_tokens(model, "--tools", written({"tools": tools}))
          == prompt_tokens(model, "--tools", written(tools)))
    native = make_model(template=None)
    low, high = prompt_tokens(native, "--reasoning-effort", "low"), prompt_tokens(native, "--reasoning-effort", "high")
    check("--reasoning-effort reaches the native renderer", low != high, low, high)
    for effort, used in (("none", "low"), ("minimal", "low"), ("xhigh", "high"), ("max", "high")):
        r = run("run", native, *WORDS, "-p", "x", "--json", "--reasoning-effort", effort)
        check(f"effort {effort} is {used}, and that is said", r.code == 0 and f"{used} is the nearest" in r.err
              and json.loads(r.out)["usage"]["prompt_tokens"] == {"low": low, "high": high}[used], r)
    for effort in ("low", "medium", "high"):
        r = run("run", native, *WORDS, "-p", "x", "--reasoning-effort", effort)
        check(f"effort {effort} needs no note", r.code == 0 and "nearest" not in r.err, r)
    r = run("run", native, *WORDS, "-p", "x")
    check("reasoning does not go to stdout", r.code == 0 and r.out == b"", r)
    r = run("run", native, *WORDS, "-p", "x", "--json")
    check("but into the object", json.loads(r.out)["message"]["reasoning_content"] != "", r)
    file = written(None, "{{ 'X' + messages[0].content }}")
    n = json.loads(run("run", native, *WORDS, "-p", "x", "--json", "--chat-template", file).out)["usage"]["prompt_tokens"]
    check("--chat-template is used", n == 2, n)


def test_ignored_effort():
    """A template that does nothing with efforts is said to, by every command."""
    plain, knowing = make_model("{{ messages[-1].content }}"), make_model()
    said = 'the template does nothing with reasoning_effort: asking for "high" has no effect'
    words = ["--reasoning-effort", "high"]
    talk = written([{"role": "user", "content": "x"}])
    for name, command in (("run --chat", ("run", *WORDS, "-p", "x")), ("render", ("render", "--messages", talk)),
                          ("chat", ("chat", "--temperature", "0", "-n", "4"))):
        for model, expected in ((plain, 1), (knowing, 0)):
            r = run(command[0], model, *command[1:], *words, stdin="a\nb\n" if name == "chat" else "")
            check(f"{name}: an effort without effect is said once, {expected}", r.code == 0 and r.err.count(said) == expected, r)


def test_ignored_members():
    """What a request has beside the conversation, and the template does nothing with, is said, by its name."""
    model = make_model("{% if persona %}{{ persona }}{% endif %}{% if stop is defined %}S{% endif %}{{ messages[-1].content }}"
                       "{% for n in [] %}{% endfor %}")
    talk = {"messages": [{"role": "user", "content": "x"}]}
    sampling = ("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty")
    others = ("n", "logprobs", "top_logprobs", "stream", "presence_penalty", "frequency_penalty", "logit_bias", "foo")
    nothing = {"model": "m", "user": "u", "metadata": {"k": "v"}, "store": True, "stream_options": {}, "n": 1, "stream": False,
               "parallel_tool_calls": True, "logprobs": False, "temperature": None, "stop": "z", "service_tier": "auto",
               "safety_identifier": "s", "prompt_cache_key": "k", "logit_bias": {}}
    for command in (("run", model, *WORDS), ("render", model)):
        r = run(*command, "--messages", written({**talk, **{name: 2 for name in (*sampling, *others)}, "persona": "y", "stop": "z"}))
        for name in sampling:
            check(f"{command[0]}: {name} is said to do nothing",
                  f'"{name}" has no effect: it is no part of a conversation; the settings of the '
                  'program that generates the answer count' in r.err, r)
        for name in others:
            check(f"{command[0]}: {name} too", f'the template does nothing with "{name}"\n' in r.err, r)
        check(f"{command[0]}: what it uses is not", r.code == 0 and "persona" not in r.err and '"stop"' not in r.err, r)
        r = run(*command, "--messages", written({**talk, **nothing}))
        check(f"{command[0]}: what asks for nothing is not told",
              r.code == 0 and r.err.count("no effect") == r.err.count("nothing with") == 0, r)
        r = run(*command, "--messages", written({**talk, "stop": "z", "chat_template_kwargs": {"persona": "y", "voice": 1}}))
        check(f"{command[0]}: options too", r.err.count("the template does nothing with") == 1 and '"voice"' in r.err, r)
        r = run(*command, "--messages", written({**talk, "model": None, "tools": [], "tool_choice": "none"}))
        check(f"{command[0]}: null is nothing", r.code == 0 and "nothing with" not in r.err and "no effect" not in r.err, r)
        r = run(*command, "--messages", written({**talk, **{f"x{i}": i for i in range(100)}}))
        check(f"{command[0]}: many are not all told", r.err.count('does nothing with "x') == 20 and "80 more members" in r.err, r)


def test_demands(model):
    """What tool_choice and response_format demand is told before and held against the answer after."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    talk = {"messages": [{"role": "user", "content": "x"}], "tools": tools}
    for name, demand, before, after in (
            ("tool_choice", {"tool_choice": "required"}, "nothing makes the model call", "no call, which tool_choice demands"),
            ("response_format", {"response_format": {"type": "json_object"}}, "nothing makes the model keep it",
             "no JSON, which response_format demands")):
        r = run("run", model, *WORDS, "--json", "--messages", written({**talk, **demand}))
        check(f"{name}: told before, and an answer without it is a failure", r.code == 1 and before in r.err and after in r.err
              and json.loads(r.out)["message"]["role"] == "assistant", r)
    refused("tool_choice without tools", 2, "there are no tools", "run", model, *WORDS, "--messages",
            written({"messages": talk["messages"], "tool_choice": "required"}))


def test_refusals(model):
    talk = written([{"role": "user", "content": "x"}])
    refused("no messages", 2, "messages", "run", model, *WORDS, "--messages", written([]))
    refused("an unknown role", 2, "role", "run", model, *WORDS, "--messages", written([{"role": "bishop", "content": "x"}]))
    refused("no JSON", 2, "line 1, column 2", "run", model, *WORDS, "--messages", written(None, "{"))
    refused("-p and --messages", 2, "exclude each other", "run", model, *WORDS, "-p", "x", "--messages", talk)
    refused("--system and --messages", 2, "exclude each other", "run", model, *WORDS, "--system", "x", "--messages", talk)
    refused("--special", 2, "exclude each other", "run", model, *WORDS, "--special", "-p", "x")
    refused("--system without --chat", 2, "--chat", "run", model, "--system", "x", "-p", "x")
    refused("an unknown effort", 2, "must be one of", "run", model, *WORDS, "-p", "x", "--reasoning-effort", "huge")
    refused("a missing file", 1, "nowhere.json", "run", model, *WORDS, "--messages", "nowhere.json")
    refused("a full context", 1, "the context holds 8", "run", model, *WORDS, "-p", "hello there", "-c", "8")
    refused("not UTF-8", 2, "UTF-8", "run", model, *WORDS, stdin=b"\xff\n")
    broken = make_model("{{ messages[0].content }}\n{% nothing %}")
    refused("a broken template", 3, "2", "run", broken, *WORDS, "-p", "x")
    raising = make_model("{{ raise_exception('no such talk') }}")
    refused("a template that refuses", 2, "no such talk", "run", raising, *WORDS, "-p", "x")


def test_room(model):
    """The prompt may fill the context where no answer is wanted."""
    n = prompt_tokens(model, "-p", "hello")
    r = run("run", model, "--chat", "-p", "hello", "-c", n, "-n", "0", "--json")
    check("a full context and no tokens wanted", r.code == 0 and json.loads(r.out)["finish_reason"] == "length", r)
    refused("a full context", 1, "leaves no room for an answer", "run", model, "--chat", "-p", "hello", "-c", n)


def test_inputs(model):
    """stdin is there once; a FIFO for a template waits for its writer."""
    for words in ((), ("-f", "-")):
        refused(f"tools and prompt from stdin {words}", 2, "--tools - leaves no stdin for the prompt", "run", model, "--chat",
                "--tools", "-", *words, stdin="[]")
    fifo = os.path.join(cli.folder(), "fifo")
    os.mkfifo(fifo)
    p = cli.start("run", model, "--chat", "--chat-template", fifo, "-p", "hello", "-n", "4", "--temperature", "0", "--json",
                  stdin=subprocess.DEVNULL)
    time.sleep(0.3)  # the writer comes later
    if p.poll() is None:
        with open(fifo, "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
    out, err = p.communicate()
    want = run("run", model, "--chat", "-p", "hello", "-n", "4", "--temperature", "0", "--json").out
    check("a template from a FIFO", p.returncode == 0 and out != b"" and json.loads(out)["message"] == json.loads(want)["message"],
          out, err)


def test_smollm():
    """Rendering, ids (by their number) and greedy answers of the two turns, by run --chat and by chat."""
    path = os.path.join(FIXTURES, "smollm2", "expected.json")
    if not os.path.isfile(os.path.join(SMOLLM, "config.json")) or not os.path.isfile(path):
        cli.not_run("SmolLM2's chat turns", "make real, and the fixtures, are needed")
        return
    with open(path) as f:
        turns = json.load(f)["chat"]
    for i, turn in enumerate(turns):
        r = run("run", SMOLLM, "--chat", "--messages", written(turn["messages"]), "--temperature", "0", "--json", timeout=300)
        j = json.loads(r.out) if r.code == 0 else {}
        check(f"SmolLM2 turn {i + 1}: answer", j.get("message", {}).get("content") == turn["answer"]
              and j.get("finish_reason") == "stop", r)
        check(f"SmolLM2 turn {i + 1}: as many ids", j.get("usage", {}).get("prompt_tokens") == len(turn["ids"])
              and j["usage"]["completion_tokens"] == len(turn["answer_ids"]) - 1, j)
    lines = "".join(m["content"] + "\n" for m in turns[-1]["messages"] if m["role"] == "user")
    r = run("chat", SMOLLM, "--temperature", "0", stdin=lines, timeout=300)
    check("SmolLM2: chat says the same", r.out.decode() == "".join(t["answer"] + "\n" for t in turns), r)
    new = len(turns[1]["ids"]) - len(turns[0]["ids"]) - len(turns[0]["answer_ids"]) + 1
    check("SmolLM2: chat computes what is new, and no more", f"prompt {new} new" in r.err, new, r)


def main():
    model = make_model()
    test_forms(model)
    test_options(model)
    test_ignored_effort()
    test_ignored_members()
    test_demands(model)
    test_refusals(model)
    test_room(model)
    test_inputs(model)
    test_smollm()
    cli.finish()


main()
