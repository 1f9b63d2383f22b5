#!/usr/bin/env python3
"""tools/gguf_to_hf.py on GGUF files made here: every tensor type, the order of q and k rows, the tokenizer; damage.

usage: test_gguf_to_hf.py       (numpy)
"""
import json
import os
import struct
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "tools", "oracle")]

import gguf_to_hf as tool                       # noqa: E402
from checkpoint import read_safetensors         # noqa: E402

H, F, A, G, V = 64, 96, 4, 2, 262
D = H // A
TOKENS = [chr(256 + i) for i in range(256)] + ["<end>", "<mine>", "ab", "abab", "<a>", "x y"]
TYPES = [1] * 256 + [3, 4, 1, 1, 1, 1]


# ---- a GGUF writer -------------------------------------------------------------------------------------------------

def string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    """Type number and bytes, as llama.cpp's writer chooses them."""
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + string(v)
    items = b"".join(map(string, v)) if isinstance(v[0], str) else struct.pack(f"<{len(v)}i", *v)
    return struct.pack("<IIQ", 9, 8 if isinstance(v[0], str) else 5, len(v)) + items


def gguf(meta, tensors, version=3, align=32, shift=0):
    """tensors: {name: (type, shape [out, in], bytes)}; shift moves the second tensor's offset, to make an overlap."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(meta))
    out += b"".join(string(k) + value(v) for k, v in meta.items())
    at, body = 0, b""
    for i, (name, (kind, shape, data)) in enumerate(tensors.items()):
        out += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        out += struct.pack("<IQ", kind, at - (shift if i == 1 else 0))
        body += data + b"\0" * (-len(data) % align)
        at = len(body)
    return out + b"\0" * (-len(out) % align) + body


def encode(kind, a):
    """(bytes, the values they stand for), element by element: slow, plain, and nothing of the tool's."""
    if kind == 0:
        return a.astype("<f4").tobytes(), a.astype(np.float32)
    if kind == 1:
        return a.astype("<f2").tobytes(), a.astype(np.float16).astype(np.float32)
    rng, out, values = np.random.default_rng(1), b"", np.empty(a.size, np.float32)
    for b in range(a.size // 32):
        d, m = np.float16(rng.normal()), np.float16(rng.normal())
        q = rng.integers(-127, 128, 32) if kind == 8 else rng.integers(0, 16, 32)
        out += d.tobytes() + (m.tobytes() if kind == 3 else b"")
        out += q.astype(np.int8).tobytes() if kind == 8 else bytes(int(q[i] | q[i + 16] << 4) for i in range(16))
        for i in range(32):
            x = {2: float(d) * (int(q[i]) - 8), 3: float(d) * int(q[i]) + float(m), 8: float(d) * int(q[i])}[kind]
            values[b * 32 + i] = x
    return out, values.reshape(a.shape)


def pairs_adjacent(w, heads):
    """What llama.cpp's converter does to q and k: row (half, j) of a head goes to row 2 j + half."""
    out = np.empty_like(w)
    n = w.shape[0] // heads
    for h in range(heads):
        for r in range(n):
            out[h * n + r % (n // 2) * 2 + r // (n // 2)] = w[h * n + r]
    return out


def model(head=True):
    """(metadata, tensors, {Hugging Face name: expected values})"""
    meta = {
        "general.architecture": "llama", "llama.context_length": 512, "llama.embedding_length": H,
        "llama.block_count": 1, "llama.feed_forward_length": F, "llama.attention.head_count": A,
        "llama.attention.head_count_kv": G,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 50000.0,
        "llama.rope.dimension_count": D,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": TYPES, "tokenizer.ggml.merges": [f"{TOKENS[0]} {TOKENS[1]}", "ab ab"],
        "tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.eos_token_id": 257, "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages }}\r\nü"}
    meta["tokenizer.ggml.tokens"] = TOKENS[:258] + [TOKENS[0] + TOKENS[1], "abab", "ab", "x y"]
    rng, tensors, want = np.random.default_rng(0), {}, {}

    def put(name, source, kind, shape, heads=0):
        data, values = encode(kind, rng.normal(size=shape))
        if heads:                                   # permute whole rows of the encoded form: blocks never cross rows
            rows = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
            data = pairs_adjacent(rows, heads).tobytes()
        tensors[source], want[name] = (kind, list(shape), data), values

    put("model.embed_tokens.weight", "token_embd.weight", 8, (V, H))
    p, q = "model.layers.0.", "blk.0."
    put(p + "input_layernorm.weight", q + "attn_norm.weight", 0, (H,))
    put(p + "self_attn.q_proj.weight", q + "attn_q.weight", 3, (H, H), A)
    put(p + "self_attn.k_proj.weight", q + "attn_k.weight", 2, (G * D, H), G)
    put(p + "self_attn.v_proj.weight", q + "attn_v.weight", 1, (G * D, H))
    put(p + "self_attn.o_proj.weight", q + "attn_output.weight", 8, (H, H))
    put(p + "post_attention_layernorm.weight", q + "ffn_norm.weight", 0, (H,))
    put(p + "mlp.gate_proj.weight", q + "ffn_gate.weight", 3, (F, H))
    put(p + "mlp.up_proj.weight", q + "ffn_up.weight", 2, (F, H))
    put(p + "mlp.down_proj.weight", q + "ffn_down.weight", 3, (H, F))
    put("model.norm.weight", "output_norm.weight", 0, (H,))
    if head:
        put("lm_head.weight", "output.weight", 0, (V, H))
    return meta, tensors, want


# ---- tests ---------------------------------------------------------------------------------------------------------

def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8", newline="") as f:
        return f.read() if name.endswith(".jinja") else json.load(f)


def test_weights_and_config(out):
    for head, version in ((True, 3), (False, 2)):
        meta, tensors, want = model(head)
        folder = os.path.join(out, f"m{version}")
        tool.convert(gguf(meta, tensors, version), folder)
        got = read_safetensors(os.path.join(folder, "model.safetensors"))
        assert set(got) == set(want)
        for name, values in want.items():
            assert got[name][0] == "F32" and np.array_equal(got[name][1], values), name
        c = read(folder, "config.json")
        assert c["tie_word_embeddings"] is not head and c["rms_norm_eps"] == 1e-5 and c["rope_theta"] == 50000.0
        assert (c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["vocab_size"]) == (A, G, D, V)
        assert (c["bos_token_id"], c["eos_token_id"]) == (256, 257)
        assert read(folder, "generation_config.json")["eos_token_id"] == 257
    assert sorted(os.listdir(out)) == ["m2", "m3"]      # no partial folder is left


def test_tokenizer(out):
    meta, tensors, _ = model()
    folder = os.path.join(out, "m")
    tool.convert(gguf(meta, tensors), folder)
    t, c = read(folder, "tokenizer.json"), read(folder, "tokenizer_config.json")
    added = [(a["id"], a["content"], a["special"]) for a in t["added_tokens"]]
    assert added == [(256, "<end>", True), (257, "<mine>", False)]
    assert t["model"]["merges"] == [[TOKENS[0], TOKENS[1]], ["ab", "ab"]] and t["model"]["vocab"]["x y"] == 261
    assert [p["type"] for p in t["pre_tokenizer"]["pretokenizers"]] == ["Digits", "ByteLevel"]
    assert c["bos_token"] == "<end>" and c["add_bos_token"] is False
    assert c["chat_template"] == read(folder, "chat_template.jinja") == "{{ messages }}\r\nü"


def refused(data, part, out):
    try:
        tool.convert(data, os.path.join(out, "refused"))
    except tool.Refused as e:
        assert part in str(e), f"{part!r} is not in {e}"
        assert not os.listdir(out), "something was left behind"
        return
    raise AssertionError(f"accepted, although {part!r}")


def test_refusals(out):
    def changed(part, drop=None, tensor=None, **change):
        meta, tensors, _ = model()
        meta.update({k.replace("__", "."): v for k, v in change.items()})
        meta.pop(drop, None)
        tensors.update(tensor or {})
        refused(gguf(meta, {k: v for k, v in tensors.items() if v is not None and k != drop}), part, out)

    refused(b"GGML" + bytes(40), "does not begin with 'GGUF'", out)
    refused(gguf(*model()[:2], version=1), "version 1", out)
    refused(gguf(*model()[:2], shift=32), "overlap", out)
    refused(b"GGUF" + struct.pack("<IQQ", 3, 2 ** 60, 0), "tensors, more than", out)
    refused(b"GGUF" + struct.pack("<IQQ", 3, 0, 2 ** 60), "metadata entries, more than", out)
    one = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a")
    refused(one + struct.pack("<IIQ", 9, 8, 2 ** 50) + bytes(64), "strings", out)
    refused(one + struct.pack("<IIQ", 9, 9, 1) + bytes(64), "array of", out)
    changed("'mamba'", general__architecture="mamba")
    changed("rope", **{"llama.rope.scaling.type": "yarn"})
    changed("rope", tensor={"rope_freqs.weight": (0, [8], bytes(32))})
    changed("without a place: blk.0.attn_q.bias", tensor={"blk.0.attn_q.bias": (0, [8], bytes(32))})
    changed("missing: blk.0.ffn_up.weight", drop="blk.0.ffn_up.weight")
    changed("shape", tensor={"output_norm.weight": (0, [8], bytes(32))})
    changed("type 12", tensor={"output_norm.weight": (12, [H], bytes(4 * H))})
    changed("impossible shape", tensor={"output_norm.weight": (8, [33], bytes(64))})
    changed("head_count", **{"llama.attention.head_count": 0})
    changed("do not fit", **{"llama.attention.head_count_kv": 3})
    changed("embedding_length is missing", drop="llama.embedding_length")
    changed("whole heads", **{"llama.rope.dimension_count": 8})
    changed("'llama-bpe'", tokenizer__ggml__pre="llama-bpe")
    changed("'llama'", tokenizer__ggml__model="llama")
    changed("merges[0]", tokenizer__ggml__merges=["a  b"])
    changed("eos_token_id", tokenizer__ggml__eos_token_id=V)
    changed("not finite", tensor={"output_norm.weight": (0, [H], np.full(H, np.nan, "<f4").tobytes())})


def test_every_truncation_is_refused(out):
    meta, tensors, _ = model()
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"):
        meta[key] = meta[key][:3]
    whole = gguf(meta, tensors)
    header = len(whole) - sum(len(d) + -len(d) % 32 for _, _, d in tensors.values())
    for n in [*range(header + 1), *range(header, len(whole), 997), len(whole) - 1]:
        refused(whole[:n], "", out)


def test_damage_never_escapes(out):
    """A flipped byte gives a folder or Refused, nothing else."""
    meta, tensors, _ = model()
    meta["tokenizer.ggml.token_type"] = TYPES[:2]              # so that nothing is written, whatever else is right
    whole = bytearray(gguf(meta, tensors))
    rng = np.random.default_rng(5)
    for at in rng.integers(0, len(whole) - sum(len(d) for _, _, d in tensors.values()), 3000):
        old, whole[at] = whole[at], rng.integers(0, 256)
        refused(bytes(whole), "", out)
        whole[at] = old


def main():
    n_failed, tests = 0, [(k, v) for k, v in globals().items() if k.startswith("test_")]
    for name, test in tests:
        with tempfile.TemporaryDirectory() as out:
            try:
                test(out)
            except Exception as e:                                  # a test may fail in any way; the others still run
                n_failed += 1
                print(f"{name}: {type(e).__name__}: {e}")
    print(f"{len(tests) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
