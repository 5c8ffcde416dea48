"""atlas tune TIMES --rekey OLD_ATLASC: times of kernels that are written otherwise and run as before.

The old compiler is a real one: today's, linked with a table of templates that kernelgen made of an edited copy. The
file of times has the keys that it gives, so to today's compiler each edited kernel is another one.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tomllib

import pytest

EDITS = [
    # the same code in other words, beside data that it does not read
    ("products/gemv_norm.cu", "\tfloat bias = 0.0f;\n", "\tfloat bias = Zero<2>::value;\n"),
    (
        "products/gemv_norm.cu",
        "\nextern",
        "\ntemplate <int N_> struct Zero { static constexpr float value = N_ - N_; };\nextern",
    ),
    # another loop
    ("slots/zero_slots.cu", "i < end; i += 256)", "i < end - 0 * s; i += 512)"),
    # the same code in blocks of another size
    ("experts/sum_experts.cu", "\nBLOCK(256)\n", "\nBLOCK(128)\n"),
]


# a template that had no tunable PER_WARP, and did what it does today with the first of its values
BEFORE_PER_WARP = ["products/gemv_residual.cu", "products/gemv_contract.cuh"]


@pytest.fixture(scope="module")
def was(build_dir, repo, tmp_path_factory):
    """The old compiler."""
    if build_dir != repo / "build":
        pytest.skip("linked with the flags of the plain build")
    folder = tmp_path_factory.mktemp("was")
    shutil.copytree(repo / "kernels/templates", folder / "templates")
    for name, old, new in EDITS:
        path = folder / "templates" / name
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        path.write_text(text.replace(old, new))
    kernel, contract = (folder / "templates" / name for name in BEFORE_PER_WARP)
    text = contract.read_text()
    assert text.count("TUNE(PER_WARP, 1, 2)\n") == 1 and kernel.read_text().count(contract.name) == 1
    text = text.replace("TUNE(PER_WARP, 1, 2)\n", "").replace("PER_WARP", "1")
    contract.with_name("of_one.cuh").write_text(text)  # of this kernel alone
    kernel.write_text(kernel.read_text().replace(contract.name, "of_one.cuh").replace("PER_WARP", "1"))
    link = build_dir / "was"
    shutil.rmtree(link, ignore_errors=True)
    shutil.copytree(folder, link)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    subprocess.run(["make", "-s", "build/was/atlasc"], cwd=repo, check=True, timeout=300, env=environment)
    return shutil.move(link / "atlasc", build_dir / "atlasc.was")


@pytest.fixture(scope="module")
def old_times(was, repo, tmp_path_factory) -> str:
    """A file of one time of each template, of the old compiler's kernels."""
    file = tomllib.loads((repo / "kernels/tuning/sm_90a.h100.toml").read_text())
    rows = {}
    for kernel in file["kernel"]:
        if kernel["template"] == "zero_slots":
            tunables = next(key for key in kernel if key not in ("template", "constants"))
            rows.setdefault(kernel["template"], (kernel["constants"], tunables))
    rows["gate_rows"] = ("COLS=14336 N=6144 ROWS=128", "")
    rows["sum_experts"] = ("K=2048 ROWS=128 SHARES=8", "")
    rows["gemv_norm"] = (
        "BIAS=0 BT=bf16 EPS=0x1.4f8b58p-17f K=576 N=960 NORM_ONE=0 NT=bf16 ROWS=1 WT=f16",
        "WARPS=4 PER_WARP=1",
    )
    rows["gemv_residual"] = ("BIAS=0 BT=bf16 K=576 N=576 ROWS=1 WT=f16", "WARPS=4")
    keys = dict.fromkeys(rows, "0" * 16)
    path = tmp_path_factory.mktemp("old") / "times.toml"

    def text() -> str:
        return '[card]\ntarget = "sm_90a"\nname = "A"\ndriver = "1"\n' + "".join(
            f'[[kernel]]\ntemplate = "{name}"\nconstants = "{rows[name][0]}"\n"{rows[name][1]}" = [2, 0, "{keys[name]}"]\n'
            for name in sorted(rows)
        )

    path.write_text(text())
    listed = json.loads(subprocess.check_output([was, "times", path, "--json"]))["files"][0]["times"]
    keys |= {t["template"]: t["key"] for t in listed}
    return text()


def current(atlasc, file: pathlib.Path) -> dict[str, bool]:
    listed = json.loads(atlasc("times", file, "--json").stdout)["files"][0]["times"]
    return {t["template"]: t["is_current"] for t in listed}


def test_equal_machine_code_keeps_a_time(atlas, atlasc, was, old_times, tmp_path):
    file = tmp_path / "times.toml"
    file.write_text(old_times)
    before = dict.fromkeys(["gate_rows", "gemv_norm", "gemv_residual", "sum_experts", "zero_slots"], False)
    before["gate_rows"] = True
    assert current(atlasc, file) == before
    done = atlas("tune", file, "--rekey", was, timeout=300)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "2 times kept: their kernels have the machine code that they had: gemv_norm gemv_residual\n"
        "2 times still of other kernels than today's: sum_experts zero_slots\n"
    )
    assert current(atlasc, file) == before | {"gemv_norm": True, "gemv_residual": True}
    new, old = (tomllib.loads(text)["kernel"] for text in (file.read_text(), old_times))
    for a, b in zip(new, old):
        if a["template"] == "gemv_residual":
            assert a["WARPS=4 PER_WARP=1"][:2] == b["WARPS=4"][:2] and len(a) == len(b)
            continue
        same = {**a, **{k: v[:2] for k, v in a.items() if isinstance(v, list)}}
        assert same == {**b, **{k: v[:2] for k, v in b.items() if isinstance(v, list)}}
        assert (a == b) == (a["template"] != "gemv_norm")


def test_another_file_and_quiet(atlas, atlasc, was, old_times, tmp_path):
    file, out = tmp_path / "times.toml", tmp_path / "out.toml"
    file.write_text(old_times)
    done = atlas("tune", file, "--rekey", was, "-q", "-o", out, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert file.read_text() == old_times and current(atlasc, out)["gemv_norm"]


def test_the_same_compiler_changes_nothing(atlas, atlasc, repo, tmp_path):
    file = tmp_path / "times.toml"
    shutil.copy(repo / "kernels/tuning/sm_90a.h200.toml", file)
    done = atlas("tune", file, "--rekey", atlasc.path)
    assert done.returncode == 0 and done.stderr.startswith(
        "0 times kept: their kernels have the machine code that they had\n"
    )
    assert file.read_text() == (repo / "kernels/tuning/sm_90a.h200.toml").read_text()


def test_refusals(atlas, atlasc, repo, tmp_path):
    file = tmp_path / "times.toml"
    file.write_text("[card\n")
    done = atlas("tune", file, "--rekey", atlasc.path)
    assert (done.returncode, done.stderr) == (
        4,
        f"atlas tune: {file}:1:1: error: unknown table: there are [card] and [[kernel]]\n",
    )
    shutil.copy(repo / "kernels/tuning/sm_90a.h200.toml", file)
    text = file.read_text()
    other = tmp_path / "other"
    for script, code, why in (
        ("exit 3", 3, f"{other} lists no times of {file}: exit code 3"),
        ("echo '{'", 4, f"{other} lists no times of {file}: exit code 4"),
        ('echo \'{"files": [{"times": []}]}\'', 4, f"{other} lists other times than {file} has"),
    ):
        other.write_text(f"#!/bin/sh\n{script}\n")
        other.chmod(0o755)
        done = atlas("tune", file, "--rekey", other)
        assert (done.returncode, done.stderr) == (code, f"atlas tune: error: {why}\n")
    done = atlas("tune", file, "--rekey", tmp_path / "none")
    assert (done.returncode, done.stderr) == (
        5,
        f"atlas tune: error: {tmp_path}/none cannot be started: No such file or directory\n",
    )
    done = atlas("tune", file, "--rekey", other, "--atlasc", tmp_path / "none")
    assert done.returncode == 5 and done.stderr.endswith("name the compiler with --atlasc FILE\n")
    done = atlas("tune", file, "--atlasc", other)
    assert (done.returncode, done.stderr) == (2, "atlas tune: error: --atlasc goes with --rekey\n")
    done = atlas("tune", file, "--rekey", other, "--only", "acquire")
    assert (done.returncode, done.stderr) == (
        2,
        "atlas tune: error: --rekey measures nothing: leave --only out\n",
    )
    assert file.read_text() == text
