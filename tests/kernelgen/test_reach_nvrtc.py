"""What kernelgen calls the same code compiles to the same machine code: NVRTC is asked, after edits at random.

A number or an operator of a template or of a header is changed. Where a template's code_sha256 stays, so must the
instructions of its kernel. A hash that stays where they change would keep times of another kernel. Data of the cubin is
not compared: constants of specialisations are there even if nothing reads them.
"""

from __future__ import annotations

import ctypes
import pathlib
import random
import re
import shutil
import struct
import subprocess
import tomllib

import pytest

NAMES = ["conv_rows", "embed_next", "gate_rows", "norm_rows", "quant_rows", "rope_write", "route_rows", "sum_experts"]
SEEDS = range(40)
ROOM = {"SLOTS": 8, "PAGES": 64, "MAX_PAGES": 64, "SEGS": 8, "STOPS": 4}
OPTIONS = ["-std=c++17", "-default-device", "--no-source-include", "--gpu-architecture=sm_90a", "-DSMEM_MAX=232448"]


@pytest.fixture(scope="module")
def nvrtc(atlasc):
    return ctypes.CDLL(re.search(r"^NVRTC: ([^\n,]+)", atlasc("--version").stdout, re.M)[1])


@pytest.fixture(scope="module")
def defines(repo) -> dict[str, list[str]]:
    """The constants of one kernel of each template, as some card was timed with."""
    found = {}
    for kernel in tomllib.loads((repo / "kernels/tuning/sm_90a.h200.toml").read_text())["kernel"]:
        tunables = next(key for key in kernel if key not in ("template", "constants"))
        found.setdefault(kernel["template"], (kernel["constants"] + " " + tunables).split())
    return {name: found[name] + [f"{k}={v}" for k, v in ROOM.items()] for name in NAMES}


def section(elf: bytes, name: str) -> bytes:
    """A section of a 64-bit ELF file."""
    at, size, n, names = (
        *struct.unpack_from("<Q", elf, 0x28),
        *struct.unpack_from("<HHH", elf, 0x3A),
    )
    heads = [struct.unpack_from("<IIQQQQ", elf, at + i * size) for i in range(n)]
    for head in heads:
        start = heads[names][4] + head[0]
        if elf[start : elf.index(b"\0", start)].decode() == name:
            return elf[head[4] : head[4] + head[5]]
    raise AssertionError(f"no section {name}")


@pytest.fixture(scope="module")
def instructions(nvrtc, defines):
    """instructions(folder, name): the instructions of that template there; None where it does not compile."""

    def of(folder: pathlib.Path, name: str) -> bytes | None:
        headers = sorted(folder.rglob("*.cuh"))
        n = len(headers)
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * n)(*[path.read_bytes() for path in headers])
        names = (ctypes.c_char_p * n)(*[str(path.relative_to(folder)).encode() for path in headers])
        source = place(folder, name).read_bytes()
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, f"{name}.cu".encode(), n, texts, names) == 0
        words = [word.encode() for word in OPTIONS + [f"-D{word}" for word in defines[name]]]
        good = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words)) == 0
        size = ctypes.c_size_t()
        if good:
            assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
        code = ctypes.create_string_buffer(size.value)
        if good:
            assert nvrtc.nvrtcGetCUBIN(program, code) == 0
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return section(code.raw, f".text.{name}") if good else None

    return of


@pytest.fixture(scope="module")
def hashes(build_dir, repo):
    def of(folder: pathlib.Path) -> dict[str, str] | None:
        done = subprocess.run(
            [build_dir / "kernelgen", "-o", folder / "table.c", "-I", folder] + [place(folder, name) for name in NAMES],
            cwd=repo,
            capture_output=True,
            check=False,
            timeout=60,
        )
        if done.returncode:
            return None
        found = re.findall(
            r'\.name = "(\w+)", \.file.*?\.code_sha256 = \{([^}]*)\}', (folder / "table.c").read_text(), re.S
        )
        return dict(found)

    return of


@pytest.fixture(scope="module")
def unchanged(hashes, instructions, repo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unchanged") / "templates"
    shutil.copytree(repo / "kernels/templates", folder)
    codes = {name: instructions(folder, name) for name in NAMES}
    assert all(codes.values())
    return hashes(folder), codes


def edit(rng: random.Random, text: str) -> str:
    """One number or operator is another one, anywhere but in a comment."""
    places = [m for m in re.finditer(r"//[^\n]*|\b\d+(\.\d+f)?\b| [-+*<>] | && ", text) if not m[0].startswith("//")]
    m = rng.choice(places)
    if m[0][0] == " ":
        new = {" + ": " - ", " - ": " + ", " * ": " + ", " < ": " <= ", " > ": " >= ", " && ": " || "}[m[0]]
    else:
        new = f"{float(m[0][:-1]) + 1}f" if m[0].endswith("f") else str(int(m[0]) + 1)
    return text[: m.start()] + new + text[m.end() :]


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_equal_hash_equal_machine_code(hashes, unchanged, instructions, repo, tmp_path, seed):
    rng = random.Random(seed)
    folder = tmp_path / "templates"
    shutil.copytree(repo / "kernels/templates", folder)
    files = {place(folder, name) for name in NAMES}
    for path in list(files):
        files |= {folder / name for name in re.findall(r'#include "(\w+/\w+\.cuh)"', path.read_text())}
    path = rng.choice(sorted(files))
    path.write_text(edit(rng, path.read_text()))
    now = hashes(folder)
    if now is None:
        pytest.skip("kernelgen refuses the edit")
    same = [name for name in NAMES if now[name] == unchanged[0][name]]
    reading = [name for name in same if path.name in (f"{name}.cu", *includes(folder, name))]
    for name in reading:
        assert instructions(folder, name) == unchanged[1][name], f"{name} after an edit of {path.name}"


def place(folder: pathlib.Path, name: str, suffix: str = ".cu") -> pathlib.Path:
    """The file of that name, in whatever room."""
    (path,) = folder.glob(f"*/{name}{suffix}")
    return path


def includes(folder: pathlib.Path, name: str, suffix: str = ".cu") -> set[str]:
    found = set(re.findall(r'#include "\w+/(\w+)\.cuh"', place(folder, name, suffix).read_text()))
    return {f"{f}.cuh" for f in found}.union(*(includes(folder, f, ".cuh") for f in found))
