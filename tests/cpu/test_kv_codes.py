"""A cache in codes against `transformers` with keys and values rounded by torch: scripts/kv_goldens.py."""

import pathlib

import numpy as np
import pytest

from safetensors.numpy import load_file, save_file

FIXTURE = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "llama-trained"
GOLDEN = load_file(FIXTURE / "kv.safetensors")
# a number that lies between two codes may become either: sums are added in another order
CASES = {
    "plain": ("bf16", 1, 0.999999),
    "e4m3": ("fp8", 0.999, 0.99999),
    "e2m1": ("nvfp4", 0.99, 0.9999),
    "e4m3.rotated": ("fp8", 0.999, 0.99999),
    "e2m1.rotated": ("nvfp4", 0.99, 0.9999),
}


def cosines(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.sum(a * b, -1) / np.sqrt(np.sum(a * a, -1) * np.sum(b * b, -1))


@pytest.mark.parametrize("kind", CASES)
def test_logits(atlasc, atlas, tmp_path, kind):
    dtype, bar, same = CASES[kind]
    lines = f'[runtime]\nslots = 1\n[kv]\ndtype = "{dtype}"\n'
    if kind != "plain":
        rotated = kind.endswith("rotated")
        save_file(
            {k.replace(".k_", ".rotated_k_") if rotated else k: v for k, v in GOLDEN.items() if k.endswith("_scale")},
            tmp_path / "scales.safetensors",
        )
        lines += f'scales = "scales.safetensors"\nrotate = {str(rotated).lower()}\n'
    (tmp_path / "MODEL.toml").write_text(lines, encoding="utf-8")
    done = atlasc(FIXTURE, "--model", tmp_path / "MODEL.toml", "--target", "none", "-o", tmp_path / "plan.bin")
    assert done.returncode == 0, done.stderr
    ids = ",".join(map(str, GOLDEN["input_ids"]))
    done = atlas("dump", tmp_path / "plan.bin", "--tokens", ids, "--device", "cpu", "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    want = GOLDEN[f"logits.{kind}"]
    got = load_file(tmp_path / "out")["logits"][-len(want) :]
    print(kind, cosines(got, want).min(), cosines(got, GOLDEN["logits.plain"]).mean())
    assert cosines(got, want).min() > same
    assert cosines(got, GOLDEN["logits.plain"]).mean() >= min(bar, same)


@pytest.mark.parametrize("name", ["llama-hd80", "llama-hd96", "llama-hd256", "qwen3_5", "qwen3_next"])
def test_heads_of_every_size(small_plan_of, atlas, tmp_path, name):
    """Heads of 80 and 96 elements are rotated in two blocks, those of the others as a whole, behind partial rope too."""
    ids = ",".join(str(10 + 37 * i * i % 250) for i in range(60))

    def logits(dtype, rotate="false"):
        plan = small_plan_of(name, "--target", "none", dtype=f'"{dtype}"', rotate=rotate)
        done = atlas("dump", plan, "--tokens", ids, "--device", "cpu", "-o", tmp_path / "out", "-q")
        assert done.returncode == 0, done.stderr
        return load_file(tmp_path / "out")["logits"]

    want, plain = logits("bf16"), logits("fp8")
    got = logits("fp8", "true")
    lost, plain_lost = (1 - cosines(a, want).mean() for a in (got, plain))
    assert lost < 1.25 * plain_lost < 0.003 and not np.array_equal(got, plain)
