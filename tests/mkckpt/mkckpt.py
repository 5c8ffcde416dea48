#!/usr/bin/env python3
"""Seeded generator of checkpoints, sound and broken.

    python tests/mkckpt/mkckpt.py RECIPE OUTDIR     write one checkpoint folder
    python tests/mkckpt/mkckpt.py --list            name, verdict and subject of every recipe
    python tests/mkckpt/mkckpt.py --digests         name and digest of every recipe: what digests.txt holds

A recipe is one line of recipes.toml: knobs that differ from the small default model, and the expected verdict.
Weights come from Philox counters keyed by seed and tensor name, through an integer mapping, so a recipe gives the
same bytes on every machine and with every numpy. Nothing here needs torch.

Knobs
  family        llama | mistral | qwen2 | qwen3 | qwen3_moe | qwen3_next | qwen3_5 | qwen3_5_moe
  layers hidden heads kv_heads head_dim intermediate vocab max_position   sizes
  tied          no lm_head.weight; the logits use the embedding
  moe           of the families with experts: table with experts, active, intermediate, shared (width; 0 = none),
                norm_topk, fused (one tensor for all experts)
  delta         of those with Gated DeltaNet: table with k_heads, v_heads, k_dim, v_dim, conv, interval, part (of a
                head that rope turns), mtp (layers of the drafting head)
  bias          list of modules with a bias (q_proj, o_proj, gate_proj, ...); qwen2 has q, k and v by itself
  rope          table: the rope settings (rope_type, factor, ...); theta alone by default
  rope_keys     "old" (rope_theta + rope_scaling, 4.x) or "new" (rope_parameters, 5.x)
  nested        text model under text_config
  prefix        replaces the "model." in front of tensor names
  dtype         BF16 | F16 | F32; dtypes: table glob -> dtype for single tensors
  seed          of the weights
  tokenizer     qwen2 | llama3 | smollm | spm; merges: how many
  shards        number of weight files; with an index when more than one; shard_style: their names
  order         "file" (model order) or "reversed": order of tensors in the file
  metadata      table for __metadata__
  quant         table: writer = "fp8" | "modelopt" | "ct" | "awq" | "gptq"; formats: glob of modules -> "fp8-block" |
                "fp8-tensor" | "fp8-channel" | "nvfp4" | "mxfp4" | "int4" | "plain", the first that fits; scale_dtype,
                block, ignore (list), static (activation scales), kv (what the files say of the cache), both_files
                (modelopt); of int4 group (-1: a row), zeros (else they are 8), v2 (gptq), signed (scales below
                zero too); see quant.py
  hf_quant      laid over hf_quant_config.json, like config
  config, generation, tokenizer_config   tables laid over those files; the value "@text" stands for that JSON text,
                "-" removes the key
  extra         table name -> shape: tensors nobody asked for; missing: globs of tensors left out
  values        list of [glob, index, "nan" | "inf" | "-inf" | number]; index "all" fills the tensor
  box           list of [file, operation, ...] on a container's header (see BOX_EDITS)
  edit          list of [file, operation, ...] on a file's bytes (see BYTE_EDITS)
  special       list of [file, kind, ...]: symlink, fifo, dir, sparse or absent in place of a file

Verdict: expect = "ok" | "note" | "refuse"; code = diagnostic code; message = exact substring of the message;
names = what the message must name, in words.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import struct
import sys
import tomllib
from dataclasses import dataclass, field

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import quant  # noqa: E402
import tokfile  # noqa: E402
from container import Container, Tensor, decode, encode  # noqa: E402

DEFAULTS = {
    "family": "llama", "layers": 2, "hidden": 64, "heads": 2, "kv_heads": 1, "head_dim": 64, "intermediate": 96,
    "vocab": 307, "max_position": 512, "tied": False, "bias": [], "rope": {}, "rope_keys": "old", "theta": 10000.0,
    "nested": False, "prefix": "model.", "dtype": "BF16", "dtypes": {}, "seed": 1, "tokenizer": "smollm",
    "merges": 44, "shards": 1, "shard_style": "model-{i:05d}-of-{n:05d}.safetensors", "order": "file",
    "metadata": {"format": "pt"}, "config": {}, "generation": {}, "tokenizer_config": {},
    "moe": {}, "delta": {}, "quant": {}, "hf_quant": {}, "extra": {}, "missing": [], "values": [], "box": [], "edit": [], "special": [],
    "expect": "ok", "code": "", "message": "", "names": "", "is": "",
}  # fmt: skip
FAMILY = {
    "llama": {"class": "LlamaForCausalLM", "eps": 1e-5},
    "mistral": {"class": "MistralForCausalLM", "eps": 1e-5},
    "qwen2": {"class": "Qwen2ForCausalLM", "eps": 1e-6},
    "qwen3": {"class": "Qwen3ForCausalLM", "eps": 1e-6},
    "qwen3_moe": {"class": "Qwen3MoeForCausalLM", "eps": 1e-6},
    "qwen3_next": {"class": "Qwen3NextForCausalLM", "eps": 1e-6},
    "qwen3_5": {"class": "Qwen3_5ForCausalLM", "eps": 1e-6},
    "qwen3_5_moe": {"class": "Qwen3_5MoeForCausalLM", "eps": 1e-6},
}
MOE = {"experts": 8, "active": 2, "intermediate": 32, "shared": 0, "norm_topk": True, "fused": False}
DELTA = {"k_heads": 2, "v_heads": 4, "k_dim": 16, "v_dim": 16, "conv": 4, "interval": 2, "part": 0.25, "mtp": 0}
HYBRID = ("qwen3_next", "qwen3_5", "qwen3_5_moe")
WITH_EXPERTS = ("qwen3_moe", "qwen3_next", "qwen3_5_moe")
DTYPE_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


# -- weights ----------------------------------------------------------------------------------------------------


def noise(seed, name, count):
    """`count` float32 of mean 0 and standard deviation 1: four 16-bit pieces of each Philox word, summed.

    The sum is an integer, and its scale a constant, so the result does not depend on a library's normal
    generator or on the order of floating-point operations."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    words = np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64)).random_raw(count)
    sums = np.zeros(count, np.int64)
    for shift in (0, 16, 32, 48):
        sums += ((words >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64)
    return ((sums - 2 * 65535) * (3.0**0.5 / 65536.0)).astype("<f4")


def delta_plan(knob, at):
    """Gated DeltaNet in place of attention; as Qwen3-Next has it, rows of the first products stand by key head."""
    h, g = knob["hidden"], {**DELTA, **knob["delta"]}
    k, v = g["k_heads"] * g["k_dim"], g["v_heads"] * g["v_dim"]
    if knob["family"] == "qwen3_next":
        products = [("in_proj_qkvz", 2 * k + 2 * v), ("in_proj_ba", 2 * g["v_heads"])]
    else:
        products = [
            ("in_proj_qkv", 2 * k + v),
            ("in_proj_z", v),
            ("in_proj_b", g["v_heads"]),
            ("in_proj_a", g["v_heads"]),
        ]
    return [
        *((f"{at}linear_attn.{name}.weight", (rows, h), 0.0, 1.5 / h**0.5) for name, rows in products),
        (f"{at}linear_attn.conv1d.weight", (2 * k + v, 1, g["conv"]), 0.2, 0.5),
        (f"{at}linear_attn.A_log", (g["v_heads"],), 0.0, 1.0),
        (f"{at}linear_attn.dt_bias", (g["v_heads"],), -1.0, 1.0),
        (f"{at}linear_attn.norm.weight", (g["v_dim"],), 1.0, 0.2),
        (f"{at}linear_attn.out_proj.weight", (h, v), 0.0, 1.0 / v**0.5),
    ]


def experts_plan(knob, at):
    h, m = knob["hidden"], {**MOE, **knob["moe"]}
    i, e = m["intermediate"], m["experts"]
    plan = [(f"{at}mlp.gate.weight", (e, h), 0.0, 1.5 / h**0.5)]
    if m["fused"]:
        plan += [(f"{at}mlp.experts.gate_up_proj", (e, 2 * i, h), 0.0, 1.5 / h**0.5),
                 (f"{at}mlp.experts.down_proj", (e, h, i), 0.0, 1.5 / i**0.5)]  # fmt: skip
    names = [] if m["fused"] else [f"mlp.experts.{n}" for n in range(e)]
    for name, width in [(n, i) for n in names] + ([("mlp.shared_expert", m["shared"])] if m["shared"] else []):
        plan += [(f"{at}{name}.gate_proj.weight", (width, h), 0.0, 1.5 / h**0.5),
                 (f"{at}{name}.up_proj.weight", (width, h), 0.0, 1.0 / h**0.5),
                 (f"{at}{name}.down_proj.weight", (h, width), 0.0, 1.5 / width**0.5)]  # fmt: skip
    if m["shared"]:
        plan.append((f"{at}mlp.shared_expert_gate.weight", (1, h), 0.0, 1.0 / h**0.5))
    return plan


def gated_attention_plan(knob, at):
    h, d, nh, nkv = knob["hidden"], knob["head_dim"], knob["heads"], knob["kv_heads"]
    return [
        (f"{at}self_attn.q_proj.weight", (2 * nh * d, h), 0.0, 1.5 / h**0.5),
        (f"{at}self_attn.q_norm.weight", (d,), 0.25, 0.2),
        (f"{at}self_attn.k_proj.weight", (nkv * d, h), 0.0, 1.5 / h**0.5),
        (f"{at}self_attn.k_norm.weight", (d,), 0.25, 0.2),
        (f"{at}self_attn.v_proj.weight", (nkv * d, h), 0.0, 1.0 / h**0.5),
        (f"{at}self_attn.o_proj.weight", (h, nh * d), 0.0, 1.0 / (nh * d) ** 0.5),
    ]


def mlp_plan(knob, at):
    h, i = knob["hidden"], knob["intermediate"]
    return [(f"{at}mlp.gate_proj.weight", (i, h), 0.0, 1.5 / h**0.5),
            (f"{at}mlp.up_proj.weight", (i, h), 0.0, 1.0 / h**0.5),
            (f"{at}mlp.down_proj.weight", (h, i), 0.0, 1.0 / i**0.5)]  # fmt: skip


def hybrid_plan(knob):
    """Norms are stored less one."""
    h, p, g = knob["hidden"], knob["prefix"], {**DELTA, **knob["delta"]}

    def layer(at, delta):
        mixer = delta_plan if delta else gated_attention_plan
        mlp = experts_plan if knob["family"] in WITH_EXPERTS else mlp_plan
        return [(f"{at}input_layernorm.weight", (h,), 0.0, 0.2), *mixer(knob, at),
                (f"{at}post_attention_layernorm.weight", (h,), 0.0, 0.2), *mlp(knob, at)]  # fmt: skip

    plan = [(f"{p}embed_tokens.weight", (knob["vocab"], h), 0.0, 1.0)]
    for n in range(knob["layers"]):
        plan += layer(f"{p}layers.{n}.", (n + 1) % g["interval"] != 0)
    plan += [(f"{p}norm.weight", (h,), 0.0, 0.2), ("lm_head.weight", (knob["vocab"], h), 0.0, 4.0 / h**0.5)]
    if g["mtp"]:
        plan += [("mtp.fc.weight", (h, 2 * h), 0.0, 1.0 / h**0.5)]
        plan += [
            (f"mtp.{name}.weight", (h,), 0.0, 0.2) for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
        ]
        for n in range(g["mtp"]):
            plan += layer(f"mtp.layers.{n}.", False)
    return plan


def tensor_plan(knob):
    """Of the knob's family."""
    return hybrid_plan(knob) if knob["family"] in HYBRID else dense_plan(knob)


def dense_plan(knob):
    """[(name, shape, mean, standard deviation)] of every tensor of the model, in file order.

    The scales keep the hidden state near unit size, give attention some contrast, and spread the logits over
    several units so that the best token is clear. In a tied model the layers speak louder: otherwise the embedding
    that is still in the hidden state makes every token predict itself."""
    h, d, i = knob["hidden"], knob["head_dim"], knob["intermediate"]
    nh, nkv, p = knob["heads"], knob["kv_heads"], knob["prefix"]
    biased = set(knob["bias"]) | ({"q_proj", "k_proj", "v_proj"} if knob["family"] == "qwen2" else set())
    loud = 2.5 if knob["tied"] else 1.0
    linears = [
        ("self_attn.", "q_proj", nh * d, h, 1.5), ("self_attn.", "k_proj", nkv * d, h, 1.5),
        ("self_attn.", "v_proj", nkv * d, h, 1.0), ("self_attn.", "o_proj", h, nh * d, loud),
        ("mlp.", "gate_proj", i, h, 1.5), ("mlp.", "up_proj", i, h, 1.0), ("mlp.", "down_proj", h, i, loud),
    ]  # fmt: skip
    plan = [(f"{p}embed_tokens.weight", (knob["vocab"], h), 0.0, 4.0 / h**0.5 if knob["tied"] else 1.0)]
    for layer in range(knob["layers"]):
        at = f"{p}layers.{layer}."
        plan.append((f"{at}input_layernorm.weight", (h,), 1.0, 0.2))
        for part, name, rows, columns, gain in linears:
            if name == "gate_proj":
                plan.append((f"{at}post_attention_layernorm.weight", (h,), 1.0, 0.2))
            if part == "mlp." and knob["family"] in WITH_EXPERTS:
                continue
            plan.append((f"{at}{part}{name}.weight", (rows, columns), 0.0, gain / columns**0.5))
            if name in biased:
                plan.append((f"{at}{part}{name}.bias", (rows,), 0.0, 0.5))
            if knob["family"] in ("qwen3", "qwen3_moe") and name in ("q_proj", "k_proj"):
                plan.append((f"{at}{part}{name[0]}_norm.weight", (d,), 1.25, 0.2))
        if knob["family"] in WITH_EXPERTS:
            plan += experts_plan(knob, at)
    plan.append((f"{p}norm.weight", (h,), 1.0, 0.2))
    if not knob["tied"]:
        plan.append(("lm_head.weight", (knob["vocab"], h), 0.0, 4.0 / h**0.5))
    return plan


def poke(values, name, x):
    """Apply the `values` knob to one tensor; x float32, changed in place."""
    for glob, index, value in values:
        if fnmatch.fnmatchcase(name, glob):
            x[slice(None) if index == "all" else index] = float(value)
    return x


def left_out(knob, name):
    return any(fnmatch.fnmatchcase(name, glob) for glob in knob["missing"])


def poked(knob, tensor):
    """A tensor of a quantised module with the `values` knob: of floats the values, of bytes the codes."""
    x = decode(tensor.data, tensor.dtype, (-1,)).copy()
    byte = x.dtype.kind in "iu"
    for glob, index, value in knob["values"]:
        if fnmatch.fnmatchcase(tensor.name, glob):
            x[slice(None) if index == "all" else index] = int(value) if byte else float(value)
    return Tensor(tensor.name, tensor.dtype, tensor.shape, x.tobytes() if byte else encode(x, tensor.dtype))


def make_tensors(knob):
    out = []
    for name, shape, mean, deviation in tensor_plan(knob):
        if left_out(knob, name):
            continue
        count = int(np.prod(shape))
        x = noise(knob["seed"], name, count) * np.float32(deviation) + np.float32(mean)
        module = name.removesuffix(".weight")
        stored = knob["quant"] and len(shape) == 2 and quant.module_tensors(
            module, x.reshape(shape), quant.full_knob(knob["quant"]))  # fmt: skip
        if stored:
            out += [poked(knob, t) for t in stored if not left_out(knob, t.name)]
            continue
        dtype = next((t for glob, t in knob["dtypes"].items() if fnmatch.fnmatchcase(name, glob)), knob["dtype"])
        out.append(Tensor(name, dtype, shape, encode(poke(knob["values"], name, x), dtype)))
    for name, shape in knob["extra"].items():
        x = noise(knob["seed"], name, int(np.prod(shape, dtype=np.int64)))
        dtype = next((t for glob, t in knob["dtypes"].items() if fnmatch.fnmatchcase(name, glob)), knob["dtype"])
        out.append(Tensor(name, dtype, tuple(shape), encode(poke(knob["values"], name, x), dtype)))
    return out[::-1] if knob["order"] == "reversed" else out


# -- JSON files -------------------------------------------------------------------------------------------------


def make_config(knob, ids):
    """config.json, keys in the order in which the published files have them."""
    family, rope = FAMILY[knob["family"]], knob["rope"]
    text = {
        "architectures": [family["class"]],
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"][0] if isinstance(ids["eos"], list) else ids["eos"],
        "head_dim": knob["head_dim"],
        "hidden_act": "silu",
        "hidden_size": knob["hidden"],
        "initializer_range": 0.02,
        "intermediate_size": knob["intermediate"],
        "max_position_embeddings": knob["max_position"],
        "model_type": knob["family"],
        "num_attention_heads": knob["heads"],
        "num_hidden_layers": knob["layers"],
        "num_key_value_heads": knob["kv_heads"],
        "rms_norm_eps": family["eps"],
        "tie_word_embeddings": knob["tied"],
        "use_cache": True,
        "vocab_size": knob["vocab"],
    }
    if knob["family"] in WITH_EXPERTS:
        m = {**MOE, **knob["moe"]}
        text.update({"num_experts": m["experts"], "num_experts_per_tok": m["active"],
                     "moe_intermediate_size": m["intermediate"], "norm_topk_prob": m["norm_topk"],
                     "output_router_logits": False, "router_aux_loss_coef": 0.001})  # fmt: skip
        if m["shared"]:
            text["shared_expert_intermediate_size"] = m["shared"]
        if knob["family"] != "qwen3_5_moe":
            text.update({"decoder_sparse_step": 1, "mlp_only_layers": []})
    if knob["family"] in HYBRID:
        g = {**DELTA, **knob["delta"]}
        text.update({"linear_num_key_heads": g["k_heads"], "linear_num_value_heads": g["v_heads"],
                     "linear_key_head_dim": g["k_dim"], "linear_value_head_dim": g["v_dim"],
                     "linear_conv_kernel_dim": g["conv"], "full_attention_interval": g["interval"],
                     "layer_types": ["linear_attention" if (n + 1) % g["interval"] else "full_attention"
                                     for n in range(knob["layers"])]})  # fmt: skip
        if knob["family"] != "qwen3_next":
            text.update({"attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": g["mtp"],
                         "mtp_use_dedicated_embeddings": False})  # fmt: skip
        if knob["rope_keys"] == "new":
            rope = {"partial_rotary_factor": g["part"], **rope}
        else:
            text["partial_rotary_factor"] = g["part"]
    if knob["family"] in ("llama", "qwen3", "qwen3_moe", *HYBRID):
        text["attention_bias"] = "q_proj" in knob["bias"]
    if knob["family"] == "llama":
        text["mlp_bias"] = "gate_proj" in knob["bias"]
    if knob["family"] == "mistral":
        text["sliding_window"] = None
    if knob["family"] in ("qwen2", "qwen3"):
        text.update({"use_sliding_window": False, "sliding_window": None, "max_window_layers": knob["layers"]})
    if knob["rope_keys"] == "new":
        text["rope_parameters"] = {"rope_theta": knob["theta"], "rope_type": "default", **rope}
        text["dtype"] = DTYPE_NAMES[knob["dtype"]]
    else:
        text["rope_theta"] = knob["theta"]
        text["rope_scaling"] = rope or None
        text["torch_dtype"] = DTYPE_NAMES[knob["dtype"]]
    if knob["family"].startswith("qwen3_5"):
        text["model_type"] += "_text"
    if not knob["nested"]:
        return text
    outer = {key: text.pop(key) for key in ("architectures", "tie_word_embeddings")}
    if knob["family"].startswith("qwen3_5"):
        outer["architectures"] = [family["class"].replace("ForCausalLM", "ForConditionalGeneration")]
    return {**outer, "model_type": knob["family"], "text_config": text}


def overlay(table, changes):
    """Lay the changes over a JSON object: "-" removes a key; a dotted key goes one level down."""
    for key, value in changes.items():
        target, names = table, key.split(".")
        for name in names[:-1]:
            target = target[name]
        if value == "-":
            target.pop(names[-1], None)
        else:
            target[names[-1]] = value
    return table


def render_json(value):
    """JSON text; a string that starts with "@" stands for the literal text after it (numbers JSON has no type for)."""
    text = json.dumps(value, indent=2, ensure_ascii=False)

    def literals(v):
        if isinstance(v, str) and v.startswith("@"):
            yield v
        elif isinstance(v, (list, dict)):
            for item in v.values() if isinstance(v, dict) else v:
                yield from literals(item)

    for literal in set(literals(value)):
        text = text.replace(json.dumps(literal, ensure_ascii=False), literal[1:])
    return (text + "\n").encode()


# -- the checkpoint and the ways to break it --------------------------------------------------------------------


@dataclass
class Special:
    """Something that is not a regular file of ordinary size: symlink TARGET, fifo, dir, sparse SIZE, absent."""

    kind: str
    argument: object = None


@dataclass
class Checkpoint:
    """A folder in the making. boxes: file name -> Container; files: name -> bytes or Special."""

    boxes: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        for name, content in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if isinstance(content, bytes):
                with open(path, "wb") as f:
                    f.write(content)
            elif content.kind == "symlink":
                os.symlink(content.argument, path)
            elif content.kind == "fifo":
                os.mkfifo(path)
            elif content.kind == "dir":
                os.mkdir(path)
            elif content.kind == "sparse":
                with open(path, "wb") as f:
                    f.truncate(content.argument)
            elif content.kind != "absent":
                raise ValueError(content.kind)


def box_set(box, name, key, value):
    """["set", tensor, key, value]: one field of a header entry; "@..." is a literal."""
    box.entry(name)[key] = value


def box_rename(box, old, new):
    box.header = [(new if key == old else key, value) for key, value in box.header]


def box_again(box, name):
    """["again", tensor]: the same name a second time."""
    box.header.append((name, box.entry(name)))


def box_alias(box, name, count):
    """["alias", tensor, count]: so many more names on the tensor's bytes."""
    box.header += [(f"alias.{i}", dict(box.entry(name))) for i in range(count)]


def box_shift(box, name, begin, end):
    """["shift", tensor, begin, end]: move the offsets by these amounts."""
    entry = box.entry(name)
    a, b = entry["data_offsets"]
    entry["data_offsets"] = [a + begin, b + end]


def box_hole(box, name, count):
    """["hole", tensor, count]: unused bytes in front of a tensor's data."""
    at = box.entry(name)["data_offsets"][0]
    box.data = box.data[:at] + bytes(count) + box.data[at:]
    for key, entry in box.header:
        if key != "__metadata__" and entry["data_offsets"][0] >= at:
            entry["data_offsets"] = [n + count for n in entry["data_offsets"]]


def box_prefix(box, value):
    """["prefix", value]: what the first eight bytes say; a string is relative to the file's size."""
    box.prefix = value if isinstance(value, int) else len(box.to_bytes()) + int(value or 0)


def box_pad(box, byte):
    """["pad", byte]: fill the header with this byte, at least eight of them."""
    box.raw_head = box.head().rstrip() + bytes([byte]) * 8


def box_front(box, text):
    """["front", text]: characters before the header's brace."""
    box.raw_head = text.encode() + box.head()


def box_tail(box, text):
    """["tail", text]: characters after the header's last brace."""
    box.raw_head = box.head().rstrip() + text.encode()


def box_skew(box, count):
    """["skew", count]: make the header this many bytes longer than a multiple of eight; sound, but unaligned."""
    box.raw_head = box.head().rstrip()
    box.raw_head += b" " * ((count - 8 - len(box.raw_head)) % 8)


def box_bytes(box, old, new):
    """["bytes", old hex, new hex]: replace bytes of the header text once."""
    head, old = box.head(), bytes.fromhex(old)
    if old not in head:
        raise ValueError(f"header has no {old}")
    box.raw_head = head.replace(old, bytes.fromhex(new), 1)


def box_meta(box, key, value):
    """["meta", key, value]: one pair of __metadata__; ["meta", key, N] with an integer makes N letters."""
    table = dict(box.header).get("__metadata__")
    if table is None:
        table = {}
        box.header.insert(0, ("__metadata__", table))
    table[key] = "m" * value if isinstance(value, int) and value > 1000 else value


def box_dims(box, name, count):
    """["dims", tensor, count]: a shape of so many ones in front."""
    entry = box.entry(name)
    entry["shape"] = [1] * count + entry["shape"]


def box_long_name(box, name, count):
    """["long-name", tensor, count]: give a tensor a name of so many letters."""
    box_rename(box, name, "n" * count)


BOX_EDITS = {
    "set": box_set, "rename": box_rename, "again": box_again, "alias": box_alias, "shift": box_shift, "hole": box_hole,
    "prefix": box_prefix, "pad": box_pad, "front": box_front, "tail": box_tail, "skew": box_skew, "bytes": box_bytes,
    "meta": box_meta, "dims": box_dims, "long-name": box_long_name,
}  # fmt: skip


def replace_once(raw, old, new):
    if raw.count(old.encode()) < 1:
        raise ValueError(f"no {old!r} to replace")
    return raw.replace(old.encode(), new.encode(), 1)


BYTE_EDITS = {
    "text": lambda raw, text: text.encode(),
    "hex": lambda raw, text: bytes.fromhex(text),
    "replace": replace_once,
    "cut": lambda raw, needle: raw[: raw.index(needle.encode()) + len(needle.encode())],
    "truncate": lambda raw, size: raw[:size],
    "front": lambda raw, text: bytes.fromhex(text) + raw,
    "append": lambda raw, text: raw + bytes.fromhex(text),
    "utf16": lambda raw: raw.decode().encode("utf-16"),
    "nest": lambda raw, depth: b'{"deep": ' + b"[" * depth + b"]" * depth + b"," + raw.lstrip()[1:],
    "spaces": lambda raw, count: raw + b" " * count,
}


def pack(knob, tensors):
    """(file name -> Container, index object or None)."""
    metadata = dict(knob["metadata"]) or None  # a copy: box_meta adds to it
    if knob["shards"] == 1:
        return {"model.safetensors": Container.of(tensors, metadata)}, None
    names = [knob["shard_style"].format(i=i + 1, n=knob["shards"]) for i in range(knob["shards"])]
    groups = {name: tensors[i * len(tensors) // len(names) : (i + 1) * len(tensors) // len(names)]
              for i, name in enumerate(names)}  # fmt: skip
    index = {
        "metadata": {"total_size": sum(len(t.data) for t in tensors)},
        "weight_map": {t.name: name for name, group in groups.items() for t in group},
    }
    return {name: Container.of(group, metadata) for name, group in groups.items()}, index


def build(knob):
    """The Checkpoint of a full set of knobs."""
    tokenizer, tokenizer_config, ids = tokfile.make(knob["tokenizer"], knob["merges"])
    generation = {f"{key}_token_id": value for key, value in ids.items() if value is not None}
    boxes, index = pack(knob, make_tensors(knob))
    out = Checkpoint(boxes)
    for name, operation, *rest in knob["box"]:
        BOX_EDITS[operation](out.boxes[name], *rest)
    config = make_config(knob, ids)
    if knob["quant"]:
        modules = [name.removesuffix(".weight") for name, shape, _, _ in tensor_plan(knob) if len(shape) == 2]
        told, hf_quant = quant.configs(quant.full_knob(knob["quant"]), modules)
        config.update({"quantization_config": told} if told else {})
        if hf_quant:
            out.files["hf_quant_config.json"] = render_json(overlay(hf_quant, knob["hf_quant"]))
    out.files |= {
        "config.json": render_json(overlay(config, knob["config"])),
        "generation_config.json": render_json(overlay(generation, knob["generation"])),
        "tokenizer.json": json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n",
        "tokenizer_config.json": render_json(overlay(tokenizer_config, knob["tokenizer_config"])),
        **{name: box.to_bytes() for name, box in out.boxes.items()},
    }
    if index is not None:
        out.files["model.safetensors.index.json"] = render_json(index)
    for name, kind, *rest in knob["special"]:
        out.files[name] = Special(kind, *rest)
    for name, operation, *rest in knob["edit"]:
        out.files[name] = BYTE_EDITS[operation](out.files.get(name, b""), *rest)
    return out


# -- recipes ----------------------------------------------------------------------------------------------------


def recipes(path=os.path.join(HERE, "recipes.toml")):
    """name -> full set of knobs with "topic", in file order. Unknown knobs are errors."""
    with open(path, "rb") as f:
        tables = tomllib.load(f)
    out = {}
    for topic, lines in tables.items():
        for name, line in lines.items():
            unknown = set(line) - set(DEFAULTS)
            if unknown:
                raise ValueError(f"{name}: unknown knobs {sorted(unknown)}")
            if name in out:
                raise ValueError(f"{name}: two recipes of this name")
            out[name] = {**DEFAULTS, **line, "topic": topic}
    return out


def digest(checkpoint):
    """sha256 over names and contents of a Checkpoint, in the order of names."""
    h = hashlib.sha256()
    for name, content in sorted(checkpoint.files.items()):
        raw = content if isinstance(content, bytes) else f"{content.kind}:{content.argument}".encode()
        h.update(struct.pack("<QQ", len(name.encode()), len(raw)) + name.encode() + raw)
    return h.hexdigest()


def make(name, folder):
    """Write the checkpoint of one recipe into a folder, which is created."""
    build(recipes()[name]).write(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?")
    parser.add_argument("outdir", nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--digests", action="store_true")
    args = parser.parse_args()
    if args.digests:
        for name, knob in recipes().items():
            print(name, digest(build(knob)))
        return
    if args.list:
        for name, knob in recipes().items():
            print(f"{name:34} {knob['expect']:7} {knob['code']:6} {knob['is'] or knob['names']}")
    elif args.recipe and args.outdir:
        if args.recipe not in recipes():
            raise SystemExit(f"{args.recipe}: no such recipe; --list shows them")
        make(args.recipe, args.outdir)
    else:
        parser.error("RECIPE and OUTDIR, or --list")


if __name__ == "__main__":
    main()
