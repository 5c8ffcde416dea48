"""The plain twin of a quantised checkpoint, made with torch and the packages that write such files.

It shares no code with the compiler, the runtime or tests/mkckpt: compressed-tensors says by its own matching which modules
a config means and dequantises them; ModelOpt's tensor classes do its formats, auto-round's modules AWQ and GPTQ; torch
does blocks of FP8, and `transformers`, which reads those itself, must come to the same where it can (it takes a last block
that is cut off for a smaller one).
Everything is float32. make_fixtures.py makes goldens from the twin.
"""

import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file

CODES = (torch.uint8, torch.float8_e4m3fn)


def of_compressed_tensors(folder, told, tensors):
    from compressed_tensors.compressors.mx_utils import decompress_mx_scale
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    apply_quantization_config(model, QuantizationConfig.model_validate(told))
    for name, module in model.named_modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        code, scale = tensors.pop(f"{name}.weight_packed", None), tensors.pop(f"{name}.weight_scale")
        top = tensors.pop(f"{name}.weight_global_scale", None)
        zero, shape = (tensors.pop(f"{name}.{part}", None) for part in ("weight_zero_point", "weight_shape"))
        if shape is not None:
            code = unpack_from_int32(code, 4, torch.Size(shape.tolist()))
            zero = None if zero is None else unpack_from_int32(zero, 4, scale.shape, packed_dim=0)
        elif code is None:
            code = tensors.pop(f"{name}.weight")
        else:
            code = unpack_fp4_from_uint8(code, code.shape[0], code.shape[1] * 2, dtype=torch.float32)
        scale = decompress_mx_scale(scale) if scale.dtype == torch.uint8 else scale
        yield name, dequantize(code, scale.float(), zero, args=scheme.weights, global_scale=top, dtype=torch.float32)


def of_modelopt(tensors):
    from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP4QTensor, NVFP4QTensor

    for key in [k for k, t in tensors.items() if t.dtype in CODES and k.endswith(".weight")]:
        name, code = key.removesuffix(".weight"), tensors.pop(key)
        scale, second = tensors.pop(f"{name}.weight_scale"), tensors.pop(f"{name}.weight_scale_2", None)
        if code.dtype == torch.float8_e4m3fn:
            yield name, FP8QTensor(code.shape, torch.float32, code).dequantize(torch.float32, scale=scale)
            continue
        shape = torch.Size((code.shape[0], 2 * code.shape[1]))
        if second is None:
            yield (
                name,
                MXFP4QTensor(shape, torch.float32, code).dequantize(torch.float32, scale=scale, block_sizes={-1: 32}),
            )
        else:
            yield (
                name,
                NVFP4QTensor(shape, torch.float32, code).dequantize(
                    torch.float32, scale=scale, double_scale=second, block_sizes={-1: 16}
                ),
            )


def of_awq(told, tensors):
    from auto_round.export.export_to_awq.utils import dequantize_gemm

    for key in [k for k in tensors if k.endswith(".qweight")]:
        name = key.removesuffix(".qweight")
        words, zeros, scales = (tensors.pop(f"{name}.{part}") for part in ("qweight", "qzeros", "scales"))
        yield name, dequantize_gemm(words, zeros, scales.float(), 4, words.shape[0] // scales.shape[0]).T


def of_gptq(told, tensors):
    """The module of the version that the file has, over the rows of a unit matrix; columns are in order."""
    from auto_round_extension.torch.qlinear_torch import QuantLinear as Second
    from auto_round_extension.torch.qlinear_torch_zp import QuantLinear as First

    kind = Second if told.get("checkpoint_format") == "gptq_v2" else First
    for key in [k for k in tensors if k.endswith(".qweight")]:
        name, words = key.removesuffix(".qweight"), tensors.pop(key)
        rows, group = 8 * words.shape[0], told["group_size"]
        if not torch.equal(tensors.pop(f"{name}.g_idx"), torch.arange(rows, dtype=torch.int32) // group):
            raise ValueError(f"{name}: columns out of order")
        module = kind(4, group, rows, words.shape[1], bias=False)
        module.qweight, module.qzeros = words, tensors.pop(f"{name}.qzeros")
        module.scales = tensors.pop(f"{name}.scales").float()
        yield name, module(torch.eye(rows)).T


def of_fp8(folder, told, tensors):
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    for key in [k for k in tensors if k.endswith(".weight_scale_inv")]:
        name, scale = key.removesuffix(".weight_scale_inv"), tensors.pop(key).float()
        code = tensors.pop(f"{name}.weight").float()
        whole = True
        if scale.dim() == 2:
            n, k = told["weight_block_size"]
            whole = code.shape[0] % scale.shape[0] == 0 == code.shape[1] % scale.shape[1]
            whole = (
                whole
                and (code.shape[0] <= n or code.shape[0] % n == 0)
                and (code.shape[1] <= k or code.shape[1] % k == 0)
            )
            scale = scale.repeat_interleave(n, 0)[: code.shape[0]].repeat_interleave(k, 1)[:, : code.shape[1]]
        if whole and not torch.equal(theirs[f"{name}.weight"], code * scale):
            raise ValueError(f"{folder}: {name} is something else to transformers")
        yield name, code * scale


def write_plain(folder, out):
    """A copy of the checkpoint in which every weight is float32 and nothing speaks of quantisation."""
    os.makedirs(out)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    hf_quant = os.path.join(folder, "hf_quant_config.json")
    told = config.pop("quantization_config", None)
    method = "modelopt" if os.path.exists(hf_quant) else told["quant_method"]
    made = {"modelopt": lambda: of_modelopt(tensors), "fp8": lambda: of_fp8(folder, told, tensors),
            "compressed-tensors": lambda: of_compressed_tensors(folder, told, tensors),
            "awq": lambda: of_awq(told, tensors), "gptq": lambda: of_gptq(told, tensors)}[method]()  # fmt: skip
    dense = {f"{name}.weight": w for name, w in made}
    scales = ("input_scale", "input_global_scale", "activation_scale", ".k_scale", ".v_scale")
    rest = {name: t for name, t in tensors.items() if not name.endswith(scales)}
    left = [name for name, t in rest.items() if t.dtype in (*CODES, torch.int32) or "scale" in name]
    if left or not dense:
        raise ValueError(f"{folder}: not dequantised: {left[:4]}")
    save_file({name: t.float().contiguous() for name, t in {**rest, **dense}.items()},
              os.path.join(out, "model.safetensors"), {"format": "pt"})  # fmt: skip
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    for file in ("tokenizer.json", "generation_config.json"):
        shutil.copy(os.path.join(folder, file), out)


def is_quantised(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        return "quantization_config" in json.load(f) or os.path.exists(os.path.join(folder, "hf_quant_config.json"))
