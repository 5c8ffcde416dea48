#!/usr/bin/env python3
"""Folders in the form that publishers give their checkpoints, rebuilt from public facts, without their values.

    tests/published/official.py [--layers N] [--shrink N] MODEL DIR     or, without words, the names of MODELs

Every tensor of the published folder is there, by its name, element type, shape and shard, the vision tower and the
drafting head too; so is every file that such a folder has, in its form. What is not there is what a publisher owns:
weights are the holes of sparse files, scales a constant that is legal (a scale of zero is not), and the tokenizer has
the published number of tokens, merges and added tokens, but a vocabulary that is counted out. official.toml says where
each fact is from.

--layers cuts the layers down, --shrink also divides widths, for machines that are to compute: values are then small
random numbers by the hash of the tensor's name, but for the vision tower's. Same words, same bytes.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import pathlib
import struct
import sys
import tomllib
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import official_text  # noqa: E402

BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}
ONE = {"BF16": b"\x80\x3f", "F32": b"\x00\x00\x80\x3f", "F8_E4M3": b"\x38"}
BLOCK = 128


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One entry of a safetensors header. `is_scale`: zero is not a legal value of it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_scale: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * BYTES[self.dtype]


def models() -> dict[str, dict]:
    """The rows of official.toml."""
    return tomllib.loads((HERE / "official.toml").read_text(encoding="utf-8"))


# Names and shapes as the model has them, in bf16 ----------------------------------------------------------------


def attention(c: dict, at: str, gated: bool) -> Iterator[tuple[str, tuple]]:
    hidden, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    dim = c.get("head_dim") or hidden // heads
    rows = {"q": heads * dim * (2 if gated else 1), "k": kv * dim, "v": kv * dim}
    for part, n in rows.items():
        yield f"{at}{part}_proj.weight", (n, hidden)
        if c["model_type"] == "qwen2":
            yield f"{at}{part}_proj.bias", (n,)
    yield f"{at}o_proj.weight", (hidden, heads * dim)
    if c["model_type"].startswith("qwen3"):
        yield f"{at}q_norm.weight", (dim,)
        yield f"{at}k_norm.weight", (dim,)


def delta(c: dict, at: str) -> Iterator[tuple[str, tuple]]:
    hidden, keys, values = c["hidden_size"], c["linear_num_key_heads"], c["linear_num_value_heads"]
    key_rows, value_rows = keys * c["linear_key_head_dim"], values * c["linear_value_head_dim"]
    yield f"{at}A_log", (values,)
    yield f"{at}conv1d.weight", (2 * key_rows + value_rows, 1, c["linear_conv_kernel_dim"])
    yield f"{at}dt_bias", (values,)
    if c["model_type"] == "qwen3_next":
        yield f"{at}in_proj_ba.weight", (2 * values, hidden)
        yield f"{at}in_proj_qkvz.weight", (2 * key_rows + 2 * value_rows, hidden)
    else:
        yield f"{at}in_proj_a.weight", (values, hidden)
        yield f"{at}in_proj_b.weight", (values, hidden)
        yield f"{at}in_proj_qkv.weight", (2 * key_rows + value_rows, hidden)
        yield f"{at}in_proj_z.weight", (value_rows, hidden)
    yield f"{at}norm.weight", (c["linear_value_head_dim"],)
    yield f"{at}out_proj.weight", (hidden, value_rows)


def gated_mlp(at: str, hidden: int, width: int) -> Iterator[tuple[str, tuple]]:
    yield f"{at}down_proj.weight", (hidden, width)
    yield f"{at}gate_proj.weight", (width, hidden)
    yield f"{at}up_proj.weight", (width, hidden)


def mlp(c: dict, at: str, fused: bool) -> Iterator[tuple[str, tuple]]:
    hidden = c["hidden_size"]
    if "num_experts" not in c:
        yield from gated_mlp(at, hidden, c["intermediate_size"])
        return
    experts, width = c["num_experts"], c["moe_intermediate_size"]
    if fused:
        yield f"{at}experts.down_proj", (experts, hidden, width)
        yield f"{at}experts.gate_up_proj", (experts, 2 * width, hidden)
    else:
        for e in range(experts):
            yield from gated_mlp(f"{at}experts.{e}.", hidden, width)
    yield f"{at}gate.weight", (experts, hidden)
    if "shared_expert_intermediate_size" in c:
        yield from gated_mlp(f"{at}shared_expert.", hidden, c["shared_expert_intermediate_size"])
        yield f"{at}shared_expert_gate.weight", (1, hidden)


def norms(c: dict, at: str) -> Iterator[tuple[str, tuple]]:
    yield f"{at}input_layernorm.weight", (c["hidden_size"],)
    yield f"{at}post_attention_layernorm.weight", (c["hidden_size"],)


def is_full(c: dict, layer: int) -> bool:
    every = c.get("full_attention_interval")
    return not every or (layer + 1) % every == 0


def text_names(c: dict, prefix: str, fused: bool) -> Iterator[tuple[str, tuple]]:
    gated = "full_attention_interval" in c
    for layer in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{layer}."
        yield from norms(c, at)
        yield from attention(c, f"{at}self_attn.", gated) if is_full(c, layer) else delta(c, f"{at}linear_attn.")
        yield from mlp(c, f"{at}mlp.", fused)
    yield f"{prefix}embed_tokens.weight", (c["vocab_size"], c["hidden_size"])
    yield f"{prefix}norm.weight", (c["hidden_size"],)
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", (c["vocab_size"], c["hidden_size"])


def vision_names(v: dict) -> Iterator[tuple[str, tuple]]:
    hidden, width, patch = v["hidden_size"], v["intermediate_size"], v["patch_size"]
    at, merged = "model.visual.", hidden * v["spatial_merge_size"] ** 2
    for b in range(v["depth"]):
        block = f"{at}blocks.{b}."
        for part, shape in (
            ("attn.proj", (hidden, hidden)),
            ("attn.qkv", (3 * hidden, hidden)),
            ("mlp.linear_fc1", (width, hidden)),
            ("mlp.linear_fc2", (hidden, width)),
        ):
            yield f"{block}{part}.bias", shape[:1]
            yield f"{block}{part}.weight", shape
        for part in ("norm1", "norm2"):
            yield f"{block}{part}.bias", (hidden,)
            yield f"{block}{part}.weight", (hidden,)
    for part, shape in (
        ("linear_fc1", (merged, merged)),
        ("linear_fc2", (v["out_hidden_size"], merged)),
        ("norm", (hidden,)),
    ):
        yield f"{at}merger.{part}.bias", shape[:1]
        yield f"{at}merger.{part}.weight", shape
    yield f"{at}patch_embed.proj.bias", (hidden,)
    yield f"{at}patch_embed.proj.weight", (hidden, v["in_channels"], v["temporal_patch_size"], patch, patch)
    yield f"{at}pos_embed.weight", (v["num_position_embeddings"], hidden)


def draft_names(c: dict, fused: bool) -> Iterator[tuple[str, tuple]]:
    hidden = c["hidden_size"]
    yield "mtp.fc.weight", (hidden, 2 * hidden)
    yield from norms(c, "mtp.layers.0.")
    yield from attention(c, "mtp.layers.0.self_attn.", True)
    yield from mlp(c, "mtp.layers.0.mlp.", fused)
    for part in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        yield f"mtp.{part}.weight", (hidden,)


# Formats ----------------------------------------------------------------------------------------------------------


def plain(name: str, shape: tuple, row: dict) -> Tensor:
    is_f32 = name.endswith(tuple(row.get("f32", ())))
    return Tensor(name, "F32" if is_f32 else "BF16", shape)


def fp8_block(name: str, shape: tuple) -> Iterator[Tensor]:
    yield Tensor(name, "F8_E4M3", shape)
    yield Tensor(f"{name}_scale_inv", "BF16", tuple(-(-n // BLOCK) for n in shape), True)


def fp8_tensor(name: str, shape: tuple) -> Iterator[Tensor]:
    module = name.removesuffix("weight")
    yield Tensor(f"{module}input_scale", "F32", (), True)
    yield Tensor(name, "F8_E4M3", shape)
    yield Tensor(f"{module}weight_scale", "F32", (), True)


def nvfp4(name: str, shape: tuple) -> Iterator[Tensor]:
    yield Tensor(name, "U8", (shape[0], shape[1] // 2))
    yield Tensor(f"{name}_scale", "F8_E4M3", (shape[0], shape[1] // 16), True)
    yield Tensor(f"{name}_scale_2", "F32", (), True)


def is_kept(module: str, kept: list[str]) -> bool:
    """Does a list of modules_to_not_convert name it, or what it is part of? A table of embeddings is no product."""
    return module.endswith("embed_tokens") or any(module == k or module.startswith(k + ".") for k in kept)


def stored(name: str, shape: tuple, row: dict, quant: dict) -> Iterator[Tensor]:
    """The tensors of one of the model's."""
    module = name.removesuffix(".weight")
    is_matrix = name.endswith(".weight") and len(shape) == 2
    if is_matrix and quant.get("quant_method") == "fp8" and not is_kept(module, quant["modules_to_not_convert"]):
        yield from fp8_block(name, shape)
    elif is_matrix and quant.get("quant_method") == "modelopt":
        layers = quant["quantized_layers"]
        expert = module.split(".experts.")[0] + ".experts"
        algo = layers.get(module, layers.get(expert if ".experts." in module else "", {})).get("quant_algo")
        yield from {"FP8": fp8_tensor, "W4A16_NVFP4": nvfp4}[algo](name, shape) if algo else [plain(name, shape, row)]
    else:
        yield plain(name, shape, row)
    if (
        quant.get("kv_cache_scheme")
        and module.endswith(("self_attn.k_proj", "self_attn.v_proj"))
        and "mtp" not in module
    ):
        yield Tensor(f"{module}.{module[-6]}_scale", "F32", (), True)


# The config ---------------------------------------------------------------------------------------------------------


def fp8_kept(config: dict) -> list[str]:
    """What the official FP8 files leave in bf16, by module."""
    text, vision = config.get("text_config", config), config.get("vision_config")
    prefix = "model.language_model." if vision else "model."
    kept = ["lm_head"]
    for layer in range(text["num_hidden_layers"]):
        at = f"{prefix}layers.{layer}."
        if not is_full(text, layer):
            kept += [f"{at}linear_attn.{part}" for part in ("conv1d", "in_proj_a", "in_proj_b")]
        if "num_experts" in text:
            kept += [f"{at}mlp.gate", f"{at}mlp.shared_expert_gate"]
    if vision:
        kept += [
            f"model.visual.blocks.{b}.{part}"
            for b in range(vision["depth"])
            for part in ("attn.proj", "attn.qkv", "mlp.linear_fc1", "mlp.linear_fc2")
        ]
        kept += [
            "model.visual.merger.linear_fc1",
            "model.visual.merger.linear_fc2",
            "model.visual.patch_embed.proj",
            "model.visual.pos_embed",
        ]
    return (
        kept
        + ["mtp.fc"]
        + (["mtp.layers.0.mlp.gate", "mtp.layers.0.mlp.shared_expert_gate"] if "num_experts" in text else [])
    )


DIVIDED = (
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "num_experts",
)


def config_files(row: dict, layers: int, shrink: int) -> dict[str, dict]:
    """config.json and, where there is one, hf_quant_config.json; with `layers` layers (0: all), and widths divided."""
    files = json.loads((HERE / f"{row['config']}.json").read_text(encoding="utf-8"))
    config = files["config.json"]
    for key, value in row.get("changes", {}).items():
        (config.get("text_config", config) if key in config.get("text_config", {}) else config)[key] = value
    text = config.get("text_config", config)
    if layers:
        text["num_hidden_layers"] = layers
        if "layer_types" in text:
            text["layer_types"] = text["layer_types"][:layers]
        if "max_window_layers" in text:
            text["max_window_layers"] = layers
    for key in DIVIDED if shrink > 1 else ():
        if key in text:
            text[key] = max(1, text[key] // shrink)
    if shrink > 1 and "vision_config" in config:
        config["vision_config"]["out_hidden_size"] = text["hidden_size"]
    config.pop("quantization_config", None) if row["format"] != "modelopt" else None
    if row["format"] == "fp8":
        config["quantization_config"] = {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "modules_to_not_convert": fp8_kept(config),
            "quant_method": "fp8",
            "weight_block_size": [BLOCK, BLOCK],
        }
    kept = ["config.json"] + (["hf_quant_config.json"] if row["format"] == "modelopt" else [])
    return {name: files[name] for name in kept}


def names_of(config: dict, fused: bool, draft: str = "") -> Iterator[tuple[str, tuple]]:
    """Names and shapes of the model before any format, in the order of the shards."""
    text = config.get("text_config", config)
    text = text | {
        "tie_word_embeddings": config.get("tie_word_embeddings", False),
        "model_type": config["model_type"],
    }
    yield from text_names(text, "model.language_model." if "vision_config" in config else "model.", fused)
    if "vision_config" in config:
        yield from vision_names(config["vision_config"])
    if draft:
        yield from draft_names(text, draft == "fused")


def digest_of(names: Iterator[tuple[str, tuple]]) -> str:
    """How many there are, and a hash of all names with their shapes, whatever their order."""
    lines = sorted(f"{name} {list(shape)}\n" for name, shape in names)
    return f"{len(lines)} {hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def tensors(row: dict, config: dict) -> list[Tensor]:
    """Every tensor of the folder, in the order of its shards."""
    quant, names = (
        config.get("quantization_config", {}),
        names_of(config, row.get("fused", False), row.get("draft", "")),
    )
    return [t for name, shape in names for t in stored(name, shape, row, quant)]


# Files ----------------------------------------------------------------------------------------------------------------


def shard_of_layer(name: str) -> str:
    """Shards by layer: layers-N, the drafting head, and the rest."""
    if name.startswith("mtp."):
        return "mtp.safetensors"
    return (
        f"layers-{name.split('.layers.')[1].split('.')[0]}.safetensors" if ".layers." in name else "outside.safetensors"
    )


def shards(row: dict, all_tensors: list[Tensor]) -> dict[str, list[Tensor]]:
    """Which file holds which tensors."""
    if row["shards"] == "layers":
        files: dict[str, list[Tensor]] = {}
        for t in all_tensors:
            files.setdefault(shard_of_layer(t.name), []).append(t)
        return files
    count, total = row["shards"], sum(t.nbytes for t in all_tensors)
    groups, size = [[]], 0
    for t in all_tensors:
        if size and size + t.nbytes / 2 > total / count and len(groups) < count:
            groups.append([])
            size = 0
        groups[-1].append(t)
        size += t.nbytes
    return {f"model-{i + 1:05}-of-{len(groups):05}.safetensors": g for i, g in enumerate(groups)}


SIGNS = bytes(0x3C | b & 0x80 for b in range(256))  # the high byte of a bf16 from 0.008 to 0.03, or less than -0.008


def noise(name: str, count: int) -> bytes:
    """bf16 numbers of about 0.02, by the name."""
    digest = hashlib.shake_128(name.encode()).digest(2 * count)
    data = bytearray(2 * count)
    data[0::2] = digest[:count]
    data[1::2] = digest[count:].translate(SIGNS)
    return bytes(data)


def values_of(t: Tensor) -> bytes:
    """What a folder that is to be computed with holds: nothing is zero, and nothing large."""
    if t.is_scale:
        scale = {"BF16": b"\x80\x3c", "F32": struct.pack("<f", 1 / 64)}  # codes are below 2
        return scale.get(t.dtype, ONE[t.dtype]) * math.prod(t.shape)
    if t.dtype in ("U8", "F8_E4M3"):
        codes = bytearray(hashlib.shake_128(t.name.encode()).digest(t.nbytes))
        return bytes(b & 0xBF for b in codes) if t.dtype == "F8_E4M3" else bytes(codes)
    count = math.prod(t.shape)
    if t.name.endswith("A_log"):
        return (b"\x00\x00\x80\x3f" if t.dtype == "F32" else ONE["BF16"]) * count
    if t.dtype == "F32":
        return struct.pack(f"<{count}f", *[1.0] * count)
    return noise(t.name, count) if len(t.shape) > 1 else ONE["BF16"] * count


OWN_NAMES = {
    "model.layers.": "layers.",
    "model.embed_tokens.": "tok_embeddings.",
    "model.norm.": "norm.",
    "lm_head.": "output.",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def own_name(name: str) -> str:
    """What the publisher of Mistral calls the tensor in its own files."""
    for theirs, own in OWN_NAMES.items():
        name = name.replace(theirs, own)
    return name


def write_shard(path: pathlib.Path, held: list[Tensor], filled: bool) -> None:
    entries, end = {"__metadata__": {"format": "pt"}}, 0
    for t in held:
        entries[t.name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [end, end + t.nbytes]}
        end += t.nbytes
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        data = f.tell()
        f.truncate(data + end)
        for t in held:
            if filled and not t.name.startswith("model.visual.") or t.is_scale:
                f.seek(data + entries[t.name]["data_offsets"][0])
                f.write(values_of(t) if filled else ONE[t.dtype] * math.prod(t.shape))


def write(name: str, folder: pathlib.Path, layers: int = 0, shrink: int = 1) -> list[Tensor]:
    """Makes the folder; the tensors that it holds."""
    row = models()[name]
    folder.mkdir(parents=True, exist_ok=True)
    files = config_files(row, layers, shrink)
    held = tensors(row, files["config.json"])
    by_file = shards(row, held)
    for file, content in by_file.items():
        write_shard(folder / file, content, filled=bool(layers or shrink > 1))
    if row.get("again"):
        again = [dataclasses.replace(t, name=own_name(t.name)) for t in held]
        write_shard(folder / "consolidated.safetensors", again, filled=False)
    weight_map = {t.name: file for file, content in by_file.items() for t in content}
    index = {"metadata": {"total_size": sum(t.nbytes for t in held)}, "weight_map": dict(sorted(weight_map.items()))}
    files["model.safetensors.index.json"] = index
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    official_text.write(row, folder)
    return held


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("model", nargs="?", choices=list(models()))
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    words = parser.parse_args()
    if not words.model or not words.folder:
        print("\n".join(models()))
        return
    held = write(words.model, words.folder, words.layers, words.shrink)
    print(f"{words.folder}: {len(held)} tensors, {sum(t.nbytes for t in held)} bytes")


if __name__ == "__main__":
    main()
