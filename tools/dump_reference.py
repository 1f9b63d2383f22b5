#!/usr/bin/env python3
"""Run the vendor's own code on a checkpoint and write the logits that `baltoro verify` compares with.

usage: dump_reference.py MODEL OUT.safetensors [--ids 1,2,3]... [--text TEXT]... [--random N [--seed S]]...
                         [--dtype float64|float32|bfloat16] [--last M] [--trust-remote-code]

MODEL is a folder, or a name in the local Hugging Face cache; nothing is downloaded. transformers on PyTorch runs it,
both of the user's own install:

    python3 -m venv reference && reference/bin/pip install torch transformers
    reference/bin/python tools/dump_reference.py MODEL expected.safetensors --text "Once upon a time" --random 40
    baltoro verify MODEL expected.safetensors

Every prompt becomes two tensors, `ids.N` (I64 [n]) and `logits.N` (F32 [n, vocab], or the last M rows of it); N is
the number of ids, or the next free number where two prompts are equally long. Each prompt runs alone, without a
cache, with eager attention, on the CPU. --dtype is the type that weights and activations get (the vendor's code may
go through float32 in norms and rope all the same). float64 is the default because it is a truth to measure against,
and takes eight bytes a parameter; bfloat16 shows what the vendor's own rounding costs. Code inside the checkpoint
runs only with --trust-remote-code.
"""
import argparse
import json
import os
import struct
import sys


def parse(argv):
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].replace("usage: ", "", 1))
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--ids", action="append", default=[], help="token ids, separated by commas")
    p.add_argument("--text", action="append", default=[], help="a text for the model's tokenizer; no BOS is added")
    p.add_argument("--random", action="append", default=[], type=int, metavar="N", help="N random ids")
    p.add_argument("--seed", type=int, default=0, help="of --random (default 0)")
    p.add_argument("--dtype", choices=("float64", "float32", "bfloat16"), default="float64")
    p.add_argument("--last", type=int, metavar="M", help="keep the logits of the last M positions only")
    p.add_argument("--trust-remote-code", action="store_true", help="run Python code that the checkpoint brings")
    o = p.parse_args(argv)
    if not (o.ids or o.text or o.random):
        p.error("nothing to run: give --ids, --text or --random")
    if any(n < 1 for n in o.random) or (o.last is not None and o.last < 1):
        p.error("--random and --last take numbers from 1")
    if os.path.exists(o.out):
        p.error(f"{o.out} exists already")
    return o


def read_ids(text):
    try:
        return [int(x) for x in text.split(",")]
    except ValueError:
        sys.exit(f"dump_reference: --ids {text!r} is not a list of numbers separated by commas")


def prompts(o, n_vocab, tokenizer):
    """Every prompt as a list of ids, in the order ids, text, random."""
    import random
    rng = random.Random(o.seed)
    every = [read_ids(text) for text in o.ids]
    for text in o.text:
        every.append(tokenizer()(text, add_special_tokens=False)["input_ids"])
    every += [[rng.randrange(n_vocab) for _ in range(n)] for n in o.random]
    for ids in every:
        outside = [i for i in ids if not 0 <= i < n_vocab]
        if not ids or outside:
            sys.exit(f"dump_reference: a prompt is empty or leaves the vocabulary of {n_vocab} ids: {outside[:1]}")
    return every


def write_safetensors(path, tensors):
    """tensors: {name: (dtype string, numpy array)}. Written under another name and renamed when complete."""
    header, offset = {}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path + ".partial", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, array in tensors.values():
            f.write(array.tobytes())
    os.rename(path + ".partial", path)


def load(o):
    """(model, function that gives the tokenizer)"""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import torch
        import transformers
    except ImportError as e:
        sys.exit(f"dump_reference: {e.name} is not installed for this Python: pip install torch transformers")
    transformers.utils.logging.disable_progress_bar()
    code = {"trust_remote_code": o.trust_remote_code}

    def from_checkpoint(kind, **options):
        try:
            return kind.from_pretrained(o.model, **options, **code)
        except (OSError, ValueError, ImportError) as e:
            sys.exit(f"dump_reference: {kind.__name__} cannot open {o.model}: {str(e).strip().splitlines()[0]}")

    model = from_checkpoint(transformers.AutoModelForCausalLM, dtype=getattr(torch, o.dtype),
                            attn_implementation="eager")
    if hasattr(model, "set_experts_implementation"):  # else some go through a product that knows no float64
        model.set_experts_implementation("eager")
    return model.eval(), lambda: from_checkpoint(transformers.AutoTokenizer)


def main(argv):
    o = parse(argv)
    model, tokenizer = load(o)
    import numpy as np
    import torch
    n_vocab = model.get_input_embeddings().weight.shape[0]
    tensors = {}
    for ids in prompts(o, n_vocab, tokenizer):
        with torch.inference_mode():
            rows = model(torch.tensor([ids]), use_cache=False).logits[0]
        rows = rows[-o.last:] if o.last else rows
        rows = rows.to(torch.float32).contiguous().numpy()
        if not np.isfinite(rows).all():
            sys.exit(f"dump_reference: the reference itself gives logits that are not finite ({len(ids)} ids)")
        n = len(ids)
        while f"ids.{n}" in tensors:
            n += 1
        tensors[f"ids.{n}"] = ("I64", np.array(ids, np.int64))
        tensors[f"logits.{n}"] = ("F32", rows)
        print(f"ids.{n}: {len(ids)} ids, logits of {len(rows)} positions", file=sys.stderr)
    write_safetensors(o.out, tensors)


if __name__ == "__main__":
    main(sys.argv[1:])
