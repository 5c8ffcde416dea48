"""Formats of weights and caches in `atlas audit`: counted again from the checkpoint's own tensors, and read again from
each launch's operands."""

from __future__ import annotations

import collections
import json
import math
import re

import pytest
import safetensors

# A tensor that ends so, with the sizes of its scales' blocks: what the products of its module are.
STORED = {
    "llama": lambda c: {},
    "llama-fp8-block": lambda c: {"weight_scale_inv": "e4m3 {}x{}".format(*c["weight_block_size"])},
    "llama-fp8-channel-ct": lambda c: {"weight_scale": "e4m3 row"},
    "llama-mxfp4": lambda c: {"weight_scale": "e2m1 1x32"},
    "llama-nvfp4-modelopt": lambda c: {"weight_scale": "e2m1 1x16"},
    "llama-int4-gptq": lambda c: {"qweight": f"u4 1x{c['group_size']}"},
}


def products_of(folder, model):
    """{format: modules} of what a checkpoint stores of attention, MLP and head."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    with safetensors.safe_open(folder / "model.safetensors", "numpy") as f:
        names = set(f.keys())
    rules = STORED[model](config.get("quantization_config", {}))
    modules = {n.rsplit(".", 1)[0] for n in names if re.search(r"(_proj|lm_head)\.[^.]+$", n)}
    count = collections.Counter(
        next((text for end, text in rules.items() if f"{m}.{end}" in names), "bf16") for m in modules
    )
    if "lm_head.weight" not in names:
        count["bf16"] += 1  # tied to the embedding
    return count


@pytest.mark.parametrize("model", STORED)
def test_products_are_those_of_the_checkpoint(atlas, small_plan_of, repo, model):
    plan = small_plan_of(model)
    audit = json.loads(atlas("audit", plan, "--json").stdout)
    wanted = products_of(repo / "tests" / "fixtures" / model, model)
    found = collections.Counter()
    for p in audit["products"]:  # where a format's blocks do not divide fused rows, blocks are cut smaller
        cut = p["block"][0] > 1 and f"{p['codes']} {p['block'][0]}x{p['block'][1]}" not in wanted
        found[next((w for w in wanted if w.startswith("e4m3 ") and w != "e4m3 row"), "") if cut else p["text"]] += p[
            "count"
        ]
    assert found == wanted
    assert [p["count"] for p in audit["products"]] == sorted((p["count"] for p in audit["products"]), reverse=True)
    line = "products: " + ", ".join(f"{p['count']} {p['text']}" for p in audit["products"])
    assert line in atlas("audit", plan).stdout.splitlines()


NAMES = {
    ("e4m3", "bf16"): "fp8-block",
    ("e4m3", "f32"): "fp8-block",
    ("e4m3", None): "fp8-channel",
    ("e2m1", "e4m3"): "nvfp4",
    ("e2m1", "e8m0"): "mxfp4",
    ("u4", "f32z"): "int4",
    ("bf16", None): "bf16",
}


@pytest.mark.parametrize("model", ["llama-fp8-block", "qwen3-nvfp4-mixed", "llama-int4-gptq", "qwen3_5_moe"])
def test_each_launch_says_what_its_operands_are(atlas, small_plan_of, model):
    audit = json.loads(atlas("audit", small_plan_of(model), "--json").stdout)
    seen = set()
    for phase in audit["targets"][0]["phases"]:
        for launch in phase["launches"]:
            operands = {
                n: (d, [int(x) for x in s.split(",") if x != "*"])
                for n, d, s in re.findall(r"(\w+) (\w+) \[([^]]*)\]", launch["operands"])
            }
            wanted = {}
            for name in (
                "w",
                "gate",
                "up",
                "gate_up",
                "down",
                "shared",
                "shared_down",
                "table",
                "router",
                "shared_gate",
                "conv_w",
            ):
                if name not in operands or phase["phase"] == "probe":
                    continue
                codes, shape = operands[name]
                scales, blocks = operands.get(name + "_scale", (None, []))
                wanted[name] = (NAMES[codes, scales], codes)
                for w in launch["weights"]:
                    if scales and (w["format"], w["codes"]) == wanted[name]:
                        assert blocks[-1] == math.ceil(shape[-1] / w["block"][1])
                        assert blocks[-2] == math.ceil(shape[-2] / w["block"][0])
            assert {(w["format"], w["codes"]) for w in launch["weights"]} == set(wanted.values()), launch
            kv = (
                {"bf16": "bf16", "e4m3": "fp8", "e2m1": "nvfp4"}[operands["kv"][0]]
                if "kv" in operands
                else f"state {operands['delta'][0]}"
                if "delta" in operands
                else ""
            )
            assert launch["cache"] == kv, launch
            seen |= {w["text"] for w in launch["weights"]}
    assert "bf16" in seen and (len(seen) > 1 or model == "qwen3_5_moe")


def test_the_table_has_the_columns(atlas, plan_of, small_plan_of, repo, tmp_path):
    """A cache of two formats, by layer: named as [kv] names them, in the table, above it and in atlas info."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(
        (repo / "tests/fixtures/qwen3/MODEL.toml").read_text(encoding="utf-8")
        + '\n[kv]\ndtype = "fp8"\n[[kv.layers]]\nlayers = "1"\ndtype = "nvfp4"\nrotate = false\n',
        encoding="utf-8",
    )
    plan = plan_of("qwen3", "--model", toml)
    text = atlas("audit", plan, "--phase", "decode").stdout
    assert "caches: fp8 rotated 0; nvfp4 1" in text.splitlines()
    lines = [line for line in text.splitlines() if re.match(r"  (\S+)? ", line)]
    head = next(line for line in lines if line.startswith("  layers "))
    weights, cache = head.index("weights"), head.index("cache")
    rows = [
        (
            line.split()[0 if line.startswith("    ") else 1],
            line[weights:].split("  ")[0],
            line[cache:].split("  ")[0].strip(),
        )
        for line in lines
        if not line.startswith("  layers ")
    ]
    assert [c for op, _, c in rows if op == "attention_step"][:2] == ["fp8", "nvfp4"]
    assert {w for op, w, _ in rows if "linear" in op or "swiglu" in op} == {"bf16"}
    assert "caches: state f32 0, 2; bf16 1" in atlas("audit", small_plan_of("qwen3_5_moe")).stdout.splitlines()
