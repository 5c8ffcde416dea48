"""Goldens find what ports of these families have done wrongly: facts with one mistake each, which compile, give other
logits."""

import json
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
    ("gemma4", "query_scale = 1 ", "query_scale = 32 "),
    ("gemma4", "v_norm = true\n", ""),
    ("gemma4", 'act = "gelu_tanh"\n', ""),
    ("gemma4", "scale_embeddings = true\n", ""),
    ("gemma4", '{ is = "logit_cap", null = true }', '{ unused = "any" }'),
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
    ("qwen3_vl_moe", "norm_topk_prob = { must = [true] }",
     'norm_topk_prob = { unused = "any" }\nnorm_topk = { is = "norm_topk", default = false }'),
    ("step3p5", 'norm_weight = "1 + w"\n', ""),
    ("step3p5", 'head_gate = "sigmoid"', 'head_gate = "softplus"'),
    ("step3p5", 'moe_router_scaling_factor = { is = "share_scale", default = 1.0 }', 'moe_router_scaling_factor = { unused = "any" }'),
    ("step3p5", 'swiglu_limits = { is = "gate_limits", null = true }', 'swiglu_limits = { unused = "any" }'),
    ("step3p5", 'swiglu_limits_shared = { is = "shared_limits", null = true }', 'swiglu_limits_shared = { unused = "any" }'),
    ("ernie4_5", 'rope_pairs = "neighbours"', 'rope_pairs = "halves"'),
    ("glm4", 'rope_pairs = "neighbours"', 'rope_pairs = "halves"'),
    ("llama4", ", chunks = true", ""),                             # a window that slides
    ("llama4", 'rope_pairs = "neighbours"', 'rope_pairs = "halves"'),
    ("llama4", 'qk_norm = "turned heads"', 'qk_norm = "none"'),
    ("llama4", "share_input = true\n", ""),                        # the share multiplies what comes out
    ("llama4", 'is = "rope_layers", null = true', 'unused = "any"'),
]  # fmt: skip


# Fixture, what a config.json says that a port has read past or taken for another thing.
READ_PAST = [
    ("gemma3", {"rope_scaling": None}),                            # a factor of the layers without a window
    ("gemma3", {"layer_types": ["full_attention"] * 3}),
    ("glm4_moe", {"partial_rotary_factor": 1.0}),
    ("laguna", {"rope_parameters.full_attention.attention_factor": 1.0}),
    ("laguna", {"rope_parameters.full_attention.partial_rotary_factor": 1.0}),
    ("minimax_m2", {"partial_rotary_factor": 1.0}),
    ("olmo3", {"rope_scaling.attention_factor": 1.0}),
    ("phi3", {"sliding_window": None}),
    ("step3p5", {"text_config.rope_scaling": None}),
    ("step3p5", {"text_config.rope_theta": [500000.0] * 5}),       # one table for layers of both kinds
    ("step3p5", {"text_config.partial_rotary_factors": [1.0] * 5}),
    ("step3p5", {"text_config.swiglu_limits_shared": [0.0, 0.0, None, 0.4, 0.0]}),  # of an MLP
]  # fmt: skip


def other_logits(atlasc, atlas, folder, name, tmp_path, *words):
    """How far the largest of the logits is from the golden's, over the largest of these."""
    done = atlasc(folder, *words, "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    want = load_file(HERE / name / "golden.safetensors")
    ids = ",".join(map(str, want["prompt"]))
    done = atlas("dump", tmp_path / "p.bin", "--tokens", ids, "--device", "cpu", "-o", tmp_path / "d.safetensors", "-q")
    assert done.returncode == 0, done.stderr
    got = load_file(tmp_path / "d.safetensors")["logits"]
    return np.max(np.abs(got - want["logits"])) / np.max(np.abs(want["logits"]))


@pytest.mark.parametrize(
    ("name", "changes"), READ_PAST, ids=[f"{t[0]}-{'-'.join(t[1])}-{i}" for i, t in enumerate(READ_PAST)]
)
def test_read_past(atlasc, atlas, tmp_path, name, changes):
    config = json.loads((HERE / name / "config.json").read_text())
    for path, value in changes.items():
        *tables, key = path.split(".")
        of = config
        for table in tables:
            of = of[table]
        assert of[key] != value
        of[key] = value
    for file in [*(HERE / name).glob("model.safetensors"), *(HERE / name).glob("MODEL.toml")]:
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert other_logits(atlasc, atlas, tmp_path, name, tmp_path) > 0.01


@pytest.mark.parametrize(("name", "right", "wrong"), TRAPS, ids=[f"{t[0]}-{i}" for i, t in enumerate(TRAPS)])
def test_trap(atlasc, atlas, tmp_path, name, right, wrong):
    text = (MODELS / f"{name.partition('-')[0]}.toml").read_text()
    assert text.count(right) == 1
    (tmp_path / "f.toml").write_text(text.replace(right, wrong))
    assert other_logits(atlasc, atlas, HERE / name, name, tmp_path, "--family", tmp_path / "f.toml") > 0.01


def test_norms_after_rope_lose_its_factor(atlasc, atlas, tmp_path):
    """Llama 4 normalises heads that have turned, so a factor of cos and sin cancels; without these norms it shows."""
    want = load_file(HERE / "llama4" / "golden.safetensors")
    ids = ",".join(map(str, want["prompt"]))
    (tmp_path / "model.safetensors").symlink_to(HERE / "llama4" / "model.safetensors")

    def logits(has_norms, factor):
        config = json.loads((HERE / "llama4" / "config.json").read_text())
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": factor}
        config["text_config"] |= {"rope_scaling": yarn, "use_qk_norm": has_norms}
        (tmp_path / "config.json").write_text(json.dumps(config))
        done = atlasc(tmp_path, "--target", "none", "-o", tmp_path / "p.bin", "-q")
        assert done.returncode == 0, done.stderr
        done = atlas("dump", tmp_path / "p.bin", "--tokens", ids, "--device", "cpu", "-o", tmp_path / "d.out", "-q")
        assert done.returncode == 0, done.stderr
        return load_file(tmp_path / "d.out")["logits"]

    for has_norms, least, most in ((True, 0, 1e-4), (False, 1e-2, 10)):
        one, other = logits(has_norms, 1.0), logits(has_norms, 1.5)
        assert least <= np.max(np.abs(one - other)) / np.max(np.abs(one)) <= most, has_norms
