"""Weights as different writers lay them out: matrices of experts transposed or not, gate and up apart in codes, layers
after the last one."""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from test_families import check_golden

HERE = pathlib.Path(__file__).resolve().parent


def read(file):
    """{name: (dtype, shape, bytes)} of a safetensors file: numpy has no bf16."""
    raw = file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    body = raw[8 + size :]
    return {
        k: (v["dtype"], v["shape"], body[slice(*v["data_offsets"])]) for k, v in header.items() if k != "__metadata__"
    }


def write(file, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + body)


def folder_of(tmp_path, name, tensors, config=None):
    folder = tmp_path / "m"
    folder.mkdir(exist_ok=True)
    shutil.copy(HERE / name / "config.json", folder)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    write(folder / "model.safetensors", tensors)
    return folder


def turned(tensor):
    dtype, (e, a, b), data = tensor
    assert dtype == "BF16"
    matrices = np.frombuffer(data, np.uint16).reshape(e, a, b)
    return dtype, (e, b, a), np.ascontiguousarray(matrices.transpose(0, 2, 1)).tobytes()


@pytest.mark.parametrize("which", [("gate_up_proj",), ("down_proj",), ("gate_up_proj", "down_proj")])
def test_either_way_round(atlasc, atlas, tmp_path, which):
    tensors = read(HERE / "qwen3_vl_moe" / "model.safetensors")
    tensors |= {k: turned(v) for k, v in tensors.items() if k.endswith(tuple(f"experts.{w}" for w in which))}
    folder = folder_of(tmp_path, "qwen3_vl_moe", tensors)
    done = atlasc(folder, "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    check_golden(atlas, tmp_path / "p.bin", "qwen3_vl_moe", tmp_path)


def test_as_many_rows_as_columns(atlasc, tmp_path):
    """Which way round such matrices are no shape says, and no value."""
    tensors = read(HERE / "qwen3_vl_moe" / "model.safetensors")
    config = json.loads((HERE / "qwen3_vl_moe" / "config.json").read_text())
    config["text_config"]["moe_intermediate_size"] = 32
    for k, (dtype, shape, data) in list(tensors.items()):
        if ".experts." in k:
            cut = (shape[0], 64, 64) if k.endswith("gate_up_proj") else (shape[0], 32, shape[2])
            tensors[k] = (dtype, cut, data[: 2 * cut[0] * cut[1] * cut[2]])
    done = atlasc(folder_of(tmp_path, "qwen3_vl_moe", tensors, config), "--target", "none", "--dry-run")
    assert done.returncode == 4
    said = "tensor model.language_model.layers.1.mlp.experts.gate_up_proj has matrices of 64 rows and as many columns"
    assert f"error[A0602]: {said}" in done.stderr, done.stderr


def test_transposed_and_by_reference(atlasc, tmp_path):
    done = atlasc(HERE / "qwen3_vl_moe", "--weights", "ref", "--target", "none", "--dry-run")
    assert done.returncode == 4 and "gate_up_proj is transposed: --weights ref uses" in done.stderr, done.stderr
    assert "error[A0304]" in done.stderr


def test_layers_after_the_last(atlasc, atlas, tmp_path):
    """Those of num_nextn_predict_layers are left out with a note; what is after them belongs to no layer."""
    tensors = read(HERE / "step3p5" / "model.safetensors")
    more = {k.replace(".layers.3.", ".layers.4."): v for k, v in tensors.items() if ".layers.3." in k}
    folder = folder_of(tmp_path, "step3p5", tensors | more)
    done = atlasc(folder, "--target", "none", "-o", tmp_path / "p.bin")
    assert done.returncode == 0, done.stderr
    said = f"model.layers.4.input_layernorm.weight and {len(more) - 1} more are not read: drafting heads after the last layer"
    assert f"note[A0605]: {said}" in done.stderr, done.stderr
    check_golden(atlas, tmp_path / "p.bin", "step3p5", tmp_path)
    more = {k.replace(".layers.4.", ".layers.5."): v for k, v in more.items()}
    done = atlasc(folder_of(tmp_path, "step3p5", tensors | more), "--target", "none", "--dry-run")
    assert done.returncode == 4
    assert "error[A0604]: tensor model.layers.5.input_layernorm.weight [64] is not used" in done.stderr, done.stderr


E4M3 = np.array([(-1 if c & 128 else 1) * ((c & 7) / 8 * 2.0**-6 if not c >> 3 & 15 else (1 + (c & 7) / 8) * 2.0 ** ((c >> 3 & 15) - 7))
                 for c in range(256)], np.float32)  # fmt: skip


def codes_of(rng, shape, block):
    """Codes of e4m3 with scales of blocks that are powers of two, and the same numbers in bf16, which has them all."""
    e, n, k = shape
    codes = (rng.integers(0x18, 0x38, shape) | rng.integers(0, 2, shape) << 7).astype(np.uint8)
    scales = (2.0 ** rng.integers(-3, 1, (e, n // block, k // block))).astype(np.float32)
    real = E4M3[codes] * np.repeat(np.repeat(scales, block, 1), block, 2)
    return (
        ("F8_E4M3", shape, codes.tobytes()),
        ("F32", scales.shape, scales.tobytes()),
        ("BF16", shape, (real.view(np.uint32) >> 16).astype(np.uint16).tobytes()),
    )


def logits_of(atlasc, atlas, folder, tmp_path):
    done = atlasc(folder, "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    done = atlas(
        "dump", tmp_path / "p.bin", "--tokens", "5,9,77,30,2,14", "--device", "cpu", "-o", tmp_path / "d", "-q"
    )
    assert done.returncode == 0, done.stderr
    return load_file(tmp_path / "d")["logits"]


def test_gate_and_up_apart_in_codes(atlasc, atlas, tmp_path):
    """Three tensors of all experts in FP8 by block: the numbers that they stand for, in bf16, give the same logits."""
    rng, name = np.random.default_rng(5), "step3p5"
    plain = read(HERE / name / "model.safetensors")
    coded = dict(plain)
    for k, (_, shape, _data) in list(plain.items()):
        if ".moe." in k and len(shape) == 3:
            coded[k], coded[k + "_scale_inv"], plain[k] = codes_of(rng, shape, 16)
    config = json.loads((HERE / name / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "fp8",
        "weight_block_size": [16, 16],
        "activation_scheme": "dynamic",
    }
    want = logits_of(atlasc, atlas, folder_of(tmp_path, name, plain), tmp_path)
    got = logits_of(atlasc, atlas, folder_of(tmp_path, name, coded, config), tmp_path)
    assert np.max(np.abs(got - want)) < 1e-5 * np.max(np.abs(want))
    other = {k: v for k, v in coded.items() if not k.endswith("layers.2.moe.up_proj.weight_scale_inv")}
    done = atlasc(folder_of(tmp_path, name, other, config), "--target", "none", "--dry-run")
    assert done.returncode == 4
    assert "error[A0601]: tensor model.layers.2.moe.up_proj.weight_scale_inv is missing" in done.stderr, done.stderr
