"""[quant] "..." = "bf16": quantised weights are decoded while compiling, to the bf16 nearest to what the files mean.

The oracle decodes the same tensors with `ml_dtypes` in float64, where the products are exact, and rounds once; a checkpoint
of these weights in BF16 must then give the reference device the very same logits.
"""

import json
import pathlib
import shutil

import ml_dtypes
import mkckpt
import numpy as np
import pytest
import quant
from container import Tensor, decode, read_safetensors, write_safetensors
from test_quant import products

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"
SHAPE = {"hidden": 128, "intermediate": 256}
WRITTEN = sorted(p.name for p in FIXTURES.glob("written-by-*"))
MADE = {
    "fp8-block": {"writer": "fp8", "formats": {"model.layers.*proj": "fp8-block"}, "scale_dtype": "BF16"},
    "fp8-block-f32": {"writer": "fp8", "formats": {"model.layers.*proj": "fp8-block"}, "block": [32, 64]},
    "fp8-block-ct": {"writer": "ct", "formats": {"model.layers.*proj": "fp8-block"}, "block": [64, 32]},
    "fp8-tensor": {"writer": "modelopt", "formats": {"model.layers.*proj": "fp8-tensor"}, "static": True},
    "fp8-channel": {"writer": "ct", "formats": {"model.layers.*proj": "fp8-channel"}, "scale_dtype": "BF16"},
    "fp8-head": {"writer": "fp8", "formats": {"model.layers.*proj": "fp8-block", "lm_head": "fp8-block"}, "ignore": []},
    "nvfp4": {"writer": "modelopt", "formats": {"model.layers.*proj": "nvfp4"}},
    "nvfp4-over": {"writer": "ct", "formats": {"model.layers.*proj": "nvfp4"}},
    "mxfp4": {"writer": "ct", "formats": {"model.layers.*proj": "mxfp4"}},
    "int4-awq": {"writer": "awq", "formats": {"model.layers.*proj": "int4"}, "group": 32},
    "int4-gptq": {"writer": "gptq", "formats": {"model.layers.*proj": "int4"}, "group": 64},
    "int4-gptq-v2": {"writer": "gptq", "formats": {"model.layers.*proj": "int4"}, "group": -1, "v2": True},
    "int4-packed": {"writer": "ct", "formats": {"model.layers.*proj": "int4"}, "group": 128, "zeros": True},
    "int4-symmetric": {"writer": "ct", "formats": {"model.layers.*proj": "int4"}, "group": 32},
}  # fmt: skip


def to_bf16(x):
    """Of float64, rounded once, ties to even, as numbers."""
    _, e = np.frexp(x)
    quantum = np.maximum(e - 8, -133)
    return np.ldexp(np.rint(np.ldexp(x, -quantum)), quantum)


def meant(module, tensors, told):
    """float64 [N,K] of a module, by the codes of ml_dtypes."""

    def raw(part):
        found = tensors.get(f"{module}.{part}")
        return None if found is None else np.frombuffer(found[2], np.uint8).reshape(found[1] + (-1,))[..., 0]

    def number(part):
        dtype, shape, data = tensors[f"{module}.{part}"]
        if dtype == "F8_E4M3":
            return raw(part).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        if dtype in ("U8", "F8_E8M0"):
            return raw(part).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
        if dtype == "BF16":
            return np.frombuffer(data, ml_dtypes.bfloat16).reshape(shape).astype(np.float64)
        return decode(data, dtype, shape).astype(np.float64)

    names = {n.rpartition(".")[2] for n in tensors if n.rpartition(".")[0] == module}
    if "qweight" in names or tensors.get(f"{module}.weight_packed", [""])[0] == "I32":

        def words(part):
            dtype, shape, data = tensors[f"{module}.{part}"]
            return decode(data, dtype, shape)

        if "weight_packed" in names:
            code, scale = quant.from_words(words("weight_packed")), number("weight_scale")
            zero = quant.from_words(words("weight_zero_point").T).T[: len(code)] if "weight_zero_point" in names else 8
        elif told["writer"] == "awq":
            code, scale = quant.from_words(words("qweight"), quant.AWQ_ORDER).T, number("scales").T
            zero = quant.from_words(words("qzeros"), quant.AWQ_ORDER).T
        else:
            code, scale = quant.from_words(words("qweight").T), number("scales").T
            zero = (quant.from_words(words("qzeros")).T.astype(int) + (0 if told.get("v2") else 1)) % 16
        group = code.shape[1] // scale.shape[1]
        zero = np.repeat(zero, group, 1) if isinstance(zero, np.ndarray) else zero
        return (code.astype(np.float64) - zero) * np.repeat(scale, group, 1)
    part = "weight_packed" if "weight_packed" in names else "weight"
    if tensors[f"{module}.{part}"][0] == "U8":
        codes = quant.unpack(raw(part)).view(np.uint8).astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        group = codes.shape[1] // tensors[f"{module}.weight_scale"][1][1]
        x = codes * np.repeat(number("weight_scale"), group, 1)
        if "weight_global_scale" in names:
            return x / number("weight_global_scale").reshape(())
        return x * number("weight_scale_2").reshape(()) if "weight_scale_2" in names else x
    x = number("weight")
    if tensors[f"{module}.weight"][0] != "F8_E4M3":
        return x
    scale = number("weight_scale_inv" if "weight_scale_inv" in names else "weight_scale")
    if scale.size == 1 or scale.shape in ((len(x),), (len(x), 1)):
        return x * scale.reshape(-1, 1)
    return x * quant.spread(scale, *x.shape, *told["block"])


def folder_of(name, tmp_path):
    """A quantised checkpoint, and what the oracle must be told of it."""
    folder = tmp_path / "m"
    if name in MADE:
        mkckpt.build({**mkckpt.DEFAULTS, **SHAPE, "quant": MADE[name]}).write(folder)
        return folder, quant.full_knob(MADE[name])
    shutil.copytree(FIXTURES / name, folder)
    (folder / "golden.safetensors").unlink(missing_ok=True)
    writer = "awq" if "awq" in name else "gptq" if "gptq" in name else ""
    return folder, {"writer": writer, "block": quant.block_of(folder)}


@pytest.mark.parametrize("name", [*MADE, *WRITTEN])
def test_every_element(name, build_dir, tmp_path):
    folder, told = folder_of(name, tmp_path)
    tensors = read_safetensors(folder / "model.safetensors")
    coded = set(quant.coded_modules(tensors))
    (folder / "MODEL.toml").write_text('[quant]\n"*" = "bf16"\n')
    got = products(build_dir / "tests" / "productdump", folder)
    seen = set()
    for weight, w in got.items():
        module = weight.rpartition(".")[0]
        if module not in coded:
            continue
        x = meant(module, tensors, told)
        want = to_bf16(x)
        assert np.array_equal(w.astype(np.float64), want), weight
        exact = x == to_bf16(x)
        assert np.array_equal(w[exact].astype(np.float64), x[exact])
        seen.add(module)
    assert seen == coded


def decoded_copy(folder, to, modules, told):
    """The same checkpoint with these modules in BF16, and nothing about a format in its files."""
    tensors = read_safetensors(folder / "model.safetensors")
    out = []
    for name, (dtype, shape, data) in tensors.items():
        module, _, part = name.rpartition(".")
        if module not in modules:
            out.append(Tensor(name, dtype, shape, data))
        elif part in ("weight", "weight_packed", "qweight"):
            x = to_bf16(meant(module, tensors, told)).astype(np.float32)
            out.append(Tensor(f"{module}.weight", "BF16", x.shape, x.astype(ml_dtypes.bfloat16).tobytes()))
        elif part == "bias":
            out.append(Tensor(name, dtype, shape, data))
    shutil.copytree(folder, to)
    write_safetensors(to / "model.safetensors", out, {"format": "pt"})
    config = json.loads((to / "config.json").read_text())
    if modules == set(quant.coded_modules(tensors)):
        config.pop("quantization_config", None)
        (to / "hf_quant_config.json").unlink(missing_ok=True)
    (to / "config.json").write_text(json.dumps(config))
    (to / "MODEL.toml").unlink(missing_ok=True)


TOML = "[runtime]\nslots = 2\n[phases]\nprefill = [64]\ndecode = [2]\n"


def logits(atlasc, atlas, folder, plan, toml):
    options = folder.parent / f"{plan.stem}.toml"
    options.write_text(TOML + toml)
    run = atlasc(folder, "--model", options, "--target", "none", "-o", plan)
    assert run.returncode == 0, run.stderr
    done = atlas(
        "run", plan, "--tokens", "5,17,40,99,3,77", "-n", 12, "--device", "cpu", "--json", "-q", "--temperature", 0
    )
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["results"]
    return run.stderr, (result["tokens"], result["logprobs"])


def same_logits(atlasc, atlas, folder, told, rule, modules, tmp_path):
    decoded_copy(folder, tmp_path / "plain", modules, told)
    told_by, ours = logits(atlasc, atlas, folder, tmp_path / "ours.bin", f'[quant]\n"{rule}" = "bf16"\n')
    _, theirs = logits(atlasc, atlas, tmp_path / "plain", tmp_path / "theirs.bin", "")
    assert ours == theirs
    [note] = [x for x in told_by.splitlines() if "note[A0612]" in x]
    options = json.loads(atlas("audit", tmp_path / "ours.bin", "--json").stdout)["options"]
    assert options[f"quant.{rule}"] == "bf16"
    return note.partition("note[A0612]: ")[2]


@pytest.mark.parametrize("name", MADE)
def test_logits_are_those_of_the_decoded_checkpoint(name, atlasc, atlas, tmp_path):
    folder, told = folder_of(name, tmp_path)
    coded = set(quant.coded_modules(read_safetensors(folder / "model.safetensors")))
    note = same_logits(atlasc, atlas, folder, told, "*", coded, tmp_path)
    assert note == f'quant."*": model.layers.0.self_attn.q_proj and {len(coded) - 1} more are decoded to bf16'


@pytest.mark.parametrize(
    "name", ["fp8-block", "fp8-channel", "nvfp4", "nvfp4-over", "mxfp4", "int4-awq", "int4-packed"]
)
def test_some_layers(name, atlasc, atlas, tmp_path):
    folder, told = folder_of(name, tmp_path)
    coded = quant.coded_modules(read_safetensors(folder / "model.safetensors"))
    some = {m for m in coded if m.startswith("model.layers.1")}
    note = same_logits(atlasc, atlas, folder, told, "model.layers.1*", some, tmp_path)
    assert note == 'quant."model.layers.1*": model.layers.1.self_attn.q_proj and 6 more are decoded to bf16'


EXPERTS = {
    "fp8": {"writer": "fp8", "formats": {"*.experts.*": "fp8-block", "*.self_attn.*": "fp8-block"}, "block": [32, 32]},
    "nvfp4": {"writer": "modelopt", "formats": {"*.experts.*": "nvfp4"}},
    "mxfp4": {"writer": "ct", "formats": {"*.experts.*": "mxfp4"}},
    "int4": {"writer": "gptq", "formats": {"*.experts.*": "int4"}, "group": 32},  # which no op reads as it is
    "mixed": {"writer": "ct", "formats": {"*.experts.3.*": "fp8-channel", "*.experts.*": "nvfp4"}},  # nor this
}  # fmt: skip


@pytest.mark.parametrize("name", EXPERTS)
def test_experts(name, atlasc, atlas, tmp_path):
    knob = EXPERTS[name]
    mkckpt.build({**mkckpt.DEFAULTS, "family": "qwen3_moe", "tokenizer": "qwen2", "quant": knob}).write(tmp_path / "m")
    told = quant.full_knob(knob)
    coded = set(quant.coded_modules(read_safetensors(tmp_path / "m" / "model.safetensors")))
    note = same_logits(atlasc, atlas, tmp_path / "m", told, "*", coded, tmp_path)
    assert "are decoded to bf16" in note


def test_rows_by_key_head(atlasc, atlas, tmp_path):
    """Products of rows that stand in several places of a module: DeltaNet's, and q beside its gate."""
    mkckpt.make("hybrid-fp8", tmp_path / "m")
    told = quant.full_knob(mkckpt.recipes()["hybrid-fp8"]["quant"])
    coded = set(quant.coded_modules(read_safetensors(tmp_path / "m" / "model.safetensors")))
    assert any("in_proj_qkvz" in m for m in coded) and any("q_proj" in m for m in coded)
    same_logits(atlasc, atlas, tmp_path / "m", told, "*", coded, tmp_path)


def test_experts_in_one_tensor(atlasc, atlas, tmp_path):
    """gate_up_proj and down_proj [E,N,K] with their *_scale_inv, put together from experts of their own."""
    knob = {"writer": "fp8", "formats": {"*.experts.*": "fp8-block"}, "block": [32, 32]}
    full = {
        **mkckpt.DEFAULTS,
        "family": "qwen3_5_moe",
        "tokenizer": "qwen2",
        "quant": knob,
        "rope_keys": "new",
        "moe": {"shared": 32},
    }
    mkckpt.build(full).write(tmp_path / "each")
    tensors = read_safetensors(tmp_path / "each" / "model.safetensors")
    fused, plain = [], []
    groups = {}
    for name, (dtype, shape, data) in tensors.items():
        if ".experts." not in name:
            fused.append(Tensor(name, dtype, shape, data))
            plain.append(fused[-1])
            continue
        head, _, rest = name.partition(".experts.")
        expert, proj, part = rest.split(".")
        groups.setdefault(head, {})[int(expert), proj, part] = (dtype, shape, data)
    n = 1 + max(e for e, _, _ in next(iter(groups.values())))
    for head, parts in groups.items():
        for out, of in {"gate_up_proj": ["gate_proj", "up_proj"], "down_proj": ["down_proj"]}.items():
            for part, tail in {"weight": "", "weight_scale_inv": "_scale_inv"}.items():
                all_of = [parts[e, p, part] for e in range(n) for p in of]
                rows = sum(parts[0, p, part][1][0] for p in of)
                fused.append(
                    Tensor(
                        f"{head}.experts.{out}{tail}",
                        all_of[0][0],
                        (n, rows, all_of[0][1][1]),
                        b"".join(x[2] for x in all_of),
                    )
                )
            x = np.stack(
                [
                    np.concatenate([to_bf16(meant(f"{head}.experts.{e}.{p}", tensors, knob)) for p in of])
                    for e in range(n)
                ]
            ).astype(np.float32)
            plain.append(Tensor(f"{head}.experts.{out}", "BF16", x.shape, x.astype(ml_dtypes.bfloat16).tobytes()))
    for name, content in (("fused", fused), ("plain", plain)):
        shutil.copytree(tmp_path / "each", tmp_path / name)
        write_safetensors(tmp_path / name / "model.safetensors", content, {"format": "pt"})
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "plain" / "config.json").write_text(json.dumps(config))
    rule = '[quant]\n"*.experts.*" = "bf16"\n'
    told, ours = logits(atlasc, atlas, tmp_path / "fused", tmp_path / "fused.bin", rule)
    _, each = logits(atlasc, atlas, tmp_path / "each", tmp_path / "each.bin", rule)
    assert ours == each == logits(atlasc, atlas, tmp_path / "plain", tmp_path / "plain.bin", "")[1]
    assert "mlp.experts.gate_up_proj and 3 more are decoded to bf16" in told


def refusal(atlasc, folder, toml, *words):
    options = folder.parent / "o.toml"
    options.write_text(toml)
    run = atlasc(folder, "--model", options, "--dry-run", "--stop-after=build-graph", *words)
    assert run.returncode == 4, run.stderr
    return [line.partition("o.toml:")[2] for line in run.stderr.splitlines() if "error[" in line]


def test_refusals(atlasc, tmp_path):
    mkckpt.build({**mkckpt.DEFAULTS, "family": "qwen3_moe", "tokenizer": "qwen2", "quant": EXPERTS["fp8"]}).write(
        tmp_path / "m"
    )
    ref = "--weights ref uses the checkpoint's files as they are, so no format can be changed"
    assert refusal(atlasc, tmp_path / "m", '[quant]\n"*" = "bf16"\n', "--weights", "ref") == [
        f'2:7: error[A0304]: quant."*" = "bf16": {ref}'
    ]
    layers = refusal(atlasc, tmp_path / "m", '[quant]\n"*.experts.3.*" = "bf16"\n')
    gate = "model.layers.0.mlp.experts"
    assert layers[0] == (
        f'2:1: error[A0304]: quant."*.experts.3.*": {gate}.7.up_proj is FP8 by block in the checkpoint and '
        "stays so, and is read as one with modules that would be decoded"
    )
    assert refusal(atlasc, tmp_path / "m", '[quant]\n"*.mlp.nothing" = "bf16"\n') == [
        '2:1: error[A0305]: quant."*.mlp.nothing": the model has no such product'
    ]
    for first, second in (('"*" = "keep"', "*.q_proj"), ('"*_proj" = "bf16"', "model.layers.1.self_attn.q_proj")):
        assert refusal(atlasc, tmp_path / "m", f'[quant]\n{first}\n"{second}" = "bf16"\n') == [
            f'3:1: error[A0305]: quant."{second}": earlier lines decide on every product that it names: the first that fits counts'
        ]
    assert refusal(atlasc, tmp_path / "m", '[quant]\n"*" = "bfloat16"\n') == [
        '2:7: error[A0303]: quant."*" = "bfloat16": expected fp8-block, fp8-channel, fp8-tensor, nvfp4, mxfp4, bf16 or keep'
    ]


@pytest.mark.parametrize(
    "kind, code, expected", [("nan", 0x7F, "a number that bf16 has"), ("nan", 0xFF, "a number that bf16 has")]
)
def test_codes_that_are_no_numbers(kind, code, expected, atlasc, tmp_path):
    mkckpt.build(
        {**mkckpt.DEFAULTS, "quant": MADE["fp8-channel"], "values": [["model.layers.1.mlp.up_proj.weight", 777, code]]}
    ).write(tmp_path / "m")
    (tmp_path / "o.toml").write_text('[quant]\n"*" = "bf16"\n')
    run = atlasc(tmp_path / "m", "--model", tmp_path / "o.toml", "--target", "none", "-o", tmp_path / "p.bin")
    assert run.returncode == 4 and not (tmp_path / "p.bin").exists()
    assert (
        f"error[A0606]: tensor model.layers.1.mlp.up_proj.weight: element 777 is nan: expected {expected}"
        in run.stderr.replace("-nan", "nan")
    )


def test_plain_weights(atlasc, tmp_path):
    """In bf16 they stay what they are, and nothing is told; in F32 they are rounded."""
    (tmp_path / "o.toml").write_text('[quant]\n"*" = "bf16"\n')
    for dtype, is_told in (("BF16", False), ("F32", True), ("F16", True)):
        mkckpt.build({**mkckpt.DEFAULTS, "dtype": dtype}).write(tmp_path / dtype)
        run = atlasc(tmp_path / dtype, "--model", tmp_path / "o.toml", "--target", "none", "--dry-run", "-d", "g")
        assert run.returncode == 0 and ("A0612" in run.stderr) == is_told
        assert ("atlas.model.layers.0.mlp.up_proj.bf16" in run.stdout) == is_told


def test_kernels_serve_decoded_products(atlasc, kernel_cache, tmp_path):
    """To the choice of kernels for a GPU: one layer decoded, one as it is."""
    for name in ("fp8-block", "nvfp4", "int4-awq"):
        folder, _ = folder_of(name, tmp_path / name)
        (tmp_path / "o.toml").write_text('[quant]\n"model.layers.0*" = "bf16"\n')
        run = atlasc(folder, "--model", tmp_path / "o.toml", "--dry-run", "--stop-after=pick-kernels")
        assert run.returncode == 0, run.stderr
