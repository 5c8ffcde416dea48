"""[quant]: what atlasc makes of plain weights while compiling, against a twin whose weights ml_dtypes has rounded.

Both plans run on `--device cpu`, whose products multiply decoded float32 values, so not one bit of a logit may differ. The
sizes leave blocks cut off on both sides, and k ends within a block of q's size.
"""

import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest

from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
import mkckpt  # noqa: E402
from container import Tensor, decode, encode  # noqa: E402

KNOB = {**mkckpt.DEFAULTS, "layers": 1, "hidden": 96, "intermediate": 224, "tied": True, "vocab": 304}
TOKENS = "5,17,3,250,99,42,7,8,200,31,12,64,3,9,77,101,260,5,6,14"
FORMATS = ("fp8-block", "fp8-channel", "fp8-tensor", "nvfp4", "mxfp4")
F32 = np.float32


def largest(x, bn, bk):
    """The largest magnitude of each block, at each of its elements, float32."""
    n, k = x.shape
    out = np.empty((n, k), F32)
    for i in range(0, n, bn):
        for j in range(0, k, bk):
            out[i : i + bn, j : j + bk] = np.abs(x[i : i + bn, j : j + bk]).max()
    return out


def rounded(x, dtype, scale):
    """Codes of x / scale, as float32; scale in float64."""
    quotient = (x.astype(np.float64) / scale).astype(F32)
    top = float(ml_dtypes.finfo(dtype).max)
    return np.clip(quotient, -top, top).astype(dtype).astype(F32)


def round_trip(x, kind, rows):
    """What a weight is after the format, multiplied in the reference device's order."""
    if kind.startswith("fp8"):
        block = {"fp8-block": (rows, 128), "fp8-channel": (1, x.shape[1]), "fp8-tensor": x.shape}[kind]
        scale = largest(x, *block) / F32(448)
        return rounded(x, ml_dtypes.float8_e4m3fn, scale.astype(np.float64)) * scale
    if kind == "nvfp4":
        step = np.abs(x).max() / F32(6 * 448)
        block = (largest(x, 1, 16).astype(np.float64) / 6 / np.float64(step)).astype(F32)
        block = np.maximum(block.astype(ml_dtypes.float8_e4m3fn).astype(F32), F32(2**-9))
        return rounded(x, ml_dtypes.float4_e2m1fn, block.astype(np.float64) * np.float64(step)) * block * step
    scale = np.exp2(np.floor(np.log2(largest(x, 1, 32).astype(np.float64))) - 2)
    return rounded(x, ml_dtypes.float4_e2m1fn, scale) * scale.astype(F32)


def twin_of(tensors, kind):
    out = []
    for t in tensors:
        if t.name.endswith("proj.weight"):
            x = decode(t.data, t.dtype, t.shape)
            rows = (
                64 if t.name.split(".")[-2][0] in "qkv" else 128
            )  # k has 64: so far down go blocks that are read as one
            x = round_trip(x, kind, rows)
            t = Tensor(t.name, "F32", x.shape, encode(x, "F32"))
        out.append(t)
    return out


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_logits(kind, atlasc, atlas, tmp_path, monkeypatch):
    logits, plain = [], mkckpt.make_tensors(KNOB)
    for name, tensors, quant in (
        ("made", plain, f'"model.layers.*proj" = "{kind}"\n'),
        ("twin", twin_of(plain, kind), ""),
    ):
        monkeypatch.setattr(mkckpt, "make_tensors", lambda _, tensors=tensors: tensors)
        mkckpt.build(KNOB).write(tmp_path / name)
        (tmp_path / name / "MODEL.toml").write_text("[runtime]\nslots = 2\nmax_context = 64\n[quant]\n" + quant)
        plan, out = tmp_path / f"{name}.bin", tmp_path / f"{name}.safetensors"
        run = atlasc(tmp_path / name, "--target", "none", "-o", plan)
        assert run.returncode == 0, run.stderr
        run = atlas("dump", plan, "--tokens", TOKENS, "--device", "cpu", "-o", out, "-q")
        assert run.returncode == 0, run.stderr
        logits.append(load_file(out)["logits"])
    assert np.all(np.isfinite(logits[0])) and np.ptp(logits[0]) > 1
    assert np.array_equal(logits[0], logits[1])


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_no_number_is_refused(kind, atlasc, tmp_path):
    """By file, tensor and element, and nothing is left behind."""
    name = "model.layers.0.mlp.up_proj.weight"
    mkckpt.build({**KNOB, "values": [[name, 5000, "nan"]]}).write(tmp_path / "m")
    (tmp_path / "m" / "MODEL.toml").write_text(f'[quant]\n"*.up_proj" = "{kind}"\n')
    run = atlasc("m", "--target", "none", "-o", "plan.bin", cwd=tmp_path)
    assert run.returncode == 4 and not (tmp_path / "plan.bin").exists()
    assert (
        f"m/model.safetensors: error[A0606]: tensor {name}: element 5000 is nan, which has no code: it cannot be "
        "quantized"
    ) in run.stderr, run.stderr


@pytest.mark.parametrize("kind, group", [("nvfp4", 16), ("mxfp4", 32)])
def test_rows_that_are_no_whole_groups_are_refused(kind, group, atlasc, tmp_path):
    mkckpt.build({**KNOB, "intermediate": 200}).write(tmp_path / "m")
    (tmp_path / "m" / "MODEL.toml").write_text(f'[quant]\n"*.down_proj" = "{kind}"\n')
    run = atlasc("m", "--target", "none", "--dry-run", cwd=tmp_path)
    assert run.returncode == 4
    assert (
        f"m/MODEL.toml:2:1: error[A0602]: model.layers.0.mlp.down_proj: rows of 200 elements are not a whole number "
        f"of groups of {group}, the size in {kind.upper()}"
    ) in run.stderr, run.stderr
