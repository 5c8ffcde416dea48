"""Goldens find what ports of these families have done wrongly: facts with one mistake each, which compile, give other
logits."""

import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "models"

# Fixture, what the family's file says, what the mistake says.
TRAPS = [
    ("smollm3", 'no_rope_layers = { is = "rope_layers", null = true }', 'no_rope_layers = { unused = "any" }'),
    ("gemma3", 'window = true, rope = "own"', "window = true"),
    ("gemma3", 'act = "gelu_tanh"\n', ""),
    ("gemma3", "scale_embeddings = true\n", ""),
    ("gemma3", '{ is = "query_scale", default = 256 }', '{ unused = "any" }'),
    ("gemma3", 'rope_local_base_freq = { is = "own_theta", default = 10000 }', 'rope_local_base_freq = { unused = "any" }'),
    ("olmo3", 'window = true, rope = "own"', "window = true"),
    ("exaone4", 'full_attention = { rope = "none next to windows" }\n', ""),
    ("glm4_moe", 'routed_scaling_factor = { is = "share_scale", default = 1.0 }', 'routed_scaling_factor = { unused = "any" }'),
    ("glm4_moe", 'n_group = { is = "n_groups", default = 1 }\ntopk_group = { is = "top_groups", default = 1 }',
     'n_group = { unused = "any" }\ntopk_group = { unused = "any" }'),
    ("laguna", 'head_gate = "softplus"', 'head_gate = "sigmoid"'),
    ("laguna", 'moe_routed_scaling_factor = { is = "share_scale", default = 1.0 }', 'moe_routed_scaling_factor = { unused = "any" }'),
    ("gpt_oss", 'output_router_logits = { unused = "any" }', 'norm_topk_prob = { is = "norm_topk", default = false }'),
    ("gpt_oss", 'swiglu_limit = { is = "gate_limit", default = 7.0 }', 'swiglu_limit = { unused = "any" }\nlimit = { is = "gate_limit", default = 10000.0 }'),
    ("gpt_oss", 'swiglu_alpha = { is = "gate_slope", default = 1.702 }', 'alpha = { is = "gate_slope", default = 1.0 }'),
    ("gpt_oss", '[family.layer]\nsinks = true\n', '[weights]\nignore = ["*.sinks"]\n\n[family.layer]\n'),
    ("gpt_oss", 'router_bias = "mlp.router.bias"\n', '\n[weights]\nignore = ["*.router.bias"]\n'),
    ("gpt_oss-mxfp4", 'swiglu_limit = { is = "gate_limit", default = 7.0 }', 'swiglu_limit = { unused = "any" }\nlimit = { is = "gate_limit", default = 7.0 }'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "right", "wrong"), TRAPS, ids=[f"{t[0]}-{i}" for i, t in enumerate(TRAPS)])
def test_trap(atlasc, atlas, tmp_path, name, right, wrong):
    text = (MODELS / f"{name.partition('-')[0]}.toml").read_text()
    assert text.count(right) == 1
    (tmp_path / "f.toml").write_text(text.replace(right, wrong))
    done = atlasc(HERE / name, "--family", tmp_path / "f.toml", "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    want = load_file(HERE / name / "golden.safetensors")
    ids = ",".join(map(str, want["prompt"]))
    done = atlas("dump", tmp_path / "p.bin", "--tokens", ids, "--device", "cpu", "-o", tmp_path / "d.safetensors", "-q")
    assert done.returncode == 0, done.stderr
    got = load_file(tmp_path / "d.safetensors")["logits"]
    assert np.max(np.abs(got - want["logits"])) > 0.01 * np.max(np.abs(want["logits"]))
