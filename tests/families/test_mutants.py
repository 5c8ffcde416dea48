"""What a config.json of a family says wrongly is refused with place and code, both sides named."""

import json
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent

# Fixture, changes of its config.json (text.KEY: of its text_config), code, what the message says.
MUTANTS = [
    ("seed_oss", {"residual_multiplier": 2}, "A0206", "residual_multiplier = 2: this feature is not implemented"),
    ("seed_oss", {"attention_out_bias": None}, "A0203", "attention_out_bias = null: expected true or false"),
    ("seed_oss", {"attention_out_bias": True}, "A0601",
     "tensor model.layers.0.self_attn.o_proj.bias is missing: seed_oss needs it with shape [64]"),
    ("seed_oss", {"attention_bias": False}, "A0604", "model.layers.0.self_attn.k_proj.bias"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "A0205", "no_rope_layers has 2 entries: num_hidden_layers = 3"),
    ("smollm3", {"no_rope_layers": [1, 2, 1]}, "A0203", "no_rope_layers[1] = 2: expected an integer from 0 to 1"),
    ("smollm3", {"no_rope_layer_interval": 0}, "A0203", "no_rope_layer_interval = 0: expected an integer from 1 to"),
    ("smollm3", {"use_sliding_window": True, "sliding_window": 0}, "A0203", "sliding_window = 0: expected an integer from 1"),
    ("smollm3", {"use_sliding_window": True, "sliding_window": -4}, "A0203", "sliding_window = -4: expected an integer from 1"),
    ("smollm3", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "A0205",
     'layer_types[1] = "sliding_attention": there is no window, as sliding_window = null'),
    ("smollm3", {"layer_types": ["full_attention"] * 2}, "A0205", "layer_types has 2 entries: num_hidden_layers = 3"),
    ("smollm3", {"layer_types": ["full_attention", "chunked_attention", "full_attention"]}, "A0206",
     'layer_types[1] = "chunked_attention": expected "full_attention" or "sliding_attention"'),
    ("llama", {"no_rope_layers": [1, 0]}, "A0206", "not implemented for llama: it is a key of smollm3"),
    ("qwen3_vl", {"text.sliding_window": 64}, "A0206", "sliding_window = 64: this feature is not implemented for qwen3_vl"),
]  # fmt: skip


def folder_of(name):
    return HERE / name if (HERE / name).is_dir() else HERE.parent / "fixtures" / name


def changed(name, changes):
    config = json.loads((folder_of(name) / "config.json").read_text())
    for key, value in changes.items():
        *path, last = key.split(".")
        of = config["text_config"] if path == ["text"] else config[path[0]] if path else config
        if value == "absent":
            del of[last]
        else:
            of[last] = value
    return config


@pytest.mark.parametrize(
    ("name", "changes", "code", "says"), MUTANTS, ids=[f"{m[0]}-{'-'.join(m[1])}-{i}" for i, m in enumerate(MUTANTS)]
)
def test_mutant(atlasc, tmp_path, name, changes, code, says):
    for file in folder_of(name).glob("*.safetensors"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").write_text(json.dumps(changed(name, changes), indent=1))
    done = atlasc(tmp_path, "--target", "none", "--dry-run")
    assert done.returncode == 4
    assert any(f"error[{code}]: " in line and says in line for line in done.stderr.splitlines()), done.stderr
