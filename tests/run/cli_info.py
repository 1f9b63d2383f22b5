#!/usr/bin/env python3
"""info and devices from outside: figures that agree with the files, defaults that are marked, plans that do not fit."""
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import MODELS, check, finish, folder, has_memory, make_model, not_run, refused, run, write_safetensors  # noqa: E402


def report(model, *options, **more):
    r = run("info", model, "--json", *options, **more)
    check(f"info {os.path.basename(model)} {options}", r.code == 0 and r.err == "" and r.out.count(b"\n") == 1, r)
    return json.loads(r.out)


def tensors_of(path):
    """{name: (dtype, shape)} of every shard, by our own reading of the headers."""
    found = {}
    for name in os.listdir(path):
        if not name.endswith(".safetensors") or name.startswith("expected"):
            continue
        with open(os.path.join(path, name), "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        found.update({k: (v["dtype"], v["shape"], v["data_offsets"][1] - v["data_offsets"][0])
                      for k, v in header.items() if k != "__metadata__"})
    return found


def product(shape):
    n = 1
    for x in shape:
        n *= x
    return n


for name in sorted(os.listdir(MODELS)):
    path = os.path.join(MODELS, name)
    if not name.startswith("k2-"):
        continue
    stored, i = tensors_of(path), report(path, "--tensors")
    scales = {k for k in stored if k.endswith(("weight_scale", "weight_scale_inv"))}
    plain = {k: v for k, v in stored.items() if k not in scales}
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    check(f"{name} parameters", i["parameters"] == sum(product(s) for _, s, _ in plain.values()), i["parameters"])
    check(f"{name} bytes", i["tensor_bytes"] == sum(n for _, _, n in stored.values()), i["tensor_bytes"])
    check(f"{name} list", {x["name"]: (x["dtype"], x["shape"]) for x in i["list"]} == {k: v[:2] for k, v in plain.items()})
    check(f"{name} scales", sum(x["scaled"] for x in i["list"]) == len(scales))
    for parts in ("classes", "dtypes"):
        for key in ("tensors", "parameters", "bytes"):
            whole = i["tensors"] if key == "tensors" else i["parameters"] if key == "parameters" else i["tensor_bytes"]
            check(f"{name} {parts} {key}", sum(p[key] for p in i[parts].values()) == whole)
    check(f"{name} config", all(i["config"][k] == config[k] for k in ("vocab_size", "hidden_size", "head_dim")), i["config"])
    m = i["memory"]
    check(f"{name} plan", m["private"] == m["kv"] + m["state"] + m["scratch"] + m["weights"] + m["tables"] and m["fits"], m)
    check(f"{name} mapped", m["mapped"] == i["file_bytes"] == sum(
        os.path.getsize(os.path.join(path, f)) for f in os.listdir(path) if f.endswith(".safetensors") and f[0] == "m"), m)
    text = run("info", path, "--tensors")
    check(f"{name} page", text.code == 0 and text.err == "" and all(k.encode() in text.out for k in plain), text)

DENSE = os.path.join(MODELS, "k2-dense")
small, large, half = (report(DENSE, "--context", c, *o)["memory"] for c, o in ((100, ()), (200, ()), (200, ("--kv-dtype", "bf16"))))
check("KV grows with the context", large["kv"] == 2 * small["kv"] and half["kv"] * 2 == large["kv"], small, large, half)
check("context as asked", small["context"] == 100 and report(DENSE)["memory"]["context"] == 4096)
check("threads as asked", report(DENSE, "-t", "3")["memory"]["threads"] == 3)
check("batch as asked", report(DENSE, "-b", "7")["memory"]["batch"] == 7)

RECURRENT = os.path.join(MODELS, "k3-plain")
states = {n: report(RECURRENT, *o, **more)["memory"]["state"] for n, o, more in (
    (0, ("--state-snapshots", "0"), {}), (4, (), {}), (7, ("--state-snapshots", "7"), {}),
    (2, (), {"env": {"BALTORO_STATE_SNAPSHOTS": "2"}}))}
check("copies of recurrent states as asked", states[0] > 0 and all(b == states[0] * (1 + n) for n, b in states.items()), states)
check("none where states grow", report(DENSE, "--state-snapshots", "9")["memory"]["state"] == 0)
refused("too many copies", 2, "state-snapshots", "info", RECURRENT, "--state-snapshots", "1025")

huge = make_model(config={"max_position_embeddings": 1 << 27}, with_tokenizer=False)
if has_memory(1 << 37):
    not_run("a plan that does not fit", "this machine has more than is asked for")
else:
    i = report(huge, "-c", 1 << 27)
    check("a plan that does not fit is an answer", i["memory"]["fits"] is False and i["memory"]["private"] > i["memory"]["available"], i)
    r = run("info", huge, "-c", 1 << 27)
    check("and said", r.code == 0 and b"does not fit: " in r.out, r)
refused("context beyond the model", 1, "4096", "info", DENSE, "-c", 4097)

with_tokenizer = report(make_model(bos=True, config={"eos_token_id": [1, 7]}))
told = with_tokenizer["tokenizer"]
check("tokenizer", told == {"ids": 640, "bos": 0, "file": "tokenizer.json", "warnings": ""}, told)
check("end ids that the tokenizer lists", with_tokenizer["end_ids"] == [1], with_tokenizer["end_ids"])
check("end ids without a tokenizer", report(make_model(config={"eos_token_id": [1, 7]}, with_tokenizer=False))["end_ids"] == [1, 7])
both = make_model()
for name in ("tiktoken.model", "tokenizer_config.json"):
    shutil.copy(os.path.join("tests/data/tokenizers/tiktoken", name), both)
r, told = run("info", both), report(both)["tokenizer"]
check("what the tokenizer does not use is told", r.code == 0 and r.err == "" and b"  warning: " in r.out and
      told["warnings"].endswith("tokenizer.json beside it is not used\n"), r, told)
check("no tokenizer", report(DENSE)["tokenizer"] is None)
del_eps = make_model(with_tokenizer=False)
with open(os.path.join(del_eps, "config.json")) as f:
    config = json.load(f)
del config["rms_norm_eps"]
with open(os.path.join(del_eps, "config.json"), "w") as f:
    json.dump(config, f)
i = report(del_eps)
check("defaults are listed", "rms_norm_eps" in i["defaults"] and "hidden_size" not in i["defaults"], i["defaults"])
check("and marked", b"rms_norm_eps" in run("info", del_eps).out and b"(default" in run("info", del_eps).out)

# ---- defaults: each key that may be absent is shown, and marked where it is (docs/k2_horizon.md, docs/kimi_k3.md) ---------

ROPE = ("rope_parameters", "rope_scaling", "rope_theta")
YARN = ("beta_fast", "beta_slow", "truncate", "attention_factor")
PLAIN = ["hidden_act", "rms_norm_eps", "tie_word_embeddings"]
K2 = PLAIN + ["layernorm_num_groups", "query_key_norm", "attention_gate_func", "rope_head_dim", "num_experts"]
K2_MIXED = ["num_experts_per_tok", "moe_intermediate_size", "num_shared_experts", "norm_topk_prob", "moe_gate_bias",
            "router_score_func", "router_scaling_factor", "mova_num_experts", "mlp_only_layers", "decoder_sparse_step"]
KIMI = ["use_full_rank_gate", "gate_lower_bound", "mla_use_output_gate", "attn_res_block_size", "routed_expert_hidden_size",
        "latent_moe_use_norm", "num_expert_group", "topk_group", "use_grouped_topk", "moe_layer_freq", "num_key_value_heads",
        "tie_word_embeddings"]
LLAMA = PLAIN + ["num_key_value_heads", "head_dim"]


NULL_SAYS = ("attention_gate_func", "attn_res_block_size", "routed_expert_hidden_size", "gate_lower_bound")  # that it is none


def is_said(config, key):
    return key in config if key in NULL_SAYS else config.get(key) is not None


def rope_keys(config, family):
    """The rotation's: {name in the report: whether config.json says it}, of those that are shown."""
    blocks = [config[k] for k in ROPE[:2] if config.get(k)]
    has_theta = any(c.get("rope_theta") is not None for c in [config, *blocks])
    if family == "k2_horizon" and not blocks and not has_theta:
        return {"rope_parameters": False}
    kind = next((b[k] for b in blocks for k in ("rope_type", "type") if k in b), None)
    keys = {} if kind else {"rope_parameters.rope_type": False}
    if kind != "yarn":
        return {"rope_theta": has_theta, **keys}
    is_derived = blocks[0].get("mscale") and blocks[0].get("mscale_all_dim")
    absent = [k for k in YARN if blocks[0].get(k) is None and not (k == "attention_factor" and is_derived)]
    return {"rope_parameters": True, **{f"rope_parameters.{k}": False for k in absent}}


def may_be_absent(config, family):
    """{key: whether config.json says it}"""
    if family == "llama":
        keys = LLAMA
    elif family == "k2_horizon":
        mixed = K2_MIXED + ([] if config.get("mlp_only_layers") is not None else ["num_dense_layers"])
        keys = K2 + (mixed if config.get("num_experts") else [])
    else:
        text = config.get("text_config", config)
        said = {k: is_said({**text, **text["linear_attn_config"]}, k) for k in KIMI}
        found = [k for k in ("max_position_embeddings", "model_max_length") if text.get(k) is not None]
        return {**said, (found or ["max_position_embeddings"])[0]: bool(found)}
    return {**{k: is_said(config, k) for k in keys}, **rope_keys(config, family)}


def check_defaults(name, path):
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    i, page = report(path), run("info", path).out.decode()
    said = may_be_absent(config, i["family"])
    check(f"{name}: every key is shown", set(said) <= set(i["config"]), set(said) - set(i["config"]))
    marked = {k for k, given in said.items() if not given}
    check(f"{name}: marked are those that config.json lacks", marked == set(i["defaults"]), marked ^ set(i["defaults"]))
    lines = {x.split()[0] for x in page.splitlines() if x.endswith("(default: config.json does not say)")}
    check(f"{name}: the page marks the same", lines == marked, lines ^ marked)
    return i


for name in sorted(os.listdir(MODELS)):
    if os.path.isdir(os.path.join(MODELS, name)):
        check_defaults(name, os.path.join(MODELS, name))

for page, keys in (("k2_horizon", K2 + K2_MIXED + ["num_dense_layers", *ROPE, *YARN]), ("kimi_k3", KIMI)):
    with open(f"docs/{page}.md") as f:
        table = [x.split("|")[1] for x in f if x.startswith("| `")]
    lacks = [k for k in keys if not any(f"`{k}`" in x or f".{k}`" in x for x in table)]
    check(f"docs/{page}.md has every key that may be absent", not lacks, lacks)

check("layers forced dense", report(os.path.join(MODELS, "k2-moe"))["config"]["mlp_only_layers"] == [0])
i = check_defaults("num_dense_layers", make_model(base="k2-moe", config={"mlp_only_layers": None, "num_dense_layers": 1}))
check("a leading run of dense layers", (i["config"]["mlp_only_layers"], i["config"]["num_dense_layers"]) == ([], 1), i["config"])
# ---- types: what is a number, a list or null in config.json is one in the object; sentences are for the page ----------------

TEXTS = {"hidden_act": {"silu", "situ"}, "router_score_func": {"sigmoid", "softmax"}, "attention_gate_func": {"silu", "softplus"},
         "rope_parameters.rope_type": {"default"}}
BLOCKS = {"rope_parameters": {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", *YARN},
          "linear_attn_config": {"num_heads", "head_dim", "short_conv_kernel_size"}}


def check_types(name, path):
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    config, found, page = config.get("text_config", config), report(path)["config"], run("info", path).out.decode()
    for key, value in found.items():
        if key in TEXTS:
            good = value is None or value in TEXTS[key]
        elif key in BLOCKS:
            said = {k: v for k, v in config.get(key, {}).items() if k in BLOCKS[key]}
            good = set(value) == BLOCKS[key] and value == {**value, **said}
        else:
            is_list = isinstance(value, list) and all(isinstance(x, int) for x in value)
            good = value is None or is_list or isinstance(value, (bool, int, float))
        check(f"{name}: {key} is of its type", good, key, value)
        if key in config and not isinstance(config[key], (dict, str)):
            check(f"{name}: {key} is as in config.json", value == config[key] or key not in BLOCKS and config[key] is None, value)
        if value is None and key != "activation_situ_linear_beta":  # told by hidden_act
            check(f"{name}: {key} is none on the page", re.search(f"^  {key} +none", page, re.M) is not None, page)
    return found, page


for name in sorted(os.listdir(MODELS)):
    if os.path.isdir(os.path.join(MODELS, name)):
        check_types(name, os.path.join(MODELS, name))

with open(os.path.join(MODELS, "k3-plain", "config.json")) as f:
    text = json.load(f)["text_config"]
found, _ = check_types("no cap", make_model(base="k3-plain", config={"text_config": {**text, "activation_situ_linear_beta": None}}))
betas = [found[f"activation_situ_{k}"] for k in ("beta", "linear_beta")]
check("the activation's numbers", found["hidden_act"] == "situ" and betas == [text["activation_situ_beta"], None], found)
found, page = check_types("no limit", make_model(base="kimi-linear", config={"model_max_length": None, "max_position_embeddings": None}))
NONE = ("max_position_embeddings", "q_lora_rank", "attn_res_block_size", "routed_expert_hidden_size", "gate_lower_bound")
check("what there is none of is null", all(found[k] is None for k in NONE), found)
check("in words on the page", all(x in page for x in (
    "none: no limit", "none: a plain query", "none: ordinary residuals", "none: experts read the full vector",
    "none: the softplus form", " (never turned)")), page)

for base, absent in (("own-yarn-derived", ("rope_head_dim", "hidden_act")), ("kimi-linear", ("model_max_length",)),
                     ("kimi-linear", ("use_grouped_topk", "num_expert_group", "topk_group", "max_position_embeddings")),
                     ("own-llama", ("rope_theta", "rope_parameters", "rms_norm_eps")), ("own-llama-untied", ("hidden_act",))):
    check_defaults(f"{base} without {absent}", make_model(base=base, config={k: None for k in absent}))

skipping = make_model(base="k2-yarn", with_tokenizer=False)
with open(os.path.join(skipping, "model.safetensors"), "rb") as f:
    raw = f.read()
n = int.from_bytes(raw[:8], "little")
tensors = {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
           for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}
tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [4], b"\0" * 16)
write_safetensors(os.path.join(skipping, "model.safetensors"), tensors)
check("skipped tensors are counted", report(skipping)["skipped"] == {"tensors": 1, "bytes": 16})
strange = os.path.join(folder(), 'quo"te\n')
os.symlink(DENSE, strange)
check("a folder's name with a quote and a newline", report(strange)["folder"] == strange)

# ---- devices ------------------------------------------------------------------------------------------------------------

r = run("devices", "--json")
d = json.loads(r.out)
check("devices", r.code == 0 and r.err == "" and d["devices"] == ["cpu"] and d["cpu"]["levels"][0] == "scalar", r)
check("threads and memory", 1 <= d["cpu"]["threads"] <= d["cpu"]["cpus"] and 0 < d["memory"]["available"] <= d["memory"]["total"], d)
r = run("devices")
check("devices page", r.code == 0 and b"devices of this build: cpu" in r.out and r.err == "", r)
for level in d["cpu"]["levels"]:
    check(f"level {level}", run("verify", DENSE, os.path.join(DENSE, "expected.safetensors"), "--cpu", level).code == 0)

finish()
