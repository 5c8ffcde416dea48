"""scripts/deps.sh: what is missing is said in one line each, and installing asks apt for exactly that.

The script is run with stand-ins for `cc`, `apt-get` and `id` in front of the path: no test here installs
anything or needs a machine on which something is really missing.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess
import time

import pytest

STATIC = {
    "libjansson-dev",
    "libevent-dev",
    "libmsgpack-dev",
    "libssl-dev",
    "libsodium-dev",
    "libedit-dev",
    "libncurses-dev",
}


@pytest.fixture
def deps(repo: pathlib.Path, tmp_path: pathlib.Path):
    """deps(*args, stubs={name: shell text}, **variables) runs the script as the Makefile would."""

    def run(*args: str, stubs: dict[str, str] | None = None, **variables: str):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, text in (stubs or {}).items():
            stub = folder / name
            stub.write_text(f"#!/bin/sh\n{text}\n")
            stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
        toolkit = tmp_path / "cuda"
        (toolkit / "include").mkdir(parents=True, exist_ok=True)
        for header in ("cuda.h", "nvrtc.h"):
            (toolkit / "include" / header).touch()
        env = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "CC": "cc",
            "CUDA_ROOT": str(toolkit),
            "WHEELS": str(tmp_path / "wheels"),
            "VENV": str(tmp_path / "venv"),
            **variables,
        }
        return subprocess.run(
            [repo / "scripts/deps.sh", *args],
            cwd=repo,
            env=env,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )

    return run


# A compiler for a machine that has no library folder: every static library is missing.
ELSEWHERE = {"cc": "echo no-such-machine"}


def test_complete_machine_is_silent_and_fast(deps):
    start = time.monotonic()
    got = deps("check", "build")
    assert (got.returncode, got.stdout, got.stderr) == (0, "", "")
    assert time.monotonic() - start < 1


def test_every_missing_package_is_one_line(deps):
    got = deps("check", "build", stubs=ELSEWHERE)
    assert got.returncode != 0
    assert got.stdout == ""
    lines = got.stderr.splitlines()
    assert (
        "missing: Debian package libjansson-dev (JSON of the checkpoint, linked statically); "
        "`make deps` installs it" in lines
    )
    assert {line.split()[3] for line in lines} == STATIC
    assert len(lines) == len(STATIC)


def test_missing_toolkit_names_the_wheel(deps, tmp_path):
    got = deps("check", "build", CUDA_ROOT=str(tmp_path / "none"))
    assert got.returncode != 0
    assert got.stderr == (
        "missing: CUDA toolkit 13 or PyPI package nvidia-cuda-nvrtc==13.0.88 "
        "(compiles the kernels); `make deps` installs it\n"
    )


def test_install_says_why_and_asks_apt_once(deps, tmp_path):
    log = tmp_path / "apt.log"
    got = deps("install", "build", stubs={**ELSEWHERE, "id": "echo 0", "apt-get": f'echo "$@" >>{log}'})
    assert got.returncode == 0, got.stderr
    assert "installing libssl-dev       SHA-256 of plan sections, linked statically" in got.stdout
    update, install = log.read_text().splitlines()
    assert update == "update"
    assert install.startswith("install -y --no-install-recommends ")
    assert set(install.split()[3:]) == STATIC


def test_failing_apt_is_one_clear_line_last(deps):
    got = deps(
        "install", "build", stubs={**ELSEWHERE, "id": "echo 0", "apt-get": "echo E: no route to the mirror; exit 100"}
    )
    assert got.returncode == 1
    assert "E: no route to the mirror" in got.stderr
    last = got.stderr.splitlines()[-1]
    assert last.startswith("missing: ") and all(package in last for package in STATIC)


@pytest.mark.skipif(shutil.which("sudo") is not None, reason="this machine has sudo")
def test_plain_user_without_sudo_gets_the_command(deps):
    got = deps("install", "build", stubs={**ELSEWHERE, "id": "echo 1000", "apt-get": "exit 99"})
    assert got.returncode == 1
    assert got.stderr.startswith("missing: Debian packages; as root, run: apt-get install -y ")
    assert all(package in got.stderr for package in STATIC)


def test_plain_user_with_sudo_goes_through_it(deps, tmp_path):
    log = tmp_path / "sudo.log"
    got = deps("install", "build", stubs={**ELSEWHERE, "id": "echo 1000", "sudo": f'echo "$@" >>{log}'})
    assert got.returncode == 0, got.stderr
    assert log.read_text().splitlines()[0] == "env DEBIAN_FRONTEND=noninteractive apt-get update"


def test_failing_pip_is_one_clear_line_last(deps, tmp_path):
    pip = tmp_path / "venv/bin/python"  # -m pip
    pip.parent.mkdir(parents=True)
    pip.write_text("#!/bin/sh\necho ERROR: no index >&2\nexit 1\n")
    pip.chmod(0o755)
    got = deps("install", "build", CUDA_ROOT=str(tmp_path / "none"))
    assert got.returncode == 1
    assert got.stderr.splitlines()[-1] == (
        "missing: PyPI packages nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96: pip failed (above)"
    )
    assert not (tmp_path / "wheels").exists()


def test_a_folder_with_a_space_is_refused(repo, tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    shutil.copy(repo / "Makefile", folder)
    got = subprocess.run(["make"], cwd=folder, text=True, capture_output=True, check=False, timeout=60)
    assert (got.returncode, got.stdout) == (2, "")
    assert f'make takes words apart at spaces: move the tree out of "{folder}".  Stop.' in got.stderr
