"""Sound recipes through atlasc and the reference device, against the numpy forward pass.

The committed fixtures are compared with `transformers`; here are the settings that none of them has: other yarn
parameters, biases everywhere, mixed dtypes, odd sizes, keys spelled in other ways, and a few models whose every knob
is drawn at random. Logits must agree to the rounding of float32.
"""

import random

import forward
import mkckpt
import numpy as np
import pytest
from container import decode, read_safetensors

RECIPES = mkckpt.recipes()
NAMES = [
    "rope-new-keys", "rope-type-spelled-twice", "yarn-truncate-off", "yarn-attention-factor", "yarn-mscale",
    "mixed-dtypes", "f32-marked-bf16", "all-biases", "zero-bias", "reversed-order", "shards-seven",
    "nested-old-keys", "prefix-vision", "kv-heads-absent", "five-on-one", "odd-intermediate", "hd128", "window-set",
    "window-of-one", "window-used",
]  # fmt: skip


def draw(seed):
    """A full set of knobs of a sound model; the same for the same seed."""
    r = random.Random(seed)
    kv_heads = r.choice([1, 1, 2, 3])
    heads = kv_heads * r.choice([1, 2, 3, 5])
    rope = r.choice([
        {}, {"rope_type": "linear", "factor": r.uniform(1, 8)},
        {"rope_type": "llama3", "factor": r.uniform(2, 32), "low_freq_factor": 1.0, "high_freq_factor": r.uniform(2, 6),
         "original_max_position_embeddings": r.choice([32, 64, 128])},
        {"rope_type": "yarn", "factor": r.uniform(2, 16), "original_max_position_embeddings": r.choice([32, 64]),
         "beta_fast": r.uniform(8, 40), "beta_slow": r.uniform(0.5, 2)},
    ])  # fmt: skip
    return {
        **mkckpt.DEFAULTS, "family": r.choice(["llama", "mistral", "qwen2", "qwen3"]), "layers": r.randint(1, 3),
        "hidden": 8 * heads * r.randint(1, 3), "heads": heads, "kv_heads": kv_heads,
        "head_dim": r.choice([64, 64, 80, 96, 128, 256]), "intermediate": 8 * r.randint(2, 20),
        "vocab": r.randint(313, 400), "tied": r.random() < 0.5, "rope": rope, "theta": 10 ** r.uniform(3, 6),
        "rope_keys": r.choice(["old", "new"]), "nested": r.random() < 0.3, "dtype": r.choice(["BF16", "BF16", "F16"]),
        "dtypes": r.choice([{}, {"*norm.weight": "F32"}, {"*down_proj.weight": "F16"}]), "shards": r.choice([1, 1, 3]),
        "tokenizer": r.choice(["qwen2", "llama3", "smollm", "spm"]), "merges": 20, "seed": seed,
    }  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES, *range(3)])
def test_logits(name, atlas, small_plan_of, tmp_path):
    folder = tmp_path / str(name)
    mkckpt.build(RECIPES[name] if name in RECIPES else draw(name)).write(folder)
    plan = small_plan_of(folder, "--target", "none")
    ids = [int(abs(x) * 1000003) % 300 for x in mkckpt.noise(0, str(name), 40)]
    out = tmp_path / "out.safetensors"
    run = atlas("dump", plan, "--tokens", ",".join(map(str, ids)), "--device", "cpu", "-o", out, "-q")
    assert run.returncode == 0, run.stderr
    got = {key: decode(raw, dtype, shape) for key, (dtype, shape, raw) in read_safetensors(out).items()}["logits"]
    want = forward.forward(forward.load_config(folder), forward.load_weights(folder), ids)[1]
    assert got.shape == want.shape
    error = np.max(np.abs(got - want)) / np.max(np.abs(want))
    assert error < 2e-5, error
