"""A quantised checkpoint and its twin, in which the same values stand as float32: one model, the same bits.

The twin is written by tests/mkckpt/quant.py, which shares no code with the compiler or the reference device. Both plans
run on `--device cpu`, whose products multiply the decoded float32 values, so not one bit of a logit may differ. That
a plan is made says besides that every op of the format has a kernel, for few rows and for many.
"""

import pathlib
import sys

import numpy as np
import pytest

from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
import mkckpt  # noqa: E402
import quant  # noqa: E402
from container import Tensor, encode  # noqa: E402

RECIPES = {name: knob for name, knob in mkckpt.recipes().items() if knob["quant"] and knob["expect"] != "refuse"}
TOKENS = "5,17,3,250,99,42,7,8,200,31,12,64,3,9,77,101,260,5,6,14"
SERVED = ("llama", "mistral", "qwen2", "qwen3")  # families that have kernels; the others run on the reference device
ALIKE = ("int4-awq-biases", "int4-ct-symmetric", "int4-negative-scales")  # to kernels, which other recipes have
CASES = [
    (name, "sm_90a" if knob["family"] in SERVED and name not in ALIKE else "none") for name, knob in RECIPES.items()
] + [
    (name, "sm_80")
    for name in ("llama-fp8-block-f32", "llama-fp8-channel-ct", "llama-nvfp4-ct", "llama-mxfp4", "llama-int4-gptq")
]


def as_float32(knob, tensors):
    """Every quantised module as one tensor of float32, everything else as it is."""
    known = {t.name: (t.dtype, t.shape, t.data) for t in tensors}
    block = quant.full_knob(knob["quant"])["block"]
    out, done = [], set()
    for t in tensors:
        module, _, part = t.name.rpartition(".")
        is_code = part in ("weight_packed", "qweight") or (part == "weight" and t.dtype in ("U8", "F8_E4M3"))
        if is_code:
            x = quant.dequantise(module, known, block, not quant.full_knob(knob["quant"])["v2"])
            out.append(Tensor(f"{module}.weight", "F32", x.shape, encode(x, "F32")))
            done.add(module)
    return out + [t for t in tensors if t.name.rpartition(".")[0] not in done or t.name.endswith(".bias")]


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """The folders of a recipe's checkpoint and of its twin."""

    def make(name):
        knob = RECIPES[name]
        mkckpt.build(knob).write(tmp_path / name)
        tensors = as_float32(knob, mkckpt.make_tensors(knob))
        assert len(tensors) < len(mkckpt.make_tensors(knob)), "nothing is quantised"
        monkeypatch.setattr(mkckpt, "make_tensors", lambda _: tensors)
        config = {k: v for k, v in knob["config"].items() if not k.startswith("quantization_config")}
        mkckpt.build({**knob, "quant": {}, "config": config}).write(tmp_path / f"{name}-f32")
        return tmp_path / name, tmp_path / f"{name}-f32"

    return make


@pytest.mark.parametrize("name, target", CASES)
def test_the_same_logits(pair, small_plan_of, atlas, tmp_path, name, target):
    logits = []
    for folder in pair(name):
        out = tmp_path / f"{folder.name}.safetensors"
        plan = small_plan_of(folder, "--target", target)
        run = atlas("dump", plan, "--tokens", TOKENS, "--device", "cpu", "-o", out, "-q")
        assert run.returncode == 0, run.stderr
        logits.append(load_file(out)["logits"])
    assert np.all(np.isfinite(logits[0])) and np.ptp(logits[0]) > 1
    assert np.array_equal(logits[0], logits[1])
