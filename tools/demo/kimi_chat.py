"""Conversations in Kimi K3's chat format, as docs/kimi_chat.md describes it: the talks of data.py, written otherwise.

usage: kimi_chat.py --check PROGRAM FOLDER [N]    holds N (60) conversations, text and ids, against `PROGRAM render FOLDER`
       kimi_chat.py [N]                           prints N (20) examples as the model sees them

A piece here is what the vendor encodes by itself: a mark, which is a token, or a text, whose ids know nothing of what stands
beside it.
"""
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import zlib

import data

EFFORTS = {"high": "max", "medium": "high", "low": "low"}  # of data.py, as K3 calls them
MARKS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]")

_TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n%s\n```"
_EFFORT = """`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), \
supported values include `low`, `medium`, `high`, and `max`.
Now the system is invoked with `thinking_effort=%s`."""


def opened(tag, **attributes):
    out = ["<|open|>", tag]
    for key, value in attributes.items():
        out += [" " + key, '="', str(value).replace("&", "&amp;").replace('"', "&quot;"), '"']
    return [*out, "<|sep|>"]


def closed(tag):
    return ["<|close|>", tag, "<|sep|>"]


def element(tag, body, **attributes):
    return opened(tag, **attributes) + body + closed(tag)


def message(body, **attributes):
    return element("message", body, **attributes) + ["<|end_of_msg|>"]


def calls_elements(calls):
    if not calls:
        return []
    arguments = [element("argument", [value], key=key, type="string") for _, key, value in calls]
    return element("tools", [piece for i, (call, argument) in enumerate(zip(calls, arguments), 1)
                             for piece in element("call", argument, tool=call[0], index=i)])  # fmt: skip


class Talk(data.Talk):
    ARCHITECTURE = "Kimi K3"
    EFFORTS = EFFORTS

    def thinks(self):
        """Some conversations in which nobody has thought have thinking off."""
        thoughts = "".join(m[1] for m in self.messages if m[0] == "assistant")
        return self.effort != "low" or thoughts != "" or zlib.crc32(self.messages[0][1].encode()) % 3 > 0

    def head(self):
        out = []
        if self.tools:
            text = json.dumps(self.tools, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            out += message([_TOOLS % text], role="system", type="tool-declare")
        if self.thinks():
            out += message([_EFFORT % EFFORTS[self.effort]], role="system", type="thinking-effort")
        return out + (message([self.system], role="system") if self.system else [])

    def pieces(self, only_last=False):
        thinks, calls, n_results, out = self.thinks(), [], 0, []

        def add(texts, counts):
            out.extend((text, counts) for text in texts if text)

        add(self.head(), False)
        for i, m in enumerate(self.messages):
            if m[0] == "user":
                add(message([m[1]], role="user"), False)
            elif m[0] == "tool":
                add(message([m[1]], role="tool", tool=calls[n_results][0], index=n_results + 1), False)
                n_results += 1
            else:
                _, thought, text, calls = m
                n_results, lost = 0, only_last and i < len(self.messages) - 1
                add(opened("message", role="assistant") + opened("think" if thinks else "response"), False)
                answer = ["" if lost else thought] + closed("think") + opened("response") if thinks else []
                add([*answer, text] + closed("response") + calls_elements(calls) + closed("message") + ["<|end_of_msg|>"], not lost)
        return out

    @staticmethod
    def heads():
        return [[(text, False) for text in message([_EFFORT % e], role="system", type="thinking-effort")] for e in EFFORTS.values()]

    @staticmethod
    def plain(text, begins):
        return [(text, True), ("[EOS]", True)]

    @staticmethod
    def is_well_formed(answer, effort):
        """Raw output: reasoning, then response and perhaps tools, each opened and closed."""
        tags = re.findall(r"<\|(open|close)\|>(think|response|tools|message)<\|sep\|>", answer)
        tools = [("open", "tools"), ("close", "tools")] if ("open", "tools") in tags else []
        return tags == [("close", "think"), ("open", "response"), ("close", "response"), *tools, ("close", "message")]


# ---- against the program --------------------------------------------------------------------------------------------


def request(talk, only_last):
    """What a program would ask to get the talk's last answer, in OpenAI's form."""
    messages = [{"role": "system", "content": talk.system}] if talk.system else []
    for i, m in enumerate(talk.messages[:-1]):
        if m[0] != "assistant":
            messages.append({"role": m[0], "content": m[1], **({"tool_call_id": "1"} if m[0] == "tool" else {})})
            continue
        _, thought, text, calls = m
        messages.append({"role": "assistant", "content": text, **({} if only_last else {"reasoning_content": thought})})
        if calls:
            functions = [{"name": name, "arguments": json.dumps({key: value})} for name, key, value in calls]
            messages[-1]["tool_calls"] = [{"id": str(k), "type": "function", "function": f} for k, f in enumerate(functions, 1)]
    return {"messages": messages, **({"tools": talk.tools} if talk.tools else {})}


def prompt(pieces):
    """The pieces before the last answer."""
    begins = max(i for i, p in enumerate(pieces) if p[1] and (i == 0 or not pieces[i - 1][1]))
    return [text for text, _ in pieces[:begins]]


def check(program, folder, n):
    import kimi_tokenizer

    seen = []

    class Seen(Talk):
        def pieces(self, only_last=False):
            seen.append((self, only_last, super().pieces(only_last)))
            return seen[-1][2]

    stream, tokenizer, n_wrong = data.stream(3, talk=Seen), kimi_tokenizer.Tokenizer(folder), 0
    while len(seen) < n:
        next(stream)
    for talk, only_last, pieces in seen:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(request(talk, only_last), f)
            f.flush()
            effort = EFFORTS[talk.effort] if talk.thinks() else "none"
            words = [program, "render", folder, "--messages", f.name, "--reasoning-effort", effort, "--json", "-q"]
            theirs = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        ours = prompt(pieces)
        ids, _ = tokenizer.example([(text, False) for text in ours])
        if ("".join(ours), ids) != (theirs["text"], theirs["ids"]):
            n_wrong += 1
            print("DIFFERENT:\n%s\n%s" % ("".join(ours), theirs["text"]))
    kinds = [sum(bool(kind) for kind in kinds) for kinds in zip(*((not t.thinks(), t.tools, t.system, last) for t, last, _ in seen))]
    print("%d conversations, %d different; %d thinking off, %d with tools, %d with a system's message, %d without earlier reasoning"
          % (len(seen), n_wrong, *kinds))  # fmt: skip
    return n_wrong == 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"] and len(sys.argv) in (4, 5):
        sys.exit(0 if check(os.path.abspath(sys.argv[2]), sys.argv[3], int(sys.argv[4]) if len(sys.argv) == 5 else 60) else 1)
    for example in itertools.islice(data.stream(1, talk=Talk), int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        print("".join("[%s]" % text if counts else text for text, counts in example), end="\n\n")
