"""Quantised weights: codes against `ml_dtypes`, layouts against `compressed-tensors`, and what the compiler makes of them.

productdump executes every product of a checkpoint's graph on a unit matrix, on the reference device: the weights that
come out must be, bit for bit, those that the layouts mean.
"""

import json
import pathlib
import struct
import subprocess

import ml_dtypes
import mkckpt
import numpy as np
import pytest
import quant
from container import read_safetensors

HERE = pathlib.Path(__file__).resolve().parent
RECIPES = mkckpt.recipes()
SOUND = [n for n, k in RECIPES.items() if k["quant"] and k["expect"] != "refuse"]
PUBLIC = {"e4m3": ml_dtypes.float8_e4m3fn, "e2m1": ml_dtypes.float4_e2m1fn, "e8m0": ml_dtypes.float8_e8m0fnu}
CODES = {"e4m3": np.arange(256), "e2m1": np.arange(16), "e8m0": np.arange(256)}
CT = HERE / "ct_layouts.safetensors"


@pytest.mark.parametrize("dtype", PUBLIC)
def test_every_code_on_the_reference_device(dtype, build_dir):
    """An embedding of one code a token: what comes back is the code's value, the bits of zeros included."""
    codes = CODES[dtype].astype(np.uint8)
    raw = quant.pack(codes.reshape(-1, 2)) if dtype == "e2m1" else codes
    shape = (8, 2) if dtype == "e2m1" else (256, 1)
    head = f"op embed\narg i32 {shape[0]}\narg {dtype} {shape[0]} {shape[1]}\narg f32 {shape[0]} {shape[1]}\nend\n"
    data = np.arange(shape[0], dtype="<i4").tobytes() + raw.tobytes() + bytes(4 * len(codes))
    run = subprocess.run([build_dir / "tests" / "ref_run"], input=head.encode() + data, capture_output=True, timeout=60)
    assert run.returncode == 0, run.stderr
    got, want = np.frombuffer(run.stdout, "<f4"), codes.view(PUBLIC[dtype]).astype(np.float32)
    assert (
        np.array_equal(np.isnan(got), np.isnan(want))
        and np.isnan(want).sum() == {"e4m3": 2, "e2m1": 0, "e8m0": 1}[dtype]
    )
    finite = ~np.isnan(want)
    assert np.array_equal(got.view("<u4")[finite], want.view("<u4")[finite])


def test_scales_of_a_product_on_the_reference_device(build_dir):
    """Blocks cut off on both sides, blocks that begin inside a stretch, and rows: code * block * row in float32."""
    g = np.random.default_rng(3)
    n, k, bn, bk, rows = 21, 1100, 8, 24, 3
    code = g.integers(0, 16, (n, k)).astype(np.uint8)
    scale = g.integers(1, 0x7F, (-(-n // bn), -(-k // bk))).astype(np.uint8)
    row, x = g.uniform(0.5, 2, n).astype("<f4"), g.standard_normal((rows, k)).astype("<f4")
    head = (
        f"op linear\nattr BLOCK_N {bn}\nattr BLOCK_K {bk}\narg f32 {rows} {k}\narg e2m1 {n} {k}\n"
        f"arg e4m3 {scale.shape[0]} {scale.shape[1]}\narg f32 {n}\narg -\narg f32 {rows} {n}\nend\n"
    )
    data = x.tobytes() + quant.pack(code).tobytes() + scale.tobytes() + row.tobytes() + bytes(4 * rows * n)
    run = subprocess.run([build_dir / "tests" / "ref_run"], input=head.encode() + data, capture_output=True, timeout=60)
    assert run.returncode == 0, run.stderr
    w = code.view(PUBLIC["e2m1"]).astype(np.float32)
    w = w * quant.spread(scale.view(PUBLIC["e4m3"]).astype(np.float32), n, k, bn, bk) * row[:, None]
    want = x.astype(np.float64) @ w.astype(np.float64).T
    got = np.frombuffer(run.stdout, "<f4").reshape(rows, n)
    assert np.max(np.abs(got - want)) <= 1e-6 * np.max(np.abs(want))


def test_encoders_round_as_ml_dtypes():
    ties = (quant.E4M3[1:] + quant.E4M3[:-1]) / 2
    x = np.concatenate([np.linspace(-464, 464, 20001), np.linspace(-0.02, 0.02, 20001), ties, -ties]).astype("<f4")
    public = x.astype(PUBLIC["e4m3"]).view(np.uint8)
    assert np.array_equal(quant.to_e4m3(x), public)
    assert quant.to_e4m3([500, -1e9]).tolist() == [0x7E, 0xFE], "saturates"
    ties = (quant.E2M1[1:] + quant.E2M1[:-1]) / 2
    x = np.concatenate([np.linspace(-7, 7, 20001), ties, -ties]).astype("<f4")
    assert np.array_equal(quant.to_e2m1(x), x.astype(PUBLIC["e2m1"]).view(np.uint8) & 15)
    assert quant.to_e2m1([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 9, -0.1]).tolist() == [0, 2, 2, 4, 4, 6, 6, 7, 8]
    assert quant.pack(np.array([[2, 7]], np.uint8)).tolist() == [[0x72]], "even k in the low half"


# Layouts -----------------------------------------------------------------------------------------


def ct_metadata():
    raw = CT.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    return json.loads(json.loads(raw[8 : 8 + n])["__metadata__"]["quantization_config"])


def source(kind):
    """As make_ct_layouts.py has it."""
    rows, cols = {"fp8-block": (130, 160), "int4": (16, 256)}.get(kind, (16, 64))
    return mkckpt.noise(1, kind, rows * cols).reshape(rows, cols) / np.float32(8)


@pytest.mark.parametrize("kind", quant.FORMATS)
def test_layouts_are_those_of_compressed_tensors(kind):
    """Names, types and shapes of a module's tensors, what they mean, and how well they fit the same weight."""
    theirs = read_safetensors(CT)
    more = {"zeros": True, "scale_dtype": "F32"} if kind == "int4" else {}  # of a module in F32
    knob = quant.full_knob({"writer": "ct", "formats": {"*": kind}, "static": kind == "fp8-tensor", **more})
    x = source(kind)
    ours = {t.name: (t.dtype, t.shape, t.data) for t in quant.module_tensors(f"{kind}.proj", x, knob)}
    module = {name: t for name, t in theirs.items() if name.startswith(f"{kind}.proj.")}
    assert {n: t[:2] for n, t in ours.items()} == {n: t[:2] for n, t in module.items()}
    dense = np.frombuffer(theirs[f"{kind}.dense"][2], "<f4").reshape(x.shape)
    meant = quant.dequantise(f"{kind}.proj", module, knob["block"])
    assert np.max(np.abs(meant - dense)) <= 4e-3 * np.max(np.abs(dense)), "the package rounds scales to bf16 on the way"
    error = np.sqrt(np.mean((quant.dequantise(f"{kind}.proj", ours, knob["block"]) - x) ** 2))
    assert error <= 1.15 * np.sqrt(np.mean((dense - x) ** 2)), "worse than theirs"
    told = quant.ct_config(knob)
    known = ct_metadata()[kind]
    assert set(known) - {"moe_sparsity_config"} <= set(told)
    weights = known["config_groups"]["group_0"]["weights"]
    assert {key: v for key, v in told["config_groups"]["group_0"]["weights"].items() if key in weights} == {
        key: v for key, v in weights.items() if key != "scale_dtype"
    }


@pytest.mark.parametrize("kind", quant.FORMATS)
def test_their_config_is_read(kind, atlasc, tmp_path):
    """The quantization_config that the package wrote, as it is, over a model in that format."""
    knob = {
        **mkckpt.DEFAULTS,
        "quant": {"writer": "ct", "formats": {"model.layers.*proj": kind}, "zeros": True},
        "hidden": 128,
        "intermediate": 256,
        "config": {"quantization_config": {**ct_metadata()[kind], "ignore": ["lm_head"]}},
    }
    mkckpt.build(knob).write(tmp_path / "m")
    run = atlasc("m", "--dry-run", "--stop-after=build-graph", cwd=tmp_path)
    assert run.returncode == 0 and "A0207" not in run.stderr and "A0608" not in run.stderr, run.stderr


# Graphs ------------------------------------------------------------------------------------------------


def products(program, folder):
    """name -> float32 [N,K] of every product, as the reference device reads it."""
    run = subprocess.run([program, folder], capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    out, at = {}, 0
    while at < len(run.stdout):
        end = run.stdout.index(b"\n", at)
        name, n, k = run.stdout[at:end].decode().split()
        size = int(n) * int(k) * 4
        out[name] = np.frombuffer(run.stdout[end + 1 : end + 1 + size], "<f4").reshape(int(k), int(n)).T
        at = end + 1 + size
    return out


DENSE = ("llama", "mistral", "qwen2", "qwen3")


@pytest.mark.parametrize("name", [n for n in SOUND if RECIPES[n]["family"] in (*DENSE, "qwen3_moe")])
def test_products_mean_what_the_layouts_say(name, build_dir, tmp_path):
    mkckpt.make(name, tmp_path)
    knob = RECIPES[name]
    tensors = read_safetensors(tmp_path / "model.safetensors")
    got = products(build_dir / "tests" / "productdump", tmp_path)
    if knob["family"] in DENSE:  # other layers have other products
        assert len(got) == 7 * knob["layers"] + 1
    plain = {
        n: x
        for n, shape, mean, dev in mkckpt.tensor_plan(knob)
        for x in [mkckpt.noise(knob["seed"], n, int(np.prod(shape))).reshape(shape) * np.float32(dev)]
    }
    for weight, w in got.items():
        module = weight.rpartition(".")[0]
        told = quant.full_knob(knob["quant"])
        meant = quant.dequantise(module, tensors, told["block"], not told["v2"])
        assert np.array_equal(w, meant), weight
        x = plain[f"{module}.weight"]
        assert np.sqrt(np.mean((w - x) ** 2)) < 0.15 * np.sqrt(np.mean(x**2)), f"{weight}: far from what was stored"


def lowered(atlasc, tmp_path, name):
    mkckpt.make(name, tmp_path / "m")
    run = atlasc("m", "--dry-run", "-d", "f", "--stop-after=fuse", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_joined_products_keep_their_own_scales(atlasc, tmp_path):
    text = lowered(atlasc, tmp_path, "llama-nvfp4-ct")
    q = "model.layers.0.self_attn.q_proj"
    assert (
        f" w={q}.weight_packed (+2)[256,64]e2m1 w_scale={q}.weight_scale (+2)[256,4]e4m3 "
        f"w_row_scale=atlas.{q}.row_scale (+2)[256]f32 " in text
    )
    up = "model.layers.0.mlp.up_proj"
    assert f" up_scale={up}.weight_scale[96,4]e4m3 up_row_scale=atlas.{up}.row_scale[96]f32 " in text


def test_blocks_that_two_weights_would_share_are_split(atlasc, tmp_path):
    """k has 64 rows, a block 128: blocks of 64 with the same scales, and q, k and v are one weight."""
    text = lowered(atlasc, tmp_path, "llama-fp8-block")
    q = "model.layers.0.self_attn.q_proj"
    assert f" w={q}.weight (+2)[256,128]e4m3 w_scale=atlas.{q}.scale (+2)[4,1]bf16 " in text
    text = lowered(atlasc, tmp_path / "other", "llama-fp8-block-f32")
    assert f" w={q}.weight (+2)[256,64]e4m3 w_scale={q}.weight_scale_inv (+2)[8,1]f32 " in text


MADE = [
    "llama-fp8-block",
    "llama-fp8-channel-ct",
    "llama-fp8-tensor-ct",
    "llama-nvfp4-modelopt",
    "llama-mxfp4",
    "qwen3-nvfp4-mixed",
]


def graph_of(atlasc, folder, *words):
    run = atlasc(folder, "--dry-run", "-d", "g", "--stop-after=build-graph", *words)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("name", MADE)
def test_random_weights_are_as_the_files_say(name, atlasc, tmp_path):
    """The same products in the same formats as the checkpoint's own tensors have."""
    mkckpt.make(name, tmp_path / "m")

    def formats(text):
        rows = [line.split() for line in text.splitlines() if line.startswith("tensor")]
        return [row[3] for row in rows if row[2] == "weight" and row[3] in ("e4m3", "e2m1") and "scale" not in row[1]]

    stored = formats(graph_of(atlasc, tmp_path / "m"))
    assert stored and formats(graph_of(atlasc, tmp_path / "m", "--random-weights")) == stored


def test_quant_refusals(atlasc, tmp_path):
    mkckpt.make("llama-fp8-channel-ct", tmp_path / "m")
    cases = {
        '"lm_haed" = "nvfp4"': 'quant."lm_haed": the model has no such product',
        '"lm_head" = "fp8"': 'quant."lm_head" = "fp8": expected fp8-block, fp8-channel, fp8-tensor, nvfp4, mxfp4, bf16 '
        "or keep",
        '"*.mlp.up_proj" = "nvfp4"': "model.layers.0.mlp.up_proj is FP8 by row in the checkpoint, and only what is not "
        "quantized can be",
        '"re:lm.*" = "nvfp4"': "expected the name of a module, or one with stars",
    }
    options = tmp_path / "o.toml"
    for line, message in cases.items():
        options.write_text(f"[quant]\n{line}\n")
        run = atlasc(tmp_path / "m", "--model", options, "--dry-run", "--stop-after=build-graph")
        assert run.returncode == 4 and message in run.stderr, run.stderr
    options.write_text('[quant]\n"lm_head" = "nvfp4"\n')
    run = atlasc(tmp_path / "m", "--model", options, "--weights", "ref", "--dry-run", "--stop-after=build-graph")
    assert run.returncode == 4 and "--weights ref uses the checkpoint's files as they are" in run.stderr
    text = graph_of(atlasc, tmp_path / "m", "--model", options)
    assert "atlas.lm_head.codes" in text and "e2m1 [307,64]" in text


@pytest.mark.parametrize(
    "name, first, more, kept",
    [
        ("qwen3_moe", "model.layers.0.mlp.experts.0.gate_proj", 3, ["*.experts.*"]),
        ("qwen3_5_moe", "model.layers.0.mlp.experts.gate_up_proj", 6, ["*.experts.*", "*.q_proj"]),
        ("qwen3_next", "model.layers.0.linear_attn.in_proj_qkvz", 10, ["*.experts.*", "*.q_proj", "*.in_proj_*"]),
    ],
)
def test_what_is_read_in_parts_is_told_once(name, first, more, kept, atlasc, tmp_path):
    """One line for all modules that a rule cannot be about, and no consequences: their tensors count as read."""
    options = tmp_path / "o.toml"
    words = [HERE.parent / "fixtures" / name, "--model", options, "--target", "none", "-o", tmp_path / "p.bin"]
    options.write_text('[quant]\n"*" = "fp8-block"\n')
    run = atlasc(*words)
    [line] = [x for x in run.stderr.splitlines() if "error[" in x]
    assert (
        run.returncode == 4
        and f'error[A0206]: quant."*": {first} and {more} more: these are parts of larger tensors' in line
    )
    options.write_text("[quant]\n" + "".join(f'"{module}" = "keep"\n' for module in kept) + '"*" = "fp8-block"\n')
    run = atlasc(*words)
    assert run.returncode == 0, run.stderr
