"""Verbs write files in one way: over regular files only, by umask or the old mode, whole or not at all."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess

import pytest

FIXTURE = "tests/fixtures/llama"


@pytest.fixture(scope="module")
def plan(atlasc, tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.bin"
    assert atlasc(FIXTURE, "--target", "none", "-o", path, "-q").returncode == 0
    return path


@pytest.fixture(scope="module")
def gpu_plan(atlasc, kernel_cache, tmp_path_factory):
    path = tmp_path_factory.mktemp("gpu") / "plan.bin"
    assert atlasc(FIXTURE, "--target", "sm_90a", "-o", path, "-q", "--cache-dir", kernel_cache).returncode == 0
    return path


TOKENS = ["--tokens", "3,4,5,6"]
BENCH = ["--device", "cpu", "--tokens", "2", "--only", "tg2@0x1"]
VERBS = {
    "compile": lambda b, plan, out: [b / "atlasc", FIXTURE, "--target", "none", "-q", "-o", out],
    "audit": lambda b, plan, out: [b / "atlas", "audit", plan, "--html", out],
    "rebuild": lambda b, plan, out: [b / "atlas", "verify", plan, "--rebuild", "--checkpoint", FIXTURE, "-o", out],
    "dump": lambda b, plan, out: [b / "atlas", "dump", plan, *TOKENS, "--device", "cpu", "-o", out],
    "bench, JSON": lambda b, plan, out: [b / "atlas", "bench", plan, *BENCH, "--json", out],
    "bench, page": lambda b, plan, out: [b / "atlas", "bench", plan, *BENCH, "--html", out],
    "receipt": lambda b, plan, out: [b / "atlas", "receipt", plan, "-o", out],
}


@pytest.fixture(params=VERBS)
def write(request, build_dir, plan):
    how = {}
    if request.param == "receipt":  # of a GPU: the driver of the tests
        plan = request.getfixturevalue("gpu_plan")
        how = {"env": {**os.environ, "LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_CC": "9.0"}}
    return lambda out, **more: subprocess.run(
        VERBS[request.param](build_dir, plan, out),
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        **how,
        **more,
    )


@pytest.mark.parametrize(
    "kind,make",
    [
        ("a FIFO", os.mkfifo),
        ("a folder", os.mkdir),
        ("a symbolic link", lambda p: os.symlink("/dev/stdout", p)),
        ("a device", lambda p: os.mknod(p, 0o020600, os.makedev(1, 3))),
    ],
)
def test_what_is_no_file_stays(write, tmp_path, kind, make):
    out = tmp_path / "out"
    try:
        make(out)
    except PermissionError:
        pytest.skip("makes no device here")
    before = out.lstat()
    run = write(out)
    assert run.returncode == 5 and f"not a regular file but {kind}\n" in run.stderr, run.stderr
    assert (out.lstat().st_ino, out.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("umask,mode", [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_umask(write, tmp_path, umask, mode):
    assert write(tmp_path / "out", umask=umask).returncode == 0
    assert (tmp_path / "out").stat().st_mode & 0o7777 == mode and os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_mode_of_what_is_replaced(write, tmp_path, mode):
    out = tmp_path / "out"
    out.write_text("old")
    out.chmod(mode)
    assert write(out).returncode == 0
    assert out.stat().st_mode & 0o7777 == mode and out.stat().st_size > 3 and os.listdir(tmp_path) == ["out"]


def test_no_room_leaves_the_old_file(write, tmp_path):
    out = tmp_path / "out"
    out.write_text("old")
    run = write(out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
    assert run.returncode == 5 and "File too large" in run.stderr, (run.returncode, run.stderr)
    assert out.read_text() == "old" and os.listdir(tmp_path) == ["out"]


def test_signing_keeps_the_mode(atlas, plan, tmp_path):
    key, copy = tmp_path / "key.pem", tmp_path / "plan.bin"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, capture_output=True)
    shutil.copy(plan, copy)
    copy.chmod(0o600)
    assert atlas("sign", copy, "--key", key).returncode == 0
    assert copy.stat().st_mode & 0o7777 == 0o600 and sorted(os.listdir(tmp_path)) == ["key.pem", "plan.bin"]
