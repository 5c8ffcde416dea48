"""A checkpoint may give each of a layer's products a format of its own: all have kernels on every target.

What one product multiplies (rows in bf16, codes of e4m3, codes of e2m1) says nothing of what its neighbour does that reads
the same rows, and gate and up are read as one only where both are of one format. So mixtures are drawn at random, of
folders that mkckpt writes in the form of llm-compressor, and every subset of a published shape's products stays in bf16.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import random
import sys

import pytest
from atlasc_texts import launches

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mkckpt"))
import mkckpt  # noqa: E402

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
FORMATS = ("plain", "fp8-channel", "fp8-tensor", "fp8-block", "nvfp4", "mxfp4", "int4")
BASES = ("llama-fp8-channel-ct", "qwen2-ct-mixed", "qwen3-nvfp4-mixed", "moe-fp8-shared")
TARGETS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
ROWS_OF_CODES = "[numerics]\nfp8_rows = 1\n"
NATIVE = '[kernels]\nfp4 = "native"\n'
ALONE = "[kernels]\nfuse = false\n"


def mixture(seed: int) -> dict:
    """A recipe of mkckpt in which each product of a layer has a format drawn from `seed`."""
    draw = random.Random(seed)
    base = draw.choice(BASES)
    recipe = {k: v for k, v in mkckpt.recipes()[base].items() if k not in ("expect", "names", "code", "message")}
    if base == "moe-fp8-shared":  # too narrow for blocks; its q_proj, half of which is a gate, is not read in INT4
        narrow = [f for f in FORMATS if f not in ("fp8-block", "int4")]
        formats = {f"*.self_attn.*{p}": draw.choice(narrow) for p in ATTENTION}
        formats |= {f"*shared_expert.{p}": draw.choice(narrow) for p in MLP}
        formats["*.experts.*"] = draw.choice(FORMATS[:2])
    else:
        formats = {f"*{p}": draw.choice(FORMATS) for p in ATTENTION + MLP}
        recipe |= {"hidden": 128, "intermediate": 256, "layers": 1}
    formats = {pattern: name for pattern, name in formats.items() if name != "plain"}
    scale = "BF16" if "int4" in formats.values() else draw.choice(("BF16", "F32"))  # INT4 has no scales of F32
    return recipe | {"quant": {"writer": "ct", "formats": formats, "scale_dtype": scale} if formats else None}


def has_kernels(atlasc, tmp_path, source, text, target):
    toml = tmp_path / "MODEL.toml"
    toml.write_text(text)
    words = ("--model", toml, "--target", target, "--dry-run", "-q", "--stop-after", "pick-kernels")
    done = atlasc(source, *words, *(["--random-weights"] if source.suffix == ".json" else []))
    assert done.returncode == 0, (source, text, target, done.stderr)


@pytest.mark.parametrize("seed", range(24))
def test_random_formats(atlasc, tmp_path, seed):
    folder = tmp_path / "checkpoint"
    mkckpt.build(mixture(seed)).write(folder)
    for target in TARGETS:
        has_kernels(atlasc, tmp_path, folder, ROWS_OF_CODES, target)
        has_kernels(atlasc, tmp_path, folder, ALONE, target)
    has_kernels(atlasc, tmp_path, folder, NATIVE, "sm_120a")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("block", [(32, 32), (64, 64), (64, 128), (128, 64), (128, 128), (256, 256), (1, 128)])
def test_blocks_of_any_size(atlasc, repo, tmp_path, block, target):
    """FP8 in blocks that no product of codes by codes and no tile takes."""
    config = json.loads((repo / "tests/gpu/shapes/llama-3.1-8b.json").read_text())
    config |= {
        "num_hidden_layers": 1,
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": list(block),
            "modules_to_not_convert": ["lm_head"],
        },
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    buckets = "[runtime]\nslots = 64\nmax_context = 512\n[phases]\nprefill = [16, 128]\ndecode = [1, 16, 32, 64]\n"
    for text in (buckets, buckets + ROWS_OF_CODES):
        has_kernels(atlasc, tmp_path, file, text, target)
        if block != (128, 128):
            toml = tmp_path / "MODEL.toml"
            shown = "--random-weights --dry-run -q --stop-after pick-kernels -d k".split()
            dump = atlasc(file, "--model", toml, "--target", target, *shown).stdout
            of_layer = {x.op for found in launches(dump).values() for x in found if x.layer == 0}
            assert "norm_rows" not in of_layer and "norm_linear" in of_layer, of_layer


@pytest.mark.parametrize("shape", ["llama-3.1-8b", "olmo-2-7b"])
def test_products_that_stay_in_bf16(atlasc, repo, tmp_path, shape):
    """Beside FP8 in blocks: each product alone, and each two."""
    config = json.loads((repo / f"tests/gpu/shapes/{shape}.json").read_text())
    names = [f"model.layers.0.self_attn.{p}" for p in ATTENTION] + [f"model.layers.0.mlp.{p}" for p in MLP]
    config["num_hidden_layers"] = 1
    file = tmp_path / "config.json"
    for plain in itertools.chain(itertools.combinations(names, 1), itertools.combinations(names, 2)):
        config["quantization_config"] = {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": [*plain, "lm_head"],
        }
        file.write_text(json.dumps(config))
        for text in ("", ROWS_OF_CODES):
            has_kernels(atlasc, tmp_path, file, text, "sm_90a")
