"""The Kimi K3 architecture in PyTorch, for training on a CPU: the layers of the release, in miniature.

usage: kimi.py --check ORACLE_FOLDER     holds this definition against the float64 program there (tools/oracle), the chunks
                                         of KDA at decays from none to the strongest

Parameter names are the checkpoint's, so a state dict is what safetensors get once the experts are packed (`stored`).
docs/kimi_k3.md has the formulas. The delta rule runs in chunks of 16 tokens, which is the same algebra: within a chunk one
triangular system gives what every token writes, so that only the state goes from chunk to chunk.
"""
import argparse
import sys

import torch
import torch.nn.functional as F
from torch import nn

CHUNK = 16
LATENT_EPS = 1e-6  # of MLA's latent norms, whatever the config says
L2_EPS = 1e-6

# The release in miniature: three KDA layers and one of MLA, twice; the first layer dense, the others with experts in a latent
# space, kept as MXFP4; attention residuals in blocks.
TEXT = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "vocab_size": None,  # the tokenizer's
    "hidden_size": 160,
    "intermediate_size": 416,
    "num_hidden_layers": 8,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "q_lora_rank": 64,
    "kv_lora_rank": 48,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "linear_attn_config": {
        "full_attn_layers": [4, 8],
        "kda_layers": [1, 2, 3, 5, 6, 7],
        "num_heads": 5,
        "head_dim": 32,
        "short_conv_kernel_size": 4,
        "gate_lower_bound": -5.0,
        "use_full_rank_gate": True,
    },
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 96,
    "routed_expert_hidden_size": 96,
    "latent_moe_use_norm": True,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "topk_method": "noaux_tc",
    "use_grouped_topk": True,
    "num_expert_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
    "attn_res_block_size": 4,
    "rms_norm_eps": 1e-05,
    "max_position_embeddings": 4096,
    "num_nextn_predict_layers": 0,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
    "use_cache": True,
    "dtype": "bfloat16",
    "quantization_config": {
        "config_groups": {
            "group_0": {
                "input_activations": None,
                "output_activations": None,
                "targets": ["Linear"],
                "weights": {"dynamic": False, "group_size": 32, "num_bits": 4, "observer": "minmax", "scale_dtype": "torch.uint8",
                            "strategy": "group", "symmetric": True, "type": "float", "zp_dtype": None},
            }
        },
        "format": "mxfp4-pack-quantized",
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
                   "re:.*block_sparse_moe\\.gate.*", "re:.*routed_expert_(down|up)_proj.*"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    },
}  # fmt: skip
CONFIG = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16",
          "tie_word_embeddings": False, "text_config": TEXT}  # fmt: skip


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


def wide(x):
    """At least float32: what autocast made narrow."""
    return x.float() if x.dtype == torch.bfloat16 else x


def wide_and_dense(x):
    return x.to(wide(x[:0]).dtype, memory_format=torch.contiguous_format)


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return F.rms_norm(wide(x), self.weight.shape, self.weight, self.eps)


# ---- MXFP4 ----------------------------------------------------------------------------------------------------------

FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
BETWEEN = (FP4[1:] + FP4[:-1]) / 2


def mxfp4(w):
    """(codes 0..15, exponent of each group of 32): a group's largest value goes to 3.5 .. 7, of which 6 is the most."""
    groups = wide(w).unflatten(-1, (-1, 32))
    largest = groups.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    exponents = (largest / 7).log2().floor().add(1)
    scaled = groups / exponents.exp2()
    return torch.bucketize(scaled.abs(), BETWEEN) + 8 * (scaled < 0), exponents


def values(codes, exponents):
    return (torch.cat([FP4, -FP4])[codes] * exponents.exp2()).flatten(-2)


def rounded(w):
    """What is left of it as MXFP4; its gradient is that of w."""
    with torch.no_grad():
        lost = values(*mxfp4(w)).to(w.dtype) - w
    return w + lost


def packed(w):
    """(weight_packed, weight_scale) as compressed-tensors stores them."""
    codes, exponents = mxfp4(w)
    low, high = codes.flatten(-2).unflatten(-1, (-1, 2)).unbind(-1)
    return (low + 16 * high).to(torch.uint8), (exponents.squeeze(-1) + 127).to(torch.uint8)


def unpacked(codes, scales):
    codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).unflatten(-1, (-1, 32))
    return values(codes.int(), scales[..., None].double() - 127)


# ---- feed-forward ---------------------------------------------------------------------------------------------------


class Situ(torch.autograd.Function):
    """b tanh(g / b) sigmoid(g) * c tanh(u / c), both ways in as few passes as can be."""

    @staticmethod
    def forward(ctx, gate, up, b, c):
        s, t, v = torch.sigmoid(gate), torch.tanh(gate / b), torch.tanh(up / c)
        ctx.save_for_backward(s, t, v)
        ctx.b, ctx.c = b, c
        return s * t * v * (b * c)

    @staticmethod
    def backward(ctx, d):
        s, t, v = ctx.saved_tensors
        b, c, ds = ctx.b, ctx.c, d * s
        return ds * v * (1 - t * t + b * t * (1 - s)) * c, ds * t * (1 - v * v) * b, None, None


def situ(c, gate, up):
    return Situ.apply(gate, up, c["activation_situ_beta"], c["activation_situ_linear_beta"])


class FeedForward(nn.Module):
    def __init__(self, c, inner):
        super().__init__()
        self.config = c
        self.gate_proj, self.up_proj = linear(c["hidden_size"], inner), linear(c["hidden_size"], inner)
        self.down_proj = linear(inner, c["hidden_size"])

    def forward(self, x):
        return self.down_proj(situ(self.config, self.gate_proj(x), self.up_proj(x)))


class Expert(nn.Module):
    def __init__(self, n_in, inner):
        super().__init__()
        self.w1, self.w2, self.w3 = linear(n_in, inner), linear(inner, n_in), linear(n_in, inner)


class Router(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c["num_experts"], c["hidden_size"]))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(c["num_experts"]))
        self.n_chosen = c["num_experts_per_token"]

    def forward(self, x):
        """[tokens, hidden] to (experts, their weights). The bias only chooses; its gradient is by how much an expert is chosen
        too often, so that training it evens them out."""
        with torch.autocast("cpu", enabled=False):
            score = torch.sigmoid(wide(x) @ self.weight.T)
        bias = self.e_score_correction_bias
        chosen = (score.detach() + bias.detach()).topk(self.n_chosen, -1).indices
        if self.training:
            load = torch.bincount(chosen.flatten(), minlength=len(bias)).to(bias.dtype) / chosen.numel() - 1 / len(bias)
            bias.grad = load if bias.grad is None else bias.grad + load
        weights = score.gather(-1, chosen)
        return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20)


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, latent, inner = c["hidden_size"], c["routed_expert_hidden_size"], c["moe_intermediate_size"]
        self.config, self.rounds = c, False
        self.gate = Router(c)
        self.routed_expert_down_proj = linear(hidden, latent)
        self.experts = nn.ModuleList(Expert(latent, inner) for _ in range(c["num_experts"]))
        self.routed_expert_norm = Norm(latent, c["rms_norm_eps"])
        self.routed_expert_up_proj = linear(latent, hidden)
        self.shared_experts = FeedForward(c, inner * c["num_shared_experts"])

    def weights(self):
        """w1 below w3, and w2, of every expert: [experts, out, in]."""
        w13 = torch.stack([torch.cat((e.w1.weight, e.w3.weight)) for e in self.experts])
        w2 = torch.stack([e.w2.weight for e in self.experts])
        return (rounded(w13), rounded(w2)) if self.rounds else (w13, w2)

    def forward(self, x):
        """The tokens of an expert stand together: sorted by expert, each one's rows are a slice."""
        flat = x.flatten(0, -2)
        chosen, weights = self.gate(flat)
        n_chosen = chosen.shape[-1]
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        z = self.routed_expert_down_proj(flat)
        rows = z[order // n_chosen].split(counts)
        w13, w2 = (w.to(z.dtype) for w in self.weights())
        both = torch.cat([r @ w.T for r, w in zip(rows, w13.unbind())])
        inner = situ(self.config, *both.chunk(2, -1)).split(counts)
        out = torch.cat([r @ w.T for r, w in zip(inner, w2.unbind())])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        out = (wide(out[back]).unflatten(0, (-1, n_chosen)) * weights[..., None]).sum(1)
        out = self.routed_expert_up_proj(self.routed_expert_norm(out)) + self.shared_experts(flat)
        return out.view_as(x)


# ---- attention ------------------------------------------------------------------------------------------------------


class DeltaRule(torch.autograd.Function):
    """o_t = S^T q_t with S = diag(exp(g_t)) S; S = S + k_t (beta_t (v_t - S^T k_t))^T.

    All but beta are [chunks, rows, C, D], beta is [chunks, rows, C, 1]; -5 <= g <= 0. Decays count from the middle of a chunk,
    so that no factor exceeds exp(5 C / 2): which token they count from changes nothing. (I + system) new = beta (v, k) gives
    what the tokens of a chunk write: new_v - new_k S, with S as it is in the middle of the chunk.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # nothing in here is narrow
    def forward(ctx, q, k, v, g, beta):
        n, rows, c, d = q.shape
        decay = q.new_ones(c, c).tril() @ g
        middle = decay[:, :, c // 2 : c // 2 + 1]
        up = (decay - middle).exp()
        both, k_down = torch.cat((q * up, k * up), -2), k / up
        products = both @ k_down.mT
        reads, alike = products[:, :, :c].tril(), products[:, :, c:].tril(-1)
        right, system = torch.cat((v, both[:, :, c:]), -1), beta * alike
        new = torch.linalg.solve_triangular(system, beta * right, upper=False, unitriangular=True)
        between = ((decay[:, :, -1:] - middle)[:-1] + middle[1:]).exp().mT
        written, states = torch.empty_like(q), q.new_zeros(n, rows, d, d)
        for i in range(n):
            torch.baddbmm(new[i, :, :, :d], new[i, :, :, d:], states[i], alpha=-1, out=written[i])
            if i + 1 < n:
                torch.mul(torch.baddbmm(states[i], k_down[i].mT, written[i]), between[i], out=states[i + 1])
        ctx.save_for_backward(beta, up, both, k_down, reads, alike, right, system, new, between, written, states)
        return both[:, :, :c] @ states + reads @ written

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, d_out):
        beta, up, both, k_down, reads, alike, right, system, new, between, written, states = ctx.saved_tensors
        n, rows, c, d = up.shape
        q_up, k_up = both[:, :, :c], both[:, :, c:]
        d_written, d_states = reads.mT @ d_out, q_up.mT @ d_out
        after = torch.zeros_like(states)  # of each state with its chunk's writes, which k_down has added
        for i in reversed(range(n)):
            if i + 1 < n:
                torch.mul(d_states[i + 1], between[i], out=after[i])
                d_written[i].baddbmm_(k_down[i], after[i])
                d_states[i] += after[i]
            d_states[i].baddbmm_(new[i, :, :, d:].mT, d_written[i], alpha=-1)
        d_new = torch.cat((d_written, -d_written @ states.mT), -1)
        d_right = torch.linalg.solve_triangular(system.mT, d_new, upper=True, unitriangular=True)
        d_system = (d_right @ new.mT).neg_().tril_(-1)
        d_beta = (d_right * right).sum(-1, keepdim=True) + (d_system * alike).sum(-1, keepdim=True)
        d_v, d_k_up = (beta * d_right).chunk(2, -1)
        d_products = torch.cat(((d_out @ written.mT).tril_(), beta * d_system), -2)
        d_q_up, more = (d_products @ k_down).chunk(2, -2)
        d_q_up, d_k_up = d_q_up + d_out @ states.mT, d_k_up + more
        d_k_down = d_products.mT @ both + written @ after.mT
        d_decay = d_q_up * q_up + d_k_up * k_up - d_k_down * k_down
        d_decay[:-1, :, -1] += (states[1:] * d_states[1:]).sum(-1)
        d_g = up.new_ones(c, c).triu() @ d_decay
        return d_q_up * up, d_k_up * up + d_k_down / up, d_v, d_g, d_beta


class Convolution(torch.autograd.Function):
    """silu of each channel's causal convolution; x is [rows, tokens, channels], taps [taps, channels]."""

    @staticmethod
    def forward(ctx, x, taps):
        n, length = len(taps), x.shape[1]
        x = F.pad(x, (0, 0, n - 1, 0))
        y = x[:, :length] * taps[0]
        for i in range(1, n):
            y.addcmul_(x[:, i : i + length], taps[i])
        ctx.save_for_backward(x, taps, y)
        return F.silu(y)

    @staticmethod
    def backward(ctx, d):
        x, taps, y = ctx.saved_tensors
        n, length = len(taps), y.shape[1]
        d = torch.ops.aten.silu_backward(d, y)
        dx = d * taps[-1]
        for i in range(1, min(n, length)):
            dx[:, :-i].addcmul_(d[:, i:], taps[-1 - i])
        return dx, torch.stack([(x[:, i : i + length] * d).sum((0, 1)) for i in range(n)])


class Conv(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, taps))


class Kda(nn.Module):
    def __init__(self, c):
        super().__init__()
        own, hidden = c["linear_attn_config"], c["hidden_size"]
        self.heads, self.size, self.lower = own["num_heads"], own["head_dim"], own["gate_lower_bound"]
        inner, taps = self.heads * self.size, own["short_conv_kernel_size"]
        self.q_proj, self.k_proj, self.v_proj = (linear(hidden, inner) for _ in range(3))
        self.q_conv1d, self.k_conv1d, self.v_conv1d = (Conv(inner, taps) for _ in range(3))
        self.f_a_proj, self.f_b_proj = linear(hidden, self.size), linear(self.size, inner)
        self.dt_bias, self.A_log = nn.Parameter(torch.zeros(inner)), nn.Parameter(torch.zeros(self.heads))
        self.b_proj = linear(hidden, self.heads)
        self.g_proj, self.o_proj = linear(hidden, inner), linear(inner, hidden)
        self.o_norm = Norm(self.size, c["rms_norm_eps"])

    def chunks(self, x, n):
        """[rows, tokens, n x heads x D] to n times [chunks, rows x heads, C, D]."""
        x = F.pad(x, (0, 0, 0, -x.shape[1] % CHUNK))
        x = x.unflatten(1, (-1, CHUNK)).unflatten(-1, (n, self.heads, -1)).permute(3, 1, 0, 4, 2, 5)
        return wide_and_dense(x).flatten(2, 3).unbind()

    def forward(self, x):
        """All that reads x in one product, q, k and v in one convolution."""
        inner, size = self.heads * self.size, self.size
        readers = (self.q_proj, self.k_proj, self.v_proj, self.g_proj, self.f_a_proj, self.b_proj)
        qkv, gate, f, b = F.linear(x, torch.cat([p.weight for p in readers])).split((3 * inner, inner, size, self.heads), -1)
        taps = torch.cat((self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight)).squeeze(1).T
        q, k, v = self.chunks(Convolution.apply(qkv, taps.to(qkv.dtype)), 3)
        # Unit length is an RMS norm with another factor.
        unit = q.new_full((size,), size**-0.5)
        q, k = (F.rms_norm(y, (size,), w, L2_EPS / size) for y, w in ((q, unit * unit), (k, unit)))
        z = (wide(self.f_b_proj(f)) + self.dt_bias).unflatten(-1, (self.heads, -1)) * self.A_log.exp()[:, None]
        g, = self.chunks((self.lower * torch.sigmoid(z)).flatten(-2), 1)
        beta, = self.chunks(torch.sigmoid(wide(b)), 1)
        o = DeltaRule.apply(q, k, v, g, beta)
        o = o.unflatten(1, (len(x), -1)).permute(1, 0, 3, 2, 4).flatten(1, 2)[:, : x.shape[1]]
        return self.o_proj(self.o_norm(o).flatten(-2) * torch.sigmoid(gate))


class Mla(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, self.heads, self.latent = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
        self.nope, self.rest, self.value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        self.q_a_proj = linear(hidden, c["q_lora_rank"])
        self.q_a_layernorm = Norm(c["q_lora_rank"], LATENT_EPS)
        self.q_b_proj = linear(c["q_lora_rank"], self.heads * (self.nope + self.rest))
        self.kv_a_proj_with_mqa = linear(hidden, self.latent + self.rest)
        self.kv_a_layernorm = Norm(self.latent, LATENT_EPS)
        self.kv_b_proj = linear(self.latent, self.heads * (self.nope + self.value))
        self.g_proj, self.o_proj = linear(hidden, self.heads * self.value), linear(self.heads * self.value, hidden)

    def forward(self, x):
        def split(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q = split(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))) * (self.nope + self.rest) ** -0.5
        latent, rest = self.kv_a_proj_with_mqa(x).split((self.latent, self.rest), -1)
        k, v = split(self.kv_b_proj(self.kv_a_layernorm(latent))).split((self.nope, self.value), -1)
        k = torch.cat((k, rest[:, None].expand(-1, self.heads, -1, -1)), -1)
        mask = torch.full((x.shape[1], x.shape[1]), -torch.inf, dtype=k.dtype).triu(1)
        scores = (q @ k.transpose(-1, -2)).add_(mask)
        y = (scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(-2)
        return self.o_proj(y * torch.sigmoid(self.g_proj(x)))


# ---- the model ------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        hidden, eps = c["hidden_size"], c["rms_norm_eps"]
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden, eps), Norm(hidden, eps)
        self.self_attention_res_norm, self.self_attention_res_proj = Norm(hidden, eps), linear(hidden, 1)
        self.mlp_res_norm, self.mlp_res_proj = Norm(hidden, eps), linear(hidden, 1)
        self.self_attn = Mla(c) if i + 1 in c["linear_attn_config"]["full_attn_layers"] else Kda(c)
        if i < c["first_k_dense_replace"]:
            self.mlp = FeedForward(c, c["intermediate_size"])
        else:
            self.block_sparse_moe = Experts(c)

    def forward(self, stream, bank, banks):
        x = self.input_layernorm(mix(self.self_attention_res_norm, self.self_attention_res_proj, stream, bank))
        if banks:
            bank.append(stream)
        stream = self.self_attn(x) if banks else stream + self.self_attn(x)
        x = self.post_attention_layernorm(mix(self.mlp_res_norm, self.mlp_res_proj, stream, bank))
        return stream + (self.mlp if hasattr(self, "mlp") else self.block_sparse_moe)(x)


def mix(norm, proj, stream, bank):
    """Attention over depth: of the normed vectors the scores, of the raw ones the sum."""
    if not bank:
        return stream
    sources, u = [wide(x) for x in (*bank, stream)], norm.weight * proj.weight[0]
    scores = torch.stack([(x * u).sum(-1) * torch.rsqrt(x.square().mean(-1) + norm.eps) for x in sources], -1)
    return sum(p[..., None] * x for p, x in zip(scores.softmax(-1).unbind(-1), sources))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, eps = c["hidden_size"], c["rms_norm_eps"]
        self.embed_tokens = nn.Embedding(c["vocab_size"], hidden)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.output_attn_res_norm, self.output_attn_res_proj = Norm(hidden, eps), linear(hidden, 1)
        self.norm = Norm(hidden, eps)


class Text(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model, self.lm_head = Body(c), linear(c["hidden_size"], c["vocab_size"])


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.language_model = config["text_config"], Text(config["text_config"])
        self.begin()

    @torch.no_grad()
    def begin(self):
        c = self.config
        for name, p in self.named_parameters():
            if name.endswith("res_proj.weight"):
                p.zero_()  # all sources alike
            elif name.endswith("conv1d.weight"):
                p.uniform_(-(p.shape[-1] ** -0.5), p.shape[-1] ** -0.5)
            elif name.endswith("dt_bias"):
                p.uniform_(-7, -2)  # a state that lasts from 200 tokens down to 2
            elif p.dim() > 1:
                last = name.endswith(("o_proj.weight", ".down_proj.weight", "routed_expert_up_proj.weight"))
                p.normal_(std=c["initializer_range"] / (2 * c["num_hidden_layers"]) ** (0.5 if last else 0))

    def round(self, on):
        """The experts compute with what MXFP4 keeps of them."""
        for m in self.modules():
            if isinstance(m, Experts):
                m.rounds = on

    def lm_head(self, x):
        return self.language_model.lm_head(x)

    def hidden(self, ids):
        """[rows, tokens] ids to [rows, tokens, hidden] behind the final norm."""
        c, m = self.config, self.language_model.model
        stream, bank = m.embed_tokens(ids), []
        for i, layer in enumerate(m.layers):
            stream = layer(stream, bank, i % c["attn_res_block_size"] == 0)
        return m.norm(mix(m.output_attn_res_norm, m.output_attn_res_proj, stream, bank))

    def forward(self, ids):
        return self.lm_head(self.hidden(ids))


F32 = ("A_log", "dt_bias", "conv1d.weight", "o_norm.weight", "e_score_correction_bias")


def configured(vocab_size):
    return {**CONFIG, "text_config": {**TEXT, "vocab_size": vocab_size}}


def stored(state, exact=False):
    """A state dict as the vendor's checkpoint holds it; exact: what is not packed keeps its type."""
    out = {}
    for name, w in state.items():
        if ".experts." in name:
            out[name + "_packed"], out[name + "_scale"] = packed(w)
        else:
            out[name] = w if exact else w.to(torch.float32 if name.endswith(F32) else torch.bfloat16).contiguous()
    return out


def loaded(tensors):
    """The state dict, in float64, of what is stored."""
    out = {n: w.double() for n, w in tensors.items() if "weight_" not in n}
    for name in tensors:
        if name.endswith("_packed"):
            name = name.removesuffix("_packed")
            out[name] = unpacked(tensors[name + "_packed"], tensors[name + "_scale"])
    return out


def recurrence(q, k, v, g, beta):
    """The delta rule as it is defined."""
    chunks, rows, c, d = q.shape
    q, k, v, g, beta = (x.transpose(0, 1).flatten(1, 2) for x in (q, k, v, g, beta))
    state, out = q.new_zeros(rows, d, d), []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None].exp()
        state = state + k[:, t, :, None] * (beta[:, t] * (v[:, t] - (state * k[:, t, :, None]).sum(1)))[:, None]
        out.append((state * q[:, t, :, None]).sum(1))
    return torch.stack(out, 1).unflatten(1, (chunks, c)).transpose(0, 1)


def check_gradients():
    """Of the chunks and of the convolution, which are written out by hand: against the plain recurrence, and numerically."""
    shapes, worst = [(3, 2, CHUNK, 8)] * 4 + [(3, 2, CHUNK, 1)], 0
    for decay in (0.01, 1, 5):
        q, k, v, g, beta = (torch.rand(s, dtype=torch.float64) for s in shapes)
        given = [x.requires_grad_() for x in (q - 0.5, F.normalize(k - 0.5, dim=-1), v - 0.5, -decay * g, beta)]
        towards = torch.randn_like(q)
        ours, theirs = (torch.autograd.grad((f(*given) * towards).sum(), given) for f in (DeltaRule.apply, recurrence))
        worst = max(worst, *((a - b).abs().max() / b.abs().max() for a, b in zip(ours, theirs)))
    print("gradients of the chunks: difference to the recurrence's %.3g" % worst)
    given = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 7, 5), (4, 5), (3, 5), (3, 5))]
    situ_of = lambda gate, up: Situ.apply(gate, up, 4.0, 25.0)  # noqa: E731
    return worst < 1e-9 and torch.autograd.gradcheck(Convolution.apply, given[:2]) and torch.autograd.gradcheck(situ_of, given[2:])


def check(folder):
    """Random weights, 75 tokens, float64: the two programs must agree, and float32 must be near; rounded experts as packed."""
    sys.path.insert(0, folder)
    import kimi_k3

    torch.manual_seed(1)
    ids, good = torch.randint(0, 500, (75,)), True
    for decay in (-9.0, -1.0, 1.0, 9.0):
        config = configured(500)
        config["text_config"]["initializer_range"] = 0.2
        model = Model(config).double()
        for name, p in model.named_parameters():
            if p.dim() == 1 or "res_proj" in name:
                nn.init.normal_(p, decay if name.endswith("dt_bias") else float(name.endswith("norm.weight")), 0.2)
        model.round(True)
        tensors = {n: ("", w.numpy()) for n, w in stored(model.state_dict(), exact=True).items()}
        with torch.no_grad():
            ours, short = model(ids[None])[0].numpy(), model.float()(ids[None])[0].numpy()
        theirs = kimi_k3.KimiK3(model.config, tensors).logits(ids.numpy())
        worst, single = (abs(x - theirs).max() / abs(theirs).max() for x in (ours, short))
        print("decay %g: difference to the oracle %.3g of the largest logit, %.3g in float32" % (decay, worst, single))
        good = good and worst < 1e-9 and single < 1e-3
    return good


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--check", required=True, metavar="ORACLE_FOLDER")
    sys.exit(0 if check(options.parse_args().check) and check_gradients() else 1)
