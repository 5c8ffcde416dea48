"""Every format of weights and caches has kernels on every target at the widths of real models, whatever shared memory
a block has there."""

import json
import pathlib
import re

import pytest

TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a", "sm_121a")
QUANT = {
    "bf16": None,
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]},
}
GPU_SHAPES = pathlib.Path(__file__).resolve().parents[1] / "gpu" / "shapes"
SHAPES = {  # hidden, ffn, heads, key/value heads, head_dim
    "8b": (4096, 14336, 32, 8, 128),
    "wide head": (2048, 6144, 8, 2, 256),
    "narrow": (960, 2560, 15, 5, 64),
}


@pytest.mark.parametrize("weights", QUANT)
@pytest.mark.parametrize("shape", SHAPES)
def test_formats(atlasc, tmp_path, shape, weights):
    hidden, ffn, heads, kv_heads, head_dim = SHAPES[shape]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
        "hidden_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": ffn,
        "vocab_size": 1024,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
    }
    if QUANT[weights]:
        config["quantization_config"] = QUANT[weights]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for kv in ("bf16", "fp8", "nvfp4"):
        toml = tmp_path / "MODEL.toml"
        toml.write_text(f'[kv]\ndtype = "{kv}"\n', encoding="utf-8")
        done = atlasc(
            tmp_path / "config.json",
            "--random-weights",
            "--model",
            toml,
            "--target",
            ",".join(TARGETS),
            "--stop-after",
            "pick-kernels",
            "--dry-run",
            "-d",
            "g",
            "-o",
            tmp_path / "plan.bin",
        )
        assert done.returncode == 0, done.stderr
        assert {"bf16": "bf16", "fp8": "e4m3", "nvfp4": "e2m1"}[weights] in re.search(r"\S*down_proj.*", done.stdout)[0]


@pytest.mark.parametrize(
    "shape", ["qwen3-30b-a3b", "qwen3-30b-a3b-fp8", "qwen3.5-27b-fp8", "qwen3.6-35b-a3b-fp8", "qwen3.6-35b-a3b-nvfp4"]
)
def test_experts_and_hybrids(atlasc, tmp_path, shape):
    """The same of published shapes, with a layer of each kind."""
    config = json.loads((GPU_SHAPES / f"{shape}.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    text["num_hidden_layers"] = text.get("full_attention_interval", 1)
    text["vocab_size"] = 1024
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for kv in ("bf16", "fp8"):
        (tmp_path / "MODEL.toml").write_text(f'[kv]\ndtype = "{kv}"\n', encoding="utf-8")
        done = atlasc(
            tmp_path / "config.json",
            "--random-weights",
            "--model",
            tmp_path / "MODEL.toml",
            "--target",
            ",".join(TARGETS),
            "--stop-after",
            "pick-kernels",
            "--dry-run",
            "-o",
            tmp_path / "plan.bin",
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kv", ["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("shape", ["qwen3.5-27b-fp8", "qwen3.6-35b-a3b-fp8"])
def test_verify_layers(atlasc, tmp_path, shape, kv):
    """Plans that draft have kernels on every target, with as many rows of a slot as there may be in a verify step,
    whatever the model's caches are."""
    config = json.loads((GPU_SHAPES / f"{shape}.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    text["num_hidden_layers"] = text.get("full_attention_interval", 1)
    text["vocab_size"] = 1024
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for rows in (2, 3, 4) if kv == "bf16" else (4,):
        (tmp_path / "MODEL.toml").write_text(f'[kv]\ndtype = "{kv}"\n[speculate]\nrows = {rows}\n', encoding="utf-8")
        done = atlasc(
            tmp_path / "config.json",
            "--random-weights",
            "--model",
            tmp_path / "MODEL.toml",
            "--target",
            ",".join(TARGETS),
            "--stop-after",
            "pick-kernels",
            "--dry-run",
            "-o",
            tmp_path / "plan.bin",
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kv", ["bf16", "fp8", "nvfp4"])
def test_verify_heads(atlasc, tmp_path, kv):
    """No head dim is left out: attention of verify steps has a kernel for each, of every cache, on every target."""
    config = json.loads((GPU_SHAPES / "qwen3.5-27b-fp8.json").read_text(encoding="utf-8"))
    config.pop("quantization_config")
    config["text_config"] |= {"num_hidden_layers": 4, "vocab_size": 1024, "intermediate_size": 512, "hidden_size": 256}
    (tmp_path / "MODEL.toml").write_text(
        f'[runtime]\nslots = 1\n[phases]\nprefill = [64]\ndecode = [1]\n[kv]\ndtype = "{kv}"\n[speculate]\nrows = 4\n',
        encoding="utf-8",
    )
    for head_dim in (32, 64, 80, 96, 128):  # 256: test_verify_layers
        config["text_config"]["head_dim"] = head_dim
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        targets = TARGETS[1:] if (head_dim, kv) == (96, "fp8") else TARGETS  # decode itself has none on sm_80
        done = atlasc(
            tmp_path / "config.json",
            "--random-weights",
            "--model",
            tmp_path / "MODEL.toml",
            "--target",
            ",".join(targets),
            "--stop-after",
            "pick-kernels",
            "--dry-run",
            "-o",
            tmp_path / "plan.bin",
        )
        assert done.returncode == 0, (head_dim, done.stderr)
