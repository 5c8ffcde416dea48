"""Products of codes by codes: where the tensor cores have them they are chosen, compiled and in the machine code; where
they have not, a plan that asks for them is refused."""

import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
import mkckpt  # noqa: E402

DISASSEMBLER = next(f.locate() for f in importlib.metadata.files("nvidia-cuda-nvdisasm") if f.name == "nvdisasm")
PHASES = "[runtime]\nslots = 1\n[phases]\nprefill = [128]\ndecode = [1]\n"


def compiled(atlasc, where, recipe, target, fp4=None):
    mkckpt.make(recipe, where / "m")
    (where / "it.toml").write_text(PHASES + (f"[kernels]\nfp4 = {fp4}\n" if fp4 else ""))
    return atlasc("m", "--model", "it.toml", "--target", target, "-o", "plan.bin", "-d", "k", cwd=where)


def machine_code(where, mark):
    """The instructions of the plan's kernels whose symbol has that name in it."""
    plan, text = (where / "plan.bin").read_bytes(), ""
    starts = [found.start() for found in re.finditer(b"\x7fELF\x02\x01", plan)]
    for start, end in zip(starts, [*starts[1:], len(plan)]):
        if f".text.{mark}".encode() in plan[start:end]:
            (where / "k.cubin").write_bytes(plan[start:end])
            text += subprocess.run(
                [DISASSEMBLER, "-c", where / "k.cubin"], capture_output=True, text=True, timeout=60
            ).stdout
    return text


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
def test_native_fp4_is_refused_where_it_is_not(atlasc, tmp_path, target):
    run = compiled(atlasc, tmp_path, "llama-nvfp4-modelopt", target, '"native"')
    assert run.returncode == 3 and not (tmp_path / "plan.bin").exists()
    assert (
        f'it.toml:7:7: error[A0706]: kernels.fp4 = "native": {target} has no tensor cores that multiply e2m1 by e2m1 '
        "with a scale for each 16 columns; sm_120a and sm_121a have, and weight_only works on every target"
    ) in run.stderr


def test_other_values_are_refused(atlasc, tmp_path):
    run = compiled(atlasc, tmp_path, "llama-nvfp4-modelopt", "sm_120a", '"fast"')
    assert run.returncode == 4
    assert 'error[A0303]: kernels.fp4 = "fast": expected "native" or "weight_only"' in run.stderr


@pytest.mark.parametrize("target", ["sm_120a", "sm_121a"])
def test_native_fp4(atlasc, tmp_path, target):
    """Where it is asked for, long prompts multiply e2m1 by e2m1; 96 columns are no whole groups of four scales."""
    run = compiled(atlasc, tmp_path, "llama-nvfp4-modelopt", target, '"native"')
    assert run.returncode == 0, run.stderr
    for name in ("norm_rows_fp4", "quant_rows_fp4", "mma_fp4_linear", "mma_fp4_residual", "mma_fp4_swiglu"):
        assert re.search(rf"^ +{name}  grid", run.stdout, re.M), name
    assert re.search(r"w=model.layers.0.mlp.down_proj.weight\[64,96\]e2m1 .*\n +gemm_residual ", run.stdout)
    for name in ("mma_fp4_linear", "mma_fp4_residual", "mma_fp4_swiglu"):
        assert re.search(r"\bOMMA\.SF\.16864\.F32\.E2M1\.E2M1\.UE4M3\.4X", machine_code(tmp_path, name)), name


def test_weight_only_is_what_happens_unasked(atlasc, tmp_path):
    unasked = compiled(atlasc, tmp_path / "a", "llama-nvfp4-modelopt", "sm_120a")
    asked = compiled(atlasc, tmp_path / "b", "llama-nvfp4-modelopt", "sm_120a", '"weight_only"')
    assert unasked.returncode == 0 and "fp4" not in unasked.stdout and unasked.stdout == asked.stdout


@pytest.mark.parametrize("target", ["sm_89", "sm_120a"])
def test_native_fp8(atlasc, tmp_path, target):
    run = compiled(atlasc, tmp_path, "llama-fp8-channel-ct", target)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^ +mma_fp8_linear  grid", run.stdout, re.M)
    assert re.search(r"\bQMMA\.16832\.F32\.E4M3\.E4M3", machine_code(tmp_path, "mma_fp8_linear"))


@pytest.mark.parametrize(
    "recipe, target, fp4, templates",
    [
        ("llama-fp8-channel-ct", "sm_90a", None, ["wgmma_residual", "wgmma_fp8_residual"]),
        pytest.param(
            *("llama-fp8-channel-ct", "sm_89", None, ["gemm_residual", "mma_fp8_residual"]), marks=pytest.mark.long
        ),
        pytest.param(*("llama-fp8-channel-ct", "sm_80", None, ["gemm_residual"]), marks=pytest.mark.long),
        ("llama-nvfp4-modelopt", "sm_120a", '"native"', ["gemm_residual", "mma_fp4_residual"]),
        pytest.param(*("llama-nvfp4-modelopt", "sm_90a", None, ["wgmma_residual"]), marks=pytest.mark.long),
    ],
)
def test_the_rate_of_codes_by_codes_is_measured_by_such_a_product(
    atlasc, atlas, tmp_path, recipe, target, fp4, templates
):
    """Where a phase multiplies codes by codes, the probe phase does, beside bf16; and atlas opens the plan."""
    done = compiled(atlasc, tmp_path, recipe, target, fp4)
    assert done.returncode == 0, done.stderr
    audit = json.loads(atlas("audit", tmp_path / "plan.bin", "--json").stdout)
    probe = next(p for p in audit["targets"][0]["phases"] if p["phase"] == "probe")
    assert [e["template"] for e in probe["launches"] if e["op"] == "linear_residual"] == templates
    assert len(probe["launches"]) == 2 + len(templates)
