#!/usr/bin/env python3
"""Makes ct_layouts.safetensors: small weights as the package `compressed-tensors` stores them.

    python tests/mkckpt/make_ct_layouts.py tests/mkckpt/ct_layouts.safetensors

Needs torch and compressed-tensors, so it is run by hand; the file is committed, and test_quant.py compares the layouts
of quant.py with it. For each scheme SCHEME the file holds the tensors of a module SCHEME.proj, what the package reads back
from them (SCHEME.dense, F32), and in its metadata the quantization_config.
"""

import json
import os
import sys

import numpy as np
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkckpt  # noqa: E402

SCHEMES = {"fp8-channel": "FP8_DYNAMIC", "fp8-tensor": "FP8", "fp8-block": "FP8_BLOCK", "nvfp4": "NVFP4A16",
           "mxfp4": "MXFP4A16", "int4": "W4A16_ASYM"}  # fmt: skip
SHAPES = {"fp8-block": (130, 160), "int4": (16, 256)}  # of the others 16 x 64


def source(kind):
    rows, cols = SHAPES.get(kind, (16, 64))
    return mkckpt.noise(1, kind, rows * cols).reshape(rows, cols) / np.float32(8)


def scales_of(weight, args):
    """weight_scale, weight_zero_point and, of NVFP4, weight_global_scale, by the package's own formulas from the extremes
    of each group."""
    strategy, group, top, (rows, cols) = str(args.strategy), args.group_size, None, weight.shape
    if strategy == "block":
        bn, bk = args.block_structure
        n, k = -(-rows // bn), -(-cols // bk)
        padded = torch.zeros(n * bn, k * bk)
        padded[:rows, :cols] = weight
        parts = padded.reshape(n, bn, k, bk)
        low, high = parts.amin((1, 3)), parts.amax((1, 3))
    elif strategy in ("group", "tensor_group"):
        parts = weight.reshape(rows, -1, group)
        low, high = parts.amin(-1), parts.amax(-1)
    elif strategy == "channel":
        low, high = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    else:
        low, high = weight.amin().reshape(1), weight.amax().reshape(1)
    if strategy == "tensor_group":
        top = generate_gparam(weight.amin(), weight.amax())
    return *calculate_qparams(low, high, args, global_scale=top), top


def compress(kind, preset):
    weight = torch.from_numpy(source(kind))
    model = torch.nn.Sequential()
    model.add_module("proj", torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False))
    model.proj.weight.data.copy_(weight)
    config = QuantizationConfig(
        config_groups={"group_0": preset_name_to_scheme(preset, ["Linear"])}, ignore=["lm_head"]
    )
    apply_quantization_config(model, config)
    scale, zero, top = scales_of(weight, model.proj.quantization_scheme.weights)
    model.proj.weight_scale.data = scale
    if hasattr(model.proj, "weight_zero_point"):
        model.proj.weight_zero_point.data = zero.to(model.proj.weight_zero_point.dtype)
    if top is not None:
        model.proj.weight_global_scale.data = top.reshape(model.proj.weight_global_scale.shape)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    out = {f"{kind}.proj.{name.removeprefix('proj.')}": t.clone() for name, t in model.state_dict().items()}
    told = compressor.quantization_config.to_dict()
    compressor.decompress_model(model)
    out[f"{kind}.dense"] = model.proj.weight.data.float()
    return out, told


def main():
    tensors, told = {}, {}
    for kind, preset in SCHEMES.items():
        more, told[kind] = compress(kind, preset)
        tensors |= {name: t.contiguous() for name, t in more.items()}
    save_file(tensors, sys.argv[1], {"quantization_config": json.dumps(told, default=str, sort_keys=True)})
    for name, t in sorted(tensors.items()):
        print(name, t.dtype, tuple(t.shape))


if __name__ == "__main__":
    main()
