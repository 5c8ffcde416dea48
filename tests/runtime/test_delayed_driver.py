"""Tests of sessions on a driver that lags behind, by seeds of its delays (tests/unit/fake_driver.h): they still hold."""

from __future__ import annotations

import os
import subprocess

import pytest

PROGRAMS = (
    "test_flights",
    "test_drafts",
    "test_runtime",
    "test_misuse",
    "test_bench",
    "test_certify",
    "test_receipt",
    "test_runtime_memory",
    "test_relocatable",
)


def run(build_dir, repo, program, seed, *words):
    done = subprocess.run(
        [build_dir / "tests" / program, *words],
        cwd=repo,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
        env={**os.environ, "FAKE_CUDA_DELAYS": str(seed)},
    )
    assert done.returncode == 0, f"FAKE_CUDA_DELAYS={seed} {program}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.mark.parametrize("program", PROGRAMS[:2])
def test_sessions(build_dir, repo, program):
    run(build_dir, repo, program, 1)


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_sessions_over_many_seeds(build_dir, repo, program):
    for seed in range(2, 14):
        run(build_dir, repo, program, seed)


@pytest.mark.long
def test_loads_over_many_seeds(build_dir, repo):
    for seed in range(100, 1300, 40):
        run(build_dir, repo, "test_delays", 0, str(seed))
