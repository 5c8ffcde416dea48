"""A clean clone of the tree under test, built once for all tests that need one."""

from __future__ import annotations

import pathlib

import pytest
from clean_clone import clean_clone, make, reachable


@pytest.fixture(scope="session")
def clone(repo: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig) -> pathlib.Path:
    """The tree in another folder, built there without a CUDA toolkit: NVRTC comes from PyPI."""
    if pytestconfig.getoption("--build-dir") != "build":
        pytest.skip("the plain build is built twice, a sanitized one is not")
    folder = clean_clone(repo, tmp_path_factory.mktemp("elsewhere") / "tree")
    got = make(folder, "deps", f"VENV={repo}/build/venv")
    if got.returncode != 0 and not reachable():
        pytest.skip("PyPI is out of reach: " + (got.stderr.strip().splitlines() or ["?"])[-1])
    assert got.returncode == 0, got.stderr
    got = make(folder)
    assert got.returncode == 0, got.stderr
    assert "warning" not in (got.stdout + got.stderr).lower()
    return folder
