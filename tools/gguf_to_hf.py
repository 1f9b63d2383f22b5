#!/usr/bin/env python3
"""Turn a GGUF file of a Llama model into a Hugging Face folder with float32 weights.

usage: gguf_to_hf.py MODEL.gguf OUT_FOLDER

Reads GGUF versions 2 and 3 (little-endian), architecture "llama", tensor types F32, F16, Q4_0, Q4_1 and Q8_0,
byte-level BPE vocabularies with the pre-tokenizers "smollm" and "gpt-2". Writes config.json, generation_config.json,
model.safetensors, tokenizer.json, tokenizer_config.json and, where the file has a template, chat_template.jinja.

Dequantisation is exact: a 4- or 8-bit integer times a half-precision scale fits a float32, and adding Q4_1's minimum
rounds once. llama.cpp's converter stores the rows of q and k so that rope's pairs are neighbours; here they are put
back to the order of the Hugging Face code, whose pairs lie half a head apart. Whatever could only be guessed is
refused: another architecture, a rope scaling, a bias, a tensor without a place, a pattern this tool does not know.

The folder appears complete or not at all: it is written under another name and renamed at the end.
"""
import json
import math
import mmap
import os
import shutil
import struct
import sys
import tempfile

import numpy as np


class Refused(Exception):
    """The input cannot be converted; the text is one sentence for the user."""


# ---- reading GGUF --------------------------------------------------------------------------------------------------

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
NAME_BYTES_MAX = 65535
DIMS_MAX = 4

# type number: (name, elements per block, bytes per block)
TENSOR_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}


class Cursor:
    """Takes values from the front of a buffer and refuses to read past its end."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n, what):
        left = len(self.data) - self.at
        if n > left:
            raise Refused(f"{what} needs {n} bytes at offset {self.at}, but {left} are left: the file is damaged")
        self.at += n
        return self.data[self.at - n:self.at]

    def scalar(self, form, what):
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def string(self, what, n_max=None):
        n = self.scalar("<Q", f"the length of {what}")
        if n_max is not None and n > n_max:
            raise Refused(f"{what} claims {n} bytes, more than {n_max}: the file is damaged")
        try:
            return str(self.take(n, what), "utf-8")
        except UnicodeDecodeError:
            raise Refused(f"{what} at offset {self.at - n} is not UTF-8") from None

    def value(self, kind, what):
        if kind in SCALARS:
            return self.scalar(SCALARS[kind], what)
        if kind == STRING:
            return self.string(what)
        if kind != ARRAY:
            raise Refused(f"{what} has the unknown value type {kind}")
        kind, n = self.scalar("<I", what), self.scalar("<Q", what)
        if kind in SCALARS:
            form = SCALARS[kind]
            return np.frombuffer(self.take(n * struct.calcsize(form), what), np.dtype(form)).tolist()
        if kind != STRING:
            raise Refused(f"{what} is an array of value type {kind}, which is not supported")
        if n > (len(self.data) - self.at) // 8:
            raise Refused(f"{what} claims {n} strings, more than the file can hold")
        return [self.string(f"{what}[{i}]") for i in range(n)]


class Gguf:
    """Metadata and tensor table of one file; `tensor(name)` decodes one tensor to float32 [out, in]."""

    def __init__(self, data):
        c = Cursor(data)
        if bytes(c.take(4, "the magic")) != b"GGUF":
            raise Refused("this is not a GGUF file: it does not begin with 'GGUF'")
        version = c.scalar("<I", "the version")
        if version not in (2, 3):
            raise Refused(f"GGUF version {version} is not supported, only 2 and 3 in little-endian order")
        n_tensors, n_values = c.scalar("<Q", "the tensor count"), c.scalar("<Q", "the metadata count")
        self.meta = {}
        for _ in range(self.bounded(n_values, 12, "metadata entries", data)):
            key = c.string("a metadata key", NAME_BYTES_MAX)
            if key in self.meta:
                raise Refused(f"metadata key {key} appears twice")
            self.meta[key] = c.value(c.scalar("<I", f"the type of {key}"), key)
        self.table = {}
        for _ in range(self.bounded(n_tensors, 24, "tensors", data)):
            self.read_entry(c)
        align = self.meta.get("general.alignment", 32)
        if not isinstance(align, int) or not 8 <= align <= 65536 or align & (align - 1):
            raise Refused(f"general.alignment is {align!r}, not a power of two from 8 to 65536")
        self.place_tensors(data, c.at + -c.at % align, align)

    @staticmethod
    def bounded(n, bytes_min, what, data):
        if n > len(data) // bytes_min:
            raise Refused(f"the file claims {n} {what}, more than its {len(data)} bytes can hold")
        return n

    def read_entry(self, c):
        name = c.string("a tensor name", NAME_BYTES_MAX)
        if name in self.table:
            raise Refused(f"tensor {name} appears twice")
        n_dims = c.scalar("<I", f"the rank of {name}")
        if not 1 <= n_dims <= DIMS_MAX:
            raise Refused(f"tensor {name} has {n_dims} dimensions, not 1 to {DIMS_MAX}")
        shape = [c.scalar("<Q", f"the shape of {name}") for _ in range(n_dims)][::-1]    # inner one first
        kind = c.scalar("<I", f"the type of {name}")
        if kind not in TENSOR_TYPES:
            known = ", ".join(t[0] for t in TENSOR_TYPES.values())
            raise Refused(f"tensor {name} has type {kind}, which is not supported: only {known} are")
        if 0 in shape or shape[-1] % TENSOR_TYPES[kind][1]:
            raise Refused(f"tensor {name} of type {TENSOR_TYPES[kind][0]} has the impossible shape {shape}")
        self.table[name] = (kind, shape, c.scalar("<Q", f"the offset of {name}"))

    def place_tensors(self, data, base, align):
        """Cut the data section; ranges must be aligned, inside the file and disjoint."""
        self.bytes, spans = {}, []
        for name, (kind, shape, offset) in self.table.items():
            _, per_block, block_bytes = TENSOR_TYPES[kind]
            size = math.prod(shape) // per_block * block_bytes
            if offset % align or base + offset + size > len(data):
                raise Refused(f"tensor {name} claims bytes {base + offset} to {base + offset + size} of a file of "
                              f"{len(data)} bytes at alignment {align}: the file is cut or damaged")
            spans.append((offset, offset + size, name))
            self.bytes[name] = data[base + offset:base + offset + size]
        spans.sort()
        for (_, end, first), (start, _, second) in zip(spans, spans[1:]):
            if start < end:
                raise Refused(f"tensors {first} and {second} overlap")

    def tensor(self, name):
        kind, shape, _ = self.table[name]
        return decode(TENSOR_TYPES[kind][0], self.bytes[name]).reshape(shape)


def decode(kind, data):
    """Block-quantised bytes to a flat float32 array."""
    if kind in ("F32", "F16"):
        return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[kind]).astype(np.float32)
    body = {"Q4_0": [("d", "<f2"), ("q", "u1", 16)], "Q4_1": [("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)],
            "Q8_0": [("d", "<f2"), ("q", "i1", 32)]}[kind]
    block = np.frombuffer(data, np.dtype(body))
    d = block["d"].astype(np.float32)[:, None]
    if kind == "Q8_0":
        return (block["q"] * d).reshape(-1)
    q = np.concatenate([block["q"] & 15, block["q"] >> 4], axis=1).astype(np.float32)    # low nibbles come first
    if kind == "Q4_0":
        return ((q - 8) * d).reshape(-1)
    return (q * d + block["m"].astype(np.float32)[:, None]).reshape(-1)


# ---- the model -----------------------------------------------------------------------------------------------------

def number(meta, key, kinds=(int,), default=None):
    value = meta.get(key, default)
    if value is None:
        raise Refused(f"metadata key {key} is missing")
    if not isinstance(value, kinds) or isinstance(value, bool) or not 0 < value < 2 ** 31:
        raise Refused(f"metadata key {key} is {value!r}, not a positive number")
    return value


def read_config(g):
    """config.json of the Hugging Face folder."""
    m = g.meta
    arch = m.get("general.architecture")
    if arch != "llama":
        raise Refused(f"general.architecture is {arch!r}; only 'llama' can be converted")
    if m.get("llama.rope.scaling.type", "none") != "none" or "rope_freqs.weight" in g.table:
        raise Refused("the file scales its rope frequencies, which this tool cannot carry over")
    if m.get("llama.expert_count", 0):
        raise Refused(f"llama.expert_count is {m['llama.expert_count']}; only dense models can be converted")
    if number(m, "llama.block_count") > len(g.table):
        raise Refused(f"llama.block_count is {m['llama.block_count']}, more than there are tensors ({len(g.table)})")
    heads, hidden = number(m, "llama.attention.head_count"), number(m, "llama.embedding_length")
    head_dim = number(m, "llama.attention.key_length", default=hidden // heads if hidden % heads == 0 else None)
    for key, want in (("llama.rope.dimension_count", head_dim), ("llama.attention.value_length", head_dim)):
        if m.get(key, want) != want:
            raise Refused(f"{key} is {m[key]!r} but a head has {head_dim} elements; only whole heads can be converted")
    if "token_embd.weight" not in g.table:
        raise Refused("tensor token_embd.weight is missing")
    float_dtype = (int, float)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": g.table["token_embd.weight"][1][0], "hidden_size": hidden,
        "intermediate_size": number(m, "llama.feed_forward_length"), "num_hidden_layers": m["llama.block_count"],
        "num_attention_heads": heads, "num_key_value_heads": number(m, "llama.attention.head_count_kv", default=heads),
        "head_dim": head_dim, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "max_position_embeddings": number(m, "llama.context_length"),
        "rms_norm_eps": shortest(number(m, "llama.attention.layer_norm_rms_epsilon", float_dtype)),
        "rope_theta": shortest(number(m, "llama.rope.freq_base", float_dtype, 10000.0)), "rope_scaling": None,
        "tie_word_embeddings": "output.weight" not in g.table, "torch_dtype": "float32",
    }
    for key in ("bos", "eos"):
        if f"tokenizer.ggml.{key}_token_id" in m:
            config[f"{key}_token_id"] = token_id(m, key, config["vocab_size"])
    if config["num_attention_heads"] % config["num_key_value_heads"] or head_dim % 2:
        raise Refused(f"{heads} heads over {config['num_key_value_heads']} for keys, {head_dim} wide, do not fit")
    return config


def shortest(x):
    """The number a person wrote: the shortest decimal that rounds to the same float32 (1e-05, not 9.99999974e-06)."""
    return float(str(np.float32(x)))


def token_id(meta, key, n_vocab):
    value = meta[f"tokenizer.ggml.{key}_token_id"]
    if not isinstance(value, int) or not 0 <= value < n_vocab:
        raise Refused(f"tokenizer.ggml.{key}_token_id is {value!r}, outside the vocabulary of {n_vocab}")
    return value


def plan_tensors(config):
    """[(Hugging Face name, GGUF name, shape, heads to unpermute or 0)], every tensor the model must have."""
    H, F, V, D = (config[k] for k in ("hidden_size", "intermediate_size", "vocab_size", "head_dim"))
    A, G = config["num_attention_heads"], config["num_key_value_heads"]
    plan = [("model.embed_tokens.weight", "token_embd.weight", [V, H], 0)]
    for i in range(config["num_hidden_layers"]):
        for name, source, shape, heads in (
                ("input_layernorm", "attn_norm", [H], 0), ("self_attn.q_proj", "attn_q", [A * D, H], A),
                ("self_attn.k_proj", "attn_k", [G * D, H], G), ("self_attn.v_proj", "attn_v", [G * D, H], 0),
                ("self_attn.o_proj", "attn_output", [H, A * D], 0), ("post_attention_layernorm", "ffn_norm", [H], 0),
                ("mlp.gate_proj", "ffn_gate", [F, H], 0), ("mlp.up_proj", "ffn_up", [F, H], 0),
                ("mlp.down_proj", "ffn_down", [H, F], 0)):
            plan.append((f"model.layers.{i}.{name}.weight", f"blk.{i}.{source}.weight", shape, heads))
    plan.append(("model.norm.weight", "output_norm.weight", [H], 0))
    if not config["tie_word_embeddings"]:
        plan.append(("lm_head.weight", "output.weight", [V, H], 0))
    return plan


def listed(names):
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def check_tensors(g, plan):
    missing = [source for _, source, _, _ in plan if source not in g.table]
    extra = sorted(set(g.table) - {source for _, source, _, _ in plan})
    if missing or extra:
        lists = (("tensors missing", missing), ("tensors without a place", extra))
        raise Refused("; ".join(f"{what}: {listed(names)}" for what, names in lists if names))
    for _, source, shape, _ in plan:
        if g.table[source][1] != shape:
            raise Refused(f"tensor {source} has shape {g.table[source][1]}, but the metadata asks for {shape}")


def unpermute(w, heads):
    """Rows of one head from neighbouring pairs (0, 1), (2, 3), … back to pairs half a head apart."""
    half = w.shape[0] // heads // 2
    return w.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(w.shape)


def write_weights(path, g, plan):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, _, shape, _ in plan:
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for name, source, _, heads in plan:
            w = g.tensor(source)
            if not np.isfinite(w).all():
                raise Refused(f"tensor {source} holds values that are not finite")
            f.write(np.ascontiguousarray(unpermute(w, heads) if heads else w, "<f4"))


# ---- the tokenizer -------------------------------------------------------------------------------------------------

CONTROL, USER_DEFINED = 3, 4
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PRE_TOKENIZERS = {
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
    "gpt-2": BYTE_LEVEL,
}


def string_list(meta, key):
    value = meta.get(key)
    if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
        raise Refused(f"metadata key {key} is missing or is not a list of strings")
    return value


def read_tokenizer(meta, n_vocab):
    """(tokenizer.json, tokenizer_config.json) as objects."""
    if meta.get("tokenizer.ggml.model") != "gpt2":
        raise Refused(f"tokenizer.ggml.model is {meta.get('tokenizer.ggml.model')!r}; only 'gpt2' can be converted")
    pre = meta.get("tokenizer.ggml.pre")
    if pre not in PRE_TOKENIZERS:
        raise Refused(f"tokenizer.ggml.pre is {pre!r}; only {' and '.join(map(repr, PRE_TOKENIZERS))} can be converted")
    tokens, merges = string_list(meta, "tokenizer.ggml.tokens"), string_list(meta, "tokenizer.ggml.merges")
    types = meta.get("tokenizer.ggml.token_type")
    if not isinstance(types, list) or len(types) != len(tokens):
        raise Refused("tokenizer.ggml.token_type is missing or does not have one entry per token")
    if len(tokens) != n_vocab or len(set(tokens)) != n_vocab:
        raise Refused(f"the vocabulary has {len(tokens)} entries, {len(set(tokens))} different, for {n_vocab} rows")
    vocab = {t: i for i, t in enumerate(tokens)}
    for i, merge in enumerate(merges):
        parts = merge.split(" ")
        if len(parts) != 2 or not all(p in vocab for p in (*parts, "".join(parts))):
            raise Refused(f"tokenizer.ggml.merges[{i}] is {merge!r}, which is not two tokens that make a third")
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": t == CONTROL}
             for i, t in enumerate(types) if t in (CONTROL, USER_DEFINED)]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[pre], "post_processor": None, "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [m.split(" ") for m in merges]},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
              "add_prefix_space": False, "add_bos_token": bool(meta.get("tokenizer.ggml.add_bos_token", False))}
    for key, name in (("bos", "bos_token"), ("eos", "eos_token"), ("unknown", "unk_token"), ("padding", "pad_token")):
        if f"tokenizer.ggml.{key}_token_id" in meta:
            config[name] = tokens[token_id(meta, key, n_vocab)]
    if isinstance(meta.get("tokenizer.chat_template"), str):
        config["chat_template"] = meta["tokenizer.chat_template"]
    return tokenizer, config


# ---- writing the folder --------------------------------------------------------------------------------------------

def write_text(folder, name, content):
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as f:
        f.write(text)


def convert(data, out):
    g = Gguf(data)
    config = read_config(g)
    plan = plan_tensors(config)
    check_tensors(g, plan)
    tokenizer, tokenizer_config = read_tokenizer(g.meta, config["vocab_size"])
    ends = {k: config[k] for k in ("bos_token_id", "eos_token_id") if k in config}
    out = os.path.abspath(out)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    folder = tempfile.mkdtemp(prefix=os.path.basename(out) + ".partial-", dir=os.path.dirname(out))
    try:
        os.chmod(folder, 0o755)
        write_text(folder, "config.json", config)
        write_text(folder, "generation_config.json", ends)
        write_text(folder, "tokenizer.json", tokenizer)
        write_text(folder, "tokenizer_config.json", tokenizer_config)
        if "chat_template" in tokenizer_config:
            write_text(folder, "chat_template.jinja", tokenizer_config["chat_template"])
        write_weights(os.path.join(folder, "model.safetensors"), g, plan)
        os.rename(folder, out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return len(plan), sum(math.prod(shape) for _, _, shape, _ in plan)


def main(argv):
    if len(argv) != 3:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    source, out = argv[1:]
    try:
        if os.path.lexists(out):
            raise Refused("the output folder exists already; remove it or name another")
        with open(source, "rb") as f:
            if os.fstat(f.fileno()).st_size < 24:
                raise Refused("this is not a GGUF file: it is shorter than 24 bytes")
            n_tensors, n_values = convert(memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)), out)
    except (Refused, OSError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else e
        print(f"gguf_to_hf: {os.path.basename(source)}: {reason}", file=sys.stderr)
        return 1
    print(f"{os.path.basename(out)}: {n_tensors} tensors, {n_values} values in float32")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
