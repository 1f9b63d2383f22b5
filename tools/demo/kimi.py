"""The Kimi K3 architecture in PyTorch, for training on a CPU: the layers of the release, in miniature.

usage: kimi.py --check ORACLE_FOLDER     holds this definition against the float64 program there (tools/oracle), the chunks
                                         of KDA at decays from none to the strongest

Parameter names are the checkpoint's, so a state dict is what safetensors get once the experts are packed (`stored`).
docs/kimi_k3.md has the formulas. The delta rule runs in chunks of tokens, which is the same algebra: within a chunk one
triangular system gives what every token writes, so that only the state goes from chunk to chunk.
"""
import argparse
import functools
import sys

import torch
import torch.nn.functional as F
from torch import nn

CHUNK = 16
ROOM = 64  # an expert's tokens in a pass, in multiples of this
LATENT_EPS = 1e-6  # of MLA's latent norms, whatever the config says
L2_EPS = 1e-6

# The release in miniature: three KDA layers and one of MLA, twice; the first layer dense, the others with experts in a latent
# space, kept as MXFP4; attention residuals in blocks.
TEXT = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "vocab_size": None,  # the tokenizer's
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
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
        "num_heads": 4,
        "head_dim": 32,
        "short_conv_kernel_size": 4,
        "gate_lower_bound": -5.0,
        "use_full_rank_gate": True,
    },
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_experts": 12,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 96,
    "routed_expert_hidden_size": 64,
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


# ---- what is not a matrix -------------------------------------------------------------------------------------------

# These have their gradients written out: a CPU's time goes into passes over memory, and autograd makes more than are needed.
# kimi.py --check compares them with numeric ones.


def inverse_rms(x, eps):
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        r = inverse_rms(x, eps)
        ctx.save_for_backward(x, weight, r)
        return (x * r).mul_(weight)

    @staticmethod
    def backward(ctx, d):
        x, weight, r = ctx.saved_tensors
        dx = (d * x).flatten(0, -2)
        d_weight, along = dx.T @ r.flatten(), (dx @ weight).view_as(r)
        return (d * weight).mul_(r).addcmul_(x, along * r.pow(3), value=-1 / x.shape[-1]), d_weight, None


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return RmsNorm.apply(wide(x), self.weight, self.eps)


class Mix(torch.autograd.Function):
    """Attention over depth: of the normed sources the scores, of the raw ones the sum; [tokens, hidden] each."""

    @staticmethod
    def forward(ctx, u, eps, *sources):
        inverse = torch.cat([inverse_rms(x, eps) for x in sources], -1)
        dots = torch.stack([x @ u for x in sources], -1)
        p = (dots * inverse).softmax(-1)
        ctx.save_for_backward(u, inverse, dots, p, *sources)
        out = p[:, :1] * sources[0]
        for i, x in enumerate(sources[1:], 1):
            out.addcmul_(p[:, i : i + 1], x)
        return out

    @staticmethod
    def backward(ctx, d):
        u, inverse, dots, p, *sources = ctx.saved_tensors
        d_p = torch.stack([torch.linalg.vecdot(d, x) for x in sources], -1)
        d_score = p * (d_p - (p * d_p).sum(-1, keepdim=True))
        d_dot, d_square = d_score * inverse, d_score * dots * inverse.pow(3) / -len(u)
        d_sources = [p[:, i : i + 1] * d for i in range(len(sources))]
        for i, x in enumerate(sources):
            d_sources[i].addcmul_(d_dot[:, i : i + 1], u).addcmul_(d_square[:, i : i + 1], x)
        return sum(x.T @ d_dot[:, i] for i, x in enumerate(sources)), None, *d_sources


class Situ(torch.autograd.Function):
    """b tanh(g / b) sigmoid(g) * c tanh(u / c), in as few passes as can be; tanh x is 2 sigmoid(2 x) - 1, which is much faster."""

    @staticmethod
    def forward(ctx, gate, up, b, c):
        g, u = wide(gate), wide(up)
        s, t, v = torch.sigmoid(g), torch.sigmoid(g * (2 / b)).mul_(2).sub_(1), torch.sigmoid(u * (2 / c)).mul_(2).sub_(1)
        ctx.save_for_backward(s, t, v)
        ctx.b, ctx.c, ctx.dtype = b, c, gate.dtype
        return (s * t).mul_(v).mul_(b * c).to(gate.dtype)

    @staticmethod
    def backward(ctx, d):
        s, t, v = ctx.saved_tensors
        b, c, d = ctx.b, ctx.c, wide(d) * s
        d_gate = ((1 - t * t) + (1 - s).mul_(t).mul_(b)).mul_(v).mul_(d).mul_(c)
        d_up = (1 - v * v).mul_(t).mul_(d).mul_(b)
        return d_gate.to(ctx.dtype), d_up.to(ctx.dtype), None, None


class Convolution(torch.autograd.Function):
    """silu of each channel's causal convolution; x is [rows, taps - 1 + tokens, channels], taps [taps, channels]."""

    @staticmethod
    def forward(ctx, x, taps):
        n, length = len(taps), x.shape[1] - len(taps) + 1
        y = x[:, :length] * taps[0]
        for i in range(1, n):
            y.addcmul_(x[:, i : i + length], taps[i])
        s = torch.sigmoid(y)  # much faster than silu
        y.mul_(s)
        ctx.save_for_backward(x, taps, y, s)
        return y

    @staticmethod
    def backward(ctx, d):
        x, taps, y, s = ctx.saved_tensors
        n, length = len(taps), y.shape[1]
        d, dx = d * (s + y - y * s), torch.zeros_like(x)
        for i in range(n):
            dx[:, i : i + length].addcmul_(d, taps[i])
        return dx, torch.stack([(x[:, i : i + length] * d).sum((0, 1)) for i in range(n)])


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


def packed(w):
    """(weight_packed, weight_scale) as compressed-tensors stores them."""
    codes, exponents = mxfp4(w)
    low, high = codes.flatten(-2).unflatten(-1, (-1, 2)).unbind(-1)
    return (low + 16 * high).to(torch.uint8), (exponents.squeeze(-1) + 127).to(torch.uint8)


def unpacked(codes, scales):
    codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).unflatten(-1, (-1, 32))
    return values(codes.int(), scales[..., None].double() - 127)


# ---- feed-forward ---------------------------------------------------------------------------------------------------


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
        self.config, self.lost = c, (0, 0)
        self.gate = Router(c)
        self.routed_expert_down_proj = linear(hidden, latent)
        self.experts = nn.ModuleList(Expert(latent, inner) for _ in range(c["num_experts"]))
        self.routed_expert_norm = Norm(latent, c["rms_norm_eps"])
        self.routed_expert_up_proj = linear(latent, hidden)
        self.shared_experts = FeedForward(c, inner * c["num_shared_experts"])

    def weights(self):
        """w1 above w3, and w2, of every expert: [experts, out, in]."""
        w13 = torch.cat([w.weight for e in self.experts for w in (e.w1, e.w3)]).unflatten(0, (len(self.experts), -1))
        return w13, torch.stack([e.w2.weight for e in self.experts])

    @torch.no_grad()
    def round(self, on):
        """From now on it computes with what MXFP4 keeps of the weights as they are; gradients go to the weights."""
        self.lost = [values(*mxfp4(w)).to(w.dtype) - w for w in self.weights()] if on else (0, 0)

    def forward(self, x):
        """The tokens of an expert stand in a block, all blocks of one length: one product serves them all, in shapes that recur."""
        flat, n_experts = x.flatten(0, -2), len(self.experts)
        chosen, weights = self.gate(flat)
        n_chosen, chosen = chosen.shape[-1], chosen.flatten()
        order, counts = chosen.argsort(stable=True), torch.bincount(chosen, minlength=n_experts)
        room = -(-counts.max().item() // ROOM) * ROOM
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order)) + (torch.arange(n_experts) * room - counts.cumsum(0) + counts)[chosen[order]]
        token = order.new_zeros(n_experts * room)  # where there is none, the first: nobody asks for the result
        token[place] = torch.arange(len(order)) // n_chosen
        z = self.routed_expert_down_proj(flat)
        w13, w2 = ((w + lost).to(z.dtype).mT for w, lost in zip(self.weights(), self.lost))
        gate, up = (z.index_select(0, token).unflatten(0, (n_experts, room)) @ w13).chunk(2, -1)
        out = (situ(self.config, gate, up) @ w2).flatten(0, 1).index_select(0, place)
        out = (wide(out).unflatten(0, (-1, n_chosen)) * weights[..., None]).sum(1)
        out = self.routed_expert_up_proj(self.routed_expert_norm(out)) + self.shared_experts(flat)
        return out.view_as(x)


# ---- attention ------------------------------------------------------------------------------------------------------


@functools.cache
def halves(n):
    """For blocks of 2, 4, .. n: what of a lower triangle stands between the halves of a block."""
    half, out = torch.arange(n), []
    while half[-1] > 0:
        out.append((half[:, None] - half == 1) & (half % 2 == 1)[:, None])
        half = half // 2
    return out


def inverse(m):
    """Of I + m for strictly lower triangular m: each size of blocks takes two products."""
    first, *others = halves(m.shape[-1])
    out = torch.eye(m.shape[-1], dtype=m.dtype) - m * first
    for between in others:
        out = out - out @ (m * between) @ out
    return out


class DeltaRule(torch.autograd.Function):
    """o_t = S^T q_t with S = diag(exp(g_t)) S; S = S + k_t (beta_t (v_t - S^T k_t))^T; gives o and the last S.

    q, k, v and g are [chunks, rows, C, D], beta is [chunks, rows, C, 1], S [rows, D, D]; -5 <= g <= 0. Decays count from the
    middle of a chunk, so that no factor exceeds exp(5 C / 2): which token they count from changes nothing. With solve, the
    inverse of I + beta alike, the tokens of a chunk write new_v - new_k S, where S is the state in the middle of the chunk.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # nothing in here is narrow
    def forward(ctx, q, k, v, g, beta, state):
        n, rows, c, d = q.shape
        decay = q.new_ones(c, c).tril() @ g
        middle = decay[:, :, c // 2 : c // 2 + 1]
        after = decay[:, :, -1:] - middle
        between = torch.cat((middle[:1], after[:-1] + middle[1:], after[-1:])).exp().mT
        up = (decay - middle).exp()
        both, k_down = torch.cat((q * up, k * up), -2), k / up
        products = both @ k_down.mT
        reads, alike = products[:, :, :c].tril(), products[:, :, c:].tril(-1)
        right, solve = torch.cat((v, both[:, :, c:]), -1), inverse(beta * alike)
        new = solve @ (beta * right)
        written, states = torch.empty_like(q), q.new_empty(n + 1, rows, d, d)
        torch.mul(state, between[0], out=states[0])
        for i in range(n):
            torch.baddbmm(new[i, :, :, :d], new[i, :, :, d:], states[i], alpha=-1, out=written[i])
            torch.baddbmm(states[i], k_down[i].mT, written[i], out=states[i + 1]).mul_(between[i + 1])
        ctx.save_for_backward(beta, up, both, k_down, reads, alike, right, solve, new, between, written, states)
        return both[:, :, :c] @ states[:-1] + reads @ written, states[-1].clone()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, d_out, d_last):
        beta, up, both, k_down, reads, alike, right, solve, new, between, written, states = ctx.saved_tensors
        n, rows, c, d = up.shape
        q_up, k_up = both[:, :, :c], both[:, :, c:]
        d_written, d_states = reads.mT @ d_out, torch.cat((q_up.mT @ d_out, d_last[None]))
        d_sums = torch.empty_like(states[1:])  # of what a chunk starts with and what it writes
        for i in reversed(range(n)):
            torch.mul(d_states[i + 1], between[i + 1], out=d_sums[i])
            d_written[i].baddbmm_(k_down[i], d_sums[i])
            d_states[i].add_(d_sums[i]).baddbmm_(new[i, :, :, d:].mT, d_written[i], alpha=-1)
        d_new = torch.cat((d_written, -d_written @ states[:-1].mT), -1)
        d_right = solve.mT @ d_new
        d_system = (d_right @ new.mT).neg_().tril_(-1)
        d_beta = (d_right * right).sum(-1, keepdim=True) + (d_system * alike).sum(-1, keepdim=True)
        d_v, d_k_up = (beta * d_right).chunk(2, -1)
        d_products = torch.cat(((d_out @ written.mT).tril_(), beta * d_system), -2)
        d_q_up, more = (d_products @ k_down).chunk(2, -2)
        d_q_up, d_k_up = d_q_up + d_out @ states[:-1].mT, d_k_up + more
        d_k_down = d_products.mT @ both + written @ d_sums.mT
        d_decay = d_q_up * q_up + d_k_up * k_up - d_k_down * k_down
        d_decay[:, :, -1] += (states[1:] * d_states[1:]).sum(-1)
        d_g = up.new_ones(c, c).triu() @ d_decay
        return d_q_up * up, d_k_up * up + d_k_down / up, d_v, d_g, d_beta, d_states[0] * between[0]


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
        return x.flatten(2, 3).unbind()

    def forward(self, x, memory):
        """All that reads x in one product, q, k and v in one convolution. What goes on to later tokens, and may come from
        earlier ones: the last inputs of the convolution, and the state."""
        inner, size, rows = self.heads * self.size, self.size, len(x)
        readers = (self.q_proj, self.k_proj, self.v_proj, self.g_proj, self.f_a_proj, self.b_proj)
        qkv, gate, f, b = F.linear(x, torch.cat([p.weight for p in readers])).split((3 * inner, inner, size, self.heads), -1)
        taps = torch.cat((self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight)).squeeze(1).T.contiguous()
        tail, state = memory or (taps.new_zeros(rows, len(taps) - 1, 3 * inner), taps.new_zeros(rows, self.heads, size, size))
        qkv = torch.cat((tail, wide(qkv)), 1)
        q, k, v = self.chunks(Convolution.apply(qkv, taps), 3)
        # Unit length is an RMS norm with another factor.
        unit = q.new_full((size,), size**-0.5)
        q, k = RmsNorm.apply(q, unit * unit, L2_EPS / size), RmsNorm.apply(k, unit, L2_EPS / size)
        z = (wide(self.f_b_proj(f)) + self.dt_bias).unflatten(-1, (self.heads, -1)) * self.A_log.exp()[:, None]
        g, = self.chunks((self.lower * torch.sigmoid(z)).flatten(-2), 1)
        beta, = self.chunks(torch.sigmoid(wide(b)), 1)
        o, state = DeltaRule.apply(q, k, v, g, beta, state.flatten(0, 1))
        o = o.unflatten(1, (rows, -1)).permute(1, 0, 3, 2, 4).flatten(1, 2)[:, : x.shape[1]]
        y = self.o_proj(self.o_norm(o).flatten(-2) * torch.sigmoid(gate))
        return y, (qkv[:, -tail.shape[1] :], state.unflatten(0, (rows, -1)))


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

    def forward(self, x, memory):
        """Later tokens see keys and values, and may see earlier ones."""

        def split(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q = split(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))) * (self.nope + self.rest) ** -0.5
        latent, rest = self.kv_a_proj_with_mqa(x).split((self.latent, self.rest), -1)
        k, v = split(self.kv_b_proj(self.kv_a_layernorm(latent))).split((self.nope, self.value), -1)
        k = torch.cat((k, rest[:, None].expand(-1, self.heads, -1, -1)), -1)
        if memory:
            k, v = (torch.cat(y, 2) for y in zip(memory, (k, v)))
        mask = torch.full((x.shape[1], k.shape[2]), -torch.inf, dtype=k.dtype).triu(1 + k.shape[2] - x.shape[1])
        scores = (q @ k.transpose(-1, -2)).add_(mask)
        y = (scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(-2)
        return self.o_proj(y * torch.sigmoid(self.g_proj(x))), (k, v)


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

    def forward(self, stream, bank, banks, memory):
        x = self.input_layernorm(mix(self.self_attention_res_norm, self.self_attention_res_proj, stream, bank))
        if banks:
            bank.append(stream)
        y, memory = self.self_attn(x, memory)
        stream = wide(y) if banks else stream + y
        x = self.post_attention_layernorm(mix(self.mlp_res_norm, self.mlp_res_proj, stream, bank))
        return stream + (self.mlp if hasattr(self, "mlp") else self.block_sparse_moe)(x), memory


def mix(norm, proj, stream, bank):
    if not bank:
        return stream
    sources = [x.flatten(0, -2) for x in (*bank, stream)]
    return Mix.apply(norm.weight * proj.weight[0], norm.eps, *sources).view_as(stream)


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
        """Before each step: whether experts compute with what MXFP4 keeps of them."""
        for m in self.modules():
            if isinstance(m, Experts):
                m.round(on)

    def lm_head(self, x):
        return self.language_model.lm_head(x)

    def read(self, ids, memory=None):
        """[rows, tokens] ids to [rows, tokens, hidden] behind the final norm, and what the layers remember for later tokens:
        a list of pairs of tensors whose first axis are the rows."""
        c, m = self.config, self.language_model.model
        stream, bank, memory = m.embed_tokens(ids), [], memory or [None] * c["num_hidden_layers"]
        for i, layer in enumerate(m.layers):
            stream, memory[i] = layer(stream, bank, i % c["attn_res_block_size"] == 0, memory[i])
        return m.norm(mix(m.output_attn_res_norm, m.output_attn_res_proj, stream, bank)), memory

    def hidden(self, ids, memory=None):
        return self.read(ids, memory and list(memory))[0]

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


def recurrence(q, k, v, g, beta, state):
    """The delta rule as it is defined."""
    chunks, rows, c, d = q.shape
    q, k, v, g, beta = (x.transpose(0, 1).flatten(1, 2) for x in (q, k, v, g, beta))
    out = []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None].exp()
        state = state + k[:, t, :, None] * (beta[:, t] * (v[:, t] - (state * k[:, t, :, None]).sum(1)))[:, None]
        out.append((state * q[:, t, :, None]).sum(1))
    return torch.stack(out, 1).unflatten(1, (chunks, c)).transpose(0, 1), state


def check_gradients():
    """Of the chunks against the plain recurrence, of the rest against numeric ones."""
    shapes, worst = [(3, 2, CHUNK, 8)] * 4 + [(3, 2, CHUNK, 1), (2, 8, 8)], 0
    for decay in (0.01, 1, 5):
        q, k, v, g, beta, state = (torch.rand(s, dtype=torch.float64) for s in shapes)
        given = [x.requires_grad_() for x in (q - 0.5, F.normalize(k - 0.5, dim=-1), v - 0.5, -decay * g, beta, state - 0.5)]
        towards = torch.randn_like(q), torch.randn_like(state)
        ours, theirs = (torch.autograd.grad(f(*given), given, towards) for f in (DeltaRule.apply, recurrence))
        worst = max(worst, *((a - b).abs().max() / b.abs().max() for a, b in zip(ours, theirs)))
    print("gradients of the chunks: difference to the recurrence's %.3g" % worst)
    situ_of = lambda gate, up: Situ.apply(gate, up, 4.0, 25.0)  # noqa: E731
    norm = lambda x, weight: RmsNorm.apply(x, weight, 0.1)  # noqa: E731
    mixed = lambda u, *sources: Mix.apply(u, 0.1, *sources)  # noqa: E731
    for f, shapes in ((situ_of, [(3, 5)] * 2), (Convolution.apply, [(2, 7, 5), (4, 5)]), (norm, [(2, 3, 5), (5,)]),
                      (mixed, [(5,)] + [(4, 5)] * 3)):  # fmt: skip
        torch.autograd.gradcheck(f, [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes])
    return worst < 1e-9


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
            _, memory = model.read(ids[None, :30])
            in_two = model.lm_head(model.hidden(ids[None, 30:], memory))[0].numpy()
            ours, short = model(ids[None])[0].numpy(), model.float()(ids[None])[0].numpy()
        theirs = kimi_k3.KimiK3(model.config, tensors).logits(ids.numpy())
        worst, single = (abs(x - theirs).max() / abs(theirs).max() for x in (ours, short))
        worst = max(worst, abs(in_two - theirs[30:]).max() / abs(theirs).max())
        print("decay %g: difference to the oracle %.3g of the largest logit, %.3g in float32" % (decay, worst, single))
        good = good and worst < 1e-9 and single < 1e-3
    return good


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--check", required=True, metavar="ORACLE_FOLDER")
    sys.exit(0 if check(options.parse_args().check) and check_gradients() else 1)
