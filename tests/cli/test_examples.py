"""The examples of the manual pages are run as written, in a folder with the files that they name.

Where there is a GPU they run on it. Elsewhere they run on the fake driver, which executes a plan by the meaning of its
ops, but cannot time kernels: bench runs on the reference device then, and what needs a GPU's clock has to say so.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

from verbs import VERBS

PAGES = ["atlasc", "atlas", *[f"atlas-{verb}" for verb in VERBS]]
POLICY = '[dtypes]\nweight = ["bf16"]\nembedding = ["bf16"]\nnorm = ["bf16"]\n'
# What these compile, or measure on a device that is slower than any GPU, takes too long for every run.
SLOW = ("--rebuild", "--candidates", "bench plan.bin", "--target sm_90a,sm_80", "--certify")
COMPILER = """#!/bin/sh
# The compiler with a cache of kernels, so that the examples are quick.
for word; do case $word in explain|calibrate|kernels|times|--cache-dir) exec "{0}" "$@" ;; esac; done
exec "{0}" "$@" --cache-dir "{1}"
"""


# Without a GPU: what is said, and why.
TIMED = {
    "atlas bench plan.bin --kernels": (2, "--kernels: device cpu has no launches to time"),
    "atlas tune candidates.bin": (5, "error[NO_DRIVER]"),
}


def has_gpu():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def examples_of(build_dir, page):
    text = (build_dir / f"share/man/man1/{page}.1").read_text()
    section = re.search(r"^\.SH EXAMPLES\n(.*?)^\.SH", text, re.M | re.S)
    assert section, f"{page} has no examples"
    found = re.findall(r"^\.nf\n\.RS 4\n(.*?)\n\.RE\n\.fi$", section[1], re.M | re.S)
    return [e.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\") for e in found]


@pytest.fixture(scope="module")
def desk(build_dir, atlas, kernel_cache, plan_of, repo, tmp_path_factory):
    """A folder with what the examples name, and the environment that they run in."""
    desk = tmp_path_factory.mktemp("desk")
    shutil.copytree(repo / "tests/fixtures/llama-trained", desk / "model", ignore=shutil.ignore_patterns("MODEL.toml"))
    (desk / "model/MODEL.toml").write_text(
        "[runtime]\nslots = 2\nmax_context = 512\n[phases]\nprefill = [64]\ndecode = [1, 2]\n"
    )
    (desk / "model/chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    (desk / "prompts.jsonl").write_text('{"prompt": "In the beginning"}\n{"prompt": "And", "id": "b"}\n')
    (desk / "text.txt").write_text("In the beginning God created the heaven and the earth. " * 12)
    (desk / "keys.txt").write_text("a-key-that-is-long-enough-0123456789\n")
    (desk / "keys.txt").chmod(0o600)
    (desk / "policy.toml").write_text(POLICY)
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", desk / "key.pem"], check=True, capture_output=True
    )
    shutil.copy(plan_of(desk / "model"), desk / "plan.bin")
    shutil.copy(plan_of("llama-trained"), desk / "old.bin")
    shutil.copy(repo / "kernels/tuning/sm_90a.h200.toml", desk / "older.toml")
    (desk / "old").mkdir()
    (desk / "old/atlasc").symlink_to(build_dir / "atlasc")
    (desk / "bin").mkdir()
    (desk / "bin/atlasc").write_text(COMPILER.format(build_dir / "atlasc", kernel_cache))
    (desk / "bin/atlasc").chmod(0o755)
    env = {**os.environ, "PATH": f"{desk}/bin:{build_dir}:{os.environ['PATH']}"}
    first = subprocess.run(
        [
            build_dir / "atlas",
            "bench",
            "plan.bin",
            "--device",
            "cpu",
            "--tokens",
            "2",
            "--only",
            "pp64",
            "--json",
            "before.json",
        ],
        cwd=desk,
        capture_output=True,
        text=True,
        check=False,
    )
    assert first.returncode == 0, first.stderr
    fake = {} if has_gpu() else {"FAKE_CUDA_CC": "9.0", "LD_LIBRARY_PATH": f"{build_dir}/tests-gpu/fake"}
    return desk, env, fake


def run(desk, command):
    folder, env, fake = desk
    if "atlas bench" not in command and "atlas tune" not in command:
        env = env | fake
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def check_server(desk, command):
    """It answers /health until it is asked to end."""
    folder, env, fake = desk
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    assert "--port 8080" in command
    words = command.replace("--port 8080", f"--port {port}").split()
    server = subprocess.Popen(
        words, cwd=folder, env=env | fake, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for _ in range(600):
            try:
                assert urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).status == 200
                break
            except OSError:
                assert server.poll() is None, server.stdout.read()
                time.sleep(0.1)
        else:
            raise AssertionError("no answer in a minute")
        server.send_signal(signal.SIGTERM)
        said, _ = server.communicate(timeout=60)
        assert server.returncode == 0, said
    finally:
        server.kill()


def check(desk, command):
    if command.startswith("atlas serve"):
        check_server(desk, command)
        return
    got = run(desk, command)
    for start, (code, text) in TIMED.items() if desk[2] else []:
        if start in command:
            assert got.returncode == code and text in got.stderr, f"{command}\n{got.stderr}"
            return
    differs = command.startswith("atlas diff") or " verify plan.bin" in command and got.returncode == 1
    assert got.returncode == (1 if differs else 0), f"{command}\n{got.stdout}{got.stderr}"
    assert "error" not in got.stderr, f"{command}\n{got.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_quick_ones(build_dir, desk, page):
    found = examples_of(build_dir, page)
    assert found
    for command in found:
        if not any(word in command for word in SLOW):
            check(desk, command)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_slow_ones(build_dir, desk, page):
    for command in examples_of(build_dir, page):
        if any(word in command for word in SLOW):
            check(desk, command)


def test_help_has_the_same_ones(build_dir, atlas):
    for verb in VERBS:
        text = atlas(verb, "--help").stdout
        for command in examples_of(build_dir, f"atlas-{verb}"):
            assert command in text.replace("\n      ", "\n"), f"{verb}: {command}"
