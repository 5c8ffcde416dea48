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

# (file, formula, wrong for all, wrong for one kernel alone, family, that template, its constants, others of it)
FORMULAS = [
    (
        "products/wgmma.cuh",
        "1024 + wgmma_stages(bn) * ((128 + bn) * 128) + 1024",
        "1024 + wgmma_stages(bn) / 2 * ((128 + bn) * 128) + 1024",
        "(bn == 64 ? 0 : 1024) + wgmma_stages(bn) * ((128 + bn) * 128) + 1024",
        [
            "wgmma_linear",
            "wgmma_residual",
            "wgmma_swiglu",
            "wgmma_fp8_linear",
            "wgmma_fp8_residual",
            "wgmma_fp8_swiglu",
        ],
        ("wgmma_linear", WGMMA.format(64), WGMMA.format(128)),
    ),
    (
        "products/wgmma_codes.cuh",
        "FORMULA(codes_smem(), 1024 + codes_rings_bytes() + 1024)",
        "FORMULA(codes_smem(), codes_rings_bytes() + 1024)",
        None,
        ["wgmma_codes_linear", "wgmma_codes_residual", "wgmma_codes_swiglu"],
        None,
    ),
]


@pytest.fixture(scope="module")
def compiles(build_dir):
    """compiles(folder, name, constants): NVRTC's log; "" where it takes the kernel."""
    listed = subprocess.run(["ldd", build_dir / "atlasc"], capture_output=True, text=True, check=True).stdout
    nvrtc = ctypes.CDLL(re.search(r"libnvrtc\S* => (\S+)", listed)[1])

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


@pytest.mark.parametrize("case", FORMULAS, ids=lambda c: c[0])
def test_a_wrong_formula_builds_nothing(build_dir, repo, tmp_path, case):
    file, formula, wrong, _, family, _ = case
    folder = changed(repo, tmp_path, file, formula, formula)
    assert kernelgen(build_dir, folder, family) == []
    lines = kernelgen(build_dir, changed(repo, tmp_path, file, formula, wrong), family)
    for name in family:
        assert any(
            "error[A0901]: static assertion failed" in line and line.endswith(f"(template {name})") for line in lines
        )


@pytest.mark.parametrize("case", [c for c in FORMULAS if c[3]], ids=lambda c: c[0])
def test_a_formula_wrong_for_one_kernel(build_dir, compiles, repo, tmp_path, case):
    file, formula, _, wrong, family, (name, concerned, other) = case
    folder = changed(repo, tmp_path, file, formula, wrong)
    assert kernelgen(build_dir, folder, family) == []
    assert compiles(folder, name, other) == ""
    assert "static assertion failed" in compiles(folder, name, concerned)
