"""Trains the demo model on the data of data.py, on a CPU, one process a core.

usage: train.py MODEL_FOLDER RUN_FOLDER [--family kimi] [options]

MODEL_FOLDER holds the tokenizer of the family. RUN_FOLDER gets log.txt and checkpoint.pt, every few minutes; the same command
goes on from there. The examples of a step depend on its number only, so an interrupted run is the run. Hidden matrices are
trained with Muon (momentum, made orthogonal), the rest with AdamW; bf16 autocast; the rate rises, stays, and falls to zero, and
again in each of the last stages.
"""
import argparse
import math
import os
import time

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "20000")  # before torch starts: see shape

import data
import families
import torch
import torch.distributed as dist
import torch.nn.functional as F

SEED = 20261130
ROWS = sorted([1] + [r * 2**k for r in (2, 3) for k in range(9)])
PASS = 300  # what a pass costs besides its tokens, in tokens
TRIALS = [data.ask_capital, data.ask_country, data.ask_continent, data.ask_sum, data.ask_difference, data.ask_list, data.ask_calendar,
          data.ask_units, data.ask_small_talk, data.ask_unknown, data.ask_context, data.ask_repeat, data.ask_weather,
          data.ask_calculator]  # fmt: skip


# What each family has for a default.
SETTINGS = {
    "k2": {"first": 450, "last": 5500, "signed": 6900, "steps": 6900, "decay": 3000, "tokens": 6144, "piece": 1024},
    "kimi": {"first": 300, "last": 2650, "signed": 3400, "steps": 4000, "decay": 1500, "tokens": 12288, "piece": 2048, "round": 1800},
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("run")
    p.add_argument("--family", choices=list(SETTINGS), default="k2")
    p.add_argument("--first", type=int, help="the steps of the data's first stage, which is mostly copying")
    p.add_argument("--last", type=int, help="the step at which the last stage begins")
    p.add_argument("--signed", type=int, help="the step from which half of its differences are negative")
    p.add_argument("--steps", type=int)
    p.add_argument("--decay", type=int, help="the steps before the last stage in which the rate falls to zero")
    p.add_argument("--again", type=float, default=0.35, help="the share of the full rate at which the last stages begin")
    p.add_argument("--round", type=int, help="the step from which experts compute with what MXFP4 keeps of them")
    p.add_argument("--tokens", type=int, help="tokens a step, all processes together")
    p.add_argument("--piece", type=int, help="tokens a forward pass, at most")
    p.add_argument("--muon", type=float, default=0.02, help="rate of the hidden matrices")
    p.add_argument("--adam", type=float, default=3e-3, help="rate of embeddings, head and norms")
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--nice", type=int, default=19)
    p.add_argument("--minutes", type=float, default=1e9, help="stop then, with a checkpoint")
    p.add_argument("--save-minutes", type=float, default=3)
    p.set_defaults(**SETTINGS[p.parse_known_args()[0].family])
    return p.parse_args()


# ---- optimizer ------------------------------------------------------------------------------------------------------


def orthogonal(m, steps=5):
    """About the nearest matrices with singular values near one (Newton-Schulz, quintic)."""
    x = (m / (m.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr, momentum=0.95, decay=0.01):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        """Matrices of one shape together: a mixture of experts has hundreds of small ones."""
        for group in self.param_groups:
            for shape in sorted({p.shape for p in group["params"]}):
                self.step_alike([p for p in group["params"] if p.shape == shape], group)

    def step_alike(self, parameters, group):
        grads = torch.stack([p.grad for p in parameters])
        momenta = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in parameters]
        m = torch.stack(momenta).lerp_(grads, 1 - group["momentum"])
        updates = orthogonal(grads.lerp(m, group["momentum"])).to(m.dtype)
        torch._foreach_copy_(momenta, list(m))
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["decay"])
        torch._foreach_add_(parameters, list(updates), alpha=-group["lr"] * max(1, m.shape[1] / m.shape[2]) ** 0.5)


def optimizers(model, o):
    """Muon for what mixes many values into many: not for heads, gates and routers of a few rows."""
    named = {n: p.dim() == 2 and min(p.shape) > 8 and "layers" in n for n, p in model.named_parameters()}
    hidden, rest = ([p for n, p in model.named_parameters() if named[n] == h] for h in (True, False))
    return [Muon(hidden, o.muon), torch.optim.AdamW(rest, o.adam, betas=(0.9, 0.98), weight_decay=0.0)]


def rate(step, o):
    """The share of the full rate: it rises, stays, falls to zero; and again, from less, in each of the last stages."""
    if step < o.last:
        return min(1, (step + 1) / 100, (o.last - step) / o.decay)
    begin, end = (o.last, min(o.signed, o.steps)) if step < o.signed else (o.signed, o.steps)
    return o.again * min((step - begin + 1) / 50, (end - step) / (end - begin))


# ---- one step -------------------------------------------------------------------------------------------------------


def without_head(example, heads):
    """(ids, whether they count, the head that was taken off them or None)."""
    ids, counts = example
    for i, head in enumerate(heads):
        if ids[: len(head)] == head:
            return ids[len(head) :], counts[len(head) :], i
    return ids, counts, None


def shape(lengths):
    """Of a batch. There are few: for one that it meets first, torch compiles every product anew, which takes longer than a pass."""
    return next(r for r in ROWS if r >= len(lengths)), -(-lengths[-1] // 16) * 16


def partition(lengths, limit):
    """(begin, end) of batches of ascending lengths, so that padding and the number of passes together cost least."""
    best = [(0, 0)]  # of the first 0, 1, .. lengths: cost, where the last batch begins
    for j in range(1, len(lengths) + 1):
        sizes = [(math.prod(shape(lengths[i:j])), i) for i in range(j)]
        best.append(min((best[i][0] + size + PASS, i) for size, i in sizes if size <= limit or i == j - 1))
    cuts = [len(lengths)]
    while cuts[-1] > 0:
        cuts.append(best[cuts[-1]][1])
    return zip(cuts[:0:-1], cuts[-2::-1])


def batches(examples, limit):
    """Padded batches of examples of about the same length, all with a head or all without: (ids, targets, heads), targets -1
    where nothing counts."""
    for alone in (True, False):
        group = sorted((e for e in examples if (e[2] is None) == alone), key=lambda e: len(e[0]))
        lengths = [len(e[0]) - 1 for e in group]
        for begin, end in partition(lengths, limit):
            size = shape(lengths[begin:end])
            ids, targets = torch.zeros(size, dtype=torch.long), torch.full(size, -1)
            for i, (e, counts, _) in enumerate(group[begin:end]):
                ids[i, : len(e) - 1] = torch.tensor(e[:-1])
                targets[i, : len(e) - 1] = torch.tensor([t if c else -1 for t, c in zip(e[1:], counts[1:])])
            heads = [head for _, _, head in group[begin:end]] + [0] * (len(ids) - end + begin)
            yield ids, targets, None if alone else torch.tensor(heads)


def draw(tokenizer, talk, heads, seed, stage, n_tokens):
    examples, total = [], 0
    for pieces in data.stream(seed, stage, talk):
        examples.append(without_head(tokenizer.example(pieces), heads))
        total += len(examples[-1][0])
        if total >= n_tokens:
            return examples


def logits_that_count(model, ids, targets, *memory):
    """(logits of what counts, and of the first token as often as makes their number a multiple of 128; their targets)."""
    counting = (targets >= 0).flatten().nonzero().flatten()
    chosen = F.pad(counting, (0, -len(counting) % 128))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model.lm_head(model.hidden(ids, *memory).flatten(0, 1).index_select(0, chosen)).float()
    return logits, F.pad(targets.flatten()[counting], (0, len(chosen) - len(counting)), value=-1)


def backward(model, heads, examples, o, n_total):
    """A head is read once for all that begin with it: what the model remembers of it gets their gradients together."""
    loss, read = 0.0, []
    if heads:
        with torch.autocast("cpu", torch.bfloat16):
            _, read = model.read(torch.tensor(heads))
    leaves = [[t.detach().requires_grad_() for t in pair] for pair in read]
    for ids, targets, which in batches(examples, o.piece):
        memory = () if which is None else ([[t.index_select(0, which) for t in pair] for pair in leaves],)
        logits, wanted = logits_that_count(model, ids, targets, *memory)
        part = F.cross_entropy(logits, wanted, ignore_index=-1, reduction="sum") / n_total
        part.backward()
        loss += part.item()
    read, leaves = ([t for pair in pairs for t in pair] for pairs in (read, leaves))
    if any(leaf.grad is not None for leaf in leaves):
        torch.autograd.backward(read, [leaf.grad for leaf in leaves])
    return loss


def share(tensors):
    """Sums them over the processes, in one message."""
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    for t, new in zip(tensors, flat.split([t.numel() for t in tensors])):
        t.copy_(new.view_as(t))


# ---- how good is it? ------------------------------------------------------------------------------------------------


@torch.no_grad()
def trials(model, tokenizer, talk, n=40):
    """Per skill, the share of held-out examples of which every token is the likeliest: what greedy decoding gets right."""
    out = []
    model.eval()
    for skill in TRIALS:
        examples, good, total = [(*tokenizer.example(data.trial(skill, seed, talk)), None) for seed in range(n)], 0, 0
        for ids, targets, _ in batches(examples, 4096):
            logits, wanted = logits_that_count(model, ids, targets)
            wrong, asked = torch.zeros_like(targets, dtype=torch.bool), targets >= 0
            wrong[asked] = (logits.argmax(-1) != wanted)[wanted >= 0]
            good += (asked.any(1) & ~wrong.any(1)).sum().item()
            total += asked.any(1).sum().item()
        out.append("%s %.0f" % (skill.__name__[4:], 100 * good / total))
    model.train()
    return ", ".join(out)


# ---- the run --------------------------------------------------------------------------------------------------------


def save(path, family, model, parts, step):
    state = {"family": family, "model": model.state_dict(), "optimizers": [p.state_dict() for p in parts], "step": step}
    torch.save(state, path + ".partial")
    os.replace(path + ".partial", path)


def restore(path, model, parts):
    """The step at which the run goes on."""
    if not os.path.exists(path):
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    for p, s in zip(parts, state["optimizers"]):
        p.load_state_dict(s)
    return state["step"]


class Log:
    """log.txt, of the first process alone: loss and speed since the last report."""

    def __init__(self, path):
        self.path, self.begin = path, time.time()
        self.clear()

    def clear(self):
        self.since, self.loss, self.n_steps, self.n_tokens = time.time(), 0.0, 0, 0

    def say(self, text):
        if self.path:
            with open(self.path, "a") as f:
                print(text, file=f)

    def count(self, loss, n_tokens):
        self.loss, self.n_steps, self.n_tokens = self.loss + loss, self.n_steps + 1, self.n_tokens + n_tokens

    def report(self, step):
        speed, minutes = self.n_tokens / (time.time() - self.since), (time.time() - self.begin) / 60
        self.say("step %d, loss %.4f, %.0f tokens/s, %.1f min" % (step, self.loss / self.n_steps, speed, minutes))
        self.clear()


def advance(model, parts, heads, examples, step, o):
    """One step on this process's examples and everybody else's. The loss."""
    n_total = torch.tensor([float(sum(sum(c[1:]) for _, c, _ in examples))])
    dist.all_reduce(n_total)
    loss = torch.tensor([backward(model, heads, examples, o, n_total)])
    share([p.grad for p in model.parameters() if p.grad is not None] + [loss])
    for p in parts:
        for group in p.param_groups:
            group["lr"] = group["full"] * rate(step, o)
        p.step()
        p.zero_grad()
    return loss.item()


def train(rank, o):
    parent, saved = os.getppid(), time.time()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    os.nice(o.nice)
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath(o.run) + "/meet", rank=rank, world_size=o.processes)
    family = families.FAMILIES[o.family]
    tokenizer, architecture = family.tokenizer(o.model), family.architecture
    heads = [tokenizer.example(pieces)[0] for pieces in family.talk.heads()]
    torch.manual_seed(SEED)
    model = architecture.Model(architecture.configured(tokenizer.size))
    parts, path = optimizers(model, o), os.path.join(o.run, "checkpoint.pt")
    step, log = restore(path, model, parts), Log(os.path.join(o.run, "log.txt") if rank == 0 else None)
    for p, full in zip(parts, (o.muon, o.adam)):
        p.param_groups[0]["full"] = full
    log.say("from step %d: %d parameters, %s" % (step, sum(p.numel() for p in model.parameters()), vars(o)))
    while step < o.steps:
        stage = sum(step >= begin for begin in (o.first, o.last, o.signed))
        if o.round is not None:
            model.round(step >= o.round)
        examples = draw(tokenizer, family.talk, heads, SEED * 1000003 + step * o.processes + rank, stage, o.tokens // o.processes)
        log.count(advance(model, parts, heads, examples, step, o), sum(len(e) for e, _, _ in examples) * o.processes)
        step += 1
        if step % 20 == 0 or step == o.steps:
            log.report(step)
        if rank == 0 and (step % 200 == 0 or step == o.steps):
            log.say("step %d: %s" % (step, trials(model, tokenizer, family.talk)))
        # One process decides for all: time is up, or whoever started the run is gone.
        over = torch.tensor([float(rank == 0 and (time.time() - log.begin > 60 * o.minutes or os.getppid() != parent))])
        dist.all_reduce(over)
        if rank == 0 and (time.time() - saved > 60 * o.save_minutes or over or step == o.steps):
            save(path, o.family, model, parts, step)
            saved = time.time()
        if over:
            break
    if not math.isfinite(sum(p.sum().item() for p in model.parameters())):
        raise SystemExit("the weights are not finite")


if __name__ == "__main__":
    options = arguments()
    os.makedirs(options.run, exist_ok=True)
    meet = os.path.join(options.run, "meet")
    if os.path.exists(meet):
        os.remove(meet)
    torch.multiprocessing.start_processes(train, args=(options,), nprocs=options.processes, start_method="fork")
