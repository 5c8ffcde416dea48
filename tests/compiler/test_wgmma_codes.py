"""Weights of four bits in long prompts on sm_90a: what is chosen, what is not, and that codes go through registers.

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
TOML = "[runtime]\nslots = 1\n[phases]\nprefill = [64, 128, 2048]\ndecode = [1]\n"
WIDE = {
    "linear_rows": "wgmma_codes_linear",
    "linear_swiglu": "wgmma_codes_swiglu",
    "linear_residual": "wgmma_codes_residual",
}
FORMATS = {
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
    "mxfp4": {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 4,
                    "type": "float",
                    "strategy": "group",
                    "group_size": 32,
                    "scale_dtype": "torch.uint8",
                },
            }
        },
    },
    "int4": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
}


@pytest.fixture
def picks(atlasc, tmp_path):
    def run(quant, target="sm_90a", lines="", toml=TOML, **changes):
        """{(phase, rows): launches of layer 0}"""
        config = json.loads((SHAPES / "llama-3.1-8b.json").read_text())
        left_out = "modules_to_not_convert" if quant["quant_method"] == "awq" else "ignore"
        config |= {"num_hidden_layers": 1, "quantization_config": {**quant, left_out: ["lm_head"]}} | changes
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "it.toml").write_text(toml + lines)
        done = atlasc(
            "config.json",
            "--random-weights",
            "--model",
            "it.toml",
            "--target",
            target,
            "--tuning",
            "none",
            "--dry-run",
            "--stop-after",
            "pick-kernels",
            "-d",
            "k",
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return {key: [x for x in found if x.layer == 0] for key, found in launches(done.stdout).items()}

    return run


@pytest.mark.parametrize("quant", FORMATS.values(), ids=FORMATS)
def test_long_prompts_take_them(picks, quant):
    for (kind, rows), ops in picks(quant).items():
        names = {x.op: x.kernel for x in ops}
        if kind == "prefill" and rows > 64:
            assert [x.op for x in ops].count("norm_rows") == 2
            assert {op: names[op] for op in WIDE} == WIDE
        else:
            taken = {"wgmma_codes_residual"} if rows == 64 else set()  # no norm keeps it from tiles
            assert "norm_rows" not in names and set(WIDE.values()) & set(names.values()) == taken


@pytest.mark.parametrize("quant", FORMATS.values(), ids=FORMATS)
def test_answers_take_them_from_33_rows_on(picks, quant):
    """A step of up to 32 rows of INT4, of up to 24 of the others, takes them as they come, with the norm inside; one
    more has tiles, whose rows are written first. What reads rows without a norm has tiles from 17 rows of e2m1 on."""
    toml = "[runtime]\nslots = 33\nmax_context = 512\n[phases]\nprefill = [64]\ndecode = [1, 17, 25, 32, 33]\n"
    for (kind, rows), ops in picks(quant, toml=toml).items():
        if kind != "decode":
            continue
        names = {x.op: x.kernel for x in ops}
        is_int4 = quant == FORMATS.get("int4")
        wide, found = rows > (32 if is_int4 else 24), set(WIDE.values()) & set(names.values())
        assert ("norm_rows" in names) == wide, (rows, names)
        without_norm = {"wgmma_codes_residual"} if rows > 16 and not is_int4 else set()
        assert found == (set(WIDE.values()) if wide else without_norm), (rows, names)


@pytest.mark.parametrize("target", ["sm_80", "sm_120a"])
def test_other_architectures_do_not(picks, target):
    phases = picks(FORMATS["nvfp4"], target)
    assert phases["prefill", 2048]
    for ops in phases.values():
        assert not any(x.kernel.startswith("wgmma") for x in ops)


def constants(ops, template):
    return next(x.constants for x in ops if x.kernel == template)


def test_tiles_fit_the_rows(picks):
    """Many rows: 256 of them share a code's decoding. 128 are too few tiles: their columns are divided. u4 has its
    sums of groups beside those of all, which leaves registers for 128 rows."""
    phases = picks(FORMATS["nvfp4"])
    wide = constants(phases["prefill", 2048], "wgmma_codes_swiglu")
    assert (wide["BM"], wide["SPLIT"]) == ("256", "1")
    few = constants(phases["prefill", 128], "wgmma_codes_residual")
    assert few["BM"] == "128" and int(few["SPLIT"]) > 1 and few["CLUSTER"] == "1"
    u4 = constants(picks(FORMATS["int4"])["prefill", 2048], "wgmma_codes_swiglu")
    assert (u4["BM"], u4["WARPGROUPS"], u4["WT"], u4["ST"]) == ("128", "2", "u4", "f32z")


def test_a_ban_takes_what_serves_all(picks):
    ops = picks(FORMATS["nvfp4"], lines='[[kernels.ban]]\ntemplate = "wgmma_codes_residual"\n')["prefill", 2048]
    assert {x.op: x.kernel for x in ops}["linear_residual"] == "gemm_residual"


@pytest.mark.parametrize("codes", ["e2m1 ST=e4m3 BLOCK_K=16", "e2m1 ST=e8m0 BLOCK_K=32", "u4 ST=f32z BLOCK_K=32"])
@pytest.mark.parametrize(
    "template, flags",
    [
        ("wgmma_codes_residual", "BIAS=1 W_ROW_SCALE=1"),
        ("wgmma_codes_swiglu", "GATE_BIAS=1 UP_BIAS=1 GATE_ROW_SCALE=1 UP_ROW_SCALE=1"),
    ],
)
def test_codes_go_through_registers(build_dir, tmp_path, codes, template, flags):
    """wgmma takes decoded codes from registers and rows from shared memory, several at a time; nothing is spilled."""
    rows = 128 if codes.startswith("u4") else 256
    done = subprocess.run(
        [
            build_dir / "tests-gpu" / "kernel_test",
            "--no-gpu",
            "sm_90a",
            "--only",
            template,
            "--cases",
            "1",
            "--cache-dir",
            tmp_path,
            "--fix",
            f"ROWS=200 K=576 N=576 BLOCK_N=1 BM={rows} WARPGROUPS=2 CLUSTER=2 SPLIT=1 WT={codes} {flags}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.glob("*.kernel")
    image = kept.read_bytes()
    (tmp_path / "k.cubin").write_bytes(image[image.index(b"\x7fELF\x02\x01") :])
    code = subprocess.run([DISASSEMBLER, "-c", tmp_path / "k.cubin"], capture_output=True, text=True, timeout=60).stdout
    products = re.findall(rf"\bHGMMA\.64x{rows}x16\.F32\.BF16 R\d+, R\d+, gdesc[^;]*", code)
    assert products and sum("gsb0" in x for x in products) < len(products)
    assert not re.search(r"\b(LDL|STL)\b", code)
