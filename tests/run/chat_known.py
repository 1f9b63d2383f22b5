#!/usr/bin/env python3
"""chat computes what is new of a turn and no more, also after /load: the tokens are counted one by one.

The model's vocabulary is cut to ASCII, one id a character, so that what it says has one tokenisation only, as text of a
trained model nearly always has.
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import cli  # noqa: E402
from cli import check  # noqa: E402

TEMPLATE = "{% for m in messages %}{{ m.role[0] + m.content + '\n' }}{% endfor %}{{ 'a' }}"
N, N_VOCAB = 12, 128
WORDS = ["--temperature", "0", "-n", N]


def make_model():
    path = cli.make_model(config={"vocab_size": N_VOCAB})
    for name in os.listdir(path):
        if not name.startswith("model-"):
            continue
        tensors = cli.read_safetensors(os.path.join(path, name))
        for key in ("model.embed_tokens.weight", "lm_head.weight"):
            if key in tensors:
                dtype, (rows, columns), data = tensors[key]
                tensors[key] = (dtype, [N_VOCAB, columns], data[:len(data) // rows * N_VOCAB])
        cli.write_safetensors(os.path.join(path, name), tensors)
    t = cli.tokenizer()
    t["model"].update(vocab={letter: b for b, letter in cli.byte_letters().items() if b < N_VOCAB}, merges=[])
    t["added_tokens"] = []
    cli.write_json(os.path.join(path, "tokenizer.json"), t)
    with open(os.path.join(path, "chat_template.jinja"), "w") as f:
        f.write(TEMPLATE)
    return path


def counts(result):
    """(new, known) of each answer."""
    return [(int(a), int(b)) for a, b in re.findall(r"prompt (\d+) new, (\d+) known", result.err)]


def prompts(model, *users):
    """How long the prompt of each turn is, by processes that keep nothing, and whether the answers have one tokenisation."""
    talk, lengths = [], []
    for text in users:
        talk.append({"role": "user", "content": text})
        path = os.path.join(cli.folder(), "messages.json")
        cli.write_json(path, talk)
        r = cli.run("run", model, "--chat", "--messages", path, *WORDS, "--json")
        if not check("run --chat", r.code == 0, r):
            return None
        j = json.loads(r.out)
        lengths.append(j["usage"]["prompt_tokens"])
        good = check(f"the answer to {text!r} is {N} characters", len(j["message"]["content"]) == N
                     and j["usage"]["completion_tokens"] == N, j)
        if not good:
            return None
        talk.append(j["message"])
    return lengths


def new_of(lengths, turn):
    """Of a turn's prompt, what the turn before did not compute: its last token was chosen, but nothing followed it."""
    known = lengths[turn - 1] + N - 1 if turn > 0 else 0
    return lengths[turn] - known, known


def main():
    model, saved = make_model(), os.path.join(cli.folder(), "talk.session")
    users = ["hello", "and then", "more"]
    lengths = prompts(model, *users)
    if lengths is None:
        cli.finish()
    want = [new_of(lengths, i) for i in range(3)]
    check("a turn is shorter than its prompt", all(new < length for (new, _), length in zip(want[1:], lengths[1:])), want)
    r = cli.run("chat", model, *WORDS, stdin="\n".join(users) + "\n")
    check("three turns: each computes what is new", r.code == 0 and counts(r) == want, counts(r), want)
    r = cli.run("chat", model, *WORDS, stdin=f"{users[0]}\n{users[1]}\n/save {saved}\n/quit\n")
    check("saved", r.code == 0 and os.path.isfile(saved), r)
    for how, words, first in (("--load", ["--load", saved], ""), ("/load", [], f"/load {saved}\n")):
        r = cli.run("chat", model, *WORDS, *words, stdin=f"{first}{users[2]}\n")
        check(f"{how}: the next turn computes what is new", r.code == 0 and counts(r) == want[2:], r, want[2])
        r = cli.run("chat", model, *WORDS, *words, stdin=f"{first}/regen\n")
        check(f"{how}, /regen: one token, to choose from", r.code == 0 and counts(r) == [(1, lengths[1] - 1)], r, lengths)
    r = cli.run("chat", model, *WORDS, stdin=f"{users[0]}\n{users[1]}\n/undo\n{users[1]}\n")
    check("/undo and again: only what was taken back", r.code == 0 and counts(r)[2] == (1, lengths[1] - 1), counts(r), lengths)
    r = cli.run("chat", model, *WORDS, stdin=f"{users[0]}\n/system be brief\n{users[1]}\n")
    check("another system message: all of it", r.code == 0 and counts(r)[1][1] == 0, counts(r))
    cli.finish()


main()
