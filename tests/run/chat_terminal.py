#!/usr/bin/env python3
"""chat at a terminal: a person's script on a pseudo-terminal, and what the screen shows.

The models are random ones, whose answers are noise; what they must be comes from `run --chat --json` with the same
messages, one process for each answer and nothing kept between them. So the screen also shows that a conversation that
keeps what it has computed says what one says that computes all of it anew.
"""
import json
import os
import pty
import re
import select
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import cli  # noqa: E402
from cli import check  # noqa: E402
from terminal import Screen, Terminal  # noqa: E402

TEMPLATE = "{% for m in messages %}{{ '[' + m.role + ']' + m.content + '\n' }}{% endfor %}{{ '[assistant]' }}"
N = 24
WORDS = ["--temperature", "0", "-n", N]
HELLO = "/help lists the commands; Ctrl-D leaves"


def make_model(template=TEMPLATE, **config):
    return cli.make_model(config=config, template=template)


def ask(model, messages, *words):
    """The next message, by a process that knows nothing else."""
    path = os.path.join(cli.folder(), "messages.json")
    cli.write_json(path, messages)
    r = cli.run("run", model, "--chat", "--messages", path, *WORDS, "--json", *words)
    if not check("run --chat --json", r.code == 0, r):
        return {"message": {"role": "assistant", "content": ""}, "usage": {}}
    return json.loads(r.out)


def safe(text):
    """As the screen must show text of a model."""
    shown = ""
    for c in text.lstrip("\n"):
        if c in "\n\t" or (ord(c) >= 32 and not 0x7f <= ord(c) < 0xa0):
            shown += c
        else:
            shown += "^" + chr(ord(c) ^ 0x40) if ord(c) < 0x80 else "\ufffd"
    return shown


def seen(lines):
    """Without what differs from run to run."""
    lines = [re.sub(r"[\d.]+/s; prompt \d+ new, \d+ known", "N/s", line) for line in lines]
    return [re.sub(r" \d+ tokens(, [\d.]+ [kM]?B)?$", lambda m: " N tokens, N B" if m.group(1) else " N tokens", line) for line in lines]


def after_hello(screen):
    lines = seen(screen.text())
    return lines[lines.index(HELLO) + 1:] if HELLO in lines else lines


class Expected:
    """The screen that there should be, written down turn by turn."""

    def __init__(self, columns=100):
        self.screen = Screen(columns)

    def line(self, text):
        self.screen.feed(text.replace("\n", "\r\n") + "\r\n")
        return self

    def answer(self, text, prompt_tokens, context=8192, why="; cut at --max-new-tokens", n=N):
        text = safe(text)
        self.line(text.rstrip("\n") if text.endswith("\n") else text)
        return self.line(f"[{n} tokens, N/s; context {prompt_tokens + n} of {context}{why}]")

    def end(self, text="> "):
        self.screen.feed(text)
        return self.screen.text()


def counts(screen):
    """(new, known) of each answer on the screen."""
    return [(int(a), int(b)) for a, b in re.findall(r"prompt (\d+) new, (\d+) known", "\n".join(screen.text()))]


def user(text):
    return {"role": "user", "content": text}


def compare(name, t, expected):
    got, want = after_hello(t.screen), expected
    at = next((i for i in range(max(len(got), len(want))) if i >= len(got) or i >= len(want) or got[i] != want[i]), None)
    return check(name, at is None, f"line {at}", got[at:][:3] if at is not None else "", want[at:][:3] if at is not None else "")


# ---- one conversation ------------------------------------------------------------------------------------------------

def test_conversation(model, home):
    """Two turns, a paste of 200 lines, undo, save, load, quit."""
    block = "\n".join(f"line {i} of what was copied" for i in range(200))  # more than a terminal's buffer
    talk = [user("hello")]
    first = ask(model, talk)
    talk += [first["message"], user("and then\nmore")]
    second = ask(model, talk)
    talk += [second["message"]]
    third = ask(model, talk + [user("see: " + block)])
    fourth = ask(model, talk + [user("last")])
    saved = os.path.join(home, "talk.session")

    t = Terminal("chat", model, *WORDS, XDG_STATE_HOME=home)
    check("chat: greets", t.until_text(HELLO), t.screen.text())
    check("chat: a prompt", t.until_prompt())
    check("chat: bracketed paste is on", 2004 in t.screen.modes)
    e = Expected()

    t.say("hello")
    check("chat: first turn", t.until_prompt(), t.screen.text()[-3:])
    e.line("> hello").answer(first["message"]["content"], first["usage"]["prompt_tokens"])
    compare("chat: screen after one turn", t, e.end())
    e.screen.feed("\b\b")

    t.say("and then\\")
    t.until_prompt("| ")
    t.say("more")
    check("chat: second turn", t.until_prompt())
    e.line("> and then\\").line("| more").answer(second["message"]["content"], second["usage"]["prompt_tokens"])
    compare("chat: screen after two turns", t, e.end())
    e.screen.feed("\b\b")
    new, known = counts(t.screen)[-1]
    check("chat: the first turn was not computed again", known > first["usage"]["prompt_tokens"]
          and new + known == second["usage"]["prompt_tokens"], (new, known), first["usage"])

    t.send("see: \033[200~" + block.replace("\n", "\r") + "\033[201~")
    check("chat: a paste is one mark", t.until_text("> see: [paste 1: 200 lines]"), t.screen.text()[-4:])
    t.say("")
    check("chat: paste answered", t.until_prompt())
    e.line("> see: [paste 1: 200 lines]").answer(third["message"]["content"], third["usage"]["prompt_tokens"])
    compare("chat: screen after the paste", t, e.end())
    e.screen.feed("\b\b")

    t.say("/undo")
    t.until_prompt()
    e.line("> /undo").line("your last message and its answer are taken back; 4 messages are left")
    compare("chat: screen after undo", t, e.end())
    e.screen.feed("\b\b")
    t.say("/save " + saved)
    check("chat: saved", t.until_text("saved: ") and t.until_prompt(), t.screen.text()[-3:])
    e.line("> /save " + saved).line(f"saved: {saved}, 4 messages, N tokens, N B")
    compare("chat: screen after save", t, e.end())
    n_saved = next((int(m.group(1)) for m in map(re.compile(r"saved: .*, (\d+) tokens,").match, t.screen.text()) if m), 0)
    n_max = second["usage"]["prompt_tokens"] + N + len("\n[assistant]")
    check("chat: what was taken back is not in the file", 0 < n_saved <= n_max, n_saved, n_max)
    check("chat: the file is there, and nothing beside it", os.listdir(home) == ["talk.session"] or
          sorted(os.listdir(home)) == ["baltoro", "talk.session"], os.listdir(home))
    e.screen.feed("\b\b")
    t.say("last")
    check("chat: a turn after undo", t.until_prompt())
    e.line("> last").answer(fourth["message"]["content"], fourth["usage"]["prompt_tokens"])
    compare("chat: screen after a turn after undo", t, e.end())
    again = counts(t.screen)[-1]
    check("chat: undone messages are gone", sum(again) == fourth["usage"]["prompt_tokens"], again, fourth["usage"])
    e.screen.feed("\b\b")
    t.say("/undo")
    t.until_prompt()
    e.line("> /undo").line("your last message and its answer are taken back; 4 messages are left")
    t.say("/quit")
    check("chat: quit ends with 0", t.finish() == 0)
    compare("chat: screen at the end", t, e.line("> /quit").end(""))
    check("chat: the terminal is as it was", t.is_restored())
    check("chat: nothing but answers was dimmed", "hello" not in t.screen.dim_text())
    t.close()

    t = Terminal("chat", model, *WORDS, XDG_STATE_HOME=home)
    t.until_prompt()
    t.say("/load " + saved)
    t.until_prompt()
    e = Expected().line("> /load " + saved).line(f"loaded: {saved}, 4 messages, N tokens")
    compare("load: says what it has", t, e.end())
    e.screen.feed("\b\b")
    t.say("last")
    check("load: goes on", t.until_prompt())
    e.line("> last").answer(fourth["message"]["content"], fourth["usage"]["prompt_tokens"])
    compare("load: says the same", t, e.end())
    new, known = counts(t.screen)[-1]
    check("load: as without loading", new + known == sum(again) and new <= again[0] and known > 0, (new, known), again)
    t.send("\033[A")  # the history of the process before, and of this one
    check("history: recalls the last message", t.until(lambda t: t.screen.text()[-1] == "> last"), t.screen.text()[-1])
    t.send("\025")
    t.line_sent = -1
    t.until_prompt()
    t.send("\004")
    check("Ctrl-D leaves with 0", t.finish() == 0 and t.is_restored())
    t.close()
    return saved


def test_damage(model, saved):
    """A flipped bit anywhere is refused, and the conversation that there was stays."""
    with open(saved, "rb") as f:
        whole = f.read()
    bad = os.path.join(os.path.dirname(saved), "bad.session")
    places = [0, 9, 17, 25, 50, 70, 90, 97, 120, len(whole) // 2, len(whole) - 1]
    for place in places:
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        with open(bad, "wb") as f:
            f.write(data)
        r = cli.run("chat", model, *WORDS, "--load", bad, stdin="hi\n")
        check(f"load: bit {place} flipped", r.code == 1 and r.out == b"" and "bad.session: " in r.err, r)
    for size in (0, 7, 50, 96, len(whole) - 1):
        with open(bad, "wb") as f:
            f.write(whole[:size])
        r = cli.run("chat", model, *WORDS, "--load", bad, stdin="hi\n")
        check(f"load: cut to {size} bytes", r.code == 1 and r.out == b"" and "bad.session: " in r.err, r)
    os.remove(bad)


def test_other_model(model, saved):
    """The same shapes with one weight changed, another template value, another KV type, a smaller context."""
    tuned = cli.folder()
    for name in os.listdir(model):
        shutil.copy(os.path.join(model, name), tuned)
    shard = next(f for f in sorted(os.listdir(tuned)) if f.endswith(".safetensors") and f.startswith("model"))
    with open(os.path.join(tuned, shard), "r+b") as f:
        header = int.from_bytes(f.read(8), "little")
        f.seek(8 + header + 100)
        byte = f.read(1)[0]
        f.seek(8 + header + 100)
        f.write(bytes([byte ^ 1]))
    r = cli.run("chat", tuned, *WORDS, "--load", saved)
    check("load: a fine-tune is another model", r.code == 1 and "another model" in r.err, r)
    r = cli.run("chat", model, *WORDS, "--load", saved, "--kv-dtype", "bf16")
    check("load: another KV type", r.code == 1 and "KV type f32" in r.err, r)
    r = cli.run("chat", model, *WORDS, "--load", saved, "--context", 16)
    check("load: a smaller context", r.code == 1 and "context" in r.err, r)
    r = cli.run("chat", model, *WORDS, "--load", saved, "--cpu", "scalar")
    other = "note: saved by CPU level" in r.err
    check("load: another CPU level is said", r.code == 0 and (other or "scalar" in cli.run("devices").out.decode()), r)
    r = cli.run("chat", model, *WORDS, stdin=f"/save {saved}\n")
    check("save: overwrites nothing of others", "already" in r.err, r)
    r = cli.run("chat", model, *WORDS, stdin="/save -\n")
    check("save: - is no file", "not saved: - would be stdout" in r.err and not os.path.exists("-"), r)
    r = cli.run("chat", model, *WORDS, stdin="/system -\n")
    check("system: none is there to remove", "there is no system message" in r.err and "removed" not in r.err, r)


# ---- interrupts ------------------------------------------------------------------------------------------------------

def test_interrupt(home):
    """A model that never ends, at a context that takes it long."""
    model = make_model(eos_token_id=5, max_position_embeddings=65536)
    t = Terminal("chat", model, "--temperature", "0", "-c", "65536", XDG_STATE_HOME=home)
    t.until_prompt()
    begin = len(t.raw)
    t.say("go on")
    t.until(lambda t: len(t.raw) > begin + 200)
    t.send("\003")
    check("Ctrl-C stops the answer", t.until_text("; interrupted]") and t.until_prompt(), t.screen.text()[-2:])
    n = next((int(m.group(1)) for m in map(re.compile(r"\[(\d+) tokens").match, t.screen.text()) if m), 0)
    told = ask(model, [user("go on")], "-n", n)
    e = Expected().line("> go on").answer(told["message"]["content"], told["usage"].get("prompt_tokens"), 65536, "; interrupted", n)
    compare("Ctrl-C: the screen holds what was said until then", t, e.end())
    t.say("/stats")
    check("Ctrl-C keeps what was said", t.until_text("2 messages"), t.screen.text()[-8:])
    t.until_prompt()
    t.line_sent = t.screen.y
    t.send("half a line\003")
    t.until_prompt()
    t.send("x")
    check("Ctrl-C at the prompt: the line is thrown away, once more leaves", t.until(lambda t: t.screen.text()[-1].endswith("x"))
          and t.screen.text()[-2:] == ["Ctrl-C once more leaves", "> x"], t.screen.text()[-3:])
    t.send("\003")
    check("Ctrl-C twice: 130", t.finish() == 130 and t.is_restored(), t.process.returncode)
    t.close()

    t = Terminal("chat", model, "--temperature", "1", "--seed", "3", "-c", "65536", XDG_STATE_HOME=home)
    t.until_prompt()
    begin = len(t.raw)
    t.say("go on")
    t.until(lambda t: len(t.raw) > begin + 200)
    t.send("\003")
    t.until_text("; interrupted]")
    t.send("\003")
    check("Ctrl-C in an answer and after it: 130", t.finish() == 130 and t.is_restored(), t.process.returncode)
    t.close()


# ---- stopped and woken -----------------------------------------------------------------------------------------------

def test_suspend(model, home):
    """Ctrl-Z gives the terminal back; the line that was begun, and an answer under way, go on afterwards."""
    job = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "job.py")]
    first = ask(model, [user("half a line")])
    t = Terminal("chat", model, *WORDS, under=job, XDG_STATE_HOME=home)
    t.until_prompt()
    t.send("half a ")
    t.until_text("> half a")
    t.send("\032")
    check("Ctrl-Z: the terminal is as it was", t.until_text("[stopped; echo True, lines True]") and 2004 not in t.screen.modes,
          t.screen.text()[-3:])
    t.line_sent = t.screen.y
    t.send("fg\r")
    check("woken: the line is there again", t.until(lambda t: t.screen.y > t.line_sent and t.screen.text()[-1] == "> half a")
          and 2004 in t.screen.modes, t.screen.text()[-3:])
    t.say("line")
    t.until_prompt()
    e = Expected().line("> half a line").answer(first["message"]["content"], first["usage"]["prompt_tokens"])
    got = seen(t.screen.text())
    check("and can be finished", got[got.index("> half a line"):] == e.end(), got[-5:])
    t.say("/quit")
    check("woken, it ends as ever", t.finish() == 0 and t.is_restored())
    t.close()

    endless = make_model(eos_token_id=5, max_position_embeddings=65536)
    t = Terminal("chat", endless, "--temperature", "0", "-c", "65536", under=job, XDG_STATE_HOME=home)
    t.until_prompt()
    begin = len(t.raw)
    t.say("go on")
    t.until(lambda t: len(t.raw) > begin + 200)
    t.send("\032")
    check("Ctrl-Z in an answer", t.until_text("[stopped; echo True, lines True]"), t.screen.text()[-3:])
    begin = len(t.raw)
    t.send("fg\r")
    check("woken: it goes on", t.until(lambda t: len(t.raw) > begin + 200), t.screen.text()[-3:])
    t.send("\003")
    check("and can be interrupted", t.until_text("; interrupted]") and t.until_prompt(), t.screen.text()[-3:])
    t.say("/quit")
    check("and left", t.finish() == 0 and t.is_restored())
    t.close()


def test_keys(home):
    """Keys that many terminals send move the cursor; none of them leaves letters."""
    model = make_model("{{ messages[-1].content }}")
    t = Terminal("chat", model, *WORDS, XDG_STATE_HOME=home)
    t.until_prompt()
    t.send("ab cd\033[1;5DX\033[HY\033[FZ\033[1~\033[3~\033[4~\033[1;5D\033[1;5C!\033[2~\033OH(\033OF)")
    check("keys move and delete", t.until_text("> (ab XcdZ!)"), t.screen.text()[-1])
    t.send("\033[5~")
    t.send("\025")
    t.line_sent = -1
    t.until_prompt()
    t.line_sent = t.screen.y
    t.send("\033[200~two\rlines\033[201~\\\r")
    t.until_prompt("| ")
    t.line_sent = t.screen.y
    t.send("\003")
    t.until_prompt()
    t.say("after a paste")
    t.until_prompt()
    t.send("\033[A")
    check("a paste that Ctrl-C took keeps no later message out of the history", t.until_text("> after a paste") and
          t.until(lambda t: t.screen.text()[-1] == "> after a paste"), t.screen.text()[-3:])
    t.send("\025")
    t.line_sent = -1
    t.until_prompt()
    t.send("\004")
    check("and Ctrl-D leaves", t.finish() == 0)
    t.close()


# ---- messages that get no answer -------------------------------------------------------------------------------------

def test_taken_back(home):
    """A message for which there is no room, or that the template refuses, or whose prompt was interrupted, is gone from the
    conversation, and the person is told; what was said before stays, and the conversation goes on."""
    model = make_model("{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not that') }}{% endif %}"
                       "{{ '[' + m.role + ']' + m.content + '\n' }}{% endfor %}{{ '[assistant]' }}",
                       eos_token_id=5, max_position_embeddings=65536)
    talk = [user("hello")]
    first = ask(model, talk)
    second = ask(model, talk + [first["message"], user("short")])
    context = second["usage"]["prompt_tokens"] + N + 5
    t = Terminal("chat", model, *WORDS, "-c", context, XDG_STATE_HOME=home)
    t.until_prompt()
    t.say("hello")
    t.until_prompt()
    e = Expected().line("> hello").answer(first["message"]["content"], first["usage"]["prompt_tokens"], context)
    for text, why in (("x" * 80, None), ("no", "not that")):
        t.say(text)
        check(f"{text[:3]}: taken back", t.until_prompt() and "your message is taken back" in "".join(t.screen.text()[-4:]),
              t.screen.text()[-4:])
        shown = "\n".join(t.screen.text()[-4:]).replace("\n", "")
        check(f"{text[:3]}: and why", (why or f"the context holds {context}") in shown, shown)
        t.say("/stats")
        t.until_prompt()
        check(f"{text[:3]}: only what was answered is left", any("; 2 messages" in line for line in t.screen.text()[-6:]),
              t.screen.text()[-8:])
    at = len(t.screen.text()) - 1
    t.say("short")
    t.until_prompt()
    e = Expected().line("> short").answer(second["message"]["content"], second["usage"]["prompt_tokens"], context)
    got = seen(t.screen.text()[at:])
    check("and the next answer knows nothing of them", got == e.end(), got, e.screen.text())
    t.say("/quit")
    check("which is no failure", t.finish() == 0)
    t.close()

    t = Terminal("chat", model, *WORDS, "-c", "65536", XDG_STATE_HOME=home)
    t.until_prompt()
    t.send("\033[200~" + "line of a long text\r" * 3000 + "\033[201~")
    t.until_text("> [paste 1: 3000 lines]")
    t.say("")
    check("a long prompt shows how far it is", t.until_text("prompt: "), t.screen.text()[-3:])
    t.send("\003")
    check("Ctrl-C before the answer", t.until_text("interrupted before the answer began")
          and t.until_text("your message is taken back") and t.until_prompt(), t.screen.text()[-4:])
    t.say("/stats")
    check("leaves nothing behind", t.until_text("; 0 messages"), t.screen.text()[-8:])
    t.until_prompt()
    t.say("hello")
    t.until_prompt()
    check("and the conversation goes on", safe(first["message"]["content"]).split("\n")[0][:90] in "\n".join(t.screen.text()),
          t.screen.text()[-4:])
    t.say("/quit")
    t.finish()
    t.close()


# ---- looks -----------------------------------------------------------------------------------------------------------

def test_reasoning(home):
    """The native renderer of the family begins in reasoning, where a random model stays."""
    model = make_model(template=None)
    told = ask(model, [user("hi")])["message"]["reasoning_content"]
    t = Terminal("chat", model, *WORDS, XDG_STATE_HOME=home)
    t.until_prompt()
    t.say("hi")
    t.until_prompt()
    dim = t.screen.dim_text()
    want = Screen()
    want.feed(safe(told).replace("\n", "\r\n"))
    check("reasoning is dimmed", "".join(want.text()).replace(" ", "") in dim.replace(" ", ""), dim, want.text())
    t.say("/think")
    t.until_prompt()
    t.say("/regen")
    check("reasoning is folded", t.until_text("(reasoning folded; /think shows it)"), t.screen.text()[-4:])
    t.until_prompt()
    n = len(t.screen.text())
    t.say("/think")
    t.until_prompt()
    shown = "".join(t.screen.text()[n:])
    check("and unfolded", "".join(want.text()).replace(" ", "")[:20] in shown.replace(" ", ""), shown)
    t.say("/quit")
    t.finish()
    t.close()
    for name, env in (("NO_COLOR", {"NO_COLOR": "1"}), ("TERM=dumb", {"TERM": "dumb"})):
        t = Terminal("chat", model, *WORDS, XDG_STATE_HOME=home, **env)
        t.until_prompt()
        t.say("hi")
        t.until_prompt()
        check(f"{name}: no colour", b"\033[2m" not in t.raw and "(reasoning)" in t.screen.text(), t.raw[-300:])
        if name == "TERM=dumb":
            check(f"{name}: no escape sequence at all", b"\033" not in t.raw, t.raw[-300:])
        t.send("\004")
        check(f"{name}: Ctrl-D leaves", t.finish() == 0 and t.is_restored())
        t.close()


def test_narrow(model, home):
    t = Terminal("chat", model, *WORDS, columns=1, rows=40, XDG_STATE_HOME=home)
    t.until(lambda t: b"leaves" in t.raw.replace(b"\r\n", b""))
    t.send("\004")
    check("one column: it still leaves", t.finish() == 0, t.process.returncode)
    t.close()


def test_no_history(model):
    t = Terminal("chat", model, *WORDS, XDG_STATE_HOME="/proc/nowhere")
    t.until_prompt()
    t.say("hi")
    check("history that cannot be written is no failure", t.until_prompt() and counts(t.screen), t.screen.text()[-3:])
    t.say("/quit")
    check("and no reason to fail", t.finish() == 0)
    t.close()


def history_of(home):
    path = os.path.join(home, "baltoro", "history")
    return open(path, "rb").read() if os.path.exists(path) else None


def test_history(model):
    """Two conversations at once keep each other's lines; a file of another kind stays as it is; /dev/null keeps none."""
    home = cli.folder()
    first, second = (Terminal("chat", model, *WORDS, XDG_STATE_HOME=home) for _ in range(2))
    first.until_prompt()
    second.until_prompt()
    for t, line in ((first, "/temp 0.1"), (second, "/temp 0.2"), (first, "/temp 0.3")):
        t.say(line)
        t.until_prompt()
    lines = history_of(home).split(b"\n")
    check("history: two at once keep all lines, in order",
          lines == [b"_HiStOrY_V2_", *[b"/temp\\0400." + n for n in (b"1", b"2", b"3")], b""], lines)
    mode = os.stat(os.path.join(home, "baltoro", "history")).st_mode & 0o777
    check("history: for its owner alone", mode == 0o600, oct(mode))
    for t in (first, second):
        t.say("/quit")
        t.finish()
        t.close()

    long = b"_HiStOrY_V2_\n" + b"".join(b"line%d\n" % i for i in range(2500))
    cut = b"_HiStOrY_V2_\n/temp\\0402"
    for before, after in ((b"mine\n", b"mine\n"), (long, None), (b"", b"_HiStOrY_V2_\n/temp\\0401\n"),
                          (cut, cut + b"\n/temp\\0401\n")):
        with open(os.path.join(home, "baltoro", "history"), "wb") as f:
            f.write(before)
        t = Terminal("chat", model, *WORDS, XDG_STATE_HOME=home)
        t.until_prompt()
        told = any("no history is kept" in line for line in t.screen.text())
        check(f"history: {before[:5]} is told of", told == (before == b"mine\n"), t.screen.text())
        t.say("/temp 1")
        t.until_prompt()
        t.say("/quit")
        t.finish()
        t.close()
        lines = history_of(home).split(b"\n")[1:-2]
        check(f"history: {before[:5]}, afterwards", history_of(home).startswith(after + b"/quit" * (before == b"")) if after else
              lines == [b"line%d" % i for i in range(1500, 2500)] + [b"/temp\\0401"], history_of(home)[:200], len(lines))

    t = Terminal("chat", model, *WORDS, XDG_STATE_HOME="/dev/null", HOME=home)
    t.until_prompt()
    t.say("/temp 1")
    t.until_prompt()
    t.say("/quit")
    check("history: /dev/null keeps none", t.finish() == 0 and not os.path.exists(os.path.join(home, ".local")))
    t.close()


def test_history_kinds(model):
    """What is no regular file is neither waited for nor changed; what cannot be read is told of as that."""
    master, slave = pty.openpty()  # a device of this test's own
    os.fchmod(slave, 0o620)

    def link(to):
        return lambda path: os.symlink(to, path)
    for name, make, note in (("a FIFO", os.mkfifo, "history is a file of another kind"),
                             ("a folder", os.mkdir, "history is a file of another kind"),
                             ("a device", link(os.ttyname(slave)), None),
                             ("a link to itself", link("history"), "history cannot be read: Too many levels of symbolic links")):
        home = cli.folder()
        path = os.path.join(home, "baltoro", "history")
        os.mkdir(os.path.dirname(path))
        make(path)
        t = Terminal("chat", model, *WORDS, columns=300, XDG_STATE_HOME=home)
        check(f"history: {name} is not waited for", t.until_prompt(), t.screen.text())
        told = [line for line in t.screen.text() if "no history is kept" in line]
        check(f"history: {name}, told", told == [f"no history is kept: {home}/baltoro/{note}"] if note else not told, told)
        t.say("/temp 1")
        t.until_prompt()
        t.say("/quit")
        check(f"history: {name} is no reason to fail", t.finish() == 0)
        t.close()
        check(f"history: {name} stays what it is", os.listdir(os.path.dirname(path)) == ["history"])
    mode = os.fstat(slave).st_mode & 0o777
    check("history: a device keeps its mode", mode == 0o620, oct(mode))
    check("history: and nothing is written to it", not select.select([master], [], [], 0)[0])
    os.close(master)
    os.close(slave)


# ---- no terminal -----------------------------------------------------------------------------------------------------

def test_lines(model):
    """Every line of stdin is a message; stdout holds the answers alone."""
    first = ask(model, [user("one")])
    second = ask(model, [user("one"), first["message"], user("two\n2")])

    def line(message):
        return message["message"]["content"] if message["message"]["content"].endswith("\n") else \
            message["message"]["content"] + "\n"
    r = cli.run("chat", model, *WORDS, stdin="one\n\n/stats\ntwo\\\n2\n")
    check("lines: the answers and nothing else", r.code == 0 and r.out.decode() == line(first) + line(second), r, first)
    r = cli.run("chat", model, *WORDS, stdin="")
    check("lines: nothing in, nothing out", r.code == 0 and r.out == b"", r)
    r = cli.run("chat", model, *WORDS, "-c", 40, stdin="one\ntwo\nthree\n")
    check("lines: a full context ends with an error and its numbers", r.code == 1 and "the context holds 40" in r.err, r)
    r = cli.run("chat", model, *WORDS, stdin=b"\xff\xfe\n")
    check("lines: not UTF-8 is refused", r.code == 2 and "UTF-8" in r.err and r.out == b"", r)
    p = cli.start("chat", model, *map(str, WORDS), stderr=None)
    p.stdin.write(b"one\n")
    p.stdin.flush()
    got = p.stdout.read(len(line(first).encode()))
    check("lines: an answer comes before the next line is asked for", got == line(first).encode(), got)
    p.stdin.close()
    check("lines: ends with stdin", p.wait(60) == 0)


def main():
    home, model = cli.folder(), make_model(max_position_embeddings=16384)
    saved = test_conversation(model, home)
    if os.path.exists(saved):
        test_damage(model, saved)
        test_other_model(model, saved)
    test_interrupt(home)
    test_taken_back(home)
    test_suspend(model, home)
    test_keys(home)
    test_reasoning(home)
    test_narrow(model, home)
    test_no_history(model)
    test_history(model)
    test_history_kinds(model)
    test_lines(model)
    cli.finish()


main()
