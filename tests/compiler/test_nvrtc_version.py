"""NVRTC is loaded when a kernel must be compiled, and not before; a library that was replaced is asked for its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

FIXTURE = "tests/fixtures/llama"
ONE = "[runtime]\nslots = 1\n[phases]\nprefill = [16]\ndecode = [1]\n"
# A library that knows its version and compiles nothing.
STUB = r"""
#include <stddef.h>
#include <string.h>
static const char ptx[] = "// Cuda compilation tools, release 13.0, V" VERSION "\n";
int nvrtcVersion(int *major, int *minor) { *major = 13, *minor = 0; return 0; }
const char *nvrtcGetErrorString(int rc) { return rc ? "a stub" : "NVRTC_SUCCESS"; }
int nvrtcCreateProgram(void **p, const char *text, const char *name, int n, void *headers, void *names)
{
    *p = (void *)name;
    return 0;
}
int nvrtcCompileProgram(void *p, int n, void *options) { return strcmp(p, "empty.cu") ? 6 : 0; }
int nvrtcDestroyProgram(void **p) { return 0; }
int nvrtcGetProgramLogSize(void *p, size_t *n) { *n = 0; return 0; }
int nvrtcGetProgramLog(void *p, char *to) { return 0; }
int nvrtcGetCUBINSize(void *p, size_t *n) { return 6; }
int nvrtcGetCUBIN(void *p, char *to) { return 6; }
int nvrtcGetPTXSize(void *p, size_t *n) { *n = sizeof ptx; return 0; }
int nvrtcGetPTX(void *p, char *to) { memcpy(to, ptx, sizeof ptx); return 0; }
"""


@pytest.fixture
def compile_with(atlasc, repo, tmp_path):
    """compile_with(folder, *words): a compile that looks there for NVRTC first, with a cache of its own."""
    shutil.copytree(repo / FIXTURE, tmp_path / "llama")
    (tmp_path / "llama/MODEL.toml").write_text(ONE)

    def run(folder, *words):
        env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        if folder:
            env["LD_LIBRARY_PATH"] = str(folder)
        words = words or (tmp_path / "llama", "-q", "-o", tmp_path / "plan.bin", "--cache-dir", tmp_path / "cache")
        return atlasc(*words, env=env)

    return run


def stub(folder, version):
    folder.mkdir(exist_ok=True)
    (folder / "stub.c").write_text(STUB)
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        subprocess.run(
            ["cc", "-w", "-shared", "-fPIC", f'-DVERSION="{version}"', "-o", folder / name, folder / "stub.c"],
            check=True,
        )
    return folder


def version_of(atlas, plan):
    return re.search(r'"tool.nvrtc":"([^"]+)"', atlas("audit", plan, "--json").stdout)[1]


def test_a_compile_whose_kernels_are_cached_does_not_load_it(compile_with, atlas, tmp_path):
    assert compile_with(None).returncode == 0
    plan, version = (tmp_path / "plan.bin").read_bytes(), version_of(atlas, tmp_path / "plan.bin")
    shim = stub(tmp_path / "shim", version)  # as the real one, to whoever asks
    assert compile_with(shim).returncode == 0
    assert (tmp_path / "plan.bin").read_bytes() == plan
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):  # cut short in place; numbers of the file tell
        (shim / name).write_bytes(b"")
        done = compile_with(shim)
        assert done.returncode == 5 and "NVRTC does not work" in done.stderr, done.stderr
        stub(shim, version)
        assert compile_with(shim).returncode == 0


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_library_that_was_replaced_is_asked(compile_with, atlas, tmp_path, keeps_time):
    assert compile_with(None).returncode == 0
    version = version_of(atlas, tmp_path / "plan.bin")
    folder = stub(tmp_path / "shim", version)
    assert compile_with(folder).returncode == 0
    library = folder / "libnvrtc.so.13"
    before = library.stat()
    data = library.read_bytes()
    assert data.count(b"V" + version.encode()) == 1
    library.write_bytes(data.replace(b"V" + version.encode(), b"V" + version[:-1].encode() + b"x"))
    if keeps_time:  # of its last change; the same file and size, too
        os.utime(library, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = compile_with(folder)
    assert done.returncode == 5 and "error[A0910]: kernel " in done.stderr and "refuses it" in done.stderr, done.stderr
    assert compile_with(None).returncode == 0


def test_what_needs_no_kernel_needs_no_nvrtc(compile_with, tmp_path):
    """A library that cannot be loaded is named by what compiles, and harms nothing else."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/libnvrtc.so.13").write_text("no library")
    said = compile_with(tmp_path / "bad", "--version")
    assert (said.returncode, said.stdout.splitlines()[-1]) == (0, f"NVRTC: {tmp_path}/bad/libnvrtc.so.13")
    assert compile_with(tmp_path / "bad", tmp_path / "llama", "--estimate").returncode == 0
    plan = tmp_path / "none.bin"  # for the reference device alone
    assert compile_with(tmp_path / "bad", tmp_path / "llama", "--target", "none", "-q", "-o", plan).returncode == 0
    assert plan.exists()
    done = compile_with(tmp_path / "bad")
    assert (done.returncode, done.stderr) == (
        5,
        f"atlasc: error[A0910]: NVRTC does not work: {tmp_path}/bad/libnvrtc.so.13: file too short\n",
    )
