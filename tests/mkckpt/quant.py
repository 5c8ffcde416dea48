"""Quantised weights: number formats, the layouts of five writers, and what they mean.

    fp8          config.json quant_method "fp8": blocks or whole tensors of E4M3
    modelopt     quant_method "modelopt" and hf_quant_config.json: E4M3 by tensor or row, NVFP4 (scales multiply), MXFP4
    ct           quant_method "compressed-tensors": E4M3 by tensor, row or block, NVFP4 (the global scale divides), MXFP4,
                 INT4
    awq, gptq    quant_method "awq" (version "gemm") and "gptq" (checkpoint_format "gptq" or, v2, "gptq_v2"): INT4

A weight [N,K] of float32 becomes the tensors of a module; `dequantise` gives back what these mean, from the tensors
alone. Everything is done in float64 or integers, so that the same bytes come out everywhere.
"""

import fnmatch
import json
import os

import numpy as np

from container import Tensor, decode, encode

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
E4M3 = np.array([m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127])
FORMATS = ("fp8-block", "fp8-tensor", "fp8-channel", "nvfp4", "mxfp4", "int4")
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # of the rows whose codes share a word
ALGOS = {
    "fp8-tensor": "FP8",
    "fp8-channel": "FP8_PER_CHANNEL_PER_TOKEN",
    "nvfp4": "NVFP4",
    "mxfp4": "mxfp4",
}  # of modelopt, as it spells them
CT_FORMATS = {"nvfp4": "nvfp4-pack-quantized", "mxfp4": "mxfp4-pack-quantized", "int4": "pack-quantized"}


def nearest(x, values, sign):
    """Codes of the nearest of `values` (ascending from 0), ties to the even code; beyond the last is the last."""
    x = np.asarray(x, np.float64)
    middle = (values[1:] + values[:-1]) / 2
    low = np.searchsorted(middle, np.abs(x), side="left")  # on a middle: the lower one
    tie = np.isin(np.abs(x), middle) & (low % 2 == 1)
    return ((low + tie) | np.where(np.signbit(x), sign, 0)).astype(np.uint8)


def to_e4m3(x):
    return nearest(x, E4M3, 0x80)


def from_e4m3(code):
    code = np.asarray(code, np.uint8)
    value = np.append(E4M3, np.nan)[code & 0x7F]
    return np.where(code & 0x80, -value, value)


def to_e2m1(x):
    return nearest(x, E2M1, 8)


def from_e2m1(code):
    code = np.asarray(code, np.uint8)
    return np.where(code & 8, -E2M1[code & 7], E2M1[code & 7])


def pack(code):
    """Two codes a byte, the first in the low half."""
    return (code[..., 0::2] | code[..., 1::2] << 4).astype(np.uint8)


def unpack(raw):
    return np.stack([raw & 15, raw >> 4], -1).reshape(*raw.shape[:-1], -1)


def from_e8m0(code):
    value = 2.0 ** (np.asarray(code, np.float64) - 127)
    return np.where(np.asarray(code) == 255, np.nan, value)


def spread(scale, rows, cols, bn, bk):
    """A grid of block scales as one scale an element."""
    return np.repeat(np.repeat(scale, bn, 0)[:rows], bk, 1)[:, :cols]


def amax(x, bn, bk):
    """Largest magnitude of each block; never 0."""
    n, k = -(-x.shape[0] // bn), -(-x.shape[1] // bk)
    padded = np.zeros((n * bn, k * bk))
    padded[: x.shape[0], : x.shape[1]] = np.abs(x)
    return np.maximum(padded.reshape(n, bn, k, bk).max((1, 3)), 1e-12)


def rounded(scale, dtype):
    """A scale as the file will have it, as bytes and as value."""
    raw = encode(scale.astype(np.float32), dtype)
    return raw, decode(raw, dtype, scale.shape).astype(np.float64)


def fp8(module, x, kind, writer, knob):
    bn, bk = knob["block"] if kind == "fp8-block" else (1, x.shape[1]) if kind == "fp8-channel" else x.shape
    raw, scale = rounded(amax(x, bn, bk) / 448, knob["scale_dtype"])
    code = to_e4m3(x / spread(scale, *x.shape, bn, bk))
    shape = scale.shape
    if kind == "fp8-channel" and writer == "modelopt":
        shape = (x.shape[0],)
    if kind == "fp8-tensor":
        shape = (1,) if writer == "ct" else ()
    name = "weight_scale_inv" if writer == "fp8" else "weight_scale"
    return [
        Tensor(f"{module}.weight", "F8_E4M3", x.shape, code.tobytes()),
        Tensor(f"{module}.{name}", knob["scale_dtype"], shape, raw),
    ]


def nvfp4(module, x, writer):
    """Block scales in E4M3 of a step that is chosen so that the largest of them is the largest E4M3."""
    step = np.float32(np.abs(x).max() / (6 * 448))
    if writer == "ct":  # stored as its reciprocal
        divisor = np.float32(1) / step
        step = np.float32(1) / divisor
    scale = np.maximum(to_e4m3(amax(x, 1, 16) / 6 / np.float64(step)), 1)  # 0 would lose the block
    value = from_e4m3(scale) * np.float64(step)
    packed = pack(to_e2m1(x / spread(value, *x.shape, 1, 16)))
    weight = "weight_packed" if writer == "ct" else "weight"
    out = [
        Tensor(f"{module}.{weight}", "U8", packed.shape, packed.tobytes()),
        Tensor(f"{module}.weight_scale", "F8_E4M3", scale.shape, scale.tobytes()),
    ]
    if writer == "ct":
        return out + [Tensor(f"{module}.weight_global_scale", "F32", (1,), encode(np.array([divisor]), "F32"))]
    return out + [Tensor(f"{module}.weight_scale_2", "F32", (), encode(np.array(step), "F32"))]


def mxfp4(module, x, writer):
    """Scales are powers of two, of the largest magnitude's exponent."""
    code = np.clip(np.floor(np.log2(amax(x, 1, 32))) - 2 + 127, 0, 254).astype(np.uint8)
    packed = pack(to_e2m1(x / spread(from_e8m0(code), *x.shape, 1, 32)))
    weight = "weight_packed" if writer == "ct" else "weight"
    return [
        Tensor(f"{module}.{weight}", "U8", packed.shape, packed.tobytes()),
        Tensor(f"{module}.weight_scale", "U8", code.shape, code.tobytes()),
    ]


def to_words(code, order=range(8)):
    """Eight codes of four bits a word, along the last dim, from the lowest bits on."""
    eights = code.reshape(*code.shape[:-1], -1, 8).astype("<u4")[..., list(order)]
    return (eights << np.arange(0, 32, 4, dtype="<u4")).sum(-1, dtype="<u4").view("<i4")


def from_words(words, order=range(8)):
    codes = np.ascontiguousarray(words).view("<u4")[..., None] >> np.arange(0, 32, 4, dtype="<u4") & np.uint32(15)
    return codes[..., np.argsort(list(order))].reshape(*words.shape[:-1], -1)


def int4_codes(x, group, zeros, signed, dtype):
    """Codes [N,K], zeros [N,K/G], scales [N,K/G]. Without zeros they are all 8; signed: every other row has scales below
    zero."""
    parts = x.reshape(x.shape[0], -1, group)
    low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 0)
    span = (high - low) / 15 if zeros else np.maximum(high, -low) / 7.5
    sign = np.where(np.arange(len(x)) % 2 * signed, -1, 1)[:, None]
    _, scale = rounded(np.maximum(span, 1e-4) * sign, dtype)
    zero = np.clip(np.rint(-low / scale), 0, 15) if zeros else np.full(scale.shape, 8.0)
    code = np.clip(np.rint(parts / scale[..., None]) + zero[..., None], 0, 15)
    return code.reshape(x.shape).astype(np.uint8), zero.astype(np.uint8), scale.astype(np.float32)


def int4(module, x, writer, knob):
    dtype = knob["scale_dtype"] or ("BF16" if writer == "ct" else "F16")
    group = knob["group"] if knob["group"] > 0 else x.shape[1]
    code, zero, scale = int4_codes(x, group, knob["zeros"], knob["signed"], dtype)
    n, k = x.shape

    def tensor(part, kind, value):
        return Tensor(f"{module}.{part}", kind, value.shape, encode(value, kind))

    if writer == "ct":
        rows = np.concatenate([zero, np.full((-n % 8, zero.shape[1]), 8, np.uint8)])
        out = [tensor("weight_packed", "I32", to_words(code)), tensor("weight_scale", dtype, scale)]
        out += [tensor("weight_zero_point", "I32", to_words(rows.T).T)] if knob["zeros"] else []
        return out + [tensor("weight_shape", "I64", np.array([n, k]))]
    if writer == "awq":
        return [
            tensor("qweight", "I32", to_words(code.T, AWQ_ORDER)),
            tensor("qzeros", "I32", to_words(zero.T, AWQ_ORDER)),
            tensor("scales", dtype, scale.T),
        ]
    words = to_words(zero.T).view("<u4") - np.uint32(0 if knob["v2"] else 0x11111111)
    groups = np.arange(k) // (k // zero.shape[1])
    return [
        tensor("qweight", "I32", to_words(code).T),
        tensor("qzeros", "I32", words.view("<i4")),
        tensor("scales", dtype, scale.T),
        tensor("g_idx", "I32", groups),
    ]


def from_int4(module, get, tensors, less_one):
    """(code - zero) * scale of a module in one of the three layouts."""
    zeros = None
    if f"{module}.weight_packed" in tensors:
        code, scale = from_words(get("weight_packed")), get("weight_scale")
        if f"{module}.weight_zero_point" in tensors:
            zeros = from_words(get("weight_zero_point").T).T[: code.shape[0]]
    elif f"{module}.g_idx" in tensors:
        words = get("qzeros").view("<u4") + np.uint32(0x11111111 if less_one else 0)
        code, zeros, scale = from_words(get("qweight").T), from_words(words).T, get("scales").T
    else:
        code, zeros, scale = (
            from_words(get("qweight"), AWQ_ORDER).T,
            from_words(get("qzeros"), AWQ_ORDER).T,
            get("scales").T,
        )
    group = code.shape[1] // scale.shape[1]
    zero = np.float32(8) if zeros is None else np.repeat(zeros.astype(np.float32), group, 1)
    return (code.astype(np.float32) - zero) * np.repeat(scale.astype(np.float32), group, 1)


def input_scale(module, kind, knob):
    """A static activation scale, as that writer would have called it."""
    if not knob["static"] or kind in ("fp8-channel", "mxfp4", "fp8-block", "int4"):
        return []
    if knob["writer"] == "ct":
        name = "input_global_scale" if kind == "nvfp4" else "input_scale"
        return [Tensor(f"{module}.{name}", "F32", (1,), encode(np.array([0.25]), "F32"))]
    name = "activation_scale" if knob["writer"] == "fp8" else "input_scale"
    return [Tensor(f"{module}.{name}", "F32", (), encode(np.array(0.25), "F32"))]


def kind_of(module, knob):
    """The format that the knob's table of globs gives a module, or None."""
    return next((kind for glob, kind in knob["formats"].items() if fnmatch.fnmatchcase(module, glob)), None)


def full_knob(knob):
    """The `quant` knob with its defaults."""
    is_int4 = "int4" in knob["formats"].values()
    return {
        "scale_dtype": None if is_int4 else "F32",
        "block": [128, 128],
        "static": False,
        "kv": None,
        "ignore": ["lm_head"],
        "both_files": False,
        "group": 128,
        "zeros": knob["writer"] != "ct",
        "v2": False,
        "signed": False,
        **knob,
    }


def module_tensors(module, x, knob):
    """The tensors of a module, or None where it stays as it is. x: float32 [N,K]."""
    kind = kind_of(module, knob)
    if kind in (None, "plain"):
        return None
    x = np.asarray(x, np.float64)
    if kind == "nvfp4":
        out = nvfp4(module, x, knob["writer"])
    elif kind == "mxfp4":
        out = mxfp4(module, x, knob["writer"])
    elif kind == "int4":
        out = int4(module, x, knob["writer"], knob)
    else:
        out = fp8(module, x, kind, knob["writer"], knob)
    return out + input_scale(module, kind, knob)


def dequantise(module, tensors, block=None, less_one=True):
    """float32 [N,K] of a module, from tensors name -> (dtype, shape, bytes), as layouts say. Products of float32 as the
    reference makes them: code times block scale, times row scale. less_one: what zeros of GPTQ stand in the file as."""

    def get(part, kind=None):
        found = tensors.get(f"{module}.{part}")
        return None if found is None else decode(found[2], kind or found[0], found[1])

    packed, f32 = get("weight_packed"), np.float32
    if f"{module}.qweight" in tensors or tensors.get(f"{module}.weight_packed", [""])[0] == "I32":
        return from_int4(module, get, tensors, less_one)
    if packed is None and tensors[f"{module}.weight"][0] not in ("U8", "F8_E4M3"):
        return get("weight")
    if packed is not None or tensors[f"{module}.weight"][0] == "U8":
        code = from_e2m1(unpack(get("weight") if packed is None else packed)).astype(f32)
        scale = get("weight_scale")
        if tensors[f"{module}.weight_scale"][0] == "U8":
            return code * spread(from_e8m0(scale).astype(f32), *code.shape, 1, 32)
        second = get("weight_scale_2")
        row = f32(1) / get("weight_global_scale").reshape(()) if second is None else second.reshape(())
        return code * spread(from_e4m3(scale).astype(f32), *code.shape, 1, 16) * row
    code, scale = from_e4m3(get("weight")).astype(f32), get("weight_scale_inv")
    scale = get("weight_scale") if scale is None else scale
    if scale.size == 1 or scale.shape in ((code.shape[0],), (code.shape[0], 1)):
        return code * scale.reshape(-1, 1)
    return code * spread(scale, *code.shape, *block)


def coded_modules(tensors):
    """Names of the modules of which codes are stored."""
    return [
        name.rpartition(".")[0]
        for name, (dtype, _, _) in tensors.items()
        if name.endswith((".weight_packed", ".qweight")) or (name.endswith(".weight") and dtype in ("U8", "F8_E4M3"))
    ]


def block_of(folder):
    """The size of FP8 blocks that a config.json names, or None."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        told = json.load(f).get("quantization_config", {})
    groups = told.get("config_groups", {}).values()
    return told.get("weight_block_size") or next(
        (g["weights"]["block_structure"] for g in groups if g["weights"].get("block_structure")), None
    )


# -- JSON files -------------------------------------------------------------------------------------------------


def ct_weights(kind, knob):
    """`weights` of a config group, keys as the library writes them."""
    if kind == "int4":
        return {
            "actorder": None,
            "block_structure": None,
            "dynamic": False,
            "group_size": knob["group"] if knob["group"] > 0 else None,
            "num_bits": 4,
            "observer": "memoryless_minmax",
            "observer_kwargs": {},
            "strategy": "group" if knob["group"] > 0 else "channel",
            "symmetric": not knob["zeros"],
            "type": "int",
        }
    four = kind in CT_FORMATS
    strategy = {"fp8-block": "block", "fp8-tensor": "tensor", "fp8-channel": "channel", "nvfp4": "tensor_group",
                "mxfp4": "group"}[kind]  # fmt: skip
    return {
        "actorder": None, "block_structure": list(knob["block"]) if kind == "fp8-block" else None, "dynamic": False,
        "group_size": {"nvfp4": 16, "mxfp4": 32}.get(kind), "num_bits": 4 if four else 8, "observer": "memoryless_minmax",
        "observer_kwargs": {}, "strategy": strategy, "symmetric": True, "type": "float",
    }  # fmt: skip


def ct_config(knob):
    kinds = [k for k in dict.fromkeys(knob["formats"].values()) if k != "plain"]
    groups = {}
    for i, kind in enumerate(kinds):
        targets = (
            ["Linear"]
            if len(kinds) == 1
            else ["re:" + fnmatch_to_regex(glob) for glob, k in knob["formats"].items() if k == kind]
        )
        groups[f"group_{i}"] = {
            "format": CT_FORMATS.get(kind, "float-quantized"),
            "input_activations": None,
            "output_activations": None,
            "targets": targets,
            "weights": ct_weights(kind, knob),
        }
    whole = CT_FORMATS.get(kinds[0], "float-quantized") if len(kinds) == 1 else "mixed-precision"
    return {
        "config_groups": groups,
        "format": whole,
        "global_compression_ratio": None,
        "ignore": knob["ignore"],
        "kv_cache_scheme": knob["kv"],
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "sparsity_config": {},
        "transform_config": {},
        "version": "0.20.0",
    }


def fnmatch_to_regex(glob):
    return glob.replace(".", "\\.").replace("*", ".*") + "$"


def modelopt_group(kind, knob, targets):
    """One of config_groups; where activations are read as they come there is no word of them."""
    numbers = {"dynamic": False, "num_bits": 4 if kind == "nvfp4" else 8, "type": "float",
               **({"group_size": 16} if kind == "nvfp4" else {})}  # fmt: skip
    return {**({"input_activations": numbers} if knob["static"] else {}), "weights": numbers, "targets": targets}


def modelopt_config(knob, modules):
    """(hf_quant_config.json, quantization_config)."""
    kinds = [kind for kind in dict.fromkeys(knob["formats"].values()) if kind != "plain"]
    of_kind = {kind: [m for m in modules if kind_of(m, knob) == kind] for kind in kinds}
    algo = ALGOS[kinds[0]] if len(kinds) == 1 else "MIXED_PRECISION"
    inner = {"quant_algo": algo, "kv_cache_quant_algo": knob["kv"]}
    outer = {"ignore": knob["ignore"], "quant_algo": algo, "quant_method": "modelopt",
             "producer": {"name": "modelopt", "version": "0.47.0"}}  # fmt: skip
    if algo == "MIXED_PRECISION":
        inner["quantized_layers"] = {
            m: {"quant_algo": ALGOS[kind_of(m, knob)], **({"group_size": 16} if kind_of(m, knob) == "nvfp4" else {})}
            for m in modules
            if kind_of(m, knob) in kinds
        }
        outer["quantized_layers"] = inner["quantized_layers"]
    else:
        inner |= {"group_size": 16} if kinds == ["nvfp4"] else {}
        inner["exclude_modules"] = knob["ignore"]
    if algo not in ("FP8_PER_CHANNEL_PER_TOKEN", "mxfp4"):
        outer["config_groups"] = {
            f"group_{i}": modelopt_group(kind, knob, sorted(of_kind[kind]) if len(kinds) > 1 else ["Linear"])
            for i, kind in enumerate(kinds)
        }
    if knob["kv"]:
        outer["kv_cache_scheme"] = {"dynamic": False, "num_bits": 8, "type": "float"}
    return {"producer": outer["producer"], "quantization": inner}, outer


def fp8_config(knob):
    block = "fp8-block" in knob["formats"].values()
    return {
        "activation_scheme": "static" if knob["static"] else "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": list(knob["block"]) if block else None,
        **({"modules_to_not_convert": knob["ignore"]} if knob["ignore"] else {}),
    }


def awq_config(knob):
    return {
        "bits": 4,
        "group_size": knob["group"],
        "modules_to_not_convert": None,
        "quant_method": "awq",
        "version": "gemm",
        "zero_point": True,
    }


def gptq_config(knob):
    return {
        "bits": 4,
        "checkpoint_format": "gptq_v2" if knob["v2"] else "gptq",
        "damp_percent": 0.01,
        "desc_act": False,
        "group_size": knob["group"],
        "lm_head": False,
        "quant_method": "gptq",
        "sym": not knob["zeros"],
        "true_sequential": True,
    }


def configs(knob, modules):
    """(quantization_config or None, hf_quant_config.json or None)."""
    if knob["writer"] == "fp8":
        return fp8_config(knob), None
    if knob["writer"] == "ct":
        return ct_config(knob), None
    if knob["writer"] in ("awq", "gptq"):
        return (awq_config if knob["writer"] == "awq" else gptq_config)(knob), None
    file, outer = modelopt_config(knob, modules)
    return outer if knob["both_files"] else None, file
