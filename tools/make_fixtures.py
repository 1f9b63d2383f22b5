#!/usr/bin/env python3
"""Make the checkpoints under tests/data/models again, weights and expected logits, from a bare clone (numpy only).

usage: make_fixtures.py OUT_FOLDER [NAME]...      writes OUT_FOLDER/NAME for every or the named checkpoint
       make_fixtures.py --check [NAME]...         makes them elsewhere and compares them with tests/data/models

The nine k2-* are the project's first fixtures. The own-* take the branches that no k2-* takes;
tests/data/models/README.md says what each would catch. Every own-* is TINY with changes: `spec` goes to the oracle,
`write` changes what config.json says (DELETE removes a key whose default the spec must supply), `edit` changes
tensors after they were drawn. The seed is the first one at which the two highest logits are nowhere nearer than
MARGIN, and the scores of the last chosen and the first refused expert nowhere nearer than ROUTER_MARGIN, so that a
float32 engine has no excuse for another choice.
"""
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "oracle"))

import make_k2                                                                                      # noqa: E402
from checkpoint import round_bf16, write_checkpoint                                                 # noqa: E402
from fixtures import run, what_was_made                                                             # noqa: E402
from k2_horizon import K2Horizon                                                                    # noqa: E402

SEEDS = dict.fromkeys(make_k2.VARIANTS, 101) | {"softmax": 83, "f32": 84}
LONG, LONG_SEED = ("dense", "yarn", "normgate", "mova"), 4242
LENGTHS = (1, 5, 40)
MARGIN = 2e-3
ROUTER_MARGIN = 2e-4
DELETE = object()

TINY = dict(make_k2.BASE, vocab_size=96, hidden_size=40, intermediate_size=56, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=512, mlp_only_layers=[0, 1],
            rope_parameters={"rope_type": "default", "rope_theta": 1000.0})
MOE = dict(mlp_only_layers=[0], num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, num_shared_experts=1)


def yarn(**keys):
    return dict(dict(rope_type="yarn", rope_theta=1000.0, factor=8.0, original_max_position_embeddings=64), **keys)


MSCALE = dict(mscale=1.4, mscale_all_dim=0.6, beta_fast=32.0, beta_slow=0.001)      # both ends of the ramp are clamped


# ---- dtypes and edits of single checkpoints ------------------------------------------------------------------------

def always(dtype):
    return lambda name, shape: dtype


def mixed(name, shape):
    """Another dtype from tensor to tensor, and for the same tensor of another layer or expert."""
    return ("BF16", "F32", "F16")[sum(map(ord, name)) % 3]


def twin_routers(c, t):
    """Experts 3, 4, 5 get the router rows and biases of 0, 1, 2: every score is met twice."""
    for name, (dtype, a) in t.items():
        if ".mlp.gate." in name or ".v_router." in name:
            t[name] = (dtype, np.concatenate([a[:len(a) // 2]] * 2))


def quiet_routers(c, t):
    """Scores near one another, so that softmax leaves the last ones apart by more than rounding."""
    for name, (dtype, a) in t.items():
        if name.endswith(".mlp.gate.weight"):
            t[name] = (dtype, round_bf16(a / 4))


def loud_gate(c, t):
    """Gate inputs far beyond the softplus threshold of 20 / ln 2, in both directions."""
    for name, (dtype, a) in t.items():
        if name.endswith("self_attn.gate_proj.weight"):
            t[name] = (dtype, round_bf16(a * 12))


def faint_blocks(c, t):
    """In the last column of blocks, FP8 codes of exponent 0 and 1 only (subnormals, both zeros) under a scale that
    makes them count."""
    for name, (dtype, a) in list(t.items()):
        if dtype == "F8_E4M3":
            companion = next(name + s for s in ("_scale", "_scale_inv") if name + s in t)
            code, (scale_dtype, scale) = np.array(a), t[companion]
            code[:, scale.shape[1] * 128 - 128:] &= 0x8F
            scale = np.array(scale)
            scale[:, -1] *= 2.0 ** 13
            t[name], t[companion] = (dtype, code), (scale_dtype, scale)


def inverse_frequencies(c, t):
    """The buffer that older converters left in the file; a reader skips it."""
    freq = 1000.0 ** (-np.arange(0, c["head_dim"], 2) / c["head_dim"])
    for i in range(c["num_hidden_layers"]):
        t[f"model.layers.{i}.self_attn.rotary_emb.inv_freq"] = ("F32", freq.astype(np.float32))


# What a Llama config.json says beside its sizes; head_dim and the number of key-value heads are absent.
LLAMA = {k: DELETE for k in make_k2.BASE} | dict(
    architectures=["LlamaForCausalLM"], model_type="llama", rope_theta=1000.0, rope_scaling=None, hidden_act="silu",
    rms_norm_eps=1e-5, max_position_embeddings=512, torch_dtype="bfloat16", bos_token_id=0, eos_token_id=1)
LLAMA_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")

OWN = {
    "own-moe": dict(
        spec=dict(MOE, num_hidden_layers=4, mlp_only_layers=[3], decoder_sparse_step=2, num_shared_experts=0,
                  norm_topk_prob=False, query_key_norm=True, attention_gate_func="silu", rms_norm_eps=0.02,
                  sliding_window=8),
        write=dict(output_router_logits=False, router_aux_loss_coef=0.001, padding_idx=None, xllm_model_parallel_size=2,
                   num_dense_layers=3, torch_dtype="torch.bfloat16")),
    "own-moe-step3": dict(
        spec=dict(MOE, num_hidden_layers=3, mlp_only_layers=[], decoder_sparse_step=3, num_experts_per_tok=6,
                  moe_gate_bias=True, router_scaling_factor=0.7, num_shared_experts=3)),
    "own-moe-first": dict(
        spec=dict(MOE, mlp_only_layers=[], router_score_func="softmax", norm_topk_prob=True, moe_gate_bias=True,
                  router_scaling_factor=1.5),
        write=dict(mlp_only_layers=DELETE), dtype=always("F32")),
    "own-moe-top1": dict(
        spec=dict(MOE, mlp_only_layers=[], num_experts_per_tok=1, norm_topk_prob=False, router_score_func="softmax",
                  num_shared_experts=0, num_key_value_heads=4)),
    "own-ties": dict(
        spec=dict(MOE, num_experts_per_tok=3, moe_gate_bias=True, router_scaling_factor=2.5, mova_num_experts=6,
                  mova_num_experts_per_tok=3, num_shared_experts=0),
        edit=twin_routers),
    "own-mova-softmax": dict(
        spec=dict(MOE, mova_num_experts=5, mova_num_experts_per_tok=3, router_score_func="softmax",
                  norm_topk_prob=False, moe_gate_bias=True, router_scaling_factor=1.5, num_shared_experts=2)),
    "own-mova-top1": dict(
        spec=dict(MOE, mova_num_experts=5, mova_num_experts_per_tok=1, norm_topk_prob=True, query_key_norm=True,
                  attention_gate_func="silu", rope_head_dim=12)),
    "own-yarn-derived": dict(
        spec=dict(rope_parameters=yarn(original_max_position_embeddings=256, truncate=False), query_key_norm=True,
                  head_dim=32, rope_head_dim=32),
        write=dict(rope_parameters={"type": "yarn", "rope_theta": 1000.0, "factor": 8.0,
                                    "original_max_position_embeddings": 256, "truncate": False})),
    "own-yarn-mscale": dict(
        spec=dict(rope_parameters=yarn(**MSCALE, rope_theta=50.0)),
        write=dict(rope_parameters=DELETE, rope_theta=50.0, rope_scaling=dict(
            MSCALE, rope_type="yarn", factor=8.0, original_max_position_embeddings=64))),
    "own-yarn-step": dict(
        spec=dict(rope_parameters=yarn(beta_fast=32.0, beta_slow=11.0), layernorm_num_groups=1)),      # low = high = 0
    "own-defaults": dict(
        spec=dict(MOE, num_experts=9, num_experts_per_tok=8, mlp_only_layers=[], num_shared_experts=0,
                  norm_topk_prob=False, router_score_func="softmax", layernorm_num_groups=1,
                  rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=16.0, beta_fast=128.0, beta_slow=4.0,
                                       original_max_position_embeddings=8192, attention_factor=1.2772588722239782,
                                       truncate=True)),
        write={k: DELETE for k in TINY if k not in (
            "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "num_experts",
            "moe_intermediate_size", "hidden_act", "rms_norm_eps")},
        edit=quiet_routers),
    "own-softplus": dict(
        spec=dict(attention_gate_func="softplus", hidden_size=36, layernorm_num_groups=3, num_attention_heads=6,
                  head_dim=20, rope_head_dim=20, num_key_value_heads=3, intermediate_size=50, vocab_size=131),
        write=dict(time_step_limit=[0.0, float("inf")], unused=float("nan")), edit=loud_gate),
    "own-f16": dict(
        spec=dict(num_key_value_heads=1, head_dim=24, rope_head_dim=24), dtype=always("F16"), odd=True),
    "own-mixed": dict(
        spec=dict(MOE, moe_gate_bias=True, router_scaling_factor=2.5, mova_num_experts=4, mova_num_experts_per_tok=2,
                  attention_gate_func="softplus", query_key_norm=True, num_experts=4), dtype=mixed, odd=True,
        shards="model.safetensors-{:05d}-of-{:05d}.safetensors"),
    "own-fp8-ragged": dict(
        spec=dict(hidden_size=144, intermediate_size=136, num_attention_heads=9, num_key_value_heads=3,
                  layernorm_num_groups=1, num_hidden_layers=1, mlp_only_layers=[0], attention_gate_func="softplus"),
        fp8=make_k2.Fp8("compressed-tensors", "BF16", lambda name: name.endswith("_proj.weight")), edit=faint_blocks),
    "own-fp8-bf16": dict(
        spec=dict(MOE, hidden_size=136, num_hidden_layers=1, mlp_only_layers=[], moe_intermediate_size=24,
                  num_experts=4, mova_num_experts=3, mova_num_experts_per_tok=2, norm_topk_prob=True,
                  moe_gate_bias=True, num_attention_heads=2, num_key_value_heads=1),
        dtype=lambda name, shape: "F16" if len(shape) == 2 else "BF16",
        fp8=make_k2.Fp8("fp8", "BF16", lambda name: "experts." in name), edit=faint_blocks),
    "own-llama": dict(
        spec=dict(layernorm_num_groups=1, hidden_size=48, num_attention_heads=6, head_dim=8, rope_head_dim=8,
                  rms_norm_eps=1e-5, tie_word_embeddings=True),
        write=dict(LLAMA, tie_word_embeddings=True, num_key_value_heads=2, attention_bias=False, mlp_bias=False,
                   pretraining_tp=1),
        edit=inverse_frequencies),
    "own-llama-untied": dict(
        spec=dict(layernorm_num_groups=1, num_key_value_heads=4, head_dim=20, rope_head_dim=20, rms_norm_eps=0.01),
        write=dict(LLAMA, head_dim=20, rms_norm_eps=0.01, rope_theta=DELETE, rope_scaling=DELETE,
                   rope_parameters={"rope_type": "default", "rope_theta": 1000.0}), dtype=always("F32")),
}


# ---- making one checkpoint -----------------------------------------------------------------------------------------

class Measured(K2Horizon):
    """The oracle, remembering how near any two choices came. An exact tie is no accident: its order is fixed."""
    slack = np.inf                                                  # smallest gap seen, in units of its margin

    def note(self, x, k, margin):
        ranked = -np.sort(-x, -1)
        gap = (ranked[..., k - 1] - ranked[..., k]).ravel()
        gap = gap[gap != 0]
        if gap.size:
            Measured.slack = min(Measured.slack, gap.min() / margin)

    def route(self, name, x, k, renormalise):
        z = self.lin(name, x)
        score = 1 / (1 + np.exp(-z)) if self.c.get("router_score_func", "softmax") == "sigmoid" else \
            np.exp(z) / np.exp(z).sum(-1, keepdims=True)
        score = score + self.get(name + ".bias") if name + ".bias" in self.w else score
        if k < score.shape[-1]:
            self.note(score, k, ROUTER_MARGIN)
        return super().route(name, x, k, renormalise)

    def logits(self, ids, trace=None):
        out = super().logits(ids, trace)
        self.note(out, 1, MARGIN)
        return out


def written(c, entry):
    """config.json of an own-* checkpoint."""
    change = entry.get("write", {})
    if change.get("model_type") == "llama":
        change = {k: c[k] for k in LLAMA_SIZES} | {k: v for k, v in change.items() if k not in LLAMA_SIZES}
    return {k: v for k, v in (c | change).items() if v is not DELETE}


def own(folder, name):
    entry = OWN[name]
    for seed in range(1, 200):
        c = json.loads(json.dumps(dict(TINY, **entry["spec"])))
        t = make_k2.tensors(c, seed, entry.get("dtype", always("BF16")), entry.get("fp8"))
        entry.get("edit", lambda c, t: None)(c, t)
        Measured.slack = np.inf
        os.makedirs(folder, exist_ok=True)
        make_k2.expected(folder, c, t, seed, LENGTHS, model=Measured)
        if Measured.slack >= 1:
            break
    else:
        sys.exit(f"make_fixtures: {name}: no seed keeps the margins")
    write_checkpoint(folder, written(c, entry), t, shards=2 if "shards" in entry else 1)
    if "shards" in entry:
        rename_shards(folder, entry["shards"])
    if entry.get("odd"):
        for file in os.listdir(folder):
            if file.endswith(".safetensors") and not file.startswith("expected"):
                shift_data(os.path.join(folder, file))
    return seed, Measured.slack


def rename_shards(folder, pattern):
    """Give the shards other names, in the index too."""
    index = os.path.join(folder, "model.safetensors.index.json")
    with open(index) as f:
        text = f.read()
    for s in (1, 2):
        old, new = f"model-{s:05d}-of-00002.safetensors", pattern.format(s, 2)
        os.rename(os.path.join(folder, old), os.path.join(folder, new))
        text = text.replace(f'"{old}"', f'"{new}"')
    with open(index, "w") as f:
        f.write(text)


def shift_data(path):
    """One more space after the header: no tensor is aligned any more."""
    with open(path, "rb") as f:
        raw = f.read()
    n = int.from_bytes(raw[:8], "little")
    with open(path, "wb") as f:
        f.write((n + 1).to_bytes(8, "little") + raw[8:8 + n] + b" " + raw[8 + n:])


def first(folder, variant):
    """One of the nine."""
    seed = SEEDS[variant]
    c, t = make_k2.build(variant, seed)
    write_checkpoint(folder, c, t, shards=1 if variant in ("yarn", "fp8") else c["num_hidden_layers"])
    make_k2.expected(folder, c, t, seed, LENGTHS)
    if variant in LONG:                                         # several attention tiles, more than one prefill step
        make_k2.expected(folder, c, t, LONG_SEED, (700,), "expected-long", 24)


def make(out, name):
    folder = os.path.join(out, name)
    if name in OWN:
        seed, slack = own(folder, name)
        return what_was_made(folder, seed, slack)
    first(folder, name.removeprefix("k2-"))
    return f"seed {SEEDS[name.removeprefix('k2-')]}"


def main(argv):
    return run(argv, __doc__.split("\n\n")[1], [f"k2-{v}" for v in make_k2.VARIANTS] + list(OWN), make)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
