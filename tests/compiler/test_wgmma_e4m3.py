"""Weights of e4m3 by bf16 rows in decode steps on sm_90a: from how many rows on, in which tiles, and that codes go
through registers.

Shapes are those of real models with one layer; what is chosen follows from the contracts and the cost model alone.
"""

import importlib.metadata
import json
import pathlib
import re
import subprocess

import pytest
from atlasc_texts import launches

DISASSEMBLER = next(f.locate() for f in importlib.metadata.files("nvidia-cuda-nvdisasm") if f.name == "nvdisasm")
SHAPES = pathlib.Path(__file__).resolve().parents[1] / "gpu" / "shapes"
TOML = """[runtime]
slots = 256
max_context = 512
[kv]
pool_tokens = 131072
[phases]
prefill = [128]
decode = [1, 8, 16, 32, 64, 128, 256]
"""
WIDE = {
    "linear_rows": "wgmma_e4m3_linear",
    "linear_swiglu": "wgmma_e4m3_swiglu",
    "linear_residual": "wgmma_e4m3_residual",
}
FORMATS = {
    "blocks": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "rows": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
            }
        },
    },
}


@pytest.fixture
def picks(atlasc, tmp_path):
    def run(quant, target="sm_90a", lines=""):
        """{(phase, rows): launches of layer 0}"""
        config = json.loads((SHAPES / "llama-3.1-8b.json").read_text())
        left_out = "modules_to_not_convert" if quant["quant_method"] == "fp8" else "ignore"
        config |= {"num_hidden_layers": 1, "quantization_config": {**quant, left_out: ["lm_head"]}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "it.toml").write_text(TOML + lines)
        words = "config.json --random-weights --model it.toml --tuning none --dry-run --stop-after pick-kernels -d k"
        done = atlasc(*words.split(), "--target", target, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return {key: [x for x in found if x.layer == 0] for key, found in launches(done.stdout).items()}

    return run


def constants(ops, template):
    return next(x.constants for x in ops if x.kernel == template)


@pytest.mark.parametrize("quant", FORMATS.values(), ids=FORMATS)
def test_many_rows_take_them(picks, quant):
    """A norm stays inside the product of few rows; where weights pass through tiles it writes its rows first."""
    phases = picks(quant)
    for rows in (1, 8, 16, 32, 64, 128, 256):
        ops = phases["decode", rows]
        names = {x.op: x.kernel for x in ops}
        if rows > 16:
            assert [x.op for x in ops].count("norm_rows") == 2
            assert {op: names[op] for op in WIDE} == WIDE
        else:
            assert {"norm_linear", "norm_swiglu"} <= set(names)
            assert "norm_rows" not in names and set(names) & {"linear_rows", "linear_swiglu"} == set()
    assert not set(WIDE.values()) & {x.kernel for x in phases["decode", 8]}


@pytest.mark.parametrize("target", ["sm_89", "sm_120a"])
def test_other_architectures_do_not(picks, target):
    phases = picks(FORMATS["blocks"], target)
    assert phases["decode", 64]
    for ops in phases.values():
        assert not any(x.kernel.startswith("wgmma") for x in ops)


def test_rows_of_codes_go_before(picks):
    ops = picks(FORMATS["blocks"], lines="[numerics]\nfp8_rows = 64\n")["decode", 64]
    assert {x.kernel for x in ops} & set(WIDE.values()) == set()
    assert "norm_rows_fp8" in {x.op for x in ops}


def test_few_tiles_divide_their_columns(picks):
    """4,096 columns are 32 tiles, a quarter of the card: blocks divide what they sum. Gate and up are enough."""
    phases = picks(FORMATS["blocks"])
    for rows in (32, 64, 128):
        assert int(constants(phases["decode", rows], "wgmma_e4m3_residual")["SPLIT"]) > 1
        assert constants(phases["decode", rows], "wgmma_e4m3_swiglu")["SPLIT"] == "1"


@pytest.mark.parametrize("rows, tile", [(20, 32), (64, 64), (200, 128)])
@pytest.mark.parametrize("groups", [2, 3, 4])
@pytest.mark.parametrize(
    "template, flags",
    [
        ("wgmma_e4m3_residual", "BIAS=1 W_SCALE=1 W_ROW_SCALE=1"),
        ("wgmma_e4m3_swiglu", "GATE_BIAS=1 UP_BIAS=1 GATE_SCALE=1 UP_SCALE=1 GATE_ROW_SCALE=1 UP_ROW_SCALE=1"),
    ],
)
def test_codes_go_through_registers(build_dir, tmp_path, rows, tile, groups, template, flags):
    """wgmma takes decoded codes from registers and rows from shared memory, several at a time; nothing is spilled, at
    the least registers that a form leaves."""
    if tile > {2: 128, 3: 64, 4: 32}[groups]:
        pytest.skip("sums of a stage have registers of their own")
    form = f"WARPGROUPS={groups} SPLIT={ {2: 3, 3: 4, 4: 1}[groups] }"
    fixed = f"ROWS={rows} K=4096 N=1152 BLOCK_N=128 BLOCK_K=128 ST=f32 {form} {flags}"
    words = ["--no-gpu", "sm_90a", "--only", template, "--cases", "1", "--cache-dir", tmp_path, "--fix", fixed]
    done = subprocess.run(
        [build_dir / "tests-gpu" / "kernel_test", *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.glob("*.kernel")
    image = kept.read_bytes()
    (tmp_path / "k.cubin").write_bytes(image[image.index(b"\x7fELF\x02\x01") :])
    code = subprocess.run([DISASSEMBLER, "-c", tmp_path / "k.cubin"], capture_output=True, text=True, timeout=60).stdout
    products = re.findall(rf"\bHGMMA\.64x{tile}x16\.F32\.BF16 R\d+, R\d+, gdesc[^;]*", code)
    assert products and sum("gsb0" in x for x in products) < len(products)
    assert not re.search(r"\b(LDL|STL)\b", code)
