#!/usr/bin/env python3
"""Conversations with Kimi checkpoints from outside: a random model of each family with a tokenizer of single bytes."""
import base64
import json
import os
import re
import shutil
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import MODELS, check, finish, folder, run  # noqa: E402

K3 = ["[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>"]
LINEAR = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
          "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
          "<|tool_call_argument_begin|>", "<|tool_call_end|>"]


def grow_vocabulary(path, times):
    """The stored models know 96 ids; all are given again, so that there are enough for bytes and control tokens."""
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config.get("text_config", config)["vocab_size"] *= times
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    for name in [n for n in os.listdir(path) if n.startswith("model") and n.endswith(".safetensors")]:
        with open(os.path.join(path, name), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        header.pop("__metadata__", None)
        all_data = b""
        for tensor, t in header.items():
            begin, end = t["data_offsets"]
            n = times if tensor.endswith(("embed_tokens.weight", "lm_head.weight")) else 1
            t["shape"][:1] = [size * n for size in t["shape"][:1]]
            t["data_offsets"] = [len(all_data), len(all_data) + (end - begin) * n]
            all_data += data[begin:end] * n
        text = json.dumps(header).encode()
        with open(os.path.join(path, name), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + all_data)


def make(model, tokens):
    """The model with a tokenizer that gives each byte its value and the control tokens the ids behind them."""
    path = os.path.join(folder(), model)
    shutil.copytree(os.path.join(MODELS, model), path)
    grow_vocabulary(path, 3)
    with open(os.path.join(path, "tiktoken.model"), "w", encoding="ascii") as f:
        f.writelines(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    with open(os.path.join(path, "tokenizer_config.json"), "w", encoding="ascii") as f:
        json.dump({"added_tokens_decoder": {str(256 + i): {"content": t, **flags} for i, t in enumerate(tokens)}}, f)
    return path


def n_tokens(text, tokens):
    """Of a prompt in which no message says a control token."""
    parts = re.split("(" + "|".join(re.escape(t) for t in tokens) + ")", text)
    return sum(1 if p in tokens else len(p.encode()) for p in parts)


def ask(model, *words):
    r = run("run", model, "--chat", "-n", "12", "--temperature", "0", "--json", *words)
    return r, json.loads(r.out) if r.code == 0 else {"message": {}, "usage": {}}


def write(name, value):
    path = os.path.join(folder(), name)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)
    return path


tools = write("tools.json", [{"name": "look", "parameters": {"properties": {"at": {"type": "string"}}}}])
talk = write("talk.json", [
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "seen"}])
for model, tokens, family in (("k3-bf16", K3, "kimi_k3"), ("kimi-linear", LINEAR, "kimi_linear")):
    path = make(model, tokens)
    for words in (("-p", "hi"), ("-p", "hi", "--system", "short"), ("-p", "hi", "--tools", tools),
                  ("-p", "hi", "--reasoning-effort", "none"), ("--messages", talk, "--tools", tools)):
        r, answer = ask(path, *words)
        message = answer["message"]
        good = message.get("role") == "assistant" and answer.get("finish_reason") in ("length", "stop", "tool_calls")
        check(f"{model} {words}: an answer", good and f"native renderer of {family}" in r.err, r)
        if "--messages" in words:
            shown = run("render", path, *words)
        else:
            said = [{"role": "system", "content": "short"}] if "--system" in words else []
            file = write("said.json", said + [{"role": "user", "content": "hi"}])
            kept = [w for w in words if w not in ("-p", "hi", "--system", "short")]
            shown = run("render", path, "--messages", file, *kept)
        check(f"{model} {words}: the prompt's tokens",
              answer["usage"].get("prompt_tokens") == n_tokens(shown.out.decode(), tokens), r, shown)
        thinks = family == "kimi_k3" and "none" not in words
        check(f"{model} {words}: where the answer begins", message.get("content" if thinks else "reasoning_content") == "", r)
    again = [ask(path, "-p", "hi")[1]["message"] for _ in range(2)]
    check(f"{model}: the same again", again[0] == again[1], again)
    r = run("run", path, "-p", "hi", "-n", "3", "--temperature", "0")
    check(f"{model}: a text that is no chat", r.code == 0, r)
finish()
