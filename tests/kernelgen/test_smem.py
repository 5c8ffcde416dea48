"""Shared memory that a contract asks for is what the code lays out, or nothing is built.

Formulas of fragments are made wrong in a copy of kernels/templates. Where a contract's examples show it, kernelgen
refuses each template of the family; where they do not, NVRTC refuses the kernel that would write past its memory.
"""

from __future__ import annotations

import ctypes
import pathlib
import re
import shutil
import subprocess

import pytest

OPTIONS = ["-std=c++17", "-default-device", "--no-source-include", "--gpu-architecture=sm_90a", "-DSMEM_MAX=232448"]
WGMMA = "ROWS=128 K=512 N=512 BIAS=0 WT=bf16 BT=bf16 CLUSTER=1 BN={}"
GEMM = "ROWS=64 K=512 N=512 BLOCK_N=0 BLOCK_K=0 W_SCALE=0 W_ROW_SCALE=0 BIAS=0 ST=f32 BT=bf16 BM=32 BN=64 WT={}"
STREAM = (
    "ROWS=1 K=1024 N=512 EPS=1e-5f NORM_ONE=0 BLOCK_N=0 BLOCK_K=0 W_SCALE=0 W_ROW_SCALE=0 BIAS=0 ST=f32 NT=bf16 BT=bf16 "
    "TILES=2 COLS=64 DEPTH=2 CHAINS=2 SQUARES=0 WT={}"
)
FAMILIES = {
    "wgmma": [f"wgmma_{form}{op}" for form in ("", "fp8_") for op in ("linear", "residual", "swiglu")],
    "wgmma_codes": [f"wgmma_codes_{op}" for op in ("linear", "residual", "swiglu")],
    "wgmma_few": [f"wgmma_few_{op}" for op in ("linear", "residual", "swiglu", "fp8_linear", "fp8_residual")],
    "wgmma_slim": [f"wgmma_slim_{form}{op}" for form in ("", "fp8_") for op in ("linear", "residual", "swiglu")],
    "stream": [f"stream_{op}" for op in ("linear", "residual", "norm", "swiglu", "logits")],
    "gemm": [f"gemm_{op}" for op in ("linear", "residual", "norm", "swiglu", "logits")],
    "mma": [f"mma_{form}_{op}" for form in ("fp4", "fp8") for op in ("linear", "residual", "swiglu")],
    "step": ["attn_step", "attn_verify"],
    "flow": ["attn_wgmma", "attn_wgmma_codes"],
    "prefill": ["attn_prefill"],
}

# (family, file, formula, wrong for all)
WRONG = [
    ("wgmma", "products/wgmma.cuh", "1024 + wgmma_stages(bn) * (", "1024 + wgmma_stages(bn) / 2 * ("),
    ("wgmma_codes", "products/wgmma_codes.cuh", "codes_smem(), 1024 + codes_rings", "codes_smem(), codes_rings"),
    ("wgmma_few", "products/wgmma_few_contract.cuh", "SMEM(231424)", "SMEM(131072)"),
    ("wgmma_slim", "products/wgmma_slim_contract.cuh", "SMEM(slim_smem(BLOCKS))", "SMEM(slim_smem(2 * BLOCKS))"),
    ("stream", "products/stream_contract.cuh", "8 * DEPTH * TILES * 16 *", "4 * DEPTH * TILES * 16 *"),
    ("gemm", "products/gemm.cuh", "(bm + bn) * 144) + 256", "(bm + bn) * 144)"),
    ("mma", "products/mma_codes.cuh", "98304 / ((bm + bn) * row_bytes) *", "65536 / ((bm + bn) * row_bytes) *"),
    ("step", "attention/step_contract.cuh", "(STAGES * stage_size()", "((STAGES - 1) * stage_size()"),
    (
        "flow",
        "attention/attend_flow_contract.cuh",
        "+ 4 * KEYS) * ceil_div(HDIM, 64)",
        "+ 3 * KEYS) * ceil_div(HDIM, 64)",
    ),
    ("prefill", "attention/attn_prefill.cu", "? (PAIRS + 4 * KEYS)", "? (PAIRS + 2 * KEYS)"),
]
# (family, file, formula, wrong for one kernel, its template, its constants, those of another)
WRONG_FOR_ONE = [
    (
        "wgmma",
        "products/wgmma.cuh",
        "1024 + wgmma_stages(bn) * (",
        "(bn == 64 ? 0 : 1024) + wgmma_stages(bn) * (",
        ("wgmma_linear", WGMMA.format(64), WGMMA.format(128)),
    ),
    (
        "stream",
        "products/stream_ring.cuh",
        "128 / split * cols * ceil_div(k, split * cols) + 4096",
        "128 / split * cols * ceil_div(k, split * cols) + 2048",
        ("stream_norm", STREAM.format("e4m3"), STREAM.format("bf16")),
    ),
    (
        "gemm",
        "products/gemm.cuh",
        "bm * 128 + bn * 8 * bits",
        "bm * 128 + bn * 4 * bits",
        ("gemm_linear", GEMM.format("e4m3"), GEMM.format("bf16")),
    ),
]


@pytest.fixture(scope="module")
def compiles(atlasc):
    """compiles(folder, name, constants): NVRTC's log; "" where it takes the kernel."""
    nvrtc = ctypes.CDLL(re.search(r"^NVRTC: ([^\n,]+)", atlasc("--version").stdout, re.M)[1])

    def log_of(folder: pathlib.Path, name: str, constants: str) -> str:
        headers = sorted(folder.rglob("*.cuh"))
        n = len(headers)
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        texts = (ctypes.c_char_p * n)(*[path.read_bytes() for path in headers])
        names = (ctypes.c_char_p * n)(*[str(path.relative_to(folder)).encode() for path in headers])
        (source,) = folder.rglob(f"{name}.cu")
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), b"k.cu", n, texts, names) == 0
        words = [word.encode() for word in OPTIONS + [f"-D{word}" for word in constants.split()]]
        good = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words)) == 0
        assert nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
        log = ctypes.create_string_buffer(size.value)
        assert nvrtc.nvrtcGetProgramLog(program, log) == 0
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return "" if good else log.value.decode()

    return log_of


def changed(repo: pathlib.Path, tmp_path: pathlib.Path, file: str, old: str, new: str) -> pathlib.Path:
    folder = tmp_path / "templates"
    shutil.copytree(repo / "kernels/templates", folder, dirs_exist_ok=True)
    text = (folder / file).read_text()
    assert text.count(old) == 1
    (folder / file).write_text(text.replace(old, new))
    return folder


def kernelgen(build_dir: pathlib.Path, folder: pathlib.Path, family: list[str]) -> list[str]:
    words = [build_dir / "kernelgen", "-o", folder / "table.c", "-I", folder]
    words += [next(folder.rglob(f"{name}.cu")) for name in family]
    return subprocess.run(words, capture_output=True, text=True, check=False).stderr.splitlines()


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c[0])
def test_a_wrong_formula_builds_nothing(build_dir, repo, tmp_path, case):
    family, file, formula, wrong = case
    folder = changed(repo, tmp_path, file, formula, formula)
    assert kernelgen(build_dir, folder, FAMILIES[family]) == []
    lines = kernelgen(build_dir, changed(repo, tmp_path, file, formula, wrong), FAMILIES[family])
    refused = [line for line in lines if "error[A0901]: static assertion failed" in line]
    for name in FAMILIES[family]:
        assert any(f"/{name}.cu:" in line or line.endswith(f"(template {name})") for line in refused)


@pytest.mark.parametrize("case", WRONG_FOR_ONE, ids=lambda c: c[0])
def test_a_formula_wrong_for_one_kernel(build_dir, compiles, repo, tmp_path, case):
    family, file, formula, wrong, (name, concerned, other) = case
    folder = changed(repo, tmp_path, file, formula, wrong)
    assert kernelgen(build_dir, folder, FAMILIES[family]) == []
    assert compiles(folder, name, other) == ""
    assert "static assertion failed" in compiles(folder, name, concerned)
