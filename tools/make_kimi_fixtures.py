#!/usr/bin/env python3
"""Make the k3-* and kimi-linear* checkpoints under tests/data/models again, weights and expected logits (numpy only).

usage: make_kimi_fixtures.py OUT_FOLDER [NAME]...  writes OUT_FOLDER/NAME for every or the named checkpoint
       make_kimi_fixtures.py --check [NAME]...     makes them elsewhere and compares them with tests/data/models

Smaller than the house's own fixtures of the same names, with widths that no vector register divides where the format
allows it. The seed is the first one at which the two highest logits are nowhere nearer than MARGIN and the ranks of the
last chosen and the first refused expert nowhere nearer than ROUTER_MARGIN.
"""
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "oracle"))

import make_k3                                                                                      # noqa: E402
from checkpoint import write_checkpoint                                                             # noqa: E402
from fixtures import run, what_was_made, write_expected                                             # noqa: E402
from kimi_k3 import KimiK3                                                                          # noqa: E402

MARGIN, ROUTER_MARGIN = 2e-3, 2e-4
LENGTHS, LONG = (1, 5, 40), 700

SMALL = dict(hidden_size=40, num_hidden_layers=6, num_attention_heads=3, num_key_value_heads=3, intermediate_size=56,
             vocab_size=96, q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12,
             num_experts=6, num_experts_per_token=2, moe_intermediate_size=18, routed_expert_hidden_size=28,
             attn_res_block_size=2, bos_token_id=0, eos_token_id=1)
KDA = dict(full_attn_layers=[3, 6], kda_layers=[1, 2, 4, 5], num_heads=3, head_dim=12)
PACKED = dict(hidden_size=64, moe_intermediate_size=32, routed_expert_hidden_size=64)
LINEAR = dict(q_lora_rank=None, attn_res_block_size=None, routed_expert_hidden_size=None)

MODELS = {
    "k3-bf16": ("bf16", {}, {}),
    "k3-mxfp4": ("mxfp4", PACKED, {}),
    "k3-mxfp4-all": ("mxfp4-all", PACKED, {}),
    "k3-twin": ("twin", {}, {}),
    "k3-plain": ("plain", dict(attn_res_block_size=None), {}),
    "k3-eps": ("eps", {}, {}),
    "k3-block-3": ("bf16", dict(attn_res_block_size=3, num_hidden_layers=5, first_k_dense_replace=2,
                                activation_situ_beta=1.5, activation_situ_linear_beta=2.0, q_lora_rank=None,
                                latent_moe_use_norm=False),
                   dict(full_attn_layers=[1, 4], kda_layers=[2, 3, 5], short_conv_kernel_size=3)),
    "kimi-linear": ("linear", LINEAR, {}),
    "kimi-linear-groups": ("linear-groups", dict(LINEAR, num_experts=8, num_experts_per_token=3), {}),
}
LONG_MODELS = ("k3-bf16", "k3-twin", "kimi-linear")


class Measured(KimiK3):
    """The oracle, remembering how near any two choices came."""
    slack = np.inf

    @classmethod
    def note(cls, x, k, margin):
        ranked = -np.sort(-x, -1)
        cls.slack = min(cls.slack, ((ranked[..., k - 1] - ranked[..., k]) / margin).min())

    def moe(self, p, x):
        c = self.c
        score = 1 / (1 + np.exp(-self.lin(f"{p}.gate", x))) + self.get(f"{p}.gate.e_score_correction_bias")
        groups = c.get("num_expert_group") or 1
        if groups > 1:
            best = np.sort(score.reshape(len(x), groups, -1), -1)[..., -2:].sum(-1)
            self.note(best, c["topk_group"], ROUTER_MARGIN)
        else:
            self.note(score, c["num_experts_per_token"], ROUTER_MARGIN)
        return super().moe(p, x)

    def logits(self, ids, trace=None):
        out = super().logits(ids, trace)
        self.note(out, 1, MARGIN)
        return out


def written(c, linear):
    """config.json: nested for K3, flat for Kimi Linear."""
    if linear:
        return c
    text = {k: v for k, v in c.items() if k not in ("architectures", "model_type")}
    return {"architectures": c["architectures"], "model_type": c["model_type"],
            "text_config": dict(text, model_type="kimi_linear")}


def expected(folder, c, t, seed, lengths, file, last=None):
    path = os.path.join(folder, f"{file}.safetensors")
    write_expected(path, lambda: Measured(c, t), 0, c["vocab_size"], seed, lengths, last)


def strip(c, t):
    """Takes out what the maker always draws: shared experts and the norm of the latent sum."""
    c["num_shared_experts"] = 0
    for n in [n for n in t if ".shared_experts." in n or ".routed_expert_norm." in n]:
        del t[n]


def settings(name):
    """What make_k3.build is given to make this checkpoint small."""
    variant, over, kda = MODELS[name]
    own = make_k3.VARIANTS[variant]
    base, linear_attn = dict(SMALL, **over), dict(KDA, **own.get("linear_attn_config", {}), **kda)
    if "_linear" in own:
        linear_attn.update(gate_lower_bound=None, use_full_rank_gate=None)
        base = dict(make_k3.LINEAR, **base)
    base.update({k: own[k] for k in ("rms_norm_eps", "num_expert_group", "topk_group") if k in own})
    return variant, dict(base, linear_attn_config=linear_attn)


def make(out, name):
    folder = os.path.join(out, name)
    variant, changes = settings(name)
    os.makedirs(folder, exist_ok=True)
    for seed in range(1, 400):
        c, t = make_k3.build(variant, seed, **changes)
        if name == "k3-block-3":
            strip(c, t)
        Measured.slack = np.inf
        expected(folder, c, t, seed, LENGTHS, "expected")
        if Measured.slack >= 1:
            break
    else:
        sys.exit(f"make_kimi_fixtures: {name}: no seed keeps the margins")
    slack = Measured.slack
    write_checkpoint(folder, written(c, "_linear" in make_k3.VARIANTS[variant]), t, shards=2)
    if name in LONG_MODELS:                                      # several attention tiles, more than one step of 512
        expected(folder, c, t, seed + 1, (LONG,), "expected-long", 24)
    return what_was_made(folder, seed, slack)


def main(argv):
    return run(argv, __doc__.split("\n\n")[1], list(MODELS), make)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
