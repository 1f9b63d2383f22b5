"""The K2-Horizon architecture in PyTorch, as far as its dense members need it, for training on a CPU.

usage: model.py --check ORACLE_FOLDER     holds this definition against the float64 program there (tools/oracle)

Parameter names are the checkpoint's, so a state dict is what safetensors get.
"""
import argparse
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

# The 3.7B in miniature: two norm groups, grouped queries, heads x head_dim beside the hidden size, a head of its own.
CONFIG = {
    "architectures": ["K2HorizonForCausalLM"],
    "model_type": "k2_horizon",
    "vocab_size": None,  # the tokenizer's
    "hidden_size": 160,
    "intermediate_size": 416,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rope_head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "layernorm_num_groups": 2,
    "max_position_embeddings": 1024,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attention_gate_func": None,
    "query_key_norm": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [0, 1, 2, 3, 4, 5],
    "num_experts": 0,
    "num_experts_per_tok": 0,
    "num_shared_experts": 0,
    "moe_intermediate_size": 0,
    "mova_num_experts": 0,
    "mova_num_experts_per_tok": 0,
    "norm_topk_prob": True,
    "moe_gate_bias": False,
    "router_score_func": "sigmoid",
    "router_scaling_factor": None,
    "sliding_window": None,
    "use_sliding_window": False,
    "initializer_range": 0.02,
    "use_cache": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
    "dtype": "bfloat16",
    "transformers_version": "5.13.0",
}


class GroupedNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c["hidden_size"]))
        self.groups, self.eps = c["layernorm_num_groups"], c["rms_norm_eps"]

    def forward(self, x):
        y = x.to(self.weight.dtype).unflatten(-1, (self.groups, -1))
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return y.flatten(-2) * self.weight


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.size = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden = c["hidden_size"]
        self.q_proj = linear(hidden, self.heads * self.size)
        self.k_proj = linear(hidden, self.kv * self.size)
        self.v_proj = linear(hidden, self.kv * self.size)
        self.o_proj = linear(self.heads * self.size, hidden)

    def forward(self, x, cos, sin, mask):
        def split(y, n):
            return y.unflatten(-1, (n, self.size)).transpose(1, 2)

        def turn(y):
            a, b = y.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(y.dtype)

        q, k, v = split(self.q_proj(x), self.heads), split(self.k_proj(x), self.kv), split(self.v_proj(x), self.kv)
        # Plain products: on a CPU and at these lengths several times faster than scaled_dot_product_attention. The heads
        # that share keys stand below one another.
        q, k, length = turn(q), turn(k), x.shape[1]
        q = (q * self.size**-0.5).unflatten(1, (self.kv, -1)).flatten(2, 3)
        scores = (q @ k.transpose(-1, -2)).unflatten(2, (-1, length)).add_(mask.to(v.dtype))
        y = scores.softmax(-1).to(v.dtype).flatten(2, 3) @ v
        return self.o_proj(y.unflatten(2, (-1, length)).flatten(1, 2).transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = linear(c["hidden_size"], c["intermediate_size"])
        self.up_proj = linear(c["hidden_size"], c["intermediate_size"])
        self.down_proj = linear(c["intermediate_size"], c["hidden_size"])

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.self_attn = GroupedNorm(c), Attention(c)
        self.post_attention_layernorm, self.mlp = GroupedNorm(c), FeedForward(c)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = GroupedNorm(c)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, self.model, self.lm_head = c, Body(c), linear(c["hidden_size"], c["vocab_size"])
        for name, p in self.named_parameters():
            if p.dim() > 1:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=c["initializer_range"] / (2 * c["num_hidden_layers"]) ** (0.5 if last else 0))

    def hidden(self, ids):
        """[rows, tokens] ids to [rows, tokens, hidden] behind the final norm."""
        c, m = self.config, self.model
        d, theta = c["head_dim"], c["rope_parameters"]["rope_theta"]
        frequency = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        angle = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] * frequency
        x = m.embed_tokens(ids)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        mask = torch.full((len(angle), len(angle)), -math.inf, dtype=x.dtype).triu(1)
        for layer in m.layers:
            x = layer(x, cos, sin, mask)
        return m.norm(x)

    def forward(self, ids):
        return self.lm_head(self.hidden(ids))


def configured(vocab_size):
    return {**CONFIG, "vocab_size": vocab_size}


def stored(state):
    """A state dict as the checkpoint holds it."""
    return {n: w.to(torch.bfloat16).contiguous() for n, w in state.items()}


def loaded(tensors):
    """The state dict, in float64, of what is stored."""
    return {n: w.double() for n, w in tensors.items()}


def check(folder):
    """Random weights, 40 tokens, float64: the two programs must agree."""
    sys.path.insert(0, folder)
    import k2_horizon

    torch.manual_seed(1)
    c = {**CONFIG, "vocab_size": 500, "initializer_range": 0.2}
    model = Model(c).double()
    for name, p in model.named_parameters():
        if p.dim() == 1:
            nn.init.normal_(p, 1.0, 0.2)
    ids = torch.randint(0, 500, (40,))
    with torch.no_grad():
        ours = model(ids[None])[0].numpy()
    tensors = {n: ("F64", p.detach().numpy()) for n, p in model.named_parameters()}
    theirs = k2_horizon.K2Horizon(c, tensors).logits(ids.numpy())
    worst = abs(ours - theirs).max()
    print("largest difference to the oracle: %.3g (logits up to %.3g)" % (worst, abs(theirs).max()))
    return worst < 1e-9 * abs(theirs).max()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--check", required=True, metavar="ORACLE_FOLDER")
    sys.exit(0 if check(options.parse_args().check) else 1)
