"""The kernel test itself, without a GPU: faults planted in results are noticed, and the templates compile.

What the kernels compute is tested on a GPU (tests/gpu/run.sh); here it is made sure that such a run could fail.
"""

from __future__ import annotations

import pathlib
import subprocess

import pytest


@pytest.fixture(scope="module")
def kernel_test(build_dir: pathlib.Path) -> pathlib.Path:
    path = build_dir / "tests-gpu" / "kernel_test"
    assert path.exists(), f"{path} is missing: run make tests"
    return path


def run(*args: object) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, args)), capture_output=True, text=True, timeout=300, check=False)


def test_planted_faults_are_noticed(kernel_test: pathlib.Path) -> None:
    done = run(kernel_test, "--self-check", "--cases", 6)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("0 faults unnoticed\n")


def test_every_template_has_admissible_trials(kernel_test: pathlib.Path) -> None:
    """One draw of every template, compiled, for the target with the least shared memory."""
    done = run(kernel_test, "--no-gpu", "sm_120a", "--cases", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no admissible constants" not in done.stdout


def test_usage(kernel_test: pathlib.Path) -> None:
    assert run(kernel_test, "--cases", "0").returncode == 2
    assert run(kernel_test, "--no-gpu", "sm_1").returncode == 2
