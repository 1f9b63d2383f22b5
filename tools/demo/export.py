"""Writes the trained demo model as a Hugging Face folder.

usage: export.py RUN_FOLDER MODEL_FOLDER [--difference BALTORO]

MODEL_FOLDER holds the tokenizer and the model card; it gets model.safetensors (BF16; Kimi's experts MXFP4), config.json,
generation_config.json and, for K2-Horizon, chat_template.jinja. --difference compares logits with the program's, on a
conversation with tools: PyTorch in float64 on the rounded weights against `BALTORO logits`.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import data
import families
import torch
from safetensors.torch import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def chat_template():
    """The template that the tests hold against the program's own renderer, with another remark at its head."""
    with open(os.path.join(ROOT, "tests", "data", "chat", "k2_horizon.jinja"), encoding="utf-8") as f:
        _, rest = f.read().split("-#}", 1)
    return "{#- The documented chat format of K2-Horizon as a template of baltoro's own; the published one is another text. -#}" + rest


def describe_k2(folder, t, config):
    write_json(folder, "config.json", config)
    write_json(folder, "generation_config.json", {
        "bos_token_id": 0, "eos_token_id": [1, t.added["<|ifm|im_end|>"]], "do_sample": False, "transformers_version": "5.13.0",
    })  # fmt: skip
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(chat_template())


def describe_kimi(folder, t, config):
    """The chat format is the program's own: the vendor ships no template."""
    ids = {"bos_token_id": t.special["[BOS]"], "eos_token_id": t.special["<|end_of_msg|>"], "pad_token_id": t.special["[PAD]"]}
    write_json(folder, "config.json", {**config, **ids, "text_config": {**config["text_config"], **ids}})
    write_json(folder, "generation_config.json", {**ids, "do_sample": False})


def export(run, folder):
    state = torch.load(os.path.join(run, "checkpoint.pt"))
    name = state.get("family", "k2")
    family = families.FAMILIES[name]
    weights = family.architecture.stored(state["model"])
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    t = family.tokenizer(folder)
    {"k2": describe_k2, "kimi": describe_kimi}[name](folder, t, family.architecture.configured(t.size))
    size = os.path.getsize(os.path.join(folder, "model.safetensors"))
    print("step %d, %d parameters, %d bytes" % (state["step"], sum(w.numel() for w in state["model"].values()), size))


def difference(folder, program):
    family = families.of(folder)
    ids, _ = family.tokenizer(folder).example(data.trial(data.ask_weather, 1, family.talk))
    with open(os.path.join(folder, "config.json")) as f:
        model = family.architecture.Model(json.load(f)).double()
    model.load_state_dict(family.architecture.loaded(load_file(os.path.join(folder, "model.safetensors"))))
    with torch.no_grad():
        ours = model(torch.tensor([ids]))[0]
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "logits.safetensors")
        subprocess.run([program, "logits", folder, "--ids", ",".join(map(str, ids)), "--output", out, "-q"], check=True)
        theirs = load_file(out)["logits"].double()
    worst = (ours - theirs).abs().max().item()
    print("largest difference of %d logits: %.3g (logits up to %.3g)" % (ours.numel(), worst, ours.abs().max()))
    return worst < 1e-3


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("run")
    p.add_argument("model")
    p.add_argument("--difference", metavar="BALTORO")
    o = p.parse_args()
    export(o.run, o.model)
    if o.difference and not difference(o.model, o.difference):
        sys.exit(1)
